//! A client in a loop that the program owns.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use windlass::driver::{Driver, OpCode, Visit};
use windlass::{Buf, Completion, Completions, Op, Watcher};
#[cfg(feature = "websocket")]
use windlass_serve::Id;
use windlass_serve::report::Counters;
use windlass_serve::{Config, Engine, Event as Below};

use super::error::FetchError;
use super::fetch::Fetch;
use super::fetched::Fetched;
use super::hub::{CallId, Hub, LinkState, Requester, Step};
use super::news::LinkEnd;
use super::settings::FetchSettings;
use crate::remote::Remote;
#[cfg(feature = "websocket")]
use crate::websocket::OwnSockets;

/// The token of what makes the next wait return.
const AGAIN: u64 = u64::MAX - 0xc11e;

/// Requests to other servers, in a loop that the program owns.
///
/// It has the verbs of [`Engine`](crate::Engine): in each turn the program takes the events out of
/// its batch of completions with [`next_event_in`](Client::next_event_in), and calls
/// [`flush`](Client::flush). A completion that is not the client's is an event, too. So one loop
/// has this client, a server, files, timers and other threads. It works on every driver, and in a
/// [simulation](windlass::sim).
///
/// ```
/// use windlass_web::client::{Fetch, FetchEvent};
/// use windlass_web::windlass::{Completions, Watcher};
/// use windlass_web::{App, Client};
///
/// # let server = App::new()
/// #     .get("/{name}", |_, q| format!("this is {}", q.param("name")));
/// # let server = server.listen("127.0.0.1:0")?.start()?;
/// # let address = server.address();
/// let (mut watcher, mut client) = (Watcher::new()?, Client::new(Default::default()));
/// for name in ["a", "b"] {
///     client.fetch(Fetch::get(format!("http://{address}/{name}")));
/// }
/// let (mut done, mut texts) = (Completions::new(), Vec::new());
/// while texts.len() < 2 {
///     client.flush(&mut watcher);
///     watcher.wait(&mut done)?;
///     let mut batch = done.visit();
///     while let Some(event) = client.next_event_in(&mut watcher, &mut batch) {
///         match event {
///             FetchEvent::Fetched { result, .. } => texts.push(result?.text()?.to_owned()),
///             other => println!("{other:?}"),
///         }
///     }
/// }
/// texts.sort();
/// assert_eq!(texts, ["this is a", "this is b"]);
/// # server.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client {
    pub(super) below: LinkEngine,
    pub(super) hub: Hub,
    events: VecDeque<FetchEvent>,
    remote: Remote,
    is_reached: bool,
    #[cfg(feature = "websocket")]
    pub(super) sockets: OwnSockets,
}

#[cfg(feature = "websocket")]
type LinkEngine = crate::websocket::OwnCarrier<LinkPlace>;
#[cfg(not(feature = "websocket"))]
type LinkEngine = Engine<LinkPlace>;

/// The id of a request to another server. It goes stale when the request is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchId(pub(crate) CallId);

impl fmt::Debug for FetchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FetchId({}.{})", self.0.at, self.0.round)
    }
}

/// Something that has happened to a request of a [`Client`].
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchEvent {
    /// A request of [`Client::fetch`] is over.
    Fetched {
        /// The request; the id is stale.
        id: FetchId,
        /// Its response.
        result: Result<Fetched, FetchError>,
    },
    /// The head of the response to a request of [`Client::fetch_stream`] has come.
    Head {
        /// The request.
        id: FetchId,
        /// The response, without its body.
        head: Fetched,
    },
    /// The next part of its body.
    Body {
        /// The request.
        id: FetchId,
        /// The bytes: at least one.
        data: Buf,
    },
    /// Its body is whole.
    End {
        /// The request; the id is stale.
        id: FetchId,
    },
    /// The rest of its response does not come.
    Failed {
        /// The request; the id is stale.
        id: FetchId,
        /// Why.
        error: FetchError,
    },
    /// The request of [`Client::open_websocket`] has become a WebSocket.
    #[cfg(feature = "websocket")]
    Opened {
        /// The request; the id is stale.
        id: FetchId,
        /// The connection: for [`Client::socket`].
        socket: Id,
    },
    /// A message has come.
    #[cfg(feature = "websocket")]
    Message {
        /// The connection.
        socket: Id,
        /// The message.
        message: crate::websocket::Message,
    },
    /// A pong has come: the answer to a ping, or one unasked.
    #[cfg(feature = "websocket")]
    Pong {
        /// The connection.
        socket: Id,
        /// Its bytes: at most 125.
        data: Vec<u8>,
    },
    /// The output of a WebSocket was full, and there is room again.
    #[cfg(feature = "websocket")]
    Drained {
        /// The connection.
        socket: Id,
    },
    /// A WebSocket has ended.
    #[cfg(feature = "websocket")]
    Closed {
        /// The connection; the id is stale.
        socket: Id,
        /// How.
        end: crate::websocket::SocketEnd,
    },
    /// A completion that is not the client's: only from
    /// [`next_event_in`](Client::next_event_in).
    Foreign(Completion),
}

impl FetchEvent {
    /// The request that it is about.
    fn id(&self) -> Option<FetchId> {
        match self {
            FetchEvent::Fetched { id, .. }
            | FetchEvent::Head { id, .. }
            | FetchEvent::Body { id, .. }
            | FetchEvent::End { id }
            | FetchEvent::Failed { id, .. } => Some(*id),
            _ => None,
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy)]
pub(super) enum LinkPlace {
    /// The number of its link.
    Link(u32),
    /// The number of its WebSocket.
    #[cfg(feature = "websocket")]
    Socket(u32),
}

impl Default for LinkPlace {
    fn default() -> LinkPlace {
        LinkPlace::Link(0)
    }
}

impl LinkState for LinkPlace {
    fn of_link(number: u32) -> LinkPlace {
        LinkPlace::Link(number)
    }
}

impl Client {
    /// A client without connections.
    pub fn new(settings: FetchSettings) -> Client {
        let config = Config::new().name("client");
        let limits = config.limits.idle(None);
        let config = config.close_on_eof(false).limit_events(true).limits(limits);
        let remote = Remote::default();
        let below = Engine::new(config);
        Client {
            #[cfg(feature = "websocket")]
            below: LinkEngine::new(below, remote.clone()),
            #[cfg(not(feature = "websocket"))]
            below,
            #[cfg(feature = "websocket")]
            sockets: OwnSockets::default(),
            hub: Hub::new(Arc::new(settings), remote.clone()),
            events: VecDeque::new(),
            remote,
            is_reached: false,
        }
    }

    /// Sends a request. [`FetchEvent::Fetched`] has its whole response, or says why there is none.
    pub fn fetch(&mut self, fetch: Fetch) -> FetchId {
        FetchId(self.hub.begin_own(&mut self.below, Box::new(fetch), Requester::Own))
    }

    /// Sends a request whose response comes in parts: [`FetchEvent::Head`],
    /// [`FetchEvent::Body`] any number of times, [`FetchEvent::End`]; or
    /// [`FetchEvent::Failed`], at any place.
    pub fn fetch_stream(&mut self, fetch: Fetch) -> FetchId {
        FetchId(self.hub.begin_own(&mut self.below, Box::new(fetch), Requester::OwnStream))
    }

    /// Ends a request before its response is whole, and its connection. Nothing more comes of it.
    /// False for a stale id.
    pub fn cancel(&mut self, id: FetchId) -> bool {
        let has_ended = self.hub.cancel(&mut self.below, id.0);
        #[cfg(feature = "websocket")]
        self.sockets.forget(id.0);
        if has_ended {
            // A part that a flush has found.
            self.events.retain(|event| event.id() != Some(id));
        }
        has_ended
    }

    /// Reads the response of [`fetch_stream`](Client::fetch_stream) no further, until
    /// [`resume`](Client::resume): its server waits. Parts that have come already may follow in
    /// this turn. False for a stale id.
    pub fn pause(&mut self, id: FetchId) -> bool {
        self.hub.set_reads(&mut self.below, id.0, false);
        self.hub.live(id.0).is_some()
    }

    /// Reads on. False for a stale id.
    pub fn resume(&mut self, id: FetchId) -> bool {
        self.hub.set_reads(&mut self.below, id.0, true);
        self.hub.live(id.0).is_some()
    }

    /// Waits until a request is over, and returns its response: for programs that do nothing else.
    /// Events of other requests wait for [`next_event`](Client::next_event). Completions that are
    /// not the client's are dropped.
    ///
    /// # Errors
    ///
    /// - The request has failed: the error has the [`FetchError`] inside, and the kind `Other`.
    /// - The watcher has failed: its own error.
    /// - `InvalidInput`: `id` is stale, or is one of [`fetch_stream`](Client::fetch_stream).
    pub fn wait_for<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: FetchId,
    ) -> io::Result<Fetched> {
        let mut done = Completions::new();
        let mut others = VecDeque::new();
        let result = loop {
            self.flush(watcher);
            while let Some(event) = self.next_event(watcher) {
                others.push_back(event);
            }
            let is_it = |event: &FetchEvent| match event {
                FetchEvent::Fetched { id: of, .. } => *of == id,
                _ => false,
            };
            if let Some(at) = others.iter().position(is_it)
                && let Some(FetchEvent::Fetched { result, .. }) = others.remove(at)
            {
                break result.map_err(io::Error::other);
            }
            if self.hub.live(id.0).is_none() {
                break Err(io::Error::new(io::ErrorKind::InvalidInput, "the request is over"));
            }
            watcher.wait(&mut done)?;
            for completion in done.drain(..) {
                self.complete(watcher, completion);
            }
        };
        others.append(&mut self.events);
        self.events = others;
        result
    }

    /// Waits for the next event: for programs that do nothing else. Completions that are not the
    /// client's are dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Watcher::wait`].
    pub fn wait_event<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> io::Result<FetchEvent> {
        let mut done = Completions::new();
        loop {
            if let Some(event) = self.next_event(watcher) {
                return Ok(event);
            }
            self.flush(watcher);
            watcher.wait(&mut done)?;
            for completion in done.drain(..) {
                self.complete(watcher, completion);
            }
        }
    }

    /// Takes a completion of the client. Returns one that is not the client's.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        let completion = self.below.complete(watcher, completion)?;
        (!is_again(&completion)).then_some(completion)
    }

    /// Takes out the next event of the completions that [`complete`](Client::complete) took. Call
    /// it until it returns `None`, then [`flush`](Client::flush).
    pub fn next_event<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<FetchEvent> {
        loop {
            if let Some(event) = self.next_own() {
                return Some(event);
            }
            let event = self.below.next_event(watcher)?;
            if let Some(event) = self.take(event) {
                return Some(event);
            }
        }
    }

    /// Takes the next event out, and makes one from the next completion in `batch` if none waits:
    /// in the place of [`complete`](Client::complete) and [`next_event`](Client::next_event). Call
    /// it until it returns `None`, then [`flush`](Client::flush).
    pub fn next_event_in<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        batch: &mut Visit<'_>,
    ) -> Option<FetchEvent> {
        loop {
            if let Some(event) = self.next_own() {
                return Some(event);
            }
            let event = self.below.next_event_in(watcher, batch)?;
            if let Some(event) = self.take(event) {
                return Some(event);
            }
        }
    }

    /// Sends the requests of this turn, and carries out what the program has asked for. A flush
    /// delivers no events. If some wait, the next wait returns at once.
    pub fn flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        if !self.is_reached {
            self.is_reached = true;
            self.remote.serves(&self.below.remote(watcher));
            // The client knows the time of the watcher now.
            self.hub.begin_clocks(&mut self.below);
        }
        // One is enough to make the next wait return. The others are made as they are taken out.
        if self.events.is_empty()
            && !self.is_hearing()
            && let Some(event) = self.next_step()
        {
            self.events.push_back(event);
        }
        self.below.flush(watcher);
        if !self.events.is_empty() || self.is_hearing() {
            // A refusal means that completions wait already.
            let _ = watcher.submit(Op::nop().token(AGAIN));
        }
    }

    /// Shuts down: further requests are refused, and connections end when their request is over.
    /// WebSockets are closed with 1001. All is over when [`is_empty`](Client::is_empty).
    pub fn stop(&mut self) {
        self.hub.is_stopped = true;
        #[cfg(feature = "websocket")]
        self.close_websockets();
        self.hub.drain(&mut self.below);
    }

    /// Ends all connections at once: see [`windlass_serve::Engine::end`].
    pub fn end<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.below.end(watcher);
    }

    /// How many connections there are, including those that are closing.
    pub fn connections(&self) -> usize {
        self.below.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    /// How many requests are not over.
    pub fn requests(&self) -> usize {
        self.hub.len()
    }

    /// What the client has counted of its connections.
    pub fn counters(&self) -> &Counters {
        self.below.counters()
    }

    fn next_own(&mut self) -> Option<FetchEvent> {
        #[cfg(feature = "websocket")]
        if self.events.is_empty()
            && let Some(event) = self.next_heard()
        {
            return Some(event);
        }
        self.events.pop_front().or_else(|| self.next_step())
    }

    /// Whether bytes of a WebSocket are being taken.
    fn is_hearing(&self) -> bool {
        #[cfg(feature = "websocket")]
        return self.sockets.is_hearing();
        #[cfg(not(feature = "websocket"))]
        false
    }

    /// The next event of what the hub was told.
    fn next_step(&mut self) -> Option<FetchEvent> {
        loop {
            return Some(match self.hub.step(&mut self.below)? {
                Step::Done(Requester::Own(id), result) => {
                    FetchEvent::Fetched { id: FetchId(id), result }
                }
                Step::Head(Requester::OwnStream(id)) => match self.hub.response_head() {
                    Some(head) => FetchEvent::Head { id: FetchId(id), head },
                    None => continue,
                },
                Step::Body(Requester::OwnStream(id), data) => {
                    FetchEvent::Body { id: FetchId(id), data }
                }
                Step::End(Requester::OwnStream(id)) => FetchEvent::End { id: FetchId(id) },
                Step::Failed(Requester::OwnStream(id), error, _) => {
                    FetchEvent::Failed { id: FetchId(id), error }
                }
                #[cfg(feature = "websocket")]
                Step::Switched(call) => self.switched(call),
                #[cfg(feature = "websocket")]
                Step::Done(Requester::OwnSwitch(call), result) => {
                    self.sockets.forget(call);
                    let error = crate::websocket::refusal(result);
                    FetchEvent::Failed { id: FetchId(call), error }
                }
                _ => continue,
            });
        }
    }

    /// Tells the hub what has happened on a connection.
    fn take(&mut self, event: Below<LinkPlace>) -> Option<FetchEvent> {
        #[cfg(feature = "websocket")]
        let event = match self.hear(event) {
            Ok(heard) => return heard,
            Err(event) => event,
        };
        let (hub, below): (_, &mut Engine<LinkPlace>) = (&mut self.hub, &mut self.below);
        let number = |below: &Engine<LinkPlace>, id| below.state(id).and_then(LinkPlace::link);
        match event {
            Below::Opened { id, .. } => {
                number(below, id).into_iter().for_each(|link| hub.opened(below, link));
            }
            Below::Data { id, data } => {
                let link = number(below, id)?;
                hub.data(below, link, data);
            }
            Below::Eof { id } => {
                let link = number(below, id)?;
                hub.eof(below, link);
            }
            Below::Drained { id } | Below::Wake { id } => hub.drained(number(below, id)?),
            Below::Closed {
                state,
                cause,
                #[cfg(feature = "tls")]
                tls_error,
                ..
            } => {
                let end = LinkEnd {
                    cause,
                    #[cfg(feature = "tls")]
                    tls_error,
                };
                if let Some(link) = state.link() {
                    hub.closed(below, link, end);
                }
            }
            Below::Completed(mut completed) => _ = hub.completed(below, &mut completed),
            Below::Foreign(completion) => {
                return (!is_again(&completion)).then_some(FetchEvent::Foreign(completion));
            }
            _ => {}
        }
        None
    }
}

impl LinkPlace {
    fn link(&self) -> Option<u32> {
        match *self {
            LinkPlace::Link(number) => Some(number),
            #[cfg(feature = "websocket")]
            LinkPlace::Socket(_) => None,
        }
    }
}

/// Whether a completion is there only to make a wait return.
fn is_again(completion: &Completion) -> bool {
    completion.token == AGAIN && completion.code() == OpCode::Nop
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connections", &self.below).finish_non_exhaustive()
    }
}
