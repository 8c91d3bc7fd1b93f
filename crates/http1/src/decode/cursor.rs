//! Where a decoder is in a message, and the way through a body. Both roles share it.
//!
//! # Why
//!
//! A connection that is idle keeps a cursor and nothing else: 32 bytes. The table of fields and the
//! limits are those of the thread.

use memchr::memchr_iter;

use super::chunk::{self, SizeLine};
use super::{Event, Step};
use crate::error::Rule;
use crate::head::field_rule;
use crate::head::fields::{Fields, is_no_trailer};
use crate::limits::Limits;
use crate::scan::{end_of_line, end_of_section, is_end_of_section, work};
use crate::words::Framing;

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Head,
    /// A body with a length.
    Length,
    /// The line in front of a chunk.
    Size,
    /// The data of a chunk.
    Data,
    /// CR LF behind the data.
    DataEnd,
    /// Trailers, or the empty line in their place.
    Trailers,
    /// A body that ends with the connection.
    UntilClose,
    /// The event `End`, then the next head.
    Ended,
    /// The event `End`, then no more.
    Last,
    Closed,
    Refused(Rule),
}

#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Bytes of the body or of the chunk that have not come.
    left: u64,
    /// Bytes that a body without a length may still have.
    room: u64,
    /// So many bytes, from the first that is not consumed, were searched for an end.
    searched: u32,
    /// The sum of extensions of the body, or of 1xx in front of the response.
    spent: u32,
    pub(super) stage: Stage,
    /// Whether a further message follows this one.
    is_last: bool,
    /// Whether the first line of the head has ended.
    has_line: bool,
    /// Whether an empty line in front of the head was skipped.
    pub(super) has_skipped: bool,
}

impl Cursor {
    pub(super) const START: Cursor = Cursor {
        left: 0,
        room: 0,
        searched: 0,
        spent: 0,
        stage: Stage::Head,
        is_last: false,
        has_line: false,
        has_skipped: false,
    };

    /// Whether the bytes of this head have not been parsed yet.
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        self.searched == 0
    }

    /// The end of the head that begins at `start`, once it is there. The search goes on where it
    /// stopped.
    pub(super) fn find_head(
        &mut self,
        limits: &Limits,
        bytes: &[u8],
        start: usize,
    ) -> Result<Option<usize>, Rule> {
        let most = limits.head as usize;
        let window = &bytes[start..];
        let window = &window[..window.len().min(most)];
        let from = self.searched_of(window);
        work::add(window.len() - from);
        for at in memchr_iter(b'\n', &window[from..]).map(|at| from + at) {
            if !self.has_line && at > longest_line(limits) {
                return Err(Rule::LineTooLong);
            }
            self.has_line = true;
            if is_end_of_section(window, at) {
                return Ok(Some(start + at + 1));
            }
        }
        self.searched(limits, window.len())?;
        Ok(None)
    }

    /// A first parse came to the end of the bytes without an error, so that the end is not there.
    pub(super) fn has_part(
        &mut self,
        limits: &Limits,
        len: usize,
        line_end: Option<usize>,
    ) -> Result<(), Rule> {
        if line_end.is_some_and(|at| at > longest_line(limits)) {
            return Err(Rule::LineTooLong);
        }
        self.has_line = line_end.is_some();
        self.searched(limits, len)
    }

    /// How many of these bytes were searched. All of them, if the caller has fewer than before.
    fn searched_of(&self, window: &[u8]) -> usize {
        window.len().min(self.searched as usize)
    }

    /// There is no end in the first `len` bytes of a head.
    fn searched(&mut self, limits: &Limits, len: usize) -> Result<(), Rule> {
        self.searched = len as u32;
        match () {
            () if !self.has_line && len > longest_line(limits) => Err(Rule::LineTooLong),
            () if len == limits.head as usize => Err(Rule::HeadTooLong),
            () => Ok(()),
        }
    }

    /// Goes on behind a head.
    #[inline]
    pub(super) fn begin(&mut self, framing: Framing, limits: &Limits, is_last: bool) {
        *self = Cursor { is_last, ..Cursor::START };
        self.stage = match framing {
            Framing::Empty if is_last => Stage::Last,
            Framing::Empty => Stage::Ended,
            Framing::Tunnel => Stage::Last,
            Framing::Length(length) => {
                self.left = length;
                Stage::Length
            }
            Framing::Chunked => {
                self.room = limits.body;
                Stage::Size
            }
            Framing::UntilClose => {
                self.room = limits.body;
                Stage::UntilClose
            }
        };
    }

    /// Goes on behind the head of a 1xx: the next head is for the same request.
    pub(super) fn begin_again(&mut self, limits: &Limits, len: usize) -> Result<(), Rule> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        *self = Cursor { spent: self.spent.saturating_add(len), ..Cursor::START };
        if self.spent > limits.interim { Err(Rule::InterimTooLong) } else { Ok(()) }
    }

    /// Sets the most bytes that are still to come of this body.
    pub(super) fn limit_body(&mut self, most: u64) -> Result<(), Rule> {
        self.room = most;
        if self.stage == Stage::Length && self.left > most {
            return Err(Rule::BodyTooLong);
        }
        Ok(())
    }

    /// How many bytes of a body have not come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self.stage {
            Stage::Length => Some(self.left),
            Stage::Head | Stage::Ended | Stage::Last | Stage::Closed => Some(0),
            _ => None,
        }
    }

    fn ended(&self) -> Stage {
        if self.is_last { Stage::Last } else { Stage::Ended }
    }

    /// The next event behind a head.
    pub(super) fn body(
        &mut self,
        limits: &Limits,
        fields: &mut Fields,
        input: &[u8],
    ) -> Result<Step, Rule> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.stage {
                Stage::Length | Stage::Data => {
                    let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                    if len == 0 {
                        break;
                    }
                    self.left -= len as u64;
                    if self.left == 0 {
                        let is_chunk = self.stage == Stage::Data;
                        self.stage = if is_chunk { Stage::DataEnd } else { self.ended() };
                    }
                    return Ok(Step::new(used + len, Event::Body(used..used + len)));
                }
                Stage::Size => match self.size_line(limits, rest)? {
                    Some(len) => used += len,
                    None => break,
                },
                Stage::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        used += 2;
                        self.stage = Stage::Size;
                    }
                    [] | [b'\r'] => break,
                    _ => return Err(Rule::ChunkEnd),
                },
                Stage::Trailers => match self.trailers(limits, fields, input, used)? {
                    Some(end) => {
                        let has_some = end > used + 2;
                        used = end;
                        self.stage = self.ended();
                        if has_some {
                            return Ok(Step::new(used, Event::Trailers));
                        }
                    }
                    None => break,
                },
                Stage::UntilClose if rest.is_empty() => break,
                Stage::UntilClose if self.room == 0 => return Err(Rule::BodyTooLong),
                // What fits comes before the error, as it does if it arrives before.
                Stage::UntilClose => {
                    let len = usize::try_from(self.room).unwrap_or(usize::MAX).min(rest.len());
                    self.room -= len as u64;
                    return Ok(Step::new(len, Event::Body(0..len)));
                }
                Stage::Ended => {
                    *self = Cursor::START;
                    return Ok(Step::new(used, Event::End));
                }
                Stage::Last => {
                    self.stage = Stage::Closed;
                    return Ok(Step::new(used, Event::End));
                }
                Stage::Closed => return Ok(Step::new(used, Event::Closed)),
                Stage::Refused(rule) => return Err(rule),
                Stage::Head => break,
            }
        }
        Ok(Step::new(used, Event::NeedMore))
    }

    /// Reads the line in front of a chunk, once it is whole, and returns its length.
    fn size_line(&mut self, limits: &Limits, rest: &[u8]) -> Result<Option<usize>, Rule> {
        let most = limits.chunk_line as usize;
        let window = &rest[..rest.len().min(most.saturating_add(2))];
        let Some(end) = end_of_line(window, self.searched_of(window)) else {
            if window.len() > most + 1 {
                return Err(Rule::ChunkLineTooLong);
            }
            self.searched = window.len() as u32;
            return Ok(None);
        };
        self.searched = 0;
        let SizeLine { size, extensions } = chunk::size_line(&window[..end])?;
        // Signatures of chunks are extensions, one for so much data, and a body has any number.
        let excess = u64::from(extensions).saturating_sub(size) as u32;
        self.spent = self.spent.saturating_add(excess);
        if self.spent > limits.extensions {
            return Err(Rule::ExtensionsTooLong);
        }
        self.room = self.room.checked_sub(size).ok_or(Rule::BodyTooLong)?;
        self.left = size;
        self.stage = if size == 0 { Stage::Trailers } else { Stage::Data };
        Ok(Some(end))
    }

    /// Reads the trailers that begin at `start`, once they are whole, and returns their end.
    fn trailers(
        &mut self,
        limits: &Limits,
        fields: &mut Fields,
        input: &[u8],
        start: usize,
    ) -> Result<Option<usize>, Rule> {
        match &input[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => return Ok(Some(start + 2)),
            [b'\r' | b'\n', ..] => return Err(Rule::LineEnd),
            _ => {}
        }
        let most = limits.trailers as usize;
        let window = &input[start..];
        let window = &window[..window.len().min(most)];
        let Some(len) = end_of_section(window, self.searched_of(window)) else {
            if window.len() == most {
                return Err(Rule::TrailersTooLong);
            }
            self.searched = window.len() as u32;
            return Ok(None);
        };
        self.searched = 0;
        store_trailers(fields, &input[..start + len], start)?;
        Ok(Some(start + len))
    }

    /// The end of the input, when all of it was decoded but the last `rest` bytes.
    pub(super) fn finish(&mut self, rest: &[u8]) -> Result<Event, Rule> {
        match self.stage {
            Stage::Head if rest.is_empty() => self.stage = Stage::Closed,
            Stage::Head => return Err(Rule::HeadTruncated),
            Stage::UntilClose | Stage::Ended | Stage::Last => {
                self.stage = Stage::Closed;
                return Ok(Event::End);
            }
            Stage::Closed => {}
            Stage::Refused(rule) => return Err(rule),
            _ => return Err(Rule::BodyTruncated),
        }
        Ok(Event::Closed)
    }
}

/// The last place for the LF of a first line: behind the longest one, and a CR.
fn longest_line(limits: &Limits) -> usize {
    (limits.line as usize).saturating_add(1)
}

/// Parses the trailers from `start` to the end of the bytes.
fn store_trailers(fields: &mut Fields, bytes: &[u8], start: usize) -> Result<(), Rule> {
    let mut found = [httparse::EMPTY_HEADER; Limits::MOST_FIELDS as usize];
    let section = &bytes[start..];
    work::add(section.len());
    let found = match httparse::parse_headers(section, &mut found[..fields.most()]) {
        Ok(httparse::Status::Complete((_, found))) => found,
        Ok(httparse::Status::Partial) => return Err(Rule::LineEnd),
        // In front of the first line is the end of a line, for the search for folded lines.
        Err(_) if section.starts_with(b" ") || section.starts_with(b"\t") => {
            return Err(Rule::Folded);
        }
        Err(error) => return Err(field_rule(error, section)),
    };
    if found.iter().any(|field| is_no_trailer(field.name.as_bytes())) {
        return Err(Rule::TrailerForbidden);
    }
    fields.store(bytes, found, |_, _, _| Ok(()))
}
