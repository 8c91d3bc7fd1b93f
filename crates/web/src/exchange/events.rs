//! Responses that tell events: what they hear, and how they are told.

use std::sync::Arc;

#[cfg(feature = "websocket")]
use windlass::Buf;
use windlass_http1::BodyEncoder;
use windlass_serve::{Engine, Id, Refusal};

use super::program::Program;
use super::raw::News;
use super::{Machine, Slot, Stage, Wire};
use crate::message::event::EventBytes;
use crate::message::publication::Publication;
use crate::message::subscription::Subscription;
use crate::topics::TopicCall;

/// A response that hears topics.
pub(super) struct Hearing {
    subscription: Box<Subscription>,
    is_chunked: bool,
}

impl<K: 'static> Machine<K> {
    /// A response begins to hear its topics.
    pub(super) fn hear(
        &mut self,
        wire: &mut Wire<'_, K>,
        encoder: &mut BodyEncoder,
        subscription: Box<Subscription>,
    ) -> Option<Hearing> {
        if !encoder.is_sent() {
            return None; // behind a HEAD
        }
        let mut probe = Vec::new();
        let is_chunked = encoder.before(&mut probe, 1).is_ok() && !probe.is_empty();
        for topic in &subscription.topics {
            if self.topics.subscribe(topic, wire.id) {
                self.remote.count_subscriptions(1);
            }
        }
        wire.engine.set_idle_timeout(wire.id, Some(subscription.keep_alive));
        Some(Hearing { subscription, is_chunked })
    }

    /// A response hears its topics no more.
    pub(super) fn hear_no_more(&mut self, id: Id, hearing: &Hearing) {
        for topic in &hearing.subscription.topics {
            if self.topics.unsubscribe(topic, id) {
                self.remote.count_subscriptions(-1);
            }
        }
    }

    /// Tells an event to all connections of this loop that hear its topic.
    pub(crate) fn publish<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        publication: &Publication,
    ) {
        let mut ids = std::mem::take(&mut self.subscribers);
        ids.extend(self.topics.subscribers(&publication.topic));
        for id in ids.drain(..) {
            let mut wire = Wire { engine, id };
            match wire.raw() {
                Some(raw) => {
                    let what = Arc::clone(&publication.what);
                    program.raw(wire.engine, id, raw, News::Published(what));
                }
                None => self.tell_event(&mut wire, publication),
            }
        }
        self.subscribers = ids;
    }

    /// Does what callbacks have asked for, in their order.
    #[inline]
    pub(crate) fn make_topic_calls<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        while let Some(call) = program.next_topic_call() {
            self.make_topic_call(program, engine, call);
        }
    }

    fn make_topic_call<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        call: TopicCall,
    ) {
        match call {
            TopicCall::Subscribe(id, topic) => {
                let is_raw = engine.state(id).is_some_and(|slot| slot.raw().is_some());
                if is_raw && self.topics.hear(topic, id) {
                    self.remote.count_subscriptions(1);
                }
            }
            TopicCall::Unsubscribe(id, topic) => {
                if self.topics.hear_no_more(&topic, id) {
                    self.remote.count_subscriptions(-1);
                }
            }
            #[cfg(feature = "websocket")]
            TopicCall::Continue(id) => {
                if let Some(raw) = engine.state(id).and_then(Slot::raw) {
                    self.raw_news(program, engine, (id, raw), News::Data(Buf::default()));
                }
            }
            TopicCall::Publish(own, publication) => {
                if self.remote.has_subscribers() {
                    self.remote.publish_elsewhere(own, &publication);
                    self.publish(program, engine, &publication);
                }
            }
        }
    }

    /// A connection with another protocol is over: it hears no topic any more.
    pub(super) fn forget_topics(&mut self, id: Id) {
        let count = self.topics.forget(id);
        self.remote.count_subscriptions(-(count as isize));
    }

    fn tell_event(&mut self, wire: &mut Wire<'_, K>, publication: &Publication) {
        let Some(event) = publication.what.event() else { return };
        let is_full = wire.engine.is_behind(wire.id);
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let Stage::Stream(streamed) = &mut exchange.stage else { return };
        let Some(hearing) = &streamed.hearing else { return };
        // Without a part of it, the rest of a compressed body is nothing.
        let is_lossy = hearing.subscription.is_lossy && (is_full || streamed.packing.is_none());
        if !is_full {
            match self.write_event(wire, event) {
                // It ends already.
                Ok(()) | Err(Refusal::Stale) => return,
                Err(_) => {}
            }
        }
        if is_lossy {
            self.remote.count_lost_event();
        } else {
            self.remote.count_slow_subscriber();
            self.reset(wire);
        }
    }

    /// Writes an event to a response that tells events.
    fn write_event(&mut self, wire: &mut Wire<'_, K>, event: &EventBytes) -> Result<(), Refusal> {
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else {
            return Ok(());
        };
        let Stage::Stream(streamed) = &mut exchange.stage else { return Ok(()) };
        let Some(hearing) = &streamed.hearing else { return Ok(()) };
        let len = event.plain().len() as u64;
        let Some(packing) = &mut streamed.packing else {
            let event = event.to_buf(hearing.is_chunked);
            wire.engine.write(wire.id, event).map_err(|refused| refused.reason)?;
            self.count_event(wire, len);
            return Ok(());
        };
        let mut bytes = Vec::new();
        packing.say(event.plain(), &mut bytes);
        streamed.sent += bytes.len() as u64;
        let is_encoded = streamed.encoder.data(&mut self.out, &bytes).is_ok();
        let written = wire.engine.write_slice(wire.id, &self.out);
        self.out.clear();
        if is_encoded { written } else { Err(Refusal::Stale) }
    }

    fn count_event(&mut self, wire: &mut Wire<'_, K>, len: u64) {
        if let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut())
            && let Stage::Stream(streamed) = &mut exchange.stage
        {
            streamed.sent += len;
        }
    }

    /// Nothing was sent for a while.
    pub(super) fn keep_alive(&mut self, wire: &mut Wire<'_, K>) {
        if wire.engine.is_full(wire.id) {
            return;
        }
        let comment = self.comment.clone();
        if self.write_event(wire, &comment).is_err() {
            self.reset(wire);
        }
    }

    /// The server shuts down: responses that tell events end.
    pub(super) fn end_events<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        let hears = |slot: &Slot<K>| {
            let stage = slot.exchange.as_ref().map(|exchange| &exchange.stage);
            matches!(stage, Some(Stage::Stream(streamed)) if streamed.hearing.is_some())
        };
        let ids = engine.ids().filter(|id| engine.state(*id).is_some_and(hears));
        for id in ids.collect::<Vec<Id>>() {
            let mut wire = Wire { engine, id };
            if let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) {
                exchange.asked.keep_alive = false;
            }
            self.peer_ended(program, &mut wire);
        }
    }
}

/// What goes out where nothing else does: a comment.
pub(super) fn comment() -> EventBytes {
    EventBytes::new(":\n\n")
}
