//! How many descriptors the process may have open: every connection is one.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit; `None` on a system without one.
pub(crate) fn most() -> io::Result<Option<u64>> {
    Ok(Some(widened(getrlimit(Resource::RLIMIT_NOFILE)?.0)))
}

/// Raises the soft limit to the hard one, and answers what it then is. macOS answers `EINVAL`
/// beyond `OPEN_MAX` where the hard limit is none: that is then tried.
pub(crate) fn raise() -> io::Result<Option<u64>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        const OPEN_MAX: libc::rlim_t = 10_240;
        setrlimit(Resource::RLIMIT_NOFILE, OPEN_MAX.clamp(soft, hard), hard)?;
    }
    most()
}

// The width and sign of `rlim_t` differ between systems.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
fn widened(limit: libc::rlim_t) -> u64 {
    limit as u64
}
