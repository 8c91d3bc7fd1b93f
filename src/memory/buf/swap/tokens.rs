//! Tokens of a chunk: one atomic number counts the holders that may look at its bytes.
//!
//! The owner that fills a chunk (the pool, or a `Lent`) holds `FULL` tokens, less one for each
//! lease that it has handed out. Handing a lease out costs no atomic operation, and dropping it
//! costs one. The holder that brings the count to zero owns the chunk.
//!
//! Invariant: (T1) the drop of a token is a release, and the look that finds no other token is an
//! acquire: all reads and writes by a holder of a token happen before the chunk is written again.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The tokens of a chunk that is filled: more than it has bytes, and each lease takes one byte at
/// least.
pub(super) const FULL: u32 = 1 << 31;
/// More clones of one lease than this abort the program, as `Arc` does.
const TOO_MANY: u32 = 3 << 30;

#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Tokens(AtomicU32);

impl Tokens {
    #[cfg(not(loom))]
    pub(super) const fn new(count: u32) -> Tokens {
        Tokens(AtomicU32::new(count))
    }

    #[cfg(loom)]
    pub(super) fn new(count: u32) -> Tokens {
        Tokens(AtomicU32::new(count))
    }

    /// Gives all tokens back to the filler. No other holder of a token is left.
    pub(super) fn refill(&self) {
        self.0.store(FULL, Ordering::Relaxed);
    }

    /// Whether the filler, which holds `rest`, is the only holder.
    #[inline(always)]
    pub(super) fn are_back(&self, rest: u32) -> bool {
        self.0.load(Ordering::Acquire) == rest
    }

    /// Adds a token for another lease of the same bytes, or of a part of them.
    pub(super) fn add(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) > TOO_MANY {
            std::process::abort();
        }
    }

    /// Drops a lease's token; true if it was the last.
    #[inline(always)]
    pub(super) fn drop_one(&self) -> bool {
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    /// Drops the tokens of the holder that has filled the chunk. True if they were the last.
    pub(super) fn give_up(&self, rest: u32) -> bool {
        self.0.fetch_sub(rest, Ordering::AcqRel) == rest
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A chunk with bytes for two leases; `UnsafeCell` reports two accesses that race.
    struct LoomChunk {
        tokens: Tokens,
        bytes: [UnsafeCell<u8>; 2],
    }

    impl LoomChunk {
        fn write(&self, i: usize, byte: u8) {
            self.bytes[i].with_mut(|at| {
                // SAFETY: loom stops the test if something else has access.
                unsafe { *at = byte };
            });
        }

        fn expect(&self, i: usize, byte: u8) {
            // SAFETY: as above.
            self.bytes[i].with(|at| assert_eq!(unsafe { *at }, byte));
        }
    }

    fn filled() -> Arc<LoomChunk> {
        let bytes = [UnsafeCell::new(1), UnsafeCell::new(2)];
        let chunk = Arc::new(LoomChunk { tokens: Tokens::new(FULL), bytes });
        chunk.tokens.refill();
        chunk
    }

    /// S1: two threads write their own halves through unique leases, one freezes its half and
    /// shares it; the pool starts the chunk again when it finds all tokens back.
    #[test]
    fn a_chunk_that_is_used_again_was_left_by_every_writer() {
        loom::model(|| {
            let chunk = filled();
            // One lease of both halves, then `split_to`: a token more.
            let rest = FULL - 1;
            chunk.tokens.add();
            let halves = [0, 1].map(|half| {
                let chunk = Arc::clone(&chunk);
                thread::spawn(move || {
                    chunk.expect(half, half as u8 + 1);
                    chunk.write(half, 7);
                    if half == 1 {
                        // Frozen and cloned: both only read.
                        chunk.tokens.add();
                        chunk.expect(half, 7);
                        assert!(!chunk.tokens.drop_one(), "the pool holds the rest");
                    }
                    assert!(!chunk.tokens.drop_one(), "the pool holds the rest");
                })
            });
            let mut reused = false;
            if chunk.tokens.are_back(rest) {
                chunk.tokens.refill();
                chunk.write(0, 9);
                chunk.write(1, 9);
                reused = true;
            }
            for half in halves {
                half.join().unwrap();
            }
            if !reused {
                assert!(chunk.tokens.are_back(rest));
                chunk.write(0, 9);
            }
        });
    }

    /// S3: of the holders of a retired chunk, one drops the last token. It owns the chunk, and sees
    /// all that the others have written.
    #[test]
    fn the_last_token_owns_the_chunk() {
        loom::model(|| {
            let chunk = filled();
            chunk.tokens.add();
            let rest = FULL - 1;
            let own = |chunk: &LoomChunk| {
                chunk.write(0, 9);
                chunk.write(1, 9);
            };
            let halves = [0, 1].map(|half| {
                let chunk = Arc::clone(&chunk);
                thread::spawn(move || {
                    chunk.write(half, 7);
                    let last = chunk.tokens.drop_one();
                    if last {
                        own(&chunk);
                    }
                    usize::from(last)
                })
            });
            let last = chunk.tokens.give_up(rest);
            if last {
                own(&chunk);
            }
            let owners: usize = halves.map(|half| half.join().unwrap()).iter().sum();
            assert_eq!(owners + usize::from(last), 1);
        });
    }
}
