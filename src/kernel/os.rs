//! The system as the proactor's kernel: its selector, its calls, its clock.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only the promise of `Kernel` is made here; the calls themselves stand in `sys`.

use std::io::{self};
use std::sync::Arc;

use super::file_engine::Engines;
use super::os_calls::OsCalls;
use super::{FILES, Kernel, WAKE};
use crate::driver::config::Config;
use crate::file::{FileAnswer, FileFacts, FileRequest};
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::{Mode, Ready};
use crate::sys::waker::SharedWake;
use crate::sys::{Select, Selector, os_errno};
use crate::words::clock;
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind};
use crate::words::table;

/// The system's kernel, on its own selector or another.
pub struct Os<S: Select = Selector> {
    selector: S,
    waker: SharedWake,
    calls: OsCalls,
    engines: Engines,
}

/// Has a selector watch the eventfd that reports finished file work.
fn watch<S: Select>(selector: &mut S, fd: RawFd) -> io::Result<()> {
    selector.add(fd, FILES, Ready::READABLE, Mode::Edge)
}

impl<S: Select> Os<S> {
    /// Opens the selector. A file engine opens at its first operation; an engine chosen by name
    /// opens now.
    pub(crate) fn new(config: &Config) -> io::Result<Os<S>> {
        let mut os = Os::without_engines(config.events_per_wait)?;
        os.engines = Engines::new(config, S::EDGES)?;
        os.engines.open_named(|fd| watch(&mut os.selector, fd))?;
        Ok(os)
    }

    /// Opens the selector, which takes at most `events` events per wait. Threads do all file work.
    pub(crate) fn without_engines(events: usize) -> io::Result<Os<S>> {
        clock::start();
        let mut selector = S::new(events)?;
        let waker = selector.waker(WAKE)?;
        let (calls, engines) = (OsCalls::new(), Engines::none());
        Ok(Os { selector, waker, calls, engines })
    }
}

// SAFETY: the system answers how many bytes it has written, and the wrappers pass that on.
unsafe impl<S: Select> Kernel for Os<S> {
    type Calls = OsCalls;

    const EDGES: bool = S::EDGES;
    const QUIET_WRITES: bool = S::QUIET_WRITES;
    const FILES: bool = true;

    fn name(&self) -> &'static str {
        S::NAME
    }

    fn renew(&self, config: &Config) -> io::Result<Os<S>> {
        let mut os = Os::new(config)?;
        os.calls.inherit(&self.calls)?;
        Ok(os)
    }

    fn start(&mut self) -> u32 {
        table::another_start()
    }

    #[inline]
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.calls.counts.wait += 1;
        // A request that failed when it was submitted makes no event, so this wait must not block.
        let timeout_ns = if self.engines.flush() { Some(0) } else { timeout_ns };
        self.selector.select(timeout_ns)
    }

    #[inline(always)]
    fn event(&self, i: usize) -> (u64, Ready) {
        self.selector.event(i)
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool) -> Result<(), i32> {
        if !S::EDGES {
            // Such a selector keeps no registrations: `arm` tells it before each wait what to
            // report.
            return Ok(());
        }
        add_to(&mut self.selector, fd, key, writes, &mut self.calls.counts.register)
    }

    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {
        self.selector.arm(fd, key, on);
    }

    fn deregister(&mut self, fd: RawFd, _key: u64) {
        self.calls.counts.register += 1;
        // ENOENT and EBADF: the registration is gone already.
        let _ = self.selector.remove(fd);
    }

    #[inline(always)]
    fn calls(&self) -> &OsCalls {
        &self.calls
    }

    #[inline(always)]
    fn calls_mut(&mut self) -> &mut OsCalls {
        &mut self.calls
    }

    fn waker(&self) -> SharedWake {
        Arc::clone(&self.waker)
    }

    unsafe fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        self.engines.start(request, facts, |fd| watch(&mut self.selector, fd))
    }

    fn stop_file(&mut self, key: u64) {
        self.engines.stop(key);
    }

    fn has_file_answers(&self) -> bool {
        self.engines.has_answers()
    }

    fn file_answer(&mut self) -> Option<FileAnswer> {
        self.engines.answer()
    }

    fn close(&mut self, fd: RawFd) {
        if S::FORGETS_CLOSED {
            self.selector.forget(fd);
        } else {
            let _ = self.selector.remove(fd);
        }
        self.calls.close(fd);
    }

    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        self.calls.release(fd, kind)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.selector.pollable()
    }

    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        let mut calls = self.calls.named();
        calls.extend(self.engines.calls().into_iter().filter(|(_, count)| *count > 0));
        calls
    }

    fn explain(&self, explain: &mut Explain) {
        let (mechanism, reason) = self.selector.explain();
        explain.row("wait", mechanism, reason, self.calls.counts.wait);
        explain.row("registration", S::NAME, S::REGISTRATION, self.calls.counts.register);
        self.calls.explain_batches(explain);
        self.engines.explain(explain);
    }
}

/// Adds a descriptor to a selector with edges, for reads and perhaps for writes; counts the calls.
pub(crate) fn add_to<S: Select>(
    selector: &mut S,
    fd: RawFd,
    key: u64,
    writes: bool,
    calls: &mut u64,
) -> Result<(), i32> {
    *calls += 1;
    let on = Ready::READABLE | Ready::PRIORITY;
    let on = if writes { on | Ready::WRITABLE } else { on };
    let errno = |e: io::Error| os_errno(&e).unwrap_or(libc::EIO);
    match selector.add(fd, key, on, Mode::Edge).map_err(errno) {
        // The descriptor is registered for reads already. Or a duplicate has kept alive the
        // registration of a closed descriptor with the same number.
        Err(libc::EEXIST) => {
            *calls += 1;
            selector.modify(fd, key, on, Mode::Edge).map_err(errno)
        }
        answer => answer,
    }
}
