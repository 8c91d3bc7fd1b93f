//! The time that the program gives connections, and that the bytes of their peers give back.
//!
//! # Why
//! A server limits the head of a request as a whole, and its body by a rate: a peer that sends one
//! byte a second is never idle. A heap would have an entry for each message, and a field in each
//! connection would cost the idle ones. So those that have such a limit now stand in one list,
//! which a timer looks through.

use std::time::{Duration, Instant};

use windlass::Ticket;

use crate::parts::trim::trim;
use crate::words::id::Id;

/// When the time of a connection runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsWhile {
    /// While it is read: the time is the peer's. So many bytes give one second back; 0: none do.
    Read { least_rate: u32 },
    /// While it is open, whatever moves.
    Open,
}

/// What a peer has left of its time.
pub(crate) struct Allowance {
    pub(crate) id: Id,
    span: Duration,
    left: Duration,
    runs: RunsWhile,
    /// The bytes that have come since the last look.
    bytes: u64,
    /// The time of the last look, if the clock ran then.
    looked: Option<Instant>,
}

impl Allowance {
    pub(crate) fn new(id: Id, span: Duration, runs: RunsWhile) -> Allowance {
        Allowance { id, span, left: span, runs, bytes: 0, looked: None }
    }

    /// The reads stop: takes the time until then off.
    fn stop(&mut self, now: Instant) {
        if let Some(before) = self.looked.take() {
            self.left = self.left.saturating_sub(now - before);
        }
    }

    /// Takes the time since the last look off, if the clock has run at both; true if it runs, and
    /// none is left.
    fn is_used_up(&mut self, now: Instant, runs: bool) -> bool {
        let before = std::mem::replace(&mut self.looked, runs.then_some(now));
        let bytes = std::mem::take(&mut self.bytes);
        let least_rate = match self.runs {
            RunsWhile::Read { least_rate } => least_rate,
            RunsWhile::Open => 0,
        };
        let gained = match bytes.saturating_mul(1_000_000_000).checked_div(least_rate.into()) {
            Some(ns) => Duration::from_nanos(ns),
            None => Duration::ZERO,
        };
        let spent = before.filter(|_| runs).map_or(Duration::ZERO, |before| now - before);
        let left = self.left.saturating_add(gained).saturating_sub(spent);
        self.left = left.min(self.span);
        runs && left.is_zero()
    }
}

/// The connections whose time the program limits.
#[derive(Default)]
pub(crate) struct Allowances {
    list: Vec<Allowance>,
    /// The timer of the next look, and its time.
    pub(crate) timer: Option<(Ticket, Duration)>,
    /// The time between two looks: it fits all in the list.
    step: Option<Duration>,
    /// Whether a request to look is queued.
    pub(crate) is_asked: bool,
    /// Where the look under way goes on; 0 if none is.
    pub(crate) next: usize,
}

impl Allowances {
    /// Adds a connection, or gives the one at `at` a new time. Returns its place.
    pub(crate) fn set(&mut self, at: Option<u32>, new: Allowance) -> u32 {
        // One look finds the beginning, and a later one the end: each is late by up to one step.
        let step = (new.span / 16).max(Duration::from_millis(100)) / 32 * 15;
        self.step = Some(self.step.map_or(step, |before| before.min(step)));
        match at.map(|at| &mut self.list[at as usize]) {
            Some(old) => *old = new,
            None => self.list.push(new),
        }
        at.unwrap_or(self.list.len() as u32 - 1)
    }

    /// Removes the connection at a place. Returns the one that has the place now.
    pub(crate) fn remove(&mut self, at: u32) -> Option<Id> {
        self.list.swap_remove(at as usize);
        if self.list.is_empty() {
            self.step = None;
        }
        self.list.get(at as usize).map(|moved| moved.id)
    }

    /// The connection at a place, and when its time runs.
    pub(crate) fn one_at(&self, at: usize) -> Option<(Id, RunsWhile)> {
        self.list.get(at).map(|allowance| (allowance.id, allowance.runs))
    }

    pub(crate) fn count(&mut self, at: u32, bytes: usize) {
        self.list[at as usize].bytes += bytes as u64;
    }

    /// Looks at the connection at a place, whose clock runs or stands; true if it has no time left.
    pub(crate) fn look(&mut self, at: usize, now: Instant, runs: bool) -> bool {
        self.list[at].is_used_up(now, runs)
    }

    /// The reads of the connection at a place have stopped, and may have begun again.
    pub(crate) fn reads_changed(&mut self, at: u32, stop: Instant, start: Option<Instant>) {
        let one = &mut self.list[at as usize];
        if one.runs == RunsWhile::Open {
            return;
        }
        one.stop(stop);
        one.looked = start;
    }

    /// Whether the last look has found that the connection at a place has no time left.
    pub(crate) fn has_none_left(&self, at: u32) -> bool {
        self.list[at as usize].left.is_zero()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.list);
    }

    /// The time until the next look; `None` without a connection.
    pub(crate) fn step(&self) -> Option<Duration> {
        self.step
    }

    /// Whether there is no timer, or one that is too late for a new limit.
    pub(crate) fn needs_timer(&self) -> bool {
        self.timer.is_none_or(|(_, step)| self.step.is_some_and(|shortest| shortest < step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowance(span: Duration, least_rate: u32) -> Allowance {
        let id = Id { number: 1, index: 0 };
        Allowance::new(id, span, RunsWhile::Read { least_rate })
    }

    #[test]
    fn time_runs_only_between_two_looks_at_which_the_clock_runs() {
        let start = Instant::now();
        let mut one = allowance(3 * SECOND, 0);
        assert!(!one.is_used_up(start + 9 * SECOND, true), "it begins with the first look");
        assert!(!one.is_used_up(start + 11 * SECOND, true));
        assert!(!one.is_used_up(start + 20 * SECOND, false));
        assert!(!one.is_used_up(start + 30 * SECOND, true));
        one.bytes = 1 << 40;
        assert!(one.is_used_up(start + 31 * SECOND, true), "no byte gives time back at the rate 0");
    }

    #[test]
    fn bytes_give_time_back_up_to_the_span() {
        let start = Instant::now();
        let mut one = allowance(3 * SECOND, 1000);
        for second in 0..60 {
            one.bytes = 1000;
            assert!(!one.is_used_up(start + second * SECOND, true), "it keeps the rate");
        }
        one.bytes = u64::MAX;
        assert!(!one.is_used_up(start + 60 * SECOND, true));
        assert_eq!(one.left, 3 * SECOND, "a burst saves up nothing");
        one.bytes = 1999;
        assert!(!one.is_used_up(start + 64 * SECOND, true));
        assert!(one.is_used_up(start + 65 * SECOND, true));
    }
}
