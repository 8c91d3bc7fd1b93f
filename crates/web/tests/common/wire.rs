//! A client that writes what a test says, and reads one response after the other.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any answer takes, on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a server.
pub struct Client<T = TcpStream> {
    stream: T,
    /// What has come and was not read.
    input: Vec<u8>,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of the first field with this name, in any case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (other, value) = line.split_once(':')?;
            other.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Client::over(stream)
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl<T: Read + Write> Client<T> {
    pub fn over(stream: T) -> Client<T> {
        Client { stream, input: Vec::new() }
    }

    /// Sends bytes.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("a write");
    }

    /// Sends a request without a body, and reads its response.
    pub fn get(&mut self, target: &str) -> Reply {
        self.send("GET", target, "", "")
    }

    /// Sends a request, and reads its response. `fields` end with a line break each.
    pub fn send(&mut self, method: &str, target: &str, fields: &str, body: &str) -> Reply {
        let length = match body.len() {
            0 => String::new(),
            len => format!("Content-Length: {len}\r\n"),
        };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{fields}{length}\r\n");
        self.say(head + body);
        self.read(method == "HEAD")
    }

    /// The next response.
    pub fn reply(&mut self) -> Reply {
        self.read(false)
    }

    fn read(&mut self, is_head: bool) -> Reply {
        let end = loop {
            match self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.more(), "an end: {:?}", String::from_utf8_lossy(&self.input)),
            }
        };
        let head: Vec<u8> = self.input.drain(..end).collect();
        let head = String::from_utf8(head).expect("a text");
        let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: Vec::new() };
        if is_head || status == 204 || status == 304 {
            return reply;
        }
        if reply.get("Transfer-Encoding").is_some() {
            reply.body = self.chunks();
        } else if let Some(len) = reply.get("Content-Length") {
            let len = len.parse().expect("a length");
            reply.body = self.take(len);
        } else {
            while self.more() {}
            reply.body = std::mem::take(&mut self.input);
        }
        reply
    }

    /// The text up to a line break.
    fn line(&mut self) -> String {
        let end = loop {
            match self.input.windows(2).position(|two| two == b"\r\n") {
                Some(end) => break end,
                None => assert!(self.more(), "an end in a line"),
            }
        };
        let line = self.take(end);
        self.take(2);
        String::from_utf8(line).expect("a text")
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let len = usize::from_str_radix(&self.line(), 16).expect("a size");
            body.extend(self.take(len));
            assert_eq!(self.take(2), b"\r\n");
            if len == 0 {
                return body;
            }
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len {
            assert!(self.more(), "an end after {} of {len} bytes", self.input.len());
        }
        self.input.drain(..len).collect()
    }

    /// Reads what comes; false at the end.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let len = loop {
            match self.stream.read(&mut buffer) {
                Err(error) if is_interrupted(&error) => {}
                read => break read.expect("a read"),
            }
        };
        self.input.extend_from_slice(&buffer[..len]);
        len > 0
    }

    /// All that comes until the server closes; `None` if it resets the connection.
    pub fn rest(mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Some(self.input),
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if is_interrupted(&error) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Another test of this process has raised a signal.
fn is_interrupted(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::Interrupted
}
