//! Clients: connections that send a message, wait for its echo, and compare every byte.
//!
//! One thread on mio. A server that loses, changes or mixes up bytes ends the measurement with an
//! error.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::arguments::{Arguments, invalid};
use crate::pattern::{self, PERIOD};

/// `load pingpong|storm|hold --port N --connections N --size N --seconds S`
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let mode: String = arguments.require("mode")?;
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 1)?;
    let size: usize = arguments.option("--size", 64)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    arguments.end()?;
    if connections == 0 || size == 0 {
        return Err(invalid("at least one connection and one byte are needed".into()));
    }
    let begin = Instant::now();
    let mut clients = Clients::connect(port, connections, size)?;
    match mode.as_str() {
        "pingpong" => {
            // A server may take long to accept all connections, and to start their threads.
            clients.each_once()?;
            println!("served");
            // The process that started this one looks at the server, and then says so.
            io::stdin().read_line(&mut String::new())?;
            clients.pingpong(Duration::from_secs_f64(seconds))
        }
        "storm" => {
            clients.each_once()?;
            println!("{}", begin.elapsed().as_secs_f64());
            Ok(())
        }
        "hold" => {
            clients.each_once()?;
            println!("holding");
            // The process that started this one ends it.
            io::stdin().read_line(&mut String::new()).map(drop)
        }
        other => Err(invalid(format!("{other:?} is no mode"))),
    }
}

/// The result of a measurement.
pub struct Measured {
    pub messages: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Measured {
    /// Reads what [`Clients::pingpong`] prints.
    pub fn parse(line: &str) -> Option<Measured> {
        let mut words = line.split_whitespace().map(str::parse::<f64>);
        let mut next = || words.next()?.ok();
        let messages = next()? as u64;
        Some(Measured { messages, seconds: next()?, p50_us: next()?, p99_us: next()? })
    }
}

struct Client {
    socket: TcpStream,
    /// Where in the pattern its next message starts.
    start: usize,
    sent: usize,
    echoed: usize,
    since: Instant,
}

struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    size: usize,
    /// The pattern, long enough for a message from each place of its period.
    pattern: Vec<u8>,
    /// Receives echoes.
    space: Vec<u8>,
}

impl Clients {
    fn connect(port: u16, connections: usize, size: usize) -> io::Result<Clients> {
        let poll = Poll::new()?;
        let mut clients = Vec::with_capacity(connections);
        let address = ([127, 0, 0, 1], port).into();
        for index in 0..connections {
            let mut socket = TcpStream::connect(address)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut socket, Token(index), interest)?;
            let start = pattern::start(index);
            let since = Instant::now();
            clients.push(Client { socket, start, sent: 0, echoed: 0, since });
        }
        let pattern = pattern::of(size);
        Ok(Clients { poll, clients, size, pattern, space: vec![0; size.max(64 << 10)] })
    }

    /// Each connection sends messages one after the other until the time is over; a tenth of it
    /// before is for warming up. All of them have had an echo before. Prints messages, seconds, and
    /// the times of round trips in microseconds.
    fn pingpong(&mut self, span: Duration) -> io::Result<()> {
        let mut messages = 0_u64;
        let mut times = Vec::new();
        let mut from = None;
        let begin = Instant::now();
        let mut events = Events::with_capacity(1024);
        let mut last = begin;
        let mut now = begin;
        // No event says that a socket is writable that was so before.
        for index in 0..self.clients.len() {
            self.clients[index].since = Instant::now();
            while self.go_on(index)? {
                self.clients[index].since = Instant::now();
            }
        }
        loop {
            self.poll.poll(&mut events, Some(Duration::from_millis(100)))?;
            for event in &events {
                let Token(index) = event.token();
                while self.go_on(index)? {
                    now = Instant::now();
                    last = now;
                    let client = &mut self.clients[index];
                    let time = now - client.since;
                    client.since = now;
                    if from.is_some() {
                        messages += 1;
                        times.push(time.as_nanos() as u64);
                    }
                }
            }
            if events.is_empty() {
                now = Instant::now();
                if now - last > Duration::from_secs(10) {
                    return Err(io::Error::other("no echo for ten seconds"));
                }
            }
            match from {
                None if now - begin > span / 10 => from = Some(now),
                Some(from) if now - from > span => {
                    times.sort_unstable();
                    let at = |share: f64| {
                        let index = (share * times.len() as f64) as usize;
                        times.get(index).map_or(0.0, |&ns| ns as f64 / 1000.0)
                    };
                    let seconds = (now - from).as_secs_f64();
                    println!("{messages} {seconds} {} {}", at(0.5), at(0.99));
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Each connection has one message echoed.
    fn each_once(&mut self) -> io::Result<()> {
        let mut missing = self.clients.len();
        let mut ended = vec![false; missing];
        let mut events = Events::with_capacity(1024);
        while missing > 0 {
            self.poll.poll(&mut events, Some(Duration::from_secs(10)))?;
            if events.is_empty() {
                return Err(io::Error::other(format!("{missing} echoes did not come")));
            }
            for event in &events {
                let Token(index) = event.token();
                if !ended[index] && self.go_on(index)? {
                    ended[index] = true;
                    missing -= 1;
                }
            }
        }
        Ok(())
    }

    /// Sends and receives what it can; true when a message has been echoed whole.
    fn go_on(&mut self, index: usize) -> io::Result<bool> {
        let client = &mut self.clients[index];
        let message = &self.pattern[client.start..client.start + self.size];
        while client.sent < self.size {
            match client.socket.write(&message[client.sent..]) {
                Ok(count) => client.sent += count,
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        while client.echoed < client.sent {
            match client.socket.read(&mut self.space) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => {
                    let expected = message.get(client.echoed..client.echoed + count);
                    if expected != Some(&self.space[..count]) {
                        return Err(io::Error::other("the server has sent other bytes"));
                    }
                    client.echoed += count;
                }
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if client.echoed < self.size {
            return Ok(false);
        }
        client.start = (client.start + self.size) % PERIOD;
        (client.sent, client.echoed) = (0, 0);
        Ok(true)
    }
}

/// The connection is not there yet, or has nothing now.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
