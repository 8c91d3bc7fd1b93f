//! Reads of a source: attempts of the operations that receive bytes, datagrams or connections.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use crate::kernel::{Kernel, Received};
use crate::proactor::Proactor;
use crate::proactor::ops::read::EMPTY_COST;
use crate::proactor::parts::state::{
    FULL, INLINE_READ, QUIET, READ_PAUSED, READABLE, REGISTERED, STREAM, SourceState, UNSETTLED,
};
use crate::words::error::ErrorKind;

/// A read or a write of at least so many bytes suggests that its source has bulk data.
pub(in crate::proactor) const BULK: u32 = 16 << 10;

impl<K: Kernel> Proactor<K> {
    /// Tries the reads of a source once, then again while they are worth trying and neither `left`
    /// nor the turn's bytes are used up.
    pub(in crate::proactor) fn run_reads(&mut self, index: u32, left: &mut usize) {
        let mut first = true;
        while *left > 0 && (std::mem::take(&mut first) || self.sched.turn_bytes > 0) {
            let state = &mut self.sources[index];
            if !state.can_read() {
                return;
            }
            if !state.has(INLINE_READ) {
                if K::COMPLETES && self.begin_read(index) {
                    return;
                }
                self.attempt_read(index, left);
                continue;
            }
            let Some((start, room)) = self.memory(index) else { return };
            let got = self.receive(index, start, room);
            if got.moved <= 0 {
                self.inline_read_stopped(index, got);
                *left = left.saturating_sub(EMPTY_COST);
                continue;
            }
            *left = left.saturating_sub(got.moved as usize);
            self.inline_read_done(index, got, room);
        }
    }

    /// Handles an attempt to read that answered `-errno`. The read waits for the selector, pauses,
    /// or is tried again; only other errors are returned.
    pub(in crate::proactor) fn read_blocked(
        &mut self,
        index: u32,
        moved: isize,
    ) -> Option<ErrorKind> {
        match -moved as i32 {
            libc::EAGAIN => self.block_read(index),
            libc::EINTR => self.interrupted(index, READ_PAUSED),
            // The kernel is out of memory. The connection is not at fault.
            libc::ENOBUFS | libc::ENOMEM => self.pause(index, READ_PAUSED),
            errno => return Some(ErrorKind::Os(errno)),
        }
        None
    }

    /// Handles an attempt to read that moved nothing: the end, an empty message, or `-errno`.
    #[inline(never)]
    pub(in crate::proactor) fn read_stopped(&mut self, index: u32, slot: u32, got: Received) {
        if got.moved < 0 {
            if let Some(kind) = self.read_blocked(index, got.moved) {
                self.fail(slot, kind);
            }
            return;
        }
        if got.end {
            // An empty buffer would be an empty record.
            return self.fail(slot, ErrorKind::Eof);
        }
        if self.sources[index].kind().is_message() {
            self.sources[index].settle(0, 0, false);
            self.note_bytes(index, READ_PAUSED);
        }
        self.read_ended(index, slot);
        self.note_reading(index);
    }
}

impl SourceState {
    /// Notes a read that moved `len` of `room` bytes, and whether another one is worth trying. A
    /// short read of a stream proves that no bytes are left, unless it was cut, or the event said
    /// more than "readable". The descriptor must be registered, or nothing would report the next
    /// bytes.
    #[inline(always)]
    pub(in crate::proactor) fn settle(&mut self, len: u32, room: u32, cut: bool) {
        if cut {
            self.flags |= UNSETTLED;
        }
        let short = len < room;
        self.flags &= if len > 0 { !(FULL | QUIET) } else { !FULL };
        self.flags |= if short || len < BULK { 0 } else { FULL };
        if short && self.flags & (STREAM | UNSETTLED | REGISTERED) == STREAM | REGISTERED {
            self.flags &= !READABLE;
        }
    }
}
