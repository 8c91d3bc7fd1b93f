//! C7: close(2) of a file takes as long as its file system likes, and never the loop's time.
//!
//! The FLUSH of a file on FUSE, which close(2) waits for, is held until the test lets go.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // the helpers need libc

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use common::fuse::{Fuse, Options, Request};
use common::*;
use windlass::driver::Auto;
use windlass::fs::OpenOptions;
use windlass::{Op, Source, Watcher};

const READ: OpenOptions = OpenOptions::new().read(true);

/// What a body gets: a file system whose FLUSH is held, and another one.
struct Stage {
    /// Files whose close waits.
    slow: PathBuf,
    says: Sender<()>,
    goes: Receiver<()>,
}

impl Stage {
    /// The files are to be closed: the test lets go when all have come to wait.
    fn closed(&self) {
        self.says.send(()).unwrap();
        receive(&self.goes, "the file system answers");
    }
}

/// Runs `body` on a thread with every way to work on files. The body closes `count` files, and the
/// file system answers after [`Stage::closed`], when so many closes wait for it.
fn on_every_driver(count: u32, body: fn(&mut Bench<Auto>, &Stage)) {
    on_every_driver_that_drops(count, move |mut b, stage| {
        body(&mut b, &stage);
        b.expect_all_ended();
    });
}

fn on_every_driver_that_drops(
    count: u32,
    body: impl Fn(Bench<Auto>, Stage) + Copy + Send + 'static,
) {
    type Make = fn(windlass::Builder) -> Bench<Auto>;
    let all: [(&str, Make); 6] = [
        ("epoll_aio", EpollAio::bench_with),
        ("epoll_uring", EpollUring::bench_with),
        ("epoll_pool", EpollPool::bench_with),
        ("uring_files", UringFiles::bench_with),
        ("uring_pool", UringPool::bench_with),
        ("poll_pool", PollPool::bench_with),
    ];
    let Some(fuse) = Fuse::mount(Options::default()) else { return };
    for (name, make) in all {
        println!("{name}");
        for i in 0..count {
            std::fs::write(fuse.at(&i.to_string()), "a file").unwrap();
        }
        let (held, before) = (fuse.hold(Request::Flush), fuse.seen(Request::Flush));
        let ((says, said), (lets, goes)) = (channel(), channel());
        let stage = Stage { slow: fuse.at(""), says, goes };
        let thread = std::thread::spawn(move || {
            // One thread, so that a close which waits takes all.
            body(make(Watcher::builder().threads(1).max_jobs(2)), stage)
        });
        receive(&said, "the loop serves its other sources");
        held.wait();
        drop(held);
        let _ = lets.send(());
        join(thread, "the loop ends");
        until("all close", || fuse.seen(Request::Flush) - before >= count);
    }
}

fn file(b: &mut Bench<Auto>, directory: &Path, name: u32) -> Source {
    let file = File::open(directory.join(name.to_string())).unwrap();
    b.watcher.attach(file).unwrap()
}

/// An abort waited for the file system, also that of a file that was only attached.
#[test]
fn an_abort_does_not_wait_for_a_file_system() {
    on_every_driver(4, |b, stage| {
        let (a, z) = b.pair();
        for i in 0..4 {
            let file = file(b, &stage.slow, i);
            if i % 2 == 0 {
                let c = b.run(Op::read_at(file, room(100), 0));
                assert_eq!(&*expect_read(c), b"a file");
            }
            assert!(b.watcher.abort(file));
            assert!(!b.watcher.abort(file), "it is stale");
            b.expect_alive(a, z);
        }
        assert_eq!(b.watcher.counters().sources, 2);
        stage.closed();
        // They close without the program, and their threads serve again.
        assert_eq!(expect_ended(b.run(Op::run(|| 5))), 5);
    });
}

#[track_caller]
fn expect_ended(c: windlass::Completion) -> i32 {
    files::expect_returned(c)
}

/// Closes that find all places of jobs taken waited on the loop's thread, those of `Op::close` too.
#[test]
fn a_close_needs_no_place_among_the_jobs() {
    on_every_driver(5, |b, stage| {
        let (a, z) = b.pair();
        let files: Vec<_> = (0..5).map(|i| file(b, &stage.slow, i)).collect();
        // Their kinds are known: a close of any other may take another way.
        for &file in &files {
            expect_read(b.run(Op::read_at(file, room(100), 0)));
        }
        let (held, gate) = files::hold(b);
        let queued = b.submit(Op::run(|| 3));
        let mut closes = Vec::new();
        for &file in &files[..3] {
            closes.push(b.submit(Op::close(file)));
            b.look();
            b.expect_alive(a, z);
        }
        for &file in &files[3..] {
            assert!(b.watcher.abort(file));
            b.expect_alive(a, z);
        }
        drop(gate);
        files::expect_held(b.end(held));
        stage.closed();
        for close in closes {
            expect_closed(b.end(close));
        }
        assert_eq!(expect_ended(b.end(queued)), 3);
    });
}

/// A watcher that goes waits for its files for a second, and leaves the rest to threads.
#[test]
fn a_watcher_that_goes_leaves_its_closes_to_threads() {
    // Each drop takes a second, so every other watcher is closed before.
    static DROPS: AtomicU32 = AtomicU32::new(0);
    on_every_driver_that_drops(3, |mut b, stage| {
        let files: Vec<_> = (0..3).map(|i| file(&mut b, &stage.slow, i)).collect();
        expect_read(b.run(Op::read_at(files[0], room(100), 0)));
        if DROPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            b.watcher.close();
        }
        drop(b);
        stage.closed();
    });
}

/// Files that nobody has taken: opened, sent, received, on their way from another thread.
#[test]
fn a_watcher_that_goes_leaves_what_nobody_took_to_threads() {
    on_every_driver_that_drops(4, |mut b, stage| {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (here, there) = (b.watcher.attach(here).unwrap(), b.watcher.attach(there).unwrap());
        let opens = b.submit(Op::open(stage.slow.join("0"), READ));
        let receives = b.submit(Op::recv_descriptors(there));
        let passed = OwnedFd::from(File::open(stage.slow.join("1")).unwrap());
        b.submit(Op::send_descriptors(here, "x", vec![passed]));
        let first = b.submit(Op::read(there));
        b.submit(Op::write(here, "behind"));
        // These end behind them. They alone are taken.
        let last = b.submit(Op::run(|| 1));
        for ticket in [last, first] {
            b.watcher.wait_for(ticket).unwrap().result.unwrap();
        }
        for ticket in [opens, receives] {
            assert!(!b.watcher.is_in_flight(ticket).unwrap());
        }
        let submitter = b.submitter();
        submitter.attach(File::open(stage.slow.join("2")).unwrap()).unwrap();
        drop(b);
        stage.closed();
    });
}

/// What is passed on is closed here, when it has been sent or when its send has ended without it.
#[test]
fn a_sender_of_files_does_not_wait_for_their_file_system() {
    on_every_driver(3, |b, stage| {
        let (a, z) = b.pair();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let source = b.watcher.attach(here).unwrap();
        let open = |i: u32| OwnedFd::from(File::open(stage.slow.join(i.to_string())).unwrap());
        expect_written(b.run(Op::send_descriptors(source, "x", vec![open(0), open(1)])));
        b.expect_alive(a, z);
        let stuck = b.submit(Op::write(source, vec![1; 4 << 20]));
        let behind = b.submit(Op::send_descriptors(source, "x", vec![open(2)]));
        b.look();
        assert!(b.watcher.cancel(behind));
        expect_unmoved(b.end(behind), windlass::ErrorKind::Cancelled);
        b.expect_alive(a, z);
        assert!(b.watcher.abort(source));
        assert!(b.end(stuck).result.is_err());
        stage.closed();
        drop(there);
    });
}

/// The bound: 32 closes of files that never return hold up the others of the process. They hold up
/// no socket, and nothing is lost.
#[test]
fn thirty_two_files_close_at_a_time() {
    child::in_child("thirty_two_files_close_at_a_time", || {
        let Some(fuse) = Fuse::mount(Options::default()) else { return };
        for i in 0..40 {
            std::fs::write(fuse.at(&i.to_string()), "a file").unwrap();
        }
        for make in [EpollPool::bench_with, UringPool::bench_with] {
            let mut b = make(Watcher::builder());
            let (a, z) = b.pair();
            let held = fuse.hold(Request::Flush);
            let files: Vec<_> = (0..40).map(|i| file(&mut b, &fuse.at(""), i)).collect();
            let mut closes: Vec<_> = files.iter().map(|&file| b.submit(Op::close(file))).collect();
            b.look();
            held.wait_for(32);
            let other = b.watcher.attach(File::open(std::env::current_exe().unwrap()).unwrap());
            closes.push(b.submit(Op::close(other.unwrap())));
            b.expect_alive(a, z);
            let linger = windlass::net::SocketOption::Linger(Some(BOUND));
            b.watcher.set_option(a, linger).unwrap();
            expect_closed(b.run(Op::close(a)));
            assert_eq!(expect_ended(b.run(Op::run(|| 4))), 4);
            assert_eq!(held.waiting(), 32);
            assert!(closes.iter().all(|&close| b.is_open(close)));
            drop(held);
            for close in closes {
                expect_closed(b.end(close));
            }
            b.expect_all_ended();
        }
    });
}

/// How many pieces the disk space of a file is in.
const EXTENTS: u32 = 60_000;

/// A removed file whose last close(2) frees its disk space for seconds: `EXTENTS` blocks with a
/// hole behind each. Nothing where the file system does not make one, or cannot tell.
fn in_many_pieces(directory: &system::Directory) -> Option<File> {
    /// `FS_IOC_FIEMAP`: it counts the extents if it has no room for any.
    const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
    const BLOCK: i64 = 4096;
    let path = directory.at("pieces");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    for i in 0..i64::from(EXTENTS) {
        // SAFETY: no memory is passed.
        if unsafe { libc::fallocate(fd, 0, 2 * i * BLOCK, BLOCK) } < 0 {
            let error = std::io::Error::last_os_error();
            skip(Needs::Allocate, format_args!("a file in {EXTENTS} pieces: {error}"));
            return None;
        }
    }
    // Where the map starts and ends, its flags, the number of extents, and room for none.
    let mut map = [0u32, 0, u32::MAX, u32::MAX >> 1, 0, 0, 0, 0];
    // SAFETY: the call writes to no more than this header, which has room for no extent.
    let answer = unsafe { libc::ioctl(fd, FIEMAP, map.as_mut_ptr()) };
    if answer < 0 || map[5] < EXTENTS {
        skip(Needs::Allocate, format_args!("a file in {EXTENTS} pieces: it has {}", map[5]));
        return None;
    }
    Some(file)
}

/// The close(2) of a removed file in 60,000 pieces takes seconds, and never the loop's thread.
#[test]
fn a_file_in_sixty_thousand_pieces_closes_beside_the_loop() {
    let directory = system::Directory::new();
    let makes = [EpollPool::bench_with, UringPool::bench_with, PollPool::bench_with];
    for (i, make) in makes.into_iter().enumerate() {
        let mut b = make(Watcher::builder());
        let (a, z) = b.pair();
        let Some(file) = in_many_pieces(&directory) else { return };
        let file = b.watcher.attach(file).unwrap();
        assert_eq!(&*expect_read(b.run(Op::read_at(file, room(3), 0))), [0; 3]);
        let calls = b.watcher.counters().calls("close");
        match i {
            0 => {
                let close = b.submit(Op::close(file));
                b.look();
                b.expect_alive(a, z);
                // A loaded disk takes minutes for the rest.
                assert!(b.is_open(close), "it takes longer than a message");
            }
            1 => {
                assert!(b.watcher.abort(file));
                b.expect_alive(a, z);
            }
            _ => b.watcher.close(),
        }
        let calls = b.watcher.counters().calls("close") - calls;
        assert_eq!(calls, if i == 2 { 2 } else { 0 }, "the loop closes only the connection");
    }
}
