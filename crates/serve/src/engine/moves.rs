//! Connections that a thread of their own hands to a loop.

use windlass::driver::Driver;
use windlass::{Source, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::handles::threads::Rest;
use crate::log::LogEvent;
use crate::parts::moves::{Move, Moved, Pack, Parts};
use crate::parts::table::{CONNECTING, DETACH, ENDED, HELD, MOST, OVER, SHUT, SHUTTING};
use crate::words::cause::Cause;
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Lets a connection move; false for a stale id, and on an engine that is no thread of a
    /// connection.
    pub(crate) fn let_move(&mut self, id: Id, pack: Pack<S>) -> bool {
        if !self.is_thread || !self.table.lives(id) {
            return false;
        }
        if self.moves.iter().all(|one| one.id != id) {
            self.moves.push(Move { id, pack, begun: None });
        }
        true
    }

    /// Begins the move of a connection that may move. False if it closes, has shut down its
    /// output, or has a stream.
    pub(crate) fn begin_move(&mut self, id: Id) -> bool {
        let Some(at) = self.moves.iter().position(|one| one.id == id) else { return false };
        let Some(place) = self.table.get(id) else { return false };
        let flags = place.flags;
        if flags & (OVER | DETACH | SHUT | SHUTTING | CONNECTING) != 0 {
            return self.moves[at].begun.is_some();
        }
        if self.stream_of(id.index()).is_some() {
            return false;
        }
        self.moves[at].begun = Some(flags & ENDED != 0);
        self.detach(id)
    }

    /// The index of this loop or thread.
    pub(crate) fn loop_index(&self) -> usize {
        self.table.loop_index()
    }

    /// What this thread has left of its connections.
    pub(crate) fn rest(&self) -> Rest {
        let leave = self.moves.iter().filter(|one| one.begun.is_some()).count();
        match self.table.len {
            0 => Rest::Nothing,
            count if count == leave => Rest::Leaves,
            _ => Rest::Stays,
        }
    }

    /// How many connections this thread was given and has served or refused.
    pub(crate) fn given(&self) -> u64 {
        self.counts.accepted + self.counts.refused + self.counts.passed_on
    }

    /// Whether all connections that may move were told to, since the last call.
    #[inline]
    pub(crate) fn take_told_to_move(&mut self) -> bool {
        std::mem::take(&mut self.was_told_to_move)
    }

    /// Begins the move of all connections that may move.
    pub(crate) fn begin_moves(&mut self) {
        self.was_told_to_move = true;
        let ids: Vec<Id> = self.moves.iter().map(|one| one.id).collect();
        for id in ids {
            self.begin_move(id);
        }
    }

    /// Forgets a connection that has ended or was detached. `Some` if it is to move: how to make
    /// its state one for another thread, and whether its program knows the end of the input.
    pub(crate) fn take_move(&mut self, id: Id) -> Option<(Pack<S>, bool)> {
        let at = self.moves.iter().position(|one| one.id == id)?;
        let one = self.moves.swap_remove(at);
        one.begun.map(|ended| (one.pack, ended))
    }

    /// Counts a move, which was counted as a detach.
    pub(crate) fn count_move(&mut self) {
        self.counts.detached -= 1;
        self.counts.moved += 1;
    }

    /// Counts the end of a connection that no loop could take over.
    pub(crate) fn count_end(&mut self, cause: Cause) {
        self.counts.closed(cause);
    }

    /// The next connection that a thread has handed over.
    pub(crate) fn next_moved(&mut self) -> Option<Box<Moved>> {
        self.arrivals.pop_front()
    }

    /// Serves a connection that a thread has handed over. During a shutdown it closes at once. The
    /// state comes back if there are 2^24 connections.
    pub(crate) fn take_in<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        moved: Parts,
        state: S,
    ) -> Result<Id, S> {
        let Parts { from, handle, undelivered, ended } = moved;
        if self.table.len >= MOST as usize {
            self.count_load(-1);
            return Err(state);
        }
        let source = watcher.attach(handle).unwrap_or(Source::NONE);
        let flags = if ended { ENDED } else { 0 };
        let Some(id) = self.table.insert(source, flags, state) else {
            unreachable!("there are fewer than 2^24")
        };
        if !undelivered.is_empty() {
            self.table.place_mut(id.index()).flags |= HELD;
            let active = self.activate(id.index());
            active.held_bytes = undelivered.iter().map(|data| data.len()).sum();
            active.held.extend(undelivered);
            self.recharge(id.index());
            self.pending.push_back(Pending::Held(id));
        }
        self.log(LogEvent::Moved { id, from });
        if source.is_none() {
            self.abort_as(id, Cause::Rejected);
        } else {
            self.begin(watcher, id);
        }
        if self.refuses {
            self.close_as(id, Cause::Shutdown);
        }
        self.dirty(id.index());
        Ok(id)
    }
}
