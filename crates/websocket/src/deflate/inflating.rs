//! A message that is inflated.
//!
//! # Why
//! One state serves every window: zlib keeps 2^15 bytes whatever the size is, and a smaller window
//! would only refuse what refers too far back. zlib-rs sets it to 2^15 at each reset in any case.

use std::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use super::Window;
use crate::error::{Error, Rule};

/// The most bytes that one call makes of a message in parts.
pub(super) const MOST_MADE: usize = 64 << 10;

/// Bytes that are made at once, before they are appended.
const AT_ONCE: usize = 16 << 10;

/// What stands behind a payload: the rest of its last block, which RFC 7692, section 7.2.2, leaves
/// to the receiver, and a last block that is empty. A payload whose own blocks are whole reaches
/// the end of it, and gets nothing out of it.
const TAIL: [u8; 9] = [0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff];

/// Last blocks that a message may have in front of its end, and bytes of payload for each further
/// one: the work behind one is that of 32 KiB of text.
const LAST_BLOCKS: u64 = 8;
const BYTES_PER_LAST_BLOCK: u64 = 256;

/// Text that the ratio allows whatever the payload is.
const FREE_OF_RATIO: u64 = 64 << 10;

/// How much a compressed message may become.
///
/// ```
/// use windlass_websocket::deflate::InflateCaps;
///
/// let caps = InflateCaps { bytes: 64 << 10, ..InflateCaps::default() };
/// assert_eq!(caps.ratio, u32::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InflateCaps {
    /// Bytes of the text. The default is 1 MiB.
    pub bytes: u64,
    /// Bytes of the text for each byte of the payload. The first 64 KiB of a text are free of it.
    /// There is none by default: the format itself has 1032 at most.
    pub ratio: u32,
}

impl Default for InflateCaps {
    fn default() -> InflateCaps {
        InflateCaps { bytes: 1 << 20, ratio: u32::MAX }
    }
}

impl InflateCaps {
    /// How many bytes the text of so many bytes of payload may have.
    fn of(self, payload: u64) -> u64 {
        self.bytes.min(payload.saturating_mul(u64::from(self.ratio)).max(FREE_OF_RATIO))
    }
}

/// Why a message cannot be inflated. The connection ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InflateError {
    /// The text is longer than its caps: close code 1009.
    TooLong,
    /// The payload is no compressed message, is cut, refers to what is not there, or has last
    /// blocks without number: close code 1007.
    Invalid,
}

impl From<InflateError> for Error {
    fn from(error: InflateError) -> Error {
        Error::from(match error {
            InflateError::TooLong => Rule::MessageLength,
            InflateError::Invalid => Rule::Deflate,
        })
    }
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl std::error::Error for InflateError {}

/// A state of zlib, and where it stands in a message.
pub(super) struct Inflating {
    inflate: Inflate,
    made: Box<[u8]>,
    caps: InflateCaps,
    /// Bytes of the payload and of the text, so far.
    bytes_in: u64,
    bytes_out: u64,
    last_blocks: u64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the payload, or in front of it.
    Payload,
    /// Behind a last block.
    LastBlock,
    /// In what stands behind the payload.
    Tail,
    End,
}

/// Why it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The input is used up.
    Input,
    /// So many bytes were made as there may be.
    Room,
    /// A last block has ended in front of the message's end. It goes on behind
    /// [`restart`](Inflating::restart).
    LastBlock,
    /// The message has ended.
    End,
}

impl Inflating {
    pub(super) fn new() -> Inflating {
        Inflating {
            inflate: Inflate::new(false, Window::MAX.bits()),
            made: vec![0; AT_ONCE].into(),
            caps: InflateCaps::default(),
            bytes_in: 0,
            bytes_out: 0,
            last_blocks: 0,
            place: Place::Payload,
        }
    }

    /// Begins a message that refers to these bytes.
    pub(super) fn begin(&mut self, caps: InflateCaps, context: [&[u8]; 2]) {
        self.caps = caps;
        (self.bytes_in, self.bytes_out, self.last_blocks) = (0, 0, 0);
        self.prime(&context);
    }

    /// Goes on behind a last block: the window stays, which these bytes are.
    pub(super) fn restart(&mut self, context: &[&[u8]]) -> Result<(), InflateError> {
        self.last_blocks += 1;
        if self.last_blocks > LAST_BLOCKS + self.bytes_in / BYTES_PER_LAST_BLOCK {
            return Err(InflateError::Invalid);
        }
        self.prime(context);
        Ok(())
    }

    fn prime(&mut self, context: &[&[u8]]) {
        self.inflate.reset(false);
        for part in context {
            // It fails for a format with a head only.
            let _ = self.inflate.set_dictionary(part);
        }
        self.place = Place::Payload;
    }

    /// Inflates some of `input`, which is the end of the message or not, and appends at most
    /// `room` bytes. Says how much of the input is consumed.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        is_last: bool,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Stop), InflateError> {
        let allowed = self.caps.of(self.bytes_in + input.len() as u64);
        let (mut at, mut left) = (0, room);
        loop {
            let rest = &input[at..];
            match self.place {
                Place::End => return Ok((at, Stop::End)),
                Place::LastBlock if !rest.is_empty() => return Ok((at, Stop::LastBlock)),
                Place::LastBlock if is_last => self.place = Place::End,
                Place::LastBlock => return Ok((at, Stop::Input)),
                Place::Tail => self.finish()?,
                Place::Payload if left == 0 => return Ok((at, Stop::Room)),
                Place::Payload => {
                    let (consumed, made) = self.step(rest, left, allowed, out)?;
                    (at, left) = (at + consumed, left - made);
                    let is_stuck = consumed == 0 && made == 0;
                    if self.place != Place::Payload || at < input.len() && !is_stuck {
                        continue;
                    }
                    if at < input.len() {
                        return Err(InflateError::Invalid);
                    }
                    // Room that is left says that nothing waits for room.
                    if left > 0 && made < AT_ONCE {
                        if !is_last {
                            return Ok((at, Stop::Input));
                        }
                        // Some peers send an empty message so.
                        let is_empty = self.bytes_in == 0;
                        self.place = if is_empty { Place::End } else { Place::Tail };
                    }
                }
            }
        }
    }

    /// One call: returns how many bytes it consumed, and made.
    fn step(
        &mut self,
        input: &[u8],
        room: usize,
        allowed: u64,
        out: &mut Vec<u8>,
    ) -> Result<(usize, usize), InflateError> {
        // One byte more than there may be tells that it is too long.
        let left = allowed.saturating_sub(self.bytes_out);
        let most = left.saturating_add(1).min(room.min(AT_ONCE) as u64) as usize;
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let made = &mut self.made[..most];
        let status = self.inflate.decompress(input, made, InflateFlush::NoFlush);
        let status = status.map_err(|_| InflateError::Invalid)?;
        let consumed = self.inflate.total_in() - before.0;
        let count = self.inflate.total_out() - before.1;
        self.bytes_in += consumed;
        self.bytes_out += count;
        if count > left {
            return Err(InflateError::TooLong);
        }
        if status == Status::StreamEnd {
            self.place = Place::LastBlock;
        }
        append(out, &self.made[..count as usize], left as usize);
        Ok((consumed as usize, count as usize))
    }

    /// The payload has ended. Its blocks have to be whole.
    fn finish(&mut self) -> Result<(), InflateError> {
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(&TAIL, &mut self.made, InflateFlush::NoFlush);
        let consumed = (self.inflate.total_in() - before.0) as usize;
        let is_end = status == Ok(Status::StreamEnd) && consumed == TAIL.len();
        if !is_end || self.inflate.total_out() != before.1 {
            return Err(InflateError::Invalid);
        }
        self.place = Place::End;
        Ok(())
    }
}

/// Appends bytes to what grows by steps, but not to more than `most` bytes from here.
fn append(out: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let free = out.capacity() - out.len();
    if free < bytes.len() {
        let more = out.len().max(AT_ONCE).min(most).max(bytes.len());
        out.reserve_exact(more);
    }
    out.extend_from_slice(bytes);
}
