//! Bare writes: one message to all connections every `interval` milliseconds. All writes share one
//! copy of its bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass::{Completions, Done, Op, Source, Watcher};

/// Serves until it is killed.
pub fn serve(port: u16, size: usize, interval: u64) -> io::Result<()> {
    windlass::fd::raise_max_open_files()?;
    let interval = Duration::from_millis(interval);
    let mut watcher = Watcher::new()?;
    let listener = watcher.listen(([127, 0, 0, 1], port))?;
    watcher.submit(Op::accept(listener).multishot())?;
    watcher.submit(Op::timer(interval))?;
    let mut clients: Vec<Source> = Vec::new();
    let mut number = 0;
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Accepted(socket)) => {
                    let client = watcher.attach(socket)?;
                    // The read ends when the client closes.
                    watcher.submit(Op::read(client).multishot())?;
                    clients.push(client);
                }
                Ok(Done::Read(data)) if !data.is_eof() => {}
                Ok(Done::Timer) => {
                    watcher.submit(Op::timer(interval))?;
                    number += 1;
                    let message: Arc<[u8]> = message(number, size).into();
                    for client in &clients {
                        watcher.submit(Op::write(*client, Arc::clone(&message)).quiet())?;
                    }
                }
                // A client has gone, or a write to it has failed.
                Ok(_) | Err(_) => {
                    clients.retain(|client| *client != c.source);
                    watcher.abort(c.source);
                }
            }
        }
    }
}

/// The same message as that of the example `serve_broadcast`.
fn message(number: u64, size: usize) -> Vec<u8> {
    let mut message = format!("message {number} ").into_bytes();
    message.resize(size.max(message.len() + 1) - 1, b'.');
    message.push(b'\n');
    message
}
