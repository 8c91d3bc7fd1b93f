//! Linux: work on files that is held in the middle of its call, and its leftovers.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::fs::{CopyOptions, OpenOptions};
use windlass::{
    AlignedBuf, Buf, Completions, Done, ErrorKind, Op, Refusal, Source, Ticket, Watcher,
};

use crate::common::files::*;
use crate::common::*;

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

/// A file, a write to it that is held in its call, and what holds it.
struct Held {
    file: Source,
    write: Ticket,
    hold: sticky::Hold,
}

fn begun<D: Driver>(b: &mut Bench<D>, path: &Path) -> Option<Held> {
    let (hold, bytes) = match sticky::page() {
        Ok(page) => page,
        Err(why) => {
            skip(Needs::Userfault, format_args!("work that is held: {why}"));
            return None;
        }
    };
    let file = b.make_file(path);
    let write = b.submit(Op::write_at(file, Buf::from_owner(bytes), 0).token(5));
    hold.wait();
    Some(Held { file, write, hold })
}

/// The write is late, and real.
#[track_caller]
fn expect_late<D: Driver>(b: &mut Bench<D>, held: Held, path: &Path, late: bool) {
    drop(held.hold);
    let c = b.end(held.write);
    assert_eq!((c.token, c.is_late(), c.source), (5, late, held.file));
    assert_eq!(expect_written(c).len(), 4096);
    assert_eq!(std::fs::read(path).unwrap(), [0; 4096]);
}

pub fn begun_work_is_late_and_keeps_its_buffer<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    for ends in ["cancel", "cancel_all", "nothing"] {
        let mut b = H::bench();
        let Some(held) = begun(&mut b, &path) else { return };
        // Others go on, as far as the file system lets them.
        assert!(
            b.run(Op::metadata(held.file).timeout(Duration::from_secs(99))).error_kind().is_none()
        );
        match ends {
            "cancel" => assert!(b.watcher.cancel(held.write)),
            "cancel_all" => {
                assert_eq!(b.watcher.cancel_all(held.file), 1);
                assert_eq!(b.watcher.cancel_all(held.file), 0, "it was told");
            }
            _ => {}
        }
        b.look();
        assert!(b.is_open(held.write));
        assert_eq!(b.watcher.detach(held.file).unwrap_err(), Refusal::Busy);
        let file = held.file;
        expect_late(&mut b, held, &path, ends.starts_with("cancel"));
        // The source is as usable as before.
        b.write_at(file, "after", 0);
        drop(b.watcher.detach(file).unwrap());
        std::fs::remove_file(&path).unwrap();
        b.expect_all_ended();
    }
}

pub fn a_deadline_of_begun_work_is_late<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Ok((hold, bytes)) = sticky::page() else {
        return skip(Needs::Userfault, "work that is held: no userfaultfd(2)");
    };
    let file = b.make_file(&path);
    let op = Op::write_at(file, Buf::from_owner(bytes), 0);
    let write = b.submit(op.token(5).timeout(Duration::from_millis(50)));
    hold.wait();
    b.pass(Duration::from_millis(60));
    assert!(b.is_open(write));
    expect_late(&mut b, Held { file, write, hold }, &path, true);
    b.expect_all_ended();
}

/// C7: the number of a descriptor is not given up while a thread uses it.
pub fn an_aborted_file_closes_when_its_work_has_ended<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Some(held) = begun(&mut b, &path) else { return };
    assert!(b.watcher.abort(held.file));
    assert!(!b.watcher.abort(held.file), "it is stale now");
    assert_eq!(b.watcher.cancel_all(held.file), 0);
    assert_eq!(b.watcher.fd(held.file).err(), Some(Refusal::Stale));
    assert_eq!(b.watcher.detach(held.file).unwrap_err(), Refusal::Stale);
    for op in [
        Op::read_at(held.file, room(9), 0),
        Op::sync_all(held.file),
        Op::metadata(held.file),
        Op::close(held.file),
    ] {
        assert_eq!(b.refuse(op).0, Refusal::Stale);
    }
    b.look();
    assert!(b.is_open(held.write));
    assert_eq!(b.watcher.counters().sources, 0);
    assert!(is_held(&path), "closed under a thread");
    expect_late(&mut b, held, &path, true);
    // A thread closes it.
    until("the file closes after the work", || !is_held(&path));
    b.expect_all_ended();
}

pub fn a_close_waits_for_the_work_before_it<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    for ends in ["close", "deadline", "abort"] {
        let mut b = H::bench();
        let Some(held) = begun(&mut b, &path) else { return };
        let close = Op::close(held.file);
        let close = match ends {
            "deadline" => b.submit(close.timeout(Duration::from_millis(1))),
            _ => b.submit(close),
        };
        assert_eq!(b.refuse(Op::sync_all(held.file)).0, Refusal::Stale);
        b.pass(Duration::from_millis(3));
        assert!(b.is_open(held.write) && is_held(&path));
        let file = held.file;
        match ends {
            "close" => {
                assert!(b.is_open(close));
                expect_late(&mut b, held, &path, false);
                expect_closed(b.end(close));
            }
            "abort" => {
                assert!(b.watcher.abort(file));
                expect_unmoved(b.end(close), ErrorKind::Aborted);
                expect_late(&mut b, held, &path, true);
            }
            _ => {
                expect_unmoved(b.end(close), ErrorKind::Deadline);
                expect_late(&mut b, held, &path, false);
                b.write_at(file, "as before", 0);
                expect_closed(b.run(Op::close(file)));
            }
        }
        until("the file closes", || !is_held(&path));
        assert!(!b.watcher.abort(file));
        std::fs::remove_file(&path).unwrap();
        b.expect_all_ended();
    }
}

/// A file that is sent is gone when it is aborted, also while a thread still works on it.
pub fn an_aborted_file_with_work_is_sent_no_more<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let (here, there) = b.pair();
    let Some(held) = begun(&mut b, &path) else { return };
    assert!(b.watcher.abort(held.file));
    assert_eq!(b.refuse(Op::send_file(here, held.file, 0, 9)).0, Refusal::Stale);
    expect_late(&mut b, held, &path, true);
    b.expect_alive(here, there);
}

/// Everything ends and is told, the work that has begun when it has ended.
pub fn a_watcher_that_closes_tells_of_all_work<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench_with(Watcher::builder().threads(2));
    let Some(held) = begun(&mut b, &path) else { return };
    let (job, gate) = hold(&mut b);
    let queued = [
        b.submit(Op::run(|| 1)),
        b.submit(Op::create_dir(directory.at("made"), 0o700)),
        b.submit(Op::sync_range(held.file, 0, 0)),
        b.submit(Op::timer(Duration::from_secs(99))),
    ];
    b.watcher.close();
    b.watcher.close();
    for ticket in queued {
        let c = b.end(ticket);
        assert!(!c.is_late());
        expect_unmoved(c, ErrorKind::Closed);
    }
    // It waits for the others, for as long as it is told.
    let mut done = Completions::new();
    assert_eq!(b.watcher.try_wait(&mut done).unwrap(), 0);
    assert_eq!(b.watcher.wait_timeout(&mut done, Duration::from_millis(5)).unwrap(), 0);
    assert!(b.watcher.submit(Op::run(|| 1)).is_err_and(|e| e.reason == Refusal::Closed));
    assert!(is_held(&path));
    drop(gate);
    let c = b.end(job);
    assert!(c.is_late());
    expect_held(c);
    expect_late(&mut b, held, &path, true);
    until("the file closes", || !is_held(&path));
    assert!(!directory.at("made").exists());
    let error = b.watcher.wait(&mut done).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
    let counters = b.watcher.counters();
    assert_eq!((counters.in_flight, counters.sources), (0, 0));
    assert_eq!(counters.submitted, counters.completed);
}

/// Work that ends while the watcher goes: descriptor, thread and buffer go, too.
pub fn a_watcher_that_goes_leaves_nothing_of_its_work<H: Harness>() {
    let name = "work::a_watcher_that_goes_leaves_nothing_of_its_work";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let directory = Directory::new();
        drop(H::bench());
        let (mut before, alone) = (system::descriptors(), threads());
        let mut in_time = 0;
        for round in 0..60 {
            let mut b = H::bench_with(Watcher::builder().threads(2));
            let direct = b.open_file(directory.at("direct"), DIRECT);
            let files: Vec<_> = (0..4).map(|i| b.make_file(directory.at(format!("{i}")))).collect();
            let marker = std::sync::Arc::<[u8]>::from(vec![1; 1000]);
            let held = begun(&mut b, &directory.at("held"));
            for &file in &files {
                let list = Buf::list([Buf::from(marker.clone()), Buf::from(vec![1; 1 << 16])]);
                b.submit(Op::write_at(file, list, 0));
                b.submit(Op::read_at(file, room(1 << 16), 0));
                b.submit(Op::sync_all(file));
                b.submit(Op::metadata(file));
                b.submit(Op::close(file));
            }
            for i in 0..20 {
                let buf = AlignedBuf::from_slice(&[7; 4096], 4096);
                b.submit(Op::write_at(direct, buf, i * 4096));
                b.submit(Op::read_at(direct, AlignedBuf::with_capacity(4096, 4096), i * 4096));
            }
            b.submit(Op::open(directory.at("0"), OpenOptions::new().read(true)));
            let kept = marker.clone();
            b.submit(Op::run(move || kept));
            if round % 3 == 0 {
                b.look();
            }
            // A watcher waits for its work for a second, and leaves it what it uses.
            let start = std::time::Instant::now();
            if round % 2 == 0 {
                b.watcher.close();
            }
            // The thread is let go while the watcher waits for it.
            let letting = held.map(|held| {
                std::thread::spawn(move || {
                    if round % 4 < 2 {
                        // Varies the race with the drop: no event says that the drop waits.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    drop(held.hold);
                })
            });
            drop(b);
            let is_late = start.elapsed() > Duration::from_millis(900);
            if let Some(letting) = letting {
                join(letting, "the hold is let go");
            }
            if !is_late {
                in_time += 1;
                let count = std::sync::Arc::strong_count(&marker);
                assert_eq!(count, 1, "round {round}: a buffer is left");
                // What the bench had taken, and drops now, closes on a thread.
                let what = format!("round {round}: its descriptors close");
                until(&what, || system::descriptors() == before);
            }
            // A thread that was joined may still be listed for a moment, and one of the kernel's
            // that served the ring come and go.
            until(&format!("round {round}: its threads end"), || threads() <= alone);
            before = system::descriptors();
        }
        assert!(in_time > 0, "the disk is too slow for any round");
    });
}

/// Work that does not end keeps what it uses; the watcher goes within its bound.
pub fn a_watcher_does_not_wait_for_ever<H: Harness>() {
    let directory = Directory::new();
    let path = directory.at("a");
    let mut b = H::bench();
    let Some(held) = begun(&mut b, &path) else { return };
    let start = std::time::Instant::now();
    drop(b);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(is_held(&path), "closed under a thread");
    drop(held.hold);
    // The write goes on to its end.
    until("the write ends", || std::fs::metadata(&path).unwrap().len() >= 4096);
}

/// Takes a file's pages out of the page cache; false where they stay, as on a file system in
/// memory.
fn drop_pages(path: &Path, len: usize) -> bool {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let mut pages = vec![0u8; len.div_ceil(4096)];
    let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a fresh mapping, whose bytes are not read.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, read, shared, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: that mapping, and room for each of its pages.
    let asked = unsafe { libc::mincore(start, len, pages.as_mut_ptr()) };
    // SAFETY: that mapping.
    unsafe { libc::munmap(start, len) };
    assert_eq!(asked, 0);
    pages.iter().all(|page| page & 1 == 0)
}

/// How many pieces of files threads were to read for sockets.
fn fetches<D: Driver>(b: &Bench<D>) -> u64 {
    let rows = b.watcher.explain().rows;
    rows.iter().find(|row| row.mechanism == "a thread reads, then send").expect("a row").count
}

/// The page cache has the first byte of a range, but not its last one: a thread reads the range.
pub fn the_last_byte_of_a_range_is_looked_at<H: Harness>() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    const LEN: usize = 40_000;
    let directory = Directory::new();
    let path = directory.at("a");
    std::fs::write(&path, pattern(LEN, 1)).unwrap();
    // Now and then the disk is as quick as the look.
    for _ in 0..1000 {
        if !(0..1000).any(|_| drop_pages(&path, LEN)) {
            return skip(Needs::Eviction, format_args!("{path:?} stays in the page cache"));
        }
        let first = std::fs::File::open(&path).unwrap();
        // Nothing is read ahead.
        // SAFETY: no memory is passed.
        unsafe { libc::posix_fadvise(first.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        first.read_exact_at(&mut [0], 0).unwrap();
        let mut b = H::bench();
        let file = b.watcher.attach(std::fs::File::open(&path).unwrap()).unwrap();
        let (here, there) = b.pair();
        let send = b.submit(Op::send_file(here, file, 0, LEN));
        expect_same(&b.read_exact(there, LEN), &pattern(LEN, 1));
        assert_eq!(expect_sent(b.end(send)), LEN);
        if fetches(&b) > 0 {
            return b.expect_all_ended();
        }
    }
    panic!("no thread has ever read the range");
}

/// What the page cache does not have is read by a thread: with none to be had at the moment, the
/// range waits, in its place, and the loop does not.
pub fn what_is_sent_is_fetched_first<H: Harness>() {
    const LEN: usize = 150_000;
    let directory = Directory::new();
    let path = directory.at("a");
    std::fs::write(&path, pattern(LEN, 1)).unwrap();
    let mut rounds = vec![
        "nothing",
        "cancel",
        "deadline",
        "the socket is aborted",
        "the file is aborted",
        "all is closed",
    ];
    let mut quicker = 0;
    while let Some(&ends) = rounds.last() {
        // On a busy machine another processor may still hold one of the pages.
        if !(0..1000).any(|_| drop_pages(&path, LEN)) {
            return skip(Needs::Eviction, format_args!("{path:?} stays in the page cache"));
        }
        let mut b = H::bench_with(Watcher::builder().threads(1));
        let file = b.watcher.attach(std::fs::File::open(&path).unwrap()).unwrap();
        let ((here, there), others) = (b.pair(), b.pair());
        b.expect_alive(here, there);
        let (held, gate) = hold(&mut b);
        let sends = Op::send_file(here, file, 0, LEN);
        let sends = match ends {
            "deadline" => b.submit(sends.timeout(Duration::from_millis(1))),
            _ => b.submit(sends),
        };
        if fetches(&b) == 0 {
            // To look makes the system read ahead; now and then the disk is as quick as the look.
            quicker += 1;
            assert!(quicker < 1000, "the disk is always quicker");
            continue;
        }
        rounds.pop();
        let tail = b.submit(Op::write(here, "tail"));
        b.expect_alive(others.0, others.1);
        // A deadline may have passed by now.
        assert!(ends == "deadline" || b.is_open(tail), "{ends}: the only thread is held");
        assert!(ends == "deadline" || b.is_open(sends), "as above");
        match ends {
            "cancel" => assert!(b.watcher.cancel(sends)),
            "the socket is aborted" => assert!(b.watcher.abort(here)),
            "the file is aborted" => assert!(b.watcher.abort(file)),
            "all is closed" => b.watcher.close(),
            _ => {}
        }
        if ends == "cancel" || ends == "deadline" {
            // What is behind it does not wait for the thread, nor does the file.
            assert_eq!(b.read_exact(there, 4), b"tail");
            assert!(b.watcher.detach(file).is_ok());
        }
        drop(gate);
        let c = b.end(held);
        match ends {
            "all is closed" => assert!(c.is_late()),
            _ => expect_held(c),
        }
        let c = b.end(sends);
        match ends {
            "nothing" => {
                assert_eq!(expect_sent(c), LEN);
                expect_same(&b.read_exact(there, LEN), &pattern(LEN, 1));
            }
            "cancel" => assert!(expect_unmoved(c, ErrorKind::Cancelled).is_empty()),
            "deadline" => assert!(expect_unmoved(c, ErrorKind::Deadline).is_empty()),
            "the socket is aborted" => {
                assert!(expect_unmoved(c, ErrorKind::Aborted).is_empty());
                expect_unmoved(b.end(tail), ErrorKind::Aborted);
            }
            "all is closed" => {
                assert!(expect_unmoved(c, ErrorKind::Closed).is_empty());
                expect_unmoved(b.end(tail), ErrorKind::Closed);
            }
            _ => drop(expect_errno(c, &[libc::EBADF])),
        }
        match ends {
            "nothing" | "the file is aborted" => {
                assert_eq!(b.read_exact(there, 4), b"tail");
                expect_written(b.end(tail));
            }
            "cancel" | "deadline" => drop(expect_written(b.end(tail))),
            _ => {}
        }
        let rows = b.watcher.explain().rows;
        let fetched = rows.iter().find(|row| row.mechanism.starts_with("a thread reads, "));
        assert!(fetched.expect("a row").count > 0);
        if ends == "all is closed" {
            assert_eq!(b.open(), 0);
        } else {
            b.expect_all_ended();
        }
        drop(b);
        assert!(!is_held(&path));
    }
}

/// The holder of a file lease (fcntl(2)) releases it when another process opens the file: a copy
/// waits for that, and does not fail.
pub fn a_leased_file_is_copied_when_the_lease_is_given_back<H: Harness>() {
    // libc has it for Android only.
    const F_SETSIG: i32 = 10;
    let d = Directory::new();
    let mut b = H::bench();
    let leased = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(d.at("from"))
        .unwrap();
    (&leased).write_all(b"leased").unwrap();
    let control = |command: i32, argument: i32| {
        // SAFETY: no memory is passed.
        unsafe { libc::fcntl(leased.as_raw_fd(), command, argument) }
    };
    // The signal of the lease is ignored.
    assert_eq!(control(F_SETSIG, libc::SIGURG), 0);
    assert_eq!(control(libc::F_SETLEASE, libc::F_WRLCK), 0);
    let copy = b.submit(Op::copy(d.at("from"), d.at("to"), CopyOptions::new()));
    let start = std::time::Instant::now();
    while control(libc::F_GETLEASE, 0) == libc::F_WRLCK {
        assert!(start.elapsed() < BOUND, "the copy asks for the lease");
        std::thread::yield_now();
    }
    b.look();
    assert!(b.is_open(copy));
    assert_eq!(control(libc::F_SETLEASE, libc::F_UNLCK), 0);
    let c = b.end(copy);
    assert!(matches!(c.result, Ok(Done::Copied(6))), "{c:?}");
    b.expect_all_ended();
}
