//! Datagram sockets: each datagram is an event, and an answer goes to its sender.

use std::io;

use windlass::driver::{Driver, OpCode};
use windlass::net::DatagramOptions;
use windlass::{Address, Buf, Completion, Done, ErrorKind, Op, Source, Watcher};

use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, LISTENERS};
use crate::parts::datagrams::BOOKKEEPING;
use crate::parts::datagrams::Socket;
use crate::words::event::Event;
use crate::words::refused::{Refusal, Refused};

/// How many receives a socket has in flight. So a turn takes at most as many of its datagrams.
const RECEIVES: u32 = 32;

impl<S> Engine<S> {
    /// Binds a datagram socket. From then on each datagram is an [`Event::Datagram`].
    ///
    /// With [`Config::udp_sessions`](crate::Config::udp_sessions) each peer of the socket is a
    /// connection instead: a session.
    ///
    /// - Its first datagram opens it. Each datagram is an [`Event::Data`], also an empty one. (A
    ///   Unix socket without an address is no session: its datagrams are [`Event::Datagram`].)
    /// - Each [`write`](Engine::write) is one datagram. It is charged to the connection and to the
    ///   [budget](crate::memory::Budget), with 128 bytes more, until the kernel has taken it.
    /// - It ends with [`Cause::Idle`](crate::Cause::Idle) when it has heard nothing for
    ///   [`Limits::session_idle`](crate::Limits::session_idle): never earlier, and later by at most
    ///   a sixteenth. Datagrams that it sends do not count.
    /// - [`close`](Engine::close) ends it when its datagrams are sent. The next datagram of its
    ///   peer opens another session.
    /// - While there are [`Limits::sessions`](crate::Limits::sessions) sessions, datagrams of
    ///   further peers are dropped, and
    ///   [`refused_datagrams`](crate::report::Counters::refused_datagrams) counts them. No session
    ///   ends to make room, so a flood of new peers does not end the others.
    /// - While it is [paused](Engine::pause), its datagrams wait, at most
    ///   [`Limits::high`](crate::Limits::high) bytes of them, with 128 more for each. Further ones
    ///   are dropped, and [`dropped_datagrams`](crate::report::Counters::dropped_datagrams) counts
    ///   them.
    /// - [`stop_listening`](Engine::stop_listening) ends it with
    ///   [`Cause::Shutdown`](crate::Cause::Shutdown), because the socket closes.
    ///
    /// Returns the number of the socket among the [listeners](Engine::listeners). The socket keeps
    /// the system's buffer sizes: the options of the [`Config`](crate::Config) are for connections.
    ///
    /// ```
    /// use std::net::UdpSocket;
    /// use windlass::net::DatagramOptions;
    /// use windlass::{Completions, Watcher};
    /// use windlass_serve::{Config, Engine, Event};
    ///
    /// let config = Config::new().udp_sessions(true);
    /// let (mut watcher, mut engine) = (Watcher::new()?, Engine::<()>::new(config));
    /// let local = ([127, 0, 0, 1], 0);
    /// let socket = engine.bind_datagram(&mut watcher, local, DatagramOptions::default())?;
    /// let to = watcher.local_address(engine.listeners()[socket])?.ip().expect("it has a port");
    ///
    /// let peer = UdpSocket::bind("127.0.0.1:0")?;
    /// peer.send_to(b"hello", to)?;
    ///
    /// let (mut done, mut has_ended) = (Completions::new(), false);
    /// while !has_ended {
    ///     engine.flush(&mut watcher);
    ///     watcher.wait(&mut done)?;
    ///     let mut batch = done.visit();
    ///     while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
    ///         match event {
    ///             Event::Opened { origin, .. } => println!("a session of {:?}", origin.peer),
    ///             Event::Data { id, data } => {
    ///                 engine.write(id, data)?;
    ///                 engine.close(id); // when the answer is sent
    ///             }
    ///             Event::Closed { unsent, .. } => has_ended = unsent == 0,
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// let mut answer = [0; 16];
    /// let count = peer.recv(&mut answer)?;
    /// assert_eq!(&answer[..count], b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - As for [`Watcher::bind_datagram`].
    /// - As for [`Watcher::submit`]: the watcher refuses the first receive.
    /// - `Other`: the engine has 65,536 listeners already.
    pub fn bind_datagram<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: impl Into<Address>,
        options: DatagramOptions,
    ) -> io::Result<usize> {
        let has_sessions = self.config.udp_sessions;
        self.bind_datagram_as(watcher, address.into(), options, has_sessions)
    }

    pub(crate) fn bind_datagram_as<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        address: Address,
        options: DatagramOptions,
        has_sessions: bool,
    ) -> io::Result<usize> {
        let source = watcher.bind_datagram(address, options)?;
        self.receive_from(watcher, source, has_sessions)
    }

    /// Receives from a datagram socket.
    pub(crate) fn receive_from<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        source: Source,
        has_sessions: bool,
    ) -> io::Result<usize> {
        let listener = self.number_of_listener(watcher, source)?;
        // The first receive shows whether the descriptor is a datagram socket.
        let first = Op::recv_from(source).token(self.token(LISTENERS + listener as u32));
        if let Err(refused) = watcher.submit(first) {
            watcher.abort(source);
            return Err(refused.into());
        }
        self.note_clock(watcher);
        self.entrance.listeners.push(source);
        self.udp.datagrams.sockets.push(Socket {
            listener,
            has_sessions,
            receives: 1,
            failures: 0,
            is_paused: false,
            charged: 0,
        });
        self.log_listening(watcher, listener);
        self.receive(watcher, listener);
        Ok(listener)
    }

    /// Whether a listener is a datagram socket.
    pub(crate) fn has_datagrams(&mut self, listener: usize) -> bool {
        self.udp.datagrams.socket(listener).is_some()
    }

    /// Submits the receives that are missing.
    pub(crate) fn receive<D: Driver>(&mut self, watcher: &mut Watcher<D>, listener: usize) {
        let source = self.entrance.listeners[listener];
        let token = self.token(LISTENERS + listener as u32);
        let Some(socket) = self.udp.datagrams.socket(listener) else { return };
        while socket.receives < RECEIVES && !socket.is_paused && !source.is_none() {
            let submitted = watcher.submit(Op::recv_from(source).token(token));
            if submitted.is_err() {
                if is_full(submitted) {
                    self.request(Request::Accept(listener));
                }
                return;
            }
            socket.receives += 1;
        }
    }

    /// Sends a datagram from a datagram socket in the next [`flush`](Engine::flush). `listener` is
    /// the number that [`bind_datagram`](Engine::bind_datagram) returned.
    ///
    /// A send that fails later makes no event:
    /// [`datagram_errors`](crate::report::Counters::datagram_errors) counts it. For example, the
    /// datagram is too long, or the kernel does not take it within
    /// [`Limits::close`](crate::Limits::close). The network can drop any datagram without an error.
    ///
    /// ```
    /// use windlass::Watcher;
    /// use windlass::driver::Driver;
    /// use windlass_serve::{Engine, Event};
    ///
    /// /// Sends each datagram back to its sender.
    /// fn echo<D: Driver>(engine: &mut Engine<()>, watcher: &mut Watcher<D>) {
    ///     while let Some(event) = engine.next_event(watcher) {
    ///         if let Event::Datagram { listener, from, data, .. } = event
    ///             && let Err(refused) = engine.send_to(listener, from, data)
    ///         {
    ///             println!("dropped: {}", refused.reason);
    ///         }
    ///     }
    ///     engine.flush(watcher);
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the buffer back, with:
    ///
    /// - [`Refusal::Stale`]: no datagram socket has this number, or it is closed.
    /// - [`Refusal::Cap`]: more than [`Limits::cap`](crate::Limits::cap) bytes would wait for this
    ///   socket, with 128 more for each datagram.
    /// - [`Refusal::Memory`]: more than three quarters of
    ///   [`Limits::memory`](crate::Limits::memory) would be in use.
    pub fn send_to(
        &mut self,
        listener: usize,
        to: impl Into<Address>,
        data: impl Into<Buf>,
    ) -> Result<(), Refused<Buf>> {
        let data = data.into();
        let cap = self.config.limits.cap;
        let is_open = self.entrance.listeners.get(listener).is_some_and(|source| !source.is_none());
        let Some(socket) = self.udp.datagrams.socket(listener).filter(|_| is_open) else {
            return Err(Refused { value: data, reason: Refusal::Stale });
        };
        let bytes = u32::try_from(data.len() + BOOKKEEPING).unwrap_or(u32::MAX);
        if bytes as usize + socket.charged as usize > cap {
            return Err(Refused { value: data, reason: Refusal::Cap });
        }
        if !self.memory.budget.try_charge(bytes, usize::MAX) {
            return Err(Refused { value: data, reason: Refusal::Memory });
        }
        socket.charged += bytes;
        self.udp.datagrams.outbox.push((listener, to.into(), data));
        self.work.requests = true;
        Ok(())
    }

    /// Sends the datagrams of this turn.
    pub(crate) fn send_datagrams<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        let mut outbox = std::mem::take(&mut self.udp.datagrams.outbox);
        for (listener, to, data) in outbox.drain(..) {
            let (source, bytes) = (self.entrance.listeners[listener], data.len());
            // A datagram is one buffer.
            let data = if data.parts().len() > 1 { Buf::from(data.into_vec()) } else { data };
            let send = Op::send_to(source, data, to);
            let send = send.token(self.token(LISTENERS + listener as u32));
            // All that wait take one system call, where the system has such a call.
            let send = send.timeout(self.config.limits.close).deferred();
            if watcher.submit(send).is_err() {
                self.counters.datagram_errors += 1;
                self.discharge_datagram(listener, bytes);
            }
        }
        if self.udp.datagrams.outbox.is_empty() {
            // The empty list keeps its memory for the next datagrams.
            self.udp.datagrams.outbox = outbox;
        }
    }

    fn discharge_datagram(&mut self, listener: usize, bytes: usize) {
        if let Some(socket) = self.udp.datagrams.socket(listener) {
            let bytes = (bytes + BOOKKEEPING) as u32;
            socket.charged -= bytes;
            self.memory.budget.change(bytes, 0);
        }
    }
}

impl<S: Default> Engine<S> {
    /// An operation of a datagram socket has ended.
    pub(crate) fn take_datagram<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: usize,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        match completion.code() {
            OpCode::SendTo => {
                self.counters.datagram_errors += u64::from(completion.result.is_err());
                let bytes = completion.take_buf().len();
                self.discharge_datagram(listener, bytes);
                None
            }
            OpCode::RecvFrom => self.received(watcher, listener, completion),
            // After a pause.
            OpCode::Timer => {
                self.udp.datagrams.socket(listener)?.is_paused = false;
                self.receive(watcher, listener);
                None
            }
            // The close at the end. If it failed, some datagrams were not sent in time.
            _ => {
                if completion.result.is_err() {
                    watcher.abort(completion.source);
                }
                None
            }
        }
    }

    fn received<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        listener: usize,
        completion: Completion,
    ) -> Option<Event<S>> {
        let source = *self.entrance.listeners.get(listener)?;
        let socket = self.udp.datagrams.socket(listener)?;
        socket.receives -= 1;
        let has_sessions = socket.has_sessions;
        let event = match completion.result {
            Ok(Done::Received { data, from, truncated }) => {
                socket.failures = 0;
                self.counters.datagrams += 1;
                self.counters.truncated_datagrams += u64::from(truncated);
                Some(Event::Datagram { listener, from, data, truncated })
            }
            Err(error) => match error.kind() {
                ErrorKind::Aborted | ErrorKind::Closed | ErrorKind::Cancelled => return None,
                // An ICMP message about an earlier datagram, for example: the socket goes on.
                _ => {
                    self.counters.datagram_errors += 1;
                    socket.failures += 1;
                    if socket.failures % (2 * RECEIVES) == 0 {
                        socket.is_paused = true;
                        self.pause_listener(watcher, listener);
                    }
                    None
                }
            },
            Ok(_) => None,
        };
        if !source.is_none() {
            self.receive(watcher, listener);
        }
        match event {
            // The program's code makes the state, and can panic: everything else is done.
            Some(Event::Datagram { .. }) if has_sessions && source.is_none() => {
                self.counters.refused_datagrams += 1; // the socket is closed
                None
            }
            Some(Event::Datagram { from, data, .. }) if has_sessions && !from.is_unspecified() => {
                self.heard(watcher, listener, from, data)
            }
            event => event,
        }
    }
}

impl<S> Engine<S> {
    /// Closes a datagram socket after it has sent its datagrams.
    pub(crate) fn close_datagrams<D: Driver>(&mut self, watcher: &mut Watcher<D>, listener: usize) {
        self.send_datagrams(watcher);
        self.send_outbox(watcher);
        self.close_sessions(listener);
        let source = std::mem::replace(&mut self.entrance.listeners[listener], Source::NONE);
        let token = self.token(LISTENERS + listener as u32);
        let close = Op::close(source).token(token).timeout(self.config.limits.close);
        if !source.is_none() && watcher.submit(close).is_err() {
            watcher.abort(source);
        }
    }
}
