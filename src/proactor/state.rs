//! What the proactor remembers of a source: its descriptor, its readiness, a queue per direction.

use std::num::NonZeroU32;
use std::os::fd::RawFd;

use crate::interest::Ready;
use crate::slots::{Entry, NOWHERE, Operation, Table};
use crate::source::{Kind, Source};

/// A read is worth trying.
pub(super) const READABLE: u16 = 1;
/// A write is worth trying.
pub(super) const WRITABLE: u16 = 1 << 1;
/// A short read does not prove that nothing is left.
pub(super) const UNSETTLED: u16 = 1 << 2;
/// The selector knows the descriptor.
pub(super) const REGISTERED: u16 = 1 << 3;
/// It stands in the ready queue.
pub(super) const QUEUED: u16 = 1 << 4;
/// A close operation is accepted: nothing more is.
pub(super) const CLOSING: u16 = 1 << 5;
/// The name is kept for another thread and has no descriptor yet.
pub(super) const RESERVED: u16 = 1 << 6;
/// The open file description is somebody else's, too.
pub(super) const SHARED: u16 = 1 << 7;
/// We have set O_NONBLOCK.
pub(super) const CHANGED: u16 = 1 << 8;
/// There may be duplicates, so that closing does not end the registration.
pub(super) const DUPLICATED: u16 = 1 << 9;
/// Its reads wait for a lease, or its accepts for room.
pub(super) const WAITING: u16 = 1 << 10;
/// Reads (accepts) are not tried until a time has come.
pub(super) const READ_PAUSED: u16 = 1 << 11;
/// Writes are not tried until a time has come.
pub(super) const WRITE_PAUSED: u16 = 1 << 12;
/// An event has come for its polls.
pub(super) const POLLED: u16 = 1 << 13;
/// It belongs to a connect operation.
pub(super) const CONNECTING: u16 = 1 << 14;
/// What it is is known, and its calls do not block.
pub(super) const PREPARED: u16 = 1 << 15;

/// A first-in-first-out list of operations, linked through their places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) head: u32,
    tail: u32,
}

impl Queue {
    const EMPTY: Queue = Queue {
        head: NOWHERE,
        tail: NOWHERE,
    };

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NOWHERE
    }

    #[inline]
    pub(super) fn push(&mut self, slots: &mut Table<Operation>, slot: u32) {
        let tail = self.tail;
        let op = &mut slots[slot];
        op.next = NOWHERE;
        op.previous = tail;
        if tail == NOWHERE {
            self.head = slot;
        } else {
            slots[tail].next = slot;
        }
        self.tail = slot;
    }

    #[inline]
    pub(super) fn remove(&mut self, slots: &mut Table<Operation>, slot: u32) {
        let (previous, next) = (slots[slot].previous, slots[slot].next);
        if previous == NOWHERE {
            self.head = next;
        } else {
            slots[previous].next = next;
        }
        if next == NOWHERE {
            self.tail = previous;
        } else {
            slots[next].previous = previous;
        }
    }
}

/// A source.
#[derive(Debug)]
pub(super) struct State {
    generation: u32,
    pub(super) fd: RawFd,
    pub(super) reads: Queue,
    pub(super) writes: Queue,
    pub(super) polls: Queue,
    pub(super) flags: u16,
    pub(super) kind: Kind,
    next_vacant: u32,
}

const _: () = assert!(size_of::<State>() <= 48);

impl Default for State {
    fn default() -> State {
        State {
            generation: 0,
            fd: -1,
            reads: Queue::EMPTY,
            writes: Queue::EMPTY,
            polls: Queue::EMPTY,
            flags: 0,
            kind: Kind::Unknown,
            next_vacant: NOWHERE,
        }
    }
}

impl Entry for State {
    #[inline(always)]
    fn generation(&self) -> u32 {
        self.generation
    }
    #[inline(always)]
    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }
    #[inline(always)]
    fn next_vacant(&self) -> u32 {
        self.next_vacant
    }
    #[inline(always)]
    fn set_next_vacant(&mut self, index: u32) {
        self.next_vacant = index;
    }
}

impl State {
    /// A fresh source in an occupied place. What it is is known, or asked at its first operation;
    /// until then nothing is worth trying.
    pub(super) fn open(&mut self, fd: RawFd, kind: Kind, flags: u16) {
        let known = !matches!(kind, Kind::Unknown | Kind::Pollable | Kind::Listener);
        self.fd = fd;
        self.kind = kind;
        self.flags = flags
            | if known {
                PREPARED | READABLE | WRITABLE
            } else {
                0
            };
        self.reads = Queue::EMPTY;
        self.writes = Queue::EMPTY;
        self.polls = Queue::EMPTY;
    }

    #[inline(always)]
    pub(super) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    #[inline(always)]
    pub(super) fn name(&self, index: u32) -> Source {
        Source::from_parts(index, NonZeroU32::new(self.generation).expect("occupied"))
    }

    #[inline(always)]
    pub(super) fn can_read(&self) -> bool {
        self.flags & (READABLE | READ_PAUSED | WAITING) == READABLE && !self.reads.is_empty()
    }

    #[inline(always)]
    pub(super) fn can_write(&self) -> bool {
        self.flags & (WRITABLE | WRITE_PAUSED) == WRITABLE && !self.writes.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.polls.is_empty()
    }

    /// Remembers what the selector has reported; true when an operation is worth trying.
    #[inline(always)]
    pub(super) fn apply(&mut self, ready: Ready) -> bool {
        let mut flags = self.flags;
        if ready.intersects(Ready::READ_SIDE) {
            flags |= READABLE;
        }
        if ready.intersects(Ready::WRITE_SIDE) {
            flags |= WRITABLE;
        }
        if ready.intersects(Ready::UNSETTLED) {
            flags |= UNSETTLED;
        }
        self.flags = flags;
        if !self.polls.is_empty() {
            self.flags |= POLLED;
            return true;
        }
        self.can_read() || self.can_write()
    }
}
