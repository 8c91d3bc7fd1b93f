//! File engines beside a selector: a ring of io_uring, else Linux AIO. With them no thread of ours
//! waits for a disk. The first operation for an engine opens it; its eventfd stands in the
//! selector's wait.
//!
//! ```text
//!             direct reads   direct writes   syncs   reads that the page cache does not have
//!   ring           x               x           x                      x
//!   AIO            x                           x
//! ```
//!
//! AIO gets no writes: on a frozen file system io_submit(2) would block (`sb_start_write`) in spite
//! of `RWF_NOWAIT`, and the loop with it. io_submit(2) hands a sync to a kernel thread, and a read
//! starts no write. Threads do the rest.

#![allow(unsafe_code)]
//! # Safety
//!
//! The memory of a request is the caller's promise, as for `Kernel::start_file`.

mod aio;
mod ring;
mod stage;

use std::io;

use crate::completion::Completions;
use crate::completion::verbs::Submit;
use crate::driver::config::Config;
use crate::file::{FileAnswer, FileBackend, FileFacts, FileList, FileRequest, FileWork};
use crate::kernel::aio::{AioFiles, Raw};
use crate::kernel::quirks::{NO_SQPOLL, Quirk, Quirks};
use crate::sys::fd::RawFd;
use crate::sys::file_request::{Code, EngineRequest, FileCompletion, RawOp};
use crate::sys::file_ring::release;
use crate::sys::step;
use crate::words::error::Refusal;
use crate::words::explain::Explain;
use crate::words::source::Ticket;
use stage::Stage;

/// The result of a request that the kernel has not begun and that was not cancelled: it starts
/// again elsewhere.
const NOT_BEGUN: i32 = -libc::ECANCELED;

/// Texts of rows of `explain`: the work of a ring, the work of AIO, and the work that AIO leaves to
/// threads.
const RING_WORK: &str = "direct reads, writes; syncs; uncached reads";
const AIO_WORK: &str = "direct reads; syncs";
const LEFT_WORK: &str = "direct reads, writes";

pub(crate) struct Engines {
    ring: Stage<ring::RingEngine>,
    aio: Stage<AioFiles<Raw>>,
    /// The program has named an engine. Then a refusal of that engine is an error.
    is_named: bool,
    /// An engine is open. A wait without file work checks only this.
    is_open: bool,
    /// The most requests that one system call submits.
    most_per_call: u32,
    quirks: Quirks,
    answers: Completions<FileCompletion>,
    left: Left,
}

/// Direct reads and writes that were left to threads, by reason.
#[derive(Default)]
struct Left {
    unaligned: u64,
    appended: u64,
    unknown: u64,
    writes: u64,
    full: u64,
}

impl Engines {
    /// The engines that `config` allows. They need a selector that reports edges: `edges` tells
    /// whether it does.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid list of quirks.
    pub(crate) fn new(config: &Config, edges: bool) -> io::Result<Engines> {
        let lets = |named| {
            let chosen = config.file_backend;
            edges && (chosen == FileBackend::Auto || chosen == named)
        };
        let mut engines = Engines::none();
        engines.most_per_call = config.file_batch.max(1);
        engines.is_named = config.file_backend != FileBackend::Auto;
        if lets(FileBackend::Uring) {
            engines.ring = Stage::Unused;
            engines.quirks = Quirks::new(release(), &config.quirks)?;
        }
        if lets(FileBackend::Aio) {
            engines.aio = Stage::Unused;
        }
        Ok(engines)
    }

    /// No engine.
    pub(crate) fn none() -> Engines {
        Engines {
            ring: Stage::NotWanted,
            aio: Stage::NotWanted,
            is_named: true,
            is_open: false,
            most_per_call: u32::MAX,
            quirks: Quirks::none(),
            answers: Completions::new(),
            left: Left::default(),
        }
    }

    /// Opens the engine that the program named, if any, and has its eventfd watched.
    ///
    /// # Errors
    /// `Unsupported` with the refused step; the errno of a shortage (`EMFILE`, `ENOMEM` …).
    pub(crate) fn open_named(
        &mut self,
        mut watch: impl FnMut(RawFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_named {
            self.ring.open(self.most_per_call, &mut watch)?;
            self.aio.open(self.most_per_call, &mut watch)?;
            self.note_open();
        }
        Ok(())
    }

    fn note_open(&mut self) {
        self.is_open = self.ring.get().is_some() || self.aio.get().is_some();
    }

    /// Starts a request. False if threads must do it. `watch` gets the eventfd of a newly opened
    /// engine.
    pub(crate) fn start(
        &mut self,
        mut request: FileRequest<'_>,
        facts: FileFacts,
        mut watch: impl FnMut(RawFd) -> io::Result<()>,
    ) -> bool {
        if !self.ring.is_there(self.is_named) && !self.aio.is_there(self.is_named) {
            return false;
        }
        let moves = !matches!(request.work, FileWork::SyncAll | FileWork::SyncData);
        let writes = matches!(request.work, FileWork::Write(_) | FileWork::WriteList(_));
        if moves && !self.takes(&mut request, facts, writes) {
            return false;
        }
        let words = words_of(&mut request);
        if self.ring_serves(writes) {
            self.leave_short_ring();
            // `explain` reports the refusal.
            let opened = self.ring.open(self.most_per_call, &mut watch);
            self.note_open();
            if let Err(error) = opened
                && self.is_named
            {
                return self.answer_with(words.key, errno_in(&error));
            }
            if let Some(ring) = self.ring.get_mut() {
                // Ask first: making room submits requests, and the kernel may deny them.
                let has_room = ring.ring.has_room();
                match ring.ring.denied() {
                    None if has_room => {
                        ring.start(words);
                        return true;
                    }
                    // An explicit choice never falls back.
                    Some(errno) if self.is_named => return self.answer_with(words.key, errno),
                    Some(_) => {}
                    None => {
                        self.left.full += 1;
                        return false;
                    }
                }
            }
        }
        if writes {
            self.left.writes += 1;
            return false;
        }
        if moves && !facts.is_direct() {
            // AIO would block in io_submit(2).
            return false;
        }
        if !self.aio.is_there(self.is_named) {
            return false;
        }
        let opened = self.aio.open(self.most_per_call, &mut watch);
        self.note_open();
        if let Err(error) = opened
            && self.is_named
        {
            return self.answer_with(words.key, errno_in(&error));
        }
        let Some(aio) = self.aio.get_mut() else { return false };
        if aio.denied().is_some() && !self.is_named {
            return false;
        }
        // SAFETY: the caller's promise.
        let taken = aio.submit(unsafe { RawOp::new(words) }).is_ok();
        self.left.full += u64::from(!taken);
        taken
    }

    /// The answer of a request that the engine with this name did not get.
    fn answer_with(&mut self, key: u64, errno: i32) -> bool {
        self.answers.push(FileCompletion { key, result: -errno });
        true
    }

    /// Closes a ring that the kernel had no memory for, once its answers are taken.
    fn leave_short_ring(&mut self) {
        if let Some(engine) = self.ring.get()
            && let Some(errno) = engine.ring.is_short()
            && !engine.ring.has_completed()
        {
            let error = io::Error::from_raw_os_error(errno);
            self.ring.close(&step::at("io_uring_enter(2)", error));
            self.note_open();
        }
    }

    /// Whether this file allows an asynchronous read or write.
    fn takes(&mut self, request: &mut FileRequest<'_>, facts: FileFacts, writes: bool) -> bool {
        let left = &mut self.left;
        let reason = if facts.is_refused() {
            &mut left.unknown
        } else if !facts.is_direct() {
            // The ring hands a buffered write to a kernel thread, which takes three times as long
            // as a thread of ours.
            return !writes;
        } else if writes && facts.appends() {
            &mut left.appended
        } else if !request.is_aligned(facts) {
            &mut left.unaligned
        } else {
            return true;
        };
        *reason += 1;
        false
    }

    /// Whether the ring does such work; the kernel's known faults exclude some.
    fn ring_serves(&mut self, writes: bool) -> bool {
        if !self.ring.is_there(self.is_named) {
            return false;
        }
        let mut quirks = [Quirk::ArmFiles, Quirk::PowerFiles].into_iter();
        let refused = quirks.any(|quirk| self.quirks.applies(quirk))
            || writes && self.quirks.applies(Quirk::FrozenWrites);
        !refused
    }

    /// Cancels a request; its answer tells whether that succeeded.
    pub(crate) fn stop(&mut self, key: u64) {
        if let Some(ring) = self.ring.get_mut() {
            ring.ring.cancel(key);
        }
        if let Some(aio) = self.aio.get_mut() {
            aio.cancel(Ticket::of_key(key));
        }
    }

    /// Submits the requests held back; returns whether answers are already there.
    #[inline(always)]
    pub(crate) fn flush(&mut self) -> bool {
        self.is_open && self.flush_open()
    }

    #[inline(never)]
    fn flush_open(&mut self) -> bool {
        if let Some(ring) = self.ring.get_mut() {
            ring.ring.flush();
        }
        if let Some(aio) = self.aio.get_mut() {
            aio.flush();
        }
        self.has_answers()
    }

    /// Whether answers are there, including answers without an event.
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
            || self.ring.get().is_some_and(|ring| ring.ring.has_completed())
            || self.aio.get().is_some_and(|aio| aio.has_completed())
    }

    /// Takes the next answer.
    pub(crate) fn answer(&mut self) -> Option<FileAnswer> {
        if self.answers.is_empty() {
            if let Some(ring) = self.ring.get_mut() {
                ring.take(self.is_named, &mut self.answers.items);
            }
            if let Some(aio) = self.aio.get_mut() {
                aio::take(aio, self.is_named, &mut self.answers);
            }
            self.answers.items.reverse();
            self.leave_short_ring();
        }
        let FileCompletion { key, result } = self.answers.items.pop()?;
        Some(FileAnswer { key, moved: result as isize })
    }

    /// System calls, by name.
    pub(crate) fn calls(&self) -> Vec<(&'static str, u64)> {
        let mut calls = Vec::new();
        if let Some(ring) = self.ring.get() {
            calls.push(("io_uring_enter", ring.ring.counters().enters));
        }
        if let Some(aio) = self.aio.get() {
            let counters = aio.counters();
            calls.push(("io_submit", counters.submits));
            calls.push(("io_getevents", counters.getevents));
        }
        calls
    }

    pub(crate) fn explain(&self, explain: &mut Explain) {
        let (mechanism, reason, count) = self.ring.explain();
        explain.row(RING_WORK, mechanism, reason, count);
        let (mechanism, reason, count) = self.aio.explain();
        explain.row(AIO_WORK, mechanism, reason, count);
        let left = &self.left;
        for (reason, count) in [
            ("memory, offset or length is not aligned as the file requires", left.unaligned),
            (
                "the file is appended to: what is written in part must not be written again",
                left.appended,
            ),
            ("the file system cannot do it without waiting", left.unknown),
            (
                "AIO, and the ring of an old kernel, would block on a frozen file system",
                left.writes,
            ),
            ("the kernel already had the most requests at a time", left.full),
        ] {
            if count > 0 {
                explain.row(LEFT_WORK, "threads", reason, count);
            }
        }
        if let Some(ring) = self.ring.get() {
            let enters = ring.ring.counters().enters;
            explain.row("submission", "io_uring_enter", NO_SQPOLL, enters);
            self.quirks.explain(explain);
        }
    }
}

/// The errno of an engine that could not be opened.
fn errno_in(error: &io::Error) -> i32 {
    match Refusal::of(error) {
        Some(Refusal::Os(errno)) => errno,
        _ => step::errno_of(error),
    }
}

/// A request in the form that the engines take.
fn words_of(request: &mut FileRequest<'_>) -> EngineRequest {
    let (code, start, len) = match &mut request.work {
        FileWork::Read(to) => (Code::Read, to.as_mut_ptr(), to.len()),
        FileWork::Write(bytes) => (Code::Write, bytes.as_ptr().cast_mut(), bytes.len()),
        FileWork::ReadList(list) => vectored(Code::ReadVectored, list),
        FileWork::WriteList(list) => vectored(Code::WriteVectored, list),
        FileWork::SyncAll => (Code::Fsync, std::ptr::null_mut(), 0),
        FileWork::SyncData => (Code::Fdsync, std::ptr::null_mut(), 0),
    };
    // A sync has no offset.
    let offset = if len > 0 { request.offset } else { 0 };
    EngineRequest { key: request.key, code, fd: request.fd, start, len, offset, rw_flags: 0 }
}

/// A request for a list names the list's array of `iovec`.
fn vectored(code: Code, list: &FileList<'_>) -> (Code, *mut u8, usize) {
    let vectors = list.vectors();
    (code, vectors.as_ptr().cast_mut().cast(), vectors.len())
}
