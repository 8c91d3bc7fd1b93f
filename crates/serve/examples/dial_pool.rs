//! A client: a pool of connections for each address, with a bounded size.
//!
//! ```text
//! cargo run --release -p windlass-serve --example dial_pool -- \
//!     [--addr IP:PORT] [--size N] [--requests N] [--timeout MILLISECONDS]
//! ```
//!
//! It sends `--requests` lines to an echo server at `--addr`, over at most `--size` connections.
//! Without `--addr` it starts two servers itself. Each of them breaks a connection after 20
//! answers, so that the pool has to replace it.
//!
//! - A request takes a connection that is idle. Otherwise it waits, and requests go in order.
//! - The pool dials while requests wait and it has fewer than `--size` connections.
//! - A dial ends after `--timeout`, and so does a connection that does not answer.
//! - If a connection breaks, its request goes first on the next one. After three tries it has
//!   failed. A try on a connection that has answered before does not count: it broke before the
//!   request reached it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass::driver::Deadline;
use windlass::net::ConnectOptions;
use windlass::{Address, Buf, Completions, Watcher};
use windlass_serve::{
    Action, Config, Conn, Context, Engine, Event, Handler, Id, Phase, Remote, Server,
    report::Report,
};

#[path = "../../../examples/common/options.rs"]
#[allow(dead_code)]
mod options;

/// On how many new connections a request is sent before it has failed.
const TRIES: u32 = 3;

/// How long the example runs at most.
const LONGEST: Duration = Duration::from_secs(50);

/// A request: a line that the server is to send back.
struct Request {
    line: String,
    tries: u32,
}

/// The state of a connection.
#[derive(Default)]
struct Slot {
    /// The number of its address.
    at: usize,
    /// Whether it has answered a request.
    is_used: bool,
    /// What it waits for, and how much of the answer has arrived.
    request: Option<Request>,
    heard: Vec<u8>,
}

/// The connections to one address.
struct Target {
    address: SocketAddr,
    /// Connections without a request. The last one was used last.
    idle: Vec<Id>,
    /// How many dials have not ended.
    dialing: usize,
    /// How many connections there are, with the dials.
    size: usize,
    waiting: VecDeque<Request>,
}

/// A pool of connections.
struct Pool {
    engine: Engine<Slot>,
    targets: Vec<Target>,
    /// The most connections for each address.
    most: usize,
    timeout: Duration,
    answered: usize,
    failed: usize,
    broken: usize,
}

impl Pool {
    fn new(addresses: &[SocketAddr], most: usize, timeout: Duration) -> Pool {
        let target = |address: &SocketAddr| Target {
            address: *address,
            idle: Vec::new(),
            dialing: 0,
            size: 0,
            waiting: VecDeque::new(),
        };
        Pool {
            engine: Engine::new(Config::new()),
            targets: addresses.iter().map(target).collect(),
            most: most.max(1),
            timeout,
            answered: 0,
            failed: 0,
            broken: 0,
        }
    }

    /// Queues a request.
    fn ask(&mut self, at: usize, line: String) {
        self.targets[at].waiting.push_back(Request { line, tries: 0 });
        self.serve(at);
    }

    /// Gives the requests that wait to idle connections, and dials for the others.
    fn serve(&mut self, at: usize) {
        let target = &mut self.targets[at];
        while !target.waiting.is_empty()
            && let Some(id) = target.idle.pop()
        {
            let Some(slot) = self.engine.state_mut(id) else { continue };
            let Some(request) = target.waiting.pop_front() else { break };
            let line = request.line.clone();
            (slot.request, slot.heard) = (Some(request), Vec::new());
            // If it closes just now, its end puts the request back.
            let _ = self.engine.write(id, line);
            self.engine.set_read_deadline(id, Deadline::After(self.timeout));
        }
        while target.dialing < target.waiting.len() && target.size < self.most {
            let options = ConnectOptions::default().timeout(self.timeout);
            let slot = Slot { at, ..Slot::default() };
            if self.engine.connect([target.address], options, slot).is_err() {
                break; // It has 2^24 connections.
            }
            target.dialing += 1;
            target.size += 1;
        }
    }

    /// A connection has no request, and takes the next one.
    fn free(&mut self, id: Id, at: usize) {
        self.engine.set_read_deadline(id, None);
        self.targets[at].idle.push(id);
        self.serve(at);
    }

    fn take(&mut self, event: Event<Slot>) {
        match event {
            Event::Opened { id, .. } => {
                let Some(at) = self.engine.state(id).map(|slot| slot.at) else { return };
                self.targets[at].dialing -= 1;
                self.free(id, at);
            }
            Event::Data { id, data } => self.hear(id, &data),
            Event::Closed { id, phase, state, .. } => self.closed(id, phase, state),
            _ => {}
        }
    }

    fn hear(&mut self, id: Id, data: &[u8]) {
        let Some(slot) = self.engine.state_mut(id) else { return };
        slot.heard.extend_from_slice(data);
        let Some(request) = slot.request.take_if(|request| slot.heard.len() >= request.line.len())
        else {
            return;
        };
        let (is_right, at) = (slot.heard == request.line.as_bytes(), slot.at);
        if is_right {
            slot.is_used = true;
            self.answered += 1;
            self.free(id, at);
        } else {
            // What follows on this connection belongs to no request.
            self.failed += 1;
            self.engine.abort(id);
        }
    }

    fn closed(&mut self, id: Id, phase: Phase, slot: Slot) {
        let target = &mut self.targets[slot.at];
        target.size -= 1;
        target.idle.retain(|idle| *idle != id);
        let is_dial = phase == Phase::Connecting;
        let request = match is_dial {
            // It was for the request that waits for longest.
            true => {
                target.dialing -= 1;
                target.waiting.pop_front()
            }
            false => slot.request,
        };
        self.broken += usize::from(!is_dial);
        if let Some(mut request) = request {
            request.tries += u32::from(!slot.is_used);
            match request.tries < TRIES {
                true => target.waiting.push_front(request),
                false => self.failed += 1,
            }
        }
        self.serve(slot.at);
    }

    /// Runs until all requests have ended.
    fn run(&mut self, watcher: &mut Watcher, requests: usize) -> io::Result<()> {
        let (start, mut done) = (Instant::now(), Completions::new());
        self.engine.flush(watcher);
        while self.answered + self.failed < requests {
            let left = LONGEST.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "requests have not ended"));
            }
            watcher.wait_timeout(&mut done, left)?;
            let mut batch = done.visit();
            while let Some(event) = self.engine.next_event_in(watcher, &mut batch) {
                self.take(event);
            }
            drop(batch);
            self.engine.flush(watcher);
        }
        Ok(())
    }
}

/// A server that breaks each connection after 20 answers.
struct Brittle(mpsc::Sender<(Remote, Vec<Address>)>);

impl Handler for Brittle {
    type State = u32;

    fn serving(&mut self, server: &mut Context<'_, u32>, addresses: &[Address]) -> Action {
        let _ = self.0.send((server.remote().clone(), addresses.to_vec()));
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, u32>, data: Buf) -> Action {
        *c.state() += 1;
        if *c.state() > 20 {
            c.abort();
        } else {
            c.write(data);
        }
        Action::None
    }
}

/// Servers on a thread of their own.
struct Servers {
    remote: Remote,
    thread: JoinHandle<io::Result<Report>>,
}

impl Servers {
    /// Starts them; they come with their addresses.
    fn start() -> io::Result<(Servers, Vec<SocketAddr>)> {
        let (tell, told) = mpsc::channel();
        let server = Server::new(move |_loop| Brittle(tell.clone()));
        let server = server.listen("tcp://127.0.0.1:0")?.listen("tcp://127.0.0.1:0")?;
        let thread = thread::spawn(move || server.run());
        let Ok((remote, addresses)) = told.recv() else {
            return Err(io::Error::other("the servers do not start"));
        };
        let addresses = addresses.iter().filter_map(Address::ip).collect();
        Ok((Servers { remote, thread }, addresses))
    }

    fn end(self) -> io::Result<()> {
        self.remote.shutdown();
        self.thread.join().map_err(|_| io::Error::other("the servers panicked"))??;
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let mut options = options::Options::new(
        "dial_pool [--addr IP:PORT] [--size N] [--requests N] [--timeout MILLISECONDS]",
    );
    let address: Option<SocketAddr> = options.take("--addr");
    let size = options.take("--size").unwrap_or(8);
    let requests: usize = options.take("--requests").unwrap_or(200);
    let timeout = Duration::from_millis(options.take("--timeout").unwrap_or(2000));
    options.end();
    let (servers, addresses) = match address {
        Some(address) => (None, vec![address]),
        None => {
            let (servers, addresses) = Servers::start()?;
            (Some(servers), addresses)
        }
    };
    let mut watcher = Watcher::new()?;
    let mut pool = Pool::new(&addresses, size, timeout);
    for number in 0..requests {
        for at in 0..addresses.len() {
            pool.ask(at, format!("request {number}\n"));
        }
    }
    pool.run(&mut watcher, requests * addresses.len())?;
    let connected = pool.engine.counters().connected;
    let Pool { answered, failed, broken, .. } = pool;
    println!("{answered} answered, {failed} failed; {connected} connections, {broken} broken");
    // The connections close, so that no server waits for their peers.
    drop(watcher);
    if let Some(servers) = servers {
        servers.end()?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::other("requests have failed")),
    }
}
