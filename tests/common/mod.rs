//! What the suites share: a harness per driver, and a bench that runs operations to their ends.
//!
//! [`Bench`] keeps a ledger of every ticket it was given, so that each test also tests the first
//! rule of the contract: an accepted operation ends in exactly one final completion. Every wait is
//! bounded: what hangs fails, and says where.
#![allow(dead_code)] // each test binary uses its own part

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use windlass::driver::{Auto, Driver, OpCode};
use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Sim};
use windlass::{
    Address, Buf, Builder, Completion, Completions, Done, DriverKind, ErrorKind, Op, Refusal,
    Source, Submitter, Ticket, Watcher,
};

pub mod bound;
pub mod child;
pub mod files;
#[cfg(target_os = "linux")]
pub mod fuse;
#[cfg(not(windows))]
pub mod process;
#[cfg(not(windows))]
pub mod programs;
pub mod seeds;
pub mod skip;
pub mod system;

#[allow(unused_imports)] // not every binary waits by itself
pub use bound::{BOUND, WHOLE, Watch, aside, join, receive, until, wait_for};
#[allow(unused_imports)] // not every binary works on files
pub use files::{EpollAio, EpollPool, EpollUring, PollPool, UringFiles, UringPool};
#[allow(unused_imports)] // not every binary leaves something out
pub use skip::{Needs, skip};

/// A driver under test.
pub trait Harness {
    /// The driver.
    type Driver: Driver;
    /// What `explain` calls it.
    const NAME: &'static str;
    /// The module that its tests are stamped into.
    const STAMP: &'static str;
    /// Whether its kernel completes reads and writes of streams.
    const COMPLETES: bool = false;
    /// Bytes of the largest transfers.
    const HUGE: usize;
    /// Most connections of the tests with very many.
    const MANY: usize;

    /// A watcher with these settings.
    fn watcher(builder: Builder) -> Watcher<Self::Driver>;

    /// An address to listen at, with a port of the kernel's choice.
    fn address() -> Address {
        Address::from(([127, 0, 0, 1], 0))
    }

    /// An address without a listener.
    fn nowhere() -> Address;

    /// A bench with the default settings.
    fn bench() -> Bench<Self::Driver> {
        Self::bench_with(Watcher::builder())
    }

    /// A bench with these settings.
    fn bench_with(builder: Builder) -> Bench<Self::Driver> {
        Bench::new(Self::watcher(builder), Self::address())
    }
}

/// The proactor on epoll.
pub struct Epoll;

impl Harness for Epoll {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "epoll";
    const STAMP: &'static str = "epoll";
    const HUGE: usize = 100 << 20;
    const MANY: usize = 8 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let builder = builder.driver(DriverKind::Epoll);
        builder.build().expect("epoll is there")
    }

    fn nowhere() -> Address {
        unused()
    }
}

/// The proactor on io_uring.
pub struct Uring;

impl Harness for Uring {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "io_uring";
    const COMPLETES: bool = true;
    const STAMP: &'static str = "uring";
    const HUGE: usize = 100 << 20;
    const MANY: usize = 8 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let builder = builder.driver(DriverKind::Uring);
        builder.build().expect("io_uring is there")
    }

    fn nowhere() -> Address {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its address").into()
    }
}

/// The proactor on kqueue.
pub struct Kqueue;

impl Harness for Kqueue {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "kqueue";
    const STAMP: &'static str = "kqueue";
    const HUGE: usize = 100 << 20;
    // The one that is imitated on Linux has descriptors of its own.
    const MANY: usize = 2 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let builder = builder.driver(DriverKind::Kqueue);
        builder.build().expect("kqueue is there")
    }

    fn nowhere() -> Address {
        unused()
    }
}

/// The proactor on poll(2).
pub struct Poll;

impl Harness for Poll {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "poll";
    const STAMP: &'static str = "poll";
    // WSAPoll looks at every socket in every wait, one system call's worth each.
    const HUGE: usize = if cfg!(windows) { 8 << 20 } else { 100 << 20 };
    const MANY: usize = if cfg!(windows) { 1 << 10 } else { 8 << 10 };

    fn watcher(builder: Builder) -> Watcher {
        let builder = builder.driver(DriverKind::Poll);
        builder.build().expect("poll is everywhere")
    }

    fn nowhere() -> Address {
        unused()
    }
}

/// An address whose listener is closed.
fn unused() -> Address {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").into()
}

/// The proactor on a simulated network that behaves.
pub struct Simulated;

impl Harness for Simulated {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const STAMP: &'static str = "sim";
    const HUGE: usize = 4 << 20;
    const MANY: usize = 2 << 10;

    fn watcher(builder: Builder) -> Watcher {
        simulated(&Sim::new(1), builder)
    }

    fn nowhere() -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }
}

/// The proactor on a simulated network that delays, tears and interrupts, but loses nothing.
pub struct Faulty;

impl Harness for Faulty {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const STAMP: &'static str = "faults";
    const HUGE: usize = 1 << 20;
    const MANY: usize = 1 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let sim = Sim::with_faults(seed(), Faults::transient(0.2));
        simulated(&sim, builder)
    }

    fn nowhere() -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }
}

/// The proactor on a simulated network that behaves, whose kernel completes reads and writes.
pub struct Completing;

impl Harness for Completing {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const STAMP: &'static str = "completing";
    const COMPLETES: bool = true;
    const HUGE: usize = 4 << 20;
    const MANY: usize = 2 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let sim = Sim::new(1);
        sim.set_completing(true);
        simulated(&sim, builder)
    }

    fn nowhere() -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }
}

/// The same on a network that delays, tears and interrupts, and whose kernel runs out of buffers,
/// and misses cancels.
pub struct FaultyCompleting;

impl Harness for FaultyCompleting {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const STAMP: &'static str = "completing_faults";
    const COMPLETES: bool = true;
    const HUGE: usize = 1 << 20;
    const MANY: usize = 1 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let sim = Sim::with_faults(seed(), Faults::transient(0.2));
        sim.set_completing(true);
        simulated(&sim, builder)
    }

    fn nowhere() -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }
}

/// A simulation whose disk fails and is full, now and then. Its kernel completes.
pub struct FailingDisk;

impl Harness for FailingDisk {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const STAMP: &'static str = "failing_disk";
    const COMPLETES: bool = true;
    const HUGE: usize = 1 << 20;
    const MANY: usize = 1 << 10;

    fn watcher(builder: Builder) -> Watcher {
        let faults =
            Faults { file_error: 0.1, sync_error: 0.1, disk_full: 0.1, ..Faults::transient(0.2) };
        let sim = Sim::with_faults(seed(), faults);
        sim.set_completing(true);
        simulated(&sim, builder)
    }

    fn nowhere() -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }
}

fn simulated(sim: &Sim, builder: Builder) -> Watcher {
    #[cfg(not(windows))]
    process::remember(sim);
    Watcher::simulated_with(sim, builder.config())
}

/// The seed of the faults: `WINDLASS_SEED`, or always the same.
pub fn seed() -> u64 {
    seeds::setting("WINDLASS_SEED").unwrap_or(7)
}

/// Tests that need very many descriptors (or much memory) run one after the other.
pub fn hungry() -> MutexGuard<'static, ()> {
    static HUNGRY: Mutex<()> = Mutex::new(());
    HUNGRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A watcher, the completions that the test has not asked for yet, and the ledger.
pub struct Bench<D: Driver> {
    pub watcher: Watcher<D>,
    batch: Completions,
    backlog: VecDeque<Completion>,
    open: HashMap<Ticket, (OpCode, u64)>,
    /// Quiet writes: they make one completion if they fail, and none if they succeed.
    quiet: HashSet<Ticket>,
    strict: bool,
    address: Address,
    started: Instant,
    _watch: Watch,
}

impl<D: Driver> Bench<D> {
    pub fn new(watcher: Watcher<D>, address: Address) -> Bench<D> {
        Bench {
            watcher,
            batch: Completions::new(),
            backlog: VecDeque::new(),
            open: HashMap::new(),
            quiet: HashSet::new(),
            strict: true,
            address,
            started: Instant::now(),
            _watch: Watch::begin(),
        }
    }

    /// Submits what must be accepted.
    #[track_caller]
    pub fn submit(&mut self, op: Op) -> Ticket {
        let code = op.code();
        match self.watcher.submit(op) {
            Ok(ticket) => {
                self.open.entry(ticket).or_insert((code, 0)).1 += 1;
                ticket
            }
            Err(rejected) => panic!("{code:?} was refused: {rejected}"),
        }
    }

    /// A source that connects to one of these addresses.
    #[track_caller]
    pub fn connect_source(
        &mut self,
        addresses: impl IntoIterator<Item = Address>,
        options: ConnectOptions,
    ) -> (Source, Ticket) {
        let (source, ticket) = self.watcher.connect(addresses, options).expect("a source");
        self.open.entry(ticket).or_insert((OpCode::Connect, 0)).1 += 1;
        (source, ticket)
    }

    /// Submits a write that makes no completion if it succeeds.
    #[track_caller]
    pub fn submit_quiet(&mut self, op: Op) -> Ticket {
        match self.watcher.submit(op.quiet()) {
            Ok(ticket) => {
                assert!(self.quiet.insert(ticket), "a ticket came twice: {ticket:?}");
                ticket
            }
            Err(rejected) => panic!("a quiet write was refused: {rejected}"),
        }
    }

    /// Submits what may be refused.
    pub fn try_submit(&mut self, op: Op) -> Result<Ticket, (Refusal, Op)> {
        let code = op.code();
        match self.watcher.submit(op) {
            Ok(ticket) => {
                self.open.entry(ticket).or_insert((code, 0)).1 += 1;
                Ok(ticket)
            }
            Err(rejected) => Err((rejected.reason, rejected.value)),
        }
    }

    /// Submits what must be refused: why, and the operation.
    #[track_caller]
    pub fn refuse(&mut self, op: Op) -> (Refusal, Op) {
        let code = op.code();
        let before = self.watcher.counters();
        match self.watcher.submit(op) {
            Ok(_) => panic!("{code:?} was accepted"),
            Err(rejected) => {
                let after = self.watcher.counters();
                assert_eq!(before.in_flight, after.in_flight, "a refusal takes no place");
                assert_eq!(rejected.value.code(), code, "another operation came back");
                (rejected.reason, rejected.value)
            }
        }
    }

    /// A submitter; from here on the ledger tolerates tickets that it does not know.
    pub fn submitter(&mut self) -> Submitter {
        self.strict = false;
        self.watcher.submitter()
    }

    /// Waits for a batch and enters it into the ledger; 0 when `span` has passed without one.
    #[track_caller]
    fn fetch(&mut self, span: Duration) -> usize {
        assert!(self.started.elapsed() < WHOLE, "the test takes too long");
        let answer = self.watcher.wait_timeout(&mut self.batch, span);
        let count = answer.expect("the wait itself does not fail");
        assert_eq!(count, self.batch.len(), "the count of the wait");
        self.enter();
        count
    }

    #[track_caller]
    fn enter(&mut self) {
        for c in self.batch.drain(..) {
            if let Some((code, _)) = self.open.get(&c.ticket()) {
                assert_eq!(c.code(), *code, "its code: {c:?}");
            }
            match self.open.get_mut(&c.ticket()) {
                Some((_, times)) if !c.has_more() => {
                    *times -= 1;
                    if *times == 0 {
                        self.open.remove(&c.ticket());
                    }
                }
                Some(_) => {}
                None if self.quiet.remove(&c.ticket()) => {
                    assert_eq!((c.code(), c.has_more()), (OpCode::Write, false), "{c:?}");
                }
                None => assert!(!self.strict, "not in flight, or ended already: {c:?}"),
            }
            self.backlog.push_back(c);
        }
    }

    /// The next completion, in the order of delivery.
    #[track_caller]
    pub fn next(&mut self) -> Completion {
        while self.backlog.is_empty() {
            if self.fetch(BOUND) == 0 {
                let counters = self.watcher.counters();
                let open: Vec<OpCode> =
                    self.open.values().map(|(code, _)| *code).take(20).collect();
                let count = self.open.len();
                panic!("nothing completes; in flight: {count}, first {open:?}; {counters:?}");
            }
        }
        self.backlog.pop_front().expect("not empty")
    }

    /// The next `count` completions, in the order of delivery.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<Completion> {
        (0..count).map(|_| self.next()).collect()
    }

    /// The next completion with this ticket; the bench keeps the others.
    #[track_caller]
    pub fn end(&mut self, ticket: Ticket) -> Completion {
        loop {
            if let Some(at) = self.backlog.iter().position(|c| c.ticket() == ticket) {
                return self.backlog.remove(at).expect("just found");
            }
            if self.fetch(BOUND) == 0 {
                let counters = self.watcher.counters();
                let backlog = &self.backlog;
                let code = self.open.get(&ticket).map(|(code, _)| *code);
                panic!("{code:?} {ticket:?} does not end; came: {backlog:?}; {counters:?}");
            }
        }
    }

    /// Submits and waits for the end.
    #[track_caller]
    pub fn run(&mut self, op: Op) -> Completion {
        let ticket = self.submit(op);
        self.end(ticket)
    }

    /// Waits once, and keeps what that brings.
    #[track_caller]
    pub fn wait_once(&mut self, span: Duration) {
        self.fetch(span);
    }

    /// Puts completions back in front of the kept ones, in their order.
    pub fn keep(&mut self, kept: Vec<Completion>) {
        for c in kept.into_iter().rev() {
            self.backlog.push_front(c);
        }
    }

    /// Everything that has completed or completes without waiting, in order.
    #[track_caller]
    pub fn now(&mut self) -> Vec<Completion> {
        self.look();
        self.backlog.drain(..).collect()
    }

    /// Takes what completes without waiting into the backlog.
    #[track_caller]
    pub fn look(&mut self) {
        for _ in 0..1_000_000 {
            let count = self.watcher.try_wait(&mut self.batch).expect("a wait");
            if count == 0 {
                return;
            }
            self.enter();
        }
        panic!("completions never end");
    }

    /// Takes what completes within a span into the backlog: for what should *not* happen.
    #[track_caller]
    pub fn look_for(&mut self, span: Duration) {
        let end = self.watcher.now() + span;
        loop {
            let now = self.watcher.now();
            if now >= end {
                return;
            }
            self.fetch(end - now);
        }
    }

    /// Nothing has completed besides what the test has asked for.
    #[track_caller]
    pub fn expect_quiet(&mut self) {
        self.look();
        assert!(self.backlog.is_empty(), "came unasked: {:?}", self.backlog);
    }

    /// How many accepted operations have not ended.
    pub fn open(&self) -> usize {
        self.open.values().map(|&(_, n)| n as usize).sum()
    }

    /// How many completions the test has not asked for.
    pub fn unasked(&self) -> usize {
        self.backlog.len()
    }

    /// Whether this operation is still open.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains_key(&ticket)
    }

    /// Everything has ended, was asked for, and the driver agrees.
    #[track_caller]
    pub fn expect_all_ended(&mut self) {
        self.expect_quiet();
        assert_eq!(self.open(), 0, "operations that never ended: {:?}", self.open);
        assert_eq!(self.watcher.counters().in_flight, 0);
    }

    /// Lets time pass on the driver's clock, keeping what completes meanwhile.
    #[track_caller]
    pub fn pass(&mut self, span: Duration) {
        let ticket = self.submit(Op::timer(span));
        expect_timer(self.end(ticket));
    }

    /// A listener, and the address to connect to.
    #[track_caller]
    pub fn listen(&mut self) -> (Source, Address) {
        let at = self.address.clone();
        let listener = self.watcher.listen(at).expect("a listener");
        let at = self.watcher.local_address(listener).expect("its address");
        (listener, at)
    }

    /// Two ends of a connection.
    #[track_caller]
    pub fn pair(&mut self) -> (Source, Source) {
        self.pairs(1)[0]
    }

    /// Ends of many connections: (connecting, accepted).
    #[track_caller]
    pub fn pairs(&mut self, count: usize) -> Vec<(Source, Source)> {
        let (listener, at) = self.listen();
        let mut pairs = Vec::with_capacity(count);
        while pairs.len() < count {
            match count - pairs.len() {
                1 => pairs.push(self.connect(listener, &at)),
                left => pairs.extend(self.connect_some(listener, &at, left.min(16))),
            }
        }
        self.watcher.abort(listener);
        for end in pairs.iter().flat_map(|&(here, there)| [here, there]) {
            if let Ok(fd) = self.watcher.fd(end) {
                system::bound(&socket2::SockRef::from(&fd));
            }
        }
        pairs
    }

    /// Several connections at once: every wait of poll(2) looks at all sockets that there are.
    #[track_caller]
    fn connect_some(
        &mut self,
        listener: Source,
        at: &Address,
        count: usize,
    ) -> Vec<(Source, Source)> {
        let accepts: Vec<_> = (0..count).map(|_| self.submit(Op::accept(listener))).collect();
        let connects: Vec<_> = (0..count).map(|_| self.submit(Op::connect(at.clone()))).collect();
        let mut accepted = HashMap::new();
        for accept in accepts {
            let handle = expect_accepted(self.end(accept));
            let there = self.watcher.attach(handle).expect("room for a source");
            let from = self.watcher.peer_address(there).expect("its peer");
            accepted.insert(from.to_string(), there);
        }
        let ends = connects.into_iter().map(|connect| {
            let handle = expect_connected(self.end(connect));
            let here = self.watcher.attach(handle).expect("room for a source");
            let from = self.watcher.local_address(here).expect("its address");
            (here, accepted.remove(&from.to_string()).expect("it was accepted"))
        });
        ends.collect()
    }

    /// One connection through a listener.
    #[track_caller]
    pub fn connect(&mut self, listener: Source, at: &Address) -> (Source, Source) {
        let accept = self.submit(Op::accept(listener));
        let connect = self.submit(Op::connect(at.clone()));
        let accepted = expect_accepted(self.end(accept));
        let connected = expect_connected(self.end(connect));
        let here = self.watcher.attach(connected).expect("room for a source");
        let there = self.watcher.attach(accepted).expect("room for a source");
        (here, there)
    }

    /// The bytes of one read without a buffer.
    #[track_caller]
    pub fn read(&mut self, source: Source) -> Vec<u8> {
        let ticket = self.submit(Op::read(source));
        expect_read(self.end(ticket)).to_vec()
    }

    /// Exactly `count` bytes.
    #[track_caller]
    pub fn read_exact(&mut self, source: Source, count: usize) -> Vec<u8> {
        let op = Op::read_exact(source, room(count), count);
        let ticket = self.submit(op);
        expect_read(self.end(ticket)).into_vec()
    }

    /// Everything up to the end of the file.
    #[track_caller]
    pub fn read_to_end(&mut self, source: Source) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let ticket = self.submit(Op::read(source));
            let data = expect_read(self.end(ticket));
            if data.is_eof() {
                return all;
            }
            all.extend_from_slice(&data);
        }
    }

    /// Writes all bytes.
    #[track_caller]
    pub fn write(&mut self, source: Source, bytes: impl Into<Buf>) {
        let ticket = self.submit(Op::write(source, bytes));
        expect_written(self.end(ticket));
    }

    /// `source` sends, `peer` gets: one message across.
    #[track_caller]
    pub fn cross(&mut self, source: Source, peer: Source, bytes: &[u8]) {
        let op = Op::read_exact(peer, room(bytes.len()), bytes.len());
        let read = self.submit(op);
        self.write(source, bytes.to_vec());
        expect_same(&expect_read(self.end(read)), bytes);
    }

    /// Both directions work.
    #[track_caller]
    pub fn expect_alive(&mut self, a: Source, b: Source) {
        self.cross(a, b, b"there");
        self.cross(b, a, b"and back");
    }

    /// Makes the kernel's buffer for what a source sends small where it is a system descriptor, so
    /// that few bytes fill it.
    pub fn narrow(&mut self, source: Source) {
        if let Ok(fd) = self.watcher.fd(source) {
            let socket = socket2::SockRef::from(&fd);
            let _ = socket.set_send_buffer_size(128 << 10);
        }
    }

    /// A connection whose first end is stuck in a write to a silent peer.
    #[track_caller]
    pub fn stuck(&mut self) -> Stuck {
        let (writer, peer) = self.pair();
        self.narrow(writer);
        self.stick(writer, peer, pattern(4 << 20, 3))
    }

    /// As `stuck`, with less memory in the kernel, for many of them.
    #[track_caller]
    pub fn small_stuck(&mut self) -> Stuck {
        let (writer, peer) = self.pair();
        if let Ok(fd) = self.watcher.fd(writer) {
            let _ = socket2::SockRef::from(&fd).set_send_buffer_size(8 << 10);
        }
        self.stick(writer, peer, pattern(1 << 20, 3))
    }

    #[track_caller]
    fn stick(&mut self, writer: Source, peer: Source, bytes: Vec<u8>) -> Stuck {
        let ticket = self.submit(Op::write(writer, bytes.clone()).token(STUCK));
        self.look();
        if self.watcher.fd(writer).is_err() {
            // A simulated network takes the first bytes when it likes.
            self.pass(Duration::from_millis(50));
        }
        assert!(self.is_open(ticket), "a silent peer took it all");
        Stuck { writer, peer, ticket, bytes }
    }
}

/// The token of a write that is stuck.
pub const STUCK: u64 = 0x5_70CC;

/// A connection with a write that cannot go on.
pub struct Stuck {
    pub writer: Source,
    pub peer: Source,
    pub ticket: Ticket,
    pub bytes: Vec<u8>,
}

/// A vector with room for so many bytes and none in it.
pub fn room(len: usize) -> Vec<u8> {
    Vec::with_capacity(len)
}

/// Bytes that look random and depend on their place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A small generator of numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Says where two long strings of bytes differ, not what they are.
#[track_caller]
pub fn expect_same(got: &[u8], wanted: &[u8]) {
    if got == wanted {
        return;
    }
    let at = got.iter().zip(wanted).position(|(a, b)| a != b);
    let (got, wanted) = (got.len(), wanted.len());
    panic!("{got} bytes of {wanted}; the first that differs: {at:?}");
}

#[track_caller]
pub fn expect_read(c: Completion) -> Buf {
    match c.result {
        Ok(Done::Read(data)) => data,
        other => panic!("wanted a read: {other:?}"),
    }
}

#[track_caller]
pub fn expect_eof(c: Completion) -> Buf {
    let data = expect_read(c);
    assert!(data.is_eof(), "wanted the end of the file: {data:?}");
    data
}

#[track_caller]
pub fn expect_written(c: Completion) -> Buf {
    match c.result {
        Ok(Done::Written { buf, bytes }) => {
            assert_eq!(bytes as usize, buf.len(), "a write sends all of its bytes");
            buf
        }
        other => panic!("wanted a write: {other:?}"),
    }
}

#[track_caller]
pub fn expect_accepted(c: Completion) -> windlass::Handle {
    match c.result {
        Ok(Done::Accepted(handle)) => handle,
        other => panic!("wanted a connection: {other:?}"),
    }
}

#[track_caller]
pub fn expect_connected(c: Completion) -> windlass::Handle {
    match c.result {
        Ok(Done::Socket(handle)) => {
            assert!(c.source.is_none(), "a connect has no source");
            handle
        }
        other => panic!("wanted a connection: {other:?}"),
    }
}

#[track_caller]
pub fn expect_timer(c: Completion) {
    match c.result {
        Ok(Done::Timer) => assert!(c.source.is_none()),
        other => panic!("wanted a timer: {other:?}"),
    }
}

#[track_caller]
pub fn expect_shutdown(c: Completion) {
    match c.result {
        Ok(Done::Shutdown) => {}
        other => panic!("wanted a shutdown: {other:?}"),
    }
}

#[track_caller]
pub fn expect_closed(c: Completion) {
    match c.result {
        Ok(Done::Closed) => {}
        other => panic!("wanted a close: {other:?}"),
    }
}

/// The operation ended this way: how many bytes it had moved, and its buffer.
#[track_caller]
pub fn expect_error(c: Completion, kind: ErrorKind) -> (usize, Buf) {
    assert!(!c.has_more(), "an error is final: {c:?}");
    let bytes = c.bytes();
    match c.result {
        Err(error) if error.kind() == kind => {
            assert_eq!(error.bytes(), bytes);
            (bytes, error.into_buf())
        }
        other => panic!("wanted {kind:?}: {other:?}"),
    }
}

/// The operation ended this way before it moved a byte.
#[track_caller]
pub fn expect_unmoved(c: Completion, kind: ErrorKind) -> Buf {
    let (bytes, buf) = expect_error(c, kind);
    assert_eq!(bytes, 0, "no byte had moved");
    buf
}

/// The system reported one of these.
#[track_caller]
pub fn expect_errno(c: Completion, errnos: &[i32]) -> Buf {
    match c.result {
        Err(error) if errnos.iter().any(|&e| error.raw_os_error() == Some(e)) => error.into_buf(),
        other => panic!("wanted an errno of {errnos:?}: {other:?}"),
    }
}

/// What a connection that the peer has torn down reports, whichever came first.
pub const RESET: &[i32] = if cfg!(windows) {
    &[libc::ECONNRESET, libc::ECONNABORTED, libc::EPIPE]
} else {
    &[libc::ECONNRESET, libc::EPIPE]
};
