//! Our clients and our servers: an application, and connections that it opens itself.

use std::time::Duration;

use windlass::Completions;
use windlass::driver::Driver;
use windlass_web::client::{FetchError, FetchEvent, FetchSettings};
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, SocketEnd, WebSocketSettings};
use windlass_web::{App, Client, Error, Status};

use crate::bench::{Web, serve};
use crate::common::{Harness, PATIENCE};

crate::every_kernel! {
    a_client_talks_to_a_server
    a_server_refuses_a_client
    a_server_opens_connections
    a_server_hears_of_a_connection_that_does_not_open
    a_server_that_shuts_down_closes_what_it_has_opened
    a_server_passes_on_what_it_hears
    a_thread_sends_and_closes
    a_state_of_another_type_opens_nothing
}

/// What has happened.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
}

/// Echoes.
struct Echo;

impl Peer<Log> for Echo {
    fn open(&mut self, _: &mut Log, c: &mut Socket<'_>) {
        c.subscribe("all");
        c.send("welcome");
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        log.lines.push(format!("server {} bytes", message.as_bytes().len()));
        c.send(message);
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.lines.push(format!("server closed {:?} {}", end.code, end.is_clean));
    }
}

/// A connection that the server opens: says three things, one after the other.
struct Asks(u32);

impl Peer<Log> for Asks {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.lines.push(format!("open {:?}", c.protocol()));
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        let bytes = message.as_bytes();
        match std::str::from_utf8(bytes).ok().filter(|text| text.len() < 50) {
            Some(text) => log.lines.push(format!("heard {text}")),
            None => log.lines.push(format!("heard {} bytes", bytes.len())),
        }
        self.0 += 1;
        match self.0 {
            1 => _ = c.send("small"),
            2 => _ = c.send(vec![0xee; 100_000]),
            _ => c.close(CloseCode::NORMAL, "done"),
        }
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        match &end.failed {
            Some(error) => log.lines.push(format!("failed: {error}")),
            None => log.lines.push(format!("closed {:?} {}", end.code, end.is_clean)),
        }
    }
}

/// Publishes what it hears.
struct Bridge;

impl Peer<Log> for Bridge {
    fn open(&mut self, log: &mut Log, _: &mut Socket<'_>) {
        log.lines.push("open".to_owned());
    }

    fn message(&mut self, _: &mut Log, c: &mut Socket<'_>, message: Message) {
        if let Message::Text(text) = message {
            c.publish("bridged", text.to_string());
        }
    }
}

fn settings() -> WebSocketSettings {
    let settings = WebSocketSettings::new().protocols(["v2", "v1"]);
    #[cfg(feature = "deflate")]
    let settings = settings.deflate(windlass_web::websocket::Deflate::TAKEOVER);
    settings
}

fn app() -> App<Log> {
    App::with(|_loop| Log::default())
        .websocket_with(settings(), "/echo", |_, _| Ok::<_, Status>(Echo))
        .websocket("/no", |_, _| Err::<Echo, _>(Status::UNAUTHORIZED))
        .get("/open", |_, q| {
            let to = q.query("to").ok_or(Status::BAD_REQUEST)?.to_owned();
            Ok::<_, Error>(q.open_websocket(to, &settings(), Asks(0)).to_string())
        })
        .get("/bridge", |_, q| {
            let to = q.query("to").ok_or(Status::BAD_REQUEST)?.to_owned();
            Ok::<_, Error>(q.open_websocket(to, &settings(), Bridge).to_string())
        })
        .get("/other", |_, q| {
            struct Other;
            impl Peer<u8> for Other {
                fn message(&mut self, _: &mut u8, _: &mut Socket<'_>, _: Message) {}
            }
            let to = "ws://127.0.0.1:1/";
            q.remote().open_websocket::<u8>(0, to, &settings(), Other).to_string()
        })
        .grace(Duration::from_secs(60))
}

/// A server, and a client in a loop of the program.
struct Both<D: Driver> {
    web: Web<D, Log>,
    client: Client,
    events: Vec<FetchEvent>,
}

fn both<T: Harness>() -> Both<T::Driver> {
    let mut web = serve::<T, _>(app());
    let mut client = Client::new(FetchSettings::new());
    if T::VIRTUAL {
        web.server.simulate_date(&web.watcher);
        client.simulate_masks();
    }
    Both { web, client, events: Vec::new() }
}

impl<D: Driver> Both<D> {
    fn url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.web.address.ip().expect("an address"))
    }

    #[track_caller]
    fn event(&mut self) -> FetchEvent {
        let start = self.web.watcher.update_now();
        loop {
            if !self.events.is_empty() {
                return self.events.remove(0);
            }
            assert!(self.web.watcher.update_now() - start < 50 * PATIENCE, "waited in vain");
            let Both { web, client, events } = self;
            client.flush(&mut web.watcher);
            let mut done = Completions::new();
            web.watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
            for completion in done.drain(..) {
                if let Some(other) = client.complete(&mut web.watcher, completion) {
                    let other = web.server.complete(&mut web.watcher, other);
                    assert!(other.is_none(), "{other:?}");
                }
            }
            web.server.turn(&mut web.watcher);
            while let Some(event) = client.next_event(&mut web.watcher) {
                events.push(event);
            }
        }
    }

    #[track_caller]
    fn message(&mut self) -> Message {
        loop {
            match self.event() {
                FetchEvent::Message { message, .. } => return message,
                FetchEvent::Drained { .. } => {} // behind what was more than the output's mark
                other => panic!("{other:?}"),
            }
        }
    }
}

fn a_client_talks_to_a_server<T: Harness>() {
    let mut both = both::<T>();
    both.client.open_websocket(both.url("/echo"), &settings());
    let id = match both.event() {
        FetchEvent::Opened { socket, .. } => socket,
        other => panic!("{other:?}"),
    };
    assert_eq!(both.client.socket(id).and_then(|c| c.protocol().map(str::to_owned)).unwrap(), "v2");
    assert_eq!(both.message().as_text(), Some("welcome"));
    for len in [0, 1, 500, 3000, 70_000, 900_000] {
        let text: String = (0..len).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        for _ in 0..2 {
            assert!(both.client.socket(id).expect("it is open").send(text.clone()));
            assert_eq!(both.message().as_text(), Some(&*text));
        }
    }
    both.client.socket(id).expect("it is open").close(CloseCode::NORMAL, "bye");
    match both.event() {
        FetchEvent::Closed { end, .. } => assert!(end.is_clean && end.reason == "bye", "{end:?}"),
        other => panic!("{other:?}"),
    }
    let is_last = |line: &String| line == "server closed Some(CloseCode(1000)) true";
    both.web.until("the server's end", |web| web.server.state().lines.last().is_some_and(is_last));
}

fn a_server_refuses_a_client<T: Harness>() {
    let mut both = both::<T>();
    both.client.open_websocket(both.url("/no"), &WebSocketSettings::new());
    both.client.open_websocket(both.url("/none"), &WebSocketSettings::new());
    let mut codes = [0, 0].map(|_| match both.event() {
        FetchEvent::Failed {
            error: FetchError::NoWebSocket { status, location: None }, ..
        } => status.code(),
        other => panic!("{other:?}"),
    });
    codes.sort_unstable(); // a connection may be faster than another
    assert_eq!(codes, [401, 404]);
}

/// Asks the server to open a connection to a path of its own.
#[track_caller]
fn open<D: Driver>(web: &mut Web<D, Log>, how: &str, to: &str) {
    let asked = web.ask(format!("GET /{how}?to={to} HTTP/1.1\r\nHost: test\r\n\r\n"));
    web.until_heard(asked, "\r\n\r\ntrue");
}

fn own<D: Driver>(web: &Web<D, Log>, path: &str) -> String {
    format!("ws://{}{path}", web.address.ip().expect("an address"))
}

fn a_server_opens_connections<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let to = own(&web, "/echo");
    open(&mut web, "open", &to);
    web.until("both sides are closed", |web| {
        web.server.state().lines.iter().filter(|line| line.contains("closed")).count() == 2
    });
    let mut lines = web.server.state().lines.clone();
    lines.sort();
    assert_eq!(
        lines,
        [
            "closed Some(CloseCode(1000)) true",
            "heard 100000 bytes",
            "heard small",
            "heard welcome",
            "open Some(\"v2\")",
            "server 100000 bytes",
            "server 5 bytes",
            "server closed Some(CloseCode(1000)) true",
        ]
    );
}

fn a_server_hears_of_a_connection_that_does_not_open<T: Harness>() {
    let mut web = serve::<T, _>(app());
    for (to, why) in [
        (own(&web, "/no"), "the server refuses the WebSocket with 401 Unauthorized"),
        ("ftp://a.test/".to_owned(), "http://a.test/: its scheme is neither http nor https"),
        ("ws://127.0.0.1:1/".to_owned(), "the connection has failed: "),
    ] {
        web.server.state().lines.clear();
        open(&mut web, "open", &to);
        web.until("it has failed", |web| !web.server.state().lines.is_empty());
        let lines = web.server.state().lines.clone();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let why = why.replace("http://a", "ftp://a");
        assert!(lines[0].starts_with(&format!("failed: {why}")), "{lines:?}");
    }
}

fn a_server_that_shuts_down_closes_what_it_has_opened<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let to = own(&web, "/echo");
    open(&mut web, "bridge", &to);
    web.until("it is open", |web| !web.server.state().lines.is_empty());
    web.server.stop(&mut web.watcher);
    web.until("it is over", |web| web.server.is_over());
    let lines = &web.server.state().lines;
    let closed = lines.iter().any(|line| line.contains("server closed Some(CloseCode(1001))"));
    assert!(closed, "{lines:?}");
}

/// The bridge tells the texts of the echo to those that hear its topic.
fn a_server_passes_on_what_it_hears<T: Harness>() {
    struct Hears;
    impl Peer<Log> for Hears {
        fn open(&mut self, _: &mut Log, c: &mut Socket<'_>) {
            c.subscribe("bridged");
        }
        fn message(&mut self, _: &mut Log, _: &mut Socket<'_>, _: Message) {}
    }
    let app = app().websocket("/hear", |_, _| Ok::<_, Status>(Hears));
    let mut web = serve::<T, _>(app);
    let client = web.ask(
        "GET /hear HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    web.until_heard(client, "\r\n\r\n");
    let to = own(&web, "/echo");
    open(&mut web, "bridge", &to);
    web.until_heard(client, "\u{7}welcome");
}

fn a_thread_sends_and_closes<T: Harness>() {
    let mut both = both::<T>();
    both.client.open_websocket(both.url("/echo"), &WebSocketSettings::new());
    let id = match both.event() {
        FetchEvent::Opened { socket, .. } => socket,
        other => panic!("{other:?}"),
    };
    assert_eq!(both.message().as_text(), Some("welcome"));
    let sender = both.client.socket(id).expect("it is open").sender();
    let thread = std::thread::spawn(move || {
        sender.send("from a thread").expect("it is open");
        sender.close(CloseCode::NORMAL, "done");
    });
    thread.join().expect("no panic");
    let mut heard = Vec::new();
    loop {
        match both.event() {
            FetchEvent::Message { message, .. } => {
                heard.push(message.as_text().map(str::to_owned));
            }
            FetchEvent::Closed { end, .. } => {
                assert!(end.is_clean && end.reason == "done", "{end:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    // The echo may come behind the close.
    assert!(heard.len() <= 1);
    let lines = &both.web.server.state().lines;
    assert!(lines.contains(&"server 13 bytes".to_owned()), "{lines:?}");
}

fn a_state_of_another_type_opens_nothing<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let asked = web.ask("GET /other HTTP/1.1\r\nHost: test\r\n\r\n");
    web.until_heard(asked, "\r\n\r\nfalse");
}
