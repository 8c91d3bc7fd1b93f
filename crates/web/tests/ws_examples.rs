//! The examples of WebSocket servers.
#![cfg(feature = "websocket")]
#![allow(missing_docs)] // a test binary has no users
#![allow(clippy::duplicate_mod)] // the examples share a module

mod bench;
#[path = "../../serve/tests/common/mod.rs"]
mod common;
#[cfg(unix)]
#[path = "../../serve/tests/common/programs.rs"]
mod programs;
#[path = "../examples/ticker.rs"]
mod ticker;
#[path = "../examples/ws_broadcast.rs"]
mod ws_broadcast;
#[path = "../examples/ws_chat.rs"]
mod ws_chat;
#[cfg(unix)]
#[path = "../examples/ws_mixed.rs"]
mod ws_mixed;

use std::time::Duration;

use bench::{Web, serve};
use common::Simulated;
use windlass::Source;
use windlass::driver::Driver;

/// The request of a handshake.
fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

/// A frame of a client with a short text. Its mask changes nothing.
fn frame(text: &str) -> Vec<u8> {
    assert!(text.len() <= 125, "a short text");
    [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat()
}

/// A client whose handshake is answered.
fn open<D: Driver, S>(web: &mut Web<D, S>, path: &str) -> Source {
    let client = web.ask(handshake(path));
    web.until_heard(client, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    client
}

#[test]
fn members_of_a_room_hear_each_other() {
    let mut web = serve::<Simulated, _>(ws_chat::app());
    let page = web.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(web.until_over(page).contains("new WebSocket"));
    let ann = open(&mut web, "/rooms/hall?name=ann");
    web.until_heard(ann, "here: ann");
    let bob = open(&mut web, "/rooms/hall?name=bob");
    web.until_heard(bob, "here: ann, bob");
    web.until_heard(ann, "bob has come");
    let eve = open(&mut web, "/rooms/cellar?name=ann");
    web.say(bob, frame("good day"));
    web.until_heard(ann, "bob: good day");
    web.until_heard(bob, "bob: good day");

    let second = web.ask(handshake("/rooms/hall?name=bob"));
    web.until_heard(second, "bob is there already");
    assert!(web.has_heard(second, "HTTP/1.1 409 "));
    let nobody = web.ask(handshake("/rooms/hall?name="));
    web.until_heard(nobody, "HTTP/1.1 400 ");

    web.close(bob);
    web.until_heard(ann, "bob has gone");
    open(&mut web, "/rooms/hall?name=bob");
    web.say(eve, frame("alone"));
    web.until_heard(eve, "ann: alone");
    assert!(!web.has_heard(ann, "alone"));
}

#[test]
fn ten_thousand_hear_a_price() {
    let count = if cfg!(debug_assertions) { 2000 } else { 10_000 };
    let mut web = serve::<Simulated, _>(ticker::app(2, Duration::from_millis(100)));
    let clients: Vec<Source> = (0..count).map(|_| web.ask(handshake("/"))).collect();
    for client in &clients {
        web.until_heard(*client, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        web.say(*client, frame("+S1 +S9"));
    }
    let events = web.ask("GET /events/S0 HTTP/1.1\r\nHost: a\r\n\r\n");
    for client in &clients {
        web.until_heard(*client, "no share +S9");
        web.until_heard(*client, "S1 ");
    }
    web.until_heard(events, "data: S0 ");
    assert!(clients.iter().all(|client| !web.has_heard(*client, "S0 ")));
}

/// A reader that reads nothing, and one that hears every message.
fn a_slow_reader(is_lossy: bool) {
    const SIZE: usize = 64 << 10;
    let app = ws_broadcast::app(Duration::from_millis(10), SIZE, is_lossy);
    let mut web = serve::<Simulated, _>(app);
    let slow = web.connect_deaf();
    web.say(slow, handshake("/"));
    let quick = open(&mut web, "/");
    let what = if is_lossy { "missed" } else { "disconnected" };
    web.until("the slow one is", |web| {
        let totals = web.server.remote().totals();
        (if is_lossy { totals.lost_events } else { totals.slow_subscribers }) > 0
    });
    let heard = web.heard(quick);
    let numbers = heard.match_indices("message ").map(|(at, word)| {
        let rest = &heard[at + word.len()..];
        rest.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    });
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    assert!(numbers.len() > 1, "{numbers:?}");
    let counts = web.ask("GET /counts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let counts = web.until_over(counts);
    assert!(counts.contains(what) && !counts.contains(&format!("{what} 0\n")), "{counts}");
}

#[test]
fn a_slow_reader_misses_messages_where_it_may() {
    a_slow_reader(true);
}

#[test]
fn a_slow_reader_is_disconnected_elsewhere() {
    a_slow_reader(false);
}

#[cfg(target_os = "linux")]
#[test]
fn files_requests_and_messages_are_served_by_one_loop() {
    let path = std::env::temp_dir().join(format!("windlass-mixed-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    let mut web = serve::<common::Epoll, _>(ws_mixed::app(&path).expect("a file"));
    let follower = open(&mut web, "/follow");
    web.until_heard(follower, "0 lines");
    let posted = web.ask(
        "POST /lines HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\none",
    );
    assert!(web.until_over(posted).ends_with("1 lines\n"));
    web.until_heard(follower, "\u{3}one");
    web.say(follower, frame("two"));
    web.until_heard(follower, "\u{3}two");
    web.until_heard(follower, "2 lines");
    let file = web.ask("GET /files/lines.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(web.until_over(file).ends_with("\r\n\r\none\ntwo\n"));
    std::fs::remove_dir_all(path).expect("it goes");
}

/// Two people chat in a browser.
#[cfg(unix)]
#[test]
fn a_browser_shows_what_members_say() {
    let has_both = programs::has("chromedriver", &["--version"], "ChromeDriver")
        && programs::has("node", &["--version"], "v");
    if !has_both {
        return;
    }
    let server = ws_chat::app().listen("127.0.0.1:0").expect("a port").start().expect("it starts");
    let url = format!("http://{}/", server.addresses()[0]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/chat_page.mjs");
    let output = std::process::Command::new("node").args([script, &url]).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("ok\n"), "{said}{errors}");
    server.remote().shutdown();
    assert_eq!(server.wait().expect("it ends").panics, 0);
}
