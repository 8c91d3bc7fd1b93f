//! The sweep: connections whose output stalls, or whose close takes too long, those that are idle
//! while they are not read, and the budget.
//!
//! # Why
//! The watcher counts the idle time of a connection while a read is in flight. An open connection
//! can be without a read: its peer has ended its side, too much output waits for it, or it holds
//! more than its share. Then it [`rests`], and the sweep has its idle time. For all of them it
//! begins when they begin to rest, and begins anew with each byte of output that moves, with a
//! resume, with a new idle time, and when the program was told of the last one. A pause stops it.
//!
//! A look at the time, or the read that the watcher ends, only notes that the time has passed
//! ([`IdleClock::Over`]). The end of the flush acts: what the program asks of the connection in the
//! same turn still begins the time anew.

use std::time::{Duration, Instant};

use windlass::driver::Driver;
use windlass::{Op, Watcher};

use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, SWEEP};
use crate::log::LogEvent;
use crate::parts::idle::IdleClock;
use crate::parts::table::{
    ABORT, Active, CONNECTING, ENDED, FINISHING, FULL, PAUSED, Place, READING, THROTTLED,
};
use crate::parts::trim::{trim, trim_map, trim_queue};
use crate::stage::{Stage, StageClock};
use crate::words::cause::Cause;
use crate::words::id::Id;

/// How many connections one turn ends because they are above their share.
const SHED: usize = 64;

/// How many connections one turn looks at.
const AT_ONCE: usize = 1024;

/// Whether a connection is open, and no read of it is in flight, although the program has not
/// paused it.
pub(crate) fn rests<S>(place: &Place<S>) -> bool {
    place.flags & (READING | PAUSED | CONNECTING | ABORT) == 0
        && place.flags & (ENDED | FULL | THROTTLED) != 0
        && place.stage.clock() == StageClock::OfOpen
}

impl<S> Engine<S> {
    /// Puts a connection into the list that the sweep looks at.
    pub(crate) fn sweep_later<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let now = watcher.update_now();
        let at = self.clocks.swept.len() as u32;
        let active = self.activate(index);
        if active.swept.is_none() || active.since.is_none() {
            active.since = Some(now);
        }
        if active.swept.is_none() {
            active.swept = Some(at);
            self.clocks.swept.push(index);
        }
        self.arm_sweep(watcher);
    }

    /// Takes a connection out of the list that the sweep looks at, if it is there.
    pub(crate) fn unsweep(&mut self, index: u32) {
        let Some(active) = self.table.active_of(index) else { return };
        let Some(at) = active.swept.take() else { return };
        active.idle = IdleClock::Elsewhere;
        self.clocks.swept.swap_remove(at as usize);
        if let Some(&moved) = self.clocks.swept.get(at as usize)
            && let Some(active) = self.table.active_of(moved)
        {
            active.swept = Some(at);
        }
    }

    /// The idle time of a connection that rests is the sweep's from now on.
    pub(crate) fn begin_rest<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        self.sweep_later(watcher, index);
        let active = self.activate(index);
        if active.idle == IdleClock::Elsewhere {
            active.idle = IdleClock::Since(watcher.update_now());
        }
    }

    /// Begins the idle time of a connection anew, whether the watcher counts it or the sweep.
    pub(crate) fn begin_idle_anew<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if let Some(active) = self.table.active_of(index) {
            active.idle = IdleClock::Elsewhere;
        }
        if rests(self.table.place(index)) {
            self.begin_rest(watcher, index);
        }
    }

    /// The idle time of a connection has passed. The end of the flush decides.
    pub(crate) fn idle_time_passed<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        self.sweep_later(watcher, index);
        self.activate(index).idle = IdleClock::Over;
        self.request(Request::Idled(self.table.id(index)));
        // A read that was idle has ended. The connection may go on.
        self.dirty(index);
    }

    /// Ends a connection that was idle, or tells the program, if nothing in this turn has begun its
    /// time anew.
    pub(crate) fn end_idle<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        let Some(place) = self.table.get(id) else { return };
        let goes_on = place.flags & PAUSED != 0 || place.is_to_end();
        let reads = place.flags & READING != 0;
        let Some(active) = self.table.active_of(id.index()) else { return };
        if active.idle == IdleClock::Over && !goes_on {
            self.limit_reached(watcher, id.index(), Cause::Idle);
        } else if reads || goes_on {
            active.idle = IdleClock::Elsewhere;
        }
    }

    /// Starts the timer of the sweep. Connections above their share need it, too: another loop may
    /// give bytes back.
    pub(crate) fn arm_sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let is_armed = self.clocks.sweep_timer.is_some() || self.clocks.wants_sweep;
        let has_work = !self.clocks.swept.is_empty()
            || !self.memory.throttled.is_empty()
            || !self.memory.waiters.is_empty()
            || self.table.has_much_to_spare()
            || self.memory.holders > 0;
        if has_work && !is_armed {
            self.submit_sweep(
                watcher,
                Op::timer(self.config.limits.step(self.clocks.shortest_idle)),
            );
        }
    }

    fn submit_sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>, op: Op) {
        let submitted = watcher.submit(op.token(self.token(SWEEP)));
        self.clocks.sweep_timer = submitted.as_ref().ok().copied();
        if is_full(submitted) {
            self.clocks.wants_sweep = true;
            self.request(Request::Sweep);
        }
    }

    /// Looks at the connections of the list, at most `AT_ONCE` of them in a turn.
    pub(crate) fn sweep<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let now = watcher.now();
        if self.clocks.sweep_from == 0 {
            self.look_at_keepers();
            self.look_at_throttled();
            self.trim();
        }
        // From the last to the first, because one that ends is replaced by the last.
        let mut at = self.clocks.sweep_from.min(self.clocks.swept.len());
        if at == 0 {
            at = self.clocks.swept.len();
        }
        let stop = at.saturating_sub(AT_ONCE);
        while at > stop {
            at -= 1;
            if let Some(&index) = self.clocks.swept.get(at) {
                self.look(watcher, index, now);
            }
        }
        self.clocks.sweep_from = stop;
        if stop > 0 {
            // It stands for the timer, so that there is one of them at a time.
            self.submit_sweep(watcher, Op::nop());
        } else {
            self.arm_sweep(watcher);
        }
    }

    /// Gives memory back that a burst has left.
    fn trim(&mut self) {
        self.table.trim();
        trim(&mut self.clocks.swept);
        trim(&mut self.work.dirty);
        trim(&mut self.work.fresh);
        trim(&mut self.memory.throttled);
        trim(&mut self.memory.keepers);
        trim(&mut self.memory.waiters);
        trim_map(&mut self.memory.changes);
        trim(&mut self.told.woken);
        trim(&mut self.work.wanted);
        trim_queue(&mut self.told.queue);
        trim_queue(&mut self.told.pending);
        trim_queue(&mut self.told.gone);
        self.clocks.deadlines.trim();
        self.clocks.allowances.trim();
        self.jobs.trim();
        self.work.ops.trim();
        self.udp.sessions.trim();
        trim(&mut self.udp.datagrams.outbox);
        trim(&mut self.leaving.moves);
        trim_queue(&mut self.outside.arrivals);
        if let Some(shared) = &self.outside.shared {
            shared.lock().trim();
        }
    }

    /// Ends a connection that has used up its time.
    fn look<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, now: Instant) {
        let place = self.table.place(index);
        let (flags, stage, source) = (place.flags, place.stage, place.source);
        let rests = rests(place);
        self.note_full(index);
        let queued = self.queued(watcher, index);
        let limits = self.config.limits;
        let ends = stage >= Stage::Leaving;
        let goes_on = self.has_bounded_end(index);
        let idle = watcher.idle_timeout(source);
        let Some(active) = self.table.active_of(index) else { return };
        if queued < active.queued {
            active.idle.note_byte(now);
            if !goes_on {
                active.since = Some(now);
            }
        }
        active.queued = queued;
        let past = active.since.map_or_else(Default::default, |since| now - since);
        let is_idle = rests && active.idle.has_passed(now, idle);
        self.recharge(index);
        let is_past = |limit: Option<Duration>| limit.is_some_and(|limit| past >= limit);
        if ends && past >= limits.close {
            if stage == Stage::Leaving && self.call_off_move(index) {
                return;
            }
            let leaves = stage == Stage::Leaving;
            let cause = if leaves { Cause::WriteStall } else { Cause::Closed };
            self.fail(watcher, index, cause);
        } else if !ends && queued > 0 && is_past(limits.write_stall) {
            self.fail(watcher, index, Cause::WriteStall);
        } else if is_idle {
            self.idle_time_passed(watcher, index);
        } else if flags & (CONNECTING | FINISHING) == 0 && !self.table.is_draining(index) {
            // The wait for the end of the output may have been refused, and a detach may wait for
            // it.
            self.dirty(index);
            self.drained(watcher, index);
        }
    }

    /// Stops the reads of a connection that is above its share, or lets it read again.
    #[inline]
    pub(crate) fn look_at_share(&mut self, index: u32) {
        let share = self.memory.share;
        let is_above = |active: &mut Active| active.holding as usize > share;
        let is_above = self.table.active_of(index).is_some_and(is_above);
        let place = self.table.place(index);
        if is_above != (place.flags & THROTTLED != 0) {
            self.change_throttle(index, is_above);
        }
    }

    #[cold]
    fn change_throttle(&mut self, index: u32, stops: bool) {
        let id = self.table.id(index);
        let (used, limit) = (self.memory.budget.used(), self.memory.budget.limit());
        self.dirty(index);
        self.note_reads(index);
        let place = self.table.place_mut(index);
        if stops {
            place.flags |= THROTTLED;
            self.memory.throttled.push(id);
            self.memory.stopped += 1;
            self.counters.throttles += 1;
            if self.memory.stopped == 1 {
                self.log(LogEvent::Throttled { id, used, limit });
            }
        } else {
            place.flags &= !THROTTLED;
            self.memory.stopped -= 1;
            if self.memory.stopped == 0 {
                self.log(LogEvent::Unthrottled { used, limit });
            }
        }
    }

    /// Notes that the program keeps input of a connection.
    pub(crate) fn keeps(&mut self, index: u32) {
        if self.activate(index).kept.is_none() {
            self.memory.keepers.push(self.table.id(index));
        }
    }

    /// Looks at the connections of which the program keeps input: it may have dropped some.
    fn look_at_keepers(&mut self) {
        let mut keepers = std::mem::take(&mut self.memory.keepers);
        keepers.sort_unstable();
        keepers.dedup();
        keepers.retain(|&id| {
            if !self.table.lives(id) {
                return false;
            }
            self.recount(id.index());
            let Some(active) = self.table.active_of(id.index()) else { return false };
            let keeps = active.kept.as_ref().is_some_and(|kept| !kept.is_empty());
            if !keeps && active.stream.is_none() {
                active.kept = None;
                self.table.settle(id.index());
            }
            keeps
        });
        self.memory.keepers.append(&mut keepers);
    }

    /// Looks at the connections that have stopped reading: their share may have grown, and the
    /// program may have dropped what it has kept.
    #[cold]
    fn look_at_throttled(&mut self) {
        self.memory.look();
        let mut throttled = std::mem::take(&mut self.memory.throttled);
        // One that has stopped and gone on several times is in it as often.
        throttled.sort_unstable();
        throttled.dedup();
        throttled.retain(|&id| {
            if self.table.lives(id) && self.table.place(id.index()).flags & THROTTLED != 0 {
                self.look_at_share(id.index());
            }
            self.table.get(id).is_some_and(|place| place.flags & THROTTLED != 0)
        });
        self.memory.throttled.append(&mut throttled);
    }

    /// Wakes the streams whose writes now find memory.
    #[cold]
    pub(crate) fn look_at_waiters(&mut self) {
        let mut waiters = std::mem::take(&mut self.memory.waiters);
        waiters.retain(|&id| {
            self.table.lives(id)
                && self.stream_of(id.index()).is_some_and(|stream| !stream.offer_memory())
        });
        self.memory.waiters.append(&mut waiters);
    }

    /// The reserve of the budget is touched: ends some of the connections above their share, first
    /// those that hold most.
    #[cold]
    pub(crate) fn shed<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let mut ended = 0;
        for _ in 0..4 * SHED {
            let share = self.memory.budget.share();
            let Some(index) = self.table.largest_holder(share) else { return };
            // The kernel may have taken bytes since the engine last looked.
            self.note_full(index);
            let queued = self.queued(watcher, index);
            self.note_progress(watcher, index, queued);
            self.recharge(index);
            if self.table.active_of(index).is_none_or(|active| active.holding as usize <= share) {
                continue;
            }
            if !self.memory.budget.is_touched() {
                return;
            }
            // A close that it was about to finish is not why it ends.
            self.forget_request(index);
            self.fail(watcher, index, Cause::Shed);
            ended += 1;
            if ended == SHED {
                return;
            }
        }
    }
}
