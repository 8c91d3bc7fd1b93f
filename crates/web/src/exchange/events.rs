//! Responses that tell events: what they hear, and how they are told.

use windlass_http1::BodyEncoder;
use windlass_serve::{Engine, Id, Refusal};

use super::program::Program;
use super::{Machine, Slot, Stage, Wire};
use crate::message::event::{EventBytes, Publication};
use crate::message::subscription::Subscription;

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
                self.remote.count_hearers(1);
            }
        }
        wire.engine.set_idle_timeout(wire.id, Some(subscription.keep_alive));
        Some(Hearing { subscription, is_chunked })
    }

    /// A response hears its topics no more.
    pub(super) fn hear_no_more(&mut self, id: Id, hearing: &Hearing) {
        for topic in &hearing.subscription.topics {
            if self.topics.unsubscribe(topic, id) {
                self.remote.count_hearers(-1);
            }
        }
    }

    /// Tells an event to all connections of this loop that hear its topic.
    pub(crate) fn publish(&mut self, engine: &mut Engine<Slot<K>>, publication: &Publication) {
        let mut ids = std::mem::take(&mut self.hearers);
        ids.extend(self.topics.hearers(&publication.topic));
        for id in ids.drain(..) {
            self.tell_event(&mut Wire { engine, id }, publication);
        }
        self.hearers = ids;
    }

    fn tell_event(&mut self, wire: &mut Wire<'_, K>, publication: &Publication) {
        let is_full = wire.engine.is_full(wire.id);
        let Some(exchange) = wire.slot().and_then(|slot| slot.exchange.as_mut()) else { return };
        let Stage::Stream(streamed) = &mut exchange.stage else { return };
        let Some(hearing) = &streamed.hearing else { return };
        // Without a part of it, the rest of a compressed body is nothing.
        let is_lossy = hearing.subscription.is_lossy && (is_full || streamed.packing.is_none());
        if !is_full {
            match self.write_event(wire, &publication.event) {
                // It ends already.
                Ok(()) | Err(Refusal::Stale) => return,
                Err(_) => {}
            }
        }
        if is_lossy {
            self.remote.count_lost_event();
        } else {
            self.remote.count_slow_hearer();
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
