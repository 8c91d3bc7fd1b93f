//! No turn without progress: conditions that hold for long and that no operation clears. These
//! tests bound how often the loop turns, not how long anything takes.

use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use windlass::net::ListenOptions;
use windlass::{Address, Done, ErrorKind, Op, Ready};

use super::readiness;
use crate::common::*;

/// Runs the loop for a tenth of a second, in which nothing of note happens.
#[track_caller]
fn expect_rest<D: windlass::driver::Driver>(b: &mut Bench<D>, what: &str) {
    b.look();
    let before = b.watcher.counters();
    b.pass(Duration::from_millis(100));
    let after = b.watcher.counters();
    let turns = after.turns - before.turns;
    let calls = |name: &str| after.calls(name) - before.calls(name);
    let tries = ["recv", "recvmsg", "recvmmsg", "send", "sendmsg", "poll", "accept", "connect"];
    let tries: u64 = tries.into_iter().map(calls).sum();
    assert!(turns < 100, "{what}: {turns} turns without progress");
    assert!(tries < 100, "{what}: {tries} vain tries");
}

/// A UDP socket with an error in its queue (`IP_RECVERR`) that nobody reads, and another one.
/// Nothing where sockets have no such queue.
fn with_error_queue() -> Option<(UdpSocket, UdpSocket)> {
    if cfg!(not(any(target_os = "linux", target_os = "android"))) {
        skip(Needs::Luck, "a queue of errors: only Linux has it");
        return None;
    }
    /// `IP_RECVERR`.
    const RECVERR: i32 = 11;
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = UdpSocket::bind("127.0.0.1:0").unwrap();
    let one = 1i32;
    let at = (&raw const one).cast();
    // SAFETY: four bytes of a local.
    let answer = unsafe { libc::setsockopt(here.as_raw_fd(), libc::IPPROTO_IP, RECVERR, at, 4) };
    assert_eq!(answer, 0);
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    here.send_to(b"is there no one?", gone).unwrap();
    until("the error is in the queue", || {
        let mut entry = libc::pollfd { fd: here.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry on the stack.
        unsafe { libc::poll(&mut entry, 1, 0) > 0 }
    });
    Some((here, there))
}

/// The poll driver took 812,000 turns in 0.8 seconds: POLLERR holds for as long as nobody reads the
/// queue of errors.
pub fn an_error_queue_without_a_reader_lets_the_loop_rest<H: Harness>() {
    let mut b = H::bench();
    for multishot in [false, true] {
        for read in [Op::recv_from as fn(_) -> Op, Op::read] {
            let Some((here, there)) = with_error_queue() else { return };
            let at = here.local_addr().unwrap();
            let here = b.watcher.attach(here).unwrap();
            // The first attempt takes the error of the socket, but not that in its queue.
            let first = b.submit(read(here).timeout(Duration::from_millis(20)));
            let kind = b.end(first).error_kind();
            let fits = [Some(ErrorKind::Os(libc::ECONNREFUSED)), Some(ErrorKind::Deadline)];
            assert!(fits.contains(&kind), "{kind:?}");
            let op = read(here);
            let waiting = b.submit(if multishot { op.multishot() } else { op });
            expect_rest(&mut b, "an error queue");
            assert!(b.is_open(waiting));
            // The datagrams of others arrive all the same.
            for text in ["one", "two"] {
                there.send_to(text.as_bytes(), at).unwrap();
                if !multishot && text == "two" {
                    break;
                }
                match b.next().result {
                    Ok(Done::Read(data) | Done::Received { data, .. }) => {
                        assert_eq!(&*data, text.as_bytes());
                    }
                    other => panic!("wanted a datagram: {other:?}"),
                }
            }
            b.watcher.abort(here);
            if multishot {
                expect_unmoved(b.end(waiting), ErrorKind::Aborted);
            }
        }
    }
    b.expect_all_ended();
}

/// What arrives during a pause wins over the deadline, and over the idle timeout, that come before
/// the pause ends.
pub fn what_arrives_in_a_pause_does_not_expire<H: Harness>() {
    let mut b = H::bench();
    for idle in [false, true, false, true] {
        let Some((here, there)) = with_error_queue() else { return };
        let at = here.local_addr().unwrap();
        let here = b.watcher.attach(here).unwrap();
        let first = b.submit(Op::recv_from(here).timeout(Duration::from_millis(20)));
        b.end(first);
        let read = b.submit(Op::recv_from(here));
        // The pauses grow to the longest.
        b.pass(Duration::from_millis(150));
        if idle {
            b.watcher.set_idle_timeout(here, Some(Duration::from_millis(1))).unwrap();
        }
        there.send_to(b"there", at).unwrap();
        if !idle {
            b.watcher.reschedule(read, Duration::ZERO).unwrap();
        }
        let c = b.end(read);
        assert!(matches!(c.result, Ok(Done::Received { .. })), "{c:?}");
        b.watcher.abort(here);
    }
    b.expect_all_ended();
}

/// A write that waits on a stream whose peer has shut its own side.
pub fn a_half_closed_peer_that_reads_nothing_lets_the_loop_rest<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let shutdown = b.submit(Op::shutdown(stuck.peer));
    expect_shutdown(b.end(shutdown));
    expect_rest(&mut b, "only a write waits");
    let end = b.submit(Op::read(stuck.writer));
    expect_eof(b.end(end));
    expect_rest(&mut b, "the end was read");
    let closed = b.submit(Op::poll(stuck.writer, Ready::READ_CLOSED));
    assert!(matches!(b.end(closed).result, Ok(Done::Ready(_))));
    b.watcher.abort(stuck.writer);
    assert!(b.end(stuck.ticket).result.is_err());
    b.expect_all_ended();
}

/// A datagram socket that was shut for reads is readable for ever, and has nothing.
pub fn a_datagram_socket_that_is_shut_lets_the_loop_rest<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
    here.connect(there.local_addr().unwrap()).unwrap();
    socket2::SockRef::from(&here).shutdown(std::net::Shutdown::Read).unwrap();
    let here = b.watcher.attach(here).unwrap();
    let read = b.submit(Op::recv_from(here));
    expect_rest(&mut b, "a datagram socket that is shut for reads");
    b.watcher.abort(here);
    b.end(read);
    b.expect_all_ended();
}

/// Serves readiness for a tenth of a second as a stream does: each completion is followed by a call
/// that moves nothing, and by the next operation. Bounds how many calls these are.
#[track_caller]
fn expect_few_vain_calls<D: windlass::driver::Driver>(
    b: &mut Bench<D>,
    op: impl Fn() -> Op,
    what: &str,
    mut vain: impl FnMut(&mut Bench<D>),
) -> windlass::Ticket {
    let mut waiting = b.submit(op());
    let pass = b.submit(Op::timer(Duration::from_millis(100)));
    let mut calls = 0;
    while b.is_open(pass) {
        let c = b.next();
        if c.ticket() == pass {
            continue;
        }
        assert!(matches!(c.result, Ok(Done::Ready(_))), "{what}: {c:?}");
        vain(b);
        calls += 1;
        assert!(calls < 100, "{what}: {calls} vain calls");
        if !c.has_more() {
            waiting = b.submit(op());
        }
    }
    waiting
}

/// The poll driver said "readable" again and again of a socket with an error in its queue, and of a
/// datagram socket that is shut: a program that received in vain each time never rested.
pub fn readiness_that_proves_vain_lets_the_loop_rest<H: Harness>() {
    let mut b = H::bench();
    for multishot in [false, true] {
        let (here, there) = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
        here.connect(there.local_addr().unwrap()).unwrap();
        there.connect(here.local_addr().unwrap()).unwrap();
        socket2::SockRef::from(&here).shutdown(std::net::Shutdown::Read).unwrap();
        let cases = with_error_queue().into_iter().map(|pair| ("an error queue", pair));
        for (what, (here, there)) in
            cases.chain([("a datagram socket that is shut", (here, there))])
        {
            let at = here.local_addr().unwrap();
            let here = b.watcher.attach(here).unwrap();
            // The first call takes the error of the socket, but not that in its queue.
            let _ = b.watcher.recv(here, &mut [0; 9]);
            let op = || if multishot { Op::readable(here).multishot() } else { Op::readable(here) };
            let mut waiting = expect_few_vain_calls(&mut b, op, what, |b| {
                readiness::expect_would_block(b.watcher.recv(here, &mut [0; 9]));
            });
            // What arrives is told all the same, also if the time of the operation is over before
            // the pause is.
            there.send_to(b"there", at).unwrap();
            if !multishot {
                // The pause may have ended just now.
                let _ = b.watcher.reschedule(waiting, Duration::ZERO);
                let c = b.end(waiting);
                assert!(matches!(c.result, Ok(Done::Ready(_))), "{what}: {c:?}");
                waiting = b.submit(op());
            }
            let mut bytes = [0; 9];
            while b.watcher.recv(here, &mut bytes).is_err() {
                if !b.next().has_more() {
                    waiting = b.submit(op());
                }
            }
            assert_eq!(&bytes[..5], b"there");
            b.watcher.abort(here);
            drop(b.now());
            assert!(!b.is_open(waiting));
        }
    }
    b.expect_all_ended();
}

/// As above, for a full stream whose queue of errors has the times of what it has sent.
pub fn room_that_proves_vain_lets_the_loop_rest<H: Harness>() {
    /// `SO_TIMESTAMPING`, and its flags for what software has sent.
    const TIMESTAMPING: i32 = 37;
    static TIMES: i32 = 1 << 1 | 1 << 4;
    if cfg!(not(any(target_os = "linux", target_os = "android"))) {
        return skip(Needs::Luck, "a queue of errors: only Linux has it");
    }
    let mut b = H::bench();
    for multishot in [false, true] {
        let (here, _there) = system::tcp_pair();
        let at = (&raw const TIMES).cast();
        let fd = here.as_raw_fd();
        // SAFETY: four bytes of a static.
        let answer = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, TIMESTAMPING, at, 4) };
        assert_eq!(answer, 0);
        let here = b.watcher.attach(here).unwrap();
        readiness::fill(&mut b, here);
        let mut entry = libc::pollfd { fd, events: 0, revents: 0 };
        // SAFETY: one entry on the stack.
        if unsafe { libc::poll(&mut entry, 1, 0) } == 0 {
            return skip(Needs::Luck, "a time in the queue of errors");
        }
        let op = || if multishot { Op::writable(here).multishot() } else { Op::writable(here) };
        expect_few_vain_calls(&mut b, op, "a full stream", |b| {
            // The system may have found more room meanwhile.
            readiness::fill(b, here);
        });
        b.watcher.abort(here);
        drop(b.now());
    }
    b.expect_all_ended();
}

/// Urgent data that nobody reads, hang-ups of pipes, and sources without operations.
pub fn conditions_that_nobody_waits_for_let_the_loop_rest<H: Harness>() {
    let mut b = H::bench();
    let (here, mut there) = system::tcp_pair();
    let urgent = b.watcher.attach(here).unwrap();
    let read = b.submit(Op::read(urgent));
    b.look();
    there.write_all(b"plain").unwrap();
    assert_eq!(&*expect_read(b.end(read)), b"plain");
    socket2::SockRef::from(&there).send_out_of_band(b"!").unwrap();
    let read = b.submit(Op::read(urgent));
    expect_rest(&mut b, "urgent data beside a read");
    b.watcher.abort(urgent);
    b.end(read);
    let (reader, writer) = std::io::pipe().unwrap();
    let idle = b.watcher.attach(std::os::fd::OwnedFd::from(reader)).unwrap();
    let read = b.submit(Op::read(idle));
    b.look();
    drop(writer);
    expect_eof(b.end(read));
    expect_rest(&mut b, "a pipe at its end, without operations");
    let (here, there) = system::tcp_pair();
    let gone = b.watcher.attach(here).unwrap();
    let read = b.submit(Op::read(gone));
    b.look();
    socket2::SockRef::from(&there).set_linger(Some(Duration::ZERO)).unwrap();
    drop(there);
    assert!(b.end(read).result.is_err());
    expect_rest(&mut b, "a reset connection, without operations");
    b.expect_all_ended();
}

/// Fifty Unix connects that find no room took a twelfth of a processor: each tried again every
/// millisecond. The pauses of a source grow, and end with a cancel or a deadline at once.
pub fn connects_that_find_no_room_try_less_and_less_often<H: Harness>() {
    let d = system::Directory::new();
    let at = Address::unix(d.path().join("listener")).unwrap();
    let mut b = H::bench();
    let listener = b.watcher.listen_with(at.clone(), ListenOptions::default().backlog(0)).unwrap();
    let first = b.submit(Op::connect(at.clone()));
    expect_connected(b.end(first));
    let waiting: Vec<_> = (0..50).map(|_| b.submit(Op::connect(at.clone()))).collect();
    let due = b.submit(Op::connect(at.clone()).timeout(Duration::from_millis(300)));
    b.look_for(Duration::from_millis(200));
    let calls = |b: &Bench<H::Driver>| b.watcher.counters().calls("connect");
    let before = calls(&b);
    expect_unmoved(b.end(due), ErrorKind::Deadline);
    b.pass(Duration::from_millis(100));
    let tries = calls(&b) - before;
    // Ten thousand with a pause of a millisecond. A loaded machine makes fewer.
    assert!(tries < 1000, "{tries} tries of 50 connects");
    for ticket in &waiting[1..] {
        assert!(b.watcher.cancel(*ticket));
        expect_unmoved(b.end(*ticket), ErrorKind::Cancelled);
    }
    for _ in 0..2 {
        expect_accepted(b.run(Op::accept(listener)));
    }
    expect_connected(b.end(waiting[0]));
    b.expect_all_ended();
}

/// A poll with a deadline asks once more before it ends: its source may be ready, and behind so
/// many others that no wait has told of it.
pub fn polls_with_a_passed_deadline_have_their_try<H: Harness>() {
    const READS: usize = 100;
    let mut b = H::bench();
    let pairs: Vec<_> = (0..2 * READS)
        .map(|_| {
            let (here, there) = system::tcp_pair();
            (b.watcher.attach(here).unwrap(), there)
        })
        .collect();
    for round in 0..3 {
        let due = b.watcher.update_now() + Duration::from_millis(60);
        let mut reads = Vec::new();
        let mut polls = Vec::new();
        for &(here, _) in &pairs[..READS] {
            reads.push(b.submit(Op::read(here).deadline(due)));
        }
        for &(here, _) in &pairs[READS..] {
            polls.push(b.submit(Op::poll(here, Ready::READABLE).deadline(due)));
        }
        b.look();
        for (_, there) in &pairs {
            (&*there).write_all(b"there").unwrap();
        }
        for (here, _) in &pairs {
            let fd = b.watcher.fd(*here).unwrap();
            assert!(system::wait_readable(fd.as_fd(), Some(BOUND)));
        }
        // The loop is busy until all deadlines have passed.
        while std::time::Instant::now() <= due {
            std::hint::spin_loop();
        }
        for (i, ticket) in polls.into_iter().enumerate() {
            let c = b.end(ticket);
            assert!(matches!(c.result, Ok(Done::Ready(_))), "round {round}, poll {i}: {c:?}");
        }
        if !H::COMPLETES {
            for ticket in reads {
                assert_eq!(&*expect_read(b.end(ticket)), b"there");
            }
        } else {
            reads.into_iter().for_each(|ticket| drop(b.end(ticket)));
        }
        // What is left in the sockets is read.
        for &(here, _) in &pairs {
            let rest = b.submit(Op::read(here).timeout(Duration::from_millis(1)));
            b.end(rest);
        }
    }
    b.expect_all_ended();
}
