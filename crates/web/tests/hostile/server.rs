//! A server that does what scripts say, byte by byte.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::net::SocketOption;
use windlass::{Completion, Done, Op, Source, Watcher};

/// What the server does, one after the other. Behind the last act the connection stays open.
#[derive(Clone, Debug)]
pub enum Act {
    Say(Vec<u8>),
    Wait(Duration),
    /// Says one byte after the other, with a pause before each.
    Drip(VecDeque<u8>, Duration),
    /// Says it again and again, until the connection is over.
    Endless(Vec<u8>),
    /// Ends its side, and reads on.
    Finish,
    Close,
    Reset,
}

/// A response that nobody can complain of.
pub const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// A connection of the server.
pub struct Conn {
    source: Source,
    input: Vec<u8>,
    acts: VecDeque<Act>,
    is_busy: bool,
    /// The bytes that the client's side has taken.
    pub said: usize,
    /// Whether the client has ended it, or the server.
    pub is_over: bool,
}

/// The accepts of the server.
pub const LISTENER: u64 = 2;
/// The operations of a connection have its place behind this token.
const CONN: u64 = 16;

/// A server that does what scripts say.
#[derive(Default)]
pub struct Hostile {
    /// The scripts of each target, one for each request; the last one is for all further ones. A
    /// target that has none gets [`GOOD`].
    pub scripts: HashMap<String, VecDeque<Vec<Act>>>,
    /// What it does to the next connection, before any request.
    pub greeting: Option<Vec<Act>>,
    /// Whether it reads nothing of the connections that come.
    pub is_deaf: bool,
    pub conns: Vec<Conn>,
    /// The requests that it has read: the place of the connection, the method and the target.
    pub requests: Vec<(usize, String)>,
}

impl Hostile {
    /// Takes a completion of the server.
    pub fn complete<D: Driver>(&mut self, watcher: &mut Watcher<D>, c: Completion) {
        if c.token == LISTENER {
            if let Ok(Done::Accepted(socket)) = c.result {
                let source = watcher.attach(socket).expect("a source");
                let token = CONN + self.conns.len() as u64;
                let read = Op::read(source).multishot().token(token);
                // Refused if the client has ended the connection already.
                let is_over = !self.is_deaf && watcher.submit(read).is_err();
                let acts = self.greeting.take().unwrap_or_default().into();
                let (input, said) = (Vec::new(), 0);
                self.conns.push(Conn { source, input, acts, is_busy: false, said, is_over });
                self.advance(watcher, self.conns.len() - 1);
            }
            return;
        }
        let at = (c.token - CONN) as usize;
        let conn = &mut self.conns[at];
        match (c.code(), &c.result) {
            (OpCode::Read, Ok(Done::Read(data))) if !data.is_eof() => {
                conn.input.extend_from_slice(data);
            }
            (OpCode::Read | OpCode::Write, Err(_)) | (OpCode::Read, Ok(_)) => {
                self.end(watcher, at);
            }
            (OpCode::Write, Ok(_)) => {
                conn.said += c.bytes();
                conn.is_busy = false;
            }
            (OpCode::Timer | OpCode::Shutdown, _) => conn.is_busy = false,
            _ => {}
        }
        self.advance(watcher, at);
    }

    /// Does this on a connection, behind its script.
    pub fn act<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: usize, acts: Vec<Act>) {
        self.conns[at].acts.extend(acts);
        self.advance(watcher, at);
    }

    /// Reads a connection that it was deaf to.
    pub fn hear<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: usize) {
        let read = Op::read(self.conns[at].source).multishot().token(CONN + at as u64);
        if watcher.submit(read).is_err() {
            self.end(watcher, at);
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.conns.iter().filter(|conn| !conn.is_over).count()
    }

    fn end<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: usize) {
        let conn = &mut self.conns[at];
        if !std::mem::replace(&mut conn.is_over, true) {
            watcher.abort(conn.source);
        }
    }

    /// Does what comes next on a connection.
    fn advance<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: usize) {
        loop {
            let conn = &mut self.conns[at];
            if conn.is_busy || conn.is_over {
                return;
            }
            let Some(act) = conn.acts.pop_front() else {
                let Some(request) = take_request(&mut conn.input) else { return };
                let target = request.split(' ').nth(1).unwrap_or_default();
                let script = self.scripts.get_mut(target).and_then(|all| match all.len() {
                    0 | 1 => all.front().cloned(),
                    _ => all.pop_front(),
                });
                let mut acts = script.unwrap_or_else(|| vec![Act::Say(GOOD.into())]);
                if request.starts_with("HEAD ") {
                    acts.iter_mut().for_each(leave_body_out);
                }
                conn.acts.extend(acts);
                self.requests.push((at, request));
                if self.conns[at].acts.is_empty() {
                    return; // silence
                }
                continue;
            };
            let op = match act {
                Act::Say(bytes) => Op::write(conn.source, bytes),
                Act::Wait(span) => Op::timer(span),
                Act::Drip(mut bytes, pause) => {
                    let Some(byte) = bytes.pop_front() else { continue };
                    conn.acts.push_front(Act::Drip(bytes, pause));
                    conn.acts.push_front(Act::Say(vec![byte]));
                    Op::timer(pause)
                }
                Act::Endless(bytes) => {
                    conn.acts.push_front(Act::Endless(bytes.clone()));
                    Op::write(conn.source, bytes)
                }
                Act::Finish => Op::shutdown(conn.source),
                Act::Close => return self.end(watcher, at),
                Act::Reset => {
                    let reset = SocketOption::Linger(Some(Duration::ZERO));
                    let _ = watcher.set_option(conn.source, reset); // refused: it is over
                    return self.end(watcher, at);
                }
            };
            self.conns[at].is_busy = true;
            if watcher.submit(op.token(CONN + at as u64)).is_err() {
                return self.end(watcher, at);
            }
        }
    }
}

/// The body of [`GOOD`] behind the head for a `HEAD` would be no response to the next request.
fn leave_body_out(act: &mut Act) {
    if let Act::Say(bytes) = act
        && bytes == GOOD.as_bytes()
    {
        bytes.truncate(GOOD.len() - "good".len());
    }
}

/// Takes a whole request: its method and target.
fn take_request(input: &mut Vec<u8>) -> Option<String> {
    let head = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&input[..head]).into_owned();
    let length = |line: &str| line.strip_prefix("Content-Length: ")?.parse().ok();
    let body: usize = text.lines().find_map(length).unwrap_or(0);
    let rest = input.get(head + body..)?.to_vec();
    *input = rest;
    let mut words = text.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}
