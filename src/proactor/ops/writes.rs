//! Writes of a source: attempts of the operations that send bytes or datagrams, connect, shut down
//! or close.

use crate::kernel::Kernel;
use crate::proactor::Proactor;
use crate::proactor::ops::read::EMPTY_COST;
use crate::proactor::parts::state::WRITE_PAUSED;
use crate::words::error::ErrorKind;

/// What an attempt to write counts for in its source's share, even if it moves nothing: signals
/// may interrupt each attempt.
#[inline]
pub(in crate::proactor) fn cost(moved: isize) -> usize {
    if moved > 0 { moved as usize } else { EMPTY_COST }
}

impl<K: Kernel> Proactor<K> {
    /// Tries the writes of a source for as long as they are worth trying and `left` bytes allow.
    pub(in crate::proactor) fn run_writes(&mut self, index: u32, left: &mut usize) {
        while *left > 0 && self.sources[index].can_write() {
            if K::COMPLETES && self.begin_write(index) {
                return;
            }
            self.attempt_write(index, left);
        }
    }

    pub(in crate::proactor) fn write_stopped(&mut self, index: u32, slot: u32, moved: isize) {
        if let Some(kind) = self.write_blocked(index, moved) {
            self.fail(slot, kind);
        }
    }

    /// Handles an attempt to write that answered `-errno`, as `read_blocked`.
    pub(in crate::proactor) fn write_blocked(
        &mut self,
        index: u32,
        moved: isize,
    ) -> Option<ErrorKind> {
        match -moved as i32 {
            libc::EAGAIN => self.block_write(index),
            libc::EINTR => self.interrupted(index, WRITE_PAUSED),
            // No edge says that the kernel has memory again.
            libc::ENOBUFS | libc::ENOMEM => self.pause(index, WRITE_PAUSED),
            errno => return Some(ErrorKind::Os(errno)),
        }
        None
    }
}
