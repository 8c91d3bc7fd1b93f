//! Output: the bytes of a turn leave as one write, in `flush`.

use std::io;

use windlass::driver::Driver;
use windlass::{Buf, Op, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::parts::idle::IdleClock;
use crate::parts::output::{LARGE, SMALL};
use crate::parts::table::{ABORT, Active, CODED, CONNECTING, DIRTY, FINISHING, FRESH, NIL, TIMED};
use crate::parts::writer::Writer;
use crate::stage::Stage;
use crate::words::cause::Cause;
use crate::words::id::Id;
use crate::words::refused::{Refusal, Refused};

impl<S> Engine<S> {
    /// Writes to a connection. What is written in a turn leaves as one write, in
    /// [`flush`](Engine::flush). Empty buffers count as written.
    ///
    /// Each write to a session is one datagram, also an empty one. A send that fails later ends no
    /// session of a bound socket: [`datagram_errors`](crate::report::Counters::datagram_errors)
    /// counts it.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the buffer back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended, closes, detaches, or has shut down its
    ///   output.
    /// - [`Refusal::Cap`]: more than [`Limits::cap`](crate::Limits::cap) bytes would wait for it.
    /// - [`Refusal::Memory`]: the server has no memory for it. A connection above its
    ///   [share](crate::memory::Budget), and a session, find none from three quarters of
    ///   [`Limits::memory`](crate::Limits::memory) on.
    #[inline(always)]
    pub fn write(&mut self, id: Id, data: impl Into<Buf>) -> Result<(), Refused<Buf>> {
        let data = data.into();
        if !self.table.lives(id) {
            return Err(Refused { value: data, reason: Refusal::Stale });
        }
        self.write_fresh(id.index(), data).or_else(|data| self.write_more(id.index(), data))
    }

    /// Writes to the connection that has a place, if that is all there is to do for it. Otherwise
    /// it hands the buffer back, for `write_more`.
    #[inline(always)]
    pub(crate) fn write_fresh(&mut self, index: u32, data: Buf) -> Result<(), Buf> {
        let (place, charged) = self.table.look(index);
        let len = data.as_slice().len(); // 0 for a list, which has its bytes in its parts
        let at = self.work.fresh.len();
        if place.active != NIL
            || place.writes_pass_more()
            || !(1..=self.memory.small).contains(&len)
            || charged as usize + len > self.config.limits.cap
            || at == self.work.fresh.capacity()
        {
            return Err(data);
        }
        // The buffer needs only its place in a list. The list has room: code that makes some may
        // panic, and would keep the buffer in memory.
        self.work.fresh.push((index, data));
        place.active = at as u32 | FRESH;
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn write_more(&mut self, index: u32, data: Buf) -> Result<(), Refused<Buf>> {
        let bytes = data.as_slice(); // none for a list
        if (1..=SMALL).contains(&bytes.len()) && self.copy_behind(index, bytes) {
            return Ok(());
        }
        if let Some(at) = self.table.place(index).session() {
            return self.write_datagram(at, data);
        }
        self.work.fresh.reserve(1);
        let len = data.len();
        match self.may_write(index, len) {
            Ok(()) if len == 0 => Ok(()),
            Ok(()) => {
                self.cork(index, data);
                Ok(())
            }
            Err(reason) => Err(Refused { value: data, reason }),
        }
    }

    #[inline]
    pub(crate) fn cork(&mut self, index: u32, data: Buf) {
        self.activate(index).cork(data);
        self.dirty(index);
    }

    /// Copies bytes to a connection: for short answers that are made in place. They leave with
    /// what else is written in this turn, and need no allocation.
    ///
    /// # Errors
    /// As for [`write`](Engine::write).
    #[inline]
    pub fn write_slice(&mut self, id: Id, bytes: &[u8]) -> Result<(), Refusal> {
        if !self.table.lives(id) {
            return Err(Refusal::Stale);
        }
        self.write_slice_at(id.index(), bytes)
    }

    /// A `Write` of std that copies bytes to a connection, as [`write_slice`](Engine::write_slice):
    /// for `write!`, and for code that wants a `Write`, such as a TLS library. Each write takes all
    /// of its bytes or none, and needs no allocation.
    ///
    /// For a session each write is one datagram, and `write!` makes several.
    ///
    /// ```
    /// use std::io::{self, Write};
    /// use windlass_serve::{Engine, Id};
    ///
    /// fn greet(engine: &mut Engine<u32>, id: Id) -> io::Result<()> {
    ///     let number = *engine.state(id).unwrap_or(&0);
    ///     write!(engine.writer(id), "hello, number {number}\r\n")
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`write`](Engine::write). The error of std contains the [`Refusal`]
    /// ([`get_ref`](std::io::Error::get_ref)), and has the kind
    ///
    /// - `BrokenPipe` for [`Refusal::Stale`],
    /// - `QuotaExceeded` for [`Refusal::Cap`] and [`Refusal::Memory`].
    pub fn writer(&mut self, id: Id) -> impl io::Write {
        Writer(move |bytes: &[u8]| self.write_slice(id, bytes))
    }

    /// Copies bytes to the connection that has a place.
    #[inline]
    pub(crate) fn write_slice_at(&mut self, index: u32, bytes: &[u8]) -> Result<(), Refusal> {
        if self.copy_behind(index, bytes) {
            return Ok(());
        }
        self.write_slice_more(index, bytes)
    }

    /// Copies bytes behind others of this turn that are copied, if that is all there is to do.
    #[inline]
    fn copy_behind(&mut self, index: u32, bytes: &[u8]) -> bool {
        let (place, charged) = self.table.look(index);
        let (flags, at) = (place.flags, place.active as usize);
        if flags & DIRTY != 0
            && !place.takes_no_output()
            && let Some(active) = self.table.active.get_mut(at)
            && charged as usize + active.corked + bytes.len() <= self.config.limits.cap
            && bytes.len() <= self.memory.room
            && active.copied.len() + bytes.len() < LARGE
            && !active.copied.is_empty()
        {
            active.corked += bytes.len();
            active.copied.extend_from_slice(bytes);
            self.memory.room -= bytes.len();
            return true;
        }
        false
    }

    #[inline(never)]
    fn write_slice_more(&mut self, index: u32, bytes: &[u8]) -> Result<(), Refusal> {
        if let Some(at) = self.table.place(index).session() {
            let written = self.write_datagram(at, Buf::from(bytes.to_vec()));
            return written.map_err(|refused| refused.reason);
        }
        self.may_write(index, bytes.len())?;
        if !bytes.is_empty() {
            let active = self.activate(index);
            active.corked += bytes.len();
            active.copy(bytes);
            self.dirty(index);
        }
        Ok(())
    }

    /// Whether a connection takes so many more bytes, which count from here on.
    pub(crate) fn may_write(&mut self, index: u32, len: usize) -> Result<(), Refusal> {
        self.check_write(index, len)?;
        if self.has_room_for(index, len)
            && let Some((_, left)) = &mut self.memory.used_room
        {
            *left -= len;
        }
        self.memory.take(len);
        Ok(())
    }

    /// Whether a connection takes so many more bytes.
    pub(crate) fn check_write(&mut self, index: u32, len: usize) -> Result<(), Refusal> {
        let (place, charged) = self.table.look(index);
        if place.takes_no_output() && !self.takes_answers(index) {
            return Err(Refusal::Stale);
        }
        if self.has_room_for(index, len) {
            return Ok(());
        }
        let behind = self.files_of(index).map_or(0, |files| files.corked);
        let charged = (charged as usize).saturating_sub(behind);
        let waits = charged + self.corked(index) + len;
        if waits > self.config.limits.cap {
            return Err(Refusal::Cap);
        }
        if len > self.memory.room && !self.memory.takes(waits, len, self.table.active.len()) {
            return Err(Refusal::Memory);
        }
        Ok(())
    }

    /// The active part of a connection, made where there is none.
    pub(crate) fn activate(&mut self, index: u32) -> &mut Active {
        self.thaw(index);
        self.table.activate(index)
    }

    /// Moves a connection's only buffer into its active part, because more is in motion now.
    pub(crate) fn thaw(&mut self, index: u32) {
        let place = self.table.place_mut(index);
        if place.active & FRESH == 0 {
            return;
        }
        let at = std::mem::replace(&mut place.active, NIL) & !FRESH;
        let data = std::mem::take(&mut self.work.fresh[at as usize].1);
        self.table.activate(index).cork(data);
        self.dirty(index);
    }

    /// How many bytes of output wait for a connection, including those of this turn, and without
    /// those of [files](Engine::send_file); 0 for a stale id. It may be too high: the kernel may
    /// have taken bytes since the engine last looked.
    pub fn waiting(&mut self, id: Id) -> usize {
        if let Some(at) = self.table.session(id) {
            return self.waiting_datagrams(at);
        }
        if !self.table.lives(id) {
            return 0;
        }
        let queued = self.table.active_of(id.index()).map_or(0, |active| active.in_memory());
        queued + self.corked(id.index())
    }

    /// Sends the output of this turn, and carries out the program's requests: pauses, closes,
    /// connects, options and so on. A flush delivers no events. If it makes some, the next wait
    /// returns at once.
    pub fn flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        self.look_into_inbox();
        self.begin_flush();
        while self.next_fresh().is_some() {
            self.send_fresh(watcher);
        }
        while let Some(index) = self.next_dirty() {
            self.send(watcher, index);
            self.carry_out(watcher, index);
        }
        self.finish_flush(watcher);
        self.come_again(watcher);
    }

    /// The beginning of a flush. From here on each connection is charged for its own output.
    #[inline]
    pub(crate) fn begin_flush(&mut self) {
        if self.memory.by_program.is_changed() {
            self.take_charges();
        }
        self.memory.end_turn();
    }

    /// Makes a turn follow if there are events.
    pub(crate) fn come_again<D: Driver>(&self, watcher: &mut Watcher<D>) {
        if self.has_events() {
            // A refusal means that completions wait already.
            let _ = watcher.submit(Op::nop().token(self.token(super::WAKE)));
        }
    }

    /// The end of a flush, after the connections.
    pub(crate) fn finish_flush<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        if self.work.requests {
            self.carry_out_requests(watcher);
        }
        // Not before: a connection that wakes itself in each wake would not let the turn end.
        self.told.pending.extend(self.told.woken.drain(..).map(Pending::Wake));
        // What callbacks have written during the flush is sent, too.
        self.memory.end_turn();
        if self.memory.is_touched {
            self.shed(watcher);
        }
        if !self.memory.waiters.is_empty() {
            self.look_at_waiters();
        }
        self.memory.leases = leases_to_give(watcher);
        self.arm_sweep(watcher);
    }

    /// Whether `next_event` has something.
    pub(crate) fn has_events(&self) -> bool {
        !self.told.pending.is_empty() || !self.told.queue.is_empty()
    }

    /// The next connection that has something to send or to do.
    #[inline]
    pub(crate) fn next_dirty(&mut self) -> Option<u32> {
        while let Some(id) = self.work.dirty.pop() {
            if let Some(place) = self.table.get_mut(id) {
                place.flags &= !DIRTY;
                return Some(id.index());
            }
        }
        None
    }

    /// How many bytes a connection is about to send.
    pub(crate) fn corked(&mut self, index: u32) -> usize {
        let at = self.table.place(index).active;
        if at & FRESH != 0 {
            return self.work.fresh[(at & !FRESH) as usize].1.len();
        }
        self.table.active_of(index).map_or(0, |active| active.corked)
    }

    /// The last connection that has one buffer to send and nothing else to do, and the number of
    /// bytes.
    #[inline(always)]
    pub(crate) fn next_fresh(&mut self) -> Option<(u32, usize)> {
        loop {
            let (index, data) = self.work.fresh.last()?;
            if !data.as_slice().is_empty() {
                return Some((*index, data.as_slice().len()));
            }
            // It has moved into an active part.
            self.work.fresh.pop();
        }
    }

    /// Whether the last buffer of the list is that of a connection.
    #[inline(always)]
    pub(crate) fn is_next_fresh(&self, index: u32) -> bool {
        let is_its = |(of, data): &(u32, Buf)| *of == index && !data.as_slice().is_empty();
        self.work.fresh.last().is_some_and(is_its)
    }

    /// Sends the buffer that `next_fresh` has found. Returns how many bytes wait then, or `None` if
    /// the connection has ended.
    #[inline(always)]
    pub(crate) fn send_fresh<D: Driver>(&mut self, watcher: &mut Watcher<D>) -> Option<usize> {
        let index = self.work.fresh.last()?.0;
        let token = self.token(index);
        let place = self.table.place_mut(index);
        let (_, data) = self.work.fresh.pop()?;
        debug_assert_eq!(place.active, self.work.fresh.len() as u32 | FRESH);
        place.active = NIL;
        match watcher.submit(Op::write(place.source, data).token(token).quiet()) {
            Ok(ticket) => {
                self.counters.writes += 1;
                if ticket.had_ended() { Some(0) } else { Some(self.begin_to_wait(watcher, index)) }
            }
            Err(refused) => self.refused(watcher, index, refused.value),
        }
    }

    #[cold]
    fn refused<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        write: Op,
    ) -> Option<usize> {
        self.activate(index).unsent += write.into_buf().len();
        self.fail(watcher, index, Cause::Rejected);
        None
    }

    #[inline(never)]
    fn begin_to_wait<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) -> usize {
        let source = self.table.place(index).source;
        let queued = watcher.queued_bytes(source).unwrap_or(0);
        if queued > 0 {
            self.activate(index);
            self.wait_for_output(watcher, index, queued, queued);
        }
        queued
    }

    /// Whether the output of this turn can be sent now.
    pub(crate) fn may_send(&self, index: u32) -> bool {
        // One comparison for a plain connection.
        self.table.place(index).flags & (CONNECTING | ABORT | CODED) == 0
            || self.may_send_coded(index)
    }

    /// Sends what was written to a connection in this turn, and notes how much of it waits.
    #[inline]
    pub(crate) fn send<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let place = self.table.place(index);
        let (is_coded, is_idle) = (place.flags & CODED != 0, place.active == NIL);
        let says = is_coded && self.has_to_say(index);
        if is_idle && !says {
            return;
        }
        self.thaw(index);
        if !self.may_send(index) {
            return self.send_in_handshake(watcher, index);
        }
        if is_coded {
            if !self.sends_text(watcher, index) {
                return;
            }
        } else if self.files_of(index).is_some() && !self.send_files(watcher, index) {
            return;
        }
        let (source, token) = (self.table.place(index).source, self.token(index));
        if says {
            self.activate(index);
        }
        let Some(active) = self.table.active_of(index) else { return };
        let sends = active.corked | active.queued > 0;
        let most = active.corked + active.queued;
        if active.corked > 0 || says {
            if active.queued > 0 {
                // The progress since the last look must be noted now: the new bytes hide it.
                let queued = watcher.queued_bytes(source).unwrap_or(0);
                self.note_progress(watcher, index, queued);
            }
            if is_coded {
                if !self.send_coded(watcher, index, says) {
                    return;
                }
            } else {
                let Some(active) = self.table.active_of(index) else { return };
                let data = active.uncork(watcher);
                if let Err(refused) = watcher.submit(Op::write(source, data).token(token).quiet()) {
                    // The watcher's tables or its limit of writes are full, or other code has
                    // ended the source.
                    self.refused(watcher, index, refused.value);
                    return;
                }
            }
            self.counters.writes += 1;
        }
        let queued = watcher.queued_bytes(source).unwrap_or(0);
        let Some(active) = self.table.active_of(index) else { return };
        // Behind no other output it moves, even if the kernel has not said so yet.
        if active.idle != IdleClock::Elsewhere && (queued < most || most > 0 && active.queued == 0)
        {
            active.idle.note_byte(watcher.update_now());
        }
        let is_in_time = active.keeps & TIMED != 0 && sends && queued == 0;
        let was_full = most > self.config.limits.high;
        if was_full || queued | active.queued | active.charged as usize != 0 {
            self.wait_for_output(watcher, index, queued, most);
        }
        if is_in_time {
            self.sent_in_time(index);
        }
        if let Some(stream) = self.stream_of(index) {
            stream.offer_room();
        }
        self.table.settle(index);
    }

    /// Notes how much output waits, and submits a wait for its end. `most` bytes have waited in
    /// this turn: a program that has seen more than the high mark waits for `Drained`, even if the
    /// kernel has taken all.
    pub(crate) fn wait_for_output<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        queued: usize,
        most: usize,
    ) {
        self.note_progress(watcher, index, queued);
        self.recharge(index);
        let limits = self.config.limits;
        let (source, token) = (self.table.place(index).source, self.token(index));
        let place = self.table.place_mut(index);
        // The output of a handshake is not the program's, which does not know the connection yet.
        let is_hidden = place.stage == Stage::Handshake && !self.is_upgrading(index);
        let was_full = self.is_marked_full(index);
        if !is_hidden && self.is_full_with(index, most.max(queued), limits.high, limits.files - 1) {
            self.fill(index);
        }
        let (flags, is_full) = (self.table.place(index).flags, self.is_marked_full(index));
        if queued == 0 {
            let ends = self.table.place(index).stage >= Stage::Leaving;
            let is_idle = |active: &mut Active| active.idle != IdleClock::Elsewhere;
            if !ends && !self.table.active_of(index).is_some_and(is_idle) {
                self.unsweep(index);
            }
            if is_full && !self.table.is_draining(index) {
                // The wait for less output was refused, or is not needed at all.
                self.drained(watcher, index);
            }
            return;
        }
        let mut mark = if is_full { limits.low } else { 0 };
        if let Some(files) = self.files_of(index) {
            mark = files.mark();
            // The completion of the file says that it is sent, or read: no buffer moves before. The
            // flush that follows sends what may go already.
            if files.is_sending()
                || files.is_coded && watcher.queued_bytes(source).unwrap_or(0) <= mark
            {
                return self.sweep_later(watcher, index);
            }
        }
        if flags & FINISHING == 0 && !self.table.is_draining(index) {
            let drain = watcher.submit(Op::wait_drained(source, mark).token(token)).ok();
            let active = self.activate(index);
            (active.is_draining, active.drain) = (drain.is_some(), drain);
        } else if !was_full
            && is_full
            && let Some(drain) = self.table.active_of(index).and_then(|active| active.drain.take())
        {
            // This wait is for the end of the output. When it is cancelled, a wait for the mark
            // follows.
            watcher.cancel(drain);
        }
        self.sweep_later(watcher, index);
    }

    /// Notes when output moves: the limit of stalls counts from there.
    pub(crate) fn note_progress<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        queued: usize,
    ) {
        let goes_on = self.has_bounded_end(index);
        let Some(active) = self.table.active_of(index) else { return };
        let (begins, moves) = (active.queued == 0 && queued > 0, queued < active.queued);
        if moves || begins {
            // A callback may have run for long since the turn has begun.
            let now = watcher.update_now();
            if moves {
                active.idle.note_byte(now);
            }
            if !goes_on {
                active.since = Some(now);
            }
        }
        active.queued = queued;
    }

    /// Notes that a connection is full, because a program that looks now stops writing, and waits
    /// for `Drained`. Each look at what the kernel has taken hides that: call this before it.
    pub(crate) fn note_full(&mut self, index: u32) {
        let limits = self.config.limits;
        let Some(active) = self.table.active_of(index) else { return };
        let most = active.queued + active.corked;
        if self.is_full_with(index, most, limits.high, limits.files - 1) {
            self.fill(index);
        }
    }

    /// Little output waits for a connection.
    pub(crate) fn drained<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        self.note_full(index);
        if self.files_of(index).is_none() && self.corked(index) > 0 {
            // Output of this turn waits, too. The flush sends it, and looks again; or the end of a
            // handshake does.
            if !self.is_upgrading(index) {
                self.dirty(index);
            }
            return;
        }
        let queued = self.queued(watcher, index);
        if queued == 0
            && let Some(files) = self.files_of(index)
        {
            // What is next is a part of a file without bytes, or is behind the last file: no
            // operation tells its end. The flush sends it, and looks again. (The completion of a
            // file in flight makes a flush, too.)
            if !files.is_sending() {
                self.dirty(index);
            }
            return;
        }
        let limits = self.config.limits;
        if self.is_marked_full(index)
            && !self.is_full_with(index, queued, limits.low, limits.files / 2)
        {
            self.mark_room(index);
            self.told.pending.push_back(Pending::Drained(self.table.id(index)));
        }
        if queued == 0
            && self.table.active_of(index).is_some_and(|a| a.keeps & TIMED != 0 && a.corked == 0)
        {
            self.sent_in_time(index);
        }
        self.wait_for_output(watcher, index, queued, queued);
        if let Some(stream) = self.stream_of(index) {
            stream.offer_room();
        }
    }

    /// Updates the charge of a connection to the bytes that wait for it.
    pub(crate) fn recharge(&mut self, index: u32) {
        let flags = self.table.place(index).flags & (CONNECTING | CODED);
        let waits_to_begin = flags != 0 && (flags & CONNECTING != 0 || self.is_upgrading(index));
        let Some(active) = self.table.active_of(index) else { return };
        // Output of this turn is not charged, except where it has to wait: for the connect, for the
        // handshake of an upgrade, or for a file.
        let waits = if waits_to_begin || active.files.is_some() { active.corked } else { 0 };
        let queued = active.in_memory();
        let all = queued + active.held_bytes + waits + active.by_program as usize;
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        // Held input does not count against the cap. Output of this turn is counted separately,
        // until it waits behind a file: then writes of other threads must know of it.
        let (behind, of_file) = active.files.as_deref_mut().map_or((0, 0), |files| {
            files.corked = active.corked;
            (files.corked, files.of_file())
        });
        let all = all.saturating_add(u32::try_from(of_file).unwrap_or(u32::MAX));
        let capped = u32::try_from(queued + behind).unwrap_or(u32::MAX);
        let all_before = active.charged;
        let capped_before = std::mem::replace(&mut active.capped, capped);
        active.charged = all;
        if all_before != all {
            self.memory.budget.change(all_before, all);
        }
        if capped_before != capped {
            self.table.charge(index, capped_before, capped);
        }
        self.recount(index);
    }

    /// Notes how many bytes a connection holds, and compares that with its share.
    pub(crate) fn recount(&mut self, index: u32) {
        let holders = self.table.hold(index);
        self.change_holders(holders);
        self.look_at_share(index);
    }

    pub(crate) fn change_holders(&mut self, change: isize) {
        if change != 0 {
            self.memory.holders = self.memory.holders.wrapping_add_signed(change);
            self.memory.budget.change_holders(change);
            self.memory.share = self.memory.budget.share();
        }
    }
}

/// How many leases the program gets in the next turn: half of the swap buffers that are free.
fn leases_to_give<D: Driver>(watcher: &mut Watcher<D>) -> usize {
    let Ok(pool) = watcher.driver_mut().pool() else { return usize::MAX };
    let free = (pool.limit_bytes() - pool.leased_bytes()) / pool.chunk_bytes();
    // That does not count buffers that have come back. To look for them costs more.
    let all = pool.limit_bytes() / pool.chunk_bytes();
    let free = if 2 * free >= all { free } else { pool.available(false) };
    // The buffer at hand is one of them, and the program may keep a part of it already.
    free.saturating_sub(1) / 2
}
