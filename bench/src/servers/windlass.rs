//! The crate itself: plain reads, each echo the lease that was read.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use windlass::{Completions, Done, DriverKind, Op, Watcher};

const STOP: u64 = 1;

/// Serves until SIGTERM, then prints how many allocations there were, and their bytes.
pub fn serve(port: u16, driver: DriverKind) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    // A thread takes the signal: it is blocked everywhere else.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTERM);
    stop.thread_block()?;
    let mut watcher = Watcher::builder().driver(driver).build()?;
    let (tell, hear) = UnixStream::pair()?;
    let signals = watcher.attach(hear)?;
    watcher.submit(Op::read(signals).token(STOP))?;
    thread::spawn(move || stop.wait().map(|_| drop(tell)));
    let listener = watcher.listen(([127, 0, 0, 1], port))?;
    watcher.submit(Op::accept(listener).multishot())?;

    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let next = match c.result {
                Ok(Done::Read(_)) if c.token == STOP => {
                    let (calls, bytes) = crate::allocations::counted();
                    println!("allocations {calls} bytes {bytes}");
                    return Ok(());
                }
                Ok(Done::Accepted(socket)) => Op::read(watcher.attach(socket)?),
                Ok(Done::Read(data)) if data.is_eof() => Op::close(c.source),
                Ok(Done::Read(data)) => Op::write(c.source, data),
                Ok(Done::Written { .. }) => Op::read(c.source),
                Ok(_) => continue,
                Err(_) => {
                    watcher.abort(c.source);
                    continue;
                }
            };
            watcher.submit(next)?;
        }
    }
}
