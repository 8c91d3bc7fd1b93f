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
use windlass::{AlignedBuf, Builder, Completions, Done, DriverKind, Limit, Op, Refusal, Watcher};

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

/// The numbers that a table of settings is tried with.
const NUMBERS: [u64; 4] = [0, 1, 1 << 32, u64::MAX];

/// A setting counts a number outside its range as the nearest in it.
#[test]
fn a_setting_outside_its_range_is_the_nearest_in_it() {
    type Set = fn(Builder, u64) -> Builder;
    let all: [Set; 15] = [
        |b, n| b.max_sources(n.try_into().unwrap_or(u32::MAX)),
        |b, n| b.max_operations(n.try_into().unwrap_or(u32::MAX)),
        |b, n| b.remote_queue(n as usize),
        |b, n| b.id_reserve(n as usize),
        |b, n| b.swap_limit(n as usize),
        |b, n| b.buffer_size(n.try_into().unwrap_or(u32::MAX)),
        |b, n| b.write_limit(n as usize),
        |b, n| b.source_budget(n as usize),
        |b, n| b.turn_budget(n as usize),
        |b, n| b.max_jobs(n as usize),
        |b, n| b.file_batch(n.try_into().unwrap_or(u32::MAX)),
        |b, n| b.registered_files(n.try_into().unwrap_or(u32::MAX)),
        // More would lock so much memory.
        |b, n| b.registered_bytes(n.min(1025) as usize),
        |b, n| b.events_per_wait(n as usize),
        |b, n| b.busy_poll(Duration::from_secs(n)),
    ];
    for number in NUMBERS {
        println!("{number}");
        let builder = || all.iter().fold(Watcher::builder(), |builder, set| set(builder, number));
        for mut b in [Epoll::bench_with(builder()), Uring::bench_with(builder())] {
            // Every setting has room for one job.
            let c = b.run(Op::run(|| 5));
            assert_eq!(files::expect_returned::<i32>(c), 5);
            b.expect_all_ended();
        }
    }
}

/// What a setting cannot be is an error that names the number that was asked for.
#[test]
fn a_setting_that_cannot_be_is_named() {
    let refused = |builder: Builder, number: u64| {
        for kind in [DriverKind::Auto, DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
            let error = builder.clone().driver(kind).build().expect_err("it cannot be");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
            let text = error.to_string();
            assert!(
                text.split([' ', ':', ',', '"']).any(|word| word == number.to_string()),
                "{text}"
            );
        }
    };
    for number in [0, 1025, u32::MAX as u64, 1 << 32, u64::MAX] {
        refused(Watcher::builder().threads(number as usize), number);
        let text = Watcher::builder().threads(number as usize).build().unwrap_err().to_string();
        assert!(text.contains("Builder::threads") && text.contains("1 to 1024"), "{text}");
        assert!(!text.contains("WINDLASS"), "{text}");
    }
    for number in [5000, u32::MAX as u64, 1 << 32, u64::MAX] {
        refused(Watcher::builder().affinity(number as usize), number);
        let error = Epoll::bench().watcher.set_affinity(number as usize).unwrap_err();
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
    for depth in [0, u32::MAX] {
        let error = windlass::fs::AioFiles::new(depth).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(&depth.to_string()), "{error}");
    }
}

/// The same of the environment.
#[test]
fn a_number_of_the_environment_that_cannot_be_is_named() {
    child::in_child("a_number_of_the_environment_that_cannot_be_is_named", || {
        for text in ["0", "1025", "4294967296", "18446744073709551616", "-1", "four", ""] {
            // SAFETY: this process has one thread that looks at its environment.
            unsafe { std::env::set_var("WINDLASS_THREADS", text) };
            let error = Watcher::builder().build().expect_err("it cannot be");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
            let told = error.to_string();
            assert!(told.contains(&format!("WINDLASS_THREADS: {text:?}")), "{told}");
            assert!(Watcher::builder().threads(1).build().is_ok());
        }
    });
}

/// A bound of more than four gigabytes is told as it is: it was cut to 32 bits.
#[test]
fn a_large_bound_is_told_as_it_is() {
    let count = 5 << 30;
    let full = Refusal::Full { limit: Limit::SwapBytes, count };
    assert!(full.to_string().contains("5368709120 bytes"), "{full}");
}
