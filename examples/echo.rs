//! An echo server: it writes the bytes that it reads, without a copy.
//!
//! ```text
//! cargo run --release --example echo -- [--port N | --unix PATH] [--multishot]
//!     [--quiet] [--busy-poll MICROS]
//! ```
//!
//! The server stops reading a client that does not read its answers. Without `--multishot` it
//! submits the next read when the answer is sent. With `--multishot` one read stays in flight: the
//! server cancels it when too many bytes of answers are queued, and starts it again when most of
//! them are sent. With `--quiet` (and `--multishot`) its writes make no completions unless they
//! fail.
//!
//! On SIGINT and SIGTERM the server accepts no more connections, answers the bytes that have
//! arrived, and ends.

use std::io;
use std::time::Duration;

mod common;

use windlass::{Address, Completions, Done, ErrorKind, Op, Watcher};

/// With `--multishot` the server stops reading a connection at `HIGH` queued bytes, and starts
/// again at `LOW`.
const HIGH: usize = 4 << 20;
const LOW: usize = 1 << 20;
/// Smaller reads are not checked: the share that a connection has of the swap buffers bounds what
/// they queue.
const LARGE: usize = 16 << 10;

fn main() -> io::Result<()> {
    let usage = "echo [--port N | --unix PATH] [--multishot] [--quiet] [--busy-poll MICROS]";
    let mut options = common::Options::new(usage);
    let mut address = Address::from(([127, 0, 0, 1], options.take("--port").unwrap_or(7007)));
    if let Some(path) = options.take::<String>("--unix") {
        address = Address::unix(path)?;
    }
    let busy_poll = Duration::from_micros(options.take("--busy-poll").unwrap_or(0));
    let quiet = options.flag("--quiet");
    let multishot = options.flag("--multishot") || quiet;
    options.end();

    let mut watcher = Watcher::builder().busy_poll(busy_poll).build()?;
    common::signals(&mut watcher)?;
    let listener = common::listen(&mut watcher, address)?;
    println!("listening on {}", watcher.local_address(listener)?);
    watcher.submit(Op::accept(listener).multishot())?;

    let read = |source| if multishot { Op::read(source).multishot() } else { Op::read(source) };
    let (mut done, mut stop_by) = (Completions::new(), None);
    loop {
        if let Some(stop_by) = stop_by {
            let idle = watcher.wait_timeout(&mut done, Duration::from_millis(100))? == 0;
            if idle || watcher.now() >= stop_by {
                return Ok(()); // drained, or a client that never stops
            }
        } else {
            watcher.wait(&mut done)?;
        }
        for c in done.drain(..) {
            let (source, ticket) = (c.source, c.ticket());
            let next = match c.result {
                Ok(Done::Signal(_)) => {
                    watcher.abort(listener);
                    stop_by = Some(watcher.now() + Duration::from_secs(5));
                    continue;
                }
                Ok(Done::Accepted(socket)) => read(watcher.attach(socket)?),
                Ok(Done::Read(data)) if data.is_eof() => Op::close(source),
                Ok(Done::Read(data)) => {
                    let check = multishot && data.len() >= LARGE;
                    if quiet {
                        common::submit(&mut watcher, Op::write(source, data).quiet());
                    } else {
                        common::submit(&mut watcher, Op::write(source, data));
                    }
                    if check && watcher.queued_bytes(source).is_ok_and(|bytes| bytes > HIGH) {
                        watcher.cancel(ticket);
                    }
                    continue;
                }
                Ok(Done::Written { buf, .. }) if !multishot => {
                    drop(buf); // the next read may use its memory
                    common::submit(&mut watcher, Op::read(source));
                    continue;
                }
                Ok(Done::Drained) => read(source),
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::Cancelled => Op::wait_drained(source, LOW),
                Err(error) if source == listener && stop_by.is_none() => return Err(error.into()),
                Err(_) => {
                    watcher.abort(source); // the other end is gone
                    continue;
                }
            };
            common::submit(&mut watcher, next);
        }
    }
}
