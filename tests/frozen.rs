//! A frozen file system, as for a snapshot: only writes to it wait until the thaw. Each test runs
//! in a process of its own, on disks of its own.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // mounts and freezing need libc

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::files::*;
use common::*;
use windlass::driver::Auto;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{AlignedBuf, DriverKind, Op, Source, Ticket, Watcher};

const DIRECT: OpenOptions = OpenOptions::new().read(true).write(true).create(true).direct(true);

/// The drivers and file backends.
const ALL: [(DriverKind, FileBackend); 6] = [
    (DriverKind::Epoll, FileBackend::Auto),
    (DriverKind::Epoll, FileBackend::Uring),
    (DriverKind::Epoll, FileBackend::Aio),
    (DriverKind::Epoll, FileBackend::Pool),
    (DriverKind::Uring, FileBackend::Uring),
    (DriverKind::Poll, FileBackend::Pool),
];

/// A guard thaws the file system after this time, even if the test hangs.
const LONGEST: Duration = Duration::from_secs(30);
/// Much less than that, and more than a busy machine keeps a loop waiting.
const PROMPT: Duration = Duration::from_secs(3);

/// Runs a program to its end.
fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}

/// A file system in a file, mounted where only this thread and those that it starts see it.
struct Disk(PathBuf);

impl Disk {
    fn new(image: &Path, at: &Path) -> Result<Disk, String> {
        let file = File::create(image).map_err(|error| error.to_string())?;
        file.set_len(32 << 20).map_err(|error| error.to_string())?;
        std::fs::create_dir(at).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), image, at])?;
        Ok(Disk(at.to_owned()))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Requests in the kernel keep the mount until they have ended.
        let _ = run("umount", &["-l".as_ref(), &self.0]);
    }
}

/// A disk, and another disk in a file of the first: writes to the second pass through the first.
struct Disks {
    inner: Disk,
    outer: Disk,
    _directory: Directory,
}

impl Disks {
    fn new() -> Result<Disks, String> {
        // SAFETY: no memory is passed.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(format!("unshare(2): {}", std::io::Error::last_os_error()));
        }
        run("mount", &["--make-rprivate".as_ref(), "/".as_ref()])?;
        let directory = Directory::new();
        let outer = Disk::new(&directory.at("image"), &directory.at("outer"))?;
        // A file system in a file on another one takes more room.
        let inner = File::create(outer.at("image")).and_then(|file| file.set_len(8 << 20));
        inner.map_err(|error| error.to_string())?;
        let inner = Disk::new(&outer.at("image"), &directory.at("inner"))?;
        Ok(Disks { inner, outer, _directory: directory })
    }
}

/// A frozen file system. Dropping this thaws it; so does a guard after `LONGEST`.
struct Frozen {
    thaws: Sender<()>,
    guard: Option<JoinHandle<()>>,
}

fn freeze(disk: &Disk) -> Frozen {
    // linux/fs.h: FIFREEZE, FITHAW
    const FREEZE: u64 = 0xC004_5877;
    const THAW: u64 = 0xC004_5878;
    let root = File::open(&disk.0).expect("it is mounted");
    // SAFETY: no memory is passed.
    let answer = unsafe { libc::ioctl(root.as_raw_fd(), FREEZE as _, 0) };
    assert_eq!(answer, 0, "FIFREEZE: {}", std::io::Error::last_os_error());
    let (thaws, told) = channel();
    let guard = std::thread::spawn(move || {
        let late = told.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout);
        // SAFETY: as above.
        let answer = unsafe { libc::ioctl(root.as_raw_fd(), THAW as _, 0) };
        assert_eq!(answer, 0, "FITHAW: {}", std::io::Error::last_os_error());
        assert!(!late, "it was frozen for {LONGEST:?}: something hung");
    });
    Frozen { thaws, guard: Some(guard) }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.thaws.send(());
        let guard = self.guard.take().expect("it is joined once");
        let thawed = guard.join();
        assert!(thawed.is_ok() || std::thread::panicking(), "it was not thawed in time");
    }
}

/// Runs `call`, which must not wait for the thaw.
#[track_caller]
fn promptly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = call();
    let took = start.elapsed();
    assert!(took < PROMPT, "{what} took {took:?}");
    value
}

/// The number of threads of this process in uninterruptible calls, including those of its rings.
fn held() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is mounted");
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D')))
        .count()
}

/// Memory with a marker that tells whether it still exists.
struct Marked(AlignedBuf, #[allow(dead_code)] Arc<()>);

impl AsRef<[u8]> for Marked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A watcher with files on both disks, of which the outer one is frozen, and work that waits for
/// the thaw.
struct Stuck {
    b: Bench<Auto>,
    pair: (Source, Source),
    cached: Source,
    direct: Ticket,
    buffered: Ticket,
    sync: Ticket,
    /// Counts the owners of the direct write's bytes.
    marker: Arc<()>,
}

fn stuck(disks: &Disks, driver: DriverKind, files: FileBackend) -> (Stuck, Frozen) {
    let watcher =
        Watcher::builder().driver(driver).file_backend(files).build().expect("it is there");
    let mut b = Bench::new(watcher, Epoll::address());
    let pair = b.pair();
    let direct = b.open_file(disks.outer.at("direct"), DIRECT);
    b.write_at(direct, AlignedBuf::from_slice(&[1; 4096], 4096), 0);
    let cached = b.make_file(disks.outer.at("cached"));
    b.write_at(cached, vec![1; 4096], 0);
    expect_finished(b.run(Op::sync_all(cached)));
    expect_finished(b.run(Op::sync_all(direct)));
    let inner = b.make_file(disks.inner.at("file"));
    b.write_at(inner, vec![3; 1 << 20], 0);
    let frozen = freeze(&disks.outer);
    let marker = Arc::new(());
    let page = Marked(AlignedBuf::from_slice(&[2; 4096], 4096), Arc::clone(&marker));
    let write = Op::write_at(direct, windlass::Buf::from_owner(page), 0);
    let direct = promptly("to submit a direct write", || b.submit(write));
    let write = Op::write_at(cached, vec![2; 4096], 4096);
    let buffered = promptly("to submit a buffered write", || b.submit(write));
    let sync = promptly("to submit a sync", || b.submit(Op::sync_all(inner)));
    // A turn submits what waits for others.
    promptly("a look", || b.look());
    // A cancel could take back a request that has not begun. (A kernel thread does a sync by AIO.)
    let begun = if files == FileBackend::Aio { 2 } else { 3 };
    until("writes and sync are held", || held() >= begun);
    (Stuck { b, pair, cached, direct, buffered, sync, marker }, frozen)
}

/// Runs `body` with the disks in a process of its own, once for each way.
fn on_every_engine(name: &str, body: impl Fn(&Disks, DriverKind, FileBackend)) {
    child::in_child(name, || {
        let disks = match Disks::new() {
            Ok(disks) => disks,
            Err(why) => return skip(Needs::Root, format_args!("frozen file systems: {why}")),
        };
        for (driver, files) in ALL {
            println!("{driver:?} {files:?}");
            body(&disks, driver, files);
        }
    });
}

#[test]
fn sockets_and_timers_go_on_beside_a_frozen_file_system() {
    const NAME: &str = "sockets_and_timers_go_on_beside_a_frozen_file_system";
    on_every_engine(NAME, |disks, driver, files| {
        let (stuck, frozen) = stuck(disks, driver, files);
        let Stuck { mut b, pair: (here, there), .. } = stuck;
        for i in 0..50u8 {
            promptly("an echo", || {
                b.write(here, vec![i; 100]);
                assert_eq!(b.read_exact(there, 100), [i; 100]);
            });
            promptly("a timer", || b.pass(Duration::from_millis(1)));
        }
        promptly("a read of the page cache", || {
            assert_eq!(b.read_at(stuck.cached, 4096, 0), [1; 4096]);
        });
        for ticket in [stuck.direct, stuck.buffered, stuck.sync] {
            assert!(b.is_open(ticket), "{ticket:?} has not waited");
        }
        drop(frozen);
        let back = expect_written(b.end(stuck.direct));
        assert_eq!(back[..], [2; 4096]);
        expect_written(b.end(stuck.buffered));
        expect_finished(b.end(stuck.sync));
        assert_eq!(std::fs::read(disks.outer.at("direct")).unwrap(), [2; 4096]);
        assert_eq!(std::fs::read(disks.outer.at("cached")).unwrap()[4096..], [2; 4096]);
        drop(back);
        assert_eq!(Arc::strong_count(&stuck.marker), 1);
        b.expect_all_ended();
    });
}

/// A drop waits one second at most. It leaks the buffers in the kernel, and counts them.
#[test]
fn a_watcher_goes_while_a_file_system_is_frozen() {
    const NAME: &str = "a_watcher_goes_while_a_file_system_is_frozen";
    on_every_engine(NAME, |disks, driver, files| {
        let (stuck, frozen) = stuck(disks, driver, files);
        let Stuck { mut b, marker, .. } = stuck;
        b.look();
        let (before, start) = (windlass::driver::leaked_buffers(), Instant::now());
        drop(b);
        let took = start.elapsed();
        println!("dropped within {took:?}");
        assert!(took < LONGEST, "it took {took:?}");
        let leaked = windlass::driver::leaked_buffers() - before;
        // A thread keeps its buffer until it is done. So does the kernel, but no answer arrives any
        // more.
        let by_ring = matches!(files, FileBackend::Uring | FileBackend::Auto);
        assert_eq!(leaked, u64::from(by_ring));
        assert_eq!(Arc::strong_count(&marker), 2, "memory was freed that is still read");
        drop(frozen);
        until("the write is there", || {
            std::fs::read(disks.outer.at("direct")).is_ok_and(|bytes| bytes == [2; 4096])
        });
        if !by_ring {
            until("the thread has let go of its buffer", || Arc::strong_count(&marker) == 1);
        }
    });
}
