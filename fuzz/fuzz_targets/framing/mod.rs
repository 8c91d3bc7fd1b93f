//! Code that the framing targets share: an input in pieces, beside the same input in one piece.

use std::fmt::Debug;

use arbitrary::Arbitrary;
use windlass::Buf;
use windlass_serve::framing::{Decoder, Error, Input};

/// Bytes, and how they reach the decoder.
#[derive(Debug, Arbitrary)]
pub struct Cut {
    pieces: Vec<(Vec<u8>, How)>,
    limit: u16,
}

#[derive(Debug, Arbitrary)]
enum How {
    /// A buffer of its own; frames are taken out behind it, so many at most.
    Vector {
        most: u8,
    },
    List {
        most: u8,
    },
    /// Copied to the end of all that is there.
    Peek,
    /// The input moves to another connection.
    Move,
    /// The same, in parts of at most so many bytes and one.
    Take {
        most: u8,
    },
}

impl Cut {
    pub fn limit(&self) -> usize {
        self.limit.into()
    }
}

/// Takes out at most `most` frames. False if the bytes are wrong.
fn take<D: Decoder>(
    input: &mut Input,
    decoder: &mut D,
    most: usize,
    frames: &mut Vec<Buf>,
) -> Result<(), D::Error> {
    for _ in 0..most {
        let Some(frame) = input.next(decoder)? else { break };
        frames.push(frame.into_buf());
    }
    Ok(())
}

/// The frames and the end do not depend on the cuts, and what was decoded can be encoded again to
/// the bytes that it was decoded from.
pub fn check<D>(cut: &Cut, new: impl Fn() -> D, encode: impl Fn(&D, &[u8], &mut Vec<u8>))
where
    D: Decoder<Error = Error> + Debug,
{
    let all: Vec<u8> = cut.pieces.iter().flat_map(|(bytes, _)| bytes).copied().collect();
    let mut whole = Input::new();
    let mut expected = Vec::new();
    whole.push(all.clone());
    let end = take(&mut whole, &mut new(), usize::MAX, &mut expected);

    let (mut input, mut decoder, mut frames) = (Input::new(), new(), Vec::new());
    for (bytes, how) in &cut.pieces {
        let most = match how {
            How::Vector { most } | How::List { most } => usize::from(*most),
            How::Peek | How::Move | How::Take { .. } => 0,
        };
        match how {
            How::List { .. } => {
                let (first, second) = bytes.split_at(bytes.len() / 2);
                input.push(Buf::list([first.to_vec(), second.to_vec()]));
            }
            _ => input.push(bytes.clone()),
        }
        match how {
            How::Peek => {
                assert_eq!(input.peek().len(), input.len());
                decoder = new();
            }
            How::Move => {
                let rest = input.take_rest();
                assert!(input.is_empty() && input.held_bytes() == 0);
                input.push(rest);
                decoder = new();
            }
            How::Take { most } => {
                let parts = std::iter::from_fn(|| input.take(usize::from(*most) + 1));
                let parts: Vec<Buf> = parts.collect();
                assert!(input.is_empty() && input.held_bytes() == 0);
                parts.into_iter().for_each(|part| input.push(part));
                decoder = new();
            }
            How::Vector { .. } | How::List { .. } => {}
        }
        if take(&mut input, &mut decoder, most, &mut frames).is_err() {
            break;
        }
    }
    let cut_end = take(&mut input, &mut decoder, usize::MAX, &mut frames);
    assert_eq!(cut_end, end);
    if end.is_ok() {
        assert_eq!(input.len(), whole.len());
    }
    assert!(frames.iter().map(|frame| &**frame).eq(expected.iter().map(|frame| &**frame)));

    let mut encoded = Vec::new();
    let encoder = new();
    for frame in &expected {
        encode(&encoder, frame, &mut encoded);
    }
    let mut again = Input::new();
    let mut decoded = Vec::new();
    again.push(encoded);
    assert_eq!(take(&mut again, &mut new(), usize::MAX, &mut decoded), Ok(()));
    assert!(again.is_empty());
    assert!(decoded.iter().map(|frame| &**frame).eq(expected.iter().map(|frame| &**frame)));
}
