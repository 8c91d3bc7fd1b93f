//! Turns: requests from other threads, events, attempts, deadlines, and when to block.

use super::*;
use crate::clock::{ns_of, ns_of_duration};

/// Completions that are delivered, while there are some, before the kernel is asked again.
const EVENT_INTERVAL: usize = 64;

/// So many bytes of bulk count like a completion towards asking the kernel again.
const BULK_BYTES: usize = 8 << 10;

/// The queue of rechecks forgets sources that have ended when it is longer than this plus twice the
/// number of sources.
const MOST_GONE: usize = 64;

/// How long the loop sleeps while threads have so much before them that they need not wake it for
/// each job: about a MiB's time. (Linux adds up to 50 µs, the slack of a thread's timers:
/// prctl(2).)
const NAP_NS: u64 = 50_000;

/// The earlier of two times that may not be.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl<K: Kernel> Proactor<K> {
    /// Runs turns until `wait` is over or there are `least` completions to deliver. It stops
    /// earlier if so many completions wait that submissions are refused, or if some of them may
    /// hold the memory or the place that a read or an accept waits for.
    pub(super) fn take_turns(&mut self, wait: Wait, least: usize) -> io::Result<()> {
        self.check_fork()?;
        if self.closed {
            self.told_ns.set(0);
            while self.batch.len() < least && self.busy as usize + self.files.at_work() > 0 {
                self.turn_closed(wait)?;
                if self.batch.len() < least && self.is_over(wait) {
                    return Ok(());
                }
            }
            return if self.batch.is_empty() { Err(Reason::Closed.into()) } else { Ok(()) };
        }
        loop {
            let least = if least > 1 && self.may_hold_up() { 1 } else { least };
            self.turn(wait, least)?;
            if self.batch.len() >= least || self.batch.is_full() {
                return Ok(());
            }
            if wait == Wait::Now && self.batch.is_empty() {
                // No completion: the embedding loop now sleeps on the descriptor. For a source that
                // began to wait in this turn a resource may be free already; if not, its return
                // must wake the loop.
                if !self.waits.is_empty() {
                    self.retry_waiting();
                }
                self.dozing = !self.has_ready() && self.remote.prepare_park() || self.starving;
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

    /// What kernel and workers have when the driver is closed still ends.
    pub(super) fn turn_closed(&mut self, wait: Wait) -> io::Result<()> {
        if self.remote.is_notified() {
            self.wake_up();
            return Ok(());
        }
        self.poll(wait, false, 1)
    }

    /// One turn, which may block as `wait` says while there are fewer than `least` completions.
    pub(super) fn turn(&mut self, wait: Wait, least: usize) -> io::Result<()> {
        self.counts.turns += 1;
        self.told_ns.set(0);
        self.kernel.turn();
        if self.dozing || self.remote.is_notified() {
            self.wake_up();
        }
        if !self.waits.is_empty() {
            self.retry_waiting();
        }
        let timed = !self.deadlines.is_empty() || !self.paused.is_empty();
        if timed {
            self.now_ns = self.kernel.now_ns();
        }
        // The kernel is asked before a deadline ends an operation, so that data that is there wins.
        let overdue = timed && self.due_ns().is_some_and(|due| due <= self.now_ns);
        // Completions that wait are delivered before more bytes are read.
        let forced = self.batch.len() >= least;
        let deliver = forced && !overdue && self.unasked < EVENT_INTERVAL;
        if !deliver {
            self.turn_bytes = self.config.turn_budget as isize;
        }
        let pressing = K::COMPLETES && self.waits.are_pressing();
        let idle = self.batch.len() < least && !self.has_ready() && !pressing;
        if idle || overdue || pressing || self.unasked >= EVENT_INTERVAL {
            self.unasked = 0;
            let rechecks = !self.rechecks.is_empty();
            let ask = if rechecks { self.look_at_rechecks(idle, timed) } else { Ask::Nothing };
            let wait = if idle && ask == Ask::Nothing { wait } else { Wait::Now };
            let (queued, events) = (self.has_ready(), self.counts.events);
            self.poll(wait, timed || rechecks, least)?;
            if queued {
                // Those that events have brought have not used up everything.
                self.turn_bytes = self.turn_bytes.max(1);
            }
            if ask != Ask::Nothing {
                self.run_rechecks(ask, self.counts.events == events);
            }
        } else {
            self.unasked += self.batch.len().max(1);
        }
        if !self.paused.is_empty() {
            self.resume_paused();
        }
        if !deliver && self.has_ready() {
            self.run_ready();
            self.kept_bulk = forced && !self.kept_bulk;
            if !self.kept_bulk {
                self.run_bulk();
            }
            if K::COMPLETES && wait == Wait::Now && self.batch.is_empty() {
                // Submits the entries of those operations: an embedding loop may sleep now.
                self.look()?;
            }
        }
        if timed {
            self.expire_due();
            if self.idle.is_due(self.now_ns) {
                self.sweep_idle();
            }
        }
        if K::COMPLETES && self.stops {
            self.collect();
        }
        Ok(())
    }

    /// Which rechecks are due. `timed` says that the clock was read just now.
    #[cold]
    #[inline(never)]
    fn look_at_rechecks(&mut self, idle: bool, timed: bool) -> Ask {
        if !timed {
            self.now_ns = self.kernel.now_ns();
        }
        if self.rechecks.len() > MOST_GONE + 2 * self.sources.len() as usize {
            let sources = &mut self.sources;
            let is_there = |name: Source| sources.find(name.index(), name.generation()).is_some();
            self.rechecks.retain(is_there);
        }
        self.rechecks.look(self.now_ns, idle)
    }

    /// Reads the sources whose recheck is due. It reads all of them only if the poll of this turn
    /// found no event (`vain`), and only the oldest while the kernel has more events than the poll
    /// took: a source with a waiting event must not be read before its turn, because the event
    /// would then find nothing.
    #[cold]
    #[inline(never)]
    fn run_rechecks(&mut self, ask: Ask, vain: bool) {
        let ask = match ask {
            Ask::All if !vain => return,
            Ask::Old if self.untold => Ask::Oldest,
            ask => ask,
        };
        // A source that is read may be queued again.
        for _ in 0..self.rechecks.len() {
            let Some(source) = self.rechecks.next(ask, self.now_ns) else { return };
            let Some(state) = self.state(source) else { continue };
            state.flags &= !TO_RECHECK;
            state.flags |= READABLE;
            let before = self.batch.len();
            let mut left = self.config.source_budget;
            self.run_reads(source.index(), &mut left);
            if vain && self.batch.len() > before {
                self.rechecks.found_bytes();
            }
            self.requeue(source.index());
        }
    }

    fn expire_due(&mut self) {
        while let Some((slot, at_ns)) = self.deadlines.pop_due(self.now_ns) {
            let late_ns = self.now_ns - at_ns;
            let bucket = late_ns.checked_ilog10().map_or(0, |log| log.saturating_sub(2).min(7));
            self.counts.lateness[bucket as usize] += 1;
            self.expire(slot);
        }
    }

    /// When something happens by itself: the next deadline, the end of a pause, or a recheck.
    pub(super) fn next_ns(&self) -> Option<u64> {
        earlier(self.due_ns(), self.rechecks.next_ns())
    }

    /// The next deadline, or the end of a pause.
    fn due_ns(&self) -> Option<u64> {
        let pause = self.paused.iter().map(|(until, ..)| *until).min();
        earlier(self.deadlines.next_ns(), pause)
    }

    /// Asks the selector, for as long as `wait` and what happens by itself allow, and applies what
    /// it reports. The clock, which costs a fiftieth of a small message, is read before a wait that
    /// may block, and after the wait only if deadlines or settings need it; `timed` says that it
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
            self.now_ns = self.kernel.now_ns();
        }
        let mut timeout_ns = until_ns.map(|until| until.saturating_sub(self.now_ns));
        if timeout_ns == Some(0) {
            return self.look();
        }
        if spins {
            if self.spin(timeout_ns, least)? {
                return Ok(());
            }
            // It has taken its time.
            timeout_ns = until_ns.map(|until| until.saturating_sub(self.now_ns));
        }
        let naps = K::FILES && self.files.may_nap() && self.kernel.waits_finely();
        if !(if naps { self.remote.prepare_nap() } else { self.remote.prepare_park() }) {
            self.wake_up();
            return Ok(());
        }
        self.dozing = true;
        if naps {
            self.files.overslept = true;
            timeout_ns = Some(timeout_ns.map_or(NAP_NS, |ns| ns.min(NAP_NS)));
        }
        let start_ns = self.now_ns;
        let count = self.select(timeout_ns).inspect_err(|_| self.wake_up())?;
        if clocked {
            self.now_ns = self.kernel.now_ns();
            if self.config.idle_time {
                self.counts.idle_ns += self.now_ns.saturating_sub(start_ns);
            }
        }
        self.apply(count);
        self.wake_up();
        Ok(())
    }

    #[inline(always)]
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        if !K::EDGES {
            self.arm_sources();
        }
        if K::COMPLETES {
            self.waits.begun = 0;
        }
        self.kernel.select(timeout_ns)
    }

    /// Tells a selector without edges what every source waits for: what is wanted and not worth
    /// trying (P2).
    #[inline(never)]
    fn arm_sources(&mut self) {
        for index in self.sources.occupied() {
            let state = &self.sources[index];
            if !state.has(REGISTERED) {
                continue;
            }
            let mut on = Ready::NONE;
            if state.has_reads() && !state.has(READABLE) {
                on |= Ready::READABLE;
            }
            if state.has(WRITES) && !state.has(WRITABLE) {
                on |= Ready::WRITABLE;
            }
            let mut polled = false;
            let mut slot = state.polls;
            while slot != NIL {
                let op = &self.slots[slot];
                if op.code == OpCode::Poll {
                    polled = true;
                    on |= Ready::from_bits(op.count as u16);
                }
                slot = op.next;
            }
            // A poll of no condition waits for errors and hang-ups.
            let on = (polled || !on.is_empty()).then_some(on);
            self.kernel.arm(state.fd, state.name(index).key(), on);
        }
    }

    /// Asks the selector without blocking.
    fn look(&mut self) -> io::Result<()> {
        let count = self.select(Some(0))?;
        self.counts.waiting_events += count as u64;
        self.apply(count);
        Ok(())
    }

    /// Asks the selector again and again before it blocks; true when something has come.
    #[cold]
    fn spin(&mut self, timeout_ns: Option<u64>, least: usize) -> io::Result<bool> {
        let span = ns_of_duration(self.config.busy_poll).min(timeout_ns.unwrap_or(u64::MAX));
        let end = self.now_ns.saturating_add(span);
        loop {
            let count = self.select(Some(0))?;
            if count > 0 {
                self.apply(count);
                return Ok(true);
            }
            if self.files.in_kernel > 0 {
                self.take_file_answers();
            }
            if self.remote.is_notified() {
                self.wake_up();
            }
            if self.batch.len() >= least || self.has_ready() {
                return Ok(true);
            }
            self.now_ns = self.kernel.now_ns();
            if self.now_ns >= end {
                return Ok(false);
            }
        }
    }

    /// Runs the sources that are ready, each for its share of a turn; those behind the turn's share
    /// stay at the head of the queue, those that have more to do go to its end.
    fn run_ready(&mut self) {
        for _ in 0..self.ready.len() {
            if self.turn_bytes <= 0 {
                return;
            }
            let Some(source) = self.ready.pop_front() else { return };
            if self.run_source(source, self.config.source_budget).is_some() {
                self.requeue(source.index());
            }
        }
    }

    /// Runs those that have bulk, one at least.
    #[inline(never)]
    fn run_bulk(&mut self) {
        for ran in 0..self.bulk.len() {
            if ran > 0 && self.turn_bytes <= 0 {
                return;
            }
            let Some(source) = self.bulk.pop_front() else { return };
            // The kernel is asked in between: others may have something.
            self.unasked += self.config.turn_budget / BULK_BYTES;
            let index = source.index();
            if self.favoured.0 != index || self.favoured.1 == 0 {
                self.favoured = (index, self.config.source_budget);
            }
            if let Some(left) = self.run_source(source, self.favoured.1) {
                self.favoured.1 = left;
                self.requeue(index);
            }
        }
    }

    /// Runs a source for at most `left` bytes; what is left of them, or `None` for one that is
    /// gone.
    #[inline(never)]
    fn run_source(&mut self, source: Source, mut left: usize) -> Option<usize> {
        let index = source.index();
        let state = self.sources.find(index, source.generation())?;
        state.flags &= !QUEUED;
        if state.has(POLLED) {
            self.run_polls(index);
        }
        // A write may end the source; a vacant place has no operations and is harmless to look at.
        let write_share = left.min(MOST_COPIED);
        let mut write_left = write_share;
        self.run_writes(index, &mut write_left);
        left -= write_share - write_left;
        self.run_reads(index, &mut left);
        Some(left)
    }

    /// Puts a source that has used up its share back into the queue.
    #[inline(always)]
    pub(super) fn requeue(&mut self, index: u32) {
        let state = &self.sources[index];
        if state.can_read() || state.can_write() {
            self.counts.budget_stops += 1;
            self.enqueue(index);
        }
    }

    /// Ends the pauses whose time has come.
    #[cold]
    fn resume_paused(&mut self) {
        let now_ns = self.now_ns;
        let mut i = 0;
        while i < self.paused.len() {
            let (until, source, which) = self.paused[i];
            if until > now_ns {
                i += 1;
                continue;
            }
            self.paused.swap_remove(i);
            if let Some(state) = self.state(source) {
                state.flags &= !which;
                if state.can_read() || state.can_write() {
                    self.enqueue(source.index());
                }
            }
        }
    }

    /// The loop is awake: takes the requests of other threads.
    #[cold]
    #[inline(never)]
    fn wake_up(&mut self) {
        self.dozing = false;
        if self.remote.unpark() {
            self.take_requests();
            self.take_jobs();
        } else if self.starving {
            self.fill_reserve();
        }
    }
}
