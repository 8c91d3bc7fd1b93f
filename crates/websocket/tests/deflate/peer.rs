//! A peer whose compressor and decompressor are zlib's own, in C, and live as long as it does.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

pub(crate) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// One side of a direction: it compresses.
pub(crate) struct Sender {
    compress: Compress,
    has_takeover: bool,
}

/// The other side: it inflates. It has a window of just the size that was negotiated.
pub(crate) struct Receiver {
    decompress: Decompress,
    has_takeover: bool,
}

impl Sender {
    pub(crate) fn new(level: u32, bits: u8, has_takeover: bool) -> Sender {
        let compress = Compress::new_with_window_bits(Compression::new(level), false, bits);
        Sender { compress, has_takeover }
    }

    /// The payload of a message.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Vec<u8> {
        if plain.is_empty() {
            return vec![0];
        }
        if !self.has_takeover {
            self.compress.reset();
        }
        let mut out = self.write(plain, FlushCompress::Sync);
        assert!(out.ends_with(&TAIL));
        out.truncate(out.len() - 4);
        out
    }

    /// What a call of zlib makes of these bytes.
    pub(crate) fn write(&mut self, plain: &[u8], flush: FlushCompress) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * plain.len() + 64);
        self.compress.compress_vec(plain, &mut out, flush).expect("it compresses");
        assert!(out.len() < out.capacity());
        out
    }

    /// The next stream: zlib forgets its context.
    pub(crate) fn reset(&mut self) {
        self.compress.reset();
    }
}

impl Receiver {
    pub(crate) fn new(bits: u8, has_takeover: bool) -> Receiver {
        Receiver { decompress: Decompress::new_with_window_bits(false, bits), has_takeover }
    }

    /// The text of a payload. It is made in small pieces: zlib can look back at its window alone,
    /// and not at what it made just now.
    pub(crate) fn receive(&mut self, payload: &[u8]) -> Vec<u8> {
        if !self.has_takeover {
            self.decompress.reset(false);
        }
        let mut out = Vec::new();
        for input in [payload, &TAIL] {
            let mut at = 0;
            loop {
                let mut piece = [0; 61];
                let before = (self.decompress.total_in(), self.decompress.total_out());
                let result =
                    self.decompress.decompress(&input[at..], &mut piece, FlushDecompress::None);
                assert_ne!(result.expect("a valid payload"), Status::StreamEnd);
                at += (self.decompress.total_in() - before.0) as usize;
                let made = (self.decompress.total_out() - before.1) as usize;
                out.extend_from_slice(&piece[..made]);
                if at == input.len() && made < piece.len() {
                    break;
                }
            }
        }
        out
    }
}
