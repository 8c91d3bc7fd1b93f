//! The head of a request.

use std::ops::Range;

use super::fields::{Field, Fields, Meaning};
use super::target::{TargetForm, authority_len, authority_start, form_of};
use super::{Parsed, field_rule, most_fields, nothing_found};
use crate::error::Rule;
use crate::limits::Limits;
use crate::scan::work;
use crate::words::{Asked, Framing, Method, Version};

/// The last request head that was decoded, and the limits for the next ones.
///
/// One of them serves all connections of a thread: it is read between the event
/// [`Head`](crate::Event::Head) and the next call of a decoder. It has offsets. Methods that return
/// bytes take the bytes that were decoded; with others they return others, or nothing.
///
/// ```
/// use windlass_http1::{Event, Framing, Limits, Method, RequestDecoder, RequestHead, Step};
///
/// let mut head = RequestHead::new(Limits::default());
/// let bytes = b"GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n";
/// let step = RequestDecoder::new().decode(&mut head, bytes).unwrap();
/// assert_eq!(step, Step { consumed: bytes.len(), event: Event::Head });
/// assert_eq!((head.kind(), head.path(bytes)), (Method::Get, "/a"));
/// assert_eq!(head.query(bytes), Some("b=c"));
/// assert_eq!(head.authority(bytes), Some("example.com"));
/// assert_eq!(head.get(bytes, "accept"), Some(&b"*/*"[..]));
/// assert_eq!(head.framing(), Framing::Empty);
/// ```
#[derive(Debug)]
pub struct RequestHead {
    pub(crate) limits: Limits,
    pub(crate) fields: Fields,
    known: Meaning,
    start: u32,
    method_len: u32,
    target_len: u32,
    kind: Method,
    form: TargetForm,
    version: Version,
}

impl RequestHead {
    /// Memory for the fields that the limits allow: 16 bytes each. It is the only allocation.
    pub fn new(limits: Limits) -> RequestHead {
        RequestHead {
            fields: Fields::new(most_fields(&limits)),
            limits,
            known: Meaning::NOTHING,
            start: 0,
            method_len: 0,
            target_len: 0,
            kind: Method::Other,
            form: TargetForm::Origin,
            version: Version::Http11,
        }
    }

    /// A copy, for a request that outlives the next one. It has room for the fields of this one
    /// only: decode no other head into it.
    ///
    /// ```
    /// use windlass_http1::{Limits, RequestDecoder, RequestHead};
    ///
    /// let mut head = RequestHead::new(Limits::default());
    /// let (one, two) = (b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /2 HTTP/1.0\r\n\r\n");
    /// RequestDecoder::new().decode(&mut head, one)?;
    /// let kept = head.copy();
    /// RequestDecoder::new().decode(&mut head, two)?;
    /// assert_eq!((kept.target(one), head.target(two)), ("/1", "/2"));
    /// assert_eq!(kept.get(one, "host"), Some(&b"a"[..]));
    /// # Ok::<(), windlass_http1::Error>(())
    /// ```
    pub fn copy(&self) -> RequestHead {
        RequestHead { fields: self.fields.copy(), ..*self }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The method, if it is a usual one.
    pub fn kind(&self) -> Method {
        self.kind
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The form of the target.
    pub fn form(&self) -> TargetForm {
        self.form
    }

    /// Where the body ends.
    pub fn framing(&self) -> Framing {
        match (self.kind, self.known.length) {
            (Method::Connect, _) => Framing::Tunnel,
            _ if self.known.is_chunked => Framing::Chunked,
            (_, Some(length)) if length > 0 => Framing::Length(length),
            _ => Framing::Empty,
        }
    }

    /// Whether a further request may follow on the connection (RFC 9112, 9.3).
    pub fn keep_alive(&self) -> bool {
        let wanted = self.version == Version::Http11 || self.known.keeps_alive;
        wanted && !self.known.closes && self.kind != Method::Connect
    }

    /// Whether the client waits for a `100 Continue` before it sends the body. In HTTP/1.0, and
    /// without a body, the expectation does not count (RFC 9110, 10.1.1).
    pub fn expects_continue(&self) -> bool {
        let has_body = !matches!(self.framing(), Framing::Empty | Framing::Tunnel);
        self.known.expects_continue && self.version == Version::Http11 && has_body
    }

    /// Whether the client takes trailers in the response: `TE: trailers`.
    pub fn accepts_trailers(&self) -> bool {
        self.known.takes_trailers
    }

    /// The protocols that the client offers, best first: the first Upgrade field, if Connection
    /// names it and the version is 1.1 (RFC 9110, 7.8). The program switches behind the whole
    /// request, or ignores the offer.
    ///
    /// What the client sends before the 101 is the next request if the program ignores the offer.
    /// So decode nothing behind the request's end before that is decided.
    pub fn upgrade<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let number = self.known.upgrade().filter(|_| self.version == Version::Http11)?;
        bytes.get(self.fields.all()[number].value())
    }

    /// What the response answers, for the encoder of the response.
    pub fn asked(&self) -> Asked {
        Asked {
            method: self.kind,
            version: self.version,
            keep_alive: self.keep_alive(),
            upgrade: self.known.upgrade().is_some() && self.version == Version::Http11,
        }
    }

    /// Where the method is.
    pub fn method_range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.method_len as usize
    }

    /// Where the target is.
    pub fn target_range(&self) -> Range<usize> {
        let start = self.method_range().end + 1;
        start..start + self.target_len as usize
    }

    /// The method, as it came.
    pub fn method<'b>(&self, bytes: &'b [u8]) -> &'b str {
        self.kind.name().unwrap_or_else(|| text(bytes.get(self.method_range())))
    }

    /// The target, as it came.
    pub fn target<'b>(&self, bytes: &'b [u8]) -> &'b str {
        text(bytes.get(self.target_range()))
    }

    /// The path, as it came: percent-encoded, without the query. An absolute target without a path
    /// has the path `/`; `*` and the target of a CONNECT have themselves.
    pub fn path<'b>(&self, bytes: &'b [u8]) -> &'b str {
        let all = self.path_and_query(bytes);
        match memchr::memchr(b'?', all.as_bytes()).map_or(all, |at| &all[..at]) {
            "" => "/",
            path => path,
        }
    }

    /// What stands behind the `?`, as it came.
    pub fn query<'b>(&self, bytes: &'b [u8]) -> Option<&'b str> {
        self.path_and_query(bytes).split_once('?').map(|(_, query)| query)
    }

    fn path_and_query<'b>(&self, bytes: &'b [u8]) -> &'b str {
        let target = self.target(bytes);
        match self.form {
            TargetForm::Absolute => {
                let start = authority_start(target.as_bytes());
                let len = authority_len(target.as_bytes()).unwrap_or(0);
                target.get(start + len..).unwrap_or("")
            }
            _ => target,
        }
    }

    /// The host and port that the client means: the target's, else those of Host (RFC 9112, 3.2.2).
    /// HTTP/1.0 may have none.
    pub fn authority<'b>(&self, bytes: &'b [u8]) -> Option<&'b str> {
        let target = self.target(bytes);
        match self.form {
            TargetForm::Authority => Some(target),
            TargetForm::Absolute => {
                let start = authority_start(target.as_bytes());
                target.get(start..start + authority_len(target.as_bytes())?)
            }
            _ => {
                let field = self.fields.all().get(self.known.host()?)?;
                Some(text(bytes.get(field.value())))
            }
        }
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
    ///
    /// ```
    /// use windlass_http1::{Limits, RequestDecoder, RequestHead};
    ///
    /// let mut head = RequestHead::new(Limits::default());
    /// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: B\r\nB: c\r\nD: e\r\n\r\n";
    /// RequestDecoder::new().decode(&mut head, bytes)?;
    /// let passed = head.fields(bytes).filter(|(name, _)| !head.is_hop_by_hop(bytes, name));
    /// assert_eq!(passed.collect::<Vec<_>>(), [("Host", &b"a"[..]), ("D", b"e")]);
    /// # Ok::<(), windlass_http1::Error>(())
    /// ```
    pub fn is_hop_by_hop(&self, bytes: &[u8], name: &str) -> bool {
        self.fields.is_hop_by_hop(bytes, name)
    }

    /// Parses a head that begins at `start`, and returns where it ends.
    #[inline]
    pub(crate) fn parse(&mut self, bytes: &[u8], start: usize) -> Result<Parsed, Rule> {
        let mut found = nothing_found();
        let mut request = httparse::Request::new(&mut []);
        let most = self.fields.most();
        let window = &bytes[start..];
        match request.parse_with_uninit_headers(window, &mut found[..most]) {
            Ok(httparse::Status::Complete(len)) => {
                work::add(len);
                self.accept(&bytes[..start + len], start, &request)?;
                Ok(Parsed::Whole(start + len))
            }
            Ok(httparse::Status::Partial) => {
                work::add(window.len());
                Ok(Parsed::Part { line_end: line_end(window, &request) })
            }
            Err(error) => {
                work::add(window.len());
                Err(request_rule(error, window))
            }
        }
    }

    /// The same, off the path of heads that come whole.
    #[inline(never)]
    pub(crate) fn parse_again(&mut self, bytes: &[u8], start: usize) -> Result<Parsed, Rule> {
        self.parse(bytes, start)
    }

    #[inline]
    fn accept(
        &mut self,
        bytes: &[u8],
        start: usize,
        found: &httparse::Request<'_, '_>,
    ) -> Result<(), Rule> {
        let (method, target) = (found.method.unwrap_or(""), found.path.unwrap_or(""));
        self.start = start as u32;
        self.method_len = method.len() as u32;
        self.target_len = target.len() as u32;
        self.kind = Method::of(method.as_bytes());
        let is_11 = found.version == Some(1);
        self.version = if is_11 { Version::Http11 } else { Version::Http10 };
        self.known = Meaning::NOTHING;
        let known = &mut self.known;
        self.fields
            .store(bytes, found.headers, |number, name, value| known.see(number, name, value))?;
        self.form = form_of(self.kind, target.as_bytes()).ok_or(Rule::Target)?;
        let known = &self.known;
        if is_11 && known.host().is_none() {
            return Err(Rule::HostMissing);
        }
        if known.is_chunked || known.length.is_some() {
            self.accept_body()?;
        }
        if known.is_other_expected && is_11 {
            return Err(Rule::Expectation);
        }
        Ok(())
    }

    fn accept_body(&self) -> Result<(), Rule> {
        let Meaning { is_chunked, length, .. } = self.known;
        match () {
            () if is_chunked && self.version == Version::Http10 => Err(Rule::CodingInVersion10),
            () if is_chunked && length.is_some() => Err(Rule::LengthWithCoding),
            () if self.kind == Method::Connect => Err(Rule::ConnectWithBody),
            () if length.is_some_and(|length| length > self.limits.body) => Err(Rule::BodyTooLong),
            () => Ok(()),
        }
    }

    /// How long the first line is, without its end.
    #[inline]
    pub(crate) fn line_len(&self) -> usize {
        (self.method_len + self.target_len) as usize + " HTTP/1.1 ".len()
    }
}

fn text(bytes: Option<&[u8]>) -> &str {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
}

/// Where the LF of a request line is, if a parse of a part of the head came so far.
fn line_end(window: &[u8], found: &httparse::Request<'_, '_>) -> Option<usize> {
    found.version?;
    let len = found.method?.len() + found.path?.len() + " HTTP/1.1 ".len();
    match window.get(len..)? {
        [b'\n', ..] => Some(len),
        [b'\r', b'\n', ..] => Some(len + 1),
        _ => None,
    }
}

/// The rule behind an error of httparse. `window` begins with the request line.
#[cold]
fn request_rule(error: httparse::Error, window: &[u8]) -> Rule {
    let end = memchr::memchr(b'\n', window).unwrap_or(window.len());
    let (line, fields) = window.split_at(end);
    match error {
        httparse::Error::Version => version_rule(line),
        httparse::Error::Token | httparse::Error::Status => Rule::RequestLine,
        httparse::Error::NewLine if !ends_well(line) => Rule::RequestLine,
        _ => field_rule(error, fields),
    }
}

/// Whether the version is the end of a request line, or a CR in it has made another end.
fn ends_well(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or(b"");
    is_known(version) || line.contains(&b'\r')
}

/// Whether a line names a version that is not served, or none at all.
fn version_rule(line: &[u8]) -> Rule {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_other = |version: &[u8]| {
        matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() && !is_known(version))
    };
    match line.rsplit(|byte| *byte == b' ').next() {
        Some(version) if is_other(version) => Rule::Version,
        _ => Rule::RequestLine,
    }
}

fn is_known(version: &[u8]) -> bool {
    [Version::Http10, Version::Http11].iter().any(|known| known.as_str().as_bytes() == version)
}
