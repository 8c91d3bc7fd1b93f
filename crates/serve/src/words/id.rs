//! Names of connections.

use std::fmt;

/// The id of a connection. It goes stale when the connection has ended, and never names another
/// one.
///
/// The [number](Id::number) of an id is unique over all loops of a server, and increases from one
/// connection of a loop to the next. Ids are ordered by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub(crate) number: u64,
    pub(crate) index: u32,
}

/// The bits of a number that name the loop.
pub(crate) const LOOP_BITS: u32 = 16;

impl Id {
    /// The number of this connection, from 65,536 on.
    pub fn number(self) -> u64 {
        self.number
    }

    /// The loop that serves the connection, or the thread in an [`IoMode`](crate::modes::IoMode)
    /// with threads: 0 to 65,535.
    pub fn loop_index(self) -> usize {
        (self.number & ((1 << LOOP_BITS) - 1)) as usize
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.number)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
