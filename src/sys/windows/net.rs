//! Sockets on Winsock: the attempts of the proactor, and how sockets are made.
//!
//! Calls have no flag that keeps them from blocking: sockets are made non-blocking. Unix sockets
//! are refused (`EAFNOSUPPORT`), and descriptors are not passed (`EOPNOTSUPP`).

#![allow(unsafe_code)]
//! # Safety
//!
//! As in `descriptor`: descriptors are numbers, memory is passed as pointer and length of a slice
//! or of an exclusive `Target`. No call is overlapped, so that the system keeps nothing of it.

use std::io::{self, IoSlice};
use std::ptr;

use crate::sys::addr::RawAddress;
use crate::sys::descriptor::{VECTORS, own};
use crate::sys::error::{code, of_code};
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd, of_socket, socket};
use crate::sys::socket_option::Listen;
use crate::sys::target::Target;
use crate::sys::types::SourceKind;
use crate::sys::windows::api::{self, SOCKET, WSABUF};
use crate::sys::{Moved, cvt, errno, os_errno, os_error, syscall};

/// Calls have no flags that keep them from blocking.
pub(crate) const FLAGS_PER_CALL: bool = false;
/// A flag of a received message: the message was longer than the memory.
pub(crate) const CUT: i32 = api::MSG_TRUNC;
/// A flag of a received message: descriptors that came with it did not fit. None ever come.
pub(crate) const CONTROL_CUT: i32 = api::MSG_CTRUNC;
/// There are no connections of records.
pub(crate) const RECORD: i32 = api::MSG_CTRUNC;

/// There are no connections of records.
pub(crate) fn mark_records(_: RawFd, _: bool) {}

pub(crate) fn are_records_marked(_: RawFd) -> bool {
    true
}

/// There are no connections of records.
pub(crate) fn is_shut(_: RawFd) -> bool {
    true
}

/// Nothing raises a signal here.
pub(crate) fn quiet(_: RawFd) {}

/// Whether this errno of accept is that of the connection at the head of the backlog, which is gone
/// then. Windows has no `EPERM`; the simulated kernel answers it on every system.
pub(crate) fn is_of_connection(errno: i32) -> bool {
    matches!(errno, libc::ECONNABORTED | libc::ECONNRESET | libc::EINTR | libc::EPERM)
}

/// What kind of socket `fd` is.
pub(crate) fn kind_of(fd: RawFd) -> io::Result<SourceKind> {
    let kind = option(fd, api::SOL_SOCKET, api::SO_TYPE)?;
    // A socket that is not bound has no address.
    if local(fd).is_ok_and(|address| address.is_unix()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    match kind {
        // Sockets of other kinds do not know the option.
        api::SOCK_STREAM if option(fd, api::SOL_SOCKET, api::SO_ACCEPTCONN)? != 0 => {
            Ok(SourceKind::Listener)
        }
        api::SOCK_STREAM => Ok(SourceKind::Stream),
        api::SOCK_DGRAM => Ok(SourceKind::Datagram),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whether a listener's connections are TCP.
pub(crate) fn listens_to_bytes(_: RawFd) -> io::Result<bool> {
    Ok(true)
}

/// There are no connected Unix sockets.
pub(crate) fn unix_kind(_: RawFd) -> SourceKind {
    SourceKind::Unknown
}

fn option(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as i32;
    let at = (&raw mut value).cast();
    // SAFETY: four bytes of a local, as `len` says.
    cvt!(unsafe { api::getsockopt(socket(fd), level, name, at, &mut len) })?;
    Ok(value)
}

pub(in crate::sys) fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (at, len) = ((&raw const value).cast(), size_of::<i32>() as i32);
    // SAFETY: four bytes of a local.
    cvt!(unsafe { api::setsockopt(socket(fd), level, name, at, len) })?;
    Ok(())
}

/// The pending error of a socket (`SO_ERROR`), which reading clears; 0 is none.
pub(crate) fn pending_error(fd: RawFd) -> i32 {
    match option(fd, api::SOL_SOCKET, api::SO_ERROR) {
        Ok(0) => 0,
        Ok(code) => of_code(code),
        Err(_) => errno(),
    }
}

/// The most that one call takes.
fn len(bytes: usize) -> i32 {
    bytes.min(i32::MAX as usize) as i32
}

/// recv
pub(crate) fn recv(fd: RawFd, mut to: Target<'_>) -> Moved {
    // SAFETY: the target is ours to write.
    syscall!(unsafe { api::recv(socket(fd), to.as_mut_ptr(), len(to.len()), 0) })
}

/// recv of a Unix stream, which carries bytes only here.
pub(crate) fn recv_unix(fd: RawFd, to: Target<'_>) -> (Moved, bool) {
    (recv(fd, to), false)
}

/// The most bytes that a stream gets at once. Winsock takes even a gigabyte while its buffer is not
/// full, so that a write would never wait for its peer.
const PIECE: usize = 64 << 10;

fn is_stream(fd: RawFd) -> bool {
    option(fd, api::SOL_SOCKET, api::SO_TYPE).is_ok_and(|kind| kind == api::SOCK_STREAM)
}

/// Calls send, for many bytes of a stream piece by piece.
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> Moved {
    if bytes.len() <= PIECE || !is_stream(fd) {
        return send_once(fd, bytes);
    }
    let mut sent = 0;
    for piece in bytes.chunks(PIECE) {
        match send_once(fd, piece) {
            moved if moved < 0 => return if sent > 0 { sent } else { moved },
            moved => sent += moved,
        }
        if sent % PIECE as Moved != 0 {
            break;
        }
    }
    sent
}

fn send_once(fd: RawFd, bytes: &[u8]) -> Moved {
    // SAFETY: pointer and length of a slice.
    syscall!(unsafe { api::send(socket(fd), bytes.as_ptr(), len(bytes.len()), 0) })
}

/// WSARecvFrom into several targets. Returns the bytes, and the flags that came with them. A longer
/// message is cut, which Winsock calls an error.
pub(crate) fn recv_vectored(
    fd: RawFd,
    to: &mut [Target<'_>],
    from: Option<&mut RawAddress>,
) -> (Moved, i32) {
    let mut parts = [WSABUF { len: 0, buf: ptr::null_mut() }; VECTORS];
    let mut count = 0;
    for (part, target) in parts.iter_mut().zip(to.iter_mut()) {
        *part = WSABUF { len: len(target.len()) as u32, buf: target.as_mut_ptr() };
        count += 1;
    }
    let mut from = from;
    loop {
        let (mut moved, mut flags) = (0, 0);
        let (at, at_len) = match from.as_deref_mut() {
            Some(address) => address.out(),
            None => (ptr::null_mut(), ptr::null_mut()),
        };
        let (none, routine) = (ptr::null_mut(), ptr::null());
        let start = parts.as_ptr();
        // SAFETY: the parts name memory of `to`, which is ours to write; the rest lives on this
        // stack or in the caller's address.
        let answer = unsafe {
            api::WSARecvFrom(
                socket(fd),
                start,
                count,
                &mut moved,
                &mut flags,
                at,
                at_len,
                none,
                routine,
            )
        };
        if answer == 0 {
            return (moved as Moved, 0);
        }
        match code() {
            api::WSAEMSGSIZE => {
                let room: usize =
                    parts[..count as usize].iter().map(|part| part.len as usize).sum();
                return (room as Moved, CUT);
            }
            // An earlier datagram found no receiver. A receive from any sender ignores this error.
            api::WSAECONNRESET if from.is_some() => {}
            code => {
                if let Some(address) = from {
                    address.set_len(0);
                }
                return (-(of_code(code) as Moved), 0);
            }
        }
    }
}

/// WSASendTo of several parts, to an address if the socket has no peer. If a stream gets too many
/// parts, only the first that has bytes is sent.
pub(crate) fn send_vectored(fd: RawFd, parts: &[IoSlice<'_>], to: Option<&RawAddress>) -> Moved {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    if total > PIECE && to.is_none() && is_stream(fd) {
        let first = parts.iter().find(|part| !part.is_empty());
        return first.map_or(0, |part| send(fd, part));
    }
    let mut moved = 0;
    let (at, at_len) = to.map_or((ptr::null(), 0), |address| (address.as_ptr(), address.len()));
    let (start, count) = (parts.as_ptr().cast(), parts.len() as u32);
    let (none, routine) = (ptr::null_mut(), ptr::null());
    // SAFETY: an IoSlice is a WSABUF; everything lives across the call and is only read.
    let answer = unsafe {
        api::WSASendTo(socket(fd), start, count, &mut moved, 0, at, at_len, none, routine)
    };
    if answer == 0 { moved as Moved } else { -(errno() as Moved) }
}

/// Without descriptors as [`send`]; none can be passed.
pub(crate) fn send_descriptors(fd: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> Moved {
    if descriptors.is_empty() { send(fd, bytes) } else { -(libc::EOPNOTSUPP as Moved) }
}

/// No descriptors can be passed.
pub(crate) fn recv_descriptors(
    _: RawFd,
    _: &mut [Target<'_>],
    _: &mut Vec<OwnedFd>,
) -> (Moved, i32) {
    (-(libc::EOPNOTSUPP as Moved), 0)
}

/// accept, non-blocking and not inherited: the descriptor or `-errno`; the peer's address is
/// written to `peer`.
pub(crate) fn accept(fd: RawFd, peer: &mut RawAddress) -> Moved {
    let (at, at_len) = peer.out();
    // SAFETY: room for any address, and its length.
    let made = unsafe { api::accept(socket(fd), at, at_len) };
    match take(made) {
        Ok(fd) => fd as Moved,
        Err(errno) => -(errno as Moved),
    }
}

/// Makes a new socket non-blocking; the errno if there is none.
fn take(made: SOCKET) -> Result<RawFd, i32> {
    if made == api::INVALID_SOCKET {
        return Err(errno());
    }
    let fd = of_socket(made).ok_or(libc::EMFILE)?;
    let handle = ptr::without_provenance_mut(made);
    // SAFETY: a socket is a handle; what a layered provider makes may be none, and fails.
    unsafe { api::SetHandleInformation(handle, api::HANDLE_FLAG_INHERIT, 0) };
    match crate::sys::descriptor::set_nonblocking(fd, true) {
        Ok(()) => Ok(fd),
        Err(_) => {
            let errno = errno();
            drop(own(fd));
            Err(errno)
        }
    }
}

/// A new non-blocking stream socket of `family`, not inherited.
pub(crate) fn stream(family: i32) -> Result<OwnedFd, i32> {
    make(family, api::SOCK_STREAM)
}

fn make(family: i32, kind: i32) -> Result<OwnedFd, i32> {
    if family == api::AF_UNIX {
        return Err(libc::EAFNOSUPPORT);
    }
    api::start();
    let flags = api::WSA_FLAG_OVERLAPPED | api::WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: no memory is passed.
    let made = unsafe { api::WSASocketW(family, kind, 0, ptr::null(), 0, flags) };
    take(made).map(own)
}

/// connect: 0 or `-errno`; `-EINPROGRESS` when it goes on.
pub(crate) fn connect(fd: RawFd, to: &RawAddress) -> Moved {
    if to.is_unix() {
        return -(libc::EAFNOSUPPORT as Moved);
    }
    // SAFETY: an address and its length.
    match unsafe { api::connect(socket(fd), to.as_ptr(), to.len()) } {
        0 => 0,
        _ => match code() {
            api::WSAEWOULDBLOCK => -(libc::EINPROGRESS as Moved),
            code => -(of_code(code) as Moved),
        },
    }
}

/// Shuts the writing side.
pub(crate) fn shutdown_write(fd: RawFd) -> Moved {
    // SAFETY: no memory is passed.
    syscall!(unsafe { api::shutdown(socket(fd), api::SD_SEND) })
}

/// A bound, listening, non-blocking stream socket. Addresses are not shared: Winsock's
/// `SO_REUSEADDR` would let any process take one.
pub(crate) fn listen(at: &RawAddress, how: Listen) -> io::Result<OwnedFd> {
    if how.reuse_port {
        let text = "Windows does not share an address between listeners";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let made = stream(at.family()).map_err(os_error)?;
    let fd = made.as_raw_fd();
    if how.nodelay {
        // Accepted sockets inherit it.
        set_option(fd, api::IPPROTO_TCP, api::TCP_NODELAY, 1)?;
    }
    // SAFETY: an address and its length.
    cvt!(unsafe { api::bind(socket(fd), at.as_ptr(), at.len()) })?;
    // SAFETY: no memory is passed.
    cvt!(unsafe { api::listen(socket(fd), how.backlog) })?;
    Ok(made)
}

/// A bound, non-blocking datagram socket.
pub(crate) fn bind_datagram(at: &RawAddress, reuse_port: bool) -> io::Result<OwnedFd> {
    if reuse_port {
        let text = "Windows does not share an address between sockets";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let made = make(at.family(), api::SOCK_DGRAM).map_err(os_error)?;
    // SAFETY: an address and its length.
    cvt!(unsafe { api::bind(socket(made.as_raw_fd()), at.as_ptr(), at.len()) })?;
    Ok(made)
}

fn name(
    fd: RawFd,
    call: unsafe extern "system" fn(SOCKET, *mut api::sockaddr, *mut i32) -> i32,
) -> io::Result<RawAddress> {
    let mut address = RawAddress::default();
    let (at, len) = address.out();
    // SAFETY: room for any address, and its length.
    cvt!(unsafe { call(socket(fd), at, len) })?;
    Ok(address)
}

/// getsockname
pub(crate) fn local(fd: RawFd) -> io::Result<RawAddress> {
    name(fd, api::getsockname)
}

/// getpeername
pub(crate) fn peer(fd: RawFd) -> io::Result<RawAddress> {
    name(fd, api::getpeername)
}

/// Why a socket without an error has no peer: 0 if it has one, or `ENOTCONN`.
pub(crate) fn peer_error(fd: RawFd) -> i32 {
    peer(fd).err().map_or(0, |error| os_errno(&error).unwrap_or(libc::ENOTCONN))
}

/// How many seconds the close may wait for the peer: 0 if it does not wait.
///
/// # Errors
/// The errno, `ENOTSOCK` for a file.
pub(crate) fn linger(fd: RawFd) -> Result<i32, i32> {
    match option(fd, api::SOL_SOCKET, api::SO_LINGER) {
        Ok(value) => Ok(if value & 0xffff == 0 { 0 } else { value >> 16 & 0xffff }),
        Err(error) => Err(os_errno(&error).unwrap_or(libc::ENOTSOCK)),
    }
}

/// For so many seconds. The option has two numbers of 16 bits: whether, and for how long.
pub(in crate::sys) fn set_linger(fd: RawFd, seconds: Option<i32>) -> io::Result<()> {
    let span_s = seconds.unwrap_or(0).min(i32::from(u16::MAX));
    let value = i32::from(seconds.is_some()) | span_s << 16;
    set_option(fd, api::SOL_SOCKET, api::SO_LINGER, value)
}
