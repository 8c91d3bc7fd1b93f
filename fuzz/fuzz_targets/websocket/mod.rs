//! What the targets of windlass-websocket share: frames, and how they are cut.

use arbitrary::Arbitrary;

use crate::common::{SERVER, Side};

/// The input of a side. Most frames are right in most of their parts.
#[derive(Debug, Arbitrary)]
pub struct Program {
    deflates: bool,
    small: bool,
    pieces: Vec<Piece>,
    cuts: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Piece {
    /// A frame with one of the usual first bytes.
    Frame(u8, Payload),
    /// One with any first byte.
    Any(u8, Payload),
    /// The head of a frame of so many bytes.
    Head(u8, u64),
    /// A head of the other role.
    Wrong(u8, u8),
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
enum Payload {
    Bytes(Vec<u8>),
    Text(String),
    /// A close code and its reason.
    Close(u16, String),
    Zeros(u16),
}

const FIRST: [u8; 8] = [0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x88];

impl Payload {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Payload::Bytes(bytes) => bytes.clone(),
            Payload::Text(text) => text.clone().into_bytes(),
            Payload::Close(code, reason) => {
                [&(code % 5000).to_be_bytes()[..], reason.as_bytes()].concat()
            }
            Payload::Zeros(count) => vec![0; usize::from(*count)],
        }
    }
}

impl Program {
    /// The same events come at these cuts as at none.
    pub fn check(&self, side: Side) {
        let side = if self.small { side.limit(50, 4) } else { side };
        let side = if self.deflates { side.deflate() } else { side };
        let mut input = Vec::new();
        for piece in &self.pieces {
            let bytes = match piece {
                Piece::Frame(first, payload) => {
                    side.frame(FIRST[usize::from(first % 8)], payload.bytes())
                }
                Piece::Any(first, payload) => side.frame(*first, payload.bytes()),
                Piece::Head(first, len) => side.head(*first, len >> 1),
                Piece::Wrong(first, len) => {
                    vec![*first, len & 0x7f | if side.role == SERVER.role { 0 } else { 0x80 }]
                }
                Piece::Bytes(bytes) => bytes.clone(),
            };
            input.extend(bytes);
        }
        let mut at = 0;
        let mut cuts = Vec::new();
        for cut in &self.cuts {
            at += usize::from(cut % 32);
            if at <= input.len() {
                cuts.push(at);
            }
        }
        assert_eq!(side.cut(&input, &cuts), side.cut(&input, &[]));
    }
}
