//! A client's request: a GET or HEAD of HTTP/1 without a body, and a byte range.
//!
//! The parser refuses ambiguous requests, and the server then closes the connection: one reader
//! might take bytes for a body that another takes for the next request.

use httparse::{Header, Status};
use percent_encoding::percent_decode_str;

/// Most bytes of a request's head, and of its first line's target.
const MOST_HEAD: usize = 8 << 10;
const MOST_TARGET: usize = 2 << 10;
const MOST_HEADERS: usize = 64;

const BAD: &str = "400 Bad Request";
const TARGET_TOO_LONG: &str = "414 URI Too Long";
const HEAD_TOO_LONG: &str = "431 Request Header Fields Too Large";

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) shape: Shape,
}

/// The parts of a request that any answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) head_only: bool,
    pub(crate) keep: bool,
}

/// The status that refuses a request, and the shape of the answer.
pub(crate) type Refusal = (&'static str, Shape);

/// The request at the start of `input`, with its length; or the refusal.
pub(crate) fn parse(input: &[u8]) -> Result<Status<(usize, Request)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let parsing = parsed.parse(input);
    let method = parsed.method.unwrap_or_default();
    // The answer to a HEAD never has a body.
    let shape = Shape { head_only: method == "HEAD", keep: false };
    let refuse = |status| Err((status, shape));
    let target = parsed.path.unwrap_or_default();
    let len = match parsing {
        Ok(Status::Complete(len)) if len <= MOST_HEAD => len,
        Ok(Status::Partial) if input.len() <= MOST_HEAD => return Ok(Status::Partial),
        // The target is there as soon as its line goes on.
        Ok(_) if parsed.path.is_none_or(|path| path.len() > MOST_TARGET) => {
            return refuse(TARGET_TOO_LONG);
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return refuse(HEAD_TOO_LONG),
        Err(_) => return refuse(BAD),
    };
    if target.len() > MOST_TARGET {
        return refuse(TARGET_TOO_LONG);
    }
    if !matches!(method, "GET" | "HEAD") {
        return refuse("405 Method Not Allowed");
    }
    let newer = parsed.version == Some(1);
    let fields = Fields(parsed.headers);
    let hosts = fields.of("host").count();
    let (Some(path), true) = (path(target), hosts == 1 || hosts == 0 && !newer) else {
        return refuse(BAD);
    };
    if !fields.say_no_body() {
        return refuse(BAD);
    }
    let keep =
        !fields.list("connection", "close") && (newer || fields.list("connection", "keep-alive"));
    let shape = Shape { keep, ..shape };
    // The server sends no validators, so If-Range never matches.
    let conditional = fields.of("if-range").next().is_some();
    let range = fields.only("range").filter(|_| !shape.head_only && !conditional);
    Ok(Status::Complete((len, Request { path, range, shape })))
}

/// The fields of a head.
struct Fields<'a>(&'a [Header<'a>]);

impl<'a> Fields<'a> {
    /// The values of all fields of this name, in small letters.
    fn of(&self, name: &str) -> impl Iterator<Item = String> {
        let named = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| String::from_utf8_lossy(field.value).trim().to_ascii_lowercase())
    }

    /// The value, if there is one field of this name.
    fn only(&self, name: &str) -> Option<String> {
        let mut values = self.of(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Whether a word is in the lists of the fields with this name.
    fn list(&self, name: &str, word: &str) -> bool {
        self.of(name).any(|value| value.split(',').any(|item| item.trim() == word))
    }

    /// Whether all fields say that no body follows the head.
    fn say_no_body(&self) -> bool {
        let lengths = self.of("content-length").count();
        let is_zero = |len: String| number(&len) == Some(0);
        let none = lengths == 0 || self.only("content-length").is_some_and(is_zero);
        none && self.of("transfer-encoding").next().is_none()
    }
}

/// The path of a target, decoded, without host and query.
fn path(target: &str) -> Option<String> {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split(['?', '#']).next()?;
    let path = percent_decode_str(path).decode_utf8().ok()?;
    (path.starts_with('/') && !path.contains('\0')).then(|| path.into_owned())
}

/// A number of digits only; a larger number counts as the maximum.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The range of `bytes=a-b`, `bytes=a-` or `bytes=-n` in `size` bytes: start and end, or
/// `Some(None)` if it lies outside. `None` for ranges that a server may ignore: other units,
/// several ranges, syntax errors.
pub(crate) fn range(text: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, end) = match (first, last) {
        ("", count) => (size.saturating_sub(number(count)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            (first, size.min(last.saturating_add(1)))
        }
    };
    Some((from < end).then_some((from, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Result<Request, Refusal> {
        let head = head.replace('\n', "\r\n");
        match parse(head.as_bytes())? {
            Status::Complete((len, request)) => {
                assert_eq!(len, head.len());
                Ok(request)
            }
            Status::Partial => panic!("{head:?} is whole"),
        }
    }

    #[track_caller]
    fn refused(head: &str, status: &str) {
        match of(head) {
            Err((told, shape)) => {
                assert_eq!(told, status, "{head:?}");
                assert!(!shape.keep, "{head:?}: the connection must be closed");
                assert_eq!(shape.head_only, head.starts_with("HEAD"), "{head:?}");
            }
            Ok(request) => panic!("{head:?} is taken: {request:?}"),
        }
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for method in ["GET", "HEAD"] {
            for fields in [
                // A reader that believes the second field takes five bytes for a body.
                "Host: a\nContent-Length: 0\nContent-Length: 5\n",
                "Host: a\nContent-Length: 0\nContent-Length: 0\n",
                "Host: a\nContent-Length: 0, 5\n",
                "Host: a\nContent-Length: +0\n",
                "Host: a\nContent-Length: 5\n",
                "Host: a\nContent-Length:\n",
                "Host: a\nTransfer-Encoding: chunked\n",
                "Host: a\nContent-Length: 0\nTransfer-Encoding: identity\n",
                "Host: a\nHost: b\n",
                "Host: a\nHost: a\n",
                "",
                "Host : a\n",
            ] {
                refused(&format!("{method} / HTTP/1.1\n{fields}\n"), BAD);
            }
            refused(&format!("{method} / HTTP/1.0\nHost: a\nHost: b\n\n"), BAD);
            refused(&format!("{method} none HTTP/1.1\nHost: a\n\n"), BAD);
            refused(&format!("{method} /%00 HTTP/1.1\nHost: a\n\n"), BAD);
            let long = "x".repeat(MOST_TARGET + 1);
            refused(&format!("{method} /{long} HTTP/1.1\nHost: a\n\n"), TARGET_TOO_LONG);
            let many = "a: b\n".repeat(MOST_HEADERS + 1);
            refused(&format!("{method} / HTTP/1.1\n{many}\n"), HEAD_TOO_LONG);
        }
        refused("POST / HTTP/1.1\nHost: a\n\n", "405 Method Not Allowed");
        let request = of("GET /a%20b?c HTTP/1.1\nHost: a\nContent-Length: 0\n\n").unwrap();
        assert_eq!((&*request.path, request.range), ("/a b", None));
    }

    #[test]
    fn connections_stay_as_all_fields_say() {
        for (version, fields, keep) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\n", false),
            ("1.1", "Connection: foo\nConnection: close\n", false),
            ("1.1", "Connection: foo, Close\nConnection: bar\n", false),
            ("1.1", "Connection: closed\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: foo\nConnection: Keep-Alive\n", true),
            ("1.0", "Connection: keep-alive, close\n", false),
        ] {
            let head = format!("GET / HTTP/{version}\nHost: a\n{fields}\n");
            assert_eq!(of(&head).unwrap().shape, Shape { head_only: false, keep }, "{head:?}");
        }
    }

    #[test]
    fn ranges_are_digits() {
        for (text, means) in [
            ("bytes=0-0", Some(Some((0, 1)))),
            ("bytes=1-2", Some(Some((1, 3)))),
            ("bytes=8-", Some(Some((8, 10)))),
            ("bytes=-3", Some(Some((7, 10)))),
            ("bytes=-99", Some(Some((0, 10)))),
            ("bytes=5-99999999999999999999999", Some(Some((5, 10)))),
            ("bytes=10-", Some(None)),
            ("bytes=99999999999999999999999-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=+1-2", None),
            ("bytes=1-+2", None),
            ("bytes=-+2", None),
            ("bytes=--2", None),
            ("bytes= 1-2", None),
            ("bytes=1 -2", None),
            ("bytes=2-1", None),
            ("bytes=-", None),
            ("bytes=1", None),
            ("bytes=0-1,3-4", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(range(text, 10), means, "{text}");
        }
        let range =
            |fields: &str| of(&format!("GET / HTTP/1.1\nHost: a\n{fields}\n")).unwrap().range;
        assert_eq!(range("Range: Bytes=1-2\n").as_deref(), Some("bytes=1-2"));
        assert_eq!(range("Range: bytes=1-2\nRange: bytes=3-4\n"), None);
        assert_eq!(range("Range: bytes=1-2\nIf-Range: x\n"), None);
    }
}
