//! Datagram sockets that the watcher makes.

use std::net::{Ipv4Addr, Ipv6Addr};

use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::{Address, Done, ErrorKind, Op, Refusal, Source, SourceKind, Watcher};

use crate::common::*;

fn bind<D: windlass::driver::Driver>(b: &mut Bench<D>, shared: bool) -> (Source, Address) {
    let at = (Ipv4Addr::LOCALHOST, 0);
    let options = DatagramOptions::default().reuse_port(shared);
    let source = b.watcher.bind_datagram(at, options).unwrap();
    (source, b.watcher.local_address(source).unwrap())
}

pub fn bound_sockets_answer_their_senders<H: Harness>() {
    let mut b = H::bench();
    let (here, here_at) = bind(&mut b, false);
    let (there, there_at) = bind(&mut b, false);
    assert_ne!(here_at, there_at);
    for size in [1, 0, 1400, 9000] {
        let receive = b.submit(Op::recv_from(there));
        let send = b.submit(Op::send_to(here, pattern(size, 7), there_at.clone()));
        expect_written(b.end(send));
        let Ok(Done::Received { data, from, truncated }) = b.end(receive).result else { panic!() };
        assert_eq!((&*data, &from, truncated), (&*pattern(size, 7), &here_at, false));
        let receive = b.submit(Op::recv_from(here));
        let send = b.submit(Op::send_to(there, data, from));
        expect_written(b.end(send));
        let Ok(Done::Received { data, from, .. }) = b.end(receive).result else { panic!() };
        assert_eq!((&*data, from), (&*pattern(size, 7), there_at.clone()));
    }
    b.expect_all_ended();
}

pub fn an_address_is_bound_once_unless_it_is_shared<H: Harness>() {
    let mut b = H::bench();
    let (_, at) = bind(&mut b, false);
    for shared in [false, true] {
        let options = DatagramOptions::default().reuse_port(shared);
        match b.watcher.bind_datagram(at.clone(), options) {
            Err(error) if cfg!(windows) && shared => {
                return assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            }
            other => assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::AddrInUse),
        }
    }
    if cfg!(windows) {
        return;
    }
    let (one, at) = bind(&mut b, true);
    let options = DatagramOptions::default().reuse_port(true);
    let other = b.watcher.bind_datagram(at.clone(), options).unwrap();
    // Every datagram arrives, at one of the two sockets.
    let receives: Vec<_> =
        [one, other].into_iter().map(|source| (source, b.submit(Op::recv_from(source)))).collect();
    for count in 0..10 {
        let (sender, _) = bind(&mut b, false);
        let send = b.submit(Op::send_to(sender, pattern(9, count), at.clone()));
        expect_written(b.end(send));
    }
    let mut heard = 0;
    let mut receives = receives;
    while heard < 10 {
        let c = b.next();
        let which = receives.iter().position(|(source, _)| *source == c.source).unwrap();
        assert!(matches!(c.result, Ok(Done::Received { .. })), "{c:?}");
        heard += 1;
        receives[which].1 = b.submit(Op::recv_from(c.source));
    }
    for (source, receive) in receives {
        b.watcher.abort(source);
        b.end(receive);
    }
    b.expect_all_ended();
}

pub fn an_address_that_cannot_be_bound_is_an_error<H: Harness>() {
    let mut b = H::bench();
    let options = DatagramOptions::default();
    assert!(b.watcher.bind_datagram(Address::unspecified(), options).is_err());
    if let Ok(six) = b.watcher.bind_datagram((Ipv6Addr::LOCALHOST, 0), options) {
        let at = b.watcher.local_address(six).unwrap().ip().unwrap();
        assert!(at.is_ipv6() && at.port() != 0);
    }
}

pub fn a_socket_with_a_peer_hears_only_that_one<H: Harness>() {
    let mut b = H::bench();
    let (here, here_at) = bind(&mut b, false);
    let (there, there_at) = bind(&mut b, false);
    let (other, _) = bind(&mut b, false);
    b.watcher.connect_datagram(here, there_at.clone()).unwrap();
    assert_eq!(b.watcher.peer_address(here).unwrap(), there_at);
    let receive = b.submit(Op::recv_from(here));
    let foreign = b.submit(Op::send_to(other, "not for you", here_at.clone()));
    // On some systems its host answers that the port is closed for this sender.
    let _ = b.end(foreign);
    for op in [Op::write(here, "one"), Op::send_to(here, "two", Address::unspecified())] {
        let hear = b.submit(Op::recv_from(there));
        let send = b.submit(op);
        expect_written(b.end(send));
        let Ok(Done::Received { from, .. }) = b.end(hear).result else { panic!() };
        assert_eq!(from, here_at);
    }
    let send = b.submit(Op::send_to(there, "answer", here_at));
    expect_written(b.end(send));
    let Ok(Done::Received { data, from, .. }) = b.end(receive).result else { panic!() };
    assert_eq!((&*data, from), (&b"answer"[..], there_at));
    // Only datagram sockets have a peer that changes.
    let (stream, _peer) = b.pair();
    let to = Address::from((Ipv4Addr::LOCALHOST, 9));
    assert_eq!(b.watcher.connect_datagram(stream, to.clone()), Err(Refusal::Unsupported));
    b.watcher.abort(here);
    assert_eq!(b.watcher.connect_datagram(here, to), Err(Refusal::Stale));
    b.expect_all_ended();
}

/// Where the system distributes by the sender, the socket with a peer has the datagrams of this
/// peer, and no others.
pub fn of_sockets_that_share_a_port_one_can_have_a_peer<H: Harness>() {
    if cfg!(not(target_os = "linux")) {
        return skip(Needs::Luck, "a shared port: only Linux is known to prefer the socket's peer");
    }
    let mut b = H::bench();
    let (one, at) = bind(&mut b, true);
    let options = DatagramOptions::default().reuse_port(true);
    let other = b.watcher.bind_datagram(at.clone(), options).unwrap();
    for round in 0..4 {
        let (peer, peer_at) = bind(&mut b, false);
        b.watcher.connect_datagram(one, peer_at.clone()).unwrap();
        let (stranger, _) = bind(&mut b, false);
        for (sender, receiver) in [(peer, one), (stranger, other)] {
            let send = b.submit(Op::send_to(sender, pattern(9, round), at.clone()));
            expect_written(b.end(send));
            let receive = b.submit(Op::recv_from(receiver));
            let Ok(Done::Received { data, .. }) = b.end(receive).result else { panic!() };
            assert_eq!(*data, *pattern(9, round));
        }
    }
    b.expect_all_ended();
}

pub fn what_is_no_peer_changes_nothing<H: Harness>() {
    let mut b = H::bench();
    let (here, here_at) = bind(&mut b, false);
    let (there, there_at) = bind(&mut b, false);
    b.watcher.connect_datagram(here, there_at.clone()).unwrap();
    for bad in [Address::unspecified(), (Ipv6Addr::LOCALHOST, 9).into()] {
        let refused = b.watcher.connect_datagram(here, bad);
        assert!(matches!(refused, Err(Refusal::Os(_))), "{refused:?}");
    }
    assert_eq!(b.watcher.peer_address(here).unwrap(), there_at);
    let receive = b.submit(Op::recv_from(here));
    let send = b.submit(Op::send_to(there, "still", here_at));
    expect_written(b.end(send));
    let Ok(Done::Received { data, .. }) = b.end(receive).result else { panic!() };
    assert_eq!(&*data, b"still");
    b.expect_all_ended();
}

pub fn the_kind_of_a_source_is_known<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = bind(&mut b, false);
    let (stream, _peer) = b.pair();
    let (listener, at) = b.listen();
    let (connecting, connect) = b.connect_source([at], ConnectOptions::default());
    for (source, kind) in [
        (here, SourceKind::Datagram),
        (stream, SourceKind::Stream),
        (listener, SourceKind::Listener),
        (connecting, SourceKind::Stream),
    ] {
        assert_eq!(b.watcher.kind(source), Ok(kind));
    }
    b.end(connect).result.unwrap();
    b.watcher.abort(here);
    assert_eq!(b.watcher.kind(here), Err(Refusal::Stale));
    b.expect_all_ended();
}

pub fn a_closed_port_is_an_error_of_the_next_operation<H: Harness>() {
    let mut b = H::bench();
    let (here, _) = bind(&mut b, false);
    let (there, there_at) = bind(&mut b, false);
    b.watcher.abort(there);
    b.watcher.connect_datagram(here, there_at).unwrap();
    let receive = b.submit(Op::recv_from(here));
    b.look();
    let send = b.submit(Op::write(here, "is there no one?"));
    expect_written(b.end(send));
    expect_errno(b.end(receive), &[libc::ECONNREFUSED, libc::ECONNRESET]);
    // The socket lives.
    let receive = b.submit(Op::recv_from(here).timeout(std::time::Duration::from_millis(2)));
    expect_unmoved(b.end(receive), ErrorKind::Deadline);
    b.expect_all_ended();
}

/// Leases have all swap buffers but those that the kernel holds for reads of streams. A receive
/// waited for a lease.
pub fn a_receive_finds_the_last_free_buffer<H: Harness>() {
    const SIZE: usize = 4096;
    for count in 2..=9 {
        let builder = Watcher::builder().buffer_size(SIZE as u32).swap_limit(count * SIZE);
        let mut b = H::bench_with(builder);
        let (reader, writer) = b.pair();
        let read = b.submit(Op::read(reader).multishot());
        b.look();
        b.write(writer, "x");
        assert_eq!(&*expect_read(b.end(read)), b"x");
        let (here, at) = bind(&mut b, false);
        let (there, _) = bind(&mut b, false);
        let fill = |b: &mut Bench<H::Driver>| b.watcher.lease(|space| space.len());
        let mut kept: Vec<_> = std::iter::from_fn(|| fill(&mut b).ok()).collect();
        // One of them comes back, if there is none of the kernel's.
        if kept.iter().map(|lease| lease.len()).sum::<usize>() > (count - 1) * SIZE {
            kept.pop();
        }
        for i in 0..20 {
            let receive = b.submit(Op::recv_from(here));
            b.submit(Op::send_to(there, pattern(300, i), at.clone()));
            let Ok(Done::Received { data, .. }) = b.end(receive).result else { panic!() };
            expect_same(&data, &pattern(300, i));
            drop(data);
            b.write(writer, "x");
            assert_eq!(&*expect_read(b.end(read)), b"x");
        }
        b.watcher.close();
    }
}
