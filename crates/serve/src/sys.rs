//! Code that differs between systems.

use std::io;
use std::path::{Path, PathBuf};

use windlass::fd::OwnedFd;

/// Whether accepted sockets do not have the times of their listener's keep-alive probes.
pub(crate) const ACCEPTED_LACK_KEEPALIVE: bool = cfg!(target_vendor = "apple");

/// The errno of a datagram that is too long for the system or its network.
pub(crate) const EMSGSIZE: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    90
} else if cfg!(windows) {
    115
} else {
    40
};

/// The processors that this thread may use, by their numbers; none where a thread cannot be bound.
pub(crate) fn processors() -> Vec<usize> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return Vec::new();
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .map_or(Vec::new(), listed)
}

/// The numbers of a list such as `0-3,8`.
fn listed(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Makes a descriptor non-blocking, for each process that has it.
#[cfg(unix)]
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    // std has the call for its types only. It asks nothing of the socket.
    let socket = std::net::TcpListener::from(fd);
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// No process inherits a descriptor by its number there.
#[cfg(not(unix))]
pub(crate) fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(fd)
}

/// A Unix path at which this process listens. It is removed when this is dropped, unless another
/// socket has taken its name meanwhile.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl BoundPath {
    /// Right after the bind. A simulated path is no file, and nothing is removed.
    pub(crate) fn new(path: PathBuf) -> BoundPath {
        let identity = identity(&path);
        BoundPath { path, identity }
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // The directory may have become read-only: then the next bind finds a stale socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The device and the number of a socket's file.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = std::fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then(|| (found.dev(), found.ino()))
}

/// Unix sockets are refused there.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(listed("\t0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(listed("\t5"), [5]);
        assert_eq!(listed("\t"), [0; 0]);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        assert!(!processors().is_empty());
    }
}
