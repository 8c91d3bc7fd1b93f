//! There is no limit of descriptors here that a process could ask for or raise.

use std::io;

use crate::error::Reason;

/// How many descriptors this process may have open at a time.
///
/// # Errors
/// [`Reason::Unsupported`]: Windows has no such limit.
pub fn max_open_files() -> io::Result<u64> {
    Err(Reason::Unsupported.into())
}

/// Raises the limit of open descriptors as far as the process may.
///
/// # Errors
/// As for [`max_open_files`].
pub fn raise_max_open_files() -> io::Result<u64> {
    max_open_files()
}
