//! A server and its test: the same code runs on a simulated network with faults, and for real.
//!
//! ```text
//! cargo run --example sim_test -- [--seeds N] [--seed FIRST] [--history STEPS]
//! ```
//!
//! The server and its client take a `&mut Watcher`. Their sockets, time, jobs and look-ups come
//! from it. So the test can put them on two hosts, with a slow link that it cuts again and again.
//! Time is virtual: minutes of silence take no real time. A test that fails prints its seed.
//! `--seed` runs it again with the same faults, and `--history` shows its last steps.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Link, Sim};
use windlass::{Completion, Completions, Done, Op, Refusal, Source, Watcher};

mod common;

/// The bytes of a question, and of an answer.
const SIZE: usize = 8;
/// How long the client waits for a connection, or for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The work of the server. It runs as a job on a worker thread, because it may take long.
fn work(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// The server: reads numbers, answers with work on them, and hangs up on an idle client.
struct Server {
    listener: Source,
    idle: Duration,
    /// The connection of each job, by the job's token.
    jobs: HashMap<u64, Source>,
    last_job: u64,
}

impl Server {
    fn new(watcher: &mut Watcher, at: SocketAddr, idle: Duration) -> io::Result<Server> {
        let listener = watcher.listen(at)?;
        watcher.submit(Op::accept(listener).multishot())?;
        Ok(Server { listener, idle, jobs: HashMap::new(), last_job: 0 })
    }

    fn handle(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<()> {
        let question = |source| Op::read_exact(source, Vec::with_capacity(SIZE), SIZE);
        let next = match c.result {
            Ok(Done::Accepted(socket)) => {
                let source = watcher.attach(socket)?;
                watcher.set_idle_timeout(source, Some(self.idle))?;
                question(source)
            }
            Ok(Done::Read(data)) => {
                let bytes: [u8; SIZE] = data[..].try_into().expect("the exact number of bytes");
                let number = u64::from_be_bytes(bytes);
                self.last_job += 1;
                self.jobs.insert(self.last_job, c.source);
                Op::run(move || work(number)).token(self.last_job)
            }
            Ok(Done::Returned(answer)) => {
                let source = self.jobs.remove(&c.token).expect("a job has a client");
                let answer: u64 = answer.downcast().expect("what the job returns");
                Op::write(source, answer.to_be_bytes().to_vec())
            }
            Ok(Done::Written { .. }) => question(c.source),
            Err(_) if c.source == self.listener => Op::accept(self.listener).multishot(),
            _ => {
                watcher.abort(c.source); // the peer closed, an error, or the idle timeout
                return Ok(());
            }
        };
        match watcher.submit(next) {
            // Stale: the client has gone meanwhile.
            Err(refused) if refused.reason != Refusal::Stale => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

/// The client: sends one number after the other. When an operation fails or takes too long, it
/// looks the server up again, connects again, and sends the number again.
struct Client {
    host: &'static str,
    port: u16,
    numbers: Vec<u64>,
    answered: usize,
    connects: u64,
    /// The connection; `Source::NONE` during the look-up of the server.
    source: Source,
}

impl Client {
    fn new(
        watcher: &mut Watcher,
        host: &'static str,
        port: u16,
        numbers: Vec<u64>,
    ) -> io::Result<Client> {
        watcher.submit(Op::lookup_host(host, port))?;
        Ok(Client { host, port, numbers, answered: 0, connects: 0, source: Source::NONE })
    }

    /// Handles a completion. Returns the number of connects once it has all answers.
    fn handle(&mut self, watcher: &mut Watcher, c: Completion) -> io::Result<Option<u64>> {
        if c.source != self.source {
            return Ok(None); // from a connection that the client has aborted
        }
        match c.result {
            Ok(Done::Addresses(found)) => {
                let options = ConnectOptions::default().timeout(PATIENCE);
                (self.source, _) = watcher.connect(found, options)?;
                self.connects += 1;
                self.ask(watcher)?;
            }
            Ok(Done::Read(data)) => {
                if data[..] != work(self.numbers[self.answered]).to_be_bytes() {
                    return Err(io::Error::other("a wrong answer"));
                }
                self.answered += 1;
                if self.answered == self.numbers.len() {
                    return Ok(Some(self.connects));
                }
                self.ask(watcher)?;
            }
            Ok(_) => {} // connected, or written
            Err(_) => {
                watcher.abort(self.source);
                self.source = Source::NONE;
                watcher.submit(Op::lookup_host(self.host, self.port))?;
            }
        }
        Ok(None)
    }

    fn ask(&mut self, watcher: &mut Watcher) -> io::Result<()> {
        let number = self.numbers[self.answered].to_be_bytes().to_vec();
        let answer = Op::read_exact(self.source, Vec::with_capacity(SIZE), SIZE);
        for op in [Op::write(self.source, number), answer.timeout(PATIENCE)] {
            match watcher.submit(op) {
                // The connect has failed already: its completion follows.
                Err(refused) if !matches!(refused.reason, Refusal::Os(_)) => {
                    return Err(refused.into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The counts of a simulated test.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    faults: u64,
    stalled: u64,
    connects: u64,
    hash: u64,
}

/// The test in a simulation: a server and a client on two hosts, and a third watcher that cuts the
/// link between them and heals it.
fn simulate(seed: u64, history: usize) -> io::Result<Seen> {
    let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let sim = Sim::with_faults(seed, Faults { lookup_failed: 0.1, ..Faults::transient(0.1) });
    sim.set_faults_at((here, 7007), Faults { reset: 0.002, ..Faults::transient(0.2) });
    let far = Link::default().latency(Duration::from_millis(20)).bandwidth(10_000);
    sim.set_link(here, there, far.jitter(Duration::from_millis(30)));
    sim.host("server.example", [here]);
    sim.set_time_limit(Duration::from_secs(3600));
    sim.set_patience(Duration::ZERO); // there are no other threads
    sim.set_history(history);

    let mut hosts = (Watcher::simulated(&sim.at(here)), Watcher::simulated(&sim.at(there)));
    let mut chaos = Watcher::simulated(&sim);
    let idle = Duration::from_secs(30);
    let mut server = Server::new(&mut hosts.0, ([0, 0, 0, 0], 7007).into(), idle)?;
    let numbers = (0..20).map(|_| sim.random()).collect();
    let mut client = Client::new(&mut hosts.1, "server.example", 7007, numbers)?;
    let mut is_cut = false;
    chaos.submit(Op::timer(Duration::from_millis(200)))?;

    let all = &mut [&mut hosts.0, &mut hosts.1, &mut chaos];
    let connects = sim.run(all, |index, watcher, c| match index {
        0 => server.handle(watcher, c).map(|()| None),
        1 => client.handle(watcher, c),
        _ => {
            is_cut = !is_cut;
            if is_cut {
                sim.cut(here, there)
            } else {
                sim.heal(here, there)
            }
            watcher.submit(Op::timer(Duration::from_millis(1 + sim.random_below(3000))))?;
            Ok(None)
        }
    });
    let connects = connects.map_err(|error| {
        let mut text = format!("seed {seed}: {error}\n");
        if error.kind() == io::ErrorKind::Other {
            text += &sim.history(); // the errors of `Sim::run` itself contain it already
        }
        io::Error::other(text)
    })?;
    sim.note(connects.to_string());
    let (faults, stalled) = (sim.injected().total(), sim.traffic().stalled);
    Ok(Seen { faults, stalled, connects, hash: sim.trace_hash() })
}

/// The same server and the same client on this machine, each in a thread.
fn for_real() -> io::Result<u64> {
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> io::Result<()> {
        let mut watcher = Watcher::new()?;
        let at = ([127, 0, 0, 1], 0).into();
        let mut server = Server::new(&mut watcher, at, Duration::from_secs(30))?;
        let address = watcher.local_address(server.listener)?;
        say.send(address.ip()).map_err(io::Error::other)?;
        let mut done = Completions::new();
        loop {
            watcher.wait(&mut done)?;
            for c in done.drain(..) {
                server.handle(&mut watcher, c)?;
            }
        }
    });
    let address = hear.recv().map_err(io::Error::other)?.expect("an address with a port");
    let mut watcher = Watcher::new()?;
    let numbers = (0..20).collect();
    let mut client = Client::new(&mut watcher, "127.0.0.1", address.port(), numbers)?;
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            if let Some(connects) = client.handle(&mut watcher, c)? {
                return Ok(connects);
            }
        }
    }
}

fn main() -> io::Result<()> {
    let usage = "sim_test [--seeds N] [--seed FIRST] [--history STEPS]";
    let mut options = common::Options::new(usage);
    let first: u64 = options.take("--seed").unwrap_or(0);
    let seeds: u64 = options.take("--seeds").unwrap_or(50);
    let history: usize = options.take("--history").unwrap_or(0);
    options.end();

    let mut sum = Seen::default();
    for seed in first..first + seeds {
        let seen = simulate(seed, history)?;
        assert_eq!(simulate(seed, history)?, seen, "the same seed is the same run");
        sum.faults += seen.faults;
        sum.stalled += seen.stalled;
        sum.connects += seen.connects;
    }
    assert!(sum.faults > 0 && sum.stalled > 0, "a test without faults proves little");
    let Seen { faults, stalled, connects, .. } = sum;
    println!("simulated: {seeds} seeds, {faults} faults, {stalled} stalls, {connects} connects");
    println!("for real: {} connect", for_real()?);
    Ok(())
}
