//! Shares of the swap buffers: how many of a scarce pool a multishot read may keep in use.
//!
//! A multishot read takes what comes, whether or not anybody is done with what came before. One whose peer
//! sends and never reads would take the whole pool, and all reads would stop. So, when the pool is
//! [scarce](crate::swap::Pool::is_scarce), each read of a multishot one gets a swap buffer of its own,
//! which is counted until it comes back, and a source may have as many in use as an eighth of those that
//! are free, and one in any case. This is the dynamic threshold of shared-memory switches (Choudhury and
//! Hahne, 1998): however many take all that they get, some is left for those that come.
//!
//! A source with its share waits here. It goes on when a buffer of its own comes back, or when so many
//! others do that its share has grown.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The free buffers count for so many times a source's share.
const PART: usize = 8;
/// So many entries of the heap may be stale, and as many as there are shares, before these are forgotten.
const MOST_GONE: usize = 64;

/// What a source has in use, by the key of its name.
#[derive(Debug)]
struct Share {
    held: u32,
    /// Names its entry in the heap; 0 while it does not wait.
    order: u64,
}

/// What the multishot reads have in use, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: HashMap<u64, Share>,
    /// Those that wait, the smallest share first, equal ones in their order; with stale entries.
    waiting: BinaryHeap<Reverse<(u32, u64, u64)>>,
    /// How many wait.
    count: usize,
    order: u64,
}

/// Most buffers that one source may have in use while `free` are free.
fn most(free: usize, scarce: bool) -> usize {
    if scarce { (free / PART).max(1) } else { usize::MAX }
}

impl Shares {
    /// Nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.count == 0
    }

    /// Whether a source may take one more while `free` are free.
    pub(super) fn may_take(&self, key: u64, free: usize) -> bool {
        self.held.get(&key).is_none_or(|share| (share.held as usize) < most(free, true))
    }

    /// A source has taken one.
    pub(super) fn take(&mut self, key: u64) {
        self.held.entry(key).or_insert(Share { held: 0, order: 0 }).held += 1;
    }

    /// One has come back; true when its source waits, and is to go on.
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

    /// A source waits: it [may take](Shares::may_take) no more.
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

    /// The next one whose share has grown, now that `free` are free.
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

    /// One that never gives back gets a ninth of what is free, two get a tenth each, and so on; and
    /// each gets one.
    #[test]
    fn some_is_left_however_many_take_all() {
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
    fn who_waits_goes_on_when_its_own_come_back_or_others_do() {
        let mut shares = Shares::default();
        for (key, held) in [(1, 1), (2, 3), (3, 1)] {
            (0..held).for_each(|_| shares.take(key));
            assert!(!shares.may_take(key, 8));
            shares.wait(key);
        }
        assert_eq!(shares.next(8, true), None, "each has its share");
        assert!(shares.came_back(2), "it waits");
        assert!(!shares.came_back(2), "it goes on already");
        assert!(!shares.came_back(9), "no one's");
        assert!(!shares.may_take(2, 8));
        shares.wait(2);
        // The share grows to two: the first that came of those with one, then the next.
        assert_eq!(shares.next(0, false), None, "nothing to be had");
        assert_eq!([(); 4].map(|()| shares.next(16, true)), [Some(1), Some(3), Some(2), None]);
        assert!(shares.is_idle());
        shares.wait(1);
        assert_eq!(shares.next(1, false), Some(1), "plenty");
        assert!(!shares.came_back(1));
        assert!(shares.is_idle() && !shares.held.contains_key(&1));
    }

    #[test]
    fn what_waits_no_more_takes_a_bounded_room() {
        let mut shares = Shares::default();
        for key in 0..100_000 {
            shares.take(key);
            shares.wait(key);
            assert!(shares.came_back(key));
            assert!(shares.waiting.len() <= MOST_GONE + 3);
        }
        assert_eq!(shares.next(1, true), None);
        assert!(shares.is_idle() && shares.waiting.is_empty() && shares.held.is_empty());
    }
}
