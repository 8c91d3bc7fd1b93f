//! Streams: bytes of every size arrive as they were sent, in order.

use std::time::Duration;

use windlass::{Buf, Builder, Done, Op, Watcher};

use crate::common::*;

/// gaio's TestEchoTiny: a server that reads with buffers of one byte.
pub fn echo_with_buffers_of_one_byte<H: Harness>() {
    let mut b = H::bench();
    let (client, server) = b.pair();
    b.write(client, "hello world");
    for _ in 0.."hello world".len() {
        let read = b.submit(Op::read_into(server, room(1)));
        let byte = expect_read(b.end(read));
        assert_eq!(byte.len(), 1);
        b.write(server, byte);
    }
    assert_eq!(b.read_exact(client, 11), b"hello world");
    b.expect_all_ended();
}

/// gaio's TestEchoHuge: partial writes are continued, nothing is reordered.
pub fn echo_huge<H: Harness>() {
    let _turn = hungry();
    let mut b = H::bench();
    let (client, server) = b.pair();
    let bytes = pattern(H::HUGE, 11);
    let send = b.submit(Op::write(client, bytes.clone()));
    let receive = Op::read_exact(client, room(H::HUGE), H::HUGE);
    let receive = b.submit(receive);
    echo_until(&mut b, server, receive);
    expect_written(b.end(send));
    let got = expect_read(b.end(receive));
    expect_same(&got, &bytes);
    b.watcher.abort(server);
}

/// Echoes at `server` until `last` has ended.
fn echo_until<D: windlass::driver::Driver>(
    b: &mut Bench<D>,
    server: windlass::Source,
    last: windlass::Ticket,
) {
    b.submit(Op::read(server));
    let mut kept = Vec::new();
    while b.is_open(last) {
        let c = b.next();
        if c.source != server {
            kept.push(c);
            continue;
        }
        match c.result {
            Ok(Done::Read(data)) => b.submit(Op::write(server, data)),
            Ok(Done::Written { .. }) => b.submit(Op::read(server)),
            other => panic!("{other:?}"),
        };
    }
    b.keep(kept);
}

/// gaio's TestReadFull: a large write and a large read_exact run at the same time, in both
/// directions of one connection; one completion each.
pub fn read_exact_beside_writes_in_both_directions<H: Harness>() {
    let _turn = hungry();
    let mut b = H::bench();
    let (here, there) = b.pair();
    let len = H::HUGE / 4;
    let (out, back) = (pattern(len, 5), pattern(len, 6));
    let tickets = [
        b.submit(Op::write(here, out.clone())),
        b.submit(Op::write(there, back.clone())),
        b.submit(Op::read_exact(here, room(len), len)),
        b.submit(Op::read_exact(there, room(len), len)),
    ];
    expect_written(b.end(tickets[0]));
    expect_written(b.end(tickets[1]));
    expect_same(&expect_read(b.end(tickets[2])), &back);
    expect_same(&expect_read(b.end(tickets[3])), &out);
    b.expect_all_ended();
}

/// gaio's TestBidirectionWatcher.
pub fn a_read_and_a_write_pending_on_one_source<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let read = b.submit(Op::read_exact(stuck.writer, room(13), 13));
    b.write(stuck.peer, "the other way");
    assert_eq!(&*expect_read(b.end(read)), b"the other way");
    let got = b.read_exact(stuck.peer, stuck.bytes.len());
    expect_same(&got, &stuck.bytes);
    expect_written(b.end(stuck.ticket));
    b.expect_all_ended();
}

/// A read takes the bytes that are there and does not wait for more.
pub fn a_read_takes_what_is_there<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    for len in [1, 2, 100, 4096] {
        b.write(there, pattern(len, 2));
        let read = b.submit(Op::read_into(here, room(1 << 20)));
        let data = expect_read(b.end(read));
        assert!(!data.is_empty() && data.len() <= len);
        let rest = len - data.len();
        if rest > 0 {
            b.read_exact(here, rest);
        }
    }
    b.expect_all_ended();
}

pub fn vectored_reads_fill_their_vectors_in_order<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    b.write(there, "abcdefghij");
    b.pass(Duration::from_millis(1));
    let parts = vec![room(3), room(4), vec![0; 100]];
    let rooms: Vec<usize> = parts.iter().map(Vec::capacity).collect();
    let read = b.submit(Op::read_vectored(here, parts));
    let data = expect_read(b.end(read));
    let parts = data.parts();
    let count = parts.iter().map(|part| part.len()).sum();
    assert!(count > 0);
    let mut wanted = &b"abcdefghij"[..count];
    for (part, room) in parts.iter().zip(rooms) {
        let (now, later) = wanted.split_at(wanted.len().min(room));
        assert_eq!(&**part, now);
        wanted = later;
    }
    assert!(wanted.is_empty());
}

/// More parts than one system call takes (IOV_MAX is 1024), of uneven sizes, some of them empty.
pub fn vectored_writes_with_very_many_parts_arrive_whole<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let mut random = Random::new(8);
    let mut wanted = Vec::new();
    let parts = (0..3000).map(|i| {
        let part = pattern(random.below(300), i);
        wanted.extend_from_slice(&part);
        windlass::Buf::from(part)
    });
    let write = b.submit(Op::write_vectored(here, parts));
    let got = b.read_exact(there, wanted.len());
    expect_same(&got, &wanted);
    match b.end(write).result {
        Ok(Done::Written { buf, bytes }) => {
            assert_eq!(bytes as usize, wanted.len());
            assert_eq!(buf.into_parts().len(), 3000);
        }
        other => panic!("{other:?}"),
    }
    b.expect_all_ended();
}

/// A vectored read into more parts than one system call takes.
pub fn vectored_reads_with_very_many_parts<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let bytes = pattern(2000, 4);
    b.write(there, bytes.clone());
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let read = b.submit(Op::read_vectored(here, vec![room(1); 3000]));
        got.extend(expect_read(b.end(read)).into_vec());
    }
    // `vec!` clones the capacity away, so that the parts may be wider than one byte: only the
    // bytes count.
    expect_same(&got, &bytes);
}

pub fn a_multishot_read_goes_on_until_the_end<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let read = b.submit(Op::read(here).multishot().token(5));
    let mut got = Vec::new();
    for i in 0..50u64 {
        b.write(there, pattern(100, i));
        while got.len() < (i as usize + 1) * 100 {
            let c = b.end(read);
            assert!(c.has_more() && c.token == 5);
            got.extend_from_slice(&expect_read(c));
        }
    }
    let wanted: Vec<u8> = (0..50).flat_map(|i| pattern(100, i)).collect();
    expect_same(&got, &wanted);
    let shutdown = b.submit(Op::shutdown(there));
    expect_shutdown(b.end(shutdown));
    let last = b.end(read);
    assert!(!last.has_more(), "the end of the file is final");
    expect_eof(last);
    b.expect_all_ended();
}

/// One read of `share` goes without a buffer.
fn echo_many<H: Harness>(
    builder: Builder,
    connections: usize,
    message: usize,
    rounds: usize,
    share: usize,
) {
    let connections = connections.min(H::MANY);
    let _turn = hungry();
    let mut b = H::bench_with(builder);
    let pairs = b.pairs(connections);
    let mut random = Random::new(13);
    let mut waiting = 0;
    for (i, &(client, server)) in pairs.iter().enumerate() {
        b.submit(Op::read(server).token(SERVER));
        b.submit(Op::write(client, pattern(message, i as u64)).token(SENT));
        let op = Op::read_exact(client, room(message), message);
        b.submit(op.token(i as u64 * rounds as u64));
        waiting += 1;
    }
    while waiting > 0 {
        let c = b.next();
        match c.result {
            Ok(Done::Written { .. }) => {}
            Ok(Done::Read(data)) if c.token == SERVER => {
                assert!(!data.is_eof());
                b.submit(Op::write(c.source, data).token(SENT));
                let next = if random.below(share) == 0 {
                    Op::read(c.source)
                } else {
                    Op::read_into(c.source, room(4096))
                };
                b.submit(next.token(SERVER));
            }
            Ok(Done::Read(data)) => {
                let (i, round) = (c.token / rounds as u64, c.token % rounds as u64);
                expect_same(&data, &pattern(message, i + round * 7919));
                if round + 1 == rounds as u64 {
                    waiting -= 1;
                    continue;
                }
                let next = pattern(message, i + (round + 1) * 7919);
                b.submit(Op::write(c.source, next).token(SENT));
                b.submit(Op::read_exact(c.source, data, message).token(c.token + 1));
            }
            other => panic!("{other:?}"),
        }
    }
    // One read is left at every server.
    for (_, server) in pairs {
        assert!(b.watcher.abort(server));
    }
    let mut aborted = 0;
    while aborted < connections {
        let c = b.next();
        aborted += usize::from(c.error_kind() == Some(windlass::ErrorKind::Aborted));
    }
    b.expect_all_ended();
}

const SERVER: u64 = u64::MAX;
const SENT: u64 = u64::MAX - 1;

/// A thirteenth of the reads without a buffer, as gaio's random test does.
pub fn echo_1k_connections<H: Harness>() {
    echo_many::<H>(Watcher::builder(), 1 << 10, 1 << 10, 3, 13);
}

/// No read with a buffer of its own.
pub fn echo_2k_connections<H: Harness>() {
    echo_many::<H>(Watcher::builder(), 2 << 10, 1 << 10, 2, 1);
}

pub fn echo_8k_connections<H: Harness>() {
    echo_many::<H>(Watcher::builder(), 8 << 10, 1 << 10, 2, 13);
}

/// 16 bytes on each of 4096 connections, again and again.
pub fn echo_tiny_on_4k_connections<H: Harness>() {
    echo_many::<H>(Watcher::builder(), 4 << 10, 16, 4, 13);
}

/// The same with a pool of a few small buffers: reads wait for leases all the time.
pub fn echo_with_a_starved_pool<H: Harness>() {
    let builder = Watcher::builder().swap_limit(4 << 10).buffer_size(1 << 10);
    echo_many::<H>(builder, 256, 1 << 10, 4, 1);
}

/// The same with the smallest budgets: every source goes to the back after each message. What a
/// faulty network leaves of a write goes out byte by byte, one in each turn.
pub fn echo_with_the_smallest_budgets<H: Harness>() {
    let builder = Watcher::builder().source_budget(1).turn_budget(1).events_per_wait(1);
    echo_many::<H>(builder, H::MANY / 32, 1 << 10, 2, 2);
}

/// Random sizes, random kinds of reads and writes, both directions at once: what arrives is what
/// was sent.
pub fn a_random_mix_of_reads_and_writes<H: Harness>() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut b = H::bench_with(Watcher::builder().swap_limit(1 << 20).buffer_size(4096));
        let (here, there) = b.pair();
        let total = 2 << 20;
        let ends = [(here, pattern(total, seed)), (there, pattern(total, seed + 100))];
        let mut sent = [0usize; 2];
        let mut got = [Vec::new(), Vec::new()];
        let mut reading = [0usize; 2];
        let mut writing = [0usize; 2];
        while got.iter().any(|bytes| bytes.len() < total) {
            for (end, (source, bytes)) in ends.iter().enumerate() {
                while writing[end] < 4 && sent[end] < total {
                    let len = (1 + random.below(60_000)).min(total - sent[end]);
                    let chunk = bytes[sent[end]..sent[end] + len].to_vec();
                    sent[end] += len;
                    writing[end] += 1;
                    b.submit(Op::write(*source, chunk).token(10 + end as u64));
                }
                // Never more exact reads than bytes that will come.
                while reading[end] < 3 {
                    let op = match random.below(3) {
                        0 => Op::read(*source),
                        1 => Op::read_into(*source, room(1 + random.below(9000))),
                        _ => {
                            let sizes = [1 + random.below(10), 1 + random.below(5000)];
                            Op::read_vectored(*source, sizes.map(room))
                        }
                    };
                    reading[end] += 1;
                    b.submit(op.token(end as u64));
                }
            }
            let c = b.next();
            match (c.token, c.result) {
                (end @ 0..=1, Ok(Done::Read(data))) => {
                    reading[end as usize] -= 1;
                    got[end as usize].extend_from_slice(&data.into_vec());
                }
                (end, Ok(Done::Written { .. })) => writing[end as usize - 10] -= 1,
                (_, other) => panic!("{other:?}"),
            }
        }
        expect_same(&got[0], &ends[1].1);
        expect_same(&got[1], &ends[0].1);
        b.watcher.abort(here);
        b.watcher.abort(there);
    }
}

/// The count bounds a list, too: what comes behind is the next read's.
pub fn read_exact_into_a_list_takes_no_byte_more<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let bytes = pattern(100, 1);
    b.write(here, bytes.clone());
    let mut at = 0;
    for count in [5, 10, 11, 29, 1] {
        let list = Buf::list((0..5).map(|_| room(10)));
        let read = b.submit(Op::read_exact(there, list, count));
        let data = expect_read(b.end(read));
        assert_eq!(data.len(), count);
        assert_eq!(data.into_vec(), bytes[at..at + count]);
        at += count;
    }
    assert_eq!(b.read_exact(there, 100 - at), bytes[at..]);
    b.expect_all_ended();
}
