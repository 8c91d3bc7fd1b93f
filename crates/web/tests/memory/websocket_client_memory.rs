//! What WebSockets in a loop of the program allocate: nothing for a message.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::alloc::allocations;
use windlass::net::ListenOptions;
use windlass::{Completions, Watcher};
use windlass_web::client::{FetchEvent, FetchSettings};
use windlass_web::engine::Event;
use windlass_web::serve::Config;
use windlass_web::websocket::{Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Client, Engine, Limits, Status};

const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 1000;

/// What all rounds together may take: a clock of the loop allocates now and then.
const MOST: u64 = 5;

struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        c.send(message);
    }
}

#[test]
fn a_message_of_a_client_allocates_nothing() {
    let app = App::new().websocket("/", |_, _| Ok::<_, Status>(Echo));
    let server = app.listen("127.0.0.1:0").expect("an address").start().expect("a server");
    let (mut watcher, mut done) = (Watcher::new().expect("a watcher"), Completions::new());
    let mut client = Client::new(FetchSettings::new());
    let url = format!("ws://{}/", server.address());
    client.open_websocket(url, &WebSocketSettings::new());
    let mut event = || {
        loop {
            client.flush(&mut watcher);
            watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
            let mut batch = done.visit();
            if let Some(event) = client.next_event_in(&mut watcher, &mut batch) {
                let socket = match event {
                    FetchEvent::Opened { socket, .. } => socket,
                    FetchEvent::Message { socket, message } => {
                        assert_eq!(message.as_text(), Some("Hello, World!"));
                        socket
                    }
                    other => panic!("{other:?}"),
                };
                assert!(client.socket(socket).expect("it is open").send("Hello, World!"));
                return;
            }
        }
    };
    (0..ROUNDS).for_each(|_| event());
    let before = allocations();
    (0..ROUNDS).for_each(|_| event());
    let count = allocations() - before;
    assert!(count <= MOST, "{count}");
    server.shutdown().expect("it ends");
}

#[test]
fn a_message_of_an_engine_allocates_nothing() {
    let (mut watcher, mut done) = (Watcher::new().expect("a watcher"), Completions::new());
    let mut engine = Engine::<()>::new(Config::new(), Limits::new());
    let local = ([127, 0, 0, 1], 0);
    engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
    let address = watcher.local_address(engine.listeners()[0]).expect("its address");
    let mut client = TcpStream::connect(address.ip().expect("an address")).expect("a connection");
    client.set_nonblocking(true).expect("an option");
    let settings = WebSocketSettings::new();
    let mut hear = |client: &mut TcpStream, bytes: &mut [u8]| {
        let mut heard = 0;
        while heard < bytes.len() {
            engine.flush(&mut watcher);
            watcher.wait_timeout(&mut done, Duration::from_millis(1)).expect("a wait");
            let mut batch = done.visit();
            while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
                match event {
                    Event::Request { id, .. } => {
                        engine.accept_websocket(id, &settings, ()).expect("a handshake");
                    }
                    Event::SocketMessage { id, message } => {
                        assert!(engine.socket(id).expect("it is open").send(message));
                    }
                    _ => {}
                }
            }
            drop(batch);
            heard += client.read(&mut bytes[heard..]).unwrap_or(0);
        }
    };
    const ASK: &[u8] =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(ASK).expect("room");
    let mut head = vec![0; 129 + 37];
    hear(&mut client, &mut head);
    assert!(head.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&head));
    let mut round = || {
        client.write_all(b"\x82\x85\0\0\0\0hello").expect("room");
        let mut answer = [0; 7];
        hear(&mut client, &mut answer);
        assert_eq!(&answer, b"\x82\x05hello");
    };
    (0..ROUNDS).for_each(|_| round());
    let before = allocations();
    (0..ROUNDS).for_each(|_| round());
    let count = allocations() - before;
    assert!(count <= MOST, "{count}");
}
