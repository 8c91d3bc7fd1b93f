//! What tests of files need: harnesses per backend, work that can be held, files that are there.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use windlass::driver::Driver;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::{Buf, Builder, Completion, Done, DriverKind, Handle, Op, Source, Watcher};

use super::*;

macro_rules! harness {
    ($(#[$doc:meta])* $harness:ident $stamp:literal $driver:ident $name:literal $backend:ident) => {
        $(#[$doc])*
        pub struct $harness;

        impl Harness for $harness {
            type Driver = windlass::driver::Auto;
            const NAME: &'static str = $name;
            const STAMP: &'static str = $stamp;
            const HUGE: usize = if cfg!(windows) { 8 << 20 } else { 100 << 20 };
            const MANY: usize = if cfg!(windows) { 1 << 10 } else { 8 << 10 };

            fn watcher(builder: Builder) -> Watcher {
                let builder = builder.driver(DriverKind::$driver);
                builder.file_backend(FileBackend::$backend).build().expect("it is there")
            }

            fn nowhere() -> Address {
                super::unused()
            }
        }
    };
}

harness! {
    /// Epoll, with Linux AIO for direct I/O.
    EpollAio "epoll_aio" Epoll "epoll" Aio
}
harness! {
    /// Epoll, with a ring of io_uring for files.
    EpollUring "epoll_uring" Epoll "epoll" Uring
}
harness! {
    /// Epoll, with threads alone.
    EpollPool "epoll_pool" Epoll "epoll" Pool
}
harness! {
    /// io_uring, files too.
    UringFiles "uring_files" Uring "io_uring" Uring
}
harness! {
    /// io_uring, with threads for files.
    UringPool "uring_pool" Uring "io_uring" Pool
}
harness! {
    /// poll(2), with threads.
    PollPool "poll_pool" Poll "poll" Pool
}

/// A job that a test holds: it has begun when it says so, and ends when the gate is opened or
/// dropped.
pub struct Gate {
    begun: Receiver<()>,
    _open: Sender<()>,
}

/// What a held job returns.
pub const HELD: u64 = 0xFACE;

impl Gate {
    /// A gate, and the job behind it.
    pub fn new() -> (Gate, Op) {
        let (says, begun) = channel();
        let (open, opened) = channel::<()>();
        let job = Op::run(move || {
            let _ = says.send(());
            // Until the other end is gone.
            let _ = opened.recv();
            HELD
        });
        (Gate { begun, _open: open }, job)
    }

    /// Returns when the job has begun.
    #[track_caller]
    pub fn wait(&self) {
        self.begun.recv_timeout(BOUND).expect("the job begins");
    }
}

/// Holds a thread of the pool: the ticket of its job, and the gate.
#[track_caller]
pub fn hold<D: Driver>(b: &mut Bench<D>) -> (Ticket, Gate) {
    let (gate, job) = Gate::new();
    let ticket = b.submit(job);
    gate.wait();
    (ticket, gate)
}

#[track_caller]
pub fn expect_held(c: Completion) {
    assert_eq!(expect_returned::<u64>(c), HELD);
}

#[track_caller]
pub fn expect_returned<T: 'static>(c: Completion) -> T {
    assert!(c.source.is_none());
    match c.result {
        Ok(Done::Returned(value)) => value.downcast().expect("a value of this type"),
        other => panic!("wanted what a job returns: {other:?}"),
    }
}

#[track_caller]
pub fn expect_finished(c: Completion) {
    assert!(matches!(c.result, Ok(Done::Finished)), "wanted an end: {c:?}");
}

#[track_caller]
pub fn expect_opened(c: Completion) -> Handle {
    match c.result {
        Ok(Done::Opened(file)) => file,
        other => panic!("wanted an open file: {other:?}"),
    }
}

#[track_caller]
pub fn expect_sent(c: Completion) -> usize {
    match c.result {
        Ok(Done::Sent(bytes)) => bytes as usize,
        other => panic!("wanted bytes that are sent: {other:?}"),
    }
}

impl<D: Driver> Bench<D> {
    /// Opens a file and attaches it.
    #[track_caller]
    pub fn open_file(&mut self, path: impl Into<PathBuf>, options: OpenOptions) -> Source {
        let c = self.run(Op::open(path, options));
        assert!(c.source.is_none());
        let file = expect_opened(c);
        self.watcher.attach(file).expect("room for a source")
    }

    /// Opens a file to read and write, which is made.
    #[track_caller]
    pub fn make_file(&mut self, path: impl Into<PathBuf>) -> Source {
        self.open_file(path, OpenOptions::new().read(true).write(true).create(true))
    }

    /// The bytes at an offset, up to `count` of them.
    #[track_caller]
    pub fn read_at(&mut self, file: Source, count: usize, offset: u64) -> Vec<u8> {
        expect_read(self.run(Op::read_at(file, room(count), offset))).into_vec()
    }

    /// Writes all bytes at an offset.
    #[track_caller]
    pub fn write_at(&mut self, file: Source, bytes: impl Into<Buf>, offset: u64) {
        expect_written(self.run(Op::write_at(file, bytes, offset)));
    }
}

/// Directories of a disk and, where there is one, of memory.
pub fn directories() -> Vec<Directory> {
    let mut all = vec![Directory::new()];
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        all.push(Directory::new_in(memory));
    }
    all
}

pub use super::system::Directory;

/// Whether the process has a descriptor of this file open.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn is_held(path: &Path) -> bool {
    let path = std::fs::canonicalize(path).expect("it is there");
    let all = std::fs::read_dir("/proc/self/fd").expect("it is mounted");
    all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).any(|link| link == path)
}

/// How many threads the process has.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("it is mounted").count()
}

/// Memory whose first touch blocks the accessing thread, until it is let go: what holds a write in
/// the middle of its system call.
#[cfg(target_os = "linux")]
pub mod sticky {
    use super::BOUND;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::sync::Arc;

    const LEN: usize = 4096;
    // linux/userfaultfd.h
    const API: u64 = 0xC018_AA3F;
    const REGISTER: u64 = 0xC020_AA00;
    const UNREGISTER: u64 = 0x8010_AA01;

    struct Memory(*mut u8);

    // SAFETY: memory that is never written.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: its mapping, which is not used any more.
            unsafe { libc::munmap(self.0.cast(), LEN) };
        }
    }

    /// The bytes of a write that blocks.
    pub struct Bytes(Arc<Memory>);

    impl AsRef<[u8]> for Bytes {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: the mapping lives as long as this.
            unsafe { std::slice::from_raw_parts(self.0.0, LEN) }
        }
    }

    /// Holds the bytes back.
    pub struct Hold {
        faults: OwnedFd,
        memory: Arc<Memory>,
    }

    /// A page of zeroes that blocks, or why there is none.
    pub fn page() -> Result<(Hold, Bytes), String> {
        // SAFETY: no memory is passed.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(format!("userfaultfd(2): {}", std::io::Error::last_os_error()));
        }
        // SAFETY: a fresh descriptor.
        let faults = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let (read, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), LEN, read, private, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let memory = Arc::new(Memory(start.cast()));
        let mut api: [u64; 3] = [0xAA, 0, 0];
        // The mode is: pages that are missing.
        let mut register: [u64; 4] = [start.addr() as u64, LEN as u64, 1, 0];
        for (what, argument) in [(API, api.as_mut_ptr()), (REGISTER, register.as_mut_ptr())] {
            // SAFETY: the structures of the calls.
            if unsafe { libc::ioctl(faults.as_raw_fd(), what as _, argument) } < 0 {
                return Err(format!("{what:x}: {}", std::io::Error::last_os_error()));
            }
        }
        Ok((Hold { faults, memory: Arc::clone(&memory) }, Bytes(memory)))
    }

    impl Hold {
        /// Returns when a thread is blocked.
        #[track_caller]
        pub fn wait(&self) {
            let blocked = crate::common::system::wait_readable(self.faults.as_fd(), Some(BOUND));
            assert!(blocked, "no thread touches the memory");
        }
    }

    impl Drop for Hold {
        /// Lets go.
        fn drop(&mut self) {
            let mut range: [u64; 2] = [self.memory.0.addr() as u64, LEN as u64];
            let fd = self.faults.as_raw_fd();
            // SAFETY: the structure of the call.
            unsafe { libc::ioctl(fd, UNREGISTER as _, range.as_mut_ptr()) };
        }
    }
}
