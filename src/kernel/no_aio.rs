//! The replacement of Linux AIO where there is none: it is always refused.

use std::convert::Infallible;
use std::io;

use crate::completion::Completions;
use crate::completion::verbs::{Complete, Submit, Wait};
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::file_request::{FileCompletion, RawOp};
use crate::words::error::Refused;
use crate::words::source::Ticket;

/// Programs have no names of Linux AIO here.
pub(crate) mod public {}

#[derive(Default)]
pub(crate) struct AioCounters {
    pub(crate) submits: u64,
    pub(crate) submitted: u64,
    pub(crate) getevents: u64,
}

pub(crate) struct Raw(Infallible);

/// No value of this type is ever made.
pub(crate) struct AioFiles<S>(S);

#[allow(clippy::unused_self)]
impl AioFiles<Raw> {
    pub(crate) fn open(_entries: u32, _most: u32) -> io::Result<AioFiles<Raw>> {
        let why = "Linux AIO is not available: this is not Linux";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
    pub(crate) fn has_completed(&self) -> bool {
        match self.0.0 {}
    }
    pub(crate) fn denied(&self) -> Option<i32> {
        match self.0.0 {}
    }
    pub(crate) fn counters(&self) -> AioCounters {
        match self.0.0 {}
    }
    pub(crate) fn setup(&self) -> &str {
        match self.0.0 {}
    }
    pub(crate) fn flush(&mut self) {
        match self.0.0 {}
    }
}

impl Submit for AioFiles<Raw> {
    type Op = RawOp;

    fn submit(&mut self, _: RawOp) -> Result<Ticket, Refused<RawOp>> {
        match self.0.0 {}
    }
    fn cancel(&mut self, _: Ticket) -> bool {
        match self.0.0 {}
    }
}

impl Complete for AioFiles<Raw> {
    type Item = FileCompletion;

    fn complete(&mut self, _: Wait, _: &mut Completions<FileCompletion>) -> io::Result<usize> {
        match self.0.0 {}
    }
}

impl AsFd for AioFiles<Raw> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0.0 {}
    }
}
