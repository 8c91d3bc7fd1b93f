//! A context of Linux AIO.

#![allow(unsafe_code)]
//! # Safety
//!
//! The memory of a request is the caller's promise, as for `Kernel::start_file`.

use std::io;

use super::stage::Engine;
use super::{EAGER, Request};
use crate::sys::aio::{Aio, NOWAIT};
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::file_request::Code;

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
    /// Takes a request, which is no write; the context has room. What would have to wait in io_submit(2)
    /// comes back.
    pub(super) fn start(&mut self, request: Request) {
        let syncs = matches!(request.code, Code::Fsync | Code::Fdsync);
        let rw_flags = if syncs { 0 } else { NOWAIT };
        // SAFETY: the caller's promise.
        unsafe { self.aio.push(Request { rw_flags, ..request }) };
        if self.aio.in_kernel() < EAGER {
            self.aio.flush();
        }
    }
}
