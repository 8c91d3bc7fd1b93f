//! The end of a connection that fails: how much of its output the system has taken.
//!
//! # Why
//!
//! A kernel that completes takes bytes of a write before it answers, and until then all of them
//! count as queued. A connection that fails with a write in flight would say that none was sent. So
//! the engine cancels its operations first, and keeps its place until all of them have answered.
//! The answers of writes say how much was sent. The last of them says whether the peer gets an end
//! of file or a reset.

use std::time::Duration;

use windlass::driver::{Driver, OpCode};
use windlass::{Completion, Op, Source, Watcher};

use crate::engine::Engine;
use crate::engine::ends::reset_at_close;
use crate::parts::files::Files;
use crate::parts::table::{ABORT, Active, Failing};
use crate::stage::{Stage, Step};
use crate::words::cause::Cause;
use crate::words::event::Event;
use crate::words::id::Id;

/// How long the system may take for its answers. Most come before the cancel returns. A thread of
/// the kernel may have the write, and answers as soon as it runs.
const ANSWER_TIME: Duration = Duration::from_millis(100);

impl<S> Engine<S> {
    /// Ends a connection that is no session: at once if none of its output is in flight.
    pub(crate) fn fail<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, cause: Cause) {
        let place = self.table.place(index);
        let source = place.source;
        if place.stage == Stage::Failing {
            return;
        }
        // What a failed write has not sent may be on its way: then the wait for the end of the
        // output is, too.
        let in_flight = self.table.is_draining(index)
            || self.files_of(index).is_some_and(Files::is_sending)
            || watcher.queued_bytes(source).unwrap_or(0) > 0;
        if !in_flight {
            return self.fail_at_once(watcher, index, cause);
        }
        let queued = self.queued(watcher, index);
        watcher.cancel_all(source);
        // It completes behind the writes: until they have ended, their bytes are queued.
        let wait = Op::wait_drained(source, 0).timeout(ANSWER_TIME).token(self.token(index));
        let Ok(wait) = watcher.submit(wait) else {
            return self.fail_with(watcher, index, cause, queued);
        };
        let phase = self.phase(index);
        self.refuse_output_of_stream(index);
        self.unsweep(index);
        self.clocks.deadlines.forget(self.table.id(index));
        let place = self.table.place_mut(index);
        place.flags |= ABORT;
        place.advance(Step::Fail);
        let active = self.activate(index);
        active.cause.get_or_insert(cause);
        active.unsent += active.drop_output();
        let most = active.unsent + queued;
        active.failing = Some(Failing { phase, wait, most, is_cut: false });
        if let Some(files) = active.files.as_deref_mut() {
            active.unsent += files.drop_queue();
        }
        self.recharge(index);
        self.hold_nothing(index);
    }

    /// Whether a connection is there, and has not failed.
    pub(crate) fn has_not_failed(&self, id: Id) -> bool {
        self.table.get(id).is_some_and(|place| place.stage < Stage::Failing)
    }

    /// Ends a connection at once. What the system has not answered for counts as not sent.
    pub(crate) fn fail_at_once<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        cause: Cause,
    ) {
        if self.table.place(index).stage == Stage::Failing {
            return self.end_failing(watcher, index, false);
        }
        let queued = self.queued(watcher, index);
        self.fail_with(watcher, index, cause, queued);
    }

    /// Ends a connection at once. `queued` bytes of its output are not sent.
    fn fail_with<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        cause: Cause,
        queued: usize,
    ) {
        let unsent = |active: &Active| active.unsent + active.corked > 0 || active.files.is_some();
        self.thaw(index);
        // A proxy learns by the reset that the server has not seen its client. (One that has ended
        // its side has only looked whether the server is there.)
        let place = self.table.place(index);
        let source = place.source;
        let is_agreeing = place.stage == Stage::Handshake && !self.is_upgrading(index);
        let was_not_seen = is_agreeing && cause != Cause::Eof;
        let has_unsent = queued > 0 || self.table.active_of(index).is_some_and(|a| unsent(a));
        self.close_now(watcher, index, source, has_unsent || was_not_seen, cause);
        self.end_connection(watcher, index, cause, queued);
    }

    /// Takes a completion of a connection that has failed.
    #[cold]
    pub(crate) fn answered<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        match completion.code() {
            OpCode::Write => {
                let left = self.left_of_write(index, &mut completion);
                let active = self.activate(index);
                active.unsent += left;
                if let Some(failing) = &mut active.failing {
                    failing.is_cut |= completion.result.is_err();
                }
            }
            OpCode::SendFile => return self.part_sent(watcher, index, &completion),
            OpCode::WaitDrained => {
                let ticket = completion.ticket();
                let active = self.table.active_of(index)?;
                if active.failing.as_ref().is_some_and(|failing| failing.wait == ticket) {
                    self.end_failing(watcher, index, completion.result.is_ok());
                }
            }
            _ => {}
        }
        None
    }

    /// Ends a connection that has failed. `is_known` says whether all answers have come.
    fn end_failing<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32, is_known: bool) {
        let source = self.table.place(index).source;
        let active = self.activate(index);
        if !is_known && let Some(failing) = &active.failing {
            active.unsent = failing.most;
        }
        let (unsent, cause) = (active.unsent, active.cause.unwrap_or(Cause::Aborted));
        // A record without text can be missing, too: `close_notify`, or an alert.
        let is_cut = active.failing.as_ref().is_some_and(|failing| failing.is_cut);
        self.close_now(watcher, index, source, unsent > 0 || is_cut, cause);
        self.end_connection(watcher, index, cause, 0);
    }

    /// Closes the socket of a connection, and the file that it sends.
    fn close_now<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        source: Source,
        resets: bool,
        cause: Cause,
    ) {
        let end = if resets { None } else { self.last_words(index, cause) };
        if resets {
            reset_at_close(watcher, source);
        }
        if let Some(end) = end {
            self.table.place_mut(index).source = Source::NONE;
            watcher.cancel_all(source);
            self.say_last(watcher, source, end);
        } else {
            watcher.abort(source);
        }
        if self.files_of(index).is_some() {
            self.drop_files(watcher, index);
        }
    }
}
