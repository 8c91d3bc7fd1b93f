//! Streams: connections as values.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use windlass::Buf;
use windlass::Watcher;
use windlass::driver::Driver;

use crate::engine::Engine;
use crate::handles::remote::Remote;
use crate::handles::stream::{Link, Owner, State, Stream};
use crate::inbox::Ask;
use crate::parts::deadlines::Kind;
use crate::parts::side::StreamSide;
use crate::parts::table::{ENDED, HELD, PAUSED, SHUT, SHUTTING};
use crate::stage::Step;
use crate::words::cause::Cause;
use crate::words::event::Event;
use crate::words::id::Id;

impl<S> Engine<S> {
    /// Makes a [`Stream`] of a connection: from now on its bytes go there, first those that were
    /// held back. `waker` is called when it becomes readable or writable, and when it ends.
    ///
    /// `None` for a stale id, for a connection that closes, detaches or has a stream already, and
    /// for a session.
    ///
    /// The stream pauses and resumes the connection itself. A connection with a stream does not
    /// [move](crate::Conn::move_to_loop). [`detach`](Engine::detach) ends the
    /// stream with [`Cause::Closed`], and hands over its unread bytes. If the program closes the
    /// connection by other means than the stream, writes of the stream that wait for the loop are
    /// dropped, and [counted](crate::report::Counters::stale_writes).
    pub fn stream<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        waker: Waker,
    ) -> Option<Stream> {
        self.share(watcher);
        self.make_stream(id, waker)
    }

    /// As `stream`, for an engine whose `Remote` exists.
    pub(crate) fn make_stream(&mut self, id: Id, waker: Waker) -> Option<Stream> {
        let shared = self.outside.shared.clone()?;
        let (index, place) = (id.index(), self.table.unless_session(id)?);
        let flags = place.flags;
        if place.is_to_end() || self.stream_of(index).is_some() {
            return None;
        }
        let limits = self.config.limits;
        let state = State {
            input: VecDeque::new(),
            waker,
            eof: flags & ENDED != 0,
            input_over: false,
            paused: false,
            output_over: flags & (SHUT | SHUTTING) != 0,
            closed: false,
            wants_room: false,
            wants_memory: None,
            deadlines: [None; 2],
            cause: None,
        };
        self.keeps(index);
        let kept = self.activate(index).kept.get_or_insert_default().clone();
        let link = Arc::new(Link {
            id,
            remote: Remote { loops: [shared].into(), threads: None },
            budget: self.memory.budget.clone(),
            kept,
            cap: limits.cap,
            high: limits.high,
            low: limits.low,
            state: Mutex::new(state),
        });
        // Data of a connection with held data takes the slow path, which looks for a stream.
        self.resume(id);
        self.table.place_mut(index).flags |= HELD;
        let active = self.activate(index);
        active.stream = Some(link.clone());
        let held = std::mem::take(&mut active.held);
        active.held_bytes = 0;
        self.recharge(index);
        self.dirty(index);
        for data in held {
            self.stream_input(index, data);
        }
        Some(Stream { owner: Arc::new(Owner(link)) })
    }

    /// The stream of a connection, if it has one.
    pub(crate) fn stream_of(&mut self, index: u32) -> Option<&Arc<dyn StreamSide>> {
        self.table.active_of(index)?.stream.as_ref()
    }

    /// The program ends the output of a connection: its stream takes no more of it.
    pub(crate) fn refuse_output_of_stream(&mut self, index: u32) {
        if let Some(stream) = self.stream_of(index) {
            stream.refuse_output();
        }
    }

    /// Gives data, or the end of the input, to the stream of a connection.
    #[cold]
    pub(crate) fn stream_input(&mut self, index: u32, data: Buf) -> Option<Event<S>> {
        let link = Arc::clone(self.stream_of(index)?);
        let place = self.table.place_mut(index);
        if data.is_empty() {
            place.flags |= ENDED;
            place.advance(Step::SideEnded);
            let is_shut = place.flags & SHUTTING != 0;
            link.push_eof();
            if is_shut {
                self.close_as(self.table.id(index), Cause::Eof);
            }
        } else {
            if link.push(&data) {
                place.flags |= PAUSED;
                self.note_reads(index);
            }
            if self.activate(index).kept.as_ref().is_some_and(|kept| !kept.is_empty()) {
                let id = self.table.id(index);
                if self.memory.keepers.last() != Some(&id) {
                    self.memory.keepers.push(id);
                }
            }
            self.recount(index);
        }
        None
    }

    /// Does what a stream asks for.
    pub(crate) fn stream_asks(&mut self, id: Id, ask: Ask) {
        match ask {
            Ask::Resume => _ = self.resume(id),
            Ask::Shutdown => _ = self.shutdown(id),
            Ask::Memory => self.memory.waiters.push(id),
            Ask::Deadlines => self.take_deadlines(id),
        }
    }

    /// Takes the deadlines that a stream was given.
    fn take_deadlines(&mut self, id: Id) {
        if self.table.get(id).is_none() {
            return;
        }
        let Some(link) = self.stream_of(id.index()) else { return };
        let deadlines = link.take_deadlines();
        for (kind, deadline) in [Kind::Read, Kind::Write].into_iter().zip(deadlines) {
            if let Some(deadline) = deadline {
                self.set_deadline_of(id, kind, deadline);
            }
        }
    }
}
