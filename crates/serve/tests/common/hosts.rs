//! A server on a simulated host of its own, and clients on another host. The server's process can
//! end at any step, and another one starts at the same address. The clients live on.

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, SocketOption};
use windlass::sim::Sim;
use windlass::{Buf, Builder, Completions, Done, ErrorKind, Op, Refusal, Source, Watcher};
use windlass_serve::{Handler, Server, ServerLoop};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENTS: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 7007;

/// The longest virtual time that a run waits for one thing.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a server's process ends without a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its machine crashes: its peers get resets.
    Crash,
    /// It is killed. The system closes its sockets: peers get an end of file behind what the
    /// system had, which can be a part of an answer.
    Kill,
}

/// How a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All that comes.
    Always,
    /// Only when the test asks for it.
    WhenTold,
}

/// A client's end of a connection.
#[derive(Debug)]
pub struct Peer {
    pub source: Source,
    /// Which process of the server it has connected to: the first is 0.
    pub life: usize,
    /// Its address, once it is connected.
    pub address: Option<SocketAddr>,
    pub heard: Vec<u8>,
    /// The bytes that it has submitted.
    pub said: usize,
    /// Whether it has read the end of the server's side.
    pub eof: bool,
    /// How its connect or its read has failed.
    pub error: Option<ErrorKind>,
    /// Whether a write or its half-close has failed. That takes the error of the connection, so
    /// that a read sees an end of file behind it, as on Linux.
    pub is_broken: bool,
    /// Writes and half-closes in flight, which may still tell of such an error.
    writing: usize,
    pub reads: Reads,
    is_reading: bool,
    /// Whether it has ended its side.
    pub has_finished: bool,
    /// Whether it has closed.
    pub is_gone: bool,
}

impl Peer {
    /// Whether it hears nothing more.
    pub fn is_over(&self) -> bool {
        self.eof || self.error.is_some() || self.is_gone
    }

    /// Whether it has seen an end of file that says: this is all.
    pub fn has_clean_end(&self) -> bool {
        self.eof && !self.is_broken && self.writing == 0
    }

    fn can_write(&self) -> bool {
        !self.has_finished && !self.is_gone && !self.is_broken && self.error.is_none()
    }
}

/// A process of a server.
pub struct Process<H: Handler> {
    pub watcher: Watcher,
    pub server: ServerLoop<H>,
}

/// The two hosts.
pub struct Hosts<H: Handler> {
    pub sim: Sim,
    at_server: Sim,
    rng: Rng,
    /// How many processes of the server have begun.
    pub lives: usize,
    /// The one that runs.
    pub process: Option<Process<H>>,
    watcher: Watcher,
    /// All clients so far. Their places are the tokens of what they do.
    pub peers: Vec<Peer>,
}

impl<H: Handler> Hosts<H> {
    /// Two hosts on this network, without a server yet.
    pub fn new(sim: &Sim, rng: Rng) -> Hosts<H> {
        Hosts {
            sim: sim.clone(),
            at_server: sim.at(SERVER),
            rng,
            lives: 0,
            process: None,
            watcher: Watcher::simulated(&sim.at(CLIENTS)),
            peers: Vec::new(),
        }
    }

    /// The addresses of both hosts, for a link between them.
    pub fn addresses() -> ([u8; 4], [u8; 4]) {
        (SERVER, CLIENTS)
    }

    /// Starts a process of the server, with these settings of its watcher.
    pub fn start<F: Fn(usize) -> H>(&mut self, builder: &Builder, server: Server<F>) {
        self.start_with(builder, server, |server| server);
    }

    /// The same, with settings of its listener.
    pub fn start_with<F: Fn(usize) -> H>(
        &mut self,
        builder: &Builder,
        server: Server<F>,
        set: impl FnOnce(Server<F>) -> Server<F>,
    ) {
        assert!(self.process.is_none(), "the last process runs");
        let mut watcher = Watcher::simulated_with(&self.at_server, builder.config());
        let address = format!("tcp://{}:{PORT}", std::net::Ipv4Addr::from(SERVER));
        let server = set(server.listen(&address).expect("an address")).start_on(&mut watcher);
        self.process = Some(Process { watcher, server: server.expect("the server starts") });
        self.lives += 1;
    }

    /// Ends the process of the server, in the middle of its work.
    pub fn end(&mut self, how: Death) {
        let Process { watcher, server } = self.process.take().expect("a process");
        if how == Death::Crash {
            self.at_server.crash();
        }
        // What a program has first is its own choice.
        if self.rng.bool() {
            drop(watcher);
            drop(server);
        } else {
            drop(server);
            drop(watcher);
        }
    }

    /// The server that runs.
    pub fn server(&mut self) -> &mut ServerLoop<H> {
        &mut self.process.as_mut().expect("a process").server
    }

    /// A new client; its place.
    pub fn connect(&mut self, reads: Reads) -> usize {
        let at = self.peers.len();
        let options = ConnectOptions::default().token(at as u64);
        let connect = self.watcher.connect([(SERVER, PORT)], options);
        self.peers.push(Peer {
            source: connect.expect("a source").0,
            life: self.lives - 1,
            address: None,
            heard: Vec::new(),
            said: 0,
            eof: false,
            error: None,
            is_broken: false,
            writing: 0,
            reads,
            is_reading: false,
            has_finished: false,
            is_gone: false,
        });
        at
    }

    /// A client says something; false if it has ended its side, or its connection has failed.
    pub fn say(&mut self, at: usize, what: impl Into<Buf>) -> bool {
        let (peer, what) = (&mut self.peers[at], what.into());
        if !peer.can_write() {
            return false;
        }
        peer.said += what.len();
        let op = Op::write(peer.source, what);
        self.send(at, op);
        true
    }

    /// A client ends its side; false if it cannot any more.
    pub fn finish(&mut self, at: usize) -> bool {
        let peer = &mut self.peers[at];
        let can = peer.can_write();
        if can {
            peer.has_finished = true;
            let op = Op::shutdown(peer.source);
            self.send(at, op);
        }
        can
    }

    /// A client reads what comes next, once.
    pub fn read(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if peer.address.is_some() && !peer.is_reading && !peer.is_over() {
            let op = Op::read(peer.source);
            // A read that is refused, because the connection has failed, is tried again.
            self.peers[at].is_reading = self.submit(at, op);
        }
    }

    /// A client closes at once. If it `resets`, the server gets a reset in any case.
    pub fn leave(&mut self, at: usize, resets: bool) {
        let peer = &mut self.peers[at];
        if !peer.is_gone {
            peer.is_gone = true;
            if resets {
                // Refused if the connection has failed already.
                let linger = SocketOption::Linger(Some(Duration::ZERO));
                let _ = self.watcher.set_option(peer.source, linger);
            }
            self.watcher.abort(peer.source);
        }
    }

    /// Submits a write or a half-close.
    fn send(&mut self, at: usize, op: Op) {
        self.peers[at].writing += 1;
        if !self.submit(at, op) {
            self.peers[at].writing -= 1;
            self.peers[at].is_broken = true;
        }
    }

    fn submit(&mut self, at: usize, op: Op) -> bool {
        if let Err(refused) = self.watcher.submit(op.token(at as u64)) {
            assert!(matches!(refused.reason, Refusal::Os(_) | Refusal::Stale), "{refused}");
            return false;
        }
        true
    }

    /// A turn of the server and one of the clients, in an order that the seed draws. If nothing
    /// happens, up to `span` of virtual time passes.
    pub fn turn(&mut self, span: Duration) {
        let mut count = 0;
        let first = self.rng.bool();
        for is_server in [first, !first] {
            count += if is_server { self.serve() } else { self.hear() };
        }
        if count == 0 {
            let own = self.process.as_mut().and_then(|process| process.watcher.next_timeout());
            let next = [own, self.watcher.next_timeout(), self.sim.next_timeout()];
            let next = next.into_iter().flatten().min();
            self.sim.advance(next.map_or(span, |next| next.min(span)));
        }
    }

    /// A turn of the server; how many completions it had.
    fn serve(&mut self) -> usize {
        let Some(Process { watcher, server }) = &mut self.process else { return 0 };
        let mut done = Completions::new();
        let count = watcher.try_wait(&mut done).expect("a wait");
        for c in done.drain(..) {
            let rest = server.complete(watcher, c);
            assert!(rest.is_none(), "a completion of nobody: {rest:?}");
        }
        server.turn(watcher);
        count
    }

    /// A turn of the clients; how many completions they had.
    fn hear(&mut self) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.try_wait(&mut done).expect("a wait");
        for c in done.drain(..) {
            let at = c.token as usize;
            let peer = &mut self.peers[at];
            if peer.is_gone {
                continue;
            }
            match (c.code(), &c.result) {
                (OpCode::Connect, Ok(_)) => {
                    let address = self.watcher.local_address(peer.source).expect("its address");
                    peer.address = address.ip();
                }
                (OpCode::Read, Ok(Done::Read(data))) => {
                    peer.is_reading = false;
                    peer.heard.extend_from_slice(data);
                    peer.eof |= data.is_eof();
                }
                (OpCode::Connect | OpCode::Read, Err(error)) => {
                    peer.is_reading = false;
                    peer.error = Some(error.kind());
                }
                (OpCode::Write | OpCode::Shutdown, result) => {
                    peer.writing -= 1;
                    peer.is_broken |= result.is_err();
                }
                _ => {}
            }
            if peer.reads == Reads::Always {
                self.read(at);
            }
        }
        count
    }

    /// Runs until `ready`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.sim.now();
        while !ready(self) {
            assert!(self.sim.now() - start < PATIENCE, "still waits until {what}");
            self.turn(PATIENCE);
        }
    }
}
