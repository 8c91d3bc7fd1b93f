//! Requests for a WebSocket: which ones are taken, and what the others get.

use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Response, Status};

use crate::bench::{Web, body, serve};
use crate::client::{Got, KEY, Ws, close, closed, request, said, text};
use crate::common::Harness;
use crate::program::{Log, Obeys, web};

crate::every_kernel! {
    a_request_that_is_none_for_a_websocket
    what_a_client_may_write_otherwise
    another_method_gets_no_websocket
    a_request_with_a_body_is_refused
    pages_of_other_hosts_are_refused
    both_sides_agree_to_a_protocol
    a_handler_refuses_before_the_101
    hooks_see_the_handshake
    a_nested_application_has_websockets
}

/// Says something, and returns the response, which is no 101, with its body.
#[track_caller]
fn refused<D: windlass::driver::Driver, S: 'static>(web: &mut Web<D, S>, what: &str) -> String {
    let client = web.ask(what.to_owned());
    web.finish(client);
    let heard = web.until_over(client);
    assert!(!heard.contains(" 101 "), "{what}{heard}");
    web.close(client);
    heard
}

/// The request, with a line in the place of another one.
#[track_caller]
fn with(line: &str, other: &str) -> String {
    let request = request("/ws", "");
    let line = request.lines().find(|one| one.starts_with(line)).expect("a line").to_owned();
    let other = if other.is_empty() { String::new() } else { format!("{other}\r\n") };
    request.replace(&format!("{line}\r\n"), &other)
}

fn a_request_that_is_none_for_a_websocket<T: Harness>() {
    let mut web = web::<T>();
    let key = |key: &str| with("Sec-WebSocket-Key", &format!("Sec-WebSocket-Key: {key}"));
    let version =
        |version: &str| with("Sec-WebSocket-Version", &format!("Sec-WebSocket-Version: {version}"));
    let needs_other_protocol = [
        with("Upgrade:", ""),
        with("Upgrade:", "Upgrade: websocket2"),
        with("Upgrade:", "Upgrade: h2c"),
        with("Connection", ""),
        with("Connection", "Connection: keep-alive"),
        with("GET", "GET /ws HTTP/1.0"),
        with("Sec-WebSocket-Version", ""),
        version("8"),
        version("14"),
        version("13, 8"),
        version("013"),
        version("13\r\nSec-WebSocket-Version: 13"),
        version("8\r\nSec-WebSocket-Version: 13"),
    ];
    for request in needs_other_protocol {
        let heard = refused(&mut web, &request);
        assert!(heard.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{request}{heard}");
        assert!(heard.contains("\r\nUpgrade: websocket\r\n"), "{request}{heard}");
        assert!(heard.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{request}{heard}");
    }
    let malformed = [
        with("Sec-WebSocket-Key", ""),
        key(""),
        key("c2hvcnQ="),
        key("dGhlIHNhbXBsZSBub25jZQ"),
        key("dGhlIHNhbXBsZSBub25jZQ==="),
        key("dGhlIHNhbXBsZSBub25jZSEh"),
        key("dGhlIHNhbXBsZSBub25j!Q=="),
        key(&format!("{KEY}\r\nSec-WebSocket-Key: {KEY}")),
        key(&format!("{KEY}, {KEY}")),
    ];
    for request in malformed {
        let heard = refused(&mut web, &request);
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{request}{heard}");
        assert!(body(&heard).contains("Sec-WebSocket-Key"), "{request}{heard}");
    }
    // The connection is one of HTTP still.
    let client = web.ask(version("8") + "GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(client, "page");
    assert!(web.server.state().opened.is_empty());
}

fn what_a_client_may_write_otherwise<T: Harness>() {
    let mut web = web::<T>();
    for request in [
        with("Upgrade:", "upgrade: WebSocket"),
        with("Upgrade:", "Upgrade: h2c, websocket"),
        with("Connection", "connection: UPGRADE"),
        with("Connection", "Connection: keep-alive\r\nConnection: upgrade"),
        with("Sec-WebSocket-Key", &format!("sec-websocket-key:   {KEY}  ")),
        with("Sec-WebSocket-Version", "SEC-WEBSOCKET-VERSION:13"),
        request("/ws", "Sec-WebSocket-Extensions: x-unknown; a=b\r\n"),
        request("/ws", "Content-Length: 0\r\n"),
    ] {
        let client = web.ask([request.as_bytes(), &text("hi")].concat());
        let mut ws = Ws::of(client);
        assert_eq!(ws.next(&mut web), said("hi"), "{request}");
        let head = ws.inbox.head.as_deref().expect("a head");
        assert!(head.contains("\r\nUpgrade: websocket\r\nConnection: Upgrade"), "{head}");
        assert!(!head.contains("Content-Length") && !head.contains("Sec-WebSocket-Ext"), "{head}");
        ws.say(&mut web, close(1000, ""));
        assert_eq!(ws.rest(&mut web), [closed(1000)]);
    }
}

fn another_method_gets_no_websocket<T: Harness>() {
    let mut web = web::<T>();
    for method in ["POST", "PUT", "DELETE", "PATCH", "HEAD"] {
        let heard = refused(&mut web, &with("GET", &format!("{method} /ws HTTP/1.1")));
        assert!(heard.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{method}: {heard}");
        assert!(heard.contains("\r\nAllow: GET"), "{method}: {heard}");
    }
    assert!(web.server.state().opened.is_empty());
    // A route may have a WebSocket for GET, and something else for others.
    let app = App::new()
        .websocket("/both", |_, _| Ok::<_, Status>(Echo))
        .post("/both", |_, q| q.text().map(str::to_owned));
    let mut web = serve::<T, _>(app);
    let client = web.ask("POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    web.until_heard(client, "\r\n\r\nbody");
    let mut ws = Ws::ask(&mut web, "/both", text("hi"));
    assert_eq!(ws.next(&mut web), said("hi"));
}

struct Echo;

impl<S> Peer<S> for Echo {
    fn message(&mut self, _: &mut S, c: &mut Socket<'_>, message: Message) {
        c.send(message);
    }
}

fn a_request_with_a_body_is_refused<T: Harness>() {
    let mut web = web::<T>();
    for fields in ["Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n"] {
        for rest in ["body", "4\r\nbody\r\n0\r\n\r\n"] {
            let heard = refused(&mut web, &(request("/ws", fields) + rest));
            assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{fields}: {heard}");
        }
    }
    assert!(web.server.state().opened.is_empty());
}

fn pages_of_other_hosts_are_refused<T: Harness>() {
    let settings = WebSocketSettings::new;
    let these = settings().origins(["https://example.com", "https://a.test:8443"]);
    let echo = |_: &mut (), _: &mut windlass_web::Request<'_, ()>| Ok::<_, Status>(Echo);
    let app = App::new()
        .websocket("/same", echo)
        .websocket_with(these, "/these", echo)
        .websocket_with(settings().any_origin(), "/any", echo);
    let mut web = serve::<T, _>(app);
    // The host of the requests is `test`.
    let cases = [
        ("", true, true),
        ("Origin: http://test\r\n", true, false),
        ("Origin: https://TEST\r\n", true, false),
        ("Origin: http://test:8080\r\n", false, false),
        ("Origin: http://test.evil\r\n", false, false),
        ("Origin: http://eviltest\r\n", false, false),
        ("Origin: null\r\n", false, false),
        ("Origin: \r\n", false, false),
        ("Origin: test\r\n", false, false),
        ("Origin: https://example.com\r\n", false, true),
        ("Origin: HTTPS://EXAMPLE.com\r\n", false, true),
        ("Origin: https://a.test:8443\r\n", false, true),
        ("Origin: https://a.test\r\n", false, false),
        ("Origin: http://example.com\r\n", false, false),
        ("Origin: https://example.com.evil\r\n", false, false),
        ("Origin: http://test\r\nOrigin: https://example.com\r\n", false, false),
        ("Origin: https://example.com\r\nOrigin: http://test\r\n", false, false),
    ];
    for (fields, same, these) in cases {
        let any = !fields.contains("\nOrigin");
        for (path, may) in [("/same", same), ("/these", these), ("/any", any)] {
            if may {
                let mut ws =
                    Ws::of(web.ask([request(path, fields).as_bytes(), &text("hi")].concat()));
                assert_eq!(ws.next(&mut web), said("hi"), "{path} {fields}");
                web.close(ws.source);
            } else {
                let heard = refused(&mut web, &request(path, fields));
                assert!(heard.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{path} {fields}{heard}");
            }
        }
    }
    // A port that is the default of the scheme is no other host.
    let to = |host: &str, origin: &str| {
        let request = request("/same", &format!("Origin: {origin}\r\n"));
        request.replace("Host: test\r\n", &format!("Host: {host}\r\n"))
    };
    for (host, origin) in [
        ("a.test:8080", "http://a.test:8080"),
        ("a.test:443", "https://a.test"),
        ("a.test:80", "http://a.test"),
        ("[::1]:8080", "http://[::1]:8080"),
    ] {
        let mut ws = Ws::of(web.ask([to(host, origin).as_bytes(), &text("hi")].concat()));
        assert_eq!(ws.next(&mut web), said("hi"), "{host} {origin}");
    }
    for (host, origin) in [("a.test:443", "http://a.test"), ("a.test:8080", "http://a.test")] {
        assert!(refused(&mut web, &to(host, origin)).contains(" 403 "), "{host} {origin}");
    }
}

/// Says its protocol.
struct Protocol;

impl Peer<()> for Protocol {
    fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
        let protocol = c.protocol().unwrap_or("none").to_owned();
        c.send(protocol);
    }

    fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
}

fn both_sides_agree_to_a_protocol<T: Harness>() {
    let settings = WebSocketSettings::new().protocols(["chat.v2", "chat.v1"]);
    let app = App::new()
        .websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(Protocol))
        .websocket("/none", |_, _| Ok::<_, Status>(Protocol));
    let mut web = serve::<T, _>(app);
    let field = |list: &str| format!("Sec-WebSocket-Protocol: {list}\r\n");
    for (fields, agreed) in [
        (String::new(), "none"),
        (field("chat.v1"), "chat.v1"),
        (field("chat.v1, chat.v2"), "chat.v2"),
        (field("other , chat.v1"), "chat.v1"),
        (field("chat.v1") + &field("chat.v2"), "chat.v2"),
        (field(",,chat.v1,"), "chat.v1"),
    ] {
        let mut ws = Ws::of(web.ask(request("/ws", &fields)));
        assert_eq!(ws.next(&mut web), said(agreed), "{fields}");
        let head = ws.inbox.head.as_deref().expect("a head");
        let line = format!("\r\nSec-WebSocket-Protocol: {agreed}\r\n");
        assert_eq!(head.contains(&line), agreed != "none", "{head}");
        assert_eq!(head.contains("Sec-WebSocket-Protocol"), agreed != "none", "{head}");
        let mut ws = Ws::of(web.ask(request("/none", &fields)));
        assert_eq!(ws.next(&mut web), said("none"), "{fields}");
    }
    for list in ["other", "CHAT.V1", "chat", "chat.v1.1"] {
        let heard = refused(&mut web, &request("/ws", &field(list)));
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{list}: {heard}");
    }
}

fn a_handler_refuses_before_the_101<T: Harness>() {
    let app = App::with(|_| 0)
        .websocket("/status", |_, q| match q.query("name") {
            Some(_) => Ok(Echo),
            None => Err(Status::UNAUTHORIZED),
        })
        .websocket("/full", |_, _| {
            let refusal = Response::text("no room").status(Status::SERVICE_UNAVAILABLE);
            Err::<Echo, _>(refusal.header("Retry-After", "7"))
        })
        .websocket("/counts", |count: &mut i32, _| {
            *count += 1;
            Ok::<_, Status>(Echo)
        });
    let mut web = serve::<T, _>(app);
    let heard = refused(&mut web, &request("/status", ""));
    assert!(heard.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{heard}");
    let heard = refused(&mut web, &request("/full", ""));
    assert!(heard.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{heard}");
    assert!(heard.contains("\r\nRetry-After: 7\r\n") && body(&heard) == "no room", "{heard}");
    // The connection goes on, and a later request may be taken.
    let client = web.ask(request("/status", "") + &request("/status?name=a", ""));
    web.until_heard(client, "HTTP/1.1 101 ");
    // A handler is asked only for what could be a WebSocket.
    let plain = "GET /counts HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(refused(&mut web, plain).starts_with("HTTP/1.1 426 "));
    let other = request("/counts", "Origin: http://other\r\n");
    assert!(refused(&mut web, &other).starts_with("HTTP/1.1 403 "));
    assert_eq!(*web.server.state(), 0);
    let mut ws = Ws::ask(&mut web, "/counts", text("hi"));
    assert_eq!(ws.next(&mut web), said("hi"));
    assert_eq!(*web.server.state(), 1);
}

/// An application whose hooks see each request.
fn hooked() -> App<Log> {
    App::with(|_| Log::default())
        .before(|_, q| q.query("key").is_none().then(|| Status::UNAUTHORIZED.into()))
        .after(|_, _, head| head.set("X-Hook", "seen"))
        .finished(|log: &mut Log, finished| {
            assert_eq!(finished.route(), "/in/{room}");
            log.finished.push(finished.status().map_or(0, |status| status.code()));
        })
        .websocket("/{room}", |_, q| {
            let open = format!("!say {}", q.param("room"));
            Ok::<_, Status>(Obeys::new(&open, ""))
        })
}

fn hooks_see_the_handshake<T: Harness>() {
    let mut web = serve::<T, _>(App::with(|_| Log::default()).nest("/in", hooked()));
    let heard = refused(&mut web, &request("/in/a", ""));
    assert!(heard.starts_with("HTTP/1.1 401 ") && heard.contains("X-Hook: seen\r\n"), "{heard}");
    let mut ws = Ws::ask(&mut web, "/in/a?key=1", "");
    assert_eq!(ws.next(&mut web), said("a"));
    assert!(ws.inbox.head.as_deref().expect("a head").contains("X-Hook: seen\r\n"));
    // The request is over with its 101.
    assert_eq!(web.server.state().finished, [401, 101]);
    let heard = refused(&mut web, "GET /in/a?key=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(heard.starts_with("HTTP/1.1 426 ") && heard.contains("X-Hook: seen\r\n"), "{heard}");
    assert_eq!(web.server.state().finished, [401, 101, 426]);
}

fn a_nested_application_has_websockets<T: Harness>() {
    let inner = App::new().websocket("/ws", |_, _| Ok::<_, Status>(Echo)).get("/", |_, _| "in");
    let app = App::new().nest("/a", App::new().nest("/b", inner)).get("/", |_, _| "out");
    let mut web = serve::<T, _>(app);
    let client =
        web.ask("GET /a/b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &request("/a/b/ws", ""));
    web.until_heard(client, "HTTP/1.1 101 ");
    web.say(client, text("hi"));
    web.until_heard(client, "\u{2}hi");
    let mut ws = Ws::ask(&mut web, "/a/b/ws", text("hi"));
    assert_eq!(ws.next(&mut web), said("hi"));
    ws.say(&mut web, close(1000, ""));
    assert_eq!(ws.next(&mut web), Got::Close(Some(1000), String::new()));
}
