//! Signals of this process and the exit of children, as operations on sources.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel, Received};
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::DUPLICATED;
use crate::sys::fd::RawFd;
use crate::words::error::Refusal;
use crate::words::explain::Explain;
use crate::words::source::{Source, SourceKind};

/// How many bytes of the source's budget a signal costs.
const SIGNAL_COST: usize = 1024;

/// The reason for an errno. `EOPNOTSUPP` means that the system has no signals or children.
fn of_process(errno: i32) -> Refusal {
    if errno == libc::EOPNOTSUPP { Refusal::Unsupported } else { Refusal::Os(errno) }
}

impl<K: Kernel> Proactor<K> {
    /// Makes a source of a descriptor that the kernel makes.
    pub(in crate::proactor) fn make_of_process(
        &mut self,
        kind: SourceKind,
        make: impl FnOnce(&mut K::Calls) -> Result<RawFd, i32>,
    ) -> Result<Source, Refusal> {
        self.sources.check_room()?;
        let fd = make(self.kernel.calls_mut()).map_err(of_process)?;
        let Some((index, generation)) = self.sources.table.occupy() else {
            self.kernel.close(fd);
            return Err(self.sources.full());
        };
        self.sources.observe_forks();
        let duplicated = if self.sources.is_inherited(index) { DUPLICATED } else { 0 };
        self.sources[index].open(fd, kind, duplicated);
        let source = Source::from_parts(index, generation);
        self.inbox.remote.opened(source);
        Ok(source)
    }

    #[inline(never)]
    pub(in crate::proactor) fn submit_of_process(&mut self, op: &Op, token: u64) -> Submitted {
        let signals = op.code == OpCode::Signal;
        let kind = if signals { SourceKind::Signals } else { SourceKind::Child };
        let index = self.usable(op.source)?;
        if self.sources[index].kind() != kind {
            return Err(Refusal::Unsupported);
        }
        let ticket = self.place(op.code, index, token)?;
        self.ops[ticket.index()].multishot = op.is_multishot();
        let state = &mut self.sources[index];
        let first = !state.has_reads();
        state.push_read(&mut self.ops.table, ticket.index());
        if first && state.can_read() {
            let mut left = self.config.source_budget;
            self.run_reads(index, &mut left);
            self.requeue(index);
        }
        self.set_deadline(ticket, op.deadline_ns);
        Ok(ticket)
    }

    /// One attempt to take a signal, or the exit of a child.
    pub(in crate::proactor) fn run_of_process(&mut self, index: u32, slot: u32, left: &mut usize) {
        let fd = self.sources[index].fd;
        let done = if self.ops[slot].code == OpCode::Signal {
            *left = left.saturating_sub(SIGNAL_COST);
            self.kernel.calls_mut().take_signal(fd).map(Done::Signal)
        } else {
            self.kernel.calls_mut().take_exit(fd).map(Done::Exited)
        };
        match done {
            Ok(done) => self.finish_read(index, slot, Ok(done)),
            Err(errno) => self.read_stopped(index, slot, Received::plain(-(errno as isize))),
        }
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let signals = "a handler makes a descriptor readable; no signal is blocked";
    explain.row("signal", "sigaction", signals, stats.count(OpCode::Signal));
    let exits = "a pidfd or EVFILT_PROC tells of the exit; this child alone is reaped";
    explain.row("child_exit", "waitid", exits, stats.count(OpCode::ChildExit));
}
