//! What one loop keeps for the rule of the [budget](crate::memory).

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::{Budget, HeldByProgram};
use crate::parts::heads::Reserved;
use crate::words::id::Id;

/// The output of a turn is charged in steps of so many bytes, or of a sixteenth of the budget if
/// that is less.
const STEP: usize = 1 << 20;

/// One buffer of so many bytes to a connection that has nothing else is not looked at for the
/// budget: it is no more than the least share.
const SMALL: usize = 4 << 10;

pub(crate) struct Pressure {
    pub(crate) budget: Budget,
    /// What the program's charges have changed, and the memory of a map of them.
    pub(crate) by_program: Arc<HeldByProgram>,
    pub(crate) changes: HashMap<Id, i64>,
    /// How many connections of this loop hold bytes.
    pub(crate) holders: usize,
    /// The share of a connection when the engine last looked.
    pub(crate) share: usize,
    /// Whether the reserve was touched then.
    pub(crate) is_touched: bool,
    /// How many more leases the program gets in this turn. Then data is copied out of its lease,
    /// so that a program which keeps all of them leaves some for the reads.
    pub(crate) leases: usize,
    /// How many more bytes of output this turn takes before the engine looks at the budget again.
    pub(crate) room: usize,
    /// What `room` was after that look.
    step: usize,
    /// What the output of this turn is charged.
    turn: u32,
    /// The longest buffer that a connection with nothing else takes without a look: `SMALL`, and
    /// not more than the high mark.
    pub(crate) small: usize,
    /// Connections whose reads have stopped. Some may read again since.
    pub(crate) throttled: Vec<Id>,
    /// How many connections have the flag `THROTTLED`.
    pub(crate) stopped: usize,
    /// Connections of which the program keeps input.
    pub(crate) keepers: Vec<Id>,
    /// Connections whose streams wait for memory.
    pub(crate) waiters: Vec<Id>,
    /// Room that writes to its connection use, and how much of it is left.
    pub(crate) used_room: Option<(Reserved, usize)>,
}

impl Pressure {
    pub(crate) fn new(budget: Budget, high: usize) -> Pressure {
        let by_program = Arc::new(HeldByProgram::new(budget.clone()));
        let mut pressure = Pressure {
            budget,
            by_program,
            changes: HashMap::new(),
            holders: 0,
            share: 0,
            is_touched: false,
            leases: 0,
            room: 0,
            step: 0,
            turn: 0,
            small: SMALL.min(high),
            throttled: Vec::new(),
            stopped: 0,
            keepers: Vec::new(),
            waiters: Vec::new(),
            used_room: None,
        };
        pressure.look();
        pressure
    }

    /// Looks at the budget.
    pub(crate) fn look(&mut self) {
        self.share = self.budget.share();
        self.is_touched = self.budget.is_touched();
        self.step = if self.is_touched { 0 } else { STEP.min(self.budget.limit() / 16) };
        self.room = self.step;
    }

    /// Whether a connection may write `len` bytes beyond `room`: `waits` bytes would wait for it
    /// then. The output of this turn has no owner yet, so the share is among all `active`
    /// connections.
    pub(crate) fn takes(&self, waits: usize, len: usize, active: usize) -> bool {
        let used = self.budget.used() + self.step - self.room;
        let is_full = used.saturating_add(len) > self.budget.limit();
        let share = self.share.min(self.budget.share_of(active));
        waits <= self.budget.least_share() || !is_full && (!self.is_touched || waits <= share)
    }

    /// Takes output of this turn.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) {
        match self.room.checked_sub(len) {
            Some(room) => self.room = room,
            None => self.charge_turn(len),
        }
    }

    #[cold]
    fn charge_turn(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes + self.step - self.room).unwrap_or(u32::MAX);
        let now = self.turn.saturating_add(bytes);
        self.budget.change(self.turn, now);
        self.turn = now;
        self.look();
    }

    /// Ends the charge for the output of this turn: from here on each connection is charged for it.
    pub(crate) fn end_turn(&mut self) {
        if self.turn > 0 {
            self.budget.change(std::mem::take(&mut self.turn), 0);
        }
        self.look();
    }
}
