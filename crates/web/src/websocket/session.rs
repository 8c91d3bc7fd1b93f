//! One side of a connection: bytes into messages, and messages into frames.
//!
//! # Why
//! A connection has its settings, some flags, and a place for what is unfinished: a frame, or a
//! message. That place is empty between messages, and comes from a loop's spare ones. So a silent
//! connection has no decoder and no buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass::Buf;
use windlass_serve::{Cause, Id, Refusal, Refused};
#[cfg(feature = "deflate")]
use windlass_websocket::handshake::Deflate;
use windlass_websocket::{CloseCode, Error, Event, FrameHead, Kind, Opcode, Role, mask, put_close};

use super::carrier::Carrier;
#[cfg(feature = "deflate")]
use super::compression::{Histories, SocketWindow};
use super::ends::{Extras, SocketEnd};
use super::incoming::Incoming;
use super::message::{Message, Payload};
use super::parts::MessagePart;
use super::sender::SocketSender;
use super::settings::SocketSettings;
use super::unfinished::{Intake, UnfinishedInput};
use crate::message::publication::Published;
use crate::remote::Remote;

/// One side of a connection.
pub(crate) struct Session {
    pub(super) settings: Arc<SocketSettings>,
    pub(super) unfinished: Option<Box<UnfinishedInput>>,
    pub(super) extras: Option<Box<Extras>>,
    /// The index of the sub-protocol in the settings, and one.
    pub(super) protocol: u16,
    role: Role,
    pub(super) flags: u16,
    /// What messages are compressed with, if both sides have agreed to it.
    #[cfg(feature = "deflate")]
    pub(super) deflate: Option<SocketWindow>,
    #[cfg(feature = "deflate")]
    pub(super) histories: Option<Box<Histories>>,
}

/// The program does not want messages now.
const PAUSED: u16 = 1;
/// A ping was sent, and nothing has come since.
const PINGED: u16 = 2;
/// A close frame was sent.
const SAID_CLOSE: u16 = 4;
/// A close frame has come.
const HEARD_CLOSE: u16 = 8;
/// Nothing that comes counts any more.
const OVER: u16 = 16;
/// A message has a limit of its time, and memory.
const LIMITED: u16 = 32;
/// The peer has ended its side.
const ENDED: u16 = 64;
/// Input is kept here until the program wants it: the carrier takes nothing back.
const HOLDS: u16 = 128;
/// The peer was silent for too long.
const SILENT: u16 = 256;
/// The peer took too long for a message, or for its close frame.
const SLOW: u16 = 512;
/// It waits for an inflater.
const WAITS: u16 = 1024;
/// A message is sent in parts, and is not whole.
pub(super) const IN_PARTS: u16 = 2048;

/// What has come.
pub(crate) enum PeerNews<'a> {
    Message(Message),
    Part(MessagePart),
    Pong(&'a [u8]),
}

/// What is called with it.
pub(crate) type Hear<'h> = dyn FnMut(&mut Session, &mut dyn Carrier, PeerNews<'_>) + 'h;

/// The most bytes of a message that are copied behind the head of their frame.
pub(super) const SMALL: usize = 2048;

impl Session {
    pub(crate) fn new(role: Role, settings: Arc<SocketSettings>, protocol: u16) -> Session {
        Session {
            settings,
            unfinished: None,
            extras: None,
            protocol,
            role,
            flags: 0,
            #[cfg(feature = "deflate")]
            deflate: None,
            #[cfg(feature = "deflate")]
            histories: None,
        }
    }

    /// Messages may be compressed: both sides have agreed to this.
    #[cfg(feature = "deflate")]
    pub(crate) fn deflate(mut self, agreed: Deflate) -> Session {
        let (window, histories) = SocketWindow::new(self.role, agreed);
        (self.deflate, self.histories) = (Some(window), histories);
        self
    }

    pub(crate) fn opened(&mut self, carrier: &mut dyn Carrier) {
        carrier.set_idle_timeout(Some(self.settings.ping_every));
    }

    /// Sends what is published on a topic.
    pub(crate) fn published(&mut self, carrier: &mut dyn Carrier, what: &Arc<Published>) {
        if !self.is_open() {
            return;
        }
        if !carrier.is_behind() {
            match self.send_published(carrier, what) {
                Ok(()) | Err(Refusal::Stale) => return, // it ends already, and is not slow
                Err(_) => {}
            }
        }
        carrier.count(self.settings.is_lossy);
        if !self.settings.is_lossy {
            self.abort(carrier);
        }
    }

    #[inline]
    pub(super) fn send_published(
        &mut self,
        carrier: &mut dyn Carrier,
        what: &Arc<Published>,
    ) -> Result<(), Refusal> {
        if self.flags & IN_PARTS != 0 {
            return self.publish_behind(carrier, what);
        }
        let (kind, plain) = what.message();
        if self.role == Role::Client {
            let message = Message::new(kind, plain.to_vec().into());
            return self.send(carrier, message).map_err(|refused| refused.reason);
        }
        #[cfg(feature = "deflate")]
        if let Some(window) = self.deflate
            && plain.len() >= self.settings.compress_from
        {
            let with = (self.settings.level, window);
            let (frame, is_compressed) = carrier.sockets().compression.frame_for(with, what);
            let written = carrier.write(Buf::from(frame));
            if written.is_ok()
                && is_compressed
                && let Some(history) = self.histories.as_mut().and_then(|own| own.sent())
            {
                history.append(plain); // what the peer does not get is no part of it
            }
            return written.map_err(|refused| refused.reason);
        }
        let written = carrier.write(Buf::from(Arc::clone(what.frame())));
        written.map_err(|refused| refused.reason)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.flags & (SAID_CLOSE | OVER) == 0
    }

    /// Bytes have come: what follows of them comes out of [`advance`](Session::advance), until it
    /// returns false. Then they are [finished](Session::finish).
    pub(crate) fn begin(&mut self, carrier: &mut dyn Carrier, data: Buf) -> Option<Intake> {
        self.flags &= !PINGED;
        if self.flags & OVER != 0 {
            return None;
        }
        if self.flags & WAITS != 0 {
            self.flags &= !WAITS;
            if self.flags & PAUSED == 0 {
                carrier.resume();
            }
        }
        let role = self.role;
        #[cfg(feature = "deflate")]
        let deflates = self.deflate.is_some();
        #[cfg(not(feature = "deflate"))]
        let deflates = false;
        let kept = self.unfinished.take();
        let mut unfinished = kept.unwrap_or_else(|| carrier.sockets().begin(role, deflates));
        self.flags &= !HOLDS;
        let input = Incoming::new(&mut unfinished.kept, data);
        Some(Intake { unfinished, input, has_message: false })
    }

    /// Takes one frame, or what there is of it. False if nothing follows.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        carrier: &mut dyn Carrier,
        intake: &mut Intake,
        hear: &mut Hear<'_>,
    ) -> bool {
        if !self.takes_messages() {
            return false;
        }
        self.step(carrier, intake, hear).unwrap_or_else(|error| {
            self.fail(carrier, error);
            false
        })
    }

    /// Keeps what is not taken.
    pub(crate) fn finish(&mut self, carrier: &mut dyn Carrier, intake: Intake) {
        let Intake { mut unfinished, input, has_message } = intake;
        if self.flags & (PAUSED | WAITS) != 0 {
            if unfinished.is_pending() {
                self.flags |= HOLDS;
            }
            let rest = input.into_rest();
            if !rest.is_empty()
                && let Err(rest) = carrier.unread(rest)
            {
                unfinished.kept.extend_from_slice(&rest);
                self.flags |= HOLDS;
            }
        }
        self.put_back(carrier, unfinished, has_message);
        if self.flags & (ENDED | PAUSED | WAITS) == ENDED {
            self.end(carrier);
        }
    }

    #[inline]
    pub(super) fn takes_messages(&self) -> bool {
        self.flags & (PAUSED | OVER | WAITS) == 0
    }

    /// Is not read, until the loop has an inflater for it.
    #[cfg(feature = "deflate")]
    pub(super) fn wait(&mut self, carrier: &mut dyn Carrier) {
        self.flags |= WAITS;
        carrier.pause();
    }

    fn step(
        &mut self,
        carrier: &mut dyn Carrier,
        intake: &mut Intake,
        hear: &mut Hear<'_>,
    ) -> Result<bool, Error> {
        let Intake { unfinished, input, has_message } = intake;
        #[cfg(feature = "deflate")]
        if unfinished.is_pending() && !self.inflate_parts(carrier, unfinished, hear)? {
            return Ok(false);
        }
        let step = unfinished.decoder.decode(&self.settings.limits, input.bytes())?;
        let consumed = step.consumed;
        match step.event {
            Event::Data { kind, payload, is_first, is_last, is_compressed }
                if self.settings.in_parts =>
            {
                *has_message |= is_last;
                let data = input.take_part(consumed, payload);
                let part = MessagePart { kind, data, is_first, is_last };
                return self.tell_part(carrier, unfinished, (part, is_compressed), hear);
            }
            Event::Data { kind, payload, is_first: true, is_last: true, is_compressed } => {
                *has_message = true;
                let message = match is_compressed {
                    false => input.take(consumed, payload, kind),
                    true => {
                        let message = self.inflated(carrier, kind, &input.bytes()[payload])?;
                        input.skip(consumed);
                        message
                    }
                };
                self.hear(carrier, message, hear);
                return Ok(!input.bytes().is_empty());
            }
            Event::Data { kind, payload, is_last, is_compressed, .. } => {
                *has_message |= is_last;
                // Behind our own close frame the program does not get it.
                if self.flags & SAID_CLOSE == 0 {
                    unfinished.add(&input.bytes()[payload]);
                }
                if is_last && self.flags & SAID_CLOSE == 0 {
                    let message = std::mem::take(&mut unfinished.message);
                    if self.flags & LIMITED != 0 {
                        self.charge(carrier, 0); // it is the program's, which may send it
                    }
                    let message = match is_compressed {
                        false => Message::new(kind, message.into()),
                        true => self.inflated(carrier, kind, &message)?,
                    };
                    self.hear(carrier, message, hear);
                }
            }
            Event::Ping(data) => self.answer_ping(carrier, &input.bytes()[data]),
            Event::Pong(data) if self.is_open() => {
                let data = &input.bytes()[data];
                hear(self, carrier, PeerNews::Pong(data));
            }
            Event::Pong(_) => {}
            Event::Close(code, reason) => {
                let reason = String::from_utf8_lossy(&input.bytes()[reason]).into_owned();
                self.heard_close(carrier, code, reason);
            }
            _ => {
                unfinished.kept.extend_from_slice(input.bytes());
                return Ok(false);
            }
        }
        input.skip(consumed);
        Ok(true)
    }

    #[inline]
    fn hear(&mut self, carrier: &mut dyn Carrier, message: Message, hear: &mut Hear<'_>) {
        // Behind our own close frame the peer may still send what it had unfinished.
        if self.flags & SAID_CLOSE == 0 {
            hear(self, carrier, PeerNews::Message(message));
        }
    }

    /// The text of a compressed message.
    #[cfg(feature = "deflate")]
    fn inflated(
        &mut self,
        carrier: &mut dyn Carrier,
        kind: Kind,
        payload: &[u8],
    ) -> Result<Message, Error> {
        let most = self.settings.limits.message;
        let own = self.histories.as_deref_mut();
        let plain = carrier.sockets().compression.inflate(own, kind, payload, most)?;
        Ok(Message::new(kind, plain.into()))
    }

    #[cfg(not(feature = "deflate"))]
    fn inflated(&mut self, _: &mut dyn Carrier, _: Kind, _: &[u8]) -> Result<Message, Error> {
        unreachable!("the decoder refuses it")
    }

    fn put_back(
        &mut self,
        carrier: &mut dyn Carrier,
        unfinished: Box<UnfinishedInput>,
        has_message: bool,
    ) {
        if self.is_open() && !unfinished.is_nothing() {
            self.refuse_without_memory(carrier, &unfinished);
        }
        if unfinished.is_nothing() || self.flags & OVER != 0 {
            carrier.sockets().give_back(unfinished);
            if self.flags & LIMITED != 0 {
                self.flags &= !LIMITED;
                self.charge(carrier, 0);
                if self.is_open() {
                    carrier.limit(None, 0);
                }
            }
            return;
        }
        // What messages refer to is not charged: it stays as long as the connection does.
        self.charge(carrier, unfinished.held());
        if self.flags & LIMITED == 0 || has_message {
            self.flags |= LIMITED;
            let (span, least) = self.settings.message_time;
            if self.is_open() {
                carrier.limit(Some(span), least);
            }
        }
        self.unfinished = Some(unfinished);
    }

    /// Closes the connection if there is no memory for the rest of a message: it would wait for
    /// others to give some back, and they for it.
    #[inline]
    fn refuse_without_memory(&mut self, carrier: &mut dyn Carrier, unfinished: &UnfinishedInput) {
        let held = unfinished.held() as u64;
        let needed = if self.settings.in_parts { held } else { unfinished.needed() };
        let (share, limit) = (carrier.budget().share(), carrier.budget().limit());
        if needed > share as u64 {
            // A quarter of it is for those that hold little.
            let never = needed > (limit - limit / 4) as u64;
            let code = if never { CloseCode::TOO_BIG } else { CloseCode::TRY_LATER };
            self.refuse(carrier, code, "there is no memory for the message");
        }
    }

    fn answer_ping(&mut self, carrier: &mut dyn Carrier, data: &[u8]) {
        // Where much output waits, the peer is not read. So these answers are no longer than what
        // one read has brought. Beyond the cap there is none: that of a later ping will do.
        if self.flags & SAID_CLOSE == 0 {
            let _ = self.control(carrier, Opcode::Pong, data);
        }
    }

    pub(super) fn control(
        &mut self,
        carrier: &mut dyn Carrier,
        opcode: Opcode,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let mut frame = [0; FrameHead::MOST + 125];
        let mut head = FrameHead::new(opcode, data.len() as u64);
        let key = self.key(carrier);
        if let Some(key) = key {
            head = head.masked(key);
        }
        let size = head.write(&mut frame);
        let payload = &mut frame[size..size + data.len()];
        payload.copy_from_slice(data);
        if let Some(key) = key {
            mask(key, payload);
        }
        carrier.write_slice(&frame[..size + data.len()])
    }

    /// The key of the next frame, which a client masks.
    pub(super) fn key(&self, carrier: &mut dyn Carrier) -> Option<[u8; 4]> {
        match self.role {
            Role::Server => None,
            Role::Client => Some(carrier.sockets().keys.next()),
        }
    }

    /// Sends a message. It comes back if there is no room for it.
    #[inline]
    pub(super) fn send(
        &mut self,
        carrier: &mut dyn Carrier,
        message: Message,
    ) -> Result<(), Refused<Message>> {
        let kind = message.kind();
        let refused =
            |payload: Payload, reason| Err(Refused { value: Message::new(kind, payload), reason });
        if self.flags & (SAID_CLOSE | OVER | IN_PARTS) != 0 {
            return self.send_behind(carrier, message);
        }
        #[cfg(feature = "deflate")]
        let message = match self.send_compressed(carrier, message) {
            Ok(result) => return result,
            Err(message) => message,
        };
        let mut payload = message.into_payload();
        if self.role == Role::Server {
            payload = match payload.into_frame(kind) {
                Ok((frame, at)) => {
                    return carrier.write(frame).or_else(|Refused { value, reason }| {
                        refused(Payload::framed(value, at, kind), reason)
                    });
                }
                Err(payload) => payload,
            };
        }
        let head = FrameHead::new(kind.into(), payload.len() as u64);
        let written = self.write_frame(carrier, head, payload);
        written.or_else(|(payload, reason)| refused(payload, reason))
    }

    /// Sends a message compressed, if it is one to be compressed.
    #[cfg(feature = "deflate")]
    fn send_compressed(
        &mut self,
        carrier: &mut dyn Carrier,
        message: Message,
    ) -> Result<Result<(), Refused<Message>>, Message> {
        let Some(window) = self.deflate else { return Err(message) };
        let plain = message.as_bytes();
        if plain.len() < self.settings.compress_from {
            return Err(message);
        }
        let (shared, with) = (carrier.sockets(), (self.settings.level, window));
        let key = (self.role == Role::Client).then(|| shared.keys.next());
        let mut out = std::mem::take(&mut shared.out);
        out.clear();
        let mut sent = self.histories.as_mut().and_then(|own| own.sent());
        let what = (message.kind(), plain);
        let made = shared.compression.compress(with, sent.as_deref_mut(), what, key, &mut out);
        let written = made.map(|unsent| {
            let written = carrier.write_slice(&out);
            // The peer gets it: later messages refer to it.
            if written.is_ok()
                && let Some(history) = sent
            {
                history.join(plain, unsent);
            }
            written
        });
        carrier.sockets().out = out;
        match written {
            Some(written) => Ok(written.map_err(|reason| Refused { value: message, reason })),
            None => Err(message),
        }
    }

    /// Begins to close: the first close frame is ours.
    pub(crate) fn close(&mut self, carrier: &mut dyn Carrier, code: CloseCode, reason: &str) {
        if !self.is_open() {
            return;
        }
        self.say_close(carrier, Some(code), reason);
        self.note_close(Some(code), reason);
        // What is on its way is dropped, up to the close frame of the peer.
        self.resume(carrier);
        if self.flags & WAITS != 0 {
            self.flags &= !WAITS;
            carrier.resume();
        }
        carrier.time_limit(Some(self.settings.close_time));
    }

    /// Keeps what the first close frame says.
    fn note_close(&mut self, code: Option<CloseCode>, reason: &str) {
        let extras = self.extras.get_or_insert_default();
        if !extras.is_noted {
            extras.is_noted = true;
            (extras.code, extras.reason) = (code, reason.to_owned());
        }
    }

    /// What sends from other threads, until a close frame is sent.
    pub(super) fn sender(&mut self, remote: Remote, id: Id) -> SocketSender {
        let has_closed = AtomicBool::new(!self.is_open());
        let extras = self.extras.get_or_insert_default();
        let has_closed = extras.has_closed.get_or_insert_with(|| Arc::new(has_closed));
        SocketSender::new(remote, id, Arc::clone(has_closed))
    }

    fn say_close(&mut self, carrier: &mut dyn Carrier, code: Option<CloseCode>, reason: &str) {
        self.drop_output(carrier);
        self.flags |= SAID_CLOSE;
        if let Some(has_closed) = self.extras.as_ref().and_then(|own| own.has_closed.as_ref()) {
            has_closed.store(true, Ordering::Relaxed);
        }
        let (mut frame, key) = (Vec::new(), self.key(carrier));
        put_close(code, reason, key, &mut frame);
        if carrier.write_slice(&frame).is_err() {
            self.abort(carrier);
        }
    }

    fn heard_close(&mut self, carrier: &mut dyn Carrier, code: Option<CloseCode>, reason: String) {
        self.flags |= HEARD_CLOSE;
        if self.flags & SAID_CLOSE == 0 {
            self.say_close(carrier, code, "");
        }
        self.note_close(code, &reason);
        match self.role {
            Role::Server => self.end(carrier),
            // The server ends the connection below (RFC 6455, section 7.1.1): so its port is free
            // for the next connection at once.
            Role::Client => {
                self.flags |= OVER;
                carrier.time_limit(Some(self.settings.close_time));
            }
        }
    }

    /// The peer breaks the protocol.
    #[cold]
    fn fail(&mut self, carrier: &mut dyn Carrier, error: Error) {
        self.refuse(carrier, error.close_code(), &error.to_string());
    }

    /// Closes, and hears no answer.
    #[cold]
    fn refuse(&mut self, carrier: &mut dyn Carrier, code: CloseCode, reason: &str) {
        if self.flags & SAID_CLOSE == 0 {
            self.say_close(carrier, Some(code), reason);
            self.note_close(Some(code), reason);
        }
        self.end(carrier);
    }

    fn end(&mut self, carrier: &mut dyn Carrier) {
        self.drop_output(carrier);
        if self.flags & OVER == 0 {
            self.flags |= OVER;
            carrier.close();
        }
    }

    pub(super) fn abort(&mut self, carrier: &mut dyn Carrier) {
        self.drop_output(carrier);
        self.flags |= OVER;
        carrier.abort();
    }

    pub(super) fn pause(&mut self, carrier: &mut dyn Carrier) {
        if self.is_open() {
            self.flags |= PAUSED;
            carrier.pause();
        }
    }

    pub(super) fn resume(&mut self, carrier: &mut dyn Carrier) {
        if self.flags & PAUSED != 0 {
            self.flags &= !PAUSED;
            if self.flags & WAITS == 0 {
                carrier.resume();
            }
        }
    }

    /// Whether input is kept here that the program wants now: it [begins](Session::begin) with
    /// no bytes more.
    pub(crate) fn goes_on(&self) -> bool {
        self.flags & (HOLDS | PAUSED | WAITS) == HOLDS
    }

    /// The peer has ended its side.
    pub(crate) fn eof(&mut self, carrier: &mut dyn Carrier) {
        self.flags |= ENDED;
        if self.flags & (PAUSED | WAITS) != 0 {
            self.flags |= HOLDS; // the end is behind what is paused
            return;
        }
        self.drop_output(carrier);
        self.flags |= OVER;
        carrier.close();
    }

    pub(crate) fn limit_reached(&mut self, carrier: &mut dyn Carrier, cause: Cause) {
        if cause != Cause::Idle || self.flags & (PINGED | SAID_CLOSE) != 0 {
            self.flags |= if cause == Cause::Idle { SILENT } else { SLOW };
            return self.abort(carrier);
        }
        self.flags |= PINGED;
        let _ = self.control(carrier, Opcode::Ping, &[]); // without room for it, nothing goes out
    }

    pub(crate) fn into_end(self, cause: Cause) -> SocketEnd {
        let is_clean = self.flags & (SAID_CLOSE | HEARD_CLOSE) == SAID_CLOSE | HEARD_CLOSE;
        let Extras { code, reason, .. } = self.extras.map_or_else(Extras::default, |own| *own);
        let cause = match cause {
            Cause::Aborted if self.flags & SILENT != 0 => Cause::Idle,
            Cause::Aborted if self.flags & SLOW != 0 => Cause::TooSlow,
            Cause::Closed if self.flags & (ENDED | SAID_CLOSE) == ENDED => Cause::Eof,
            cause => cause,
        };
        SocketEnd { code, reason, is_clean, cause, failed: None }
    }
}
