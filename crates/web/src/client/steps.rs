//! What follows of what has come: bytes into responses.

use std::ops::Range;
use std::time::Duration;

use windlass::net::SocketOption;
use windlass_http1::{Error as CodecError, Event, Framing, Rule};
use windlass_serve::Engine;

#[cfg(feature = "deflate")]
use crate::coding::inflate::{CodingError, Inflater};

use super::call::{Reached, Requester, Step};
use super::error::{FetchError, FetchPhase};
use super::hub::Hub;
use super::link::LinkState;
use super::pump::failed;
use super::redirect;
use crate::words::status::Status;

/// How many bytes of the body of a redirect are read, so that its connection goes on.
const MOST_SKIPPED: u64 = 64 << 10;

/// How much memory is set aside for a body before it comes.
const AHEAD: u64 = 64 << 10;

impl Hub {
    /// What follows for a caller; `None` if it is nothing. Ask until then, behind each call of the
    /// hub that is told something, and behind [`set_reads`](Hub::set_reads).
    pub(crate) fn step<S: LinkState>(&mut self, engine: &mut Engine<S>) -> Option<Step> {
        loop {
            while let Some(site) = self.next_to_pump() {
                self.pump(engine, site);
            }
            if let Some(step) = self.over.pop_front() {
                return Some(step);
            }
            let number = *self.ready.front()?;
            self.last = number;
            if let Some(step) = self.step_of(engine, number) {
                return Some(step);
            }
            self.ready.pop_front();
        }
    }

    /// What follows on a link.
    fn step_of<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) -> Option<Step> {
        let link = self.links.get_mut(number as usize)?.as_mut()?;
        let at = link.call?;
        if let Some(error) = link.failed.take() {
            return self.break_call(engine, number, error);
        }
        if std::mem::take(&mut link.has_drained) {
            link.hear(engine);
            let call = &mut self.calls[at as usize];
            if call.fetch.is_none() {
                return call.requester.map(Step::Drained);
            }
            if call.sender.is_some() && !call.is_held {
                self.send_body(engine, at);
            }
        }
        let link = self.links[number as usize].as_mut()?;
        if link.is_tunnel {
            let requester = self.calls[link.call? as usize].requester?;
            if !link.input.is_empty() {
                return Some(Step::Body(requester, link.input.take()));
            }
            return std::mem::take(&mut link.is_at_end).then_some(Step::Ended(requester));
        }
        loop {
            let link = self.links[number as usize].as_mut()?;
            let call = &mut self.calls[link.call? as usize];
            let requester = call.requester?;
            if link.is_paused {
                link.input.settle();
                return None;
            }
            #[cfg(feature = "deflate")]
            match self.take_coded(engine, number) {
                Coded::Nothing => {}
                Coded::NoPart => continue,
                Coded::Step(step) => return step,
            }
            let link = self.links[number as usize].as_mut()?;
            let call = &mut self.calls[link.call? as usize];
            let event = match link.decoder.decode(&mut self.head, link.input.rest()) {
                Ok(step) => {
                    link.head_at = link.input.pass(step.consumed);
                    (step.event, step.consumed)
                }
                Err(error) => return self.refuse(engine, number, error),
            };
            match event {
                (Event::Interim, _) => {
                    let is_continue = self.head.status() == 100;
                    if call.fetch.is_none() {
                        return Some(Step::Interim(requester));
                    }
                    if is_continue && call.is_held {
                        let at = link.call?;
                        self.send_body(engine, at);
                        self.set_phase(engine, at, FetchPhase::Head);
                    }
                }
                (Event::Head, consumed) => {
                    if let Some(step) = self.take_head(engine, number, consumed) {
                        return Some(step);
                    }
                }
                (Event::Body(range), _) => {
                    let range = link.head_at + range.start..link.head_at + range.end;
                    if let Some(step) = self.take_body(engine, number, range) {
                        return Some(step);
                    }
                }
                (Event::Trailers, _) if call.fetch.is_none() => {
                    return Some(Step::Trailers(requester));
                }
                (Event::Trailers, _) => {}
                (Event::End, _) => return self.end(engine, number),
                (Event::NeedMore | Event::Closed, _) if link.is_at_end => {
                    return match link.decoder.finish(link.input.rest()) {
                        Ok(_) => self.end(engine, number),
                        Err(_) => self.break_call(engine, number, FetchError::Ended),
                    };
                }
                (Event::NeedMore | Event::Closed, _) => break,
            }
        }
        self.wait_for_more(engine, number);
        None
    }

    /// A part of a body has come.
    fn take_body<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        number: u32,
        range: Range<usize>,
    ) -> Option<Step> {
        let link = self.links[number as usize].as_mut()?;
        let call = &mut self.calls[link.call? as usize];
        if call.leads_to.is_some() {
            return None;
        }
        #[cfg(feature = "deflate")]
        if call.is_streamed() && call.inflater.is_some() {
            link.coded = range.len();
            link.input.pass_back(range.len());
            return None;
        }
        if call.is_streamed() {
            return Some(Step::Body(call.requester?, link.input.part(range)));
        }
        let bytes = &link.input.from(range.start)[..range.len()];
        #[cfg(feature = "deflate")]
        if let Some(inflater) = &mut call.inflater {
            let error = inflate(&mut inflater.0, bytes, &mut call.response).err()?;
            let error = coding_error(error, call.limit);
            return self.break_call(engine, number, error);
        }
        call.response.extend_from_slice(bytes);
        let _ = engine;
        None
    }

    /// Decodes a part of a body that comes compressed, for a caller that gets it in parts.
    #[cfg(feature = "deflate")]
    fn take_coded<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) -> Coded {
        let Some(link) = self.links[number as usize].as_mut() else { return Coded::Step(None) };
        let Some(at) = link.call else { return Coded::Step(None) };
        let call = &mut self.calls[at as usize];
        let is_streamed = call.is_streamed();
        let (Some(inflater), Some(requester)) = (&mut call.inflater, call.requester) else {
            return Coded::Nothing;
        };
        if !is_streamed || (link.coded == 0 && !inflater.1) {
            return Coded::Nothing;
        }
        let mut part = Vec::new();
        match inflater.0.decode(&link.input.rest()[..link.coded], &mut part) {
            Ok(decoded) => {
                link.input.pass(decoded.consumed);
                link.coded -= decoded.consumed;
                inflater.1 = decoded.has_more;
            }
            Err(error) => {
                let error = coding_error(error, call.limit);
                return Coded::Step(self.break_call(engine, number, error));
            }
        }
        match part.is_empty() {
            true => Coded::NoPart,
            false => Coded::Step(Some(Step::Body(requester, part.into()))),
        }
    }

    /// All that has come is decoded, and the response is not whole.
    fn wait_for_more<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) {
        let Some(link) = self.links[number as usize].as_mut() else { return };
        link.input.settle();
        let Some(at) = link.call else { return };
        let call = &self.calls[at as usize];
        let held = call.response.len() + link.input.rest().len();
        link.charge(engine, held);
        if call.phase == FetchPhase::Body {
            self.set_phase(engine, at, FetchPhase::Body);
        }
    }

    /// The head of a response has come.
    fn take_head<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        number: u32,
        len: usize,
    ) -> Option<Step> {
        let link = self.links[number as usize].as_mut()?;
        let call = &mut self.calls[link.call? as usize];
        let (code, requester) = (self.head.status(), call.requester?);
        let Some(status) = Status::new(code) else {
            return self.break_call(engine, number, FetchError::Status(code));
        };
        link.keeps = self.head.keep_alive() && call.asked.keep_alive;
        (call.status, call.phase) = (status, FetchPhase::Body);
        let bytes = link.input.from(link.head_at);
        if let Some(fetch) = &call.fetch
            && fetch.redirects > 0
            && redirect::leads_elsewhere(code, fetch)
            && let Some(to) = self.head.get(bytes, "location")
        {
            let to = String::from_utf8_lossy(to).into_owned();
            if self.head.get_all(bytes, "location").nth(1).is_some() {
                let why = "Location is there several times";
                return self.break_call(engine, number, FetchError::Redirect { to, why });
            }
            call.leads_to = Some(to);
            if let Err(error) = link.decoder.limit_body(MOST_SKIPPED) {
                return self.refuse(engine, number, error);
            }
            return None;
        }
        if let Err(error) = link.decoder.limit_body(call.limit) {
            return self.refuse(engine, number, error);
        }
        #[cfg(feature = "deflate")]
        if let Some(fetch) = &call.fetch
            && fetch.decodes
            && !fetch.has("accept-encoding")
            && !fetch.has("range")
            && !matches!(self.head.framing(), Framing::Empty | Framing::Tunnel)
        {
            let values = self.head.get_all(bytes, "content-encoding");
            let values = values.map(|value| std::str::from_utf8(value).unwrap_or("?"));
            match Inflater::of(values, call.limit) {
                Ok(inflater) => {
                    call.inflater = inflater.map(|inflater| Box::new((inflater, false)))
                }
                Err(error) => {
                    let error = coding_error(error, call.limit);
                    return self.break_call(engine, number, error);
                }
            }
            call.is_decoded = call.inflater.is_some();
        }
        link.is_tunnel = self.head.framing() == Framing::Tunnel;
        #[cfg(feature = "websocket")]
        if let (Requester::OwnSwitch(call), true) = (requester, link.is_tunnel) {
            return Some(Step::Switched(call));
        }
        if let Some(id) = link.id.filter(|_| link.is_tunnel) {
            // An end of file would say that the client has sent no more.
            engine.set_option(id, SocketOption::Linger(Some(Duration::ZERO)));
        }
        if call.is_streamed() {
            return Some(Step::Head(requester));
        }
        let body = match self.head.framing() {
            Framing::Length(len) => len.min(AHEAD) as usize,
            _ => 0,
        };
        call.response.clear();
        call.response.reserve_exact(len + body);
        call.response.extend_from_slice(&bytes[..len]);
        call.body_at = len;
        None
    }

    /// What has come is no response, or is too long.
    #[cold]
    fn refuse<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        number: u32,
        error: CodecError,
    ) -> Option<Step> {
        let at = self.call_of_link(number)?;
        let call = &mut self.calls[at as usize];
        if error.rule() != Rule::BodyTooLong {
            return self.break_call(engine, number, FetchError::Response(error));
        }
        if call.leads_to.is_some() {
            // The body of a redirect is not worth its connection.
            call.link = None;
            self.let_go(engine, number);
            return self.follow(engine, at);
        }
        let limit = call.limit;
        self.break_call(engine, number, FetchError::TooLong { limit })
    }

    /// A response is whole.
    fn end<S: LinkState>(&mut self, engine: &mut Engine<S>, number: u32) -> Option<Step> {
        let link = self.links[number as usize].as_mut()?;
        let at = link.call?;
        let call = &mut self.calls[at as usize];
        #[cfg(feature = "deflate")]
        if let Some(inflater) = &call.inflater
            && let Err(error) = inflater.0.end()
        {
            let error = coding_error(error, call.limit);
            return self.break_call(engine, number, error);
        }
        let is_whole = call.is_whole() && !link.is_sending(engine);
        call.link = None;
        link.call = None;
        link.served = link.served.saturating_add(1);
        link.input.settle();
        link.charge(engine, 0);
        if std::mem::take(&mut link.is_limited)
            && let Some(id) = link.id
        {
            engine.limit(id, None, 0);
        }
        if link.can_go_on() && is_whole && !self.is_draining {
            link.idle_since = engine.now();
            let (site, end) = (link.site, link.idle_since + self.settings.idle);
            let of = self.pool.site(site);
            of.idle.push(number);
            let waits = !of.waiting.is_empty();
            self.has_room = true;
            if waits {
                self.to_pump.push_back(site);
            }
            self.arm(engine, end);
        } else if is_whole && link.input.is_empty() {
            self.retire(engine, number);
        } else {
            self.let_go(engine, number);
        }
        if self.calls[at as usize].leads_to.is_some() {
            return self.follow(engine, at);
        }
        let call = &mut self.calls[at as usize];
        let requester = call.requester?;
        let step = match requester {
            Requester::Stream(_) | Requester::OwnStream(_) => Step::End(requester),
            _ => Step::Done(requester, Ok(call.take_response())),
        };
        self.free_call(at);
        Some(step)
    }

    /// A call goes where its response leads.
    fn follow<S: LinkState>(&mut self, engine: &mut Engine<S>, at: u32) -> Option<Step> {
        let call = &mut self.calls[at as usize];
        let requester = call.requester?;
        let to = call.leads_to.take()?;
        let (status, left) = (call.status.code(), call.redirects);
        let fetch = call.fetch.as_mut()?;
        let followed = match left {
            0 => Err(FetchError::Redirect { to, why: "there were too many redirects" }),
            _ => redirect::follow(fetch, status, &to),
        };
        call.begin_again();
        (call.redirects, call.has_moved, call.is_again) = (left.saturating_sub(1), true, false);
        let followed = followed.and_then(|()| self.prepare(at));
        let error = followed.and_then(|()| self.place(engine, at)).err()?;
        self.free_call(at);
        Some(failed(requester, error, Reached::Nothing))
    }

    /// The link of a call has failed. The request is sent again if that does no harm: if it was
    /// sent on a link that was kept, which the server may have closed before it came.
    fn break_call<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        number: u32,
        error: FetchError,
    ) -> Option<Step> {
        let link = self.links[number as usize].as_mut()?;
        let (at, was_kept) = (link.call?, link.served > 0 && !link.has_heard);
        let reached = link.reached();
        let is_end = matches!(error, FetchError::Ended | FetchError::Connection(_));
        self.let_go(engine, number);
        let call = &mut self.calls[at as usize];
        let requester = call.requester?;
        call.link = None;
        if was_kept && is_end && call.can_go_again() {
            call.is_again = true;
            let Err(error) = self.place(engine, at) else { return None };
            self.free_call(at);
            return Some(failed(requester, error, reached));
        }
        self.free_call(at);
        Some(failed(requester, error, reached))
    }
}

/// What has come of a part of a body that is compressed.
#[cfg(feature = "deflate")]
enum Coded {
    /// There is none.
    Nothing,
    /// It has no byte of the body.
    NoPart,
    Step(Option<Step>),
}

#[cfg(feature = "deflate")]
fn coding_error(error: CodingError, limit: u64) -> FetchError {
    match error {
        CodingError::TooLong => FetchError::TooLong { limit },
        other => FetchError::Body(other.to_string()),
    }
}

/// Decodes a part of a body whole. Its decoder bounds it.
#[cfg(feature = "deflate")]
fn inflate(
    inflater: &mut Inflater,
    mut bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodingError> {
    loop {
        let decoded = inflater.decode(bytes, out)?;
        bytes = &bytes[decoded.consumed..];
        if !decoded.has_more {
            return Ok(());
        }
    }
}
