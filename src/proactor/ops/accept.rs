//! Accepts of a listener's connections.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::READ_PAUSED;
use crate::proactor::turn::waits::MEMORY_PAUSE_NS;
use crate::sys::net;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

/// How long accepts pause when descriptors have run out.
const SHORTAGE_PAUSE_NS: u64 = 20_000_000;

/// An accept counts for at least this many bytes of a source's share of a turn.
const ACCEPT_COST: usize = 1024;

/// A share of a turn pays for at most this many accepts.
const MOST_ACCEPTS: usize = 256;

/// Errors in a row after which accepts pause.
const ERRORS_PER_PAUSE: u32 = 16;

/// Pauses with the same error after which the accept ends with it: about a second.
const PAUSES_BEFORE_END: u32 = 50;

/// Errors in a row after which accepts pause, if peers can cause such errors: a whole backlog may
/// have them.
const ABORTS_PER_PAUSE: u32 = 1024;

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
                self.ops[slot].count = 0;
                self.finish_read(index, slot, Ok(Done::Accepted(handle)));
            }
            Err(libc::EAGAIN) => {
                self.ops[slot].count = 0;
                self.block_read(index);
            }
            Err(errno) if net::is_of_connection(errno) => self.accept_failed(index, slot, errno),
            Err(libc::EMFILE | libc::ENFILE) => {
                self.stats.counters.descriptor_shortages += 1;
                let fd = state.fd;
                self.kernel.calls_mut().shed_connection(fd);
                self.pause(index, READ_PAUSED, SHORTAGE_PAUSE_NS);
            }
            Err(libc::ENOBUFS | libc::ENOMEM) => {
                self.pause(index, READ_PAUSED, MEMORY_PAUSE_NS);
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
        let (errors, last) = (&mut op.count, &mut op.offset);
        if *last != errno as u64 {
            (*errors, *last) = (0, errno as u64);
        }
        *errors += 1;
        let harmless = matches!(errno, libc::ECONNABORTED | libc::EINTR);
        let run = if harmless { ABORTS_PER_PAUSE } else { ERRORS_PER_PAUSE };
        if *errors % run != 0 {
            return;
        }
        if *errors == ERRORS_PER_PAUSE * PAUSES_BEFORE_END && !harmless {
            return self.fail(slot, ErrorKind::Os(errno));
        }
        if harmless {
            *errors = 0;
        }
        self.pause(index, READ_PAUSED, SHORTAGE_PAUSE_NS);
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let turn = "until EAGAIN, in listeners' turn";
    explain.row("accept", "accept4", turn, stats.count(OpCode::Accept));
}
