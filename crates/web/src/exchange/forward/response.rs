//! The response to a request that was passed on, to its client.

use windlass::Buf;
use windlass_http1::{
    Asked, BodyEncoder, EncodeError, FixedField, Framing, Method, ResponseEncoder, ResponseHead,
    Version,
};

use super::super::finish::Fate;
use super::super::program::Program;
use super::super::stream::ends_with_connection;
use super::super::{Exchange, Machine, Stage, Wire, arrived};
use super::Begun;
use crate::message::head::Head;
use crate::message::source::LARGE;
use crate::proxy::{ResponseFields, is_end_to_end};
use crate::words::error::Error;
use crate::words::status::Status;

impl<K: 'static> Machine<K> {
    /// An interim response has come.
    pub(super) fn pass_interim(&mut self, wire: &mut Wire<'_, K>) {
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let Some((head, bytes)) = self.hub.response() else { return };
        if !matches!(exchange.stage, Stage::Forward(_)) {
            return;
        }
        if head.status() == 100 {
            if std::mem::take(&mut exchange.is_awaited) {
                self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                self.limit_body(wire);
            }
        } else if exchange.asked.version == Version::Http11 {
            // One that cannot be written is left out: another one follows.
            let _ = interim(&mut self.out, exchange.asked, head, bytes);
        }
        self.flush(wire);
    }

    /// The head of the response has come.
    pub(super) fn pass_head<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let Stage::Forward(forwarding) = &mut exchange.stage else {
            return self.put_back(wire, exchange);
        };
        forwarding.passage.succeed();
        forwarding.body = None;
        let is_switch = self.hub.response().is_some_and(|(head, _)| head.status() == 101);
        if is_switch {
            return self.go_through(program, wire, exchange);
        }
        let mut asked = exchange.asked;
        if self.is_last(wire) || exchange.peer.has_ended || !exchange.can_skip() {
            asked.keep_alive = false;
        }
        let (status, encoded) = match program.changes_heads() {
            false => self.encode_passed(&exchange, asked),
            true => self.encode_changed(program, wire, &exchange, asked),
        };
        let encoder = match encoded {
            Ok(encoder) => encoder,
            Err(error) => return self.fail_passed(program, wire, exchange, error),
        };
        if ends_with_connection(&encoder, asked) {
            self.reset_at_end(wire, true);
        }
        let decided = self.time(program, wire.engine);
        if let Stage::Forward(forwarding) = &mut exchange.stage {
            if !forwarding.is_coming {
                wire.engine.limit(wire.id, None, 0);
            }
            forwarding.response = Some(Begun { status, decided, encoder, sent: 0 });
        }
        self.put_back(wire, exchange);
        self.flush(wire);
        self.note_begun(wire);
    }

    fn put_back(&mut self, wire: &mut Wire<'_, K>, exchange: Box<Exchange<K>>) {
        if let Some(slot) = wire.slot() {
            slot.exchange = Some(exchange);
        }
    }

    /// Writes the head of a response as it came.
    fn encode_passed(
        &mut self,
        exchange: &Exchange<K>,
        asked: Asked,
    ) -> (Status, Result<BodyEncoder, Error>) {
        let Some((head, bytes)) = self.hub.response() else {
            return (Status::BAD_GATEWAY, Err(Status::BAD_GATEWAY.into()));
        };
        let status = Status::new(head.status()).unwrap_or(Status::BAD_GATEWAY);
        let date = self.date.at(self.now);
        let via = match &exchange.stage {
            Stage::Forward(forwarding) => &*forwarding.plan.upstream.settings().via,
            _ => "",
        };
        let encoded = encode(&mut self.out, asked, (head, bytes), via, date);
        (status, encoded.map_err(|error| bad_response(&error)))
    }

    /// Shows the head of a response to the program, and writes it.
    fn encode_changed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: &Exchange<K>,
        mut asked: Asked,
    ) -> (Status, Result<BodyEncoder, Error>) {
        let Some((head, bytes)) = self.hub.response() else {
            return (Status::BAD_GATEWAY, Err(Status::BAD_GATEWAY.into()));
        };
        let Some(status) = Status::new(head.status()) else {
            return (Status::BAD_GATEWAY, Err(bad_response(&EncodeError::Status)));
        };
        let mut shown = Head::new(status, None);
        let mut unseen: Vec<(&str, &[u8])> = Vec::new();
        let _ = ResponseFields::new(head, bytes).each(|name, value| {
            match std::str::from_utf8(value) {
                Ok(value) => shown.add(name.to_owned(), value.to_owned()),
                Err(_) => unseen.push((name, value)),
            }
            Ok(())
        });
        if let Stage::Forward(forwarding) = &exchange.stage {
            shown.add("Via", forwarding.plan.upstream.settings().via.clone());
        }
        let has_head = {
            let mut decoder = windlass_http1::RequestDecoder::new();
            decoder.decode(&mut self.head, &exchange.head).is_ok()
        };
        let from = self.from(wire);
        let request = has_head.then(|| arrived(&self.head, &exchange.head, from));
        if !program.decided(exchange.route, request, &mut shown) {
            let error = Error::new(Status::INTERNAL_SERVER_ERROR);
            return (status, Err(error.because(super::super::respond::PANICKED)));
        }
        shown.leave_identity_out();
        if shown.closes() {
            asked.keep_alive = false;
        }
        let date = self.date.at(self.now);
        let Some((head, bytes)) = self.hub.response() else {
            return (status, Err(Status::BAD_GATEWAY.into()));
        };
        let encoded = (|| {
            let mut response = ResponseEncoder::new(&mut self.out, asked, shown.status().code())?;
            if let Some(kind) = shown.kind() {
                response.field("Content-Type", kind)?;
            }
            for (name, value) in shown.fields() {
                response.field(name, value)?;
            }
            for (name, value) in &unseen {
                response.field(name, value)?;
            }
            if shown.get("date").is_none() {
                response.fixed(date);
            }
            finish_head(response, asked, head, bytes)
        })();
        let failed = |error: EncodeError| {
            Error::new(Status::INTERNAL_SERVER_ERROR).because(error.to_string())
        };
        (shown.status(), encoded.map_err(failed))
    }

    /// A part of the body has come.
    pub(super) fn pass_body(&mut self, wire: &mut Wire<'_, K>, part: Buf) {
        let Some(forwarding) = wire.forwarding() else { return };
        let call = forwarding.call;
        let Some(Begun { encoder, sent, .. }) = &mut forwarding.response else { return };
        *sent += part.len() as u64;
        let is_sent = encoder.is_sent();
        let len = part.len();
        // The server's length is the encoder's, too, so it cannot be wrong.
        if encoder.before(&mut self.out, len).is_err() {
            return self.reset(wire);
        }
        let mut behind = Vec::new();
        if is_sent && len < LARGE {
            self.out.extend_from_slice(&part);
            encoder.after(&mut self.out, len);
        } else if is_sent {
            encoder.after(&mut behind, len);
            self.flush(wire);
            if wire.engine.write(wire.id, part).is_err() {
                return self.break_off(wire);
            }
            self.out.extend_from_slice(&behind);
        }
        self.flush(wire);
        if wire.engine.is_full(wire.id)
            && let Some(forwarding) = wire.forwarding()
        {
            forwarding.is_held = true;
            let is_coming = forwarding.is_coming;
            self.hub.set_reads(wire.engine, call, false);
            if is_coming {
                wire.engine.read_when_full(wire.id, true); // its request goes on
            }
        }
    }

    /// The client has room again.
    pub(in super::super) fn forward_drained<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let (call, is_held) = match &mut exchange.stage {
            Stage::Forward(forwarding) => (forwarding.call, &mut forwarding.is_held),
            Stage::Tunnel(tunnel) => (tunnel.call, &mut tunnel.is_held),
            _ => return,
        };
        if !std::mem::take(is_held) {
            return;
        }
        wire.engine.read_when_full(wire.id, false);
        self.hub.set_reads(wire.engine, call, true);
        self.take_steps(program, wire.engine);
    }

    /// The trailers of the response have come.
    pub(super) fn keep_response_trailers(&mut self, wire: &mut Wire<'_, K>) {
        let (Some(forwarding), Some((head, bytes))) = (wire.forwarding(), self.hub.response())
        else {
            return;
        };
        let goes_on = |field: &(&str, &[u8])| is_end_to_end(head, bytes, field.0);
        let fields = head.fields(bytes).filter(goes_on);
        forwarding.trailers =
            fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    }

    /// The response is whole.
    pub(super) fn pass_end<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
    ) {
        self.forget_begun(wire);
        // The next request waits until there is room for its response.
        wire.engine.read_when_full(wire.id, false);
        let Some(mut exchange) = wire.slot().and_then(|slot| slot.exchange.take()) else { return };
        let is_forwarded = matches!(&exchange.stage, Stage::Forward(one) if one.response.is_some());
        if !is_forwarded {
            return self.put_back(wire, exchange);
        }
        let stage = std::mem::replace(&mut exchange.stage, Stage::Head);
        let Stage::Forward(forwarding) = stage else { return };
        let (trailers, is_coming) = (forwarding.trailers, forwarding.is_coming);
        let Some(Begun { status, decided, encoder, sent }) = forwarding.response else { return };
        self.ends_waiting(wire, exchange.route);
        let keeps_alive = encoder.keep_alive();
        let is_to_close = ends_with_connection(&encoder, exchange.asked);
        let fields = trailers.iter().map(|(name, value)| (&**name, &**value));
        let is_whole = encoder.end_with(&mut self.out, fields).is_ok();
        if is_whole && is_to_close {
            self.reset_at_end(wire, false);
        }
        let outcome = Fate {
            status: Some(status),
            sent,
            cause: (!is_whole).then_some(windlass_serve::Cause::Aborted),
            start: Some(exchange.start),
            decided: Some(decided),
            error: None,
        };
        self.finish_passed(program, wire, &exchange, outcome);
        let skips = !is_coming || exchange.can_skip();
        if is_whole && keeps_alive && skips && !self.is_draining {
            let (input, has_ended) = (std::mem::take(&mut exchange.input), exchange.peer.has_ended);
            let next = self.skip(wire, exchange);
            return self.behind(program, wire, next, input, has_ended);
        }
        self.recycle(exchange);
        self.flush(wire);
        match is_whole {
            true => _ = wire.engine.close(wire.id),
            false => self.reset(wire),
        }
    }

    /// A request that was passed on is done with.
    pub(super) fn finish_passed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: &Exchange<K>,
        outcome: Fate<'_>,
    ) {
        let has_head =
            program.is_watched() && !exchange.head.is_empty() && self.decode_again(&exchange.head);
        let (now, from) = (self.time(program, wire.engine), self.from(wire));
        let context = (exchange.route, has_head.then_some(&exchange.head[..]));
        self.finish(program, from, context, now, outcome);
    }
}

/// A response of a server that cannot be passed on.
fn bad_response(error: &EncodeError) -> Error {
    Error::new(Status::BAD_GATEWAY).because(format!("the response cannot be passed on: {error}"))
}

/// Writes the head of a response as it came, with the fields of the proxy.
fn encode(
    out: &mut Vec<u8>,
    asked: Asked,
    (head, bytes): (&ResponseHead, &[u8]),
    via: &str,
    date: &FixedField,
) -> Result<BodyEncoder, EncodeError> {
    let reason = head.reason(bytes);
    let mut response = ResponseEncoder::with_reason(out, asked, head.status(), reason)?;
    let mut has_date = false;
    ResponseFields::new(head, bytes).each(|name, value| {
        has_date |= name.len() == 4 && name.eq_ignore_ascii_case("date");
        response.field(name, value)
    })?;
    if !has_date {
        response.fixed(date); // RFC 9110, 6.6.1
    }
    response.field("Via", via)?;
    finish_head(response, asked, head, bytes)
}

/// Ends a head: the body is framed as the server frames it.
fn finish_head(
    mut response: ResponseEncoder<'_>,
    asked: Asked,
    head: &ResponseHead,
    bytes: &[u8],
) -> Result<BodyEncoder, EncodeError> {
    if head.status() == 426
        && let Some(Ok(protocols)) = head.upgrade(bytes).map(std::str::from_utf8)
    {
        response.offer(protocols)?;
    }
    let is_chunked = || head.get(bytes, "transfer-encoding").is_some();
    match (head.framing(), head.content_length()) {
        (Framing::Length(len), _) => response.length(len),
        (Framing::Chunked | Framing::UntilClose, _) => response.chunked(),
        (_, Some(len)) if asked.method == Method::Head || head.status() == 304 => {
            response.length(len)
        }
        _ if asked.method == Method::Head && is_chunked() => response.chunked(),
        _ => response.empty(),
    }
}

/// Writes an interim response.
fn interim(
    out: &mut Vec<u8>,
    asked: Asked,
    head: &ResponseHead,
    bytes: &[u8],
) -> Result<(), EncodeError> {
    let mut response = ResponseEncoder::with_reason(out, asked, head.status(), head.reason(bytes))?;
    ResponseFields::new(head, bytes).each(|name, value| response.field(name, value))?;
    response.empty().map(|_| ())
}
