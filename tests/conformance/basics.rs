//! The two verbs: the promises of submit and wait for every operation.

use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{Completions, Done, ErrorKind, Op, Ready, Refusal, Source};

use crate::common::*;

pub fn nop_completes_once_with_its_token<H: Harness>() {
    let mut b = H::bench();
    let ticket = b.submit(Op::nop().token(u64::MAX));
    let c = b.end(ticket);
    assert!(matches!(c.result, Ok(Done::Nop)));
    assert_eq!((c.token, c.ticket(), c.has_more(), c.is_late()), (u64::MAX, ticket, false, false));
    assert!(c.source.is_none());
    b.expect_all_ended();
}

/// C1: a write that could go out at once, a read whose data is there, a nop: all wait for the wait.
pub fn nothing_is_delivered_inside_submit<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "data that is there");
    let before = b.watcher.counters();
    let tickets =
        [b.submit(Op::nop()), b.submit(Op::write(here, "out at once")), b.submit(Op::read(here))];
    let after = b.watcher.counters();
    assert_eq!(before.completed, after.completed);
    assert_eq!(before.submitted + 3, after.submitted);
    for ticket in tickets {
        assert!(b.end(ticket).result.is_ok());
    }
    assert_eq!(b.watcher.counters().completed, before.completed + 3);
    b.expect_all_ended();
}

pub fn a_wait_appends_to_what_the_batch_holds<H: Harness>() {
    let mut watcher = H::bench().watcher;
    let mut done = Completions::new();
    for token in 0..3 {
        watcher.submit(Op::nop().token(token)).unwrap();
        assert_eq!(wait_for(&mut watcher, &mut done, "a nop"), 1);
    }
    let tokens: Vec<u64> = done.iter().map(|c| c.token).collect();
    assert_eq!(tokens, [0, 1, 2]);
}

/// libuv's run_nowait.
pub fn try_wait_does_not_block<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let read = b.submit(Op::read(here));
    let mut done = Completions::new();
    for _ in 0..100 {
        assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
    }
    assert!(b.is_open(read));
    b.watcher.abort(here);
}

/// libuv's run_once: a wait returns as soon as there is something.
pub fn a_wait_returns_with_the_first_completion<H: Harness>() {
    let mut b = H::bench();
    let late = b.submit(Op::timer(Duration::from_secs(10_000)));
    b.submit(Op::nop().token(1));
    let mut done = Completions::new();
    assert_eq!(wait_for(&mut b.watcher, &mut done, "a nop"), 1);
    assert_eq!(done.iter().next().unwrap().token, 1);
    assert!(b.watcher.cancel(late));
}

pub fn a_wait_with_a_timeout_is_never_early<H: Harness>() {
    let mut b = H::bench();
    let mut done = Completions::new();
    for micros in [0, 1, 100, 999, 1000, 1001, 2500, 20_000] {
        let span = Duration::from_micros(micros);
        let start = b.watcher.now();
        assert_eq!(b.watcher.wait_timeout(&mut done, span).unwrap(), 0);
        let passed = b.watcher.now() - start;
        assert!(passed >= span, "{passed:?} of {span:?}");
    }
}

pub fn tokens_come_back_untouched<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let tokens = [0, 1, u64::MAX, 1 << 63, 0xdead_beef];
    for token in tokens {
        for op in [
            Op::read(here),
            Op::read_into(here, vec![0; 8]),
            Op::timer(Duration::ZERO),
            Op::write(here, "x"),
        ] {
            let code = op.code();
            let ticket = b.submit(op.token(token));
            b.write(there, "y");
            assert_eq!(b.end(ticket).token, token, "{code:?}");
            if !matches!(code, windlass::driver::OpCode::Read | windlass::driver::OpCode::ReadInto)
            {
                b.read(here);
            }
        }
    }
    b.expect_all_ended();
}

/// C1: a refusal hands the operation back with its buffer, and nothing is reported for it later.
pub fn a_refusal_hands_everything_back<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    b.watcher.abort(here);
    let bytes = pattern(1000, 1);
    let at = bytes.as_ptr();
    let (reason, op) = b.refuse(Op::write(here, bytes).token(9));
    assert_eq!(reason, Refusal::Stale);
    assert_eq!(op.source(), here);
    let back = op.into_buf().into_vec();
    assert_eq!(back.as_ptr(), at, "the very same memory");
    expect_same(&back, &pattern(1000, 1));
    // What came back can be submitted again, elsewhere.
    let (here, there) = b.pair();
    b.write(here, back);
    assert_eq!(b.read_exact(there, 1000), pattern(1000, 1));
    b.expect_all_ended();
}

pub fn the_source_that_is_none_is_stale<H: Harness>() {
    let mut b = H::bench();
    assert_eq!(b.refuse(Op::read(Source::NONE)).0, Refusal::Stale);
    assert_eq!(b.refuse(Op::write(Source::NONE, "x")).0, Refusal::Stale);
    assert_eq!(b.refuse(Op::close(Source::NONE)).0, Refusal::Stale);
    assert!(!b.watcher.abort(Source::NONE));
    assert_eq!(b.watcher.cancel_all(Source::NONE), 0);
    assert!(b.watcher.local_address(Source::NONE).is_err());
}

/// A completion says which source it belongs to, an operation which it is for.
pub fn completions_name_their_source<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    assert_ne!(here, there);
    let read = b.submit(Op::read(here));
    let write = b.submit(Op::write(there, "x"));
    let shutdown = b.submit(Op::shutdown(there));
    let close = b.submit(Op::close(there));
    assert_eq!(b.end(read).source, here);
    assert_eq!(b.end(write).source, there);
    assert_eq!(b.end(shutdown).source, there);
    assert_eq!(b.end(close).source, there);
    b.expect_all_ended();
}

/// For every kind of end and every submitting thread. (The ledger compares the codes in all other
/// tests, too.)
pub fn completions_say_which_operation_they_were<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (listener, _) = b.listen();
    let later = Duration::from_secs(9999);
    let ends = [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read(here).timeout(later),
        Op::read_into(here, vec![0; 8]),
        Op::read_exact(here, vec![0; 8], 8),
        Op::poll(here, Ready::READABLE),
        Op::accept(listener),
        Op::timer(later),
    ];
    for op in ends {
        let code = op.code();
        let ticket = b.submit(op);
        assert!(b.watcher.cancel(ticket));
        let c = b.end(ticket);
        assert_eq!((c.code(), c.ticket()), (code, ticket));
        assert_eq!(c.error_kind(), Some(ErrorKind::Cancelled));
    }
    let soon = Duration::from_millis(1);
    for op in [Op::read(here).timeout(soon), Op::accept(listener).timeout(soon)] {
        let code = op.code();
        let c = b.run(op);
        assert_eq!((c.code(), c.error_kind()), (code, Some(ErrorKind::Deadline)));
    }
    let multishot = b.submit(Op::read(here).multishot());
    b.write(there, "x");
    let c = b.end(multishot);
    assert!(c.has_more() && c.code() == OpCode::Read && c.ticket() == multishot);
    b.watcher.abort(here);
    let c = b.end(multishot);
    assert_eq!((c.code(), c.error_kind()), (OpCode::Read, Some(ErrorKind::Aborted)));
    let from_far = b.submitter();
    let (write, nop, refused) = std::thread::scope(|scope| {
        let far = scope.spawn(|| {
            from_far.wake(7).unwrap();
            let submit = |op: Op| from_far.submit(op).unwrap();
            let write = submit(Op::write(there, "y"));
            (write, submit(Op::nop()), submit(Op::accept(there)))
        });
        far.join().unwrap()
    });
    for (ticket, code) in [(write, OpCode::Write), (nop, OpCode::Nop), (refused, OpCode::Accept)] {
        let c = b.end(ticket);
        assert_eq!((c.code(), c.ticket(), c.has_more()), (code, ticket, false));
    }
    let message = b.next();
    assert_eq!((message.code(), message.token), (OpCode::Message, 7));
}

pub fn addresses_of_both_ends_agree<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let here_at = b.watcher.local_address(here).unwrap();
    assert_eq!(b.watcher.peer_address(there).unwrap(), here_at);
    let there_at = b.watcher.local_address(there).unwrap();
    assert_eq!(b.watcher.peer_address(here).unwrap(), there_at);
    assert_ne!(here_at, there_at);
    assert!(b.watcher.set_nodelay(here, true).is_ok());
    b.watcher.abort(here);
    assert_eq!(b.watcher.peer_address(here), Err(Refusal::Stale));
}

/// Every call refuses an ended source with the same reason.
pub fn a_stale_name_has_one_error_everywhere<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    assert!(b.watcher.abort(here));
    for stale in [here, Source::NONE] {
        assert_eq!(b.refuse(Op::read(stale)).0, Refusal::Stale);
        assert_eq!(b.refuse(Op::close(stale)).0, Refusal::Stale);
        assert_eq!(b.watcher.detach(stale).unwrap_err(), Refusal::Stale);
        assert_eq!(b.watcher.fd(stale).unwrap_err(), Refusal::Stale);
        assert_eq!(b.watcher.queued_bytes(stale), Err(Refusal::Stale));
        assert_eq!(b.watcher.local_address(stale), Err(Refusal::Stale));
        assert_eq!(b.watcher.peer_address(stale), Err(Refusal::Stale));
        assert_eq!(b.watcher.set_nodelay(stale, true), Err(Refusal::Stale));
        assert_eq!(b.watcher.set_token(stale, 1), Err(Refusal::Stale));
        assert!(!b.watcher.abort(stale));
        assert_eq!(b.watcher.cancel_all(stale), 0);
        let error = std::io::Error::from(b.watcher.local_address(stale).unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}

/// What changes nothing can be asked through a shared watcher.
pub fn questions_need_no_exclusive_watcher<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let watcher = &b.watcher;
    let now = watcher.now();
    assert_eq!(watcher.queued_bytes(here), Ok(0));
    assert_eq!(watcher.local_address(here), watcher.peer_address(there));
    assert_eq!(watcher.now(), now, "time stands still between two waits");
}

/// The token of a source goes with every operation that has none of its own.
pub fn a_source_has_a_token_for_its_operations<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.watcher.set_token(here, 7).unwrap();
    b.watcher.set_token(there, 9).unwrap();
    for round in 0..3 {
        // The first read waits for one byte, which arrives whole. The later ones find their bytes.
        let read = b.submit(Op::read(there));
        b.write(here, "w");
        assert_eq!(b.end(read).token, 9, "round {round}");
        let ops = [
            (Op::write(here, "here"), 7),
            (Op::write(here, "fourfive").token(6), 6),
            (Op::read_exact(there, room(8), 8), 9),
            (Op::read_exact(there, room(4), 4).token(5), 5),
        ];
        for (op, token) in ops {
            let c = b.run(op);
            assert_eq!(c.token, token, "round {round}: {c:?}");
            assert!(c.result.is_ok());
        }
    }
    let cancelled = b.submit(Op::read(there).multishot());
    assert!(b.watcher.cancel(cancelled));
    assert_eq!(b.end(cancelled).token, 9);
    // Another one, and none.
    b.watcher.set_token(here, u64::MAX).unwrap();
    let write = b.submit(Op::write(here, "x"));
    assert_eq!(b.end(write).token, u64::MAX);
    b.watcher.set_token(here, 0).unwrap();
    let write = b.submit(Op::write(here, "y"));
    assert_eq!(b.end(write).token, 0);
    let close = b.submit(Op::close(there));
    assert_eq!(b.end(close).token, 9);
    // The next source at this index begins without.
    b.watcher.abort(here);
    let (here, there) = b.pair();
    for source in [here, there] {
        let write = b.submit(Op::write(source, "z"));
        assert_eq!(b.end(write).token, 0);
    }
    b.expect_all_ended();
}

/// Also of a source that another thread submits for, and of a listener.
pub fn the_token_of_a_source_is_not_this_threads_alone<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    b.watcher.set_token(listener, 3).unwrap();
    let accept = b.submit(Op::accept(listener));
    b.submit(Op::connect(at).token(4));
    let accepted = b.end(accept);
    assert_eq!(accepted.token, 3);
    let there = b.watcher.attach(expect_accepted(accepted)).unwrap();
    b.watcher.set_token(there, 11).unwrap();
    let submitter = b.submitter();
    let submit = |op: Op| {
        std::thread::scope(|scope| scope.spawn(|| submitter.submit(op).unwrap()).join().unwrap())
    };
    let (write, read) = (submit(Op::write(there, "x")), submit(Op::read(there)));
    assert_eq!(b.end(write).token, 11);
    assert_eq!((b.watcher.cancel(read), b.end(read).token), (true, 11));
}
