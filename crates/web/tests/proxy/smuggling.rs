//! Requests that two servers could read in two ways: the server behind the proxy sees one request,
//! or none.

use crate::every_driver;
use crate::net::Harness;
use crate::scene::Scene;

every_driver! {
    what_can_be_read_in_two_ways_does_not_go_on
    what_goes_on_has_one_frame
}

/// What a client sends, and whether it goes on.
const NONE: &[&str] = &[
    // Two lengths, or a length and a coding.
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\
     \r\nG",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1\r\n\
     Z\r\nQ",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 2\r\n\r\na",
    // Codings that only one of two servers takes for chunks.
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\
     \r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    // Folded lines, bare line feeds, spaces.
    "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    "GET / HTTP/1.1\nHost: h\n\n",
    "GET / HTTP/1.1\r\nHost: h\r\nA: b\n\r\n",
    "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nA\x00: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nA: \x00b\r\n\r\n",
    "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
    // Hosts.
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a/../b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n",
    // Tunnels.
    "CONNECT inner:22 HTTP/1.1\r\nHost: inner:22\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Bodies whose beginning is valid: the server gets a part of it, and never its end.
const PARTS: &[&str] = &[
    "1\r\na\r\n1;a=\"\nb\"\r\nb\r\n0\r\n\r\n",
    "1\r\na\r\n0x1\r\nb\r\n0\r\n\r\n",
    "1\r\na\r\n+1\r\nb\r\n0\r\n\r\n",
    "1\r\na\r\n 1\r\nb\r\n0\r\n\r\n",
    "1\r\na\r\n1\nb\r\n0\r\n\r\n",
    "1\r\na\r\n1\r\nbb\r\n0\r\n\r\n",
    "1\r\na\r\nffffffffffffffff1\r\nb\r\n0\r\n\r\n",
    "1\r\na\r\n0\r\nHost: b\r\n\r\n",
    "1\r\na\r\n0\r\nContent-Length: 5\r\n\r\n",
    "1\r\na\r\n0\r\n A: b\r\n\r\n",
    "1\r\na\r\n0\r\nA: b\n\r\n",
];

fn what_can_be_read_in_two_ways_does_not_go_on<T: Harness>() {
    for &bytes in NONE {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(format!("{bytes}GET /second HTTP/1.1\r\nHost: h\r\n\r\n"));
        scene.hears(client, "\r\n\r\n");
        let heard = scene.text(client);
        let is_refused = heard.starts_with("HTTP/1.1 4") || heard.starts_with("HTTP/1.1 50");
        assert!(is_refused, "{bytes:?}: {heard}");
        scene.settle();
        for inner in scene.inner.clone() {
            let heard = scene.text(inner);
            assert!(heard.is_empty() || heard.starts_with("GET /second "), "{bytes:?}: {heard}");
        }
    }
    for part in PARTS {
        let mut scene = Scene::new::<T>();
        let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let client = scene.ask(format!("{head}{part}GET /second HTTP/1.1\r\nHost: h\r\n\r\n"));
        scene.hears(client, "HTTP/1.1 4");
        scene.settle();
        for inner in scene.inner.clone() {
            scene.until("its connection ends", |scene| {
                scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
            });
            let heard = scene.text(inner);
            assert!(
                !heard.contains("/second") && !heard.contains("\r\n0\r\n"),
                "{part:?}: {heard}"
            );
        }
    }
}

/// What a client sends, and what the server gets of its first request, without the fields that the
/// proxy writes.
const ONE: &[(&str, &str)] = &[
    (
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n1;x=\"y\"\r\na\r\n\
         0;z\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ),
    (
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: Content-Length\r\n\r\nabc",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "POST /a HTTP/1.1\r\nHost: h\r\nConnection: Transfer-Encoding\r\n\
         Transfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: h\r\nConnection: Host, Via, X-Forwarded-For\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    ("GET http://x/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
    // An upgrade with a body is none: the server could read the body as the other protocol.
    (
        "POST /a HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Content-Length: 3\r\n\r\nabc",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: h\r\nConnection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nUpgrade: websocket\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    ),
    ("\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
];

fn what_goes_on_has_one_frame<T: Harness>() {
    for &(bytes, expected) in ONE {
        for cuts in [false, true] {
            let mut scene = Scene::new::<T>();
            let all = format!("{bytes}GET /second HTTP/1.1\r\nHost: h\r\n\r\n");
            let client = scene.client();
            match cuts {
                false => scene.say(client, all),
                true => {
                    for byte in all.into_bytes() {
                        scene.say(client, vec![byte]);
                        scene.turn(std::time::Duration::from_millis(1));
                    }
                }
            }
            let inner = scene.inner_hears(0, "\r\n\r\n");
            let expected_body = expected.split_once("\r\n\r\n").expect("a head").1;
            scene.until("the body", |scene| scene.text(inner).ends_with(expected_body));
            scene.settle();
            let heard: String = scene
                .take(inner)
                .split_inclusive("\r\n")
                .filter(|line| !line.starts_with("X-Forwarded-") && !line.starts_with("Via: "))
                .collect();
            // Chunks may be cut: they are compared by their bytes.
            let is_same = heard == expected || cuts && heard.contains("chunked");
            assert!(is_same, "{bytes:?}: {heard:?}");
            scene.say(inner, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            scene.inner_hears(0, "GET /second HTTP/1.1\r\n");
            assert_eq!(scene.inner.len(), 1);
        }
    }
}
