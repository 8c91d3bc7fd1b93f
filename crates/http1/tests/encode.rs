//! What the encoders write, and what they refuse to write.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Seen, bodies, latin, refusal, requests, responses};
use windlass_http1::EncodeError::*;
use windlass_http1::{
    Asked, BodyEncoder, EncodeError, Framing, Method, RequestEncoder, ResponseEncoder, Version,
};

fn asked(method: Method, version: Version) -> Asked {
    Asked::new(method, version)
}

fn get() -> Asked {
    asked(Method::Get, Version::Http11)
}

fn old() -> Asked {
    asked(Method::Get, Version::Http10)
}

/// A response of this status: what was written, and whether the connection is kept.
fn written(
    asked: Asked,
    status: u16,
    end: impl FnOnce(ResponseEncoder<'_>) -> Result<BodyEncoder, EncodeError>,
    data: &[&str],
) -> Result<(String, bool), EncodeError> {
    let mut out = b"before ".to_vec();
    let head = ResponseEncoder::new(&mut out, asked, status);
    let body = head.and_then(end);
    let mut body = match body {
        Ok(body) => body,
        Err(error) => {
            assert_eq!(out, b"before ", "a head that fails leaves nothing");
            return Err(error);
        }
    };
    for part in data {
        body.data(&mut out, part.as_bytes())?;
    }
    let keeps = body.keep_alive();
    body.end(&mut out)?;
    Ok((latin(&out[7..]), keeps))
}

fn ok(text: &str, keeps: bool) -> Result<(String, bool), EncodeError> {
    Ok((text.to_owned(), keeps))
}

#[test]
fn responses_are_framed_as_asked() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    let length = |n| move |head: ResponseEncoder<'_>| head.length(n);
    let five = head("Content-Length: 5\r\n");
    assert_eq!(
        written(get(), 200, length(5), &["hel", "", "lo"]),
        ok(&(five.clone() + "hello"), true)
    );
    let close = head("Content-Length: 5\r\nConnection: close\r\n") + "hello";
    let last = Asked { keep_alive: false, ..get() };
    assert_eq!(written(last, 200, length(5), &["hello"]), ok(&close, false));
    // A client of HTTP/1.0 that has asked to keep the connection takes silence for a yes.
    assert_eq!(written(old(), 200, length(5), &["hello"]), ok(&close, false));
    let keeps = Asked { keep_alive: true, ..old() };
    let keep_alive = head("Content-Length: 5\r\nConnection: keep-alive\r\n") + "hello";
    assert_eq!(written(keeps, 200, length(5), &["hello"]), ok(&keep_alive, true));

    let chunked = |head: ResponseEncoder<'_>| head.chunked();
    let closing = head("Connection: close\r\n");
    let chunks = head("Transfer-Encoding: chunked\r\n") + "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    assert_eq!(written(get(), 200, chunked, &["hel", "", "lo"]), ok(&chunks, true));
    // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
    assert_eq!(
        written(keeps, 200, chunked, &["hel", "lo"]),
        ok(&(closing.clone() + "hello"), false)
    );

    // The answer to a HEAD has the head of the answer to a GET.
    let method = asked(Method::Head, Version::Http11);
    assert_eq!(written(method, 200, length(5), &["hello"]), ok(&five, true));
    let chunks = head("Transfer-Encoding: chunked\r\n");
    assert_eq!(written(method, 200, chunked, &["hello"]), ok(&chunks, true));
    let method = asked(Method::Head, Version::Http10);
    assert_eq!(written(method, 200, chunked, &["hello"]), ok(&closing, false));

    let empty = |head: ResponseEncoder<'_>| head.empty();
    assert_eq!(written(get(), 200, empty, &[]), ok(&head("Content-Length: 0\r\n"), true));
    let nothing = ok("HTTP/1.1 204 No Content\r\n\r\n", true);
    assert_eq!(written(get(), 204, empty, &[]), nothing);
    let not_modified = ok("HTTP/1.1 304 Not Modified\r\n\r\n", true);
    assert_eq!(written(get(), 304, empty, &[]), not_modified);
    let length_of_other = ok("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", true);
    assert_eq!(written(get(), 304, length(5), &[]), length_of_other);
    assert_eq!(written(last, 103, empty, &[]), ok("HTTP/1.1 103 Early Hints\r\n\r\n", true));
    assert_eq!(
        written(get(), 299, empty, &[]),
        ok("HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n", true)
    );
}

#[test]
fn responses_that_do_not_fit_are_refused() {
    let length = |n| move |head: ResponseEncoder<'_>| head.length(n);
    let empty = |head: ResponseEncoder<'_>| head.empty();
    let chunked = |head: ResponseEncoder<'_>| head.chunked();
    assert_eq!(written(get(), 200, length(5), &["hell"]), Err(TooShort));
    assert_eq!(written(get(), 200, length(5), &["hello", "!"]), Err(TooLong));
    assert_eq!(written(get(), 200, empty, &["!"]), Err(NoBody));
    assert_eq!(
        written(asked(Method::Head, Version::Http11), 200, length(1), &["ab"]),
        Err(TooLong)
    );
    for status in [100, 204, 205] {
        assert_eq!(written(get(), status, length(0), &[]), Err(NoBody), "{status}");
        assert_eq!(written(get(), status, chunked, &[]), Err(NoBody), "{status}");
    }
    for status in [0, 99, 600, 1000] {
        assert_eq!(written(get(), status, empty, &[]), Err(Status), "{status}");
    }
    assert_eq!(written(old(), 100, empty, &[]), Err(Status));
    assert_eq!(written(get(), 101, empty, &[]), Err(Status));
    let connect = asked(Method::Connect, Version::Http11);
    assert_eq!(written(connect, 200, empty, &[]), Err(Status));
    assert_eq!(written(connect, 200, length(5), &[]), Err(Status));
    assert!(written(connect, 502, empty, &[]).is_ok());
}

#[test]
fn protocols_are_switched() {
    let mut out = Vec::new();
    fn head(out: &mut Vec<u8>, asked: Asked, status: u16) -> ResponseEncoder<'_> {
        ResponseEncoder::new(out, asked, status).expect("a status")
    }
    let offers = Asked { upgrade: true, ..get() };
    assert_eq!(head(&mut out, get(), 101).switch("a"), Err(Status));
    assert_eq!(head(&mut out, offers, 200).switch("a"), Err(Status));
    assert_eq!(head(&mut out, offers, 101).switch("a\r\n"), Err(Value));
    assert_eq!(head(&mut out, offers, 101).switch(""), Err(Value));
    assert_eq!(head(&mut out, get(), 200).tunnel(), Err(Status));
    assert!(out.is_empty());
    head(&mut out, offers, 101).switch("websocket").expect("a switch");
    let seen = responses(&[offers], &out);
    assert!(
        matches!(&seen[0], Seen::Response(head) if head.upgrade.as_deref() == Some("websocket"))
    );
    out.clear();
    let connect = asked(Method::Connect, Version::Http11);
    head(&mut out, connect, 200).tunnel().expect("a tunnel");
    assert_eq!(out, b"HTTP/1.1 200 OK\r\n\r\n");
}

#[test]
fn protocols_are_offered() {
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, get(), 426).expect("a status");
    assert_eq!(head.offer("a\n"), Err(Value));
    head.offer("a/1").expect("an offer");
    head.close();
    assert!(!head.empty().expect("no body").keep_alive());
    assert!(
        latin(&out)
            .ends_with("Upgrade: a/1\r\nContent-Length: 0\r\nConnection: close, Upgrade\r\n\r\n")
    );
    let mut head = ResponseEncoder::new(&mut out, get(), 103).expect("a status");
    assert_eq!(head.offer("a/1"), Err(Status));
}

/// A proxy that passes a TE on would promise what its own server cannot hold.
#[test]
fn connection_names_a_te() {
    for (closes, protocol, connection) in
        [(false, None, "TE"), (true, None, "close, TE"), (true, Some("a/1"), "close, TE, Upgrade")]
    {
        let mut out = Vec::new();
        let mut head = RequestEncoder::new(&mut out, "GET", "/", "h").expect("a request");
        head.field("te", "trailers").expect("a field");
        if let Some(protocol) = protocol {
            head.upgrade(protocol).expect("an offer");
        }
        if closes {
            head.close();
        }
        head.empty();
        let end = format!("\r\nConnection: {connection}\r\n\r\n");
        assert!(latin(&out).ends_with(&end), "{}", latin(&out));
    }
    let mut out = Vec::new();
    let mut head = RequestEncoder::new(&mut out, "GET", "/", "h").expect("a request");
    assert_eq!(head.field("TE", "a\n"), Err(Value));
    head.empty();
    assert_eq!(latin(&out), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

/// What would end a line, or begin a second message.
#[test]
fn nothing_is_injected() {
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, get(), 200).expect("a status");
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "\x7f", "\x0b", "a\r\n\r\nHTTP/1.1 200 OK"] {
        assert_eq!(head.field("a", value), Err(Value), "{value:?}");
        assert_eq!(RequestEncoder::new(&mut Vec::new(), "GET", "/", value).err(), Some(Host));
        assert_eq!(RequestEncoder::new(&mut Vec::new(), "GET", value, "a").err(), Some(Target));
        assert_eq!(RequestEncoder::new(&mut Vec::new(), value, "/", "a").err(), Some(Method));
        let mut line = Vec::new();
        let reason = ResponseEncoder::with_reason(&mut line, get(), 200, value.as_bytes());
        assert_eq!(reason.err(), Some(Value));
    }
    for name in ["", "a b", "a:", "a\r\n", "a\n", " a", "\u{e9}", "a\0"] {
        assert_eq!(head.field(name, "b"), Err(Name), "{name:?}");
    }
    for name in ["content-length", "Transfer-Encoding", "CONNECTION", "upgrade", "host"] {
        assert_eq!(head.field(name, "0"), Err(Framing), "{name:?}");
    }
    head.field("a", "b\tc \u{e9}").expect("a value");
    head.length(0).expect("no body");
    assert_eq!(latin(&out).matches("\r\n").count(), 4, "what was refused is left out");
}

#[test]
fn trailers_are_checked() {
    let chunked = |out: &mut Vec<u8>, asked| {
        let mut body = ResponseEncoder::new(out, asked, 200).unwrap().chunked().unwrap();
        body.data(out, b"hi").unwrap();
        body
    };
    for (name, value, error) in [
        ("a b", "c", Name),
        ("a", "b\r\nc", Value),
        ("Content-Length", "5", Framing),
        ("TE", "a", Framing),
    ] {
        let mut out = Vec::new();
        let body = chunked(&mut out, get());
        let len = out.len();
        let trailers = [("x", &b"y"[..]), (name, value.as_bytes())];
        assert_eq!(body.end_with(&mut out, trailers), Err(error));
        assert_eq!(out.len(), len);
    }
    let mut out = Vec::new();
    chunked(&mut out, get()).end_with(&mut out, [("Md5", &b"abc"[..])]).expect("trailers");
    let seen = responses(&[get()], &out);
    assert_eq!(seen[2], Seen::Trailers(vec![("Md5".to_owned(), "abc".to_owned())]));
    let mut out = Vec::new();
    chunked(&mut out, old()).end_with(&mut out, [("Md5", &b"abc"[..])]).expect("left out");
    assert!(out.ends_with(b"\r\n\r\nhi"));
}

/// A program that has the body in memory of its own writes what is around it.
#[test]
fn bodies_can_be_sent_apart() {
    let mut out = Vec::new();
    let mut body = ResponseEncoder::new(&mut out, get(), 200).unwrap().chunked().unwrap();
    assert!(body.is_sent());
    out.clear();
    body.before(&mut out, 300).expect("a chunk");
    assert_eq!(out, b"12c\r\n");
    body.after(&mut out, 300);
    assert_eq!(out, b"12c\r\n\r\n");
    let head = asked(Method::Head, Version::Http11);
    let body = ResponseEncoder::new(&mut out, head, 200).unwrap().chunked().unwrap();
    assert!(!body.is_sent());
}

#[test]
fn requests_are_what_the_server_reads() {
    let mut out = Vec::new();
    let mut head = RequestEncoder::new(&mut out, "POST", "/a?b", "example.com:81").unwrap();
    head.field("Accept", "*/*").unwrap();
    head.upgrade("a/1").unwrap();
    head.close();
    let told = head.asked();
    let mut body = head.chunked().unwrap();
    assert!(!body.keep_alive());
    body.data(&mut out, b"hello").unwrap();
    body.end(&mut out).unwrap();
    let seen = requests(&out);
    let request = common::only_request(&seen);
    assert_eq!(request.asked, told);
    assert_eq!((request.target.as_str(), request.framing), ("/a?b", Framing::Chunked));
    assert_eq!(request.upgrade.as_deref(), Some("a/1"));
    assert_eq!(bodies(&seen), [b"hello"]);

    let text = |method: &str, target: &str| {
        let mut out = Vec::new();
        RequestEncoder::new(&mut out, method, target, "h").unwrap().empty();
        assert_eq!(refusal(&requests(&out)), None);
        latin(&out)
    };
    assert_eq!(text("GET", "/"), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(text("POST", "/"), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(text("CONNECT", "a:1"), "CONNECT a:1 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(text("OPTIONS", "*"), "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");

    for (method, target) in
        [("GET", "*"), ("GET", "a"), ("CONNECT", "/"), ("GET", "/ b"), ("GET", "")]
    {
        assert_eq!(RequestEncoder::new(&mut out, method, target, "h").err(), Some(Target));
    }
    for method in ["CONNECT", "TRACE"] {
        let target = if method == "TRACE" { "/" } else { "a:1" };
        let head = RequestEncoder::new(&mut out, method, target, "h").unwrap();
        assert_eq!(head.length(0).err(), Some(NoBody));
    }
}
