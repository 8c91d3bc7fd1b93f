//! Descriptors that travel over Unix sockets (SCM_RIGHTS).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::net::Descriptors;
use windlass::{Completion, Completions, Done, ErrorKind, Op, Refusal, Source};

use crate::common::files::{expect_held, hold};
use crate::common::*;

fn unix_pair<D: windlass::driver::Driver>(b: &mut Bench<D>) -> (Source, Source) {
    let (here, there) = UnixStream::pair().unwrap();
    (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap())
}

#[track_caller]
fn passed(c: Completion) -> (windlass::Buf, Descriptors) {
    match c.result {
        Ok(Done::Descriptors { data, descriptors }) => (data, descriptors),
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

/// A message now and then, so that the loop is not seldom idle.
fn ping<D: Driver>(b: &mut Bench<D>, near: Source, far: Source) {
    let read = b.submit(Op::read(far));
    b.look();
    b.write(near, "x");
    assert_eq!(&*expect_read(b.end(read)), b"x");
}

/// They are found although the read that waits for them is another one all the time, and the loop
/// has nothing to do often.
pub fn bytes_behind_descriptors_are_found_by_whatever_read_waits<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = unix_pair(&mut b);
    let (near, far) = unix_pair(&mut b);
    (0..20).for_each(|_| ping(&mut b, near, far));
    let first = b.submit(Op::read(there));
    let one = b.submit(Op::send_descriptors(here, "one", vec![pipe().0]));
    let two = b.submit(Op::write(here, "two"));
    assert_eq!(&*expect_read(b.end(first)), b"one");
    for write in [one, two] {
        expect_written(b.end(write));
    }
    let mut second = b.submit(Op::read(there));
    let start = Instant::now();
    while b.is_open(second) {
        assert!(start.elapsed() < BOUND, "the bytes are not found");
        (0..10).for_each(|_| ping(&mut b, near, far));
        if b.watcher.cancel(second) {
            expect_unmoved(b.end(second), ErrorKind::Cancelled);
            second = b.submit(Op::read(there));
        }
    }
    assert_eq!(&*expect_read(b.end(second)), b"two");
    b.expect_all_ended();
}

/// They are found, if late, although more sources are ready at any time than a wait takes.
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

/// A watcher that is closed sleeps until the work that it waits for has ended, even if sources wait
/// for a recheck.
pub fn a_closed_watcher_makes_no_recheck<H: Harness>() {
    let mut b = H::bench();
    let (near, far) = unix_pair(&mut b);
    (0..20).for_each(|_| ping(&mut b, near, far));
    let (held, gate) = hold(&mut b);
    b.watcher.close();
    b.look();
    let waits = b.watcher.counters().calls("wait");
    let mut done = Completions::new();
    let span = Duration::from_millis(500);
    assert_eq!(b.watcher.wait_timeout(&mut done, span).unwrap(), 0);
    let waits = b.watcher.counters().calls("wait") - waits;
    assert!(waits < 20, "{waits} waits for nothing");
    drop(gate);
    expect_held(b.end(held));
    assert_eq!(b.open(), 0);
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

/// A turn with something to deliver does not ask again what may stand behind descriptors; a read
/// whose deadline has passed has its try there all the same.
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
