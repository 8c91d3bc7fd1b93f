//! Deadlines of connections: the connection ends when its time has come.
//!
//! A table has the deadlines, so that a connection without one takes no memory for them. A heap has
//! a time for each deadline: the deadline itself, or an earlier one. A deadline that moves back
//! leaves the heap as it is, and is put back when its old time has come. One timer waits for the
//! first time of the heap.

use std::cmp::Reverse;

use windlass::driver::{Deadline, Driver};
use windlass::{Op, Ticket, Watcher};

use crate::engine::requests::{Request, is_full};
use crate::engine::{DEADLINE, Engine};
use crate::parts::deadlines::Kind;
use crate::parts::table::{ENDED, TIMED};
use crate::stage::Stage;
use crate::words::cause::Cause;
use crate::words::id::Id;
#[cfg(doc)]
use std::time::{Duration, Instant};

/// How many deadlines one turn looks at.
const AT_ONCE: usize = 1024;

impl<S> Engine<S> {
    /// Sets the time at which a connection ends with [`Cause::ReadTimeout`], even if bytes arrive
    /// until then. A new deadline replaces the old one, and `None` removes it. False for a stale
    /// id.
    ///
    /// The connection never ends before this time. It ends as by [`abort`](Engine::abort): its
    /// waiting output is dropped. If the time has passed already, it ends in the next
    /// [`flush`](Engine::flush). Data that arrives in the same turn is delivered first, and the
    /// program can then still move the deadline.
    ///
    /// The deadline also holds while the connection connects, and while it is paused. It is removed
    /// when the connection closes or detaches, and when the peer has shut down its output. A
    /// [`Deadline::After`] that the clock cannot reach is none.
    ///
    /// A connection that [moves](crate::Conn::move_to_loop) to a loop leaves its deadlines behind.
    ///
    /// [`Limits::idle`](crate::Limits::idle) ends connections without bytes in either direction,
    /// and costs less for many connections. [`Conn::set_read_deadline`] has an example.
    ///
    /// [`Conn::set_read_deadline`]: crate::Conn::set_read_deadline
    pub fn set_read_deadline(&mut self, id: Id, deadline: impl Into<Option<Deadline>>) -> bool {
        self.set_deadline_of(id, Kind::Read, deadline.into())
    }

    /// Sets the time at which a connection ends with [`Cause::WriteTimeout`], unless its output is
    /// sent by then. False for a stale id, and for a session: it has no write deadline.
    ///
    /// When the system has taken all waiting output, the deadline is removed. The output of this
    /// turn counts, whether it is written before or after this call. If no output waits, the
    /// deadline is for the output that follows: the connection ends if nothing is written until
    /// then. So it also bounds the time that the program takes for an answer.
    ///
    /// If output waits, the deadline stays when the connection closes or detaches. Then the
    /// connection ends with the cause of the close, and its `unsent` says how many bytes were lost.
    /// In all else it is as [`set_read_deadline`](Engine::set_read_deadline).
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Buf;
    /// use windlass::driver::Deadline;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// /// The peer takes each answer within ten seconds, or goes.
    /// struct Answers;
    /// impl Handler for Answers {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         c.write(data);
    ///         c.set_write_deadline(Deadline::After(Duration::from_secs(10)));
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn set_write_deadline(&mut self, id: Id, deadline: impl Into<Option<Deadline>>) -> bool {
        self.set_deadline_of(id, Kind::Write, deadline.into())
    }

    /// Sets the [read](Engine::set_read_deadline) and the
    /// [write](Engine::set_write_deadline) deadline. If both have passed, the cause is
    /// [`Cause::ReadTimeout`]. A session gets only the read deadline. False for a stale id.
    pub fn set_deadline(&mut self, id: Id, deadline: impl Into<Option<Deadline>>) -> bool {
        let deadline = deadline.into();
        let lives = self.set_deadline_of(id, Kind::Read, deadline);
        self.set_deadline_of(id, Kind::Write, deadline);
        lives
    }

    pub(crate) fn set_deadline_of(
        &mut self,
        id: Id,
        kind: Kind,
        deadline: Option<Deadline>,
    ) -> bool {
        let is_write = kind == Kind::Write;
        let place = if is_write { self.table.unless_session(id) } else { self.table.get(id) };
        let Some(place) = place else { return false };
        if place.stage == Stage::Ended && place.source.is_none() {
            return true; // its last event waits
        }
        let Some(deadline) = deadline else {
            self.clocks.deadlines.clear(id, kind);
            if is_write && let Some(active) = self.table.active_of(id.index()) {
                active.keeps &= !TIMED;
                self.dirty(id.index());
            }
            return true;
        };
        let times = self.clocks.deadlines.of.entry(id).or_default();
        times.0[kind as usize].deadline = Some(deadline);
        self.clocks.deadlines.fresh.push((id, kind));
        self.look_at_deadlines();
        if is_write {
            // Writes to a connection with an active part pass `send`, which looks for the end.
            self.activate(id.index()).keeps |= TIMED;
        }
        true
    }

    fn look_at_deadlines(&mut self) {
        if !std::mem::replace(&mut self.clocks.deadlines.asked, true) {
            self.request(Request::Deadlines);
        }
    }

    /// The timer has fired. Data of the same batch comes first: the next flush looks.
    pub(crate) fn deadline_passed(&mut self, ticket: Ticket) {
        // A timer that was replaced may complete all the same.
        if self.clocks.deadlines.timer.is_some_and(|(timer, _)| timer == ticket) {
            self.clocks.deadlines.timer = None;
            self.look_at_deadlines();
        }
    }

    /// The system has all output of a connection with a write deadline.
    #[cold]
    pub(crate) fn sent_in_time(&mut self, index: u32) {
        self.clocks.deadlines.clear(self.table.id(index), Kind::Write);
        if let Some(active) = self.table.active_of(index) {
            active.keeps &= !TIMED;
        }
    }

    /// Ends the connections whose time has come, and waits for the next one.
    pub(crate) fn end_late<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.clocks.deadlines.asked = false;
        let now = watcher.update_now();
        for (id, kind) in std::mem::take(&mut self.clocks.deadlines.fresh) {
            let deadline = self.clocks.deadlines.slot(id, kind).and_then(|slot| slot.deadline);
            match deadline {
                Some(Deadline::At(at)) => self.clocks.deadlines.queue(id, kind, at),
                Some(Deadline::After(span)) => match now.checked_add(span) {
                    Some(at) => self.clocks.deadlines.queue(id, kind, at),
                    None => self.clocks.deadlines.clear(id, kind), // the clock does not reach it
                },
                None => {}
            }
        }
        for _ in 0..AT_ONCE {
            let Some(passed) = self.clocks.deadlines.pop(now) else { break };
            if let Some((id, kind)) = passed {
                self.end_one(watcher, id, kind);
            }
        }
        self.arm_deadlines(watcher);
    }

    fn end_one<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id, kind: Kind) {
        self.clocks.deadlines.clear(id, kind);
        let Some(place) = self.table.get(id) else { return };
        let (index, flags) = (id.index(), place.flags);
        let is_over = place.stage >= Stage::Leaving;
        self.owe(id, |owed| owed.late[kind as usize] = true);
        match kind {
            Kind::Read if is_over || flags & ENDED != 0 => {}
            Kind::Read => match self.table.session(id) {
                Some(at) => self.end_session(watcher, at, Cause::ReadTimeout),
                None => self.fail(watcher, index, Cause::ReadTimeout),
            },
            Kind::Write => {
                if !is_over || self.waiting(id) > 0 {
                    return self.fail(watcher, index, Cause::WriteTimeout);
                }
                if let Some(active) = self.table.active_of(index) {
                    active.keeps &= !TIMED;
                }
            }
        }
    }

    /// Sets the timer to the first time of the heap.
    fn arm_deadlines<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let Some(&Reverse((first, ..))) = self.clocks.deadlines.heap.peek() else { return };
        if let Some((timer, at)) = self.clocks.deadlines.timer {
            // A timer that comes too early costs a turn, and a later one takes its place.
            if at <= first {
                return;
            }
            if watcher.reschedule_at(timer, first).is_ok() {
                self.clocks.deadlines.timer = Some((timer, first));
                return;
            }
            watcher.cancel(timer);
        }
        let submitted = watcher.submit(Op::timer_at(first).token(self.token(DEADLINE)));
        self.clocks.deadlines.timer = submitted.as_ref().ok().map(|&timer| (timer, first));
        if is_full(submitted) {
            self.look_at_deadlines();
        }
    }
}
