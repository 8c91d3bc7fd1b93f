//! Socket addresses as the kernel writes them.

#![allow(unsafe_code)]
//! # Safety
//!
//! A `RawAddress` is plain bytes, zeroed when made; it is read as the type that its family names,
//! and only as far as its length says.

use std::io;
use std::mem::offset_of;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::{Path, PathBuf};

#[cfg(windows)]
use crate::sys::windows::api as c;
#[cfg(not(windows))]
use libc as c;

/// Room for any address, and how much of it is used.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawAddress {
    storage: c::sockaddr_storage,
    len: c::socklen_t,
}

impl Default for RawAddress {
    #[inline]
    fn default() -> RawAddress {
        // SAFETY: a struct of integers; all zeroes is an address of no family.
        let storage = unsafe { std::mem::zeroed() };
        RawAddress { storage, len: 0 }
    }
}

const PATH: usize = offset_of!(c::sockaddr_un, sun_path);

impl RawAddress {
    pub(crate) fn unix(path: &Path) -> io::Result<RawAddress> {
        let bytes = bytes_of(path);
        let room = size_of::<c::sockaddr_un>() - PATH;
        if bytes.is_empty() || bytes.len() >= room || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a Unix socket path has 1 to {} bytes and no NUL", room - 1),
            ));
        }
        let mut raw = RawAddress::default();
        // SAFETY: `bytes` fit behind the family, checked above; the NUL is there already.
        unsafe { raw.put_unix(0, bytes) };
        raw.len = (PATH + bytes.len() + 1) as c::socklen_t;
        raw.note_len();
        Ok(raw)
    }

    /// An abstract name, which is no file: it begins with a NUL byte, and its length ends it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn unix_abstract(name: &[u8]) -> io::Result<RawAddress> {
        let room = size_of::<c::sockaddr_un>() - PATH;
        if name.len() >= room {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an abstract Unix name has at most {} bytes", room - 1),
            ));
        }
        let mut raw = RawAddress::default();
        // SAFETY: `name` fits behind the family and the NUL, checked above.
        unsafe { raw.put_unix(1, name) };
        raw.len = (PATH + 1 + name.len()) as c::socklen_t;
        Ok(raw)
    }

    /// Only Linux has abstract names.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn unix_abstract(_: &[u8]) -> io::Result<RawAddress> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has abstract Unix names"))
    }

    /// Writes `bytes` into a Unix address, `skip` bytes behind the family.
    ///
    /// # Safety
    /// The bytes fit into the storage.
    unsafe fn put_unix(&mut self, skip: usize, bytes: &[u8]) {
        self.storage.ss_family = c::AF_UNIX as c::sa_family_t;
        let start = (&raw mut self.storage).cast::<u8>().wrapping_add(PATH + skip);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    /// BSD's addresses begin with their length.
    #[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
    fn note_len(&mut self) {
        self.storage.ss_len = self.len as u8;
    }

    /// Linux' and Windows' addresses do not name their length.
    #[cfg(any(target_os = "linux", target_os = "android", windows))]
    fn note_len(&mut self) {}

    pub(crate) fn family(&self) -> i32 {
        if self.len == 0 { c::AF_UNSPEC } else { i32::from(self.storage.ss_family) }
    }

    #[inline]
    pub(crate) fn is_unix(&self) -> bool {
        self.family() == c::AF_UNIX
    }

    #[inline]
    pub(crate) fn is_internet(&self) -> bool {
        matches!(self.family(), c::AF_INET | c::AF_INET6)
    }

    pub(crate) fn is_unspecified(&self) -> bool {
        self.len as usize <= PATH
    }

    pub(crate) fn ip(&self) -> Option<SocketAddr> {
        let start = &raw const self.storage;
        if self.family() == c::AF_INET && self.len as usize >= size_of::<c::sockaddr_in>() {
            // SAFETY: the family says what it is, and the storage is large and aligned enough.
            let a = unsafe { &*start.cast::<c::sockaddr_in>() };
            let ip = a.sin_addr.s_addr.to_ne_bytes();
            return Some(SocketAddrV4::new(ip.into(), u16::from_be(a.sin_port)).into());
        }
        if self.family() == c::AF_INET6 && self.len as usize >= size_of::<c::sockaddr_in6>() {
            // SAFETY: as above.
            let a = unsafe { &*start.cast::<c::sockaddr_in6>() };
            let ip = a.sin6_addr.s6_addr;
            let port = u16::from_be(a.sin6_port);
            return Some(
                SocketAddrV6::new(ip.into(), port, a.sin6_flowinfo, a.sin6_scope_id).into(),
            );
        }
        None
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        if self.family() != c::AF_UNIX {
            return None;
        }
        let bytes = &self.as_bytes()[PATH..];
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        (end > 0).then(|| path_of(&bytes[..end]))
    }

    /// The name of an abstract Unix address, without its NUL.
    pub(crate) fn abstract_name(&self) -> Option<&[u8]> {
        const LINUX: bool = cfg!(any(target_os = "linux", target_os = "android"));
        if !LINUX || self.family() != c::AF_UNIX {
            return None;
        }
        self.as_bytes().get(PATH..)?.strip_prefix(&[0])
    }

    /// The bytes in use.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let len = (self.len as usize).min(size_of::<c::sockaddr_storage>());
        // SAFETY: plain bytes, initialised when made.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast::<u8>(), len) }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *const c::sockaddr {
        (&raw const self.storage).cast()
    }

    #[inline]
    pub(crate) fn len(&self) -> c::socklen_t {
        self.len
    }

    /// Makes room for the kernel to write an address: where, and where its length is.
    #[inline]
    pub(crate) fn out(&mut self) -> (*mut c::sockaddr, *mut c::socklen_t) {
        self.len = size_of::<c::sockaddr_storage>() as c::socklen_t;
        ((&raw mut self.storage).cast(), &raw mut self.len)
    }

    /// Says how much of the storage the kernel has written.
    #[inline]
    pub(crate) fn set_len(&mut self, len: c::socklen_t) {
        self.len = len;
    }
}

/// A path as it stands in an address.
#[cfg(not(windows))]
fn bytes_of(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// A path as it stands in an address: UTF-8; one that is not counts as empty.
#[cfg(windows)]
fn bytes_of(path: &Path) -> &[u8] {
    path.to_str().map_or(&[], str::as_bytes)
}

/// The path that stands in an address.
#[cfg(not(windows))]
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}

/// The path that stands in an address.
#[cfg(windows)]
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> RawAddress {
        let mut raw = RawAddress::default();
        let start = &raw mut raw.storage;
        match address {
            SocketAddr::V4(a) => {
                // SAFETY: the storage is large and aligned enough for every address.
                let to = unsafe { &mut *start.cast::<c::sockaddr_in>() };
                to.sin_family = c::AF_INET as c::sa_family_t;
                to.sin_port = a.port().to_be();
                to.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                raw.len = size_of::<c::sockaddr_in>() as c::socklen_t;
            }
            SocketAddr::V6(a) => {
                // SAFETY: as above.
                let to = unsafe { &mut *start.cast::<c::sockaddr_in6>() };
                to.sin6_family = c::AF_INET6 as c::sa_family_t;
                to.sin6_port = a.port().to_be();
                to.sin6_addr.s6_addr = a.ip().octets();
                to.sin6_flowinfo = a.flowinfo();
                to.sin6_scope_id = a.scope_id();
                raw.len = size_of::<c::sockaddr_in6>() as c::socklen_t;
            }
        }
        raw.note_len();
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:7007", "[::1]:9", "[fe80::1%3]:80", "255.1.2.3:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::from(address).ip(), Some(address));
        }
        let unix = RawAddress::unix(Path::new("/tmp/a")).unwrap();
        assert_eq!(unix.path().unwrap(), Path::new("/tmp/a"));
        assert!(unix.ip().is_none());
        assert!(RawAddress::default().is_unspecified());
        assert!(unix.abstract_name().is_none() && RawAddress::default().abstract_name().is_none());
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn abstract_names_may_have_any_byte() {
        for name in [&b""[..], b"a", b"\0b\0", &[255; 107]] {
            let address = RawAddress::unix_abstract(name).unwrap();
            assert_eq!((address.abstract_name(), address.path()), (Some(name), None));
            assert!(!address.is_unspecified());
        }
        let error = RawAddress::unix_abstract(&[1; 108]).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn paths_that_do_not_fit_are_refused() {
        let room = size_of::<c::sockaddr_un>() - PATH;
        let longest = "x".repeat(room - 1);
        assert!(RawAddress::unix(Path::new(&longest)).is_ok());
        for bad in ["", "a\0b", &"x".repeat(room)] {
            let error = RawAddress::unix(Path::new(bad)).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
