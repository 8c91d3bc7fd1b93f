//! A file: the bytes that programs read, and those that the disk has.
//!
//! ```text
//!   write ──▶ dirty ──sync──▶ on the disk
//!               │ │
//!               │ └─failed sync──▶ lost: clean, but not on the disk
//!               └─crash──▶ on the disk, or not, sector by sector
//! ```
//!
//! A *sector* is dirty from a write to the next sync. A *page* is cached from a read or a write
//! until the cache is dropped.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use crate::sim::content::{Content, SECTOR, pages, sectors};
use crate::sim::crash::Crash;
use crate::sim::rng::Rng;

/// A file or a directory, with or without a name.
#[derive(Default)]
pub(super) struct Inode {
    /// What programs read.
    pub(super) now: Content,
    disk: Content,
    dirty: BTreeSet<u64>,
    /// Sectors that a failed sync has left clean, although the disk does not have them.
    lost: BTreeSet<u64>,
    pub(super) cached: BTreeSet<u64>,
    /// The name of a directory.
    pub(super) directory: Option<PathBuf>,
    pub(super) names: u64,
    pub(super) opens: u64,
    pub(super) mode: u32,
    pub(super) made_ns: u64,
    pub(super) modified_ns: u64,
}

impl Inode {
    pub(super) fn new(mode: u32, now_ns: u64) -> Inode {
        Inode { mode, made_ns: now_ns, modified_ns: now_ns, ..Inode::default() }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], now_ns: u64, rng: &mut Rng) {
        let touched = sectors(offset, bytes.len());
        // The disk may have written the last version of a dirty sector before this one.
        for sector in touched.clone() {
            if self.dirty.contains(&sector) && rng.chance(0.5) {
                self.disk.copy_sector(&self.now, sector);
            }
        }
        self.may_write_length(rng);
        self.now.write(offset, bytes);
        self.dirty.extend(touched.clone());
        self.lost.retain(|sector| !touched.contains(sector));
        self.cached.extend(pages(offset, bytes.len()));
        self.modified_ns = now_ns;
    }

    pub(super) fn set_len(&mut self, len: u64, now_ns: u64, rng: &mut Rng) {
        self.may_write_length(rng);
        self.dirty.extend(self.now.set_len(len));
        self.lost.retain(|&sector| sector * (SECTOR as u64) < len);
        self.modified_ns = now_ns;
    }

    /// The disk may get the present length before it changes again.
    fn may_write_length(&mut self, rng: &mut Rng) {
        if self.now.len() != self.disk.len() && rng.chance(0.5) {
            self.disk.set_len(self.now.len()).for_each(drop);
        }
    }

    /// Puts these sectors and the length on the disk.
    pub(super) fn sync(&mut self, range: Range<u64>) {
        self.disk.set_len(self.now.len()).for_each(drop);
        let mut rest = self.dirty.split_off(&range.start);
        let mut behind = rest.split_off(&range.end);
        for sector in rest {
            self.disk.copy_sector(&self.now, sector);
        }
        self.dirty.append(&mut behind);
    }

    /// A sync fails: some of the dirty sectors are on the disk. The others count as clean, although
    /// they are not.
    pub(super) fn fail_to_sync(&mut self, rng: &mut Rng) {
        for sector in std::mem::take(&mut self.dirty) {
            if rng.chance(0.5) {
                self.disk.copy_sector(&self.now, sector);
            } else {
                self.lost.insert(sector);
            }
        }
    }

    /// The cache is dropped: programs read from the disk what a failed sync has lost.
    pub(super) fn evict(&mut self) {
        self.cached.clear();
        for sector in std::mem::take(&mut self.lost) {
            self.now.copy_sector(&self.disk, sector);
        }
    }

    /// The machine loses its power while this write is under way: any of its sectors may be on the
    /// disk.
    pub(super) fn tear(&mut self, offset: u64, bytes: &[u8], odds: f64, rng: &mut Rng) {
        let end = offset + bytes.len() as u64;
        for sector in sectors(offset, bytes.len()) {
            let start = (sector * SECTOR as u64).max(offset);
            let stop = ((sector + 1) * SECTOR as u64).min(end);
            if rng.chance(odds) {
                self.disk.copy_sector(&self.now, sector);
                self.disk.put(start, &bytes[(start - offset) as usize..(stop - offset) as usize]);
                // Dirty bytes of this sector went to the disk together with these.
                self.dirty.remove(&sector);
            }
        }
        if end > self.disk.len() && rng.chance(odds) {
            self.disk.set_len(end).for_each(drop);
        }
    }

    /// The machine loses its power: each dirty sector is on the disk or not, and so is the length.
    pub(super) fn crash(&mut self, odds: f64, rng: &mut Rng, crash: &mut Crash) {
        let len = self.now.len();
        if len != self.disk.len() {
            let kept = rng.chance(odds);
            crash.count_length(kept);
            if kept {
                self.disk.set_len(len).for_each(drop);
            }
        }
        for sector in std::mem::take(&mut self.dirty) {
            let kept = rng.chance(odds);
            crash.count_sector(kept);
            if kept {
                self.disk.copy_sector(&self.now, sector);
            }
        }
        // What the disk has behind its length is gone.
        self.disk.set_len(self.disk.len()).for_each(drop);
        self.now = self.disk.clone();
        self.lost.clear();
        self.cached.clear();
    }
}
