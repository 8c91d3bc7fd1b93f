//! The connections of a loop to other servers, and the calls on them.
//!
//! A *call* is a request and its response. A *link* is a connection, which has one call at a time.
//! The engine below tells what happens on a link by its number, which is its state. Then
//! [`Hub::step`] says what follows, until it says nothing more.
//!
//! A call collects its response, or is [streamed](Requester::Stream): then who asks sends the body
//! of the request in parts, and gets the head and the body of the response as they come.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use windlass::Buf;
use windlass::net::ConnectOptions;
use windlass_http1::{
    Asked, BodyEncoder, EncodeError, Event, Limits as CodecLimits, RequestEncoder, ResponseDecoder,
    ResponseHead,
};
use windlass_serve::{Cause, Engine, Id};

use super::error::FetchError;
use super::fetch::Fetch;
use super::fetched::Fetched;
use super::input::Input;
use super::url::{FetchUrl, Origin};
use crate::words::status::Status;

/// The state of a connection of an engine, which can be that of a link.
pub(crate) trait LinkState {
    /// The state of the link with this number.
    fn of_link(number: u32) -> Self;
}

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The request of this connection, which waits for the whole response.
    Request(Id),
    /// The request of this connection, which passes the response on as it comes.
    Stream(Id),
}

/// A call: its link, and how many calls the link had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    link: u32,
    round: u32,
}

/// What follows for a caller.
pub(crate) enum Step {
    /// The call is over: its whole response.
    Done(Requester, Result<Fetched, FetchError>),
    /// An interim response (1xx but 101) has come: see [`Hub::response`].
    Interim(Requester),
    /// The head of the response has come: see [`Hub::response`].
    Head(Requester),
    /// A part of the body of the response.
    Body(Requester, Buf),
    /// The trailers of the response: see [`Hub::response`].
    Trailers(Requester),
    /// The response is whole.
    End(Requester),
    /// The rest of the response does not come.
    Failed(Requester, FetchError),
    /// The link has room for more of the body of the request.
    Drained(Requester),
}

/// A request, and what has come of its response.
struct Outgoing {
    caller: Requester,
    limit: u64,
    head: Option<(Status, Vec<(String, Vec<u8>)>)>,
    body: Vec<u8>,
    /// What is written of the body of its request.
    sender: Option<BodyEncoder>,
}

impl Outgoing {
    fn is_streamed(&self) -> bool {
        matches!(self.caller, Requester::Stream(_))
    }
}

/// A connection.
struct Link {
    id: Option<Id>,
    origin: Origin,
    decoder: ResponseDecoder,
    input: Input,
    /// Where the last head lies in the input.
    head_at: usize,
    call: Option<Outgoing>,
    round: u32,
    /// Whether the connection is open for a further request behind this response.
    keeps: bool,
    /// Whether the end of its connection is the end of the response.
    is_at_end: bool,
    /// Whether its output has drained, and its caller does not know.
    has_drained: bool,
    is_paused: bool,
    /// Why its call has failed.
    failed: Option<FetchError>,
}

/// The connections of a loop to other servers.
pub(crate) struct Hub {
    links: Vec<Option<Link>>,
    free: Vec<u32>,
    /// Links without a call.
    idle: HashMap<Origin, Vec<u32>>,
    head: ResponseHead,
    out: Vec<u8>,
    /// Links on which something follows.
    ready: VecDeque<u32>,
    /// The link of the last step.
    last: u32,
}

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub {
            links: Vec::new(),
            free: Vec::new(),
            idle: HashMap::new(),
            head: ResponseHead::new(CodecLimits::default()),
            out: Vec::new(),
            ready: VecDeque::new(),
            last: 0,
        }
    }

    /// Begins a call whose response is collected. What comes of it comes out of
    /// [`step`](Hub::step).
    pub(crate) fn begin<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        caller: Requester,
        fetch: &Fetch,
    ) -> Result<CallId, FetchError> {
        let url = FetchUrl::parse(&fetch.url)?;
        let limit = fetch.body_limit as u64;
        let call = self.open(engine, caller, &url.origin, limit, |out| {
            let mut head = RequestEncoder::new(out, &fetch.method, &url.target, &url.authority)?;
            for (name, value) in &fetch.fields {
                head.field(name, &**value)?;
            }
            let asked = head.asked();
            match fetch.body.len() {
                0 => Ok((asked, head.empty())),
                len => Ok((asked, head.length(len as u64)?)),
            }
        })?;
        self.send(engine, call, &fetch.body);
        self.end_request(engine, call);
        Ok(call)
    }

    /// Begins a call. `encode` writes the head of the request.
    pub(crate) fn open<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        caller: Requester,
        origin: &Origin,
        limit: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(Asked, BodyEncoder), EncodeError>,
    ) -> Result<CallId, FetchError> {
        self.out.clear();
        let (asked, sender) = encode(&mut self.out).map_err(FetchError::Request)?;
        let number = match self.idle.get_mut(origin).and_then(Vec::pop) {
            Some(number) => number,
            None => self.connect(engine, origin.clone())?,
        };
        let Some(link) = self.links[number as usize].as_mut() else {
            return Err(FetchError::Refused);
        };
        link.decoder.expect(asked);
        link.round = link.round.wrapping_add(1);
        let (head, body, sender) = (None, Vec::new(), Some(sender));
        link.call = Some(Outgoing { caller, limit, head, body, sender });
        link.write(engine, &self.out);
        Ok(CallId { link: number, round: link.round })
    }

    /// Sends a part of the body of a request. A call that is over ignores it.
    pub(crate) fn send<S>(&mut self, engine: &mut Engine<S>, call: CallId, data: &[u8]) {
        self.out.clear();
        let Some(link) = self.links[call.link as usize].as_mut() else { return };
        let Some(of) = link.call.as_mut().filter(|_| link.round == call.round) else { return };
        let sender = of.sender.as_mut();
        if sender.is_some_and(|sender| sender.data(&mut self.out, data).is_ok()) {
            link.write(engine, &self.out);
        } else {
            link.abort(engine);
        }
    }

    /// Ends the body of a request.
    pub(crate) fn end_request<S>(&mut self, engine: &mut Engine<S>, call: CallId) {
        self.out.clear();
        let Some(link) = self.links[call.link as usize].as_mut() else { return };
        let Some(of) = link.call.as_mut().filter(|_| link.round == call.round) else { return };
        let sender = of.sender.take();
        if sender.is_some_and(|sender| sender.end(&mut self.out).is_ok()) {
            link.write(engine, &self.out);
        } else {
            link.abort(engine);
        }
    }

    /// Whether a link takes no more of the body of a request. [`Step::Drained`] follows.
    pub(crate) fn is_full<S>(&mut self, engine: &mut Engine<S>, call: CallId) -> bool {
        match self.of(call).and_then(|link| link.id) {
            Some(id) => engine.is_full(id),
            None => false,
        }
    }

    /// Sets whether the response is read.
    pub(crate) fn set_reads<S>(&mut self, engine: &mut Engine<S>, call: CallId, on: bool) {
        let Some(link) = self.of(call) else { return };
        link.is_paused = !on;
        let (id, number) = (link.id, call.link);
        self.ready.push_back(number);
        if let Some(id) = id {
            if on {
                engine.resume(id)
            } else {
                engine.pause(id)
            };
        }
    }

    /// Ends a call whose response nobody wants. Nothing more comes of it.
    pub(crate) fn cancel<S>(&mut self, engine: &mut Engine<S>, call: CallId) {
        if let Some(link) = self.of(call) {
            link.call = None;
            link.abort(engine);
        }
    }

    fn connect<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        origin: Origin,
    ) -> Result<u32, FetchError> {
        let Ok(ip) = origin.host.parse::<IpAddr>() else {
            return Err(FetchError::Url { url: origin.host, why: "it is no address" });
        };
        let address = (ip, origin.port);
        let number = self.free.pop().unwrap_or(self.links.len() as u32);
        let state = S::of_link(number);
        let Ok(id) = engine.connect([address], ConnectOptions::default(), state) else {
            if (number as usize) < self.links.len() {
                self.free.push(number);
            }
            return Err(FetchError::Refused);
        };
        let link = Link {
            id: Some(id),
            origin,
            decoder: ResponseDecoder::new(),
            input: Input::default(),
            head_at: 0,
            call: None,
            round: 0,
            keeps: false,
            is_at_end: false,
            has_drained: false,
            is_paused: false,
            failed: None,
        };
        if number as usize == self.links.len() {
            self.links.push(None);
        }
        self.links[number as usize] = Some(link);
        Ok(number)
    }

    /// Bytes have come.
    pub(crate) fn data(&mut self, number: u32, data: Buf) {
        if let Some(link) = self.link(number) {
            link.input.push(data);
        }
    }

    /// The output of a link has drained.
    pub(crate) fn drained(&mut self, number: u32) {
        if let Some(link) = self.link(number) {
            link.has_drained = true;
        }
    }

    /// The server has ended its side.
    pub(crate) fn eof<S>(&mut self, engine: &mut Engine<S>, number: u32) {
        let Some(link) = self.link(number) else { return };
        link.keeps = false;
        if link.call.is_none() {
            if let Some(id) = link.id {
                engine.close(id);
            }
            return;
        }
        link.failed = match link.decoder.finish(link.input.rest()) {
            Ok(Event::End) => None,
            _ => Some(FetchError::Ended),
        };
        link.is_at_end = link.failed.is_none();
    }

    /// The connection is over.
    pub(crate) fn closed(&mut self, number: u32, cause: Cause) {
        let Some(link) = self.link(number) else { return };
        link.id = None;
        if link.call.is_some() {
            link.failed.get_or_insert(FetchError::Connection(cause));
        }
    }

    /// A limit of time has passed.
    pub(crate) fn fail(&mut self, number: u32, cause: Cause) {
        if let Some(link) = self.link(number) {
            link.failed = Some(FetchError::Connection(cause));
        }
    }

    /// A link that something has happened on.
    fn link(&mut self, number: u32) -> Option<&mut Link> {
        self.ready.push_back(number);
        self.links.get_mut(number as usize)?.as_mut()
    }

    /// The link of a call that is not over.
    fn of(&mut self, call: CallId) -> Option<&mut Link> {
        let is_of = |link: &&mut Link| link.round == call.round && link.call.is_some();
        self.links.get_mut(call.link as usize)?.as_mut().filter(is_of)
    }

    /// The head, or the trailers, of the last step, and the bytes that they lie in.
    pub(crate) fn response(&self) -> Option<(&ResponseHead, &[u8])> {
        let link = self.links.get(self.last as usize)?.as_ref()?;
        Some((&self.head, link.input.from(link.head_at)))
    }

    /// What follows for a caller; `None` if it is nothing. Ask until then, behind each call of the
    /// hub that is told something, and behind [`set_reads`](Hub::set_reads).
    pub(crate) fn step<S>(&mut self, engine: &mut Engine<S>) -> Option<Step> {
        while let Some(&number) = self.ready.front() {
            self.last = number;
            if let Some(step) = self.step_of(engine, number) {
                return Some(step);
            }
            self.ready.pop_front();
        }
        None
    }

    fn step_of<S>(&mut self, engine: &mut Engine<S>, number: u32) -> Option<Step> {
        let link = self.links.get_mut(number as usize)?.as_mut()?;
        if let Some(error) = link.failed.take() {
            let call = link.call.take()?;
            link.abort(engine);
            return Some(match call.is_streamed() {
                true => Step::Failed(call.caller, error),
                false => Step::Done(call.caller, Err(error)),
            });
        }
        if std::mem::take(&mut link.has_drained)
            && let Some(call) = link.call.as_ref().filter(|call| call.is_streamed())
        {
            return Some(Step::Drained(call.caller));
        }
        loop {
            if link.is_paused {
                return None;
            }
            let Some(call) = link.call.as_mut() else { break };
            let caller = call.caller;
            let event = match link.decoder.decode(&mut self.head, link.input.rest()) {
                Ok(step) => {
                    link.head_at = link.input.pass(step.consumed);
                    step.event
                }
                Err(error) => {
                    link.failed = Some(FetchError::Response(error));
                    return self.step_of(engine, number);
                }
            };
            match event {
                Event::Interim if call.is_streamed() => return Some(Step::Interim(caller)),
                Event::Head => {
                    link.keeps = self.head.keep_alive();
                    let _ = link.decoder.limit_body(call.limit);
                    if call.is_streamed() {
                        return Some(Step::Head(caller));
                    }
                    let status = Status::new(self.head.status()).unwrap_or(Status::BAD_GATEWAY);
                    let fields = self.head.fields(link.input.from(link.head_at));
                    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_vec()));
                    call.head = Some((status, fields.collect()));
                }
                Event::Body(range) => {
                    let range = link.head_at + range.start..link.head_at + range.end;
                    if call.is_streamed() {
                        return Some(Step::Body(caller, link.input.part(range)));
                    }
                    call.body.extend_from_slice(&link.input.from(range.start)[..range.len()]);
                }
                Event::Trailers if call.is_streamed() => return Some(Step::Trailers(caller)),
                Event::End => return self.end(engine, number),
                Event::NeedMore | Event::Closed if link.is_at_end => {
                    return self.end(engine, number);
                }
                Event::NeedMore | Event::Closed => break,
                _ => {}
            }
        }
        link.input.settle();
        self.sweep(number);
        None
    }

    /// A response is whole.
    fn end<S>(&mut self, engine: &mut Engine<S>, number: u32) -> Option<Step> {
        let link = self.links.get_mut(number as usize)?.as_mut()?;
        let call = link.call.take()?;
        link.input.settle();
        if link.keeps && call.sender.is_none() && link.input.is_empty() && link.id.is_some() {
            self.idle.entry(link.origin.clone()).or_default().push(number);
        } else {
            link.abort(engine);
        }
        Some(match call.head {
            Some((status, fields)) => {
                Step::Done(call.caller, Ok(Fetched { status, fields, body: call.body }))
            }
            None => Step::End(call.caller),
        })
    }

    /// Forgets a link that is over.
    fn sweep(&mut self, number: u32) {
        let link = self.links.get(number as usize).and_then(Option::as_ref);
        if link.is_none_or(|link| link.id.is_some() || link.call.is_some()) {
            return;
        }
        if let Some(link) = self.links[number as usize].take() {
            if let Some(idle) = self.idle.get_mut(&link.origin) {
                idle.retain(|other| *other != number);
            }
            self.free.push(number);
        }
    }
}

impl Link {
    fn write<S>(&mut self, engine: &mut Engine<S>, bytes: &[u8]) {
        let Some(id) = self.id.filter(|_| !bytes.is_empty()) else { return };
        if engine.write_slice(id, bytes).is_err() {
            engine.abort(id);
        }
    }

    fn abort<S>(&mut self, engine: &mut Engine<S>) {
        self.keeps = false;
        if let Some(id) = self.id {
            engine.abort(id);
        }
    }
}
