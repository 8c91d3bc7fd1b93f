//! The callbacks of a server, and their arguments.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::RangeBounds;
use std::task;
use std::time::Duration;

use windlass::driver::Deadline;
use windlass::net::SocketOption;
use windlass::{Address, Buf, ErrorKind, Message, Op};

use super::datagram::Datagram;
use super::ended::{Closed, Detached};

use crate::engine::Engine;
use crate::handles::remote::Remote;
use crate::handles::stream::Stream;
use crate::memory::Charge;
use crate::parts::writer::Writer;
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::id::Id;
use crate::words::job::JobError;
use crate::words::refused::{Refusal, Refused};

/// The answer of a callback: what the server does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// Close the connection after its waiting output is sent. No effect in a callback without a
    /// connection.
    Close,
    /// Hand the descriptor to [`Handler::detached`] after its waiting output is sent. No effect in
    /// a callback without a connection, and where [`Conn::detach`] refuses it.
    Detach,
    /// Shut the whole server down: see [`Server::run`](crate::Server::run).
    Shutdown,
}

/// The callbacks of a server. Each loop has a handler of its own, which stays on its thread.
///
/// The first callback of a connection is `opened`, and its last is `closed` or `detached`, which is
/// called exactly once. (A connect that fails has `closed` only.) A loop calls one callback at a
/// time. A panic in a callback ends its connection with [`Cause::Panicked`], and the server goes
/// on.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler};
///
/// struct Echo;
/// impl Handler for Echo {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
///         c.write(data);
///         Action::None
///     }
/// }
/// ```
#[allow(unused_variables)]
pub trait Handler: Sized {
    /// The state that the program keeps for each connection.
    type State: Default + 'static;

    /// The loop is about to serve. `addresses` are the bound addresses of the server, in the order
    /// in which the program added them. Each has the port that the kernel has chosen for port 0.
    fn serving(&mut self, server: &mut Context<'_, Self::State>, addresses: &[Address]) -> Action {
        Action::None
    }

    /// The shutdown begins: the loop accepts no more connections. It closes those that are open
    /// when their output is sent, after the [grace](crate::Server::grace) of the server. What is
    /// written here is sent first: a farewell, for example. A program that answers requests closes
    /// the connections that wait for one here, and each other one after its answer.
    ///
    /// Each loop and each thread calls this once.
    fn stopping(&mut self, server: &mut Context<'_, Self::State>) -> Action {
        Action::None
    }

    /// A connection was accepted, or has connected.
    fn opened(&mut self, c: &mut Conn<'_, Self::State>, origin: Origin) -> Action {
        Action::None
    }

    /// Bytes have arrived. `data` is empty only if the default of [`wake`](Handler::wake) makes the
    /// call. For a [session](Engine::bind_datagram), `data` is one datagram, and can be empty.
    fn data(&mut self, c: &mut Conn<'_, Self::State>, data: Buf) -> Action {
        Action::None
    }

    /// A datagram has arrived at a `udp://` address, or at a datagram socket of the program. `data`
    /// has its bytes, and is empty for an empty datagram. [`Datagram::reply`] answers the sender.
    ///
    /// At an address with `?sessions=true`, each peer is a connection, and its datagrams are calls
    /// of [`data`](Handler::data): see [`Engine::bind_datagram`].
    ///
    /// Without sessions, datagrams belong to no connection. So they have no state and no other
    /// callback, and [`Action::Close`] and [`Action::Detach`] have no effect. The report counts a
    /// panic in this callback, and the socket goes on.
    fn datagram(&mut self, d: &mut Datagram<'_, Self::State>, data: Buf) -> Action {
        Action::None
    }

    /// The peer has shut down its output, and may still read. This is called only if
    /// [`close_on_eof`](crate::Config::close_on_eof) is off. The default closes the connection.
    fn eof(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::Close
    }

    /// The waiting output was above the [high](crate::Limits::high) mark, if only until the flush
    /// of its turn, or [`Limits::files`](crate::Limits::files) files waited. Now the output is at
    /// or below the [low](crate::Limits::low) mark, and at most half as many files wait. So this
    /// follows after each time that the connection [was full](Conn::is_full).
    ///
    /// This is not called for a connection that closes. So a program that makes its answer here
    /// turns [`close_on_eof`](crate::Config::close_on_eof) off. Otherwise a peer that ends its side
    /// closes the connection, and gets an end of file after a part of the answer.
    fn drained(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::None
    }

    /// The connection has gone over to TLS, after [`Conn::upgrade`]: both ends have agreed. What
    /// [`data`](Handler::data) gets from now on has come encrypted.
    #[cfg(feature = "tls")]
    fn upgraded(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::None
    }

    /// The connection has reached a limit of its time: `cause` is [`Cause::Idle`], or
    /// [`Cause::TooSlow`] for that of [`Conn::limit`]. The default ends it with this cause: bytes
    /// that wait are lost. Otherwise it goes on: see [`Event::LimitReached`].
    /// [`Engine::set_idle_timeout`] has an example.
    ///
    /// [`Event::LimitReached`]: crate::Event::LimitReached
    fn limit_reached(&mut self, c: &mut Conn<'_, Self::State>, cause: Cause) -> Action {
        c.engine.abort_as(c.id(), cause);
        Action::None
    }

    /// A connection has ended.
    fn closed(
        &mut self,
        server: &mut Context<'_, Self::State>,
        closed: Closed<Self::State>,
    ) -> Action {
        Action::None
    }

    /// The descriptor of a connection belongs to the program now, after [`Action::Detach`].
    fn detached(
        &mut self,
        server: &mut Context<'_, Self::State>,
        detached: Detached<Self::State>,
    ) -> Action {
        Action::None
    }

    /// A listener of [`Remote::add_listener`] serves, with this number, or could not be added: the
    /// errors are those of [`Engine::add_listener`].
    fn listener_added(
        &mut self,
        server: &mut Context<'_, Self::State>,
        added: io::Result<usize>,
    ) -> Action {
        Action::None
    }

    /// Another thread has sent a [message](Remote::post) to this loop. The default drops it.
    fn message(&mut self, server: &mut Context<'_, Self::State>, message: Message) -> Action {
        Action::None
    }

    /// An accept has failed. `listener` is the number of the listener, which accepts again after
    /// 100 ms.
    fn accept_failed(
        &mut self,
        server: &mut Context<'_, Self::State>,
        listener: usize,
        error: ErrorKind,
    ) -> Action {
        Action::None
    }

    /// The connection has moved from its thread to this loop: see [`Conn::move_to_loop`]. It has a
    /// new id. `from` is its old id, which is stale. Its next callbacks are those of this handler.
    fn moved(&mut self, c: &mut Conn<'_, Self::State>, from: Id) -> Action {
        Action::None
    }

    /// The server is about to send `amount` bytes, which were written in this turn. A write in this
    /// callback leaves with them. It is not called for datagrams.
    fn prewrite(&mut self, c: &mut Conn<'_, Self::State>, amount: usize) -> Action {
        Action::None
    }

    /// The server has submitted `amount` bytes to the watcher. Of these and of earlier writes, the
    /// kernel has not taken `remaining` bytes yet. A write in this callback leaves as another
    /// write. It is not called for datagrams.
    ///
    /// For a [file](Conn::send_file) it is called when the kernel has taken all `amount` bytes of
    /// it, also while the connection closes, detaches or fails. `remaining` does not include files.
    fn postwrite(
        &mut self,
        c: &mut Conn<'_, Self::State>,
        amount: usize,
        remaining: usize,
    ) -> Action {
        Action::None
    }

    /// This is called once before [`serving`](Handler::serving), and then after each delay that it
    /// returns. After `None` no delay begins until the program calls [`Engine::tick_after`], which
    /// also replaces a delay that runs. After a panic it is called again after the delay that it
    /// returned last, or after one second if it has not returned yet. During a shutdown the delay
    /// that it returns does not begin.
    fn tick(&mut self, server: &mut Context<'_, Self::State>) -> (Option<Duration>, Action) {
        (None, Action::None)
    }

    /// A job of [`Engine::execute`] has returned. `output` has its value. (A job of
    /// [`Conn::execute`] has a callback of its own.)
    fn executed(&mut self, c: &mut Conn<'_, Self::State>, output: Message) -> Action {
        Action::None
    }

    /// A job of the connection has panicked, or could not run. The default ends the connection,
    /// with [`Cause::Panicked`] or [`Cause::Rejected`].
    fn job_failed(&mut self, c: &mut Conn<'_, Self::State>, error: JobError) -> Action {
        let panicked = matches!(error, JobError::Panicked(_));
        let cause = if panicked { Cause::Panicked } else { Cause::Rejected };
        c.engine.abort_as(c.id(), cause);
        Action::None
    }

    /// The program has [woken](Remote::wake) the connection. The default calls
    /// [`data`](Handler::data) without bytes.
    fn wake(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        self.data(c, Buf::default())
    }
}

/// Does what a callback has asked for; true if that is the shutdown.
pub(crate) fn act<S>(engine: &mut Engine<S>, index: u32, action: Action) -> bool {
    let id = engine.id_at(index);
    match action {
        Action::None => {}
        Action::Close => _ = engine.close(id),
        Action::Detach => _ = engine.detach(id),
        Action::Shutdown => return true,
    }
    false
}

/// The loop of a server, for callbacks without a living connection.
pub struct Context<'a, S> {
    pub(crate) engine: &'a mut Engine<S>,
    pub(crate) remote: &'a Remote,
}

impl<S> Context<'_, S> {
    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> &Remote {
        self.remote
    }

    /// The engine of this loop, with all its connections.
    pub fn engine(&mut self) -> &mut Engine<S> {
        self.engine
    }

    /// The connection with this id; `None` if it has ended, or is on another loop.
    pub fn conn(&mut self, id: Id) -> Option<Conn<'_, S>> {
        self.engine.state(id)?;
        Some(Conn { engine: self.engine, remote: self.remote, index: id.index() })
    }
}

impl<S> fmt::Debug for Context<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("engine", &self.engine).finish()
    }
}

/// A connection, in its callback.
pub struct Conn<'a, S> {
    pub(crate) engine: &'a mut Engine<S>,
    pub(crate) remote: &'a Remote,
    /// Its place. It stays the connection's: only calls with a watcher vacate places.
    pub(crate) index: u32,
}

impl<S> Conn<'_, S> {
    /// The id of the connection.
    #[inline]
    pub fn id(&self) -> Id {
        self.engine.id_at(self.index)
    }

    /// The program's state of the connection.
    #[inline]
    pub fn state(&mut self) -> &mut S {
        self.engine.state_at(self.index).expect("a connection in a callback has a state")
    }

    /// Writes `data`. All bytes that are written in a turn leave as one write. For a session, each
    /// write is one datagram.
    ///
    /// False if the data was not taken:
    ///
    /// - The connection takes no more output, because it closes, detaches or has shut down its
    ///   output.
    /// - More than [`Limits::cap`](crate::Limits::cap) bytes would wait for it. Then it ends with
    ///   [`Cause::Overflow`].
    /// - The server has no [memory](crate::Refusal::Memory) for it. Then it ends with
    ///   [`Cause::Shed`]. A session goes on.
    #[inline(always)]
    pub fn write(&mut self, data: impl Into<Buf>) -> bool {
        match self.engine.write_fresh(self.index, data.into()) {
            Ok(()) => true,
            Err(data) => Self::write_more(self.engine, self.index, data),
        }
    }

    /// As [`write`](Conn::write), with a copy of the bytes: for short answers that are made in
    /// place. It needs no allocation.
    #[inline]
    pub fn write_slice(&mut self, bytes: &[u8]) -> bool {
        match self.engine.write_slice_at(self.index, bytes) {
            Ok(()) => true,
            Err(reason) => Self::overflow(self.engine, self.index, reason),
        }
    }

    /// A `Write` of std that copies bytes to the connection, as
    /// [`write_slice`](Conn::write_slice): for `write!`, and for code that wants a `Write`, such as
    /// a TLS library. Where `write_slice` is false, it fails, and the connection ends in the same
    /// way. [`Engine::writer`] lists the kinds of its errors.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// struct Lengths;
    /// impl Handler for Lengths {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         match write!(c.writer(), "{} bytes\r\n", data.len()) {
    ///             Ok(()) => Action::None,
    ///             Err(_) => Action::Close,
    ///         }
    ///     }
    /// }
    /// ```
    pub fn writer(&mut self) -> impl io::Write {
        Writer(move |bytes: &[u8]| {
            self.engine.write_slice_at(self.index, bytes).inspect_err(|&reason| {
                Self::overflow(self.engine, self.index, reason);
            })
        })
    }

    /// Out of line, and without the connection, which does not have to be in memory for it.
    #[inline(never)]
    fn write_more(engine: &mut Engine<S>, index: u32, data: Buf) -> bool {
        match engine.write_more(index, data) {
            Ok(()) => true,
            Err(refused) => Self::overflow(engine, index, refused.reason),
        }
    }

    #[cold]
    fn overflow(engine: &mut Engine<S>, index: u32, reason: Refusal) -> bool {
        let id = engine.id_at(index);
        let cause = match reason {
            Refusal::Cap => Cause::Overflow,
            // The datagrams of a session have no order that a lost one breaks.
            Refusal::Memory if !engine.is_session(id) => Cause::Shed,
            _ => return false,
        };
        engine.abort_as(id, cause);
        false
    }

    /// Sends a part of a file in its place among the writes: behind those before this call, and in
    /// front of those after it. `..` is the whole file. The engine closes the file.
    /// [`Engine::send_file`] says what this means for limits and ends, and [`Handler::postwrite`]
    /// is called when it is sent.
    ///
    /// ```
    /// use std::fs::File;
    ///
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// struct Files;
    /// impl Handler for Files {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
    ///         let open = || -> std::io::Result<(File, u64)> {
    ///             let file = File::open("Cargo.toml")?; // on a worker thread
    ///             let len = file.metadata()?.len();
    ///             Ok((file, len))
    ///         };
    ///         let send = |c: &mut Conn<'_, ()>, opened: std::io::Result<(File, u64)>| {
    ///             let Ok((file, len)) = opened else { return Action::Close };
    ///             c.write(format!("{len}\n"));
    ///             match c.send_file(file, ..len) {
    ///                 Ok(()) => Action::None,
    ///                 Err(_) => Action::Close, // `Limits::files` files wait
    ///             }
    ///         };
    ///         if c.execute(open, send).is_ok() { Action::None } else { Action::Close }
    ///     }
    /// #   fn postwrite(&mut self, _: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
    /// #       Action::Shutdown
    /// #   }
    /// }
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = listener.local_addr()?;
    /// # let client = std::thread::spawn(move || {
    /// #     use std::io::{Read, Write};
    /// #     let mut client = std::net::TcpStream::connect(address).unwrap();
    /// #     client.write_all(b"please").unwrap();
    /// #     let mut heard = String::new();
    /// #     client.read_to_string(&mut heard).unwrap();
    /// #     heard
    /// # });
    /// # windlass_serve::Server::new(|_| Files).listener(listener).run()?;
    /// # let file = std::fs::read_to_string("Cargo.toml")?;
    /// # assert_eq!(client.join().unwrap(), format!("{}\n{file}", file.len()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] hands the file back: see [`Engine::send_file`].
    pub fn send_file(
        &mut self,
        file: File,
        range: impl RangeBounds<u64>,
    ) -> Result<(), Refused<File>> {
        self.engine.send_file(self.id(), file, range)
    }

    /// Notes that the program itself holds `bytes` bytes for this connection, in place of what it
    /// has noted before: see [`Engine::charge`].
    pub fn charge(&mut self, bytes: usize) {
        self.engine.charge(self.id(), bytes);
    }

    /// A [`Charge`] of `bytes` bytes for this connection: they count until it is dropped, wherever
    /// it is then. With 0, an [`Input`] can have it, and count what it keeps.
    ///
    /// [`Input`]: crate::framing::Input::charge_to
    pub fn hold(&self, bytes: usize) -> Charge {
        self.engine.hold(self.id(), bytes)
    }

    /// How many bytes of output wait, those of this turn included, and those of files not.
    pub fn waiting(&mut self) -> usize {
        self.engine.waiting(self.id())
    }

    /// How many files wait, the one that is being sent included.
    pub fn waiting_files(&self) -> usize {
        self.engine.waiting_files(self.id())
    }

    /// Whether [`Handler::drained`] will follow, because much output waits: see
    /// [`Engine::is_full`].
    pub fn is_full(&mut self) -> bool {
        self.engine.is_full(self.id())
    }

    /// Moves the connection from a thread of its own to a loop, after its waiting output is sent:
    /// for a connection that will be idle for long, or was upgraded. False if a loop serves it
    /// already, if it closes, has shut down its output, or has a [`Stream`].
    ///
    /// The loop with the fewest connections gets it, with its state and the data that was not
    /// delivered. That loop calls [`Handler::moved`]. The connection has a new id, and no write or
    /// wake finds it by the old one. A wake or a close of before, and a [`Handler::drained`] that
    /// [`is_full`](Conn::is_full) has promised, come behind `moved`. The connection is not paused
    /// there, and has no deadlines, limit, idle time or charge of the program: `moved` can set them
    /// again. If the move is called off, it keeps all of them.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler, Id};
    ///
    /// struct Feed;
    /// impl Handler for Feed {
    ///     type State = ();
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         if &*data == b"subscribe\n" && !c.move_to_loop() {
    ///             c.write("subscribed\n"); // on a loop already
    ///         }
    ///         Action::None
    ///     }
    ///     fn moved(&mut self, c: &mut Conn<'_, ()>, _from: Id) -> Action {
    ///         c.write("subscribed\n"); // from now on it waits on the loop
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn move_to_loop(&mut self) -> bool
    where
        S: Send + 'static,
    {
        self.let_move() && self.engine.begin_move(self.id())
    }

    /// Permits the server to move the connection to a loop when [`Remote::set_threads`] lowers the
    /// number of threads. If there are too many threads already, it moves in the next turn. Without
    /// this call, a connection keeps its thread until it ends. False if a loop serves it.
    pub fn let_move(&mut self) -> bool
    where
        S: Send + 'static,
    {
        let id = self.id();
        let may_move = self.engine.let_move(id, |state| Box::new(state));
        if may_move && let Some(threads) = &self.remote().threads {
            threads.note_movable(id.loop_index());
        }
        may_move
    }

    /// Stops the delivery of data. There is one pause for all layers of a program: see
    /// [`Engine::pause`].
    pub fn pause(&mut self) {
        self.engine.pause(self.id());
    }

    /// Delivers data again.
    pub fn resume(&mut self) {
        self.engine.resume(self.id());
    }

    /// Shuts down the output after the waiting output is sent: see [`Engine::shutdown`].
    pub fn shutdown(&mut self) {
        self.engine.shutdown(self.id());
    }

    /// Ends the connection, and drops its waiting output.
    pub fn abort(&mut self) {
        self.engine.abort(self.id());
    }

    /// Runs `job` off the loop, then `then` with its value, as a callback on the loop. The jobs of
    /// a connection run in order, one at a time: see [`Engine::execute`] for where they run, and
    /// for what a close does with them.
    ///
    /// If the job panics, [`Handler::job_failed`] is called instead. If the connection ends before
    /// `then`, it is dropped.
    ///
    /// `then` has the connection and its state, and not the handler. For a callback with the
    /// handler, call [`Engine::execute`]: [`Handler::executed`] gets the value.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Action, Conn, Handler};
    ///
    /// struct Sums;
    /// impl Handler for Sums {
    ///     type State = u64;
    ///     fn data(&mut self, c: &mut Conn<'_, u64>, data: Buf) -> Action {
    ///         let sum = move || data.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    ///         let taken = c.execute(sum, |c, sum| {
    ///             *c.state() += sum;
    ///             c.write(sum.to_string());
    ///             Action::None
    ///         });
    ///         if taken.is_ok() { Action::None } else { Action::Close } // it sends too fast
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refused`] hands `job` and `then` back: see [`Engine::execute`].
    pub fn execute<T, J, F>(&mut self, job: J, then: F) -> Result<(), Refused<(J, F)>>
    where
        T: Any + Send,
        J: FnOnce() -> T + Send + 'static,
        F: FnOnce(&mut Conn<'_, S>, T) -> Action + Send + 'static,
    {
        let id = self.id();
        if let Err(reason) = self.engine.may_execute(id) {
            return Err(Refused { value: (job, then), reason });
        }
        let call = |engine: &mut Engine<S>, remote: &Remote, index: u32, output: Message| {
            let Ok(value) = output.downcast::<T>() else { return false };
            let action = then(&mut Conn { engine, remote, index }, value);
            act(engine, index, action)
        };
        self.engine.queue_job(id, Op::run(job), Some(Box::new(call)), false);
        Ok(())
    }

    /// Runs `job` off the loop, even if the connection closes or has ended: see
    /// [`Engine::must_execute`].
    pub fn must_execute(&mut self, job: impl FnOnce() + Send + 'static) {
        let id = self.id();
        self.engine.must_execute(id, job);
    }

    /// How many jobs of the connection wait or run: see [`Engine::jobs_of`].
    pub fn jobs(&self) -> usize {
        self.engine.jobs_of(self.id())
    }

    /// Sets an option of the socket at the end of the turn. The report counts a refusal as
    /// [`option_errors`](crate::report::Counters::option_errors). See [`Engine::set_option`].
    pub fn set_option(&mut self, option: SocketOption) {
        self.engine.set_option(self.id(), option);
    }

    /// Makes a [`Stream`] of the connection: a non-blocking `Read` and `Write` of std for any
    /// thread. [`Stream::set_waker`] sets what is called when it becomes readable or writable, and
    /// when it ends. `None` if the connection closes, has a stream already, or is a session. See
    /// [`Engine::stream`].
    pub fn into_std(&mut self) -> Option<Stream> {
        self.engine.make_stream(self.id(), task::Waker::noop().clone())
    }

    /// Sets the read and the write deadline: see [`Engine::set_deadline`]. `None` takes
    /// them away.
    pub fn set_deadline(&mut self, deadline: impl Into<Option<Deadline>>) {
        self.engine.set_deadline(self.id(), deadline);
    }

    /// Ends the connection with [`Cause::ReadTimeout`] when the time has come, even if bytes arrive
    /// until then: see [`Engine::set_read_deadline`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Buf;
    /// use windlass::driver::Deadline;
    /// use windlass_serve::{Action, Conn, Handler, Origin};
    ///
    /// const LINE: Deadline = Deadline::After(Duration::from_secs(5));
    ///
    /// /// The end of each line must arrive within five seconds, however many bytes arrive before.
    /// struct Lines;
    /// impl Handler for Lines {
    ///     type State = ();
    ///     fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
    ///         c.set_read_deadline(LINE);
    ///         Action::None
    ///     }
    ///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
    ///         if data.contains(&b'\n') {
    ///             c.set_read_deadline(LINE); // for the next line
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    pub fn set_read_deadline(&mut self, deadline: impl Into<Option<Deadline>>) {
        self.engine.set_read_deadline(self.id(), deadline);
    }

    /// Ends the connection with [`Cause::WriteTimeout`] when the time has come, unless its output
    /// is sent by then: see [`Engine::set_write_deadline`].
    pub fn set_write_deadline(&mut self, deadline: impl Into<Option<Deadline>>) {
        self.engine.set_write_deadline(self.id(), deadline);
    }

    /// Sets how long no byte may move, in place of [`Limits::idle`](crate::Limits::idle). `None`
    /// lets the connection be idle for ever. See [`Engine::set_idle_timeout`].
    pub fn set_idle_timeout(&mut self, span: impl Into<Option<Duration>>) {
        self.engine.set_idle_timeout(self.id(), span);
    }

    /// Whether the connection has a [limit](Conn::limit) now.
    pub fn is_limited(&self) -> bool {
        self.engine.is_limited(self.id())
    }

    /// Gives the peer a time, for the head of a request for example. Every `least_rate` bytes that
    /// arrive give one second of it back. `None` takes the limit away. See [`Engine::limit`].
    pub fn limit(&mut self, span: impl Into<Option<Duration>>, least_rate: u32) {
        self.engine.limit(self.id(), span, least_rate);
    }

    /// The engine of this loop, with all its connections.
    pub fn engine(&mut self) -> &mut Engine<S> {
        self.engine
    }

    /// Reaches the connections of all loops, from any thread.
    pub fn remote(&self) -> &Remote {
        self.remote
    }
}

impl<S> fmt::Debug for Conn<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("id", &self.id()).finish_non_exhaustive()
    }
}
