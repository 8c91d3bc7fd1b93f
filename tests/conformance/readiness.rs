//! Readiness that is known, and calls that move bytes at once (C11).

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{Completion, Done, ErrorKind, Op, Ready, Refusal, Source};

use crate::common::*;

#[track_caller]
pub fn expect_ready(c: &Completion, ready: Ready) {
    match &c.result {
        Ok(Done::Ready(told)) => assert_eq!(*told, ready),
        other => panic!("wanted readiness: {other:?}"),
    }
}

/// Why a call moved nothing: `None` if it would block.
#[track_caller]
pub fn refusal(answer: io::Result<usize>) -> Option<Refusal> {
    let error = answer.expect_err("it cannot move bytes");
    if error.kind() == io::ErrorKind::WouldBlock {
        return None;
    }
    let errno = error.raw_os_error().map(Refusal::Os);
    Some(Refusal::of(&error).or(errno).unwrap_or_else(|| panic!("no reason: {error:?}")))
}

#[track_caller]
pub fn expect_would_block(answer: io::Result<usize>) {
    assert_eq!(refusal(answer), None);
}

/// Takes what has come, until the source is empty; whether that was the end.
#[track_caller]
pub fn take<D: Driver>(b: &mut Bench<D>, source: Source, into: &mut Vec<u8>) -> bool {
    let mut some = [0; 3000];
    loop {
        match b.watcher.recv(source, &mut some) {
            Ok(0) => return true,
            Ok(len) => into.extend_from_slice(&some[..len]),
            answer => {
                expect_would_block(answer);
                return false;
            }
        }
    }
}

/// Receives exactly `count` bytes.
#[track_caller]
pub fn recv_exact<D: Driver>(b: &mut Bench<D>, source: Source, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        if !take(b, source, &mut all) && all.len() < count {
            let readable = b.submit(Op::readable(source));
            expect_ready(&b.end(readable), Ready::READABLE);
        }
    }
    assert_eq!(all.len(), count, "more came than was sent");
    all
}

/// Sends all bytes.
#[track_caller]
pub fn send_all<D: Driver>(b: &mut Bench<D>, source: Source, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match b.watcher.send(source, bytes) {
            Ok(len) => bytes = &bytes[len..],
            answer => {
                expect_would_block(answer);
                let writable = b.submit(Op::writable(source));
                expect_ready(&b.end(writable), Ready::WRITABLE);
            }
        }
    }
}

/// Sends until the source is full; the bytes that it took.
#[track_caller]
pub fn fill<D: Driver>(b: &mut Bench<D>, source: Source) -> usize {
    b.narrow(source);
    let bytes = vec![7; 64 << 10];
    let mut sent = 0;
    loop {
        match b.watcher.send(source, &bytes) {
            Ok(len) => sent += len,
            answer => {
                expect_would_block(answer);
                return sent;
            }
        }
        assert!(sent < 1 << 30, "a silent peer took it all");
    }
}

/// Both directions, with more bytes than the sockets hold, in pieces of any size.
pub fn bytes_cross_by_readiness<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.narrow(here);
    let bytes = pattern(H::HUGE.min(4 << 20), 5);
    let (mut left, mut got) = (&bytes[..], Vec::new());
    let mut waits = [None, None];
    while got.len() < bytes.len() {
        if waits[0].is_none() && !left.is_empty() {
            match b.watcher.send(here, left) {
                Ok(len) => left = &left[len..],
                answer => {
                    expect_would_block(answer);
                    waits[0] = Some(b.submit(Op::writable(here)));
                }
            }
        }
        if waits[1].is_none() {
            assert!(!take(&mut b, there, &mut got), "an end that was not sent");
            waits[1] = Some(b.submit(Op::readable(there)));
        }
        if (waits[0].is_some() || left.is_empty()) && got.len() < bytes.len() {
            let c = b.next();
            let which = waits.iter().position(|&wait| wait == Some(c.ticket()));
            let which = which.expect("one of the two");
            expect_ready(&c, [Ready::WRITABLE, Ready::READABLE][which]);
            waits[which] = None;
        }
    }
    expect_same(&got, &bytes);
    send_all(&mut b, there, b"and back");
    assert_eq!(recv_exact(&mut b, here, 8), b"and back");
}

/// What comes between a vain call and the wait completes the operation, at whatever moment of the
/// two it comes, and whether or not a wait has seen its event.
pub fn nothing_between_a_vain_call_and_the_wait_is_lost<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut got = Vec::new();
    for round in 0..40 {
        let text = pattern(1 + round % 5, round as u64);
        take(&mut b, here, &mut got);
        // Before the submission, with or without a wait in between, or after it.
        let early = (round % 3 < 2).then(|| {
            send_all(&mut b, there, &text);
            if round % 3 == 0 {
                b.look();
            }
        });
        let readable = b.submit(Op::readable(here));
        if early.is_none() {
            if round % 2 == 0 {
                b.look();
            }
            send_all(&mut b, there, &text);
        }
        expect_ready(&b.end(readable), Ready::READABLE);
        got.clear();
        got.extend(recv_exact(&mut b, here, text.len()));
        assert_eq!(got, text);
        got.clear();
    }
}

/// As above, of a short call in place of a vain one, and a cancelled operation before it.
pub fn nothing_behind_a_short_call_is_lost<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut bytes = [0; 64];
    for round in 0..40u8 {
        send_all(&mut b, there, &[round; 2]);
        let mut first = Vec::new();
        while first.len() < 2 {
            match b.watcher.recv(here, &mut bytes) {
                Ok(len) => first.extend_from_slice(&bytes[..len]),
                answer => {
                    expect_would_block(answer);
                    let readable = b.submit(Op::readable(here));
                    expect_ready(&b.end(readable), Ready::READABLE);
                }
            }
        }
        if round % 3 == 0 {
            let cancelled = b.submit(Op::readable(here));
            b.watcher.cancel(cancelled);
            b.end(cancelled);
        }
        send_all(&mut b, there, &[round; 3]);
        if round % 2 == 0 {
            b.look();
        }
        let readable = b.submit(Op::readable(here));
        expect_ready(&b.end(readable), Ready::READABLE);
        assert_eq!(recv_exact(&mut b, here, 3), [round; 3]);
    }
}

/// The end counts as readable, again and again.
pub fn the_end_is_readable<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let readable = b.submit(Op::readable(here));
    send_all(&mut b, there, b"last");
    let shutdown = b.submit(Op::shutdown(there));
    expect_shutdown(b.end(shutdown));
    expect_ready(&b.end(readable), Ready::READABLE);
    let mut got = Vec::new();
    while !take(&mut b, here, &mut got) {
        let readable = b.submit(Op::readable(here));
        expect_ready(&b.end(readable), Ready::READABLE);
    }
    assert_eq!(got, b"last");
    for _ in 0..3 {
        let readable = b.submit(Op::readable(here));
        expect_ready(&b.end(readable), Ready::READABLE);
        let mut end = Vec::new();
        while !take(&mut b, here, &mut end) {}
        assert!(end.is_empty());
    }
    // The other direction is as it was.
    send_all(&mut b, here, b"answer");
    assert_eq!(recv_exact(&mut b, there, 6), b"answer");
}

/// A broken connection is readable and writable: the calls say why.
pub fn a_broken_connection_is_ready<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    send_all(&mut b, here, b"never read");
    fill(&mut b, here);
    let mut none = Vec::new();
    assert!(!take(&mut b, here, &mut none));
    let readable = b.submit(Op::readable(here));
    let writable = b.submit(Op::writable(here));
    // With bytes unread, the peer's close is a reset.
    b.watcher.abort(there);
    expect_ready(&b.end(readable), Ready::READABLE);
    expect_ready(&b.end(writable), Ready::WRITABLE);
    let error = loop {
        match b.watcher.recv(here, &mut [0; 10]) {
            Ok(0) => break None,
            Ok(_) => panic!("nothing was sent"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let readable = b.submit(Op::readable(here));
                b.end(readable);
            }
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(error, Some(io::ErrorKind::ConnectionReset));
    let error = b.watcher.send(here, b"x").unwrap_err().kind();
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    assert!(matches!(error, BrokenPipe | ConnectionReset | ConnectionAborted), "{error:?}");
}

/// A multishot operation completes for each arrival, once the source was found empty.
pub fn a_multishot_operation_tells_of_each_arrival<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let readable = b.submit(Op::readable(here).multishot());
    for round in 0..20u8 {
        send_all(&mut b, there, &[round; 10]);
        let mut got = Vec::new();
        while got.len() < 10 {
            let c = b.end(readable);
            assert!(c.has_more());
            expect_ready(&c, Ready::READABLE);
            take(&mut b, here, &mut got);
        }
        assert_eq!(got, [round; 10]);
    }
    b.now();
    assert!(b.watcher.cancel(readable));
    let last = b.now().pop().expect("its end");
    assert!(last.ticket() == readable && !last.has_more());
    expect_unmoved(last, ErrorKind::Cancelled);
    let writable = b.submit(Op::writable(here).multishot());
    let c = b.end(writable);
    assert!(c.has_more());
    expect_ready(&c, Ready::WRITABLE);
    let mut sent = fill(&mut b, here);
    b.now();
    let mut got = Vec::new();
    for _ in 0..3 {
        sent += fill(&mut b, here);
        // Everything out of the way, there is room again.
        while got.len() < sent {
            take(&mut b, there, &mut got);
            if got.len() < sent {
                let readable = b.submit(Op::readable(there));
                b.end(readable);
            }
        }
        expect_ready(&b.end(writable), Ready::WRITABLE);
    }
    assert!(b.watcher.abort(here));
    let last = b.now().pop().expect("its end");
    expect_unmoved(last, ErrorKind::Aborted);
    b.expect_all_ended();
}

/// A call does not overtake the operations of its direction.
pub fn a_call_overtakes_no_operation<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let (here, there) = (stuck.writer, stuck.peer);
    assert_eq!(refusal(b.watcher.send(here, b"first")), Some(Refusal::Busy));
    // Readiness waits behind nothing.
    let reads = [Op::read(here), Op::read_exact(here, room(3), 3)].map(|op| b.submit(op));
    assert_eq!(refusal(b.watcher.recv(here, &mut [0; 9])), Some(Refusal::Busy));
    let readable = b.submit(Op::readable(here));
    assert_eq!(b.watcher.cancel_all(here), 4);
    b.now();
    assert!(reads.iter().chain([&readable, &stuck.ticket]).all(|&ticket| !b.is_open(ticket)));
    let mut got = Vec::new();
    take(&mut b, there, &mut got);
    send_all(&mut b, there, b"answer");
    assert_eq!(recv_exact(&mut b, here, 6), b"answer");
}

/// Lists of memory are filled, and sent, one part after the other.
pub fn calls_take_lists<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let text = pattern(200, 9);
    let mut left = &text[..];
    while !left.is_empty() {
        let parts: Vec<IoSlice> = left.chunks(1).map(IoSlice::new).collect();
        match b.watcher.send_vectored(here, &parts) {
            Ok(len) => {
                assert!((1..=64).contains(&len), "{len}");
                left = &left[len..];
            }
            answer => expect_would_block(answer),
        }
        b.look();
    }
    let mut got = Vec::new();
    while got.len() < 200 {
        let (mut first, mut second) = ([0; 3], [0; 50]);
        let mut parts = [&mut first[..], &mut [], &mut second].map(IoSliceMut::new);
        match b.watcher.recv_vectored(there, &mut parts) {
            Ok(len) => {
                got.extend_from_slice(&first[..len.min(3)]);
                got.extend_from_slice(&second[..len.saturating_sub(3)]);
            }
            answer => {
                expect_would_block(answer);
                let readable = b.submit(Op::readable(there));
                expect_ready(&b.end(readable), Ready::READABLE);
            }
        }
    }
    expect_same(&got, &text);
}

/// What cannot be done is refused, and says why.
pub fn what_no_call_can_do_is_refused<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    assert_eq!(refusal(b.watcher.recv(here, &mut [])), Some(Refusal::EmptyBuffer));
    assert_eq!(refusal(b.watcher.recv_vectored(here, &mut [])), Some(Refusal::EmptyBuffer));
    assert_eq!(b.watcher.send(here, &[]).unwrap(), 0);
    let (listener, _) = b.listen();
    assert_eq!(refusal(b.watcher.recv(listener, &mut [0; 9])), Some(Refusal::Unsupported));
    assert_eq!(refusal(b.watcher.send(listener, b"x")), Some(Refusal::Unsupported));
    assert_eq!(refusal(b.watcher.recv(Source::NONE, &mut [0; 9])), Some(Refusal::Stale));
    assert_eq!(b.refuse(Op::readable(Source::NONE)).0, Refusal::Stale);
}

/// On a source that connects, the operations wait for the connection, and fail with it.
pub fn readiness_waits_for_the_connection<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let accept = b.submit(Op::accept(listener));
    let (source, connect) = b.connect_source([at], ConnectOptions::default());
    let [readable, writable] = [Op::readable(source), Op::writable(source)].map(|op| b.submit(op));
    // An `io::Error` has the system's own number, which is another one on Windows.
    let kind = |answer: io::Result<usize>| answer.expect_err("no connection yet").kind();
    assert_eq!(kind(b.watcher.recv(source, &mut [0; 9])), io::ErrorKind::NotConnected);
    assert_eq!(kind(b.watcher.send(source, b"x")), io::ErrorKind::NotConnected);
    let accepted = expect_accepted(b.end(accept));
    let first = b.next();
    assert_eq!(first.ticket(), connect, "its completion comes before theirs");
    expect_ready(&b.end(writable), Ready::WRITABLE);
    let there = b.watcher.attach(accepted).unwrap();
    send_all(&mut b, source, b"there");
    assert_eq!(recv_exact(&mut b, there, 5), b"there");
    send_all(&mut b, there, b"and back");
    expect_ready(&b.end(readable), Ready::READABLE);
    assert_eq!(recv_exact(&mut b, source, 8), b"and back");
    let (source, connect) = b.connect_source([H::nowhere()], ConnectOptions::default());
    let readable = b.submit(Op::readable(source));
    let refused = ErrorKind::Os(libc::ECONNREFUSED);
    assert_eq!(b.end(connect).error_kind(), Some(refused));
    expect_unmoved(b.end(readable), refused);
}

/// Another thread submits them, too.
pub fn another_thread_waits_for_readiness<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let other = b.submitter();
    let readable = other.submit(Op::readable(here)).unwrap();
    b.look();
    send_all(&mut b, there, b"x");
    expect_ready(&b.end(readable), Ready::READABLE);
    let known = other.submit(Op::readable(here)).unwrap();
    expect_ready(&b.end(known), Ready::READABLE);
    assert_eq!(recv_exact(&mut b, here, 1), b"x");
}

/// The bytes that a call moves count for the idle timeout.
pub fn the_bytes_of_calls_count_for_the_idle_timeout<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let timeout = Duration::from_secs(2);
    b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
    let read = b.submit(Op::read(here));
    let mut last = Instant::now();
    for _ in 0..5 {
        b.pass(timeout / 4 * 3);
        if !b.is_open(read) {
            break;
        }
        last = b.watcher.update_now();
        send_all(&mut b, here, b"moved");
        recv_exact(&mut b, there, 5);
    }
    expect_unmoved(b.end(read), ErrorKind::Deadline);
    assert!(b.watcher.update_now() >= last + timeout, "bytes have moved since");
}

/// Operations and calls take turns on one source: each goes on where the other has stopped.
pub fn calls_and_operations_take_turns<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let (mut memory, mut got) = ([0; 64], Vec::new());
    for round in 0..30u8 {
        b.write(there, vec![round; 2]);
        while got.len() < 2 {
            // The first call of all finds a source that no selector knows.
            match b.watcher.recv(here, &mut memory) {
                Ok(len) => got.extend_from_slice(&memory[..len]),
                answer => {
                    expect_would_block(answer);
                    let readable = b.submit(Op::readable(here));
                    expect_ready(&b.end(readable), Ready::READABLE);
                }
            }
        }
        assert_eq!(std::mem::take(&mut got), [round; 2]);
        let read = b.submit(Op::read_exact(here, room(3), 3));
        if round % 2 == 0 {
            b.look();
        }
        send_all(&mut b, there, &[round; 3]);
        assert_eq!(*expect_read(b.end(read)), [round; 3]);
    }
    let mut sent = fill(&mut b, here);
    let write = b.submit(Op::write(here, "more"));
    while b.is_open(write) || got.len() < sent + 4 {
        take(&mut b, there, &mut got);
        let readable = b.submit(Op::readable(there));
        b.look();
        if got.len() < sent + 4 {
            b.end(readable);
        } else {
            b.watcher.cancel(readable);
            b.end(readable);
        }
    }
    expect_written(b.end(write));
    sent += 4;
    assert!(got.len() == sent && got.ends_with(b"more"));
    b.expect_all_ended();
}
