//! Random programs: an echo server and its clients on a simulated network with faults. Each seed is
//! another program; two runs of one seed are the same run.
#![allow(missing_docs)] // a test binary has no users

mod common;
#[path = "../../../tests/common/seeds.rs"]
mod seeds;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::{Bench, Client, Clients};
use fastrand::Rng;
use windlass::driver::Driver;
use windlass::sim::{Faults, Injected, Sim};
use windlass::{Buf, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Report, Server,
};

/// Echoes, pauses and resumes as its seed says, and checks the order of its callbacks.
struct Echo {
    random: Rng,
    open: HashMap<Id, Seen>,
    last: u64,
    ended: Vec<(Cause, usize)>,
    paused: Vec<Id>,
}

#[derive(Default)]
struct Seen {
    heard: usize,
    written: usize,
}

impl Handler for Echo {
    type State = usize;

    fn opened(&mut self, c: &mut Conn<'_, usize>, _: Origin) -> Action {
        assert!(c.id().number() > self.last, "ids increase");
        self.last = c.id().number();
        assert!(self.open.insert(c.id(), Seen::default()).is_none());
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        let seen = self.open.get_mut(&c.id()).expect("it is open");
        assert!(!data.is_empty());
        seen.heard += data.len();
        *c.state() += data.len();
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

/// The bytes that a client has sent so far.
struct Plan {
    source: Source,
    said: Vec<u8>,
    left: usize,
    /// It does not vanish.
    is_polite: bool,
    is_finished: bool,
}

/// One program. If it is harsh, connections also break, and connects and accepts fail.
fn program(seed: u64, harsh: bool) -> (u64, Injected, Report) {
    let mut random = Rng::with_seed(seed);
    let strength = random.f64() * 0.3;
    let breaks = if harsh { random.f64() } else { 0.0 };
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
    sim.set_patience(Duration::ZERO);
    let mut watcher = Watcher::simulated(&sim);
    let echo = Echo {
        random: random.fork(),
        open: HashMap::new(),
        last: 0,
        ended: Vec::new(),
        paused: Vec::new(),
    };
    let echo = std::cell::RefCell::new(Some(echo));
    let high = 1 << random.usize(8..18);
    let limits = Limits::new().marks(high / 4, high).idle(Duration::from_secs(3600));
    let server = Server::new(|_| echo.borrow_mut().take().expect("one loop"));
    let server = server.config(Config::new().limits(limits));
    let mut running =
        server.listen("tcp://127.0.0.1:7007").unwrap().start_on(&mut watcher).unwrap();
    let address = watcher.local_address(running.engine().listeners()[0]).unwrap();
    let clients = Clients::default();
    let mut bench = Bench { watcher, running, clients, addresses: vec![address] };

    let mut plans: Vec<Plan> = (0..random.usize(1..8))
        .map(|_| Plan {
            source: bench.connect(),
            said: Vec::new(),
            left: random.usize(0..200_000),
            is_polite: random.u8(..5) > 0,
            is_finished: false,
        })
        .collect();
    let polite = plans.iter().filter(|plan| plan.is_polite).count();
    while plans.iter().any(|plan| !plan.is_finished) {
        let at = random.usize(..plans.len());
        let plan = &mut plans[at];
        if !plan.is_finished {
            act(&mut bench, plan, &mut random);
        }
        bench.turn(Duration::from_micros(random.u64(0..3000)));
    }
    bench.until("all polite clients have heard their end", |bench| {
        plans.iter().all(|plan| {
            let client = bench.client(plan.source);
            !plan.is_polite || client.eof || harsh && client.error.is_some()
        })
    });
    for plan in plans.iter().filter(|plan| plan.is_polite) {
        let heard = &bench.client(plan.source).heard;
        let client = bench.client(plan.source);
        if harsh && (client.error.is_some() || client.is_broken) {
            assert!(plan.said.starts_with(heard), "what has come is right");
            continue;
        }
        assert!(*heard == plan.said, "{} bytes of {}", heard.len(), plan.said.len());
    }
    bench.until("the server has seen every end", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.engine().budget().used(), 0, "nothing stays charged");
    let ends = bench.running.handler().ended.clone();
    assert!(bench.running.handler().open.is_empty());
    let eofs = ends.iter().filter(|end| **end == (Cause::Eof, 0)).count();
    assert!(harsh || eofs >= polite, "{ends:?}");
    let report = bench.running.report();
    assert_eq!(report.counts.accepted as usize, ends.len());
    assert_eq!(report.panics, 0);
    (sim.trace_hash(), sim.injected(), report)
}

/// A client speaks, ends its side, or vanishes.
fn act<D: Driver, H: Handler>(bench: &mut Bench<D, H>, plan: &mut Plan, random: &mut Rng) {
    if plan.left > 0 && (plan.is_polite || random.u8(..10) > 0) {
        let bytes = random.usize(1..=plan.left.min(30_000));
        plan.left -= bytes;
        let from = plan.said.len();
        plan.said.extend((from..from + bytes).map(|i| (i ^ i >> 8) as u8));
        bench.say(plan.source, plan.said[from..].to_vec());
        return;
    }
    plan.is_finished = true;
    if plan.is_polite {
        bench.finish(plan.source);
    } else {
        bench.watcher.abort(plan.source);
        bench.clients.all.insert(plan.source, Client::default());
    }
}

/// How often each fault has happened in all programs, by name.
#[derive(Debug, Default)]
struct Met(BTreeMap<&'static str, u64>);

impl Met {
    fn add(&mut self, injected: &Injected) {
        for (name, count) in injected.named() {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// Few programs meet less.
    fn assert_all(&self, names: &[&str]) {
        println!("{:?}", self.0);
        if seeds::setting::<u32>("WINDLASS_PROGRAMS").is_none_or(|programs| programs >= 100) {
            let never: Vec<_> = names.iter().filter(|name| self.0[**name] == 0).collect();
            assert!(never.is_empty(), "never happened: {never:?}");
        }
    }
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

#[test]
fn random_programs_keep_the_guarantees() {
    let (mut met, mut accepted) = (Met::default(), 0);
    seeds::each("echo", 50, 200, |seed| {
        let (_, injected, report) = program(seed, false);
        met.add(&injected);
        accepted += report.counts.accepted;
    });
    met.assert_all(&TRANSIENT);
    assert!(accepted > 0);
}

#[test]
fn random_programs_outlive_broken_connections() {
    let (mut met, mut failed) = (Met::default(), 0);
    seeds::each("broken", 50, 200, |seed| {
        let (_, injected, report) = program(seed, true);
        met.add(&injected);
        failed += report.counts.ends.failed;
    });
    met.assert_all(&[&TRANSIENT[..], &["reset", "aborted", "connect_refused", "emfile"]].concat());
    assert!(failed > 0 || met.0["reset"] == 0, "{failed} ends");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let ((first, faults, _), (second, ..)) = (program(seed, true), program(seed, true));
        assert_eq!(first, second, "seed {seed}");
        assert!(faults.total() > 0);
    }
}
