//! Leases of what a loop has few of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many leases at the same time, and no more.
pub(super) struct StreamLeases {
    leased: Arc<AtomicUsize>,
    most: usize,
}

/// One of them. It goes back when it is dropped, on whatever thread.
pub(super) struct StreamLease(Arc<AtomicUsize>);

impl StreamLeases {
    pub(super) fn new(most: usize) -> StreamLeases {
        StreamLeases { leased: Arc::default(), most }
    }

    /// How many are out.
    pub(super) fn leased(&self) -> usize {
        // What a lease stands for is owned by its holder: the number alone is shared.
        self.leased.load(Ordering::Relaxed)
    }

    /// One more, if there may be one.
    pub(super) fn take(&mut self) -> Option<StreamLease> {
        if self.leased() >= self.most {
            return None;
        }
        self.leased.fetch_add(1, Ordering::Relaxed);
        Some(StreamLease(self.leased.clone()))
    }

    /// How many of a store with so many spare things may stay, beside those that are out.
    pub(super) fn spare(&self) -> usize {
        self.most.saturating_sub(self.leased())
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
