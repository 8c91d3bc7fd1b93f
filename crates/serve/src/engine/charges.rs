//! What the program holds for connections: it counts as their own bytes do.

use crate::engine::Engine;
use crate::memory::Charge;
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

    /// Whether a [`write`](Engine::write) of `bytes` bytes to a connection would be taken now. This
    /// is for a program that cannot make its output twice. Any number is taken for a UDP session
    /// that lives, whose writes are datagrams.
    ///
    /// ```
    /// use windlass_serve::{Engine, Id, Refusal};
    ///
    /// /// A cipher that has made a record has to send it.
    /// fn send(engine: &mut Engine<u8>, id: Id, text: &[u8]) -> Result<(), Refusal> {
    ///     engine.would_take(id, text.len())?;
    ///     let Some(key) = engine.state_mut(id) else { return Err(Refusal::Stale) };
    ///     let record: Vec<u8> = text.iter().map(|byte| byte ^ *key).collect();
    ///     *key = key.wrapping_add(3);
    ///     engine.write_slice(id, &record)
    /// }
    /// ```
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
