//! The settings of a watcher, and the start of a watcher on a thread of its own.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Watcher, bind_to};
use crate::driver::config::{Config, Overflow};
use crate::file::FileBackend;
use crate::remote::Submitter;
use crate::watcher::auto::{Auto, DriverKind};

/// Collects settings and builds a [`Watcher`]. A builder is `Send`: one thread can choose the
/// settings, and another builds the watcher and runs its loop.
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

    /// Sets the driver. If it does not work here, [`build`](Builder::build) fails: it never takes
    /// another one instead. Default: [`DriverKind::Auto`].
    pub fn driver(mut self, driver: DriverKind) -> Builder {
        self.driver = driver;
        self
    }

    /// Sets how many sources the watcher can own, 1 to 2^24 - 2. Default 2^20. The table of sources
    /// grows as needed, by 256 entries at a time. Here and in other settings, a number outside the
    /// range counts as the nearest number inside.
    pub fn max_sources(mut self, count: u32) -> Builder {
        self.config.max_sources = count;
        self
    }

    /// Sets how many operations can be in flight, 1 to 2^24 - 2. Default 2^20.
    ///
    /// The same number, but at least 4096, also bounds the completions that wait for delivery. An
    /// operation that ends at submission never counts as in flight, but its completion counts here.
    /// Beyond the bound, `submit` refuses with [`Limit::Completions`](crate::Limit::Completions).
    /// (The completion of an accepted operation always has room.)
    pub fn max_operations(mut self, count: u32) -> Builder {
        self.config.max_operations = count;
        self
    }

    /// Sets how many requests from other threads can wait for the loop, 1 to 2^20. Default 4096.
    /// The build of the watcher allocates the whole queue, some 100 bytes for each. When the queue
    /// is full, a [`Submitter`] refuses, or [waits](Submitter#back-pressure).
    pub fn remote_queue(mut self, count: usize) -> Builder {
        self.config.remote_queue = count;
        self
    }

    /// Sets how many names (ids) of sources, and how many of operations, the loop keeps ready for
    /// other threads. Another thread takes one for each source that it attaches and each operation
    /// that it submits, and the loop replaces them in its next turn. So this is the most that other
    /// threads can attach or submit between two turns. When none is left, a [`Submitter`] refuses,
    /// or [waits](Submitter#back-pressure). Default 2048: a broadcast to that many clients needs no
    /// wait.
    ///
    /// The range is 1 to 2^16, and at most a quarter of [`max_sources`](Builder::max_sources) or
    /// [`max_operations`](Builder::max_operations). (Where such a limit is 1, no id is reserved, so
    /// other threads are refused.) The first [`submitter`](Watcher::submitter) or
    /// [`guard`](Watcher::guard) reserves the ids. From then on they count as sources and
    /// operations, and take their memory. Before that, each pair of ids takes 32 bytes.
    pub fn id_reserve(mut self, count: usize) -> Builder {
        self.config.id_reserve = count;
        self
    }

    /// Sets how many bytes the *swap buffers* can have: the pool of memory that reads without a
    /// buffer fill, and that leases hold. Default 64 MiB, allocated as needed; at least one buffer.
    ///
    /// The queued writes of one source hold at most as many swap buffers as are free. At this share
    /// the reads of the source wait for its writes, and further writes are copied out of the pool.
    /// So a peer that sends and never reads does not stop other connections. Leases that the
    /// program keeps are bounded by the program only: one that keeps all of them stops all reads.
    pub fn swap_limit(mut self, bytes: usize) -> Builder {
        self.config.swap_limit = bytes;
        self
    }

    /// Sets the size of one swap buffer in bytes, 64 to 2^30, rounded up to a multiple of 64. A
    /// read without a buffer takes at most so many bytes. Default 64 KiB.
    pub fn buffer_size(mut self, bytes: u32) -> Builder {
        self.config.buffer_size = bytes;
        self
    }

    /// Sets how many bytes of writes one source can have queued, up to 2^32 - 1 (the default). A
    /// write that would exceed this limit is refused, or closes the source: see
    /// [`write_overflow`](Builder::write_overflow). A write to a source without queued writes is
    /// always accepted.
    pub fn write_limit(mut self, bytes: usize) -> Builder {
        self.config.write_limit = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }

    /// Sets what happens to a write, from any thread, that would exceed the
    /// [`write_limit`](Builder::write_limit). Default [`Overflow::Refuse`].
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use windlass::{Completions, ErrorKind, Op, Overflow, Refusal, Watcher};
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
    /// assert_eq!(watcher.submit(Op::read(source)).unwrap_err().reason, Refusal::Stale);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_overflow(mut self, overflow: Overflow) -> Builder {
        self.config.write_overflow = overflow;
        self
    }

    /// Sets how many bytes a turn reads from one source in a row while other sources wait. Default
    /// 2 MiB, about half a millisecond. Reading a stream until it is empty takes half of the CPU of
    /// reading streams by turns, because the bytes are still in the cache. A source writes at most
    /// 256 KiB in a row, and reads at most 256 KiB in a row from the page cache.
    pub fn source_budget(mut self, bytes: usize) -> Builder {
        self.config.source_budget = bytes.max(1);
        self
    }

    /// Sets after how many read bytes a turn ends, and delivers its completions. Default 64 KiB:
    /// then the bytes are still in the cache when the program looks at them.
    pub fn turn_budget(mut self, bytes: usize) -> Builder {
        self.config.turn_budget = bytes.max(1);
        self
    }

    /// Sets whether the watcher counts the time that the loop sleeps:
    /// [`Counters::idle_ns`](crate::driver::Counters::idle_ns). Default off, because the count
    /// needs the clock before and after each sleep (some 40 ns where reading the clock needs no
    /// system call).
    ///
    /// ```
    /// # use windlass::{Completions, Op, Watcher};
    /// # use std::time::Duration;
    /// let mut watcher = Watcher::builder().idle_time(true).build()?;
    /// watcher.submit(Op::timer(Duration::from_millis(2)))?;
    /// watcher.wait(&mut Completions::new())?;
    /// let asleep = Duration::from_nanos(watcher.counters().idle_ns);
    /// println!("asleep for {asleep:?} of the 2 ms");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn idle_time(mut self, on: bool) -> Builder {
        self.config.idle_time = on;
        self
    }

    /// Sets how many worker threads there can be, 1 to 1024; with another number
    /// [`build`](Builder::build) fails. The threads do the work that would block the loop: jobs,
    /// name look-ups, and work on files that the kernel does not do by itself. Each thread starts
    /// when there is work for it. Default 4, or what the environment variable `WINDLASS_THREADS`
    /// says.
    pub fn threads(mut self, count: usize) -> Builder {
        self.config.threads = Some(count);
        self
    }

    /// Sets how many jobs for the worker threads can be in flight, 1 to 2^20. Default 4096. At this
    /// number `submit` refuses further jobs.
    pub fn max_jobs(mut self, count: usize) -> Builder {
        self.config.max_jobs = count;
        self
    }

    /// Sets the mechanism for work on files. If it does not work here, [`build`](Builder::build)
    /// fails. Worker threads do the work that the mechanism cannot do, such as unaligned direct
    /// reads with Linux AIO; [`explain`](Watcher::explain) counts it. Default:
    /// [`FileBackend::Auto`].
    pub fn file_backend(mut self, backend: FileBackend) -> Builder {
        self.config.file_backend = backend;
        self
    }

    /// Sets how many reads, writes and syncs of files wait, at most, for one system call that
    /// submits them to io_uring or Linux AIO.
    ///
    /// Without this setting the load of the device decides: requests are submitted when there are
    /// twice as many as the kernel already has, and at the end of the turn. So the first request to
    /// an idle device goes out at once, and a busy device gets many requests with one call. With 1,
    /// each request is submitted alone: this gives the shortest latency, and takes the most
    /// processor time.
    pub fn file_batch(mut self, most: u32) -> Builder {
        self.config.file_batch = most;
        self
    }

    /// Sets how many files the io_uring driver registers with its ring, each at its first
    /// operation. For a registered file the kernel looks the descriptor up only once. Default 0.
    /// More files than that work unregistered. The setting has no effect where the kernel refuses
    /// it. It has none on other drivers either, not even on the ring for files that epoll uses.
    /// [`explain`](Watcher::explain) says whether files are registered.
    pub fn registered_files(mut self, count: u32) -> Builder {
        self.config.registered_files = count;
        self
    }

    /// Sets how many bytes of memory the io_uring driver registers with its ring, up to 2^30.
    /// Default 0. [`Watcher::aligned_buf`] takes buffers from this memory. The kernel pins its
    /// pages once, and not again for each operation on a file. The memory is locked: without
    /// `CAP_IPC_LOCK` it counts against `RLIMIT_MEMLOCK`. The setting has no effect where the
    /// kernel refuses it, and on every other driver. [`explain`](Watcher::explain) says whether
    /// memory is registered.
    pub fn registered_bytes(mut self, bytes: usize) -> Builder {
        self.config.registered_bytes = bytes;
        self
    }

    /// Sets how many events one wait takes from the kernel, 1 to 65,536. Default 64: then the
    /// sources of one turn stay in the processor's cache between their reads and their writes.
    pub fn events_per_wait(mut self, count: usize) -> Builder {
        self.config.events_per_wait = count;
        self
    }

    /// Sets how long a wait spins before it blocks. Off by default. With one connection, spinning
    /// can more than double the rate, because a message does not wait until the thread wakes up. It
    /// keeps a processor busy.
    pub fn busy_poll(mut self, span: Duration) -> Builder {
        self.config.busy_poll = span;
        self
    }

    /// Turns workarounds for known faults of io_uring on and off, by a list of `name=on` and
    /// `name=off`. [`explain`](Watcher::explain) names those that are on. A watcher without a ring
    /// ignores the list. Default: the workarounds for the running kernel release, changed by the
    /// environment variable `WINDLASS_QUIRKS`, a list of the same form.
    pub fn quirks(mut self, list: impl Into<String>) -> Builder {
        self.config.quirks = list.into();
        self
    }

    /// Binds the thread that builds the watcher to processor `cpu` (from 0). Its worker threads may
    /// still run on all processors of the process. Only Linux and Android can do this; elsewhere
    /// [`build`](Builder::build) fails.
    pub fn affinity(mut self, cpu: usize) -> Builder {
        self.affinity = Some(cpu);
        self
    }

    /// Returns the settings, for [drivers](crate::driver::Driver) and kernels of your own.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Builds the watcher; it belongs to the calling thread.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: [`affinity`](Builder::affinity) names a processor that the process may not
    ///   use; `WINDLASS_DRIVER` names no driver, or `WINDLASS_FILES` no mechanism; the number of
    ///   threads, here or in `WINDLASS_THREADS`, is not 1 to 1024; or [`quirks`](Builder::quirks)
    ///   or `WINDLASS_QUIRKS` has an unknown name.
    /// - `Unsupported`: this system does not have the driver or the file backend, or cannot bind
    ///   threads to processors.
    /// - `EMFILE`, `ENFILE`, `ENOMEM`, `EPERM` …: the system cannot set the driver up. The error's
    ///   text begins with the failed call, and [`Refusal::of`](crate::Refusal::of) returns the
    ///   errno.
    pub fn build(self) -> io::Result<Watcher> {
        if let Some(cpu) = self.affinity {
            bind_to(cpu)?;
        }
        Ok(Watcher::with_driver(Auto::new(self.driver, self.config)?))
    }

    /// Starts a thread, builds a watcher on it, and runs `body` with the watcher there. This call
    /// waits until the watcher is built, and returns its submitter.
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
    /// - `EAGAIN`: the system starts no more threads.
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
                    // `spawn` waits for this message, so the send cannot fail.
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
    /// The thread of the loop. Joining it returns the value that `body` has returned.
    pub thread: JoinHandle<io::Result<T>>,
}
