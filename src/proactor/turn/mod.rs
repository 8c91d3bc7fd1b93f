//! Turns: requests from other threads, events, attempts, deadlines, and when to block.

pub(in crate::proactor) mod events;
pub(in crate::proactor) mod idle;
pub(in crate::proactor) mod requests;
pub(in crate::proactor) mod resource_waits;
pub(in crate::proactor) mod selected;
pub(in crate::proactor) mod waits;

use std::io;

use crate::completion::verbs::Wait;
use crate::driver::config::Config;
use crate::kernel::Kernel;
use crate::proactor::parts::state::{
    FULL, POLLED, QUEUED, QUIET, READ_PAUSED, READABLE, REGISTERED, WRITABLE, WRITE_PAUSED, WRITES,
};
use crate::proactor::parts::time::Pause;
use crate::proactor::{MOST_COPIED, Proactor};
use crate::sys::interest::Ready;
use crate::words::clock::{ns_of, ns_of_duration};
use crate::words::error::Refusal;
use crate::words::source::Source;

/// The earlier of two times, either of which may be missing.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl<K: Kernel> Proactor<K> {
    /// Runs turns until `wait` is over or there are `least` completions to deliver. It stops
    /// earlier if so many completions wait that submissions are refused, or if some of them may
    /// hold the memory or the slot that a read or an accept waits for.
    pub(in crate::proactor) fn take_turns(&mut self, wait: Wait, least: usize) -> io::Result<()> {
        self.sources.check_fork()?;
        if self.sources.closed {
            self.time.reported_ns.set(0);
            while self.outbox.batch.len() < least
                && self.kernel_ops.busy as usize + self.files.at_work() > 0
            {
                self.turn_closed(wait)?;
                if self.outbox.batch.len() < least && self.is_over(wait) {
                    return Ok(());
                }
            }
            return if self.outbox.batch.is_empty() { Err(Refusal::Closed.into()) } else { Ok(()) };
        }
        loop {
            let least = if least > 1 && self.may_hold_up() { 1 } else { least };
            self.turn(wait, least)?;
            if self.outbox.batch.len() >= least || self.outbox.batch.is_full() {
                return Ok(());
            }
            if wait == Wait::Now && self.outbox.batch.is_empty() {
                // No completion: the embedding loop now sleeps on the descriptor. A source may have
                // begun to wait in this turn, and its resource may be free again already. If not,
                // the return of the resource must wake the loop.
                if !self.sched.waits.is_empty() {
                    self.retry_waiting();
                }
                self.inbox.is_due = !self.sched.has_ready() && self.inbox.remote.prepare_park()
                    || self.inbox.ids_wanted;
            }
            if self.is_over(wait) {
                return Ok(());
            }
        }
    }

    fn is_over(&mut self, wait: Wait) -> bool {
        match wait {
            Wait::Now => true,
            Wait::Forever => false,
            Wait::Until(at) => self.kernel.now_ns() >= ns_of(at),
        }
    }

    /// A turn of a closed driver. It lets the operations end that the kernel and the workers still
    /// have.
    pub(in crate::proactor) fn turn_closed(&mut self, wait: Wait) -> io::Result<()> {
        if self.inbox.remote.is_notified() {
            self.wake_up();
            return Ok(());
        }
        self.poll(wait, false, 1)
    }

    /// One turn, which may block as `wait` says while there are fewer than `least` completions.
    pub(in crate::proactor) fn turn(&mut self, wait: Wait, least: usize) -> io::Result<()> {
        self.stats.counters.turns += 1;
        self.time.reported_ns.set(0);
        self.kernel.turn();
        if self.inbox.is_due || self.inbox.remote.is_notified() {
            self.wake_up();
        }
        if !self.sched.waits.is_empty() {
            self.retry_waiting();
        }
        let timed = !self.ops.deadlines.is_empty() || !self.time.paused.is_empty();
        if timed {
            self.time.now_ns = self.kernel.now_ns();
        }
        // The kernel is asked before a deadline ends an operation, so that data that has arrived
        // wins.
        let overdue = timed && self.next_ns().is_some_and(|due| due <= self.time.now_ns);
        // Completions that wait are delivered before more bytes are read.
        let forced = self.outbox.batch.len() >= least;
        let deliver = forced && !overdue && !self.sched.select_is_due();
        if !deliver {
            self.sched.turn_bytes = self.config.turn_budget as isize;
        }
        let pressing = K::COMPLETES && self.sched.waits.are_pressing();
        let idle = self.outbox.batch.len() < least && !self.sched.has_ready() && !pressing;
        if idle || overdue || pressing || self.sched.select_is_due() {
            self.sched.note_select();
            let queued = self.sched.has_ready();
            self.poll(if idle { wait } else { Wait::Now }, timed, least)?;
            if queued {
                // The inline reads of these events may have used up the turn's bytes. At least one
                // source that was queued before them must run.
                self.sched.turn_bytes = self.sched.turn_bytes.max(1);
            }
        } else {
            self.sched.note_delivery(self.outbox.batch.len());
        }
        if !self.time.paused.is_empty() {
            self.resume_paused();
        }
        if !deliver && self.sched.has_ready() {
            self.run_ready();
            if self.sched.runs_bulk(forced) {
                self.run_bulk();
            }
            if K::COMPLETES && wait == Wait::Now && self.outbox.batch.is_empty() {
                // Submits the entries of operations that were just started: an embedding loop may
                // sleep now.
                self.look()?;
            }
        }
        if timed {
            self.expire_due();
            if self.time.idle.is_due(self.time.now_ns) {
                self.sweep_idle();
            }
        }
        if K::COMPLETES && self.kernel_ops.cancels_pending {
            self.reap();
        }
        Ok(())
    }

    fn expire_due(&mut self) {
        while let Some((slot, at_ns)) = self.ops.deadlines.pop_due(self.time.now_ns) {
            let late_ns = self.time.now_ns - at_ns;
            let bucket = late_ns.checked_ilog10().map_or(0, |log| log.saturating_sub(2).min(7));
            self.stats.counters.lateness[bucket as usize] += 1;
            self.expire(slot);
        }
    }

    /// When something is due without an event: a deadline, or the end of a pause.
    pub(in crate::proactor) fn next_ns(&self) -> Option<u64> {
        earlier(self.ops.deadlines.next_ns(), self.time.next_pause_ns())
    }

    /// Asks the selector for events and applies them. It waits until an event comes, `wait` is over
    /// or a time is due. The clock, which costs a fiftieth of a small message, is read before and
    /// after a wait that may block, but only if deadlines or settings need it; `timed` says that it
    /// was read just now.
    fn poll(&mut self, wait: Wait, timed: bool, least: usize) -> io::Result<()> {
        let until_ns = match wait {
            Wait::Now => return self.look(),
            Wait::Forever => self.next_ns(),
            Wait::Until(at) => Some(self.next_ns().map_or(ns_of(at), |next| next.min(ns_of(at)))),
        };
        let spins = !self.config.busy_poll.is_zero();
        let clocked = until_ns.is_some() || spins || self.config.idle_time;
        if clocked && !timed {
            self.time.now_ns = self.kernel.now_ns();
        }
        let mut timeout_ns = until_ns.map(|until| until.saturating_sub(self.time.now_ns));
        if timeout_ns == Some(0) {
            return self.look();
        }
        if spins {
            if self.spin(timeout_ns, least)? {
                return Ok(());
            }
            // The spin has taken some of the time.
            timeout_ns = until_ns.map(|until| until.saturating_sub(self.time.now_ns));
        }
        if !self.inbox.remote.prepare_park() {
            self.wake_up();
            return Ok(());
        }
        self.inbox.is_due = true;
        let start_ns = self.time.now_ns;
        self.before_select();
        let count = self.kernel.select(timeout_ns).inspect_err(|_| self.wake_up())?;
        if clocked {
            self.time.now_ns = self.kernel.now_ns();
            if self.config.idle_time {
                self.stats.counters.idle_ns += self.time.now_ns.saturating_sub(start_ns);
            }
        }
        self.apply(count);
        // The clock was read after the kernel was asked.
        self.sched.may_have_events |= clocked;
        self.wake_up();
        Ok(())
    }

    #[inline(always)]
    fn before_select(&mut self) {
        if !K::EDGES {
            self.arm_sources();
        }
        if K::COMPLETES {
            self.sched.waits.begun = 0;
        }
    }

    /// Tells a selector without edges what to wait for on every source: the directions that have
    /// operations but are not worth trying (P2).
    #[inline(never)]
    fn arm_sources(&mut self) {
        for index in self.sources.table.occupied() {
            let state = &self.sources[index];
            if !state.has(REGISTERED) {
                continue;
            }
            let mut on = Ready::NONE;
            if state.has_reads() && !state.has(READABLE | READ_PAUSED) {
                on |= Ready::READABLE;
            }
            if state.has(WRITES) && !state.has(WRITABLE | WRITE_PAUSED) {
                on |= Ready::WRITABLE;
            }
            let polled = self.polled_for(index);
            // A poll of no condition waits for errors and hang-ups.
            let waits = polled.is_some() || !on.is_empty();
            let on = waits.then_some(on | polled.unwrap_or(Ready::NONE));
            self.kernel.arm(state.fd, state.name(index).key(), on);
        }
    }

    /// Asks the selector without blocking.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.before_select();
        let count = self.kernel.select(Some(0))?;
        self.stats.counters.waiting_events += count as u64;
        self.apply(count);
        Ok(())
    }

    /// Asks the selector again and again before it blocks. True if there is something to do.
    #[cold]
    fn spin(&mut self, timeout_ns: Option<u64>, least: usize) -> io::Result<bool> {
        let span = ns_of_duration(self.config.busy_poll).min(timeout_ns.unwrap_or(u64::MAX));
        let end = self.time.now_ns.saturating_add(span);
        loop {
            self.before_select();
            let count = self.kernel.select(Some(0))?;
            if count > 0 {
                self.apply(count);
                return Ok(true);
            }
            if self.files.in_kernel > 0 {
                self.take_file_answers();
            }
            if self.inbox.remote.is_notified() {
                self.wake_up();
            }
            if self.outbox.batch.len() >= least || self.sched.has_ready() {
                return Ok(true);
            }
            self.time.now_ns = self.kernel.now_ns();
            if self.time.now_ns >= end {
                return Ok(false);
            }
        }
    }

    /// Runs the sources that are ready, each for its share of a turn. When the turn's bytes are
    /// used up, the others stay at the head of the queue. A source with more to do goes to the end
    /// of its queue.
    fn run_ready(&mut self) {
        for _ in 0..self.sched.ready.len() {
            if self.sched.turn_bytes <= 0 {
                return;
            }
            let Some(source) = self.sched.ready.pop_front() else { return };
            if self.run_source(source, self.config.source_budget).is_some() {
                self.requeue(source.index());
            }
        }
    }

    /// Runs the sources with bulk data, at least one.
    #[inline(never)]
    fn run_bulk(&mut self) {
        for ran in 0..self.sched.bulk.len() {
            if ran > 0 && self.sched.turn_bytes <= 0 {
                return;
            }
            let Config { source_budget, turn_budget, .. } = self.config;
            let Some(next) = self.sched.next_bulk(source_budget, turn_budget) else { return };
            if K::COMPLETES
                && let Some(state) = self.state(next.source)
            {
                // With this flag the loop tries the read. Without it the kernel would get the read.
                state.flags |= FULL;
            }
            if let Some(left) = self.run_source(next.source, next.share) {
                self.sched.keep_share(left);
                self.requeue(next.source.index());
            }
        }
    }

    /// Runs a source for at most `left` bytes. Returns the rest of them, or `None` if the source is
    /// gone.
    #[inline(never)]
    fn run_source(&mut self, source: Source, mut left: usize) -> Option<usize> {
        let index = source.index();
        let state = self.sources.table.find(index, source.generation())?;
        state.flags &= !QUEUED;
        let before = if K::EDGES { None } else { self.event_to_run(index) };
        if self.sources[index].has(POLLED) {
            self.run_polls(index);
        }
        // A write may end the source. Its vacant slot has no operations, so the reads find nothing
        // to do.
        let write_share = left.min(MOST_COPIED);
        let mut write_left = write_share;
        self.run_writes(index, &mut write_left);
        left -= write_share - write_left;
        self.run_reads(index, &mut left);
        if let Some((event, progress)) = before
            && progress == self.progress(index)
            && self.state(source).is_some()
        {
            self.pause_vain(index, event);
        }
        if self.sources[index].has(QUIET) {
            self.end_if_idle(index);
        }
        Some(left)
    }

    /// The directions that an event has made worth trying for a source that runs, and its progress
    /// before it runs; none if no event has.
    fn event_to_run(&mut self, index: u32) -> Option<(u32, (usize, isize, u32, u64))> {
        let event = self.sched.take_event(index);
        (event != 0).then(|| (event, self.progress(index)))
    }

    /// What changes when an operation of the source moves anything, or ends.
    fn progress(&self, index: u32) -> (usize, isize, u32, u64) {
        let queued = self.sources[index].queued_bytes;
        (self.outbox.batch.len(), self.sched.turn_bytes, queued, self.stats.quiet_done)
    }

    /// Lets the directions pause that an event has reported in vain. Without edges the selector
    /// would report a condition that no try clears (an error in a queue, a socket that is shut)
    /// again and again.
    pub(in crate::proactor) fn pause_vain(&mut self, index: u32, event: u32) {
        let state = &self.sources[index];
        let reads = event & READABLE != 0 && state.has_reads() && !state.has(READABLE);
        let writes = event & WRITABLE != 0 && state.has(WRITES) && !state.has(WRITABLE);
        if reads {
            self.pause(index, READ_PAUSED);
        }
        if writes {
            self.pause(index, WRITE_PAUSED);
        }
    }

    /// Puts a source that has used up its share back into the queue.
    #[inline(always)]
    pub(in crate::proactor) fn requeue(&mut self, index: u32) {
        let state = &self.sources[index];
        if state.can_read() || state.can_write() {
            self.stats.counters.budget_stops += 1;
            self.enqueue(index);
        }
    }

    /// Ends the pauses whose time has come.
    #[cold]
    fn resume_paused(&mut self) {
        let mut i = 0;
        while i < self.time.paused.len() {
            let Pause { until_ns, source, flag } = self.time.paused[i];
            if until_ns > self.time.now_ns {
                i += 1;
                continue;
            }
            self.time.paused.swap_remove(i);
            if let Some(state) = self.state(source) {
                state.flags &= !flag;
                state.note_polls();
                if state.has(POLLED) || state.can_read() || state.can_write() {
                    self.enqueue(source.index());
                }
            }
        }
    }

    /// Notes that the loop is awake, and takes the requests of other threads.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_up(&mut self) {
        self.inbox.is_due = false;
        if self.inbox.remote.unpark() {
            self.take_requests();
            self.take_from_workers();
        } else if self.inbox.ids_wanted {
            self.fill_reserve();
        }
    }
}
