//! This system has no call for several datagrams: they go one by one.

use crate::sys::Moved;
use crate::sys::fd::RawFd;
use crate::sys::target::Target;

/// Most datagrams of one call.
pub(crate) const MOST: usize = 1;

pub(crate) fn recv<A>(
    _: RawFd,
    _: &mut [Target<'_>],
    _: &mut [A],
    _: impl FnMut(usize, usize, i32),
) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}

pub(crate) fn send<A>(_: RawFd, _: &[(&[u8], &A)]) -> Moved {
    -(libc::EOPNOTSUPP as isize)
}
