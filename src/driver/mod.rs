//! The contract of a driver: the page to read before writing one.
//!
//! Operations cross layers through two verbs only: [`Submit`] and [`Complete`]. The
//! [`Reactor`](crate::reactor::Reactor) speaks them (its operation is an interest, its item is
//! readiness), and so do the [`Proactor`](crate::proactor::Proactor), Linux AIO (`AioFiles` in
//! [`fs`](crate::fs)) and the [`Watcher`](crate::Watcher). A [`Driver`] speaks them over [`Op`] and
//! [`Completion`] and owns the descriptors. One that is written outside this crate plugs in through
//! [`Watcher::with_driver`](crate::Watcher::with_driver).
//!
//! # The contract
//!
//! The conformance suite checks it on every driver.
//!
//! - **C1 exactly once.** An accepted operation ends in exactly one final completion. A multishot
//!   operation delivers any number of completions with `has_more` before it. Nothing is delivered
//!   from inside `submit`. A refused submission reports nothing later and hands the operation back
//!   with its buffer. The one exception is a [quiet](crate::Op::quiet) write: if it succeeds it
//!   makes no completion, is counted ([`quiet_done`](Counters::quiet_done)), and the driver drops
//!   its buffer; every other end makes exactly one, with the buffer. So the counter `submitted` is
//!   the sum of the final completions, `quiet_done` and `in_flight`.
//! - **C2 how it ends.** An operation ends in one of these ways: done, end of file, error of the
//!   system, deadline, cancelled, source aborted, watcher closed, torn, overflow of its source's
//!   writes, panic of a job, fork. Every completion says how many bytes moved. Every end of a
//!   source is told as an end, once to each read: as an empty buffer, or as the error
//!   [`Eof`](crate::ErrorKind::Eof) to a read of an exact count. On a connection of records
//!   (seqpacket) an empty buffer is an empty record, so there each read fails with `Eof`. Either
//!   completion ends a multishot read. A result that is a
//!   descriptor is owned from the moment the kernel hands it over: a completion dropped unread
//!   leaks nothing.
//! - **C3 order.** Per source and direction, operations take bytes in submission order. Operations
//!   that end as done, at the end of file or with an error of the system complete in that order; an
//!   operation that is cancelled or expires before it moved a byte may overtake others. A stream
//!   write that ends partly sent ends the writes already queued behind it (torn, 0 bytes); writes
//!   submitted later proceed. Reads and writes are independent. Any number of operations may be
//!   outstanding. A source that [`Driver::connect`] makes takes operations at once: they wait for
//!   its connect, whose completion is delivered before theirs. If the connect fails, they end with
//!   0 bytes and its errno (`ETIMEDOUT` after its deadline, `ECANCELED` after a cancel), and later
//!   submissions are refused with this errno, except a close. An operation that is cancelled or
//!   expires may complete before the connect, too.
//! - **C4 deadlines.** Any operation may have a deadline, which is an absolute time. No operation
//!   expires early, and none later than the granularity of the wait allows. An operation at the
//!   head of its queue whose deadline has passed at submission has one try: data that is there
//!   wins. Also later, what had arrived when the clock was read wins over a deadline or an idle
//!   timeout, however many sources are ready. A deadline leaves the source usable. Work on a file
//!   that has begun goes on to its end, and its completion says that it is
//!   [late](Completion::is_late). [`Driver::reschedule`] moves the deadline of any operation in
//!   flight, gives it its first one, or moves a timer. An *idle timeout*
//!   ([`Driver::set_idle_timeout`]) ends the reads of a source on which no byte has moved, in
//!   either direction, for that long. What counts is the sum of the times in which a read was in
//!   flight and waited for no memory (C8), in whatever rhythm reads start and stop. When the reads
//!   end, this sum is never less than the timeout. The sum exceeds the timeout by at most a
//!   sixteenth (or 100 ms, if that is more), plus twice the longest time between two waits. The
//!   source stays usable.
//! - **C5 memory.** Operations own their buffers. Between submission and final completion no safe
//!   code can free, move or change that memory, or read it while the kernel writes it, whatever
//!   is dropped or forgotten.
//! - **C6 cancel.** A cancel is a request; the completion of the operation is its answer. Partial
//!   bytes are kept and counted. Ids carry a generation: a stale one is an error, never another
//!   operation. (The ticket of a read without a buffer stays stale for the next 2^31 such reads in
//!   the place of its source. Every other id stays stale for ever.) An operation that was cancelled
//!   has taken no signal and reaped no child. The ticket of a quiet write goes stale when the write
//!   succeeds, not when a wait returns. An accepted cancel always has an answer: if the kernel has
//!   taken a quiet write after all, the write makes its completion.
//! - **C7 abort, close, drop.** `abort` ends a source's operations, the timers that it
//!   [owns](Op::owned_by) among them, then closes its descriptor. Completions that were delivered
//!   before stay valid. `close` ends all operations; when all of them are delivered, `complete`
//!   says [`Refusal::Closed`]. A second `close` does nothing. A shutdown or close operation is
//!   ordered after the writes queued before it. No close waits on the loop's thread. Where close(2)
//!   may wait (for a file system, for a device, for the peer of a socket with `SO_LINGER`), a
//!   thread closes: 32 files and devices, and 256 sockets, of the process at a time. So closes that
//!   never return hold up later closes of their kind, but nothing else. An abort, a close of the
//!   driver, and its drop wait for no peer: they turn the linger time of the socket off, unless it
//!   is 0 (then the peer gets a reset) or other code shares the socket. The close operation
//!   keeps the linger time, and completes when close(2) has ended. A source of signals restores,
//!   when it ends, what it has changed in the process. A source of a child leaves the child to the
//!   program. Dropping the driver closes what is open, asks the kernel and the threads to end the
//!   operations that they have, and waits for their end and for closes for a bounded time (a
//!   second); what then remains goes on in a thread, or until the process ends. A buffer that the
//!   kernel may use for longer is left to it and [counted](crate::driver::leaked_buffers), never
//!   freed; a buffer that a thread has is dropped when the thread is done. The driver drops the
//!   program's values that no completion returns: the closure of a job that never ran, the buffer
//!   of a quiet write that succeeded, and everything queued or undelivered when the driver is
//!   dropped. It drops them when its own state is whole again. It catches a panic of their `Drop`,
//!   after the panic hook has run, and [counts](crate::driver::panicked_drops) the panic.
//! - **C8 swap buffers.** A read without a buffer yields a [`LeaseMut`](crate::LeaseMut) on memory
//!   of a bounded [`Pool`](crate::driver::swap::Pool): no other lease has any of its bytes until
//!   the program makes a [`Lease`](crate::Lease) of it. At the bound, reads wait for a lease to
//!   come back. (A read behind a lease does not wait: it moves the lease into memory of its own.)
//!   An idle source holds no buffer. The queued writes of a source have a *share* of the pool: they
//!   hold at most as many leases as swap buffers are free. While more than a quarter of the pool is
//!   in use (with fewer than eight swap buffers: always), a source at its share waits with its
//!   reads into the pool, until some of its writes end or more swap buffers are free. (A queue of
//!   4096 writes counts as full. Two ends in one program can wait for each other: a deadline or an
//!   abort ends the wait.) Once half of the pool is in use, a write beyond the share is accepted,
//!   but its leases are copied out of the pool and [counted](Counters::copied_leases). The
//!   completion gives the copies back. For the reads of the source, copies count as leases. So
//!   peers that do not read never use up the pool, whether the writes to them come from their own
//!   reads, from those of other sources or from the program. Leases that the program holds count
//!   for no source: a read waits for none of them while a swap buffer is free.
//! - **C9 bounded and fair.** Every queue has a bound, and a refusal names the bound. (With
//!   [`Overflow::Close`](crate::Overflow::Close), exceeding the bound of a source's writes ends the
//!   source instead.) The completion of an accepted operation always has room. One flooding source
//!   cannot starve the others. The loop never spins without progress: it pauses at a condition that
//!   no operation clears, and at errors that repeat. No operation on a file keeps the loop's thread
//!   waiting for the disk or the file system. Accepts wait while the source table is full.
//! - **C10 no silent fallback.** An explicit choice of driver never falls back, and
//!   [`Driver::explain`] says which mechanism serves which operation, why, and how often.
//! - **C11 readiness.** [`Op::readable`] and [`Op::writable`] take nothing and wait behind nothing.
//!   They complete when a try is worth it, for all that the driver knows: at once if the last event
//!   said so and no try since has shown the opposite, else with the next event. The end and an
//!   error are worth a try, too. A completion may be spurious, but none is lost: after a
//!   [`recv`](Driver::recv) that returned `WouldBlock`, or a `send`, the next arrival completes the
//!   operation, however late the program submits it. A multishot one completes at least once per
//!   such call. `recv` and `send` never block. They are refused while operations of their direction
//!   are in flight, and the bytes that they move count for idle timeouts.
//!
//! # Parts for a driver
//!
//! [`slots::Table`] keeps sources and operations in flight,
//! [`Deadlines`](crate::driver::deadlines::Deadlines) their deadlines,
//! [`Pool`](crate::driver::swap::Pool) the swap buffers, [`Remote`](crate::driver::remote::Remote)
//! the other threads' requests. [`Op::into_parts`] takes any operation apart; [`Job::run`] does
//! the work that blocks, on a thread of the driver. [`discard`] drops values of the program, and
//! [`leak`] leaves a buffer to the kernel: see C7. `examples/own_driver.rs` is a driver around
//! another one, `tests/custom_driver.rs` one that serves sockets and files itself.

pub(crate) mod config;
pub(crate) mod deadline;
pub(crate) mod endpoint;
pub(crate) mod parts;

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use crate::completion::{Completion, Completions};
use crate::memory::aligned::AlignedBuf;
use crate::op::Op;
use crate::remote::Submitter;
use crate::sys::fd::BorrowedFd;
use crate::sys::socket_option::SocketOption;
use crate::words::address::Address;
use crate::words::error::{Refusal, Refused};
use crate::words::source::{Handle, Source, SourceKind, Ticket};

pub use crate::completion::Visit;
pub use crate::completion::verbs::{Complete, Submit, Wait};
pub use crate::driver::config::Config;
pub use crate::driver::endpoint::{ConnectOptions, DatagramOptions, ListenOptions};
pub use crate::driver::parts::OpParts;
pub use crate::file::{Closure, Job};
pub use crate::memory::buf::Target;
pub use crate::memory::discard::{discard, panicked_drops};
pub use crate::memory::leaked::{leak, leaked_buffers};
pub use crate::op::OpCode;
pub use crate::watcher::auto::{Auto, UnknownDriver};
pub use crate::words::clock::{Clock, Deadline};
pub use crate::words::explain::{Counters, Explain, ExplainRow};

pub mod slots {
    //! Tables that a driver keeps its operations and sources in.
    //!
    //! A [`Table`] gives out slots with a generation: the name of a slot that was vacated stays
    //! stale for ever. It grows by chunks of 256 entries, so that entries never move and memory is
    //! never doubled. [`Operation`] is what a driver remembers of an operation in flight.
    pub use crate::op::operation::{InFlight, Operation};
    pub use crate::words::table::{Entry, NIL, Table, VACANT};
}

pub mod deadlines {
    //! The deadline heap: one for all operations of a driver.
    pub use crate::driver::deadline::Deadlines;
}

pub mod swap {
    //! Swap buffers: library-owned memory for reads without a buffer, handed out as counted leases.
    //!
    //! A [`Pool`] owns chunks of one size and packs what is read into the current chunk, one read
    //! after the other. Every read yields a [`LeaseMut`](crate::LeaseMut). A chunk without leases
    //! can be written again.
    pub use crate::memory::buf::swap::{Lent, Pool};
}

pub mod remote {
    //! Requests from other threads: a bounded queue, a wake-up that is skipped while the loop is
    //! awake, and ids that the loop keeps ready.
    pub use crate::remote::{Remote, Request, Wake};
}

/// Both verbs over [`Op`], and the descriptors.
///
/// Optional methods have a default that returns [`Refusal::Unsupported`].
#[allow(unused_variables)] // a default ignores what it is given
pub trait Driver: Submit<Op = Op> + Complete<Item = Completion> {
    /// Takes ownership of a descriptor. Makes no system call.
    ///
    /// # Errors
    /// The handle comes back: the source table is full, the driver is closed, or the handle belongs
    /// to another kernel.
    fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;

    /// As [`attach`](Driver::attach), for a duplicate whose open file description other code uses:
    /// its flags are never changed.
    ///
    /// # Errors
    /// As for `attach`.
    fn attach_shared(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;

    /// Gives a descriptor back, with the flags that it had.
    ///
    /// # Errors
    /// [`Refusal::Busy`] while operations are in flight on it, [`Refusal::Stale`].
    fn detach(&mut self, source: Source) -> Result<Handle, Refusal>;

    /// Makes a listening stream socket.
    ///
    /// # Errors
    /// What the system reports for the address.
    fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source> {
        Err(Refusal::Unsupported.into())
    }

    /// Makes a datagram socket that is bound to `address`.
    ///
    /// # Errors
    /// What the system reports for the address.
    fn bind_datagram(&mut self, address: &Address, options: DatagramOptions) -> io::Result<Source> {
        Err(Refusal::Unsupported.into())
    }

    /// Makes a source at once, and connects it to the first of `addresses` that answers. The
    /// ticket's completion has the code [`OpCode::Connect`], the source, and
    /// [`Done::Connected`](crate::Done::Connected) or the errno of the attempt that failed
    /// last. Until then the source has no descriptor, and a call that needs one answers `ENOTCONN`;
    /// after a failure such a call answers the errno. An abort ends the connect.
    ///
    /// The families of the addresses alternate. Attempts begin with the delay of `options` between
    /// them, the next one at once when one fails; when one succeeds, the others close (RFC 8305,
    /// section 5).
    ///
    /// # Errors
    /// [`Refusal::NoAddress`] for an empty list; the source table is full; the driver is closed.
    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Makes a source of these signals of the process, for [`Op::signal`].
    ///
    /// # Errors
    /// [`Refusal::Os`] with `EINVAL` for a number that is no signal, or one that cannot be handled;
    /// `EMFILE`, `ENFILE`; the source table is full; the driver is closed.
    fn signals(&mut self, signals: &[i32]) -> Result<Source, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Makes a source of a child process, for [`Op::child_exit`].
    ///
    /// # Errors
    /// [`Refusal::Os`] with `EINVAL` for a number that is no process id, `ECHILD` or `ESRCH` for a
    /// process that is no child of this one, `EMFILE`, `ENFILE`, `ENOSYS`; the source table is
    /// full; the driver is closed.
    fn child(&mut self, pid: u32) -> Result<Source, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Ends the source's operations and closes its descriptor; false for a stale source.
    fn abort(&mut self, source: Source) -> bool;

    /// Ends every operation on the source. Returns their number.
    fn cancel_all(&mut self, source: Source) -> usize;

    /// Ends every operation, and closes every descriptor.
    fn close(&mut self);

    /// Makes the copy of the driver in a forked child usable there. Without a fork the built-in
    /// drivers do nothing. See [`Watcher::reinit_after_fork`](crate::Watcher::reinit_after_fork).
    ///
    /// # Errors
    /// What the system reports; [`Refusal::Unsupported`], of a driver without this.
    fn reinit_after_fork(&mut self) -> io::Result<()> {
        Err(Refusal::Unsupported.into())
    }

    /// Bytes of writes that are queued on the source and not out yet.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Receives into the program's memory, at once: see [`Watcher::recv`](crate::Watcher::recv) and
    /// C11. One part after the other is filled.
    ///
    /// # Errors
    /// `WouldBlock`: nothing has arrived, or the system has no memory for the call, or signals
    /// interrupt it each time.
    /// What the system reports; [`Refusal::Busy`] while reads of the source are in flight;
    /// [`Refusal::EmptyBuffer`]; [`Refusal::Unsupported`]; [`Refusal::Stale`].
    fn recv(&mut self, source: Source, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Err(Refusal::Unsupported.into())
    }

    /// Sends the program's bytes at once, as many as the source takes: see
    /// [`Watcher::send`](crate::Watcher::send) and C11.
    ///
    /// # Errors
    /// As for `recv`, while writes are in flight; no bytes are no error.
    fn send(&mut self, source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(Refusal::Unsupported.into())
    }

    /// Gives the source a token: its operations that are accepted from now on carry it, unless they
    /// have a token of their own. 0 takes the source's token away.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    fn set_token(&mut self, source: Source, token: u64) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Lends the descriptor out, for socket options.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::NoDescriptor`] on a simulated kernel.
    fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The address that the source is bound to.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports; [`Refusal::Stale`].
    fn local_address(&self, source: Source) -> Result<Address, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The address that the source is connected to.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports (`ENOTCONN` …); [`Refusal::Stale`].
    fn peer_address(&self, source: Source) -> Result<Address, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Takes the error out that waits at a socket, as an errno.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports (`ENOTSOCK` …); [`Refusal::Stale`].
    fn take_error(&mut self, source: Source) -> Result<Option<i32>, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The kind of the source's descriptor.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports; [`Refusal::Stale`].
    fn kind(&mut self, source: Source) -> Result<SourceKind, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Sets the peer of a datagram socket: see
    /// [`Watcher::connect_datagram`](crate::Watcher::connect_datagram). Does not block.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports; `Unsupported` for another kind of source;
    /// [`Refusal::Stale`].
    fn connect_datagram(&mut self, source: Source, peer: &Address) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Sets an option of a socket.
    ///
    /// # Errors
    /// [`Refusal::Os`] with what the system reports; [`Refusal::Stale`].
    fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// A buffer of at least `len` bytes at a multiple of 4096. It is in memory that is registered
    /// with the driver's kernel, if there is such memory and it has room.
    fn aligned_buf(&mut self, len: usize) -> AlignedBuf {
        AlignedBuf::with_capacity(len, 4096)
    }

    /// The memory that reads without a buffer are served from, for
    /// [`Watcher::lease`](crate::Watcher::lease).
    ///
    /// # Errors
    /// [`Refusal::Forked`]; [`Refusal::Unsupported`], of a driver without such memory.
    fn pool(&mut self) -> Result<&mut swap::Pool, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The time on the driver's clock, which is virtual on a simulated kernel. The driver may have
    /// read the clock as early as the last [`complete`](Complete::complete).
    fn now(&self) -> Instant;

    /// The driver's clock, for code without the driver. A driver that wraps another one passes this
    /// on.
    fn clock(&self) -> Clock;

    /// Reads the clock and returns the time.
    fn update_now(&mut self) -> Instant {
        self.now()
    }

    /// Gives an operation in flight another deadline or its first one, or a timer another time.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Unsupported`] from a driver that does not reschedule.
    fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Whether an operation has not ended yet. It has ended when its final completion waits for
    /// delivery, or was delivered. A [quiet](Op::quiet) write has also ended when it has succeeded.
    ///
    /// # Errors
    /// [`Refusal::Forked`]; [`Refusal::Unsupported`]: the driver cannot tell.
    fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Ends a source's reads with [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) when no byte
    /// has moved on it for `timeout` (C4); `None` lets it be idle for ever.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Unsupported`] for a listener or a file, and from a driver
    /// without this; [`Refusal::Full`] with [`Limit::IdleTimeouts`](crate::Limit::IdleTimeouts).
    fn set_idle_timeout(
        &mut self,
        source: Source,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    /// The idle timeout of a source, as it was set: `None` if it has none, or has ended. A driver
    /// that has [`set_idle_timeout`](Driver::set_idle_timeout) tells it.
    fn idle_timeout(&self, source: Source) -> Option<Duration> {
        None
    }

    /// How long an embedding loop may sleep: zero when there is something to take.
    fn next_timeout(&mut self) -> Option<Duration>;

    /// A descriptor that is readable when a wait would find something, for embedding in another
    /// loop.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] on a simulated kernel.
    fn pollable(&self) -> Result<BorrowedFd<'_>, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// A handle for other threads.
    fn submitter(&mut self) -> Submitter;

    /// What has been counted so far.
    fn counters(&self) -> Counters;

    /// As [`complete`](Complete::complete), but it returns when at least `least` items were
    /// delivered, or `wait` is over, or the items that wait hold the resources for more: see
    /// [`Watcher::wait_at_least`](crate::Watcher::wait_at_least). The default implementation calls
    /// `complete` repeatedly. So the connections that one call accepts count as attached in the
    /// next call.
    ///
    /// # Errors
    /// As for `complete`. What was delivered before an error is in `out`; the next call reports it.
    fn complete_at_least(
        &mut self,
        least: usize,
        wait: Wait,
        out: &mut Completions,
    ) -> io::Result<usize> {
        let mut count = self.complete(if least == 0 { Wait::Now } else { wait }, out)?;
        while count > 0 && count < least {
            match self.complete(wait, out) {
                Ok(0) | Err(_) => break,
                Ok(more) => count += more,
            }
        }
        Ok(count)
    }

    /// Waits for the final completion of one operation, and takes it out: all others stay for the
    /// next [`complete`](Complete::complete), in their order. See
    /// [`Watcher::wait_for`](crate::Watcher::wait_for).
    ///
    /// # Errors
    /// [`Refusal::Stale`]: no completion of this ticket will come any more. [`Refusal::Full`] with
    /// [`Limit::Completions`](crate::Limit::Completions): too many others wait; with
    /// [`Limit::SwapBytes`](crate::Limit::SwapBytes) or [`Limit::Sources`](crate::Limit::Sources):
    /// other completions may hold the memory or the place that the operation waits for. Otherwise
    /// as for `complete`.
    fn complete_one(&mut self, ticket: Ticket) -> io::Result<Completion> {
        Err(Refusal::Unsupported.into())
    }

    /// Which mechanism serves which operation, why, and how often.
    fn explain(&self) -> Explain;
}
