//! Which sources other threads may abort. An abort of any other name, or of a source with a queued
//! abort, is not queued: so queued aborts never outnumber the sources (C9).
//!
//! The entry of a slot holds the generation of its last source. Only the loop gives out slots.
//! Other threads change an entry by compare-exchange with the same generation, so a late change has
//! no effect.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::words::source::Source;

/// The name is reserved for other threads: there is no source to abort yet.
const RESERVED: u64 = 1;
/// A source may exist.
const OPEN: u64 = 2;
/// An abort is queued.
const ABORTING: u64 = 3;

/// The number of entries in the first chunk. Each next chunk has twice as many.
const FIRST: u32 = 256;
/// Enough for 2^24 slots, the most that a table has.
const CHUNKS: usize = 17;

/// The entries, indexed by the slot of the source.
#[derive(Default)]
pub(super) struct Names {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

impl Names {
    /// The chunk of a slot, and the index there.
    fn find(index: u32) -> Option<(usize, usize)> {
        let at = index.checked_add(FIRST)?;
        let chunk = (at.ilog2() - FIRST.ilog2()) as usize;
        (chunk < CHUNKS).then(|| (chunk, (at - (FIRST << chunk)) as usize))
    }

    fn entry(&self, source: Source) -> Option<&AtomicU64> {
        let (chunk, at) = Names::find(source.index())?;
        Some(&self.chunks[chunk].get()?[at])
    }

    fn word(source: Source, state: u64) -> u64 {
        u64::from(source.generation().get()) << 32 | state
    }

    /// Sets the entry of a slot that the loop gives out.
    fn give(&self, source: Source, state: u64) {
        let Some((chunk, at)) = Names::find(source.index()) else { return };
        let entries = self.chunks[chunk].get_or_init(|| {
            let count = (FIRST as usize) << chunk;
            (0..count).map(|_| AtomicU64::new(0)).collect()
        });
        entries[at].store(Names::word(source, state), Ordering::Relaxed);
    }

    /// Changes the entry from state `from` to `to`. False if it has another state.
    fn change(&self, source: Source, from: u64, to: u64) -> bool {
        let Some(entry) = self.entry(source) else { return false };
        let (from, to) = (Names::word(source, from), Names::word(source, to));
        entry.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The loop has opened this source. (A thread that learns the name has synchronized with this
    /// store, so the store needs no ordering.)
    pub(super) fn open(&self, source: Source) {
        self.give(source, OPEN);
    }

    /// The loop reserves this name for other threads.
    pub(super) fn reserve(&self, source: Source) {
        self.give(source, RESERVED);
    }

    /// Another thread has attached a handle under a reserved name.
    pub(super) fn attach(&self, source: Source) {
        self.change(source, RESERVED, OPEN);
    }

    /// Whether to queue an abort of this source.
    pub(super) fn abort(&self, source: Source) -> bool {
        self.change(source, OPEN, ABORTING)
    }

    /// The loop has taken the abort.
    pub(super) fn taken(&self, source: Source) {
        self.change(source, ABORTING, OPEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn name(index: u32, generation: u32) -> Source {
        Source::from_parts(index, NonZeroU32::new(generation).unwrap())
    }

    #[test]
    fn every_place_has_an_entry_of_its_own() {
        let mut before = None;
        for index in (0..5000).chain((1 << 24) - 5000..1 << 24) {
            let (chunk, at) = Names::find(index).unwrap();
            assert!(at < (FIRST as usize) << chunk, "{index}");
            let next = before.map(|(last, chunk, at)| (last + 1, chunk, at + 1));
            if next.is_some_and(|(expected, ..)| expected == index) {
                let (_, same, behind) = next.unwrap();
                assert!((chunk, at) == (same, behind) || (chunk, at) == (same + 1, 0), "{index}");
            }
            before = Some((index, chunk, at));
        }
        assert_eq!(Names::find(u32::MAX), None);
        assert_eq!(Names::find(Source::NONE.index()), None);
    }

    #[test]
    fn a_free_is_queued_once_at_a_time() {
        let names = Names::default();
        let (first, second) = (name(7, 9), name(7, 11));
        assert!(!names.abort(first), "never given out");
        names.open(first);
        assert!(!names.abort(second) && !names.abort(name(8, 9)) && !names.abort(Source::NONE));
        assert!(names.abort(first));
        assert!(!names.abort(first), "it is queued");
        names.taken(first);
        assert!(names.abort(first));
        // The slot has a new source, and the abort of the first is still queued.
        names.open(second);
        assert!(!names.abort(first));
        assert!(names.abort(second));
        names.taken(first);
        assert!(!names.abort(second), "the queued abort is of another source");
    }

    #[test]
    fn a_name_in_reserve_cannot_be_freed() {
        let names = Names::default();
        let (first, second) = (name(3, 5), name(3, 7));
        names.reserve(first);
        assert!(!names.abort(first));
        names.attach(first);
        assert!(names.abort(first));
        names.reserve(second);
        names.attach(first);
        assert!(!names.abort(first) && !names.abort(second), "a late change has no effect");
    }
}
