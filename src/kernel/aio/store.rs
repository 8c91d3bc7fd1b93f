//! What requests are, and where they stay until they have ended.

#![allow(private_interfaces)] // only this crate implements a `Store`
#![allow(unsafe_code)]
//! # Safety
//!
//! The promise of [`Raw`] is that of each [`RawOp`].

use std::io;

use crate::completion::Completions;
use crate::sys::aio::{Aio, EngineRequest, FileCompletion};
use crate::sys::file_request::RawOp;
use crate::words::error::Refused;
use crate::words::source::Ticket;

/// Where the requests of an [`AioFiles`](super::AioFiles) stay until they have ended.
///
/// # Safety
/// The memory of a kept request stays what it is, and what is read into is used by nothing else,
/// until its completion has been taken; for ever if it never is. Its descriptor stays open until
/// it was submitted.
pub unsafe trait Store {
    /// A request.
    type Op;
    /// How it ended.
    type Item;

    /// Whether it can be used: not in a forked child.
    ///
    /// # Errors
    /// [`Refusal::Forked`](crate::Refusal::Forked).
    fn check(&self) -> io::Result<()>;

    /// Keeps a request: its ticket, and what the kernel is to be told.
    ///
    /// # Errors
    /// The request comes back.
    fn keep(&mut self, op: Self::Op) -> Result<(Ticket, EngineRequest), Refused<Self::Op>>;

    /// Takes a request back that was not submitted yet; false for a stale ticket.
    fn cancel(&mut self, ticket: Ticket, aio: &mut Aio) -> bool;

    /// Notes that requests may have ended that the eventfd does not report.
    fn changed(&self, aio: &mut Aio);

    /// Takes the completions of ended requests. Returns their number.
    fn take(&mut self, aio: &mut Aio, out: &mut Completions<Self::Item>) -> usize;

    /// Ends the requests in flight, before `aio` is dropped.
    fn end(&mut self, aio: &mut Aio);
}

/// Keeps nothing: the maker of a request keeps its memory, and chooses its key. The maker watches
/// the eventfd for edges, asks [`has_completed`](super::AioFiles::has_completed) before it sleeps,
/// and has ended or leaked the requests in flight before the drop.
pub(crate) struct Raw;

// SAFETY: as the maker of each `RawOp` has promised.
unsafe impl Store for Raw {
    type Op = RawOp;
    type Item = FileCompletion;

    #[inline(always)]
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn keep(&mut self, op: RawOp) -> Result<(Ticket, EngineRequest), Refused<RawOp>> {
        let request = op.request();
        Ok((Ticket::of_key(request.key), request))
    }

    /// The maker knows which of its requests have not ended.
    fn cancel(&mut self, ticket: Ticket, aio: &mut Aio) -> bool {
        aio.withdraw(ticket.key());
        true
    }

    #[inline(always)]
    fn changed(&self, _: &mut Aio) {}

    #[inline(always)]
    fn take(&mut self, aio: &mut Aio, out: &mut Completions<FileCompletion>) -> usize {
        let before = out.len();
        aio.take(&mut out.items);
        out.len() - before
    }

    fn end(&mut self, _: &mut Aio) {}
}
