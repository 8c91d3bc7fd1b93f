//! Descriptors on Windows: a socket or the handle of a file, under the names that std has on Unix.
//!
//! Both are handles of the kernel: 32 bits of them count, and the kernel ignores the two lowest. So
//! a [`RawFd`] is the number with one of these bits saying which of the two it is:
//!
//! ```text
//!   ...n n n n 0 0   a socket: calls of Winsock, closesocket
//!   ...n n n n 0 1   a file: calls of Win32, CloseHandle
//!   0 ... 0 0 0 1 0  nothing: what does not fit (a socket of a layered provider, a pseudo handle)
//! ```

#![allow(unsafe_code)]
//! # Safety
//!
//! An [`OwnedFd`] is the only owner of the socket or handle that its number names. A
//! [`BorrowedFd`] is kept open by its owner.

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroI32;
use std::os::windows::io::{
    AsRawHandle, AsRawSocket, AsSocket, BorrowedHandle, BorrowedSocket, FromRawHandle,
    FromRawSocket, IntoRawHandle, IntoRawSocket, OwnedHandle, OwnedSocket,
};

use crate::sys::errno;
use crate::sys::windows::api::{self, HANDLE, SOCKET};

/// A descriptor as a number: of a socket or a file, see [`OwnedFd`].
pub type RawFd = i32;

/// The low bit in the number of a socket.
const PLAIN: RawFd = 0;
/// The low bit in the number of a file.
const FILE: RawFd = 1;
/// The number of nothing.
const NOTHING: NonZeroI32 = NonZeroI32::new(2).expect("it is not 0");

/// Whether the number is that of a file.
pub(crate) const fn is_file(fd: RawFd) -> bool {
    fd & FILE != 0
}

/// The socket that a number names; for a file one that Winsock does not know.
pub(crate) const fn socket(fd: RawFd) -> SOCKET {
    if is_file(fd) { api::INVALID_SOCKET } else { fd as u32 as usize }
}

/// The handle of the file that a number names.
pub(crate) const fn handle(fd: RawFd) -> HANDLE {
    std::ptr::without_provenance_mut((fd & !FILE) as u32 as usize)
}

/// A handle's number, with its bit; nothing for one that does not fit.
fn number(value: usize, bit: RawFd) -> Option<NonZeroI32> {
    let fd = RawFd::try_from(value).ok().filter(|fd| fd % 4 == 0 && *fd != 0)?;
    NonZeroI32::new(fd | bit)
}

/// The number of a socket that was just made: one that does not fit is closed.
pub(crate) fn of_socket(socket: SOCKET) -> Option<RawFd> {
    let fd = number(socket, PLAIN).map(NonZeroI32::get);
    if fd.is_none() {
        // SAFETY: the caller owned it, and gets nothing.
        unsafe { api::closesocket(socket) };
    }
    fd
}

/// Closes the file or socket of a number, even on an error; an error means that written data may be
/// lost.
pub(crate) fn close(fd: RawFd) -> Result<(), i32> {
    let done = if is_file(fd) {
        // SAFETY: the caller owns the handle.
        unsafe { api::CloseHandle(handle(fd)) != 0 }
    } else if fd != NOTHING.get() {
        // SAFETY: the caller owns the socket.
        unsafe { api::closesocket(socket(fd)) == 0 }
    } else {
        true
    };
    if done { Ok(()) } else { Err(errno()) }
}

/// An owned descriptor: a socket, or the handle of a file. It is closed on drop.
///
/// Made of what std has: sockets, files, `OwnedSocket`, `OwnedHandle`. A handle of something else
/// is refused where it is used, as is a socket whose number does not fit into 32 bits (Windows' own
/// do). `TryFrom` turns it into any of these again, here as on Unix, and gives it back if it is
/// another.
#[repr(transparent)]
pub struct OwnedFd(NonZeroI32);

/// A descriptor that its owner keeps open.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct BorrowedFd<'a>(RawFd, PhantomData<&'a OwnedFd>);

/// A type that lends a descriptor.
pub trait AsFd {
    /// Borrows it.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// A type that has the number of a descriptor.
pub trait AsRawFd {
    /// The number.
    fn as_raw_fd(&self) -> RawFd;
}

/// What can be made of a descriptor's number.
pub trait FromRawFd {
    /// Takes the descriptor.
    ///
    /// # Safety
    /// It is open, and the caller's to give away.
    unsafe fn from_raw_fd(fd: RawFd) -> Self;
}

/// A type that gives its descriptor away as a number.
pub trait IntoRawFd {
    /// The number. The caller has to close it.
    fn into_raw_fd(self) -> RawFd;
}

impl OwnedFd {
    /// A second descriptor of the same socket or file.
    ///
    /// # Errors
    /// What the system reports.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}

impl<'a> BorrowedFd<'a> {
    /// Lends a number out.
    ///
    /// # Safety
    /// It stays open for `'a`.
    pub const unsafe fn borrow_raw(fd: RawFd) -> BorrowedFd<'a> {
        BorrowedFd(fd, PhantomData)
    }

    /// A second descriptor of the same socket or file.
    ///
    /// # Errors
    /// What the system reports; `EBADF` for what a descriptor could not hold.
    pub fn try_clone_to_owned(&self) -> io::Result<OwnedFd> {
        if self.is_socket() {
            return self.as_socket().try_clone_to_owned().map(OwnedFd::from);
        }
        let handle = self.as_handle().ok_or_else(|| crate::sys::os_error(libc::EBADF))?;
        handle.try_clone_to_owned().map(OwnedFd::from)
    }

    /// Whether it is a socket.
    fn is_socket(&self) -> bool {
        !is_file(self.0) && self.0 != NOTHING.get()
    }

    /// The handle, if it is a file.
    pub fn as_handle(&self) -> Option<BorrowedHandle<'a>> {
        if !is_file(self.0) {
            return None;
        }
        // SAFETY: it is a handle, which is open for `'a`.
        Some(unsafe { BorrowedHandle::borrow_raw(handle(self.0)) })
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        let _ = close(self.0.get());
    }
}

impl fmt::Debug for OwnedFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_fd().fmt(f)
    }
}

impl fmt::Debug for BorrowedFd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_handle() {
            Some(handle) => handle.fmt(f),
            None if self.is_socket() => self.as_socket().fmt(f),
            None => f.write_str("(none)"),
        }
    }
}

/// For options, as socket2's `SockRef` sets them: on what is no socket every call fails.
impl AsSocket for BorrowedFd<'_> {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        // SAFETY: it stays open. The number of a file is none of a socket, nor is that of nothing.
        unsafe { BorrowedSocket::borrow_raw(self.0 as u32 as _) }
    }
}

impl AsSocket for OwnedFd {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        // SAFETY: as above.
        unsafe { BorrowedSocket::borrow_raw(self.0.get() as u32 as _) }
    }
}

impl AsRawFd for RawFd {
    fn as_raw_fd(&self) -> RawFd {
        *self
    }
}

impl AsRawFd for OwnedFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.get()
    }
}

impl IntoRawFd for OwnedFd {
    fn into_raw_fd(self) -> RawFd {
        let fd = self.0.get();
        std::mem::forget(self);
        fd
    }
}

impl FromRawFd for OwnedFd {
    unsafe fn from_raw_fd(fd: RawFd) -> OwnedFd {
        OwnedFd(NonZeroI32::new(fd).unwrap_or(NOTHING))
    }
}

impl AsRawFd for BorrowedFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self.0.get(), PhantomData)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl From<OwnedSocket> for OwnedFd {
    /// A number that does not fit is closed.
    fn from(socket: OwnedSocket) -> OwnedFd {
        let fd = of_socket(socket.into_raw_socket() as SOCKET);
        OwnedFd(fd.and_then(NonZeroI32::new).unwrap_or(NOTHING))
    }
}

impl From<OwnedHandle> for OwnedFd {
    /// A number that does not fit is closed.
    fn from(handle: OwnedHandle) -> OwnedFd {
        match number(handle.as_raw_handle().addr(), FILE) {
            Some(fd) => {
                let _ = handle.into_raw_handle();
                OwnedFd(fd)
            }
            None => OwnedFd(NOTHING),
        }
    }
}

impl TryFrom<OwnedFd> for OwnedSocket {
    type Error = OwnedFd;
    fn try_from(fd: OwnedFd) -> Result<OwnedSocket, OwnedFd> {
        if !fd.as_fd().is_socket() {
            return Err(fd);
        }
        let socket = socket(fd.into_raw_fd());
        // SAFETY: it is a socket, and was owned until right above.
        Ok(unsafe { OwnedSocket::from_raw_socket(socket as _) })
    }
}

impl TryFrom<OwnedFd> for OwnedHandle {
    type Error = OwnedFd;
    fn try_from(fd: OwnedFd) -> Result<OwnedHandle, OwnedFd> {
        if fd.as_fd().as_handle().is_none() {
            return Err(fd);
        }
        let handle = handle(fd.into_raw_fd());
        // SAFETY: it is a handle, and was owned until right above.
        Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
    }
}

macro_rules! made_of {
    ($owner:ident: $($name:ident),*) => {$(
        impl From<$name> for OwnedFd {
            fn from(owner: $name) -> OwnedFd {
                OwnedFd::from($owner::from(owner))
            }
        }

        impl TryFrom<OwnedFd> for $name {
            type Error = OwnedFd;
            fn try_from(fd: OwnedFd) -> Result<$name, OwnedFd> {
                $owner::try_from(fd).map($name::from)
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                BorrowedFd(self.as_raw_fd(), PhantomData)
            }
        }
    )*};
}

made_of!(OwnedSocket: TcpStream, TcpListener, UdpSocket);
made_of!(OwnedHandle: File);

macro_rules! numbers {
    ($call:ident, $bit:ident: $($name:ident),*) => {$(
        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                number(self.$call() as usize, $bit).unwrap_or(NOTHING).get()
            }
        }
    )*};
}

numbers!(as_raw_socket, PLAIN: OwnedSocket, TcpStream, TcpListener, UdpSocket);
numbers!(as_raw_handle, FILE: OwnedHandle, File);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_they_name() {
        assert_eq!(number(0x1f4, PLAIN).map(NonZeroI32::get), Some(0x1f4));
        assert_eq!(number(0x1f4, FILE).map(NonZeroI32::get), Some(0x1f5));
        for bad in [0, 3, 0x1f5, 0x8000_0000, usize::MAX, usize::MAX - 3] {
            assert!(number(bad, PLAIN).is_none(), "{bad:#x}");
        }
        assert_eq!(socket(0x1f4), 0x1f4);
        assert_eq!(socket(0x1f5), api::INVALID_SOCKET);
        assert_eq!(handle(0x1f5).addr(), 0x1f4);
        assert_eq!(size_of::<Option<OwnedFd>>(), 4);
    }

    #[test]
    fn a_socket_goes_in_and_comes_out_and_is_no_file() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let fd = OwnedFd::from(socket);
        let fd = File::try_from(fd).unwrap_err();
        let second = fd.try_clone().unwrap();
        let socket = UdpSocket::try_from(fd).unwrap();
        assert_eq!(socket.local_addr().unwrap(), address);
        drop(socket);
        assert_eq!(UdpSocket::try_from(second).unwrap().local_addr().unwrap(), address);
    }
}
