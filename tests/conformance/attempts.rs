//! The system calls that a driver on a selector tries without an event. On a ring the kernel makes
//! these attempts.

use std::io::{Read, Write};
use std::time::Duration;

use windlass::{Done, Op, Watcher};

use crate::common::*;

/// An echo over a Unix socket, whose reads may stop at passed descriptors, costs one read and one
/// write per message, too.
pub fn a_unix_echo_costs_one_read_and_one_write<H: Harness>() {
    const MESSAGES: u64 = 400;
    let mut b = H::bench();
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let here = b.watcher.attach(here).unwrap();
    let before = b.watcher.counters();
    for _ in 0..MESSAGES {
        let read = b.submit(Op::read(here));
        b.look();
        (&there).write_all(b"ping").unwrap();
        let data = expect_read(b.end(read));
        let write = b.submit(Op::write(here, data));
        expect_written(b.end(write));
        let mut answer = [0; 4];
        (&there).read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    let after = b.watcher.counters();
    let grown = |name: &str| after.calls(name) - before.calls(name);
    assert_eq!(grown("send"), MESSAGES);
    // One more where the machine has made the loop wait.
    let reads = grown("recv") + grown("recvmsg");
    assert!(reads <= MESSAGES + MESSAGES / 4, "{reads} for {MESSAGES}");
}

/// If more sources are ready than a wait takes, no source is read before its event: the event would
/// then cause a useless read.
pub fn a_unix_echo_is_read_after_its_event<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().events_per_wait(1));
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
            [here, there].map(|socket| b.watcher.attach(socket).unwrap())
        })
        .collect();
    for &[here, there] in &pairs {
        b.submit(Op::read(here));
        b.submit(Op::read(there));
        b.submit(Op::write(here, "there and back again"));
    }
    let (mut before, mut reads) = (b.watcher.counters(), 0);
    while reads < 2000 {
        let c = b.next();
        match c.result {
            Ok(Done::Read(data)) => {
                reads += 1;
                b.submit(Op::write(c.source, data));
            }
            Ok(Done::Written { .. }) => drop(b.submit(Op::read(c.source))),
            other => panic!("{other:?}"),
        }
        if reads == 100 {
            before = b.watcher.counters();
        }
    }
    let calls = |counters: windlass::Counters| counters.calls("recv") + counters.calls("recvmsg");
    let calls = calls(b.watcher.counters()) - calls(before);
    // The last ones have perhaps not been delivered.
    assert!(calls <= reads - 100 + 8, "{calls} for {}", reads - 100);
}

/// A first read that finds bytes needs no registration.
pub fn a_first_read_that_finds_bytes_registers_nothing<H: Harness>() {
    const MANY: u64 = 40;
    let mut b = H::bench();
    let before = b.watcher.counters();
    for _ in 0..MANY {
        let (here, there) = system::tcp_pair();
        (&there).write_all(b"at once").unwrap();
        assert!(here.peek(&mut [0]).unwrap() > 0);
        let here = b.watcher.attach(here).unwrap();
        assert_eq!(b.read(here), b"at once");
        assert!(b.watcher.abort(here));
    }
    let after = b.watcher.counters();
    let grown = |name: &str| after.calls(name) - before.calls(name);
    assert_eq!((grown("recv"), grown("register")), (MANY, 0));
    b.expect_all_ended();
}

/// `explain` counts writes sent at submission and queued writes in separate rows.
pub fn writes_are_explained_by_when_they_went_out<H: Harness>() {
    let mut b = H::bench();
    let writes = |b: &Bench<H::Driver>| -> (u64, u64) {
        let rows = b.watcher.explain().rows;
        let count = |when: &str| {
            let of_writes = rows.iter().filter(|row| row.operation == "write");
            of_writes.filter(|row| row.mechanism.ends_with(when)).map(|row| row.count).sum()
        };
        (count("at submission"), count("from the queue"))
    };
    let (here, _there) = system::tcp_pair();
    let here = b.watcher.attach(here).unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let pipe = b.watcher.attach(std::os::fd::OwnedFd::from(writer)).unwrap();
    let before = b.watcher.counters().submitted;
    for (i, op) in [
        Op::write(here, "plain"),
        Op::write_vectored(here, vec!["a ".into(), "list".into()]),
        Op::write(pipe, "a pipe"),
    ]
    .into_iter()
    .enumerate()
    {
        let write = b.submit(op);
        expect_written(b.end(write));
        assert_eq!(writes(&b), (i as u64 + 1, 0));
    }
    let long = b.submit(Op::write(here, pattern(16 << 20, 1)));
    let behind = b.submit(Op::write(here, "behind"));
    assert_eq!(writes(&b), (3, 2));
    assert_eq!(b.watcher.counters().submitted, before + 5);
    b.watcher.abort(here);
    b.end(long);
    b.end(behind);
    b.watcher.abort(pipe);
    b.expect_all_ended();
}

/// More sockets have room again than one wait tells of: what waits for a short queue has its try.
pub fn drains_with_a_passed_deadline_have_their_try<H: Harness>() {
    let mut b = H::bench_with(windlass::Watcher::builder().events_per_wait(1));
    let mut scenes = Vec::new();
    for _ in 0..8 {
        let (here, there) = system::tcp_pair();
        let here = b.watcher.attach(here).unwrap();
        b.narrow(here);
        let write = b.submit(Op::write(here, vec![7; 8 << 20]));
        scenes.push((here, there, write));
    }
    b.look();
    let mut drains = Vec::new();
    let due = b.watcher.update_now() + Duration::from_millis(60);
    for &(here, ..) in &scenes {
        let queued = b.watcher.queued_bytes(here).unwrap();
        assert!(queued > 0);
        drains.push(b.submit(Op::wait_drained(here, queued - 1).deadline(due)));
    }
    for (here, there, _) in &scenes {
        there.set_nonblocking(true).unwrap();
        let mut memory = vec![0; 1 << 20];
        until("there is room", || {
            while (&*there).read(&mut memory).is_ok() {}
            b.watcher.fd(*here).is_ok_and(system::is_writable)
        });
    }
    // The loop is busy until all deadlines have passed.
    while std::time::Instant::now() <= due {
        std::hint::spin_loop();
    }
    for drain in drains {
        let c = b.end(drain);
        assert!(matches!(c.result, Ok(Done::Drained)), "{c:?}");
    }
    for (here, _, write) in scenes {
        b.watcher.abort(here);
        assert!(b.end(write).result.is_err());
    }
    b.expect_all_ended();
}
