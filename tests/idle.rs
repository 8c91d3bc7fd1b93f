//! C4: idle timeouts against an exact model, in virtual time.
//!
//! Each program has a few sources with idle timeouts. Reads are submitted and cancelled in a rhythm
//! of their own on each: some stand, some run in phase with the steps in which the driver looks at
//! its sources, and some are cancelled just before each time at which the driver would wake up.
//! Bytes move in both directions, and reads wait for leases. The model adds up the time in which a
//! read was in flight since the last byte moved. No read ends before this time is the timeout, and
//! none is in flight when it is longer than the timeout and the lateness that C4 allows.

#![allow(missing_docs)] // a test binary has no users

#[path = "common/seeds.rs"]
mod seeds;

use std::time::{Duration, Instant};

use windlass::sim::Sim;
use windlass::{Completion, Completions, Done, ErrorKind, Op, Source, Ticket, Watcher};

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
/// A turn of these programs takes a nanosecond, and a step of the model a few turns.
const TURNS: Duration = Duration::from_micros(10);
/// Sources of a program, at most.
const ENDS: u64 = 4;
/// How many times the programs of one run must have met each rhythm's idle timeout.
const LEAST_FIRED: u64 = 50;

/// When a source has a read in flight.
#[derive(Clone, Copy, Debug)]
enum Rhythm {
    /// Always.
    Steady,
    /// For the first span, then not for the second one, and so on.
    Beat(Duration, Duration),
    /// For spans of any length up to this one.
    Random(Duration),
    /// Never at the time at which the driver wakes up, but for this long.
    Dodge(Duration),
}

impl Rhythm {
    const KINDS: usize = 4;

    fn kind(self) -> usize {
        match self {
            Rhythm::Steady => 0,
            Rhythm::Beat(..) => 1,
            Rhythm::Random(_) => 2,
            Rhythm::Dodge(_) => 3,
        }
    }
}

/// The sources that something may have happened to.
#[derive(Clone, Copy, PartialEq)]
enum Acted {
    None,
    On(usize),
    OnAll,
}

/// One source with a timeout.
struct End {
    source: Source,
    peer: Source,
    timeout: Duration,
    rhythm: Rhythm,
    next: Instant,
    read: Option<Ticket>,
    /// The read takes its memory from the pool.
    leases: bool,
    /// The read's own deadline.
    due: Option<Instant>,
    /// Bytes that the peer has written and no read has delivered.
    unread: usize,
    /// The time in which a read was in flight since the last byte moved: at least, at most.
    least: Duration,
    most: Duration,
    /// The longest time of it in which the program did not wait.
    gap: Duration,
    /// What `most` was when the last byte moved, if a kernel that completes has the read: it may
    /// have been told to end before.
    before: Duration,
}

impl End {
    fn allowed(&self) -> Duration {
        (self.timeout / 16).max(100 * MS)
    }

    /// Time has passed.
    fn count(&mut self, span: Duration, acted: bool, exhausted: bool) {
        let short = exhausted && self.leases;
        let (sure, perhaps) = match self.read {
            None => (false, false),
            // Bytes are there, but no lease.
            Some(_) if short && self.unread > 0 => (false, false),
            // An attempt may have found no lease, or there was no attempt.
            Some(_) if short => (false, true),
            Some(_) => (true, true),
        };
        self.least += if sure && !acted { span } else { Duration::ZERO };
        self.most += if perhaps || acted { span } else { Duration::ZERO };
    }

    /// The count has begun anew in a step of this length.
    fn begin(&mut self, step: Duration, completes: bool) {
        self.before = if completes { self.most } else { Duration::ZERO };
        (self.least, self.most, self.gap) = (Duration::ZERO, step, Duration::ZERO);
    }
}

struct Program {
    sim: Sim,
    /// The kernel completes reads.
    completes: bool,
    watcher: Watcher,
    ends: Vec<End>,
    done: Completions,
    /// A connection whose bytes take every lease, if the program has one.
    hog: Option<(Source, Source)>,
    held: Vec<Completion>,
    taker: Option<Ticket>,
    exhausted: bool,
    /// How many timeouts were met, by rhythm.
    fired: [u64; Rhythm::KINDS],
    /// How many the driver has counted, and how many of them have not ended a read yet.
    seen: u64,
    told: u64,
}

impl Program {
    fn new(seed: u64) -> Program {
        let sim = Sim::new(seed);
        sim.set_patience(Duration::ZERO);
        sim.set_turn(NS);
        let completes = sim.random_below(2) == 0;
        sim.set_completing(completes);
        let builder = Watcher::builder().buffer_size(4096).swap_limit(16 << 10);
        let mut watcher = Watcher::simulated_with(&sim, builder.config());
        let mut pair = || <[_; 2]>::from(sim.pair()).map(|end| watcher.attach(end).unwrap());
        let hog = (sim.random_below(3) == 0).then(|| pair().into());
        let mut ends = Vec::new();
        for _ in 0..1 + sim.random_below(ENDS) {
            let timeouts = [1, 20, 100, 150, 400, 1600, 3000, 60_000];
            let timeout = timeouts[sim.random_below(timeouts.len() as u64) as usize] * MS;
            let [source, peer] = pair();
            ends.push(End {
                source,
                peer,
                timeout,
                rhythm: rhythm(&sim, timeout),
                next: sim.now(),
                read: None,
                leases: false,
                due: None,
                unread: 0,
                least: Duration::ZERO,
                most: Duration::ZERO,
                gap: Duration::ZERO,
                before: Duration::ZERO,
            });
        }
        for end in &ends {
            watcher.set_idle_timeout(end.source, Some(end.timeout)).unwrap();
        }
        Program {
            sim,
            completes,
            watcher,
            ends,
            done: Completions::new(),
            hog,
            held: Vec::new(),
            taker: None,
            exhausted: false,
            fired: [0; Rhythm::KINDS],
            seen: 0,
            told: 0,
        }
    }

    fn chance(&self, one_in: u64) -> bool {
        self.sim.random_below(one_in) == 0
    }

    /// Waits once, at most for `span`, and accounts for the time since `from`.
    fn wait(&mut self, from: Instant, span: Duration, acted: Acted) {
        self.watcher.wait_timeout(&mut self.done, span).expect("a wait");
        let now = self.watcher.update_now();
        let step = now - from;
        for (i, end) in self.ends.iter_mut().enumerate() {
            end.count(step, acted == Acted::On(i) || acted == Acted::OnAll, self.exhausted);
        }
        let fired = self.watcher.counters().idle_timeouts;
        let told = fired - std::mem::replace(&mut self.seen, fired);
        // A kernel that has the read may answer later, and then with bytes.
        self.told = told + if self.completes { self.told } else { 0 };
        for c in std::mem::take(&mut self.done) {
            let Some(end) = self.ends.iter_mut().find(|end| end.source == c.source) else {
                let is_taken = Some(c.ticket()) == self.taker;
                if is_taken {
                    self.taker = None;
                }
                if is_taken && c.result.is_ok() {
                    self.held.push(c);
                }
                continue;
            };
            if Some(c.ticket()) == end.read && !c.has_more() {
                end.read = None;
            }
            match &c.result {
                Ok(Done::Read(data)) => {
                    end.unread -= data.len();
                    end.begin(step, self.completes);
                }
                Ok(Done::Written { .. }) => end.begin(step, self.completes),
                Ok(other) => panic!("{other:?}"),
                Err(error) if error.kind() == ErrorKind::Cancelled => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Deadline);
                    let most = end.most.max(end.before);
                    if end.due.is_some_and(|due| due <= now) && self.told == 0 {
                        continue;
                    }
                    assert!(self.told > 0, "ended, but not for its idle timeout");
                    self.told -= 1;
                    let early = end.timeout.saturating_sub(most);
                    assert!(early.is_zero(), "{:?}: early by {early:?}", end.rhythm);
                    self.fired[end.rhythm.kind()] += 1;
                    end.expect_in_time();
                    end.begin(Duration::ZERO, false);
                }
            }
        }
        for end in self.ends.iter().filter(|end| end.read.is_some()) {
            end.expect_in_time();
        }
    }

    /// Lets time pass until then. Sometimes the program does not wait for a while.
    fn pass_until(&mut self, then: Instant) {
        loop {
            let now = self.watcher.update_now();
            if now >= then {
                return;
            }
            let left = then - now;
            if self.chance(60) {
                let gap = NS + Duration::from_nanos(self.sim.random_below(left.as_nanos() as u64));
                self.sim.advance(gap);
                for end in &mut self.ends {
                    end.gap = end.gap.max(gap);
                }
                self.wait(now, Duration::ZERO, Acted::None);
            } else {
                self.wait(now, left, Acted::None);
            }
        }
    }

    /// Lets the driver see what has just happened.
    fn settle(&mut self, turns: u32, acted: Acted) {
        for _ in 0..turns {
            let now = self.watcher.update_now();
            self.wait(now, Duration::ZERO, acted);
        }
    }

    fn beat(&mut self, i: usize) {
        let random = |most: u64| self.sim.random_below(most);
        let (what, kind, own) = (random(40), random(3), random(6));
        let end = &mut self.ends[i];
        match (what, end.read) {
            (0, _) if end.unread < 2000 => {
                let bytes = vec![b'x'; 1 + random(90) as usize];
                end.unread += bytes.len();
                self.watcher.submit(Op::write(end.peer, bytes)).unwrap();
            }
            (1, _) => drop(self.watcher.submit(Op::write(end.source, "y")).unwrap()),
            (_, Some(read)) => _ = self.watcher.cancel(read),
            (_, None) => {
                let mut op = match kind {
                    0 => Op::read(end.source),
                    1 => Op::read(end.source).multishot(),
                    _ => Op::read_into(end.source, Vec::with_capacity(100)),
                };
                (end.leases, end.due) = (kind < 2, None);
                if own == 0 && !self.completes {
                    let span = end.timeout / 3;
                    op = op.timeout(span);
                    end.due = Some(self.sim.now() + span);
                }
                end.read = Some(self.watcher.submit(op).unwrap());
            }
        }
        self.settle(3, Acted::On(i));
        self.ends[i].next = self.next_beat(i);
    }

    fn next_beat(&mut self, i: usize) -> Instant {
        let now = self.watcher.update_now();
        let end = &self.ends[i];
        now + match (end.rhythm, end.read) {
            (Rhythm::Steady, None) => NS,
            (Rhythm::Steady, Some(_)) => end.timeout.max(100 * MS) / 2,
            (Rhythm::Beat(on, _), Some(_)) => on,
            (Rhythm::Beat(_, off), None) | (Rhythm::Dodge(off), None) => off,
            (Rhythm::Random(most), _) => {
                NS + Duration::from_nanos(self.sim.random_below(most.as_nanos() as u64))
            }
            (Rhythm::Dodge(_), Some(_)) => {
                let next = self.watcher.next_timeout().unwrap_or(end.timeout);
                next.saturating_sub(100 * NS).max(100 * NS)
            }
        }
    }

    /// Takes every lease, or gives all back.
    fn turn_hog(&mut self) {
        let Some((hog, feeder)) = self.hog else { return };
        if self.exhausted {
            self.exhausted = false;
            self.held.clear();
            if let Some(taker) = self.taker {
                self.watcher.cancel(taker);
            }
            return self.settle(12, Acted::OnAll);
        }
        self.watcher.submit(Op::write(feeder, vec![b'h'; 20 << 10])).unwrap();
        let mut tries = 0;
        while tries < 4 {
            if self.taker.is_none() {
                self.taker = Some(self.watcher.submit(Op::read(hog)).unwrap());
                tries = 0;
            }
            self.settle(1, Acted::OnAll);
            tries += 1;
        }
        self.exhausted = true;
        self.settle(2, Acted::OnAll);
    }

    fn run(&mut self, beats: u32) {
        for _ in 0..beats {
            if self.chance(30) {
                self.turn_hog();
            }
            for i in 0..self.ends.len() {
                // What others do moves the next look.
                if matches!(self.ends[i].rhythm, Rhythm::Dodge(_)) && self.ends[i].read.is_some() {
                    self.ends[i].next = self.next_beat(i);
                }
            }
            let all = 0..self.ends.len();
            let i = all.min_by_key(|&i| self.ends[i].next).expect("there is one");
            self.pass_until(self.ends[i].next);
            self.beat(i);
        }
    }
}

impl End {
    #[track_caller]
    fn expect_in_time(&self) {
        // The driver looks when the program waits.
        let most = self.timeout + self.allowed() + 2 * self.gap + TURNS;
        let late = self.least.saturating_sub(most);
        assert!(late.is_zero(), "{:?} of {:?}: late by {late:?}", self.rhythm, self.timeout);
    }
}

/// A rhythm with which this timeout is met soon.
fn rhythm(sim: &Sim, timeout: Duration) -> Rhythm {
    let step = (timeout / 32).max(50 * MS);
    let part = |of: Duration, parts: u64| of / (1 + sim.random_below(parts) as u32);
    match sim.random_below(5) {
        0 => Rhythm::Steady,
        // In phase with the steps, or nearly so.
        1 => {
            let whole = part(step, 4) + part(step, 20) / 10;
            let off = part(whole, 9);
            Rhythm::Beat((whole - off).max(NS), off)
        }
        2 => Rhythm::Beat(part(timeout, 40), part(timeout, 40)),
        3 => Rhythm::Random(part(timeout, 20).max(2 * NS)),
        _ => Rhythm::Dodge([200 * NS, MS, step][sim.random_below(3) as usize]),
    }
}

/// A look at the sources found a read only by luck, so a rhythm could have its reads in flight for
/// ever.
#[test]
fn idle_timeouts_are_met_in_any_rhythm() {
    let mut fired = [0; Rhythm::KINDS];
    let programs = seeds::each("idle", 1000, 50, |seed| {
        let mut program = Program::new(seed);
        program.run(200);
        for (sum, count) in fired.iter_mut().zip(program.fired) {
            *sum += count;
        }
    });
    println!("timeouts met, by rhythm: {fired:?}");
    if programs >= 1000 {
        assert!(fired.iter().all(|&count| count >= LEAST_FIRED), "{fired:?}");
    }
}
