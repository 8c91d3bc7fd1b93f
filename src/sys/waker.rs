//! A descriptor that other threads make readable to end a wait: eventfd(2) on Linux.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only owned descriptors and a local integer are passed to the kernel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::check;

pub(crate) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(crate) fn new() -> io::Result<WakeFd> {
        // SAFETY: no memory is passed.
        let fd = check!(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(WakeFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes an edge: every write to an eventfd is one, so it is never read. Should the counter be
    /// full (after 2^64 wakes), it is emptied and written again.
    pub(crate) fn signal(&self) {
        let mut one = 1u64;
        loop {
            // SAFETY: eight bytes of a local.
            let n = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
            if n == 8 {
                return;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => {
                    // SAFETY: eight bytes of a local.
                    unsafe { libc::read(self.0.as_raw_fd(), (&raw mut one).cast(), 8) };
                    one = 1;
                }
                // The descriptor is open for as long as `self` is, so nothing else can come.
                _ => return,
            }
        }
    }

    /// Empties the counter, for those who wait for the level.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of a local. EAGAIN: it is empty.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
