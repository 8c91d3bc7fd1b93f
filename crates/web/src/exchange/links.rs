//! Requests to other servers that requests wait for.

use std::num::NonZeroU16;

use windlass::Buf;
use windlass_serve::ops::Completed;
use windlass_serve::{Cause, Engine};

use super::peer::PeerMark;
use super::program::Program;
#[cfg(feature = "websocket")]
use super::raw::News;
use super::respond::{Context, Next};
use super::{Exchange, IS_OTHER, LINK, Machine, Slot, Stage, Wire};
use crate::client::error::FetchError;
use crate::client::fetch::Fetch;
use crate::client::fetched::Fetched;
use crate::client::hub::{CallId, LinkState, Requester, Step};
use crate::client::news::LinkEnd;
use crate::client::settings::FetchSettings;

/// Something that has happened on a link.
pub(super) enum LinkNews {
    Opened,
    Data(Buf),
    Eof,
    Drained,
    LimitReached(Cause),
}

impl<K> LinkState for Slot<K> {
    fn of_link(number: u32) -> Slot<K> {
        let bits = NonZeroU16::MIN.saturating_add(LINK - 1) | IS_OTHER;
        Slot { exchange: None, peer: PeerMark::of_number(number), bits }
    }
}

impl<K> Slot<K> {
    /// The number of its link, if it is one.
    #[inline]
    pub(crate) fn link(&self) -> Option<u32> {
        let is_link = self.bits.get() & (IS_OTHER | LINK) == IS_OTHER | LINK;
        if is_link { Some(self.peer.number()) } else { None }
    }
}

impl<K: 'static> Machine<K> {
    /// Something has happened on a link.
    #[cold]
    pub(super) fn hear_link<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        number: u32,
        news: LinkNews,
    ) {
        match news {
            LinkNews::Opened => self.hub.opened(engine, number),
            LinkNews::Data(data) => self.hub.data(engine, number, data),
            LinkNews::Eof => self.hub.eof(engine, number),
            LinkNews::Drained => self.hub.drained(number),
            LinkNews::LimitReached(Cause::Idle) => self.hub.is_idle(number),
            LinkNews::LimitReached(cause) => self.hub.fail(number, cause),
        }
        self.take_steps(program, engine);
    }

    /// A link is over.
    #[cold]
    pub(crate) fn link_closed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        number: u32,
        end: LinkEnd,
    ) {
        self.hub.closed(engine, number, end);
        self.take_steps(program, engine);
    }

    /// An operation of the engine has completed that may be the hub's.
    #[cold]
    pub(super) fn completed_link<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        mut completed: Completed,
    ) {
        if self.hub.completed(engine, &mut completed) {
            self.take_steps(program, engine);
        }
    }

    /// Does what follows of what the hub was told.
    pub(super) fn take_steps<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        while let Some(step) = self.hub.step(engine) {
            match step {
                Step::Done(Requester::Request(id), result) => {
                    self.begin_callback(engine);
                    self.fetched(program, &mut Wire { engine, id }, result);
                }
                Step::Done(Requester::Own(call), result) => program.own_fetched(call, result),
                #[cfg(feature = "websocket")]
                Step::Done(Requester::OwnSwitch(call), result) => {
                    program.not_switched(call, result);
                }
                #[cfg(feature = "websocket")]
                Step::Switched(call) => self.link_goes_over(program, engine, call),
                step => self.pass_on(program, engine, step),
            }
        }
        self.limit_last_begun(engine);
    }

    /// Begins a call of the program, which asks for the [steps](Machine::take_own_steps) then.
    pub(crate) fn begin_own(&mut self, engine: &mut Engine<Slot<K>>, fetch: Fetch) -> CallId {
        self.hub.begin_own(engine, Box::new(fetch), Requester::Own)
    }

    /// The same, for a call that wants the connection behind a 101.
    #[cfg(feature = "websocket")]
    pub(crate) fn begin_switch(
        &mut self,
        engine: &mut Engine<Slot<K>>,
        mut fetch: Fetch,
    ) -> CallId {
        if self.is_draining {
            fetch.broken.get_or_insert(FetchError::Refused);
        }
        self.hub.begin_own(engine, Box::new(fetch), Requester::OwnSwitch)
    }

    /// The connection of a call becomes the program's.
    #[cfg(feature = "websocket")]
    fn link_goes_over<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        call: CallId,
    ) {
        if self.hub.id_of(call).is_none() {
            self.hub.cancel(engine, call);
            return program.not_switched(call, Err(FetchError::Ended));
        }
        let response = self.hub.response();
        let raw = response.and_then(|(head, bytes)| program.switched(call, head, bytes));
        let Some(raw) = raw else {
            self.hub.cancel(engine, call);
            return;
        };
        let Some((id, rest, has_ended)) = self.hub.take_over(engine, call) else { return };
        if let Some(slot) = engine.state_mut(id) {
            *slot = Slot::of_raw(raw);
        }
        let news = [
            Some(News::Opened),
            (!rest.is_empty()).then_some(News::Data(rest)),
            has_ended.then_some(News::Eof),
            self.is_draining.then_some(News::Stopping),
        ];
        for news in news.into_iter().flatten() {
            if !self.raw_news(program, engine, (id, raw), news) {
                break;
            }
        }
    }

    /// Ends a call of the program. False if it is over.
    pub(crate) fn cancel_own(&mut self, engine: &mut Engine<Slot<K>>, call: CallId) -> bool {
        self.hub.cancel(engine, call)
    }

    /// Does what follows of calls that the program has begun, if there is something.
    #[inline]
    pub(crate) fn take_own_steps<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        if self.hub.has_news() {
            self.take_steps(program, engine);
        }
    }

    /// Sets how it asks other servers, before it has asked one.
    pub(crate) fn set_client(&mut self, settings: FetchSettings) {
        self.hub.settings = std::sync::Arc::new(settings);
    }

    /// Begins a call that a request waits for.
    #[cold]
    pub(super) fn fetch<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        (fetch, keep): (Box<Fetch>, K),
    ) -> Next<K> {
        match self.hub.begin(wire.engine, Requester::Request(wire.id), fetch) {
            Ok(call) => self.wait_for(wire, exchange, context, Stage::Fetch(call, keep)),
            Err(error) => {
                let answer = program.within(wire.id, |program| program.fetched(keep, Err(error)));
                self.answer(program, wire, exchange, context, answer)
            }
        }
    }

    /// The call of a request that waits is over.
    fn fetched<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        result: Result<Fetched, FetchError>,
    ) {
        let Some((exchange, keep)) = self.take_waiting(wire) else { return };
        let answer = program.within(wire.id, |program| program.fetched(keep, result));
        self.answer_late(program, wire, exchange, answer);
    }
}
