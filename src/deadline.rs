//! The deadline heap: one for all operations of a driver.
//!
//! A binary heap of 16-byte entries. Each operation stores where its entry stands
//! ([`Operation::heap_index`]), so that an operation that ends before its deadline takes its entry
//! out in O(log n), and a deadline that never fires costs one push and one removal. Entries of equal
//! deadline leave in the order in which they came.

use crate::slots::{NOWHERE, Operation, Table};

#[derive(Clone, Copy, Debug)]
struct Item {
    at_ns: u64,
    /// Breaks ties by age. It wraps; two live entries of one deadline are never 2^31 pushes apart.
    order: u32,
    slot: u32,
}

const _: () = assert!(size_of::<Item>() == 16);

impl Item {
    #[inline]
    fn before(&self, other: &Item) -> bool {
        self.at_ns < other.at_ns
            || (self.at_ns == other.at_ns && (self.order.wrapping_sub(other.order) as i32) < 0)
    }
}

/// Deadlines of operations, by time.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: Vec<Item>,
    order: u32,
}

impl Deadlines {
    /// No deadlines.
    pub fn new() -> Deadlines {
        Deadlines::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest deadline.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|item| item.at_ns)
    }

    /// Gives the operation in `slot` a deadline; it has none yet.
    pub fn push(&mut self, slots: &mut Table<Operation>, slot: u32, at_ns: u64) {
        debug_assert_eq!(slots[slot].heap_index, NOWHERE);
        let item = Item { at_ns, order: self.order, slot };
        self.order = self.order.wrapping_add(1);
        self.heap.push(item);
        self.rise(slots, self.heap.len() - 1);
    }

    /// Takes the deadline of the operation in `slot` out, if it has one.
    #[inline]
    pub fn remove(&mut self, slots: &mut Table<Operation>, slot: u32) {
        let at = slots[slot].heap_index;
        if at != NOWHERE {
            self.take(slots, at as usize);
        }
    }

    /// Takes out the earliest deadline if it is not after `now_ns`: the slot of its operation, and when
    /// it was.
    #[inline]
    pub fn pop_due(&mut self, slots: &mut Table<Operation>, now_ns: u64) -> Option<(u32, u64)> {
        let first = self.heap.first()?;
        if first.at_ns > now_ns {
            return None;
        }
        let due = (first.slot, first.at_ns);
        self.take(slots, 0);
        Some(due)
    }

    fn take(&mut self, slots: &mut Table<Operation>, at: usize) {
        let gone = self.heap.swap_remove(at);
        slots[gone.slot].heap_index = NOWHERE;
        if at < self.heap.len() {
            if at > 0 && self.heap[at].before(&self.heap[(at - 1) / 2]) {
                self.rise(slots, at);
            } else {
                self.sink(slots, at);
            }
        }
    }

    fn rise(&mut self, slots: &mut Table<Operation>, mut at: usize) {
        let item = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if !item.before(&self.heap[parent]) {
                break;
            }
            self.place(slots, at, self.heap[parent]);
            at = parent;
        }
        self.place(slots, at, item);
    }

    fn sink(&mut self, slots: &mut Table<Operation>, mut at: usize) {
        let item = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].before(&self.heap[child]) {
                child += 1;
            }
            if !self.heap[child].before(&item) {
                break;
            }
            self.place(slots, at, self.heap[child]);
            at = child;
        }
        self.place(slots, at, item);
    }

    #[inline]
    fn place(&mut self, slots: &mut Table<Operation>, at: usize, item: Item) {
        self.heap[at] = item;
        slots[item.slot].heap_index = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    fn check_index(deadlines: &Deadlines, slots: &Table<Operation>) {
        for (at, item) in deadlines.heap.iter().enumerate() {
            assert_eq!(slots[item.slot].heap_index, at as u32);
            assert!(at == 0 || !item.before(&deadlines.heap[(at - 1) / 2]));
        }
    }

    #[test]
    fn equal_deadlines_leave_in_order_even_across_the_wrap() {
        let mut slots = Table::new(1000);
        let mut deadlines = Deadlines { heap: Vec::new(), order: u32::MAX - 3 };
        let pushed: Vec<u32> = (0..100)
            .map(|_| {
                let slot = slots.occupy().unwrap().0;
                deadlines.push(&mut slots, slot, 7);
                slot
            })
            .collect();
        let popped: Vec<u32> =
            std::iter::from_fn(|| deadlines.pop_due(&mut slots, 7)).map(|due| due.0).collect();
        assert_eq!(pushed, popped);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Remove(usize),
        Pop(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u64..50).prop_map(Step::Push),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (0u64..50).prop_map(Step::Pop),
        ];
        prop::collection::vec(step, 1..if cfg!(miri) { 50 } else { 400 })
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in steps()) {
            let mut slots = Table::new(1000);
            let mut deadlines = Deadlines::new();
            let mut model: BTreeMap<(u64, usize), u32> = BTreeMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(at) => {
                        let slot = slots.occupy().unwrap().0;
                        deadlines.push(&mut slots, slot, at);
                        model.insert((at, i), slot);
                    }
                    Step::Remove(pick) if !model.is_empty() => {
                        let key = *model.keys().nth(pick % model.len()).unwrap();
                        let slot = model.remove(&key).unwrap();
                        deadlines.remove(&mut slots, slot);
                        deadlines.remove(&mut slots, slot); // no entry: nothing happens
                        slots.vacate(slot);
                    }
                    Step::Remove(_) => {}
                    Step::Pop(now) => {
                        let due = model.first_key_value().filter(|((at, _), _)| *at <= now);
                        let expected = due.map(|(_, slot)| *slot);
                        prop_assert_eq!(deadlines.pop_due(&mut slots, now).map(|due| due.0), expected);
                        if let Some(slot) = expected {
                            model.pop_first();
                            slots.vacate(slot);
                        }
                    }
                }
                check_index(&deadlines, &slots);
                prop_assert_eq!(deadlines.len(), model.len());
                prop_assert_eq!(deadlines.next_ns(), model.keys().next().map(|(at, _)| *at));
            }
        }
    }
}
