//! Requests that are valid, and what the head says about them.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Requests, Seen, bodies, only_request, requests, same_at_every_cut};
use windlass_http1::{Framing, Method, Rule, Version};

fn fields(request: &common::Request) -> Vec<(&str, &str)> {
    request.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn a_head_has_its_parts() {
    let seen =
        requests("GET /a/b?c=d&e HTTP/1.1\r\nHost: example.com:81\r\nA:b\r\nC: \t d e \t\r\n\r\n");
    let request = only_request(&seen);
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/a/b?c=d&e"));
    assert_eq!((request.path.as_str(), request.query.as_deref()), ("/a/b", Some("c=d&e")));
    assert_eq!(request.authority.as_deref(), Some("example.com:81"));
    assert_eq!((request.version, request.framing), (Version::Http11, Framing::Empty));
    assert_eq!(fields(request), [("Host", "example.com:81"), ("A", "b"), ("C", "d e")]);
    assert_eq!(seen[1..], [Seen::End, Seen::Waits(0)]);
}

#[test]
fn fields_may_be_empty_or_have_high_bytes() {
    let seen =
        requests(b"GET / HTTP/1.1\r\nhoSt:\ta\r\nempty:\r\nblank: \t \r\nhigh: \xff\x80\r\n\r\n");
    let all = [("hoSt", "a"), ("empty", ""), ("blank", ""), ("high", "\u{ff}\u{80}")];
    assert_eq!(fields(only_request(&seen)), all);
}

#[test]
fn names_are_any_tokens() {
    let seen = requests("M-SEARCH * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(common::refusal(&seen), Some((Rule::Target, 400)), "only OPTIONS has *");
    let seen = requests("!#$%&'*+-.^_`|~ / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09aZ: b\r\n\r\n");
    let request = only_request(&seen);
    assert_eq!(request.method, "!#$%&'*+-.^_`|~");
    assert_eq!(request.asked.method, Method::Other);
    assert_eq!(request.fields[1].0, "!#$%&'*+-.^_`|~09aZ");
}

#[test]
fn targets_say_whom_they_mean() {
    for (line, path, query, authority) in [
        ("GET /", "/", None, "h"),
        ("GET /?", "/", Some(""), "h"),
        ("GET /a?b?c", "/a", Some("b?c"), "h"),
        ("GET //a//b", "//a//b", None, "h"),
        ("GET http://a", "/", None, "a"),
        ("GET http://a/", "/", None, "a"),
        ("GET http://a?b", "/", Some("b"), "a"),
        ("GET HTTP://A:1/b?c", "/b", Some("c"), "A:1"),
        ("GET https://[::1]:8/b", "/b", None, "[::1]:8"),
        ("OPTIONS *", "*", None, "h"),
        ("OPTIONS http://a", "/", None, "a"),
        ("CONNECT a:443", "a:443", None, "a:443"),
    ] {
        let seen = requests(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let request = only_request(&seen);
        assert_eq!(
            (request.path.as_str(), request.query.as_deref(), request.authority.as_deref()),
            (path, query, Some(authority)),
            "{line}"
        );
    }
}

#[test]
fn hosts_are_names_and_addresses() {
    for host in ["a", "a.b-c", "a_b", "1.2.3.4:80", "[::1]", "[::ffff:1.2.3.4]:65535", "%61", "A"] {
        let seen = requests(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(only_request(&seen).authority.as_deref(), Some(host));
    }
    let seen = requests("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(only_request(&seen).authority, None, "HTTP/1.0 needs no Host");
}

#[test]
fn bodies_have_lengths() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:";
    for (length, body) in [("0", ""), ("1", "b"), ("5", "hello"), ("0005", "hello")] {
        let seen = requests(format!("{head} {length}\r\n\r\n{body}"));
        assert_eq!(bodies(&seen), [body.as_bytes()], "{length}");
        assert_eq!(seen.last(), Some(&Seen::Waits(0)));
    }
    let seen = requests(format!("{head} 5\r\n\r\nhell"));
    assert_eq!(seen[1..], [Seen::Body(b"hell".to_vec()), Seen::Waits(0)]);
    assert_eq!(only_request(&seen).framing, Framing::Length(5));
}

#[test]
fn bodies_have_chunks_and_trailers() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (chunks, body, trailers) in [
        ("0\r\n\r\n", "", &[][..]),
        ("000\r\n\r\n", "", &[]),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", &[]),
        ("5;a=b\r\nhello\r\n6;c;d=\"e;\\\"\"\r\n world\r\n0;f\r\n\r\n", "hello world", &[]),
        ("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", &[]),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", &[]),
        (
            "1\r\na\r\n0\r\nMd5: b\r\nSize:4\r\nempty:\r\n\r\n",
            "a",
            &[("Md5", "b"), ("Size", "4"), ("empty", "")],
        ),
    ] {
        let seen = requests(format!("{head}{chunks}"));
        assert_eq!(bodies(&seen), [body.as_bytes()], "{chunks:?}");
        assert_eq!(only_request(&seen).framing, Framing::Chunked);
        let found = seen.iter().find_map(|event| match event {
            Seen::Trailers(all) => Some(all.clone()),
            _ => None,
        });
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let expected: Vec<_> = trailers.iter().map(owned).collect();
        assert_eq!(found.unwrap_or_default(), expected, "{chunks:?}");
        assert_eq!(seen.last(), Some(&Seen::Waits(0)));
    }
}

#[test]
fn codings_have_no_case() {
    let seen =
        requests("POST / HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING: ChUnKeD\r\n\r\n0\r\n\r\n");
    assert_eq!(only_request(&seen).framing, Framing::Chunked);
}

/// RFC 9112, 9.3: whether the next request is read.
#[test]
fn connections_are_kept_or_closed() {
    for (head, keeps) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: a, close ,b\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: a\r\nConnection: close\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection:\r\n", true),
        ("GET / HTTP/1.0\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: a, Keep-Alive\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: close, keep-alive\r\n", false),
    ] {
        let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        let seen = requests(format!("{head}\r\n{next}"));
        assert_eq!(only_request(&seen).asked.keep_alive, keeps, "{head:?}");
        let is_next = |event: &Seen| matches!(event, Seen::Request(r) if r.target == "/next");
        assert_eq!(seen.iter().any(is_next), keeps, "{head:?}");
        if !keeps {
            assert_eq!(seen[1..], [Seen::End, Seen::Closed, Seen::Waits(next.len())], "{head:?}");
        }
    }
}

#[test]
fn clients_expect_a_continue() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n";
    for (head, expects) in [
        (format!("{post}Content-Length: 5\r\n"), true),
        (format!("{post}Transfer-Encoding: chunked\r\n"), true),
        (post.to_owned(), false),
        (format!("{post}Content-Length: 0\r\n"), false),
        ("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n".to_owned(), false),
        ("POST / HTTP/1.0\r\nExpect: a\r\nContent-Length: 5\r\n".to_owned(), false),
    ] {
        assert_eq!(only_request(&requests(format!("{head}\r\n"))).expects, expects, "{head:?}");
    }
}

#[test]
fn upgrades_are_offered_by_two_fields() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (head, upgrade) in [
        (format!("{get}Connection: Upgrade\r\nUpgrade: websocket\r\n"), Some("websocket")),
        (format!("{get}Upgrade: a/1, b\r\nConnection: keep-alive, upgrade\r\n"), Some("a/1, b")),
        (format!("{get}Upgrade: websocket\r\n"), None),
        (format!("{get}Connection: Upgrade\r\n"), None),
        ("GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n".to_owned(), None),
    ] {
        let seen = requests(format!("{head}\r\n"));
        let request = only_request(&seen);
        assert_eq!(request.upgrade.as_deref(), upgrade, "{head:?}");
        assert_eq!(request.asked.upgrade, upgrade.is_some(), "{head:?}");
    }
}

/// The body belongs to the request, and what follows it to the protocol that takes over.
#[test]
fn an_upgrade_keeps_what_follows() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: b\r\n\
                   Content-Length: 2\r\n\r\nhi";
    let input = format!("{request}\x01\x05hello");
    let mut server = Requests::new(windlass_http1::Limits::default());
    let (mut at, mut seen) = (0, Vec::new());
    // The program stops at the end of the request.
    while seen.last() != Some(&Seen::End) {
        let (consumed, event) =
            common::Decode::step(&mut server, &input.as_bytes()[at..]).expect("a request");
        at += consumed;
        seen.extend(event);
    }
    assert_eq!(bodies(&seen), [b"hi"]);
    assert_eq!(&input[at..], "\x01\x05hello");
}

#[test]
fn some_fields_are_for_one_connection() {
    let fields = "Connection: A, close\r\nconnection: b-c\r\na: 1\r\nB-C: 2\r\nTE: trailers\r\n\
                  Keep-Alive: 5\r\nUpgrade: x\r\nProxy-Connection: y\r\nD: 3\r\nAA: 4\r\n";
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
    let mut server = Requests::new(windlass_http1::Limits::default());
    server.decoder.decode(&mut server.head, &bytes).expect("a head");
    let head = &server.head;
    let passed = head.fields(&bytes).filter(|(name, _)| !head.is_hop_by_hop(&bytes, name));
    let names: Vec<&str> = passed.map(|(name, _)| name).collect();
    assert_eq!(names, ["Host", "D", "AA"]);
}

#[test]
fn a_connect_is_the_last_request() {
    let seen = requests("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(only_request(&seen).framing, Framing::Tunnel);
    assert_eq!(seen[1..], [Seen::End, Seen::Closed, Seen::Waits(18)]);
}

#[test]
fn requests_come_in_one_piece() {
    let get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz";
    let chunks =
        "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n";
    let seen = requests(format!("{get}{post}{chunks}{get}").repeat(3));
    assert_eq!(bodies(&seen), [&b""[..], b"xyz", b"1", b""].repeat(3));
    assert_eq!(seen.last(), Some(&Seen::Waits(0)));
}

#[test]
fn one_empty_line_is_skipped() {
    let get = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let seen = requests(get.repeat(3));
    assert_eq!(bodies(&seen).len(), 3);
    assert_eq!(fields(only_request(&seen)), [("Host", "a")]);
    assert_eq!(requests("\r\n"), [Seen::Waits(0)]);
    assert_eq!(requests("\r"), [Seen::Waits(1)]);
}

#[test]
fn the_input_ends_between_requests_or_inside() {
    let ends = |input: &str| {
        let make = || Requests::new(windlass_http1::Limits::default());
        same_at_every_cut(make, input.as_bytes(), true).pop().expect("an event")
    };
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    assert_eq!(ends(""), Seen::Closed);
    assert_eq!(ends("\r\n"), Seen::Closed);
    assert_eq!(ends(&format!("{head}\r\n")), Seen::Closed);
    assert_eq!(ends(&format!("{head}Connection: close\r\n\r\nrest")), Seen::Closed);
    assert_eq!(ends("G"), Seen::Refused(Rule::HeadTruncated, 400));
    assert_eq!(ends(head), Seen::Refused(Rule::HeadTruncated, 400));
    for body in ["Content-Length: 5\r\n\r\nhell", "Content-Length: 5\r\n\r\n"] {
        assert_eq!(ends(&format!("{head}{body}")), Seen::Refused(Rule::BodyTruncated, 400));
    }
    for chunks in ["", "5", "5\r\n", "5\r\nhello", "5\r\nhello\r", "0\r\n", "0\r\nA: b\r\n"] {
        let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(ends(&request), Seen::Refused(Rule::BodyTruncated, 400), "{chunks:?}");
    }
}
