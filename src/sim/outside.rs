//! Actions of other threads on a simulation: they wake a watcher, and drop descriptors.
//!
//! Invariant: a thread adds its action under the lock, then sets the flag. The loop clears the flag
//! before it takes the actions. So the flag is set for every action that the loop has missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::remote::Wake;
use crate::sim::Sim;
use crate::sim::world::World;
use crate::sys::fd::RawFd;
use crate::words::source::VirtualDescriptor;

#[derive(Default)]
pub(super) struct Outside {
    news: Mutex<OutsideEvents>,
    bell: Condvar,
    /// Whether there are actions. The loop checks this in every attempt, and needs no lock to find
    /// none.
    flagged: AtomicBool,
}

#[derive(Default)]
struct OutsideEvents {
    closed: Vec<RawFd>,
    woken: Vec<u32>,
}

impl Outside {
    fn lock(&self) -> MutexGuard<'_, OutsideEvents> {
        // The lists are whole, even if a thread panicked while it had the lock.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, write: impl FnOnce(&mut OutsideEvents)) {
        write(&mut self.lock());
        self.flagged.store(true, Ordering::Release);
        self.bell.notify_all();
    }

    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        self.flagged.load(Ordering::Acquire)
    }

    #[cold]
    pub(super) fn take_news(&self, world: &mut World) {
        self.flagged.store(false, Ordering::SeqCst);
        let news = std::mem::take(&mut *self.lock());
        for fd in news.closed {
            world.close(fd);
        }
        for selector in news.woken {
            world.schedule.wake(selector);
        }
    }

    /// Blocks, in real time, until there is an action. False when `patience` is over.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let quiet = |news: &mut OutsideEvents| news.closed.is_empty() && news.woken.is_empty();
        let waited = self.bell.wait_timeout_while(self.lock(), patience, quiet);
        let (news, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(news);
        !timeout.timed_out()
    }
}

impl VirtualDescriptor for Outside {
    fn close(&self, fd: RawFd) {
        self.tell(|news| news.closed.push(fd));
    }
}

/// Wakes one watcher.
struct SimWaker {
    outside: Arc<Outside>,
    selector: u32,
}

impl Wake for SimWaker {
    fn wake(&self) {
        self.outside.tell(|news| news.woken.push(self.selector));
    }
}

impl<const C: bool> Sim<C> {
    pub(super) fn owner(&self) -> Arc<dyn VirtualDescriptor> {
        Arc::clone(&self.outside) as Arc<dyn VirtualDescriptor>
    }

    pub(super) fn make_waker(&self) -> Arc<dyn Wake> {
        Arc::new(SimWaker { outside: Arc::clone(&self.outside), selector: self.selector })
    }
}
