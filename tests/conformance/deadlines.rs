//! C4: deadlines of reads and writes, one meaning on every driver.

use std::time::Duration;

use windlass::{Done, ErrorKind, Op};

use crate::common::*;

const SHORT: Duration = Duration::from_millis(10);

/// gaio's TestDeadline; the source is usable afterwards.
pub fn reads_of_every_kind_expire_and_the_source_lives<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for round in 0..3 {
        let ops = [
            Op::read(here),
            Op::read(here).multishot(),
            Op::read_into(here, room(10)),
            Op::read_exact(here, room(10), 10),
            Op::read_vectored(here, vec![vec![0; 4], vec![0; 4]]),
        ];
        for op in ops {
            let (code, start) = (op.code(), b.watcher.now());
            let ticket = b.submit(op.timeout(SHORT));
            let c = b.end(ticket);
            assert!(b.watcher.now() >= start + SHORT, "{code:?} in round {round} is early");
            expect_unmoved(c, ErrorKind::Deadline);
        }
        b.expect_alive(here, there);
    }
    b.expect_all_ended();
}

/// gaio's second half: a write until the peer's window is full.
pub fn a_write_to_a_silent_peer_expires_with_its_count<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.narrow(here);
    let bytes = pattern(4 << 20, 4);
    let start = b.watcher.now();
    let ticket = b.submit(Op::write(here, bytes.clone()).timeout(SHORT));
    let (sent, _) = expect_error(b.end(ticket), ErrorKind::Deadline);
    assert!(b.watcher.now() >= start + SHORT);
    expect_same(&b.read_exact(there, sent), &bytes[..sent]);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

pub fn read_exact_expires_with_what_it_has<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let ticket = b.submit(Op::read_exact(here, vec![9; 10], 10).timeout(SHORT));
    b.write(there, "four");
    let (bytes, buf) = expect_error(b.end(ticket), ErrorKind::Deadline);
    assert_eq!((bytes, &*buf), (4, &b"four"[..]));
    b.expect_alive(here, there);
}

/// Its completions do not extend the deadline.
pub fn a_deadline_of_a_multishot_is_for_its_whole_life<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let span = Duration::from_millis(60);
    let start = b.watcher.now();
    let ticket = b.submit(Op::read(here).multishot().timeout(span));
    let mut reads = 0;
    let end = 'run: loop {
        assert!(b.watcher.now() < start + 100 * span, "{reads} reads extended the deadline");
        b.write(there, "x");
        b.pass(span / 12);
        for c in b.now() {
            assert_eq!((c.ticket(), c.has_more()), (ticket, c.result.is_ok()));
            match c.result {
                Ok(Done::Read(data)) => reads += data.len(),
                _ => break 'run c,
            }
        }
    };
    assert!(b.watcher.now() >= start + span && reads >= 2, "{reads} reads");
    expect_unmoved(end, ErrorKind::Deadline);
    b.expect_all_ended();
}

pub fn a_passed_deadline_without_data_expires<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.pass(Duration::from_millis(1));
    let past = b.watcher.now() - Duration::from_millis(1);
    for op in [Op::read(here), Op::read_exact(here, vec![0; 5], 5)] {
        let ticket = b.submit(op.deadline(past));
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
    }
    b.expect_alive(here, there);
}

/// Behind another one it has no try, and the one before it does not suffer.
pub fn a_passed_deadline_behind_another_read_expires<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.pass(Duration::from_millis(1));
    let past = b.watcher.now() - Duration::from_millis(1);
    let first = b.submit(Op::read_exact(here, vec![0; 5], 5));
    let second = b.submit(Op::read(here).deadline(past));
    expect_unmoved(b.end(second), ErrorKind::Deadline);
    b.write(there, "first");
    assert_eq!(&*expect_read(b.end(first)), b"first");
    b.expect_all_ended();
}

/// Never early, also for spans below a millisecond; relative ones count from the submission.
pub fn never_early<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    for micros in [1, 50, 400, 999, 1000, 1001, 1999, 5300] {
        let span = Duration::from_micros(micros);
        let op = Op::read(here).timeout(span);
        let timer = Op::timer(span);
        // An operation may lie about before it is submitted.
        b.pass(Duration::from_millis(3));
        let start = b.watcher.now();
        let (read, timer) = (b.submit(op), b.submit(timer));
        expect_unmoved(b.end(read), ErrorKind::Deadline);
        assert!(b.watcher.now() >= start + span, "{span:?}");
        expect_timer(b.end(timer));
        assert!(b.watcher.now() >= start + span, "{span:?}");
        let at = b.watcher.now() + span;
        let read = b.submit(Op::read(here).deadline(at));
        expect_unmoved(b.end(read), ErrorKind::Deadline);
        assert!(b.watcher.now() >= at, "{span:?}, absolute");
    }
}

/// An operation that ends before its deadline leaves nothing behind in the heap.
pub fn a_deadline_that_is_not_needed_never_fires<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for i in 0..500 {
        let ticket = b.submit(Op::read(here).timeout(Duration::from_millis(2)).token(i));
        b.write(there, "x");
        let c = b.end(ticket);
        // On a loaded machine the deadline may have come first; then the byte is still there.
        if c.error_kind() == Some(ErrorKind::Deadline) {
            assert_eq!(b.read(here), b"x");
        } else {
            expect_read(c);
        }
    }
    b.pass(Duration::from_millis(5));
    b.expect_all_ended();
}

pub fn a_huge_timeout_does_not_fire<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let ticket = b.submit(Op::read(here).timeout(Duration::MAX));
    let second = b.submit(Op::read(here).timeout(Duration::from_nanos(u64::MAX)));
    b.look();
    assert!(b.is_open(ticket) && b.is_open(second));
    b.write(there, "x");
    expect_read(b.end(ticket));
    assert!(b.watcher.cancel(second));
    expect_unmoved(b.end(second), ErrorKind::Cancelled);
}

/// gaio's TestDeadline1k and 8k: every one exactly once (the ledger counts).
fn many<H: Harness>(connections: usize) {
    let connections = connections.min(H::MANY);
    let _turn = hungry();
    let mut b = H::bench();
    let pairs = b.pairs(connections);
    let mut random = Random::new(connections as u64);
    let start = b.watcher.now();
    let mut spans = std::collections::HashMap::new();
    for &(here, _) in &pairs {
        let span = Duration::from_micros(random.below(100_000) as u64);
        spans.insert(b.submit(Op::read(here).timeout(span)), span);
    }
    for _ in 0..connections {
        let c = b.next();
        let span = spans.remove(&c.ticket()).expect("each once");
        assert!(b.watcher.now() >= start + span);
        expect_unmoved(c, ErrorKind::Deadline);
    }
    b.expect_all_ended();
}

pub fn a_thousand_deadlines<H: Harness>() {
    many::<H>(1 << 10);
}

pub fn eight_thousand_deadlines<H: Harness>() {
    many::<H>(8 << 10);
}

/// Operations of the writing side wait behind a stuck write; their deadlines fire there.
pub fn what_waits_behind_a_write_expires<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let write = b.submit(Op::write(stuck.writer, "x").timeout(SHORT));
    let shutdown = b.submit(Op::shutdown(stuck.writer).timeout(SHORT));
    expect_unmoved(b.end(write), ErrorKind::Deadline);
    expect_unmoved(b.end(shutdown), ErrorKind::Deadline);
    let close = b.submit(Op::close(stuck.writer).timeout(SHORT));
    expect_unmoved(b.end(close), ErrorKind::Deadline);
    // The source stays as it is: not shut, not closed, and it takes operations.
    assert!(b.is_open(stuck.ticket));
    let later = b.submit(Op::write(stuck.writer, "later"));
    let got = b.read_exact(stuck.peer, stuck.bytes.len() + 5);
    assert_eq!(&got[stuck.bytes.len()..], b"later");
    expect_written(b.end(stuck.ticket));
    expect_written(b.end(later));
    b.expect_all_ended();
}

pub fn an_accept_expires_and_the_listener_lives<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    for op in [Op::accept(listener), Op::accept(listener).multishot()] {
        let ticket = b.submit(op.timeout(SHORT));
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
    }
    let (here, there) = b.connect(listener, &at);
    b.expect_alive(here, there);
}
