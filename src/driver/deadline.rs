//! The deadline heap: one for all operations of a driver.
//!
//! A heap of 16-byte entries, each with up to four below it: a cache line. A dense table beside the
//! heap has the position of each operation's entry, by slot. So an operation that ends before its
//! deadline removes its entry in O(log n), and a deadline that never fires costs one push and one
//! removal. (If the operations themselves kept the position, every step of an entry would touch
//! another cache line.) Entries of equal deadline leave in the order in which they came.

use crate::words::table::NIL;

/// How many entries stand below one.
const BELOW: usize = 4;

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
    /// The position of each operation's entry in the heap, or [`NIL`], by slot.
    places: Vec<u32>,
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
    pub fn push(&mut self, slot: u32, at_ns: u64) {
        if slot as usize >= self.places.len() {
            self.places.resize(slot as usize + 1, NIL);
        }
        debug_assert_eq!(self.places[slot as usize], NIL);
        let item = Item { at_ns, order: self.order, slot };
        self.order = self.order.wrapping_add(1);
        self.heap.push(item);
        self.rise(self.heap.len() - 1, item);
    }

    /// Takes the deadline of the operation in `slot` out, if it has one.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        if let Some(&at) = self.places.get(slot as usize)
            && at != NIL
        {
            self.take(at as usize);
        }
    }

    /// Gives the operation in `slot` another deadline, or its first one. It comes after equal
    /// deadlines.
    pub fn set(&mut self, slot: u32, at_ns: u64) {
        self.remove(slot);
        self.push(slot, at_ns);
    }

    /// Takes out the earliest deadline if it is not after `now_ns`: the slot of its operation, and
    /// when it was.
    #[inline]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        let first = self.heap.first()?;
        if first.at_ns > now_ns {
            return None;
        }
        let due = (first.slot, first.at_ns);
        self.take(0);
        Some(due)
    }

    fn take(&mut self, at: usize) {
        let last = self.heap.pop().expect("there is one at `at`");
        let Some(gone) = self.heap.get(at) else {
            self.places[last.slot as usize] = NIL;
            return;
        };
        self.places[gone.slot as usize] = NIL;
        if at > 0 && last.before(&self.heap[(at - 1) / BELOW]) {
            self.rise(at, last);
        } else {
            self.sink(at, last);
        }
    }

    /// Puts `item` at `at` or above it.
    fn rise(&mut self, mut at: usize, item: Item) {
        while at > 0 {
            let above = (at - 1) / BELOW;
            if !item.before(&self.heap[above]) {
                break;
            }
            self.place(at, self.heap[above]);
            at = above;
        }
        self.place(at, item);
    }

    /// Puts `item` at `at` or below it.
    fn sink(&mut self, mut at: usize, item: Item) {
        loop {
            let first = BELOW * at + 1;
            let end = (first + BELOW).min(self.heap.len());
            let Some(below) = self.heap.get(first..end) else { break };
            let Some((i, least)) =
                below.iter().enumerate().reduce(|a, b| if b.1.before(a.1) { b } else { a })
            else {
                break;
            };
            let least = *least;
            if !least.before(&item) {
                break;
            }
            self.place(at, least);
            at = first + i;
        }
        self.place(at, item);
    }

    #[inline]
    fn place(&mut self, at: usize, item: Item) {
        self.heap[at] = item;
        self.places[item.slot as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use crate::op::operation::Operation;
    use crate::words::table::Table;

    fn check_places(deadlines: &Deadlines) {
        for (at, item) in deadlines.heap.iter().enumerate() {
            assert_eq!(deadlines.places[item.slot as usize], at as u32);
            assert!(at == 0 || !item.before(&deadlines.heap[(at - 1) / BELOW]));
        }
        let placed = deadlines.places.iter().filter(|&&at| at != NIL).count();
        assert_eq!(placed, deadlines.heap.len());
    }

    #[test]
    fn equal_deadlines_leave_in_order_even_across_the_wrap() {
        let mut deadlines = Deadlines { order: u32::MAX - 3, ..Deadlines::new() };
        (0..100).for_each(|slot| deadlines.push(slot, 7));
        let popped: Vec<u32> =
            std::iter::from_fn(|| deadlines.pop_due(7)).map(|due| due.0).collect();
        assert_eq!(popped, (0..100).collect::<Vec<_>>());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Set(usize, u64),
        Remove(usize),
        Pop(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u64..50).prop_map(Step::Push),
            2 => (any::<usize>(), 0u64..50).prop_map(|(pick, at)| Step::Set(pick, at)),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (0u64..50).prop_map(Step::Pop),
        ];
        prop::collection::vec(step, 1..if cfg!(miri) { 50 } else { 400 })
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in steps()) {
            let mut slots = Table::<Operation>::new(1000);
            let mut deadlines = Deadlines::new();
            let mut model: BTreeMap<(u64, usize), u32> = BTreeMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(at) => {
                        let slot = slots.occupy().unwrap().0;
                        deadlines.push(slot, at);
                        model.insert((at, i), slot);
                    }
                    Step::Set(pick, at) if !model.is_empty() => {
                        let key = *model.keys().nth(pick % model.len()).unwrap();
                        let slot = model.remove(&key).unwrap();
                        deadlines.set(slot, at);
                        model.insert((at, i), slot);
                    }
                    Step::Set(..) => {}
                    Step::Remove(pick) if !model.is_empty() => {
                        let key = *model.keys().nth(pick % model.len()).unwrap();
                        let slot = model.remove(&key).unwrap();
                        deadlines.remove(slot);
                        deadlines.remove(slot); // no entry: nothing happens
                        slots.vacate(slot);
                    }
                    Step::Remove(_) => {}
                    Step::Pop(now) => {
                        let due = model.first_key_value().filter(|((at, _), _)| *at <= now);
                        let expected = due.map(|(_, slot)| *slot);
                        prop_assert_eq!(deadlines.pop_due(now).map(|due| due.0), expected);
                        if let Some(slot) = expected {
                            model.pop_first();
                            slots.vacate(slot);
                        }
                    }
                }
                check_places(&deadlines);
                prop_assert_eq!(deadlines.len(), model.len());
                prop_assert_eq!(deadlines.next_ns(), model.keys().next().map(|(at, _)| *at));
            }
        }
    }
}
