//! C4: idle timeouts of sources.

use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::{Builder, Done, ErrorKind, Limit, Op, Refusal, Source, Ticket, Watcher};

use crate::common::*;

const SHORT: Duration = Duration::from_millis(20);
/// How late a short timeout may be.
const STEP: Duration = Duration::from_millis(100);
/// The delay that a loaded machine may add; zero where time is virtual.
const LOAD: Duration = Duration::from_secs(10);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn is_virtual<H: Harness>() -> bool {
    H::NAME == "sim"
}

/// The source was idle from at least `from` on, at most `until`: the end of its read is in time.
#[track_caller]
fn expect_idle<H: Harness>(
    b: &mut Bench<H::Driver>,
    read: Ticket,
    (from, until): (Instant, Instant),
    timeout: Duration,
) {
    let c = b.end(read);
    let now = b.watcher.now();
    expect_error(c, ErrorKind::Deadline);
    assert!(now >= from + timeout, "early by {:?}", from + timeout - now);
    // A turn of the simulation takes a microsecond.
    let load = if is_virtual::<H>() { Duration::from_micros(50) } else { LOAD };
    let step = (timeout / 16).max(STEP);
    assert!(now <= until + timeout + step + load, "late by {:?}", now - until - timeout);
}

fn set<D: Driver>(b: &mut Bench<D>, source: Source, timeout: Duration) {
    b.watcher.set_idle_timeout(source, Some(timeout)).expect("a timeout");
}

/// Every kind of read ends, the source lives, and the next read has all of the timeout again.
pub fn an_idle_source_ends_its_reads<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    set(&mut b, here, SHORT);
    assert_eq!(b.watcher.idle_timeout(here), Some(SHORT));
    for op in [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read_into(here, room(9)),
        Op::read_exact(here, room(9), 9),
        Op::read(here).timeout(Duration::from_secs(9999)),
    ] {
        let start = b.watcher.update_now();
        let read = b.submit(op);
        let now = b.watcher.update_now();
        expect_idle::<H>(&mut b, read, (start, now), SHORT);
    }
    assert_eq!(b.watcher.counters().idle_timeouts, 5);
    // Several end together, in their order.
    let start = b.watcher.update_now();
    let reads = [b.submit(Op::read(here)), b.submit(Op::read_exact(here, room(9), 9))];
    for read in reads {
        expect_idle::<H>(&mut b, read, (start, start), SHORT);
    }
    assert_eq!(b.watcher.counters().idle_timeouts, 6);
    // Without a timeout nothing ends.
    assert_eq!(b.watcher.idle_timeout(there), None);
    b.watcher.set_idle_timeout(here, None).unwrap();
    assert_eq!(b.watcher.idle_timeout(here), None);
    let read = b.submit(Op::read(here));
    b.pass(3 * SHORT + STEP);
    assert!(b.is_open(read), "it has no timeout any more");
    b.write(there, "x");
    assert_eq!(&*expect_read(b.end(read)), b"x");
    // And with one again, the only one that there is.
    set(&mut b, here, SHORT);
    let start = b.watcher.update_now();
    let read = b.submit(Op::read(here));
    expect_idle::<H>(&mut b, read, (start, start), SHORT);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// Bytes that come begin the idle time anew, also those of a multishot read.
pub fn bytes_that_are_read_count<H: Harness>() {
    bytes_count::<H>(true, false);
}

/// So do bytes that go out.
pub fn bytes_that_are_written_count<H: Harness>() {
    bytes_count::<H>(false, true);
}

pub fn bytes_in_both_directions_count<H: Harness>() {
    bytes_count::<H>(true, true);
}

fn bytes_count<H: Harness>(come: bool, go: bool) {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let timeout = Duration::from_millis(if is_virtual::<H>() { 4000 } else { 160 });
    set(&mut b, here, timeout);
    let read = b.submit(Op::read(here).multishot());
    let start = b.watcher.update_now();
    let mut rounds = 0;
    // The last bytes move after this.
    let mut last = start;
    while b.watcher.update_now() < start + 4 * timeout {
        rounds += 1;
        // A round that a loaded machine stretches proves nothing.
        let began = b.watcher.now();
        last = began;
        if come && (rounds % 2 == 0 || !go) {
            b.write(there, "x");
        } else {
            b.write(here, "y");
        }
        b.pass(timeout / 4);
        if b.watcher.now() > began + timeout {
            return;
        }
        assert!(b.is_open(read), "bytes have moved in round {rounds}");
    }
    let until = b.watcher.now();
    // The bytes that it has delivered meanwhile.
    loop {
        let c = b.end(read);
        if !c.has_more() {
            expect_unmoved(c, ErrorKind::Deadline);
            break;
        }
        expect_read(c);
    }
    let now = b.watcher.now();
    assert!(now >= last + timeout, "early");
    let load = if is_virtual::<H>() { Duration::ZERO } else { LOAD };
    assert!(now <= until + timeout + (timeout / 16).max(STEP) + load, "late");
    b.watcher.abort(here);
    b.watcher.abort(there);
}

/// A read that has some of its bytes ends with them.
pub fn an_idle_read_keeps_its_bytes<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    set(&mut b, here, SHORT);
    b.write(there, "four");
    let read = b.submit(Op::read_exact(here, room(9), 9));
    let (bytes, buf) = expect_error(b.end(read), ErrorKind::Deadline);
    if bytes == 0 {
        // A loaded machine: the bytes came later.
        return assert_eq!(b.read_exact(here, 4), b"four");
    }
    assert_eq!((bytes, &*buf), (4, &b"four"[..]));
    b.expect_all_ended();
}

/// The time without a read in flight does not count, and what was counted before it stays.
pub fn the_time_without_a_read_does_not_count<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let timeout = Duration::from_millis(if is_virtual::<H>() { 1600 } else { 150 });
    set(&mut b, here, timeout);
    let start = b.watcher.update_now();
    let read = b.submit(Op::read(here));
    b.pass(timeout / 2);
    if !b.is_open(read) || b.watcher.update_now() > start + timeout * 3 / 4 {
        return; // a loaded machine
    }
    assert!(b.watcher.cancel(read));
    expect_unmoved(b.end(read), ErrorKind::Cancelled);
    let paused = b.watcher.update_now();
    b.pass(3 * timeout);
    let read = b.submit(Op::read(here).multishot());
    let resumed = b.watcher.update_now();
    b.look();
    assert!(b.is_open(read), "the pause has counted");
    let pause = resumed - paused;
    // The pause began a little before `paused`, and ended a little before `resumed`.
    expect_idle::<H>(&mut b, read, (start + 3 * timeout, start + pause), timeout);
    // Reads that end by their own deadlines, again and again, count as one.
    let start = b.watcher.update_now();
    let end = loop {
        let read = b.submit(Op::read(here).timeout(timeout / 10));
        let c = b.end(read);
        expect_unmoved(c, ErrorKind::Deadline);
        let now = b.watcher.now();
        if b.watcher.counters().idle_timeouts == 2 {
            break now;
        }
        assert!(now < start + timeout + timeout + LOAD, "short reads are never idle");
    };
    assert!(end >= start + timeout, "early");
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// Reads that stop and start, in phase with the looks of the driver or not, count as one: a source
/// was idle only if a read was in flight when the driver looked.
pub fn reads_that_stop_and_start_can_be_idle<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let timeout = Duration::from_millis(100);
    set(&mut b, here, timeout);
    for (on, off) in [(45, 8), (3, 7), (50, 50)].map(|(a, b)| (ms(a), ms(b))) {
        let before = b.watcher.counters().idle_timeouts;
        let mut counted = Duration::ZERO;
        loop {
            let start = b.watcher.update_now();
            let read = b.submit(Op::read(here));
            b.pass(on);
            let is_idle = !b.is_open(read);
            if !is_idle && !b.watcher.cancel(read) {
                // It has just ended.
                b.look();
            }
            let kind = b.end(read).error_kind();
            counted += b.watcher.update_now() - start;
            if kind == Some(ErrorKind::Deadline) {
                break;
            }
            assert_eq!(kind, Some(ErrorKind::Cancelled));
            let load = if is_virtual::<H>() { Duration::from_millis(1) } else { LOAD };
            assert!(counted <= timeout + STEP + load, "{counted:?} in steps of {on:?}");
            b.pass(off);
        }
        assert!(counted >= timeout, "early: after {counted:?}");
        assert_eq!(b.watcher.counters().idle_timeouts, before + 1);
    }
    b.expect_alive(here, there);
    b.expect_all_ended();
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The time in which a read waits for a lease does not count.
pub fn the_wait_for_a_lease_does_not_count<H: Harness>() {
    let builder: Builder = Watcher::builder().buffer_size(4096).swap_limit(8192);
    let mut b = H::bench_with(builder);
    let (here, there) = b.pair();
    let mut held = Vec::new();
    // Whatever the driver needs to have no free buffer left.
    let (other, far) = b.pair();
    let taker = b.submit(Op::read(other).multishot());
    b.submit(Op::write(far, pattern(64 << 10, 1)));
    for _ in 0..20 {
        b.wait_once(Duration::from_millis(5));
        for c in b.now() {
            if let Ok(Done::Read(data)) = c.result {
                held.push(data);
            }
        }
    }
    assert!(b.is_open(taker) && !held.is_empty());
    set(&mut b, here, SHORT);
    b.write(there, "x");
    let read = b.submit(Op::read(here));
    b.pass(10 * SHORT + 2 * STEP);
    if b.watcher.counters().lease_waits + b.watcher.counters().share_waits == 0 {
        panic!("no read has waited: {:?}", b.watcher.counters());
    }
    assert_eq!(b.watcher.counters().idle_timeouts, 0, "the wait for a lease has counted");
    assert!(b.watcher.cancel(taker));
    held.clear();
    let mut got = 0;
    while got < 1 {
        got = expect_read(b.end(read)).len();
    }
}

/// The end of the file ends every kind of read: the idle time stops, and does not wake the loop.
pub fn the_time_after_the_end_of_a_file_does_not_count<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    set(&mut b, here, SHORT);
    expect_shutdown(b.run(Op::shutdown(there)));
    for op in [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read_into(here, room(9)),
        Op::read_exact(here, room(9), 9),
        Op::read_append(here, room(9)),
    ] {
        let code = op.code();
        let read = b.submit(op);
        assert_eq!(b.end(read).bytes(), 0);
        // The sweep looks once more, and finds no clock that runs.
        b.pass(3 * SHORT + 3 * STEP);
        assert_eq!(b.watcher.next_timeout(), None, "{code:?}");
    }
    assert_eq!(b.watcher.counters().idle_timeouts, 0);
    b.expect_all_ended();
}

/// No timeout and a century: the shortest counts as a millisecond, the longest never comes.
pub fn timeouts_of_zero_and_of_a_century<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for timeout in [Duration::ZERO, Duration::from_nanos(1)] {
        set(&mut b, here, timeout);
        let start = b.watcher.update_now();
        let read = b.submit(Op::read(here));
        let now = b.watcher.update_now();
        expect_idle::<H>(&mut b, read, (start, now), Duration::from_millis(1));
    }
    for timeout in [CENTURY, Duration::MAX, Duration::from_nanos(u64::MAX)] {
        set(&mut b, here, timeout);
        let read = b.submit(Op::read(here));
        b.pass(Duration::from_millis(30));
        assert!(b.is_open(read), "a century has not passed");
        b.write(there, "x");
        assert_eq!(&*expect_read(b.end(read)), b"x");
    }
    b.expect_all_ended();
}

/// A source that cannot have an idle timeout refuses it, and bad ids change nothing.
pub fn bad_idle_timeouts_are_refused<H: Harness>() {
    let mut b = H::bench();
    let (listener, _) = b.listen();
    let (here, there) = b.pair();
    let some = Some(SHORT);
    assert_eq!(b.watcher.set_idle_timeout(listener, some), Err(Refusal::Unsupported));
    assert_eq!(b.watcher.set_idle_timeout(Source::NONE, some), Err(Refusal::Stale));
    b.watcher.abort(there);
    assert_eq!(b.watcher.set_idle_timeout(there, some), Err(Refusal::Stale));
    assert_eq!(b.watcher.set_idle_timeout(there, None), Err(Refusal::Stale));
    b.watcher.close();
    assert_eq!(b.watcher.set_idle_timeout(here, some), Err(Refusal::Closed));
}

/// There may be 255 different timeouts; sources that go, or change theirs, make room.
pub fn different_idle_timeouts_are_bounded<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(129);
    let sources: Vec<Source> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
    let seconds = |i: usize| Duration::from_secs(1000 + i as u64);
    for (i, &source) in sources[..255].iter().enumerate() {
        set(&mut b, source, seconds(i));
    }
    let full = Err(Refusal::Full { limit: Limit::IdleTimeouts, count: 255 });
    let next = sources[255];
    assert_eq!(b.watcher.set_idle_timeout(next, Some(seconds(255))), full);
    // One that there is has room for any number.
    set(&mut b, next, seconds(3));
    set(&mut b, sources[256], seconds(3));
    assert_eq!(b.watcher.set_idle_timeout(next, Some(seconds(255))), full);
    b.watcher.abort(sources[7]);
    set(&mut b, next, seconds(255));
    assert_eq!(b.watcher.set_idle_timeout(sources[256], Some(seconds(300))), full);
    b.watcher.set_idle_timeout(sources[8], None).unwrap();
    set(&mut b, sources[256], seconds(300));
    set(&mut b, sources[256], seconds(300));
}

/// The source of a used place has no timeout of the one before.
pub fn an_idle_timeout_ends_with_its_source<H: Harness>() {
    let mut b = H::bench();
    for _ in 0..3 {
        let (here, there) = b.pair();
        let (other, far) = b.pair();
        let read = b.submit(Op::read(here));
        let second = b.submit(Op::read(other));
        b.pass(3 * SHORT + STEP);
        assert!(b.is_open(read) && b.is_open(second), "an old timeout");
        for source in [here, there, other, far] {
            set(&mut b, source, SHORT);
        }
        b.watcher.abort(here);
        expect_unmoved(b.end(read), ErrorKind::Aborted);
        expect_unmoved(b.end(second), ErrorKind::Deadline);
        let handle = b.watcher.detach(there).expect("nothing is in flight");
        drop(handle);
        for source in [other, far] {
            let close = b.submit(Op::close(source));
            expect_closed(b.end(close));
        }
    }
    b.expect_all_ended();
}

/// Thousands of idle sources end in time, each once, also when it takes the sweep several turns;
/// those on which bytes move do not.
pub fn thousands_of_idle_sources<H: Harness>() {
    let _turn = hungry();
    let mut b = H::bench();
    let pairs = b.pairs(H::MANY.min(2 << 10));
    let timeout = Duration::from_millis(if is_virtual::<H>() { 200 } else { 400 });
    let start = b.watcher.update_now();
    let mut reads = Vec::new();
    for &(here, there) in &pairs {
        set(&mut b, here, timeout);
        set(&mut b, there, CENTURY);
        reads.push((here, b.submit(Op::read(here).multishot())));
    }
    let submitted = b.watcher.update_now();
    for &(here, read) in &reads {
        let c = b.end(read);
        let now = b.watcher.now();
        assert_eq!(c.source, here);
        expect_unmoved(c, ErrorKind::Deadline);
        assert!(now >= start + timeout, "early");
        if is_virtual::<H>() {
            let late = Duration::from_millis(2);
            assert!(now <= submitted + timeout + STEP + late, "late: {:?}", now - submitted);
        }
    }
    assert_eq!(b.watcher.counters().idle_timeouts, reads.len() as u64);
    b.expect_all_ended();
}
