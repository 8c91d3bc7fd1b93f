//! Reads: attempts of what takes bytes, datagrams or connections.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use super::rechecks::Rechecks;
use super::*;
use crate::error::ErrorKind;
use crate::source::SourceKind;
use waits::MEMORY_PAUSE_NS;

/// A read of so many bytes is one of bulk.
const MUCH: u32 = 16 << 10;

impl<K: Kernel> Proactor<K> {
    /// Tries the reads of a source, once or for as long as they are worth trying and `left` bytes
    /// and the turn allow.
    pub(super) fn run_reads(&mut self, index: u32, left: &mut usize) {
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
            let multishot = state.has(INLINE_MULTISHOT);
            let Some(memory) = self.memory(index, multishot) else { return };
            let got = self.receive(index, memory.start, memory.room);
            if got.moved <= 0 {
                self.give_back(memory);
                self.inline_read_stopped(index, got.moved);
                *left = left.saturating_sub(EMPTY_COST);
                continue;
            }
            *left = left.saturating_sub(got.moved as usize);
            self.inline_read_done(index, got, memory.room, memory.own);
        }
    }

    /// An attempt to read answered `-errno`: blocked, paused, to be repeated, or an error.
    pub(super) fn read_blocked(&mut self, index: u32, moved: isize) -> Option<ErrorKind> {
        match -moved as i32 {
            libc::EAGAIN => self.block_read(index),
            libc::EINTR => {}
            // The kernel's memory, not the connection's.
            libc::ENOBUFS | libc::ENOMEM => self.pause(index, READ_PAUSED, MEMORY_PAUSE_NS),
            errno => return Some(ErrorKind::Os(errno)),
        }
        None
    }

    /// An attempt to read moved nothing: the end of the file, or `-errno`.
    #[inline(never)]
    pub(super) fn read_stopped(&mut self, index: u32, slot: u32, moved: isize) {
        if moved < 0 {
            if let Some(kind) = self.read_blocked(index, moved) {
                self.fail(slot, kind);
            }
            return;
        }
        // The end of the file; of a datagram socket that is not one: an empty datagram.
        if self.sources[index].kind().is_message() {
            self.sources[index].settle(index, 0, 0, false, &mut self.sched.rechecks);
            self.note_bytes(index);
        }
        self.read_ended(index, slot);
        self.note_pause(index);
    }
}

impl SourceState {
    /// After a read that moved `len` of `room` bytes: whether another is worth trying. A short one
    /// of a stream says that nothing is left, unless the event said more than "readable"; the
    /// selector must know the descriptor, or nothing would say when there is more.
    #[inline(always)]
    pub(super) fn settle(
        &mut self,
        index: u32,
        len: u32,
        room: u32,
        cut: bool,
        rechecks: &mut Rechecks,
    ) {
        if cut {
            self.flags |= UNSETTLED;
        }
        let short = len < room;
        self.flags &= if len > 0 { !(FULL | QUIET) } else { !FULL };
        self.flags |= if short || len < MUCH { 0 } else { FULL };
        if short && self.flags & (STREAM | UNSETTLED | REGISTERED) == STREAM | REGISTERED {
            self.flags &= !READABLE;
            if self.kind() == SourceKind::UnixStream {
                self.queue_recheck(index, rechecks);
            }
        }
    }

    /// A short read of a Unix stream may have stopped at passed descriptors with more behind them
    /// (unix(7)). Only recvmsg(2) says so, which would cost every read a tenth of an echo: instead
    /// the loop reads the source once more (`rechecks`).
    #[cold]
    #[inline(never)]
    pub(super) fn queue_recheck(&mut self, index: u32, rechecks: &mut Rechecks) {
        if !self.has(TO_RECHECK) {
            self.flags |= TO_RECHECK;
            rechecks.push(self.name(index));
        }
    }
}
