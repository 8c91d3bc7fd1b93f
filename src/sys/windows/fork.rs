//! There is no fork here.

/// Nothing to count.
pub(crate) fn watch() {}

/// How many forks lie between the first process and this one: none.
#[inline]
pub(crate) fn generation() -> u32 {
    0
}

/// How many forks this process has seen: none.
#[inline]
pub(crate) fn events() -> u32 {
    0
}

/// For tests: there is no child to say anything.
#[cfg(test)]
pub(crate) fn said_by_a_child(_: impl FnOnce() -> bool) -> Option<bool> {
    None
}
