//! An echo server on all processors. Each thread has its own loop and its own listener on the same
//! port, and the kernel spreads the connections over the listeners (`SO_REUSEPORT`).
//!
//! ```text
//! cargo run --release --example reuseport -- [--port N] [--threads N]
//! ```
//!
//! The server ends on SIGINT and SIGTERM, and prints how many connections each loop has served.

use std::io;
use std::num::NonZeroUsize;
use std::thread;

use windlass::net::ListenOptions;
use windlass::{Address, Completions, Done, Op, Source, Watcher};

mod common;

fn main() -> io::Result<()> {
    let mut options = common::Options::new("reuseport [--port N] [--threads N]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    let threads = options.take("--threads").or_else(|| thread::available_parallelism().ok());
    options.end();

    let mut watcher = Watcher::new()?;
    common::signals(&mut watcher)?;

    let mut address = Address::from(([127, 0, 0, 1], port));
    let mut loops = Vec::new();
    for i in 0..threads.map_or(1, NonZeroUsize::get) {
        let (tell, bound) = crossbeam_channel::bounded(1);
        let at = address.clone();
        let spawned = Watcher::builder().spawn(format!("loop {i}"), move |mut watcher| {
            let shared = ListenOptions::default().reuse_port(true);
            let listener = watcher.listen_with(at, shared)?;
            tell.send(watcher.local_address(listener)?).map_err(io::Error::other)?;
            echo(watcher, listener)
        })?;
        match bound.recv() {
            Ok(at) => address = at, // port 0 becomes a number, which the others share
            Err(_) => return Err(spawned.thread.join().expect("no panic").unwrap_err()),
        }
        loops.push(spawned);
    }
    println!("listening on {address}");

    watcher.wait(&mut Completions::new())?;
    for (i, spawned) in loops.into_iter().enumerate() {
        spawned.submitter.wake(0)?;
        println!("loop {i}: {} connections", spawned.thread.join().expect("no panic")?);
    }
    Ok(())
}

/// Serves until a message arrives. Returns the number of connections.
fn echo(mut watcher: Watcher, listener: Source) -> io::Result<usize> {
    watcher.submit(Op::accept(listener).multishot())?;
    let mut count = 0;
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let next = match c.result {
                Ok(Done::Message(_)) => return Ok(count),
                Err(error) if c.source == listener => return Err(error.into()),
                Ok(Done::Accepted(socket)) => {
                    count += 1;
                    Op::read(watcher.attach(socket)?) // accepts wait while the table is full
                }
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
