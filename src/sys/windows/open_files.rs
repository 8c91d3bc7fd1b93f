//! There is no limit of descriptors here that a process could ask for or raise.

use std::io;

/// There is none.
pub(crate) fn most() -> io::Result<Option<u64>> {
    Ok(None)
}

/// As for [`most`].
pub(crate) fn raise() -> io::Result<Option<u64>> {
    most()
}
