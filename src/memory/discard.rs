//! Drops values of the program: their `Drop` is foreign code, and may panic.
//!
//! A driver drops a program's value in few places: the closure of a job that never ran, the buffer
//! of a quiet write that succeeded, and the buffers, results and messages of a watcher that is
//! dropped. A panic there must not unwind through the driver: an operation would lose its
//! completion, or memory that the kernel uses could be freed. So this module catches and
//! [counts](panicked_drops) the panic, after the panic hook has reported it.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static PANICKED: AtomicU64 = AtomicU64::new(0);

/// The number of panics in this process from a `Drop` that a watcher or one of its threads had to
/// run: of the closure of a job that never ran, of a buffer's owner, of a message, of a job's
/// result. (The driver drops a buffer itself when a [quiet](crate::Op::quiet) write has succeeded,
/// or when it is dropped.) The panic hook reports such a panic, and the watcher catches it. The
/// number only grows.
///
/// ```
/// assert_eq!(windlass::driver::panicked_drops(), 0);
/// ```
pub fn panicked_drops() -> u64 {
    PANICKED.load(Ordering::Relaxed)
}

/// Drops a value of the program, and catches and [counts](panicked_drops) a panic of its `Drop`
/// (for authors of drivers).
///
/// ```
/// use windlass::driver::{discard, panicked_drops};
/// struct Loud;
/// impl Drop for Loud {
///     fn drop(&mut self) {
///         panic!("on purpose");
///     }
/// }
/// discard(Loud);
/// assert_eq!(panicked_drops(), 1);
/// ```
#[cold]
pub fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        PANICKED.fetch_add(1, Ordering::Relaxed);
        discard_payload(payload);
    }
}

/// Drops the payload of a caught panic, whose `Drop` may panic as well.
#[cold]
pub(crate) fn discard_payload(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
}

/// Drops all of `values`, even if a `Drop` panics, and then resumes the first panic. (A vector does
/// so too, but a second panic aborts the process.)
pub(crate) fn drop_each<T>(values: impl Iterator<Item = T>) {
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
    use crate::memory::buf::Buf;

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
    #[cfg_attr(miri, ignore = "payloads are forgotten on purpose, and Miri calls that a leak")]
    fn a_panic_of_a_drop_ends_here() {
        let before = panicked_drops();
        discard(Loud);
        discard(Buf::from_owner(Loud));
        assert!(panicked_drops() >= before + 2);
    }

    /// A second panic while the first one unwinds would abort the process.
    #[test]
    #[cfg_attr(miri, ignore = "payloads are forgotten on purpose, and Miri calls that a leak")]
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
