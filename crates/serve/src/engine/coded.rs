//! The input and the output of connections whose bytes pass a session of TLS.
//!
//! What a turn writes is encrypted when it leaves, as one text: its records are full, except the
//! last one. They come from the library straight into swap buffers, so a message needs no memory
//! besides the library's own.
//!
//! Of text that the socket does not take, at most [`AHEAD`] bytes and a [`PIECE`] are encrypted.
//! The rest waits as text where files wait ([`Files`](crate::parts::files::Files)). Bytes that wait
//! count once: as text, or as the records that have taken its place.

use windlass::driver::{Driver, OpCode};
use windlass::{Buf, Completion, ErrorKind, Op, Ticket, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::log::LogEvent;
use crate::parts::cipher::{Session, SessionState};
use crate::parts::files::{AHEAD, PIECE};
use crate::parts::table::{CODED, ENDED, HELD};
use crate::parts::text::Text;
use crate::stage::Stage;
use crate::words::cause::Cause;
use crate::words::event::Event;

impl<S: Default> Engine<S> {
    /// Takes input, or its end, for which an empty buffer stands.
    #[cold]
    pub(crate) fn decode<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        input: Buf,
    ) -> Option<Event<S>> {
        // The read may have ended, also with a part of a record, and something may wait for that.
        self.dirty(index);
        let place = self.table.place(index);
        // Behind `close_notify`. If the read has ended, the clock of the half-closed begins. Or the
        // connection closes: then nothing in its input, nor its end, keeps it from its output.
        if place.flags & ENDED != 0 || place.is_over() {
            return None;
        }
        if self.table.place(index).stage == Stage::Handshake {
            self.upgrade_input(index, input);
            return None;
        }
        let session = self.entrance.transports.session(index)?;
        // The failure was told. Behind `close_notify`, the end is held back.
        if session.failure().is_some() || session.state() == SessionState::PeerClosed {
            return None;
        }
        if input.is_empty() {
            if session.end_of_input().is_err() {
                self.fail_later(index, Cause::Truncated);
            }
            return None;
        }
        let (plain, fed) = session.feed_in_place(input);
        let has_ended = session.state() == SessionState::PeerClosed;
        let mut event = None;
        if !plain.is_empty() {
            let plain = self.out_of_lease(index, plain);
            event = self.arrived(index, plain);
        }
        // A record that began in an earlier input has more text than this one had room for.
        while let Some(rest) = self.rest_of_record(watcher, index) {
            let rest = self.out_of_lease(index, rest);
            event = self.follows(index, event, rest);
        }
        if let Err(error) = fed {
            self.session_failed(index, &error.to_string());
        } else if has_ended {
            event = self.follows(index, event, Buf::default());
        }
        event
    }

    /// Text that the session still holds.
    fn rest_of_record<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> Option<Buf> {
        let session = self.entrance.transports.session(index)?;
        let len = session.plain_len();
        if len == 0 {
            return None;
        }
        if let Ok(lease) = watcher.lease(|space| session.read_plain(space)) {
            return Some(lease.into());
        }
        let mut rest = vec![0; len];
        let count = session.read_plain(&mut rest);
        rest.truncate(count);
        Some(rest.into())
    }

    /// Plain text, or its end, has arrived behind what `event` has.
    fn follows(&mut self, index: u32, event: Option<Event<S>>, data: Buf) -> Option<Event<S>> {
        if event.is_none() {
            return self.arrived(index, data);
        }
        // One event at a time: this is the next one.
        let place = self.table.place_mut(index);
        let is_first = place.flags & HELD == 0;
        place.flags |= HELD;
        // The first one is counted, or is a copy: see `out_of_lease`. Other connections need the
        // leases of all others, however long the program takes.
        let data = if is_first || !data.is_lease() { data } else { Buf::from(data.into_vec()) };
        let active = self.activate(index);
        active.held_bytes += data.len();
        active.held.push_back(data);
        self.recharge(index);
        if is_first {
            self.told.pending.push_back(Pending::Held(self.table.id(index)));
        }
        event
    }
}

impl<S> Engine<S> {
    /// The session has failed: the peer gets an alert, and then an end.
    fn session_failed(&mut self, index: u32, why: &str) {
        let id = self.table.id(index);
        self.log(LogEvent::TlsFailed { id: Some(id), peer: None, error: why });
        if self.table.place(index).stage == Stage::Leaving {
            // A session that has failed is of no use on another loop.
            self.call_off(id);
        }
        self.close_as(id, Cause::Tls);
        self.dirty(index);
    }

    /// Sends what was written in this turn, behind what the session has to say itself, if it `says`
    /// something. False if that has ended the connection.
    #[cold]
    pub(crate) fn send_coded<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        says: bool,
    ) -> bool {
        let (source, token) = (self.table.place(index).source, self.token(index));
        let Some(data) = self.encode(watcher, index) else { return false };
        match watcher.submit(Op::write(source, data).token(token).quiet()) {
            Ok(ticket) if says => self.note_said(index, ticket),
            Ok(_) => {}
            Err(refused) => {
                let data = refused.value.into_buf();
                self.activate(index).unsent += self.unsent_of(index, &data, 0);
                self.fail(watcher, index, Cause::Rejected);
                return false;
            }
        }
        if self.is_marked_full(index) {
            // It may be full of what was written before an upgrade, of which nothing waits.
            let queued = watcher.queued_bytes(source).unwrap_or(0);
            self.wait_for_output(watcher, index, queued, queued);
        }
        true
    }

    /// Encrypts what was written in this turn, behind what the session has to say itself. `None`
    /// if the session has failed.
    fn encode<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> Option<Buf> {
        let (session, scratch) = self.entrance.transports.coder(index)?;
        let active = self.table.active_of(index)?;
        let (text, taken) = (active.text(scratch), active.corked);
        let sealed = seal(watcher, session, text);
        active.forget_text();
        match sealed {
            Ok(sealed) => Some(sealed),
            Err(why) => {
                self.lose_text(watcher, index, taken, &why);
                None
            }
        }
    }

    /// Encrypts a further piece of the text that waits, if little waits for the socket.
    pub(crate) fn send_text<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        let (source, token) = (self.table.place(index).source, self.token(index));
        if watcher.queued_bytes(source).unwrap_or(0) > AHEAD {
            return false; // A wait for less is in flight.
        }
        let Some((session, scratch)) = self.entrance.transports.coder(index) else { return false };
        let Some(active) = self.table.active_of(index) else { return false };
        let Some(files) = active.files.as_deref_mut() else { return false };
        let text = files.text(scratch);
        let (taken, sealed) = (text.len(), seal(watcher, session, text));
        files.pass(taken);
        match sealed {
            Ok(sealed) => match watcher.submit(Op::write(source, sealed).token(token).quiet()) {
                Ok(_) => {
                    self.counters.writes += 1;
                    true
                }
                Err(_) => {
                    active.unsent += taken;
                    self.fail(watcher, index, Cause::Rejected);
                    false
                }
            },
            Err(why) => {
                self.lose_text(watcher, index, taken, &why);
                false
            }
        }
    }

    /// Lets more text than a piece wait, and text behind other text; submits what may go. True if
    /// what is corked can go. False also if the connection has ended.
    #[cold]
    pub(crate) fn sends_text<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        loop {
            let source = self.table.place(index).source;
            let Some(active) = self.table.active_of(index) else { return true };
            let waits = match active.files.as_deref() {
                // What was written before an upgrade is plain, and no text joins it.
                Some(files) if !files.is_coded => false,
                Some(files) => files.count == 0 && active.corked > 0,
                None if active.corked == 0 => return true,
                None => active.corked > PIECE || watcher.queued_bytes(source).unwrap_or(0) > AHEAD,
            };
            if waits {
                self.queue_text(index);
            } else if self.files_of(index).is_none() {
                return true;
            }
            if let Some(files) = self.activate(index).files.as_deref_mut() {
                files.tell();
            }
            if !self.send_files(watcher, index) {
                return false;
            }
        }
    }

    /// Puts what is corked behind the text and the files that wait.
    pub(crate) fn queue_text(&mut self, index: u32) {
        let active = self.activate(index);
        if active.corked == 0 {
            return;
        }
        active.seal();
        active.corked = 0;
        let mut parts = std::mem::take(&mut active.parts);
        let files = active.files_to_fill(true);
        parts.drain(..).for_each(|part| files.push_text(part));
        files.corked = 0;
        active.parts = parts; // the next turn needs no memory
        self.recharge(index);
    }

    /// The session of a connection encrypts no more: what waits is lost. (What has failed is in the
    /// log.)
    #[cold]
    fn lose_text<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        lost: usize,
        why: &str,
    ) {
        let active = self.activate(index);
        active.unsent += lost + std::mem::take(&mut active.corked);
        active.parts.clear();
        active.copied.clear();
        if let Some(mut files) = active.files.take() {
            active.unsent += files.drop_queue();
            if let Some(current) = files.current {
                current.end(watcher);
            }
        }
        let has_failed = active.cause == Some(Cause::Tls);
        self.recharge(index);
        self.dirty(index);
        if !has_failed {
            // Its keys are used up. An end of the session would make what has come seem to be all.
            let id = self.table.id(index);
            self.log(LogEvent::TlsFailed { id: Some(id), peer: None, error: why });
            self.fail_later(index, Cause::Tls);
        }
    }

    /// How many bytes of a write are not sent of which the system has taken so many. Of records
    /// this is the text of those that it has not taken whole.
    fn unsent_of(&mut self, index: u32, data: &Buf, taken: usize) -> usize {
        let is_coded = self.table.place(index).flags & CODED != 0;
        match self.entrance.transports.session(index).filter(|_| is_coded) {
            Some(session) => session.text_behind(data, taken),
            None => data.len() - taken,
        }
    }

    /// The same for a write that has failed.
    pub(crate) fn left_of_write(&mut self, index: u32, completion: &mut Completion) -> usize {
        let (taken, ticket) = (completion.bytes(), completion.ticket());
        let data = completion.take_buf();
        // What was written before an upgrade is plain, and a handshake has no text.
        let upgrade = self.entrance.transports.upgrade(index);
        if let Some(upgrade) = upgrade.filter(|upgrade| !upgrade.is_done) {
            return if upgrade.said.contains(&ticket) { 0 } else { data.len() - taken };
        }
        self.unsent_of(index, &data, taken)
    }

    /// The session of a connection has said something in a write of its own.
    pub(crate) fn note_said(&mut self, index: u32, ticket: Ticket) {
        if let Some(upgrade) = self.entrance.transports.upgrade(index) {
            upgrade.said.push(ticket);
        }
    }

    /// Reads the next piece of the file that is sent, if little waits for the socket. Behind the
    /// last piece it ends. True if the next piece of output may go.
    pub(crate) fn read_part<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> bool {
        let token = self.token(index);
        let queued = watcher.queued_bytes(self.table.place(index).source).unwrap_or(0);
        let Some(active) = self.table.active_of(index) else { return false };
        let Some(files) = active.files.as_deref_mut() else { return false };
        let mark = files.mark();
        let Some(current) = files.current.as_mut().filter(|current| current.in_flight.is_none())
        else {
            return false;
        };
        if queued > mark {
            return false; // A wait for less is in flight.
        }
        if current.at == current.end {
            let len = current.len;
            if let Some(sent) = files.current.take() {
                sent.end(watcher);
            }
            files.count -= 1;
            self.told.pending.push_back(Pending::FileSent(self.table.id(index), len));
            // What is behind it is announced to the program before it goes.
            self.dirty(index);
            return false;
        }
        let mut text = std::mem::take(&mut current.text).into_vec();
        let most = (current.end - current.at).min(PIECE as u64) as usize;
        text.clear();
        text.reserve_exact(most);
        let read = Op::read_at(current.file, text, current.at).token(token);
        match watcher.submit(read) {
            Ok(ticket) => current.in_flight = Some(ticket),
            Err(_) => self.fail(watcher, index, Cause::Rejected), // full tables
        }
        false
    }

    /// A piece of a file was read for a session, or could not be read: encrypts it.
    #[cold]
    pub(crate) fn part_read<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        mut completion: Completion,
    ) -> Option<Event<S>> {
        if completion.code() != OpCode::ReadAt {
            return None;
        }
        let place = self.table.place(index); // it may be vacant, or another connection's
        let (source, stage, token) = (place.source, place.stage, self.token(index));
        if stage >= Stage::Failing {
            return None;
        }
        let (session, _) = self.entrance.transports.coder(index)?;
        let active = self.table.active_of(index)?;
        let files = active.files.as_deref_mut()?;
        // Another connection may have had the place, and the same file.
        let read = Some(completion.ticket());
        let current = files.current.as_mut().filter(|current| current.in_flight == read)?;
        current.in_flight = None;
        let failed = completion.error_kind();
        let text = completion.take_buf();
        let most = usize::try_from(current.end - current.at).unwrap_or(usize::MAX);
        let count = text.len().min(most);
        if failed.is_some() || count == 0 {
            self.forget_request(index);
            match failed {
                Some(ErrorKind::Os(errno)) => self.fail_later(index, Cause::Os(errno)),
                Some(_) => self.fail_later(index, Cause::Rejected),
                // It had become shorter.
                None => self.fail_later(index, Cause::FileEnded),
            }
            return None;
        }
        let sealed = seal(watcher, session, Text::from(&text.as_slice()[..count]));
        (current.at, current.text) = (current.at + count as u64, text);
        files.rest = files.rest.saturating_sub(count as u64);
        self.dirty(index);
        match sealed {
            Ok(sealed) => {
                if watcher.submit(Op::write(source, sealed).token(token).quiet()).is_err() {
                    self.activate(index).unsent += count;
                    self.fail(watcher, index, Cause::Rejected);
                    return None;
                }
                self.counters.writes += 1;
            }
            Err(why) => self.lose_text(watcher, index, count, &why),
        }
        None
    }

    /// Whether the session of a connection with TLS has something to say.
    pub(crate) fn has_to_say(&mut self, index: u32) -> bool {
        self.entrance.transports.session(index).is_some_and(|session| session.has_output())
    }

    /// What the peer gets before a limit ends its connection: `close_notify`, because it has all
    /// output. `None` without TLS, and where the peer must not take the end for an orderly one:
    /// behind an abort, a panic or a failure.
    pub(crate) fn last_words(&mut self, index: u32, cause: Cause) -> Option<Buf> {
        if self.table.place(index).flags & CODED == 0 {
            return None;
        }
        let cause = self.table.active_of(index).and_then(|active| active.cause).unwrap_or(cause);
        if !matches!(cause, Cause::Idle | Cause::TooSlow | Cause::ReadTimeout) {
            return None;
        }
        let session = self.entrance.transports.session(index)?;
        let mut out = Vec::new();
        session.close();
        session.take_output(&mut out);
        (!out.is_empty()).then(|| out.into())
    }

    /// Says `close_notify`, before the output of a connection is shut down.
    pub(crate) fn say_end<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        if place.flags & CODED == 0 {
            return;
        }
        let (source, token) = (place.source, self.token(index));
        let has_lost = self.table.active_of(index).is_some_and(|active| active.unsent > 0);
        let Some(session) = self.entrance.transports.session(index) else { return };
        let mut out = Vec::new();
        // A session that an alert of the peer has ended has none of its own. What has come must not
        // seem to be all.
        if !has_lost || session.failure().is_none() {
            session.close();
        }
        session.take_output(&mut out);
        if !out.is_empty() {
            // Refused only if the source has ended.
            if let Ok(ticket) = watcher.submit(Op::write(source, out).token(token).quiet()) {
                self.note_said(index, ticket);
            }
        }
    }
}

/// Text on its way into records.
struct Sealer<'a> {
    session: &'a mut Session,
    text: Text<'a>,
    failed: Option<String>,
}

impl Sealer<'_> {
    /// Encrypts as much as a space has room for. Returns how many bytes the space has then.
    fn fill(&mut self, space: &mut [u8]) -> usize {
        match self.session.seal(self.text.0, space) {
            Ok((taken, len)) => {
                self.text.pass(taken);
                len
            }
            Err(error) => {
                self.failed = Some(error.to_string());
                0
            }
        }
    }
}

/// Encrypts text behind what a session has to say. An error says why it encrypts no more; then the
/// text is lost.
fn seal<D: Driver>(
    watcher: &mut Watcher<D>,
    session: &mut Session,
    text: Text<'_>,
) -> Result<Buf, String> {
    let mut sealer = Sealer { session, text, failed: None };
    let (mut first, mut more) = (Buf::default(), Vec::new());
    loop {
        let lease = watcher.lease(|space| sealer.fill(space));
        let records = match lease.ok().filter(|lease| !lease.is_empty()) {
            Some(lease) => Buf::from(lease),
            // There is no swap buffer, or it has no room for a record.
            None if sealer.failed.is_none() => {
                let mut space = vec![0; sealer.text.len().min(PIECE) + FALLBACK];
                let len = sealer.fill(&mut space);
                space.truncate(len);
                Buf::from(space)
            }
            None => Buf::default(),
        };
        if let Some(why) = sealer.failed {
            return Err(why);
        }
        if first.is_empty() {
            first = records;
        } else {
            more.push(records);
        }
        if sealer.text.is_empty() && !sealer.session.has_output() {
            break;
        }
    }
    if more.is_empty() {
        return Ok(first);
    }
    more.insert(0, first);
    Ok(Buf::list(more))
}

/// The room for records beyond their text.
const FALLBACK: usize = 4 << 10;
