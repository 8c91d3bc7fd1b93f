//! Submission: one function per operation, each with its checks and its first attempt.
//!
//! They take what they need of the operation and leave the rest where it is, so that the caller,
//! into which `submit` is inlined, never builds the operation in memory, and a refusal finds it
//! whole.

use super::timers::absolute;
use super::*;
use crate::buf::Buf;
use crate::error::ErrorKind;
use crate::slots::InFlight;
use crate::source::SourceKind;
use usual::NewWrite;

/// Most bytes that one operation moves.
pub(super) const MOST_BYTES: usize = i32::MAX as usize;

/// Whether one operation moves so many bytes: some, and not too many.
pub(super) fn check_len(len: usize) -> Result<(), Reason> {
    if len == 0 { Err(Reason::EmptyBuffer) } else { check_most(len) }
}

/// Whether one operation moves so many bytes, or none.
pub(super) fn check_most(len: usize) -> Result<(), Reason> {
    if len > MOST_BYTES { Err(Reason::TooLong) } else { Ok(()) }
}

/// A source with one of these takes no operations.
const NOT_USABLE: u32 = CLOSING | CONNECTING | RESERVED;

type Answer = Result<Ticket, Reason>;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(super) fn submit_read(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        multishot: bool,
    ) -> Option<Ticket> {
        let answer = self.reader(source).and_then(|index| {
            let token = self.token(source, token);
            let state = &mut self.sources[index];
            if K::COMPLETES || due_ns != 0 || state.has_reads() {
                return self.queue_read(index, token, due_ns, multishot);
            }
            self.check_completions()?;
            let state = &mut self.sources[index];
            self.counts.submitted[OpCode::Read as usize] += 1;
            let ticket = state.rest(index, token, multishot);
            self.note_read(index);
            self.try_reads(index);
            Ok(ticket)
        });
        answer.map_err(|reason| self.refusal = (reason, Buf::NONE)).ok()
    }

    /// Accepts a read that needs a place of its own.
    pub(super) fn queue_read(
        &mut self,
        index: u32,
        token: u64,
        due_ns: u64,
        multishot: bool,
    ) -> Answer {
        let ticket = self.place(OpCode::Read, index, token)?;
        self.slots[ticket.index()].multishot = multishot;
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn submit_write_slowly(&mut self, write: NewWrite, quiet: bool) -> Option<Ticket> {
        let NewWrite { source, token, due_ns, mut buf } = write;
        let answer = self.reader(source).and_then(|index| {
            check_most(buf.len())?;
            let token = self.token(source, token);
            self.queue_write(index, token, due_ns, &mut buf, 0, quiet)
        });
        answer.map_err(|reason| self.refusal = (reason, buf)).ok()
    }

    /// Accepts a write of which `moved` bytes are out, or whose attempt answered `-errno`; 0 says
    /// that it was not tried.
    #[cold]
    #[inline(never)]
    pub(super) fn queue_write(
        &mut self,
        index: u32,
        token: u64,
        due_ns: u64,
        buf: &mut Buf,
        moved: isize,
        quiet: bool,
    ) -> Answer {
        let offered = buf.len();
        // What is out in part cannot be refused: it goes beyond the limit, once for each source.
        let ticket = self.push_write(OpCode::Write, index, token, buf, moved > 0)?;
        self.slots[ticket.index()].quiet = quiet;
        if moved != 0 {
            self.wrote(index, ticket.index(), moved, offered);
        }
        let exceeds = self.exceeds;
        if offered == 0 {
            self.need_no_room(index);
        }
        self.finish_write_start(index, ticket, due_ns);
        if !exceeds && self.slots.find(ticket.index(), ticket.generation()).is_none() {
            // It was out at once: a list, or one on no stream.
            self.counts.submitted[OpCode::Write as usize] -= 1;
            self.counts.inline_writes += 1;
        }
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_read_into(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.reader(source)?;
        check_len(buf.capacity())?;
        let ticket = self.place(OpCode::ReadInto, index, token)?;
        self.slots[ticket.index()].buf = buf.take();
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[inline(never)]
    pub(super) fn submit_read_exact(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        count: u32,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.reader(source)?;
        if count as usize > MOST_BYTES && buf.capacity() > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        if count == 0 || count as usize > buf.capacity() {
            return Err(Reason::BadCount);
        }
        let ticket = self.place(OpCode::ReadExact, index, token)?;
        self.slots[ticket.index()].buf = buf.take();
        self.slots[ticket.index()].count = count;
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[inline(never)]
    pub(super) fn submit_accept(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        multishot: bool,
    ) -> Answer {
        let index = self.usable(source)?;
        if self.sources[index].kind() != SourceKind::Listener {
            return Err(Reason::Unsupported);
        }
        let ticket = self.place(OpCode::Accept, index, token)?;
        let op = &mut self.slots[ticket.index()];
        (op.multishot, op.count, op.offset) = (multishot, 0, 0);
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[inline(never)]
    pub(super) fn submit_recv_from(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        own: u32,
        flags: u8,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.sources[index].kind().is_message() {
            return Err(Reason::Unsupported);
        }
        if buf.is_list() {
            return Err(Reason::Unsupported);
        }
        if own != 0 && buf.capacity() == 0 {
            return Err(Reason::EmptyBuffer);
        }
        if buf.capacity() > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        let ticket = self.place(OpCode::RecvFrom, index, token)?;
        let op = &mut self.slots[ticket.index()];
        (op.buf, op.count, op.multishot) = (buf.take(), own, flags & op::MULTISHOT != 0);
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[inline(never)]
    pub(super) fn submit_send_to(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        flags: u8,
        buf: &mut Buf,
        address: &mut Option<Address>,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.sources[index].kind().is_message() || buf.is_list() || address.is_none() {
            return Err(Reason::Unsupported);
        }
        if buf.len() > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        let (mut deferred, mut due_ns) = (flags & op::DEFERRED != 0, due_ns);
        if deferred && due_ns != 0 {
            let now_ns = self.kernel.now_ns();
            due_ns = absolute(due_ns, now_ns);
            // One that has passed wants its try now.
            deferred = due_ns > now_ns;
        }
        if deferred {
            self.make_room(index, buf.len());
        }
        let ticket = self.push_write(OpCode::SendTo, index, token, buf, false)?;
        self.slots[ticket.index()].address = address.take();
        if deferred {
            self.defer_send(index, ticket);
            self.set_deadline(ticket, due_ns);
        } else {
            self.finish_write_start(index, ticket, due_ns);
        }
        Ok(ticket)
    }

    /// Whether messages of a source can carry descriptors: other datagram sockets than Unix ones
    /// send the bytes and drop the descriptors without a word.
    fn passes_descriptors(&mut self, index: u32) -> bool {
        let state = &self.sources[index];
        match state.kind() {
            SourceKind::UnixStream => true,
            SourceKind::Seqpacket | SourceKind::Datagram => {
                self.kernel.local_address(state.fd).is_ok_and(|at| at.raw().is_unix())
            }
            _ => false,
        }
    }

    #[inline(never)]
    pub(super) fn submit_recv_descriptors(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.passes_descriptors(index) {
            return Err(Reason::Unsupported);
        }
        let ticket = self.place(OpCode::RecvDescriptors, index, token)?;
        Ok(self.start_read(index, ticket, due_ns))
    }

    #[inline(never)]
    pub(super) fn submit_send_descriptors(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: &mut Buf,
        address: &mut Option<Address>,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.passes_descriptors(index) || buf.is_list() {
            return Err(Reason::Unsupported);
        }
        check_len(buf.len())?;
        let ticket = self.push_write(OpCode::SendDescriptors, index, token, buf, false)?;
        self.slots[ticket.index()].address = address.take();
        self.finish_write_start(index, ticket, due_ns);
        Ok(ticket)
    }

    /// A close of a source with nothing left to do ends at once.
    #[inline(never)]
    pub(super) fn submit_close(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
    ) -> Option<Ticket> {
        let (usable, has_failed) = match self.usable(source) {
            // A source whose connect has failed has nothing to flush.
            Err(Reason::Os(_)) if self.is_unconnected(source) => (Ok(source.index()), true),
            usable => (usable, false),
        };
        let answer = usable.and_then(|index| {
            let token = self.token(source, token);
            if !has_failed && !self.is_done_with(index) {
                return self.submit_after_writes(OpCode::Close, source, token, due_ns);
            }
            // Checked before the close changes anything.
            self.check_completions()?;
            self.end_timers(index);
            self.counts.submitted[OpCode::Close as usize] += 1;
            self.close_source(index);
            let ticket = self.loose_ticket();
            self.batch.push(Completion::new(
                OpCode::Close,
                source,
                ticket,
                token,
                Ok(Done::Closed),
            ));
            Ok(ticket)
        });
        answer.map_err(|reason| self.refusal = (reason, Buf::NONE)).ok()
    }

    #[inline(never)]
    pub(super) fn submit_after_writes(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        due_ns: u64,
    ) -> Answer {
        let index = self.usable(source)?;
        if code == OpCode::Shutdown && !self.sources[index].kind().is_socket() {
            return Err(Reason::Unsupported);
        }
        let ticket = self.place(code, index, token)?;
        if code == OpCode::Close {
            self.sources[index].flags |= CLOSING;
        }
        self.sources[index].push_write(&mut self.slots, ticket.index());
        self.need_no_room(index);
        self.finish_write_start(index, ticket, due_ns);
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_poll(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        interest: u32,
    ) -> Answer {
        let index = self.usable(source)?;
        if self.sources[index].kind() == SourceKind::File {
            return Err(Reason::Unsupported);
        }
        let ticket = self.place(OpCode::Poll, index, token)?;
        self.slots[ticket.index()].count = interest;
        self.sources[index].push_poll(&mut self.slots, ticket.index());
        self.sources[index].flags |= POLLED;
        self.run_polls(index);
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_drained(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        bytes: u32,
    ) -> Answer {
        let index = self.usable(source)?;
        let ticket = self.place(OpCode::WaitDrained, index, token)?;
        self.slots[ticket.index()].count = bytes;
        self.sources[index].push_poll(&mut self.slots, ticket.index());
        self.run_drains(index);
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    /// Queues a write, if the source's bound allows it; its bytes count as queued until they are
    /// out.
    fn push_write(
        &mut self,
        code: OpCode,
        index: u32,
        token: u64,
        buf: &mut Buf,
        anyway: bool,
    ) -> Answer {
        let ticket = self.push_bytes(code, index, token, buf.len(), anyway)?;
        self.slots[ticket.index()].buf = buf.take();
        Ok(ticket)
    }

    /// Accepts `len` bytes at the end of a source's writes.
    pub(super) fn push_bytes(
        &mut self,
        code: OpCode,
        index: u32,
        token: u64,
        len: usize,
        anyway: bool,
    ) -> Answer {
        let limit = self.config.write_limit;
        let queued = self.sources[index].queued_bytes as usize;
        let exceeds = queued > 0 && queued + len > limit as usize;
        if exceeds && self.config.write_overflow == Overflow::Refuse {
            return Err(Reason::Full { limit: Limit::Writes, count: limit });
        }
        let ticket = if anyway {
            self.slots.set_limit(u32::MAX);
            let ticket = self.occupy(code, index, token);
            self.set_limits();
            ticket?
        } else {
            self.place(code, index, token)?
        };
        // We queue the write in spite of the limit, and `finish_write_start` ends it with the
        // others. So it takes its own place before any other place becomes vacant, which may be
        // reserved for another thread.
        self.exceeds = exceeds;
        let state = &mut self.sources[index];
        state.queued_bytes = state.queued_bytes.wrapping_add(len as u32);
        state.push_write(&mut self.slots, ticket.index());
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_connect(
        &mut self,
        token: u64,
        due_ns: u64,
        foreign: u32,
        address: &mut Option<Address>,
    ) -> Answer {
        self.check_fork()?;
        if self.closed {
            return Err(Reason::Closed);
        }
        let Some(to) = address.as_mut() else {
            return Err(Reason::Unsupported);
        };
        if foreign != 0 {
            return Err(Reason::NoDescriptor);
        }
        let Some((index, _)) = self.sources.occupy() else {
            return Err(self.full_of_sources());
        };
        let ticket = match self.place(OpCode::Connect, index, token) {
            Ok(ticket) => ticket,
            Err(reason) => {
                self.sources.vacate(index);
                return Err(reason);
            }
        };
        let prepared = to.take_descriptors().pop();
        // Of a socket of the program's there may be duplicates.
        let duplicated = if prepared.is_some() { DUPLICATED } else { 0 };
        let slot = ticket.index();
        let answer = self.kernel.connect(to, prepared);
        match answer {
            Ok((fd, kind, connecting)) => {
                let state = &mut self.sources[index];
                state.open(fd, kind, duplicated);
                state.flags &= !READABLE;
                state.flags |= CONNECTING | PREPARED | WRITABLE;
                state.push_write(&mut self.slots, slot);
                if connecting == Connecting::Full {
                    self.slots[slot].address = address.take();
                }
                self.connecting(index, slot, connecting);
                self.set_deadline(ticket, due_ns);
            }
            Err(errno) => {
                self.sources[index].open(-1, SourceKind::Unknown, CONNECTING);
                self.sources[index].push_write(&mut self.slots, slot);
                self.fail(slot, ErrorKind::Os(errno));
            }
        }
        self.keep_address(address.take());
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_nop(&mut self, token: u64) -> Answer {
        self.check_fork()?;
        if self.closed {
            return Err(Reason::Closed);
        }
        self.check_completions()?;
        self.counts.submitted[OpCode::Nop as usize] += 1;
        let ticket = self.loose_ticket();
        self.batch.push(Completion::new(OpCode::Nop, Source::NONE, ticket, token, Ok(Done::Nop)));
        Ok(ticket)
    }

    /// The index of a source that takes reads and writes of bytes.
    pub(super) fn reader(&mut self, source: Source) -> Result<u32, Reason> {
        let index = self.usable(source)?;
        if self.sources[index].takes_bytes() { Ok(index) } else { Err(Reason::Unsupported) }
    }

    /// The index of a source that takes operations, made ready for its first one.
    #[inline]
    pub(super) fn usable(&mut self, source: Source) -> Result<u32, Reason> {
        self.check_fork()?;
        match self.state(source) {
            Some(state) if state.flags & (NOT_USABLE | PREPARED) == PREPARED => Ok(source.index()),
            _ => self.make_usable(source),
        }
    }

    #[inline(never)]
    fn make_usable(&mut self, source: Source) -> Result<u32, Reason> {
        self.take_arrived(source);
        let stale = self.why_missing(source);
        let state = self.state(source).ok_or(stale)?;
        if state.has(NOT_USABLE) {
            return Err(stale);
        }
        if !state.has(PREPARED) {
            if let Some(reason) = state.why_no_descriptor() {
                return Err(reason);
            }
            let (fd, kind) = (state.fd, state.kind());
            let shared = self.shared.contains(&source.index());
            let (kind, changed) = self.kernel.prepare(fd, kind, shared)?;
            let mark = if changed { self.changed(source.index()) } else { 0 };
            let state = &mut self.sources[source.index()];
            state.prepare(kind);
            state.flags |= mark;
            self.mark_token(source.index());
        }
        Ok(source.index())
    }

    /// Takes a place for an operation, unless too many completions wait.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        code: OpCode,
        source: u32,
        token: u64,
    ) -> Result<Ticket, Reason> {
        self.check_completions()?;
        self.occupy(code, source, token)
    }

    /// Whether the completions have room for an operation that ends at submission.
    #[inline(always)]
    pub(super) fn check_completions(&mut self) -> Result<(), Reason> {
        if self.batch.is_full() { Err(self.full_of_completions()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn full_of_completions(&self) -> Reason {
        Reason::Full { limit: Limit::Completions, count: self.batch.limit() as u32 }
    }

    #[inline(always)]
    pub(super) fn occupy(
        &mut self,
        code: OpCode,
        source: u32,
        token: u64,
    ) -> Result<Ticket, Reason> {
        let Some((slot, generation, op)) = self.slots.occupy_entry() else {
            return Err(self.full());
        };
        self.counts.submitted[code as usize] += 1;
        op.source = source;
        op.token = token;
        op.moved = 0;
        op.count = 0;
        op.code = code;
        op.multishot = false;
        op.quiet = false;
        op.in_flight = InFlight::No;
        Ok(Ticket::from_parts(slot, generation))
    }

    #[cold]
    pub(super) fn full(&self) -> Reason {
        Reason::Full { limit: Limit::Operations, count: self.config.max_operations }
    }

    /// Queues a read and tries it if it is worth trying.
    #[inline(always)]
    pub(super) fn start_read(&mut self, index: u32, ticket: Ticket, due_ns: u64) -> Ticket {
        let state = &mut self.sources[index];
        let first = !state.has_reads();
        if K::COMPLETES && first {
            // Another operation may succeed where this one could not.
            state.flags |= READABLE;
        }
        state.push_read(&mut self.slots, ticket.index());
        self.note_read(index);
        if first {
            self.try_reads(index);
        }
        if due_ns != 0 {
            self.set_deadline(ticket, due_ns);
        }
        ticket
    }

    /// Tries a read that was just submitted, or has it tried in the next turn if this one has read
    /// what it may and the source has bulk: so that what is read is dealt with while it is in the
    /// cache.
    #[inline(always)]
    fn try_reads(&mut self, index: u32) {
        if self.sources[index].can_read() {
            self.try_reads_now(index);
        }
    }

    #[inline(never)]
    fn try_reads_now(&mut self, index: u32) {
        if self.turn_bytes <= 0 && self.sources[index].has(FULL) {
            return self.enqueue(index);
        }
        let first = self.is_first_read(index);
        if first && !self.first_reads.is_worth_it() && self.register(index, false).is_ok() {
            self.sources[index].flags &= !(READABLE | UNSETTLED);
            return;
        }
        let before = self.batch.len();
        let mut left = self.config.source_budget;
        self.run_reads(index, &mut left);
        if first {
            self.first_reads.note(self.batch.len() > before);
        }
        self.requeue(index);
    }

    /// Whether a read would be the first one of a stream socket that the selector does not know.
    #[inline]
    fn is_first_read(&self, index: u32) -> bool {
        !K::COMPLETES && self.sources[index].flags & (STREAM | REGISTERED) == STREAM
    }

    pub(super) fn finish_write_start(&mut self, index: u32, ticket: Ticket, due_ns: u64) {
        if std::mem::take(&mut self.exceeds) {
            return self.end_source(index, ErrorKind::Overflow);
        }
        // The operation just queued is tried now if all before it are out; if they are not, the
        // direction is not worth trying or stands in the ready queue.
        if self.sources[index].can_write() && !self.sources[index].has(QUEUED) {
            let mut left = self.config.source_budget.min(MOST_COPIED);
            self.run_writes(index, &mut left);
            self.requeue(index);
        }
        self.set_deadline(ticket, due_ns);
        self.note_queued_lease(ticket);
    }
}
