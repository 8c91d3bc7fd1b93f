//! Clients and handlers that do what they should not, on every driver.
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::{End, Net, statuses};
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

every_driver! {
    a_panic_leaves_no_bytes_to_others
    the_source_of_a_stream_is_not_asked_by_head
    a_pipeline_that_nobody_reads_is_not_answered_ahead
    a_pipeline_before_a_half_close_is_answered
}
