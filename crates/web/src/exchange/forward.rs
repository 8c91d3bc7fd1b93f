//! Requests that are passed on to another server, and its responses.

use std::time::Instant;

use windlass::Buf;
use windlass_http1::{BodyEncoder, EncodeError, Framing, RequestEncoder, ResponseEncoder};
use windlass_serve::{Cause, Engine, Id};

use super::finish::Fate;
use super::program::Program;
use super::respond::{Context, Next};
use super::{Exchange, Machine, Slot, Stage, Wire};
use crate::client::error::FetchError;
use crate::client::hub::{CallId, Requester, Step};
use crate::proxy::Upstream;
use crate::words::error::Error;
use crate::words::status::Status;

/// A request that is passed on.
pub(super) struct Forwarding {
    pub(super) call: CallId,
    /// The head of the response, once it has come.
    response: Option<(Status, Instant, BodyEncoder)>,
    sent: u64,
}

impl<K: 'static> Machine<K> {
    /// Passes a request on.
    #[cold]
    pub(super) fn forward<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (upstream, body): (&Upstream, &[u8]),
    ) -> Next<K> {
        if !self.admits(program, context.0) {
            return self.refuse_busy(program, wire, exchange, context);
        }
        let bytes = context.2.unwrap_or_default();
        let (head, authority) = (&self.head, upstream.authority());
        let caller = Requester::Stream(wire.id);
        let opened = self.hub.open(wire.engine, caller, upstream.origin(), u64::MAX, |out| {
            let (method, target) = (head.method(bytes), head.target(bytes));
            let mut request = RequestEncoder::new(out, method, target, authority)?;
            for (name, value) in head.fields(bytes) {
                if !head.is_hop_by_hop(bytes, name) {
                    end_to_end(request.field(name, value))?;
                }
            }
            let asked = request.asked();
            match body.len() {
                0 => Ok((asked, request.empty())),
                len => Ok((asked, request.length(len as u64)?)),
            }
        });
        let call = match opened {
            Ok(call) => call,
            Err(error) => {
                let response = Error::from(error).into();
                return self.respond(program, wire, exchange, context, response);
            }
        };
        self.hub.send(wire.engine, call, body.to_vec());
        self.hub.end_request(wire.engine, call, &[]);
        let forwarding = Forwarding { call, response: None, sent: 0 };
        self.wait_for(wire, exchange, context, Stage::Forward(Box::new(forwarding)))
    }

    /// Something has come of a call whose response is passed on.
    pub(super) fn pass_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        step: Step,
    ) {
        match step {
            Step::Head(Requester::Stream(id)) => self.pass_head(program, engine, id),
            Step::Body(Requester::Stream(id), part) => self.pass_body(engine, id, part),
            Step::End(Requester::Stream(id)) => self.pass_end(program, engine, id, None),
            Step::Failed(Requester::Stream(id), error, _) => {
                self.pass_end(program, engine, id, Some(error))
            }
            _ => {}
        }
    }

    fn pass_head<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        id: Id,
    ) {
        let mut wire = Wire { engine, id };
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let Stage::Forward(forwarding) = &mut exchange.stage else { return };
        let Some((head, bytes)) = self.hub.response() else { return };
        let status = Status::new(head.status()).unwrap_or(Status::BAD_GATEWAY);
        let encoded = (|| {
            let mut response = ResponseEncoder::new(&mut self.out, exchange.asked, head.status())?;
            for (name, value) in head.fields(bytes) {
                if !head.is_hop_by_hop(bytes, name) {
                    end_to_end(response.field(name, value))?;
                }
            }
            match head.framing() {
                Framing::Length(len) => response.length(len),
                Framing::Chunked | Framing::UntilClose => response.chunked(),
                Framing::Empty | Framing::Tunnel => match head.content_length() {
                    Some(len) => response.length(len),
                    None => response.empty(),
                },
            }
        })();
        match encoded {
            Ok(encoder) => forwarding.response = Some((status, self.now, encoder)),
            Err(_) => self.hub.cancel(wire.engine, forwarding.call),
        }
        if let Some(slot) = wire.slot() {
            slot.exchange = Some(exchange);
        }
        self.flush(&mut wire);
        let _ = program;
    }

    fn pass_body(&mut self, engine: &mut Engine<Slot<K>>, id: Id, part: Buf) {
        let mut wire = Wire { engine, id };
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let Stage::Forward(forwarding) = &mut exchange.stage else { return };
        let Some((_, _, encoder)) = &mut forwarding.response else { return };
        forwarding.sent += part.len() as u64;
        if encoder.data(&mut self.out, &part).is_ok() {
            self.flush(&mut wire);
        }
    }

    fn pass_end<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        id: Id,
        error: Option<FetchError>,
    ) {
        self.begin_callback(engine);
        let mut wire = Wire { engine, id };
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let stage = std::mem::replace(&mut exchange.stage, Stage::Head);
        let Stage::Forward(forwarding) = stage else { return };
        self.ends_waiting(&mut wire, exchange.route);
        let Some((status, decided, encoder)) = forwarding.response else {
            let error = error.map_or(Error::new(Status::BAD_GATEWAY), Error::from);
            let answer = super::program::Answer::Respond(error.into());
            return self.answer_late(program, &mut wire, exchange, answer);
        };
        let keeps_alive = encoder.keep_alive();
        let is_whole = error.is_none() && encoder.end(&mut self.out).is_ok();
        let outcome = Fate {
            status: Some(status),
            sent: forwarding.sent,
            cause: (!is_whole).then_some(Cause::Aborted),
            start: Some(exchange.start),
            decided: Some(decided),
            error: None,
        };
        let head = std::mem::take(&mut exchange.head);
        let has_head = program.is_watched() && !head.is_empty() && self.decode_again(&head);
        let (now, from) = (self.time(program, wire.engine), self.from(&wire));
        let context = (exchange.route, has_head.then_some(&head[..]));
        self.finish(program, from, context, now, outcome);
        if is_whole && keeps_alive && !self.is_draining {
            let (input, has_ended) = (std::mem::take(&mut exchange.input), exchange.peer.has_ended);
            let next = self.skip(&mut wire, exchange);
            return self.behind(program, &mut wire, next, input, has_ended);
        }
        self.recycle(exchange);
        self.flush(&mut wire);
        match is_whole {
            true => _ = wire.engine.close(id),
            false => self.reset(&mut wire),
        }
    }
}

/// Leaves fields out that the encoder writes itself.
fn end_to_end(encoded: Result<(), EncodeError>) -> Result<(), EncodeError> {
    match encoded {
        Err(EncodeError::Framing) => Ok(()),
        other => other,
    }
}
