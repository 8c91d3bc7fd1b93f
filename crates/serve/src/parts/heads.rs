//! The places of connections, as other threads see them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::words::id::Id;
use crate::words::refused::Refusal;

/// Places are given out in chunks of this many.
pub(crate) const CHUNK: usize = 256;

/// The part of a place that other threads see.
#[derive(Default)]
pub(crate) struct Head {
    /// The number of the connection that has the place; 0 if it is vacant.
    pub(crate) number: AtomicU64,
    /// Bytes that count against the connection's cap: those that wait in the loop, and those that
    /// other threads have queued. Each party subtracts what it has added. A charge can outlive its
    /// connection. So the next one gets the place only when nothing is charged.
    pub(crate) charged: AtomicU32,
    /// When it was opened, in tenths of a second since the first connection. (It fills the place up
    /// to a multiple of 8 bytes.)
    pub(crate) opened: AtomicU32,
}

/// The places as other threads see them.
#[derive(Clone, Default)]
pub(crate) struct Heads(pub(crate) Arc<RwLock<Vec<Arc<[Head; CHUNK]>>>>);

impl Heads {
    /// Charges `bytes` to a connection, unless its charge would exceed `cap`. The lock is held over
    /// both steps: the table waits for it before another connection gets the place.
    pub(crate) fn charge(&self, id: Id, bytes: u32, cap: u32) -> Result<(), Refusal> {
        self.with(id.index, |head| {
            if head.number.load(Ordering::Acquire) != id.number {
                return Err(Refusal::Stale);
            }
            // One atomic step, because the loop would refuse its own write while a charge that does
            // not fit is in the counter.
            let charge = |charged: u32| charged.checked_add(bytes).filter(|sum| *sum <= cap);
            let charged = head.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
            charged.map(|_| ()).map_err(|_| Refusal::Cap)
        })
        .unwrap_or(Err(Refusal::Stale))
    }

    /// How much is charged to a connection, and to its cap.
    pub(crate) fn charged(&self, id: Id) -> usize {
        self.with(id.index, |head| head.charged.load(Ordering::Relaxed)).unwrap_or(0) as usize
    }

    /// How much is charged to a connection; `None` if the id is stale.
    pub(crate) fn charged_to(&self, id: Id) -> Option<usize> {
        let charged = |head: &Head| {
            let lives = head.number.load(Ordering::Acquire) == id.number;
            lives.then(|| head.charged.load(Ordering::Relaxed) as usize)
        };
        self.with(id.index, charged).flatten()
    }

    /// Takes a charge away again.
    pub(crate) fn discharge(&self, id: Id, bytes: u32) {
        self.with(id.index, |head| head.charged.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Whether the id is not stale yet.
    pub(crate) fn contains(&self, id: Id) -> bool {
        let lives = |head: &Head| head.number.load(Ordering::Acquire) == id.number;
        self.with(id.index, lives).unwrap_or(false)
    }

    pub(crate) fn with<T>(&self, index: u32, look: impl FnOnce(&Head) -> T) -> Option<T> {
        let chunks = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let chunk = chunks.get(index as usize / CHUNK)?;
        Some(look(&chunk[index as usize % CHUNK]))
    }
}
