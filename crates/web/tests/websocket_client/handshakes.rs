//! Handshakes: what is asked, and answers that are wrong.

use std::time::Duration;

use windlass_web::client::{Fetch, FetchError, FetchEvent, FetchSettings};
use windlass_web::websocket::WebSocketSettings;

use crate::common::Harness;
use crate::scene::{scene, scene_with};

crate::every_kernel! {
    a_request_has_what_a_server_needs
    wrong_responses_fail_with_one_reason
    a_response_may_end_at_each_byte
    what_cannot_be_asked_is_an_error
    a_silent_server_is_given_up
    a_host_without_a_server_is_an_error
    a_cancelled_handshake_tells_nothing
    a_client_that_stops_opens_none
    a_kept_connection_is_used
    a_kept_connection_that_ends_is_replaced
}

fn a_request_has_what_a_server_needs<T: Harness>() {
    let mut scene = scene::<T>();
    let settings = WebSocketSettings::new().protocols(["v2", "v1"]);
    let fetch = Fetch::get(&*scene.url).header("Authorization", "Basic YQ==");
    scene.client.open_websocket(fetch, &settings);
    scene.client.open_websocket(scene.url.replace("ws:", "WS:"), &settings);
    scene.until_asked(2);
    let request = scene.conns[0].request.clone().expect("a request");
    assert!(request.starts_with("GET /chat?a HTTP/1.1\r\nHost: 127.0.0.1"), "{request}");
    for (name, value) in [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", "v2, v1"),
        ("Authorization", "Basic YQ=="),
    ] {
        assert_eq!(scene.field(0, name), Some(value), "{request}");
    }
    assert_ne!(scene.field(0, "Sec-WebSocket-Key"), scene.field(1, "Sec-WebSocket-Key"));
    let head = scene.head(0, "Sec-WebSocket-Protocol: v1\r\n");
    scene.say(0, head);
    match scene.event() {
        FetchEvent::Opened { socket, .. } => {
            let socket = scene.client.socket(socket).expect("it is open");
            assert_eq!(socket.protocol(), Some("v1"));
        }
        other => panic!("{other:?}"),
    }
}

/// What the server says in the place of the 101, and what comes of it. `ACCEPT` is the right one.
const ROWS: &[(&str, &str)] = &[
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "the server refuses the WebSocket with 200 OK",
    ),
    (
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        "the server refuses the WebSocket with 401 Unauthorized",
    ),
    (
        "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
        "the server refuses the WebSocket with 302 Found, and leads to /other",
    ),
    (
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Content-Length: 0\r\n\r\n",
        "the server refuses the WebSocket with 426 Upgrade Required",
    ),
    (
        "HTTP/1.1 101 A\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "the server switches protocols unasked",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "the server switches protocols unasked",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "the response does not switch to WebSocket",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "Sec-WebSocket-Accept does not answer the key",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        "Sec-WebSocket-Accept does not answer the key",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "Sec-WebSocket-Accept does not answer the key",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: v3\r\n\r\n",
        "Sec-WebSocket-Protocol has what was not offered",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: v1, v2\r\n\r\n",
        "Sec-WebSocket-Protocol has what was not offered",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        "Sec-WebSocket-Extensions has what was not offered",
    ),
    (
        "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Extensions: =\r\n\r\n",
        "Sec-WebSocket-Extensions has what was not offered",
    ),
    ("SSH-2.0-OpenSSH_9.6\r\n", "the status line is not a version, a status and a reason"),
];

fn wrong_responses_fail_with_one_reason<T: Harness>() {
    let settings = WebSocketSettings::new().protocols(["v1", "v2"]);
    for (response, why) in ROWS {
        let mut scene = scene::<T>();
        scene.client.open_websocket(&*scene.url, &settings);
        scene.until_asked(1);
        let right = scene.head(0, "");
        let accept = right.split("Accept: ").nth(1).and_then(|rest| rest.lines().next());
        scene.say(0, response.replace("ACCEPT", accept.expect("it is there")));
        assert_eq!(scene.failure(), *why, "{response}");
        scene.client.stop();
        scene.until("no connection is left", |scene| scene.client.is_empty());
        assert!(scene.events.is_empty() && scene.client.requests() == 0);
    }
}

fn a_response_may_end_at_each_byte<T: Harness>() {
    let whole = {
        let mut scene = scene::<T>();
        scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
        scene.until_asked(1);
        scene.head(0, "").len()
    };
    for len in (0..whole).step_by(if T::VIRTUAL { 1 } else { 40 }) {
        let mut scene = scene::<T>();
        scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
        scene.until_asked(1);
        let mut head = scene.head(0, "");
        head.truncate(len);
        scene.say(0, head);
        scene.finish(0);
        assert_eq!(scene.failure(), "the server has ended the connection", "{len}");
    }
}

fn what_cannot_be_asked_is_an_error<T: Harness>() {
    let mut scene = scene::<T>();
    let none = WebSocketSettings::new();
    let wrong = "a WebSocket begins with a GET without a body";
    let own = "the encoder writes this field itself";
    let control = "the value of a field has control bytes";
    for (fetch, settings, why) in [
        (Fetch::get("chat.example"), none.clone(), "it is no absolute URL"),
        (Fetch::get("ftp://a.test/"), none.clone(), "its scheme is neither http nor https"),
        (Fetch::get("ws://"), none.clone(), "it has no host"),
        (Fetch::post(&*scene.url), none.clone(), wrong),
        (Fetch::get(&*scene.url).body("a"), none.clone(), wrong),
        (Fetch::get(&*scene.url).header("sec-websocket-key", "a"), none.clone(), own),
        (Fetch::get(&*scene.url).header("Upgrade", "a"), none.clone(), own),
        (Fetch::get(&*scene.url).header("A", "b\n"), none.clone(), control),
        (Fetch::get(&*scene.url), none.clone().protocols(["a b"]), control),
        (Fetch::get("wss://a.test/"), none, "https needs certificate authorities to trust"),
    ] {
        if cfg!(feature = "webpki-roots") && why.starts_with("https needs") {
            continue;
        }
        scene.client.open_websocket(fetch, &settings);
        let failure = scene.failure();
        assert!(failure.ends_with(why), "{failure}");
    }
    assert!(scene.conns.is_empty());
}

fn a_silent_server_is_given_up<T: Harness>() {
    let mut scene = scene::<T>();
    let span = T::span(5.0);
    let fetch = Fetch::get(&*scene.url).timeout(span);
    scene.client.open_websocket(fetch, &WebSocketSettings::new());
    let failure = scene.failure();
    assert_eq!(failure, format!("the whole response has taken longer than {span:?}"));
    scene.until("the connection has ended", |scene| scene.client.is_empty());
}

fn a_host_without_a_server_is_an_error<T: Harness>() {
    let mut scene = scene::<T>();
    scene.client.open_websocket("ws://127.0.0.1:1/", &WebSocketSettings::new());
    match scene.event() {
        FetchEvent::Failed { error: FetchError::Connection(cause), .. } => {
            assert!(cause.to_string().contains("refused"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

fn a_cancelled_handshake_tells_nothing<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
    scene.until_asked(1);
    assert!(scene.client.cancel(id));
    scene.until("the connection has ended", |scene| scene.client.is_empty());
    assert!(!scene.client.cancel(id));
    assert!(scene.events.is_empty(), "{:?}", scene.events);
}

fn a_client_that_stops_opens_none<T: Harness>() {
    let mut scene = scene::<T>();
    scene.client.stop();
    scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
    assert_eq!(scene.failure(), "there is no room for it");
}

/// A connection of a request goes over, and the pool has it no more.
fn a_kept_connection_is_used<T: Harness>() {
    let mut scene = scene_with::<T>(FetchSettings::new().connections(1, 1));
    let url = scene.url.replace("ws:", "http:");
    scene.client.fetch(Fetch::get(&*url));
    scene.until_asked(1);
    scene.say(0, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(scene.event(), FetchEvent::Fetched { result: Ok(_), .. }));
    scene.conns[0].request = None;
    scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
    scene.until_asked(1);
    let head = scene.head(0, "");
    scene.say(0, head);
    assert!(matches!(scene.event(), FetchEvent::Opened { .. }));
    // One connection is allowed, and there is room for it.
    scene.client.fetch(Fetch::get(&*url).timeout(Duration::from_secs(1000)));
    scene.until("another connection", |scene| scene.conns.len() == 2);
}

/// The server may close a kept connection while the handshake is sent on it.
fn a_kept_connection_that_ends_is_replaced<T: Harness>() {
    let mut scene = scene::<T>();
    scene.client.fetch(Fetch::get(scene.url.replace("ws:", "http:")));
    scene.until_asked(1);
    scene.say(0, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(scene.event(), FetchEvent::Fetched { result: Ok(_), .. }));
    scene.conns[0].request = None;
    scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
    scene.until_asked(1);
    scene.finish(0);
    scene.until("another connection", |scene| {
        scene.conns.get(1).is_some_and(|conn| conn.request.is_some())
    });
    let head = scene.head(1, "");
    scene.say(1, head);
    assert!(matches!(scene.event(), FetchEvent::Opened { .. }));
}
