//! The 33 cases of h1spec (github.com/uNetworking/h1spec), as a table of our own.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Seen, bodies, requests};

/// What the codec says.
enum Says {
    Waits,
    /// This status.
    Refuses(u16),
    /// A request with this body.
    Takes(&'static str),
}

const HOST: &str = "Host: example.com\r\n";

#[test]
fn all_33_cases() {
    use Says::{Refuses, Takes, Waits};
    let get = |fields: &str| format!("GET / HTTP/1.1\r\n{HOST}{fields}\r\n");
    let post = |rest: &str| format!("POST / HTTP/1.1\r\n{HOST}{rest}");
    let cases: Vec<(String, Says)> = vec![
        ("G".into(), Waits),
        ("GET ".into(), Waits),
        ("GET /hello".into(), Waits),
        ("GET /hello ".into(), Waits),
        ("GET /hello HTTP".into(), Waits),
        ("GET /hello HTTP/1.1".into(), Waits),
        ("GET /hello HTTP/1.1\r".into(), Waits),
        ("GET /hello HTTP/1.1\r\n".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHos".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost:".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost: ".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost: localhost".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost: localhost\r".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost: localhost\r\n".into(), Waits),
        ("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r".into(), Waits),
        // No version.
        ("GET / \r\n\r\n".into(), Refuses(400)),
        (get("Expect: 100-continue\r\n"), Takes("")),
        (get(""), Takes("")),
        ("GET / HTTP/1.1\r\nhoSt:\texample.com\r\nempty:\r\n\r\n".into(), Takes("")),
        (get("X-Invalid[]: test\r\n"), Refuses(400)),
        // No Host.
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n".into(), Refuses(400)),
        (get("Host: example.org\r\n"), Refuses(400)),
        (get("Content-Length: -123456789123456789123456789\r\n"), Refuses(400)),
        (get("Content-Length: -1234\r\n"), Refuses(400)),
        (get("Content-Length: abc\r\n"), Refuses(400)),
        (get("X-Empty-Header: \r\n"), Takes("")),
        (get("X-Bad-Control-Char: test\x07\r\n"), Refuses(400)),
        ("GET / HTTP/9.9\r\nHost: example.com\r\n\r\n".into(), Refuses(505)),
        ("Extra lineGET / HTTP/1.1\r\nHost: example.com\r\n\r\n".into(), Refuses(400)),
        (get("\rSome-Header: Test\r\n"), Refuses(400)),
        (post("Content-Length: 5\r\n\r\nhello"), Takes("hello")),
        (
            post("Transfer-Encoding: chunked\r\n\r\nc\r\nHellO world1\r\n0\r\n\r\n"),
            Takes("HellO world1"),
        ),
        (
            post(concat!(
                "content-LengtH: 5\r\nTransFer-Encoding: chunked\r\n\r\n",
                "c\r\nHellO world1\r\n0\r\n\r\n",
            )),
            Refuses(400),
        ),
    ];
    assert_eq!(cases.len(), 33);
    for (input, says) in cases {
        let seen = requests(&input);
        match says {
            Waits => assert_eq!(seen, [Seen::Waits(input.len())], "{input:?}"),
            Refuses(status) => assert!(
                matches!(seen[..], [Seen::Refused(_, found)] if found == status),
                "{input:?}: {seen:?}"
            ),
            Takes(body) => {
                assert_eq!(bodies(&seen), [body.as_bytes()], "{input:?}: {seen:?}");
                assert_eq!(seen.last(), Some(&Seen::Waits(0)));
            }
        }
    }
}
