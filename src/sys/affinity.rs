//! Binds the calling thread to a processor.

use std::io;

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::error::Reason;

/// Binds the calling thread to processor `cpu`.
///
/// # Errors
/// [`Reason::NoProcessor`] for one that does not exist or may not be used.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn bind(cpu: usize) -> io::Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::unistd::Pid;

    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| refused(cpu, errno))
}

/// Other systems have no such binding.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn bind(cpu: usize) -> io::Result<()> {
    let _ = cpu;
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system does not bind threads to processors",
    ))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn refused(cpu: usize, errno: nix::errno::Errno) -> io::Error {
    if errno == nix::errno::Errno::EINVAL {
        Reason::NoProcessor(u32::try_from(cpu).unwrap_or(u32::MAX)).into()
    } else {
        io::Error::from(errno)
    }
}
