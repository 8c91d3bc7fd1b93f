//! Files of a file system that answers late: the loop serves its other sources meanwhile.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // descriptors and limits need libc

mod common;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::files::*;
use common::fuse::{Fuse, Options, Request};
use common::*;
use windlass::driver::Auto;
use windlass::fs::{CopyOptions, OpenOptions};
use windlass::{AlignedBuf, Buf, Completion, ErrorKind, Handle, Op, Watcher};

const READ: OpenOptions = OpenOptions::new().read(true);
const BOTH: OpenOptions = OpenOptions::new().read(true).write(true);
const DIRECT: OpenOptions = BOTH.direct(true);

/// How long the loop may take for an answer to its other source, before the daemon lets go and the
/// test fails: a loop that is blocked takes for ever.
const BLOCKED: Duration = Duration::from_secs(15);

/// The file system is one, and its daemon holds what it is told to hold.
#[test]
fn the_daemon_answers_when_it_is_told_to() {
    let Some(fuse) = Fuse::mount(Options::default()) else { return };
    let path = fuse.at("a");
    std::fs::write(&path, "first").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"first");
    std::fs::create_dir(fuse.at("d")).unwrap();
    std::fs::rename(&path, fuse.at("d/b")).unwrap();
    let names = |at| {
        let entries = std::fs::read_dir(at).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(fuse.at("")), ["d"]);
    assert_eq!(names(fuse.at("d")), ["b"]);
    let mut file = std::fs::File::options().append(true).open(fuse.at("d/b")).unwrap();
    file.set_len(3).unwrap();
    std::thread::scope(|scope| {
        let held = fuse.hold(Request::Write);
        let (says, done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            file.write_all(b" steps").unwrap();
            says.send(()).unwrap();
        });
        held.wait();
        assert_eq!(held.waiting(), 1);
        assert!(done.try_recv().is_err(), "the write waits for its answer");
        drop(held);
        common::receive(&done, "the write ends");
    });
    assert_eq!(std::fs::read(fuse.at("d/b")).unwrap(), b"fir steps");
    assert_eq!(fuse.seen(Request::Fsync), 0);
    std::fs::File::open(fuse.at("d/b")).unwrap().sync_all().unwrap();
    assert_eq!(fuse.seen(Request::Fsync), 1);
    std::fs::remove_file(fuse.at("d/b")).unwrap();
    std::fs::remove_dir(fuse.at("d")).unwrap();
    assert!(names(fuse.at("")).is_empty());
}

/// Runs an operation, and holds the request that it makes until the loop has served another source.
#[track_caller]
fn run_late(b: &mut Bench<Auto>, fuse: &Fuse, request: Request, what: &str, op: Op) -> Completion {
    run_unseen(b, fuse, &[request], what, op)
}

/// The same for the first of these requests. The others are held, too, and must not come before it.
#[track_caller]
fn run_unseen(
    b: &mut Bench<Auto>,
    fuse: &Fuse,
    requests: &[Request],
    what: &str,
    op: Op,
) -> Completion {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let other = b.watcher.attach(OwnedFd::from(ours)).expect("room for a source");
    let read = b.submit(Op::read(other));
    b.look();
    let holds: Vec<_> = requests.iter().map(|&request| fuse.hold(request)).collect();
    println!("{what}");
    let (served, c) = std::thread::scope(|scope| {
        let judge = scope.spawn(move || {
            holds[0].wait();
            theirs.write_all(b"ping").expect("a loop");
            let served = system::wait_readable(theirs.as_fd(), Some(BLOCKED));
            drop(holds);
            let _ = theirs.read(&mut [0; 4]);
            served
        });
        let ticket = b.submit(op);
        let ping = expect_read(b.end(read));
        assert_eq!(ping[..], *b"ping");
        b.write(other, "pong");
        let c = b.end(ticket);
        (judge.join().expect("a request comes"), c)
    });
    assert!(served, "{what}: the loop waited for the file system");
    b.watcher.abort(other);
    c
}

fn aligned(byte: u8, len: usize) -> AlignedBuf {
    AlignedBuf::from_slice(&vec![byte; len], 4096)
}

/// C9. Each operation on a file, with the request of the file system that answers late.
pub fn every_operation_on_a_slow_file<H: Harness<Driver = Auto>>(options: Options) {
    let Some(fuse) = Fuse::mount(options) else { return };
    let mut b = H::bench();
    let all = pattern(256 << 10, 1);
    let path = fuse.at("a");
    std::fs::write(&path, &all).unwrap();

    // What the kernel has cached is dropped when the file is opened.
    let c = run_late(&mut b, &fuse, Request::Open, "open", Op::open(&path, BOTH));
    let file = b.watcher.attach(expect_opened(c)).unwrap();
    let op = Op::read_at(file, room(5000), 100);
    let c = run_late(&mut b, &fuse, Request::Read, "the first read", op);
    expect_same(&expect_read(c), &all[100..5100]);
    let parts = Buf::list([room(4000), room(6000)]);
    let op = Op::read_at(file, parts, 200 << 10);
    let c = run_late(&mut b, &fuse, Request::Read, "a read into a list", op);
    expect_same(&expect_read(c).into_vec(), &all[200 << 10..][..10_000]);
    let op = Op::read_at(file, room(500), (256 << 10) - 100);
    let c = run_late(&mut b, &fuse, Request::GetAttr, "a read across the end", op);
    expect_same(&expect_read(c), &all[(256 << 10) - 100..]);
    let op = Op::write_at(file, vec![7; 3000], 1000);
    let c = run_late(&mut b, &fuse, Request::Write, "a write", op);
    expect_written(c);
    let op = Op::write_at(file, Buf::list([vec![8; 10], vec![9; 10]]), 256 << 10);
    let c = run_late(&mut b, &fuse, Request::Write, "a write of a list, at the end", op);
    expect_written(c);
    let c = run_late(&mut b, &fuse, Request::Fsync, "sync_all", Op::sync_all(file));
    expect_finished(c);
    let c = run_late(&mut b, &fuse, Request::Fsync, "sync_data", Op::sync_data(file));
    expect_finished(c);
    let c =
        run_late(&mut b, &fuse, Request::Allocate, "allocate", Op::allocate(file, 0, 300 << 10));
    expect_finished(c);
    let c = run_late(&mut b, &fuse, Request::SetAttr, "set_len", Op::set_len(file, 200 << 10));
    expect_finished(c);
    let c = run_late(&mut b, &fuse, Request::GetAttr, "metadata", Op::metadata(file));
    assert!(c.result.is_ok());
    let mut now = all[..200 << 10].to_vec();
    now[1000..4000].fill(7);
    expect_same(&std::fs::read(&path).unwrap(), &now);

    // Past the page cache.
    let direct = b.open_file(&path, DIRECT);
    let op = Op::read_at(direct, AlignedBuf::with_capacity(8192, 4096), 4096);
    let c = run_late(&mut b, &fuse, Request::Read, "a direct read", op);
    expect_same(&expect_read(c), &now[4096..][..8192]);
    let op = Op::write_at(direct, aligned(1, 4096), 0);
    let c = run_late(&mut b, &fuse, Request::Write, "a direct write", op);
    expect_written(c);
    let op = Op::write_at(direct, aligned(2, 4096), 200 << 10);
    let c = run_late(&mut b, &fuse, Request::Write, "a direct write at the end", op);
    expect_written(c);
    let list = Buf::list([aligned(3, 4096), aligned(4, 4096)]);
    let op = Op::write_at(direct, list, 204 << 10);
    let c = run_late(&mut b, &fuse, Request::Write, "a direct write of a list", op);
    expect_written(c);
    let c = run_late(&mut b, &fuse, Request::Fsync, "a direct sync", Op::sync_all(direct));
    expect_finished(c);
    now[..4096].fill(1);
    for byte in [2, 3, 4] {
        now.extend([byte; 4096]);
    }
    expect_same(&std::fs::read(&path).unwrap(), &now);
    b.expect_all_ended();
}

/// A file that the program has opened is looked at by its first operation.
pub fn the_first_operation_on_an_attached_file<H: Harness<Driver = Auto>>(options: Options) {
    let Some(fuse) = Fuse::mount(options) else { return };
    let mut b = H::bench();
    let path = fuse.at("a");
    std::fs::write(&path, pattern(100_000, 1)).unwrap();
    let attach = |b: &mut Bench<Auto>| {
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        b.watcher.attach(Handle::from(OwnedFd::from(file))).unwrap()
    };
    // No look at the kind of the file may ask the file system.
    for (what, op) in [
        ("read_at", Op::read_at as fn(_, Vec<u8>, u64) -> Op),
        ("write_at", |file, _, at| Op::write_at(file, vec![1; 1000], at)),
    ] {
        let file = attach(&mut b);
        let request = if what == "read_at" { Request::Read } else { Request::Write };
        let op = op(file, room(1000), 5000);
        let c = run_unseen(&mut b, &fuse, &[request, Request::GetAttr], what, op);
        assert!(c.result.is_ok(), "{c:?}");
    }
    let file = attach(&mut b);
    let c = run_late(&mut b, &fuse, Request::Fsync, "sync_all", Op::sync_all(file));
    expect_finished(c);
    let file = attach(&mut b);
    let c = run_late(&mut b, &fuse, Request::GetAttr, "metadata", Op::metadata(file));
    assert!(c.result.is_ok(), "{c:?}");
    // What is no operation on a file looks at the kind, too.
    let file = attach(&mut b);
    let asked = fuse.seen(Request::GetAttr);
    let _ = b.refuse(Op::read(file));
    assert_eq!(fuse.seen(Request::GetAttr), asked);
    b.expect_all_ended();
}

/// A range is read by a thread, whatever the system can tell about the page cache.
pub fn a_slow_file_is_sent<H: Harness<Driver = Auto>>(options: Options) {
    let Some(fuse) = Fuse::mount(options) else { return };
    let mut b = H::bench();
    let all = pattern(300_000, 1);
    std::fs::write(fuse.at("a"), &all).unwrap();
    for how in [READ, DIRECT] {
        let (here, there) = b.pair();
        let file = b.open_file(fuse.at("a"), how);
        let read = b.submit(Op::read_exact(there, room(290_000), 290_000));
        let op = Op::send_file(here, file, 8192, 290_000);
        let c = run_late(&mut b, &fuse, Request::Read, "send_file", op);
        assert_eq!(expect_sent(c), 290_000);
        expect_same(&expect_read(b.end(read)), &all[8192..][..290_000]);
        // Beyond the end.
        let read = b.submit(Op::read_exact(there, room(1000), 1000));
        let op = Op::send_file(here, file, 299_000, 5000);
        let c = run_late(&mut b, &fuse, Request::GetAttr, "send_file at the end", op);
        assert_eq!(expect_sent(c), 1000);
        expect_same(&expect_read(b.end(read)), &all[299_000..]);
    }
    b.expect_all_ended();
}

/// A range that a thread has to read waits until there is room for its job. The loop once read it
/// by itself.
pub fn a_range_waits_for_room_among_the_jobs<H: Harness<Driver = Auto>>(options: Options) {
    let Some(fuse) = Fuse::mount(options) else { return };
    let mut b = H::bench_with(Watcher::builder().max_jobs(1));
    let all = pattern(100_000, 1);
    std::fs::write(fuse.at("a"), &all).unwrap();
    let file = b.open_file(fuse.at("a"), READ);
    let (here, there) = b.pair();
    let (gone, other) = b.pair();
    let (job, gate) = hold(&mut b);
    let send = b.submit(Op::send_file(here, file, 1000, 90_000));
    let given_up = b.submit(Op::send_file(gone, file, 0, 90_000));
    let behind = b.submit(Op::write(gone, "behind"));
    b.look();
    assert!(b.is_open(send) && b.is_open(behind), "no thread may read");
    assert!(b.watcher.cancel(given_up));
    expect_unmoved(b.end(given_up), ErrorKind::Cancelled);
    assert_eq!(b.read_exact(other, 6), b"behind");
    expect_written(b.end(behind));
    assert_eq!(fuse.seen(Request::Read), 0);
    drop(gate);
    expect_held(b.end(job));
    expect_same(&b.read_exact(there, 90_000), &all[1000..][..90_000]);
    assert_eq!(expect_sent(b.end(send)), 90_000);
    b.expect_all_ended();
}

/// Operations on names.
pub fn slow_names<H: Harness<Driver = Auto>>(options: Options) {
    let Some(fuse) = Fuse::mount(options) else { return };
    let mut b = H::bench();
    let at = |name: &str| fuse.at(name);
    let from: &Path = &at("a");
    std::fs::write(from, pattern(100_000, 1)).unwrap();
    for (what, request, op) in [
        ("stat", Request::Lookup, Op::metadata(from)),
        ("create", Request::Create, Op::open(at("new"), BOTH.create(true))),
        ("rename", Request::Rename, Op::rename(at("new"), at("old"))),
        ("remove", Request::Unlink, Op::remove_file(at("old"))),
        ("create_dir", Request::MkDir, Op::create_dir(at("d"), 0o755)),
        ("read_dir", Request::ReadDir, Op::read_dir(at(""))),
        ("remove_dir", Request::RmDir, Op::remove_dir(at("d"))),
        ("stat_fs", Request::StatFs, Op::statfs(from)),
        ("copy", Request::Read, Op::copy(from, at("copy"), CopyOptions::new())),
        ("copy", Request::Write, Op::copy(from, at("again"), CopyOptions::new())),
    ] {
        let c = run_late(&mut b, &fuse, request, what, op);
        assert!(c.result.is_ok(), "{what}: {c:?}");
    }
    expect_same(&std::fs::read(at("copy")).unwrap(), &pattern(100_000, 1));
    b.expect_all_ended();
}

macro_rules! stamp {
    ($($driver:ident $harness:ident)*) => {
        $(mod $driver {
            use crate::common::fuse::Options;
            stamp! { of $harness:
                every_operation_on_a_slow_file the_first_operation_on_an_attached_file
                a_slow_file_is_sent a_range_waits_for_room_among_the_jobs slow_names }
        })*
    };
    (of $harness:ident: $($body:ident)*) => {
        $(#[test]
        fn $body() {
            for sync_read in [false, true] {
                crate::$body::<crate::common::$harness>(Options { sync_read });
            }
        })*
    };
}

stamp! {
    epoll Epoll
    epoll_aio EpollAio
    epoll_uring EpollUring
    epoll_pool EpollPool
    uring_files UringFiles
    uring_pool UringPool
    poll_pool PollPool
}
