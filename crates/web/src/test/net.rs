//! The network of a simulation: hosts with servers, and the ends of their clients.
//!
//! # Why
//! Clients that block could not share one thread with servers. So a client that waits steps the
//! whole network, until what it waits for is there. All clients are on one host with one watcher;
//! each server has a host and a watcher of its own, which can crash alone.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, SocketOption};
use windlass::sim::Sim;
use windlass::{Completions, Done, Op, Source, Watcher};
#[cfg(feature = "tls")]
use windlass_serve::tls::{Session, TlsClient};

use super::error::ClientError;
use super::loop_work::LoopWork;
use crate::app::ServerLoop;

/// The host of all clients.
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// How many lines the log keeps.
const LOG: usize = 1000;

/// The longest time that a machine which has crashed is away.
const AWAY: Duration = Duration::from_secs(2);

/// A server that runs.
trait SimServer {
    /// A turn; how many completions it had.
    fn turn(&mut self) -> usize;
    fn next_timeout(&mut self) -> Option<Duration>;
    fn stop(&mut self);
    fn is_over(&self) -> bool;
}

/// The server of an application, its watcher, and what the program does beside it.
struct Served<S: 'static, B> {
    server: ServerLoop<S>,
    watcher: Watcher,
    beside: B,
}

impl<S: 'static, B: LoopWork> SimServer for Served<S, B> {
    fn turn(&mut self) -> usize {
        let Served { server, watcher, beside } = self;
        let mut done = Completions::new();
        let count = watcher.try_wait(&mut done).expect("a simulated wait");
        for c in done.drain(..) {
            if let Some(c) = server.complete(watcher, c) {
                beside.complete(watcher, c);
            }
        }
        server.turn(watcher);
        beside.turn(watcher);
        count
    }

    fn next_timeout(&mut self) -> Option<Duration> {
        self.watcher.next_timeout()
    }

    fn stop(&mut self) {
        self.server.stop(&mut self.watcher);
    }

    fn is_over(&self) -> bool {
        self.server.is_over()
    }
}

/// What starts the server of a host.
type StartServer = Rc<dyn Fn(&Sim) -> Box<dyn SimServer>>;

/// A host with a server.
struct SimHost {
    name: String,
    address: Ipv4Addr,
    sim: Sim,
    start: StartServer,
    serving: Option<Box<dyn SimServer>>,
    /// When its server starts again.
    again: Option<Instant>,
}

/// A client's end of a connection.
struct ClientEnd {
    source: Source,
    is_connected: bool,
    /// Bytes that have come and are not taken.
    heard: Vec<u8>,
    has_ended: bool,
    error: Option<ClientError>,
    /// How a write has failed. That takes the error of the connection, so that a read sees an end
    /// of file behind it, as on Linux.
    broken: Option<io::Error>,
    is_reading: bool,
    /// Whether it reads what comes, or only when it is asked to.
    reads: bool,
    /// Bytes that the network has not taken, and the writes in flight.
    unsent: usize,
    writing: usize,
    /// An end of file has come. It is the end once no write can tell of an error any more.
    has_eof: bool,
    is_gone: bool,
    #[cfg(feature = "tls")]
    tls: Option<Box<Secure>>,
}

/// The session of an end with TLS.
#[cfg(feature = "tls")]
struct Secure {
    session: Session,
    /// Text that waits for the handshake.
    waiting: Vec<u8>,
    closes: bool,
}

/// The network, its hosts and its clients.
pub(super) struct Net {
    pub(super) sim: Sim,
    start: Instant,
    hosts: Vec<SimHost>,
    watcher: Watcher,
    ends: Vec<ClientEnd>,
    /// Decides whose turn comes first.
    order: u64,
    log: VecDeque<String>,
}

impl Net {
    pub(super) fn new(sim: Sim, seed: u64) -> Net {
        sim.set_patience(Duration::ZERO); // there are no other threads
        Net {
            start: sim.now(),
            watcher: Watcher::simulated(&sim.at(CLIENTS)),
            sim,
            hosts: Vec::new(),
            ends: Vec::new(),
            order: seed,
            log: VecDeque::new(),
        }
    }

    /// A number below `most`, from numbers that the test does not draw from.
    pub(super) fn draw(&mut self, most: u64) -> u64 {
        // Knuth's generator: the high bits are random enough for an order.
        const BY: u64 = 6_364_136_223_846_793_005;
        self.order = self.order.wrapping_mul(BY).wrapping_add(1_442_695_040_888_963_407);
        (self.order >> 33) % most
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.sim.now() - self.start
    }

    /// Notes a line in the log and in the trace of the network.
    pub(super) fn note(&mut self, line: &str) {
        self.sim.note(line);
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:>12.6} {line}", self.elapsed().as_secs_f64()));
    }

    /// The lines of the log.
    pub(super) fn lines(&self) -> String {
        let mut text = String::new();
        for line in &self.log {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// The address of a host, and the port.
    pub(super) fn find(&self, name: &str, port: u16) -> (Ipv4Addr, u16) {
        let same = |host: &&SimHost| host.name.eq_ignore_ascii_case(name);
        match self.hosts.iter().find(same) {
            Some(host) => (host.address, port),
            None => panic!("no host has the name {name}"),
        }
    }

    /// Adds a server at `HOST:PORT`, and starts it. `start` does so at an address on a host.
    ///
    /// # Panics
    ///
    /// If it cannot start.
    pub(super) fn serve<S: 'static, B: LoopWork + 'static>(
        &mut self,
        at: &str,
        start: impl Fn(&Sim, &str) -> io::Result<(ServerLoop<S>, Watcher, B)> + 'static,
    ) -> usize {
        let (name, port) = at.rsplit_once(':').expect("HOST:PORT");
        let port: u16 = port.parse().expect("a port");
        let known = self.hosts.iter().find(|host| host.name == name);
        let last = self.hosts.iter().map(|host| host.address).max().unwrap_or(CLIENTS);
        let next = Ipv4Addr::from(u32::from(last) + 1);
        let address = known.map_or(next, |host| host.address);
        let sim = self.sim.at(address);
        self.sim.host(name, [IpAddr::V4(address)]);
        let listen = format!("tcp://{address}:{port}");
        let start = move |sim: &Sim| -> Box<dyn SimServer> {
            let (server, watcher, beside) = start(sim, &listen).expect("the server starts");
            Box::new(Served { server, watcher, beside })
        };
        let name = name.to_owned();
        let start = Rc::new(start);
        self.hosts.push(SimHost { name, address, sim, start, serving: None, again: None });
        let host = self.hosts.len() - 1;
        self.start(host);
        host
    }

    /// Starts the server of a host, if it does not run.
    pub(super) fn start(&mut self, host: usize) {
        let SimHost { start, sim, serving, again, name, .. } = &mut self.hosts[host];
        *again = None;
        if serving.is_none() {
            *serving = Some(start(sim));
            let line = format!("{name} starts");
            self.note(&line);
        }
    }

    /// Begins the shutdown of the server of a host.
    pub(super) fn stop(&mut self, host: usize) {
        let SimHost { serving, again, name, .. } = &mut self.hosts[host];
        *again = None;
        if let Some(serving) = serving {
            serving.stop();
        }
        let line = format!("{name} shuts down");
        self.note(&line);
    }

    /// Takes the power of a host away. Its server starts again after a time that the seed draws.
    pub(super) fn crash(&mut self, host: usize) {
        let away = self.draw(AWAY.as_nanos() as u64);
        let now = self.sim.now();
        let address = self.hosts[host].address;
        self.hosts[host].sim.crash();
        // All servers of the host were on the machine.
        for other in self.hosts.iter_mut().filter(|other| other.address == address) {
            if other.serving.take().is_some() {
                other.again = Some(now + Duration::from_nanos(away));
            }
        }
        let line = format!("{} crashes", self.hosts[host].name);
        self.note(&line);
    }

    pub(super) fn is_running(&self, host: usize) -> bool {
        self.hosts[host].serving.is_some()
    }

    /// A turn of every host and of the clients, in an order that the seed draws. If nothing
    /// happens, time passes, at most until `end`.
    pub(super) fn step(&mut self, end: Instant) {
        let all = self.hosts.len() + 1;
        let first = self.draw(all as u64) as usize;
        let mut count = 0;
        for at in (first..first + all).map(|at| at % all) {
            count += if at + 1 == all { self.hear() } else { self.turn(at) };
        }
        if count > 0 {
            return;
        }
        let now = self.sim.now();
        let mut next = end.saturating_duration_since(now);
        let spans = [self.watcher.next_timeout(), self.sim.next_timeout()];
        for span in spans.into_iter().flatten() {
            next = next.min(span);
        }
        for SimHost { serving, again, .. } in &mut self.hosts {
            let own = serving.as_mut().and_then(|serving| serving.next_timeout());
            let again = again.map(|again| again.saturating_duration_since(now));
            for span in [own, again].into_iter().flatten() {
                next = next.min(span);
            }
        }
        self.sim.advance(next);
    }

    /// Steps until `end`.
    pub(super) fn sleep(&mut self, span: Duration) {
        let end = self.sim.now() + span;
        while self.sim.now() < end {
            self.step(end);
        }
    }

    /// A turn of a server.
    fn turn(&mut self, at: usize) -> usize {
        let host = &mut self.hosts[at];
        let Some(serving) = &mut host.serving else {
            let is_time = host.again.is_some_and(|again| again <= self.sim.now());
            if is_time {
                self.start(at);
            }
            return usize::from(is_time);
        };
        let count = serving.turn();
        if serving.is_over() {
            host.serving = None;
            let line = format!("{} has shut down", host.name);
            self.note(&line);
        }
        count
    }
}

/// The ends of clients.
impl Net {
    /// A new connection; its place.
    pub(super) fn connect(&mut self, to: (Ipv4Addr, u16), reads: bool) -> usize {
        let token = self.ends.len() as u64;
        let options = ConnectOptions::default().token(token);
        let (source, _) = self.watcher.connect([to], options).expect("a source");
        self.ends.push(ClientEnd {
            source,
            is_connected: false,
            heard: Vec::new(),
            has_ended: false,
            error: None,
            broken: None,
            is_reading: false,
            reads,
            unsent: 0,
            writing: 0,
            has_eof: false,
            is_gone: false,
            #[cfg(feature = "tls")]
            tls: None,
        });
        token as usize
    }

    /// Begins TLS on a connection.
    #[cfg(feature = "tls")]
    pub(super) fn secure(&mut self, at: usize, trust: &TlsClient, host: &str) {
        let session = Session::client(trust, host).expect("a session");
        self.ends[at].tls = Some(Box::new(Secure { session, waiting: Vec::new(), closes: false }));
        self.ends[at].reads = true; // a handshake needs what comes
        self.send_records(at);
    }

    /// Sends bytes; false if the connection has failed.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.ends[at].tls {
            tls.waiting.extend_from_slice(bytes);
            self.send_records(at);
            return self.is_alive(at);
        }
        self.write_raw(at, bytes.to_vec())
    }

    fn write_raw(&mut self, at: usize, bytes: Vec<u8>) -> bool {
        if !self.is_alive(at) || bytes.is_empty() {
            return self.is_alive(at);
        }
        let len = bytes.len();
        let op = Op::write(self.ends[at].source, bytes).token(at as u64);
        let is_taken = self.watcher.submit(op).is_ok();
        if is_taken {
            self.ends[at].unsent += len;
            self.ends[at].writing += 1;
        }
        is_taken
    }

    /// Encrypts what waits, and sends what the session has.
    #[cfg(feature = "tls")]
    fn send_records(&mut self, at: usize) {
        let Some(tls) = &mut self.ends[at].tls else { return };
        let mut out = Vec::new();
        if tls.session.is_open() && !tls.waiting.is_empty() {
            let waiting = std::mem::take(&mut tls.waiting);
            let _ = tls.session.write_all(&waiting, &mut out); // a failure is seen as an end
        }
        // Inside of a handshake a server could not read the close_notify.
        if tls.closes && tls.session.is_open() {
            tls.session.close();
        }
        tls.session.take_output(&mut out);
        self.write_raw(at, out);
    }

    fn is_alive(&self, at: usize) -> bool {
        !self.ends[at].is_gone && self.ends[at].error.is_none()
    }

    /// Ends the client's side.
    pub(super) fn shut_down(&mut self, at: usize) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.ends[at].tls {
            tls.closes = true;
            return self.send_records(at);
        }
        if self.is_alive(at) {
            let op = Op::shutdown(self.ends[at].source).token(at as u64);
            // It is refused if the connection has failed. The next read says so.
            let _ = self.watcher.submit(op);
        }
    }

    /// Closes a connection, with a reset if it `resets`.
    pub(super) fn leave(&mut self, at: usize, resets: bool) {
        let ClientEnd { source, is_gone, .. } = &mut self.ends[at];
        if std::mem::replace(is_gone, true) {
            return;
        }
        if resets {
            // Refused if the connection has failed already.
            let linger = SocketOption::Linger(Some(Duration::ZERO));
            let _ = self.watcher.set_option(*source, linger);
        }
        self.watcher.abort(*source);
    }

    /// Reads what comes next, once, if it does not read all the time.
    pub(super) fn read(&mut self, at: usize) {
        let ClientEnd { source, is_reading, is_connected, has_eof, .. } = self.ends[at];
        if !is_connected || is_reading || has_eof || self.is_over(at) {
            return;
        }
        let op = Op::read(source).token(at as u64);
        // A read that is refused, because the connection has failed, is tried again.
        let is_taken = self.watcher.submit(op).is_ok();
        self.ends[at].is_reading = is_taken;
    }

    /// Sets whether it reads all that comes.
    pub(super) fn set_reads(&mut self, at: usize, on: bool) {
        self.ends[at].reads = on;
        if on {
            self.read(at);
        }
    }

    pub(super) fn is_connected(&self, at: usize) -> bool {
        self.ends[at].is_connected
    }

    /// Whether nothing more comes.
    pub(super) fn is_over(&self, at: usize) -> bool {
        let ClientEnd { has_ended, error, is_gone, .. } = &self.ends[at];
        *has_ended || error.is_some() || *is_gone
    }

    /// The bytes that have come. The caller takes what it has used.
    pub(super) fn heard(&mut self, at: usize) -> &mut Vec<u8> {
        &mut self.ends[at].heard
    }

    /// Bytes that the network has not taken.
    pub(super) fn unsent(&self, at: usize) -> usize {
        self.ends[at].unsent
    }

    /// How a connection has failed, once.
    pub(super) fn take_error(&mut self, at: usize) -> Option<ClientError> {
        let end = &mut self.ends[at];
        end.has_ended |= end.error.is_some();
        end.error.take()
    }

    /// A turn of the clients; how many completions they had.
    fn hear(&mut self) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.try_wait(&mut done).expect("a simulated wait");
        for c in done.drain(..) {
            let at = c.token as usize;
            let end = &mut self.ends[at];
            let code = c.code();
            match code {
                OpCode::Read => end.is_reading = false,
                OpCode::Write => end.writing -= 1,
                _ => {}
            }
            if end.is_gone {
                continue;
            }
            match c.result {
                Ok(Done::Read(data)) => {
                    let is_end = data.is_eof();
                    self.arrived(at, &data, is_end);
                }
                Ok(Done::Written { bytes, .. }) => end.unsent -= bytes as usize,
                Ok(_) if code == OpCode::Connect => end.is_connected = true,
                Ok(_) => {}
                Err(error) if code == OpCode::Connect => {
                    end.error = Some(ClientError::Connect(error.into()));
                }
                Err(error) if code == OpCode::Read => {
                    let (begun, error) = (!end.heard.is_empty(), Some(error.into()));
                    end.error = Some(ClientError::Ended { begun, error });
                }
                Err(error) => end.broken = Some(error.into()),
            }
            self.see_end(at);
            if self.ends[at].reads {
                self.read(at);
            }
        }
        count
    }

    /// Bytes have come, or the end of the server's side.
    fn arrived(&mut self, at: usize, data: &[u8], is_end: bool) {
        let end = &mut self.ends[at];
        end.has_eof |= is_end;
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut end.tls {
            let fed = tls.session.feed_into(data, &mut end.heard).map(|_| ());
            let fed = if is_end { fed.and_then(|()| tls.session.end_of_input()) } else { fed };
            if let Err(error) = fed {
                end.error = Some(ClientError::Tls(error));
            }
            return self.send_records(at);
        }
        end.heard.extend_from_slice(data);
    }

    /// Whether an end of file is the end of what the server has said.
    fn see_end(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.writing > 0 || !end.has_eof || end.has_ended || end.error.is_some() {
            return;
        }
        match end.broken.take() {
            None => end.has_ended = true,
            error => end.error = Some(ClientError::Ended { begun: !end.heard.is_empty(), error }),
        }
    }
}
