//! A long run of random operations over TCP and Unix sockets: reads, writes, cancels, deadlines and
//! aborts. Every byte is compared, and at the end everything that was taken is back.
//!
//! `WINDLASS_SOAK` is how many operations run (50,000 of each seed; the full run has 10,000,000),
//! `WINDLASS_SEED` repeats a run.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // the helpers look at raw descriptors

mod common;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::*;
use windlass::{
    Buf, Completion, Completions, Done, DriverKind, ErrorKind, Handle, Lease, Op, Ready, Source,
    Ticket, Watcher,
};

const PAIRS: usize = 12;
const CHUNK: usize = 4 << 10;
const CHUNKS: usize = 16;
/// The longest usual write, and read.
const LONGEST: usize = 3_000;
/// Bytes that one end may have queued, and reads that may wait on it.
const QUEUED: usize = 64 << 10;
const READS: u32 = 6;
/// Leases that the program holds.
const HELD: usize = 24;

/// One end of a connection: what its peer is known to have written, and what it has read.
#[derive(Default)]
struct End {
    source: Option<Source>,
    reads: u32,
    wanted: VecDeque<u8>,
    got: VecDeque<u8>,
}

/// An operation in flight. Its place in the list is its token.
struct Record {
    ticket: Ticket,
    /// The pair, which connection of that pair, and the side.
    end: Option<(usize, u64, usize)>,
    reads: bool,
}

struct Soak {
    watcher: Watcher,
    random: Random,
    pairs: Vec<[End; 2]>,
    /// How many connections each pair has had.
    ages: Vec<u64>,
    records: Vec<Option<Record>>,
    vacant: Vec<usize>,
    held: Vec<Lease>,
    done: Completions,
    pattern: Vec<u8>,
    submitted: u64,
    finals: u64,
    delivered: u64,
    bytes: u64,
    ended: std::collections::BTreeMap<String, u64>,
}

impl Soak {
    fn new(kind: DriverKind, seed: u64) -> Soak {
        let builder = Watcher::builder().driver(kind).buffer_size(CHUNK as u32);
        let builder = builder.swap_limit(CHUNK * CHUNKS).events_per_wait(32);
        Soak {
            watcher: builder.build().expect("it is there"),
            random: Random::new(seed),
            pairs: (0..PAIRS).map(|_| Default::default()).collect(),
            ages: vec![0; PAIRS],
            records: Vec::new(),
            vacant: Vec::new(),
            held: Vec::new(),
            done: Completions::new(),
            pattern: pattern(64 << 10, seed),
            submitted: 0,
            finals: 0,
            delivered: 0,
            bytes: 0,
            ended: Default::default(),
        }
    }

    /// A new connection in the place of an old one: every other pair is TCP.
    fn connect(&mut self, pair: usize) {
        let ends: [Handle; 2] = if pair.is_multiple_of(2) {
            let (a, b) = system::tcp_pair();
            for end in [&a, &b] {
                // Reset, so that no port is left waiting.
                let socket = socket2::SockRef::from(end);
                socket.set_linger(Some(Duration::ZERO)).expect("a TCP socket");
                socket.set_send_buffer_size(16 << 10).expect("a size");
            }
            [a.into(), b.into()]
        } else {
            let (a, b) = std::os::unix::net::UnixStream::pair().expect("two sockets");
            socket2::SockRef::from(&a).set_send_buffer_size(8 << 10).expect("a size");
            [a.into(), b.into()]
        };
        self.ages[pair] += 1;
        self.pairs[pair] = ends.map(|handle| {
            let source = Some(self.watcher.attach(handle).expect("room"));
            End { source, ..End::default() }
        });
    }

    /// Aborts both ends: whatever is in flight on them ends.
    fn disconnect(&mut self, pair: usize) {
        for end in &mut self.pairs[pair] {
            assert!(self.watcher.abort(end.source.take().expect("connected")));
        }
        self.ages[pair] += 1;
    }

    fn submit(&mut self, op: Op, end: Option<(usize, usize)>, reads: bool) {
        let op = match self.random.below(8) {
            0 => op.timeout(Duration::from_nanos(self.random.below(300_000) as u64)),
            _ => op,
        };
        let token = self.vacant.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() - 1
        });
        let ticket = self.watcher.submit(op.token(token as u64)).expect("there is room");
        if let (Some((pair, side)), true) = (end, reads) {
            self.pairs[pair][side].reads += 1;
        }
        let end = end.map(|(pair, side)| (pair, self.ages[pair], side));
        self.records[token] = Some(Record { ticket, end, reads });
        self.submitted += 1;
    }

    fn payload(&mut self) -> Vec<u8> {
        let most = match self.random.below(40) {
            0 => LONGEST * 16,
            1..13 => LONGEST,
            13..26 => 600,
            _ => 60,
        };
        let len = 1 + self.random.below(most);
        let from = self.random.below(self.pattern.len() - len);
        self.pattern[from..from + len].to_vec()
    }

    fn step(&mut self) {
        let (pair, side) = (self.random.below(PAIRS), self.random.below(2));
        let source = self.pairs[pair][side].source.expect("connected");
        let end = Some((pair, side));
        match self.random.below(100) {
            0..=37 => {
                if self.watcher.queued_bytes(source).expect("it is open") > QUEUED {
                    return;
                }
                let op = match self.random.below(8) {
                    0 => {
                        let parts = (0..1 + self.random.below(3)).map(|_| self.payload().into());
                        Op::write_vectored(source, parts.collect::<Vec<Buf>>())
                    }
                    1 if !self.held.is_empty() => {
                        let which = self.random.below(self.held.len());
                        Op::write(source, self.held.swap_remove(which))
                    }
                    _ => Op::write(source, self.payload()),
                };
                self.submit(op, end, false);
            }
            38..=82 => {
                if self.pairs[pair][side].reads >= READS {
                    return;
                }
                let room_for = 1 + self.random.below(LONGEST);
                let op = match self.random.below(8) {
                    0..=3 => Op::read(source),
                    4 => Op::read(source).multishot(),
                    5 => Op::read_into(source, room(room_for)),
                    _ => Op::read_exact(source, room(room_for), room_for),
                };
                self.submit(op, end, true);
            }
            83..=91 => {
                // A place of the list; it may be empty.
                let which = self.random.below(self.records.len().max(1));
                if let Some(Some(record)) = self.records.get(which) {
                    self.watcher.cancel(record.ticket);
                }
            }
            92 => drop(self.watcher.cancel_all(source)),
            93 if self.random.below(4) == 0 => {
                self.disconnect(pair);
                self.connect(pair);
            }
            94 => self.submit(Op::poll(source, Ready::READABLE), end, false),
            95 => self.submit(Op::wait_drained(source, 1000), end, false),
            96 => self.submit(Op::timer(Duration::from_nanos(200_000)), None, false),
            97 => self.submit(Op::nop(), None, false),
            _ => {
                let keep = self.random.below(HELD);
                self.held.truncate(keep);
            }
        }
    }

    fn wait(&mut self, span: Duration) -> usize {
        let mut done = std::mem::take(&mut self.done);
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        self.delivered += count as u64;
        for c in done.drain(..) {
            self.take(c);
        }
        self.done = done;
        count
    }

    fn take(&mut self, c: Completion) {
        let token = c.token as usize;
        let record = self.records[token].as_ref().expect("in flight");
        assert_eq!(record.ticket, c.ticket());
        let (end, reads, more, bytes) = (record.end, record.reads, c.has_more(), c.bytes());
        if !more {
            self.records[token] = None;
            self.vacant.push(token);
            self.finals += 1;
        }
        let how = match &c.result {
            Ok(_) => "done".into(),
            Err(error) => format!("{:?}", error.kind()),
        };
        *self.ended.entry(how).or_insert(0) += 1;
        let current = end.filter(|&(pair, age, _)| self.ages[pair] == age);
        let Some((pair, _, side)) = current else {
            // Its connection is gone, the other end a little earlier; or it has none.
            let fine = match c.error_kind() {
                Some(ErrorKind::Os(errno)) => end.is_some() && RESET.contains(&errno),
                _ => true,
            };
            assert!(fine, "{c:?}");
            return;
        };
        let buf = match c.result {
            Ok(Done::Read(data)) => {
                assert!(!data.is_eof(), "no end was sent");
                Some(data)
            }
            Ok(Done::Written { buf, .. }) => Some(buf),
            Ok(_) => None,
            Err(error) => match error.kind() {
                ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Torn => {
                    Some(error.into_buf())
                }
                kind => panic!("{kind:?} on a connection that is fine"),
            },
        };
        if reads {
            let here = &mut self.pairs[pair][side];
            here.reads -= u32::from(!more);
            let data = buf.expect("reads have one");
            here.got.extend(&data[..bytes]);
            if let Ok(lease) = data.into_lease()
                && self.held.len() < HELD
            {
                self.held.push(lease);
            }
        } else if let Some(data) = buf {
            let peer = &mut self.pairs[pair][1 - side];
            let mut rest = bytes;
            for part in data.parts() {
                let len = rest.min(part.len());
                peer.wanted.extend(&part[..len]);
                rest -= len;
            }
            self.bytes += bytes as u64;
        }
        for end in &mut self.pairs[pair] {
            end.compare();
        }
    }

    fn run(&mut self, operations: u64) {
        for pair in 0..PAIRS {
            self.connect(pair);
        }
        while self.submitted < operations {
            for _ in 0..1 + self.random.below(24) {
                self.step();
            }
            let span = if self.random.below(4) == 0 { 20 } else { 0 };
            self.wait(Duration::from_micros(span));
        }
    }

    /// Everything ends, and all buffers are back.
    fn finish(&mut self) {
        for pair in 0..PAIRS {
            self.disconnect(pair);
        }
        let end = Instant::now() + BOUND;
        while self.watcher.counters().in_flight > 0 || self.finals < self.submitted {
            assert!(Instant::now() < end, "{:?}", self.watcher.counters());
            self.wait(Duration::from_secs(1));
        }
        self.held.clear();
        let counters = self.watcher.counters();
        assert_eq!(counters.submitted, self.submitted);
        assert_eq!(self.finals, self.submitted, "one final completion for each");
        assert_eq!(counters.completed, self.delivered);
        assert_eq!((counters.in_flight, counters.sources), (0, 0));
        assert!(self.records.iter().all(Option::is_none));
    }

    /// How many bytes leases can hold: all swap buffers, if none is lost.
    fn capacity(&mut self) -> usize {
        let (a, b) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        let [from, to] = [a, b].map(|end| self.watcher.attach(end).expect("room"));
        let mut op = Op::write(from, vec![1; 3 * CHUNK * CHUNKS]);
        op = op.token(1);
        self.watcher.submit(op).expect("room");
        let mut held = Vec::new();
        let mut done = Completions::new();
        // One plain read after the other, because a multishot read only gets a share of the
        // buffers. The last read waits for a buffer, and no bytes come then.
        self.watcher.submit(Op::read(to).token(2)).expect("room");
        let quiet = Duration::from_millis(50);
        while self.watcher.wait_timeout(&mut done, quiet).expect("a wait") > 0 {
            let reads = done.drain(..).filter(|c| c.token == 2).map(expect_read);
            let before = held.len();
            held.extend(reads);
            for _ in before..held.len() {
                self.watcher.submit(Op::read(to).token(2)).expect("room");
            }
        }
        let bytes = held.iter().map(|data| data.len()).sum();
        drop(held);
        for source in [from, to] {
            self.watcher.abort(source);
        }
        let counters = self.watcher.counters();
        assert_eq!((counters.in_flight, counters.sources), (0, 0), "{counters:?}");
        while self.watcher.try_wait(&mut done).expect("a wait") > 0 {
            done.clear();
        }
        bytes
    }
}

impl End {
    /// What is known on both sides is the same, and forgotten.
    fn compare(&mut self) {
        let count = self.wanted.len().min(self.got.len());
        if count == 0 {
            return;
        }
        assert!(self.wanted.drain(..count).eq(self.got.drain(..count)), "other bytes came");
    }
}

/// Descriptors belong to the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A run with the fixed seed and one with a fresh one, or that of `WINDLASS_SEED`.
fn soaks(kind: DriverKind) {
    match seeds::setting("WINDLASS_SEED") {
        Some(seed) => soak(kind, seed),
        None => [7, seeds::draw()].into_iter().for_each(|seed| soak(kind, seed)),
    }
}

fn soak(kind: DriverKind, seed: u64) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let operations = std::env::var("WINDLASS_SOAK")
        .map_or(50_000, |text| text.replace('_', "").parse().expect("a number of operations"));
    println!("WINDLASS_SEED={seed} WINDLASS_SOAK={operations}, {kind:?}");
    let start = Instant::now();
    let before = system::descriptors();
    // The watcher has made everything that it makes once.
    let mut soak = Soak::new(kind, seed);
    let fresh = soak.capacity();
    let open = system::descriptors();
    let (submitted, completed) = {
        let counters = soak.watcher.counters();
        (counters.submitted, counters.completed)
    };
    (soak.submitted, soak.finals, soak.delivered) = (submitted, submitted, completed);
    soak.run(operations);
    let reads = soak.watcher.counters();
    soak.finish();
    assert_eq!(system::descriptors(), open, "descriptors that stay behind");
    let worn = soak.capacity();
    println!(
        "{:?}, {} bytes, {} leases waited for",
        start.elapsed(),
        soak.bytes,
        reads.lease_waits
    );
    println!("{:?}, {:?}", soak.ended, reads.system_calls);
    println!("leases can hold {fresh} bytes before, {worn} after, of {}", CHUNK * CHUNKS);
    assert!(worn + CHUNK > fresh, "swap buffers are lost: {fresh} bytes before, {worn} after");
    for how in ["done", "Cancelled", "Deadline", "Aborted", "Torn"] {
        assert!(soak.ended.contains_key(how), "it never happened: {how}");
    }
    drop(soak);
    assert_eq!(system::descriptors(), before, "descriptors that stay behind");
}

#[test]
fn on_epoll() {
    soaks(DriverKind::Epoll);
}

#[test]
fn on_poll() {
    soaks(DriverKind::Poll);
}

#[test]
fn on_a_ring() {
    soaks(DriverKind::Uring);
}
