//! The kernels that random programs run on: one trait, so that a program is written once.
#![allow(dead_code)] // each test binary uses its own part

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass::driver::{Auto, Driver};
use windlass::fs::FileBackend;
use windlass::sim::{Faults, Sim};
use windlass::{Address, Builder, DriverKind, Handle, Watcher};

/// The parameters of a kernel: part of every case, so that a failure can be repeated.
#[derive(Clone, Debug)]
pub struct Network {
    /// Decides everything that a simulation leaves to chance.
    pub seed: u64,
    pub faults: Faults,
    /// Bytes that a socket holds, as far as the kernel lets itself be told.
    pub buffer: usize,
}

/// A kernel under test.
pub trait World: Sized {
    type Driver: Driver;
    /// What `explain` calls the driver.
    const NAME: &'static str;
    /// Whether the kernel completes by itself, with the faults of such a kernel.
    const COMPLETES: bool = false;
    /// How long something may take that has to happen (on the kernel's clock).
    const BOUND: Duration;
    /// The longest wait of a random program.
    const LONGEST_WAIT: Duration;
    /// Whether its time and its threads are the system's.
    const REAL: bool = false;

    fn open(network: &Network) -> Self;
    fn watcher(&self, builder: Builder) -> Watcher<Self::Driver>;
    /// Two connected sockets that no watcher has.
    fn pair(&self) -> (Handle, Handle);
    /// As `pair`, over TCP where the kernel makes a difference.
    fn tcp_pair(&self) -> (Handle, Handle) {
        self.pair()
    }
    /// An address without a listener.
    fn nowhere(&self) -> Address;
    /// The longest write that makes sense: very many small pieces only cost time.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }
    /// The path of a file, which nobody else uses.
    fn file(&self, number: usize) -> PathBuf {
        PathBuf::from(number.to_string())
    }
    /// What is in it, if it is there.
    fn contents(&self, number: usize) -> Option<Vec<u8>> {
        std::fs::read(self.file(number)).ok()
    }
    /// Whether nothing has happened that the watcher has not taken.
    fn is_quiet(&self, _watcher: &mut Watcher<Self::Driver>) -> bool {
        false
    }
    /// How often each fault was injected.
    fn injected(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// How long a wait for other threads may take in real time, where waits take none.
    fn set_patience(&self, _patience: Duration) {}
    /// Makes the kernel's buffers of an attached socket small, if it lets itself be told.
    fn narrow(&self, _watcher: &mut Watcher<Self::Driver>, _source: windlass::Source) {}
}

const SELECTOR: u8 = 0;
const RING: u8 = 1;
const POLL: u8 = 2;
const THREADS: u8 = 3;

/// The system's kernel, through its own selector, io_uring, or poll(2); or through its selector and
/// with threads for files.
pub struct Os<const BY: u8> {
    /// Bound, but not listening.
    silent: socket2::Socket,
    buffer: usize,
    /// Where its files are, once there are any.
    directory: OnceCell<Directory>,
    in_memory: bool,
}

pub type Real = Os<SELECTOR>;
pub type Ring = Os<RING>;
pub type Poll = Os<POLL>;
pub type Threads = Os<THREADS>;

/// Whether the system's selector is kqueue.
const KQUEUE: bool =
    cfg!(any(windlass_kqueue, not(any(target_os = "linux", target_os = "android"))));

impl<const BY: u8> Os<BY> {
    /// Bounds what the kernel holds for a TCP socket: by default it may hold several megabytes.
    fn bound(&self, socket: &socket2::Socket) {
        socket.set_send_buffer_size(self.buffer.max(16 << 10)).expect("a size");
        socket.set_recv_buffer_size(128 << 10).expect("a size");
    }
}

impl<const BY: u8> World for Os<BY> {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = match BY {
        RING => "io_uring",
        POLL => "poll",
        _ if KQUEUE => "kqueue",
        _ => "epoll",
    };
    const BOUND: Duration = Duration::from_secs(20);
    const LONGEST_WAIT: Duration = Duration::from_micros(1500);
    const REAL: bool = true;

    fn open(network: &Network) -> Self {
        let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let silent = silent.expect("a socket");
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        silent.bind(&at.into()).expect("a port");
        let (buffer, in_memory) = (network.buffer, network.seed.is_multiple_of(2));
        Os { silent, buffer, directory: OnceCell::new(), in_memory }
    }

    fn watcher(&self, builder: Builder) -> Watcher {
        let kind = match BY {
            RING => DriverKind::Uring,
            POLL => DriverKind::Poll,
            _ if KQUEUE => DriverKind::Kqueue,
            _ => DriverKind::Epoll,
        };
        let builder = match BY {
            THREADS => builder.file_backend(FileBackend::Pool),
            _ => builder,
        };
        builder.driver(kind).build().expect("it is there")
    }

    fn pair(&self) -> (Handle, Handle) {
        let (a, b) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        for end in [&a, &b] {
            let end = socket2::SockRef::from(end);
            end.set_send_buffer_size(self.buffer).expect("a size");
        }
        (a.into(), b.into())
    }

    fn tcp_pair(&self) -> (Handle, Handle) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let a = std::net::TcpStream::connect(listener.local_addr().expect("bound"));
        let (a, b) = (a.expect("a connection"), listener.accept().expect("the same").0);
        for end in [&a, &b] {
            self.bound(&socket2::SockRef::from(end));
        }
        (a.into(), b.into())
    }

    fn nowhere(&self) -> Address {
        let at = self.silent.local_addr().expect("bound");
        at.as_socket().expect("an internet address").into()
    }

    fn file(&self, number: usize) -> PathBuf {
        let directory = self.directory.get_or_init(|| Directory::new(self.in_memory));
        directory.0.join(number.to_string())
    }

    fn narrow(&self, watcher: &mut Watcher, source: windlass::Source) {
        if let Ok(fd) = watcher.fd(source) {
            self.bound(&socket2::SockRef::from(&fd));
        }
    }
}

/// A directory that is there as long as this.
struct Directory(PathBuf);

impl Directory {
    /// On a disk, or in memory where the system has such a place.
    fn new(in_memory: bool) -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = Path::new("/dev/shm");
        let parent = match in_memory && memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let path = parent.join(format!("windlass-world-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new name");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left is in a directory for such.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The simulated kernel.
pub struct Virtual {
    pub sim: Sim,
    buffer: usize,
}

impl World for Virtual {
    type Driver = Auto;
    const NAME: &'static str = "sim";
    const BOUND: Duration = Duration::from_secs(60);
    const LONGEST_WAIT: Duration = Duration::from_millis(5);

    fn open(network: &Network) -> Virtual {
        let sim = Sim::with_faults(network.seed, network.faults.clone());
        sim.set_buffer(network.buffer);
        sim.set_patience(Duration::ZERO);
        Virtual { sim, buffer: network.buffer }
    }

    fn watcher(&self, builder: Builder) -> Watcher {
        Watcher::simulated_with(&self.sim, builder.config())
    }

    fn contents(&self, number: usize) -> Option<Vec<u8>> {
        self.sim.read_file(self.file(number))
    }

    fn set_patience(&self, patience: Duration) {
        self.sim.set_patience(patience);
    }

    fn pair(&self) -> (Handle, Handle) {
        self.sim.pair()
    }

    fn nowhere(&self) -> Address {
        Address::from(([127, 0, 0, 1], 9))
    }

    fn most_bytes(&self) -> usize {
        self.buffer * 50 + 1000
    }

    fn is_quiet(&self, watcher: &mut Watcher) -> bool {
        let now = Some(Duration::ZERO);
        self.sim.next_timeout() != now && watcher.next_timeout() != now
    }

    fn injected(&self) -> Vec<(&'static str, u64)> {
        self.injected_but(&COMPLETING)
    }
}

/// The faults of a kernel that completes.
const COMPLETING: [&str; 4] = ["no_buffer", "multishot_end", "lost_cancel", "late_cancel"];

impl Virtual {
    /// The counts of the faults that can happen to the programs.
    fn injected_but(&self, never: &[&str]) -> Vec<(&'static str, u64)> {
        // The programs look no names up, and have no datagrams.
        let always = ["lookup_failed", "partial_batch", "batch_denied"];
        let mut all = self.sim.injected().named();
        all.retain(|(fault, _)| !always.contains(fault) && !never.contains(fault));
        all
    }
}

/// The simulated kernel as one that completes.
pub struct Completed {
    sim: Virtual,
}

impl World for Completed {
    type Driver = Auto;
    const NAME: &'static str = Virtual::NAME;
    const COMPLETES: bool = true;
    const BOUND: Duration = Virtual::BOUND;
    const LONGEST_WAIT: Duration = Virtual::LONGEST_WAIT;

    fn open(network: &Network) -> Completed {
        let sim = Virtual::open(network);
        sim.sim.set_completing(true);
        Completed { sim }
    }

    fn watcher(&self, builder: Builder) -> Watcher {
        self.sim.watcher(builder)
    }

    fn contents(&self, number: usize) -> Option<Vec<u8>> {
        self.sim.contents(number)
    }

    fn set_patience(&self, patience: Duration) {
        self.sim.set_patience(patience);
    }

    fn pair(&self) -> (Handle, Handle) {
        self.sim.pair()
    }

    fn nowhere(&self) -> Address {
        self.sim.nowhere()
    }

    fn most_bytes(&self) -> usize {
        self.sim.most_bytes()
    }

    fn is_quiet(&self, watcher: &mut Watcher) -> bool {
        // Answers are on their way while the simulation has an event.
        self.sim.sim.next_timeout().is_none() && self.sim.is_quiet(watcher)
    }

    fn injected(&self) -> Vec<(&'static str, u64)> {
        self.sim.injected_but(&[])
    }
}

/// How many descriptors this process has open.
pub fn descriptors() -> usize {
    let listing = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    // The listing itself is one.
    listing.count() - 1
}

/// A test that counts descriptors must be the only one to open any.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
