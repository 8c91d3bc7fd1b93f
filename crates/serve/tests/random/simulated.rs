//! Random programs: an echo server and its clients on a simulated network with faults, and with a
//! server whose process dies. Each seed is another program; two runs of one seed are the same run.
//!
//! Of the promises on the page of the crate: P1, P2, P4 and P10.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::hosts::{Death, Hosts, Peer, Reads};
use crate::common::seeds;
use fastrand::Rng;
use windlass::sim::{Faults, Sim};
use windlass::{Buf, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Server,
};

/// Echoes, pauses and resumes as its seed says, and checks the order of its callbacks.
struct Echo {
    random: Rng,
    open: HashMap<Id, Seen>,
    last: u64,
    ended: Vec<(Cause, usize)>,
    paused: Vec<Id>,
    answers: Answers,
}

/// How many bytes were written to each client whose connection was opened, by its address.
type Answers = Rc<RefCell<HashMap<SocketAddr, usize>>>;

#[derive(Default)]
struct Seen {
    heard: usize,
    written: usize,
    peer: Option<SocketAddr>,
}

impl Echo {
    fn new(random: Rng, answers: Answers) -> Echo {
        let (open, ended, paused) = (HashMap::new(), Vec::new(), Vec::new());
        Echo { random, open, last: 0, ended, paused, answers }
    }
}

impl Handler for Echo {
    type State = usize;

    fn opened(&mut self, c: &mut Conn<'_, usize>, origin: Origin) -> Action {
        assert!(c.id().number() > self.last, "ids increase");
        self.last = c.id().number();
        let peer = origin.peer;
        assert!(self.open.insert(c.id(), Seen { peer, ..Seen::default() }).is_none());
        let other = self.answers.borrow_mut().insert(peer.expect("its address"), 0);
        assert_eq!(other, None, "each client has an address of its own");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        let seen = self.open.get_mut(&c.id()).expect("it is open");
        assert!(!data.is_empty());
        let data_len = data.len();
        seen.heard += data_len;
        *c.state() += data_len;
        assert_eq!(*c.state(), seen.heard);
        // One piece, several pieces, or a copy: the same bytes.
        let is_taken = match self.random.u8(..4) {
            0 => c.write_slice(&data),
            1 => {
                let at = self.random.usize(..=data.len());
                c.write_slice(&data[..at]) && c.write(data.slice(at..))
            }
            2 => {
                let at = self.random.usize(..=data.len());
                let head = data[..at].to_vec();
                c.write(head) && c.write_slice(&data[at..])
            }
            _ => c.write(data),
        };
        assert!(is_taken, "it is far below its cap");
        let mut answers = self.answers.borrow_mut();
        *answers.entry(seen.peer.expect("its address")).or_default() += data_len;
        match self.random.u8(..20) {
            0 => {
                c.pause();
                self.paused.push(c.id());
            }
            1 => {
                for id in self.paused.drain(..) {
                    c.engine().resume(id);
                }
            }
            2 => {
                let id = c.id();
                c.engine().wake(id);
            }
            _ => {}
        }
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, usize>) -> Action {
        assert!(self.open.contains_key(&c.id()), "a wake of a connection that is open");
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, usize>, amount: usize, _: usize) -> Action {
        self.open.get_mut(&c.id()).expect("it is open").written += amount;
        Action::None
    }

    fn tick(&mut self, server: &mut Context<'_, usize>) -> (Option<Duration>, Action) {
        for id in self.paused.drain(..) {
            server.engine().resume(id);
        }
        (Some(Duration::from_millis(50)), Action::None)
    }

    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        let seen = self.open.remove(&closed.id).expect("closed once, and after it was opened");
        assert_eq!(closed.state, seen.heard);
        if matches!(closed.cause, Cause::Eof) && closed.unsent == 0 {
            assert_eq!(seen.written, seen.heard, "all is out before the close");
        }
        self.ended.push((closed.cause, closed.unsent));
        Action::None
    }
}

/// What a client does.
struct Plan {
    /// Its place among the clients.
    at: usize,
    said: Vec<u8>,
    left: usize,
    /// It does not vanish.
    is_polite: bool,
    is_finished: bool,
}

/// What a program meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Delays and torn reads and writes.
    Fair,
    /// Connections break, too, and connects and accepts fail.
    Harsh,
    /// All that, and the process of the server ends at any step, and another one follows.
    Deadly,
}

/// What a program has met.
#[derive(Clone, Debug, Default)]
struct Met {
    /// The run.
    hash: u64,
    /// How often each fault has happened, by name.
    faults: BTreeMap<&'static str, u64>,
    accepted: u64,
    /// Connections that have failed.
    failed: u64,
    crashes: u64,
    kills: u64,
    /// Clients of processes that have died: those that were cut off by a reset, and by an end of
    /// file of a killed process.
    reset: u64,
    cut: u64,
    /// Clients that were turned away without a word.
    turned_away: u64,
}

impl Met {
    fn add(&mut self, other: &Met) {
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        self.accepted += other.accepted;
        self.failed += other.failed;
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.reset += other.reset;
        self.cut += other.cut;
        self.turned_away += other.turned_away;
    }

    /// Few programs meet less.
    fn assert_all(&self, names: &[&str]) {
        println!("{self:?}");
        if meets_all() {
            let never: Vec<_> = names.iter().filter(|name| self.faults[**name] == 0).collect();
            assert!(never.is_empty(), "never happened: {never:?}");
        }
    }
}

/// Whether so many programs run that they meet everything.
fn meets_all() -> bool {
    seeds::setting::<u32>("WINDLASS_PROGRAMS").is_none_or(|programs| programs >= 100)
}

/// The clients of one process of the server.
fn plans(hosts: &mut Hosts<Echo>, random: &mut Rng) -> Vec<Plan> {
    let count = random.usize(1..8);
    let plan = |_| Plan {
        at: hosts.connect(Reads::Always),
        said: Vec::new(),
        left: random.usize(0..200_000),
        is_polite: random.u8(..5) > 0,
        is_finished: false,
    };
    (0..count).map(plan).collect()
}

/// One program.
fn program(seed: u64, weather: Weather) -> Met {
    let mut random = Rng::with_seed(seed);
    let strength = random.f64() * 0.3;
    let breaks = if weather == Weather::Fair { 0.0 } else { random.f64() };
    let faults = Faults {
        reset: breaks * 0.01,
        // At most once for each connection.
        aborted: breaks * 0.05,
        connect_refused: breaks * 0.05,
        emfile: breaks * 0.05,
        ..Faults::transient(strength)
    };
    let sim = Sim::with_faults(seed, faults);
    sim.set_buffer(1 << random.usize(8..17));
    sim.set_completing(random.bool());
    sim.set_patience(Duration::ZERO);
    let high = 1 << random.usize(8..18);
    let limits = Limits::new().marks(high / 4, high).idle(Duration::from_secs(3600));
    let mut hosts = Hosts::new(&sim, random.fork());
    let (mut met, answers) = (Met::default(), Answers::default());
    let deaths = if weather == Weather::Deadly { random.usize(1..4) } else { 0 };
    for life in 0..=deaths {
        let own = Cell::new(Some(Echo::new(random.fork(), Rc::clone(&answers))));
        let server = Server::new(|_| own.take().expect("one loop"));
        hosts.start(&Watcher::builder(), server.config(Config::new().limits(limits)));
        let mut plans = plans(&mut hosts, &mut random);
        if life == deaths {
            while plans.iter().any(|plan| !plan.is_finished) {
                act(&mut hosts, &mut plans, &mut random);
            }
            check_living(&mut hosts, &plans, &answers, weather, &mut met);
            continue;
        }
        for _ in 0..random.usize(..300) {
            act(&mut hosts, &mut plans, &mut random);
        }
        let death = if random.bool() { Death::Crash } else { Death::Kill };
        let report = hosts.server().report();
        assert_eq!(report.panics, 0);
        met.accepted += report.counters.accepted;
        hosts.end(death);
        hosts.until("the clients of a dead server have heard their end", |hosts| {
            hosts.peers.iter().all(Peer::is_over)
        });
        match death {
            Death::Crash => met.crashes += 1,
            Death::Kill => met.kills += 1,
        }
        check_dead(&hosts, &plans, &answers, death, &mut met);
    }
    met.hash = sim.trace_hash();
    met.faults.extend(sim.injected().named());
    met
}

/// What the clients of a process have heard that has died.
fn check_dead(hosts: &Hosts<Echo>, plans: &[Plan], answers: &Answers, death: Death, met: &mut Met) {
    for plan in plans {
        let peer = &hosts.peers[plan.at];
        assert!(plan.said.starts_with(&peer.heard), "what has come is right");
        if !peer.has_clean_end() {
            met.reset += u64::from(!peer.is_gone);
        } else if let Some(answered) = answer(peer, answers) {
            let is_cut = peer.heard.len() < answered;
            assert!(!is_cut || death == Death::Kill, "{} of {answered}", peer.heard.len());
            met.cut += u64::from(is_cut);
        } else {
            assert_eq!(peer.heard.len(), 0);
            met.turned_away += 1;
        }
    }
}

/// How many bytes were written to a client; `None` if its connection was not opened.
fn answer(peer: &Peer, answers: &Answers) -> Option<usize> {
    answers.borrow().get(&peer.address?).copied()
}

/// A process lives until all its clients have what they want.
fn check_living(
    hosts: &mut Hosts<Echo>,
    plans: &[Plan],
    answers: &Answers,
    weather: Weather,
    met: &mut Met,
) {
    hosts.until("all clients have heard their end", |hosts| hosts.peers.iter().all(Peer::is_over));
    hosts.until("the server has seen every end", |hosts| hosts.server().engine().is_empty());
    let mut polite = 0;
    for plan in plans.iter().filter(|plan| plan.is_polite) {
        let peer = &hosts.peers[plan.at];
        if weather != Weather::Fair && !peer.has_clean_end() {
            assert!(plan.said.starts_with(&peer.heard), "what has come is right");
            continue;
        }
        if weather != Weather::Fair && answer(peer, answers).is_none() {
            assert_eq!(peer.heard.len(), 0);
            met.turned_away += 1;
            continue;
        }
        assert!(peer.has_clean_end(), "{:?}", peer.error);
        assert!(peer.heard == plan.said, "{} of {} bytes", peer.heard.len(), plan.said.len());
        polite += 1;
    }
    let server = hosts.server();
    assert_eq!(server.engine().budget().used(), 0, "nothing stays charged");
    let ends = server.handler().ended.clone();
    assert!(server.handler().open.is_empty(), "each connection has ended");
    let eofs = ends.iter().filter(|end| **end == (Cause::Eof, 0)).count();
    assert!(eofs >= polite, "{ends:?}");
    let report = server.report();
    assert_eq!(report.counters.accepted as usize, ends.len());
    assert_eq!(report.panics, 0);
    met.accepted += report.counters.accepted;
    met.failed += report.counters.ends.failed;
}

/// A client speaks, ends its side, or vanishes. Then time passes.
fn act(hosts: &mut Hosts<Echo>, plans: &mut [Plan], random: &mut Rng) {
    let at = random.usize(..plans.len());
    let plan = &mut plans[at];
    if plan.is_finished {
        // It waits for its answer.
    } else if plan.left > 0 && (plan.is_polite || random.u8(..10) > 0) {
        let bytes = random.usize(1..=plan.left.min(30_000));
        plan.left -= bytes;
        let from = plan.said.len();
        plan.said.extend((from..from + bytes).map(|i| (i ^ i >> 8) as u8));
        hosts.say(plan.at, plan.said[from..].to_vec());
    } else {
        plan.is_finished = true;
        if plan.is_polite {
            hosts.finish(plan.at);
        } else {
            hosts.leave(plan.at, random.bool());
        }
    }
    hosts.turn(Duration::from_micros(random.u64(0..3000)));
}

/// What delays and tears, and ends nothing.
const TRANSIENT: [&str; 7] = [
    "partial_read",
    "partial_write",
    "eagain",
    "eintr",
    "spurious_readiness",
    "delayed_readiness",
    "enobufs",
];

/// What ends connections.
const BREAKING: [&str; 4] = ["reset", "aborted", "connect_refused", "emfile"];

/// Runs the programs of a suite.
fn explore(suite: &str, weather: Weather) -> Met {
    let mut met = Met::default();
    seeds::each(suite, 50, 200, |seed| met.add(&program(seed, weather)));
    met
}

#[test]
fn random_programs_keep_the_guarantees() {
    let met = explore("echo", Weather::Fair);
    met.assert_all(&TRANSIENT);
    assert!(met.accepted > 0);
}

#[test]
fn random_programs_outlive_broken_connections() {
    let met = explore("broken", Weather::Harsh);
    met.assert_all(&[&TRANSIENT[..], &BREAKING].concat());
    assert!(met.failed > 0 || met.faults["reset"] == 0, "{met:?}");
}

/// The process of the server ends at any step. Its clients hear what it has said, and no clean end
/// behind a part of that, unless the system has closed the sockets for it. The next process serves.
#[test]
fn random_programs_outlive_the_process_of_the_server() {
    let met = explore("crashes", Weather::Deadly);
    met.assert_all(&[&TRANSIENT[..], &BREAKING].concat());
    if meets_all() {
        for (what, count) in [
            ("clients that were turned away", met.turned_away),
            ("crashes", met.crashes),
            ("kills", met.kills),
            ("resets of clients", met.reset),
            ("ends in the middle of an answer", met.cut),
        ] {
            assert!(count > 0, "no {what}: {met:?}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let (first, second) = (program(seed, Weather::Deadly), program(seed, Weather::Deadly));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert!(first.faults.values().sum::<u64>() > 0);
    }
}
