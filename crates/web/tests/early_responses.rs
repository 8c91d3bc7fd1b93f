//! Servers that respond before they have read a request, which is stuck: the response is heard, and
//! the source of the body learns that the rest is not wanted. On every driver and in the
//! simulation.
//!
//! RFC 9112, 9.5: a client that sends a body looks out for an error, and then ceases to send.
#![allow(missing_docs)] // a test binary has no users

#[path = "../../serve/tests/common/mod.rs"]
mod common;
mod hostile;

use std::sync::{Arc, Weak};

use common::Harness;
use hostile::server::{Act, GOOD};
use hostile::{Scene, Who, scene};
use windlass::driver::Driver;
use windlass_web::client::{Fetch, FetchSettings};
use windlass_web::{Flow, Part};

every_kernel! {
    a_response_comes_past_a_request_that_is_stuck
    a_response_comes_past_a_request_that_is_stuck_for_a_client
    a_response_comes_past_a_request_that_is_stuck_for_a_stream
    an_end_without_a_response_is_an_error
    a_request_that_is_read_late_is_sent_whole
    a_server_that_reads_while_it_responds_is_kept
}

/// More than the systems of both ends hold.
const MUCH: usize = 16 << 20;

const TOO_MUCH: &str = "HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 8\r\n\r\n\
    too much";
const WHO: &str = "HTTP/1.1 401 Who\r\nContent-Length: 4\r\n\r\nwho?";
/// Its end is that of the connection.
const OPEN_END: &str = "HTTP/1.1 413 Too Much\r\nConnection: close\r\n\r\ntoo much";
const IN_PARTS: &str =
    "HTTP/1.1 401 Who\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwho?\r\n0\r\n\r\n";

/// What the server does behind its response.
fn ends() -> [(&'static str, Vec<Act>); 4] {
    [
        ("a reset", vec![Act::Reset]),
        ("a close", vec![Act::Close]),
        ("an end of file", vec![Act::Finish]),
        ("silence", vec![]),
    ]
}

/// How the body of the request is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    Whole,
    Long,
    Endless,
}

/// A request, and what is dropped with the source of its body.
fn request(url: &str, body: Body) -> (Fetch, Option<Weak<()>>) {
    let post = Fetch::post(url);
    let len = match body {
        Body::Whole => return (post.body(vec![b'x'; MUCH]), None),
        Body::Long => Some(1 << 40),
        Body::Endless => None,
    };
    let token = Arc::new(());
    let weak = Arc::downgrade(&token);
    let source = move |part: &mut Part<'_>| {
        let _ = &token;
        part.write(&[b'x'; 16 << 10]);
        Flow::More
    };
    (post.stream(len, source), Some(weak))
}

/// Begins a request, which is stuck then, on a new connection of the server: its place.
fn stuck<D: Driver>(scene: &mut Scene<D>, fetch: Fetch) -> (usize, usize) {
    let at = scene.hostile.conns.len();
    scene.hostile.is_deaf = true;
    let call = scene.begin(fetch);
    scene.until("it has come", |scene| scene.hostile.conns.len() > at);
    scene.settle();
    assert!(!scene.is_over(call));
    scene.hostile.is_deaf = false;
    (call, at)
}

fn past<T: Harness>(who: Who) {
    let mut scene = scene::<T>(who, FetchSettings::new());
    let url = scene.url("/");
    for body in [Body::Whole, Body::Long, Body::Endless] {
        for (response, wanted) in [
            (TOO_MUCH, "413 too much"),
            (WHO, "401 who?"),
            (IN_PARTS, "401 who?"),
            (OPEN_END, "413 too much"),
        ] {
            for (name, end) in ends() {
                let is_endless = response == OPEN_END;
                if is_endless && name != "an end of file" {
                    continue; // a response without an end, or one that has broken off
                }
                let (fetch, source) = request(&url, body);
                let (call, at) = stuck(&mut scene, fetch);
                // A part of it comes alone: the read that was in flight when the link became full
                // takes this, and it would be the last one.
                let (first, rest) = response.split_at(12);
                scene.hostile.act(&mut scene.watcher, at, vec![Act::Say(first.into())]);
                scene.settle();
                let acts = [Act::Say(rest.into())].into_iter().chain(end.clone()).collect();
                scene.hostile.act(&mut scene.watcher, at, acts);
                let outcome = scene.outcome(call);
                // A reset ends a connection at once, with what is not delivered. Where a write
                // meets it in front of the read, the response goes, too.
                let may_be_lost =
                    matches!(name, "a reset" | "a close") && outcome.text == "Connection";
                assert!(may_be_lost || outcome.text == wanted, "{body:?}, {name}: {outcome:?}");
                let is_gone = source.is_none_or(|source| source.upgrade().is_none());
                assert!(is_gone, "{body:?}, {name}: the source is not dropped");
                // That connection is not used again, and what waited is gone with it.
                let before = scene.hostile.conns.len();
                assert_eq!(scene.text(Fetch::get(&url)), "200 good", "{body:?}, {name}");
                assert_eq!(scene.hostile.conns.len(), before + 1, "{body:?}, {name}");
                scene.hostile.act(&mut scene.watcher, before, vec![Act::Close]);
                if !scene.hostile.conns[at].is_over {
                    scene.hostile.hear(&mut scene.watcher, at);
                }
                scene.until("all connections end", |scene| scene.hostile.open() == 0);
                scene.settle();
                if who != Who::App {
                    scene.until("the client has none", |scene| scene.own().0.is_empty());
                }
            }
        }
    }
}

fn a_response_comes_past_a_request_that_is_stuck<T: Harness>() {
    past::<T>(Who::App);
}

fn a_response_comes_past_a_request_that_is_stuck_for_a_client<T: Harness>() {
    past::<T>(Who::Own);
}

fn a_response_comes_past_a_request_that_is_stuck_for_a_stream<T: Harness>() {
    past::<T>(Who::Streams);
}

/// There is one outcome, and the source is dropped.
fn an_end_without_a_response_is_an_error<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new());
    let url = scene.url("/");
    for half in ["", "HTTP/1.1 413 Too M", "HTTP/1.1 413 Too Much\r\nContent-Length: 8\r\n\r\ntoo"]
    {
        for (name, end) in ends() {
            if end.is_empty() {
                continue;
            }
            let (fetch, source) = request(&url, Body::Endless);
            let (call, at) = stuck(&mut scene, fetch);
            let says = (!half.is_empty()).then(|| Act::Say(half.into()));
            scene.hostile.act(&mut scene.watcher, at, says.into_iter().chain(end).collect());
            let outcome = scene.outcome(call);
            let wanted: &[&str] = match name {
                "an end of file" => &["Ended"],
                // What a close does to bytes that the server has not read depends on the system.
                _ => &["Connection", "Ended"],
            };
            assert!(wanted.contains(&&*outcome.text), "{half:?}, {name}: {}", outcome.text);
            assert!(source.is_some_and(|source| source.upgrade().is_none()), "{half:?}, {name}");
            scene.settle();
            assert!(scene.is_over(call));
        }
    }
    assert_eq!(scene.text(Fetch::get(&url)), "200 good");
}

/// Reads that go on while a request is stuck change nothing for one that gets through.
fn a_request_that_is_read_late_is_sent_whole<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new());
    let url = scene.url("/late");
    scene.script(
        "/late",
        vec![Act::Say("HTTP/1.1 100 Continue\r\n\r\n".into()), Act::Say(GOOD.into())],
    );
    for _ in 0..2 {
        let (call, at) = stuck(&mut scene, request(&url, Body::Whole).0);
        // Hints come while it is stuck.
        let hint = "HTTP/1.1 103 Hints\r\nA: b\r\n\r\n";
        scene.hostile.act(&mut scene.watcher, at, vec![Act::Say(hint.into())]);
        scene.settle();
        assert!(!scene.is_over(call));
        scene.hostile.hear(&mut scene.watcher, at);
        assert_eq!(scene.outcome(call).text, "200 good");
        // The connection is kept, and serves the next call.
        let before = scene.hostile.conns.len();
        assert_eq!(scene.text(Fetch::get(&url)), "200 good");
        assert_eq!(scene.hostile.conns.len(), before);
        scene.hostile.act(&mut scene.watcher, at, vec![Act::Close]);
        scene.settle();
    }
}

/// It has responded early, and reads the rest of the request: no byte of it is lost, and no other
/// request is sent behind it before.
fn a_server_that_reads_while_it_responds_is_kept<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new());
    let url = scene.url("/");
    let (call, at) = stuck(&mut scene, request(&url, Body::Whole).0);
    let (head, body) = WHO.split_at(WHO.len() - 4);
    scene.hostile.act(&mut scene.watcher, at, vec![Act::Say(head.into())]);
    scene.settle();
    scene.hostile.hear(&mut scene.watcher, at);
    // Its script says that it answers the whole request so.
    scene.script("/", vec![Act::Say(body.into())]);
    assert_eq!(scene.outcome(call).text, "401 who?");
    scene.script("/", vec![Act::Say(GOOD.into())]);
    let before = scene.hostile.conns.len();
    assert_eq!(scene.text(Fetch::get(&url)), "200 good");
    assert_eq!(scene.hostile.conns.len(), before, "the connection is kept");
}
