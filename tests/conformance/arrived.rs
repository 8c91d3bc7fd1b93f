//! C4: what has arrived wins over a deadline and over an idle timeout, also if more sources are
//! ready than one wait takes (64 events), or than the kernel works off in one call (20 on a ring).

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Completion, Done, Op, Ready, Source, Ticket, Watcher};

use crate::common::*;

/// More than three waits take.
const SOURCES: usize = 200;
/// Operations of each other kind behind them.
const OTHERS: usize = 9;

/// Connections of the watcher's, and their other ends, which the watcher does not know.
fn connections<H: Harness>(b: &mut Bench<H::Driver>, count: usize) -> Vec<(Source, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("its address");
    let connection = |_| {
        let there = TcpStream::connect(at).expect("it listens");
        let (here, _) = listener.accept().expect("a connection");
        (b.watcher.attach(here).expect("room for a source"), there)
    };
    (0..count).map(connection).collect()
}

/// The bytes are there, and no wait has reported them.
fn send_all<H: Harness>(b: &mut Bench<H::Driver>, pairs: &[(Source, TcpStream)]) {
    for (_, there) in pairs {
        (&*there).write_all(b"there").unwrap();
    }
    for &(here, _) in pairs {
        expect_readable::<H>(b, here);
    }
}

#[track_caller]
fn expect_readable<H: Harness>(b: &mut Bench<H::Driver>, source: Source) {
    let fd = b.watcher.fd(source).expect("its descriptor");
    assert!(system::wait_readable(fd, Some(BOUND)));
}

/// Gives operations in flight a deadline that has passed when the loop looks.
fn let_pass<D: Driver>(b: &mut Bench<D>, tickets: &[Ticket]) {
    for &ticket in tickets {
        b.watcher.reschedule(ticket, Duration::ZERO).expect("it is in flight");
    }
}

#[track_caller]
fn expect_all<D: Driver>(b: &mut Bench<D>, what: &str, tickets: &[Ticket]) {
    let failed: Vec<Completion> =
        tickets.iter().map(|&ticket| b.end(ticket)).filter(|c| c.result.is_err()).collect();
    let count = tickets.len();
    assert!(failed.is_empty(), "{} of {count} {what}: {:?}", failed.len(), failed[0]);
}

/// On io_uring all but 20 of them ended with `Deadline`.
pub fn reads_that_have_bytes_do_not_expire<H: Harness>() {
    for events in [1, 64, 1000] {
        reads_that_have_bytes::<H>(events, Op::read);
        reads_that_have_bytes::<H>(events, |source| Op::read(source).multishot());
        reads_that_have_bytes::<H>(events, |source| Op::read_into(source, vec![0; 5]));
        reads_that_have_bytes::<H>(events, |source| Op::read_exact(source, vec![0; 5], 5));
    }
}

fn reads_that_have_bytes<H: Harness>(events: usize, op: fn(Source) -> Op) {
    let _hungry = hungry();
    let mut b = H::bench_with(Watcher::builder().events_per_wait(events));
    let pairs = connections::<H>(&mut b, SOURCES);
    let tickets: Vec<Ticket> = pairs.iter().map(|&(here, _)| b.submit(op(here))).collect();
    b.expect_quiet();
    send_all::<H>(&mut b, &pairs);
    let_pass(&mut b, &tickets);
    expect_all(&mut b, "reads", &tickets);
}

/// Only the read at the head of its queue was tried once more: one with a deadline behind another
/// without one ended, though the bytes for both had come.
pub fn reads_behind_others_do_not_expire<H: Harness>() {
    for events in [1, 64] {
        let _hungry = hungry();
        let mut b = H::bench_with(Watcher::builder().events_per_wait(events));
        let pairs = connections::<H>(&mut b, SOURCES);
        let exact = |source| Op::read_exact(source, vec![0; 2], 2);
        let ahead: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(exact(here))).collect();
        let behind: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
        b.expect_quiet();
        send_all::<H>(&mut b, &pairs);
        let_pass(&mut b, &behind);
        expect_all(&mut b, "reads behind others", &behind);
        expect_all(&mut b, "reads ahead", &ahead);
        b.expect_all_ended();
    }
}

/// A last try takes what an event has told. When the source runs later, the try there finds nothing
/// and seemed vain: on the poll driver it began a pause, in which what arrives is late.
pub fn a_last_try_begins_no_pause<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().events_per_wait(1));
    let sockets: Vec<_> = (0..20)
        .map(|_| {
            let here = UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = here.local_addr().unwrap();
            (b.watcher.attach(here).unwrap(), at)
        })
        .collect();
    let first: Vec<_> = sockets.iter().map(|&(here, _)| b.submit(Op::recv_from(here))).collect();
    let behind: Vec<_> = sockets.iter().map(|&(here, _)| b.submit(Op::recv_from(here))).collect();
    b.expect_quiet();
    let there = UdpSocket::bind("127.0.0.1:0").unwrap();
    for &(here, at) in &sockets {
        there.send_to(b"there", at).unwrap();
        expect_readable::<H>(&mut b, here);
    }
    let_pass(&mut b, &first);
    expect_all(&mut b, "receives", &first);
    b.expect_quiet();
    assert_eq!(b.watcher.next_timeout(), None, "a pause");
    assert!(behind.iter().all(|&receive| b.is_open(receive)));
}

/// As above, for the operations whose source the kernel only reports as ready, behind 200 reads.
pub fn what_waits_for_readiness_does_not_expire<H: Harness>() {
    for events in [1, 64] {
        let _hungry = hungry();
        let mut b = H::bench_with(Watcher::builder().events_per_wait(events));
        let pairs = connections::<H>(&mut b, SOURCES);
        let polled = connections::<H>(&mut b, OTHERS);
        let listeners: Vec<_> = (0..OTHERS).map(|_| b.listen()).collect();
        let sockets: Vec<Source> = (0..OTHERS)
            .map(|_| b.watcher.attach(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap())
            .collect();

        let reads: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
        let polls: Vec<_> =
            polled.iter().map(|&(here, _)| b.submit(Op::poll(here, Ready::READABLE))).collect();
        let accepts: Vec<_> =
            listeners.iter().map(|&(listener, _)| b.submit(Op::accept(listener))).collect();
        let messages: Vec<_> =
            sockets.iter().map(|&socket| b.submit(Op::recv_from(socket))).collect();
        b.expect_quiet();

        send_all::<H>(&mut b, &pairs);
        send_all::<H>(&mut b, &polled);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for &socket in &sockets {
            let to = b.watcher.local_address(socket).unwrap().ip().unwrap();
            sender.send_to(b"there", to).unwrap();
            expect_readable::<H>(&mut b, socket);
        }
        let mut peers = Vec::new();
        for (listener, at) in &listeners {
            peers.push(TcpStream::connect(at.ip().unwrap()).unwrap());
            expect_readable::<H>(&mut b, *listener);
        }
        let all = [("polls", polls), ("accepts", accepts), ("messages", messages)];
        let_pass(&mut b, &reads);
        for (_, tickets) in &all {
            let_pass(&mut b, tickets);
        }
        for (what, tickets) in &all {
            expect_all(&mut b, what, tickets);
        }
        expect_all(&mut b, "reads", &reads);
        b.expect_all_ended();
    }
}

/// A cancel comes too late for what has arrived.
pub fn a_cancel_takes_no_bytes<H: Harness>() {
    let _hungry = hungry();
    let mut b = H::bench();
    let pairs = connections::<H>(&mut b, SOURCES);
    let tickets: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
    b.expect_quiet();
    send_all::<H>(&mut b, &pairs);
    let mut asked = 0;
    for &(here, _) in &pairs {
        asked += b.watcher.cancel_all(here);
    }
    let mut told = 0;
    for (&ticket, &(here, _)) in tickets.iter().zip(&pairs) {
        let c = b.end(ticket);
        let got = c.result.is_ok();
        told += usize::from(!got);
        // What the read did not take is there for the next one.
        match c.result {
            Ok(Done::Read(data)) => assert_eq!(&*data, b"there"),
            _ => assert_eq!(b.read(here), b"there"),
        }
    }
    assert!(told <= asked, "{told} were cancelled, {asked} were asked for");
    b.expect_all_ended();
}

/// An idle timeout ended the reads of sources whose bytes had come long before.
pub fn sources_that_have_bytes_are_not_idle<H: Harness>() {
    const IDLE: Duration = Duration::from_millis(200);
    for events in [1, 64] {
        let _hungry = hungry();
        let mut b = H::bench_with(Watcher::builder().events_per_wait(events));
        let pairs = connections::<H>(&mut b, SOURCES);
        let tickets: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
        b.expect_quiet();
        for &(here, _) in &pairs {
            b.watcher.set_idle_timeout(here, Some(IDLE)).unwrap();
        }
        send_all::<H>(&mut b, &pairs);
        // The loop does something else until every timeout is over.
        let end = b.watcher.update_now() + 3 * IDLE;
        while b.watcher.update_now() < end {
            std::thread::yield_now();
        }
        expect_all(&mut b, "reads", &tickets);
        assert_eq!(b.watcher.counters().idle_timeouts, 0);
    }
}

/// What an embedding loop finds: its descriptor stays readable until everything was taken.
#[cfg(unix)]
pub fn an_embedding_loop_takes_everything<H: Harness>() {
    let _hungry = hungry();
    let mut b = H::bench();
    let pairs = connections::<H>(&mut b, SOURCES);
    let tickets: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(Op::read(here))).collect();
    b.expect_quiet();
    send_all::<H>(&mut b, &pairs);
    let_pass(&mut b, &tickets);
    let mut ended = 0;
    while ended < SOURCES {
        if b.watcher.next_timeout() != Some(Duration::ZERO) {
            let fd = b.watcher.pollable().expect("a descriptor");
            assert!(system::wait_readable(fd, Some(BOUND)), "{ended} of {SOURCES}");
        }
        let batch = b.now();
        let failed = batch.iter().filter(|c| c.result.is_err()).count();
        assert_eq!(failed, 0, "of {}", batch.len());
        ended += batch.len();
    }
}
