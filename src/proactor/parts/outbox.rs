//! What a driver hands to its program: completions that wait for delivery, and the last refusal.

use std::num::NonZeroU32;

use crate::completion::batch::Batch;
use crate::completion::{Completion, Done};
use crate::memory::buf::Buf;
use crate::op::OpCode;
use crate::words::error::{Error, Limit, Refusal};
use crate::words::source::{ENDED, Source, Ticket};

/// The index in the tickets of operations that ended at once.
const PLACELESS: u32 = ENDED;

/// The completions of a driver that wait for delivery.
pub(in crate::proactor) struct Outbox {
    pub(in crate::proactor) batch: Batch,
    /// The number of accepted connections that need slots for their sources: those in the batch,
    /// and those delivered last.
    pub(in crate::proactor) accepted: usize,
    /// How many of them were delivered last.
    pub(in crate::proactor) delivered_accepts: usize,
    /// The generation of the last ticket of an operation that ended at once. It is odd.
    placeless: NonZeroU32,
    /// The reason of the last refused read or write, and its buffer. They stand here so that the
    /// answer of the submission fits into one register.
    pub(in crate::proactor) refusal: (Refusal, Buf),
}

impl Outbox {
    pub(in crate::proactor) fn new(operations: u32) -> Outbox {
        Outbox {
            batch: Batch::new(operations),
            accepted: 0,
            delivered_accepts: 0,
            placeless: NonZeroU32::MIN,
            refusal: (Refusal::Closed, Buf::NONE),
        }
    }

    /// Adds the last completion of an operation.
    #[inline(always)]
    pub(in crate::proactor) fn push(
        &mut self,
        code: OpCode,
        source: Source,
        ticket: Ticket,
        token: u64,
        result: Result<Done, Error>,
    ) {
        self.batch.push(Completion::new(code, source, ticket, token, result));
    }

    /// The ticket of an operation that has ended at once: it needs no slot.
    #[inline(always)]
    pub(in crate::proactor) fn placeless_ticket(&mut self) -> Ticket {
        let next = self.placeless.get().wrapping_add(2);
        self.placeless = NonZeroU32::new(next | 1).expect("odd");
        self.last_placeless_ticket()
    }

    /// What [`placeless_ticket`](Self::placeless_ticket) has answered last.
    #[inline(always)]
    pub(in crate::proactor) fn last_placeless_ticket(&self) -> Ticket {
        Ticket::from_parts(PLACELESS, self.placeless)
    }

    /// Forgets the connections delivered last: the program has attached them by now, or never will.
    pub(in crate::proactor) fn forget_delivered(&mut self) {
        self.accepted -= std::mem::take(&mut self.delivered_accepts);
    }

    #[cold]
    pub(in crate::proactor) fn full(&self) -> Refusal {
        Refusal::Full { limit: Limit::Completions, count: self.batch.limit() }
    }
}
