//! Descriptors that travel over Unix sockets (SCM_RIGHTS).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::net::Descriptors;
use windlass::{Completion, Done, ErrorKind, Op, Refusal, Source};

use crate::common::*;

fn unix_pair<D: windlass::driver::Driver>(b: &mut Bench<D>) -> (Source, Source) {
    let (here, there) = UnixStream::pair().unwrap();
    (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap())
}

#[track_caller]
fn passed(c: Completion) -> (windlass::Buf, Descriptors) {
    match c.result {
        Ok(Done::Descriptors { data, descriptors, lost: false, truncated: false }) => {
            (data, descriptors)
        }
        other => panic!("wanted descriptors: {other:?}"),
    }
}

fn pipe() -> (OwnedFd, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader.into(), File::from(OwnedFd::from(writer)))
}

pub fn descriptors_arrive_with_their_bytes<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    for count in [1, 2, 7, 253] {
        let (sent, writers): (Vec<_>, Vec<_>) = (0..count).map(|_| pipe()).unzip();
        let send = b.submit(Op::send_descriptors(here, "these", sent));
        assert_eq!(&*expect_written(b.end(send)), b"these");
        let receive = b.submit(Op::recv_descriptors(there));
        let (data, descriptors) = passed(b.end(receive));
        assert_eq!((&*data, descriptors.len()), (&b"these"[..], count));
        for (i, (fd, mut writer)) in descriptors.take().into_iter().zip(writers).enumerate() {
            write!(writer, "pipe {i}").unwrap();
            drop(writer);
            let mut text = String::new();
            File::from(fd).read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("pipe {i}"), "our end was closed: the pipe ends");
        }
    }
    b.expect_all_ended();
}

pub fn too_many_descriptors_fail<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    let sent = (0..254).map(|_| pipe().0).collect();
    let send = b.submit(Op::send_descriptors(here, "x", sent));
    expect_errno(b.end(send), &[libc::EINVAL]);
    b.expect_alive(here, there);
}

/// The short-read rule: a read stops at passed descriptors although more is there. Plain reads get
/// every byte before and behind them.
pub fn plain_reads_get_every_byte_around_descriptors<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    for round in 0..50u8 {
        // The reader waits, so that the data comes with an event.
        let len = 10 + 5 + 7 + 5 + 9;
        let mut got = Vec::new();
        let first = b.submit(Op::read(there));
        b.look();
        b.submit(Op::write(here, vec![round; 10]));
        b.submit(Op::send_descriptors(here, vec![round + 1; 5], vec![pipe().0]));
        b.submit(Op::write(here, vec![round + 2; 7]));
        b.submit(Op::send_descriptors(here, vec![round + 3; 5], vec![pipe().0, pipe().0]));
        b.submit(Op::write(here, vec![round + 4; 9]));
        got.extend_from_slice(&expect_read(b.end(first)));
        while got.len() < len {
            let rest = len - got.len();
            let op = match round % 3 {
                0 => Op::read(there),
                1 => Op::read_into(there, room(rest)),
                _ => Op::read_vectored(there, vec![room(3), room(rest)]),
            };
            let read = b.submit(op);
            got.extend(expect_read(b.end(read)).into_vec());
        }
        let wanted = [(0, 10), (1, 5), (2, 7), (3, 5), (4, 9)];
        let wanted: Vec<u8> =
            wanted.iter().flat_map(|&(step, len)| vec![round + step; len]).collect();
        assert_eq!(got, wanted);
        for c in b.now() {
            expect_written(c);
        }
    }
    b.expect_all_ended();
}

/// What stands behind passed descriptors is found although other sources never let the loop sleep.
pub fn a_busy_loop_gets_the_bytes_behind_descriptors<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    let (near, far) = unix_pair(&mut b);
    let first = b.submit(Op::read(there));
    b.look();
    b.submit(Op::send_descriptors(here, "one", vec![pipe().0]));
    b.submit(Op::write(here, "two"));
    assert_eq!(&*expect_read(b.end(first)), b"one");
    let second = b.submit(Op::read(there));
    // A byte that is always under way.
    let mut busy = b.submit(Op::read(far));
    b.submit(Op::write(near, "x"));
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < BOUND, "the loop is busy and the bytes are not found");
        let c = b.next();
        let ticket = c.ticket();
        match c.result {
            Ok(Done::Read(data)) if c.source == there => {
                assert_eq!((ticket, &*data), (second, &b"two"[..]));
                break;
            }
            Ok(Done::Read(_)) => {
                assert_eq!(ticket, busy);
                busy = b.submit(Op::read(far));
                b.submit(Op::write(near, "x"));
            }
            other => drop(other.unwrap()),
        }
    }
    for source in [near, there] {
        b.watcher.abort(source);
    }
}

/// A message now and then, so that the loop is often idle.
fn ping<D: Driver>(b: &mut Bench<D>, near: Source, far: Source) {
    let read = b.submit(Op::read(far));
    b.look();
    b.write(near, "x");
    assert_eq!(&*expect_read(b.end(read)), b"x");
}

/// They come with the next turn, also in a loop that is often idle: they came 200 ms late there.
pub fn bytes_behind_descriptors_come_at_once<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    let (near, far) = unix_pair(&mut b);
    for multishot in [false, true] {
        (0..20).for_each(|_| ping(&mut b, near, far));
        let read = || if multishot { Op::read(there).multishot() } else { Op::read(there) };
        let first = b.submit(read());
        b.look();
        // The peer is another program: no turn of the loop runs between its two sends.
        b.submit(Op::send_descriptors(here, "one", vec![pipe().0]));
        b.submit(Op::write(here, "two"));
        let (mut second, mut got) = (first, Vec::new());
        for turn in 0.. {
            assert!(turn < 10, "the bytes are not found: {got:?}");
            b.look();
            for c in b.now() {
                if c.source == there {
                    got.extend_from_slice(&expect_read(c));
                    if !multishot && got.len() < 6 {
                        second = b.submit(read());
                    }
                }
            }
            if got == b"onetwo" {
                break;
            }
        }
        if multishot {
            assert!(b.watcher.cancel(second));
            expect_unmoved(b.end(second), ErrorKind::Cancelled);
        }
    }
    b.expect_all_ended();
}

/// They are found although more sources are ready at any time than a wait takes.
pub fn bytes_behind_descriptors_are_found_by_a_loop_that_is_behind<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().events_per_wait(1));
    let busy: Vec<_> = (0..4).map(|_| unix_pair(&mut b)).collect();
    for &(near, far) in &busy {
        b.submit(Op::read(near).token(1));
        b.submit(Op::read(far).token(1));
        b.submit(Op::write(near, "x").token(1));
    }
    let (here, there) = unix_pair(&mut b);
    b.submit(Op::send_descriptors(here, "one", vec![pipe().0]));
    b.submit(Op::write(here, "two"));
    b.submit(Op::read(there).token(2));
    let (start, mut got) = (Instant::now(), Vec::new());
    while got != b"onetwo" {
        assert!(start.elapsed() < BOUND, "the bytes are not found: {got:?}");
        let c = b.next();
        match c.result.unwrap() {
            Done::Read(data) if c.token == 2 => {
                got.extend_from_slice(&data);
                b.submit(Op::read(there).token(2));
            }
            Done::Read(data) => drop(b.submit(Op::write(c.source, data).token(1))),
            Done::Written { .. } if c.token == 1 => drop(b.submit(Op::read(c.source).token(1))),
            _ => {}
        }
    }
}

pub fn bytes_and_descriptors_keep_their_order<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    b.submit(Op::write(here, "before "));
    b.submit(Op::send_descriptors(here, "one ", vec![pipe().0]));
    b.submit(Op::write(here, "between "));
    b.submit(Op::send_descriptors(here, "two ", vec![pipe().0, pipe().0]));
    let close = b.submit(Op::close(here));
    let (mut text, mut counts) = (Vec::new(), Vec::new());
    loop {
        let receive = b.submit(Op::recv_descriptors(there));
        let (data, descriptors) = passed(b.end(receive));
        if data.is_eof() {
            assert!(descriptors.is_empty());
            break;
        }
        text.extend_from_slice(&data);
        if !descriptors.is_empty() {
            counts.push((text.len(), descriptors.len()));
        }
    }
    assert_eq!(text, b"before one between two ");
    assert_eq!(counts.iter().map(|c| c.1).collect::<Vec<_>>(), [1, 2]);
    assert!(counts[0].0 >= 11 && counts[0].0 < 20, "with the bytes they came with: {counts:?}");
    expect_closed(b.end(close));
}

/// Behind a stuck write they wait; cancelled there, they are closed here.
pub fn sending_descriptors_waits_and_can_be_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    let bytes = pattern(4 << 20, 1);
    let stuck = b.submit(Op::write(here, bytes.clone()));
    let (reader, mut writer) = pipe();
    let dropped = b.submit(Op::send_descriptors(here, "dropped", vec![reader]));
    let expiring = Op::send_descriptors(here, "expired", vec![pipe().0]);
    let expiring = b.submit(expiring.timeout(Duration::from_millis(2)));
    let kept = b.submit(Op::send_descriptors(here, "kept", vec![pipe().0]));
    assert!(b.watcher.cancel(dropped));
    assert_eq!(&*expect_unmoved(b.end(dropped), ErrorKind::Cancelled), b"dropped");
    assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(&*expect_unmoved(b.end(expiring), ErrorKind::Deadline), b"expired");
    expect_same(&b.read_exact(there, bytes.len()), &bytes);
    expect_written(b.end(stuck));
    let receive = b.submit(Op::recv_descriptors(there));
    let (data, descriptors) = passed(b.end(receive));
    assert_eq!((&*data, descriptors.len()), (&b"kept"[..], 1));
    expect_written(b.end(kept));
    b.expect_all_ended();
}

pub fn receiving_descriptors_ends_like_others<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = unix_pair(&mut b);
    let receive = b.submit(Op::recv_descriptors(here).timeout(Duration::from_millis(2)));
    expect_unmoved(b.end(receive), ErrorKind::Deadline);
    let receive = b.submit(Op::recv_descriptors(here));
    assert!(b.watcher.cancel(receive));
    expect_unmoved(b.end(receive), ErrorKind::Cancelled);
    let receive = b.submit(Op::recv_descriptors(here));
    b.watcher.abort(here);
    expect_unmoved(b.end(receive), ErrorKind::Aborted);
    let (tcp, _peer) = b.pair();
    assert_eq!(b.refuse(Op::recv_descriptors(tcp)).0, Refusal::Unsupported);
    let (reason, op) = b.refuse(Op::send_descriptors(tcp, "x", vec![pipe().0]));
    assert_eq!((reason, &**op.buf()), (Refusal::Unsupported, &b"x"[..]));
    // UDP would send the bytes and drop the descriptors.
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(udp.local_addr().unwrap()).unwrap();
    let udp = b.watcher.attach(udp).unwrap();
    assert_eq!(b.refuse(Op::send_descriptors(udp, "x", vec![pipe().0])).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::recv_descriptors(udp)).0, Refusal::Unsupported);
    let (datagrams, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let datagrams = b.watcher.attach(datagrams).unwrap();
    expect_written(b.run(Op::send_descriptors(datagrams, "x", vec![pipe().0])));
    let (unix, _peer) = unix_pair(&mut b);
    let op = Op::send_descriptors(unix, "", vec![pipe().0]);
    assert_eq!(b.refuse(op).0, Refusal::EmptyBuffer);
}

/// A read whose deadline has passed finds what stands behind descriptors.
pub fn a_passed_deadline_finds_the_bytes_behind_descriptors<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    for round in 0..5 {
        let first = b.submit(Op::read(there));
        b.look();
        b.submit(Op::send_descriptors(here, "one", vec![pipe().0]));
        b.submit(Op::write(here, "two"));
        for c in b.take(2) {
            expect_written(c);
        }
        assert_eq!(&*expect_read(b.end(first)), b"one");
        let past = b.watcher.now() - Duration::from_nanos(1);
        let nop = b.submit(Op::nop());
        let second = b.submit(Op::read(there).deadline(past));
        assert_eq!(&*expect_read(b.end(second)), b"two", "round {round}");
        assert!(b.end(nop).result.is_ok());
    }
    b.expect_all_ended();
}

/// A message of nothing but descriptors is one.
pub fn a_message_without_bytes_keeps_its_descriptors<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let there = b.watcher.attach(there).unwrap();
    let (reader, mut writer) = pipe();
    system::send_only(&here, &reader);
    drop(reader);
    let (data, descriptors) = passed(b.run(Op::recv_descriptors(there)));
    assert!(data.is_empty());
    let mut descriptors = descriptors.take();
    assert_eq!(descriptors.len(), 1);
    writer.write_all(b"through").unwrap();
    drop(writer);
    let mut text = String::new();
    File::from(descriptors.remove(0)).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
}

/// Descriptors for which the process has no room are lost, and the receive says so. Nothing did.
pub fn lost_descriptors_are_told<H: Harness>() {
    let name = format!("{}::descriptors::lost_descriptors_are_told", H::STAMP);
    child::in_child(&name, || {
        let mut b = H::bench();
        let (here, there) = unix_pair(&mut b);
        let sent = (0..3).map(|_| pipe().0).collect();
        expect_written(b.run(Op::send_descriptors(here, "these", sent)));
        // The next receive has room for one.
        let free = File::open("/dev/null").unwrap();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a struct to write.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        let all = limit.rlim_cur;
        limit.rlim_cur = std::os::fd::AsRawFd::as_raw_fd(&free) as libc::rlim_t + 1;
        drop(free);
        // SAFETY: a struct to read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let c = b.run(Op::recv_descriptors(there));
        limit.rlim_cur = all;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        match c.result {
            Ok(Done::Descriptors { data, descriptors, lost, truncated }) => {
                assert_eq!((&*data, lost, truncated), (&b"these"[..], true, false));
                assert!(descriptors.len() < 3, "{descriptors:?}");
            }
            other => panic!("wanted descriptors: {other:?}"),
        }
        // The next ones are whole.
        expect_written(b.run(Op::send_descriptors(here, "more", vec![pipe().0])));
        let (data, descriptors) = passed(b.run(Op::recv_descriptors(there)));
        assert_eq!((&*data, descriptors.len()), (&b"more"[..], 1));
    });
}

/// A datagram that is longer than the memory for it is cut, and the receive says so.
pub fn a_message_with_descriptors_says_whether_it_was_cut<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().buffer_size(64));
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap());
    for (len, cut) in [(64, false), (65, true), (3, false)] {
        expect_written(b.run(Op::send_descriptors(here, vec![7; len], vec![pipe().0])));
        match b.run(Op::recv_descriptors(there)).result {
            Ok(Done::Descriptors { data, descriptors, lost: false, truncated }) => {
                assert_eq!((data.len(), truncated), (len.min(64), cut));
                assert_eq!(descriptors.len(), 1);
            }
            other => panic!("wanted descriptors: {other:?}"),
        }
    }
    b.expect_all_ended();
}
