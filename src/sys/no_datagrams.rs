//! This system has no call for several datagrams: they go one by one.

use crate::address::Address;
use crate::buf::Target;
use crate::sys::Moved;
use crate::sys::fd::RawFd;

/// Most datagrams of one call.
pub(crate) const MOST: usize = 1;

pub(crate) fn recv(
    _: RawFd,
    _: &mut [Target<'_>],
    _: &mut [Address],
    _: impl FnMut(usize, usize, bool),
) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}

pub(crate) fn send(_: RawFd, _: &[(&[u8], &Address)]) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}
