//! Clients that only read: connections that receive the messages of a broadcast.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::arguments::{Arguments, invalid};
use crate::process::cpu_time_of;
use crate::websocket_load;

struct Listener {
    socket: TcpStream,
    /// The bytes of the message that has not arrived completely.
    partial: Vec<u8>,
    /// The number of the last message.
    last: u64,
}

/// `listen --port N --connections N --stalled N --size N --seconds S --server PID --websocket
/// true|false`
///
/// Prints microseconds of the server's processor time per delivery, and the median and the 99th
/// percentile of delays in microseconds. A delivery is one message that arrives at one connection;
/// its delay is the time since the same message arrived at the first connection. `--stalled` adds
/// connections that read nothing.
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let port: u16 = arguments.option("--port", 0)?;
    let connections: usize = arguments.option("--connections", 1)?;
    let stalled: usize = arguments.option("--stalled", 0)?;
    let size: usize = arguments.option("--size", 64)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let server: u32 = arguments.option("--server", 0)?;
    let is_websocket: bool = arguments.option("--websocket", false)?;
    arguments.end()?;
    if connections == 0 || size < 32 {
        return Err(invalid("at least one connection and 32 bytes are needed".into()));
    }
    let mut poll = Poll::new()?;
    windlass::fd::raise_max_open_files()?;
    let connect = || match is_websocket {
        true => websocket_load::open(port),
        false => std::net::TcpStream::connect(("127.0.0.1", port)),
    };
    // Each message is a frame of text.
    let head = if is_websocket { websocket_load::head(0x81, size, None) } else { Vec::new() };
    let silent: Vec<_> = (0..stalled).map(|_| connect()).collect::<Result<_, _>>()?;
    let mut listeners = Vec::with_capacity(connections);
    for index in 0..connections {
        let socket = connect()?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(index), Interest::READABLE)?;
        listeners.push(Listener { socket, partial: Vec::new(), last: 0 });
    }

    let span = Duration::from_secs_f64(seconds);
    let begin = Instant::now();
    // The time when the measurement began, and the server's processor time at that time.
    let mut from = None;
    let mut firsts: HashMap<u64, Instant> = HashMap::new();
    // The newest message, and how many connections have it.
    let mut newest = (0, 0);
    let mut delays = Vec::new();
    let mut events = Events::with_capacity(1024);
    let mut space = vec![0; 256 << 10];
    loop {
        poll.poll(&mut events, Some(Duration::from_millis(20)))?;
        for event in &events {
            let Token(index) = event.token();
            listeners[index].read(&mut space, &head, size, |number| {
                let now = Instant::now();
                let first = *firsts.entry(number).or_insert(now);
                if number > newest.0 {
                    newest = (number, 0);
                }
                newest.1 += usize::from(number == newest.0);
                if from.is_some() {
                    delays.push((now - first).as_nanos() as u64);
                }
            })?;
        }
        let now = Instant::now();
        // Between two messages, the server has paid for all that was delivered and for no more. One
        // that sends without a pause is never there.
        let is_time = |since: Instant| {
            let passed = now - since;
            passed > span && newest.1 == connections || passed > 3 * span
        };
        match from {
            None if is_time(begin) => from = Some((now, cpu_time_of(server)?)),
            Some((since, before)) if is_time(since) => {
                let used = cpu_time_of(server)? - before;
                if delays.is_empty() {
                    return Err(io::Error::other("no message came"));
                }
                delays.sort_unstable();
                let us = |percent: usize| delays[delays.len() * percent / 100] as f64 / 1e3;
                let cpu_us = used.as_secs_f64() * 1e6 / delays.len() as f64;
                println!("{cpu_us} {} {}", us(50), us(99));
                drop(silent);
                return Ok(());
            }
            _ => {}
        }
    }
}

impl Listener {
    /// Reads all bytes that have arrived, and calls `tell` with the number of each complete
    /// message. A message with another size, or with another number than the next one, is an error.
    fn read(
        &mut self,
        space: &mut [u8],
        head: &[u8],
        size: usize,
        mut tell: impl FnMut(u64),
    ) -> io::Result<()> {
        loop {
            match self.socket.read(space) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => self.partial.extend_from_slice(&space[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut read = 0;
        while let Some(message) = self.partial.get(read..read + head.len() + size) {
            let Some(message) = message.strip_prefix(head) else {
                return Err(io::Error::other("not the head of a message"));
            };
            let text = std::str::from_utf8(message).map_err(io::Error::other)?;
            let mut words = text.split(' ');
            let number = words.nth(1).and_then(|word| word.parse().ok());
            match number.filter(|_| text.starts_with("message ") && text.ends_with(".\n")) {
                Some(number) if self.last == 0 || number == self.last + 1 => {
                    self.last = number;
                    tell(number);
                }
                _ => return Err(io::Error::other(format!("not the next message: {text:?}"))),
            }
            read += head.len() + size;
        }
        self.partial.drain(..read);
        Ok(())
    }
}
