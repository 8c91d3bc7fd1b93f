//! Clients of WebSocket echo servers: they make their own frames, and compare every byte that comes
//! back, the heads of frames included.
//!
//! One thread on mio. Each connection sends its next batch of messages when its last one is back.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::arguments::{Arguments, invalid};
use crate::histogram::Histogram;
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
    let mut clients = Clients::connect(port, connections, size, depth)?;
    clients.measure(Duration::ZERO, (connections * depth) as u64)?;
    if mode == "hold" {
        println!("holding");
        return io::stdin().read_line(&mut String::new()).map(drop);
    }
    println!("served");
    while io::stdin().read_line(&mut String::new())? > 0 {
        println!("{}", clients.measure(Duration::from_secs_f64(seconds), messages)?);
    }
    Ok(())
}

/// Opens a WebSocket, and returns its connection behind the handshake.
pub fn open(port: u16) -> io::Result<std::net::TcpStream> {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.write_all(handshake(port).as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    // One by one: a message may be right behind the head.
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if !accepts(&head) {
        let head = String::from_utf8_lossy(&head);
        return Err(io::Error::other(format!("no WebSocket: {head:?}")));
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The request of a handshake.
pub fn handshake(port: u16) -> String {
    format!(
        "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
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

/// A frame of bytes.
const BINARY: u8 = 0x82;

struct Client {
    socket: TcpStream,
    /// Which batch it has sent last.
    batch: usize,
    /// Bytes of it that were sent, and bytes that have come back.
    sent: usize,
    heard: usize,
    since: Instant,
    is_busy: bool,
}

struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    depth: u64,
    /// What is sent, and what must come back, batch by batch.
    frames: [Vec<u8>; BATCHES],
    echoes: [Vec<u8>; BATCHES],
    space: Vec<u8>,
}

impl Clients {
    fn connect(port: u16, count: usize, size: usize, depth: usize) -> io::Result<Clients> {
        let poll = Poll::new()?;
        let mut clients = Vec::with_capacity(count);
        for index in 0..count {
            let mut socket = TcpStream::from_std(open(port)?);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut socket, Token(index), interest)?;
            let batch = index % BATCHES;
            let since = Instant::now();
            clients.push(Client { socket, batch, sent: 0, heard: 0, since, is_busy: false });
        }
        let pattern = pattern::of(size);
        let (mut frames, mut echoes) = <([Vec<u8>; BATCHES], [Vec<u8>; BATCHES])>::default();
        for number in 0..BATCHES * depth {
            let (frames, echo) = (&mut frames[number / depth], &mut echoes[number / depth]);
            let payload = &pattern[pattern::start(number + 1)..][..size];
            let key = (number as u32).wrapping_mul(0x9E37_79B1).to_be_bytes();
            frames.extend_from_slice(&head(BINARY, size, Some(key)));
            frames.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
            echo.extend_from_slice(&head(BINARY, size, None));
            echo.extend_from_slice(payload);
        }
        let space = vec![0; 256 << 10];
        Ok(Clients { poll, clients, depth: depth as u64, frames, echoes, space })
    }

    /// Each connection sends batches one after the other, until the time is over (a tenth of it
    /// before is for warming up) or so many messages are back. Returns all messages with those of
    /// the start, messages, seconds, and percentiles of the times of batches in microseconds.
    fn measure(&mut self, span: Duration, messages: u64) -> io::Result<String> {
        let (mut all, mut counted, mut begun) = (0_u64, 0_u64, 0_u64);
        let batches = messages.div_ceil(self.depth);
        let mut times = Histogram::default();
        let begin = Instant::now();
        let from = begin + span / 10;
        let timed = span > Duration::ZERO;
        let mut is_over = false;
        let mut events = Events::with_capacity(1024);
        for index in 0..self.clients.len() {
            if timed || begun < batches {
                begun += 1;
                self.begin(index)?;
            }
        }
        loop {
            self.poll.poll(&mut events, Some(Duration::from_secs(30)))?;
            if events.is_empty() {
                return Err(io::Error::other("no echo for thirty seconds"));
            }
            let mut now = begin;
            for event in &events {
                let index = event.token().0;
                if !self.go_on(index)? {
                    continue;
                }
                now = Instant::now();
                all += 1;
                if now >= from && !is_over {
                    counted += 1;
                    times.add((now - self.clients[index].since).as_nanos() as u64);
                }
                is_over |= timed && now >= from + span;
                if !is_over && (timed || begun < batches) {
                    begun += 1;
                    self.begin(index)?;
                }
            }
            // Nothing is left behind: the next measurement begins with nothing.
            if (is_over || !timed) && all == begun {
                let (all, counted) = (all * self.depth, counted * self.depth);
                let us = |share| times.percentile(share).as_secs_f64() * 1e6;
                let seconds = (now - from).as_secs_f64();
                return Ok(format!("{all} {counted} {seconds} {} {} 0", us(50.0), us(99.0)));
            }
        }
    }

    /// Begins a batch, and sends what the socket takes. An event says when an echo comes.
    fn begin(&mut self, index: usize) -> io::Result<()> {
        let client = &mut self.clients[index];
        client.batch = (client.batch + 1) % BATCHES;
        (client.sent, client.heard, client.is_busy) = (0, 0, true);
        client.since = Instant::now();
        client.send(&self.frames)
    }

    /// Sends and receives what it can; true when a batch is back.
    fn go_on(&mut self, index: usize) -> io::Result<bool> {
        let client = &mut self.clients[index];
        if !client.is_busy {
            return Ok(false);
        }
        client.send(&self.frames)?;
        let echo = &self.echoes[client.batch];
        while client.heard < echo.len() {
            match client.socket.read(&mut self.space) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => {
                    let expected = echo[client.heard..].get(..count);
                    if expected != Some(&self.space[..count]) {
                        return Err(io::Error::other("the server has sent other bytes"));
                    }
                    client.heard += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        client.is_busy = false;
        Ok(true)
    }
}

impl Client {
    fn send(&mut self, frames: &[Vec<u8>; BATCHES]) -> io::Result<()> {
        let batch = &frames[self.batch];
        while self.sent < batch.len() {
            match self.socket.write(&batch[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
