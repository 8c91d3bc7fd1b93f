//! Requests that are passed on, and fail or are given up.

use windlass_serve::{Cause, Engine};

use super::super::finish::Fate;
use super::super::program::{Answer, Program};
use super::super::{Exchange, Machine, Slot, Stage, Wire};
use super::{Begun, Forwarding, offer};
use crate::client::error::FetchError;
use crate::client::hub::Reached;
use crate::words::error::Error;
use crate::words::status::Status;

impl<K: 'static> Machine<K> {
    /// The response does not come, or not all of it.
    pub(super) fn call_failed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        error: FetchError,
        reached: Reached,
    ) {
        self.forget_begun(wire);
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let Stage::Forward(forwarding) = &mut exchange.stage else {
            if let Some(slot) = wire.slot() {
                slot.exchange = Some(exchange);
            }
            return;
        };
        if reached != Reached::KeptLink {
            forwarding.passage.fail(self.now);
        }
        if forwarding.response.is_none() && self.send_again(wire, &mut exchange, reached) {
            if let Some(slot) = wire.slot() {
                slot.exchange = Some(exchange);
            }
            return;
        }
        self.fail_passed(program, wire, exchange, error.into());
    }

    /// Sends a request again that its server has not seen, or not done.
    fn send_again(
        &mut self,
        wire: &mut Wire<'_, K>,
        exchange: &mut Exchange<K>,
        reached: Reached,
    ) -> bool {
        let Stage::Forward(forwarding) = &mut exchange.stage else { return false };
        let may = match reached {
            // A server without a bit could be tried for ever.
            Reached::Nothing => !forwarding.has_sent && forwarding.passage.bit() != 0,
            Reached::KeptLink => {
                let is_first = !std::mem::replace(&mut forwarding.has_tried_kept, true);
                // The other kept connections were closed with this one, most likely.
                self.hub.forget_idle(wire.engine, forwarding.passage.origin());
                is_first && !forwarding.has_sent && exchange.asked.method.is_idempotent()
            }
            Reached::Server => false,
        };
        if !may || !self.decode_again(&exchange.head) {
            return false;
        }
        if reached == Reached::Nothing {
            forwarding.tried |= forwarding.passage.bit();
        }
        let upgrade = match forwarding.upgrades {
            true => offer(&self.head, &exchange.head, &forwarding.plan),
            false => None,
        };
        let Forwarding { plan, body, is_coming, tried, .. } = forwarding;
        let parts = (body.as_ref(), &exchange.trailers[..], *is_coming, upgrade);
        let Ok((call, passage)) = self.send_request(wire, plan, &exchange.head, parts, *tried)
        else {
            return false;
        };
        (forwarding.call, forwarding.passage) = (call, passage);
        if forwarding.is_coming && self.hub.waits(call) {
            forwarding.waits = true;
            self.limit_answer(wire);
        }
        true
    }

    /// Ends a request whose response cannot be passed on: by an error, or by a reset if the client
    /// has a part of it.
    pub(super) fn fail_passed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        error: Error,
    ) {
        match self.let_go(wire, &mut exchange) {
            Some(begun) => self.break_response(program, wire, exchange, &begun),
            None => self.answer_late(program, wire, exchange, Answer::Respond(error.into())),
        }
        self.flush(wire);
    }

    /// Ends the call of a request. Returns what its client has of the response.
    fn let_go(&mut self, wire: &mut Wire<'_, K>, exchange: &mut Exchange<K>) -> Option<Begun> {
        let stage = std::mem::replace(&mut exchange.stage, Stage::Head);
        let Stage::Forward(forwarding) = stage else { return None };
        self.hub.cancel(wire.engine, forwarding.call);
        self.ends_waiting(wire, exchange.route);
        forwarding.response
    }

    /// Resets a connection whose client has a part of a response.
    fn break_response<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
        begun: &Begun,
    ) {
        let outcome = Fate {
            status: Some(begun.status),
            sent: begun.sent,
            cause: Some(Cause::Aborted),
            start: Some(exchange.start),
            decided: Some(begun.decided),
            error: None,
        };
        self.finish_passed(program, wire, &exchange, outcome);
        self.recycle(exchange);
        self.reset(wire);
    }

    /// The body of a request breaks a rule: its server does not get the end of it.
    pub(super) fn refuse_passed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
        error: windlass_http1::Error,
    ) {
        let status = Status::new(error.status()).unwrap_or(Status::BAD_REQUEST);
        let error = Error::new(status).text(error.to_string());
        self.give_passed_up(program, wire, exchange, error);
    }

    /// Gives a request up, and closes its connection: its client gets this error, or a reset if it
    /// has a part of the response.
    pub(in super::super) fn give_passed_up<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        error: Error,
    ) {
        match self.let_go(wire, &mut exchange) {
            Some(begun) => self.break_response(program, wire, exchange, &begun),
            None => {
                // Not a head: the route and the request are known.
                exchange.stage = Stage::Body(None);
                self.give_up(program, wire, Some(exchange), error);
            }
        }
        self.flush(wire);
    }

    /// A request has taken too long: its body, or the head of its response.
    pub(in super::super) fn passed_too_slow<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
    ) {
        let Stage::Forward(forwarding) = &exchange.stage else { return };
        let has_link = !self.hub.waits(forwarding.call);
        let is_slow = forwarding.is_coming && !exchange.is_awaited && !forwarding.waits;
        let error = if is_slow {
            Error::new(Status::REQUEST_TIMEOUT).text("the request came too slowly")
        } else {
            // A server that was not asked has not failed.
            if has_link {
                forwarding.passage.fail(self.now);
            }
            Status::GATEWAY_TIMEOUT.into()
        };
        self.give_passed_up(program, wire, exchange, error);
    }

    /// The client of a request has gone.
    pub(in super::super) fn end_forwarding(
        &mut self,
        engine: &mut Engine<Slot<K>>,
        forwarding: &Forwarding,
        outcome: &mut Fate<'_>,
    ) {
        self.hub.cancel(engine, forwarding.call);
        if let Some(begun) = &forwarding.response {
            outcome.status = Some(begun.status);
            outcome.sent = begun.sent;
            outcome.decided = Some(begun.decided);
        }
    }

    /// The head of a response was passed on: if its body does not come with it, it has a limit.
    pub(super) fn note_begun(&mut self, wire: &mut Wire<'_, K>) {
        if let Some(other) = self.begun.replace(wire.id) {
            self.limit_begun(&mut Wire { engine: wire.engine, id: other });
        }
    }

    pub(super) fn forget_begun(&mut self, wire: &Wire<'_, K>) {
        if self.begun == Some(wire.id) {
            self.begun = None;
        }
    }

    /// Limits the time of the response whose head was passed on last.
    pub(in super::super) fn limit_last_begun(&mut self, engine: &mut Engine<Slot<K>>) {
        if let Some(id) = self.begun.take() {
            self.limit_begun(&mut Wire { engine, id });
        }
    }

    fn limit_begun(&mut self, wire: &mut Wire<'_, K>) {
        let Some(forwarding) = wire.forwarding() else { return };
        let (call, span) = (forwarding.call, forwarding.plan.upstream.settings().idle_timeout);
        self.hub.limit_body(wire.engine, call, Some(span));
    }
}
