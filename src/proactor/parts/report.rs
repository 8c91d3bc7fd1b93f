//! The counters of a proactor, and the explanation of its mechanisms.

use crate::kernel::Kernel;
use crate::op::{Family, OpCode};
use crate::proactor::ops::race::ATTEMPT;
use crate::proactor::parts::state::{ABORTING, INLINE_READ, RESERVED};
use crate::proactor::{Proactor, ops};
use crate::words::explain::{Counters, Explain};
use crate::words::source::Source;

#[derive(Default)]
pub(in crate::proactor) struct Stats {
    /// What `explain` says of the choice of the driver.
    pub(in crate::proactor) reason: String,
    /// By code. Of writes, only those that were not sent at submission.
    pub(in crate::proactor) submitted: [u64; OpCode::COUNT],
    pub(in crate::proactor) messages: u64,
    /// Counters that are always up to date. `count_all` computes the others.
    pub(in crate::proactor) counters: Counters,
    pub(in crate::proactor) inline_writes: u64,
    /// Quiet writes that succeeded at submission: each is submitted and done.
    pub(in crate::proactor) inline_quiet_writes: u64,
    /// Quiet writes that have succeeded later.
    pub(in crate::proactor) quiet_done: u64,
    /// Completions after which the operation continued.
    pub(in crate::proactor) continued: u64,
    /// Sources in the table that the program does not own: reserved for other threads, or aborted
    /// but still in the table.
    pub(in crate::proactor) hidden: u32,
}

impl Stats {
    pub(in crate::proactor) fn new(reason: String) -> Stats {
        Stats { reason, ..Stats::default() }
    }

    /// Notes that the program gets `count` completions.
    #[inline]
    pub(in crate::proactor) fn note_delivery(&mut self, count: usize) {
        let count = count as u64;
        self.counters.completed += count;
        self.counters.deliveries += u64::from(count > 0);
        self.counters.largest_delivery = self.counters.largest_delivery.max(count);
    }

    /// How many operations with this code were submitted; of writes, those that were queued.
    pub(in crate::proactor) fn count(&self, code: OpCode) -> u64 {
        self.submitted[code as usize]
    }
}

impl<K: Kernel> Proactor<K> {
    pub(in crate::proactor) fn count_all(&self) -> Counters {
        let queued: u64 = self.stats.submitted.iter().sum();
        let inline = self.stats.inline_writes + self.stats.inline_quiet_writes;
        let submitted = queued + inline + self.stats.messages;
        let quiet_done = self.stats.quiet_done + self.stats.inline_quiet_writes;
        // All completions but those of continued operations were final, so we need not scan a
        // table.
        let made = self.stats.counters.completed + self.outbox.batch.len() as u64;
        let ended = made - self.stats.continued + quiet_done;
        let in_kernel = self.kernel.job_counts();
        let jobs = self.files.workers.as_ref().map(|workers| workers.counts()).unwrap_or_default();
        let free = |limit: u32, len: u32| u64::from(limit.saturating_sub(len));
        Counters {
            submitted,
            in_flight: submitted - ended,
            quiet_done,
            sources: u64::from(self.sources.table.len() - self.stats.hidden - self.ops.attempts),
            compacted_bytes: self.memory.pool.compacted_bytes(),
            fallbacks: self.files.counts.handed_back,
            swap_bytes: self.memory.pool.allocated_bytes() as u64,
            leased_bytes: self.memory.pool.leased_bytes() as u64,
            free_operations: free(self.ops.table.limit(), self.ops.table.len()),
            free_sources: free(self.sources.table.limit(), self.sources.table.len()),
            free_swap_bytes: (self.memory.pool.limit_bytes() - self.memory.pool.leased_bytes())
                as u64,
            remote_queue: self.inbox.remote.len() as u64,
            ready_sources: (self.sched.ready.len() + self.sched.bulk.len()) as u64,
            waiting_sources: self.sched.waits.len() as u64,
            undelivered: self.outbox.batch.len() as u64,
            queued_jobs: jobs.queued + in_kernel.0 + self.files.parked.len() as u64,
            running_jobs: jobs.running + in_kernel.1,
            system_calls: self.kernel.system_calls(),
            ..self.stats.counters.clone()
        }
    }

    /// Operations in flight and sources, counted one by one.
    #[cfg(test)]
    pub(crate) fn count_one_by_one(&self) -> (u64, u64) {
        let reserved = self.ops.table.occupied().filter(|&slot| self.ops[slot].reserved).count();
        let with =
            |flag| self.sources.table.occupied().filter(|&i| self.sources[i].has(flag)).count();
        let attempts = self.ops.attempts as usize;
        let in_flight = self.ops.table.len() as usize + with(INLINE_READ) - reserved - attempts;
        let sources = self.sources.table.len() as usize - with(RESERVED | ABORTING) - attempts;
        (in_flight as u64, sources as u64)
    }

    /// The code, the source and the token of each operation in flight.
    pub(crate) fn pending(&self) -> Vec<(OpCode, Source, u64)> {
        let resting = self.sources.table.occupied().filter_map(|index| {
            let state = &self.sources[index];
            state.has(INLINE_READ).then(|| (OpCode::Read, state.name(index), state.read_token))
        });
        let placed = self.ops.table.occupied().filter_map(|slot| {
            let op = &self.ops[slot];
            let is_attempt = op.code.family() == Family::Connect && op.count == ATTEMPT;
            (!op.reserved && !is_attempt).then(|| (op.code, self.sources.name(op.source), op.token))
        });
        resting.chain(placed).collect()
    }

    /// The kernel that the proactor runs on.
    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Notes that a source in the table no longer belongs to the program.
    pub(in crate::proactor) fn hide(&mut self, index: u32, flags: u32) {
        let state = &mut self.sources[index];
        self.stats.hidden += u32::from(!state.has(RESERVED | ABORTING));
        state.flags |= flags;
    }

    pub(in crate::proactor) fn explain_all(&self) -> Explain {
        let mut explain = Explain::new(self.kernel.name(), self.stats.reason.clone());
        ops::explain(&self.stats, &mut explain, K::FILES);
        let sweep = "a sweep looks at every source that has one, 46 times per timeout or less";
        explain.row("idle timeout", "sweep", sweep, self.stats.counters.idle_timeouts);
        let flag = "a flag says whether the loop sleeps: a burst costs one, an awake loop none";
        explain.row("wake", "wake descriptor", flag, self.stats.counters.wakes);
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
