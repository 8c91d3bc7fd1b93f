//! How a session sends messages in parts, what waits behind them, and what other threads send.
//!
//! # Why
//! No frame of another message comes between those of one (RFC 6455, section 5.4). So a whole
//! message that is sent meanwhile waits for the last part: one of the program, of a topic, or of
//! another thread. It has its room before it waits, and keeps it. No part is refused for the room
//! of what waits, which would otherwise wait for ever.
//!
//! What is compressed cannot be taken back: the peer's context would lack it. So a part has its
//! room before it is compressed, and each part is flushed, so that its room is known. The room is
//! reserved: no thread takes it meanwhile.

use std::any::Any;
use std::sync::Arc;

use windlass_serve::{Refusal, Refused, Reserved};
#[cfg(feature = "deflate")]
use windlass_websocket::deflate::StreamingDeflater;
use windlass_websocket::{CloseCode, FrameHead, Kind, Opcode};

use super::carrier::Carrier;
#[cfg(feature = "deflate")]
use super::compression::seal;
use super::message::{Message, Payload};
use super::sender::{CloseSocket, SendSocket};
use super::session::{IN_PARTS, Session};
use super::unfinished_output::{SentBehind, UnfinishedOutput};
use crate::message::publication::Published;

/// Where a part is in its message.
#[derive(Clone, Copy)]
struct PartPlace {
    begins: bool,
    is_last: bool,
}

impl PartPlace {
    fn head(self, kind: Kind, len: usize) -> FrameHead {
        let opcode = if self.begins { kind.into() } else { Opcode::Continuation };
        let head = FrameHead::new(opcode, len as u64);
        if self.is_last { head } else { head.continues() }
    }
}

impl Session {
    /// Sends a part of a message. It comes back if there is no room for it.
    pub(super) fn send_part(
        &mut self,
        carrier: &mut dyn Carrier,
        kind: Kind,
        part: Payload,
        is_last: bool,
    ) -> Result<(), (Payload, Refusal)> {
        if !self.is_open() {
            return Err((part, Refusal::Stale));
        }
        let kept = self.extras.as_mut().and_then(|extras| extras.output.take());
        let place = PartPlace { begins: kept.is_none(), is_last };
        let mut output = kept.unwrap_or_else(|| Box::new(UnfinishedOutput::new(kind)));
        let mut utf8 = output.utf8;
        if output.kind == Kind::Text && (!utf8.push(&part) || is_last && !utf8.is_whole()) {
            self.take_back(carrier, *output);
            self.close(carrier, CloseCode::INVALID, "the text is not UTF-8");
            return Err((part, Refusal::Stale));
        }
        if place.begins && is_last {
            let sent = self.send(carrier, Message::new(kind, part));
            return sent.map_err(|Refused { value, reason }| (value.into_payload(), reason));
        }
        let put = self.put_part(carrier, &mut output, part, place);
        match put {
            Ok(()) => output.utf8 = utf8,
            // The peer may have a part of it only, and its context lacks the rest.
            Err((_, Refusal::Stale)) => {
                self.take_back(carrier, *output);
                return put;
            }
            Err(_) if place.begins => return put,
            Err(_) => {}
        }
        if put.is_ok() && is_last {
            self.end_output(carrier, *output);
            return put;
        }
        self.flags |= IN_PARTS;
        self.extras.get_or_insert_default().output = Some(output);
        if place.begins {
            self.charge_output(carrier);
        }
        put
    }

    /// Writes the frame of a part.
    fn put_part(
        &mut self,
        carrier: &mut dyn Carrier,
        output: &mut UnfinishedOutput,
        part: Payload,
        place: PartPlace,
    ) -> Result<(), (Payload, Refusal)> {
        #[cfg(feature = "deflate")]
        if output.deflater.is_some() || place.begins && self.may_compress(part.len()) {
            let most = StreamingDeflater::most(part.len());
            let room = match carrier.reserve(FrameHead::MOST + most) {
                Ok(room) => room,
                Err(reason) => return Err((part, reason)),
            };
            let mut out = std::mem::take(&mut carrier.sockets().out);
            out.clear();
            out.resize(FrameHead::MOST, 0);
            let is_compressed = self.compress_part(carrier, output, &part, place, &mut out);
            let written = is_compressed.then(|| {
                let head = place.head(output.kind, out.len() - FrameHead::MOST);
                let head = if place.begins { head.compressed() } else { head };
                seal(&mut out, 0, head, self.key(carrier));
                carrier.use_room(Some(room));
                let written = carrier.write_slice(&out);
                carrier.use_room(None);
                written
            });
            carrier.sockets().out = out;
            match written {
                Some(Ok(())) => return Ok(()),
                Some(Err(_)) => {
                    self.abort(carrier);
                    return Err((part, Refusal::Stale));
                }
                None => {}
            }
        }
        match carrier.reserve(FrameHead::MOST + part.len()) {
            Ok(room) => carrier.use_room(Some(room)),
            Err(reason) => return Err((part, reason)),
        }
        let written = self.write_frame(carrier, place.head(output.kind, part.len()), part);
        carrier.use_room(None);
        written
    }

    /// Whether a message whose first part has so many bytes is one to be compressed.
    #[cfg(feature = "deflate")]
    fn may_compress(&self, len: usize) -> bool {
        self.deflate.is_some() && len >= self.settings.compress_from
    }

    /// Compresses a part. False if the message is not compressed: the loop has no deflater left, or
    /// the first part gets no smaller.
    #[cfg(feature = "deflate")]
    fn compress_part(
        &mut self,
        carrier: &mut dyn Carrier,
        output: &mut UnfinishedOutput,
        part: &[u8],
        PartPlace { begins, is_last }: PartPlace,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(window) = self.deflate else { return false };
        let with = (self.settings.level, window);
        if begins {
            let sent = self.histories.as_mut().and_then(|own| own.sent());
            output.deflater = carrier.sockets().compression.take_deflater(with, sent);
        }
        let Some(deflater) = &mut output.deflater else { return false };
        if is_last {
            deflater.end(part, out);
            return true;
        }
        deflater.write(part, out);
        deflater.flush(out);
        if !begins || out.len() - FrameHead::MOST < part.len() {
            return true;
        }
        out.truncate(FrameHead::MOST);
        self.give_deflater_back(carrier, output);
        false
    }

    /// The deflater of a message is the loop's again. The text of one that has ended joins what was
    /// sent.
    #[cfg(feature = "deflate")]
    fn give_deflater_back(&mut self, carrier: &mut dyn Carrier, output: &mut UnfinishedOutput) {
        if let Some(deflater) = output.deflater.take() {
            let sent = self.histories.as_mut().and_then(|own| own.sent());
            let level = self.settings.level;
            carrier.sockets().compression.put_deflater_back(level, sent, deflater);
        }
    }

    /// A message has ended: what has waited leaves.
    fn end_output(&mut self, carrier: &mut dyn Carrier, mut output: UnfinishedOutput) {
        let waiting = std::mem::take(&mut output.waiting);
        self.take_back(carrier, output);
        for (one, room) in waiting {
            carrier.use_room(Some(room));
            match one {
                SentBehind::Message(message) => _ = self.send_or_abort(carrier, message),
                // The connection kept up when this was published, or it would not wait.
                SentBehind::Published(what) => match self.send_published(carrier, &what) {
                    Ok(()) | Err(Refusal::Stale) => {}
                    Err(_) => self.abort(carrier),
                },
            }
        }
        carrier.use_room(None);
    }

    /// Nothing more comes of a message, which has ended or not.
    fn take_back(&mut self, carrier: &mut dyn Carrier, mut output: UnfinishedOutput) {
        #[cfg(feature = "deflate")]
        self.give_deflater_back(carrier, &mut output);
        output.waiting.clear();
        self.flags &= !IN_PARTS;
        self.extras.take_if(|extras| extras.is_nothing());
        self.charge_output(carrier);
    }

    /// Drops a message that is not whole, and what waits behind it: the connection closes.
    pub(super) fn drop_output(&mut self, carrier: &mut dyn Carrier) {
        if self.flags & IN_PARTS != 0
            && let Some(output) = self.extras.as_mut().and_then(|extras| extras.output.take())
        {
            self.take_back(carrier, *output);
        }
    }

    /// Sends a message behind the one that is not whole.
    #[cold]
    pub(super) fn send_behind(
        &mut self,
        carrier: &mut dyn Carrier,
        message: Message,
    ) -> Result<(), Refused<Message>> {
        let waits = self.wait_behind(carrier, SentBehind::Message(message), None);
        waits.map_err(|(waiting, reason)| match waiting {
            SentBehind::Message(value) => Refused { value, reason },
            SentBehind::Published(_) => unreachable!("a message comes back"),
        })
    }

    /// Sends what is published behind the message that is not whole.
    #[cold]
    pub(super) fn publish_behind(
        &mut self,
        carrier: &mut dyn Carrier,
        what: &Arc<Published>,
    ) -> Result<(), Refusal> {
        let waits = self.wait_behind(carrier, SentBehind::Published(Arc::clone(what)), None);
        waits.map_err(|(_, reason)| reason)
    }

    /// Lets something wait behind the message that is not whole, with the room that it has.
    fn wait_behind(
        &mut self,
        carrier: &mut dyn Carrier,
        waiting: SentBehind,
        room: Option<Reserved>,
    ) -> Result<(), (SentBehind, Refusal)> {
        let output = self.extras.as_mut().and_then(|extras| extras.output.as_mut());
        let Some(output) = output.filter(|_| self.flags & IN_PARTS != 0) else {
            return Err((waiting, Refusal::Stale));
        };
        let bytes = waiting.room();
        let room = room
            .map_or_else(|| carrier.would_take(bytes).and_then(|()| carrier.reserve(bytes)), Ok);
        let mut room = match room {
            Ok(room) => room,
            Err(reason) => return Err((waiting, reason)),
        };
        room.release_memory(); // it is charged here
        output.waiting_bytes += bytes;
        output.waiting.push_back((waiting, room));
        self.charge_output(carrier);
        Ok(())
    }

    /// How many bytes wait behind the message that is not whole.
    pub(super) fn waiting_behind(&self) -> usize {
        let output = self.extras.as_ref().and_then(|extras| extras.output.as_ref());
        output.map_or(0, |output| output.waiting_bytes)
    }

    /// Counts what is held between two inputs.
    fn charge_output(&mut self, carrier: &mut dyn Carrier) {
        self.charge(carrier, self.unfinished.as_ref().map_or(0, |input| input.held()));
    }

    /// Counts what is held of the input, and of the output.
    pub(super) fn charge(&self, carrier: &mut dyn Carrier, input: usize) {
        let output = self.extras.as_ref().and_then(|extras| extras.output.as_ref());
        carrier.charge(input + output.map_or(0, |output| output.held()));
    }

    /// Sends a message; one for which there is no room ends the connection.
    pub(super) fn send_or_abort(&mut self, carrier: &mut dyn Carrier, message: Message) -> bool {
        match self.send(carrier, message) {
            Ok(()) => true,
            Err(Refused { reason: Refusal::Stale, .. }) => false,
            Err(_) => {
                self.abort(carrier);
                false
            }
        }
    }

    /// Does what another thread has told it to. What is for the program comes back.
    pub(crate) fn told(
        &mut self,
        carrier: &mut dyn Carrier,
        value: Box<dyn Any + Send>,
    ) -> Option<Box<dyn Any + Send>> {
        let value = match value.downcast::<SendSocket>() {
            Ok(send) => {
                let SendSocket(message, room) = *send;
                if self.flags & IN_PARTS != 0 {
                    // It comes back only if the connection closes.
                    _ = self.wait_behind(carrier, SentBehind::Message(message), Some(room));
                    return None;
                }
                carrier.use_room(Some(room));
                self.send_or_abort(carrier, message);
                carrier.use_room(None);
                return None;
            }
            Err(value) => value,
        };
        match value.downcast::<CloseSocket>() {
            Ok(close) => {
                self.close(carrier, close.0, &close.1);
                None
            }
            Err(value) => Some(value),
        }
    }
}
