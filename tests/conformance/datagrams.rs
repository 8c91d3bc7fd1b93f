//! Datagrams of the system: boundaries, senders, sizes, errors (libuv's udp tests).

use std::net::UdpSocket;
#[cfg(unix)]
use std::os::fd::{AsRawFd, OwnedFd};
#[cfg(unix)]
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{Address, Buf, Completion, Done, ErrorKind, Op, Refusal, Source, Watcher};

use crate::common::*;
use crate::conformance::leases::Kept;

fn udp<D: windlass::driver::Driver>(b: &mut Bench<D>) -> (Source, Address) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    (b.watcher.attach(socket).unwrap(), at.into())
}

#[track_caller]
fn received(c: Completion) -> (Buf, Address, bool) {
    match c.result {
        Ok(Done::Received { data, from, truncated }) => (data, from, truncated),
        other => panic!("wanted a datagram: {other:?}"),
    }
}

pub fn datagrams_keep_their_boundaries_and_senders<H: Harness>() {
    let mut b = H::bench();
    let (here, here_at) = udp(&mut b);
    let (there, there_at) = udp(&mut b);
    let sizes = [1, 0, 1400, 7, 0, 9000];
    for (i, size) in sizes.into_iter().enumerate() {
        let send = b.submit(Op::send_to(here, pattern(size, i as u64), there_at.clone()));
        assert_eq!(expect_written(b.end(send)).len(), size);
    }
    for (i, size) in sizes.into_iter().enumerate() {
        let receive = b.submit(Op::recv_from(there).token(i as u64));
        let c = b.end(receive);
        assert_eq!((c.token, c.source), (i as u64, there));
        let (data, from, truncated) = received(c);
        assert_eq!((&*data, truncated), (&*pattern(size, i as u64), false));
        assert_eq!(from, here_at);
        // Answer the sender with what it sent.
        let answer = b.submit(Op::send_to(there, data, from));
        expect_written(b.end(answer));
        let receive = b.submit(Op::recv_from_into(here, room(9000)));
        let (data, from, _) = received(b.end(receive));
        assert_eq!(*data, *pattern(size, i as u64));
        assert_eq!(from, there_at);
    }
    b.expect_all_ended();
}

/// An empty datagram is a message like others: it does not end a multishot read.
pub fn an_empty_datagram_does_not_end_a_multishot_read<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    let mut sent = 0;
    let mut send = |b: &mut Bench<H::Driver>| {
        for size in [3, 0, 0, 1] {
            let send = b.submit(Op::send_to(here, pattern(size, sent), at.clone()));
            expect_written(b.end(send));
            sent += 1;
        }
    };
    // One that comes to rest, and one with a place of its own.
    for op in [Op::read(there), Op::read(there).timeout(Duration::from_secs(60))] {
        let read = b.submit(op.multishot());
        for _ in 0..2 {
            send(&mut b);
            for size in [3, 0, 0, 1] {
                let c = b.next();
                assert!(c.has_more() && c.ticket() == read, "{c:?}");
                assert_eq!(expect_read(c).len(), size);
            }
        }
        assert!(b.watcher.cancel(read));
        expect_unmoved(b.end(read), ErrorKind::Cancelled);
    }
    b.expect_all_ended();
}

/// Empty datagrams count: a sender of many does not keep the loop busy.
pub fn empty_datagrams_have_their_share<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().source_budget(4096));
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    for op in [Op::read(there), Op::read(there).timeout(Duration::from_secs(60))] {
        let read = b.submit(op.multishot());
        b.look();
        for _ in 0..40 {
            let send = b.submit(Op::send_to(here, "", at.clone()));
            expect_written(b.end(send));
        }
        let stops = b.watcher.counters().budget_stops;
        let mut got = b.unasked();
        while got < 40 {
            b.look();
            got = b.unasked();
        }
        assert!(b.watcher.counters().budget_stops > stops, "forty in one turn");
        assert!(b.watcher.cancel(read));
        for _ in 0..40 {
            assert_eq!(b.next().ticket(), read);
        }
        expect_unmoved(b.end(read), ErrorKind::Cancelled);
    }
    b.expect_all_ended();
}

/// Many receives outstanding, many datagrams at once.
pub fn a_batch_arrives_in_order<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    let receives: Vec<_> = (0..100).map(|_| b.submit(Op::recv_from(there))).collect();
    for i in 0..100u32 {
        b.submit(Op::send_to(here, i.to_be_bytes().to_vec(), at.clone()).token(1));
    }
    for (i, receive) in receives.into_iter().enumerate() {
        assert_eq!(*received(b.end(receive)).0, (i as u32).to_be_bytes());
    }
    for c in b.take(100) {
        expect_written(c);
    }
    b.expect_all_ended();
}

pub fn what_is_longer_than_the_memory_is_cut_and_says_so<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().buffer_size(64));
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    for op in [Op::recv_from_into(there, room(64)), Op::recv_from(there)] {
        let send = b.submit(Op::send_to(here, pattern(100, 1), at.clone()));
        expect_written(b.end(send));
        let receive = b.submit(op);
        let (data, _, truncated) = received(b.end(receive));
        assert!(truncated);
        assert_eq!(*data, pattern(100, 1)[..64]);
        // Its rest is gone; the next one is whole.
        let send = b.submit(Op::send_to(here, "whole", at.clone()));
        expect_written(b.end(send));
        let receive = b.submit(Op::recv_from_into(there, room(100)));
        let (data, _, truncated) = received(b.end(receive));
        assert_eq!((&*data, truncated), (&b"whole"[..], false));
    }
    b.expect_all_ended();
}

/// libuv's udp_dgram_too_big.
pub fn a_datagram_that_is_too_big_fails<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    let big = vec![1; 70_000];
    let memory = big.as_ptr();
    let send = b.submit(Op::send_to(here, big, at.clone()));
    let back = expect_errno(b.end(send), &[libc::EMSGSIZE]).into_vec();
    assert_eq!((back.as_ptr(), back.len()), (memory, 70_000));
    let send = b.submit(Op::send_to(here, "fits", at));
    expect_written(b.end(send));
    let receive = b.submit(Op::recv_from(there));
    assert_eq!(&*received(b.end(receive)).0, b"fits");
}

/// libuv's udp_send_unreachable: the ICMP error fails the next operation, and only that one.
pub fn an_unreachable_peer_is_an_error_of_a_connected_socket<H: Harness>() {
    let mut b = H::bench();
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(gone).unwrap();
    let source = b.watcher.attach(socket).unwrap();
    let receive = b.submit(Op::recv_from(source));
    b.look();
    let send = b.submit(Op::write(source, "a datagram"));
    expect_written(b.end(send));
    expect_errno(b.end(receive), &[libc::ECONNREFUSED]);
    // The socket lives.
    let expiring = b.submit(Op::recv_from(source).timeout(Duration::from_millis(2)));
    expect_unmoved(b.end(expiring), ErrorKind::Deadline);
    b.expect_all_ended();
}

pub fn a_connected_socket_reads_and_writes<H: Harness>() {
    let mut b = H::bench();
    let (a, c) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    a.connect(c.local_addr().unwrap()).unwrap();
    c.connect(a.local_addr().unwrap()).unwrap();
    let from = a.local_addr().unwrap();
    let (a, c) = (b.watcher.attach(a).unwrap(), b.watcher.attach(c).unwrap());
    for size in [1, 100, 5000] {
        b.write(a, pattern(size, 1));
        assert_eq!(b.read(c), pattern(size, 1), "one read is one message");
    }
    // Without an address it goes to the peer.
    let send = b.submit(Op::send_to(a, "to the peer", Address::unspecified()));
    expect_written(b.end(send));
    let read = b.submit(Op::read_into(c, room(100)));
    assert_eq!(&*expect_read(b.end(read)), b"to the peer");
    // The sender is told here, too.
    b.write(a, "once more");
    let receive = b.submit(Op::recv_from(c));
    assert_eq!(received(b.end(receive)).1.ip(), Some(from));
}

pub fn datagram_operations_end_like_others<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = udp(&mut b);
    let receive = b.submit(Op::recv_from(here).timeout(Duration::from_millis(2)));
    expect_unmoved(b.end(receive), ErrorKind::Deadline);
    let memory = vec![1; 10];
    let address = memory.as_ptr();
    let receive = b.submit(Op::recv_from_into(here, memory));
    assert!(b.watcher.cancel(receive));
    let back = expect_unmoved(b.end(receive), ErrorKind::Cancelled).into_vec();
    assert_eq!((back.as_ptr(), back.len()), (address, 0));
    assert_eq!(b.refuse(Op::recv_from_into(here, room(0))).0, Refusal::EmptyBuffer);
    let receive = b.submit(Op::recv_from(here));
    let close = b.submit(Op::close(here));
    expect_unmoved(b.end(receive), ErrorKind::Aborted);
    expect_closed(b.end(close));
    assert_eq!(b.refuse(Op::send_to(here, "x", at)).0, Refusal::Stale);
    let (stream, _peer) = b.pair();
    let to = Address::from(([127, 0, 0, 1], 9));
    assert_eq!(b.refuse(Op::send_to(stream, "x", to)).0, Refusal::Unsupported);
    b.expect_all_ended();
}

/// A Unix datagram socket whose receiver is full: no edge tells when there is room again (unix(7)).
#[cfg(unix)]
pub fn unix_datagrams_wait_for_a_full_receiver<H: Harness>() {
    let mut b = H::bench();
    let dir = system::Directory::new();
    let path = dir.path().join("receiver");
    let receiver = UnixDatagram::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    let receiver = b.watcher.attach(receiver).unwrap();
    let sender = b.watcher.attach(sender).unwrap();
    let to = Address::unix(&path).unwrap();
    let sends: Vec<_> = (0..300u32)
        .map(|i| b.submit(Op::send_to(sender, i.to_be_bytes().to_vec(), to.clone())))
        .collect();
    b.look();
    assert!(b.open() > 0, "the receiver's queue is not endless");
    let cancelled = b.submit(Op::send_to(sender, "x", to.clone()));
    assert!(b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    let expiring = b.submit(Op::send_to(sender, "x", to).timeout(Duration::from_millis(5)));
    expect_unmoved(b.end(expiring), ErrorKind::Deadline);
    for i in 0..300u32 {
        let receive = b.submit(Op::recv_from(receiver));
        let (data, from, _) = received(b.end(receive));
        assert_eq!(*data, i.to_be_bytes());
        assert!(from.is_unspecified(), "an unbound sender has no name");
    }
    for send in sends {
        expect_written(b.end(send));
    }
    b.expect_all_ended();
}

/// Nothing where there are none.
#[cfg(unix)]
pub fn seqpackets<D: windlass::driver::Driver>(b: &mut Bench<D>) -> Option<(Source, Source)> {
    use socket2::{Domain, Socket, Type};
    let (here, there) = match Socket::pair(Domain::UNIX, Type::SEQPACKET, None) {
        Err(error) if cfg!(target_vendor = "apple") => {
            skip(Needs::Seqpacket, format_args!("Unix sockets that keep boundaries: {error}"));
            return None;
        }
        pair => pair.unwrap(),
    };
    let here = b.watcher.attach(OwnedFd::from(here)).unwrap();
    Some((here, b.watcher.attach(OwnedFd::from(there)).unwrap()))
}

/// Seqpacket: connections with boundaries.
#[cfg(unix)]
pub fn seqpacket_keeps_boundaries<H: Harness>() {
    let mut b = H::bench();
    let Some((here, there)) = seqpackets(&mut b) else { return };
    for i in 0..20 {
        b.submit(Op::write(here, pattern(10 + i, i as u64)));
    }
    for i in 0..20 {
        assert_eq!(b.read(there), pattern(10 + i, i as u64));
    }
    for c in b.take(20) {
        expect_written(c);
    }
    b.watcher.abort(here);
    let end = b.submit(Op::read(there));
    expect_unmoved(b.end(end), ErrorKind::Eof);
}

/// What is out is not queued any more: the bound on queued bytes is not used up by what was sent.
pub fn datagrams_that_are_out_are_not_queued<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().write_limit(1000));
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    for i in 0..100 {
        let send = b.submit(Op::send_to(here, pattern(100, i), at.clone()));
        expect_written(b.end(send));
        assert_eq!(b.watcher.queued_bytes(here).unwrap(), 0, "after {i}");
        let receive = b.submit(Op::recv_from(there));
        assert_eq!(*received(b.end(receive)).0, *pattern(100, i));
    }
    let drained = b.submit(Op::wait_drained(here, 0));
    assert!(matches!(b.end(drained).result, Ok(Done::Drained)));
    b.expect_all_ended();
}

/// A swap buffer's worth is received whole, however little room those have left that are held.
pub fn large_datagrams_are_whole_behind_small_ones_that_are_held<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    let mut held = Vec::new();
    for round in 0..20 {
        for (i, size) in [1000, 65_000, 20_000, 40_000, 1, 0, 33_000].into_iter().enumerate() {
            let bytes = pattern(size, i as u64);
            let send = b.submit(Op::send_to(here, bytes.clone(), at.clone()));
            expect_written(b.end(send));
            let receive = b.submit(Op::recv_from(there));
            let (data, _, truncated) = received(b.end(receive));
            assert!(!truncated, "{size} bytes in round {round}");
            expect_same(&data, &bytes);
            held.push((data, bytes));
        }
    }
    for (data, bytes) in &held {
        expect_same(data, bytes);
    }
    b.expect_all_ended();
}

/// The same for messages of a connection, read with and without descriptors.
#[cfg(unix)]
pub fn large_messages_are_whole_behind_small_ones_that_are_held<H: Harness>() {
    let mut b = H::bench();
    let Some((here, there)) = seqpackets(&mut b) else { return };
    let mut held = Vec::new();
    for round in 0..10 {
        for (i, size) in [1000, 65_000, 20_000, 40_000, 1, 33_000].into_iter().enumerate() {
            let bytes = pattern(size, i as u64);
            b.write(here, bytes.clone());
            let data = if round % 2 == 0 {
                let read = b.submit(Op::read(there));
                expect_read(b.end(read))
            } else {
                let receive = b.submit(Op::recv_descriptors(there));
                match b.end(receive).result {
                    Ok(Done::Descriptors { data, .. }) => data,
                    other => panic!("wanted bytes: {other:?}"),
                }
            };
            expect_same(&data, &bytes);
            held.push((data, bytes));
        }
    }
    for (data, bytes) in &held {
        expect_same(data, bytes);
    }
    b.expect_all_ended();
}

/// The memory that descriptors travel in has held addresses: nothing is told of those.
#[cfg(unix)]
pub fn descriptors_show_themselves_and_no_address<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = udp(&mut b);
    let (there, at) = udp(&mut b);
    let Some((near, far)) = seqpackets(&mut b) else { return };
    let passed = vec![OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap())];
    let send = b.submit(Op::send_descriptors(near, "one", passed));
    expect_written(b.end(send));
    // The address is kept for later.
    let send = b.submit(Op::send_to(here, "x", at.clone()));
    expect_written(b.end(send));
    let receive = b.submit(Op::recv_descriptors(far));
    match b.end(receive).result {
        Ok(Done::Descriptors { descriptors, .. }) => {
            let text = format!("{descriptors:?}");
            assert!(!text.contains("127.0.0.1"), "{text}");
            let number = descriptors.take()[0].as_raw_fd().to_string();
            assert!(text.contains(&number), "{text} without {number}");
        }
        other => panic!("wanted descriptors: {other:?}"),
    }
    b.watcher.abort(there);
    b.expect_all_ended();
}

/// One write is one message and one read takes all of it, of however many parts.
#[cfg(unix)]
pub fn a_message_of_very_many_parts_stays_one<H: Harness>() {
    let mut b = H::bench();
    let Some((here, there)) = seqpackets(&mut b) else { return };
    for parts in [1, 64, 65, 200, 1500] {
        let bytes = pattern(parts * 3, parts as u64);
        let list: Vec<Buf> = bytes.chunks(3).map(|part| Buf::from(part.to_vec())).collect();
        let write = b.submit(Op::write_vectored(here, list));
        assert_eq!(expect_written(b.end(write)).parts().len(), parts);
        let read = b.submit(Op::read_vectored(there, (0..parts * 2).map(|_| room(2))));
        let data = expect_read(b.end(read));
        assert_eq!(data.len(), bytes.len(), "one message of {parts} parts");
        expect_same(&data.into_vec(), &bytes);
    }
    // Nothing is left of any of them.
    b.write(here, "last");
    assert_eq!(b.read(there), b"last");
    b.expect_all_ended();
}

/// Datagrams of either direction begin the idle time anew, an empty one as well.
pub fn datagrams_count_for_the_idle_timeout<H: Harness>() {
    let mut b = H::bench();
    let (here, here_at) = udp(&mut b);
    let (there, there_at) = udp(&mut b);
    let timeout = Duration::from_millis(400);
    b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
    let start = b.watcher.update_now();
    let mut receive = b.submit(Op::recv_from(here));
    // The last datagram moves after this.
    let mut last = start;
    for round in 0.. {
        // A round that a loaded machine stretches proves nothing.
        let began = b.watcher.update_now();
        if began > start + 3 * timeout {
            break;
        }
        last = began;
        let size = round % 3;
        if round % 2 == 0 {
            let send = b.submit(Op::send_to(there, pattern(size, 1), here_at.clone()));
            expect_written(b.end(send));
            let (data, ..) = received(b.end(receive));
            assert_eq!(data.len(), size);
            receive = b.submit(Op::recv_from(here));
        } else {
            let send = b.submit(Op::send_to(here, pattern(size, 1), there_at.clone()));
            expect_written(b.end(send));
        }
        b.pass(timeout / 4);
        if b.watcher.now() > began + timeout {
            return;
        }
        assert!(b.is_open(receive), "a datagram has moved in round {round}");
    }
    expect_unmoved(b.end(receive), ErrorKind::Deadline);
    assert!(b.watcher.now() >= last + timeout, "early");
    assert_eq!(b.watcher.counters().idle_timeouts, 1);
    // The source is as usable as before.
    let send = b.submit(Op::send_to(there, "x", here_at));
    expect_written(b.end(send));
    let receive = b.submit(Op::recv_from(here));
    assert_eq!(&*received(b.end(receive)).0, b"x");
    b.expect_all_ended();
}

/// The kernel keeps the swap buffers that it has been lent. It took the last free one, and receives
/// of datagrams waited, which are the loop's.
pub fn receives_go_on_while_a_buffer_is_free<H: Harness>() {
    const SIZE: usize = 1024;
    for count in 2..=6 {
        let builder = Watcher::builder().buffer_size(SIZE as u32).swap_limit(count * SIZE);
        let mut b = H::bench_with(builder);
        let pairs = b.pairs(4);
        for &(here, _) in &pairs {
            b.submit(Op::read(here).multishot());
        }
        let (here, at) = udp(&mut b);
        let (there, _) = udp(&mut b);
        let mut kept = Kept::new(SIZE);
        for _ in 0..20 {
            for &(_, there) in &pairs {
                b.submit(Op::write(there, vec![7; 300]));
            }
            let mut left = 300 * pairs.len();
            while left > 0 {
                let c = b.next();
                if c.code() == OpCode::Read {
                    let data = expect_read(c);
                    left -= data.len();
                    kept.take(&b, data);
                }
            }
            let receive = b.submit(Op::recv_from(here));
            b.submit(Op::send_to(there, pattern(300, 1), at.clone()));
            let (data, ..) = received(b.end(receive));
            kept.take(&b, data);
        }
        b.watcher.close();
    }
}
