//! Events of a selector: each event is applied to its source, and the usual one runs its source at
//! once.

#![allow(unsafe_code)]
//! # Safety
//!
//! The number of bytes that a kernel reports becomes the length of a lease: implementers of
//! `Kernel` promise that it is right. The usual read writes its completion into room that the batch
//! has reserved.

use crate::kernel::{FILES, Kernel, WAKE};
use crate::proactor::Proactor;
use crate::proactor::parts::state::{POLLED, QUEUED, READABLE, WRITABLE};
use crate::words::source::SourceKind;

/// The most events that a selector takes in one wait, whatever the setting is.
const MOST_EVENTS: usize = 1 << 16;

impl<K: Kernel> Proactor<K> {
    /// Applies the events of a select. The usual source (P3: its event is applied first) runs at
    /// once; other sources enter the ready queue.
    pub(in crate::proactor) fn apply(&mut self, count: usize) {
        self.stats.counters.events += count as u64;
        self.sched.events = count;
        self.sched.may_have_events = count >= self.most_events();
        self.outbox.batch.reserve(count);
        // Leases come back between the turns, so one look per turn is enough.
        self.memory.pool.reuse_if_returned();
        for i in 0..count {
            if K::COMPLETES
                && let Some(answer) = self.kernel.answer(i, &mut self.memory.pool)
            {
                self.answered(answer);
                self.outbox.batch.reserve(count);
                continue;
            }
            let (key, ready) = self.kernel.event(i);
            // SAFETY: the batch has reserved room for one completion per event. Code that adds
            // other completions reserves this room again.
            if !unsafe { self.run_inline_read(key, ready) } {
                self.enqueue_ready(key);
            }
        }
        if self.files.in_kernel > 0 {
            self.take_file_answers();
        }
        if K::JOBS && self.files.jobs_in_kernel > 0 {
            self.take_from_kernel();
        }
    }

    /// How many events one `select` takes. (A kernel may report more.)
    fn most_events(&self) -> usize {
        self.config.events_per_wait.clamp(1, MOST_EVENTS)
    }

    /// Takes everything that had come when the clock was read: what has arrived wins over a
    /// deadline (C4). Called before the first operation of a turn expires.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn take_all_events(&mut self) {
        if self.inbox.remote.is_notified() {
            self.wake_up();
        }
        // Of the events that had come, a source has at most four: readiness, and an answer for each
        // direction. So sources that always have more to tell do not keep the turn.
        let mut waits = 4 * self.sources.table.len() as usize / self.most_events() + 2;
        while self.sched.may_have_events && waits > 0 {
            waits -= 1;
            if self.look().is_err() {
                // The next wait meets the same error, and reports it.
                break;
            }
        }
        self.sched.may_have_events = false;
    }

    /// Puts a source to which an event has come into the ready queue if it has anything to try.
    #[inline(never)]
    fn enqueue_ready(&mut self, key: u64) {
        let index = key as u32;
        let Some(state) = self.sources.table.find_key(index, (key >> 32) as u32) else {
            if key == WAKE {
                self.stats.counters.wakes += 1;
            } else if key != FILES {
                self.stats.counters.stale_events += 1;
            }
            return;
        };
        let source = state.name(index);
        if !K::EDGES {
            self.sched.note_event(index, state.flags & (READABLE | WRITABLE));
        }
        let worth = state.has(POLLED) || state.can_read() || state.can_write();
        if !worth || state.has(QUEUED) {
            return;
        }
        state.flags |= QUEUED;
        if state.kind() == SourceKind::Listener {
            // Listeners run first, so that a storm of connections does not end in retransmissions.
            // Other sources keep their order.
            self.sched.ready.push_front(source);
        } else {
            self.sched.ready.push_back(source);
        }
    }
}
