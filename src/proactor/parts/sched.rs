//! The scheduler: which source runs next, and how much a turn and each source may do.

use std::collections::VecDeque;

use super::state::{FULL, QUEUED, SourceState};
use crate::proactor::turn::resource_waits::ResourceWaits;
use crate::words::source::Source;
use crate::words::table::NIL;

/// After so many completions without a `select`, a turn asks the kernel for events.
const EVENT_INTERVAL: usize = 64;

/// So many bytes of bulk data count as one completion towards the next `select`.
const BULK_BYTES: usize = 8 << 10;

/// What a selector without edges has reported of a source. It reports a condition again and again
/// that no try clears, so a vain try that follows a report begins a pause.
#[derive(Clone, Copy, Default)]
struct Reported {
    /// The directions that an event has made worth trying since the source last ran.
    by_event: u32,
    /// Those of which the program was told since its last call in the direction.
    to_program: u32,
}

/// The queues of sources, and the rest of a turn's bytes.
pub(in crate::proactor) struct Scheduler {
    /// Sources with something worth trying, by name, each at most once.
    pub(in crate::proactor) ready: VecDeque<Source>,
    /// Sources whose last read was large and perhaps left bytes. They run after the others.
    pub(in crate::proactor) bulk: VecDeque<Source>,
    /// Sources whose reads wait for a lease, or whose accepts wait for a slot.
    pub(in crate::proactor) waits: ResourceWaits,
    /// Events may be left that came before the clock was read: the last `select` took as many as
    /// one call takes, or it began before that moment.
    pub(in crate::proactor) may_have_events: bool,
    /// How many events the last `select` took.
    pub(in crate::proactor) events: usize,
    /// By source; only for a selector without edges.
    reported: Vec<Reported>,
    /// Completions that were delivered since the last `select`.
    completions_since_select: usize,
    /// Bytes that this turn may still move before it delivers.
    pub(in crate::proactor) turn_bytes: isize,
    /// The source that ran last from `bulk`, and the rest of its share.
    current_bulk: (u32, usize),
    /// The last turn that had completions to deliver skipped `bulk`. The next such turn runs it.
    skipped_bulk: bool,
}

impl Scheduler {
    pub(in crate::proactor) fn new(turn_budget: usize) -> Scheduler {
        Scheduler {
            ready: VecDeque::new(),
            bulk: VecDeque::new(),
            waits: ResourceWaits::default(),
            may_have_events: false,
            events: 0,
            reported: Vec::new(),
            completions_since_select: 0,
            turn_bytes: turn_budget as isize,
            current_bulk: (NIL, 0),
            skipped_bulk: false,
        }
    }

    /// Notes that an event has made directions of a source worth trying.
    pub(in crate::proactor) fn note_event(&mut self, index: u32, directions: u32) {
        self.reported_of(index).by_event = directions;
    }

    /// Notes that the program was told of a direction.
    pub(in crate::proactor) fn note_told(&mut self, index: u32, direction: u32) {
        self.reported_of(index).to_program |= direction;
    }

    fn reported_of(&mut self, index: u32) -> &mut Reported {
        let at = index as usize;
        if self.reported.len() <= at {
            self.reported.resize(at + 1, Reported::default());
        }
        &mut self.reported[at]
    }

    /// The source in this slot is gone. The next one there has no reports yet.
    pub(in crate::proactor) fn forget(&mut self, index: u32) {
        if let Some(of) = self.reported.get_mut(index as usize) {
            *of = Reported::default();
        }
    }

    /// The directions that an event has made worth trying since the last call.
    pub(in crate::proactor) fn take_event(&mut self, index: u32) -> u32 {
        self.reported.get_mut(index as usize).map_or(0, |of| std::mem::take(&mut of.by_event))
    }

    /// Whether the program was told of a direction since the last call.
    pub(in crate::proactor) fn take_told(&mut self, index: u32, direction: u32) -> bool {
        let Some(of) = self.reported.get_mut(index as usize) else { return false };
        let told = of.to_program & direction != 0;
        of.to_program &= !direction;
        told
    }

    /// Whether any source is queued.
    #[inline]
    pub(in crate::proactor) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.bulk.is_empty()
    }

    /// Puts a source that is worth trying into its queue, at the end. A source with bulk data goes
    /// to the head if it ran last and the turn's bytes were used up before its share was.
    #[inline]
    pub(in crate::proactor) fn enqueue(&mut self, index: u32, state: &mut SourceState) {
        if !state.has(QUEUED) {
            let full = state.has(FULL);
            state.flags = (state.flags | QUEUED) & !FULL;
            let source = state.name(index);
            if !full {
                self.ready.push_back(source);
            } else if self.current_bulk.0 == index
                && self.current_bulk.1 > 0
                && self.turn_bytes <= 0
            {
                self.bulk.push_front(source);
            } else {
                self.bulk.push_back(source);
            }
        }
    }

    /// Takes the next source with bulk data. It gets a new share, unless it ran last and has some
    /// of its share left.
    pub(in crate::proactor) fn next_bulk(
        &mut self,
        source_budget: usize,
        turn_budget: usize,
    ) -> Option<Bulk> {
        let source = self.bulk.pop_front()?;
        // Bulk data brings the next `select` closer, because other sources may have events.
        let bulk = turn_budget / BULK_BYTES;
        self.completions_since_select = self.completions_since_select.saturating_add(bulk);
        if self.current_bulk.0 != source.index() || self.current_bulk.1 == 0 {
            self.current_bulk = (source.index(), source_budget);
        }
        Some(Bulk { source, share: self.current_bulk.1 })
    }

    /// Notes how much of its share the source that ran last from `bulk` has left.
    pub(in crate::proactor) fn keep_share(&mut self, left: usize) {
        self.current_bulk.1 = left;
    }

    /// Whether this turn runs the sources with bulk data. Of the turns that have completions to
    /// deliver, every second one skips them.
    pub(in crate::proactor) fn runs_bulk(&mut self, has_completions: bool) -> bool {
        self.skipped_bulk = has_completions && !self.skipped_bulk;
        !self.skipped_bulk
    }

    /// Whether so many completions were delivered that a `select` is due.
    #[inline]
    pub(in crate::proactor) fn select_is_due(&self) -> bool {
        self.completions_since_select >= EVENT_INTERVAL
    }

    /// Notes that a `select` follows.
    #[inline]
    pub(in crate::proactor) fn note_select(&mut self) {
        self.completions_since_select = 0;
    }

    /// A turn delivers `completions` without a `select`.
    #[inline]
    pub(in crate::proactor) fn note_delivery(&mut self, completions: usize) {
        let count = completions.max(1);
        self.completions_since_select = self.completions_since_select.saturating_add(count);
    }

    /// Forgets every source.
    pub(in crate::proactor) fn clear(&mut self) {
        self.ready.clear();
        self.bulk.clear();
        self.waits.clear();
    }
}

/// A source with bulk data, and the bytes that it may move.
pub(in crate::proactor) struct Bulk {
    pub(in crate::proactor) source: Source,
    pub(in crate::proactor) share: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proactor::parts::state::READABLE;

    /// A turn without a limit for its bytes runs any number of sources with bulk data. Their count
    /// towards the next `select` overflowed.
    #[test]
    fn a_turn_without_a_limit_runs_all_bulk() {
        let most = isize::MAX as usize;
        let mut sched = Scheduler::new(most);
        let mut state = SourceState::default();
        for index in 0..20_000 {
            state.flags = FULL;
            sched.enqueue(index, &mut state);
        }
        let ran = std::iter::from_fn(|| sched.next_bulk(most, most)).count();
        assert_eq!(ran, 20_000);
        assert!(sched.select_is_due());
        sched.note_delivery(1);
        assert!(sched.select_is_due());
    }

    /// What was reported of a source concerned the next one in its slot, too.
    #[test]
    fn reports_end_with_their_source() {
        let mut sched = Scheduler::new(1);
        for told in [false, true] {
            sched.note_event(5, READABLE);
            sched.note_told(5, READABLE);
            if told {
                assert!((sched.take_event(5), sched.take_told(5, READABLE)) == (READABLE, true));
            }
            sched.forget(5);
            assert!((sched.take_event(5), sched.take_told(5, READABLE)) == (0, false));
        }
        sched.forget(6);
    }
}
