//! The end of a program: the model ends every operation, and compares both sides of the
//! connections.

use windlass::driver::OpCode;

use super::state::*;
use super::steps::*;
use super::submit::Plan;
use crate::worlds::World;

const PLAIN: How = How { due: Due::Never, remote: false, quiet: false };

impl<W: World> Model<W> {
    /// Waits until `over` holds. If that takes longer than the bound, it will never hold.
    fn until(&mut self, what: &str, over: impl Fn(&Model<W>) -> bool) {
        for _ in 0..100_000 {
            if over(self) {
                return;
            }
            // Quiet writes may be all that was waited for.
            if self.wait(None, Keep::Take) > 0 || over(self) {
                continue;
            }
            if self.wait(Some(W::BOUND), Keep::Take) == 0 && !over(self) {
                let pending: Vec<&Record> = self.pending().map(|op| &self.ops[op]).collect();
                panic!("{what} do not end: {pending:?}; {:?}", self.watcher.counters());
            }
        }
        panic!("{what} go on for ever");
    }

    /// Brings everything to its end.
    pub fn finish(&mut self) {
        self.finishing = true;
        self.release(false);
        for port in 0..self.ports.len() {
            self.set_idle(port, None);
        }
        if !self.requests.is_empty() {
            self.wait(None, Keep::Take);
        }
        self.until("operations that were asked to end", |m| {
            !m.pending().any(|op| {
                let record = &m.ops[op];
                let aborted = record.end.is_some_and(|port| m.ports[port].aborted);
                record.cancelled_at.is_some() || aborted
            })
        });
        self.cancel_rest();
        self.drain();
        self.check_streams();
        self.check_files();
        assert!(self.posted.is_empty(), "a message was lost");
    }

    /// Whether bytes that are written here can all arrive.
    fn is_heard(&self, port: usize) -> bool {
        self.peer(port).is_some_and(|peer| self.is_open(peer))
    }

    /// Cancels operations that would wait for ever. That includes writes of leases: they can hold
    /// the whole pool, so that no read takes the bytes that have to be read first.
    fn cancel_rest(&mut self) {
        let pending: Vec<usize> = self.pending().collect();
        for op in pending {
            let record = &self.ops[op];
            let ends = match record.end {
                Some(port) => {
                    let heard = self.is_heard(port) && !record.lease;
                    direction(record.code) == Some(WRITES) && heard
                }
                None => false,
            };
            // Work ends by itself.
            if !ends && record.work.is_none() {
                self.cancel(op);
            }
        }
        self.until("cancelled operations", |m| {
            !m.pending().any(|op| m.ops[op].cancelled_at.is_some() || m.ops[op].due_now)
        });
    }

    /// Shuts every connection down and reads what is left in it.
    fn drain(&mut self) {
        let mut refused_in_vain = 0;
        loop {
            let mut missing = false;
            for port in 0..self.ports.len() {
                if self.peer(port).is_none() || !self.is_open(port) {
                    continue;
                }
                let reads = self.pending_in(port, READS);
                if !self.ports[port].over {
                    missing |= !reads && self.read_many(port, PLAIN).is_none();
                }
                if !self.ports[port].shut && !self.is_pending_on(port, OpCode::Shutdown) {
                    let op = windlass::Op::shutdown(self.ports[port].source);
                    missing |= self.submit(Plan::new(op, Some(port)), PLAIN).is_none();
                }
            }
            if self.pending().next().is_none() {
                refused_in_vain += u32::from(missing);
                assert!(refused_in_vain < 3, "refused with nothing in flight");
                if !missing {
                    return;
                }
                continue;
            }
            let before = self.delivered;
            self.until("the last operations", |m| m.delivered > before);
        }
    }

    fn pending_in(&self, port: usize, wanted: usize) -> bool {
        let list = &self.ports[port].lists[wanted];
        list.iter().any(|&op| self.ops[op].ended.is_none())
    }

    /// Checks that the received bytes are the sent bytes.
    pub fn check_streams(&mut self) {
        for stream in 0..self.streams.len() {
            for side in 0..2 {
                let ports = &self.streams[stream].ports;
                let sent = ports[side].map_or(Vec::new(), |port| self.sent(port));
                let Some(reader) = ports[1 - side] else {
                    continue;
                };
                let heard = self.heard(reader);
                if self.streams[stream].unmatched {
                    continue;
                }
                let whole = !self.closed && !self.is_disturbed(reader);
                assert!(heard.len() <= sent.len(), "more was heard than sent");
                assert!(!whole || heard.len() == sent.len(), "bytes were lost");
                let differs = heard.iter().zip(&sent).position(|(a, b)| a != b);
                assert_eq!(differs, None, "of {} bytes", heard.len());
                self.count(if whole { "streams compared" } else { "streams compared in part" });
            }
        }
    }

    /// The bytes that the completions of the writes claim, in the order of submission.
    fn sent(&self, port: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        for &op in &self.ports[port].lists[WRITES] {
            let record = &self.ops[op];
            if record.code == OpCode::Write {
                sent.extend_from_slice(&record.payload[..record.moved]);
            }
        }
        sent
    }

    /// The bytes that the reads have received, in the order of submission.
    fn heard(&self, port: usize) -> Vec<u8> {
        let reads = self.ports[port].lists[READS].iter();
        reads.flat_map(|&op| self.ops[op].data.iter().copied()).collect()
    }

    /// Checks a closed watcher: it delivers everything, and then every wait reports that it is
    /// closed.
    pub fn drain_closed(&mut self) {
        while self.wait(None, Keep::Take) > 0 || self.is_at_work() {
            if self.is_at_work() {
                let count = self.wait(Some(W::BOUND), Keep::Take);
                assert!(count > 0 || !self.is_at_work(), "work does not end");
            }
        }
        assert!(self.pending().next().is_none());
        for _ in 0..2 {
            assert_eq!(self.wait(Some(W::BOUND), Keep::Take), 0);
            self.watcher.close();
        }
        let refused = self.watcher.submit(windlass::Op::nop()).expect_err("it is closed");
        assert_eq!(refused.reason, windlass::Refusal::Closed);
        self.check_streams();
        self.check_files();
    }
}
