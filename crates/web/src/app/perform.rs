//! Requests into calls of handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use matchit::Params;
use windlass::{Buf, Message};
use windlass_serve::{Engine, Id};

use super::hooks::Finished;
use super::routes::{Found, Routes};
use super::{Kept, Perform, Plan};
use crate::client::error::FetchError;
use crate::client::fetched::Fetched;
#[cfg(feature = "websocket")]
use crate::client::hub::CallId;
use crate::exchange::Slot;
use crate::exchange::program::{AfterPart, Answer, Begin, End, Program, RouteId, Taking};
use crate::exchange::raw::{News, Over};
use crate::message::arrived::{Arrived, Trailers};
#[cfg(feature = "multipart")]
use crate::message::form::PartHead;
use crate::message::gone::Presence;
use crate::message::head::Head;
#[cfg(feature = "multipart")]
use crate::message::request::parts::PartPlan;
use crate::message::request::receive::{Demand, Resume};
use crate::message::request::{Asked, Request};
use crate::message::response::{Body, Response};
use crate::message::save::Saved;
use crate::topics::TopicCall;
use crate::words::error::Error;
use crate::words::status::Status;

impl<S: 'static> Program for Perform<S> {
    type Keep = Kept<S>;

    fn begin(&mut self, arrived: Arrived<'_>) -> Begin<Kept<S>> {
        let plan = Rc::clone(&self.plan);
        let (found, params) = plan.routes.find(arrived.head, arrived.bytes);
        let (id, route) = found.route();
        let _in_span = self.spans.begin(arrived, plan.routes.pattern(id), false);
        let mut request = plan.request(id, arrived, &params);
        if let Some(response) = self.call_before(&plan, id, &mut request) {
            let answer =
                self.answer(route.and_then(|route| route.body_limit), &mut request, response);
            return Begin::Answer(id, answer);
        }
        let Some(route) = route else {
            return Begin::Answer(id, Answer::Respond(without_route(&plan.routes, &found)));
        };
        if route.at_head {
            let response = self.call(|state| (route.handler)(state, &mut request));
            let answer = self.answer(route.body_limit, &mut request, response);
            return Begin::Answer(id, answer);
        }
        Begin::Collect(id, route.body_limit)
    }

    #[inline]
    fn request(
        &mut self,
        arrived: Arrived<'_>,
        body: &[u8],
        begun: Option<&Trailers>,
    ) -> (RouteId, Answer<Kept<S>>) {
        let plan = Rc::clone(&self.plan);
        let (found, params) = plan.routes.find(arrived.head, arrived.bytes);
        let (id, route) = found.route();
        let _in_span = self.spans.begin(arrived, plan.routes.pattern(id), begun.is_some());
        let mut request = plan.request(id, arrived, &params);
        if begun.is_none()
            && let Some(response) = self.call_before(&plan, id, &mut request)
        {
            let most = route.and_then(|route| route.body_limit);
            return (id, self.answer(most, &mut request, response));
        }
        let Some(route) = route else {
            return (id, Answer::Respond(without_route(&plan.routes, &found)));
        };
        if begun.is_none()
            && !route.at_head
            && body.len() as u64 > route.body_limit.unwrap_or(plan.body)
        {
            return (id, Answer::Respond(Error::body_too_long().into()));
        }
        request.set_body((!route.at_head).then_some(body));
        request.set_trailers(begun);
        let response = self.call(|state| (route.handler)(state, &mut request));
        (id, self.answer(route.body_limit, &mut request, response))
    }

    fn executed(&mut self, keep: Kept<S>, output: Message) -> Answer<Kept<S>> {
        Answer::Respond(self.call(|state| match keep {
            Kept::Then(then) => then(state, output),
            _ => Status::INTERNAL_SERVER_ERROR.into(),
        }))
    }

    fn fetched(&mut self, keep: Kept<S>, result: Result<Fetched, FetchError>) -> Answer<Kept<S>> {
        Answer::Respond(self.call(|state| match keep {
            Kept::Fetched(then) => then(state, result),
            _ => Status::INTERNAL_SERVER_ERROR.into(),
        }))
    }

    #[cfg(feature = "websocket")]
    fn switched(
        &mut self,
        call: CallId,
        head: &windlass_http1::ResponseHead,
        bytes: &[u8],
    ) -> Option<u32> {
        Perform::switched(self, call, head, bytes)
    }

    #[cfg(feature = "websocket")]
    fn not_switched(&mut self, call: CallId, result: Result<Fetched, FetchError>) {
        Perform::not_switched(self, call, result);
    }

    fn begin_parts(&mut self, keep: &mut Kept<S>, resume: Resume) {
        match keep {
            Kept::Receiver(receiver) => self.guard(|state| receiver.begin(state, resume)),
            #[cfg(feature = "multipart")]
            Kept::Parts(receiver) => self.guard(|state| receiver.begin(state, resume)),
            _ => {}
        }
    }

    fn part(&mut self, keep: &mut Kept<S>, part: Buf) -> AfterPart {
        match keep {
            Kept::Receiver(receiver) => self.demand(|state| receiver.data(state, part)),
            #[cfg(feature = "multipart")]
            Kept::Parts(receiver) => self.demand(|state| receiver.data(state, part)),
            _ => AfterPart::More,
        }
    }

    #[cfg(feature = "multipart")]
    fn form_part(&mut self, keep: &mut Kept<S>, part: PartHead) -> Result<PartPlan, Response> {
        let Kept::Parts(receiver) = keep else { return Ok(PartPlan::Skip) };
        let mut plan = None;
        let response = self.call(|state| match receiver.part(state, part) {
            Ok(made) => {
                plan = Some(made);
                Response::empty(Status::OK)
            }
            Err(error) => error.into(),
        });
        plan.ok_or(response)
    }

    #[cfg(feature = "multipart")]
    fn form_part_end(&mut self, keep: &mut Kept<S>) -> AfterPart {
        match keep {
            Kept::Parts(receiver) => self.demand(|state| receiver.part_end(state)),
            _ => AfterPart::More,
        }
    }

    fn saved(&mut self, keep: &mut Kept<S>, saved: Result<Saved, Error>) -> AfterPart {
        match keep {
            Kept::Saver(_, place) => {
                *place = Some(saved);
                AfterPart::More
            }
            #[cfg(feature = "multipart")]
            Kept::Parts(receiver) => self.demand(|state| receiver.saved(state, saved)),
            _ => AfterPart::More,
        }
    }

    fn received(
        &mut self,
        keep: Kept<S>,
        arrived: Arrived<'_>,
        body: Option<&[u8]>,
        trailers: &Trailers,
    ) -> Answer<Kept<S>> {
        let plan = Rc::clone(&self.plan);
        let (found, params) = plan.routes.find(arrived.head, arrived.bytes);
        let (id, _) = found.route();
        let _in_span = self.spans.enter(arrived.from.id);
        let mut request = plan.request(id, arrived, &params);
        request.set_body(body);
        request.set_trailers(Some(trailers));
        let response = self.call(|state| match keep {
            Kept::Behind(then) => then(state, &mut request),
            Kept::Receiver(receiver) => receiver.end(state, &mut request).into(),
            Kept::Saver(then, Some(saved)) => then(state, saved),
            #[cfg(feature = "multipart")]
            Kept::Parts(receiver) => receiver.end(state, &mut request).into(),
            _ => Status::INTERNAL_SERVER_ERROR.into(),
        });
        self.answer(None, &mut request, response)
    }

    fn abort(&mut self, keep: Kept<S>) {
        match keep {
            Kept::Receiver(receiver) => self.guard(|state| receiver.aborted(state)),
            #[cfg(feature = "multipart")]
            Kept::Parts(receiver) => self.guard(|state| receiver.aborted(state)),
            _ => {}
        }
    }

    fn raw(&mut self, engine: &mut Engine<Slot<Kept<S>>>, id: Id, raw: u32, news: News) -> bool {
        match news {
            News::Published(_) | News::Stopping | News::Told(_) => {
                self.tell_one_of_many(engine, id, raw, news)
            }
            _ => self.tell(engine, id, raw, news),
        }
    }

    #[inline]
    fn next_topic_call(&mut self) -> Option<TopicCall> {
        #[cfg(feature = "websocket")]
        if self.topic_calls.is_empty() && self.sockets.intake.is_none() {
            return self.sockets.next_waiting().map(TopicCall::Continue);
        }
        self.topic_calls.pop_front()
    }

    #[inline]
    fn has_input(&self) -> bool {
        #[cfg(feature = "websocket")]
        return self.sockets.intake.is_some();
        #[cfg(not(feature = "websocket"))]
        return false;
    }

    fn raw_over(&mut self, raw: u32, over: Over) {
        self.end_of_raw(raw, over);
    }

    #[cold]
    fn shape(
        &mut self,
        route: RouteId,
        arrived: Option<Arrived<'_>>,
        mut response: Response,
    ) -> Response {
        let plan = Rc::clone(&self.plan);
        let _in_span = self.spans.enter_of(arrived);
        let nested = plan.routes.nested(route);
        let shape = nested.iter().rev().find_map(|hooks| hooks.on_error.as_ref());
        let Some(shape) = shape.or(plan.hooks.on_error.as_ref()) else { return response };
        let Some(error) = response.take_error() else { return response };
        let params = plan.params(arrived);
        let request = arrived.map(|arrived| plan.request(route, arrived, &params));
        let state = &mut self.state;
        let shaped = catch_unwind(AssertUnwindSafe(|| shape(state, request.as_ref(), &error)));
        let mut shaped = shaped.unwrap_or_else(|_| {
            self.panics += 1;
            Response::text(error.public_text().to_owned()).status(error.status())
        });
        shaped.keep_error(error);
        if response.head().closes() {
            shaped.head_mut().close();
        }
        shaped
    }

    #[inline]
    fn changes_heads(&self) -> bool {
        self.plan.has_after
    }

    fn decided(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, head: &mut Head) -> bool {
        let plan = Rc::clone(&self.plan);
        let _in_span = self.spans.enter_of(arrived);
        let params = plan.params(arrived);
        let request = arrived.map(|arrived| plan.request(route, arrived, &params));
        let coding = head.coding().map(str::to_owned);
        // The innermost hooks come first: the outer ones see what they have made.
        let inner = plan.routes.nested(route).iter().rev().flat_map(|hooks| &hooks.after);
        for hook in inner.chain(&plan.hooks.after) {
            let state = &mut self.state;
            let called = AssertUnwindSafe(|| hook(state, request.as_ref(), head));
            if catch_unwind(called).is_err() {
                self.panics += 1;
                return false;
            }
        }
        // A hook that wants nothing to be compressed does not mean what is compressed already.
        if let Some(coding) = coding
            && head.get("Content-Encoding").is_some()
            && head.coding().is_none()
        {
            head.set("Content-Encoding", coding);
        }
        true
    }

    fn most_running(&self, route: RouteId) -> usize {
        self.plan.routes.most_running(route)
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.plan.has_finished || self.spans.any()
    }

    #[inline]
    fn within<T>(&mut self, id: Id, call: impl FnOnce(&mut Self) -> T) -> T {
        let _in_span = self.spans.enter(id);
        call(self)
    }

    fn finished(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, end: End<'_>) {
        let plan = Rc::clone(&self.plan);
        let _in_span = self.spans.end(arrived, end.status, end.cause);
        let finished = Finished { route: plan.routes.pattern(route), request: arrived, end };
        let inner = plan.routes.nested(route).iter().rev().flat_map(|hooks| &hooks.finished);
        for hook in inner.chain(&plan.hooks.finished) {
            let state = &mut self.state;
            let called = catch_unwind(AssertUnwindSafe(|| hook(state, &finished)));
            self.panics += u64::from(called.is_err());
        }
    }
}

impl<S: 'static> Perform<S> {
    /// The response of the first hook that has one.
    #[inline]
    fn call_before(
        &mut self,
        plan: &Plan<S>,
        id: RouteId,
        request: &mut Request<'_, S>,
    ) -> Option<Response> {
        let inner = plan.routes.nested(id).iter().flat_map(|hooks| &hooks.before);
        plan.hooks.before.iter().chain(inner).find_map(|hook| {
            let state = &mut self.state;
            let called = catch_unwind(AssertUnwindSafe(|| hook(state, request)));
            called.unwrap_or_else(|_| Some(self.panicked("a hook has panicked")))
        })
    }

    /// Calls a handler. A panic is a 500, and ends the connection behind it.
    #[inline]
    fn call(&mut self, call: impl FnOnce(&mut S) -> Response) -> Response {
        let state = &mut self.state;
        let called = catch_unwind(AssertUnwindSafe(|| call(state)));
        called.unwrap_or_else(|_| self.panicked("a handler has panicked"))
    }

    /// Calls what takes a part of a body.
    fn demand(&mut self, call: impl FnOnce(&mut S) -> Result<Demand, Error>) -> AfterPart {
        let mut after = None;
        let response = self.call(|state| {
            after = match call(state) {
                Ok(Demand::More) => Some(AfterPart::More),
                Ok(Demand::Pause) => Some(AfterPart::Pause),
                Ok(Demand::Stop(response)) => return response,
                Err(error) => return error.into(),
            };
            Response::empty(Status::OK)
        });
        after.unwrap_or(AfterPart::Stop(response))
    }

    /// Calls what makes no response. A panic is counted.
    pub(super) fn guard(&mut self, call: impl FnOnce(&mut S)) {
        let state = &mut self.state;
        if catch_unwind(AssertUnwindSafe(|| call(state))).is_err() {
            self.panics += 1;
        }
    }

    #[cold]
    fn panicked(&mut self, cause: &'static str) -> Response {
        self.panics += 1;
        Response::from(Error::new(Status::INTERNAL_SERVER_ERROR).because(cause)).close()
    }

    /// The response, or what the request has asked for.
    #[inline]
    fn answer(
        &mut self,
        most: Option<u64>,
        request: &mut Request<'_, S>,
        response: Response,
    ) -> Answer<Kept<S>> {
        if let Some(presence) = request.take_presence() {
            return self.answer_watched(most, request, response, presence);
        }
        match *response.body() {
            Body::Later(number) => self.answer_later(most, request, response, number),
            _ => Answer::Respond(response),
        }
    }

    /// The same, for a request that tells whether its client is there.
    #[cold]
    fn answer_watched(
        &mut self,
        most: Option<u64>,
        request: &mut Request<'_, S>,
        response: Response,
        presence: Presence,
    ) -> Answer<Kept<S>> {
        Answer::Watched(presence, Box::new(self.answer(most, request, response)))
    }

    /// What the request has asked for, whose response has this number.
    #[inline(never)]
    fn answer_later(
        &mut self,
        most: Option<u64>,
        request: &mut Request<'_, S>,
        response: Response,
        number: u32,
    ) -> Answer<Kept<S>> {
        let has_come = request.has_come();
        match request.take_asked() {
            Some((asked, Asked::Job(job, then))) if asked == number => {
                Answer::Job(job, Kept::Then(then))
            }
            Some((asked, Asked::Fetch(fetch, then))) if asked == number => {
                Answer::Fetch(fetch, Kept::Fetched(then))
            }
            Some((asked, Asked::Forward(plan))) if asked == number => {
                Answer::Forward(plan, request.collected().map(Arc::from), most)
            }
            Some((asked, Asked::Collect(most, then))) if asked == number && !has_come => {
                Answer::Collect(most, Kept::Behind(then))
            }
            Some((asked, Asked::Receive(receiver))) if asked == number && !has_come => {
                Answer::Receive(most, Taking::Bytes, Kept::Receiver(receiver))
            }
            Some((asked, Asked::Save(to, then))) if asked == number && !has_come => {
                let limit = to.1.limit.or(most);
                Answer::Receive(limit, Taking::File(to), Kept::Saver(then, None))
            }
            #[cfg(feature = "multipart")]
            Some((asked, Asked::Parts(limit, decoder, receiver)))
                if asked == number && !has_come =>
            {
                Answer::Receive(limit.or(most), Taking::Form(decoder), Kept::Parts(receiver))
            }
            Some((asked, asks)) if asked == number && asks.is_for_body() => {
                const LATE: &str = "a handler asks for a body that it has: see `App::at_head`";
                let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(LATE);
                Answer::Respond(error.into())
            }
            Some((asked, Asked::Upgrade(protocol, raw))) if asked == number => {
                self.upgrade(response, protocol, raw)
            }
            _ => {
                const TWICE: &str = "a handler has asked for two responses, and returned the first";
                let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(TWICE);
                Answer::Respond(error.into())
            }
        }
    }
}

impl<S: 'static> Plan<S> {
    #[inline]
    fn request<'a>(
        &'a self,
        id: RouteId,
        arrived: Arrived<'a>,
        params: &'a Option<Params<'a, 'a>>,
    ) -> Request<'a, S> {
        Request::new(arrived, &self.remote, self.routes.pattern(id), params.as_ref())
    }

    /// The parts of a path again, for hooks behind the handler of its request.
    fn params<'a>(&'a self, arrived: Option<Arrived<'a>>) -> Option<Params<'a, 'a>> {
        arrived.and_then(|arrived| self.routes.find(arrived.head, arrived.bytes).1)
    }
}

/// The response to a request that no handler is for.
#[cold]
fn without_route<S>(routes: &Routes<S>, found: &Found<'_, S>) -> Response {
    let allow = |id: u32| routes.all[id as usize].allow.clone();
    let allow = match *found {
        Found::Options(Some(id)) => allow(id),
        Found::Options(None) => "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS".into(),
        Found::NoMethod(id) => {
            return Error::new(Status::METHOD_NOT_ALLOWED).header("Allow", allow(id)).into();
        }
        Found::Unknown(_) => return Status::NOT_IMPLEMENTED.into(),
        Found::NoPath(_) | Found::Route(..) | Found::Fallback(..) => {
            return Status::NOT_FOUND.into();
        }
    };
    Response::empty(Status::NO_CONTENT).header("Allow", allow)
}
