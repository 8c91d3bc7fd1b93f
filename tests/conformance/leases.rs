//! C8: swap buffers. Leases are counted, bounded, never overwritten while held.

use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{Buf, Done, ErrorKind, Lease, Op, Watcher};

use crate::common::*;

#[track_caller]
fn lease(buf: Buf) -> Lease {
    buf.into_lease().expect("a read without a buffer")
}

pub fn leases_are_not_overwritten_while_held<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(4096));
    let (here, there) = b.pair();
    let mut held = Vec::new();
    let mut wanted = Vec::new();
    for i in 0..500 {
        let bytes = pattern(1 + i * 7 % 900, i as u64);
        b.write(there, bytes.clone());
        wanted.extend(bytes);
        while held.iter().map(|l: &Lease| l.len()).sum::<usize>() < wanted.len() {
            let read = b.submit(Op::read(here));
            held.push(lease(expect_read(b.end(read))));
        }
    }
    let got: Vec<u8> = held.iter().flat_map(|l| l.iter().copied()).collect();
    expect_same(&got, &wanted);
}

pub fn memory_is_used_again<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for i in 0..3000 {
        b.write(there, pattern(1000, i));
        let mut left = 1000;
        while left > 0 {
            left -= b.read(here).len();
        }
    }
    assert!(b.watcher.counters().swap_bytes <= 128 << 10, "two buffers at most");
}

/// Each buffer of the pool serves every read, however the pool is divided between the kernel and
/// the loop.
pub fn a_read_finds_the_last_free_buffer<H: Harness>() {
    const BUFFER: usize = 4096;
    let mut b = H::bench_with(Watcher::builder().buffer_size(BUFFER as u32).swap_limit(2 * BUFFER));
    // The loop has one of the two from now on.
    drop(b.watcher.lease(|space| space.len()).expect("an unused pool"));
    let (here, there) = b.pair();
    b.write(there, pattern(BUFFER, 1));
    let mut held = Vec::new();
    while held.iter().map(|lease: &Lease| lease.len()).sum::<usize>() < BUFFER {
        let read = b.submit(Op::read(here));
        held.push(lease(expect_read(b.end(read))));
    }
    // One that is there already, and one that is awaited.
    for first in [true, false] {
        let read = |b: &mut Bench<H::Driver>| b.submit(Op::read(here).timeout(BOUND / 2));
        let early = first.then(|| read(&mut b));
        b.look();
        b.write(there, "x");
        let read = early.unwrap_or_else(|| read(&mut b));
        assert_eq!(&*expect_read(b.end(read)), b"x");
    }
}

/// In a scarce pool the loop did the multishot reads, and waited for a buffer while the kernel had
/// one with room.
pub fn a_multishot_read_finds_the_last_free_buffer<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(4096).swap_limit(2 * 4096));
    let (here, there) = b.pair();
    let read = b.submit(Op::read(here).multishot());
    b.look();
    let _kept = b.watcher.lease(|space| space.len()).expect("the kernel has one at most");
    for _ in 0..20 {
        b.write(there, "x");
        assert_eq!(&*expect_read(b.end(read)), b"x");
    }
}

/// Pieces that the program keeps, as long as at least one other buffer is free.
pub struct Kept {
    leases: Vec<Buf>,
    /// Bytes of one buffer.
    buffer: u64,
}

impl Kept {
    pub fn new(buffer: usize) -> Kept {
        Kept { leases: Vec::new(), buffer: buffer as u64 }
    }

    /// Keeps a piece, or drops it if it may be in the last buffer but one.
    pub fn take<D: windlass::driver::Driver>(&mut self, b: &Bench<D>, piece: Buf) {
        if b.watcher.counters().free_swap_bytes >= 2 * self.buffer {
            self.leases.push(piece);
        }
    }
}

/// A program keeps pieces, but leaves a buffer free. On io_uring the reads waited for a buffer of
/// the loop, while the kernel held the free ones.
pub fn reads_go_on_while_a_buffer_is_free<H: Harness>() {
    const PIECES: [usize; 3] = [1, 300, 4096];
    for (count, size) in (1..=6).flat_map(|count| [512, 1024, 4096].map(|size| (count, size))) {
        for (piece, sources) in PIECES.into_iter().flat_map(|piece| [(piece, 1), (piece, 4)]) {
            for multishot in [true, false] {
                let builder = Watcher::builder().buffer_size(size as u32);
                let mut b = H::bench_with(builder.swap_limit(count * size));
                let pairs = b.pairs(sources);
                let read =
                    |here| if multishot { Op::read(here).multishot() } else { Op::read(here) };
                let mut kept = Kept::new(size);
                for &(here, _) in &pairs {
                    b.submit(read(here));
                }
                for _ in 0..(2 * count * size / piece / sources).clamp(6, 20) {
                    for &(_, there) in &pairs {
                        b.submit(Op::write(there, vec![7; piece]));
                    }
                    let mut left = piece * sources;
                    while left > 0 {
                        let c = b.next();
                        if c.code() != OpCode::Read {
                            continue;
                        }
                        let (here, more) = (c.source, c.has_more());
                        let data = expect_read(c);
                        left -= data.len();
                        kept.take(&b, data);
                        if !more {
                            b.submit(read(here));
                        }
                    }
                }
                b.watcher.close();
            }
        }
    }
}

/// An idle source holds no buffer: ten thousand pending reads cost one buffer at most.
pub fn pending_reads_hold_no_buffer<H: Harness>() {
    let mut b = H::bench();
    let pairs = b.pairs(200);
    assert_eq!(b.watcher.counters().swap_bytes, 0, "allocated with need");
    for &(here, there) in &pairs {
        for _ in 0..25 {
            b.submit(Op::read(here));
            b.submit(Op::read(there));
        }
    }
    b.look();
    assert!(b.watcher.counters().swap_bytes <= 64 << 10);
    b.watcher.close();
    assert_eq!(b.take(10_000).len(), 10_000);
}

/// At the limit reads wait; a lease that comes back lets them go on. They never fail and never get
/// less memory.
pub fn reads_wait_at_the_limit<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(1024).swap_limit(4096));
    let (here, there) = b.pair();
    b.write(there, pattern(20_000, 9));
    let mut held = Vec::new();
    let mut got = Vec::new();
    let pending = loop {
        let read = b.submit(Op::read(here));
        b.look_for(Duration::from_millis(3));
        if b.is_open(read) {
            break read;
        }
        let lease = lease(expect_read(b.end(read)));
        got.extend_from_slice(&lease);
        held.push(lease);
        assert!(held.len() < 500, "the limit does not hold");
    };
    let counters = b.watcher.counters();
    assert!(counters.swap_bytes <= 4096 && counters.lease_waits > 0, "{counters:?}");
    let mut pending = pending;
    while got.len() < 20_000 {
        held.clear();
        let lease = lease(expect_read(b.end(pending)));
        got.extend_from_slice(&lease);
        held.push(lease);
        if got.len() < 20_000 {
            pending = b.submit(Op::read(here));
        }
    }
    expect_same(&got, &pattern(20_000, 9));
    assert!(b.watcher.counters().swap_bytes <= 4096);
    b.expect_all_ended();
}

/// Reads that wait for a lease can be cancelled, expire, and end with their source.
pub fn reads_that_wait_for_a_lease_end_like_others<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(64).swap_limit(64));
    let (here, there) = b.pair();
    b.write(there, pattern(1000, 9));
    let read = b.submit(Op::read(here));
    let held = lease(expect_read(b.end(read)));
    // A second lease may still fit; then it is held, too.
    let mut more = Vec::new();
    let waiting = loop {
        let read = b.submit(Op::read(here));
        b.look_for(Duration::from_millis(3));
        if b.is_open(read) {
            break read;
        }
        more.push(lease(expect_read(b.end(read))));
    };
    assert!(b.watcher.cancel(waiting));
    expect_unmoved(b.end(waiting), ErrorKind::Cancelled);
    let expiring = b.submit(Op::read(here).timeout(Duration::from_millis(2)));
    expect_unmoved(b.end(expiring), ErrorKind::Deadline);
    // Reads with their own buffer do not need the pool.
    let waiting = b.submit(Op::read(here));
    assert!(b.watcher.cancel(waiting));
    b.end(waiting);
    assert_eq!(b.read_exact(here, 10).len(), 10);
    let waiting = b.submit(Op::read(here));
    assert!(b.watcher.abort(here));
    expect_unmoved(b.end(waiting), ErrorKind::Aborted);
    drop((held, more));
    b.expect_all_ended();
}

/// A lease that drops on another thread wakes the reads that wait.
pub fn a_lease_dropped_on_another_thread_lets_reads_go_on<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(64).swap_limit(64));
    let (here, there) = b.pair();
    let bytes = pattern(64 * 200, 1);
    let write = b.submit(Op::write(there, bytes.clone()));
    let read = b.submit(Op::read(here));
    let first = lease(expect_read(b.end(read)));
    let mut got = first.to_vec();
    let mut held = vec![first];
    while got.len() < bytes.len() {
        // It waits while the pool's only buffer is leased, or takes what room is left in it.
        let next = b.submit(Op::read(here));
        b.look_for(Duration::from_micros(50));
        let leases = std::mem::take(&mut held);
        let thread = std::thread::spawn(move || drop(leases));
        if got.len().is_multiple_of(2) || H::NAME == "sim" {
            join(thread, "the drop of a lease");
            held.push(lease(expect_read(b.end(next))));
        } else {
            // The wait may begin before the drop: then the drop wakes it.
            held.push(lease(expect_read(b.end(next))));
            join(thread, "the drop of a lease");
        }
        got.extend_from_slice(&held[0]);
    }
    expect_same(&got, &bytes);
    expect_written(b.end(write));
    assert!(b.watcher.counters().lease_waits > 0);
    b.expect_all_ended();
}

/// Leases outlive their watcher.
pub fn leases_outlive_their_watcher<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut held = Vec::new();
    let mut wanted = Vec::new();
    for i in 0..20 {
        let bytes = pattern(5000, i);
        b.write(there, bytes.clone());
        wanted.extend(bytes);
        while held.iter().map(|l: &Lease| l.len()).sum::<usize>() < wanted.len() {
            let read = b.submit(Op::read(here));
            held.push(lease(expect_read(b.end(read))));
        }
    }
    drop(b);
    let check = std::thread::spawn(move || {
        let got: Vec<u8> = held.iter().flat_map(|l| l.iter().copied()).collect();
        expect_same(&got, &wanted);
    });
    join(check, "the comparison");
}

/// One lease in writes to many sources: a broadcast without a copy.
pub fn a_lease_is_broadcast<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(4096).swap_limit(8192));
    let (source, teller) = b.pair();
    let pairs = b.pairs(40);
    for round in 0..20 {
        b.write(teller, pattern(500, round));
        let read = b.submit(Op::read(source));
        let message = lease(expect_read(b.end(read)));
        for &(here, _) in &pairs {
            b.submit(Op::write(here, message.clone()));
        }
        let (len, copy) = (message.len(), message.to_vec());
        drop(message);
        for &(_, there) in &pairs {
            expect_same(&b.read_exact(there, len), &copy);
        }
        for c in b.take(pairs.len()) {
            assert_eq!(expect_written(c).len(), len);
        }
        if len < 500 {
            b.read_exact(source, 500 - len);
        }
    }
    assert!(b.watcher.counters().swap_bytes <= 8192);
    b.expect_all_ended();
}

/// Parts of a lease share its memory and can be written.
pub fn parts_of_a_lease<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "header: body");
    let mut bytes = Vec::new();
    let mut parts = Vec::new();
    while bytes.len() < 12 {
        let read = b.submit(Op::read(here));
        let lease = lease(expect_read(b.end(read)));
        bytes.extend_from_slice(&lease);
        let half = lease.len() / 2;
        parts.push((lease.slice(..half), lease.slice(half..)));
    }
    for (first, second) in parts {
        let mut wanted = second.to_vec();
        wanted.extend_from_slice(&first);
        let list = [second, first].into_iter().filter(|part| !part.is_empty());
        let write = b.submit(Op::write_vectored(here, list.map(Buf::from)));
        assert_eq!(b.read_exact(there, wanted.len()), wanted);
        expect_written(b.end(write));
    }
    assert_eq!(bytes, b"header: body");
}

/// The limit, fifty stalled readers more than it has buffers, and one pinging client: with
/// deadlines on the writes to the stalled, the ping goes on.
pub fn stalled_readers_do_not_stop_a_ping<H: Harness>() {
    const BUFFERS: usize = 16;
    let builder = Watcher::builder().buffer_size(1024).swap_limit(BUFFERS * 1024);
    let mut b = H::bench_with(builder);
    let stalled: Vec<Stuck> = (0..BUFFERS + 50).map(|_| b.small_stuck()).collect();
    let (client, server) = b.pair();
    // Whatever a stalled client says is answered behind the write that is stuck, so that the answer
    // holds its lease until its deadline.
    for stuck in &stalled {
        b.submit(Op::read(stuck.writer).token(1));
        b.submit(Op::write(stuck.peer, pattern(900, 1)));
    }
    b.submit(Op::read(server).token(2));
    b.submit(Op::write(client, pattern(900, 0)));
    b.submit(Op::read_exact(client, room(900), 900).token(3));
    let (mut pings, mut expired) = (0, 0);
    while pings < 50 || expired < stalled.len() {
        let c = b.next();
        match (c.token, c.result) {
            (1, Ok(Done::Read(data))) => {
                let answer = Op::write(c.source, data).timeout(Duration::from_millis(50));
                b.submit(answer.token(4));
            }
            (2, Ok(Done::Read(data))) => {
                b.submit(Op::write(server, data));
                b.submit(Op::read(server).token(2));
            }
            (3, Ok(Done::Read(data))) => {
                pings += 1;
                b.submit(Op::write(client, pattern(900, pings)));
                b.submit(Op::read_exact(client, data, 900).token(3));
            }
            (4, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Deadline);
                expired += 1;
            }
            (_, Ok(Done::Written { .. })) => {}
            (token, other) => panic!("{token}: {other:?}"),
        }
    }
    let counters = b.watcher.counters();
    assert!(counters.swap_bytes as usize <= BUFFERS * 1024, "{counters:?}");
    let pressed = counters.lease_waits + counters.share_waits + counters.copied_leases;
    assert!(pressed > 0, "the limit was reached: {counters:?}");
}
