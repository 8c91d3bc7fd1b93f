//! Functions of Winsock and Win32 that std does not call, declared by hand: names, numbers and
//! layouts are those of the Windows SDK, or libc's where `addr.rs` is written for both.

#![allow(unsafe_code)]
#![allow(non_camel_case_types, non_snake_case, clippy::upper_case_acronyms)] // the SDK's names
//! # Safety
//!
//! Declarations only: the layouts are checked below against those of the SDK on 64-bit Windows.

use std::ffi::c_void;
use std::sync::Once;

pub(crate) type SOCKET = usize;
pub(crate) type HANDLE = *mut c_void;
pub(crate) type socklen_t = i32;
pub(crate) type sa_family_t = u16;

pub(crate) const INVALID_SOCKET: SOCKET = !0;

pub(crate) const AF_UNSPEC: i32 = 0;
pub(crate) const AF_UNIX: i32 = 1;
pub(crate) const AF_INET: i32 = 2;
pub(crate) const AF_INET6: i32 = 23;
pub(crate) const SOCK_STREAM: i32 = 1;
pub(crate) const SOCK_DGRAM: i32 = 2;

pub(crate) const SOL_SOCKET: i32 = 0xffff;
pub(crate) const SO_ACCEPTCONN: i32 = 0x0002;
pub(crate) const SO_KEEPALIVE: i32 = 0x0008;
pub(crate) const SO_LINGER: i32 = 0x0080;
pub(crate) const SO_SNDBUF: i32 = 0x1001;
pub(crate) const SO_RCVBUF: i32 = 0x1002;
pub(crate) const SO_ERROR: i32 = 0x1007;
pub(crate) const SO_TYPE: i32 = 0x1008;
pub(crate) const IPPROTO_TCP: i32 = 6;
pub(crate) const TCP_NODELAY: i32 = 1;
pub(crate) const TCP_KEEPIDLE: i32 = 3;
pub(crate) const TCP_KEEPCNT: i32 = 16;
pub(crate) const TCP_KEEPINTVL: i32 = 17;

pub(crate) const FIONBIO: i32 = 0x8004_667e_u32 as i32;
pub(crate) const SD_SEND: i32 = 1;
pub(crate) const MSG_TRUNC: i32 = 0x100;
pub(crate) const MSG_CTRUNC: i32 = 0x200;
pub(crate) const WSA_FLAG_OVERLAPPED: u32 = 0x01;
pub(crate) const WSA_FLAG_NO_HANDLE_INHERIT: u32 = 0x80;

pub(crate) const POLLERR: i16 = 0x0001;
pub(crate) const POLLHUP: i16 = 0x0002;
pub(crate) const POLLNVAL: i16 = 0x0004;
pub(crate) const POLLWRNORM: i16 = 0x0010;
pub(crate) const POLLRDNORM: i16 = 0x0100;
pub(crate) const POLLRDBAND: i16 = 0x0200;

pub(crate) const WSAECONNRESET: i32 = 10054;
pub(crate) const WSAEMSGSIZE: i32 = 10040;
pub(crate) const WSAEWOULDBLOCK: i32 = 10035;
pub(crate) const ERROR_INVALID_FUNCTION: i32 = 1;
pub(crate) const ERROR_ACCESS_DENIED: i32 = 5;
pub(crate) const ERROR_HANDLE_EOF: i32 = 38;
pub(crate) const ERROR_IO_INCOMPLETE: i32 = 996;
pub(crate) const ERROR_IO_PENDING: i32 = 997;

pub(crate) const HANDLE_FLAG_INHERIT: u32 = 1;
pub(crate) const FILE_TYPE_DISK: u32 = 1;
pub(crate) const FILE_WRITE_ATTRIBUTES: u32 = 0x0100;
pub(crate) const FILE_FLAG_WRITE_THROUGH: u32 = 0x8000_0000;
pub(crate) const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
pub(crate) const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct in_addr {
    pub(crate) s_addr: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct in6_addr {
    pub(crate) s6_addr: [u8; 16],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct sockaddr {
    pub(crate) sa_family: sa_family_t,
    pub(crate) sa_data: [u8; 14],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct sockaddr_in {
    pub(crate) sin_family: sa_family_t,
    pub(crate) sin_port: u16,
    pub(crate) sin_addr: in_addr,
    pub(crate) sin_zero: [u8; 8],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct sockaddr_in6 {
    pub(crate) sin6_family: sa_family_t,
    pub(crate) sin6_port: u16,
    pub(crate) sin6_flowinfo: u32,
    pub(crate) sin6_addr: in6_addr,
    pub(crate) sin6_scope_id: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct sockaddr_un {
    pub(crate) sun_family: sa_family_t,
    pub(crate) sun_path: [u8; 108],
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct sockaddr_storage {
    pub(crate) ss_family: sa_family_t,
    rest: [u8; 126],
}

/// A part of a message. An `IoSlice` has this layout, as std documents.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WSABUF {
    pub(crate) len: u32,
    pub(crate) buf: *mut u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WSAPOLLFD {
    pub(crate) fd: SOCKET,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// Only its size matters: it is never read.
#[repr(C)]
pub(crate) struct WSADATA([u64; 51]);

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OVERLAPPED {
    pub(crate) Internal: usize,
    pub(crate) InternalHigh: usize,
    pub(crate) Offset: u32,
    pub(crate) OffsetHigh: u32,
    pub(crate) hEvent: HANDLE,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BY_HANDLE_FILE_INFORMATION {
    pub(crate) dwFileAttributes: u32,
    /// The times of creation, of the last access, and of the last write: lower and upper half each.
    pub(crate) times: [[u32; 2]; 3],
    pub(crate) dwVolumeSerialNumber: u32,
    pub(crate) nFileSizeHigh: u32,
    pub(crate) nFileSizeLow: u32,
    pub(crate) nNumberOfLinks: u32,
    pub(crate) nFileIndexHigh: u32,
    pub(crate) nFileIndexLow: u32,
}

const _: () = {
    assert!(size_of::<sockaddr>() == 16 && size_of::<sockaddr_in>() == 16);
    assert!(size_of::<sockaddr_in6>() == 28 && size_of::<sockaddr_un>() == 110);
    assert!(size_of::<sockaddr_storage>() == 128);
    assert!(size_of::<WSABUF>() == 2 * size_of::<usize>());
    assert!(size_of::<WSABUF>() == size_of::<std::io::IoSlice<'_>>());
    assert!(std::mem::offset_of!(WSABUF, buf) == size_of::<usize>());
    assert!(
        size_of::<WSAPOLLFD>()
            == size_of::<usize>() + if cfg!(target_pointer_width = "64") { 8 } else { 4 }
    );
    assert!(size_of::<OVERLAPPED>() == 3 * size_of::<usize>() + 8);
    assert!(size_of::<BY_HANDLE_FILE_INFORMATION>() == 52);
    assert!(size_of::<WSADATA>() == 408);
};

#[link(name = "ws2_32")]
unsafe extern "system" {
    pub(crate) fn WSAStartup(version: u16, data: *mut WSADATA) -> i32;
    pub(crate) fn WSASocketW(
        family: i32,
        kind: i32,
        protocol: i32,
        info: *const c_void,
        group: u32,
        flags: u32,
    ) -> SOCKET;
    pub(crate) fn closesocket(s: SOCKET) -> i32;
    pub(crate) fn ioctlsocket(s: SOCKET, command: i32, argument: *mut u32) -> i32;
    pub(crate) fn bind(s: SOCKET, name: *const sockaddr, len: i32) -> i32;
    pub(crate) fn listen(s: SOCKET, backlog: i32) -> i32;
    pub(crate) fn accept(s: SOCKET, address: *mut sockaddr, len: *mut i32) -> SOCKET;
    pub(crate) fn connect(s: SOCKET, name: *const sockaddr, len: i32) -> i32;
    pub(crate) fn shutdown(s: SOCKET, how: i32) -> i32;
    pub(crate) fn getsockname(s: SOCKET, name: *mut sockaddr, len: *mut i32) -> i32;
    pub(crate) fn getpeername(s: SOCKET, name: *mut sockaddr, len: *mut i32) -> i32;
    pub(crate) fn getsockopt(
        s: SOCKET,
        level: i32,
        name: i32,
        value: *mut u8,
        len: *mut i32,
    ) -> i32;
    pub(crate) fn setsockopt(s: SOCKET, level: i32, name: i32, value: *const u8, len: i32) -> i32;
    pub(crate) fn recv(s: SOCKET, to: *mut u8, len: i32, flags: i32) -> i32;
    pub(crate) fn send(s: SOCKET, from: *const u8, len: i32, flags: i32) -> i32;
    pub(crate) fn WSARecvFrom(
        s: SOCKET,
        parts: *const WSABUF,
        count: u32,
        received: *mut u32,
        flags: *mut u32,
        from: *mut sockaddr,
        from_len: *mut i32,
        overlapped: *mut OVERLAPPED,
        routine: *const c_void,
    ) -> i32;
    pub(crate) fn WSASendTo(
        s: SOCKET,
        parts: *const WSABUF,
        count: u32,
        sent: *mut u32,
        flags: u32,
        to: *const sockaddr,
        to_len: i32,
        overlapped: *mut OVERLAPPED,
        routine: *const c_void,
    ) -> i32;
    pub(crate) fn WSAPoll(fds: *mut WSAPOLLFD, count: u32, timeout_ms: i32) -> i32;
    pub(crate) fn getnameinfo(
        address: *const sockaddr,
        len: socklen_t,
        host: *mut u8,
        host_len: u32,
        service: *mut u8,
        service_len: u32,
        flags: i32,
    ) -> i32;
}

#[link(name = "kernel32")]
unsafe extern "system" {
    pub(crate) fn CloseHandle(handle: HANDLE) -> i32;
    pub(crate) fn SetHandleInformation(handle: HANDLE, mask: u32, flags: u32) -> i32;
    pub(crate) fn GetFileType(file: HANDLE) -> u32;
    pub(crate) fn GetFileInformationByHandle(
        file: HANDLE,
        information: *mut BY_HANDLE_FILE_INFORMATION,
    ) -> i32;
    pub(crate) fn ReadFile(
        file: HANDLE,
        to: *mut u8,
        len: u32,
        read: *mut u32,
        overlapped: *mut OVERLAPPED,
    ) -> i32;
    pub(crate) fn WriteFile(
        file: HANDLE,
        from: *const u8,
        len: u32,
        written: *mut u32,
        overlapped: *mut OVERLAPPED,
    ) -> i32;
    pub(crate) fn GetOverlappedResult(
        file: HANDLE,
        overlapped: *mut OVERLAPPED,
        moved: *mut u32,
        wait: i32,
    ) -> i32;
}

/// Starts Winsock, once per process: for calls that come before any call of std has started it.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let mut data = WSADATA([0; 51]);
        // SAFETY: room for the answer, which is not read. If this fails, every later call fails.
        unsafe { WSAStartup(0x0202, &mut data) };
    });
}
