//! The last part of a close: a shutdown behind the output, then a wait for the end of the peer.
//!
//! A close(2) with unread input, or input that comes after it, makes the system reset the
//! connection and drop the output that the peer has not acknowledged: the last answer. So a
//! connection first shuts down its output, and closes when the peer has closed, too.

use windlass::driver::{Driver, OpCode};
use windlass::{Buf, Completion, Done, ErrorKind, Op, Source, Watcher};

use crate::engine::ends::reset_at_close;
use crate::engine::{Engine, REFUSED};
use crate::parts::table::{CLOSE_SENT, ENDED, READING};
use crate::stage::{Stage, Step};
use crate::words::cause::Cause;

/// How many refused connections may wait for their peers to take the farewell.
const MOST_REFUSED: usize = 1024;

impl<S> Engine<S> {
    /// All output of a connection is submitted: closes it behind that.
    pub(crate) fn begin_close<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        // No more of its input is delivered.
        self.unlimit(index);
        self.look_at_peer(watcher, index);
        if let Some(active) = self.table.active_of(index) {
            active.held.clear();
            active.held_bytes = 0;
        }
        self.recharge(index);
        self.say_end(watcher, index);
        let place = self.table.place(index);
        let source = place.source;
        if place.flags & ENDED != 0 || self.config.limits.linger.is_zero() {
            // The peer has ended its side: no further byte of it can cause a reset.
            return self.submit_close(watcher, index);
        }
        self.sweep_later(watcher, index);
        if watcher.submit(Op::shutdown(source).token(self.token(index))).is_err() {
            return self.submit_close(watcher, index);
        }
        self.read_on(watcher, index);
    }

    fn submit_close<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        self.sweep_later(watcher, index);
        let place = self.table.place_mut(index);
        let source = place.source;
        place.flags |= CLOSE_SENT;
        if watcher.submit(Op::close(source).token(self.token(index))).is_err() {
            self.fail(watcher, index, Cause::Rejected);
        }
    }

    /// Reads the further bytes of a closing connection's peer.
    pub(crate) fn read_on<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        let source = place.source;
        if place.flags & (READING | ENDED | CLOSE_SENT) != 0 {
            return;
        }
        match watcher.submit(Op::read(source).multishot().token(self.token(index))) {
            Ok(_) => self.table.place_mut(index).flags |= READING,
            Err(_) => self.fail(watcher, index, Cause::Rejected),
        }
    }

    /// Drops bytes of a closing connection's peer, or notes that the peer has ended.
    pub(crate) fn read_while_closing<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        is_eof: bool,
    ) {
        if !is_eof {
            return self.read_on(watcher, index);
        }
        let place = self.table.place_mut(index);
        place.flags |= ENDED;
        if place.stage == Stage::Lingering && place.flags & CLOSE_SENT == 0 {
            self.submit_close(watcher, index);
        }
    }

    /// The shutdown of a closing connection is done: the system has taken all its output.
    pub(crate) fn shut_while_closing<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        failed: Option<ErrorKind>,
    ) {
        let place = self.table.place(index);
        if place.stage != Stage::Closing || place.flags & CLOSE_SENT != 0 {
            return; // An earlier half-close has ended, or the close follows.
        }
        match failed {
            Some(ErrorKind::Os(errno)) => self.fail(watcher, index, Cause::Os(errno)),
            // A write before it has failed, and its end follows. Or an earlier half-close was
            // cancelled for a detach, and the close's own follows.
            Some(ErrorKind::Torn | ErrorKind::Cancelled) => {}
            Some(_) => self.fail(watcher, index, Cause::Rejected),
            None if self.table.place(index).flags & ENDED != 0 => self.submit_close(watcher, index),
            None => {
                self.table.place_mut(index).advance(Step::OutputTaken);
                // The limit of the close ends here. The linger has a timer of its own, because the
                // steps of the sweep can be longer than it.
                self.unsweep(index);
                let source = self.table.place(index).source;
                let timer = Op::timer(self.config.limits.linger).owned_by(source);
                if watcher.submit(timer.token(self.token(index))).is_err() {
                    self.submit_close(watcher, index);
                }
            }
        }
    }

    /// The peer of a connection has not closed in time.
    pub(crate) fn lingered<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        if place.stage == Stage::Lingering && place.flags & CLOSE_SENT == 0 {
            self.fail(watcher, index, Cause::Closed);
        }
    }

    /// Sends the farewell to a connection for which there is no room, and closes it.
    #[cold]
    pub(crate) fn say_farewell<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        source: Source,
        is_plain: bool,
    ) {
        // A client of TLS cannot read it.
        let farewell = if is_plain { self.config.farewell } else { b"" };
        self.say_last(watcher, source, farewell.into());
    }

    /// Sends the last bytes to a connection that is not opened, and closes it.
    #[cold]
    pub(crate) fn say_last<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        source: Source,
        farewell: Buf,
    ) {
        let (token, limits) = (self.token(REFUSED), self.config.limits);
        let linger = Some(limits.linger).filter(|linger| {
            !farewell.is_empty() && !linger.is_zero() && self.entrance.refused < MOST_REFUSED
        });
        if !farewell.is_empty() {
            let mut write = Op::write(source, farewell).quiet().token(token);
            // What has the shorter time behind it looks at what is left of the write. Two that end
            // at once would not see it.
            if linger.is_none_or(|linger| limits.close < linger) {
                write = write.timeout(limits.close);
            }
            let _ = watcher.submit(write);
        }
        let waits = match linger {
            // The peer may have sent bytes already. A close would reset the connection.
            Some(linger) => {
                let shutdown = Op::shutdown(source).token(token);
                let read = Op::read(source).multishot().timeout(linger).token(token);
                watcher.submit(shutdown).is_ok() && watcher.submit(read).is_ok()
            }
            None => watcher.submit(Op::close(source).token(token)).is_ok(),
        };
        if !waits {
            if watcher.queued_bytes(source).unwrap_or(0) > 0 {
                // The peer must not take a part of the farewell for all of it.
                reset_at_close(watcher, source);
            }
            watcher.abort(source);
        } else if linger.is_some() {
            self.entrance.refused += 1;
        }
    }

    /// Whether refused connections wait for their peers to take the farewell.
    pub(crate) fn says_farewells(&self) -> bool {
        self.entrance.refused > 0
    }

    /// An operation of a refused connection has ended. A peer that has ended its side may still
    /// read: then the connection closes when the rest of the farewell is sent, for which it has
    /// [`Limits::linger`](crate::Limits::linger) from then on.
    pub(crate) fn refused_completed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        completion: &Completion,
    ) {
        let (source, code) = (completion.source, completion.code());
        let is_over = match &completion.result {
            Ok(Done::Read(data)) => data.is_empty() || !completion.has_more(),
            Ok(_) => code == OpCode::WaitDrained,
            Err(_) => true,
        };
        // A connection is counted while its read is in flight, or the wait behind it.
        let is_last = matches!(code, OpCode::Read | OpCode::WaitDrained) && !completion.has_more();
        let rest = watcher.queued_bytes(source).unwrap_or(0);
        let has_ended = matches!(&completion.result, Ok(Done::Read(data)) if data.is_eof());
        if has_ended && rest > 0 {
            let wait = Op::wait_drained(source, 0).timeout(self.config.limits.linger);
            if watcher.submit(wait.token(self.token(REFUSED))).is_ok() {
                return;
            }
        }
        if is_last {
            self.entrance.refused -= 1;
        }
        if is_over {
            if rest > 0 || code != OpCode::Read && completion.result.is_err() {
                reset_at_close(watcher, source);
            }
            watcher.abort(source);
        }
    }
}
