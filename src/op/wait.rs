//! Operations that wait: for the next turn, a time, readiness, or a drained write queue.

use std::time::{Duration, Instant};

use super::{Op, OpCode, RELATIVE, bounded};
use crate::sys::interest::Ready;
use crate::words::clock;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Done, ErrorKind, Limit, Refusal, Watcher};

/// Operations that wait: for the next turn, a time, readiness, or a drained write queue.
impl Op {
    /// An operation that does nothing.
    ///
    /// Completes with [`Done::Nop`] at the next wait.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::nop().token(1))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Nop)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A nop never fails. The refusals are those of [every
    /// operation](Op#errors-of-every-operation). A nop does not count as in flight, so only
    /// [`Limit::Completions`] bounds the number of nops.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation.
    ///
    /// # Cancellation
    ///
    /// A nop has ended when `submit` returns: its ticket is stale, and a deadline has no effect.
    pub const fn nop() -> Op {
        Op::plain(OpCode::Nop, Source::NONE)
    }

    /// A timer that completes when `span` has passed since its submission.
    ///
    /// Completes with [`Done::Timer`]: never early, and late by no more than the granularity of the
    /// system's wait. Timers with equal times complete in the order of submission. A `span` beyond
    /// 292 years counts as 292 years. A `span` of zero completes at the next wait.
    /// [`Watcher::reschedule`] gives a timer another time, [`Op::owned_by`] a source that it ends
    /// with.
    ///
    /// A timer may also have a deadline. The earlier of the two ends the timer: its own time with
    /// [`Done::Timer`], its deadline with [`ErrorKind::Deadline`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::timer(Duration::from_millis(20)).token(2))?;
    /// watcher.submit(Op::timer(Duration::from_millis(1)).token(1))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let first = done.drain(..).next().unwrap();
    /// assert_eq!(first.token, 1);
    /// assert!(matches!(first.result, Ok(Done::Timer)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system reports no errors for a timer. The refusals and failures are those of [every
    /// operation](Op#errors-of-every-operation).
    ///
    /// # Platforms
    ///
    /// The clock is the system's monotonic one, which on Linux stands still while the machine is
    /// suspended. A timer is late by microseconds. It is late by up to a millisecond on Windows,
    /// and with poll(2) on macOS, where the system's wait counts in milliseconds. In the simulation
    /// time is virtual, and a timer is exact.
    ///
    /// # Cancellation
    ///
    /// A cancelled timer ends with [`ErrorKind::Cancelled`]. There is nothing to undo.
    pub fn timer(span: Duration) -> Op {
        let mut op = Op::plain(OpCode::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of_duration(span)) | RELATIVE;
        op
    }

    /// As [`Op::timer`], at an absolute time.
    ///
    /// Completes with [`Done::Timer`]. If the time has passed already, the timer completes at the
    /// next wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let at = watcher.now() + Duration::from_millis(2);
    /// watcher.submit(Op::timer_at(at))?;
    /// watcher.wait(&mut Completions::new())?;
    /// assert!(watcher.update_now() >= at);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::timer`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::timer`]. In the simulation, use the times of [`Watcher::now`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::timer`].
    pub fn timer_at(deadline: Instant) -> Op {
        let mut op = Op::plain(OpCode::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of(deadline));
        op
    }

    /// Lets a source own the timer: the timer ends with the source, and its completion names it.
    ///
    /// [`Watcher::abort`] and [`Op::close`] end the timer with [`ErrorKind::Aborted`],
    /// [`Watcher::cancel_all`] ends it with [`ErrorKind::Cancelled`], and [`Watcher::detach`] is
    /// refused with [`Refusal::Busy`] while it runs. So a server keeps no list of its connections'
    /// timers. Reads and writes do not move the timer: [`Watcher::set_idle_timeout`] limits how
    /// long a source is idle. Other operations than timers ignore this.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, ErrorKind, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::timer(Duration::from_secs(60)).owned_by(source))?;
    /// watcher.abort(source);
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let timer = done.drain(..).next().unwrap();
    /// assert_eq!((timer.source, timer.error_kind()), (source, Some(ErrorKind::Aborted)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A timer with an owner is refused with [`Refusal::Stale`] if the source was aborted, closed
    /// or detached. All else is as for [`Op::timer`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::timer`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::timer`]. The source goes on.
    #[inline]
    pub const fn owned_by(mut self, source: Source) -> Op {
        if matches!(self.code, OpCode::Timer) {
            self.source = source;
        }
        self
    }

    /// Waits until one of the conditions in `interest` holds.
    ///
    /// Completes with [`Done::Ready`] and the conditions that hold; an error or a hang-up also
    /// completes the poll. It works on any descriptor that poll(2) understands: sockets, listeners,
    /// pipes, eventfd, timerfd, pidfd, terminals. The driver calls poll(2) first. If no condition
    /// holds, the operation waits for the selector's next event. A poll takes no bytes, and does
    /// not wait behind the reads and writes of its source.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Ready, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::poll(source, Ready::READABLE))?;
    /// theirs.write_all(b"!")?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Ready(ready)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(ready.contains(Ready::READABLE));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is a regular file, a directory or a block device.
    ///
    /// The only errnos are those of every operation: `ENOSPC`, `ENOMEM`, `EBADF`.
    ///
    /// # Platforms
    ///
    /// kqueue reports a hang-up as a half-close, unless a write of the source also waits. FreeBSD
    /// reports no urgent data. The poll driver reports a half-close on Linux only. Windows polls
    /// sockets only. The simulation reports the conditions of its sockets.
    ///
    /// # Cancellation
    ///
    /// There is nothing to undo. The next poll reports a condition that came true just before the
    /// cancel.
    pub const fn poll(source: Source, interest: Ready) -> Op {
        let mut op = Op::plain(OpCode::Poll, source);
        op.count = interest.bits() as u32;
        op
    }

    /// Waits until a [`Watcher::recv`] is worth a try: bytes or a connection have arrived, or the
    /// end, or an error.
    ///
    /// Completes with [`Done::Ready`] of [`Ready::READABLE`], and without a system call: the driver
    /// knows the last event of the source, and what the calls and operations since have found. So a
    /// message costs one call to read it. If nothing is known yet, the first such operation
    /// registers the source, and waits for the event. The completion may prove vain: the call then
    /// answers `WouldBlock`, and the next `readable` waits for the next event. No arrival between
    /// the two is lost.
    ///
    /// With [`multishot`](Op::multishot) it completes at least once after each call that has found
    /// the source empty. Receive until then: more bytes behind bytes that were not taken need not
    /// make a completion.
    ///
    /// The operation takes no bytes, and waits behind nothing. A read in flight on the same source
    /// may take the bytes first. A program that reads the descriptor by itself uses [`Op::poll`]:
    /// the driver does not learn what such a read has found.
    ///
    /// ```
    /// use std::io::{ErrorKind, Write};
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let mut bytes = [0; 100];
    /// let nothing = watcher.recv(source, &mut bytes).unwrap_err();
    /// assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    /// watcher.submit(Op::readable(source))?;
    /// theirs.write_all(b"hello")?;
    /// watcher.wait(&mut Completions::new())?;
    /// assert_eq!(watcher.recv(source, &mut bytes)?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is a regular file, a directory or a block device.
    ///
    /// The only errnos are those of every operation: `ENOSPC`, `ENOMEM`, `EBADF`. On a source whose
    /// [connect](Watcher::connect) fails, it ends with the errno of the connect.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation. On io_uring the kernel does the reads of
    /// streams, and the driver does not learn what they leave: the first `readable` after an
    /// [`Op::read`] may complete at once and prove vain. A program that only receives by
    /// [`Watcher::recv`] makes no such call.
    ///
    /// # Cancellation
    ///
    /// There is nothing to undo. The next `readable` completes if bytes came just before the
    /// cancel.
    pub const fn readable(source: Source) -> Op {
        Op::plain(OpCode::Readable, source)
    }

    /// Waits until a [`Watcher::send`] is worth a try: the source has room, or an error.
    ///
    /// Completes with [`Done::Ready`] of [`Ready::WRITABLE`]. All else is as for
    /// [`Op::readable`]: the operation makes no system call, and after a `send` that answered
    /// `WouldBlock`, or that sent a part, it completes when there is room.
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let mut sent = 0;
    /// let full = loop {
    ///     match watcher.send(source, &[7; 1000]) {
    ///         Ok(bytes) => sent += bytes,
    ///         Err(error) => break error,
    ///     }
    /// };
    /// assert_eq!(full.kind(), ErrorKind::WouldBlock);
    /// watcher.submit(Op::writable(source))?;
    /// theirs.read_exact(&mut vec![0; sent])?;
    /// watcher.wait(&mut Completions::new())?;
    /// assert_eq!(watcher.send(source, b"more")?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::readable`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::readable`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::readable`].
    pub const fn writable(source: Source) -> Op {
        Op::plain(OpCode::Writable, source)
    }

    /// Waits until at most `bytes` bytes of the source's writes are still queued.
    ///
    /// Completes with [`Done::Drained`]. If the queue is that short already, this happens at the
    /// next wait. `bytes` is the low-water mark of back-pressure; a program checks its high-water
    /// mark with [`Watcher::queued_bytes`]. With 0 the operation waits until no byte is queued. A
    /// write that fails also leaves the queue. So `Done::Drained` does not prove that bytes were
    /// sent: only the completions of the writes do.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, vec![0; 4 << 20]).token(1))?;
    /// watcher.submit(Op::wait_drained(source, 1 << 20).token(2))?;
    /// assert!(watcher.queued_bytes(source)? > 1 << 20); // more than the socket takes
    /// let slow = std::thread::spawn(move || theirs.read_exact(&mut vec![0; 4 << 20]));
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let first = done.drain(..).next().unwrap();
    /// assert!(first.token == 2 && matches!(first.result, Ok(Done::Drained)));
    /// assert!(watcher.queued_bytes(source)? <= 1 << 20);
    /// # while watcher.queued_bytes(source)? > 0 {
    /// #     watcher.wait(&mut done)?;
    /// # }
    /// # slow.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system reports no errors for this operation. The refusals and failures are those of
    /// [every operation](Op#errors-of-every-operation).
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation. Bytes that the kernel has taken no longer
    /// count, even if the peer does not have them yet. On io_uring, all bytes of a write that the
    /// kernel has begun count until the kernel answers.
    ///
    /// # Cancellation
    ///
    /// The writes go on; only the wait ends.
    pub const fn wait_drained(source: Source, bytes: usize) -> Op {
        let mut op = Op::plain(OpCode::WaitDrained, source);
        op.count = if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 };
        op
    }
}
