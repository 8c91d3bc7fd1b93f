//! Threads that submit while the loop waits.
//!
//! The order of their requests is left to chance. So each thread has a source of its own, or none.
//! When all threads are done, the model takes in what they have submitted: then it knows each
//! ticket, and the order for each source. After that it checks the completions that came meanwhile.

use std::time::Duration;

use windlass::{Completions, Done, ErrorKind, Limit, Op, Ready, Refused};
use windlass::{Submitter, Ticket};

use super::state::*;
use super::steps::{Due, How, Keep};
use super::submit::{Plan, Sort, full};
use crate::worlds::World;

/// How long a thread waits for room for a message, and a simulation for a thread.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a thread waits for room for an operation.
const SHORT: Duration = Duration::from_millis(2);

/// An operation of a thread.
struct Planned {
    op: Op,
    waits: bool,
    cancels: bool,
    /// The number of the message that is posted after it.
    message: u64,
}

/// The ticket, and whether a cancel was accepted.
type Accepted = Result<(Ticket, bool), Refused<Op>>;

fn work(submitter: &Submitter, planned: Vec<Planned>) -> Vec<Accepted> {
    let submit = |Planned { op, waits, cancels, message }| {
        let answer = if waits { submitter.submit_wait(op, SHORT) } else { submitter.submit(op) };
        let answer = answer.map(|ticket| (ticket, cancels && submitter.cancel(ticket).is_ok()));
        submitter.post_wait(POSTED + message, message, PATIENCE).expect("the loop makes room");
        answer
    };
    planned.into_iter().map(submit).collect()
}

impl<W: World> Model<W> {
    /// So many threads submit operations of these kinds while the loop waits.
    pub fn together(&mut self, count: u8, kinds: &[u8]) {
        if self.closed {
            return;
        }
        // What was asked before comes before.
        self.wait(None, Keep::Take);
        let (first_op, first_message) = (self.ops.len(), self.next_post);
        let mut records = Vec::new();
        let mut threads: Vec<Vec<Planned>> = Vec::new();
        for port in self.own_ports(count.into()) {
            let mut planned = Vec::new();
            for &kind in kinds {
                let (op, record) = self.plan(port, kind, first_op + records.len());
                // The others are wakes, which do not wait for room.
                self.next_post += 1 + u64::from((self.next_post + 1).is_multiple_of(3));
                let message = self.next_post;
                let (waits, cancels) = (kind & 8 != 0, kind & 16 != 0);
                planned.push(Planned { op, waits, cancels, message });
                records.push(record);
            }
            threads.push(planned);
        }
        self.next_post += 1;
        self.call += 1;
        let before = self.watcher.update_now();
        let mut done = std::mem::take(&mut self.done);
        let old = done.len();
        let posted: Vec<Vec<u64>> =
            threads.iter().map(|all| all.iter().map(|one| one.message).collect()).collect();
        let threads: Vec<_> = threads
            .into_iter()
            .map(|planned| {
                let submitter = self.submitter.clone();
                std::thread::spawn(move || work(&submitter, planned))
            })
            .collect();
        let mut arrived: Vec<u64> = Vec::new();
        self.world.set_patience(PATIENCE);
        while arrived.len() < records.len() {
            let seen = done.len();
            self.wait_for_threads(&mut done);
            let new = done.iter().skip(seen).filter(|c| matches!(c.result, Ok(Done::Message(_))));
            let numbers = new.map(|c| c.token - POSTED);
            arrived.extend(numbers.filter(|&number| number >= first_message));
        }
        self.world.set_patience(Duration::ZERO);
        for of_thread in posted {
            let mut came = arrived.iter().filter(|number| of_thread.contains(number));
            assert!(of_thread.iter().all(|number| came.next() == Some(number)), "their order");
        }
        self.posts += arrived.len() as u64;
        self.posted.extend(arrived.iter().map(|number| POSTED + number));
        let now = self.watcher.update_now();
        let answers = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        for (record, answer) in records.into_iter().zip(answers) {
            self.take_in(record, answer, before, now);
        }
        for c in done.iter().skip(old) {
            self.account(c, now);
        }
        self.last_wait = self.call;
        self.after_wait(before);
        self.keep(done, Keep::Take);
        self.count("threads together");
    }

    /// As many open ends of connections, one for each thread, as there are; else none.
    fn own_ports(&self, count: usize) -> Vec<Option<usize>> {
        let is_free = |&port: &usize| {
            let state = &self.ports[port];
            Sort::is(state) == Sort::Stream && self.is_open(port) && !state.reserved
        };
        let ports = (0..self.ports.len()).filter(is_free).map(Some);
        ports.chain(std::iter::repeat(None)).take(count).collect()
    }

    fn plan(&mut self, port: Option<usize>, kind: u8, index: usize) -> (Op, Record) {
        let span = Duration::from_micros(u64::from(kind) * 3);
        let how = How { due: Due::Never, remote: true, quiet: false };
        let mut timeout = None;
        let plan = match (kind % 8, port) {
            (0 | 1, Some(port)) => {
                let payload = self.draw(port, usize::from(kind) * 50);
                let op = Op::write(self.ports[port].source, payload.clone());
                let mut plan = Plan::new(op, Some(port));
                plan.payload = payload;
                plan
            }
            (2, Some(port)) => Plan::new(Op::read(self.ports[port].source), Some(port)),
            (3, Some(port)) => {
                timeout = Some(span);
                let room: Vec<u8> = Vec::with_capacity(90);
                let op = Op::read_into(self.ports[port].source, room).timeout(span);
                Plan::new(op, Some(port))
            }
            (4, Some(port)) => {
                let interest = Ready::WRITABLE;
                let op = Op::poll(self.ports[port].source, interest);
                let mut plan = Plan::new(op, Some(port));
                plan.wanted = interest.bits() as usize;
                plan
            }
            (5 | 0, _) => {
                timeout = Some(span);
                Plan::new(Op::timer(span), None)
            }
            (6 | 1, _) => self.job_plan(index, kind, kind & 32 != 0),
            _ => Plan::new(Op::nop(), None),
        };
        let (op, mut record) = plan.split(index, how);
        record.timeout = timeout;
        (op, record)
    }

    fn wait_for_threads(&mut self, done: &mut Completions) {
        let answer = match W::REAL {
            true => self.watcher.wait_timeout(done, W::BOUND),
            // A wait with an end would make the time pass that the threads need.
            false => self.watcher.wait(done),
        };
        let count = answer.expect("it is open");
        assert!(count > 0 || !W::REAL, "the threads are not heard");
    }

    /// A thread has submitted this between two moments.
    fn take_in(
        &mut self,
        mut record: Record,
        answer: Accepted,
        before: std::time::Instant,
        now: std::time::Instant,
    ) {
        let index = self.ops.len();
        match answer {
            Ok((ticket, cancelled)) => {
                record.ticket = ticket;
                record.due = record.timeout.map(|timeout| before + timeout);
                record.overdue = record.timeout.map(|timeout| now + timeout);
                record.cancelled_at = cancelled.then_some(self.call);
                self.accepted += 1;
                self.count(format!("{:?} together", record.code));
                if cancelled {
                    self.count("cancelled together");
                }
                self.ops.push(record);
                self.enter(index);
            }
            Err(Refused { value, reason }) => {
                assert_eq!(Memory::of(value.buf()), record.memory, "other memory came back");
                let limits = &self.limits;
                let right = full(reason, Limit::RemoteQueue) == Some(limits.queue as u32)
                    || full(reason, Limit::IdReserve) == Some(limits.reserve as u32);
                assert!(right, "{:?} was refused: {reason:?}", record.code);
                self.count(format!("refused together: {reason:?}"));
                // It never was one, but its token is taken.
                record.queued = false;
                record.ended = Some(End::Failed(ErrorKind::Cancelled));
                self.ops.push(record);
            }
        }
    }
}
