//! Bytes into requests.

use windlass::Buf;
use windlass_http1::{Event, Framing, RequestDecoder};

use super::program::{Answer, Begin, Program, RouteId};
use super::raw::News;
use super::respond::Next;
use super::{Exchange, Keep, Machine, READ_AHEAD, Stage, Wire, arrived};
use crate::message::response::Response;
use crate::words::error::Error;
use crate::words::status::Status;

/// What is left of bytes that were decoded.
enum Rest<K> {
    /// Nothing: all is done with, or the connection closes.
    Nothing,
    /// A request that waits. The bytes from here on are behind what it has seen.
    Waits(Box<Exchange<K>>, usize),
}

impl<K: 'static> Machine<K> {
    /// Bytes have arrived.
    pub(crate) fn data<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, Keep<P>>,
        data: Buf,
    ) {
        let Some(slot) = wire.slot() else { return };
        if let Some(raw) = slot.raw() {
            program.raw(wire.engine, wire.id, raw, News::Data(data));
            return;
        }
        match slot.exchange.take() {
            None => {
                let rest = self.fresh(program, wire, &data, 0);
                self.keep(wire, rest, |exchange, at| exchange.input.extend_from_slice(&data[at..]));
            }
            Some(exchange) if exchange.input.is_empty() => {
                let rest = self.go_on(program, wire, exchange, &data);
                self.keep(wire, rest, |exchange, at| exchange.input.extend_from_slice(&data[at..]));
            }
            Some(mut exchange) => {
                exchange.input.extend_from_slice(&data);
                self.go_on_with_input(program, wire, exchange);
            }
        }
        self.flush(wire);
    }

    /// Goes on with the bytes that an exchange has kept.
    pub(super) fn go_on_with_input<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) {
        let mut input = std::mem::take(&mut exchange.input);
        let rest = self.go_on(program, wire, exchange, &input);
        self.keep(wire, rest, |exchange, at| {
            input.drain(..at);
            exchange.input = input;
        });
    }

    /// Keeps a request that waits, and what came behind it.
    fn keep(
        &mut self,
        wire: &mut Wire<'_, K>,
        rest: Rest<K>,
        put: impl FnOnce(&mut Exchange<K>, usize),
    ) {
        let Rest::Waits(mut exchange, at) = rest else { return };
        put(&mut exchange, at);
        let reads = matches!(exchange.stage, Stage::Head | Stage::Body);
        let is_full = !reads && exchange.input.len() > READ_AHEAD;
        if is_full != exchange.is_paused {
            exchange.is_paused = is_full;
            if is_full {
                wire.engine.pause(wire.id)
            } else {
                wire.engine.resume(wire.id)
            };
        }
        wire.engine.charge(wire.id, exchange.held());
        if let Some(slot) = wire.slot() {
            slot.exchange = Some(exchange);
        }
    }

    /// Serves requests that begin at `at`.
    fn fresh<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        bytes: &[u8],
        mut at: usize,
    ) -> Rest<K> {
        while at < bytes.len() {
            let input = &bytes[at..];
            let mut decoder = RequestDecoder::new();
            let step = match decoder.decode(&mut self.head, input) {
                Ok(step) => step,
                Err(error) => {
                    self.refuse(program, wire, None, error);
                    return Rest::Nothing;
                }
            };
            if step.event != Event::Head {
                let mut exchange = self.exchange();
                exchange.decoder = decoder;
                self.limit_head(wire);
                return Rest::Waits(exchange, at + step.consumed);
            }
            let end = match self.head.framing() {
                Framing::Empty | Framing::Tunnel => step.consumed,
                Framing::Length(length) => step.consumed.saturating_add(length as usize),
                _ => usize::MAX,
            };
            if end > input.len() {
                let mut exchange = self.exchange();
                exchange.decoder = decoder;
                at += step.consumed;
                return match self.begin(program, wire, exchange, &input[..step.consumed]) {
                    Next::Waits(exchange) => self.go_on_from(program, wire, exchange, bytes, at),
                    next => self.end_of_http(program, wire, next, &bytes[at..]),
                };
            }
            let from = self.from(wire);
            let request = arrived(&self.head, input, from);
            let body = &input[step.consumed..end];
            let (route, answer) = program.request(request, body, false);
            at += end;
            let asked = self.head.asked();
            let head = &input[..step.consumed];
            match self.answer(program, wire, None, (route, asked, Some(head)), answer) {
                Next::Request => {}
                Next::Waits(exchange) => return Rest::Waits(exchange, at),
                next => return self.end_of_http(program, wire, next, &bytes[at..]),
            }
        }
        Rest::Nothing
    }

    /// No further request comes: the connection closes, or has another protocol.
    #[cold]
    fn end_of_http<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        next: Next<K>,
        rest: &[u8],
    ) -> Rest<K> {
        if let Next::Raw(raw, has_ended) = next {
            self.go_over(program, wire, (raw, has_ended), rest);
        }
        Rest::Nothing
    }

    /// Goes on with the bytes behind what an exchange has seen.
    fn go_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
        bytes: &[u8],
    ) -> Rest<K> {
        self.go_on_from(program, wire, exchange, bytes, 0)
    }

    fn go_on_from<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        bytes: &[u8],
        mut at: usize,
    ) -> Rest<K> {
        loop {
            if !matches!(exchange.stage, Stage::Head | Stage::Body) {
                return Rest::Waits(exchange, at);
            }
            let input = &bytes[at..];
            let step = match exchange.decoder.decode(&mut self.head, input) {
                Ok(step) => step,
                Err(error) => {
                    self.refuse(program, wire, Some(exchange), error);
                    return Rest::Nothing;
                }
            };
            at += step.consumed;
            match step.event {
                Event::NeedMore | Event::Closed => return Rest::Waits(exchange, at),
                Event::Head => match self.begin(program, wire, exchange, &input[..step.consumed]) {
                    Next::Waits(begun) => exchange = begun,
                    next => return self.end_of_http(program, wire, next, &bytes[at..]),
                },
                Event::Body(range) => exchange.body.extend_from_slice(&input[range]),
                Event::End => match self.whole(program, wire, exchange) {
                    Next::Request => return self.fresh(program, wire, bytes, at),
                    Next::Waits(waiting) => return Rest::Waits(waiting, at),
                    next => return self.end_of_http(program, wire, next, &bytes[at..]),
                },
                Event::Trailers | Event::Interim => {}
            }
        }
    }

    /// The head of a request is there, and its body is not.
    fn begin<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        head: &[u8],
    ) -> Next<K> {
        exchange.head.extend_from_slice(head);
        exchange.asked = self.head.asked();
        let from = self.from(wire);
        let most = match program.begin(arrived(&self.head, head, from)) {
            Begin::Collect(route, most) => {
                exchange.route = route;
                most
            }
            Begin::Answer(route, answer) => {
                // Its body is not read: the connection closes behind the response.
                exchange.route = route;
                exchange.asked.keep_alive = false;
                let context = (route, exchange.asked, Some(head));
                return self.answer(program, wire, Some(exchange), context, answer);
            }
        };
        if let Err(error) = exchange.decoder.limit_body(most) {
            self.refuse(program, wire, Some(exchange), error);
            return Next::Nothing;
        }
        if self.head.expects_continue() {
            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        exchange.stage = Stage::Body;
        wire.engine.limit(wire.id, self.limits.body_time, self.limits.body_rate);
        Next::Waits(exchange)
    }

    /// A request is whole that came in pieces.
    fn whole<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) -> Next<K> {
        wire.engine.limit(wire.id, None, 0);
        wire.engine.charge(wire.id, 0);
        let head = std::mem::take(&mut exchange.head);
        let begun = matches!(exchange.stage, Stage::Body);
        self.decode_again(&head);
        let from = self.from(wire);
        let request = arrived(&self.head, &head, from);
        let (route, answer) = program.request(request, &exchange.body, begun);
        exchange.body.clear();
        let context = (route, exchange.asked, Some(&head[..]));
        exchange.route = route;
        let next = self.answer(program, wire, Some(exchange), context, answer);
        match next {
            Next::Waits(mut exchange) => {
                exchange.head = head;
                Next::Waits(exchange)
            }
            next => next,
        }
    }

    /// A request that the codec refuses: it is answered, and the connection closes.
    #[cold]
    fn refuse<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        error: windlass_http1::Error,
    ) {
        let status = Status::new(error.status()).unwrap_or(Status::BAD_REQUEST);
        let error = Error::new(status).text(error.to_string());
        self.give_up(program, wire, exchange, error);
    }

    /// Answers with an error, and closes.
    #[cold]
    pub(super) fn give_up<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        error: Error,
    ) {
        let route = exchange.as_ref().map_or(RouteId::NONE, |exchange| exchange.route);
        let response: Response = program.respond_to(route, error).close();
        let mut asked = windlass_http1::Asked::new(
            windlass_http1::Method::Get,
            windlass_http1::Version::Http11,
        );
        asked.keep_alive = false;
        let next =
            self.answer(program, wire, exchange, (route, asked, None), Answer::Respond(response));
        if let Next::Waits(exchange) = next {
            self.recycle(exchange);
            wire.engine.close(wire.id);
        }
    }
}
