//! The descriptor that another loop sleeps on while a ring is embedded in it.
//!
//! A ring whose work is deferred (`IORING_SETUP_DEFER_TASKRUN`) does not wake a poll of its
//! descriptor: work waits for the next enter, and the kernel signals only a registered eventfd. So
//! the descriptor that is handed out is an epoll set of that eventfd and of the one that other
//! threads write. The set costs nothing before the program asks for the descriptor. The kernel
//! signals the eventfd for the first deferred work only, not for work behind it. So code that
//! drains the eventfd must run all of the work, or signal again (`Uring::has_work`).

use std::io;

use crate::sys::Select;
use crate::sys::epoll::Epoll;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::interest::{Mode, Ready};
use crate::sys::uring::Uring;
use crate::sys::waker::{Wake, WakeFd};

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
        // Work that came before the registration was not signalled.
        signal.wake();
        Ok(Embedded { set, signal })
    }

    /// Drains the eventfd. The caller looks at the ring now.
    pub(super) fn clear(&mut self) {
        let _ = self.set.select(Some(0));
        self.signal.drain();
    }

    /// Tells the other loop that the ring has more to do.
    pub(super) fn tell(&self) {
        self.signal.wake();
    }
}

impl AsFd for Embedded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
