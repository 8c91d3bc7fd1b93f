//! Requests into calls of handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use windlass::Message;
use windlass_serve::{Engine, Id};

use super::hooks::Finished;
use super::routes::Found;
use super::{Kept, Perform};
use crate::exchange::Slot;
use crate::exchange::program::{Answer, Begin, End, Program, RouteId};
use crate::exchange::raw::{News, Over};
use crate::message::arrived::Arrived;
use crate::message::head::Head;
use crate::message::request::{Asked, Request};
use crate::message::response::{Body, Response};
use crate::words::error::Error;
use crate::words::status::Status;

impl<S: 'static> Program for Perform<S> {
    type Keep = Kept<S>;

    fn begin(&mut self, arrived: Arrived<'_>) -> Begin<Kept<S>> {
        let plan = Rc::clone(&self.plan);
        let (kind, method) = (arrived.head.kind(), arrived.head.method(arrived.bytes));
        let (found, params) = plan.routes.find(kind, method, arrived.head.path(arrived.bytes));
        let (id, route) = match &found {
            Found::Route(id, route) => (RouteId(*id), *route),
            Found::Fallback(route) => (RouteId::NONE, *route),
            _ => {
                let (id, response) = self.without_route(found);
                return Begin::Answer(id, Answer::Respond(response));
            }
        };
        let mut request = Request::new(arrived, self.pattern(&plan, id), params);
        if let Some(response) = self.call_before(&plan, id, &mut request) {
            let answer = self.answer(id, request, response);
            return Begin::Answer(id, answer);
        }
        if route.at_head {
            let response = self.call(id, |state| (route.handler)(state, &mut request));
            let answer = self.answer(id, request, response);
            return Begin::Answer(id, answer);
        }
        Begin::Collect(id, route.body_limit)
    }

    #[inline]
    fn request(
        &mut self,
        arrived: Arrived<'_>,
        body: &[u8],
        begun: bool,
    ) -> (RouteId, Answer<Kept<S>>) {
        let plan = Rc::clone(&self.plan);
        let (kind, method) = (arrived.head.kind(), arrived.head.method(arrived.bytes));
        let (found, params) = plan.routes.find(kind, method, arrived.head.path(arrived.bytes));
        let (id, route) = match &found {
            Found::Route(id, route) => (RouteId(*id), *route),
            Found::Fallback(route) => (RouteId::NONE, *route),
            _ => {
                let (id, response) = self.without_route(found);
                return (id, Answer::Respond(response));
            }
        };
        let mut request = Request::new(arrived, self.pattern(&plan, id), params);
        if !begun {
            if let Some(response) = self.call_before(&plan, id, &mut request) {
                return (id, self.answer(id, request, response));
            }
            let most = route.body_limit.unwrap_or(plan.body);
            if body.len() as u64 > most {
                const LONG: &str = "the body is longer than the limit";
                let error = Error::new(Status::CONTENT_TOO_LARGE).text(LONG);
                return (id, Answer::Respond(self.shape(id, error)));
            }
        }
        request.set_body((!route.at_head).then_some(body));
        let response = self.call(id, |state| (route.handler)(state, &mut request));
        (id, self.answer(id, request, response))
    }

    fn executed(&mut self, keep: Kept<S>, output: Message) -> Answer<Kept<S>> {
        let response = self.call(RouteId::NONE, |state| keep(state, output));
        Answer::Respond(response)
    }

    fn raw(&mut self, engine: &mut Engine<Slot<Kept<S>>>, id: Id, raw: u32, news: News) -> bool {
        self.tell(engine, id, raw, news)
    }

    fn raw_over(&mut self, raw: u32, over: Over) {
        self.end_of_raw(raw, over);
    }

    fn respond_to(&mut self, route: RouteId, error: Error) -> Response {
        self.shape(route, error)
    }

    #[inline]
    fn is_watched(&self, route: RouteId) -> bool {
        let plan = &self.plan;
        let nested = plan.routes.all.get(route.0 as usize).map_or(&[][..], |one| &one.nested);
        let is_bare = plan.hooks.after.is_empty() && plan.hooks.finished.is_empty();
        !is_bare || !nested.is_empty()
    }

    fn decided(&mut self, route: RouteId, arrived: Option<Arrived<'_>>, head: &mut Head) {
        let plan = &self.plan;
        let nested = plan.routes.all.get(route.0 as usize).map_or(&[][..], |one| &one.nested);
        if plan.hooks.after.is_empty() && nested.is_empty() {
            return;
        }
        let pattern = plan.routes.all.get(route.0 as usize).map_or("", |one| &one.pattern);
        let request =
            arrived.map(|arrived| Request::new(arrived, pattern, matchit::Params::default()));
        // The innermost hooks come first: the outer ones see what they have made.
        let inner = nested.iter().rev().flat_map(|hooks| &hooks.after);
        for hook in inner.chain(&plan.hooks.after) {
            hook(&mut self.state, request.as_ref(), head);
        }
    }

    fn finished(&mut self, route: RouteId, _arrived: Option<Arrived<'_>>, end: End<'_>) {
        let plan = &self.plan;
        let resource = plan.routes.all.get(route.0 as usize);
        let nested = resource.map_or(&[][..], |one| &one.nested);
        if plan.hooks.finished.is_empty() && nested.is_empty() {
            return;
        }
        let finished = Finished {
            route: resource.map_or("", |one| &one.pattern),
            status: end.status,
            sent: end.sent,
            error: end.error,
            to_head: end.times.map(|(start, head)| head - start),
            took: end.times.map_or(Duration::ZERO, |(start, head)| head - start),
        };
        let inner = nested.iter().rev().flat_map(|hooks| &hooks.finished);
        for hook in inner.chain(&plan.hooks.finished) {
            hook(&mut self.state, &finished);
        }
    }
}

impl<S: 'static> Perform<S> {
    fn pattern<'p>(&self, plan: &'p super::Plan<S>, id: RouteId) -> &'p str {
        plan.routes.all.get(id.0 as usize).map_or("", |one| &one.pattern)
    }

    /// The response of the first hook that has one.
    #[inline]
    fn call_before(
        &mut self,
        plan: &super::Plan<S>,
        id: RouteId,
        request: &mut Request<'_, S>,
    ) -> Option<Response> {
        let nested = plan.routes.all.get(id.0 as usize).map_or(&[][..], |one| &one.nested);
        let inner = nested.iter().flat_map(|hooks| &hooks.before);
        for hook in plan.hooks.before.iter().chain(inner) {
            let mut answer = None;
            let panicked = self.call(id, |state| {
                answer = hook(state, request);
                Response::empty(Status::OK)
            });
            if panicked.error().is_some() {
                return Some(panicked);
            }
            if let Some(response) = answer {
                return Some(self.shaped(id, response));
            }
        }
        None
    }

    /// Calls a handler. A panic is a 500, and ends the connection behind it.
    #[inline]
    fn call(&mut self, id: RouteId, call: impl FnOnce(&mut S) -> Response) -> Response {
        let state = &mut self.state;
        match catch_unwind(AssertUnwindSafe(|| call(state))) {
            Ok(response) => self.shaped(id, response),
            Err(_) => {
                self.panics += 1;
                let error = Error::new(Status::INTERNAL_SERVER_ERROR).because("a handler panicked");
                self.shape(id, error).close()
            }
        }
    }

    /// A response, or what `on_error` makes of its error.
    #[inline]
    fn shaped(&mut self, id: RouteId, mut response: Response) -> Response {
        match response.take_error() {
            None => response,
            Some(error) => self.shape(id, error),
        }
    }

    #[cold]
    fn shape(&mut self, id: RouteId, error: Error) -> Response {
        let plan = &self.plan;
        let nested = plan.routes.all.get(id.0 as usize).map_or(&[][..], |one| &one.nested);
        let shape = nested.iter().rev().find_map(|hooks| hooks.on_error.as_ref());
        let Some(shape) = shape.or(plan.hooks.on_error.as_ref()) else { return error.into() };
        let state = &mut self.state;
        let shaped = catch_unwind(AssertUnwindSafe(|| shape(state, &error)));
        match shaped {
            Ok(mut response) => {
                response.keep_error(error);
                response
            }
            Err(_) => {
                self.panics += 1;
                error.into()
            }
        }
    }

    /// The response, or what the request has asked for.
    fn answer(
        &mut self,
        id: RouteId,
        mut request: Request<'_, S>,
        response: Response,
    ) -> Answer<Kept<S>> {
        let Body::Later(number) = *response.body() else { return Answer::Respond(response) };
        match request.take_asked() {
            Some((asked, Asked::Job(job, then))) if asked == number => Answer::Job(job, then),
            Some((asked, Asked::Upgrade(protocol, raw))) if asked == number => {
                self.upgrade(response, protocol, raw)
            }
            _ => {
                const TWICE: &str = "a handler has asked for two responses, and returned the first";
                let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(TWICE);
                Answer::Respond(self.shape(id, error))
            }
        }
    }

    #[cold]
    fn without_route(&mut self, found: Found<'_, S>) -> (RouteId, Response) {
        let allow = |id: u32| self.plan.routes.all[id as usize].allow.clone();
        match found {
            Found::Options(id) => {
                let value = match id {
                    Some(id) => allow(id),
                    None => "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS".into(),
                };
                let response = Response::empty(Status::NO_CONTENT).header("Allow", value);
                (id.map_or(RouteId::NONE, RouteId), response)
            }
            Found::NoMethod(id) => {
                let error = Error::new(Status::METHOD_NOT_ALLOWED).header("Allow", allow(id));
                (RouteId(id), self.shape(RouteId(id), error))
            }
            Found::Unknown => {
                (RouteId::NONE, self.shape(RouteId::NONE, Status::NOT_IMPLEMENTED.into()))
            }
            _ => (RouteId::NONE, self.shape(RouteId::NONE, Status::NOT_FOUND.into())),
        }
    }
}
