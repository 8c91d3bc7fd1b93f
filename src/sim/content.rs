//! The bytes of a file, with holes, by sectors of the disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::memory::buf::Target;

/// The bytes of a page of the page cache.
pub(super) const PAGE: usize = 4096;
/// What a disk writes whole or not at all, in bytes.
pub(super) const SECTOR: usize = 512;
const SECTORS: u64 = (PAGE / SECTOR) as u64;

/// The units of this size in which these bytes lie.
fn units(offset: u64, len: u64, size: usize) -> Range<u64> {
    let end = offset.saturating_add(len);
    offset / size as u64..end.div_ceil(size as u64).max(offset / size as u64)
}

/// The pages in which these bytes lie.
pub(super) fn pages(offset: u64, len: usize) -> Range<u64> {
    units(offset, len as u64, PAGE)
}

/// The sectors in which these bytes lie.
pub(super) fn sectors(offset: u64, len: usize) -> Range<u64> {
    units(offset, len as u64, SECTOR)
}

/// Bytes, with holes.
#[derive(Clone, Default)]
pub(super) struct Content {
    len: u64,
    /// The pages that are no holes. A disk may have bytes behind the length: they count when it
    /// grows.
    pages: BTreeMap<u64, Rc<[u8; PAGE]>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// How many pages are no holes.
    pub(super) fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Copies `count` bytes from `offset` on, all of which exist.
    pub(super) fn read(&self, mut offset: u64, to: &mut Target<'_>, count: usize) {
        let mut moved = 0;
        while moved < count {
            let (page, from) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
            let part = (PAGE - from).min(count - moved);
            let bytes = self.pages.get(&page).map_or(&[0; PAGE], |page| &**page);
            to.skip(moved).write(&bytes[from..from + part]);
            moved += part;
            offset += part as u64;
        }
    }

    /// Writes bytes. The content grows to their end.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len() as u64);
        self.put(offset, bytes);
    }

    /// Writes bytes. The length stays.
    pub(super) fn put(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, from) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
            let (part, rest) = bytes.split_at((PAGE - from).min(bytes.len()));
            let page = self.pages.entry(page).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(page)[from..from + part.len()].copy_from_slice(part);
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    /// Makes a sector equal to that of `from`.
    pub(super) fn copy_sector(&mut self, from: &Content, sector: u64) {
        let (page, start) = (sector / SECTORS, (sector % SECTORS) as usize * SECTOR);
        match from.pages.get(&page) {
            Some(bytes) => self.put(sector * SECTOR as u64, &bytes[start..start + SECTOR]),
            None => {
                if let Some(page) = self.pages.get_mut(&page) {
                    Rc::make_mut(page)[start..start + SECTOR].fill(0);
                }
            }
        }
    }

    /// Sets the length. Bytes behind it are gone. Returns the sectors that had such bytes.
    pub(super) fn set_len(&mut self, len: u64) -> impl Iterator<Item = u64> + use<> {
        let gone = self.pages.split_off(&len.div_ceil(PAGE as u64));
        let cut = self.pages.get_mut(&(len / PAGE as u64)).map(|page| {
            Rc::make_mut(page)[(len % PAGE as u64) as usize..].fill(0);
            len / SECTOR as u64..(len / PAGE as u64 + 1) * SECTORS
        });
        self.len = len;
        let gone = gone.into_keys().flat_map(|page| page * SECTORS..(page + 1) * SECTORS);
        gone.chain(cut.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0; content.len() as usize];
        let count = bytes.len();
        content.read(0, &mut Target::from_slice(&mut bytes), count);
        bytes
    }

    #[test]
    fn sectors_are_copied_one_by_one() {
        let (mut from, mut to) = (Content::default(), Content::default());
        from.write(0, &[1; 10_000]);
        to.write(0, &[2; 10_000]);
        to.copy_sector(&from, 9); // in the second page
        to.copy_sector(&Content::default(), 0); // a hole
        let mut wanted = vec![2; 10_000];
        wanted[9 * SECTOR..10 * SECTOR].fill(1);
        wanted[..SECTOR].fill(0);
        assert!(bytes(&to) == wanted);
        assert_eq!(sectors(511, 2), 0..2);
        assert_eq!(sectors(512, 0), 1..1);
    }

    #[test]
    fn what_is_behind_the_length_is_gone() {
        let mut content = Content::default();
        content.write(0, &[1; 10_000]);
        let gone: Vec<u64> = content.set_len(5_000).collect();
        assert_eq!(gone, (16..24).chain(9..16).collect::<Vec<_>>());
        content.set_len(10_000).for_each(drop);
        let mut wanted = vec![1; 5_000];
        wanted.resize(10_000, 0);
        assert!(bytes(&content) == wanted);
    }
}
