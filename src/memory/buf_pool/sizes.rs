//! The buffers of one kind that a pool keeps, by their size, and their counts.

use std::ops::Add;

use super::BLOCK;
use crate::memory::aligned::AlignedBuf;

/// What a [`BufPool`](super::BufPool), or one of its size classes, has done.
///
/// Since the beginning `given - freed - kept` is how often a kept buffer was taken again, and so is
/// `taken - allocated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolCounters {
    /// Buffers that the program has taken.
    pub taken: u64,
    /// Those of them that were allocated, because no buffer of their class was kept.
    pub allocated: u64,
    /// Buffers that were given back, of whichever origin.
    pub given: u64,
    /// Those of them that were freed: at the bound, for their size or alignment, or by a
    /// [trim](super::BufPool::trim).
    pub freed: u64,
    /// How many buffers are kept now.
    pub kept: u64,
    /// How many bytes these have.
    pub kept_bytes: usize,
}

impl PoolCounters {
    /// How many buffers have not come back: `taken - given`. Buffers of another origin that were
    /// given to the pool make it too low. The [report](super::BufPool::report) of a traced pool
    /// tells them apart.
    pub fn outstanding(&self) -> u64 {
        self.taken.saturating_sub(self.given)
    }
}

impl Add for PoolCounters {
    type Output = PoolCounters;
    fn add(self, other: PoolCounters) -> PoolCounters {
        PoolCounters {
            taken: self.taken + other.taken,
            allocated: self.allocated + other.allocated,
            given: self.given + other.given,
            freed: self.freed + other.freed,
            kept: self.kept + other.kept,
            kept_bytes: self.kept_bytes + other.kept_bytes,
        }
    }
}

/// A size class of a [`BufPool`](super::BufPool).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeClass {
    /// The size of its buffers, in bytes.
    pub size: usize,
    /// Whether they are aligned buffers, or else vectors.
    pub is_aligned: bool,
    /// What it has done. A buffer that has grown is taken from one class, and given to another.
    pub counters: PoolCounters,
}

/// Memory that a pool hands out.
pub(super) trait PoolMemory {
    /// The address at which the memory starts.
    fn start(&self) -> usize;
    /// The capacity in bytes.
    fn bytes(&self) -> usize;
    /// Whether the pool can hand it out.
    fn is_usable(&self) -> bool;
    /// Empties it.
    fn clear(&mut self);
}

impl PoolMemory for Vec<u8> {
    fn start(&self) -> usize {
        self.as_ptr().addr()
    }
    fn bytes(&self) -> usize {
        self.capacity()
    }
    fn is_usable(&self) -> bool {
        true
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
}

impl PoolMemory for AlignedBuf {
    fn start(&self) -> usize {
        self.as_ptr().addr()
    }
    fn bytes(&self) -> usize {
        self.capacity()
    }
    fn is_usable(&self) -> bool {
        self.align() >= BLOCK && !self.is_registered()
    }
    fn clear(&mut self) {
        self.set_len(0);
    }
}

/// The size to allocate for `len` bytes: the least class that is enough, or `len` if none is.
pub(super) fn rounded(len: usize, least: usize, largest: usize) -> usize {
    if len <= largest { len.max(least).next_power_of_two() } else { len }
}

/// The kept buffers of one kind.
pub(super) struct Sizes<M> {
    /// The kept buffers of each class, the smallest class first.
    classes: Vec<FreeList<M>>,
    least: usize,
    /// The counts of buffers that no class has.
    other: PoolCounters,
    kept_bytes: usize,
}

struct FreeList<M> {
    /// The buffers of this class have at least so many bytes, and less than twice as many.
    size: usize,
    kept: Vec<M>,
    counters: PoolCounters,
}

impl<M: PoolMemory> Sizes<M> {
    /// Classes from `least` to `largest`, both powers of two; none if `least` is the larger one.
    pub(super) fn new(least: usize, largest: usize) -> Sizes<M> {
        let count = if least > largest { 0 } else { 1 + (largest / least).ilog2() };
        let counters = PoolCounters::default();
        let class = |index| FreeList { size: least << index, kept: Vec::new(), counters };
        let classes = (0..count).map(class).collect();
        Sizes { classes, least, other: counters, kept_bytes: 0 }
    }

    /// The class of buffers with at least `size` bytes and less than twice as many.
    fn class(&mut self, size: usize) -> Option<&mut FreeList<M>> {
        let index = (size / self.least).checked_ilog2()?;
        self.classes.get_mut(index as usize)
    }

    /// A kept buffer for `size` bytes, which are [rounded]. `None` tells the caller to
    /// allocate one, and counts that.
    pub(super) fn take(&mut self, size: usize) -> Option<M> {
        // A size above the largest class has no class, even if it is less than twice as large.
        let Some(class) = self.class(size).filter(|class| class.size >= size) else {
            self.other.taken += 1;
            self.other.allocated += 1;
            return None;
        };
        class.counters.taken += 1;
        let taken = class.kept.pop();
        match &taken {
            Some(memory) => self.kept_bytes -= memory.bytes(),
            None => class.counters.allocated += 1,
        }
        taken
    }

    /// Keeps a buffer, or returns it to the caller, which frees it.
    pub(super) fn give(&mut self, mut memory: M, room: usize) -> Option<M> {
        let bytes = memory.bytes();
        let keeps = memory.is_usable() && bytes <= room;
        let Some(class) = self.class(bytes) else {
            self.other.given += 1;
            self.other.freed += 1;
            return Some(memory);
        };
        class.counters.given += 1;
        if !keeps {
            class.counters.freed += 1;
            return Some(memory);
        }
        memory.clear();
        class.kept.push(memory);
        self.kept_bytes += bytes;
        None
    }

    /// The size of the largest class that keeps a buffer.
    pub(super) fn largest_kept(&self) -> Option<usize> {
        self.classes.iter().rfind(|class| !class.kept.is_empty()).map(|class| class.size)
    }

    /// Hands out a buffer of the largest class that keeps one, to be freed.
    pub(super) fn free_largest(&mut self) -> Option<M> {
        let class = self.classes.iter_mut().rfind(|class| !class.kept.is_empty())?;
        let memory = class.kept.pop()?;
        class.counters.freed += 1;
        self.kept_bytes -= memory.bytes();
        Some(memory)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The classes, the smallest first.
    pub(super) fn classes(&self, is_aligned: bool) -> impl Iterator<Item = SizeClass> {
        self.classes.iter().map(move |class| {
            let kept_bytes = class.kept.iter().map(PoolMemory::bytes).sum();
            let kept = class.kept.len() as u64;
            let counters = PoolCounters { kept, kept_bytes, ..class.counters };
            SizeClass { size: class.size, is_aligned, counters }
        })
    }

    /// The counts of all classes, and of buffers without a class.
    pub(super) fn counters(&self) -> PoolCounters {
        self.classes(false).fold(self.other, |sum, class| sum + class.counters)
    }
}
