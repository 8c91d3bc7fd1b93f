//! Waits for one operation, or for a number of completions; and visits of the completions.

use std::time::Duration;

use windlass::{Buf, Completions, Done, ErrorKind, Limit, Op, Refusal, Ticket, Watcher};

use crate::common::*;

/// A span after which no event of the test is outstanding.
const SOON: Duration = Duration::from_millis(2);

fn tokens(done: &mut Completions) -> Vec<u64> {
    done.drain(..).map(|c| c.token).collect()
}

/// Those before and behind it stay, in their order.
pub fn a_wait_for_one_leaves_the_others<H: Harness>() {
    let mut watcher = H::bench().watcher;
    let tickets = [1, 2, 3, 4].map(|token| watcher.submit(Op::nop().token(token)).unwrap());
    for at in [2, 0] {
        let c = watcher.wait_for(tickets[at]).unwrap();
        assert_eq!((c.ticket(), c.token), (tickets[at], at as u64 + 1));
    }
    // Completions that come during the wait stay as well.
    let span = |ms, token| Op::timer(Duration::from_millis(ms)).token(token);
    watcher.submit(span(1, 5)).unwrap();
    let late = watcher.submit(span(3, 6)).unwrap();
    watcher.submit(span(2, 7)).unwrap();
    let c = watcher.wait_for(late).unwrap();
    assert!(matches!(c.result, Ok(Done::Timer)));
    assert_eq!(watcher.next_timeout(), Some(Duration::ZERO), "there are others");
    assert_eq!(watcher.counters().undelivered, 4);
    let mut done = Completions::new();
    assert_eq!(watcher.wait(&mut done).unwrap(), 4);
    assert_eq!(tokens(&mut done), [2, 4, 5, 7]);
    let counters = watcher.counters();
    assert_eq!((counters.completed, counters.in_flight), (7, 0));
}

/// A ticket whose completion was delivered, or that no operation has, is an error at once.
pub fn a_wait_for_a_stale_ticket_says_so<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let write = b.submit(Op::write(here, "x"));
    let read = b.submit(Op::read(here));
    let timer = b.submit(Op::timer(Duration::ZERO));
    for ticket in [write, timer] {
        b.end(ticket);
    }
    assert!(b.watcher.cancel(read));
    b.end(read);
    for ticket in [write, read, timer] {
        let error = b.watcher.wait_for(ticket).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Stale));
    }
    // On a closed watcher all operations in flight end, and then no completion is left.
    let read = b.submit(Op::read(here));
    let timer = b.submit(Op::timer(Duration::from_secs(9999)));
    b.watcher.close();
    let c = b.watcher.wait_for(timer).unwrap();
    assert_eq!(c.error_kind(), Some(ErrorKind::Closed));
    let error = b.watcher.wait_for(timer).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
    assert_eq!(b.end(read).error_kind(), Some(ErrorKind::Closed));
}

/// The completions of a multishot operation stay; the wait is for its end.
pub fn a_wait_for_a_multishot_is_for_its_end<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let read = b.watcher.submit(Op::read(here).multishot()).unwrap();
    for text in ["one", "two"] {
        b.watcher.submit(Op::write(there, text).quiet()).unwrap();
    }
    let mut seen = Vec::new();
    let mut done = Completions::new();
    while seen.len() < 3 {
        assert!(b.watcher.wait_timeout(&mut done, BOUND).unwrap() > 0, "the bytes arrive");
        for c in done.drain(..) {
            seen.extend_from_slice(&expect_read(c));
        }
    }
    b.watcher.submit(Op::write(there, "three").quiet()).unwrap();
    let shut = b.watcher.submit(Op::shutdown(there)).unwrap();
    let end = b.watcher.wait_for(read).unwrap();
    assert_eq!((end.ticket(), end.has_more()), (read, false));
    assert!(expect_read(end).is_eof());
    let mut shuts = 0;
    while shuts == 0 || seen.len() < 11 {
        assert!(b.watcher.wait_timeout(&mut done, BOUND).unwrap() > 0, "they have waited");
        for c in done.drain(..) {
            if c.ticket() == shut {
                shuts += 1;
            } else {
                assert!(c.has_more() && c.ticket() == read);
                seen.extend_from_slice(&expect_read(c));
            }
        }
    }
    assert_eq!((seen.as_slice(), shuts), (&b"onetwothree"[..], 1));
}

/// A quiet write that is out has no completion: its ticket is stale, also while it is waited for.
pub fn a_wait_for_a_quiet_write_ends_when_it_is_out<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let out = b.submit_quiet(Op::write(here, "out"));
    let stuck = b.stuck();
    let queued = b.submit_quiet(Op::write(stuck.writer, "behind"));
    let len = stuck.bytes.len() + 6;
    let read = b.submit(Op::read_exact(stuck.peer, room(len), len));
    for ticket in [out, queued] {
        let error = b.watcher.wait_for(ticket).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Stale));
    }
    assert_eq!(b.watcher.counters().quiet_done, 2);
    expect_written(b.end(stuck.ticket));
    assert_eq!(expect_read(b.end(read)).len(), len);
    // One that fails has its completion.
    let stuck = b.small_stuck();
    let due = Op::write(stuck.writer, "too late").timeout(SOON);
    let failed = b.watcher.submit(due.quiet()).unwrap();
    let c = b.watcher.wait_for(failed).unwrap();
    assert_eq!(expect_unmoved(c, ErrorKind::Deadline).into_vec(), b"too late");
}

/// At the bound of waiting completions the wait gives up, and loses nothing.
pub fn a_wait_for_one_is_bounded<H: Harness>() {
    let mut watcher = H::bench().watcher;
    let timer = watcher.submit(Op::timer(SOON).token(u64::MAX)).unwrap();
    let mut count = 0;
    let refused = loop {
        match watcher.submit(Op::nop().token(count)) {
            Ok(_) => count += 1,
            Err(refused) => break refused.reason,
        }
    };
    assert!(matches!(refused, Refusal::Full { limit: Limit::Completions, .. }));
    let error = watcher.wait_for(timer).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(refused));
    let mut done = Completions::new();
    // So many are enough for a wait that wants more.
    let got = watcher.wait_at_least(&mut done, usize::MAX, Duration::MAX).unwrap();
    assert!(got as u64 >= count);
    if got as u64 == count {
        assert_eq!(watcher.wait_for(timer).unwrap().token, u64::MAX);
    }
}

/// One wait for so many: it comes back with them, or with fewer at its timeout.
pub fn a_wait_for_a_number_is_one_wait<H: Harness>() {
    let mut watcher = H::bench().watcher;
    let mut done = Completions::new();
    let timers = |watcher: &mut windlass::Watcher<H::Driver>| {
        for ms in 1..=5 {
            watcher.submit(Op::timer(Duration::from_millis(2 * ms)).token(ms)).unwrap();
        }
    };
    timers(&mut watcher);
    let before = watcher.counters().deliveries;
    let got = watcher.wait_at_least(&mut done, 3, BOUND).unwrap();
    assert!(got >= 3, "{got}");
    assert_eq!((done.len(), watcher.counters().deliveries), (got, before + 1));
    let rest = 5 - got;
    assert_eq!(watcher.wait_at_least(&mut done, rest, Duration::MAX).unwrap(), rest);
    assert_eq!(tokens(&mut done), [1, 2, 3, 4, 5]);
    // A timeout, with nothing and with fewer than wanted.
    let start = watcher.update_now();
    assert_eq!(watcher.wait_at_least(&mut done, 2, SOON).unwrap(), 0);
    assert!(watcher.update_now() - start >= SOON);
    watcher.submit(Op::nop()).unwrap();
    let start = watcher.update_now();
    assert_eq!(watcher.wait_at_least(&mut done, 2, SOON).unwrap(), 1);
    assert!(watcher.update_now() - start >= SOON, "it had waited for the second");
    // Without a number it does not block, and more than wanted are not left.
    watcher.submit(Op::timer(Duration::from_secs(9999))).unwrap();
    assert_eq!(watcher.wait_at_least(&mut done, 0, Duration::MAX).unwrap(), 0);
    for _ in 0..3 {
        watcher.submit(Op::nop()).unwrap();
    }
    assert_eq!(watcher.wait_at_least(&mut done, 1, Duration::MAX).unwrap(), 3);
    watcher.close();
    assert_eq!(watcher.wait_at_least(&mut done, 9, Duration::MAX).unwrap(), 1);
    let error = watcher.wait_at_least(&mut done, 9, Duration::MAX).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
}

/// Bytes that come piece by piece are waited for together.
pub fn many_reads_are_one_wait<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(8);
    for &(here, there) in &pairs {
        b.watcher.submit(Op::read_exact(here, room(7), 7)).unwrap();
        b.watcher.submit(Op::write(there, "to each").quiet()).unwrap();
    }
    let mut done = Completions::new();
    assert_eq!(b.watcher.wait_at_least(&mut done, 8, BOUND).unwrap(), 8);
    for c in done.drain(..) {
        assert_eq!(&*expect_read(c), b"to each");
    }
}

/// The leases of completions that wait are in use. At the limit of the pool a read waits for one
/// of them: then a wait for more comes back with what there is, and a wait for this read says so.
pub fn a_wait_does_not_wait_for_what_it_holds_itself<H: Harness>() {
    let builder = Watcher::builder().buffer_size(1024).swap_limit(2048);
    let mut b = H::bench_with(builder);
    let pairs = b.pairs(6);
    for &(_, there) in &pairs {
        b.write(there, pattern(1024, 1));
    }
    for &(here, _) in &pairs {
        b.watcher.submit(Op::read(here)).unwrap();
    }
    let mut done = Completions::new();
    let mut left = pairs.len();
    let start = b.watcher.update_now();
    while left > 0 {
        let got = b.watcher.wait_at_least(&mut done, left, BOUND).unwrap();
        assert!(got > 0, "{left} reads have waited for themselves");
        left -= got;
        for c in done.drain(..) {
            assert!(!expect_read(c).is_empty());
        }
    }
    assert!(b.watcher.update_now() - start < BOUND, "a wait has waited for itself");
    for &(here, there) in &pairs {
        b.watcher.abort(here);
        b.watcher.abort(there);
    }
    b.watcher.try_wait(&mut done).unwrap();
    done.clear();
    // One operation: the others must be taken first.
    let pairs = b.pairs(3);
    for &(_, there) in &pairs {
        b.write(there, pattern(1024, 2));
    }
    let reads: Vec<_> =
        pairs.iter().map(|&(here, _)| b.watcher.submit(Op::read(here)).unwrap()).collect();
    b.watcher.submit(Op::nop()).unwrap();
    let mut held = Vec::new();
    let mut refused = Vec::new();
    for read in reads {
        match b.watcher.wait_for(read) {
            Ok(c) => held.push(expect_read(c)),
            Err(error) => {
                let full = Refusal::Full { limit: Limit::SwapBytes, count: 2048 };
                assert_eq!(Refusal::of(&error), Some(full));
                refused.push(read);
            }
        }
    }
    // A network that cuts messages leaves room for all of them.
    assert!(!refused.is_empty() || H::STAMP.ends_with("faults"), "{held:?}");
    // The holders of the leases are dropped, one of them in a completion.
    held.clear();
    b.watcher.wait(&mut done).unwrap();
    let came: Vec<Ticket> = done.drain(..).map(|c| c.ticket()).collect();
    for read in refused {
        if !came.contains(&read) {
            assert!(!expect_read(b.watcher.wait_for(read).unwrap()).is_empty());
        }
    }
}

/// A small lease in a write that waits, which the driver copies one day, holds nothing up.
pub fn a_lease_in_a_write_ends_no_wait_for_many<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.small_stuck();
    let lease = b.watcher.lease(|space| space.len().min(9)).unwrap();
    b.submit_quiet(Op::write(stuck.writer, lease));
    b.watcher.submit(Op::nop()).unwrap();
    let start = b.watcher.update_now();
    let mut done = Completions::new();
    assert_eq!(b.watcher.wait_at_least(&mut done, 2, SOON).unwrap(), 1);
    assert!(b.watcher.update_now() - start >= SOON, "it waits for the second");
}

/// The same for an accept, and the places of the connections in waiting completions.
pub fn a_wait_for_an_accept_needs_a_place<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(3));
    let (listener, at) = b.listen();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let connect = b.submit(Op::connect(at.clone()));
        clients.push(expect_connected(b.end(connect)));
    }
    let accepts: Vec<_> = (0..4).map(|_| b.watcher.submit(Op::accept(listener)).unwrap()).collect();
    let mut done = Completions::new();
    let start = b.watcher.update_now();
    assert_eq!(b.watcher.wait_at_least(&mut done, 4, BOUND).unwrap(), 2);
    assert!(b.watcher.update_now() - start < BOUND, "it has waited for itself");
    done.clear();
    assert_eq!(b.watcher.wait_for(accepts[2]).unwrap().ticket(), accepts[2]);
    assert_eq!(b.watcher.wait_for(accepts[3]).unwrap().ticket(), accepts[3]);
    // Now those that wait have the places.
    for _ in 0..4 {
        let connect = b.submit(Op::connect(at.clone()));
        clients.push(expect_connected(b.end(connect)));
    }
    let accepts: Vec<_> = (0..4).map(|_| b.watcher.submit(Op::accept(listener)).unwrap()).collect();
    let error = b.watcher.wait_for(accepts[3]).unwrap_err();
    let full = Refusal::Full { limit: Limit::Sources, count: 3 };
    assert_eq!(Refusal::of(&error), Some(full));
    assert_eq!(b.watcher.wait(&mut done).unwrap(), 2);
    done.clear();
    assert_eq!(b.watcher.wait_for(accepts[3]).unwrap().ticket(), accepts[3]);
}

/// A wait for another thread's operation works even before the loop has taken the request.
pub fn a_wait_for_another_threads_operation<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    let far = std::thread::spawn(move || submitter.submit(Op::nop().token(9)).unwrap());
    let ticket = far.join().unwrap();
    assert_eq!(b.watcher.wait_for(ticket).unwrap().token, 9);
}

/// A visit lends the completions, in order, and drops the rest of all of them.
pub fn a_visit_takes_what_it_needs<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (listener, at) = b.listen();
    let mut done = Completions::new();
    b.write(there, "bytes");
    b.watcher.submit(Op::read(here).token(1)).unwrap();
    b.watcher.submit(Op::write(there, b"written".to_vec()).token(2)).unwrap();
    b.watcher.submit(Op::connect(at).token(3)).unwrap();
    b.watcher.submit(Op::accept(listener).token(4)).unwrap();
    let timer = b.watcher.submit(Op::timer(Duration::from_secs(99)).token(5)).unwrap();
    assert!(b.watcher.cancel(timer));
    let append = Op::read_append(there, {
        let mut vec = room(9);
        vec.extend_from_slice(b"old ");
        vec
    });
    b.watcher.submit(append.token(6)).unwrap();
    b.watcher.submit(Op::write(here, "new").quiet()).unwrap();
    let mut seen = 0;
    while seen != 63 {
        b.watcher.wait_timeout(&mut done, BOUND).unwrap();
        let mut visit = done.visit();
        while let Some(c) = visit.next() {
            seen |= 1 << (c.token - 1);
            match c.token {
                1 => {
                    assert!(c.take_handle().is_none());
                    // A kernel that answers late has the other bytes, too; one read of a kernel
                    // with faults may have a part of them.
                    let bytes = c.take_read().expect("a read");
                    let len = bytes.len().min(5);
                    assert_eq!(&bytes[..len], &b"bytes"[..len]);
                    assert!(c.take_read().is_none(), "taken");
                    assert!(matches!(c.result, Ok(Done::Nop)));
                    assert_eq!((c.source, c.code()), (here, windlass::driver::OpCode::Read));
                }
                2 => {
                    assert!(c.take_read().is_none());
                    assert_eq!(c.take_buf().into_vec(), b"written");
                    assert_eq!((c.bytes(), c.take_buf().len()), (7, 0));
                }
                6 => {
                    let bytes = c.bytes();
                    let all = c.take_buf().into_vec();
                    assert_eq!((&all[..4], all.len(), c.bytes()), (&b"old "[..], 4 + bytes, bytes));
                }
                5 => {
                    assert_eq!(c.take_buf().len(), 0);
                    assert_eq!(c.error_kind(), Some(ErrorKind::Cancelled));
                }
                _ => {
                    let handle = c.take_handle().expect("a socket");
                    assert!(c.take_handle().is_none(), "taken");
                    b.watcher.attach(handle).unwrap();
                }
            }
        }
        drop(visit);
        assert!(done.is_empty());
    }
    // A visit that is left early leaves the rest, and the next wait adds to it.
    let shared = std::sync::Arc::<[u8]>::from(*b"shared");
    for _ in 0..3 {
        b.watcher.submit(Op::write(here, Buf::from(shared.clone()))).unwrap();
    }
    while b.watcher.counters().in_flight > 0 || done.len() < 3 {
        b.watcher.wait_timeout(&mut done, BOUND).unwrap();
    }
    let mut visit = done.visit();
    assert!(visit.next().is_some());
    drop(visit);
    assert_eq!((done.len(), std::sync::Arc::strong_count(&shared)), (2, 3));
    b.watcher.submit(Op::nop().token(9)).unwrap();
    while done.len() < 3 {
        b.watcher.wait_timeout(&mut done, BOUND).unwrap();
    }
    let mut visit = done.visit();
    while visit.next().is_some_and(|c| c.token != 9) {}
    drop(visit);
    assert!(done.is_empty());
    assert_eq!(std::sync::Arc::strong_count(&shared), 1);
}
