//! What one loop keeps for the rule of the [budget](crate::memory).

use crate::memory::Budget;
use crate::words::id::Id;

/// The output of a turn is charged in steps of so many bytes.
const STEP: usize = 1 << 20;

pub(crate) struct Pressure {
    pub(crate) budget: Budget,
    /// The share of a connection when the engine last looked.
    pub(crate) share: usize,
    /// Whether the reserve was touched then.
    pub(crate) is_touched: bool,
    /// How many more leases the program gets in this turn. Then data is copied out of its lease,
    /// so that a program which keeps all of them leaves some for the reads.
    pub(crate) leases: usize,
    /// How many more bytes of output this turn takes before the engine looks at the budget again.
    pub(crate) room: usize,
    /// What the output of this turn is charged.
    turn: u32,
    /// Connections that have stopped reading, and some that read again, and how many have stopped.
    pub(crate) throttled: Vec<Id>,
    pub(crate) stopped: usize,
    /// Connections whose streams wait for memory, and how much each waits for.
    pub(crate) waiters: Vec<Id>,
}

impl Pressure {
    pub(crate) fn new(budget: Budget) -> Pressure {
        let mut pressure = Pressure {
            budget,
            share: 0,
            is_touched: false,
            leases: 0,
            room: 0,
            turn: 0,
            throttled: Vec::new(),
            stopped: 0,
            waiters: Vec::new(),
        };
        pressure.look();
        pressure
    }

    /// Looks at the budget.
    pub(crate) fn look(&mut self) {
        self.share = self.budget.share();
        self.is_touched = self.budget.is_touched();
        self.room = if self.is_touched { 0 } else { STEP };
    }

    /// Whether a connection takes `len` more bytes while the reserve is touched, so that it holds
    /// `waits`. The output of this turn is charged to no connection yet: each of `active` ones may
    /// have some.
    pub(crate) fn takes(&self, waits: usize, len: usize, active: usize) -> bool {
        let is_full = self.budget.used().saturating_add(len) > self.budget.limit();
        waits <= self.budget.least_share()
            || !is_full && waits <= self.share.min(self.budget.share_of(active))
    }

    /// Charges output of this turn for which there is no `room`.
    #[cold]
    pub(crate) fn charge_turn(&mut self, bytes: usize) {
        let before = if self.is_touched { 0 } else { STEP - self.room };
        let bytes = u32::try_from(bytes + before).unwrap_or(u32::MAX);
        let now = self.turn.saturating_add(bytes);
        self.budget.change(self.turn, now);
        self.turn = now;
        self.look();
    }

    /// The output of this turn is the watcher's now, and charged as what waits there.
    pub(crate) fn end_turn(&mut self) {
        if self.turn > 0 {
            self.budget.change(std::mem::take(&mut self.turn), 0);
        }
        self.look();
    }
}
