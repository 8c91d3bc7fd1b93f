//! Queries of a source's state, which change nothing.

use std::io;

use crate::kernel::{Calls, Kernel};
use crate::proactor::Proactor;
use crate::proactor::parts::state::{CONNECTING, INLINE_TICKET, RESERVED};
use crate::sys::fd::RawFd;
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::source::{Source, Ticket};

impl<K: Kernel> Proactor<K> {
    /// `queued_bytes` for a source that was aborted, or that another thread's queued request
    /// attaches.
    #[cold]
    #[inline(never)]
    pub(super) fn queued_bytes_of_other(&self, source: Source) -> Result<usize, Refusal> {
        self.sources.check_fork()?;
        // Nothing is queued yet on a source whose name is reserved for another thread.
        self.sources.peek(source).map(|_| 0).ok_or(self.sources.stale())
    }

    /// Whether an operation has not ended. An operation whose request the loop has not taken yet
    /// counts, too.
    pub(super) fn has_not_ended(&self, ticket: Ticket) -> bool {
        match ticket.index() & INLINE_TICKET {
            0 => self.ops.table.look(ticket.index(), ticket.generation()).is_some(),
            _ => {
                self.sources.is_inline(ticket)
                    || self.sources.moved_read(&self.ops, ticket).is_some()
            }
        }
    }

    /// Asks the kernel about a source. The source may be one that another thread has attached, in a
    /// request that the loop has not taken yet.
    pub(super) fn ask(
        &self,
        source: Source,
        ask: impl Fn(&K, RawFd) -> io::Result<Address>,
    ) -> Result<Address, Refusal> {
        self.sources.check_fork()?;
        let answer = match self.sources.peek(source) {
            Some(state) if state.has(RESERVED) => self.inbox.remote.look_for(source, |handle| {
                match self.kernel.calls().accepts(handle) {
                    true => ask(&self.kernel, handle.raw()),
                    false => Err(Refusal::NoDescriptor.into()),
                }
            }),
            Some(state) if !state.has(CONNECTING) => match state.why_no_descriptor() {
                Some(reason) => return Err(reason),
                None => Some(ask(&self.kernel, state.fd)),
            },
            _ => None,
        };
        answer.ok_or(self.sources.stale())?.map_err(Refusal::from_io)
    }

    /// Whether the connect of this source has failed or goes on.
    pub(super) fn is_unconnected(&self, source: Source) -> bool {
        let state = self.sources.peek(source).filter(|state| !state.has(RESERVED | CONNECTING));
        state.is_some_and(|state| state.fd < 0)
    }
}
