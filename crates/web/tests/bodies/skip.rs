//! Answers that come before the body of their request, and `Expect: 100-continue`.

use crate::bench::{Bench, Harness};
use windlass_web::{App, Flow, Part, Response, Status};

crate::every_driver! {
    a_short_rest_of_a_body_is_skipped
    a_body_without_a_length_closes
    a_long_rest_closes_and_the_client_gets_the_answer
    a_client_that_sends_all_first_hears_the_answer_then
    a_streamed_answer_comes_while_the_body_does
    a_request_without_a_body_keeps_its_connection_in_pieces
    a_100_comes_only_if_the_body_is_wanted
    an_expectation_of_http_1_0_does_not_count
    a_100_does_not_come_behind_the_body
    a_late_answer_skips_the_rest
    a_limit_of_a_route_may_be_above_that_of_all
}

fn app() -> App {
    App::new()
        .get("/", |_, _| "root")
        .post("/early", |_, _| "early")
        .at_head()
        .post("/later", |_, q| q.blocking(|| (), |_, ()| "later"))
        .at_head()
        .post("/stream", |_, _| {
            let mut parts = 0;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(&[b'x'; 10_000]);
                parts += 1;
                if parts < 100 { Flow::More } else { Flow::End }
            })
        })
        .at_head()
        .post("/body", |_, q| q.body().map(<[u8]>::len).map(|len| format!("{len} bytes")))
        .body_limit(100)
        .post("/large", |_, q| q.body().map(<[u8]>::len).map(|len| format!("{len} bytes")))
        .body_limit(3 << 20)
}

fn post(path: &str, fields: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn with_length(path: &str, len: usize) -> String {
    post(path, &format!("Content-Length: {len}\r\n"))
}

fn a_short_rest_of_a_body_is_skipped<T: Harness>() {
    for (path, status, end) in
        [("/early", "200", "early"), ("/nothing", "404", "Not Found"), ("/", "405", "Allowed")]
    {
        let mut b = Bench::new::<T>(app());
        let client = b.connect();
        // Nothing of the body, a part of it, and the rest with the next request.
        for (first, rest) in [(0, 65_536), (1, 65_535), (65_000, 536)] {
            let body = "b".repeat(first);
            let answer = b.ask(client, with_length(path, 65_536) + &body, end);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(!answer.contains("Connection: close"), "{answer}");
            let next = "b".repeat(rest) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let answer = b.ask(client, next, "root");
            assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
        }
    }
}

fn a_body_without_a_length_closes<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    let answer = b.ask_last(client, post("/early", "Transfer-Encoding: chunked\r\n") + "5\r\nab");
    assert!(answer.contains("Connection: close") && answer.ends_with("early"), "{answer}");
}

fn a_long_rest_closes_and_the_client_gets_the_answer<T: Harness>() {
    for path in ["/early", "/nothing", "/body"] {
        let mut b = Bench::new::<T>(app());
        let client = b.connect();
        let answer = b.ask_last(client, with_length(path, 65_537));
        assert!(answer.contains("Connection: close"), "{answer}");
        assert_eq!(b.error(client), None);
        let status = ["200", "404", "413"][["/early", "/nothing", "/body"]
            .iter()
            .position(|other| *other == path)
            .expect("it is one of them")];
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

fn a_client_that_sends_all_first_hears_the_answer_then<T: Harness>() {
    const LEN: usize = 10 << 20;
    // The time for which the server reads on.
    let limits = windlass_web::serve::Limits::new().linger(std::time::Duration::from_secs(600));
    let mut b = Bench::new::<T>(app().serve_limits(limits));
    let client = b.connect_deaf();
    b.say(client, with_length("/early", LEN));
    b.say(client, vec![b'b'; LEN]);
    b.until("all is sent", |b| b.said(client) > LEN);
    b.hear(client);
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("early"), "{answer}");
    assert_eq!(b.error(client), None);
}

fn a_streamed_answer_comes_while_the_body_does<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    b.say(client, with_length("/stream", 1 << 20));
    b.say(client, vec![b'b'; 1 << 20]);
    let answer = b.end(client);
    assert!(answer.contains("Connection: close"), "{}", &answer[..200]);
    assert!(answer.ends_with("0\r\n\r\n") && answer.len() > 1_000_000, "{}", answer.len());
    assert_eq!(b.error(client), None);
    // A short body: the connection goes on behind the last chunk.
    let client = b.connect();
    let answer = b.ask(client, with_length("/stream", 3), "\r\n0\r\n\r\n");
    assert!(!answer.contains("Connection: close"), "{}", &answer[..200]);
    b.ask(client, "bbbGET / HTTP/1.1\r\nHost: a\r\n\r\n", "root");
}

fn a_request_without_a_body_keeps_its_connection_in_pieces<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    for _ in 0..3 {
        for piece in ["POST /ea", "rly HTTP/1.1\r\nHos"] {
            b.say(client, piece);
            b.turn(std::time::Duration::from_millis(1));
        }
        let answer = b.ask(client, "t: a\r\n\r\n", "early");
        assert!(!answer.contains("Connection: close"), "{answer}");
    }
}

fn a_100_comes_only_if_the_body_is_wanted<T: Harness>() {
    const EXPECT: &str = "Expect: 100-continue\r\n";
    let head = |path: &str, len| post(path, &format!("{EXPECT}Content-Length: {len}\r\n"));
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    let answer = b.ask(client, head("/body", 3), "\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    b.ask(client, "bbb", "3 bytes");
    // The client may send the body or not: the next bytes could be either.
    for path in ["/early", "/nothing", "/"] {
        let client = b.connect();
        let answer = b.ask_last(client, head(path, 3));
        assert!(!answer.contains("100 Continue"), "{answer}");
        assert!(answer.contains("Connection: close"), "{answer}");
    }
    let client = b.connect();
    let answer = b.ask_last(client, head("/body", 101));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // A hook has answered.
    let app = app().before(|_, _| Some(Status::UNAUTHORIZED.into()));
    let mut b = Bench::new::<T>(app);
    let client = b.connect();
    let answer = b.ask_last(client, head("/body", 3));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

fn an_expectation_of_http_1_0_does_not_count<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    let head = "POST /body HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    b.say(client, head);
    b.run_for(std::time::Duration::from_millis(20));
    assert_eq!(b.heard(client), "");
    let answer = b.ask_last(client, "bbb");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("3 bytes"), "{answer}");
    let client = b.connect();
    let other = "POST /body HTTP/1.1\r\nHost: a\r\nExpect: more\r\nContent-Length: 3\r\n\r\n";
    let answer = b.ask_last(client, other);
    assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
}

fn a_100_does_not_come_behind_the_body<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let expect = post("/body", "Expect: 100-continue\r\nContent-Length: 3\r\n");
    for body in ["bbb", "b"] {
        let client = b.connect();
        b.say(client, expect.clone() + body);
        b.run_for(std::time::Duration::from_millis(20));
        let answer = b.ask(client, &b"bbb"[body.len()..], "3 bytes");
        // A fault of the network may have torn the body off.
        let is_torn = answer.starts_with("HTTP/1.1 100 ");
        assert!(is_torn || answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn a_late_answer_skips_the_rest<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    for first in [0, 3, 30_000] {
        let answer = b.ask(client, with_length("/later", 40_000) + &"b".repeat(first), "later");
        assert!(!answer.contains("Connection: close"), "{answer}");
        let rest = "b".repeat(40_000 - first) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        b.ask(client, rest, "root");
    }
}

fn a_limit_of_a_route_may_be_above_that_of_all<T: Harness>() {
    let mut b = Bench::new::<T>(app());
    let client = b.connect();
    let body = "b".repeat(2 << 20);
    b.ask(client, with_length("/large", body.len()) + &body, "2097152 bytes");
    b.ask(client, with_length("/body", 100) + &body[..100], "100 bytes");
    let answer = b.ask(client, with_length("/body", 101) + &body[..101], "than the limit");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(!answer.contains("Connection: close"), "{answer}");
}
