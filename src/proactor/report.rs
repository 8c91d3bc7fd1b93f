//! The counters of a proactor, and the explanation of its mechanisms.

use super::*;

#[derive(Default)]
pub(super) struct Counts {
    /// By code; of writes, those that were not out at once.
    pub(super) submitted: [u64; OpCode::COUNT],
    pub(super) messages: u64,
    pub(super) completed: u64,
    pub(super) inline_writes: u64,
    /// Quiet writes that succeeded at submission: each is submitted and done.
    pub(super) inline_quiet_writes: u64,
    /// Quiet writes that have succeeded later.
    pub(super) quiet_done: u64,
    pub(super) turns: u64,
    pub(super) events: u64,
    pub(super) waiting_events: u64,
    pub(super) wakes: u64,
    pub(super) budget_stops: u64,
    pub(super) lease_waits: u64,
    pub(super) share_waits: u64,
    pub(super) descriptor_shortages: u64,
    pub(super) accept_errors: u64,
    pub(super) table_waits: u64,
    pub(super) stale_events: u64,
    pub(super) idle_ns: u64,
    pub(super) lateness: [u64; 8],
    /// Completions after which the operation continued.
    pub(super) went_on: u64,
    /// Sources in the table that the program does not own: in reserve for other threads, or aborted
    /// but still occupied.
    pub(super) hidden: u32,
    /// Bytes that the driver copied in addition to the kernel's copy.
    pub(super) copied_bytes: u64,
    /// Small leases of queued writes that the driver has copied.
    pub(super) copied_leases: u64,
    pub(super) deliveries: u64,
    pub(super) largest_delivery: usize,
    /// Sources whose reads their idle timeout has ended.
    pub(super) idle_timeouts: u64,
}

impl<K: Kernel> Proactor<K> {
    pub(super) fn count_all(&self) -> Counters {
        let queued: u64 = self.counts.submitted.iter().sum();
        let inline = self.counts.inline_writes + self.counts.inline_quiet_writes;
        let submitted = queued + inline + self.counts.messages;
        let quiet_done = self.counts.quiet_done + self.counts.inline_quiet_writes;
        // All completions but those of continued operations were final, so we need not scan a
        // table.
        let made = self.counts.completed + self.batch.len() as u64;
        let ended = made - self.counts.went_on + quiet_done;
        let tasks = self.kernel.task_counts();
        let jobs = self.files.workers.as_ref().map(|workers| workers.counts()).unwrap_or_default();
        let free = |limit: u32, len: u32| u64::from(limit.saturating_sub(len));
        Counters {
            submitted,
            completed: self.counts.completed,
            in_flight: submitted - ended,
            quiet_done,
            sources: u64::from(self.sources.len() - self.counts.hidden - self.attempts),
            turns: self.counts.turns,
            events: self.counts.events,
            waiting_events: self.counts.waiting_events,
            wakes: self.counts.wakes,
            budget_stops: self.counts.budget_stops,
            lease_waits: self.counts.lease_waits,
            share_waits: self.counts.share_waits,
            descriptor_shortages: self.counts.descriptor_shortages,
            accept_errors: self.counts.accept_errors,
            table_waits: self.counts.table_waits,
            stale_events: self.counts.stale_events,
            idle_ns: self.counts.idle_ns,
            lateness: self.counts.lateness,
            idle_timeouts: self.counts.idle_timeouts,
            deliveries: self.counts.deliveries,
            largest_delivery: self.counts.largest_delivery as u64,
            copied_bytes: self.counts.copied_bytes,
            copied_leases: self.counts.copied_leases,
            compacted_bytes: self.pool.compacted_bytes(),
            fallbacks: self.files.counts.handed_back,
            swap_bytes: self.pool.allocated_bytes() as u64,
            leased_bytes: self.pool.leased_bytes() as u64,
            free_operations: free(self.slots.limit(), self.slots.len()),
            free_sources: free(self.sources.limit(), self.sources.len()),
            free_swap_bytes: (self.pool.limit_bytes() - self.pool.leased_bytes()) as u64,
            remote_queue: self.remote.len() as u64,
            ready_sources: (self.ready.len() + self.bulk.len()) as u64,
            waiting_sources: self.waits.len() as u64,
            undelivered: self.batch.len() as u64,
            queued_jobs: jobs.queued + tasks.0 + self.files.parked.len() as u64,
            running_jobs: jobs.running + tasks.1,
            system_calls: self.kernel.system_calls(),
        }
    }

    /// Operations in flight and sources, counted one by one.
    #[cfg(test)]
    pub(crate) fn count_one_by_one(&self) -> (u64, u64) {
        let reserved = self.slots.occupied().filter(|&slot| self.slots[slot].reserved).count();
        let with = |flag| self.sources.occupied().filter(|&i| self.sources[i].has(flag)).count();
        let attempts = self.attempts as usize;
        let in_flight = self.slots.len() as usize + with(RESTING) - reserved - attempts;
        let sources = self.sources.len() as usize - with(RESERVED | ABORTING) - attempts;
        (in_flight as u64, sources as u64)
    }

    /// The operations in flight: code, source and token of each.
    pub(crate) fn pending(&self) -> Vec<(OpCode, Source, u64)> {
        let resting = self.sources.occupied().filter_map(|index| {
            let state = &self.sources[index];
            state.has(RESTING).then(|| (OpCode::Read, state.name(index), state.read_token))
        });
        let placed = self.slots.occupied().filter_map(|slot| {
            let op = &self.slots[slot];
            let is_attempt = op.code == OpCode::Connect && op.count == connects::ATTEMPT;
            let source = match op.source {
                NIL => Source::NONE,
                index => self.sources[index].name(index),
            };
            (!op.reserved && !is_attempt).then_some((op.code, source, op.token))
        });
        resting.chain(placed).collect()
    }

    /// The kernel that it runs on.
    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    /// A source of the table no longer belongs to the program.
    pub(super) fn hide(&mut self, index: u32, flags: u32) {
        let state = &mut self.sources[index];
        self.counts.hidden += u32::from(!state.has(RESERVED | ABORTING));
        state.flags |= flags;
    }

    pub(super) fn explain_all(&self) -> Explain {
        let mut explain = Explain::new(self.kernel.name(), self.reason.clone());
        let count = |code: OpCode| self.counts.submitted[code as usize];
        let first = "tried at submission; what would block waits for the edge";
        let read = "tried at submission, unless first reads of sockets recently found nothing; \
                    what would block waits for the edge";
        explain.row("read", "recv / read into a lease", read, count(OpCode::Read));
        let own = "tried at submission, into the operation's own buffer";
        let into = count(OpCode::ReadInto) + count(OpCode::ReadAppend) + count(OpCode::ReadExact);
        explain.row("read_into, read_append, read_exact", "recv / readv", own, into);
        let inline = self.counts.inline_writes + self.counts.inline_quiet_writes;
        explain.row(
            "write",
            "send / sendmsg at submission",
            "nothing was queued before it",
            inline,
        );
        let queued = count(OpCode::Write);
        let after = "behind other writes, or the socket was full";
        explain.row("write", "send / sendmsg from the queue", after, queued);
        explain.row("accept", "accept4", "until EAGAIN, in listeners' turn", count(OpCode::Accept));
        explain.row(
            "connect",
            "connect, then SO_ERROR",
            "at its first edge",
            count(OpCode::Connect),
        );
        let queue = "in its place behind the writes";
        explain.row("shutdown", "shutdown", queue, count(OpCode::Shutdown));
        let behind = "in its place behind the writes; at once where there are no operations";
        let close = if K::FILES { "close; of a file by a thread" } else { "close" };
        explain.row("close", close, behind, count(OpCode::Close));
        let datagrams = count(OpCode::RecvFrom) + count(OpCode::SendTo);
        explain.row("recv_from, send_to", "recvmsg / sendmsg", first, datagrams);
        let passed = count(OpCode::RecvDescriptors) + count(OpCode::SendDescriptors);
        explain.row("descriptors", "SCM_RIGHTS", first, passed);
        let counted = "when a write of the source ends";
        explain.row("wait_drained", "count of queued bytes", counted, count(OpCode::WaitDrained));
        let asked = "asked first, then at each edge";
        explain.row("poll", "poll", asked, count(OpCode::Poll));
        let signals = "a handler makes a descriptor readable; no signal is blocked";
        explain.row("signal", "sigaction", signals, count(OpCode::Signal));
        let exits = "a pidfd or EVFILT_PROC tells of the exit; this child alone is reaped";
        explain.row("child_exit", "waitid", exits, count(OpCode::ChildExit));
        let heap = "one heap for all deadlines; the wait's timeout is its top";
        explain.row("timer", "deadline heap", heap, count(OpCode::Timer));
        let sweep = "a sweep looks at every source that has one, 32 times per timeout or less";
        explain.row("idle timeout", "sweep", sweep, self.counts.idle_timeouts);
        let flag = "a flag says whether the loop sleeps: a burst costs one, an awake loop none";
        explain.row("wake", "wake descriptor", flag, self.counts.wakes);
        self.explain_files(&mut explain);
        self.kernel.explain(&mut explain);
        let wanted = self.config.registered_files > 0 || self.config.registered_bytes > 0;
        if wanted && !K::REGISTERS {
            let why = "without effect: this kernel does not know files and memory beforehand";
            explain.row("registered files, buffers", "none", why, 0);
        }
        explain
    }
}
