//! A closed loop of clients: each connection has one exchange with the server at a time, and begins
//! the next one when that one is over.
//!
//! One thread on mio.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::histogram::Histogram;

/// One side of a connection.
pub trait Exchange {
    /// What all connections have together.
    type Shared;

    fn socket(&mut self) -> &mut TcpStream;

    /// Makes what is asked for next, and sends what the socket takes.
    fn begin(&mut self, shared: &mut Self::Shared) -> io::Result<()>;

    /// Sends and receives what it can; true when the exchange is over.
    fn go_on(&mut self, shared: &mut Self::Shared) -> io::Result<bool>;
}

/// Connections with their loop.
pub struct Loop<E: Exchange> {
    poll: Poll,
    connections: Vec<Connection<E>>,
    pub shared: E::Shared,
}

struct Connection<E> {
    exchange: E,
    since: Instant,
    is_busy: bool,
}

/// What a measurement has counted.
pub struct Measured {
    /// Exchanges, with those of the start.
    all: u64,
    counted: u64,
    seconds: f64,
    times: Histogram,
}

impl Measured {
    /// All messages with those of the start, messages, seconds, and the median, the 99th and the
    /// 99.9th percentile of the times of exchanges in microseconds. An exchange has so many
    /// messages.
    pub fn line(&self, messages: u64) -> String {
        let (all, counted, seconds) = (self.all * messages, self.counted * messages, self.seconds);
        let us = |percent| self.times.percentile(percent).as_secs_f64() * 1e6;
        format!("{all} {counted} {seconds} {} {} {}", us(50.0), us(99.0), us(99.9))
    }
}

impl<E: Exchange> Loop<E> {
    pub fn new(shared: E::Shared) -> io::Result<Loop<E>> {
        Ok(Loop { poll: Poll::new()?, connections: Vec::new(), shared })
    }

    pub fn add(&mut self, mut exchange: E) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(self.connections.len());
        self.poll.registry().register(exchange.socket(), token, interest)?;
        self.connections.push(Connection { exchange, since: Instant::now(), is_busy: false });
        Ok(())
    }

    /// Each connection has one exchange after the other, until the time is over (a tenth of it
    /// before is for warming up) or, if it is zero, until so many have ended.
    pub fn measure(&mut self, span: Duration, exchanges: u64) -> io::Result<Measured> {
        let timed = span > Duration::ZERO;
        let (mut all, mut counted, mut begun) = (0, 0, 0);
        let mut times = Histogram::default();
        let begin = Instant::now();
        let from = begin + span / 10;
        let mut now = begin;
        let mut is_over = false;
        let mut events = Events::with_capacity(1024);
        for index in 0..self.connections.len() {
            if timed || begun < exchanges {
                begun += 1;
                self.begin(index)?;
            }
        }
        loop {
            self.poll.poll(&mut events, Some(Duration::from_secs(30)))?;
            if events.is_empty() {
                return Err(io::Error::other("no answer for thirty seconds"));
            }
            for event in &events {
                let index = event.token().0;
                let connection = &mut self.connections[index];
                if !connection.is_busy || !connection.exchange.go_on(&mut self.shared)? {
                    continue;
                }
                connection.is_busy = false;
                now = Instant::now();
                all += 1;
                if now >= from && !is_over {
                    counted += 1;
                    times.add((now - connection.since).as_nanos() as u64);
                }
                is_over |= timed && now >= from + span;
                if !is_over && (timed || begun < exchanges) {
                    begun += 1;
                    self.begin(index)?;
                }
            }
            // Nothing is left behind: the next measurement begins with nothing.
            if (is_over || !timed) && all == begun {
                let seconds = (now - from).as_secs_f64();
                return Ok(Measured { all, counted, seconds, times });
            }
        }
    }

    /// Measures for each line that comes: for so many seconds or, if they are 0, so many messages.
    /// With the mode `hold`, it ends when a line comes. Every connection has been answered.
    pub fn obey(
        mut self,
        mode: &str,
        seconds: f64,
        messages: u64,
        messages_each: u64,
    ) -> io::Result<()> {
        let mut line = String::new();
        if mode == "hold" {
            println!("holding");
            return io::stdin().read_line(&mut line).map(drop);
        }
        println!("served");
        let (span, exchanges) =
            (Duration::from_secs_f64(seconds), messages.div_ceil(messages_each));
        while io::stdin().read_line(&mut line)? > 0 {
            println!("{}", self.measure(span, exchanges)?.line(messages_each));
        }
        Ok(())
    }

    /// Begins an exchange, and sends what the socket takes. An event says when its answer comes.
    fn begin(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.since = Instant::now();
        connection.is_busy = true;
        connection.exchange.begin(&mut self.shared)
    }
}

/// Opens a connection that does not block.
pub fn connect(port: u16) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket))
}

/// Sends what the socket takes of what was not sent; true when all is out.
pub fn send(socket: &mut TcpStream, bytes: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < bytes.len() {
        match socket.write(&bytes[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// How many bytes have come; none: no more at present.
pub fn receive(socket: &mut TcpStream, space: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.read(space) {
        Ok(0) => Err(io::Error::other("the server has closed a connection")),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
