//! What another loop sleeps on while a ring is embedded in it.
//!
//! A ring whose work is deferred (`IORING_SETUP_DEFER_TASKRUN`) does not wake those who poll its
//! descriptor: work waits for the next enter, and only a registered eventfd is told of it. So the
//! descriptor that is handed out is an epoll set of that eventfd and of the one that other threads
//! write; it costs nothing before it is asked for. The kernel tells the eventfd of the first of the
//! work that it puts off, not of what comes behind: so whoever forgets what was told has all of it
//! done, or tells again (`Uring::has_work`).

use std::io;

use crate::interest::{Mode, Ready};
use crate::sys::Select;
use crate::sys::epoll::Epoll;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::uring::Uring;
use crate::sys::waker::{Signal, WakeFd};

pub(super) struct Embedded {
    set: Epoll,
    signal: WakeFd,
}

impl Embedded {
    pub(super) fn new(uring: &Uring, waker: &WakeFd) -> io::Result<Embedded> {
        let mut set = Epoll::new(2)?;
        let signal = WakeFd::new()?;
        set.add(signal.raw(), 0, Ready::READABLE, Mode::Level)?;
        // Never read, so that only its edges count.
        set.add(waker.raw(), 1, Ready::READABLE, Mode::Edge)?;
        uring.register_eventfd(signal.raw())?;
        // What came before nobody was told.
        signal.signal();
        Ok(Embedded { set, signal })
    }

    /// Forgets what was told: the ring is looked at now.
    pub(super) fn clear(&mut self) {
        let _ = self.set.select(Some(0));
        self.signal.drain();
    }

    /// There is more.
    pub(super) fn tell(&self) {
        self.signal.signal();
    }
}

impl AsFd for Embedded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
