//! HTTP in a loop that the program owns.
//!
//! ```text
//! mod.rs          the type `Engine`: completions in, events out
//! events.rs       what it tells
//! request.rs      a request that the program keeps
//! queue.rs        requests into events
//! fetch.rs        requests to other servers
//! sockets.rs      WebSockets
//! transitions.rs  connections that go over to HTTP, to another protocol, or to other code
//! ```
//!
//! # Why
//! The machine that reads requests and writes responses is that of [`App`](crate::App). So limits,
//! order and bytes are the same. An event has the whole body, up to
//! [`Limits::body`](crate::Limits::body). A body in parts would be two more events for each part of
//! every request, and a second way through the machine; a program that wants the bytes as they come
//! has [`Engine::upgrade`].

mod events;
mod fetch;
mod queue;
mod request;
#[cfg(feature = "websocket")]
mod sockets;
mod transitions;

use std::fmt;
use std::io;
use std::time::Duration;

pub use events::{Event, Refusal, RequestId};
pub use request::OwnedRequest;
pub use transitions::Switching;
use windlass::driver::{Driver, OpCode, Visit};
use windlass::net::ListenOptions;
use windlass::{Address, Buf, Completion, Handle, Message, Op, Source, Watcher};
use windlass_serve::memory::Budget;
use windlass_serve::report::Counters;
use windlass_serve::{Config, Id, Remote};

use crate::client::news::LinkEnd;
use crate::exchange::program::Answer;
use crate::exchange::{Machine, Slot, Wire};
use crate::message::publication::Publication;
use crate::message::response::Response;
use crate::remote::{ToldValue, WillShutDown};
use crate::words::limits::Limits;
use queue::{Queue, Remains};

/// HTTP on a [`Watcher`] that the program owns: requests are events, and each is answered when the
/// program likes.
///
/// It has the verbs of [`windlass_serve::Engine`]: in each turn the program takes the events out of
/// its batch of completions with [`next_event_in`](Engine::next_event_in), and calls
/// [`flush`](Engine::flush). A completion that is not the engine's is an event, too. So one loop
/// serves this engine, others, files, timers and other threads. Only these calls deliver events.
///
/// A connection that goes over to another protocol ([`upgrade`](Engine::upgrade)) is *raw*. It has
/// a state of type `S`, events of its own, and verbs that are for raw connections only.
///
/// ```
/// use windlass::net::ListenOptions;
/// use windlass::{Completions, Watcher};
/// use windlass_web::engine::Event;
/// use windlass_web::serve::Config;
/// use windlass_web::{Engine, Limits};
///
/// let mut watcher = Watcher::new()?;
/// let mut engine = Engine::<()>::new(Config::new(), Limits::new());
/// engine.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
/// # let address = watcher.local_address(engine.listeners()[0])?.ip().unwrap();
/// # let client = std::thread::spawn(move || -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut client = std::net::TcpStream::connect(address)?;
/// #     client.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
/// #     let mut answer = String::new();
/// #     client.read_to_string(&mut answer)?;
/// #     Ok(answer)
/// # });
/// let (mut done, mut served) = (Completions::new(), 0);
/// while served == 0 {
///     watcher.wait(&mut done)?;
///     let mut batch = done.visit();
///     while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
///         match event {
///             Event::Request { id, request } => {
///                 let text = format!("this is {}", request.path());
///                 engine.respond(id, text).expect("it waits");
///             }
///             Event::Ended { .. } => served += 1,
///             Event::Foreign(completion) => println!("not of the engine: {completion:?}"),
///             _ => {}
///         }
///     }
///     engine.flush(&mut watcher);
/// }
/// # assert!(client.join().unwrap()?.ends_with("\r\n\r\nthis is /a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S = ()> {
    below: SlotEngine,
    machine: Machine<()>,
    queue: Queue<S>,
    /// The listeners whose connections are raw.
    raw_listeners: Vec<usize>,
    /// Connections that begin with bytes that were read ahead, until they have opened.
    beginning: Vec<(Id, Buf)>,
    /// Whether other threads reach it: those that answer a request.
    is_reached: bool,
    /// The input of a WebSocket that is being taken.
    #[cfg(feature = "websocket")]
    hearing: Option<(Id, crate::websocket::Intake)>,
}

#[cfg(feature = "websocket")]
type SlotEngine = crate::websocket::OwnCarrier<Slot<()>>;
#[cfg(not(feature = "websocket"))]
type SlotEngine = windlass_serve::Engine<Slot<()>>;

/// The token of what makes the next wait return.
const AGAIN: u64 = u64::MAX - 0x5eb;

impl<S: Default + 'static> Engine<S> {
    /// An engine without connections. `limits` are those of requests, and `config` has those of
    /// connections. Its idle time is [`Limits::keep_alive`], whatever it says, and ends of input
    /// and limits of time are the engine's.
    pub fn new(config: Config, limits: Limits) -> Engine<S> {
        let of_connections = config.limits.idle(limits.keep_alive);
        let config = config.close_on_eof(false).limit_events(true).limits(of_connections);
        let (below, remote) = (windlass_serve::Engine::new(config), Default::default());
        Engine {
            #[cfg(feature = "websocket")]
            below: SlotEngine::new(below, crate::remote::Remote::clone(&remote)),
            #[cfg(not(feature = "websocket"))]
            below,
            machine: Machine::new(limits, remote, Default::default()),
            queue: Queue::new(),
            raw_listeners: Vec::new(),
            beginning: Vec::new(),
            is_reached: false,
            #[cfg(feature = "websocket")]
            hearing: None,
        }
    }

    /// Compresses responses from now on: see [`Compress`](crate::Compress).
    #[cfg(feature = "deflate")]
    pub fn compress(&mut self, rules: crate::message::compress::Compress) {
        self.machine.compress(std::sync::Arc::new(rules));
    }

    /// Takes a completion of the engine. Returns one that is not the engine's.
    ///
    /// The engine's operations have tokens from 2^63 on. A program uses lower ones.
    pub fn complete<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: Completion,
    ) -> Option<Completion> {
        let completion = self.below.complete(watcher, completion)?;
        (!is_again(&completion)).then_some(completion)
    }

    /// Takes out the next event of the completions that [`complete`](Engine::complete) took. Call
    /// it until it returns `None`, then [`flush`](Engine::flush).
    pub fn next_event<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<Event<S>> {
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
    /// in the place of [`complete`](Engine::complete) and [`next_event`](Engine::next_event). A
    /// completion that is not the engine's comes out as [`Event::Foreign`]. Call it until it
    /// returns `None`, then [`flush`](Engine::flush).
    pub fn next_event_in<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        batch: &mut Visit<'_>,
    ) -> Option<Event<S>> {
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

    /// Sends the output of this turn, and carries out what the program has asked for. A flush
    /// delivers no events. If some wait, the next wait returns at once.
    pub fn flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.reach(watcher);
        self.machine.take_own_steps(&mut self.queue, &mut self.below);
        #[cfg(feature = "websocket")]
        self.make_socket_calls();
        self.below.flush(watcher);
        if self.has_own() {
            // A refusal means that completions wait already.
            let _ = watcher.submit(Op::nop().token(AGAIN));
        }
    }

    /// The next event that needs nothing from below.
    fn next_own(&mut self) -> Option<Event<S>> {
        let event = self.queue.events.pop_front();
        #[cfg(feature = "websocket")]
        let event = event.or_else(|| self.next_heard());
        event
    }

    /// Whether there may be one.
    fn has_own(&self) -> bool {
        #[cfg(feature = "websocket")]
        if self.hearing.is_some() || self.queue.has_socket_news() {
            return true;
        }
        !self.queue.events.is_empty()
    }

    /// Other threads reach it from now on: those that answer a request, or publish.
    fn reach<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        if !self.is_reached {
            self.is_reached = true;
            self.machine.serves(&self.below.remote(watcher));
        }
    }

    /// The event of a message, if it is for the program.
    fn message(&mut self, message: Message) -> Option<Event<S>> {
        let message = match message.downcast::<Publication>() {
            Ok(publication) => {
                self.machine.publish(&mut self.queue, &mut self.below, &publication);
                return None;
            }
            Err(message) => message,
        };
        let message = match message.downcast::<ToldValue>() {
            #[cfg(feature = "websocket")]
            Ok(ToldValue(id, value)) => {
                self.machine.tell_raw(&mut self.queue, &mut self.below, id, value);
                return None;
            }
            #[cfg(not(feature = "websocket"))]
            Ok(_) => return None, // its connections have no callbacks
            Err(message) => message,
        };
        // A program that shuts down calls `stop`.
        message.downcast::<WillShutDown>().err().map(|message| Event::Message { message })
    }

    /// The event of what has happened on a connection, if it is one for the program.
    fn take(&mut self, event: windlass_serve::Event<Slot<()>>) -> Option<Event<S>> {
        use windlass_serve::Event as Below;
        self.machine.begin_callback(&self.below);
        #[cfg(feature = "websocket")]
        let event = match self.take_from_socket(event) {
            Ok(heard) => return heard,
            Err(event) => event,
        };
        match event {
            Below::Data { id, data } if self.is_raw(id) => return Some(Event::Data { id, data }),
            Below::Data { id, data } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.data(queue, &mut wire, data);
            }
            Below::Opened { id, origin } => return self.opened(id, origin),
            Below::Eof { id } => {
                if let Some(raw) = self.below.state(id).and_then(Slot::raw) {
                    self.queue.tell_end(raw);
                    return Some(Event::Eof { id });
                }
                let (machine, queue, mut wire) = self.parts(id);
                machine.eof(queue, &mut wire);
            }
            Below::PeerEnded { id } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.peer_ended(queue, &mut wire);
            }
            Below::Drained { id } if self.is_raw(id) => return Some(Event::Drained { id }),
            Below::Drained { id } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.drained(queue, &mut wire);
            }
            Below::LimitReached { id, cause } if self.is_raw(id) => {
                return Some(Event::LimitReached { id, cause });
            }
            Below::LimitReached { id, cause } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.limit_reached(queue, &mut wire, cause);
            }
            Below::FileSent { id, .. } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.file_sent(queue, &mut wire);
            }
            Below::Wake { id } if self.is_raw(id) => return Some(Event::Wake { id }),
            Below::Wake { id } => {
                let (machine, queue, mut wire) = self.parts(id);
                machine.woken(queue, &mut wire);
            }
            Below::Completed(completed) => {
                self.machine.completed(&mut self.queue, &mut self.below, completed);
            }
            Below::Closed {
                state,
                cause,
                #[cfg(feature = "tls")]
                tls_error,
                ..
            } if state.link().is_some() => {
                let link = state.link()?;
                let end = LinkEnd {
                    cause,
                    #[cfg(feature = "tls")]
                    tls_error,
                };
                self.machine.link_closed(&mut self.queue, &mut self.below, link, end);
            }
            Below::Closed { id, cause, unsent, state, .. } => {
                let was_beginning = self.end_beginning(id);
                let end = (id, cause, unsent);
                self.machine.closed(&mut self.queue, &mut self.below, state, end);
                let state = match self.queue.take_over() {
                    #[cfg(feature = "websocket")]
                    Some((state, Remains::Socket(session))) => {
                        let end = session.into_end(cause);
                        return Some(Event::SocketClosed { id, end, state });
                    }
                    Some((state, _)) => Some(state),
                    None => None,
                };
                let state = state.or_else(|| was_beginning.then(S::default))?;
                return Some(Event::Closed { id, cause, unsent, state });
            }
            Below::Detached { id, handle, undelivered, eof, state, .. } => {
                self.machine.detached(&mut self.queue, id, &state, (handle, undelivered, eof));
                let (state, left) = self.queue.take_over()?;
                let Remains::Descriptor(handle, undelivered, eof) = left else { return None };
                return Some(Event::Detached { id, handle, undelivered, eof, state });
            }
            #[cfg(feature = "tls")]
            Below::Upgraded { id } => return self.encrypted(id),
            Below::Tick => return Some(Event::Tick),
            Below::AcceptFailed { listener, error } => {
                return Some(Event::AcceptFailed { listener, error });
            }
            Below::Message { message } => return self.message(message),
            Below::Foreign(completion) => {
                return (!is_again(&completion)).then_some(Event::Foreign(completion));
            }
            _ => {}
        }
        None
    }

    /// Answers a request: at once, or in any later turn.
    ///
    /// The head and the body leave with the next [`flush`](Engine::flush).
    /// [`Event::Ended`] follows when the response is written, and the next request of the
    /// connection comes behind it.
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use windlass_web::engine::{Refusal, RequestId};
    /// use windlass_web::{Engine, Response, Status};
    ///
    /// /// Answers the request that has waited longest.
    /// fn answer(engine: &mut Engine, waiting: &mut VecDeque<RequestId>, value: &str) {
    ///     let Some(id) = waiting.pop_front() else { return };
    ///     match engine.respond(id, Response::text(value).status(Status::CREATED)) {
    ///         Ok(()) => assert_eq!(engine.respond(id, "again"), Err(Refusal::Stale)),
    ///         Err(reason) => println!("{id:?}: {reason}"), // its client has gone
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refusal::Stale`]: the request is over, or has been answered.
    pub fn respond(&mut self, id: RequestId, response: impl Into<Response>) -> Result<(), Refusal> {
        let connection = self.queue.connection(id).ok_or(Refusal::Stale)?;
        let response = response.into();
        let (machine, queue, mut wire) = self.parts(connection);
        machine.begin_callback(wire.engine);
        let has_waited = machine.answer_waiting(queue, &mut wire, Answer::Respond(response));
        if has_waited { Ok(()) } else { Err(Refusal::Stale) }
    }

    /// Listens at an address, and returns the number of the listener: see
    /// [`windlass_serve::Engine::listen`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn listen<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: impl Into<Address>,
        options: ListenOptions,
    ) -> io::Result<usize> {
        self.below.listen(watcher, address, options)
    }

    /// Listens at an address whose connections are raw, with the default state, until the program
    /// lets them go over: see [`begin_http`](Engine::begin_http).
    ///
    /// # Errors
    ///
    /// As for [`listen`](Engine::listen).
    pub fn listen_raw<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: impl Into<Address>,
        options: ListenOptions,
    ) -> io::Result<usize> {
        let listener = self.below.listen(watcher, address, options)?;
        self.raw_listeners.push(listener);
        Ok(listener)
    }

    /// Accepts from a listener that the program has made.
    ///
    /// # Errors
    ///
    /// Those of [`windlass_serve::Engine::add_listener`].
    pub fn add_listener<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: impl Into<Handle>,
    ) -> io::Result<usize> {
        self.below.add_listener(watcher, listener)
    }

    /// Encrypts the connections that a listener accepts from now on: see
    /// [`windlass_serve::Engine::encrypt_listener`]. False if there is no listener with this
    /// number.
    #[cfg(feature = "tls")]
    pub fn encrypt_listener(&mut self, listener: usize, tls: windlass_serve::tls::Tls) -> bool {
        self.below.encrypt_listener(listener, tls)
    }

    /// The sources of the listeners, by their numbers: for [`Watcher::local_address`].
    pub fn listeners(&self) -> &[Source] {
        self.below.listeners()
    }

    /// Shuts down: accepts no more, and closes connections without a request. The others close
    /// behind their response. WebSockets are closed with 1001. Raw connections are the program's.
    /// All is over when [`is_empty`](Engine::is_empty).
    pub fn stop<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.below.stop_listening(watcher);
        self.machine.drain(&mut self.queue, &mut self.below);
    }

    /// Ends all connections at once: see [`windlass_serve::Engine::end`].
    pub fn end<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.below.end(watcher);
    }

    /// Makes an [`Event::Tick`] after `span`. A new call replaces the tick of an earlier one.
    pub fn tick_after(&mut self, span: Duration) {
        self.below.tick_after(span);
    }

    /// Returns the [`Remote`](crate::Remote) by which threads [publish](crate::Remote::publish)
    /// events to [responses](Response::events) of the engine, and read what it
    /// [counts](crate::Remote::totals) of them. Its `drain` does nothing: a program
    /// [stops](Engine::stop) its engine itself.
    ///
    /// ```
    /// use windlass_web::engine::RequestId;
    /// use windlass_web::windlass::Watcher;
    /// use windlass_web::{Engine, Response};
    ///
    /// fn hear(engine: &mut Engine, watcher: &mut Watcher, id: RequestId) {
    ///     engine.respond(id, Response::events().subscribe("prices")).expect("it waits");
    ///     let publisher = engine.publisher(watcher);
    ///     std::thread::spawn(move || publisher.publish("prices", "17.50"));
    /// }
    /// ```
    pub fn publisher<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> crate::remote::Remote {
        self.reach(watcher);
        self.machine.remote().clone()
    }

    /// Returns the [`Remote`] by which other threads reach the engine: they send it
    /// [messages](Event::Message), and write to raw connections.
    pub fn remote<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Remote {
        self.below.remote(watcher)
    }

    /// The budget of bytes of all connections.
    pub fn budget(&self) -> &Budget {
        self.below.budget()
    }

    /// What the engine has counted of its connections.
    pub fn counters(&self) -> &Counters {
        self.below.counters()
    }

    /// The number of connections, including those that are closing.
    pub fn len(&self) -> usize {
        self.below.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    /// The connections, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.below.ids()
    }

    /// Closes a connection, raw or not, behind what is written. False for a stale id.
    pub fn close(&mut self, id: Id) -> bool {
        self.below.close(id)
    }

    /// Ends a connection at once, raw or not. False for a stale id.
    pub fn abort(&mut self, id: Id) -> bool {
        self.below.abort(id)
    }

    /// Counts `Date` from a fixed time on: for a watcher on a simulated kernel. Masks of WebSockets
    /// are foreseeable then, too.
    pub fn simulate_date<D: Driver>(&mut self, watcher: &Watcher<D>) {
        self.machine.simulate_date(watcher.now());
        #[cfg(feature = "websocket")]
        self.below.sockets.keys.simulate();
    }

    fn parts(&mut self, id: Id) -> (&mut Machine<()>, &mut Queue<S>, Wire<'_, ()>) {
        (&mut self.machine, &mut self.queue, Wire { engine: &mut self.below, id })
    }

    fn is_raw(&self, id: Id) -> bool {
        self.below.state(id).is_some_and(|slot| slot.raw().is_some())
    }

    /// Whether the program sees the bytes of a connection: it has neither HTTP nor WebSocket.
    fn has_bytes(&self, id: Id) -> bool {
        let raw = self.below.state(id).and_then(Slot::raw);
        raw.is_some_and(|raw| !self.queue.has_socket(raw))
    }
}

/// Whether a completion is there only to make a wait return.
fn is_again(completion: &Completion) -> bool {
    completion.token == AGAIN && completion.code() == OpCode::Nop
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("connections", &self.below).finish_non_exhaustive()
    }
}
