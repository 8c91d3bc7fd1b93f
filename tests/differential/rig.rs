//! A program on one kernel: what it submits, and the trace of its results.

use std::collections::BTreeMap;

use windlass::driver::OpCode;
use windlass::{
    Buf, Completion, Completions, Done, ErrorKind, Op, Source, Submitter, Ticket, Watcher,
};

use super::files::{NAMES, Open};
use super::steps::{Route, Seat, Seen, Step, Trace, Turn};
use crate::counts::Counts;
use crate::worlds::{Network, World};

/// Connections of a program: half of them over a listener.
pub const CONNECTIONS: usize = 4;
/// The seat of operations whose results are left to chance.
pub const SETUP: Seat = (-1, 0, "setup");

pub struct Rig<W: World> {
    pub world: W,
    pub watcher: Watcher<W::Driver>,
    done: Completions,
    /// Connections: both sources, and for each direction whether it is open.
    pub pairs: Vec<([Source; 2], [bool; 2])>,
    pub files: Vec<Open>,
    /// The seat and the code of each operation in flight.
    pub seats: BTreeMap<Ticket, (Seat, OpCode)>,
    /// The same for operations of other threads, by token, because those threads get the tickets.
    pub planned: BTreeMap<u64, (Seat, OpCode)>,
    ended: BTreeMap<Ticket, Vec<Completion>>,
    pub trace: Trace,
    pub submitter: Submitter,
    route: Route,
    /// Other threads are at work.
    pub others: bool,
    /// How many operations without an order there were.
    unordered: usize,
    next: u8,
    pub counts: Counts,
}

pub fn sum(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let add = |sum: u64, byte: u8| sum.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9E37);
    bytes.into_iter().fold(7, add)
}

fn sum_of(buf: &Buf) -> u64 {
    sum(buf.parts().iter().flat_map(|part| part.iter().copied()))
}

fn lane(code: OpCode) -> &'static str {
    match code {
        OpCode::Write | OpCode::SendFile | OpCode::Shutdown | OpCode::Close => "writes",
        OpCode::Poll => "polls",
        _ => "reads",
    }
}

/// The key for ends of a lane without an order: an operation that is cancelled or expires before it
/// moved a byte may overtake others (C3).
pub fn unordered(lane: &str) -> &'static str {
    match lane {
        "reads" => "reads, unmoved",
        "writes" => "writes, unmoved",
        _ => "others, unmoved",
    }
}

impl<W: World> Rig<W> {
    pub fn new(network: &Network) -> Rig<W> {
        let world = W::open(network);
        let builder = Watcher::builder().buffer_size(4096).swap_limit(64 << 10).threads(2);
        let mut watcher = world.watcher(builder);
        let submitter = watcher.submitter();
        let mut rig = Rig {
            world,
            watcher,
            done: Completions::new(),
            pairs: Vec::new(),
            files: Vec::new(),
            seats: BTreeMap::new(),
            planned: BTreeMap::new(),
            ended: BTreeMap::new(),
            trace: Trace::new(),
            submitter,
            route: Route::Loop,
            others: false,
            unordered: 0,
            next: 0,
            counts: Counts::default(),
        };
        for _ in 0..CONNECTIONS {
            rig.open_pair();
        }
        rig
    }

    pub fn turn(&mut self, turn: &Turn) {
        self.route = if turn.step.asks() { Route::Loop } else { turn.route };
        match &turn.step {
            Step::Stream(step) => self.stream_step(step),
            Step::File(step) => self.file_step(step),
            Step::Work(step) => self.work_step(step),
        }
    }

    /// Everything has ended: what is left to be seen, and the trace.
    pub fn finish(mut self) -> (Trace, Counts) {
        for number in 0..NAMES {
            let there = self.world.contents(number);
            let contents = there.map(|bytes| (bytes.len(), sum(bytes)));
            self.trace.insert((-2, number, "contents"), vec![Seen::Contents(contents)]);
        }
        self.trace.retain(|_, seen| !seen.is_empty());
        for ((.., lane), seen) in &mut self.trace {
            if lane.ends_with("unmoved") {
                seen.sort_by_key(|seen| format!("{seen:?}"));
            }
        }
        let left = (&self.seats, &self.planned);
        assert!(left.0.is_empty() && left.1.is_empty(), "in flight at the end: {left:?}");
        assert_eq!(self.watcher.counters().in_flight, 0);
        (self.trace, self.counts)
    }

    pub fn open_pair(&mut self) {
        let ends = if self.pairs.len().is_multiple_of(2) {
            let (a, b) = self.world.pair();
            [a, b].map(|end| self.watcher.attach(end).expect("room"))
        } else {
            let listener = self.watcher.listen(([127, 0, 0, 1], 0)).expect("a port");
            let at = self.watcher.local_address(listener).expect("its address");
            let accept = self.start(Op::accept(listener), SETUP);
            let connect = self.start(Op::connect(at), SETUP);
            let ends = [connect, accept].map(|ticket| match self.end(ticket).result {
                Ok(Done::Socket(socket) | Done::Accepted(socket)) => {
                    self.watcher.attach(socket).expect("room")
                }
                other => panic!("{other:?}"),
            });
            self.watcher.abort(listener);
            ends
        };
        self.pairs.push((ends, [true, true]));
    }

    /// A connection and a side of it whose writing direction (or both directions) are open.
    pub fn pick(&mut self, on: u8, both: bool) -> (usize, usize) {
        let side = usize::from(on) / CONNECTIONS % 2;
        let at = usize::from(on) % CONNECTIONS;
        let open = |open: &[bool; 2]| open[side] && (open[1 - side] || !both);
        let live: Vec<usize> =
            (0..self.pairs.len()).filter(|&pair| open(&self.pairs[pair].1)).collect();
        if live.is_empty() {
            self.open_pair();
            return (self.pairs.len() - 1, side);
        }
        (live[at % live.len()], side)
    }

    /// Bytes that differ from all bytes before.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(41);
        let first = self.next;
        (0..len).map(|i| first.wrapping_mul(31).wrapping_add((i ^ (i >> 8)) as u8)).collect()
    }

    pub fn start(&mut self, op: Op, seat: Seat) -> Ticket {
        let code = op.code();
        self.start_as(&format!("{code:?}"), op, seat)
    }

    /// Submits on the way of the step, and counts it under a name.
    pub fn start_as(&mut self, what: &str, op: Op, seat: Seat) -> Ticket {
        let code = op.code();
        let submitter = &self.submitter;
        let answer = match self.route {
            Route::Loop => self.watcher.submit(op),
            Route::Submitter => submitter.submit(op),
            Route::Thread => std::thread::scope(|scope| {
                let thread = scope.spawn(move || submitter.submit(op));
                thread.join().expect("it does not panic")
            }),
        };
        let ticket = match answer {
            Ok(ticket) => ticket,
            Err(refused) => panic!("{what}: {refused}"),
        };
        self.counts.add(what);
        match self.route {
            Route::Loop => {}
            Route::Submitter => self.counts.add(format!("{what}, by a submitter")),
            Route::Thread => self.counts.add(format!("{what}, of another thread")),
        }
        self.seats.insert(ticket, (seat, code));
        ticket
    }

    /// A seat of its own, for an operation that has no order among others.
    pub fn own_seat(&mut self) -> Seat {
        self.unordered += 1;
        (-2, NAMES + self.unordered, "work")
    }

    /// Submits an operation that has no order among others.
    pub fn start_work(&mut self, what: &str, op: Op) -> Ticket {
        let seat = self.own_seat();
        self.start_as(what, op, seat)
    }

    /// Submits on one side of a connection.
    pub fn submit(&mut self, pair: usize, side: usize, op: impl FnOnce(Source) -> Op) -> Ticket {
        let op = op(self.pairs[pair].0[side]);
        let lane = lane(op.code());
        self.start(op, (pair as i32, side, lane))
    }

    fn wait(&mut self) {
        let count = match self.others && !W::REAL {
            // A wait with an end would make the time pass that the threads need.
            true => self.watcher.wait(&mut self.done),
            false => self.watcher.wait_timeout(&mut self.done, W::BOUND),
        };
        let count = count.expect("a wait");
        assert!(count > 0, "{} hangs; in flight: {:?}, {:?}", W::NAME, self.seats, self.planned);
        for c in self.done.drain(..) {
            let ticket = c.ticket();
            if matches!(c.result, Ok(Done::Message(_))) {
                self.ended.entry(Ticket::NONE).or_default().push(c);
                continue;
            }
            let known = self.seats.get(&ticket).or_else(|| self.planned.get(&c.token));
            let (seat, code) = *known.expect("the completion of no operation");
            assert_eq!(c.code(), code);
            if !c.has_more() && self.seats.remove(&ticket).is_none() {
                self.planned.remove(&c.token);
            }
            // A lease's bytes arrive in pieces of any size: their total is told.
            let lease = matches!(&c.result, Ok(Done::Read(data)) if data.is_lease());
            let elsewhere = seat == SETUP || c.error_kind().is_some() && c.bytes() > 0;
            if !lease && !elsewhere {
                let seen = Seen::End {
                    code,
                    how: match &c.result {
                        Ok(Done::Read(data)) if data.is_eof() => Ok("end"),
                        Ok(_) => Ok("done"),
                        Err(error) => Err(error.kind()),
                    },
                    bytes: c.bytes(),
                    sum: match &c.result {
                        Ok(Done::Read(data)) => sum_of(data),
                        _ => 0,
                    },
                };
                let (pair, side, lane) = seat;
                let unmoved =
                    matches!(c.error_kind(), Some(ErrorKind::Deadline | ErrorKind::Cancelled));
                let lane = if unmoved { unordered(lane) } else { lane };
                self.trace.entry((pair, side, lane)).or_default().push(seen);
            }
            self.ended.entry(ticket).or_default().push(c);
        }
    }

    /// The next completion of an operation.
    pub fn end(&mut self, ticket: Ticket) -> Completion {
        loop {
            if let Some(ended) = self.ended.get_mut(&ticket)
                && !ended.is_empty()
            {
                return ended.remove(0);
            }
            self.wait();
        }
    }

    pub fn end_all(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.end(ticket);
        }
    }

    pub fn see(&mut self, pair: usize, side: usize, lane: &'static str, seen: Seen) {
        self.trace.entry((pair as i32, side, lane)).or_default().push(seen);
    }

    /// What a refused submission answers.
    pub fn refused(&mut self, pair: usize, side: usize, op: Op) {
        let answer = self.watcher.submit(op).map(drop).map_err(|refused| refused.reason);
        self.see(pair, side, "calls", Seen::Answer(answer));
    }
}
