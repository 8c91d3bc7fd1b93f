//! Child processes, which the driver does not support on Windows.

use std::os::windows::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::sys::fd::RawFd;

/// Never exists.
pub(crate) enum Child {}

impl Child {
    pub(crate) fn open(_: u32) -> Result<Child, i32> {
        Err(libc::EOPNOTSUPP)
    }

    pub(crate) fn raw(&self) -> RawFd {
        match *self {}
    }

    pub(crate) fn take(&mut self) -> Result<ExitStatus, i32> {
        match *self {}
    }
}

/// The status of a simulated process that has ended with this code.
pub(crate) fn exited(code: u8) -> ExitStatus {
    ExitStatus::from_raw(code.into())
}

/// The status of a simulated process that a signal has ended, as shells say it.
pub(crate) fn killed(signal: i32) -> ExitStatus {
    ExitStatus::from_raw(128 + signal as u32)
}
