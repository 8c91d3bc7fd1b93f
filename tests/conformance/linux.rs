//! What only Linux has: eventfd, timerfd, pidfd, threads that are bound to processors.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use windlass::{Builder, Completion, Done, Op, Ready, Refusal, SourceKind, Watcher};

use crate::common::files::expect_returned;
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
    // SAFETY: a fresh descriptor without another owner.
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
    // SAFETY: a fresh descriptor without another owner.
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
        // SAFETY: a fresh descriptor without another owner.
        let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let source = b.watcher.attach(process).unwrap();
        let poll = b.submit(Op::poll(source, Ready::READABLE));
        assert!(ready(b.end(poll)).contains(Ready::READABLE));
    }
    assert!(child.wait().unwrap().success());
}

/// The processors that the calling thread may use.
fn processors() -> Vec<usize> {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives across the call.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) }, 0);
    // SAFETY: below the size of the set.
    (0..1024).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The loop has one processor; its worker threads have all.
pub fn a_bound_loop_leaves_its_threads_all_processors<H: Harness>() {
    let all = processors();
    if all.len() < 2 {
        return skip(Needs::Luck, "a bound loop: there is one processor");
    }
    for &cpu in [all[0], all[all.len() - 1]].iter() {
        let (all, name) = (all.clone(), H::NAME.to_string());
        std::thread::spawn(move || {
            let mut b = H::bench_with(Watcher::builder().affinity(cpu).threads(2));
            assert_eq!(processors(), [cpu], "{name}");
            let jobs: Vec<_> = (0..6).map(|_| b.submit(Op::run(processors))).collect();
            for job in jobs {
                assert_eq!(expect_returned::<Vec<usize>>(b.end(job)), all, "{name}");
            }
            // Another processor, from a thread that is already bound.
            let other = all[usize::from(cpu == all[0])];
            let mut b = H::bench();
            b.watcher.set_affinity(other).unwrap();
            assert_eq!(processors(), [other], "{name}");
            assert_eq!(expect_returned::<Vec<usize>>(b.run(Op::run(processors))), all, "{name}");
        })
        .join()
        .unwrap();
        let spawned = Watcher::builder()
            .driver(H::NAME.parse().unwrap())
            .affinity(cpu)
            .spawn("loop", |_| Ok(processors()))
            .unwrap();
        assert_eq!(spawned.thread.join().unwrap().unwrap(), [cpu]);
    }
    assert_eq!(processors(), all, "this thread was not bound");
}

/// Stream protocols other than TCP: the driver queries the protocol, also of accepted sockets.
pub fn streams_of_other_protocols<H: Harness>() {
    const MPTCP: i32 = 262;
    const SCTP: i32 = 132;
    for (number, name, kind) in
        [(MPTCP, "MPTCP", SourceKind::Stream), (SCTP, "SCTP", SourceKind::OtherStream)]
    {
        let make = || {
            let (domain, stream) = (socket2::Domain::IPV4, socket2::Type::STREAM);
            socket2::Socket::new(domain, stream, Some(socket2::Protocol::from(number)))
        };
        let listener = match make() {
            Ok(socket) => socket,
            Err(error) => {
                skip(Needs::Luck, format_args!("streams of {name}: {error}"));
                continue;
            }
        };
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(9).unwrap();
        let at = listener.local_addr().unwrap().as_socket().unwrap();
        let mut b = H::bench();
        let listener = b.watcher.attach(OwnedFd::from(listener)).unwrap();
        let accept = b.submit(Op::accept(listener));
        let connect = b.submit(Op::connect_with(OwnedFd::from(make().unwrap()), at));
        let there = expect_accepted(b.end(accept));
        let here = expect_connected(b.end(connect));
        let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap());
        // Two messages that arrive before anything is read, with a short read between them.
        for _ in 0..20 {
            b.write(here, "first");
            b.write(here, "second");
            let mut got = Vec::new();
            while got.len() < 11 {
                got.extend(b.read(there));
            }
            assert_eq!(got, b"firstsecond", "{name}");
            b.cross(there, here, b"and back");
        }
        for end in [here, there] {
            assert_eq!(b.watcher.detach(end).unwrap().kind(), kind, "{name}");
        }
    }
}

/// gaio's affinity tests.
pub fn a_processor_that_does_not_exist_is_an_error<H: Harness>() {
    let mut b = H::bench();
    for cpu in [1023, 5000, usize::MAX] {
        let error = b.watcher.set_affinity(cpu).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{cpu}: {error}");
        assert_eq!(Refusal::of(&error), Some(Refusal::NoProcessor(cpu)));
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

/// A socket that asks for the sender's pidfd gets it beside the passed descriptors (Linux 6.5). It
/// is none of them, and stays open nowhere.
pub fn a_senders_pidfd_is_closed<H: Harness>() {
    let name = format!("{}::linux::a_senders_pidfd_is_closed", H::STAMP);
    child::in_child(&name, || {
        let mut b = H::bench();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let on = 1i32;
        // SAFETY: an option of this size.
        let answer = unsafe {
            let (on, len) = ((&raw const on).cast(), size_of::<i32>() as libc::socklen_t);
            libc::setsockopt(there.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSPIDFD, on, len)
        };
        if answer != 0 {
            return skip(Needs::Luck, std::io::Error::last_os_error());
        }
        let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap());
        let mut counts = Vec::new();
        for count in [0, 1, 253, 0, 1, 253] {
            let before = system::descriptors();
            let passed = (0..count).map(|_| eventfd()).collect();
            expect_written(b.run(Op::send_descriptors(here, "x", passed)));
            let c = b.run(Op::recv_descriptors(there));
            let Ok(Done::Descriptors { data, descriptors, lost: false, truncated: false }) =
                c.result
            else {
                panic!("{c:?}")
            };
            assert_eq!((&*data, descriptors.len()), (&b"x"[..], count));
            drop(descriptors);
            counts.push(system::descriptors() - before);
        }
        // The first wait opens what the driver needs.
        assert_eq!(counts[1..], [0; 5], "descriptors are left open");
    });
}
