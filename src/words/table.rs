//! Tables that a driver keeps its operations and sources in.
//!
//! A [`Table`] gives out slots with a generation: the name of a slot that was vacated stays stale
//! for ever. It grows by chunks of 256 entries, so that entries never move and memory is
//! never doubled.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// The index that names no slot.
pub const NIL: u32 = u32::MAX;

/// The generation of a slot that was never occupied.
pub const VACANT: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// The most slots of a table: completions use the highest bits of a ticket's index, and the last
/// two numbers below them name no slot.
pub(crate) const MOST: u32 = (1 << 24) - 2;

const CHUNK_BITS: u32 = if cfg!(miri) { 4 } else { 8 };
const CHUNK: usize = 1 << CHUNK_BITS;

/// An entry of a [`Table`]: it stores its own generation, which the table maintains.
pub trait Entry: Default {
    /// The generation of the slot; odd while it is occupied, [`VACANT`] at first.
    fn generation(&self) -> NonZeroU32;
    /// Sets the generation.
    fn set_generation(&mut self, generation: NonZeroU32);
    /// The next vacant slot; used by the table while the slot is vacant.
    fn next_vacant(&self) -> u32;
    /// Sets the next vacant slot.
    fn set_next_vacant(&mut self, index: u32);
    /// Called when the entry is made, with the first generation of its table.
    fn begin(&mut self, first: NonZeroU32) {
        self.set_generation(first);
    }
}

/// The methods of an [`Entry`] that keeps its generation and its next vacant slot in these fields.
macro_rules! entry_in_fields {
    ($generation:ident, $($next:ident).+) => {
        #[inline(always)]
        fn generation(&self) -> std::num::NonZeroU32 {
            self.$generation
        }
        #[inline(always)]
        fn set_generation(&mut self, generation: std::num::NonZeroU32) {
            self.$generation = generation;
        }
        #[inline(always)]
        fn next_vacant(&self) -> u32 {
            self.$($next).+
        }
        #[inline(always)]
        fn set_next_vacant(&mut self, index: u32) {
            self.$($next).+ = index;
        }
    };
}

pub(crate) use entry_in_fields;

/// Slots for entries, named by index and generation.
///
/// An occupied slot has an odd generation, a vacant one an even, so that one comparison answers
/// whether a name is alive.
#[derive(Debug)]
pub struct Table<T> {
    chunks: Vec<Box<[T; CHUNK]>>,
    vacant: u32,
    len: u32,
    limit: u32,
    first: NonZeroU32,
}

/// How far apart tables begin: the golden ratio spreads them evenly, however many there are.
pub(crate) const GENERATION_STRIDE: u32 = 0x9e37_79b9;

/// A first generation for each table, far from those of other tables.
pub(crate) fn another_start() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(GENERATION_STRIDE)
}

#[cfg(test)]
thread_local! {
    /// How often this thread scanned a table, for tests of code that must not.
    pub(crate) static LOOKED_THROUGH: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl<T: Entry> Table<T> {
    /// An empty table for at most `limit` entries (1 to 2^24 - 2).
    pub fn new(limit: u32) -> Table<T> {
        Table::starting_at(limit, 0)
    }

    /// As [`new`](Table::new), with generations that begin at about `start`: the names of tables
    /// that begin far apart are stale in each other for very long.
    pub fn starting_at(limit: u32, start: u32) -> Table<T> {
        let first = NonZeroU32::new(start & !1).unwrap_or(VACANT);
        let limit = limit.clamp(1, MOST);
        let directory = (limit as usize).div_ceil(CHUNK);
        Table { chunks: Vec::with_capacity(directory), vacant: NIL, len: 0, limit, first }
    }

    /// How many slots are occupied.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no slot is occupied.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many slots there may be.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Occupies a vacant slot: its index and generation. `None` when the limit is reached. The
    /// entry is as its last user (or `Default`) left it.
    #[inline]
    pub fn occupy(&mut self) -> Option<(u32, NonZeroU32)> {
        self.occupy_entry().map(|(index, generation, _)| (index, generation))
    }

    /// As [`occupy`](Table::occupy), with the entry.
    #[inline(always)]
    pub fn occupy_entry(&mut self) -> Option<(u32, NonZeroU32, &mut T)> {
        if self.len >= self.limit {
            return None;
        }
        if self.vacant == NIL {
            self.grow();
        }
        let index = self.vacant;
        let entry = &mut self.chunks[(index >> CHUNK_BITS) as usize][index as usize % CHUNK];
        self.vacant = entry.next_vacant();
        let generation = entry.generation() | 1;
        entry.set_generation(generation);
        self.len += 1;
        Some((index, generation, entry))
    }

    /// Changes the limit of slots (1 to 2^24 - 2). Occupied slots beyond it stay.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.clamp(1, MOST);
    }

    /// Vacates the occupied slot `index`: its names go stale.
    #[inline(always)]
    pub fn vacate(&mut self, index: u32) {
        let (vacant, first) = (self.vacant, self.first);
        let entry = &mut self[index];
        debug_assert!(entry.generation().get() & 1 == 1, "vacated twice");
        let next = entry.generation().checked_add(1).unwrap_or(VACANT);
        entry.set_generation(next);
        // A slot that has had all generations is not used again: its first names would be alive.
        if next != first {
            entry.set_next_vacant(vacant);
            self.vacant = index;
        }
        self.len -= 1;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let start = self.chunks.len() as u32 * CHUNK as u32;
        let entries: Vec<T> = (0..CHUNK).map(|_| T::default()).collect();
        let mut chunk: Box<[T; CHUNK]> =
            entries.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("a whole chunk"));
        // All slots of the chunk become vacant: the limit counts occupied ones, and may rise.
        let end = (start + CHUNK as u32).min(MOST);
        for index in (start..end).rev() {
            let entry = &mut chunk[index as usize % CHUNK];
            entry.begin(self.first);
            entry.set_next_vacant(self.vacant);
            self.vacant = index;
        }
        self.chunks.push(chunk);
    }

    /// The entry that `index` and `generation` name, if the slot is still theirs.
    #[inline(always)]
    pub fn find(&mut self, index: u32, generation: NonZeroU32) -> Option<&mut T> {
        self.find_key(index, generation.get())
    }

    /// As [`find`](Table::find), with a generation that may be 0, which no entry has.
    #[inline(always)]
    pub fn find_key(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((index >> CHUNK_BITS) as usize)?;
        let entry = &mut chunk[index as usize % CHUNK];
        // The generation is made odd, so that an invented name finds no vacant slot.
        if entry.generation().get() == generation | 1 { Some(entry) } else { None }
    }

    /// As [`find`](Table::find), to look at.
    #[inline]
    pub fn look(&self, index: u32, generation: NonZeroU32) -> Option<&T> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?;
        let entry = &chunk[index as usize % CHUNK];
        if entry.generation() == generation | 1 { Some(entry) } else { None }
    }

    /// The entry at `index`, occupied or not.
    pub fn peek(&self, index: u32) -> Option<&T> {
        self.chunks.get((index >> CHUNK_BITS) as usize).map(|chunk| &chunk[index as usize % CHUNK])
    }

    /// The indices of the occupied slots.
    pub fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        #[cfg(test)]
        LOOKED_THROUGH.set(LOOKED_THROUGH.get() + 1);
        let all = self.chunks.iter().flat_map(|chunk| chunk.iter()).zip(0u32..);
        all.filter(|(entry, _)| entry.generation().get() & 1 == 1).map(|(_, index)| index)
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        &self.chunks[(index >> CHUNK_BITS) as usize][index as usize % CHUNK]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> CHUNK_BITS) as usize][index as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use crate::op::operation::Operation;
    use proptest::prelude::*;

    #[test]
    fn names_go_stale_and_the_limit_holds() {
        let mut table = Table::<Operation>::new(3);
        let names: Vec<_> = (0..3).map(|_| table.occupy().unwrap()).collect();
        assert!(table.occupy().is_none());
        let (index, generation) = names[1];
        table.vacate(index);
        assert!(table.find(index, generation).is_none());
        let (again, newer) = table.occupy().unwrap();
        assert_eq!(again, index);
        assert!(newer > generation);
        assert!(table.find(index, generation).is_none());
        assert!(table.find(NIL, generation).is_none());
    }

    #[test]
    fn a_limit_that_was_raised_for_a_moment_holds_again() {
        let mut table = Table::<Operation>::new(2);
        let names: Vec<_> = (0..2).map(|_| table.occupy().unwrap()).collect();
        assert!(table.occupy().is_none());
        table.set_limit(u32::MAX);
        let more = table.occupy().unwrap();
        table.set_limit(2);
        table.vacate(names[0].0);
        assert!(table.occupy().is_none(), "two of two are occupied");
        table.vacate(more.0);
        assert!(table.occupy().is_some());
        assert!(table.occupy().is_none());
    }

    /// Slots between an old limit and the end of its chunk were lost when the limit rose.
    #[test]
    fn a_raised_limit_is_reached() {
        let mut table = Table::<Operation>::new(2);
        assert!(table.occupy().is_some() && table.occupy().is_some());
        table.set_limit(4);
        assert!(table.occupy().is_some() && table.occupy().is_some());
        assert!(table.occupy().is_none(), "four of four are occupied");
        assert_eq!(table.chunks.len(), 1);
    }

    #[test]
    fn entries_do_not_move_when_the_table_grows() {
        let mut table = Table::<Operation>::new(10_000);
        let (first, _) = table.occupy().unwrap();
        let at: *const Operation = &table[first];
        for _ in 0..5_000 {
            table.occupy().unwrap();
        }
        assert_eq!(at, &raw const table[first]);
    }

    /// A generation wrapped after 2^31 uses of its slot, and then every old name was alive again.
    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        for start in [0, 4, GENERATION_STRIDE, u32::MAX] {
            let mut table = Table::<Operation>::starting_at(1, start);
            let (index, oldest) = table.occupy().unwrap();
            // As if all other generations had been used: those up to the highest, then those from
            // the lowest on.
            let last = NonZeroU32::new((oldest.get() - 3) | 1).unwrap_or(NonZeroU32::MAX);
            let last = if oldest.get() <= 3 { NonZeroU32::MAX } else { last };
            table[index].set_generation(last);
            table.vacate(index);
            assert!(table.find(index, oldest).is_none());
            let (another, generation) = table.occupy().expect("the limit counts occupied slots");
            assert_ne!(another, index, "from {start}");
            assert!(table.find(another, generation).is_some());
            for stale in [oldest, last] {
                assert!(table.find(index, stale).is_none(), "from {start}: {stale}");
                assert!(table.look(index, stale).is_none(), "from {start}: {stale}");
            }
            assert_eq!(table.occupied().collect::<Vec<_>>(), [another]);
        }
    }

    const STEPS: usize = if cfg!(miri) { 50 } else { 600 };

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec(any::<(bool, u8)>(), 1..STEPS)) {
            let mut table = Table::<Operation>::new(300);
            let mut model: HashMap<(u32, NonZeroU32), u64> = HashMap::new();
            let mut live = Vec::new();
            let mut dead = Vec::new();
            for (i, (grow, pick)) in steps.into_iter().enumerate() {
                if grow || live.is_empty() {
                    if let Some(name) = table.occupy() {
                        table[name.0].token = i as u64;
                        prop_assert!(model.insert(name, i as u64).is_none(), "a name twice");
                        live.push(name);
                    } else {
                        prop_assert_eq!(live.len(), 300);
                    }
                } else {
                    let name = live.swap_remove(pick as usize % live.len());
                    table.vacate(name.0);
                    model.remove(&name);
                    dead.push(name);
                }
                prop_assert_eq!(table.len() as usize, model.len());
            }
            for (name, token) in &model {
                prop_assert_eq!(table.find(name.0, name.1).map(|o| o.token), Some(*token));
            }
            for name in dead {
                prop_assert!(table.find(name.0, name.1).is_none());
            }
            let mut all: Vec<u32> = table.occupied().collect();
            all.sort_unstable();
            let mut expected: Vec<u32> = model.keys().map(|name| name.0).collect();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }
}
