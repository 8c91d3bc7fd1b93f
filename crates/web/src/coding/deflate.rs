//! Bodies that are compressed.
//!
//! # Why
//! A compressor takes some hundred kilobytes, and its reset a few microseconds. So the connections
//! of a loop share them: a whole body borrows one for the time of a call, and a body that is made
//! over several turns keeps one until its end. The bytes between head and sum are the same in both
//! formats, so a compressor is for both.

use std::sync::{Arc, Mutex, MutexGuard};

use zlib_rs::adler32::adler32;
use zlib_rs::crc32::crc32;
use zlib_rs::{Deflate, DeflateFlush};

use super::ContentCoding;

/// Bytes that are made at once, before they are appended.
const AT_ONCE: usize = 8 << 10;

/// The longest window, without the head and the sum of a format. (8 would be a panic.)
const WINDOW: u8 = 15;

/// The head of a gzip member: no name, no time, no system.
const GZIP_HEAD: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";

/// The head of zlib's format: the longest window, no dictionary.
const ZLIB_HEAD: &[u8] = b"\x78\x9c";

/// Compresses one body after the other.
pub(crate) struct Compressor {
    deflate: Deflate,
    coding: ContentCoding,
    /// The sum of what was compressed, and its length modulo 2^32.
    sum: u32,
    len: u32,
    has_begun: bool,
    made: Vec<u8>,
}

/// What follows the bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// More. Some of the bytes may stay in the compressor.
    More,
    /// More, later: the client can decode all that there is.
    Pause,
    /// Nothing.
    End,
}

impl Compressor {
    /// A compressor with a level from 1 to 9.
    fn new(level: u8) -> Compressor {
        Compressor {
            deflate: Deflate::new(i32::from(level), false, WINDOW),
            coding: ContentCoding::Gzip,
            sum: 0,
            len: 0,
            has_begun: false,
            made: vec![0; AT_ONCE],
        }
    }

    /// Begins a body.
    pub(crate) fn begin(&mut self, coding: ContentCoding) {
        self.deflate.reset();
        self.coding = coding;
        self.sum = match coding {
            ContentCoding::Gzip => 0,
            ContentCoding::Deflate => 1,
        };
        (self.len, self.has_begun) = (0, false);
    }

    /// Compresses the next bytes of the body, and appends what there is.
    pub(crate) fn write(&mut self, bytes: &[u8], behind: Flush, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            out.extend_from_slice(match self.coding {
                ContentCoding::Gzip => GZIP_HEAD,
                ContentCoding::Deflate => ZLIB_HEAD,
            });
        }
        self.sum = match self.coding {
            ContentCoding::Gzip => crc32(self.sum, bytes),
            ContentCoding::Deflate => adler32(self.sum, bytes),
        };
        self.len = self.len.wrapping_add(bytes.len() as u32);
        let flush = match behind {
            Flush::More => DeflateFlush::NoFlush,
            Flush::Pause => DeflateFlush::SyncFlush,
            Flush::End => DeflateFlush::Finish,
        };
        let mut rest = bytes;
        loop {
            let before = (self.deflate.total_in(), self.deflate.total_out());
            // It fails for a state that cannot be: then nothing comes, and the loop ends.
            let _ = self.deflate.compress(rest, &mut self.made, flush);
            let consumed = (self.deflate.total_in() - before.0) as usize;
            let made = (self.deflate.total_out() - before.1) as usize;
            rest = &rest[consumed..];
            out.extend_from_slice(&self.made[..made]);
            // Room that is left says that nothing waits for room.
            if made < AT_ONCE && rest.is_empty() || consumed + made == 0 {
                break;
            }
        }
        if behind == Flush::End {
            match self.coding {
                ContentCoding::Gzip => {
                    out.extend_from_slice(&self.sum.to_le_bytes());
                    out.extend_from_slice(&self.len.to_le_bytes());
                }
                ContentCoding::Deflate => out.extend_from_slice(&self.sum.to_be_bytes()),
            }
        }
    }
}

/// The compressors of a loop.
#[derive(Clone)]
pub(crate) struct Compressors(Arc<Mutex<Spares>>);

struct Spares {
    level: u8,
    /// Compressors that no response uses now.
    #[allow(clippy::vec_box)] // the box goes to and fro
    spare: Vec<Box<Compressor>>,
    /// How many leases there are, and may be.
    leases: usize,
    most: usize,
}

/// The right to a compressor, which is taken when it is first needed. It goes back behind the body,
/// also where its connection ends.
pub(crate) struct BorrowedCompressor {
    compressor: Option<Box<Compressor>>,
    coding: ContentCoding,
    home: Compressors,
}

impl Compressors {
    /// No compressor yet, and at most so many that are leased at the same time.
    pub(crate) fn new(level: u8, most: usize) -> Compressors {
        let pool = Spares { level, spare: Vec::new(), leases: 0, most };
        Compressors(Arc::new(Mutex::new(pool)))
    }

    fn lock(&self) -> MutexGuard<'_, Spares> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take(&self) -> Box<Compressor> {
        let mut pool = self.lock();
        pool.spare.pop().unwrap_or_else(|| Box::new(Compressor::new(pool.level)))
    }

    /// Compresses a whole body, and appends it.
    pub(crate) fn whole(&self, coding: ContentCoding, body: &[u8], out: &mut Vec<u8>) {
        let mut compressor = self.take();
        compressor.begin(coding);
        compressor.write(body, Flush::End, out);
        self.lock().spare.push(compressor);
    }

    /// Leases a compressor for one body; `None` if all are leased.
    pub(crate) fn lease(&self, coding: ContentCoding) -> Option<BorrowedCompressor> {
        let mut pool = self.lock();
        if pool.leases == pool.most {
            return None;
        }
        pool.leases += 1;
        Some(BorrowedCompressor { compressor: None, coding, home: self.clone() })
    }
}

impl BorrowedCompressor {
    /// Compresses the next bytes of the body, and appends what there is.
    pub(crate) fn write(&mut self, bytes: &[u8], behind: Flush, out: &mut Vec<u8>) {
        let compressor = self.compressor.get_or_insert_with(|| {
            let mut compressor = self.home.take();
            compressor.begin(self.coding);
            compressor
        });
        compressor.write(bytes, behind, out);
    }
}

impl Drop for BorrowedCompressor {
    fn drop(&mut self) {
        let mut pool = self.home.lock();
        pool.leases -= 1;
        pool.spare.extend(self.compressor.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::inflate::Inflater;

    fn decode(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
        Inflater::new(coding, u64::MAX).whole(coded).expect("one whole body")
    }

    /// Text that compresses somewhat.
    fn text(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(len as u64);
        (0..len).map(|_| b"abcdefghij {}\":,"[random.usize(..16) & random.usize(..16)]).collect()
    }

    const CODINGS: [ContentCoding; 2] = [ContentCoding::Gzip, ContentCoding::Deflate];

    #[test]
    fn a_whole_body_comes_back() {
        for level in 1..=9 {
            let compressors = Compressors::new(level, 0);
            for len in [0, 1, 100, AT_ONCE, 70_000] {
                for (coding, body) in CODINGS
                    .iter()
                    .flat_map(|coding| [(*coding, text(len)), (*coding, vec![b'a'; len])])
                {
                    let mut out = Vec::new();
                    compressors.whole(coding, &body, &mut out);
                    assert!(out.len() <= len + 64 + len / 1000, "{level} {len}: {}", out.len());
                    assert_eq!(decode(coding, &out), body, "{level} {len}");
                }
            }
            assert_eq!(compressors.lock().spare.len(), 1, "one for all");
        }
    }

    #[test]
    fn noise_comes_back() {
        let mut random = fastrand::Rng::with_seed(7);
        let body: Vec<u8> = (0..200_000).map(|_| random.u8(..)).collect();
        for (level, coding) in [(1, CODINGS[0]), (6, CODINGS[1]), (9, CODINGS[0])] {
            let mut out = Vec::new();
            Compressors::new(level, 0).whole(coding, &body, &mut out);
            assert_eq!(decode(coding, &out), body);
        }
    }

    #[test]
    fn a_pause_shows_all_that_was_written() {
        let compressors = Compressors::new(6, 1);
        for coding in CODINGS {
            let (mut lease, body) = (compressors.lease(coding).expect("one is left"), text(50_000));
            let (mut out, mut inflater) = (Vec::new(), Inflater::new(coding, u64::MAX));
            let (mut seen, mut at) = (Vec::new(), 0);
            for part in body.chunks(7001) {
                let (front, back) = part.split_at(part.len() / 3);
                lease.write(front, Flush::More, &mut out);
                lease.write(back, Flush::Pause, &mut out);
                while inflater.decode(&out[at..], &mut seen).expect("it is right").has_more {}
                at = out.len();
                assert!(body.starts_with(&seen) && seen.len() % 7001 == 0 || seen == body);
            }
            let before = out.len();
            lease.write(b"", Flush::End, &mut out);
            assert!(out.len() - before < 20);
            assert_eq!(decode(coding, &out), body);
        }
    }

    #[test]
    fn leases_are_bounded_and_go_back() {
        let compressors = Compressors::new(1, 2);
        let mut first = compressors.lease(CODINGS[0]).expect("two are left");
        let second = compressors.lease(CODINGS[1]).expect("one is left");
        assert!(compressors.lease(CODINGS[0]).is_none());
        assert_eq!(compressors.lock().spare.len(), 0, "none was needed");
        let mut cut = Vec::new();
        first.write(b"what is not ended", Flush::More, &mut cut);
        drop((first, second));
        assert_eq!(compressors.lock().spare.len(), 1);
        assert_eq!(compressors.lock().leases, 0);
        let (mut third, mut out) = (compressors.lease(CODINGS[1]).expect("two"), Vec::new());
        assert_eq!(compressors.lock().spare.len(), 1);
        third.write(b"whole", Flush::End, &mut out);
        assert_eq!(decode(CODINGS[1], &out), b"whole");
    }
}
