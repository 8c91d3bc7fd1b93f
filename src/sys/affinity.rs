//! Binds the calling thread to a processor.

use std::io;

/// Binds the calling thread to processor `cpu`.
///
/// # Errors
/// `InvalidInput`, with the number of processors, for one that does not exist or may not be used.
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
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    if errno == nix::errno::Errno::EINVAL {
        let text = format!("processor {cpu} does not exist or may not be used ({count} may)");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    } else {
        io::Error::from(errno)
    }
}
