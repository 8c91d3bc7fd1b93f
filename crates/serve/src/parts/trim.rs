//! Memory that a burst has left: a list gives it back that was much longer once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// The new capacity of a list, if it is to have less.
pub(crate) fn excess(capacity: usize, len: usize) -> Option<usize> {
    (capacity > 4 * len + 256).then_some(2 * len)
}

pub(crate) fn trim<T>(list: &mut Vec<T>) {
    if let Some(capacity) = excess(list.capacity(), list.len()) {
        list.shrink_to(capacity);
    }
}

pub(crate) fn trim_queue<T>(list: &mut VecDeque<T>) {
    if let Some(capacity) = excess(list.capacity(), list.len()) {
        list.shrink_to(capacity);
    }
}

pub(crate) fn trim_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if let Some(capacity) = excess(map.capacity(), map.len()) {
        map.shrink_to(capacity);
    }
}

pub(crate) fn trim_set<K: Eq + Hash>(set: &mut HashSet<K>) {
    if let Some(capacity) = excess(set.capacity(), set.len()) {
        set.shrink_to(capacity);
    }
}

/// Trims a table whose entries keep their places, and the list of its vacant places: the last
/// entries go if they are vacant.
pub(crate) fn trim_places<T>(table: &mut Vec<Option<T>>, vacant: &mut Vec<u32>) {
    let Some(least) = excess(table.capacity(), table.len() - vacant.len()) else { return };
    let end = table.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    table.truncate(end);
    table.shrink_to(least);
    vacant.retain(|&place| (place as usize) < end);
    trim(vacant);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_taken_stay() {
        let mut table: Vec<_> = (0..5000).map(|_| None).collect();
        let mut vacant: Vec<u32> = (0..5000).filter(|at| *at != 70).collect();
        table[70] = Some("here");
        trim_places(&mut table, &mut vacant);
        assert_eq!((table.len(), table[70], vacant.len()), (71, Some("here"), 70));
        assert!(table.capacity() < 300 && vacant.capacity() < 300);
        assert!(vacant.iter().all(|at| *at < 70));
        // A short one stays as it is: it would grow again.
        let (mut table, mut vacant) = (vec![None::<()>; 100], (0..100).collect());
        trim_places(&mut table, &mut vacant);
        assert_eq!((table.len(), vacant.len()), (100, 100));
    }
}
