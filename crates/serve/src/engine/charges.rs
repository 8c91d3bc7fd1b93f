//! What the program holds for connections: it counts as their own bytes do.

use crate::engine::Engine;
use crate::memory::Charge;
use crate::parts::heads::Reserved;
use crate::parts::table::Place;
use crate::stage::Stage;
use crate::words::id::Id;
use crate::words::refused::Refusal;

/// Whether nothing counts for a connection any more.
fn is_gone<S>(place: &Place<S>) -> bool {
    place.stage >= Stage::Failing
}

impl<S> Engine<S> {
    /// Notes that the program itself holds `bytes` bytes for a connection: a message of which a
    /// part has arrived, for example. They count for [`Limits::memory`](crate::Limits::memory) and
    /// for the [share](crate::memory::Budget) of the connection until the next call, or until the
    /// end of the connection. False for a stale id, and for a session: its program holds single
    /// datagrams.
    ///
    /// Each call replaces the number of the last one. So one part of a program charges a
    /// connection, with the sum of what it holds. [`hold`](Engine::hold) is for parts that do not
    /// know each other, and for memory that leaves the loop. 4 GiB and more count as 4 GiB.
    ///
    /// This is for bytes that come and go with the data of the peer. A connection with a charge
    /// holds bytes, so it takes a share, and with a large charge it is not read. For what each
    /// connection costs as long as it lives, such as the state of a TLS library, lower
    /// [`Limits::connections`](crate::Limits::connections) instead.
    ///
    /// ```
    /// use windlass::Buf;
    /// use windlass_serve::{Engine, Id};
    ///
    /// /// What a connection has sent so far counts for it.
    /// fn take(engine: &mut Engine<Vec<u8>>, id: Id, data: Buf) {
    ///     let Some(all) = engine.state_mut(id) else { return };
    ///     all.extend_from_slice(&data);
    ///     let bytes = all.capacity();
    ///     engine.charge(id, bytes);
    /// }
    /// ```
    pub fn charge(&mut self, id: Id, bytes: usize) -> bool {
        if self.table.unless_session(id).is_none_or(is_gone) {
            return false;
        }
        let index = id.index();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes > 0 || self.table.active_of(index).is_some_and(|active| active.by_program > 0) {
            self.activate(index).by_program = bytes;
            self.recharge(index);
            self.dirty(index);
        }
        true
    }

    /// A [`Charge`] of `bytes` bytes for a connection: it counts until it is dropped. For a stale
    /// id, and for a session, it counts for [`Limits::memory`](crate::Limits::memory) alone.
    pub fn hold(&self, id: Id, bytes: usize) -> Charge {
        let mut charge = Charge::new(&self.memory.by_program, id);
        charge.set(bytes);
        charge
    }

    /// Whether a [`write`](Engine::write) of `bytes` bytes to a connection would be taken now. A
    /// UDP session that lives takes any number: its writes are datagrams.
    ///
    /// # Errors
    /// As for [`write`](Engine::write).
    pub fn would_take(&mut self, id: Id, bytes: usize) -> Result<(), Refusal> {
        match self.table.lives(id) {
            false => Err(Refusal::Stale),
            true if self.table.session(id).is_some() => Ok(()),
            true => self.check_write(id.index(), bytes),
        }
    }

    /// Keeps room for `bytes` bytes of output, as [`Remote::reserve`](crate::Remote::reserve) does
    /// for a thread. Only the output of the connection itself counts against it, and not what is
    /// reserved. So no thread takes the room that the loop needs, and up to twice the cap waits. It
    /// is for output that leaves later, and for output that cannot be made twice.
    ///
    /// ```
    /// use windlass_serve::{Engine, Id, Refusal};
    ///
    /// /// A cipher that has made a record has to send it.
    /// fn send(engine: &mut Engine<u8>, id: Id, text: &[u8]) -> Result<(), Refusal> {
    ///     let room = engine.reserve(id, text.len())?;
    ///     let Some(key) = engine.state_mut(id) else { return Err(Refusal::Stale) };
    ///     let record: Vec<u8> = text.iter().map(|byte| byte ^ *key).collect();
    ///     *key = key.wrapping_add(3);
    ///     engine.use_room(Some(room));
    ///     let written = engine.write_slice(id, &record);
    ///     engine.use_room(None);
    ///     written
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`write`](Engine::write). A session has no room: [`Refusal::Stale`].
    pub fn reserve(&mut self, id: Id, bytes: usize) -> Result<Reserved, Refusal> {
        if self.table.unless_session(id).is_none() {
            return Err(Refusal::Stale);
        }
        let waits = self.waiting(id).saturating_add(bytes);
        if self.table.place(id.index()).takes_no_output() && !self.takes_answers(id.index()) {
            return Err(Refusal::Stale);
        }
        let charged = u32::try_from(bytes).map_err(|_| Refusal::Cap)?;
        if waits > self.config.limits.cap {
            return Err(Refusal::Cap);
        }
        if bytes > self.memory.room && !self.memory.takes(waits, bytes, self.table.active.len()) {
            return Err(Refusal::Memory);
        }
        let heads = self.table.heads();
        heads.charge(id, charged, u32::MAX)?;
        self.memory.budget.change(0, charged);
        Ok(Reserved::new(&heads, &self.memory.budget, id, charged))
    }

    /// Lets writes to a connection use room that was reserved for it, until the next call: they
    /// are not refused for the cap or for memory, up to its number of bytes. What was used before
    /// is dropped; `None` drops it alone.
    pub fn use_room(&mut self, room: Option<Reserved>) {
        self.memory.used_room = room.map(|room| {
            let left = room.bytes();
            (room, left)
        });
    }

    /// Whether the room that is used is for so many bytes of a connection.
    #[inline]
    pub(crate) fn has_room_for(&self, index: u32, len: usize) -> bool {
        let used = self.memory.used_room.as_ref();
        used.is_some_and(|(room, left)| len <= *left && room.id() == self.table.id(index))
    }

    /// Counts for each connection what its charges have changed.
    #[cold]
    pub(crate) fn take_charges(&mut self) {
        let empty = std::mem::take(&mut self.memory.changes);
        let mut changes = self.memory.by_program.take(empty);
        for (id, change) in changes.drain() {
            if self.table.unless_session(id).is_none_or(is_gone) {
                continue;
            }
            let active = self.activate(id.index());
            active.by_charges += change;
            self.recount(id.index());
            self.dirty(id.index());
        }
        self.memory.changes = changes;
    }
}
