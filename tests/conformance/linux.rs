//! What only Linux has: eventfd, timerfd, pidfd, threads that are bound to processors.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use windlass::{Builder, Completion, Done, Op, Ready, Reason};

use crate::common::*;

#[track_caller]
fn ready(c: Completion) -> Ready {
    match c.result {
        Ok(Done::Ready(ready)) => ready,
        other => panic!("wanted readiness: {other:?}"),
    }
}

fn eventfd() -> OwnedFd {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub fn an_eventfd_becomes_readable<H: Harness>() {
    let mut b = H::bench();
    let event = eventfd();
    let signal = std::fs::File::from(event.try_clone().unwrap());
    let source = b.watcher.attach(event).unwrap();
    for _ in 0..10 {
        let poll = b.submit(Op::poll(source, Ready::READABLE));
        b.look();
        assert!(b.is_open(poll));
        (&signal).write_all(&1u64.to_ne_bytes()).unwrap();
        assert_eq!(ready(b.end(poll)), Ready::READABLE);
        // It was asked, not read.
        let again = b.submit(Op::poll(source, Ready::READABLE));
        assert_eq!(ready(b.end(again)), Ready::READABLE);
        (&signal).read_exact(&mut [0; 8]).unwrap();
    }
    let writable = b.submit(Op::poll(source, Ready::WRITABLE));
    assert_eq!(ready(b.end(writable)), Ready::WRITABLE);
    b.expect_all_ended();
}

/// A timerfd and a pidfd: whatever poll(2) understands.
pub fn other_descriptors_can_be_polled<H: Harness>() {
    let mut b = H::bench();
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor that nobody else owns.
    let timer = unsafe { OwnedFd::from_raw_fd(fd) };
    let spec = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 },
    };
    // SAFETY: the struct lives across the call; no old value is asked for.
    let set = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &spec, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let source = b.watcher.attach_dup(timer.as_fd()).unwrap();
    let poll = b.submit(Op::poll(source, Ready::READABLE));
    assert_eq!(ready(b.end(poll)), Ready::READABLE);
    let read = b.submit(Op::read_into(source, vec![0; 8]));
    assert_eq!(*expect_read(b.end(read)), 1u64.to_ne_bytes());

    let mut child = std::process::Command::new("true").spawn().unwrap();
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if fd >= 0 {
        // SAFETY: a fresh descriptor that nobody else owns.
        let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let source = b.watcher.attach(process).unwrap();
        let poll = b.submit(Op::poll(source, Ready::READABLE));
        assert!(ready(b.end(poll)).contains(Ready::READABLE));
    }
    assert!(child.wait().unwrap().success());
}

/// gaio's affinity tests.
pub fn a_processor_that_does_not_exist_is_an_error<H: Harness>() {
    let mut b = H::bench();
    for cpu in [1023, 5000, usize::MAX] {
        let error = b.watcher.set_affinity(cpu).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{cpu}: {error}");
        let number = u32::try_from(cpu).unwrap_or(u32::MAX);
        assert_eq!(Reason::of(&error), Some(Reason::NoProcessor(number)));
        let error = Builder::new().affinity(cpu).build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{cpu}: {error}");
        let spawned = Builder::new().affinity(cpu).spawn("loop", |_| Ok(()));
        assert!(spawned.is_err());
    }
    std::thread::spawn(|| {
        let mut b = H::bench();
        b.watcher.set_affinity(0).expect("there is a first processor");
        b.watcher.close();
        let error = b.watcher.set_affinity(0).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    })
    .join()
    .unwrap();
}
