//! The connections of a loop to other servers, and the calls on them: what callers do.
//!
//! A *call* is a request and its response. A *link* is a connection, which has one call at a time.
//! The engine below tells what happens on a link by its number, which is its state. Then
//! [`Hub::step`] says what follows, until it says nothing more.
//!
//! A call collects its response, or is [streamed](Requester::Stream): then its caller sends the
//! body of the request in parts, and gets the head and the body of the response as they come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::Buf;
use windlass::net::SocketOption;
use windlass_http1::{Asked, BodyEncoder, EncodeError, Limits as CodecLimits, ResponseHead};
use windlass_serve::{Engine, Id};

use super::call::FetchCall;
pub(crate) use super::call::{CallId, Reached, Requester, Step};
use super::error::{FetchError, FetchPhase};
use super::fetch::Fetch;
use super::fetched::Fetched;
use super::link::Link;
pub(crate) use super::link::LinkState;
use super::pool::Sites;
use super::settings::FetchSettings;
use super::url::{Cut, Origin, cut, target_of};
use crate::message::source::LARGE;
use crate::remote::Remote;
use crate::words::status::Status;

/// The limits of responses: those of their bodies are set by each call.
const LIMITS: CodecLimits = CodecLimits {
    line: 8192,
    head: 32 << 10,
    fields: 128,
    body: u64::MAX,
    chunk_line: 256,
    extensions: 4096,
    trailers: 4096,
    interim: 16 << 10,
};

/// The connections of a loop to other servers.
pub(crate) struct Hub {
    pub(crate) settings: Arc<FetchSettings>,
    /// By which sources of bodies are woken.
    pub(super) remote: Remote,
    pub(super) pool: Sites,
    pub(super) links: Vec<Option<Link>>,
    pub(super) free_links: Vec<u32>,
    pub(super) calls: Vec<FetchCall>,
    pub(super) free_calls: Vec<u32>,
    /// What follows of calls that have no link.
    pub(super) over: VecDeque<Step>,
    /// Links on which something follows.
    pub(super) ready: VecDeque<u32>,
    /// Servers whose waiting calls may have a link now.
    pub(super) to_pump: VecDeque<u32>,
    /// Servers whose calls wait because all servers together have as many links as they may.
    pub(super) starved: VecDeque<u32>,
    /// Whether one of these may find a link now.
    pub(super) has_room: bool,
    /// The link of the last step.
    pub(super) last: u32,
    pub(super) head: ResponseHead,
    pub(super) out: Vec<u8>,
    /// When the timers fire that are set; the earliest is the last.
    pub(super) timers: Vec<Instant>,
    /// Whether no link is kept any more.
    pub(super) is_draining: bool,
    /// Whether the program begins no further call.
    pub(super) is_stopped: bool,
}

impl Hub {
    /// One without memory of its own, until it is used.
    pub(crate) fn new(settings: Arc<FetchSettings>, remote: Remote) -> Hub {
        Hub {
            settings,
            remote,
            pool: Sites::default(),
            links: Vec::new(),
            free_links: Vec::new(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            over: VecDeque::new(),
            ready: VecDeque::new(),
            to_pump: VecDeque::new(),
            starved: VecDeque::new(),
            has_room: false,
            last: 0,
            head: ResponseHead::new(CodecLimits { fields: 0, ..LIMITS }),
            out: Vec::new(),
            timers: Vec::new(),
            is_draining: false,
            is_stopped: false,
        }
    }

    /// Begins a call whose response is collected. What comes of it comes out of
    /// [`step`](Hub::step).
    pub(crate) fn begin<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        requester: Requester,
        fetch: Box<Fetch>,
    ) -> Result<CallId, FetchError> {
        self.begin_as(engine, |_| requester, fetch).map_err(|(_, error)| error)
    }

    /// Begins a call of the program, which is collected or streamed. If it cannot begin, that
    /// comes out of [`step`](Hub::step), too.
    pub(crate) fn begin_own<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        fetch: Box<Fetch>,
        requester: fn(CallId) -> Requester,
    ) -> CallId {
        self.begin_as(engine, requester, fetch).unwrap_or_else(|(call, error)| {
            self.over.push_back(match requester(call) {
                stream @ Requester::OwnStream(_) => Step::Failed(stream, error, Reached::Nothing),
                other => Step::Done(other, Err(error)),
            });
            call
        })
    }

    fn begin_as<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        requester: impl FnOnce(CallId) -> Requester,
        mut fetch: Box<Fetch>,
    ) -> Result<CallId, (CallId, FetchError)> {
        let broken = fetch.broken.take();
        let now = engine.now();
        let (limit, redirects, timeout) = (fetch.body_limit, fetch.redirects, fetch.timeout);
        let id = self.new_call();
        let call = &mut self.calls[id.at as usize];
        call.requester = Some(requester(id));
        (call.limit, call.redirects) = (limit, redirects);
        call.end = timeout.map(|span| now + span);
        call.fetch = Some(fetch);
        let begun = match broken {
            Some(error) => Err(error),
            None if self.is_stopped => Err(FetchError::Refused),
            None => self.prepare(id.at).and_then(|()| self.place(engine, id.at)),
        };
        match begun {
            Ok(()) => Ok(id),
            Err(error) => {
                self.free_call(id.at);
                Err((id, error))
            }
        }
    }

    /// Begins a call. `encode` writes the head of the request.
    pub(crate) fn open<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        requester: Requester,
        origin: &Origin,
        limit: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(Asked, BodyEncoder), EncodeError>,
    ) -> Result<CallId, FetchError> {
        let site = self.pool.of_origin(&self.settings, origin)?;
        let id = self.new_call();
        let call = &mut self.calls[id.at as usize];
        (call.requester, call.site, call.limit) = (Some(requester), site, limit);
        let begun = match encode(&mut call.request) {
            Ok((asked, sender)) => {
                (call.asked, call.sender) = (asked, Some(sender));
                self.place(engine, id.at)
            }
            Err(error) => Err(error.into()),
        };
        match begun {
            Ok(()) => Ok(id),
            Err(error) => {
                self.free_call(id.at);
                Err(error)
            }
        }
    }

    /// Sends a part of the body of a request: a large one without a copy. A call that is over
    /// ignores it.
    pub(crate) fn send<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        call: CallId,
        data: impl Into<Buf> + AsRef<[u8]>,
    ) {
        let Some(of) = self.live(call) else { return };
        let is_large = of.link.is_some() && data.as_ref().len() >= LARGE;
        if !is_large {
            return self.write_body(engine, call, |sender, out| match sender {
                Some(sender) => sender.data(out, data.as_ref()),
                None => Err(EncodeError::TooLong),
            });
        }
        let len = data.as_ref().len();
        self.write_body(engine, call, |sender, out| match sender {
            Some(sender) => sender.before(out, len),
            None => Err(EncodeError::TooLong),
        });
        let Some(id) = self.id_of(call) else { return };
        if engine.write(id, data).is_err() {
            engine.abort(id);
        }
        self.write_body(engine, call, |sender, out| {
            sender.iter_mut().for_each(|sender| sender.after(out, len));
            Ok(())
        });
    }

    /// Ends the body of a request, with its trailers.
    pub(crate) fn end_request<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        call: CallId,
        trailers: &[(String, Vec<u8>)],
    ) {
        let fields = trailers.iter().map(|(name, value)| (&**name, &**value));
        self.write_body(engine, call, |sender, out| match sender.take() {
            Some(sender) => sender.end_with(out, fields),
            None => Ok(()),
        });
    }

    fn write_body<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        id: CallId,
        write: impl FnOnce(&mut Option<BodyEncoder>, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) {
        self.out.clear();
        let Some(call) = self.calls.get_mut(id.at as usize) else { return };
        if !call.is_live(id.round) {
            return;
        }
        let written = match call.link {
            None => write(&mut call.sender, &mut call.request),
            Some(number) => {
                let written = write(&mut call.sender, &mut self.out);
                if let Some(link) = &mut self.links[number as usize] {
                    link.write(engine, &self.out);
                    link.hear(engine);
                }
                written
            }
        };
        if let Err(error) = written {
            self.fail_call(engine, id.at, error.into());
        }
    }

    /// Whether a link takes no more of the body of a request: it has not opened, or too much waits.
    /// [`Step::Drained`] follows.
    pub(crate) fn is_full<S>(&mut self, engine: &mut Engine<S>, call: CallId) -> bool {
        let Some(of) = self.live(call) else { return false };
        let Some(link) = of.link.and_then(|number| self.link(number)) else { return true };
        !link.is_open || link.id.is_some_and(|id| engine.is_full(id))
    }

    /// Whether a call has no connection yet.
    pub(crate) fn waits(&mut self, call: CallId) -> bool {
        self.live(call).is_some_and(|call| call.link.is_none())
    }

    /// Sends bytes through a tunnel.
    pub(crate) fn pass<S>(&mut self, engine: &mut Engine<S>, call: CallId, data: Buf) {
        let number = self.live(call).and_then(|call| call.link);
        let Some(link) = number.and_then(|number| self.link(number)) else { return };
        if let Some(id) = link.id
            && engine.write(id, data).is_err()
        {
            engine.abort(id);
        }
        link.hear(engine);
    }

    /// Ends this side of a tunnel, behind what is written.
    pub(crate) fn end_output<S>(&mut self, engine: &mut Engine<S>, call: CallId) {
        if let Some(id) = self.id_of(call) {
            engine.set_option(id, SocketOption::Linger(None));
            engine.shutdown(id);
        }
    }

    /// Limits the time until a call that needs a new connection has it, below the limit of all
    /// calls.
    pub(crate) fn limit_connect<S>(&mut self, engine: &mut Engine<S>, id: CallId, span: Duration) {
        let Some(call) = self.live(id) else { return };
        if matches!(call.phase, FetchPhase::LookUp | FetchPhase::Connect) {
            let end = engine.now() + span;
            if call.phase_end.is_none_or(|other| end < other) {
                call.phase_end = Some(end);
                self.arm(engine, end);
            }
        }
    }

    /// Limits the time of a response's body: each byte gives a second back.
    pub(crate) fn limit_body<S>(
        &mut self,
        engine: &mut Engine<S>,
        call: CallId,
        span: Option<Duration>,
    ) {
        let number = self.live(call).and_then(|call| call.link);
        if let Some(link) = number.and_then(|number| self.link(number))
            && let Some(id) = link.id
        {
            link.is_limited = span.is_some();
            engine.limit(id, span, 1);
        }
    }

    /// Sets how long a tunnel may be idle.
    pub(crate) fn set_idle<S>(&mut self, engine: &mut Engine<S>, call: CallId, span: Duration) {
        if let Some(id) = self.id_of(call) {
            engine.set_idle_timeout(id, span);
        }
    }

    /// Closes a tunnel behind what is written. Nothing more comes of its call.
    pub(crate) fn close<S: LinkState>(&mut self, engine: &mut Engine<S>, call: CallId) {
        self.end_output(engine, call);
        let Some(of) = self.live(call) else { return };
        if let Some(number) = of.link {
            self.retire(engine, number);
        }
        self.free_call(call.at);
    }

    /// Hands out the connection of a call behind a [switch](Step::Switched), with the bytes that
    /// have come behind the response, and whether the server has ended its side. The call is over.
    /// `None`: the connection is over, too.
    #[cfg(feature = "websocket")]
    pub(crate) fn take_over<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        call: CallId,
    ) -> Option<(Id, Buf, bool)> {
        let number = self.live(call)?.link?;
        self.free_call(call.at);
        self.leave(number);
        let mut link = self.links[number as usize].take()?;
        self.free_links.push(number);
        let id = link.id?;
        link.charge(engine, 0);
        if link.is_limited {
            engine.limit(id, None, 0);
        }
        engine.read_when_full(id, false);
        Some((id, link.input.take(), link.is_at_end))
    }

    /// Ends the links to a server that have no call.
    pub(crate) fn forget_idle<S: LinkState>(&mut self, engine: &mut Engine<S>, origin: &Origin) {
        let idle = self.pool.take_idle(origin);
        idle.into_iter().for_each(|number| self.let_go(engine, number));
    }

    /// Sets whether the response is read. The caller asks for the next [`step`](Hub::step) then.
    pub(crate) fn set_reads<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        call: CallId,
        on: bool,
    ) {
        let Some(number) = self.live(call).and_then(|call| call.link) else { return };
        let Some(link) = self.links[number as usize].as_mut() else { return };
        if link.is_paused != on {
            return;
        }
        link.is_paused = !on;
        if let Some(id) = link.id {
            if on {
                engine.resume(id)
            } else {
                engine.pause(id)
            };
        }
        if on {
            self.ready.push_back(number);
            let phase = self.calls[call.at as usize].phase;
            self.set_phase(engine, call.at, phase);
        } else {
            self.calls[call.at as usize].phase_end = None;
        }
    }

    /// Ends a call before its response is whole. Nothing more comes of it. False if it is over.
    pub(crate) fn cancel<S: LinkState>(&mut self, engine: &mut Engine<S>, call: CallId) -> bool {
        let Some(of) = self.live(call) else { return false };
        if let Some(number) = of.link {
            self.let_go(engine, number);
        }
        self.free_call(call.at);
        true
    }

    /// The server shuts down: links without a call end, and the others behind their call. Requests
    /// that have to be answered still begin calls.
    pub(crate) fn drain<S: LinkState>(&mut self, engine: &mut Engine<S>) {
        self.is_draining = true;
        let idle: Vec<u32> = self.pool.sites.iter().flat_map(|site| site.idle.clone()).collect();
        idle.into_iter().for_each(|number| self.let_go(engine, number));
    }

    /// The head, or the trailers, of the last step, and the bytes that they lie in.
    pub(crate) fn response(&self) -> Option<(&ResponseHead, &[u8])> {
        let link = self.links.get(self.last as usize)?.as_ref()?;
        Some((&self.head, link.input.from(link.head_at)))
    }

    /// The response of the last step, without a body.
    pub(crate) fn response_head(&self) -> Option<Fetched> {
        let link = self.links.get(self.last as usize)?.as_ref()?;
        let call = &self.calls[link.call? as usize];
        let (head, bytes) = self.response()?;
        let end = head.offsets().last().map_or(head.reason_range().end, |field| field.value().end);
        let url = call.fetch.as_ref().filter(|_| call.has_moved).map(|fetch| fetch.url.clone());
        Some(Fetched {
            status: Status::new(head.status())?,
            bytes: bytes[..end].to_vec(),
            body_at: end,
            is_decoded: call.is_decoded,
            url,
        })
    }

    /// The connection of a call.
    pub(crate) fn id_of(&mut self, call: CallId) -> Option<Id> {
        let number = self.live(call)?.link?;
        self.link(number)?.id
    }

    /// Whether something follows.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !(self.over.is_empty() && self.ready.is_empty() && self.to_pump.is_empty())
    }

    /// How many calls are not over.
    pub(crate) fn len(&self) -> usize {
        self.calls.len() - self.free_calls.len()
    }

    /// A call that is not over.
    pub(super) fn live(&mut self, id: CallId) -> Option<&mut FetchCall> {
        let call = self.calls.get_mut(id.at as usize)?;
        call.is_live(id.round).then_some(call)
    }

    fn new_call(&mut self) -> CallId {
        if self.head.limits().fields == 0 {
            self.head = ResponseHead::new(LIMITS);
        }
        let at = self.free_calls.pop().unwrap_or_else(|| {
            self.calls.push(FetchCall::new());
            self.calls.len() as u32 - 1
        });
        CallId { at, round: self.calls[at as usize].round }
    }

    pub(super) fn free_call(&mut self, at: u32) {
        self.calls[at as usize].clear();
        self.free_calls.push(at);
    }

    /// Finds the server of a call, and writes its request.
    pub(super) fn prepare(&mut self, at: u32) -> Result<(), FetchError> {
        let call = &mut self.calls[at as usize];
        let Some(url) = call.fetch.as_mut().map(|fetch| std::mem::take(&mut fetch.url)) else {
            return Ok(());
        };
        let Cut { prefix, authority, rest } = cut(&url).unwrap_or_default();
        let prepared = match self.pool.of_url(&self.settings, prefix, &url) {
            Ok(site) => {
                call.site = site;
                call.encode(&target_of(rest), authority)
            }
            Err(error) => Err(error),
        };
        if let Some(fetch) = &mut call.fetch {
            fetch.url = url;
        }
        prepared
    }

    pub(super) fn call_of_link(&self, number: u32) -> Option<u32> {
        self.links.get(number as usize)?.as_ref()?.call
    }
}
