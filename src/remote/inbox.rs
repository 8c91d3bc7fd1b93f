//! Two queues read as one: a bounded queue, and an overflow for requests that must not be refused.
//!
//! Invariants:
//!
//! - (I1) The loop takes the requests of a thread in the order in which the thread queued them,
//!   from whichever queue. A request that another thread queues after learning of an earlier
//!   request comes after that request.
//! - (I2) While the overflow has entries, all refusable requests are refused.
//!
//! An overflow entry counts until it is handed out, so no request passes it (I2). The loop first
//! takes the entry from the overflow. It hands the entry out once it *then* finds the bounded queue
//! empty: the requests queued before the entry are gone by that time. An empty queue before that
//! moment proves nothing, because another thread may have filled it since.

use crossbeam_channel::{Receiver, Sender};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A queue with many producers and one consumer.
pub(super) trait MpscQueue<T> {
    /// Adds an item, or hands it back if there is no room.
    fn try_push(&self, item: T) -> Result<(), T>;
    /// Takes the oldest item. It never misses an item whose `try_push` has returned.
    fn try_pop(&self) -> Option<T>;
}

/// Both ends of a channel, which lives as long as its owners.
pub(super) struct Channel<T> {
    pub(super) sender: Sender<T>,
    pub(super) receiver: Receiver<T>,
}

impl<T> Channel<T> {
    pub(super) fn bounded(count: usize) -> Channel<T> {
        let (sender, receiver) = crossbeam_channel::bounded(count);
        Channel { sender, receiver }
    }

    pub(super) fn unbounded() -> Channel<T> {
        let (sender, receiver) = crossbeam_channel::unbounded();
        Channel { sender, receiver }
    }
}

impl<T> MpscQueue<T> for Channel<T> {
    fn try_push(&self, item: T) -> Result<(), T> {
        // `self` has the other end, so "no room" is the only refusal.
        self.sender.try_send(item).map_err(|refused| refused.into_inner())
    }

    fn try_pop(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> InboxQueues<Channel<T>> {
    /// Whether a refusable request would be accepted now.
    pub(super) fn has_room(&self) -> bool {
        self.overflow_len.load(Ordering::SeqCst) == 0 && !self.queue.sender.is_full()
    }

    /// The number of items in the queues.
    pub(super) fn len(&self) -> usize {
        self.queue.receiver.len() + self.overflow.receiver.len()
    }
}

/// The two queues.
pub(super) struct InboxQueues<Q> {
    pub(super) queue: Q,
    overflow: Q,
    /// Overflow entries that were not handed out yet.
    overflow_len: AtomicUsize,
}

impl<Q> InboxQueues<Q> {
    pub(super) fn new(queue: Q, overflow: Q) -> InboxQueues<Q> {
        InboxQueues { queue, overflow, overflow_len: AtomicUsize::new(0) }
    }

    /// Queues a refusable item, or hands it back.
    pub(super) fn send<T>(&self, item: T) -> Result<(), T>
    where
        Q: MpscQueue<T>,
    {
        match self.overflow_len.load(Ordering::SeqCst) {
            0 => self.queue.try_push(item),
            _ => Err(item),
        }
    }

    /// Queues an item that must not be refused.
    pub(super) fn insist<T>(&self, item: T)
    where
        Q: MpscQueue<T>,
    {
        if let Err(item) = self.send(item) {
            self.overflow_len.fetch_add(1, Ordering::SeqCst);
            let sent = self.overflow.try_push(item);
            debug_assert!(sent.is_ok(), "the overflow has no bound of its own");
        }
    }

    /// Takes the next item. `held` is the item that has left the overflow and waits for its turn.
    pub(super) fn take<T>(&self, held: &mut Option<T>) -> Option<T>
    where
        Q: MpscQueue<T>,
    {
        loop {
            if let Some(item) = self.queue.try_pop() {
                return Some(item);
            }
            if let Some(item) = held.take() {
                self.overflow_len.fetch_sub(1, Ordering::SeqCst);
                return Some(item);
            }
            *held = Some(self.overflow.try_pop()?);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;
    use std::collections::VecDeque;

    struct Shelf {
        items: Mutex<VecDeque<u32>>,
        room: usize,
    }

    impl Shelf {
        fn new(room: usize) -> Shelf {
            Shelf { items: Mutex::new(VecDeque::new()), room }
        }
    }

    impl MpscQueue<u32> for Shelf {
        fn try_push(&self, item: u32) -> Result<(), u32> {
            let mut items = self.items.lock().unwrap();
            if items.len() == self.room {
                return Err(item);
            }
            items.push_back(item);
            Ok(())
        }

        fn try_pop(&self) -> Option<u32> {
            self.items.lock().unwrap().pop_front()
        }
    }

    /// Takes items until `last` has come, and then the rest.
    fn take_until(
        inbox: &InboxQueues<Shelf>,
        last: u32,
        join: impl FnOnce() -> bool,
    ) -> (Vec<u32>, bool) {
        let (mut taken, mut held) = (Vec::new(), None);
        while !taken.contains(&last) {
            match inbox.take(&mut held) {
                Some(item) => taken.push(item),
                None => thread::yield_now(),
            }
        }
        let answer = join();
        taken.extend(inbox.take(&mut held));
        (taken, answer)
    }

    fn explore(body: impl Fn(Arc<InboxQueues<Shelf>>) + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model
            .check(move || body(Arc::new(InboxQueues::new(Shelf::new(1), Shelf::new(usize::MAX)))));
    }

    /// I1: an abort after an attach finds the queue filled by another thread.
    #[test]
    fn nothing_is_overtaken_through_the_overflow() {
        explore(|inbox| {
            let (first, other) = (inbox.clone(), inbox.clone());
            let first = thread::spawn(move || {
                let attached = first.send(1).is_ok();
                first.insist(2);
                attached
            });
            let other = thread::spawn(move || other.send(9).is_ok());
            let mut filled = false;
            let (taken, attached) = take_until(&inbox, 2, || {
                filled = other.join().unwrap();
                first.join().unwrap()
            });
            let at = |item| taken.iter().position(|&other| other == item);
            assert_eq!(at(1).is_some(), attached, "{taken:?}");
            assert!(at(1) < at(2), "{taken:?}");
            assert_eq!(at(9).is_some(), filled, "{taken:?}");
        });
    }

    /// I1 and I2: a thread's later request does not pass its entry in the overflow.
    #[test]
    fn nothing_passes_the_overflow() {
        explore(|inbox| {
            let sender = inbox.clone();
            let thread = thread::spawn(move || {
                sender.insist(1);
                sender.insist(2);
                sender.insist(3);
                sender.send(4).is_ok()
            });
            let (taken, sent) = take_until(&inbox, 3, || thread.join().unwrap());
            let expected: &[u32] = if sent { &[1, 2, 3, 4] } else { &[1, 2, 3] };
            assert_eq!(taken, expected);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// A channel that lets other threads run between two looks of the consumer.
    struct Slow(Channel<u64>);

    impl MpscQueue<u64> for Slow {
        fn try_push(&self, item: u64) -> Result<(), u64> {
            self.0.try_push(item)
        }

        fn try_pop(&self) -> Option<u64> {
            let item = self.0.try_pop();
            if item.is_none() {
                std::thread::yield_now();
            }
            item
        }
    }

    /// I1 with real threads and the real channels.
    #[test]
    #[cfg_attr(miri, ignore = "a race of 500 pairs: too slow")]
    fn overflow_entries_stay_behind_earlier_requests() {
        let count = crate::seeds::races(500);
        /// The requests with which the other thread fills the queue.
        const FILLER: u64 = u64::MAX;
        let inbox = InboxQueues::new(Slow(Channel::bounded(1)), Slow(Channel::unbounded()));
        let (inbox, over) = (Arc::new(inbox), Arc::new(AtomicBool::new(false)));
        let pairs = std::thread::spawn({
            let inbox = inbox.clone();
            move || {
                for pair in 0..count {
                    while inbox.send(2 * pair).is_err() {
                        std::thread::yield_now();
                    }
                    inbox.insist(2 * pair + 1);
                }
            }
        });
        let filler = std::thread::spawn({
            let (inbox, over) = (inbox.clone(), over.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = inbox.send(FILLER);
                }
            }
        });
        let (mut held, mut taken) = (None, Vec::new());
        while taken.len() < 2 * count as usize {
            taken.extend(inbox.take(&mut held).filter(|&item| item != FILLER));
        }
        over.store(true, Ordering::Relaxed);
        pairs.join().unwrap();
        filler.join().unwrap();
        let wrong = (0..).zip(&taken).filter(|(i, item)| i != *item).count();
        assert_eq!(wrong, 0, "overtaken");
    }
}
