//! One random program on every kernel: what its sources see must be the same.
//!
//! The programs are deterministic by construction (exchanges in lock-step, half-closes, cancels of
//! idle reads, deadlines against silent peers …), so that epoll, a simulation that behaves and one
//! that tears, delays and interrupts must give equal traces.
//!
//! `WINDLASS_SEED` and `WINDLASS_PROGRAMS` repeat a failure, which names them.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use windlass::driver::OpCode;
use windlass::sim::Faults;
use windlass::{
    Buf, Completion, Completions, Done, ErrorKind, Op, Ready, Reason, Source, Ticket, Watcher,
};

#[path = "common/programs.rs"]
mod programs;
#[path = "common/seeds.rs"]
mod seeds;
mod worlds;

use programs::random;
use worlds::{Network, Poll, Real, Ring, Virtual, World};

/// Connections of a program: half of them over a listener.
const CONNECTIONS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// Writes on one side, exact reads of other sizes on the other.
    Send {
        on: u8,
        writes: Vec<u16>,
        cut: u16,
        reads_first: bool,
        vectored: bool,
    },
    /// Reads without buffers until everything is there.
    SendToLeases {
        on: u8,
        len: u16,
        many: bool,
    },
    /// An echo, the lease itself being the answer.
    Echo {
        on: u8,
        len: u16,
    },
    /// Reads of every kind that find nothing and are cancelled.
    CancelIdle {
        on: u8,
        count: u8,
        all: bool,
    },
    /// Reads of every kind that find nothing and expire.
    Expire {
        on: u8,
        count: u8,
        us: u16,
        past: bool,
    },
    /// A read that is cancelled with some of its bytes; the next gets the others.
    CancelPartly {
        on: u8,
        len: u16,
        more: u8,
    },
    /// A write that the peer does not read, with others behind it, is cancelled or expires.
    Tear {
        on: u8,
        behind: u8,
        expire: bool,
    },
    /// One side shuts its writing side; the other reads to the end.
    HalfClose {
        on: u8,
        left: u16,
        exact: bool,
    },
    /// A write behind the own shutdown.
    WriteAfterShutdown {
        on: u8,
    },
    /// Writes, then a close; the peer reads everything and the end.
    Flush {
        on: u8,
        len: u16,
    },
    /// Abort with reads pending.
    Abort {
        on: u8,
        pending: u8,
    },
    /// A connect to an address without a listener.
    Refused,
    /// A multishot accept serves some connections.
    Storm {
        count: u8,
    },
    /// Timers, in milliseconds.
    Timers {
        ms: Vec<u8>,
    },
    Poll {
        on: u8,
        us: u16,
    },
    Messages {
        count: u8,
    },
    Detach {
        on: u8,
    },
    Invalid {
        on: u8,
    },
}

/// An observation at a source: an operation has ended, or a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    End { code: OpCode, how: Result<&'static str, ErrorKind>, bytes: usize, sum: u64 },
    Some { code: OpCode, how: ErrorKind },
    Total { bytes: usize, sum: u64 },
    Answer(Result<(), Reason>),
}

/// By source (a connection and a side; `-1` for what has none) and direction.
type Trace = BTreeMap<(i32, usize, &'static str), Vec<Seen>>;

struct Rig<W: World> {
    world: W,
    watcher: Watcher<W::Driver>,
    done: Completions,
    /// Connections: both sources, and for each direction whether it is open.
    pairs: Vec<([Source; 2], [bool; 2])>,
    /// What operations are seen at: where, and what they do.
    seats: BTreeMap<Ticket, ((i32, usize, &'static str), OpCode)>,
    ended: BTreeMap<Ticket, Vec<Completion>>,
    trace: Trace,
    next: u8,
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9E37))
}

fn lane(code: OpCode) -> &'static str {
    match code {
        OpCode::Write | OpCode::Shutdown | OpCode::Close => "writes",
        OpCode::Poll => "polls",
        _ => "reads",
    }
}

impl<W: World> Rig<W> {
    fn new(network: &Network) -> Rig<W> {
        let world = W::open(network);
        let builder = Watcher::builder().buffer_size(4096).swap_limit(64 << 10);
        let watcher = world.watcher(builder);
        let mut rig = Rig {
            world,
            watcher,
            done: Completions::new(),
            pairs: Vec::new(),
            seats: BTreeMap::new(),
            ended: BTreeMap::new(),
            trace: Trace::new(),
            next: 0,
        };
        for _ in 0..CONNECTIONS {
            rig.open();
        }
        rig
    }

    fn open(&mut self) {
        let ends = if self.pairs.len().is_multiple_of(2) {
            let (a, b) = self.world.pair();
            [a, b].map(|end| self.watcher.attach(end).expect("room"))
        } else {
            let listener = self.watcher.listen(([127, 0, 0, 1], 0)).expect("a port");
            let at = self.watcher.local_address(listener).expect("its address");
            let accept = self.start(Op::accept(listener), (-1, 0, "setup"));
            let connect = self.start(Op::connect(at), (-1, 0, "setup"));
            let ends = [connect, accept].map(|ticket| match self.end(ticket).result {
                Ok(Done::Connected(socket) | Done::Accepted(socket)) => {
                    self.watcher.attach(socket).expect("room")
                }
                other => panic!("{other:?}"),
            });
            self.watcher.abort(listener);
            ends
        };
        self.pairs.push((ends, [true, true]));
    }

    /// Bytes that differ from all bytes before.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(41);
        let first = self.next;
        (0..len).map(|i| first.wrapping_mul(31).wrapping_add((i ^ (i >> 8)) as u8)).collect()
    }

    fn start(&mut self, op: Op, seat: (i32, usize, &'static str)) -> Ticket {
        let code = op.code();
        let ticket = match self.watcher.submit(op) {
            Ok(ticket) => ticket,
            Err(refused) => panic!("{code:?}: {refused}"),
        };
        self.seats.insert(ticket, (seat, code));
        ticket
    }

    /// Submits on one side of a connection.
    fn submit(&mut self, pair: usize, side: usize, op: impl FnOnce(Source) -> Op) -> Ticket {
        let op = op(self.pairs[pair].0[side]);
        let lane = lane(op.code());
        self.start(op, (pair as i32, side, lane))
    }

    fn wait(&mut self) {
        let count = self.watcher.wait_timeout(&mut self.done, W::BOUND).expect("a wait");
        assert!(count > 0, "{} hangs; in flight: {:?}", W::NAME, self.seats);
        for c in self.done.drain(..) {
            let ticket = c.ticket();
            if matches!(c.result, Ok(Done::Message(_))) {
                self.ended.entry(Ticket::NONE).or_default().push(c);
                continue;
            }
            let (seat, code) = self.seats[&ticket];
            if !c.has_more() {
                self.seats.remove(&ticket);
            }
            // A lease's bytes arrive in pieces of any size: their total is told.
            let lease = matches!(&c.result, Ok(Done::Read(data)) if data.is_lease());
            let elsewhere = seat.2 == "setup" || c.error_kind().is_some() && c.bytes() > 0;
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
                        Ok(Done::Read(data)) => sum(data),
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
    fn end(&mut self, ticket: Ticket) -> Completion {
        loop {
            if let Some(ended) = self.ended.get_mut(&ticket)
                && !ended.is_empty()
            {
                return ended.remove(0);
            }
            self.wait();
        }
    }

    fn end_all(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.end(ticket);
        }
    }

    fn see(&mut self, pair: usize, side: usize, lane: &'static str, seen: Seen) {
        self.trace.entry((pair as i32, side, lane)).or_default().push(seen);
    }

    /// A connection and a side of it whose writing direction (or both directions) are open.
    fn pick(&mut self, on: u8, both: bool) -> (usize, usize) {
        let side = usize::from(on) / CONNECTIONS % 2;
        let at = usize::from(on) % CONNECTIONS;
        let open = |open: &[bool; 2]| open[side] && (open[1 - side] || !both);
        let live: Vec<usize> =
            (0..self.pairs.len()).filter(|&pair| open(&self.pairs[pair].1)).collect();
        if live.is_empty() {
            self.open();
            return (self.pairs.len() - 1, side);
        }
        (live[at % live.len()], side)
    }

    /// Reads on without buffers until `len` bytes are there.
    fn collect(&mut self, pair: usize, side: usize, len: usize, many: bool) -> Vec<u8> {
        let mut all = Vec::new();
        let mut ticket = None;
        while all.len() < len {
            let op = |source| {
                if many { Op::read(source).multishot() } else { Op::read(source) }
            };
            let current = *ticket.get_or_insert_with(|| self.submit(pair, side, op));
            let c = self.end(current);
            assert_eq!(c.has_more(), many);
            match c.result {
                Ok(Done::Read(data)) => all.extend_from_slice(&data),
                other => panic!("{other:?}"),
            }
            ticket = if many { Some(current) } else { None };
        }
        if let Some(ticket) = ticket {
            assert!(self.watcher.cancel(ticket));
            assert_eq!(self.end(ticket).error_kind(), Some(ErrorKind::Cancelled));
        }
        let (bytes, sum) = (all.len(), sum(&all));
        self.see(pair, side, "reads", Seen::Total { bytes, sum });
        all
    }

    /// Exactly one message across.
    fn cross(&mut self, pair: usize, side: usize, len: usize) {
        let bytes = self.bytes(len);
        let room: Vec<u8> = Vec::with_capacity(len);
        let read = self.submit(pair, 1 - side, |source| Op::read_exact(source, room, len));
        let write = self.submit(pair, side, |source| Op::write(source, bytes));
        self.end_all(vec![read, write]);
    }

    /// A read of one of the kinds.
    fn some_read(&mut self, pair: usize, side: usize, which: u8, due: Option<Duration>) -> Ticket {
        let past = self.watcher.update_now() - Duration::from_millis(1);
        let room = |len: usize| Vec::<u8>::with_capacity(len);
        self.submit(pair, side, |source| {
            let op = match which % 5 {
                0 => Op::read(source),
                1 => Op::read(source).multishot(),
                2 => Op::read_into(source, room(9)),
                3 => Op::read_exact(source, room(9), 7),
                _ => Op::read_vectored(source, vec![room(3), room(4)]),
            };
            match due {
                Some(Duration::ZERO) => op.deadline(past),
                Some(span) => op.timeout(span),
                None => op,
            }
        })
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { on, ref writes, cut, reads_first, vectored } => {
                let (pair, side) = self.pick(on, false);
                let all: Vec<Vec<u8>> =
                    writes.iter().map(|&len| self.bytes(usize::from(len))).collect();
                let total: usize = all.iter().map(Vec::len).sum();
                let cut = usize::from(cut).min(total - 1);
                let reads = |rig: &mut Self| {
                    let parts = [cut, total - cut].into_iter().filter(|&len| len > 0);
                    let read = |len| {
                        let room: Vec<u8> = Vec::with_capacity(len + 3);
                        rig.submit(pair, 1 - side, |source| Op::read_exact(source, room, len))
                    };
                    parts.map(read).collect::<Vec<_>>()
                };
                let mut tickets = if reads_first { reads(self) } else { Vec::new() };
                if vectored {
                    let parts: Vec<Buf> = all.into_iter().map(Buf::from).collect();
                    let op = |source| Op::write_vectored(source, parts);
                    tickets.push(self.submit(pair, side, op));
                } else {
                    for bytes in all {
                        tickets.push(self.submit(pair, side, |source| Op::write(source, bytes)));
                    }
                }
                if !reads_first {
                    tickets.extend(reads(self));
                }
                self.end_all(tickets);
            }
            Step::SendToLeases { on, len, many } => {
                let (pair, side) = self.pick(on, false);
                let bytes = self.bytes(usize::from(len));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                assert!(self.collect(pair, 1 - side, bytes.len(), many) == bytes);
                self.end(write);
            }
            Step::Echo { on, len } => {
                let (pair, side) = self.pick(on, true);
                let bytes = self.bytes(usize::from(len));
                let room: Vec<u8> = Vec::with_capacity(bytes.len());
                let answer =
                    self.submit(pair, side, |source| Op::read_exact(source, room, len.into()));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                let mut heard = 0;
                while heard < bytes.len() {
                    let read = self.submit(pair, 1 - side, Op::read);
                    let Ok(Done::Read(data)) = self.end(read).result else { panic!("no data") };
                    heard += data.len();
                    let op = |source| Op::write(source, data);
                    let ticket = {
                        // How many pieces there are is left to chance.
                        let op = op(self.pairs[pair].0[1 - side]);
                        self.start(op, (pair as i32, 1 - side, "setup"))
                    };
                    self.end(ticket);
                }
                let Ok(Done::Read(back)) = self.end(answer).result else { panic!("no answer") };
                assert!(*back == *bytes);
                self.end(write);
            }
            Step::CancelIdle { on, count, all } => {
                let (pair, side) = self.pick(on, true);
                let tickets: Vec<Ticket> =
                    (0..count).map(|i| self.some_read(pair, side, on ^ i, None)).collect();
                if all {
                    let source = self.pairs[pair].0[side];
                    assert_eq!(self.watcher.cancel_all(source), tickets.len());
                } else {
                    for &ticket in &tickets {
                        assert!(self.watcher.cancel(ticket));
                    }
                }
                for &ticket in &tickets {
                    self.end(ticket);
                    assert!(!self.watcher.cancel(ticket), "a stale ticket");
                }
                self.cross(pair, 1 - side, 5);
            }
            Step::Expire { on, count, us, past } => {
                let (pair, side) = self.pick(on, true);
                let due = if past { 0 } else { u64::from(us) + 1 };
                let due = Some(Duration::from_micros(due));
                let tickets = (0..count).map(|i| self.some_read(pair, side, on ^ i, due)).collect();
                self.end_all(tickets);
                self.cross(pair, 1 - side, 5);
            }
            Step::CancelPartly { on, len, more } => {
                let (pair, side) = self.pick(on, false);
                let bytes = self.bytes(usize::from(len));
                let wanted = bytes.len() + 1 + usize::from(more);
                let room: Vec<u8> = Vec::with_capacity(wanted);
                let read =
                    self.submit(pair, 1 - side, |source| Op::read_exact(source, room, wanted));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                self.end(write);
                assert!(self.watcher.cancel(read));
                let Err(error) = self.end(read).result else { panic!("it had not its bytes") };
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                // How many bytes were there is left to chance; that none is lost is not.
                if error.bytes() == 0 {
                    let lane = self.trace.get_mut(&(pair as i32, 1 - side, unordered("reads")));
                    assert!(lane.is_some_and(|lane| lane.pop().is_some()));
                }
                let mut heard = error.into_buf().into_vec();
                let left = bytes.len() - heard.len();
                if left > 0 {
                    let room: Vec<u8> = Vec::with_capacity(left);
                    let op = Op::read_exact(self.pairs[pair].0[1 - side], room, left);
                    let rest = self.start(op, (-1, 0, "setup"));
                    let Ok(Done::Read(data)) = self.end(rest).result else { panic!("no rest") };
                    heard.extend_from_slice(&data);
                }
                assert!(heard == bytes);
                let (code, how) = (OpCode::ReadExact, ErrorKind::Cancelled);
                self.see(pair, 1 - side, "reads", Seen::Some { code, how });
            }
            Step::Tear { on, behind, expire } => self.tear(on, behind, expire),
            Step::HalfClose { on, left, exact } => {
                let (pair, side) = self.pick(on, false);
                let bytes = self.bytes(usize::from(left));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                let shut = self.submit(pair, side, Op::shutdown);
                self.pairs[pair].1[side] = false;
                if exact {
                    let room: Vec<u8> = Vec::with_capacity(bytes.len() + 1);
                    let wanted = bytes.len() + 1;
                    let op = |source| Op::read_exact(source, room, wanted);
                    let read = self.submit(pair, 1 - side, op);
                    let Err(error) = self.end(read).result else { panic!("more than was sent") };
                    assert_eq!((error.kind(), error.bytes()), (ErrorKind::Eof, bytes.len()));
                    assert!(**error.buf() == *bytes);
                } else {
                    self.collect(pair, 1 - side, bytes.len(), false);
                }
                let end = self.submit(pair, 1 - side, Op::read);
                self.end_all(vec![write, shut, end]);
                if self.pairs[pair].1[1 - side] {
                    self.cross(pair, 1 - side, 100);
                }
            }
            Step::WriteAfterShutdown { on } => {
                let (pair, side) = self.pick(on, false);
                self.pairs[pair].1[side] = false;
                let shut = self.submit(pair, side, Op::shutdown);
                let write = self.submit(pair, side, |source| Op::write(source, "late"));
                let end = self.submit(pair, 1 - side, Op::read);
                self.end_all(vec![shut, write, end]);
            }
            Step::Flush { on, len } => {
                let (pair, side) = self.pick(on, true);
                let bytes = self.bytes(usize::from(len));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                let idle = self.submit(pair, side, Op::read);
                let close = self.submit(pair, side, Op::close);
                self.collect(pair, 1 - side, bytes.len(), false);
                let end = self.submit(pair, 1 - side, Op::read);
                self.end_all(vec![write, idle, close, end]);
                let source = self.pairs[pair].0[side];
                self.refused(pair, side, Op::read(source));
                self.pairs[pair].1 = [false; 2];
            }
            Step::Abort { on, pending } => {
                let (pair, side) = self.pick(on, true);
                let mut tickets: Vec<Ticket> =
                    (0..pending).map(|i| self.some_read(pair, side, on ^ i, None)).collect();
                let source = self.pairs[pair].0[side];
                assert!(self.watcher.abort(source) && !self.watcher.abort(source));
                tickets.push(self.submit(pair, 1 - side, Op::read));
                self.end_all(tickets);
                self.refused(pair, side, Op::write(source, "late"));
                self.pairs[pair].1 = [false; 2];
            }
            Step::Refused => {
                let at = self.world.nowhere();
                let connect = self.start(Op::connect(at), (-1, 0, "connects"));
                self.end(connect);
            }
            Step::Storm { count } => self.storm(count),
            Step::Timers { ref ms } => {
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
            Step::Poll { on, us } => {
                let (pair, side) = self.pick(on, true);
                let span = Duration::from_micros(us.into());
                let idle = self.submit(pair, 1 - side, |source| {
                    Op::poll(source, Ready::READABLE).timeout(span)
                });
                self.end(idle);
                let free = self.submit(pair, side, |source| Op::poll(source, Ready::WRITABLE));
                self.end(free);
                let poll = self.submit(pair, 1 - side, |source| Op::poll(source, Ready::READABLE));
                let write = self.submit(pair, side, |source| Op::write(source, "wake up"));
                self.end_all(vec![poll, write]);
                self.collect(pair, 1 - side, 7, false);
            }
            Step::Messages { count } => {
                let submitter = self.watcher.submitter();
                for i in 0..u64::from(count) {
                    submitter.post(i, i).expect("room");
                }
                for i in 0..u64::from(count) {
                    let c = self.end(Ticket::NONE);
                    let Ok(Done::Message(message)) = c.result else { panic!("no message") };
                    assert_eq!(message.downcast::<u64>().ok(), Some(i));
                }
            }
            Step::Detach { on } => {
                let (pair, side) = self.pick(on, true);
                let idle = self.submit(pair, side, Op::read);
                let source = self.pairs[pair].0[side];
                let busy = self.watcher.detach(source).map(drop);
                self.see(pair, side, "calls", Seen::Answer(busy));
                assert!(self.watcher.cancel(idle));
                self.end(idle);
                let handle = self.watcher.detach(source).expect("nothing is in flight");
                let stale = self.watcher.detach(source).map(drop);
                self.see(pair, side, "calls", Seen::Answer(stale));
                self.pairs[pair].0[side] = self.watcher.attach(handle).expect("room");
                self.cross(pair, side, 50);
                self.cross(pair, 1 - side, 50);
            }
            Step::Invalid { on } => {
                let (pair, side) = self.pick(on, false);
                let source = self.pairs[pair].0[side];
                for op in [
                    Op::write(Source::NONE, Vec::<u8>::with_capacity(4)),
                    Op::read_into(source, Vec::<u8>::with_capacity(0)),
                    Op::read_exact(source, Vec::<u8>::with_capacity(4), 5),
                    Op::accept(source),
                    Op::recv_from(source),
                    Op::read(Source::NONE),
                ] {
                    self.refused(pair, side, op);
                }
            }
        }
    }

    fn refused(&mut self, pair: usize, side: usize, op: Op) {
        let answer = self.watcher.submit(op).map(drop).map_err(|refused| refused.reason);
        self.see(pair, side, "calls", Seen::Answer(answer));
    }

    /// Several writes wait behind one that is stuck, on a connection of their own.
    fn tear(&mut self, on: u8, behind: u8, expire: bool) {
        while self.pairs.len() % 2 == 1 {
            self.open();
        }
        // Over sockets whose buffers are known to be small.
        self.open();
        let (pair, side) = (self.pairs.len() - 1, usize::from(on % 2));
        let huge = self.bytes(1 << 20);
        let stuck = self.submit(pair, side, |source| {
            let op = Op::write(source, huge.clone());
            if expire { op.timeout(Duration::from_millis(20)) } else { op }
        });
        let others: Vec<Ticket> = (0..behind)
            .map(|i| self.submit(pair, side, |source| Op::write(source, vec![i; 10])))
            .collect();
        // A byte on the other side says that it has begun.
        let room: Vec<u8> = Vec::with_capacity(1);
        let first = self.submit(pair, 1 - side, |source| Op::read_exact(source, room, 1));
        self.end(first);
        assert!(expire || self.watcher.cancel(stuck));
        let kind = if expire { ErrorKind::Deadline } else { ErrorKind::Cancelled };
        let end = self.end(stuck);
        assert_eq!(end.error_kind(), Some(kind));
        assert!(end.bytes() > 0 && end.bytes() < huge.len());
        self.see(pair, side, "writes", Seen::Some { code: OpCode::Write, how: kind });
        self.end_all(others);
        // What goes on is exactly what was claimed, then what is written next.
        let next = self.submit(pair, side, |source| Op::write(source, "next"));
        let shut = self.submit(pair, side, Op::shutdown);
        self.pairs[pair].1 = [false; 2];
        let mut heard = huge[..1].to_vec();
        loop {
            let op = Op::read(self.pairs[pair].0[1 - side]);
            let read = self.start(op, (-1, 0, "setup"));
            let Ok(Done::Read(data)) = self.end(read).result else { panic!("no data") };
            if data.is_eof() {
                break;
            }
            heard.extend_from_slice(&data);
        }
        self.end_all(vec![next, shut]);
        assert!(heard == [&huge[..end.bytes()], b"next"].concat());
    }

    /// Many connections at once.
    fn storm(&mut self, count: u8) {
        let listener = self.watcher.listen(([127, 0, 0, 1], 0)).expect("a port");
        let at = self.watcher.local_address(listener).expect("its address");
        let accept = self.start(Op::accept(listener).multishot(), (-1, 0, "accepts"));
        let connects: Vec<Ticket> =
            (0..count).map(|_| self.start(Op::connect(at.clone()), (-1, 0, "connects"))).collect();
        self.end_all(connects);
        for _ in 0..count {
            let c = self.end(accept);
            assert!(c.has_more());
        }
        assert!(self.watcher.cancel(accept));
        let end = self.end(accept);
        assert!(!end.has_more());
        let spare = self.start(Op::accept(listener), (-1, 0, "accepts"));
        let expired = Op::accept(listener).timeout(Duration::from_micros(300));
        let expired = self.start(expired, (-1, 0, "accepts"));
        self.end(expired);
        assert!(self.watcher.abort(listener));
        self.end(spare);
    }
}

/// The key for ends of a lane without an order: an operation that is cancelled or expires before it
/// moved a byte may overtake others (C3).
fn unordered(lane: &str) -> &'static str {
    match lane {
        "reads" => "reads, unmoved",
        "writes" => "writes, unmoved",
        _ => "others, unmoved",
    }
}

fn run<W: World>(network: &Network, steps: &[Step]) -> Trace {
    let mut rig = Rig::<W>::new(network);
    assert_eq!(rig.watcher.explain().driver, W::NAME);
    for step in steps {
        rig.step(step);
    }
    rig.trace.retain(|_, seen| !seen.is_empty());
    for ((.., lane), seen) in &mut rig.trace {
        if lane.ends_with("unmoved") {
            seen.sort_by_key(|seen| format!("{seen:?}"));
        }
    }
    assert!(rig.seats.is_empty(), "in flight at the end: {:?}", rig.seats);
    assert_eq!(rig.watcher.counters().in_flight, 0);
    rig.trace
}

fn step() -> impl Strategy<Value = Step> {
    let on = any::<u8>;
    prop_oneof![
        6 => (
            on(),
            prop::collection::vec(1..9_000u16, 1..5),
            any::<u16>(),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(on, writes, cut, reads_first, vectored)| {
                Step::Send { on, writes, cut, reads_first, vectored }
            }),
        3 => (on(), 1..20_000u16, any::<bool>())
            .prop_map(|(on, len, many)| Step::SendToLeases { on, len, many }),
        2 => (on(), 1..9_000u16).prop_map(|(on, len)| Step::Echo { on, len }),
        3 => (on(), 1..6u8, any::<bool>())
            .prop_map(|(on, count, all)| Step::CancelIdle { on, count, all }),
        3 => (on(), 1..6u8, 0..900u16, any::<bool>())
            .prop_map(|(on, count, us, past)| Step::Expire { on, count, us, past }),
        3 => (on(), 1..9_000u16, any::<u8>())
            .prop_map(|(on, len, more)| Step::CancelPartly { on, len, more }),
        1 => (on(), 0..5u8, any::<bool>())
            .prop_map(|(on, behind, expire)| Step::Tear { on, behind, expire }),
        2 => (on(), 1..5_000u16, any::<bool>())
            .prop_map(|(on, left, exact)| Step::HalfClose { on, left, exact }),
        1 => on().prop_map(|on| Step::WriteAfterShutdown { on }),
        1 => (on(), 1..9_000u16).prop_map(|(on, len)| Step::Flush { on, len }),
        1 => (on(), 0..5u8).prop_map(|(on, pending)| Step::Abort { on, pending }),
        2 => Just(Step::Refused),
        1 => (1..9u8).prop_map(|count| Step::Storm { count }),
        1 => prop::collection::vec(0..4u8, 1..6).prop_map(|ms| Step::Timers { ms }),
        2 => (on(), 0..900u16).prop_map(|(on, us)| Step::Poll { on, us }),
        1 => (1..9u8).prop_map(|count| Step::Messages { count }),
        2 => on().prop_map(|on| Step::Detach { on }),
        2 => on().prop_map(|on| Step::Invalid { on }),
    ]
}

#[test]
fn every_kernel_shows_the_same() {
    let program = (any::<u64>(), prop::collection::vec(step(), 1..20));
    random("differential", 150, 50, &program, |(seed, steps)| {
        let network = |faults| Network { seed, faults, buffer: 8 << 10 };
        let real = run::<Real>(&network(Faults::none()), &steps);
        let plain = run::<Virtual>(&network(Faults::none()), &steps);
        prop_assert_eq!(&real, &plain, "epoll and a simulation that behaves");
        let ring = run::<Ring>(&network(Faults::none()), &steps);
        prop_assert_eq!(&ring, &plain, "io_uring and a simulation that behaves");
        let poll = run::<Poll>(&network(Faults::none()), &steps);
        prop_assert_eq!(&poll, &plain, "poll and a simulation that behaves");
        for probability in [0.1, 0.4] {
            let faulty = run::<Virtual>(&network(Faults::transient(probability)), &steps);
            prop_assert_eq!(&plain, &faulty, "with faults");
        }
        Ok(())
    });
}
