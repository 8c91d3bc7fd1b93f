//! Upgrades: a plain connection goes over to TLS, as STARTTLS of SMTP and its like do.
//!
//! # Why
//! From the call on, the connection has its session and the flag `CODED`. So no byte of the peer
//! that the program has not got yet can reach it as plain text, whether it was read ahead, is held
//! back, or arrives. The stage is `Handshake` until both ends have agreed:
//!
//! ```text
//!  written before ──▶ Files::queue ──▶ the handshake ──▶ written after (corked, charged)
//! ```
//!
//! What was written before leaves first, as it does in front of a file. What is written after the
//! call waits among the corked bytes, and the session encrypts it when it can. The reads go on as
//! they are, whatever stops the reads of an open connection: a stop would keep the handshake from
//! its end. So its clock is a timer, and no idle time runs beside it.

use windlass::driver::Driver;
use windlass::{Buf, Done, Error, Op, Ticket, Watcher};

use crate::engine::events::Pending;
use crate::engine::requests::Request;
use crate::engine::{Engine, WORK};
use crate::log::LogEvent;
use crate::parts::cipher::{Failure, SessionState};
use crate::parts::table::{ABORT, CODED, CONNECTING, SHUT};
use crate::parts::transport::{UpgradeAnswer, UpgradeFlight, held_by};
use crate::stage::{Stage, Step};
use crate::words::cause::Cause;
use crate::words::id::Id;
#[cfg(feature = "tls")]
use {
    crate::parts::files::Piece,
    crate::parts::table::{ENDED, HELD, SHUTTING},
    crate::tls::{Role, Session},
    crate::words::refused::{Refusal, Refused},
};

#[cfg(feature = "tls")]
impl<S> Engine<S> {
    /// Lets a plain connection go over to TLS. [`Event::Upgraded`] follows when both ends have
    /// agreed. From then on the program reads and writes plain text, and the peer gets records.
    ///
    /// `role` says which end this is: the server with its [`Tls`](crate::tls::Tls), or the client
    /// with the server's name, a [`Destination`](crate::tls::Destination).
    ///
    /// `rest` has the bytes that the program has read behind the last plain message, such as
    /// [`Input::take_rest`](crate::framing::Input::take_rest) of its input. They have to be the
    /// beginning of the handshake: otherwise the upgrade fails. **A program must not use them
    /// itself.** An attacker between both ends can put plain bytes behind a `STARTTLS`, or behind
    /// the answer to it. A program that takes them for bytes of the session does what the attacker
    /// says in the name of the peer. That is the command injection of CVE-2011-0411, and the
    /// response injection of CVE-2020-14954. For the same reason a program forgets what it has
    /// learnt before the upgrade: a login, or what the server is able to do.
    ///
    /// - What was written before this call leaves as plain text, and files, too, in front of the
    ///   first byte of the handshake.
    /// - What is written after it waits, as it does while a connection connects. It counts for
    ///   [`Limits::cap`](crate::Limits::cap) and [`Limits::memory`](crate::Limits::memory), and
    ///   leaves encrypted, never as plain text.
    /// - No byte that arrives after the call is told as plain text. A pause and full output do not
    ///   hold the handshake up, and hold the data behind it back.
    /// - The handshake may take [`Limits::handshake`](crate::Limits::handshake). If it takes
    ///   longer, the connection ends with [`Cause::ReadTimeout`]. The peer may send 16 KiB
    ///   meanwhile, or what the settings say. No idle time runs, and a [`limit`](Engine::limit)
    ///   stands still and goes on behind the handshake. None can be set meanwhile. Deadlines go on.
    /// - Its flights wait for their [turn](crate::Limits::handshakes_per_turn), or for
    ///   [workers](crate::tls::Handshakes), as those of other handshakes do.
    ///   [`Limits::handshakes_waiting`](crate::Limits::handshakes_waiting) counts them, and refuses
    ///   none: the connection is open already. No [resolver](crate::tls::TlsBuilder::resolver) is
    ///   asked.
    /// - If it fails, the peer gets an alert and then an end, and the connection ends with
    ///   [`Cause::Tls`]. The event has the reason as `tls_error`. What waits for the session is
    ///   lost, and `unsent` counts it.
    /// - A [`close`](Engine::close) or a [`shutdown`](Engine::shutdown) during the handshake waits
    ///   for it if output waits, and a `close` without output gives the upgrade up. An
    ///   [`abort`](Engine::abort) ends it at once. A detach and a move are refused.
    ///
    /// [`Conn::upgrade`](crate::Conn::upgrade) has an example.
    ///
    /// [`Event::Upgraded`]: crate::Event::Upgraded
    ///
    /// # Errors
    ///
    /// [`Refused`] hands `rest` back, and the connection stays as it is:
    ///
    /// - [`Refusal::Tls`]: it has TLS already, or an upgrade is under way.
    /// - [`Refusal::Ended`]: its peer has shut down its output, and cannot answer.
    /// - [`Refusal::Stream`]: a stream has its input.
    /// - [`Refusal::Unsupported`]: it is a session of UDP.
    /// - [`Refusal::Stale`]: it has ended, has not opened, closes, detaches, moves, or has shut
    ///   down its output.
    pub fn upgrade(
        &mut self,
        id: Id,
        role: impl Into<Role>,
        rest: impl Into<Buf>,
    ) -> Result<(), Refused<Buf>> {
        let rest = rest.into();
        match self.may_upgrade(id) {
            Ok(()) => {
                self.begin_upgrade(id, &role.into(), rest);
                Ok(())
            }
            Err(reason) => Err(Refused { value: rest, reason }),
        }
    }

    fn may_upgrade(&mut self, id: Id) -> Result<(), Refusal> {
        let Some(place) = self.table.get(id) else { return Err(Refusal::Stale) };
        let flags = place.flags;
        if place.session().is_some() {
            return Err(Refusal::Unsupported);
        }
        if flags & CODED != 0 {
            return Err(Refusal::Tls);
        }
        let is_shut = flags & (SHUT | SHUTTING) != 0;
        if place.is_to_end() || flags & CONNECTING != 0 || is_shut {
            return Err(Refusal::Stale);
        }
        if self.stream_of(id.index()).is_some() {
            return Err(Refusal::Stream);
        }
        let held = self.table.active_of(id.index()).and_then(|active| active.held.back());
        // The end may be among what is held back.
        if flags & ENDED != 0 || held.is_some_and(|last| last.is_empty()) {
            return Err(Refusal::Ended);
        }
        Ok(())
    }

    fn begin_upgrade(&mut self, id: Id, role: &Role, rest: Buf) {
        let index = id.index();
        let (session, on_workers) = match role {
            Role::Server(tls) => (Session::server(tls), tls.on_workers()),
            Role::Client(server) => (Session::to(server), server.on_workers()),
        };
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                // Without a session nothing must leave any more.
                self.log_failure(id, &error.to_string());
                self.abort_as(id, Cause::Tls);
                return;
            }
        };
        self.queue_before_files(index);
        let active = self.activate(index);
        let input = std::iter::once(rest).chain(std::mem::take(&mut active.held));
        let input: Vec<Buf> = input.filter(|data| !data.is_empty()).collect();
        active.held_bytes = 0;
        let place = self.table.place_mut(index);
        place.flags = place.flags & !HELD | CODED;
        place.advance(Step::Upgrades);
        self.entrance.transports.keep_session(index, Box::new(session));
        self.entrance.transports.begin_upgrade(index, on_workers);
        self.counters.handshakes.begun += 1;
        self.note_reads(index);
        self.charge_upgrade(index);
        self.dirty(index);
        self.request(Request::Upgrade(id));
        // It comes before all that arrives from now on.
        self.told.pending.extend(input.into_iter().map(|data| Pending::Agreed(id, data)));
    }

    /// Puts what was written so far in front of what follows.
    fn queue_before_files(&mut self, index: u32) {
        let active = self.activate(index);
        let corked = active.corked;
        if corked == 0 {
            return;
        }
        let before = active.take_corked();
        let files = active.files_to_fill(false);
        files.queue.push_back(Piece::Bytes(before));
        files.bytes += corked;
        files.memory += corked;
        files.corked = 0;
    }
}

impl<S> Engine<S> {
    /// Whether a connection with TLS, or with TLS ahead, may send.
    #[cold]
    pub(crate) fn may_send_coded(&self, index: u32) -> bool {
        let place = self.table.place(index);
        place.flags & (CONNECTING | ABORT) == 0 && place.stage != Stage::Handshake
    }

    /// Whether the output of a connection waits for an upgrade.
    pub(crate) fn is_upgrading(&self, index: u32) -> bool {
        let place = self.table.place(index);
        place.stage == Stage::Handshake && place.flags & (CODED | CONNECTING) == CODED
    }

    /// How many bytes of buffers the next `send` submits of what was written before the upgrade.
    #[cold]
    pub(crate) fn sendable_before(&self, index: u32) -> usize {
        let files = self.files_of(index).filter(|_| self.is_upgrading(index));
        files.map_or(0, |files| files.sendable(0))
    }

    /// Sends what was written before the upgrade, and what the session says behind that.
    #[cold]
    pub(crate) fn send_in_handshake<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if !self.is_upgrading(index) || self.table.place(index).flags & ABORT != 0 {
            return self.recharge(index);
        }
        if self.files_of(index).is_some() && !self.send_files(watcher, index) {
            return;
        }
        let (source, token) = (self.table.place(index).source, self.token(index));
        let queued = watcher.queued_bytes(source).unwrap_or(0);
        self.activate(index);
        self.note_progress(watcher, index, queued);
        let mut out = Vec::new();
        if let Some(session) = self.entrance.transports.session(index) {
            session.take_output(&mut out);
        }
        if !out.is_empty() {
            match watcher.submit(Op::write(source, out).token(token).quiet()) {
                Ok(ticket) => self.note_said(index, ticket),
                Err(_) => return self.fail(watcher, index, Cause::Rejected),
            }
            self.counters.writes += 1;
        }
        let queued = watcher.queued_bytes(source).unwrap_or(0);
        self.wait_for_output(watcher, index, queued, queued);
    }

    /// Whether a close of a connection that upgrades waits for the handshake. Then this notes it.
    #[cold]
    pub(crate) fn closes_later(&mut self, id: Id, cause: Cause) -> bool {
        let index = id.index();
        let waits = self.corked(index) > 0 || self.waits_for_jobs(index);
        let session = self.entrance.transports.session(index);
        let has_failed = session.is_none_or(|s| s.state() != SessionState::Handshaking);
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return false };
        // The session that a worker has says the end.
        if upgrade.at_work.is_none() && (!waits || has_failed) {
            self.request(Request::Upgrade(id)); // The clock of the end follows.
            return false;
        }
        if upgrade.closes.is_none() {
            upgrade.closes = Some(cause);
            self.note_cause(index, cause);
            self.shutdown(id); // no further output
            self.request(Request::Upgrade(id));
        }
        true
    }

    /// The handshake has failed: the peer gets an alert, and then an end.
    #[cold]
    fn upgrade_failed(&mut self, index: u32, why: &str) {
        let id = self.table.id(index);
        self.log_failure(id, why);
        let active = self.activate(index);
        // It was to be encrypted.
        let lost = active.corked;
        active.take_corked();
        active.unsent += lost;
        // A close that waited for the handshake is not why it ends.
        self.forget_request(index);
        self.close_as(id, Cause::Tls);
        self.dirty(index);
    }

    fn log_failure(&self, id: Id, error: &str) {
        self.log(LogEvent::TlsFailed { id: Some(id), peer: None, error });
    }

    /// The time of the handshake is over.
    #[cold]
    pub(crate) fn upgrade_timed_out<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        timer: Ticket,
    ) {
        let upgrade = self.entrance.transports.upgrade(index);
        if upgrade.is_some_and(|upgrade| upgrade.timer == Some(timer)) {
            self.fail(watcher, index, Cause::ReadTimeout);
        }
    }

    /// The handshake of an upgrade has begun, its clock has changed, or it is over.
    pub(crate) fn look_at_upgrade<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        if !self.table.lives(id) {
            return;
        }
        let (index, token, limits) = (id.index(), self.token(id.index()), self.config.limits);
        let (source, stage) = (self.table.place(index).source, self.table.place(index).stage);
        if stage == Stage::Handshake {
            let now = watcher.update_now();
            let idle = watcher.idle_timeout(source);
            let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
            let closes = upgrade.closes.map(|_| limits.close);
            let is_first = upgrade.is_first_look();
            if is_first {
                upgrade.idle = idle;
                upgrade.until = now.checked_add(limits.handshake);
                let _ = watcher.set_idle_timeout(source, None);
            }
            if let Some(close) = closes.and_then(|close| now.checked_add(close)) {
                upgrade.until = Some(upgrade.until.map_or(close, |until| until.min(close)));
            }
            if let Some(timer) = upgrade.timer.take() {
                watcher.cancel(timer);
            }
            if let Some(until) = upgrade.until {
                let timer = Op::timer_at(until).owned_by(source).token(token);
                upgrade.timer = watcher.submit(timer).ok();
                if upgrade.timer.is_none() {
                    self.fail(watcher, index, Cause::Rejected);
                }
            }
            return;
        }
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        let (timer, idle, is_done) = (upgrade.timer.take(), upgrade.idle, upgrade.is_done);
        if let Some(timer) = timer {
            watcher.cancel(timer);
        }
        if is_done {
            self.entrance.transports.end_upgrade(index);
            if idle.is_some() && watcher.set_idle_timeout(source, idle).is_err() {
                self.counters.option_errors += 1;
            }
        }
    }

    /// Takes input of a connection that upgrades, or its end, for which an empty buffer stands. A
    /// flight waits for its turn, as those of other handshakes do, and what comes behind it, too.
    #[cold]
    pub(crate) fn upgrade_input(&mut self, index: u32, input: Buf) {
        if let Some(upgrade) = self.entrance.transports.upgrade(index)
            && upgrade.at_work.is_some()
        {
            upgrade.waits.push_back(Buf::from(input.into_vec()));
            return self.charge_upgrade(index);
        }
        let Some(session) = self.entrance.transports.session(index) else { return };
        if session.failure().is_some() {
            return; // It was told.
        }
        let is_flight = !input.is_empty() && session.completes_record(&input);
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        let waits = !upgrade.waits.is_empty();
        if !waits && !is_flight {
            return self.feed_upgrade(index, input);
        }
        // However long it waits: other connections need the lease.
        upgrade.waits.push_back(Buf::from(input.into_vec()));
        if !waits {
            let on_workers = upgrade.on_workers;
            self.entrance.flights.push(self.table.id(index), on_workers);
            self.work.requests = true;
        }
        self.charge_upgrade(index);
    }

    /// Answers the flight that waits.
    pub(crate) fn answer_upgrade(&mut self, index: u32) {
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        let Some(flight) = upgrade.waits.pop_front() else { return };
        self.counters.handshakes.flights += 1;
        self.feed_upgrade(index, flight);
        self.take_what_waited(index);
    }

    /// A flight is answered: what has come behind it follows, and comes behind the event of an
    /// agreement, if there is one.
    fn take_what_waited(&mut self, index: u32) {
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        let (waits, id) = (std::mem::take(&mut upgrade.waits), self.table.id(index));
        self.told.pending.extend(waits.into_iter().map(|data| Pending::Agreed(id, data)));
    }

    /// Lets a worker answer the flight that waits.
    pub(crate) fn give_upgrade_to_worker<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
    ) {
        let token = self.token(WORK | index);
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        let until = upgrade.until;
        let Some(input) = upgrade.waits.pop_front() else { return };
        let Some(session) = self.entrance.transports.take_session(index) else { return };
        let bytes = held_by(&session) + input.len();
        let flight = UpgradeFlight { session, input };
        let mut job = Op::run(move || flight.answer()).token(token);
        if let Some(until) = until {
            job = job.deadline(until);
        }
        match watcher.submit(job) {
            Ok(ticket) => {
                if let Some(upgrade) = self.entrance.transports.upgrade(index) {
                    upgrade.at_work = Some((ticket, bytes));
                }
                self.entrance.flights.work_begins();
            }
            // The watcher has no room, or no threads: the loop answers.
            Err(refused) => {
                let result = refused.value.into_parts().job.map(|job| job.run(None));
                self.upgrade_worked(watcher, index, result.unwrap_or(Ok(Done::Nop)));
            }
        }
    }

    /// A worker is done with a flight.
    pub(crate) fn upgrade_worked<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        result: Result<Done, Error>,
    ) {
        if let Some(upgrade) = self.entrance.transports.upgrade(index) {
            upgrade.at_work = None;
        }
        if !self.is_upgrading(index) {
            return; // It has failed meanwhile.
        }
        let value = match result {
            Ok(Done::Returned(value)) => value,
            Ok(_) => return self.fail(watcher, index, Cause::Rejected),
            Err(error) => return self.work_failed(watcher, index, &error),
        };
        let Ok(UpgradeAnswer { flight, fed }) = value.downcast::<UpgradeAnswer>() else {
            return self.fail(watcher, index, Cause::Rejected);
        };
        self.counters.handshakes.flights += 1;
        self.entrance.transports.keep_session(index, flight.session);
        self.take_fed(index, flight.input, fed);
        self.take_what_waited(index);
        // A close has waited for the session. Without output it gives the upgrade up.
        let upgrade = self.entrance.transports.upgrade(index);
        if let Some(cause) = upgrade.and_then(|upgrade| upgrade.closes)
            && self.is_upgrading(index)
            && self.corked(index) == 0
        {
            self.close_as(self.table.id(index), cause);
        }
        self.send_answer(watcher, index);
    }

    /// Sends what the session says to a flight. The flush has looked at all connections, and the
    /// next one may be far. (Behind an agreement it is not: an event of that waits.)
    pub(crate) fn send_answer<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        if self.entrance.transports.upgrade(index).is_some_and(|upgrade| !upgrade.is_done) {
            self.send(watcher, index);
            self.carry_out(watcher, index);
        }
    }

    fn feed_upgrade(&mut self, index: u32, input: Buf) {
        let Some(session) = self.entrance.transports.session(index) else { return };
        let fed = match input.is_empty() {
            true => session.end_of_input().map(|()| 0),
            false => session.feed_handshake(&input),
        };
        self.take_fed(index, input, fed);
    }

    /// The session has taken input.
    fn take_fed(&mut self, index: u32, input: Buf, fed: Result<usize, Failure>) {
        let Some(session) = self.entrance.transports.session(index) else { return };
        let (agrees, says) = (session.state() != SessionState::Handshaking, session.has_output());
        if says {
            self.dirty(index);
        }
        match fed {
            Err(error) => self.upgrade_failed(index, &error.to_string()),
            Ok(taken) if agrees => self.upgraded(index, input.slice(taken..)),
            Ok(_) => self.charge_upgrade(index),
        }
    }

    /// Updates the charge of a connection to what its session and the flight that waits hold.
    fn charge_upgrade(&mut self, index: u32) {
        let session = self.entrance.transports.session(index);
        let held = session.map_or(0, |session| held_by(session));
        let upgrade = self.entrance.transports.upgrade(index);
        let waits = upgrade.map_or(0, |upgrade| {
            let at_work = upgrade.at_work.map_or(0, |(_, bytes)| bytes);
            at_work + upgrade.waits.iter().map(Buf::len).sum::<usize>()
        });
        self.activate(index).held_bytes = held + waits;
        self.recharge(index);
    }

    /// Both ends have agreed. The rest of the input follows.
    fn upgraded(&mut self, index: u32, rest: Buf) {
        let id = self.table.id(index);
        let place = self.table.place_mut(index);
        place.advance(Step::Agreed);
        if place.flags & SHUT != 0 {
            place.advance(Step::SideEnded);
        }
        self.activate(index).held_bytes = 0;
        self.recharge(index);
        self.note_reads(index);
        self.counters.handshakes.completed += 1;
        let resumed = self.entrance.transports.session(index).is_some_and(|s| s.is_resumed());
        self.counters.handshakes.resumed += u64::from(resumed);
        self.request(Request::Upgrade(id));
        self.dirty(index);
        let Some(upgrade) = self.entrance.transports.upgrade(index) else { return };
        upgrade.is_done = true;
        if let Some(cause) = upgrade.closes {
            self.close_as(id, cause);
        }
        self.told.pending.push_back(Pending::Upgraded(id));
        if !rest.is_empty() {
            let rest = if rest.is_lease() { Buf::from(rest.into_vec()) } else { rest };
            self.told.pending.push_back(Pending::Agreed(id, rest));
        }
    }
}
