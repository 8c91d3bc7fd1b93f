//! Lines.

use super::{Decoder, Error, Scan};

/// How lines end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// LF. A CR in front of it belongs to the line.
    Lf,
    /// CRLF. An LF without a CR in front of it is [`Error::BareLineFeed`]; a CR inside the line
    /// belongs to it.
    CrLf,
    /// LF or CRLF: one CR in front of the LF does not belong to the line.
    #[default]
    Either,
}

/// Lines up to a limit. A frame is a line without its ending.
///
/// ```
/// use windlass_serve::framing::{Ending, Error, Input, Lines};
/// let mut input = Input::new();
/// input.push("GET key\r\nQUIT\n");
/// let mut lines = Lines::with_ending(Ending::CrLf, 1024);
/// assert_eq!(&*input.next(&mut lines)?.unwrap(), b"GET key");
/// assert_eq!(input.next(&mut lines).unwrap_err(), Error::BareLineFeed);
///
/// let mut answer = Vec::new();
/// lines.encode(b"OK", &mut answer)?;
/// assert_eq!(answer, b"OK\r\n");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    ending: Ending,
    limit: usize,
    /// How many bytes of the line have come, and whether the last one is a CR.
    seen: usize,
    after_cr: bool,
}

impl Lines {
    /// Lines of at most `limit` bytes without their ending, that end with LF or CRLF.
    pub const fn new(limit: usize) -> Lines {
        Lines::with_ending(Ending::Either, limit)
    }

    /// Lines of at most `limit` bytes without their ending.
    pub const fn with_ending(ending: Ending, limit: usize) -> Lines {
        Lines { ending, limit, seen: 0, after_cr: false }
    }

    /// Appends `line` and its ending to `out`: CRLF for [`Ending::CrLf`], otherwise LF.
    ///
    /// # Errors
    /// `out` stays as it was.
    ///
    /// - [`Error::TooLong`]: the line is longer than the limit.
    /// - [`Error::ContainsEnd`]: it contains an LF, or it ends with a CR, which would count as a
    ///   part of the ending.
    pub fn encode(&self, line: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if line.len() > self.limit {
            return Err(Error::TooLong { limit: self.limit });
        }
        let ends_with_cr = self.ending == Ending::Either && line.ends_with(b"\r");
        if ends_with_cr || memchr::memchr(b'\n', line).is_some() {
            return Err(Error::ContainsEnd);
        }
        out.extend_from_slice(line);
        out.extend_from_slice(if self.ending == Ending::CrLf { b"\r\n" } else { b"\n" });
        Ok(())
    }

    /// Checks the length of a line of `before` bytes. `cr` says that the last of them is a CR.
    fn check(&self, before: usize, cr: bool) -> Result<(), Error> {
        // A CR at the end may belong to the ending.
        let least = before - usize::from(cr && self.ending != Ending::Lf);
        if least > self.limit { Err(Error::TooLong { limit: self.limit }) } else { Ok(()) }
    }
}

impl Decoder for Lines {
    type Error = Error;

    #[inline]
    fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let end = memchr::memchr(b'\n', bytes);
        let here = end.unwrap_or(bytes.len());
        let cr = if here == 0 { self.after_cr } else { bytes[here - 1] == b'\r' };
        let before = self.seen + here;
        self.check(before, cr)?;
        if end.is_none() {
            (self.seen, self.after_cr) = (before, cr);
            return Ok(Scan::More(1));
        }
        let carriage_return = match self.ending {
            Ending::Lf => 0,
            Ending::Either => usize::from(cr),
            Ending::CrLf if cr => 1,
            Ending::CrLf => return Err(Error::BareLineFeed),
        };
        (self.seen, self.after_cr) = (0, false);
        Ok(Scan::Frame { taken: here + 1, head: 0, trail: 1 + carriage_return })
    }

    #[inline]
    fn is_new(&self) -> bool {
        self.seen == 0
    }
}
