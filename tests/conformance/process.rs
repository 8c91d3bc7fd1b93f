//! Signals and the exit of children, as sources.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::process::signal::{SIGHUP, SIGTERM, SIGUSR1, SIGUSR2};
use windlass::{Completion, Done, ErrorKind, Op, Ready, Refusal, Source, Ticket};

use crate::common::process::{Processes, alone};
use crate::common::*;

const LONG: Duration = Duration::from_secs(9999);

#[track_caller]
fn expect_signal(c: Completion, signal: i32) {
    match c.result {
        Ok(Done::Signal(got)) => assert_eq!(got, signal),
        other => panic!("{signal}, not {other:?}"),
    }
}

#[track_caller]
fn expect_exit(c: Completion) -> ExitStatus {
    match c.result {
        Ok(Done::Exited(status)) => status,
        other => panic!("not an exit: {other:?}"),
    }
}

#[track_caller]
fn expect_open<D: Driver>(b: &mut Bench<D>, tickets: &[Ticket]) {
    b.look();
    for &ticket in tickets {
        assert!(b.is_open(ticket), "it has ended");
    }
}

pub fn a_signal_completes_its_operation<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let source = b.watcher.signals(&[SIGUSR1, SIGUSR2]).expect("a source");
    let ticket = b.submit(Op::signal(source).token(7));
    expect_open(&mut b, &[ticket]);
    H::raise(SIGUSR2);
    let c = b.end(ticket);
    assert_eq!((c.token, c.source, c.code()), (7, source, OpCode::Signal));
    assert!(!c.has_more() && c.bytes() == 0);
    expect_signal(c, SIGUSR2);
    // The token of the source, and a deadline that is not needed.
    b.watcher.set_token(source, 9).expect("a token");
    let ticket = b.submit(Op::signal(source).timeout(LONG));
    H::raise(SIGUSR1);
    let c = b.end(ticket);
    assert_eq!(c.token, 9);
    expect_signal(c, SIGUSR1);
    b.expect_all_ended();
}

pub fn signals_wait_for_their_operation<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let source = b.watcher.signals(&[SIGTERM, SIGUSR1, SIGUSR2, SIGHUP]).expect("a source");
    for signal in [SIGTERM, SIGUSR2, SIGUSR1, SIGUSR1, SIGHUP] {
        H::raise(signal);
    }
    let mut all = [SIGTERM, SIGUSR1, SIGUSR2, SIGHUP];
    all.sort_unstable();
    for signal in all {
        expect_signal(b.run(Op::signal(source)), signal);
    }
    // SIGUSR1 was one signal.
    let first = b.submit(Op::signal(source));
    let second = b.submit(Op::signal(source));
    expect_open(&mut b, &[first, second]);
    // Operations take signals in the order of their submission.
    H::raise(SIGUSR2);
    expect_signal(b.end(first), SIGUSR2);
    expect_open(&mut b, &[second]);
    H::raise(SIGUSR2);
    expect_signal(b.end(second), SIGUSR2);
    b.expect_all_ended();
}

pub fn a_multishot_signal_goes_on<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let source = b.watcher.signals(&[SIGUSR1, SIGUSR2]).expect("a source");
    H::raise(SIGUSR2);
    let ticket = b.submit(Op::signal(source).multishot());
    let c = b.end(ticket);
    assert!(c.has_more());
    expect_signal(c, SIGUSR2);
    for round in 0..100 {
        let signal = if round % 2 == 0 { SIGUSR1 } else { SIGUSR2 };
        H::raise(signal);
        let c = b.end(ticket);
        assert!(c.has_more());
        expect_signal(c, signal);
    }
    assert!(b.watcher.cancel(ticket));
    let c = b.end(ticket);
    assert!(!c.has_more());
    expect_unmoved(c, ErrorKind::Cancelled);
    b.expect_all_ended();
}

pub fn every_source_gets_each_signal<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let both = b.watcher.signals(&[SIGUSR1, SIGUSR2]).expect("a source");
    let one = b.watcher.signals(&[SIGUSR1]).expect("a source");
    let (first, second) = (b.submit(Op::signal(both)), b.submit(Op::signal(one)));
    H::raise(SIGUSR1);
    expect_signal(b.end(first), SIGUSR1);
    expect_signal(b.end(second), SIGUSR1);
    let (first, second) = (b.submit(Op::signal(both)), b.submit(Op::signal(one)));
    H::raise(SIGUSR2);
    expect_signal(b.end(first), SIGUSR2);
    expect_open(&mut b, &[second]);
    // The other source goes on without this one.
    b.watcher.abort(both);
    H::raise(SIGUSR1);
    expect_signal(b.end(second), SIGUSR1);
    b.expect_all_ended();
}

pub fn signals_end_as_other_operations<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let source = b.watcher.signals(&[SIGUSR1]).expect("a source");
    end_in_every_way(&mut b, source, Op::signal);
    // A signal that was not taken waits for the next operation.
    H::raise(SIGUSR1);
    expect_signal(b.run(Op::signal(source)), SIGUSR1);
    // A signal that is there wins over a deadline that has passed.
    H::raise(SIGUSR1);
    let now = b.watcher.now();
    expect_signal(b.run(Op::signal(source).deadline(now)), SIGUSR1);
    expect_unmoved(b.run(Op::signal(source).deadline(now)), ErrorKind::Deadline);
    let ticket = b.submit(Op::close(source));
    assert!(matches!(b.end(ticket).result, Ok(Done::Closed)));
    assert_eq!(b.refuse(Op::signal(source)).0, Refusal::Stale);
    let source = b.watcher.signals(&[SIGUSR1]).expect("another source");
    let pending = b.submit(Op::signal(source));
    b.watcher.close();
    expect_unmoved(b.end(pending), ErrorKind::Closed);
    assert_eq!(b.watcher.signals(&[SIGUSR1]), Err(Refusal::Closed));
    assert_eq!(b.watcher.child(1), Err(Refusal::Closed));
}

/// By a deadline, a cancel, and a cancel of all; and, on a source of its own, by an abort.
fn end_in_every_way<D: Driver>(b: &mut Bench<D>, source: Source, op: fn(Source) -> Op) {
    expect_unmoved(b.run(op(source).timeout(Duration::from_millis(3))), ErrorKind::Deadline);
    let cancelled = b.submit(op(source));
    let others = [b.submit(op(source)), b.submit(op(source).timeout(LONG))];
    b.look();
    assert!(b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    assert_eq!(b.watcher.cancel_all(source), 2);
    for ticket in others {
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
}

pub fn an_abort_ends_them<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let pid = H::spawn();
    let signals = b.watcher.signals(&[SIGUSR1]).expect("a source");
    let child = b.watcher.child(pid).expect("a source");
    for (source, op) in [(signals, Op::signal(signals)), (child, Op::child_exit(child))] {
        let ticket = b.submit(op);
        b.look();
        assert!(b.watcher.abort(source));
        expect_unmoved(b.end(ticket), ErrorKind::Aborted);
        assert_eq!(b.refuse(Op::signal(source)).0, Refusal::Stale);
    }
    assert_eq!(b.watcher.counters().sources, 0);
    // The child runs, and nothing has reaped it.
    let child = b.watcher.child(pid).expect("a source");
    let ticket = b.submit(Op::child_exit(child));
    expect_open(&mut b, &[ticket]);
    H::exit(pid, 4);
    assert_eq!(expect_exit(b.end(ticket)).code(), Some(4));
    b.expect_all_ended();
}

pub fn they_do_nothing_else<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let pid = H::spawn();
    let signals = b.watcher.signals(&[SIGUSR1]).expect("a source");
    let child = b.watcher.child(pid).expect("a source");
    let (here, there) = b.pair();
    let (listener, _) = b.listen();
    for source in [signals, child] {
        for op in [
            Op::read(source),
            Op::read(source).multishot(),
            Op::read_into(source, room(8)),
            Op::read_exact(source, room(8), 8),
            Op::read_append(source, room(8)),
            Op::write(source, "x"),
            Op::write(source, ""),
            Op::accept(source),
            Op::shutdown(source),
            Op::recv_from(source),
            Op::send_to(source, "x", b.watcher.local_address(listener).unwrap()),
            Op::recv_descriptors(source),
        ] {
            let code = op.code();
            assert_eq!(b.refuse(op).0, Refusal::Unsupported, "{code:?}");
        }
        let idle = b.watcher.set_idle_timeout(source, Some(LONG));
        assert_eq!(idle, Err(Refusal::Unsupported));
        assert_eq!(b.watcher.detach(source).err(), Some(Refusal::Unsupported));
        assert_eq!(b.watcher.queued_bytes(source), Ok(0));
        let drained = b.run(Op::wait_drained(source, 0));
        assert!(matches!(drained.result, Ok(Done::Drained)));
    }
    for source in [here, listener, child] {
        assert_eq!(b.refuse(Op::signal(source)).0, Refusal::Unsupported);
    }
    for source in [here, listener, signals] {
        assert_eq!(b.refuse(Op::child_exit(source)).0, Refusal::Unsupported);
    }
    for op in [Op::signal(Source::NONE), Op::child_exit(Source::NONE)] {
        assert_eq!(b.refuse(op).0, Refusal::Stale);
    }
    // Their readiness can be waited for.
    let polls = [signals, child].map(|source| b.submit(Op::poll(source, Ready::READABLE)));
    expect_open(&mut b, &polls);
    H::raise(SIGUSR1);
    H::exit(pid, 0);
    for ticket in polls {
        let c = b.end(ticket);
        assert!(matches!(c.result, Ok(Done::Ready(ready)) if ready.contains(Ready::READABLE)));
    }
    expect_signal(b.run(Op::signal(signals)), SIGUSR1);
    assert!(expect_exit(b.run(Op::child_exit(child))).success());
    b.expect_alive(here, there);
    b.expect_all_ended();
}

pub fn what_is_no_signal_is_refused<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench();
    let invalid = Err(Refusal::Os(libc::EINVAL));
    assert_eq!(b.watcher.signals(&[]), invalid);
    let never = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL];
    for signal in [0, -1, 65, 9999, i32::MAX, i32::MIN, libc::SIGFPE].into_iter().chain(never) {
        assert_eq!(b.watcher.signals(&[signal]), invalid, "{signal}");
        assert_eq!(b.watcher.signals(&[SIGUSR1, signal]), invalid, "{signal}");
    }
    assert_eq!(b.watcher.counters().sources, 0);
    // The same signal twice is once.
    let source = b.watcher.signals(&[SIGUSR1, SIGUSR1]).expect("a source");
    H::raise(SIGUSR1);
    expect_signal(b.run(Op::signal(source)), SIGUSR1);
    b.expect_all_ended();
}

pub fn what_is_no_child_is_refused<H: Harness>() {
    let mut b = H::bench();
    let invalid = Err(Refusal::Os(libc::EINVAL));
    for pid in [0, u32::MAX, i32::MAX as u32 + 1] {
        assert_eq!(b.watcher.child(pid), invalid, "{pid}");
    }
    // The first process, this one, and none.
    for pid in [1, std::process::id(), i32::MAX as u32] {
        let refused = b.watcher.child(pid);
        let none = [libc::ECHILD, libc::ESRCH].map(|errno| Err(Refusal::Os(errno)));
        assert!(none.contains(&refused), "{pid}: {refused:?}");
    }
    let pid = H::spawn();
    let source = b.watcher.child(pid).expect("a source");
    H::exit(pid, 0);
    expect_exit(b.run(Op::child_exit(source)));
    // It was reaped.
    let refused = b.watcher.child(pid);
    let none = [libc::ECHILD, libc::ESRCH].map(|errno| Err(Refusal::Os(errno)));
    assert!(none.contains(&refused), "{refused:?}");
    assert_eq!(b.watcher.counters().sources, 1);
    b.expect_all_ended();
}

pub fn a_child_says_how_it_ends<H: Harness>() {
    let mut b = H::bench();
    for code in [0, 1, 3, 255] {
        let pid = H::spawn();
        let source = b.watcher.child(pid).expect("a source");
        let ticket = b.submit(Op::child_exit(source).token(5));
        expect_open(&mut b, &[ticket]);
        H::exit(pid, code);
        let c = b.end(ticket);
        assert_eq!((c.token, c.source, c.code()), (5, source, OpCode::ChildExit));
        let status = expect_exit(c);
        assert_eq!((status.code(), status.signal()), (Some(code.into()), None));
        assert!(b.watcher.abort(source));
    }
    let pid = H::spawn();
    let source = b.watcher.child(pid).expect("a source");
    H::kill(pid, SIGTERM);
    let status = expect_exit(b.run(Op::child_exit(source)));
    assert_eq!((status.code(), status.signal()), (None, Some(SIGTERM)));
    b.expect_all_ended();
}

/// Every operation on a source gets the status, also those behind the first one and those submitted
/// later. A second source of the same child does not.
pub fn an_exit_is_told_again_and_again<H: Harness>() {
    let mut b = H::bench();
    let pid = H::spawn();
    let source = b.watcher.child(pid).expect("a source");
    let other = b.watcher.child(pid).expect("another source");
    end_in_every_way(&mut b, source, Op::child_exit);
    let tickets = [(); 3].map(|()| b.submit(Op::child_exit(source)));
    expect_open(&mut b, &tickets);
    H::exit(pid, 6);
    for ticket in tickets {
        assert_eq!(expect_exit(b.end(ticket)).code(), Some(6));
    }
    assert_eq!(expect_exit(b.run(Op::child_exit(source).multishot())).code(), Some(6));
    for _ in 0..2 {
        expect_unmoved(b.run(Op::child_exit(other)), ErrorKind::Os(libc::ECHILD));
    }
    b.expect_all_ended();
}

pub fn children_end_in_any_order<H: Harness>() {
    let mut b = H::bench();
    let children: Vec<(u32, Source)> = (0..8)
        .map(|_| {
            let pid = H::spawn();
            (pid, b.watcher.child(pid).expect("a source"))
        })
        .collect();
    let tickets: Vec<Ticket> =
        children.iter().map(|&(_, source)| b.submit(Op::child_exit(source))).collect();
    for at in [3, 0, 7, 1, 6, 2, 5, 4] {
        H::exit(children[at].0, at as u8);
        let status = expect_exit(b.end(tickets[at]));
        assert_eq!(status.code(), Some(at as i32));
    }
    b.expect_all_ended();
}

/// A child that has ended before its source is made was not reaped, so its status is still there.
pub fn an_exit_before_the_source_is_told<H: Harness>() {
    let mut b = H::bench();
    let pid = H::spawn();
    let first = b.watcher.child(pid).expect("a source");
    let poll = b.submit(Op::poll(first, Ready::READABLE));
    H::exit(pid, 9);
    b.end(poll);
    let second = b.watcher.child(pid).expect("a source of what has ended");
    let poll = b.submit(Op::poll(second, Ready::READABLE));
    b.end(poll);
    assert_eq!(expect_exit(b.run(Op::child_exit(second))).code(), Some(9));
    b.expect_all_ended();
}

pub fn the_table_of_sources_bounds_them<H: Harness>() {
    let _alone = alone();
    let mut b = H::bench_with(windlass::Watcher::builder().max_sources(1));
    let pid = H::spawn();
    let source = b.watcher.signals(&[SIGUSR1]).expect("a source");
    let full = |answer: Result<Source, Refusal>| {
        assert!(matches!(answer, Err(Refusal::Full { limit: windlass::Limit::Sources, .. })));
    };
    full(b.watcher.signals(&[SIGUSR2]));
    full(b.watcher.child(pid));
    H::raise(SIGUSR1);
    expect_signal(b.run(Op::signal(source)), SIGUSR1);
    assert!(b.watcher.abort(source));
    let child = b.watcher.child(pid).expect("there is room again");
    H::exit(pid, 0);
    assert!(expect_exit(b.run(Op::child_exit(child))).success());
    b.expect_all_ended();
}
