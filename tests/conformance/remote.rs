//! Other threads: submitters, guards, wakes. Where time is virtual the threads are joined before
//! the wait.

use std::thread;
use std::time::Duration;

use windlass::{Done, ErrorKind, Limit, Op, Refusal, Source, Submitter, Ticket, Watcher};

use crate::common::*;

fn on_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[track_caller]
fn message<T: 'static>(c: windlass::Completion) -> T {
    match c.result {
        Ok(Done::Message(message)) => message.downcast().expect("of this type"),
        other => panic!("wanted a message: {other:?}"),
    }
}

pub fn messages_arrive_in_the_order_of_the_queue<H: Harness>() {
    // More than one turn takes.
    let mut b = H::bench_with(Watcher::builder().remote_queue(10_000));
    let submitter = b.submitter();
    on_thread(|| {
        for i in 0..10_000u64 {
            if i % 2 == 0 {
                submitter.post(i, format!("message {i}")).unwrap();
            } else {
                submitter.wake(i).unwrap();
            }
        }
    });
    for i in 0..10_000u64 {
        let c = b.next();
        assert_eq!(c.token, i);
        assert!(c.source.is_none());
        if i % 2 == 0 {
            assert_eq!(message::<String>(c), format!("message {i}"));
        } else {
            assert!(matches!(c.result, Ok(Done::Message(m)) if m.is_empty()));
        }
    }
    b.expect_quiet();
}

/// A burst costs one wake, a loop that is awake none.
pub fn a_burst_costs_one_wake<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    // Look, so that the loop counts as asleep.
    b.look();
    let before = b.watcher.counters().wakes;
    on_thread(|| (0..500).for_each(|i| submitter.wake(i).unwrap()));
    assert_eq!(b.take(500).len(), 500);
    let wakes = b.watcher.counters().wakes - before;
    assert!(wakes <= 1, "{wakes} wakes");
}

/// Attach, submit, cancel and abort from another thread, each in its place.
pub fn another_thread_drives_a_connection<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let handle = b.watcher.detach(here).unwrap();
    let (here, read, write, cancelled) = on_thread(|| {
        let here = submitter.attach(handle).unwrap();
        let read = submitter.submit(Op::read(here).token(1)).unwrap();
        let write = submitter.submit(Op::write(here, "from afar").token(2)).unwrap();
        let cancelled = submitter.submit(Op::read(here).token(3)).unwrap();
        submitter.cancel(cancelled).unwrap();
        (here, read, write, cancelled)
    });
    assert_eq!(b.read_exact(there, 9), b"from afar");
    expect_written(b.end(write));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    b.write(there, "x");
    let c = b.end(read);
    assert_eq!((c.source, c.token), (here, 1));
    assert_eq!(&*expect_read(c), b"x");
    b.expect_alive(here, there);
    let pending = on_thread(|| {
        let pending = submitter.submit(Op::read(here)).unwrap();
        submitter.abort(here);
        pending
    });
    expect_unmoved(b.end(pending), ErrorKind::Aborted);
    assert!(b.read(there).is_empty());
}

/// The loop's own submission to a source that another thread has just attached.
pub fn a_source_can_be_used_here_as_soon_as_its_name_is_known<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let handle = b.watcher.detach(here).unwrap();
    let here = on_thread(|| submitter.attach(handle).unwrap());
    b.expect_alive(here, there);
    assert!(b.watcher.abort(here));
    assert!(b.read(there).is_empty());
}

/// As above, for questions about a source.
pub fn a_source_can_be_asked_after_as_soon_as_its_name_is_known<H: Harness>() {
    type Ask<D> = fn(&mut Bench<D>, windlass::Source) -> bool;
    let asks: [Ask<H::Driver>; 4] = [
        |b, source| b.watcher.queued_bytes(source) == Ok(0),
        |b, source| b.watcher.peer_address(source).is_ok(),
        |b, source| b.watcher.detach(source).is_ok(),
        |b, source| b.watcher.cancel_all(source) == 0 && b.watcher.abort(source),
    ];
    for ask in asks {
        let mut b = H::bench();
        let (here, there) = b.pair();
        let handle = b.watcher.detach(here).unwrap();
        let submitter = b.submitter();
        let source = on_thread(|| submitter.attach(handle).unwrap());
        assert!(ask(&mut b, source));
        b.watcher.abort(there);
    }
}

/// What only the loop can see becomes the completion, with the buffer.
pub fn a_remote_refusal_is_a_completion<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let (listener, _) = b.listen();
    b.watcher.abort(here);
    let submitter = b.submitter();
    let memory = vec![5; 10];
    let at = memory.as_ptr() as usize;
    let (stale, unsupported, empty) = on_thread(|| {
        (
            submitter.submit(Op::write(here, memory).token(8)).unwrap(),
            submitter.submit(Op::read_into(listener, vec![0; 4])).unwrap(),
            submitter.submit(Op::write(listener, "")).unwrap(),
        )
    });
    let c = b.end(stale);
    assert_eq!(c.token, 8);
    let back = expect_unmoved(c, ErrorKind::Aborted).into_vec();
    assert_eq!((back.as_ptr() as usize, back.len()), (at, 10));
    expect_errno(b.end(unsupported), &[libc::EOPNOTSUPP]);
    assert!(b.end(empty).result.is_err());
    assert_eq!(b.watcher.counters().in_flight, 0);
    b.expect_quiet();
}

pub fn a_full_queue_names_its_bound<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().remote_queue(8));
    let submitter = b.submitter();
    let full = Refusal::Full { limit: Limit::RemoteQueue, count: 8 };
    on_thread(|| {
        for i in 0..8 {
            submitter.post(i, i).unwrap();
        }
        let refused = submitter.post(9, vec![1, 2, 3]).unwrap_err();
        assert_eq!((refused.reason, refused.value), (full, vec![1, 2, 3]));
        assert_eq!(submitter.wake(9).unwrap_err(), full);
        let refused = submitter.submit(Op::nop().token(77)).unwrap_err();
        assert_eq!(refused.reason, full);
    });
    for i in 0..8u64 {
        assert_eq!(message::<u64>(b.next()), i);
    }
    b.expect_quiet();
    // There is room again, and no id was lost.
    for round in 0..100 {
        let tickets: Vec<_> = on_thread(|| {
            let submit = |_| submitter.submit(Op::nop()).unwrap();
            (0..8).map(submit).collect()
        });
        for ticket in tickets {
            assert!(b.end(ticket).result.is_ok(), "round {round}");
        }
    }
    assert_eq!(b.watcher.counters().in_flight, 0);
}

/// Aborts are never refused for want of room.
pub fn an_abort_passes_a_full_queue<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().remote_queue(2));
    let pairs = b.pairs(20);
    let submitter = b.submitter();
    on_thread(|| {
        submitter.wake(1).unwrap();
        submitter.wake(2).unwrap();
        for &(here, _) in &pairs {
            submitter.abort(here);
        }
    });
    b.take(2);
    for (_, there) in pairs {
        assert!(b.read(there).is_empty());
    }
    assert_eq!(b.watcher.counters().sources, 20);
}

pub fn an_empty_reserve_names_its_bound<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().id_reserve(4));
    let submitter = b.submitter();
    let full = Refusal::Full { limit: Limit::IdReserve, count: 4 };
    for _ in 0..20 {
        let tickets: Vec<_> = on_thread(|| {
            let tickets = (0..4).map(|i| submitter.submit(Op::nop().token(i)).unwrap());
            let tickets = tickets.collect();
            let refused = submitter.submit(Op::nop().token(9)).unwrap_err();
            assert_eq!(refused.reason, full);
            tickets
        });
        for (i, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(b.end(ticket).token, i as u64);
        }
        b.expect_quiet();
    }
}

/// One tick of a chat server: with the default settings no write is refused.
pub fn a_broadcast_to_hundreds_loses_no_write<H: Harness>() {
    const CLIENTS: usize = 1500;
    let _alone = hungry();
    let mut b = H::bench();
    let submitter = b.submitter();
    let pairs = b.pairs(CLIENTS);
    b.look();
    let refused = on_thread(|| {
        let writes = pairs.iter().map(|&(here, _)| submitter.submit(Op::write(here, "tick")));
        writes.filter(Result::is_err).count()
    });
    assert_eq!(refused, 0, "writes of {CLIENTS}");
    for &(_, there) in &pairs {
        assert_eq!(b.read_exact(there, 4), b"tick");
    }
}

/// A thread that waits for room is refused at its timeout, and gets its arguments back. The loop's
/// own thread is refused at once.
pub fn a_wait_for_room_is_bounded<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().remote_queue(2));
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let full = Refusal::Full { limit: Limit::RemoteQueue, count: 2 };
    let hour = Duration::from_secs(3600);
    submitter.wake(1).unwrap();
    submitter.wake(2).unwrap();
    let start = std::time::Instant::now();
    let refused = submitter.submit_wait(Op::write(here, "own"), hour).unwrap_err();
    assert_eq!((refused.reason, &*refused.value.into_buf()), (Refusal::Deadlock, &b"own"[..]));
    b.take(2);
    submitter.wake(1).unwrap();
    submitter.wake(2).unwrap();
    let refused = submitter.post_wait(3, String::from("own"), hour).unwrap_err();
    assert_eq!((refused.reason, refused.value.as_str()), (Refusal::Deadlock, "own"));
    assert!(start.elapsed() < BOUND, "the loop's thread waited");

    let handle = b.watcher.detach(there).unwrap();
    let span = Duration::from_millis(20);
    let handle = on_thread(|| {
        let start = std::time::Instant::now();
        let memory = vec![5; 10];
        let at = memory.as_ptr();
        let refused = submitter.submit_wait(Op::write(here, memory), span).unwrap_err();
        assert_eq!(refused.reason, full);
        let memory = refused.value.into_buf().into_vec();
        assert_eq!(memory.as_ptr(), at);
        let refused = submitter.post_wait(3, String::from("text"), span).unwrap_err();
        assert_eq!((refused.reason, refused.value.as_str()), (full, "text"));
        let refused = submitter.attach_wait(handle, span).unwrap_err();
        assert_eq!(refused.reason, full);
        assert!(start.elapsed() >= 3 * span, "it did not wait");
        refused.value
    });
    b.take(2);
    // A refused operation can be retried; with room, no call waits.
    let (there, write) = on_thread(|| {
        let there = submitter.attach_wait(handle, span).unwrap();
        (there, submitter.submit_wait(Op::write(there, "again"), span).unwrap())
    });
    expect_written(b.end(write));
    assert_eq!(b.read_exact(here, 5), b"again");
    b.expect_alive(here, there);
    b.expect_quiet();
    b.watcher.close();
    let refused = on_thread(|| submitter.submit_wait(Op::nop(), hour)).unwrap_err();
    assert_eq!(refused.reason, Refusal::Closed);
}

/// Reserved ids count as places: the tables stay within their bounds.
pub fn the_reserve_stays_within_the_tables<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(6).max_operations(6).id_reserve(256));
    let (here, _there) = b.pair();
    let submitter = b.submitter();
    let accepted = on_thread(|| {
        let submit = |_| submitter.submit(Op::read_into(here, vec![0; 4]));
        (0..20).map(submit).filter(Result::is_ok).count()
    });
    assert!((1..=6).contains(&accepted), "{accepted} operations");
    b.look();
    assert_eq!(b.watcher.counters().in_flight, accepted as u64);
    b.watcher.abort(here);
    assert_eq!(b.take(accepted).len(), accepted);
}

/// The reserve for other threads leaves room for this one.
pub fn the_reserve_leaves_room<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(8).max_operations(8).id_reserve(256));
    let submitter = b.submitter();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener).multishot());
    for _ in 0..2 {
        let connect = b.submit(Op::connect(at.clone()));
        let there = expect_connected(b.end(connect));
        b.watcher.attach(there).unwrap();
        let here = expect_accepted(b.next());
        b.watcher.attach(here).unwrap();
    }
    assert!(submitter.submit(Op::nop()).is_ok());
    let nop = b.next();
    assert!(nop.source.is_none() && nop.result.is_ok());
    assert!(b.watcher.cancel(accept));
    expect_unmoved(b.end(accept), ErrorKind::Cancelled);

    // A name can be all that there may be.
    let mut b = H::bench_with(Watcher::builder().max_sources(1).max_operations(1));
    let submitter = b.submitter();
    let full = Refusal::Full { limit: Limit::IdReserve, count: 0 };
    assert_eq!(submitter.submit(Op::nop()).unwrap_err().reason, full);
    let (listener, _) = b.listen();
    b.submit(Op::accept(listener));
}

/// An id in the reserve for other threads names no source yet: a program that guesses it, or uses
/// an equal id of another watcher, reaches nothing with it.
pub fn an_id_in_reserve_names_no_source<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().id_reserve(8));
    let submitter = b.submitter();
    // As all names of places that were used once.
    let timer = b.submit(Op::timer(Duration::from_secs(60)));
    let generation = timer.generation();
    for index in 0..64 {
        let ticket = Ticket::from_parts(index, generation);
        let source = Source::from_parts(index, generation);
        if ticket == timer {
            continue;
        }
        submitter.cancel(ticket).unwrap();
        submitter.abort(source);
        assert!(!b.watcher.cancel(ticket) && !b.watcher.abort(source));
    }
    assert!(b.watcher.cancel(timer));
    expect_unmoved(b.end(timer), ErrorKind::Cancelled);
    let (here, there) = b.pair();
    let others = b.pairs(8);
    let handles: Vec<_> = others.iter().map(|&(a, _)| b.watcher.detach(a).unwrap()).collect();
    let own: Vec<_> = (0..16).map(|_| b.submit(Op::read_exact(here, room(4), 4))).collect();
    let (attached, tickets) = on_thread(|| {
        let attach = |handle| submitter.attach(handle).unwrap();
        let submit =
            |token| submitter.submit(Op::read_exact(here, room(4), 4).token(token)).unwrap();
        let attached: Vec<_> = handles.into_iter().map(attach).collect();
        (attached, (0..8).map(submit).collect::<Vec<_>>())
    });
    b.look();
    assert!(attached.iter().all(|&source| b.watcher.queued_bytes(source) == Ok(0)));
    b.write(there, vec![7; 4 * 24]);
    for ticket in own.into_iter().chain(tickets) {
        assert_eq!(*expect_read(b.end(ticket)), [7; 4]);
    }
    b.expect_all_ended();
}

/// Ids that were never given out find nothing, also where a place is vacant.
pub fn made_up_names_find_nothing<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    let (gone, _) = b.pair();
    b.watcher.abort(gone);
    let timer = b.submit(Op::timer(Duration::from_secs(60)));
    assert!(b.watcher.cancel(timer));
    expect_unmoved(b.end(timer), ErrorKind::Cancelled);
    for more in 0..4 {
        let source = Source::from_parts(gone.index(), gone.generation().saturating_add(more));
        let ticket = Ticket::from_parts(timer.index(), timer.generation().saturating_add(more));
        assert!(!b.watcher.cancel(ticket) && !b.watcher.abort(source), "{more}");
        assert_eq!(b.watcher.cancel_all(source), 0);
        assert_eq!(b.watcher.detach(source).unwrap_err(), Refusal::Stale);
        assert_eq!(b.watcher.fd(source).unwrap_err(), Refusal::Stale);
        assert_eq!(b.refuse(Op::read(source)).0, Refusal::Stale);
        submitter.cancel(ticket).unwrap();
        submitter.abort(source);
    }
    b.expect_quiet();
    let tickets = [(); 8].map(|()| b.submit(Op::timer(Duration::from_secs(60))));
    let apart: std::collections::HashSet<_> = tickets.into_iter().collect();
    assert_eq!(apart.len(), 8, "two have one place");
}

/// Behind however many requests a name stands, it can be used.
pub fn a_name_is_known_behind_a_long_queue<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().remote_queue(10_000));
    let submitter = b.submitter();
    let (here, there) = b.pair();
    let others = b.pairs(2);
    let mut handles = others
        .iter()
        .map(|&(other, _)| b.watcher.detach(other).unwrap())
        .collect::<Vec<_>>()
        .into_iter();
    let wakes = |count: usize| (0..count).for_each(|_| submitter.wake(0).unwrap());
    wakes(5000);
    let attached = submitter.attach(handles.next().unwrap()).unwrap();
    assert!(b.watcher.abort(attached), "it is there");
    wakes(5000);
    let attached = submitter.attach(handles.next().unwrap()).unwrap();
    let read = b.submit(Op::read(attached));
    assert!(b.watcher.cancel(read));
    wakes(5000);
    let read = submitter.submit(Op::read_into(here, room(4))).unwrap();
    assert!(b.watcher.cancel(read), "it is pending");
    expect_unmoved(b.end(read), ErrorKind::Cancelled);
    b.expect_alive(here, there);
}

/// gaio's TestGC made deterministic: guards dropped on other threads abort exactly their sources.
pub fn guards_dropped_on_other_threads_abort_their_sources<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(200);
    b.submitter();
    let guards: Vec<_> = pairs.iter().map(|&(here, _)| b.watcher.guard(here)).collect();
    for &(here, _) in &pairs {
        b.submit(Op::read(here));
    }
    let mut guards = guards.into_iter();
    let kept: Vec<_> = guards.by_ref().take(50).map(|guard| guard.release()).collect();
    let threads: Vec<Vec<_>> = (0..3).map(|_| guards.by_ref().take(50).collect()).collect();
    thread::scope(|scope| {
        for guards in threads {
            scope.spawn(move || drop(guards));
        }
    });
    for c in b.take(150) {
        assert!(!kept.contains(&c.source));
        expect_unmoved(c, ErrorKind::Aborted);
    }
    b.expect_quiet();
    assert_eq!(b.watcher.counters().sources, 400 - 150);
    for (i, &(here, there)) in pairs.iter().enumerate() {
        if i < 50 {
            assert_eq!(kept[i], here);
            b.write(there, "x");
        } else {
            assert!(b.read(there).is_empty());
        }
    }
    assert_eq!(b.take(50).len(), 50);
}

/// Requests that are queued when the watcher closes end like operations: exactly once, as closed.
pub fn requests_that_meet_a_close_end_as_closed<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let handle = b.watcher.detach(there).unwrap();
    let submitter = b.submitter();
    let tickets = on_thread(|| {
        let attached = submitter.attach(handle).unwrap();
        vec![
            submitter.submit(Op::read(here)).unwrap(),
            submitter.submit(Op::read_into(attached, vec![0; 4])).unwrap(),
            submitter.submit(Op::write(attached, "x")).unwrap(),
            submitter.submit(Op::timer(Duration::from_secs(9))).unwrap(),
            submitter.submit(Op::read(attached)).unwrap(),
        ]
    });
    on_thread(|| submitter.post(1, 5u8).unwrap());
    b.watcher.close();
    for (i, ticket) in tickets.into_iter().enumerate() {
        let c = b.end(ticket);
        assert_eq!(c.error_kind(), Some(ErrorKind::Closed), "request {i}: {c:?}");
    }
    assert_eq!(message::<u8>(b.next()), 5, "the message is delivered, too");
    let counters = b.watcher.counters();
    assert_eq!((counters.in_flight, counters.sources), (0, 0), "{counters:?}");
    on_thread(|| {
        assert!(submitter.is_closed());
        assert_eq!(submitter.submit(Op::nop()).unwrap_err().reason, Refusal::Closed);
        assert_eq!(submitter.post(1, "x").unwrap_err().reason, Refusal::Closed);
        submitter.abort(here);
    });
}

/// A submitter outlives its watcher; its queued requests are released.
pub fn a_submitter_outlives_its_watcher<H: Harness>() {
    let alive = std::sync::Arc::new(());
    let mut b = H::bench();
    let submitter: Submitter = b.submitter();
    submitter.post(1, alive.clone()).unwrap();
    drop(b);
    assert!(submitter.is_closed());
    assert_eq!(submitter.wake(1).unwrap_err(), Refusal::Closed);
    assert_eq!(std::sync::Arc::strong_count(&alive), 1, "the message was dropped");
}

/// The loop's thread can use sources and tickets of other threads even at the bound of waiting
/// completions, where the loop takes no requests.
pub fn names_are_known_whatever_waits<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_operations(16));
    let (here, there) = b.pair();
    let handle = b.watcher.detach(there).unwrap();
    let submitter = b.submitter();
    let (attached, timer) = on_thread(|| {
        let timer = submitter.submit(Op::timer(Duration::from_secs(9999))).unwrap();
        (submitter.attach(handle).unwrap(), timer)
    });
    let mut nops = 0;
    while b.watcher.submit(Op::nop()).is_ok() {
        nops += 1;
    }
    let reason = b.refuse(Op::read(attached)).0;
    assert!(matches!(reason, Refusal::Full { limit: Limit::Completions, .. }), "{reason:?}");
    assert_eq!(b.watcher.reschedule(timer, Duration::from_secs(9)), Err(reason));
    assert!(b.watcher.cancel(timer), "it has not ended");
    assert!(b.watcher.abort(attached), "it is there");
    let mut done = windlass::Completions::new();
    let mut ended = Vec::new();
    while ended.len() <= nops {
        b.watcher.wait(&mut done).unwrap();
        ended.extend(done.drain(..));
    }
    let last = ended.pop().filter(|c| c.ticket() == timer).or_else(|| {
        let at = ended.iter().position(|c| c.ticket() == timer)?;
        Some(ended.swap_remove(at))
    });
    expect_unmoved(last.expect("the timer has ended"), ErrorKind::Cancelled);
    assert!(b.read(here).is_empty(), "its descriptor is closed");
    assert_eq!(b.watcher.counters().in_flight, 0);
}
