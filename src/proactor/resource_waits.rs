//! Sources that wait for what runs out: memory for a read, a share of it, room in the table.
//!
//! Each kind has a line, first come, first served. As many are let go as there is of what they wait for,
//! never all: those for whom nothing is left would only come back. What a line holds are names; one whose
//! source is gone, or waits no more, is passed over when its turn comes.

use std::collections::VecDeque;

use super::shares::Shares;
use crate::source::Source;

/// So many names may be in a line, and twice as many as there are sources, before those that wait no more
/// are forgotten.
const MOST_GONE: usize = 64;

/// The waits of a driver.
#[derive(Debug, Default)]
pub(super) struct ResourceWaits {
    /// Reads that the loop does, for a swap buffer.
    pub(super) leases: Line,
    /// Reads that the kernel is to do, for a swap buffer in its hands.
    pub(super) buffers: Line,
    /// How many of those the kernel was given since it was asked last: it has not seen them.
    pub(super) begun: usize,
    /// Accepts, for a place in the table of sources.
    pub(super) places: Line,
    /// Multishot reads that hold their share of the swap buffers.
    pub(super) shares: Shares,
}

impl ResourceWaits {
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.buffers.is_empty()
            && self.places.is_empty()
            && self.shares.is_idle()
    }

    /// Whether the kernel is to be asked before it is known for how many more it has buffers.
    pub(super) fn are_pressing(&self) -> bool {
        self.begun > 0 && !self.buffers.is_empty()
    }

    /// How many names stand in the lines.
    pub(super) fn len(&self) -> usize {
        self.leases.names.len() + self.buffers.names.len() + self.places.names.len()
    }

    pub(super) fn clear(&mut self) {
        *self = ResourceWaits::default();
    }
}

/// Who waits for one thing.
#[derive(Debug, Default)]
pub(super) struct Line {
    names: VecDeque<Source>,
    /// How many were let go last, if nobody has come since.
    let_go: usize,
    /// How many names were looked at.
    #[cfg(test)]
    looks: usize,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds a source at the end; `sources` is how many there are, and `waits` tells whether one still waits.
    pub(super) fn push(
        &mut self,
        source: Source,
        sources: u32,
        waits: impl FnMut(&Source) -> bool,
    ) {
        self.let_go = 0;
        if self.names.len() > MOST_GONE + 2 * sources as usize {
            self.names.retain(waits);
        }
        self.names.push_back(source);
    }

    /// How many are to be let go when there is `left` of what they wait for and `ahead` sources are about to
    /// run before them. At least one, so that those ahead do not starve them; twice as many as last if
    /// these have left some and nobody is ahead: one swap buffer serves many small messages.
    pub(super) fn share_out(&mut self, left: usize, ahead: usize) -> usize {
        let count = match (left, ahead) {
            (0, _) => 0,
            (_, 0) => left.max(2 * self.let_go),
            _ => left.saturating_sub(ahead).max(1),
        };
        self.let_go = count.min(self.names.len());
        self.let_go
    }

    /// Takes the next name; it may be of one that waits no more.
    pub(super) fn next(&mut self) -> Option<Source> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.names.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn name(index: u32) -> Source {
        Source::from_parts(index, NonZeroU32::MIN)
    }

    /// Four thousand wait, buffers come back one by one: each is a look at one source, in their order.
    #[test]
    fn one_buffer_is_one_look() {
        const MANY: u32 = 4000;
        let mut line = Line::default();
        (0..MANY).for_each(|i| line.push(name(i), MANY, |_| true));
        for turn in 0..3 * MANY {
            // Every third turn one has come back; who is let go uses it up and comes again.
            let left = usize::from(turn % 3 == 0);
            for _ in 0..line.share_out(left, 0) {
                let next = line.next().expect("all of them wait");
                assert_eq!(next.index(), turn / 3 % MANY);
                line.push(next, MANY, |_| true);
            }
        }
        assert_eq!(line.looks, MANY as usize);
    }

    /// Where one buffer serves many, they are let go in few turns; where some run ahead, only so many more
    /// as there is left for.
    #[test]
    fn as_many_as_there_is_left_for() {
        let mut line = Line::default();
        (0..100).for_each(|i| line.push(name(i), 100, |_| true));
        assert_eq!([0, 1, 1, 1, 1].map(|left| line.share_out(left, 0)), [0, 1, 2, 4, 8]);
        assert_eq!(line.share_out(0, 0), 0);
        assert_eq!([1, 7].map(|left| line.share_out(left, 0)), [1, 7]);
        line.push(name(100), 100, |_| true);
        assert_eq!(line.share_out(3, 0), 3, "somebody came back: not twice as many");
        assert_eq!([0, 2, 5, 9].map(|ahead| line.share_out(5, ahead)), [6, 3, 1, 1]);
        assert_eq!(line.share_out(1000, 0), 101, "not more than there are");
    }

    /// Names that wait no more take a bounded room, however often one waits and is cancelled.
    #[test]
    fn a_line_is_bounded() {
        let mut line = Line::default();
        for i in 0..100_000 {
            line.push(name(i), 10, |waiting| waiting.index() + 1 == i);
            assert!(line.names.len() <= MOST_GONE + 2 * 10 + 1);
        }
    }
}
