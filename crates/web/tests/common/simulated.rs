//! Servers and clients on one watcher, on a simulated kernel.

use std::io;
use std::time::Duration;

use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, SocketOption};
use windlass::sim::{Faults, Sim};
use windlass::{Completion, Completions, Done, ErrorKind, Op, Source, Watcher};
use windlass_web::{App, ServerLoop};

use super::{End, Net};

const PORT: u16 = 8080;
const CLIENT: u64 = 1;

/// The longest virtual time that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(1000);

/// Whether the other side has reset the connection.
fn is_reset(kind: ErrorKind) -> bool {
    let ErrorKind::Os(errno) = kind else { return false };
    io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::ConnectionReset
}

/// A server of any state.
trait Serve {
    fn complete(&mut self, watcher: &mut Watcher, completion: Completion) -> Option<Completion>;
    fn turn(&mut self, watcher: &mut Watcher);
    fn stop(&mut self, watcher: &mut Watcher);
    fn is_over(&self) -> bool;
}

impl<S: 'static> Serve for ServerLoop<S> {
    fn complete(&mut self, watcher: &mut Watcher, completion: Completion) -> Option<Completion> {
        ServerLoop::complete(self, watcher, completion)
    }
    fn turn(&mut self, watcher: &mut Watcher) {
        ServerLoop::turn(self, watcher);
    }
    fn stop(&mut self, watcher: &mut Watcher) {
        ServerLoop::stop(self, watcher);
    }
    fn is_over(&self) -> bool {
        ServerLoop::is_over(self)
    }
}

#[derive(Default)]
struct Client {
    source: Option<Source>,
    heard: Vec<u8>,
    end: Option<End>,
    /// Whether it reads.
    hears: bool,
}

/// A server and its clients.
pub struct Bench {
    pub watcher: Watcher,
    server: Box<dyn Serve>,
    clients: Vec<Client>,
}

impl Bench {
    pub fn new<S: 'static>(sim: &Sim, app: App<S>) -> Bench {
        let mut watcher = Watcher::simulated(sim);
        let app = app.listen(format!("127.0.0.1:{PORT}")).expect("an address");
        let mut server = app.start_on(&mut watcher).expect("the server starts");
        server.simulate_date(&watcher);
        Bench { watcher, server: Box::new(server), clients: Vec::new() }
    }

    /// Connects; the client reads if it `hears`.
    pub fn connect_with(&mut self, hears: bool) -> usize {
        let at = self.clients.len();
        let options = ConnectOptions::default().token(CLIENT + at as u64);
        let connect = self.watcher.connect([([127, 0, 0, 1], PORT)], options);
        let source = connect.expect("a source").0;
        self.clients.push(Client { source: Some(source), hears, ..Client::default() });
        at
    }

    fn submit(&mut self, client: usize, op: impl FnOnce(Source) -> Op) {
        let Some(source) = self.clients[client].source else { return };
        // Refused if the connection has failed, which a read has told.
        let _ = self.watcher.submit(op(source).token(CLIENT + client as u64));
    }

    pub fn say(&mut self, client: usize, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.submit(client, |source| Op::write(source, bytes));
    }

    pub fn finish(&mut self, client: usize) {
        self.submit(client, Op::shutdown);
    }

    pub fn reset(&mut self, client: usize) {
        if let Some(source) = self.clients[client].source.take() {
            let _ = self.watcher.set_option(source, SocketOption::Linger(Some(Duration::ZERO)));
            self.watcher.abort(source);
        }
    }

    /// A client that did not read begins to.
    pub fn listen(&mut self, client: usize) {
        self.clients[client].hears = true;
        self.submit(client, |source| Op::read(source).multishot());
    }

    fn take(&mut self, completion: Completion) {
        let at = (completion.token - CLIENT) as usize;
        let client = &mut self.clients[at];
        match (completion.code(), &completion.result) {
            (OpCode::Connect, Ok(_)) if client.hears => self.listen(at),
            (OpCode::Read, Ok(Done::Read(data))) => {
                client.heard.extend_from_slice(data);
                if data.is_eof() {
                    client.end.get_or_insert(End::Eof);
                }
            }
            (OpCode::Read, Err(error)) if error.kind() == ErrorKind::Cancelled => {}
            (OpCode::Connect | OpCode::Read, Err(_)) => {
                client.end.get_or_insert(End::Reset);
            }
            // As on Linux, the reads behind it see an end of file. (A reset behind an end of file
            // is another error.)
            (OpCode::Write, Err(error)) if is_reset(error.kind()) => {
                client.end.get_or_insert(End::Reset);
            }
            _ => {}
        }
    }

    /// One turn, which waits for at most `span`; how many completions it had.
    pub fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(completion) = self.server.complete(&mut self.watcher, completion) {
                self.take(completion);
            }
        }
        self.server.turn(&mut self.watcher);
        count
    }

    /// Runs for so much virtual time.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.watcher.update_now() + span;
        while let Some(left) = end.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Bench) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.update_now() - start < PATIENCE, "waits until {what}");
            self.turn(PATIENCE);
        }
    }

    /// Virtual time.
    pub fn now(&mut self) -> std::time::Instant {
        self.watcher.update_now()
    }

    /// How the connection of a client has ended, if it has.
    pub fn ended(&self, client: usize) -> Option<End> {
        self.clients[client].end
    }

    /// Runs until the connection of a client has ended.
    #[track_caller]
    pub fn end(&mut self, client: usize) -> End {
        self.until("its connection ends", |bench| bench.clients[client].end.is_some());
        let end = self.clients[client].end.expect("right from above");
        // The client closes, too: it does not keep the server's connection.
        if let Some(source) = self.clients[client].source.take() {
            self.watcher.abort(source);
        }
        end
    }

    pub fn heard(&self, client: usize) -> &[u8] {
        &self.clients[client].heard
    }

    /// Begins the shutdown of the server.
    pub fn stop(&mut self) {
        self.server.stop(&mut self.watcher);
    }

    /// Runs until the shutdown is over.
    #[track_caller]
    pub fn until_over(&mut self) {
        self.until("the server is over", |bench| bench.server.is_over());
    }
}

macro_rules! simulated {
    ($($(#[$doc:meta])* $name:ident $sim:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name(pub Bench);

        impl Net for $name {
            const VIRTUAL: bool = true;
            fn start<S: 'static>(app: App<S>) -> $name {
                $name(Bench::new(&$sim, app))
            }
            fn connect(&mut self) -> usize {
                self.0.connect_with(true)
            }
            fn say(&mut self, client: usize, bytes: &[u8]) {
                self.0.say(client, bytes);
            }
            fn finish(&mut self, client: usize) {
                self.0.finish(client);
            }
            fn reset(&mut self, client: usize) {
                self.0.reset(client);
            }
            fn hear(&mut self, client: usize, what: &str, mut enough: impl FnMut(&[u8]) -> bool) {
                self.0.until(what, |bench| enough(&bench.clients[client].heard));
            }
            fn end(&mut self, client: usize) -> End {
                self.0.end(client)
            }
            fn heard(&self, client: usize) -> &[u8] {
                self.0.heard(client)
            }
        }
    )*};
}

simulated! {
    /// A network that behaves.
    Simulated Sim::new(1);
    /// A network that delays, tears and interrupts, but loses nothing.
    Faulty Sim::with_faults(seed(), Faults::transient(0.2));
    /// A network that behaves, with a kernel that completes reads and writes.
    Completing {
        let sim = Sim::new(seed());
        sim.set_completing(true);
        sim
    };
}

/// The seed of the faults: `WINDLASS_SEED`, or a fresh one, which is printed.
fn seed() -> u64 {
    let given = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    println!("WINDLASS_SEED={seed}");
    seed
}
