//! An echo server on the reactor alone: the reactor says which sockets are ready, and the program
//! reads and writes.
//!
//! ```text
//! cargo run --release --example reactor_echo -- [--port N]
//! ```
//!
//! This suits sockets on which other code does the I/O. The server stops reading a client that does
//! not read its answers: it then watches that socket for room to write, not for bytes. It ends on
//! SIGINT and SIGTERM.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use windlass::driver::Wait;
use windlass::reactor::{Mode, Reactor, Watch};
use windlass::{Complete, Completions, Ready, Submit, Watcher};

mod common;

const STOP: u64 = 0;
const ACCEPT: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// A socket, and the bytes that have to go out before it is read again.
struct Client(TcpStream, Vec<u8>);

impl Client {
    /// Reads once, if nothing waits to go out, and writes; answers what to wait for, nothing at the
    /// end. What is left in the socket is reported again (level-triggered).
    fn serve(&mut self) -> io::Result<Option<Ready>> {
        let Client(socket, unsent) = self;
        if unsent.is_empty() {
            let mut bytes = [0; 16 << 10];
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => unsent.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        match socket.write(unsent) {
            Ok(count) => {
                unsent.drain(..count);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(Some(if unsent.is_empty() { Ready::READABLE } else { Ready::WRITABLE }))
    }
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new("reactor_echo [--port N]");
    let port: u16 = options.take("--port").unwrap_or(7007);
    options.end();

    let mut reactor = Reactor::new()?;
    // The descriptor of a watcher is readable when a wait would find something: here, a signal.
    let (mut watcher, mut told) = (Watcher::new()?, Completions::new());
    common::signals(&mut watcher)?;
    watcher.try_wait(&mut told)?; // as before each sleep on the descriptor
    if let Ok(signals) = watcher.pollable() {
        reactor.submit(Watch::dup(signals, Ready::READABLE)?.token(STOP))?;
    }
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    reactor.submit(Watch::dup(&listener, Ready::READABLE)?.token(ACCEPT))?;

    let (mut clients, mut number) = (HashMap::new(), FIRST_CLIENT);
    let mut items = Completions::new();
    loop {
        reactor.complete(Wait::Forever, &mut items)?;
        for item in items.drain(..) {
            match item.token {
                STOP if watcher.try_wait(&mut told)? > 0 => return Ok(()),
                STOP => {}
                ACCEPT => match listener.accept() {
                    Ok((socket, _)) => {
                        socket.set_nonblocking(true)?;
                        reactor.submit(Watch::dup(&socket, Ready::READABLE)?.token(number))?;
                        clients.insert(number, Client(socket, Vec::new()));
                        number += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                },
                client => match clients.get_mut(&client).map(Client::serve) {
                    Some(Ok(Some(ready))) => reactor.modify(item.ticket, ready, Mode::Level)?,
                    Some(_) => {
                        clients.remove(&client); // its end, or an error
                        reactor.cancel(item.ticket);
                    }
                    None => {} // the last item of a watch, with the descriptor that closes here
                },
            }
        }
    }
}
