//! Input that the program keeps, in memory of the heap, or has not read from a stream.
//!
//! In each turn the program gets at most half of the free swap buffers as leases, for nothing. The
//! data after those is copied, and the copy counts for its connection until it is dropped. So a
//! program that keeps every lease leaves some for the reads of other connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass::Buf;

use crate::memory::Budget;

/// The bytes of one connection that the program keeps.
#[derive(Clone, Default)]
pub(crate) struct KeptInput(Arc<AtomicUsize>);

impl KeptInput {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, budget: &Budget, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        budget.change(0, bytes as u32);
    }

    pub(crate) fn remove(&self, budget: &Budget, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
        budget.change(bytes as u32, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// A copy of data, which counts until it is dropped.
    pub(crate) fn copy(&self, budget: &Budget, data: &Buf) -> Buf {
        let bytes = data.as_slice().to_vec();
        self.add(budget, bytes.len());
        Buf::from_owner(Copied { bytes, kept: self.clone(), budget: budget.clone() })
    }
}

struct Copied {
    bytes: Vec<u8>,
    kept: KeptInput,
    budget: Budget,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.kept.remove(&self.budget, self.bytes.len());
    }
}
