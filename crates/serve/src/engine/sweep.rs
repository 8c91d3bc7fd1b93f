//! The sweep: connections whose output stalls, or whose close takes too long, and the budget.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use windlass::driver::Driver;
use windlass::{Op, Watcher};

use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, SWEEP, WAKE};
use crate::log::LogEvent;
use crate::parts::table::{CLOSE, CLOSING, CONNECTING, DETACH, DRAINING, THROTTLED};
use crate::words::cause::Cause;

/// How many connections one turn looks at.
const AT_ONCE: usize = 1024;

impl<S> Engine<S> {
    /// Puts a connection into the list that the sweep looks at.
    pub(crate) fn sweep_later<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let now = watcher.now();
        let at = self.swept.len() as u32;
        let active = self.activate(index);
        let since = *active.since.get_or_insert(now);
        if active.swept.is_none() {
            active.swept = Some(at);
            self.swept.push(index);
            if self.oldest.is_none_or(|oldest| since < oldest) {
                self.note_oldest(watcher, Some(since));
            }
        }
        self.arm_sweep(watcher);
    }

    /// Takes a connection out of that list, unless it closes.
    pub(crate) fn unsweep(&mut self, index: u32) {
        let Some(active) = self.table.active_of(index) else { return };
        let Some(at) = active.swept.take() else { return };
        self.swept.swap_remove(at as usize);
        if let Some(&moved) = self.swept.get(at as usize)
            && let Some(active) = self.table.active_of(moved)
        {
            active.swept = Some(at);
        }
    }

    /// Starts the timer of the sweep. Throttled connections need it, too: another loop may free the
    /// bytes.
    pub(crate) fn arm_sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let is_armed = self.sweep_timer.is_some() || self.wants_sweep;
        if !(is_armed || self.swept.is_empty() && self.throttled.is_empty()) {
            self.submit_sweep(watcher, Op::timer(self.config.limits.step()));
        }
    }

    fn submit_sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>, op: Op) {
        let submitted = watcher.submit(op.token(self.token(SWEEP)));
        self.sweep_timer = submitted.as_ref().ok().copied();
        if is_full(submitted) {
            self.wants_sweep = true;
            self.request(Request::Sweep);
        }
    }

    /// Looks at the connections of the list, at most `AT_ONCE` of them in a turn.
    pub(crate) fn sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let now = watcher.now();
        // From the last to the first, because one that ends is replaced by the last.
        let mut at = self.sweep_from.min(self.swept.len());
        if at == 0 {
            at = self.swept.len();
        }
        let stop = at.saturating_sub(AT_ONCE);
        while at > stop {
            at -= 1;
            if let Some(&index) = self.swept.get(at) {
                self.look(watcher, index, now);
            }
        }
        self.sweep_from = stop;
        if stop > 0 {
            // It stands for the timer, so that there is one of them at a time.
            self.submit_sweep(watcher, Op::nop());
        } else {
            self.arm_sweep(watcher);
        }
    }

    /// Ends a connection that has used up its time.
    fn look<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, now: Instant) {
        let place = self.table.place(index);
        let flags = place.flags;
        let queued = self.queued(watcher, index);
        let limits = self.config.limits;
        let ends = flags & (CLOSE | CLOSING | DETACH) != 0;
        let goes_on = self.has_bounded_end(index);
        let Some(active) = self.table.active_of(index) else { return };
        if !goes_on && queued < active.queued {
            active.since = Some(now);
        }
        active.queued = queued;
        let past = active.since.map_or_else(Default::default, |since| now - since);
        self.recharge(index);
        if ends && past >= limits.close {
            let cause = if flags & DETACH != 0 { Cause::WriteStall } else { Cause::Closed };
            self.fail(watcher, index, cause);
        } else if !ends && limits.write_stall.is_some_and(|stall| past >= stall) {
            self.fail(watcher, index, Cause::WriteStall);
        } else if flags & (CONNECTING | CLOSING | DRAINING) == 0 {
            // The wait for the end of the output was refused. A read, or a detach, may follow.
            self.dirty(index);
            self.drained(watcher, index);
        }
    }

    /// A connection stops reading, because the whole server has too many bytes.
    #[cold]
    pub(crate) fn throttle<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if self.throttled.len() > 2 * self.table.len + 64 {
            // Most of them have ended.
            self.throttled.retain(|id| self.table.get(*id).is_some());
        }
        let id = self.table.id(index);
        if self.throttled.is_empty() {
            let (used, limit) = (self.budget.used(), self.budget.limit());
            self.log(LogEvent::Throttled { id, used, limit });
        }
        self.table.place_mut(index).flags |= THROTTLED;
        self.throttled.push(id);
        self.counts.throttles += 1;
        self.dirty(index);
        self.arm_sweep(watcher);
    }

    /// Connections read again.
    #[cold]
    pub(crate) fn unthrottle<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        while let Some(id) = self.throttled.pop() {
            if let Some(place) = self.table.get_mut(id) {
                place.flags &= !THROTTLED;
                if let Some(stream) = self.stream_of(id.index()) {
                    stream.offer_memory();
                }
                if !self.try_to_read(watcher, id.index()) {
                    self.fail(watcher, id.index(), Cause::Rejected);
                }
            }
        }
        let (used, limit) = (self.budget.used(), self.budget.limit());
        self.log(LogEvent::Unthrottled { used, limit });
    }

    /// Ends the connections whose output has made no progress for longest, until the rest fits. If
    /// another loop has the longest stall, that loop does it.
    #[cold]
    pub(crate) fn shed<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let now = watcher.now();
        let mut stalls = BinaryHeap::new();
        for at in 0..self.swept.len() {
            let index = self.swept[at];
            let queued = self.queued(watcher, index);
            let goes_on = self.has_bounded_end(index);
            let Some(active) = self.table.active_of(index) else { continue };
            // Bytes that have moved since the last look count as progress.
            let has_moved = queued < active.queued;
            let since = if has_moved { Some(now) } else { active.since };
            if has_moved {
                active.queued = queued;
                if !goes_on {
                    active.since = since;
                }
            }
            // A closing connection that has sent all its output frees nothing, and a file does not.
            let frees = active.in_memory() > 0 || active.files.is_some() && active.corked > 0;
            if let (Some(since), true) = (since, frees) {
                stalls.push(Reverse((since, index)));
            }
            if has_moved {
                self.recharge(index);
            }
        }
        loop {
            let oldest = stalls.peek().map(|Reverse((since, _))| *since);
            self.note_oldest(watcher, oldest);
            let token = self.token(WAKE);
            if !self.budget.is_over() || self.budget.asks_another(token, oldest, now) {
                return;
            }
            let Some(Reverse((_, index))) = stalls.pop() else { return };
            self.fail(watcher, index, Cause::Shed);
        }
    }

    /// Publishes the beginning of this loop's longest stall for the other loops.
    fn note_oldest<D: Driver>(&mut self, watcher: &mut Watcher<D>, oldest: Option<Instant>) {
        // Where no other loop can ask, the watcher needs no submitter.
        if self.oldest != oldest && self.budget.is_shared() {
            self.oldest = oldest;
            self.budget.note_oldest(self.token(WAKE), oldest, || watcher.submitter());
        }
    }
}
