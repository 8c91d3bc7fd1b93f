//! Waits: for the next completions, for a number of them, for one; and in another loop.

use std::io;
use std::time::Duration;

use super::Watcher;
use crate::completion::{Completion, Completions};
use crate::driver::{Driver, Wait};
use crate::error::Reason;
use crate::source::Ticket;
use crate::sys::fd::BorrowedFd;
#[cfg(doc)]
use crate::{Limit, Op, Submitter};

impl<D: Driver> Watcher<D> {
    /// Waits for at least one completion, appends all that are ready to `done`, and returns their
    /// number. A signal does not end the wait: see the guide's page on signals.
    ///
    /// With no operation in flight, the wait ends only when another thread makes a request through
    /// a [`Submitter`]. Without such a thread it blocks for ever. (On a [simulation](crate::sim) it
    /// fails instead.)
    ///
    /// # Errors
    ///
    /// - [`Reason::Closed`]: [`close`](Watcher::close) was called, and all completions have been
    ///   delivered.
    /// - [`Reason::Forked`]: this is a forked child.
    /// - `EBADF`, on epoll also `EINVAL`: other code has closed the selector's descriptor.
    /// - `Deadlock`: on a simulation, no event is left that could end the wait.
    ///
    /// [`Reason::of`] returns the reason.
    #[inline]
    pub fn wait(&mut self, done: &mut Completions) -> io::Result<usize> {
        self.driver.complete(Wait::Forever, done)
    }

    /// As [`wait`](Watcher::wait), for at most `timeout`. Returns 0 when the timeout has passed.
    ///
    /// # Errors
    ///
    /// - As for [`wait`](Watcher::wait). A timeout that has passed is no error.
    pub fn wait_timeout(&mut self, done: &mut Completions, timeout: Duration) -> io::Result<usize> {
        let wait = match self.update_now().checked_add(timeout) {
            Some(at) => Wait::Until(at),
            None => Wait::Forever,
        };
        self.driver.complete(wait, done)
    }

    /// As [`wait`](Watcher::wait), without blocking.
    ///
    /// # Errors
    ///
    /// - As for [`wait`](Watcher::wait). An empty batch is no error.
    pub fn try_wait(&mut self, done: &mut Completions) -> io::Result<usize> {
        self.driver.complete(Wait::Now, done)
    }

    /// As [`wait`](Watcher::wait), until at least `least` completions are there, for at most
    /// `timeout`: one wait for a whole batch. It appends all that there are to `done`, also if they
    /// are more than `least` or, at the timeout, fewer, and returns their number. What `done` held
    /// before does not count. With a `least` of 0 it does not block.
    ///
    /// Until it returns, the completions wait in the driver: leases and accepted sockets in them
    /// are in use. So it returns with fewer when a read waits for a lease, or an accept for room in
    /// the source table; and when so many wait that submissions would be refused
    /// ([`Limit::Completions`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// for ms in 1..=3 {
    ///     watcher.submit(Op::timer(Duration::from_millis(ms)))?;
    /// }
    /// let mut done = Completions::new();
    /// assert_eq!(watcher.wait_at_least(&mut done, 3, Duration::MAX)?, 3);
    /// assert_eq!(watcher.wait_at_least(&mut done, 9, Duration::from_millis(1))?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - As for [`wait`](Watcher::wait). A timeout that has passed is no error. Completions that
    ///   wait when the wait fails come with a later wait.
    pub fn wait_at_least(
        &mut self,
        done: &mut Completions,
        least: usize,
        timeout: Duration,
    ) -> io::Result<usize> {
        let wait = match self.update_now().checked_add(timeout) {
            Some(at) => Wait::Until(at),
            None => Wait::Forever,
        };
        self.driver.complete_at_least(least, wait, done)
    }

    /// Waits for the final completion of one operation, and returns it. All other completions stay
    /// with the watcher: the next wait delivers them, in their order.
    ///
    /// For a step that the program cannot go on without: a look-up, a file to open, a handshake
    /// while nothing else is to be done. While it waits, nothing else is served by the program. An
    /// operation that may wait for ever needs a [timeout](Op::timeout).
    ///
    /// - A **multishot** operation has its final completion when it ends: cancel it first. The
    ///   completions that it makes before stay for the next wait.
    /// - A [**quiet**](Op::quiet) write that succeeds has none: its ticket is stale then, and so is
    ///   the answer, at once or as soon as it is out.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::nop().token(1))?;
    /// let look_up = watcher.submit(Op::lookup_host("localhost", 80))?;
    /// let Ok(Done::Addresses(addresses)) = watcher.wait_for(look_up)?.result else { panic!() };
    /// assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?; // the nop
    /// assert_eq!(done.iter().next().unwrap().token, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Reason::Stale`]: no completion of this ticket is to come. A wait has delivered it, the
    ///   quiet write has succeeded, or no operation has this ticket. Of a closed watcher:
    ///   [`Reason::Closed`].
    /// - [`Reason::Full`] with [`Limit::Completions`]: so many other
    ///   completions wait that submissions would be refused. Take them, then wait again.
    /// - [`Reason::Full`] with [`Limit::SwapBytes`]: the read waits for a lease while other
    ///   completions wait, which may hold all of them. With [`Limit::Sources`]: the accept waits
    ///   for room in the source table, which accepted sockets in them may need. Take them, then
    ///   wait again.
    /// - [`Reason::Unsupported`]: a driver of your own does not do this.
    /// - As for [`wait`](Watcher::wait).
    ///
    /// An error loses nothing: the operation goes on, and a later wait has its completion.
    pub fn wait_for(&mut self, ticket: Ticket) -> io::Result<Completion> {
        self.driver.complete_one(ticket)
    }

    /// How long an embedding loop may sleep before it calls [`try_wait`](Watcher::try_wait) again.
    /// Zero means that completions are ready. `None` means that it may sleep until the
    /// [descriptor](Watcher::pollable) is readable.
    pub fn next_timeout(&mut self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// A descriptor that becomes readable when [`try_wait`](Watcher::try_wait) has something to do.
    /// Another loop can embed the watcher by it. Call `try_wait` until it returns 0. Then sleep on
    /// the descriptor for at most [`next_timeout`](Watcher::next_timeout).
    ///
    /// # Errors
    ///
    /// - [`Reason::Unsupported`]: on a simulation, and on Windows.
    /// - [`Reason::Forked`]: this is a forked child.
    pub fn pollable(&self) -> Result<BorrowedFd<'_>, Reason> {
        self.driver.pollable()
    }
}
