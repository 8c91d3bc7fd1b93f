//! The end of a peer, while its connection is not read.
//!
//! # Why
//! A paused connection learns of its peer's end with the read that follows the resume. A program
//! that computes a long answer wants to learn earlier that its peer has gone. A read would take
//! bytes that the program does not want yet. So the engine polls the source for the end alone, and
//! only for a connection that asks, and only while no read of it is in flight. `go_on` looks at
//! this, which has a connection only if it is not read: so a message costs no instruction more.
//!
//! One poll is in flight at a time: after a cancel, its completion comes before the next one.

use windlass::driver::Driver;
use windlass::{Completion, Done, ErrorKind, Op, Ready, Refusal as Reason, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::engine::requests::Request;
use crate::parts::table::{
    ABORT, Active, CONNECTING, DUE, ENDED, PAUSED, POLLED, Place, READING, STOPPED, TOLD, WATCHED,
};
use crate::stage::StageClock;
use crate::words::cause::Cause;
use crate::words::event::Event;
use crate::words::id::Id;

/// Whether a connection is open, and its peer's end is not known, and the program or the engine
/// has stopped its reads.
fn may_end_unseen<S>(place: &Place<S>) -> bool {
    place.stage.clock() == StageClock::OfOpen
        && place.flags & (CONNECTING | ABORT | ENDED) == 0
        && place.flags & STOPPED != 0
}

impl<S> Engine<S> {
    /// Watches for the end of a connection's peer while the connection is not read: in a
    /// [pause](Engine::pause), or because it has too much output or memory. When the peer has shut
    /// down its output, [`Event::PeerEnded`] follows, once, although data before that is not
    /// delivered. With `false`, or where the connection is read again, it does not. False for a
    /// stale id, for a session, and for a connection that has not opened or closes.
    ///
    /// A reset ends the connection at once, with [`Cause::Os`], as it does while the connection is
    /// read: its data that was not delivered is dropped. A reset behind the end of the output is
    /// not noticed; the next write is.
    ///
    /// The event changes nothing: the connection stays paused and open, and takes output. A peer
    /// that has shut down its output may still read the answer, and many clients do. After the
    /// resume come the data and then [`Event::Eof`], or the close.
    ///
    /// The end is behind all data of the peer. If the system has no room for all of them, it has
    /// not taken the end, and does not tell. With TLS the event tells the end of the connection
    /// below, and `close_notify` can stand in front of it, unread.
    ///
    /// A connection that moves to a loop leaves this behind. One that asks has the memory that
    /// another one has only while output waits. One that does not ask costs nothing.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// /// Answers with a long calculation, unless the client has gone.
    /// struct Server;
    /// impl Handler for Server {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         c.pause();
    ///         c.watch_peer(true);
    ///         let answer = |c: &mut Conn<'_, ()>, sum: u64| {
    ///             c.watch_peer(false);
    ///             c.write(format!("{sum}\n"));
    ///             c.resume();
    ///             Action::None
    ///         };
    ///         let job = move || data.iter().map(|&byte| u64::from(byte)).sum();
    ///         if c.execute(job, answer).is_ok() { Action::None } else { Action::Close }
    ///     }
    ///     fn peer_ended(&mut self, c: &mut Conn<'_, ()>) -> Action {
    ///         c.abort(); // this one's clients never shut down their output before the answer
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// # Platforms
    /// As for [`Op::poll`] with [`Ready::READ_CLOSED`]: outside Linux, the poll driver tells of
    /// resets only.
    pub fn watch_peer(&mut self, id: Id, on: bool) -> bool {
        if !on {
            let Some(_) = self.table.unless_session(id) else { return false };
            if let Some(active) = self.table.active_of(id.index()) {
                active.keeps &= !(WATCHED | TOLD);
                self.dirty(id.index());
            }
            return true;
        }
        if !self.takes_limits(id) {
            return false;
        }
        self.activate(id.index()).keeps |= WATCHED;
        self.dirty(id.index());
        true
    }

    /// Whether the end of a peer is watched while the connection is not read.
    #[inline]
    pub(crate) fn watches_peer(&mut self, index: u32) -> bool {
        let watches = |active: &mut Active| active.keeps & (WATCHED | POLLED) != 0;
        self.table.active_of(index).is_some_and(watches)
    }

    /// Begins to poll for the end of a peer, or no longer does, as the connection is read or not.
    #[inline]
    pub(crate) fn look_at_peer<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if self.watches_peer(index) {
            self.watch_or_not(watcher, index);
        }
    }

    #[cold]
    fn watch_or_not<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let (id, token) = (self.table.id(index), self.token(index));
        let place = self.table.place(index);
        let (source, flags) = (place.source, place.flags);
        let rests = may_end_unseen(place) && flags & READING == 0;
        let Some(active) = self.table.active_of(index) else { return };
        let waits = rests && active.keeps & (WATCHED | TOLD) == WATCHED;
        // The read in front of the pause has met the end.
        let has_end = active.held.back().is_some_and(|data| data.is_empty());
        let wants = waits && !has_end;
        if waits && has_end && flags & PAUSED != 0 && active.keeps & DUE == 0 {
            active.keeps |= DUE;
            self.told.pending.push_back(Pending::PeerEnded(id));
        }
        let Some(active) = self.table.active_of(index) else { return };
        let polls = active.keeps & POLLED != 0;
        if let (true, false, Some(poll)) = (polls, wants, active.peer_poll) {
            watcher.cancel(poll);
        }
        if polls || !wants {
            return;
        }
        match watcher.submit(Op::poll(source, Ready::READ_CLOSED).token(token)) {
            Ok(poll) => {
                active.peer_poll = Some(poll);
                active.keeps |= POLLED;
            }
            Err(refused) if matches!(refused.reason, Reason::Full { .. }) => {
                self.request(Request::Watch(id));
            }
            // Other code has ended the source: its read reports that.
            Err(_) => active.keeps &= !WATCHED,
        }
    }

    /// Whether to tell the program of the end that the read in front of a pause has met.
    #[cold]
    pub(crate) fn is_to_tell_end(&mut self, id: Id) -> bool {
        let Some(place) = self.table.get(id) else { return false };
        let goes_on = may_end_unseen(place) && place.flags & PAUSED != 0;
        let Some(active) = self.table.active_of(id.index()) else { return false };
        // If not now, the next pause tells it, or a move that is called off.
        let is_told = goes_on && active.keeps & (WATCHED | TOLD) == WATCHED;
        active.keeps &= !DUE;
        active.keeps |= if is_told { TOLD } else { 0 };
        is_told
    }

    /// A poll for the end of a peer has ended.
    #[cold]
    pub(crate) fn peer_polled<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: &Completion,
    ) -> Option<Event<S>> {
        // A detach may wait for it, or the next poll.
        self.dirty(index);
        let place = self.table.place(index);
        let (source, goes_on) = (place.source, may_end_unseen(place));
        let active = self.table.active_of(index)?;
        let is_it = active.keeps & POLLED != 0 && active.peer_poll == Some(completion.ticket());
        if !is_it {
            return None;
        }
        active.keeps &= !POLLED;
        if !goes_on || active.keeps & WATCHED == 0 {
            return None; // A read tells it, or the next poll.
        }
        match completion.result {
            Ok(Done::Ready(ready)) => {
                if ready.contains(Ready::ERROR)
                    && let Ok(Some(errno)) = watcher.take_error(source)
                {
                    self.fail_later(index, Cause::Os(errno));
                    return None;
                }
                if ready.intersects(Ready::READ_CLOSED | Ready::HANGUP) {
                    active.keeps |= TOLD;
                    return Some(Event::PeerEnded { id: self.table.id(index) });
                }
                // It has an error that is none, and would be told again without end.
                active.keeps &= !WATCHED;
            }
            Err(ref error) if error.kind() == ErrorKind::Cancelled => {}
            _ => active.keeps &= !WATCHED,
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass::net::ListenOptions;
    use windlass::sim::Sim;
    use windlass::{Completions, Source};

    use super::*;
    use crate::words::config::Config;
    use crate::words::limits::Limits;

    const SECOND: Duration = Duration::from_secs(1);

    /// Turns until an event comes that is no data.
    fn next(watcher: &mut Watcher, engine: &mut Engine<()>) -> Event<()> {
        let start = watcher.now();
        loop {
            engine.flush(watcher);
            let mut done = Completions::new();
            watcher.wait_timeout(&mut done, SECOND / 10).unwrap();
            assert!(watcher.now() - start < 100 * SECOND, "nothing comes");
            for c in done.drain(..) {
                let _ = engine.complete(watcher, c);
            }
            while let Some(event) = engine.next_event(watcher) {
                if !matches!(event, Event::Data { .. }) {
                    return event;
                }
            }
        }
    }

    /// A paused connection of a thread, whose peer is polled, and its client.
    fn polled() -> (Watcher, Engine<()>, Source, Id) {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let limits = Limits::new().close(SECOND).write_stall(None).idle(None);
        let mut engine = Engine::<()>::new(Config::new().limits(limits).close_on_eof(false));
        engine.set_thread();
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
        let address = watcher.local_address(engine.listeners()[0]).unwrap();
        let (client, _) = watcher.connect([address], Default::default()).unwrap();
        let Event::Opened { id, .. } = next(&mut watcher, &mut engine) else { panic!() };
        assert!(engine.pause(id) && engine.watch_peer(id, true));
        assert!(engine.let_move(id, |state| Box::new(state)));
        watcher.submit(Op::write(client, "held")).unwrap();
        engine.tick_after(SECOND);
        assert!(matches!(next(&mut watcher, &mut engine), Event::Tick));
        engine.flush(&mut watcher);
        assert_eq!(engine.table.place(id.index()).flags & READING, 0);
        assert!(engine.table.active_of(id.index()).is_some_and(|one| one.keeps & POLLED != 0));
        (watcher, engine, client, id)
    }

    #[test]
    fn a_move_takes_the_poll_back() {
        let (mut watcher, mut engine, client, id) = polled();
        assert!(engine.begin_move(id));
        let start = watcher.now();
        let Event::Detached { undelivered, eof, handle, .. } = next(&mut watcher, &mut engine)
        else {
            panic!()
        };
        assert!(watcher.now() - start < SECOND / 2 && !eof);
        assert_eq!(undelivered.len(), 1);
        watcher.submit(Op::shutdown(client)).unwrap();
        let source = watcher.attach(handle).unwrap();
        let read = watcher.submit(Op::read(source)).unwrap();
        let mut done = Completions::new();
        while !done.iter().any(|c: &Completion| c.ticket() == read) {
            watcher.wait(&mut done).unwrap();
        }
    }

    #[test]
    fn a_move_that_is_called_off_is_polled_again() {
        for ends_meanwhile in [false, true] {
            let (mut watcher, mut engine, client, id) = polled();
            engine.write(id, vec![7; 1 << 20]).unwrap();
            assert!(engine.begin_move(id));
            engine.flush(&mut watcher);
            if ends_meanwhile {
                watcher.submit(Op::shutdown(client)).unwrap();
            }
            engine.tick_after(5 * SECOND);
            assert!(engine.is_moving(id));
            let mut event = next(&mut watcher, &mut engine);
            assert!(!engine.is_moving(id), "the move took too long");
            if !ends_meanwhile {
                assert!(matches!(event, Event::Tick));
                watcher.submit(Op::shutdown(client)).unwrap();
                event = next(&mut watcher, &mut engine);
            }
            assert!(matches!(event, Event::PeerEnded { id: of } if of == id), "{event:?}");
        }
    }
}
