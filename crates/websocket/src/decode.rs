//! Frames that come.

use std::ops::Range;

use crate::close::CloseCode;
use crate::error::{Error, Rule};
use crate::limits::Limits;
use crate::mask::mask;
use crate::utf8::Utf8;
use crate::words::{Kind, Opcode, Role};

/// What has come.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Nothing yet. The next call gets the bytes that are not consumed again, with more behind
    /// them. These are at most 130 bytes: the head of a frame, or a control frame without its last
    /// byte.
    NeedMore,
    /// A part of a message. The offsets are those of its bytes, without the mask.
    Data {
        /// What the message is.
        kind: Kind,
        /// The bytes of this part.
        payload: Range<usize>,
        /// Whether the message is compressed. The decoder has not checked its text then.
        is_compressed: bool,
        /// Whether the message begins here.
        is_first: bool,
        /// Whether the message ends here.
        is_last: bool,
    },
    /// A ping, with its bytes, at most 125. A pong with the same bytes answers it.
    Ping(Range<usize>),
    /// A pong, with its bytes, at most 125.
    Pong(Range<usize>),
    /// A close frame: the peer sends no more. The code, which may be missing, and the reason, which
    /// is UTF-8 of at most 123 bytes.
    Close(Option<CloseCode>, Range<usize>),
    /// The peer has sent a close frame, and nothing behind it counts.
    Closed,
}

/// What a call of [`Decoder::decode`] has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// How many bytes are done with, from the start of those that were given. The offsets of the
    /// event are within them.
    pub consumed: usize,
    /// What they were.
    pub event: Event,
}

/// The input of one side of a connection, in 40 bytes.
///
/// Every cut of the same bytes gives the same events, but for the cuts within a message.
///
/// ```
/// use windlass_websocket::{Decoder, Event, Kind, Limits, Role};
///
/// let (mut decoder, limits) = (Decoder::new(Role::Client), Limits::default());
/// let mut bytes = *b"\x81\x05Hel"; // two bytes are missing
/// let step = decoder.decode(&limits, &mut bytes).unwrap();
/// let event = Event::Data {
///     kind: Kind::Text,
///     payload: 2..5,
///     is_compressed: false,
///     is_first: true,
///     is_last: false,
/// };
/// assert_eq!((step.consumed, step.event, decoder.left()), (5, event, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    role: Role,
    /// Whether messages may be compressed.
    deflates: bool,
    state: State,
    /// The message that is begun.
    message: Option<Kind>,
    is_compressed: bool,
    /// Whether a part of the message was told.
    is_told: bool,
    /// Whether the frame is the last one of its message.
    is_last: bool,
    /// What the last bytes of the frame's mask are, in the order of its next bytes.
    key: Option<[u8; 4]>,
    utf8: Utf8,
    /// Bytes of the frame that are not there yet.
    left: u64,
    /// Bytes of the message so far, and the whole frame.
    bytes: u64,
    frames: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Payload,
    Closed,
    Failed(Error),
}

/// A frame that begins.
struct Head {
    opcode: Opcode,
    is_last: bool,
    is_compressed: bool,
    /// Bytes of the head.
    size: usize,
    /// Bytes of the frame behind the head.
    len: u64,
    key: Option<[u8; 4]>,
}

impl Decoder {
    /// The input of this side.
    pub const fn new(role: Role) -> Decoder {
        Decoder {
            role,
            deflates: false,
            state: State::Head,
            message: None,
            is_compressed: false,
            is_told: false,
            is_last: false,
            key: None,
            utf8: Utf8::NEW,
            left: 0,
            bytes: 0,
            frames: 0,
        }
    }

    /// Messages may be compressed: both sides have agreed to permessage-deflate.
    pub const fn deflate(mut self) -> Decoder {
        self.deflates = true;
        self
    }

    /// Whether no message and no frame is begun: the decoder is as a new one, and need not be kept.
    /// Bytes of a head that are not consumed are the caller's, and do not count.
    pub fn is_idle(&self) -> bool {
        matches!((&self.state, self.message), (State::Head, None))
    }

    /// Bytes of the frame that have not come yet: 0 between frames.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Decodes what `bytes` begin with, and takes the mask off what it tells. The next call gets
    /// the bytes behind those that are [consumed](Step::consumed). The limits may change between
    /// two calls.
    ///
    /// # Errors
    ///
    /// The peer breaks a rule or a limit. A close frame with [`Error::close_code`] answers it, and
    /// each further call returns the same error. The parts of an unfinished message that were told
    /// before are void.
    #[inline]
    pub fn decode(&mut self, limits: &Limits, bytes: &mut [u8]) -> Result<Step, Error> {
        match self.decode_whole(limits, bytes) {
            Some(result) => result,
            None => self.decode_any(limits, bytes),
        }
    }

    /// Decodes a message that is there as a whole, in one frame and not compressed, as most are.
    /// Nothing is begun behind it, so that the decoder stays as it is.
    #[inline]
    fn decode_whole(&mut self, limits: &Limits, bytes: &mut [u8]) -> Option<Result<Step, Error>> {
        let &mut [first, second, a, b, ..] = bytes else { return None };
        let kind = match first {
            0x81 => Kind::Text,
            0x82 => Kind::Binary,
            _ => return None,
        };
        let is_masked = self.role == Role::Server;
        if !self.is_idle() || is_masked != (second & 0x80 != 0) || limits.fragments == 0 {
            return None;
        }
        let (len, used) = match second & 0x7f {
            127 => return None,
            126 => (usize::from(u16::from_be_bytes([a, b])), 4),
            len => (usize::from(len), 2),
        };
        if used == 4 && len < 126 || len as u64 > limits.message {
            return None;
        }
        let at = if is_masked { used + 4 } else { used };
        let (head, rest) = bytes.split_at_mut_checked(at)?;
        let part = rest.get_mut(..len)?;
        if is_masked {
            mask(*head.last_chunk().expect("the key"), part);
        }
        if kind == Kind::Text && simdutf8::basic::from_utf8(part).is_err() {
            return Some(self.fail(Rule::Utf8));
        }
        let payload = at..at + len;
        let (is_compressed, is_first, is_last) = (false, true, true);
        let event = Event::Data { kind, payload, is_compressed, is_first, is_last };
        Some(Ok(Step { consumed: at + len, event }))
    }

    #[inline(never)]
    fn decode_any(&mut self, limits: &Limits, bytes: &mut [u8]) -> Result<Step, Error> {
        const NEED_MORE: Step = Step { consumed: 0, event: Event::NeedMore };
        let at = match self.state {
            State::Head => {
                let head = match self.read_head(limits, bytes) {
                    Ok(Some(head)) => head,
                    Ok(None) => return Ok(NEED_MORE),
                    Err(rule) => return self.fail(rule),
                };
                if head.opcode.is_control() {
                    return self.control(&head, bytes).or_else(|rule| self.fail(rule));
                }
                if head.len > 0 && bytes.len() == head.size {
                    return Ok(NEED_MORE);
                }
                self.begin(&head);
                head.size
            }
            State::Payload if bytes.is_empty() => return Ok(NEED_MORE),
            State::Payload => 0,
            State::Closed => return Ok(Step { consumed: bytes.len(), event: Event::Closed }),
            State::Failed(error) => return Err(error),
        };
        self.payload(bytes, at).or_else(|rule| self.fail(rule))
    }

    #[cold]
    fn fail(&mut self, rule: Rule) -> Result<Step, Error> {
        self.state = State::Failed(rule.into());
        Err(rule.into())
    }

    /// A frame of a message begins.
    #[inline]
    fn begin(&mut self, head: &Head) {
        if head.opcode != Opcode::Continuation {
            let is_text = head.opcode == Opcode::Text;
            self.message = Some(if is_text { Kind::Text } else { Kind::Binary });
            self.is_compressed = head.is_compressed;
            (self.is_told, self.bytes, self.frames) = (false, 0, 0);
        }
        self.is_last = head.is_last;
        self.bytes += head.len;
        self.frames += 1;
        (self.left, self.key) = (head.len, head.key);
    }

    /// Reads a head, if it is there. Each rule is checked as soon as the bytes that can break it
    /// are there, and in their order: so every cut finds the same rule.
    #[inline]
    fn read_head(&self, limits: &Limits, bytes: &[u8]) -> Result<Option<Head>, Rule> {
        let [first, rest @ ..] = bytes else { return Ok(None) };
        let opcode = self.check_first(limits, *first)?;
        let [second, rest @ ..] = rest else { return Ok(None) };
        let is_masked = second & 0x80 != 0;
        match (self.role, is_masked) {
            (Role::Server, false) => return Err(Rule::NoMask),
            (Role::Client, true) => return Err(Rule::Masked),
            _ => {}
        }
        let (len, used) = match second & 0x7f {
            126 | 127 if opcode.is_control() => return Err(Rule::ControlLength),
            126 => match rest.first_chunk() {
                Some(len) => (u64::from(u16::from_be_bytes(*len)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk() {
                Some(len) => (u64::from_be_bytes(*len), 8),
                None => return Ok(None),
            },
            len => (u64::from(len), 0),
        };
        if used == 2 && len < 126 || used == 8 && (len <= 0xffff || len >> 63 != 0) {
            return Err(Rule::Length);
        }
        let (before, is_compressed) = match opcode {
            Opcode::Continuation => (self.bytes, self.is_compressed),
            _ => (0, first & 0x40 != 0),
        };
        if !opcode.is_control() && len > limits.payload(is_compressed).saturating_sub(before) {
            return Err(Rule::MessageLength);
        }
        let key = match rest[used..].first_chunk() {
            _ if !is_masked => None,
            Some(key) => Some(*key),
            None => return Ok(None),
        };
        let size = 2 + used + if is_masked { 4 } else { 0 };
        let (is_last, is_compressed) = (first & 0x80 != 0, first & 0x40 != 0);
        Ok(Some(Head { opcode, is_last, is_compressed, size, len, key }))
    }

    /// What the first byte of a frame shows.
    #[inline]
    fn check_first(&self, limits: &Limits, first: u8) -> Result<Opcode, Rule> {
        let opcode = Opcode::new(first & 0x0f).ok_or(Rule::ReservedOpcode)?;
        let may_compress = self.deflates && matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & 0x30 != 0 || first & 0x40 != 0 && !may_compress {
            return Err(Rule::ReservedBit);
        }
        let frames = if opcode == Opcode::Continuation { self.frames } else { 0 };
        match (opcode, self.message) {
            (Opcode::Continuation, None) => Err(Rule::NoMessage),
            (Opcode::Text | Opcode::Binary, Some(_)) => Err(Rule::Interrupted),
            _ if opcode.is_control() && first & 0x80 == 0 => Err(Rule::ControlFragment),
            _ if !opcode.is_control() && frames >= limits.fragments => Err(Rule::Fragments),
            _ => Ok(opcode),
        }
    }

    #[inline(never)]
    fn control(&mut self, head: &Head, bytes: &mut [u8]) -> Result<Step, Rule> {
        let payload = head.size..head.size + head.len as usize;
        if bytes.len() < payload.end {
            return Ok(Step { consumed: 0, event: Event::NeedMore });
        }
        let said = &mut bytes[payload.clone()];
        if let Some(key) = head.key {
            mask(key, said);
        }
        let consumed = payload.end;
        let event = match head.opcode {
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            _ => {
                let (code, reason) = match said {
                    [] => (None, payload),
                    [_] => return Err(Rule::CloseCode),
                    [a, b, reason @ ..] => {
                        let code = CloseCode::new(u16::from_be_bytes([*a, *b]));
                        let code = code.ok_or(Rule::CloseCode)?;
                        if simdutf8::basic::from_utf8(reason).is_err() {
                            return Err(Rule::Utf8);
                        }
                        (Some(code), payload.start + 2..payload.end)
                    }
                };
                self.state = State::Closed;
                Event::Close(code, reason)
            }
        };
        Ok(Step { consumed, event })
    }

    /// Tells the bytes of the frame that are there, from `at` on.
    #[inline]
    fn payload(&mut self, bytes: &mut [u8], at: usize) -> Result<Step, Rule> {
        let len =
            usize::try_from(self.left).map_or(bytes.len() - at, |left| left.min(bytes.len() - at));
        let (payload, kind) = (at..at + len, self.message.expect("a message is begun"));
        let part = &mut bytes[payload.clone()];
        if let Some(key) = &mut self.key {
            mask(*key, part);
            // The next part begins within the key. A slice's rotate_left takes fifty instructions.
            let bits = 8 * (len % 4) as u32;
            *key = u32::from_le_bytes(*key).rotate_right(bits).to_le_bytes();
        }
        self.left -= len as u64;
        let is_last = self.left == 0 && self.is_last;
        if kind == Kind::Text && !self.is_compressed {
            let is_text = self.utf8.push(part) && (!is_last || self.utf8.is_whole());
            if !is_text {
                return Err(Rule::Utf8);
            }
        }
        let is_first = !self.is_told;
        self.is_told = true;
        self.state = if self.left == 0 { State::Head } else { State::Payload };
        if is_last {
            self.message = None;
        }
        let is_compressed = self.is_compressed;
        let event = Event::Data { kind, payload, is_compressed, is_first, is_last };
        Ok(Step { consumed: at + len, event })
    }
}
