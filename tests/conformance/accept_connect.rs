//! Connections: both orders, many at once, refusal, full tables.

use std::time::Duration;

use windlass::{ErrorKind, Limit, Op, Refusal, Watcher};

use crate::common::*;

/// libuv's delayed_accept: the connection and its data wait for the accept.
pub fn a_connection_waits_for_its_accept<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let connect = b.submit(Op::connect(at));
    let here = b.end(connect);
    let here = b.watcher.attach(expect_connected(here)).unwrap();
    b.write(here, "early");
    let close = b.submit(Op::close(here));
    expect_closed(b.end(close));
    let accept = b.submit(Op::accept(listener));
    let c = b.end(accept);
    assert_eq!((c.source, c.has_more()), (listener, false));
    let there = b.watcher.attach(expect_accepted(c)).unwrap();
    assert_eq!(b.read_to_end(there), b"early");
    b.expect_all_ended();
}

pub fn accepts_are_served_in_order_one_connection_each<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accepts: Vec<_> = (0..20).map(|i| b.submit(Op::accept(listener).token(i))).collect();
    let connects: Vec<_> = (0..20).map(|_| b.submit(Op::connect(at.clone()))).collect();
    let mut next = 0;
    for _ in 0..40 {
        let c = b.next();
        if connects.contains(&c.ticket()) {
            expect_connected(c);
        } else {
            assert_eq!(c.ticket(), accepts[next]);
            next += 1;
            expect_accepted(c);
        }
    }
    b.expect_all_ended();
}

/// An accepted handle knows its peer: the address of the other end.
pub fn handles_know_their_peer<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener));
    let connect = b.submit(Op::connect(at.clone()));
    let accepted = expect_accepted(b.end(accept));
    let connected = expect_connected(b.end(connect));
    let (a, c) = (accepted.peer(), connected.peer());
    let here = b.watcher.attach(connected).unwrap();
    let there = b.watcher.attach(accepted).unwrap();
    assert_eq!(b.watcher.peer_address(here).unwrap(), at);
    // A Unix address is not an internet address.
    assert_eq!((a.is_some(), c.is_some()), (at.ip().is_some(), at.ip().is_some()));
    assert_eq!(a, b.watcher.local_address(here).unwrap().ip());
    assert_eq!(c, at.ip());
    // A detached handle still has its peer.
    assert_eq!(b.watcher.detach(there).unwrap().peer(), a);
}

pub fn a_multishot_accept_takes_hundreds_at_once<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener).multishot());
    let count = 300;
    for i in 0..count {
        b.submit(Op::connect(at.clone()).token(i));
    }
    let (mut accepted, mut connected) = (Vec::new(), 0);
    while accepted.len() < count as usize || connected < count {
        let c = b.next();
        if c.ticket() == accept {
            assert!(c.has_more());
            let handle = expect_accepted(c);
            accepted.push(b.watcher.attach(handle).unwrap());
        } else {
            connected += 1;
            // Dropped here: closed.
            expect_connected(c);
        }
    }
    for source in accepted {
        assert!(b.read(source).is_empty());
    }
    b.watcher.abort(listener);
    let last = b.end(accept);
    expect_unmoved(last, ErrorKind::Aborted);
    b.expect_all_ended();
}

/// libuv's tcp_connect_error: delivered once, and the place is free again.
pub fn a_refused_connect_fails_once<H: Harness>() {
    let mut b = H::bench();
    for _ in 0..5 {
        let connect = b.submit(Op::connect(H::nowhere()).token(6));
        let c = b.end(connect);
        assert_eq!(c.token, 6);
        assert!(c.source.is_none());
        expect_errno(c, &[libc::ECONNREFUSED]);
        assert_eq!(b.watcher.counters().sources, 0);
    }
    b.expect_all_ended();
}

/// C9: accepts wait for room in the table, and go on when there is some.
pub fn accepts_wait_while_the_source_table_is_full<H: Harness>() {
    let room = 6;
    let mut server = H::bench_with(Watcher::builder().max_sources(room));
    let (listener, at) = server.listen();
    // Connects take a place each, so they go one by one and leave as handles.
    let mut clients = Vec::new();
    for _ in 0..12 {
        let connect = server.submit(Op::connect(at.clone()));
        clients.push(expect_connected(server.end(connect)));
    }
    // All of them are in the listener's queue when the accept comes.
    let accept = server.submit(Op::accept(listener).multishot());
    let mut attached = Vec::new();
    for _ in 0..5 {
        let c = server.end(accept);
        assert!(c.has_more());
        let handle = expect_accepted(c);
        let source = server.watcher.attach(handle);
        attached.push(source.expect("an accepted connection has a place"));
    }
    server.expect_quiet();
    assert!(server.is_open(accept));
    assert_eq!(server.watcher.counters().sources, u64::from(room));
    // An abort lets one more in, again and again.
    for _ in 0..7 {
        assert!(server.watcher.abort(attached.remove(0)));
        let handle = expect_accepted(server.end(accept));
        attached.push(server.watcher.attach(handle).expect("a place"));
        server.expect_quiet();
    }
    assert!(server.watcher.counters().table_waits > 0);
    // The table is full: an attach and a connect are refused, and say so.
    let limit = Limit::Sources;
    let full = Refusal::Full { limit, count: room as usize };
    let refused = server.watcher.attach(clients.remove(0)).unwrap_err();
    assert_eq!(refused.reason, full);
    assert_eq!(server.refuse(Op::connect(at)).0, full);
}

/// The same when the batch is slow to be fetched: what waits inside counts.
pub fn accepted_connections_that_wait_for_delivery_have_places<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(4));
    let (listener, at) = b.listen();
    let mut clients = Vec::new();
    for _ in 0..8 {
        let connect = b.submit(Op::connect(at.clone()));
        clients.push(expect_connected(b.end(connect)));
    }
    let accepts: Vec<_> = (0..8).map(|_| b.submit(Op::accept(listener))).collect();
    b.look_for(Duration::from_millis(5));
    let ended: Vec<_> = accepts.iter().filter(|&&t| !b.is_open(t)).copied().collect();
    let mut attached = Vec::new();
    for ticket in ended {
        let handle = expect_accepted(b.end(ticket));
        if let Ok(source) = b.watcher.attach(handle) {
            attached.push(source);
        }
    }
    assert_eq!(attached.len(), 3, "as many as there are places");
}

pub fn accept_and_read_know_what_they_can_be_used_on<H: Harness>() {
    let mut b = H::bench();
    let (listener, _) = b.listen();
    let (here, there) = b.pair();
    assert_eq!(b.refuse(Op::accept(here)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::read(listener)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::read_into(listener, vec![0; 4])).0, Refusal::Unsupported);
    let (reason, op) = b.refuse(Op::write(listener, "back"));
    assert_eq!((reason, &**op.buf()), (Refusal::Unsupported, &b"back"[..]));
    assert_eq!(b.refuse(Op::recv_from(here)).0, Refusal::Unsupported);
    b.expect_alive(here, there);
}

/// Short connections, one after the other: connect, ask, answer, close, all on one watcher.
pub fn short_connections_again_and_again<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    for i in 0..300 {
        let (here, there) = b.connect(listener, &at);
        b.cross(here, there, &pattern(100, i));
        let answer = b.submit(Op::write(there, pattern(200, i)));
        let close = b.submit(Op::close(there));
        assert_eq!(b.read_to_end(here), pattern(200, i));
        expect_written(b.end(answer));
        expect_closed(b.end(close));
        assert!(b.watcher.abort(here));
    }
    assert_eq!(b.watcher.counters().sources, 1);
    b.expect_all_ended();
}

/// Aborting the listener resets the connections that were not accepted.
pub fn aborting_a_listener_ends_its_accepts<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accepts: Vec<_> = (0..10).map(|_| b.submit(Op::accept(listener))).collect();
    assert!(b.watcher.abort(listener));
    for accept in accepts {
        expect_unmoved(b.end(accept), ErrorKind::Aborted);
    }
    let connect = b.submit(Op::connect(at));
    expect_errno(b.end(connect), &[libc::ECONNREFUSED]);
    b.expect_all_ended();
}
