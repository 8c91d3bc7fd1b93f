//! An application that asks a server whose every byte the test decides: on one watcher of every
//! driver.
//!
//! # Why
//! Both ends and the test share one thread. So a test knows what the server has read and written
//! when the application acts, and nothing waits for real time.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::net::{ConnectOptions, SocketOption};
use windlass::{Address, Completion, Completions, Done, Op, Source, Watcher};
use windlass_web::client::{Fetch, FetchError, Fetched};
use windlass_web::{App, Limits, ServerLoop};

use crate::common::{Harness, PATIENCE};

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

/// An outcome of a call, as a text: the status and the body, or what is wrong.
pub fn told(result: &Result<Fetched, FetchError>) -> String {
    match result {
        Ok(fetched) => {
            let body = String::from_utf8_lossy(fetched.body());
            format!("{} {body}", fetched.status().code())
        }
        Err(FetchError::Response(error)) => format!("{:?}", error.rule()),
        Err(error) => {
            let text = format!("{error:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}

/// The state of the application: the calls that it is to make, and what came of them.
#[derive(Default)]
pub struct Calls {
    next: VecDeque<(usize, Fetch)>,
    /// By the number of the call.
    pub outcomes: HashMap<usize, Vec<Result<Fetched, FetchError>>>,
}

/// An application that makes the calls of its state.
pub fn app() -> App<Calls> {
    let hour = Duration::from_secs(3600);
    App::with(|_loop| Calls::default()).limits(Limits::new().answer(hour).keep_alive(hour)).get(
        "/",
        |calls: &mut Calls, q| {
            let (number, fetch) = calls.next.pop_front().expect("a call");
            q.fetch(fetch, move |calls: &mut Calls, result| {
                calls.outcomes.entry(number).or_default().push(result);
                "over"
            })
        },
    )
}

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

const ASKER: u64 = 1;
const LISTENER: u64 = 2;
/// The operations of a connection have its place behind this token.
const CONN: u64 = 16;

/// A server that does what scripts say.
pub struct Hostile {
    /// The script of each target. One that has none gets [`GOOD`].
    scripts: HashMap<String, Vec<Act>>,
    /// What it does to the next connection, before any request.
    greeting: Option<Vec<Act>>,
    pub conns: Vec<Conn>,
    /// The requests that it has read: the place of the connection, the method and the target.
    pub requests: Vec<(usize, String)>,
}

impl Hostile {
    fn complete<D: Driver>(&mut self, watcher: &mut Watcher<D>, c: Completion) {
        if c.token == LISTENER {
            if let Ok(Done::Accepted(socket)) = c.result {
                let source = watcher.attach(socket).expect("a source");
                let token = CONN + self.conns.len() as u64;
                let read = Op::read(source).multishot().token(token);
                // Refused if the client has ended the connection already.
                let is_over = watcher.submit(read).is_err();
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
                let good = || vec![Act::Say(GOOD.into())];
                let script = self.scripts.get(target).cloned().unwrap_or_else(good);
                conn.acts.extend(script);
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

/// An application, and the server that it asks at two addresses.
pub struct Scene<D: Driver> {
    pub watcher: Watcher<D>,
    pub server: ServerLoop<Calls>,
    pub hostile: Hostile,
    address: Address,
    /// Where the hostile server listens.
    pub origins: [String; 2],
    calls: usize,
    /// What those who have made the application call have heard.
    heard: HashMap<Source, Vec<u8>>,
}

/// Starts an application on a watcher of the harness.
pub fn scene<T: Harness>(app: App<Calls>) -> Scene<T::Driver> {
    let mut watcher = T::watcher(Watcher::builder());
    let mut listen = |port: u16| {
        let port = if T::VIRTUAL { port } else { 0 };
        let listener = watcher.listen(([127, 0, 0, 1], port)).expect("a listener");
        let accept = Op::accept(listener).multishot().token(LISTENER);
        watcher.submit(accept).expect("an accept");
        let address = watcher.local_address(listener).expect("an address");
        format!("http://{}", address.ip().expect("an address"))
    };
    let origins = [listen(8081), listen(8082)];
    let own = if T::VIRTUAL { 8080 } else { 0 };
    let own = std::net::TcpListener::bind("127.0.0.1:0").ok().filter(|_| own == 0);
    let (app, address) = match own {
        Some(listener) => {
            let address = listener.local_addr().expect("an address");
            (app.listen(listener).expect("a listener"), address)
        }
        None => {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], 8080));
            (app.listen(address.to_string()).expect("an address"), address)
        }
    };
    let server = app.start_on(&mut watcher).expect("the server starts");
    let (scripts, conns, requests) = (HashMap::new(), Vec::new(), Vec::new());
    Scene {
        watcher,
        server,
        hostile: Hostile { scripts, greeting: None, conns, requests },
        address: address.into(),
        origins,
        calls: 0,
        heard: HashMap::new(),
    }
}

impl<D: Driver> Scene<D> {
    /// Sets what the server does behind a request for a target.
    pub fn script(&mut self, target: &str, acts: Vec<Act>) {
        self.hostile.scripts.insert(target.to_owned(), acts);
    }

    /// Sets what the server does to the next connection, before any request.
    pub fn greet(&mut self, acts: Vec<Act>) {
        self.hostile.greeting = Some(acts);
    }

    /// The URL of a target of the first address.
    pub fn url(&self, target: &str) -> String {
        format!("{}{target}", self.origins[0])
    }

    /// Makes the application begin a call; its number.
    pub fn begin(&mut self, fetch: Fetch) -> usize {
        self.calls += 1;
        self.server.state().next.push_back((self.calls, fetch));
        let options = ConnectOptions::default().token(ASKER);
        let asker = self.watcher.connect([self.address.clone()], options).expect("a source").0;
        let request = Op::write(asker, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").token(ASKER);
        self.watcher.submit(request).expect("a request");
        let read = Op::read(asker).multishot().token(ASKER);
        self.watcher.submit(read).expect("a read");
        self.heard.insert(asker, Vec::new());
        self.calls
    }

    /// Waits for the outcome of a call. There is one, and one only.
    #[track_caller]
    pub fn outcome(&mut self, call: usize) -> Result<Fetched, FetchError> {
        self.until("an outcome", |scene| {
            let is_answered = |heard: &Vec<u8>| heard.ends_with(b"over");
            let outcomes = scene.server.state().outcomes.values().map(Vec::len).sum::<usize>();
            let answered = scene.heard.values().filter(|heard| is_answered(heard)).count();
            scene.server.state().outcomes.contains_key(&call) && outcomes == answered
        });
        let outcomes = &self.server.state().outcomes[&call];
        assert_eq!(outcomes.len(), 1, "several outcomes: {outcomes:?}");
        outcomes[0].clone()
    }

    /// Makes a call, and waits for its outcome.
    #[track_caller]
    pub fn call(&mut self, fetch: Fetch) -> Result<Fetched, FetchError> {
        let call = self.begin(fetch);
        self.outcome(call)
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.now() - start < PATIENCE, "still waits for {what}");
            assert!(self.turn(PATIENCE) > 0, "waited in vain for {what}");
        }
    }

    /// Runs one turn, and waits for it for at most `span`; how many completions there were.
    pub fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            match self.server.complete(&mut self.watcher, completion) {
                Some(c) if c.token == ASKER => {
                    if let (Some(heard), Ok(Done::Read(data))) =
                        (self.heard.get_mut(&c.source), &c.result)
                    {
                        heard.extend_from_slice(data);
                    }
                }
                Some(c) => self.hostile.complete(&mut self.watcher, c),
                None => {}
            }
        }
        self.server.turn(&mut self.watcher);
        count
    }
}
