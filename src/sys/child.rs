//! The exit of a child process as a descriptor that becomes readable: a pidfd on Linux, a kqueue of
//! its own with `EVFILT_PROC` elsewhere. No SIGCHLD handler is needed.
//!
//! Only [`Child::take`] reaps, and only this child.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel writes one `siginfo_t`, a local of zeroes. The code reads only the members that
//! waitid(2) fills when a child has ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::sys::fd::RawFd;
use crate::sys::{cvt, os_errno};

fn errno(error: std::io::Error) -> i32 {
    os_errno(&error).unwrap_or(libc::EIO)
}

/// waitid(2): the exit status of a child, or `None` while it runs.
fn wait(by: libc::idtype_t, id: u32, how: libc::c_int) -> Result<Option<ExitStatus>, i32> {
    // SAFETY: all zeroes is a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `info` lives across the call.
        let answer = unsafe { libc::waitid(by, id as libc::id_t, &mut info, libc::WEXITED | how) };
        match cvt!(answer).map_err(errno) {
            Ok(_) => break,
            Err(libc::EINTR) => {}
            // A pidfd with PIDFD_NONBLOCK answers so while the child runs.
            Err(libc::EAGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: waitid(2) has filled the member, or left its zeroes.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    // SAFETY: a child has ended, so waitid(2) has filled the member.
    let status = unsafe { info.si_status() };
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => ExitStatus::from_raw((status & 0xff) << 8),
        libc::CLD_DUMPED => ExitStatus::from_raw(status | 0x80),
        _ => ExitStatus::from_raw(status),
    }))
}

/// The status of a simulated process that has ended with this code.
pub(crate) fn exited(code: u8) -> ExitStatus {
    ExitStatus::from_raw(i32::from(code) << 8)
}

/// The status of a simulated process that a signal has ended.
pub(crate) fn killed(signal: i32) -> ExitStatus {
    ExitStatus::from_raw(signal & 0x7f)
}

/// A child process.
pub(crate) struct Child {
    exit: Exit,
    /// The status, or the errno of waitid(2), once the child has ended.
    ended: Option<Result<ExitStatus, i32>>,
}

impl Child {
    /// # Errors
    /// `EINVAL`: the number is no process id; `ESRCH`, `ECHILD`: this process has no such child, or
    /// the child was reaped; `EMFILE`, `ENFILE`; `ENOSYS`, `EPERM`: the kernel has no pidfd, or a
    /// seccomp filter forbids it.
    pub(crate) fn open(pid: u32) -> Result<Child, i32> {
        if pid == 0 || pid > i32::MAX as u32 {
            return Err(libc::EINVAL);
        }
        Ok(Child { exit: Exit::new(pid)?, ended: None })
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.exit.raw()
    }

    /// Reaps the child if it has ended, and returns its status. Further calls return it again.
    ///
    /// # Errors
    /// `EAGAIN`: the child runs. `ECHILD`: other code has reaped it.
    pub(crate) fn take(&mut self) -> Result<ExitStatus, i32> {
        if self.ended.is_none() {
            let ended = self.exit.take();
            if ended == Err(libc::EAGAIN) {
                return ended;
            }
            self.ended = Some(ended);
        }
        self.ended.unwrap_or(Err(libc::ECHILD))
    }
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue)))]
use pidfd::Exit;

#[cfg(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue)))]
mod pidfd {
    use super::*;
    use crate::sys::descriptor;
    use crate::sys::fd::{AsRawFd, OwnedFd};

    /// A pidfd: it refers to this process, even after another process got its number.
    pub(super) struct Exit(OwnedFd);

    impl Exit {
        pub(super) fn new(pid: u32) -> Result<Exit, i32> {
            // SAFETY: no memory is passed.
            let fd = cvt!(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) });
            let exit = Exit(descriptor::own(fd.map_err(errno)? as RawFd));
            // pidfd_open(2) takes any process; waitid(2) fails if it is no child.
            wait(libc::P_PIDFD, exit.raw() as u32, libc::WNOHANG | libc::WNOWAIT)?;
            Ok(exit)
        }

        pub(super) fn raw(&self) -> RawFd {
            self.0.as_raw_fd()
        }

        pub(super) fn take(&mut self) -> Result<ExitStatus, i32> {
            wait(libc::P_PIDFD, self.raw() as u32, libc::WNOHANG)?.ok_or(libc::EAGAIN)
        }
    }
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue))))]
use queue::Exit;

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue))))]
mod queue {
    use super::*;
    use crate::sys::kevent::{Receipt, change, raw};
    use crate::sys::kqueue::KqueueFd;

    /// A queue with the filter of one process.
    pub(super) struct Exit {
        queue: KqueueFd,
        pid: u32,
    }

    impl Exit {
        pub(super) fn new(pid: u32) -> Result<Exit, i32> {
            wait(libc::P_PID, pid, libc::WNOHANG | libc::WNOWAIT)?;
            let exit = Exit { queue: KqueueFd::new().map_err(errno)?, pid };
            let flags = raw::EV_ADD | raw::EV_RECEIPT;
            let add = [
                change(0, raw::EVFILT_USER, flags, 0, 0),
                change(pid as usize, raw::EVFILT_PROC, flags | raw::EV_ONESHOT, raw::NOTE_EXIT, 0),
            ];
            let receipts = exit.queue.make(&add).map_err(errno)?;
            if let Some(Receipt::Failed(errno)) = receipts.last()
                && *errno != libc::ESRCH
            {
                return Err(*errno);
            }
            // For a process that has already ended, kevent(2) has refused the filter, or the filter
            // never fires.
            if wait(libc::P_PID, pid, libc::WNOHANG | libc::WNOWAIT)?.is_some() {
                let trigger = change(0, raw::EVFILT_USER, flags, raw::NOTE_TRIGGER, 0);
                exit.queue.make(&[trigger]).map_err(errno)?;
            }
            Ok(exit)
        }

        pub(super) fn raw(&self) -> RawFd {
            self.queue.raw()
        }

        pub(super) fn take(&mut self) -> Result<ExitStatus, i32> {
            if let Some(status) = wait(libc::P_PID, self.pid, libc::WNOHANG)? {
                return Ok(status);
            }
            let mut events = Vec::new();
            while !self.queue.wait(&[], &mut events, 2, Some(0)).map_err(errno)? {}
            if events.is_empty() {
                return Err(libc::EAGAIN);
            }
            // The filter fires a moment before waitid(2) can reap, on every system that has it: so
            // this call blocks for that moment.
            wait(libc::P_PID, self.pid, 0)?.ok_or(libc::ECHILD)
        }
    }
}
