//! The [`Watcher`]: a driver, and convenient methods around it.

pub(crate) mod auto;
mod builder;
mod connect;
mod direct;
mod process;
mod simulated;
mod sockets;
pub(crate) mod source_map;
mod time;
mod wait;

use std::io;
use std::marker::PhantomData;

use crate::completion::verbs::{Complete, Submit, Wait};
use crate::completion::{Completion, Completions};
use crate::driver::Driver;
use crate::driver::endpoint::ListenOptions;
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::swap::{Lease, LeaseMut};
use crate::op::Op;
use crate::remote::{SourceGuard, Submitter};
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::socket_option::SocketOption;
use crate::sys::{affinity, descriptor};
use crate::watcher::auto::Auto;
use crate::words::address::Address;
use crate::words::error::{Limit, Refusal, Refused};
use crate::words::explain::{Counters, Explain};
use crate::words::source::{Handle, Source, Ticket};
pub use builder::{Builder, LoopThread};

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
/// A program writes the loop itself. It gets the effect of each libuv function as follows:
///
/// | libuv | here |
/// |---|---|
/// | `UV_RUN_ONCE`, `UV_RUN_NOWAIT` | [`wait`](Watcher::wait), [`try_wait`](Watcher::try_wait) |
/// | `UV_RUN_DEFAULT` | `wait` while your count of operations is above 0 (see below) |
/// | `uv_ref`, `uv_unref` | count an operation, or leave it out of that count |
/// | `uv_backend_fd` | [`pollable`](Watcher::pollable) |
/// | `uv_backend_timeout` | [`next_timeout`](Watcher::next_timeout) |
/// | `uv_now`, `uv_update_time` | [`now`](Watcher::now), [`update_now`](Watcher::update_now) |
/// | `uv_metrics_info` | [`counters`](Watcher::counters): `turns`, `events`, `waiting_events` |
/// | `uv_metrics_idle_time` | `idle_ns`, if [`idle_time`](crate::Builder::idle_time) is set |
///
/// To count the operations in flight, add 1 for each submission, and subtract 1 for each completion
/// without [`has_more`](Completion::has_more). Leave out a listener's accept or a heartbeat's
/// timer, for example, and [quiet](Op::quiet) writes.
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
/// `Watcher` without a parameter is `Watcher<Auto>`: its driver is chosen at run time, when the
/// watcher is built. A `Watcher<D>` for a certain driver `D` has no such choice at run time.
pub struct Watcher<D: Driver = Auto> {
    driver: D,
    /// A ring is bound to the thread that made it, so a watcher is not `Send`.
    _not_send: PhantomData<*const ()>,
}

impl Watcher {
    /// Builds a watcher with the default settings. Its driver is the one that the environment
    /// variable `WINDLASS_DRIVER` names, or else the one on the system's selector: epoll, kqueue,
    /// or poll.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: an environment variable has an unknown value: `WINDLASS_DRIVER`,
    ///   `WINDLASS_FILES`, `WINDLASS_THREADS` or `WINDLASS_QUIRKS`.
    /// - `Unsupported`: this system does not have the driver or the file backend that such a
    ///   variable names.
    /// - `EMFILE`, `ENFILE`, `ENOMEM` …: the system cannot set the driver up. The error's text
    ///   begins with the failed call, and [`Refusal::of`] returns the errno.
    pub fn new() -> io::Result<Watcher> {
        Watcher::builder().build()
    }

    /// Returns a [`Builder`], which changes settings before it builds the watcher.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<D: Driver> Watcher<D> {
    /// Builds a watcher on a driver of your own.
    pub fn with_driver(driver: D) -> Watcher<D> {
        Watcher { driver, _not_send: PhantomData }
    }

    /// Returns the driver, so that a driver of your own can wrap it. Sources, tickets and
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

    /// The driver below the watcher.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver below the watcher, for calls of methods that need `&mut`.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Takes ownership of a descriptor, and returns the source that names it. The descriptor is
    /// anything that converts into an `OwnedFd`, or a [`Handle`] from an accept or a connect. The
    /// call makes no system call: the watcher registers the descriptor with the kernel when an
    /// operation on it would block for the first time.
    ///
    /// The options of the socket stay as they are. The first operation on a pipe, a terminal or a
    /// listener makes it non-blocking, and [`detach`](Watcher::detach) restores that flag.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the handle back, with:
    ///
    /// - [`Refusal::Full`] with [`Limit::Sources`]: the source table is full.
    /// - [`Refusal::NoDescriptor`]: a handle of a [simulation](crate::sim) on a watcher that is not
    ///   on this simulation, or a descriptor of the system on a simulation.
    /// - [`Refusal::Closed`]: the watcher is closed.
    /// - [`Refusal::Forked`]: this is a forked child.
    pub fn attach(&mut self, handle: impl Into<Handle>) -> Result<Source, Refused<Handle>> {
        self.driver.attach(handle.into())
    }

    /// Attaches a duplicate (with CLOEXEC) of a descriptor that the caller keeps.
    ///
    /// The duplicate shares the open file description, so the watcher never changes its flags. What
    /// it then does with a description that blocks depends on its kind:
    ///
    /// - A socket: each call says that it must not wait. If a listener blocks, the watcher polls
    ///   and closes it, but refuses accepts. macOS lacks `MSG_DONTWAIT` for sends, so the watcher
    ///   refuses every operation on a blocking socket there. On Windows it refuses every socket,
    ///   because Windows does not tell whether a socket blocks.
    /// - A pipe or a terminal on Linux: the watcher opens the same pipe or terminal anew, by
    ///   `/proc/self/fd`, for a description of its own that does not block.
    /// - What cannot be opened anew (a terminal's master, another device, an eventfd, a terminal
    ///   of another user): it is polled, and read and written with `RWF_NOWAIT` (Linux). Where the
    ///   system has no such call for it, the operation ends with `EOPNOTSUPP`. Make the
    ///   description non-blocking, and the watcher uses it like any other.
    /// - A pipe that cannot be opened anew, on macOS or on Linux before 6.4: reads and writes
    ///   follow poll(2). They wait if another process takes the bytes, or the room, in between.
    ///
    /// On a Unix seqpacket socket on Linux `SO_TIMESTAMP` is on during each receive: nothing else
    /// tells an empty record from the end. If other code that attached the same socket receives at
    /// the same moment, one may switch the option off for the other, which then takes an empty
    /// record for the end.
    ///
    /// # Errors
    ///
    /// - `EMFILE`: the process has no descriptor left for the duplicate.
    /// - The reasons for which [`attach`](Watcher::attach) fails; [`Refusal::of`] returns them.
    pub fn attach_dup(&mut self, descriptor: impl AsFd) -> io::Result<Source> {
        let duplicate = descriptor::duplicate(descriptor.as_fd())?;
        Ok(self.driver.attach_shared(Handle::from(duplicate))?)
    }

    /// Returns the descriptor of a source on which no operation is in flight, and ends the source.
    /// The flags of the descriptor are as they were when it was attached. (After a fork they stay
    /// as they are, because the other process may rely on them.)
    ///
    /// # Errors
    ///
    /// The source stays attached. The reasons are:
    ///
    /// - [`Refusal::Busy`]: operations are in flight on the source.
    /// - [`Refusal::Stale`]: the source was aborted or detached before, or is closing.
    /// - [`Refusal::Closed`]: the watcher is closed.
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - [`Refusal::Full`] with [`Limit::Completions`]: another thread
    ///   has attached this source, its request still waits in the queue, and the loop takes no
    ///   requests while too many completions wait for delivery. Call [`wait`](Watcher::wait), and
    ///   try again.
    pub fn detach(&mut self, source: Source) -> Result<Handle, Refusal> {
        self.driver.detach(source)
    }

    /// Makes a stream socket that listens at `address`, and attaches it. It has the default
    /// [`ListenOptions`]: backlog 4096, TCP_NODELAY for accepted sockets, `SO_REUSEADDR`. The call
    /// takes over a Unix path that no socket has any more. If several servers try at once, exactly
    /// one has the path. For a moment there is a lock beside the path (`….takeover`), for which the
    /// call does not wait.
    ///
    /// # Errors
    ///
    /// On an error the call leaves no socket behind. The errors are:
    ///
    /// - `EADDRINUSE`: another socket has the address, another process is just taking the path
    ///   over, or the path is no socket.
    /// - `EADDRNOTAVAIL`: the address does not belong to this machine.
    /// - `EACCES`: the port is reserved, or the process may not write to the Unix socket's
    ///   directory.
    /// - `ENOENT`, `ENOTDIR`: the directory of a Unix path does not exist.
    /// - `EAFNOSUPPORT`: the system has no sockets for this kind of address.
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    /// - [`Refusal::Full`] with [`Limit::Sources`]: the source table is full.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    pub fn listen(&mut self, address: impl Into<Address>) -> io::Result<Source> {
        self.listen_with(address, ListenOptions::default())
    }

    /// As [`listen`](Watcher::listen), with these options instead of the defaults.
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

    /// Accepts an operation, or hands it back. A later wait delivers its completion; this call
    /// never does.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the operation back with its buffer. [Every
    /// operation](Op#errors-of-every-operation) can be refused with [`Refusal::Closed`],
    /// [`Refusal::Forked`], [`Refusal::Stale`] or [`Refusal::Full`]; the page of its constructor
    /// lists more.
    #[inline(always)]
    pub fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        self.driver.submit(op)
    }

    /// Asks for an operation to end. Its completion is the answer, and says how many bytes moved.
    /// Returns false if the operation has ended already, or was told to end before and waits for
    /// its kernel or thread.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.driver.cancel(ticket)
    }

    /// Cancels every operation on a source, and returns their number.
    pub fn cancel_all(&mut self, source: Source) -> usize {
        self.driver.cancel_all(source)
    }

    /// Ends the operations of a source ([`ErrorKind::Aborted`](crate::ErrorKind::Aborted)) and
    /// closes its descriptor at once. Returns false for a stale source. To send the queued writes
    /// first, submit [`Op::close`] instead. An abort after that would end the close, and drop the
    /// unsent writes.
    ///
    /// The call waits for nothing. A thread closes a file or a device, soon after. A socket lingers
    /// no more (`SO_LINGER`), unless its linger time is 0: then its peer gets a reset.
    ///
    /// Operations that had already ended keep their completions, and a wait still delivers these.
    /// Later submissions for the source are refused with [`Refusal::Stale`]: a server with several
    /// operations in flight per source must expect that.
    ///
    /// ```
    /// # use windlass::{Completions, Op, Refusal, Watcher};
    /// # let mut watcher = Watcher::new()?;
    /// # let (a, b) = std::os::unix::net::UnixStream::pair()?;
    /// # let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    /// watcher.submit(Op::write(a, "hello"))?;
    /// watcher.abort(a);
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?; // the write is out
    /// let source = done.drain(..).next().unwrap().source;
    /// match watcher.submit(Op::read(source)) {
    ///     Err(refused) if refused.reason == Refusal::Stale => {} // aborted meanwhile
    ///     answer => drop(answer?),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn abort(&mut self, source: Source) -> bool {
        self.driver.abort(source)
    }

    /// Ends everything: every operation in flight completes with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), and every descriptor is closed, as by
    /// [`abort`](Watcher::abort). The next
    /// waits deliver these completions. After that, every wait fails with [`Refusal::Closed`]. A
    /// second call does nothing.
    pub fn close(&mut self) {
        self.driver.close();
    }

    /// Makes the watcher usable in a forked child. Before this call, every other call in the child
    /// fails with [`Refusal::Forked`]. In the process that built the watcher, this call does
    /// nothing. The child never disturbs the parent's watcher.
    ///
    /// The child has the same sources as the parent. The two processes share the open files: bytes
    /// that one reads, the other does not get. Every operation in flight at the fork goes on in the
    /// parent. In the child it ends with [`ErrorKind::Forked`](crate::ErrorKind::Forked), and with
    /// its buffer unless a worker thread had it. The child gets a selector or ring, a wake
    /// descriptor, an AIO context and worker threads of its own, and registers files and buffers
    /// again. Completions that were not yet delivered at the fork are delivered in both processes.
    ///
    /// Every [`Submitter`] and [`SourceGuard`] from before the fork still belongs to the parent:
    /// dropping such a guard in the child aborts no source. [`pollable`](Watcher::pollable) returns
    /// another descriptor than before. Buffers that [`aligned_buf`](Watcher::aligned_buf) returned
    /// before the fork are not registered in the child. After a fork, neither process restores a
    /// descriptor's flags, because the other may still rely on them.
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
    /// On an error the watcher stays as it was, and the program can call this again. The errors
    /// are:
    ///
    /// - `EMFILE`, `ENFILE`, `ENOMEM` …: the system refuses to make the new selector or ring.
    /// - [`Refusal::Closed`]: the watcher is closed.
    /// - [`Refusal::Unsupported`]: the driver cannot do this. The simulated driver, for example,
    ///   cannot.
    pub fn reinit_after_fork(&mut self) -> io::Result<()> {
        self.driver.reinit_after_fork()
    }

    /// How many bytes of writes are queued on a source: accepted, but not yet taken by the kernel.
    /// A program looks at this number before it writes more to a peer that may be slow.
    /// [`Op::wait_drained`] waits until the number has fallen, and [`Builder::write_limit`] bounds
    /// it.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Stale`]: the source was aborted or detached.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: a driver of your own does not count them.
    #[inline]
    pub fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        self.driver.queued_bytes(source)
    }

    /// Gives a source a token. Its operations that are submitted from now on carry it, except those
    /// with a [token](Op::token) of their own, other than 0. A token of 0 takes it away. The
    /// default is none.
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
    /// - [`Refusal::Stale`]: the source was aborted or detached.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Full`] with [`Limit::Completions`]: as for
    ///   [`detach`](Watcher::detach).
    /// - [`Refusal::Unsupported`]: a driver of your own has no such tokens.
    pub fn set_token(&mut self, source: Source, token: u64) -> Result<(), Refusal> {
        self.driver.set_token(source, token)
    }

    /// Lends a source's descriptor out, for example to set socket options through
    /// `socket2::SockRef`.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Stale`]: the source was aborted or detached.
    /// - [`Refusal::NoDescriptor`]: the source is simulated, and has no descriptor.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Full`] with [`Limit::Completions`]: as for
    ///   [`detach`](Watcher::detach).
    pub fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Refusal> {
        self.driver.fd(source)
    }

    /// Turns TCP_NODELAY of a TCP socket on or off.
    ///
    /// # Errors
    /// As for [`set_option`](Watcher::set_option).
    pub fn set_nodelay(&mut self, source: Source, on: bool) -> Result<(), Refusal> {
        self.set_option(source, SocketOption::Nodelay(on))
    }

    /// The address that a source is bound to.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Os`] with `ENOTSOCK`: the source is no socket.
    /// - The reasons for which [`fd`](Watcher::fd) fails, except `NoDescriptor`.
    pub fn local_address(&self, source: Source) -> Result<Address, Refusal> {
        self.driver.local_address(source)
    }

    /// The address that a source is connected to.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Os`] with `ENOTCONN`: the socket is not connected.
    /// - [`Refusal::Os`] with `ENOTSOCK`: the source is no socket.
    /// - The reasons for which [`fd`](Watcher::fd) fails, except `NoDescriptor`.
    pub fn peer_address(&self, source: Source) -> Result<Address, Refusal> {
        self.driver.peer_address(source)
    }

    /// Returns a handle through which any thread can attach, submit, cancel, abort and post
    /// messages.
    pub fn submitter(&mut self) -> Submitter {
        self.driver.submitter()
    }

    /// An empty buffer for direct I/O. Its address and its capacity are multiples of 4096, and the
    /// capacity is at least `len`. It lies in the memory that [`Builder::registered_bytes`] has
    /// registered. When that memory is full, the buffer has memory of its own, as from
    /// [`AlignedBuf::with_capacity`]. It can outlive the watcher, and any other watcher can use it.
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

    /// Lets `fill` write into memory of the library: the first bytes, as many as it returns, become
    /// a [`Lease`]. So an answer is formatted where a write sends it from, without an allocation
    /// and without a copy.
    ///
    /// The space has at least half of [`Builder::buffer_size`]. It holds zeros or bytes of earlier
    /// reads. The lease counts for [`Builder::swap_limit`], like that of a read.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::Watcher;
    /// let mut watcher = Watcher::new()?;
    /// let answer = watcher.lease(|space| {
    ///     let room = space.len();
    ///     let mut rest = space;
    ///     write!(rest, ":{}\r\n", 42).expect("it fits");
    ///     room - rest.len()
    /// })?;
    /// assert_eq!(&*answer, b":42\r\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `fill` returns more than the space has. After that, and after a panic of `fill`, the
    /// watcher is as it was.
    ///
    /// # Errors
    ///
    /// `fill` was not called, with:
    ///
    /// - [`Refusal::Full`] with [`Limit::SwapBytes`]: the limit is reached,
    ///   and leases hold all swap buffers.
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - [`Refusal::Unsupported`]: a driver of your own has no such memory.
    pub fn lease(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<Lease, Refusal> {
        let pool = self.driver.pool()?;
        let full = Refusal::Full { limit: Limit::SwapBytes, count: pool.limit_bytes() };
        pool.fill(fill).map(LeaseMut::freeze).ok_or(full)
    }

    /// Returns a guard for a source. When the guard is dropped, on any thread, the loop aborts the
    /// source in its next turn.
    pub fn guard(&mut self, source: Source) -> SourceGuard {
        SourceGuard::new(source, self.driver.submitter())
    }

    /// Whether an operation has not ended yet. It has ended when its final completion waits for
    /// delivery, or was delivered. A [quiet](Op::quiet) write that succeeds has no completion, but
    /// this call tells that the kernel has taken its bytes.
    ///
    /// ```
    /// use windlass::{Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let small = watcher.submit(Op::write(source, "hello").quiet())?;
    /// assert!(!watcher.is_in_flight(small).unwrap()); // the socket has taken it
    /// let large = watcher.submit(Op::write(source, vec![0; 4 << 20]).quiet())?;
    /// assert!(watcher.is_in_flight(large).unwrap());
    /// watcher.abort(source);
    /// assert!(!watcher.is_in_flight(large).unwrap()); // its completion waits for delivery
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Forked`]: this is a forked child.
    /// - [`Refusal::Unsupported`]: a driver of your own cannot tell.
    pub fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Refusal> {
        self.driver.is_in_flight(ticket)
    }

    /// Binds the calling thread, on which the loop runs, to processor `cpu` (from 0). Worker
    /// threads started later may still run on all processors of the process.
    ///
    /// # Errors
    ///
    /// - [`Refusal::NoProcessor`]: the processor does not exist, or the process may not use it.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - `Unsupported`: only Linux and Android can bind threads.
    pub fn set_affinity(&mut self, cpu: usize) -> io::Result<()> {
        // `fd` fails with `Closed` or `Forked` for any source, even for none. (`submitter` would
        // also reserve ids.)
        match self.driver.fd(Source::NONE) {
            Err(reason @ (Refusal::Closed | Refusal::Forked)) => Err(reason.into()),
            _ => bind_to(cpu),
        }
    }

    /// The counters of this watcher, from its start to now.
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
    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
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

/// Binds the calling thread to processor `cpu`.
fn bind_to(cpu: usize) -> io::Result<()> {
    if affinity::bind(cpu)? {
        return Ok(());
    }
    Err(Refusal::NoProcessor(cpu).into())
}
