//! Detects that the process was forked, without a system call per use: pthread_atfork(3).

#![allow(unsafe_code)]
//! # Safety
//!
//! The handlers only add to an atomic, which is async-signal-safe. What tests
//! run in a child allocates nothing that another thread could hold a lock of but through libc's own
//! fork handlers.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static SHARES: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    SHARES.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    SHARES.fetch_add(1, Ordering::Relaxed);
}

/// Starts to count, once per process.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handlers are functions of this program and do nothing but count. A
            // failure (no memory) leaves forks undetected, as they are without a handler.
            unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
        }
    });
}

/// How many forks lie between the first process and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// How many forks this process has seen, as parent or as child: after each, another process also
/// has what was open. (posix_spawn(3), by which std starts programs, is none.)
#[inline]
pub(crate) fn events() -> u32 {
    SHARES.load(Ordering::Relaxed)
}

/// For tests: forks, and returns what `look` returns in the child; `None` on systems without fork.
#[cfg(test)]
pub(crate) fn said_by_a_child(look: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child does nothing but what tests let it do: look, close descriptors, exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child if it hangs; no memory is passed.
        unsafe { libc::alarm(10) };
        let said = look();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!said)) };
    }
    let mut status = 0;
    // SAFETY: one status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    Some(status == 0)
}
