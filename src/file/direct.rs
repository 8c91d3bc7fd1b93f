//! Direct I/O through Linux AIO: the context, opened at the first use, beside a selector.
//!
//! Only what does not wait in io_submit(2) goes there: `O_DIRECT`, aligned, with `RWF_NOWAIT`, so that
//! what would have to wait comes back `EAGAIN` and goes to the threads; and syncs.

#![allow(unsafe_code)]
//! # Safety
//!
//! The memory of a request is the caller's promise, as for `Kernel::start_file`.

use std::io;

use super::backend::FileBackend;
use super::facts::Facts;
use super::list::FileList;
use super::request::{FileAnswer, FileRequest, FileWork};
use crate::driver::Explain;
use crate::sys::aio::{self, Aio, Code, Request};
use crate::sys::fd::RawFd;

/// Requests that a context is asked to hold.
const ENTRIES: u32 = 1024;
/// While the kernel has fewer, each request is submitted by itself: holding them back would let the
/// device run dry.
const EAGER: u32 = 32;

enum State {
    Unused,
    Open(Box<Aio>),
    Refused(String),
}

pub(crate) struct Direct {
    state: State,
    wanted: bool,
    answers: Vec<aio::Completed>,
    refused: u64,
}

impl Direct {
    /// Uses AIO if `backend` lets it, from the first operation on that can.
    pub(crate) fn new(backend: FileBackend, edges: bool) -> Direct {
        let wanted = edges && matches!(backend, FileBackend::Auto | FileBackend::Aio);
        Direct { state: State::Unused, wanted, answers: Vec::new(), refused: 0 }
    }

    /// Opens the context now; the descriptor to be watched.
    ///
    /// # Errors
    /// `Unsupported` with the step that was refused; what the system is short of.
    pub(crate) fn open(&mut self) -> io::Result<Option<RawFd>> {
        if !self.wanted || !matches!(self.state, State::Unused) {
            return Ok(None);
        }
        match Aio::open(ENTRIES)? {
            Ok(aio) => {
                use crate::sys::fd::AsRawFd;
                let fd = aio.event_fd().as_raw_fd();
                self.state = State::Open(Box::new(aio));
                Ok(Some(fd))
            }
            Err(refused) => {
                self.state = State::Refused(refused.to_string());
                Err(io::Error::new(io::ErrorKind::Unsupported, refused))
            }
        }
    }

    /// The context could not be watched.
    pub(crate) fn give_up(&mut self, error: &io::Error) {
        self.state = State::Refused(format!("its eventfd cannot be watched: {error}"));
    }

    /// Whether there is still to be decided whether there is a context.
    pub(crate) fn is_unused(&self) -> bool {
        self.wanted && matches!(self.state, State::Unused)
    }

    /// Starts a request; false when it is not for AIO.
    pub(crate) fn start(&mut self, request: &mut FileRequest<'_>, facts: Facts) -> bool {
        let State::Open(aio) = &mut self.state else { return false };
        if !aio.has_room() {
            self.refused += 1;
            return false;
        }
        let (code, start, len) = match &mut request.work {
            FileWork::Read(to) => (Code::Read, to.as_mut_ptr(), to.len()),
            FileWork::Write(bytes) => (Code::Write, bytes.as_ptr().cast_mut(), bytes.len()),
            FileWork::ReadList(list) => vectored(Code::ReadVectored, list),
            FileWork::WriteList(list) => vectored(Code::WriteVectored, list),
            FileWork::Sync => (Code::Fsync, std::ptr::null_mut(), 0),
            FileWork::DataSync => (Code::Fdsync, std::ptr::null_mut(), 0),
        };
        let moves = len > 0;
        let writes = matches!(code, Code::Write | Code::WriteVectored);
        let fits = |start, len| facts.fits(start, len, request.offset);
        let sound = facts.is_direct()
            && !facts.is_refused()
            && !(facts.appends() && writes)
            && match &request.work {
                FileWork::ReadList(list) | FileWork::WriteList(list) => {
                    list.parts().all(|(start, len)| fits(start, len))
                }
                _ => fits(start, len),
            };
        if moves && !sound {
            return false;
        }
        let (offset, rw_flags) = if moves { (request.offset, aio::NOWAIT) } else { (0, 0) };
        let (key, fd) = (request.key, request.fd);
        // SAFETY: the caller's promise.
        unsafe { aio.push(Request { key, code, fd, start, len, offset, rw_flags }) };
        if aio.in_kernel() < EAGER {
            aio.flush();
        }
        true
    }

    /// Submits what is held back; whether there are answers already.
    #[inline(always)]
    pub(crate) fn flush(&mut self) -> bool {
        if let State::Open(aio) = &mut self.state {
            if aio.queued() > 0 {
                aio.flush();
            }
            return self.has_answers();
        }
        false
    }

    /// Whether there are answers, also those of which no event tells.
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty() || matches!(&self.state, State::Open(aio) if aio.has_completed())
    }

    /// Takes the next answer.
    pub(crate) fn answer(&mut self) -> Option<FileAnswer> {
        if self.answers.is_empty()
            && let State::Open(aio) = &mut self.state
        {
            aio.take(&mut self.answers);
            self.answers.reverse();
        }
        let aio::Completed { key, result } = self.answers.pop()?;
        Some(FileAnswer { key, moved: result as isize })
    }

    /// System calls, by name.
    pub(crate) fn calls(&self) -> Vec<(&'static str, u64)> {
        let State::Open(aio) = &self.state else { return Vec::new() };
        let counters = aio.counters();
        vec![("io_submit", counters.submits), ("io_getevents", counters.getevents)]
    }

    pub(crate) fn explain(&self, explain: &mut Explain) {
        let (mechanism, reason, count) = match &self.state {
            State::Open(aio) => {
                let direct =
                    "O_DIRECT and aligned, with RWF_NOWAIT; completions beside the sockets'";
                let reason = format!("{direct}; {}", aio.setup());
                ("Linux AIO", reason, aio.counters().submitted)
            }
            State::Refused(why) => ("threads", why.clone(), 0),
            State::Unused if self.wanted => {
                ("Linux AIO", "none so far: from the first O_DIRECT operation on".into(), 0)
            }
            State::Unused => ("threads", "AIO is not to be used, or not there".into(), 0),
        };
        explain.row("direct reads, writes; syncs", mechanism, reason, count);
        if self.refused > 0 {
            let full = "the AIO context was full";
            explain.row("direct reads, writes; syncs", "threads", full, self.refused);
        }
    }
}

/// The array of a list is what such a request names.
fn vectored(code: Code, list: &FileList<'_>) -> (Code, *mut u8, usize) {
    let vectors = list.vectors();
    (code, vectors.as_ptr().cast_mut().cast(), vectors.len())
}
