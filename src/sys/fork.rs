//! Detects that the process was forked, without a system call per use: pthread_atfork(3).

#![allow(unsafe_code)]
//! # Safety
//!
//! The handler that runs in the child only adds to an atomic, which is async-signal-safe.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Starts to count, once per process.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handler is a function of this program and does nothing but count. A
            // failure (no memory) leaves forks undetected, as they are without a handler.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// How many forks lie between the first process and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
