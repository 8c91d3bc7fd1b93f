//! Two queues that are taken as one: one with a bound, and an overflow for what must not be refused.
//!
//! Invariants:
//!
//! - (I1) What a thread has queued is taken in the order in which it queued it, whichever queue had room;
//!   so is what another thread queues after it was told of that.
//! - (I2) While something stands in the overflow, what can be refused is.
//!
//! An entry of the overflow counts as there until it is handed out: nothing is queued past it (I2). It is
//! handed out when the queue was found empty *after* it was taken from the overflow: what stood before it
//! when it came is gone then. That the queue was empty before says nothing, because it may have been filled
//! since.

use crossbeam_channel::{Receiver, Sender};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A queue of many threads that put something in and one that takes.
pub(super) trait Queue<T> {
    /// Puts an item in, or hands it back where there is no room.
    fn try_push(&self, item: T) -> Result<(), T>;
    /// Takes the oldest item; it does not miss one whose `try_push` has returned.
    fn try_pop(&self) -> Option<T>;
}

/// Both ends of a channel: it lives as long as those who share it.
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

impl<T> Queue<T> for Channel<T> {
    fn try_push(&self, item: T) -> Result<(), T> {
        // The other end is here, so that "no room" is the only refusal.
        self.sender.try_send(item).map_err(|refused| refused.into_inner())
    }

    fn try_pop(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Inbox<Channel<T>> {
    /// Whether something that can be refused would not be, as it looks now.
    pub(super) fn has_room(&self) -> bool {
        self.behind.load(Ordering::SeqCst) == 0 && !self.queue.sender.is_full()
    }

    /// How many items stand in the queues.
    pub(super) fn len(&self) -> usize {
        self.queue.receiver.len() + self.overflow.receiver.len()
    }
}

/// The two queues.
pub(super) struct Inbox<Q> {
    pub(super) queue: Q,
    overflow: Q,
    /// Entries that came to the overflow and were not handed out.
    behind: AtomicUsize,
}

impl<Q> Inbox<Q> {
    pub(super) fn new(queue: Q, overflow: Q) -> Inbox<Q> {
        Inbox { queue, overflow, behind: AtomicUsize::new(0) }
    }

    /// Queues what can be refused, or hands it back.
    pub(super) fn send<T>(&self, item: T) -> Result<(), T>
    where
        Q: Queue<T>,
    {
        match self.behind.load(Ordering::SeqCst) {
            0 => self.queue.try_push(item),
            _ => Err(item),
        }
    }

    /// Queues what must not be refused.
    pub(super) fn insist<T>(&self, item: T)
    where
        Q: Queue<T>,
    {
        if let Err(item) = self.send(item) {
            self.behind.fetch_add(1, Ordering::SeqCst);
            let sent = self.overflow.try_push(item);
            debug_assert!(sent.is_ok(), "the overflow has no bound of its own");
        }
    }

    /// Takes the next item. `held` is the one that has left the overflow and waits for its turn.
    pub(super) fn take<T>(&self, held: &mut Option<T>) -> Option<T>
    where
        Q: Queue<T>,
    {
        loop {
            if let Some(item) = self.queue.try_pop() {
                return Some(item);
            }
            if let Some(item) = held.take() {
                self.behind.fetch_sub(1, Ordering::SeqCst);
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

    impl Queue<u32> for Shelf {
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

    /// Takes until `last` has come, and what is there then.
    fn take_until(
        inbox: &Inbox<Shelf>,
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

    fn explore(body: impl Fn(Arc<Inbox<Shelf>>) + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.check(move || body(Arc::new(Inbox::new(Shelf::new(1), Shelf::new(usize::MAX)))));
    }

    /// I1: a free behind an attach, which finds the queue filled by another thread.
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

    /// I1 and I2: what the same thread queues behind its entry in the overflow does not pass it.
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

    /// A channel that lets others run between two looks of the one who takes.
    struct Slow(Channel<u64>);

    impl Queue<u64> for Slow {
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
    #[cfg_attr(miri, ignore = "a race of 10,000 pairs: too slow")]
    fn what_overflows_stays_behind_what_was_queued() {
        const PAIRS: u64 = 10_000;
        /// What the other thread fills the queue with.
        const FILLER: u64 = u64::MAX;
        let inbox = Inbox::new(Slow(Channel::bounded(1)), Slow(Channel::unbounded()));
        let (inbox, over) = (Arc::new(inbox), Arc::new(AtomicBool::new(false)));
        let pairs = std::thread::spawn({
            let inbox = inbox.clone();
            move || {
                for pair in 0..PAIRS {
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
        while taken.len() < 2 * PAIRS as usize {
            taken.extend(inbox.take(&mut held).filter(|&item| item != FILLER));
        }
        over.store(true, Ordering::Relaxed);
        pairs.join().unwrap();
        filler.join().unwrap();
        let wrong = (0..).zip(&taken).filter(|(i, item)| i != *item).count();
        assert_eq!(wrong, 0, "overtaken");
    }
}
