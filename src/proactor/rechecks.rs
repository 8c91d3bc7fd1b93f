//! Rechecks: Unix sockets that are read once more after a short read.
//!
//! On a Unix stream, a short read does not prove that no bytes are left: a read stops at passed
//! descriptors, and no event reports the bytes behind them (unix(7)). Only recvmsg(2) reports them,
//! but it would make every echo a tenth slower. Reading until `EAGAIN` takes 3.01 system calls for
//! an echoed message in place of 2.03 (64 × 64 B, `perf stat -e raw_syscalls:sys_enter echo --unix
//! PATH`). Instead the loop reads such a source once more. If the loop sleeps seldom, or a recent
//! recheck has found bytes, the recheck is before the next sleep. Otherwise it is after 200 ms
//! without pending events, so that it never overtakes a source whose event is waiting.

use std::collections::VecDeque;

use super::Source;

/// The loop is idle seldom if two idle moments are this far apart.
const SELDOM_NS: u64 = 5_000_000;
/// After this time a source is read once more.
const RECHECK_AFTER_NS: u64 = 200_000_000;
/// After this time, even while the kernel has more events than a wait takes.
const OVERDUE_AFTER_NS: u64 = 10 * RECHECK_AFTER_NS;
/// After a recheck that has found bytes, this many idle moments count as seldom. (Few, because
/// bytes that arrive just before the recheck look the same.)
const PROMPT: u32 = 8;

/// Which rechecks are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueRechecks {
    Nothing,
    /// Those that have waited for `OVERDUE_AFTER_NS`.
    Oldest,
    /// Those that have waited for `RECHECK_AFTER_NS`.
    Old,
    All,
}

struct Recheck {
    source: Source,
    since_ns: u64,
}

/// The sources to read once more, oldest first. No source is in the list twice.
#[derive(Default)]
pub(super) struct Rechecks {
    queue: VecDeque<Recheck>,
    /// The number of entries at the front that have a time. New entries get their time at the next
    /// look, so that a push need not read the clock.
    stamped: usize,
    /// When the loop was idle last.
    idle_ns: u64,
    /// The number of idle moments that still count as seldom.
    prompt: u32,
}

impl Rechecks {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Rechecks::default();
    }

    #[inline]
    pub(super) fn push(&mut self, source: Source) {
        self.queue.push_back(Recheck { source, since_ns: 0 });
    }

    /// Forgets sources that have ended.
    pub(super) fn retain(&mut self, mut is_there: impl FnMut(Source) -> bool) {
        self.queue.retain(|recheck| is_there(recheck.source));
        self.stamped = self.queue.iter().take_while(|recheck| recheck.since_ns != 0).count();
    }

    /// Whether a source was pushed since the last look.
    pub(super) fn has_new(&self) -> bool {
        self.stamped < self.queue.len()
    }

    /// When the oldest recheck is due, if nothing else happens before.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let first = self.queue.front().filter(|_| self.stamped > 0)?;
        Some(first.since_ns + RECHECK_AFTER_NS)
    }

    /// Which rechecks are due at `now_ns`. `idle` says whether the loop has nothing else to do.
    pub(super) fn look(&mut self, now_ns: u64, idle: bool) -> DueRechecks {
        for recheck in self.queue.range_mut(self.stamped..) {
            recheck.since_ns = now_ns;
        }
        self.stamped = self.queue.len();
        if idle {
            let seldom = now_ns.saturating_sub(self.idle_ns) >= SELDOM_NS;
            self.idle_ns = now_ns;
            if seldom || self.prompt > 0 {
                self.prompt = self.prompt.saturating_sub(1);
                return DueRechecks::All;
            }
        }
        if self.next_ns().is_some_and(|next| next <= now_ns) {
            DueRechecks::Old
        } else {
            DueRechecks::Nothing
        }
    }

    /// Takes the next source out whose recheck `due` allows.
    pub(super) fn next(&mut self, due: DueRechecks, now_ns: u64) -> Option<Source> {
        let is_due = match due {
            DueRechecks::Nothing => false,
            DueRechecks::Oldest => {
                self.next_ns()? + (OVERDUE_AFTER_NS - RECHECK_AFTER_NS) <= now_ns
            }
            DueRechecks::Old => self.next_ns()? <= now_ns,
            DueRechecks::All => true,
        };
        let recheck = if is_due { self.queue.pop_front()? } else { return None };
        self.stamped = self.stamped.saturating_sub(1);
        Some(recheck.source)
    }

    /// A recheck has found bytes.
    pub(super) fn found_bytes(&mut self) {
        self.prompt = PROMPT;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const MS: u64 = 1_000_000;

    fn source(index: u32) -> Source {
        Source::from_parts(index, NonZeroU32::MIN)
    }

    /// The sources that are read once more at a time.
    fn asked(rechecks: &mut Rechecks, now_ns: u64, idle: bool) -> Vec<u32> {
        let due = rechecks.look(now_ns, idle);
        std::iter::from_fn(|| rechecks.next(due, now_ns)).map(Source::index).collect()
    }

    #[test]
    fn a_loop_that_is_seldom_idle_asks_all_before_it_sleeps() {
        let mut rechecks = Rechecks::default();
        for moment in 1..4 {
            rechecks.push(source(1));
            rechecks.push(source(2));
            assert_eq!(asked(&mut rechecks, moment * 5 * MS, false), [0_u32; 0]);
            assert_eq!(asked(&mut rechecks, moment * 5 * MS, true), [1, 2]);
            assert!(rechecks.is_empty() && rechecks.next_ns().is_none());
        }
    }

    #[test]
    fn a_loop_that_is_often_idle_asks_those_that_have_waited() {
        let mut rechecks = Rechecks::default();
        assert_eq!(asked(&mut rechecks, 1000 * MS, true), [0_u32; 0]);
        rechecks.push(source(1));
        assert!(rechecks.has_new() && rechecks.next_ns().is_none());
        let start = 1001 * MS;
        assert_eq!(asked(&mut rechecks, start, true), [0_u32; 0]);
        assert_eq!(rechecks.next_ns(), Some(start + 200 * MS));
        rechecks.push(source(2));
        for ms in 1..200 {
            assert_eq!(asked(&mut rechecks, start + ms * MS, true), [0_u32; 0]);
        }
        // A source pushed after the look waits for the next look.
        let due = rechecks.look(start + 200 * MS, true);
        rechecks.push(source(3));
        assert_eq!(rechecks.next(due, start + 200 * MS), Some(source(1)));
        assert_eq!(rechecks.next(due, start + 200 * MS), None);
        assert_eq!(rechecks.next_ns(), Some(start + 201 * MS));
        // If the loop is never idle, only the time counts.
        assert_eq!(asked(&mut rechecks, start + 300 * MS, false), [2]);
        assert_eq!(asked(&mut rechecks, start + 499 * MS, false), [0_u32; 0]);
        assert_eq!(asked(&mut rechecks, start + 500 * MS, false), [3]);
    }

    #[test]
    fn where_more_waits_than_a_look_takes_the_oldest_are_asked() {
        let mut rechecks = Rechecks::default();
        let start = 1000 * MS;
        rechecks.push(source(1));
        assert_eq!(asked(&mut rechecks, start, false), [0_u32; 0]);
        rechecks.push(source(2));
        assert_eq!(rechecks.look(start + MS, false), DueRechecks::Nothing);
        assert_eq!(rechecks.look(start + 1999 * MS, false), DueRechecks::Old);
        assert_eq!(rechecks.next(DueRechecks::Oldest, start + 1999 * MS), None);
        assert_eq!(rechecks.next(DueRechecks::Oldest, start + 2000 * MS), Some(source(1)));
        assert_eq!(rechecks.next(DueRechecks::Oldest, start + 2000 * MS), None);
        assert_eq!(rechecks.next(DueRechecks::Old, start + 2000 * MS), Some(source(2)));
        rechecks.push(source(3));
        assert_eq!(rechecks.next(DueRechecks::Oldest, start + 9999 * MS), None);
    }

    #[test]
    fn a_recheck_that_finds_bytes_hastens_others() {
        let mut rechecks = Rechecks::default();
        asked(&mut rechecks, 1000 * MS, true);
        rechecks.found_bytes();
        for moment in 0..PROMPT {
            rechecks.push(source(moment));
            assert_eq!(asked(&mut rechecks, 1000 * MS, true), [moment]);
        }
        rechecks.push(source(1));
        assert_eq!(asked(&mut rechecks, 1000 * MS, true), [0_u32; 0]);
    }

    #[test]
    fn those_that_are_gone_can_be_forgotten() {
        let mut rechecks = Rechecks::default();
        asked(&mut rechecks, 1000 * MS, true);
        for index in 0..10 {
            rechecks.push(source(index));
            assert_eq!(asked(&mut rechecks, 1001 * MS, true), [0_u32; 0]);
        }
        rechecks.push(source(10));
        rechecks.retain(|source| source.index() > 7);
        assert_eq!((rechecks.len(), rechecks.has_new()), (3, true));
        assert_eq!(asked(&mut rechecks, 1201 * MS, false), [8, 9]);
        assert_eq!(asked(&mut rechecks, 1401 * MS, false), [10]);
    }
}
