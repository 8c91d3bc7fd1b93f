//! Framing: messages with a length in front, however the network cuts them into parts.
//!
//! ```text
//! cargo run --release --example framing -- [--port N]
//! ```
//!
//! A message is its length in four bytes (the highest first), and then as many bytes. The server
//! answers with the bytes of the message in reverse order. Each connection keeps the bytes of an
//! incomplete message, with a bound and a deadline. The server submits the next read when the
//! answers are written. So it does not read from a client that does not read its answers. It ends
//! on SIGINT and SIGTERM.

use std::io;
use std::time::{Duration, Instant};

use windlass::{Completions, Done, Op, Source, SourceMap, Watcher};

mod common;

/// The longest message that is accepted, in bytes.
const LONGEST: usize = 1 << 20;
/// How long a message may take from its first byte on, and a connection may be idle.
const SLOW: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);

/// The bytes of an incomplete message, and the deadline of the rest.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    by: Option<Instant>,
}

impl Tail {
    /// Takes all whole messages out and returns their answers; nothing if one is too long.
    fn answers(&mut self) -> Option<Vec<u8>> {
        let (mut at, mut answers) = (0, Vec::new());
        while let Some((head, rest)) = self.bytes[at..].split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*head) as usize;
            if length > LONGEST {
                return None;
            }
            let Some(body) = rest.get(..length) else { break };
            answers.extend_from_slice(head);
            answers.extend(body.iter().rev());
            at += head.len() + length;
        }
        if at > 0 {
            self.bytes.drain(..at);
            self.by = None; // the next message has a time of its own
        }
        Some(answers)
    }

    /// The next read of the connection.
    fn read(&mut self, source: Source, now: Instant) -> Op {
        let limit = if self.bytes.is_empty() { IDLE } else { SLOW };
        Op::read(source).deadline(*self.by.get_or_insert(now + limit))
    }
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new("framing [--port N]");
    let port: u16 = options.take("--port").unwrap_or(7009);
    options.end();

    let mut watcher = Watcher::new()?;
    common::signals(&mut watcher)?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    watcher.submit(Op::accept(listener).multishot())?;

    let mut tails: SourceMap<Tail> = SourceMap::new();
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        let now = watcher.now();
        for c in done.drain(..) {
            let next = match (c.result, tails.get_mut(c.source)) {
                (Ok(Done::Signal(_)), _) => return Ok(()),
                (Err(error), None) if c.source == listener => return Err(error.into()),
                (Ok(Done::Accepted(socket)), _) => {
                    let client = watcher.attach(socket)?;
                    let mut tail = Tail::default();
                    let read = tail.read(client, now);
                    tails.insert(client, tail);
                    Some(read)
                }
                (Ok(Done::Written { .. }), Some(tail)) => Some(tail.read(c.source, now)),
                (Ok(Done::Read(data)), Some(tail)) if !data.is_eof() => {
                    if tail.bytes.is_empty() {
                        tail.by = Some(now + SLOW);
                    }
                    tail.bytes.extend_from_slice(&data);
                    match tail.answers() {
                        Some(answers) if answers.is_empty() => Some(tail.read(c.source, now)),
                        Some(answers) => Some(Op::write(c.source, answers).timeout(SLOW)),
                        None => None, // too long
                    }
                }
                _ => None, // its end, an error, or too slow
            };
            match next {
                Some(next) => common::submit(&mut watcher, next),
                None => {
                    tails.remove(c.source);
                    watcher.abort(c.source);
                }
            }
        }
    }
}
