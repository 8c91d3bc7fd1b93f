//! One budget of bytes for all connections of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least share of a connection, in a budget of 64 KiB or more.
const LEAST_SHARE: usize = 4 << 10;

/// Counts the bytes that wait in all loops of a server, and gives each connection its share.
///
/// These bytes are charged: output and datagrams that the kernel has not taken, the output of the
/// turn, what other threads have queued, data that is held back from the program, copies of data
/// that the program keeps, data that it has not read from a [`Stream`](crate::Stream), and what it
/// [charges](crate::Engine::charge). Bytes that several connections share count for each of them.
///
/// - A quarter of the limit is the *reserve*. The *share* of a connection is the rest, divided by
///   the number of connections that hold bytes, and at least 4 KiB (in a budget below 64 KiB: at
///   least a sixteenth of it).
/// - A connection that holds more than its share is not read, until it holds no more than that.
/// - The reserve is for connections below their share. While it is in use, writes to the others are
///   refused, and each flush of a loop closes up to 64 of its connections above their share, with
///   [`Cause::Shed`](crate::Cause::Shed). It begins with those that hold most. (Amounts with the
///   same number of bits count as equal.)
/// - While a share would be below the least one, accepted connections are refused.
///
/// So a connection that holds nothing is always served, and waiting output stays below the sum of
/// the limit and one least share for each connection.
///
/// Two engines that share a budget:
///
/// ```
/// use windlass_serve::{Budget, Config, Engine};
///
/// let budget = Budget::new(64 << 20);
/// let one = Engine::<()>::of_loop(Config::new(), 0, budget.clone());
/// let other = Engine::<()>::of_loop(Config::new(), 1, budget.clone());
/// // No connection holds bytes yet, so the first one may hold all but the reserve.
/// assert_eq!((budget.used(), budget.share()), (0, 48 << 20));
/// # drop((one, other));
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// The limit without the reserve.
    common: usize,
    least_share: usize,
    used: AtomicUsize,
    /// Connections that hold bytes, in all loops.
    holders: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes; less than 256 counts as 256.
    pub fn new(limit: usize) -> Budget {
        let limit = limit.max(crate::words::limits::LEAST);
        Budget(Arc::new(Shared {
            limit,
            common: limit - limit / 4,
            least_share: LEAST_SHARE.min(limit / 16),
            used: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
        }))
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many bytes are charged now.
    pub fn used(&self) -> usize {
        // Each party adds before it subtracts, but a reader may see that in another order.
        let used = self.0.used.load(Ordering::Relaxed);
        if used > isize::MAX as usize { 0 } else { used }
    }

    /// How many bytes a connection may hold now; with more, its reads stop.
    pub fn share(&self) -> usize {
        self.share_of(self.holders())
    }

    /// The share among so many connections.
    pub(crate) fn share_of(&self, holders: usize) -> usize {
        (self.0.common / holders.max(1)).max(self.0.least_share)
    }

    pub(crate) fn least_share(&self) -> usize {
        self.0.least_share
    }

    fn holders(&self) -> usize {
        let holders = self.0.holders.load(Ordering::Relaxed);
        if holders > isize::MAX as usize { 0 } else { holders }
    }

    /// Changes the charge of one party.
    #[inline]
    pub(crate) fn change(&self, before: u32, now: u32) {
        let change = (now as usize).wrapping_sub(before as usize);
        self.0.used.fetch_add(change, Ordering::Relaxed);
    }

    /// Connections begin to hold bytes, or have given all back.
    pub(crate) fn change_holders(&self, change: isize) {
        self.0.holders.fetch_add(change as usize, Ordering::Relaxed);
    }

    /// Charges `bytes` to a party that holds `held` bytes, if they fit.
    pub(crate) fn try_charge(&self, bytes: u32, held: usize) -> bool {
        let limit = self.limit_for(bytes, held);
        // One atomic step, because a loop that saw a charge which does not fit would close a
        // connection.
        let charge = |used: usize| used.checked_add(bytes as usize).filter(|sum| *sum <= limit);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).is_ok()
    }

    /// Whether `try_charge` would charge them now.
    pub(crate) fn has_room(&self, bytes: u32, held: usize) -> bool {
        self.used().saturating_add(bytes as usize) <= self.limit_for(bytes, held)
    }

    /// A party may use the reserve only below its share. (One with `usize::MAX` never may.)
    fn limit_for(&self, bytes: u32, held: usize) -> usize {
        let is_below = held.saturating_add(bytes as usize) <= self.share();
        if is_below { self.0.limit } else { self.0.common }
    }

    /// The most bytes that a party above its share can ever charge at once.
    pub(crate) fn most(&self) -> usize {
        self.0.common
    }

    /// Whether the reserve is touched.
    #[inline]
    pub(crate) fn is_touched(&self) -> bool {
        self.used() > self.0.common
    }

    /// Whether one more connection may come.
    pub(crate) fn admits(&self) -> bool {
        self.0.common / (self.holders() + 1) >= self.0.least_share
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_charge_that_does_not_fit_never_shows() {
        let (budget, is_over) = (Budget::new(1000), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(!budget.try_charge(1 << 30, 0));
                }
            });
            let seen = (0..200_000).map(|_| budget.used()).max();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(seen, Some(0));
        });
    }

    #[test]
    fn the_share_is_the_rest_without_the_reserve_by_those_that_hold_bytes() {
        let budget = Budget::new(256 << 20);
        assert_eq!(budget.share(), 192 << 20);
        budget.change_holders(1);
        assert_eq!(budget.share(), 192 << 20);
        budget.change_holders(3);
        assert_eq!(budget.share(), 48 << 20);
        budget.change_holders(49_148);
        assert_eq!(budget.share(), 4096);
        assert!(!budget.admits());
        budget.change_holders(-1);
        assert!(budget.admits());
        budget.change_holders(1_000_000);
        assert_eq!(budget.share(), 4096, "it is never less");
    }

    #[test]
    fn the_reserve_is_for_those_below_their_share() {
        let budget = Budget::new(64 << 10);
        budget.change_holders(12);
        assert_eq!(budget.share(), 4096);
        assert!(budget.try_charge(48 << 10, 0), "that is all but the reserve");
        assert!(!budget.is_touched());
        assert!(!budget.try_charge(1, 4096) && !budget.has_room(1, 4096));
        assert!(budget.has_room(4096, 0) && budget.try_charge(4096, 0) && budget.is_touched());
        assert!(!budget.try_charge(12 << 10, usize::MAX));
        assert!(budget.try_charge(4096, 0) && budget.try_charge(4096, 0));
        assert!(budget.try_charge(4096, 0) && !budget.try_charge(1, 0), "that is all");
        budget.change(64 << 10, 0);
        assert_eq!(budget.used(), 0);
    }
}
