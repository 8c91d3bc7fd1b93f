//! Bytes from a file to a socket or another file: always through memory here.

use crate::sys::fd::RawFd;
use crate::sys::target::Target;
use crate::sys::{Moved, fs, net};

pub(crate) const UNSUPPORTED: Moved = -(libc::EOPNOTSUPP as Moved);

/// TransmitFile would move the file position and wait for the peer.
pub(crate) fn send_file(_: RawFd, _: RawFd, _: u64, _: usize) -> Moved {
    UNSUPPORTED
}

/// As [`send_file`], through `memory`: one read, one write that does not block.
pub(crate) fn send_copy(socket: RawFd, file: RawFd, offset: u64, memory: &mut [u8]) -> Moved {
    let got = fs::read_at(file, Target::from_slice(memory), offset);
    if got <= 0 {
        return got;
    }
    net::send(socket, &memory[..got as usize])
}

/// Only whole files are copied by the system.
pub(crate) fn copy_range(_: RawFd, _: RawFd, _: u64, _: usize) -> Moved {
    UNSUPPORTED
}

/// There is no such call for every file system.
pub(crate) fn clone_blocks(_: RawFd, _: RawFd) -> Moved {
    UNSUPPORTED
}
