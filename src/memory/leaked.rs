//! Buffers that are left to a kernel that does not answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::memory::buf::Buf;

/// When the owner of operations in the kernel is dropped: how long it waits for their end.
pub(crate) const PATIENCE_NS: u64 = 1_000_000_000;

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// The addresses of the values that were left to a kernel. Nothing reads this list: while it names
/// them, leak checkers (LeakSanitizer, Miri, valgrind) call them reachable, and report only other
/// leaks.
static LEFT: Mutex<Vec<AtomicPtr<()>>> = Mutex::new(Vec::new());

/// How many buffers this process has left to a kernel, because the kernel had not ended an
/// operation a second after its watcher, or its [`AioFiles`](crate::fs), was dropped. (For example,
/// the file system does not answer.) The memory of these buffers is never used again.
pub fn leaked_buffers() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Leaves a buffer for ever to the kernel, which has not ended the buffer's operation, and
/// [counts](leaked_buffers) the buffer (for authors of drivers).
///
/// ```
/// use windlass::Buf;
/// use windlass::driver::{leak, leaked_buffers};
/// leak(Buf::from(vec![0; 4096]));
/// assert_eq!(leaked_buffers(), 1);
/// ```
pub fn leak(buf: Buf) {
    LEAKED.fetch_add(u64::from(buf.capacity() + buf.len() > 0), Ordering::Relaxed);
    leave_to_kernel(buf);
}

/// Leaves a value for ever to the kernel, which may still use its memory: it is never dropped.
pub(crate) fn leave_to_kernel<T: 'static>(value: T) {
    let value = AtomicPtr::new(Box::into_raw(Box::new(value)).cast());
    // A forked child must not wait: the thread that has the lock may exist only in the parent.
    if let Ok(mut left) = LEFT.try_lock() {
        left.push(value);
    }
}
