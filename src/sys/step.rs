//! Errors with the step that failed.

use std::error::Error;
use std::fmt;
use std::io;

use crate::sys::os_errno;

/// An error of the system, and the call that failed.
#[derive(Debug)]
pub(crate) struct CallError {
    call: &'static str,
    error: io::Error,
    /// The limit that was met, if it is known.
    limit: Option<String>,
}

impl CallError {
    /// The errno.
    pub(crate) fn errno(&self) -> Option<i32> {
        os_errno(&self.error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)?;
        self.limit.as_ref().map_or(Ok(()), |limit| write!(f, "; {limit}"))
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Adds the failed call to an error.
#[cfg_attr(windows, allow(dead_code))] // building a watcher makes no call there that can fail
#[cold]
pub(crate) fn at(call: &'static str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), CallError { call, error, limit: None })
}

/// As [`at`], and how full the limit is that the call has met.
// Only Linux AIO says it.
#[cfg_attr(any(not(target_os = "linux"), windlass_kqueue), allow(dead_code))]
#[cold]
pub(crate) fn at_limit(call: &'static str, error: io::Error, limit: String) -> io::Error {
    io::Error::new(error.kind(), CallError { call, error, limit: Some(limit) })
}

/// The errno in an error of std's: `EINVAL` for input that it has refused by itself.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    match (os_errno(error), error.kind()) {
        (Some(errno), _) => errno,
        (None, io::ErrorKind::InvalidInput) => libc::EINVAL,
        (None, io::ErrorKind::Unsupported) => libc::EOPNOTSUPP,
        (None, _) => libc::EIO,
    }
}
