//! The memory of a server: one [`Budget`] of bytes for all connections, and what a program holds of
//! it for one of them ([`Charge`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::words::id::Id;
#[cfg(doc)]
use crate::{Engine, framing::Input};

/// The least share of a connection, in a budget of 64 KiB or more.
const LEAST_SHARE: usize = 4 << 10;

/// Counts the bytes that wait in all loops of a server, and gives each connection its share.
///
/// These bytes are charged: output and datagrams that the kernel has not taken, the output of the
/// turn, what other threads have queued, data that is held back from the program, copies of data
/// that the program keeps, data that it has not read from a [`Stream`](crate::Stream), and what the
/// program says that it holds: with a [`Charge`], which an [`Input`] can carry, or with
/// [`Engine::charge`]. Bytes that several connections share count for each of them.
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
/// use windlass_serve::memory::Budget;
/// use windlass_serve::{Config, Engine};
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

/// Bytes that a program holds for a connection. They count for
/// [`Limits::memory`](crate::Limits::memory) and for the [share](Budget) of the connection until
/// this value is dropped. [`Engine::hold`] and [`Conn::hold`](crate::Conn::hold) make it.
///
/// It goes where the memory goes: into the state of the connection, into an [`Input`], into the
/// closure of a job and into its result. It may be changed and dropped on any thread. The budget
/// knows of that at once, and the connection's loop in its next flush. It outlives its connection:
/// then the bytes count for the budget alone. So after a [move](crate::Conn::move_to_loop) the
/// program takes a new one.
///
/// A charge of 0 bytes costs the connection nothing.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler, memory::Charge};
///
/// /// Turns pictures around, each in a job, which needs twice their size.
/// struct Turns;
/// impl Handler for Turns {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, picture: Buf) -> Action {
///         let held = c.hold(2 * picture.len());
///         let turn = move || {
///             let mut turned = picture.to_vec();
///             turned.reverse();
///             (turned, held) // goes on to count until the answer is written
///         };
///         let answer = |c: &mut Conn<'_, ()>, (turned, held): (Vec<u8>, Charge)| {
///             c.write(turned); // counts by itself from here on
///             drop(held);
///             Action::None
///         };
///         if c.execute(turn, answer).is_ok() { Action::None } else { Action::Close }
///     }
/// }
/// ```
pub struct Charge {
    held: Arc<HeldByProgram>,
    number: u64,
    index: u32,
    bytes: u32,
}

impl Charge {
    pub(crate) fn new(held: &Arc<HeldByProgram>, id: Id) -> Charge {
        Charge { held: Arc::clone(held), number: id.number, index: id.index, bytes: 0 }
    }

    /// How many bytes count.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Lets so many bytes count from now on. 4 GiB and more count as 4 GiB.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        let now = u32::try_from(bytes).unwrap_or(u32::MAX);
        if now != self.bytes {
            let before = std::mem::replace(&mut self.bytes, now);
            self.held.change(Id { number: self.number, index: self.index }, before, now);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

/// What the charges of one loop's connections have changed since its last flush.
///
/// # Why
/// A counter for each connection would be memory of each idle one. So the charges of a loop share
/// this, and the loop adds the changes up where it has the other bytes of a connection.
pub(crate) struct HeldByProgram {
    budget: Budget,
    is_changed: AtomicBool,
    changes: Mutex<HashMap<Id, i64>>,
}

impl HeldByProgram {
    pub(crate) fn new(budget: Budget) -> HeldByProgram {
        HeldByProgram { budget, is_changed: AtomicBool::new(false), changes: Mutex::default() }
    }

    #[cold]
    fn change(&self, id: Id, before: u32, now: u32) {
        self.budget.change(before, now);
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // One entry a connection: so a loop that blocks collects no more than it has connections.
        *changes.entry(id).or_default() += i64::from(now) - i64::from(before);
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Whether there are changes. (A loop that misses one of another thread sees it next time.)
    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Exchanges the changes for an empty map.
    pub(crate) fn take(&self, empty: HashMap<Id, i64>) -> HashMap<Id, i64> {
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.is_changed.store(false, Ordering::Relaxed);
        std::mem::replace(&mut changes, empty)
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
