//! Sources that connect by themselves: what waits for the connection, and how it fails.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Address, Completion, Done, ErrorKind, Handle, Limit, Op, Ready, Refusal, Source};
use windlass::{Ticket, Watcher};

use crate::common::*;

const REFUSED: i32 = libc::ECONNREFUSED;

fn options() -> ConnectOptions {
    ConnectOptions::default()
}

#[track_caller]
fn expect_connected_to(c: &Completion, source: Source, at: &Address) {
    assert_eq!((c.source, c.has_more()), (source, false));
    match &c.result {
        Ok(Done::Connected(address)) => assert_eq!(address, at),
        other => panic!("wanted a connection: {other:?}"),
    }
}

/// An address that never answers, for as long as this lives: the backlog of its listener is full.
struct Silent {
    listener: Source,
    at: Address,
    _clients: Vec<Handle>,
}

impl Silent {
    fn new<D: Driver>(b: &mut Bench<D>, address: Address) -> Silent {
        let backlog = ListenOptions::default().backlog(0);
        let listener = b.watcher.listen_with(address, backlog).expect("a listener");
        let at = b.watcher.local_address(listener).expect("its address");
        let mut clients = Vec::new();
        loop {
            let connect = Op::connect(at.clone()).timeout(Duration::from_millis(100));
            match b.run(connect).result {
                Ok(Done::Socket(handle)) => clients.push(handle),
                Err(error) if error.kind() == ErrorKind::Deadline => break,
                other => panic!("wanted a connection, or silence: {other:?}"),
            }
            assert!(clients.len() < 20, "a backlog of none takes everything");
        }
        Silent { listener, at, _clients: clients }
    }
}

/// What can be submitted for a source that connects, and the codes of what reads.
fn every_operation(source: Source) -> Vec<Op> {
    vec![
        Op::read(source),
        Op::read_exact(source, room(3), 3),
        Op::write(source, "hello"),
        Op::write_vectored(source, vec!["a".into(), "b".into()]),
        Op::poll(source, Ready::WRITABLE),
        Op::wait_drained(source, 1 << 20),
        Op::shutdown(source),
        Op::close(source),
    ]
}

pub fn a_source_is_there_before_its_connection<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    for _ in 0..3 {
        let (here, connect) = b.connect_source([at.clone()], options().token(5));
        let read = b.submit(Op::read_exact(here, room(4), 4));
        let writes: Vec<Ticket> =
            (0..20).map(|i| b.submit(Op::write(here, pattern(10, i)).token(i + 1))).collect();
        let accept = b.submit(Op::accept(listener));
        let mut accepted = None;
        let first = loop {
            let c = b.next();
            match c.ticket() == accept {
                true => accepted = Some(expect_accepted(c)),
                false => break c,
            }
        };
        assert_eq!((first.ticket(), first.token), (connect, 5), "before what waits for it");
        expect_connected_to(&first, here, &at);
        for (i, write) in writes.into_iter().enumerate() {
            let c = b.end(write);
            assert_eq!((c.source, c.token), (here, i as u64 + 1));
            expect_written(c);
        }
        let there = accepted.unwrap_or_else(|| expect_accepted(b.end(accept)));
        let there = b.watcher.attach(there).unwrap();
        let sent: Vec<u8> = (0..20).flat_map(|i| pattern(10, i)).collect();
        assert_eq!(b.read_exact(there, 200), sent);
        b.write(there, "back");
        let c = b.end(read);
        assert_eq!(c.token, 5, "the token of the source");
        assert_eq!(expect_read(c).into_vec(), b"back");
        assert_eq!(b.watcher.peer_address(here), Ok(at.clone()));
        assert_eq!(b.watcher.local_address(here), b.watcher.peer_address(there));
        b.expect_alive(here, there);
        b.watcher.abort(here);
        b.watcher.abort(there);
    }
    b.expect_all_ended();
    assert_eq!(b.watcher.counters().sources, 1);
}

/// Everything that may be submitted waits for the connection, a close at its end.
pub fn every_operation_waits_for_the_connection<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener));
    let (here, connect) = b.connect_source([at.clone()], options());
    let ops = every_operation(here).into_iter().skip(2);
    let tickets: Vec<Ticket> = ops.map(|op| b.submit(op)).collect();
    let mut ended = Vec::new();
    while ended.len() < 1 + tickets.len() {
        let c = b.next();
        if c.ticket() == accept {
            b.keep(vec![c]);
            let there = expect_accepted(b.end(accept));
            let there = b.watcher.attach(there).unwrap();
            assert_eq!(b.read_to_end(there), b"helloab");
            continue;
        }
        assert!(c.result.is_ok(), "{c:?}");
        ended.push(c.ticket());
    }
    assert_eq!(ended[0], connect, "before what waits for it");
    assert_eq!(b.watcher.fd(here).unwrap_err(), Refusal::Stale, "it is closed");
    if b.is_open(accept) {
        expect_accepted(b.end(accept));
    }
    b.expect_all_ended();
}

/// After a failure the source is there, and answers everything with the errno.
#[track_caller]
fn expect_failed<D: Driver>(b: &mut Bench<D>, source: Source, errno: i32) {
    let os = Refusal::Os(errno);
    for op in every_operation(source) {
        if op.code() != windlass::driver::OpCode::Close {
            assert_eq!(b.refuse(op).0, os);
        }
    }
    assert_eq!(b.refuse(Op::accept(source)).0, os);
    assert_eq!(b.watcher.fd(source).unwrap_err(), os);
    assert_eq!(b.watcher.detach(source).unwrap_err(), os);
    assert_eq!(b.watcher.peer_address(source), Err(os));
    assert_eq!(b.watcher.local_address(source), Err(os));
    assert_eq!(b.watcher.set_nodelay(source, true), Err(os));
    assert_eq!(b.watcher.queued_bytes(source), Ok(0));
}

pub fn a_refused_connect_ends_what_waits_for_it<H: Harness>() {
    let mut b = H::bench();
    for close in [false, true] {
        let (here, connect) = b.connect_source([H::nowhere()], options().token(9));
        assert_eq!(b.watcher.counters().sources, 1);
        // A timer of the source outlives the failure.
        let hour = Op::timer(Duration::from_secs(3600)).owned_by(here);
        let timer = if close { b.try_submit(hour).ok() } else { None };
        let mut tickets = Vec::new();
        for op in every_operation(here) {
            match b.try_submit(op) {
                Ok(ticket) => tickets.push(ticket),
                // It was refused at once.
                Err((reason, _)) => assert_eq!(reason, Refusal::Os(REFUSED)),
            }
        }
        let c = b.next();
        assert_eq!((c.ticket(), c.source, c.token), (connect, here, 9));
        expect_errno(c, &[REFUSED]);
        for ticket in tickets {
            let c = b.end(ticket);
            assert_eq!((c.source, c.token, c.bytes()), (here, 9, 0));
            let is_write = c.code() == windlass::driver::OpCode::Write;
            let buf = expect_errno(c, &[REFUSED]);
            assert!(!is_write || !buf.is_empty(), "the buffer comes back");
        }
        expect_failed(&mut b, here, REFUSED);
        if close {
            expect_closed(b.run(Op::close(here)));
            assert!(
                timer.is_none_or(|timer| b.end(timer).error_kind() == Some(ErrorKind::Aborted))
            );
        } else {
            assert!(b.watcher.abort(here));
        }
        assert_eq!(b.watcher.fd(here).unwrap_err(), Refusal::Stale);
        assert_eq!(b.watcher.counters().sources, 0);
    }
    b.expect_all_ended();
}

/// A close that is refused changes nothing: a timer of the source goes on.
pub fn a_refused_close_ends_no_timer<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_operations(10));
    let silent = Silent::new(&mut b, H::address());
    let (here, connect) = b.connect_source([silent.at.clone()], options());
    let timer = b.submit(Op::timer(Duration::from_secs(3600)).owned_by(here));
    assert!(b.watcher.cancel(connect));
    expect_unmoved(b.end(connect), ErrorKind::Cancelled);
    let full = loop {
        match b.try_submit(Op::nop()) {
            Ok(_) => {}
            Err((reason, _)) => break reason,
        }
    };
    assert_eq!(b.refuse(Op::close(here)).0, full);
    b.now();
    assert!(b.is_open(timer), "the close was refused");
    expect_closed(b.run(Op::close(here)));
    expect_unmoved(b.end(timer), ErrorKind::Aborted);
    b.expect_all_ended();
}

/// The completions of the timers that it ends take the last room, but not its own.
pub fn a_close_that_has_room_is_accepted_with_its_timers<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_operations(16));
    let silent = Silent::new(&mut b, H::address());
    let (here, connect) = b.connect_source([silent.at.clone()], options());
    let timer = || Op::timer(Duration::from_secs(3600)).owned_by(here);
    let timers = [b.submit(timer()), b.submit(timer())];
    assert!(b.watcher.cancel(connect));
    expect_unmoved(b.end(connect), ErrorKind::Cancelled);
    let most = (0..).take_while(|_| b.try_submit(Op::nop()).is_ok()).count();
    b.take(most);
    for _ in 1..most {
        b.submit(Op::nop());
    }
    let close = b.submit(Op::close(here));
    b.take(most - 1);
    for timer in timers {
        expect_unmoved(b.end(timer), ErrorKind::Aborted);
    }
    expect_closed(b.end(close));
    b.expect_all_ended();
}

pub fn an_empty_list_of_addresses_is_refused<H: Harness>() {
    let mut b = H::bench();
    let none: [Address; 0] = [];
    assert_eq!(b.watcher.connect(none, options()).unwrap_err(), Refusal::NoAddress);
    assert_eq!(b.watcher.counters().sources, 0);
    b.watcher.close();
    assert_eq!(b.watcher.connect([H::nowhere()], options()).unwrap_err(), Refusal::Closed);
}

/// While nothing answers: what is asked of the source, what is queued, and what ends before.
pub fn a_source_that_connects_has_no_descriptor_yet<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().write_limit(10));
    let silent = Silent::new(&mut b, H::address());
    let (here, connect) = b.connect_source([silent.at.clone()], options());
    let first = b.submit(Op::write(here, "12345678"));
    assert_eq!(b.watcher.queued_bytes(here), Ok(8));
    let limit = Limit::Writes;
    assert_eq!(b.refuse(Op::write(here, "901")).0, Refusal::Full { limit, count: 10 });
    let not_connected = Refusal::Os(libc::ENOTCONN);
    assert_eq!(b.watcher.fd(here).unwrap_err(), not_connected);
    assert_eq!(b.watcher.detach(here).unwrap_err(), not_connected);
    assert_eq!(b.watcher.peer_address(here), Err(not_connected));
    assert_eq!(b.watcher.local_address(here), Err(not_connected));
    assert_eq!(b.watcher.set_nodelay(here, true), Err(not_connected));
    // Deadlines run, and single operations can be cancelled.
    let soon = b.submit(Op::read(here).timeout(Duration::from_millis(5)));
    expect_unmoved(b.end(soon), ErrorKind::Deadline);
    let poll = b.submit(Op::poll(here, Ready::WRITABLE));
    let drained = b.submit(Op::wait_drained(here, 100));
    b.pass(Duration::from_millis(5));
    assert!(b.is_open(poll) && b.is_open(drained) && b.is_open(connect));
    for ticket in [poll, drained, first] {
        assert!(b.watcher.cancel(ticket));
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    assert_eq!(b.watcher.queued_bytes(here), Ok(0));
    // A timer waits for its time only.
    let timer = b.submit(Op::timer(Duration::from_millis(5)).owned_by(here).token(3));
    let c = b.end(timer);
    assert_eq!((c.source, c.token), (here, 3));
    assert!(matches!(c.result, Ok(Done::Timer)));
    // All of them at once: the connect first.
    let read = b.submit(Op::read(here));
    let write = b.submit(Op::write(here, "x"));
    assert_eq!(b.watcher.cancel_all(here), 3);
    for ticket in [connect, read, write] {
        let c = b.next();
        assert_eq!(c.ticket(), ticket);
        expect_unmoved(c, ErrorKind::Cancelled);
    }
    expect_failed(&mut b, here, libc::ECANCELED);
    assert!(b.watcher.abort(here));
    assert_eq!(b.watcher.counters().sources, 1, "the listener");
    b.expect_all_ended();
    b.watcher.abort(silent.listener);
}

/// A connect that never ends by itself: each of its ends, and how what is queued ends with it.
pub fn a_connect_to_what_never_answers_ends_in_every_way<H: Harness>() {
    let mut b = H::bench();
    let silent = Silent::new(&mut b, H::address());
    let ways = [ErrorKind::Cancelled, ErrorKind::Deadline, ErrorKind::Aborted, ErrorKind::Closed];
    for way in ways {
        let span = Duration::from_millis(if way == ErrorKind::Deadline { 20 } else { 100_000 });
        let start = b.watcher.update_now();
        let (here, connect) = b.connect_source([silent.at.clone()], options().timeout(span));
        let tickets: Vec<Ticket> =
            every_operation(here).into_iter().map(|op| b.submit(op)).collect();
        match way {
            ErrorKind::Cancelled => assert!(b.watcher.cancel(connect)),
            ErrorKind::Aborted => assert!(b.watcher.abort(here)),
            ErrorKind::Closed => b.watcher.close(),
            _ => {}
        }
        let c = b.next();
        assert_eq!((c.ticket(), c.source), (connect, here), "before what waits for it");
        expect_unmoved(c, way);
        if way == ErrorKind::Deadline {
            assert!(b.watcher.update_now() - start >= span, "never early");
        }
        let errno = match way {
            ErrorKind::Cancelled => Some(libc::ECANCELED),
            ErrorKind::Deadline => Some(libc::ETIMEDOUT),
            _ => None,
        };
        for ticket in tickets {
            let c = b.end(ticket);
            assert_eq!((c.source, c.bytes()), (here, 0));
            match errno {
                Some(errno) => drop(expect_errno(c, &[errno])),
                None => drop(expect_unmoved(c, way)),
            }
        }
        match errno {
            Some(errno) => {
                expect_failed(&mut b, here, errno);
                assert!(b.watcher.abort(here));
            }
            None => assert!(b.watcher.fd(here).is_err()),
        }
    }
    assert_eq!(b.open(), 0);
}

/// A read that waits for the connection is idle: its idle timeout ends it, and the connect goes on.
pub fn a_source_that_connects_can_be_idle<H: Harness>() {
    let mut b = H::bench();
    let silent = Silent::new(&mut b, H::address());
    let (here, connect) = b.connect_source([silent.at.clone()], options());
    let timeout = Duration::from_millis(20);
    b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
    for op in [Op::read(here), Op::read_exact(here, room(9), 9)] {
        let start = b.watcher.update_now();
        let read = b.submit(op);
        expect_unmoved(b.end(read), ErrorKind::Deadline);
        assert!(b.watcher.now() >= start + timeout, "early");
    }
    // Without a read nothing is idle.
    let write = b.submit(Op::write(here, "hello"));
    b.pass(3 * timeout + Duration::from_millis(100));
    assert!(b.is_open(connect) && b.is_open(write), "neither is a read");
    assert_eq!(b.watcher.counters().idle_timeouts, 2);
    assert!(b.watcher.abort(here));
    expect_unmoved(b.end(connect), ErrorKind::Aborted);
    expect_unmoved(b.end(write), ErrorKind::Aborted);
    // The timeout holds for the connection that comes about.
    let (listener, at) = b.listen();
    let (here, connect) = b.connect_source([at], options());
    b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
    let read = b.submit(Op::read(here).multishot());
    let accept = b.submit(Op::accept(listener));
    let ends = [b.end(connect), b.end(accept)];
    assert!(ends.iter().all(|c| c.result.is_ok()), "{ends:?}");
    expect_unmoved(b.end(read), ErrorKind::Deadline);
    assert_eq!(b.watcher.counters().idle_timeouts, 3);
    drop(ends);
    b.expect_all_ended();
    b.watcher.abort(silent.listener);
}

/// RFC 8305: the next address at once after a failure, or beside an attempt that takes too long.
pub fn the_first_address_that_answers_wins<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let silent = Silent::new(&mut b, H::address());
    let quiet = || silent.at.clone();
    let hour = Duration::from_secs(3600);
    let delay = Duration::from_millis(30);
    let lists = [
        (vec![at.clone(), quiet()], hour, Duration::ZERO),
        (vec![H::nowhere(), at.clone(), quiet()], hour, Duration::ZERO),
        (vec![quiet(), at.clone()], delay, delay),
        (vec![quiet(), H::nowhere(), quiet(), at.clone()], delay, delay * 2),
    ];
    for (list, attempt_delay, least) in lists {
        let start = b.watcher.update_now();
        let accept = b.submit(Op::accept(listener));
        let before = b.watcher.counters();
        let (here, connect) = b.connect_source(list, options().attempt_delay(attempt_delay));
        let write = b.submit(Op::write(here, "hello"));
        let after = b.watcher.counters();
        assert_eq!(after.sources, before.sources + 1, "attempts are no sources of the program");
        assert_eq!(after.in_flight, before.in_flight + 2, "nor operations");
        expect_connected_to(&b.end(connect), here, &at);
        assert!(b.watcher.update_now() - start >= least, "a delay for each silent address");
        expect_written(b.end(write));
        let there = expect_accepted(b.end(accept));
        let there = b.watcher.attach(there).unwrap();
        assert_eq!(b.read_exact(there, 5), b"hello");
        b.expect_alive(here, there);
        assert_eq!(b.watcher.counters().sources, before.sources + 2);
        b.watcher.abort(here);
        b.watcher.abort(there);
    }
    b.expect_all_ended();
}

pub fn a_connect_fails_when_every_address_has<H: Harness>() {
    let mut b = H::bench();
    let list = [H::nowhere(), H::nowhere(), H::nowhere()];
    let delay = Duration::from_secs(3600);
    let (here, connect) = b.connect_source(list, options().attempt_delay(delay));
    let c = b.end(connect);
    assert_eq!(c.source, here);
    expect_errno(c, &[REFUSED]);
    expect_failed(&mut b, here, REFUSED);
    b.watcher.abort(here);
    // A failed one and a silent one: it goes on until its deadline.
    let silent = Silent::new(&mut b, H::address());
    let list = [H::nowhere(), silent.at.clone()];
    let timeout = options().timeout(Duration::from_millis(20));
    let (here, connect) = b.connect_source(list, timeout);
    expect_unmoved(b.end(connect), ErrorKind::Deadline);
    assert!(b.watcher.abort(here));
    b.expect_all_ended();
}

/// The deadline of a connect moves, and stands beside the time of the next attempt.
pub fn the_deadline_of_a_connect_moves<H: Harness>() {
    let mut b = H::bench();
    let silent = Silent::new(&mut b, H::address());
    let list = || vec![silent.at.clone(); 3];
    let slow = options().attempt_delay(Duration::from_millis(10));
    let (here, connect) = b.connect_source(list(), slow.timeout(Duration::from_secs(3600)));
    b.pass(Duration::from_millis(25));
    assert!(b.is_open(connect));
    let start = b.watcher.update_now();
    assert_eq!(b.watcher.reschedule(connect, Duration::from_millis(20)), Ok(()));
    expect_unmoved(b.end(connect), ErrorKind::Deadline);
    assert!(b.watcher.update_now() - start >= Duration::from_millis(20));
    b.watcher.abort(here);
    b.expect_all_ended();
}

/// Tables that are full refuse a connect; what has begun has room for its attempts.
pub fn attempts_take_no_room_of_the_programs<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(3).max_operations(4));
    let silent = Silent::new(&mut b, H::address());
    let list = vec![silent.at.clone(); 5];
    let fast = options().attempt_delay(Duration::from_millis(10));
    let (here, connect) = b.connect_source(list.clone(), fast);
    b.pass(Duration::from_millis(60));
    let before = b.watcher.counters();
    assert_eq!((before.sources, before.free_sources, before.in_flight), (2, 1, 1));
    assert_eq!(before.free_operations, 3);
    let (other, second) = b.connect_source(list.clone(), fast);
    let full = Refusal::Full { limit: Limit::Sources, count: 3 };
    assert_eq!(b.watcher.connect(list.clone(), fast).unwrap_err(), full);
    b.watcher.abort(other);
    expect_unmoved(b.end(second), ErrorKind::Aborted);
    b.watcher.abort(here);
    expect_unmoved(b.end(connect), ErrorKind::Aborted);
    let after = b.watcher.counters();
    assert_eq!((after.sources, after.free_sources, after.free_operations), (1, 2, 4));
}

/// Other threads submit to a source that connects, and abort it.
pub fn other_threads_use_a_source_that_connects<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let submitter = b.submitter();
    let accept = b.submit(Op::accept(listener));
    let (here, connect) = b.connect_source([at.clone()], options());
    let write = std::thread::scope(|scope| {
        let submit = || submitter.submit(Op::write(here, "hello")).unwrap();
        join_scoped(scope.spawn(submit))
    });
    expect_connected_to(&b.end(connect), here, &at);
    expect_written(b.end(write));
    let there = expect_accepted(b.end(accept));
    let there = b.watcher.attach(there).unwrap();
    assert_eq!(b.read_exact(there, 5), b"hello");
    let silent = Silent::new(&mut b, H::address());
    let (here, connect) = b.connect_source([silent.at.clone()], options());
    let read = b.submit(Op::read(here));
    std::thread::scope(|scope| join_scoped(scope.spawn(|| submitter.abort(here))));
    for ticket in [connect, read] {
        let c = b.next();
        assert_eq!(c.ticket(), ticket);
        expect_unmoved(c, ErrorKind::Aborted);
    }
}

fn join_scoped<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("no panic")
}

/// Many connects at once, to every kind of address, ended in every way at any time.
pub fn connects_in_traffic<H: Harness>() {
    let mut b = H::bench();
    let (listener, good) = b.listen();
    let accept = b.submit(Op::accept(listener).multishot());
    let silent = Silent::new(&mut b, H::address());
    let mut random = Random::new(seed());
    let all = [good.clone(), silent.at.clone(), H::nowhere()];
    let mut won = 0;
    for round in 0..if cfg!(miri) { 2 } else { 60 } {
        let mut sources = Vec::new();
        for _ in 0..random.below(8) + 1 {
            let list: Vec<Address> =
                (0..random.below(4) + 1).map(|_| all[random.below(3)].clone()).collect();
            let delay = Duration::from_millis(10 + random.below(10) as u64);
            let limit = Duration::from_millis(random.below(40) as u64);
            let (source, connect) =
                b.connect_source(list, options().attempt_delay(delay).timeout(limit).token(7));
            let mut tickets = Vec::new();
            for op in [Op::write(source, "hello"), Op::read(source), Op::shutdown(source)] {
                match b.try_submit(op) {
                    Ok(ticket) => tickets.push(ticket),
                    Err((reason, _)) => assert_eq!(reason, Refusal::Os(REFUSED)),
                }
            }
            sources.push((source, connect, tickets));
        }
        b.look_for(Duration::from_millis(random.below(30) as u64));
        for (source, connect, _) in &sources {
            match random.below(4) {
                0 => drop(b.watcher.abort(*source)),
                1 => drop(b.watcher.cancel(*connect)),
                _ => {}
            }
        }
        for (source, connect, tickets) in sources {
            let c = b.end(connect);
            assert_eq!((c.source, c.token), (source, 7), "round {round}");
            let ok = c.result.is_ok();
            won += usize::from(ok);
            // The peer may not have been accepted: nothing answers the read.
            b.watcher.abort(source);
            for ticket in tickets {
                let c = b.end(ticket);
                assert_eq!(c.source, source, "round {round}");
                assert!(ok || c.result.is_err(), "round {round}: {c:?}");
            }
        }
        assert_eq!(b.watcher.counters().sources, 2, "round {round}");
    }
    assert!(won > 0, "no connect has succeeded");
    b.watcher.abort(listener);
    while b.is_open(accept) {
        drop(b.next());
    }
    b.watcher.abort(silent.listener);
    let counters = b.watcher.counters();
    assert_eq!((counters.sources, counters.in_flight), (0, 0));
}

/// As an internet address does: the connect goes on when there is room, and ends at its deadline.
pub fn a_full_unix_listener_makes_a_source_wait<H: Harness>() {
    if cfg!(windows) {
        return skip(Needs::Luck, "a full Unix listener: there are no Unix sockets on Windows");
    }
    let mut b = H::bench();
    let dir = system::Directory::new();
    let path = Address::unix(dir.path().join("full")).unwrap();
    let backlog = ListenOptions::default().backlog(0);
    let listener = b.watcher.listen_with(path.clone(), backlog).unwrap();
    let span = Duration::from_millis(20);
    let mut connected = 0;
    let expired = loop {
        let (source, connect) = b.connect_source([path.clone()], options().timeout(span));
        let c = b.end(connect);
        if c.result.is_err() {
            break (source, c);
        }
        connected += 1;
        assert!(connected < 20, "a backlog of none takes everything");
    };
    expect_unmoved(expired.1, ErrorKind::Deadline);
    let (waits, connect) = b.connect_source([path.clone()], options());
    let write = b.submit(Op::write(waits, "hello"));
    b.look();
    let mut accepted = Vec::new();
    for _ in 0..=connected {
        let accept = b.submit(Op::accept(listener));
        accepted.push(expect_accepted(b.end(accept)));
    }
    expect_connected_to(&b.end(connect), waits, &path);
    expect_written(b.end(write));
    let last = b.watcher.attach(accepted.pop().unwrap()).unwrap();
    assert_eq!(b.read_exact(last, 5), b"hello");
    b.watcher.abort(expired.0);
    b.expect_all_ended();
}
