//! How files are opened, copied and asked after.

use std::io;
use std::ops::BitOr;

use crate::sys::{fs, os_error};

/// How a file is opened; the words of [`std::fs::OpenOptions`], and what databases need.
///
/// Descriptors are closed on exec, always.
///
/// ```
/// use windlass::fs::OpenOptions;
/// let log = OpenOptions::new().append(true).create(true).dsync(true).mode(0o600);
/// assert_eq!(log, log.create(true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenOptions {
    bits: u16,
    mode: u32,
    custom: i32,
}

const READ: u16 = 1;
const WRITE: u16 = 1 << 1;
const APPEND: u16 = 1 << 2;
const CREATE: u16 = 1 << 3;
const CREATE_NEW: u16 = 1 << 4;
const TRUNCATE: u16 = 1 << 5;
const DIRECT: u16 = 1 << 6;
const SYNC: u16 = 1 << 7;
const DSYNC: u16 = 1 << 8;

impl OpenOptions {
    /// Nothing set; opening needs at least one of `read`, `write` and `append`.
    pub const fn new() -> OpenOptions {
        OpenOptions { bits: 0, mode: 0o666, custom: 0 }
    }

    const fn with(mut self, bit: u16, on: bool) -> OpenOptions {
        self.bits = if on { self.bits | bit } else { self.bits & !bit };
        self
    }

    const fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    /// It can be read.
    pub const fn read(self, on: bool) -> OpenOptions {
        self.with(READ, on)
    }

    /// It can be written.
    pub const fn write(self, on: bool) -> OpenOptions {
        self.with(WRITE, on)
    }

    /// Each write goes to the end of the file (`O_APPEND`). On Linux that is so for writes at an
    /// offset, too: the offset is ignored (pwrite(2), "BUGS"); elsewhere it is obeyed.
    pub const fn append(self, on: bool) -> OpenOptions {
        self.with(APPEND, on)
    }

    /// It is made if it is not there. Needs `write` or `append`.
    pub const fn create(self, on: bool) -> OpenOptions {
        self.with(CREATE, on)
    }

    /// It is made, and must not be there (`EEXIST`). Needs `write` or `append`.
    pub const fn create_new(self, on: bool) -> OpenOptions {
        self.with(CREATE_NEW, on)
    }

    /// The file loses its contents. Needs `write`.
    pub const fn truncate(self, on: bool) -> OpenOptions {
        self.with(TRUNCATE, on)
    }

    /// Bypasses the page cache (`O_DIRECT`; `F_NOCACHE` on macOS, which is a hint and aligns
    /// nothing). On Linux and FreeBSD memory, lengths and offsets are aligned then, see
    /// [`AlignedBuf`](crate::AlignedBuf) and [`Metadata::direct`](crate::fs::Metadata::direct), or
    /// fail with `EINVAL`; so does the opening on a file system without it, and on Windows.
    pub const fn direct(self, on: bool) -> OpenOptions {
        self.with(DIRECT, on)
    }

    /// Each write is on the disk with all metadata when it completes (`O_SYNC`).
    pub const fn sync(self, on: bool) -> OpenOptions {
        self.with(SYNC, on)
    }

    /// Each write is on the disk with what reading it back needs when it completes (`O_DSYNC`).
    pub const fn dsync(self, on: bool) -> OpenOptions {
        self.with(DSYNC, on)
    }

    /// The permissions of a file that is made, less the umask; 0o666 if not said. Windows has its
    /// own.
    pub const fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// More flags of open(2), such as `O_NOFOLLOW`; on Windows those of CreateFile.
    pub const fn custom_flags(mut self, flags: i32) -> OpenOptions {
        self.custom = flags;
        self
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.has(DIRECT)
    }

    pub(crate) fn is_synchronous(&self) -> bool {
        self.has(SYNC | DSYNC)
    }

    /// The permissions of a file that is made, less the umask: the third argument of open(2).
    pub const fn permissions(&self) -> u32 {
        self.mode
    }

    /// The flags of open(2), the [custom](OpenOptions::custom_flags) ones among them; on Windows
    /// those of its C library (for authors of drivers).
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// let append = OpenOptions::new().append(true).open_flags()?;
    /// # #[cfg(unix)]
    /// assert_eq!(append & libc::O_APPEND, libc::O_APPEND);
    /// assert!(OpenOptions::new().open_flags().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for options that contradict each other, as std has it.
    pub fn open_flags(&self) -> io::Result<i32> {
        self.flags().map_err(os_error)
    }

    /// As [`open_flags`](OpenOptions::open_flags), or an errno.
    pub(crate) fn flags(&self) -> Result<i32, i32> {
        let writes = self.has(WRITE | APPEND);
        let access = match (self.has(READ), writes) {
            (true, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
            (false, false) => return Err(libc::EINVAL),
        };
        let makes = self.has(CREATE | CREATE_NEW | TRUNCATE);
        let keeps = self.has(APPEND) && !self.has(CREATE_NEW);
        if makes && !writes || keeps && self.has(TRUNCATE) {
            return Err(libc::EINVAL);
        }
        let table = [
            (APPEND, libc::O_APPEND),
            (CREATE, libc::O_CREAT),
            (CREATE_NEW, libc::O_CREAT | libc::O_EXCL),
            (TRUNCATE, libc::O_TRUNC),
            (DIRECT, fs::DIRECT),
            (SYNC, fs::SYNC),
            (DSYNC, fs::DSYNC),
        ];
        let set = table.iter().filter(|(bit, _)| self.has(*bit));
        let custom = self.custom & !fs::ACCESS_MODE | fs::CLOEXEC;
        Ok(set.fold(access | custom, |flags, (_, flag)| flags | flag))
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

/// How a file is copied.
///
/// ```
/// use windlass::fs::CopyOptions;
/// let backup = CopyOptions::new().exclusive(true);
/// assert_ne!(backup, CopyOptions::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyOptions {
    pub(crate) exclusive: bool,
    pub(crate) reflink: bool,
}

impl CopyOptions {
    /// Replaces an existing file, and shares blocks where the file system can.
    pub const fn new() -> CopyOptions {
        CopyOptions { exclusive: false, reflink: false }
    }

    /// The target must not be there (`EEXIST`).
    pub const fn exclusive(mut self, on: bool) -> CopyOptions {
        self.exclusive = on;
        self
    }

    /// The copy must share its blocks with the original (btrfs, XFS …; Linux only); `EOPNOTSUPP`
    /// where it cannot.
    pub const fn reflink_required(mut self, on: bool) -> CopyOptions {
        self.reflink = on;
        self
    }
}

/// What may be done to a file: access(2), as the process' *real* user and group.
///
/// ```
/// use windlass::fs::Access;
/// let both = Access::READ | Access::WRITE;
/// assert_eq!(both, Access::WRITE | Access::READ | Access::EXISTS);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(i32);

impl Access {
    /// It is there.
    pub const EXISTS: Access = Access(fs::F_OK);
    /// It may be read.
    pub const READ: Access = Access(fs::R_OK);
    /// It may be written.
    pub const WRITE: Access = Access(fs::W_OK);
    /// It may be executed; of a directory, searched.
    pub const EXECUTE: Access = Access(fs::X_OK);

    pub(crate) const fn bits(self) -> i32 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_open_and_contradictions_are_refused() {
        let new = OpenOptions::new;
        let on_exec = fs::CLOEXEC;
        for (options, flags) in [
            (new().read(true), libc::O_RDONLY),
            (new().read(true).write(true), libc::O_RDWR),
            (new().append(true).create(true), libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT),
            (new().write(true).create_new(true), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL),
            (new().write(true).truncate(true), libc::O_WRONLY | libc::O_TRUNC),
            (new().write(true).sync(true).sync(false).dsync(true), libc::O_WRONLY | fs::DSYNC),
            (new().read(true).custom_flags(fs::SYNC | libc::O_RDWR), fs::SYNC),
        ] {
            assert_eq!(options.flags(), Ok(flags | on_exec), "{options:?}");
        }
        for bad in [
            new(),
            new().read(true).create(true),
            new().read(true).truncate(true),
            new().append(true).truncate(true),
            new().create_new(true),
        ] {
            assert_eq!(bad.flags(), Err(libc::EINVAL), "{bad:?}");
        }
    }
}
