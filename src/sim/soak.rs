//! Random programs on a random network, checked against the contract of [`driver`](crate::driver).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::rng::Rng;
use super::{Faults, Link, Sim};
use crate::completion::{Completion, Completions, Done};
use crate::driver::config::Config;
use crate::driver::endpoint::ConnectOptions;
use crate::memory::buf::Buf;
use crate::op::Op;
use crate::seeds::each;
use crate::watcher::Watcher;
use crate::words::error::ErrorKind;
use crate::words::source::{Source, Ticket};

/// The host of the connections over a link.
const HOST: [u8; 4] = [10, 0, 0, 1];

/// The token of the shutdowns at the end.
const SHUTDOWN: u64 = u64::MAX;

/// The known state of a submitted operation.
#[derive(Debug, Default)]
struct Record {
    end: usize,
    writes: bool,
    /// The write makes no completion if it succeeds, unless a cancel of it was accepted.
    quiet: bool,
    must_answer: bool,
    /// The bytes of a write, or the bytes that a read has delivered.
    data: Vec<u8>,
    moved: usize,
    ended: Option<Result<(), ErrorKind>>,
    count: u32,
}

struct Soak {
    sim: Sim,
    rng: Rng,
    watcher: Watcher,
    ends: Vec<Source>,
    /// By token, which is the order of submission.
    records: Vec<Record>,
    tickets: Vec<Ticket>,
    done: Completions,
    next_byte: u32,
    over_link: bool,
    is_cut: bool,
}

/// The counts of events in the programs of a test.
#[derive(Default)]
struct Met {
    rescheduled: Cell<u64>,
    idle_timeouts: Cell<u64>,
    stalled: Cell<u64>,
}

/// Both ends of a connection that [`Watcher::connect`] makes.
fn connected(watcher: &mut Watcher) -> [Source; 2] {
    let listener = watcher.listen((HOST, 0)).unwrap();
    let at = watcher.local_address(listener).unwrap();
    watcher.submit(Op::accept(listener)).unwrap();
    let (client, _) = watcher.connect([at], ConnectOptions::default()).unwrap();
    let (mut done, mut server, mut is_connected) = (Completions::new(), None, false);
    while server.is_none() || !is_connected {
        watcher.wait(&mut done).unwrap();
        for c in done.drain(..) {
            match c.result.unwrap() {
                Done::Accepted(socket) => server = Some(watcher.attach(socket).unwrap()),
                Done::Connected(_) => is_connected = true,
                other => panic!("{other:?}"),
            }
        }
    }
    watcher.abort(listener);
    [client, server.unwrap()]
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let mut rng = Rng::new(seed);
        let probability = [0.0, 0.05, 0.3, 0.7][rng.below(4) as usize];
        let sim = Sim::with_faults(seed, Faults::transient(probability));
        sim.set_patience(Duration::ZERO);
        sim.set_buffer(1 + rng.below(5000) as usize);
        let config = Config {
            buffer_size: 64 << rng.below(8),
            swap_limit: 64 << rng.below(12),
            source_budget: 1 + rng.below(3000) as usize,
            turn_budget: 1 + rng.below(3000) as usize,
            events_per_wait: 1 + rng.below(8) as usize,
            ..Config::default()
        };
        let mut watcher = Watcher::simulated_with(&sim, config);
        let mut ends = Vec::new();
        // Half of the programs talk over a link.
        let over_link = rng.below(2) == 0;
        if over_link {
            let latency = Duration::from_nanos(rng.below(100_000));
            let link = Link::default().latency(latency);
            sim.set_link(HOST, HOST, link.jitter(Duration::from_nanos(rng.below(50_000))));
        }
        for _ in 0..1 + rng.below(3) {
            ends.extend(match over_link {
                true => connected(&mut watcher),
                false => <[_; 2]>::from(sim.pair()).map(|end| watcher.attach(end).unwrap()),
            });
        }
        Soak {
            sim,
            rng,
            watcher,
            ends,
            records: Vec::new(),
            tickets: Vec::new(),
            done: Completions::new(),
            next_byte: 0,
            is_cut: false,
            over_link,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = 1 << self.rng.below(13);
        let len = 1 + self.rng.below(most);
        let first = self.next_byte;
        self.next_byte = first.wrapping_add(len as u32);
        let byte = |i: u32| (i ^ (i >> 7) ^ (i >> 13)) as u8;
        (first..).take(len as usize).map(byte).collect()
    }

    fn submit(&mut self, end: usize, op: Op, writes: bool, data: Vec<u8>) {
        let deadline = match self.rng.below(6) {
            0 => Some(Duration::from_nanos(self.rng.below(3_000_000))),
            _ => None,
        };
        let op = match deadline {
            Some(span) => op.timeout(span),
            None => op,
        };
        let quiet = writes && self.rng.below(3) == 0;
        let op = if quiet { op.quiet() } else { op };
        let op = op.token(self.records.len() as u64);
        self.tickets.push(self.watcher.submit(op).unwrap());
        self.records.push(Record { end, writes, quiet, data, ..Record::default() });
    }

    /// Cuts the link, or heals it.
    fn cut(&mut self) {
        self.is_cut = !self.is_cut;
        match self.is_cut {
            true => self.sim.cut(HOST, HOST),
            false => self.sim.heal(HOST, HOST),
        }
    }

    fn step(&mut self, met: &Met) {
        let end = self.rng.below(self.ends.len() as u64) as usize;
        let source = self.ends[end];
        match self.rng.below(16) {
            0..=2 => {
                let data = self.bytes();
                self.submit(end, Op::write(source, data.clone()), true, data);
            }
            3 => {
                let parts: Vec<Vec<u8>> =
                    (0..1 + self.rng.below(4)).map(|_| self.bytes()).collect();
                let data = parts.concat();
                let parts = parts.into_iter().map(Buf::from);
                self.submit(end, Op::write_vectored(source, parts), true, data);
            }
            4 | 5 => self.submit(end, Op::read(source), false, Vec::new()),
            6 => {
                let room: Vec<u8> = Vec::with_capacity(1 + self.rng.below(3000) as usize);
                self.submit(end, Op::read_into(source, room), false, Vec::new());
            }
            7 => {
                let count = 1 + self.rng.below(3000) as usize;
                let room: Vec<u8> = Vec::with_capacity(count);
                let op = Op::read_exact(source, room, count);
                self.submit(end, op, false, Vec::new());
            }
            8 => {
                let rooms: Vec<Vec<u8>> = (0..1 + self.rng.below(3))
                    .map(|_| Vec::with_capacity(1 + self.rng.below(500) as usize))
                    .collect();
                self.submit(end, Op::read_vectored(source, rooms), false, Vec::new());
            }
            9 if self.rng.below(10) == 0 => {
                self.submit(end, Op::read(source).multishot(), false, Vec::new());
            }
            10 if !self.tickets.is_empty() => {
                let which = self.rng.below(self.tickets.len() as u64) as usize;
                let record = &mut self.records[which];
                // An operation may have ended without its completion having been taken.
                let found = self.watcher.cancel(self.tickets[which]);
                assert!(!(record.ended.is_some() && found));
                record.must_answer |= found;
            }
            12 if !self.tickets.is_empty() => {
                let which = self.rng.below(self.tickets.len() as u64) as usize;
                let record = &mut self.records[which];
                let span = Duration::from_nanos(self.rng.below(3_000_000));
                let moved = self.watcher.reschedule(self.tickets[which], span);
                assert!(!(record.ended.is_some() && moved.is_ok()));
                met.rescheduled.update(|count| count + u64::from(moved.is_ok()));
            }
            13 => {
                let most = [None, Some(3_000_000), Some(50_000_000)][self.rng.below(3) as usize];
                let span = most.map(|most| Duration::from_nanos(self.rng.below(most)));
                self.watcher.set_idle_timeout(source, span).unwrap();
            }
            14 if self.over_link && (self.is_cut || self.rng.below(4) == 0) => self.cut(),
            _ => {
                let most = if self.rng.below(3) == 0 { 300_000_000 } else { 2_000_000 };
                let span = Duration::from_nanos(self.rng.below(most));
                self.watcher.wait_timeout(&mut self.done, span).unwrap();
                self.take();
            }
        }
    }

    fn take(&mut self) {
        let done: Vec<Completion> = self.done.drain(..).collect();
        for c in done {
            if c.token == SHUTDOWN {
                // Torn: a write before it has ended partly sent.
                if let Some(kind) = c.error_kind() {
                    assert_eq!(kind, ErrorKind::Torn);
                    self.submit_shutdown(c.source);
                }
                continue;
            }
            let record = &mut self.records[c.token as usize];
            assert_eq!(c.ticket(), self.tickets[c.token as usize]);
            assert_eq!(c.source, self.ends[record.end]);
            assert!(record.ended.is_none(), "a second completion of {}", c.token);
            record.count += 1;
            record.moved += c.bytes();
            if !c.has_more() {
                record.ended = Some(c.error_kind().map_or(Ok(()), Err));
            }
            match c.result {
                Ok(Done::Read(data)) => record.data.extend(data.into_vec()),
                Ok(Done::Written { buf, .. }) => assert!(buf.into_vec() == record.data),
                Err(error) if record.writes => assert!(error.into_buf().into_vec() == record.data),
                Err(error) => record.data.extend(error.into_buf().into_vec()),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Ends the reads that wait, reads everything that is left, and checks it.
    fn finish(mut self, met: &Met) -> u64 {
        if self.is_cut {
            self.cut();
        }
        for which in 0..self.tickets.len() {
            if !self.records[which].writes {
                self.watcher.cancel(self.tickets[which]);
            }
        }
        for end in 0..self.ends.len() {
            self.watcher.set_idle_timeout(self.ends[end], None).unwrap();
            let op = Op::read(self.ends[end]).multishot();
            let token = self.records.len() as u64;
            self.tickets.push(self.watcher.submit(op.token(token)).unwrap());
            self.records.push(Record { end, ..Record::default() });
            self.submit_shutdown(self.ends[end]);
        }
        // If bytes were lost on the way, this wait fails with a deadlock.
        let is_awaited =
            |record: &Record| record.ended.is_none() && (!record.quiet || record.must_answer);
        while self.records.iter().any(is_awaited) {
            self.watcher.wait(&mut self.done).unwrap();
            self.take();
        }
        assert_eq!(self.watcher.counters().in_flight, 0);
        // Quiet writes without a completion have succeeded.
        let mut quiet_done = 0;
        for record in self.records.iter_mut().filter(|record| record.ended.is_none()) {
            (record.moved, record.ended) = (record.data.len(), Some(Ok(())));
            quiet_done += 1;
        }
        assert_eq!(self.watcher.counters().quiet_done, quiet_done);
        let mut sent: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut heard = sent.clone();
        for record in &self.records {
            let is_writer = record.writes;
            let stream = if is_writer { &mut sent } else { &mut heard };
            let end = if is_writer { record.end ^ 1 } else { record.end };
            let moved = &record.data[..record.moved];
            stream.entry(end).or_default().extend_from_slice(moved);
            assert!(is_writer || record.moved == record.data.len());
            if is_writer && record.ended == Some(Ok(())) {
                assert_eq!(record.moved, record.data.len());
            }
            if record.ended == Some(Err(ErrorKind::Torn)) {
                assert_eq!(record.moved, 0);
            }
        }
        sent.retain(|_, bytes| !bytes.is_empty());
        heard.retain(|_, bytes| !bytes.is_empty());
        assert!(sent == heard);
        met.idle_timeouts.update(|count| count + self.watcher.counters().idle_timeouts);
        met.stalled.update(|count| count + self.sim.traffic().stalled);
        self.sim.trace_hash()
    }

    fn submit_shutdown(&mut self, source: Source) {
        let op = Op::shutdown(source).token(SHUTDOWN);
        self.watcher.submit(op).unwrap();
    }
}

fn soak(seed: u64, met: &Met) -> u64 {
    let mut soak = Soak::new(seed);
    for _ in 0..200 {
        soak.step(met);
    }
    soak.finish(met)
}

#[test]
#[cfg_attr(miri, ignore = "80 long programs, twice: too slow")]
fn random_programs_keep_the_contract() {
    let met = Met::default();
    let ran = each("soak of the simulation", 80, 20, |seed| {
        assert_eq!(soak(seed, &met), soak(seed, &met));
    });
    let counts = [met.rescheduled, met.idle_timeouts, met.stalled].map(Cell::into_inner);
    // When only a few programs run, some of the cases may not occur.
    println!("{counts:?}");
    assert!(ran < 80 || counts.iter().all(|count| *count > 0), "{counts:?}");
}
