//! One request after the other on a connection: from bytes to a response.
//!
//! ```text
//! mod.rs      the state of a connection, and what all connections of a loop share
//! program.rs  what answers requests
//! read.rs     bytes into requests
//! receive.rs  bodies that the program asks for
//! respond.rs  responses into bytes
//! raw.rs      connections that have gone over to another protocol
//! stream.rs   responses that are made while they are sent
//! compress.rs responses that are compressed (no_compress.rs: without the feature)
//! events.rs   responses that tell events
//! late.rs     requests that wait for another thread
//! operations.rs  what waits for an operation of the loop
//! saves.rs    files that bodies are saved to
//! saving.rs   how these files go on
//! loads.rs    files that are being opened
//! blocks.rs   files that are read block by block
//! files.rs    responses that are files
//! links.rs    requests that wait for another server
//! forward     requests that are passed on to another server
//! finish.rs   the end of a request
//! ends.rs     limits, the ends of the peer and of the connection
//! ```
//!
//! # Why
//! A request that comes whole, and is answered at once, needs no memory of its connection: it is
//! read where it was received. Only one that waits for something has an [`Exchange`]. So an idle
//! connection has 16 bytes here.

mod blocks;
#[cfg(feature = "deflate")]
pub(crate) mod compress;
#[cfg(not(feature = "deflate"))]
#[path = "no_compress.rs"]
mod compress;
mod ends;
mod events;
mod files;
mod finish;
mod forward;
mod late;
mod links;
mod loads;
mod operations;
pub(crate) mod peer;
pub(crate) mod program;
pub(crate) mod raw;
mod read;
mod receive;
mod respond;
mod running;
mod saves;
mod saving;
mod stream;

use std::num::NonZeroU16;
use std::time::Instant;

use windlass_http1::{Asked, BodyEncoder, Method, RequestDecoder, RequestHead, Version};
use windlass_serve::{Engine, Id};

use crate::client::hub::{CallId, Hub};
use crate::client::settings::FetchSettings;
use crate::exchange::compress::{Compression, Packing};
use crate::exchange::links::LinkNews;
use crate::exchange::loads::Loads;
use crate::exchange::operations::LoopOps;
use crate::exchange::peer::{PeerMark, Peers};
use crate::exchange::program::{Program, RouteId};
use crate::exchange::receive::Receiving;
use crate::exchange::running::RunningCounts;
use crate::exchange::saves::Saves;
use crate::message::arrived::{Arrived, From, Trailers};
use crate::message::date::Date;
use crate::message::event::EventBytes;
use crate::message::gone::Presence;
use crate::message::handover::Awaited;
use crate::message::kind::Kind;
use crate::message::response::Response;
use crate::message::source::BodySource;
use crate::remote::Remote;
use crate::topics::Topics;
use crate::words::limits::Limits;

/// How many bytes behind a request that waits are kept before its connection is read no more.
const READ_AHEAD: usize = 16 << 10;

/// How many bytes of a body that nobody wants are read, so that the connection goes on behind it. A
/// new connection costs a client about as much time.
const MOST_SKIPPED: u64 = 64 << 10;

/// How many exchanges without a request a loop keeps.
const POOL: usize = 256;

/// Longer buffers are rare, and go back to the system.
const KEPT: usize = 4096;

/// The state of a connection.
pub(crate) struct Slot<K> {
    exchange: Option<Box<Exchange<K>>>,
    peer: PeerMark,
    /// The number of its next request, in the low 14 bits, and flags. Never 0: the table of
    /// connections needs no byte more to say that there is no state.
    bits: NonZeroU16,
}

const COUNT: u16 = 0x3fff;
/// It has no requests: it has gone over to another protocol, or is a link to another server. Its
/// peer is a number then, and the low bits say which of them it is.
const IS_OTHER: u16 = 0x4000;
const RAW: u16 = 1;
const LINK: u16 = 2;
const IS_TLS: u16 = 0x8000;

impl<K> Slot<K> {
    /// Whether no request has begun, and no response is owed.
    fn is_idle(&self) -> bool {
        self.is_http()
            && self.exchange.as_ref().is_none_or(|exchange| match exchange.stage {
                Stage::Head => exchange.input.is_empty(),
                Stage::Skip => true,
                _ => false,
            })
    }
}

impl<K> Default for Slot<K> {
    fn default() -> Slot<K> {
        Slot { exchange: None, peer: PeerMark::default(), bits: NonZeroU16::MIN }
    }
}

/// A request that waits for something.
pub(crate) struct Exchange<K> {
    stage: Stage<K>,
    decoder: RequestDecoder,
    /// Bytes that have come and are not decoded.
    input: Vec<u8>,
    /// The head, once it has come.
    head: Vec<u8>,
    /// The body as far as it has come, if it is collected.
    body: Vec<u8>,
    trailers: Trailers,
    asked: Asked,
    route: RouteId,
    /// When the first byte came.
    start: Instant,
    peer: PeerState,
    /// Whether the connection is paused.
    is_paused: bool,
    /// Whether the client waits for a `100 Continue`.
    is_awaited: bool,
}

/// What is known of the peer, and who wants to know.
#[derive(Default)]
struct PeerState {
    /// Whether it has shut down its output.
    has_ended: bool,
    /// What tells other threads whether it is there, if the program asks.
    watched: Vec<Presence>,
}

/// What a request waits for.
enum Stage<K> {
    /// The rest of its head.
    Head,
    /// The rest of its body. The program has seen the head; it keeps something if it has asked for
    /// the body.
    Body(Option<K>),
    /// Further parts of its body.
    Receive(Box<Receiving<K>>),
    /// Nothing: the responses in front of it wait for room, and it is not decoded yet.
    Room,
    /// The value of its job.
    Answer(K),
    /// The answer of another thread.
    Later(Awaited<Response>),
    /// The response of the server that it has asked.
    Fetch(CallId, K),
    /// Its file is being opened.
    File(Box<files::AwaitedFile>),
    /// The rest of its file, which is being sent.
    Sending(Box<files::FileOnWire>),
    /// The next block of its file.
    Blocks(Box<blocks::BlockFile>),
    /// The response of the server that it is passed on to.
    Forward(forward::Forwarding),
    /// Nothing: its bytes go through to another server, and those of the server come back.
    Tunnel(forward::Tunnel),
    /// Room for the next part of its response.
    Stream(Box<Streamed>),
    /// The rest of a body that nobody wants. The response is written.
    Skip,
}

impl<K> Stage<K> {
    /// Whether it needs bytes of the connection. Those of a receiver are [delivered][Bytes].
    ///
    /// [Bytes]: receive::Bytes
    fn reads(&self) -> bool {
        matches!(self, Stage::Head | Stage::Body(_) | Stage::Skip)
    }
}

/// A response that is being made.
struct Streamed {
    source: Box<dyn BodySource>,
    /// What compresses it.
    packing: Option<Box<Packing>>,
    encoder: BodyEncoder,
    status: crate::words::status::Status,
    decided: Instant,
    sent: u64,
    /// Whether the peer has ended its side, also where bytes before that are not read.
    has_peer_ended: bool,
    /// Whether the source was asked since.
    is_end_told: bool,
    /// What it hears, if it tells events.
    hearing: Option<events::Hearing>,
}

/// A connection of an engine.
pub(crate) struct Wire<'a, K> {
    pub(crate) engine: &'a mut Engine<Slot<K>>,
    pub(crate) id: Id,
}

impl<K> Wire<'_, K> {
    #[inline]
    fn slot(&mut self) -> Option<&mut Slot<K>> {
        self.engine.state_mut(self.id)
    }
}

/// What all connections of a loop share.
pub(crate) struct Machine<K> {
    limits: Limits,
    remote: Remote,
    topics: Topics,
    /// Room for the ids of those that hear a topic.
    subscribers: Vec<Id>,
    /// What goes to those that hear nothing for a while.
    comment: EventBytes,
    /// The time of this callback.
    now: Instant,
    /// The last head that was decoded.
    head: RequestHead,
    /// Responses that are written at the end of the callback.
    out: Vec<u8>,
    /// Whether some of them were written already.
    has_flushed: bool,
    /// Whether the connection of this callback takes no more output.
    has_broken_off: bool,
    /// What it compresses responses with, if it does.
    compression: Option<Box<Compression>>,
    /// How many bytes it has compressed in this callback.
    packed: usize,
    date: Date,
    /// The last type of a body.
    kind: Kind,
    peers: Peers,
    /// Bytes that were read ahead of another protocol, of connections that detach.
    early: Vec<(Id, windlass::Buf)>,
    pool: Vec<Box<Exchange<K>>>,
    /// What waits for an operation of the loop.
    operations: LoopOps,
    loads: Loads,
    /// The files that bodies are saved to.
    saves: Saves,
    /// Connections to other servers.
    hub: Hub,
    /// A connection that the head of a response was passed on to just now.
    begun: Option<Id>,
    /// How many requests wait for their response.
    running: RunningCounts,
    /// Requests by the class of their status; first those without a response.
    ends: [u64; 6],
    /// Sources of streams that have panicked.
    panics: u64,
    /// Whether the server shuts down.
    is_draining: bool,
    /// Whether it will shut down.
    is_leaving: bool,
}

impl<K: 'static> Machine<K> {
    pub(crate) fn new(
        limits: Limits,
        remote: Remote,
        client: std::sync::Arc<FetchSettings>,
    ) -> Machine<K> {
        Machine {
            head: RequestHead::new(limits.of_codec()),
            limits,
            saves: Saves::default(),
            hub: Hub::new(client, remote.clone()),
            begun: None,
            remote,
            topics: Topics::default(),
            subscribers: Vec::new(),
            comment: events::comment(),
            now: Instant::now(),
            out: Vec::with_capacity(4096),
            has_flushed: false,
            has_broken_off: false,
            compression: None,
            packed: 0,
            date: Date::new(),
            kind: Kind::new(),
            peers: Peers::default(),
            early: Vec::new(),
            pool: Vec::new(),
            operations: LoopOps::default(),
            loads: Loads::default(),
            running: RunningCounts::default(),
            ends: [0; 6],
            panics: 0,
            is_draining: false,
            is_leaving: false,
        }
    }

    /// Gives `Date` a fixed beginning, so that a seed of a simulation has one trace.
    pub(crate) fn simulate_date(&mut self, now: Instant) {
        self.date.simulate(now);
        self.saves.simulate();
    }

    /// Compresses responses from now on.
    #[cfg(feature = "deflate")]
    pub(crate) fn compress(&mut self, rules: std::sync::Arc<crate::message::compress::Compress>) {
        self.compression = Some(Box::new(Compression::new(rules)));
    }

    /// The server serves, on these loops.
    pub(crate) fn serves(&mut self, loops: &windlass_serve::Remote) {
        self.remote.serves(loops);
    }

    /// By which other threads reach it.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// What it has counted.
    pub(crate) fn requests(&self) -> ([u64; 6], u64) {
        (self.ends, self.panics)
    }

    /// The server will shut down, and serves all clients until then.
    pub(crate) fn will_shut_down(&mut self) {
        self.is_leaving = true;
    }

    /// How many requests wait for their response.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether one more request of a route may wait.
    fn admits<P: Program<Keep = K>>(&self, program: &P, route: RouteId) -> bool {
        self.running.admits(route, self.limits.running, program.most_running(route))
    }

    /// A callback begins.
    pub(crate) fn begin_callback(&mut self, engine: &Engine<Slot<K>>) {
        self.now = engine.now();
        (self.has_flushed, self.has_broken_off, self.packed) = (false, false, 0);
        // A callback that has panicked leaves the responses of its connection.
        self.out.clear();
    }

    /// A connection has opened.
    pub(crate) fn opened<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        peer: Option<std::net::SocketAddr>,
        is_tls: bool,
    ) {
        if let Some(link) = wire.link() {
            return self.hear_link(program, wire.engine, link, LinkNews::Opened);
        }
        let mark = self.peers.add(peer);
        if let Some(slot) = wire.slot() {
            slot.peer = mark;
            slot.bits = NonZeroU16::MIN | if is_tls { IS_TLS } else { 0 };
        }
    }

    /// The address of a connection's peer, while it has HTTP.
    pub(crate) fn peer(&self, slot: &Slot<K>) -> Option<std::net::SocketAddr> {
        if slot.is_http() { self.peers.get(slot.peer) } else { None }
    }

    #[inline]
    fn from<'w>(&self, wire: &'w Wire<'_, K>) -> From<'w> {
        let slot = wire.engine.state(wire.id);
        From {
            id: wire.id,
            peer: slot.and_then(|slot| self.peers.get(slot.peer)),
            is_tls: slot.is_some_and(|slot| slot.bits.get() & IS_TLS != 0),
            is_leaving: self.is_leaving,
            trust: self.limits.trust,
            engine: &*wire.engine,
        }
    }

    /// Goes on with a connection in a later turn, when others were served. A wake of the engine
    /// would come in this turn, again and again.
    fn go_on_later(&self, wire: &mut Wire<'_, K>) {
        if !self.remote.wake(wire.id) {
            wire.engine.wake(wire.id); // no other thread reaches the loop yet
        }
    }

    /// An exchange for a request whose first byte has come.
    fn exchange(&mut self) -> Box<Exchange<K>> {
        let now = self.now;
        let mut exchange = self.pool.pop().unwrap_or_else(|| Box::new(Exchange::new(now)));
        exchange.start = now;
        exchange
    }

    /// Takes an exchange back that is done with.
    fn recycle(&mut self, mut exchange: Box<Exchange<K>>) {
        if self.pool.len() < POOL {
            exchange.clear();
            self.pool.push(exchange);
        }
    }

    /// Takes a buffer of an exchange back, behind the exchange.
    fn reuse(&mut self, mut buffer: Vec<u8>, of: fn(&mut Exchange<K>) -> &mut Vec<u8>) {
        let Some(place) = self.pool.last_mut().map(|exchange| of(exchange)) else { return };
        if place.capacity() == 0 && buffer.capacity() <= KEPT {
            buffer.clear();
            *place = buffer;
        }
    }

    /// Decodes a head again that was decoded before.
    fn decode_again(&mut self, bytes: &[u8]) -> bool {
        RequestDecoder::new().decode(&mut self.head, bytes).is_ok()
    }
}

impl<K> Exchange<K> {
    fn new(start: Instant) -> Exchange<K> {
        Exchange {
            stage: Stage::Head,
            decoder: RequestDecoder::new(),
            input: Vec::new(),
            head: Vec::new(),
            body: Vec::new(),
            trailers: Trailers::new(),
            asked: Asked::new(Method::Get, Version::Http11),
            route: RouteId::NONE,
            start,
            peer: PeerState::default(),
            is_paused: false,
            is_awaited: false,
        }
    }

    /// Whether the next request can follow its response: little is left of its body.
    fn can_skip(&self) -> bool {
        !self.is_awaited && self.decoder.left().is_some_and(|left| left <= MOST_SKIPPED)
    }

    /// The fields behind its body, from the bytes that they were decoded from.
    fn keep_trailers(&mut self, fields: &RequestHead, bytes: &[u8]) {
        let fields = fields.fields(bytes).map(|(name, value)| (name.to_owned(), value.to_vec()));
        self.trailers = fields.collect();
    }

    /// Whether its response is written, and the rest of its body is dropped.
    fn is_skipped(&self) -> bool {
        matches!(self.stage, Stage::Skip)
    }

    /// Tells the threads that ask that its peer has ended.
    fn tell_end(&self) {
        self.peer.watched.iter().for_each(Presence::end);
    }

    /// What it keeps beyond its own size, in bytes.
    fn held(&self) -> usize {
        let receiving = match &self.stage {
            Stage::Receive(receiving) => receiving.held(),
            Stage::Blocks(blocks) => blocks.held(),
            _ => 0,
        };
        self.input.len() + self.head.len() + self.body.len() + receiving
    }

    fn clear(&mut self) {
        for buffer in [&mut self.input, &mut self.head, &mut self.body] {
            empty(buffer);
        }
        self.stage = Stage::Head;
        self.decoder = RequestDecoder::new();
        self.trailers = Trailers::new();
        self.route = RouteId::NONE;
        self.peer.watched.clear();
        (self.peer.has_ended, self.is_paused, self.is_awaited) = (false, false, false);
    }
}

/// Empties a buffer that is to be used again.
fn empty(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT { *buffer = Vec::new() } else { buffer.clear() }
}

/// A request, from parts that are borrowed apart.
fn arrived<'a>(head: &'a RequestHead, bytes: &'a [u8], from: From<'a>) -> Arrived<'a> {
    Arrived { head, bytes, from }
}

/// The program's type of what is kept.
type Keep<P> = <P as Program>::Keep;
