//! Names and addresses, by std and getnameinfo: both block for as long as a name server takes.
//! Which errnos their errors become stands in `error.rs`.

#![allow(unsafe_code)]
//! # Safety
//!
//! Buffers are local, and passed with their lengths.

use std::ffi::CStr;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::sys::addr::RawAddress;
use crate::sys::error::of_code;
use crate::sys::step::errno_of;
use crate::sys::windows::api;

/// The addresses of `host` (a name or an address as text), in the order of the system's preference,
/// with `port`.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, i32> {
    if host.is_empty() {
        // Winsock resolves an empty name to this host.
        return Err(libc::ENOENT);
    }
    let found = (host, port).to_socket_addrs().map_err(|error| errno_of(&error))?;
    Ok(found.collect())
}

/// The name of an address and of its port's service; both as numbers where they have none.
pub(crate) fn names(address: SocketAddr) -> Result<(String, String), i32> {
    api::start();
    let raw = RawAddress::from(address);
    let (mut host, mut service) = ([0u8; 1025], [0u8; 64]);
    let (to, to_len) = (host.as_mut_ptr(), host.len() as u32);
    let (service_to, service_len) = (service.as_mut_ptr(), service.len() as u32);
    // SAFETY: an address and its length, two buffers and theirs.
    let error = unsafe {
        api::getnameinfo(raw.as_ptr(), raw.len(), to, to_len, service_to, service_len, 0)
    };
    if error != 0 {
        return Err(of_code(error));
    }
    let text = |bytes: &[u8]| {
        CStr::from_bytes_until_nul(bytes)
            .map(|text| text.to_string_lossy().into_owned())
            .map_err(|_| libc::ENAMETOOLONG)
    };
    Ok((text(&host)?, text(&service)?))
}
