//! Bodies that another thread writes.
//!
//! # Why
//! What a thread writes waits in a buffer that its loop empties when the connection has room. So a
//! slow client holds up its own thread only, and never the loop. The buffer has a bound, and counts
//! for its connection as all that waits in the server does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::{fmt, io};

use windlass_serve::Refusal;
use windlass_serve::memory::{Budget, Charge};

use crate::message::response::Response;
use crate::message::source::{BodySource, Flow, Part, Waker};

/// From so many bytes on, writes wait or are refused.
const MARK: usize = 64 << 10;

/// Writes the body of a response, from any thread: [`Response::writer`] makes it.
///
/// There are two ways to write. Those of [`io::Write`] wait while [64 KiB](Writer::waiting) wait
/// for the client, and so does code that takes an `io::Write`. [`try_write`](Writer::try_write)
/// refuses then.
///
/// The body ends with [`end`](Writer::end). A writer that is dropped before resets the connection,
/// so that the client does not take a part for the whole.
#[must_use = "dropping it resets the connection"]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Its client has taken bytes, or has gone.
    changed: Condvar,
}

struct State {
    bytes: Vec<u8>,
    course: Course,
    /// The thread that takes the bytes: that of the loop, once the head is out, and the one that
    /// has made the response before.
    taker: ThreadId,
    connection: Option<Outlet>,
    has_peer_ended: bool,
    /// Whether the loop was woken and has not looked since.
    is_woken: bool,
}

/// How the body goes on.
#[derive(Clone, Copy, PartialEq)]
enum Course {
    Open,
    Ended,
    Failed,
    /// Nobody takes it.
    Gone,
}

/// The connection that the bytes go to.
struct Outlet {
    waker: Waker,
    charge: Charge,
    budget: Budget,
}

/// The other end of a [`Writer`].
struct Written(Arc<Shared>);

impl Response {
    /// A body that another thread writes: `application/octet-stream`. The thread has the
    /// [`Writer`], and the handler returns the response.
    ///
    /// The body is chunked. For a client of HTTP/1.0 it ends with the connection. A request with
    /// HEAD gets the head alone, and the writer finds that its client has gone.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass_web::{App, Response};
    ///
    /// let app = App::new().get("/numbers", |_, _| {
    ///     let (mut writer, response) = Response::writer();
    ///     std::thread::spawn(move || {
    ///         for number in 0..1_000_000 {
    ///             // It waits for a slow client, and fails when the client has gone.
    ///             writeln!(writer, "{number}")?;
    ///         }
    ///         writer.end();
    ///         Ok::<(), std::io::Error>(())
    ///     });
    ///     response.content_type("text/plain")
    /// });
    /// # let _ = app;
    /// ```
    pub fn writer() -> (Writer, Response) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                bytes: Vec::new(),
                course: Course::Open,
                taker: thread::current().id(),
                connection: None,
                has_peer_ended: false,
                is_woken: false,
            }),
            changed: Condvar::new(),
        });
        (Writer { shared: Arc::clone(&shared) }, Response::stream(Written(shared)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes the loop, unless it is about to look.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let Some(connection) = &state.connection else { return };
        if state.is_woken {
            return;
        }
        let waker = connection.waker.clone();
        state.is_woken = true;
        drop(state);
        // False if the connection has ended: then the other end is dropped.
        waker.wake();
    }
}

impl State {
    /// Whether more bytes may wait.
    fn takes(&self, len: usize) -> Result<(), Refusal> {
        if self.course != Course::Open {
            return Err(Refusal::Stale);
        }
        if self.bytes.len() >= MARK {
            return Err(Refusal::Cap);
        }
        match &self.connection {
            Some(Outlet { budget, .. })
                if budget.used().saturating_add(len) > budget.limit() / 4 * 3 =>
            {
                Err(Refusal::Memory)
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.charge();
    }

    fn charge(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.charge.set(self.bytes.len());
        }
    }
}

impl Writer {
    /// Writes all bytes, or none. It never waits, so it may be called on a loop.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Cap`]: 64 KiB or more [wait](Writer::waiting) already.
    /// - [`Refusal::Memory`]: three quarters of the server's
    ///   [memory](windlass_serve::Limits::memory) are in use.
    /// - [`Refusal::Stale`]: the client has gone.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let mut state = self.shared.lock();
        state.takes(bytes.len())?;
        state.push(bytes);
        self.shared.wake(state);
        Ok(())
    }

    /// How many bytes the connection has not taken yet. It takes bytes until
    /// [`Limits::high`](windlass_serve::Limits::high) wait there.
    pub fn waiting(&self) -> usize {
        self.shared.lock().bytes.len()
    }

    /// Whether nobody reads any more, as far as the server knows: the client has ended its side, or
    /// its connection has ended. A client that has ended its side may still read, and gets what is
    /// written.
    pub fn is_gone(&self) -> bool {
        let state = self.shared.lock();
        state.has_peer_ended || state.course == Course::Gone
    }

    /// Ends the body, behind what was written.
    pub fn end(self) {
        self.finish(Course::Ended);
    }

    /// Resets the connection, as a drop does: the body cannot be completed.
    pub fn fail(self) {
        self.finish(Course::Failed);
    }

    fn finish(&self, course: Course) {
        let mut state = self.shared.lock();
        if state.course == Course::Open {
            state.course = course;
            self.shared.wake(state);
        }
    }
}

/// Waits while 64 KiB wait.
///
/// Errors: `BrokenPipe` if the client has gone, `QuotaExceeded` if the server has no memory, and
/// `WouldBlock` on the thread that would have to take the bytes: the loop of the connection.
impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(MARK)];
        let mut state = self.shared.lock();
        loop {
            match state.takes(bytes.len()) {
                Ok(()) => break,
                Err(Refusal::Cap) if state.taker == thread::current().id() => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(Refusal::Cap) => {
                    let waited = self.shared.changed.wait(state);
                    state = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        state.push(bytes);
        self.shared.wake(state);
        Ok(bytes.len())
    }

    /// Does nothing: what was written is on its way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish(Course::Failed);
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl BodySource for Written {
    fn next(&mut self, part: &mut Part<'_>) -> Flow {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.is_woken = false;
        state.has_peer_ended |= part.has_peer_ended();
        if state.connection.is_none() {
            let (waker, (charge, budget)) = (part.waker(), part.hold());
            state.connection = Some(Outlet { waker, charge, budget });
            state.taker = thread::current().id();
        }
        match state.course {
            // The client has ended its side, and takes no more now: the bytes stay where their
            // writer sees that they wait.
            Course::Open | Course::Ended if part.is_full() && !state.bytes.is_empty() => Flow::Wait,
            Course::Open | Course::Ended if !state.bytes.is_empty() => {
                part.swap(&mut state.bytes);
                state.charge();
                self.0.changed.notify_all();
                Flow::More
            }
            Course::Open => Flow::Wait,
            Course::Ended => Flow::End,
            Course::Failed | Course::Gone => Flow::Fail,
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.course = Course::Gone;
        (state.bytes, state.connection) = (Vec::new(), None);
        self.0.changed.notify_all();
    }
}
