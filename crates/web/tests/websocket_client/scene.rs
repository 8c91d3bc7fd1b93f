//! A client, and a server that says the bytes of a test, on one watcher.

use std::time::Duration;

use windlass::driver::Driver;
use windlass::net::{ListenOptions, SocketOption};
use windlass::{Completions, Watcher};
use windlass_serve::{Cause, Config, Engine, Event as Below, Id};
use windlass_web::Client;
use windlass_web::client::{FetchEvent, FetchSettings};
use windlass_web::websocket::{Message, SocketEnd, WebSocketSettings};
use windlass_websocket::{Decoder, Event, Kind, Limits, Opcode, Role, handshake};

use crate::common::{Harness, PATIENCE};

/// A connection of the server.
pub(crate) struct Conn {
    pub(crate) id: Id,
    /// The request, once it is whole.
    pub(crate) request: Option<String>,
    /// What has come behind it.
    pub(crate) heard: Vec<u8>,
    pub(crate) has_eof: bool,
    pub(crate) end: Option<Cause>,
}

/// A client, and a server that says what the test says.
pub(crate) struct Scene<D: Driver> {
    pub(crate) watcher: Watcher<D>,
    pub(crate) client: Client,
    pub(crate) server: Engine<()>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) events: Vec<FetchEvent>,
    pub(crate) url: String,
    /// What is done with each message of the client, when it comes.
    pub(crate) with_message: fn(&mut Client, Id, &Message),
}

pub(crate) fn scene<T: Harness>() -> Scene<T::Driver> {
    scene_with::<T>(FetchSettings::new())
}

pub(crate) fn scene_with<T: Harness>(settings: FetchSettings) -> Scene<T::Driver> {
    let mut watcher = T::watcher(Watcher::builder());
    let mut server = Engine::new(Config::new().close_on_eof(false));
    let port = if T::VIRTUAL { 8080 } else { 0 };
    let local = ([127, 0, 0, 1], port);
    server.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
    let address = watcher.local_address(server.listeners()[0]).expect("its address");
    let mut client = Client::new(settings);
    if T::VIRTUAL {
        client.simulate_masks();
    }
    Scene {
        watcher,
        client,
        server,
        conns: Vec::new(),
        events: Vec::new(),
        url: format!("ws://{}/chat?a", address.ip().expect("an address")),
        with_message: |_, _, _| {},
    }
}

impl<D: Driver> Scene<D> {
    /// Runs one turn, and waits for it for at most `span`.
    pub(crate) fn turn(&mut self, span: Duration) {
        let Scene { watcher, client, server, conns, events, .. } = self;
        client.flush(watcher);
        server.flush(watcher);
        let mut done = Completions::new();
        watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(other) = client.complete(watcher, completion) {
                let other = server.complete(watcher, other);
                assert!(other.is_none(), "{other:?}");
            }
        }
        while let Some(event) = client.next_event(watcher) {
            if let FetchEvent::Message { socket, message } = &event {
                (self.with_message)(client, *socket, message);
            }
            events.push(event);
        }
        while let Some(event) = server.next_event(watcher) {
            if let Below::Opened { id, .. } = event {
                let (request, heard) = (None, Vec::new());
                conns.push(Conn { id, request, heard, has_eof: false, end: None });
                continue;
            }
            let of = match &event {
                Below::Data { id, .. } | Below::Eof { id } | Below::Closed { id, .. } => *id,
                _ => continue,
            };
            let Some(conn) = conns.iter_mut().find(|conn| conn.id == of) else { continue };
            match event {
                Below::Data { data, .. } => {
                    conn.heard.extend_from_slice(&data);
                    let end = conn.heard.windows(4).position(|four| four == b"\r\n\r\n");
                    if let (None, Some(end)) = (&conn.request, end) {
                        let head: Vec<u8> = conn.heard.drain(..end + 4).collect();
                        conn.request = Some(String::from_utf8(head).expect("a text"));
                    }
                }
                Below::Closed { cause, .. } => conn.end = Some(cause),
                _ => conn.has_eof = true,
            }
        }
    }

    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            let now = self.watcher.update_now();
            assert!(now - start < 50 * PATIENCE, "still waits for {what}: {:?}", self.events);
            self.turn(PATIENCE);
        }
    }

    /// Waits until the server has so many requests.
    #[track_caller]
    pub(crate) fn until_asked(&mut self, count: usize) {
        self.until("a request", |scene| {
            scene.conns.iter().filter(|conn| conn.request.is_some()).count() == count
        });
    }

    /// The value of a field of a request.
    #[track_caller]
    pub(crate) fn field(&self, at: usize, name: &str) -> Option<&str> {
        let request = self.conns[at].request.as_ref().expect("a request");
        request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The server says something.
    pub(crate) fn say(&mut self, at: usize, bytes: impl Into<Vec<u8>>) {
        let _ = self.server.write(self.conns[at].id, bytes.into()); // refused if it has ended
    }

    /// The server ends its side.
    pub(crate) fn finish(&mut self, at: usize) {
        self.server.shutdown(self.conns[at].id);
    }

    /// The server resets the connection.
    pub(crate) fn reset(&mut self, at: usize) {
        let id = self.conns[at].id;
        self.server.set_option(id, SocketOption::Linger(Some(Duration::ZERO)));
        self.turn(Duration::ZERO);
        self.server.abort(id);
    }

    /// The head of the 101 to a request, with these fields besides.
    #[track_caller]
    pub(crate) fn head(&self, at: usize, fields: &str) -> String {
        let key = self.field(at, "Sec-WebSocket-Key").expect("a key");
        let accept = handshake::accept(key).expect("a right key");
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n{fields}\r\n"
        )
    }

    /// Opens a connection whose server says this behind the 101.
    #[track_caller]
    pub(crate) fn open_with(&mut self, settings: &WebSocketSettings, early: &[u8]) -> Id {
        self.client.open_websocket(&*self.url, settings);
        self.until_asked(1);
        let head = self.head(0, "");
        self.say(0, [head.as_bytes(), early].concat());
        self.until("it is open", |scene| {
            matches!(scene.events.first(), Some(FetchEvent::Opened { .. }))
        });
        match self.events.remove(0) {
            FetchEvent::Opened { socket, .. } => socket,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn open(&mut self) -> Id {
        self.open_with(&WebSocketSettings::new(), b"")
    }

    /// The next event, whatever it is.
    #[track_caller]
    pub(crate) fn event(&mut self) -> FetchEvent {
        self.until("an event", |scene| !scene.events.is_empty());
        self.events.remove(0)
    }

    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        match self.event() {
            FetchEvent::Message { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    /// The end of the only connection.
    #[track_caller]
    pub(crate) fn end(&mut self) -> SocketEnd {
        match self.event() {
            FetchEvent::Closed { end, .. } => end,
            other => panic!("{other:?}"),
        }
    }

    /// Why there is no connection.
    #[track_caller]
    pub(crate) fn failure(&mut self) -> String {
        match self.event() {
            FetchEvent::Failed { error, .. } => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The frames that the server has heard, and whether that is all.
    pub(crate) fn frames(&self, at: usize) -> (Vec<(Opcode, Vec<u8>)>, bool) {
        let (mut bytes, mut frames) = (self.conns[at].heard.clone(), Vec::new());
        let mut decoder = Decoder::new(Role::Server);
        let limits = Limits { message: u64::MAX, ..Limits::default() };
        let mut part = Vec::new();
        loop {
            let step = decoder.decode(&limits, &mut bytes).expect("right frames");
            match step.event {
                Event::Data { kind, payload, is_last, .. } => {
                    part.extend_from_slice(&bytes[payload]);
                    if is_last {
                        let opcode = match kind {
                            Kind::Text => Opcode::Text,
                            Kind::Binary => Opcode::Binary,
                        };
                        frames.push((opcode, std::mem::take(&mut part)));
                    }
                }
                Event::Ping(data) => frames.push((Opcode::Ping, bytes[data].to_vec())),
                Event::Pong(data) => frames.push((Opcode::Pong, bytes[data].to_vec())),
                Event::Close(code, reason) => {
                    let code = code.map_or(0, |code| code.number()).to_be_bytes();
                    frames.push((Opcode::Close, [&code[..], &bytes[reason]].concat()));
                }
                _ => return (frames, bytes.is_empty()),
            }
            bytes.drain(..step.consumed);
        }
    }

    /// Waits until the server has heard so many frames.
    #[track_caller]
    pub(crate) fn until_frames(&mut self, count: usize) -> Vec<(Opcode, Vec<u8>)> {
        self.until("frames", |scene| scene.frames(0).0.len() >= count);
        self.frames(0).0
    }
}

/// A frame of a server.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut all = vec![first];
    match payload.len() {
        len @ ..126 => all.push(len as u8),
        len @ ..0x1_0000 => {
            all.push(126);
            all.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            all.push(127);
            all.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    all.extend_from_slice(payload);
    all
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    frame(0x81, text.as_bytes())
}

pub(crate) fn close(code: u16, reason: &str) -> Vec<u8> {
    frame(0x88, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}
