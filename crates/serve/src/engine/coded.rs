//! The input and the output of connections whose bytes pass a session of TLS.

use std::io::IoSlice;

use windlass::driver::Driver;
use windlass::{Buf, Op, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::log::LogEvent;
use crate::parts::cipher::SessionState;
use crate::parts::table::{CODED, ENDED, HELD};
use crate::words::cause::Cause;
use crate::words::event::Event;

impl<S: Default> Engine<S> {
    /// Takes input, or its end, for which an empty buffer stands.
    #[cold]
    pub(crate) fn decode(&mut self, index: u32, input: Buf) -> Option<Event<S>> {
        if self.table.place(index).flags & ENDED != 0 {
            // Behind `close_notify`. If the read has ended, the clock of the half-closed begins.
            self.dirty(index);
            return None;
        }
        let session = self.entrance.transports.session(index)?;
        if session.failure().is_some() {
            return None; // It was told.
        }
        if input.is_empty() {
            if session.end_of_input().is_err() {
                self.fail_later(index, Cause::Truncated);
            }
            return None;
        }
        let (plain, fed) = session.feed_buf(input);
        let has_ended = session.state() == SessionState::PeerClosed;
        if session.has_output() {
            self.dirty(index);
        }
        let mut event = None;
        for part in plain.into_parts().filter(|part| !part.is_empty()) {
            let part = self.out_of_lease(index, part);
            event = self.follows(index, event, part);
        }
        if let Err(error) = fed {
            self.session_failed(index, &error.to_string());
        } else if has_ended {
            event = self.follows(index, event, Buf::default());
        }
        event
    }

    /// Plain text, or its end, has arrived behind what `event` has.
    fn follows(&mut self, index: u32, event: Option<Event<S>>, data: Buf) -> Option<Event<S>> {
        if event.is_none() {
            return self.arrived(index, data);
        }
        // One event at a time: this is the next one.
        let place = self.table.place_mut(index);
        let is_first = place.flags & HELD == 0;
        place.flags |= HELD;
        let active = self.activate(index);
        active.held_bytes += data.len();
        active.held.push_back(data);
        self.recharge(index);
        if is_first {
            self.told.pending.push_back(Pending::Held(self.table.id(index)));
        }
        event
    }
}

impl<S> Engine<S> {
    /// The session has failed: the peer gets an alert, and then an end.
    fn session_failed(&mut self, index: u32, why: &str) {
        let id = self.table.id(index);
        self.log(LogEvent::TlsFailed { id: Some(id), peer: None, error: why });
        self.close_as(id, Cause::Tls);
        self.dirty(index);
    }

    /// Encrypts output of a connection, behind what its session has to say itself.
    #[cold]
    pub(crate) fn encode(&mut self, index: u32, data: Buf) -> Buf {
        let Some(session) = self.entrance.transports.session(index) else { return data };
        let mut out = Vec::new();
        for part in data.parts() {
            let mut rest = &**part;
            while !rest.is_empty() {
                match session.write(&[IoSlice::new(rest)], &mut out) {
                    Ok(taken) => rest = &rest[taken..],
                    Err(_) => {
                        // It has failed before, or its keys are used up.
                        let lost = data.len();
                        self.activate(index).unsent += lost;
                        self.close_as(self.table.id(index), Cause::Tls);
                        return out.into();
                    }
                }
            }
        }
        session.take_output(&mut out);
        out.into()
    }

    /// Whether the session of a connection has something to say.
    #[inline]
    pub(crate) fn has_to_say(&mut self, index: u32) -> bool {
        self.table.place(index).flags & CODED != 0
            && self.entrance.transports.session(index).is_some_and(|session| session.has_output())
    }

    /// What the peer gets before a limit ends its connection: `close_notify`, because it has all
    /// output. `None` without TLS, and where the peer must not take the end for an orderly one:
    /// behind an abort, a panic or a failure.
    pub(crate) fn last_words(&mut self, index: u32, cause: Cause) -> Option<Buf> {
        if self.table.place(index).flags & CODED == 0 {
            return None;
        }
        let cause = self.table.active_of(index).and_then(|active| active.cause).unwrap_or(cause);
        if !matches!(cause, Cause::Idle | Cause::TooSlow | Cause::ReadTimeout) {
            return None;
        }
        let session = self.entrance.transports.session(index)?;
        let mut out = Vec::new();
        session.close();
        session.take_output(&mut out);
        (!out.is_empty()).then(|| out.into())
    }

    /// Says `close_notify`, before the output of a connection is shut down.
    pub(crate) fn say_end<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        if place.flags & CODED == 0 {
            return;
        }
        let (source, token) = (place.source, self.token(index));
        let Some(session) = self.entrance.transports.session(index) else { return };
        let mut out = Vec::new();
        session.close();
        session.take_output(&mut out);
        if !out.is_empty() {
            // Refused only if the source has ended.
            let _ = watcher.submit(Op::write(source, out).token(token).quiet());
        }
    }
}
