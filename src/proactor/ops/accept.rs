//! Accepts of a listener's connections.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::READ_PAUSED;
use crate::sys::net;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

/// An accept counts for at least this many bytes of a source's share of a turn.
const ACCEPT_COST: usize = 1024;

/// A share of a turn pays for at most this many accepts.
const MOST_ACCEPTS: usize = 256;

/// Accepts pause when the errors in a row count for so much. A whole backlog may have errors that
/// peers cause, so these count for 1.
const ERRORS_PER_PAUSE: u32 = 1024;
/// What an error counts for that neither a peer nor a signal causes.
const OWN_ERROR: u32 = 64;
/// So many of these errors in a row end the accept: fifty pauses, more than a second.
const MOST_OWN_ERRORS: u64 = 800;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_accept(&mut self, op: &Op, token: u64) -> Submitted {
        let index = self.usable(op.source)?;
        if self.sources[index].kind() != SourceKind::Listener {
            return Err(Refusal::Unsupported);
        }
        let ticket = self.place(OpCode::Accept, index, token)?;
        let entry = &mut self.ops[ticket.index()];
        (entry.multishot, entry.count, entry.offset) = (op.is_multishot(), 0, 0);
        Ok(self.start_read(index, ticket, op.deadline_ns))
    }

    pub(super) fn run_accept(&mut self, index: u32, slot: u32, left: &mut usize) {
        *left = left.saturating_sub(ACCEPT_COST.max(self.config.source_budget / MOST_ACCEPTS));
        // Every connection needs a slot for its source.
        let vacant = self.sources.table.limit() - self.sources.table.len();
        if self.outbox.accepted >= vacant as usize {
            return self.wait_for_slot(index);
        }
        let state = &self.sources[index];
        match self.kernel.calls_mut().accept(state.fd, state.kind()) {
            Ok(handle) => {
                self.outbox.accepted += 1;
                (self.ops[slot].count, self.ops[slot].offset) = (0, 0);
                self.finish_read(index, slot, Ok(Done::Accepted(handle)));
            }
            Err(libc::EAGAIN) => {
                (self.ops[slot].count, self.ops[slot].offset) = (0, 0);
                self.block_read(index);
            }
            Err(errno) if net::is_of_connection(errno) => self.accept_failed(index, slot, errno),
            Err(libc::EMFILE | libc::ENFILE) => {
                self.stats.counters.descriptor_shortages += 1;
                let fd = state.fd;
                self.kernel.calls_mut().shed_connection(fd);
                self.pause(index, READ_PAUSED);
            }
            Err(libc::ENOBUFS | libc::ENOMEM) => {
                self.pause(index, READ_PAUSED);
            }
            Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
        }
    }

    /// The connection is gone, or a signal came: the next accept may succeed. But a seccomp filter
    /// or a network that is down can fail every accept without removing a connection. So accepts
    /// pause, and an accept that meets only such errors ends. (Errors that peers or signals cause
    /// never end an accept.)
    #[cold]
    fn accept_failed(&mut self, index: u32, slot: u32, errno: i32) {
        self.stats.counters.accept_errors += 1;
        let op = &mut self.ops[slot];
        // An accept does not use these fields otherwise: they hold the range of a file.
        let (errors, own_errors) = (&mut op.count, &mut op.offset);
        if matches!(errno, libc::ECONNABORTED | libc::EINTR) {
            (*errors, *own_errors) = (*errors + 1, 0);
        } else {
            (*errors, *own_errors) = (*errors + OWN_ERROR, *own_errors + 1);
        }
        if *own_errors == MOST_OWN_ERRORS {
            return self.fail(slot, ErrorKind::Os(errno));
        }
        // Errors of any kind count: they may alternate.
        if *errors >= ERRORS_PER_PAUSE {
            *errors = 0;
            self.pause(index, READ_PAUSED);
        }
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let turn = "until EAGAIN, in listeners' turn";
    explain.row("accept", "accept4", turn, stats.count(OpCode::Accept));
}
