//! What tests need of the system itself.

use std::net::{TcpListener, TcpStream};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use windlass::Source;

use super::Bench;

/// How many descriptors this process has open.
#[cfg(unix)]
pub fn descriptors() -> usize {
    let path = if cfg!(any(target_os = "linux", target_os = "android")) {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let listing = std::fs::read_dir(path).expect("it is mounted");
    // The listing itself is one.
    listing.count() - 1
}

/// Two connected TCP sockets of std.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    let (b, _) = listener.accept().expect("the same connection");
    bound(&socket2::SockRef::from(&a));
    bound(&socket2::SockRef::from(&b));
    (a, b)
}

/// Bounds what the kernel holds for a socket, which by default may be several megabytes.
pub fn bound(socket: &socket2::Socket) {
    socket.set_recv_buffer_size(256 << 10).expect("a size");
    socket.set_send_buffer_size(256 << 10).expect("a size");
}

/// Waits until a descriptor is readable, or a listener has a connection; false when `timeout` has
/// passed.
#[cfg(unix)]
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry on the stack.
    let count = unsafe { libc::poll(&mut entry, 1, milliseconds(timeout)) };
    count > 0
}

/// The same of a socket.
#[cfg(windows)]
pub fn wait_readable(fd: windlass::fd::BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
    use std::os::windows::io::{AsRawSocket, AsSocket};

    /// `WSAPOLLFD`.
    #[repr(C)]
    struct PollFd {
        socket: usize,
        events: i16,
        revents: i16,
    }
    const POLLRDNORM: i16 = 0x100;
    #[link(name = "ws2_32")]
    unsafe extern "system" {
        fn WSAPoll(entries: *mut PollFd, count: u32, timeout: i32) -> i32;
    }
    let socket = fd.as_socket().as_raw_socket() as usize;
    let mut entry = PollFd { socket, events: POLLRDNORM, revents: 0 };
    // SAFETY: one entry on the stack.
    let count = unsafe { WSAPoll(&mut entry, 1, milliseconds(timeout)) };
    count > 0
}

/// As poll(2) takes it.
fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout
        .map_or(-1, |span| i32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX))
}

/// What a loop hears the kernel by, and does not while it is shut: waits fail then.
#[cfg(target_os = "linux")]
pub struct Ear {
    number: RawFd,
    kept: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Ear {
    /// The only descriptor of this kind that the process has.
    pub fn of_the_only(kind: &str) -> Ear {
        let is_it = |fd: &RawFd| {
            std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .is_ok_and(|link| link.to_string_lossy().contains(kind))
        };
        let number = (0..100).find(is_it).expect("it is among the first");
        // SAFETY: it is open across the call.
        let kept =
            unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().expect("one more");
        Ear { number, kept }
    }

    pub fn shut(&self) {
        self.put(&std::fs::File::open("/dev/null").expect("there is one"));
    }

    pub fn open(self) {
        self.put(&self.kept);
    }

    fn put(&self, other: &impl AsRawFd) {
        // SAFETY: the number stays the watcher's.
        let answer = unsafe { libc::dup3(other.as_raw_fd(), self.number, libc::O_CLOEXEC) };
        assert_eq!(answer, self.number);
    }
}

/// Whether a number names an open descriptor.
#[cfg(unix)]
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Whether calls on the open file description block.
#[cfg(unix)]
pub fn is_blocking(fd: impl AsFd) -> bool {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK == 0
}

/// The number of a source's descriptor.
#[cfg(unix)]
pub fn number<D: windlass::driver::Driver>(bench: &mut Bench<D>, source: Source) -> RawFd {
    bench.watcher.fd(source).expect("it is open").as_raw_fd()
}

/// Lets close(2) reset the connection (SO_LINGER 0).
pub fn reset_on_close<D: windlass::driver::Driver>(bench: &mut Bench<D>, source: Source) {
    let fd = bench.watcher.fd(source).expect("it is open");
    socket2::SockRef::from(&fd).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
}

/// A directory that goes away with its value.
pub struct Directory(std::path::PathBuf);

impl Directory {
    pub fn new() -> Directory {
        Directory::new_in(&std::env::temp_dir())
    }

    /// In another directory than that of temporary files.
    pub fn new_in(parent: &std::path::Path) -> Directory {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        loop {
            let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let path = parent.join(format!("windlass-{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Directory(path),
                // A process that was killed has left it, and had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a directory at {}: {error}", path.display()),
            }
        }
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// The path of a name in it.
    pub fn at(&self, name: impl AsRef<std::path::Path>) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a descriptor is closed by exec.
#[cfg(unix)]
pub fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    assert!(flags >= 0, "{fd} is not open");
    flags & libc::FD_CLOEXEC != 0
}

/// Whether a descriptor takes bytes now.
#[cfg(unix)]
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry on the stack.
    unsafe { libc::poll(&mut entry, 1, 0) > 0 }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
#[cfg(any(target_os = "linux", target_os = "android"))]
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
#[cfg(any(target_os = "linux", target_os = "android"))]
const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[cfg(any(target_os = "linux", target_os = "android"))]
const fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// From now on the calls `numbers` fail with `errno`, on this thread and on threads that it starts.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn deny(numbers: &[i64], errno: i32) {
    // The number of the call stands first in seccomp's data.
    let mut filter = vec![step(LOAD, 0, 0, 0)];
    for &number in numbers {
        filter.push(step(EQUAL, number as u32, 0, 1));
        filter.push(step(ANSWER, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0));
    }
    filter.push(step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0));
    install(filter);
}

/// As [`deny`], for one call whose first argument is `first`.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn deny_of(number: i64, first: i32, errno: i32) {
    // The lower half of the first argument, behind the call, the architecture and the address.
    let argument = 16 + if cfg!(target_endian = "big") { 4 } else { 0 };
    install(vec![
        step(LOAD, 0, 0, 0),
        step(EQUAL, number as u32, 0, 3),
        step(LOAD, argument, 0, 0),
        step(EQUAL, first as u32, 0, 1),
        step(ANSWER, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn install(mut filter: Vec<libc::sock_filter>) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program lives across the call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// Sends a descriptor over a Unix socket, and no byte.
#[cfg(unix)]
pub fn send_only(over: &impl AsFd, passed: &impl AsFd) {
    // Room for one, as aligned as its header.
    let mut control = [0u64; 8];
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    let len = size_of::<RawFd>() as u32;
    // SAFETY: it computes a length.
    let space = unsafe { libc::CMSG_SPACE(len) };
    // SAFETY: it computes a length.
    let whole = unsafe { libc::CMSG_LEN(len) };
    message.msg_controllen = space as _;
    // SAFETY: the message is whole.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    // SAFETY: the header lies in `control`, which is aligned for it.
    let header = unsafe { &mut *header };
    (header.cmsg_level, header.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    header.cmsg_len = whole as _;
    // SAFETY: the data stands behind its header.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: there is room for one.
    unsafe { data.cast::<RawFd>().write_unaligned(passed.as_fd().as_raw_fd()) };
    // SAFETY: the message and what it points to live across the call.
    assert_eq!(unsafe { libc::sendmsg(over.as_fd().as_raw_fd(), &message, 0) }, 0);
}
