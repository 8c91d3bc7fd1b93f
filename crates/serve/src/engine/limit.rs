//! The clocks that the program sets while a connection is open.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Op, Refusal as Reason, Ticket, Watcher};

#[cfg(doc)]
use crate::Event;
use crate::engine::events::Pending;
use crate::engine::requests::{Request, is_full};
use crate::engine::{ALLOWANCE, Engine};
use crate::parts::allowances::{Allowance, RunsWhile};
use crate::parts::idle::IdleClock;
use crate::parts::table::{ABORT, CONNECTING, ENDED, LIMITED, PAUSED, Place, STOPPED};
use crate::stage::{Stage, StageClock};
use crate::words::cause::Cause;
use crate::words::id::Id;

/// Whether the time of a connection counts.
fn counts<S>(place: &Place<S>, runs: RunsWhile) -> bool {
    let stops = match runs {
        RunsWhile::Read { .. } => ENDED | STOPPED | ABORT,
        RunsWhile::Open => ABORT,
    };
    place.stage.clock() == StageClock::OfOpen && place.flags & stops == 0
}

/// How many connections one turn looks at.
const AT_ONCE: usize = 1024;

impl<S> Engine<S> {
    /// Sets how long no byte may move on a connection, in either direction, in place of
    /// [`Limits::idle`](crate::Limits::idle). `None` lets it be idle for ever. The idle time begins
    /// anew. False for a stale id, for a session, and for a connection that has not opened or
    /// closes.
    ///
    /// When the time has passed, the connection ends with [`Cause::Idle`], or
    /// [`Event::LimitReached`] follows. It is late by at most a sixteenth of `span`, or by 100 ms
    /// if that is longer, and never early. The time in which the program has paused the connection
    /// does not count.
    ///
    /// This costs a connection no byte and a message no instruction. In return the connections of a
    /// watcher have at most 255 different times. With one more, the connection keeps the time that
    /// it had, and [`option_errors`](crate::report::Counters::option_errors) counts that. A
    /// connection that moves to a loop gets the time of its configuration.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Cause, Conn, Handler, Origin};
    ///
    /// /// Asks a silent peer once whether it is there.
    /// struct Pings;
    /// impl Handler for Pings {
    ///     type State = bool; // whether a ping has no answer yet
    ///     fn opened(&mut self, c: &mut Conn<'_, bool>, _: Origin) -> Action {
    ///         c.set_idle_timeout(Duration::from_secs(30));
    ///         Action::None
    ///     }
    ///     fn data(&mut self, c: &mut Conn<'_, bool>, _: Buf) -> Action {
    ///         *c.state() = false;
    ///         Action::None
    ///     }
    ///     fn limit_reached(&mut self, c: &mut Conn<'_, bool>, _: Cause) -> Action {
    ///         if std::mem::replace(c.state(), true) {
    ///             return Action::Close;
    ///         }
    ///         c.write("ping\n"); // 30 seconds more
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn set_idle_timeout(&mut self, id: Id, span: impl Into<Option<Duration>>) -> bool {
        if !self.takes_limits(id) {
            return false;
        }
        if let Some(active) = self.table.active_of(id.index()) {
            active.idle = IdleClock::Elsewhere;
        }
        self.request(Request::IdleTimeout(id, span.into()));
        true
    }

    /// Gives the peer of a connection the time `span`, in place of what it has left of an earlier
    /// one. The time runs down, and every `least_rate` bytes that arrive give one second back, up
    /// to `span`. When no time is left, the connection ends with [`Cause::TooSlow`], or
    /// [`Event::LimitReached`] follows. `None` takes the limit away. False for a stale id, for a
    /// session, and for a connection that has not opened or closes.
    ///
    /// With a `least_rate` of 0 no byte gives time back: for the head of a request, which has to be
    /// there after `span`. With a rate, a peer that sends at least so many bytes a second goes on
    /// for ever, and may fall behind by `span`: for the body of a request.
    ///
    /// The end is late by at most a sixteenth of `span`, or by 100 ms if that is longer, and never
    /// early. The time does not count in which the reads of the connection are stopped: by
    /// [`pause`](Engine::pause), because it has too much output or memory, or because its peer has
    /// shut down its output. The idle time goes on beside this limit. A connection that moves to a
    /// loop leaves its limit behind.
    ///
    /// A connection with such a limit has an entry of 80 bytes, and the memory that another one has
    /// only while output waits. One without a limit costs nothing. A turn looks at 1024 at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Buf;
    /// use windlass_serve::framing::{Input, Lines};
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// /// A line has to be there ten seconds after its beginning.
    /// struct Server;
    /// impl Handler for Server {
    ///     type State = Input;
    ///     fn data(&mut self, c: &mut Conn<'_, Input>, data: Buf) -> Action {
    ///         c.state().push(data);
    ///         let mut lines = 0;
    ///         while let Ok(Some(_line)) = c.state().next(&mut Lines::new(1024)) {
    ///             lines += 1;
    ///         }
    ///         if c.state().is_empty() {
    ///             c.limit(None, 0);
    ///         } else if lines > 0 || !c.is_limited() {
    ///             c.limit(Duration::from_secs(10), 0);
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn limit(&mut self, id: Id, span: impl Into<Option<Duration>>, least_rate: u32) -> bool {
        self.set_limit(id, span.into(), RunsWhile::Read { least_rate })
    }

    /// Limits a time of the program's own, that of its answer for example. When `span` has passed,
    /// and the program has not called this again, the connection ends with [`Cause::TooSlow`], or
    /// [`Event::LimitReached`] follows. `None` takes the limit away. False as for
    /// [`limit`](Engine::limit).
    ///
    /// A [`limit`](Engine::limit) is the peer's, and counts only while the connection is read. This
    /// one always counts: also while the program has paused the connection, while too much output
    /// or memory has stopped its reads, and after its peer has shut down its output. The event
    /// comes then, too. No byte gives time back. All else is as for `limit`: how late the end can
    /// be, and what the entry costs. The time stands while the connection waits to be detached or
    /// moved, or goes over to TLS: these have clocks of their own.
    ///
    /// A connection has one limit at a time, of either kind: each call replaces the one before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Cause, Conn, Handler};
    ///
    /// /// The answer has to be there after ten seconds.
    /// struct Jobs;
    /// impl Handler for Jobs {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         c.pause();
    ///         c.time_limit(Duration::from_secs(10));
    ///         let answer = |c: &mut Conn<'_, ()>, count: usize| {
    ///             c.write(format!("{count}\n"));
    ///             c.time_limit(None);
    ///             c.resume();
    ///             Action::None
    ///         };
    ///         if c.execute(move || data.len(), answer).is_ok() {
    ///             Action::None
    ///         } else {
    ///             Action::Close
    ///         }
    ///     }
    ///     fn limit_reached(&mut self, c: &mut Conn<'_, ()>, _: Cause) -> Action {
    ///         c.write("too slow\n");
    ///         Action::Close
    ///     }
    /// }
    /// ```
    pub fn time_limit(&mut self, id: Id, span: impl Into<Option<Duration>>) -> bool {
        self.set_limit(id, span.into(), RunsWhile::Open)
    }

    fn set_limit(&mut self, id: Id, span: Option<Duration>, runs: RunsWhile) -> bool {
        if !self.takes_limits(id) {
            return false;
        }
        let index = id.index();
        let Some(span) = span else {
            self.unlimit(index);
            return true;
        };
        let at = self.activate(index).limited;
        let at = self.clocks.allowances.set(at, Allowance::new(id, span, runs));
        self.activate(index).limited = Some(at);
        self.table.place_mut(index).flags |= LIMITED;
        if self.clocks.allowances.needs_timer() {
            self.ask_for_allowances();
        }
        true
    }

    /// Whether a connection has a [limit](Engine::limit) now, of either kind; false for a stale id.
    pub fn is_limited(&self, id: Id) -> bool {
        self.table
            .get(id)
            .is_some_and(|place| place.stage < Stage::Closing && place.flags & LIMITED != 0)
    }

    pub(crate) fn takes_limits(&self, id: Id) -> bool {
        let opens = CONNECTING | ABORT;
        let is_open = self.table.get(id).is_some_and(|place| {
            place.flags & opens == 0 && place.stage.clock() == StageClock::OfOpen
        });
        is_open && !self.is_session(id)
    }

    pub(crate) fn set_idle_timeout_of<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        span: Option<Duration>,
    ) {
        // A move that has begun since may be called off.
        let goes_on = |place: &&Place<S>| place.stage <= Stage::Leaving && place.flags & ABORT == 0;
        if self.table.get(id).filter(goes_on).is_none() {
            return;
        }
        let Some(source) = self.source(id) else { return };
        match watcher.set_idle_timeout(source, span) {
            Ok(()) => self.note_idle_time(watcher, span),
            Err(Reason::Full { .. }) => self.counters.option_errors += 1,
            // Its read reports the end.
            Err(_) => {}
        }
        self.begin_idle_anew(watcher, id.index());
    }

    /// The sweep meets a new idle time, too.
    fn note_idle_time<D: Driver>(&mut self, watcher: &mut Watcher<D>, span: Option<Duration>) {
        let before = self.config.limits.step(self.clocks.shortest_idle);
        let shortest = [self.clocks.shortest_idle, span].into_iter().flatten().min();
        self.clocks.shortest_idle = shortest;
        if self.config.limits.step(shortest) < before
            && let Some(timer) = self.clocks.sweep_timer
        {
            // Its completion makes the sweep look, and begin the shorter step.
            watcher.cancel(timer);
        }
    }

    /// Takes the limit of a connection away, if it has one.
    pub(crate) fn unlimit(&mut self, index: u32) {
        let Some(active) = self.table.active_of(index) else { return };
        let Some(at) = active.limited.take() else { return };
        self.table.place_mut(index).flags &= !LIMITED;
        if let Some(moved) = self.clocks.allowances.remove(at)
            && let Some(active) = self.table.active_of(moved.index())
        {
            active.limited = Some(at);
        }
        self.dirty(index);
    }

    /// Bytes of a limited connection have arrived.
    pub(crate) fn count_for_limit(&mut self, index: u32, bytes: usize) {
        if let Some(at) = self.table.active_of(index).and_then(|active| active.limited) {
            self.clocks.allowances.count(at, bytes);
        }
    }

    fn ask_for_allowances(&mut self) {
        if !std::mem::replace(&mut self.clocks.allowances.is_asked, true) {
            self.request(Request::Allowances);
        }
    }

    /// The timer has fired. Bytes of the same batch count: the next flush looks.
    pub(crate) fn allowances_timer_fired(&mut self, ticket: Ticket) {
        // A timer that was replaced may complete all the same.
        if self.clocks.allowances.timer.is_some_and(|(timer, _)| timer == ticket) {
            self.clocks.allowances.timer = None;
            self.ask_for_allowances();
        }
    }

    /// Looks at the connections with a limit, as many as one turn may, and sets the timer.
    pub(crate) fn look_at_allowances<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let now = watcher.update_now();
        let allowances = &mut self.clocks.allowances;
        allowances.is_asked = false;
        if let Some((timer, _)) = allowances.timer.take() {
            // It is too late for a new limit.
            watcher.cancel(timer);
        }
        // From the last to the first, because one that ends is replaced by the last.
        let mut at = allowances.next.min(allowances.len());
        if at == 0 {
            at = allowances.len();
        }
        let stop = at.saturating_sub(AT_ONCE);
        while at > stop {
            at -= 1;
            let Some((id, runs)) = self.clocks.allowances.one_at(at) else { continue };
            let counts = counts(self.table.place(id.index()), runs);
            if self.clocks.allowances.look(at, now, counts) {
                self.limit_reached(watcher, id.index(), Cause::TooSlow);
            }
        }
        self.clocks.allowances.next = stop;
        let Some(step) = self.clocks.allowances.step() else { return };
        let op = if stop > 0 { Op::nop() } else { Op::timer(step) };
        let submitted = watcher.submit(op.token(self.token(ALLOWANCE)));
        self.clocks.allowances.timer = submitted.as_ref().ok().map(|&timer| (timer, step));
        if is_full(submitted) {
            self.ask_for_allowances();
        }
    }

    /// The reads of a connection have stopped or go on. What its peer has left of its time counts
    /// only while it is read, however short the stops are.
    pub(crate) fn note_reads(&mut self, index: u32) {
        if self.table.place(index).flags & LIMITED != 0 {
            self.request(Request::Reads(self.table.id(index)));
        }
    }

    pub(crate) fn reads_changed<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        let read = RunsWhile::Read { least_rate: 0 };
        let Some(runs) = self.table.get(id).map(|place| counts(place, read)) else { return };
        let Some(active) = self.table.active_of(id.index()) else { return };
        if let Some(at) = active.limited {
            // They have stopped in this turn, so not before its wait has ended.
            let stop = watcher.now();
            let start = runs.then(|| watcher.update_now());
            self.clocks.allowances.reads_changed(at, stop, start);
        }
    }

    /// A connection has used up its time: it ends, or the program is told.
    pub(crate) fn limit_reached<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        cause: Cause,
    ) {
        if !self.config.limit_events {
            self.unlimit(index);
            return self.fail(watcher, index, cause);
        }
        self.told.pending.push_back(Pending::LimitReached(self.table.id(index), cause));
    }

    /// Whether a connection that has reached a limit is still to be told of it: what the program
    /// has done meanwhile may have begun its time anew. One that leaves keeps its limit, and one
    /// that is paused keeps that of its peer.
    pub(crate) fn is_beyond_limit(&mut self, id: Id, cause: Cause) -> bool {
        let Some(place) = self.table.get(id) else { return false };
        let (ends, is_paused) = (place.is_to_end(), place.flags & PAUSED != 0);
        let index = id.index();
        let Some(active) = self.table.active_of(index) else { return false };
        if cause == Cause::Idle {
            if active.idle != IdleClock::Over {
                return false;
            }
            active.idle = IdleClock::Elsewhere;
            self.dirty(index); // It reads or rests again.
            return !ends && !is_paused;
        }
        let Some(at) = active.limited else { return false };
        let Some((_, runs)) = self.clocks.allowances.one_at(at as usize) else { return false };
        let waits = ends || is_paused && runs != RunsWhile::Open;
        let is_told = !waits && self.clocks.allowances.has_none_left(at);
        if is_told {
            self.unlimit(index);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use windlass::net::ListenOptions;
    use windlass::sim::Sim;
    use windlass::{Completions, Op};

    use super::*;
    use crate::words::config::Config;
    use crate::words::event::Event;
    use crate::words::limits::Limits;

    const SECOND: Duration = Duration::from_secs(1);

    /// One turn, and its events.
    fn turn(watcher: &mut Watcher, engine: &mut Engine<()>) -> Vec<Event<()>> {
        let (mut done, mut told) = (Completions::new(), Vec::new());
        watcher.wait_timeout(&mut done, SECOND / 10).unwrap();
        for c in done.drain(..) {
            let _ = engine.complete(watcher, c);
        }
        while let Some(event) = engine.next_event(watcher) {
            told.push(event);
        }
        engine.flush(watcher);
        told
    }

    /// The event was dropped while the connection left, and its limit was gone.
    #[test]
    fn a_move_that_is_called_off_keeps_what_the_peer_has_used_up() {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let limits = Limits::new().close(SECOND).write_stall(None).idle(None);
        let mut engine = Engine::<()>::new(Config::new().limits(limits).limit_events(true));
        engine.set_thread();
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        let address = watcher.local_address(engine.listeners()[0]).unwrap();
        let (client, _) = watcher.connect([address], Default::default()).unwrap();
        while engine.ids().next().is_none() {
            turn(&mut watcher, &mut engine);
        }
        let id = engine.ids().next().expect("it is open");
        turn(&mut watcher, &mut engine);
        assert!(engine.limit(id, SECOND, 0) && engine.let_move(id, |state| Box::new(state)));
        while !engine.told.pending.iter().any(|one| matches!(one, Pending::LimitReached(..))) {
            turn(&mut watcher, &mut engine);
        }
        engine.write(id, vec![7; 200 << 10]).unwrap();
        assert!(engine.begin_move(id));
        // It has no end in time.
        let start = watcher.now();
        while engine.is_moving(id) {
            assert!(turn(&mut watcher, &mut engine).is_empty());
            assert!(watcher.now() - start < 10 * SECOND);
        }
        assert!(engine.is_limited(id), "the limit is there");
        watcher.submit(Op::read(client).multishot()).unwrap();
        let mut told = Vec::new();
        while told.is_empty() {
            told = turn(&mut watcher, &mut engine);
            assert!(watcher.now() - start < 10 * SECOND);
        }
        let Event::LimitReached { cause, .. } = told[0] else { panic!("{told:?}") };
        assert!(cause == Cause::TooSlow && !engine.is_limited(id));
    }
}
