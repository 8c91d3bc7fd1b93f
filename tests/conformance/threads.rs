//! Submitters on threads that run while the loop waits; loops on threads of their own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use windlass::{Completions, Done, Op, Refusal, Watcher};

use crate::common::*;

/// A wake is never lost: ping-pong between a thread and the loop, which sleeps each time.
pub fn no_wake_is_lost<H: Harness>() {
    let mut b = H::bench();
    let submitter = b.submitter();
    let rounds = seeds::races(4_000);
    let (pong, ping) = mpsc::channel();
    let thread = thread::spawn(move || {
        for i in 0..rounds {
            submitter.wake(i).unwrap();
            assert_eq!(receive(&ping, "the loop answers a wake"), i);
        }
    });
    for i in 0..rounds {
        let c = b.next();
        assert_eq!(c.token, i);
        pong.send(i).unwrap();
    }
    join(thread, "the thread that wakes");
}

/// Four threads at once: nothing is lost, each one's order is kept.
pub fn many_threads_post_in_their_order<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().remote_queue(64));
    let submitter = b.submitter();
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let submitter = submitter.clone();
            thread::spawn(move || {
                for i in 0..10_000u64 {
                    let mut value = (t, i);
                    while let Err(refused) = submitter.post(t, value) {
                        value = refused.value;
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0u64; 4];
    for _ in 0..40_000 {
        let c = b.next();
        let Ok(Done::Message(message)) = c.result else { panic!("{c:?}") };
        let (t, i) = message.downcast::<(u64, u64)>().unwrap();
        assert_eq!((t, i), (c.token, next[t as usize]));
        next[t as usize] += 1;
    }
    for thread in threads {
        join(thread, "a thread that submits");
    }
    b.expect_quiet();
}

/// Submissions from threads beside the loop's own, ids from a small reserve: every ticket ends
/// once.
pub fn threads_submit_beside_the_loop<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().id_reserve(16).remote_queue(16));
    let submitter = b.submitter();
    let (tell, tickets) = mpsc::channel();
    let threads: Vec<_> = (0..3u64)
        .map(|t| {
            let (submitter, tell) = (submitter.clone(), tell.clone());
            thread::spawn(move || {
                for i in 0..3000u64 {
                    let mut op = Op::nop().token(t << 32 | i);
                    let ticket = loop {
                        match submitter.submit(op) {
                            Ok(ticket) => break ticket,
                            Err(refused) => {
                                op = refused.value;
                                thread::yield_now();
                            }
                        }
                    };
                    tell.send((ticket, t << 32 | i)).unwrap();
                }
            })
        })
        .collect();
    drop(tell);
    let mut ended = std::collections::HashMap::new();
    let mut own = 0;
    while ended.len() < 9000 {
        if own < 5000 {
            own += 1;
            b.submit(Op::nop().token(u64::MAX));
        }
        let c = b.next();
        if c.token != u64::MAX {
            assert!(ended.insert(c.token, c.ticket()).is_none(), "twice: {c:?}");
        }
    }
    for thread in threads {
        join(thread, "a thread that submits");
    }
    for (ticket, token) in tickets {
        assert_eq!(ended.remove(&token), Some(ticket));
    }
    assert!(ended.is_empty());
}

/// I1: an abort on a full queue stays behind the attach and the operation that were queued before
/// it.
pub fn an_abort_overtakes_nothing<H: Harness>() {
    let pairs = seeds::races(500);
    let mut b = H::bench_with(Watcher::builder().remote_queue(1));
    let submitter = b.submitter();
    let (here, there) = b.pair();
    let handle = b.watcher.detach(here).unwrap();
    let over = AtomicBool::new(false);
    let mut refused = 0;
    thread::scope(|scope| {
        let attaching = scope.spawn(|| {
            let mut handle = handle;
            for _ in 0..pairs {
                let source = loop {
                    match submitter.attach(handle) {
                        Ok(source) => break source,
                        Err(refused) => handle = refused.value,
                    }
                    thread::yield_now();
                };
                submitter.abort(source);
                handle = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
            }
            while submitter.wake(u64::MAX).is_err() {
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Fills the queue between the two.
                let _ = submitter.wake(1);
            }
        });
        loop {
            let c = b.next();
            if c.token == u64::MAX {
                break;
            }
            refused += 1;
        }
        attaching.join().unwrap();
        over.store(true, Ordering::Relaxed);
    });
    assert!(refused > 0, "the queue was never filled");
    b.look();
    assert_eq!(b.watcher.counters().sources, 1, "attached, and never aborted");
    assert!(b.read(there).is_empty());
}

/// A broadcast to more clients than there are ids in reserve, by a thread that waits for room.
pub fn a_broadcast_to_thousands_waits_for_room<H: Harness>() {
    let _alone = hungry();
    let clients = H::MANY.min(8000);
    let mut b = H::bench();
    let submitter = b.submitter();
    let pairs = b.pairs(clients);
    let mut written = 0;
    thread::scope(|scope| {
        let broadcast = scope.spawn(|| {
            for &(here, _) in &pairs {
                submitter.submit_wait(Op::write(here, "tick").token(1), BOUND).unwrap();
            }
        });
        while written < clients {
            let c = b.next();
            assert_eq!(c.token, 1);
            expect_written(c);
            written += 1;
        }
        broadcast.join().unwrap();
    });
    for &(_, there) in &pairs {
        assert_eq!(b.read_exact(there, 4), b"tick");
    }
}

/// Every waiting thread gets room, through a queue and a reserve of one entry each.
pub fn threads_that_wait_get_room<H: Harness>() {
    const EACH: u64 = 300;
    let mut b = H::bench_with(Watcher::builder().remote_queue(1).id_reserve(1));
    let submitter = b.submitter();
    thread::scope(|scope| {
        for t in 0..4u64 {
            let submitter = &submitter;
            scope.spawn(move || {
                for i in 0..EACH {
                    let token = t << 32 | i;
                    match t {
                        0 => submitter.post_wait(token, i, BOUND).unwrap(),
                        _ => drop(submitter.submit_wait(Op::nop().token(token), BOUND).unwrap()),
                    }
                }
            });
        }
        let mut next = [0u64; 4];
        for _ in 0..4 * EACH {
            let token = b.next().token;
            let (t, i) = ((token >> 32) as usize, token & u64::from(u32::MAX));
            assert_eq!(i, next[t], "thread {t}");
            next[t] += 1;
        }
    });
    b.expect_quiet();
}

/// A thread that waits for an id gets one when an operation ends, even if no other request wakes
/// the loop.
pub fn threads_wait_for_places_in_a_full_table<H: Harness>() {
    let hour = std::time::Duration::from_secs(3600);
    for _ in 0..20 {
        let mut b = H::bench_with(Watcher::builder().max_operations(4).id_reserve(1));
        let submitter = b.submitter();
        let timers = [(); 3].map(|()| b.submit(Op::timer(hour)));
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                // The first takes the last place; the second waits until there is another.
                submitter.submit_wait(Op::timer(hour).token(1), BOUND).unwrap();
                submitter.wake(0).unwrap();
                submitter.submit_wait(Op::timer(hour).token(2), BOUND).unwrap();
                submitter.wake(0).unwrap();
            });
            assert_eq!(b.next().token, 0, "the first is in flight");
            // The loop sleeps while the other thread waits, and neither keeps the other awake.
            let before = b.watcher.counters().turns;
            let mut done = Completions::new();
            b.watcher.wait_timeout(&mut done, std::time::Duration::from_millis(5)).unwrap();
            assert!(done.is_empty(), "{done:?}");
            let turns = b.watcher.counters().turns - before;
            assert!(turns < 20, "{turns} turns in 5 ms");
            assert!(b.watcher.cancel(timers[0]));
            expect_unmoved(b.end(timers[0]), windlass::ErrorKind::Cancelled);
            assert_eq!(b.next().token, 0, "the second is in flight");
            waits.join().unwrap();
        });
        assert_eq!(b.watcher.counters().in_flight, 4);
    }
}

/// A loop on its own thread: an echo server that another thread starts, feeds and ends.
pub fn a_spawned_loop_serves<H: Harness>() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let spawned = Watcher::builder()
        .driver(H::NAME.parse().expect("a driver"))
        .spawn("echo", move |mut watcher| {
            assert_eq!(thread::current().name(), Some("echo"));
            let listener = watcher.attach(listener)?;
            watcher.submit(Op::accept(listener).multishot())?;
            let mut done = Completions::new();
            let mut messages = 0;
            loop {
                wait_for(&mut watcher, &mut done, "a client or the last message");
                for c in done.drain(..) {
                    match c.result {
                        Ok(Done::Message(_)) => return Ok(messages),
                        Ok(Done::Accepted(socket)) => {
                            let source = watcher.attach(socket)?;
                            watcher.submit(Op::read(source))?;
                        }
                        Ok(Done::Read(data)) if data.is_eof() => {
                            watcher.abort(c.source);
                        }
                        Ok(Done::Read(data)) => {
                            messages += 1;
                            watcher.submit(Op::write(c.source, data))?;
                        }
                        Ok(Done::Written { .. }) => {
                            watcher.submit(Op::read(c.source))?;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        })
        .unwrap();
    for i in 0..20u8 {
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(&[i; 100]).unwrap();
        let mut answer = [0; 100];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [i; 100]);
    }
    // A socket can be handed over, too.
    let (here, mut there) = system::tcp_pair();
    let source = spawned.submitter.attach(here).unwrap();
    spawned.submitter.submit(Op::read(source)).unwrap();
    there.write_all(b"handed over").unwrap();
    let mut answer = [0; 11];
    there.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"handed over");
    spawned.submitter.wake(0).unwrap();
    assert!(join(spawned.thread, "the spawned loop").unwrap() >= 21);
    assert!(spawned.submitter.is_closed());
}

/// A guard that drops on another thread while the loop waits.
pub fn a_guard_aborts_while_the_loop_sleeps<H: Harness>() {
    let mut b = H::bench();
    b.submitter();
    for _ in 0..200 {
        let (here, there) = system::tcp_pair();
        let source = b.watcher.attach(here).unwrap();
        let read = b.submit(Op::read(source));
        let guard = b.watcher.guard(source);
        let thread = thread::spawn(move || {
            drop(guard);
            let mut end = Vec::new();
            (&there).read_to_end(&mut end).unwrap();
            assert!(end.is_empty());
        });
        expect_unmoved(b.end(read), windlass::ErrorKind::Aborted);
        join(thread, "the aborted connection's end");
    }
    assert_eq!(b.watcher.counters().sources, 0);
}

/// A loop that spins before it sleeps does the same: data, timers, wakes.
pub fn busy_polling_changes_nothing<H: Harness>() {
    let span = std::time::Duration::from_micros(200);
    let mut b = H::bench_with(Watcher::builder().busy_poll(span));
    let (here, there) = b.pair();
    let submitter = b.submitter();
    let thread = thread::spawn(move || {
        for i in 0..500 {
            submitter.wake(i).unwrap();
            thread::yield_now();
        }
    });
    for i in 0..500 {
        b.cross(here, there, &pattern(100, i));
    }
    for i in 0..500 {
        assert_eq!(b.next().token, i);
    }
    join(thread, "the thread that wakes");
    let start = b.watcher.now();
    for millis in [0, 1, 3] {
        let span = std::time::Duration::from_millis(millis);
        b.pass(span);
        assert!(b.watcher.now() >= start + span);
    }
    b.expect_quiet();
}

/// A loop that has spun for a part of the time until a deadline sleeps only for the rest.
pub fn busy_polling_delays_no_deadline<H: Harness>() {
    let spin = std::time::Duration::from_millis(300);
    let mut b = H::bench_with(Watcher::builder().busy_poll(spin));
    let start = b.watcher.now();
    let span = std::time::Duration::from_millis(350);
    b.pass(span);
    let took = b.watcher.now() - start;
    assert!(took >= span, "{took:?}");
    // Only virtual time is exact: a loaded machine may let the loop run late.
    assert!(H::NAME != "sim" || took < std::time::Duration::from_millis(550), "{took:?}");
}

/// Binding the thread takes nothing from the tables.
#[cfg(unix)]
pub fn binding_the_loop_takes_no_place<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(2).max_operations(2));
    // Whether this processor may be used does not matter here.
    let _ = b.watcher.set_affinity(0);
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap());
    b.expect_alive(here, there);
    b.watcher.close();
    let error = b.watcher.set_affinity(0).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
}
