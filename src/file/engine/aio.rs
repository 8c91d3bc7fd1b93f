//! A context of Linux AIO.

#![allow(unsafe_code)]
//! # Safety
//!
//! The memory of a request is the caller's promise, as for `Kernel::start_file`.

use std::io;

use super::stage::Engine;
use super::{BATCH, EAGER, NOT_BEGUN, Request};
use crate::sys::aio::{Aio, NOWAIT};
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::file_request::{Code, Completed};

/// Requests that a context is asked to hold.
const ENTRIES: u32 = 1024;

pub(super) struct Context {
    pub(super) aio: Aio,
}

impl Engine for Context {
    fn open() -> io::Result<Context> {
        let refused = |refused| io::Error::new(io::ErrorKind::Unsupported, refused);
        Aio::open(ENTRIES)?.map(|aio| Context { aio }).map_err(refused)
    }

    fn event_fd(&self) -> RawFd {
        self.aio.event_fd().as_raw_fd()
    }
}

impl Context {
    /// Takes a request other than a write; the context must have room. A request that would block
    /// in io_submit(2) comes back.
    pub(super) fn start(&mut self, request: Request) {
        let syncs = matches!(request.code, Code::Fsync | Code::Fdsync);
        let rw_flags = if syncs { 0 } else { NOWAIT };
        // SAFETY: the caller's promise.
        unsafe { self.aio.push(Request { rw_flags, ..request }) };
        if self.aio.in_kernel() < EAGER || self.aio.queued() >= BATCH {
            self.aio.flush();
        }
    }

    /// Takes the answers. A denied request starts again elsewhere, unless the program chose AIO by
    /// name: then it fails.
    pub(super) fn take(&mut self, is_named: bool, into: &mut Vec<Completed>) {
        let start = into.len();
        self.aio.take(into);
        if let Some(errno) = self.aio.denied().filter(|_| !is_named) {
            let failed = into[start..].iter_mut().filter(|answer| answer.result == -errno);
            failed.for_each(|answer| answer.result = NOT_BEGUN);
        }
    }

    /// Why AIO gets no more requests, if it was denied.
    pub(super) fn why_denied(&self) -> Option<String> {
        let error = self.aio.denied().map(io::Error::from_raw_os_error)?;
        Some(format!("io_submit(2) has failed since the context was made: {error}"))
    }
}
