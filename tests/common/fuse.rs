//! A file system whose answers wait until the test says so.
//!
//! It is a FUSE daemon of a few files in memory: a process of its own, forked from the test, since
//! a process whose threads wait for a daemon of its own could not die. The daemon uses only memory
//! that is there before the fork, and system calls. A gate for each kind of request holds its
//! requests back: the test learns when one has arrived, and lets go when it likes, so that no test
//! depends on a clock. The kernel asks the daemon about everything, because nothing but bytes is
//! cached.
//!
//! The mount has no place in any directory: its files are below `/proc/self/fd`. So it is gone when
//! the process is, however that ends. A daemon whose test hangs lets go by itself.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part
#![allow(unsafe_code)] // fork, mounts and shared memory need libc

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BOUND, Needs, skip, system};

/// What the kernel asks the daemon for: the numbers of linux/fuse.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Request {
    Lookup = 1,
    GetAttr = 3,
    SetAttr = 4,
    MkDir = 9,
    Unlink = 10,
    RmDir = 11,
    Rename = 12,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Release = 18,
    Fsync = 20,
    Flush = 25,
    OpenDir = 27,
    ReadDir = 28,
    Create = 35,
    Allocate = 43,
}

/// How the file system is mounted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The kernel reads pages one request after the other, in the thread that reads (no
    /// `FUSE_ASYNC_READ`).
    pub sync_read: bool,
}

/// How long the daemon holds a request before it lets go of all: longer than the waits of a test.
const LONGEST_MS: i32 = 90_000;

/// The gate of one kind of request.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    /// Requests behind the gate.
    waiting: AtomicU32,
    /// Requests that have come, behind the gate or not.
    seen: AtomicU32,
}

/// What test and daemon share.
struct Shared {
    gates: [Gate; GATES],
    /// The daemon has let go by itself.
    gave_up: AtomicBool,
}

const GATES: usize = 64;

/// Memory that stays shared across a fork.
struct Mapping(*mut Shared);

// SAFETY: it holds atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new() -> Mapping {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let len = size_of::<Shared>();
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping(at.cast())
    }

    fn get(&self) -> &Shared {
        // SAFETY: the mapping lives as long as `self`; zeros are atomics.
        unsafe { &*self.0 }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: its mapping, which is not used any more.
        unsafe { libc::munmap(self.0.cast(), size_of::<Shared>()) };
    }
}

/// A mounted file system, and its daemon.
pub struct Fuse {
    shared: Mapping,
    mount: OwnedFd,
    line: UnixStream,
    daemon: libc::pid_t,
    /// One at a time: the fork of another daemon would close copies of this one's files.
    _alone: MutexGuard<'static, ()>,
}

impl Fuse {
    /// Mounts it. Where that is refused, the test is skipped: `None`.
    #[track_caller]
    pub fn mount(options: Options) -> Option<Fuse> {
        match Fuse::try_mount(options) {
            Ok(fuse) => Some(fuse),
            Err(why) => {
                skip(Needs::Root, format_args!("a FUSE mount: {why}"));
                None
            }
        }
    }

    fn try_mount(options: Options) -> Result<Fuse, String> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|error| format!("/dev/fuse: {error}"))?;
        let (line, other) = UnixStream::pair().map_err(|error| error.to_string())?;
        line.set_nonblocking(true).expect("a socket");
        other.set_nonblocking(true).expect("a socket");
        let shared = Mapping::new();
        // The memory that the daemon has is its copy of this.
        let mut daemon = Daemon::new(device.as_raw_fd(), other.as_raw_fd(), options);
        // SAFETY: the child calls nothing that takes a lock or allocates.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(format!("fork(2): {}", std::io::Error::last_os_error())),
            0 => daemon.run(shared.get()),
            _ => {}
        }
        drop(other);
        let mount = mount(&device);
        // From here on the connection lives as long as the daemon.
        drop(device);
        match mount {
            Ok(mount) => Ok(Fuse { shared, mount, line, daemon: pid, _alone: alone }),
            Err(why) => {
                end(pid);
                Err(why)
            }
        }
    }

    /// The path of a name in it.
    pub fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.mount.as_raw_fd()))
    }

    /// From now on, requests of this kind that this process makes wait for the end of the hold.
    pub fn hold(&self, request: Request) -> Hold<'_> {
        let gate = self.gate(request);
        assert!(!gate.is_shut.swap(true, SeqCst), "{request:?} is held twice");
        Hold { fuse: self, request }
    }

    /// How many requests of this kind have come.
    pub fn seen(&self, request: Request) -> u32 {
        self.gate(request).seen.load(SeqCst)
    }

    fn gate(&self, request: Request) -> &Gate {
        &self.shared.get().gates[request as usize]
    }

    fn ring(&self) {
        use std::io::Write;
        // The daemon looks at every gate, for one byte or for many.
        let _ = (&self.line).write(&[1]);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // The end of the daemon ends the connection, and with it every request.
        end(self.daemon);
        let gave_up = self.shared.get().gave_up.load(SeqCst);
        assert!(!gave_up || std::thread::panicking(), "a request was held for too long");
    }
}

/// Ends a daemon.
fn end(pid: libc::pid_t) {
    // SAFETY: a child that was not waited for yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above; no status is wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// While it lives, the daemon holds requests of one kind.
pub struct Hold<'a> {
    fuse: &'a Fuse,
    request: Request,
}

impl Hold<'_> {
    /// Returns when a request has come.
    #[track_caller]
    pub fn wait(&self) {
        self.wait_for(1);
    }

    /// Returns when so many requests are held.
    #[track_caller]
    pub fn wait_for(&self, count: u32) {
        use std::io::Read;
        while self.waiting() < count {
            let heard = system::wait_readable(self.fuse.line.as_fd(), Some(BOUND));
            let waiting = self.waiting();
            assert!(heard, "{waiting} of {count} requests have come: {:?}", self.request);
            let _ = (&self.fuse.line).read(&mut [0; 64]);
        }
    }

    /// How many requests are held.
    pub fn waiting(&self) -> u32 {
        self.fuse.gate(self.request).waiting.load(SeqCst)
    }
}

impl Drop for Hold<'_> {
    /// Lets go: the daemon answers what it has held, in the order in which it came.
    fn drop(&mut self) {
        self.fuse.gate(self.request).is_shut.store(false, SeqCst);
        self.fuse.ring();
    }
}

/// Mounts the device without a place in a directory.
fn mount(device: &File) -> Result<OwnedFd, String> {
    // linux/mount.h
    const CLOEXEC: libc::c_uint = 1;
    const SET_STRING: libc::c_uint = 1;
    const CREATE: libc::c_uint = 6;
    let text = |text: &str| CString::new(text).expect("no NUL");
    let owned = |what: &str, fd: i64| match fd {
        // SAFETY: a fresh descriptor.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
        _ => Err(format!("{what}: {}", std::io::Error::last_os_error())),
    };
    let kind = text("fuse");
    // SAFETY: a string that ends in NUL.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOEXEC) };
    let context = owned("fsopen(2)", fd)?;
    let configure = |command: libc::c_uint,
                     key: *const libc::c_char,
                     value: *const libc::c_char| {
        let number = context.as_raw_fd();
        // SAFETY: strings that end in NUL, or null.
        let answer = unsafe { libc::syscall(libc::SYS_fsconfig, number, command, key, value, 0) };
        match answer {
            0 => Ok(()),
            _ => Err(format!("fsconfig(2): {}", std::io::Error::last_os_error())),
        }
    };
    // SAFETY: no memory is passed.
    let user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getegid() };
    for (key, value) in [
        ("source", "windlass".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", user.to_string()),
        ("group_id", group.to_string()),
    ] {
        configure(SET_STRING, text(key).as_ptr(), text(&value).as_ptr())?;
    }
    configure(CREATE, std::ptr::null(), std::ptr::null())?;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) };
    owned("fsmount(2)", fd)
}

/// The most bytes of one file.
const LONGEST: usize = 4 << 20;
/// The most bytes of one write.
const MOST: usize = 64 << 10;
/// The headers of a request of linux/fuse.h, and the header of an answer.
const HEADER: usize = 40;
const ANSWER: usize = 16;
/// The root directory.
const ROOT: u64 = 1;

/// A file or directory. Its number is its index.
struct Node {
    /// The directory that has it; 0 if it has no name (any more).
    parent: u64,
    name: [u8; 64],
    name_len: usize,
    mode: u32,
    len: usize,
    data: Box<[u8]>,
}

impl Node {
    fn name(&self) -> &[u8] {
        &self.name[..self.name_len]
    }

    fn set_name(&mut self, name: &[u8]) {
        self.name_len = name.len();
        self.name[..name.len()].copy_from_slice(name);
    }

    fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// The bytes that are cut off read as zeros when the file grows again.
    fn set_len(&mut self, len: usize) -> Result<(), i32> {
        if len > LONGEST {
            return Err(libc::ENOSPC);
        }
        if len < self.len {
            self.data[len..self.len].fill(0);
        }
        self.len = len;
        Ok(())
    }
}

/// The daemon's memory. All of it is there before the fork.
struct Daemon {
    device: RawFd,
    line: RawFd,
    parent: libc::pid_t,
    sync_read: bool,
    nodes: Vec<Node>,
    /// How many nodes there have been; none is used again.
    used: usize,
    held: Vec<Held>,
    answer: Vec<u8>,
}

/// A request that waits, or none.
struct Held {
    len: usize,
    /// Which one came first.
    number: u64,
    bytes: Box<[u8]>,
}

/// The parts of a request, which is a header and what follows it.
struct Asked<'a>(&'a [u8]);

impl<'a> Asked<'a> {
    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn code(&self) -> u32 {
        self.word(4)
    }

    fn unique(&self) -> u64 {
        self.long(8)
    }

    fn node(&self) -> u64 {
        self.long(16)
    }

    /// The thread that asks; 0 if none does.
    fn thread(&self) -> u32 {
        self.word(32)
    }

    /// The parameters behind the header.
    fn body(&self) -> Asked<'a> {
        Asked(self.0.get(HEADER..).unwrap_or(&[]))
    }

    /// The name at `at`, and where the next one would begin.
    fn name(&self, at: usize) -> (&'a [u8], usize) {
        let rest = self.0.get(at..).unwrap_or(&[]);
        let len = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        (&rest[..len], at + len + 1)
    }
}

impl Daemon {
    fn new(device: RawFd, line: RawFd, options: Options) -> Daemon {
        let node = |_| Node {
            parent: 0,
            name: [0; 64],
            name_len: 0,
            mode: 0,
            len: 0,
            data: vec![0; LONGEST].into(),
        };
        let held = |_| Held { len: 0, number: 0, bytes: vec![0; MOST + 4096].into() };
        let mut nodes: Vec<Node> = (0..48).map(node).collect();
        nodes[ROOT as usize].mode = libc::S_IFDIR | 0o777;
        Daemon {
            device,
            line,
            parent: std::process::id() as libc::pid_t,
            sync_read: options.sync_read,
            nodes,
            used: ROOT as usize + 1,
            held: (0..64).map(held).collect(),
            answer: Vec::with_capacity(3 * MOST),
        }
    }

    /// Serves until the test's process is gone.
    fn run(&mut self, shared: &Shared) -> ! {
        self.leave_the_process();
        let mut number = 0;
        loop {
            self.serve_what_may_go(shared);
            let free = self.held.iter().position(|held| held.len == 0);
            let is_holding = self.held.iter().any(|held| held.len > 0);
            let mut entries = [
                libc::pollfd { fd: self.line, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: self.device, events: libc::POLLIN, revents: 0 },
            ];
            // While there is no room, requests wait in the kernel.
            let count = if free.is_some() { 2 } else { 1 };
            let timeout = if is_holding { LONGEST_MS } else { -1 };
            // SAFETY: `count` entries on the stack.
            let ready = unsafe { libc::poll(entries.as_mut_ptr(), count, timeout) };
            if ready == 0 {
                shared.gave_up.store(true, SeqCst);
                shared.gates.iter().for_each(|gate| gate.is_shut.store(false, SeqCst));
            }
            if entries[0].revents != 0 {
                self.listen();
            }
            if entries[1].revents != 0
                && let Some(free) = free
            {
                number += 1;
                self.take(free, number, shared);
            }
        }
    }

    /// Keeps nothing of the process that it is a copy of.
    fn leave_the_process(&self) {
        // SAFETY: all zeros are a set of signals.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set lives across the call.
        unsafe { libc::sigfillset(&mut all) };
        // SAFETY: as above. No handler of the test may run here.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()) };
        let (first, second) = (self.device.min(self.line), self.device.max(self.line));
        let ends = [(0, first - 1), (first + 1, second - 1), (second + 1, RawFd::MAX)];
        for (from, to) in ends.into_iter().filter(|(from, to)| from <= to) {
            // SAFETY: nothing here uses these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }

    /// Takes the test's calls; its end is the end.
    fn listen(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: the memory lives across the call.
        let got = unsafe { libc::read(self.line, bytes.as_mut_ptr().cast(), bytes.len()) };
        if got == 0 {
            exit();
        }
    }

    /// Takes a request, and holds it or serves it.
    fn take(&mut self, free: usize, number: u64, shared: &Shared) {
        let held = &mut self.held[free];
        let (at, room) = (held.bytes.as_mut_ptr(), held.bytes.len());
        // SAFETY: the memory lives across the call.
        let got = unsafe { libc::read(self.device, at.cast(), room) };
        if got < HEADER as isize {
            // ENODEV: it is not mounted any more. Other errors are of requests that were ended.
            if got < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENODEV) {
                exit();
            }
            return;
        }
        let asked = Asked(&held.bytes[..got as usize]);
        let gate = &shared.gates[asked.code() as usize % GATES];
        if is_of(self.parent, asked.thread()) {
            gate.seen.fetch_add(1, SeqCst);
            if gate.is_shut.load(SeqCst) {
                gate.waiting.fetch_add(1, SeqCst);
                (held.len, held.number) = (got as usize, number);
                // SAFETY: one byte. A line that is full has woken the test already.
                unsafe { libc::write(self.line, [1u8].as_ptr().cast(), 1) };
                return;
            }
        }
        self.serve(free, got as usize);
    }

    /// Serves what no gate holds, in the order in which it came.
    fn serve_what_may_go(&mut self, shared: &Shared) {
        loop {
            let gate_of = |held: &Held| &shared.gates[Asked(&held.bytes).code() as usize % GATES];
            let may_go = |held: &Held| held.len > 0 && !gate_of(held).is_shut.load(SeqCst);
            let all = self.held.iter().enumerate().filter(|(_, held)| may_go(held));
            let Some((first, held)) = all.min_by_key(|(_, held)| held.number) else { return };
            gate_of(held).waiting.fetch_sub(1, SeqCst);
            let len = std::mem::take(&mut self.held[first].len);
            self.serve(first, len);
        }
    }

    /// Serves a request, which lies in a place of those that are held.
    fn serve(&mut self, place: usize, len: usize) {
        let bytes = std::mem::take(&mut self.held[place].bytes);
        let asked = Asked(&bytes[..len]);
        self.answer.clear();
        self.answer.extend_from_slice(&[0; ANSWER]);
        // FORGET, INTERRUPT and BATCH_FORGET get no answer. An interrupted request goes on.
        if !matches!(asked.code(), 2 | 36 | 42) {
            let error = self.do_it(&asked).err().unwrap_or(0);
            if error != 0 {
                self.answer.truncate(ANSWER);
            }
            let len = self.answer.len() as u32;
            self.answer[..4].copy_from_slice(&len.to_ne_bytes());
            self.answer[4..8].copy_from_slice(&(-error).to_ne_bytes());
            self.answer[8..16].copy_from_slice(&asked.unique().to_ne_bytes());
            // SAFETY: the memory lives across the call. An error means that the request is gone.
            unsafe { libc::write(self.device, self.answer.as_ptr().cast(), self.answer.len()) };
        }
        self.held[place].bytes = bytes;
    }

    fn word(&mut self, word: u32) {
        self.answer.extend_from_slice(&word.to_ne_bytes());
    }

    fn long(&mut self, long: u64) {
        self.answer.extend_from_slice(&long.to_ne_bytes());
    }

    fn zeros(&mut self, count: usize) {
        let len = self.answer.len() + count;
        self.answer.resize(len, 0);
    }

    fn node(&mut self, node: u64) -> Result<&mut Node, i32> {
        self.nodes.get_mut(node as usize).ok_or(libc::ESTALE)
    }

    fn find(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        let is_it = |node: &Node| node.parent == parent && node.name() == name;
        self.nodes.iter().position(is_it).map(|at| at as u64).ok_or(libc::ENOENT)
    }

    fn make(&mut self, parent: u64, name: &[u8], mode: u32) -> Result<u64, i32> {
        if self.find(parent, name).is_ok() {
            return Err(libc::EEXIST);
        }
        if self.used == self.nodes.len() || name.len() > 64 {
            return Err(libc::ENOSPC);
        }
        let number = self.used;
        self.used += 1;
        let node = &mut self.nodes[number];
        node.set_name(name);
        (node.parent, node.mode) = (parent, mode);
        Ok(number as u64)
    }

    /// `struct fuse_attr`
    fn put_attr(&mut self, number: u64) -> Result<(), i32> {
        let node = self.node(number)?;
        let (len, mode, parent) = (node.len as u64, node.mode, node.parent);
        self.long(number);
        self.long(len);
        self.long(len.div_ceil(512));
        self.zeros(3 * 8 + 3 * 4); // the times
        self.word(mode);
        self.word(u32::from(parent != 0 || number == ROOT)); // names
        self.zeros(3 * 4); // the owner; a device
        self.word(4096);
        self.word(0);
        Ok(())
    }

    /// `struct fuse_entry_out`, which is valid for no time.
    fn put_entry(&mut self, number: u64) -> Result<(), i32> {
        self.long(number);
        self.zeros(8 + 2 * 8 + 2 * 4);
        self.put_attr(number)
    }

    /// `struct fuse_attr_out`, which is valid for no time.
    fn put_attr_out(&mut self, number: u64) -> Result<(), i32> {
        self.zeros(16);
        self.put_attr(number)
    }

    fn do_it(&mut self, asked: &Asked<'_>) -> Result<(), i32> {
        let (number, body) = (asked.node(), asked.body());
        match asked.code() {
            // INIT
            26 => {
                let flags = 1 << 5 | 1 << 15 | u32::from(!self.sync_read); // big writes, async dio
                for word in [7, 31, body.word(8), flags, 16 | 12 << 16, MOST as u32, 1, 0] {
                    self.word(word);
                }
                self.zeros(64 - 32);
            }
            // LOOKUP
            1 => {
                let found = self.find(number, body.name(0).0)?;
                self.put_entry(found)?;
            }
            // GETATTR
            3 => self.put_attr_out(number)?,
            // SETATTR: the size and the mode.
            4 => {
                let (valid, len, mode) = (body.word(0), body.long(16), body.word(68));
                let node = self.node(number)?;
                if valid & 8 != 0 {
                    node.set_len(usize::try_from(len).map_err(|_| libc::EFBIG)?)?;
                }
                if valid & 1 != 0 {
                    node.mode = node.mode & libc::S_IFMT | mode & 0o7777;
                }
                self.put_attr_out(number)?;
            }
            // MKDIR
            9 => {
                let mode = libc::S_IFDIR | body.word(0) & 0o7777;
                let made = self.make(number, body.name(8).0, mode)?;
                self.put_entry(made)?;
            }
            // UNLINK, RMDIR
            10 | 11 => {
                let found = self.find(number, body.name(0).0)?;
                if self.nodes.iter().any(|node| node.parent == found) {
                    return Err(libc::ENOTEMPTY);
                }
                self.node(found)?.parent = 0;
            }
            // RENAME
            12 => {
                let (from, next) = body.name(8);
                let (parent, to) = (body.long(0), body.name(next).0);
                let moved = self.find(number, from)?;
                if to.len() > 64 {
                    return Err(libc::ENAMETOOLONG);
                }
                if let Ok(replaced) = self.find(parent, to) {
                    self.node(replaced)?.parent = 0;
                }
                let node = self.node(moved)?;
                node.parent = parent;
                node.set_name(to);
            }
            // OPEN, OPENDIR
            14 | 27 => {
                self.long(number);
                self.zeros(8);
            }
            // READ
            15 => {
                let (offset, count) = (body.long(8), body.word(16) as usize);
                let node = self.nodes.get(number as usize).ok_or(libc::ESTALE)?;
                let from = node.len.min(usize::try_from(offset).unwrap_or(usize::MAX));
                let to = node.len.min(from + count);
                self.answer.extend_from_slice(&node.data[from..to]);
            }
            // WRITE
            16 => {
                let (offset, count) = (body.long(8) as usize, body.word(16) as usize);
                let bytes = body.0.get(40..40 + count).ok_or(libc::EIO)?;
                let node = self.node(number)?;
                let end = offset.checked_add(count).ok_or(libc::EFBIG)?;
                if end > node.len {
                    node.set_len(end)?;
                }
                node.data[offset..end].copy_from_slice(bytes);
                self.word(count as u32);
                self.word(0);
            }
            // STATFS
            17 => {
                for long in [1 << 20, 1 << 19, 1 << 19, 48, 24] {
                    self.long(long);
                }
                for word in [4096, 64, 4096, 0] {
                    self.word(word);
                }
                self.zeros(6 * 4);
            }
            // RELEASE, FSYNC, FLUSH, RELEASEDIR, FSYNCDIR
            18 | 20 | 25 | 29 | 30 => {}
            // READDIR
            28 => self.list(number, body.long(8), body.word(16) as usize),
            // CREATE
            35 => {
                let mode = libc::S_IFREG | body.word(4) & 0o7777;
                let made = self.make(number, body.name(16).0, mode)?;
                self.put_entry(made)?;
                self.long(made);
                self.zeros(8);
            }
            // FALLOCATE: only longer.
            43 => {
                let (end, mode) = (body.long(8).saturating_add(body.long(16)), body.word(24));
                let node = self.node(number)?;
                let end = usize::try_from(end).map_err(|_| libc::EFBIG)?;
                match mode {
                    0 => node.set_len(node.len.max(end))?,
                    _ => return Err(libc::EOPNOTSUPP),
                }
            }
            _ => return Err(libc::ENOSYS),
        }
        Ok(())
    }

    /// The names in a directory, from an index on.
    fn list(&mut self, directory: u64, from: u64, room: usize) {
        for number in from as usize..self.used {
            let node = &self.nodes[number];
            if node.parent != directory {
                continue;
            }
            let (name, len, kind) = (node.name, node.name_len, node.is_directory());
            let size = (24 + len).next_multiple_of(8);
            if self.answer.len() - ANSWER + size > room {
                return;
            }
            self.long(number as u64);
            self.long(number as u64 + 1);
            self.word(len as u32);
            self.word(if kind { libc::DT_DIR } else { libc::DT_REG }.into());
            self.answer.extend_from_slice(&name[..len]);
            self.zeros(size - 24 - len);
        }
    }
}

/// Whether a thread is one of the process, or of the kernel. (A child that another test starts
/// closes its copies of the descriptors: those requests are nobody's.)
fn is_of(process: libc::pid_t, thread: u32) -> bool {
    let mut name = [0u8; 64];
    let mut status = [0u8; 4096];
    if terminated(&mut name, format_args!("/proc/{process}/task/{thread}"))
        // SAFETY: a string that ends in NUL.
        && unsafe { libc::access(name.as_ptr().cast(), libc::F_OK) } == 0
    {
        return true;
    }
    // Of its files in /proc only those that do not wait for an exec(2) may be read: a child that
    // executes a program holds that lock while it closes descriptors, which waits for this daemon.
    if !terminated(&mut name, format_args!("/proc/{thread}/status")) {
        return false;
    }
    // SAFETY: a string that ends in NUL.
    let file = unsafe { libc::open(name.as_ptr().cast(), libc::O_RDONLY) };
    // SAFETY: an array of this length.
    let len = unsafe { libc::read(file, status.as_mut_ptr().cast(), status.len()) };
    // SAFETY: it is this function's own, or none.
    unsafe { libc::close(file) };
    let status = &status[..usize::try_from(len).unwrap_or(0)];
    let says = |line: &[u8]| status.windows(line.len()).any(|at| at == line);
    // The line came with Linux 6.8. Before that: a thread of the kernel has no memory of its own.
    says(b"\nKthread:\t1\n") || !says(b"\nKthread:") && !says(b"\nVmSize:")
}

/// Writes a path that ends in NUL; false if it is too long.
fn terminated(path: &mut [u8; 64], name: std::fmt::Arguments<'_>) -> bool {
    path.fill(0);
    let mut rest = &mut path[..63];
    std::io::Write::write_fmt(&mut rest, name).is_ok()
}

/// The end of the daemon, without destructors: they belong to the test.
fn exit() -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(0) }
}
