//! The search for the end of a section: of a head, or of trailers.
//!
//! # Why
//!
//! A section that arrives byte by byte must not be parsed at each byte. So the first parse of a
//! part is the last one until the end is there. The search remembers where it stopped, and looks at
//! each byte once. The end is found with bare LFs, too: then the parse refuses it at once, and the
//! peer does not wait for a limit of time.

use memchr::memchr_iter;

/// The end of a section: behind its first empty line. The bytes before `from` were searched before.
pub(crate) fn end_of_section(bytes: &[u8], from: usize) -> Option<usize> {
    work::add(bytes.len() - from);
    let mut ends = memchr_iter(b'\n', &bytes[from..]).map(|at| from + at);
    ends.find(|at| is_end_of_section(bytes, *at)).map(|at| at + 1)
}

/// Whether the LF here ends an empty line.
pub(crate) fn is_end_of_section(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    before.ends_with(b"\n") || before.ends_with(b"\n\r")
}

/// The end of a line: behind its LF. The bytes before `from` were searched before.
pub(crate) fn end_of_line(bytes: &[u8], from: usize) -> Option<usize> {
    work::add(bytes.len() - from);
    memchr::memchr(b'\n', &bytes[from..]).map(|at| from + at + 1)
}

/// Counts the bytes that are looked at, in tests.
pub(crate) mod work {
    #[cfg(test)]
    thread_local! {
        static BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[inline]
    #[cfg_attr(not(test), expect(unused_variables, reason = "only tests count"))]
    pub(crate) fn add(bytes: usize) {
        #[cfg(test)]
        BYTES.set(BYTES.get() + bytes);
    }

    /// The bytes since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> usize {
        BYTES.take()
    }
}
