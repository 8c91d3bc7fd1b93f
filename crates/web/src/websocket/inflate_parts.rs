//! How a session tells messages in parts.
//!
//! # Why
//! An inflater has tens of kilobytes and cannot be put aside in the middle of a message. So a loop
//! has few of them for messages in parts, and a connection that finds none is not read until
//! another one has given its own back, by whatever end.

#[cfg(not(feature = "deflate"))]
use windlass_websocket::Error;
#[cfg(feature = "deflate")]
use windlass_websocket::{Error, Kind, Rule};

use super::carrier::Carrier;
#[cfg(feature = "deflate")]
use super::parts::InflatingParts;
use super::parts::MessagePart;
use super::session::{Hear, PeerNews, Session};
use super::unfinished::UnfinishedInput;

impl Session {
    /// Tells a part of a message. False if nothing more is taken now.
    pub(super) fn tell_part(
        &mut self,
        carrier: &mut dyn Carrier,
        unfinished: &mut UnfinishedInput,
        (part, is_compressed): (MessagePart, bool),
        hear: &mut Hear<'_>,
    ) -> Result<bool, Error> {
        #[cfg(feature = "deflate")]
        if is_compressed && self.is_open() {
            let inflating = unfinished
                .inflating
                .get_or_insert_with(|| Box::new(InflatingParts::new(part.kind)));
            inflating.pending.extend_from_slice(&part.data);
            inflating.has_all = part.is_last;
            return self.inflate_parts(carrier, unfinished, hear);
        }
        let _ = (unfinished, is_compressed);
        if self.is_open() {
            hear(self, carrier, PeerNews::Part(part));
        }
        Ok(true)
    }

    /// Inflates what has come of a message, and tells it. False if nothing more is taken now.
    #[cfg(feature = "deflate")]
    pub(super) fn inflate_parts(
        &mut self,
        carrier: &mut dyn Carrier,
        unfinished: &mut UnfinishedInput,
        hear: &mut Hear<'_>,
    ) -> Result<bool, Error> {
        if !self.is_open() {
            unfinished.inflating = None; // the program does not get the rest
        }
        let Some(inflating) = &mut unfinished.inflating else { return Ok(true) };
        let most = self.settings.limits.message;
        let mut at = 0;
        while self.takes_messages() {
            let own = self.histories.as_deref_mut();
            if inflating.inflater.is_none() {
                let shared = &mut carrier.sockets().compression;
                inflating.inflater = shared.take_inflater(own, most);
            }
            let Some(inflater) = &mut inflating.inflater else {
                let id = carrier.id();
                carrier.sockets().compression.wait_for_inflater(id);
                self.wait(carrier);
                break;
            };
            let mut data = Vec::new();
            let step = inflater.inflate(&inflating.pending[at..], inflating.has_all, &mut data)?;
            at += step.consumed;
            inflating.has_more = step.has_more;
            let is_last = inflating.has_all && !step.has_more;
            if inflating.kind == Kind::Text {
                let utf8 = &mut inflating.utf8;
                if !utf8.push(&data) || is_last && !utf8.is_whole() {
                    return Err(Rule::Utf8.into());
                }
            }
            if is_last && let Some(inflater) = inflating.inflater.take() {
                let own = self.histories.as_deref_mut();
                carrier.sockets().compression.put_inflater_back(own, inflater);
            }
            if (!data.is_empty() || is_last) && self.is_open() {
                let (kind, is_first) = (inflating.kind, !inflating.is_told);
                inflating.is_told = true;
                let part = MessagePart { kind, data: data.into(), is_first, is_last };
                hear(self, carrier, PeerNews::Part(part));
            }
            if is_last {
                unfinished.inflating = None;
                return Ok(true);
            }
            if !step.has_more {
                inflating.pending.clear();
                return Ok(true);
            }
        }
        inflating.pending.drain(..at);
        Ok(false)
    }
}
