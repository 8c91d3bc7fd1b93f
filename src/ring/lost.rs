//! Lost completions: a full queue, and no memory to keep what did not fit. The kernel counts them, and says
//! so once (`EBADR`).
//!
//! Which they were nobody knows. A receive that took of a provided buffer may be among them, so where the
//! bytes of the next one start is not known either: from then on what lies in such buffers is dropped, and
//! its reads end with `EIO`. Everything is cancelled; what has answered when a cancel twice finds nothing
//! was not lost. Then the buffers are registered anew.

use io_uring::{opcode, types};

use super::buffers::Buffers;
use super::runs::Runs;
use super::{READS, RECALL, Ring};
use crate::proactor::WAKE;
use crate::quirks::Quirk;
use crate::swap::Pool;

/// So often in a row a cancel of everything finds nothing, and nothing else is answered.
const ENOUGH: u32 = 2;

#[derive(Default)]
pub(super) struct Lost {
    /// Completions were lost, and what the ring had is not all back.
    pub(super) recalls: bool,
    /// The last cancel of everything has found nothing; and something else was answered beside it.
    found_nothing: bool,
    others: bool,
    /// Times that it found nothing, in a row.
    empty: u32,
    /// How often completions were lost.
    pub(super) times: u64,
}

impl Lost {
    /// The cancel of everything has found so many.
    pub(super) fn found(&mut self, result: i32) {
        self.found_nothing = result == 0 || result == -libc::ENOENT;
    }

    /// Something else was answered.
    pub(super) fn other(&mut self) {
        self.others = true;
    }
}

impl Ring {
    /// Asks for the end of everything, unless nothing is left.
    pub(super) fn recall_all(&mut self) -> bool {
        let lost = &mut self.lost;
        lost.empty = if lost.found_nothing && !lost.others { lost.empty + 1 } else { 0 };
        (lost.found_nothing, lost.others) = (false, false);
        if lost.empty >= ENOUGH {
            return true;
        }
        let all = types::CancelBuilder::any().all();
        self.uring.push(opcode::AsyncCancel2::new(all).build().user_data(RECALL));
        false
    }

    /// The ring begins anew: with other buffers, and its own poll.
    pub(super) fn begin_anew(&mut self, pool: &mut Pool, empty: bool, buffer_bytes: u32) {
        self.uring.forgive();
        self.lost = Lost { times: self.lost.times, ..Lost::default() };
        self.runs = Runs::default();
        self.files_in_kernel = 0;
        if let Some(buffers) = self.buffers.take() {
            if self.uring.unregister_buffers().is_ok() && empty {
                buffers.give_back(pool);
            } else {
                // The kernel may still write into them.
                std::mem::forget(buffers);
            }
            // Without, reads wait for a poll.
            self.buffers = match self.quirks.has(Quirk::WholeBuffers) {
                true => None,
                false => Buffers::new(&self.uring, buffer_bytes).ok().flatten(),
            };
        }
        let fd = self.waker.0.raw();
        self.poll_for(fd, WAKE, READS);
        self.flush();
    }
}
