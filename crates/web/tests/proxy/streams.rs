//! Bodies, interim responses and trailers, both ways.

use crate::every_driver;
use crate::net::Harness;
use crate::scene::{self, Scene};

every_driver! {
    a_response_goes_on_as_it_comes
    a_body_goes_on_as_it_comes
    a_collected_body_goes_on_whole
    large_bodies_go_both_ways
    trailers_go_both_ways
    the_hundred_of_the_server_goes_on
    interim_responses_go_on
    a_client_that_stalls_holds_its_server_alone
    a_server_that_stalls_holds_its_client
    pipelined_requests_are_answered_in_their_order
    head_and_statuses_without_a_body
    old_clients_get_bodies_up_to_the_end
    old_servers_end_bodies_with_their_connection
}

const OK: &str = "HTTP/1.1 200 OK\r\nDate: now\r\n";

fn a_response_goes_on_as_it_comes<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
    for round in 0..3 {
        let inner = scene.inner_hears(0, "\r\n\r\n");
        let heard = scene.take(inner);
        assert!(heard.starts_with("GET /a?b HTTP/1.1\r\nHost: h\r\n"), "{heard}");
        scene.say(inner, format!("{OK}Content-Length: 10\r\n\r\nhello"));
        scene.hears(client, "\r\n\r\nhello");
        scene.say(inner, "world");
        scene.hears(client, "helloworld");
        let heard = scene.take(client);
        assert_eq!(heard, format!("{OK}Via: 1.1 windlass\r\nContent-Length: 10\r\n\r\nhelloworld"));
        if round < 2 {
            scene.say(client, "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
        }
    }
    assert_eq!(scene.inner.len(), 1, "the connection is kept");
}

fn a_body_goes_on_as_it_comes<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhel");
    let inner = scene.inner_hears(0, "\r\n\r\nhel");
    assert!(scene.text(inner).contains("Content-Length: 10\r\n"));
    scene.say(client, "loworld");
    scene.inner_hears(0, "helloworld");
    scene.take(inner);
    scene.say(inner, format!("{OK}Content-Length: 0\r\n\r\n"));
    scene.hears(client, "Content-Length: 0\r\n\r\n");
    scene.say(
        client,
        "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    );
    scene.inner_hears(0, "Transfer-Encoding: chunked\r\n\r\n");
    scene.hears_chunks(inner, b"abc", false);
    scene.say(client, "1\r\nd\r\n0\r\n\r\n");
    scene.hears_chunks(inner, b"abcd", true);
    assert_eq!(scene.inner.len(), 1);
}

fn a_collected_body_goes_on_whole<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(
        "POST /whole HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    );
    scene.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(scene.inner.is_empty(), "the body comes first");
    scene.say(client, "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\nabcd");
    let heard = scene.text(inner);
    assert!(heard.contains("Content-Length: 4\r\n") && !heard.contains("Expect"), "{heard}");
}

fn large_bodies_go_both_ways<T: Harness>() {
    const LEN: usize = 3 << 20;
    let mut scene = Scene::new::<T>();
    let body: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let client = scene.ask(format!("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: {LEN}\r\n\r\n"));
    scene.say(client, body.clone());
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.until("the whole body", |scene| scene.ends[&inner].heard.ends_with(&body));
    scene.say(inner, format!("{OK}Transfer-Encoding: chunked\r\n\r\n{LEN:x}\r\n"));
    scene.say(inner, body.clone());
    scene.say(inner, "\r\n0\r\n\r\n");
    scene.hears(client, "\r\n0\r\n\r\n");
    let heard = scene::body(&scene.ends[&client].heard).expect("a head");
    assert!(scene::chunks(heard) == (body, true));
}

fn trailers_go_both_ways<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(
        "POST /a HTTP/1.1\r\nHost: h\r\nTE: trailers, deflate\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nX-Sum: 1\r\n\r\n",
    );
    let inner = scene.inner_hears(0, "\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n");
    let heard = scene.text(inner);
    assert!(heard.contains("TE: trailers\r\n") && heard.contains("Connection: TE\r\n"), "{heard}");
    scene.say(
        inner,
        format!(
            "{OK}Trailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nb\r\n0\r\nX-End: 2\r\n\r\n"
        ),
    );
    scene.hears(client, "\r\n1\r\nb\r\n0\r\nX-End: 2\r\n\r\n");
    assert!(scene.text(client).contains("Trailer: X-End\r\n"));
    // A collected one keeps its trailers, too.
    scene.take(inner);
    scene.say(
        client,
        "POST /whole HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nX-Sum: 1\r\n\r\n",
    );
    scene.inner_hears(0, "\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n");
}

fn the_hundred_of_the_server_goes_on<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let client = scene.ask(head);
    let inner = scene.inner_hears(0, "Expect: 100-continue\r\n");
    scene.settle();
    assert_eq!(scene.text(client), "");
    scene.say(inner, "HTTP/1.1 100 Continue\r\n\r\n");
    scene.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
    scene.say(client, "abc");
    scene.inner_hears(0, "\r\n\r\nabc");
    scene.say(inner, format!("HTTP/1.1 100 Continue\r\n\r\n{OK}Content-Length: 1\r\n\r\nx"));
    scene.hears(client, "\r\n\r\nx");
    assert_eq!(scene.take(client).matches("100 Continue").count(), 1);
    // One that is refused: the client sends no body, and its connection ends.
    scene.say(client, head);
    scene.take(inner);
    scene.inner_hears(0, "Expect: 100-continue\r\n");
    scene.say(inner, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    assert!(scene.ends_whole(client));
    let heard = scene.text(client);
    assert!(heard.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{heard}");
    assert!(heard.contains("Connection: close\r\n"), "{heard}");
}

fn interim_responses_go_on<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\nx: 1\r\n\r\n";
    let client = scene.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("HTTP/1.1 100 Continue\r\n\r\n{hints}"));
    scene.hears(client, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    scene.say(inner, format!("{OK}Content-Length: 1\r\n\r\nx"));
    scene.hears(client, "\r\n\r\nx");
    assert!(!scene.text(client).contains("100 Continue"), "it did not ask");
    let old = scene.ask("GET / HTTP/1.0\r\nHost: h\r\n\r\n");
    scene.take(inner);
    scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("{hints}{OK}Content-Length: 1\r\n\r\nx"));
    assert!(scene.ends_whole(old));
    assert!(scene.text(old).starts_with("HTTP/1.1 200 OK\r\n"), "{}", scene.text(old));
}

/// The most that the proxy and the network between may hold. Buffers of the system grow.
fn most<T: Harness>() -> usize {
    if T::VIRTUAL { 2 << 20 } else { 24 << 20 }
}

fn a_client_that_stalls_holds_its_server_alone<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let slow = scene.ask("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.engine.pause(slow);
    scene.say(inner, format!("{OK}Content-Length: {}\r\n\r\n", 1_u64 << 40));
    scene.say_without_end(inner);
    scene.settle();
    assert!(scene.engine.waiting(inner) > 0, "the server waits");
    let taken = scene.taken(inner);
    assert!(taken < most::<T>(), "{taken} bytes are held");
    let quick = scene.ask("GET /quick HTTP/1.1\r\nHost: h\r\n\r\n");
    let second = scene.inner_hears(1, "/quick");
    scene.say(second, format!("{OK}Content-Length: 2\r\n\r\nyo"));
    scene.hears(quick, "\r\n\r\nyo");
    // It goes on where it has stopped.
    scene.engine.resume(slow);
    scene.until("much of the body", |scene| scene.ends[&slow].heard.len() > 8 << 20);
    scene.reset(slow);
    scene.until("its server hears of it", |scene| scene.ends[&inner].closed.is_some());
}

fn a_server_that_stalls_holds_its_client<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40);
    let client = scene.ask(head);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.engine.pause(inner);
    scene.say_without_end(client);
    scene.settle();
    assert!(scene.engine.waiting(client) > 0, "the client waits");
    let taken = scene.taken(client);
    assert!(taken < most::<T>(), "{taken} bytes are held");
    scene.engine.resume(inner);
    scene.until("much of the body", |scene| scene.ends[&inner].heard.len() > 8 << 20);
    scene.reset(inner);
    // An engine reads nothing while its output is full.
    scene.say_to_the_end(client);
    scene.hears(client, "HTTP/1.1 502 ");
}

fn pipelined_requests_are_answered_in_their_order<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let one = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n";
    let two = "POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab";
    let three = "GET /3 HTTP/1.1\r\nHost: h\r\n\r\n";
    let client = scene.ask(format!("{one}{two}{three}"));
    for number in 1..=3 {
        scene.inner_hears(0, &format!("/{number} HTTP"));
        let inner = scene.inner_hears(0, if number == 2 { "\r\n\r\nab" } else { "\r\n\r\n" });
        let heard = scene.take(inner);
        assert_eq!(heard.matches(" HTTP/1.1\r\n").count(), 1, "{heard}");
        scene.say(inner, format!("{OK}Content-Length: 1\r\n\r\n{number}"));
    }
    scene.hears(client, "\r\n\r\n3");
    let heard = scene.text(client);
    let at = |what: &str| heard.find(what).expect("it is there");
    assert!(at("\r\n\r\n1") < at("\r\n\r\n2") && at("\r\n\r\n2") < at("\r\n\r\n3"));
}

fn head_and_statuses_without_a_body<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.client();
    for (method, response, has) in [
        ("HEAD", "200 OK\r\nContent-Length: 7\r\n", "Content-Length: 7\r\n\r\n"),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\n\r\n"),
        ("GET", "204 No Content\r\n", "\r\n\r\n"),
        (
            "GET",
            "304 Not Modified\r\nContent-Length: 9\r\nETag: \"a\"\r\n",
            "Content-Length: 9\r\n\r\n",
        ),
        ("GET", "404 Gone Fishing\r\nContent-Length: 0\r\n", "Content-Length: 0\r\n\r\n"),
        ("OPTIONS", "205 Reset Content\r\nContent-Length: 0\r\n", "Content-Length: 0\r\n\r\n"),
    ] {
        scene.say(client, format!("{method} /x HTTP/1.1\r\nHost: h\r\n\r\n"));
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.take(inner);
        scene.say(inner, format!("HTTP/1.1 {response}\r\n"));
        let status = response.split("\r\n").next().expect("a line");
        scene.hears(client, "\r\n\r\n");
        let heard = scene.take(client);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{heard}");
        assert!(heard.ends_with(has), "{heard}");
    }
    assert_eq!(scene.inner.len(), 1);
}

fn old_clients_get_bodies_up_to_the_end<T: Harness>() {
    let mut scene = Scene::new::<T>();
    for is_whole in [true, false] {
        let client = scene.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let number = scene.inner.len().max(1) - 1;
        let inner = scene.inner_hears(number, "\r\n\r\n");
        let host = format!("Host: {}\r\n", scene.inner_at);
        assert!(scene.take(inner).contains(&host), "it has none of its own");
        scene.say(inner, format!("{OK}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"));
        scene.hears(client, "\r\n\r\nabc");
        assert!(scene.text(client).contains("Connection: close\r\n"));
        match is_whole {
            true => scene.say(inner, "1\r\nd\r\n0\r\n\r\n"),
            false => scene.finish(inner),
        }
        assert_eq!(scene.ends_whole(client), is_whole);
        assert_eq!(scene.text(client).ends_with("abcd"), is_whole);
    }
}

fn old_servers_end_bodies_with_their_connection<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, "HTTP/1.0 200 OK\r\n\r\nabc");
    scene.hears(client, "Transfer-Encoding: chunked\r\n\r\n");
    scene.hears_chunks(client, b"abc", false);
    scene.finish(inner);
    scene.hears_chunks(client, b"abc", true);
    let heard = scene.text(client);
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{heard}");
    scene.say(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    scene.inner_hears(1, "\r\n\r\n");
}
