//! The state of an operation in flight.

use std::num::NonZeroU32;

use crate::memory::buf::Buf;
use crate::op::OpCode;
use crate::words::address::Address;
use crate::words::error::ErrorKind;
use crate::words::source::Source;
use crate::words::table::{Entry, NIL, VACANT, entry_in_fields};

/// The state of an operation in flight.
#[derive(Debug)]
pub struct Operation {
    generation: NonZeroU32,
    /// The next operation in its queue; while vacant, the next vacant place.
    pub next: u32,
    /// The operation before it in its queue.
    pub previous: u32,
    /// The index of its source, or [`NIL`].
    pub source: u32,
    /// The user's number.
    pub token: u64,
    /// Its buffer.
    pub buf: Buf,
    /// An address, or descriptors to pass.
    pub address: Option<Address>,
    /// Where in a file it starts.
    pub offset: u64,
    /// The file that is sent.
    pub file: Source,
    /// Bytes moved so far.
    pub moved: u32,
    /// An argument of the code: bytes wanted, conditions polled for.
    pub count: u32,
    /// The code of the operation.
    pub code: OpCode,
    /// Whether it stays in flight after a completion.
    pub multishot: bool,
    /// Whether it makes no completion if it succeeds.
    pub quiet: bool,
    /// The slot is kept for another thread and holds no operation yet.
    pub reserved: bool,
    /// Whether the kernel has it, or it is to end when the kernel answers.
    pub in_flight: InFlight,
}

/// How an operation stands to a kernel that completes operations by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// The kernel does not have it.
    #[default]
    No,
    /// The kernel has it.
    Started,
    /// It ends cancelled with the kernel's next answer to its queue.
    Cancelled,
    /// It ends by its deadline with that answer.
    Deadline,
    /// It ends because its source was aborted.
    Aborted,
    /// It ends because the driver was closed.
    Closed,
    /// The operation ends because its source overflowed with queued writes.
    Overflow,
}

impl InFlight {
    /// How it is to end, if it was told to.
    #[inline]
    pub fn ending(self) -> Option<ErrorKind> {
        match self {
            InFlight::No | InFlight::Started => None,
            InFlight::Cancelled => Some(ErrorKind::Cancelled),
            InFlight::Deadline => Some(ErrorKind::Deadline),
            InFlight::Aborted => Some(ErrorKind::Aborted),
            InFlight::Closed => Some(ErrorKind::Closed),
            InFlight::Overflow => Some(ErrorKind::Overflow),
        }
    }

    /// The mark for this end.
    pub fn of(kind: ErrorKind) -> InFlight {
        match kind {
            ErrorKind::Deadline => InFlight::Deadline,
            ErrorKind::Aborted => InFlight::Aborted,
            ErrorKind::Closed => InFlight::Closed,
            ErrorKind::Overflow => InFlight::Overflow,
            _ => InFlight::Cancelled,
        }
    }
}

impl Operation {
    /// Fills a slot whose buffer and address are empty.
    #[inline(always)]
    pub(crate) fn begin(&mut self, code: OpCode, source: u32, token: u64) {
        self.source = source;
        self.token = token;
        self.moved = 0;
        self.count = 0;
        self.code = code;
        self.multishot = false;
        self.quiet = false;
        self.in_flight = InFlight::No;
    }
}

const _: () = assert!(size_of::<Operation>() <= 88);

impl Default for Operation {
    fn default() -> Operation {
        Operation {
            generation: VACANT,
            next: NIL,
            previous: NIL,
            source: NIL,
            token: 0,
            buf: Buf::default(),
            address: None,
            offset: 0,
            file: Source::NONE,
            moved: 0,
            count: 0,
            code: OpCode::Nop,
            multishot: false,
            quiet: false,
            reserved: false,
            in_flight: InFlight::No,
        }
    }
}

impl Entry for Operation {
    entry_in_fields!(generation, next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_mark() {
        for kind in [
            ErrorKind::Cancelled,
            ErrorKind::Deadline,
            ErrorKind::Aborted,
            ErrorKind::Closed,
            ErrorKind::Overflow,
        ] {
            assert_eq!(InFlight::of(kind).ending(), Some(kind));
        }
        assert_eq!(InFlight::No.ending(), None);
        assert_eq!(InFlight::Started.ending(), None);
    }
}
