//! Queued bytes, drains and the bound on queued writes: what a program needs against slow peers.

use std::time::Duration;

use windlass::{Completion, Done, ErrorKind, Limit, Op, Reason, Watcher};

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
    b.watcher.free(stuck.writer);
    assert_eq!(b.watcher.queued_bytes(stuck.writer), Err(Reason::Stale));
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
    let drained = b.submit(Op::drained(stuck.writer, 0));
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
    let few = b.submit(Op::drained(stuck.writer, low).token(3));
    let none = b.submit(Op::drained(stuck.writer, 0));
    let any = b.submit(Op::drained(stuck.writer, usize::MAX));
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
    let now = b.submit(Op::drained(stuck.writer, 0));
    expect_drained(b.end(now));
    b.expect_all_ended();
}

pub fn drains_end_like_other_operations<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let expired = b.submit(Op::drained(stuck.writer, 0).timeout(Duration::from_millis(1)));
    expect_unmoved(b.end(expired), ErrorKind::Deadline);
    let cancelled = b.submit(Op::drained(stuck.writer, 0));
    assert!(b.watcher.cancel(cancelled));
    assert!(!b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    let freed = b.submit(Op::drained(stuck.writer, 0));
    assert!(b.watcher.free(stuck.writer));
    // The writes went with the source; nothing has drained.
    expect_unmoved(b.end(freed), ErrorKind::Freed);
    assert_eq!(b.refuse(Op::drained(stuck.writer, 0)).0, Reason::Stale);
    let stuck = b.stuck();
    let closed = b.submit(Op::drained(stuck.writer, 0));
    b.watcher.close();
    expect_unmoved(b.end(closed), ErrorKind::Closed);
}

/// C9: the bound on queued bytes is named by its refusal; one that finds none queued is accepted.
pub fn a_full_queue_of_writes_refuses<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().write_limit(100_000));
    let stuck = b.stuck();
    let full = Reason::Full { limit: Limit::Writes, count: 100_000 };
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
    let drained = b.submit(Op::drained(stuck.writer, 0));
    b.read_exact(stuck.peer, stuck.bytes.len());
    expect_drained(b.end(drained));
    expect_written(b.end(stuck.ticket));
    b.expect_alive(stuck.writer, stuck.peer);
    b.expect_all_ended();
}
