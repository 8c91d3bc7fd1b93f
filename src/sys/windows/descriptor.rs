//! Descriptors of sockets and files: their kinds, and the conditions that hold.
//!
//! Only sockets can be waited for, and only files read at an offset. Pipes, terminals and whatever
//! else there are handles of are refused.

#![allow(unsafe_code)]
//! # Safety
//!
//! Descriptors are numbers: a wrong one is an error of the system's, not undefined behaviour.

use std::io::{self, IoSlice};
use std::time::Duration;

use crate::sys::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd, handle, is_file, socket};
use crate::sys::interest::Ready;
use crate::sys::target::Target;
use crate::sys::types::SourceKind;
use crate::sys::windows::api::{self, WSAPOLLFD};
use crate::sys::{Moved, cvt, errno, net, os_error};

pub(crate) use crate::sys::fd::close;

/// There are no pipes to write to.
pub(crate) const PIPE_BUF: usize = 512;

/// How many parts one call takes here: more are continued by the next call.
pub(crate) const VECTORS: usize = 64;

const UNSUPPORTED: Moved = -(libc::EOPNOTSUPP as Moved);

/// Asks the system what `fd` is.
///
/// # Errors
/// `EBADF` for a closed descriptor; `Unsupported` for handles of what is no file.
pub(crate) fn kind_of(fd: RawFd) -> io::Result<SourceKind> {
    if !is_file(fd) {
        return net::kind_of(fd);
    }
    // SAFETY: a handle; no memory is passed.
    match unsafe { api::GetFileType(handle(fd)) } {
        api::FILE_TYPE_DISK => Ok(SourceKind::File),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whether `fd` can be waited for: files cannot.
///
/// # Errors
/// `EPERM` for what cannot.
pub(crate) fn check_pollable(fd: RawFd) -> io::Result<()> {
    if is_file(fd) { Err(os_error(libc::EPERM)) } else { Ok(()) }
}

/// Whether `fd` is a pipe. No source is one here.
pub(crate) const fn is_pipe(_: RawFd) -> bool {
    false
}

/// Whether the close of what is no socket waits for nothing: a file may.
pub(crate) const fn closes_at_once(_: RawFd) -> bool {
    false
}

/// Windows has no other description of a socket.
#[allow(clippy::unnecessary_wraps)] // other systems fail
pub(crate) const fn reopen(_: RawFd) -> io::Result<bool> {
    Ok(false)
}

/// Whether calls fail rather than block: Windows does not say.
#[allow(clippy::unnecessary_wraps)] // other systems say
pub(crate) fn is_nonblocking(_: RawFd) -> io::Result<bool> {
    Ok(false)
}

/// Lets calls of a socket fail rather than block, or block again. Duplicates share it.
pub(crate) fn set_nonblocking(fd: RawFd, on: bool) -> io::Result<()> {
    let mut on = u32::from(on);
    // SAFETY: four bytes of a local.
    cvt!(unsafe { api::ioctlsocket(socket(fd), api::FIONBIO, &mut on) })?;
    Ok(())
}

/// A second descriptor of the same socket or file, which is not inherited.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Takes ownership of a raw descriptor that the caller owns.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller owns it, as for `close`.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Lends a descriptor out.
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller keeps it open for `'a` (it bounds `'a` by a borrow of the table that
    // does).
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// A handle of neither a socket nor a file is not read.
pub(crate) fn read(_: RawFd, _: Target<'_>) -> Moved {
    UNSUPPORTED
}

/// As [`read`].
pub(crate) fn read_vectored(_: RawFd, _: &mut [Target<'_>]) -> Moved {
    UNSUPPORTED
}

/// As [`read`].
pub(crate) fn read_nowait(_: RawFd, _: Target<'_>) -> Moved {
    UNSUPPORTED
}

/// A handle of neither a socket nor a file is not written.
pub(crate) fn write(_: RawFd, _: &[u8]) -> Moved {
    UNSUPPORTED
}

/// As [`write()`].
pub(crate) fn write_vectored(_: RawFd, _: &[IoSlice<'_>]) -> Moved {
    UNSUPPORTED
}

/// As [`write()`].
pub(crate) fn write_nowait(_: RawFd, _: &[u8]) -> Moved {
    UNSUPPORTED
}

/// A descriptor that is asked for conditions, which are [`Ready`]'s bits. One below 0 is passed
/// over.
pub(crate) struct PollFd {
    pub(crate) fd: RawFd,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// Conditions as a [`PollFd`] has them.
pub(crate) fn to_poll(on: Ready) -> i16 {
    on.bits() as i16
}

/// The conditions in a [`PollFd`].
pub(crate) fn from_poll(bits: i16) -> Ready {
    Ready::from_bits(bits as u16)
}

/// Which of `interest` hold now, and errors and hang-ups.
pub(crate) fn poll_now(fd: RawFd, interest: Ready) -> Result<Ready, i32> {
    check_pollable(fd).map_err(|_| libc::EPERM)?;
    let mut entry = [PollFd { fd, events: to_poll(interest), revents: 0 }];
    if poll(&mut entry, Some(0)) < 0 {
        return Err(errno());
    }
    Ok(from_poll(entry[0].revents))
}

/// The least time of a wait that has found only conditions which WSAPoll cannot leave out.
const PAUSE: Duration = Duration::from_millis(1);

/// WSAPoll: waits at most so many milliseconds, for ever if `None`. Returns the number of
/// descriptors with conditions, or -1.
///
/// WSAPoll reports every hang-up, asked or not, and reports the peer's half-close as one. While it
/// finds only these, waits end without a result, at most once in [`PAUSE`].
pub(crate) fn poll(fds: &mut [PollFd], timeout_ms: Option<i32>) -> i32 {
    let shown = || fds.iter().filter(|entry| entry.fd >= 0);
    let mut raw: Vec<WSAPOLLFD> = shown().map(to_winsock).collect();
    fds.iter_mut().for_each(|entry| entry.revents = 0);
    if raw.is_empty() {
        // WSAPoll refuses an empty list.
        std::thread::sleep(Duration::from_millis(timeout_ms.unwrap_or(i32::MAX) as u64));
        return 0;
    }
    // SAFETY: as many entries as are said.
    let count =
        unsafe { api::WSAPoll(raw.as_mut_ptr(), raw.len() as u32, timeout_ms.unwrap_or(-1)) };
    if count <= 0 {
        return count;
    }
    let mut useful = false;
    for (entry, raw) in fds.iter_mut().filter(|entry| entry.fd >= 0).zip(raw) {
        let asked = from_poll(entry.events);
        let ready = from_winsock(raw.revents, asked);
        useful |= !ready.difference(Ready::HANGUP).is_empty();
        entry.revents = to_poll(ready);
    }
    if !useful && timeout_ms != Some(0) {
        std::thread::sleep(PAUSE);
    }
    count
}

/// Conditions of a socket in Winsock's bits.
const TABLE: [(Ready, i16); 3] = [
    (Ready::READABLE, api::POLLRDNORM),
    (Ready::PRIORITY, api::POLLRDBAND),
    (Ready::WRITABLE, api::POLLWRNORM),
];

fn to_winsock(entry: &PollFd) -> WSAPOLLFD {
    let asked = from_poll(entry.events);
    let set = TABLE.iter().filter(|(ready, _)| asked.contains(*ready));
    // A wait for a half-close only asks for everything that can be read.
    let end = if asked.contains(Ready::READ_CLOSED) { api::POLLRDNORM } else { 0 };
    let events = set.fold(end, |events, (_, bit)| events | bit);
    WSAPOLLFD { fd: socket(entry.fd), events, revents: 0 }
}

/// A hang-up without an error is the end of the file for reads; for writes it means: try.
fn from_winsock(bits: i16, asked: Ready) -> Ready {
    let set = TABLE.iter().filter(|(_, bit)| bits & bit != 0);
    let mut ready = set.fold(Ready::NONE, |all, (ready, _)| all | *ready).intersection(asked);
    let (failed, hung_up) = (bits & api::POLLERR != 0, bits & api::POLLHUP != 0);
    let reads = asked.intersects(Ready::READABLE | Ready::READ_CLOSED);
    if failed {
        ready |= Ready::ERROR;
    }
    if hung_up && reads {
        ready |= Ready::READ_CLOSED | Ready::READABLE.intersection(asked);
    }
    if hung_up && (failed || !reads && asked.contains(Ready::WRITABLE)) {
        ready |= Ready::HANGUP;
    }
    if bits & api::POLLNVAL != 0 { ready | Ready::ALWAYS } else { ready }
}

/// There is no bound on descriptors that one kept back would help with.
pub(crate) fn spare() -> Option<OwnedFd> {
    None
}

/// Processes do not pass descriptors by their numbers here.
pub(crate) fn inherited(_: RawFd) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_go_to_winsock_and_come_back() {
        let all = Ready::READABLE | Ready::PRIORITY | Ready::WRITABLE;
        let raw = to_winsock(&PollFd { fd: 4, events: to_poll(all), revents: 0 });
        assert_eq!(from_winsock(raw.events, all), all);
        assert_eq!(from_winsock(raw.events, Ready::WRITABLE), Ready::WRITABLE);
        let end = from_winsock(api::POLLHUP, Ready::READABLE);
        assert_eq!(end, Ready::READABLE | Ready::READ_CLOSED);
        assert_eq!(from_winsock(api::POLLHUP, Ready::WRITABLE), Ready::HANGUP);
        assert_eq!(from_winsock(api::POLLHUP, Ready::NONE), Ready::NONE);
        assert_eq!(from_winsock(api::POLLNVAL, Ready::NONE), Ready::ALWAYS);
        let reset = from_winsock(api::POLLHUP | api::POLLERR, Ready::WRITABLE);
        assert_eq!(reset, Ready::ALWAYS);
    }
}
