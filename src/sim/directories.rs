//! Names of files, and their changes that no sync of a directory has put on the disk.
//!
//! ```text
//!   create, link, rename, remove ──▶ unsynced ──sync of the directory──▶ on the disk
//!                                       └─crash──▶ on the disk, or not, change by change
//! ```
//!
//! Invariants: (Z1) a change reaches the disk whole or not at all. (Z2) It never reaches the disk
//! after a later change of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::sim::crash::Crash;
use crate::sim::rng::Rng;

/// What one call does to names: each gets this file, or none.
struct NameChange {
    sets: Vec<(PathBuf, Option<u64>)>,
}

/// All names: those that programs see, and those that the disk has.
#[derive(Default)]
pub(super) struct Directories {
    now: BTreeMap<PathBuf, u64>,
    disk: BTreeMap<PathBuf, u64>,
    unsynced: Vec<NameChange>,
    /// The directories in which there has been a file.
    known: BTreeSet<PathBuf>,
}

/// A directory under the name that names below it give it: the current one has the empty name.
fn normal(directory: &Path) -> PathBuf {
    directory.components().filter(|part| *part != Component::CurDir).collect()
}

fn set(names: &mut BTreeMap<PathBuf, u64>, path: &Path, file: Option<u64>) {
    match file {
        Some(file) => names.insert(path.to_owned(), file),
        None => names.remove(path),
    };
}

impl Directories {
    pub(super) fn get(&self, path: &Path) -> Option<u64> {
        self.now.get(path).copied()
    }

    /// The files that have names, each as often as it has names.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> {
        self.now.values().copied()
    }

    /// Whether a crash could bring back a name of this file.
    pub(super) fn may_return(&self, file: u64) -> bool {
        let changes = self.unsynced.iter().flat_map(|change| &change.sets);
        self.disk.values().any(|other| *other == file)
            || changes.into_iter().any(|(_, other)| *other == Some(file))
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        let path = normal(path);
        path == Path::new("") || self.known.contains(&path)
    }

    /// One call gives these names to files, or takes them away.
    pub(super) fn change(&mut self, sets: Vec<(PathBuf, Option<u64>)>) {
        for (path, file) in &sets {
            set(&mut self.now, path, *file);
            self.known.extend(path.parent().map(normal));
        }
        self.unsynced.push(NameChange { sets });
    }

    /// Puts the chosen changes on the disk, and the earlier ones of the same names (Z2).
    fn write(&mut self, chosen: impl Fn(&NameChange) -> bool) {
        let mut paths = BTreeSet::new();
        let mut written = Vec::new();
        for (index, change) in self.unsynced.iter().enumerate().rev() {
            if chosen(change) || change.sets.iter().any(|(path, _)| paths.contains(path)) {
                paths.extend(change.sets.iter().map(|(path, _)| path.clone()));
                written.push(index);
            }
        }
        for &index in written.iter().rev() {
            for (path, file) in &self.unsynced[index].sets {
                set(&mut self.disk, path, *file);
            }
        }
        for index in written {
            self.unsynced.remove(index);
        }
    }

    /// Syncs a directory. A rename between two directories is on the disk when one of them is
    /// synced.
    pub(super) fn sync(&mut self, directory: &Path) {
        let directory = normal(directory);
        self.write(|change| change.is_in(&directory));
    }

    /// Puts a name on the disk, as the test wants it.
    pub(super) fn settle(&mut self, path: &Path) {
        self.write(|change| change.sets.iter().any(|(of, _)| of == path));
    }

    /// The machine loses its power: each change is on the disk or not.
    pub(super) fn crash(&mut self, odds: f64, rng: &mut Rng, crash: &mut Crash) {
        for change in std::mem::take(&mut self.unsynced) {
            let kept = rng.chance(odds);
            crash.count_name(kept);
            if kept {
                change.sets.iter().for_each(|(path, file)| set(&mut self.disk, path, *file));
            }
        }
        self.now = self.disk.clone();
    }
}

impl NameChange {
    fn is_in(&self, directory: &Path) -> bool {
        self.sets.iter().any(|(path, _)| path.parent().map(normal).as_deref() == Some(directory))
    }
}
