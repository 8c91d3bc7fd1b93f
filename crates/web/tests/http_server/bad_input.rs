//! Clients and handlers that do what they should not, on every driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common;
use crate::common::{End, Net, statuses};
use windlass_web::{App, Flow, Part, Response};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// What is left of a response after a panic is no part of the next one, on another connection.
fn a_panic_leaves_no_bytes_to_others<N: Net>() {
    let app = App::new()
        .get("/", |_, _| "whole")
        .get("/stream", |_, _| Response::stream(|_: &mut Part<'_>| -> Flow { panic!("a source") }))
        .get("/secret", |_, _| "for one only")
        .after(|_, q, _| assert!(q.is_none_or(|q| q.path() != "/after"), "a hook"))
        .get("/after", |_, _| "never");
    let mut net = N::start(app);
    for panics in ["/stream", "/after"] {
        let pipeline = get("/secret") + &get(panics);
        net.provoke(pipeline.as_bytes());
        let (heard, end) = net.ask(GET.as_bytes());
        assert!(heard.ends_with("\r\n\r\nwhole"), "{heard:?}");
        assert_eq!((statuses(&heard), end), (vec![200], End::Eof), "{heard:?}");
    }
}

/// The answer to HEAD has no body, so that nothing makes one: this one would have no end.
fn the_source_of_a_stream_is_not_asked_by_head<N: Net>() {
    let app = App::new().get("/", |_, _| {
        Response::stream(|part: &mut Part<'_>| {
            part.write(b"more");
            Flow::More
        })
    });
    let mut net = N::start(app);
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    let (heard, end) = net.ask(head.as_bytes());
    assert_eq!((statuses(&heard), end), (vec![200, 200], End::Eof));
    let one = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
               Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(heard, one.repeat(2));
}

/// A pipeline whose client does not read waits in the client, not in the server.
fn a_pipeline_that_nobody_reads_is_not_answered_ahead<N: Net>() {
    const LEN: usize = 256 << 10;
    const REQUESTS: usize = 200;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let body: Arc<[u8]> = vec![b'x'; LEN].into();
    let app = App::new().get("/", move |_, _| {
        counted.fetch_add(1, SeqCst);
        Response::shared(Arc::clone(&body))
    });
    let mut net = N::start(app);
    let client = net.connect();
    net.say(client, GET.repeat(REQUESTS).as_bytes());
    net.finish(client);
    net.hear(client, "the first byte", |heard| !heard.is_empty());
    // What the system takes for a connection is some megabytes at most.
    assert!(calls.load(SeqCst) < REQUESTS / 2, "{} answers wait", calls.load(SeqCst));
    assert_eq!(net.end(client), End::Eof);
    let heard = net.heard(client);
    let head = heard.iter().position(|byte| *byte == b'x').expect("a body");
    assert_eq!(heard.len(), REQUESTS * (head + LEN));
}

/// All requests are answered that came before a half-close.
fn a_pipeline_before_a_half_close_is_answered<N: Net>() {
    let app = App::new()
        .get("/", |_, _| "now")
        .get("/job", |_, q| q.blocking(|| "later", |_, text| text))
        .get("/stream", |_, _| {
            let mut left = 100;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(&[b'x'; 10_000]);
                left -= 1;
                if left > 0 { Flow::More } else { Flow::End }
            })
        });
    let mut net = N::start(app);
    for first in ["/job", "/stream", "/"] {
        let pipeline = [first, "/", "/job", "/", "/stream", "/job", "/"].map(get).concat();
        let (heard, end) = net.ask(pipeline.as_bytes());
        assert_eq!((statuses(&heard), end), (vec![200; 7], End::Eof), "{first}");
        assert!(heard.ends_with("now"), "{first}");
    }
    // A part of a request behind them is none.
    for first in ["/job", "/stream", "/"] {
        let pipeline = get(first) + "GET / HT";
        let (heard, end) = net.ask(pipeline.as_bytes());
        assert_eq!((statuses(&heard), end), (vec![200, 400], End::Eof), "{first}");
    }
}

/// What is too long or too much is refused by the part that is, and the connection ends.
fn what_is_too_much_has_its_status<N: Net>() {
    let app = App::new().any("/{*all}", |_, _| "taken").any("/", |_, _| "taken");
    let mut net = N::start(app);
    let long = "a".repeat(20_000);
    let post = |rest: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}");
    let chunked = |rest: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{rest}"));
    let chunk = format!("ffff\r\n{}\r\n", "x".repeat(0xffff));
    let fields = |count: usize| (0..count).map(|n| format!("A{n}: b\r\n")).collect::<String>();
    for (request, status) in [
        (get(&format!("/{long}")), 414),
        (format!("GET /{long}"), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}"), 431),
        (post(&format!("{}\r\n", fields(100))), 431),
        (post(&format!("{}\r\n", fields(1000))), 431),
        (post(&format!("{}\r\n", fields(5000))), 431),
        (post("Content-Length: 1048577\r\n\r\n"), 413),
        (post("Content-Length: 9223372036854775808\r\n\r\n"), 413),
        (post("Content-Length: 18446744073709551615\r\n\r\nhello"), 413),
        (post("Content-Length: 18446744073709551616\r\n\r\n"), 413),
        (chunked("100001\r\n"), 413),
        (chunked("ffffffffffffffff\r\nhello"), 413),
        (chunked("10000000000000000\r\n"), 400),
        (chunked(&chunk.repeat(17)), 413),
        (chunked(&format!("1;{long}\r\n")), 400),
        (chunked(&format!("1;{}\r\na\r\n", "b".repeat(200)).repeat(30)), 400),
        (chunked(&format!("0\r\nA: {long}\r\n\r\n")), 431),
        (chunked(&format!("0\r\n{}\r\n", fields(200))), 431),
    ] {
        let (heard, end) = net.provoke(request.as_bytes());
        let what = &request[..request.len().min(100)];
        assert_eq!((statuses(&heard), end), (vec![status], End::Eof), "{what:?}: {heard:?}");
        assert!(heard.contains("\r\nConnection: close\r\n"), "{what:?}: {heard:?}");
    }
    // At the limits themselves.
    for request in [
        post(&format!("{}Content-Length: 1\r\n\r\na", fields(98))),
        post(&format!("Content-Length: 1048576\r\n\r\n{}", "x".repeat(1 << 20))),
        chunked(&(chunk.repeat(16) + "10\r\n0123456789abcdef\r\n0\r\n\r\n")),
    ] {
        let (heard, _) = net.ask(request.as_bytes());
        assert_eq!(statuses(&heard), [200], "{:?}: {heard:?}", &request[..100]);
    }
}

/// Bodies that are not as long as their head says.
fn bodies_end_where_their_heads_say<N: Net>() {
    let mut net = N::start(App::new().post("/", |_, q| q.body().map(<[u8]>::to_vec)));
    let post = |rest: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}");
    for (rest, expected) in [
        ("Content-Length: 10\r\n\r\nhello", &[400][..]),
        ("Content-Length: 10\r\n\r\n", &[400]),
        ("Content-Length: 5\r\n\r\nhello, you", &[200, 400]),
        ("Content-Length: 5\r\n\r\nhelloPOST", &[200, 400]),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", &[400]),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", &[400]),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n0\r\n\r\n", &[200, 400]),
    ] {
        let (heard, end) = net.ask(post(rest).as_bytes());
        let heard = heard.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        assert_eq!((&statuses(&heard)[..], end), (expected, End::Eof), "{rest:?}: {heard:?}");
        assert_eq!(heard.contains("\r\n\r\nhello"), expected.len() > 1, "{rest:?}");
    }
}

/// Clients that reset their connection in each phase leave nothing behind.
fn resets_in_every_phase_leave_the_server_as_it_was<N: Net>() {
    let app = App::new()
        .get("/", |_, _| "Hello")
        .post("/", |_, q| q.body().map(<[u8]>::to_vec))
        .get("/job", |_, q| q.blocking(|| "later", |_, text| text))
        .get("/stream", |_, _| {
            Response::stream(|part: &mut Part<'_>| {
                part.write(&[b'x'; 10_000]);
                Flow::More
            })
        })
        .limits(windlass_web::Limits::new().running(4));
    let mut net = N::start(app);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
    let phases = [
        String::new(),
        "GET / HT".into(),
        post.into(),
        get("/job"),
        get("/job").repeat(1000),
        get("/stream"),
        get("/stream").repeat(1000),
        get("/") + &get("/job") + &get("/stream") + "GET / HT",
    ];
    for _ in 0..5 {
        for said in &phases {
            let client = net.connect();
            net.say(client, said.as_bytes());
            if said.contains("/stream") {
                net.hear(client, "a part", |heard| heard.len() > 10_000);
            }
            net.reset(client);
            let (heard, end) = net.ask(get("/").as_bytes());
            assert_eq!((statuses(&heard), end), (vec![200], End::Eof));
        }
    }
    // All places of requests that run are free again, once the server has heard of the resets.
    let start = std::time::Instant::now();
    loop {
        let (heard, _) = net.ask(get("/job").as_bytes());
        if statuses(&heard) == [200] {
            break;
        }
        assert!(start.elapsed() < common::PATIENCE, "{heard:?}");
    }
}

crate::every_driver! {
    what_is_too_much_has_its_status
    bodies_end_where_their_heads_say
    resets_in_every_phase_leave_the_server_as_it_was
    a_panic_leaves_no_bytes_to_others
    the_source_of_a_stream_is_not_asked_by_head
    a_pipeline_that_nobody_reads_is_not_answered_ahead
    a_pipeline_before_a_half_close_is_answered
}
