//! The head of a response.

use std::ops::Range;

use super::fields::{Field, Fields, Meaning};
use super::{Parsed, field_rule, most_fields, nothing_found};
use crate::bytes::is_word;
use crate::error::Rule;
use crate::limits::Limits;
use crate::scan::work;
use crate::words::{Asked, Framing, Method, Version};

/// The last response head that was decoded, and the limits for the next ones.
///
/// One of them serves all connections of a thread. It has offsets, as
/// [`RequestHead`](crate::RequestHead) has.
///
/// ```
/// use windlass_http1::{Asked, Event, Limits, Method, ResponseDecoder, ResponseHead, Version};
///
/// let mut head = ResponseHead::new(Limits::default());
/// let mut decoder = ResponseDecoder::new();
/// decoder.expect(Asked::new(Method::Get, Version::Http11));
/// let bytes = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
/// assert_eq!(decoder.decode(&mut head, bytes).unwrap().event, Event::Head);
/// assert_eq!((head.status(), head.reason(bytes)), (404, &b"Not Found"[..]));
/// ```
#[derive(Debug)]
pub struct ResponseHead {
    pub(crate) limits: Limits,
    pub(crate) fields: Fields,
    known: Meaning,
    reason: (u32, u32),
    status: u16,
    version: Version,
    framing: Framing,
}

impl ResponseHead {
    /// Memory for the fields that the limits allow: 16 bytes each. It is the only allocation.
    pub fn new(limits: Limits) -> ResponseHead {
        ResponseHead {
            fields: Fields::new(most_fields(&limits)),
            limits,
            known: Meaning::NOTHING,
            reason: (0, 0),
            status: 0,
            version: Version::Http11,
            framing: Framing::Empty,
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The status: 100 to 999.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the body ends. It follows from the request, too (RFC 9112, 6.3).
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The Content-Length, also if there is no body: in responses to HEAD, and in a 304.
    pub fn content_length(&self) -> Option<u64> {
        self.known.length
    }

    /// Whether the connection is open for a further request behind this response.
    pub fn keep_alive(&self) -> bool {
        let wanted = self.version == Version::Http11 || self.known.keeps_alive;
        let has_end = !matches!(self.framing, Framing::UntilClose | Framing::Tunnel);
        wanted && !self.known.closes && has_end
    }

    /// The protocol that the server has switched to, or offers: the first Upgrade field, if
    /// Connection names it.
    pub fn upgrade<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        bytes.get(self.fields.all()[self.known.upgrade()?].value())
    }

    /// Where the reason is.
    pub fn reason_range(&self) -> Range<usize> {
        self.reason.0 as usize..(self.reason.0 + self.reason.1) as usize
    }

    /// The reason behind the status. Nothing depends on it, and it may be empty.
    pub fn reason<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.reason_range()).unwrap_or(b"")
    }

    /// The fields, as offsets. Behind the event [`Trailers`](crate::Event::Trailers), these and
    /// what follows are those of the trailers.
    pub fn offsets(&self) -> &[Field] {
        self.fields.all()
    }

    /// Names and values of the fields, in their order. Values may have bytes above 127.
    pub fn fields<'b>(
        &'b self,
        bytes: &'b [u8],
    ) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> {
        self.fields.pairs(bytes)
    }

    /// The value of the first field with this name, in any case.
    pub fn get<'b>(&'b self, bytes: &'b [u8], name: &'b str) -> Option<&'b [u8]> {
        self.get_all(bytes, name).next()
    }

    /// The values of all fields with this name, in any case.
    pub fn get_all<'b>(&'b self, bytes: &'b [u8], name: &'b str) -> impl Iterator<Item = &'b [u8]> {
        self.fields.values(bytes, name)
    }

    /// Whether a proxy passes no field with this name on: Connection names it, or it is always for
    /// one connection only (RFC 9110, 7.6.1). Host and Content-Length are passed on, and an encoder
    /// writes them itself.
    pub fn is_hop_by_hop(&self, bytes: &[u8], name: &str) -> bool {
        self.fields.is_hop_by_hop(bytes, name)
    }

    /// Whether a further response to the same request follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Parses the head that the bytes begin with, and returns where it ends.
    pub(crate) fn parse(&mut self, bytes: &[u8], asked: Asked) -> Result<Parsed, Rule> {
        let mut found = nothing_found();
        let mut response = httparse::Response::new(&mut []);
        let most = self.fields.most();
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            bytes,
            &mut found[..most],
        );
        match parsed {
            Ok(httparse::Status::Complete(len)) => {
                work::add(len);
                self.accept(&bytes[..len], asked, &response)?;
                Ok(Parsed::Whole(len))
            }
            Ok(httparse::Status::Partial) => {
                work::add(bytes.len());
                // The reason is there once its line has ended.
                let line_end = response.reason.and_then(|_| memchr::memchr(b'\n', bytes));
                Ok(Parsed::Part { line_end })
            }
            Err(error) => {
                work::add(bytes.len());
                Err(response_rule(error, bytes))
            }
        }
    }

    fn accept(
        &mut self,
        bytes: &[u8],
        asked: Asked,
        found: &httparse::Response<'_, '_>,
    ) -> Result<(), Rule> {
        let is_11 = found.version == Some(1);
        self.version = if is_11 { Version::Http11 } else { Version::Http10 };
        self.status = found.code.filter(|code| *code >= 100).ok_or(Rule::StatusLine)?;
        // httparse returns no reason with bytes above 127.
        let start = "HTTP/1.1 200 ".len().min(self.line_len(bytes));
        self.reason = (start as u32, (self.line_len(bytes) - start) as u32);
        self.known = Meaning::NOTHING;
        let known = &mut self.known;
        self.fields.store(bytes, found.headers, |number, name, value| {
            // Host means nothing in a response.
            if is_word(name, b"host") { Ok(()) } else { known.see(number, name, value) }
        })?;
        let known = self.known;
        if known.is_chunked && known.length.is_some() {
            return Err(Rule::LengthWithCoding);
        }
        if known.is_chunked && !is_11 {
            return Err(Rule::CodingInVersion10);
        }
        self.framing = self.framing_for(asked)?;
        match self.framing {
            Framing::Length(length) if length > self.limits.body => Err(Rule::BodyTooLong),
            _ => Ok(()),
        }
    }

    /// The rules of RFC 9112, 6.3, in their order.
    fn framing_for(&self, asked: Asked) -> Result<Framing, Rule> {
        let Meaning { is_chunked, length, .. } = self.known;
        match self.status {
            101 if !asked.upgrade || self.known.upgrade().is_none() => Err(Rule::SwitchUnasked),
            // A length of 0 in a 204 is forbidden, too, and so frequent that it stays.
            100..=199 | 204 if is_chunked || length.is_some_and(|length| length > 0) => {
                Err(Rule::BodyForbidden)
            }
            101 => Ok(Framing::Tunnel),
            200..=299 if asked.method == Method::Connect => Ok(Framing::Tunnel),
            100..=199 | 204 | 304 => Ok(Framing::Empty),
            _ if asked.method == Method::Head => Ok(Framing::Empty),
            _ if is_chunked => Ok(Framing::Chunked),
            _ => Ok(match length {
                Some(0) => Framing::Empty,
                Some(length) => Framing::Length(length),
                None => Framing::UntilClose,
            }),
        }
    }

    /// How long the first line is, without its end.
    pub(crate) fn line_len(&self, bytes: &[u8]) -> usize {
        memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len())
    }
}

/// The rule behind an error of httparse.
#[cold]
fn response_rule(error: httparse::Error, bytes: &[u8]) -> Rule {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let (line, fields) = bytes.split_at(end);
    match error {
        httparse::Error::Version => match line {
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, ..]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                Rule::Version
            }
            _ => Rule::StatusLine,
        },
        httparse::Error::Token | httparse::Error::Status => Rule::StatusLine,
        _ => field_rule(error, fields),
    }
}
