//! A loop that does little more than the kernel's part of a server: it receives batches of
//! requests, counts their lines, and sends as many replies. Every reply is the same.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    socket: TcpStream,
    /// Lines since the last reply.
    lines: usize,
    unsent: Vec<u8>,
}

/// Sends `reply` for every `lines` lines. In `reply`, the text `\r\n` means CR and LF.
pub fn serve(port: u16, lines: usize, reply: String) -> io::Result<()> {
    let listener = super::listen(port)?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let reply = reply.replace("\\r\\n", "\r\n").into_bytes();
    let mut events = Events::with_capacity(1024);
    let mut connections: HashMap<Token, Connection> = HashMap::new();
    let mut next = 0;
    let mut space = vec![0; 64 << 10];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != LISTENER {
                let connection = connections.get_mut(&event.token()).expect("it is registered");
                if !connection.go_on(event, lines, &reply, &mut space) {
                    connections.remove(&event.token());
                }
                continue;
            }
            while let Ok((mut socket, _)) = listener.accept() {
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut socket, Token(next), interest)?;
                let connection = Connection { socket, lines: 0, unsent: Vec::new() };
                connections.insert(Token(next), connection);
                next += 1;
            }
        }
    }
}

impl Connection {
    /// False when the connection has ended.
    fn go_on(&mut self, event: &Event, lines: usize, reply: &[u8], space: &mut [u8]) -> bool {
        while event.is_readable() {
            let count = match self.socket.read(space) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            };
            self.lines += space[..count].iter().filter(|&&byte| byte == b'\n').count();
            while self.lines >= lines {
                self.lines -= lines;
                self.unsent.extend_from_slice(reply);
            }
            if count < space.len() {
                break; // a short read: nothing is left until the next edge
            }
        }
        match self.socket.write(&self.unsent) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        true
    }
}
