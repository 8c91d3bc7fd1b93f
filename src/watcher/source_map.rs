//! The state that a program keeps for each of its sources.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::words::source::Source;
use crate::words::table;

/// A map from sources to the state that a program keeps for them.
///
/// It is a vector that [`Source::index`] indexes: a look-up costs a bounds check and a comparison,
/// and no hash. It compares the whole name, so a stale name finds nothing, even when another source
/// has taken its index. So does [`Source::NONE`], the source of messages.
///
/// It takes memory for every index up to the highest one that was inserted. A watcher gives out the
/// lowest indices first as long as sources only come, and the last vacated one when they also go.
/// The names must be of one watcher: sources of two watchers may share an index, and then the last
/// one that was inserted displaces the other.
///
/// ```
/// use windlass::{SourceMap, Watcher};
/// let mut watcher = Watcher::new()?;
/// let (a, b) = std::os::unix::net::UnixStream::pair()?;
/// let mut names = SourceMap::new();
/// let first = watcher.attach(a)?;
/// names.insert(first, "first");
/// watcher.abort(first);
/// let second = watcher.attach(b)?; // it takes the index of the first
/// assert_eq!(names.get(second), None);
/// names.insert(second, "second");
/// assert_eq!(names.get(first), None);
/// assert_eq!(names[second], "second");
/// assert_eq!(names.remove(second), Some("second"));
/// assert!(names.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SourceMap<T> {
    entries: Vec<Option<(Source, T)>>,
    len: usize,
}

/// The entry of a source.
///
/// # Panics
/// If the map has no entry of the source, as [`SourceMap::get`] would say.
impl<T> Index<Source> for SourceMap<T> {
    type Output = T;

    fn index(&self, source: Source) -> &T {
        self.get(source).expect("the map has an entry of this source")
    }
}

/// The entry of a source, to change it.
///
/// # Panics
/// If the map has no entry of the source, as [`SourceMap::get_mut`] would say.
impl<T> IndexMut<Source> for SourceMap<T> {
    fn index_mut(&mut self, source: Source) -> &mut T {
        self.get_mut(source).expect("the map has an entry of this source")
    }
}

impl<T> SourceMap<T> {
    /// An empty map. It allocates nothing.
    pub const fn new() -> SourceMap<T> {
        SourceMap { entries: Vec::new(), len: 0 }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is an entry of `source`.
    pub fn contains(&self, source: Source) -> bool {
        self.get(source).is_some()
    }

    /// The value of `source`; `None` for a stale name.
    #[inline]
    pub fn get(&self, source: Source) -> Option<&T> {
        match self.entries.get(source.index() as usize) {
            Some(Some((owner, value))) if *owner == source => Some(value),
            _ => None,
        }
    }

    /// The value of `source`, to change it; `None` for a stale name.
    #[inline]
    pub fn get_mut(&mut self, source: Source) -> Option<&mut T> {
        match self.entries.get_mut(source.index() as usize) {
            Some(Some((owner, value))) if *owner == source => Some(value),
            _ => None,
        }
    }

    /// Keeps `value` for `source`. Returns what was at its index, with the name that it was kept
    /// for: `source` itself, or a source that has ended and was not [removed](SourceMap::remove).
    ///
    /// # Panics
    /// For a name that no watcher gives out: an index of 2^24 or more, as [`Source::NONE`] has it.
    pub fn insert(&mut self, source: Source, value: T) -> Option<(Source, T)> {
        assert!(source.index() <= table::MOST, "{source:?} is the name of no source");
        let index = source.index() as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let before = self.entries[index].replace((source, value));
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes the value of `source` out; `None` for a stale name.
    #[inline]
    pub fn remove(&mut self, source: Source) -> Option<T> {
        self.get(source)?;
        let (_, value) = self.entries[source.index() as usize].take()?;
        self.len -= 1;
        Some(value)
    }

    /// All entries, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (Source, &T)> {
        self.entries.iter().flatten().map(|(source, value)| (*source, value))
    }

    /// All entries, to change their values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Source, &mut T)> {
        self.entries.iter_mut().flatten().map(|(source, value)| (*source, value))
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(Source, &mut T) -> bool) {
        for entry in &mut self.entries {
            if let Some((source, value)) = entry
                && !keep(*source, value)
            {
                // Counted first: dropping the value may panic.
                self.len -= 1;
                *entry = None;
            }
        }
    }

    /// Removes every entry, and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
        self.entries.clear();
    }
}

impl<T> Default for SourceMap<T> {
    fn default() -> SourceMap<T> {
        SourceMap::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for SourceMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    fn name(index: u32, generation: u32) -> Source {
        Source::from_parts(index, NonZeroU32::new(generation).expect("not zero"))
    }

    #[test]
    fn a_stale_name_finds_nothing() {
        let mut map = SourceMap::new();
        assert_eq!(map.insert(name(3, 1), "old"), None);
        assert_eq!(map.get(name(3, 3)), None);
        assert_eq!(map.insert(name(3, 3), "new"), Some((name(3, 1), "old")));
        assert_eq!(map.get(name(3, 1)), None);
        assert_eq!(map.get_mut(name(3, 1)), None);
        assert_eq!(map.remove(name(3, 1)), None);
        assert_eq!(map.len(), 1);
        assert_eq!(map.remove(name(3, 3)), Some("new"));
        assert!(map.is_empty());
        assert!(!map.contains(Source::NONE));
    }

    #[test]
    #[should_panic(expected = "is the name of no source")]
    fn what_names_no_source_is_refused() {
        SourceMap::new().insert(Source::NONE, ());
    }

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(
            steps in prop::collection::vec((0u32..8, 1u32..4, 0u8..4), 1..100)
        ) {
            let mut map = SourceMap::new();
            let mut model: HashMap<Source, usize> = HashMap::new();
            for (i, (index, generation, what)) in steps.into_iter().enumerate() {
                let source = name(index, generation);
                match what {
                    0 | 1 => {
                        // Another name at the index is displaced.
                        let before = model.keys().find(|other| other.index() == index).copied();
                        let before = before.map(|other| (other, model.remove(&other).unwrap()));
                        prop_assert_eq!(map.insert(source, i), before);
                        model.insert(source, i);
                    }
                    2 => prop_assert_eq!(map.remove(source), model.remove(&source)),
                    _ => {
                        map.retain(|kept, value| kept != source && *value % 3 > 0);
                        model.retain(|kept, value| *kept != source && *value % 3 > 0);
                    }
                }
                prop_assert_eq!(map.get(source).copied(), model.get(&source).copied());
                prop_assert_eq!(map.len(), model.len());
                let all: HashMap<Source, usize> = map.iter().map(|(s, v)| (s, *v)).collect();
                prop_assert_eq!(&all, &model);
            }
        }
    }
}
