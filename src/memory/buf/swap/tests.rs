//! The pool against a plain model, and the counts of its leases.

use super::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

use crate::memory::buf::Buf;
use crate::seeds::setting;

#[derive(Clone, Debug)]
enum Step {
    /// Reads so many 1/255 of the space.
    Read(u8),
    /// Reads as much as the space has.
    Fill,
    /// Asks for space and then has nothing to read.
    Look,
    /// Reads a message that is longer than the space by so many 1/255 of what is left of a chunk.
    Spill(u8),
    /// Reads behind a lease: into the space for that, or a copy of bytes that came elsewhere.
    Append(usize, u8, bool),
    Clone(usize),
    Slice(usize, u8, u8),
    Split(usize, u8, bool),
    /// Joins a lease with another, if they touch.
    Join(usize, usize),
    /// Changes the bytes of a unique lease.
    Change(usize, u8),
    Freeze(usize),
    Compact(usize),
    /// Goes through an operation and comes back; perhaps a part of it only.
    Travel(usize, u8, u8),
    Drop(usize),
    DropElsewhere(usize),
}

#[derive(Clone, Debug)]
struct Case {
    chunk: u32,
    limit: usize,
    steps: Vec<Step>,
    /// The pool goes before its leases.
    early: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let any_lease = any::<usize>();
    let step = prop_oneof![
        6 => any::<u8>().prop_map(Step::Read),
        2 => Just(Step::Fill),
        1 => Just(Step::Look),
        1 => any::<u8>().prop_map(Step::Spill),
        2 => any_lease.prop_map(Step::Clone),
        1 => (any_lease, any::<u8>(), any::<u8>()).prop_map(|(i, a, b)| Step::Slice(i, a, b)),
        2 => (any_lease, any::<u8>(), any::<bool>())
            .prop_map(|(i, n, copied)| Step::Append(i, n, copied)),
        3 => (any_lease, any::<u8>(), any::<bool>())
            .prop_map(|(i, at, off)| Step::Split(i, at, off)),
        4 => (any_lease, any_lease).prop_map(|(i, j)| Step::Join(i, j)),
        2 => (any_lease, any::<u8>()).prop_map(|(i, byte)| Step::Change(i, byte)),
        2 => any_lease.prop_map(Step::Freeze),
        1 => any_lease.prop_map(Step::Compact),
        1 => (any_lease, any::<u8>(), any::<u8>()).prop_map(|(i, a, b)| Step::Travel(i, a, b)),
        6 => any_lease.prop_map(Step::Drop),
        2 => any_lease.prop_map(Step::DropElsewhere),
    ];
    let steps = prop::collection::vec(step, 1..if cfg!(miri) { 60 } else { 300 });
    (1u32..10, 1usize..2600, steps, any::<bool>()).prop_map(|(lines, limit, steps, early)| Case {
        chunk: 64 * lines,
        limit,
        steps,
        early,
    })
}

/// A lease, shared or not.
#[derive(Debug)]
enum Any {
    Shared(Lease),
    Unique(LeaseMut),
}

impl Any {
    fn lease(&self) -> &Lease {
        match self {
            Any::Shared(lease) => lease,
            Any::Unique(unique) => &unique.lease,
        }
    }

    fn chunk(&self) -> usize {
        self.lease().chunk.as_ptr().addr()
    }

    /// Which bytes of its chunk it has.
    fn range(&self) -> std::ops::Range<u32> {
        let lease = self.lease();
        lease.offset..lease.offset + lease.len
    }

    fn split(&mut self, at: usize, off: bool) -> Any {
        match self {
            Any::Shared(lease) if off => Any::Shared(lease.split_off(at)),
            Any::Shared(lease) => Any::Shared(lease.split_to(at)),
            Any::Unique(lease) if off => Any::Unique(lease.split_off(at)),
            Any::Unique(lease) => Any::Unique(lease.split_to(at)),
        }
    }
}

/// The expected pool: how many leases each chunk has, and where it reads next.
struct Model {
    pool: Pool,
    /// By the chunk's address.
    leases: HashMap<usize, usize>,
    current: Option<usize>,
    room: u32,
    starving: bool,
    wakes: usize,
    woken: Arc<AtomicUsize>,
    held: Vec<(Any, Vec<u8>)>,
    serial: u8,
    most: usize,
    compacted: u64,
    /// How often a lease was joined, or read behind in place, and how often it moved for that.
    joined: usize,
    in_place: usize,
    moved: usize,
}

impl Model {
    fn new(case: &Case) -> Model {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let pool = Pool::new(
            case.limit,
            case.chunk,
            Arc::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            }),
        );
        Model {
            pool,
            leases: HashMap::new(),
            current: None,
            room: 0,
            starving: false,
            wakes: 0,
            woken,
            held: Vec::new(),
            serial: 0,
            most: (case.limit / case.chunk as usize).max(1),
            compacted: 0,
            joined: 0,
            in_place: 0,
            moved: 0,
        }
    }

    /// What `space` should answer: how many bytes, and in which chunk unless that is open.
    fn expect_space(&mut self) -> Option<u32> {
        let size = self.pool.chunk_size;
        if self.current.is_some_and(|chunk| self.leases[&chunk] == 0) {
            self.room = size;
        }
        if self.current.is_some() && self.room >= (size / 2).max(64) {
            return Some(self.room);
        }
        self.expect_chunk()
    }

    /// What opening another chunk should answer.
    fn expect_chunk(&mut self) -> Option<u32> {
        self.current = None;
        let idle = self.leases.values().any(|&count| count == 0);
        if !idle && self.leases.len() == self.most {
            self.starving = true;
            return None;
        }
        self.room = self.pool.chunk_size;
        Some(self.room)
    }

    /// The chunk that the pool has opened must have no holder, and be new only if none was idle.
    fn opened(&mut self) {
        let chunk = self.pool.current.as_ptr().addr();
        if self.current == Some(chunk) {
            return;
        }
        assert_eq!(self.current, None, "the chunk at hand was left");
        match self.leases.get(&chunk) {
            Some(&count) => assert_eq!(count, 0, "S1: it has leases"),
            None => {
                assert!(self.leases.values().all(|&count| count > 0), "one was idle");
                self.leases.insert(chunk, 0);
            }
        }
        self.current = Some(chunk);
    }

    /// Asks for space; what of it was read is written by `fill`.
    fn space(&mut self) -> Option<(*mut u8, u32)> {
        let expected = self.expect_space();
        let got = self.pool.space();
        assert_eq!(got.map(|(_, room)| room), expected);
        if got.is_some() {
            self.opened();
        }
        got
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.serial = self.serial.wrapping_add(1);
        (0..len).map(|i| self.serial ^ (i as u8).wrapping_mul(31)).collect()
    }

    fn read(&mut self, len: u32) {
        let Some((start, room)) = self.space() else { return };
        let bytes = self.bytes(len.min(room) as usize);
        // SAFETY: S2: the pool has lent `room` bytes, and `bytes` are at most that.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        // SAFETY: written right above.
        let lease = unsafe { self.pool.commit(bytes.len() as u32) };
        self.room -= (bytes.len() as u32).max(1).next_multiple_of(64);
        self.hold(Any::Unique(lease), bytes);
    }

    fn spill(&mut self, share: u8) {
        let Some((start, room)) = self.space() else { return };
        let more = (self.pool.chunk_size - room) * u32::from(share) / 255;
        let bytes = self.bytes((room + more) as usize);
        let (first, rest) = bytes.split_at(room as usize);
        // SAFETY: S2: the pool has lent `room` bytes.
        unsafe { ptr::copy_nonoverlapping(first.as_ptr(), start, first.len()) };
        let expected = self.expect_chunk();
        // SAFETY: the whole space was written right above.
        match unsafe { self.pool.commit_with(rest) } {
            Ok(lease) => {
                assert!(expected.is_some(), "beyond the limit");
                self.opened();
                self.room -= (bytes.len() as u32).max(1).next_multiple_of(64);
                self.hold(Any::Unique(lease), bytes);
            }
            Err(back) => {
                assert_eq!(expected, None, "there was a chunk");
                assert_eq!(back, bytes);
            }
        }
    }

    fn hold(&mut self, lease: Any, bytes: Vec<u8>) {
        self.count(&lease);
        self.held.push((lease, bytes));
    }

    /// A token more of a lease's chunk; of one that is alone nothing is known.
    fn count(&mut self, lease: &Any) {
        if let Some(count) = self.leases.get_mut(&lease.chunk()) {
            *count += 1;
        }
    }

    fn release(&mut self, pick: usize, elsewhere: bool) {
        if self.held.is_empty() {
            return;
        }
        let (lease, _) = self.held.swap_remove(pick % self.held.len());
        let chunk = lease.chunk();
        if elsewhere {
            thread::spawn(move || drop(lease)).join().unwrap();
        } else {
            drop(lease);
        }
        self.gone(chunk);
    }

    /// A lease's token of a chunk was dropped.
    fn gone(&mut self, chunk: usize) {
        let Some(count) = self.leases.get_mut(&chunk) else { return };
        *count -= 1;
        if *count == 0 && self.current != Some(chunk) && std::mem::take(&mut self.starving) {
            self.wakes += 1;
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(share) => self.read(self.pool.chunk_size * u32::from(share) / 255),
            Step::Fill => self.read(u32::MAX),
            Step::Look => drop(self.space()),
            Step::Spill(share) => self.spill(share),
            Step::Drop(pick) => self.release(pick, false),
            Step::DropElsewhere(pick) => self.release(pick, true),
            _ if self.held.is_empty() => {}
            Step::Clone(pick) => {
                let (lease, bytes) = &self.held[pick % self.held.len()];
                let Any::Shared(lease) = lease else { return };
                let (lease, bytes) = (Any::Shared(lease.clone()), bytes.clone());
                self.hold(lease, bytes);
            }
            Step::Slice(pick, a, b) => {
                let (lease, bytes) = &self.held[pick % self.held.len()];
                let Any::Shared(lease) = lease else { return };
                let range = part(bytes, a, b);
                let lease = Any::Shared(lease.slice(range.clone()));
                let bytes = bytes[range].to_vec();
                self.hold(lease, bytes);
            }
            Step::Travel(pick, a, b) => {
                let pick = pick % self.held.len();
                let (lease, mut bytes) = self.held.swap_remove(pick);
                let (buf, unique) = match lease {
                    Any::Shared(lease) => (Buf::from(lease), false),
                    Any::Unique(lease) => (Buf::from(lease), true),
                };
                let range = part(&bytes, a, b);
                let buf = buf.slice(range.clone());
                bytes = bytes[range].to_vec();
                assert_eq!(&*buf, bytes);
                let lease = match buf.into_lease_mut() {
                    Ok(lease) => Any::Unique(lease),
                    Err(buf) => Any::Shared(buf.into_lease().expect("it was one")),
                };
                assert_eq!(matches!(lease, Any::Unique(_)), unique, "S1");
                self.held.push((lease, bytes));
            }
            Step::Append(pick, share, copied) => self.append(pick, share, copied),
            Step::Split(pick, at, off) => {
                let pick = pick % self.held.len();
                let (lease, bytes) = &mut self.held[pick];
                let at = bytes.len() * usize::from(at) / 255;
                let part = lease.split(at, off);
                let mut rest = bytes.split_off(at);
                if !off {
                    std::mem::swap(&mut rest, bytes);
                }
                self.hold(part, rest);
            }
            Step::Join(first, second) => self.join(first, second),
            Step::Change(pick, byte) => {
                let pick = pick % self.held.len();
                let (lease, bytes) = &mut self.held[pick];
                let Any::Unique(lease) = lease else { return };
                lease.iter_mut().for_each(|old| *old ^= byte);
                bytes.iter_mut().for_each(|old| *old ^= byte);
            }
            Step::Freeze(pick) => {
                let pick = pick % self.held.len();
                let (lease, bytes) = self.held.swap_remove(pick);
                let lease = match lease {
                    Any::Unique(lease) => Any::Shared(lease.freeze()),
                    shared => shared,
                };
                self.held.push((lease, bytes));
            }
            Step::Compact(pick) => {
                let pick = pick % self.held.len();
                let chunk = self.held[pick].0.chunk();
                let (Any::Shared(lease), bytes) = &mut self.held[pick] else { return };
                let small = bytes.len() * 4 < lease.held_bytes();
                let copied = lease.compact();
                assert_eq!(copied, if small { bytes.len() } else { 0 });
                if small {
                    assert_eq!(lease.held_bytes(), bytes.len());
                    self.compacted += copied as u64;
                    self.gone(chunk);
                }
            }
        }
    }

    /// Joins two leases if the second begins where the first ends.
    fn join(&mut self, first: usize, second: usize) {
        if self.held.len() < 2 {
            return;
        }
        let (a, mut bytes) = self.held.swap_remove(first % self.held.len());
        // Where there is one that fits it is taken, else any.
        let fits = |(b, _): &(Any, Vec<u8>)| {
            let touches = b.chunk() == a.chunk() && b.range().start == a.range().end;
            touches
                && matches!(
                    (&a, b),
                    (Any::Shared(_), Any::Shared(_)) | (Any::Unique(_), Any::Unique(_))
                )
        };
        let second = self.held.iter().position(fits).unwrap_or(second % self.held.len());
        let (b, behind) = self.held.swap_remove(second);
        let chunks = (a.chunk(), b.chunk());
        let touches = a.chunk() == b.chunk() && a.range().end == b.range().start;
        let joins = touches || bytes.is_empty() || behind.is_empty();
        // The token of the one that the whole does not need.
        let dropped = if behind.is_empty() { chunks.1 } else { chunks.0 };
        let answer = match (a, b) {
            (Any::Shared(a), Any::Shared(b)) => {
                a.try_join(b).map(Any::Shared).map_err(|(a, b)| (Any::Shared(a), Any::Shared(b)))
            }
            (Any::Unique(a), Any::Unique(b)) => {
                a.try_join(b).map(Any::Unique).map_err(|(a, b)| (Any::Unique(a), Any::Unique(b)))
            }
            (a, b) => {
                self.held.extend([(a, bytes), (b, behind)]);
                return;
            }
        };
        match answer {
            Ok(whole) => {
                assert!(joins, "strangers");
                self.joined += 1;
                bytes.extend(behind);
                self.held.push((whole, bytes));
                self.gone(dropped);
            }
            Err((a, b)) => {
                assert!(!joins, "they touch");
                self.held.extend([(a, bytes), (b, behind)]);
            }
        }
    }

    /// Reads behind a unique lease.
    fn append(&mut self, pick: usize, share: u8, copied: bool) {
        let (pick, chunk_bytes) = (pick % self.held.len(), self.pool.chunk_bytes());
        let (lease, bytes) = self.held.swap_remove(pick);
        let lease = match lease {
            Any::Unique(lease) if self.pool.room_behind(lease.len()) > 0 => lease,
            other => return self.held.push((other, bytes)),
        };
        let (chunk, before, mut bytes) = (lease.lease.chunk, bytes.len(), bytes);
        let (whole, copies) = if copied {
            let added = self.bytes(chunk_bytes * usize::from(share) / 255);
            let (whole, copies) = self.pool.append(lease, &added);
            // SAFETY: a lease keeps its chunk alive (S3).
            let alone = unsafe { whole.lease.chunk.as_ref() }.alone;
            self.starving |= alone && before + added.len() <= chunk_bytes;
            bytes.extend(&added);
            (whole, copies - added.len())
        } else {
            let Some(behind) = self.pool.space_behind(&lease) else {
                self.starving = true;
                self.follow();
                return self.held.push((Any::Unique(lease), bytes));
            };
            let added = self.bytes(behind.room as usize * usize::from(share) / 255);
            // SAFETY: S2: the pool has lent `room` bytes, and these are at most that.
            unsafe { ptr::copy_nonoverlapping(added.as_ptr(), behind.start, added.len()) };
            bytes.extend(&added);
            // SAFETY: written right above.
            unsafe { self.pool.commit_behind(lease, behind, added.len() as u32) }
        };
        self.follow();
        let moved = copies > 0 || whole.lease.chunk != chunk;
        assert_eq!(copies, if moved { before } else { 0 });
        if moved {
            self.moved += 1;
            self.hold(Any::Unique(whole), bytes);
            self.gone(chunk.as_ptr().addr());
        } else {
            self.in_place += 1;
            self.held.push((Any::Unique(whole), bytes));
        }
    }

    /// The pool may have opened a chunk, or left one, to read behind a lease.
    fn follow(&mut self) {
        let chunk = self.pool.current;
        self.room = self.pool.room;
        self.current = (chunk != no_chunk()).then(|| chunk.as_ptr().addr());
        if let Some(chunk) = self.current {
            self.leases.entry(chunk).or_insert(0);
        }
    }

    fn check(&self) {
        for (lease, bytes) in &self.held {
            assert_eq!(&**lease.lease(), bytes, "S1");
        }
        assert_eq!(self.pool.compacted_bytes(), self.compacted);
        let size = self.pool.chunk_bytes();
        assert_eq!(self.pool.allocated_bytes(), self.leases.len() * size);
        assert_eq!(self.pool.limit_bytes(), self.most * size);
        assert!(self.pool.allocated_bytes() <= self.pool.limit_bytes(), "S4");
        assert_eq!(self.woken.load(Ordering::SeqCst), self.wakes, "wakes");
    }
}

/// The part of `bytes` between two shares of 255.
fn part(bytes: &[u8], a: u8, b: u8) -> std::ops::Range<usize> {
    let at = |share: u8| bytes.len() * usize::from(share) / 255;
    at(a.min(b))..at(a.max(b))
}

fn run(case: &Case) -> [usize; 3] {
    let mut model = Model::new(case);
    for step in &case.steps {
        model.step(step);
        model.check();
    }
    if !case.early {
        while !model.held.is_empty() {
            model.release(0, false);
        }
        // Everything is back: each chunk can be filled again, and none more is made.
        let chunks = model.leases.len();
        for _ in 0..chunks {
            model.read(u32::MAX);
        }
        model.check();
        assert_eq!(model.leases.len(), chunks);
        assert!(model.leases.values().all(|&count| count == 1), "{:?}", model.leases);
    }
    let counts = [model.joined, model.in_place, model.moved];
    let Model { pool, held, .. } = model;
    let shared = Arc::downgrade(&pool.shared);
    drop(pool);
    assert_eq!(shared.upgrade().is_some(), !held.is_empty(), "leases keep their chunks");
    for (lease, bytes) in held {
        assert_eq!(&**lease.lease(), bytes, "S3");
    }
    assert!(shared.upgrade().is_none(), "S3: a chunk was not freed");
    counts
}

#[test]
fn behaves_like_a_plain_model() {
    let cases = if cfg!(miri) { 2 } else { setting("PROPTEST_CASES").unwrap_or(60) };
    let mut config = Config::with_cases(cases);
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        // Always the same steps, unless asked to explore; the clock of Miri is not asked.
        _ if cfg!(miri) || std::env::var_os("WINDLASS_EXPLORE").is_none() => 1,
        _ => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    config.failure_persistence = None;
    let (starved, spilled) = (RefCell::new(0), RefCell::new(0));
    let behind = RefCell::new([0; 3]);
    let tested = TestRunner::new(config).run(&case(), |case| {
        let counts = run(&case);
        behind.borrow_mut().iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        *starved.borrow_mut() += usize::from(case.limit < 2 * case.chunk as usize);
        *spilled.borrow_mut() +=
            case.steps.iter().filter(|step| matches!(step, Step::Spill(_))).count();
        Ok(())
    });
    match tested {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("PROPTEST_RNG_SEED={seed}: {why}\n{case:?}"),
        Err(error) => panic!("PROPTEST_RNG_SEED={seed}: {error}"),
    }
    if cfg!(miri) {
        return; // its few cases do not have everything
    }
    assert!(starved.into_inner() > 0 && spilled.into_inner() > 0, "nothing was tested");
    let behind = behind.into_inner();
    assert!(behind.iter().all(|&count| count > 0), "joined, in place, moved: {behind:?}");
}

/// Another thread looks at the leases and drops them while the pool goes on reading.
#[test]
fn leases_that_a_racing_thread_drops_keep_their_bytes() {
    let rounds = if cfg!(miri) { 100 } else { 20_000 };
    let (woken, wakes) = mpsc::channel();
    let mut pool = Pool::new(4 * 256, 256, Arc::new(move || woken.send(()).unwrap()));
    let shared = Arc::downgrade(&pool.shared);
    let (leases, others) = mpsc::channel::<(LeaseMut, u8)>();
    let thread = thread::spawn(move || {
        for (mut unique, byte) in others {
            assert!(unique.iter().all(|&b| b == byte), "S1");
            let byte = !byte;
            unique.fill(byte);
            let lease = unique.freeze();
            let copy = lease.clone();
            assert!(lease.iter().all(|&b| b == byte), "S1");
            drop(lease);
            assert!(copy.iter().all(|&b| b == byte), "S1");
        }
    });
    for i in 0..rounds {
        let (byte, len) = (i as u8, 1 + i % 150);
        let lease = loop {
            match pool.copy(&vec![byte; len]) {
                Some(lease) => break lease,
                // Each time that there is none, one that comes back says so.
                None => wakes.recv().unwrap(),
            }
        };
        leases.send((lease, byte)).unwrap();
        assert!(pool.allocated_bytes() <= 4 * 256, "S4");
    }
    // The pool goes first: the other thread frees what comes back.
    drop(pool);
    drop(leases);
    thread.join().unwrap();
    assert!(shared.upgrade().is_none(), "S3: a chunk was not freed");
}

#[test]
fn a_unique_lease_is_a_slice_that_can_be_written() {
    let mut pool = Pool::new(4096, 1024, Arc::new(|| {}));
    let mut lease = pool.copy(b"abc").expect("there is room");
    AsMut::<[u8]>::as_mut(&mut lease)[1] = b'x';
    assert_eq!(AsRef::<[u8]>::as_ref(&lease), b"axc");
}

/// A lease of nothing takes room: else one chunk would give out leases beyond number.
#[test]
fn empty_leases_use_a_chunk_up() {
    let mut pool = Pool::new(4096, 1024, Arc::new(|| {}));
    let leases: Vec<LeaseMut> = (0..17).map(|_| pool.copy(b"").expect("there is room")).collect();
    assert!(leases.iter().all(|lease| lease.is_empty()));
    assert_eq!(pool.allocated_bytes(), 2048);
    let mut lent = pool.lend(0).expect("a third chunk");
    // SAFETY: no bytes.
    let nothing = unsafe { lent.commit(0) };
    assert!(nothing.is_empty() && nothing.into_lease().is_err());
    pool.take_back(lent);
}

#[test]
fn what_comes_back_is_no_longer_lent() {
    let mut pool = Pool::new(2 * 4096, 4096, Arc::new(|| {}));
    let both = [pool.lend_chunk(), pool.lend_chunk()].map(|lent| lent.expect("room for two"));
    assert_eq!((pool.lent, pool.free.len()), (2, 0));
    both.into_iter().for_each(|lent| pool.take_back(lent));
    assert_eq!((pool.lent, pool.free.len()), (0, 2));
}

/// A kernel refilled its chunks with the last free one, while leases had all chunks of the loop.
#[test]
fn the_last_free_chunk_stays_for_the_loop() {
    let mut pool = Pool::new(4 * 4096, 4096, Arc::new(|| {}));
    let _kept = pool.copy(&[7; 4096]).expect("a chunk");
    let lent = [pool.lend(0), pool.lend(1)].map(|lent| lent.expect("two others are free"));
    assert!(pool.lend(2).is_none(), "the kernel may hold three, but this one is the last");
    assert!(pool.space().is_some());
    lent.into_iter().for_each(|lent| pool.take_back(lent));
    assert!(pool.lend(0).is_some());
}

/// Memory goes back to the pool that it came from, even if another pool is told to take it.
#[test]
fn what_another_pool_has_lent_goes_back_to_that() {
    let mut small = Pool::new(4096, 64, Arc::new(|| {}));
    let mut large = Pool::new(1 << 20, 64 << 10, Arc::new(|| {}));
    let lent = small.lend(0).expect("a chunk");
    large.take_back(lent);
    let whole = large.copy(&[7; 60_000]).expect("a chunk");
    assert_eq!(whole.len(), 60_000);
    assert_eq!(small.allocated_bytes(), 64);
    let again = small.lend(0).expect("the chunk that came back");
    assert_eq!(small.allocated_bytes(), 64);
    small.take_back(again);
}

/// With the feature `trace-buffers`: a chunk is held from when no more is read into it until its
/// last lease drops.
#[cfg(feature = "trace-buffers")]
#[test]
fn the_table_has_what_leases_keep() {
    const BYTES: usize = 4096 + 64; // a size that no other test has
    let count = || {
        let held = crate::memory::trace::held();
        held.iter()
            .filter(|h| h.kind == crate::memory::trace::Kind::Swap && h.bytes == BYTES)
            .count()
    };
    let mut pool = Pool::new(2 * BYTES, BYTES as u32, Arc::new(|| {}));
    let lease = |pool: &mut Pool| {
        let (start, room) = pool.space().expect("a chunk");
        // SAFETY: the pool lends them until `commit`.
        unsafe { start.write_bytes(7, room as usize) };
        // SAFETY: they are written.
        unsafe { pool.commit(room) }
    };
    let first = lease(&mut pool);
    assert_eq!(count(), 0, "it is the pool's as well");
    let second = lease(&mut pool);
    assert_eq!(count(), 1);
    let first = first.freeze();
    let clone = first.clone();
    drop(first);
    assert_eq!(count(), 1);
    drop(clone);
    assert_eq!(count(), 0);
    drop(pool);
    assert_eq!(count(), 1, "the second outlives the pool");
    drop(second);
    assert_eq!(count(), 0);
    let mut pool = Pool::new(2 * BYTES, BYTES as u32, Arc::new(|| {}));
    let lent = pool.lend(0).expect("a chunk");
    pool.take_back(lent);
    assert_eq!(count(), 0);
}
