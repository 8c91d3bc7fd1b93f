//! The facts that a driver remembers of a file, so that it does not try again what the kernel has
//! refused once.

use crate::sys::fd::RawFd;
use crate::sys::target::Target;
use crate::sys::{OpenMode, fs, stat};

/// The facts of a file, packed into one word of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts(u64);

const KNOWN: u64 = 1;
const DIRECT: u64 = 1 << 1;
const APPENDS: u64 = 1 << 2;
const NOT_NOW: u64 = 1 << 3;
const REFUSED: u64 = 1 << 4;
const SYNCHRONOUS: u64 = 1 << 5;
/// The alignments of memory and of offsets, as logarithms.
const MEMORY_SHIFT: u32 = 8;
const OFFSET_SHIFT: u32 = 16;
/// An offset that no file reaches.
const BEYOND: u64 = 1 << 62;

impl Facts {
    /// The facts of a file: how it is open, and the alignments of memory and offsets for direct I/O
    /// (powers of two; `None` if the file does not say).
    pub(crate) fn new(how: OpenMode, alignment: Option<(u32, u32)>) -> Facts {
        // Alignments that every disk takes.
        let (memory, offset) = alignment.unwrap_or((4096, 4096));
        let log = |size: u32| u64::from(size.max(1).ilog2());
        let mut bits = KNOWN | log(memory) << MEMORY_SHIFT | log(offset) << OFFSET_SHIFT;
        // Direct reads bypass the page cache, so we do not ask the cache for their bytes.
        bits |= if how.direct { DIRECT | NOT_NOW } else { 0 };
        bits |= if how.appends { APPENDS } else { 0 };
        bits |= if how.synchronous { SYNCHRONOUS } else { 0 };
        Facts(bits)
    }

    /// The facts of a file that bypasses the page cache. Memory addresses and offsets of its reads
    /// and writes must be multiples of these numbers of bytes, both powers of two. (For authors of
    /// kernels.)
    pub fn direct(memory: u32, offset: u32) -> Facts {
        let how = OpenMode { direct: true, ..OpenMode::default() };
        Facts::new(how, Some((memory.next_power_of_two(), offset.next_power_of_two())))
    }

    /// Asks the system for the facts of a file.
    pub(crate) fn of(fd: RawFd) -> Facts {
        let how = fs::how_open(fd);
        if !how.direct {
            return Facts::new(how, None);
        }
        let alignment = stat::known_alignment(fd).map(|size| (size.memory, size.offset));
        let mut facts = Facts::new(how, alignment);
        // A ring asks no file system whether it can keep from waiting: it would find out at the
        // first write. A read beyond the end of any file asks, and moves nothing. A file that
        // cannot be read is trusted if it says its alignment, which those that wait do not.
        let refused = match -fs::read_now(fd, Target::from_slice(&mut [0]), BEYOND) as i32 {
            libc::EOPNOTSUPP => true,
            libc::EBADF => alignment.is_none(),
            _ => false,
        };
        if refused {
            facts.refuse();
        }
        facts
    }

    pub(crate) const fn from_bits(bits: u64) -> Facts {
        Facts(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Whether the system was asked for the facts.
    pub const fn is_known(self) -> bool {
        self.has(KNOWN)
    }

    /// Whether the file bypasses the page cache.
    pub const fn is_direct(self) -> bool {
        self.has(DIRECT)
    }

    /// Whether writes go to the end of the file. Then a write that was done in part must not start
    /// again.
    pub const fn appends(self) -> bool {
        self.has(APPENDS)
    }

    /// Whether a write holds the lock of the file from its start to its end. Writes into the page
    /// cache do so, and do not wait for the disk. (Synchronous writes wait for the disk without the
    /// lock, and share their waits.)
    pub(crate) const fn locks_for_writes(self) -> bool {
        !self.has(DIRECT | SYNCHRONOUS)
    }

    /// Whether a read may find its bytes without waiting.
    #[inline(always)]
    pub(crate) const fn may_read_now(self) -> bool {
        !self.has(NOT_NOW)
    }

    /// Notes why a read could not be tried without waiting: with `EOPNOTSUPP` the file system has
    /// answered, else the system has no such call.
    pub(crate) fn cannot_read_now(&mut self, errno: i32) {
        self.0 |= NOT_NOW;
        if errno == libc::EOPNOTSUPP {
            self.refuse();
        }
    }

    /// Whether the file system cannot read and write without waiting. Then the kernel would wait
    /// in the call that hands it the work, and threads do it.
    pub(crate) const fn is_refused(self) -> bool {
        self.has(REFUSED)
    }

    /// Notes that the file system cannot read and write without waiting.
    pub(crate) fn refuse(&mut self) {
        self.0 |= REFUSED;
    }

    /// Offsets and lengths of direct I/O must be multiples of this number of bytes.
    pub(crate) const fn block(self) -> u64 {
        1 << (self.0 >> OFFSET_SHIFT & 0xff)
    }

    /// Whether direct I/O takes this memory at this offset.
    pub(crate) fn fits(self, start: *const u8, len: usize, offset: u64) -> bool {
        let memory = 1 << (self.0 >> MEMORY_SHIFT & 0xff);
        start.addr().is_multiple_of(memory) && (offset | len as u64).is_multiple_of(self.block())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_a_file() {
        let mut facts = Facts::new(OpenMode { appends: true, ..OpenMode::default() }, None);
        assert!(facts.is_known() && facts.appends() && !facts.is_direct());
        assert!(facts.locks_for_writes());
        assert!(facts.may_read_now() && !facts.is_refused());
        facts.cannot_read_now(libc::ENOSYS);
        assert!(!facts.may_read_now() && !facts.is_refused());
        facts.cannot_read_now(libc::EOPNOTSUPP);
        assert_eq!(Facts::from_bits(facts.bits()), facts);
        assert!(!facts.may_read_now() && facts.is_refused());

        let facts = Facts::new(OpenMode { synchronous: true, ..OpenMode::default() }, None);
        assert!(!facts.locks_for_writes() && facts.may_read_now());

        let facts = Facts::new(OpenMode { direct: true, ..OpenMode::default() }, Some((4, 512)));
        assert!(facts.is_direct() && !facts.may_read_now() && !facts.locks_for_writes());
        let memory = |start: usize| std::ptr::without_provenance(1024 + start);
        assert!(facts.fits(memory(4), 1024, 512));
        for (start, len, offset) in [(2, 1024, 512), (4, 1000, 512), (4, 1024, 100)] {
            assert!(!facts.fits(memory(start), len, offset));
        }
        assert!(!Facts::default().is_known());
    }
}
