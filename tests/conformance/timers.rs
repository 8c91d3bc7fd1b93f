//! Timers: order, zero, huge, cancel; they and the I/O do not starve each other.

use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{Done, ErrorKind, Op, Ready, Refusal};

use crate::common::*;

/// libuv's timer order: equal deadlines fire in the order of submission.
pub fn equal_deadlines_fire_in_order<H: Harness>() {
    let mut b = H::bench();
    let at = b.watcher.now() + Duration::from_millis(5);
    for token in 0..1000 {
        b.submit(Op::timer_at(at).token(token));
    }
    let tokens: Vec<u64> = b.take(1000).iter().map(|c| c.token).collect();
    assert!(tokens.is_sorted());
    assert!(b.watcher.now() >= at);
    b.expect_all_ended();
}

pub fn timers_fire_in_the_order_of_their_deadlines<H: Harness>() {
    let mut b = H::bench();
    let mut random = Random::new(77);
    let start = b.watcher.now();
    for _ in 0..2000 {
        let nanos = random.below(30_000_000) as u64;
        b.submit(Op::timer_at(start + Duration::from_nanos(nanos)).token(nanos));
    }
    let mut last = 0;
    for _ in 0..2000 {
        let c = b.next();
        assert!(c.token >= last, "{} after {last}", c.token);
        last = c.token;
        assert!(b.watcher.now() >= start + Duration::from_nanos(last));
        expect_timer(c);
    }
    b.expect_all_ended();
}

/// nbio: half of them are cancelled; none of those fires, all others do.
pub fn cancelled_timers_do_not_fire<H: Harness>() {
    let mut b = H::bench();
    let tickets: Vec<_> = (0..100)
        .map(|i| b.submit(Op::timer(Duration::from_micros(i * 37 % 5000)).token(i)))
        .collect();
    let mut cancelled = 0;
    for ticket in tickets.iter().step_by(2) {
        // Zero spans may have fired already, but nothing has been delivered yet.
        cancelled += usize::from(b.watcher.cancel(*ticket));
    }
    assert_eq!(cancelled, 50);
    for (i, ticket) in tickets.into_iter().enumerate() {
        let c = b.end(ticket);
        if i % 2 == 0 {
            expect_unmoved(c, ErrorKind::Cancelled);
        } else {
            expect_timer(c);
        }
    }
    b.expect_all_ended();
}

pub fn a_timer_of_zero_fires_at_the_next_wait<H: Harness>() {
    let mut b = H::bench();
    let ticket = b.submit(Op::timer(Duration::ZERO));
    expect_timer(b.end(ticket));
    let now = b.watcher.now();
    let ticket = b.submit(Op::timer_at(now));
    expect_timer(b.end(ticket));
    let past = now - Duration::from_nanos(1);
    let ticket = b.submit(Op::timer_at(past));
    expect_timer(b.end(ticket));
    b.expect_all_ended();
}

/// libuv's timer_huge_timeout: no overflow makes a far timer fire now, or keeps a near one from it.
pub fn a_huge_timer_does_not_fire<H: Harness>() {
    let mut b = H::bench();
    let spans = [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        Duration::from_nanos(u64::MAX - 1),
        Duration::from_nanos(i64::MAX as u64),
        Duration::from_secs(u64::from(u32::MAX)),
    ];
    let far = spans.map(|span| b.submit(Op::timer(span)));
    let near = b.submit(Op::timer(Duration::from_millis(2)));
    expect_timer(b.end(near));
    b.look();
    for ticket in far {
        assert!(b.is_open(ticket));
        assert!(b.watcher.cancel(ticket));
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    b.expect_all_ended();
}

/// The earlier of a timer's own time and its deadline ends it, and never early: at its own time it
/// fires, at an earlier deadline it ends with `Deadline`.
pub fn the_earlier_of_a_timer_and_its_deadline_wins<H: Harness>() {
    let mut b = H::bench();
    let (soon, late) = (Duration::from_millis(5), Duration::from_secs(9999));
    let start = b.watcher.now();
    let fire = [
        Op::timer(soon).timeout(late),
        Op::timer(soon).deadline(start + late),
        Op::timer_at(start + soon).timeout(late),
        Op::timer_at(start + soon).deadline(start + late),
        // The deadline equals the timer's own time.
        Op::timer_at(start + soon).deadline(start + soon),
        // The last call counts.
        Op::timer(soon).timeout(Duration::from_millis(1)).timeout(late),
    ];
    let end = [
        Op::timer(late).timeout(soon),
        Op::timer(late).deadline(start + soon),
        Op::timer_at(start + late).timeout(soon),
        Op::timer_at(start + late).deadline(start + soon),
        Op::timer(Duration::MAX).timeout(soon),
        Op::timer(late).deadline(start + late).timeout(soon),
    ];
    for op in fire {
        let ticket = b.submit(op);
        expect_timer(b.end(ticket));
        assert!(b.watcher.now() >= start + soon);
    }
    for op in end {
        let ticket = b.submit(op);
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
        assert!(b.watcher.now() >= start + soon);
    }
    b.expect_all_ended();
}

/// A timer whose time has come at submission fires even if its deadline has passed, as available
/// data wins over a read's deadline. If only its deadline has passed, it ends at the next wait.
pub fn a_timer_whose_deadline_has_passed<H: Harness>() {
    let mut b = H::bench();
    b.pass(Duration::from_millis(2));
    let now = b.watcher.now();
    let past = now - Duration::from_millis(1);
    for op in [
        Op::timer(Duration::ZERO).timeout(Duration::ZERO),
        Op::timer_at(now).deadline(past),
        Op::timer_at(past).timeout(Duration::from_secs(9999)),
    ] {
        let ticket = b.submit(op);
        expect_timer(b.end(ticket));
    }
    for op in [
        Op::timer(Duration::from_secs(9999)).deadline(past),
        Op::timer(Duration::from_secs(9999)).timeout(Duration::ZERO),
    ] {
        let ticket = b.submit(op);
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
    }
    b.expect_all_ended();
}

/// Like libuv's timer_again, for every operation: a program can reschedule timers and deadlines
/// earlier and later, and none fires at its old time.
pub fn timers_and_deadlines_can_be_moved<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (soon, late) = (Duration::from_millis(5), Duration::from_secs(9999));
    let start = b.watcher.update_now();
    let sooner = b.submit(Op::timer(late));
    let later = b.submit(Op::timer(Duration::ZERO));
    b.watcher.reschedule(sooner, soon).unwrap();
    b.watcher.reschedule(later, late).unwrap();
    expect_timer(b.end(sooner));
    assert!(b.watcher.now() >= start + soon);
    b.look();
    assert!(b.is_open(later), "its old time has passed");
    let at = b.watcher.update_now() + soon;
    b.watcher.reschedule_at(later, at).unwrap();
    expect_timer(b.end(later));
    assert!(b.watcher.now() >= at);
    for ticket in [sooner, later] {
        assert_eq!(b.watcher.reschedule(ticket, soon), Err(Refusal::Stale));
    }
    // Deadlines: moved away, moved near, and the first one of an operation that had none.
    for op in [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read(here).timeout(soon),
        Op::read_exact(here, room(9), 9).timeout(late),
        Op::read_into(here, room(9)),
    ] {
        let start = b.watcher.update_now();
        let ticket = b.submit(op);
        b.watcher.reschedule(ticket, late).unwrap();
        b.pass(2 * soon);
        assert!(b.is_open(ticket), "moved away");
        b.watcher.reschedule(ticket, soon).unwrap();
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
        assert!(b.watcher.now() >= start + 3 * soon);
        assert_eq!(b.watcher.reschedule(ticket, soon), Err(Refusal::Stale));
    }
    // An operation that ended before its deadline is stale, as is one that ended at submission.
    let ticket = b.submit(Op::read(here).timeout(late));
    b.write(there, "x");
    assert_eq!(&*expect_read(b.end(ticket)), b"x");
    let nop = b.submit(Op::nop());
    for ticket in [ticket, nop, windlass::Ticket::NONE] {
        assert_eq!(b.watcher.reschedule(ticket, soon), Err(Refusal::Stale));
    }
    b.end(nop);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A rescheduled timer keeps its deadline.
pub fn a_moved_timer_keeps_its_deadline<H: Harness>() {
    let mut b = H::bench();
    let (soon, late) = (Duration::from_millis(5), Duration::from_secs(9999));
    let fires = b.submit(Op::timer(late).timeout(late));
    let ends = b.submit(Op::timer(Duration::ZERO).timeout(soon));
    b.watcher.reschedule(fires, soon).unwrap();
    b.watcher.reschedule(ends, late).unwrap();
    expect_timer(b.end(fires));
    expect_unmoved(b.end(ends), ErrorKind::Deadline);
    b.expect_all_ended();
}

/// Equal deadlines end in the order of their calls, for all kinds of operations; a rescheduled one
/// comes last.
pub fn equal_deadlines_end_in_order_whatever_has_them<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(20);
    let at = b.watcher.update_now() + Duration::from_millis(30);
    let mut wanted = Vec::new();
    for (i, (here, _)) in pairs.iter().enumerate() {
        let op = match i % 3 {
            0 => Op::timer_at(at),
            1 => Op::read_exact(*here, room(4), 4).deadline(at),
            _ => Op::timer(Duration::from_secs(9999)).deadline(at),
        };
        wanted.push(b.submit(op.token(i as u64)));
    }
    for i in [4, 0] {
        let moved = wanted.remove(i);
        b.watcher.reschedule_at(moved, at).unwrap();
        wanted.push(moved);
    }
    let mut ends = b.take(20);
    if H::COMPLETES {
        // An operation in the kernel ends with the kernel's answer.
        ends.retain(|c| c.code() == OpCode::Timer);
        wanted.retain(|&ticket| ends.iter().any(|c| c.ticket() == ticket));
        assert_eq!(ends.len(), 13);
    }
    let ends: Vec<_> = ends.iter().map(|c| c.ticket()).collect();
    assert_eq!(ends, wanted);
    b.expect_all_ended();
}

/// The watcher reads the clock once between two waits, or on `update_now`; time never runs
/// backwards.
pub fn the_time_stands_still_between_waits<H: Harness>() {
    let mut b = H::bench();
    let first = b.watcher.now();
    for _ in 0..1000 {
        assert_eq!(b.watcher.now(), first);
    }
    let start = std::time::Instant::now();
    while H::NAME != "sim" && start.elapsed() < Duration::from_micros(50) {}
    assert_eq!(b.watcher.now(), first);
    let updated = b.watcher.update_now();
    assert!(
        updated
            >= first
                + if H::NAME == "sim" || H::NAME == "faults" {
                    Duration::ZERO
                } else {
                    Duration::from_micros(50)
                }
    );
    assert_eq!(b.watcher.now(), updated);
    b.pass(Duration::from_millis(1));
    assert!(b.watcher.now() >= updated + Duration::from_millis(1));
}

/// TigerBeetle: a chain of timers without delay does not starve the I/O.
pub fn a_chain_of_zero_timers_does_not_starve_io<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut pings = 0;
    // Where time is virtual, nothing but these timers lets it pass, and the network's delays need
    // it.
    let step = Duration::from_micros(u64::from(H::NAME == "sim"));
    b.submit(Op::timer(step));
    b.submit(Op::read(here));
    b.submit(Op::write(there, "ping"));
    let mut turns = 0u64;
    while pings < 50 {
        turns += 1;
        assert!(turns < 5_000_000, "{pings} pings got through");
        match b.next().result {
            Ok(Done::Timer) => drop(b.submit(Op::timer(step))),
            Ok(Done::Read(_)) => {
                pings += 1;
                b.submit(Op::read(here));
                b.submit(Op::write(there, "ping"));
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The other way round: a flood of I/O does not starve the timers.
pub fn a_flood_does_not_starve_timers<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.submit(Op::read(here).multishot());
    let at = b.watcher.now() + Duration::from_millis(30);
    let timer = b.submit(Op::timer_at(at));
    let mut bytes = 0u64;
    b.submit(Op::write(there, vec![7; 1 << 16]));
    while b.is_open(timer) {
        match b.next().result {
            Ok(Done::Read(data)) => bytes += data.len() as u64,
            // Virtual time needs a moment in which nothing happens.
            Ok(Done::Written { buf, .. }) if bytes < 64 << 20 => {
                b.submit(Op::write(there, buf));
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(b.watcher.now() >= at);
}

/// Timers started while others fire wait for their own time.
pub fn timers_started_by_timers<H: Harness>() {
    let mut b = H::bench();
    let start = b.watcher.now();
    let step = Duration::from_micros(300);
    for i in 1..=50u32 {
        let ticket = b.submit(Op::timer(step));
        expect_timer(b.end(ticket));
        assert!(b.watcher.now() >= start + step * i);
    }
    b.expect_all_ended();
}

/// Every kind of waiting operation can get its first deadline.
pub fn every_operation_in_flight_can_be_rescheduled<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (listener, _) = b.listen();
    let stuck = b.stuck();
    let soon = Duration::from_millis(5);
    for op in [
        Op::read(here),
        Op::read(here).multishot(),
        Op::read_into(here, room(9)),
        Op::read_exact(here, room(9), 9),
        Op::read_vectored(here, vec![room(4), room(4)]),
        Op::accept(listener),
        Op::accept(listener).multishot(),
        Op::poll(here, Ready::READABLE),
        Op::write(stuck.writer, "behind"),
        Op::shutdown(stuck.writer),
        Op::wait_drained(stuck.writer, 0),
        Op::close(stuck.writer),
    ] {
        let (code, ticket) = (op.code(), b.submit(op));
        let start = b.watcher.update_now();
        b.watcher.reschedule(ticket, soon).unwrap();
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
        assert!(b.watcher.now() >= start + soon, "{code:?} is early");
        assert_eq!(b.watcher.reschedule(ticket, soon), Err(Refusal::Stale));
    }
    // The write that the others waited for, in part.
    b.watcher.reschedule(stuck.ticket, soon).unwrap();
    expect_error(b.end(stuck.ticket), ErrorKind::Deadline);
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A read without a buffer takes no place of its own. With its first deadline it gets one, and
/// keeps its ticket and its place before other reads.
pub fn a_rescheduled_read_stays_what_it_was<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let late = Duration::from_secs(9999);
    // Its completions.
    let many = b.submit(Op::read(here).multishot().token(1));
    b.watcher.reschedule(many, late).unwrap();
    for text in ["1", "2"] {
        b.write(there, text);
        let c = b.end(many);
        assert!(c.has_more() && c.token == 1 && c.source == here, "{c:?}");
        assert_eq!(&*expect_read(c), text.as_bytes());
        b.watcher.reschedule(many, late).unwrap();
    }
    // Its cancel, once.
    assert!(b.watcher.cancel(many));
    expect_unmoved(b.end(many), ErrorKind::Cancelled);
    assert!(!b.watcher.cancel(many));
    // Its order: reads behind it, submitted before and after.
    let first = b.submit(Op::read(here).token(1));
    let second = b.submit(Op::read_exact(here, room(3), 3).token(2));
    b.watcher.reschedule(first, late).unwrap();
    let third = b.submit(Op::read(here).token(3));
    let fourth = b.submit(Op::read(here).token(4));
    assert!(b.watcher.cancel(fourth));
    expect_unmoved(b.end(fourth), ErrorKind::Cancelled);
    b.write(there, "a");
    assert_eq!(&*expect_read(b.end(first)), b"a");
    assert_eq!(b.watcher.reschedule(first, late), Err(Refusal::Stale));
    b.write(there, "bcd");
    assert_eq!(&*expect_read(b.end(second)), b"bcd");
    b.write(there, "e");
    assert_eq!(&*expect_read(b.end(third)), b"e");
    // Its end with its source, and at the end of the file.
    let read = b.submit(Op::read(here));
    b.watcher.reschedule(read, late).unwrap();
    assert_eq!(b.watcher.detach(here).err(), Some(Refusal::Busy));
    assert_eq!(b.watcher.cancel_all(here), 1);
    expect_unmoved(b.end(read), ErrorKind::Cancelled);
    let read = b.submit(Op::read(here));
    b.watcher.reschedule(read, late).unwrap();
    b.watcher.abort(there);
    expect_eof(b.end(read));
    let (here, _there) = b.pair();
    let read = b.submit(Op::read(here));
    b.watcher.reschedule(read, late).unwrap();
    b.watcher.abort(here);
    expect_unmoved(b.end(read), ErrorKind::Aborted);
    b.expect_all_ended();
}

/// A full table of operations refuses no deadline to a read that was accepted without a place.
pub fn a_full_table_refuses_no_deadline<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().max_operations(8));
    let (here, there) = b.pair();
    let read = b.submit(Op::read(here));
    let timers: Vec<_> =
        std::iter::from_fn(|| b.try_submit(Op::timer(Duration::from_secs(9999))).ok()).collect();
    b.watcher.reschedule(read, Duration::from_millis(2)).unwrap();
    expect_unmoved(b.end(read), ErrorKind::Deadline);
    for timer in timers {
        assert!(b.watcher.cancel(timer));
        b.end(timer);
    }
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// Data that is there wins over an instant that has passed; without data the operation ends at the
/// next wait.
pub fn a_deadline_can_be_moved_to_an_instant_that_has_passed<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.pass(Duration::from_millis(2));
    let past = b.watcher.now() - Duration::from_millis(1);
    for op in [Op::read(here), Op::read_into(here, room(9))] {
        let ticket = b.submit(op);
        b.watcher.reschedule_at(ticket, past).unwrap();
        expect_unmoved(b.end(ticket), ErrorKind::Deadline);
    }
    let timer = b.submit(Op::timer(Duration::from_secs(9999)));
    b.watcher.reschedule_at(timer, past).unwrap();
    expect_timer(b.end(timer));
    let peek = b.submit(Op::poll(here, Ready::READABLE));
    b.write(there, "x");
    b.end(peek);
    let ticket = b.submit(Op::read_exact(here, room(1), 1));
    // Where the data is taken at submission, the operation has ended.
    let answer = b.watcher.reschedule_at(ticket, past);
    assert!(matches!(answer, Ok(()) | Err(Refusal::Stale)));
    assert_eq!(&*expect_read(b.end(ticket)), b"x");
    b.expect_all_ended();
}

/// Another thread can move deadlines and timers, too; what has ended stays as it is.
pub fn deadlines_can_be_moved_from_elsewhere<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let late = Duration::from_secs(9999);
    let timer = b.submit(Op::timer(late));
    let read = b.submit(Op::read(here));
    let behind = b.submit(Op::read_exact(here, room(9), 9).timeout(late));
    let start = b.watcher.update_now();
    submitter.reschedule_at(timer, start).unwrap();
    submitter.reschedule(behind, Duration::ZERO).unwrap();
    submitter.reschedule(read, Duration::from_millis(3)).unwrap();
    expect_timer(b.end(timer));
    expect_unmoved(b.end(read), ErrorKind::Deadline);
    expect_unmoved(b.end(behind), ErrorKind::Deadline);
    assert!(b.watcher.now() >= start + Duration::from_millis(3));
    for ended in [timer, read, behind, windlass::Ticket::NONE] {
        submitter.reschedule(ended, Duration::ZERO).unwrap();
    }
    b.expect_alive(here, there);
    b.watcher.close();
    assert_eq!(submitter.reschedule(read, late), Err(Refusal::Closed));
}

fn expect_owned(c: windlass::Completion, source: windlass::Source) {
    assert_eq!(c.source, source, "{c:?}");
    assert!(matches!(c.result, Ok(Done::Timer)), "{c:?}");
}

/// A timer's completion names its owner, and nothing else changes: reads go on beside it.
pub fn a_timer_names_its_owner<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (soon, late) = (Duration::from_millis(5), Duration::from_secs(9999));
    let start = b.watcher.update_now();
    let at = start + soon;
    for op in [Op::timer(soon), Op::timer_at(at), Op::timer(soon).timeout(late)] {
        let ticket = b.submit(op.owned_by(here).token(7));
        b.expect_alive(here, there);
        let c = b.end(ticket);
        assert_eq!((c.token, c.code()), (7, OpCode::Timer));
        expect_owned(c, here);
        assert!(b.watcher.now() >= at);
    }
    let ends = b.submit(Op::timer(late).timeout(soon).owned_by(here));
    let moved = b.submit(Op::timer(late).owned_by(here));
    b.watcher.reschedule(moved, soon).unwrap();
    let c = b.end(ends);
    assert_eq!(c.source, here);
    expect_unmoved(c, ErrorKind::Deadline);
    expect_owned(b.end(moved), here);
    let read = b.submit(Op::read(here).owned_by(there));
    let cancelled = b.submit(Op::timer(late).owned_by(here));
    assert!(b.watcher.cancel(cancelled));
    assert_eq!(b.end(cancelled).error_kind(), Some(ErrorKind::Cancelled));
    b.write(there, "x");
    assert_eq!(b.end(read).source, here, "only timers have owners");
    b.expect_all_ended();
}

/// A timer ends with its owner, like the owner's other operations.
pub fn a_timer_ends_with_its_owner<H: Harness>() {
    let mut b = H::bench();
    let late = Duration::from_secs(9999);
    let (here, there) = b.pair();
    let owned = || Op::timer(late).owned_by(here);
    let timers = [b.submit(owned()), b.submit(owned().timeout(late)), b.submit(owned())];
    assert_eq!(b.watcher.detach(here).err(), Some(Refusal::Busy));
    assert_eq!(b.watcher.cancel_all(here), 3);
    for timer in timers {
        expect_unmoved(b.end(timer), ErrorKind::Cancelled);
    }
    // A close ends them, too, before its own completion.
    let (timer, close) = (b.submit(owned()), b.submit(Op::close(here)));
    let ends = b.take(2);
    assert_eq!([ends[0].ticket(), ends[1].ticket()], [timer, close]);
    assert_eq!((ends[0].source, ends[0].error_kind()), (here, Some(ErrorKind::Aborted)));
    expect_eof(b.run(Op::read(there)));
    // The owner must be there.
    for gone in [here, windlass::Source::from_parts(77, here.generation())] {
        let (reason, op) = b.refuse(Op::timer(late).owned_by(gone));
        assert_eq!((reason, op.source()), (Refusal::Stale, gone));
    }
    let timer = b.submit(Op::timer(late).owned_by(there));
    let other = b.submit(Op::timer(late));
    assert!(b.watcher.abort(there));
    expect_unmoved(b.end(timer), ErrorKind::Aborted);
    b.expect_quiet();
    assert!(b.is_open(other), "it has no owner");
    let (here, _there) = b.pair();
    let timer = b.submit(Op::timer(late).owned_by(here));
    b.watcher.close();
    for ticket in [timer, other] {
        expect_unmoved(b.end(ticket), ErrorKind::Closed);
    }
}

/// Another thread's timer can have an owner; if the owner has gone, it ends as aborted.
pub fn a_timer_from_elsewhere_has_an_owner<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let soon = submitter.submit(Op::timer(Duration::ZERO).owned_by(here)).expect("room");
    let late = Op::timer(Duration::from_secs(9999));
    let aborted = submitter.submit(late.owned_by(there)).expect("room");
    expect_owned(b.end(soon), here);
    b.watcher.abort(there);
    let late = Op::timer(Duration::from_secs(9999));
    let vain = submitter.submit(late.owned_by(there)).expect("room");
    for ticket in [aborted, vain] {
        let c = b.end(ticket);
        assert_eq!((c.source, c.error_kind()), (there, Some(ErrorKind::Aborted)));
    }
}
