//! The ring for files on systems without io_uring: always refused.

#![allow(unsafe_code)] // `push` has the signature that `file_ring.rs` has

use std::convert::Infallible;
use std::io;

use crate::sys::fd::RawFd;
use crate::sys::file_request::{EngineRequest, FileCompletion};

#[derive(Default)]
pub(crate) struct FileRingCounters {
    pub(crate) enters: u64,
    pub(crate) submitted: u64,
}

/// Never exists.
pub(crate) struct FileRing(Infallible);

#[allow(clippy::unused_self)]
impl FileRing {
    pub(crate) fn open() -> io::Result<FileRing> {
        let why = "io_uring is not available: this is not Linux";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
    pub(crate) fn setup(&self) -> &str {
        match self.0 {}
    }
    pub(crate) fn event_fd(&self) -> RawFd {
        match self.0 {}
    }
    pub(crate) fn has_room(&mut self) -> bool {
        match self.0 {}
    }
    pub(crate) fn queued(&self) -> usize {
        match self.0 {}
    }
    pub(crate) fn in_kernel(&self) -> u32 {
        match self.0 {}
    }
    pub(crate) fn denied(&self) -> Option<i32> {
        match self.0 {}
    }
    pub(crate) fn is_short(&self) -> Option<i32> {
        match self.0 {}
    }
    pub(crate) fn counters(&self) -> FileRingCounters {
        match self.0 {}
    }
    /// # Safety
    /// As in `file_ring.rs`.
    pub(crate) unsafe fn push(&mut self, _request: EngineRequest) {
        match self.0 {}
    }
    pub(crate) fn cancel(&mut self, _key: u64) {
        match self.0 {}
    }
    pub(crate) fn flush(&mut self) {
        match self.0 {}
    }
    pub(crate) fn take_returned(&mut self) -> Vec<u64> {
        match self.0 {}
    }
    pub(crate) fn has_completed(&self) -> bool {
        match self.0 {}
    }
    pub(crate) fn take(&mut self, _into: &mut Vec<FileCompletion>) {
        match self.0 {}
    }
}

/// No reason: this system has no io_uring.
pub(crate) const WHY_NOT_FOR_SOCKETS: Option<&str> = None;

/// Quirks do not depend on the release here.
pub(crate) fn release() -> String {
    String::new()
}
