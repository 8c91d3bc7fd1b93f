//! Operations that do nothing.

use crate::completion::Done;
use crate::kernel::Kernel;
use crate::op::OpCode;
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::words::source::Source;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_nop(&mut self, token: u64) -> Submitted {
        self.sources.check_open()?;
        self.check_completions()?;
        self.stats.submitted[OpCode::Nop as usize] += 1;
        let ticket = self.ended_ticket();
        self.outbox.push(OpCode::Nop, Source::NONE, ticket, token, Ok(Done::Nop));
        Ok(ticket)
    }
}
