//! Waits for more than the next completion: for a number of them, or for that of one operation.

use super::*;

impl<K: Kernel> Proactor<K> {
    /// Delivers when at least `least` completions are there, `wait` is over, or submissions would
    /// be refused because so many wait.
    pub(super) fn take_at_least(
        &mut self,
        least: usize,
        wait: Wait,
        out: &mut Completions,
    ) -> io::Result<usize> {
        self.accepted -= std::mem::take(&mut self.handed);
        match least {
            0 => self.take_turns(Wait::Now, 1)?,
            _ => self.take_turns(wait, least.min(self.batch.limit()))?,
        }
        Ok(self.deliver(out))
    }

    /// Takes out the final completion of an operation when it is there. All others stay.
    pub(super) fn take_one(&mut self, ticket: Ticket) -> io::Result<Completion> {
        self.check_fork()?;
        self.accepted -= std::mem::take(&mut self.handed);
        if ticket.index() & RESTS == 0 {
            self.take_submitted(ticket);
        }
        let mut seen = 0;
        loop {
            if let Some(done) = self.batch.take_final(ticket, seen) {
                self.handed = usize::from(matches!(done.result, Ok(Done::Accepted(_))));
                self.counts.completed += 1;
                self.counts.deliveries += 1;
                self.counts.largest_delivery = self.counts.largest_delivery.max(1);
                return Ok(done);
            }
            self.check_in_flight(ticket)?;
            // What is found later stands behind what was looked through.
            seen = self.batch.len();
            if self.closed {
                self.turn_closed(Wait::Forever)?;
            } else {
                self.turn(Wait::Forever, seen + 1)?;
            }
        }
    }

    /// Whether a completion of this ticket is to come, and there is room for others before it.
    fn check_in_flight(&mut self, ticket: Ticket) -> Result<(), Reason> {
        let (slot, generation) = (ticket.index(), ticket.generation());
        let waits_in_queue = match slot & RESTS {
            0 => self.slots.find(slot, generation).map(|op| op.reserved),
            _ => (self.rests(ticket) || self.moved_read(ticket).is_some()).then_some(false),
        };
        match waits_in_queue {
            _ if self.batch.is_full() => Err(self.full_of_completions()),
            Some(false) => Ok(()),
            _ => Err(self.stale()),
        }
    }
}
