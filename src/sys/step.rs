//! Errors with the step that failed.

use std::error::Error;
use std::fmt;
use std::io;

use crate::sys::os_errno;

/// An error of the system, and the call that failed.
#[derive(Debug)]
pub(crate) struct Step {
    call: &'static str,
    error: io::Error,
}

impl Step {
    /// The errno.
    pub(crate) fn errno(&self) -> Option<i32> {
        os_errno(&self.error)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

impl Error for Step {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Adds the failed call to an error.
#[cfg_attr(windows, allow(dead_code))] // building a watcher makes no call there that can fail
#[cold]
pub(crate) fn at(call: &'static str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Step { call, error })
}
