//! Events of a selector: they are applied to their sources, and the usual one runs at once.

#![allow(unsafe_code)]
//! # Safety
//!
//! The number of bytes that a kernel reports becomes the length of a lease: implementers of
//! `Kernel` promise that it is right. The usual read puts its completion where room was made for it
//! before.

use super::*;
use crate::buf::{Buf, Target};
use crate::source::SourceKind;

/// Most events that a selector takes in one wait, whatever it is told.
const MOST_EVENTS: usize = 1 << 16;

/// The usual source of an event has all flags of `USUAL`, and none of `OTHER`.
const USUAL: u32 = READABLE | REGISTERED | STREAM | RESTING;
const OTHER: u32 = UNSETTLED | WAITING | READ_PAUSED | READS | WRITES | POLLS;

impl<K: Kernel> Proactor<K> {
    /// Applies the events of a select. The usual source (P3: it has its event now) runs at once,
    /// other sources enter the ready queue.
    pub(super) fn apply(&mut self, count: usize) {
        self.counts.events += count as u64;
        self.untold = count >= self.config.events_per_wait.clamp(1, MOST_EVENTS);
        self.batch.reserve(count);
        // Leases come back between the turns, so one look per turn is enough.
        self.pool.reuse_if_returned();
        for i in 0..count {
            if K::COMPLETES
                && let Some(answer) = self.kernel.answer(i, &mut self.pool)
            {
                self.answered(answer);
                self.batch.reserve(count);
                continue;
            }
            let (key, ready) = self.kernel.event(i);
            // SAFETY: room for as many completions as there are events was made, and is made again
            // by what adds others.
            if !unsafe { self.run_rest(key, ready) } {
                self.enqueue_ready(key);
            }
        }
        if self.files.in_kernel > 0 {
            self.take_file_answers();
        }
        if K::TASKS && self.files.tasks > 0 {
            self.take_tasks();
        }
        if K::COMPLETES && !self.recovering && self.kernel.has_lost() {
            self.recover();
        }
    }

    /// Puts a source to which an event has come into the ready queue if it has anything to try.
    #[inline(never)]
    fn enqueue_ready(&mut self, key: u64) {
        let index = key as u32;
        let Some(state) = self.sources.find_key(index, (key >> 32) as u32) else {
            if key == WAKE {
                self.counts.wakes += 1;
            } else if key != FILES {
                self.counts.stale_events += 1;
            }
            return;
        };
        let source = state.name(index);
        let worth = state.has(POLLED) || state.can_read() || state.can_write();
        if !worth || state.has(QUEUED) {
            return;
        }
        state.flags |= QUEUED;
        if state.kind() == SourceKind::Listener {
            // Connections first, or a storm of them meets retransmissions; the others keep their
            // order.
            self.ready.push_front(source);
        } else {
            self.ready.push_back(source);
        }
    }

    /// Applies an event, and if it is the usual one (a stream socket whose resting read finds
    /// bytes, and nothing else to be done) runs the source. False when it is not that: then the
    /// event has been applied and nothing else done.
    ///
    /// # Safety
    /// There is room in the batch for a completion of each event that is still to come; there still
    /// is afterwards.
    #[inline(always)]
    unsafe fn run_rest(&mut self, key: u64, ready: Ready) -> bool {
        let index = key as u32;
        let Some(state) = self.sources.find_key(index, (key >> 32) as u32) else { return false };
        if !PLAIN.contains(ready) {
            return self.run_unusual(index, ready);
        }
        state.flags |= u32::from(ready.bits());
        let flags = state.flags;
        if flags & (USUAL | OTHER) != USUAL {
            return self.run_unusual(index, ready);
        }
        let at_hand = self.pool.space_at_hand();
        let Some((start, room)) =
            at_hand.or_else(|| next_buffer(&mut self.pool, &mut self.turn_bytes))
        else {
            return false;
        };
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let target = unsafe { Target::from_raw(start, room as usize) };
        // The call is the same for both kinds of stream sockets.
        let got = self.kernel.recv(state.fd, SourceKind::Stream, target);
        if got.moved <= 0 || got.cut || got.moved >= room as isize {
            return self.run_rest_on(index, got, room);
        }
        let len = got.moved as u32;
        let more = flags & RESTING_MORE != 0;
        // As `settle` does after a short read.
        state.flags = flags & !(RESTING | READABLE | FULL | QUIET);
        if more {
            // A multishot read stays at rest.
            state.flags |= RESTING;
            self.counts.went_on += 1;
        }
        if stream_kind(flags) == SourceKind::UnixStream {
            state.queue_recheck(index, &mut self.rechecks);
        }
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.resting_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space.
        let data = unsafe { Buf::from_pool(&mut self.pool, len) };
        let result = Ok(Done::Read(data));
        let done = Completion::new(OpCode::Read, source, ticket, token, result).with_more(more);
        // SAFETY: the caller's promise; nothing was added since.
        unsafe { self.batch.put(done) };
        true
    }

    /// As `run_rest`, for unusual events. If the event reports an end, the resting read runs, and
    /// usually finds that end.
    #[inline(never)]
    fn run_unusual(&mut self, index: u32, ready: Ready) -> bool {
        let state = &mut self.sources[index];
        if state.apply(ready) & (USUAL | OTHER) != USUAL | UNSETTLED {
            state.note_polls();
            return false;
        }
        let Some((start, room)) = self.pool.space_at_hand() else { return false };
        let got = self.receive(index, start, room);
        self.run_rest_on(index, got, room)
    }

    /// The attempt of `run_rest` has met something unusual.
    #[cold]
    #[inline(never)]
    fn run_rest_on(&mut self, index: u32, got: Received, room: u32) -> bool {
        if got.moved <= 0 {
            self.rest_stopped(index, got.moved);
        } else {
            self.rest_done(index, got, room, None);
        }
        self.requeue(index);
        // More than a wait takes are never behind.
        self.batch.reserve(self.config.events_per_wait.min(MOST_EVENTS));
        true
    }
}

/// Opens another swap buffer for the usual reads, if the turn's share of bytes is not used up.
#[cold]
#[inline(never)]
fn next_buffer(pool: &mut Pool, turn_bytes: &mut isize) -> Option<(*mut u8, u32)> {
    // While the pool is scarce, the source waits for its turn with the others.
    if *turn_bytes <= 0 || pool.is_scarce() && pool.is_still_scarce() {
        return None;
    }
    *turn_bytes -= pool.chunk_bytes() as isize;
    pool.space()
}
