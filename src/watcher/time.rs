//! The clock, times that move, and idle timeouts.

use std::time::{Duration, Instant};

use super::Watcher;
use crate::driver::Driver;
#[cfg(doc)]
use crate::op::Op;
use crate::words::clock::{Clock, Deadline};
#[cfg(doc)]
use crate::words::error::Limit;
use crate::words::error::Refusal;
use crate::words::source::{Source, Ticket};

impl<D: Driver> Watcher<D> {
    /// The time on the driver's clock: the system's monotonic one, or a simulated kernel's. The
    /// watcher reads the clock once between two waits, so this time stands still while the program
    /// handles completions. Relative times ([`Op::timer`], [`Op::timeout`]) count from the real
    /// time of their submission.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Reads the clock and returns the time. [`now`](Watcher::now) returns the same time until the
    /// next wait.
    pub fn update_now(&mut self) -> Instant {
        self.driver.update_now()
    }

    /// The driver's clock, for code without the watcher: a callback, or another thread.
    pub fn clock(&self) -> Clock {
        self.driver.clock()
    }

    /// Gives a timer a new time, or another operation in flight a new [`timeout`](Op::timeout),
    /// counted from now. The operation may have moved bytes already, and need not have had a
    /// deadline. A timer that has a deadline besides its own time keeps that deadline. Among equal
    /// times, the new one comes last. The call moves one entry in a heap.
    ///
    /// A `span` of zero ends the operation at the next wait. The operation is tried once more
    /// before that, so data that has arrived wins.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Refusal, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let timer = watcher.submit(Op::timer(Duration::from_secs(60)))?;
    /// watcher.reschedule(timer, Duration::from_millis(1)).unwrap();
    /// watcher.wait(&mut Completions::new())?;
    /// assert_eq!(watcher.reschedule(timer, Duration::ZERO), Err(Refusal::Stale));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Stale`]: the operation has ended, or its completion is already on the way.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: a driver of your own does not reschedule.
    pub fn reschedule(&mut self, ticket: Ticket, span: Duration) -> Result<(), Refusal> {
        self.driver.reschedule(ticket, Deadline::After(span))
    }

    /// As [`reschedule`](Watcher::reschedule), to an absolute time. A time that has passed counts
    /// as a span of zero.
    ///
    /// # Errors
    /// As for `reschedule`.
    pub fn reschedule_at(&mut self, ticket: Ticket, at: Instant) -> Result<(), Refusal> {
        self.driver.reschedule(ticket, Deadline::At(at))
    }

    /// Sets the idle timeout of a source: when no byte has moved on it for `timeout`, in either
    /// direction, its reads end with [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) and the
    /// bytes that they have. The source stays usable: the next read has the whole `timeout` again.
    /// `None`, the default, lets the source be idle for ever.
    ///
    /// The idle time begins with this call. It is the sum of the times in which a read is in flight
    /// and does not wait for a lease, however often reads start and stop. So a program that has no
    /// read in flight while it works on a request stops the idle time, too. The timeout of a
    /// multishot read begins again with each message, unlike its [deadline](Op::deadline).
    ///
    /// The reads never end early. They end late by at most a sixteenth of `timeout`, or 100 ms if
    /// that is more, while the program waits. A program that works for a time without waiting can
    /// add twice this time.
    ///
    /// In return an idle timeout is cheap: 2 bytes for each source, no entry in the heap of
    /// deadlines, no allocation for a message, and no instruction in the usual read or write. (A
    /// source on which reads stop and start, and no byte moves, has an entry in a map.) The range
    /// is 1 ms to 292 years: a shorter timeout, zero included, counts as 1 ms, a longer one as 292
    /// years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, ErrorKind, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _silent) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.set_idle_timeout(source, Some(Duration::from_millis(20))).unwrap();
    /// watcher.submit(Op::read(source).multishot())?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert_eq!(done.drain(..).next().unwrap().error_kind(), Some(ErrorKind::Deadline));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The source keeps the timeout that it had, with:
    ///
    /// - [`Refusal::Stale`]: the source was aborted, closed or detached.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: the source is a listener, a regular file, a directory or a block
    ///   device; or a driver of your own has no idle timeouts.
    /// - [`Refusal::Full`] with [`Limit::IdleTimeouts`]: the sources have
    ///   255 different timeouts already. Any number of sources can share one.
    ///
    /// # Platforms
    /// The same everywhere. In the simulation the time is virtual.
    pub fn set_idle_timeout(
        &mut self,
        source: Source,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.driver.set_idle_timeout(source, timeout)
    }

    /// The [idle timeout](Watcher::set_idle_timeout) of a source, in the range in which it counts.
    /// `None` if it has none, or has ended.
    pub fn idle_timeout(&self, source: Source) -> Option<Duration> {
        self.driver.idle_timeout(source)
    }
}
