//! A chat: all clients receive the bytes that one client sends, and the lines typed at the server.
//!
//! ```text
//! cargo run --release --example chat -- [--port N]
//! ```
//!
//! The bytes of a message exist once: every write holds a clone of the read's lease, and so does
//! the thread that prints the log. The server drops a client that does not read for five seconds,
//! because the writes to it hold leases of the pool. The server ends on SIGINT and SIGTERM.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windlass::{Completions, Done, Lease, Op, Source, Watcher};

mod common;

const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> io::Result<()> {
    let mut options = common::Options::new("chat [--port N]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    options.end();

    let mut watcher = Watcher::new()?;
    let listener = common::listen(&mut watcher, ([127, 0, 0, 1], port))?;
    println!("listening on {}", watcher.local_address(listener)?);
    common::signals(&mut watcher)?;
    watcher.submit(Op::accept(listener).multishot())?;

    // A worker formats and prints; leases may be dropped on any thread.
    let (log, lines) = crossbeam_channel::bounded::<(Source, Lease)>(256);
    let worker = thread::spawn(move || {
        for (client, said) in lines {
            print!("{client:?}: {}", String::from_utf8_lossy(&said));
        }
    });
    // The loop gets typed lines as messages; at the end of the input the thread ends.
    let submitter = watcher.submitter();
    thread::spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines.all(|line| submitter.post(0, format!("server: {line}\n")).is_ok())
    });

    let mut clients = HashSet::new();
    let mut done = Completions::new();
    'serve: loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Signal(_)) => break 'serve,
                Err(error) if c.source == listener => return Err(error.into()),
                Ok(Done::Accepted(socket)) => {
                    let client = watcher.attach(socket)?; // accepts wait while the table is full
                    clients.insert(client);
                    watcher.submit(Op::read(client).multishot())?;
                }
                Ok(Done::Read(data)) if !data.is_eof() => {
                    let lease = data.into_lease().expect("a read without a buffer");
                    for &client in clients.iter().filter(|&&client| client != c.source) {
                        let write = Op::write(client, lease.clone()).timeout(PATIENCE);
                        common::submit(&mut watcher, write);
                    }
                    // The loop never waits for the log.
                    if log.try_send((c.source, lease)).is_err() {
                        eprintln!("the log is full: a line is missing");
                    }
                }
                Ok(Done::Message(message)) => {
                    let line: String = message.downcast().expect("only lines are posted");
                    let line: Arc<[u8]> = Arc::from(line.into_bytes());
                    for &client in &clients {
                        let write = Op::write(client, line.clone()).timeout(PATIENCE);
                        common::submit(&mut watcher, write);
                    }
                }
                Ok(Done::Written { .. }) => {}
                // The end of a client, or its first error; the others follow as aborted.
                _ => {
                    clients.remove(&c.source);
                    watcher.abort(c.source);
                }
            }
        }
    }
    drop(log);
    worker.join().expect("no panic");
    Ok(())
}
