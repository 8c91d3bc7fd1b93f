//! The events of an engine, and how completions become events.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::driver::{Driver, OpCode, Visit};
use windlass::{Buf, Completion, Done, ErrorKind, Handle, Message, Source, Ticket, Watcher};

use crate::engine::{
    ALLOWANCE, DEADLINE, Engine, FLIGHTS, JOBS, LAST_JOBS, LISTENERS, OPS, REFUSED, SENDS,
    SESSIONS, SWEEP, TICK, WAKE, WORK,
};
use crate::inbox::Command;
use crate::parts::cipher::Failure;
use crate::parts::jobs::Outcome;
use crate::parts::moves::Moved;
use crate::parts::table::{
    CODED, CONNECTING, ENDED, FINISHING, HELD, LIMITED, MOST, PAUSED, READING, SHUT, SHUTTING,
    STOPPED, WOKEN,
};
use crate::parts::transport::Accepted;
use crate::stage::{Stage, Step};
use crate::words::cause::{Cause, Phase};
use crate::words::event::{Event, Origin};
use crate::words::id::Id;
use crate::words::op::Completed;

/// Events that do not come from completions.
pub(crate) enum Pending {
    /// The state and the end are in `gone`.
    Gone,
    /// The next piece of what was held back.
    Held(Id),
    Drained(Id),
    LimitReached(Id, Cause),
    /// The read in front of a pause has met the end of the input.
    PeerEnded(Id),
    ListenerAdded(Box<io::Result<usize>>),
    /// A part of a file with so many bytes was sent, which no operation tells.
    FileSent(Id, u64),
    Wake(Id),
    Opened(Id, Option<SocketAddr>),
    /// A connection that another loop has accepted, also one of another server.
    Adopt(Accepted),
    /// A connection for which there is no thread.
    TurnAway(Accepted),
    /// The first datagram of a session.
    Heard(Id, Buf),
    /// The transport has agreed with the peer, and this input was left over. Or it is input for the
    /// session of a connection that goes over to TLS.
    Agreed(Id, Buf),
    /// An upgrade is done.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))] // there is none
    Upgraded(Id),
    /// A connection that a thread hands over.
    Take(Box<Moved>),
    Detached(Box<(Id, Handle, Vec<Buf>, bool)>),
    /// A job has ended that was not at the watcher, by its place.
    Job(u32, Box<Outcome>),
    /// The watcher has refused an operation of the program.
    Refused(Box<Completed>),
    /// What another thread has sent, and what it has asked for behind that.
    Message(Message),
    Command(Command),
}

/// A connection that has ended, and whose last event was not delivered yet.
pub(crate) struct Gone<S> {
    pub(crate) id: Id,
    pub(crate) cause: Cause,
    pub(crate) unsent: usize,
    pub(crate) phase: Phase,
    pub(crate) age: Duration,
    pub(crate) state: S,
    /// Why TLS has failed, if it has.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))] // there is none
    pub(crate) failure: Option<Box<Failure>>,
}

impl<S: Default> Engine<S> {
    /// Takes a completion of the engine. Returns a completion that is not the engine's.
    ///
    /// The engine's operations have [tokens](windlass::Op::token) from 2^63 on. A program uses
    /// lower ones. (Tokens below 2^63 + 2^48, and above 2^64 - 2^48, are no engine's either.)
    #[inline]
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        let _ = watcher;
        if !self.owns(&completion) {
            return Some(completion);
        }
        self.told.queue.push_back(completion);
        None
    }

    /// Takes out the next event of the completions that [`complete`](Engine::complete) took. Call
    /// it until it returns `None`, then [`flush`](Engine::flush).
    #[inline(always)]
    pub fn next_event<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<Event<S>> {
        if self.has_events() { self.next_queued(watcher) } else { None }
    }

    /// Takes the next event out. If no event waits, makes one from the next completion in `batch`.
    /// This call replaces [`complete`](Engine::complete) and [`next_event`](Engine::next_event),
    /// and costs less. A completion that is not the engine's comes out as [`Event::Foreign`].
    /// [`Engine`] has an example.
    ///
    /// Call it until it returns `None`, then [`flush`](Engine::flush). If the batch is dropped
    /// before, by a `?` for example, the completions that are left stay in their
    /// [`Completions`](windlass::Completions), and come first in the next visit. A wait before that
    /// visit may block.
    #[inline(always)]
    pub fn next_event_in<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        batch: &mut Visit<'_>,
    ) -> Option<Event<S>> {
        loop {
            match self.next_in(batch)? {
                Ok((id, data)) => return Some(Event::Data { id, data }),
                Err(completion) => {
                    if let Some(event) = self.other_event(watcher, completion) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// What comes next: data of a connection, right from its read, or what `other_event` makes an
    /// event of. This is the one way of data that nothing is in the way of.
    #[inline(always)]
    pub(crate) fn next_in<'a>(
        &mut self,
        batch: &'a mut Visit<'_>,
    ) -> Option<Result<(Id, Buf), Option<&'a mut Completion>>> {
        if self.has_events() {
            return Some(Err(None));
        }
        let completion = batch.next()?;
        Some(self.take_data(completion).ok_or(Some(completion)))
    }

    /// Takes the data out of a completion, if nothing is in its way to the connection at a place.
    #[inline(always)]
    fn take_data(&mut self, completion: &mut Completion) -> Option<(Id, Buf)> {
        // Without the tag it is a place. Others' tokens are beyond the table, as those of no place.
        let index = usize::try_from(completion.token ^ self.told.tokens).ok()?;
        let leases = self.memory.leases.checked_sub(1)?;
        if !completion.has_more() {
            return None;
        }
        let id = self.table.reads(index, completion.source)?;
        let data = completion.take_read()?;
        self.memory.leases = leases;
        Some((id, data))
    }

    #[inline(always)]
    fn owns(&self, completion: &Completion) -> bool {
        (completion.token ^ self.told.tokens) >> 32 == 0
    }

    /// The next event that comes before those of a batch.
    #[inline(never)]
    fn next_queued<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<Event<S>> {
        loop {
            if let Some(event) = self.next_pending(watcher) {
                return Some(event);
            }
            let mut completion = self.told.queue.pop_front()?;
            if let Some((id, data)) = self.take_data(&mut completion) {
                return Some(Event::Data { id, data });
            }
            if let Some(event) = self.other_event(watcher, Some(&mut completion)) {
                return Some(event);
            }
        }
    }

    /// The event of a completion that has no data, or whose data cannot be delivered at once;
    /// without one, the next event that waits.
    #[inline(never)]
    pub(crate) fn other_event<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Option<&mut Completion>,
    ) -> Option<Event<S>> {
        let Some(completion) = completion else { return self.next_queued(watcher) };
        let empty = Completion::new(OpCode::Nop, Source::NONE, Ticket::NONE, 0, Ok(Done::Nop));
        let completion = std::mem::replace(completion, empty);
        if !self.owns(&completion) {
            return Some(Event::Foreign(completion));
        }
        let index = completion.token as u32;
        if index >= MOST {
            return self.take_special(watcher, index, completion);
        }
        let Some(place) = self.table.find(index, completion.source) else {
            return self.part_read(watcher, index, completion);
        };
        let flags = place.flags;
        match place.stage {
            Stage::Handshake if place.state.is_none() || flags & CONNECTING != 0 => {
                self.handshake_read(watcher, index, completion);
                return None;
            }
            Stage::Failing => return self.answered(watcher, index, completion),
            // A client in its handshake that the program has closed: its output waits for TLS.
            _ if flags & CONNECTING != 0 && completion.code() != OpCode::Connect => {
                self.handshake_read(watcher, index, completion);
                return None;
            }
            _ => {}
        }
        self.take_other(watcher, index, flags, completion)
    }

    fn take_other<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        flags: u16,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        let more = completion.has_more();
        match completion.code() {
            OpCode::Read => {
                if !more {
                    self.table.place_mut(index).flags &= !READING;
                } else {
                    let place = self.table.place(index);
                    let stops = place.flags & STOPPED != 0 || place.stage == Stage::Leaving;
                    if stops && place.flags & FINISHING == 0 && place.stage != Stage::Handshake {
                        // The read stops at the first data that arrives: a short pause costs
                        // nothing.
                        watcher.cancel(completion.ticket());
                    }
                }
                match completion.result {
                    Ok(Done::Read(data)) if flags & FINISHING != 0 => {
                        self.read_while_closing(watcher, index, data.is_empty());
                        None
                    }
                    Ok(Done::Read(data)) => {
                        if flags & LIMITED != 0 {
                            self.count_for_limit(index, data.len());
                        }
                        if flags & CODED != 0 {
                            return self.decode(watcher, index, data);
                        }
                        let data = self.out_of_lease(index, data);
                        self.arrived(index, data)
                    }
                    Err(error) => {
                        self.read_failed(watcher, index, error.kind());
                        None
                    }
                    _ => None,
                }
            }
            OpCode::Write => {
                // A quiet write makes a completion only if it fails.
                let left = self.left_of_write(index, &mut completion);
                self.activate(index).unsent += left;
                self.write_failed(index, completion.error_kind()?);
                None
            }
            OpCode::SendFile => self.part_sent(watcher, index, &completion),
            OpCode::WaitDrained => {
                if let Some(active) = self.table.active_of(index) {
                    (active.is_draining, active.drain) = (false, None);
                }
                self.dirty(index);
                // The engine may have cancelled this wait for one with another mark. Then the
                // output can be sent all the same.
                if matches!(completion.error_kind(), None | Some(ErrorKind::Cancelled)) {
                    self.drained(watcher, index);
                }
                None
            }
            OpCode::Shutdown if flags & FINISHING != 0 => {
                self.shut_while_closing(watcher, index, completion.error_kind());
                None
            }
            OpCode::Shutdown => {
                let failed = completion.error_kind();
                if let Some(ErrorKind::Os(errno)) = failed {
                    self.fail(watcher, index, Cause::Os(errno));
                } else if self.table.place(index).stage == Stage::Leaving {
                    if let Some(ErrorKind::Cancelled) = failed {
                        // The detach has cancelled the read, and this with it.
                        let place = self.table.place_mut(index);
                        place.flags = place.flags & !SHUTTING | SHUT;
                    }
                    self.dirty(index); // The detach waits for it.
                } else if flags & ENDED != 0 {
                    self.close_as(self.table.id(index), Cause::Eof);
                }
                None
            }
            OpCode::Close => {
                match completion.result {
                    Ok(_) => self.end_connection(watcher, index, Cause::Closed, 0),
                    // A write before it has failed, or other code has ended the source.
                    Err(_) => self.fail(watcher, index, Cause::Closed),
                }
                None
            }
            OpCode::Timer => {
                match self.table.place(index).stage {
                    _ if completion.result.is_err() => {}
                    Stage::Handshake => {
                        self.upgrade_timed_out(watcher, index, completion.ticket());
                    }
                    _ => self.lingered(watcher, index),
                }
                None
            }
            OpCode::Connect => self.connected(watcher, index, completion),
            OpCode::Poll => self.peer_polled(watcher, index, &completion),
            OpCode::RecvFrom => self.client_heard(watcher, index, completion),
            _ => None,
        }
    }

    fn take_special<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        match index {
            TICK => {
                // The timer of a replaced tick may complete all the same.
                if self.clocks.tick != Some(completion.ticket()) {
                    return None;
                }
                self.clocks.tick = None;
                completion.result.is_ok().then_some(Event::Tick)
            }
            SWEEP => {
                self.clocks.sweep_timer = None;
                self.sweep(watcher);
                None
            }
            SESSIONS => {
                // The next flush looks. What the program asks for in this turn comes before.
                self.udp.sessions.is_due = true;
                self.work.requests = true;
                None
            }
            ALLOWANCE => {
                self.allowances_timer_fired(completion.ticket());
                None
            }
            DEADLINE => {
                self.deadline_passed(completion.ticket());
                None
            }
            REFUSED => {
                self.refused_completed(watcher, &completion);
                None
            }
            WAKE => {
                self.look_into_inbox();
                None
            }
            OPS..SENDS => self.op_completed(watcher, index - OPS, completion),
            SENDS..JOBS => {
                let failed = completion.error_kind();
                self.send_completed(watcher, index - SENDS, completion.take_buf().len(), failed);
                None
            }
            FLIGHTS => {
                self.next_flights();
                None
            }
            LAST_JOBS => {
                self.give_up_last_jobs();
                self.give_up_ops(watcher);
                None
            }
            WORK.. if index < WORK + MOST => {
                self.flight_completed(watcher, index - WORK, completion);
                None
            }
            JOBS..LISTENERS => self.job_completed(index & !JOBS, completion.result),
            _ => self.accepted(watcher, (index - LISTENERS) as usize, completion),
        }
    }

    /// The next event that `flush`, the program or another thread has caused.
    fn next_pending<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<Event<S>> {
        while let Some(pending) = self.told.pending.pop_front() {
            match pending {
                Pending::Gone => {
                    let gone = self.told.gone.pop_front()?;
                    return Some(Event::Closed {
                        id: gone.id,
                        cause: gone.cause,
                        unsent: gone.unsent,
                        phase: gone.phase,
                        age: gone.age,
                        state: gone.state,
                        #[cfg(feature = "tls")]
                        tls_error: gone.failure,
                    });
                }
                Pending::Held(id) => {
                    if let Some(event) = self.next_held(id) {
                        return Some(event);
                    }
                }
                Pending::Drained(id) if self.delivers(id) => return Some(Event::Drained { id }),
                Pending::Wake(id) => {
                    let delivers = self.delivers(id);
                    let Some(place) = self.table.get_mut(id) else { continue };
                    let waits = place.flags & CONNECTING != 0 || place.stage == Stage::Leaving;
                    if waits || place.flags & WOKEN == 0 {
                        continue; // `opened`, or the end of a move, queues the wake again.
                    }
                    place.flags &= !WOKEN;
                    if delivers {
                        return Some(Event::Wake { id });
                    }
                }
                Pending::Drained(id) => self.owe(id, |owed| owed.drained = true),
                Pending::LimitReached(id, cause) if self.is_beyond_limit(id, cause) => {
                    return Some(Event::LimitReached { id, cause });
                }
                Pending::PeerEnded(id) if self.is_to_tell_end(id) => {
                    return Some(Event::PeerEnded { id });
                }
                Pending::ListenerAdded(added) => {
                    return Some(Event::ListenerAdded { added: *added });
                }
                Pending::FileSent(id, len) if self.table.lives(id) => {
                    return Some(Event::FileSent { id, len });
                }
                Pending::Opened(id, peer) if self.table.get(id).is_some() => {
                    let origin = Origin { listener: None, peer };
                    self.attached(watcher, id, origin);
                    return Some(Event::Opened { id, origin });
                }
                Pending::Adopt(accepted) => {
                    if let Some(event) = self.open(watcher, accepted) {
                        return Some(event);
                    }
                }
                // The server makes its callback.
                Pending::Take(moved) => self.outside.arrivals.push_back(moved),
                Pending::TurnAway(one) => self.turn_away(watcher, one, None),
                Pending::Heard(id, data) => {
                    if let Some(at) = self.table.session(id)
                        && let Some(event) = self.hear(at, data)
                    {
                        return Some(event);
                    }
                }
                #[cfg(feature = "tls")]
                Pending::Upgraded(id) if self.delivers(id) => return Some(Event::Upgraded { id }),
                Pending::PeerEnded(_) | Pending::FileSent(..) | Pending::LimitReached(..) => {}
                Pending::Opened(..) | Pending::Upgraded(_) => {}
                Pending::Agreed(id, rest) => {
                    if let Some(event) = self.agreed(watcher, id, rest) {
                        return Some(event);
                    }
                }
                Pending::Detached(parts) => {
                    let (id, handle, undelivered, eof) = *parts;
                    self.note_owed(id);
                    // The state stays in the table until here.
                    let state = self.table.remove(id.index())?;
                    self.count_load(-1);
                    return Some(Event::Detached { id, handle, undelivered, eof, state });
                }
                Pending::Job(slot, outcome) => {
                    if let Some(event) = self.job_ended(slot, *outcome) {
                        return Some(event);
                    }
                }
                Pending::Refused(completed) => return Some(Event::Completed(*completed)),
                Pending::Message(message) => {
                    self.told.posted -= 1;
                    return Some(Event::Message { message });
                }
                Pending::Command(command) => {
                    self.told.posted -= 1;
                    self.obey(command);
                }
            }
        }
        None
    }

    /// Whether the program still gets events of a connection.
    fn delivers(&self, id: Id) -> bool {
        self.table.get(id).is_some_and(|place| !place.is_to_end())
    }

    /// Copies data out of its lease, if swap buffers are scarce and the program gets it.
    pub(super) fn out_of_lease(&mut self, index: u32, data: Buf) -> Buf {
        let place = self.table.place(index);
        // What is held back is copied there.
        let is_held = place.flags & (HELD | PAUSED) != 0 || place.stage >= Stage::Leaving;
        if !data.is_lease() || is_held {
            return data;
        }
        if self.memory.leases > 0 {
            self.memory.leases -= 1;
            return data;
        }
        let budget = self.memory.budget.clone();
        self.keeps(index);
        let kept = self.activate(index).kept.get_or_insert_default();
        let data = kept.copy(&budget, &data);
        self.recount(index);
        data
    }

    /// Takes data, or the end of the input, that `take_data` has left.
    pub(super) fn arrived(&mut self, index: u32, data: Buf) -> Option<Event<S>> {
        if self.table.place(index).is_over() {
            return None;
        }
        self.dirty(index);
        let place = self.table.place_mut(index);
        let leaves = place.stage == Stage::Leaving;
        if place.flags & (PAUSED | HELD) != 0 || leaves {
            if place.flags & HELD != 0 && !leaves && self.stream_of(index).is_some() {
                return self.stream_input(index, data);
            }
            self.table.place_mut(index).flags |= HELD;
            // However long the program takes: other connections need the lease.
            let data = if data.is_lease() { Buf::from(data.into_vec()) } else { data };
            let active = self.activate(index);
            active.held_bytes += data.len();
            active.held.push_back(data);
            self.recharge(index);
            return None;
        }
        self.deliver(index, data)
    }

    /// Delivers data, or the end of the input.
    fn deliver(&mut self, index: u32, data: Buf) -> Option<Event<S>> {
        let id = self.table.id(index);
        if !data.is_empty() {
            return Some(Event::Data { id, data });
        }
        let place = self.table.place_mut(index);
        place.flags |= ENDED;
        place.advance(Step::SideEnded);
        if self.config.close_on_eof || place.flags & SHUTTING != 0 {
            self.close_as(id, Cause::Eof);
            return None;
        }
        Some(Event::Eof { id })
    }

    /// The next piece of what was held back.
    fn next_held(&mut self, id: Id) -> Option<Event<S>> {
        let place = self.table.get(id)?;
        if place.is_to_end() {
            return None;
        }
        if place.flags & PAUSED != 0 {
            return None;
        }
        let index = id.index();
        if let Some(at) = place.session() {
            return self.next_held_datagram(id, at);
        }
        let active = self.table.active_of(index)?;
        let data = active.held.pop_front()?;
        active.held_bytes -= data.len();
        if active.held.is_empty() {
            self.table.place_mut(index).flags &= !HELD;
            self.dirty(index);
        } else {
            self.told.pending.push_front(Pending::Held(id));
        }
        self.recharge(index);
        self.deliver(index, data)
    }
}
