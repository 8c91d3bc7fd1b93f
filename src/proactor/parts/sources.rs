//! The sources of a driver: their states by slot, and beside them what only few sources have.
//!
//! A source with a token lacks the flag `BYTES`. The usual reads and writes need this flag, so they
//! need not look for a token.

use std::collections::HashSet;
use std::ops::{Index, IndexMut};

use super::operations::Operations;
use super::state::{
    ABORTING, BYTES, CHANGED, CLOSING, DUPLICATED, INLINE_READ, INLINE_TICKET, PREPARED, READS,
    SourceState, WRITABLE, WRITES,
};
use crate::op::OpCode;
use crate::sys::fork;
use crate::words::error::{Limit, Refusal};
use crate::words::source::{Source, Ticket};
use crate::words::table::{NIL, Table};

/// The sources of a driver, by slot.
pub(in crate::proactor) struct Sources {
    pub(in crate::proactor) table: Table<SourceState>,
    /// Tokens, by slot; 0 is none. Empty until the first is set.
    tokens: Vec<u64>,
    /// The slots of sources whose open file description other code uses. The driver never changes
    /// its flags.
    pub(in crate::proactor) shared: HashSet<u32>,
    pub(in crate::proactor) forks: Forks,
    /// How many sources the program may have. The table has room for the attempts of connects, too.
    most: u32,
    /// The driver is closed: every source has ended, and no more come.
    pub(in crate::proactor) closed: bool,
}

/// What the driver knows of forks of the process.
pub(in crate::proactor) struct Forks {
    /// The generation of the process in which the driver is usable.
    pub(in crate::proactor) generation: u32,
    /// How many forks the process had seen at the last look.
    events: u32,
    /// The slots of sources that another process has open as well, since a fork.
    inherited: HashSet<u32>,
}

impl Index<u32> for Sources {
    type Output = SourceState;

    #[inline(always)]
    fn index(&self, index: u32) -> &SourceState {
        &self.table[index]
    }
}

impl IndexMut<u32> for Sources {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut SourceState {
        &mut self.table[index]
    }
}

impl Sources {
    pub(in crate::proactor) fn new(table: Table<SourceState>) -> Sources {
        let (generation, events) = (fork::generation(), fork::events());
        Sources {
            most: table.limit(),
            table,
            tokens: Vec::new(),
            shared: HashSet::new(),
            forks: Forks { generation, events, inherited: HashSet::new() },
            closed: false,
        }
    }

    /// The name of the source at an index; at `NIL` there is none.
    pub(in crate::proactor) fn name(&self, index: u32) -> Source {
        if index == NIL { Source::NONE } else { self.table[index].name(index) }
    }

    /// The token of an operation on this source whose own token is `own`.
    #[inline]
    pub(in crate::proactor) fn token(&self, source: Source, own: u64) -> u64 {
        if own != 0 || self.tokens.is_empty() { own } else { self.token_of(source) }
    }

    /// The token of a source. (A stale name is refused later.)
    #[cold]
    fn token_of(&self, source: Source) -> u64 {
        self.tokens.get(source.index() as usize).copied().unwrap_or(0)
    }

    /// Gives a source a token; 0 takes it away.
    pub(in crate::proactor) fn set_token(&mut self, index: u32, token: u64) {
        let state = &mut self.table[index];
        let index = index as usize;
        let plain = token == 0 && state.has(PREPARED) && state.takes_bytes();
        state.flags = state.flags & !BYTES | if plain { BYTES } else { 0 };
        if index >= self.tokens.len() {
            if token == 0 {
                return;
            }
            self.tokens.resize(index + 1, 0);
        }
        self.tokens[index] = token;
    }

    /// Notes that a source is prepared. If it has a token, its operations take the longer path.
    pub(in crate::proactor) fn mark_token(&mut self, index: u32) {
        if self.tokens.get(index as usize).is_some_and(|&token| token != 0) {
            self.table[index].flags &= !BYTES;
        }
    }

    /// Notes a fork since the last look. The other process may keep the same descriptors open, and
    /// rely on O_NONBLOCK.
    #[inline]
    pub(in crate::proactor) fn observe_forks(&mut self) {
        if self.forks.events != fork::events() {
            self.observe_fork();
        }
    }

    #[cold]
    fn observe_fork(&mut self) {
        self.forks.events = fork::events();
        for index in self.table.occupied().collect::<Vec<_>>() {
            let state = &mut self.table[index];
            state.flags = state.flags & !CHANGED | DUPLICATED;
            self.forks.inherited.insert(index);
        }
    }

    /// Whether another process may have the source in this slot open as well. (A name that was
    /// reserved for another thread at the fork counts: its handle may have been in the queue.)
    pub(in crate::proactor) fn is_inherited(&self, index: u32) -> bool {
        !self.forks.inherited.is_empty() && self.forks.inherited.contains(&index)
    }

    /// The flag for a source whose descriptor was made non-blocking: `CHANGED`, or 0 if another
    /// process may rely on that.
    pub(in crate::proactor) fn changed(&mut self, index: u32) -> u32 {
        self.observe_forks();
        if self.is_inherited(index) { 0 } else { CHANGED }
    }

    /// Vacates a slot. The next source in it inherits nothing of this one.
    pub(in crate::proactor) fn vacate(&mut self, index: u32) {
        if !self.forks.inherited.is_empty() {
            self.forks.inherited.remove(&index);
        }
        if !self.shared.is_empty() {
            self.shared.remove(&index);
        }
        if let Some(token) = self.tokens.get_mut(index as usize) {
            *token = 0;
        }
        let state = &mut self.table[index];
        state.fd = -1;
        state.flags = 0;
        self.table.vacate(index);
    }

    /// Why a source was not found.
    #[cold]
    pub(in crate::proactor) fn stale(&self) -> Refusal {
        if self.closed { Refusal::Closed } else { Refusal::Stale }
    }

    #[inline(always)]
    pub(in crate::proactor) fn check_fork(&self) -> Result<(), Refusal> {
        if self.forks.generation == fork::generation() { Ok(()) } else { Err(Refusal::Forked) }
    }

    #[inline]
    pub(in crate::proactor) fn check_open(&self) -> Result<(), Refusal> {
        self.check_fork()?;
        if self.closed { Err(Refusal::Closed) } else { Ok(()) }
    }

    /// All slots are taken.
    #[cold]
    pub(in crate::proactor) fn full(&self) -> Refusal {
        Refusal::Full { limit: Limit::Sources, count: self.most as usize }
    }

    /// Whether there can be another source.
    #[inline]
    pub(in crate::proactor) fn check_room(&self) -> Result<(), Refusal> {
        self.check_open()?;
        let is_full = self.table.len() >= self.table.limit();
        if is_full { Err(self.full()) } else { Ok(()) }
    }

    /// The state of a source, to look at.
    pub(in crate::proactor) fn peek(&self, source: Source) -> Option<&SourceState> {
        let state = self.table.look(source.index(), source.generation())?;
        if state.has(ABORTING) { None } else { Some(state) }
    }

    /// Whether a ticket belongs to a read that rests in its source.
    pub(in crate::proactor) fn is_inline(&self, ticket: Ticket) -> bool {
        self.table.peek(ticket.index() & !INLINE_TICKET).is_some_and(|state| {
            state.has(INLINE_READ) && state.read_generation == ticket.generation()
        })
    }

    /// A shutdown or a close has failed. The source takes operations again, unless it is aborted.
    pub(in crate::proactor) fn close_failed(&mut self, index: u32, code: OpCode) {
        let state = &mut self[index];
        if code == OpCode::Close && !state.has(ABORTING) {
            state.flags &= !CLOSING;
            if !state.has(WRITES) {
                // The close may have waited for a read. No event tells the next write to begin.
                state.flags |= WRITABLE;
            }
        }
    }

    /// The slot of a read that rested in its source when it was submitted.
    pub(in crate::proactor) fn moved_read(&self, ops: &Operations, ticket: Ticket) -> Option<u32> {
        // Such a read stays ahead of all reads that come after it, so it is the head or has ended.
        let state = self.table.peek(ticket.index() & !INLINE_TICKET)?;
        if !state.has(READS) {
            return None;
        }
        let op = &ops[state.reads.head];
        let is_it = op.code == OpCode::Read && op.count == ticket.generation().get();
        is_it.then_some(state.reads.head)
    }
}
