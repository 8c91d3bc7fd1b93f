//! Requests that two servers could read in two ways, and the rules that refuse them.
#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use windlass_http1::Rule::{self, *};

/// A request that would be smuggled.
pub const SECRET: &str = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";

/// All tables of whole requests, with the rule and the status.
pub const REQUESTS: &[&[(&str, Rule, u16)]] = &[
    LINES_END_WITH_CR_LF,
    EMPTY_LINES_IN_FRONT_ARE_BOUNDED,
    REQUEST_LINES_HAVE_THREE_WORDS,
    VERSIONS_ARE_TWO,
    FIELDS_ARE_NOT_FOLDED_REQUESTS,
    THERE_IS_ONE_VALID_HOST,
    THE_CODING_IS_CHUNKED_REQUESTS,
    A_CONNECT_HAS_NO_BODY,
];

/// All tables of fields behind a request line and a Host.
pub const FIELDS: &[&[(&str, Rule)]] = &[
    NAMES_ARE_TOKENS_WITHOUT_SPACE,
    FIELDS_ARE_NOT_FOLDED,
    VALUES_HAVE_NO_CONTROL_BYTES,
    LENGTHS_ARE_ONE_NUMBER,
    A_LENGTH_AND_A_CODING_ARE_ONE_TOO_MANY,
    THE_CODING_IS_CHUNKED,
    EXPECTATIONS_ARE_ONE,
];

/// All tables of chunked bodies.
pub const CHUNKS: &[&[(&str, Rule)]] = &[
    SIZES_OF_CHUNKS_ARE_HEXADECIMAL,
    CHUNKS_END_WITH_CR_LF,
    EXTENSIONS_OF_CHUNKS_HAVE_NO_LINE_ENDS,
    TRAILERS_CHANGE_NO_FRAMING,
    TRAILERS_ARE_AS_STRICT_AS_HEADS,
];

/// Request lines whose target does not fit.
pub const TARGETS: &[&str] = &[
    "GET * HTTP/1.1",
    "GET a HTTP/1.1",
    "GET a:80 HTTP/1.1",
    "GET ?a HTTP/1.1",
    "GET /#a HTTP/1.1",
    "GET /\u{e9} HTTP/1.1",
    "GET http:///a HTTP/1.1",
    "GET http://u:p@b/ HTTP/1.1",
    "GET ftp://b/ HTTP/1.1",
    "GET /\\..\\a HTTP/1.1",
    "OPTIONS *a HTTP/1.1",
    "CONNECT / HTTP/1.1",
    "CONNECT a HTTP/1.1",
    "CONNECT a: HTTP/1.1",
    "CONNECT a:0x50 HTTP/1.1",
    "CONNECT http://a:80 HTTP/1.1",
];

pub const LINES_END_WITH_CR_LF: &[(&str, Rule, u16)] = &[
    ("GET / HTTP/1.1\nHost: a\n\n", LineEnd, 400),
    ("GET / HTTP/1.1\nHost: a\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nB:\nHost: a\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\r\n\n", LineEnd, 400),
    ("GET / HTTP/1.0\n\n", LineEnd, 400),
    ("GET / HTTP/1.0\r\n\n", LineEnd, 400),
    ("GET / HTTP/1.1\rHost: a\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\rB: c\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\r\n\rB: c\r\n\r\n", LineEnd, 400),
    ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", LineEnd, 400),
    ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
    ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
];

pub const EMPTY_LINES_IN_FRONT_ARE_BOUNDED: &[(&str, Rule, u16)] = &[
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", EmptyLine, 400),
    ("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
    ("\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
];

pub const REQUEST_LINES_HAVE_THREE_WORDS: &[(&str, Rule, u16)] = &[
    ("GET /\r\n\r\n", RequestLine, 400),
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / b HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTP/1.1\tx\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / \r\n\r\n", RequestLine, 400),
    ("GET HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("\x16\x03\x01\x02", RequestLine, 400),
    ("{}", RequestLine, 400),
];

pub const VERSIONS_ARE_TWO: &[(&str, Rule, u16)] = &[
    ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Version, 505),
    ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", Version, 505),
    ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", Version, 505),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Version, 505),
    ("GET / http/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTP/1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
];

pub const NAMES_ARE_TOKENS_WITHOUT_SPACE: &[(&str, Rule)] = &[
    ("A : b\r\n", FieldName),
    ("A\t: b\r\n", FieldName),
    ("Transfer-Encoding : chunked\r\n", FieldName),
    ("Content-Length : 5\r\n", FieldName),
    (": b\r\n", FieldName),
    ("A\r\n", FieldName),
    ("A b: c\r\n", FieldName),
    ("A[]: c\r\n", FieldName),
    ("\u{e9}: c\r\n", FieldName),
    ("\0: c\r\n", FieldName),
    ("A\0: c\r\n", FieldName),
    ("Content-Length\x0b: 5\r\n", FieldName),
];

pub const FIELDS_ARE_NOT_FOLDED: &[(&str, Rule)] = &[
    ("A: b\r\n c\r\n", Folded),
    ("A: b\r\n\tc\r\n", Folded),
    ("A:\r\n b\r\n", Folded),
    ("Transfer-Encoding:\r\n chunked\r\n", Folded),
    ("A: b\r\n \r\n", Folded),
];

pub const FIELDS_ARE_NOT_FOLDED_REQUESTS: &[(&str, Rule, u16)] =
    &[("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Folded, 400)];

pub const VALUES_HAVE_NO_CONTROL_BYTES: &[(&str, Rule)] = &[
    ("A: b\0c\r\n", FieldValue),
    ("A: \x07\r\n", FieldValue),
    ("A: b\x0bc\r\n", FieldValue),
    ("A: b\x7fc\r\n", FieldValue),
    ("A: b\x1b[0m\r\n", FieldValue),
    ("Transfer-Encoding: \x0bchunked\r\n", FieldValue),
    ("A: b\rc\r\n", LineEnd),
];

pub const THERE_IS_ONE_VALID_HOST: &[(&str, Rule, u16)] = &[
    ("GET / HTTP/1.1\r\n\r\n", HostMissing, 400),
    ("GET / HTTP/1.1\r\nXost: a\r\n\r\n", HostMissing, 400),
    ("GET http://a/ HTTP/1.1\r\n\r\n", HostMissing, 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HostRepeated, 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", HostRepeated, 400),
    ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", HostRepeated, 400),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", HostInvalid, 400),
    ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", HostInvalid, 400),
];

pub const LENGTHS_ARE_ONE_NUMBER: &[(&str, Rule)] = &[
    ("Content-Length: 5\r\nContent-Length: 6\r\n", LengthRepeated),
    ("Content-Length: 5\r\nContent-Length: 5\r\n", LengthRepeated),
    ("Content-Length: 0\r\ncontent-length: 44\r\n", LengthRepeated),
    ("Content-Length: 5, 5\r\n", LengthInvalid),
    ("Content-Length: 5,\r\n", LengthInvalid),
    ("Content-Length: +5\r\n", LengthInvalid),
    ("Content-Length: -5\r\n", LengthInvalid),
    ("Content-Length: -123456789123456789123456789\r\n", LengthInvalid),
    ("Content-Length: 0x5\r\n", LengthInvalid),
    ("Content-Length: 5 5\r\n", LengthInvalid),
    ("Content-Length: 5;a\r\n", LengthInvalid),
    ("Content-Length: 5.0\r\n", LengthInvalid),
    ("Content-Length: 1e1\r\n", LengthInvalid),
    ("Content-Length: \"5\"\r\n", LengthInvalid),
    ("Content-Length: \u{665}\r\n", LengthInvalid),
    ("Content-Length:\r\n", LengthInvalid),
    ("Content-Length: abc\r\n", LengthInvalid),
    ("Content-Length: 18446744073709551616\r\n", BodyTooLong),
    ("Content-Length: 18446744073709551621\r\n", BodyTooLong),
];

pub const A_LENGTH_AND_A_CODING_ARE_ONE_TOO_MANY: &[(&str, Rule)] = &[
    ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LengthWithCoding),
    ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", LengthWithCoding),
    ("content-LengtH: 5\r\nTransFer-Encoding: CHUNKED\r\n", LengthWithCoding),
];

pub const THE_CODING_IS_CHUNKED: &[(&str, Rule)] = &[
    ("Transfer-Encoding: gzip, chunked\r\n", CodingUnknown),
    ("Transfer-Encoding: a;b=c, chunked\r\n", CodingUnknown),
    ("Transfer-Encoding: gzip\r\n", CodingNotChunked),
    ("Transfer-Encoding: identity\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunked, identity\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunked, gzip\r\n", CodingNotChunked),
    ("Transfer-Encoding: xchunked\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunkedx\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunked;a=b\r\n", CodingNotChunked),
    ("Transfer-Encoding: \"chunked\"\r\n", CodingNotChunked),
    ("Transfer-Encoding: x chunked\r\n", CodingNotChunked),
    ("Transfer-Encoding: ,chunked\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunked,\r\n", CodingNotChunked),
    ("Transfer-Encoding:\r\n", CodingNotChunked),
    ("Transfer-Encoding: chunked, chunked\r\n", CodingRepeated),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CodingRepeated),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", CodingRepeated),
    ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", CodingNotChunked),
];

pub const THE_CODING_IS_CHUNKED_REQUESTS: &[(&str, Rule, u16)] = &[(
    "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    CodingInVersion10,
    400,
)];

pub const A_CONNECT_HAS_NO_BODY: &[(&str, Rule, u16)] = &[
    ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n", ConnectWithBody, 400),
    (
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ConnectWithBody,
        400,
    ),
];

pub const EXPECTATIONS_ARE_ONE: &[(&str, Rule)] = &[
    ("Expect: 200-ok\r\n", Expectation),
    ("Expect: 100-continue, b\r\n", Expectation),
    ("Expect: 100-continue\r\nExpect: b\r\n", Expectation),
    ("Expect:\r\n", Expectation),
];

pub const SIZES_OF_CHUNKS_ARE_HEXADECIMAL: &[(&str, Rule)] = &[
    ("\r\n", ChunkSize),
    ("+5\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("-5\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("0x5\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("5_0\r\nhello\r\n0\r\n\r\n", ChunkSize),
    (" 5\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("5 \r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("5\t\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("g\r\n", ChunkSize),
    ("5,5\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("10000000000000000\r\n", ChunkSize),
    ("10000000000000005\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("ffffffffffffffff\r\n", BodyTooLong),
    ("fffffffffffffffff\r\n", ChunkSize),
    ("00000000000000005\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ("\u{665}\r\nhello\r\n0\r\n\r\n", ChunkSize),
];

pub const CHUNKS_END_WITH_CR_LF: &[(&str, Rule)] = &[
    ("5\nhello\r\n0\r\n\r\n", LineEnd),
    ("5\r\nhello\n0\r\n\r\n", ChunkEnd),
    ("5\r\nhello0\r\n\r\n", ChunkEnd),
    ("5\r\nhello!\r\n0\r\n\r\n", ChunkEnd),
    ("5\r\nhello\r0\r\n\r\n", ChunkEnd),
    ("5\r\nhello\r\n0\n\r\n", LineEnd),
    ("0\r\n\n", LineEnd),
    ("0\r\n\rG", LineEnd),
];

pub const EXTENSIONS_OF_CHUNKS_HAVE_NO_LINE_ENDS: &[(&str, Rule)] = &[
    ("5;a\nhello\r\n0\r\n\r\n", LineEnd),
    ("5;a\rb\r\nhello\r\n0\r\n\r\n", LineEnd),
    ("5;\n\r\nhello\r\n0\r\n\r\n", LineEnd),
    ("5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", LineEnd),
    ("5;a=\"\r\"\r\nhello\r\n0\r\n\r\n", LineEnd),
    ("5;a=\"b\r\n\"\r\nhello\r\n0\r\n\r\n", ChunkExtension),
    ("0;a\n\r\n", LineEnd),
    ("5;\r\nhello\r\n0\r\n\r\n", ChunkExtension),
    ("5;a=\0\r\nhello\r\n0\r\n\r\n", ChunkExtension),
    ("5 ;a\r\nhello\r\n0\r\n\r\n", ChunkSize),
];

pub const TRAILERS_CHANGE_NO_FRAMING: &[(&str, Rule)] = &[
    ("0\r\nContent-Length: 5\r\n\r\n", TrailerForbidden),
    ("0\r\nTransfer-Encoding: chunked\r\n\r\n", TrailerForbidden),
    ("0\r\nhost: b\r\n\r\n", TrailerForbidden),
    ("0\r\nConnection: close\r\n\r\n", TrailerForbidden),
    ("0\r\nUpgrade: a\r\n\r\n", TrailerForbidden),
    ("0\r\nA: b\r\nTE: c\r\n\r\n", TrailerForbidden),
];

pub const TRAILERS_ARE_AS_STRICT_AS_HEADS: &[(&str, Rule)] = &[
    ("0\r\nA : b\r\n\r\n", FieldName),
    ("0\r\n: b\r\n\r\n", FieldName),
    ("0\r\n A: b\r\n\r\n", Folded),
    ("0\r\nA: b\r\n c\r\n\r\n", Folded),
    ("0\r\nA: b\nC: d\r\n\r\n", LineEnd),
    ("0\r\nA: b\n\n", LineEnd),
    ("0\r\nA: b\rc\r\n\r\n", LineEnd),
    ("0\r\nA: \0\r\n\r\n", FieldValue),
    ("0\r\n\0: b\r\n\r\n", FieldName),
];
