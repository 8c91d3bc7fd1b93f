//! A server and its clients on one watcher: on each driver of the system, and in the simulation.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use windlass_web::windlass::driver::OpCode;
use windlass_web::windlass::net::{ConnectOptions, SocketOption};
use windlass_web::windlass::sim::{Faults, Sim};
use windlass_web::windlass::{
    Buf, Completion, Completions, Done, DriverKind, ErrorKind, Op, Source, Watcher,
};
use windlass_web::{App, ServerLoop};

/// A driver under test.
pub trait Harness {
    /// Whether time is virtual, and waiting for a limit costs nothing.
    const VIRTUAL: bool;

    /// A watcher, and a listener if its network is the system's.
    fn watcher() -> (Watcher, Option<TcpListener>);

    /// A simulation for a watcher, if it is one of that.
    fn sim() -> Option<Sim> {
        None
    }
}

macro_rules! system {
    ($name:ident) => {
        pub struct $name;
        impl Harness for $name {
            const VIRTUAL: bool = false;
            fn watcher() -> (Watcher, Option<TcpListener>) {
                let watcher = Watcher::builder().driver(DriverKind::$name).build();
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                (watcher.expect("the driver is there"), Some(listener))
            }
        }
    };
}

#[cfg(target_os = "linux")]
system!(Epoll);
#[cfg(target_os = "linux")]
system!(Uring);
#[cfg(unix)]
system!(Poll);

/// A simulated network that behaves.
pub struct Simulated;

impl Harness for Simulated {
    const VIRTUAL: bool = true;
    fn watcher() -> (Watcher, Option<TcpListener>) {
        (Watcher::simulated(&Sim::new(1)), None)
    }
    fn sim() -> Option<Sim> {
        Some(Sim::new(1))
    }
}

/// A simulated network that delays, tears and interrupts, but loses nothing.
pub struct Faulty;

impl Harness for Faulty {
    const VIRTUAL: bool = true;
    fn watcher() -> (Watcher, Option<TcpListener>) {
        (Watcher::simulated(&Sim::with_faults(seed(), Faults::transient(0.2))), None)
    }
    fn sim() -> Option<Sim> {
        Some(Sim::with_faults(seed(), Faults::transient(0.2)))
    }
}

/// A fresh seed, or `WINDLASS_SEED`.
pub fn seed() -> u64 {
    let given = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("WINDLASS_SEED={seed}");
    seed
}

/// Stamps tests for every driver.
#[macro_export]
macro_rules! every_driver {
    ($($body:ident)*) => {
        $crate::stamp! { #[cfg(target_os = "linux")] epoll Epoll: $($body)* }
        $crate::stamp! { #[cfg(target_os = "linux")] uring Uring: $($body)* }
        $crate::stamp! { #[cfg(unix)] poll Poll: $($body)* }
        $crate::stamp! { #[cfg(all())] sim Simulated: $($body)* }
        $crate::stamp! { #[cfg(all())] faults Faulty: $($body)* }
    };
}

/// Stamps tests for one driver.
#[macro_export]
macro_rules! stamp {
    (#[$cfg:meta] $module:ident $harness:ident: $($body:ident)*) => {
        #[$cfg]
        mod $module {
            $(#[test]
            fn $body() {
                super::$body::<$crate::bench::$harness>();
            })*
        }
    };
}

/// A client's end of a connection.
#[derive(Debug, Default)]
struct Client {
    heard: Vec<u8>,
    is_over: bool,
    error: Option<ErrorKind>,
    is_deaf: bool,
    /// Bytes of its writes that the system has taken.
    said: usize,
}

/// The token of what clients do.
const CLIENT: u64 = 1;

/// The longest that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(1000);

/// A server and its clients.
pub struct Bench<S: 'static = ()> {
    pub watcher: Watcher,
    pub server: ServerLoop<S>,
    address: SocketAddr,
    clients: HashMap<Source, Client>,
}

impl<S: 'static> Bench<S> {
    pub fn new<T: Harness>(app: App<S>) -> Bench<S> {
        let (watcher, listener) = T::watcher();
        Bench::on(watcher, listener, app)
    }

    /// A server on this watcher. Without a listener its network is simulated.
    pub fn on(mut watcher: Watcher, listener: Option<TcpListener>, app: App<S>) -> Bench<S> {
        let (app, address) = match listener {
            Some(listener) => {
                let address = listener.local_addr().expect("it is bound");
                (app.listen(listener).expect("a listener"), address)
            }
            None => {
                let app = app.listen("127.0.0.1:8080").expect("an address");
                (app, ([127, 0, 0, 1], 8080).into())
            }
        };
        let mut server = app.start_on(&mut watcher).expect("the server starts");
        server.simulate_date(&watcher);
        Bench { watcher, server, address, clients: HashMap::new() }
    }

    /// A client that connects.
    pub fn connect(&mut self) -> Source {
        let options = ConnectOptions::default().token(CLIENT);
        let (client, _) = self.watcher.connect([self.address], options).expect("a source");
        self.clients.insert(client, Client::default());
        client
    }

    /// A client that connects, and does not read before it is told to.
    pub fn connect_deaf(&mut self) -> Source {
        let client = self.connect();
        self.clients.get_mut(&client).expect("a client").is_deaf = true;
        client
    }

    /// A client that did not read begins to read.
    pub fn hear(&mut self, client: Source) {
        self.clients.get_mut(&client).expect("a client").is_deaf = false;
        self.submit(Op::read(client).multishot());
    }

    /// A client says something.
    pub fn say(&mut self, client: Source, what: impl Into<Buf>) {
        self.submit(Op::write(client, what));
    }

    /// A client ends its side.
    pub fn finish(&mut self, client: Source) {
        self.submit(Op::shutdown(client));
    }

    /// A client resets its connection. (After an abort alone, the system says an end if the client
    /// has read all.)
    pub fn reset(&mut self, client: Source) {
        let linger = SocketOption::Linger(Some(Duration::ZERO));
        let _ = self.watcher.set_option(client, linger); // it may have ended
        self.watcher.abort(client);
    }

    /// A client that has lost its connection says nothing more.
    fn submit(&mut self, op: Op) {
        let _ = self.watcher.submit(op.token(CLIENT));
    }

    /// What a client has heard.
    pub fn heard(&self, client: Source) -> String {
        String::from_utf8_lossy(&self.clients[&client].heard).into_owned()
    }

    /// What a client has heard, which is forgotten.
    pub fn take(&mut self, client: Source) -> String {
        let heard = &mut self.clients.get_mut(&client).expect("a client").heard;
        String::from_utf8_lossy(&std::mem::take(heard)).into_owned()
    }

    /// Waits for a whole response with a `Content-Length`, and takes what the client has heard.
    #[track_caller]
    pub fn answer(&mut self, client: Source) -> String {
        self.until("the response is whole", |b| {
            let heard = b.heard(client);
            heard.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let field = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let len = field.expect("a Content-Length").parse::<usize>().expect("a length");
                body.len() >= len
            })
        });
        self.take(client)
    }

    /// Whether a client's connection has ended.
    pub fn is_over(&self, client: Source) -> bool {
        self.clients[&client].is_over
    }

    /// How a client's connection has failed.
    pub fn error(&self, client: Source) -> Option<ErrorKind> {
        self.clients[&client].error
    }

    /// How many bytes of a client's writes the system has taken.
    pub fn said(&self, client: Source) -> usize {
        self.clients[&client].said
    }

    pub fn now(&mut self) -> Instant {
        self.watcher.update_now()
    }

    /// Turns until it is so; a panic with `what` if it never is.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.now();
        while !ready(self) {
            assert!(self.now() - start < PATIENCE, "still waits until {what}");
            self.turn(PATIENCE);
        }
    }

    /// Turns for a time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while let Some(left) = end.checked_duration_since(self.now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    /// Says something, and turns until the answer ends with `end`.
    #[track_caller]
    pub fn ask(&mut self, client: Source, what: impl Into<Buf>, end: &str) -> String {
        self.say(client, what);
        self.until(&format!("the answer ends with {end:?}"), |b| {
            let heard = b.heard(client);
            assert!(heard.ends_with(end) || !b.is_over(client), "{heard:?}");
            heard.ends_with(end)
        });
        self.take(client)
    }

    /// Says something, and turns until the server has ended the connection.
    #[track_caller]
    pub fn ask_last(&mut self, client: Source, what: impl Into<Buf>) -> String {
        self.say(client, what);
        self.end(client)
    }

    /// Turns until the server has ended the connection.
    #[track_caller]
    pub fn end(&mut self, client: Source) -> String {
        self.until("the connection has ended", |b| b.is_over(client));
        self.take(client)
    }

    /// One turn, which waits for at most this time.
    pub fn turn(&mut self, span: Duration) {
        let mut done = Completions::new();
        self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(completion) = self.server.complete(&mut self.watcher, completion) {
                self.of_client(completion);
            }
        }
        self.server.turn(&mut self.watcher);
    }

    fn of_client(&mut self, c: Completion) {
        let Some(client) = self.clients.get_mut(&c.source) else { return };
        match (c.code(), &c.result) {
            (OpCode::Read, Ok(Done::Read(data))) => {
                client.heard.extend_from_slice(data);
                if data.is_eof() {
                    client.is_over = true;
                    self.watcher.abort(c.source);
                }
            }
            (OpCode::Read | OpCode::Connect, Err(error)) => {
                (client.is_over, client.error) = (true, Some(error.kind()));
            }
            (OpCode::Connect, Ok(_)) if !client.is_deaf => {
                let read = Op::read(c.source).multishot().token(CLIENT);
                self.watcher.submit(read).expect("a read");
            }
            (OpCode::Write, _) => client.said += c.bytes(),
            _ => {}
        }
    }
}
