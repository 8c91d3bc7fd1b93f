//! Work from other threads: a bounded queue, whether the loop sleeps, and ids that the loop keeps
//! ready.

mod inbox;
mod names;
mod room;
mod submitter;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use self::inbox::{Channel, InboxQueues};
use self::names::Names;
use self::room::Room;
pub use self::submitter::{SourceGuard, Submitter};
use crate::memory::discard::discard;
use crate::op::Op;
use crate::sys::fork;
pub use crate::sys::waker::Wake;
use crate::words::source::{Handle, Source, Ticket};
use crate::words::wake_state::WakeState;

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request from another thread to the loop.
pub enum Request {
    /// Own this descriptor under this reserved name.
    Attach(Source, Handle),
    /// Start this operation under this reserved name.
    Submit(Ticket, Op),
    /// Cancel this operation.
    Cancel(Ticket),
    /// Give this operation another deadline, in nanoseconds and in the form that operations carry.
    Reschedule(Ticket, u64),
    /// Abort this source.
    Abort(Source),
    /// Take back this reserved name of a source: it was not used.
    UnusedSource(Source),
    /// Take back this reserved ticket: it was not used.
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
            Request::Reschedule(ticket, ns) => write!(f, "Reschedule({ticket:?}, {ns})"),
            Request::Abort(source) => write!(f, "Abort({source:?})"),
            Request::UnusedSource(source) => write!(f, "UnusedSource({source:?})"),
            Request::UnusedTicket(ticket) => write!(f, "UnusedTicket({ticket:?})"),
            Request::Post(token, _) => write!(f, "Post({token})"),
        }
    }
}

/// The state that the loop and its submitters share.
struct RemoteShared {
    wake: Arc<WakeState>,
    /// Threads inside `send`, and the CLOSED bit.
    gate: AtomicUsize,
    /// The queued requests. The overflow takes requests that cannot be refused while the queue is
    /// full: aborts, and returns of unused ids.
    inbox: InboxQueues<Channel<Request>>,
    /// Ids in reserve.
    sources: Channel<Source>,
    tickets: Channel<Ticket>,
    /// Which sources can be aborted.
    names: Names,
    /// Where threads wait for room.
    room: Room,
    forks: u32,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

/// The longest queue. It allocates its memory at once, some 100 bytes for each request.
const MOST_QUEUED: usize = 1 << 20;
/// The largest reserve of a kind.
const MOST_RESERVED: usize = 1 << 16;

impl RemoteShared {
    /// Whether this process is a fork of the loop's process.
    fn is_forked(&self) -> bool {
        self.forks != fork::generation()
    }
}

/// Requests that have left the queue and were not taken yet.
#[derive(Default)]
struct Aside {
    requests: VecDeque<Request>,
    /// The request that has left the overflow and waits for its turn (see `inbox.rs`).
    held: Option<Request>,
}

/// The loop's end.
pub struct Remote {
    shared: Arc<RemoteShared>,
    /// Requests that `look_for` has searched. They are the next to be taken.
    aside: RefCell<Aside>,
    /// Whether a submitter was ever given out; until then nothing is reserved.
    in_use: bool,
    /// The loop has taken requests since it last woke the threads that wait for room.
    has_room: bool,
}

impl Remote {
    /// A queue for `queue` requests (1 to 2^20), and a reserve of `sources` sources and `tickets`
    /// tickets (at most 2^16 of each); `waker` ends the sleep of the loop.
    pub fn new(queue: usize, sources: u32, tickets: u32, waker: Arc<dyn Wake>) -> Remote {
        fork::watch();
        let queue = Channel::bounded(queue.clamp(1, MOST_QUEUED));
        let shared = Arc::new(RemoteShared {
            wake: Arc::new(WakeState::new(waker)),
            gate: AtomicUsize::new(0),
            inbox: InboxQueues::new(queue, Channel::unbounded()),
            sources: Channel::bounded(MOST_RESERVED.min(sources as usize)),
            tickets: Channel::bounded(MOST_RESERVED.min(tickets as usize)),
            names: Names::default(),
            room: Room::new(),
            forks: fork::generation(),
        });
        Remote { shared, aside: RefCell::default(), in_use: false, has_room: false }
    }

    /// Whether a submitter was given out.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Publishes that `source` exists, so that other threads may abort it. A driver calls this for
    /// every source that it gives to its user, and at the first submitter for all existing sources.
    /// An abort of any other name is dropped. (Sources that other threads attach need no call.)
    #[inline]
    pub fn opened(&self, source: Source) {
        if self.in_use {
            self.shared.names.open(source);
        }
    }

    /// A handle for other threads. The driver should then fill the reserve.
    pub fn submitter(&mut self) -> Submitter {
        self.in_use = true;
        self.shared.room.may_run_here();
        Submitter::new(Arc::clone(&self.shared))
    }

    /// What wakes the loop from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.shared.wake.clone()
    }

    /// Makes the next turn look for requests.
    pub(crate) fn wake(&self) {
        self.shared.wake.notify();
    }

    /// Whether the loop sleeps, and what ends its sleep.
    pub(crate) fn wake_state(&self) -> Arc<WakeState> {
        Arc::clone(&self.shared.wake)
    }

    /// Call before the loop blocks. False if it must not block, because a request has come.
    #[inline]
    pub fn prepare_park(&self) -> bool {
        self.shared.wake.prepare_park()
    }

    /// Whether a request may have come.
    #[inline]
    pub fn is_notified(&self) -> bool {
        self.shared.wake.is_notified()
    }

    /// Call at the start of a turn. True if requests may be queued: then the loop must take them.
    #[inline]
    pub fn unpark(&self) -> bool {
        let notified = self.shared.wake.unpark();
        if notified {
            self.shared.room.run_here();
        }
        notified
    }

    /// The number of queued requests.
    pub(crate) fn len(&self) -> usize {
        let aside = self.aside.borrow();
        self.shared.inbox.len() + aside.requests.len() + usize::from(aside.held.is_some())
    }

    /// Queues the loop's own abort of a source behind the queued requests, one of which may attach
    /// the source. False if no thread has attached a handle under this name, or an abort of it is
    /// queued already.
    pub(crate) fn abort_later(&self, source: Source) -> bool {
        let is_there = self.shared.names.abort(source);
        if is_there {
            self.shared.inbox.insist(Request::Abort(source));
            self.shared.wake.notify();
        }
        is_there
    }

    /// Shows `look` the handle that another thread has queued for this source. The requests stay to
    /// be taken, in their order. `None` if no request attaches the source, or if as many requests
    /// were searched already as the queue can hold.
    pub(crate) fn look_for<R>(&self, source: Source, look: impl FnOnce(&Handle) -> R) -> Option<R> {
        let attaches = |request: &Request| match request {
            Request::Attach(name, _) => *name == source,
            _ => false,
        };
        let Aside { requests, held } = &mut *self.aside.borrow_mut();
        let bound = self.shared.inbox.queue.sender.capacity().unwrap_or(MOST_QUEUED);
        let known = requests.iter().position(attaches);
        let at = known.or_else(|| {
            while requests.len() < bound
                && let Some(request) = self.shared.inbox.take(held)
            {
                requests.push_back(request);
            }
            requests.iter().position(attaches)
        });
        match requests.get(at?)? {
            Request::Attach(_, handle) => Some(look(handle)),
            _ => None,
        }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<Request> {
        let Aside { requests, held } = self.aside.get_mut();
        let request = requests.pop_front().or_else(|| self.shared.inbox.take(held))?;
        self.has_room = true;
        if let Request::Abort(source) = request {
            self.shared.names.taken(source);
        }
        Some(request)
    }

    /// Fills the reserve with ids from `source` and `ticket` until it is full or they return none,
    /// and wakes the threads that wait for room. Call it after taking requests. True if threads
    /// wait and no id was left for them: then call it again when a slot has become vacant.
    pub fn fill(
        &mut self,
        mut source: impl FnMut() -> Option<Source>,
        mut ticket: impl FnMut() -> Option<Ticket>,
    ) -> bool {
        if !self.in_use {
            return false;
        }
        let RemoteShared { sources, tickets, names, room, .. } = &*self.shared;
        while !sources.sender.is_full() {
            let Some(id) = source() else { break };
            names.reserve(id);
            // Only this thread sends, so a channel that was not full has room.
            let _ = sources.sender.try_send(id);
            self.has_room = true;
        }
        while !tickets.sender.is_full() {
            let Some(id) = ticket() else { break };
            let _ = tickets.sender.try_send(id);
            self.has_room = true;
        }
        // Wake threads only when there is room: otherwise they would wake the loop for ids, and be
        // woken again.
        if std::mem::take(&mut self.has_room) {
            room.wake_all();
        }
        (sources.sender.is_empty() || tickets.sender.is_empty()) && room.has_waiting()
    }

    /// Refuses submitters from now on, and threads that wait for room. Requests queued before can
    /// still be taken. No request is queued after this returns.
    pub fn close(&mut self) {
        self.shared.gate.fetch_or(CLOSED, Ordering::SeqCst);
        if self.shared.is_forked() {
            // Threads inside `send` at the fork do not exist in this process, so their count never
            // falls; and no thread of this process waits for room.
            return;
        }
        self.shared.room.wake_all();
        // Threads that passed the gate before are inside a `try_send`, which does not block.
        while self.shared.gate.load(Ordering::SeqCst) != CLOSED {
            std::thread::yield_now();
        }
    }
}

impl Remote {
    /// After `close`: false if a thread was inside `send` when the process forked. That thread does
    /// not exist in the child.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.gate.load(Ordering::SeqCst) == CLOSED
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
        if !self.is_quiet() {
            // Emptying the channel would wait for threads that do not exist in this process.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // The queue lives as long as a submitter; its requests must not.
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

#[cfg(test)]
mod tests;
