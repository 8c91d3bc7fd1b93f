//! Messages, and ends.

use std::collections::HashSet;
use std::time::Duration;

use windlass_serve::Cause;
use windlass_web::client::FetchEvent;
use windlass_web::websocket::{CloseCode, Kind, Message, WebSocketSettings};
use windlass_websocket::Opcode;

use crate::common::Harness;
use crate::scene::{close, frame, scene, text};

crate::every_kernel! {
    messages_go_out_with_a_mask
    parts_go_out_with_a_mask_each
    messages_come
    frames_may_come_with_the_response
    every_cut_gives_the_same_messages
    a_ping_is_answered
    the_server_closes
    the_client_closes
    a_server_that_does_not_end_the_connection_is_waited_for_no_longer
    a_server_that_does_not_answer_a_close_is_waited_for_no_longer
    a_message_in_front_of_a_close_can_be_answered
    a_pause_holds_back_all_behind_it
    a_pause_holds_back_the_end
    an_end_without_a_close_is_not_clean
    a_reset_is_told
    a_server_that_breaks_the_protocol_hears_why
    a_silent_server_gets_a_ping_and_is_given_up
    a_client_that_stops_closes
    a_full_output_is_told
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

const SIZES: [usize; 10] = [0, 1, 125, 126, 2048, 2049, 4096, 65_535, 65_536, 200_000];

fn messages_go_out_with_a_mask<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    for len in SIZES {
        let mut socket = scene.client.socket(id).expect("it is open");
        assert!(socket.send(bytes(len)) && socket.send("a".repeat(len)));
        // Others have the bytes of these, too.
        let shared: std::sync::Arc<[u8]> = bytes(len).into();
        assert!(socket.send(windlass::Buf::from(std::sync::Arc::clone(&shared))));
        assert_eq!(*shared, *bytes(len));
        assert!(socket.ping(b"p"));
    }
    let frames = scene.until_frames(4 * SIZES.len());
    let mut expected = Vec::new();
    for len in SIZES {
        expected.push((Opcode::Binary, bytes(len)));
        expected.push((Opcode::Text, "a".repeat(len).into_bytes()));
        expected.push((Opcode::Binary, bytes(len)));
        expected.push((Opcode::Ping, b"p".to_vec()));
    }
    assert!(frames == expected);
    let keys = mask_keys(&scene.conns[0].heard);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), frames.len(), "each has its own");
}

fn parts_go_out_with_a_mask_each<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    let mut socket = scene.client.socket(id).expect("it is open");
    let sender = socket.sender();
    for len in SIZES {
        assert!(socket.send_part(Kind::Binary, bytes(len), false));
        assert!(socket.send("behind") && socket.ping(b"p"));
        assert!(socket.send_part(Kind::Text, bytes(len), false), "the first one says the kind");
        assert!(socket.send_part(Kind::Binary, "", true));
    }
    assert!(socket.send_part(Kind::Text, "a thread ", false));
    let thread = std::thread::spawn(move || sender.send("of a thread").expect("there is room"));
    thread.join().expect("it sends");
    let frames = scene.until_frames(3 * SIZES.len());
    let mut expected = Vec::new();
    for len in SIZES {
        expected.push((Opcode::Ping, b"p".to_vec()));
        expected.push((Opcode::Binary, [bytes(len), bytes(len)].concat()));
        expected.push((Opcode::Text, b"behind".to_vec()));
    }
    assert!(frames == expected);
    let keys = mask_keys(&scene.conns[0].heard);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "each has its own");
    let mut socket = scene.client.socket(id).expect("it is open");
    assert!(socket.send_part(Kind::Text, "waits", true));
    let frames = scene.until_frames(3 * SIZES.len() + 2);
    let last = [&b"a thread waits"[..], b"of a thread"].map(|text| (Opcode::Text, text.to_vec()));
    assert_eq!(frames[3 * SIZES.len()..], last);
    // A close comes between.
    let mut socket = scene.client.socket(id).expect("it is open");
    assert!(socket.send_part(Kind::Text, "a", false) && socket.send("never"));
    socket.close(CloseCode::NORMAL, "");
    assert!(!socket.send_part(Kind::Text, "b", true));
    let frames = scene.until_frames(3 * SIZES.len() + 3);
    assert_eq!(frames.last(), Some(&(Opcode::Close, 1000_u16.to_be_bytes().to_vec())));
}

/// The keys of frames.
fn mask_keys(mut bytes: &[u8]) -> Vec<[u8; 4]> {
    let mut keys = Vec::new();
    while let [_, second, rest @ ..] = bytes {
        assert_ne!(second & 0x80, 0, "a mask");
        let (len, rest) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().expect("eight")) as usize, &rest[8..]),
            len => (usize::from(len), rest),
        };
        keys.push(rest[..4].try_into().expect("four"));
        bytes = &rest[4 + len..];
    }
    keys
}

fn messages_come<T: Harness>() {
    let mut scene = scene::<T>();
    scene.open();
    for len in SIZES {
        scene.say(0, frame(0x82, &bytes(len)));
        match scene.message() {
            Message::Binary(payload) => assert!(*payload == *bytes(len), "{len}"),
            other => panic!("{other:?}"),
        }
    }
    scene.say(0, [frame(0x01, b"fragm"), frame(0x89, b"?"), frame(0x80, b"ents")].concat());
    assert_eq!(scene.message().as_text(), Some("fragments"));
    assert_eq!(scene.until_frames(1), [(Opcode::Pong, b"?".to_vec())]);
}

fn frames_may_come_with_the_response<T: Harness>() {
    let mut scene = scene::<T>();
    let early = [text("one"), frame(0x82, &bytes(300)), text("two"), close(1001, "bye")].concat();
    let id = scene.open_with(&WebSocketSettings::new(), &early);
    assert_eq!(scene.message().as_text(), Some("one"));
    assert_eq!(scene.message().as_bytes(), bytes(300));
    assert_eq!(scene.message().as_text(), Some("two"));
    scene.finish(0);
    let end = scene.end();
    assert!(end.is_clean);
    assert_eq!((end.code, &*end.reason), (Some(CloseCode::GOING_AWAY), "bye"));
    assert!(scene.client.socket(id).is_none());
}

fn every_cut_gives_the_same_messages<T: Harness>() {
    let all = [text("one"), frame(0x02, &bytes(130)), frame(0x80, b"end"), text("two")].concat();
    for at in (1..all.len()).step_by(if T::VIRTUAL { 1 } else { 29 }) {
        let mut scene = scene::<T>();
        scene.open_with(&WebSocketSettings::new(), &all[..at]);
        scene.turn(Duration::ZERO);
        scene.say(0, &all[at..]);
        assert_eq!(scene.message().as_text(), Some("one"));
        assert_eq!(scene.message().as_bytes(), [&bytes(130)[..], b"end"].concat());
        assert_eq!(scene.message().as_text(), Some("two"));
    }
}

fn a_ping_is_answered<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    scene.say(0, frame(0x89, &bytes(125)));
    assert_eq!(scene.until_frames(1), [(Opcode::Pong, bytes(125))]);
    scene.client.socket(id).expect("it is open").ping(b"own");
    scene.until_frames(2);
    scene.say(0, frame(0x8a, b"own"));
    match scene.event() {
        FetchEvent::Pong { data, .. } => assert_eq!(data, b"own"),
        other => panic!("{other:?}"),
    }
}

/// The client answers, and the server ends the connection below.
fn the_server_closes<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    scene.say(0, close(4000, "enough"));
    let code = [&4000_u16.to_be_bytes()[..], b""].concat();
    assert_eq!(scene.until_frames(1), [(Opcode::Close, code)]);
    assert!(!scene.client.socket(id).expect("it closes").send("late"));
    assert!(!scene.conns[0].has_eof, "the server's end comes first");
    scene.finish(0);
    let end = scene.end();
    assert!(end.is_clean && end.reason == "enough", "{end:?}");
    assert_eq!(end.code.map(CloseCode::number), Some(4000));
    scene.until("the server has its end", |scene| scene.conns[0].end.is_some());
}

fn the_client_closes<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    let mut socket = scene.client.socket(id).expect("it is open");
    socket.send("last");
    socket.close(CloseCode::NORMAL, "done");
    assert!(!socket.send("late"));
    let said = [&1000_u16.to_be_bytes()[..], b"done"].concat();
    let last = (Opcode::Text, b"last".to_vec());
    assert_eq!(scene.until_frames(2), [last, (Opcode::Close, said)]);
    scene.say(0, [text("on its way"), close(1000, "")].concat());
    scene.finish(0);
    let end = scene.end();
    assert!(end.is_clean && end.reason == "done", "{end:?}");
}

fn a_server_that_does_not_end_the_connection_is_waited_for_no_longer<T: Harness>() {
    let mut scene = scene::<T>();
    let settings = WebSocketSettings::new().close_time(T::span(5.0));
    scene.open_with(&settings, &close(1000, ""));
    let end = scene.end();
    assert!(end.is_clean, "{end:?}");
    scene.until("the server has its end", |scene| {
        let conn = &scene.conns[0];
        conn.has_eof || conn.end.is_some()
    });
}

fn a_server_that_does_not_answer_a_close_is_waited_for_no_longer<T: Harness>() {
    let mut scene = scene::<T>();
    let settings = WebSocketSettings::new().close_time(T::span(5.0));
    let id = scene.open_with(&settings, b"");
    scene.client.socket(id).expect("it is open").close(CloseCode::NORMAL, "");
    let end = scene.end();
    assert_eq!((end.is_clean, end.cause), (false, Cause::TooSlow));
}

fn a_message_in_front_of_a_close_can_be_answered<T: Harness>() {
    let mut scene = scene::<T>();
    scene.with_message = |client, id, message| {
        let text = message.as_text().expect("a text").to_owned();
        assert!(client.socket(id).expect("it is open").send(text));
    };
    scene.open();
    scene.say(0, [text("a"), text("b"), close(1000, "")].concat());
    let frames = scene.until_frames(3);
    assert_eq!(frames[0].1, b"a");
    assert_eq!(frames[1].1, b"b");
    assert_eq!(frames[2].0, Opcode::Close);
}

fn a_pause_holds_back_all_behind_it<T: Harness>() {
    let mut scene = scene::<T>();
    scene.with_message = |client, id, _| client.socket(id).expect("it is open").pause();
    let id = scene.open();
    scene.say(0, [text("a"), text("b"), text("c")].concat());
    for expected in ["a", "b", "c"] {
        assert_eq!(scene.message().as_text(), Some(expected));
        for _ in 0..10 {
            scene.turn(Duration::ZERO);
        }
        assert!(scene.events.is_empty(), "{:?}", scene.events);
        scene.client.socket(id).expect("it is open").resume();
    }
}

/// The end of the input has come, too, when the first message is told.
fn a_pause_holds_back_the_end<T: Harness>() {
    let mut scene = scene::<T>();
    scene.with_message = |client, id, _| client.socket(id).expect("it is open").pause();
    scene.client.open_websocket(&*scene.url, &WebSocketSettings::new());
    scene.until_asked(1);
    let head = scene.head(0, "").into_bytes();
    scene.say(0, [head, text("a"), text("b"), close(1000, "all")].concat());
    scene.finish(0);
    let id = match scene.event() {
        FetchEvent::Opened { socket, .. } => socket,
        other => panic!("{other:?}"),
    };
    for expected in ["a", "b"] {
        assert_eq!(scene.message().as_text(), Some(expected));
        for _ in 0..10 {
            scene.turn(Duration::ZERO);
        }
        assert!(scene.events.is_empty(), "{:?}", scene.events);
        scene.client.socket(id).expect("it is open").resume();
    }
    let end = scene.end();
    assert!(end.is_clean && end.reason == "all", "{end:?}");
}

fn an_end_without_a_close_is_not_clean<T: Harness>() {
    let mut scene = scene::<T>();
    scene.open_with(&WebSocketSettings::new(), &text("all"));
    assert_eq!(scene.message().as_text(), Some("all"));
    scene.say(0, &frame(0x81, b"unfinished")[..5]);
    scene.finish(0);
    let end = scene.end();
    assert_eq!((end.is_clean, end.code), (false, None));
}

fn a_reset_is_told<T: Harness>() {
    let mut scene = scene::<T>();
    scene.open();
    scene.reset(0);
    let end = scene.end();
    assert!(!end.is_clean, "{end:?}");
    assert!(matches!(end.cause, Cause::Os(_)), "{end:?}");
}

fn a_server_that_breaks_the_protocol_hears_why<T: Harness>() {
    for (bytes, code) in [
        (vec![0x81, 0x81, 1, 2, 3, 4, 5], 1002),
        (frame(0xc1, b"a"), 1002),
        (frame(0x83, b"a"), 1002),
        (frame(0x80, b"a"), 1002),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x82, &bytes(1001)), 1009),
        (frame(0x88, b"\x03\xed"), 1002),
    ] {
        let mut scene = scene::<T>();
        let settings = WebSocketSettings::new().message_limit(1000);
        scene.open_with(&settings, &bytes);
        let frames = scene.until_frames(1);
        assert_eq!(frames[0].0, Opcode::Close);
        assert_eq!(frames[0].1[..2], u16::to_be_bytes(code), "{bytes:?}");
        scene.until("the client ends", |scene| scene.conns[0].has_eof);
        scene.finish(0);
        let end = scene.end();
        assert_eq!((end.code.map(CloseCode::number), end.is_clean), (Some(code), false));
    }
}

fn a_silent_server_gets_a_ping_and_is_given_up<T: Harness>() {
    if !T::VIRTUAL {
        return; // a sweep of idle connections is rare
    }
    let mut scene = scene::<T>();
    let settings = WebSocketSettings::new().ping_every(Duration::from_secs(30));
    scene.open_with(&settings, b"");
    assert_eq!(scene.until_frames(1), [(Opcode::Ping, Vec::new())]);
    scene.say(0, frame(0x8a, b""));
    assert!(matches!(scene.event(), FetchEvent::Pong { .. }));
    assert_eq!(scene.until_frames(2).len(), 2);
    let end = scene.end();
    assert_eq!((end.is_clean, end.cause), (false, Cause::Idle));
}

fn a_client_that_stops_closes<T: Harness>() {
    let mut scene = scene::<T>();
    scene.open();
    scene.client.stop();
    let frames = scene.until_frames(1);
    assert_eq!(frames, [(Opcode::Close, 1001_u16.to_be_bytes().to_vec())]);
    scene.say(0, close(1001, ""));
    scene.finish(0);
    assert!(scene.end().is_clean);
    scene.until("it is empty", |scene| scene.client.is_empty());
}

fn a_full_output_is_told<T: Harness>() {
    let mut scene = scene::<T>();
    let id = scene.open();
    let server = scene.conns[0].id;
    scene.server.pause(server);
    let mut count = 0;
    loop {
        let mut socket = scene.client.socket(id).expect("it is open");
        if socket.is_full() {
            assert!(socket.waiting() <= count * 100_014);
            break;
        }
        let waiting = socket.waiting();
        assert!(socket.send(bytes(100_000)));
        assert_eq!(socket.waiting(), waiting + 100_014);
        count += 1;
        scene.turn(Duration::ZERO);
    }
    scene.server.resume(server);
    assert!(matches!(scene.event(), FetchEvent::Drained { .. }));
    scene.until("all has come", |scene| scene.conns[0].heard.len() == count * (100_000 + 14));
}
