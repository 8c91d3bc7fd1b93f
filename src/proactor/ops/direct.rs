//! Calls of the program that move bytes at once, without an operation: the other half of
//! [`Op::readable`](crate::Op::readable) and [`Op::writable`](crate::Op::writable).
//!
//! (P4) No wake-up is lost between a vain call and the wait. A call that finds a direction empty or
//! full clears its flag, and has the source registered before it returns; a short read clears the
//! flag only of a registered source. From then on every arrival sets the flag. The events that a
//! wait takes are applied before the program runs again. A selector without edges is told before
//! each wait which conditions to report, and checks them. So bytes that arrive before the operation
//! is submitted set the flag, which its submission finds. Bytes that arrive later bring an event,
//! which completes the operation. Such a selector may report a condition that no call clears (an
//! error in a queue, a socket that is shut). A vain call after such a report begins a pause, at
//! whose end the operation completes.

use std::io::{self, IoSlice, IoSliceMut};

use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Target;
use crate::proactor::Proactor;
use crate::proactor::ops::submit::{check_len, check_most};
use crate::proactor::parts::state::{
    INLINE_READ, READ_PAUSED, READABLE, READS, REGISTERED, STREAM, UNSETTLED, WRITABLE,
    WRITE_PAUSED, WRITES,
};
use crate::proactor::parts::time::MOST_INTERRUPTED;
use crate::sys::descriptor::VECTORS;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::source::{Source, SourceKind};

impl<K: Kernel> Proactor<K> {
    /// The slot of a source for a call of the program, with none of the flags `queued`.
    fn callable(
        &mut self,
        source: Source,
        (parts, len): (usize, usize),
        queued: u32,
    ) -> Result<u32, Refusal> {
        let index = self.reader(source)?;
        let state = &self.sources[index];
        if let Some(reason) = state.why_no_descriptor() {
            return Err(reason);
        }
        // A call on such a source may block.
        if state.kind() == SourceKind::SharedPollable {
            return Err(Refusal::Unsupported);
        }
        check_most(len)?;
        if parts > VECTORS && state.kind().is_message() {
            return Err(Refusal::TooLong);
        }
        if state.has(queued) { Err(Refusal::Busy) } else { Ok(index) }
    }

    /// Receives into the program's memory.
    pub(in crate::proactor) fn recv_now(
        &mut self,
        source: Source,
        to: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let len = to.iter().map(|part| part.len()).sum();
        let index = self.callable(source, (to.len(), len), INLINE_READ | READS)?;
        check_len(len)?;
        let state = &self.sources[index];
        let (fd, kind) = (state.fd, state.kind());
        if kind == SourceKind::Seqpacket {
            // 0 bytes are the end of a stream. Here they can also be an empty record.
            return Err(Refusal::Unsupported.into());
        }
        let calls = self.kernel.calls_mut();
        let (got, room) = match to {
            // Only recvmsg(2) tells that the bytes end at passed descriptors.
            [to] if kind != SourceKind::UnixStream => (
                uninterrupted(|| calls.recv(fd, kind, Target::from_slice(to)), |got| got.moved),
                len,
            ),
            to => {
                let count = to.len().min(VECTORS);
                let room = to[..count].iter().map(|part| part.len()).sum();
                let receive = || {
                    let mut targets = [const { Target::NONE }; VECTORS];
                    for (target, part) in targets.iter_mut().zip(to.iter_mut()) {
                        *target = Target::from_slice(part);
                    }
                    calls.recv_vectored(fd, kind, &mut targets[..count])
                };
                (uninterrupted(receive, |got| got.moved), room)
            }
        };
        let told = !K::EDGES && self.sched.take_told(index, READABLE);
        if got.moved < 0 {
            let failed = self.read_blocked(index, got.moved);
            if failed.is_none() && (told || is_interrupted(got.moved)) {
                self.pause(index, READ_PAUSED);
            }
            return Err(vain(failed));
        }
        let moved = got.moved as usize;
        if moved > 0 || kind.is_message() {
            self.note_bytes(index, READ_PAUSED);
        }
        let state = &mut self.sources[index];
        if got.cut {
            state.flags |= UNSETTLED;
        }
        let settled = state.flags & (STREAM | UNSETTLED | REGISTERED) == STREAM | REGISTERED;
        if moved > 0 && moved < room && settled {
            state.flags &= !READABLE;
        }
        Ok(moved)
    }

    /// Sends the program's bytes.
    pub(in crate::proactor) fn send_now(
        &mut self,
        source: Source,
        parts: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let len = parts.iter().map(|part| part.len()).sum();
        let index = self.callable(source, (parts.len(), len), WRITES)?;
        let state = &self.sources[index];
        let (fd, kind) = (state.fd, state.kind());
        if len == 0 && !kind.is_message() {
            return Ok(0);
        }
        let parts = &parts[..parts.len().min(VECTORS)];
        let offered = parts.iter().map(|part| part.len()).sum();
        let calls = self.kernel.calls_mut();
        let attempt = || match parts {
            [one] => calls.send(fd, kind, one),
            many => calls.send_vectored(fd, kind, many),
        };
        let moved = uninterrupted(attempt, |moved| *moved);
        let told = !K::EDGES && self.sched.take_told(index, WRITABLE);
        if moved < 0 {
            let failed = self.write_blocked(index, moved);
            if failed.is_none() && (told || is_interrupted(moved)) {
                self.pause(index, WRITE_PAUSED);
            }
            return Err(vain(failed));
        }
        if moved > 0 || kind.is_message() {
            self.note_bytes(index, WRITE_PAUSED);
        }
        // A stream that took less than it was offered is full; of others only EAGAIN says so.
        if self.sources[index].has(STREAM) && (moved as usize) < offered {
            self.block_write(index);
        }
        Ok(moved as usize)
    }
}

fn is_interrupted(moved: isize) -> bool {
    moved == -(libc::EINTR as isize)
}

/// Makes a call again if a signal interrupts it: no event would tell when to try again. If signals
/// interrupt every one, a pause follows.
fn uninterrupted<A>(mut attempt: impl FnMut() -> A, moved: impl Fn(&A) -> isize) -> A {
    let mut answer = attempt();
    for _ in 1..MOST_INTERRUPTED {
        if !is_interrupted(moved(&answer)) {
            break;
        }
        answer = attempt();
    }
    answer
}

/// What a call that moved nothing answers: the error of the system, or that it would block.
fn vain(failed: Option<ErrorKind>) -> io::Error {
    match failed {
        Some(ErrorKind::Os(errno)) => Refusal::Os(errno).into(),
        _ => io::ErrorKind::WouldBlock.into(),
    }
}
