//! The descriptors of signals and children that a kernel has made.

use std::collections::HashMap;
use std::process::ExitStatus;

use crate::sys::child::Child;
use crate::sys::fd::RawFd;
use crate::sys::signals::Signals;

/// A descriptor of signals or of a child.
enum ProcessFd {
    Signals(Signals),
    Child(Child),
}

/// The descriptors of signals and children that a kernel has.
#[derive(Default)]
pub(super) struct OfProcess(HashMap<RawFd, ProcessFd>);

impl OfProcess {
    pub(super) fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        let signals = Signals::new(signals)?;
        let fd = signals.raw();
        self.0.insert(fd, ProcessFd::Signals(signals));
        Ok(fd)
    }

    pub(super) fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        let child = Child::open(pid)?;
        let fd = child.raw();
        self.0.insert(fd, ProcessFd::Child(child));
        Ok(fd)
    }

    pub(super) fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        match self.0.get(&fd) {
            Some(ProcessFd::Signals(signals)) => signals.take().ok_or(libc::EAGAIN),
            _ => Err(libc::EBADF),
        }
    }

    pub(super) fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        match self.0.get_mut(&fd) {
            Some(ProcessFd::Child(child)) => child.take(),
            _ => Err(libc::EBADF),
        }
    }

    /// Closes a descriptor, if it is one of these.
    #[inline]
    pub(super) fn close(&mut self, fd: RawFd) -> bool {
        !self.0.is_empty() && self.0.remove(&fd).is_some()
    }

    /// In a forked child: gives signals descriptors of its own.
    pub(super) fn renew(&mut self) -> Result<(), i32> {
        for watched in self.0.values_mut() {
            if let ProcessFd::Signals(signals) = watched {
                signals.renew()?;
            }
        }
        Ok(())
    }
}
