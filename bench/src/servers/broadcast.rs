//! Bare writes: one message to all connections every `interval` milliseconds. All writes share one
//! copy of its bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::websocket_floor;
use crate::websocket_load;
use windlass::{Completions, Done, Op, Source, Watcher};

/// Serves until it is killed. With `is_websocket` it answers the handshake of a client, and its
/// messages are frames.
pub fn serve(port: u16, size: usize, interval: u64, is_websocket: bool) -> io::Result<()> {
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
                    if !is_websocket {
                        clients.push(client);
                    }
                }
                Ok(Done::Read(data)) if !data.is_eof() => {
                    if data.ends_with(b"\r\n\r\n") && is_websocket {
                        let head = websocket_floor::switch().into_bytes();
                        watcher.submit(Op::write(c.source, head).quiet())?;
                        clients.push(c.source);
                    }
                }
                Ok(Done::Timer) => {
                    watcher.submit(Op::timer(interval))?;
                    number += 1;
                    let mut frame = message(number, size);
                    if is_websocket {
                        frame.splice(..0, websocket_load::head(0x81, frame.len(), None));
                    }
                    let message: Arc<[u8]> = frame.into();
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

/// The same message as that of the examples `serve_broadcast` and `ws_broadcast`.
fn message(number: u64, size: usize) -> Vec<u8> {
    let mut message = format!("message {number} ").into_bytes();
    message.resize(size.max(message.len() + 1) - 1, b'.');
    message.push(b'\n');
    message
}
