//! Unix streams of which a short read does not prove that nothing is left.
//!
//! A read stops behind passed descriptors, and no event tells of the bytes behind them (unix(7)).
//! Only recvmsg(2) says so, which would cost every read a tenth of an echo. Instead such a source
//! is asked once more: before the loop sleeps, if that is seldom or a doubt was right lately; else
//! after a while, when no events wait (whose turn it is not to be asked before).

use std::collections::VecDeque;

use super::Source;

/// Moments with nothing to do are seldom if they are so far apart.
const SELDOM_NS: u64 = 5_000_000;
/// After so long every source is asked.
const WHILE_NS: u64 = 200_000_000;
/// After so long it is asked although the kernel has more events than a wait takes.
const LONG_NS: u64 = 10 * WHILE_NS;
/// So many moments with nothing to do are taken for seldom ones when a doubt was right. (Few,
/// because what has come by chance just before it was asked for looks like one that was.)
const PROMPT: u32 = 8;

/// Which of the doubted are to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Nobody,
    /// Those that have waited for long.
    Oldest,
    /// Those that have waited for a while.
    Old,
    All,
}

struct Doubt {
    source: Source,
    since_ns: u64,
}

/// The doubted sources, each once, by the time.
#[derive(Default)]
pub(super) struct Doubts {
    queue: VecDeque<Doubt>,
    /// How many of them, from the front, know since when: the clock is not read for each.
    stamped: usize,
    /// When the loop had nothing to do last.
    idle_ns: u64,
    /// How many moments with nothing to do are still taken for seldom ones.
    prompt: u32,
}

impl Doubts {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Doubts::default();
    }

    #[inline]
    pub(super) fn push(&mut self, source: Source) {
        self.queue.push_back(Doubt { source, since_ns: 0 });
    }

    /// Forgets those that are gone.
    pub(super) fn retain(&mut self, mut is_there: impl FnMut(Source) -> bool) {
        self.queue.retain(|doubt| is_there(doubt.source));
        self.stamped = self.queue.iter().take_while(|doubt| doubt.since_ns != 0).count();
    }

    /// Whether some have not been looked at yet.
    pub(super) fn are_new(&self) -> bool {
        self.stamped < self.queue.len()
    }

    /// When the next one of those that were looked at is to be asked, if nothing else happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let first = self.queue.front().filter(|_| self.stamped > 0)?;
        Some(first.since_ns + WHILE_NS)
    }

    /// It is `now_ns`, and the loop has nothing (else) to do or has: who is to be asked?
    pub(super) fn look(&mut self, now_ns: u64, idle: bool) -> Ask {
        for doubt in self.queue.range_mut(self.stamped..) {
            doubt.since_ns = now_ns;
        }
        self.stamped = self.queue.len();
        if idle {
            let seldom = now_ns.saturating_sub(self.idle_ns) >= SELDOM_NS;
            self.idle_ns = now_ns;
            if seldom || self.prompt > 0 {
                self.prompt = self.prompt.saturating_sub(1);
                return Ask::All;
            }
        }
        if self.next_ns().is_some_and(|next| next <= now_ns) { Ask::Old } else { Ask::Nobody }
    }

    /// Takes out the next one of these.
    pub(super) fn next(&mut self, ask: Ask, now_ns: u64) -> Option<Source> {
        let asked = match ask {
            Ask::Nobody => false,
            Ask::Oldest => self.next_ns()? + (LONG_NS - WHILE_NS) <= now_ns,
            Ask::Old => self.next_ns()? <= now_ns,
            Ask::All => true,
        };
        let doubt = if asked { self.queue.pop_front()? } else { return None };
        self.stamped = self.stamped.saturating_sub(1);
        Some(doubt.source)
    }

    /// Something was left in one that was asked.
    pub(super) fn was_right(&mut self) {
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

    /// Who is asked at a time.
    fn asked(doubts: &mut Doubts, now_ns: u64, idle: bool) -> Vec<u32> {
        let ask = doubts.look(now_ns, idle);
        std::iter::from_fn(|| doubts.next(ask, now_ns)).map(Source::index).collect()
    }

    #[test]
    fn a_loop_that_is_seldom_idle_asks_all_before_it_sleeps() {
        let mut doubts = Doubts::default();
        for moment in 1..4 {
            doubts.push(source(1));
            doubts.push(source(2));
            assert_eq!(asked(&mut doubts, moment * 5 * MS, false), []);
            assert_eq!(asked(&mut doubts, moment * 5 * MS, true), [1, 2]);
            assert!(doubts.is_empty() && doubts.next_ns().is_none());
        }
    }

    #[test]
    fn a_loop_that_is_often_idle_asks_those_that_have_waited() {
        let mut doubts = Doubts::default();
        assert_eq!(asked(&mut doubts, 1000 * MS, true), []);
        doubts.push(source(1));
        assert!(doubts.are_new() && doubts.next_ns().is_none());
        let start = 1001 * MS;
        assert_eq!(asked(&mut doubts, start, true), []);
        assert_eq!(doubts.next_ns(), Some(start + 200 * MS));
        doubts.push(source(2));
        for ms in 1..200 {
            assert_eq!(asked(&mut doubts, start + ms * MS, true), []);
        }
        // One that comes behind the look is not asked with them.
        let ask = doubts.look(start + 200 * MS, true);
        doubts.push(source(3));
        assert_eq!(doubts.next(ask, start + 200 * MS), Some(source(1)));
        assert_eq!(doubts.next(ask, start + 200 * MS), None);
        assert_eq!(doubts.next_ns(), Some(start + 201 * MS));
        // Only the time counts where the loop always has something to do.
        assert_eq!(asked(&mut doubts, start + 300 * MS, false), [2]);
        assert_eq!(asked(&mut doubts, start + 499 * MS, false), []);
        assert_eq!(asked(&mut doubts, start + 500 * MS, false), [3]);
    }

    #[test]
    fn where_more_waits_than_a_look_takes_the_oldest_are_asked() {
        let mut doubts = Doubts::default();
        let start = 1000 * MS;
        doubts.push(source(1));
        assert_eq!(asked(&mut doubts, start, false), []);
        doubts.push(source(2));
        assert_eq!(doubts.look(start + MS, false), Ask::Nobody);
        assert_eq!(doubts.look(start + 1999 * MS, false), Ask::Old);
        assert_eq!(doubts.next(Ask::Oldest, start + 1999 * MS), None);
        assert_eq!(doubts.next(Ask::Oldest, start + 2000 * MS), Some(source(1)));
        assert_eq!(doubts.next(Ask::Oldest, start + 2000 * MS), None);
        assert_eq!(doubts.next(Ask::Old, start + 2000 * MS), Some(source(2)));
        doubts.push(source(3));
        assert_eq!(doubts.next(Ask::Oldest, start + 9999 * MS), None);
    }

    #[test]
    fn a_doubt_that_was_right_hastens_others() {
        let mut doubts = Doubts::default();
        asked(&mut doubts, 1000 * MS, true);
        doubts.was_right();
        for moment in 0..PROMPT {
            doubts.push(source(moment));
            assert_eq!(asked(&mut doubts, 1000 * MS, true), [moment]);
        }
        doubts.push(source(1));
        assert_eq!(asked(&mut doubts, 1000 * MS, true), []);
    }

    #[test]
    fn those_that_are_gone_can_be_forgotten() {
        let mut doubts = Doubts::default();
        asked(&mut doubts, 1000 * MS, true);
        for index in 0..10 {
            doubts.push(source(index));
            assert_eq!(asked(&mut doubts, 1001 * MS, true), []);
        }
        doubts.push(source(10));
        doubts.retain(|source| source.index() > 7);
        assert_eq!((doubts.len(), doubts.are_new()), (3, true));
        assert_eq!(asked(&mut doubts, 1201 * MS, false), [8, 9]);
        assert_eq!(asked(&mut doubts, 1401 * MS, false), [10]);
    }
}
