//! The state of a source: its descriptor, its readiness, a queue per direction.
//!
//! A source, from the first name to the last answer:
//!
//! ```text
//!   RESERVED ──attach──▶ open ──first operation──▶ PREPARED ──close──▶ CLOSING ──▶ vacant
//!   for another thread     ▲                          │        (it follows the       ▲
//!                          │ done                     │ abort   writes before it)    │
//!   connects ──────────────┤                          ├─ nothing is in the kernel ───┤
//!   fd -1, both paused     ▼ fails                    └─ ABORTING ── last answer ────┘
//!                      fd -1, answers the errno
//! ```
//!
//! A direction of a source (P2: what the direction waits for will come):
//!
//! ```text
//!   worth trying: READABLE, WRITABLE ◀──────── the scheduler runs it ────────┐
//!     ├─ EAGAIN, short read ──▶ REGISTERED ──────────── an event ────────────┤
//!     ├─ no kernel memory ────▶ READ_PAUSED, WRITE_PAUSED ── a time ─────────┼─▶ QUEUED
//!     ├─ no lease, no room ───▶ WAITING ─────────────── it comes back ───────┤
//!     ├─ writes hold a share ─▶ HELD ─── a write ends, buffers are free ─────┤
//!     └─ started ─────────────▶ READ_BUSY, WRITE_BUSY ── the answer ─────────┘
//! ```
//!
//! The flags, four to a group:
//!
//! ```text
//!    0  READABLE      UNSETTLED  WRITABLE      WAITING
//!    4  READ_PAUSED   CLOSING    RESERVED      QUIET
//!    8  CHANGED       DUPLICATED REGISTERED    QUEUED
//!   12  WRITE_PAUSED  POLLS      CONNECTING    PREPARED
//!   16  BYTES         READ_BUSY  WRITE_BUSY    POLLED
//!   20  FULL          READS      WRITES        kind
//!   24  kind          kind       kind          WRITES_REGISTERED
//!   28  HELD          INLINE_READ    INLINE_MULTISHOT  ABORTING
//! ```

use std::num::NonZeroU32;

use crate::file::FileFacts;
use crate::op::operation::Operation;
use crate::sys::fd::RawFd;
use crate::sys::interest::Ready;
use crate::words::error::Refusal;
use crate::words::source::{Source, SourceKind, Ticket};
use crate::words::table::{Entry, NIL, Table, VACANT, entry_in_fields};

/// A read is worth trying: the bit of `Ready::READABLE`.
pub(in crate::proactor) const READABLE: u32 = 1;
/// A short read does not prove that nothing is left.
pub(in crate::proactor) const UNSETTLED: u32 = 1 << 1;
/// A write is worth trying: the bit of `Ready::WRITABLE`.
pub(in crate::proactor) const WRITABLE: u32 = 1 << 2;
/// The reads of the source wait for a lease, or its accepts wait for a slot.
pub(in crate::proactor) const WAITING: u32 = 1 << 3;
/// Reads (accepts) are not tried until a pause has ended.
pub(in crate::proactor) const READ_PAUSED: u32 = 1 << 4;
/// A close operation was accepted. The source accepts no other operations.
pub(in crate::proactor) const CLOSING: u32 = 1 << 5;
/// The name is reserved for another thread and has no descriptor yet.
pub(in crate::proactor) const RESERVED: u32 = 1 << 6;
/// The source has an idle timeout, and no byte has moved since the last look of the sweep (see
/// `idle.rs`).
pub(in crate::proactor) const QUIET: u32 = 1 << 7;
/// The driver has set O_NONBLOCK.
pub(in crate::proactor) const CHANGED: u32 = 1 << 8;
/// There may be duplicates of the descriptor, so closing it may not end the registration.
pub(in crate::proactor) const DUPLICATED: u32 = 1 << 9;
/// The selector knows the descriptor.
pub(in crate::proactor) const REGISTERED: u32 = 1 << 10;
/// The source is in the ready queue or in the bulk queue.
pub(in crate::proactor) const QUEUED: u32 = 1 << 11;
/// Writes are not tried until a pause has ended, or until a thread has read for the `send_file` at
/// their head. An attempt that comes earlier sets the flag again.
pub(in crate::proactor) const WRITE_PAUSED: u32 = 1 << 12;
/// The source has operations without an order: polls, drains, file work. (Timers alone do not set
/// it.)
pub(in crate::proactor) const POLLS: u32 = 1 << 13;
/// The source belongs to a connect operation.
pub(in crate::proactor) const CONNECTING: u32 = 1 << 14;
/// The kind of the source is known, and its calls do not block.
pub(in crate::proactor) const PREPARED: u32 = 1 << 15;
/// Reads and writes of bytes may take the usual path: the source is prepared, takes bytes (so it is
/// no listener and no file), and has no token (see `sources.rs`).
pub(in crate::proactor) const BYTES: u32 = 1 << 16;
/// The kernel has the source's read, and will answer.
pub(in crate::proactor) const READ_BUSY: u32 = 1 << 17;
/// The kernel has the source's write, and will answer.
pub(in crate::proactor) const WRITE_BUSY: u32 = 1 << 18;
/// An event has come for the polls of the source.
pub(in crate::proactor) const POLLED: u32 = 1 << 19;
/// The last read was large and perhaps left bytes: the source runs with those that have bulk data.
pub(in crate::proactor) const FULL: u32 = 1 << 20;
/// Reads are queued.
pub(in crate::proactor) const READS: u32 = 1 << 21;
/// Writes are queued.
pub(in crate::proactor) const WRITES: u32 = 1 << 22;
/// The selector watches the descriptor for writes, too.
pub(in crate::proactor) const WRITES_REGISTERED: u32 = 1 << 27;
/// The reads of the source wait because its queued writes hold its share of the swap buffers.
pub(in crate::proactor) const HELD: u32 = 1 << 28;
/// A read without buffer and deadline rests in the source itself, ahead of its queue.
pub(in crate::proactor) const INLINE_READ: u32 = 1 << 29;
/// The inline read is multishot.
pub(in crate::proactor) const INLINE_MULTISHOT: u32 = 1 << 30;
/// The source is aborted, and closes when the kernel has answered.
pub(in crate::proactor) const ABORTING: u32 = 1 << 31;

/// The bit at which the source's kind begins.
const KIND_SHIFT: u32 = 23;
pub(in crate::proactor) const KIND_MASK: u32 = 15 << KIND_SHIFT;
/// A stream socket: a short read proves that nothing is left. No other kind of source that takes
/// bytes has this bit.
pub(in crate::proactor) const STREAM: u32 =
    (SourceKind::Stream as u32 & SourceKind::UnixStream as u32) << KIND_SHIFT;
/// The kinds by their numbers.
const KINDS: [SourceKind; 12] = [
    SourceKind::Unknown,
    SourceKind::Datagram,
    SourceKind::Seqpacket,
    SourceKind::Listener,
    SourceKind::Pollable,
    SourceKind::SharedPollable,
    SourceKind::File,
    SourceKind::OtherStream,
    SourceKind::Stream,
    SourceKind::UnixStream,
    SourceKind::Signals,
    SourceKind::Child,
];

/// The kind that stands in the flags of a stream socket: one of two.
#[inline(always)]
pub(in crate::proactor) fn stream_kind(flags: u32) -> SourceKind {
    const UNIX: u32 = (SourceKind::UnixStream as u32 & !(SourceKind::Stream as u32)) << KIND_SHIFT;
    if flags & UNIX == 0 { SourceKind::Stream } else { SourceKind::UnixStream }
}

const _: () = {
    let mut i = 0;
    while i < KINDS.len() {
        let stream = matches!(KINDS[i], SourceKind::Stream | SourceKind::UnixStream);
        assert!(KINDS[i] as usize == i || matches!(KINDS[i], SourceKind::Unknown));
        let has_bit = (i as u32) << KIND_SHIFT & STREAM != 0;
        assert!(stream == has_bit || matches!(KINDS[i], SourceKind::Signals | SourceKind::Child));
        i += 1;
    }
};
const _: () = assert!(READABLE == Ready::READABLE.bits() as u32);
const _: () = assert!(WRITABLE == Ready::WRITABLE.bits() as u32);

/// The conditions of events that are also flags, with the same bits.
pub(in crate::proactor) const PLAIN: Ready = Ready::from_bits(READABLE as u16 | WRITABLE as u16);

/// Marks the ticket of an inline read. The rest of its index is the source's slot.
pub(in crate::proactor) const INLINE_TICKET: u32 = 1 << 31;

/// A first-in-first-out list of operations, linked through their slots.
#[derive(Clone, Copy, Debug)]
pub(in crate::proactor) struct OpQueue {
    pub(in crate::proactor) head: u32,
    tail: u32,
}

impl OpQueue {
    const EMPTY: OpQueue = OpQueue { head: NIL, tail: NIL };

    /// Puts an operation ahead of all others.
    fn push_front(&mut self, slots: &mut Table<Operation>, slot: u32) {
        push_front(&mut self.head, slots, slot);
        if self.tail == NIL {
            self.tail = slot;
        }
    }

    #[inline]
    fn push(&mut self, slots: &mut Table<Operation>, slot: u32) {
        let tail = self.tail;
        let op = &mut slots[slot];
        op.next = NIL;
        op.previous = tail;
        if tail == NIL {
            self.head = slot;
        } else {
            slots[tail].next = slot;
        }
        self.tail = slot;
    }

    /// Takes the head out. `next` is the operation behind it.
    #[inline(always)]
    fn pop(&mut self, slots: &mut Table<Operation>, next: u32) {
        self.head = next;
        if next == NIL {
            self.tail = NIL;
        } else {
            slots[next].previous = NIL;
        }
    }

    #[inline]
    fn remove(&mut self, slots: &mut Table<Operation>, slot: u32) {
        if slots[slot].next == NIL {
            self.tail = slots[slot].previous;
        }
        take_out(&mut self.head, slots, slot);
    }
}

/// Puts an operation at the head of a list without a tail.
fn push_front(head: &mut u32, slots: &mut Table<Operation>, slot: u32) {
    let next = std::mem::replace(head, slot);
    slots[slot].next = next;
    slots[slot].previous = NIL;
    if next != NIL {
        slots[next].previous = slot;
    }
}

/// Takes an operation out of a list without a tail.
fn take_out(head: &mut u32, slots: &mut Table<Operation>, slot: u32) {
    let (previous, next) = (slots[slot].previous, slots[slot].next);
    if previous == NIL {
        *head = next;
    } else {
        slots[previous].next = next;
    }
    if next != NIL {
        slots[next].previous = previous;
    }
}

/// A source.
///
/// Most sources wait with one plain read pending. Such a read takes no slot in the table of
/// operations. It rests here, as a flag, a token and a generation for its ticket.
#[derive(Debug)]
pub(in crate::proactor) struct SourceState {
    generation: NonZeroU32,
    pub(in crate::proactor) fd: RawFd,
    /// While vacant, its head is the next vacant slot.
    pub(in crate::proactor) reads: OpQueue,
    pub(in crate::proactor) writes: OpQueue,
    /// The head of the operations without an order: polls, drains, file work, timers.
    pub(in crate::proactor) polls: u32,
    pub(in crate::proactor) flags: u32,
    /// Counts inline reads in odd numbers, over all uses of the slot.
    pub(in crate::proactor) read_generation: NonZeroU32,
    /// Bytes of queued writes that were not sent.
    pub(in crate::proactor) queued_bytes: u32,
    pub(in crate::proactor) read_token: u64,
}

const _: () = assert!(size_of::<SourceState>() <= 48);

impl Default for SourceState {
    fn default() -> SourceState {
        SourceState {
            generation: VACANT,
            fd: -1,
            reads: OpQueue::EMPTY,
            writes: OpQueue::EMPTY,
            polls: NIL,
            flags: 0,
            read_generation: NonZeroU32::MIN,
            queued_bytes: 0,
            read_token: 0,
        }
    }
}

impl Entry for SourceState {
    entry_in_fields!(generation, reads.head);
    fn begin(&mut self, first: NonZeroU32) {
        self.generation = first;
        self.read_generation = first | 1;
    }
}

impl SourceState {
    /// Opens a fresh source in an occupied slot. If its kind is not known, its first operation
    /// queries the kind. Until then no attempt is worth trying.
    pub(in crate::proactor) fn open(&mut self, fd: RawFd, kind: SourceKind, flags: u32) {
        self.fd = fd;
        self.flags = flags | (kind as u32) << KIND_SHIFT;
        self.queued_bytes = 0;
        if !matches!(kind, SourceKind::Unknown | SourceKind::Pollable | SourceKind::Listener) {
            self.prepare(kind);
        }
        self.reads = OpQueue::EMPTY;
        self.writes = OpQueue::EMPTY;
        self.polls = NIL;
        self.read_token = 0;
    }

    /// Notes that the kind of the source is known, and that its calls do not block.
    pub(in crate::proactor) fn prepare(&mut self, kind: SourceKind) {
        self.flags &= !KIND_MASK;
        self.flags |= (kind as u32) << KIND_SHIFT | PREPARED | READABLE | WRITABLE;
        self.flags |= if self.takes_bytes() { BYTES } else { 0 };
    }

    /// Notes that a connect of the source has succeeded: both directions are worth trying.
    pub(in crate::proactor) fn connected(&mut self, fd: RawFd, kind: SourceKind) {
        self.fd = fd;
        self.flags &= !(KIND_MASK | READ_PAUSED | WRITE_PAUSED);
        self.flags |= (kind as u32) << KIND_SHIFT | READABLE | WRITABLE;
        self.flags |= if self.has(POLLS) { POLLED } else { 0 };
    }

    /// Notes that the connect of the source has failed. The source takes no more operations, and
    /// answers with the errno. The errno stands in `read_token`, because no read can rest in such a
    /// source.
    pub(in crate::proactor) fn fail(&mut self, errno: i32) {
        const WORTH: u32 = READABLE | WRITABLE | READ_PAUSED | WRITE_PAUSED;
        self.flags &= !(PREPARED | BYTES | WORTH);
        self.read_token = errno as u64;
    }

    /// Why a source that is not reserved has no descriptor: its connect goes on, or has failed with
    /// an errno.
    pub(in crate::proactor) fn why_no_descriptor(&self) -> Option<Refusal> {
        match self.fd {
            0.. => None,
            _ if self.has(PREPARED) => Some(Refusal::Os(libc::ENOTCONN)),
            _ => Some(Refusal::Os(self.read_token as i32)),
        }
    }

    #[inline(always)]
    pub(in crate::proactor) fn kind(&self) -> SourceKind {
        // A number beyond the kinds is never stored.
        KINDS[((self.flags >> KIND_SHIFT) & 15) as usize % KINDS.len()]
    }

    /// Whether the source takes reads and writes of bytes, once it is prepared: it is no listener,
    /// no file, and no source of signals or of a child.
    pub(in crate::proactor) fn takes_bytes(&self) -> bool {
        let kind = self.kind();
        !matches!(kind, SourceKind::Listener | SourceKind::File) && !kind.is_of_process()
    }

    #[inline(always)]
    pub(in crate::proactor) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    #[inline(always)]
    pub(in crate::proactor) fn name(&self, index: u32) -> Source {
        Source::from_parts(index, self.generation)
    }

    /// The ticket of the inline read.
    #[inline(always)]
    pub(in crate::proactor) fn inline_ticket(&self, index: u32) -> Ticket {
        Ticket::from_parts(INLINE_TICKET | index, self.read_generation)
    }

    /// Lets a read rest in the source, which has no other reads.
    #[inline(always)]
    pub(in crate::proactor) fn start_inline(
        &mut self,
        index: u32,
        token: u64,
        multishot: bool,
    ) -> Ticket {
        self.flags |= if multishot { INLINE_READ | INLINE_MULTISHOT } else { INLINE_READ };
        self.read_token = token;
        let next = self.read_generation.get().wrapping_add(2);
        self.read_generation = NonZeroU32::new(next | 1).expect("odd");
        self.inline_ticket(index)
    }

    #[inline]
    pub(in crate::proactor) fn push_read(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.flags |= READS;
        self.reads.push(slots, slot);
    }

    pub(in crate::proactor) fn push_write(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.flags |= WRITES;
        self.writes.push(slots, slot);
    }

    /// Queues a read ahead of all others.
    pub(in crate::proactor) fn push_first_read(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.flags |= READS;
        self.reads.push_front(slots, slot);
    }

    /// A timer that the source owns is in the same list as the polls, but no event concerns it.
    pub(in crate::proactor) fn push_timer(&mut self, slots: &mut Table<Operation>, slot: u32) {
        push_front(&mut self.polls, slots, slot);
    }

    pub(in crate::proactor) fn push_poll(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.flags |= POLLS;
        push_front(&mut self.polls, slots, slot);
    }

    /// Takes the head of the reads out. `next` is the operation behind it.
    #[inline]
    pub(in crate::proactor) fn pop_read(&mut self, slots: &mut Table<Operation>, next: u32) {
        self.reads.pop(slots, next);
        if next == NIL {
            self.flags &= !READS;
        }
    }

    pub(in crate::proactor) fn remove_read(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.reads.remove(slots, slot);
        if self.reads.head == NIL {
            self.flags &= !READS;
        }
    }

    pub(in crate::proactor) fn remove_write(&mut self, slots: &mut Table<Operation>, slot: u32) {
        self.writes.remove(slots, slot);
        if self.writes.head == NIL {
            self.flags &= !WRITES;
        }
    }

    pub(in crate::proactor) fn remove_poll(&mut self, slots: &mut Table<Operation>, slot: u32) {
        take_out(&mut self.polls, slots, slot);
        if self.polls == NIL {
            self.flags &= !(POLLS | POLLED);
        }
    }

    /// Whether any read (accept, receive) is pending.
    #[inline(always)]
    pub(in crate::proactor) fn has_reads(&self) -> bool {
        self.has(INLINE_READ | READS)
    }

    #[inline(always)]
    pub(in crate::proactor) fn can_read(&self) -> bool {
        const ALL: u32 = READABLE | READ_PAUSED | WAITING | HELD | READ_BUSY;
        self.flags & ALL == READABLE && self.has_reads()
    }

    #[inline(always)]
    pub(in crate::proactor) fn can_write(&self) -> bool {
        self.flags & (WRITABLE | WRITE_PAUSED | WRITE_BUSY | WRITES) == WRITABLE | WRITES
    }

    /// Ends the pause of a direction before its time, for a last try: no event tells what has come
    /// in a pause. (A source that connects is paused until it is connected.)
    pub(in crate::proactor) fn end_pause(&mut self, paused: u32, worth: u32) {
        if self.fd >= 0 && self.has(paused) {
            self.flags = self.flags & !paused | worth;
        }
    }

    /// What is known of a file. It stands in `read_token`, because no read rests in a file.
    #[inline(always)]
    pub(in crate::proactor) fn facts(&self) -> FileFacts {
        FileFacts::from_bits(self.read_token)
    }

    /// Whether the source is a file that takes operations, and whose facts are known.
    #[inline]
    pub(in crate::proactor) fn is_known_file(&self) -> bool {
        const FILE: u32 = (SourceKind::File as u32) << KIND_SHIFT | PREPARED;
        self.flags & (KIND_MASK | PREPARED | CLOSING) == FILE && self.facts().is_known()
    }

    pub(in crate::proactor) fn set_facts(&mut self, facts: FileFacts) {
        self.read_token = facts.bits();
    }

    pub(in crate::proactor) fn is_idle(&self) -> bool {
        !self.has(INLINE_READ | READS | WRITES) && self.polls == NIL
    }

    /// Adds to the flags what the selector has reported, and returns them. (For polls, see
    /// [`note_polls`](SourceState::note_polls).)
    #[inline]
    pub(in crate::proactor) fn apply(&mut self, ready: Ready) -> u32 {
        if PLAIN.contains(ready) {
            self.flags |= u32::from(ready.bits());
        } else {
            self.apply_more(ready);
        }
        self.flags
    }

    /// An event has come: the polls are tried again.
    #[inline]
    pub(in crate::proactor) fn note_polls(&mut self) {
        if self.has(POLLS) {
            self.flags |= POLLED;
        }
    }

    /// Applies conditions other than "readable" and "writable": each makes the directions that it
    /// concerns worth trying.
    #[cold]
    #[inline(never)]
    fn apply_more(&mut self, ready: Ready) {
        if ready.intersects(Ready::READ_SIDE) {
            self.flags |= READABLE;
        }
        if ready.intersects(Ready::WRITE_SIDE) {
            self.flags |= WRITABLE;
        }
        if ready.intersects(Ready::UNSETTLED) {
            self.flags |= UNSETTLED;
        }
    }

    /// Whether the time of the source counts: a read is in flight, and waits for no lease.
    pub(in crate::proactor) fn counts_idle(&self) -> bool {
        self.has_reads() && !self.has(WAITING | HELD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C6: the generations of inline reads wrap, and each of 2^31 differs from the others.
    #[test]
    fn the_tickets_of_inline_reads_wrap() {
        let read_generation = NonZeroU32::new(u32::MAX - 2).unwrap();
        let mut state = SourceState { read_generation, ..SourceState::default() };
        let mut next = || state.start_inline(3, 0, false).generation().get();
        assert_eq!([next(), next(), next()], [u32::MAX, 1, 3]);
    }
}
