//! An echo server: what comes in goes out again, without a copy.
//!
//! ```text
//! cargo run --release --example echo -- [--port N | --unix PATH] [--multishot]
//!     [--busy-poll MICROS]
//! ```
//!
//! With `--multishot` the server reads a connection before its answers are sent. If a client does
//! not read its answers, the server stops reading until most of them are sent.
//!
//! Ends on SIGINT and SIGTERM: it accepts no more, answers what has arrived, and closes.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

#[allow(dead_code)] // it reads its options itself
mod shared;

use windlass::{
    Address, Completion, Completions, Done, Error, ErrorKind, Op, Source, Ticket, Watcher,
};

const STOP: u64 = 1;
/// The server stops reading a connection at `HIGH` queued bytes, and resumes at `LOW`.
const HIGH: usize = 4 << 20;
const LOW: usize = 1 << 20;
/// A read of this many bytes checks the queued bytes.
const MUCH: usize = 16 << 10;

fn main() -> io::Result<()> {
    let Arguments { address, multishot, busy_poll } = arguments();
    let mut watcher = Watcher::builder().busy_poll(busy_poll).build()?;
    let listener = shared::listen(&mut watcher, address)?; // backlog 4096, TCP_NODELAY
    println!("listening on {}", watcher.local_address(listener)?);
    // Before a burst of connections can use up the descriptors that this needs.
    let signals = shared::signals(&mut watcher)?;
    watcher.submit(Op::read(signals).token(STOP))?;
    watcher.submit(Op::accept(listener).multishot())?;

    let mut reads = Multishot::default();
    let mut done = Completions::new();
    let mut stop_by = None;
    loop {
        if let Some(stop_by) = stop_by {
            let quiet = watcher.wait_timeout(&mut done, Duration::from_millis(100))? == 0;
            if quiet || watcher.now() >= stop_by {
                return Ok(()); // drained, or a client that never stops
            }
        } else {
            watcher.wait(&mut done)?;
        }
        for Completion { source, token, result, .. } in done.drain(..) {
            match result {
                Ok(Done::Read(_)) if token == STOP => {
                    watcher.abort(listener);
                    stop_by = Some(watcher.now() + Duration::from_secs(5));
                }
                Ok(Done::Accepted(socket)) => match watcher.attach(socket) {
                    Ok(accepted) if multishot => reads.start(&mut watcher, accepted),
                    Ok(accepted) => drop(watcher.submit(Op::read(accepted))?),
                    Err(refused) => eprintln!("{refused}"), // closes the connection
                },
                Ok(Done::Read(data)) if data.is_eof() => drop(watcher.submit(Op::close(source))),
                // The client's share of the swap buffers bounds small messages.
                Ok(Done::Read(data)) if multishot && data.len() >= MUCH => {
                    drop(watcher.submit(Op::write(source, data)));
                    reads.pause_if_behind(&mut watcher, source);
                }
                Ok(Done::Read(data)) => drop(watcher.submit(Op::write(source, data))),
                Ok(Done::Drained) => reads.start(&mut watcher, source),
                Ok(Done::Written { buf, .. }) if !multishot => {
                    drop(buf);
                    drop(watcher.submit(Op::read(source)));
                }
                Ok(_) => {}
                Err(error) => ended(&mut watcher, source, &error),
            }
        }
    }
}

/// The multishot reads. One is cancelled while its client reads too slowly.
#[derive(Default)]
struct Multishot(HashMap<u32, Ticket>);

impl Multishot {
    fn start(&mut self, watcher: &mut Watcher, source: Source) {
        // A source that was aborted meanwhile is refused.
        if let Ok(ticket) = watcher.submit(Op::read(source).multishot()) {
            self.0.insert(source.index(), ticket);
        }
    }

    fn pause_if_behind(&mut self, watcher: &mut Watcher, source: Source) {
        if watcher.queued_bytes(source).is_ok_and(|bytes| bytes > HIGH) {
            self.0.remove(&source.index()).map(|ticket| watcher.cancel(ticket));
        }
    }
}

/// An operation has failed: the connection ends, unless its read was paused.
#[cold]
fn ended(watcher: &mut Watcher, source: Source, error: &Error) {
    if error.kind() == ErrorKind::Cancelled {
        drop(watcher.submit(Op::wait_drained(source, LOW)));
    } else if error.raw_os_error().is_some() && watcher.abort(source) {
        eprintln!("{error}");
    }
}

struct Arguments {
    address: Address,
    multishot: bool,
    busy_poll: Duration,
}

fn arguments() -> Arguments {
    parse(std::env::args().skip(1)).unwrap_or_else(|| {
        eprintln!("usage: echo [--port N | --unix PATH] [--multishot] [--busy-poll MICROS]");
        std::process::exit(2);
    })
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let address = Address::from(([127, 0, 0, 1], 7007));
    let mut found = Arguments { address, multishot: false, busy_poll: Duration::ZERO };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--port" => found.address = ([127, 0, 0, 1], words.next()?.parse().ok()?).into(),
            "--unix" => found.address = Address::unix(words.next()?).ok()?,
            "--multishot" => found.multishot = true,
            "--busy-poll" => {
                found.busy_poll = Duration::from_micros(words.next()?.parse().ok()?);
            }
            _ => return None,
        }
    }
    Some(found)
}
