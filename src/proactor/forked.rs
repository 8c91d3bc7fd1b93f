//! Rebuilding the driver in a forked child. The parent keeps its kernel object, its threads and
//! their work; the child begins with new ones.

use std::io;

use crate::driver::deadline::Deadlines;
use crate::kernel::Kernel;
use crate::memory::buf::swap::Pool;
use crate::op::operation::InFlight;
use crate::proactor::parts::files::Files;
use crate::proactor::parts::kernel_ops::KernelOps;
use crate::proactor::parts::state::{
    ABORTING, BYTES, CLOSING, CONNECTING, DUPLICATED, INLINE_MULTISHOT, INLINE_READ, KIND_MASK,
    POLLS, PREPARED, QUIET, READABLE, READS, RESERVED, WRITABLE, WRITES,
};
use crate::proactor::{Proactor, remote};
use crate::remote::{Remote, Request};
use crate::sys::{closing, fork};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::source::SourceKind;
use crate::words::table::Entry;

/// The flags that a source keeps in a forked child.
const KEPT: u32 = CLOSING
    | RESERVED
    | QUIET
    | DUPLICATED
    | CONNECTING
    | PREPARED
    | BYTES
    | INLINE_READ
    | INLINE_MULTISHOT
    | READS
    | WRITES
    | POLLS
    | ABORTING
    | KIND_MASK;

impl<K: Kernel> Proactor<K> {
    /// Makes the driver usable in a forked child. Does nothing if the process was not forked.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        if self.sources.check_fork().is_ok() {
            return Ok(());
        }
        if self.sources.closed {
            return Err(Refusal::Closed.into());
        }
        let kernel = self.kernel.renew(&self.config)?;
        self.kernel.abandon();
        self.kernel = kernel;
        let parents = std::mem::replace(&mut self.inbox.remote, remote(&self.config, &self.kernel));
        self.memory.pool =
            Pool::new(self.config.swap_limit, self.config.buffer_size, self.inbox.remote.waker());
        closing::close_inherited();
        let counts = std::mem::take(&mut self.files.counts);
        self.files = Files::default();
        self.files.counts = counts;
        self.kernel_ops = KernelOps::default();
        self.sched.may_have_events = false;
        self.sources.forks.generation = fork::generation();
        self.sources.observe_forks();
        self.end_parents(parents);
        self.ops.deadlines = Deadlines::new();
        self.sched.clear();
        self.time.paused.clear();
        (self.inbox.is_due, self.inbox.ids_wanted, self.inbox.serving) = (false, false, false);
        for index in self.sources.table.occupied().collect::<Vec<_>>() {
            self.sources[index].flags &= KEPT;
            if self.sources[index].has(PREPARED) {
                self.sources[index].flags |= READABLE | WRITABLE;
            }
        }
        self.time.wake_for_idle();
        Ok(())
    }

    /// Ends the operations that the parent has submitted, in the order of their queues, and vacates
    /// the ids that were reserved for the parent's other threads.
    fn end_parents(&mut self, mut parents: Remote) {
        for index in self.sources.table.occupied().collect::<Vec<_>>() {
            self.sources[index].flags &= KEPT;
        }
        self.end_attempts();
        parents.close();
        let mut aborted = Vec::new();
        while parents.is_quiet()
            && let Some(request) = parents.take()
        {
            match request {
                Request::Abort(source) => aborted.push(source),
                request => self.inherit(request),
            }
        }
        let mut ended = Vec::new();
        for slot in self.ops.table.occupied().collect::<Vec<_>>() {
            let op = &mut self.ops[slot];
            if op.reserved {
                op.reserved = false;
                self.ops.table.vacate(slot);
                continue;
            }
            // An operation that was already told to end ends for that reason.
            let ending = std::mem::replace(&mut op.in_flight, InFlight::No).ending();
            ended.extend(ending.map(|kind| (slot, op.generation(), kind)));
        }
        for (slot, generation, kind) in ended {
            if self.ops.table.find(slot, generation).is_some() {
                self.fail(slot, kind);
            }
        }
        for index in self.sources.table.occupied().collect::<Vec<_>>() {
            if self.sources[index].has(RESERVED) {
                self.vacate_source(index);
                continue;
            }
            // The source of a connect vacates its slot when the operation ends, and then has no
            // flags.
            self.end_operations(index, ErrorKind::Forked);
            // The parent's children are not this process's.
            let is_child = self.sources[index].kind() == SourceKind::Child;
            if self.sources[index].has(ABORTING) || is_child {
                self.close_source(index);
            }
        }
        for slot in self.ops.table.occupied().collect::<Vec<_>>() {
            self.fail(slot, ErrorKind::Forked);
        }
        for source in aborted {
            self.abort_source(source);
        }
    }

    /// Serves a request that another thread of the parent had queued: a source is attached, an
    /// operation ends.
    fn inherit(&mut self, request: Request) {
        match request {
            Request::Submit(ticket, op) => {
                self.ops.vacate_reserved(ticket);
                self.refuse_reserved(ticket, op, Refusal::Forked);
            }
            // The operation that this request names ends anyway.
            Request::Cancel(_) | Request::Reschedule(..) => {}
            request => self.serve(request),
        }
    }
}
