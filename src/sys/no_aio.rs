//! What stands in for Linux AIO where there is none: it is always refused.

#![allow(unsafe_code)] // `push` has the signature that `aio.rs` has

use std::convert::Infallible;
use std::fmt;
use std::io;

use crate::sys::fd::BorrowedFd;

pub(crate) use crate::sys::file_request::{Completed, Request};

pub(crate) const NOWAIT: u32 = 0;

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) submits: u64,
    pub(crate) submitted: u64,
    pub(crate) getevents: u64,
}

/// Why.
#[derive(Debug)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Linux AIO is not available: this is not Linux")
    }
}

impl std::error::Error for Refused {}

/// There is never one.
pub(crate) struct Aio(Infallible);

#[allow(clippy::unused_self)]
impl Aio {
    pub(crate) fn open(_entries: u32) -> io::Result<Result<Aio, Refused>> {
        Ok(Err(Refused))
    }
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
    pub(crate) fn has_room(&self) -> bool {
        match self.0 {}
    }
    pub(crate) fn has_completed(&self) -> bool {
        match self.0 {}
    }
    pub(crate) fn denied(&self) -> Option<i32> {
        match self.0 {}
    }
    pub(crate) fn queued(&self) -> usize {
        match self.0 {}
    }
    pub(crate) fn in_kernel(&self) -> u32 {
        match self.0 {}
    }
    pub(crate) fn counters(&self) -> Counters {
        match self.0 {}
    }
    pub(crate) fn setup(&self) -> &str {
        match self.0 {}
    }
    /// # Safety
    /// As in `aio.rs`.
    pub(crate) unsafe fn push(&mut self, _request: Request) {
        match self.0 {}
    }
    pub(crate) fn flush(&mut self) {
        match self.0 {}
    }
    pub(crate) fn take(&mut self, _into: &mut Vec<Completed>) {
        match self.0 {}
    }
}
