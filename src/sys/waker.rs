//! What other threads end a wait with. Here: a descriptor that they make readable. A selector that
//! has an event of its own for it uses that.

use std::sync::Arc;

pub(crate) use crate::sys::wake_fd::WakeFd;

/// Ends the `select` that it was made for.
pub(crate) type Waker = Arc<dyn Signal>;

/// Ends a `select` from any thread.
pub trait Signal: Send + Sync {
    /// Ends the `select` at hand, or else the next.
    fn signal(&self);
}
