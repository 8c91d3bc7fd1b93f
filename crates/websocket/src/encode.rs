//! Frames that are sent.

use crate::close::CloseCode;
use crate::mask::mask;
use crate::words::Opcode;

/// What stands in front of the bytes of a frame.
///
/// ```
/// use windlass_websocket::{FrameHead, Opcode};
///
/// let mut out = Vec::new();
/// FrameHead::new(Opcode::Text, 2).put(&mut out);
/// out.extend_from_slice(b"hi");
/// assert_eq!(out, b"\x81\x02hi");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    first: u8,
    len: u64,
    key: Option<[u8; 4]>,
}

impl FrameHead {
    /// The most bytes of a head.
    pub const MOST: usize = 14;

    /// The head of a whole message, or of a control frame, of so many bytes and without a mask.
    ///
    /// # Panics
    ///
    /// If a control frame has more than 125 bytes, or a frame more than 2 to the power of 63 less
    /// one.
    pub const fn new(opcode: Opcode, len: u64) -> FrameHead {
        assert!(len <= 125 || !opcode.is_control(), "a control frame has at most 125 bytes");
        assert!(len >> 63 == 0, "a frame has fewer than 2^63 bytes");
        FrameHead { first: 0x80 | opcode as u8, len, key: None }
    }

    /// Another frame of this message follows: its head has [`Opcode::Continuation`]. Control frames
    /// may come between.
    ///
    /// # Panics
    ///
    /// If this is a control frame.
    pub const fn continues(mut self) -> FrameHead {
        assert!(self.first & 0x08 == 0, "a control frame is whole");
        self.first &= !0x80;
        self
    }

    /// The message is compressed: for its first frame.
    ///
    /// # Panics
    ///
    /// If this frame does not begin a message.
    pub const fn compressed(mut self) -> FrameHead {
        assert!(matches!(self.first & 0x0f, 1 | 2), "a message says in its first frame how it is");
        self.first |= 0x40;
        self
    }

    /// The frame has this mask, as each frame of a client must. The program masks the payload with
    /// the same key, by [`mask`](crate::mask()). No page may be able to foresee the key.
    pub const fn masked(mut self, key: [u8; 4]) -> FrameHead {
        self.key = Some(key);
        self
    }

    /// How many bytes the head has: 2 to [`MOST`](FrameHead::MOST).
    pub const fn size(&self) -> usize {
        let length = match self.len {
            0..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        };
        length + if self.key.is_some() { 4 } else { 0 }
    }

    /// Appends the head. The payload follows it, masked if the head has a key.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::MOST];
        let size = self.write(&mut bytes);
        out.extend_from_slice(&bytes[..size]);
    }

    /// Writes the head to the start of `to`, and returns [`size`](FrameHead::size).
    ///
    /// # Panics
    ///
    /// If `to` has fewer bytes.
    #[inline]
    pub fn write(&self, to: &mut [u8]) -> usize {
        let is_masked = if self.key.is_some() { 0x80 } else { 0 };
        to[0] = self.first;
        let mut size = match self.len {
            0..=125 => {
                to[1] = is_masked | self.len as u8;
                2
            }
            126..=0xffff => {
                to[1] = is_masked | 126;
                to[2..4].copy_from_slice(&(self.len as u16).to_be_bytes());
                4
            }
            _ => {
                to[1] = is_masked | 127;
                to[2..10].copy_from_slice(&self.len.to_be_bytes());
                10
            }
        };
        if let Some(key) = self.key {
            to[size..size + 4].copy_from_slice(&key);
            size += 4;
        }
        size
    }
}

/// Appends a close frame, masked with `key` if there is one: that of a client. The reason is cut
/// between two characters to the 123 bytes that one may have. Without a code the frame has no
/// payload, and the reason is left out.
///
/// ```
/// use windlass_websocket::{CloseCode, put_close};
///
/// let mut out = Vec::new();
/// put_close(Some(CloseCode::NORMAL), "bye", None, &mut out);
/// assert_eq!(out, b"\x88\x05\x03\xe8bye");
/// ```
pub fn put_close(code: Option<CloseCode>, reason: &str, key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let most = (0..=reason.len().min(123)).rev().find(|at| reason.is_char_boundary(*at));
    let reason = &reason[..most.unwrap_or(0)];
    let len = code.map_or(0, |_| 2 + reason.len());
    let head = FrameHead::new(Opcode::Close, len as u64);
    key.map_or(head, |key| head.masked(key)).put(out);
    let from = out.len();
    if let Some(code) = code {
        out.extend_from_slice(&code.number().to_be_bytes());
        out.extend_from_slice(reason.as_bytes());
    }
    if let Some(key) = key {
        mask(key, &mut out[from..]);
    }
}
