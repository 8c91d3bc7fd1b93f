//! How connections come: accepts, connects, and descriptors that the program gives.

use std::io;
use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::net::ListenOptions;
use windlass::{
    Address, Completion, Done, ErrorKind, Handle, Op, Refusal as Reason, Source, Watcher,
};

use crate::engine::balance::Choice;
use crate::engine::events::Pending;
use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, LISTENERS};
use crate::inbox::MOST_LISTENERS;
use crate::log::{LogEvent, RefusedBecause};
use crate::parts::cipher::Tls;
use crate::parts::idle::IdleClock;
use crate::parts::table::{ABORT, CONNECTING, ENDED, HELD, READING, STOPPED};
use crate::parts::transport::{Accepted, Door};
use crate::stage::Stage;
use crate::sys::BoundPath;
use crate::words::cause::Cause;
use crate::words::event::{Event, Origin};
use crate::words::id::Id;
use crate::words::proxy::Versions;

/// How long a listener that has failed waits before it accepts again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a datagram socket is refused that is to encrypt.
pub(crate) const NO_TLS: &str = "a datagram socket has no TLS";

impl<S: Default> Engine<S> {
    /// Listens at an address, and accepts from then on. Returns the number of the listener, which
    /// connections [name](Origin::listener): 0, 1, 2 …
    ///
    /// # Errors
    ///
    /// - As for [`Watcher::listen_with`].
    /// - As for [`Watcher::set_option`]: the system refuses an option of the
    ///   [`Config`](crate::Config).
    /// - As for [`Watcher::submit`]: the watcher refuses the first accept.
    /// - `Other`: the engine has 65,536 listeners already.
    /// - `InvalidInput`: [`Config::proxy`](crate::Config::proxy) lists no networks.
    pub fn listen<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: impl Into<Address>,
        options: ListenOptions,
    ) -> io::Result<usize> {
        self.listen_as(watcher, address, options, None, None)
    }

    /// Accepts from a listener that the program has made, a `std::net::TcpListener` for example. A
    /// datagram socket works, too: see [`Event::Datagram`].
    ///
    /// Connections have the options of the [configuration](crate::Config) if they are established
    /// from here on. Those that wait in the listener's backlog already do not have them.
    ///
    /// # Errors
    /// As for [`listen`](Engine::listen) and [`Watcher::attach`]. The first accept or receive fails
    /// if the descriptor is neither a listener nor a datagram socket.
    pub fn add_listener<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: impl Into<Handle>,
    ) -> io::Result<usize> {
        self.add_handle(watcher, listener.into(), None)
    }

    /// Encrypts the connections that a listener accepts from now on, as
    /// [`Server::tls`](crate::Server::tls) does for an address. A header of a
    /// [proxy](crate::Config::proxy) still comes first. Connections that are open, or in their
    /// handshake, keep what they have. False if there is no listener with this number, if it is
    /// closed, and for a datagram socket, which stays as it is.
    ///
    /// No connection of a new listener is handled before the program can call this: not between
    /// [`listen`](Engine::listen) and this call, and, for a listener of
    /// [`Remote::add_listener`](crate::Remote::add_listener), not before
    /// [`Event::ListenerAdded`] or
    /// [`Handler::listener_added`](crate::Handler::listener_added).
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    /// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// use windlass::{Watcher, net::ListenOptions};
    /// use windlass_serve::tls::{Pem, Tls};
    /// use windlass_serve::{Config, Engine};
    ///
    /// let tls = Tls::pem(Pem::bytes(&certificate), Pem::bytes(&key))?;
    /// let mut watcher = Watcher::new()?;
    /// let mut engine = Engine::<()>::new(Config::new());
    /// let local = ([127, 0, 0, 1], 0);
    /// let listener = engine.listen(&mut watcher, local, ListenOptions::default())?;
    /// assert!(engine.encrypt_listener(listener, tls));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn encrypt_listener(&mut self, listener: usize, tls: Tls) -> bool {
        let is_open = self.entrance.listeners.get(listener).is_some_and(|source| !source.is_none());
        if !is_open || self.has_datagrams(listener) {
            return false;
        }
        let proxy = self.entrance.transports.door(listener).and_then(|door| door.proxy);
        let door = Door { proxy, tls: Some(tls), time: self.config.limits.handshake };
        self.entrance.transports.set_door(listener, door);
        true
    }

    /// As `listen`; `versions` are those of the address, if it names any.
    pub(crate) fn listen_as<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: impl Into<Address>,
        options: ListenOptions,
        versions: Option<Versions>,
        tls: Option<Tls>,
    ) -> io::Result<usize> {
        let door = self.door(versions, tls)?;
        let source = watcher.listen_with(address, options)?;
        self.entrance.has_stopped = false;
        self.accept_from(watcher, source, door)
    }

    /// The sources of the listeners and of the datagram sockets, by their numbers: for
    /// [`Watcher::local_address`]. A source is [`Source::NONE`] once it is closed.
    pub fn listeners(&self) -> &[Source] {
        &self.entrance.listeners
    }

    /// Leaves a number out, so that an address has the same one in every loop.
    pub(crate) fn skip_listener(&mut self) {
        self.entrance.listeners.push(Source::NONE);
    }

    /// A listener has accepted a connection, has failed, or has waited after a failure.
    pub(crate) fn accepted<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: usize,
        completion: Completion,
    ) -> Option<Event<S>> {
        if self.has_datagrams(listener) {
            return self.take_datagram(watcher, listener, completion);
        }
        let source = *self.entrance.listeners.get(listener)?;
        let more = completion.has_more();
        if completion.code() == OpCode::Timer {
            self.accept_again(watcher, listener);
            return None;
        }
        match completion.result {
            Ok(Done::Accepted(handle)) => {
                if !more {
                    self.accept_again(watcher, listener);
                }
                let door = self.entrance.transports.door(listener);
                let accepted = Accepted::new(handle, listener, door);
                // Before it takes the place, or the thread, of one that is let in.
                if !self.is_let_in(watcher, &accepted) {
                    self.count_load(1);
                    self.did_not_open(accepted.origin(), RefusedBecause::Network);
                    return None;
                }
                match self.balance(accepted) {
                    Choice::Here(accepted) => self.open(watcher, accepted),
                    Choice::Elsewhere => None,
                    Choice::Nowhere(accepted) => {
                        if let Err(accepted) = self.pass_on(accepted) {
                            self.turn_away(watcher, accepted, Some(listener));
                        }
                        None
                    }
                }
            }
            // The listener was closed.
            Err(_) if source.is_none() => None,
            Err(error) => {
                let error = error.kind();
                if matches!(error, ErrorKind::Aborted | ErrorKind::Closed | ErrorKind::Cancelled) {
                    return None;
                }
                self.counters.accept_errors += 1;
                self.log(LogEvent::AcceptFailed { listener, error });
                self.pause_listener(watcher, listener);
                Some(Event::AcceptFailed { listener, error })
            }
            Ok(_) => None,
        }
    }

    /// Opens a connection that this loop, or another one, has accepted and counted.
    pub(crate) fn open<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        accepted: Accepted,
    ) -> Option<Event<S>> {
        if !accepted.is_passed_on && !self.has_room() && !self.entrance.refuses {
            return match self.pass_on(accepted) {
                Ok(()) => None,
                Err(accepted) => self.open_here(watcher, accepted),
            };
        }
        self.open_here(watcher, accepted)
    }

    /// Whether there is room for one more accepted connection.
    fn has_room(&self) -> bool {
        self.table.len - self.udp.sessions.len() < self.config.limits.connections
    }

    /// As `open`, but gives the connection to no other server.
    fn open_here<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        accepted: Accepted,
    ) -> Option<Event<S>> {
        let origin = accepted.origin();
        if self.entrance.refuses {
            self.did_not_open(origin, RefusedBecause::Shutdown);
            return None;
        }
        if !self.memory.budget.admits() {
            self.did_not_open(origin, RefusedBecause::Memory);
            return None;
        }
        let has_room = self.has_room();
        let is_plain = accepted.is_plain();
        let door = accepted.door().filter(|_| has_room).cloned();
        // It is the program's, and can panic: the socket is a bare descriptor then, and closes.
        let is_ready = has_room && door.is_none();
        self.told.making = is_ready.then_some(origin);
        let state = is_ready.then(S::default);
        self.told.making = None;
        let source = match watcher.attach(accepted.handle) {
            Ok(source) => source,
            Err(refused) => {
                self.did_not_open(origin, RefusedBecause::Rejected(refused.reason));
                return None;
            }
        };
        if let Some(door) = door {
            self.begin_handshake(watcher, source, door, origin);
            return None;
        }
        let Some(id) = state.and_then(|state| self.table.insert(source, 0, Some(state))) else {
            self.did_not_open(origin, RefusedBecause::Connections);
            self.say_farewell(watcher, source, is_plain);
            return None;
        };
        Some(self.opened(watcher, id, origin))
    }

    /// An accepted connection is open from now on.
    pub(crate) fn opened<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        origin: Origin,
    ) -> Event<S> {
        self.counters.accepted += 1;
        self.log_opened(id, origin);
        self.set_options_of_connection(watcher, id, true);
        self.begin(watcher, id);
        Event::Opened { id, origin }
    }

    /// Turns an accepted and counted connection away, because there is no thread for it.
    #[cold]
    pub(crate) fn turn_away<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        accepted: Accepted,
        listener: Option<usize>,
    ) {
        let is_plain = accepted.is_plain();
        let origin = Origin { listener, peer: accepted.handle.peer() };
        self.did_not_open(origin, RefusedBecause::Threads);
        if let Ok(source) = watcher.attach(accepted.handle) {
            self.say_farewell(watcher, source, is_plain);
        }
    }
}

impl<S> Engine<S> {
    /// Tells the log of a new listener.
    pub(crate) fn log_listening<D: Driver>(&self, watcher: &mut Watcher<D>, listener: usize) {
        if self.config.log.is_some() {
            let address = watcher.local_address(self.entrance.listeners[listener]).ok();
            self.log(LogEvent::Listening { listener, address: address.as_ref() });
        }
    }

    /// Whether the state of an accepted connection is being made, or the program is asked about
    /// its hello.
    pub(crate) fn is_making(&self) -> bool {
        self.told.making.is_some() || self.told.asking.is_some()
    }

    /// The program's code has panicked. If it was to make the state of an accepted connection, or
    /// to answer its hello, the connection is not opened.
    #[cold]
    pub(crate) fn gave_up_making(&mut self) {
        if let Some(id) = self.told.asking.take() {
            self.abort_as(id, Cause::Panicked);
        }
        if let Some(origin) = self.told.making.take() {
            self.did_not_open(origin, RefusedBecause::Panicked);
        }
    }

    /// Counts an accepted connection that is not opened.
    #[cold]
    pub(crate) fn did_not_open(&mut self, origin: Origin, cause: RefusedBecause) {
        self.counters.refused += 1;
        self.count_load(-1);
        let Origin { listener, peer } = origin;
        self.log(LogEvent::Refused { listener, peer, cause });
    }

    pub(crate) fn log_opened(&self, id: Id, origin: Origin) {
        if self.config.log.is_some() {
            let Origin { listener, peer } = origin;
            self.log(LogEvent::Opened { id, listener, peer });
        }
    }

    pub(crate) fn add_handle<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: Handle,
        tls: Option<Tls>,
    ) -> io::Result<usize> {
        let door = self.door(None, tls)?;
        let source = watcher.attach(listener)?;
        self.entrance.has_stopped = false;
        self.accept_from(watcher, source, door)
    }

    fn accept_from<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        source: Source,
        door: Option<Door>,
    ) -> io::Result<usize> {
        let number = self.number_of_listener(watcher, source)?;
        let token = self.token(LISTENERS + number as u32);
        match watcher.submit(Op::accept(source).multishot().token(token)) {
            Ok(_) => {}
            Err(refused) if refused.reason == Reason::Unsupported => {
                if door.is_some_and(|door| door.tls.is_some()) {
                    watcher.abort(source);
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_TLS));
                }
                return self.receive_from(watcher, source, self.config.udp_sessions);
            }
            Err(refused) => {
                watcher.abort(source);
                return Err(refused.into());
            }
        }
        if let Err(reason) = self.set_options_of_listener(watcher, source) {
            watcher.abort(source);
            return Err(reason.into());
        }
        if let Some(door) = door {
            self.entrance.transports.set_door(number, door);
        }
        self.note_clock(watcher);
        self.entrance.listeners.push(source);
        self.log_listening(watcher, number);
        Ok(number)
    }

    /// The path of a listener is removed when the listener closes.
    pub(crate) fn keep_path(&mut self, listener: usize, path: BoundPath) {
        self.entrance.paths.push((listener, path));
    }

    /// Says that a listener of another thread was not added.
    #[cold]
    pub(crate) fn refuse_listener(&mut self) {
        let why = io::Error::other("the server has stopped listening");
        self.told.pending.push_back(Pending::ListenerAdded(Box::new(Err(why))));
    }

    /// Closes the listeners and the datagram sockets. Accepted connections stay open. A datagram
    /// socket first sends its waiting datagrams, for at most
    /// [`Limits::close`](crate::Limits::close).
    pub fn stop_listening<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.entrance.has_stopped = true;
        for listener in 0..self.entrance.listeners.len() {
            self.close_listener_now(watcher, listener);
        }
    }

    /// Closes one listener, or one datagram socket, in the next [`flush`](Engine::flush), as
    /// [`stop_listening`](Engine::stop_listening) closes all. The Unix path of a server's listener
    /// is removed, unless another socket has it by now. Its number names no other one later.
    /// False if it is closed already, or if there is none with this number.
    pub fn close_listener(&mut self, listener: usize) -> bool {
        let is_open = self.entrance.listeners.get(listener).is_some_and(|source| !source.is_none());
        if is_open {
            self.request(Request::CloseListener(listener));
        }
        is_open
    }

    pub(crate) fn close_listener_now<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: usize,
    ) {
        if self.has_datagrams(listener) {
            return self.close_datagrams(watcher, listener);
        }
        // First the path: a client that finds the path finds a listener.
        self.entrance.paths.retain(|(of, _)| *of != listener);
        watcher.abort(std::mem::replace(&mut self.entrance.listeners[listener], Source::NONE));
    }

    /// The number of the next listener.
    pub(crate) fn number_of_listener<D: Driver>(
        &self,
        watcher: &mut Watcher<D>,
        source: Source,
    ) -> io::Result<usize> {
        let number = self.entrance.listeners.len();
        if number == MOST_LISTENERS {
            watcher.abort(source);
            return Err(io::Error::other("an engine has at most 65536 listeners"));
        }
        Ok(number)
    }

    /// Accepts from a listener again; in the next `flush` if the watcher refuses it now.
    fn accept_again<D: Driver>(&mut self, watcher: &mut Watcher<D>, listener: usize) {
        let source = self.entrance.listeners[listener];
        let token = self.token(LISTENERS + listener as u32);
        if is_full(watcher.submit(Op::accept(source).multishot().token(token))) {
            self.request(Request::Accept(listener));
        }
    }

    /// Lets a listener that has failed wait.
    pub(crate) fn pause_listener<D: Driver>(&mut self, watcher: &mut Watcher<D>, listener: usize) {
        let source = self.entrance.listeners[listener];
        let token = self.token(LISTENERS + listener as u32);
        if is_full(watcher.submit(Op::timer(ACCEPT_PAUSE).owned_by(source).token(token))) {
            self.request(Request::Pause(listener));
        }
    }

    /// Queues a request for the next `flush`.
    pub(crate) fn request(&mut self, request: Request) {
        self.work.wanted.push(request);
        self.work.requests = true;
    }

    /// Begins to read from a new connection.
    pub(crate) fn begin<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        let source = self.table.place(id.index()).source;
        self.note_clock(watcher);
        self.table.begin(id.index(), watcher.now());
        if let Some(idle) = self.config.limits.idle {
            // If the source has ended, its read reports the end.
            if let Err(Reason::Full { .. }) = watcher.set_idle_timeout(source, Some(idle)) {
                self.abort_as(id, Cause::Rejected);
            }
        }
        if self.work.has_files.is_none() {
            self.look_for_files(watcher, source);
        }
        self.read_as_wanted(watcher, id.index());
    }

    /// Submits a read where none is in flight and the program wants data. If it is refused, the
    /// connection ends in the next `flush`: its first event may be on its way to the program.
    pub(crate) fn read_as_wanted<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if !self.try_to_read(watcher, index) {
            self.abort_as(self.table.id(index), Cause::Rejected);
        }
    }

    /// As `read_as_wanted`; false if the read is refused.
    pub(crate) fn try_to_read<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        let place = self.table.place(index);
        let stays = READING | ENDED | STOPPED | CONNECTING | ABORT;
        // The handshake of an upgrade ends, whatever stops the reads of the program's data.
        let is_stopped = place.flags & stays != 0
            && (place.stage != Stage::Handshake || place.flags & stays & !STOPPED != 0);
        if is_stopped || place.stage >= Stage::Leaving {
            return true;
        }
        // The end of the input can be among what is held back. Nothing follows it.
        if place.flags & HELD != 0
            && let Some(active) = self.table.active_of(index)
            && active.held.back().is_some_and(|data| data.is_empty())
        {
            return true;
        }
        let place = self.table.place(index);
        if place.stage == Stage::Handshake && self.entrance.transports.has_end(index) {
            return true;
        }
        let read = Op::read(place.source).multishot().token(self.token(index));
        let is_submitted = watcher.submit(read).is_ok();
        if is_submitted {
            self.table.place_mut(index).flags |= READING;
            if let Some(active) = self.table.active_of(index)
                && active.idle != IdleClock::Over
            {
                active.idle = IdleClock::Elsewhere;
            }
        }
        is_submitted
    }

    /// Carries out the queued requests.
    #[cold]
    pub(crate) fn carry_out_requests<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.work.requests = false;
        self.note_clock(watcher);
        self.send_datagrams(watcher);
        self.submit_jobs(watcher);
        self.submit_ops(watcher);
        for request in std::mem::take(&mut self.work.wanted) {
            match request {
                Request::Tick(span) => {
                    if let Some(timer) = self.clocks.tick.take() {
                        watcher.cancel(timer);
                    }
                    let timer = Op::timer(span).token(self.token(super::TICK));
                    let submitted = watcher.submit(timer);
                    self.clocks.tick = submitted.as_ref().ok().copied();
                    if is_full(submitted) {
                        self.request(Request::Tick(span));
                    }
                }
                Request::Accept(listener) | Request::Pause(listener)
                    if self.entrance.listeners[listener].is_none() => {}
                Request::Accept(listener) if self.has_datagrams(listener) => {
                    self.receive(watcher, listener);
                }
                Request::Accept(listener) => self.accept_again(watcher, listener),
                Request::CloseListener(listener) => self.close_listener_now(watcher, listener),
                Request::AddListener(_) if self.entrance.has_stopped => self.refuse_listener(),
                Request::AddListener(handle) => {
                    let added = self.add_handle(watcher, handle, None);
                    self.told.pending.push_back(Pending::ListenerAdded(Box::new(added)));
                }
                Request::Pause(listener) => self.pause_listener(watcher, listener),
                Request::Sweep => {
                    self.clocks.wants_sweep = false;
                    self.arm_sweep(watcher);
                }
                Request::Deadlines => self.end_late(watcher),
                // Without effect on a job that has begun.
                Request::Cancel(ticket) => _ = watcher.cancel(ticket),
                Request::Option(id, option) => self.set_option_of(watcher, id, option),
                Request::Expiry => self.arm_expiry(watcher),
                Request::Receive(id) => self.receive_of_client(watcher, id),
                Request::Idle(id) => {
                    if let Some(at) = self.table.session(id) {
                        self.udp.sessions.touch(at, watcher.update_now());
                    } else if let Some(source) = self.source(id) {
                        if let Some(span) = watcher.idle_timeout(source) {
                            // Refused only if the source has ended: its read reports the end.
                            let _ = watcher.set_idle_timeout(source, Some(span));
                        }
                        self.begin_idle_anew(watcher, id.index());
                    }
                }
                Request::Idled(id) => self.end_idle(watcher, id),
                Request::Upgrade(id) => self.look_at_upgrade(watcher, id),
                Request::Watch(id) if self.table.lives(id) => {
                    self.look_at_peer(watcher, id.index());
                }
                Request::Watch(_) => {}
                Request::Reads(id) => self.reads_changed(watcher, id),
                Request::IdleTimeout(id, span) => self.set_idle_timeout_of(watcher, id, span),
                Request::Allowances => self.look_at_allowances(watcher),
                Request::Connect(id, ..) | Request::Attach(id, _)
                    if self.table.get(id).is_none_or(|place| place.flags & ABORT != 0) => {}
                Request::Connect(id, addresses, mut options) => {
                    options.token = self.token(id.index());
                    if let (None, Some(limit)) = (options.deadline, self.config.limits.connect) {
                        options = options.timeout(limit);
                    }
                    match watcher.connect(addresses, options) {
                        Ok((source, _)) => self.table.place_mut(id.index()).source = source,
                        Err(Reason::Os(errno)) => {
                            self.end_connection(watcher, id.index(), Cause::Os(errno), 0);
                        }
                        Err(_) => self.end_connection(watcher, id.index(), Cause::Rejected, 0),
                    }
                }
                Request::Attach(id, handle) => self.begin_attached(watcher, id, handle),
                Request::Client(id, socket) => self.begin_client(watcher, id, socket),
            }
        }
        if std::mem::take(&mut self.udp.sessions.is_due) {
            self.expire(watcher);
        }
        // A client that could not connect gives back the charges of its datagrams.
        self.send_outbox(watcher);
        // After all that other connections have to do.
        self.answer_flights(watcher);
    }
}
