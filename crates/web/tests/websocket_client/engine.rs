//! WebSockets of an engine in a loop that the program owns: with our client, and with bytes.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Completions, Watcher};
use windlass_serve::{Config, Engine as Below, Event as Raw, Id};
use windlass_web::client::{FetchError, FetchEvent, FetchSettings};
use windlass_web::engine::{Event, OwnedRequest, Refusal, RequestId};
use windlass_web::websocket::{CloseCode, Message, WebSocketSettings};
use windlass_web::{Client, Engine, Limits};

use crate::common::{Harness, PATIENCE};

crate::every_kernel! {
    messages_are_events
    frames_may_come_with_the_request
    a_message_in_front_of_a_close_can_be_answered
    a_pause_holds_back_all_behind_it
    a_page_can_be_answered_otherwise
    a_wrong_handshake_is_answered
    an_end_without_a_close_is_told
    what_is_published_goes_to_all_subscribers
    an_engine_that_stops_closes
    an_engine_opens_connections
    an_engine_hears_of_a_connection_that_does_not_open
    a_thread_sends_and_closes
    verbs_for_bytes_are_not_for_messages
}

/// The state of a connection: its number.
type State = u32;

struct Scene<D: Driver> {
    watcher: Watcher<D>,
    engine: Engine<State>,
    events: Vec<Event<State>>,
    client: Client,
    heard: Vec<FetchEvent>,
    /// Clients of bytes.
    raw: Below<()>,
    bytes: Vec<u8>,
    has_end: bool,
    host: String,
    /// Pauses with each message.
    pauses: bool,
    echoes: bool,
    accepted: u32,
}

fn scene<T: Harness>() -> Scene<T::Driver> {
    let mut watcher = T::watcher(Watcher::builder());
    let mut engine = Engine::new(Config::new(), Limits::new());
    let port = if T::VIRTUAL { 8080 } else { 0 };
    let local = ([127, 0, 0, 1], port);
    let number = engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
    let address = watcher.local_address(engine.listeners()[number]).expect("its address");
    let mut client = Client::new(FetchSettings::new());
    if T::VIRTUAL {
        engine.simulate_date(&watcher);
        client.simulate_masks();
    }
    Scene {
        watcher,
        engine,
        events: Vec::new(),
        client,
        heard: Vec::new(),
        raw: Below::new(Config::new().close_on_eof(false)),
        bytes: Vec::new(),
        has_end: false,
        host: address.ip().expect("an address").to_string(),
        pauses: false,
        echoes: true,
        accepted: 0,
    }
}

fn settings() -> WebSocketSettings {
    WebSocketSettings::new().protocols(["v2", "v1"])
}

impl<D: Driver> Scene<D> {
    fn turn(&mut self, span: Duration) {
        self.client.flush(&mut self.watcher);
        self.engine.flush(&mut self.watcher);
        self.raw.flush(&mut self.watcher);
        let mut done = Completions::new();
        self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            let other = self.client.complete(&mut self.watcher, completion);
            let other = other.and_then(|other| self.engine.complete(&mut self.watcher, other));
            let other = other.and_then(|other| self.raw.complete(&mut self.watcher, other));
            assert!(other.is_none(), "{other:?}");
        }
        while let Some(event) = self.client.next_event(&mut self.watcher) {
            self.heard.push(event);
        }
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            self.take(event);
        }
        while let Some(event) = self.raw.next_event(&mut self.watcher) {
            match event {
                Raw::Data { data, .. } => self.bytes.extend_from_slice(&data),
                Raw::Eof { .. } | Raw::Closed { .. } => self.has_end = true,
                _ => {}
            }
        }
    }

    fn take(&mut self, event: Event<State>) {
        match event {
            Event::Request { id, request } => self.answer(id, &request),
            Event::SocketMessage { id, message } if self.echoes => {
                let mut socket = self.engine.socket(id).expect("it is open");
                match message.as_text().and_then(|text| text.split_once(' ')) {
                    Some(("!hear", topic)) => socket.subscribe(topic),
                    Some(("!tell", topic)) => socket.publish(topic, "told"),
                    Some(("!close", reason)) => socket.close(CloseCode::NORMAL, reason),
                    _ => _ = socket.send(message),
                }
            }
            event => {
                if let (Event::SocketMessage { id, .. }, true) = (&event, self.pauses) {
                    self.engine.socket(*id).expect("it is open").pause();
                }
                self.events.push(event);
            }
        }
    }

    fn answer(&mut self, id: RequestId, request: &OwnedRequest) {
        self.accepted += 1;
        match self.engine.accept_websocket(id, &settings(), self.accepted) {
            Ok(connection) => {
                assert_eq!(self.engine.state(connection), Some(&mut self.accepted.clone()));
                assert!(self.engine.peer(connection).is_some());
            }
            Err(refused) => {
                assert_eq!(refused.value, self.accepted, "the state comes back");
                if refused.reason == Refusal::NotOffered {
                    self.engine.respond(id, request.path().to_owned()).expect("it waits");
                }
            }
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            let now = self.watcher.update_now();
            assert!(
                now - start < 50 * PATIENCE,
                "still waits for {what}: {:?} {:?}",
                self.events,
                self.heard
            );
            self.turn(PATIENCE);
        }
    }

    /// The next event of the client.
    #[track_caller]
    fn heard(&mut self) -> FetchEvent {
        self.until("the client hears", |scene| !scene.heard.is_empty());
        self.heard.remove(0)
    }

    #[track_caller]
    fn text(&mut self) -> String {
        match self.heard() {
            FetchEvent::Message { message, .. } => message.as_text().expect("a text").to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn open(&mut self) -> Id {
        let url = format!("ws://{}/a", self.host);
        self.client.open_websocket(url, &settings());
        match self.heard() {
            FetchEvent::Opened { socket, .. } => socket,
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, id: Id, message: impl Into<Message>) {
        assert!(self.client.socket(id).expect("it is open").send(message));
    }

    /// Connects, and says bytes.
    fn bytes(&mut self, bytes: impl Into<Vec<u8>>) -> Id {
        let to: std::net::SocketAddr = self.host.parse().expect("an address");
        let id = self.raw.connect([to], ConnectOptions::default(), ()).expect("an id");
        self.raw.write(id, bytes.into()).expect("it takes it");
        id
    }

    /// The next event of the engine that is not about requests.
    #[track_caller]
    fn event(&mut self) -> Event<State> {
        let is_of_request =
            |event: &Event<State>| matches!(event, Event::Ended { .. } | Event::Refused { .. });
        self.until("an event", |scene| {
            scene.events.retain(|event| !is_of_request(event));
            !scene.events.is_empty()
        });
        self.events.remove(0)
    }
}

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn request(fields: &str) -> Vec<u8> {
    format!(
        "GET /page HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\n{fields}\r\n"
    )
    .into_bytes()
}

/// A text with a mask of nothing.
fn frame(text: &str) -> Vec<u8> {
    [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat()
}

const CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8];

fn messages_are_events<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    assert_eq!(scene.client.socket(id).expect("it is open").protocol(), Some("v2"));
    for len in [0, 1, 125, 3000, 100_000] {
        scene.say(id, "a".repeat(len));
        assert_eq!(scene.text().len(), len);
    }
    scene.say(id, "!close bye");
    match scene.heard() {
        FetchEvent::Closed { end, .. } => assert!(end.is_clean && end.reason == "bye", "{end:?}"),
        other => panic!("{other:?}"),
    }
    match scene.event() {
        Event::SocketClosed { end, state, id } => {
            assert!(end.is_clean && state == 1, "{end:?}");
            assert!(scene.engine.socket(id).is_none());
        }
        other => panic!("{other:?}"),
    }
    scene.until("nothing is left", |scene| scene.engine.is_empty() && scene.client.is_empty());
}

fn frames_may_come_with_the_request<T: Harness>() {
    let early = [frame("one"), frame("two"), CLOSE.to_vec()].concat();
    let all = [request(&format!("Sec-WebSocket-Key: {KEY}\r\n")), early].concat();
    let head = all.len() - 26;
    for at in (head - 1..all.len()).step_by(if T::VIRTUAL { 1 } else { 9 }) {
        let mut scene = scene::<T>();
        let id = scene.bytes(&all[..at]);
        scene.turn(Duration::ZERO);
        scene.raw.write(id, all[at..].to_vec()).expect("it takes it");
        scene.until("the server's end", |scene| scene.has_end);
        let heard = String::from_utf8_lossy(&scene.bytes);
        assert!(heard.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{heard}");
        assert!(scene.bytes.ends_with(b"\x81\x03one\x81\x03two\x88\x02\x03\xe8"), "{heard}");
    }
}

fn a_message_in_front_of_a_close_can_be_answered<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    let mut socket = scene.client.socket(id).expect("it is open");
    assert!(socket.send("a") && socket.send("b"));
    scene.client.flush(&mut scene.watcher);
    assert_eq!((scene.text(), scene.text()), ("a".into(), "b".into()));
}

fn a_pause_holds_back_all_behind_it<T: Harness>() {
    let mut scene = scene::<T>();
    (scene.pauses, scene.echoes) = (true, false);
    let id = scene.open();
    let mut socket = scene.client.socket(id).expect("it is open");
    assert!(["a", "b", "c"].iter().all(|text| socket.send(*text)));
    // The end of the input behind them does not lose them, either.
    for expected in ["a", "b", "c"] {
        let id = match scene.event() {
            Event::SocketMessage { id, message } => {
                assert_eq!(message.as_text(), Some(expected));
                id
            }
            other => panic!("{other:?}"),
        };
        for _ in 0..10 {
            scene.turn(Duration::ZERO);
        }
        let is_of_socket = |event: &Event<State>| !matches!(event, Event::Ended { .. });
        assert!(!scene.events.iter().any(is_of_socket), "{:?}", scene.events);
        scene.engine.socket(id).expect("it is open").resume();
    }
}

fn a_page_can_be_answered_otherwise<T: Harness>() {
    let mut scene = scene::<T>();
    scene.bytes("GET /page HTTP/1.1\r\nHost: test\r\n\r\n");
    scene.until("a page", |scene| scene.bytes.ends_with(b"\r\n\r\n/page"));
}

fn a_wrong_handshake_is_answered<T: Harness>() {
    let key = format!("Sec-WebSocket-Key: {KEY}\r\n");
    for (fields, status) in [
        (String::new(), 400),
        ("Sec-WebSocket-Key: c2hvcnQ=\r\n".to_owned(), 400),
        (format!("{key}{key}"), 400),
        (format!("{key}Origin: http://other.test\r\n"), 403),
        (format!("{key}Sec-WebSocket-Protocol: v3\r\n"), 400),
        (format!("{key}Sec-WebSocket-Version: 8\r\n"), 426),
    ] {
        let mut scene = scene::<T>();
        scene.bytes(request(&fields));
        scene.until("an answer", |scene| scene.bytes.windows(4).any(|four| four == b"\r\n\r\n"));
        let heard = String::from_utf8_lossy(&scene.bytes);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {heard}");
    }
}

fn an_end_without_a_close_is_told<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.bytes(request(&format!("Sec-WebSocket-Key: {KEY}\r\n")));
    scene.until("the 101", |scene| scene.bytes.ends_with(b"\r\n\r\n"));
    scene.raw.shutdown(id);
    match scene.event() {
        Event::SocketClosed { end, state: 1, .. } => assert!(!end.is_clean && end.code.is_none()),
        other => panic!("{other:?}"),
    }
}

fn what_is_published_goes_to_all_subscribers<T: Harness>() {
    let mut scene = scene::<T>();
    let (a, b) = (scene.open(), scene.open());
    for id in [a, b] {
        scene.say(id, "!hear news");
        scene.say(id, "ok");
        assert_eq!(scene.text(), "ok");
    }
    scene.say(a, "!tell news");
    assert_eq!((scene.text(), scene.text()), ("told".into(), "told".into()));
    let publisher = scene.engine.publisher(&mut scene.watcher);
    assert!(publisher.publish("news", "more"));
    assert_eq!((scene.text(), scene.text()), ("more".into(), "more".into()));
}

fn an_engine_that_stops_closes<T: Harness>() {
    let mut scene = scene::<T>();
    scene.open();
    scene.engine.stop(&mut scene.watcher);
    match scene.heard() {
        FetchEvent::Closed { end, .. } => {
            assert_eq!((end.code, end.is_clean), (Some(CloseCode::GOING_AWAY), true));
        }
        other => panic!("{other:?}"),
    }
    scene.until("nothing is left", |scene| scene.engine.is_empty());
}

/// The engine is the client of itself.
fn an_engine_opens_connections<T: Harness>() {
    let mut scene = scene::<T>();
    scene.echoes = false;
    let url = format!("ws://{}/a", scene.host);
    let call = scene.engine.open_websocket(url, &settings(), 77);
    let id = match scene.event() {
        Event::SocketOpened { id, call: of } => {
            assert_eq!(of, call);
            id
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(scene.engine.state(id), Some(&mut 77));
    assert!(scene.engine.socket(id).expect("it is open").send("hello"));
    let other = match scene.event() {
        Event::SocketMessage { id, message } => {
            assert_eq!(message.as_text(), Some("hello"));
            id
        }
        other => panic!("{other:?}"),
    };
    assert!(scene.engine.socket(other).expect("it is open").ping(b"p"));
    scene.engine.socket(id).expect("it is open").close(CloseCode::NORMAL, "");
    let mut states = [(); 2].map(|()| match scene.event() {
        Event::SocketClosed { end, state, .. } => {
            assert!(end.is_clean, "{end:?}");
            state
        }
        other => panic!("{other:?}"),
    });
    states.sort_unstable();
    assert_eq!(states, [1, 77]);
}

fn an_engine_hears_of_a_connection_that_does_not_open<T: Harness>() {
    let mut scene = scene::<T>();
    scene.engine.open_websocket("ws://127.0.0.1:1/", &settings(), 5);
    match scene.event() {
        Event::SocketFailed { error: FetchError::Connection(_), state: 5, .. } => {}
        other => panic!("{other:?}"),
    }
    let url = format!("ws://{}/a", scene.host);
    let other = WebSocketSettings::new().protocols(["v3"]);
    let call = scene.engine.open_websocket(&*url, &other, 6);
    match scene.event() {
        Event::SocketFailed { call: of, error: FetchError::NoWebSocket { status, .. }, state } => {
            assert_eq!((of, status.code(), state), (call, 400, 6));
        }
        other => panic!("{other:?}"),
    }
    let call = scene.engine.open_websocket(url, &other, 7);
    assert!(scene.engine.cancel_fetch(call));
}

fn a_thread_sends_and_closes<T: Harness>() {
    let mut scene = scene::<T>();
    scene.echoes = false;
    let id = scene.open();
    scene.say(id, "hello");
    let sender = match scene.event() {
        Event::SocketMessage { id, .. } => scene.engine.socket(id).expect("it is open").sender(),
        other => panic!("{other:?}"),
    };
    let thread = std::thread::spawn(move || {
        sender.send("from a thread").expect("it is open");
        sender.close(CloseCode::NORMAL, "done");
    });
    thread.join().expect("no panic");
    assert_eq!(scene.text(), "from a thread");
    match scene.heard() {
        FetchEvent::Closed { end, .. } => assert!(end.is_clean && end.reason == "done", "{end:?}"),
        other => panic!("{other:?}"),
    }
}

fn verbs_for_bytes_are_not_for_messages<T: Harness>() {
    let mut scene = scene::<T>();
    scene.echoes = false;
    let id = scene.open();
    scene.say(id, "hello");
    let id = match scene.event() {
        Event::SocketMessage { id, .. } => id,
        other => panic!("{other:?}"),
    };
    let engine = &mut scene.engine;
    let unsupported = windlass_serve::Refusal::Unsupported;
    assert_eq!(engine.write(id, "a").expect_err("it frames").reason, unsupported);
    assert_eq!(engine.unread(id, "a").expect_err("it frames").reason, unsupported);
    assert_eq!(engine.detach(id), Err(unsupported));
    assert_eq!(engine.begin_http(id, "a").expect_err("it frames").reason, Refusal::Kind);
    assert!(!engine.pause(id) && !engine.shutdown(id));
    assert!(engine.socket(id).expect("it is open").send("still"));
    assert_eq!(scene.text(), "still");
}
