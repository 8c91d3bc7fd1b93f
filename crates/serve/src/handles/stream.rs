//! A connection as a value: a non-blocking reader and writer, for any thread.
//!
//! The loop keeps the descriptor, and with it the limits, the deadlines and the order of the last
//! event. So a stream has the bytes that the loop has received, and posts its writes and its
//! deadlines to the loop.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use windlass::Buf;
use windlass::driver::Deadline;

#[cfg(doc)]
use crate::Engine;
use crate::handles::remote::Remote;
use crate::inbox::Ask;
use crate::inbox::BOOKKEEPING;
use crate::inbox::Command;
use crate::memory::Budget;
use crate::parts::kept::KeptInput;
use crate::parts::side::StreamSide;
use crate::words::cause::Cause;
use crate::words::id::Id;
use crate::words::refused::Refusal;

/// The most bytes of one write.
pub(crate) const MOST_WRITTEN: usize = 64 << 10;

/// A part of this many bytes or less is not halved, if the memory has no room for it.
const LEAST_PART: usize = 1 << 10;

/// The most memory, in bytes, that an empty input of a stream keeps for its next bytes.
const EMPTY_CAPACITY: usize = 64 << 10;

/// A connection as a value: a non-blocking [`Read`] and [`Write`] that threads share.
///
/// [`Conn::into_std`](crate::Conn::into_std) and [`Engine::stream`] make it. From then on the bytes
/// of the connection go to the stream, and not to the program's callbacks or events. The last event
/// still comes. The loop keeps the descriptor: the stream reads what the loop has received, and the
/// loop sends what is written. (A callback has its connection by reference, so `into_std` does not
/// consume it as the `into_` methods of std do.)
///
/// - A read without bytes, and a write without room, fail with `WouldBlock`. Then the stream's
///   [`Waker`] is called when a further try makes sense, and when the connection ends. A wake can
///   also come in vain. The waker runs on the thread of the loop, and must not block. A panic of it
///   is caught.
/// - A write finds no room while more than [`Limits::high`] bytes of output wait, and finds some
///   again at [`Limits::low`] bytes. At most 64 KiB are written at once, and less with a
///   [`Limits::cap`] or three quarters of [`Limits::memory`] below that. They are charged to both
///   limits, as by [`Remote::write`]. A write above either limit finds no room.
/// - A [file](crate::Engine::send_file) of the connection stands among the writes that have come
///   to the loop.
/// - If the program does not read, the connection stops reading once more than [`Limits::high`]
///   bytes wait. It goes on at [`Limits::low`] bytes. The bytes count for [`Limits::memory`].
/// - At the end of the peer's output, reads return 0. The connection stays open for writes,
///   whatever [`close_on_eof`](crate::Config::close_on_eof) says.
/// - A [deadline](Stream::set_deadline) ends the connection when its time has come, and with it the
///   reads and the writes of all clones.
/// - Dropping the last clone [closes](Stream::close) the connection.
/// - When the connection has ended, reads first return the bytes that wait (not after
///   [`Cause::Shed`]: the server needs their memory). Then reads and writes
///   fail, with the [`Cause`] as the inner error: `TimedOut` for a limit of time or a deadline,
///   the system's error for [`Cause::Os`], `BrokenPipe` for [`Cause::Closed`] and [`Cause::Eof`],
///   `ConnectionAborted` for others.
///
/// [`Limits::cap`]: crate::Limits::cap
/// [`Limits::memory`]: crate::Limits::memory
/// [`Limits::high`]: crate::Limits::high
/// [`Limits::low`]: crate::Limits::low
///
/// ```
/// use std::io::{ErrorKind, Read, Write};
/// use std::sync::Arc;
/// use std::task::{Wake, Waker};
/// use std::thread::{self, Thread};
///
/// use windlass_serve::{Action, Conn, Handler, Origin, Server, Stream};
///
/// struct Unpark(Thread);
/// impl Wake for Unpark {
///     fn wake(self: Arc<Self>) {
///         self.0.unpark();
///     }
/// }
///
/// /// Serves one connection on a thread of its own.
/// fn echo(mut stream: Stream) -> std::io::Result<()> {
///     stream.set_waker(Waker::from(Arc::new(Unpark(thread::current()))));
///     let mut bytes = [0; 1024];
///     loop {
///         match stream.read(&mut bytes) {
///             Ok(0) => return Ok(()), // the drop closes the connection
///             Ok(count) => stream.write_all(&bytes[..count])?,
///             Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park(),
///             Err(error) => return Err(error),
///         }
///     }
/// }
///
/// struct Threads;
/// impl Handler for Threads {
///     type State = ();
///     fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
///         if let Some(stream) = c.into_std() {
///             thread::spawn(move || echo(stream));
///         }
///         Action::None
///     }
/// #   fn closed(
/// #       &mut self,
/// #       _: &mut windlass_serve::Context<'_, ()>,
/// #       closed: windlass_serve::Closed<()>,
/// #   ) -> Action {
/// #       assert_eq!(closed.cause, windlass_serve::Cause::Closed);
/// #       Action::Shutdown
/// #   }
/// }
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let client = thread::spawn(move || {
/// #     let mut client = std::net::TcpStream::connect(address).unwrap();
/// #     client.write_all(b"hello").unwrap();
/// #     client.shutdown(std::net::Shutdown::Write).unwrap();
/// #     let mut heard = String::new();
/// #     client.read_to_string(&mut heard).unwrap();
/// #     heard
/// # });
/// # Server::new(|_| Threads).listener(listener).run()?;
/// # assert_eq!(client.join().unwrap(), "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    pub(crate) owner: Arc<Owner>,
}

/// Closes the connection when the last clone of its stream is dropped.
pub(crate) struct Owner(pub(crate) Arc<Link>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What a stream and its connection share.
pub(crate) struct Link {
    pub(crate) id: Id,
    pub(crate) remote: Remote,
    pub(crate) budget: Budget,
    /// Its unread input counts for the connection.
    pub(crate) kept: KeptInput,
    pub(crate) cap: usize,
    pub(crate) high: usize,
    pub(crate) low: usize,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    /// Bytes that were received and not read. They are charged to the budget.
    pub(crate) input: VecDeque<u8>,
    pub(crate) waker: Waker,
    /// The peer has shut down its output.
    pub(crate) eof: bool,
    /// The program has shut down the reads.
    pub(crate) input_over: bool,
    /// The connection reads no more until the program has read.
    pub(crate) paused: bool,
    /// The connection takes no more output of the stream.
    pub(crate) output_over: bool,
    pub(crate) closed: bool,
    /// A write found no room below the cap.
    pub(crate) wants_room: bool,
    /// A write of so many bytes found no room in the server's memory.
    pub(crate) wants_memory: Option<u32>,
    /// The read and the write deadline that the loop has not taken yet.
    pub(crate) deadlines: [Option<Option<Deadline>>; 2],
    /// Why the connection has ended.
    pub(crate) cause: Option<Cause>,
}

/// Wakes the program, whose code may panic.
pub(crate) fn wake(waker: &Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake_by_ref()));
}

/// The error of a read or a write after the end.
pub(crate) fn ended(cause: Cause) -> io::Error {
    let kind = match cause {
        Cause::Os(errno) => return io::Error::from_raw_os_error(errno),
        Cause::Idle
        | Cause::WriteStall
        | Cause::ReadTimeout
        | Cause::WriteTimeout
        | Cause::TooSlow
        | Cause::ConnectTimeout => io::ErrorKind::TimedOut,
        Cause::Closed | Cause::Eof => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, cause)
}

impl Link {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn ask(&self, ask: Ask) {
        // A loop that is over has ended the connection.
        for shared in &*self.remote.loops {
            let _ = shared.post(Command::Stream(self.id, ask));
        }
    }

    /// Calls the waker without the lock: it may use the stream.
    pub(crate) fn wake(&self, state: MutexGuard<'_, State>) {
        let waker = state.waker.clone();
        drop(state);
        wake(&waker);
    }

    /// How many bytes of output wait, those that the loop has not taken yet included.
    fn waiting(&self) -> usize {
        let shared = self.remote.loops.first();
        shared.and_then(|shared| shared.heads.charged_to(self.id)).unwrap_or(0)
    }

    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if out.is_empty() || state.input_over {
            return Ok(0);
        }
        if state.input.is_empty() {
            return match state.cause {
                _ if state.eof => Ok(0),
                Some(cause) => Err(ended(cause)),
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let count = state.input.read(out)?;
        self.kept.remove(&self.budget, count);
        self.after_read(state);
        Ok(count)
    }

    /// Lets the connection read again if little input waits.
    pub(crate) fn after_read(&self, mut state: MutexGuard<'_, State>) {
        if state.input.is_empty() && state.input.capacity() > EMPTY_CAPACITY {
            state.input = VecDeque::new();
        }
        if state.paused && state.input.len() <= self.low {
            state.paused = false;
            drop(state);
            self.ask(Ask::Resume);
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MOST_WRITTEN).min(self.cap.max(1));
        let count = count.min(self.budget.most() - BOOKKEEPING as usize);
        // Until the end of this function neither the loop nor a close comes in between: what is
        // queued here is before the close, and a refusal is noted before the loop looks for it.
        let mut state = self.lock();
        if let Some(cause) = state.cause {
            return Err(ended(cause));
        }
        if state.output_over {
            return Err(ended(Cause::Closed));
        }
        if self.waiting() > self.high {
            state.wants_room = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut refused = match self.remote.write(self.id, bytes[..count].to_vec()) {
            Ok(()) => return Ok(count),
            Err(refused) => refused,
        };
        // A part may fit, and a short write is a write.
        let mut part = count;
        while refused.reason == Refusal::Memory && part > LEAST_PART {
            part /= 2;
            refused = match self.remote.write(self.id, bytes[..part].to_vec()) {
                Ok(()) => return Ok(part),
                Err(refused) => refused,
            };
        }
        match refused.reason {
            Refusal::Cap => state.wants_room = true,
            Refusal::Memory => {
                let bytes = part as u32 + BOOKKEEPING;
                if state.wants_memory.replace(bytes).is_none() {
                    self.ask(Ask::Memory);
                }
            }
            // The others refuse no write.
            _ => return Err(ended(Cause::Closed)),
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.output_over = true;
        if !std::mem::replace(&mut state.closed, true) && state.cause.is_none() {
            self.remote.close(self.id);
        }
    }
}

impl StreamSide for Link {
    fn push(&self, data: &Buf) -> bool {
        let mut state = self.lock();
        if state.input_over {
            return false;
        }
        let was_empty = state.input.is_empty();
        for part in data.parts() {
            state.input.extend(part.iter());
        }
        self.kept.add(&self.budget, data.len());
        let pauses = state.input.len() > self.high;
        state.paused |= pauses;
        if was_empty {
            self.wake(state);
        }
        pauses
    }

    fn push_eof(&self) {
        let mut state = self.lock();
        state.eof = true;
        self.wake(state);
    }

    fn take_input(&self) -> Buf {
        let mut state = self.lock();
        let input = std::mem::take(&mut state.input);
        self.kept.remove(&self.budget, input.len());
        Buf::from(Vec::from(input))
    }

    fn refuse_output(&self) {
        self.lock().output_over = true;
    }

    fn let_go(&self) {
        let mut state = self.lock();
        (state.output_over, state.closed) = (true, true);
    }

    fn offer_room(&self) {
        let mut state = self.lock();
        if state.wants_room && self.waiting() <= self.low {
            state.wants_room = false;
            self.wake(state);
        }
    }

    fn offer_memory(&self) -> bool {
        let mut state = self.lock();
        let held = self.waiting();
        match state.wants_memory {
            Some(bytes) if !self.budget.has_room(bytes, held) => return false,
            Some(_) => {
                state.wants_memory = None;
                self.wake(state);
            }
            None => {}
        }
        true
    }

    fn end(&self, cause: Cause) {
        let mut state = self.lock();
        if state.cause.is_none() {
            state.cause = Some(cause);
            if cause == Cause::Shed {
                // The server needs the memory.
                self.kept.remove(&self.budget, state.input.len());
                state.input = VecDeque::new();
            }
            self.wake(state);
        }
    }

    fn take_deadlines(&self) -> [Option<Option<Deadline>>; 2] {
        std::mem::take(&mut self.lock().deadlines)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let input = self.lock().input.len();
        self.kept.remove(&self.budget, input);
    }
}

impl Stream {
    /// The id of the connection.
    pub fn id(&self) -> Id {
        self.owner.0.id
    }

    /// Why the connection has ended; `None` while it has not. Bytes may still wait for a read.
    pub fn cause(&self) -> Option<Cause> {
        self.owner.0.lock().cause
    }

    /// How many bytes wait for a read.
    pub fn unread(&self) -> usize {
        self.owner.0.lock().input.len()
    }

    /// Sets what is called when the stream becomes readable or writable, or ends. The old waker may
    /// be called once more. Try to read and to write after this call: what has happened before it
    /// makes no new wake.
    pub fn set_waker(&self, waker: Waker) {
        // The old one is dropped without the lock: it is the program's code.
        let old = std::mem::replace(&mut self.owner.0.lock().waker, waker);
        drop(old);
    }

    /// Closes the connection after its output is sent, as [`Engine::close`]. Every write that has
    /// succeeded before this call takes the lock is sent, whichever thread it came from. Later ones
    /// fail with `BrokenPipe`. Bytes that wait can still be read. A second call has no effect, nor
    /// has one after [`Engine::detach`].
    pub fn close(&self) {
        self.owner.0.close();
    }

    /// Shuts down one side or both. Without reads, bytes that wait and that arrive are dropped, and
    /// reads return 0. Without writes, the peer reads EOF after the output is sent; then the
    /// connection closes when the peer has shut down its output, too. See [`Engine::shutdown`].
    ///
    /// # Errors
    /// The connection has ended: as for reads and writes.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let link = &self.owner.0;
        let mut state = link.lock();
        if let Some(cause) = state.cause {
            return Err(ended(cause));
        }
        if how != Shutdown::Read && !std::mem::replace(&mut state.output_over, true) {
            link.ask(Ask::Shutdown);
        }
        if how != Shutdown::Write {
            state.input_over = true;
            link.kept.remove(&link.budget, state.input.len());
            state.input.clear();
            link.after_read(state);
        }
        Ok(())
    }

    /// Sets the read and the write deadline: see [`set_read_deadline`](Stream::set_read_deadline)
    /// and [`set_write_deadline`](Stream::set_write_deadline).
    ///
    /// # Errors
    /// The connection has ended: as for reads and writes.
    pub fn set_deadline(&self, deadline: impl Into<Option<Deadline>>) -> io::Result<()> {
        self.set_deadlines([Some(deadline.into()); 2])
    }

    /// Ends the connection with [`Cause::ReadTimeout`] at a time, or at a time after its loop has
    /// heard of it: see [`Engine::set_read_deadline`]. Bytes that wait can still be read. Then
    /// reads and writes fail with `TimedOut`. `None` takes the deadline away.
    ///
    /// The deadline is for the connection and not for one call: a program that waits for each
    /// answer sets it again before each.
    ///
    /// # Errors
    /// The connection has ended: as for reads and writes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::driver::Deadline;
    /// use windlass_serve::Stream;
    ///
    /// /// Another thread gives the peer five more seconds.
    /// fn patient(stream: &Stream) -> std::io::Result<()> {
    ///     stream.set_read_deadline(Deadline::After(Duration::from_secs(5)))
    /// }
    /// ```
    pub fn set_read_deadline(&self, deadline: impl Into<Option<Deadline>>) -> io::Result<()> {
        self.set_deadlines([Some(deadline.into()), None])
    }

    /// Ends the connection with [`Cause::WriteTimeout`] at a time, or at a time after its loop has
    /// heard of it, unless its output is sent by then: see [`Engine::set_write_deadline`].
    ///
    /// # Errors
    /// The connection has ended: as for reads and writes.
    pub fn set_write_deadline(&self, deadline: impl Into<Option<Deadline>>) -> io::Result<()> {
        self.set_deadlines([None, Some(deadline.into())])
    }

    pub(crate) fn set_deadlines(&self, deadlines: [Option<Option<Deadline>>; 2]) -> io::Result<()> {
        let link = &self.owner.0;
        let mut state = link.lock();
        if let Some(cause) = state.cause {
            return Err(ended(cause));
        }
        // One request in the queue of the loop is enough: it takes the last deadlines.
        let is_asked = state.deadlines.iter().any(Option::is_some);
        for (last, new) in state.deadlines.iter_mut().zip(deadlines) {
            *last = new.or(*last);
        }
        if !is_asked {
            link.ask(Ask::Deadlines);
        }
        Ok(())
    }
}

impl Read for &Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.owner.0.read(out)
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.owner.0.read(out)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.owner.0.write(bytes)
    }

    /// Does nothing: the loop sends what was written.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.owner.0.write(bytes)
    }

    /// Does nothing: the loop sends what was written.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).finish_non_exhaustive()
    }
}
