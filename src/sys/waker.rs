//! The means by which other threads end a wait: a descriptor that they make readable. A selector
//! that has an event of its own for this uses that event.

use std::sync::Arc;

pub(crate) use crate::sys::wake_fd::WakeFd;

/// Ends the wait that it was made for.
pub(crate) type SharedWake = Arc<dyn Wake>;

/// Wakes a loop: how a driver's own wake descriptor is reached from other threads. A function is
/// one, too.
pub trait Wake: Send + Sync {
    /// Makes the loop's wait return: the one at hand, or else the next.
    fn wake(&self);
}

impl<F: Fn() + Send + Sync> Wake for F {
    fn wake(&self) {
        self();
    }
}
