//! The handle of other threads: their requests, refusals, and waits for room.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::room::Runs;
use super::{CLOSED, RemoteShared, Request};
use crate::op::{Op, due_ns};
use crate::words::clock::Deadline;
use crate::words::error::{Limit, Refusal, Refused};
use crate::words::source::{Handle, Source, Ticket};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long the thread that called `submitter` waits for a turn of the loop on another thread.
/// (Miri is some hundred times slower.)
const GRACE: Duration = Duration::from_millis(if cfg!(miri) { 10_000 } else { 100 });

/// Attaches, submits, cancels and aborts from any thread.
///
/// The loop takes requests in queue order, at the start of its next turn. (An
/// [`abort`](Submitter::abort) is never refused. It may wait after a full queue, and until the loop
/// has taken it, the queue counts as full.) Every refusal hands the argument back. A thread is
/// refused when the queue is full or the reserve of ids is empty ([`Refusal::Full`] names which),
/// when the watcher is closed, and in a forked child ([`Refusal::Forked`]).
///
/// # Back-pressure
/// Between two turns of the loop, other threads can submit as many operations, and attach as many
/// descriptors, as there are ids in [reserve](crate::Builder::id_reserve) (2048 of each by
/// default), and queue as many requests as the [queue](crate::Builder::remote_queue) holds (4096 by
/// default). Beyond these bounds, [`submit`](Submitter::submit), [`attach`](Submitter::attach) and
/// [`post`](Submitter::post) refuse at once. A thread that may wait calls
/// [`submit_wait`](Submitter::submit_wait), [`attach_wait`](Submitter::attach_wait) or
/// [`post_wait`](Submitter::post_wait), which sleep until the loop has made room, up to a timeout.
/// So a broadcast to any number of clients loses no write.
/// [`Builder::write_limit`](crate::Builder::write_limit) bounds the queued bytes of a slow client.
///
/// ```
/// use windlass::{Done, Watcher};
/// let mut watcher = Watcher::new()?;
/// let submitter = watcher.submitter();
/// std::thread::spawn(move || submitter.post(1, "hello".to_string()).unwrap()).join().unwrap();
/// let mut done = windlass::Completions::new();
/// watcher.wait(&mut done)?;
/// let completion = done.drain(..).next().unwrap();
/// let Ok(Done::Message(message)) = completion.result else { panic!() };
/// assert_eq!(message.downcast::<String>().unwrap(), "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Submitter {
    pub(super) shared: Arc<RemoteShared>,
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submitter({} queued)", self.shared.inbox.len())
    }
}

impl Submitter {
    pub(super) fn new(shared: Arc<RemoteShared>) -> Submitter {
        Submitter { shared }
    }

    /// Passes the gate; refused if the watcher is closed or belongs to another process.
    pub(super) fn enter(&self) -> Result<Gate<'_>, Refusal> {
        if self.shared.is_forked() {
            return Err(Refusal::Forked);
        }
        if self.shared.gate.fetch_add(1, Ordering::SeqCst) & CLOSED != 0 {
            self.shared.gate.fetch_sub(1, Ordering::SeqCst);
            return Err(Refusal::Closed);
        }
        Ok(Gate(&self.shared.gate))
    }

    fn full(limit: Limit, count: Option<usize>) -> Refusal {
        Refusal::Full { limit, count: count.unwrap_or(0) }
    }

    fn send(&self, request: Request) -> Result<(), (Request, Refusal)> {
        let gate = match self.enter() {
            Ok(gate) => gate,
            Err(reason) => return Err((request, reason)),
        };
        let sent = self.shared.inbox.send(request);
        drop(gate);
        match sent {
            Ok(()) => {
                self.shared.wake.notify();
                Ok(())
            }
            Err(request) => {
                let capacity = self.shared.inbox.queue.sender.capacity();
                Err((request, Self::full(Limit::RemoteQueue, capacity)))
            }
        }
    }

    /// Gives a descriptor to the watcher. The source can be used at once.
    ///
    /// # Errors
    ///
    /// The handle comes back, with:
    ///
    /// - [`Refusal::Full`] with [`Limit::IdReserve`]: the reserve of ids is empty.
    /// - [`Refusal::Full`] with [`Limit::RemoteQueue`]: the queue is full.
    /// - [`Refusal::Closed`]: the watcher is closed, or was dropped.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn attach(&self, handle: impl Into<Handle>) -> Result<Source, Refused<Handle>> {
        let handle = handle.into();
        let Ok(source) = self.take_id(&self.shared.sources.receiver) else {
            let reason = self.why_no_id(self.shared.sources.sender.capacity());
            return Err(Refused { value: handle, reason });
        };
        match self.send(Request::Attach(source, handle)) {
            Ok(()) => {
                // Not before the request is queued: an abort of a guessed name must not stand
                // before it and count as queued.
                self.shared.names.attach(source);
                Ok(source)
            }
            Err((Request::Attach(source, op), reason)) => {
                self.give_back(Request::UnusedSource(source));
                Err(Refused { value: op, reason })
            }
            Err(_) => unreachable!("the refused request comes back"),
        }
    }

    /// Submits an operation.
    ///
    /// Refusals that only the loop can see come as the operation's completion, with its buffer:
    ///
    /// | [`Watcher::submit`](crate::Watcher::submit) would say | the completion's error |
    /// |---|---|
    /// | [`Refusal::Stale`] | [`ErrorKind::Aborted`](crate::ErrorKind::Aborted) |
    /// | [`Refusal::Closed`] | [`ErrorKind::Closed`](crate::ErrorKind::Closed) |
    /// | [`Refusal::Forked`] | [`ErrorKind::Forked`](crate::ErrorKind::Forked) |
    /// | [`Refusal::EmptyBuffer`], [`Refusal::BadCount`], [`Refusal::TooLong`] | `EINVAL` |
    /// | [`Refusal::Unsupported`], [`Refusal::NoDescriptor`] | `EOPNOTSUPP` |
    /// | [`Refusal::NoFiles`], [`Refusal::Busy`] | `EOPNOTSUPP` |
    /// | [`Refusal::Full`] (queued writes, jobs) | `ENOBUFS` |
    /// | [`Refusal::Os`] | its errno |
    ///
    /// # Errors
    ///
    /// The operation comes back with its buffer, with:
    ///
    /// - [`Refusal::Full`] with [`Limit::IdReserve`]: the reserve of ids is empty.
    /// - [`Refusal::Full`] with [`Limit::RemoteQueue`]: the queue is full.
    /// - [`Refusal::Closed`]: the watcher is closed, or was dropped.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn submit(&self, op: Op) -> Result<Ticket, Refused<Op>> {
        let Ok(ticket) = self.take_id(&self.shared.tickets.receiver) else {
            let reason = self.why_no_id(self.shared.tickets.sender.capacity());
            return Err(Refused { value: op, reason });
        };
        match self.send(Request::Submit(ticket, op)) {
            Ok(()) => Ok(ticket),
            Err((Request::Submit(ticket, op), reason)) => {
                self.give_back(Request::UnusedTicket(ticket));
                Err(Refused { value: op, reason })
            }
            Err(_) => unreachable!("the refused request comes back"),
        }
    }

    /// As [`attach`](Submitter::attach), but waits up to `timeout` (real time) for room in the
    /// queue and in the reserve.
    ///
    /// # Errors
    /// As for [`submit_wait`](Submitter::submit_wait); the handle comes back.
    pub fn attach_wait(
        &self,
        handle: impl Into<Handle>,
        timeout: Duration,
    ) -> Result<Source, Refused<Handle>> {
        self.persist(handle.into(), timeout, |handle| self.attach(handle))
    }

    /// As [`submit`](Submitter::submit), but waits up to `timeout` (real time) for room in the
    /// queue and in the reserve. Zero does not wait; any length is allowed. Waiting threads are
    /// served in no particular order; the operations of one thread keep their order.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Watcher};
    /// // Room for eight operations at a time, and a thousand of them.
    /// let spawned = Watcher::builder().id_reserve(8).spawn("loop", |mut watcher| {
    ///     let (mut done, mut count) = (Completions::new(), 0);
    ///     while count < 1000 {
    ///         watcher.wait(&mut done)?;
    ///         count += done.drain(..).count();
    ///     }
    ///     Ok(count)
    /// })?;
    /// for _ in 0..1000 {
    ///     spawned.submitter.submit_wait(Op::nop(), Duration::from_secs(10))?;
    /// }
    /// assert_eq!(spawned.thread.join().unwrap()?, 1000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation comes back with its buffer, with:
    ///
    /// - [`Refusal::Full`] after `timeout`, with the last exceeded bound.
    /// - [`Refusal::Closed`]: the watcher is closed, or closes meanwhile.
    /// - [`Refusal::Forked`] at once: this is a forked child.
    /// - [`Refusal::Deadlock`] at once: it would have to wait on the loop's own thread.
    ///
    /// The loop's thread is the one of its last turn with requests. Before the first such turn, it
    /// is the thread that called [`submitter`](crate::Watcher::submitter) first; that thread waits
    /// 100 ms, in case the watcher has moved to another thread.
    pub fn submit_wait(&self, op: Op, timeout: Duration) -> Result<Ticket, Refused<Op>> {
        self.persist(op, timeout, |op| self.submit(op))
    }

    /// As [`post`](Submitter::post), but waits up to `timeout` (real time) for room in the queue.
    ///
    /// # Errors
    /// As for [`submit_wait`](Submitter::submit_wait); the value comes back.
    pub fn post_wait<T: Any + Send>(
        &self,
        token: u64,
        value: T,
        timeout: Duration,
    ) -> Result<(), Refused<T>> {
        let boxed = Box::new(value);
        self.persist(boxed, timeout, |value: Box<T>| self.post_box(token, value))
            .map_err(|Refused { value: op, reason }| Refused { value: *op, reason })
    }

    /// Retries until there is room, `timeout` has passed, or the refusal is permanent.
    fn persist<T, R>(
        &self,
        item: T,
        timeout: Duration,
        attempt: impl Fn(T) -> Result<R, Refused<T>>,
    ) -> Result<R, Refused<T>> {
        let is_full = |reason: Refusal| matches!(reason, Refusal::Full { .. });
        let mut refused = match attempt(item) {
            Err(refused) if is_full(refused.reason) && !timeout.is_zero() => refused,
            answer => return answer,
        };
        let start = Instant::now();
        let until = start.checked_add(timeout);
        let grace = start + GRACE;
        let mut waiting = self.shared.room.enter();
        loop {
            // An attempt that finds the queue full would take an id and give it back.
            if self.shared.inbox.has_room() || self.is_closed() {
                refused = match attempt(refused.value) {
                    Err(refused) if is_full(refused.reason) => refused,
                    answer => return answer,
                };
            }
            let runs = self.shared.room.runs();
            let end = match runs {
                Runs::Here => return Err(Refused { reason: Refusal::Deadlock, ..refused }),
                Runs::PerhapsHere => Some(until.map_or(grace, |until| until.min(grace))),
                Runs::Elsewhere => until,
            };
            if !waiting.sleep(end) {
                if runs == Runs::PerhapsHere && end == Some(grace) {
                    refused.reason = Refusal::Deadlock;
                }
                return Err(refused);
            }
        }
    }

    /// Asks for an operation to be cancelled; its completion is the answer. (There is none for a
    /// [quiet](Op::quiet) write that has succeeded before the loop takes the request.)
    ///
    /// # Errors
    ///
    /// - [`Refusal::Full`] with [`Limit::RemoteQueue`]: the queue is full.
    /// - [`Refusal::Closed`]: the watcher is closed, or was dropped.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn cancel(&self, ticket: Ticket) -> Result<(), Refusal> {
        self.send(Request::Cancel(ticket)).map_err(|(_, reason)| reason)
    }

    /// Asks for an operation to get another deadline, or its first one, and for a timer to get
    /// another time: as [`Watcher::reschedule`](crate::Watcher::reschedule). The span counts from
    /// when the loop takes the request. Nothing happens if the operation has ended by then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let timer = watcher.submit(Op::timer(Duration::from_secs(60)))?;
    /// watcher.submitter().reschedule(timer, Duration::ZERO).unwrap();
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Timer)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - As for [`cancel`](Submitter::cancel).
    pub fn reschedule(&self, ticket: Ticket, span: Duration) -> Result<(), Refusal> {
        self.move_deadline(ticket, Deadline::After(span))
    }

    /// As [`reschedule`](Submitter::reschedule), to an absolute time.
    ///
    /// # Errors
    ///
    /// - As for [`cancel`](Submitter::cancel).
    pub fn reschedule_at(&self, ticket: Ticket, at: Instant) -> Result<(), Refusal> {
        self.move_deadline(ticket, Deadline::At(at))
    }

    fn move_deadline(&self, ticket: Ticket, due: Deadline) -> Result<(), Refusal> {
        let request = Request::Reschedule(ticket, due_ns(due));
        self.send(request).map_err(|(_, reason)| reason)
    }

    /// Aborts a source: its pending operations end, its descriptor is closed. A full queue never
    /// refuses it; after the watcher's close nothing is left to abort. An abort of a stale name, or
    /// of a source with a queued abort, is dropped, so queued aborts never outnumber the sources.
    pub fn abort(&self, source: Source) {
        if self.shared.names.abort(source) {
            self.give_back(Request::Abort(source));
        }
    }

    /// Sends a message to the loop: it completes as [`Done::Message`](crate::Done::Message) with
    /// this token.
    ///
    /// # Errors
    ///
    /// The value comes back, with:
    ///
    /// - [`Refusal::Full`] with [`Limit::RemoteQueue`]: the queue is full.
    /// - [`Refusal::Closed`]: the watcher is closed, or was dropped.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn post<T: Any + Send>(&self, token: u64, value: T) -> Result<(), Refused<T>> {
        self.post_box(token, Box::new(value))
            .map_err(|Refused { value: op, reason }| Refused { value: *op, reason })
    }

    fn post_box<T: Any + Send>(&self, token: u64, value: Box<T>) -> Result<(), Refused<Box<T>>> {
        self.send(Request::Post(token, Some(value))).map_err(|(request, reason)| {
            let Request::Post(_, Some(value)) = request else { unreachable!("it comes back") };
            let op = value.downcast().unwrap_or_else(|_| unreachable!("the same value"));
            Refused { value: op, reason }
        })
    }

    /// As [`post`](Submitter::post) without a value: only the token arrives.
    ///
    /// # Errors
    ///
    /// - As for [`post`](Submitter::post).
    pub fn wake(&self, token: u64) -> Result<(), Refusal> {
        self.send(Request::Post(token, None)).map_err(|(_, reason)| reason)
    }

    /// As [`wake`](Submitter::wake), and never refused because the queue is full: for a program
    /// with an inbox of its own, which must not miss that something is in it.
    ///
    /// The call sets `pending`. If it was set already, nothing else happens: a wake is on its way.
    /// When the completion has come, the program clears `pending`, and only then looks into its
    /// inbox. In the other order it would miss what comes in between. A program that keeps to this
    /// has at most one wake of each flag in the queue, so a full queue grows by one entry at most.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use windlass::{Completions, Watcher};
    /// static PENDING: AtomicBool = AtomicBool::new(false);
    /// let mut watcher = Watcher::new()?;
    /// let submitter = watcher.submitter();
    /// for _ in 0..3 {
    ///     submitter.wake_once(7, &PENDING)?;
    /// }
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert_eq!(done.drain(..).map(|c| c.token).collect::<Vec<_>>(), [7]);
    /// PENDING.store(false, Ordering::SeqCst); // and now the look into the inbox
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Refusal::Closed`]: the watcher is closed, or was dropped.
    /// - [`Refusal::Forked`]: this is a forked child.
    ///
    /// A refused call leaves `pending` set: later calls with this flag return `Ok`, without a wake.
    pub fn wake_once(
        &self,
        token: u64,
        pending: &std::sync::atomic::AtomicBool,
    ) -> Result<(), Refusal> {
        if pending.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        let gate = self.enter()?;
        self.shared.inbox.insist(Request::Post(token, None));
        drop(gate);
        self.shared.wake.notify();
        Ok(())
    }

    /// Whether the watcher is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.gate.load(Ordering::SeqCst) & CLOSED != 0
    }

    fn take_id<T>(&self, reserve: &Receiver<T>) -> Result<T, ()> {
        if self.is_closed() || self.shared.is_forked() {
            return Err(());
        }
        let id = reserve.try_recv().map_err(|_| ());
        if id.is_err() || reserve.len() * 2 < reserve.capacity().unwrap_or(0) {
            // The loop fills the reserve in its next turn.
            self.shared.wake.notify();
        }
        id
    }

    fn why_no_id(&self, capacity: Option<usize>) -> Refusal {
        match () {
            () if self.shared.is_forked() => Refusal::Forked,
            () if self.is_closed() => Refusal::Closed,
            () => Self::full(Limit::IdReserve, capacity),
        }
    }

    /// Queues a request that cannot be refused: an abort, or the return of an unused id. It stays
    /// behind earlier requests. The number of ids and sources, and of the flags of `wake_once`,
    /// bounds the overflow.
    pub(super) fn give_back(&self, request: Request) {
        let Ok(gate) = self.enter() else { return };
        self.shared.inbox.insist(request);
        drop(gate);
        self.shared.wake.notify();
    }
}

/// A thread inside `send`.
pub(super) struct Gate<'a>(&'a AtomicUsize);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Owns a source: dropping the guard aborts the source, from any thread. The loop aborts it in its
/// next turn, even if the loop's own thread drops the guard. Until then the source exists.
///
/// ```
/// use windlass::Watcher;
/// let mut watcher = Watcher::new()?;
/// let (a, _b) = std::os::unix::net::UnixStream::pair()?;
/// let source = watcher.attach(a)?;
/// let guard = watcher.guard(source);
/// std::thread::spawn(move || drop(guard)).join().unwrap();
/// watcher.try_wait(&mut windlass::Completions::new())?;
/// assert!(watcher.fd(source).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SourceGuard {
    source: Source,
    submitter: Submitter,
}

impl SourceGuard {
    pub(crate) fn new(source: Source, submitter: Submitter) -> SourceGuard {
        SourceGuard { source, submitter }
    }

    /// The source.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether the source belongs to the watcher of a submitter. Sources of other watchers have
    /// the same numbers.
    ///
    /// ```
    /// use windlass::Watcher;
    /// let (mut one, mut other) = (Watcher::new()?, Watcher::new()?);
    /// let source = one.attach(std::fs::File::open("Cargo.toml")?)?;
    /// let guard = one.guard(source);
    /// assert!(guard.is_of(&one.submitter()));
    /// assert!(!guard.is_of(&other.submitter()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_of(&self, submitter: &Submitter) -> bool {
        Arc::ptr_eq(&self.submitter.shared, &submitter.shared)
    }

    /// Returns the source without aborting it.
    pub fn release(mut self) -> Source {
        std::mem::replace(&mut self.source, Source::NONE)
    }
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        if !self.source.is_none() {
            self.submitter.abort(self.source);
        }
    }
}
