//! Sources that wait for a resource: memory for a read, a share of that memory, or a slot in the
//! table.
//!
//! Each resource has a first-come, first-served queue. A turn resumes as many sources as it has
//! resources for, never all: the others would only wait again. A queue holds names of sources; it
//! skips a name whose source was aborted or waits no more.

use std::collections::{HashSet, VecDeque};

use crate::proactor::shares::Shares;
use crate::words::source::Source;

/// A queue drops stale and repeated names when it has more names than this number plus twice the
/// number of sources.
const MOST_GONE: usize = 64;

/// The queues of a driver.
#[derive(Debug, Default)]
pub(in crate::proactor) struct ResourceWaits {
    /// Reads by the loop that wait for a swap buffer.
    pub(in crate::proactor) leases: WaitQueue,
    /// Reads by the kernel that wait until it holds a swap buffer.
    pub(in crate::proactor) buffers: WaitQueue,
    /// The number of reads started since the last `select`: the kernel's number of free buffers
    /// does not reflect them yet.
    pub(in crate::proactor) begun: usize,
    /// Accepts that wait for a slot in the table of sources.
    pub(in crate::proactor) source_slots: WaitQueue,
    /// Reads that wait because the writes of their source hold its share of the swap buffers.
    pub(in crate::proactor) shares: Shares,
    /// A source may wait for one of the above. One flag covers all of them, because every turn
    /// asks.
    any: bool,
}

impl ResourceWaits {
    /// Whether nothing waits. It may be false for a while after the last wait has ended.
    #[inline(always)]
    pub(in crate::proactor) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Notes that something waits now.
    pub(in crate::proactor) fn note(&mut self) {
        self.any = true;
    }

    /// Updates the flag: whether something still waits.
    pub(in crate::proactor) fn settle(&mut self) {
        self.any = self.reads_wait() || !self.source_slots.is_empty();
    }

    /// Whether reads wait for memory.
    pub(in crate::proactor) fn reads_wait(&self) -> bool {
        !self.leases.is_empty() || !self.buffers.is_empty() || self.shares.len() > 0
    }

    /// Whether the kernel must be entered before we know for how many more reads it has buffers.
    pub(in crate::proactor) fn are_pressing(&self) -> bool {
        self.begun > 0 && !self.buffers.is_empty()
    }

    /// Whether accepts wait for a slot.
    pub(in crate::proactor) fn has_accepts(&self) -> bool {
        !self.source_slots.is_empty()
    }

    /// The number of names in the queues, and of sources that hold their share.
    pub(in crate::proactor) fn len(&self) -> usize {
        let queues = [&self.leases, &self.buffers, &self.source_slots];
        queues.map(|queue| queue.names.len()).iter().sum::<usize>() + self.shares.len()
    }

    pub(in crate::proactor) fn clear(&mut self) {
        *self = ResourceWaits::default();
    }
}

/// The sources that wait for one resource.
#[derive(Debug, Default)]
pub(in crate::proactor) struct WaitQueue {
    names: VecDeque<Source>,
    /// The number resumed last, if no source has joined since.
    resumed: usize,
    /// The number of names examined.
    #[cfg(test)]
    looks: usize,
}

impl WaitQueue {
    pub(in crate::proactor) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds a source at the end. `sources` is the number of sources; `waits` tells whether a source
    /// still waits.
    pub(in crate::proactor) fn push(
        &mut self,
        source: Source,
        sources: u32,
        mut waits: impl FnMut(&Source) -> bool,
    ) {
        self.resumed = 0;
        if self.names.len() > MOST_GONE + 2 * sources as usize {
            // A source may have ceased to wait, and wait again: it keeps its first place.
            let mut kept = HashSet::new();
            self.names.retain(|name| waits(name) && kept.insert(*name));
        }
        self.names.push_back(source);
    }

    /// The number of sources to resume with `left` free units of the resource, when `ahead` sources
    /// run first: 0 without a free unit, else at least 1, so that the sources ahead do not starve
    /// the queue. With none ahead, at least twice the last number: one buffer serves many messages.
    pub(in crate::proactor) fn quota(&mut self, left: usize, ahead: usize) -> usize {
        let count = match (left, ahead) {
            (0, _) => 0,
            (_, 0) => left.max(2 * self.resumed),
            _ => left.saturating_sub(ahead).max(1),
        };
        self.resumed = count.min(self.names.len());
        self.resumed
    }

    /// Drops the names at the head of sources that wait no more.
    pub(in crate::proactor) fn drop_gone(&mut self, mut waits: impl FnMut(&Source) -> bool) {
        while self.names.front().is_some_and(|name| !waits(name)) {
            self.names.pop_front();
        }
    }

    /// Takes the next name, which may be stale.
    pub(in crate::proactor) fn next(&mut self) -> Option<Source> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.names.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn name(index: u32) -> Source {
        Source::from_parts(index, NonZeroU32::MIN)
    }

    /// Four thousand sources wait and buffers come back one by one: each buffer examines one
    /// source, in order.
    #[test]
    fn one_buffer_is_one_look() {
        const MANY: u32 = if cfg!(miri) { 400 } else { 4000 };
        let mut queue = WaitQueue::default();
        (0..MANY).for_each(|i| queue.push(name(i), MANY, |_| true));
        for turn in 0..3 * MANY {
            // Every third turn a buffer has come back; the resumed source uses it up and waits
            // again.
            let left = usize::from(turn % 3 == 0);
            for _ in 0..queue.quota(left, 0) {
                let next = queue.next().expect("all of them wait");
                assert_eq!(next.index(), turn / 3 % MANY);
                queue.push(next, MANY, |_| true);
            }
        }
        assert_eq!(queue.looks, MANY as usize);
    }

    /// If one buffer serves many sources, few turns resume all of them. If sources run ahead, only
    /// the rest of the resource counts.
    #[test]
    fn as_many_as_there_is_left_for() {
        let mut queue = WaitQueue::default();
        (0..100).for_each(|i| queue.push(name(i), 100, |_| true));
        assert_eq!([0, 1, 1, 1, 1].map(|left| queue.quota(left, 0)), [0, 1, 2, 4, 8]);
        assert_eq!(queue.quota(0, 0), 0);
        assert_eq!([1, 7].map(|left| queue.quota(left, 0)), [1, 7]);
        queue.push(name(100), 100, |_| true);
        assert_eq!(queue.quota(3, 0), 3, "a source joined: not twice as many");
        assert_eq!([0, 2, 5, 9].map(|ahead| queue.quota(5, ahead)), [6, 3, 1, 1]);
        assert_eq!(queue.quota(1000, 0), 101, "not more than there are");
    }

    /// Stale names take bounded room, however often a source waits and is cancelled.
    #[test]
    fn a_wait_queue_is_bounded() {
        let mut queue = WaitQueue::default();
        for i in 0..2_000 {
            queue.push(name(i), 10, |waiting| waiting.index() + 1 == i);
            assert!(queue.names.len() <= MOST_GONE + 2 * 10 + 1);
        }
        // One source that waits now has waited before.
        for _ in 0..2_000 {
            queue.push(name(7), 10, |waiting| waiting.index() == 7);
            assert!(queue.names.len() <= MOST_GONE + 2 * 10 + 1);
        }
    }
}
