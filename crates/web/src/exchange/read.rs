//! Bytes into requests.

use std::ops::ControlFlow::{self, Break, Continue};

use windlass::Buf;
use windlass_http1::{Asked, Event, Framing, Method, RequestDecoder, Version};

use super::program::{Answer, Begin, Program, RouteId};
use super::receive::Bytes;
use super::respond::Next;
use super::{Exchange, Keep, Machine, READ_AHEAD, Stage, Wire, arrived, empty};
use crate::message::response::Response;
use crate::words::error::Error;
use crate::words::status::Status;

/// The server has no memory for a body: never, or not now.
fn no_memory(status: Status) -> Error {
    let error = Error::new(status).text("there is no memory for the body");
    if status == Status::SERVICE_UNAVAILABLE { error.header("Retry-After", "1") } else { error }
}

/// What is left of bytes that were decoded.
pub(super) enum Rest<K> {
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
        if !slot.is_http() {
            return self.other_data(program, wire, data);
        }
        let rest = match slot.exchange.take() {
            None => self.fresh(program, wire, &data, 0),
            Some(exchange) if exchange.input.is_empty() => {
                self.go_on(program, wire, exchange, &data)
            }
            Some(mut exchange) => {
                exchange.input.extend_from_slice(&data);
                self.go_on_with_input(program, wire, exchange);
                Rest::Nothing
            }
        };
        if let Rest::Waits(exchange, at) = rest {
            self.keep(program, wire, exchange, Bytes::from(data), at);
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
        let input = std::mem::take(&mut exchange.input);
        match self.go_on(program, wire, exchange, &input) {
            Rest::Nothing => self.reuse(input, |exchange| &mut exchange.input),
            Rest::Waits(exchange, at) => {
                self.keep(program, wire, exchange, Bytes::Copied(input), at);
            }
        }
    }

    /// Keeps a request that waits, and what came behind it. A receiver gets that first.
    pub(super) fn keep<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Box<Exchange<K>>,
        bytes: Bytes,
        at: usize,
    ) {
        let rest = match &exchange.stage {
            Stage::Receive(_) => self.deliver(program, wire, exchange, &bytes, at),
            Stage::Forward(forwarding) if forwarding.is_coming => {
                self.pass_request(program, wire, exchange, &bytes, at)
            }
            Stage::Tunnel(_) => self.pass_all_through(wire, exchange, &bytes, at),
            _ => Rest::Waits(exchange, at),
        };
        let Rest::Waits(mut exchange, at) = rest else { return };
        bytes.put_rest(at, &mut exchange.input);
        if let Stage::Receive(receiving) = &exchange.stage
            && let Some(file) = &receiving.file
        {
            self.go_on_saving(wire.engine, file.place());
        }
        let is_full = match &exchange.stage {
            Stage::Receive(receiving) => receiving.waits(&self.saves),
            Stage::Forward(forwarding) if forwarding.is_coming => forwarding.is_full,
            Stage::Tunnel(tunnel) => tunnel.is_full,
            stage => !stage.reads() && exchange.input.len() > READ_AHEAD,
        };
        if is_full != exchange.is_paused {
            exchange.is_paused = is_full;
            if is_full {
                if let Stage::Receive(receiving) = &exchange.stage {
                    if let Some(file) = &receiving.file
                        && self.saves.waits(file)
                        && let Some(span) = self.saves.time(file)
                    {
                        wire.engine.time_limit(wire.id, span);
                    }
                    // No read tells it of a reset, which is to end it all the same.
                    wire.engine.watch_peer(wire.id, true);
                }
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
    pub(super) fn fresh<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        bytes: &[u8],
        mut at: usize,
    ) -> Rest<K> {
        while at < bytes.len() {
            if !self.has_room(wire) {
                let mut exchange = self.exchange();
                exchange.stage = Stage::Room;
                return Rest::Waits(exchange, at);
            }
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
                at += step.consumed;
                if at < bytes.len() {
                    self.limit_head(wire);
                }
                return Rest::Waits(exchange, at);
            }
            let body_at = at + step.consumed;
            let end = match self.head.framing() {
                Framing::Empty | Framing::Tunnel => step.consumed,
                Framing::Length(length) => {
                    // Where it does not fit it has not come, either.
                    step.consumed.saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
                }
                _ => usize::MAX,
            };
            if end > input.len() {
                let mut exchange = self.exchange();
                exchange.decoder = decoder;
                let (head, body) = input.split_at(step.consumed);
                let next = self.begin(program, wire, exchange, head, !body.is_empty());
                match self.go_on_with(program, wire, next, bytes, body_at) {
                    Continue(next) => at = next,
                    Break(rest) => return rest,
                }
                continue;
            }
            let from = self.from(wire);
            let request = arrived(&self.head, input, from);
            let body = &input[step.consumed..end];
            let (route, answer) = program.request(request, body, None);
            at += end;
            let asked = self.head.asked();
            let head = &input[..step.consumed];
            let context = (route, asked, Some(head));
            let next = match answer {
                Answer::Respond(response) => self.respond(program, wire, None, context, response),
                answer => self.answer(program, wire, None, context, answer),
            };
            match next {
                Next::Request => {}
                Next::Waits(exchange) => return Rest::Waits(exchange, at),
                Next::Body(mut exchange, most) => {
                    exchange.decoder = decoder;
                    let next = self.begin_body(program, wire, exchange, most);
                    match self.go_on_with(program, wire, next, bytes, body_at) {
                        Continue(next) => at = next,
                        Break(rest) => return rest,
                    }
                }
                next => return self.end_of_http(program, wire, next, &bytes[at..]),
            }
        }
        Rest::Nothing
    }

    /// Goes on behind a step of a request.
    pub(super) fn go_on_behind<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        next: Next<K>,
        bytes: &[u8],
        at: usize,
    ) -> Rest<K> {
        match self.go_on_with(program, wire, next, bytes, at) {
            Continue(at) => self.fresh(program, wire, bytes, at),
            Break(rest) => rest,
        }
    }

    /// Goes on behind a step of a request, and returns where the next one begins. Whoever calls it
    /// serves that one: calls inside of calls would be more than the stack has room for.
    fn go_on_with<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        next: Next<K>,
        bytes: &[u8],
        at: usize,
    ) -> ControlFlow<Rest<K>, usize> {
        match next {
            Next::Waits(exchange) => self.go_on_from(program, wire, exchange, bytes, at),
            Next::Request => Continue(at),
            next => Break(self.end_of_http(program, wire, next, &bytes[at..])),
        }
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
        self.go_on_behind(program, wire, Next::Waits(exchange), bytes, 0)
    }

    fn go_on_from<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        bytes: &[u8],
        mut at: usize,
    ) -> ControlFlow<Rest<K>, usize> {
        loop {
            if !exchange.stage.reads() {
                return Break(Rest::Waits(exchange, at));
            }
            let input = &bytes[at..];
            let step = match exchange.decoder.decode(&mut self.head, input) {
                Ok(step) => step,
                Err(error) => {
                    self.refuse(program, wire, Some(exchange), error);
                    return Break(Rest::Nothing);
                }
            };
            at += step.consumed;
            match step.event {
                Event::NeedMore | Event::Closed => {
                    self.limit_late_head(wire, &mut exchange, at < bytes.len());
                    return Break(Rest::Waits(exchange, at));
                }
                Event::Head => {
                    let (head, body) = input.split_at(step.consumed);
                    match self.begin(program, wire, exchange, head, !body.is_empty()) {
                        Next::Waits(begun) => exchange = begun,
                        next => {
                            return Break(self.end_of_http(program, wire, next, &bytes[at..]));
                        }
                    }
                }
                Event::Body(_) if exchange.is_skipped() => {}
                Event::Body(range) => {
                    exchange.body.extend_from_slice(&input[range]);
                    if exchange.held() > wire.engine.budget().share() {
                        let error = no_memory(Status::SERVICE_UNAVAILABLE);
                        self.give_up(program, wire, Some(exchange), error);
                        return Break(Rest::Nothing);
                    }
                }
                Event::End if exchange.is_skipped() => {
                    if !self.end_skip(wire, exchange) {
                        return Break(Rest::Nothing);
                    }
                    return Continue(at);
                }
                Event::End => {
                    let next = self.whole(program, wire, exchange);
                    return self.go_on_with(program, wire, next, bytes, at);
                }
                Event::Trailers => exchange.keep_trailers(&self.head, input),
                Event::Interim => {}
            }
        }
    }

    /// A body that nobody wants has ended. False if the connection closes.
    fn end_skip(&mut self, wire: &mut Wire<'_, K>, exchange: Box<Exchange<K>>) -> bool {
        self.recycle(exchange);
        wire.engine.limit(wire.id, None, 0);
        wire.engine.charge(wire.id, 0);
        if self.is_draining {
            wire.engine.close(wire.id);
        }
        !self.is_draining
    }

    /// The head of a request is there, and its body is not, or only a part of it (`has_body`).
    fn begin<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
        head: &[u8],
        has_body: bool,
    ) -> Next<K> {
        exchange.head.extend_from_slice(head);
        exchange.asked = self.head.asked();
        exchange.is_awaited = self.head.expects_continue() && !has_body;
        let from = self.from(wire);
        let (route, answer) = match program.begin(arrived(&self.head, head, from)) {
            Begin::Answer(route, answer) => (route, answer),
            Begin::Collect(route, most) => {
                let most = most.unwrap_or(self.limits.body);
                match self.refuses_body(wire, &exchange, most, true) {
                    Some(error) => (route, Answer::Respond(error.into())),
                    None => {
                        let _ = exchange.decoder.limit_body(most); // for one without a length
                        exchange.route = route;
                        exchange.stage = Stage::Body(None);
                        return Next::Waits(self.expect_body(wire, exchange));
                    }
                }
            }
        };
        exchange.route = route;
        wire.engine.limit(wire.id, None, 0);
        let context = (route, exchange.asked, Some(head));
        match self.answer(program, wire, Some(exchange), context, answer) {
            Next::Body(exchange, most) => self.begin_body(program, wire, exchange, most),
            next => next,
        }
    }

    /// Why a body with a length is not read: it is beyond its limit, or is to be collected, and
    /// there is no memory for it.
    pub(super) fn refuses_body(
        &self,
        wire: &Wire<'_, K>,
        exchange: &Exchange<K>,
        most: u64,
        is_collected: bool,
    ) -> Option<Error> {
        let left = exchange.decoder.left()?;
        if left > most {
            return Some(Error::body_too_long());
        }
        let budget = wire.engine.budget();
        let needed = left.saturating_add(exchange.held() as u64);
        match () {
            () if !is_collected || needed <= budget.share() as u64 => None,
            // A quarter of the budget is for those that hold little.
            () if needed > (budget.limit() - budget.limit() / 4) as u64 => {
                Some(no_memory(Status::CONTENT_TOO_LARGE))
            }
            () => Some(no_memory(Status::SERVICE_UNAVAILABLE)),
        }
    }

    /// Waits for a body that is wanted.
    pub(super) fn expect_body(
        &mut self,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) -> Box<Exchange<K>> {
        self.limit_body(wire);
        if std::mem::take(&mut exchange.is_awaited) {
            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        exchange
    }

    /// A request is whole that came in pieces.
    pub(super) fn whole<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Box<Exchange<K>>,
    ) -> Next<K> {
        wire.engine.limit(wire.id, None, 0);
        wire.engine.charge(wire.id, 0);
        let head = std::mem::take(&mut exchange.head);
        self.decode_again(&head);
        let from = self.from(wire);
        let request = arrived(&self.head, &head, from);
        let stage = std::mem::replace(&mut exchange.stage, Stage::Head);
        let Exchange { body, trailers, route, .. } = &*exchange;
        let (route, answer) = match stage {
            Stage::Receive(receiving) => {
                (*route, program.received(receiving.keep, request, None, trailers))
            }
            Stage::Body(Some(keep)) => {
                (*route, program.received(keep, request, Some(body), trailers))
            }
            _ => program.request(request, body, Some(trailers)),
        };
        empty(&mut exchange.body); // the answer may take long
        let context = (route, exchange.asked, Some(&head[..]));
        exchange.route = route;
        let mut next = self.answer(program, wire, Some(exchange), context, answer);
        self.keep_head(&mut next, head);
        next
    }

    /// A request that the codec refuses: it is answered, and the connection closes.
    #[cold]
    pub(super) fn refuse<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        mut exchange: Option<Box<Exchange<K>>>,
        error: windlass_http1::Error,
    ) {
        if let Some(exchange) = exchange.take_if(|exchange| exchange.is_skipped()) {
            self.recycle(exchange); // its response is written
            wire.engine.close(wire.id);
            return;
        }
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
        mut exchange: Option<Box<Exchange<K>>>,
        error: Error,
    ) {
        let (mut route, mut asked) = (RouteId::NONE, Asked::new(Method::Get, Version::Http11));
        let mut head = Vec::new();
        if let Some(exchange) = &mut exchange
            && !matches!(exchange.stage, Stage::Head)
        {
            (route, asked) = (exchange.route, exchange.asked);
            head = std::mem::take(&mut exchange.head);
        }
        asked.keep_alive = false;
        if let Some(exchange) = &mut exchange {
            self.drop_receiver(program, wire.id, exchange);
        }
        let has_head = !head.is_empty() && self.decode_again(&head);
        let response = Response::from(error).close();
        let context = (route, asked, has_head.then_some(&head[..]));
        let next = self.answer(program, wire, exchange, context, Answer::Respond(response));
        if let Next::Waits(mut exchange) = next {
            // A long body goes on, and then the connection closes.
            exchange.head = head;
            let input = std::mem::take(&mut exchange.input);
            self.keep(program, wire, exchange, Bytes::Copied(input), 0);
        }
    }
}
