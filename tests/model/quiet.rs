//! Quiet writes: which of them have succeeded, although no completion says so.

use windlass::driver::OpCode;

use super::state::*;
use crate::worlds::World;

impl<W: World> Model<W> {
    /// Call this when all completions were delivered. Finds the quiet writes that have succeeded:
    /// writes end in their order, so the writes that are still queued on a source are its last
    /// ones.
    pub fn settle_quiet(&mut self) {
        let mut unsure: Vec<usize> = Vec::new();
        for port in 0..self.ports.len() {
            let Some(queued) = self.queued_bytes(port) else { continue };
            let open: Vec<usize> = self.open_writes(port);
            let mut left = queued;
            let mut at = open.len();
            while left > 0 {
                assert!(at > 0, "{left} bytes of {queued} are queued for no write");
                at -= 1;
                left = left.saturating_sub(self.ops[open[at]].payload.len());
            }
            // Whether a write of no bytes has ended does not show in what is queued.
            let is_empty = |op: &usize| self.ops[*op].payload.is_empty();
            let empty = open[..at].iter().rev().take_while(|op| is_empty(op)).count();
            unsure.extend(open[at - empty..at].iter().filter(|&&op| self.ops[op].quiet));
            for &op in &open[..at - empty] {
                self.settle(op);
            }
            let last = self.ports[port].last_ordered[WRITES];
            for op in &open[at..] {
                let record = &self.ops[*op];
                let in_order = !record.quiet || last.is_none_or(|last| last <= record.place);
                assert!(in_order, "a later write has ended: {record:?}");
            }
        }
        // Of these writes, and of those on aborted sources, only the number is known. If all other
        // operations in flight are accounted for, these have ended.
        unsure.extend(self.pending().filter(|&op| {
            let record = &self.ops[op];
            let aborted = record.end.is_some_and(|port| self.ports[port].aborted);
            record.quiet && !record.queued && aborted
        }));
        let others = self.pending().count() - unsure.len();
        let in_flight = self.watcher.counters().in_flight as usize;
        assert!(
            in_flight >= others && in_flight <= others + unsure.len(),
            "quiet writes in flight"
        );
        if in_flight == others {
            for op in unsure {
                self.settle(op);
            }
        }
        // If only some of these writes have ended, the model cannot know which.
        let unsettled = self.watcher.counters().quiet_done - self.quiet_done;
        assert!(unsettled == 0 || in_flight > others, "{unsettled} more have ended");
    }

    /// The writes of a source that have not ended, as far as is known, in their order.
    fn open_writes(&self, port: usize) -> Vec<usize> {
        let list = self.ports[port].lists[WRITES].iter().copied();
        list.filter(|&op| self.ops[op].code == OpCode::Write && self.ops[op].ended.is_none())
            .collect()
    }

    /// A quiet write has succeeded.
    fn settle(&mut self, op: usize) {
        let record = &mut self.ops[op];
        assert!(record.quiet, "it has ended without a completion: {record:?}");
        assert!(!record.must_answer, "a cancel is not answered: {record:?}");
        assert!(!record.must_tear, "a hole: {record:?}");
        record.moved = record.payload.len();
        record.ended = Some(End::Done);
        record.due_now = false;
        self.quiet_done += 1;
        self.count("Write quiet");
    }
}
