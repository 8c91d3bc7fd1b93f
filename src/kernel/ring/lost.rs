//! Lost completions: the completion queue was full, and the kernel had no memory for its overflow
//! list. The kernel counts them, and reports them once (`EBADR`).
//!
//! The kernel does not say which completions it lost. A receive into a provided buffer may be among
//! them, so the offset of the next receive's bytes is unknown, too: the driver drops the bytes in
//! such buffers, and ends their reads with `EIO`. It cancels everything. Once a cancel of
//! everything finds nothing twice in a row, all completions still missing are lost. Then the driver
//! registers the buffers anew.

use io_uring::{opcode, types};

use super::buffers::Buffers;
use super::long_multishot::LongMultishot;
use super::{READS, RECALL, Ring};
use crate::kernel::WAKE;
use crate::kernel::quirks::Quirk;
use crate::memory::buf::swap::Pool;
use crate::memory::leaked::leave_to_kernel;

/// The number of cancels in a row that find nothing, without any other answer, until recovery is
/// complete.
const ENOUGH: u32 = 2;

#[derive(Default)]
pub(super) struct Lost {
    /// Completions were lost, and recovery is not complete.
    pub(super) is_recovering: bool,
    /// The last cancel of everything has found nothing.
    found_nothing: bool,
    /// Another answer came since the last cancel of everything.
    others: bool,
    /// Cancels in a row that found nothing.
    empty_cancels: u32,
    /// How often completions were lost.
    pub(super) count: u64,
}

impl Lost {
    /// Notes the result of the cancel of everything.
    pub(super) fn note_cancel_all(&mut self, result: i32) {
        self.found_nothing = result == 0 || result == -libc::ENOENT;
    }

    /// Notes an answer to anything else.
    pub(super) fn note_other_answer(&mut self) {
        self.others = true;
    }
}

impl Ring {
    /// Cancels everything, unless nothing is left.
    pub(super) fn recall_all(&mut self) -> bool {
        let lost = &mut self.lost;
        lost.empty_cancels =
            if lost.found_nothing && !lost.others { lost.empty_cancels + 1 } else { 0 };
        (lost.found_nothing, lost.others) = (false, false);
        if lost.empty_cancels >= ENOUGH {
            return true;
        }
        let all = types::CancelBuilder::any().all();
        let cancel = opcode::AsyncCancel2::new(all).build();
        // SAFETY: the entry names no memory.
        unsafe { self.uring.push(cancel.user_data(RECALL)) };
        false
    }

    /// The ring starts over, with new buffers and a new wake poll.
    pub(super) fn start_over(&mut self, pool: &mut Pool, empty: bool, buffer_bytes: u32) {
        self.uring.forgive();
        self.lost = Lost { count: self.lost.count, ..Lost::default() };
        self.long_multishot = LongMultishot::default();
        self.files_in_kernel = 0;
        if let Some(buffers) = self.buffers.take() {
            if self.uring.unregister_buffers().is_ok() && empty {
                buffers.give_back(pool);
            } else {
                // The kernel may still write into these buffers.
                leave_to_kernel(buffers);
            }
            // Without buffers, reads wait for a poll.
            self.buffers = match self.quirks.has(Quirk::WholeBuffers) {
                true => None,
                false => Buffers::new(&self.uring, buffer_bytes).ok().flatten(),
            };
        }
        let fd = self.waker.raw();
        self.poll_for(fd, WAKE, READS);
        self.flush();
    }
}
