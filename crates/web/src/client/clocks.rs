//! The clocks of calls, and of links without a call.
//!
//! # Why
//! A call has two ends in time: that of its phase, and that of all. They are numbers beside the
//! call, and one timer of the loop fires at the earliest of them. It is set only if it would fire
//! too late. So a request that is answered soon costs no timer: that of an earlier one is set
//! already, and finds nothing that is due.

use std::time::Instant;

use windlass::Op;
use windlass_serve::Engine;

use super::error::{FetchError, FetchPhase};
use super::hub::Hub;
use super::link::LinkState;

/// The token of the timer.
pub(super) const TIMER: u64 = 0x5469_6d65 << 32;

impl Hub {
    /// A call comes to a phase: its clock begins.
    pub(super) fn set_phase<S>(&mut self, engine: &mut Engine<S>, at: u32, phase: FetchPhase) {
        let now = engine.now();
        let call = &mut self.calls[at as usize];
        let span = match phase {
            FetchPhase::Head if call.is_held => Some(self.settings.expect),
            // Who passes a response on has clocks of its own.
            FetchPhase::Head | FetchPhase::Body if call.fetch.is_none() => None,
            phase => self.settings.of_phase(phase),
        };
        (call.phase, call.phase_end) = (phase, span.map(|span| now + span));
        if let Some(next) = call.phase_end.into_iter().chain(call.end).min() {
            self.arm(engine, next);
        }
    }

    /// Begins the clocks of all calls. They had no watcher, which has its own time in a simulation.
    pub(super) fn begin_clocks<S>(&mut self, engine: &mut Engine<S>) {
        let now = engine.now();
        self.timers.clear();
        for at in 0..self.calls.len() as u32 {
            let call = &mut self.calls[at as usize];
            if call.requester.is_none() {
                continue;
            }
            let timeout = call.fetch.as_ref().and_then(|fetch| fetch.timeout);
            call.end = timeout.map(|span| now + span);
            let phase = call.phase;
            self.set_phase(engine, at, phase);
        }
    }

    /// Lets the timer fire at this time at the latest.
    pub(super) fn arm<S>(&mut self, engine: &mut Engine<S>, at: Instant) {
        if self.timers.last().is_none_or(|next| *next > at) {
            self.timers.push(at);
            engine.submit(Op::timer_at(at).token(TIMER));
        }
    }

    /// The timer has fired.
    pub(super) fn tick<S: LinkState>(&mut self, engine: &mut Engine<S>) {
        let now = engine.now();
        while self.timers.last().is_some_and(|at| *at <= now) {
            self.timers.pop();
        }
        let mut next = None;
        for at in 0..self.calls.len() as u32 {
            let ends = self.look_at_clocks(engine, at, now);
            next = next.into_iter().chain(ends).min();
        }
        let idle: Vec<u32> = self.pool.sites.iter().flat_map(|site| site.idle.clone()).collect();
        for number in idle {
            let Some(link) = &self.links[number as usize] else { continue };
            let end = link.idle_since + self.settings.idle;
            if end <= now {
                self.retire(engine, number);
            } else {
                next = next.into_iter().chain([end]).min();
            }
        }
        if let Some(next) = next {
            self.arm(engine, next);
        }
    }

    /// Ends a call whose time has passed; else, when that is.
    fn look_at_clocks<S: LinkState>(
        &mut self,
        engine: &mut Engine<S>,
        at: u32,
        now: Instant,
    ) -> Option<Instant> {
        let call = &self.calls[at as usize];
        call.requester?;
        let (phase, link) = (call.phase, call.link);
        if call.end.is_some_and(|end| end <= now) {
            let limit = call.fetch.as_ref().and_then(|fetch| fetch.timeout).unwrap_or_default();
            let error = FetchError::Timeout { phase: FetchPhase::Whole, limit };
            self.fail_call(engine, at, error);
            return None;
        }
        if call.phase_end.is_some_and(|end| end <= now) {
            let is_sending =
                !call.is_whole() || link.is_some_and(|link| self.is_sending(engine, link));
            if phase == FetchPhase::Head && call.is_held {
                // The server says nothing of `100 Continue`.
                self.send_body(engine, at);
                self.set_phase(engine, at, phase);
            } else if phase == FetchPhase::Head && is_sending {
                // Another clock runs while the server takes the request: that of a stalled write.
                self.set_phase(engine, at, phase);
            } else {
                let limit = self.settings.of_phase(phase).unwrap_or_default();
                self.fail_call(engine, at, FetchError::Timeout { phase, limit });
                return None;
            }
        }
        let call = &self.calls[at as usize];
        call.phase_end.into_iter().chain(call.end).min()
    }

    fn is_sending<S>(&self, engine: &mut Engine<S>, link: u32) -> bool {
        let id = self.links[link as usize].as_ref().and_then(|link| link.id);
        id.is_some_and(|id| engine.is_full(id))
    }
}
