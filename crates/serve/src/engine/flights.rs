//! The turns of handshakes: few of their costly steps in each turn of the loop.
//!
//! What other connections have to do in a turn comes first: their events, and then their output.
//! The answers to flights are the last part of the flush. If more flights wait, the next turn
//! follows at once, and begins with a look at all connections. So none of them waits for more than
//! [`Limits::handshakes_per_turn`](crate::Limits::handshakes_per_turn) answers.
//!
//! Invariant: while flights wait, either the next flush answers some, or a completion is on its way
//! that brings that flush about.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Completion, Done, Error, ErrorKind, Op, Watcher};

use crate::engine::requests::Request;
use crate::engine::{Engine, FLIGHTS, WORK};
use crate::inbox::Command;
use crate::log::RefusedBecause;
use crate::parts::cipher::Tls;
use crate::parts::transport::{Answered, Flight};
use crate::words::cause::Cause;
use crate::words::id::Id;

impl<S> Engine<S> {
    /// A flight of a handshake has come. It waits for its turn, unless too many wait already: then
    /// one that begins a handshake is refused, and one that goes on with it is not.
    pub(crate) fn queue_flight<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let (bytes, is_for_workers) = (handshake.bytes(), handshake.is_for_workers());
        if !handshake.has_answered()
            && self.entrance.flights.len() >= self.config.limits.handshakes_waiting
        {
            self.counters.handshakes.shed += 1;
            return self.refuse(watcher, index, RefusedBecause::Handshakes);
        }
        self.activate(index).held_bytes = bytes;
        self.recharge(index);
        self.entrance.flights.push(self.table.id(index), is_for_workers);
        self.work.requests = true;
    }

    /// A hello has come that the program answers: asks it.
    pub(crate) fn ask_about<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let (id, now) = (self.table.id(index), watcher.update_now());
        let source = self.table.place(index).source;
        let token = self.token(index);
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let bytes = handshake.bytes();
        if self.entrance.flights.len() >= self.config.limits.handshakes_waiting {
            self.counters.handshakes.shed += 1;
            return self.refuse(watcher, index, RefusedBecause::Handshakes);
        }
        let mut timer = None;
        if let Some(until) = handshake.until {
            // No read is in flight meanwhile, which would have the time as its deadline.
            let span = until.saturating_duration_since(now);
            match watcher.submit(Op::timer(span).owned_by(source).token(token)) {
                Ok(ticket) => timer = Some(ticket),
                Err(_) => return self.fail(watcher, index, Cause::Rejected),
            }
        }
        self.activate(index).held_bytes = bytes;
        self.recharge(index);
        let shared = self.share(watcher);
        // It comes back if the loop is over.
        let answer = move |tls| drop(shared.post(Command::Hello(id, tls)));
        self.entrance.flights.question_begins();
        // It is the program's code, and can panic: then the next flush ends this connection.
        self.told.asking = Some(id);
        if let Some(handshake) = self.entrance.transports.get_mut(index) {
            handshake.ask(timer, Box::new(answer));
        }
        self.told.asking = None;
    }

    /// The program has answered a hello: `None` refuses it.
    pub(crate) fn resolved(&mut self, id: Id, tls: Option<Tls>) {
        let index = id.index();
        if self.table.get(id).is_none() {
            return;
        }
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        if !handshake.is_asked() {
            return;
        }
        let is_for_workers = handshake.is_for_workers();
        if let Some(timer) = handshake.resolve(tls) {
            self.request(Request::Cancel(timer));
        }
        self.entrance.flights.question_ends();
        self.entrance.flights.push(id, is_for_workers);
        self.work.requests = true;
    }

    /// Refuses a connection that is in its handshake.
    pub(crate) fn refuse<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        because: RefusedBecause,
    ) {
        if let Some(handshake) = self.entrance.transports.remove(index) {
            self.did_not_open(handshake.origin, because);
        }
        self.fail(watcher, index, Cause::Rejected);
    }

    /// Answers the flights whose turn it is. This is the last part of a flush.
    pub(crate) fn answer_flights<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        while let Some(id) = self.entrance.flights.pop_for_workers() {
            if self.table.lives(id) && self.is_upgrading(id.index()) {
                self.give_upgrade_to_worker(watcher, id.index());
            } else if let Some(flight) = self.take_flight(watcher, id) {
                self.give_to_worker(watcher, id.index(), flight);
            }
        }
        if self.entrance.flights.is_announced {
            return; // This turn has had its answers.
        }
        let mut left = self.config.limits.handshakes_per_turn;
        while left > 0
            && let Some(id) = self.entrance.flights.pop()
        {
            if self.table.lives(id) && self.is_upgrading(id.index()) {
                left -= 1;
                self.answer_upgrade(id.index());
                self.send_answer(watcher, id.index());
            } else if let Some(flight) = self.take_flight(watcher, id) {
                left -= 1;
                self.take_answer(watcher, id.index(), flight.answer());
            }
        }
        if self.entrance.flights.has_more() {
            // A timer, because the watcher asks the system for events before one that is due. It
            // delivers a `nop` without that.
            let next = watcher.submit(Op::timer(Duration::ZERO).token(self.token(FLIGHTS)));
            self.entrance.flights.is_announced = next.is_ok();
            // A refusal means that completions wait already.
            self.work.requests |= next.is_err();
        }
    }

    /// The turn has come for which `answer_flights` has asked.
    pub(crate) fn next_flights(&mut self) {
        self.entrance.flights.is_announced = false;
        self.work.requests = true;
    }

    /// The flight of a connection, unless that has ended, or has waited too long.
    fn take_flight<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) -> Option<Flight> {
        let index = id.index();
        self.table.get(id)?;
        if self.has_left_handshake(index) {
            return None;
        }
        let now = watcher.update_now();
        let handshake = self.entrance.transports.get_mut(index)?;
        if handshake.until.is_some_and(|until| until <= now) {
            self.fail(watcher, index, Cause::ReadTimeout);
            return None;
        }
        handshake.hand_out()
    }

    fn take_answer<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, answer: Answered) {
        let Answered { session, agreement, out } = answer;
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        handshake.take_back(session);
        self.counters.handshakes.flights += 1;
        self.take_agreement(watcher, index, agreement, out);
    }

    fn give_to_worker<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, flight: Flight) {
        let token = self.token(WORK | index);
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let mut job = Op::run(move || flight.answer()).token(token);
        if let Some(until) = handshake.until {
            job = job.deadline(until);
        }
        match watcher.submit(job) {
            Ok(ticket) => {
                handshake.set_job(ticket);
                self.entrance.flights.work_begins();
            }
            // The watcher has no room, or no threads: the loop answers.
            Err(refused) => {
                let result = refused.value.into_parts().job.map(|job| job.run(None));
                self.worked(watcher, index, result.unwrap_or(Ok(Done::Nop)));
            }
        }
    }

    /// A worker is done with a flight.
    #[cold]
    pub(crate) fn flight_completed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: Completion,
    ) {
        self.entrance.flights.work_ends();
        self.work.requests = true; // The next one follows.
        let handshake = self.entrance.transports.get_mut(index);
        // Its connection may have ended meanwhile, and another one may have its place.
        if handshake.and_then(|one| one.job()) == Some(completion.ticket()) {
            return self.worked(watcher, index, completion.result);
        }
        let at_work = self.entrance.transports.upgrade(index).and_then(|upgrade| upgrade.at_work);
        if at_work.is_some_and(|(job, _)| job == completion.ticket()) {
            self.upgrade_worked(watcher, index, completion.result);
        }
    }

    fn worked<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        result: Result<Done, Error>,
    ) {
        if self.has_left_handshake(index) {
            return; // The next flush ends it.
        }
        match result {
            Ok(Done::Returned(value)) => {
                if let Ok(answer) = value.downcast::<Answered>() {
                    self.take_answer(watcher, index, answer);
                }
            }
            Err(error) => self.work_failed(watcher, index, &error),
            Ok(_) => self.fail(watcher, index, Cause::Rejected),
        }
    }

    /// A worker has not answered a flight.
    pub(crate) fn work_failed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        error: &Error,
    ) {
        let cause = match error.kind() {
            ErrorKind::Deadline => Cause::ReadTimeout,
            ErrorKind::Panicked => Cause::Panicked,
            _ => Cause::Rejected,
        };
        self.fail(watcher, index, cause);
    }

    /// A connection ends before its handshake: neither a worker nor the program need answer it.
    pub(crate) fn forget_flight(&mut self, index: u32) {
        let at_work = self.entrance.transports.upgrade(index).and_then(|one| one.at_work.take());
        if let Some((job, _)) = at_work {
            self.request(Request::Cancel(job));
        }
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let job = handshake.job();
        if handshake.is_asked() {
            self.entrance.flights.question_ends();
        }
        if let Some(ticket) = job {
            self.request(Request::Cancel(ticket));
        }
    }
}
