//! The program of an engine: it puts requests into a queue, and decides nothing.

#[cfg(feature = "websocket")]
use std::collections::BTreeMap;
use std::collections::VecDeque;
#[cfg(feature = "websocket")]
use std::sync::Arc;

use windlass::{Buf, Handle, Message};
use windlass_serve::Id;

use super::events::{Event, RequestId};
use super::request::OwnedRequest;
use crate::client::error::FetchError;
use crate::client::fetched::Fetched;
use crate::client::hub::CallId;
use crate::client::own::FetchId;
use crate::exchange::Slot;
use crate::exchange::peer::{PeerMark, Peers};
use crate::exchange::program::{Answer, Begin, End, Program, RouteId};
use crate::exchange::raw::{News, Over, Raws};
use crate::message::arrived::{Arrived, Trailers};
use crate::message::head::Head;
#[cfg(feature = "websocket")]
use crate::message::publication::Published;
use crate::message::response::Response;
#[cfg(feature = "websocket")]
use crate::topics::TopicCall;
#[cfg(feature = "websocket")]
use crate::websocket::{ClientHandshake, Session, refusal};
use crate::words::status::Status;

/// What the program has not taken out yet, and what it has of its connections.
pub(super) struct Queue<S> {
    pub(super) events: VecDeque<Event<S>>,
    /// The requests that are not over. Each has its place as the number of its route.
    requests: Raws<Live>,
    /// How many requests there were.
    count: u64,
    raws: Raws<RawState<S>>,
    /// The addresses of raw connections that had HTTP.
    peers: Peers,
    /// The last raw connection that is over, and what it has left.
    over: Option<(S, Remains)>,
    /// Handshakes of calls, whose response has not come.
    #[cfg(feature = "websocket")]
    handshakes: BTreeMap<CallId, (ClientHandshake, S)>,
    /// What has happened on WebSockets, and what they get of topics.
    #[cfg(feature = "websocket")]
    pub(super) socket_news: VecDeque<(Id, News)>,
    #[cfg(feature = "websocket")]
    pub(super) published: VecDeque<(Id, Arc<Published>)>,
    /// What WebSockets ask for.
    #[cfg(feature = "websocket")]
    pub(super) topic_calls: VecDeque<TopicCall>,
}

/// A request that is not over.
#[derive(Clone, Copy)]
struct Live {
    number: u64,
    connection: Id,
}

/// What the program has for a raw connection.
struct RawState<S> {
    state: S,
    peer: PeerMark,
    /// Whether the end of its peer was told.
    has_ended: bool,
    #[cfg(feature = "websocket")]
    socket: Option<Box<OwnSocket>>,
}

/// A WebSocket.
#[cfg(feature = "websocket")]
pub(super) struct OwnSocket {
    pub(super) session: Session,
    /// The call that has opened it.
    pub(super) call: Option<FetchId>,
}

/// What a raw connection leaves.
pub(super) enum Remains {
    /// It has closed, or never was one.
    Nothing,
    Descriptor(Handle, Vec<Buf>, bool),
    #[cfg(feature = "websocket")]
    Socket(Session),
}

impl<S> Queue<S> {
    pub(super) fn new() -> Queue<S> {
        Queue {
            events: VecDeque::new(),
            requests: Raws::default(),
            count: 0,
            raws: Raws::default(),
            peers: Peers::default(),
            over: None,
            #[cfg(feature = "websocket")]
            handshakes: BTreeMap::new(),
            #[cfg(feature = "websocket")]
            socket_news: VecDeque::new(),
            #[cfg(feature = "websocket")]
            published: VecDeque::new(),
            #[cfg(feature = "websocket")]
            topic_calls: VecDeque::new(),
        }
    }

    /// The connection of a request that is not over.
    pub(super) fn connection(&mut self, id: RequestId) -> Option<Id> {
        let live = self.requests.get_mut(id.at)?;
        (live.number == id.number).then_some(live.connection)
    }

    pub(super) fn add_raw(&mut self, state: S, peer: Option<std::net::SocketAddr>) -> u32 {
        let peer = self.peers.add(peer);
        self.raws.add(RawState {
            state,
            peer,
            has_ended: false,
            #[cfg(feature = "websocket")]
            socket: None,
        })
    }

    pub(super) fn state(&mut self, raw: u32) -> Option<&mut S> {
        Some(&mut self.raws.get_mut(raw)?.state)
    }

    pub(super) fn peer(&mut self, raw: u32) -> Option<std::net::SocketAddr> {
        self.peers.get(self.raws.get_mut(raw)?.peer)
    }

    /// Notes that the end of the peer of a raw connection is told.
    pub(super) fn tell_end(&mut self, raw: u32) {
        if let Some(raw) = self.raws.get_mut(raw) {
            raw.has_ended = true;
        }
    }

    pub(super) fn has_ended(&mut self, raw: u32) -> bool {
        self.raws.get_mut(raw).is_some_and(|raw| raw.has_ended)
    }

    #[cfg(not(feature = "websocket"))]
    pub(super) fn has_socket(&self, _: u32) -> bool {
        false
    }

    pub(super) fn remove_raw(&mut self, raw: u32) -> Option<S> {
        let RawState { state, peer, .. } = self.raws.remove(raw)?;
        self.peers.remove(peer);
        Some(state)
    }

    /// What the raw connection has left that is over.
    pub(super) fn take_over(&mut self) -> Option<(S, Remains)> {
        self.over.take()
    }
}

#[cfg(feature = "websocket")]
impl<S> Queue<S> {
    /// Makes a raw connection a WebSocket.
    pub(super) fn add_socket(&mut self, raw: u32, session: Session, call: Option<FetchId>) {
        if let Some(raw) = self.raws.get_mut(raw) {
            raw.socket = Some(Box::new(OwnSocket { session, call }));
        }
    }

    pub(super) fn has_socket(&self, raw: u32) -> bool {
        self.raws.get(raw).is_some_and(|raw| raw.socket.is_some())
    }

    pub(super) fn socket(&mut self, raw: u32) -> Option<&mut OwnSocket> {
        self.raws.get_mut(raw)?.socket.as_deref_mut()
    }

    pub(super) fn has_socket_news(&self) -> bool {
        !self.socket_news.is_empty()
    }

    pub(super) fn add_handshake(&mut self, call: CallId, handshake: ClientHandshake, state: S) {
        self.handshakes.insert(call, (handshake, state));
    }

    pub(super) fn forget_handshake(&mut self, call: CallId) {
        self.handshakes.remove(&call);
    }
}

impl<S: 'static> Program for Queue<S> {
    type Keep = ();

    fn begin(&mut self, _: Arrived<'_>) -> Begin<()> {
        Begin::Collect(RouteId::NONE, None)
    }

    fn request(
        &mut self,
        arrived: Arrived<'_>,
        body: &[u8],
        _begun: Option<&Trailers>,
    ) -> (RouteId, Answer<()>) {
        self.count += 1;
        let live = Live { number: self.count, connection: arrived.from.id };
        let at = self.requests.add(live);
        let request = OwnedRequest::new(arrived, body);
        self.events.push_back(Event::Request { id: RequestId { number: self.count, at }, request });
        (RouteId(at), Answer::Later(()))
    }

    fn executed(&mut self, (): (), _: Message) -> Answer<()> {
        Answer::Respond(Status::INTERNAL_SERVER_ERROR.into()) // it has no jobs
    }

    fn own_fetched(&mut self, call: CallId, result: Result<Fetched, FetchError>) {
        self.events.push_back(Event::Fetched { id: FetchId(call), result });
    }

    #[cfg(feature = "websocket")]
    fn switched(
        &mut self,
        call: CallId,
        head: &windlass_http1::ResponseHead,
        bytes: &[u8],
    ) -> Option<u32> {
        let (handshake, state) = self.handshakes.remove(&call)?;
        match handshake.check(head, bytes) {
            Ok(session) => {
                let raw = self.add_raw(state, None);
                self.add_socket(raw, session, Some(FetchId(call)));
                Some(raw)
            }
            Err(error) => {
                let (call, error) = (FetchId(call), FetchError::Handshake(error));
                self.events.push_back(Event::SocketFailed { call, error, state });
                None
            }
        }
    }

    #[cfg(feature = "websocket")]
    fn not_switched(&mut self, call: CallId, result: Result<Fetched, FetchError>) {
        if let Some((_, state)) = self.handshakes.remove(&call) {
            let (call, error) = (FetchId(call), refusal(result));
            self.events.push_back(Event::SocketFailed { call, error, state });
        }
    }

    #[cfg(feature = "websocket")]
    fn next_topic_call(&mut self) -> Option<TopicCall> {
        self.topic_calls.pop_front()
    }

    fn raw(
        &mut self,
        _: &mut windlass_serve::Engine<Slot<()>>,
        id: Id,
        raw: u32,
        news: News,
    ) -> bool {
        #[cfg(feature = "websocket")]
        if self.has_socket(raw) {
            match news {
                News::Published(what) => self.published.push_back((id, what)),
                news => self.socket_news.push_back((id, news)),
            }
            return true;
        }
        // The engine tells all others itself.
        match news {
            News::Data(data) => self.events.push_back(Event::Data { id, data }),
            News::Eof => {
                self.tell_end(raw);
                self.events.push_back(Event::Eof { id });
            }
            _ => {}
        }
        true
    }

    fn raw_over(&mut self, raw: u32, over: Over) {
        #[cfg(feature = "websocket")]
        if let Over::Closed(_) = over
            && let Some(socket) = self.raws.get_mut(raw).and_then(|raw| raw.socket.take())
        {
            let left = Remains::Socket(socket.session);
            self.over = self.remove_raw(raw).map(|state| (state, left));
            return;
        }
        let left = match over {
            Over::Refused | Over::Closed(_) => Remains::Nothing,
            Over::Detached(handle, undelivered, eof) => {
                Remains::Descriptor(handle, undelivered, eof)
            }
        };
        self.over = self.remove_raw(raw).map(|state| (state, left));
    }

    fn shape(&mut self, _: RouteId, _: Option<Arrived<'_>>, response: Response) -> Response {
        response
    }

    fn changes_heads(&self) -> bool {
        false
    }

    fn decided(&mut self, _: RouteId, _: Option<Arrived<'_>>, _: &mut Head) -> bool {
        true
    }

    fn is_watched(&self) -> bool {
        true // it counts its requests
    }

    fn finished(&mut self, route: RouteId, _: Option<Arrived<'_>>, end: End<'_>) {
        let Some(Live { number, .. }) = self.requests.remove(route.0) else {
            // It never was one.
            self.events.extend(end.status.map(|status| Event::Refused { status }));
            return;
        };
        let id = RequestId { number, at: route.0 };
        self.events.push_back(Event::Ended {
            id,
            status: end.status,
            sent: end.sent,
            took: end.took,
        });
    }
}
