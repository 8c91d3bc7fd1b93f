//! C7: abort, close, drop, with everything pending.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Buf, Completions, ErrorKind, Op, Refusal, Ticket};

use crate::common::*;

/// One operation of every kind that can wait, on several sources.
fn everything<D: Driver>(b: &mut Bench<D>) -> (Stuck, Vec<Ticket>) {
    let stuck = b.stuck();
    let (listener, _) = b.listen();
    let w = stuck.writer;
    let tickets = vec![
        stuck.ticket,
        b.submit(Op::read(w)),
        b.submit(Op::read_into(w, vec![0; 4])),
        b.submit(Op::read_exact(w, vec![0; 4], 4).timeout(Duration::from_secs(9999))),
        b.submit(Op::read(w).multishot()),
        b.submit(Op::write(w, "behind")),
        b.submit(Op::shutdown(w)),
        b.submit(Op::close(w)),
        b.submit(Op::accept(listener).multishot()),
        b.submit(Op::accept(listener)),
        b.submit(Op::timer(Duration::from_secs(9999))),
    ];
    b.look();
    (stuck, tickets)
}

pub fn abort_ends_what_is_pending<H: Harness>() {
    let mut b = H::bench();
    let (stuck, tickets) = everything(&mut b);
    let source = stuck.writer;
    assert!(b.watcher.abort(source));
    assert!(!b.watcher.abort(source), "it is stale now");
    for (i, &ticket) in tickets.iter().take(8).enumerate() {
        let (bytes, _) = expect_error(b.end(ticket), ErrorKind::Aborted);
        assert_eq!(bytes > 0, i == 0, "only the stuck write had moved bytes");
    }
    for &ticket in &tickets[8..] {
        assert!(b.is_open(ticket), "others are not concerned");
    }
    for op in [
        Op::read(source),
        Op::write(source, "x"),
        Op::shutdown(source),
        Op::close(source),
        Op::accept(source),
    ] {
        assert_eq!(b.refuse(op).0, Refusal::Stale);
    }
    assert!(b.watcher.detach(source).is_err());
    assert!(b.watcher.local_address(source).is_err());
}

/// gaio's TestFree: the descriptor is really gone, the peer sees it.
pub fn abort_closes_the_descriptor<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let read = b.submit(Op::read(there));
    assert!(b.watcher.abort(here));
    expect_eof(b.end(read));
    assert_eq!(b.watcher.counters().sources, 1);
    b.expect_all_ended();
}

/// What has completed before survives the source.
pub fn completions_that_are_there_survive_abort<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "kept");
    b.pass(Duration::from_millis(1));
    let read = b.submit(Op::read(here));
    let write = b.submit(Op::write(here, "sent"));
    let pending = b.submit(Op::read(here));
    // The first two may have completed inside the driver, but no wait has delivered them.
    let read_done = !b.watcher.cancel(read);
    assert!(b.watcher.abort(here));
    let c = b.end(read);
    if read_done {
        assert!(b"kept".starts_with(&expect_read(c)));
    } else if c.result.is_ok() {
        // The cancel has reached the kernel too late.
        assert!(H::COMPLETES && b"kept".starts_with(&expect_read(c)));
    } else {
        expect_unmoved(c, ErrorKind::Cancelled);
    }
    let c = b.end(write);
    match c.error_kind() {
        None => drop(expect_written(c)),
        Some(kind) => assert_eq!(kind, ErrorKind::Aborted),
    }
    let c = b.end(pending);
    match c.error_kind() {
        None => assert!(b"kept".ends_with(&expect_read(c))),
        Some(kind) => assert_eq!(kind, ErrorKind::Aborted),
    }
    b.expect_all_ended();
}

/// A lease that was read survives its source.
pub fn leases_survive_abort<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "kept");
    let read = b.submit(Op::read(here));
    let data = expect_read(b.end(read));
    let copy = data.to_vec();
    b.watcher.abort(here);
    let (here, there) = b.pair();
    b.cross(there, here, &pattern(100_000, 1));
    assert_eq!(*data, *copy);
}

pub fn close_ends_everything_and_delivers_it<H: Harness>() {
    let mut b = H::bench();
    let (_, tickets) = everything(&mut b);
    let idle = b.pair();
    let nop = b.submit(Op::nop());
    b.watcher.close();
    b.watcher.close();
    for (i, &ticket) in tickets.iter().enumerate() {
        let (bytes, _) = expect_error(b.end(ticket), ErrorKind::Closed);
        assert_eq!(bytes > 0, i == 0);
    }
    assert!(b.end(nop).result.is_ok(), "it had ended before");
    let mut done = Completions::new();
    for _ in 0..3 {
        let error = b.watcher.wait(&mut done).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
        let error = b.watcher.try_wait(&mut done).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
        let error = b.watcher.wait_timeout(&mut done, BOUND).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
        b.watcher.close();
    }
    assert!(done.is_empty());
    let counters = b.watcher.counters();
    assert_eq!((counters.in_flight, counters.sources), (0, 0));
    assert!(!b.watcher.abort(idle.0));
}

/// gaio's TestReadWriteAfterClose, for everything that can be asked of a watcher.
pub fn a_closed_watcher_refuses_everything<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (listener, at) = b.listen();
    let detached = b.watcher.detach(there).expect("nothing is in flight");
    b.watcher.close();
    for op in [
        Op::nop(),
        Op::timer(Duration::ZERO),
        Op::read(here),
        Op::read_into(here, vec![0; 4]),
        Op::read_exact(here, vec![0; 4], 4),
        Op::write(here, "x"),
        Op::shutdown(here),
        Op::close(here),
        Op::accept(listener),
        Op::connect(at.clone()),
    ] {
        let code = op.code();
        assert_eq!(b.refuse(op).0, Refusal::Closed, "{code:?}");
    }
    let refused = b.watcher.attach(detached).unwrap_err();
    assert_eq!(refused.reason, Refusal::Closed);
    assert!(b.watcher.listen(at).is_err());
    assert!(!b.watcher.cancel(Ticket::NONE));
    assert_eq!(b.watcher.cancel_all(here), 0);
    let submitter = b.submitter();
    assert!(submitter.is_closed());
    assert_eq!(submitter.submit(Op::nop()).unwrap_err().reason, Refusal::Closed);
    assert_eq!(submitter.wake(1).unwrap_err(), Refusal::Closed);
    assert!(b.watcher.set_affinity(0).is_err());
}

/// gaio's TestWaitAfterClose without anything pending.
pub fn a_wait_after_close_says_closed<H: Harness>() {
    let mut b = H::bench();
    b.watcher.close();
    let error = b.watcher.wait(&mut Completions::new()).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
}

/// Flush, then close: libuv's shutdown_close family.
pub fn a_close_operation_flushes_first<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let more = b.submit(Op::write(stuck.writer, "and the rest"));
    let read = b.submit(Op::read(stuck.writer));
    let close = b.submit(Op::close(stuck.writer));
    // Nothing more is accepted.
    assert_eq!(b.refuse(Op::write(stuck.writer, "x")).0, Refusal::Stale);
    assert_eq!(b.refuse(Op::read(stuck.writer)).0, Refusal::Stale);
    let got = b.read_to_end(stuck.peer);
    expect_written(b.end(stuck.ticket));
    expect_written(b.end(more));
    let mut wanted = stuck.bytes.clone();
    wanted.extend_from_slice(b"and the rest");
    expect_same(&got, &wanted);
    let (mut ended, mut closed) = (b.next(), b.next());
    if H::STAMP == "completing_faults" && closed.ticket() == read {
        // A kernel may answer a cancel late.
        std::mem::swap(&mut ended, &mut closed);
    }
    assert_eq!(ended.ticket(), read, "reads end before the close is reported");
    expect_unmoved(ended, ErrorKind::Aborted);
    assert_eq!((closed.ticket(), closed.source), (close, stuck.writer));
    expect_closed(closed);
    assert!(!b.watcher.abort(stuck.writer));
    b.expect_all_ended();
}

pub fn a_close_operation_on_an_idle_source<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let close = b.submit(Op::close(here).token(4));
    let c = b.end(close);
    assert_eq!(c.token, 4);
    expect_closed(c);
    assert!(b.read(there).is_empty());
    let (listener, _) = b.listen();
    let accept = b.submit(Op::accept(listener).multishot());
    let close = b.submit(Op::close(listener));
    expect_unmoved(b.end(accept), ErrorKind::Aborted);
    expect_closed(b.end(close));
    b.expect_all_ended();
}

/// Abort overtakes a close that waits for its writes.
pub fn abort_ends_a_pending_close<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let close = b.submit(Op::close(stuck.writer));
    assert!(b.watcher.abort(stuck.writer));
    expect_error(b.end(stuck.ticket), ErrorKind::Aborted);
    expect_unmoved(b.end(close), ErrorKind::Aborted);
    b.expect_all_ended();
}

/// Bytes that count their drops.
struct Counted(Arc<AtomicUsize>, Vec<u8>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Dropping a watcher drops every buffer that it holds, each once.
pub fn drop_releases_every_buffer<H: Harness>() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut b = H::bench();
    let stuck = b.stuck();
    for _ in 0..50 {
        let owner = Counted(Arc::clone(&drops), pattern(1000, 1));
        b.submit(Op::write(stuck.writer, Buf::from_owner(owner)));
    }
    b.submit(Op::read_into(stuck.writer, vec![0; 100]));
    b.submit(Op::timer(Duration::from_secs(9999)));
    // One completion that no wait delivers.
    let owner = Counted(Arc::clone(&drops), vec![1]);
    b.submit(Op::write(stuck.peer, Buf::from_owner(owner)));
    assert!(drops.load(Ordering::SeqCst) < 51);
    drop(b);
    assert_eq!(drops.load(Ordering::SeqCst), 51);
}

/// Forgetting a watcher leaks its memory and frees nothing that is in use.
pub fn a_forgotten_watcher_frees_nothing<H: Harness>() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut b = H::bench();
    let stuck = b.stuck();
    let owner = Counted(Arc::clone(&drops), pattern(1000, 1));
    b.submit(Op::write(stuck.writer, Buf::from_owner(owner)));
    std::mem::forget(b);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
}

/// Names of places that are used again, with traffic in flight: events of the old must not touch
/// the new.
pub fn sources_that_are_aborted_and_made_again_in_traffic<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let mut old = Vec::new();
    for i in 0..200 {
        let (here, there) = b.connect(listener, &at);
        for &stale in &old {
            assert!(here != stale && there != stale);
        }
        b.submit(Op::read(here));
        b.submit(Op::read(there));
        b.look();
        b.submit(Op::write(there, "for another peer"));
        // Abort with an event under way.
        assert!(b.watcher.abort(here));
        let (here2, there2) = b.connect(listener, &at);
        let read = b.submit(Op::read_exact(here2, vec![0; 6], 6));
        b.look();
        assert!(b.is_open(read), "round {i}: nothing was sent here");
        b.write(there2, "for me");
        assert_eq!(&*expect_read(b.end(read)), b"for me");
        b.watcher.abort(there);
        b.watcher.abort(here2);
        b.watcher.abort(there2);
        b.now();
        old.extend([here, there, here2, there2]);
    }
    b.expect_all_ended();
}

/// libuv's watcher_cross_stop: many events in one turn, and each completion aborts another source.
pub fn sources_aborted_by_each_others_completions<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(60);
    for &(here, _) in &pairs {
        b.submit(Op::read(here));
    }
    b.look();
    for &(_, there) in &pairs {
        b.submit(Op::write(there, "x").token(1));
    }
    let mut next = 0;
    let (mut read, mut aborted) = (0, 0);
    while b.open() > 0 || b.unasked() > 0 {
        let c = b.next();
        match c.error_kind() {
            None if c.token == 1 => drop(expect_written(c)),
            None => {
                assert_eq!(&*expect_read(c), b"x");
                read += 1;
                // Two at a time, so that some go before their turn has come.
                for _ in 0..2 {
                    if next < pairs.len() {
                        assert!(b.watcher.abort(pairs[pairs.len() - 1 - next].0));
                        next += 1;
                    }
                }
            }
            Some(kind) if c.token == 1 => assert!(matches!(kind, ErrorKind::Os(_))),
            Some(kind) => {
                assert_eq!(kind, ErrorKind::Aborted);
                aborted += 1;
            }
        }
    }
    assert!(read >= 20, "{read} read, {aborted} aborted");
    b.expect_all_ended();
}

/// Detach hands the descriptor over, with what has not been read.
pub fn detach_and_attach_again<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let read = b.submit(Op::read_exact(here, vec![0; 5], 5));
    assert_eq!(b.watcher.detach(here).unwrap_err(), Refusal::Busy);
    b.write(there, "first");
    expect_read(b.end(read));
    b.write(there, "second");
    let handle = b.watcher.detach(here).expect("idle");
    assert_eq!(b.watcher.detach(here).unwrap_err(), Refusal::Stale);
    assert_eq!(b.refuse(Op::read(here)).0, Refusal::Stale);
    let again = b.watcher.attach(handle).expect("room");
    assert_ne!(again, here);
    assert_eq!(b.read_exact(again, 6), b"second");
    b.expect_alive(again, there);
    b.expect_all_ended();
}
