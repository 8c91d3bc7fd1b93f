//! The usual read and write: a read that rests in its source, and a write that goes out whole. Most
//! messages take these two paths, so every instruction in them counts. All other cases go on in
//! `submit.rs`, in separate functions with the same arguments, so that the functions here save few
//! registers.

#![allow(unsafe_code)]
//! # Safety
//!
//! The usual write builds its completion in the batch, where room was made for it before.

use super::*;
use crate::source::SourceKind;
use submit::MOST_BYTES;

/// The index in the tickets of operations that ended at once, which have no place.
const LOOSE: u32 = crate::source::ENDED;

/// The flags that decide whether a write is the usual one, and the values that they must have.
const WRITE_FLAGS: u32 = USUAL_WRITE | WRITE_PAUSED | CLOSING | WRITES | QUIET;
const USUAL_WRITE: u32 = BYTES | STREAM | WRITABLE;

/// A new write. It stays in memory, so that its parts take no registers.
pub(super) struct NewWrite {
    pub(super) source: Source,
    pub(super) token: u64,
    pub(super) due_ns: u64,
    pub(super) buf: Buf,
}

impl<K: Kernel> Proactor<K> {
    /// The usual read is submitted when no bytes have arrived: it rests in its source.
    #[inline(never)]
    pub(super) fn submit_plain_read(&mut self, source: Source, token: u64) -> Option<Ticket> {
        if !K::COMPLETES
            && self.forks == fork::generation()
            && let Some(state) = self.sources.find(source.index(), source.generation())
            && state.flags & (BYTES | CLOSING | CONNECTING | RESTING | READS | READABLE | QUIET)
                == BYTES
        {
            self.counts.submitted[OpCode::Read as usize] += 1;
            return Some(state.rest(source.index(), token, false));
        }
        self.submit_read(source, token, 0, false)
    }

    /// The descriptor, if a write is the usual one: on a stream socket, nothing queued before it.
    #[inline(always)]
    fn usual_write(&mut self, write: &NewWrite) -> Option<RawFd> {
        let NewWrite { source, buf, .. } = write;
        if self.forks == fork::generation()
            && let Some(state) = self.sources.find(source.index(), source.generation())
            && (!K::COMPLETES || state.kind() == SourceKind::UnixStream)
            && state.flags & WRITE_FLAGS == USUAL_WRITE
            // 1 to MOST_BYTES bytes; for a list `as_slice` is empty.
            && buf.as_slice().len().wrapping_sub(1) < MOST_BYTES
        {
            return Some(state.fd);
        }
        None
    }

    /// The usual write finds nothing queued before it and goes out whole.
    #[inline(never)]
    pub(super) fn submit_write(&mut self, write: NewWrite) -> Option<Ticket> {
        let Some(fd) = self.usual_write(&write) else {
            return self.submit_write_slowly(write, false);
        };
        if !self.batch.has_room() {
            return self.make_room_and_submit(write);
        }
        let (source, token, buf) = (write.source, write.token, write.buf);
        let len = buf.as_slice().len();
        let ticket = self.loose_ticket();
        let result = Ok(Done::Written { buf, bytes: len as u32 });
        let done = Completion::new(OpCode::Write, source, ticket, token, result);
        // Built before the attempt, so that no part of it needs a register across the call.
        // SAFETY: there is room: made right above.
        let bytes = unsafe { self.batch.stage(done) }.written();
        let moved = self.kernel.send(fd, SourceKind::Stream, bytes);
        if moved != len as isize {
            // SAFETY: the completion was staged right above.
            return unsafe { self.submit_rest_of_write(write.due_ns, moved) };
        }
        self.counts.inline_writes += 1;
        // SAFETY: staged above, and the attempt has added no completion.
        unsafe { self.batch.put_staged() };
        Some(ticket)
    }

    /// As [`submit_write`](Self::submit_write), for one that makes no completion if it succeeds.
    #[inline(never)]
    pub(super) fn submit_quiet_write(&mut self, write: NewWrite) -> Option<Ticket> {
        let Some(fd) = self.usual_write(&write) else {
            return self.submit_write_slowly(write, true);
        };
        // The write may fail, and then needs room for its completion.
        if self.batch.is_full() {
            return self.refuse_write(write);
        }
        let bytes = write.buf.as_slice();
        let len = bytes.len();
        let moved = self.kernel.send(fd, SourceKind::Stream, bytes);
        if moved != len as isize {
            return self.queue_rest_of_write(write, moved, true);
        }
        self.counts.inline_quiet_writes += 1;
        let ticket = self.loose_ticket();
        // Last, because the owner's `Drop` is code of the program.
        write.buf.discard();
        Some(ticket)
    }

    #[cold]
    #[inline(never)]
    fn make_room_and_submit(&mut self, write: NewWrite) -> Option<Ticket> {
        if self.batch.make_room_within_limit() {
            self.submit_write(write)
        } else {
            self.refuse_write(write)
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse_write(&mut self, write: NewWrite) -> Option<Ticket> {
        self.refusal = (self.full_of_completions(), write.buf);
        None
    }

    /// Only a part of the usual write went out, or none: queues the rest, and takes the staged
    /// completion back.
    ///
    /// # Safety
    /// The completion of the write is staged.
    #[cold]
    #[inline(never)]
    unsafe fn submit_rest_of_write(&mut self, due_ns: u64, moved: isize) -> Option<Ticket> {
        // SAFETY: the same promise.
        let mut done = unsafe { self.batch.take_staged() };
        let (source, token, buf) = (done.source, done.token, done.take_buf());
        self.queue_rest_of_write(NewWrite { source, token, due_ns, buf }, moved, false)
    }

    #[cold]
    #[inline(never)]
    fn queue_rest_of_write(
        &mut self,
        write: NewWrite,
        moved: isize,
        quiet: bool,
    ) -> Option<Ticket> {
        let NewWrite { source, token, due_ns, mut buf } = write;
        let answer = self.queue_write(source.index(), token, due_ns, &mut buf, moved, quiet);
        answer.map_err(|reason| self.refusal = (reason, buf)).ok()
    }

    /// The ticket of an operation that has ended at once: it needs no place.
    #[inline(always)]
    pub(super) fn loose_ticket(&mut self) -> Ticket {
        self.loose = self.loose.wrapping_add(2);
        Ticket::from_parts(LOOSE, NonZeroU32::new(self.loose | 1).expect("odd"))
    }
}
