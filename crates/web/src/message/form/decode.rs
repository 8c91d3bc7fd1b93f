//! Bytes of a form into its parts.
//!
//! ```text
//!   preamble ─delimiter─▶ behind it ─CRLF─▶ head ─empty line─▶ body ─delimiter─▶ behind it …
//!                             └─"--"─▶ epilogue
//! ```
//!
//! # Why
//! A delimiter can be cut anywhere. What may be its beginning is held as a number: the bytes are
//! those of the delimiter. It begins with CR, and has no other one, so that no second beginning
//! lies in what is held. So nothing of a body is copied, and all cuts of a form give the same
//! parts.

use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};

use super::Multipart;
use super::head::{Params, PartHead, wrong};
use crate::words::error::Error;
use crate::words::status::Status;

/// The longest boundary (RFC 2046, 5.1.1).
const BOUNDARY: usize = 70;

/// The most bytes in front of the first delimiter, and blanks behind a delimiter. No client sends
/// any.
const PREAMBLE: usize = 1024;
const BLANKS: u8 = 64;

/// What has come of a form.
#[derive(Debug)]
pub(crate) enum FormEvent<'a> {
    /// All bytes are taken. Nothing is whole.
    NeedMore,
    /// A part begins.
    Part(PartHead),
    /// Bytes of its body: a range of those that were given.
    Data(Range<usize>),
    /// Bytes of its body that were given before, and that could have been a delimiter.
    Held(&'a [u8]),
    /// It has ended.
    PartEnd,
    /// The last delimiter has come. What follows is dropped.
    End,
}

enum FormStage {
    /// So many bytes have come.
    Preamble(usize),
    /// Behind a delimiter.
    LineEnd(LineEnd),
    Head,
    /// So many bytes may still come.
    Body(u64),
    Epilogue,
}

enum LineEnd {
    Start,
    Dash,
    Blanks(u8),
    Cr,
}

/// Reads a form: one event for each call.
pub(crate) struct FormDecoder {
    limits: Multipart,
    finder: Finder<'static>,
    stage: FormStage,
    /// How many bytes of the delimiter have come, if the last bytes may be one.
    held: usize,
    parts: u32,
    /// The head of a part, as far as it has come, and where its last line begins.
    head: Vec<u8>,
    line: usize,
}

impl FormDecoder {
    /// A decoder for a body whose `Content-Type` this is.
    pub(crate) fn new(kind: Option<&[u8]>, limits: Multipart) -> Result<FormDecoder, Error> {
        let (essence, mut params) = Params::of(kind.unwrap_or(b""));
        if !essence.eq_ignore_ascii_case(b"multipart/form-data") {
            const KIND: &str = "the body must be multipart/form-data";
            return Err(Error::new(Status::UNSUPPORTED_MEDIA_TYPE).text(KIND));
        }
        let malformed = || wrong("the Content-Type has not one boundary of 1 to 70 characters");
        let mut boundary = None;
        for param in &mut params {
            let (key, value) = param.ok_or_else(malformed)?;
            if key.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
                return Err(malformed());
            }
        }
        let is_boundary = |text: &[u8]| {
            (1..=BOUNDARY).contains(&text.len())
                && text.iter().all(|byte| matches!(byte, b' '..=b'~'))
                && !text.ends_with(b" ")
        };
        let boundary = boundary.filter(|text| is_boundary(text)).ok_or_else(malformed)?;
        let delimiter = [b"\r\n--", &*boundary].concat();
        Ok(FormDecoder {
            limits,
            finder: Finder::new(&delimiter).into_owned(),
            stage: FormStage::Preamble(0),
            // The first one may stand at the very beginning.
            held: 2,
            parts: 0,
            head: Vec::new(),
            line: 0,
        })
    }

    /// What it keeps beyond its own size, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.head.capacity() + self.finder.needle().len()
    }

    /// Says how many bytes of `input` it has taken, and what they are. The next call gets the rest.
    pub(crate) fn decode(&mut self, input: &[u8]) -> Result<(usize, FormEvent<'_>), Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.stage {
                FormStage::Preamble(seen) => match self.find(rest) {
                    Sought::Delimiter(end) => {
                        at += end;
                        self.stage = FormStage::LineEnd(LineEnd::Start);
                    }
                    Sought::Data(_) if rest.is_empty() => return Ok((at, FormEvent::NeedMore)),
                    Sought::Data(len) => {
                        at += len;
                        self.stage = FormStage::Preamble(check_preamble(seen + len)?);
                    }
                    Sought::Held(len) => {
                        self.stage = FormStage::Preamble(check_preamble(seen + len)?)
                    }
                    Sought::NeedMore => return Ok((input.len(), FormEvent::NeedMore)),
                },
                FormStage::LineEnd(ref mut behind) => {
                    let Some(&byte) = rest.first() else { return Ok((at, FormEvent::NeedMore)) };
                    at += 1;
                    *behind = match (&*behind, byte) {
                        (LineEnd::Start, b'-') => LineEnd::Dash,
                        (LineEnd::Dash, b'-') => {
                            self.stage = FormStage::Epilogue;
                            return Ok((at, FormEvent::End));
                        }
                        (LineEnd::Start, b' ' | b'\t') => LineEnd::Blanks(1),
                        (LineEnd::Blanks(count @ ..BLANKS), b' ' | b'\t') => {
                            LineEnd::Blanks(count + 1)
                        }
                        (LineEnd::Start | LineEnd::Blanks(_), b'\r') => LineEnd::Cr,
                        (LineEnd::Cr, b'\n') => {
                            self.begin_head()?;
                            continue;
                        }
                        _ => return Err(wrong("a boundary of the form is not a line")),
                    };
                }
                FormStage::Head => match self.read_head(rest)? {
                    (len, None) => return Ok((at + len, FormEvent::NeedMore)),
                    (len, Some(head)) => {
                        self.stage = FormStage::Body(self.limits.part_bytes);
                        return Ok((at + len, FormEvent::Part(head)));
                    }
                },
                FormStage::Body(left) => match self.find(rest) {
                    Sought::Delimiter(end) => {
                        self.stage = FormStage::LineEnd(LineEnd::Start);
                        return Ok((at + end, FormEvent::PartEnd));
                    }
                    Sought::Data(_) if rest.is_empty() => return Ok((at, FormEvent::NeedMore)),
                    Sought::Data(len) => {
                        let len = self.take(left, len)?;
                        return Ok((at + len, FormEvent::Data(at..at + len)));
                    }
                    Sought::Held(len) => {
                        // What fits comes before the error, as it does if it is not held.
                        let fits = self.take(left, len)?;
                        if fits < len {
                            self.stage = FormStage::Body(0);
                            self.held = len;
                        }
                        let held = &self.finder.needle()[..fits];
                        return Ok((at, FormEvent::Held(held)));
                    }
                    Sought::NeedMore => return Ok((input.len(), FormEvent::NeedMore)),
                },
                FormStage::Epilogue => return Ok((input.len(), FormEvent::End)),
            }
        }
    }

    /// Checks that the form is whole, behind its last byte.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self.stage {
            FormStage::Epilogue => Ok(()),
            _ => Err(wrong("the form is not whole: its last boundary is missing")),
        }
    }

    /// Looks for a delimiter. What is held, and is none, comes first.
    fn find(&mut self, input: &[u8]) -> Sought {
        let delimiter = self.finder.needle();
        if self.held > 0 {
            let missing = &delimiter[self.held..];
            let len = missing.len().min(input.len());
            if missing[..len] != input[..len] {
                return Sought::Held(std::mem::take(&mut self.held));
            }
            if len == missing.len() {
                self.held = 0;
                return Sought::Delimiter(len);
            }
            self.held += len;
            return Sought::NeedMore;
        }
        match self.finder.find(input) {
            Some(0) => Sought::Delimiter(delimiter.len()),
            Some(at) => Sought::Data(at),
            None => {
                let tail = input.len().saturating_sub(delimiter.len() - 1);
                let begin = memrchr(b'\r', &input[tail..]).map(|at| tail + at);
                match begin.filter(|at| delimiter.starts_with(&input[*at..])) {
                    Some(0) => {
                        self.held = input.len();
                        Sought::NeedMore
                    }
                    Some(at) => Sought::Data(at),
                    None => Sought::Data(input.len()),
                }
            }
        }
    }

    /// Takes bytes of a part: so many as its limit allows, and there is one.
    fn take(&mut self, left: u64, len: usize) -> Result<usize, Error> {
        let fits = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        if fits == 0 {
            let text = format!("a part of the form has more than {} bytes", self.limits.part_bytes);
            return Err(Error::new(Status::CONTENT_TOO_LARGE).text(text));
        }
        self.stage = FormStage::Body(left - fits as u64);
        Ok(fits)
    }

    fn begin_head(&mut self) -> Result<(), Error> {
        if self.parts == self.limits.parts {
            let text = format!("the form has more than {} parts", self.limits.parts);
            return Err(Error::new(Status::CONTENT_TOO_LARGE).text(text));
        }
        self.parts += 1;
        self.head.clear();
        (self.line, self.stage) = (0, FormStage::Head);
        Ok(())
    }

    /// Reads lines of a head, up to the empty one.
    fn read_head(&mut self, input: &[u8]) -> Result<(usize, Option<PartHead>), Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let end = memchr(b'\n', rest).map(|end| end + 1);
            let len = end.unwrap_or(rest.len());
            if self.head.len() + len > self.limits.head_bytes {
                let most = self.limits.head_bytes;
                let text = format!("the head of a part has more than {most} bytes");
                return Err(Error::new(Status::CONTENT_TOO_LARGE).text(text));
            }
            self.head.extend_from_slice(&rest[..len]);
            at += len;
            if end.is_none() {
                return Ok((at, None));
            }
            let line = &self.head[self.line..];
            if !line.ends_with(b"\r\n") {
                return Err(wrong("a line in the head of a part has no CR"));
            }
            if line.len() == 2 {
                return Ok((at, Some(PartHead::parse(&self.head)?)));
            }
            self.line = self.head.len();
        }
    }
}

/// What a search has found.
enum Sought {
    /// A delimiter, which ends behind so many bytes.
    Delimiter(usize),
    /// So many bytes that are none.
    Data(usize),
    /// So many bytes of the delimiter that have come before are none.
    Held(usize),
    /// All bytes may be the beginning of one, and are held.
    NeedMore,
}

/// Checks how many bytes stand in front of the first delimiter.
fn check_preamble(seen: usize) -> Result<usize, Error> {
    if seen > PREAMBLE { Err(wrong("the form does not begin with its boundary")) } else { Ok(seen) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KIND: &[u8] = b"Multipart/Form-Data; charset=x; boundary=\"b-- b\"";

    /// What a form says, with neighbouring data joined, up to its error.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Said {
        parts: Vec<(String, Vec<u8>, bool)>,
        refused: Option<String>,
    }

    fn decode(form: &[u8], limits: Multipart, cuts: &[usize]) -> Said {
        let mut decoder = FormDecoder::new(Some(KIND), limits).expect("a boundary");
        let mut said = Said::default();
        let ends = cuts.iter().copied().chain([form.len()]);
        let mut start = 0;
        for end in ends {
            let mut chunk = &form[start..end];
            start = end;
            while !chunk.is_empty() {
                let (len, event) = match decoder.decode(chunk) {
                    Ok(step) => step,
                    Err(error) => {
                        said.refused = Some(error.to_string());
                        return said;
                    }
                };
                match event {
                    FormEvent::NeedMore | FormEvent::End => {}
                    FormEvent::Part(head) => said.parts.push((head.name().into(), vec![], false)),
                    FormEvent::Data(range) => said.data(&chunk[range]),
                    FormEvent::Held(data) => said.data(data),
                    FormEvent::PartEnd => said.parts.last_mut().expect("a part").2 = true,
                }
                chunk = &chunk[len..];
            }
        }
        said.refused = decoder.finish().err().map(|error| error.to_string());
        said
    }

    impl Said {
        fn data(&mut self, data: &[u8]) {
            assert!(!data.is_empty());
            self.parts.last_mut().expect("a part").1.extend_from_slice(data);
        }
    }

    /// Text that is much like what frames a form.
    fn near_delimiters(rng: &mut fastrand::Rng, most: usize) -> Vec<u8> {
        const PIECES: [&[u8]; 9] =
            [b"\r", b"\n", b"\r\n", b"--", b"b-- b", b"\r\n--b-- ", b"--b-- c", b"x", b"\r\n--"];
        (0..rng.usize(..most)).flat_map(|_| PIECES[rng.usize(..PIECES.len())].to_vec()).collect()
    }

    fn encode(parts: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut form = Vec::new();
        for (name, data) in parts {
            form.extend_from_slice(b"--b-- b\r\nContent-Disposition: form-data; name=\"");
            form.extend_from_slice(name.as_bytes());
            form.extend_from_slice(b"\"\r\n\r\n");
            form.extend_from_slice(data);
            form.extend_from_slice(b"\r\n");
        }
        form.extend_from_slice(b"--b-- b--");
        form
    }

    fn random_cuts(rng: &mut fastrand::Rng, len: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..rng.usize(..8)).map(|_| rng.usize(..=len)).collect();
        cuts.sort_unstable();
        cuts
    }

    #[test]
    fn parts_come_back_however_a_form_is_cut() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut held = 0;
        for _ in 0..2000 {
            let parts: Vec<(String, Vec<u8>)> = (0..rng.usize(..4))
                .map(|number| (number.to_string(), near_delimiters(&mut rng, 12)))
                .filter(|(_, data)| {
                    let framed = [b"\r\n", &data[..], b"\r\n"].concat();
                    memchr::memmem::find(&framed, b"\r\n--b-- b").is_none()
                })
                .collect();
            let form = encode(&parts);
            let cuts = random_cuts(&mut rng, form.len());
            let said = decode(&form, Multipart::new(), &cuts);
            assert_eq!(said.refused, None);
            held += parts.iter().filter(|(_, data)| data.ends_with(b"\r\n--")).count();
            let expected: Vec<_> =
                parts.into_iter().map(|(name, data)| (name, data, true)).collect();
            assert_eq!(said.parts, expected, "{cuts:?}");
        }
        assert!(held > 10, "the data is seldom like a delimiter: {held}");
    }

    #[test]
    fn all_cuts_of_a_form_say_the_same() {
        let mut rng = fastrand::Rng::with_seed(8);
        let (mut whole, mut refused) = (0, BTreeMap::<String, usize>::new());
        for _ in 0..1500 {
            let parts: Vec<(String, Vec<u8>)> = (0..rng.usize(..4))
                .map(|number| (number.to_string(), near_delimiters(&mut rng, 8)))
                .collect();
            let mut form = near_delimiters(&mut rng, 3);
            form.extend_from_slice(&encode(&parts));
            form.extend_from_slice(&near_delimiters(&mut rng, 3));
            for _ in 0..rng.usize(..3) {
                let at = rng.usize(..form.len());
                match rng.u8(..3) {
                    0 => form.truncate(at),
                    1 => form[at] = b"\r\n- bx:;\""[rng.usize(..9)],
                    _ => drop(form.drain(at..(at + rng.usize(..4)).min(form.len()))),
                }
                if form.is_empty() {
                    break;
                }
            }
            let limits = Multipart::new()
                .parts(rng.u32(1..5))
                .part_bytes(rng.u64(0..40))
                .head_bytes(rng.usize(40..90));
            let said = decode(&form, limits, &[]);
            for cut in 0..=form.len() {
                assert_eq!(decode(&form, limits, &[cut]), said, "{cut} of {}", form.escape_ascii());
            }
            let bytes: Vec<usize> = (0..form.len()).collect();
            assert_eq!(decode(&form, limits, &bytes), said);
            assert_eq!(decode(&form, limits, &random_cuts(&mut rng, form.len())), said);
            match said.refused {
                None => whole += 1,
                Some(text) => *refused.entry(text.replace(char::is_numeric, "")).or_default() += 1,
            }
        }
        assert!(whole > 100 && refused.len() > 5, "{whole} whole, {refused:?}");
    }

    #[test]
    fn limits_are_exact() {
        let form = encode(&[("n".into(), vec![b'x'; 10]), ("m".into(), vec![])]);
        let head = b"Content-Disposition: form-data; name=\"n\"\r\n\r\n".len().max(64);
        let fits = Multipart::new().parts(2).part_bytes(10).head_bytes(head);
        let refused = |limits| decode(&form, limits, &[]).refused.unwrap_or_default();
        assert_eq!(refused(fits), "");
        assert!(refused(fits.parts(1)).contains("413 Content Too Large: the form has more than 1"));
        assert!(refused(fits.part_bytes(9)).contains("a part of the form has more than 9 bytes"));
        let long = [b"--b-- b\r\nA: ", &[b'a'; 100][..]].concat();
        let said = decode(&long, Multipart::new().head_bytes(70), &[]).refused.unwrap();
        assert!(
            said.contains("413 Content Too Large: the head of a part has more than 70"),
            "{said}"
        );
        for (len, is_taken) in [(1022, true), (1023, false)] {
            let form = [&vec![b'-'; len][..], b"\r\n--b-- b--"].concat();
            let said = decode(&form, Multipart::new(), &[]);
            assert_eq!(said.refused.is_none(), is_taken, "{len} bytes: {said:?}");
        }
    }

    #[test]
    fn the_media_type_has_one_boundary() {
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        let cases: [(&[u8], u16); 8] = [
            (b"", 415),
            (b"multipart/mixed; boundary=b", 415),
            (b"multipart/form-data", 400),
            (b"multipart/form-data; boundary=", 400),
            (b"multipart/form-data; boundary=a; boundary=b", 400),
            (b"multipart/form-data; boundary=\"a ", 400),
            (b"multipart/form-data; boundary=\"a \"", 400),
            (long.as_bytes(), 400),
        ];
        for (kind, status) in cases {
            let refused = FormDecoder::new(Some(kind), Multipart::new()).err();
            let status_of = refused.map(|error| error.status().code());
            assert_eq!(status_of, Some(status), "{}", kind.escape_ascii());
        }
        assert!(FormDecoder::new(None, Multipart::new()).is_err());
    }
}
