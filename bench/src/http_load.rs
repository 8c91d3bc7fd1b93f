//! Clients of HTTP: they send the same request again and again, and look at every answer.
//!
//! One thread on mio. All answers of a server have the same length: the date has, too.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::arguments::{Arguments, invalid};
use crate::histogram::Histogram;

/// A request of 419 bytes, as browsers send it.
const LONG: &str = "GET /plaintext HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20130501 Firefox/30.0 AppleWebKit/600.00 \
    Chrome/30.0.0000.0 Trident/10.0 Safari/600.00\r\n\
    Cookie: uid=12345678901234567890; __utma=1.1234567890.1234567890.1234567890.1234567890.12\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8,text/plain\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Connection: keep-alive\r\n\r\n";

/// A request of 160 bytes, as load generators send it.
const SHORT: &str = "GET /plaintext HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,*/*;q=0.7\r\n\
    Connection: keep-alive\r\n\r\n";

const BODY: &[u8] = b"\r\n\r\nHello, World!";

/// `http-load closed|open|hold|stall --port N --connections N --depth N --request long|short
/// --seconds S --rate N`
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let mode: String = arguments.require("mode")?;
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 64)?;
    let depth: usize = arguments.option("--depth", 1)?;
    let request: String = arguments.option("--request", "long".into())?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let rate: f64 = arguments.option("--rate", 0.0)?;
    arguments.end()?;
    let request = if request == "short" { SHORT } else { LONG };
    let mut clients = Clients::connect(port, connections, &request.repeat(depth), depth)?;
    if mode == "stall" {
        clients.stall()?;
        println!("holding");
        return io::stdin().read_line(&mut String::new()).map(drop);
    }
    clients.each_once()?;
    println!("{}", if mode == "hold" { "holding" } else { "served" });
    // The process that started this one looks at the server, and then says so.
    io::stdin().read_line(&mut String::new())?;
    let span = Duration::from_secs_f64(seconds);
    match mode.as_str() {
        "hold" => Ok(()),
        "closed" => clients.closed(span),
        "open" if rate > 0.0 => clients.open(span, rate),
        other => Err(invalid(format!("{other:?} is no mode, or there is no rate"))),
    }
}

struct Client {
    socket: TcpStream,
    /// Bytes of its batch that were sent.
    sent: usize,
    /// Bytes of answers to it that have come.
    heard: usize,
    /// The last bytes that have come.
    end: [u8; BODY.len()],
    since: Instant,
    is_busy: bool,
    /// When requests were due that wait for it, in open mode.
    due: VecDeque<Instant>,
}

struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    batch: Vec<u8>,
    depth: usize,
    /// How long an answer is.
    len: usize,
    space: Vec<u8>,
}

impl Clients {
    fn connect(port: u16, count: usize, batch: &str, depth: usize) -> io::Result<Clients> {
        windlass::fd::raise_max_open_files()?;
        let poll = Poll::new()?;
        let len = probe(port)?;
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
                sent: 0,
                heard: 0,
                end: [0; BODY.len()],
                since: Instant::now(),
                is_busy: false,
                due: VecDeque::new(),
            });
        }
        let batch = batch.as_bytes().to_vec();
        Ok(Clients { poll, clients, batch, depth, len, space: vec![0; 64 << 10] })
    }

    /// Each connection has a batch answered.
    fn each_once(&mut self) -> io::Result<()> {
        let mut missing = 0;
        for index in 0..self.clients.len() {
            missing += usize::from(!self.begin(index, Instant::now())?);
        }
        let mut events = Events::with_capacity(1024);
        while missing > 0 {
            self.poll.poll(&mut events, Some(Duration::from_secs(10)))?;
            if events.is_empty() {
                return Err(io::Error::other(format!("{missing} answers did not come")));
            }
            for event in &events {
                missing -= usize::from(self.go_on(event.token().0)?);
            }
        }
        Ok(())
    }

    /// Each connection sends batches one after the other until the time is over, the first tenth of
    /// it to warm up. Prints all requests with those, requests, seconds, and times of batches in
    /// microseconds.
    fn closed(&mut self, span: Duration) -> io::Result<()> {
        let (mut all, mut counted) = (0_u64, 0_u64);
        let mut times = Histogram::default();
        let begin = Instant::now();
        let from = begin + span / 10;
        let mut events = Events::with_capacity(1024);
        for index in 0..self.clients.len() {
            while self.begin(index, Instant::now())? {
                all += 1;
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
                let mut is_whole = self.go_on(index)?;
                while is_whole {
                    now = Instant::now();
                    all += 1;
                    if now >= from {
                        counted += 1;
                        times.add((now - self.clients[index].since).as_nanos() as u64);
                    }
                    is_whole = self.begin(index, now)?;
                }
            }
            if now >= from + span {
                let depth = self.depth as u64;
                let seconds = (now - from).as_secs_f64();
                println!("{} {} {seconds} {}", all * depth, counted * depth, shown(&times));
                return Ok(());
            }
        }
    }

    /// Sends so many requests in a second, evenly, on one connection after the other. A request
    /// whose connection is busy waits, and its time counts from when it was due. Prints as
    /// [`closed`](Clients::closed).
    fn open(&mut self, span: Duration, rate: f64) -> io::Result<()> {
        let (mut all, mut counted) = (0_u64, 0_u64);
        let mut times = Histogram::default();
        let begin = Instant::now();
        let (from, end) = (begin + span / 10, begin + span / 10 + span);
        let due = |number: u64| begin + Duration::from_secs_f64(number as f64 / rate);
        let mut number = 0;
        let mut events = Events::with_capacity(1024);
        loop {
            // It has a processor of its own, and a wait would be late by as much as a millisecond.
            self.poll.poll(&mut events, Some(Duration::ZERO))?;
            for event in &events {
                let index = event.token().0;
                let mut is_whole = self.go_on(index)?;
                while is_whole {
                    let now = Instant::now();
                    all += 1;
                    if now >= from {
                        counted += 1;
                        times.add((now - self.clients[index].since).as_nanos() as u64);
                    }
                    let next = self.clients[index].due.pop_front();
                    is_whole = next.is_some_and(|next| self.begin(index, next).unwrap_or(false));
                }
            }
            let now = Instant::now();
            while due(number) <= now {
                let index = number as usize % self.clients.len();
                let when = due(number);
                number += 1;
                if self.clients[index].is_busy {
                    self.clients[index].due.push_back(when);
                } else if self.begin(index, when)? {
                    all += 1;
                }
            }
            if now >= end {
                println!("{all} {counted} {} {}", (now - from).as_secs_f64(), shown(&times));
                return Ok(());
            }
        }
    }

    /// Sends requests until no connection takes more, for at most five seconds, and reads no
    /// answer.
    fn stall(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        let mut last = begin;
        let (quiet, most) = (Duration::from_millis(500), Duration::from_secs(5));
        while last.elapsed() < quiet && begin.elapsed() < most {
            for client in &mut self.clients {
                match client.socket.write(&self.batch[client.sent..]) {
                    Ok(count) => {
                        client.sent = (client.sent + count) % self.batch.len();
                        last = Instant::now();
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends a batch; true if its answers are there.
    fn begin(&mut self, index: usize, since: Instant) -> io::Result<bool> {
        let client = &mut self.clients[index];
        (client.sent, client.heard, client.is_busy, client.since) = (0, 0, true, since);
        self.go_on(index)
    }

    /// Sends and receives what it can; true when the answers to a batch are whole.
    fn go_on(&mut self, index: usize) -> io::Result<bool> {
        let client = &mut self.clients[index];
        if !client.is_busy {
            return Ok(false);
        }
        while client.sent < self.batch.len() {
            match client.socket.write(&self.batch[client.sent..]) {
                Ok(count) => client.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let whole = self.depth * self.len;
        while client.heard < whole {
            match client.socket.read(&mut self.space) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => {
                    for (at, byte) in self.space[..count].iter().enumerate().rev().take(BODY.len())
                    {
                        // The places of the last bytes turn, so that pieces need no care.
                        client.end[(client.heard + at) % BODY.len()] = *byte;
                    }
                    look(&self.space[..count], client.heard, self.len)?;
                    client.heard += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let ends = (0..BODY.len())
            .all(|at| client.end[(whole - BODY.len() + at) % BODY.len()] == BODY[at]);
        if client.heard > whole || !ends {
            return Err(io::Error::other("the server has sent another answer"));
        }
        client.is_busy = false;
        Ok(true)
    }
}

/// Looks whether each answer begins where it should.
fn look(bytes: &[u8], heard: usize, len: usize) -> io::Result<()> {
    let first = (len - heard % len) % len;
    for at in (first..bytes.len()).step_by(len) {
        let start = &bytes[at..bytes.len().min(at + 12)];
        if start != &b"HTTP/1.1 200"[..start.len()] {
            return Err(io::Error::other("an answer is not a 200 of the same length"));
        }
    }
    Ok(())
}

/// How long an answer is.
fn probe(port: u16) -> io::Result<usize> {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.write_all(LONG.as_bytes())?;
    let mut heard = Vec::new();
    let mut space = [0; 4096];
    while !heard.ends_with(BODY) {
        match socket.read(&mut space)? {
            0 => return Err(io::Error::other("the server does not answer")),
            count => heard.extend_from_slice(&space[..count]),
        }
    }
    if !heard.starts_with(b"HTTP/1.1 200") {
        return Err(io::Error::other("the server answers with another status"));
    }
    Ok(heard.len())
}

/// The median, the 99th and the 99.9th percentile in microseconds.
fn shown(times: &Histogram) -> String {
    let us = |share| times.percentile(share).as_secs_f64() * 1e6;
    format!("{} {} {}", us(50.0), us(99.0), us(99.9))
}
