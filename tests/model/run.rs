//! Runs the steps of a program: its calls, and the answers that they may have.

use std::sync::Arc;
use std::time::Duration;

use windlass::{Address, Buf, Handle, Limit, Op, Ready, Refusal, Source};

use super::files::Work;
use super::state::*;
use super::steps::*;
use super::submit::{Plan, Sort, full};
use crate::worlds::World;

/// The most sources that a program makes.
const PORTS: usize = 14;

/// Bytes with an owner of another type.
struct Owned(Vec<u8>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<W: World> Model<W> {
    /// Bytes of writes that wait on a source.
    pub fn queued_bytes(&mut self, port: usize) -> Option<usize> {
        self.watcher.queued_bytes(self.ports[port].source).ok()
    }

    /// A port of the wanted sort, mostly an open one.
    pub fn pick(&self, on: u8, sort: Sort) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.ports.len()).filter(|&port| Sort::is(&self.ports[port]) == sort).collect();
        let open: Vec<usize> = all.iter().copied().filter(|&port| self.is_open(port)).collect();
        let from = if on < 245 && !open.is_empty() { open } else { all };
        (!from.is_empty()).then(|| from[on as usize % from.len()])
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Pair { tcp, remote } => self.pair(tcp, remote),
            Step::Listen => self.listen(),
            Step::Accept { on, many, how } => {
                let Some(port) = self.pick(on, Sort::Listener) else {
                    return;
                };
                let op = Op::accept(self.ports[port].source);
                let op = if many { op.multishot() } else { op };
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = if many { usize::MAX } else { 0 };
                self.submit(plan, how);
            }
            Step::Connect { to, how } => self.connect(to, how),
            Step::Read { on, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                self.submit(Plan::new(Op::read(self.ports[port].source), Some(port)), how);
            }
            Step::ReadMany { on, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                self.read_many(port, how);
            }
            Step::ReadInto { on, ref rooms, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                let room = |&room: &u16| Vec::with_capacity(room as usize);
                let mut bufs: Vec<Vec<u8>> = rooms.iter().map(room).collect();
                if bufs.iter().all(|buf| buf.capacity() == 0) {
                    bufs[0].reserve_exact(1);
                }
                let source = self.ports[port].source;
                let op = match bufs.len() {
                    1 => Op::read_into(source, bufs.remove(0)),
                    _ => Op::read_vectored(source, bufs),
                };
                self.submit(Plan::new(op, Some(port)), how);
            }
            Step::ReadExact { on, count, spare, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                let room: Vec<u8> = Vec::with_capacity(count as usize + spare as usize);
                let op = Op::read_exact(self.ports[port].source, room, count as usize);
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = count as usize;
                self.submit(plan, how);
            }
            Step::ReadAppend { on, len, spare, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                let prefix: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut room = Vec::with_capacity(len as usize + spare as usize);
                room.extend_from_slice(&prefix);
                self.append(port, Buf::from(room), prefix, how);
            }
            Step::AppendLease { on, which, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                if self.unique.is_empty() {
                    return;
                }
                let buf = self.unique.swap_remove(which as usize % self.unique.len());
                let mut prefix = buf.to_vec();
                let mut lease = buf.into_lease_mut().expect("no other lease has its bytes");
                if which.is_multiple_of(4) {
                    // A part of it, and the other part is kept.
                    let tail = lease.split_off(lease.len() / 2);
                    prefix.truncate(lease.len());
                    self.unique.push(Buf::from(tail));
                }
                // A swap buffer that is full has no room behind its bytes.
                if lease.len() < self.limits.chunk as usize {
                    self.append(port, Buf::from(lease), prefix, how);
                }
            }
            Step::Idle { on, ms } => {
                let Some(port) = self.pick(on, Sort::of(on, 16)) else {
                    return;
                };
                self.set_idle(port, ms.map(|ms| Duration::from_millis(ms.into())));
            }
            Step::Move { which, due } => self.reschedule(which, due),
            Step::Write { on, len, owner, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                let payload = self.draw(port, (len as usize).min(self.world.most_bytes()));
                let buf = match owner {
                    Owner::Vec => Buf::from(payload.clone()),
                    Owner::Box => Buf::from(payload.clone().into_boxed_slice()),
                    Owner::Shared => Buf::from(Arc::<[u8]>::from(&*payload)),
                    Owner::Other => Buf::from_owner(Owned(payload.clone())),
                };
                self.write(port, buf, payload, how);
            }
            Step::WriteParts { on, ref lens, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                let parts: Vec<Vec<u8>> =
                    lens.iter().map(|&len| self.draw(port, len as usize)).collect();
                let payload = parts.concat();
                let parts: Vec<Buf> = parts.into_iter().map(Buf::from).collect();
                self.write(port, Buf::list(parts), payload, how);
            }
            Step::WriteLease { on, which, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                if self.held.is_empty() {
                    return;
                }
                let at = which as usize % self.held.len();
                let (mut lease, mut payload) = match which % 2 {
                    0 => (self.held[at].lease.clone(), self.held[at].copy.clone()),
                    _ => {
                        let held = self.held.swap_remove(at);
                        (held.lease, held.copy)
                    }
                };
                if which.is_multiple_of(3) && payload.len() > 1 {
                    let half = payload.len() / 2;
                    lease = lease.slice(half..);
                    payload.drain(..half);
                }
                self.write(port, Buf::from(lease), payload, how);
            }
            Step::Shutdown { on, how } => {
                let Some(port) = self.pick(on, Sort::Stream) else {
                    return;
                };
                self.submit(Plan::new(Op::shutdown(self.ports[port].source), Some(port)), how);
            }
            Step::Close { on, how } => {
                let Some(port) = self.pick(on, Sort::any(on, 16)) else {
                    return;
                };
                let mut plan = Plan::new(Op::close(self.ports[port].source), Some(port));
                plan.work = self.ports[port].file.map(|_| Work::Close);
                self.submit(plan, how);
            }
            Step::Poll { on, interest, how } => {
                let Some(port) = self.pick(on, Sort::of(on, 8)) else {
                    return;
                };
                let all = [Ready::READABLE, Ready::WRITABLE, Ready::READ_CLOSED];
                let chosen = (0..3).filter(|bit| interest >> bit & 1 == 1).map(|bit| all[bit]);
                let interest = chosen.fold(Ready::NONE, |set, one| set | one);
                let op = Op::poll(self.ports[port].source, interest);
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = interest.bits() as usize;
                self.submit(plan, how);
            }
            Step::Ready { on, writes, many, how } => {
                let Some(port) = self.pick(on, Sort::of(on, 8)) else {
                    return;
                };
                let source = self.ports[port].source;
                let op = if writes { Op::writable(source) } else { Op::readable(source) };
                let op = if many { op.multishot() } else { op };
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = if many { usize::MAX } else { 0 };
                self.submit(plan, how);
            }
            Step::Recv { on, ref rooms } => self.recv(on, rooms),
            Step::Send { on, ref lens } => self.send(on, lens),
            Step::Drained { on, bytes, how } => {
                let Some(port) = self.pick(on, Sort::of(on, 16)) else {
                    return;
                };
                let op = Op::wait_drained(self.ports[port].source, bytes.into());
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = bytes.into();
                self.submit(plan, how);
            }
            Step::Timer { ns, absolute, remote } => {
                let times = self.when(if absolute { Due::At(ns) } else { Due::In(ns) });
                let op = match times {
                    (Some(at), _) => Op::timer_at(at),
                    (None, span) => Op::timer(span.unwrap_or_default()),
                };
                let mut plan = Plan::new(op, None);
                plan.times = Some(times);
                self.submit(plan, How { due: Due::Never, remote, quiet: false });
            }
            Step::Nop { remote } => {
                let how = How { due: Due::Never, remote, quiet: false };
                self.submit(Plan::new(Op::nop(), None), how);
            }
            Step::Open { file, how } => self.open_file(file, how),
            Step::ReadAt { on, offset, ref rooms, how } => self.read_at(on, offset, rooms, how),
            Step::WriteAt { on, offset, ref lens, how } => self.write_at(on, offset, lens, how),
            Step::Sync { on, data, how } => self.sync(on, data, how),
            Step::SetLen { on, len, how } => self.set_len(on, len, how),
            Step::Job { us, panics, how } => self.job(us, panics, how),
            Step::Refused { on, which } => self.refused(on, which),
            Step::Abort { on, remote } => {
                let Some(port) = self.pick(on, Sort::any(on, 8)) else {
                    return;
                };
                self.abort(port, remote);
            }
            Step::Reattach { on } => {
                let Some(port) = self.pick(on, Sort::any(on, 8)) else {
                    return;
                };
                self.reattach(port);
            }
            Step::Cancel { which, remote } => self.cancel_some(which, remote),
            Step::CancelAll { on } => {
                let Some(port) = self.pick(on, Sort::any(on, 8)) else {
                    return;
                };
                self.cancel_all(port);
            }
            Step::Post { count, elsewhere } => self.post(count, elsewhere),
            Step::Together { count, ref kinds } => self.together(count, kinds),
            Step::Release { elsewhere } => self.release(elsewhere),
            Step::Wait { ns, keep } => {
                let span = ns.map(|ns| Duration::from_nanos(ns.into()).min(W::LONGEST_WAIT));
                self.wait(span, keep);
            }
            Step::CloseWatcher => self.close(),
        }
    }

    fn pair(&mut self, tcp: bool, remote: bool) {
        if self.ports.len() >= PORTS {
            return;
        }
        let (a, b) = if tcp { self.world.tcp_pair() } else { self.world.pair() };
        self.count(if tcp { "pairs, TCP" } else { "pairs, Unix" });
        self.streams.push(Stream::default());
        let stream = self.streams.len() - 1;
        for (side, handle) in [a, b].into_iter().enumerate() {
            let attached = match remote && side == 1 {
                true => self.attach_elsewhere(handle),
                false => self.attach(handle),
            };
            let Some(source) = attached else { continue };
            let port = self.add_port(source, Some((stream, side)));
            if remote && side == 1 {
                self.ports[port].reserved = true;
                self.requests.push_back(Request::Attach(port));
            }
        }
    }

    /// Whether an aborted source may keep its slot: until a late cancel is answered, or the work on
    /// its file has ended.
    pub fn may_linger(&self) -> bool {
        !self.slack.is_zero() || self.is_at_work()
    }

    /// Attaches, unless there is a reason not to.
    pub fn attach(&mut self, handle: Handle) -> Option<Source> {
        match self.watcher.attach(handle) {
            Ok(source) => Some(source),
            Err(rejected) => {
                let counters = self.watcher.counters();
                let limit = u64::from(self.limits.sources);
                let near = counters.sources + self.limits.reserve as u64 >= limit
                    || self.may_linger() && counters.free_sources == 0;
                let right = match rejected.reason {
                    Refusal::Closed => self.closed,
                    reason => full(reason, Limit::Sources).is_some() && near && !self.closed,
                };
                assert!(right, "attach was refused: {:?}; {counters:?}", rejected.reason);
                self.count(format!("attach refused {:?}", rejected.reason));
                None
            }
        }
    }

    fn attach_elsewhere(&mut self, handle: Handle) -> Option<Source> {
        match self.submitter.attach(handle) {
            Ok(source) => {
                self.taken += 1;
                Some(source)
            }
            Err(rejected) => {
                let reason = rejected.reason;
                let few = self.limits.sources < 1000;
                let right = match reason {
                    Refusal::Closed => self.closed,
                    _ if full(reason, Limit::RemoteQueue).is_some() => {
                        self.taken += 1;
                        self.may_be_full()
                    }
                    _ => full(reason, Limit::IdReserve).is_some() && (self.taken > 0 || few),
                };
                assert!(right, "attach from elsewhere was refused: {reason:?}");
                None
            }
        }
    }

    fn listen(&mut self) {
        let listeners = self.ports.iter().filter(|port| port.stream.is_none()).count();
        if self.ports.len() >= PORTS || listeners >= 3 {
            return;
        }
        match self.watcher.listen(([127, 0, 0, 1], 0)) {
            Ok(source) => {
                assert!(!self.closed);
                let address = self.watcher.local_address(source).expect("it is bound");
                let port = self.add_port(source, None);
                self.ports[port].address = Some(address);
            }
            Err(error) => {
                let reason = Refusal::of(&error).expect("a reason");
                assert!(reason == Refusal::Closed || full(reason, Limit::Sources).is_some());
                assert_eq!(reason == Refusal::Closed, self.closed);
            }
        }
    }

    fn connect(&mut self, to: u8, how: How) {
        let target = if to.is_multiple_of(8) { None } else { self.pick(to, Sort::Listener) };
        let address: Address = match target {
            Some(port) => self.ports[port].address.clone().expect("a listener has one"),
            None => self.world.nowhere(),
        };
        let mut plan = Plan::new(Op::connect(address), None);
        plan.target = target;
        self.submit(plan, how);
    }

    pub fn read_many(&mut self, port: usize, how: How) -> Option<usize> {
        let op = Op::read(self.ports[port].source).multishot();
        let mut plan = Plan::new(op, Some(port));
        plan.wanted = usize::MAX;
        self.submit(plan, how)
    }

    fn append(&mut self, port: usize, buf: Buf, prefix: Vec<u8>, how: How) {
        let mut plan = Plan::new(Op::read_append(self.ports[port].source, buf), Some(port));
        plan.prefix = prefix;
        self.submit(plan, how);
    }

    pub fn set_idle(&mut self, port: usize, timeout: Option<Duration>) {
        if self.ports[port].reserved {
            self.flush();
        }
        let now = self.watcher.update_now();
        match self.watcher.set_idle_timeout(self.ports[port].source, timeout) {
            Ok(()) => {
                assert!(self.ports[port].stream.is_some(), "a listener is never idle");
                if let Some(timeout) = timeout {
                    let from = now + timeout.max(Duration::from_millis(1));
                    let before = self.ports[port].idle_from.get_or_insert(from);
                    *before = from.min(*before);
                    self.count("idle timeouts set");
                }
            }
            Err(Refusal::Stale) => assert!(self.ports[port].aborted || self.is_closing(port)),
            Err(Refusal::Unsupported) => assert!(self.ports[port].stream.is_none()),
            Err(reason) => assert!(reason == Refusal::Closed && self.closed, "{reason:?}"),
        }
    }

    /// Gives an operation another deadline, a timer another time.
    fn reschedule(&mut self, which: u16, due: Due) {
        if self.ops.is_empty() || due == Due::Never {
            return;
        }
        self.call += 1;
        let pending: Vec<usize> = self.pending().collect();
        let op = match pending.is_empty() || which.is_multiple_of(5) {
            true => which as usize % self.ops.len(),
            false => pending[which as usize % pending.len()],
        };
        if self.ops[op].queued {
            // The loop looks at the queue before it says that the ticket is stale.
            self.flush();
        }
        let (at, timeout) = self.when(due);
        let ticket = self.ops[op].ticket;
        let before = self.watcher.update_now();
        let answer = match (at, timeout) {
            (Some(at), _) => self.watcher.reschedule_at(ticket, at),
            (None, timeout) => self.watcher.reschedule(ticket, timeout.unwrap_or_default()),
        };
        let after = self.watcher.update_now();
        let port = self.ops[op].end;
        let ends = port.is_some_and(|port| self.ports[port].aborted);
        // Work that goes on was asked to end already.
        let goes_on = self.may_be_late(&self.ops[op], after);
        let record = &mut self.ops[op];
        match answer {
            Ok(()) => {
                assert!(record.ended.is_none(), "a stale ticket was rescheduled: {record:?}");
                record.due = at.or(timeout.map(|timeout| before + timeout));
                record.overdue = at.or(timeout.map(|timeout| after + timeout));
                // Among equal times it is now the last.
                record.timeout = Some(timeout.unwrap_or_default());
                self.count("rescheduled");
            }
            Err(Refusal::Stale) => {
                let asked = record.cancelled_at.is_some() || ends || goes_on;
                record.due_now |= record.ended.is_none() && !asked;
            }
            Err(reason) => assert!(reason == Refusal::Closed && self.closed, "{reason:?}"),
        }
    }

    fn write(&mut self, port: usize, buf: Buf, payload: Vec<u8>, how: How) {
        let op = Op::write(self.ports[port].source, buf);
        let op = if how.quiet { op.quiet() } else { op };
        let mut plan = Plan::new(op, Some(port));
        plan.payload = payload;
        self.submit(plan, how);
    }

    /// Submissions that must be refused, and why.
    fn refused(&mut self, on: u8, which: u8) {
        let sort = match which % 17 {
            5 => Sort::Listener,
            14 | 15 => Sort::File,
            _ => Sort::Stream,
        };
        let Some(port) = self.pick(on, sort) else {
            return;
        };
        let source = self.ports[port].source;
        let room = |len: usize| Vec::<u8>::with_capacity(len);
        let (op, reason) = match which % 17 {
            0 => (Op::read_into(source, "static"), Refusal::EmptyBuffer),
            1 => (Op::read_into(source, room(0)), Refusal::EmptyBuffer),
            2 => (Op::read_exact(source, room(8), 9), Refusal::BadCount),
            3 => (Op::read_exact(source, room(8), 0), Refusal::BadCount),
            4 => (Op::read_vectored(source, vec![]), Refusal::EmptyBuffer),
            5 => (Op::read(source), Refusal::Unsupported),
            6 => (Op::accept(source), Refusal::Unsupported),
            7 => (Op::write(Source::NONE, vec![7; 7]), Refusal::Stale),
            8 => (Op::recv_from(source), Refusal::Unsupported),
            9 => (Op::send_to(source, vec![7; 7], self.world.nowhere()), Refusal::Unsupported),
            10 => (Op::read_vectored(source, vec![room(0), room(0)]), Refusal::EmptyBuffer),
            11 => (Op::read_at(source, room(8), 0), Refusal::Unsupported),
            12 => (Op::set_len(source, 1), Refusal::Unsupported),
            13 => (Op::write_at(source, vec![7; 7], 0), Refusal::Unsupported),
            14 => (Op::write_at(source, room(8), 0), Refusal::EmptyBuffer),
            15 => (Op::read(source), Refusal::Unsupported),
            _ => (Op::read_exact(source, "static", 3), Refusal::BadCount),
        };
        if self.ports[port].reserved && op.source() == source {
            self.flush();
        }
        let memory = Memory::of(op.buf());
        let refused = self.watcher.submit(op).expect_err("it cannot be accepted");
        assert_eq!(Memory::of(refused.value.buf()), memory, "other memory came back");
        let reason = match refused.value.source() {
            _ if self.closed => Refusal::Closed,
            Source::NONE => Refusal::Stale,
            _ if self.ports[port].aborted => Refusal::Stale,
            _ if refused.reason == Refusal::Stale && self.is_closing(port) => Refusal::Stale,
            _ => reason,
        };
        assert_eq!(refused.reason, reason);
    }

    pub fn abort(&mut self, port: usize, remote: bool) {
        self.call += 1;
        let source = self.ports[port].source;
        if remote {
            match source.index() % 2 {
                0 => self.submitter.abort(source),
                _ => self.elsewhere(|other| other.abort(source)),
            }
            self.ask_to_abort(port);
            return;
        }
        if self.ports[port].reserved {
            // The loop looks at the queue before it says that the name is stale.
            self.flush();
        }
        let (was_aborted, closing) = (self.ports[port].aborted, self.is_closing(port));
        let answer = self.watcher.abort(source);
        match (was_aborted, closing) {
            (true, _) => assert!(!answer, "a stale source was aborted"),
            (false, false) => assert!(answer, "a source was not aborted"),
            // The close may have been done.
            (false, true) => {}
        }
        if !was_aborted {
            self.aborted(port);
        }
        assert!(!self.watcher.abort(source), "aborted twice");
    }

    fn reattach(&mut self, port: usize) {
        let asked = self.requests.iter().any(|request| match *request {
            Request::Attach(other) | Request::Abort { port: other, .. } => other == port,
            Request::Submit(op) => self.ops[op].end == Some(port),
            _ => false,
        });
        if asked {
            return;
        }
        let source = self.ports[port].source;
        let pending: Vec<usize> =
            self.pending().filter(|&op| self.ops[op].end == Some(port)).collect();
        match self.watcher.detach(source) {
            Ok(handle) => {
                assert!(!self.ports[port].aborted, "an aborted source was detached");
                // Their completions must have been made.
                for op in pending {
                    self.ops[op].due_now = true;
                }
                let source = self.watcher.attach(handle).expect("its place is vacant");
                self.ports[port].source = source;
            }
            Err(Refusal::Busy) => assert!(!pending.is_empty(), "nothing is in flight"),
            Err(Refusal::Stale) => assert!(self.ports[port].aborted || self.is_closing(port)),
            Err(reason) => assert!(reason == Refusal::Closed && self.closed, "{reason:?}"),
        }
    }

    fn cancel_some(&mut self, which: u16, remote: bool) {
        let pending: Vec<usize> = self.pending().collect();
        let op = match which % 5 {
            0 if !self.ops.is_empty() => which as usize % self.ops.len(),
            _ if pending.is_empty() => return,
            _ => pending[which as usize % pending.len()],
        };
        if remote {
            let (full_queue, may_be_full) = (self.is_full(), self.may_be_full());
            let ticket = self.ops[op].ticket;
            let answer = match op % 2 {
                0 => self.submitter.cancel(ticket),
                _ => self.elsewhere(|other| other.cancel(ticket)),
            };
            match answer {
                Ok(()) => {
                    assert!(!full_queue && !self.closed);
                    self.requests.push_back(Request::Cancel(op));
                }
                Err(reason) => {
                    let right = if self.closed {
                        reason == Refusal::Closed
                    } else {
                        full(reason, Limit::RemoteQueue).is_some() && may_be_full
                    };
                    assert!(right, "{reason:?}");
                }
            }
        } else {
            self.cancel(op);
        }
    }

    pub fn cancel(&mut self, op: usize) {
        self.call += 1;
        if self.ops[op].queued {
            // The loop looks at the queue before it says that the ticket is stale.
            self.flush();
        }
        let answer = self.watcher.cancel(self.ops[op].ticket);
        let (call, now) = (self.call, self.watcher.update_now());
        // Work that goes on was asked to end already.
        let goes_on = self.may_be_late(&self.ops[op], now);
        let record = &mut self.ops[op];
        if record.ended.is_some() {
            assert!(!answer, "a stale ticket was cancelled: {record:?}");
        } else if answer {
            record.cancelled_at.get_or_insert(call);
            record.must_answer = true;
        } else {
            record.due_now = !goes_on;
        }
    }

    fn cancel_all(&mut self, port: usize) {
        self.call += 1;
        if self.ports[port].reserved {
            self.flush();
        }
        let count = self.watcher.cancel_all(self.ports[port].source);
        let pending: Vec<usize> = self
            .pending()
            .filter(|&op| self.ops[op].end == Some(port) && !self.ops[op].queued)
            .collect();
        assert!(count <= pending.len(), "more was cancelled than is in flight");
        if self.ports[port].aborted {
            assert_eq!(count, 0);
            return;
        }
        for op in pending {
            let call = self.call;
            let record = &mut self.ops[op];
            record.cancelled_at.get_or_insert(call);
            record.due_now = record.work.is_none();
        }
    }

    fn post(&mut self, count: u8, elsewhere: bool) {
        for _ in 0..count {
            let (token, number) = (POSTED + self.next_post, self.next_post);
            let (full_queue, may_be_full) = (self.is_full(), self.may_be_full());
            let submitter = self.submitter.clone();
            let post = move || {
                if number.is_multiple_of(3) {
                    submitter.wake(token)
                } else {
                    submitter.post(token, number).map_err(|rejected| {
                        assert_eq!(rejected.value, number, "another value came back");
                        rejected.reason
                    })
                }
            };
            let answer = match elsewhere {
                true => std::thread::spawn(post).join().expect("it does not panic"),
                false => post(),
            };
            match answer {
                Ok(()) => {
                    assert!(!full_queue && !self.closed);
                    self.next_post += 1;
                    self.posts += 1;
                    self.posted.push_back(token);
                    self.requests.push_back(Request::Post);
                }
                Err(Refusal::Closed) => assert!(self.closed),
                Err(reason) => assert!(full(reason, Limit::RemoteQueue).is_some() && may_be_full),
            }
        }
    }

    /// Drops every lease that is held, here or on another thread.
    pub fn release(&mut self, elsewhere: bool) {
        self.done.clear();
        self.unique.clear();
        let held = std::mem::take(&mut self.held);
        let release = move || held.into_iter().for_each(Held::release);
        if elsewhere {
            std::thread::spawn(release).join().expect("it does not panic");
        } else {
            release();
        }
    }

    pub fn close(&mut self) {
        self.call += 1;
        self.watcher.close();
        self.closed = true;
        self.flush();
        for port in 0..self.ports.len() {
            self.aborted(port);
        }
        let pending: Vec<usize> = self.pending().collect();
        for op in pending {
            // Work that has begun ends when it ends.
            self.ops[op].due_now = self.ops[op].work.is_none();
        }
        self.watcher.close();
    }
}
