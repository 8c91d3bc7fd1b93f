//! Waits: every completion is checked against the model of its operation.

use std::time::{Duration, Instant};

use windlass::driver::OpCode;
use windlass::{Buf, Completion, Completions, Done, ErrorKind, Handle, Ready, Refusal, Source};

use super::files::is_work;
use super::state::*;
use super::steps::Keep;
use crate::worlds::World;

/// The errnos that a broken connection may report.
pub const BROKEN: [i32; 3] = [libc::ECONNRESET, libc::EPIPE, libc::ENOTCONN];

impl<W: World> Model<W> {
    /// One wait, of `span` or without blocking; answers how many completions came.
    pub fn wait(&mut self, span: Option<Duration>, keep: Keep) -> usize {
        self.call += 1;
        let served: Vec<usize> = self
            .requests
            .iter()
            .filter_map(|request| match *request {
                Request::Submit(op) => Some(op),
                _ => None,
            })
            .collect();
        self.flush();
        let mut done = std::mem::take(&mut self.done);
        let old = done.len();
        let before = self.watcher.update_now();
        let answer = match span {
            None => self.watcher.try_wait(&mut done),
            Some(span) => self.watcher.wait_timeout(&mut done, span),
        };
        let now = self.watcher.update_now();
        let count = match answer {
            Ok(count) => count,
            Err(error) => {
                assert_eq!(Refusal::of(&error), Some(Refusal::Closed), "{error}");
                assert!(self.closed, "not closed");
                self.settle_quiet();
                assert!(self.pending().next().is_none(), "closed, but not drained");
                assert!(self.posted.is_empty(), "a message was lost");
                self.done = done;
                return 0;
            }
        };
        assert_eq!(old + count, done.len(), "the count of a wait");
        assert!(!self.closed || count > 0 || self.is_at_work(), "a closed watcher waits");
        if let Some(span) = span {
            assert!(count > 0 || now >= before + span, "a wait without result is not early");
        }
        for c in done.iter().skip(old) {
            self.account(c, now);
        }
        for op in served {
            // Its timeout began within this wait.
            if let Some(timeout) = self.ops[op].timeout {
                self.ops[op].overdue = Some(now + timeout);
            }
        }
        self.last_wait = self.call;
        self.after_wait(before);
        if self.calm && count == 0 && self.world.is_quiet(&mut self.watcher) {
            self.check_quiet(done.is_empty());
        }
        self.keep(done, keep);
        count
    }

    /// Keeps or drops a batch of completions, as `keep` says.
    pub fn keep(&mut self, mut done: Completions, keep: Keep) {
        match keep {
            Keep::Take => {
                let batch: Vec<Completion> = done.drain(..).collect();
                self.done = done;
                for c in batch {
                    self.consume(c);
                }
            }
            Keep::Stay => self.done = done,
            Keep::Drop => {
                done.clear();
                self.done = done;
            }
        }
    }

    /// The invariants after every wait that has delivered all completions.
    pub fn after_wait(&mut self, before: Instant) {
        self.settle_quiet();
        let mut in_flight = 0;
        let mut connecting = 0;
        for op in self.pending() {
            let record = &self.ops[op];
            // A late cancel is answered in a later wait.
            let due = record.due_now && self.slack.is_zero();
            assert!(!due, "its end was not reported: {record:?}");
            assert!(!record.must_tear, "what is behind a torn write goes on: {record:?}");
            let is_over = record.overdue.is_some_and(|overdue| overdue + self.slack < before);
            let late = is_over && record.work.is_none();
            assert!(!late, "it has not expired: {record:?}");
            in_flight += 1;
            connecting += u64::from(record.code == OpCode::Connect);
        }
        self.check_queued_bytes();
        let counters = self.watcher.counters();
        // The number of quiet writes that have ended, though the model does not know yet which
        // ones.
        let unsettled = counters.quiet_done - self.quiet_done;
        assert_eq!(counters.in_flight + unsettled, in_flight, "operations in flight");
        let sources = self.ports.iter().filter(|port| !port.aborted).count() as u64;
        // A thread that closes a file has taken the source out of the table already.
        let closes = |port: &Port| port.file.is_some() && !port.aborted;
        let closing =
            (0..self.ports.len()).filter(|&at| closes(&self.ports[at]) && self.is_closing(at));
        let least = sources + connecting - closing.count() as u64;
        let range = least..=sources + connecting;
        assert!(range.contains(&counters.sources), "{} sources, not {range:?}", counters.sources);
        let most = self.limits.chunk as usize * self.limits.chunks;
        assert!(counters.swap_bytes as usize <= most, "more swap buffers than allowed");
        assert_eq!(counters.submitted, self.accepted + self.posts, "submitted");
        assert_eq!(counters.completed, self.delivered, "completed");
    }

    /// Without faults, and if nothing is left to be delivered, no pending operation could go on. A
    /// batch that is not empty may hold leases.
    fn check_quiet(&self, batch_is_empty: bool) {
        let leases = self.pending().any(|op| self.ops[op].lease);
        let held = !self.held.is_empty() || !self.unique.is_empty();
        let pool_is_free = !held && batch_is_empty && !leases;
        for port in 0..self.ports.len() {
            let head = |list: usize| {
                let list = self.ports[port].lists[list].iter();
                list.copied().find(|&op| self.ops[op].ended.is_none())
            };
            let Some(write) = head(WRITES).map(|op| &self.ops[op]) else { continue };
            if write.work.is_some() {
                continue;
            }
            assert!(write.code == OpCode::Write, "at the head, but not done: {write:?}");
            let reader = self.peer(port).filter(|&peer| self.is_open(peer));
            let reads = reader.map(|peer| self.ports[peer].lists[READS].iter());
            let read = reads.and_then(|mut reads| reads.find(|&&op| self.ops[op].ended.is_none()));
            if let Some(read) = read.map(|&op| &self.ops[op]) {
                let waits = read.code == OpCode::Read && !pool_is_free;
                assert!(waits, "bytes do not move: {write:?}; {read:?}");
            }
        }
        for op in self.pending() {
            let record = &self.ops[op];
            let listener = record.target.filter(|&port| self.is_open(port));
            assert!(listener.is_none(), "a connection is not made: {record:?}");
            if let (OpCode::Readable, Some(port), false) =
                (record.code, record.end, record.multishot)
            {
                // A read of an exact number of bytes keeps those that came, and tells of them only
                // at its end.
                let mut reads = self.ports[port].lists[READS].iter();
                let first = reads.find(|&&op| self.ops[op].ended.is_none());
                let kept = first.is_some_and(|&op| self.ops[op].code == OpCode::ReadExact);
                assert!(kept || self.unread(port) == 0, "bytes wake nobody: {record:?}");
                let over = self.peer(port).is_some_and(|peer| self.ports[peer].shut);
                assert!(!over, "the end wakes nobody: {record:?}");
            }
            let Some(port) = record.end.filter(|_| direction(record.code) == Some(READS)) else {
                continue;
            };
            let mut list = self.ports[port].lists[READS].iter();
            let is_head = list.find(|&&op| self.ops[op].ended.is_none()) == Some(&op);
            let waits = record.code == OpCode::Read && !pool_is_free;
            if is_head && !waits {
                let unread = self.unread(port);
                let enough = record.wanted.clamp(1, 1 << 30);
                let enough = if record.multishot { 1 } else { enough };
                assert!(unread < enough, "{unread} bytes are not read: {record:?}");
                let over = self.peer(port).is_some_and(|peer| self.ports[peer].shut);
                assert!(!over, "the end is not read: {record:?}");
            }
        }
    }

    /// Bytes that writes are known to have sent to a port, and that no read has delivered.
    fn unread(&self, port: usize) -> usize {
        let Some(peer) = self.peer(port) else { return 0 };
        let moved = |port: usize, list: usize| -> usize {
            let list = self.ports[port].lists[list].iter();
            list.filter(|&&op| self.ops[op].code != OpCode::Shutdown)
                .map(|&op| self.ops[op].moved)
                .sum()
        };
        moved(peer, WRITES).saturating_sub(moved(port, READS))
    }

    /// Bytes of queued writes are counted, and drains wait for nothing else.
    fn check_queued_bytes(&mut self) {
        for port in 0..self.ports.len() {
            let Some(queued) = self.queued_bytes(port) else {
                let is_left = self.ports[port].file.is_some() && self.is_closing(port);
                assert!(self.ports[port].aborted || is_left, "a source is stale");
                continue;
            };
            let pending = self.pending().map(|op| &self.ops[op]);
            let (mut writes, mut unsent) = (0, 0);
            for record in pending.filter(|record| record.end == Some(port)) {
                match record.code {
                    OpCode::Write => {
                        // An empty one has no byte to be queued.
                        writes += usize::from(!record.payload.is_empty());
                        unsent += record.payload.len();
                    }
                    OpCode::WaitDrained => assert!(queued > record.wanted, "drained: {record:?}"),
                    _ => {}
                }
            }
            assert!(queued >= writes && queued <= unsent, "{queued} bytes in {writes} writes");
        }
    }

    /// Enters a completion, and checks it.
    pub fn account(&mut self, c: &Completion, now: Instant) {
        self.delivered += 1;
        if let Ok(Done::Message(message)) = &c.result {
            assert!(c.source.is_none() && !c.has_more());
            assert_eq!(self.posted.pop_front(), Some(c.token), "the order of messages");
            assert_eq!(message.is_empty(), (c.token - POSTED).is_multiple_of(3));
            return;
        }
        let index = c.token as usize;
        assert!(index < self.ops.len(), "the token of no operation: {c:?}");
        let record = &self.ops[index];
        assert!(record.ended.is_none(), "it had ended: {c:?}; {record:?}");
        assert!(!record.queued, "it has not begun: {c:?}");
        assert_eq!(c.ticket(), record.ticket, "{c:?}; {record:?}");
        assert_eq!(c.code(), record.code, "{c:?}; {record:?}");
        assert_eq!(c.source, if record.end.is_some() { record.source } else { Source::NONE });
        let late = !c.is_late() || self.may_be_late(record, now);
        assert!(late, "it goes on after its end: {c:?}; {record:?}");
        let end = End::of(&c.result);
        self.check_end(index, c, end, now);
        self.check_memory(index, c);
        self.check_order(index, end);
        let record = &mut self.ops[index];
        match &c.result {
            Ok(Done::Read(data)) => record.data.extend(data.parts().iter().flat_map(|p| &**p)),
            Ok(Done::Appended { buf, .. }) => record.data.extend(&buf[record.prefix.len()..]),
            Err(_) if record.code == OpCode::ReadAppend => {}
            Err(error) if direction(record.code) == Some(READS) => {
                record.data.extend(error.buf().parts().iter().flat_map(|p| &**p));
            }
            _ => {}
        }
        let (code, port) = (record.code, record.end);
        record.moved += c.bytes();
        if !c.has_more() {
            record.ended = Some(end);
            record.due_now = false;
            record.must_tear = false;
        }
        if c.is_late() {
            self.count(format!("{code:?} late"));
        }
        let what = match end {
            End::Failed(kind) if c.bytes() > 0 => format!("{code:?} {kind:?} after bytes"),
            _ => format!("{code:?} {end:?}"),
        };
        self.count(what);
        if is_work(code) {
            self.work_ended(index, end, c.bytes());
        }
        let Some(port) = port else { return };
        match (code, end) {
            (OpCode::Close, End::Done) => self.aborted(port),
            (OpCode::Shutdown, End::Done) => self.ports[port].shut = true,
            (OpCode::Shutdown, End::Failed(ErrorKind::Os(_))) => self.ports[port].shut = true,
            (OpCode::Read | OpCode::ReadInto | OpCode::ReadAppend, End::Nothing)
            | (OpCode::ReadExact, End::Failed(ErrorKind::Eof)) => self.ports[port].over = true,
            (
                OpCode::Read | OpCode::ReadInto | OpCode::ReadExact | OpCode::ReadAppend,
                End::Failed(ErrorKind::Os(_)),
            ) => self.ports[port].over = true,
            _ => {}
        }
        if direction(code) == Some(WRITES) {
            self.tear(index, port, end, c.bytes());
        }
    }

    /// A write that ends partly sent ends those behind it.
    fn tear(&mut self, index: usize, port: usize, end: End, bytes: usize) {
        let record = &self.ops[index];
        let partly = record.code == OpCode::Write && bytes > 0;
        let tears = matches!(
            end,
            End::Failed(ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Os(_))
        );
        if !partly || !tears {
            return;
        }
        let since = match (end, record.cancelled_at) {
            (End::Failed(ErrorKind::Cancelled), Some(call)) => call,
            _ => self.last_wait,
        };
        let place = record.place;
        self.ports[port].torn_by = Some((place, self.call));
        for op in self.ports[port].lists[WRITES].clone() {
            let behind = &mut self.ops[op];
            if behind.ended.is_none() && behind.place > place && behind.accepted_at < since {
                behind.must_tear = true;
            }
        }
    }

    /// Checks that an operation may end this way, and that the number of bytes in its completion is
    /// possible.
    fn check_end(&self, index: usize, c: &Completion, end: End, now: Instant) {
        let record = &self.ops[index];
        let error_of = |kind| end == End::Failed(kind);
        let bytes = c.bytes();
        let fits = match (record.code, &c.result) {
            (code, _) if is_work(code) => {
                let work = record.work.as_ref().expect("it was planned");
                self.fits_work(record, work, c)
            }
            (OpCode::Nop, Ok(Done::Nop)) => true,
            (OpCode::Timer, Ok(Done::Timer)) => record.due.is_some_and(|due| due <= now),
            (OpCode::Read, Ok(Done::Read(data))) => {
                let lease = data.is_eof() || data.is_lease();
                let more = c.has_more() == (record.multishot && !data.is_eof());
                lease && more && bytes <= self.limits.chunk as usize
            }
            (OpCode::ReadInto, Ok(Done::Read(_))) => true,
            (OpCode::ReadAppend, Ok(Done::Appended { buf, bytes })) => {
                let whole = buf.len() == record.prefix.len() + *bytes as usize;
                whole && buf.is_lease() == record.lease && buf.starts_with(&record.prefix)
            }
            (OpCode::ReadExact, Ok(Done::Read(_))) => bytes == record.wanted,
            (OpCode::Write, Ok(Done::Written { buf, bytes })) => {
                *bytes as usize == record.payload.len() && same(buf, &record.payload)
            }
            (OpCode::Accept, Ok(Done::Accepted(_))) => c.has_more() == record.multishot,
            (OpCode::Connect, Ok(Done::Socket(_))) => record.target.is_some(),
            (OpCode::Shutdown, Ok(Done::Shutdown)) => true,
            (OpCode::Close, Ok(Done::Closed)) => true,
            (OpCode::Poll, Ok(Done::Ready(ready))) => {
                let asked = Ready::from_bits(record.interest) | Ready::ALWAYS;
                !ready.is_empty() && asked.contains(*ready)
            }
            (OpCode::Readable, Ok(Done::Ready(ready))) => {
                *ready == Ready::READABLE && c.has_more() == record.multishot
            }
            (OpCode::Writable, Ok(Done::Ready(ready))) => {
                *ready == Ready::WRITABLE && c.has_more() == record.multishot
            }
            (OpCode::WaitDrained, Ok(Done::Drained)) => true,
            (_, Ok(_)) => false,
            (OpCode::ReadAppend, Err(error)) => bytes == 0 && **error.buf() == *record.prefix,
            (OpCode::ReadExact, Err(error)) => error.buf().len() == bytes && bytes < record.wanted,
            (OpCode::Write, Err(error)) => {
                bytes < record.payload.len().max(1) && same(error.buf(), &record.payload)
            }
            (_, Err(_)) => bytes == 0,
        };
        assert!(fits, "{c:?}; {record:?}");
        assert!(!c.has_more() || c.result.is_ok(), "an error is final: {c:?}");
        if record.must_tear {
            // Or it was asked to end otherwise before it was known to be torn.
            let asked = record.cancelled_at.is_some() && error_of(ErrorKind::Cancelled)
                || error_of(ErrorKind::Aborted)
                || error_of(ErrorKind::Closed);
            assert!(error_of(ErrorKind::Torn) || asked, "a hole: {c:?}; {record:?}");
            assert_eq!(bytes, 0, "a hole: {c:?}; {record:?}");
        }
        let port = record.end;
        let has_cause = match end {
            End::Done => true,
            End::Nothing if record.code == OpCode::ReadAt => true,
            End::Nothing | End::Failed(ErrorKind::Eof) => {
                direction(record.code) == Some(READS)
                    && record.code != OpCode::Accept
                    && (end == End::Nothing) == (record.code != OpCode::ReadExact)
                    && port.is_some_and(|port| self.may_be_over(port))
            }
            End::Failed(ErrorKind::Deadline) => {
                let idle_from = port.and_then(|port| self.ports[port].idle_from);
                let is_read = direction(record.code) == Some(READS);
                let was_idle = is_read && idle_from.is_some_and(|from| from <= now);
                let was_due = record.due.is_some_and(|due| due <= now);
                record.code != OpCode::Timer && (was_due || was_idle)
            }
            End::Failed(ErrorKind::Cancelled) => record.cancelled_at.is_some(),
            End::Failed(ErrorKind::Aborted) => port.is_some_and(|port| self.ports[port].ending),
            End::Failed(ErrorKind::Closed) => self.closed,
            End::Failed(ErrorKind::Torn) => {
                let torn_by = port.and_then(|port| self.ports[port].torn_by);
                direction(record.code) == Some(WRITES)
                    && bytes == 0
                    && torn_by.is_some_and(|(place, call)| {
                        place < record.place && record.accepted_at <= call
                    })
            }
            End::Failed(ErrorKind::Panicked) => record.code == OpCode::Job,
            End::Failed(ErrorKind::Os(errno)) => self.may_fail(index, errno),
            End::Failed(_) => false,
        };
        assert!(has_cause, "without a cause: {c:?}; {record:?}");
    }

    /// Whether a read of this port may meet the end of the file.
    pub fn may_be_over(&self, port: usize) -> bool {
        let asked = self.peer(port).is_some_and(|peer| self.ports[peer].shut_asked);
        asked || self.is_disturbed(port)
    }

    /// Whether the system may have reported this.
    fn may_fail(&self, index: usize, errno: i32) -> bool {
        let record = &self.ops[index];
        match (record.code, record.end) {
            (OpCode::Connect, _) => {
                let refused = [libc::ECONNREFUSED, libc::ECONNRESET].contains(&errno);
                let gone = record.target.is_none_or(|port| self.ports[port].ending);
                let is_full = errno == libc::ENOBUFS && record.remote;
                refused && (gone || self.refusals || self.resets) || is_full && self.is_small()
            }
            (OpCode::Write, Some(_)) if errno == libc::ENOBUFS => {
                record.remote && self.limits.write_bytes < u32::MAX
            }
            (OpCode::Write, Some(port)) => {
                let shut = errno == libc::EPIPE && self.ports[port].shut_asked;
                shut || BROKEN.contains(&errno) && self.is_disturbed(port)
            }
            (code, _) if is_work(code) => {
                let few = record.remote && self.limits.jobs < 1000;
                few && errno == libc::ENOBUFS || self.may_fail_on_disk(code, errno)
            }
            // TCP has forgotten a connection that both ends have shut.
            (OpCode::Shutdown, Some(port)) if self.ports[port].shut && errno == libc::ENOTCONN => {
                self.may_be_over(port)
            }
            (
                OpCode::Read
                | OpCode::ReadInto
                | OpCode::ReadExact
                | OpCode::ReadAppend
                | OpCode::Shutdown,
                Some(port),
            ) => BROKEN.contains(&errno) && self.is_disturbed(port),
            _ => false,
        }
    }

    /// Whether the table of sources may be full.
    fn is_small(&self) -> bool {
        self.limits.sources < 1000
    }

    /// The memory that was moved into the operation comes back.
    fn check_memory(&self, index: usize, c: &Completion) {
        let record = &self.ops[index];
        let back = match &c.result {
            Ok(Done::Read(data)) if record.code != OpCode::Read => data,
            Ok(Done::Written { buf, .. } | Done::Appended { buf, .. }) => buf,
            Ok(_) => return,
            Err(error) if matches!(record.code, OpCode::Read | OpCode::Accept) => {
                return assert!(error.buf().is_empty());
            }
            Err(error) => error.buf(),
        };
        match record.code {
            // A lease may have been copied; its bytes are compared elsewhere.
            OpCode::Write if record.lease && self.watcher.counters().copied_leases > 0 => {
                assert!(back.is_lease(), "no lease: {c:?}");
            }
            // A lease may have moved.
            OpCode::ReadAppend if record.lease => assert!(back.is_lease(), "no lease: {c:?}"),
            OpCode::ReadInto
            | OpCode::ReadExact
            | OpCode::ReadAppend
            | OpCode::Write
            | OpCode::ReadAt
            | OpCode::WriteAt => {
                assert_eq!(Memory::of(back), record.memory, "other memory: {c:?}");
            }
            // A job that panics returns the message of the panic.
            OpCode::Job => {}
            _ => assert!(back.is_empty()),
        }
    }

    /// Operations that end as done, at the end of the file, or in an error of the system end in
    /// order.
    fn check_order(&mut self, index: usize, end: End) {
        let record = &self.ops[index];
        if record.code == OpCode::Timer && end == End::Done {
            return self.check_timers(index);
        }
        let (Some(port), Some(direction)) = (record.end, direction(record.code)) else {
            return;
        };
        // What the loop refuses of other threads' requests was never queued.
        let refused = record.remote && end == End::Failed(ErrorKind::Os(libc::ENOBUFS));
        if !end.is_ordered() || refused {
            return;
        }
        let last = &mut self.ports[port].last_ordered[direction];
        let in_order = last.is_none_or(|last| last <= record.place);
        assert!(in_order, "{end:?} behind place {last:?}: {record:?}");
        *last = Some(record.place);
    }

    /// No timer fires while an earlier one has not, or an equal one that the loop took before it.
    fn check_timers(&self, index: usize) {
        let Some(due) = self.ops[index].due else {
            return;
        };
        let turn = |op: usize| (self.ops[op].accepted_at, op);
        for other in self.pending() {
            let record = &self.ops[other];
            let earlier = record.overdue.is_some_and(|overdue| overdue < due);
            let first = turn(other) < turn(index) && record.timeout.is_none();
            let equal = first && record.overdue == Some(due);
            let before = record.code == OpCode::Timer && !record.queued && (earlier || equal);
            let asked = record.cancelled_at.is_some() || record.due_now;
            assert!(!before || asked, "{:?} fired before {record:?}", self.ops[index]);
        }
    }

    /// Takes a completion apart.
    fn consume(&mut self, c: Completion) {
        let index = c.token as usize;
        match c.result {
            Ok(Done::Read(data)) if data.is_lease() => {
                let hold = !self.finishing && index.is_multiple_of(3) && self.held.len() < 20;
                if !self.finishing && index % 3 == 1 && self.unique.len() < 10 {
                    return self.unique.push(data);
                }
                let lease = data.into_lease().expect("a lease");
                if hold {
                    let copy = lease.to_vec();
                    self.held.push(Held { lease, copy });
                }
            }
            Ok(Done::Appended { buf, .. }) if buf.is_lease() => {
                if !self.finishing && self.unique.len() < 10 {
                    self.unique.push(buf);
                }
            }
            Ok(Done::Read(buf) | Done::Written { buf, .. } | Done::Appended { buf, .. }) => {
                self.check_vec(index, buf);
            }
            Ok(Done::Accepted(handle)) => self.connected(handle, 1),
            Ok(Done::Socket(handle)) => self.connected(handle, 0),
            Ok(Done::Opened(handle)) => self.opened(index, handle),
            Ok(Done::Returned(value)) => {
                let token: u64 = value.downcast().expect("a number");
                assert_eq!(token, c.token, "the value of another job");
            }
            Ok(Done::Message(message)) if !message.is_empty() => {
                let number: u64 = message.downcast().expect("a number");
                assert_eq!(POSTED + number, c.token);
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Panicked => {}
            Err(error) => self.check_vec(index, error.into_buf()),
        }
    }

    /// A vector is the very one that was moved in.
    fn check_vec(&self, index: usize, buf: Buf) {
        for (part, memory) in buf.into_parts().zip(&self.ops[index].memory) {
            if part.capacity() > 0 {
                let vec = part.into_vec();
                let back = Memory { start: vec.as_ptr() as usize, room: vec.capacity() };
                assert_eq!(back, *memory);
            }
        }
    }

    /// A socket from an accept or a connect: finds its other end.
    fn connected(&mut self, handle: Handle, side: usize) {
        let Some(source) = self.attach(handle) else {
            return;
        };
        let client = match side {
            0 => self.watcher.local_address(source),
            _ => self.watcher.peer_address(source),
        };
        let known = client.ok().map(|address| address.to_string());
        let first = known.as_ref().and_then(|address| self.by_address.get(address).copied());
        let stream = match first {
            Some(Some(stream)) if self.streams[stream].ports[side].is_none() => stream,
            first => {
                // The system may give the port of a client that is gone to another client while
                // the first one waits to be accepted. From then on, the address does not tell them
                // apart.
                let waits = first.is_some_and(|stream| {
                    stream.is_none_or(|stream| self.streams[stream].ports.contains(&None))
                });
                let unmatched = known.is_none() || waits;
                self.streams.push(Stream { unmatched, ..Stream::default() });
                let stream = self.streams.len() - 1;
                if let Some(address) = known {
                    self.by_address.insert(address, (!unmatched).then_some(stream));
                }
                stream
            }
        };
        self.add_port(source, Some((stream, side)));
        if stream % 2 == 1 {
            self.world.narrow(&mut self.watcher, source);
        }
        self.count("connections");
    }
}

pub fn same(buf: &Buf, bytes: &[u8]) -> bool {
    buf.len() == bytes.len() && buf.parts().iter().flat_map(|part| &**part).eq(bytes)
}
