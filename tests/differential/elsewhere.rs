//! Steps without a source: timers, jobs, messages, and other threads at work.

use std::time::Duration;

use windlass::driver::OpCode;
use windlass::fs::OpenOptions;
use windlass::{Completion, Done, ErrorKind, Op, Priority, Source, Submitter, Ticket};

use super::rig::{Rig, SETUP};
use super::steps::{Seat, WorkStep};
use crate::random_jobs::Job;
use crate::worlds::World;

/// How long a thread waits for room in the queue, and a simulation for a thread.
const PATIENCE: Duration = Duration::from_secs(20);

/// The operations of a thread in a round, on sources that no other thread uses.
const ROUND: [OpCode; 5] =
    [OpCode::Write, OpCode::Timer, OpCode::Job, OpCode::WriteAt, OpCode::Read];

/// What a thread works with.
struct Work {
    submitter: Submitter,
    /// The tokens of its operations count from here.
    first: u64,
    socket: Source,
    file: Source,
    /// What it writes in each round.
    rounds: Vec<Vec<u8>>,
}

impl Work {
    /// Answers the tickets, in the order of submission.
    fn run(self) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        let mut offset = 0;
        for (round, bytes) in self.rounds.into_iter().enumerate() {
            let after = offset + bytes.len();
            for code in ROUND {
                let token = self.first + tickets.len() as u64;
                let op = match code {
                    OpCode::Write => Op::write(self.socket, bytes.clone()),
                    OpCode::Timer => Op::timer(Duration::from_micros(bytes.len() as u64)),
                    OpCode::Job => Job::new(token, Duration::ZERO, false).1,
                    OpCode::WriteAt => Op::write_at(self.file, bytes.clone(), offset as u64),
                    _ => Op::read(self.socket),
                };
                let accepted = self.submitter.submit_wait(op.token(token), PATIENCE);
                let ticket = accepted.unwrap_or_else(|refused| panic!("{code:?}: {refused}"));
                tickets.push(ticket);
                if code == OpCode::Read {
                    // No bytes come, so the cancel ends the read.
                    self.submitter.cancel(ticket).expect("room");
                }
            }
            offset = after;
            let message = (self.first, round);
            self.submitter.post_wait(self.first, message, PATIENCE).expect("room");
        }
        tickets
    }
}

impl<W: World> Rig<W> {
    pub fn work_step(&mut self, step: &WorkStep) {
        match *step {
            WorkStep::Timers { ref ms } => {
                let start = self.watcher.update_now();
                let mut tickets = Vec::new();
                for (i, &ms) in ms.iter().enumerate() {
                    let at = start + Duration::from_millis(ms.into());
                    let ticket = self.start(Op::timer_at(at), (-1, i, "timers"));
                    tickets.push(ticket);
                }
                self.end_all(tickets);
                let late = self.watcher.update_now() - start;
                let due = Duration::from_millis((*ms.iter().max().unwrap_or(&0)).into());
                assert!(late >= due, "early");
            }
            WorkStep::Messages { count } => {
                for i in 0..u64::from(count) {
                    self.submitter.post(i, i).expect("room");
                }
                for i in 0..u64::from(count) {
                    assert_eq!(self.message::<u64>(), i);
                }
            }
            WorkStep::Jobs { count, us, panics, chain } => {
                let mut waiting = Vec::new();
                for i in 0..count {
                    let panics = panics >> (i % 8) & 3 == 3;
                    let (job, op) = Job::new(i.into(), self.busy(us), panics);
                    let priority = [Priority::High, Priority::Normal, Priority::Low];
                    let op = op.priority(priority[usize::from(us ^ i) % 3]);
                    let ticket = self.start_work("run", op);
                    waiting.push((ticket, job, i));
                    if chain {
                        self.end_jobs(&mut waiting);
                    }
                }
                self.end_jobs(&mut waiting);
            }
            WorkStep::CancelJob { us } => {
                let (job, op) = Job::new(us.into(), self.busy(us), us.is_multiple_of(4));
                let ticket = self.start_as("run, cancelled", op, SETUP);
                self.watcher.cancel(ticket);
                let c = self.end(ticket);
                assert!(job.fits(&c), "{c:?}");
                // Which of them it is, is left to chance.
                let cancelled = c.error_kind() == Some(ErrorKind::Cancelled);
                assert!(cancelled || job.has_run(), "{c:?}");
            }
            WorkStep::Threads { count, ref rounds } => self.threads(count.into(), rounds),
        }
    }

    /// Where jobs run on the loop's thread, time is virtual.
    fn busy(&self, us: u8) -> Duration {
        Duration::from_micros(if W::REAL { us.into() } else { 0 })
    }

    fn end_jobs(&mut self, waiting: &mut Vec<(Ticket, Job, u8)>) {
        for (ticket, job, number) in waiting.drain(..) {
            let c = self.end(ticket);
            assert!(job.fits(&c), "{c:?}");
            self.counts.add(if job.panics() { "run, panicked" } else { "run, returned" });
            if let Ok(Done::Returned(value)) = c.result {
                assert_eq!(value.downcast::<u64>().ok(), Some(number.into()));
            }
        }
    }

    /// The value of the next message.
    fn message<T: 'static>(&mut self) -> T {
        let Completion { result: Ok(Done::Message(message)), .. } = self.end(Ticket::NONE) else {
            panic!("no message");
        };
        self.counts.add("message");
        message.downcast().expect("a value of this type")
    }

    /// Threads submit while the loop waits. Each has a side of a connection and a file, so what
    /// its operations find and their order are its own.
    fn threads(&mut self, count: usize, rounds: &[u16]) {
        let mut threads = Vec::new();
        let mut reads = Vec::new();
        let mut firsts = Vec::new();
        self.world.set_patience(PATIENCE);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
        for _ in 0..count {
            self.open_pair();
            let (pair, side) = (self.pairs.len() - 1, firsts.len() % 2);
            let first = 1 + self.planned.len() as u64;
            // Other names than those of the other steps.
            let path = self.world.file(super::files::NAMES + firsts.len());
            let open = self.start_work("open", Op::open(path, options));
            let Ok(Done::Opened(file)) = self.end(open).result else { panic!("no file") };
            let file = self.watcher.attach(file).expect("room");
            let rounds: Vec<Vec<u8>> = rounds.iter().map(|&len| self.bytes(len.into())).collect();
            let len: usize = rounds.iter().map(Vec::len).sum();
            let room: Vec<u8> = Vec::with_capacity(len);
            let op = |source| Op::read_exact(source, room, len);
            reads.push((self.submit(pair, 1 - side, op), file, len));
            for _ in &rounds {
                for code in ROUND {
                    let token = 1 + self.planned.len() as u64;
                    let seat: Seat = match code {
                        // The writes of one thread have their order.
                        OpCode::Write => (pair as i32, side, "writes"),
                        OpCode::Read => (pair as i32, side, "reads"),
                        _ => self.own_seat(),
                    };
                    self.planned.insert(token, (seat, code));
                }
            }
            let socket = self.pairs[pair].0[side];
            let submitter = self.submitter.clone();
            firsts.push((first, 0));
            threads.push(Work { submitter, first, socket, file, rounds });
        }
        // Nothing of it is there before the loop waits for it.
        self.others = true;
        let threads: Vec<_> =
            threads.into_iter().map(|work| std::thread::spawn(move || work.run())).collect();
        for _ in 0..count * rounds.len() {
            let (first, round) = self.message::<(u64, usize)>();
            let next = firsts.iter_mut().find(|(of, _)| *of == first).expect("one of them");
            assert_eq!(round, next.1, "the order of messages of a thread");
            next.1 += 1;
        }
        self.others = false;
        self.world.set_patience(Duration::ZERO);
        for thread in threads {
            let tickets = thread.join().expect("it does not panic");
            for (i, ticket) in tickets.into_iter().enumerate() {
                self.end(ticket);
                self.counts.add(format!("{:?}, while the loop waits", ROUND[i % ROUND.len()]));
            }
        }
        for (read, file, len) in reads {
            self.end(read);
            let room: Vec<u8> = Vec::with_capacity(len + 1);
            let read = self.start_work("read_at", Op::read_at(file, room, 0));
            self.end(read);
            let close = self.start_work("close", Op::close(file));
            self.end(close);
        }
    }
}
