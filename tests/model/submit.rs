//! Submissions, and the requests of other threads that the loop has not taken.

use std::time::{Duration, Instant};

use windlass::driver::OpCode;
use windlass::{Limit, Op, Refusal, Refused, Submitter, Ticket};

use super::files::{Work, is_work};
use super::state::*;
use super::steps::*;
use crate::worlds::World;

/// An operation to be submitted, and what the model needs to know of it.
pub struct Plan {
    op: Op,
    port: Option<usize>,
    pub payload: Vec<u8>,
    pub prefix: Vec<u8>,
    pub wanted: usize,
    pub target: Option<usize>,
    pub work: Option<Work>,
    pub times: Option<(Option<Instant>, Option<Duration>)>,
}

impl Plan {
    pub fn new(op: Op, port: Option<usize>) -> Plan {
        let (payload, prefix) = (Vec::new(), Vec::new());
        Plan { op, port, payload, prefix, wanted: 0, target: None, work: None, times: None }
    }

    /// The operation with its token, and what the model will know of it if it is accepted.
    pub fn split(self, index: usize, how: How) -> (Op, Record) {
        let op = self.op.token(index as u64);
        let record = Record {
            code: op.code(),
            source: op.source(),
            end: self.port,
            ticket: Ticket::NONE,
            multishot: self.wanted == usize::MAX,
            quiet: how.quiet && op.code() == OpCode::Write,
            must_answer: false,
            remote: how.remote,
            queued: how.remote,
            place: u64::MAX,
            payload: self.payload,
            lease: op.buf().is_lease(),
            prefix: self.prefix,
            wanted: self.wanted,
            interest: self.wanted as u16,
            target: self.target,
            work: self.work,
            memory: Memory::of(op.buf()),
            due: None,
            overdue: None,
            timeout: None,
            accepted_at: u64::MAX,
            cancelled_at: None,
            due_now: false,
            must_tear: false,
            data: Vec::new(),
            moved: 0,
            ended: None,
        };
        (op, record)
    }
}

/// The sorts of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Stream,
    Listener,
    File,
}

impl Sort {
    pub fn is(port: &Port) -> Sort {
        match (port.stream, port.file) {
            (Some(_), _) => Sort::Stream,
            (None, Some(_)) => Sort::File,
            (None, None) => Sort::Listener,
        }
    }

    /// A listener once in so many times, else a stream.
    pub fn of(on: u8, every: u8) -> Sort {
        if on.is_multiple_of(every) { Sort::Listener } else { Sort::Stream }
    }

    /// As `of`, and as often a file.
    pub fn any(on: u8, every: u8) -> Sort {
        if on % every == 1 { Sort::File } else { Sort::of(on, every) }
    }
}

pub fn full(reason: Refusal, limit: Limit) -> Option<u32> {
    match reason {
        Refusal::Full { limit: which, count } if which == limit => u32::try_from(count).ok(),
        _ => None,
    }
}

impl<W: World> Model<W> {
    /// A call of another thread.
    pub fn elsewhere<T: Send>(&self, call: impl FnOnce(&Submitter) -> T + Send) -> T {
        let submitter = self.submitter.clone();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || call(&submitter));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Whether the queue is surely full: each surely queued abort takes a place, or exceeds the
    /// bound.
    pub fn is_full(&self) -> bool {
        let doubtful = |request: &&Request| matches!(request, Request::Abort { sure: false, .. });
        self.requests.len() - self.requests.iter().filter(doubtful).count() >= self.limits.queue
    }

    /// Whether the queue may be full, counting all requests that may be queued.
    pub fn may_be_full(&self) -> bool {
        self.requests.len() >= self.limits.queue
    }

    /// An abort from another thread. An abort of an aborted source, or of a source with a queued
    /// abort, is not queued. For an aborted source only the loop knows whether its place has a new
    /// source.
    pub fn ask_to_abort(&mut self, port: usize) {
        let is_asked =
            |request: &Request| matches!(*request, Request::Abort { port: at, .. } if at == port);
        if !self.closed && !self.requests.iter().any(is_asked) {
            let sure = self.is_open(port);
            self.requests.push_back(Request::Abort { port, sure });
        }
    }

    /// The loop takes the requests of other threads.
    pub fn flush(&mut self) {
        self.taken = 0;
        while let Some(request) = self.requests.pop_front() {
            match request {
                Request::Attach(port) => self.ports[port].reserved = false,
                Request::Submit(op) => self.enter(op),
                Request::Cancel(op) => {
                    let call = self.call;
                    self.ops[op].cancelled_at.get_or_insert(call);
                }
                Request::Abort { port, .. } => self.aborted(port),
                Request::Post => {}
            }
        }
    }

    /// An operation takes its place behind those before it.
    pub fn enter(&mut self, op: usize) {
        let record = &mut self.ops[op];
        record.queued = false;
        record.accepted_at = self.call;
        let Some(port) = record.end else { return };
        let code = record.code;
        record.place = self.ports[port].next_place;
        self.ports[port].next_place += 1;
        if let Some(direction) = direction(code) {
            self.ports[port].lists[direction].push(op);
        }
        match code {
            OpCode::Close => {
                self.ports[port].ending = true;
                self.disturb(port);
            }
            OpCode::Shutdown => self.ports[port].shut_asked = true,
            _ => {}
        }
    }

    /// A source is gone, or is about to be.
    pub fn aborted(&mut self, port: usize) {
        let state = &mut self.ports[port];
        state.aborted = true;
        state.ending = true;
        state.reserved = false;
        self.disturb(port);
    }

    /// Submits, and checks the answer; the record's place if it was accepted.
    pub fn submit(&mut self, plan: Plan, how: How) -> Option<usize> {
        self.call += 1;
        let (at, timeout) = match plan.times {
            Some(times) => times,
            None => self.when(how.due),
        };
        let index = self.ops.len();
        let is_timed = plan.times.is_some();
        let (mut op, mut record) = plan.split(index, how);
        if !is_timed {
            op = match (at, timeout) {
                (Some(at), _) => op.deadline(at),
                (None, Some(timeout)) => op.timeout(timeout),
                (None, None) => op,
            };
        }
        let (code, port) = (record.code, record.end);
        if !how.remote && port.is_some_and(|port| self.ports[port].reserved) {
            // The loop looks at the queue before it reports a stale name.
            self.flush();
        }
        let must_meet_the_bound = how.remote && self.is_full();
        let before = self.watcher.update_now();
        let answer = match how.remote {
            // From another thread, or from this one.
            true if index.is_multiple_of(3) => self.elsewhere(|other| other.submit(op)),
            true => self.submitter.submit(op),
            false => self.watcher.submit(op),
        };
        let after = self.watcher.update_now();
        record.ticket = match answer {
            Ok(ticket) => ticket,
            Err(rejected) => {
                self.check_rejected(&rejected, &record);
                return None;
            }
        };
        assert!(!self.closed, "a closed watcher has accepted {code:?}");
        assert!(!must_meet_the_bound, "the queue took more than its bound");
        if let Some(port) = port
            && !how.remote
        {
            assert!(!self.ports[port].aborted, "an aborted source has accepted {code:?}");
        }
        self.accepted += 1;
        record.due = at.or(timeout.map(|timeout| before + timeout));
        record.overdue = match how.remote {
            true => at,
            false => at.or(timeout.map(|timeout| after + timeout)),
        };
        record.timeout = timeout;
        self.ops.push(record);
        if how.remote {
            self.taken += 1;
            self.requests.push_back(Request::Submit(index));
        } else {
            self.enter(index);
        }
        Some(index)
    }

    /// Checks that a refused operation comes back unchanged.
    fn check_rejected(&mut self, rejected: &Refused<Op>, record: &Record) {
        let (back, reason) = (&rejected.value, rejected.reason);
        assert_eq!(back.code(), record.code, "another operation came back");
        assert_eq!(back.source(), record.source);
        assert_eq!(Memory::of(back.buf()), record.memory, "other memory came back");
        self.check_refusal(reason, record.code, record.end, record.remote);
        self.count(format!("refused {reason:?}"));
    }

    /// Checks that the model knows a cause for the reason of a refusal.
    fn check_refusal(&mut self, reason: Refusal, code: OpCode, port: Option<usize>, remote: bool) {
        let counters = self.watcher.counters();
        let limits = &self.limits;
        let reserve = limits.reserve as u64;
        // A reserve that met a full table is filled after a thread has asked it in vain.
        let few_left = limits.operations < 1000 || limits.sources < 1000;
        let right = match reason {
            Refusal::Closed => self.closed,
            Refusal::Stale => {
                let gone = |port: usize| self.ports[port].aborted || self.is_closing(port);
                !remote && port.is_some_and(gone)
            }
            _ if self.closed => false,
            _ if full(reason, Limit::Operations) == Some(limits.operations) => {
                counters.in_flight + reserve >= u64::from(limits.operations)
            }
            _ if full(reason, Limit::Sources) == Some(limits.sources) => {
                let lingers = self.may_linger() && counters.free_sources == 0;
                let taken = counters.sources + reserve >= u64::from(limits.sources);
                code == OpCode::Connect && (taken || lingers)
            }
            _ if full(reason, Limit::Writes) == Some(limits.write_bytes) => {
                let queued = port.and_then(|port| self.queued_bytes(port));
                code == OpCode::Write && queued.is_some_and(|queued| queued > 0)
            }
            _ if full(reason, Limit::Jobs) == Some(limits.jobs as u32) => {
                is_work(code) && counters.in_flight >= limits.jobs as u64
            }
            _ if full(reason, Limit::RemoteQueue) == Some(limits.queue as u32) => {
                // The id goes back to the loop, not into the reserve.
                self.taken += 1;
                remote && self.may_be_full()
            }
            _ if full(reason, Limit::IdReserve) == Some(limits.reserve as u32) => {
                remote && (self.taken > 0 || few_left)
            }
            _ => false,
        };
        assert!(right, "{code:?} on {port:?} was refused: {reason:?}; {counters:?}");
    }
}
