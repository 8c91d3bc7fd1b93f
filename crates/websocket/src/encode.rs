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

    /// The head of a whole message, or of a control frame, without a mask.
    pub const fn new(opcode: Opcode, len: u64) -> FrameHead {
        FrameHead { first: 0x80 | opcode as u8, len, key: None }
    }

    /// Another frame of this message follows.
    pub const fn continues(mut self) -> FrameHead {
        self.first &= !0x80;
        self
    }

    /// The message is compressed: for its first frame.
    pub const fn compressed(mut self) -> FrameHead {
        self.first |= 0x40;
        self
    }

    /// The frame has this mask, as each frame of a client. The key must not be known beforehand.
    pub const fn masked(mut self, key: [u8; 4]) -> FrameHead {
        self.key = Some(key);
        self
    }

    /// How many bytes it has.
    pub const fn size(&self) -> usize {
        let length = match self.len {
            0..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        };
        length + if self.key.is_some() { 4 } else { 0 }
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::MOST];
        let size = self.write(&mut bytes);
        out.extend_from_slice(&bytes[..size]);
    }

    /// Writes it to the start of `to`, and returns [`size`](FrameHead::size).
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

/// Appends a close frame. The reason is cut to the 123 bytes that one may have, between two
/// characters. Without a code the frame is empty, and so is the reason.
pub fn put_close(code: Option<CloseCode>, reason: &str, key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let most = (0..=reason.len().min(123)).rev().find(|at| reason.is_char_boundary(*at));
    let reason = &reason[..most.unwrap_or(0)];
    let mut payload = Vec::new();
    if let Some(code) = code {
        payload.extend_from_slice(&code.number().to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
    }
    let head = FrameHead::new(Opcode::Close, payload.len() as u64);
    if let Some(key) = key {
        mask(key, &mut payload);
        head.masked(key).put(out);
    } else {
        head.put(out);
    }
    out.extend_from_slice(&payload);
}
