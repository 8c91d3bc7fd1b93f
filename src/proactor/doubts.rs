//! Unix streams of which a short read does not prove that nothing is left.
//!
//! A read stops behind passed descriptors, and no event tells of the bytes behind them (unix(7)). Only
//! recvmsg(2) says so, which would cost every read a tenth of an echo. Instead such a source is asked once
//! more: when the loop has nothing to do, if that is seldom or a doubt was right lately; else when the source
//! has been quiet for a while. Whatever comes in between lets it be read, and what stood behind with it.

use std::collections::VecDeque;

use super::Source;

/// Moments with nothing to do are seldom if they are so far apart.
const SELDOM_NS: u64 = 5_000_000;
/// So long is a source left alone while they are not.
const QUIET_NS: u64 = 100_000_000;
/// So many moments with nothing to do are taken for seldom ones when a doubt was right.
const PROMPT: u32 = 64;

struct Doubt {
    source: Source,
    /// The count of its resting reads when it was doubted.
    reads: u32,
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
    /// All that are in the queue are to be asked.
    all: bool,
}

impl Doubts {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Doubts::default();
    }

    #[inline]
    pub(super) fn push(&mut self, source: Source, reads: u32) {
        self.queue.push_back(Doubt { source, reads, since_ns: 0 });
    }

    /// Whether some have not been looked at yet.
    pub(super) fn are_new(&self) -> bool {
        self.stamped < self.queue.len()
    }

    /// When the next one of those that were looked at is to be asked, if nothing else happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let first = self.queue.front().filter(|_| self.stamped > 0)?;
        Some(first.since_ns + QUIET_NS)
    }

    /// It is `now_ns`, and the loop has nothing (else) to do or has: whether any is to be asked.
    pub(super) fn look(&mut self, now_ns: u64, idle: bool) -> bool {
        for doubt in self.queue.range_mut(self.stamped..) {
            doubt.since_ns = now_ns;
        }
        self.stamped = self.queue.len();
        if idle {
            self.all = self.prompt > 0 || now_ns.saturating_sub(self.idle_ns) >= SELDOM_NS;
            self.prompt = self.prompt.saturating_sub(1);
            self.idle_ns = now_ns;
        }
        self.all && idle || self.next_ns().is_some_and(|next| next <= now_ns)
    }

    /// Something was left in one that was asked.
    pub(super) fn was_right(&mut self) {
        self.prompt = PROMPT;
    }

    /// The next one that is to be asked; `reads` tells how many resting reads a source has had, if it
    /// is still there. Those that were read since they were doubted stay for another while.
    pub(super) fn next(
        &mut self,
        now_ns: u64,
        mut reads: impl FnMut(Source) -> Option<u32>,
    ) -> Option<Source> {
        while self.stamped > 0 && (self.all || self.next_ns()? <= now_ns) {
            let doubt = self.queue.pop_front()?;
            self.stamped -= 1;
            match reads(doubt.source) {
                // Two for the read that rests there since.
                Some(reads) if !self.all && reads.wrapping_sub(doubt.reads) > 2 => {
                    // `look` has been: all before it know since when.
                    self.queue.push_back(Doubt { reads, since_ns: now_ns, ..doubt });
                    self.stamped += 1;
                }
                Some(_) => return Some(doubt.source),
                None => {}
            }
        }
        self.all = false;
        None
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

    /// Who is asked at a time, all of them having had so many reads.
    fn asked(doubts: &mut Doubts, now_ns: u64, idle: bool, reads: u32) -> Vec<u32> {
        let mut asked = Vec::new();
        if doubts.look(now_ns, idle) {
            while let Some(source) = doubts.next(now_ns, |_| Some(reads)) {
                asked.push(source.index());
            }
        }
        asked
    }

    #[test]
    fn a_loop_that_is_seldom_idle_asks_all_before_it_sleeps() {
        let mut doubts = Doubts::default();
        for moment in 1..4 {
            doubts.push(source(1), 1);
            doubts.push(source(2), 1);
            assert_eq!(asked(&mut doubts, moment * 5 * MS, false, 3), []);
            assert_eq!(asked(&mut doubts, moment * 5 * MS, true, 3), [1, 2]);
            assert!(doubts.is_empty() && doubts.next_ns().is_none());
        }
    }

    #[test]
    fn a_loop_that_is_often_idle_asks_those_that_have_been_quiet() {
        let mut doubts = Doubts::default();
        assert_eq!(asked(&mut doubts, 1000 * MS, true, 1), []);
        doubts.push(source(1), 1);
        let start = 1001 * MS;
        assert_eq!(asked(&mut doubts, start, true, 3), []);
        assert_eq!(doubts.next_ns(), Some(start + 100 * MS));
        doubts.push(source(2), 1);
        for ms in 1..100 {
            assert_eq!(asked(&mut doubts, start + ms * MS, true, 3), []);
        }
        assert_eq!(asked(&mut doubts, start + 100 * MS, true, 3), [1]);
        assert_eq!(doubts.next_ns(), Some(start + 101 * MS));
        // Only the time counts where the loop always has something to do.
        assert_eq!(asked(&mut doubts, start + 300 * MS, false, 3), [2]);
    }

    #[test]
    fn a_source_that_is_read_stays() {
        let mut doubts = Doubts::default();
        let mut now_ns = 1000 * MS;
        asked(&mut doubts, now_ns, true, 1);
        doubts.push(source(1), 1);
        for reads in [11, 21, 31] {
            assert_eq!(asked(&mut doubts, now_ns, false, reads), []);
            now_ns += 100 * MS;
        }
        assert_eq!(asked(&mut doubts, now_ns, false, 31), [1]);
    }

    #[test]
    fn a_doubt_that_was_right_hastens_others() {
        let mut doubts = Doubts::default();
        asked(&mut doubts, 1000 * MS, true, 1);
        doubts.was_right();
        for moment in 0..PROMPT {
            doubts.push(source(moment), 1);
            assert_eq!(asked(&mut doubts, 1000 * MS, true, 3), [moment]);
        }
        doubts.push(source(1), 1);
        assert_eq!(asked(&mut doubts, 1000 * MS, true, 3), []);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut doubts = Doubts::default();
        doubts.push(source(1), 1);
        assert!(doubts.look(1000 * MS, true));
        assert_eq!(doubts.next(1000 * MS, |_| None), None);
        assert!(doubts.is_empty());
    }
}
