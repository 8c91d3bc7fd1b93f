//! A range of a file over a stream socket.
//!
//! ```text
//!   run_send_file ──what is next is in the page cache──▶ sendfile(2)
//!         │ it is not                                        ▲
//!         ▼                                                  │ without another look
//!       fetch: a thread reads it there ──completion──▶ fetched
//! ```
//!
//! The loop would wait for the disk in sendfile(2). Where the system does not say what the page cache has
//! it does; so it does for what was fetched and is gone again.

use super::*;
use crate::buf::Target;
use crate::error::ErrorKind;
use crate::file::Arguments;
use crate::file::task::Task;
use crate::sys::descriptor;
use crate::sys::fd::RawFd;
use crate::workers::{Class, Lane};
use submit::MOST_BYTES;

type Answer = Result<Ticket, Reason>;

/// So far apart are the bytes that are asked for: the page cache loses and gets its pages by larger pieces.
const APART: u64 = 64 << 10;

/// Marks the keys of fetches among those of jobs: the rest names the socket.
pub(super) const FETCH: u32 = RESTS;

impl<K: Kernel> Proactor<K> {
    /// A range of a file stands among the writes of a stream socket.
    #[inline(never)]
    pub(super) fn submit_send_file(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        count: u32,
        flags: u8,
        extra: &mut Extra,
    ) -> Answer {
        let Some(arguments) = extra.take_arguments() else {
            unreachable!("its operation carries the range");
        };
        let Arguments::Range { file, offset } = *arguments else {
            unreachable!("its operation carries the range");
        };
        let answer = self.begin_send_file(source, token, due_ns, count, flags, file, offset);
        if answer.is_err() {
            *extra = Extra::from(arguments);
        }
        answer
    }

    #[allow(clippy::too_many_arguments)] // as above
    fn begin_send_file(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        count: u32,
        flags: u8,
        file: Source,
        offset: u64,
    ) -> Answer {
        let index = self.reader(source)?;
        self.file(file)?;
        let state = &mut self.sources[index];
        if !state.has(STREAM) {
            return Err(Reason::Unsupported);
        }
        // sendfile(2) has no flag that keeps it from waiting for the peer.
        let changed = self.kernel.forbid_blocking(state.fd, state.has(SHARED))?;
        state.flags |= if changed { CHANGED } else { 0 };
        if count == 0 || count as usize > MOST_BYTES {
            return Err(Reason::BadCount);
        }
        let ticket = self.push_bytes(Code::SendFile, index, token, count as usize, false)?;
        let op = &mut self.slots[ticket.index()];
        (op.file, op.offset, op.count) = (file, offset, count);
        op.multishot = flags & MULTISHOT != 0;
        self.finish_write_start(index, ticket, due_ns);
        Ok(ticket)
    }

    /// One attempt to send of a file.
    pub(super) fn run_send_file(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &self.slots[slot];
        let (file, socket) = (op.file, self.sources[index].fd);
        let Some(fd) = self.state(file).filter(|state| !state.has(RESERVED)).map(|state| state.fd)
        else {
            // The file is freed.
            return self.fail(slot, ErrorKind::Os(libc::EBADF));
        };
        let op = &self.slots[slot];
        let (len, offset) = ((op.count - op.moved) as usize, op.offset + u64::from(op.moved));
        let offered = len.min(*left);
        if !self.is_at_hand(index, file, offset, offered) {
            return;
        }
        let moved = self.kernel.send_file(socket, fd, offset, offered);
        *left = left.saturating_sub(moved.max(1) as usize);
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        let op = &mut self.slots[slot];
        op.moved += moved as u32;
        let told = if op.multishot { moved as u32 } else { op.moved };
        let ended = moved == 0 || op.moved == op.count;
        let unsent = if ended { op.count - op.moved } else { 0 };
        if ended {
            self.finish_write(index, slot, Ok(Done::Sent(told)));
        } else if op.multishot {
            let (token, ticket) = (op.token, self.ticket(slot));
            let source = self.sources[index].name(index);
            let done = Completion::new(source, ticket, token, Ok(Done::Sent(told)));
            self.batch.push(done.and_more(true));
        }
        // Fewer bytes than asked for are a full socket, or the end of the file: the next attempt tells.
        self.unqueue(index, moved as u32 + unsent);
    }

    /// Whether the next bytes of a range can be sent without a wait for the disk. Where not, a thread reads them,
    /// and the socket's writes pause until it has.
    fn is_at_hand(&mut self, index: u32, file: Source, offset: u64, len: usize) -> bool {
        let state = &self.sources[file.index()];
        let mut facts = state.facts();
        if self.files.fetched.remove(&index) || !facts.may_read_now() {
            return true;
        }
        let (fd, end) = (state.fd, offset.saturating_add(len as u64));
        let mut at = offset;
        while at < end {
            let got = self.kernel.read_now(fd, Target::from_slice(&mut [0]), at);
            match -got as i32 {
                libc::EAGAIN => return !self.fetch(index, fd, offset, len),
                libc::EOPNOTSUPP | libc::ENOSYS => {
                    facts.never_read_now();
                    self.sources[file.index()].set_facts(facts);
                    return true;
                }
                // The end of the file, or an error that sendfile(2) will tell.
                0.. => return true,
                _ => {}
            }
            // The last byte as well.
            at = if at + 1 == end { end } else { (at + APART).min(end - 1) };
        }
        true
    }

    /// Has a thread read a range of a file for a socket; false when there is none to be had.
    #[cold]
    fn fetch(&mut self, index: u32, fd: RawFd, offset: u64, len: usize) -> bool {
        // Its own descriptor: the file may be freed meanwhile.
        let Some(Ok(file)) = self.kernel.borrow(fd).map(descriptor::duplicate) else {
            return false;
        };
        let key = self.sources[index].name(index).key() | u64::from(FETCH);
        let task = Task::Fetch { file, offset, len };
        if self.hire(key, Lane::Normal, Class::Quick, task).is_err() {
            return false;
        }
        self.sources[index].flags |= WRITE_PAUSED;
        self.files.fetching += 1;
        self.files.counts.fetches += 1;
        true
    }

    /// A thread has read what a socket is to send.
    pub(super) fn fetched(&mut self, key: u64) {
        self.files.fetching -= 1;
        let index = key as u32 & !FETCH;
        let Some(state) = self.sources.find_key(index, (key >> 32) as u32) else { return };
        state.flags &= !WRITE_PAUSED;
        self.files.fetched.insert(index);
        if self.sources[index].can_write() {
            self.enqueue(index);
        }
    }
}
