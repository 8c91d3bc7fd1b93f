//! Files where the system denies, is short of, or takes away: each in a process of its own.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // filters, limits and mounts need libc

mod common;

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::files::*;
use common::system::{self, deny};
use common::*;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{
    AlignedBuf, Buf, Builder, Completions, DriverKind, ErrorKind, Op, Refusal, Watcher,
};

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

fn epoll() -> Builder {
    Watcher::builder().driver(DriverKind::Epoll)
}

fn bench(builder: Builder) -> Bench<windlass::driver::Auto> {
    Bench::new(builder.build().expect("a watcher"), Epoll::address())
}

fn page() -> AlignedBuf {
    AlignedBuf::with_capacity(4096, 4096)
}

/// The operations of the rows of `explain` for a ring and for AIO.
const RING: &str = "direct reads, writes; syncs; uncached reads";
const AIO: &str = "direct reads; syncs";

/// The mechanism, the reason, and the count.
fn row(b: &Bench<windlass::driver::Auto>, operation: &str) -> (String, String, u64) {
    let explain = b.watcher.explain();
    let row = explain.rows.iter().find(|row| row.operation == operation);
    let row = row.expect("there is a row");
    (row.mechanism.clone(), row.reason.clone(), row.count)
}

/// Reads and writes of every kind, by any mechanism.
fn expect_files_work(b: &mut Bench<windlass::driver::Auto>, directory: &Directory) {
    let file = b.open_file(directory.at("direct"), DIRECT);
    for i in 0..40 {
        b.submit(Op::write_at(file, AlignedBuf::from_slice(&[i as u8; 4096], 4096), i * 4096));
    }
    for _ in 0..40 {
        let c = b.next();
        expect_written(c);
    }
    for i in 0..40 {
        let data = expect_read(b.run(Op::read_at(file, page(), i * 4096)));
        assert!(data.len() == 4096 && data.iter().all(|&byte| byte == i as u8));
    }
    expect_finished(b.run(Op::sync_all(file)));
    expect_finished(b.run(Op::sync_data(file)));
    let file = b.make_file(directory.at("cached"));
    b.write_at(file, "cached", 0);
    assert_eq!(b.read_at(file, 10, 0), b"cached");
    b.expect_all_ended();
}

/// By default the next available mechanism does the work of a denied one, in the order ring, AIO,
/// threads, and `explain` says why. A mechanism chosen by name is an error.
#[test]
fn a_denied_setup_is_told() {
    const NAME: &str = "a_denied_setup_is_told";
    // EAGAIN: `fs.aio-max-nr` is used up.
    let errnos = [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EAGAIN];
    for errno in errnos {
        let role = format!("{NAME} {errno}");
        if child::is_child(&role) {
            deny(&[libc::SYS_io_setup], errno);
            let reason = io::Error::from_raw_os_error(errno).to_string();
            let error = epoll().file_backend(FileBackend::Aio).build().unwrap_err();
            // Room in `fs.aio-max-nr` may come.
            let kind = match errno {
                libc::EAGAIN => io::ErrorKind::WouldBlock,
                _ => io::ErrorKind::Unsupported,
            };
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains("io_setup(2)") && text.contains(&reason), "{text}");
            assert_eq!(text.contains("fs.aio-max-nr is"), errno == libc::EAGAIN, "{text}");
            let directory = Directory::new();
            let mut b = bench(epoll());
            expect_files_work(&mut b, &directory);
            let (by, _, count) = row(&b, RING);
            assert!(by == "a ring of io_uring" && count >= 82, "{by}: {count}");
            assert_eq!(row(&b, AIO).2, 0);
            deny(&[libc::SYS_io_uring_setup], errno);
            let error = epoll().file_backend(FileBackend::Uring).build().unwrap_err();
            let text = error.to_string();
            assert!(text.contains("io_uring_setup(2)") && text.contains(&reason), "{text}");
            let mut b = bench(epoll());
            expect_files_work(&mut b, &directory);
            for (work, by, call) in [
                (RING, "not a ring of io_uring", "io_uring_setup(2)"),
                (AIO, "not Linux AIO", "io_setup(2)"),
            ] {
                let (found, why, count) = row(&b, work);
                assert_eq!((&*found, count), (by, 0));
                assert!(why.contains(call) && why.contains(&reason), "{why}");
            }
            println!("denied as it should be");
            return;
        }
    }
    if std::env::var_os("WINDLASS_TEST_CHILD").is_some() {
        return;
    }
    for errno in errnos {
        let (ended, text) = child::finish(child::spawn(NAME, &format!("{NAME} {errno}")));
        assert!(ended && text.contains("denied as it should be"), "errno {errno}: {text}");
    }
}

/// Without a ring, AIO does direct reads and syncs. Threads do direct writes, which could block in
/// io_submit(2).
#[test]
fn aio_does_what_it_can_where_there_is_no_ring() {
    child::in_child("aio_does_what_it_can_where_there_is_no_ring", || {
        deny(&[libc::SYS_io_uring_setup], libc::ENOSYS);
        let directory = Directory::new();
        let mut b = bench(epoll());
        expect_files_work(&mut b, &directory);
        assert_eq!(row(&b, RING).0, "not a ring of io_uring");
        let (by, why, count) = row(&b, AIO);
        assert_eq!((&*by, count), ("Linux AIO", 42), "{why}");
        let (by, why, count) = row(&b, "direct reads, writes");
        assert_eq!((&*by, count), ("threads", 40));
        assert!(why.contains("frozen"), "{why}");
    });
}

/// As in many containers: with neither AIO nor io_uring there is epoll, and threads for files.
#[test]
fn aio_and_io_uring_both_denied_leave_epoll_and_threads() {
    child::in_child("aio_and_io_uring_both_denied_leave_epoll_and_threads", || {
        deny(&[libc::SYS_io_setup, libc::SYS_io_uring_setup], libc::EPERM);
        for (builder, call) in [
            (Watcher::builder().driver(DriverKind::Uring), "io_uring_setup(2)"),
            (Watcher::builder().file_backend(FileBackend::Uring), "io_uring_setup(2)"),
            (epoll().file_backend(FileBackend::Aio), "io_setup(2)"),
        ] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(call), "{error}");
        }
        let directory = Directory::new();
        let mut b = bench(Watcher::builder());
        let (here, there) = b.pair();
        b.cross(here, there, b"over epoll");
        expect_files_work(&mut b, &directory);
        assert!(row(&b, RING).1.contains("io_uring_setup(2)"));
        assert!(row(&b, AIO).1.contains("io_setup(2)"));
        assert!(b.watcher.abort(here) && b.watcher.abort(there));
    });
}

/// `explain` made a ring to find out whether there could be one.
#[test]
fn explain_makes_no_ring() {
    child::in_child("explain_makes_no_ring", || {
        let b = bench(Watcher::builder());
        let before = b.watcher.explain();
        deny(&[libc::SYS_io_uring_setup], libc::EPERM);
        assert_eq!(format!("{:?}", b.watcher.explain()), format!("{before:?}"));
    });
}

/// `explain` says why sockets are not on a ring, unless the program chose the driver.
#[test]
fn sockets_that_the_ring_is_not_given_are_explained() {
    let of = |b: &Bench<windlass::driver::Auto>| {
        b.watcher.explain().rows.into_iter().find(|row| row.operation == "sockets")
    };
    if std::env::var_os("WINDLASS_DRIVER").is_none() {
        let row = of(&bench(Watcher::builder())).expect("a row");
        assert_eq!(row.mechanism, "not io_uring");
        assert!(row.reason.contains("measured"), "{}", row.reason);
    }
    assert!(of(&bench(epoll())).is_none());
}

/// `explain` names `kernel.io_uring_disabled` where it denies the ring, for sockets and for files.
/// The setting is global: this test runs alone, with `WINDLASS_EXHAUST=1`.
#[test]
fn a_disabled_ring_is_told() {
    const PATH: &str = "/proc/sys/kernel/io_uring_disabled";
    struct Back(String);
    impl Drop for Back {
        fn drop(&mut self) {
            let _ = std::fs::write(PATH, &self.0);
        }
    }
    if std::env::var_os("WINDLASS_EXHAUST").is_none() {
        return skip(Needs::Luck, "a disabled ring: WINDLASS_EXHAUST is not set");
    }
    let Ok(before) = std::fs::read_to_string(PATH) else {
        return skip(Needs::Luck, format_args!("a disabled ring: {PATH} is not there"));
    };
    let back = Back(before);
    if let Err(error) = std::fs::write(PATH, "2") {
        return skip(Needs::Root, format_args!("a disabled ring: {PATH}: {error}"));
    }
    let told = |text: &str| {
        assert!(text.contains("kernel.io_uring_disabled is 2"), "{text}");
    };
    told(&epoll().file_backend(FileBackend::Uring).build().unwrap_err().to_string());
    told(&Watcher::builder().driver(DriverKind::Uring).build().unwrap_err().to_string());
    let directory = Directory::new();
    let mut b = bench(Watcher::builder());
    expect_files_work(&mut b, &directory);
    told(&row(&b, RING).1);
    told(&row(&b, "sockets").1);
    drop(back);
}

/// `fs.aio-max-nr` is one number for the whole system: when others have used it up, threads do it.
/// Other users of AIO are refused meanwhile, so this test runs alone, with `WINDLASS_EXHAUST=1`.
#[test]
fn no_requests_left_is_told() {
    const NAME: &str = "no_requests_left_is_told";
    if std::env::var_os("WINDLASS_EXHAUST").is_none() {
        return skip(Needs::Luck, "no requests left: WINDLASS_EXHAUST is not set");
    }
    child::in_child(NAME, || {
        let directory = Directory::new();
        let mut held = Vec::new();
        let error = loop {
            match epoll().file_backend(FileBackend::Aio).build() {
                Ok(watcher) => held.push(watcher),
                Err(error) => break error,
            }
            if held.len() == 400 {
                return skip(Needs::Luck, "no requests left: there are very many");
            }
        };
        println!("{} watchers with AIO, then: {error}", held.len());
        assert!(error.to_string().contains("fs.aio-max-nr"), "{error}");
        deny(&[libc::SYS_io_uring_setup], libc::ENOSYS);
        let mut b = bench(epoll());
        expect_files_work(&mut b, &directory);
        let (by, why, _) = row(&b, AIO);
        assert_eq!(by, "not Linux AIO");
        assert!(why.contains("fs.aio-max-nr"), "{why}");
        // What they give back can be had again.
        drop(held);
        // The kernel gives contexts back a while after they are destroyed.
        until("there are requests left", || epoll().file_backend(FileBackend::Aio).build().is_ok());
    });
}

/// More at once than a context has entries: all of them are done, by one way or the other.
#[test]
fn a_full_context_loses_nothing() {
    const COUNT: u64 = 3000;
    let directory = Directory::new();
    for files in [FileBackend::Uring, FileBackend::Aio, FileBackend::Pool] {
        let mut b = bench(epoll().file_backend(files));
        let file = b.open_file(directory.at("a"), DIRECT);
        b.write_at(file, AlignedBuf::from_slice(&pattern(1 << 20, 1), 4096), 0);
        for i in 0..COUNT {
            b.submit(Op::read_at(file, page(), i % 256 * 4096).token(i));
        }
        let all = pattern(1 << 20, 1);
        for _ in 0..COUNT {
            let c = b.next();
            let at = c.token as usize % 256 * 4096;
            expect_same(&expect_read(c), &all[at..at + 4096]);
        }
        b.expect_all_ended();
    }
    let mut b = bench(Watcher::builder().driver(DriverKind::Uring));
    let file = b.open_file(directory.at("a"), DIRECT);
    for i in 0..COUNT {
        b.submit(Op::read_at(file, page(), i % 256 * 4096));
    }
    for _ in 0..COUNT {
        assert_eq!(expect_read(b.next()).len(), 4096);
    }
    b.expect_all_ended();
}

/// Sets the limit of descriptors, to a value that leaves none unless another is given. Returns what
/// it was.
fn limit_descriptors(soft: Option<u64>) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives across the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let before = limit.rlim_cur;
    let next = || std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    limit.rlim_cur = soft.unwrap_or_else(next);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    before
}

/// An engine that found no descriptor at the first file was given up for the watcher's life. Now it
/// is tried again after a while.
#[test]
fn a_shortage_at_the_first_file_passes() {
    child::in_child("a_shortage_at_the_first_file_passes", || {
        let directory = Directory::new();
        std::fs::write(directory.at("a"), pattern(4096, 1)).unwrap();
        for (files, work) in [(0, RING), (libc::SYS_io_uring_setup, AIO)] {
            if files != 0 {
                deny(&[files], libc::ENOSYS);
            }
            let mut b = bench(epoll());
            let direct = b.open_file(directory.at("a"), DIRECT);
            let limit = limit_descriptors(None);
            let data = expect_read(b.run(Op::read_at(direct, page(), 0)));
            expect_same(&data, &pattern(4096, 1));
            let (_, why, count) = row(&b, work);
            assert!(why.contains("Too many open files"), "{why}");
            assert_eq!(count, 0);
            limit_descriptors(Some(limit));
            until("the engine serves again", || {
                let data = expect_read(b.run(Op::read_at(direct, page(), 0)));
                expect_same(&data, &pattern(4096, 1));
                row(&b, work).2 > 0
            });
            b.expect_all_ended();
        }
    });
}

/// One `ENOMEM` of io_uring_enter(2) denied the ring for the watcher's life.
#[test]
fn a_ring_without_memory_is_made_again() {
    child::in_child("a_ring_without_memory_is_made_again", || {
        let directory = Directory::new();
        std::fs::write(directory.at("a"), pattern(4096, 1)).unwrap();
        let mut b = bench(epoll());
        let direct = b.open_file(directory.at("a"), DIRECT);
        expect_read(b.run(Op::read_at(direct, page(), 0)));
        let (by, why, before) = row(&b, RING);
        if by != "a ring of io_uring" {
            return skip(Needs::Uring, why);
        }
        let is_ring = |fd: &i32| {
            std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .is_ok_and(|link| link.to_string_lossy().contains("io_uring"))
        };
        let ring = (0..100).find(is_ring).expect("it is open");
        system::deny_of(libc::SYS_io_uring_enter, ring, libc::ENOMEM);
        let mut taken = Vec::new();
        until("another ring serves", || {
            let data = expect_read(b.run(Op::read_at(direct, page(), 0)));
            expect_same(&data, &pattern(4096, 1));
            if taken.is_empty() && !is_ring(&ring) {
                // The next ring gets another number, which is not denied.
                while taken.last().is_none_or(|file: &std::fs::File| file.as_raw_fd() < ring) {
                    taken.push(std::fs::File::open("/dev/null").unwrap());
                }
            }
            !taken.is_empty() && row(&b, RING).0 == "a ring of io_uring"
        });
        assert!(before > 0);
        expect_read(b.run(Op::read_at(direct, page(), 0)));
        assert!(row(&b, RING).2 > 0);
        b.expect_all_ended();
    });
}

/// A thread that cannot be made is an error; work that needs none goes on.
#[test]
fn no_threads_at_all() {
    child::in_child("no_threads_at_all", || {
        let directory = Directory::new();
        let memory = directories().into_iter().nth(1);
        std::fs::write(directory.at("a"), pattern(4096, 1)).unwrap();
        let open = |path: &Path| {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = std::fs::File::options();
            options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
            options.open(path)
        };
        // Bytes that are not on the disk yet cannot be read directly without waiting.
        std::fs::File::open(directory.at("a")).unwrap().sync_all().unwrap();
        let mut b = bench(epoll().file_backend(FileBackend::Aio));
        let cached = b.watcher.attach(std::fs::File::open(directory.at("a")).unwrap()).unwrap();
        let direct = b.watcher.attach(open(&directory.at("a")).unwrap()).unwrap();
        assert_eq!(b.read_at(cached, 4096, 0).len(), 4096);
        deny(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        for _ in 0..3 {
            assert_eq!(b.refuse(Op::run(|| ())).0, Refusal::Os(libc::EAGAIN));
            let list = Buf::list(["ke", "pt"]);
            let (reason, op) = b.refuse(Op::write_at(direct, list, 0));
            assert_eq!((reason, op.buf().len()), (Refusal::Os(libc::EAGAIN), 4));
            let (reason, op) = b.refuse(Op::open(directory.at("a"), DIRECT));
            assert_eq!(reason, Refusal::Os(libc::EAGAIN));
            assert!(b.watcher.submit(op).is_err(), "it is whole");
        }
        assert_eq!(b.read_at(cached, 4096, 0).len(), 4096);
        expect_same(&expect_read(b.run(Op::read_at(direct, page(), 0))), &pattern(4096, 1));
        // What a file system does not do without waiting is for threads alone.
        if let Some(Ok(file)) = memory.map(|memory| open(&memory.at("a"))) {
            let file = b.watcher.attach(file).unwrap();
            let (reason, op) = b.refuse(Op::read_at(file, page(), 0));
            assert_eq!((reason, op.buf().capacity()), (Refusal::Os(libc::EAGAIN), 4096));
        }
        b.expect_all_ended();
    });
}

/// Mounts a tiny file system in memory that only this process sees.
fn tiny(at: &Path) -> Result<(), String> {
    let call = |what: &str, answer: i32| match answer {
        0 => Ok(()),
        _ => Err(format!("{what}: {}", io::Error::last_os_error())),
    };
    let text = |text: &[u8]| CString::new(text).expect("no NUL");
    let (kind, size, at) = (text(b"tmpfs"), text(b"size=64k"), text(at.as_os_str().as_bytes()));
    let (root, none) = (text(b"/"), std::ptr::null::<libc::c_char>());
    // SAFETY: no memory is passed.
    call("unshare", unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: strings that end in NUL.
    let answer =
        unsafe { libc::mount(none.cast(), root.as_ptr(), none.cast(), private, none.cast()) };
    call("mount", answer)?;
    // SAFETY: as above.
    let answer =
        unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, size.as_ptr().cast()) };
    call("mount", answer)
}

/// `ENOSPC` says how much is written nevertheless.
#[test]
fn a_full_disk_says_how_much_is_written() {
    child::in_child("a_full_disk_says_how_much_is_written", || {
        let directory = Directory::new();
        std::fs::create_dir(directory.at("tiny")).unwrap();
        if let Err(why) = tiny(&directory.at("tiny")) {
            return skip(Needs::Root, format_args!("a full disk: {why}"));
        }
        for files in [FileBackend::Uring, FileBackend::Aio, FileBackend::Pool] {
            full_disk(bench(epoll().file_backend(files)), &directory);
        }
        for files in [FileBackend::Uring, FileBackend::Pool] {
            full_disk(
                bench(Watcher::builder().driver(DriverKind::Uring).file_backend(files)),
                &directory,
            );
        }
        // A directory that is mounted on cannot be removed.
        let at = CString::new(directory.at("tiny").as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: a string that ends in NUL.
        assert_eq!(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) }, 0);
    });
}

/// A process that was killed leaves its directory; a later one may have the same number.
#[test]
fn a_directory_that_was_left_is_not_in_the_way() {
    child::in_child("a_directory_that_was_left_is_not_in_the_way", || {
        let name = format!("windlass-{}-0", std::process::id());
        let left = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&left).unwrap();
        assert_ne!(Directory::new().path(), left);
        std::fs::remove_dir(left).unwrap();
    });
}

fn full_disk(mut b: Bench<windlass::driver::Auto>, directory: &Directory) {
    let file = b.make_file(directory.at("tiny/a"));
    let whole = pattern(100_000, 1);
    let list = whole.chunks(30_000).map(|part| Buf::from(part.to_vec())).collect::<Vec<_>>();
    for buf in [Buf::from(whole.clone()), Buf::list(list)] {
        let c = b.run(Op::write_at(file, buf, 0));
        assert!(!c.is_late());
        let (bytes, buf) = expect_error(c, ErrorKind::Os(libc::ENOSPC));
        assert_eq!(buf.len(), 100_000);
        assert!((32 << 10..100_000).contains(&bytes), "{bytes} bytes");
        expect_same(&b.read_at(file, bytes, 0), &whole[..bytes]);
    }
    let c = b.run(Op::allocate(file, 0, 1 << 20));
    expect_errno(c, &[libc::ENOSPC, libc::EOPNOTSUPP]);
    let c = b.run(Op::open(directory.at("tiny/b"), DIRECT));
    if let Ok(windlass::Done::Opened(direct)) = c.result {
        let direct = b.watcher.attach(direct).unwrap();
        let buf = AlignedBuf::from_slice(&[1; 4096], 4096);
        let buf = expect_errno(b.run(Op::write_at(direct, buf, 0)), &[libc::ENOSPC]);
        assert_eq!(buf.into_aligned().unwrap().len(), 4096);
    }
    let from = directory.at("tiny/a");
    let c = b.run(Op::copy(from, directory.at("tiny/c"), windlass::fs::CopyOptions::new()));
    expect_errno(c, &[libc::ENOSPC]);
    assert!(!directory.at("tiny/c").exists(), "a copy that fails is removed");
    expect_finished(b.run(Op::set_len(file, 0)));
    b.write_at(file, "room again", 0);
    expect_finished(b.run(Op::remove_file(directory.at("tiny/a"))));
    b.expect_all_ended();
}

/// A limit of the process for the size of files.
#[test]
fn a_file_that_is_too_big() {
    child::in_child("a_file_that_is_too_big", || {
        // SAFETY: the signal is ignored, so that the calls say what is the matter.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let limit = libc::rlimit { rlim_cur: 16 << 10, rlim_max: 16 << 10 };
        // SAFETY: the limit lives across the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        let directory = Directory::new();
        let kinds = [
            (DriverKind::Epoll, FileBackend::Uring),
            (DriverKind::Epoll, FileBackend::Aio),
            (DriverKind::Epoll, FileBackend::Pool),
            (DriverKind::Uring, FileBackend::Uring),
            (DriverKind::Poll, FileBackend::Pool),
        ];
        for (driver, files) in kinds {
            let mut b = bench(Watcher::builder().driver(driver).file_backend(files));
            let file = b.make_file(directory.at("a"));
            let c = b.run(Op::write_at(file, vec![1; 20_000], 0));
            let (bytes, buf) = expect_error(c, ErrorKind::Os(libc::EFBIG));
            assert_eq!((bytes, buf.len()), (16 << 10, 20_000));
            let c = b.run(Op::write_at(file, vec![1; 10], 16 << 10));
            expect_unmoved(c, ErrorKind::Os(libc::EFBIG));
            let direct = b.open_file(directory.at("b"), DIRECT);
            let buf = AlignedBuf::from_slice(&[1; 4096], 4096);
            let c = b.run(Op::write_at(direct, buf, 16 << 10));
            let buf = expect_unmoved(c, ErrorKind::Os(libc::EFBIG));
            assert_eq!(buf.into_aligned().unwrap().len(), 4096);
            // A write across the limit stops there: the kernel answers with a short count.
            let whole = AlignedBuf::from_slice(&pattern(20 << 10, 2), 4096);
            let (bytes, buf) =
                expect_error(b.run(Op::write_at(direct, whole, 0)), ErrorKind::Os(libc::EFBIG));
            assert_eq!((bytes, buf.len()), (16 << 10, 20 << 10), "{driver:?} {files:?}");
            expect_same(&std::fs::read(directory.at("b")).unwrap(), &pattern(20 << 10, 2)[..bytes]);
            expect_errno(b.run(Op::set_len(file, 20_000)), &[libc::EFBIG]);
            std::fs::remove_file(directory.at("a")).unwrap();
            b.expect_all_ended();
        }
    });
}

/// An open file stays when its directory is removed.
#[test]
fn a_directory_that_is_removed() {
    for files in [FileBackend::Uring, FileBackend::Aio, FileBackend::Pool] {
        let directory = Directory::new();
        let mut b = bench(epoll().file_backend(files));
        let inner = directory.at("in");
        expect_finished(b.run(Op::create_dir(&inner, 0o700)));
        let (file, above) =
            (b.make_file(inner.join("a")), b.open_file(&inner, OpenOptions::new().read(true)));
        std::fs::remove_dir_all(&inner).unwrap();
        b.write_at(file, "still", 0);
        assert_eq!(b.read_at(file, 9, 0), b"still");
        expect_finished(b.run(Op::sync_all(file)));
        expect_finished(b.run(Op::sync_all(above)));
        for op in [
            Op::open(inner.join("a"), OpenOptions::new().read(true)),
            Op::read_dir(&inner),
            Op::metadata(&inner),
            Op::remove_file(inner.join("a")),
            Op::create_temp_file(inner.join("XXXXXX")),
        ] {
            expect_errno(b.run(op), &[libc::ENOENT]);
        }
        b.expect_all_ended();
    }
}

/// Memory with a marker, whose count of owners shows whether the memory was freed.
struct Marked(AlignedBuf, #[allow(dead_code)] std::sync::Arc<()>);

impl AsRef<[u8]> for Marked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Dropping a watcher also closes the files and frees the memory of finished requests whose answers
/// the loop has not taken.
#[test]
fn untaken_answers_are_dropped_with_the_watcher() {
    child::in_child("untaken_answers_are_dropped_with_the_watcher", || {
        let directory = Directory::new();
        let before = system::descriptors();
        for closes in [true, false] {
            let mut b = bench(epoll().file_backend(FileBackend::Uring));
            let ear = system::Ear::of_the_only("eventpoll");
            let file = b.open_file(directory.at("a"), DIRECT);
            b.write_at(file, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
            let number = system::number(&mut b, file);
            let marker = std::sync::Arc::new(());
            let page = Marked(AlignedBuf::from_slice(&[7; 4096], 4096), marker.clone());
            ear.shut();
            b.submit(Op::write_at(file, Buf::from_owner(page), 0));
            b.watcher.try_wait(&mut Completions::new()).unwrap_err();
            until("the page is written", || has_answers(&mut b));
            assert_eq!(std::fs::read(directory.at("a")).unwrap(), [7; 4096]);
            if closes {
                b.watcher.close();
            }
            drop(b);
            assert!(!system::is_open(number), "the file is still open");
            assert_eq!(std::sync::Arc::strong_count(&marker), 1, "a buffer is left");
            assert_eq!(windlass::driver::leaked_buffers(), 0);
            drop(ear);
        }
        let mut b = bench(epoll().file_backend(FileBackend::Aio));
        let ear = system::Ear::of_the_only("eventpoll");
        let file = b.open_file(directory.at("a"), DIRECT);
        ear.shut();
        let read = b.submit(Op::read_at(file, page(), 0));
        b.watcher.try_wait(&mut Completions::new()).unwrap_err();
        until("the page is read", || has_answers(&mut b));
        assert_eq!(row(&b, AIO).2, 1);
        assert!(b.is_open(read));
        drop(b);
        assert_eq!(windlass::driver::leaked_buffers(), 0, "it had ended");
        drop(ear);
        assert_eq!(system::descriptors(), before);
    });
}

/// Whether answers are there, without a wait.
fn has_answers(b: &mut Bench<windlass::driver::Auto>) -> bool {
    b.watcher.next_timeout() == Some(std::time::Duration::ZERO)
}

/// A forked child has neither threads nor contexts; the parent's go on.
#[test]
fn a_forked_child_is_told() {
    child::in_child("a_forked_child_is_told", || {
        let directory = Directory::new();
        for (driver, files) in [
            (DriverKind::Epoll, FileBackend::Uring),
            (DriverKind::Epoll, FileBackend::Aio),
            (DriverKind::Epoll, FileBackend::Pool),
            (DriverKind::Uring, FileBackend::Uring),
        ] {
            let mut b = bench(Watcher::builder().driver(driver).file_backend(files));
            let file = b.make_file(directory.at("a"));
            let direct = b.open_file(directory.at("a"), DIRECT);
            b.write_at(file, vec![1; 8192], 0);
            expect_read(b.run(Op::read_at(direct, page(), 0)));
            let (held, gate) = hold(&mut b);
            let read = b.submit(Op::read_at(direct, page(), 0));
            // SAFETY: the child only looks at the watcher, and leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let mut forked = |op: Op| {
                    let refused = b.watcher.submit(op).unwrap_err();
                    refused.reason == Refusal::Forked
                };
                let all = forked(Op::read_at(file, room(9), 0))
                    && forked(Op::write_at(direct, vec![1; 9], 0))
                    && forked(Op::sync_all(file))
                    && forked(Op::metadata(file))
                    && forked(Op::metadata("/"))
                    && forked(Op::run(|| ()))
                    && forked(Op::send_file(file, file, 0, 1))
                    && !b.watcher.cancel(held)
                    && !b.watcher.abort(file);
                drop(b);
                // SAFETY: nothing of the harness runs here.
                unsafe { libc::_exit(if all { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: room for one status.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0, "the child of {driver:?} {files:?}");
            drop(gate);
            expect_held(b.end(held));
            assert_eq!(expect_read(b.end(read)).len(), 4096);
            b.write_at(file, "as before", 0);
            b.expect_all_ended();
        }
    });
}

/// Settings of the environment, right and wrong ones.
#[test]
fn choices_of_the_environment() {
    const NAME: &str = "choices_of_the_environment";
    let table: [(&str, &str, &str); 14] = [
        ("WINDLASS_FILES", "aio", "O_DIRECT and aligned, with RWF_NOWAIT"),
        ("WINDLASS_FILES", "pool", "threads"),
        ("WINDLASS_FILES", "auto", "a ring of io_uring"),
        ("WINDLASS_FILES", "", "a ring of io_uring"),
        ("WINDLASS_FILES", "uring", "a ring of io_uring"),
        ("WINDLASS_FILES", "AIO", "!there are auto, aio, pool and uring"),
        ("WINDLASS_FILES", "threads", "!WINDLASS_FILES"),
        ("WINDLASS_THREADS", "7", "7 threads"),
        ("WINDLASS_THREADS", " 1024 ", "1024 threads"),
        ("WINDLASS_THREADS", "0", "!WINDLASS_THREADS"),
        ("WINDLASS_THREADS", "1025", "!1 to 1024"),
        ("WINDLASS_THREADS", "-1", "!WINDLASS_THREADS"),
        ("WINDLASS_THREADS", "many", "!\"many\""),
        ("WINDLASS_THREADS", "", "!WINDLASS_THREADS"),
    ];
    for (i, (_, value, wanted)) in table.into_iter().enumerate() {
        if child::is_child(&format!("{NAME} {i}")) {
            match (epoll().build(), wanted.strip_prefix('!')) {
                (Ok(watcher), None) => {
                    let text = watcher.explain().to_string();
                    assert!(text.contains(wanted), "{value:?}: {text}");
                }
                (Err(error), Some(wanted)) => {
                    let text = error.to_string();
                    assert!(text.contains(wanted), "{value:?}: {text}");
                }
                (answer, _) => panic!("{value:?}: {answer:?}"),
            }
            // What the program says goes before.
            let watcher = epoll().file_backend(FileBackend::Pool).threads(3).build().unwrap();
            assert!(watcher.explain().to_string().contains("of 3 threads"));
            println!("as it should be");
            return;
        }
    }
    if std::env::var_os("WINDLASS_TEST_CHILD").is_some() {
        return;
    }
    for (i, (variable, value, _)) in table.into_iter().enumerate() {
        let mut command = child::command(NAME, &format!("{NAME} {i}"));
        let (ended, text) = child::finish(command.env(variable, value).spawn().unwrap());
        assert!(ended && text.contains("as it should be"), "{variable}={value:?}: {text}");
    }
}

/// An explicit choice never falls back.
#[test]
fn choices_that_cannot_be() {
    let build = |driver, files| Watcher::builder().driver(driver).file_backend(files).build();
    for (driver, files) in [
        (DriverKind::Poll, FileBackend::Uring),
        (DriverKind::Uring, FileBackend::Aio),
        (DriverKind::Poll, FileBackend::Aio),
    ] {
        let error = build(driver, files).expect_err(&format!("{driver:?} with {files:?}"));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains(&format!("{files:?}")) && text.contains(&format!("{driver:?}")));
    }
    for count in [0, 1025] {
        let error = epoll().threads(count).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{count}: {error}");
    }
    if std::env::var_os("WINDLASS_DRIVER").is_none() {
        // The driver of sockets stays the same.
        for files in [FileBackend::Uring, FileBackend::Aio] {
            assert_eq!(build(DriverKind::Auto, files).unwrap().explain().driver, "epoll");
        }
    }
}
