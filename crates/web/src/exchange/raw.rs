//! Connections that have gone over to another protocol, behind a 101 or as a tunnel.
//!
//! # Why
//! Such a connection has no part of HTTP any more, only a number: that of what the program has for
//! it, in a [`Raws`]. The number takes the place of its peer's address. So it has the 16 bytes of
//! an idle connection here, and its bytes pass through without a copy.
//!
//! What was read ahead goes back into the engine below ([`Engine::unread`]). So there is one order
//! for these bytes and those that follow, whoever gets them: the program, or the next owner of the
//! descriptor.

use std::any::Any;
use std::borrow::Cow;
use std::num::NonZeroU16;
use std::sync::Arc;

use windlass::{Buf, Handle};
use windlass_http1::{Asked, EncodeError, FixedField, ResponseEncoder};
use windlass_serve::{Cause, Engine, Id};

use super::finish::Fate;
use super::links::LinkNews;
use super::peer::PeerMark;
use super::program::Program;
use super::respond::{Context, Next, PANICKED};
use super::{Exchange, IS_OTHER, IS_TLS, Machine, RAW, Slot, Wire, arrived};
use crate::message::arrived::Arrived;
use crate::message::head::Head;
use crate::message::publication::Published;
use crate::words::error::Error;
use crate::words::status::Status;

/// The answer to a request behind which its connection has another protocol.
pub(crate) struct Switch {
    pub(crate) head: Head,
    /// The protocol; `None` for the tunnel of a CONNECT.
    pub(crate) protocol: Option<Cow<'static, str>>,
    /// The number of what the program has for the connection.
    pub(crate) raw: u32,
}

/// Something that has happened on such a connection.
pub(crate) enum News {
    Opened,
    Data(Buf),
    /// The peer has shut down its output.
    Eof,
    Drained,
    Wake,
    LimitReached(Cause),
    /// Another thread has a value for it.
    Told(Box<dyn Any + Send>),
    /// Something was published on a topic that it hears.
    Published(Arc<Published>),
    /// The server shuts down.
    Stopping,
}

/// The end of such a connection.
pub(crate) enum Over {
    /// It never was one: the head of the response could not be written.
    Refused,
    Closed(Cause),
    /// The program has its descriptor, and the bytes that it has not got. The peer may have shut
    /// down its output.
    Detached(Handle, Vec<Buf>, bool),
}

/// What a program has for its connections with other protocols, by their numbers.
pub(crate) struct Raws<R> {
    all: Vec<Option<R>>,
    free: Vec<u32>,
}

impl<R> Default for Raws<R> {
    fn default() -> Raws<R> {
        Raws { all: Vec::new(), free: Vec::new() }
    }
}

impl<R> Raws<R> {
    pub(crate) fn add(&mut self, raw: R) -> u32 {
        if let Some(at) = self.free.pop() {
            self.all[at as usize] = Some(raw);
            return at;
        }
        self.all.push(Some(raw));
        self.all.len() as u32 - 1
    }

    #[cfg(feature = "websocket")]
    pub(crate) fn get(&self, at: u32) -> Option<&R> {
        self.all.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut R> {
        self.all.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<R> {
        let raw = self.all.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(raw)
    }
}

impl<K> Slot<K> {
    /// A connection that has another protocol from its beginning.
    pub(crate) fn of_raw(raw: u32) -> Slot<K> {
        Slot { exchange: None, peer: PeerMark::of_number(raw), bits: NonZeroU16::MIN | IS_OTHER }
    }

    /// The number of what the program has for it, if it has another protocol.
    #[inline]
    pub(crate) fn raw(&self) -> Option<u32> {
        let is_raw = self.bits.get() & (IS_OTHER | RAW) == IS_OTHER | RAW;
        if is_raw { Some(self.peer.number()) } else { None }
    }

    /// Whether it has requests: it is neither raw nor a link.
    #[inline]
    pub(super) fn is_http(&self) -> bool {
        self.bits.get() & IS_OTHER == 0
    }
}

impl<K> Wire<'_, K> {
    #[inline]
    pub(super) fn raw(&self) -> Option<u32> {
        self.engine.state(self.id)?.raw()
    }

    #[inline]
    pub(super) fn link(&self) -> Option<u32> {
        self.engine.state(self.id)?.link()
    }
}

impl<K: 'static> Machine<K> {
    /// Writes the head behind which the connection has another protocol.
    #[cold]
    pub(super) fn switch<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        exchange: Option<Box<Exchange<K>>>,
        context: Context<'_>,
        switch: Switch,
    ) -> Next<K> {
        let (route, asked, bytes) = context;
        let Switch { mut head, protocol, raw } = switch;
        if self.is_draining {
            program.raw_over(raw, Over::Refused);
            let stopping = Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1");
            return self.respond(program, wire, exchange, context, stopping.into());
        }
        if protocol.is_some() {
            head.set_status(Status::SWITCHING_PROTOCOLS);
        }
        let from = self.from(wire);
        let request = bytes.map(|bytes| arrived(&self.head, bytes, from));
        let is_decided = program.decided(route, request, &mut head);
        let failed = match is_decided {
            true => {
                let date = self.date.at(self.now);
                let encoded = encode(&mut self.out, date, asked, &head, protocol.as_deref());
                encoded.err().map(|failure| failure.to_string())
            }
            false => Some(PANICKED.to_owned()),
        };
        if let Some(failure) = failed {
            program.raw_over(raw, Over::Refused);
            let error = Error::new(Status::INTERNAL_SERVER_ERROR).because(failure);
            return self.respond(program, wire, exchange, context, error.into());
        }
        let now = self.time(program, wire.engine);
        let start = exchange.as_ref().map_or(self.now, |exchange| exchange.start);
        let (status, start) = (Some(head.status()), Some(start));
        let outcome = Fate { status, start, ..Fate::default() };
        let from = self.from(wire);
        self.finish(program, from, (route, bytes), now, outcome);
        let has_ended = exchange.as_ref().is_some_and(|exchange| exchange.peer.has_ended);
        if let Some(exchange) = exchange {
            self.recycle(exchange);
        }
        Next::Raw(raw, has_ended)
    }

    /// Looks at a request that waits for its answer.
    pub(crate) fn look_at<T>(
        &mut self,
        engine: &Engine<Slot<K>>,
        id: Id,
        look: impl FnOnce(Arrived<'_>) -> T,
    ) -> Option<T> {
        let exchange = engine.state(id)?.exchange.as_ref()?;
        let super::Stage::Answer(_) = exchange.stage else { return None };
        self.decode_again(&exchange.head);
        let from = crate::message::arrived::From {
            id,
            peer: None,
            is_tls: false,
            trust: None,
            is_leaving: self.is_leaving,
            engine,
        };
        Some(look(arrived(&self.head, &exchange.head, from)))
    }

    /// A connection has another protocol from here on. `rest` was read ahead.
    #[cold]
    pub(super) fn go_over<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        (raw, has_ended): (u32, bool),
        rest: &[u8],
    ) {
        self.flush(wire);
        let id = wire.id;
        wire.engine.limit(id, None, 0);
        wire.engine.charge(id, 0);
        let Some(slot) = wire.slot() else { return program.raw_over(raw, Over::Refused) };
        let peer = std::mem::replace(&mut slot.peer, PeerMark::of_number(raw));
        slot.bits = NonZeroU16::MIN | (slot.bits.get() & IS_TLS) | IS_OTHER;
        self.peers.remove(peer);
        let early = wire.engine.unread(id, rest.to_vec()).err();
        wire.engine.resume(id);
        let mut goes_on = self.raw_news(program, wire.engine, (id, raw), News::Opened);
        // The engine takes nothing back behind the end of the peer.
        match early.map(|refused| refused.value).filter(|early| !early.is_empty()) {
            Some(early) if goes_on => {
                goes_on = self.raw_news(program, wire.engine, (id, raw), News::Data(early))
            }
            Some(early) => self.early.push((id, early)),
            None => {}
        }
        if has_ended && goes_on {
            self.raw_news(program, wire.engine, (id, raw), News::Eof);
        }
    }

    /// Tells the program what has happened on a connection with another protocol. Returns whether
    /// it goes on. What a callback has asked for is done before the next callback.
    #[inline]
    pub(super) fn raw_news<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        (id, raw): (Id, u32),
        news: News,
    ) -> bool {
        let mut goes_on = program.raw(engine, id, raw, news);
        while program.has_input() {
            self.make_topic_calls(program, engine);
            goes_on &= program.raw(engine, id, raw, News::Data(Buf::default()));
        }
        goes_on
    }

    /// Bytes of a connection without requests.
    #[inline(never)]
    pub(super) fn other_data<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        data: Buf,
    ) {
        match (wire.raw(), wire.link()) {
            (Some(raw), _) => {
                self.raw_news(program, wire.engine, (wire.id, raw), News::Data(data));
            }
            (_, Some(link)) => self.hear_link(program, wire.engine, link, LinkNews::Data(data)),
            _ => {}
        }
    }

    /// Another thread has woken a connection.
    pub(crate) fn woken<P: Program<Keep = K>>(&mut self, program: &mut P, wire: &mut Wire<'_, K>) {
        match wire.raw() {
            Some(raw) => {
                self.raw_news(program, wire.engine, (wire.id, raw), News::Wake);
            }
            None if wire.link().is_some() => {
                let Some(link) = wire.link() else { return };
                self.hear_link(program, wire.engine, link, LinkNews::Drained);
            }
            None => {
                self.resume(program, wire);
                self.take_answer(program, wire);
            }
        }
    }

    /// Gives a connection with another protocol a value of another thread.
    pub(crate) fn tell_raw<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        id: Id,
        value: Box<dyn Any + Send>,
    ) {
        if let Some(raw) = engine.state(id).and_then(Slot::raw) {
            self.raw_news(program, engine, (id, raw), News::Told(value));
        }
    }

    /// A connection that had another protocol is over.
    pub(crate) fn raw_closed<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        id: Id,
        raw: u32,
        cause: Cause,
    ) {
        self.take_early(id);
        self.forget_topics(id);
        program.raw_over(raw, Over::Closed(cause));
    }

    /// The descriptor of a connection is the program's.
    pub(crate) fn detached<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        id: Id,
        slot: &Slot<K>,
        (handle, mut undelivered, eof): (Handle, Vec<Buf>, bool),
    ) {
        let Some(raw) = slot.raw() else { return };
        self.forget_topics(id);
        if let Some(early) = self.take_early(id) {
            undelivered.insert(0, early);
        }
        program.raw_over(raw, Over::Detached(handle, undelivered, eof));
    }

    /// What was read ahead, if the engine has not taken it back.
    fn take_early(&mut self, id: Id) -> Option<Buf> {
        let at = self.early.iter().position(|(of, _)| *of == id)?;
        Some(self.early.swap_remove(at).1)
    }

    /// Tells the program of the connections with other protocols that the server shuts down.
    pub(super) fn stop_raw<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
    ) {
        let raw_of = |id: Id| Some((id, engine.state(id)?.raw()?));
        let all: Vec<(Id, u32)> = engine.ids().filter_map(raw_of).collect();
        for (id, raw) in all {
            self.raw_news(program, engine, (id, raw), News::Stopping);
        }
    }
}

/// Writes a head without a body behind it, but another protocol.
fn encode(
    out: &mut Vec<u8>,
    date: &FixedField,
    asked: Asked,
    head: &Head,
    protocol: Option<&str>,
) -> Result<(), EncodeError> {
    let mut encoder = ResponseEncoder::new(out, asked, head.status().code())?;
    encoder.fixed(date);
    for (name, value) in head.fields() {
        if !name.eq_ignore_ascii_case("date") {
            encoder.field(name, value)?;
        }
    }
    match protocol {
        Some(protocol) => encoder.switch(protocol),
        None => encoder.tunnel(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut raws = Raws::default();
        let (a, b) = (raws.add('a'), raws.add('b'));
        assert_eq!((raws.remove(a), raws.remove(a)), (Some('a'), None));
        assert_eq!(raws.add('c'), a);
        assert_eq!(raws.get_mut(a), Some(&mut 'c'));
        assert_eq!(raws.get_mut(b), Some(&mut 'b'));
    }
}
