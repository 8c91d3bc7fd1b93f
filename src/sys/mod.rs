//! The system: thin wrappers that know nothing of operations, buffers or tokens.
//!
//! # The contract of a selector
//!
//! A selector ([`Select`]) is the object that says when descriptors are ready. Reactor and proactor
//! are written against this list, whichever kernel stands behind it:
//!
//! 1. `add(fd, key, interest, mode)` registers a descriptor; conditions that hold already are
//!    reported by the next `select`. Adding a descriptor twice is `EEXIST`; one that cannot be
//!    polled (a regular file) is `EPERM`.
//! 2. `modify` changes interest, mode and key, and reports conditions that hold already.
//! 3. `remove` ends the registration; nothing of it is reported by a later `select`, though the
//!    current batch may still hold it. It must be called before `close`, unless no other
//!    descriptor has the open file description; then `forget` is called.
//! 4. `Mode::Edge` reports each condition once when it arises, again when more arrives, and needs
//!    no re-arming. A spurious report is allowed, a lost one is not. Where the kernel has no edges
//!    (`EDGES` is false) they are imitated, at a price: a caller that finds a direction empty has
//!    to call `arm` for the conditions that it waits for.
//! 5. `select` blocks until something is reported, the timeout has passed (never early; with
//!    nanosecond precision where the kernel has it), or a signal came (then it reports nothing and
//!    succeeds). It takes the events in place; `event(i)` reads them.
//! 6. Errors and hang-ups are reported whether asked for or not, a peer's half-close where the
//!    interest has `READABLE` or `READ_CLOSED`.
//!
//! Which selector is the system's own ([`Selector`]) is decided here; poll(2) is everywhere.
//!
//! On Windows the modules that call the system are those in `windows`, under the same names.

use std::io;

use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::{Mode, Ready};

pub(crate) mod addr;
pub(crate) mod affinity;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub(crate) mod aio;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
mod aio_abi;
pub(crate) mod beneath;
#[cfg(not(windows))]
mod call;
#[cfg_attr(windows, path = "windows/child.rs")]
pub(crate) mod child;
pub(crate) mod closing;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "no_datagrams.rs")]
pub(crate) mod datagrams;
#[cfg_attr(windows, path = "windows/descriptor.rs")]
pub(crate) mod descriptor;
#[cfg(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue)))]
pub(crate) mod epoll;
#[cfg_attr(windows, path = "windows/error.rs")]
mod error;
#[cfg_attr(windows, path = "windows/fd.rs")]
pub(crate) mod fd;
pub(crate) mod file_request;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub(crate) mod file_ring;
#[cfg(not(all(target_os = "linux", not(windlass_kqueue))))]
#[path = "no_file_ring.rs"]
pub(crate) mod file_ring;
#[cfg_attr(windows, path = "windows/fork.rs")]
pub(crate) mod fork;
#[cfg_attr(windows, path = "windows/fs.rs")]
pub(crate) mod fs;
pub(crate) mod interest;
#[cfg(any(
    all(test, not(windows)),
    windlass_kqueue,
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd"
))]
pub(crate) mod kevent;
#[cfg(any(
    windlass_kqueue,
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd"
))]
pub(crate) mod kqueue;
pub(crate) mod monotonic;
#[cfg_attr(windows, path = "windows/net.rs")]
pub(crate) mod net;
#[cfg_attr(windows, path = "windows/open_files.rs")]
pub(crate) mod open_files;
#[cfg_attr(windows, path = "windows/path.rs")]
pub(crate) mod path;
pub(crate) mod poll;
#[cfg_attr(windows, path = "windows/resolve.rs")]
pub(crate) mod resolve;
pub(crate) mod sendfile;
#[cfg_attr(windows, path = "windows/signals.rs")]
pub(crate) mod signals;
#[cfg(not(any(windows, target_vendor = "apple", target_os = "openbsd")))]
mod sigpipe;
pub(crate) mod socket_option;
#[cfg_attr(windows, path = "windows/stat.rs")]
pub(crate) mod stat;
pub(crate) mod step;
#[cfg(unix)]
mod takeover;
pub(crate) mod target;
pub(crate) mod types;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub(crate) mod uring;
#[cfg_attr(windows, path = "windows/wake_fd.rs")]
mod wake_fd;
pub(crate) mod waker;
#[cfg(windows)]
mod windows;

#[cfg(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue)))]
pub(crate) use epoll::Epoll as Selector;
pub(crate) use error::{errno, os_errno, os_error};
#[cfg(any(
    windlass_kqueue,
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd"
))]
pub(crate) use kqueue::Kqueue as Selector;
pub(crate) use poll::Poll;
#[cfg(windows)]
pub(crate) use poll::Poll as Selector;

/// Why the system's selector is chosen automatically.
#[cfg(not(windows))]
pub(crate) const CHOSEN: &str = "as fast as any on sockets (PERFORMANCE.md)";
/// Why the system's selector is chosen automatically.
#[cfg(windows)]
pub(crate) const CHOSEN: &str = "the only one on this system, for development";

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd",
    windows
)))]
compile_error!("windlass has no selector for this system: it needs epoll, kqueue or WSAPoll");

/// How a file is open, as far as its reads and writes depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenMode {
    /// It bypasses the page cache (`O_DIRECT`). macOS does not say: false there.
    pub(crate) direct: bool,
    /// Writes go to the end of the file (`O_APPEND`).
    pub(crate) appends: bool,
    /// Writes are on the disk when they end (`O_SYNC`, `O_DSYNC`).
    pub(crate) synchronous: bool,
}

/// A selector: the [`Reactor`](crate::reactor::Reactor) and [`Os`](crate::kernel::Os) wait on it.
///
/// epoll, kqueue and poll(2) implement it. It cannot be implemented outside this crate.
#[allow(unused_variables)] // a default ignores what it is given
pub trait Select: Sized {
    /// What `explain` calls it.
    const NAME: &'static str;
    /// How long a registration holds, and why, for `explain`.
    const REGISTRATION: &'static str;
    /// Whether the kernel has edges. Where it has none, a report of an armed registration disarms
    /// it.
    const EDGES: bool;
    /// Whether closing the last descriptor of a file ends its registration.
    const FORGETS_CLOSED: bool;
    /// Whether a TCP socket registered for writes reports room only after a write found none. If
    /// each acknowledgement reports room, the socket is registered for writes only while a write
    /// waits.
    const QUIET_WRITES: bool = true;

    /// A selector whose `select` takes so many events at most.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptor is left; `ENOMEM`.
    fn new(capacity: usize) -> io::Result<Self>;

    /// The handle by which other threads end a `select`, which then reports `key`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptor is left for the event.
    fn waker(&mut self, key: u64) -> io::Result<waker::SharedWake>;

    /// Registers a descriptor.
    ///
    /// # Errors
    /// `EPERM`: the descriptor cannot be waited for, as a regular file; `EBADF`: it is not open;
    /// `ENOSPC`, `ENOMEM`: a limit of the system.
    fn add(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()>;

    /// Changes a registration.
    ///
    /// # Errors
    /// `ENOENT`: the descriptor is not registered; `EBADF`: it is not open; `ENOMEM`.
    fn modify(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()>;

    /// Ends a registration.
    ///
    /// # Errors
    /// `ENOENT`: the descriptor is not registered; `EBADF`: it is not open.
    fn remove(&mut self, fd: RawFd) -> io::Result<()>;

    /// The descriptor is being closed, and the kernel [ends](Select::FORGETS_CLOSED) its
    /// registration.
    #[inline(always)]
    fn forget(&mut self, fd: RawFd) {}

    /// Says what is waited for on a descriptor, once; `None` for nothing. Where there are edges,
    /// there is nothing to say.
    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {}

    /// Waits; answers how many events there are. `None` waits for ever, 0 not at all.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`: other code has closed the selector's descriptor.
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize>;

    /// Event `i` of the last `select`: its key, and the conditions that hold.
    fn event(&self, i: usize) -> (u64, Ready);

    /// A descriptor that is readable when `select` would report something.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// How it waits, and why that way.
    fn explain(&self) -> (&'static str, &'static str);
}

/// The answer of a system call that moves bytes: how many, or `-errno`.
pub(crate) type Moved = isize;

/// Calls a libc function; its answer, or `-errno`.
macro_rules! syscall {
    ($call:expr) => {{
        let answer = $call as isize;
        if answer < 0 { -($crate::sys::errno() as isize) } else { answer }
    }};
}
pub(crate) use syscall;

/// Calls a libc function; its answer, or the errno as an `io::Error`.
macro_rules! cvt {
    ($call:expr) => {{
        let answer = $call;
        if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
    }};
}
pub(crate) use cvt;
