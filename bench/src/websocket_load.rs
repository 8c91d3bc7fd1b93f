//! Clients of WebSocket echo servers: they make their own frames, and compare every byte that comes
//! back, the heads of frames included.

use std::io::{self, Read, Write};
use std::time::Duration;

use mio::net::TcpStream;

use crate::arguments::{Arguments, invalid};
use crate::exchanges::{Exchange, Loop, receive, send};
use crate::pattern;

/// The example of RFC 6455, and its answer.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Batches with different bytes, so that an old answer is not taken for a new one.
const BATCHES: usize = 4;

/// `websocket-load measure|hold --port N --connections N --size N --depth N --seconds S --messages
/// N`
///
/// `size` is the payload of a message, and `depth` how many of them a batch has. With `measure`,
/// each line that it reads lets it measure once: for so many seconds or, if they are 0, so many
/// messages. With `hold` it has every connection echo once, and holds them until a line comes.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let mode: String = arguments.require("mode")?;
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 64)?;
    let size: usize = arguments.option("--size", 64)?;
    let depth: usize = arguments.option("--depth", 1)?;
    let seconds: f64 = arguments.option("--seconds", 0.0)?;
    let messages: u64 = arguments.option("--messages", 0)?;
    arguments.end()?;
    if connections == 0 || depth == 0 || size > 1 << 20 {
        return Err(invalid("a connection, a message, and at most 1 MiB of it are needed".into()));
    }
    windlass::fd::raise_max_open_files()?;
    let mut clients = Loop::new(Batches::new(size, depth))?;
    for index in 0..connections {
        let socket = TcpStream::from_std(open(port)?);
        clients.add(Client { socket, batch: index % BATCHES, sent: 0, heard: 0 })?;
    }
    clients.measure(Duration::ZERO, connections as u64)?;
    clients.obey(&mode, seconds, messages, depth as u64)
}

/// Opens a WebSocket, and returns its connection behind the handshake.
pub fn open(port: u16) -> io::Result<std::net::TcpStream> {
    open_with(port, "").map(|(socket, _)| socket)
}

/// Opens a WebSocket with more fields in its request. Returns its connection behind the handshake,
/// and the head of the response.
pub fn open_with(port: u16, fields: &str) -> io::Result<(std::net::TcpStream, String)> {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.write_all(handshake(port, fields).as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    // One by one: a message may be right behind the head.
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    if !accepts(&head) {
        return Err(io::Error::other(format!("no WebSocket: {text:?}")));
    }
    socket.set_nonblocking(true)?;
    Ok((socket, text.into_owned()))
}

/// The request of a handshake, with more fields: each is a line.
pub fn handshake(port: u16, fields: &str) -> String {
    format!(
        "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\
         {fields}\r\n"
    )
}

/// Whether the head of a response accepts it.
pub fn accepts(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPT)
}

/// The head of a whole frame, whose bytes may be masked by a key.
pub fn head(first: u8, len: usize, key: Option<[u8; 4]>) -> Vec<u8> {
    let is_masked = if key.is_some() { 0x80 } else { 0 };
    let mut head = vec![first];
    match len {
        0..=125 => head.push(is_masked | len as u8),
        126..=0xffff => {
            head.push(is_masked | 126);
            head.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            head.push(is_masked | 127);
            head.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    head.extend(key.into_iter().flatten());
    head
}

/// Appends a whole frame with a mask, which the number chooses.
pub fn put_masked(first: u8, payload: &[u8], number: usize, out: &mut Vec<u8>) {
    let key = (number as u32).wrapping_mul(0x9E37_79B1).to_be_bytes();
    out.extend_from_slice(&head(first, payload.len(), Some(key)));
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
}

/// A frame of bytes.
const BINARY: u8 = 0x82;

struct Client {
    socket: TcpStream,
    /// Which batch it has sent last.
    batch: usize,
    /// Bytes of it that were sent, and bytes that have come back.
    sent: usize,
    heard: usize,
}

/// What all connections have together.
struct Batches {
    /// What is sent, and what must come back, batch by batch.
    frames: [Vec<u8>; BATCHES],
    echoes: [Vec<u8>; BATCHES],
    space: Vec<u8>,
}

impl Batches {
    fn new(size: usize, depth: usize) -> Batches {
        let pattern = pattern::of(size);
        let (mut frames, mut echoes) = <([Vec<u8>; BATCHES], [Vec<u8>; BATCHES])>::default();
        for number in 0..BATCHES * depth {
            let (frames, echo) = (&mut frames[number / depth], &mut echoes[number / depth]);
            let payload = &pattern[pattern::start(number + 1)..][..size];
            put_masked(BINARY, payload, number, frames);
            echo.extend_from_slice(&head(BINARY, size, None));
            echo.extend_from_slice(payload);
        }
        Batches { frames, echoes, space: vec![0; 256 << 10] }
    }
}

impl Exchange for Client {
    type Shared = Batches;

    fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    fn begin(&mut self, shared: &mut Batches) -> io::Result<()> {
        self.batch = (self.batch + 1) % BATCHES;
        (self.sent, self.heard) = (0, 0);
        send(&mut self.socket, &shared.frames[self.batch], &mut self.sent).map(drop)
    }

    fn go_on(&mut self, shared: &mut Batches) -> io::Result<bool> {
        send(&mut self.socket, &shared.frames[self.batch], &mut self.sent)?;
        let echo = &shared.echoes[self.batch];
        while self.heard < echo.len() {
            let Some(count) = receive(&mut self.socket, &mut shared.space)? else {
                return Ok(false);
            };
            let expected = echo[self.heard..].get(..count);
            if expected != Some(&shared.space[..count]) {
                return Err(io::Error::other("the server has sent other bytes"));
            }
            self.heard += count;
        }
        Ok(true)
    }
}
