//! Descriptors of any kind: their kinds, their flags, and reads and writes for all but sockets.

#![allow(unsafe_code)]
//! # Safety
//!
//! Descriptors are numbers: a wrong one is an error of the kernel's, not undefined behaviour.
//! Memory is passed as pointer and length of a slice or of a `Target`, which is exclusively the
//! caller's.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

pub(crate) use libc::{PIPE_BUF, pollfd as PollFd};

use crate::sys::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::target::Target;
use crate::sys::types::SourceKind;
use crate::sys::{Moved, cvt, net, stat, syscall};

/// Asks the kernel what `fd` is.
///
/// # Errors
/// `EBADF` for a closed descriptor.
pub(crate) fn kind_of(fd: RawFd) -> io::Result<SourceKind> {
    match stat::known_kind(fd)? {
        libc::S_IFSOCK => net::kind_of(fd),
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Ok(SourceKind::File),
        _ => Ok(SourceKind::Pollable),
    }
}

/// Whether `fd` can be waited for, as epoll(7) sees it: regular files and directories cannot.
/// Answers whether it is a socket.
///
/// # Errors
/// `EPERM` for what cannot; `EBADF`.
pub(crate) fn check_pollable(fd: RawFd) -> io::Result<bool> {
    match stat::known_kind(fd)? {
        libc::S_IFREG | libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EPERM)),
        mode => Ok(mode == libc::S_IFSOCK),
    }
}

/// Whether `fd` is a pipe or a FIFO.
pub(crate) fn is_pipe(fd: RawFd) -> bool {
    stat::known_kind(fd).is_ok_and(|kind| kind == libc::S_IFIFO)
}

/// Whether close(2) of what is no socket waits for nothing: a pipe, or an object that is no file
/// (eventfd, timerfd, pidfd …).
pub(crate) fn closes_at_once(fd: RawFd) -> bool {
    stat::known_kind(fd).is_ok_and(|kind| matches!(kind, libc::S_IFIFO | 0))
}

/// Whether reads and writes of the open file description fail rather than block.
pub(crate) fn is_nonblocking(fd: RawFd) -> io::Result<bool> {
    // SAFETY: no memory is passed.
    let flags = cvt!(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    Ok(flags & libc::O_NONBLOCK != 0)
}

/// Sets or clears `O_NONBLOCK` of the open file description, which duplicates share.
pub(crate) fn set_nonblocking(fd: RawFd, on: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let flags = cvt!(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    let new = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    if new != flags {
        // SAFETY: no memory is passed.
        cvt!(unsafe { libc::fcntl(fd, libc::F_SETFL, new) })?;
    }
    Ok(())
}

/// Gives `fd`, whose open file description other code shares, a description of its own that does
/// not block. Returns false where that is not possible.
///
/// The new one must be of the same object: of a pipe, or of the end of a terminal that programs
/// have. The name of a terminal's other end, and those of many devices (`/dev/net/tun`), make a new
/// object. A process may lack the right to open what it has inherited.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`: the call may succeed later.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn reopen(fd: RawFd) -> io::Result<bool> {
    let terminal = terminal_of(fd);
    if terminal.is_none() && !is_pipe(fd) {
        return Ok(false);
    }
    // SAFETY: no memory is passed.
    let flags = cvt!(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // A pipe with O_DIRECT keeps packets.
    let kept = flags & (libc::O_ACCMODE | libc::O_DIRECT);
    let flags = kept | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let path = format!("/proc/self/fd/{fd}\0");
    // SAFETY: a string that ends in NUL.
    let new = match syscall!(unsafe { libc::open(path.as_ptr().cast(), flags) }) {
        new @ 0.. => own(new as RawFd),
        error => {
            let errno = -error as i32;
            return match errno {
                libc::EMFILE | libc::ENFILE | libc::ENOMEM => {
                    Err(io::Error::from_raw_os_error(errno))
                }
                _ => Ok(false),
            };
        }
    };
    // The other end, opened anew, is that of a new terminal. And `/dev/tty` is the terminal of the
    // process, which may be another one by now.
    if terminal_of(new.as_raw_fd()) != terminal {
        return Ok(false);
    }
    replace(new.as_raw_fd(), fd)?;
    Ok(true)
}

/// Puts a duplicate of `new`, closed on exec, under the number `old`.
pub(crate) fn replace(new: RawFd, old: RawFd) -> io::Result<()> {
    // The crate libc has no dup3(2) for Android.
    // SAFETY: no memory is passed; the caller owns both numbers.
    #[cfg(target_os = "android")]
    cvt!(unsafe { libc::syscall(libc::SYS_dup3, new, old, libc::O_CLOEXEC) })?;
    // SAFETY: as above.
    #[cfg(not(any(target_vendor = "apple", target_os = "android")))]
    cvt!(unsafe { libc::dup3(new, old, libc::O_CLOEXEC) })?;
    // SAFETY: as above.
    #[cfg(target_vendor = "apple")]
    cvt!(unsafe { libc::dup2(new, old) })?;
    #[cfg(target_vendor = "apple")]
    set_cloexec(old)?;
    Ok(())
}

/// The number of the terminal that `fd` belongs to.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn terminal_of(fd: RawFd) -> Option<u32> {
    // asm-generic/ioctls.h: `_IOR('T', 0x32, unsigned int)`, which has another form on these.
    const TIOCGDEV: u32 = match cfg!(any(
        target_arch = "mips",
        target_arch = "mips64",
        target_arch = "powerpc",
        target_arch = "powerpc64",
        target_arch = "sparc64"
    )) {
        true => 0x4004_5432,
        false => 0x8004_5432,
    };
    let mut number = 0u32;
    // SAFETY: room for one number.
    let answer = unsafe { libc::ioctl(fd, TIOCGDEV as _, &raw mut number) };
    (answer == 0).then_some(number)
}

/// Other systems open no second description by a descriptor.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[allow(clippy::unnecessary_wraps)] // Linux fails
pub(crate) const fn reopen(_: RawFd) -> io::Result<bool> {
    Ok(false)
}

/// Lets exec close the descriptor, where the call that made it has no flag for that.
#[cfg(any(windlass_kqueue, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn set_cloexec(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    cvt!(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(())
}

/// A second descriptor of the same open file description, closed on exec.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Closes `fd`, which the caller owns. The descriptor is closed even on an error. The errno
/// (`ENOSPC`, `EDQUOT` and `EIO` of NFS and FUSE, `EINTR`) means that written data may be lost; the
/// number may already belong to another file.
pub(crate) fn close(fd: RawFd) -> Result<(), i32> {
    // SAFETY: the caller owns the descriptor, which close(2) closes even on an error.
    match syscall!(unsafe { libc::close(fd) }) {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// Takes ownership of a raw descriptor that the caller owns.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller owns it, as for `close`.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Lends a descriptor out.
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller keeps it open for `'a` (it bounds `'a` by a borrow of the table that
    // does).
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// read(2)
pub(crate) fn read(fd: RawFd, mut to: Target<'_>) -> Moved {
    // SAFETY: the target is ours to write.
    syscall!(unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) })
}

/// readv(2)
pub(crate) fn read_vectored(fd: RawFd, to: &mut [Target<'_>]) -> Moved {
    let mut vectors = StackVectors::new();
    vectors.fill(to);
    // SAFETY: the vectors name memory of `to`, which is ours to write.
    syscall!(unsafe { libc::readv(fd, vectors.as_ptr(), vectors.len() as i32) })
}

/// write(2)
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> Moved {
    // SAFETY: pointer and length of a slice.
    syscall!(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// writev(2)
pub(crate) fn write_vectored(fd: RawFd, parts: &[IoSlice<'_>]) -> Moved {
    // SAFETY: an IoSlice is an iovec.
    syscall!(unsafe { libc::writev(fd, parts.as_ptr().cast(), parts.len() as i32) })
}

/// Reads without blocking where the open file description blocks (RWF_NOWAIT); `-EOPNOTSUPP` where
/// the kernel cannot.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn read_nowait(fd: RawFd, mut to: Target<'_>) -> Moved {
    let vector = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: one vector over memory that is ours to write.
    syscall!(unsafe { libc::preadv2(fd, &vector, 1, -1, libc::RWF_NOWAIT) })
}

/// As [`read_nowait`], for a write.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn write_nowait(fd: RawFd, bytes: &[u8]) -> Moved {
    let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: one vector over a slice, which the kernel only reads.
    syscall!(unsafe { libc::pwritev2(fd, &vector, 1, -1, libc::RWF_NOWAIT) })
}

/// Only Linux has RWF_NOWAIT.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn read_nowait(_: RawFd, _: Target<'_>) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}

/// Only Linux has RWF_NOWAIT.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn write_nowait(_: RawFd, _: &[u8]) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}

/// poll(2) of one descriptor without waiting: which of `interest` hold, and errors and hang-ups.
pub(crate) fn poll_now(fd: RawFd, interest: Ready) -> Result<Ready, i32> {
    let mut entry = PollFd { fd, events: to_poll(interest), revents: 0 };
    loop {
        // SAFETY: one entry.
        let answer = syscall!(unsafe { libc::poll(&mut entry, 1, 0) });
        if answer == -(libc::EINTR as isize) {
            continue;
        }
        if answer < 0 {
            return Err(-answer as i32);
        }
        if entry.revents & libc::POLLNVAL != 0 {
            return Err(libc::EBADF);
        }
        return Ok(from_poll(entry.revents));
    }
}

/// Nanoseconds as the system takes them.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    // SAFETY: a struct of integers, and of padding on some systems.
    let mut span: libc::timespec = unsafe { std::mem::zeroed() };
    span.tv_sec = (ns / 1_000_000_000) as _;
    span.tv_nsec = (ns % 1_000_000_000) as _;
    span
}

/// What poll(2) calls a half-close of the peer; nothing where it does not tell: there such a
/// descriptor is readable, and its end is read.
#[cfg(any(target_os = "linux", target_os = "android"))]
const RDHUP: Option<i16> = Some(libc::POLLRDHUP);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const RDHUP: Option<i16> = None;

/// Whether poll(2) tells of a half-close.
pub(crate) const TELLS_HALF_CLOSE: bool = RDHUP.is_some();

// The others have the same value everywhere.
const _: () = {
    assert!(Ready::READABLE.bits() as i16 == libc::POLLIN);
    assert!(Ready::PRIORITY.bits() as i16 == libc::POLLPRI);
    assert!(Ready::WRITABLE.bits() as i16 == libc::POLLOUT);
    assert!(Ready::ERROR.bits() as i16 == libc::POLLERR);
    assert!(Ready::HANGUP.bits() as i16 == libc::POLLHUP);
};

/// Conditions in poll(2)'s bits.
pub(crate) fn to_poll(on: Ready) -> i16 {
    let half_close = RDHUP.filter(|_| on.contains(Ready::READ_CLOSED));
    on.difference(Ready::READ_CLOSED).bits() as i16 | half_close.unwrap_or(0)
}

/// poll(2)'s bits as conditions. A descriptor that is not open counts as an error condition.
pub(crate) fn from_poll(bits: i16) -> Ready {
    let half_closed = RDHUP.is_some_and(|bit| bits & bit != 0);
    let half_closed = if half_closed { Ready::READ_CLOSED } else { Ready::NONE };
    let closed = if bits & libc::POLLNVAL != 0 { Ready::ALWAYS } else { Ready::NONE };
    Ready::from_bits(bits as u16).difference(Ready::READ_CLOSED) | half_closed | closed
}

/// How many vectors one call takes here: more are continued by the next call.
pub(crate) const VECTORS: usize = 64;

/// Vectors of a call, on the stack.
pub(crate) struct StackVectors {
    items: [MaybeUninit<libc::iovec>; VECTORS],
    len: usize,
}

impl StackVectors {
    pub(crate) fn new() -> StackVectors {
        StackVectors { items: [const { MaybeUninit::uninit() }; VECTORS], len: 0 }
    }

    pub(crate) fn fill(&mut self, targets: &mut [Target<'_>]) {
        for target in targets.iter_mut().take(VECTORS) {
            let vector =
                libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
            self.items[self.len].write(vector);
            self.len += 1;
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::iovec {
        self.items.as_ptr().cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A descriptor kept back so that one more can be accepted when they have run out.
pub(crate) fn spare() -> Option<OwnedFd> {
    let file = std::fs::File::open("/dev/null").ok()?;
    debug_assert!(file.as_raw_fd() >= 0);
    Some(file.into())
}

/// Takes a descriptor that the process has inherited, and closes it on exec from now on.
///
/// # Errors
/// `EBADF`; `InvalidInput` for what is closed on exec already.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    /// Two threads do not both find the flag clear.
    static TAKING: Mutex<()> = Mutex::new(());
    let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no memory is passed.
    let flags = cvt!(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        let why = "the descriptor was not inherited (it is closed on exec), or was taken before";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if number > libc::STDERR_FILENO {
        // SAFETY: no memory is passed.
        cvt!(unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) })?;
        // SAFETY: it is open. No value of std owns it, and no earlier call has taken it: the flag
        // was clear. The rest is the caller's promise.
        return Ok(unsafe { OwnedFd::from_raw_fd(number) });
    }
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let first = libc::STDERR_FILENO + 1;
    // SAFETY: no memory is passed.
    let taken = cvt!(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, first) })?;
    // SAFETY: it was just made, for this value.
    let taken = unsafe { OwnedFd::from_raw_fd(taken) };
    // A close would give the number to the next file, and code that prints would write into it.
    // SAFETY: no memory is passed.
    cvt!(unsafe { libc::dup2(null.as_raw_fd(), number) })?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri tells of every descriptor that it is closed on exec")]
    fn what_was_inherited_is_taken_once() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = inherited(here.as_raw_fd()).unwrap_err();
        assert_eq!(own.kind(), io::ErrorKind::InvalidInput, "{own}");
        // What dup(2) makes is not closed on exec, as what came through one.
        // SAFETY: no memory is passed.
        let number = unsafe { libc::dup(there.as_raw_fd()) };
        let taken = inherited(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        let again = inherited(number).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::InvalidInput, "{again}");
        assert_eq!(inherited(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn polls_bits_go_there_and_back() {
        let all = Ready::READABLE | Ready::PRIORITY | Ready::WRITABLE;
        assert_eq!(from_poll(to_poll(all)), all);
        assert_eq!(from_poll(libc::POLLNVAL), Ready::ALWAYS);
        let half_close = from_poll(to_poll(Ready::READ_CLOSED));
        assert_eq!(half_close.is_empty(), RDHUP.is_none());
        assert!(Ready::READ_CLOSED.contains(half_close));
    }
}
