//! The fields of a head or of trailers, as offsets, and what some of them say.
//!
//! # Why
//!
//! The fields that decide about framing are looked at in the pass that stores the offsets, once.
//! The same pass sees what httparse lets through: a bare LF.

use std::ops::Range;

use super::target::is_authority;
use crate::bytes::{decimal, elements, is_token, is_word};
use crate::error::Rule;

/// A field, as offsets into the bytes that were decoded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Field {
    name: u32,
    name_len: u32,
    value: u32,
    value_len: u32,
}

impl Field {
    /// Where the name is.
    pub fn name(&self) -> Range<usize> {
        self.name as usize..self.name as usize + self.name_len as usize
    }

    /// Where the value is, without the white space around it.
    pub fn value(&self) -> Range<usize> {
        self.value as usize..self.value as usize + self.value_len as usize
    }
}

/// Memory for the fields of one head.
#[derive(Debug)]
pub(crate) struct Fields {
    table: Box<[Field]>,
    len: usize,
}

impl Fields {
    pub(crate) fn new(most: usize) -> Fields {
        Fields { table: vec![Field::default(); most].into(), len: 0 }
    }

    /// A copy without room for more.
    pub(crate) fn copy(&self) -> Fields {
        Fields { table: self.all().into(), len: self.len }
    }

    pub(crate) fn most(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn all(&self) -> &[Field] {
        &self.table[..self.len]
    }

    /// Stores what httparse has found in `bytes`, and looks at the end of each line.
    ///
    /// `each` gets the number of a field, its name and its value, if a name that matters has the
    /// same length and first letter.
    #[inline]
    pub(crate) fn store<'b>(
        &mut self,
        bytes: &'b [u8],
        found: &[httparse::Header<'b>],
        mut each: impl FnMut(u16, &'b [u8], &'b [u8]) -> Result<(), Rule>,
    ) -> Result<(), Rule> {
        let base = bytes.as_ptr().addr();
        let at = |part: &[u8]| part.as_ptr().addr().wrapping_sub(base);
        let mut ends = true;
        self.len = found.len();
        for (number, (field, header)) in self.table.iter_mut().zip(found).enumerate() {
            let (name, value) = (header.name.as_bytes(), header.value);
            let start = at(name);
            // The byte in front of a name is an LF, or there is none in front of the first trailer.
            ends &= bytes.get(start.wrapping_sub(2)).is_none_or(|byte| *byte == b'\r');
            *field = Field {
                name: start as u32,
                name_len: name.len() as u32,
                value: at(value) as u32,
                value_len: value.len() as u32,
            };
            if FIRST_LETTERS.get(name.len()).is_some_and(|letter| *letter == name[0] | 0x20) {
                each(number as u16, name, value)?;
            }
        }
        if ends && bytes.ends_with(b"\r\n\r\n") { Ok(()) } else { Err(Rule::LineEnd) }
    }

    /// The values of all fields with this name. Names have no case.
    pub(crate) fn values<'a>(
        &'a self,
        bytes: &'a [u8],
        name: &'a str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let is = move |field: &&Field| {
            let own = bytes.get(field.name()).unwrap_or(b"");
            own.eq_ignore_ascii_case(name.as_bytes())
        };
        self.all().iter().filter(is).map(|field| bytes.get(field.value()).unwrap_or(b""))
    }

    /// Whether a field is for this connection only (RFC 9110, 7.6.1).
    pub(crate) fn is_hop_by_hop(&self, bytes: &[u8], name: &str) -> bool {
        const ALWAYS: [&str; 6] =
            ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];
        let is = |other: &[u8]| other.eq_ignore_ascii_case(name.as_bytes());
        ALWAYS.iter().any(|other| is(other.as_bytes()))
            || self.values(bytes, "connection").flat_map(elements).any(is)
    }

    /// Names and values, in their order.
    pub(crate) fn pairs<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.all().iter().map(|field| {
            let name = bytes.get(field.name()).unwrap_or(b"");
            let value = bytes.get(field.value()).unwrap_or(b"");
            (std::str::from_utf8(name).unwrap_or(""), value)
        })
    }
}

/// By the length of a name: the first letter of the name that decides about a message.
const FIRST_LETTERS: [u8; 18] = {
    let mut letters = [0; 18];
    letters[2] = b't'; // te
    letters[4] = b'h'; // host
    letters[6] = b'e'; // expect
    letters[7] = b'u'; // upgrade
    letters[10] = b'c'; // connection
    letters[14] = b'c'; // content-length
    letters[17] = b't'; // transfer-encoding
    letters
};

/// No field.
const NONE: u16 = u16::MAX;

/// What the fields of a head say about the message and the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    pub(crate) length: Option<u64>,
    /// The first field of this name, or [`NONE`].
    host: u16,
    upgrade: u16,
    pub(crate) is_chunked: bool,
    pub(crate) closes: bool,
    pub(crate) keeps_alive: bool,
    upgrades: bool,
    pub(crate) expects_continue: bool,
    pub(crate) is_other_expected: bool,
    pub(crate) takes_trailers: bool,
}

impl Meaning {
    pub(crate) const NOTHING: Meaning = Meaning {
        length: None,
        host: NONE,
        upgrade: NONE,
        is_chunked: false,
        closes: false,
        keeps_alive: false,
        upgrades: false,
        expects_continue: false,
        is_other_expected: false,
        takes_trailers: false,
    };

    /// The number of the Host field.
    pub(crate) fn host(&self) -> Option<usize> {
        (self.host != NONE).then_some(self.host.into())
    }

    /// The number of the first Upgrade field, if Connection names it.
    pub(crate) fn upgrade(&self) -> Option<usize> {
        (self.upgrade != NONE && self.upgrades).then_some(self.upgrade.into())
    }

    /// Looks at a field.
    ///
    /// It stands by itself: its words would take all registers of the loop over the fields.
    #[inline(never)]
    pub(crate) fn see(&mut self, number: u16, name: &[u8], value: &[u8]) -> Result<(), Rule> {
        match name.len() {
            4 if is_word(name, b"host") => {
                if self.host != NONE {
                    return Err(Rule::HostRepeated);
                }
                if !is_authority(value, false) {
                    return Err(Rule::HostInvalid);
                }
                self.host = number;
            }
            10 if is_word(name, b"connection") => self.connection(value),
            14 if is_word(name, b"content-length") => {
                if self.length.is_some() {
                    return Err(Rule::LengthRepeated);
                }
                let number = decimal(value).ok_or(Rule::LengthInvalid)?;
                self.length = Some(number.ok_or(Rule::BodyTooLong)?);
            }
            17 if is_word(name, b"transfer-encoding") => {
                if self.is_chunked {
                    return Err(Rule::CodingRepeated);
                }
                check_coding(value)?;
                self.is_chunked = true;
            }
            6 if is_word(name, b"expect") => {
                let is_known = is_word(value, b"100-continue");
                self.expects_continue |= is_known;
                self.is_other_expected |= !is_known;
            }
            7 if self.upgrade == NONE && is_word(name, b"upgrade") => self.upgrade = number,
            2 if is_word(name, b"te") => {
                self.takes_trailers |= elements(value).any(|element| is_word(element, b"trailers"));
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn connection(&mut self, value: &[u8]) {
        match () {
            () if is_word(value, b"keep-alive") => self.keeps_alive = true,
            () if is_word(value, b"close") => self.closes = true,
            () => self.connection_options(value),
        }
    }

    fn connection_options(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.closes |= is_word(option, b"close");
            self.keeps_alive |= is_word(option, b"keep-alive");
            self.upgrades |= is_word(option, b"upgrade");
        }
    }
}

/// Whether this Transfer-Encoding is `chunked`, and what is wrong with it if not.
fn check_coding(value: &[u8]) -> Result<(), Rule> {
    let is = |element: &[u8]| is_word(element, b"chunked");
    if is(value) {
        return Ok(());
    }
    // An empty element, as in `chunked,`: the grammar has it, and some readers do not.
    let count = value.split(|byte| *byte == b',').count();
    if elements(value).count() != count || !elements(value).all(is_coding) {
        return Err(Rule::CodingNotChunked);
    }
    match elements(value).filter(|element| is(element)).count() {
        2.. => Err(Rule::CodingRepeated),
        1 if elements(value).last().is_some_and(is) => Err(Rule::CodingUnknown),
        _ => Err(Rule::CodingNotChunked),
    }
}

/// Whether it is a token, perhaps with parameters.
fn is_coding(element: &[u8]) -> bool {
    is_token(element.split(|byte| *byte == b';').next().unwrap_or(b""))
}

/// Whether a field must not come as a trailer: it would change the framing, the route or the
/// connection behind the back of those who have read the head (RFC 9110, 6.5.1).
pub(crate) fn is_no_trailer(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"te",
        b"host",
        b"expect",
        b"upgrade",
        b"trailer",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"keep-alive",
    ];
    NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}
