//! Connects of one socket to one address.

use crate::completion::Done;
use crate::kernel::{Calls, Connecting, Kernel};
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::ops::race::ATTEMPT;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{
    CONNECTING, DUPLICATED, PREPARED, READABLE, REGISTERED, WRITABLE, WRITE_PAUSED,
};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, SourceKind, Ticket};

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_connect(&mut self, op: &mut Op, token: u64) -> Submitted {
        self.sources.check_open()?;
        if !op.payload.is_address() {
            return Err(Refusal::Unsupported);
        }
        if op.count != 0 {
            // The program's socket belongs to another kernel.
            return Err(Refusal::NoDescriptor);
        }
        let (source, ticket) = self.place_connect(token)?;
        let index = source.index();
        let mut to = op.payload.take_address().expect("looked at above");
        let prepared = to.take_descriptors().pop();
        // A socket that the program has made may have duplicates.
        let duplicated = if prepared.is_some() { DUPLICATED } else { 0 };
        let slot = ticket.index();
        match self.kernel.calls_mut().connect(&to, prepared) {
            Ok((fd, kind, connecting)) => {
                let state = &mut self.sources[index];
                state.open(fd, kind, duplicated);
                state.flags &= !READABLE;
                state.flags |= CONNECTING | PREPARED | WRITABLE;
                state.push_write(&mut self.ops.table, slot);
                self.ops[slot].address = Some(to);
                self.connecting(index, slot, connecting);
                self.set_deadline(ticket, op.deadline_ns);
            }
            Err(errno) => {
                self.sources[index].open(-1, SourceKind::Unknown, CONNECTING);
                self.sources[index].push_write(&mut self.ops.table, slot);
                self.ops[slot].address = Some(to);
                self.fail(slot, ErrorKind::Os(errno));
            }
        }
        Ok(ticket)
    }

    /// Takes the slots of a connect and of its source.
    pub(in crate::proactor) fn place_connect(
        &mut self,
        token: u64,
    ) -> Result<(Source, Ticket), Refusal> {
        let Some((index, generation)) = self.sources.table.occupy() else {
            return Err(self.sources.full());
        };
        let ticket = self.place(OpCode::Connect, index, token);
        let ticket = ticket.inspect_err(|_| self.sources.table.vacate(index))?;
        Ok((Source::from_parts(index, generation), ticket))
    }

    /// Handles the outcome of a connect: done, in progress, or to be tried again.
    pub(in crate::proactor) fn connecting(&mut self, index: u32, slot: u32, how: Connecting) {
        if how == Connecting::Full {
            return self.pause(index, WRITE_PAUSED);
        }
        let address = self.ops[slot].address.take();
        self.memory.keep_address(address);
        if how == Connecting::Done { self.connected(index, slot) } else { self.block_write(index) }
    }

    /// A connect has succeeded: its socket leaves the table.
    pub(in crate::proactor) fn connected(&mut self, index: u32, slot: u32) {
        if self.ops[slot].count == ATTEMPT {
            return self.attempt_done(index, slot);
        }
        let state = &self.sources[index];
        let (fd, kind, registered) = (state.fd, state.kind(), state.has(REGISTERED));
        if registered {
            let key = state.name(index).key();
            self.kernel.deregister(fd, key);
        }
        let handle = self.kernel.release(fd, kind);
        // The handle owns the descriptor now.
        self.sources[index].fd = -1;
        self.finish_write(index, slot, Ok(Done::Socket(handle)));
        self.vacate_source(index);
    }

    /// One attempt to end a connect that is in progress.
    pub(in crate::proactor) fn run_connect(&mut self, index: u32, slot: u32) {
        let fd = self.sources[index].fd;
        if let Some(to) = &self.ops[slot].address {
            // The listener had no room.
            return match self.kernel.calls_mut().connect_again(fd, to) {
                Ok(connecting) => self.connecting(index, slot, connecting),
                Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
            };
        }
        match self.kernel.calls_mut().connect_result(fd) {
            0 => self.connected(index, slot),
            // The event was not about the connect, which is still in progress.
            libc::EINPROGRESS => self.block_write(index),
            errno => self.fail(slot, ErrorKind::Os(errno)),
        }
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let edge = "at its first edge";
    explain.row("connect", "connect, then SO_ERROR", edge, stats.count(OpCode::Connect));
}
