//! Waits: for the next completions, for a number of them, or for one; and for an embedding loop.

use std::io;
use std::time::Duration;

use super::Watcher;
use crate::completion::verbs::Wait;
use crate::completion::{Completion, Completions};
use crate::driver::Driver;
use crate::sys::fd::BorrowedFd;
use crate::words::error::Refusal;
use crate::words::source::Ticket;
#[cfg(doc)]
use crate::{Limit, Op, Submitter};

impl<D: Driver> Watcher<D> {
    /// Waits for at least one completion, appends all that are ready to `done`, and returns their
    /// number. A signal alone does not end the wait: see [signals](crate::guide::signals).
    ///
    /// Without an operation in flight, only a request of another thread, made through a
    /// [`Submitter`], ends the wait. Without such a thread it blocks for ever. (On a
    /// [simulation](crate::sim) it fails instead.)
    ///
    /// # Errors
    ///
    /// - [`Refusal::Closed`]: [`close`](Watcher::close) was called, and all completions have been
    ///   delivered.
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - `EBADF`, on epoll also `EINVAL`: other code has closed the selector's descriptor.
    /// - `EBADR`, on io_uring: the kernel had no memory to keep a completion, and has lost it.
    ///   Every later wait fails in this way: drop the watcher.
    /// - `Deadlock`: on a simulation, no event is left that could end the wait.
    ///
    /// [`Refusal::of`] returns the reason.
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
        let wait = self.update_now().checked_add(timeout).map_or(Wait::Forever, Wait::Until);
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

    /// As [`wait`](Watcher::wait), until at least `least` completions are ready, or `timeout` has
    /// passed: one wait for a whole batch. It appends all completions that are ready to `done`, and
    /// returns their number, which may be more than `least`, or fewer after the timeout.
    /// Completions that were in `done` before do not count. With a `least` of 0 it does not block.
    ///
    /// Until it returns, the completions wait in the driver, and the leases and accepted sockets in
    /// them stay in use. So it also returns with fewer completions in three cases: a read waits for
    /// a lease, an accept waits for room in the source table, or so many completions wait that the
    /// driver would refuse submissions ([`Limit::Completions`]).
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
        let wait = self.update_now().checked_add(timeout).map_or(Wait::Forever, Wait::Until);
        self.driver.complete_at_least(least, wait, done)
    }

    /// Waits for the final completion of one operation, and returns it. All other completions stay
    /// with the watcher: the next wait delivers them, in their order.
    ///
    /// Use it for a step without which the program cannot go on: a look-up, the open of a file, a
    /// handshake at the start. While it waits, the program serves nothing else. An operation that
    /// may wait for ever needs a [timeout](Op::timeout).
    ///
    /// - A **multishot** operation has its final completion when it ends: cancel it first. Its
    ///   earlier completions stay for the next wait.
    /// - A [**quiet**](Op::quiet) write that succeeds has no completion. Then the call fails with
    ///   [`Refusal::Stale`], at once or when the write succeeds.
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
    /// - [`Refusal::Stale`]: this ticket gets no completion any more. An earlier wait has delivered
    ///   it, the quiet write has succeeded, or no operation has this ticket.
    /// - [`Refusal::Closed`]: the watcher is closed, and the ticket is stale.
    /// - [`Refusal::Full`] with [`Limit::Completions`]: so many other
    ///   completions wait that the driver would refuse submissions. Take them, then wait again.
    /// - [`Refusal::Full`] with [`Limit::SwapBytes`]: the read waits for a lease, and completions
    ///   that wait may hold all leases. Take these completions, then wait again.
    /// - [`Refusal::Full`] with [`Limit::Sources`]: the accept waits for room in the source table,
    ///   and completions with accepted sockets may need that room. Take them, then wait again.
    /// - [`Refusal::Unsupported`]: a driver of your own does not implement this wait.
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
    /// - [`Refusal::Unsupported`]: on a simulation, and on Windows.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn pollable(&self) -> Result<BorrowedFd<'_>, Refusal> {
        self.driver.pollable()
    }
}
