//! Connects that make a source: the attempts at its addresses, and the operations that wait until
//! one of them succeeds.
//!
//! ```text
//!   connect ──▶ a source without a descriptor: its connect, then what is submitted behind it
//!                 │ attempts: one, and another one with each delay or failure
//!                 ├─ one succeeds ──▶ its descriptor is the source's; the others close
//!                 └─ all fail ──────▶ the connect ends with the last errno, and all behind it
//! ```
//!
//! An attempt is a source of its own, whose name no program has, with a connect as its operation.
//! Neither counts as one of the program's.
//!
//! Invariants: (N1) while a source connects, it has no descriptor, its connect is the head of its
//! writes, and both its directions are paused: nothing of it is tried. (N2) An attempt is in the
//! list of its race from its beginning to its end, which closes its descriptor or gives it away.

use crate::completion::Done;
use crate::driver::endpoint::ConnectOptions;
use crate::kernel::{Calls, Connecting, Kernel};
use crate::memory::buf::Buf;
use crate::op::{OpCode, due_ns};
use crate::proactor::Proactor;
use crate::proactor::ops::timer::absolute;
use crate::proactor::parts::operations::Operations;
use crate::proactor::parts::state::{
    CONNECTING, POLLED, READ_PAUSED, READABLE, REGISTERED, WRITABLE, WRITE_PAUSED,
};
use crate::sys::fd::RawFd;
use crate::sys::socket_option::SocketOption;
use crate::words::address::Address;
use crate::words::clock::ns_of_duration;
use crate::words::error::{Error, ErrorKind, Refusal};
use crate::words::source::{Source, SourceKind, Ticket};
use crate::words::table::NIL;

/// In the `count` of a connect: it belongs to the source that it makes.
pub(in crate::proactor) const OF_SOURCE: u32 = 1;
/// In the `count` of a connect: it is one attempt of such a connect.
pub(in crate::proactor) const ATTEMPT: u32 = 2;

/// A time that never comes.
const NEVER: u64 = u64::MAX;
/// Attempts begin at least so far apart: RFC 8305, section 5.
const LEAST_DELAY_NS: u64 = 10_000_000;

/// The connect of a source, by the slot of its operation.
pub(in crate::proactor) struct Race {
    addresses: Vec<Address>,
    /// The first address that was not tried.
    next: usize,
    /// The slots of the sources of the attempts in progress.
    attempts: Vec<u32>,
    delay_ns: u64,
    /// When the next attempt begins.
    next_ns: u64,
    due_ns: u64,
    /// The errno of the last attempt that has failed.
    errno: i32,
    nodelay: bool,
}

/// Alternates the families of addresses, beginning with that of the first, and keeps the order
/// within each: RFC 8305, section 4.
fn interleave(addresses: Vec<Address>) -> Vec<Address> {
    let Some(family) = addresses.first().map(|address| address.raw().family()) else {
        return addresses;
    };
    let mut all = Vec::with_capacity(addresses.len());
    let (same, others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.raw().family() == family);
    let (mut same, mut others) = (same.into_iter(), others.into_iter());
    loop {
        match (same.next(), others.next()) {
            (None, None) => return all,
            (a, b) => all.extend(a.into_iter().chain(b)),
        }
    }
}

impl Operations {
    pub(in crate::proactor) fn note_failure(&mut self, slot: u32, errno: i32) {
        if let Some(race) = self.races.get_mut(&slot) {
            race.errno = errno;
        }
    }

    /// One entry in the heap stands for the deadline of a connect and for its next attempt.
    pub(in crate::proactor) fn set_connect_timer(&mut self, slot: u32) {
        let Some(race) = self.races.get(&slot) else { return };
        match race.next_ns.min(race.due_ns) {
            NEVER => self.deadlines.remove(slot),
            at_ns => self.deadlines.set(slot, at_ns),
        }
    }
}

impl<K: Kernel> Proactor<K> {
    /// Makes a source, and begins to connect it.
    pub(in crate::proactor) fn connect_source(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        self.sources.check_room()?;
        let Some(first) = addresses.first() else { return Err(Refusal::NoAddress) };
        let is_unix = first.raw().is_unix();
        let kind = if is_unix { SourceKind::UnixStream } else { SourceKind::Stream };
        self.sources.observe_forks();
        let (source, ticket) = self.place_connect(options.token)?;
        let (index, slot) = (source.index(), ticket.index());
        self.ops[slot].count = OF_SOURCE;
        let state = &mut self.sources[index];
        state.open(-1, kind, READ_PAUSED | WRITE_PAUSED);
        state.push_write(&mut self.ops.table, slot);
        self.inbox.remote.opened(source);
        if options.token != 0 {
            self.sources.set_token(index, options.token);
        }
        let now_ns = self.kernel.now_ns();
        let race = Race {
            addresses: interleave(addresses),
            next: 0,
            attempts: Vec::new(),
            delay_ns: ns_of_duration(options.attempt_delay).max(LEAST_DELAY_NS),
            next_ns: NEVER,
            due_ns: options.deadline.map_or(NEVER, |due| absolute(due_ns(due), now_ns)),
            errno: 0,
            nodelay: options.nodelay,
        };
        self.ops.races.insert(slot, race);
        self.try_next(slot);
        Ok((source, ticket))
    }

    /// Tries the next address, and the ones behind it while they fail at once.
    fn try_next(&mut self, slot: u32) {
        loop {
            let Some(race) = self.ops.races.get_mut(&slot) else { return };
            let which = race.next;
            let Some(to) = race.addresses.get(which) else { break };
            race.next += 1;
            let errno = match self.kernel.calls_mut().connect(to, None) {
                Ok((fd, kind, Connecting::Done)) => return self.win(slot, which, fd, kind),
                Ok((fd, kind, how)) => match self.begin_attempt(slot, which, fd, kind, how) {
                    Ok(()) => break,
                    Err(errno) => errno,
                },
                Err(errno) => errno,
            };
            self.ops.note_failure(slot, errno);
        }
        let Some(race) = self.ops.races.get_mut(&slot) else { return };
        if race.attempts.is_empty() {
            let errno = race.errno;
            return self.fail(slot, ErrorKind::Os(errno));
        }
        let is_last = race.next == race.addresses.len();
        race.next_ns = match is_last {
            true => NEVER,
            false => self.kernel.now_ns().saturating_add(race.delay_ns),
        };
        self.ops.set_connect_timer(slot);
    }

    /// Gives the connect of a source another deadline.
    pub(in crate::proactor) fn move_connect_deadline(&mut self, slot: u32, due_ns: u64) {
        if let Some(race) = self.ops.races.get_mut(&slot) {
            race.due_ns = due_ns;
        }
        self.ops.set_connect_timer(slot);
    }

    /// Begins an attempt that is in progress in the kernel. Its table entries do not count towards
    /// the limits of the tables, which are for the program's entries.
    fn begin_attempt(
        &mut self,
        main: u32,
        which: usize,
        fd: RawFd,
        kind: SourceKind,
        how: Connecting,
    ) -> Result<(), i32> {
        self.ops.attempts += 1;
        self.set_limits();
        let place = self.sources.table.occupy().map(|(index, _)| index);
        let ticket = place.and_then(|index| self.occupy(OpCode::Connect, index, 0).ok());
        let (Some(index), Some(ticket)) = (place, ticket) else {
            if let Some(index) = place {
                self.sources.table.vacate(index);
            }
            self.ops.attempts -= 1;
            self.set_limits();
            self.kernel.close(fd);
            return Err(libc::ENOBUFS);
        };
        // The attempt is no operation of the program.
        self.stats.submitted[OpCode::Connect as usize] -= 1;
        let slot = ticket.index();
        let race = self.ops.races.get_mut(&main).expect("it has begun this");
        race.attempts.push(index);
        let op = &mut self.ops.table[slot];
        (op.count, op.offset, op.moved) = (ATTEMPT, u64::from(main), which as u32);
        let state = &mut self.sources[index];
        state.open(fd, kind, 0);
        state.flags &= !(READABLE | WRITABLE);
        state.flags |= CONNECTING;
        state.push_write(&mut self.ops.table, slot);
        if how == Connecting::Full {
            self.ops.table[slot].address = Some(race.addresses[which].clone());
            self.sources[index].flags |= WRITABLE;
            self.pause(index, WRITE_PAUSED);
        } else if let Err(errno) = self.register(index, true) {
            self.end_attempt(index);
            return Err(errno);
        }
        Ok(())
    }

    /// Sets the limits of the tables: the program's limits plus the number of attempts.
    pub(in crate::proactor) fn set_limits(&mut self) {
        self.sources.table.set_limit(self.config.max_sources.saturating_add(self.ops.attempts));
        self.ops.table.set_limit(self.config.max_operations.saturating_add(self.ops.attempts));
    }

    /// Ends an attempt, and closes its descriptor if it still has it.
    fn end_attempt(&mut self, index: u32) {
        let slot = self.sources[index].writes.head;
        let main = self.ops[slot].offset as u32;
        if let Some(race) = self.ops.races.get_mut(&main) {
            race.attempts.retain(|&other| other != index);
        }
        self.unlink(slot);
        let address = self.ops[slot].address.take();
        self.ops.table.vacate(slot);
        self.memory.keep_address(address);
        self.close_source(index);
        self.ops.attempts -= 1;
        self.set_limits();
    }

    /// Ends all attempts of all connects.
    pub(in crate::proactor) fn end_attempts(&mut self) {
        let races = self.ops.races.values().flat_map(|race| &race.attempts);
        let mut attempts: Vec<u32> = races.copied().collect();
        attempts.sort_unstable();
        for index in attempts {
            self.end_attempt(index);
        }
    }

    /// An attempt has succeeded.
    pub(in crate::proactor) fn attempt_done(&mut self, index: u32, slot: u32) {
        let op = &self.ops[slot];
        let (main, which) = (op.offset as u32, op.moved as usize);
        let state = &self.sources[index];
        let (fd, kind) = (state.fd, state.kind());
        if state.has(REGISTERED) {
            let key = state.name(index).key();
            self.kernel.deregister(fd, key);
        }
        // The source that connects owns the descriptor now.
        self.sources[index].fd = -1;
        self.end_attempt(index);
        self.win(main, which, fd, kind);
    }

    /// A source is connected: the operations that wait for it begin.
    fn win(&mut self, slot: u32, which: usize, fd: RawFd, kind: SourceKind) {
        self.end_race(slot, |this, mut race| {
            if race.nodelay && kind == SourceKind::Stream {
                // If the socket does not take the option, the connection goes on without it.
                let _ = this.kernel.calls_mut().set_option(fd, SocketOption::Nodelay(true));
            }
            let index = this.ops[slot].source;
            this.sources[index].connected(fd, kind);
            let address = race.addresses.swap_remove(which);
            this.finish_write(index, slot, Ok(Done::Connected(address)));
            this.run_drains(index);
            let state = &this.sources[index];
            if state.has(POLLED) || state.can_read() || state.can_write() {
                this.enqueue(index);
            }
        });
    }

    fn end_race(&mut self, slot: u32, then: impl FnOnce(&mut Self, Race)) {
        let Some(race) = self.ops.races.remove(&slot) else { return };
        for &index in &race.attempts {
            self.end_attempt(index);
        }
        then(self, race);
    }

    /// Ends a connect of a source, or one of its attempts, with an error.
    pub(in crate::proactor) fn fail_connect(&mut self, slot: u32, kind: ErrorKind) {
        let op = &self.ops[slot];
        let index = op.source;
        if op.count == ATTEMPT {
            let main = op.offset as u32;
            self.end_attempt(index);
            self.ops.note_failure(main, errno_of(kind).unwrap_or(libc::ECANCELED));
            return self.try_next(main);
        }
        self.end_connect(slot, kind);
        if let Some(errno) = errno_of(kind) {
            self.end_queues(index, ErrorKind::Os(errno));
            self.sources[index].fail(errno);
        }
    }

    /// Ends the connect of a source, if there is one, before the operations queued behind it.
    /// Returns the errno that the source then has.
    pub(in crate::proactor) fn end_connect_of(
        &mut self,
        index: u32,
        kind: ErrorKind,
    ) -> Option<i32> {
        let head = self.sources[index].writes.head;
        if head == NIL || self.ops[head].count != OF_SOURCE {
            return None;
        }
        if self.ops[head].code != OpCode::Connect {
            return None;
        }
        self.end_connect(head, kind);
        errno_of(kind)
    }

    fn end_connect(&mut self, slot: u32, kind: ErrorKind) {
        self.end_race(slot, |this, _| {
            let op = &this.ops[slot];
            let (index, token, ticket) = (op.source, op.token, this.ops.ticket(slot));
            let source = this.sources[index].name(index);
            this.remove(slot);
            let error = Error::new(kind, 0, Buf::NONE);
            this.outbox.push(OpCode::Connect, source, ticket, token, Err(error));
        });
    }

    /// The deadline of a source's connect has come, or the time of its next attempt.
    pub(in crate::proactor) fn expire_connect(&mut self, slot: u32) {
        self.take_all_events();
        let attempts = self.ops.races.get(&slot).map(|race| race.attempts.clone());
        for index in attempts.unwrap_or_default() {
            // An attempt that has ended may still be in the ready queue.
            if self.ops.races.get(&slot).is_some_and(|race| race.attempts.contains(&index)) {
                self.sources[index].end_pause(WRITE_PAUSED, WRITABLE);
                self.run_writes(index, &mut 1);
            }
        }
        let Some(race) = self.ops.races.get(&slot) else { return };
        let (due_ns, next_ns) = (race.due_ns, race.next_ns);
        match () {
            () if due_ns <= self.time.now_ns => self.fail(slot, ErrorKind::Deadline),
            () if next_ns <= self.time.now_ns => self.try_next(slot),
            () => self.ops.set_connect_timer(slot),
        }
    }
}

/// The errno that a source and its queued operations get when its connect ends this way; none if
/// the source itself ends.
fn errno_of(kind: ErrorKind) -> Option<i32> {
    match kind {
        ErrorKind::Os(errno) => Some(errno),
        ErrorKind::Deadline => Some(libc::ETIMEDOUT),
        ErrorKind::Cancelled | ErrorKind::Forked => Some(libc::ECANCELED),
        _ => None,
    }
}
