//! Messages of all lengths, however they are cut.

use std::time::Duration;

use windlass_web::websocket::WebSocketSettings;

use crate::client::{
    BINARY, Got, LAST, PART, PING, PONG, TEXT, TEXT_PART, Ws, close, closed, frame, request, said,
    text,
};
use crate::common::Harness;
use crate::program::{web, web_with};

crate::every_kernel! {
    frames_in_the_segment_of_the_request
    every_cut_gives_the_same_messages
    messages_of_all_lengths
    a_message_beyond_the_limit
    many_fragments
    control_frames_between_fragments
    small_messages_in_one_segment
    a_burst_comes_before_the_close
}

/// Bytes that tell where they stand.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

pub(crate) fn frames_in_the_segment_of_the_request<T: Harness>() {
    let mut web = web::<T>();
    let early = [text("one"), frame(PING, b"p"), text("two")].concat();
    let mut ws = Ws::ask(&mut web, "/ws?open=!say_hello", early);
    let got: Vec<Got> = (0..4).map(|_| ws.next(&mut web)).collect();
    assert_eq!(got, [said("hello"), said("one"), Got::Pong(b"p".to_vec()), said("two")]);
    ws.say(&mut web, close(1000, ""));
    assert_eq!(ws.rest(&mut web), [closed(1000)]);
    // All of it in one segment, the end of the client's side included.
    let all = [text("a"), close(4321, "why")].concat();
    let mut ws = Ws::ask(&mut web, "/ws", all);
    web.finish(ws.source);
    assert_eq!(ws.rest(&mut web), [said("a"), closed(4321)]);
    web.until("both have ended", |web| web.server.state().ends.len() == 2);
    let end = &web.server.state().ends[1].1;
    assert_eq!((end.code.map(|code| code.number()), &*end.reason), (Some(4321), "why"));
    assert!(end.is_clean);
}

fn every_cut_gives_the_same_messages<T: Harness>() {
    let mut web = web::<T>();
    let talk = [
        text("héllo"),
        frame(BINARY, &bytes(130)),
        frame(TEXT_PART, b"a"),
        frame(PING, b"12"),
        frame(PART, b""),
        frame(LAST, b"b"),
        frame(PONG, b"3"),
        frame(TEXT, b""),
        close(3000, "bye"),
    ]
    .concat();
    let heard =
        [said("héllo"), Got::Binary(bytes(130)), said("ab"), Got::Pong(b"3".to_vec()), said("")];
    let told = [
        said("héllo"),
        Got::Binary(bytes(130)),
        Got::Pong(b"12".to_vec()),
        said("ab"),
        said(""),
        closed(3000),
    ];
    let whole = [request("/ws", "").into_bytes(), talk].concat();
    let start = request("/ws", "").len() - 3;
    let mut number = 0;
    for at in (start..whole.len()).step_by(if T::VIRTUAL { 1 } else { 5 }) {
        let client = web.connect();
        let (one, two) = whole.split_at(at);
        web.say(client, one.to_vec());
        (0..3).for_each(|_| _ = web.turn(Duration::ZERO));
        web.say(client, two.to_vec());
        assert_eq!(Ws::of(client).rest(&mut web), told, "cut at {at}");
        web.until("it is over", |web| web.server.state().ends.len() == number + 1);
        assert_eq!(web.server.state().of(number), heard, "cut at {at}");
        number += 1;
    }
    // Each byte on its own.
    let client = web.connect();
    for byte in &whole {
        web.say(client, vec![*byte]);
        (0..if T::VIRTUAL { 3 } else { 1 }).for_each(|_| _ = web.turn(Duration::ZERO));
    }
    assert_eq!(Ws::of(client).rest(&mut web), told);
    assert_eq!(web.server.state().of(number), heard);
}

pub(crate) fn messages_of_all_lengths<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    for len in [0, 1, 2, 124, 125, 126, 127, 2047, 2048, 2049, 65_535, 65_536, 300_000, 1 << 20] {
        ws.say(&mut web, frame(BINARY, &bytes(len)));
        assert!(ws.next(&mut web) == Got::Binary(bytes(len)), "{len} bytes");
        let letters: String = bytes(len).iter().map(|byte| char::from(byte & 0x7f)).collect();
        ws.say(&mut web, text(&letters));
        assert!(ws.next(&mut web) == Got::Text(letters), "{len} letters");
    }
    ws.say(&mut web, close(1000, ""));
    assert_eq!(ws.rest(&mut web), [closed(1000)]);
}

pub(crate) fn a_message_beyond_the_limit<T: Harness>() {
    let mut web = web_with::<T>(WebSocketSettings::new().message_limit(1000));
    let long = frame(BINARY, &bytes(1001));
    let parts = [frame(0x02, &bytes(600)), frame(PART, &bytes(400)), frame(LAST, b"x")].concat();
    // By its length, and by what has come.
    for (number, said) in [long[..4].to_vec(), long, parts].into_iter().enumerate() {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, frame(BINARY, &bytes(1000)));
        assert!(ws.next(&mut web) == Got::Binary(bytes(1000)));
        ws.say(&mut web, said);
        let why = "a message is too long".to_owned();
        assert_eq!(ws.rest(&mut web), [Got::Close(Some(1009), why)]);
        web.until("it is over", |web| web.server.state().ends.len() == number + 1);
        let end = &web.server.state().ends[number].1;
        assert_eq!(end.code.map(|code| code.number()), Some(1009));
        assert!(!end.is_clean);
    }
}

pub(crate) fn many_fragments<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    let mut all = frame(TEXT_PART, b"0");
    let letters: String = (0..20_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    for byte in letters.bytes() {
        all.extend(frame(PART, &[byte]));
    }
    all.extend(frame(LAST, b""));
    ws.say(&mut web, all);
    assert!(ws.next(&mut web) == Got::Text(format!("0{letters}")));
    // A character that is cut between two fragments.
    let (one, two) = "é".as_bytes().split_at(1);
    ws.say(&mut web, [frame(TEXT_PART, one), frame(LAST, two)].concat());
    assert_eq!(ws.next(&mut web), said("é"));
}

pub(crate) fn control_frames_between_fragments<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    let most = [b'm'; 125];
    ws.say(&mut web, [frame(TEXT_PART, b"one "), frame(PING, &most)].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(most.to_vec()));
    ws.say(&mut web, [frame(PART, b"two "), frame(PONG, b"!say between")].concat());
    assert_eq!(ws.next(&mut web), said("between"));
    ws.say(&mut web, [frame(PING, b""), frame(LAST, b"three")].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
    assert_eq!(ws.next(&mut web), said("one two three"));
    ws.say(&mut web, [frame(TEXT_PART, b"never whole"), close(1001, "")].concat());
    assert_eq!(ws.rest(&mut web), [closed(1001)]);
}

pub(crate) fn small_messages_in_one_segment<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    let all: Vec<u8> = (0..3000).flat_map(|at| text(&format!("message {at}"))).collect();
    ws.say(&mut web, all);
    for at in 0..3000 {
        assert_eq!(ws.next(&mut web), said(&format!("message {at}")));
    }
    assert_eq!(web.server.state().heard.len(), 3000);
}

pub(crate) fn a_burst_comes_before_the_close<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, text("!many 3000;!large 300000;!close 1000 done;!say never"));
    let all = ws.next(&mut web);
    assert_eq!(all, said("0"));
    for at in 1..3000 {
        assert_eq!(ws.next(&mut web), said(&at.to_string()));
    }
    assert!(ws.next(&mut web) == Got::Binary(vec![b'l'; 300_000]));
    assert_eq!(ws.next(&mut web), Got::Close(Some(1000), "done".to_owned()));
    // The client may send what it had unfinished.
    ws.say(&mut web, [text("late"), close(1000, "done")].concat());
    assert_eq!(ws.rest(&mut web), []);
    web.until("it is over", |web| !web.server.state().ends.is_empty());
    assert!(web.server.state().end().is_clean);
    assert_eq!(web.server.state().heard.len(), 1, "what comes behind the close is dropped");
}
