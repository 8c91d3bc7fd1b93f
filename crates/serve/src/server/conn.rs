//! What a callback gets: its connection, or its loop.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::task;
use std::time::{Duration, Instant};

use windlass::driver::Deadline;
use windlass::net::SocketOption;
use windlass::{Buf, Message, Op, SourceGuard};

use super::action::{Action, act};
#[cfg(doc)]
use super::handler::Handler;
use crate::engine::Engine;
use crate::handles::remote::Remote;
use crate::handles::stream::Stream;
use crate::memory::Charge;
use crate::parts::writer::Writer;
use crate::words::cause::Cause;
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

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

    /// The time on the clock of the loop, which is virtual in a simulation: see [`Engine::now`].
    pub fn now(&self) -> Instant {
        self.engine.now()
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

    /// The time on the clock of the loop, which is virtual in a simulation: see [`Engine::now`].
    pub fn now(&self) -> Instant {
        self.engine.now()
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

    /// Sends a part of a file that is attached to the watcher of the loop, for example one that
    /// [`Engine::submit`] has opened: see [`Engine::send_attached`].
    ///
    /// # Errors
    /// As for [`Engine::send_attached`].
    pub fn send_attached(
        &mut self,
        file: &Arc<SourceGuard>,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        self.engine.send_attached(self.id(), file, range)
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

    /// Sets whether the connection is read although it is full: see [`Engine::read_when_full`].
    pub fn read_when_full(&mut self, on: bool) -> bool {
        self.engine.read_when_full(self.id(), on)
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

    /// Watches for the end of the peer while the connection is not read, or no longer does:
    /// [`Handler::peer_ended`] is told. See [`Engine::watch_peer`].
    pub fn watch_peer(&mut self, on: bool) {
        self.engine.watch_peer(self.id(), on);
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

    /// Whether the connection has a [limit](Conn::limit) now, of either kind.
    pub fn is_limited(&self) -> bool {
        self.engine.is_limited(self.id())
    }

    /// Gives the peer a time, for the head of a request for example. Every `least_rate` bytes that
    /// arrive give one second of it back. `None` takes the limit away. See [`Engine::limit`].
    pub fn limit(&mut self, span: impl Into<Option<Duration>>, least_rate: u32) {
        self.engine.limit(self.id(), span, least_rate);
    }

    /// Limits the time until the next call, for an answer for example. It counts whether the
    /// connection is read or not. `None` takes the limit away. See [`Engine::time_limit`].
    pub fn time_limit(&mut self, span: impl Into<Option<Duration>>) {
        self.engine.time_limit(self.id(), span);
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
