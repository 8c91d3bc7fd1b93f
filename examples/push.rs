//! A push server: at every tick of a timer, it sends the same bytes to all connections. The bytes
//! are in memory only once.
//!
//! ```text
//! cargo run --release --example push -- [--port N] [--interval MS]
//! ```
//!
//! Every write has a deadline of three ticks. So the server drops a peer that does not read, and no
//! other peer is delayed. It ends on SIGINT and SIGTERM.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass::{Completions, Done, Op, Source, Watcher};

mod common;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("push [--port N] [--interval MS]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    let interval = Duration::from_millis(options.take("--interval").unwrap_or(1000).max(1));
    options.end();

    let mut watcher = Watcher::new()?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    common::signals(&mut watcher)?;
    watcher.submit(Op::accept(listener).multishot())?;
    // Absolute times, so that ticks do not drift.
    let mut next = watcher.now() + interval;
    watcher.submit(Op::timer_at(next))?;

    let mut peers: HashSet<Source> = HashSet::new();
    let mut ticks = 0u64;
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Timer) => {
                    ticks += 1;
                    let text = format!("tick {ticks} for {} peers\n", peers.len());
                    let bytes: Arc<[u8]> = Arc::from(text.into_bytes());
                    for &peer in &peers {
                        let write = Op::write(peer, Arc::clone(&bytes));
                        if let Err(refused) = watcher.submit(write.timeout(3 * interval)) {
                            eprintln!("{peer:?}: {refused}");
                        }
                    }
                    next = watcher.now().max(next + interval);
                    watcher.submit(Op::timer_at(next))?;
                }
                Ok(Done::Accepted(socket)) => match watcher.attach(socket) {
                    Ok(peer) => {
                        peers.insert(peer);
                        watcher.submit(Op::read(peer).multishot())?; // to see its end
                    }
                    Err(refused) => eprintln!("{refused}"), // closes the connection
                },
                Ok(Done::Signal(_)) => return Ok(()),
                Ok(Done::Read(data)) if !data.is_eof() => {} // the server ignores the bytes
                Ok(Done::Written { .. }) => {}
                Ok(Done::Read(_)) => drop_peer(&mut watcher, &mut peers, c.source, "has left"),
                Ok(other) => eprintln!("unexpected: {other:?}"),
                Err(error) => {
                    drop_peer(&mut watcher, &mut peers, c.source, &error.to_string());
                }
            }
        }
    }
}

/// Aborts a peer once. Its other operations complete as aborted, and call this again.
fn drop_peer(watcher: &mut Watcher, peers: &mut HashSet<Source>, peer: Source, why: &str) {
    if peers.remove(&peer) {
        eprintln!("{peer:?}: {why}");
        watcher.abort(peer);
    }
}
