//! Queued bytes, drains and the bound on queued writes: what a program needs against slow peers.

use std::time::Duration;

use windlass::{Completion, Done, ErrorKind, Limit, Op, Overflow, Ready, Refusal, Watcher};

use crate::common::*;

#[track_caller]
fn expect_drained(c: Completion) {
    match c.result {
        Ok(Done::Drained) => {}
        other => panic!("wanted a drain: {other:?}"),
    }
}

/// What is queued is what was accepted and is not out; it falls as the peer reads, to nothing.
pub fn queued_bytes_count_what_is_not_out<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let first = b.watcher.queued_bytes(stuck.writer).unwrap();
    assert!(first > 0 && first < stuck.bytes.len());
    b.submit(Op::write(stuck.writer, pattern(1000, 1)));
    let parts = vec![pattern(300, 1).into(), pattern(34, 1).into()];
    b.submit(Op::write_vectored(stuck.writer, parts));
    assert_eq!(b.watcher.queued_bytes(stuck.writer).unwrap(), first + 1334);
    assert_eq!(b.watcher.queued_bytes(stuck.peer).unwrap(), 0);
    let mut last = first + 1334;
    for _ in 0..4 {
        b.read_exact(stuck.peer, 1 << 18);
        let now = b.watcher.queued_bytes(stuck.writer).unwrap();
        assert!(now <= last, "it grows");
        last = now;
    }
    assert!(last < first);
    b.read_exact(stuck.peer, stuck.bytes.len() + 1334 - (4 << 18));
    assert_eq!(b.take(3).into_iter().map(expect_written).count(), 3);
    assert_eq!(b.watcher.queued_bytes(stuck.writer).unwrap(), 0);
    b.watcher.abort(stuck.writer);
    assert_eq!(b.watcher.queued_bytes(stuck.writer), Err(Refusal::Stale));
    b.expect_all_ended();
}

/// However a queued write ends, its bytes are no longer queued.
pub fn queued_bytes_fall_however_a_write_ends<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let first = b.watcher.queued_bytes(stuck.writer).unwrap();
    let cancelled = b.submit(Op::write(stuck.writer, vec![1; 500]));
    assert!(b.watcher.cancel(cancelled));
    b.end(cancelled);
    let expired = Op::write(stuck.writer, vec![1; 500]).timeout(Duration::from_millis(1));
    let expired = b.submit(expired);
    expect_unmoved(b.end(expired), ErrorKind::Deadline);
    assert!(b.watcher.queued_bytes(stuck.writer).unwrap() <= first);
    let torn = b.submit(Op::write(stuck.writer, vec![1; 500]));
    let drained = b.submit(Op::wait_drained(stuck.writer, 0));
    b.look();
    assert!(b.is_open(drained));
    assert!(b.watcher.cancel(stuck.ticket));
    expect_error(b.end(stuck.ticket), ErrorKind::Cancelled);
    expect_unmoved(b.end(torn), ErrorKind::Torn);
    assert_eq!(b.watcher.queued_bytes(stuck.writer).unwrap(), 0);
    expect_drained(b.end(drained));
    b.expect_all_ended();
}

/// A drain ends when few enough bytes are left, not before, and takes no part in the order.
pub fn a_drain_tells_when_few_bytes_are_left<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let low = 1 << 20;
    let few = b.submit(Op::wait_drained(stuck.writer, low).token(3));
    let none = b.submit(Op::wait_drained(stuck.writer, 0));
    let any = b.submit(Op::wait_drained(stuck.writer, usize::MAX));
    expect_drained(b.end(any));
    b.look();
    assert!(b.is_open(few) && b.is_open(none));
    let mut read = 0;
    while b.is_open(few) {
        assert!(b.watcher.queued_bytes(stuck.writer).unwrap() > low);
        read += b.read(stuck.peer).len();
        assert!(read <= stuck.bytes.len(), "it never tells");
    }
    assert!(b.watcher.queued_bytes(stuck.writer).unwrap() <= low);
    let c = b.end(few);
    assert_eq!((c.token, c.source), (3, stuck.writer));
    expect_drained(c);
    assert!(b.is_open(none));
    b.read_exact(stuck.peer, stuck.bytes.len() - read);
    expect_written(b.end(stuck.ticket));
    expect_drained(b.end(none));
    // Nothing is queued: at once.
    let now = b.submit(Op::wait_drained(stuck.writer, 0));
    expect_drained(b.end(now));
    b.expect_all_ended();
}

pub fn drains_end_like_other_operations<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let expired = b.submit(Op::wait_drained(stuck.writer, 0).timeout(Duration::from_millis(1)));
    expect_unmoved(b.end(expired), ErrorKind::Deadline);
    let cancelled = b.submit(Op::wait_drained(stuck.writer, 0));
    assert!(b.watcher.cancel(cancelled));
    assert!(!b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    let aborted = b.submit(Op::wait_drained(stuck.writer, 0));
    assert!(b.watcher.abort(stuck.writer));
    // The writes went with the source; nothing has drained.
    expect_unmoved(b.end(aborted), ErrorKind::Aborted);
    assert_eq!(b.refuse(Op::wait_drained(stuck.writer, 0)).0, Refusal::Stale);
    let stuck = b.stuck();
    let closed = b.submit(Op::wait_drained(stuck.writer, 0));
    b.watcher.close();
    expect_unmoved(b.end(closed), ErrorKind::Closed);
}

/// C9: the bound on queued bytes is named by its refusal; one that finds none queued is accepted.
pub fn a_full_queue_of_writes_refuses<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().write_limit(100_000));
    let stuck = b.stuck();
    let full = Refusal::Full { limit: Limit::Writes, count: 100_000 };
    let memory = vec![7; 10];
    let at = memory.as_ptr();
    let (reason, op) = b.refuse(Op::write(stuck.writer, memory));
    assert_eq!(reason, full);
    let memory = op.into_buf().into_vec();
    assert_eq!((memory.as_ptr(), memory.len()), (at, 10));
    let list = Op::write_vectored(stuck.writer, vec!["a".into(), "b".into()]);
    assert_eq!(b.refuse(list).0, full);
    // What writes nothing is not concerned; nor is another source, nor the other direction.
    let shutdown = b.submit(Op::shutdown(stuck.writer));
    assert!(b.watcher.cancel(shutdown));
    b.end(shutdown);
    b.cross(stuck.peer, stuck.writer, b"the other way");
    let (here, there) = b.pair();
    b.expect_alive(here, there);
    // Room again.
    let drained = b.submit(Op::wait_drained(stuck.writer, 0));
    b.read_exact(stuck.peer, stuck.bytes.len());
    expect_drained(b.end(drained));
    expect_written(b.end(stuck.ticket));
    b.expect_alive(stuck.writer, stuck.peer);
    b.expect_all_ended();
}

/// A write beyond the bound is accepted, and ends with all other operations of its source, each
/// once. The source is aborted, and other sources are unaffected.
pub fn an_overflow_of_writes_closes_the_source<H: Harness>() {
    let builder = Watcher::builder().write_limit(100_000);
    let mut b = H::bench_with(builder.write_overflow(Overflow::Close));
    let (here, there) = b.pair();
    for list in [false, true] {
        let stuck = b.stuck();
        let writer = stuck.writer;
        let mut others = vec![
            b.submit(Op::read(writer)),
            b.submit(Op::read(writer).timeout(Duration::from_secs(3600))),
            b.submit(Op::read_into(writer, vec![0; 10])),
            b.submit(Op::poll(writer, Ready::READABLE)),
            b.submit(Op::wait_drained(writer, 0)),
            b.submit(Op::shutdown(writer)),
        ];
        b.look();
        assert!(others.iter().all(|&ticket| b.is_open(ticket)));
        let memory = vec![7; 10];
        let at = memory.as_ptr();
        let last = if list {
            Op::write_vectored(writer, vec![memory.into(), "b".into()])
        } else {
            Op::write(writer, memory)
        };
        let last = b.submit(last.token(9).timeout(Duration::from_secs(3600)));
        // The descriptor is closed once the kernel has released it; the name is stale at once.
        assert_eq!(b.refuse(Op::write(writer, "more")).0, Refusal::Stale);
        assert!(!b.watcher.abort(writer) && !b.watcher.cancel(last));
        let (sent, back) = expect_error(b.end(stuck.ticket), ErrorKind::Overflow);
        assert!(sent > 0 && sent < stuck.bytes.len() && back.len() == stuck.bytes.len());
        for ticket in others.drain(..) {
            expect_unmoved(b.end(ticket), ErrorKind::Overflow);
        }
        let c = b.end(last);
        assert_eq!((c.token, c.source), (9, writer));
        let back = expect_unmoved(c, ErrorKind::Overflow);
        assert_eq!(back.parts().iter().map(|part| part.len()).sum::<usize>(), 10 + list as usize);
        assert_eq!(back.parts()[0].as_slice().as_ptr(), at, "its own buffer");
        // The peer reads what was sent, and the end.
        let mut heard = 0;
        let end = loop {
            match b.run(Op::read(stuck.peer)).result {
                Ok(Done::Read(data)) if data.is_empty() => break None,
                Ok(Done::Read(data)) => heard += data.len(),
                Ok(other) => panic!("{other:?}"),
                Err(error) => break Some(error.kind()),
            }
        };
        assert!(heard == sent || end.is_some(), "{heard} of {sent}, then {end:?}");
        b.watcher.abort(stuck.peer);
        b.expect_all_ended();
        assert_eq!(b.watcher.counters().in_flight, 0);
    }
    // A write on an empty queue is accepted at any length, as before.
    b.narrow(here);
    let whole = b.submit(Op::write(here, pattern(1 << 20, 1)));
    expect_same(&b.read_exact(there, 1 << 20), &pattern(1 << 20, 1));
    expect_written(b.end(whole));
    b.expect_alive(here, there);
    assert_eq!(b.watcher.counters().sources, 2);
    b.expect_all_ended();
}

/// A request of another thread has its reserved ticket already. Whether the write is refused or
/// closes its source, tickets stay unique: later requests of the same turn, for any source, end
/// once.
pub fn an_overflow_may_come_from_another_thread<H: Harness>() {
    for overflow in [Overflow::Refuse, Overflow::Close] {
        let builder = Watcher::builder().write_limit(1000).write_overflow(overflow).id_reserve(8);
        let mut b = H::bench_with(builder);
        let (here, there) = b.pair();
        let submitter = b.submitter();
        for round in 0..30 {
            let stuck = b.small_stuck();
            let writer = stuck.writer;
            let read = b.submit(Op::read(writer));
            let timer = b.submit(Op::timer(Duration::from_secs(3600)));
            let tickets = std::thread::scope(|scope| {
                let ops = [
                    Op::write(here, "before"),
                    Op::write(writer, vec![7; 10]),
                    Op::write(here, "behind"),
                    Op::write(writer, "more"),
                    Op::read_exact(here, room(6), 6),
                ];
                let submit = || ops.map(|op| submitter.submit(op.token(round)).unwrap());
                scope.spawn(submit).join().unwrap()
            });
            let [before, first, behind, second, reading] = tickets;
            for ticket in [before, behind] {
                expect_written(b.end(ticket));
            }
            let back = if overflow == Overflow::Close {
                let (sent, _) = expect_error(b.end(stuck.ticket), ErrorKind::Overflow);
                assert!(sent < stuck.bytes.len());
                expect_unmoved(b.end(read), ErrorKind::Overflow);
                expect_unmoved(b.end(second), ErrorKind::Aborted);
                assert!(!b.watcher.abort(writer));
                expect_unmoved(b.end(first), ErrorKind::Overflow)
            } else {
                expect_errno(b.end(second), &[libc::ENOBUFS]);
                let back = expect_errno(b.end(first), &[libc::ENOBUFS]);
                assert!(b.is_open(stuck.ticket) && b.is_open(read) && b.watcher.abort(writer));
                expect_error(b.end(stuck.ticket), ErrorKind::Aborted);
                expect_unmoved(b.end(read), ErrorKind::Aborted);
                back
            };
            assert_eq!(back.as_slice(), [7; 10]);
            assert!(b.watcher.cancel(timer));
            expect_unmoved(b.end(timer), ErrorKind::Cancelled);
            assert_eq!(b.read_exact(there, 12), b"beforebehind");
            b.write(there, "answer");
            let answer = b.end(reading);
            assert_eq!(answer.token, round);
            assert_eq!(expect_read(answer).as_slice(), b"answer");
            b.watcher.abort(stuck.peer);
            let counters = b.watcher.counters();
            assert_eq!((counters.in_flight, counters.sources), (0, 2), "round {round}");
        }
        b.expect_all_ended();
    }
}
