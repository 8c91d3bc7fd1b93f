//! A ring for files beside epoll: denied later, excluded by a quirk, or impossible to make.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // filters need libc

mod common;

use std::io;

use common::files::*;
use common::system::deny;
use common::*;
use windlass::driver::Auto;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{AlignedBuf, Builder, DriverKind, Op, Watcher};

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);
const RING: &str = "direct reads, writes; syncs; uncached reads";
const AIO: &str = "direct reads; syncs";

fn epoll() -> Builder {
    Watcher::builder().driver(DriverKind::Epoll)
}

fn bench(builder: Builder) -> Bench<Auto> {
    Bench::new(builder.build().expect("a watcher"), Epoll::address())
}

fn page() -> AlignedBuf {
    AlignedBuf::with_capacity(4096, 4096)
}

/// The mechanism, reason and count of the first row with this operation.
fn row(b: &Bench<Auto>, operation: &str) -> (String, String, u64) {
    let rows = b.watcher.explain().rows;
    let row = rows.into_iter().find(|row| row.operation == operation).expect("there is a row");
    (row.mechanism, row.reason, row.count)
}

/// The number of requests that the kernel handed back.
fn handed_back(b: &Bench<Auto>) -> u64 {
    let rows = b.watcher.explain().rows;
    let row = rows.iter().find(|row| row.mechanism == "the kernel, then threads");
    row.expect("there is a row").count
}

/// Runs the test again in a process of its own for each role, which `body` gets.
fn in_roles<R: std::fmt::Debug>(name: &str, roles: impl IntoIterator<Item = R>, body: impl Fn(R)) {
    const MARK: &str = "the role is played to its end";
    let is_child = std::env::var_os("WINDLASS_TEST_CHILD").is_some();
    for role in roles {
        let called = format!("{name} {role:?}");
        if child::is_child(&called) {
            body(role);
            println!("{MARK}");
        } else if !is_child {
            let (ended, text) = child::finish(child::spawn(name, &called));
            assert!(ended && text.contains(MARK), "{called}: {text}");
        }
    }
}

/// A filter loaded while the ring has work: the kernel answers the requests it has; the driver
/// starts untaken and new requests elsewhere.
#[test]
fn a_filter_that_comes_later_loses_nothing() {
    // Not a multiple of the batch size.
    const COUNT: u64 = 223;
    let roles = [(libc::EPERM, true), (libc::ENOSYS, true), (libc::EPERM, false)];
    in_roles("a_filter_that_comes_later_loses_nothing", roles, |(errno, has_aio)| {
        let directory = Directory::new();
        let mut b = bench(epoll().file_backend(FileBackend::Auto));
        let all = pattern(256 << 10, 1);
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&all, 4096), 0);
        let taken = row(&b, RING).2;
        assert_eq!(row(&b, RING).0, "a ring of io_uring");
        let ask = |b: &mut Bench<Auto>| -> Vec<_> {
            let read = |i| Op::read_at(file, page(), i % 64 * 4096).token(i);
            (0..COUNT).map(|i| b.submit(read(i))).collect()
        };
        let expect = |b: &mut Bench<Auto>, open: Vec<_>| {
            for ticket in open {
                let c = b.end(ticket);
                let at = c.token as usize % 64 * 4096;
                expect_same(&expect_read(c), &all[at..at + 4096]);
            }
        };
        let open = ask(&mut b);
        let in_kernel = row(&b, RING).2 - taken;
        assert!((1..COUNT).contains(&in_kernel), "{in_kernel}: some are held back");
        if !has_aio {
            deny(&[libc::SYS_io_setup], errno);
        }
        deny(&[libc::SYS_io_uring_enter], errno);
        let sync = b.submit(Op::sync_all(file));
        let write = b.submit(Op::write_at(file, AlignedBuf::from_slice(&all[..4096], 4096), 0));
        expect(&mut b, open);
        expect_finished(b.end(sync));
        expect_written(b.end(write));
        assert_eq!(handed_back(&b), COUNT - in_kernel + 2);
        let open = ask(&mut b);
        expect(&mut b, open);
        expect_finished(b.run(Op::sync_data(file)));
        let (_, why, count) = row(&b, RING);
        let reason = io::Error::from_raw_os_error(errno).to_string();
        assert_eq!(count, taken + in_kernel);
        assert!(why.contains("io_uring_enter(2)") && why.contains(&reason), "{why}");
        let (by, why, count) = row(&b, AIO);
        match has_aio {
            true => assert_eq!((&*by, count), ("Linux AIO", COUNT + 1), "{why}"),
            false => assert_eq!((&*by, count), ("not Linux AIO", 0), "{why}"),
        }
        b.expect_all_ended();
    });
}

/// A ring chosen by name is never replaced: its operations fail, with their buffers.
#[test]
fn a_named_ring_that_is_taken_away_fails() {
    in_roles("a_named_ring_that_is_taken_away_fails", [libc::EPERM, libc::ENOSYS], |errno| {
        let directory = Directory::new();
        let mut b = bench(epoll().file_backend(FileBackend::Uring));
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
        deny(&[libc::SYS_io_uring_enter], errno);
        for _ in 0..3 {
            let write = Op::write_at(file, AlignedBuf::from_slice(&[2; 4096], 4096), 0);
            let buf = expect_errno(b.run(write), &[errno]);
            assert_eq!(buf.into_aligned().unwrap()[..], [2; 4096]);
            assert_eq!(
                expect_errno(b.run(Op::read_at(file, page(), 0)), &[errno]).capacity(),
                4096
            );
            expect_errno(b.run(Op::sync_all(file)), &[errno]);
        }
        assert_eq!(std::fs::read(directory.at("a")).unwrap(), [1; 4096]);
        // Work that the ring never does goes on.
        let cached = b.make_file(directory.at("b"));
        b.write_at(cached, "cached", 0);
        assert_eq!(b.read_at(cached, 10, 0), b"cached");
        b.expect_all_ended();
    });
}

/// The same for AIO.
#[test]
fn aio_that_is_taken_away_loses_nothing() {
    let roles = [FileBackend::Auto, FileBackend::Aio];
    in_roles("aio_that_is_taken_away_loses_nothing", roles, |files| {
        let directory = Directory::new();
        deny(&[libc::SYS_io_uring_setup], libc::ENOSYS);
        let mut b = bench(epoll().file_backend(files));
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
        assert_eq!(expect_read(b.run(Op::read_at(file, page(), 0)))[..], [1; 4096]);
        assert_eq!((&*row(&b, AIO).0, row(&b, AIO).2), ("Linux AIO", 1));
        deny(&[libc::SYS_io_submit], libc::EPERM);
        for _ in 0..3 {
            let c = b.run(Op::read_at(file, page(), 0));
            match files {
                FileBackend::Auto => assert_eq!(expect_read(c)[..], [1; 4096]),
                _ => assert_eq!(expect_errno(c, &[libc::EPERM]).capacity(), 4096),
            }
        }
        let why = row(&b, AIO).1;
        assert!(why.contains("io_submit(2)") && why.contains("not permitted"), "{why}");
        b.expect_all_ended();
    });
}

/// A ring that would block on a frozen file system gets no direct writes, but all other work.
#[test]
fn direct_writes_that_the_ring_is_not_given() {
    const NAME: &str = "direct_writes_that_the_ring_is_not_given";
    let role = || child::is_child(NAME);
    if !role() {
        let mut command = child::command(NAME, NAME);
        let child = command.env("WINDLASS_QUIRKS", "frozen-writes=on").spawn().unwrap();
        let (ended, text) = child::finish(child);
        assert!(ended && text.contains("by threads, as it should be"), "{text}");
        return;
    }
    for driver in [DriverKind::Epoll, DriverKind::Uring] {
        let directory = Directory::new();
        let mut b = bench(Watcher::builder().driver(driver).file_backend(FileBackend::Uring));
        let file = b.open_file(directory.at("a"), DIRECT);
        for i in 0..5 {
            b.write_at(file, AlignedBuf::from_slice(&[i as u8; 4096], 4096), i * 4096);
        }
        for i in 0..7 {
            let data = expect_read(b.run(Op::read_at(file, page(), i % 5 * 4096)));
            assert_eq!(data[..], [(i % 5) as u8; 4096]);
        }
        expect_finished(b.run(Op::sync_all(file)));
        let rows = b.watcher.explain().rows;
        let quirk = rows.iter().find(|row| row.mechanism == "quirk frozen-writes").expect("a row");
        assert_eq!(quirk.count, 5);
        assert!(quirk.reason.contains("WINDLASS_QUIRKS"), "{}", quirk.reason);
        let kernel = rows.iter().find(|row| row.mechanism == "the kernel").expect("a row");
        assert_eq!(kernel.count, 8, "reads and the sync");
        b.expect_all_ended();
    }
    println!("by threads, as it should be");
}

/// A ring beside epoll registers no files or memory, and `explain` says so.
#[test]
fn explain_names_unused_registrations() {
    let builder =
        epoll().file_backend(FileBackend::Uring).registered_files(8).registered_bytes(1 << 20);
    let mut b = bench(builder);
    let directory = Directory::new();
    let file = b.open_file(directory.at("a"), DIRECT);
    let mut buf = b.watcher.aligned_buf(4096);
    buf.resize(4096, 1);
    b.write_at(file, buf, 0);
    let (by, why, count) = row(&b, "registered files, buffers");
    assert_eq!((&*by, count), ("none", 0));
    assert!(why.contains("without effect"), "{why}");
    b.expect_all_ended();
}

/// No kernel thread polls for submissions, and `explain` says why.
#[test]
fn submissions_are_not_polled_for() {
    for builder in [epoll(), Watcher::builder().driver(DriverKind::Uring)] {
        let mut b = bench(builder.file_backend(FileBackend::Uring));
        let directory = Directory::new();
        let file = b.make_file(directory.at("a"));
        expect_finished(b.run(Op::sync_all(file)));
        let (by, why, _) = row(&b, "submission");
        assert!(
            by == "io_uring_enter" && why.contains("SQPOLL") && why.contains("setuid"),
            "{why}"
        );
        b.expect_all_ended();
    }
}

/// Building fails, with the step, if a ring chosen by name cannot be made. Without such a choice
/// the watcher works without a ring.
#[test]
fn a_named_ring_that_cannot_be_made_says_the_step() {
    let calls = [
        (libc::SYS_io_uring_setup, "io_uring_setup(2)"),
        (libc::SYS_io_uring_register, "io_uring_register(2)"),
        (libc::SYS_io_uring_enter, "io_uring_enter(2)"),
    ];
    let roles = calls.into_iter().flat_map(|(number, step)| {
        [libc::EPERM, libc::ENOSYS, libc::ENOMEM, libc::EMFILE].map(|errno| (number, step, errno))
    });
    in_roles("a_named_ring_that_cannot_be_made_says_the_step", roles, |(number, step, errno)| {
        deny(&[number], errno);
        let reason = io::Error::from_raw_os_error(errno);
        for builder in [epoll(), Watcher::builder()] {
            let error = builder.file_backend(FileBackend::Uring).build().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(step) && text.contains(&reason.to_string()), "{text}");
            if matches!(errno, libc::EPERM | libc::ENOSYS) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            }
        }
        let directory = Directory::new();
        let mut b = bench(epoll().file_backend(FileBackend::Auto));
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
        assert_eq!(expect_read(b.run(Op::read_at(file, page(), 0)))[..], [1; 4096]);
        expect_finished(b.run(Op::sync_all(file)));
        let (by, why, _) = row(&b, RING);
        assert_eq!(by, "not a ring of io_uring");
        assert!(why.contains(step) && why.contains(&reason.to_string()), "{why}");
        assert_eq!((&*row(&b, AIO).0, row(&b, AIO).2), ("Linux AIO", 2));
        b.expect_all_ended();
    });
}

/// Takes a file out of the page cache.
fn evict(file: &std::fs::File) {
    use std::os::fd::AsRawFd;
    file.sync_all().unwrap();
    // SAFETY: no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// An uncached read goes to the ring and wakes no thread; AIO would block on it.
#[test]
fn uncached_reads_go_to_the_ring() {
    let directory = Directory::new();
    let all = pattern(64 << 10, 1);
    std::fs::write(directory.at("a"), &all).unwrap();
    let count = |b: &Bench<Auto>, mechanism: &str| {
        let rows = b.watcher.explain().rows;
        let of = rows.iter().filter(|row| row.mechanism.ends_with(mechanism));
        of.map(|row| row.count).sum::<u64>()
    };
    for files in [FileBackend::Auto, FileBackend::Uring, FileBackend::Aio] {
        let mut b = bench(epoll().file_backend(files));
        let file = std::fs::File::open(directory.at("a")).unwrap();
        let read = b.watcher.attach(file.try_clone().unwrap()).unwrap();
        let mut at_once = 0;
        // The check starts read-ahead, and sometimes the disk is as fast as the check.
        for round in 1..=1000 {
            evict(&file);
            at_once = count(&b, "preadv2(RWF_NOWAIT) at submission");
            expect_same(&b.read_at(read, 64 << 10, 0), &all);
            if count(&b, "preadv2(RWF_NOWAIT) at submission") == at_once {
                break;
            }
            if round == 1000 {
                return skip(Needs::Eviction, "what is not cached: it stays in memory");
            }
        }
        assert_eq!(at_once + 1, b.watcher.counters().completed, "one was not cached");
        let by_ring = files != FileBackend::Aio;
        assert_eq!(count(&b, "a ring of io_uring"), u64::from(by_ring), "{files:?}");
        assert_eq!(count(&b, " of 4 threads"), u64::from(!by_ring), "{files:?}");
        // Now the page is cached.
        expect_same(&b.read_at(read, 64 << 10, 0), &all);
        assert_eq!(count(&b, "preadv2(RWF_NOWAIT) at submission"), at_once + 1);
        b.expect_all_ended();
    }
}

/// A program may say again and again that work is to end. The kernel is asked once for each
/// operation: its answers would not fit into the ring, and those of later work would be lost.
#[test]
fn work_is_told_to_end_once() {
    let directory = Directory::new();
    let mut b = bench(epoll().file_backend(FileBackend::Uring));
    let file = b.open_file(directory.at("a"), DIRECT);
    b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
    let first = b.submit(Op::read_at(file, page(), 0));
    // More than the ring holds.
    for _ in 0..5000 {
        b.watcher.cancel_all(file);
    }
    let open: Vec<_> = (0..64).map(|_| b.submit(Op::read_at(file, page(), 0))).collect();
    for ticket in open {
        expect_same(&expect_read(b.end(ticket)), &[1; 4096]);
    }
    assert!(b.end(first).error_kind().is_none_or(|kind| kind == windlass::ErrorKind::Cancelled));
    b.expect_all_ended();
}

/// The ring has 1024 requests at a time: threads do what comes beyond them, and `explain` says so.
#[test]
fn what_a_full_ring_cannot_take_is_done_by_threads() {
    const MOST: u64 = 1024;
    const BEYOND: u64 = 40;
    let directory = Directory::new();
    let mut b = bench(epoll().file_backend(FileBackend::Uring));
    let file = b.open_file(directory.at("a"), DIRECT);
    let all = pattern(16 << 10, 1);
    b.write_at(file, AlignedBuf::from_slice(&all, 4096), 0);
    let taken = row(&b, RING).2;
    // Without a wait in between, no answer makes room.
    let read = |i| Op::read_at(file, page(), i % 4 * 4096).token(i);
    let open: Vec<_> = (0..MOST + BEYOND).map(|i| b.submit(read(i))).collect();
    let rows = b.watcher.explain().rows;
    let full = "the kernel already had the most requests at a time";
    let beyond = rows.iter().find(|row| row.reason == full).expect("there is a row");
    assert_eq!((beyond.mechanism.as_str(), beyond.count), ("threads", BEYOND));
    for ticket in open {
        let c = b.end(ticket);
        let at = c.token as usize % 4 * 4096;
        expect_same(&expect_read(c), &all[at..at + 4096]);
    }
    assert_eq!(row(&b, RING).2, taken + MOST);
    b.expect_all_ended();
}

/// A ring that is denied while its queue is full: what was about to be queued fails as well.
#[test]
fn a_named_ring_that_is_full_is_not_replaced_either() {
    in_roles("a_named_ring_that_is_full_is_not_replaced_either", [libc::EPERM], |errno| {
        let directory = Directory::new();
        let mut b = bench(epoll().file_backend(FileBackend::Uring));
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
        let open: Vec<_> = (0..512).map(|_| b.submit(Op::read_at(file, page(), 0))).collect();
        deny(&[libc::SYS_io_uring_enter], errno);
        // Requests to end them fill the queue.
        let held_back = 513 - row(&b, RING).2 as usize;
        let left = 256 - held_back;
        open[..left].iter().for_each(|&ticket| assert!(b.watcher.cancel(ticket)));
        expect_errno(b.run(Op::read_at(file, page(), 0)), &[errno]);
        for ticket in open {
            b.end(ticket);
        }
        b.expect_all_ended();
    });
}
