//! Submission: one function per operation, each with its checks and its first attempt.
//!
//! They take what they need of the operation and leave the rest where it is, so that the caller,
//! into which `submit` is inlined, never builds the operation in memory, and a refusal finds it whole.

use super::*;
use crate::buf::Buf;
use crate::error::{Error, ErrorKind};
use crate::op::RELATIVE;
use crate::source::Kind;

/// Most bytes that one operation moves.
pub(super) const MOST_BYTES: usize = i32::MAX as usize;

/// The index in the tickets of operations that ended at once, which have no place.
const LOOSE: u32 = NOWHERE - 1;

/// A deadline as an operation carries it, with the operation's flags.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) ns: u64,
    pub(super) flags: u8,
}

type Answer = Result<Ticket, Reason>;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(super) fn submit_read(&mut self, source: Source, token: u64, due: Due) -> Answer {
        let index = self.reader(source)?;
        let slot = self.place(Code::Read, index, token)?;
        self.slots[slot].multishot = due.flags & MULTISHOT != 0;
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_write(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        buf: &mut Buf,
    ) -> Answer {
        self.check_fork()?;
        if let Some(state) = self.sources.find(source.index(), source.generation())
            && state.flags & (PREPARED | WRITABLE | WRITE_PAUSED | CLOSING | CONNECTING)
                == PREPARED | WRITABLE
            && state.writes.is_empty()
            && !buf.is_list()
        {
            let bytes = buf.as_slice();
            let len = bytes.len();
            // Between 1 and the most.
            if len.wrapping_sub(1) < MOST_BYTES && state.kind != Kind::Listener {
                let moved = self.kernel.send(state.fd, state.kind, bytes);
                if moved == len as isize {
                    self.counts.submitted[Code::Write as usize] += 1;
                    self.counts.inline_writes += 1;
                    let ticket = self.loose_ticket();
                    self.batch.push(Completion {
                        source,
                        ticket,
                        token,
                        more: false,
                        late: false,
                        result: Ok(Done::Written {
                            buf: buf.take(),
                            bytes: len as u32,
                        }),
                    });
                    return Ok(ticket);
                }
                return self.queue_write(source.index(), token, due, buf, moved);
            }
        }
        self.submit_write_slowly(source, token, due, buf)
    }

    #[cold]
    #[inline(never)]
    fn submit_write_slowly(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.usable(source)?;
        if self.sources[index].kind == Kind::Listener {
            return Err(Reason::Unsupported);
        }
        match buf.len() {
            0 => Err(Reason::EmptyBuffer),
            len if len > MOST_BYTES => Err(Reason::TooLong),
            _ => self.queue_write(index, token, due, buf, 0),
        }
    }

    /// Accepts a write of which `moved` bytes are out, or whose attempt answered `-errno`; 0 says that
    /// it was not tried.
    #[cold]
    #[inline(never)]
    fn queue_write(
        &mut self,
        index: u32,
        token: u64,
        due: Due,
        buf: &mut Buf,
        moved: isize,
    ) -> Answer {
        let slot = self.place(Code::Write, index, token)?;
        let offered = buf.len();
        self.slots[slot].buf = buf.take();
        let ticket = self.ticket(slot);
        self.sources[index].writes.push(&mut self.slots, slot);
        if moved != 0 {
            self.wrote(index, slot, moved, offered);
        }
        self.finish_write_start(index, ticket, due);
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_read_into(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.reader(source)?;
        match buf.room() {
            0 => return Err(Reason::EmptyBuffer),
            room if room > MOST_BYTES => return Err(Reason::TooLong),
            _ => {}
        }
        let slot = self.place(Code::ReadInto, index, token)?;
        self.slots[slot].buf = buf.take();
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_read_exact(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        count: u32,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.reader(source)?;
        if count as usize > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        if count == 0 || count as usize > buf.room() {
            return Err(Reason::BadCount);
        }
        let slot = self.place(Code::ReadExact, index, token)?;
        self.slots[slot].buf = buf.take();
        self.slots[slot].count = count;
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_accept(&mut self, source: Source, token: u64, due: Due) -> Answer {
        let index = self.usable(source)?;
        if self.sources[index].kind != Kind::Listener {
            return Err(Reason::Unsupported);
        }
        let slot = self.place(Code::Accept, index, token)?;
        self.slots[slot].multishot = due.flags & MULTISHOT != 0;
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_recv_from(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        own: u32,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.sources[index].kind.is_message() {
            return Err(Reason::Unsupported);
        }
        if own != 0 && (buf.room() == 0 || buf.is_list()) {
            return Err(Reason::EmptyBuffer);
        }
        if buf.room() > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        let slot = self.place(Code::RecvFrom, index, token)?;
        self.slots[slot].buf = buf.take();
        self.slots[slot].count = own;
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_send_to(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        buf: &mut Buf,
        address: &mut Option<Address>,
    ) -> Answer {
        let index = self.usable(source)?;
        if !self.sources[index].kind.is_message() || buf.is_list() {
            return Err(Reason::Unsupported);
        }
        if buf.len() > MOST_BYTES {
            return Err(Reason::TooLong);
        }
        let slot = self.place(Code::SendTo, index, token)?;
        self.slots[slot].buf = buf.take();
        self.slots[slot].address = address.take();
        Ok(self.start_write(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_recv_descriptors(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
    ) -> Answer {
        let index = self.usable(source)?;
        if !matches!(
            self.sources[index].kind,
            Kind::UnixStream | Kind::Seqpacket | Kind::Datagram
        ) {
            return Err(Reason::Unsupported);
        }
        let slot = self.place(Code::RecvDescriptors, index, token)?;
        Ok(self.start_read(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_send_descriptors(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        buf: &mut Buf,
        address: &mut Option<Address>,
    ) -> Answer {
        let index = self.usable(source)?;
        if !matches!(
            self.sources[index].kind,
            Kind::UnixStream | Kind::Seqpacket | Kind::Datagram
        ) || buf.is_list()
        {
            return Err(Reason::Unsupported);
        }
        match buf.len() {
            0 => return Err(Reason::EmptyBuffer),
            len if len > MOST_BYTES => return Err(Reason::TooLong),
            _ => {}
        }
        let slot = self.place(Code::SendDescriptors, index, token)?;
        self.slots[slot].buf = buf.take();
        self.slots[slot].address = address.take();
        Ok(self.start_write(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_after_writes(
        &mut self,
        code: Code,
        source: Source,
        token: u64,
        due: Due,
    ) -> Answer {
        let index = self.usable(source)?;
        if code == Code::Shutdown && !self.sources[index].kind.is_socket() {
            return Err(Reason::Unsupported);
        }
        let slot = self.place(code, index, token)?;
        if code == Code::Close {
            self.sources[index].flags |= CLOSING;
        }
        Ok(self.start_write(index, slot, due))
    }

    #[inline(never)]
    pub(super) fn submit_poll(
        &mut self,
        source: Source,
        token: u64,
        due: Due,
        interest: u32,
    ) -> Answer {
        let index = self.usable(source)?;
        let slot = self.place(Code::Poll, index, token)?;
        self.slots[slot].count = interest;
        let ticket = self.ticket(slot);
        self.sources[index].polls.push(&mut self.slots, slot);
        self.sources[index].flags |= POLLED;
        self.run_polls(index);
        self.set_deadline(ticket, due);
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_connect(
        &mut self,
        token: u64,
        due: Due,
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
            return Err(Reason::Unsupported);
        }
        let limit = self.sources.limit();
        let Some((index, _)) = self.sources.occupy() else {
            return Err(Reason::Full {
                limit: Limit::Sources,
                count: limit,
            });
        };
        let slot = match self.place(Code::Connect, index, token) {
            Ok(slot) => slot,
            Err(reason) => {
                self.sources.vacate(index);
                return Err(reason);
            }
        };
        let prepared = to.take_descriptors().pop();
        let ticket = self.ticket(slot);
        let answer = self.kernel.connect(to, prepared);
        self.keep_address(address.take());
        match answer {
            Ok((fd, kind, going_on)) => {
                let state = &mut self.sources[index];
                state.open(fd, kind, CONNECTING | PREPARED);
                state.flags &= !(READABLE | WRITABLE);
                state.writes.push(&mut self.slots, slot);
                if going_on {
                    self.block_write(index);
                } else {
                    self.connected(index, slot);
                }
                self.set_deadline(ticket, due);
            }
            Err(errno) => {
                self.sources[index].open(-1, Kind::Stream, CONNECTING);
                self.sources[index].writes.push(&mut self.slots, slot);
                self.fail(slot, ErrorKind::Os(errno));
            }
        }
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_timer(&mut self, token: u64, due: Due) -> Answer {
        self.check_fork()?;
        if self.closed {
            return Err(Reason::Closed);
        }
        let slot = self.place(Code::Timer, NOWHERE, token)?;
        let ticket = self.ticket(slot);
        self.set_deadline(ticket, due);
        Ok(ticket)
    }

    #[inline(never)]
    pub(super) fn submit_nop(&mut self, token: u64) -> Answer {
        self.check_fork()?;
        if self.closed {
            return Err(Reason::Closed);
        }
        self.counts.submitted[Code::Nop as usize] += 1;
        let ticket = self.loose_ticket();
        self.batch
            .push(Completion::new(Source::NONE, ticket, token, Ok(Done::Nop)));
        Ok(ticket)
    }

    /// The index of a source that takes operations.
    #[inline(always)]
    fn reader(&mut self, source: Source) -> Result<u32, Reason> {
        self.check_fork()?;
        match self.sources.find(source.index(), source.generation()) {
            Some(state)
                if state.flags & (PREPARED | CLOSING | CONNECTING) == PREPARED
                    && state.kind != Kind::Listener =>
            {
                Ok(source.index())
            }
            _ => self.reader_slowly(source),
        }
    }

    #[cold]
    #[inline(never)]
    fn reader_slowly(&mut self, source: Source) -> Result<u32, Reason> {
        let index = self.usable(source)?;
        if self.sources[index].kind == Kind::Listener {
            return Err(Reason::Unsupported);
        }
        Ok(index)
    }

    /// The index of a source that takes operations, made ready for its first one.
    fn usable(&mut self, source: Source) -> Result<u32, Reason> {
        self.check_fork()?;
        let stale = self.stale();
        if self.state(source).is_some_and(|state| state.has(RESERVED)) {
            // Another thread has attached it, and told this one before the queue did.
            self.take_requests();
        }
        let state = self.state(source).ok_or(stale)?;
        if state.has(CLOSING | CONNECTING | RESERVED) {
            return Err(Reason::Stale);
        }
        if !state.has(PREPARED) {
            let (fd, kind, shared) = (state.fd, state.kind, state.has(SHARED));
            let (kind, changed) = self.kernel.prepare(fd, kind, shared)?;
            let state = &mut self.sources[source.index()];
            state.kind = kind;
            state.flags |= PREPARED | READABLE | WRITABLE | if changed { CHANGED } else { 0 };
        }
        Ok(source.index())
    }

    /// Occupies a place for an operation.
    #[inline(always)]
    fn place(&mut self, code: Code, source: u32, token: u64) -> Result<u32, Reason> {
        let slot = if self.forced == NOWHERE {
            match self.slots.occupy() {
                Some((slot, _)) => slot,
                None => return Err(self.full()),
            }
        } else {
            self.take_forced()
        };
        self.counts.submitted[code as usize] += 1;
        let op = &mut self.slots[slot];
        op.source = source;
        op.token = token;
        op.moved = 0;
        op.count = 0;
        op.code = code;
        op.multishot = false;
        Ok(slot)
    }

    #[cold]
    fn full(&self) -> Reason {
        Reason::Full {
            limit: Limit::Operations,
            count: self.slots.limit(),
        }
    }

    #[cold]
    fn take_forced(&mut self) -> u32 {
        let slot = std::mem::replace(&mut self.forced, NOWHERE);
        self.slots[slot].reserved = false;
        slot
    }

    /// The ticket of an operation that has ended at once: it needs no place.
    #[inline(always)]
    pub(super) fn loose_ticket(&mut self) -> Ticket {
        if self.forced != NOWHERE {
            let slot = self.take_forced();
            let ticket = self.ticket(slot);
            self.slots.vacate(slot);
            return ticket;
        }
        self.loose = self.loose.wrapping_add(2);
        Ticket::from_parts(LOOSE, NonZeroU32::new(self.loose | 1).expect("odd"))
    }

    /// Queues a read and tries it if it is worth trying.
    #[inline(always)]
    fn start_read(&mut self, index: u32, slot: u32, due: Due) -> Ticket {
        let ticket = self.ticket(slot);
        let state = &mut self.sources[index];
        let first = state.reads.is_empty();
        state.reads.push(&mut self.slots, slot);
        if first && state.can_read() {
            self.try_reads_now(index);
        }
        if due.ns != 0 {
            self.set_deadline(ticket, due);
        }
        ticket
    }

    #[inline(never)]
    fn try_reads_now(&mut self, index: u32) {
        let mut left = self.config.source_bytes;
        self.run_reads(index, &mut left);
        self.requeue(index);
    }

    fn start_write(&mut self, index: u32, slot: u32, due: Due) -> Ticket {
        let ticket = self.ticket(slot);
        self.sources[index].writes.push(&mut self.slots, slot);
        self.finish_write_start(index, ticket, due);
        ticket
    }

    fn finish_write_start(&mut self, index: u32, ticket: Ticket, due: Due) {
        // The operation just queued is tried now if all before it are out; if they are not, the
        // direction is not worth trying or stands in the ready queue.
        if self.sources[index].can_write() && !self.sources[index].has(QUEUED) {
            let mut left = self.config.source_bytes;
            self.run_writes(index, &mut left);
            self.requeue(index);
        }
        self.set_deadline(ticket, due);
    }

    /// Gives an operation that is still in flight its deadline.
    fn set_deadline(&mut self, ticket: Ticket, due: Due) {
        if due.ns == 0
            || self
                .slots
                .find(ticket.index(), ticket.generation())
                .is_none()
        {
            return;
        }
        let at_ns = if due.flags & RELATIVE != 0 {
            self.kernel.now_ns().saturating_add(due.ns)
        } else {
            due.ns
        };
        self.deadlines.push(&mut self.slots, ticket.index(), at_ns);
    }

    /// Starts what another thread has submitted under a reserved name; a refusal becomes the
    /// operation's completion.
    pub(super) fn submit_reserved(&mut self, ticket: Ticket, op: Op) {
        let slot = ticket.index();
        let known = self.slots.find(slot, ticket.generation());
        debug_assert!(known.is_some_and(|op| op.reserved));
        self.forced = slot;
        let Err(Rejected { op, reason }) = self.submit(op) else {
            return;
        };
        let kind = match reason {
            Reason::Stale => ErrorKind::Freed,
            Reason::Closed => ErrorKind::Closed,
            Reason::Os(errno) => ErrorKind::Os(errno),
            Reason::Full { .. } => ErrorKind::Os(libc::ENOBUFS),
            Reason::EmptyBuffer | Reason::BadCount | Reason::TooLong => ErrorKind::Os(libc::EINVAL),
            Reason::Unsupported | Reason::Busy | Reason::Forked => ErrorKind::Os(libc::EOPNOTSUPP),
        };
        self.counts.submitted[op.code as usize] += 1;
        let (source, token) = (op.source, op.token);
        if self.forced != NOWHERE {
            self.loose_ticket();
        }
        let error = Error::new(kind, 0, op.into_buf());
        self.batch
            .push(Completion::new(source, ticket, token, Err(error)));
    }
}
