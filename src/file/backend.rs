//! Who does the work on files, by choice.

use std::str::FromStr;

/// The environment variable that names the backend.
pub(crate) const VARIABLE: &str = "WINDLASS_FILES";

/// Who does the work on files that cannot be done at once.
///
/// Reads of what is in the page cache are done at once on Linux, whichever is chosen; what the chosen
/// one does not do (opening, renaming, buffered writes …) threads do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileBackend {
    /// What serves best: a ring of io_uring, the driver's own or one beside epoll; where there is none, Linux
    /// AIO for direct reads and syncs; threads for the rest. Or what the environment variable
    /// `WINDLASS_FILES` names: `auto`, `aio`, `pool`, `uring`.
    #[default]
    Auto,
    /// Linux AIO for direct reads and for syncs. (A direct write could wait in io_submit(2): a thread does it.)
    /// Building fails where it is not there, or the driver is not epoll.
    Aio,
    /// Threads only.
    Pool,
    /// io_uring for direct I/O, syncs, and reads that the page cache does not have: the driver's own ring, or
    /// one beside epoll. Building fails where it is not there, or the driver is neither. Where the kernel
    /// takes no more from some time on (a filter that was loaded later), operations fail with its errno.
    Uring,
}

/// A name that is no backend's.
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
