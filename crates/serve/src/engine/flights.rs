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
use windlass::{Op, Watcher};

use crate::engine::{Engine, FLIGHTS};
use crate::log::RefusedBecause;
use crate::words::cause::Cause;

impl<S> Engine<S> {
    /// A flight of a handshake has come. It waits for its turn, unless too many wait already: then
    /// one that begins a handshake is refused, and one that goes on with it is not.
    pub(crate) fn queue_flight<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let bytes = handshake.bytes();
        if !handshake.has_answered()
            && self.entrance.flights.len() >= self.config.limits.handshakes_waiting
        {
            self.counters.handshakes.shed += 1;
            return self.refuse(watcher, index, RefusedBecause::Handshakes);
        }
        self.activate(index).held_bytes = bytes;
        self.recharge(index);
        self.entrance.flights.push(self.table.id(index));
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
        if self.entrance.flights.is_announced {
            return; // This turn has had its answers.
        }
        let mut left = self.config.limits.handshakes_per_turn;
        while left > 0
            && let Some(id) = self.entrance.flights.pop()
        {
            if self.table.get(id).is_some() && !self.has_left_handshake(id.index()) {
                left -= 1;
                self.answer_flight(watcher, id.index());
            }
        }
        if self.entrance.flights.len() > 0 {
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

    fn answer_flight<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let now = watcher.update_now();
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        if handshake.until.is_some_and(|until| until <= now) {
            return self.fail(watcher, index, Cause::ReadTimeout);
        }
        self.counters.handshakes.flights += 1;
        let mut out = Vec::new();
        let agreement = handshake.answer(&mut out);
        self.take_agreement(watcher, index, agreement, out);
    }
}
