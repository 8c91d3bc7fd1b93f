//! Servers on threads, and clients with sockets of std.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;

use windlass::{DriverKind, Watcher};
use windlass_serve::modes::IoMode;
use windlass_web::report::Report;
use windlass_web::{App, Running};

use super::{End, Net, PATIENCE};

/// A server on a driver of the system.
pub struct Real {
    pub server: Running,
    clients: Vec<Client>,
}

struct Client {
    /// The socket, unless the client has reset it.
    stream: Option<TcpStream>,
    heard: Vec<u8>,
    /// Whether a write has met a reset. On Linux, the reads behind it see an end of file. (A reset
    /// behind an end of file is another error.)
    is_broken: bool,
}

impl Real {
    /// Serves an application on this driver.
    pub fn with<S: 'static>(kind: DriverKind, app: App<S>) -> Real {
        let app = app.watcher(Watcher::builder().driver(kind)).listen("127.0.0.1:0");
        let server = app.expect("an address").start().expect("the server starts");
        Real { server, clients: Vec::new() }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Shuts the server down.
    pub fn stop(self) -> Report {
        let Real { server, clients } = self;
        drop(clients);
        shutdown(server)
    }
}

/// Shuts a server down. One that does not end is a failure, not a hang.
pub fn shutdown(server: Running) -> Report {
    let (send, receive) = channel();
    thread::spawn(move || {
        let _ = send.send(server.shutdown());
    });
    receive.recv_timeout(3 * PATIENCE).expect("the server ends").expect("a report")
}

/// A client whose reads and writes end.
pub fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    stream.set_nodelay(true).expect("an option");
    stream
}

fn is_reset(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

/// Reads once, at most so many bytes; how the connection has ended, if it has.
pub fn read(stream: &mut TcpStream, heard: &mut Vec<u8>, most: usize) -> Option<End> {
    let mut buffer = vec![0; most];
    match stream.read(&mut buffer) {
        Ok(0) => Some(End::Eof),
        Ok(count) => {
            heard.extend_from_slice(&buffer[..count]);
            None
        }
        Err(error) if is_reset(error.kind()) => Some(End::Reset),
        Err(error) => panic!("{error}, behind {:?}", super::text(heard)),
    }
}

/// Reads until the connection has ended.
pub fn read_all(stream: &mut TcpStream, heard: &mut Vec<u8>) -> End {
    loop {
        if let Some(end) = read(stream, heard, 1 << 16) {
            return end;
        }
    }
}

impl Real {
    fn connect_client(&mut self) -> usize {
        let stream = Some(client(self.address()));
        self.clients.push(Client { stream, heard: Vec::new(), is_broken: false });
        self.clients.len() - 1
    }

    fn stream(&mut self, client: usize) -> &mut TcpStream {
        self.clients[client].stream.as_mut().expect("it was not reset")
    }

    fn say_to(&mut self, client: usize, bytes: &[u8]) {
        match self.stream(client).write_all(bytes) {
            Err(error) if !is_reset(error.kind()) => panic!("a write: {error}"),
            Err(error) => {
                self.clients[client].is_broken |= error.kind() == ErrorKind::ConnectionReset;
            }
            Ok(()) => {}
        }
    }

    fn hear_from(&mut self, client: usize, what: &str, mut enough: impl FnMut(&[u8]) -> bool) {
        let Client { stream, heard, .. } = &mut self.clients[client];
        let stream = stream.as_mut().expect("it was not reset");
        while !enough(heard) {
            let end = read(stream, heard, 1 << 16);
            assert_eq!(end, None, "an end in place of {what}: {:?}", super::text(heard));
        }
    }

    fn end_of(&mut self, client: usize) -> End {
        let Client { stream, heard, is_broken } = &mut self.clients[client];
        let end = read_all(stream.as_mut().expect("it was not reset"), heard);
        if *is_broken { End::Reset } else { end }
    }
}

macro_rules! driver {
    ($($name:ident $kind:ident $mode:expr;)*) => {$(
        pub struct $name(pub Real);

        impl Net for $name {
            const VIRTUAL: bool = false;
            fn start<S: 'static>(app: App<S>) -> $name {
                $name(Real::with(DriverKind::$kind, app.io_mode($mode)))
            }
            fn connect(&mut self) -> usize {
                self.0.connect_client()
            }
            fn say(&mut self, client: usize, bytes: &[u8]) {
                self.0.say_to(client, bytes);
            }
            fn finish(&mut self, client: usize) {
                let _ = self.0.stream(client).shutdown(Shutdown::Write);
            }
            fn reset(&mut self, client: usize) {
                let stream = self.0.clients[client].stream.take().expect("a connection");
                let linger = Some(std::time::Duration::ZERO);
                socket2::SockRef::from(&stream).set_linger(linger).expect("an option");
            }
            fn hear(&mut self, client: usize, what: &str, enough: impl FnMut(&[u8]) -> bool) {
                self.0.hear_from(client, what, enough);
            }
            fn end(&mut self, client: usize) -> End {
                self.0.end_of(client)
            }
            fn heard(&self, client: usize) -> &[u8] {
                &self.0.clients[client].heard
            }
        }
    )*};
}

driver! {
    Epoll Epoll IoMode::NonBlocking;
    Uring Uring IoMode::NonBlocking;
    Kqueue Kqueue IoMode::NonBlocking;
    Poll Poll IoMode::NonBlocking;
    Threads Poll IoMode::Blocking { threads: 1000 };
    Mixed Poll IoMode::Mixed { threads: 1 };
}
