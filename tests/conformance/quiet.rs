//! Quiet writes: no completion if they succeed, exactly one, with the buffer, if they end
//! otherwise.

use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::{
    Buf, Completions, Done, ErrorKind, Limit, Op, Overflow, Ready, Refusal, Ticket, Watcher,
};

use crate::common::*;

/// Every accepted operation has completed finally, is a quiet write that is done, or is in flight.
#[track_caller]
fn expect_sum<D: Driver>(b: &mut Bench<D>, completed: u64) {
    let counters = b.watcher.counters();
    let sum = completed + counters.quiet_done + counters.in_flight;
    assert_eq!(counters.submitted, sum, "{counters:?}");
}

/// C1: writes from every kind of buffer, at once and from the queue.
pub fn a_quiet_write_that_succeeds_makes_no_completion<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let before = b.watcher.counters();
    b.submit_quiet(Op::write(here, "static, "));
    b.submit_quiet(Op::write(here, b"vector, ".to_vec()).token(7));
    let parts = vec![Buf::from("a "), Buf::from(b"list, ".to_vec())];
    b.submit_quiet(Op::write_vectored(here, parts));
    b.submit_quiet(Op::write(here, "expires much later").timeout(Duration::from_secs(9999)));
    assert_eq!(b.read_exact(there, 42), b"static, vector, a list, expires much later".to_vec());
    // A lease, back to where it came from.
    let ticket = b.submit(Op::read(there));
    b.submit_quiet(Op::write(here, "echo"));
    let lease = expect_read(b.end(ticket));
    assert!(lease.is_lease());
    // The first bytes may come alone.
    let read = lease.to_vec();
    assert!(b"echo".starts_with(&read) && !read.is_empty());
    b.submit_quiet(Op::write(there, lease));
    assert_eq!(b.read_exact(here, read.len()), read);
    b.expect_all_ended();
    let after = b.watcher.counters();
    assert_eq!(after.quiet_done, 6);
    assert_eq!(after.submitted - before.submitted, 6 + 3);
    assert_eq!(after.completed - before.completed, 3, "those of the reads");
    assert_eq!(b.watcher.queued_bytes(here), Ok(0));
    // The buffer is gone with its write: no lease is held.
    assert!(b.watcher.detach(here).is_ok(), "nothing is in flight");
}

/// C3: quiet and loud writes go out in the order of their submission, from the queue as well, and
/// a shutdown and a close stand behind them.
pub fn quiet_writes_keep_their_place<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let mut wanted = stuck.bytes.clone();
    let mut loud = Vec::new();
    for i in 0..20u8 {
        let bytes = vec![i; 1000 + usize::from(i)];
        wanted.extend_from_slice(&bytes);
        match i % 3 {
            0 => loud.push(b.submit(Op::write(stuck.writer, bytes))),
            1 => {
                b.submit_quiet(Op::write(stuck.writer, bytes));
            }
            _ => {
                let (head, tail) = bytes.split_at(10);
                let parts = vec![Buf::from(head.to_vec()), Buf::from(tail.to_vec())];
                b.submit_quiet(Op::write_vectored(stuck.writer, parts));
            }
        }
    }
    let shutdown = b.submit(Op::shutdown(stuck.writer));
    let close = b.submit(Op::close(stuck.writer));
    expect_same(&b.read_to_end(stuck.peer), &wanted);
    expect_written(b.end(stuck.ticket));
    for ticket in loud {
        expect_written(b.end(ticket));
    }
    expect_shutdown(b.end(shutdown));
    expect_closed(b.end(close));
    b.expect_all_ended();
    assert_eq!(b.watcher.counters().quiet_done, 13);
}

/// A quiet write that waits is an operation in flight like another one.
pub fn a_quiet_write_that_waits_is_counted<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let before = b.watcher.counters();
    let queued = b.watcher.queued_bytes(stuck.writer).unwrap();
    b.submit_quiet(Op::write(stuck.writer, vec![1; 5000]));
    b.submit_quiet(Op::write_vectored(stuck.writer, vec![Buf::from("a"), Buf::from("b")]));
    let after = b.watcher.counters();
    assert_eq!(after.in_flight, before.in_flight + 2);
    assert_eq!(after.quiet_done, 0);
    assert_eq!(b.watcher.queued_bytes(stuck.writer), Ok(queued + 5002));
    assert_eq!(b.watcher.detach(stuck.writer).unwrap_err(), Refusal::Busy);
    let drained = b.submit(Op::wait_drained(stuck.writer, 0));
    b.look_for(Duration::from_millis(5));
    assert!(b.is_open(drained), "quiet bytes are queued");
    let wanted = stuck.bytes.len() + 5002;
    assert_eq!(b.read_exact(stuck.peer, wanted).len(), wanted);
    expect_written(b.end(stuck.ticket));
    assert!(matches!(b.end(drained).result, Ok(Done::Drained)));
    assert_eq!(b.watcher.counters().quiet_done, 2, "a drain ends when quiet writes are out");
    b.expect_all_ended();
}

/// C2: every end but success makes one completion, with the very same buffer.
pub fn every_other_end_of_a_quiet_write_is_told<H: Harness>() {
    for ends in ["cancel", "cancel_all", "deadline", "abort", "close", "torn", "reset", "overflow"]
    {
        let builder = Watcher::builder().write_limit(8 << 20);
        let mut b = H::bench_with(builder.write_overflow(Overflow::Close));
        let stuck = b.small_stuck();
        let bytes = pattern(9000, 5);
        let at = bytes.as_ptr();
        let due = |op: Op| match ends {
            "deadline" => op.timeout(Duration::from_millis(2)),
            _ => op,
        };
        let one = b.submit_quiet(due(Op::write(stuck.writer, bytes)).token(1));
        let parts = vec![Buf::from("head"), Buf::from("tail")];
        let two = b.submit_quiet(due(Op::write_vectored(stuck.writer, parts)).token(2));
        let kind = match ends {
            "cancel" => {
                assert!(b.watcher.cancel(one) && b.watcher.cancel(two));
                Some(ErrorKind::Cancelled)
            }
            "cancel_all" => {
                assert_eq!(b.watcher.cancel_all(stuck.writer), 3);
                // The stuck write was partly sent.
                None
            }
            "deadline" => Some(ErrorKind::Deadline),
            "abort" => {
                assert!(b.watcher.abort(stuck.writer));
                Some(ErrorKind::Aborted)
            }
            "close" => {
                b.watcher.close();
                Some(ErrorKind::Closed)
            }
            "torn" => {
                assert!(b.watcher.cancel(stuck.ticket));
                Some(ErrorKind::Torn)
            }
            "overflow" => {
                b.submit_quiet(Op::write(stuck.writer, vec![0; 8 << 20]));
                Some(ErrorKind::Overflow)
            }
            _ => {
                assert!(b.watcher.abort(stuck.peer), "{ends}");
                None
            }
        };
        for (ticket, token, len) in [(one, 1, 9000), (two, 2, 8)] {
            let c = b.end(ticket);
            assert_eq!((c.code(), c.token, c.source), (OpCode::Write, token, stuck.writer));
            let error = c.result.expect_err("it was not sent");
            if let Some(kind) = kind {
                assert_eq!(error.kind(), kind, "{ends}");
            }
            assert_eq!((error.bytes(), error.buf().len()), (0, len), "{ends}");
            if token == 1 {
                let back = error.into_buf().into_vec();
                assert_eq!(back.as_ptr(), at, "the same memory: {ends}");
            }
        }
        assert_eq!(b.watcher.counters().quiet_done, 0, "{ends}");
        if ends == "torn" {
            // A later quiet write proceeds.
            let more = b.submit_quiet(Op::write(stuck.writer, "after the tear"));
            let mut all = Vec::new();
            while !all.ends_with(b"after the tear") {
                all.extend_from_slice(&b.read(stuck.peer));
            }
            assert!(!b.watcher.cancel(more));
            assert_eq!(b.watcher.counters().quiet_done, 1);
        }
    }
}

/// An attempt at submission that fails makes the completion at the next wait.
pub fn a_quiet_write_that_fails_at_once_is_told<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    expect_shutdown(b.run(Op::shutdown(here)));
    let before = b.watcher.counters();
    let one = b.submit_quiet(Op::write(here, b"too late".to_vec()));
    let two = b.submit_quiet(Op::write_vectored(here, vec![Buf::from("to"), Buf::from("o")]));
    assert_eq!(b.watcher.counters().completed, before.completed, "not inside submit");
    assert_eq!(expect_errno(b.end(one), &[libc::EPIPE]).into_vec(), b"too late");
    assert_eq!(expect_errno(b.end(two), &[libc::EPIPE]).into_vec(), b"too");
    assert_eq!(b.watcher.counters().quiet_done, 0);
    b.expect_all_ended();
}

/// C6: the ticket of a quiet write is stale once the write has succeeded, not when a wait returns.
pub fn a_quiet_write_that_is_out_cannot_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let ticket = b.submit_quiet(Op::write(here, "out"));
    assert_eq!(b.read_exact(there, 3), b"out");
    assert!(!b.watcher.cancel(ticket));
    assert_eq!(b.watcher.cancel_all(here), 0);
    let soon = Duration::from_secs(1);
    assert_eq!(b.watcher.reschedule(ticket, soon), Err(Refusal::Stale));
    // From the queue.
    let stuck = b.stuck();
    let ticket = b.submit_quiet(Op::write(stuck.writer, vec![9; 3000]));
    let len = stuck.bytes.len() + 3000;
    assert_eq!(b.read_exact(stuck.peer, len).len(), len);
    expect_written(b.end(stuck.ticket));
    b.look();
    assert!(!b.watcher.cancel(ticket), "it is out");
    b.expect_all_ended();
    assert_eq!(b.watcher.counters().quiet_done, 2);
}

/// A cancel that was accepted is answered, on a kernel that has the write as well.
pub fn an_accepted_cancel_of_a_quiet_write_is_answered<H: Harness>() {
    let mut b = H::bench();
    let mut answered = 0;
    let mut accepted = 0;
    for round in 0..40 {
        let stuck = b.small_stuck();
        let quiet = b.submit_quiet(Op::write(stuck.writer, vec![1; 2000]));
        // The peer reads meanwhile: the write may be out, or not.
        let len = stuck.bytes.len();
        let read = b.submit(Op::read_exact(stuck.peer, room(len), len));
        for _ in 0..round % 8 {
            b.wait_once(Duration::ZERO);
        }
        if b.watcher.cancel(quiet) {
            accepted += 1;
            let c = b.end(quiet);
            answered += 1;
            assert!(matches!(c.error_kind(), None | Some(ErrorKind::Cancelled)), "{c:?}");
        }
        b.watcher.abort(stuck.writer);
        b.watcher.abort(stuck.peer);
        b.end(read);
        b.end(stuck.ticket);
    }
    assert_eq!(answered, accepted);
    assert!(accepted > 0, "no cancel came in time");
    b.expect_all_ended();
}

/// Only a write can be quiet: a program waits for the result of every other operation.
pub fn nothing_but_a_write_can_be_quiet<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (listener, at) = b.listen();
    let ops = || {
        [
            Op::read(here),
            Op::read(here).multishot(),
            Op::read(here).timeout(Duration::from_secs(9)),
            Op::read_into(here, vec![0; 8]),
            Op::read_exact(here, vec![0; 8], 8),
            Op::accept(listener),
            Op::connect(at.clone()),
            Op::shutdown(here),
            Op::close(here),
            Op::send_to(here, "x", at.clone()),
            Op::recv_from(here),
            Op::poll(here, Ready::READABLE),
            Op::wait_drained(here, 0),
            Op::timer(Duration::ZERO),
            Op::nop(),
            Op::read_at(here, vec![0; 8], 5),
            Op::write_at(here, "x", 5),
            Op::sync_all(here),
            Op::send_file(here, there, 7, 9),
            Op::run(|| 1),
        ]
    };
    for op in ops() {
        let text = format!("{op:?}");
        let (reason, op) = b.refuse(op.quiet());
        assert_eq!(reason, Refusal::Unsupported, "{text}");
        assert_eq!(format!("{op:?}"), text);
    }
    let submitter = b.submitter();
    for op in ops() {
        let code = op.code();
        let ticket = submitter.submit(op.quiet()).expect("the loop refuses it");
        let c = b.end(ticket);
        assert_eq!((c.code(), c.error_kind()), (code, Some(ErrorKind::Os(libc::EOPNOTSUPP))));
    }
    b.expect_alive(here, there);
    b.watcher.close();
    assert_eq!(b.refuse(Op::nop().quiet()).0, Refusal::Closed);
    assert_eq!(b.refuse(Op::write(here, "x").quiet()).0, Refusal::Closed);
}

/// A refused quiet write comes back with its buffer, and can be submitted again as it is.
pub fn a_refused_quiet_write_comes_back<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.watcher.abort(here);
    let (reason, mut op) = b.refuse(Op::write(here, b"bytes".to_vec()).quiet());
    assert_eq!(reason, Refusal::Stale);
    let parts = op.into_parts();
    assert!(parts.quiet);
    op = Op::from_parts(parts);
    assert_eq!(b.refuse(op).1.into_buf().into_vec(), b"bytes");
    // The bound on waiting completions holds for it: it may fail, and then makes one.
    let mut count = 0u64;
    let refused = loop {
        match b.watcher.submit(Op::nop()) {
            Ok(_) => count += 1,
            Err(refused) => break refused.reason,
        }
    };
    assert!(matches!(refused, Refusal::Full { limit: Limit::Completions, .. }));
    assert_eq!(b.refuse(Op::write(there, "x").quiet()).0, refused);
    let mut done = Completions::new();
    assert_eq!(wait_for(&mut b.watcher, &mut done, "the nops") as u64, count);
    assert_eq!(b.watcher.counters().in_flight, 0);
}

/// Other threads' quiet writes: no completion is made, and none is taken for theirs.
pub fn other_threads_write_quietly<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let stuck = b.stuck();
    let submitter = b.submitter();
    let before = b.watcher.counters();
    // Its completion waits when the loop takes the quiet write.
    let nop = b.submit(Op::nop().token(5));
    let at_once = submitter.submit(Op::write(here, "at once").quiet()).unwrap();
    let parts = vec![Buf::from(" and "), Buf::from("a list")];
    submitter.submit(Op::write_vectored(here, parts).quiet()).unwrap();
    let queued = submitter.submit(Op::write(stuck.writer, vec![1; 500]).quiet()).unwrap();
    let c = b.end(nop);
    assert_eq!((c.token, c.ticket(), c.code()), (5, nop, OpCode::Nop));
    assert_eq!(b.read_exact(there, 18), b"at once and a list");
    assert_eq!(b.watcher.counters().quiet_done, 2);
    assert!(!b.watcher.cancel(at_once), "it is out");
    assert!(b.watcher.cancel(queued), "it waits");
    expect_unmoved(b.end(queued), ErrorKind::Cancelled);
    b.watcher.abort(here);
    let stale = submitter.submit(Op::write(here, "nowhere").quiet()).unwrap();
    assert_eq!(expect_unmoved(b.end(stale), ErrorKind::Aborted).into_vec(), b"nowhere");
    let counters = b.watcher.counters();
    assert_eq!(counters.submitted - before.submitted, 6);
    assert_eq!(counters.quiet_done, 2);
    // Many threads at once.
    let (here, there) = b.pair();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let submitter = submitter.clone();
            scope.spawn(move || {
                for _ in 0..5 {
                    submitter.submit(Op::write(here, "abc").quiet()).expect("there is room");
                }
            });
        }
    });
    assert_eq!(b.read_exact(there, 60), b"abc".repeat(20));
    assert_eq!(b.watcher.counters().quiet_done, 22);
}

/// Nothing is delivered for a quiet write, so a wait goes on until something else comes.
pub fn a_wait_with_only_quiet_writes_blocks<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.submit_quiet(Op::write(here, "nothing"));
    let span = Duration::from_millis(3);
    let start = b.watcher.now();
    let mut done = Completions::new();
    assert_eq!(b.watcher.wait_timeout(&mut done, span).unwrap(), 0);
    assert!(b.watcher.update_now() - start >= span);
    let timer = b.submit(Op::timer(span));
    b.submit_quiet(Op::write(here, " at all"));
    assert_eq!(b.next().ticket(), timer);
    assert_eq!(b.read_exact(there, 14), b"nothing at all");
    b.expect_all_ended();
}

/// The number of accepted operations is the sum of the three counts, after any steps.
pub fn quiet_writes_add_up<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(4);
    let submitted = b.watcher.counters().submitted;
    let mut random = Random::new(3);
    let mut completed = submitted;
    let mut tickets = Vec::new();
    for round in 0..300 {
        let (here, there) = pairs[random.below(4)];
        let bytes = pattern(1 + random.below(20_000), round);
        match random.below(6) {
            0..3 => tickets.push(b.submit_quiet(Op::write(here, bytes))),
            3 => {
                b.submit(Op::write(here, bytes));
            }
            4 => {
                b.submit(Op::read(there));
            }
            _ if !tickets.is_empty() => {
                let ticket = tickets[random.below(tickets.len())];
                b.watcher.cancel(ticket);
            }
            _ => {}
        }
        completed += b.now().len() as u64;
        expect_sum(&mut b, completed);
    }
    for (here, there) in pairs {
        b.watcher.abort(here);
        b.watcher.abort(there);
    }
    completed += b.now().len() as u64;
    while b.watcher.counters().in_flight > 0 {
        b.wait_once(BOUND);
        completed += b.now().len() as u64;
    }
    expect_sum(&mut b, completed);
    assert!(b.watcher.counters().quiet_done > 0);
}

/// An operation is in flight from its submission until it ends: a quiet write until it is out,
/// others until their completions wait.
pub fn every_operation_is_in_flight_until_it_ends<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let reads = [
        b.submit(Op::read(here)),
        b.submit(Op::read_exact(here, vec![0; 3], 3)),
        submitter.submit(Op::read(there)).unwrap(),
    ];
    let timer = b.submit(Op::timer(Duration::from_secs(9999)));
    for ticket in reads.into_iter().chain([timer]) {
        assert_eq!(b.watcher.is_in_flight(ticket), Ok(true), "{ticket:?}");
    }
    b.look();
    assert_eq!(reads.map(|read| b.watcher.is_in_flight(read)), [Ok(true); 3]);
    assert!(b.watcher.cancel(reads[1]) && b.watcher.cancel(timer));
    let ended = [timer, reads[1], Ticket::NONE].map(|ticket| b.watcher.is_in_flight(ticket));
    assert_eq!(ended, [Ok(false); 3], "their completions wait");
    for ticket in [timer, reads[1]] {
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
        assert_eq!(b.watcher.is_in_flight(ticket), Ok(false));
    }
    // Quiet writes: at once, and from the queue.
    let quiet = b.submit_quiet(Op::write(there, "out"));
    let mut heard = expect_read(b.end(reads[0])).len();
    while heard < 3 {
        heard += b.read(here).len();
    }
    b.look();
    assert_eq!(b.watcher.is_in_flight(quiet), Ok(false));
    let stuck = b.stuck();
    let quiet = b.submit_quiet(Op::write(stuck.writer, vec![9; 3000]));
    assert_eq!(b.watcher.is_in_flight(quiet), Ok(true));
    let len = stuck.bytes.len() + 3000;
    assert_eq!(b.read_exact(stuck.peer, len).len(), len);
    expect_written(b.end(stuck.ticket));
    b.look();
    assert_eq!(b.watcher.is_in_flight(quiet), Ok(false), "it is out");
    b.watcher.close();
    assert_eq!(b.watcher.is_in_flight(reads[2]), Ok(false));
    expect_unmoved(b.end(reads[2]), ErrorKind::Closed);
    assert_eq!(b.open(), 0);
}
