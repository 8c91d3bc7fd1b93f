//! Which buffers are held, and by whose making: to find what keeps memory that should have come
//! back.
//!
//! With the feature `trace-buffers` every [`AlignedBuf`](crate::AlignedBuf), and every swap buffer
//! that is kept by leases only, is in a table from when it is handed out until it comes back.
//! Memory that is handed out or comes back twice, which the library's own mistakes alone can do, is
//! a panic. The table is one for the process, under a lock: for debugging, and not for a forked
//! child of several threads. It allocates for a new maximum of held buffers, and for a backtrace.
//!
//! ```
//! use windlass::AlignedBuf;
//! let buf = AlignedBuf::with_capacity(3 * 512, 512);
//! let held = windlass::trace::held();
//! assert!(held.iter().any(|held| held.bytes == 3 * 512));
//! println!("{}", held[0]); // with RUST_BACKTRACE=1: from where
//! # drop(buf);
//! ```

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The kind of a buffer in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The memory of an aligned buffer.
    Aligned,
    /// The memory of an aligned buffer in what is registered with a ring.
    Registered,
    /// A swap buffer, by one lease or more of it. It is in the table from when no more is read into
    /// it.
    Swap,
}

/// A buffer that is held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held {
    /// What it is.
    pub kind: Kind,
    /// How many bytes of memory it keeps.
    pub bytes: usize,
    /// Since when.
    pub since: Instant,
    /// From where it was handed out, where `RUST_BACKTRACE` is set. (Of a swap buffer that is the
    /// loop, in the read that found it full.)
    pub from: Arc<Backtrace>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} bytes for {:?}", self.kind, self.bytes, self.since.elapsed())?;
        match self.from.status() {
            BacktraceStatus::Captured => write!(f, "\n{}", self.from),
            _ => Ok(()),
        }
    }
}

/// By address.
type HeldBuffers = HashMap<usize, Held, BuildHasherDefault<DefaultHasher>>;

static TABLE: Mutex<HeldBuffers> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));

/// The shared placeholder for a disabled backtrace, so that an entry does not allocate.
static NOWHERE: LazyLock<Arc<Backtrace>> = LazyLock::new(|| Arc::new(Backtrace::disabled()));

fn table() -> MutexGuard<'static, HeldBuffers> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The buffers in use, the oldest first.
pub fn held() -> Vec<Held> {
    let mut all: Vec<Held> = table().values().cloned().collect();
    all.sort_by_key(|held| held.since);
    all
}

/// Memory is handed out.
pub(crate) fn made<T>(start: *const T, kind: Kind, bytes: usize) {
    let from = Backtrace::capture();
    let from = match from.status() {
        BacktraceStatus::Captured => Arc::new(from),
        _ => Arc::clone(&NOWHERE),
    };
    let held = Held { kind, bytes, since: Instant::now(), from };
    let before = table().insert(start.addr(), held);
    if let Some(before) = before {
        panic!("memory was handed out twice; first: {before}");
    }
}

/// Memory comes back. Called before other code can get it.
pub(crate) fn gone<T>(start: *const T) {
    let held = table().remove(&start.addr());
    assert!(held.is_some(), "memory came back twice, or was never handed out");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;
    use crate::memory::buf::Buf;
    use crate::memory::region::Region;

    // Other tests hold buffers at the same time: each looks for a size of its own.
    fn count(kind: Kind, bytes: usize) -> usize {
        held().iter().filter(|held| held.kind == kind && held.bytes == bytes).count()
    }

    #[test]
    fn aligned_buffers_are_held_until_they_drop() {
        const BYTES: usize = 37 * 512;
        let one = AlignedBuf::with_capacity(BYTES, 512);
        let two = AlignedBuf::with_capacity(BYTES, 512);
        assert_eq!(count(Kind::Aligned, BYTES), 2);
        drop(one);
        // On its way through an operation it is the same.
        let two = Buf::from(two).into_aligned().unwrap();
        assert_eq!(count(Kind::Aligned, BYTES), 1);
        let text = held().iter().map(Held::to_string).collect::<String>();
        assert!(text.contains("Aligned: 18944 bytes"), "{text}");
        drop(two);
        assert_eq!(count(Kind::Aligned, BYTES), 0);
    }

    #[test]
    fn pieces_of_a_region_are_held_until_they_drop() {
        const BYTES: usize = 41 * 4096;
        let region = Region::new(2 * BYTES).unwrap();
        let piece = region.take(BYTES).unwrap();
        assert_eq!(count(Kind::Registered, BYTES), 1);
        drop(AlignedBuf::from_piece(piece));
        assert_eq!(count(Kind::Registered, BYTES), 0);
    }

    #[test]
    #[should_panic(expected = "memory came back twice")]
    fn what_comes_back_twice_is_told() {
        let place = 0u64;
        made(&raw const place, Kind::Aligned, 8);
        gone(&raw const place);
        gone(&raw const place);
    }
}
