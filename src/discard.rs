//! Drops what is the program's: its `Drop` is foreign code, and may panic.
//!
//! A driver drops a program's value in few places: the closure of a job that was not begun, and the
//! buffers, results and messages of a watcher that goes. There a panic must not end what the driver is
//! about: an operation would lose its completion, memory that a kernel has could be freed. So it ends
//! here: the panic hook has reported it, and it is [counted](panicked_drops).

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static PANICKED: AtomicU64 = AtomicU64::new(0);

/// How often in this process the `Drop` of a value that a watcher or one of its threads had to drop has
/// panicked: of the closure of a job that was not begun, of a buffer's owner, of a message, of what a job
/// had returned. Such a panic is reported by the panic hook and goes no further. It only grows.
///
/// ```
/// assert_eq!(windlass::panicked_drops(), 0);
/// ```
pub fn panicked_drops() -> u64 {
    PANICKED.load(Ordering::Relaxed)
}

/// Drops a value of the program's; a panic of its `Drop` ends here.
#[cold]
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        PANICKED.fetch_add(1, Ordering::Relaxed);
        discard_payload(payload);
    }
}

/// Drops what a panic has left, which may panic as well.
#[cold]
pub(crate) fn discard_payload(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
}

/// Drops all of `values`, also where a `Drop` panics; then the first panic goes on. (A vector goes on as
/// well, but a second panic aborts the process.)
pub(crate) fn drop_each<T>(values: Vec<T>) {
    let mut first = None;
    for value in values {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            match first {
                None => first = Some(payload),
                Some(_) => {
                    PANICKED.fetch_add(1, Ordering::Relaxed);
                    discard_payload(payload);
                }
            }
        }
    }
    if let Some(payload) = first {
        resume_unwind(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Buf;

    struct Loud;

    impl Drop for Loud {
        fn drop(&mut self) {
            std::panic::panic_any(Louder);
        }
    }

    impl AsRef<[u8]> for Loud {
        fn as_ref(&self) -> &[u8] {
            b"loud"
        }
    }

    /// What the panic of a `Loud` carries.
    struct Louder;

    impl Drop for Louder {
        fn drop(&mut self) {
            panic!("the payload panics, too");
        }
    }

    #[test]
    fn a_panic_of_a_drop_ends_here() {
        let before = panicked_drops();
        discard(Loud);
        discard(Buf::from_owner(Loud));
        assert!(panicked_drops() >= before + 2);
    }

    /// A second panic while the first one unwinds would abort the process.
    #[test]
    fn all_parts_of_a_list_are_dropped() {
        let alive = std::sync::Arc::<[u8]>::from(*b"alive");
        let parts = || vec![Buf::from_owner(Loud), Buf::from_owner(Loud), alive.clone().into()];
        discard(Buf::list(parts()));
        let list = Buf::list(parts());
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(list)));
        mem::forget(panicked.expect_err("the first panic goes on"));
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    }
}
