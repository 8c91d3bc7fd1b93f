//! Responses into bytes.

use windlass::{Buf, Message};
use windlass_http1::{Asked, BodyEncoder, EncodeError, FixedField, ResponseEncoder};

use super::compress::{Packing, Whole};
use super::finish::Fate;
use super::program::{Answer, Program, RouteId};
use super::read::Rest;
use super::receive::Bytes;
use super::stream::ends_with_connection;
use super::{COUNT, Exchange, Machine, Stage, Streamed, Wire, arrived};
use crate::message::head::Head;
use crate::message::kind::Kind;
use crate::message::response::{Body, Response};
use crate::message::source::{BodySource, LARGE};
use crate::message::subscription::Subscription;
use crate::words::error::Error;
use crate::words::status::Status;

/// So many bytes of responses are collected before they are written in the middle of a pipeline.
const AHEAD: usize = 32 << 10;

/// Why a response is not the program's.
pub(super) const PANICKED: &str = "a hook has panicked";

/// What comes behind an answer.
pub(super) enum Next<K> {
    /// The next request.
    Request,
    /// Nothing: the connection closes.
    Nothing,
    /// The response is not whole.
    Waits(Box<Exchange<K>>),
    /// Its body, which is to have at most so many bytes.
    Body(Box<Exchange<K>>, u64),
    /// Another protocol, with the number of what the program has for it. The peer may have shut
    /// down its output.
    Raw(u32, bool),
}

/// The route of a request, what its response depends on, and the bytes of its head, if they are at
/// hand and decoded.
pub(super) type Context<'a> = (RouteId, Asked, Option<&'a [u8]>);

/// What makes a body while it is sent, what compresses it, and the topics that it hears.
type Made = (Box<dyn BodySource>, Option<Box<Packing>>, Option<Box<Subscription>>);

impl<K: 'static> Machine<K> {
    /// Does what the program answers.
    pub(super) fn answer<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        answer: Answer<K>,
    ) -> Next<K> {
        match answer {
            Answer::Respond(response) => self.respond(program, wire, exchange, context, response),
            Answer::Switch(switch) => self.switch(program, wire, exchange, context, *switch),
            Answer::Job(job, keep) => {
                let admits = self.admits(program, context.0);
                if !admits || wire.engine.execute(wire.id, job).is_err() {
                    return self.refuse_busy(program, wire, exchange, context);
                }
                self.wait_for(wire, exchange, context, Stage::Answer(keep))
            }
            Answer::Later(_) if !self.admits(program, context.0) => {
                self.refuse_busy(program, wire, exchange, context)
            }
            Answer::Later(keep) => self.wait_for(wire, exchange, context, Stage::Answer(keep)),
            Answer::Fetch(fetch, keep) => {
                if !self.admits(program, context.0) {
                    return self.refuse_busy(program, wire, exchange, context);
                }
                self.fetch(program, wire, exchange, context, (fetch, keep))
            }
            Answer::Forward(plan, collected, most) => {
                self.forward(program, wire, exchange, context, (plan, collected, most))
            }
            answer @ (Answer::Collect(..) | Answer::Receive(..)) => {
                self.ask_for_body(wire, exchange, context, answer)
            }
            Answer::Watched(presence, answer) => {
                let mut exchange = exchange.unwrap_or_else(|| self.exchange());
                exchange.peer.watched.push(presence);
                self.answer_watched(program, wire, exchange, context, *answer)
            }
        }
    }

    /// Does what the program answers to a request that tells whether its client is there.
    #[cold]
    fn answer_watched<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
        context: Context<'_>,
        answer: Answer<K>,
    ) -> Next<K> {
        self.answer(program, wire, Some(exchange), context, answer)
    }

    /// There is no room for another request that waits.
    #[cold]
    pub(super) fn refuse_busy<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
    ) -> Next<K> {
        let busy = Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1");
        self.respond(program, wire, exchange, context, busy.into())
    }

    /// Keeps the bytes of a head for a response that is still to come.
    pub(super) fn keep_head(&mut self, next: &mut Next<K>, head: Vec<u8>) {
        match next {
            Next::Waits(exchange) | Next::Body(exchange, _) if !exchange.is_skipped() => {
                exchange.head = head;
            }
            _ => self.reuse(head, |exchange| &mut exchange.head),
        }
    }

    /// A request begins to wait for its answer.
    pub(super) fn wait_for(
        &mut self,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        stage: Stage<K>,
    ) -> Next<K> {
        let mut exchange = exchange.unwrap_or_else(|| self.exchange());
        (exchange.route, exchange.asked) = (context.0, context.1);
        if let Some(head) = context.2.filter(|_| exchange.head.is_empty()) {
            exchange.head.extend_from_slice(head);
        }
        exchange.stage = stage;
        self.running.begin(exchange.route);
        self.limit_answer(wire);
        wire.engine.watch_peer(wire.id, true);
        Next::Waits(exchange)
    }

    /// Writes a response, as far as it is there.
    pub(super) fn respond<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        mut response: Response,
    ) -> Next<K> {
        if response.error().is_some() && !response.is_found() {
            response = self.shape(program, wire, context, response);
        }
        let error = response.take_error();
        let (mut head, mut body) = response.into_parts();
        let Some(mut len) = body.len() else {
            if let Body::File(file) = body {
                let decided = (head, error);
                return self.respond_file(program, wire, exchange, context, decided, file);
            }
            return self.respond_in_time(program, wire, exchange, context, (head, body));
        };
        let asked = self.decide(program, wire, exchange.as_deref(), context, &mut head);
        if self.compression.is_some() {
            body = match self.pack_whole(&mut head, body, context.2, error.is_none()) {
                Whole::AtOnce(body) => body,
                Whole::InParts(source, packing) => {
                    let made = (source, Some(packing), None);
                    return self.begin_stream(
                        program,
                        wire,
                        exchange,
                        context,
                        (head, asked),
                        made,
                    );
                }
            };
            len = body.len().unwrap_or(len);
        }
        let encoder = match self.encode(asked, &head, Some(len)) {
            Ok(encoder) => encoder,
            Err(error) => return self.respond_again(program, wire, exchange, context, error),
        };
        let keeps_alive = encoder.keep_alive();
        let sent = if encoder.is_sent() { len } else { 0 };
        if sent > 0 {
            self.put(wire, body);
        }
        let outcome = (head.status(), sent as u64, error.as_ref());
        self.end_response(program, wire, exchange, context, outcome, keeps_alive)
    }

    /// A response is whole: its status, the bytes of its body, and the error that it tells of.
    #[inline]
    pub(super) fn end_response<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (status, sent, error): (Status, u64, Option<&Error>),
        keeps_alive: bool,
    ) -> Next<K> {
        self.count(Some(status));
        if program.is_watched() {
            let outcome = Fate {
                status: Some(status),
                sent,
                error,
                start: Some(exchange.as_ref().map_or(self.now, |exchange| exchange.start)),
                ..Fate::default()
            };
            let (now, from) = (wire.engine.now(), self.from(wire));
            self.tell(program, from, (context.0, context.2), now, outcome);
        }
        if keeps_alive {
            return exchange.map_or(Next::Request, |exchange| self.skip(wire, exchange));
        }
        if let Some(exchange) = exchange {
            self.recycle(exchange);
        }
        self.flush(wire);
        wire.engine.close(wire.id);
        Next::Nothing
    }

    /// The program shapes its errors.
    #[cold]
    fn shape<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        (route, _, bytes): Context<'_>,
        response: Response,
    ) -> Response {
        let from = self.from(wire);
        program.shape(route, bytes.map(|bytes| arrived(&self.head, bytes, from)), response)
    }

    /// Shows the head of a response to the program, and says what it is an answer to; `None` if the
    /// program has failed.
    #[inline(always)]
    pub(super) fn decide<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<&Exchange<K>>,
        (route, mut asked, bytes): Context<'_>,
        head: &mut Head,
    ) -> Option<Asked> {
        let is_decided = !program.changes_heads() || {
            let from = self.from(wire);
            let request = bytes.map(|bytes| arrived(&self.head, bytes, from));
            program.decided(route, request, head)
        };
        let ends = exchange.is_some_and(|one| one.peer.has_ended || !one.can_skip());
        if self.is_last(wire) || head.closes() || ends {
            asked.keep_alive = false;
        }
        is_decided.then_some(asked)
    }

    /// Writes the head of a response; an error if it has what no head may have.
    #[inline(always)]
    fn encode(
        &mut self,
        asked: Option<Asked>,
        head: &Head,
        len: Option<usize>,
    ) -> Result<BodyEncoder, Error> {
        self.encode_with(asked, head, &[], len.map(|len| len as u64))
    }

    /// The same, with further fields.
    #[inline(always)]
    pub(super) fn encode_with(
        &mut self,
        asked: Option<Asked>,
        head: &Head,
        fixed: &[(&'static str, FixedField)],
        len: Option<u64>,
    ) -> Result<BodyEncoder, Error> {
        let failed = |cause: String| Error::new(Status::INTERNAL_SERVER_ERROR).because(cause);
        let asked = asked.ok_or_else(|| failed(PANICKED.to_owned()))?;
        let of_loop = (self.date.at(self.now), &mut self.kind);
        encode(&mut self.out, of_loop, asked, (head, fixed), len)
            .map_err(|failure| failed(failure.to_string()))
    }

    /// A response that is not whole yet.
    #[inline(never)]
    fn respond_in_time<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (mut head, body): (Head, Body),
    ) -> Next<K> {
        let mut subscription = None;
        let source = match body {
            Body::Awaited(awaited) => {
                return self.wait_for_answer(program, wire, exchange, context, awaited);
            }
            Body::Stream(source) => source,
            Body::Events(source, topics) => {
                subscription = Some(topics);
                source
            }
            _ => {
                const ELSEWHERE: &str = "only its own handler can return what a request asks for";
                let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(ELSEWHERE);
                return self.respond(program, wire, exchange, context, error.into());
            }
        };
        let asked = self.decide(program, wire, exchange.as_deref(), context, &mut head);
        let packing = self.pack_stream(&mut head, context.2);
        let made = (source, packing, subscription);
        self.begin_stream(program, wire, exchange, context, (head, asked), made)
    }

    /// Begins a response that is made while it is sent.
    fn begin_stream<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (head, asked): (Head, Option<Asked>),
        (source, packing, subscription): Made,
    ) -> Next<K> {
        let mut encoder = match self.encode(asked, &head, None) {
            Ok(encoder) => encoder,
            Err(error) => return self.respond_again(program, wire, exchange, context, error),
        };
        if ends_with_connection(&encoder, context.1) {
            self.reset_at_end(wire, true);
        }
        let mut exchange = exchange.unwrap_or_else(|| self.exchange());
        (exchange.route, exchange.asked) = (context.0, asked.unwrap_or(context.1));
        exchange.asked.keep_alive = encoder.keep_alive();
        if let Some(head) = context.2.filter(|_| program.is_watched() && exchange.head.is_empty()) {
            exchange.head.extend_from_slice(head);
        }
        let (status, decided) = (head.status(), self.time(program, wire.engine));
        let has_peer_ended = exchange.peer.has_ended;
        let hearing = subscription.and_then(|topics| self.hear(wire, &mut encoder, topics));
        let streamed = Streamed {
            source,
            packing,
            encoder,
            status,
            decided,
            has_peer_ended,
            is_end_told: false,
            hearing,
            sent: 0,
        };
        exchange.stage = Stage::Stream(Box::new(streamed));
        wire.engine.watch_peer(wire.id, true);
        self.stream(program, wire, exchange)
    }

    /// A response that cannot be written is an error of the server.
    #[cold]
    pub(super) fn respond_again<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        error: Error,
    ) -> Next<K> {
        // Without the program's own response to it, which may be wrong in the same way.
        let head = Head::new(error.status(), None);
        let asked = Asked { keep_alive: false, ..context.1 };
        let _ = self.encode(Some(asked), &head, Some(0));
        let outcome = Fate {
            status: Some(error.status()),
            error: Some(&error),
            start: Some(exchange.as_ref().map_or(self.now, |exchange| exchange.start)),
            ..Fate::default()
        };
        let (now, from) = (self.time(program, wire.engine), self.from(wire));
        self.finish(program, from, (context.0, context.2), now, outcome);
        if let Some(exchange) = exchange {
            self.recycle(exchange);
        }
        self.flush(wire);
        wire.engine.close(wire.id);
        Next::Nothing
    }

    /// Counts a request; whether it is the last one of its connection.
    #[inline]
    pub(super) fn is_last(&mut self, wire: &mut Wire<'_, K>) -> bool {
        let most = self.limits.requests;
        let Some(slot) = wire.slot() else { return true };
        let number = slot.bits.get() & COUNT;
        if number < COUNT {
            slot.bits = slot.bits.saturating_add(1);
        }
        number >= most || self.is_draining
    }

    /// Appends a body to what is written at the end of the callback.
    #[inline]
    fn put(&mut self, wire: &mut Wire<'_, K>, body: Body) {
        match body {
            Body::Static(bytes) if bytes.len() < LARGE => self.out.extend_from_slice(bytes),
            Body::Bytes(bytes) if bytes.len() < LARGE => self.out.extend_from_slice(&bytes),
            Body::Shared(bytes) if bytes.len() < LARGE => self.out.extend_from_slice(&bytes),
            Body::Static(bytes) => self.put_large(wire, bytes.into()),
            Body::Bytes(bytes) => self.put_large(wire, bytes.into()),
            Body::Shared(bytes) => self.put_large(wire, bytes.into()),
            _ => {}
        }
    }

    pub(super) fn put_large(&mut self, wire: &mut Wire<'_, K>, body: Buf) {
        self.flush(wire);
        if wire.engine.write(wire.id, body).is_err() {
            self.break_off(wire);
        }
    }

    /// The connection leaves, or holds more than it may: its peer gets no part of a response, and
    /// its further requests no answer.
    #[cold]
    pub(super) fn break_off(&mut self, wire: &mut Wire<'_, K>) {
        wire.engine.abort(wire.id);
        (self.has_flushed, self.has_broken_off) = (true, true);
    }

    /// Writes the responses of this callback. False if the connection takes nothing more.
    #[inline]
    pub(super) fn flush(&mut self, wire: &mut Wire<'_, K>) -> bool {
        if self.out.is_empty() {
            return true;
        }
        self.has_flushed = true;
        let is_taken = wire.engine.write_slice(wire.id, &self.out).is_ok();
        if !is_taken {
            self.break_off(wire);
        }
        self.out.clear();
        is_taken
    }

    /// Whether a further request may be answered. A client that does not read its responses keeps
    /// its requests, too.
    #[inline]
    pub(super) fn has_room(&mut self, wire: &mut Wire<'_, K>) -> bool {
        let is_little = self.out.len() < AHEAD && !self.is_turn_over();
        if is_little && !self.has_flushed { true } else { self.look_for_room(wire) }
    }

    #[inline(never)]
    fn look_for_room(&mut self, wire: &mut Wire<'_, K>) -> bool {
        self.flush(wire);
        self.has_flushed = false;
        if self.has_broken_off || wire.engine.is_full(wire.id) {
            return false;
        }
        let is_turn_over = self.is_turn_over();
        if is_turn_over {
            self.go_on_later(wire);
        }
        !is_turn_over
    }

    /// Goes on behind a response: to the next request, or to the rest of a body that nobody wants.
    pub(super) fn skip(
        &mut self,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) -> Next<K> {
        if exchange.decoder.is_idle() {
            self.recycle(exchange);
            return Next::Request;
        }
        let (decoder, is_paused) = (exchange.decoder.clone(), exchange.is_paused);
        exchange.clear();
        (exchange.decoder, exchange.stage) = (decoder, Stage::Skip);
        if is_paused {
            wire.engine.resume(wire.id);
        }
        self.limit_body(wire);
        Next::Waits(exchange)
    }

    /// A request waits no more.
    pub(super) fn ends_waiting(&mut self, wire: &mut Wire<'_, K>, route: RouteId) {
        self.running.end(route);
        wire.engine.limit(wire.id, None, 0);
        wire.engine.watch_peer(wire.id, false);
    }

    /// The job of a request has returned.
    pub(crate) fn executed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        output: Message,
    ) {
        let Some((exchange, keep)) = self.take_waiting(wire) else {
            self.remote.count_late();
            return;
        };
        let answer = program.within(wire.id, |program| program.executed(keep, output));
        self.answer_late(program, wire, exchange, answer);
    }

    /// Answers the request of a connection that waits. False if none does.
    pub(crate) fn answer_waiting<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        answer: Answer<K>,
    ) -> bool {
        let Some((exchange, _)) = self.take_waiting(wire) else { return false };
        self.answer_late(program, wire, exchange, answer);
        true
    }

    /// The request of a connection that waits for its answer.
    pub(super) fn take_waiting(&mut self, wire: &mut Wire<'_, K>) -> Option<(Box<Exchange<K>>, K)> {
        let slot = wire.slot()?;
        let mut exchange = slot.exchange.take()?;
        match std::mem::replace(&mut exchange.stage, Stage::Head) {
            Stage::Answer(keep) | Stage::Fetch(_, keep) => {
                self.ends_waiting(wire, exchange.route);
                Some((exchange, keep))
            }
            stage => {
                exchange.stage = stage;
                slot.exchange = Some(exchange);
                None
            }
        }
    }

    /// Does what the program answers to a request that has waited.
    pub(super) fn answer_late<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        answer: Answer<K>,
    ) {
        let input = std::mem::take(&mut exchange.input);
        let has_ended = exchange.peer.has_ended;
        // Requests that came before the end of the peer are answered, too.
        exchange.peer.has_ended &= input.is_empty();
        let head = std::mem::take(&mut exchange.head);
        let has_head = !head.is_empty() && self.decode_again(&head);
        let context = (exchange.route, exchange.asked, has_head.then_some(&head[..]));
        let mut next = self.answer(program, wire, Some(exchange), context, answer);
        self.keep_head(&mut next, head);
        self.behind(program, wire, next, input, has_ended);
    }

    /// Goes on behind a response with the bytes that have come meanwhile. Streams that the end of
    /// the peer ends follow here: calls inside of calls would be more than the stack has room for.
    pub(super) fn behind<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut next: Next<K>,
        mut input: Vec<u8>,
        has_ended: bool,
    ) {
        loop {
            match next {
                // Only handlers that have the head ask for the body.
                Next::Nothing | Next::Body(..) => {}
                Next::Raw(raw, _) => return self.go_over(program, wire, (raw, has_ended), &input),
                Next::Waits(mut exchange) => {
                    exchange.input = input;
                    self.go_on_with_input(program, wire, exchange);
                }
                Next::Request => {
                    wire.engine.resume(wire.id);
                    wire.engine.charge(wire.id, 0);
                    if let Rest::Waits(exchange, at) = self.fresh(program, wire, &input, 0) {
                        self.keep(program, wire, exchange, Bytes::Copied(input), at);
                    }
                }
            }
            self.flush(wire);
            if !has_ended {
                return;
            }
            let Some(mut exchange) = self.take_eof(program, wire) else { return };
            input = std::mem::take(&mut exchange.input);
            next = self.stream(program, wire, exchange);
        }
    }
}

impl Body {
    /// How many bytes it has, if that is known.
    fn len(&self) -> Option<usize> {
        match self {
            Body::Empty => Some(0),
            Body::Static(bytes) => Some(bytes.len()),
            Body::Bytes(bytes) => Some(bytes.len()),
            Body::Shared(bytes) => Some(bytes.len()),
            Body::Stream(_)
            | Body::Events(..)
            | Body::File(_)
            | Body::Awaited(_)
            | Body::Later(_) => None,
        }
    }
}

/// Writes the head of a response.
#[inline]
fn encode(
    out: &mut Vec<u8>,
    (date, kinds): (&FixedField, &mut Kind),
    asked: Asked,
    (head, fixed): (&Head, &[(&'static str, FixedField)]),
    len: Option<u64>,
) -> Result<BodyEncoder, EncodeError> {
    let mut encoder = ResponseEncoder::new(out, asked, head.status().code())?;
    encoder.fixed(date);
    if let Some(kind) = head.kind() {
        encoder.fixed(kinds.of(kind)?);
    }
    fixed.iter().for_each(|(_, field)| encoder.fixed(field));
    for (name, value) in head.fields() {
        if name.len() == 4 && name.eq_ignore_ascii_case("date") {
            continue; // a client could not choose between two
        }
        match encoder.field(name, value) {
            // The encoder names it in `Connection`, too.
            Err(EncodeError::Framing) if name.eq_ignore_ascii_case("upgrade") => {
                encoder.offer(value)?;
            }
            other => other?,
        }
    }
    let code = head.status().code();
    match len {
        Some(0) if code == 204 || code == 304 || code == 205 => encoder.empty(),
        Some(len) => encoder.length(len), // the bytes follow
        None => encoder.chunked(),
    }
}
