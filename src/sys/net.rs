//! Sockets: the attempts of the proactor, and how sockets are made.
//!
//! Every attempt is non-blocking by its flags (`MSG_DONTWAIT`), so that a socket's description is
//! not changed; only accept4(2) has no such flag and needs a non-blocking listener. On macOS that
//! is not enough, see `system`.

#![allow(unsafe_code)]
//! # Safety
//!
//! As in `descriptor`: descriptors are numbers, memory is passed as pointer and length of a slice
//! or of an exclusive `Target`; message headers live on the stack across their call.

use std::io::{self, IoSlice};

use crate::sys::addr::RawAddress;
use crate::sys::descriptor::{self, StackVectors};
use crate::sys::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::socket_option::Listen;
use crate::sys::target::Target;
use crate::sys::types::SourceKind;
use crate::sys::{Moved, call, cvt, os_errno, syscall, takeover};

const RECV: i32 = libc::MSG_DONTWAIT;
const SEND: i32 = libc::MSG_DONTWAIT | system::NOSIGNAL;

pub(crate) use system::FLAGS_PER_CALL;

/// Calls take flags for the descriptors that they make, and for how they wait.
#[cfg(not(target_vendor = "apple"))]
mod system {
    use super::{Moved, OwnedFd, RawFd, syscall};

    /// Whether `MSG_DONTWAIT` is enough for a call not to block.
    pub(crate) const FLAGS_PER_CALL: bool = true;
    pub(super) const NOSIGNAL: i32 = libc::MSG_NOSIGNAL;
    /// Descriptors that arrive are closed on exec.
    pub(super) const CLOEXEC: i32 = libc::MSG_CMSG_CLOEXEC;

    pub(super) fn accept(fd: RawFd, at: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Moved {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the caller passes room for any address, and its length.
        syscall!(unsafe { libc::accept4(fd, at, len, flags) })
    }

    pub(super) fn socket(family: i32, kind: i32) -> Moved {
        let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed.
        syscall!(unsafe { libc::socket(family, kind, 0) })
    }

    /// A message has brought this descriptor.
    pub(super) fn arrived(_: &OwnedFd) {}

    pub(crate) fn quiet(_: RawFd) {}
}

/// macOS has no such flags. A descriptor is changed after it was made, so a fork in between can
/// leak the descriptor into the program that the child executes. Sends look at `O_NONBLOCK` only
/// (`sosendcheck` in xnu), so sockets are made non-blocking like pipes.
#[cfg(target_vendor = "apple")]
mod system {
    use super::{AsRawFd, Moved, OwnedFd, RawFd, set_option, syscall};
    use crate::sys::descriptor::{self, set_cloexec, set_nonblocking};

    pub(crate) const FLAGS_PER_CALL: bool = false;
    pub(super) const NOSIGNAL: i32 = 0;
    pub(super) const CLOEXEC: i32 = 0;

    pub(super) fn accept(fd: RawFd, at: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Moved {
        // SAFETY: the caller passes room for any address, and its length.
        made(syscall!(unsafe { libc::accept(fd, at, len) }))
    }

    pub(super) fn socket(family: i32, kind: i32) -> Moved {
        // SAFETY: no memory is passed.
        made(syscall!(unsafe { libc::socket(family, kind, 0) }))
    }

    fn made(fd: Moved) -> Moved {
        if fd < 0 {
            return fd;
        }
        let raw = fd as RawFd;
        match set_cloexec(raw).and_then(|()| set_nonblocking(raw, true)) {
            Ok(()) => {
                quiet(raw);
                fd
            }
            Err(error) => {
                let _ = descriptor::close(raw);
                -(error.raw_os_error().unwrap_or(libc::EIO) as isize)
            }
        }
    }

    pub(super) fn arrived(fd: &OwnedFd) {
        let _ = set_cloexec(fd.as_raw_fd());
    }

    /// Lets writes to a peer that is gone raise no signal. A socket whose peer is already gone
    /// refuses the option, and raises no signal any more.
    pub(crate) fn quiet(fd: RawFd) {
        let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_NOSIGPIPE, 1);
    }
}

/// A flag of a received message: the message was longer than the memory.
pub(crate) const CUT: i32 = libc::MSG_TRUNC;
/// A record came, though perhaps an empty one, and not the end of the connection: SCTP sets
/// MSG_EOR, as FreeBSD does; on Linux see [`mark_records`].
pub(crate) const RECORD: i32 = libc::MSG_EOR | libc::MSG_CTRUNC;
/// A flag of a received message: the descriptors that came with it did not fit.
pub(crate) const CONTROL_CUT: i32 = libc::MSG_CTRUNC;

/// The option that lets several listeners share an address and its load.
#[cfg(target_os = "freebsd")]
const REUSE_PORT: i32 = libc::SO_REUSEPORT_LB;
#[cfg(not(target_os = "freebsd"))]
const REUSE_PORT: i32 = libc::SO_REUSEPORT;

/// Lets writes to a socket that the program has made raise no signal, on systems where this is no
/// flag of the call.
pub(crate) fn quiet(fd: RawFd) {
    system::quiet(fd);
}

/// Whether this errno of accept(2) is that of the connection at the head of the backlog, which is
/// gone then: the next accept may succeed. Linux passes on network errors of the new connection
/// (accept(2)).
pub(crate) fn is_of_connection(errno: i32) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if errno == libc::ENONET {
        return true;
    }
    matches!(
        errno,
        libc::ECONNABORTED
            | libc::EINTR
            | libc::EPROTO
            | libc::EPERM
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENOPROTOOPT
    )
}

/// Most descriptors that one message passes (SCM_MAX_FD, unix(7)).
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// What kind of socket `fd` is.
pub(crate) fn kind_of(fd: RawFd) -> io::Result<SourceKind> {
    if option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0 {
        return Ok(SourceKind::Listener);
    }
    let kind = option(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    let family = local(fd)?.family();
    Ok(kind_by(family, kind, protocol(fd, family, kind)))
}

/// The kind of a connected socket with this family, type and protocol. Only TCP and MPTCP streams
/// (and Unix streams, except at passed descriptors) fill a read with all available bytes: SCTP ends
/// a read at a message.
fn kind_by(family: i32, kind: i32, protocol: i32) -> SourceKind {
    const MPTCP: i32 = 262;
    let internet = matches!(family, libc::AF_INET | libc::AF_INET6);
    match kind {
        libc::SOCK_STREAM if family == libc::AF_UNIX => SourceKind::UnixStream,
        libc::SOCK_STREAM if internet && matches!(protocol, libc::IPPROTO_TCP | MPTCP) => {
            SourceKind::Stream
        }
        libc::SOCK_STREAM => SourceKind::OtherStream,
        libc::SOCK_SEQPACKET => SourceKind::Seqpacket,
        _ => SourceKind::Datagram,
    }
}

/// The protocol of a socket; 0 if the system does not tell.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn protocol(fd: RawFd, _family: i32, _kind: i32) -> i32 {
    option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).unwrap_or(0)
}

/// This system cannot tell, and only has TCP.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn protocol(_: RawFd, family: i32, kind: i32) -> i32 {
    let internet = matches!(family, libc::AF_INET | libc::AF_INET6);
    if internet && kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { 0 }
}

/// Whether a listener's connections are TCP or MPTCP, or Unix sockets.
pub(crate) fn listens_to_bytes(fd: RawFd) -> io::Result<bool> {
    let family = local(fd)?.family();
    let kind = option(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    Ok(kind_by(family, kind, protocol(fd, family, kind)) != SourceKind::OtherStream)
}

/// What kind of connected Unix socket `fd` is.
pub(crate) fn unix_kind(fd: RawFd) -> SourceKind {
    match option(fd, libc::SOL_SOCKET, libc::SO_TYPE) {
        Ok(libc::SOCK_STREAM) => SourceKind::UnixStream,
        Ok(libc::SOCK_SEQPACKET) => SourceKind::Seqpacket,
        _ => SourceKind::Unknown,
    }
}

/// Lets the kernel mark the records of a Unix socket, or no longer.
///
/// recvmsg(2) answers 0 for an empty record and at the end, and poll(2) tells of the end while
/// records are still queued. With a time, for which a receive has no room, each record comes with
/// MSG_CTRUNC, and the end does not. (The kernel takes the time of a record of a Unix socket only
/// when the record is received.)
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn mark_records(fd: RawFd, on: bool) {
    if local(fd).is_ok_and(|at| at.family() == libc::AF_UNIX) {
        // If the kernel refuses, an empty record right before the end counts as the end.
        let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMP, i32::from(on));
    }
}

/// Whether the records of a socket are marked.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn are_records_marked(fd: RawFd) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMP).is_ok_and(|on| on != 0)
}

/// Other systems mark records by themselves.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn are_records_marked(_: RawFd) -> bool {
    true
}

/// As above.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn mark_records(_: RawFd, _: bool) {}

/// Whether a socket from which 0 bytes came is shut for reads; true where poll(2) does not tell.
pub(crate) fn is_shut(fd: RawFd) -> bool {
    let shut = Ready::READ_CLOSED | Ready::HANGUP;
    !descriptor::TELLS_HALF_CLOSE
        || descriptor::poll_now(fd, Ready::READ_CLOSED).map_or(true, |is| is.intersects(shut))
}

fn option(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: four bytes of a local, as `len` says.
    cvt!(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

pub(super) fn set_option<T: Copy>(fd: RawFd, level: i32, name: i32, value: T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: a local of the length that is passed.
    cvt!(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) })?;
    Ok(())
}

/// The pending error of a socket (`SO_ERROR`), which reading clears; 0 is none.
pub(crate) fn pending_error(fd: RawFd) -> i32 {
    option(fd, libc::SOL_SOCKET, libc::SO_ERROR)
        .unwrap_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

/// recv(2)
#[inline(always)]
pub(crate) fn recv(fd: RawFd, mut to: Target<'_>) -> Moved {
    // SAFETY: the target is ours to write.
    unsafe { call::recv(fd, to.as_mut_ptr(), to.len(), RECV) }
}

/// send(2)
#[inline(always)]
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> Moved {
    // SAFETY: pointer and length of a slice.
    unsafe { call::send(fd, bytes.as_ptr(), bytes.len(), SEND) }
}

/// A message header without anything in it.
fn header() -> libc::msghdr {
    // SAFETY: a struct of pointers and integers; all zeroes names nothing.
    unsafe { std::mem::zeroed() }
}

/// recvmsg(2) into several targets, or of a socket whose messages may be cut short. Returns the
/// number of bytes, and the flags that came with them.
pub(crate) fn recv_vectored(
    fd: RawFd,
    to: &mut [Target<'_>],
    from: Option<&mut RawAddress>,
) -> (Moved, i32) {
    let mut vectors = StackVectors::new();
    vectors.fill(to);
    let mut header = header();
    header.msg_iov = vectors.as_ptr().cast_mut();
    header.msg_iovlen = vectors.len() as _;
    let mut from = from;
    if let Some(address) = from.as_deref_mut() {
        let (at, len) = address.out();
        header.msg_name = at.cast();
        // SAFETY: `len` points into `address`.
        header.msg_namelen = unsafe { *len };
    }
    // SAFETY: everything that the header names lives on this stack or in the caller's memory.
    let moved = syscall!(unsafe { libc::recvmsg(fd, &mut header, RECV | system::CLOEXEC) });
    if let Some(address) = from {
        address.set_len(if moved < 0 { 0 } else { header.msg_namelen });
    }
    (moved, header.msg_flags)
}

/// Receives from a Unix stream. Also returns whether more bytes may be there though the call has
/// taken less than there was room for.
///
/// Such a call stops behind passed descriptors, and no edge reports the bytes behind them. recv(2)
/// does not tell that it has met any. recvmsg(2) on Linux does: without room for descriptors it
/// sets `MSG_CTRUNC` (`__scm_recv_common`), and so it does where it stops at another sender's
/// credentials (`SO_PASSCRED`). So an echo takes one call for each message, as with recv(2).
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
pub(crate) fn recv_unix(fd: RawFd, mut to: Target<'_>) -> (Moved, bool) {
    let mut vector = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut header = header();
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    // SAFETY: the header names one vector over memory that is ours to write.
    let moved = syscall!(unsafe { libc::recvmsg(fd, &mut header, RECV) });
    (moved, header.msg_flags & CONTROL_CUT != 0)
}

/// As on Linux. But no flag tells of passed descriptors, so every read may have stopped at some.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn recv_unix(fd: RawFd, to: Target<'_>) -> (Moved, bool) {
    let moved = recv(fd, to);
    (moved, moved > 0)
}

/// sendmsg(2) of several parts, to an address if the socket has no peer.
pub(crate) fn send_vectored(fd: RawFd, parts: &[IoSlice<'_>], to: Option<&RawAddress>) -> Moved {
    let mut header = header();
    // An IoSlice is an iovec.
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len() as _;
    if let Some(address) = to {
        header.msg_name = address.as_ptr().cast_mut().cast();
        header.msg_namelen = address.len();
    }
    // SAFETY: everything that the header names lives across the call and is only read.
    syscall!(unsafe { libc::sendmsg(fd, &header, SEND) })
}

/// Room for the control message of `MOST_DESCRIPTORS` descriptors, behind a time, a pidfd and
/// credentials; aligned as headers want.
#[repr(C, align(8))]
struct Control([u8; 1152]);

/// sendmsg(2) with descriptors (SCM_RIGHTS).
pub(crate) fn send_descriptors(fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> Moved {
    if descriptors.is_empty() {
        return send(fd, bytes);
    }
    if descriptors.len() > MOST_DESCRIPTORS {
        return -(libc::EINVAL as isize);
    }
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let payload = size_of_val(raw.as_slice());
    let mut control = Control([0; 1152]);
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut header = header();
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(payload as u32) } as _;
    // SAFETY: the control buffer is large enough for one header (CMSG_SPACE(253 * 4) is 1032).
    let message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    // SAFETY: arithmetic only.
    let len = unsafe { libc::CMSG_LEN(payload as u32) };
    // SAFETY: arithmetic only.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: as above: the first header lies in `control`, which is zeroed and exclusively ours.
    let first = unsafe { &mut *message };
    first.cmsg_level = libc::SOL_SOCKET;
    first.cmsg_type = libc::SCM_RIGHTS;
    first.cmsg_len = len as _;
    // SAFETY: the data lies behind its header, and `control` has room for it.
    unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), data, payload) };
    // SAFETY: everything that the header names lives on this stack or is the caller's slice.
    syscall!(unsafe { libc::sendmsg(fd, &header, SEND) })
}

/// The control messages that bring descriptors. On Linux 6.5 and later one can bring a pidfd of the
/// sender (`SCM_PIDFD`), to a socket with `SO_PASSPIDFD`.
const BRING_DESCRIPTORS: &[i32] = if cfg!(any(target_os = "linux", target_os = "android")) {
    &[libc::SCM_RIGHTS, 4]
} else {
    &[libc::SCM_RIGHTS]
};

/// recvmsg(2) with descriptors (SCM_RIGHTS), which are owned from here on. A pidfd is closed.
/// Returns the number of bytes, and the flags that came with them: one of [`RECORD`] if any control
/// message came.
pub(crate) fn recv_descriptors(
    fd: RawFd,
    to: &mut [Target<'_>],
    descriptors: &mut Vec<OwnedFd>,
) -> (Moved, i32) {
    let mut control = Control([0; 1152]);
    let mut vectors = StackVectors::new();
    vectors.fill(to);
    let mut header = header();
    header.msg_iov = vectors.as_ptr().cast_mut();
    header.msg_iovlen = vectors.len() as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: everything that the header names lives on this stack or in the caller's targets.
    let moved = syscall!(unsafe { libc::recvmsg(fd, &mut header, RECV | system::CLOEXEC) });
    if moved < 0 {
        return (moved, 0);
    }
    let came = if header.msg_controllen > 0 { libc::MSG_EOR } else { 0 };
    // SAFETY: the kernel has filled the control buffer as far as `msg_controllen` says.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR answer headers inside the control buffer.
        let head = unsafe { *message };
        if head.cmsg_level == libc::SOL_SOCKET && BRING_DESCRIPTORS.contains(&head.cmsg_type) {
            // SAFETY: arithmetic only.
            let start = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (head.cmsg_len as usize - start) / size_of::<RawFd>();
            // SAFETY: the data lies behind its header.
            let data = unsafe { libc::CMSG_DATA(message) }.cast::<RawFd>();
            for i in 0..count {
                let at = data.wrapping_add(i);
                // SAFETY: `count` numbers lie there, as the header says; alignment is not promised.
                let raw = unsafe { at.read_unaligned() };
                if raw < 0 {
                    // An errno in place of a pidfd.
                    continue;
                }
                // SAFETY: the kernel has installed this descriptor for us alone.
                let owned = unsafe { OwnedFd::from_raw_fd(raw) };
                system::arrived(&owned);
                if head.cmsg_type == libc::SCM_RIGHTS {
                    descriptors.push(owned);
                }
            }
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(&header, message) };
    }
    (moved, header.msg_flags | came)
}

/// accept(2), non-blocking and closed on exec: the descriptor or `-errno`; the peer's address is
/// written to `peer`.
pub(crate) fn accept(fd: RawFd, peer: &mut RawAddress) -> Moved {
    let (at, len) = peer.out();
    system::accept(fd, at, len)
}

/// A new non-blocking stream socket of `family`, closed on exec.
pub(crate) fn stream(family: i32) -> Result<OwnedFd, i32> {
    socket(family, libc::SOCK_STREAM)
}

/// As [`stream`], a datagram socket.
pub(super) fn datagram(family: i32) -> Result<OwnedFd, i32> {
    socket(family, libc::SOCK_DGRAM)
}

fn socket(family: i32, kind: i32) -> Result<OwnedFd, i32> {
    let fd = system::socket(family, kind);
    if fd < 0 {
        return Err(-fd as i32);
    }
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// connect(2): 0 or `-errno`; `-EINPROGRESS` when it goes on.
pub(crate) fn connect(fd: RawFd, to: &RawAddress) -> Moved {
    // SAFETY: an address and its length.
    syscall!(unsafe { libc::connect(fd, to.as_ptr(), to.len()) })
}

/// Shuts the writing side.
pub(crate) fn shutdown_write(fd: RawFd) -> Moved {
    // SAFETY: no memory is passed.
    syscall!(unsafe { libc::shutdown(fd, libc::SHUT_WR) })
}

/// A bound, listening, non-blocking stream socket. A Unix path that a process has left is taken
/// over; one that is in use is `EADDRINUSE`.
pub(crate) fn listen(at: &RawAddress, how: Listen) -> io::Result<OwnedFd> {
    let family = at.family();
    let socket = stream(family).map_err(io::Error::from_raw_os_error)?;
    let fd = socket.as_raw_fd();
    if family != libc::AF_UNIX {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if how.reuse_port {
            set_option(fd, libc::SOL_SOCKET, REUSE_PORT, 1)?;
        }
        if how.nodelay {
            // Accepted sockets inherit it.
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        }
    }
    takeover::bind(fd, at)?;
    // SAFETY: no memory is passed.
    cvt!(unsafe { libc::listen(fd, how.backlog) })?;
    Ok(socket)
}

/// A bound, non-blocking datagram socket. A Unix path is treated as that of a listener is.
pub(crate) fn bind_datagram(at: &RawAddress, reuse_port: bool) -> io::Result<OwnedFd> {
    let family = at.family();
    let made = datagram(family).map_err(io::Error::from_raw_os_error)?;
    let fd = made.as_raw_fd();
    if family != libc::AF_UNIX && reuse_port {
        set_option(fd, libc::SOL_SOCKET, REUSE_PORT, 1)?;
    }
    takeover::bind(fd, at)?;
    Ok(made)
}

fn name(
    fd: RawFd,
    call: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
) -> io::Result<RawAddress> {
    let mut address = RawAddress::default();
    let (at, len) = address.out();
    // SAFETY: room for any address, and its length.
    cvt!(unsafe { call(fd, at, len) })?;
    Ok(address)
}

/// getsockname(2)
pub(crate) fn local(fd: RawFd) -> io::Result<RawAddress> {
    name(fd, libc::getsockname)
}

/// getpeername(2)
pub(crate) fn peer(fd: RawFd) -> io::Result<RawAddress> {
    name(fd, libc::getpeername)
}

/// Why a socket without an error has no peer: 0 if it has one, or `ENOTCONN`.
pub(crate) fn peer_error(fd: RawFd) -> i32 {
    peer(fd).err().map_or(0, |error| os_errno(&error).unwrap_or(libc::ENOTCONN))
}

/// The option whose time is in seconds.
#[cfg(target_vendor = "apple")]
const LINGER: i32 = libc::SO_LINGER_SEC;
#[cfg(not(target_vendor = "apple"))]
const LINGER: i32 = libc::SO_LINGER;

/// How many seconds close(2) may wait for the peer: 0 if it does not wait.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`: the errno.
pub(crate) fn linger(fd: RawFd) -> Result<i32, i32> {
    let mut value = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of_val(&value) as libc::socklen_t;
    let into = (&raw mut value).cast();
    // SAFETY: room for so many bytes.
    match syscall!(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, LINGER, into, &mut len) }) {
        0 => Ok(if value.l_onoff == 0 { 0 } else { value.l_linger }),
        error => Err(-error as i32),
    }
}

/// For so many seconds.
pub(super) fn set_linger(fd: RawFd, seconds: Option<i32>) -> io::Result<()> {
    let (l_onoff, l_linger) = (i32::from(seconds.is_some()), seconds.unwrap_or(0));
    set_option(fd, libc::SOL_SOCKET, LINGER, libc::linger { l_onoff, l_linger })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no getsockopt(2) of a socket's type")]
    fn streams_are_told_by_family_and_protocol() {
        const SCTP: i32 = 132;
        const MPTCP: i32 = 262;
        const VSOCK: i32 = 40;
        let (stream, packets) = (libc::SOCK_STREAM, libc::SOCK_SEQPACKET);
        for (family, kind, protocol, told) in [
            (libc::AF_INET, stream, libc::IPPROTO_TCP, SourceKind::Stream),
            (libc::AF_INET6, stream, libc::IPPROTO_TCP, SourceKind::Stream),
            (libc::AF_INET, stream, MPTCP, SourceKind::Stream),
            (libc::AF_INET6, stream, MPTCP, SourceKind::Stream),
            (libc::AF_INET, stream, SCTP, SourceKind::OtherStream),
            (libc::AF_INET6, stream, SCTP, SourceKind::OtherStream),
            (libc::AF_INET, stream, 0, SourceKind::OtherStream),
            (VSOCK, stream, 0, SourceKind::OtherStream),
            (VSOCK, stream, libc::IPPROTO_TCP, SourceKind::OtherStream),
            (libc::AF_UNIX, stream, 0, SourceKind::UnixStream),
            (libc::AF_UNIX, packets, 0, SourceKind::Seqpacket),
            (libc::AF_INET, packets, SCTP, SourceKind::Seqpacket),
            (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP, SourceKind::Datagram),
            (libc::AF_UNIX, libc::SOCK_DGRAM, 0, SourceKind::Datagram),
        ] {
            assert_eq!(kind_by(family, kind, protocol), told, "{family} {kind} {protocol}");
        }
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens_to_bytes(tcp.as_raw_fd()).unwrap());
        assert_eq!(kind_of(tcp.as_raw_fd()).unwrap(), SourceKind::Listener);
        let socket = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert_eq!(kind_of(socket.as_raw_fd()).unwrap(), SourceKind::Stream);
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(kind_of(unix.as_raw_fd()).unwrap(), SourceKind::UnixStream);
    }
}
