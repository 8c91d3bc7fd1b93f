//! A ring of io_uring as a file engine.

#![allow(unsafe_code)]
//! # Safety
//!
//! The memory of a request is the caller's promise, as for `Kernel::start_file`.

use std::io;

use super::stage::Engine;
use super::{EngineRequest, NOT_BEGUN};
use crate::sys::fd::RawFd;
use crate::sys::file_request::{FileCompletion, is_batch};
use crate::sys::file_ring::FileRing;

pub(super) struct RingEngine {
    pub(super) ring: FileRing,
    /// The most requests that one system call submits.
    most: u32,
}

impl Engine for RingEngine {
    const NAMES: (&str, &str) = ("a ring of io_uring", "not a ring of io_uring");
    const UNUSED: &str = "not opened yet: the first such operation opens it";

    fn open(most: u32) -> io::Result<RingEngine> {
        Ok(RingEngine { ring: FileRing::open()?, most })
    }

    fn event_fd(&self) -> RawFd {
        self.ring.event_fd()
    }

    fn explain(&self) -> (String, u64) {
        let taken = self.ring.counters().submitted;
        let reason = match self.ring.denied().map(io::Error::from_raw_os_error) {
            Some(error) => format!(
                "io_uring_enter(2) has failed since the ring was made: {error}; it had {taken}"
            ),
            None => format!("beside the selector, completions in one wait; {}", self.ring.setup()),
        };
        (reason, taken)
    }
}

impl RingEngine {
    /// Takes a request; the ring has room.
    pub(super) fn start(&mut self, request: EngineRequest) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(request) };
        if is_batch(self.ring.queued(), self.ring.in_kernel(), self.most) {
            self.ring.flush();
        }
    }

    /// Takes the answers. A request that the kernel denied starts again elsewhere, unless the
    /// program chose the ring by name: then it fails.
    pub(super) fn take(&mut self, is_named: bool, into: &mut Vec<FileCompletion>) {
        self.ring.take(into);
        if let Some(errno) = self.ring.denied() {
            let result = if is_named { -errno } else { NOT_BEGUN };
            let returned = self.ring.take_returned().into_iter();
            into.extend(returned.map(|key| FileCompletion { key, result }));
        }
    }
}
