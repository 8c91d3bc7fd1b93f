//! A descriptor that other threads make readable: eventfd(2), or a pipe where there is none.

#![allow(unsafe_code)]
//! # Safety
//!
//! Only owned descriptors and local integers are passed to the kernel.

use std::io;

use crate::sys::descriptor;
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use crate::sys::step;
use crate::sys::waker::Wake;

/// A descriptor that becomes readable.
pub(crate) struct WakeFd {
    /// An eventfd, or the reading end of a pipe.
    fd: OwnedFd,
    /// The writing end of the pipe.
    writer: Option<OwnedFd>,
}

/// The bytes of one signal: an eventfd takes eight.
const SIGNAL: [u8; 8] = 1u64.to_ne_bytes();

impl WakeFd {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> io::Result<WakeFd> {
        use crate::sys::fd::FromRawFd;
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = crate::sys::cvt!(unsafe { libc::eventfd(0, flags) })
            .map_err(|error| step::at("eventfd(2)", error))?;
        // SAFETY: a fresh descriptor without another owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(WakeFd { fd, writer: None })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> io::Result<WakeFd> {
        let (reader, writer) = io::pipe().map_err(|error| step::at("pipe(2)", error))?;
        let (fd, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        for end in [&fd, &writer] {
            crate::sys::descriptor::set_nonblocking(end.as_raw_fd(), true)?;
        }
        Ok(WakeFd { fd, writer: Some(writer) })
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn drain(&self) {
        let mut bytes = [0u8; 256];
        loop {
            // SAFETY: room for as many bytes as are asked for.
            let n = unsafe { libc::read(self.raw(), bytes.as_mut_ptr().cast(), bytes.len()) };
            // A pipe may hold more than was asked for.
            if n < bytes.len() as isize {
                return;
            }
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The descriptor that a signal writes to.
    pub(crate) fn writer(&self) -> RawFd {
        self.writer.as_ref().unwrap_or(&self.fd).as_raw_fd()
    }

    /// Replaces the descriptor by a new one with the same numbers. Duplicates keep the old one.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        let fresh = WakeFd::new()?;
        for (new, old) in [(fresh.raw(), self.raw()), (fresh.writer(), self.writer())] {
            descriptor::replace(new, old)?;
        }
        Ok(())
    }
}

impl Wake for WakeFd {
    /// Makes an edge: every write is one, so that an edge-triggered selector need not read. Should
    /// the descriptor be full (an eventfd after 2^64 wakes), it is emptied and written again.
    fn wake(&self) {
        let to = self.writer();
        loop {
            // SAFETY: eight bytes of a constant.
            let n = unsafe { libc::write(to, SIGNAL.as_ptr().cast(), SIGNAL.len()) };
            if n > 0 {
                return;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => self.drain(),
                // The descriptor is open for as long as `self` is, so nothing else can come.
                _ => return,
            }
        }
    }
}
