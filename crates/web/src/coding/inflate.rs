//! Bodies that come compressed.
//!
//! # Why
//! A few bytes can stand for a million times as many: so each call appends a bounded part, and the
//! body has a limit that is checked before its bytes are kept. What is not exactly one body is an
//! error. A client that took a damaged or cut body for the whole would not learn that it lacks
//! bytes.

use std::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use super::ContentCoding;

/// The most bytes that a call appends.
pub(crate) const MOST_APPENDED: usize = 64 << 10;

/// Bytes that are decoded at once, before they are appended.
const AT_ONCE: usize = 16 << 10;

/// The bits of a gzip member with the longest window, as zlib counts them.
const GZIP: u8 = 16 + 15;

/// Decodes one body. It takes about 64 KiB of memory.
pub(crate) struct Inflater {
    inflate: Inflate,
    state: State,
    /// How many more bytes the body may have.
    left: u64,
    decoded: Vec<u8>,
}

/// Where a decoder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No byte has come.
    Begin(ContentCoding),
    /// The first byte of `deflate` has come, which does not say yet whether it is zlib's format.
    OneByte(u8),
    /// Inside of a gzip member, or of what `deflate` stands for.
    Inside(ContentCoding),
    /// At its end. Another gzip member may follow.
    End(ContentCoding),
}

/// What a call has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// How many bytes of the input it has used.
    pub(crate) consumed: usize,
    /// Whether there is more to append: from the rest of the input, or without further input.
    pub(crate) has_more: bool,
}

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodingError {
    /// It has another coding, or several, one on top of the other.
    Unknown,
    /// It is damaged, or has another coding than its head says.
    Malformed,
    /// It is longer than its limit.
    TooLong,
    /// Something follows that does not belong to it.
    Trailing,
    /// Its end is missing.
    Cut,
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CodingError::Unknown => "the body has a coding that is not known, or several",
            CodingError::Malformed => "the body is not what its coding says",
            CodingError::TooLong => "the decoded body is longer than its limit",
            CodingError::Trailing => "there are bytes behind the end of the coded body",
            CodingError::Cut => "the coded body is cut off",
        })
    }
}

impl std::error::Error for CodingError {}

impl Inflater {
    /// The decoder of a body with these values of `Content-Encoding`, that has at most `most` bytes
    /// when it is decoded. `None`: it has no coding.
    pub(crate) fn of<'a>(
        values: impl IntoIterator<Item = &'a str>,
        most: u64,
    ) -> Result<Option<Inflater>, CodingError> {
        let names = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
        let mut codings =
            names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        match (codings.next(), codings.next()) {
            (None, _) => Ok(None),
            (Some(name), None) => {
                let coding = ContentCoding::of(name).ok_or(CodingError::Unknown)?;
                Ok(Some(Inflater::new(coding, most)))
            }
            (Some(_), Some(_)) => Err(CodingError::Unknown),
        }
    }

    /// The decoder of a body that has at most `most` bytes when it is decoded.
    pub(crate) fn new(coding: ContentCoding, most: u64) -> Inflater {
        let inflate = match coding {
            ContentCoding::Gzip => Inflate::new(true, GZIP),
            ContentCoding::Deflate => Inflate::new(true, 15),
        };
        Inflater { inflate, state: State::Begin(coding), left: most, decoded: vec![0; AT_ONCE] }
    }

    /// Decodes some of `input`, and appends at most 64 KiB to `out`. Call it with the rest of the
    /// input until all is consumed, and there is no [more](Decoded::has_more).
    ///
    /// Behind an error, what is in `out` is the beginning of the body at most.
    pub(crate) fn decode(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Decoded, CodingError> {
        let (mut at, mut room) = (0, MOST_APPENDED);
        loop {
            match self.state {
                State::Inside(coding) => {
                    let (consumed, made, is_end) = self.step(&input[at..], out, room)?;
                    (at, room) = (at + consumed, room - made);
                    if is_end {
                        self.state = State::End(coding);
                    } else if room == 0 {
                        return Ok(Decoded { consumed: at, has_more: true });
                    } else if at == input.len() {
                        return Ok(Decoded { consumed: at, has_more: false });
                    }
                }
                _ if at == input.len() => return Ok(Decoded { consumed: at, has_more: false }),
                State::Begin(ContentCoding::Deflate) => {
                    self.state = State::OneByte(input[at]);
                    at += 1;
                }
                State::OneByte(first) => {
                    self.inflate.reset(is_zlib(first, input[at]));
                    self.state = State::Inside(ContentCoding::Deflate);
                    self.step(&[first], out, room)?;
                }
                State::Begin(ContentCoding::Gzip) => {
                    self.state = State::Inside(ContentCoding::Gzip);
                }
                State::End(ContentCoding::Deflate) => return Err(CodingError::Trailing),
                State::End(ContentCoding::Gzip) if input[at] != 0x1f => {
                    return Err(CodingError::Trailing);
                }
                State::End(ContentCoding::Gzip) => {
                    // A reset would make it one of zlib's format.
                    self.inflate = Inflate::new(true, GZIP);
                    self.state = State::Inside(ContentCoding::Gzip);
                }
            }
        }
    }

    /// Decodes a body that has come whole.
    pub(crate) fn whole(&mut self, mut input: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut all = Vec::new();
        loop {
            let Decoded { consumed, has_more } = self.decode(input, &mut all)?;
            input = &input[consumed..];
            if !has_more {
                return self.end().map(|()| all);
            }
        }
    }

    /// Decodes until the input is used up, the output is full, or the end is there. Returns how
    /// many bytes are consumed and how many are made, and whether the end is there.
    fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        room: usize,
    ) -> Result<(usize, usize, bool), CodingError> {
        let (mut at, mut made) = (0, 0);
        loop {
            // One byte more than it may have tells that it is too long.
            let most = self.left.saturating_add(1).min((room - made).min(AT_ONCE) as u64);
            let slice = &mut self.decoded[..most as usize];
            let before = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(&input[at..], slice, InflateFlush::NoFlush);
            let status = status.map_err(|_| CodingError::Malformed)?;
            let consumed = (self.inflate.total_in() - before.0) as usize;
            let count = (self.inflate.total_out() - before.1) as usize;
            (at, made) = (at + consumed, made + count);
            out.extend_from_slice(&self.decoded[..count]);
            self.left = self.left.checked_sub(count as u64).ok_or(CodingError::TooLong)?;
            match status {
                Status::StreamEnd => return Ok((at, made, true)),
                _ if made == room => return Ok((at, made, false)),
                _ if at == input.len() && count < most as usize => return Ok((at, made, false)),
                _ if consumed == 0 && count == 0 => return Err(CodingError::Malformed),
                _ => {}
            }
        }
    }

    /// The input has ended. A body of no byte at all is an empty one: some servers send it so.
    pub(crate) fn end(&self) -> Result<(), CodingError> {
        match self.state {
            State::Begin(_) | State::End(_) => Ok(()),
            State::OneByte(_) | State::Inside(_) => Err(CodingError::Cut),
        }
    }
}

/// Whether these are the first two bytes of zlib's format: RFC 1950, section 2.2. Many servers send
/// `deflate` without it. Such a body would have to begin with a stored block whose padding is not
/// zero to be mistaken.
fn is_zlib(first: u8, second: u8) -> bool {
    let check = u16::from(first) << 8 | u16::from(second);
    first & 0x0f == 8 && first >> 4 <= 7 && check % 31 == 0
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater")
            .field("state", &self.state)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = b"hello hello";
    const ZLIB: &[u8] = b"\x78\xda\xcb\x48\xcd\xc9\xc9\x57\xc8\x00\x91\x00\x19\x91\x04\x49";
    const RAW: &[u8] = b"\xcb\x48\xcd\xc9\xc9\x57\xc8\x00\x91\x00";
    const STORED: &[u8] = b"\x01\x0b\x00\xf4\xff\x68\x65\x6c\x6c\x6f\x20\x68\x65\x6c\x6c\x6f";
    /// With the name of a file in its head.
    const GZIP: &[u8] = b"\x1f\x8b\x08\x08\x07\x00\x00\x00\x02\xff\x6e\x61\x6d\x65\x2e\x74\x78\
        \x74\x00\xcb\x48\xcd\xc9\xc9\x57\xc8\x00\x91\x00\x40\xa6\x2d\x01\x0b\x00\x00\x00";

    use ContentCoding::{Deflate, Gzip};

    /// Decodes pieces that come one after the other.
    fn decode<'a>(
        coding: ContentCoding,
        most: u64,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<u8>, CodingError> {
        let (mut decoder, mut all) = (Inflater::new(coding, most), Vec::new());
        for mut piece in pieces {
            loop {
                let before = all.len();
                let decoded = decoder.decode(piece, &mut all);
                assert!(all.len() - before <= MOST_APPENDED, "a bounded part");
                assert!(all.len() as u64 <= most + MOST_APPENDED as u64, "{}", all.len());
                let Decoded { consumed, has_more } = decoded?;
                piece = &piece[consumed..];
                if !has_more {
                    assert!(piece.is_empty(), "{} bytes are left", piece.len());
                    break;
                }
            }
        }
        decoder.end()?;
        Ok(all)
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut out = vec![0; zlib_rs::compress_bound(body.len()) + 32];
        let config = zlib_rs::DeflateConfig { window_bits: 31, ..Default::default() };
        let len = zlib_rs::compress_slice(&mut out, body, config).0.len();
        out.truncate(len);
        out
    }

    #[test]
    fn every_format_is_read_at_every_cut() {
        let forms = [(Deflate, ZLIB), (Deflate, RAW), (Deflate, STORED), (Gzip, GZIP)];
        for (coding, coded) in forms {
            for cut in 0..=coded.len() {
                let (front, back) = coded.split_at(cut);
                assert_eq!(decode(coding, 11, [front, back]).as_deref(), Ok(HELLO), "{cut}");
            }
            assert_eq!(decode(coding, 99, coded.chunks(1)).as_deref(), Ok(HELLO));
            assert_eq!(decode(coding, 10, [coded]), Err(CodingError::TooLong));
        }
    }

    #[test]
    fn a_cut_body_is_an_error() {
        for (coding, coded) in [(Deflate, ZLIB), (Deflate, RAW), (Deflate, STORED), (Gzip, GZIP)] {
            for end in 1..coded.len() {
                assert_eq!(decode(coding, 99, [&coded[..end]]), Err(CodingError::Cut), "{end}");
            }
            assert_eq!(decode(coding, 99, []).as_deref(), Ok(&b""[..]));
        }
    }

    /// Bits that say nothing of the body are those of a time, of a name, and behind the last block.
    #[test]
    fn a_damaged_body_is_an_error_or_the_same_body() {
        for (coding, whole, sums) in [(Gzip, GZIP, 8), (Deflate, ZLIB, 4)] {
            for at in 0..8 * whole.len() {
                let mut coded = whole.to_vec();
                coded[at / 8] ^= 1 << (at % 8);
                match decode(coding, 99, [&coded[..]]) {
                    Ok(decoded) => {
                        assert_eq!(decoded, HELLO, "bit {at}");
                        assert!(at / 8 < whole.len() - sums, "bit {at}");
                    }
                    Err(error) => assert!(error != CodingError::TooLong, "bit {at}"),
                }
            }
        }
        // A body that needs a dictionary, and one with another coding.
        assert_eq!(
            decode(Deflate, 99, [&b"\x78\xbb\x00\x00\x00\x01"[..]]),
            Err(CodingError::Malformed)
        );
        assert_eq!(decode(Gzip, 99, [ZLIB]), Err(CodingError::Malformed));
        assert!(decode(Deflate, 99, [GZIP]).is_err());
    }

    #[test]
    fn gzip_members_follow_each_other_and_nothing_else_does() {
        let three = [GZIP, GZIP, &gzip(b""), GZIP].concat();
        for cut in 0..=three.len() {
            let (front, back) = three.split_at(cut);
            assert_eq!(decode(Gzip, 33, [front, back]), Ok(HELLO.repeat(3)), "{cut}");
        }
        assert_eq!(decode(Gzip, 32, [&three[..]]), Err(CodingError::TooLong));
        for behind in [&b"\0"[..], b"x", b"\x78\xda"] {
            let coded = [GZIP, behind].concat();
            assert_eq!(decode(Gzip, 99, [&coded[..]]), Err(CodingError::Trailing));
            assert_eq!(decode(Gzip, 99, [GZIP, behind]), Err(CodingError::Trailing));
        }
        let coded = [GZIP, b"\x1f\x8b\x07\x00"].concat();
        assert_eq!(decode(Gzip, 99, [&coded[..]]), Err(CodingError::Malformed));
        assert_eq!(decode(Gzip, 99, [&[GZIP, b"\x1f"].concat()[..]]), Err(CodingError::Cut));
        for coded in [ZLIB, RAW, STORED] {
            let coded = [coded, b"\0"].concat();
            assert_eq!(decode(Deflate, 99, [&coded[..]]), Err(CodingError::Trailing));
        }
    }

    /// About 10 MiB that stand for 10 GiB, in one member and in many.
    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        const MOST: u64 = 1 << 20;
        let member = gzip(&vec![0; 4 << 20]);
        assert!(member.len() < 8 << 10, "{}", member.len());
        let bomb = std::iter::repeat_n(&member[..], 2560);
        assert_eq!(decode(Gzip, MOST, bomb.clone()), Err(CodingError::TooLong));
        assert_eq!(
            decode(Gzip, MOST, [&bomb.collect::<Vec<_>>().concat()[..]]),
            Err(CodingError::TooLong)
        );
        assert_eq!(decode(Gzip, 4 << 20, [&member[..]]).map(|all| all.len()), Ok(4 << 20));
        assert_eq!(decode(Gzip, (4 << 20) - 1, [&member[..]]), Err(CodingError::TooLong));
    }

    #[test]
    fn the_coding_is_that_of_the_head() {
        let of = |values: &[&str]| {
            let decoder = Inflater::of(values.iter().copied(), 9);
            decoder.map(|decoder| decoder.map(|decoder| decoder.state))
        };
        for values in [&[][..], &[""], &["identity"], &["Identity", " , "]] {
            assert_eq!(of(values), Ok(None), "{values:?}");
        }
        for (value, coding) in [("gzip", Gzip), ("X-GZip", Gzip), (" Deflate ,", Deflate)] {
            assert_eq!(of(&[value]), Ok(Some(State::Begin(coding))), "{value}");
            assert_eq!(of(&["identity", value]), Ok(Some(State::Begin(coding))), "{value}");
        }
        for values in [&["br"][..], &["gzip, gzip"], &["gzip", "deflate"], &["gz"], &["gzip;q=1"]] {
            assert_eq!(of(values), Err(CodingError::Unknown), "{values:?}");
        }
    }
}
