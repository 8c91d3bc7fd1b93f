//! Requests of other threads: the loop takes their handles, operations and messages over.

use std::any::Any;

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::memory::discard::discard;
use crate::op::{Family, Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::parts::state::{CONNECTING, RESERVED};
use crate::remote::Request;
use crate::words::error::{Error, ErrorKind, Refusal, Refused};
use crate::words::message::Message;
use crate::words::source::{Source, SourceKind, Ticket};

/// Most requests from other threads that one turn takes.
const MOST_REQUESTS: usize = 4096;

/// Marks that a request is being served. Dropping it ends the mark even after a panic, which a
/// kernel from outside the crate may cause.
struct Serving<'a, K: Kernel>(&'a mut Proactor<K>);

impl<K: Kernel> Drop for Serving<'_, K> {
    fn drop(&mut self) {
        self.0.inbox.serving = false;
        // A ticket is left here only by a panic. The next operation must not take it.
        if let Some(ticket) = self.0.ops.given {
            self.0.settle_given(ticket);
        }
    }
}

impl<K: Kernel> Proactor<K> {
    #[cold]
    pub(in crate::proactor) fn take_requests(&mut self) {
        for _ in 0..MOST_REQUESTS {
            if !self.take_request() {
                return self.fill_reserve();
            }
        }
        // There may be more: look again in the next turn.
        self.fill_reserve();
        self.inbox.remote.wake();
    }

    /// Serves the next request, if there is one.
    fn take_request(&mut self) -> bool {
        let Some(request) = self.inbox.remote.take() else { return false };
        self.inbox.serving = true;
        let serving = Serving(self);
        serving.0.serve(request);
        true
    }

    /// Serves all requests that are queued now, unless too many completions wait.
    #[cold]
    pub(in crate::proactor) fn take_queued(&mut self) {
        for _ in 0..self.inbox.remote.len() {
            if self.outbox.batch.is_full() {
                break;
            }
            self.take_request();
        }
        self.fill_reserve();
    }

    /// Takes the requests of other threads if one of them may attach this source: another thread
    /// may have told the program the source before the loop took the request.
    pub(in crate::proactor) fn take_arrived(&mut self, source: Source) {
        if !self.inbox.serving
            && self.sources.check_fork().is_ok()
            && self.state(source).is_some_and(|state| state.has(RESERVED))
        {
            self.take_queued();
        }
    }

    /// Whether the request that attaches this source may still be queued, because at the bound of
    /// waiting completions the loop takes no requests.
    pub(in crate::proactor) fn is_left_in_queue(&mut self, source: Source) -> bool {
        !self.inbox.serving
            && self.outbox.batch.is_full()
            && self.state(source).is_some_and(|state| state.has(RESERVED))
    }

    /// Why a source cannot be used, after [`take_arrived`](Self::take_arrived).
    pub(in crate::proactor) fn why_missing(&mut self, source: Source) -> Refusal {
        if self.is_left_in_queue(source) { self.outbox.full() } else { self.sources.stale() }
    }

    pub(in crate::proactor) fn serve(&mut self, request: Request) {
        match request {
            Request::Attach(source, handle) => {
                let index = source.index();
                let Some(state) = self.state(source) else {
                    return;
                };
                debug_assert!(state.has(RESERVED));
                if self.kernel.calls().accepts(&handle) {
                    self.stats.hidden -= 1;
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
                // The operation may have ended meanwhile.
                let _ = self.move_deadline(ticket, due_ns);
            }
            Request::UnusedTicket(ticket) => self.ops.vacate_reserved(ticket),
            Request::UnusedSource(source) => self.vacate_source(source.index()),
            Request::Abort(source) => {
                self.abort_source(source);
            }
            Request::Post(token, value) => self.post(token, value),
        }
    }

    /// Starts what another thread has submitted; a refusal becomes the operation's completion.
    fn submit_reserved(&mut self, ticket: Ticket, mut op: Op) {
        debug_assert!(self.ops[ticket.index()].reserved);
        let is_cancelled = self.ops[ticket.index()].count != 0;
        if is_cancelled && op.code.family() == Family::Write {
            // The cancel was accepted, so the write must make a completion.
            op.flags &= !crate::op::QUIET;
        }
        match self.submit_in(ticket, op) {
            Err(Refused { value: op, reason }) => self.refuse_reserved(ticket, op, reason),
            Ok(()) if is_cancelled => {
                self.cancel_ticket(ticket);
            }
            Ok(()) => {}
        }
    }

    /// Makes a completion of the refusal of another thread's operation.
    pub(in crate::proactor) fn refuse_reserved(
        &mut self,
        ticket: Ticket,
        mut op: Op,
        reason: Refusal,
    ) {
        let kind = match reason {
            Refusal::Stale => ErrorKind::Aborted,
            Refusal::Closed => ErrorKind::Closed,
            Refusal::Forked => ErrorKind::Forked,
            Refusal::Os(errno) => ErrorKind::Os(errno),
            Refusal::Full { .. } => ErrorKind::Os(libc::ENOBUFS),
            Refusal::EmptyBuffer
            | Refusal::BadCount
            | Refusal::TooLong
            | Refusal::NoAddress
            | Refusal::NoProcessor(_) => ErrorKind::Os(libc::EINVAL),
            // (Only other threads get `Deadlock`.)
            Refusal::Unsupported
            | Refusal::NoDescriptor
            | Refusal::NoFiles
            | Refusal::Busy
            | Refusal::Deadlock => ErrorKind::Os(libc::EOPNOTSUPP),
        };
        self.stats.submitted[op.code as usize] += 1;
        let (code, source, token) = (op.code, op.source, op.token);
        let error = Error::new(kind, 0, op.buf.take());
        // No completion returns a job's closure, so the driver drops it.
        discard(op);
        self.outbox.push(code, source, ticket, token, Err(error));
    }

    /// Ends a request that was still queued when the watcher closed. A message is delivered all the
    /// same.
    pub(in crate::proactor) fn refuse_closed(&mut self, request: Request) {
        match request {
            Request::Submit(ticket, op) => {
                self.ops.vacate_reserved(ticket);
                self.refuse_reserved(ticket, op, Refusal::Closed);
            }
            Request::Post(token, value) => self.post(token, value),
            // The handle closes its descriptor.
            Request::Attach(..)
            | Request::Cancel(_)
            | Request::Reschedule(..)
            | Request::Abort(_) => {}
            Request::UnusedSource(source) => self.vacate_source(source.index()),
            Request::UnusedTicket(ticket) => self.ops.vacate_reserved(ticket),
        }
    }

    pub(in crate::proactor) fn post(&mut self, token: u64, value: Option<Box<dyn Any + Send>>) {
        self.stats.messages += 1;
        let ticket = self.outbox.placeless_ticket();
        let done = Done::Message(Message(value));
        self.outbox.push(OpCode::Message, Source::NONE, ticket, token, Ok(done));
    }

    /// Publishes the existing sources to other threads, which may abort them from now on.
    pub(in crate::proactor) fn open_to_others(&mut self) {
        for index in self.sources.table.occupied() {
            let state = &self.sources[index];
            if !state.has(CONNECTING) {
                self.inbox.remote.opened(state.name(index));
            }
        }
    }

    /// Keeps ids ready for other threads. While threads wait and the tables are full, each turn
    /// tries again.
    pub(in crate::proactor) fn fill_reserve(&mut self) {
        let Proactor { inbox, sources, ops, stats, .. } = self;
        inbox.ids_wanted = inbox.remote.fill(
            || {
                let (index, generation) = sources.table.occupy()?;
                sources[index].open(-1, SourceKind::Unknown, RESERVED);
                stats.hidden += 1;
                Some(Source::from_parts(index, generation))
            },
            || {
                let (slot, generation) = ops.table.occupy()?;
                ops[slot].reserved = true;
                // A reserved operation is not cancelled: its `count` is 0.
                ops[slot].count = 0;
                Some(Ticket::from_parts(slot, generation))
            },
        );
        self.inbox.is_due |= self.inbox.ids_wanted;
    }
}
