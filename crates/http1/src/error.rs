//! What is wrong with a message, and the status that answers it.
//!
//! # Why
//!
//! One list for both roles: a rule has one name, one text and one status, wherever it is broken.

use std::fmt;

/// A message that the codec refuses.
///
/// The codec cannot find the next message behind it. A server answers with [`Error::status`] and
/// closes. A client closes, and repeats the request if that does no harm; a gateway answers with
/// 502, which is the status of each error in a response. A decoder that has refused a message
/// returns the same error for ever.
///
/// ```
/// use windlass_http1::{Limits, RequestDecoder, RequestHead, Rule};
///
/// let mut head = RequestHead::new(Limits::default());
/// let bytes = b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n";
/// let error = RequestDecoder::new().decode(&mut head, bytes).unwrap_err();
/// assert_eq!((error.status(), error.rule()), (400, Rule::FieldName));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    rule: Rule,
    is_response: bool,
}

impl Error {
    pub(crate) fn of_request(rule: Rule) -> Error {
        Error { rule, is_response: false }
    }

    pub(crate) fn of_response(rule: Rule) -> Error {
        Error { rule, is_response: true }
    }

    /// The rule or the limit that the message breaks.
    pub fn rule(self) -> Rule {
        self.rule
    }

    /// The status of the answer: of a server to its client, and 502 if a response is wrong.
    pub fn status(self) -> u16 {
        if self.is_response { 502 } else { self.rule.status() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule.text())
    }
}

impl std::error::Error for Error {}

/// Makes the list of rules: a name, the status for a request, a text.
macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident $status:literal $text:literal,)+) => {
        /// A rule or a limit, each with the status that answers a request that breaks it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])+ $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$name,)+];

            /// The status that answers a request.
            pub fn status(self) -> u16 {
                match self {
                    $(Rule::$name => $status,)+
                }
            }

            /// What is wrong, for a log or for the body of the answer.
            pub fn text(self) -> &'static str {
                match self {
                    $(Rule::$name => $text,)+
                }
            }
        }
    };
}

rules! {
    /// Method, target and version, with one space between them (RFC 9112, 3).
    RequestLine 400 "the request line is not a method, a target and a version",
    /// The form of the target does not fit the method, or it has bytes that no target may have
    /// (RFC 9112, 3.2).
    Target 400 "the target is not valid for the method",
    /// [`Limits::line`](crate::Limits::line).
    LineTooLong 414 "the first line is longer than the limit",
    /// A version other than 1.0 and 1.1 (RFC 9110, 15.6.6).
    Version 505 "the version of HTTP is neither 1.0 nor 1.1",
    /// Version, three digits and a reason (RFC 9112, 4).
    StatusLine 400 "the status line is not a version, a status and a reason",
    /// A line that ends without CR LF, or a CR elsewhere (RFC 9112, 2.2).
    LineEnd 400 "a line does not end with CR LF",
    /// More than one empty line in front of a request (RFC 9112, 2.2).
    EmptyLine 400 "there are empty lines in front of the request",
    /// A name that is no token, an empty one, or space around it (RFC 9112, 5.1).
    FieldName 400 "the name of a field is not a token and a colon",
    /// A field that goes on in the next line (RFC 9112, 5.2).
    Folded 400 "a field is folded over two lines",
    /// Control bytes in a value (RFC 9110, 5.5).
    FieldValue 400 "the value of a field has control bytes",
    /// [`Limits::fields`](crate::Limits::fields), of a head and of trailers.
    TooManyFields 431 "there are more fields than the limit",
    /// [`Limits::head`](crate::Limits::head).
    HeadTooLong 431 "the head is longer than the limit",
    /// A request of HTTP/1.1 without Host (RFC 9112, 3.2).
    HostMissing 400 "there is no Host",
    /// Two Host fields (RFC 9112, 3.2).
    HostRepeated 400 "there are several Host fields",
    /// A Host that is empty, or no host with a port (RFC 9110, 7.2 and 4.2.1).
    HostInvalid 400 "the Host is not a host with an optional port",
    /// A Content-Length that is no number: a sign, a list, a space (RFC 9110, 8.6).
    LengthInvalid 400 "the Content-Length is not a number",
    /// Two Content-Length fields, equal ones too (RFC 9112, 6.3).
    LengthRepeated 400 "there are several Content-Length fields",
    /// Content-Length and Transfer-Encoding in one message (RFC 9112, 6.3).
    LengthWithCoding 400 "there are Content-Length and Transfer-Encoding",
    /// [`Limits::body`](crate::Limits::body), or a number of 2^64 and more.
    BodyTooLong 413 "the body is longer than the limit",
    /// Several Transfer-Encoding fields, or `chunked` twice (RFC 9112, 6.1).
    CodingRepeated 400 "chunked or Transfer-Encoding is there several times",
    /// A Transfer-Encoding whose last coding is not `chunked` (RFC 9112, 6.3).
    CodingNotChunked 400 "the last transfer coding is not chunked",
    /// A transfer coding in front of `chunked` (RFC 9112, 6.1).
    CodingUnknown 501 "the only transfer coding that is known is chunked",
    /// A Transfer-Encoding in HTTP/1.0 (RFC 9112, 6.1).
    CodingInVersion10 400 "HTTP/1.0 has no Transfer-Encoding",
    /// A CONNECT with Content-Length or Transfer-Encoding (RFC 9110, 9.3.6).
    ConnectWithBody 400 "a CONNECT has no body",
    /// An expectation other than `100-continue` (RFC 9110, 10.1.1).
    Expectation 417 "the only expectation that is known is 100-continue",
    /// A chunk size that is empty, not hexadecimal, or of 2^64 and more (RFC 9112, 7.1).
    ChunkSize 400 "the size of a chunk is not a hexadecimal number of 1 to 16 digits",
    /// A chunk extension that is none (RFC 9112, 7.1.1).
    ChunkExtension 400 "the extension of a chunk is malformed",
    /// [`Limits::chunk_line`](crate::Limits::chunk_line).
    ChunkLineTooLong 400 "the line in front of a chunk is longer than the limit",
    /// [`Limits::extensions`](crate::Limits::extensions), over all chunks of a body.
    ExtensionsTooLong 400 "the extensions of the chunks are longer than the limit",
    /// No CR LF behind the data of a chunk (RFC 9112, 7.1).
    ChunkEnd 400 "there is no CR LF behind the data of a chunk",
    /// A trailer that would change the framing or the route (RFC 9110, 6.5.1).
    TrailerForbidden 400 "a field is not allowed as a trailer",
    /// [`Limits::trailers`](crate::Limits::trailers).
    TrailersTooLong 431 "the trailers are longer than the limit",
    /// Bytes from a server that owes no response (RFC 9112, 9.2).
    Unsolicited 400 "there is a response without a request",
    /// A 101 without an Upgrade in the request (RFC 9110, 7.8).
    SwitchUnasked 400 "the server switches protocols unasked",
    /// A 1xx or 204 that says it has a body (RFC 9110, 8.6; RFC 9112, 6.1).
    BodyForbidden 400 "a response without a body has a length or a transfer coding",
    /// [`Limits::interim`](crate::Limits::interim), over all 1xx in front of a response.
    InterimTooLong 400 "the 1xx responses are longer than the limit",
    /// The end of the input inside of a head.
    HeadTruncated 400 "the input ends inside of a head",
    /// The end of the input inside of a body (RFC 9112, 8).
    BodyTruncated 400 "the input ends inside of a body",
}
