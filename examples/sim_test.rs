//! A server and its test: the same code runs on a simulated network with faults, and for real.
//!
//! ```text
//! cargo run --example sim_test -- [--seeds N] [--seed FIRST]
//! ```
//!
//! The server takes a `&mut Watcher`, and time and sockets from it. So a test can
//! simulate short writes, late answers and deadlines. Time is virtual: ten seconds of silence take
//! no time. When a test fails, it prints its seed; `--seed` runs it again with the same faults.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass::sim::{Faults, Sim};
use windlass::{Completion, Completions, Done, Op, Reason, Source, Watcher};

mod common;

const SERVER: u64 = 1;
const CLIENT: u64 = 2;

/// The server: echoes, and hangs up on a client that says nothing for `idle`.
struct Echo {
    listener: Source,
    idle: Duration,
}

impl Echo {
    fn new(watcher: &mut Watcher, idle: Duration) -> io::Result<Echo> {
        let listener = watcher.listen(([127, 0, 0, 1], 0))?;
        watcher.submit(Op::accept(listener).multishot().token(SERVER))?;
        Ok(Echo { listener, idle })
    }

    fn handle(&self, watcher: &mut Watcher, c: Completion) -> io::Result<()> {
        let next = match c.result {
            Ok(Done::Accepted(socket)) => Op::read(watcher.attach(socket)?).timeout(self.idle),
            Ok(Done::Read(data)) if !data.is_eof() => Op::write(c.source, data),
            Ok(Done::Written { .. }) => Op::read(c.source).timeout(self.idle),
            Err(error) if c.source == self.listener => return Err(error.into()),
            _ => {
                watcher.abort(c.source); // its end, an error, or a deadline
                return Ok(());
            }
        };
        match watcher.submit(next.token(SERVER)) {
            Err(refused) if refused.reason != Reason::Stale => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

/// The test: a client hears what it says, then is silent, and is hung up on in time.
fn test(watcher: &mut Watcher, idle: Duration) -> io::Result<()> {
    let echo = Echo::new(watcher, idle)?;
    let address = watcher.local_address(echo.listener)?;
    watcher.submit(Op::connect(address).token(CLIENT))?;
    let said: Arc<[u8]> = (0..300_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    let (mut heard, mut last, mut done) = (Vec::new(), watcher.now(), Completions::new());
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            if c.token == SERVER {
                echo.handle(watcher, c)?;
                continue;
            }
            match c.result? {
                Done::Connected(socket) => {
                    let client = watcher.attach(socket)?;
                    watcher.submit(Op::write(client, Arc::clone(&said)).token(CLIENT))?;
                    watcher.submit(Op::read(client).multishot().token(CLIENT))?;
                }
                Done::Read(data) if data.is_eof() => {
                    assert_eq!(heard, *said, "what was heard");
                    assert!(watcher.now() - last >= idle / 2, "hung up on too early");
                    return Ok(());
                }
                Done::Read(data) => {
                    heard.extend_from_slice(&data);
                    last = watcher.now();
                }
                _ => {} // all is written
            }
        }
    }
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new("sim_test [--seeds N] [--seed FIRST]");
    let first: u64 = options.take("--seed").unwrap_or(0);
    let seeds: u64 = options.take("--seeds").unwrap_or(100);
    options.end();

    let mut faults = 0;
    for seed in first..first + seeds {
        let sim = Sim::with_faults(seed, Faults::transient(0.2));
        let result = test(&mut Watcher::simulated(&sim), Duration::from_secs(10));
        result.map_err(|error| io::Error::other(format!("seed {seed}: {error}")))?;
        faults += sim.injected().total();
    }
    assert!(faults > 0, "a test without faults proves little");
    println!("simulated: {seeds} seeds, {faults} faults");
    test(&mut Watcher::new()?, Duration::from_millis(200))?;
    println!("for real: ok");
    Ok(())
}
