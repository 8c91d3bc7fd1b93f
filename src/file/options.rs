//! How files are opened and copied, and which access a program asks about.

use std::io;
use std::ops::BitOr;

use crate::sys::{fs, os_error};

/// How a file is opened: the options of [`std::fs::OpenOptions`], and those that databases need.
///
/// Descriptors are always closed on exec.
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
const NONBLOCKING: u16 = 1 << 9;

impl OpenOptions {
    /// No option is set. Opening needs at least one of `read`, `write` and `append`.
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

    /// Opens the file for reading.
    pub const fn read(self, on: bool) -> OpenOptions {
        self.with(READ, on)
    }

    /// Opens the file for writing.
    pub const fn write(self, on: bool) -> OpenOptions {
        self.with(WRITE, on)
    }

    /// Each write goes to the end of the file (`O_APPEND`). On Linux this holds for writes at an
    /// offset, too: Linux ignores the offset (pwrite(2), "BUGS"). Other systems write at the
    /// offset.
    pub const fn append(self, on: bool) -> OpenOptions {
        self.with(APPEND, on)
    }

    /// Creates the file if it does not exist. Needs `write` or `append`.
    pub const fn create(self, on: bool) -> OpenOptions {
        self.with(CREATE, on)
    }

    /// Creates the file, which must not exist (`EEXIST`). Needs `write` or `append`.
    pub const fn create_new(self, on: bool) -> OpenOptions {
        self.with(CREATE_NEW, on)
    }

    /// Truncates the file to 0 bytes. Needs `write`.
    pub const fn truncate(self, on: bool) -> OpenOptions {
        self.with(TRUNCATE, on)
    }

    /// Bypasses the page cache (`O_DIRECT`; `F_NOCACHE` on macOS, which is a hint and aligns
    /// nothing). On Linux and FreeBSD, reads and writes of the file then fail with `EINVAL` unless
    /// their memory, lengths and offsets are aligned: see [`AlignedBuf`](crate::AlignedBuf) and
    /// [`Metadata::direct`](crate::fs::Metadata::direct). On a file system without direct I/O, and
    /// on Windows, opening fails with `EINVAL`.
    pub const fn direct(self, on: bool) -> OpenOptions {
        self.with(DIRECT, on)
    }

    /// When a write completes, its bytes and all metadata are on the disk (`O_SYNC`).
    pub const fn sync(self, on: bool) -> OpenOptions {
        self.with(SYNC, on)
    }

    /// When a write completes, its bytes and the metadata that reading them needs are on the disk
    /// (`O_DSYNC`).
    pub const fn dsync(self, on: bool) -> OpenOptions {
        self.with(DSYNC, on)
    }

    /// Does not wait for the other end of a FIFO, or for a device (`O_NONBLOCK`). Reads and writes
    /// of regular files are as without it. Windows has no such files, and ignores it.
    pub const fn nonblocking(self, on: bool) -> OpenOptions {
        self.with(NONBLOCKING, on)
    }

    /// The permissions of a file that is created, less the umask. Default 0o666. Windows has
    /// permissions of its own.
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

    /// The permissions of a file that is created, less the umask: the third argument of open(2).
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
    /// `EINVAL` for options that contradict each other, as in std.
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
            (NONBLOCKING, fs::NONBLOCKING),
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

    /// The target must not exist (`EEXIST`).
    pub const fn exclusive(mut self, on: bool) -> CopyOptions {
        self.exclusive = on;
        self
    }

    /// The copy must share its blocks with the original (btrfs, XFS …; Linux only); otherwise it
    /// fails with `EOPNOTSUPP`.
    pub const fn reflink_required(mut self, on: bool) -> CopyOptions {
        self.reflink = on;
        self
    }
}

/// Which access to a file is asked about: access(2), with the *real* user and group of the process.
///
/// ```
/// use windlass::fs::Access;
/// let both = Access::READ | Access::WRITE;
/// assert_eq!(both, Access::WRITE | Access::READ | Access::EXISTS);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(i32);

impl Access {
    /// The file exists.
    pub const EXISTS: Access = Access(fs::F_OK);
    /// The file may be read.
    pub const READ: Access = Access(fs::R_OK);
    /// The file may be written.
    pub const WRITE: Access = Access(fs::W_OK);
    /// The file may be executed; a directory may be searched.
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
            (new().read(true).nonblocking(true), fs::NONBLOCKING),
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
