//! One acceptor, several loops: a thread accepts, and hands each connection to the next loop.
//!
//! ```text
//! cargo run --release --example acceptor -- [--port N] [--threads N]
//! ```
//!
//! The acceptor chooses the loop; in the example `reuseport` the kernel chooses. From its own
//! thread, the acceptor attaches the connection to the watcher of that loop, and submits the first
//! read. Both calls wait while the loop has no room, so an overloaded loop slows the accepts down.
//! The program ends on SIGINT and SIGTERM, and prints how many connections each loop has got.

use std::io;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use windlass::{Completions, Done, Op, Watcher};

mod common;

/// How long the acceptor waits for room in a loop before it drops a connection.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let mut options = common::Options::new("acceptor [--port N] [--threads N]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    let threads = options.take("--threads").or_else(|| thread::available_parallelism().ok());
    options.end();

    let mut watcher = Watcher::new()?;
    common::signals(&mut watcher)?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    let mut loops = Vec::new();
    for i in 0..threads.map_or(1, NonZeroUsize::get) {
        loops.push((Watcher::builder().spawn(format!("loop {i}"), echo)?, 0));
    }
    watcher.submit(Op::accept(listener).multishot())?;

    let (mut next, mut done) = (0, Completions::new());
    'accept: loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let socket = match c.result? {
                Done::Accepted(socket) => socket,
                _ => break 'accept, // a signal
            };
            let (to, count) = &mut loops[next];
            match to.submitter.attach_wait(socket, PATIENCE) {
                Ok(source) => {
                    to.submitter.submit_wait(Op::read(source), PATIENCE)?;
                    *count += 1;
                }
                Err(refused) => eprintln!("{refused}"), // closes the connection
            }
            next = (next + 1) % loops.len();
        }
    }
    for (i, (spawned, count)) in loops.into_iter().enumerate() {
        spawned.submitter.wake(0)?;
        spawned.thread.join().expect("no panic")?;
        println!("loop {i}: {count} connections");
    }
    Ok(())
}

/// A loop: serves its connections until a message arrives.
fn echo(mut watcher: Watcher) -> io::Result<()> {
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let next = match c.result {
                Ok(Done::Message(_)) => return Ok(()),
                Ok(Done::Read(data)) if !data.is_eof() => Op::write(c.source, data),
                Ok(Done::Written { .. }) => Op::read(c.source),
                _ => {
                    watcher.abort(c.source);
                    continue;
                }
            };
            common::submit(&mut watcher, next);
        }
    }
}
