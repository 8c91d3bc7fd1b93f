//! The clock of a driver, and times that end something other than operations.

use std::cell::Cell;
use std::collections::HashMap;

use crate::proactor::turn::idle::Idle;
use crate::words::source::Source;

/// The first pause of a direction, and the longest: each failed try doubles the next pause. At the
/// longest, fifty connects that wait for room try 1,600 times a second in all, and find room at
/// most 32 ms late.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const LONGEST_PAUSE_NS: u64 = 32_000_000;
/// How many interrupted calls the loop makes again at once in a tenth of a second. After more
/// signals, a direction pauses.
pub(in crate::proactor) const MOST_INTERRUPTED: usize = 100;
const INTERRUPTED_SPAN_NS: u64 = 100_000_000;

/// The clock of a driver, pauses, and idle timeouts.
pub(in crate::proactor) struct Time {
    /// The clock as it was last read in this turn.
    pub(in crate::proactor) now_ns: u64,
    /// The time that `now` has returned to the program since the last turn; 0 if the program has
    /// not called it.
    pub(in crate::proactor) reported_ns: Cell<u64>,
    /// Directions that are tried again after a pause.
    pub(in crate::proactor) paused: Vec<Pause>,
    /// The last pauses of directions that have not moved since, by source and flag: until when, and
    /// for how long.
    last: HashMap<(Source, u32), (u64, u64)>,
    /// `last` is looked through for what is out of date when it has so many entries.
    most_last: usize,
    /// The number of interrupted calls, and since when.
    interrupted: (usize, u64),
    /// The idle timeouts of sources.
    pub(in crate::proactor) idle: Idle,
}

/// A direction of a source that is not tried until a time has come.
#[derive(Clone, Copy)]
pub(in crate::proactor) struct Pause {
    pub(in crate::proactor) until_ns: u64,
    pub(in crate::proactor) source: Source,
    /// The flag that the pause has set.
    pub(in crate::proactor) flag: u32,
}

impl Time {
    pub(in crate::proactor) fn new() -> Time {
        Time {
            now_ns: 0,
            reported_ns: Cell::new(0),
            paused: Vec::new(),
            last: HashMap::new(),
            most_last: 64,
            interrupted: (0, 0),
            idle: Idle::new(),
        }
    }

    /// Begins a pause of a direction: twice as long as the last one, if the direction was tried in
    /// vain soon after that.
    pub(in crate::proactor) fn pause(&mut self, source: Source, flag: u32, now_ns: u64) {
        if self.last.len() >= self.most_last {
            self.last.retain(|_, (until_ns, span_ns)| now_ns <= *until_ns + *span_ns);
            self.most_last = 64.max(2 * self.last.len());
        }
        let last = self.last.get(&(source, flag));
        let span_ns = match last {
            Some((until_ns, span_ns)) if now_ns <= until_ns.saturating_add(*span_ns) => {
                LONGEST_PAUSE_NS.min(2 * span_ns)
            }
            _ => FIRST_PAUSE_NS,
        };
        let until_ns = now_ns.saturating_add(span_ns);
        self.last.insert((source, flag), (until_ns, span_ns));
        self.paused.push(Pause { until_ns, source, flag });
    }

    /// Notes that a direction has moved: its next pause is short.
    #[inline(always)]
    pub(in crate::proactor) fn moved(&mut self, source: Source, flag: u32) {
        if !self.last.is_empty() {
            self.last.remove(&(source, flag));
        }
    }

    /// Notes that a signal has interrupted a call. True if it may be made again now.
    pub(in crate::proactor) fn interrupted(&mut self, now_ns: u64) -> bool {
        let (count, since_ns) = &mut self.interrupted;
        if now_ns.saturating_sub(*since_ns) > INTERRUPTED_SPAN_NS {
            (*count, *since_ns) = (0, now_ns);
        }
        *count += 1;
        *count <= MOST_INTERRUPTED
    }

    /// When the first pause ends.
    pub(in crate::proactor) fn next_pause_ns(&self) -> Option<u64> {
        self.paused.iter().map(|pause| pause.until_ns).min()
    }
}
