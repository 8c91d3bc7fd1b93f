//! How many chunks the kernel is to hold as receive buffers.
//!
//! The kernel writes every chunk that it holds before it writes the first one again, so many chunks
//! are cold memory. Too few chunks end receives (`ENOBUFS`). Starting these again is cheap for a
//! few streams with bulk data, and dear for thousands of small messages. So the kernel gets more
//! chunks when one shortage ends more receives than the kernel holds chunks. It gets fewer chunks
//! when for a while no shortage has ended half as many receives. If the kernel holds 256 chunks at
//! all times, echoes of 8 streams of 64 KiB take 1.59 times the server CPU per byte with `echo
//! --multishot`, and 1.15 times without (7 interleaved rounds).

/// The most chunks that the kernel is given.
const MOST: u16 = 256;
/// While its chunks have at most this many bytes, any shortage gives the kernel more of them. So
/// few chunks stay in the cache. With fewer, a source that finds no chunk again and again would not
/// get its share.
const FEW_BYTES: u32 = 1 << 20;
/// After this many rounds the kernel may get fewer chunks.
const WINDOW: u16 = if cfg!(miri) { 16 } else { 256 };

/// The receives that shortages have ended, and what follows from them.
#[derive(Debug)]
pub(super) struct BufferTarget {
    wanted: u16,
    /// Up to this many chunks, any shortage gives the kernel more.
    few: u16,
    /// Receives that a shortage has ended in this round, and the most in one round of this window.
    ended: u16,
    peak: u16,
    rounds: u16,
}

impl BufferTarget {
    pub(super) fn new(chunk_bytes: u32) -> BufferTarget {
        let few = (FEW_BYTES / chunk_bytes.max(1)).clamp(2, u32::from(MOST)) as u16;
        BufferTarget { wanted: 1, few, ended: 0, peak: 0, rounds: 0 }
    }

    /// How many chunks the kernel is to hold.
    #[inline]
    pub(super) fn wanted(&self) -> u16 {
        self.wanted
    }

    /// A receive has ended because the kernel had no chunk left.
    #[cold]
    pub(super) fn ran_out(&mut self) {
        self.ended = self.ended.saturating_add(1);
        if self.wanted < self.few || self.ended > self.wanted {
            self.wanted = (self.wanted * 2).min(MOST);
        }
    }

    /// A round ends: the kernel is entered again, and no completion is left to be handled.
    #[inline]
    pub(super) fn round(&mut self) {
        self.peak = self.peak.max(std::mem::take(&mut self.ended));
        self.rounds += 1;
        if self.rounds == WINDOW {
            let enough = self.peak < self.wanted / 2;
            if enough && (self.wanted > self.few || self.peak == 0) {
                self.wanted /= 2;
            }
            (self.peak, self.rounds) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs so many rounds, in each of which a shortage ends so many receives.
    fn rounds(buffer_target: &mut BufferTarget, count: u16, ended: u16) -> u16 {
        for _ in 0..count {
            (0..ended).for_each(|_| buffer_target.ran_out());
            buffer_target.round();
        }
        buffer_target.wanted()
    }

    const CHUNK: u32 = 64 << 10;

    #[test]
    fn a_few_streams_get_a_few() {
        for (streams, wanted) in
            [(0, 1), (1, 8), (4, 16), (16, 16), (17, 32), (100, 128), (900, 256)]
        {
            assert_eq!(rounds(&mut BufferTarget::new(CHUNK), 3, streams), wanted, "{streams}");
        }
        for (chunk, few) in [(64, 256), (8 << 10, 128), (1 << 20, 2), (1 << 30, 2)] {
            assert_eq!(rounds(&mut BufferTarget::new(chunk), 20, 1), few, "chunks of {chunk}");
        }
    }

    #[test]
    fn what_is_needed_stays() {
        for (streams, wanted) in [(0, 1), (1, 16), (8, 16), (200, 256), (257, 256)] {
            let mut buffer_target = BufferTarget::new(CHUNK);
            assert_eq!(rounds(&mut buffer_target, 3 * WINDOW, streams), wanted, "{streams}");
        }
    }

    #[test]
    fn it_halves_after_each_window_of_little_need() {
        let mut buffer_target = BufferTarget::new(CHUNK);
        rounds(&mut buffer_target, WINDOW, 257);
        assert_eq!(rounds(&mut buffer_target, WINDOW - 1, 8), 256, "not before its end");
        assert_eq!(rounds(&mut buffer_target, 1, 8), 128);
        for wanted in [64, 32, 16, 16, 16] {
            assert_eq!(rounds(&mut buffer_target, WINDOW, 8), wanted);
        }
        for wanted in [8, 4, 2, 1, 1] {
            assert_eq!(rounds(&mut buffer_target, WINDOW, 0), wanted);
        }
    }

    #[test]
    fn one_dear_round_in_a_window_counts() {
        let mut buffer_target = BufferTarget::new(CHUNK);
        rounds(&mut buffer_target, WINDOW, 257);
        for _ in 0..10 {
            rounds(&mut buffer_target, WINDOW - 1, 0);
            assert_eq!(rounds(&mut buffer_target, 1, 128), 256);
        }
    }
}
