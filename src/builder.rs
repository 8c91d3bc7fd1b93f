//! Settings of a watcher, and watchers on threads of their own.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::auto::{Auto, DriverKind};
use crate::config::{Config, Overflow};
use crate::file::FileBackend;
use crate::remote::Submitter;
use crate::sys::affinity;
use crate::watcher::Watcher;

/// Builds a [`Watcher`]. It is `Send`, so that a loop can be set up here and run on its own thread.
///
/// ```
/// use windlass::{DriverKind, Watcher};
/// let watcher = Watcher::builder()
///     .driver(DriverKind::Poll)
///     .swap_limit(16 << 20)
///     .max_operations(100_000)
///     .build()?;
/// assert_eq!(watcher.explain().driver, "poll");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    driver: DriverKind,
    config: Config,
    affinity: Option<usize>,
}

impl Builder {
    /// The default settings.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Which driver to use; an explicit choice never falls back. Default: [`DriverKind::Auto`].
    pub fn driver(mut self, driver: DriverKind) -> Builder {
        self.driver = driver;
        self
    }

    /// Most sources, 1 to 2^24 - 2. Default 2^20. Tables grow with need, by chunks of 256. Here and
    /// in other settings, a number outside the range becomes the nearest one inside.
    pub fn max_sources(mut self, count: u32) -> Builder {
        self.config.max_sources = count;
        self
    }

    /// Most operations in flight, 1 to 2^24 - 2. Default 2^20.
    ///
    /// The same number, but at least 4096, bounds the completions that wait for delivery. Beyond
    /// it, submissions are refused with [`Limit::Completions`](crate::Limit::Completions): an
    /// operation that ends at submission never counts as in flight. (Completions of accepted
    /// operations always have room.)
    pub fn max_operations(mut self, count: u32) -> Builder {
        self.config.max_operations = count;
        self
    }

    /// Most requests from other threads that wait for the loop: 1 to 2^20. Default 4096. Each takes
    /// some 100 bytes, allocated at once. Beyond the bound, other threads are refused, or
    /// [wait](Submitter#back-pressure).
    pub fn remote_queue(mut self, count: usize) -> Builder {
        self.config.remote_queue = count;
        self
    }

    /// How many ids of each kind are kept ready for other threads: the most that they can attach or
    /// submit between two turns of the loop. Default 2048, so that a broadcast to that many clients
    /// is accepted at once. Without an id, other threads are refused, or
    /// [wait](Submitter#back-pressure). The range is 1 to 2^16, and at most a quarter of the
    /// [sources](Builder::max_sources) or [operations](Builder::max_operations). The first
    /// [`submitter`](Watcher::submitter) or [`guard`](Watcher::guard) reserves the ids: since then
    /// they count as sources and operations, and take their memory. (With a limit of 1 source or
    /// operation nothing is reserved, so other threads are refused.) Before that, each pair of ids
    /// takes 32 bytes.
    pub fn id_reserve(mut self, count: usize) -> Builder {
        self.config.id_reserve = count;
        self
    }

    /// Most bytes of swap buffers, the memory of reads without a buffer; at least one buffer.
    /// Default 64 MiB, allocated with need. In a pool of eight buffers or more of which half are in
    /// use, a multishot read may hold one buffer, or an eighth of the free ones if that is more.
    /// Then it waits until a lease of its own comes back. So a peer that sends and never reads does
    /// not stop other connections.
    pub fn swap_limit(mut self, bytes: usize) -> Builder {
        self.config.swap_limit = bytes;
        self
    }

    /// Bytes of one swap buffer, 64 to 2^30, rounded up to a multiple of 64: the most that one read
    /// without a buffer takes. Default 64 KiB.
    pub fn buffer_size(mut self, bytes: u32) -> Builder {
        self.config.buffer_size = bytes;
        self
    }

    /// Most bytes of writes that one source may have queued, up to 2^32 - 1 (the default). A write
    /// that would exceed it is refused, or closes the source
    /// ([`write_overflow`](Builder::write_overflow)). A write to a source without queued writes is
    /// always accepted.
    pub fn write_limit(mut self, bytes: usize) -> Builder {
        self.config.write_limit = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }

    /// What happens to a write, from any thread, that would exceed the
    /// [`write_limit`](Builder::write_limit). Default [`Overflow::Refuse`].
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use windlass::{Completions, ErrorKind, Op, Overflow, Reason, Watcher};
    ///
    /// let builder = Watcher::builder().write_limit(1 << 20).write_overflow(Overflow::Close);
    /// let mut watcher = builder.build()?;
    /// let (ours, _silent) = UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let mut done = Completions::new();
    /// watcher.submit(Op::write(source, vec![0; 8 << 20]))?; // more than the socket takes
    /// watcher.submit(Op::write(source, "one too many"))?;
    /// let mut ended = 0;
    /// while ended < 2 {
    ///     watcher.wait(&mut done)?;
    ///     for c in done.drain(..) {
    ///         assert_eq!(c.error_kind(), Some(ErrorKind::Overflow));
    ///         ended += 1;
    ///     }
    /// }
    /// assert_eq!(watcher.submit(Op::read(source)).unwrap_err().reason, Reason::Stale);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_overflow(mut self, overflow: Overflow) -> Builder {
        self.config.write_overflow = overflow;
        self
    }

    /// Bytes that are read from one source in a row while other sources wait. Default 2 MiB, about
    /// half a millisecond. A stream that is read until it is empty costs half of one that takes
    /// turns with others, because its bytes are still in the cache. A source writes at most 256 KiB
    /// in a row, and reads at most as much from the page cache.
    pub fn source_budget(mut self, bytes: usize) -> Builder {
        self.config.source_budget = bytes.max(1);
        self
    }

    /// Bytes that a turn reads before it delivers what it has, so that they are still in the cache
    /// when the program looks at them. Default 64 KiB.
    pub fn turn_budget(mut self, bytes: usize) -> Builder {
        self.config.turn_budget = bytes.max(1);
        self
    }

    /// Counts the time that the loop sleeps:
    /// [`Counters::idle_ns`](crate::driver::Counters::idle_ns). Default off, because it reads the
    /// clock before and after each sleep (some 40 ns where reading it needs no system call).
    ///
    /// ```
    /// # use windlass::{Completions, Op, Watcher};
    /// # use std::time::Duration;
    /// let mut watcher = Watcher::builder().idle_time(true).build()?;
    /// watcher.submit(Op::timer(Duration::from_millis(2)))?;
    /// watcher.wait(&mut Completions::new())?;
    /// assert!(watcher.counters().idle_ns >= 1_000_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn idle_time(mut self, on: bool) -> Builder {
        self.config.idle_time = on;
        self
    }

    /// Most worker threads, 1 to 1024; with another number [`build`](Builder::build) fails. They do
    /// what would block the loop: work on files that the kernel does not do by itself, name
    /// look-ups, and jobs. Each starts when there is work for it. Default 4, or what the
    /// environment variable `WINDLASS_THREADS` says.
    pub fn threads(mut self, count: usize) -> Builder {
        // 0 stands for what the environment says.
        self.config.threads = if count == 0 { usize::MAX } else { count };
        self
    }

    /// Most jobs for the worker threads that are in flight at a time, 1 to 2^20. Default 4096.
    /// Submissions beyond the bound are refused.
    pub fn max_jobs(mut self, count: usize) -> Builder {
        self.config.max_jobs = count;
        self
    }

    /// Which mechanism does the work on files. An explicit choice never falls back.
    pub fn file_backend(mut self, backend: FileBackend) -> Builder {
        self.config.file_backend = backend;
        self
    }

    /// How many files the io_uring driver registers with its ring, each at its first operation. For
    /// a registered file the kernel looks the descriptor up only once. Default 0. Further files
    /// work unregistered. The setting has no effect where the kernel refuses, and on other drivers,
    /// even with a ring for files beside epoll. [`explain`](Watcher::explain) says so.
    pub fn registered_files(mut self, count: u32) -> Builder {
        self.config.registered_files = count;
        self
    }

    /// How many bytes of memory the io_uring driver registers with its ring, up to 2^30. Default 0.
    /// [`Watcher::aligned_buf`] takes buffers from it, and the kernel does not pin their pages for
    /// each operation on a file. The memory is locked: without `CAP_IPC_LOCK` it counts against
    /// `RLIMIT_MEMLOCK`. Where the kernel refuses, and on other drivers, it has no effect, and
    /// [`explain`](Watcher::explain) says so.
    pub fn registered_bytes(mut self, bytes: usize) -> Builder {
        self.config.registered_bytes = bytes;
        self
    }

    /// Most events that one wait takes, 1 to 65,536. Default 64: the sources of one turn stay in
    /// the processor's cache between their reads and their writes.
    pub fn events_per_wait(mut self, count: usize) -> Builder {
        self.config.events_per_wait = count;
        self
    }

    /// How long a wait spins before it blocks. Off by default. Spinning multiplies the rate of a
    /// single connection, because its messages no longer wait for a wake-up. It keeps a processor
    /// busy.
    pub fn busy_poll(mut self, span: Duration) -> Builder {
        self.config.busy_poll = span;
        self
    }

    /// Turns workarounds for known faults of io_uring on and off, as a list of `name=on` and
    /// `name=off`; [`explain`](Watcher::explain) names those in force. Watchers without a ring
    /// ignore it. Default: the workarounds for the running kernel release, changed by
    /// `WINDLASS_QUIRKS`, which has the same form.
    pub fn quirks(mut self, list: impl Into<String>) -> Builder {
        self.config.quirks = list.into();
        self
    }

    /// Binds the thread that builds the watcher to processor `cpu` (from 0). Its worker threads may
    /// still run on all processors of the process. Linux only.
    pub fn affinity(mut self, cpu: usize) -> Builder {
        self.affinity = Some(cpu);
        self
    }

    /// The settings, for [drivers](crate::driver::Driver) and kernels of your own.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Builds the watcher; it belongs to the calling thread.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: [`affinity`](Builder::affinity) names a processor that the process may not
    ///   use; `WINDLASS_DRIVER` or `WINDLASS_FILES` names none; the number of threads, also in
    ///   `WINDLASS_THREADS`, is not within 1 to 1024; or a name of [`quirks`](Builder::quirks) is
    ///   unknown.
    /// - `Unsupported`: this system does not have the driver or the file backend.
    /// - `EMFILE`, `ENFILE`, `ENOMEM`, `EPERM` …: the system cannot set the driver up. The error's
    ///   text begins with the failed call, and [`Reason::of`](crate::Reason::of) returns the errno.
    pub fn build(self) -> io::Result<Watcher> {
        if let Some(cpu) = self.affinity {
            affinity::bind(cpu)?;
        }
        Ok(Watcher::with_driver(Auto::new(self.driver, self.config)?))
    }

    /// Builds a watcher on a thread of its own and runs `body` with it there. Returns once the
    /// watcher is built, with its submitter.
    ///
    /// ```
    /// use windlass::{Completions, Done, Watcher};
    /// let spawned = Watcher::builder().spawn("loop", |mut watcher| {
    ///     let mut done = Completions::new();
    ///     watcher.wait(&mut done)?;
    ///     Ok(done.drain(..).filter(|c| matches!(c.result, Ok(Done::Message(_)))).count())
    /// })?;
    /// spawned.submitter.wake(0).unwrap();
    /// assert_eq!(spawned.thread.join().unwrap()?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - As for [`build`](Builder::build).
    /// - `EAGAIN`: the system gives no thread.
    pub fn spawn<T: Send + 'static>(
        self,
        name: impl Into<String>,
        body: impl FnOnce(Watcher) -> io::Result<T> + Send + 'static,
    ) -> io::Result<LoopThread<T>> {
        let (built, answer) = crossbeam_channel::bounded(1);
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let mut watcher = match self.build() {
                Ok(watcher) => watcher,
                Err(error) => {
                    let copy = io::Error::new(error.kind(), error.to_string());
                    // The other side waits for exactly this.
                    let _ = built.send(Err(error));
                    return Err(copy);
                }
            };
            let _ = built.send(Ok(watcher.submitter()));
            body(watcher)
        })?;
        let submitter = answer.recv().map_err(|_| io::Error::other("the thread ended early"))??;
        Ok(LoopThread { submitter, thread })
    }
}

/// A loop on a thread of its own.
#[derive(Debug)]
pub struct LoopThread<T> {
    /// The handle through which this thread reaches the loop.
    pub submitter: Submitter,
    /// The thread; joining it gives what the loop returned.
    pub thread: JoinHandle<io::Result<T>>,
}
