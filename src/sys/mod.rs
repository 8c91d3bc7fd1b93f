//! The system: thin wrappers that know nothing of operations, buffers or tokens.
//!
//! # What a selector must do
//!
//! A `Selector` is the kernel object that says when descriptors are ready. Reactor and proactor are
//! written against this list, whichever kernel stands behind it:
//!
//! 1. `add(fd, key, interest, mode)` registers a descriptor; conditions that hold already are
//!    reported by the next `select`. Adding a descriptor twice is `EEXIST`; one that cannot be polled
//!    (a regular file) is `EPERM`.
//! 2. `modify` changes interest, mode and key, and reports conditions that hold already.
//! 3. `remove` ends the registration; nothing of it is reported by a later `select`, though the batch
//!    at hand may still hold it. It must be called before `close` unless nobody else holds the open
//!    file description.
//! 4. `Mode::Edge` reports each condition once when it arises, again when more arrives, and needs no
//!    re-arming. A spurious report is allowed, a lost one is not.
//! 5. `select` blocks until something is reported, the timeout has passed (never early; with
//!    nanosecond precision where the kernel has it), or a signal came (then it reports nothing and
//!    succeeds). It takes the events in place; `event(i)` reads them.
//! 6. Errors and hang-ups are reported whether asked for or not, a peer's half-close where the
//!    interest has `READABLE` or `READ_CLOSED`.

pub(crate) mod addr;
pub(crate) mod affinity;
pub(crate) mod descriptor;
pub(crate) mod epoll;
pub(crate) mod fork;
pub(crate) mod net;
#[cfg(target_os = "linux")]
pub(crate) mod uring;
pub(crate) mod waker;

pub(crate) use epoll::Selector;

/// The answer of a system call that moves bytes: how many, or `-errno`.
pub(crate) type Moved = isize;

/// The errno of the last failed call of this thread.
#[inline]
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Calls a libc function; its answer, or `-errno`.
macro_rules! attempt {
    ($call:expr) => {{
        let answer = $call as isize;
        if answer < 0 { -($crate::sys::errno() as isize) } else { answer }
    }};
}
pub(crate) use attempt;

/// Calls a libc function; its answer, or the errno as an `io::Error`.
macro_rules! check {
    ($call:expr) => {{
        let answer = $call;
        if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(answer) }
    }};
}
pub(crate) use check;
