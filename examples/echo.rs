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
use std::time::{Duration, Instant};

mod common;

use windlass::{Address, Completion, Completions, Done, ErrorKind, Op, Source, Watcher};

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

    let check_from = if multishot { LARGE } else { usize::MAX };
    let mut server = Server { watcher, listener, multishot, stop_by: None };
    let mut done = Completions::new();
    while server.wait(&mut done)? {
        let mut visit = done.visit();
        while let Some(c) = visit.next() {
            let source = c.source;
            match &c.result {
                Ok(Done::Read(data)) if !data.is_eof() => {
                    if data.len() >= check_from {
                        server.check_queue(c);
                    }
                    let data = c.take_read().expect("a read");
                    if quiet {
                        common::submit(&mut server.watcher, Op::write(source, data).quiet());
                    } else {
                        common::submit(&mut server.watcher, Op::write(source, data));
                    }
                }
                Ok(Done::Written { .. }) => {
                    if !multishot {
                        common::submit(&mut server.watcher, Op::read(source));
                    }
                }
                _ => server.other(c)?,
            }
        }
    }
    Ok(())
}

struct Server {
    watcher: Watcher,
    listener: Source,
    multishot: bool,
    stop_by: Option<Instant>,
}

impl Server {
    /// Waits for completions; false when the server has ended.
    fn wait(&mut self, done: &mut Completions) -> io::Result<bool> {
        let Some(stop_by) = self.stop_by else {
            self.watcher.wait(done)?;
            return Ok(true);
        };
        let idle = self.watcher.wait_timeout(done, Duration::from_millis(100))? == 0;
        // Drained, or a client that never stops.
        Ok(!(idle || self.watcher.now() >= stop_by))
    }

    /// Stops a read when its source has too many bytes of answers queued.
    #[cold]
    fn check_queue(&mut self, read: &Completion) {
        if self.watcher.queued_bytes(read.source).is_ok_and(|bytes| bytes > HIGH) {
            self.watcher.cancel(read.ticket());
        }
    }

    /// All else: signals, connections, and the ends of reads and writes.
    #[cold]
    fn other(&mut self, c: &mut Completion) -> io::Result<()> {
        let next = match &c.result {
            Ok(Done::Signal(_)) => {
                self.watcher.abort(self.listener);
                self.stop_by = Some(self.watcher.now() + Duration::from_secs(5));
                return Ok(());
            }
            // The client has sent all that it has to send.
            Ok(Done::Read(_)) => Op::close(c.source),
            Ok(Done::Accepted(_)) => {
                let socket = c.take_handle().expect("an accept has a socket");
                let source = self.watcher.attach(socket)?;
                self.read(source)
            }
            Ok(Done::Drained) => self.read(c.source),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Cancelled => Op::wait_drained(c.source, LOW),
            Err(error) if c.source == self.listener && self.stop_by.is_none() => {
                return Err(io::Error::other(format!("accept: {error}")));
            }
            Err(_) => {
                self.watcher.abort(c.source); // the other end is gone
                return Ok(());
            }
        };
        common::submit(&mut self.watcher, next);
        Ok(())
    }

    fn read(&self, source: Source) -> Op {
        if self.multishot { Op::read(source).multishot() } else { Op::read(source) }
    }
}
