//! The one type that programs hold: a driver, and the conveniences around it.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::aligned::AlignedBuf;
use crate::auto::Auto;
use crate::builder::Builder;
use crate::completion::{Completion, Completions};
use crate::driver::{Complete, Counters, Deadline, Driver, Explain, ListenOptions, Submit, Wait};
use crate::error::{Reason, Rejected};
use crate::op::Op;
use crate::remote::{SourceGuard, Submitter};
use crate::source::{Handle, Source, Ticket};
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::{affinity, descriptor};

/// Submits operations and waits for their completions: sockets, files, timers and other threads in
/// one wait.
///
/// ```no_run
/// use std::net::TcpListener;
/// use windlass::{Completions, Done, Op, Watcher};
///
/// let mut watcher = Watcher::new()?;
/// let listener = watcher.attach(TcpListener::bind("127.0.0.1:7007")?)?;
/// watcher.submit(Op::accept(listener).multishot())?;
/// let mut done = Completions::new();
/// loop {
///     watcher.wait(&mut done)?;
///     for c in done.drain(..) {
///         match c.result {
///             Ok(Done::Accepted(socket)) => {
///                 let source = watcher.attach(socket)?;
///                 watcher.submit(Op::read(source))?;
///             }
///             Ok(Done::Read(data)) if data.is_eof() => {
///                 watcher.abort(c.source);
///             }
///             Ok(Done::Read(data)) => {
///                 watcher.submit(Op::write(c.source, data))?;
///             }
///             Ok(Done::Written { .. }) => {
///                 watcher.submit(Op::read(c.source))?;
///             }
///             Ok(_) => {}
///             Err(error) => {
///                 eprintln!("{error}");
///                 watcher.abort(c.source);
///             }
///         }
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A watcher belongs to the thread that built it: it is neither `Send` nor `Sync`. Other threads
/// use its [`Submitter`]. [`Builder::spawn`] starts one on a thread of its own.
///
/// # Loop modes, as libuv has them
///
/// The loop is the program's:
///
/// | libuv | here |
/// |---|---|
/// | `UV_RUN_ONCE`, `UV_RUN_NOWAIT` | [`wait`](Watcher::wait), [`try_wait`](Watcher::try_wait) |
/// | `UV_RUN_DEFAULT` | `wait` while there is an operation that is to be waited for: one more with each that is submitted, one less with each completion without [`has_more`](Completion::has_more) |
/// | `uv_ref`, `uv_unref` | to count an operation, or not to: a listener's accept, a heartbeat's timer |
/// | `uv_backend_fd`, `uv_backend_timeout` | [`pollable`](Watcher::pollable), [`next_timeout`](Watcher::next_timeout) |
/// | `uv_now`, `uv_update_time` | [`now`](Watcher::now), [`update_now`](Watcher::update_now) |
/// | `uv_metrics_info`, `uv_metrics_idle_time` | [`counters`](Watcher::counters): `turns`, `events`, `waiting_events`; with [`idle_time`](crate::Builder::idle_time) `idle_ns` |
///
/// ```
/// # use windlass::{Completions, Op, Watcher};
/// # use std::time::Duration;
/// let mut watcher = Watcher::new()?;
/// const BACKGROUND: u64 = u64::MAX;
/// watcher.submit(Op::timer(Duration::from_secs(3600)).token(BACKGROUND))?; // not waited for
/// let mut waited_for = 0;
/// for ms in 1..4 {
///     watcher.submit(Op::timer(Duration::from_millis(ms)))?;
///     waited_for += 1;
/// }
/// let mut done = Completions::new();
/// while waited_for > 0 {
///     watcher.wait(&mut done)?;
///     for c in done.drain(..) {
///         waited_for -= u32::from(c.token != BACKGROUND && !c.has_more());
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// `Watcher` is `Watcher<Auto>`, whose driver is chosen when it is built. A `Watcher` over one
/// driver is monomorphic, from the same source.
pub struct Watcher<D: Driver = Auto> {
    driver: D,
    /// Rings that are bound to one thread must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl Watcher {
    /// A watcher on the driver that `WINDLASS_DRIVER` names, or else on the best that works here.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: an environment variable is wrong: `WINDLASS_DRIVER`, `WINDLASS_FILES`,
    ///   `WINDLASS_THREADS` or `WINDLASS_QUIRKS`.
    /// - `Unsupported`: this system does not have the driver or the file backend that such a
    ///   variable names.
    /// - `EMFILE`, `ENFILE`, `ENOMEM` …: the system cannot set the driver up. The error's text
    ///   begins with the failed call, and [`Reason::of`] returns the errno.
    pub fn new() -> io::Result<Watcher> {
        Watcher::builder().build()
    }

    /// A [`Builder`], to change settings before the watcher is built.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<D: Driver> Watcher<D> {
    /// A watcher over a driver of your own.
    pub fn with_driver(driver: D) -> Watcher<D> {
        Watcher { driver, _not_send: PhantomData }
    }

    /// Takes the driver out, so that a driver of your own can wrap it. Sources, tickets and
    /// submitters stay valid.
    ///
    /// ```
    /// use windlass::{Completions, Op, Watcher};
    /// let driver = Watcher::new()?.into_driver();
    /// let mut watcher = Watcher::with_driver(driver);
    /// watcher.submit(Op::nop())?;
    /// assert_eq!(watcher.wait(&mut Completions::new())?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_driver(self) -> D {
        self.driver
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver, to call methods of its own that change it.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Takes ownership of a descriptor: anything that converts into an `OwnedFd`, or an accepted or
    /// connected [`Handle`]. Makes no system call: the descriptor is registered with the kernel
    /// when an operation on it would block for the first time.
    ///
    /// Options that were set before stay. Pipes, terminals and listeners are made non-blocking at
    /// their first operation. [`detach`](Watcher::detach) restores them.
    ///
    /// # Errors
    ///
    /// The handle comes back, with:
    ///
    /// - [`Reason::Full`] with [`Limit::Sources`](crate::Limit::Sources): the source table is full.
    /// - [`Reason::NoDescriptor`]: the handle belongs to another kernel.
    /// - [`Reason::Closed`]: the watcher is closed.
    /// - [`Reason::Forked`]: this is a forked child.
    pub fn attach(&mut self, handle: impl Into<Handle>) -> Result<Source, Rejected<Handle>> {
        self.driver.attach(handle.into())
    }

    /// Attaches a duplicate (with CLOEXEC) of a descriptor that the caller keeps.
    ///
    /// The duplicate shares the open file description, so the watcher never changes its flags. A
    /// blocking pipe is read with `RWF_NOWAIT` (Linux), or after poll(2). A blocking listener can
    /// be polled and closed, but accepts are refused. On macOS, which lacks `MSG_DONTWAIT` for
    /// sends, every operation on a blocking socket is refused. On Windows every socket is refused,
    /// because Windows does not tell whether it blocks.
    ///
    /// # Errors
    ///
    /// - `EMFILE`: out of descriptors for the duplicate.
    /// - The reasons of [`attach`](Watcher::attach), which [`Reason::of`] returns.
    pub fn attach_dup(&mut self, descriptor: impl AsFd) -> io::Result<Source> {
        let duplicate = descriptor::duplicate(descriptor.as_fd())?;
        Ok(self.driver.attach_shared(Handle::from(duplicate))?)
    }

    /// Gives a descriptor back when no operation is in flight on it. Its flags are as they were
    /// when it was attached. (After a fork they stay as they are, because the other process may
    /// rely on them.)
    ///
    /// # Errors
    ///
    /// The source stays attached, with:
    ///
    /// - [`Reason::Busy`]: operations are in flight on it.
    /// - [`Reason::Stale`]: it was aborted or detached before, or is closing.
    /// - [`Reason::Closed`]: the watcher is closed.
    /// - [`Reason::Forked`]: this is a forked child.
    /// - [`Reason::Full`] with [`Limit::Completions`](crate::Limit::Completions): another thread's
    ///   attach waits in the queue, and the loop takes no requests because too many completions
    ///   wait for delivery.
    pub fn detach(&mut self, source: Source) -> Result<Handle, Reason> {
        self.driver.detach(source)
    }

    /// Makes a listening stream socket with the default [`ListenOptions`]: backlog 4096,
    /// TCP_NODELAY for accepted sockets, `SO_REUSEADDR`. A Unix socket file on which no process
    /// listens any more is replaced.
    ///
    /// # Errors
    ///
    /// Nothing is bound, with:
    ///
    /// - `EADDRINUSE`: another socket has the address.
    /// - `EADDRNOTAVAIL`: the address is not one of this machine.
    /// - `EACCES`: the port is reserved, or the process may not write to the Unix socket's
    ///   directory.
    /// - `ENOENT`, `ENOTDIR`: the directory of a Unix path does not exist.
    /// - `EAFNOSUPPORT`: the system has no such sockets.
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    /// - [`Reason::Full`] with [`Limit::Sources`](crate::Limit::Sources): the source table is full.
    /// - [`Reason::Closed`], [`Reason::Forked`]: the watcher is closed; this is a forked child.
    pub fn listen(&mut self, address: impl Into<Address>) -> io::Result<Source> {
        self.listen_with(address, ListenOptions::default())
    }

    /// As [`listen`](Watcher::listen), with options.
    ///
    /// # Errors
    ///
    /// - As for [`listen`](Watcher::listen).
    /// - `Unsupported`: [`reuse_port`](ListenOptions::reuse_port) on Windows.
    pub fn listen_with(
        &mut self,
        address: impl Into<Address>,
        options: ListenOptions,
    ) -> io::Result<Source> {
        self.driver.listen(&address.into(), options)
    }

    /// Accepts an operation, or hands it back. Its completion comes from a later wait, never from
    /// inside this call.
    ///
    /// # Errors
    ///
    /// [`Rejected`] hands the operation back with its buffer. [Every
    /// operation](Op#errors-of-every-operation) can be refused with [`Reason::Closed`],
    /// [`Reason::Forked`], [`Reason::Stale`] or [`Reason::Full`]; the page of its constructor lists
    /// more.
    #[inline(always)]
    pub fn submit(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        self.driver.submit(op)
    }

    /// Asks for an operation to end. Its completion is the answer, and says how many bytes moved.
    /// Returns false for a stale ticket: the operation has ended already.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.driver.cancel(ticket)
    }

    /// Cancels every operation on a source, and returns their number.
    pub fn cancel_all(&mut self, source: Source) -> usize {
        self.driver.cancel_all(source)
    }

    /// Waits for at least one completion, appends all to `done`, and returns their number. A signal
    /// does not end the wait: see the guide's page on signals.
    ///
    /// With nothing in flight it waits for requests of other threads through a [`Submitter`].
    /// Without such threads it blocks for ever. (On a [simulation](crate::sim) it fails instead.)
    ///
    /// # Errors
    ///
    /// - [`Reason::Closed`]: [`close`](Watcher::close) was called, and everything has been
    ///   delivered.
    /// - [`Reason::Forked`]: this is a forked child.
    /// - `EBADF`, on epoll also `EINVAL`: other code has closed the selector's descriptor.
    /// - `Deadlock`: on a simulation, nothing is left that could happen.
    ///
    /// [`Reason::of`] returns the reason.
    #[inline]
    pub fn wait(&mut self, done: &mut Completions) -> io::Result<usize> {
        self.driver.complete(Wait::Forever, done)
    }

    /// As [`wait`](Watcher::wait), for at most `timeout`. Returns 0 when it has passed.
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

    /// Ends the operations of a source ([`ErrorKind::Aborted`](crate::ErrorKind::Aborted)) and
    /// closes its descriptor at once. Returns false for a stale source. To send the queued writes
    /// first, submit [`Op::close`] instead. An abort after it would end the close and the unsent
    /// writes.
    ///
    /// Completions already made are still delivered. Later submissions for the source are refused
    /// with [`Reason::Stale`]: a server with several operations in flight per source must expect
    /// that.
    ///
    /// ```
    /// # use windlass::{Completions, Op, Reason, Watcher};
    /// # let mut watcher = Watcher::new()?;
    /// # let (a, b) = std::os::unix::net::UnixStream::pair()?;
    /// # let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    /// watcher.submit(Op::write(a, "hello"))?;
    /// watcher.abort(a);
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?; // the write is out
    /// let source = done.drain(..).next().unwrap().source;
    /// match watcher.submit(Op::read(source)) {
    ///     Err(refused) if refused.reason == Reason::Stale => {} // aborted meanwhile
    ///     answer => drop(answer?),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn abort(&mut self, source: Source) -> bool {
        self.driver.abort(source)
    }

    /// Ends everything: every operation in flight completes with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), and every descriptor is closed. The next
    /// waits deliver these completions. Then they fail with [`Reason::Closed`]. A second call does
    /// nothing.
    pub fn close(&mut self) {
        self.driver.close();
    }

    /// Makes the copy of the watcher in a forked child usable there. Without a fork it does
    /// nothing. Until then every call in the child fails with [`Reason::Forked`]. The child never
    /// disturbs the parent's watcher.
    ///
    /// The sources stay, with their names. The two processes share their open files: bytes that one
    /// reads, the other does not get. Every operation in flight at the fork goes on in the parent.
    /// In the child it ends with [`ErrorKind::Forked`](crate::ErrorKind::Forked), and with its
    /// buffer unless a worker thread had it. The selector or ring, the wake descriptor, the AIO
    /// context and the worker threads are made anew; registered files and buffers are registered
    /// anew. Completions that were not yet delivered at the fork are delivered in both.
    ///
    /// [`Submitter`]s and source guards from before the fork stay the parent's: a guard that is
    /// dropped in the child aborts nothing there. [`pollable`](Watcher::pollable) returns another
    /// descriptor. Older buffers of [`aligned_buf`](Watcher::aligned_buf) are not registered any
    /// more. After a fork, neither process restores a descriptor's flags, because the other may
    /// still rely on them.
    ///
    /// The child of a process with several threads may only make async-signal-safe calls
    /// (signal-safety(7)), and this is not one. So fork before any thread starts, workers included,
    /// or call exec in the child. No direct I/O into private memory may be in flight at a fork
    /// (open(2)). Files that workers had open at the fork stay open in the child.
    ///
    /// ```no_run
    /// # use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let listener = watcher.listen(([127, 0, 0, 1], 7007))?;
    /// for _ in 0..4 {
    ///     // SAFETY: this process has one thread.
    ///     if unsafe { libc::fork() } == 0 {
    ///         watcher.reinit_after_fork()?;
    ///         break;
    ///     }
    /// }
    /// watcher.submit(Op::accept(listener).multishot())?; // five processes accept
    /// # watcher.wait(&mut Completions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The watcher stays as it was, and this can be tried again, with:
    ///
    /// - `EMFILE`, `ENFILE`, `ENOMEM` …: the system does not give the new selector or ring.
    /// - [`Reason::Closed`]: the watcher is closed.
    /// - [`Reason::Unsupported`]: the driver cannot do this, for example the simulated one.
    pub fn reinit_after_fork(&mut self) -> io::Result<()> {
        self.driver.reinit_after_fork()
    }

    /// How many bytes of writes are queued on a source. A program looks at them before it writes
    /// more to a peer that may be slow. [`Op::wait_drained`] completes when they have become fewer,
    /// and [`Builder::write_limit`] bounds them.
    ///
    /// # Errors
    ///
    /// - [`Reason::Stale`]: the source was aborted or detached.
    /// - [`Reason::Closed`], [`Reason::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Reason::Unsupported`]: a driver of your own does not count them.
    #[inline]
    pub fn queued_bytes(&self, source: Source) -> Result<usize, Reason> {
        self.driver.queued_bytes(source)
    }

    /// Gives a source a token. Its operations that are submitted from now on carry it, except those
    /// with a [token](Op::token) of their own, other than 0. A token of 0 takes it away. The default
    /// is none.
    ///
    /// So a program can find its state by a number of its own, without saying it at each operation.
    /// [`SourceMap`](crate::SourceMap) finds it by the source. The first token of a watcher takes 8
    /// bytes for every source that there was at a time.
    ///
    /// ```
    /// # use windlass::{Completions, Op, Watcher};
    /// # let mut watcher = Watcher::new()?;
    /// # let (a, b) = std::os::unix::net::UnixStream::pair()?;
    /// # let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    /// watcher.set_token(a, 7)?;
    /// watcher.submit(Op::write(a, "one"))?;
    /// watcher.submit(Op::write(a, "two").token(8))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let tokens: Vec<u64> = done.drain(..).map(|c| c.token).collect();
    /// assert_eq!(tokens, [7, 8]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Reason::Stale`]: the source was aborted or detached.
    /// - [`Reason::Closed`], [`Reason::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Reason::Full`] with [`Limit::Completions`](crate::Limit::Completions): as for
    ///   [`detach`](Watcher::detach).
    /// - [`Reason::Unsupported`]: a driver of your own has no such tokens.
    pub fn set_token(&mut self, source: Source, token: u64) -> Result<(), Reason> {
        self.driver.set_token(source, token)
    }

    /// Lends a source's descriptor out, for example to set socket options through
    /// `socket2::SockRef`.
    ///
    /// # Errors
    ///
    /// - [`Reason::Stale`]: the source was aborted or detached.
    /// - [`Reason::NoDescriptor`]: a simulated source has none.
    /// - [`Reason::Closed`], [`Reason::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Reason::Full`] with [`Limit::Completions`](crate::Limit::Completions): as for
    ///   [`detach`](Watcher::detach).
    pub fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Reason> {
        self.driver.fd(source)
    }

    /// Sets TCP_NODELAY, on every driver.
    ///
    /// # Errors
    ///
    /// - [`Reason::Os`] with `EOPNOTSUPP`, `ENOPROTOOPT`: the source is no TCP socket.
    /// - [`Reason::Os`] with `ENOTSOCK`: the source is no socket.
    /// - The reasons of [`fd`](Watcher::fd), except `NoDescriptor`.
    pub fn set_nodelay(&mut self, source: Source, on: bool) -> Result<(), Reason> {
        self.driver.set_nodelay(source, on)
    }

    /// The address that a source is bound to.
    ///
    /// # Errors
    ///
    /// - [`Reason::Os`] with `ENOTSOCK`: the source is no socket.
    /// - The reasons of [`fd`](Watcher::fd), except `NoDescriptor`.
    pub fn local_address(&self, source: Source) -> Result<Address, Reason> {
        self.driver.local_address(source)
    }

    /// The address that a source is connected to.
    ///
    /// # Errors
    ///
    /// - [`Reason::Os`] with `ENOTCONN`: the socket is not connected, or not any more.
    /// - [`Reason::Os`] with `ENOTSOCK`: the source is no socket.
    /// - The reasons of [`fd`](Watcher::fd), except `NoDescriptor`.
    pub fn peer_address(&self, source: Source) -> Result<Address, Reason> {
        self.driver.peer_address(source)
    }

    /// A handle that attaches, submits, cancels and aborts from any thread.
    pub fn submitter(&mut self) -> Submitter {
        self.driver.submitter()
    }

    /// An empty buffer for direct I/O. Its address and its capacity are multiples of 4096, and the
    /// capacity is at least `len`. It lies in the memory that [`Builder::registered_bytes`] has
    /// registered, or, when that is full, in memory of its own, like a buffer of
    /// [`AlignedBuf::with_capacity`]. It can outlive the watcher, and be used with any other.
    ///
    /// # Panics
    /// As [`AlignedBuf::with_capacity`], for a `len` near `isize::MAX`.
    ///
    /// ```
    /// # use windlass::Watcher;
    /// let mut watcher = Watcher::builder().registered_bytes(1 << 20).build()?;
    /// let buf = watcher.aligned_buf(5000);
    /// assert_eq!((buf.len(), buf.capacity()), (0, 8192));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn aligned_buf(&mut self, len: usize) -> AlignedBuf {
        self.driver.aligned_buf(len)
    }

    /// Binds a source to a guard. Dropping the guard, on any thread, aborts the source in the
    /// loop's next turn.
    pub fn guard(&mut self, source: Source) -> SourceGuard {
        SourceGuard::new(source, self.driver.submitter())
    }

    /// The time on the driver's clock: the system's monotonic one, or a simulated kernel's. The
    /// watcher reads the clock once between two waits, so the time stands still while the program
    /// works. Spans ([`Op::timer`], [`Op::timeout`]) count from the real time of their submission.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Reads the clock and returns the time. [`now`](Watcher::now) returns it until the next wait.
    pub fn update_now(&mut self) -> Instant {
        self.driver.update_now()
    }

    /// Gives a timer a new time, or another operation in flight a new [`timeout`](Op::timeout),
    /// counted from now. The operation may have had no deadline before, and may have moved any
    /// number of bytes. A timer keeps its deadline. The new deadline comes after equal ones. The
    /// call moves one entry in a heap, so a program can extend an idle timeout with each message.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Reason, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let timer = watcher.submit(Op::timer(Duration::from_secs(60)))?;
    /// watcher.reschedule(timer, Duration::from_millis(1)).unwrap();
    /// watcher.wait(&mut Completions::new())?;
    /// assert_eq!(watcher.reschedule(timer, Duration::ZERO), Err(Reason::Stale));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Reason::Stale`]: the operation has ended, or is about to.
    /// - [`Reason::Unsupported`]: a read without a buffer that was submitted without a deadline;
    ///   submit it with a long [`timeout`](Op::timeout) instead.
    /// - [`Reason::Forked`]: in a forked child.
    pub fn reschedule(&mut self, ticket: Ticket, span: Duration) -> Result<(), Reason> {
        self.driver.reschedule(ticket, Deadline::After(span))
    }

    /// As [`reschedule`](Watcher::reschedule), to an absolute time.
    ///
    /// # Errors
    /// As for `reschedule`.
    pub fn reschedule_at(&mut self, ticket: Ticket, at: Instant) -> Result<(), Reason> {
        self.driver.reschedule(ticket, Deadline::At(at))
    }

    /// How long an embedding loop may sleep before it calls [`try_wait`](Watcher::try_wait) again.
    /// Zero: there are completions. `None`: it may sleep until the [descriptor](Watcher::pollable)
    /// is readable.
    pub fn next_timeout(&mut self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// A descriptor that becomes readable when [`try_wait`](Watcher::try_wait) would find
    /// something, for embedding in another loop. Call `try_wait` until it returns 0. Then sleep on
    /// the descriptor for at most [`next_timeout`](Watcher::next_timeout).
    ///
    /// # Errors
    ///
    /// - [`Reason::Unsupported`]: on a simulation, and on Windows.
    /// - [`Reason::Forked`]: this is a forked child.
    pub fn pollable(&self) -> Result<BorrowedFd<'_>, Reason> {
        self.driver.pollable()
    }

    /// Binds the calling thread, on which the loop runs, to processor `cpu` (from 0). Worker
    /// threads started later may still run on all processors of the process.
    ///
    /// # Errors
    ///
    /// - [`Reason::NoProcessor`]: the processor does not exist, or the process may not use it.
    /// - [`Reason::Closed`], [`Reason::Forked`]: the watcher is closed; this is a forked child.
    /// - `Unsupported`: only Linux and Android can bind threads.
    pub fn set_affinity(&mut self, cpu: usize) -> io::Result<()> {
        // One that is closed, or another process's, says so of any source. (A submitter would
        // reserve ids.)
        match self.driver.fd(Source::NONE) {
            Err(reason @ (Reason::Closed | Reason::Forked)) => Err(reason.into()),
            _ => affinity::bind(cpu),
        }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> Counters {
        self.driver.counters()
    }

    /// Which mechanism serves which operation, why, and how often.
    pub fn explain(&self) -> Explain {
        self.driver.explain()
    }
}

impl<D: Driver> Submit for Watcher<D> {
    type Op = Op;
    #[inline(always)]
    fn submit(&mut self, op: Op) -> Result<Ticket, Rejected<Op>> {
        self.driver.submit(op)
    }
    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.driver.cancel(ticket)
    }
}

impl<D: Driver> Complete for Watcher<D> {
    type Item = Completion;
    #[inline]
    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        self.driver.complete(wait, out)
    }
}

impl<D: Driver> std::fmt::Debug for Watcher<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
