//! Clients of files and proxies: each GET has an answer of a known length, whose bytes are compared
//! with the pattern.
//!
//! One thread on mio. Each connection sends its next request when its answer is whole.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::arguments::{Arguments, invalid};
use crate::histogram::Histogram;
use crate::pattern::{self, PERIOD};

/// What is requested.
struct Asked {
    /// The path; `{}` in it becomes the number of a file.
    path: String,
    files: usize,
    /// Bytes of a body.
    len: usize,
    /// Bytes of the file, of which each request asks for a random block of `len` bytes; 0: each
    /// request asks for a whole file.
    blocks_of: u64,
}

/// `get-load --port N --connections N --path PATH --files N --len N --blocks N --seconds S
/// --requests N`
///
/// Each line that it reads lets it measure once: for so many seconds or, if they are 0, so many
/// requests.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 64)?;
    let asked = Asked {
        path: arguments.option("--path", "/".into())?,
        files: arguments.option("--files", 1)?,
        len: arguments.option("--len", 13)?,
        blocks_of: arguments.option("--blocks", 0)?,
    };
    let files = asked.files;
    let seconds: f64 = arguments.option("--seconds", 0.0)?;
    let requests: u64 = arguments.option("--requests", 0)?;
    arguments.end()?;
    if connections == 0 || asked.files == 0 || (seconds == 0.0 && requests == 0) {
        return Err(invalid("a connection, a file, and a time or number are needed".into()));
    }
    let mut clients = Clients::connect(port, connections, asked)?;
    // All connections have been served before it begins, and all files.
    clients.measure(Duration::ZERO, connections.max(2 * files) as u64)?;
    println!("served");
    while io::stdin().read_line(&mut String::new())? > 0 {
        clients.measure(Duration::from_secs_f64(seconds), requests)?;
    }
    Ok(())
}

struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    sent: usize,
    /// The start of a head that has not come whole.
    head: Vec<u8>,
    /// Where the next byte of the body is in the pattern, and how many are missing; none before the
    /// head is whole.
    body: Option<(usize, usize)>,
    /// Where the body starts in the pattern.
    start: usize,
    since: Instant,
    is_busy: bool,
}

struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    asked: Asked,
    pattern: Vec<u8>,
    space: Vec<u8>,
    random: u64,
    /// Requests so far.
    begun: usize,
}

impl Clients {
    fn connect(port: u16, count: usize, asked: Asked) -> io::Result<Clients> {
        let poll = Poll::new()?;
        let mut clients = Vec::with_capacity(count);
        for index in 0..count {
            let socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut socket, Token(index), interest)?;
            clients.push(Client {
                socket,
                request: Vec::new(),
                sent: 0,
                head: Vec::new(),
                body: None,
                start: 0,
                since: Instant::now(),
                is_busy: false,
            });
        }
        let space = vec![0; 256 << 10];
        let pattern = pattern::of(space.len());
        let random = 0x9E37_79B9_7F4A_7C15;
        Ok(Clients { poll, clients, asked, pattern, space, random, begun: 0 })
    }

    /// Each connection sends requests one after the other, until the time is over (a tenth of it
    /// before is for warming up) or so many have been answered. Prints all requests with those of
    /// the start, requests, seconds, and percentiles in microseconds; not after the first answers
    /// of a connection.
    fn measure(&mut self, span: Duration, requests: u64) -> io::Result<()> {
        let (mut all, mut counted, mut begun) = (0_u64, 0_u64, 0_u64);
        let mut times = Histogram::default();
        let begin = Instant::now();
        let from = begin + span / 10;
        let timed = span > Duration::ZERO;
        let is_first = self.clients.iter().all(|client| client.request.is_empty());
        let mut is_over = false;
        let mut events = Events::with_capacity(1024);
        for index in 0..self.clients.len() {
            if timed || begun < requests {
                begun += 1;
                self.begin(index)?;
            }
        }
        loop {
            self.poll.poll(&mut events, Some(Duration::from_secs(10)))?;
            if events.is_empty() {
                return Err(io::Error::other("no answer for ten seconds"));
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
                if !is_over && (timed || begun < requests) {
                    begun += 1;
                    self.begin(index)?;
                }
            }
            // No request is left behind: the next measurement begins with none.
            if (is_over || !timed) && all == begun {
                let seconds = (now - from).as_secs_f64();
                if !is_first {
                    println!("{all} {counted} {seconds} {}", shown(&times));
                }
                return Ok(());
            }
        }
    }

    /// Makes a request, and sends what the socket takes. An event says when its answer comes.
    fn begin(&mut self, index: usize) -> io::Result<()> {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let client = &mut self.clients[index];
        // Each file once, and then in any order.
        let turn = if self.begun < self.asked.files { self.begun } else { self.random as usize };
        let number = turn % self.asked.files;
        self.begun += 1;
        client.request.clear();
        let path = self.asked.path.replace("{}", &number.to_string());
        write!(
            client.request,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
             Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,*/*;q=0.7\r\n"
        )?;
        client.start = pattern::start(number);
        if self.asked.blocks_of > 0 {
            let len = self.asked.len as u64;
            let block = self.random % (self.asked.blocks_of / len);
            let (first, last) = (block * len, block * len + len - 1);
            write!(client.request, "Range: bytes={first}-{last}\r\n")?;
            client.start = (client.start + (first % PERIOD as u64) as usize) % PERIOD;
        }
        client.request.extend_from_slice(b"Connection: keep-alive\r\n\r\n");
        (client.sent, client.body, client.is_busy) = (0, None, true);
        client.since = Instant::now();
        client.send().map(drop)
    }

    /// Sends and receives what it can; true when an answer is whole.
    fn go_on(&mut self, index: usize) -> io::Result<bool> {
        let client = &mut self.clients[index];
        if !client.is_busy {
            return Ok(false);
        }
        if !client.send()? {
            return Ok(false);
        }
        while client.is_busy {
            match client.socket.read(&mut self.space) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => client.take(&self.space[..count], &self.asked, &self.pattern)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Client {
    /// True when the request is out.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.request.len() {
            match self.socket.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes bytes of an answer in.
    fn take(&mut self, bytes: &[u8], asked: &Asked, pattern: &[u8]) -> io::Result<()> {
        let wrong = |what: &str| Err(io::Error::other(what.to_owned()));
        let mut body = bytes;
        if self.body.is_none() {
            let kept = self.head.len();
            self.head.extend_from_slice(bytes);
            let Some(len) = head(&self.head, asked)? else { return Ok(()) };
            self.head.clear();
            self.body = Some((self.start, asked.len));
            body = &bytes[len - kept..];
        }
        let (at, missing) = self.body.as_mut().expect("the head is whole");
        if body.len() > *missing {
            return wrong("an answer is longer than asked for");
        }
        if body != &pattern[*at..][..body.len()] {
            return wrong("the server has sent other bytes");
        }
        *at = (*at + body.len()) % PERIOD;
        *missing -= body.len();
        self.is_busy = *missing > 0;
        Ok(())
    }
}

/// Where a head ends, which must be that of the expected answer.
fn head(bytes: &[u8], asked: &Asked) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut fields);
    let parsed = answer.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(len) = parsed else { return Ok(None) };
    let status = if asked.blocks_of > 0 { 206 } else { 200 };
    let field = answer.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
    let body = field.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    if answer.code == Some(status) && body == Some(asked.len) {
        return Ok(Some(len));
    }
    let (code, asked) = (answer.code, asked.len);
    Err(io::Error::other(format!("status {code:?} with {body:?} bytes, not {status} with {asked}")))
}

/// The median, the 99th and the 99.9th percentile in microseconds.
fn shown(times: &Histogram) -> String {
    let us = |share| times.percentile(share).as_secs_f64() * 1e6;
    format!("{} {} {}", us(50.0), us(99.0), us(99.9))
}
