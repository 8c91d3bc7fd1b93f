//! The choice of the mechanism that serves files.

use std::str::FromStr;

/// The environment variable that names the backend.
pub(crate) const VARIABLE: &str = "WINDLASS_FILES";

/// The mechanism that serves file operations which cannot complete at once.
///
/// On Linux, reads of bytes in the page cache are done at once, whichever backend is chosen.
/// Threads do what the chosen backend does not do (opening, renaming, buffered writes …).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileBackend {
    /// The best available: a ring of io_uring, the driver's own or one beside epoll; without a
    /// ring, Linux AIO for direct reads and syncs; threads for the rest. The environment variable
    /// `WINDLASS_FILES` overrides it: `auto`, `aio`, `pool`, `uring`.
    #[default]
    Auto,
    /// Linux AIO for direct reads and for syncs. (Threads do direct writes, which could block in
    /// io_submit(2).) Building fails on a system without Linux AIO, or with a driver other than
    /// epoll.
    Aio,
    /// Threads only.
    Pool,
    /// io_uring for direct I/O, syncs, and uncached reads: the driver's own ring, or one beside
    /// epoll. Building fails on a system without io_uring, or with another driver. If the kernel
    /// later denies io_uring (a seccomp filter loaded meanwhile), operations fail with its errno.
    Uring,
}

/// A name that no backend has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl std::fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} does no work on files: there are auto, aio, pool and uring", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

impl FromStr for FileBackend {
    type Err = UnknownBackend;
    fn from_str(name: &str) -> Result<FileBackend, UnknownBackend> {
        match name {
            "" | "auto" => Ok(FileBackend::Auto),
            "aio" => Ok(FileBackend::Aio),
            "pool" => Ok(FileBackend::Pool),
            "uring" | "io_uring" => Ok(FileBackend::Uring),
            other => Err(UnknownBackend(other.to_owned())),
        }
    }
}
