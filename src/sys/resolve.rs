//! Names and addresses: getaddrinfo(3), getnameinfo(3). Both block for as long as a name server
//! takes.
//!
//! Their errors have numbers of their own, which become errnos:
//!
//! | error | errno |
//! |---|---|
//! | `EAI_NONAME`, `EAI_NODATA`: no such name, or no address of it | `ENOENT` |
//! | `EAI_AGAIN`: no server answers now | `EAGAIN` |
//! | `EAI_FAIL`: a server has failed for good | `EIO` |
//! | `EAI_MEMORY` | `ENOMEM` |
//! | `EAI_FAMILY` | `EAFNOSUPPORT` |
//! | `EAI_OVERFLOW`: a name that is too long | `ENAMETOOLONG` |
//! | `EAI_SYSTEM` | the errno behind it |
//! | others, and a name with a NUL | `EINVAL` |

#![allow(unsafe_code)]
//! # Safety
//!
//! The list that getaddrinfo(3) answers is read until it is freed, and nothing of it is kept.

use std::ffi::{CStr, CString};
use std::net::SocketAddr;
use std::ptr;

use crate::sys::addr::RawAddress;
use crate::sys::errno;

/// A name that exists without an address; FreeBSD says `EAI_NONAME` then.
#[cfg(not(any(target_os = "freebsd", target_os = "dragonfly")))]
const NO_DATA: Option<i32> = Some(libc::EAI_NODATA);
#[cfg(any(target_os = "freebsd", target_os = "dragonfly"))]
const NO_DATA: Option<i32> = None;

fn errno_of(error: i32) -> i32 {
    match error {
        libc::EAI_NONAME => libc::ENOENT,
        libc::EAI_AGAIN => libc::EAGAIN,
        libc::EAI_FAIL => libc::EIO,
        libc::EAI_MEMORY => libc::ENOMEM,
        libc::EAI_FAMILY => libc::EAFNOSUPPORT,
        libc::EAI_OVERFLOW => libc::ENAMETOOLONG,
        libc::EAI_SYSTEM => errno(),
        _ if NO_DATA == Some(error) => libc::ENOENT,
        _ => libc::EINVAL,
    }
}

/// The addresses of `host` (a name or an address as text), in the order of the system's preference
/// (RFC 6724), each once, with `port`.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, i32> {
    let host = CString::new(host).map_err(|_| libc::EINVAL)?;
    // SAFETY: a struct of integers and null pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    // One type of socket only: otherwise each address comes once per type.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: a string that ends in NUL, hints, and room for a pointer.
    let error = unsafe { libc::getaddrinfo(host.as_ptr(), ptr::null(), &hints, &mut list) };
    if error != 0 {
        return Err(errno_of(error));
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: null, or an entry of the list, which is not freed yet.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ai_next;
        let mut raw = RawAddress::default();
        let (to, _) = raw.out();
        let count = entry.ai_addrlen as usize;
        if entry.ai_addr.is_null() || count > raw.len() as usize {
            continue;
        }
        // SAFETY: so many bytes are there, and they fit, as was asked right above.
        unsafe { ptr::copy_nonoverlapping(entry.ai_addr.cast::<u8>(), to.cast::<u8>(), count) };
        raw.set_len(entry.ai_addrlen);
        if let Some(mut address) = raw.ip() {
            address.set_port(port);
            found.push(address);
        }
    }
    // SAFETY: the list of the call above, once.
    unsafe { libc::freeaddrinfo(list) };
    Ok(found)
}

/// The name of an address and of its port's service; both as numbers where they have none.
pub(crate) fn names(address: SocketAddr) -> Result<(String, String), i32> {
    let raw = RawAddress::from(address);
    let (mut host, mut service) = ([0u8; 1025], [0u8; 64]);
    // SAFETY: an address and its length, two buffers and theirs.
    let error = unsafe {
        libc::getnameinfo(
            raw.as_ptr(),
            raw.len(),
            host.as_mut_ptr().cast(),
            host.len() as _,
            service.as_mut_ptr().cast(),
            service.len() as _,
            0,
        )
    };
    if error != 0 {
        return Err(errno_of(error));
    }
    let text = |bytes: &[u8]| {
        CStr::from_bytes_until_nul(bytes)
            .map(|text| text.to_string_lossy().into_owned())
            .map_err(|_| libc::ENAMETOOLONG)
    };
    Ok((text(&host)?, text(&service)?))
}
