//! What direct I/O (`O_DIRECT`) asks of a file's requests.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel writes one `statx`, which is read only after it said that it did.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::sys::attempt;

/// `STATX_DIOALIGN` (linux/stat.h, Linux 6.1).
const STATX_DIOALIGN: u32 = 0x2000;

/// What must be aligned, in bytes; a request that is not fails with `EINVAL`. Zeros: the file takes
/// no direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Align {
    /// Of the memory.
    pub(crate) memory: u32,
    /// Of the offset in the file, and of the length of each piece of memory.
    pub(crate) offset: u32,
}

impl Align {
    /// Whether the file takes direct I/O at all.
    pub(crate) fn is_possible(self) -> bool {
        self.memory != 0 && self.offset != 0
    }

    /// Whether the file takes this piece of memory at this offset.
    pub(crate) fn fits(self, start: *const u8, len: usize, offset: u64) -> bool {
        self.is_possible()
            && (start.addr() as u64).is_multiple_of(u64::from(self.memory))
            && (offset | len as u64).is_multiple_of(u64::from(self.offset))
    }
}

/// Asks the file system, whether or not the file is open for direct I/O. `None` where it does not
/// say: before Linux 6.1, on file systems that do not report it, for what is neither a regular file
/// nor a block device (statx(2)).
pub(crate) fn direct_alignment(fd: RawFd) -> Option<Align> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is empty and ends with a zero; room for one statx.
    let answer = attempt!(unsafe {
        libc::syscall(
            libc::SYS_statx,
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            found.as_mut_ptr(),
        )
    });
    if answer < 0 {
        return None;
    }
    // SAFETY: integers, zeroed before the call filled them.
    let found = unsafe { found.assume_init() };
    let said = found.stx_mask & STATX_DIOALIGN != 0;
    said.then_some(Align { memory: found.stx_dio_mem_align, offset: found.stx_dio_offset_align })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_is_of_memory_and_offset_and_length() {
        let align = Align { memory: 4, offset: 512 };
        let at = std::ptr::without_provenance::<u8>;
        assert!(align.fits(at(4), 1024, 512));
        assert!(align.fits(at(8), 0, 0));
        assert!(!align.fits(at(2), 1024, 512));
        assert!(!align.fits(at(4), 1023, 512));
        assert!(!align.fits(at(4), 1024, 511));
        assert!(!Align { memory: 0, offset: 0 }.fits(at(4096), 4096, 4096));
    }

    /// The answer differs between systems; that what cannot be asked has none does not.
    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no statx(2) of an empty path")]
    fn what_is_no_file_has_no_alignment() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(direct_alignment(std::os::fd::AsRawFd::as_raw_fd(&reader)), None);
        assert_eq!(direct_alignment(-1), None);
    }
}
