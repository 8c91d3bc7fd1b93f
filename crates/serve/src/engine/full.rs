//! Connections with much output: their reads stop, or go on if the program wants that.
//!
//! # Why
//! A full connection is not read, so that a peer that never reads gets no further answers. This is
//! right where output answers input. It is wrong where both are independent: a client that sends a
//! long request would not hear the response that its server sends in the middle of it, and a tunnel
//! would stand still in both directions as soon as one peer does not read.

use crate::engine::Engine;
use crate::parts::table::{FILLED, FULL, HEARS};
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Whether a connection has so much output that [`Event::Drained`](crate::Event::Drained) will
    /// follow: more than [`Limits::high`](crate::Limits::high) bytes wait, or have waited since the
    /// last one, or [`Limits::files`](crate::Limits::files) files wait. A program that makes data
    /// without end stops here. False for a stale id, and for a session.
    pub fn is_full(&mut self, id: Id) -> bool {
        if self.table.unless_session(id).is_none() {
            return false;
        }
        let limits = self.config.limits;
        self.is_marked_full(id.index())
            || self.waiting(id) > limits.high
            || self.waiting_files(id) >= limits.files
    }

    /// Whether a connection does not keep up: as [`is_full`](Engine::is_full), but what was written
    /// in this turn does not count, however much it is: no peer could have read it yet. A program
    /// that tells the same to many ends or skips such a connection.
    pub fn is_behind(&self, id: Id) -> bool {
        self.table.unless_session(id).is_some() && self.is_marked_full(id.index())
    }

    /// Sets whether a connection is read although it is [full](Engine::is_full). Default false.
    /// False for a stale id, for a session, and for a connection that closes.
    ///
    /// For connections whose output does not answer their input: a client that sends a long
    /// request, whose server may respond before it has read all of it; a tunnel between two
    /// connections. Without this, such a client hears the response only when its request has gone.
    ///
    /// The program bounds what it makes of the data: a peer that sends and never reads is no longer
    /// held back by itself. [`Event::Drained`](crate::Event::Drained), the limit of stalled output
    /// and the [share](crate::memory::Budget) of the memory stay as they are. The idle limit runs
    /// while the connection is full, as it does for each connection that is read.
    ///
    /// A connection that moves to a loop leaves this behind. One with this setting has the memory
    /// that another one has only while output waits.
    ///
    /// ```
    /// use windlass_serve::{Engine, Id};
    ///
    /// /// Sends a request, as long as it is.
    /// fn ask(engine: &mut Engine<()>, id: Id, request: Vec<u8>) -> bool {
    ///     engine.read_when_full(id, true) && engine.write(id, request).is_ok()
    /// }
    /// # let _ = ask;
    /// ```
    pub fn read_when_full(&mut self, id: Id, on: bool) -> bool {
        let Some(place) = self.table.unless_session(id) else { return false };
        if place.is_to_end() {
            return false;
        }
        let index = id.index();
        if !on && self.table.active_of(index).is_none_or(|active| active.keeps & HEARS == 0) {
            return true;
        }
        let was_full = self.is_marked_full(index);
        self.mark_room(index);
        let active = self.activate(index);
        active.keeps = if on { active.keeps | HEARS } else { active.keeps & !HEARS };
        if was_full {
            self.fill(index);
        }
        self.note_reads(index);
        self.dirty(index); // the flush reads on
        true
    }

    /// Whether `Drained` is to follow.
    pub(crate) fn is_marked_full(&self, index: u32) -> bool {
        self.table.place(index).flags & FULL != 0 || self.table.keeps(index) & FILLED != 0
    }

    /// Too much output waits for a connection: `Drained` follows. Its reads stop, unless the
    /// program wants them.
    pub(crate) fn fill(&mut self, index: u32) {
        if self.is_marked_full(index) {
            return;
        }
        match self.table.active_of(index) {
            Some(active) if active.keeps & HEARS != 0 => active.keeps |= FILLED,
            _ => {
                self.table.place_mut(index).flags |= FULL;
                self.note_reads(index);
            }
        }
    }

    /// There is room for more output.
    pub(crate) fn mark_room(&mut self, index: u32) {
        let place = self.table.place_mut(index);
        if place.flags & FULL != 0 {
            place.flags &= !FULL;
            self.note_reads(index);
        }
        if let Some(active) = self.table.active_of(index) {
            active.keeps &= !FILLED;
        }
    }
}
