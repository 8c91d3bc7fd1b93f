//! Suppresses SIGPIPE in calls that take no `MSG_NOSIGNAL`.

#![allow(unsafe_code)]
//! # Safety
//!
//! Sets of signals are locals, which sigemptyset(3) makes valid.

/// Runs `call`, which raises SIGPIPE for this thread if a socket's peer is gone, and hides the
/// signal from the program, however the program handles it. A SIGPIPE that was pending before stays
/// pending.
///
/// We query the program's disposition each time, because it can change. (A change by another thread
/// during the call comes too late.)
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn without<T>(call: impl FnOnce() -> T) -> T {
    if is_ignored() {
        return call();
    }
    let set = only_sigpipe();
    let mut before = empty();
    // SAFETY: both sets live across the call.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) } == 0;
    let pending = blocked && contains(&before) && is_pending();
    let answer = call();
    if blocked && !pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: set and time live across the call; nothing is asked about the signal.
        unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &now) };
    }
    if blocked && !contains(&before) {
        // SAFETY: the set lives across the call.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
    }
    answer
}

/// This system has no sigtimedwait(2) to take a pending signal.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn without<T>(call: impl FnOnce() -> T) -> T {
    call()
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn is_ignored() -> bool {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the action lives across the call.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) } == 0;
    asked && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn empty() -> libc::sigset_t {
    // SAFETY: all zeroes is memory for a set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for a set.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn only_sigpipe() -> libc::sigset_t {
    let mut set = empty();
    // SAFETY: a valid set and a valid signal.
    unsafe { libc::sigaddset(&mut set, libc::SIGPIPE) };
    set
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn contains(set: &libc::sigset_t) -> bool {
    // SAFETY: a valid set.
    unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 }
}

/// Whether SIGPIPE is pending for this thread or the process.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn is_pending() -> bool {
    let mut set = empty();
    // SAFETY: room for a set.
    unsafe { libc::sigpending(&mut set) == 0 && contains(&set) }
}
