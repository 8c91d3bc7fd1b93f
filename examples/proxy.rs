//! A TCP proxy: it writes the bytes that one side sends to the other side, without a copy.
//!
//! ```text
//! cargo run --release --example proxy -- --to HOST:PORT [--port N]
//! ```
//!
//! Each direction submits its next read when its last write has completed. So a slow receiver slows
//! its sender down, and a connection holds at most one lease per direction. When one direction
//! ends, the proxy passes the end on (half-close), and the other direction continues. The server's
//! source exists before its connection: what the client sends meanwhile waits for it. The proxy
//! ends on SIGINT and SIGTERM.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use windlass::net::ConnectOptions;
use windlass::{Completions, Done, Op, Source, SourceMap, Watcher};

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
    let to: Vec<SocketAddr> = to.to_socket_addrs()?.collect();

    let mut watcher = Watcher::new()?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    common::signals(&mut watcher)?;
    watcher.submit(Op::accept(listener).multishot())?;

    let mut sides: SourceMap<Side> = SourceMap::new();
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let from = c.source;
            let other = sides.get(from).map(|side| side.other);
            let next = match (c.result, other) {
                (Ok(Done::Signal(_)), _) => return Ok(()),
                (Err(error), _) if from == listener => return Err(error.into()),
                (Ok(Done::Accepted(socket)), _) => {
                    let client = watcher.attach(socket)?;
                    let options = ConnectOptions::default().timeout(CONNECT);
                    let (server, _) = watcher.connect(to.iter().copied(), options)?;
                    for (side, other) in [(client, server), (server, client)] {
                        sides.insert(side, Side { other, complete: false });
                    }
                    submit(&mut watcher, &mut sides, Op::read(client));
                    Op::read(server)
                }
                (Ok(Done::Connected(_)), _) => continue,
                (Ok(Done::Read(data)), Some(other)) if data.is_eof() => Op::shutdown(other),
                (Ok(Done::Read(data)), Some(other)) => Op::write(other, data).timeout(STALLED),
                (Ok(Done::Written { .. }), Some(other)) => Op::read(other),
                (Ok(Done::Shutdown), Some(other)) => {
                    let complete = sides.get(other).is_some_and(|side| side.complete);
                    if let Some(side) = sides.get_mut(from).filter(|_| !complete) {
                        side.complete = true;
                        continue;
                    }
                    end(&mut watcher, &mut sides, from);
                    continue;
                }
                // One side has failed, or the connect to the server has.
                _ => {
                    end(&mut watcher, &mut sides, from);
                    continue;
                }
            };
            submit(&mut watcher, &mut sides, next);
        }
    }
}

/// A source that is refused has failed, perhaps in this batch: the other side ends with it.
fn submit(watcher: &mut Watcher, sides: &mut SourceMap<Side>, op: Op) {
    let source = op.source();
    if watcher.submit(op).is_err() {
        end(watcher, sides, source);
    }
}

/// Ends both sides of a connection.
fn end(watcher: &mut Watcher, sides: &mut SourceMap<Side>, side: Source) {
    let other = sides.remove(side).map(|side| side.other);
    for side in [Some(side), other].into_iter().flatten() {
        sides.remove(side);
        watcher.abort(side);
    }
}
