//! Buffers that the kernel gives back.
//!
//! The loop may need a buffer while the kernel holds all that no lease uses: receives of datagrams,
//! for example, are the loop's. No request takes a provided buffer back, except the end of the
//! whole group, and then a thread of the kernel may still write into one of them. So a read of
//! `/dev/zero` fills the next buffer, and its completion says that the kernel is done with it.

#![allow(unsafe_code)]
//! # Safety
//!
//! (U5) The kernel does the read in the call that submits it: a read of this device never waits. So
//! no thread of the kernel has the buffer when the ring is gone.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use io_uring::{opcode, squeue, types};

use super::RECALL;
use crate::sys::fd::AsRawFd;
use crate::sys::uring::Uring;

#[derive(Default)]
pub(super) struct Recall {
    zeros: Option<File>,
    in_kernel: bool,
    /// How many buffers came back.
    pub(super) count: u64,
}

impl Recall {
    /// Queues the read, unless the kernel has one already. Returns whether it did.
    pub(super) fn begin(&mut self, uring: &mut Uring) -> bool {
        if self.in_kernel {
            return false;
        }
        // Without the device, the loop waits for a lease.
        self.zeros = self.zeros.take().or_else(open_zeros);
        let Some(zeros) = &self.zeros else { return false };
        let read = opcode::Read::new(types::Fd(zeros.as_raw_fd()), std::ptr::null_mut(), 0);
        let entry = read.buf_group(0).build().flags(squeue::Flags::BUFFER_SELECT);
        // SAFETY: U5: it names no memory: the kernel chooses a buffer that was lent to it.
        unsafe { uring.push(entry.user_data(RECALL)) };
        self.in_kernel = true;
        true
    }

    /// The read has ended, and a buffer came back or not.
    pub(super) fn end(&mut self, came_back: bool) {
        self.in_kernel = false;
        self.count += u64::from(came_back);
    }
}

/// The device, if the file of this name is the device (null(4)).
fn open_zeros() -> Option<File> {
    let file = File::open("/dev/zero").ok()?;
    let is_device = file.metadata().is_ok_and(|facts| facts.rdev() == libc::makedev(1, 5));
    is_device.then_some(file)
}
