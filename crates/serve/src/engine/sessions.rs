//! UDP sessions: each peer of a datagram socket is a connection of its own.
//!
//! A session has a place in the table of connections, and so an id, a state, wakes and a charge
//! that other threads see. `Place::active` names its entry here. All sessions of an engine are in a
//! list, in the order of their last datagrams: the first one expires next.

use windlass::driver::Driver;
use windlass::{Address, Buf, ErrorKind, Op, Source, Watcher};

use crate::engine::events::Pending;
use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, SENDS, SESSIONS};
use crate::parts::datagrams::BOOKKEEPING;
use crate::parts::sessions::{Peer, Sending, UdpSession};
use crate::parts::table::{ABORT, CONNECTING, HELD, NIL, PAUSED, Place, READING, SESSION};
use crate::stage::Stage;
use crate::sys::EMSGSIZE;
use crate::words::cause::Cause;
use crate::words::event::{Event, Origin};
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

/// How many sessions expire in one turn.
const AT_ONCE: usize = 1024;

impl<S: Default> Engine<S> {
    /// A datagram has arrived at a socket that has sessions.
    pub(crate) fn heard<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: usize,
        from: Address,
        data: Buf,
    ) -> Option<Event<S>> {
        // Not an earlier time of this turn: no session expires before its time.
        let now = watcher.update_now();
        let peer = Peer::of(&from);
        let known = (listener, peer);
        if let Some(&at) = self.udp.sessions.by_peer.get(&known) {
            self.udp.sessions.touch(at, now);
            let session = self.udp.sessions.get(at);
            session.spare = Some(from);
            return self.hear(at, data);
        }
        if self.entrance.refuses || self.udp.sessions.len() >= self.config.limits.sessions {
            self.counters.refused_datagrams += 1;
            return None;
        }
        self.count_load(1);
        // It is the program's, and can panic.
        let origin = Origin { listener: Some(listener), peer: from.ip() };
        self.told.making = Some(origin);
        let state = S::default();
        self.told.making = None;
        // No read is ever missing: the socket receives for all its sessions.
        let Some(id) = self.table.insert(Source::NONE, READING, Some(state)) else {
            self.count_load(-1);
            self.counters.refused_datagrams += 1;
            return None;
        };
        let session = UdpSession::new(id.index(), Some(listener), known.1);
        let at = self.udp.sessions.insert(UdpSession { spare: Some(from), ..session });
        self.udp.sessions.touch(at, now);
        self.table.place_mut(id.index()).active = SESSION | at;
        self.table.begin(id.index(), now);
        self.counters.sessions += 1;
        self.log_opened(id, origin);
        self.told.pending.push_back(Pending::Heard(id, data));
        self.arm_expiry(watcher);
        Some(Event::Opened { id, origin })
    }
}

impl<S> Engine<S> {
    /// Delivers a datagram to its session, or holds it back.
    pub(crate) fn hear(&mut self, at: u32, data: Buf) -> Option<Event<S>> {
        let session = self.udp.sessions.get(at);
        let index = session.index;
        let place = self.table.place(index);
        let flags = place.flags;
        if place.is_over() {
            self.counters.dropped_datagrams += 1;
            return None;
        }
        if flags & (PAUSED | HELD) == 0 {
            return Some(Event::Data { id: self.table.id(index), data });
        }
        let bytes = (data.len() + BOOKKEEPING) as u32;
        if (session.held_bytes + bytes) as usize > self.config.limits.high
            || !self.memory.budget.try_charge(bytes, usize::MAX)
        {
            self.counters.dropped_datagrams += 1;
            return None;
        }
        session.held_bytes += bytes;
        session.held.push_back(data);
        self.udp.sessions.charged += bytes as usize;
        self.table.place_mut(index).flags |= HELD;
        None
    }

    /// The next datagram of a session that was held back.
    pub(crate) fn next_held_datagram(&mut self, id: Id, at: u32) -> Option<Event<S>> {
        let session = self.udp.sessions.get(at);
        let data = session.held.pop_front()?;
        let bytes = (data.len() + BOOKKEEPING) as u32;
        session.held_bytes -= bytes;
        if session.held.is_empty() {
            self.table.place_mut(id.index()).flags &= !HELD;
        } else {
            self.told.pending.push_front(Pending::Held(id));
        }
        self.udp.sessions.charged -= bytes as usize;
        self.memory.budget.change(bytes, 0);
        Some(Event::Data { id, data })
    }

    /// Writes a datagram to a session.
    pub(crate) fn write_datagram(&mut self, at: u32, data: Buf) -> Result<(), Refused<Buf>> {
        let (place, charged) = self.table.look(self.udp.sessions.get(at).index);
        let bytes = u32::try_from(data.len() + BOOKKEEPING).unwrap_or(u32::MAX);
        let reason = if place.takes_no_output() {
            Refusal::Stale
        } else if charged as usize + bytes as usize > self.config.limits.cap {
            Refusal::Cap
        } else if !self.memory.budget.try_charge(bytes, usize::MAX) {
            Refusal::Memory
        } else {
            self.queue_datagram(at, data, bytes);
            return Ok(());
        };
        Err(Refused { value: data, reason })
    }

    /// A datagram of another thread, which had to pass the limits before it was queued.
    pub(crate) fn queue_remote_datagram(&mut self, at: u32, data: Buf) {
        if self.table.place(self.udp.sessions.get(at).index).takes_no_output() {
            self.counters.stale_writes += 1;
            return;
        }
        let bytes = (data.len() + BOOKKEEPING) as u32;
        self.memory.budget.change(0, bytes);
        self.queue_datagram(at, data, bytes);
    }

    fn queue_datagram(&mut self, at: u32, data: Buf, bytes: u32) {
        let session = self.udp.sessions.get(at);
        let index = session.index;
        session.charged += bytes;
        session.pending += 1;
        self.udp.sessions.charged += bytes as usize;
        self.table.charge(index, 0, bytes);
        self.udp.sessions.outbox.push_back((self.table.id(index), data));
        self.work.requests = true;
    }

    /// How many bytes wait for a session.
    pub(crate) fn waiting_datagrams(&mut self, at: u32) -> usize {
        let session = self.udp.sessions.get(at);
        session.charged as usize - session.pending as usize * BOOKKEEPING
    }

    /// Sends the datagrams of sessions.
    pub(crate) fn send_outbox<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        // Those of clients that connect wait. They stay before the later ones of their clients.
        let mut waiting = Vec::new();
        self.send_ready(watcher, &mut waiting);
        for datagram in waiting.into_iter().rev() {
            self.udp.sessions.outbox.push_front(datagram);
        }
    }

    fn send_ready<D: Driver>(&mut self, watcher: &mut Watcher<D>, waiting: &mut Vec<(Id, Buf)>) {
        while let Some((id, data)) = self.udp.sessions.outbox.pop_front() {
            let len = data.len();
            let sending = Sending { id, charged: (len + BOOKKEEPING) as u32 };
            let place = self.table.get(id).filter(|place| place.flags & ABORT == 0);
            let Some(at) = place.and_then(Place::session) else {
                self.send_ended(sending, len, None);
                continue;
            };
            let place = self.table.place(id.index());
            let (own, flags) = (place.source, place.flags);
            let session = self.udp.sessions.get(at);
            if flags & CONNECTING != 0 {
                waiting.push((id, data));
                continue;
            }
            let source = session.listener.map_or(own, |number| self.entrance.listeners[number]);
            let to = session.spare.take().unwrap_or_else(|| session.peer.address());
            // A datagram is one buffer.
            let data = if data.parts().len() > 1 { Buf::from(data.into_vec()) } else { data };
            let slot = self.udp.sessions.vacant_sends.pop().unwrap_or_else(|| {
                self.udp.sessions.in_flight.push(sending);
                self.udp.sessions.in_flight.len() as u32 - 1
            });
            self.udp.sessions.in_flight[slot as usize] = sending;
            let send = Op::send_to(source, data, to).token(self.token(SENDS + slot));
            match watcher.submit(send.timeout(self.config.limits.close).deferred()) {
                Ok(_) => {}
                Err(refused) => {
                    self.udp.sessions.vacant_sends.push(slot);
                    if matches!(refused.reason, windlass::Refusal::Full { .. }) {
                        // It goes first in the next flush.
                        self.udp.sessions.outbox.push_front((id, refused.value.into_buf()));
                        self.work.requests = true;
                        return;
                    }
                    self.send_ended(sending, len, Some(ErrorKind::Aborted));
                }
            }
        }
    }

    /// The send of a session's datagram has completed.
    pub(crate) fn send_completed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        slot: u32,
        len: usize,
        failed: Option<ErrorKind>,
    ) {
        let sending = self.udp.sessions.in_flight[slot as usize];
        self.udp.sessions.vacant_sends.push(slot);
        self.send_ended(sending, len, failed);
        // The error may be the answer to an earlier datagram. Only a client has one peer.
        if let Some(ErrorKind::Os(errno)) = failed
            && errno != EMSGSIZE
            && let Some(at) = self.table.session(sending.id)
            && self.udp.sessions.get(at).listener.is_none()
        {
            self.end_session(watcher, at, Cause::Os(errno));
        }
    }

    /// Gives back the charge of a datagram that was sent, has failed, or is dropped with its
    /// session.
    fn send_ended(&mut self, sending: Sending, len: usize, failed: Option<ErrorKind>) {
        self.counters.datagram_errors += u64::from(failed.is_some());
        self.udp.sessions.charged -= sending.charged as usize;
        self.memory.budget.change(sending.charged, 0);
        let Some(place) = self.table.get(sending.id) else { return };
        let (flags, stage) = (place.flags, place.stage);
        let Some(at) = place.session() else { return };
        self.table.charge(sending.id.index(), sending.charged, 0);
        let session = self.udp.sessions.get(at);
        session.charged -= sending.charged;
        session.pending -= 1;
        if failed.is_some() || flags & ABORT != 0 {
            session.unsent += len;
        }
        if stage == Stage::Closing && session.pending == 0 {
            self.dirty(sending.id.index());
        }
    }

    /// Notes why a connection ends: the first cause counts.
    pub(crate) fn note_cause(&mut self, index: u32, cause: Cause) {
        match self.table.place(index).session() {
            Some(at) => self.udp.sessions.get(at).cause.get_or_insert(cause),
            None => self.activate(index).cause.get_or_insert(cause),
        };
    }

    /// Ends a session as the program has asked, after its datagrams are sent.
    pub(crate) fn carry_out_session<D: Driver>(&mut self, watcher: &mut Watcher<D>, at: u32) {
        let session = self.udp.sessions.get(at);
        if self.table.place(session.index).flags & ABORT != 0 {
            self.end_session(watcher, at, Cause::Aborted);
        } else if session.pending == 0 {
            self.end_session(watcher, at, Cause::Closed);
        }
    }

    /// Ends a session at once.
    pub(crate) fn end_session<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        at: u32,
        cause: Cause,
    ) {
        let unsent = self.waiting_datagrams(at);
        let session = self.udp.sessions.remove(at);
        let index = session.index;
        // Only a client has a source.
        watcher.abort(self.table.place(index).source);
        self.udp.sessions.charged -= session.held_bytes as usize;
        self.memory.budget.change(session.held_bytes, 0);
        // The charge to the budget goes when the sends have ended, or are dropped.
        self.work.requests |= session.pending > 0;
        self.table.charge(index, session.charged, 0);
        let cause = session.cause.unwrap_or(cause);
        let place = self.table.place_mut(index);
        place.active = NIL;
        if cause == Cause::Shutdown {
            place.set_stage(Stage::Open); // as it was when the shutdown began
        }
        self.end_connection(watcher, index, cause, unsent + session.unsent);
    }

    /// Ends the sessions of a bound socket, which closes.
    pub(crate) fn close_sessions(&mut self, listener: usize) {
        let all = self.udp.sessions.all.iter().flatten();
        let bound = all.filter(|session| session.listener == Some(listener));
        let indices: Vec<u32> = bound.map(|session| session.index).collect();
        for index in indices {
            self.close_as(self.table.id(index), Cause::Shutdown);
        }
    }

    /// Whether the id is that of a session that lives.
    pub(crate) fn is_session(&self, id: Id) -> bool {
        self.table.session(id).is_some()
    }

    /// Starts the timer of the session that expires next.
    pub(crate) fn arm_expiry<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let Some(idle) = self.config.limits.session_idle else { return };
        if self.udp.sessions.first != NIL
            && self.udp.sessions.timer.is_none()
            && let Some(heard) = self.udp.sessions.get(self.udp.sessions.first).heard
            && let Some(due) = heard.checked_add(idle)
        // else the clock does not reach it
        {
            self.submit_expiry(watcher, Op::timer_at(due));
        }
    }

    fn submit_expiry<D: Driver>(&mut self, watcher: &mut Watcher<D>, op: Op) {
        let submitted = watcher.submit(op.token(self.token(SESSIONS)));
        self.udp.sessions.timer = submitted.as_ref().ok().copied();
        if is_full(submitted) {
            self.request(Request::Expiry);
        }
    }

    /// Ends the sessions that have heard nothing for too long, at most `AT_ONCE` of them in a turn.
    pub(crate) fn expire<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.udp.sessions.timer = None;
        let Some(idle) = self.config.limits.session_idle else { return };
        let now = watcher.update_now();
        for _ in 0..AT_ONCE {
            let at = self.udp.sessions.first;
            if at == NIL {
                return;
            }
            let session = self.udp.sessions.get(at);
            let Some(heard) = session.heard else { return };
            let place = self.table.place(session.index);
            let Some(due) = heard.checked_add(idle) else { return };
            if due > now {
                // Not before a step has passed, so that sessions expire in groups.
                return self.submit_expiry(watcher, Op::timer_at(due.max(now + idle / 16)));
            }
            if place.flags & PAUSED != 0 || place.is_over() {
                self.udp.sessions.touch(at, now); // the program delays it, or it ends already
            } else {
                self.end_session(watcher, at, Cause::Idle);
            }
        }
        self.submit_expiry(watcher, Op::nop());
    }
}
