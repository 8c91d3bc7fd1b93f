//! The paths that must be short, in system calls.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use windlass::{Done, Op, Watcher};

use crate::common::*;

/// An echo costs one read and one write per message; registrations are made once.
pub fn an_echo_costs_one_read_and_one_write<H: Harness>() {
    const CLIENTS: u64 = 10;
    const ROUNDS: u64 = 100;
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let at = at.ip().unwrap();
    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
    for _ in 0..CLIENTS {
        let accept = b.submit(Op::accept(listener));
        let handle = expect_accepted(b.end(accept));
        let source = b.watcher.attach(handle).unwrap();
        b.submit(Op::read(source));
    }
    b.look();
    let before = b.watcher.counters();
    for round in 0..ROUNDS {
        for client in &clients {
            (&*client).write_all(&pattern(100, round)).unwrap();
        }
        let mut written = 0;
        while written < 100 * CLIENTS {
            let c = b.next();
            match c.result {
                Ok(Done::Read(data)) => drop(b.submit(Op::write(c.source, data))),
                Ok(Done::Written { bytes, .. }) => {
                    written += u64::from(bytes);
                    b.submit(Op::read(c.source));
                }
                other => panic!("{other:?}"),
            }
        }
        for client in &clients {
            let mut answer = [0; 100];
            (&*client).read_exact(&mut answer).unwrap();
            assert_eq!(answer[..], pattern(100, round));
        }
        // Acknowledgements would have reported room by now.
        b.look();
    }
    let after = b.watcher.counters();
    let messages = CLIENTS * ROUNDS;
    let grown = |name: &str| after.calls(name) - before.calls(name);
    assert!(grown("wait") <= messages * 2 + 20, "{} waits", grown("wait"));
    assert_eq!(grown("register"), 0, "registered once, for life");
    // A message that comes in two packets, rarely, costs a read more.
    let (writes, reads) = match H::STAMP {
        "uring" => (0, 0..=0), // the ring does them
        _ => (messages, messages..=messages + messages / 10),
    };
    // Nor is room reported while no write waits.
    let events = after.events - before.events;
    assert!(H::STAMP == "uring" || events <= messages + messages / 10, "{events} events");
    assert_eq!(grown("send"), writes);
    assert!(reads.contains(&grown("recv")), "{} reads", grown("recv"));
}

/// An echo by readiness costs one read and one write per message, and its share of a wait: nothing
/// asks whether a socket is ready, and nothing reads in vain.
pub fn an_echo_by_readiness_costs_one_read_and_one_write<H: Harness>() {
    const CLIENTS: u64 = 10;
    const ROUNDS: u64 = 100;
    let mut b = H::bench();
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    for number in 0..CLIENTS {
        let source = if number % 2 == 0 {
            let (here, there) = system::tcp_pair();
            peers.push(Box::new(there));
            b.watcher.attach(here).unwrap()
        } else {
            let (here, there) = UnixStream::pair().unwrap();
            peers.push(Box::new(there));
            b.watcher.attach(here).unwrap()
        };
        b.submit(Op::readable(source));
    }
    b.look();
    let before = b.watcher.counters();
    let mut bytes = [0; 200];
    for round in 0..ROUNDS {
        for peer in &mut peers {
            peer.write_all(&pattern(100, round)).unwrap();
        }
        let mut echoed = 0;
        while echoed < 100 * CLIENTS {
            let source = b.next().source;
            let len = b.watcher.recv(source, &mut bytes).unwrap();
            assert_eq!(b.watcher.send(source, &bytes[..len]).unwrap(), len);
            echoed += len as u64;
            b.submit(Op::readable(source));
        }
        for peer in &mut peers {
            let mut answer = [0; 100];
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..], pattern(100, round));
        }
    }
    let after = b.watcher.counters();
    let messages = CLIENTS * ROUNDS;
    let grown = |name: &str| after.calls(name) - before.calls(name);
    assert_eq!((grown("register"), grown("poll")), (0, 0));
    // A message that comes in two packets, rarely, costs both calls once more.
    let few = messages..=messages + messages / 10;
    let reads = grown("recv") + grown("recvmsg");
    assert!(few.contains(&reads), "{reads} reads");
    assert!(few.contains(&grown("send")), "{} writes", grown("send"));
    assert!(grown("wait") <= messages + 20, "{} waits", grown("wait"));
    let all: u64 = after.system_calls.iter().map(|(_, count)| count).sum::<u64>()
        - before.system_calls.iter().map(|(_, count)| count).sum::<u64>();
    // A ring looks into its set of readiness at most once a wait.
    let looks = grown("epoll_wait");
    assert!(looks <= grown("wait"), "{looks} looks");
    assert_eq!(all, reads + grown("send") + grown("wait") + looks, "and no other calls");
}

/// A program that only receives makes no vain call, whether bytes come before the operation or
/// after it. After a read by an operation there is at most one, where the kernel does the read.
pub fn readiness_is_vain_only_after_reads_of_the_kernel<H: Harness>() {
    let mut b = H::bench();
    let (here, mut there) = system::tcp_pair();
    let here = b.watcher.attach(here).unwrap();
    let mut bytes = [0; 9];
    for round in 0..60 {
        let by_operation = round % 3 == 2;
        if by_operation {
            there.write_all(b"there").unwrap();
            assert_eq!(&*expect_read(b.run(Op::read(here))), b"there");
        } else {
            let readable = (round % 3 == 0).then(|| b.submit(Op::readable(here)));
            b.look();
            there.write_all(b"there").unwrap();
            let readable = readable.unwrap_or_else(|| b.submit(Op::readable(here)));
            b.end(readable);
            assert_eq!(b.watcher.recv(here, &mut bytes).unwrap(), 5);
        }
        let mut vain = 0;
        let pending = loop {
            let next = b.submit(Op::readable(here));
            b.look();
            if b.is_open(next) {
                break next;
            }
            b.end(next);
            vain += 1;
            assert!(b.watcher.recv(here, &mut bytes).is_err());
        };
        assert!(vain <= u32::from(by_operation && H::COMPLETES), "{vain} vain calls");
        assert!(b.watcher.cancel(pending));
        b.end(pending);
    }
    b.expect_all_ended();
}

trait Peer: Read + Write {}
impl<T: Read + Write> Peer for T {}

/// A connection that is served at once needs no registration.
pub fn attach_makes_no_call_and_short_connections_no_registration<H: Harness>() {
    let mut b = H::bench();
    let pairs: Vec<_> = (0..10).map(|_| system::tcp_pair()).collect();
    let before = b.watcher.counters().system_calls;
    let sources: Vec<_> = pairs
        .into_iter()
        .map(|(here, there)| {
            (&there).write_all(b"request").unwrap();
            (b.watcher.attach(here).unwrap(), there)
        })
        .collect();
    assert_eq!(b.watcher.counters().system_calls, before);
    for (source, there) in sources {
        let fd = b.watcher.fd(source).unwrap();
        assert!(system::wait_readable(fd, Some(BOUND)));
        assert_eq!(b.read(source), b"request");
        b.write(source, "answer");
        let close = b.submit(Op::close(source));
        expect_closed(b.end(close));
        let mut text = String::new();
        (&there).read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer");
    }
    assert_eq!(b.watcher.counters().calls("register"), 0);
}

/// An idle watcher does nothing: turns do not grow while nothing happens.
pub fn an_idle_watcher_does_not_spin<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder());
    let (here, there) = b.pair();
    b.submit(Op::read(here));
    b.submit(Op::read(there));
    b.look();
    let before = b.watcher.counters();
    b.pass(std::time::Duration::from_millis(100));
    let turns = b.watcher.counters().turns - before.turns;
    assert!(turns < 20, "{turns} turns of nothing");
}
