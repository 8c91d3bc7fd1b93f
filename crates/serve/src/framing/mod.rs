//! Frames in a stream of bytes: lines, delimiters, length prefixes, and formats of your own.
//!
//! TCP carries bytes, not messages: one read brings half a message, another one three and a half.
//! An [`Input`] takes what the reads deliver, and keeps what no frame has consumed. A [`Decoder`]
//! finds the frames in it. Neither does I/O.
//!
//! ```
//! use windlass_serve::framing::{Input, Lines};
//!
//! let mut input = Input::new();
//! let mut lines = Lines::new(8 << 10);
//! let mut heard = Vec::new();
//! for part in ["PI", "NG\r\nPING\nP", "ING\n"] {
//!     input.push(part);
//!     while let Some(line) = input.next(&mut lines)? {
//!         heard.push(line.to_vec());
//!     }
//! }
//! assert_eq!(heard, [b"PING", b"PING", b"PING"]);
//! assert!(input.is_empty());
//! # Ok::<(), windlass_serve::framing::Error>(())
//! ```
//!
//! | decoder | a frame |
//! |---|---|
//! | [`Lines`] | ends with LF, CRLF, or either |
//! | [`Delimited`] | ends with bytes of your choice |
//! | [`Prefixed`] | has its length in front: 1 to 8 bytes in either order, or a varint |
//!
//! Each of them has a limit for the length of a frame. Decoding allocates nothing. Each has an
//! `encode` that writes the same format. The frames and the error do not depend on how the bytes
//! are split into pieces. What is no frame, such as a body whose length the program knows, comes
//! out by [`Input::take`].
//!
//! # Copies
//!
//! A frame within one lease is a part of this lease: [`Frame::into_buf`] copies nothing. A frame in
//! several pieces is assembled in memory of its own, which copies each of its bytes once. Adjacent
//! leases are joined first, and then nothing is copied.
//! [`Input::copied_bytes`] counts the copies.
//!
//! # Memory
//!
//! An input keeps at most an incomplete frame, which the limit of its decoder bounds. With
//! [`Input::charge_to`], it charges what it keeps to its connection, so that the limits of the
//! server hold for all inputs together.

mod delimited;
mod input;
mod length;
mod lines;
#[cfg(test)]
mod tests;

use std::fmt;

pub use delimited::Delimited;
pub use input::{Frame, Input};
pub use length::{Head, Prefix, Prefixed};
pub use lines::{Ending, Lines};

/// Finds the end of a frame in bytes that arrive in pieces.
///
/// A decoder sees each byte of a frame once, and keeps its own state between calls. So the work
/// does not grow with the number of pieces. Keep it beside the [`Input`]. A format of your own
/// implements this trait:
///
/// ```
/// use windlass_serve::framing::{Decoder, Input, Scan};
///
/// /// Frames of three bytes.
/// #[derive(Default)]
/// struct Triples {
///     seen: usize,
/// }
///
/// impl Decoder for Triples {
///     type Error = std::convert::Infallible;
///
///     fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Self::Error> {
///         let missing = 3 - self.seen;
///         if bytes.len() < missing {
///             self.seen += bytes.len();
///             return Ok(Scan::More(missing - bytes.len()));
///         }
///         self.seen = 0;
///         Ok(Scan::Frame { taken: missing, head: 0, trail: 0 })
///     }
/// }
///
/// let mut input = Input::new();
/// input.push("abcd");
/// let mut triples = Triples::default();
/// assert_eq!(&*input.next(&mut triples)?.unwrap(), b"abc");
/// assert!(input.next(&mut triples)?.is_none());
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub trait Decoder {
    /// Why the bytes are not of this format.
    type Error;

    /// Looks at `bytes`, which follow those of the last call, and are never empty.
    ///
    /// # Errors
    /// The bytes are not of this format. The decoder stays as it was: the same bytes yield the same
    /// error again.
    fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Self::Error>;

    /// Whether it has seen no byte of the next frame, as one that was just made. If the input has
    /// shown a part of this frame to another decoder, it shows that part again to a new one.
    ///
    /// The default says false: a program that uses several such decoders for one frame gets wrong
    /// frames.
    fn is_new(&self) -> bool {
        false
    }
}

/// The result of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The frame continues behind these bytes, for at least so many bytes: 1 if the decoder does
    /// not know. The next call gets the bytes that follow.
    More(usize),
    /// A frame ends here. The next call gets the first bytes of the next frame.
    Frame {
        /// How many bytes of this call belong to the frame: at least 1, at most all.
        taken: usize,
        /// How many bytes at the start of the frame [`Frame`] leaves out: the length prefix.
        head: usize,
        /// How many bytes at the end of the frame [`Frame`] leaves out: the delimiter.
        trail: usize,
    },
}

/// Why bytes are no frame of the format, or cannot become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The frame has more than `limit` bytes; its prefix and its delimiter do not count.
    TooLong {
        /// The limit of the decoder, in bytes.
        limit: usize,
    },
    /// The prefix announces `length` bytes, which are more than `limit`.
    LengthOverLimit {
        /// The length that the prefix says, in bytes.
        length: u64,
        /// The limit of the decoder, in bytes.
        limit: usize,
    },
    /// A varint has more than ten bytes, or a value of more than 64 bits.
    VarintOverflow,
    /// A line ends with LF alone, and [`Ending::CrLf`] demands CRLF.
    BareLineFeed,
    /// The bytes to encode contain the end of a frame, or form one with the delimiter.
    ContainsEnd,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLong { limit } => write!(f, "a frame is longer than {limit} bytes"),
            Error::LengthOverLimit { length, limit } => {
                write!(f, "a frame of {length} bytes is announced, at most {limit} are accepted")
            }
            Error::VarintOverflow => f.write_str("the varint of a length has more than 64 bits"),
            Error::BareLineFeed => f.write_str("a line ends with LF alone instead of CRLF"),
            Error::ContainsEnd => f.write_str("the bytes of a frame contain the end of a frame"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}
