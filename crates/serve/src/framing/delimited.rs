//! Frames that end with given bytes.

use super::{Decoder, Error, Scan};

/// Frames up to a limit that end with a delimiter of `N` bytes, 1 to 255. The first delimiter in
/// the bytes ends the frame. It is not part of the [`Frame`](super::Frame), except with
/// [`keep_delimiter`](Delimited::keep_delimiter).
///
/// ```
/// use windlass_serve::framing::{Delimited, Error, Input};
/// let mut input = Input::new();
/// input.push("Host: a\r\n\r");
/// let mut heads = Delimited::new(b"\r\n\r\n", 1024);
/// assert!(input.next(&mut heads)?.is_none());
/// input.push("\nbody");
/// assert_eq!(&*input.next(&mut heads)?.unwrap(), b"Host: a");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Delimited<const N: usize> {
    delimiter: [u8; N],
    /// For each length of a match: how many bytes of the delimiter still match when the byte behind
    /// does not (the failure function of Knuth, Morris and Pratt).
    shorter: [u8; N],
    limit: usize,
    /// How many bytes of the delimiter are left out of a frame: all or none.
    trail: usize,
    /// How many bytes of the frame have come, and how many of the last ones match the delimiter.
    seen: usize,
    matched: usize,
}

impl<const N: usize> Delimited<N> {
    /// Frames of at most `limit` bytes in front of `delimiter`.
    pub const fn new(delimiter: &[u8; N], limit: usize) -> Delimited<N> {
        const { assert!(N > 0 && N < 256, "a delimiter has 1 to 255 bytes") };
        let mut shorter = [0; N];
        let (mut matched, mut at) = (0, 1);
        while at < N {
            if delimiter[at] == delimiter[matched] {
                matched += 1;
                shorter[at] = matched as u8;
                at += 1;
            } else if matched > 0 {
                matched = shorter[matched - 1] as usize;
            } else {
                at += 1;
            }
        }
        Delimited { delimiter: *delimiter, shorter, limit, trail: N, seen: 0, matched: 0 }
    }

    /// Leaves the delimiter in each frame, for parsers that look for it: those of HTTP, for
    /// example. It still does not count for the limit.
    ///
    /// ```
    /// use windlass_serve::framing::{Delimited, Error, Input};
    /// let mut input = Input::new();
    /// input.push("Host: a\r\n\r\nbody");
    /// let mut heads = Delimited::new(b"\r\n\r\n", 1024).keep_delimiter();
    /// assert_eq!(&*input.next(&mut heads)?.unwrap(), b"Host: a\r\n\r\n");
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn keep_delimiter(mut self) -> Delimited<N> {
        self.trail = 0;
        self
    }

    /// Appends `frame`, which has no delimiter, and the delimiter to `out`.
    ///
    /// # Errors
    /// `out` stays as it was.
    ///
    /// - [`Error::TooLong`]: the frame is longer than the limit.
    /// - [`Error::ContainsEnd`]: the frame contains the delimiter, or ends with bytes that form a
    ///   delimiter together with the first bytes of the appended one.
    pub fn encode(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if frame.len() > self.limit {
            return Err(Error::TooLong { limit: self.limit });
        }
        let (at, matched) = self.find(0, frame);
        if matched == N {
            return Err(Error::ContainsEnd);
        }
        debug_assert_eq!(at, frame.len());
        if self.find(matched, &self.delimiter).0 < N {
            return Err(Error::ContainsEnd);
        }
        out.extend_from_slice(frame);
        out.extend_from_slice(&self.delimiter);
        Ok(())
    }

    /// Looks for the end of the delimiter, of which `matched` bytes stand in front of `bytes`.
    /// Returns how many bytes it has looked at, and how many bytes of the delimiter the last ones
    /// match: all of them, or it has looked at all bytes.
    #[inline]
    fn find(&self, mut matched: usize, bytes: &[u8]) -> (usize, usize) {
        let mut at = 0;
        while at < bytes.len() {
            if matched == 0 {
                let Some(skipped) = memchr::memchr(self.delimiter[0], &bytes[at..]) else {
                    return (bytes.len(), 0);
                };
                at += skipped;
                matched = 1;
            } else {
                while matched > 0 && self.delimiter[matched] != bytes[at] {
                    matched = self.shorter[matched - 1].into();
                }
                matched += usize::from(self.delimiter[matched] == bytes[at]);
            }
            at += 1;
            if matched == N {
                break;
            }
        }
        (at, matched)
    }
}

impl<const N: usize> Decoder for Delimited<N> {
    type Error = Error;

    #[inline]
    fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let (at, matched) = self.find(self.matched, bytes);
        let seen = self.seen + at;
        // The frame has at least these bytes. The matching ones may belong to the delimiter.
        if seen - matched > self.limit {
            return Err(Error::TooLong { limit: self.limit });
        }
        if matched < N {
            (self.seen, self.matched) = (seen, matched);
            return Ok(Scan::More(N - matched));
        }
        (self.seen, self.matched) = (0, 0);
        Ok(Scan::Frame { taken: at, head: 0, trail: self.trail })
    }

    #[inline]
    fn is_new(&self) -> bool {
        self.seen == 0
    }
}
