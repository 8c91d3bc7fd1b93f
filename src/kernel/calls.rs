//! The calls of a kernel on descriptors. A kernel that completes operations by itself has the same
//! calls as the kernel that it is built on.

use std::io::{self, IoSlice};
use std::process::ExitStatus;

use crate::driver::endpoint::{DatagramOptions, ListenOptions};
use crate::file::{FileFacts, FileList};
use crate::sys::fd::{BorrowedFd, OwnedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::os_error;
use crate::sys::socket_option::SocketOption;
use crate::sys::target::Target;
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::source::{Handle, SourceKind};

/// The result of a receiving attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes, or `-errno`.
    pub moved: isize,
    /// The attempt returned less than there was: it stopped at passed descriptors, or it cut a
    /// datagram that is longer than the memory.
    pub cut: bool,
    /// The attempt met the end of a connection of records, where 0 bytes are an empty record. On a
    /// source of bytes 0 bytes are the end.
    pub end: bool,
}

impl Received {
    /// An answer that was not cut.
    #[inline(always)]
    pub const fn plain(moved: isize) -> Received {
        Received { moved, cut: false, end: false }
    }
}

/// How far an attempt to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// It is connected.
    Done,
    /// The connect goes on. The socket becomes writable when the connect has ended.
    GoesOn,
    /// The listener of a Unix socket has no room, and no event will tell when it has: the proactor
    /// tries again later.
    Full,
}

/// The calls of a kernel on descriptors. None of them blocks: the [table](super) says why, for each
/// call of the system.
///
/// An attempt returns the number of bytes that it moved, or `-errno`. After `-EAGAIN` the selector
/// reports when another attempt is worth it.
///
/// # Safety
/// An attempt that returns `n` received bytes has written the first `n` bytes of its target (of its
/// targets, one after the other), and `n` is at most their length.
#[allow(unsafe_code)]
#[allow(unused_variables)] // a default ignores what it is given
pub unsafe trait Calls {
    /// The facts of a file that a driver needs before its first operation.
    fn file_facts(&mut self, fd: RawFd) -> FileFacts {
        FileFacts::default()
    }

    /// Reads those bytes at `offset` of a file that can be read without waiting. Returns their
    /// number, 0 at the end of the file, or `-errno`: `-EAGAIN` if it would have to wait,
    /// `-EOPNOTSUPP` if it can never tell.
    fn read_now(&mut self, fd: RawFd, to: Target<'_>, offset: u64) -> isize {
        -(libc::EOPNOTSUPP as isize)
    }

    /// As [`read_now`](Calls::read_now), into several buffers. Also returns `-EAGAIN` if it cannot
    /// read into several.
    fn read_list_now(&mut self, fd: RawFd, to: FileList<'_>, offset: u64) -> isize {
        -(libc::EAGAIN as isize)
    }

    /// Makes sure that calls without a flag for it do not block on a stream socket. Returns whether
    /// it changed the open file description, which `shared` forbids.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for a blocking socket that must not be changed, or the errno.
    fn forbid_blocking(&mut self, fd: RawFd, shared: bool) -> Result<bool, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Sends `len` bytes at `offset` of a file over a socket, as many as it takes without waiting
    /// for the peer: bytes, 0 at the file's end, or `-errno`.
    fn send_file(&mut self, socket: RawFd, fd: RawFd, offset: u64, len: usize) -> isize {
        -(libc::EOPNOTSUPP as isize)
    }

    /// Whether a handle belongs to this kernel.
    fn accepts(&self, handle: &Handle) -> bool;

    /// Finds out what `fd` is. If flags on the calls cannot make its reads, writes and accepts
    /// non-blocking, this sets `O_NONBLOCK` on the open file description. If that is `shared`, `fd`
    /// gets a description of its own, where that is possible. Returns the kind, and whether the
    /// description of `fd` is to be changed back.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] or the errno.
    fn prepare(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        shared: bool,
    ) -> Result<(SourceKind, bool), Refusal>;

    /// Whether the close of a descriptor may wait: then a thread does it, on the handle that
    /// [`release`](super::Kernel::release) returns. If the descriptor is `own`, no other code
    /// relies on its options, and the call may change them so that the close does not wait.
    fn may_wait_to_close(&mut self, fd: RawFd, kind: SourceKind, own: bool) -> bool {
        false
    }

    /// Undoes the change of [`prepare`](Calls::prepare).
    fn restore(&mut self, fd: RawFd);

    /// Receives bytes.
    fn recv(&mut self, fd: RawFd, kind: SourceKind, to: Target<'_>) -> Received;

    /// Sends bytes.
    fn send(&mut self, fd: RawFd, kind: SourceKind, bytes: &[u8]) -> isize;

    /// Receives bytes into several buffers.
    fn recv_vectored(&mut self, fd: RawFd, kind: SourceKind, to: &mut [Target<'_>]) -> Received;

    /// Sends several parts.
    fn send_vectored(&mut self, fd: RawFd, kind: SourceKind, parts: &[IoSlice<'_>]) -> isize;

    /// Receives a datagram and its sender.
    fn recv_from(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut Address,
    ) -> Received;

    /// Sends a datagram.
    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> isize;

    /// The most datagrams that one call [sends](Calls::send_many), or
    /// [receives](Calls::recv_many); 1 if this kernel takes them one by one.
    fn datagrams_per_call(&self, sends: bool) -> usize {
        1
    }

    /// Receives a datagram into each of `to`, until there are no more. Returns their number, and
    /// writes their senders to `from` and their lengths to `got`. Returns `-errno` if there was
    /// none, and `-EOPNOTSUPP` if the proactor is to receive them one by one. The default calls
    /// [`recv_from`](Calls::recv_from) for each datagram.
    fn recv_many(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        from: &mut [Address],
        got: &mut [Received],
    ) -> isize {
        let mut count = 0;
        for ((to, from), got) in to.iter_mut().zip(from).zip(got) {
            *got = self.recv_from(fd, kind, std::slice::from_mut(to), from);
            if got.moved < 0 {
                return if count == 0 { got.moved } else { count };
            }
            count += 1;
            if got.end {
                break;
            }
        }
        count
    }

    /// Sends datagrams, each to its address, until one fails. Returns the number of those that were
    /// sent. If the first one fails, it returns `-errno`, or `-EOPNOTSUPP` if the proactor is to
    /// send them one by one. The error of a later datagram shows when that datagram is tried again.
    /// The default calls [`send_to`](Calls::send_to) for each datagram.
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

    /// Receives bytes and descriptors. Also returns whether descriptors that came with the bytes
    /// are lost.
    fn recv_descriptors(
        &mut self,
        fd: RawFd,
        kind: SourceKind,
        to: &mut [Target<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> (Received, bool);

    /// Sends bytes and descriptors.
    fn send_descriptors(&mut self, fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> isize;

    /// Takes a connection.
    ///
    /// # Errors
    /// The errno.
    fn accept(&mut self, fd: RawFd, kind: SourceKind) -> Result<Handle, i32>;

    /// Closes the spare descriptor, to accept the connection at the head of the queue and drop it.
    fn shed_connection(&mut self, fd: RawFd);

    /// Connects a stream socket: `prepared`, or else a new one. Returns the descriptor, its kind,
    /// and how far the connect has come.
    ///
    /// # Errors
    /// The errno.
    fn connect(
        &mut self,
        to: &Address,
        prepared: Option<OwnedFd>,
    ) -> Result<(RawFd, SourceKind, Connecting), i32>;

    /// Tries again to connect a socket for which the listener had no room.
    ///
    /// # Errors
    /// The errno.
    fn connect_again(&mut self, fd: RawFd, to: &Address) -> Result<Connecting, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// How a connect that [went on](Connecting::GoesOn) has ended: 0 or the errno. `EINPROGRESS` if
    /// it still goes on. Of a connection, the error that waits at it.
    fn connect_result(&mut self, fd: RawFd) -> i32;

    /// Shuts the writing side: 0 or `-errno`.
    fn shutdown(&mut self, fd: RawFd) -> isize;

    /// Which of the conditions in `interest` hold now.
    ///
    /// # Errors
    /// The errno.
    fn poll(&mut self, fd: RawFd, interest: Ready) -> Result<Ready, i32>;

    /// Makes a descriptor that is readable when one of these signals has come.
    ///
    /// # Errors
    /// The errno; `EOPNOTSUPP` if this kernel has no signals.
    fn signals(&mut self, signals: &[i32]) -> Result<RawFd, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Takes a signal from a descriptor that [`signals`](Calls::signals) made.
    ///
    /// # Errors
    /// `EAGAIN`: no signal waits.
    fn take_signal(&mut self, fd: RawFd) -> Result<i32, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Makes a descriptor that is readable when a child process has ended.
    ///
    /// # Errors
    /// The errno; `EOPNOTSUPP` if this kernel has no child processes.
    fn child(&mut self, pid: u32) -> Result<RawFd, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Reaps the child of a descriptor that [`child`](Calls::child) made, and returns its exit
    /// status. Further calls return the same status.
    ///
    /// # Errors
    /// `EAGAIN`: the child runs. `ECHILD`: other code has reaped it.
    fn take_exit(&mut self, fd: RawFd) -> Result<ExitStatus, i32> {
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
        Err(os_error(libc::EOPNOTSUPP))
    }

    /// Sets an option of a socket.
    ///
    /// # Errors
    /// What the system reports; `EOPNOTSUPP` of a kernel without the option.
    fn set_option(&mut self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        Err(os_error(libc::EOPNOTSUPP))
    }

    /// The system's descriptor behind `fd`, which the caller keeps open for the answer's life.
    fn borrow(&self, fd: RawFd) -> Option<BorrowedFd<'_>>;
}
