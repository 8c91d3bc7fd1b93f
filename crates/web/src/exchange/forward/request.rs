//! The body of a request that is passed on as it comes.

use windlass_http1::Event;

use super::super::program::Program;
use super::super::read::Rest;
use super::super::receive::Bytes;
use super::super::{Exchange, Machine, Stage, Wire};
use crate::proxy::is_trailer_passed;

impl<K: 'static> Machine<K> {
    /// The body of a request begins to come, up to so many bytes.
    pub(in super::super) fn begin_passing(
        &mut self,
        wire: &mut Wire<'_, K>,
        exchange: &mut Exchange<K>,
        most: u64,
    ) {
        let _ = exchange.decoder.limit_body(most); // one with a length is within it
        let Stage::Forward(forwarding) = &mut exchange.stage else { return };
        forwarding.waits = self.hub.waits(forwarding.call);
        // A client that waits for the server's 100 does not come too slowly.
        if !exchange.is_awaited && !forwarding.waits {
            self.limit_body(wire);
        }
    }

    /// Passes on what has come of a body, as long as the link has room.
    pub(in super::super) fn pass_request<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        bytes: &Bytes,
        mut at: usize,
    ) -> Rest<K> {
        loop {
            let Stage::Forward(forwarding) = &mut exchange.stage else {
                return Rest::Waits(exchange, at);
            };
            if !forwarding.is_coming {
                return Rest::Waits(exchange, at);
            }
            if self.hub.is_full(wire.engine, forwarding.call) {
                forwarding.is_full = true;
                return Rest::Waits(exchange, at);
            }
            if std::mem::take(&mut forwarding.waits) && !exchange.is_awaited {
                self.limit_body(wire);
            }
            let step = match exchange.decoder.decode(&mut self.head, &bytes[at..]) {
                Ok(step) => step,
                Err(error) => {
                    self.refuse_passed(program, wire, exchange, error);
                    return Rest::Nothing;
                }
            };
            let start = at;
            at += step.consumed;
            if exchange.is_awaited && step.consumed > 0 {
                exchange.is_awaited = false;
                self.limit_body(wire);
            }
            match step.event {
                Event::Body(range) => {
                    let part = bytes.part(start + range.start..start + range.end);
                    forwarding.has_sent = true;
                    self.hub.send(wire.engine, forwarding.call, part);
                }
                Event::Trailers => exchange.keep_trailers(&self.head, &bytes[start..]),
                Event::End => {
                    forwarding.is_coming = false;
                    let mut trailers = std::mem::take(&mut exchange.trailers);
                    trailers.retain(|(name, _)| is_trailer_passed(name));
                    self.hub.end_request(wire.engine, forwarding.call, &trailers);
                    match forwarding.response {
                        Some(_) => _ = wire.engine.limit(wire.id, None, 0),
                        None => match forwarding.plan.upstream.settings().head_timeout {
                            Some(span) => _ = wire.engine.time_limit(wire.id, span),
                            None => self.limit_answer(wire),
                        },
                    }
                }
                _ => return Rest::Waits(exchange, at),
            }
        }
    }

    /// The link has room again.
    pub(super) fn go_on_passing<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(forwarding) = wire.forwarding() else { return };
        if !std::mem::take(&mut forwarding.is_full) {
            return;
        }
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let input = std::mem::take(&mut exchange.input);
        let has_ended = std::mem::take(&mut exchange.peer.has_ended);
        self.keep(program, wire, exchange, Bytes::Copied(input), 0);
        self.flush(wire);
        if has_ended {
            self.eof(program, wire);
        }
    }
}
