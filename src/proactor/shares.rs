//! Shares of the swap buffers: how many buffers of a scarce pool a multishot read may hold.
//!
//! A multishot read goes on while the program still holds its earlier leases. If its peer sends and
//! never reads, it would take the whole pool, and all reads would stop. So while the pool is
//! [scarce](crate::driver::swap::Pool::is_scarce), each attempt of a multishot read gets a swap
//! buffer of its own, which counts until it comes back. A source may hold one buffer, or an eighth
//! of the free buffers if that is more. This is the dynamic threshold of shared-memory switches
//! (Choudhury and Hahne, 1998). However many sources take their full share, some buffers stay free
//! for new sources.
//!
//! A source that holds its share waits here. It resumes when one of its own buffers comes back, or
//! when enough others do that its share grows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A source's share is the number of free buffers divided by this.
const PART: usize = 8;
/// Stale heap entries are dropped when there are more than this, and more than there are shares.
const MOST_GONE: usize = 64;

/// The buffers that a source holds.
#[derive(Debug)]
struct Share {
    held: u32,
    /// The key of its heap entry; 0 while it does not wait.
    order: u64,
}

/// The buffers that multishot reads hold, and the reads that wait.
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: HashMap<u64, Share>,
    /// The waiting sources, the smallest share first, equal shares in order of arrival. Entries may
    /// be stale.
    waiting: BinaryHeap<Reverse<(u32, u64, u64)>>,
    /// The number of waiting sources.
    count: usize,
    order: u64,
}

/// The most buffers that one source may hold while `free` are free.
fn most(free: usize, scarce: bool) -> usize {
    if scarce { (free / PART).max(1) } else { usize::MAX }
}

impl Shares {
    /// Whether no source waits.
    pub(super) fn is_idle(&self) -> bool {
        self.count == 0
    }

    /// Whether a source may take one more buffer while `free` are free.
    pub(super) fn may_take(&self, key: u64, free: usize) -> bool {
        self.held.get(&key).is_none_or(|share| (share.held as usize) < most(free, true))
    }

    /// A source has taken a buffer.
    pub(super) fn take(&mut self, key: u64) {
        self.held.entry(key).or_insert(Share { held: 0, order: 0 }).held += 1;
    }

    /// A buffer has come back. True if its source waits, and must be resumed.
    pub(super) fn came_back(&mut self, key: u64) -> bool {
        let Some(share) = self.held.get_mut(&key) else { return false };
        share.held -= 1;
        let waits = std::mem::take(&mut share.order) != 0;
        self.count -= usize::from(waits);
        if share.held == 0 {
            self.held.remove(&key);
        }
        waits
    }

    /// A source waits no more: its read has ended.
    pub(super) fn stop_waiting(&mut self, key: u64) {
        if let Some(share) = self.held.get_mut(&key) {
            self.count -= usize::from(std::mem::take(&mut share.order) != 0);
        }
    }

    /// A source begins to wait, because it [may take](Shares::may_take) no more.
    pub(super) fn wait(&mut self, key: u64) {
        if self.waiting.len() > MOST_GONE + 2 * self.held.len() {
            let held = &self.held;
            let is_there = |&Reverse((_, order, key)): &Reverse<(u32, u64, u64)>| {
                held.get(&key).is_some_and(|share| share.order == order)
            };
            self.waiting.retain(is_there);
        }
        self.order += 1;
        if let Some(share) = self.held.get_mut(&key) {
            self.count += usize::from(share.order == 0);
            share.order = self.order;
            self.waiting.push(Reverse((share.held, self.order, key)));
        }
    }

    /// The next source whose share has grown, now that `free` buffers are free.
    pub(super) fn next(&mut self, free: usize, scarce: bool) -> Option<u64> {
        while let Some(&Reverse((held, order, key))) = self.waiting.peek() {
            let share = self.held.get_mut(&key).filter(|share| share.order == order);
            if share.is_some() && (free == 0 || held as usize >= most(free, scarce)) {
                return None;
            }
            self.waiting.pop();
            if let Some(share) = share {
                share.order = 0;
                self.count -= 1;
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One source that never returns a buffer gets a ninth of the pool, two get a tenth each, and
    /// so on. Each gets at least one.
    #[test]
    fn greedy_sources_leave_free_buffers() {
        for takers in [1, 2, 10, 100] {
            let (mut shares, mut free) = (Shares::default(), 512);
            let mut stopped = 0;
            while stopped < takers {
                stopped = 0;
                for key in 1..=takers {
                    if shares.may_take(key, free) {
                        shares.take(key);
                        free -= 1;
                    } else {
                        stopped += 1;
                    }
                }
            }
            let fair = 512 / (PART + takers as usize);
            assert!((1..=takers).all(|key| shares.held[&key].held as usize <= fair + 1));
            assert!(free >= PART * fair, "{takers}: {free}");
            assert!(shares.may_take(takers + 1, free));
        }
    }

    #[test]
    fn a_waiting_source_resumes_when_buffers_come_back() {
        let mut shares = Shares::default();
        for (key, held) in [(1, 1), (2, 3), (3, 1)] {
            (0..held).for_each(|_| shares.take(key));
            assert!(!shares.may_take(key, 8));
            shares.wait(key);
        }
        assert_eq!(shares.next(8, true), None, "each has its share");
        assert!(shares.came_back(2), "it waits");
        assert!(!shares.came_back(2), "it goes on already");
        assert!(!shares.came_back(9), "no such source");
        assert!(!shares.may_take(2, 8));
        shares.wait(2);
        // The share grows to two: of the sources with one buffer, the first to arrive resumes
        // first.
        assert_eq!(shares.next(0, false), None, "no buffer is free");
        assert_eq!([(); 4].map(|()| shares.next(16, true)), [Some(1), Some(3), Some(2), None]);
        assert!(shares.is_idle());
        shares.wait(1);
        shares.stop_waiting(1);
        shares.stop_waiting(1);
        assert!(shares.is_idle() && shares.next(1, false).is_none());
        shares.wait(1);
        assert_eq!(shares.next(1, false), Some(1), "plenty");
        assert!(!shares.came_back(1));
        assert!(shares.is_idle() && !shares.held.contains_key(&1));
    }

    #[test]
    fn stale_entries_take_bounded_room() {
        let mut shares = Shares::default();
        for key in 0..if cfg!(miri) { 300 } else { 2_000 } {
            shares.take(key);
            shares.wait(key);
            assert!(shares.came_back(key));
            assert!(shares.waiting.len() <= MOST_GONE + 3);
        }
        assert_eq!(shares.next(1, true), None);
        assert!(shares.is_idle() && shares.waiting.is_empty() && shares.held.is_empty());
    }
}
