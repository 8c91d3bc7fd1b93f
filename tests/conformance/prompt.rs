//! What holds where the network answers at once: one that delays on purpose may let the one try of
//! a passed deadline find nothing, and virtual time stands still while programs work.

use std::collections::VecDeque;
use std::time::Duration;

use windlass::{Buf, Done, ErrorKind, Op, Ready, Refusal, Watcher};

use crate::common::*;
use crate::conformance::batched_datagrams::{bind, received};
use crate::conformance::readiness::{expect_ready, fill, recv_exact, refusal, send_all, take};

/// A deadline that has passed gives one try: data that is there wins.
pub fn data_that_is_there_wins_over_a_passed_deadline<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for round in 0..20 {
        b.write(there, "there");
        b.pass(Duration::from_millis(2));
        let past = b.watcher.update_now() - Duration::from_millis(1);
        let op = match round % 2 {
            0 => Op::read(here),
            _ => Op::read_into(here, vec![0; 5]),
        };
        let ticket = b.submit(op.deadline(past));
        let data = expect_read(b.end(ticket));
        // A signal, a torn packet: one try may take less than all.
        assert!(!data.is_empty() && b"there".starts_with(&data), "round {round}");
        if data.len() < 5 {
            b.read_exact(here, 5 - data.len());
        }
    }
    b.expect_all_ended();
}

/// A storm of connections leaves those that are there their turn.
pub fn a_storm_of_connections_does_not_starve_pings<H: Harness>() {
    let mut b = H::bench();
    let (client, server) = b.pair();
    let (listener, at) = b.listen();
    b.submit(Op::accept(listener).multishot().token(1));
    for _ in 0..20 {
        b.submit(Op::connect(at.clone()).token(2));
    }
    b.submit(Op::write(client, "ping").token(3));
    b.submit(Op::read_exact(server, vec![0; 4], 4).token(4));
    let (mut pings, mut connections) = (0, 0);
    while pings < 200 {
        let c = b.next();
        match (c.token, c.result) {
            (1, Ok(Done::Accepted(_))) => connections += 1,
            (2, Ok(Done::Socket(_))) => drop(b.submit(Op::connect(at.clone()).token(2))),
            (2, Err(_)) => drop(b.submit(Op::connect(at.clone()).token(2))),
            (3, Ok(Done::Written { buf, .. })) => drop(b.submit(Op::write(client, buf).token(3))),
            (4, Ok(Done::Read(buf))) => {
                pings += 1;
                b.submit(Op::read_exact(server, buf, 4).token(4));
            }
            (token, other) => panic!("{token}: {other:?}"),
        }
        assert!(connections < 20_000, "{pings} pings got through");
    }
    assert!(connections > 0);
}

/// While buffers are short, each read takes most of one; and when they are back, nothing waits.
pub fn reads_take_whole_buffers_while_they_are_short<H: Harness>() {
    const CHUNK: usize = 8192;
    const STREAMS: usize = 12;
    let mut b = H::bench_with(Watcher::builder().buffer_size(8192).swap_limit(4 * CHUNK));
    let pairs = b.pairs(STREAMS);
    for &(here, there) in &pairs {
        b.submit(Op::write(there, vec![7; 8 << 20]).token(1));
        b.submit(Op::read(here).token(2));
    }
    let mut held: VecDeque<Buf> = VecDeque::new();
    let (mut bytes, mut reads) = (0, 0);
    let mut counters = b.watcher.counters();
    while reads < 400 {
        b.look_for(Duration::from_micros(200));
        let come = b.now();
        if come.is_empty() {
            held.pop_front();
        }
        for c in come {
            let source = c.source;
            let data = expect_read(c);
            b.submit(Op::read(source).token(2));
            if counters.lease_waits > 0 {
                // The program holds all buffers: no read gets one before the oldest lease is
                // dropped.
                (bytes, reads) = (bytes + data.len(), reads + 1);
            }
            held.push_back(data);
        }
        counters = b.watcher.counters();
    }
    let share = bytes * 100 / (reads * CHUNK);
    assert!(share >= 80, "{share} % of a buffer in each of {reads} reads");
    assert!(counters.lease_waits as usize >= reads / 2, "they are short: {counters:?}");
    // They come back: full speed.
    held.clear();
    b.look_for(Duration::from_millis(5));
    for c in b.now() {
        b.submit(Op::read(c.source).token(2));
    }
    let before = b.watcher.counters().lease_waits;
    let (mut bytes, mut reads) = (0, 0);
    while reads < 400 {
        let c = b.next();
        let source = c.source;
        bytes += expect_read(c).len();
        reads += 1;
        b.submit(Op::read(source).token(2));
    }
    let waits = b.watcher.counters().lease_waits - before;
    let share = bytes * 100 / (reads * CHUNK);
    assert!(share >= 80, "{share} % of a buffer in each of {reads} reads at full speed");
    // Twelve streams share four buffers, so about one read in twelve waits.
    assert!(waits < 100, "{waits} waits for 400 reads when all buffers are back");
    b.watcher.close();
}

/// Deferred sends are refused no sooner than others: those before them go out first.
pub fn deferred_sends_need_no_more_room_than_others<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().write_limit(1000).max_operations(24));
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let (idle, _) = bind(&mut b);
    let idle: Vec<_> = (0..16).map(|_| b.submit(Op::recv_from(idle))).collect();
    for len in [400, 1] {
        let send = |i| Op::send_to(there, pattern(len, i), at.clone()).deferred();
        let sends: Vec<_> = (0..20).map(|i| b.submit(send(i))).collect();
        sends.into_iter().for_each(|send| drop(expect_written(b.end(send))));
        for i in 0..20 {
            let receive = b.submit(Op::recv_from(here));
            assert_eq!(*received(b.end(receive)).0, *pattern(len, i));
        }
    }
    for receive in idle {
        assert!(b.watcher.cancel(receive));
        expect_unmoved(b.end(receive), ErrorKind::Cancelled);
    }
    b.expect_all_ended();
}

/// A source is readable when bytes have come, and not before; it is writable when it has room.
pub fn a_source_is_ready_when_it_is_and_not_before<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let first = b.submit(Op::readable(here));
    let writable = b.submit(Op::writable(here));
    expect_ready(&b.end(writable), Ready::WRITABLE);
    b.look();
    assert!(b.is_open(first), "nothing has been sent");
    send_all(&mut b, there, b"one");
    expect_ready(&b.end(first), Ready::READABLE);
    // Nothing was taken: what was known is still known.
    let again = b.submit(Op::readable(here));
    expect_ready(&b.end(again), Ready::READABLE);
    assert_eq!(recv_exact(&mut b, here, 3), b"one");
    let second = b.submit(Op::readable(here));
    b.look();
    assert!(b.is_open(second), "everything was taken");
    send_all(&mut b, there, b"two");
    expect_ready(&b.end(second), Ready::READABLE);
    // A short read proves that nothing is left. (Not on io_uring, whose events do not tell urgent
    // data, at which reads stop.)
    let mut bytes = [0; 100];
    assert_eq!(b.watcher.recv(here, &mut bytes).unwrap(), 3);
    if H::NAME == "io_uring" {
        take(&mut b, here, &mut Vec::new());
    }
    let third = b.submit(Op::readable(here));
    b.look();
    assert!(b.is_open(third), "the short read took everything");
    assert!(b.watcher.cancel(third));
    expect_unmoved(b.end(third), ErrorKind::Cancelled);
    // A full read does not.
    send_all(&mut b, there, b"three");
    let fourth = b.submit(Op::readable(here));
    expect_ready(&b.end(fourth), Ready::READABLE);
    assert_eq!(b.watcher.recv(here, &mut bytes[..3]).unwrap(), 3);
    let fifth = b.submit(Op::readable(here));
    expect_ready(&b.end(fifth), Ready::READABLE);
    assert_eq!(recv_exact(&mut b, here, 2), b"ee");
    b.expect_all_ended();
}

/// A full source becomes writable when its peer has read.
pub fn a_full_source_is_writable_when_it_has_room<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut sent = fill(&mut b, here);
    // What the kernel is still moving makes room, too.
    let writable = loop {
        let writable = b.submit(Op::writable(here));
        b.look();
        if b.is_open(writable) {
            break writable;
        }
        expect_ready(&b.end(writable), Ready::WRITABLE);
        sent += fill(&mut b, here);
    };
    let mut got = Vec::new();
    while b.is_open(writable) {
        take(&mut b, there, &mut got);
        b.look();
    }
    expect_ready(&b.end(writable), Ready::WRITABLE);
    send_all(&mut b, here, b"more");
    let left = sent + 4 - got.len();
    got.extend(recv_exact(&mut b, there, left));
    assert_eq!(got.len(), sent + 4);
    assert!(got.ends_with(b"7more") || got.ends_with(b"\x07more"));
}

/// Several operations of one source complete with the same event, beside a poll.
pub fn several_wait_for_one_event<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut all: Vec<_> = (0..5).map(|_| b.submit(Op::readable(here))).collect();
    all.push(b.submit(Op::poll(here, Ready::READABLE)));
    b.look();
    assert!(all.iter().all(|&ticket| b.is_open(ticket)));
    send_all(&mut b, there, b"x");
    for ticket in all {
        expect_ready(&b.end(ticket), Ready::READABLE);
    }
    assert_eq!(recv_exact(&mut b, here, 1), b"x");
}

/// A listener is readable when a connection has come.
pub fn a_listener_is_readable<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let readable = b.submit(Op::readable(listener));
    b.look();
    assert!(b.is_open(readable));
    let connect = b.submit(Op::connect(at));
    expect_connected(b.end(connect));
    expect_ready(&b.end(readable), Ready::READABLE);
    let accept = b.submit(Op::accept(listener));
    expect_accepted(b.end(accept));
}

/// They end as other operations do.
pub fn readiness_ends_like_other_operations<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let mut none = Vec::new();
    take(&mut b, here, &mut none);
    let wait = |b: &mut Bench<H::Driver>, op: Op| {
        let ticket = b.submit(op);
        b.look();
        assert!(b.is_open(ticket));
        ticket
    };
    let start = b.watcher.update_now();
    let span = Duration::from_millis(5);
    let expiring = b.submit(Op::readable(here).timeout(span));
    expect_unmoved(b.end(expiring), ErrorKind::Deadline);
    assert!(b.watcher.update_now() >= start + span, "it expired early");
    let past = b.submit(Op::readable(here).deadline(start));
    expect_unmoved(b.end(past), ErrorKind::Deadline);
    // What is known wins over a deadline that has passed.
    let writable = b.submit(Op::writable(here).deadline(start));
    expect_ready(&b.end(writable), Ready::WRITABLE);
    let moved = wait(&mut b, Op::readable(here));
    b.watcher.reschedule(moved, Duration::from_millis(1)).unwrap();
    expect_unmoved(b.end(moved), ErrorKind::Deadline);
    let cancelled = wait(&mut b, Op::readable(here));
    assert!(b.watcher.cancel(cancelled));
    assert!(!b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    let all = [Op::readable(here), Op::readable(here).multishot()].map(|op| wait(&mut b, op));
    assert_eq!(b.watcher.detach(here).unwrap_err(), Refusal::Busy);
    assert_eq!(b.watcher.cancel_all(here), 2);
    for ticket in all {
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    let closed = wait(&mut b, Op::readable(here));
    let close = b.submit(Op::close(here));
    expect_unmoved(b.end(closed), ErrorKind::Aborted);
    expect_closed(b.end(close));
    let (here, _there) = b.pair();
    let aborted = wait(&mut b, Op::readable(here));
    assert!(b.watcher.abort(here));
    expect_unmoved(b.end(aborted), ErrorKind::Aborted);
    assert_eq!(b.refuse(Op::readable(here)).0, Refusal::Stale);
    assert_eq!(refusal(b.watcher.recv(here, &mut [0; 9])), Some(Refusal::Stale));
    assert_eq!(refusal(b.watcher.send(here, b"x")), Some(Refusal::Stale));
    let (here, _there) = b.pair();
    let left = wait(&mut b, Op::readable(here));
    b.watcher.close();
    expect_unmoved(b.end(left), ErrorKind::Closed);
    assert_eq!(b.refuse(Op::writable(here)).0, Refusal::Closed);
    assert_eq!(refusal(b.watcher.recv(here, &mut [0; 9])), Some(Refusal::Closed));
}
