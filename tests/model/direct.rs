//! Calls that move bytes at once. What they move enters the lists as an operation that has ended.

use std::io::{self, IoSlice, IoSliceMut};

use windlass::driver::OpCode;
use windlass::{Op, Refusal};

use super::check::BROKEN;
use super::state::*;
use super::steps::*;
use super::submit::{Plan, Sort};
use crate::worlds::World;

const PLAIN: How = How { due: Due::Never, remote: false, quiet: false };

impl<W: World> Model<W> {
    /// The port of a call, after what the call itself does first.
    fn called(&mut self, on: u8) -> Option<usize> {
        let port = self.pick(on, Sort::of(on, 64))?;
        self.call += 1;
        if self.ports[port].reserved {
            // The loop looks at the queue before it reports a stale name.
            self.flush();
        }
        Some(port)
    }

    pub fn recv(&mut self, on: u8, rooms: &[u16]) {
        let Some(port) = self.called(on) else { return };
        let source = self.ports[port].source;
        let mut memory: Vec<Vec<u8>> = rooms.iter().map(|&room| vec![0; room.into()]).collect();
        let answer = match &mut memory[..] {
            [one] => self.watcher.recv(source, one),
            many => {
                let mut parts: Vec<_> = many.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                self.watcher.recv_vectored(source, &mut parts)
            }
        };
        let room = rooms.iter().map(|&room| usize::from(room)).sum();
        let Some(moved) = self.moved(port, READS, room, answer) else { return };
        if moved == 0 {
            assert!(self.may_be_over(port), "an end that was not sent");
            self.ports[port].over = true;
            return self.count("recv, the end");
        }
        let mut data = memory.concat();
        data.truncate(moved);
        let mut plan = Plan::new(Op::read(source), Some(port));
        plan.wanted = room;
        self.enter_ended(plan, moved, data);
        self.count("recv, some");
    }

    pub fn send(&mut self, on: u8, lens: &[u16]) {
        let Some(port) = self.called(on) else { return };
        let source = self.ports[port].source;
        let parts: Vec<Vec<u8>> = lens.iter().map(|&len| self.draw(port, len.into())).collect();
        let answer = match &parts[..] {
            [one] => self.watcher.send(source, one),
            many => {
                let parts: Vec<_> = many.iter().map(|part| IoSlice::new(part)).collect();
                self.watcher.send_vectored(source, &parts)
            }
        };
        let mut payload = parts.concat();
        let len = payload.len();
        let Some(moved) = self.moved(port, WRITES, len, answer) else { return };
        assert!(moved > 0 || len == 0, "nothing was sent, and no reason was told");
        payload.truncate(moved);
        let mut plan = Plan::new(Op::write(source, Vec::new()), Some(port));
        plan.payload = payload;
        self.enter_ended(plan, moved, Vec::new());
        self.count("send, some");
    }

    /// Checks the answer of a call that was offered `most` bytes; how many it moved, if it did.
    fn moved(
        &mut self,
        port: usize,
        direction: usize,
        most: usize,
        answer: io::Result<usize>,
    ) -> Option<usize> {
        let name = ["recv", "send"][direction];
        let error = match answer {
            Ok(moved) => {
                assert!(self.ports[port].stream.is_some(), "{name} on no stream");
                assert!(moved <= most && !self.closed && !self.ports[port].aborted);
                return Some(moved);
            }
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::WouldBlock {
            self.count(format!("{name}, would block"));
            return None;
        }
        let reason = Refusal::of(&error).or(error.raw_os_error().map(Refusal::Os));
        let fits = match reason.expect("a reason") {
            Refusal::Closed => self.closed,
            Refusal::Stale => self.ports[port].aborted || self.is_closing(port),
            Refusal::Unsupported => self.ports[port].stream.is_none(),
            Refusal::EmptyBuffer => direction == READS && most == 0,
            Refusal::Busy => {
                self.count(format!("{name}, busy"));
                let list = self.ports[port].lists[direction].iter();
                list.clone().any(|&op| self.ops[op].ended.is_none())
            }
            Refusal::Os(libc::EPIPE) if direction == WRITES && self.ports[port].shut_asked => true,
            Refusal::Os(errno) => {
                self.ports[port].over |= direction == READS;
                BROKEN.contains(&errno) && self.is_disturbed(port)
            }
            _ => false,
        };
        assert!(fits, "{name} on port {port}: {error:?}");
        None
    }

    /// Enters what a call has moved as an operation that has ended.
    fn enter_ended(&mut self, plan: Plan, moved: usize, data: Vec<u8>) {
        let index = self.ops.len();
        let (_, mut record) = plan.split(index, PLAIN);
        debug_assert!(matches!(record.code, OpCode::Read | OpCode::Write));
        (record.moved, record.data, record.ended) = (moved, data, Some(End::Done));
        self.ops.push(record);
        self.enter(index);
    }
}
