//! How connections end: close after the output, half-close, abort, detach, failure.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::SocketOption;
use windlass::{ErrorKind, Op, Refusal as Reason, Source, Watcher};

use crate::engine::Engine;
use crate::engine::events::{Gone, Pending};
use crate::engine::requests::Request;
use crate::engine::sweep::rests;
use crate::log::LogEvent;
use crate::parts::cipher::Failure;
use crate::parts::idle::IdleClock;
use crate::parts::table::{
    ABORT, CLOSE_SENT, CODED, CONNECTING, ENDED, FINISHING, PAUSED, READING, SHUT, SHUTTING,
    THROTTLED,
};
use crate::stage::{Stage, StageClock, Step};
use crate::words::cause::{Cause, Phase};
use crate::words::id::Id;
use crate::words::refused::Refusal;

/// The close of the socket is to reset the connection: the peer must not take a part of the output
/// for all of it. (Where the option is refused, the socket has no reset.)
pub(crate) fn reset_at_close<D: Driver>(watcher: &mut Watcher<D>, source: Source) {
    let _ = watcher.set_option(source, SocketOption::Linger(Some(Duration::ZERO)));
}

impl<S> Engine<S> {
    /// Closes a connection after its [jobs](Engine::execute) have ended and its waiting output is
    /// sent; false for a stale id. No more of its data is delivered. Output that is not sent within
    /// [`Limits::close`](crate::Limits::close) is lost: `unsent` of
    /// [`Event::Closed`](crate::Event::Closed) counts it.
    ///
    /// A request of the program replaces a weaker one that is still waiting: a half-close is the
    /// weakest, then come a detach and a move, a close, and an abort. So a connection that waits
    /// for its detach or its move closes instead. A weaker request after a stronger one has no
    /// effect. True says that the connection is to end, also if it ends already. False also if its
    /// [`Event::Detached`](crate::Event::Detached) waits to be taken out.
    pub fn close(&mut self, id: Id) -> bool {
        self.close_as(id, Cause::Closed)
    }

    pub(crate) fn close_as(&mut self, id: Id, cause: Cause) -> bool {
        let Some(place) = self.table.get_mut(id) else { return false };
        if place.stage == Stage::Ended {
            // The program has its descriptor, or another loop gets it.
            return cause == Cause::Closed && self.owe_close(id);
        }
        if place.stage == Stage::Handshake && self.closes_later(id, cause) {
            return true;
        }
        let Some(place) = self.table.get_mut(id) else { return false };
        let leaves = place.stage == Stage::Leaving;
        if place.flags & CONNECTING != 0 {
            // A shutdown would wait for the connect.
            place.advance(Step::CalledOff);
        } else if leaves && cause == Cause::Closed {
            // After a shutdown or the peer's end it goes on to leave: what is left to do is handed
            // over.
            self.call_off(id);
        }
        let bounded = leaves && self.has_bounded_end(id.index());
        let Some(place) = self.table.get_mut(id) else { return false };
        if !place.is_to_end() {
            place.advance(Step::Close);
            self.note_cause(id.index(), cause);
            if !bounded {
                self.begin_end_clock(id.index());
            }
            self.refuse_output_of_stream(id.index());
            self.dirty(id.index());
        }
        true
    }

    /// Shuts down the output of a connection after the [jobs](Engine::execute) that it has now have
    /// ended and its waiting output is sent (half-close). Until these jobs have ended, it takes
    /// writes. The peer reads EOF, and can still send. The connection closes when the peer has shut
    /// down its output, too. A session [closes](Engine::close): UDP has no half-close.
    ///
    /// False for a stale id, and for a connection that was aborted, has failed, or waits for its
    /// [detach](Engine::detach): its descriptor leaves with its output open. A move that waits is
    /// called off. True if the connection closes, because a close shuts the output down, too.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Config, Conn, Handler};
    ///
    /// /// Sends its answer and its end at once, and goes on to read what the peer still sends.
    /// struct Takes;
    /// impl Handler for Takes {
    ///     type State = usize; // the bytes so far
    ///     fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
    ///         if *c.state() == 0 {
    ///             c.write("go on\n");
    ///             c.shutdown(); // behind the answer; the connection closes with the peer's end
    ///         }
    ///         *c.state() += data.len();
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn shutdown(&mut self, id: Id) -> bool {
        let Some(place) = self.table.unless_session(id) else { return self.close(id) };
        let cannot = place.stage >= Stage::Failing || place.flags & ABORT != 0;
        if cannot || place.stage == Stage::Leaving && !self.call_off_move(id.index()) {
            return false;
        }
        let Some(place) = self.table.get_mut(id) else { return false };
        if !place.is_to_end() && place.flags & (SHUT | SHUTTING) == 0 {
            place.advance(Step::SideEnded);
            place.flags |= SHUT;
            self.shut_behind_jobs(id);
            self.refuse_output_of_stream(id.index());
            self.dirty(id.index());
        }
        true
    }

    /// Hands the descriptor of a connection to the program after its [jobs](Engine::execute) have
    /// ended and its waiting output is sent, with the bytes that were not delivered:
    /// [`Event::Detached`](crate::Event::Detached). If this takes longer than
    /// [`Limits::close`](crate::Limits::close), the connection ends with [`Cause::WriteStall`]. A
    /// [close](Engine::close) takes its place. A move that waits is called off.
    ///
    /// ```
    /// use windlass::{Buf, Handle};
    /// use windlass_serve::{Action, Conn, Context, Detached, Handler};
    ///
    /// /// Gives connections that ask for it to a thread with blocking calls.
    /// struct Upgrades;
    /// impl Handler for Upgrades {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         if !data.starts_with(b"upgrade\n") {
    ///             return Action::Close;
    ///         }
    ///         c.write("upgraded\n"); // leaves before the descriptor does
    ///         Action::Detach
    ///     }
    ///     fn detached(&mut self, _: &mut Context<'_, ()>, detached: Detached<()>) -> Action {
    ///         let early = detached.undelivered; // what the peer has sent meanwhile
    ///         let socket = detached.handle; // an accepted one is non-blocking
    ///         std::thread::spawn(move || talk(socket, early));
    ///         Action::None
    ///     }
    /// }
    ///
    /// fn talk(socket: Handle, early: Vec<Buf>) {
    ///     println!("{socket:?}, and {} pieces", early.len());
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Stale`]: the connection has ended, closes, was aborted or has failed, or the
    ///   server shuts down and it is about to move.
    /// - [`Refusal::Tls`]: it has TLS. A descriptor without the keys is of no use to anybody.
    /// - [`Refusal::Unsupported`]: a session has no descriptor of its own.
    pub fn detach(&mut self, id: Id) -> Result<(), Refusal> {
        let Some(place) = self.table.get(id) else { return Err(Refusal::Stale) };
        if place.session().is_some() {
            return Err(Refusal::Unsupported);
        }
        if place.flags & CODED != 0 {
            return Err(Refusal::Tls);
        }
        let (is_over, stage) = (place.is_over(), place.stage);
        if is_over && stage != Stage::Ended {
            return Err(Refusal::Stale);
        }
        if is_over {
            return Ok(()); // its event waits
        }
        if stage == Stage::Leaving && !self.call_off_move(id.index()) {
            return if self.is_moving(id) { Err(Refusal::Stale) } else { Ok(()) };
        }
        self.leave(id);
        Ok(())
    }

    /// Begins to leave, because the program wants the descriptor, or another loop gets it.
    pub(crate) fn leave(&mut self, id: Id) {
        let Some(place) = self.table.get_mut(id) else { return };
        place.advance(Step::Leave);
        self.begin_end_clock(id.index());
        if let Some(stream) = self.stream_of(id.index()) {
            stream.let_go();
        }
        self.dirty(id.index());
    }

    /// A detach or a move that waits gives way. (In a shutdown of the server a move does not.)
    pub(crate) fn call_off(&mut self, id: Id) {
        if !self.call_off_move(id.index())
            && !self.is_moving(id)
            && let Some(place) = self.table.get_mut(id)
        {
            place.advance(Step::CalledOff);
        }
    }

    /// Carries out what the program has asked of a connection.
    #[inline]
    pub(crate) fn carry_out<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        if place.is_to_end() || place.flags & SHUT != 0 {
            self.carry_out_end(watcher, index);
        } else if place.flags & READING == 0 && place.state.is_some() {
            self.go_on(watcher, index);
        }
    }

    /// An open connection goes on: it reads or rests.
    #[inline(never)]
    fn go_on<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if rests(self.table.place(index)) {
            self.begin_rest(watcher, index);
        } else {
            self.read_as_wanted(watcher, index);
        }
        self.look_at_peer(watcher, index);
    }

    #[inline(never)]
    fn carry_out_end<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        let (source, flags, stage) = (place.source, place.flags, place.stage);
        if let Some(at) = place.session() {
            return self.carry_out_session(watcher, at);
        }
        if flags & ABORT != 0 {
            // One of them can make the end a reset.
            self.set_asked_options(watcher);
            return self.fail(watcher, index, Cause::Aborted);
        }
        if flags & CONNECTING != 0 {
            if stage != Stage::Closing {
                return;
            }
            if self.corked(index) == 0 && self.files_of(index).is_none() {
                return self.fail(watcher, index, Cause::Closed);
            }
            return self.sweep_later(watcher, index);
        }
        let token = self.token(index);
        let waits_for_files = self.files_of(index).is_some();
        let waits_to_shut = waits_for_files || self.waits_to_shut(index);
        if flags & SHUT != 0 && !waits_to_shut && stage != Stage::Handshake {
            let place = self.table.place_mut(index);
            place.flags = place.flags & !SHUT | SHUTTING;
            self.say_end(watcher, index);
            if watcher.submit(Op::shutdown(source).token(token)).is_err() {
                return self.fail(watcher, index, Cause::Rejected);
            }
        }
        if flags & FINISHING != 0 {
            self.read_on(watcher, index);
        } else if stage == Stage::Closing && (waits_for_files || self.waits_for_jobs(index)) {
            self.sweep_later(watcher, index);
        } else if stage == Stage::Closing {
            self.set_asked_options(watcher);
            self.table.place_mut(index).flags |= FINISHING;
            self.begin_close(watcher, index);
        } else if stage == Stage::Leaving {
            self.try_detach(watcher, index);
        } else {
            self.go_on(watcher, index);
        }
    }

    /// Detaches a connection if its output is sent and its read has ended. Otherwise cancels the
    /// read, or waits for the output.
    fn try_detach<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        let (source, flags) = (place.source, place.flags);
        if watcher.queued_bytes(source).unwrap_or(0) > 0
            || self.files_of(index).is_some()
            || self.waits_for_jobs(index)
        {
            // The clock of the end runs from the first try on.
            return self.sweep_later(watcher, index);
        }
        if flags & READING != 0 || self.table.is_draining(index) {
            watcher.cancel_all(source);
            return;
        }
        // They go along with the descriptor.
        self.set_asked_options(watcher);
        match watcher.detach(source) {
            Ok(handle) => {
                let place = self.table.place_mut(index);
                place.source = Source::NONE;
                place.advance(Step::End);
                self.unsweep(index);
                self.unlimit(index);
                self.clocks.deadlines.forget(self.table.id(index));
                let mut undelivered = Vec::new();
                if let Some(active) = self.table.active_of(index) {
                    if let Some(stream) = active.stream.take() {
                        let input = stream.take_input();
                        undelivered.extend((!input.is_empty()).then_some(input));
                        stream.end(Cause::Closed);
                    }
                    undelivered.extend(active.held.drain(..));
                    (active.held_bytes, active.queued, active.by_program) = (0, 0, 0);
                }
                self.recharge(index);
                self.keep_session(index);
                self.let_go(index);
                let eof =
                    flags & ENDED != 0 || undelivered.last().is_some_and(|last| last.is_empty());
                undelivered.retain(|data| !data.is_empty());
                self.counters.detached += 1;
                let id = self.table.id(index);
                self.log(LogEvent::Detached { id });
                self.end_jobs(id);
                self.told.pending.push_back(Pending::Detached(Box::new((
                    id,
                    handle,
                    undelivered,
                    eof,
                ))));
            }
            // An operation, or the half-close, is still in flight: its completion brings us here
            // again.
            Err(Reason::Busy) => {
                self.sweep_later(watcher, index);
                if flags & SHUTTING == 0 {
                    watcher.cancel_all(source);
                }
            }
            Err(_) => self.fail(watcher, index, Cause::Rejected),
        }
    }
}

impl<S> Engine<S> {
    /// A read of a connection has failed.
    pub(super) fn read_failed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        kind: ErrorKind,
    ) {
        let place = self.table.place(index);
        let flags = place.flags;
        match kind {
            // The engine, or the program, has cancelled it: `flush` decides what follows.
            ErrorKind::Cancelled => self.dirty(index),
            // It was idle in a pause, or at its end, which has a clock of its own. A detach may
            // wait for it.
            ErrorKind::Deadline
                if flags & PAUSED != 0 || place.stage.clock() != StageClock::OfOpen =>
            {
                self.dirty(index);
            }
            // The close's own completion follows.
            ErrorKind::Aborted | ErrorKind::Closed if flags & FINISHING != 0 => {}
            ErrorKind::Deadline => self.idle_time_passed(watcher, index),
            // Its writes may have failed, too, and their completions follow.
            ErrorKind::Os(errno) => self.fail_later(index, Cause::Os(errno)),
            // The watcher has closed the source: a write was too much.
            ErrorKind::Overflow => self.fail(watcher, index, Cause::Overflow),
            _ => self.fail(watcher, index, Cause::Rejected),
        }
    }

    /// Forgets a close that was asked for: what comes next, a failed file or a shed, is the cause.
    pub(crate) fn forget_request(&mut self, index: u32) {
        if let Some(active) = self.table.active_of(index)
            && matches!(active.cause, Some(Cause::Closed | Cause::Eof))
        {
            active.cause = None;
        }
    }

    /// A write of a connection has failed.
    pub(super) fn write_failed(&mut self, index: u32, kind: ErrorKind) {
        let place = self.table.place(index);
        match kind {
            ErrorKind::Os(errno) => self.fail_later(index, Cause::Os(errno)),
            // A write before it has failed, and said why; or the close's completion follows.
            ErrorKind::Torn => {}
            _ if place.stage >= Stage::Closing && place.flags & CLOSE_SENT != 0 => {}
            ErrorKind::Overflow => self.fail_later(index, Cause::Overflow),
            _ => self.fail_later(index, Cause::Rejected),
        }
    }

    /// Ends a connection in the next `flush`. Completions of its writes come before that, and tell
    /// how much was not sent.
    pub(super) fn fail_later(&mut self, index: u32, cause: Cause) {
        self.abort_as(self.table.id(index), cause);
    }

    /// Ends the engine: closes its listeners and its datagram sockets, ends every connection at
    /// once with [`Cause::Shutdown`], drops jobs that have not begun, and refuses what other
    /// threads ask for. The last events follow: take them out with
    /// [`next_event`](Engine::next_event), until it returns `None` and
    /// [`is_empty`](Engine::is_empty). Then nothing of the engine is left on the watcher, except
    /// completions that come without an effect, and farewells of refused connections, which end in
    /// time. A drop of the engine alone cannot do this: the sources are the watcher's.
    ///
    /// To send the output of the connections first, [`close`](Engine::close) them, and wait until
    /// the engine is empty. The `unsent` of this call's events counts all bytes of the writes that
    /// the system has not answered for.
    ///
    /// ```
    /// use windlass::{Watcher, net::ListenOptions};
    /// use windlass_serve::{Config, Engine};
    ///
    /// let mut watcher = Watcher::new()?;
    /// let mut engine = Engine::<()>::new(Config::new());
    /// engine.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
    /// engine.end(&mut watcher);
    /// while engine.next_event(&mut watcher).is_some() {}
    /// assert_eq!(watcher.counters().sources, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn end<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.refuse_all();
        self.entrance.paths.clear();
        for source in &mut self.entrance.listeners {
            watcher.abort(std::mem::replace(source, Source::NONE));
        }
        self.told.queue.clear();
        self.work.wanted.clear();
        let ids: Vec<Id> = self.ids().collect();
        for id in ids {
            let place = self.table.place(id.index());
            // A descriptor that is the program's already goes to it.
            if place.stage != Stage::Ended {
                self.note_cause(id.index(), Cause::Shutdown);
                match self.table.session(id) {
                    Some(at) => self.end_session(watcher, at, Cause::Shutdown),
                    None => self.fail_at_once(watcher, id.index(), Cause::Shutdown),
                }
            }
        }
        for index in self.entrance.transports.indices() {
            self.fail_at_once(watcher, index, Cause::Shutdown);
        }
        self.give_up_ops(watcher);
        self.close_inbox_unless(|_| false);
        for request in std::mem::take(&mut self.work.wanted) {
            if let Request::Cancel(ticket) = request {
                watcher.cancel(ticket);
            }
        }
        let timers = [
            self.clocks.tick.take(),
            self.clocks.sweep_timer.take(),
            self.clocks.deadlines.take_timer(),
            self.clocks.allowances.timer.take().map(|(timer, _)| timer),
            self.udp.sessions.timer.take(),
        ];
        for timer in timers.into_iter().flatten() {
            watcher.cancel(timer);
        }
    }

    /// Queues the last event of a connection, which has no source any more.
    pub(crate) fn end_connection<D: Driver>(
        &mut self,
        watcher: &Watcher<D>,
        index: u32,
        cause: Cause,
        queued: usize,
    ) {
        let id = self.table.id(index);
        self.thaw(index);
        self.unsweep(index);
        self.unlimit(index);
        self.clocks.deadlines.forget(id);
        let (mut cause, mut unsent) = (cause, queued);
        let phase = self.phase(index);
        if let Some(active) = self.table.active_of(index) {
            cause = active.cause.unwrap_or(cause);
            unsent += active.unsent + active.corked;
            (active.queued, active.corked, active.held_bytes) = (0, 0, 0);
            active.by_program = 0;
            if let Some(files) = active.files.take() {
                // It never had a source that could send them.
                unsent += files.outside();
            }
            if let Some(stream) = active.stream.take() {
                stream.end(cause);
            }
        }
        self.recharge(index);
        let failure = self.let_go(index);
        let age = self.table.age(index, watcher.now());
        let Some(state) = self.table.remove(index) else {
            return self.end_handshake(index, cause);
        };
        self.counters.closed(cause);
        self.count_load(-1);
        if self.config.log.is_some() {
            self.log(LogEvent::Closed { id, cause, unsent, phase, age });
        }
        self.end_jobs(id);
        self.told.gone.push_back(Gone { id, cause, unsent, phase, age, state, failure });
        self.told.pending.push_back(Pending::Gone);
    }

    /// What a connection was doing.
    pub(crate) fn phase(&mut self, index: u32) -> Phase {
        let place = self.table.place(index);
        let (mut stage, flags) = (place.stage, place.flags);
        if let Some(failing) = self.table.active_of(index).and_then(|a| a.failing.as_ref()) {
            return failing.phase;
        }
        if flags & CONNECTING != 0 {
            return Phase::Connecting;
        }
        if stage == Stage::Lingering && flags & CLOSE_SENT != 0 {
            stage = Stage::Closing; // the peer has closed in time
        }
        match self.table.active_of(index).and_then(|active| active.cause) {
            // As it was when the shutdown began.
            Some(Cause::Shutdown) if stage != Stage::Lingering && stage != Stage::Leaving => {
                Phase::Open
            }
            _ => stage.phase(),
        }
    }

    /// Releases the active part of a connection that ends or leaves, and its session. Returns why
    /// TLS has failed, if it has.
    pub(super) fn let_go(&mut self, index: u32) -> Option<Box<Failure>> {
        self.hold_nothing(index);
        self.table.release(index);
        let is_coded = self.table.place(index).flags & CODED != 0;
        if !is_coded {
            return None;
        }
        self.forget_flight(index);
        let was_agreeing = self.entrance.transports.is_agreeing(index);
        self.counters.handshakes.failed += u64::from(was_agreeing);
        self.entrance.transports.drop_session(index)
    }

    /// Nothing in memory belongs any more to a connection that ends or leaves.
    pub(crate) fn hold_nothing(&mut self, index: u32) {
        let holders = self.table.hold_nothing(index);
        self.change_holders(holders);
        let place = self.table.place_mut(index);
        if place.flags & THROTTLED != 0 {
            place.flags &= !THROTTLED;
            self.memory.stopped -= 1;
            if self.memory.stopped == 0 {
                let (used, limit) = (self.memory.budget.used(), self.memory.budget.limit());
                self.log(LogEvent::Unthrottled { used, limit });
            }
        }
    }

    /// Starts the clock of an end anew: the time before was not spent on the end.
    fn begin_end_clock(&mut self, index: u32) {
        self.thaw(index);
        if let Some(active) = self.table.active_of(index) {
            (active.since, active.idle) = (None, IdleClock::Elsewhere);
        }
    }
}
