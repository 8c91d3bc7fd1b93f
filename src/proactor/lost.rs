//! Recovery when a kernel has lost answers: the driver takes all operations back, and ends those
//! that the kernel no longer knows.
//!
//! ```text
//!   apply ──has_lost──▶ recall, until nothing is left ──▶ what was never answered ends with EIO
//!                            │ answered meanwhile               │ all else goes on
//!                            ▼                                  ▼
//!                       ends or starts again              every source is tried again
//! ```
//!
//! Invariant: (K3) an unanswered operation returns its buffer only if the kernel holds nothing any
//! more; else the buffer is leaked to the kernel, and counted.

use crate::kernel::Kernel;
use crate::memory::leaked::{PATIENCE_NS, leave_to_kernel};
use crate::op::operation::InFlight;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{
    ABORTING, POLLED, POLLS, READ_BUSY, READABLE, REGISTERED, UNSETTLED, WRITABLE, WRITE_BUSY,
    WRITES_REGISTERED,
};
use crate::words::error::ErrorKind;
use crate::words::table::NIL;

/// How long the kernel has to answer a recall before the next one.
const ANSWER_NS: u64 = 1_000_000;

impl<K: Kernel> Proactor<K> {
    /// Recovers within one second.
    #[cold]
    #[inline(never)]
    pub(super) fn recover(&mut self) {
        let until_ns = self.kernel.now_ns().saturating_add(PATIENCE_NS);
        self.kernel_ops.recovering = true;
        let mut empty = false;
        while !empty && self.left_ns(until_ns) > 0 {
            empty = self.kernel.recall();
            if !empty && !self.look_for_lost(ANSWER_NS) {
                break;
            }
        }
        // A recall does not find the requests that a device has. Their answers may still come.
        while empty && self.files.in_kernel > 0 {
            let left_ns = self.left_ns(until_ns);
            if left_ns == 0 || !self.look_for_lost(left_ns) {
                break;
            }
        }
        self.kernel.recovered(&mut self.memory.pool, empty);
        self.kernel_ops.recovering = false;
        for index in self.sources.table.occupied().collect::<Vec<_>>() {
            if self.sources[index].fd >= 0 {
                self.end_lost(index, empty);
            }
        }
        for slot in self.ops.table.occupied().collect::<Vec<_>>() {
            self.end_lost_file(slot);
        }
    }

    fn left_ns(&mut self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.kernel.now_ns())
    }

    /// Waits for answers, for at most so long. False if the kernel cannot wait.
    fn look_for_lost(&mut self, most_ns: u64) -> bool {
        let count = self.kernel.select(Some(most_ns));
        count.map(|count| self.apply(count)).is_ok()
    }

    /// Ends the unanswered operations of a source. Bytes of a lost write may be gone, so the writes
    /// after it are torn.
    fn end_lost(&mut self, index: u32, empty: bool) {
        let state = &mut self.sources[index];
        if state.has(REGISTERED) {
            // Events and the registration may be lost, too.
            state.flags &= !(REGISTERED | WRITES_REGISTERED);
            state.flags |= READABLE | WRITABLE | UNSETTLED;
            state.flags |= if state.has(POLLS) { POLLED } else { 0 };
        }
        let polled = state.has(POLLED);
        if state.has(READ_BUSY) {
            state.flags &= !READ_BUSY;
            self.kernel_ops.busy -= 1;
            let slot = self.sources[index].reads.head;
            self.ops[slot].in_flight = InFlight::No;
            if !empty {
                self.leave(slot);
            }
            self.fail(slot, ErrorKind::Os(libc::EIO));
            self.end_marked(self.sources[index].reads.head);
        }
        if self.sources[index].has(WRITE_BUSY) {
            self.sources[index].flags &= !WRITE_BUSY;
            self.kernel_ops.busy -= 1;
            let mut kind = ErrorKind::Os(libc::EIO);
            while self.sources[index].writes.head != NIL {
                let slot = self.sources[index].writes.head;
                let told = std::mem::replace(&mut self.ops[slot].in_flight, InFlight::No);
                let left = told != InFlight::No && !empty;
                let op = &mut self.ops[slot];
                let unsent = op.buf.len() as u32 - op.moved;
                if left {
                    op.moved = 0;
                    self.leave(slot);
                }
                // A cancelled write may have been sent. It must not complete like a write that
                // moved nothing.
                let ending = told.ending().filter(|_| kind == ErrorKind::Torn);
                self.fail(slot, ending.unwrap_or(kind));
                if left {
                    self.unqueue(index, unsent);
                }
                kind = ErrorKind::Torn;
            }
        }
        if polled && !self.sources[index].has(ABORTING) {
            self.enqueue(index);
        }
        self.go_on(index);
    }

    /// Ends unanswered file work: the kernel may have done it, or may do it later.
    fn end_lost_file(&mut self, slot: u32) {
        let op = &mut self.ops[slot];
        let by_threads = self.files.jobs.contains_key(&slot) || self.files.parked.contains(&slot);
        if op.in_flight == InFlight::No || !op.code.is_file() || by_threads {
            return;
        }
        let told = std::mem::replace(&mut op.in_flight, InFlight::No);
        self.kernel_ops.busy -= 1;
        self.files.in_kernel -= 1;
        self.leave(slot);
        if let Some(list) = self.files.lists.remove(&slot) {
            leave_to_kernel(list);
        }
        self.fail_file(slot, ErrorKind::Os(libc::EIO), told.ending().is_some());
    }
}
