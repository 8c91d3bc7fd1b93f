//! Frames with their length in front.

use std::fmt;
use std::ops::Deref;

use super::{Decoder, Error, Scan};

/// How a length is written in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// One byte.
    U8,
    /// Two bytes, the most significant one first.
    U16Be,
    /// Two bytes, the least significant one first.
    U16Le,
    /// Three bytes, the most significant one first.
    U24Be,
    /// Three bytes, the least significant one first.
    U24Le,
    /// Four bytes, the most significant one first.
    U32Be,
    /// Four bytes, the least significant one first.
    U32Le,
    /// Eight bytes, the most significant one first.
    U64Be,
    /// Eight bytes, the least significant one first.
    U64Le,
    /// One to ten bytes with seven bits each, the least significant ones first; all bytes but the
    /// last have their high bit set (LEB128, as in Protocol Buffers). Superfluous zero bytes at the
    /// end are accepted.
    Varint,
}

impl Prefix {
    /// The number of bytes; 0 for a varint.
    const fn width(self) -> u8 {
        match self {
            Prefix::U8 => 1,
            Prefix::U16Be | Prefix::U16Le => 2,
            Prefix::U24Be | Prefix::U24Le => 3,
            Prefix::U32Be | Prefix::U32Le => 4,
            Prefix::U64Be | Prefix::U64Le => 8,
            Prefix::Varint => 0,
        }
    }

    const fn is_little_endian(self) -> bool {
        matches!(self, Prefix::U16Le | Prefix::U24Le | Prefix::U32Le | Prefix::U64Le)
    }

    /// The largest length that can be written.
    const fn most(self) -> u64 {
        match self.width() {
            0 | 8 => u64::MAX,
            width => (1 << (8 * width)) - 1,
        }
    }
}

/// Frames up to a limit with their length in front. The length counts the bytes behind the prefix,
/// and the frame that is handed out has no prefix.
///
/// ```
/// use windlass_serve::framing::{Error, Input, Prefix, Prefixed};
/// let mut frames = Prefixed::new(Prefix::U32Be, 1 << 20);
/// let mut bytes = Vec::new();
/// frames.encode(b"hello", &mut bytes)?;
/// assert_eq!(bytes, b"\0\0\0\x05hello");
///
/// let mut input = Input::new();
/// input.push(bytes);
/// assert_eq!(&*input.next(&mut frames)?.unwrap(), b"hello");
/// input.push([0xFF; 4].to_vec());
/// let error = Error::LengthOverLimit { length: u32::MAX.into(), limit: 1 << 20 };
/// assert_eq!(input.next(&mut frames).unwrap_err(), error);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prefixed {
    limit: usize,
    /// While the prefix arrives, its value so far; then how many bytes of the frame are missing.
    value: u64,
    prefix: Prefix,
    /// How many bytes of the prefix have come.
    seen: u8,
    in_body: bool,
}

impl Prefixed {
    /// Frames of at most `limit` bytes behind their prefix. A limit above the largest value of the
    /// prefix counts as that value.
    pub const fn new(prefix: Prefix, limit: usize) -> Prefixed {
        let most = prefix.most();
        let limit = if limit as u64 > most { most as usize } else { limit };
        Prefixed { limit, value: 0, prefix, seen: 0, in_body: false }
    }

    /// The largest frame that is accepted, in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The prefix of a frame of `length` bytes, to write in front of a buffer that is not copied.
    ///
    /// # Errors
    /// [`Error::TooLong`]: the length is over the limit.
    pub fn head(&self, length: usize) -> Result<Head, Error> {
        if length > self.limit {
            return Err(Error::TooLong { limit: self.limit });
        }
        let mut head = Head { bytes: [0; 10], len: 0 };
        let mut rest = length as u64;
        let width = self.prefix.width();
        if width == 0 {
            while rest >= 0x80 {
                head.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            head.push(rest as u8);
        } else if self.prefix.is_little_endian() {
            rest.to_le_bytes()[..width.into()].iter().for_each(|&byte| head.push(byte));
        } else {
            rest.to_be_bytes()[8 - usize::from(width)..].iter().for_each(|&byte| head.push(byte));
        }
        Ok(head)
    }

    /// Appends `frame` with its length in front to `out`.
    ///
    /// # Errors
    /// [`Error::TooLong`]: the frame is longer than the limit. `out` stays as it was.
    pub fn encode(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(&self.head(frame.len())?);
        out.extend_from_slice(frame);
        Ok(())
    }

    /// Takes in a byte of the prefix. Returns whether it was the last one.
    fn take(&mut self, byte: u8) -> Result<bool, Error> {
        let (width, at) = (self.prefix.width(), u32::from(self.seen));
        self.seen += 1;
        if width == 0 {
            // The tenth byte holds the 64th bit alone.
            if at == 9 && byte > 1 {
                return Err(Error::VarintOverflow);
            }
            self.value |= u64::from(byte & 0x7F) << (7 * at);
            return Ok(byte < 0x80);
        }
        self.value = if self.prefix.is_little_endian() {
            self.value | u64::from(byte) << (8 * at)
        } else {
            self.value << 8 | u64::from(byte)
        };
        Ok(self.seen == width)
    }

    /// As `scan`, but a failure changes the decoder, too.
    fn advance(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let mut at = 0;
        while !self.in_body {
            let Some(&byte) = bytes.get(at) else {
                let missing = self.prefix.width().saturating_sub(self.seen).max(1);
                return Ok(Scan::More(missing.into()));
            };
            at += 1;
            self.in_body = self.take(byte)?;
            if self.in_body && self.value > self.limit as u64 {
                return Err(Error::LengthOverLimit { length: self.value, limit: self.limit });
            }
        }
        // At most the limit, which is a usize.
        let (missing, here) = (self.value as usize, bytes.len() - at);
        if here < missing {
            self.value -= here as u64;
            return Ok(Scan::More(missing - here));
        }
        let head = self.seen.into();
        *self = Prefixed::new(self.prefix, self.limit);
        Ok(Scan::Frame { taken: at + missing, head, trail: 0 })
    }
}

impl Decoder for Prefixed {
    type Error = Error;

    #[inline]
    fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Error> {
        let mut next = self.clone();
        let found = next.advance(bytes)?;
        *self = next;
        Ok(found)
    }

    #[inline]
    fn is_new(&self) -> bool {
        self.seen == 0
    }
}

/// The bytes of a length prefix, as [`Prefixed::head`] makes them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; 10],
    len: u8,
}

impl Head {
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }
}

impl Deref for Head {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Head").field(&&**self).finish()
    }
}
