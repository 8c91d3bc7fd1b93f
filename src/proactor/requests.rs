//! Requests of other threads: their handles, operations and messages become the loop's own.

use std::any::Any;

use super::*;
use crate::completion::Message;
use crate::error::{Error, ErrorKind};
use crate::remote::Request;
use crate::source::SourceKind;

/// Most requests from other threads that one turn takes.
const MOST_REQUESTS: usize = 4096;

/// Marks that a request is being served, until dropped: a kernel written outside the crate may
/// panic.
struct Serving<'a, K: Kernel>(&'a mut Proactor<K>);

impl<K: Kernel> Drop for Serving<'_, K> {
    fn drop(&mut self) {
        self.0.serving = false;
    }
}

impl<K: Kernel> Proactor<K> {
    #[cold]
    pub(super) fn take_requests(&mut self) {
        for _ in 0..MOST_REQUESTS {
            if !self.take_request() {
                return self.fill_reserve();
            }
        }
        // There may be more: look again in the next turn.
        self.fill_reserve();
        self.remote.waker()();
    }

    /// Serves the next request, if there is one.
    fn take_request(&mut self) -> bool {
        let Some(request) = self.remote.take() else { return false };
        self.serving = true;
        let serving = Serving(self);
        serving.0.serve(request);
        true
    }

    /// Serves all requests that are queued now, unless too many completions wait.
    #[cold]
    pub(super) fn take_queued(&mut self) {
        for _ in 0..self.remote.len() {
            if self.batch.is_full() {
                break;
            }
            self.take_request();
        }
        self.fill_reserve();
    }

    /// Takes what other threads have queued if that attaches this source: they may have told this
    /// thread its name before the queue did.
    pub(super) fn take_arrived(&mut self, source: Source) {
        if !self.serving
            && self.check_fork().is_ok()
            && self.state(source).is_some_and(|state| state.has(RESERVED))
        {
            self.take_queued();
        }
    }

    /// Whether the request that attaches this source may still be queued, because at the bound of
    /// waiting completions the loop takes no requests.
    pub(super) fn is_left_in_queue(&mut self, source: Source) -> bool {
        !self.serving
            && self.batch.is_full()
            && self.state(source).is_some_and(|state| state.has(RESERVED))
    }

    /// Why a source cannot be used, after [`take_arrived`](Self::take_arrived).
    pub(super) fn why_missing(&mut self, source: Source) -> Reason {
        if self.is_left_in_queue(source) { self.full_of_completions() } else { self.stale() }
    }

    pub(super) fn serve(&mut self, request: Request) {
        match request {
            Request::Attach(source, handle) => {
                let index = source.index();
                let Some(state) = self.state(source) else {
                    return;
                };
                debug_assert!(state.has(RESERVED));
                if self.kernel.accepts(&handle) {
                    self.counts.hidden -= 1;
                    self.open(index, handle, 0);
                } else {
                    self.vacate_source(index);
                }
            }
            Request::Submit(ticket, op) => self.submit_reserved(ticket, op),
            Request::Cancel(ticket) => {
                self.cancel_ticket(ticket);
            }
            Request::Reschedule(ticket, due_ns) => {
                // It may have ended meanwhile.
                let _ = self.move_deadline(ticket, due_ns);
            }
            Request::UnusedTicket(ticket) => self.vacate_reserved(ticket),
            Request::UnusedSource(source) => self.vacate_source(source.index()),
            Request::Abort(source) => {
                self.abort_source(source);
            }
            Request::Post(token, value) => self.post(token, value),
        }
    }

    /// A ticket that was kept for another thread has done its service.
    pub(super) fn vacate_reserved(&mut self, ticket: Ticket) {
        let op = &mut self.slots[ticket.index()];
        debug_assert!(op.reserved);
        op.reserved = false;
        self.slots.vacate(ticket.index());
    }

    /// Starts what another thread has submitted under a reserved name; a refusal becomes the
    /// operation's completion.
    fn submit_reserved(&mut self, ticket: Ticket, mut op: Op) {
        debug_assert!(self.slots[ticket.index()].reserved);
        let is_cancelled = self.slots[ticket.index()].count != 0;
        if is_cancelled && op.code == OpCode::Write {
            // The cancel was accepted, so it is answered.
            op.flags &= !crate::op::QUIET;
        }
        let is_quiet = op.flags & crate::op::QUIET != 0;
        // The next place that is occupied is the reserved one.
        self.slots[ticket.index()].reserved = false;
        self.slots.reopen(ticket.index());
        // The place is reserved for this request, so no limit of the table refuses it. Nor does the
        // bound on waiting completions: the request is accepted already.
        self.slots.set_limit(u32::MAX);
        let completions = self.batch.set_limit(usize::MAX);
        let answer = match op.code {
            // It needs the place, because it has its ticket already.
            OpCode::Read if !is_quiet => self
                .reader(op.source)
                .and_then(|index| {
                    let multishot = op.flags & MULTISHOT != 0;
                    let token = self.token(op.source, op.token);
                    self.queue_read(index, token, op.deadline_ns, multishot)
                })
                .map_err(|reason| Rejected { value: op, reason }),
            _ => self.submit(op),
        };
        if !matches!(answer, Ok(started) if started == ticket) {
            self.slots.occupy();
            self.slots.vacate(ticket.index());
        }
        self.set_limits();
        self.batch.set_limit(completions);
        let Rejected { value: op, reason } = match answer {
            Err(rejected) => rejected,
            Ok(started) => {
                // It ended at once, without a place; a quiet one without a completion, too.
                if started != ticket
                    && !is_quiet
                    && let Some(last) = self.batch.last_mut()
                {
                    debug_assert_eq!(last.ticket(), started);
                    last.set_ticket(ticket);
                }
                if is_cancelled {
                    self.cancel_ticket(ticket);
                }
                return;
            }
        };
        self.refuse_reserved(ticket, op, reason);
    }

    /// Makes a completion of the refusal of another thread's operation.
    pub(super) fn refuse_reserved(&mut self, ticket: Ticket, mut op: Op, reason: Reason) {
        let kind = match reason {
            Reason::Stale => ErrorKind::Aborted,
            Reason::Closed => ErrorKind::Closed,
            Reason::Forked => ErrorKind::Forked,
            Reason::Os(errno) => ErrorKind::Os(errno),
            Reason::Full { .. } => ErrorKind::Os(libc::ENOBUFS),
            Reason::EmptyBuffer
            | Reason::BadCount
            | Reason::TooLong
            | Reason::NoAddress
            | Reason::NoProcessor(_) => ErrorKind::Os(libc::EINVAL),
            // (Only other threads get `Deadlock`.)
            Reason::Unsupported
            | Reason::NoDescriptor
            | Reason::NoFiles
            | Reason::Busy
            | Reason::Deadlock => ErrorKind::Os(libc::EOPNOTSUPP),
        };
        self.counts.submitted[op.code as usize] += 1;
        let (code, source, token) = (op.code, op.source, op.token);
        let error = Error::new(kind, 0, op.buf.take());
        // A job's closure, which no completion returns.
        discard(op);
        self.batch.push(Completion::new(code, source, ticket, token, Err(error)));
    }

    /// The requests that other threads had queued when the watcher closed end like everything else.
    pub(super) fn refuse_closed(&mut self, request: Request) {
        match request {
            Request::Submit(ticket, op) => {
                self.vacate_reserved(ticket);
                self.refuse_reserved(ticket, op, Reason::Closed);
            }
            Request::Post(token, value) => self.post(token, value),
            // The handle closes its descriptor.
            Request::Attach(..)
            | Request::Cancel(_)
            | Request::Reschedule(..)
            | Request::Abort(_) => {}
            Request::UnusedSource(source) => self.vacate_source(source.index()),
            Request::UnusedTicket(ticket) => self.vacate_reserved(ticket),
        }
    }

    pub(super) fn post(&mut self, token: u64, value: Option<Box<dyn Any + Send>>) {
        self.counts.messages += 1;
        let ticket = self.loose_ticket();
        let done = Done::Message(Message(value));
        self.batch.push(Completion::new(OpCode::Message, Source::NONE, ticket, token, Ok(done)));
    }

    /// Publishes the existing sources to other threads, which may abort them from now on.
    pub(super) fn open_to_others(&mut self) {
        for index in self.sources.occupied() {
            let state = &self.sources[index];
            if !state.has(CONNECTING) {
                self.remote.opened(state.name(index));
            }
        }
    }

    /// Keeps ids ready for other threads. While threads wait and the tables are full, each turn
    /// tries again.
    pub(super) fn fill_reserve(&mut self) {
        let Proactor { remote, sources, slots, counts, .. } = self;
        self.starving = remote.fill(
            || {
                let (index, generation) = sources.occupy()?;
                sources[index].open(-1, SourceKind::Unknown, RESERVED);
                counts.hidden += 1;
                Some(Source::from_parts(index, generation))
            },
            || {
                let (slot, generation) = slots.occupy()?;
                slots[slot].reserved = true;
                // Not cancelled.
                slots[slot].count = 0;
                Some(Ticket::from_parts(slot, generation))
            },
        );
        self.dozing |= self.starving;
    }
}
