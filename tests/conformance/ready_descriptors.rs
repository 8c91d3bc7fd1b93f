//! Readiness, and calls that move bytes at once, on descriptors of the system (C11).

use std::io::{IoSlice, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

use windlass::{Op, Ready, Refusal};

use crate::common::*;
use crate::conformance::datagrams::seqpackets;
use crate::conformance::readiness::{expect_ready, expect_would_block, fill, recv_exact, refusal};

pub fn pipes_and_unix_sockets_by_readiness<H: Harness>() {
    let mut b = H::bench();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let pipe = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let (unix, mut peer) = UnixStream::pair().unwrap();
    let unix = b.watcher.attach(unix).unwrap();
    for (source, other) in [(pipe, &mut writer as &mut dyn Write), (unix, &mut peer)] {
        expect_would_block(b.watcher.recv(source, &mut [0; 9]));
        let readable = b.submit(Op::readable(source));
        b.look();
        assert!(b.is_open(readable));
        other.write_all(b"hello").unwrap();
        expect_ready(&b.end(readable), Ready::READABLE);
        assert_eq!(recv_exact(&mut b, source, 5), b"hello");
    }
    drop((writer, peer));
    for source in [pipe, unix] {
        let readable = b.submit(Op::readable(source));
        expect_ready(&b.end(readable), Ready::READABLE);
        assert_eq!(b.watcher.recv(source, &mut [0; 9]).unwrap(), 0);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let full = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    fill(&mut b, full);
    let writable = b.submit(Op::writable(full));
    b.look();
    assert!(b.is_open(writable));
    drop(reader);
    expect_ready(&b.end(writable), Ready::WRITABLE);
    let gone = b.watcher.send(full, b"x").unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::EPIPE));
}

/// Bytes behind passed descriptors are no less readable than others.
pub fn bytes_behind_descriptors_are_readable<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = UnixStream::pair().unwrap();
    let passed = || there.try_clone().map(OwnedFd::from).unwrap();
    let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach_dup(&there).unwrap());
    expect_would_block(b.watcher.recv(here, &mut [0; 9]));
    let readable = b.submit(Op::readable(here));
    for _ in 0..3 {
        let pass = b.submit(Op::send_descriptors(there, "with", vec![passed()]));
        expect_written(b.end(pass));
        b.write(there, "behind");
    }
    expect_ready(&b.end(readable), Ready::READABLE);
    let (mut got, mut some) = (Vec::new(), [0; 100]);
    while got.len() < 30 {
        let readable = b.submit(Op::readable(here));
        expect_ready(&b.end(readable), Ready::READABLE);
        let len = b.watcher.recv(here, &mut some).unwrap();
        got.extend_from_slice(&some[..len]);
    }
    assert_eq!(got, b"withbehind".repeat(3));
}

/// A call moves one message, and no two; an empty one is no end.
pub fn a_call_moves_one_message<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = UnixDatagram::pair().unwrap();
    let [here, there] = [here, there].map(|end| b.watcher.attach(OwnedFd::from(end)).unwrap());
    let mut memory = [0; 100];
    expect_would_block(b.watcher.recv(here, &mut memory));
    let readable = b.submit(Op::readable(here));
    assert_eq!(b.watcher.send(there, b"one").unwrap(), 3);
    assert_eq!(b.watcher.send(there, b"").unwrap(), 0);
    let parts = [IoSlice::new(b"th"), IoSlice::new(b"ree")];
    assert_eq!(b.watcher.send_vectored(there, &parts).unwrap(), 5);
    expect_ready(&b.end(readable), Ready::READABLE);
    assert_eq!(b.watcher.recv(here, &mut memory).unwrap(), 3);
    assert_eq!(b.watcher.recv(here, &mut memory).unwrap(), 0);
    // A message says nothing of those behind it.
    let readable = b.submit(Op::readable(here));
    expect_ready(&b.end(readable), Ready::READABLE);
    assert_eq!(b.watcher.recv(here, &mut memory[..4]).unwrap(), 4);
    assert_eq!(&memory[..4], b"thre", "the part that does not fit is lost");
    expect_would_block(b.watcher.recv(here, &mut memory));
    let many = [IoSlice::new(b"x"); 65];
    assert_eq!(refusal(b.watcher.send_vectored(there, &many)), Some(Refusal::TooLong));
    while b.watcher.send(there, &memory).is_ok() {}
    let writable = b.submit(Op::writable(there));
    b.look();
    assert!(b.is_open(writable), "the queue is full");
    while b.watcher.recv(here, &mut memory).is_ok() {}
    expect_ready(&b.end(writable), Ready::WRITABLE);
    assert_eq!(b.watcher.send(there, b"more").unwrap(), 4);
}

/// What may block is refused: files, and duplicates of descriptors that block.
pub fn calls_that_may_block_are_refused<H: Harness>() {
    let mut b = H::bench();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let file = b.watcher.attach(file).unwrap();
    assert_eq!(b.refuse(Op::readable(file)).0, Refusal::Unsupported);
    assert_eq!(refusal(b.watcher.recv(file, &mut [0; 9])), Some(Refusal::Unsupported));
    let (reader, writer) = std::io::pipe().unwrap();
    let shared = b.watcher.attach_dup(&reader).unwrap();
    let readable = b.submit(Op::readable(shared));
    (&writer).write_all(b"x").unwrap();
    expect_ready(&b.end(readable), Ready::READABLE);
    if cfg!(any(target_os = "linux", target_os = "android")) {
        // Linux opens the pipe anew.
        assert_eq!(b.watcher.recv(shared, &mut [0; 9]).unwrap(), 1);
        expect_would_block(b.watcher.recv(shared, &mut [0; 9]));
    } else {
        assert_eq!(refusal(b.watcher.recv(shared, &mut [0; 9])), Some(Refusal::Unsupported));
        assert_eq!(refusal(b.watcher.send(shared, b"x")), Some(Refusal::Unsupported));
    }
    assert!(system::is_blocking(&reader));
    // Of a connection of records, 0 bytes would not tell the end from an empty record.
    let Some((records, _peer)) = seqpackets(&mut b) else { return };
    assert_eq!(refusal(b.watcher.recv(records, &mut [0; 9])), Some(Refusal::Unsupported));
    assert_eq!(b.watcher.send(records, b"record").unwrap(), 6);
}

/// A thread that sends at moments of its own, against a loop that serves by readiness: the moments
/// between a vain call, the submission and the wait are all met.
pub fn a_thread_that_sends_at_any_moment_is_heard<H: Harness>() {
    let rounds = if H::STAMP == "kqueue" { 300 } else { 3000 };
    let mut b = H::bench();
    let (here, there) = system::tcp_pair();
    let source = b.watcher.attach(here).unwrap();
    let peer = std::thread::spawn(move || {
        let mut random = Random::new(seed());
        for round in 0..rounds {
            for _ in 0..random.below(300) {
                std::hint::spin_loop();
            }
            (&there).write_all(&pattern(1 + round % 7, round as u64)).unwrap();
            if random.below(4) == 0 {
                std::thread::yield_now();
            }
        }
        there
    });
    let wanted: Vec<u8> =
        (0..rounds).flat_map(|round| pattern(1 + round % 7, round as u64)).collect();
    let mut got = Vec::new();
    let mut some = [0; 5];
    while got.len() < wanted.len() {
        match b.watcher.recv(source, &mut some) {
            Ok(len) => got.extend_from_slice(&some[..len]),
            answer => {
                expect_would_block(answer);
                let readable = b.submit(Op::readable(source));
                expect_ready(&b.end(readable), Ready::READABLE);
            }
        }
    }
    expect_same(&got, &wanted);
    drop(join(peer, "the peer"));
}
