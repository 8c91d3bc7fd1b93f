//! How many descriptors the process may have open: every connection is one.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many descriptors this process may have open at a time: the soft `RLIMIT_NOFILE`, often 1024.
///
/// # Errors
/// What getrlimit(2) reports.
pub fn max_open_files() -> io::Result<u64> {
    Ok(widened(getrlimit(Resource::RLIMIT_NOFILE)?.0))
}

/// Raises the limit of open descriptors as far as the process may (to the hard `RLIMIT_NOFILE`),
/// and answers what it then is. Programs that are started from here inherit it; those that use
/// select(2) cannot live with descriptors beyond 1023.
///
/// ```
/// # if cfg!(windows) { return Ok(()) }
/// let limit = windlass::fd::raise_max_open_files()?;
/// assert_eq!(limit, windlass::fd::max_open_files()?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Platform
/// macOS answers `EINVAL` beyond `OPEN_MAX` (10,240) where the hard limit is none: that is then
/// tried. Windows has no such limit: [`Reason::Unsupported`](crate::Reason::Unsupported).
///
/// # Errors
/// What getrlimit(2) and setrlimit(2) report.
pub fn raise_max_open_files() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        const OPEN_MAX: libc::rlim_t = 10_240;
        setrlimit(Resource::RLIMIT_NOFILE, OPEN_MAX.clamp(soft, hard), hard)?;
    }
    max_open_files()
}

// The width and sign of `rlim_t` differ between systems.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
fn widened(limit: libc::rlim_t) -> u64 {
    limit as u64
}
