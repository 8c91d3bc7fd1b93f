//! A TCP proxy: it writes the bytes that one side sends to the other side, without a copy.
//!
//! ```text
//! cargo run --release --example proxy -- --to HOST:PORT [--port N]
//! ```
//!
//! Each direction submits its next read when its last write has completed. So a slow receiver slows
//! its sender down, and a connection holds at most one lease per direction. When one direction
//! ends, the proxy passes the end on (half-close), and the other direction continues. The proxy
//! ends on SIGINT and SIGTERM.

use std::collections::HashMap;
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

use windlass::{Completions, Done, Op, Source, Watcher};

mod common;

const CONNECT: Duration = Duration::from_secs(5);
/// A receiver that takes nothing for so long is dropped, so that its lease returns to the pool.
const STALLED: Duration = Duration::from_secs(60);

/// One side of a connection: the other side, and whether everything has been passed on to this one.
struct Side {
    other: Source,
    complete: bool,
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new("proxy --to HOST:PORT [--port N]");
    let port: u16 = options.take("--port").unwrap_or(7008);
    let to: String = options.take("--to").unwrap_or("127.0.0.1:7007".into());
    options.end();
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("{to} has no address"));
    let to = to.to_socket_addrs()?.next().ok_or_else(none)?;

    let mut watcher = Watcher::new()?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    let signals = watcher.attach(common::signals()?)?;
    watcher.submit(Op::read(signals))?;
    watcher.submit(Op::accept(listener).multishot())?;

    let mut connecting = HashMap::new(); // clients by the token of their connect
    let mut sides: HashMap<Source, Side> = HashMap::new();
    let (mut number, mut done) = (0, Completions::new());
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let from = c.source;
            let other = sides.get(&from).map(|side| side.other);
            let next = match (c.result, other) {
                (Ok(Done::Read(_)), None) if from == signals => return Ok(()),
                (Err(error), _) if from == listener => return Err(error.into()),
                (Ok(Done::Accepted(socket)), _) => {
                    number += 1;
                    connecting.insert(number, watcher.attach(socket)?);
                    Op::connect(to).token(number).timeout(CONNECT)
                }
                (Ok(Done::Connected(socket)), _) => {
                    let client = connecting.remove(&c.token).expect("it waits for this");
                    let server = watcher.attach(socket)?;
                    for (side, other) in [(client, server), (server, client)] {
                        sides.insert(side, Side { other, complete: false });
                        watcher.submit(Op::read(side))?;
                    }
                    continue;
                }
                (Ok(Done::Read(data)), Some(other)) if data.is_eof() => Op::shutdown(other),
                (Ok(Done::Read(data)), Some(other)) => Op::write(other, data).timeout(STALLED),
                (Ok(Done::Written { .. }), Some(other)) => Op::read(other),
                (Ok(Done::Shutdown), Some(other)) if !sides[&other].complete => {
                    sides.get_mut(&from).expect("it has another").complete = true;
                    continue;
                }
                // Both directions have ended, or one side has failed, or the connect to the
                // server has failed.
                (_, other) => {
                    let client = connecting.remove(&c.token).filter(|_| from.is_none());
                    for side in [Some(from), other, client].into_iter().flatten() {
                        sides.remove(&side);
                        watcher.abort(side);
                    }
                    continue;
                }
            };
            watcher.submit(next)?;
        }
    }
}
