//! Signals, which the driver does not support on Windows. The numbers are those of Linux, for
//! programs on a simulation.

use crate::sys::fd::RawFd;

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGUSR1: i32 = 10;
pub(crate) const SIGUSR2: i32 = 12;
pub(crate) const SIGALRM: i32 = 14;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGCHLD: i32 = 17;
pub(crate) const SIGCONT: i32 = 18;
pub(crate) const SIGTSTP: i32 = 20;
pub(crate) const SIGWINCH: i32 = 28;

/// As on Linux, for the simulation.
pub(crate) fn set_of(signals: &[i32]) -> Result<u64, i32> {
    // SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGSTOP.
    const NEVER: [i32; 6] = [4, 7, 8, 9, 11, 19];
    let mut set = 0;
    for signal in signals {
        if !(1..=64).contains(signal) || NEVER.contains(signal) {
            return Err(libc::EINVAL);
        }
        set |= 1u64 << (signal - 1);
    }
    if set == 0 { Err(libc::EINVAL) } else { Ok(set) }
}

/// Never exists.
pub(crate) enum Signals {}

impl Signals {
    pub(crate) fn new(_: &[i32]) -> Result<Signals, i32> {
        Err(libc::EOPNOTSUPP)
    }

    pub(crate) fn raw(&self) -> RawFd {
        match *self {}
    }

    pub(crate) fn take(&self) -> Option<i32> {
        match *self {}
    }

    pub(crate) fn renew(&mut self) -> Result<(), i32> {
        match *self {}
    }
}
