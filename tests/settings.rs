//! Settings and results that no completion shows: each test checks one from outside.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // what the kernel knows of a socket and of a file needs libc

mod common;

use std::os::fd::AsRawFd;
use std::time::Duration;

use common::*;
use windlass::fs::OpenOptions;
use windlass::net::ListenOptions;
use windlass::sim::Sim;
use windlass::{AlignedBuf, Completions, Done, Op, Watcher};

/// Each deadline counts in the class of its lateness: less than a microsecond, less than ten, and
/// so on.
#[test]
fn lateness_is_counted_where_it_belongs() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    // Time passes for all of a simulation.
    let mut other = Watcher::simulated(&sim);
    let mut done = Completions::new();
    for (late, bucket) in [
        (Duration::from_micros(50), 2),
        (Duration::from_millis(5), 4),
        (Duration::from_millis(50), 5),
    ] {
        let before = watcher.counters().lateness;
        watcher.submit(Op::timer(Duration::from_millis(1))).unwrap();
        assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
        let count = other.wait_timeout(&mut done, Duration::from_millis(1) + late).unwrap();
        assert_eq!(count, 0);
        wait_for(&mut watcher, &mut done, "a timer that is due");
        done.clear();
        let mut wanted = before;
        wanted[bucket] += 1;
        assert_eq!(watcher.counters().lateness, wanted, "late by {late:?}");
    }
}

/// A loop with `busy_poll` enters the kernel repeatedly; without it, once.
#[test]
fn a_busy_loop_asks_again_and_again() {
    fn waits<H: Harness>(builder: windlass::Builder) -> u64 {
        let mut b = H::bench_with(builder);
        let (here, _there) = b.pair();
        b.submit(Op::read(here));
        b.look();
        let before = b.watcher.counters().calls("wait");
        let timer = b.submit(Op::timer(Duration::from_millis(20)));
        expect_timer(b.end(timer));
        b.watcher.counters().calls("wait") - before
    }
    let busy = || Watcher::builder().busy_poll(Duration::from_millis(10));
    for (still, spinning) in [
        (waits::<Epoll>(Watcher::builder()), waits::<Epoll>(busy())),
        (waits::<Poll>(Watcher::builder()), waits::<Poll>(busy())),
    ] {
        assert!(still < 10 && spinning > 100, "{still} waits, {spinning} of a loop that spins");
    }
}

/// With timeouts in whole milliseconds the driver rounds up: a wait sleeps to its end.
#[test]
fn a_loop_without_nanoseconds_does_not_spin() {
    child::in_child("a_loop_without_nanoseconds_does_not_spin", || {
        system::deny(&[libc::SYS_epoll_pwait2, libc::SYS_timerfd_create], libc::ENOSYS);
        let mut b = Epoll::bench();
        b.pass(Duration::from_micros(100));
        let before = b.watcher.counters().calls("wait");
        for _ in 0..20 {
            b.pass(Duration::from_micros(1_700));
        }
        let waits = b.watcher.counters().calls("wait") - before;
        assert!(waits <= 60, "{waits} waits for 20 timers");
    });
}

/// The kernel's queue of connections has the requested length.
#[test]
fn a_listener_has_the_backlog_that_was_asked_for() {
    for backlog in [1, 17] {
        let mut b = Epoll::bench();
        let options = ListenOptions::default().backlog(backlog);
        let listener = b.watcher.listen_with(([127, 0, 0, 1], 0), options).unwrap();
        let fd = b.watcher.fd(listener).unwrap();
        // SAFETY: all zeros are a struct of integers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&info) as u32;
        let into = (&raw mut info).cast();
        // SAFETY: room for so many bytes, which lives across the call.
        let answer = unsafe {
            libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &mut len)
        };
        assert_eq!(answer, 0);
        // For a listener this field is the bound of its queue (the kernel's tcp_get_info).
        assert_eq!(info.tcpi_sacked, backlog);
    }
}

/// `Metadata::direct` equals the alignment from statx(2).
#[test]
fn a_stat_knows_what_direct_io_needs() {
    let directory = files::Directory::new();
    let path = directory.at("a");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // SAFETY: all zeros are a struct of integers.
    let mut known: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: an empty path, and room for one answer.
    let answer = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, &mut known) };
    assert_eq!(answer, 0);
    if known.stx_mask & libc::STATX_DIOALIGN == 0 || known.stx_dio_mem_align == 0 {
        return skip(Needs::Luck, format_args!("STATX_DIOALIGN of {}", path.display()));
    }
    for c in [Epoll::bench().run(Op::metadata(&path)), Uring::bench().run(Op::metadata(&path))] {
        let Ok(Done::Metadata(stat)) = c.result else { panic!("{c:?}") };
        let direct = stat.direct.expect("the system says it");
        let wanted = (known.stx_dio_mem_align, known.stx_dio_offset_align);
        assert_eq!((direct.memory, direct.offset), wanted);
    }
}

/// Requests on files are submitted with few system calls, the first of them at once;
/// `file_batch(1)` submits each alone.
#[test]
fn a_batch_of_file_requests_takes_one_call() {
    fn calls<H: Harness>(name: &str, most: Option<u32>) -> Option<u64> {
        const DIRECT: OpenOptions = OpenOptions::new().read(true).direct(true);
        let builder = Watcher::builder();
        let mut b = H::bench_with(match most {
            Some(most) => builder.file_batch(most),
            None => builder,
        });
        let directory = files::Directory::new();
        let path = directory.at("a");
        std::fs::write(&path, [7; 20 * 4096]).unwrap();
        let opened = b.run(Op::open(&path, DIRECT));
        if let Some(kind) = opened.error_kind() {
            skip(Needs::Direct, format_args!("O_DIRECT in {}: {kind:?}", path.display()));
            return None;
        }
        let file = b.watcher.attach(files::expect_opened(opened)).unwrap();
        let mut read = |i: u64| {
            b.submit(Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), i * 4096));
            b.watcher.counters().calls(name)
        };
        // The first opens the engine.
        let first = read(0);
        let last = (1..20).map(&mut read).last().unwrap();
        (0..20).for_each(|_| assert_eq!(expect_read(b.next()).len(), 4096));
        Some(last - first)
    }
    type Calls = fn(&str, Option<u32>) -> Option<u64>;
    let all: [(Calls, &str); 3] = [
        (calls::<files::EpollUring>, "io_uring_enter"),
        (calls::<files::EpollAio>, "io_submit"),
        (calls::<files::UringFiles>, "wait"),
    ];
    for (calls, name) in all {
        // 2 and 6 behind the first one; 11 wait for the end of the turn.
        for (most, wanted) in [(None, 2), (Some(1), 19), (Some(0), 19), (Some(4), 5)] {
            let Some(calls) = calls(name, most) else { return };
            assert_eq!(calls, wanted, "{name} with {most:?}");
        }
    }
}
