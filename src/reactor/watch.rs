//! The operations and the items of the reactor: watches, readiness, wakes.

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::sys::descriptor;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::interest::{Mode, Ready};
use crate::words::source::Ticket;
use crate::words::table::{Entry, NIL, VACANT, entry_in_fields};
use crate::words::wake_state::WakeState;

/// The reactor's operation: a descriptor, the conditions to report, and how often.
#[derive(Debug)]
#[must_use = "a watch does nothing until it is submitted"]
pub struct Watch {
    pub(super) fd: OwnedFd,
    pub(super) interest: Ready,
    pub(super) mode: Mode,
    pub(super) token: u64,
}

impl Watch {
    /// Watches a descriptor that is given away: the last item of the watch gives it back.
    /// [`Mode::Level`], token 0.
    pub fn new(descriptor: impl Into<OwnedFd>, interest: Ready) -> Watch {
        Watch { fd: descriptor.into(), interest, mode: Mode::Level, token: 0 }
    }

    /// Watches a duplicate (with CLOEXEC) of a descriptor that the caller keeps. The caller may
    /// close its own at any time; the file stays open until the watch has ended.
    ///
    /// # Errors
    ///
    /// - `EMFILE`: out of descriptors for the duplicate.
    pub fn dup(descriptor: impl AsFd, interest: Ready) -> io::Result<Watch> {
        let duplicate = descriptor::duplicate(descriptor.as_fd())?;
        Ok(Watch::new(duplicate, interest))
    }

    /// Sets how often it reports.
    pub fn mode(mut self, mode: Mode) -> Watch {
        self.mode = mode;
        self
    }

    /// Sets the number that every item returns untouched.
    pub fn token(mut self, token: u64) -> Watch {
        self.token = token;
        self
    }

    /// Takes the descriptor back out of a refused watch.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// The reactor's item: the conditions that hold for a watched descriptor.
#[derive(Debug)]
pub struct Readiness {
    /// The ticket that `submit` gave.
    pub ticket: Ticket,
    /// The watch's token, untouched.
    pub token: u64,
    /// The conditions that hold; none in the last item of a watch.
    pub ready: Ready,
    /// The watch continues: more items may follow, for a oneshot after
    /// [`rearm`](crate::reactor::Reactor::rearm). A [cancelled](crate::Submit::cancel) watch ends
    /// with exactly one item with `more` false.
    pub more: bool,
    /// In the last item, the watch's descriptor. Dropped with the item, it closes.
    pub fd: Option<OwnedFd>,
}

const _: () = assert!(size_of::<Readiness>() <= 24);

/// A slot in the table of watches.
pub(super) struct Registration {
    generation: NonZeroU32,
    next: u32,
    pub(super) token: u64,
    /// Present while the slot is occupied.
    pub(super) fd: Option<OwnedFd>,
    pub(super) mode: Mode,
    pub(super) interest: Ready,
    /// Whether the watch may report: false for a oneshot between its item and its next arming.
    pub(super) armed: bool,
}

const _: () = assert!(size_of::<Registration>() <= 24);

impl Default for Registration {
    fn default() -> Registration {
        let (mode, interest) = (Mode::Level, Ready::NONE);
        let (generation, next, armed) = (VACANT, NIL, false);
        Registration { generation, next, token: 0, fd: None, mode, interest, armed }
    }
}

impl Entry for Registration {
    entry_in_fields!(generation, next);
}

/// Ends a reactor's wait from any thread; the wait then answers, if need be with no items.
///
/// A wake costs a system call only when the reactor sleeps, and a burst of them costs one. One that
/// comes while no wait runs ends the next wait at once.
#[derive(Clone)]
pub struct Waker(pub(super) Arc<WakeState>);

impl Waker {
    /// Ends the wait.
    pub fn wake(&self) {
        self.0.notify();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
