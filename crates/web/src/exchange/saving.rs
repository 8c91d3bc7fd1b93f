//! Bodies that are saved to files: how these files go on.

use std::path::PathBuf;

use windlass_serve::Engine;
use windlass_serve::ops::Completed;

use super::operations::WaitsForOp;
use super::program::Program;
use super::receive::{Bytes, Receiving};
use super::saves::SaveHandle;
use super::{Machine, Slot, Stage, Wire};
use crate::message::save::{Save, is_shortage};

impl<K: 'static> Machine<K> {
    /// Begins to save bytes that a connection brings.
    pub(super) fn begin_save(
        &mut self,
        wire: &mut Wire<'_, K>,
        path: PathBuf,
        save: Save,
    ) -> SaveHandle {
        let charge = wire.engine.hold(wire.id, 0);
        let file = self.saves.begin(path, save, wire.id, charge);
        self.go_on_saving(wire.engine, file.place());
        file
    }

    /// Submits what a file does next.
    pub(super) fn go_on_saving(&mut self, engine: &mut Engine<Slot<K>>, place: u32) {
        self.saves.share(engine.budget().share());
        if let Some(op) = self.saves.next_op(place) {
            self.submit(engine, op, WaitsForOp::Save(place));
        }
    }

    /// All bytes of a body have come.
    pub(super) fn end_of_saved(&mut self, wire: &mut Wire<'_, K>, receiving: &Receiving<K>) {
        if let Some(file) = &receiving.file {
            self.saves.finish(file);
            self.go_on_saving(wire.engine, file.place());
        }
    }

    /// Removes the files whose connection has ended. It is called behind each callback.
    #[inline]
    pub(crate) fn forget_dropped(&mut self, engine: &mut Engine<Slot<K>>) {
        while let Some(place) = self.saves.next_dropped() {
            self.go_on_saving(engine, place);
            self.saves.forget_over(place);
        }
    }

    /// The operation of a file has ended.
    pub(super) fn save_went_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        engine: &mut Engine<Slot<K>>,
        place: u32,
        ended: Completed,
    ) {
        let result = ended.result.as_ref().map(|completion| completion.result.as_ref().err());
        if ended.file.is_err() || result.is_ok_and(|error| error.is_some_and(is_shortage)) {
            self.loads.close_all();
        }
        let id = self.saves.completed(place, ended);
        self.go_on_saving(engine, place);
        self.saves.forget_over(place);
        if let Some(id) = id {
            self.file_went_on(program, &mut Wire { engine, id }, place);
        }
    }

    /// A body that waits for its file may go on.
    fn file_went_on<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        wire: &mut Wire<'_, K>,
        place: u32,
    ) {
        let saves = &self.saves;
        let Some(slot) = wire.slot() else { return };
        let Some(Stage::Receive(receiving)) = slot.exchange.as_mut().map(|one| &mut one.stage)
        else {
            return;
        };
        let is_its_own = receiving.file.as_ref().is_some_and(|file| file.place() == place);
        if !is_its_own || receiving.waits_for_disk(saves) {
            return;
        }
        // A file that has failed takes none, and its client is not told to go on.
        let takes_bytes = receiving.file.as_ref().is_some_and(|file| saves.room(file) > 0);
        let Some(mut exchange) = slot.exchange.take() else { return };
        let input = std::mem::take(&mut exchange.input);
        let has_ended = std::mem::take(&mut exchange.peer.has_ended);
        if std::mem::take(&mut exchange.is_paused) {
            wire.engine.watch_peer(wire.id, false);
            wire.engine.resume(wire.id);
            if takes_bytes {
                exchange = self.expect_body(wire, exchange);
            }
        }
        self.keep(program, wire, exchange, Bytes::Copied(input), 0);
        self.flush(wire);
        if has_ended {
            self.eof(program, wire);
        }
    }
}
