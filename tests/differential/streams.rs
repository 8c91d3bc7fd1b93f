//! Steps on connections.

use std::io::ErrorKind::WouldBlock;
use std::time::Duration;

use windlass::driver::OpCode;
use windlass::{Buf, Done, ErrorKind, Op, Ready, Source, Ticket};

use super::rig::{Rig, SETUP, sum, unordered};
use super::steps::{Seen, StreamStep};
use crate::worlds::World;

impl<W: World> Rig<W> {
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
        let (bytes, sum) = (all.len(), sum(all.iter().copied()));
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

    pub fn stream_step(&mut self, step: &StreamStep) {
        match *step {
            StreamStep::Send { on, ref writes, cut, reads_first, vectored } => {
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
            StreamStep::SendToLeases { on, len, many } => {
                let (pair, side) = self.pick(on, false);
                let bytes = self.bytes(usize::from(len));
                let write = self.submit(pair, side, |source| Op::write(source, bytes.clone()));
                assert!(self.collect(pair, 1 - side, bytes.len(), many) == bytes);
                self.end(write);
            }
            StreamStep::Echo { on, len } => {
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
                        self.start(op, SETUP)
                    };
                    self.end(ticket);
                }
                let Ok(Done::Read(back)) = self.end(answer).result else { panic!("no answer") };
                assert!(*back == *bytes);
                self.end(write);
            }
            StreamStep::Direct { on, len, piece } => self.direct(on, len.into(), piece.into()),
            StreamStep::CancelIdle { on, count, all } => {
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
            StreamStep::Expire { on, count, us, past } => {
                let (pair, side) = self.pick(on, true);
                let due = if past { 0 } else { u64::from(us) + 1 };
                let due = Some(Duration::from_micros(due));
                let tickets = (0..count).map(|i| self.some_read(pair, side, on ^ i, due)).collect();
                self.end_all(tickets);
                self.cross(pair, 1 - side, 5);
            }
            StreamStep::CancelPartly { on, len, more } => {
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
                    let rest = self.start(op, SETUP);
                    let Ok(Done::Read(data)) = self.end(rest).result else { panic!("no rest") };
                    heard.extend_from_slice(&data);
                }
                assert!(heard == bytes);
                let (code, how) = (OpCode::ReadExact, ErrorKind::Cancelled);
                self.see(pair, 1 - side, "reads", Seen::Some { code, how });
            }
            StreamStep::Tear { on, behind, expire } => self.tear(on, behind, expire),
            StreamStep::HalfClose { on, left, exact } => {
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
            StreamStep::WriteAfterShutdown { on } => {
                let (pair, side) = self.pick(on, false);
                self.pairs[pair].1[side] = false;
                let shut = self.submit(pair, side, Op::shutdown);
                let write = self.submit(pair, side, |source| Op::write(source, "late"));
                let end = self.submit(pair, 1 - side, Op::read);
                self.end_all(vec![shut, write, end]);
            }
            StreamStep::Flush { on, len } => {
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
            StreamStep::Abort { on, pending } => {
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
            StreamStep::Refused => {
                let at = self.world.nowhere();
                let connect = self.start(Op::connect(at), (-1, 0, "connects"));
                self.end(connect);
            }
            StreamStep::Storm { count } => self.storm(count),
            StreamStep::Poll { on, us } => {
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
            StreamStep::Detach { on } => {
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
            StreamStep::Invalid { on } => {
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

    /// Several writes wait behind one that is stuck, on a connection of their own.
    fn tear(&mut self, on: u8, behind: u8, expire: bool) {
        while self.pairs.len() % 2 == 1 {
            self.open_pair();
        }
        // Over sockets whose buffers are known to be small.
        self.open_pair();
        let (pair, side) = (self.pairs.len() - 1, usize::from(on % 2));
        let huge = self.bytes(1 << 20);
        let stuck = self.submit(pair, side, |source| Op::write(source, huge.clone()));
        let others: Vec<Ticket> = (0..behind)
            .map(|i| self.submit(pair, side, |source| Op::write(source, vec![i; 10])))
            .collect();
        // A byte on the other side says that it has begun.
        let room: Vec<u8> = Vec::with_capacity(1);
        let first = self.submit(pair, 1 - side, |source| Op::read_exact(source, room, 1));
        self.end(first);
        // Only now: a write that the kernel has no memory for may pause for longer than this.
        match expire {
            true => self.watcher.reschedule(stuck, Duration::from_millis(20)).expect("it is there"),
            false => assert!(self.watcher.cancel(stuck)),
        }
        let kind = if expire { ErrorKind::Deadline } else { ErrorKind::Cancelled };
        let end = self.end(stuck);
        assert_eq!(end.error_kind(), Some(kind));
        assert!(end.bytes() > 0 && end.bytes() < huge.len());
        self.see(pair, side, "writes", Seen::Some { code: OpCode::Write, how: kind });
        self.end_all(others);
        // The peer receives exactly the bytes that the completion has claimed, and then those of
        // the next write.
        let next = self.submit(pair, side, |source| Op::write(source, "next"));
        let shut = self.submit(pair, side, Op::shutdown);
        self.pairs[pair].1 = [false; 2];
        let mut heard = huge[..1].to_vec();
        loop {
            let op = Op::read(self.pairs[pair].0[1 - side]);
            let read = self.start(op, SETUP);
            let Ok(Done::Read(data)) = self.end(read).result else { panic!("no data") };
            if data.is_eof() {
                break;
            }
            heard.extend_from_slice(&data);
        }
        self.end_all(vec![next, shut]);
        assert!(heard == [&huge[..end.bytes()], b"next"].concat());
    }

    /// Bytes cross by calls that move them at once. How many calls there are, and how often they
    /// have to wait, is left to chance.
    fn direct(&mut self, on: u8, len: usize, piece: usize) {
        let (pair, side) = self.pick(on, false);
        let [from, to] = [side, 1 - side].map(|side| self.pairs[pair].0[side]);
        let bytes = self.bytes(len);
        let (mut left, mut all, mut memory) = (&bytes[..], Vec::new(), vec![0; piece]);
        // Nothing has come yet: the first bytes end this wait.
        let mut first = (len > 0).then(|| self.start(Op::readable(to), SETUP));
        while all.len() < bytes.len() {
            if !left.is_empty() {
                match self.watcher.send(from, &left[..piece.min(left.len())]) {
                    Ok(moved) => {
                        left = &left[moved..];
                        if let Some(readable) = first.take() {
                            assert!(matches!(self.end(readable).result, Ok(Done::Ready(_))));
                        }
                    }
                    Err(error) => assert_eq!(error.kind(), WouldBlock, "{error}"),
                }
            }
            match self.watcher.recv(to, &mut memory) {
                Ok(moved) => all.extend_from_slice(&memory[..moved]),
                Err(error) => {
                    assert_eq!(error.kind(), WouldBlock, "{error}");
                    let readable = (all.len() + left.len() < bytes.len()).then_some(to);
                    let op = readable.map_or(Op::writable(from), Op::readable);
                    let ready = self.start(op, SETUP);
                    assert!(matches!(self.end(ready).result, Ok(Done::Ready(_))));
                }
            }
        }
        assert!(all == bytes);
        let (bytes, sum) = (all.len(), sum(all));
        self.see(pair, 1 - side, "reads", Seen::Total { bytes, sum });
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
