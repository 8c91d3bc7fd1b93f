//! C6: cancel is a request; the completion is the answer, with the bytes that had moved.

use std::time::Duration;

use windlass::{Address, ErrorKind, Op};

use crate::common::*;

pub fn every_kind_of_read_can_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let ops = [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read(here).timeout(Duration::from_secs(9999)),
        Op::read_into(here, vec![0; 8]),
        Op::read_exact(here, vec![0; 8], 8),
        Op::read_vectored(here, vec![vec![0; 8], vec![0; 8]]),
    ];
    for op in ops {
        let code = op.code();
        let ticket = b.submit(op.token(3));
        b.look();
        assert!(b.watcher.cancel(ticket), "{code:?}");
        let c = b.end(ticket);
        assert_eq!((c.token, c.source), (3, here));
        expect_unmoved(c, ErrorKind::Cancelled);
        assert!(!b.watcher.cancel(ticket), "{code:?} has ended");
        b.expect_alive(here, there);
    }
    b.expect_all_ended();
}

pub fn what_waits_behind_a_write_can_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let write = b.submit(Op::write(stuck.writer, "x"));
    let shutdown = b.submit(Op::shutdown(stuck.writer));
    let close = b.submit(Op::close(stuck.writer));
    for ticket in [close, shutdown, write] {
        assert!(b.watcher.cancel(ticket));
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    // Neither shut nor closed.
    let later = b.submit(Op::write(stuck.writer, "later"));
    let got = b.read_exact(stuck.peer, stuck.bytes.len() + 5);
    assert_eq!(&got[stuck.bytes.len()..], b"later");
    expect_written(b.end(later));
    expect_written(b.end(stuck.ticket));
    b.expect_all_ended();
}

pub fn accepts_and_timers_can_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    for op in [
        Op::accept(listener),
        Op::accept(listener).multishot(),
        Op::timer(Duration::from_secs(9999)),
    ] {
        let ticket = b.submit(op);
        b.look();
        assert!(b.watcher.cancel(ticket));
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
        assert!(!b.watcher.cancel(ticket));
    }
    let (here, there) = b.connect(listener, &at);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A multishot accept that has delivered connections ends with its cancel, once.
pub fn a_multishot_accept_ends_with_its_cancel<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener).multishot());
    for _ in 0..5 {
        let connect = b.submit(Op::connect(at.clone()));
        expect_connected(b.end(connect));
        let c = b.end(accept);
        assert!(c.has_more());
        expect_accepted(c);
    }
    assert!(b.watcher.cancel(accept));
    expect_unmoved(b.end(accept), ErrorKind::Cancelled);
    b.expect_all_ended();
}

/// Partial bytes are kept and counted.
pub fn a_cancelled_read_exact_keeps_its_bytes<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let memory = vec![9; 100];
    let at = memory.as_ptr();
    let ticket = b.submit(Op::read_exact(here, memory, 100));
    b.write(there, "some");
    // The bytes are taken while the read waits for more.
    b.pass(Duration::from_millis(5));
    b.look();
    assert!(b.watcher.cancel(ticket));
    let (bytes, buf) = expect_error(b.end(ticket), ErrorKind::Cancelled);
    assert_eq!((bytes, &*buf), (4, &b"some"[..]));
    let back = buf.into_vec();
    assert_eq!(back.as_ptr(), at);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

pub fn a_cancelled_write_says_how_much_is_out<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    assert!(b.watcher.cancel(stuck.ticket));
    let (sent, buf) = expect_error(b.end(stuck.ticket), ErrorKind::Cancelled);
    assert!(sent > 0);
    expect_same(&buf, &stuck.bytes);
    let close = b.submit(Op::close(stuck.writer));
    let got = b.read_to_end(stuck.peer);
    expect_same(&got, &stuck.bytes[..sent]);
    expect_closed(b.end(close));
    b.expect_all_ended();
}

/// A ticket names one operation for ever: its place is used again, it is not.
pub fn a_stale_ticket_never_reaches_another_operation<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut old = Vec::new();
    for i in 0..300 {
        let ticket = b.submit(Op::read(here).token(i));
        for &stale in &old {
            assert_ne!(ticket, stale, "a ticket is not used twice");
            assert!(!b.watcher.cancel(stale));
        }
        b.write(there, "x");
        expect_read(b.end(ticket));
        old.push(ticket);
    }
    b.expect_all_ended();
}

/// The tickets of operations that ended within submit are stale too.
pub fn an_operation_that_has_ended_cannot_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let nop = b.submit(Op::nop());
    b.end(nop);
    assert!(!b.watcher.cancel(nop));
    let write = b.submit(Op::write(here, "x"));
    expect_written(b.end(write));
    assert!(!b.watcher.cancel(write));
    assert_eq!(b.read(there), b"x");
    b.expect_all_ended();
}

/// After both answers of a cancel, the operation ends exactly once.
pub fn a_cancel_before_the_delivery_is_answered_once<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for i in 0..100 {
        b.write(there, "x");
        let ticket = b.submit(Op::read(here));
        if i % 2 == 0 {
            b.pass(Duration::from_micros(100));
        }
        let cancelled = b.watcher.cancel(ticket);
        let c = b.end(ticket);
        match c.error_kind() {
            // A cancel may come too late.
            None if H::STAMP == "completing_faults" => {}
            None => assert!(!cancelled, "it was done, not cancelled"),
            Some(kind) => {
                assert_eq!((kind, cancelled), (ErrorKind::Cancelled, true));
                assert_eq!(b.read(here), b"x", "a cancelled read takes nothing");
            }
        }
    }
    b.expect_all_ended();
}

pub fn cancel_all_ends_every_operation_of_a_source<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let other = b.pair();
    let bystander = b.submit(Op::read(other.0));
    let tickets = [
        b.submit(Op::read(stuck.writer)),
        b.submit(Op::read_exact(stuck.writer, vec![0; 4], 4)),
        b.submit(Op::write(stuck.writer, "behind")),
        b.submit(Op::shutdown(stuck.writer)),
    ];
    assert_eq!(b.watcher.cancel_all(stuck.writer), 5);
    assert_eq!(b.watcher.cancel_all(stuck.writer), 0);
    expect_error(b.end(stuck.ticket), ErrorKind::Cancelled);
    for ticket in tickets {
        let c = b.end(ticket);
        let kind = c.error_kind();
        assert!(matches!(kind, Some(ErrorKind::Cancelled | ErrorKind::Torn)), "{c:?}");
        assert_eq!(c.bytes(), 0);
    }
    assert!(b.is_open(bystander));
    // The source lives.
    b.cross(stuck.peer, stuck.writer, b"alive");
    b.watcher.abort(other.0);
    expect_unmoved(b.end(bystander), ErrorKind::Aborted);
    b.expect_all_ended();
}

/// Connects are cancelled in every state; nothing of them is left.
pub fn a_connect_can_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (_listener, at): (_, Address) = b.listen();
    let before = b.watcher.counters().sources;
    for _ in 0..50 {
        let ticket = b.submit(Op::connect(at.clone()));
        let cancelled = b.watcher.cancel(ticket);
        let c = b.end(ticket);
        assert!(c.source.is_none());
        match c.error_kind() {
            None => assert!(!cancelled),
            Some(kind) => assert_eq!((kind, cancelled), (ErrorKind::Cancelled, true)),
        }
    }
    assert_eq!(b.watcher.counters().sources, before);
    b.expect_all_ended();
}
