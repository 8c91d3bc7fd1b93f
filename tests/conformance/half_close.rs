//! One direction ends before the other: the matrix of libuv's shutdown and half-open tests.

use std::time::Duration;

use windlass::{Done, ErrorKind, Op, Ready, Refusal, Watcher};

use crate::common::*;

pub fn the_other_direction_goes_on<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let shutdown = b.submit(Op::shutdown(here).token(1));
    let c = b.end(shutdown);
    assert_eq!((c.token, c.source), (1, here));
    expect_shutdown(c);
    assert!(b.read(there).is_empty(), "the peer reads the end");
    for i in 0..10 {
        let bytes = pattern(10_000, i);
        b.write(there, bytes.clone());
        assert_eq!(b.read_exact(here, bytes.len()), bytes);
    }
    let shutdown = b.submit(Op::shutdown(there));
    expect_shutdown(b.end(shutdown));
    assert!(b.read(here).is_empty());
    b.expect_all_ended();
}

/// libuv's tcp_shutdown_after_write; nbio lost what was sent before a half-close (more than three
/// reads of 64 KiB).
pub fn everything_sent_before_arrives<H: Harness>() {
    for builder in [
        Watcher::builder(),
        Watcher::builder().source_budget(1000).turn_budget(1000).buffer_size(4096),
    ] {
        let mut b = H::bench_with(builder);
        let stuck = b.stuck();
        let behind = b.submit(Op::write(stuck.writer, "the end"));
        let shutdown = b.submit(Op::shutdown(stuck.writer));
        b.look();
        assert!(b.is_open(shutdown), "it waits for the writes");
        let got = b.read_to_end(stuck.peer);
        expect_written(b.end(stuck.ticket));
        expect_written(b.end(behind));
        expect_shutdown(b.end(shutdown));
        expect_same(&got[..stuck.bytes.len()], &stuck.bytes);
        assert_eq!(&got[stuck.bytes.len()..], b"the end");
        b.cross(stuck.peer, stuck.writer, b"still open");
        b.expect_all_ended();
    }
}

/// The data and the end come in one event.
pub fn data_and_end_together<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let first = b.submit(Op::read_exact(here, vec![0; 10], 10));
    let second = b.submit(Op::read(here));
    b.look();
    let write = b.submit(Op::write(there, "last words"));
    let close = b.submit(Op::close(there));
    assert_eq!(&*expect_read(b.end(first)), b"last words");
    expect_eof(b.end(second));
    expect_written(b.end(write));
    expect_closed(b.end(close));
    b.expect_all_ended();
}

/// libuv's readable_on_eof: the end stays.
pub fn the_end_of_the_file_stays<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let shutdown = b.submit(Op::shutdown(there));
    expect_shutdown(b.end(shutdown));
    for _ in 0..5 {
        let ops = [Op::read(here), Op::read_into(here, vec![1; 4]), Op::read(here).multishot()];
        for op in ops {
            let ticket = b.submit(op);
            let c = b.end(ticket);
            assert!(!c.has_more());
            expect_eof(c);
        }
    }
    // Writing to a peer that has finished writing works.
    b.cross(here, there, b"still heard");
    b.expect_all_ended();
}

pub fn read_exact_ends_at_the_end_with_what_it_has<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let read = b.submit(Op::read_exact(here, vec![0; 10], 10));
    let next = b.submit(Op::read_exact(here, vec![0; 10], 10));
    b.write(there, "short");
    let shutdown = b.submit(Op::shutdown(there));
    let (bytes, buf) = expect_error(b.end(read), ErrorKind::Eof);
    assert_eq!((bytes, &*buf), (5, &b"short"[..]));
    expect_unmoved(b.end(next), ErrorKind::Eof);
    expect_shutdown(b.end(shutdown));
    b.expect_all_ended();
}

/// libuv's not_writable_after_shutdown.
pub fn writes_after_a_shutdown_fail<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let shutdown = b.submit(Op::shutdown(here));
    let write = b.submit(Op::write(here, "too late"));
    expect_shutdown(b.end(shutdown));
    let back = expect_errno(b.end(write), &[libc::EPIPE]);
    assert_eq!(&*back, b"too late");
    assert!(b.read(there).is_empty());
    b.cross(there, here, b"fine");
    b.expect_all_ended();
}

/// libuv's shutdown_twice: each ends once; the second may say that it is shut already.
pub fn a_second_shutdown_is_harmless<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let first = b.submit(Op::shutdown(stuck.writer));
    let second = b.submit(Op::shutdown(stuck.writer));
    b.read_to_end(stuck.peer);
    expect_shutdown(b.end(first));
    for ticket in [second, b.submit(Op::shutdown(stuck.writer))] {
        let c = b.end(ticket);
        if c.result.is_err() {
            expect_errno(c, &[libc::ENOTCONN]);
        } else {
            expect_shutdown(c);
        }
    }
    b.cross(stuck.peer, stuck.writer, b"fine");
    expect_written(b.end(stuck.ticket));
    b.expect_all_ended();
}

/// libuv's shutdown_simultaneous.
pub fn both_ends_at_once<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let reads = [b.submit(Op::read(here)), b.submit(Op::read(there))];
    let shutdowns = [b.submit(Op::shutdown(here)), b.submit(Op::shutdown(there))];
    for ticket in shutdowns {
        expect_shutdown(b.end(ticket));
    }
    for ticket in reads {
        expect_eof(b.end(ticket));
    }
    assert!(b.watcher.abort(here));
    assert!(b.watcher.abort(there));
    b.expect_all_ended();
}

/// libuv's tcp_write_to_half_open_connection: the peer is gone altogether; writes fail in the end,
/// each once, and do not hang.
pub fn writes_to_a_peer_that_is_gone_fail<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.cross(here, there, b"fine");
    assert!(b.watcher.abort(there));
    let mut failed = 0;
    for _ in 0..100 {
        let write = b.submit(Op::write(here, pattern(1000, 1)));
        let c = b.end(write);
        if c.result.is_err() {
            let back = expect_errno(c, RESET);
            assert_eq!(back.len(), 1000);
            failed += 1;
            if failed == 3 {
                break;
            }
        }
        b.pass(Duration::from_millis(1));
    }
    assert_eq!(failed, 3);
    b.expect_all_ended();
}

/// A pending read learns that the peer is gone while a write fails.
pub fn reads_and_writes_both_learn_of_a_reset<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let read = b.submit(Op::read(stuck.writer));
    let exact = b.submit(Op::read_exact(stuck.writer, vec![0; 4], 4));
    b.look();
    // Unread data: the close resets.
    assert!(b.watcher.abort(stuck.peer));
    let c = b.end(stuck.ticket);
    assert!(c.bytes() > 0);
    expect_errno(c, RESET);
    // The first operation gets the error; after that the stream is at its end.
    for ticket in [read, exact] {
        let c = b.end(ticket);
        match c.error_kind() {
            Some(ErrorKind::Os(errno)) => assert!(RESET.contains(&errno)),
            Some(kind) => assert_eq!(kind, ErrorKind::Eof),
            None => drop(expect_eof(c)),
        }
    }
    b.expect_all_ended();
}

/// The error of a reset is told once, and no byte is taken for it.
pub fn the_error_of_a_reset_is_taken_out_once<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    assert_eq!(b.watcher.take_error(here), Ok(None));
    b.write(here, "never read");
    let arrived = b.submit(Op::poll(there, Ready::READABLE));
    b.end(arrived);
    let poll = b.submit(Op::poll(here, Ready::READ_CLOSED));
    b.look();
    assert!(b.is_open(poll) && b.watcher.abort(there));
    let Ok(Done::Ready(ready)) = b.end(poll).result else { panic!("it is broken") };
    assert!(ready.contains(Ready::ERROR), "{ready:?}");
    let errno = b.watcher.take_error(here).unwrap().expect("an error");
    assert!(RESET.contains(&errno), "{errno}");
    assert_eq!(b.watcher.take_error(here), Ok(None));
    b.watcher.abort(here);
    assert_eq!(b.watcher.take_error(here), Err(Refusal::Stale));
    b.expect_all_ended();
}

/// Shutdown of a listener, or of something shut by abort.
pub fn a_shutdown_after_abort_is_stale<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    b.watcher.abort(here);
    assert_eq!(b.refuse(Op::shutdown(here)).0, Refusal::Stale);
}
