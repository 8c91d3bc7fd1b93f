//! The kernel of a proactor: a selector, the attempt calls and a clock.
//!
//! [`Os`](super::Os) is the system's; [`Sim`](crate::sim::Sim) is simulated, seeded and has virtual
//! time. An attempt never blocks. It answers how many bytes moved, or `-errno`; `-EAGAIN` says that
//! the selector will report when it is worth another try.

use std::io::{self, IoSlice};
use std::process::ExitStatus;
use std::sync::Arc;

use crate::address::Address;
use crate::aligned::AlignedBuf;
use crate::buf::{Buf, Target};
use crate::clock;
use crate::completion::Done;
use crate::config::Config;
use crate::driver::{DatagramOptions, Explain, ListenOptions};
use crate::error::{Error, Reason};
use crate::file::{FileAnswer, FileFacts, FileList, FileRequest, Task};
use crate::interest::Ready;
use crate::remote::Wake;
use crate::socket_option::SocketOption;
use crate::source::{Handle, SourceKind};
use crate::swap::Pool;
use crate::sys::fd::{BorrowedFd, OwnedFd, RawFd};
use crate::sys::os_error;

/// The key of the kernel's own wake event.
pub const WAKE: u64 = u64::MAX;

/// The key of the kernel's own event that says that work on files has ended.
pub const FILES: u64 = u64::MAX - 1;

/// The result of a receiving attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes, or `-errno`.
    pub moved: isize,
    /// The message ended before the data did (a boundary at passed descriptors), or was longer than
    /// the memory (a datagram).
    pub cut: bool,
}

impl Received {
    /// An answer that was not cut.
    #[inline(always)]
    pub const fn plain(moved: isize) -> Received {
        Received { moved, cut: false }
    }
}

/// How far an attempt to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// It is connected.
    Done,
    /// It goes on; the socket becomes writable when it has ended.
    GoesOn,
    /// The listener has no room, and nothing will say when it has (Unix sockets): to be tried
    /// again.
    Full,
}

/// The answer of a kernel to an operation that it is to complete by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It has it: an answer will come.
    Yes,
    /// It does not do that: try it.
    No,
    /// It has no buffer for it.
    Starved,
}

/// How an operation that a kernel has started has gone.
#[derive(Debug)]
pub struct Answer {
    /// The key that the operation was started with; 0 for an answer to no operation.
    pub key: u64,
    /// The source's write, not its read.
    pub write: bool,
    /// Bytes, or `-errno`, or [`POLL_ENDED`](Answer::POLL_ENDED).
    pub moved: isize,
    /// The bytes, where the kernel has chosen the buffer.
    pub data: Buf,
    /// The operation goes on.
    pub more: bool,
}

impl Answer {
    /// The registration of the source has ended by itself.
    pub const POLL_ENDED: isize = isize::MIN;
    /// The operation that was to [stop](Kernel::stop) was not found, and has perhaps not ended.
    pub const NOT_STOPPED: isize = isize::MIN + 1;
    /// The operation that was to [stop](Kernel::stop) stands in a thread, which was told: it ends
    /// soon.
    pub const STOPPING: isize = isize::MIN + 2;
}

/// A selector, the attempt calls and a clock.
///
/// Most kernels say when an attempt is worth it. One that [completes](Kernel::COMPLETES) can also
/// take reads and writes of stream sockets over: it is given at most one read and one write of a
/// source at a time, with the source's key, and answers in one of the next `select`s.
///
/// # Safety
/// An attempt that answers `n` received bytes has written the first `n` bytes of its target (of its
/// targets, one after the other), and `n` is at most their length. So has an answer, and the memory
/// of what was started is not used after its last answer.
#[allow(unsafe_code)]
pub unsafe trait Kernel {
    /// Whether it can complete operations by itself.
    const COMPLETES: bool = false;
    /// Whether a registration reports for life. Where it does not, [`arm`](Kernel::arm) is told
    /// before each `select` what is waited for.
    const EDGES: bool = true;

    /// Whether a TCP socket registered for writes reports room only after a write found none. If
    /// each acknowledgement reports room, the socket is registered for writes only while a write
    /// waits.
    const QUIET_WRITES: bool = true;

    /// Whether it can know files and memory beforehand.
    const REGISTERS: bool = false;

    /// Whether there are files and threads.
    const FILES: bool = false;

    /// Whether this kernel runs jobs and look-ups itself, without threads.
    const TASKS: bool = false;

    /// What `explain` calls it.
    fn name(&self) -> &'static str;

    /// Where the generations of a watcher's names are to begin: far from those of other watchers,
    /// whose names are stale here then. (A simulated kernel decides it by what is repeatable.)
    fn start(&mut self) -> u32 {
        0
    }

    /// The time in nanoseconds since the process' base `Instant`, which is what the system's
    /// monotonic clock says; time may also be virtual.
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// Called at the start of each turn: a kernel with virtual time advances it here. (A turn with
    /// completions to deliver does not call `select`.)
    #[inline(always)]
    fn turn(&mut self) {}

    /// Waits at most `timeout_ns` (`None`: for ever) for events; answers how many there are.
    ///
    /// # Errors
    /// What the system reports for the wait.
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize>;

    /// Event `i` of the last `select`: its key, and the conditions that hold.
    fn event(&self, i: usize) -> (u64, Ready);

    /// Registers `fd` for reads, and for writes if `writes`: edge-triggered, for life. Called
    /// `again` when writes are to be added.
    ///
    /// # Errors
    /// The errno.
    fn register(&mut self, fd: RawFd, key: u64, writes: bool, again: bool) -> Result<(), i32>;

    /// Says what is waited for on a registered descriptor until a `select` has reported something
    /// of it; `None` for nothing. Called where [`EDGES`](Kernel::EDGES) is false only.
    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {
        let _ = (fd, key, on);
    }

    /// Ends a registration.
    fn deregister(&mut self, fd: RawFd, key: u64);

    /// The answer that event `i` is, if it is one.
    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        let _ = (i, pool);
        None
    }

    /// Whether multishot receives of such sources are multishot ones of the kernel.
    #[inline(always)]
    fn repeats(&mut self, kind: SourceKind) -> bool {
        let _ = kind;
        true
    }

    /// Whether writes of such sources are started.
    #[inline(always)]
    fn sends(&mut self, kind: SourceKind) -> bool {
        kind == SourceKind::Stream
    }

    /// Starts to receive, into `to` or a buffer of the kernel's choice; again and again if
    /// `multishot`.
    ///
    /// The memory must stay what it is until the last answer.
    fn start_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        let _ = (fd, key, to, multishot, pool);
        Started::No
    }

    /// Starts to send parts, one after the other. The memory must stay what it is until the answer.
    fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        let _ = (fd, key, parts);
        Started::No
    }

    /// Asks for the end of the source's read or write; its answer tells.
    fn stop(&mut self, key: u64, write: bool) {
        let _ = (key, write);
    }

    /// The number of buffers available to a buffer-less read that is [started](Kernel::start_recv)
    /// now.
    fn buffers(&mut self, pool: &mut Pool) -> usize {
        pool.available(false)
    }

    /// Whether the kernel has lost answers since [`recovered`](Kernel::recovered): some started
    /// operations may never be answered. Called after each `select`.
    fn has_lost(&mut self) -> bool {
        false
    }

    /// Cancels all started operations and all registrations. Returns true when the kernel holds
    /// nothing any more (except file work), so that their memory is free. Called repeatedly, before
    /// each `select`.
    fn recall(&mut self) -> bool {
        true
    }

    /// Starts over with nothing started and nothing registered. `empty` if a `recall` has returned
    /// true.
    fn recovered(&mut self, pool: &mut Pool, empty: bool) {
        let _ = (pool, empty);
    }

    /// Another kernel like this one, for a forked child, which can use neither this one nor what it
    /// knows.
    ///
    /// # Errors
    /// What the system reports; [`Reason::Unsupported`] where there is no other.
    fn renew(&self, config: &Config) -> io::Result<Self>
    where
        Self: Sized,
    {
        let _ = config;
        Err(Reason::Unsupported.into())
    }

    /// Whether a `select` of some microseconds is one: not where timeouts are whole milliseconds or
    /// ticks.
    fn waits_finely(&self) -> bool {
        true
    }

    /// Leaves to itself what is started and was not answered in time: its memory is never used
    /// again.
    fn abandon(&mut self) {}

    /// A buffer of at least `len` bytes in memory that the kernel knows beforehand, if it has any
    /// left.
    fn registered_buf(&mut self, len: usize) -> Option<AlignedBuf> {
        let _ = len;
        None
    }

    /// The facts of a file that a driver needs before its first operation.
    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        let _ = fd;
        FileFacts::default()
    }

    /// Reads what can be read at `offset` of a file without waiting: bytes, 0 at its end, or
    /// `-errno`; `-EAGAIN` where it would have to wait, `-EOPNOTSUPP` where it never knows.
    fn read_now(&mut self, fd: RawFd, to: Target<'_>, offset: u64) -> isize {
        let _ = (fd, to, offset);
        -(libc::EOPNOTSUPP as isize)
    }

    /// As [`read_now`](Kernel::read_now), into several places. `-EAGAIN` also where it knows one
    /// only.
    fn read_list_now(&mut self, fd: RawFd, to: FileList<'_>, offset: u64) -> isize {
        let _ = (fd, to, offset);
        -(libc::EAGAIN as isize)
    }

    /// Starts work on a file, if the kernel does it without a thread of ours waiting; false when
    /// threads are to do it. The memory, a list's array too, must stay what it is until the answer.
    fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        let _ = (request, facts);
        false
    }

    /// The next answer to what [`start_file`](Kernel::start_file) has started. Asked for after each
    /// `select` until there is none.
    fn file_answer(&mut self) -> Option<FileAnswer> {
        None
    }

    /// Whether there is an answer without an event.
    fn has_file_answers(&self) -> bool {
        false
    }

    /// Asks for the end of such work; its answer tells.
    fn stop_file(&mut self, key: u64) {
        let _ = key;
    }

    /// Starts a job or a look-up. A later `select` reports its end. Called only if
    /// [`TASKS`](Kernel::TASKS) is true.
    ///
    /// # Errors
    /// Returns a task that this kernel cannot run.
    fn start_task(&mut self, key: u64, task: Task) -> Result<(), Task> {
        let _ = key;
        Err(task)
    }

    /// Takes back a task that has not begun; `None` if it has.
    fn cancel_task(&mut self, key: u64) -> Option<Task> {
        let _ = key;
        None
    }

    /// The key and the result of the next task that has ended. Called after each `select`, until it
    /// returns `None`.
    fn task_answer(&mut self) -> Option<(u64, Result<Done, Error>)> {
        None
    }

    /// How many tasks wait, and how many run.
    fn task_counts(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Makes sure that calls without a flag for it do not block on a stream socket. Returns whether
    /// it changed the open file description, which `shared` forbids.
    ///
    /// # Errors
    /// [`Reason::Unsupported`] for a blocking one that must not be changed, or the errno.
    fn forbid_blocking(&mut self, fd: RawFd, shared: bool) -> Result<bool, Reason> {
        let _ = (fd, shared);
        Err(Reason::Unsupported)
    }

    /// Sends `len` bytes at `offset` of a file over a socket, as many as it takes without waiting
    /// for the peer: bytes, 0 at the file's end, or `-errno`.
    fn send_file(&mut self, socket: RawFd, fd: RawFd, offset: u64, len: usize) -> isize {
        let _ = (socket, fd, offset, len);
        -(libc::EOPNOTSUPP as isize)
    }

    /// How other threads end a `select`.
    fn waker(&self) -> Arc<dyn Wake>;

    /// Whether a handle belongs to this kernel.
    fn accepts(&self, handle: &Handle) -> bool;

    /// Asks what `fd` is and makes its reads, writes and accepts non-blocking where flags on the
    /// call cannot: `shared` forbids to change the description. Answers the kind and whether the
    /// description was changed.
    ///
    /// # Errors
    /// [`Reason::Unsupported`] or the errno.
    fn prepare(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        shared: bool,
    ) -> Result<(SourceKind, bool), Reason>;

    /// Takes back what `prepare` has changed.
    fn restore(&mut self, fd: RawFd);

    /// Closes `fd`.
    fn close(&mut self, fd: RawFd);

    /// Gives `fd` away.
    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle;

    /// Receives bytes.
    fn recv(&mut self, fd: RawFd, kind: SourceKind, to: Target<'_>) -> Received;

    /// Sends bytes.
    fn send(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize;

    /// Receives bytes into several places.
    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received;

    /// Sends several parts.
    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize;

    /// Receives a datagram and its sender.
    fn recv_from(&mut self, fd: RawFd, to: &mut [Target<'_>], from: &mut Address) -> Received;

    /// Sends a datagram.
    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize;

    /// The most datagrams that one call [sends](Kernel::send_many), or
    /// [receives](Kernel::recv_many); 1 if this kernel takes them one by one.
    fn datagrams_per_call(&self, sends: bool) -> usize {
        let _ = sends;
        1
    }

    /// Receives a datagram into each of `to`, until there are no more: answers how many, and tells
    /// their senders in `from` and their lengths in `got`. `-errno` if there was not even one;
    /// `-EOPNOTSUPP` if they are to be tried one by one. (Here: as many calls for one datagram.)
    fn recv_many(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        let mut count = 0;
        for ((to, from), got) in to.iter_mut().zip(from).zip(got) {
            *got = self.recv_from(fd, std::slice::from_mut(to), from);
            if got.moved < 0 {
                return if count == 0 { got.moved } else { count };
            }
            count += 1;
        }
        count
    }

    /// Sends datagrams, each to its address, until one fails: answers how many are out, or `-errno`
    /// of the first one; `-EOPNOTSUPP` if they are to be tried one by one. The error of another
    /// datagram is met again when that one is tried again. (Here: as many calls for one datagram.)
    fn send_many(&mut self, fd: RawFd, datagrams: &[(&[u8], &Address)]) -> isize {
        let mut count = 0;
        for (bytes, to) in datagrams {
            let moved = self.send_to(fd, bytes, to);
            if moved < 0 {
                return if count == 0 { moved } else { count };
            }
            count += 1;
        }
        count
    }

    /// Receives bytes and descriptors.
    fn recv_descriptors(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> isize;

    /// Sends bytes and descriptors.
    fn send_descriptors(&mut self, fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> isize;

    /// Takes a connection.
    ///
    /// # Errors
    /// The errno.
    fn accept(&mut self, fd: RawFd, kind: SourceKind) -> Result<Handle, i32>;

    /// Makes room by the spare descriptor and drops the connection at the head of the queue.
    fn relieve(&mut self, fd: RawFd);

    /// Opens (or takes `prepared`) and connects a stream socket. Answers the descriptor, its kind,
    /// and how far it has come.
    ///
    /// # Errors
    /// The errno.
    fn connect(
        &mut self,
        to: &Address,
        prepared: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32>;

    /// Tries to connect a socket again that the listener had no room for.
    ///
    /// # Errors
    /// The errno.
    fn connect_again(&mut self, fd: RawFd, to: &Address) -> Result<Connecting, i32> {
        let _ = (fd, to);
        Err(libc::EOPNOTSUPP)
    }

    /// How a connection that went on has ended: 0 or the errno; `EINPROGRESS` when it goes on
    /// still.
    fn connect_result(&mut self, fd: RawFd) -> i32;

    /// Shuts the writing side: 0 or `-errno`.
    fn shutdown(&mut self, fd: RawFd) -> isize;

    /// Which of `interest` hold now.
    ///
    /// # Errors
    /// The errno.
    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32>;

    /// Makes a descriptor that is readable when one of these signals has come.
    ///
    /// # Errors
    /// The errno; `EOPNOTSUPP` if this kernel has no signals.
    fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        let _ = signals;
        Err(libc::EOPNOTSUPP)
    }

    /// Takes a signal from a descriptor that [`signals`](Kernel::signals) made.
    ///
    /// # Errors
    /// `EAGAIN`: no signal waits.
    fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        let _ = fd;
        Err(libc::EOPNOTSUPP)
    }

    /// Makes a descriptor that is readable when a child process has ended.
    ///
    /// # Errors
    /// The errno; `EOPNOTSUPP` if this kernel has no child processes.
    fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        let _ = pid;
        Err(libc::EOPNOTSUPP)
    }

    /// Reaps the child of a descriptor that [`child`](Kernel::child) made, and returns its exit
    /// status. Further calls return the same status.
    ///
    /// # Errors
    /// `EAGAIN`: the child runs. `ECHILD`: other code has reaped it.
    fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
        let _ = fd;
        Err(libc::EOPNOTSUPP)
    }

    /// Makes a listening stream socket.
    ///
    /// # Errors
    /// What the system reports.
    fn listen(&mut self, at: &Address, options: ListenOptions) -> io::Result<Handle>;

    /// Makes a bound datagram socket.
    ///
    /// # Errors
    /// What the system reports; `EOPNOTSUPP` of a kernel without such sockets.
    fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Handle> {
        let _ = (at, options);
        Err(os_error(libc::EOPNOTSUPP))
    }

    /// The address that `fd` is bound to.
    ///
    /// # Errors
    /// What the system reports.
    fn local_address(&self, fd: RawFd) -> io::Result<Address>;

    /// The address that `fd` is connected to.
    ///
    /// # Errors
    /// What the system reports.
    fn peer_address(&self, fd: RawFd) -> io::Result<Address>;

    /// Sets the peer of a datagram socket.
    ///
    /// # Errors
    /// What the system reports; `EOPNOTSUPP` of a kernel without such sockets.
    fn connect_datagram(&mut self, fd: RawFd, peer: &Address) -> io::Result<()> {
        let _ = (fd, peer);
        Err(os_error(libc::EOPNOTSUPP))
    }

    /// Sets an option of a socket.
    ///
    /// # Errors
    /// What the system reports; `EOPNOTSUPP` of a kernel without the option.
    fn set_option(&mut self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        let _ = (fd, option);
        Err(os_error(libc::EOPNOTSUPP))
    }

    /// The system's descriptor behind `fd`, which the caller keeps open for the answer's life.
    fn borrow(&self, fd: RawFd) -> Option<BorrowedFd<'_>>;

    /// The selector's own descriptor.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// System calls by name.
    fn system_calls(&self) -> Vec<(&'static str, u64)>;

    /// Adds rows about the selector.
    fn explain(&self, explain: &mut Explain);
}
