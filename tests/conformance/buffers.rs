//! C5: operations own their buffers; the very same memory comes back however they end.

use std::sync::Arc;
use std::time::Duration;

use windlass::buf_pool::BufPool;
use windlass::{Buf, Done, ErrorKind, Op, Refusal};

use crate::common::*;

pub fn the_same_memory_comes_back_when_done<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for len in [1, 100, 30_000] {
        let bytes = pattern(len, 1);
        let at = bytes.as_ptr();
        let write = b.submit(Op::write(here, bytes));
        let back = expect_written(b.end(write)).into_vec();
        assert_eq!(back.as_ptr(), at);
        let memory = room(len);
        let at = memory.as_ptr();
        let read = b.submit(Op::read_exact(there, memory, len));
        let back = expect_read(b.end(read)).into_vec();
        assert_eq!((back.as_ptr(), back.len()), (at, len));
        // The same vector again and again, its whole capacity each time.
        b.write(here, pattern(len, 2));
        let read = b.submit(Op::read_into(there, back));
        let data = expect_read(b.end(read)).into_vec();
        assert_eq!(data.as_ptr(), at);
        if data.len() < len {
            b.read_exact(there, len - data.len());
        }
    }
}

pub fn the_same_memory_comes_back_from_every_end<H: Harness>() {
    for kind in [ErrorKind::Cancelled, ErrorKind::Deadline, ErrorKind::Aborted, ErrorKind::Closed] {
        let mut b = H::bench();
        let stuck = b.stuck();
        let (read, exact, write) = (vec![1u8; 64], vec![2u8; 64], vec![3u8; 64]);
        let (read_at, exact_at, write_at) = (read.as_ptr(), exact.as_ptr(), write.as_ptr());
        let soon = |op: Op| match kind {
            ErrorKind::Deadline => op.timeout(Duration::from_millis(1)),
            _ => op,
        };
        let tickets = [
            (b.submit(soon(Op::read_into(stuck.writer, read))), read_at),
            (b.submit(soon(Op::read_exact(stuck.writer, exact, 64))), exact_at),
            (b.submit(soon(Op::write(stuck.writer, write))), write_at),
        ];
        match kind {
            ErrorKind::Cancelled => tickets.iter().for_each(|(t, _)| assert!(b.watcher.cancel(*t))),
            ErrorKind::Aborted => assert!(b.watcher.abort(stuck.writer)),
            ErrorKind::Closed => b.watcher.close(),
            _ => {}
        }
        for (i, (ticket, at)) in tickets.into_iter().enumerate() {
            let back = expect_unmoved(b.end(ticket), kind).into_vec();
            assert_eq!(back.as_ptr(), at, "{kind:?}");
            // A read's buffer holds what was read: nothing. A write's is whole.
            assert_eq!(back.len(), if i == 2 { 64 } else { 0 });
            assert_eq!(back.capacity(), 64);
        }
    }
}

pub fn the_same_memory_comes_back_from_a_refusal<H: Harness>() {
    let mut b = H::bench();
    let (listener, _) = b.listen();
    let memory = vec![5u8; 10];
    let at = memory.as_ptr();
    let (reason, op) = b.refuse(Op::write(listener, memory));
    assert_eq!(reason, Refusal::Unsupported);
    let memory = op.into_buf().into_vec();
    assert_eq!((memory.as_ptr(), memory.len()), (at, 10));
    let (reason, op) = b.refuse(Op::read_into(listener, memory));
    assert_eq!(reason, Refusal::Unsupported);
    let memory = op.into_buf().into_vec();
    let (here, _there) = b.pair();
    let (reason, op) = b.refuse(Op::read_exact(here, memory, 11));
    assert_eq!(reason, Refusal::BadCount);
    let memory = op.into_buf().into_vec();
    assert_eq!(memory.as_ptr(), at);
}

pub fn the_same_memory_comes_back_from_a_reset<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let memory = pattern(100, 1);
    let at = memory.as_ptr();
    let write = b.submit(Op::write(stuck.writer, memory));
    assert!(b.watcher.abort(stuck.peer));
    let c = b.end(write);
    assert!(c.result.is_err());
    let Err(error) = c.result else { unreachable!() };
    let memory = error.into_buf().into_vec();
    assert_eq!(memory.as_ptr(), at);
}

/// Every kind of owner can be written; each comes back as what it was.
pub fn every_kind_of_buffer_can_be_written<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let shared: Arc<[u8]> = Arc::from(&b"an Arc"[..]);
    b.write(there, "a lease");
    let lease = b.submit(Op::read(here));
    let lease = expect_read(b.end(lease));
    let lease_len = lease.len();
    b.watcher.cancel_all(here);
    if lease_len < 7 {
        b.read_exact(here, 7 - lease_len);
    }
    let bufs: Vec<(Buf, usize)> = vec![
        (b"a vector".to_vec().into(), 8),
        (b"a box".to_vec().into_boxed_slice().into(), 5),
        (String::from("a string").into(), 8),
        ("a static str".into(), 12),
        (b"static bytes".into(), 12),
        (Arc::clone(&shared).into(), 6),
        (lease, lease_len),
        (Buf::from_owner([7u8; 20]), 20),
        (Buf::list([Buf::from("a "), Buf::from(b"list".to_vec())]), 6),
    ];
    for (buf, len) in bufs {
        assert_eq!(buf.len(), len);
        let text = format!("{buf:?}");
        let write = b.submit(Op::write(here, buf));
        let c = b.end(write);
        let Ok(Done::Written { buf, bytes }) = c.result else { panic!("{text}: {c:?}") };
        assert_eq!(bytes as usize, len, "{text}");
        assert_eq!(format!("{buf:?}"), text, "the same kind of owner");
        let got = b.read_exact(there, len);
        assert_eq!(buf.into_vec(), got, "{text}");
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    b.expect_all_ended();
}

/// One `Arc` in writes to many sources at once: shared, not copied, released by the last.
pub fn a_shared_buffer_in_many_writes<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(50);
    let bytes: Arc<[u8]> = pattern(20_000, 5).into();
    for &(here, _) in &pairs {
        b.submit(Op::write(here, Arc::clone(&bytes)));
    }
    for &(_, there) in &pairs {
        expect_same(&b.read_exact(there, bytes.len()), &bytes);
    }
    for c in b.take(50) {
        expect_written(c);
    }
    assert_eq!(Arc::strong_count(&bytes), 1);
    b.expect_all_ended();
}

/// Buffers that cannot take a byte are refused: a zero-length read would look like the end of the
/// file.
pub fn empty_buffers_are_refused<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    // The element type is inferred: only one kind of `Vec` becomes a buffer.
    let op = Op::read_exact(here, Vec::with_capacity(4), 5);
    assert_eq!(b.refuse(op).0, Refusal::BadCount);
    let empty = Vec::new();
    for op in [
        Op::read_into(here, empty.clone()),
        Op::read_vectored(here, vec![]),
        Op::read_vectored(here, vec![vec![], vec![]]),
        // What cannot be written to has no room.
        Op::read_into(here, "static"),
    ] {
        let code = op.code();
        assert_eq!(b.refuse(op.token(1)).0, Refusal::EmptyBuffer, "{code:?}");
    }
    for (buf, count) in [(empty.clone(), 0), (empty, 1), (vec![0; 4], 0), (vec![0; 4], 9)] {
        let op = Op::read_exact(here, buf, count);
        assert_eq!(b.refuse(op).0, Refusal::BadCount, "{count} bytes");
    }
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// More than one operation moves (`i32::MAX` bytes): refused, not cut. The memory is virtual, or
/// one megabyte named very often.
pub fn buffers_that_are_too_long_are_refused<H: Harness>() {
    const MOST: usize = i32::MAX as usize;
    let mut b = H::bench();
    let (here, there) = b.pair();
    let part: Arc<[u8]> = Arc::from(vec![0u8; 1 << 20]);
    let parts = |count: usize| (0..count).map(|_| Buf::from(Arc::clone(&part)));
    let (reason, op) = b.refuse(Op::write_vectored(here, parts(2048)));
    assert_eq!(reason, Refusal::TooLong);
    assert_eq!(op.into_buf().into_parts().len(), 2048);
    assert_eq!(Arc::strong_count(&part), 1);
    let memory = room(MOST + 1);
    let (reason, op) = b.refuse(Op::read_into(here, memory));
    assert_eq!(reason, Refusal::TooLong);
    let memory = op.into_buf().into_vec();
    let (reason, op) = b.refuse(Op::read_exact(here, memory, MOST + 1));
    assert_eq!(reason, Refusal::TooLong);
    drop(op);
    let op = Op::read_vectored(here, vec![room(1 << 30), room(1 << 30)]);
    assert_eq!(b.refuse(op).0, Refusal::TooLong);
    // The most itself is allowed.
    let read = b.submit(Op::read_into(here, room(MOST)));
    b.write(there, "fits");
    assert!(b"fits".starts_with(&expect_read(b.end(read))));
    let write = b.submit(Op::write_vectored(here, parts(2047)));
    b.look();
    assert!(b.watcher.cancel(write));
    let c = b.end(write);
    assert_eq!(c.error_kind(), Some(ErrorKind::Cancelled));
    drop(c);
    assert_eq!(Arc::strong_count(&part), 1);
}

/// Memory that is not written stays out of sight: a read's length is what was read.
pub fn a_short_read_shows_only_what_was_read<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "abc");
    let read = b.submit(Op::read_exact(here, vec![0xff; 1000], 3));
    let data = expect_read(b.end(read));
    assert_eq!(&*data, b"abc");
    assert_eq!(data.capacity(), 1000);
    // It reads no more than it was asked for.
    b.write(there, "defghi");
    let read = b.submit(Op::read_exact(here, data, 3));
    assert_eq!(&*expect_read(b.end(read)), b"def");
    assert_eq!(b.read_exact(here, 3), b"ghi");
}

/// A list may hold lists: their parts go out, and are filled, one after the other.
pub fn lists_in_lists_are_one_list<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let list = || {
        let inner = Buf::list([Buf::from("b"), Buf::list(["", "cd"])]);
        Buf::list([Buf::from("a"), inner, Buf::from("e")])
    };
    assert_eq!(list().len(), 5);
    assert_eq!(list().into_vec(), b"abcde");
    let write = b.submit(Op::write(here, list()).timeout(BOUND));
    assert_eq!(expect_written(b.end(write)).into_vec(), b"abcde");
    let inner = Buf::list([room(2), room(2)]);
    let read = Op::read_exact(there, Buf::list([Buf::from(room(2)), inner]), 5);
    let read = b.submit(read.timeout(BOUND));
    assert_eq!(expect_read(b.end(read)).into_vec(), b"abcde");
    b.expect_all_ended();
}

/// Every completion and every refusal returns its buffer, so a traced pool misses none.
pub fn buffers_of_a_pool_come_back_from_every_end<H: Harness>() {
    let pool = BufPool::traced(64 << 10, 1 << 20);
    for kind in [ErrorKind::Cancelled, ErrorKind::Deadline, ErrorKind::Aborted, ErrorKind::Closed] {
        let mut b = H::bench();
        let (here, there) = b.pair();
        for _ in 0..3 {
            let mut text = pool.take(1000);
            pool.append(&mut text, &pattern(3000, 1));
            let write = b.submit(Op::write(here, text));
            pool.give(expect_written(b.end(write)));
            let read = b.submit(Op::read_exact(there, pool.take(3000), 3000));
            let data = expect_read(b.end(read));
            assert_eq!(&*data, pattern(3000, 1));
            pool.give(data);
            // A list gives its parts back.
            let list = Buf::list([pool.take(64), pool.take(1)]);
            let (reason, op) = b.refuse(Op::read_exact(there, list, 0));
            assert_eq!(reason, Refusal::BadCount);
            pool.give(op.into_buf());
        }
        let stuck = b.stuck();
        let mut text = pool.take(64);
        pool.append(&mut text, b"more");
        let soon = |op: Op| match kind {
            ErrorKind::Deadline => op.timeout(Duration::from_millis(1)),
            _ => op,
        };
        let tickets = [
            b.submit(soon(Op::read_into(stuck.writer, pool.take(64)))),
            b.submit(soon(Op::read_into(stuck.writer, pool.take_aligned(64)))),
            b.submit(soon(Op::write(stuck.writer, text))),
        ];
        match kind {
            ErrorKind::Cancelled => tickets.iter().for_each(|t| assert!(b.watcher.cancel(*t))),
            ErrorKind::Aborted => assert!(b.watcher.abort(stuck.writer)),
            ErrorKind::Closed => b.watcher.close(),
            _ => {}
        }
        for ticket in tickets {
            pool.give(expect_unmoved(b.end(ticket), kind));
        }
        let report = pool.report().expect("it is traced");
        assert!(report.places.is_empty() && report.foreign == 0, "{kind:?}: {report}");
    }
    let counters = pool.counters();
    assert_eq!((counters.outstanding(), counters.freed), (0, 0), "{counters:?}");
    assert!(counters.allocated < 10, "they were not used again: {counters:?}");
}
