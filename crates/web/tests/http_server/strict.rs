//! What the codec refuses, through a server: one answer with the status, then the end, and nothing
//! behind it is taken for a request.

#[path = "../../../http1/tests/common/threats.rs"]
mod threats;

use crate::common;
use crate::common::{End, Net, statuses};
use threats::SECRET;
use windlass_web::App;

fn app() -> App {
    App::new()
        .get("/", |_, q| q.body().map(<[u8]>::to_vec))
        .post("/", |_, q| q.body().map(<[u8]>::to_vec))
        .get("/hello", |_, _| "hello")
        .get("/secret", |_, _| "SECRET")
}

/// Bytes are answered by this status, and the connection ends, although the client leaves its side
/// open.
#[track_caller]
fn refuses(net: &mut impl Net, request: &str, status: u16) {
    let (heard, end) = net.provoke(format!("{request}{SECRET}").as_bytes());
    assert_eq!(statuses(&heard), [status], "{request:?}: {heard:?}");
    assert!(heard.contains("\r\nConnection: close\r\n"), "{request:?}: {heard:?}");
    assert!(!heard.contains("SECRET"), "{request:?}: {heard:?}");
    assert_eq!(end, End::Eof, "{request:?}");
}

/// The 33 cases of h1spec (github.com/uNetworking/h1spec), as a table of our own.
fn all_33_cases_of_h1spec<N: Net>() {
    const HOST: &str = "Host: example.com\r\n";
    let get = |fields: &str| format!("GET / HTTP/1.1\r\n{HOST}{fields}\r\n");
    let post = |rest: &str| format!("POST / HTTP/1.1\r\n{HOST}{rest}");
    let mut net = N::start(app());
    // A part of a request has no answer before the client ends its side.
    let whole = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r";
    let parts = [1, 4, 10, 11, 15, 19, 20, 21, 24, 26, 27, 36, 37, 38, 39];
    for len in parts {
        let (heard, end) = net.ask(&whole.as_bytes()[..len]);
        assert_eq!((statuses(&heard), end), (vec![400], End::Eof), "{:?}", &whole[..len]);
    }
    let refused = [
        ("GET / \r\n\r\n".into(), 400),
        (get("X-Invalid[]: test\r\n"), 400),
        ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n".into(), 400),
        (get("Host: example.org\r\n"), 400),
        (get("Content-Length: -123456789123456789123456789\r\n"), 400),
        (get("Content-Length: -1234\r\n"), 400),
        (get("Content-Length: abc\r\n"), 400),
        (get("X-Bad-Control-Char: test\x07\r\n"), 400),
        ("GET / HTTP/9.9\r\nHost: example.com\r\n\r\n".into(), 505),
        ("Extra lineGET / HTTP/1.1\r\nHost: example.com\r\n\r\n".into(), 400),
        (get("\rSome-Header: Test\r\n"), 400),
        (
            post(concat!(
                "content-LengtH: 5\r\nTransFer-Encoding: chunked\r\n\r\n",
                "c\r\nHellO world1\r\n0\r\n\r\n",
            )),
            400,
        ),
    ];
    for (request, status) in &refused {
        refuses(&mut net, request, *status);
    }
    let taken = [
        (get("Expect: 100-continue\r\n"), ""),
        (get(""), ""),
        ("GET / HTTP/1.1\r\nhoSt:\texample.com\r\nempty:\r\n\r\n".into(), ""),
        (get("X-Empty-Header: \r\n"), ""),
        (post("Content-Length: 5\r\n\r\nhello"), "hello"),
        (post("Transfer-Encoding: chunked\r\n\r\nc\r\nHellO world1\r\n0\r\n\r\n"), "HellO world1"),
    ];
    for (request, body) in &taken {
        let (heard, end) = net.ask(request.as_bytes());
        assert_eq!((statuses(&heard), end), (vec![200], End::Eof), "{request:?}");
        assert_eq!(common::halves(&heard).1, *body, "{request:?}");
    }
    assert_eq!(parts.len() + refused.len() + taken.len(), 33);
}

/// The tables of the codec's own tests.
fn requests_that_two_servers_read_in_two_ways<N: Net>() {
    let mut net = N::start(app());
    for (request, _, status) in threats::REQUESTS.concat() {
        refuses(&mut net, request, status);
    }
    for target in threats::TARGETS {
        refuses(&mut net, &format!("{target}\r\nHost: a\r\n\r\n"), 400);
    }
    for (fields, rule) in threats::FIELDS.concat() {
        refuses(&mut net, &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), rule.status());
    }
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, rule) in threats::CHUNKS.concat() {
        refuses(&mut net, &format!("{head}{body}"), rule.status());
    }
}

/// Bodies that others would end elsewhere: the next request is where ours says.
fn a_length_hides_no_request<N: Net>() {
    let mut net = N::start(app());
    let zero = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n{SECRET}");
    let (heard, _) = net.ask(zero.as_bytes());
    assert_eq!(statuses(&heard), [200, 200]);
    assert!(heard.ends_with("SECRET"));
    let len = SECRET.len();
    let whole = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{SECRET}");
    let (heard, _) = net.ask(whole.as_bytes());
    assert_eq!((statuses(&heard), common::halves(&heard).1), (vec![200], SECRET));
}

crate::every_driver! {
    all_33_cases_of_h1spec
    requests_that_two_servers_read_in_two_ways
    a_length_hides_no_request
}
