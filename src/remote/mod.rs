//! Work from other threads: a bounded queue, a bell that says whether the loop sleeps, and ids that
//! the loop keeps ready.

mod inbox;
mod names;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crossbeam_channel::Receiver;

use self::inbox::{Channel, Inbox};
use self::names::Names;
use crate::bell::{Bell, Urgency};
use crate::discard::discard;
use crate::error::{Limit, Reason, Rejected};
use crate::op::Op;
use crate::source::{Handle, Source, Ticket};
use crate::sys::fork;

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// What another thread asks of the loop.
pub enum Request {
    /// Own this descriptor under this reserved name.
    Attach(Source, Handle),
    /// Start this operation under this reserved name.
    Submit(Ticket, Op),
    /// Cancel this operation.
    Cancel(Ticket),
    /// Free this source.
    Free(Source),
    /// This reserved name was not used.
    UnusedSource(Source),
    /// Nor was this one.
    UnusedTicket(Ticket),
    /// Deliver this message.
    Post(u64, Option<Box<dyn Any + Send>>),
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Attach(source, handle) => write!(f, "Attach({source:?}, {handle:?})"),
            Request::Submit(ticket, op) => write!(f, "Submit({ticket:?}, {op:?})"),
            Request::Cancel(ticket) => write!(f, "Cancel({ticket:?})"),
            Request::Free(source) => write!(f, "Free({source:?})"),
            Request::UnusedSource(source) => write!(f, "UnusedSource({source:?})"),
            Request::UnusedTicket(ticket) => write!(f, "UnusedTicket({ticket:?})"),
            Request::Post(token, _) => write!(f, "Post({token})"),
        }
    }
}

/// Wakes a loop: how a driver's own wake descriptor is reached from other threads.
pub trait Wake: Send + Sync {
    /// Makes the loop's wait return.
    fn wake(&self);
}

/// What the loop and its submitters share.
struct Shared {
    bell: Bell,
    /// Threads inside `send`, and the CLOSED bit.
    gate: AtomicUsize,
    /// What they have queued. The overflow is for what found the queue full and cannot be refused: frees, and
    /// ids that were not used.
    inbox: Inbox<Channel<Request>>,
    /// Ids in reserve.
    sources: Channel<Source>,
    tickets: Channel<Ticket>,
    /// Which sources can be freed.
    names: Names,
    wake: Box<dyn Wake>,
    forks: u32,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

/// The longest queue: its memory is taken when it is made, some 100 bytes for each request.
const MOST_QUEUED: usize = 1 << 20;
/// The largest reserve of a kind.
const MOST_RESERVED: usize = 1 << 16;

impl Shared {
    /// Whether this is a fork of the process that the loop is in.
    fn is_forked(&self) -> bool {
        self.forks != fork::generation()
    }

    fn ring(&self) {
        if self.bell.ring() {
            self.wake.wake();
        }
    }

    fn tell(&self, urgency: Urgency) {
        match urgency {
            Urgency::Now => self.ring(),
            Urgency::Soon if self.bell.tap() => self.wake.wake(),
            Urgency::Soon => {}
        }
    }
}

/// The loop's end.
pub struct Remote {
    shared: Arc<Shared>,
    /// The request that has left the overflow and waits for its turn.
    held: Option<Request>,
    /// Whether a submitter was ever given out; until then nothing is reserved.
    in_use: bool,
}

impl Remote {
    /// A queue for `queue` requests (1 to 2^20) and a reserve of so many sources and tickets (2^16 of each
    /// at most).
    pub fn new(queue: usize, sources: u32, tickets: u32, wake: impl Wake + 'static) -> Remote {
        fork::watch();
        let queue = Channel::bounded(queue.clamp(1, MOST_QUEUED));
        let shared = Arc::new(Shared {
            bell: Bell::new(),
            gate: AtomicUsize::new(0),
            inbox: Inbox::new(queue, Channel::unbounded()),
            sources: Channel::bounded(MOST_RESERVED.min(sources as usize)),
            tickets: Channel::bounded(MOST_RESERVED.min(tickets as usize)),
            names: Names::default(),
            wake: Box::new(wake),
            forks: fork::generation(),
        });
        Remote { shared, held: None, in_use: false }
    }

    /// Whether a submitter was given out.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// This source is there: other threads may free it. A driver says it of every source that it gives to its
    /// user, and of those that are there when it is asked for the first submitter: the free of another name
    /// is dropped. (Of what other threads attach it need not say it.)
    #[inline]
    pub fn opened(&self, source: Source) {
        if self.in_use {
            self.shared.names.open(source);
        }
    }

    /// A handle for other threads. The driver should then fill the reserve.
    pub fn submitter(&mut self) -> Submitter {
        self.in_use = true;
        Submitter { shared: Arc::clone(&self.shared) }
    }

    /// Wakes the loop; to be called from anywhere.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.ring()
    }

    /// As [`waker`](Remote::waker), for what may be less urgent.
    pub(crate) fn teller(&self) -> impl Fn(Urgency) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |urgency| shared.tell(urgency)
    }

    /// Before the loop blocks for a short time, after which it takes what there is: false when it must not,
    /// because something has come.
    #[inline]
    pub(crate) fn nap(&self) -> bool {
        self.shared.bell.nap()
    }

    /// Before the loop blocks: false when it must not, because something has come.
    #[inline]
    pub fn doze(&self) -> bool {
        self.shared.bell.doze()
    }

    /// Whether something may have come.
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.shared.bell.has_rung()
    }

    /// At the start of a turn: true when requests may be queued, which the loop must then take.
    #[inline]
    pub fn rouse(&self) -> bool {
        self.shared.bell.rouse()
    }

    /// How many requests are queued.
    pub(crate) fn len(&self) -> usize {
        self.shared.inbox.len() + usize::from(self.held.is_some())
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<Request> {
        let request = self.shared.inbox.take(&mut self.held)?;
        if let Request::Free(source) = request {
            self.shared.names.taken(source);
        }
        Some(request)
    }

    /// Asks `source` and `ticket` for ids until the reserve is full or they have none.
    pub fn fill(
        &mut self,
        mut source: impl FnMut() -> Option<Source>,
        mut ticket: impl FnMut() -> Option<Ticket>,
    ) {
        if !self.in_use {
            return;
        }
        let Shared { sources, tickets, names, .. } = &*self.shared;
        while !sources.sender.is_full() {
            let Some(id) = source() else { break };
            names.reserve(id);
            // Only this thread sends, so a channel that was not full takes it.
            let _ = sources.sender.try_send(id);
        }
        while !tickets.sender.is_full() {
            let Some(id) = ticket() else { break };
            let _ = tickets.sender.try_send(id);
        }
    }

    /// From here on submitters are refused. What was queued before can still be taken; nothing is
    /// queued after this returns.
    pub fn close(&mut self) {
        self.shared.gate.fetch_or(CLOSED, Ordering::SeqCst);
        if self.shared.is_forked() {
            // Whoever was inside at the fork is not in this process and will never come out.
            return;
        }
        // Threads that passed the gate before are inside a `try_send`, which does not block.
        while self.shared.gate.load(Ordering::SeqCst) != CLOSED {
            std::thread::yield_now();
        }
    }
}

impl Remote {
    /// After `close`: false when threads were about to queue something as the process forked, who are not in
    /// this one and never will have.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.gate.load(Ordering::SeqCst) == CLOSED
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
        if !self.is_quiet() {
            // Whoever empties the channel would wait for them.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // The queue lives as long as a submitter: what is in it must not.
        while let Some(request) = self.take() {
            discard(request);
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({} queued)", self.len())
    }
}

/// Attaches, submits, cancels and frees from any thread.
///
/// Requests are taken in the order in which they were queued, at the start of the loop's next turn. (A
/// [`free`](Submitter::free), which is never refused, may stand behind a full queue: until the loop has taken
/// it, the queue counts as full.)
/// Every refusal hands back what was given: when the queue or the reserve of ids is full
/// ([`Reason::Full`] names which), when the watcher is closed, and in a forked child, which has no
/// part in its parent's loop ([`Reason::Forked`]).
///
/// ```
/// use windlass::{Done, Watcher};
/// let mut watcher = Watcher::new()?;
/// let submitter = watcher.submitter();
/// std::thread::spawn(move || submitter.post(1, "hello".to_string()).unwrap()).join().unwrap();
/// let mut done = windlass::Completions::new();
/// watcher.wait(&mut done)?;
/// let Some(Ok(Done::Message(message))) = done.drain(..).next().map(|c| c.result) else { panic!() };
/// assert_eq!(message.downcast::<String>().unwrap(), "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Submitter {
    shared: Arc<Shared>,
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submitter({} queued)", self.shared.inbox.len())
    }
}

impl Submitter {
    /// Passes the gate, or says that the watcher is closed or another process's.
    fn enter(&self) -> Result<Gate<'_>, Reason> {
        if self.shared.is_forked() {
            return Err(Reason::Forked);
        }
        if self.shared.gate.fetch_add(1, Ordering::SeqCst) & CLOSED != 0 {
            self.shared.gate.fetch_sub(1, Ordering::SeqCst);
            return Err(Reason::Closed);
        }
        Ok(Gate(&self.shared.gate))
    }

    fn full(limit: Limit, count: Option<usize>) -> Reason {
        Reason::Full { limit, count: count.unwrap_or(0) as u32 }
    }

    fn send(&self, request: Request) -> Result<(), (Request, Reason)> {
        let gate = match self.enter() {
            Ok(gate) => gate,
            Err(reason) => return Err((request, reason)),
        };
        let sent = self.shared.inbox.send(request);
        drop(gate);
        match sent {
            Ok(()) => {
                self.shared.ring();
                Ok(())
            }
            Err(request) => {
                let capacity = self.shared.inbox.queue.sender.capacity();
                Err((request, Self::full(Limit::Queue, capacity)))
            }
        }
    }

    /// Gives a descriptor to the watcher. The source can be used at once.
    ///
    /// # Errors
    /// Refused when the reserve of ids is empty, the queue is full, or the watcher is closed; the
    /// handle comes back.
    pub fn attach(&self, handle: impl Into<Handle>) -> Result<Source, Rejected<Handle>> {
        let handle = handle.into();
        let Ok(source) = self.take_id(&self.shared.sources.receiver) else {
            let reason = self.why_no_id(self.shared.sources.sender.capacity());
            return Err(Rejected { op: handle, reason });
        };
        match self.send(Request::Attach(source, handle)) {
            Ok(()) => {
                // Not before it is queued: a free by guess must not stand before it and count as queued.
                self.shared.names.attach(source);
                Ok(source)
            }
            Err((Request::Attach(source, op), reason)) => {
                self.give_back(Request::UnusedSource(source));
                Err(Rejected { op, reason })
            }
            Err(_) => unreachable!("the refused request comes back"),
        }
    }

    /// Submits an operation.
    ///
    /// What only the loop can see comes as the operation's completion, with its buffer:
    ///
    /// | [`Watcher::submit`](crate::Watcher::submit) would say | the completion's error |
    /// |---|---|
    /// | [`Reason::Stale`] | [`ErrorKind::Freed`](crate::ErrorKind::Freed) |
    /// | [`Reason::Closed`], [`Reason::Forked`] | [`ErrorKind::Closed`](crate::ErrorKind::Closed), [`ErrorKind::Forked`](crate::ErrorKind::Forked) |
    /// | [`Reason::EmptyBuffer`], [`Reason::BadCount`], [`Reason::TooLong`] | `EINVAL` |
    /// | [`Reason::Unsupported`], [`Reason::NoDescriptor`], [`Reason::NoFiles`], [`Reason::Busy`] | `EOPNOTSUPP` |
    /// | [`Reason::Full`] (queued writes, jobs) | `ENOBUFS` |
    /// | [`Reason::Os`] | its errno |
    ///
    /// # Errors
    /// Refused when the reserve of ids is empty, the queue is full, or the watcher is closed; the
    /// operation comes back with its buffer.
    pub fn submit(&self, op: Op) -> Result<Ticket, Rejected<Op>> {
        let Ok(ticket) = self.take_id(&self.shared.tickets.receiver) else {
            let reason = self.why_no_id(self.shared.tickets.sender.capacity());
            return Err(Rejected { op, reason });
        };
        match self.send(Request::Submit(ticket, op)) {
            Ok(()) => Ok(ticket),
            Err((Request::Submit(ticket, op), reason)) => {
                self.give_back(Request::UnusedTicket(ticket));
                Err(Rejected { op, reason })
            }
            Err(_) => unreachable!("the refused request comes back"),
        }
    }

    /// Asks for an operation to be cancelled; its completion is the answer.
    ///
    /// # Errors
    /// Refused when the queue is full or the watcher is closed.
    pub fn cancel(&self, ticket: Ticket) -> Result<(), Reason> {
        self.send(Request::Cancel(ticket)).map_err(|(_, reason)| reason)
    }

    /// Frees a source: its pending operations end, its descriptor is closed. Never refused for want
    /// of room; after the watcher's close there is nothing left to free. A name that is stale, or that a free
    /// is queued for already, is not queued: frees take no more room than there are sources.
    pub fn free(&self, source: Source) {
        if self.shared.names.free(source) {
            self.give_back(Request::Free(source));
        }
    }

    /// Sends a message to the loop: it completes as [`Done::Message`](crate::Done::Message) with this
    /// token.
    ///
    /// # Errors
    /// Refused when the queue is full or the watcher is closed; the value comes back.
    pub fn post<T: Any + Send>(&self, token: u64, value: T) -> Result<(), Rejected<T>> {
        // Look before boxing, so that the usual refusals cost no allocation.
        self.send(Request::Post(token, Some(Box::new(value)))).map_err(|(request, reason)| {
            let Request::Post(_, Some(value)) = request else { unreachable!("it comes back") };
            let op = *value.downcast::<T>().unwrap_or_else(|_| unreachable!("the same value"));
            Rejected { op, reason }
        })
    }

    /// As [`post`](Submitter::post) without a value: only the token arrives.
    ///
    /// # Errors
    /// As for `post`.
    pub fn wake(&self, token: u64) -> Result<(), Reason> {
        self.send(Request::Post(token, None)).map_err(|(_, reason)| reason)
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
            self.shared.ring();
        }
        id
    }

    fn why_no_id(&self, capacity: Option<usize>) -> Reason {
        match () {
            () if self.shared.is_forked() => Reason::Forked,
            () if self.is_closed() => Reason::Closed,
            () => Self::full(Limit::Reserve, capacity),
        }
    }

    /// What cannot be refused: frees, and the return of an id that was not used. It keeps its place
    /// behind what was queued before; the overflow is bounded by the number of ids and sources.
    fn give_back(&self, request: Request) {
        let Ok(gate) = self.enter() else { return };
        self.shared.inbox.insist(request);
        drop(gate);
        self.shared.ring();
    }
}

struct Gate<'a>(&'a AtomicUsize);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Owns a source: dropping it frees the source, from any thread. The loop does it in its next turn, also
/// where its own thread has dropped the guard; until then the source is there.
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

    /// Lets go of the source without freeing it.
    pub fn release(mut self) -> Source {
        std::mem::replace(&mut self.source, Source::NONE)
    }
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        if !self.source.is_none() {
            self.submitter.free(self.source);
        }
    }
}

#[cfg(test)]
mod tests;
