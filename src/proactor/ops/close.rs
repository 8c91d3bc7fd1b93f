//! Shutdowns and closes, which follow the writes before them.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Buf;
use crate::op::OpCode;
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{CLOSING, READ_BUSY, WRITABLE};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, Ticket};

impl<K: Kernel> Proactor<K> {
    /// Accepts a close. It ends at once if the source has nothing left to do.
    #[inline(never)]
    pub(in crate::proactor) fn submit_close(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
    ) -> Option<Ticket> {
        let (usable, has_failed) = match self.usable(source) {
            // A source whose connect has failed has nothing to flush.
            Err(Refusal::Os(_)) if self.is_unconnected(source) => (Ok(source.index()), true),
            usable => (usable, false),
        };
        let answer = usable.and_then(|index| {
            let token = self.sources.token(source, token);
            if !has_failed && !self.is_done_with(index) {
                return self.submit_after_writes(OpCode::Close, source, token, due_ns);
            }
            // Check before the close changes anything.
            self.check_completions()?;
            self.end_timers(index);
            self.stats.submitted[OpCode::Close as usize] += 1;
            self.close_source(index);
            let ticket = self.ended_ticket();
            self.outbox.push(OpCode::Close, source, ticket, token, Ok(Done::Closed));
            Ok(ticket)
        });
        answer.map_err(|reason| self.outbox.refusal = (reason, Buf::NONE)).ok()
    }

    #[inline(never)]
    pub(in crate::proactor) fn submit_after_writes(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        due_ns: u64,
    ) -> Submitted {
        let index = self.usable(source)?;
        if code == OpCode::Shutdown && !self.sources[index].kind().is_socket() {
            return Err(Refusal::Unsupported);
        }
        let ticket = self.place(code, index, token)?;
        if code == OpCode::Close {
            self.sources[index].flags |= CLOSING;
        }
        self.sources[index].push_write(&mut self.ops.table, ticket.index());
        self.need_no_room(index);
        self.finish_write_start(index, ticket, due_ns);
        Ok(ticket)
    }

    /// One attempt of a shutdown or a close, behind the writes before it.
    pub(in crate::proactor) fn run_close(&mut self, index: u32, slot: u32) {
        let state = &self.sources[index];
        if self.ops[slot].code == OpCode::Shutdown {
            let answer = self.kernel.calls_mut().shutdown(state.fd);
            return match answer {
                0.. => self.finish_write(index, slot, Ok(Done::Shutdown)),
                _ => self.fail(slot, ErrorKind::Os(-answer as i32)),
            };
        }
        // The completion stands behind those of the reads that it ends. The kernel may have one of
        // them for longer.
        if K::COMPLETES && state.has(READ_BUSY) {
            self.fail_reads(index, ErrorKind::Aborted);
            self.reap();
            let state = &mut self.sources[index];
            if state.has(READ_BUSY) {
                state.flags &= !WRITABLE;
                return;
            }
        }
        if self.closes_late(index) {
            return self.close_late(index, slot);
        }
        let state = &self.sources[index];
        let (source, token) = (state.name(index), self.ops[slot].token);
        let ticket = self.ops.ticket(slot);
        self.remove(slot);
        self.abort_source(source);
        self.outbox.push(OpCode::Close, source, ticket, token, Ok(Done::Closed));
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain, has_files: bool) {
    let queue = "in its place behind the writes";
    explain.row("shutdown", "shutdown", queue, stats.count(OpCode::Shutdown));
    let behind = "in its place behind the writes; at once where there are no operations";
    let close = if has_files { "close; by a thread if it may wait" } else { "close" };
    explain.row("close", close, behind, stats.count(OpCode::Close));
}
