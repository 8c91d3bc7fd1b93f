//! The selector on Linux: epoll(7). Its contract stands in [`crate::sys`].

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel writes at most as many events as the vector has capacity for, and says how many.

use std::io;
use std::sync::Arc;

use crate::interest::{Mode, Ready};
use crate::sys::descriptor::{self, ms_up};
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::waker::{WakeFd, Waker};
use crate::sys::{Select, check, step};

/// An epoll instance and the events of its last `select`.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// Cleared when the kernel does not have epoll_pwait2 (before 5.11) or a filter denies it.
    has_pwait2: bool,
}

fn bits(interest: Ready, mode: Mode) -> u32 {
    let mode = match mode {
        Mode::Level => 0,
        Mode::Edge => libc::EPOLLET as u32,
        Mode::Oneshot => libc::EPOLLONESHOT as u32,
    };
    // Who does not read could do nothing about a half-close, which a level would report for ever.
    let half_close =
        if interest.intersects(Ready::READABLE) { Ready::READ_CLOSED } else { Ready::NONE };
    // epoll's conditions have poll(2)'s values.
    u32::from((interest | half_close).bits()) | mode
}

impl Select for Epoll {
    const NAME: &'static str = "epoll";
    const REGISTRATION: &'static str =
        "once per descriptor, at its first EAGAIN or before it: edge-triggered, for life";
    const EDGES: bool = true;
    const FORGETS_CLOSED: bool = true;

    fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let made = check!(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
        let fd = made.map_err(|error| step::at("epoll_create1(2)", error))?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let capacity = capacity.clamp(1, 1 << 16);
        Ok(Epoll { fd, events: Vec::with_capacity(capacity), has_pwait2: !cfg!(miri) })
    }

    /// Every write to it is an edge, so it is never read.
    fn waker(&mut self, key: u64) -> io::Result<Waker> {
        let fd = WakeFd::new()?;
        self.add(fd.raw(), key, Ready::READABLE, Mode::Edge)
            .map_err(|error| step::at("epoll_ctl(2)", error))?;
        Ok(Arc::new(fd))
    }

    fn add(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, bits(on, mode))
    }

    fn modify(&mut self, fd: RawFd, key: u64, on: Ready, mode: Mode) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, bits(on, mode))
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.events.clear();
        let count = match timeout_ns {
            None => self.wait_ms(-1),
            Some(0) => self.wait_ms(0),
            Some(ns) if self.has_pwait2 => self.wait_ns(ns),
            Some(ns) => self.wait_ms(ms_up(ns)),
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => return Ok(0),
                // EPERM is what seccomp filters answer that do not know the call.
                Some(libc::ENOSYS | libc::EPERM) if self.has_pwait2 => {
                    self.has_pwait2 = false;
                    return self.select(timeout_ns);
                }
                _ => return Err(error),
            }
        }
        let count = count as usize;
        // SAFETY: the kernel has written the first `count` events, at most the capacity.
        unsafe { self.events.set_len(count) };
        Ok(count)
    }

    #[inline]
    fn event(&self, i: usize) -> (u64, Ready) {
        let event = self.events[i];
        (event.u64, Ready::from_bits(event.events as u16))
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn waits_finely(&self) -> bool {
        self.has_pwait2
    }

    fn explain(&self) -> (&'static str, &'static str) {
        if self.has_pwait2 {
            ("epoll_pwait2", "timeouts have nanosecond precision (Linux 5.11)")
        } else {
            ("epoll_wait", "epoll_pwait2 is missing or denied: timeouts round up to milliseconds")
        }
    }
}

impl Epoll {
    fn control(&self, what: i32, fd: RawFd, key: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` lives across the call.
        check!(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &mut event) })?;
        Ok(())
    }

    #[inline]
    fn wait_ms(&mut self, ms: i32) -> i32 {
        let (events, most) = (self.events.as_mut_ptr(), self.events.capacity() as i32);
        // SAFETY: room for `most` events.
        unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events, most, ms) }
    }

    fn wait_ns(&mut self, ns: u64) -> i32 {
        let timeout = descriptor::timespec(ns);
        let (events, most) = (self.events.as_mut_ptr(), self.events.capacity() as i32);
        // SAFETY: room for `most` events; the timeout lives across the call; no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events,
                most,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            ) as i32
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_conditions_are_epolls() {
        assert_eq!(u32::from(Ready::READABLE.bits()), libc::EPOLLIN as u32);
        assert_eq!(u32::from(Ready::PRIORITY.bits()), libc::EPOLLPRI as u32);
        assert_eq!(u32::from(Ready::WRITABLE.bits()), libc::EPOLLOUT as u32);
        assert_eq!(u32::from(Ready::ERROR.bits()), libc::EPOLLERR as u32);
        assert_eq!(u32::from(Ready::HANGUP.bits()), libc::EPOLLHUP as u32);
        assert_eq!(u32::from(Ready::READ_CLOSED.bits()), libc::EPOLLRDHUP as u32);
    }
}
