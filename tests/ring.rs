//! The io_uring driver where the suite does not look: systems that deny it, full queues, and
//! watchers that go away with everything in flight.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // filters and limits need libc

mod common;

use std::io::{self, Write};
use std::time::Duration;

use common::files::*;
use common::system::{self, deny};
use common::*;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{AlignedBuf, Buf, Completions, DriverKind, ErrorKind, Op, Refusal, Watcher};

/// By name there is an error that tells the step and the reason; by default there is a driver.
fn denied(test: &str, number: i64, step: &str) {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EOPNOTSUPP] {
        let role = format!("{test} {errno}");
        if child::is_child(&role) {
            // The filter holds for the thread that sets it and those it starts: this one.
            deny(&[number], errno);
            let error = Watcher::builder().driver(DriverKind::Uring).build().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            let text = error.to_string();
            let reason = io::Error::from_raw_os_error(errno).to_string();
            assert!(text.contains(step) && text.contains(&reason), "{text}");
            let mut watcher = Watcher::new().expect("there is another driver");
            let nop = watcher.submit(Op::nop()).unwrap();
            let mut done = Completions::new();
            wait_for(&mut watcher, &mut done, "a nop on the other driver");
            assert_eq!(done.drain(..).next().unwrap().ticket(), nop);
            println!("denied as it should be");
            return;
        }
    }
    if std::env::var_os("WINDLASS_TEST_CHILD").is_some() {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EOPNOTSUPP] {
        let (ended, text) = child::finish(child::spawn(test, &format!("{test} {errno}")));
        assert!(ended && text.contains("denied as it should be"), "errno {errno}: {text}");
    }
}

#[test]
fn a_denied_setup_is_told() {
    denied("a_denied_setup_is_told", libc::SYS_io_uring_setup, "io_uring_setup(2)");
}

#[test]
fn a_denied_register_is_told() {
    denied("a_denied_register_is_told", libc::SYS_io_uring_register, "io_uring_register(2)");
}

#[test]
fn a_denied_enter_is_told() {
    denied("a_denied_enter_is_told", libc::SYS_io_uring_enter, "io_uring_enter(2)");
}

/// A shortage of the system is an error that names the failed call, not a missing driver.
#[test]
fn a_shortage_of_descriptors_is_an_error() {
    child::in_child("a_shortage_of_descriptors_is_an_error", || {
        // The code below opens no descriptor for the first time.
        drop(Watcher::builder().driver(DriverKind::Uring).build().unwrap());
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for one limit.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        for (driver, files, calls) in [
            (
                DriverKind::Uring,
                FileBackend::Auto,
                &["io_uring_setup(2)", "epoll_create1(2)", "eventfd(2)"][..],
            ),
            (
                DriverKind::Epoll,
                FileBackend::Uring,
                &["epoll_create1(2)", "eventfd(2)", "io_uring_setup(2)"],
            ),
            (DriverKind::Poll, FileBackend::Auto, &["eventfd(2)"]),
        ] {
            let build = || Watcher::builder().driver(driver).file_backend(files).build();
            let mut met = std::collections::BTreeSet::new();
            for numbers in 3.. {
                limit.rlim_cur = numbers;
                // SAFETY: the limit lives across the call.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
                let Err(error) = build() else { break };
                assert_eq!(Refusal::of(&error), Some(Refusal::Os(libc::EMFILE)), "{error}");
                let text = error.to_string();
                let call = calls.iter().find(|call| text.starts_with(*call));
                met.insert(*call.unwrap_or_else(|| panic!("{driver:?}: {text}")));
            }
            assert_eq!(met.len(), calls.len(), "{driver:?}: {met:?}");
        }
    });
}

/// A shortage of memory, and a kernel without a probe.
#[test]
fn a_setup_that_fails_names_its_call() {
    child::in_child("a_setup_that_fails_names_its_call", || {
        let build = || Watcher::builder().driver(DriverKind::Uring).build().unwrap_err();
        deny(&[libc::SYS_io_uring_register], libc::EINVAL);
        let error = build();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("io_uring_register(2) of a probe"), "{error}");
        deny(&[libc::SYS_io_uring_register], libc::ENOMEM);
        let error = build();
        assert_eq!(Refusal::of(&error), Some(Refusal::Os(libc::ENOMEM)), "{error}");
        assert!(error.to_string().contains("io_uring_register(2) of a probe"), "{error}");
        deny(&[libc::SYS_io_uring_setup], libc::ENOMEM);
        let error = build();
        assert_eq!(Refusal::of(&error), Some(Refusal::Os(libc::ENOMEM)), "{error}");
        assert!(error.to_string().starts_with("io_uring_setup(2)"), "{error}");
        let error = Watcher::builder().file_backend(FileBackend::Uring).build().unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Os(libc::ENOMEM)), "{error}");
        assert!(error.to_string().starts_with("io_uring_setup(2)"), "{error}");
    });
}

/// From here on this process may lock so many bytes of memory. The limit does not hold for root, so
/// the process becomes another user.
fn lock_at_most(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit lives across the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    // SAFETY: a call without memory.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    }
}

/// With little memory that may be locked the ring is smaller (Linux charges for it before 5.12 and
/// since 6.14).
#[test]
fn little_locked_memory_is_enough() {
    child::in_child("little_locked_memory_is_enough", || {
        lock_at_most(64 << 10);
        let mut b = Uring::bench();
        let (here, there) = b.pair();
        b.cross(here, there, b"with little memory");
    });
}

/// The least that a wait can take, however it is asked for.
#[test]
fn no_events_at_all_are_one_event() {
    let mut b = Uring::bench_with(Watcher::builder().events_per_wait(0));
    let (here, there) = b.pair();
    b.cross(here, there, b"one by one");
    let reads = [b.submit(Op::read(here)), b.submit(Op::read(there))];
    b.look();
    assert!(b.watcher.cancel(reads[0]));
    assert!(b.watcher.abort(there));
    for (read, kind) in reads.into_iter().zip([ErrorKind::Cancelled, ErrorKind::Aborted]) {
        assert_eq!(b.end(read).error_kind(), Some(kind));
    }
}

/// A cancel asks the kernel for the operation, and for nothing else.
#[test]
fn a_cancel_is_one_entry() {
    let mut b = Uring::bench();
    let (here, there) = b.pair();
    let read = b.submit(Op::read(here));
    b.look();
    let cancels = |b: &Bench<_>| {
        let rows = b.watcher.explain().rows;
        rows.iter().find(|row| row.operation == "cancel").expect("a row").count
    };
    let before = cancels(&b);
    assert!(b.watcher.cancel(read));
    assert_eq!(b.end(read).error_kind(), Some(ErrorKind::Cancelled));
    assert_eq!(cancels(&b) - before, 1);
    b.watcher.abort(there);
}

/// The embedding loop sleeps when a look has brought nothing and nothing is due: what that look has
/// begun must be in the kernel. Here it is a read that was put off because much was read before it.
#[test]
fn what_a_look_has_begun_wakes_the_loop_around_it() {
    const MUCH: usize = 64 << 10;
    let mut b = Uring::bench_with(Watcher::builder().quirks("whole-buffers=on"));
    let (here, mut there) = system::tcp_pair();
    there.write_all(&pattern(MUCH, 1)).unwrap();
    until("all bytes have arrived", || here.peek(&mut vec![0; MUCH]).unwrap() == MUCH);
    let here = b.watcher.attach(here).unwrap();
    let mut done = Completions::new();
    // The descriptor's first signal says nothing of what comes.
    until("the descriptor is quiet", || {
        b.watcher.try_wait(&mut done).unwrap();
        !system::wait_readable(b.watcher.pollable().unwrap(), Some(Duration::ZERO))
    });
    b.watcher.submit(Op::read(here)).unwrap();
    assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 1);
    assert_eq!(expect_read(done.drain(..).next().unwrap()).len(), MUCH);
    b.watcher.submit(Op::read_into(here, room(100))).unwrap();
    assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
    assert_eq!(b.watcher.next_timeout(), None, "nothing is due");
    there.write_all(b"hello").unwrap();
    assert!(system::wait_readable(b.watcher.pollable().unwrap(), Some(BOUND)), "it sleeps on");
    until("the read that woke the loop", || b.watcher.try_wait(&mut done).unwrap() > 0);
    assert_eq!(&*expect_read(done.drain(..).next().unwrap()), b"hello");
}

/// A look that finds answers at hand need not ask the kernel, which may have more: it tells of the
/// first only. Here the one at hand is another thread's wake, and the one behind it a read's.
#[test]
fn what_is_behind_answers_at_hand_wakes_the_loop_around_it() {
    let directory = Directory::new();
    let mut b = Uring::bench_with(Watcher::builder().file_backend(FileBackend::Uring));
    let file = b.make_file(directory.at("a"));
    let (here, mut there) = system::tcp_pair();
    let here = b.watcher.attach(here).unwrap();
    let submitter = b.watcher.submitter();
    let mut done = Completions::new();
    for round in 0..20 {
        b.watcher.submit(Op::read(here).token(1)).unwrap();
        until("nothing more to take", || b.watcher.try_wait(&mut done).unwrap() == 0);
        until("the descriptor is quiet", || {
            assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
            !system::wait_readable(b.watcher.pollable().unwrap(), Some(Duration::ZERO))
        });
        std::thread::scope(|scope| {
            scope.spawn(|| submitter.post(2, 0).unwrap());
        });
        // This enters the kernel, which answers the wake; then the read has its bytes.
        b.watcher.submit(Op::sync_all(file).token(3)).unwrap();
        there.write_all(b"x").unwrap();
        let mut ended = Vec::new();
        while ended.len() < 3 {
            if b.watcher.try_wait(&mut done).unwrap() == 0 {
                assert_eq!(b.watcher.next_timeout(), None, "nothing is due");
                let fd = b.watcher.pollable().unwrap();
                assert!(
                    system::wait_readable(fd, Some(Duration::from_secs(5))),
                    "round {round}: {ended:?} came"
                );
            }
            ended.extend(done.drain(..).map(|c| c.token));
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 2, 3]);
    }
}

/// Ten times as many operations as the ring has entries, at once: nothing is lost.
#[test]
fn ten_times_the_ring() {
    const PAIRS: usize = 1024;
    const EACH: usize = 10;
    let mut b = Uring::bench();
    let pairs = b.pairs(PAIRS);
    let mut reads = 0;
    for &(_, there) in &pairs {
        for _ in 0..EACH {
            b.submit(Op::read_exact(there, room(8), 8));
            reads += 1;
        }
    }
    for &(here, _) in &pairs {
        for i in 0..EACH as u64 {
            b.submit(Op::write(here, i.to_ne_bytes().to_vec()));
        }
    }
    let mut next = std::collections::HashMap::new();
    let mut written = 0;
    while reads > 0 || written < PAIRS * EACH {
        let c = b.next();
        match c.result.unwrap() {
            windlass::Done::Read(data) => {
                let next = next.entry(c.source).or_insert(0u64);
                assert_eq!(*data, next.to_ne_bytes(), "in its order");
                *next += 1;
                reads -= 1;
            }
            windlass::Done::Written { bytes, .. } => {
                assert_eq!(bytes, 8);
                written += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // And as many cancels, of reads that nothing comes for.
    let tickets: Vec<_> =
        pairs.iter().flat_map(|&(here, _)| [here; EACH]).map(|s| b.submit(Op::read(s))).collect();
    b.look();
    for &(here, _) in &pairs {
        assert_eq!(b.watcher.cancel_all(here), EACH);
    }
    for ticket in tickets {
        assert_eq!(b.end(ticket).error_kind(), Some(ErrorKind::Cancelled));
    }
    b.expect_all_ended();
}

/// A watcher that goes away with everything in flight gives everything back, again and again.
#[test]
fn watchers_go_with_everything_in_flight() {
    child::in_child("watchers_go_with_everything_in_flight", || {
        let rounds: usize =
            std::env::var("WINDLASS_DROPS").map_or(300, |text| text.parse().expect("a number"));
        drop(Uring::bench());
        let before = system::descriptors();
        for round in 0..rounds {
            let mut watcher = Watcher::builder().driver(DriverKind::Uring).build().unwrap();
            for i in 0..4 {
                let (a, b) = system::tcp_pair();
                let (a, b) = (watcher.attach(a).unwrap(), watcher.attach(b).unwrap());
                watcher.submit(Op::read_into(a, room(100))).unwrap();
                watcher.submit(Op::read(b)).unwrap();
                watcher.submit(Op::write(a, pattern(1 << 20, i))).unwrap();
                watcher.submit(Op::write(a, "behind")).unwrap();
                watcher.submit(Op::poll(b, windlass::Ready::PRIORITY)).unwrap();
            }
            watcher.submit(Op::timer(Duration::from_secs(3600))).unwrap();
            if round % 2 == 0 {
                let _ = watcher.try_wait(&mut Completions::new()).unwrap();
            }
        }
        assert_eq!(system::descriptors(), before, "descriptors leaked");
    });
}

/// What ends after a watcher was closed, and was not asked for, goes with the watcher, however
/// little one look takes.
#[test]
fn what_ends_after_the_close_goes_with_the_watcher() {
    child::in_child("what_ends_after_the_close_goes_with_the_watcher", || {
        let mut b = Uring::bench_with(Watcher::builder().events_per_wait(1));
        let ear = system::Ear::of_the_only("io_uring");
        let bytes = std::sync::Arc::<[u8]>::from(vec![1; 8 << 20]);
        let pairs = b.pairs(8);
        for &(here, _) in &pairs {
            b.submit(Op::write(here, Buf::from(bytes.clone())));
        }
        b.look();
        ear.shut();
        b.watcher.close();
        assert_eq!(std::sync::Arc::strong_count(&bytes), 9, "the kernel has them");
        ear.open();
        drop(b);
        assert_eq!(std::sync::Arc::strong_count(&bytes), 1, "a buffer is left");
    });
}

/// C5: the kernel keeps its buffers even if a job's closure panics while the watcher is dropped.
#[test]
fn a_loud_closure_frees_nothing_that_the_kernel_has() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("the Drop of what is the program's");
        }
    }
    child::in_child("a_loud_closure_frees_nothing_that_the_kernel_has", || {
        let mut b = Uring::bench_with(Watcher::builder().threads(1));
        let ear = system::Ear::of_the_only("io_uring");
        let bytes = std::sync::Arc::<[u8]>::from(vec![1; 8 << 20]);
        let (here, there) = b.pair();
        b.submit(Op::write(here, Buf::from(bytes.clone())));
        // The kernel gets the write when the socket has room again.
        let read = b.submit(Op::read_exact(there, room(2 << 20), 2 << 20));
        expect_read(b.end(read));
        let (_held, gate) = hold(&mut b);
        for _ in 0..2 {
            let loud = Loud;
            b.submit(Op::run(move || drop(loud)));
        }
        ear.shut();
        let before = (windlass::driver::leaked_buffers(), windlass::driver::panicked_drops());
        drop(b);
        drop(gate);
        assert_eq!(windlass::driver::leaked_buffers(), before.0 + 1);
        assert_eq!(std::sync::Arc::strong_count(&bytes), 2, "the kernel still reads it");
        assert!(windlass::driver::panicked_drops() > before.1, "none was dropped before it ran");
    });
}

/// Has the only ring of the process say that it has lost a completion, as a kernel does that has no
/// memory to keep one.
fn lose_one() {
    use std::os::fd::{FromRawFd, OwnedFd};
    // A second ring shows the offset of the counter: `cq_off` of struct io_uring_params.
    let mut params = [0u32; 30];
    // SAFETY: room for the parameters.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, params.as_mut_ptr()) };
    assert!(fd >= 0, "a ring: {}", io::Error::last_os_error());
    // SAFETY: fresh.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    let is_it = |fd: &i32| {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|link| link.to_string_lossy().contains("io_uring"))
    };
    let number = (0..100).find(is_it).expect("it is among the first");
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of a ring that is open, at IORING_OFF_CQ_RING.
    let ring =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, shared, number, 0x800_0000) };
    assert_ne!(ring, libc::MAP_FAILED);
    // SAFETY: one of the numbers at the start of the mapping.
    let counter = unsafe { ring.cast::<u8>().add(params[24] as usize) };
    // SAFETY: it is aligned, and the mapping stays.
    let counter = unsafe { std::sync::atomic::AtomicU32::from_ptr(counter.cast()) };
    counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

/// A kernel without memory loses a completion. Nobody knows which, so no answer can be used any
/// more: every wait says so, and the drop leaves to the kernel what it may still use.
#[test]
fn a_lost_completion_is_an_error_of_every_wait() {
    child::in_child("a_lost_completion_is_an_error_of_every_wait", || {
        let mut b = Uring::bench();
        let (here, there) = b.pair();
        b.submit(Op::read_into(there, room(500)));
        b.submit(Op::read_into(here, room(500)));
        b.look();
        lose_one();
        let mut done = Completions::new();
        b.submit(Op::nop());
        for _ in 0..3 {
            let error = b.watcher.wait_at_least(&mut done, 2, BOUND).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADR), "it does not sleep");
        }
        let before = windlass::driver::leaked_buffers();
        drop(b);
        assert_eq!(windlass::driver::leaked_buffers(), before + 2, "the kernel may still use them");
    });
}

/// Bytes and the end of the file that come together are both told.
#[test]
fn the_end_that_comes_with_the_last_bytes_is_told() {
    let mut b = Uring::bench();
    for round in 0..100 {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let here = b.watcher.attach(here).unwrap();
        let read = b.submit(Op::read(here).multishot());
        b.look();
        io::Write::write_all(&mut &there, b"last").unwrap();
        if round % 2 == 0 {
            io::Write::write_all(&mut &there, b" words").unwrap();
        }
        drop(there);
        let mut got = Vec::new();
        loop {
            let c = b.next();
            assert_eq!(c.ticket(), read);
            let more = c.has_more();
            got.extend_from_slice(&expect_read(c));
            if !more {
                break;
            }
        }
        assert_eq!(got, if round % 2 == 0 { &b"last words"[..] } else { b"last" });
        b.watcher.abort(here);
    }
}

/// A multishot receive that has taken 32 pieces in a row is begun anew by the kernel (Linux 6.18),
/// and that one took the rest and did not look for what stands behind it: the end of a Unix socket,
/// the reset of a TCP connection.
fn what_stands_behind_many_pieces(pair: impl Fn() -> (windlass::Handle, Box<dyn io::Write>)) {
    const PIECE: usize = 64;
    // The kernel is given ever more buffers; then it has a hundred.
    let builder = Watcher::builder().buffer_size(PIECE as u32).swap_limit(PIECE << 10);
    let mut b = Uring::bench_with(builder);
    for pieces in (1..200).chain([100; 20]) {
        let (here, mut there) = pair();
        let here = b.watcher.attach(here).unwrap();
        let sent = pattern(pieces * PIECE, pieces as u64);
        there.write_all(&sent).unwrap();
        drop(there);
        let read = b.submit(Op::read(here).multishot());
        let mut got = Vec::new();
        loop {
            let c = b.next();
            assert_eq!(c.ticket(), read);
            let more = c.has_more();
            match c.result {
                Ok(windlass::Done::Read(data)) => got.extend_from_slice(&data),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET)),
                other => panic!("{other:?}"),
            }
            if !more {
                break;
            }
        }
        expect_same(&got, &sent);
        b.watcher.abort(here);
    }
}

#[test]
fn the_end_behind_many_pieces_is_told() {
    what_stands_behind_many_pieces(|| {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        (here.into(), Box::new(there))
    });
}

#[test]
fn the_reset_behind_many_pieces_is_told() {
    what_stands_behind_many_pieces(|| {
        let (here, there) = system::tcp_pair();
        socket2::SockRef::from(&there).set_linger(Some(Duration::ZERO)).unwrap();
        (here.into(), Box::new(there))
    });
}

/// What the program says of quirks is obeyed, explained, and told where it makes no sense.
#[test]
fn quirks_are_obeyed_and_explained() {
    let build = |list: &str| Watcher::builder().driver(DriverKind::Uring).quirks(list).build();
    for list in ["unix-multishot=perhaps", "no-such-quirk=on", "whole-buffers"] {
        let error = build(list).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(list) && text.contains("Builder::quirks"), "{text}");
    }
    let shown = |list: &str| {
        let rows = build(list).unwrap().explain().rows;
        let quirks = rows.into_iter().filter_map(|row| {
            let name = row.mechanism.strip_prefix("quirk ")?.to_owned();
            assert!(row.reason.contains("Builder::quirks"), "{row:?}");
            Some(name)
        });
        quirks.collect::<Vec<_>>()
    };
    let names = [
        "long-multishot",
        "unix-multishot",
        "unix-sends",
        "whole-buffers",
        "arm-files",
        "power-files",
        "frozen-writes",
    ];
    assert!(shown(&names.map(|name| format!("{name}=off")).join(",")).is_empty());
    assert_eq!(shown(&names.map(|name| format!("{name}=on")).join(",")), names);
}

/// The environment variable works, too; a driver without a ring ignores it.
#[test]
fn quirks_are_named_by_the_environment() {
    if child::is_child("quirks") {
        let error = Watcher::builder().driver(DriverKind::Uring).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("WINDLASS_QUIRKS: \"wrong=on\""), "{error}");
        let epoll = || Watcher::builder().driver(DriverKind::Epoll);
        let error = epoll().build().unwrap_err();
        assert!(error.to_string().contains("WINDLASS_QUIRKS: \"wrong=on\""), "{error}");
        epoll().file_backend(FileBackend::Pool).build().unwrap();
        Watcher::builder().driver(DriverKind::Poll).build().unwrap();
        println!("refused as it should be");
    } else if std::env::var_os("WINDLASS_TEST_CHILD").is_none() {
        let mut command = child::command("quirks_are_named_by_the_environment", "quirks");
        let child = command.env("WINDLASS_QUIRKS", "wrong=on").spawn().unwrap();
        let (ended, text) = child::finish(child);
        assert!(ended && text.contains("refused as it should be"), "{text}");
    }
}

/// Where the kernel does not take buffers piece by piece, reads wait for a poll and do as well.
#[test]
fn reads_without_shared_buffers() {
    let mut b = Uring::bench_with(Watcher::builder().quirks("whole-buffers=on"));
    let (here, there) = b.pair();
    b.expect_alive(here, there);
    let refused = |watcher: &Watcher| {
        let rows = watcher.explain().rows;
        rows.iter().find(|row| row.mechanism == "quirk whole-buffers").expect("a row").count
    };
    let before = refused(&b.watcher);
    let read = b.submit(Op::read(there).multishot());
    assert_eq!(refused(&b.watcher), before + 1, "the ring is asked once for a read");
    b.look();
    let sent = pattern(1 << 20, 5);
    let write = b.submit(Op::write(here, sent.clone()));
    let shutdown = b.submit(Op::shutdown(here));
    let mut got = Vec::new();
    loop {
        let c = b.end(read);
        let more = c.has_more();
        got.extend_from_slice(&expect_read(c));
        if !more {
            break;
        }
    }
    expect_same(&got, &sent);
    expect_written(b.end(write));
    expect_shutdown(b.end(shutdown));
    let rows = b.watcher.explain().rows;
    assert!(rows.iter().all(|row| row.mechanism != "RECV"), "{rows:?}");
}

/// The loop itself moves bulk data, unless the read is multishot. Small messages go by the ring
/// again.
#[test]
fn bulk_data_goes_by_the_loop() {
    const BYTES: usize = 4 << 20;
    for multishot in [false, true] {
        let mut b = Uring::bench_with(Watcher::builder().buffer_size(16 << 10));
        let (here, there) = b.pair();
        let sent = pattern(BYTES, 5);
        let write = b.submit(Op::write(here, sent.clone()));
        let echo = b.submit(Op::read(here).multishot());
        let read = |b: &mut Bench<windlass::driver::Auto>| {
            let op = Op::read(there);
            b.submit(if multishot { op.multishot() } else { op })
        };
        let (mut ticket, mut got) = (read(&mut b), 0);
        while got < BYTES {
            let data = expect_read(b.end(ticket));
            got += data.len();
            b.write(there, data);
            if !multishot {
                ticket = read(&mut b);
            }
        }
        expect_written(b.end(write));
        let mut heard = Vec::new();
        while heard.len() < BYTES {
            heard.extend_from_slice(&expect_read(b.end(echo)));
        }
        expect_same(&heard, &sent);
        let calls = |b: &Bench<windlass::driver::Auto>| {
            ["recv", "send"].map(|call| b.watcher.counters().calls(call))
        };
        let bulk = calls(&b);
        assert!(bulk.iter().all(|&count| (count > 10) != multishot), "{bulk:?}");
        if !multishot {
            b.write(here, "small");
            expect_same(&expect_read(b.end(ticket)), b"small");
            let before = calls(&b);
            b.write(here, "small");
            let small = read(&mut b);
            expect_same(&expect_read(b.end(small)), b"small");
            assert_eq!(calls(&b), before, "small messages go by the ring");
        }
    }
}

/// Where the kernel is not to be trusted with files, threads do all of the work, and that is told.
#[test]
fn files_that_the_ring_is_not_given() {
    for name in ["arm-files", "power-files"] {
        let builder =
            Watcher::builder().quirks(format!("{name}=on")).file_backend(FileBackend::Uring);
        let mut b = Uring::bench_with(builder);
        let directory = Directory::new();
        let c = b.run(Op::open(
            directory.at("a"),
            OpenOptions::new().read(true).write(true).create(true).direct(true),
        ));
        let file = b.watcher.attach(expect_opened(c)).unwrap();
        let page = AlignedBuf::from_slice(&[7; 4096], 4096);
        expect_written(b.run(Op::write_at(file, page, 0)));
        let list = Buf::list([AlignedBuf::with_capacity(4096, 4096)]);
        expect_same(&expect_read(b.run(Op::read_at(file, list, 0))).into_vec(), &[7; 4096]);
        expect_finished(b.run(Op::sync_data(file)));
        let rows = b.watcher.explain().rows;
        let count = |mechanism: &str| {
            rows.iter().find(|row| row.mechanism == mechanism).expect("a row").count
        };
        assert_eq!((count(&format!("quirk {name}")), count("the kernel")), (3, 0), "{rows:?}");
        b.expect_all_ended();
    }
}

/// The rows of `explain` for registrations: the mechanism, the reason, how often.
fn registered(watcher: &Watcher, what: &str) -> (String, String, u64) {
    let rows = watcher.explain().rows;
    let row = rows.into_iter().find(|row| row.operation == what).expect("a row of it");
    (row.mechanism, row.reason, row.count)
}

/// A file of a few blocks, each with its number in every byte, open so that the page cache is
/// bypassed; `None` where the file system cannot.
fn direct_file(name: &str) -> Option<(std::path::PathBuf, std::fs::File)> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}", std::process::id()));
    let bytes: Vec<u8> = (0..16 * 4096).map(|i| (i / 4096) as u8 + 1).collect();
    std::fs::write(&path, bytes).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    match file {
        Ok(file) => Some((path, file)),
        Err(error) => {
            skip(Needs::Direct, format_args!("O_DIRECT on {}: {error}", path.display()));
            None
        }
    }
}

fn read_block<D: windlass::driver::Driver>(
    b: &mut Bench<D>,
    file: windlass::Source,
    buf: windlass::AlignedBuf,
    block: u64,
) {
    let read = b.submit(Op::read_at(file, buf, block * 4096));
    assert_eq!(*expect_read(b.end(read)), [block as u8 + 1; 4096]);
}

/// Files get slots while there are some, memory of the region is read and written as registered,
/// other memory as ever; all of it comes back.
#[test]
fn registered_files_and_buffers_are_used() {
    let Some((path, file)) = direct_file("registered") else { return };
    let builder = Watcher::builder().registered_files(1).registered_bytes(3 * 4096);
    let mut b = Uring::bench_with(builder);
    let second = b.watcher.attach(file.try_clone().unwrap()).unwrap();
    let first = b.watcher.attach(file).unwrap();
    let mut bufs: Vec<_> = (0..4).map(|_| b.watcher.aligned_buf(100)).collect();
    let inside: Vec<_> = bufs.iter().map(|buf| buf.is_registered()).collect();
    assert_eq!(inside, [true, true, true, false], "the region has room for three");
    let mut own = bufs.pop().unwrap();
    read_block(&mut b, first, bufs.pop().unwrap(), 3);
    assert_eq!(registered(&b.watcher, "registered files").2, 1);
    assert_eq!(registered(&b.watcher, "registered buffers").2, 1);
    own.resize(4096, 77);
    let write = b.submit(Op::write_at(first, own, 5 * 4096));
    let own = expect_written(b.end(write)).into_aligned().unwrap();
    assert_eq!(registered(&b.watcher, "registered buffers").2, 1, "memory of its own");
    // There is one slot.
    read_block(&mut b, second, own, 4);
    assert_eq!(registered(&b.watcher, "registered files").2, 2);
    let mut piece = bufs.pop().unwrap();
    piece.resize(4096, 9);
    let write = b.submit(Op::write_at(second, piece, 8 * 4096));
    assert!(expect_written(b.end(write)).into_aligned().unwrap().is_registered());
    assert_eq!(registered(&b.watcher, "registered buffers").2, 2);
    // A file that goes leaves its slot to the next one.
    assert!(b.watcher.abort(first));
    b.look();
    read_block(&mut b, second, bufs.pop().unwrap(), 8);
    assert_eq!(registered(&b.watcher, "registered files").2, 3);
    // A buffer outlives the watcher, and is foreign memory to the next watcher.
    let kept = b.watcher.aligned_buf(4096);
    assert!(kept.is_registered());
    drop(b);
    let mut b = Uring::bench();
    let file = b.watcher.attach(std::fs::File::open(&path).unwrap()).unwrap();
    read_block(&mut b, file, kept, 2);
    std::fs::remove_file(path).unwrap();
}

/// Locks a file without waiting; false if another process has the lock.
fn lock(file: &std::fs::File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: no memory is passed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// A slot keeps a file open: it goes with the descriptor, whether that is closed or given back.
#[test]
fn a_slot_does_not_keep_a_file() {
    let Some((path, _)) = direct_file("slots") else { return };
    for gives_back in [false, true] {
        let mut b = Uring::bench_with(Watcher::builder().registered_files(4));
        let Some((_, file)) = direct_file("slots") else { return };
        let locks = std::fs::File::open(&path).unwrap();
        assert!(lock(&file));
        let source = b.watcher.attach(file).unwrap();
        let buf = b.watcher.aligned_buf(4096);
        read_block(&mut b, source, buf, 1);
        assert_eq!(registered(&b.watcher, "registered files").2, 1);
        assert!(!lock(&locks), "the lock is the open file's");
        if gives_back {
            drop(b.watcher.detach(source).unwrap());
        } else {
            assert!(b.watcher.abort(source));
        }
        // A child that another test forks has one until its exec.
        until("the last descriptor of the file is closed", || lock(&locks));
    }
    std::fs::remove_file(path).unwrap();
}

/// Where memory must not be locked, or there are fewer descriptors than slots, the ring works
/// without, and says why.
#[test]
fn what_cannot_be_registered_is_explained() {
    child::in_child("what_cannot_be_registered_is_explained", || {
        let Some((path, file)) = direct_file("refused") else { return };
        std::fs::remove_file(path).unwrap();
        lock_at_most(1 << 20);
        let builder = Watcher::builder().registered_files(1 << 20).registered_bytes(64 << 20);
        let mut b = Uring::bench_with(builder);
        let (mechanism, reason, _) = registered(&b.watcher, "registered buffers");
        assert_eq!(mechanism, "none");
        assert!(reason.contains("RLIMIT_MEMLOCK"), "{reason}");
        let (mechanism, reason, _) = registered(&b.watcher, "registered files");
        assert_eq!(mechanism, "none");
        assert!(reason.contains("RLIMIT_NOFILE"), "{reason}");
        let file = b.watcher.attach(file).unwrap();
        let buf = b.watcher.aligned_buf(4096);
        assert!(!buf.is_registered());
        read_block(&mut b, file, buf, 6);
        // As much as may be locked can be had.
        let b = Uring::bench_with(Watcher::builder().registered_bytes(16 << 10));
        assert_ne!(registered(&b.watcher, "registered buffers").0, "none");
    });
}

/// What is not asked for is not there; a driver without a ring says that it has no effect.
#[test]
fn registering_is_asked_for() {
    let rows = Uring::bench().watcher.explain().rows;
    assert!(rows.iter().all(|row| !row.operation.starts_with("registered")), "{rows:?}");
    for kind in [DriverKind::Epoll, DriverKind::Poll] {
        let mut watcher = Watcher::builder()
            .driver(kind)
            .registered_files(8)
            .registered_bytes(1 << 20)
            .build()
            .unwrap();
        let (mechanism, reason, _) = registered(&watcher, "registered files, buffers");
        assert!(mechanism == "none" && reason.contains("without effect"), "{reason}");
        assert!(!watcher.aligned_buf(1).is_registered());
    }
}

/// A write of one buffer is a send; a list is one message.
#[test]
fn writes_are_explained_by_their_call() {
    let mut b = Uring::bench();
    let (here, _there) = system::tcp_pair();
    let here = b.watcher.attach(here).unwrap();
    let write = b.submit(Op::write(here, "plain"));
    expect_written(b.end(write));
    let write = b.submit(Op::write_vectored(here, vec!["a ".into(), "list".into()]));
    expect_written(b.end(write));
    let rows = b.watcher.explain().rows;
    let count = |mechanism: &str| rows.iter().find(|row| row.mechanism == mechanism).unwrap().count;
    assert_eq!((count("SEND"), count("SENDMSG")), (1, 1));
}

/// Messages that are short against a buffer are not cut by its end: one that waits for the whole of
/// it to be answered would wait for a delayed acknowledgement.
#[test]
fn short_messages_are_not_cut() {
    const LEN: usize = 100;
    let mut b = Uring::bench_with(Watcher::builder().buffer_size(4096));
    let rows = b.watcher.explain().rows;
    if !rows.iter().any(|row| row.reason.contains("the last sixteenth")) {
        let why = "this kernel does not leave the rest of a buffer (Linux 7.1, stable 6.12)";
        return skip(Needs::Luck, why);
    }
    for multishot in [false, true] {
        let (here, there) = b.pair();
        let mut read = Op::read(there);
        if multishot {
            read = read.multishot();
        }
        let mut read = b.submit(read);
        for i in 0..1000 {
            let sent = pattern(LEN, i);
            let write = b.submit(Op::write(here, sent.clone()));
            let c = b.end(read);
            let more = c.has_more();
            expect_same(&expect_read(c), &sent);
            expect_written(b.end(write));
            if !more {
                let again = Op::read(there);
                read = b.submit(if multishot { again.multishot() } else { again });
            }
        }
        b.watcher.abort(there);
    }
}
