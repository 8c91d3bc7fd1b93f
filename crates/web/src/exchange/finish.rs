//! The end of a request: it is counted, and the program hears of it.

use std::time::Instant;

use windlass_serve::{Cause, Engine};

use super::program::{End, Program, RouteId};
use super::{Machine, Slot, arrived};
use crate::message::arrived::From;
use crate::words::error::Error;
use crate::words::status::Status;

/// What has become of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate<'a> {
    pub(super) status: Option<Status>,
    pub(super) sent: u64,
    pub(super) error: Option<&'a Error>,
    /// Why its response is not whole.
    pub(super) cause: Option<Cause>,
    /// When its first byte came.
    pub(super) start: Option<Instant>,
    /// When its response was decided, if that was before now.
    pub(super) decided: Option<Instant>,
}

impl<K: 'static> Machine<K> {
    /// The time, for a program that wants to know how long requests take. Else the time of the
    /// callback, which costs nothing.
    #[inline]
    pub(super) fn time<P: Program<Keep = K>>(
        &self,
        program: &P,
        engine: &Engine<Slot<K>>,
    ) -> Instant {
        if program.is_watched() { engine.now() } else { self.now }
    }

    /// Counts a request that is done with.
    #[inline]
    pub(super) fn count(&mut self, status: Option<Status>) {
        let class = status.map_or(0, |status| status.code() / 100);
        if let Some(count) = self.ends.get_mut(usize::from(class)) {
            *count += 1;
        }
    }

    /// A request is done with. `bytes` are its head, which was decoded last.
    pub(super) fn finish<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        from: From<'_>,
        context: (RouteId, Option<&[u8]>),
        now: Instant,
        outcome: Fate<'_>,
    ) {
        self.count(outcome.status);
        if program.is_watched() {
            self.tell(program, from, context, now, outcome);
        }
    }

    /// Tells the program that a request is done with.
    pub(super) fn tell<P: Program<Keep = K>>(
        &mut self,
        program: &mut P,
        from: From<'_>,
        (route, bytes): (RouteId, Option<&[u8]>),
        now: Instant,
        outcome: Fate<'_>,
    ) {
        let Fate { status, sent, error, cause, start, decided } = outcome;
        let start = start.unwrap_or(now);
        let end = End {
            status,
            sent,
            error,
            cause,
            to_head: status.map(|_| decided.unwrap_or(now).saturating_duration_since(start)),
            took: now.saturating_duration_since(start),
            date: std::str::from_utf8(self.date.at(now).value()).unwrap_or_default(),
        };
        let request = bytes.map(|bytes| arrived(&self.head, bytes, from));
        program.finished(route, request, end);
    }
}
