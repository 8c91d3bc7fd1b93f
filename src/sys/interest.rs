//! Conditions of a descriptor: those to wait for, how often to report them, and those that came.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of readiness conditions. The values are poll(2)'s on Linux; other systems translate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ready(u16);

impl Ready {
    /// Nothing.
    pub const NONE: Ready = Ready(0);
    /// Data, a connection to accept, or the end of file can be read.
    pub const READABLE: Ready = Ready(0x001);
    /// Urgent (out-of-band) data, or an exceptional condition.
    pub const PRIORITY: Ready = Ready(0x002);
    /// Something can be written without blocking.
    pub const WRITABLE: Ready = Ready(0x004);
    /// An error is pending on the descriptor.
    pub const ERROR: Ready = Ready(0x008);
    /// Both directions are shut, or the other end of a pipe is gone.
    pub const HANGUP: Ready = Ready(0x010);
    /// The peer has shut its writing side.
    pub const READ_CLOSED: Ready = Ready(0x2000);

    /// All conditions.
    pub(crate) const ALL: Ready = Ready(0x201f);

    /// The set with poll(2)'s bits.
    #[inline]
    pub const fn from_bits(bits: u16) -> Ready {
        Ready(bits & Ready::ALL.0)
    }

    /// poll(2)'s bits of the set.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether every condition of `other` is in the set.
    #[inline]
    pub const fn contains(self, other: Ready) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any condition of `other` is in the set.
    #[inline]
    pub const fn intersects(self, other: Ready) -> bool {
        self.0 & other.0 != 0
    }

    /// What both sets contain.
    #[inline]
    pub const fn intersection(self, other: Ready) -> Ready {
        Ready(self.0 & other.0)
    }

    /// The conditions in this set that are not in the other one.
    #[inline]
    pub const fn difference(self, other: Ready) -> Ready {
        Ready(self.0 & !other.0)
    }

    /// Whether nothing is in the set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Conditions that poll(2) reports whether asked for or not.
    pub const ALWAYS: Ready = Ready(0x018);
    /// Conditions after which a read does not block.
    pub const READ_SIDE: Ready = Ready(0x201b);
    /// Conditions after which a write does not block.
    pub const WRITE_SIDE: Ready = Ready(0x01c);
    /// Conditions after which a short read does not prove that the buffer is empty.
    pub const UNSETTLED: Ready = Ready(0x201a);
}

impl BitOr for Ready {
    type Output = Ready;
    #[inline]
    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    #[inline]
    fn bitor_assign(&mut self, other: Ready) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Ready::READABLE, "READABLE"),
            (Ready::PRIORITY, "PRIORITY"),
            (Ready::WRITABLE, "WRITABLE"),
            (Ready::ERROR, "ERROR"),
            (Ready::HANGUP, "HANGUP"),
            (Ready::READ_CLOSED, "READ_CLOSED"),
        ];
        let mut set = f.debug_set();
        for (ready, name) in names {
            if self.contains(ready) {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

/// How often a registration of the [`Reactor`](crate::reactor::Reactor) reports readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In every wait for as long as the condition lasts.
    Level,
    /// Once each time the condition arises anew.
    Edge,
    /// One event; then the registration is disarmed until
    /// [`rearm`](crate::reactor::Reactor::rearm), which keeps the mode. Arming reports conditions
    /// that already hold. epoll's edge-triggered oneshot (`EPOLLET | EPOLLONESHOT`) behaves in the
    /// same way, so there is no mode of its own for it.
    Oneshot,
}
