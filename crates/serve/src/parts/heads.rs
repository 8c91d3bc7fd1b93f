//! The places of connections, as other threads see them.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::memory::Budget;
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

/// Room for output of a connection: [`Remote::reserve`](crate::Remote::reserve) makes it for a
/// thread, and [`Engine::reserve`](crate::Engine::reserve) for the loop. It counts until it is
/// dropped, on whatever thread.
#[must_use = "it counts until it is dropped"]
pub struct Reserved {
    heads: Heads,
    budget: Budget,
    id: Id,
    bytes: u32,
    /// What the budget counts of it.
    memory: u32,
}

impl Reserved {
    /// For bytes that count already.
    pub(crate) fn new(heads: &Heads, budget: &Budget, id: Id, bytes: u32) -> Reserved {
        Reserved { heads: heads.clone(), budget: budget.clone(), id, bytes, memory: bytes }
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// How many bytes of output it is for.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Counts for the cap of the connection alone from here on. This is for a program that counts
    /// the memory itself, with [`Engine::charge`](crate::Engine::charge).
    pub fn release_memory(&mut self) {
        self.budget.change(std::mem::take(&mut self.memory), 0);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.heads.discharge(self.id, self.bytes);
        self.release_memory();
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reserved({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use windlass::Source;

    use super::*;
    use crate::parts::table::{NIL, Place, Table};

    #[test]
    fn an_idle_connection_takes_32_bytes() {
        assert_eq!(size_of::<Place<()>>() + size_of::<Head>(), 32);
    }

    /// A table grows only if all its places are taken.
    #[test]
    fn places_are_used_again() {
        let mut table = Table::new(0);
        for _ in 0..10 * CHUNK {
            let id = table.insert(Source::NONE, 0, Some(())).unwrap();
            table.remove(id.index());
        }
        assert_eq!(table.chunks.len(), 1);
    }

    #[test]
    fn charges_have_a_cap() {
        let mut table = Table::new(0);
        let id = table.insert(Source::NONE, 0, Some(())).unwrap();
        let heads = table.heads();
        assert_eq!(heads.charge(id, 60, 100), Ok(()));
        assert_eq!(heads.charge(id, 41, 100), Err(Refusal::Cap));
        assert_eq!(heads.charge(id, 40, 100), Ok(()));
        heads.discharge(id, 60);
        assert_eq!(table.look(id.index()).1, 40);
        table.remove(id.index());
        assert_eq!(heads.charge(id, 1, 100), Err(Refusal::Stale));
    }

    /// The charge of a thread counted for the next connection.
    #[test]
    fn a_place_is_vacant_only_without_a_charge() {
        let mut table = Table::new(0);
        let ids: Vec<_> =
            (0..CHUNK).map(|_| table.insert(Source::NONE, 0, Some(())).unwrap()).collect();
        let heads = table.heads();
        heads.charge(ids[7], 60, 100).unwrap();
        for id in &ids {
            table.remove(id.index());
        }
        let more: Vec<_> =
            (0..CHUNK).map(|_| table.insert(Source::NONE, 0, Some(())).unwrap()).collect();
        assert!(more.iter().all(|id| id.index() != ids[7].index()), "it is another one's charge");
        assert_eq!(table.chunks.len(), 2, "only one place was missing");
        heads.discharge(ids[7], 60);
        let last = (0..CHUNK).map(|_| table.insert(Source::NONE, 0, Some(())).unwrap());
        assert_eq!(last.filter(|id| id.index() == ids[7].index()).count(), 1);
    }

    /// A thread finds the number, the place goes to another connection, and the thread charges.
    #[test]
    fn no_thread_charges_the_next_connection() {
        const OVER: u64 = u64::MAX;
        let mut table = Table::new(0);
        let heads = table.heads();
        let (number, index) = (AtomicU64::new(0), AtomicU32::new(0));
        let (charges, wrong) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let (mut charges, mut wrong) = (0, 0);
                loop {
                    let number = number.load(Ordering::Acquire);
                    if number == OVER {
                        break (charges, wrong);
                    }
                    let id = Id { number, index: index.load(Ordering::Relaxed) };
                    if number != 0 && heads.charge(id, 1, 1).is_ok() {
                        let now = heads.with(id.index, |head| head.number.load(Ordering::Acquire));
                        charges += 1;
                        wrong += u32::from(now != Some(number) && now != Some(0));
                        heads.discharge(id, 1);
                    }
                }
            });
            for _ in 0..200_000 {
                let id = table.insert(Source::NONE, 0, Some(())).unwrap();
                index.store(id.index(), Ordering::Relaxed);
                number.store(id.number, Ordering::Release);
                // All others are taken, so that the place is used again at once.
                while table.vacant != NIL {
                    table.insert(Source::NONE, 0, Some(())).unwrap();
                }
                table.remove(id.index());
            }
            number.store(OVER, Ordering::Release);
            thread.join().unwrap()
        });
        println!("{charges} charges");
        assert_eq!(wrong, 0);
    }
}
