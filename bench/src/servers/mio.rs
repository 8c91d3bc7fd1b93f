//! mio, edge-triggered: reads until a short read, writes, and keeps what does not go out.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    socket: TcpStream,
    /// What could not be written, and how much of it is out.
    unsent: Vec<u8>,
    sent: usize,
}

pub fn serve(port: u16) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut vacant = Vec::new();
    let mut events = Events::with_capacity(1024);
    let mut space = vec![0; 64 << 10];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != LISTENER {
                let Token(index) = event.token();
                let Some(connection) = &mut connections[index] else { continue };
                if !connection.go_on(&mut space).unwrap_or(false) {
                    connections[index] = None;
                    vacant.push(index);
                }
                continue;
            }
            loop {
                let (mut socket, _) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                socket.set_nodelay(true)?;
                let index = vacant.pop().unwrap_or_else(|| {
                    connections.push(None);
                    connections.len() - 1
                });
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut socket, Token(index), interest)?;
                connections[index] = Some(Connection { socket, unsent: Vec::new(), sent: 0 });
            }
        }
    }
}

impl Connection {
    /// False when the connection has ended.
    fn go_on(&mut self, space: &mut [u8]) -> io::Result<bool> {
        loop {
            while self.sent < self.unsent.len() {
                match self.socket.write(&self.unsent[self.sent..]) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) => return Err(error),
                }
            }
            self.unsent.clear();
            self.sent = 0;
            let count = match self.socket.read(space) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            let sent = match self.socket.write(&space[..count]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            self.unsent.extend_from_slice(&space[sent..count]);
            if count < space.len() && self.unsent.is_empty() {
                return Ok(true); // nothing is left until the next edge
            }
        }
    }
}
