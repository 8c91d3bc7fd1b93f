//! All ways in which a WebSocket ends, and what both sides hear of it.

use std::time::Duration;

use windlass_serve::Cause;
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, SocketEnd, WebSocketSettings};
use windlass_web::{App, Status};

use crate::bench::serve;
use crate::client::{
    BINARY, CLOSE, Got, LAST, PART, PING, PONG, TEXT, TEXT_PART, Ws, close, closed, frame, request,
    said, text,
};
use crate::common::Harness;
use crate::messages::bytes;
use crate::program::{Log, app, web, web_with};

crate::every_kernel! {
    close_codes_of_the_client
    close_codes_of_the_server
    a_broken_rule_is_told_to_a_client_that_still_sends
    a_client_that_ends_its_side_without_a_close
    a_client_that_goes
    a_message_that_stops
    a_close_that_stops
    a_silent_client_gets_a_ping
    a_shutdown_closes_with_1001
    a_panic_at_the_shutdown_holds_up_nobody
    a_drain_lets_websockets_go_on
}

pub(crate) fn close_codes_of_the_client<T: Harness>() {
    let mut web = web::<T>();
    let codes = (1000..=1003).chain(1007..=1014).chain([3000, 3999, 4000, 4999]);
    for (number, code) in codes.enumerate() {
        let mut ws = Ws::ask(&mut web, "/ws", close(code, "wäre"));
        assert_eq!(ws.rest(&mut web), [closed(code)]);
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let end = &web.server.state().ends[number].1;
        assert_eq!(end.code.map(CloseCode::number), Some(code));
        assert_eq!((&*end.reason, end.is_clean, end.cause), ("wäre", true, Cause::Closed));
    }
    web.server.state().ends.clear();
    let mut ws = Ws::ask(&mut web, "/ws", frame(CLOSE, b""));
    assert_eq!(ws.rest(&mut web), [Got::Close(None, String::new())]);
    web.until("its end", |web| !web.server.state().ends.is_empty());
    let end = web.server.state().end();
    assert_eq!((end.code, &*end.reason, end.is_clean), (None, "", true));
}

pub(crate) fn close_codes_of_the_server<T: Harness>() {
    let mut web = web::<T>();
    for (number, code) in [1000, 1001, 1011, 1013, 3000, 4999].into_iter().enumerate() {
        let mut ws = Ws::open(&mut web, &format!("/ws?open=!close_{code}_its_reason"));
        assert_eq!(ws.next(&mut web), Got::Close(Some(code), "its reason".to_owned()));
        // The answer has a code of its own.
        ws.say(&mut web, close(1000, ""));
        assert_eq!(ws.rest(&mut web), []);
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let end = &web.server.state().ends[number].1;
        assert_eq!(end.code.map(CloseCode::number), Some(code));
        assert_eq!((&*end.reason, end.is_clean), ("its reason", true));
    }
    // Both at once: the first one of each side counts.
    let number = web.server.state().ends.len();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("!close 4000 a"), close(4001, "b")].concat());
    assert_eq!(ws.rest(&mut web), [Got::Close(Some(4000), "a".to_owned())]);
    web.until("its end", |web| web.server.state().ends.len() == number + 1);
    assert!(web.server.state().ends[number].1.is_clean);
    // A long reason is cut between two characters.
    let mut ws = Ws::open(&mut web, &format!("/ws?open=!close_1000_{}", "%C3%A9".repeat(100)));
    assert_eq!(ws.next(&mut web), Got::Close(Some(1000), "é".repeat(61)));
}

fn a_broken_rule_is_told_to_a_client_that_still_sends<T: Harness>() {
    let mut web = web::<T>();
    let cases: [(u16, Vec<u8>); 24] = [
        (1002, frame(0xc1, b"a")),
        (1002, frame(0xa1, b"a")),
        (1002, frame(0x91, b"a")),
        (1002, frame(0x83, b"a")),
        (1002, frame(0x87, b"a")),
        (1002, frame(0x8b, b"a")),
        (1002, b"\x81\x01a".to_vec()),
        (1002, b"\x89\x00".to_vec()),
        (1002, b"\x82\xfe\x00\x01kkkka".to_vec()),
        (1002, b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x01kkkka".to_vec()),
        (1002, b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x01kkkka".to_vec()),
        (1002, frame(PING, &[b'a'; 126])),
        (1002, frame(0x09, b"a")),
        (1002, frame(0x08, b"")),
        (1002, frame(PART, b"a")),
        (1002, frame(LAST, b"a")),
        (1002, [frame(TEXT_PART, b"a"), text("b")].concat()),
        (1002, frame(CLOSE, b"\x03")),
        (1002, close(1005, "")),
        (1002, close(999, "")),
        (1002, close(5000, "")),
        (1007, frame(TEXT, b"\xff")),
        (1007, [frame(TEXT_PART, "é".as_bytes()), frame(LAST, b"\xc3")].concat()),
        (1007, frame(CLOSE, b"\x03\xe8\xff")),
    ];
    for (number, (code, wrong)) in cases.into_iter().enumerate() {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, [text("before"), wrong.clone(), text("behind")].concat());
        // It goes on to send, whatever comes.
        for _ in 0..10 {
            ws.say(&mut web, frame(BINARY, &bytes(40_000)));
            web.turn(Duration::ZERO);
        }
        let got = ws.rest(&mut web);
        assert!(got.len() == 2 && got[0] == said("before"), "{wrong:x?}: {got:?}");
        let Got::Close(Some(told), reason) = &got[1] else { panic!("{got:?}") };
        assert!(*told == code && !reason.is_empty(), "{wrong:x?}: {got:?}");
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let end = &web.server.state().ends[number].1;
        assert_eq!(end.code.map(CloseCode::number), Some(code), "{wrong:x?}");
        // A close frame that is none is not heard.
        assert!(!end.is_clean && end.reason == *reason, "{wrong:x?}");
        assert_eq!(web.server.state().of(number), [said("before")]);
    }
}

fn a_client_that_ends_its_side_without_a_close<T: Harness>() {
    let mut web = web::<T>();
    let cases = [
        Vec::new(),
        text("a"),
        [text("a"), frame(TEXT_PART, b"b")].concat(),
        [text("a"), text("unfinished")[..9].to_vec()].concat(),
        [text("a"), close(1000, "x")[..7].to_vec()].concat(),
    ];
    for (number, frames) in cases.into_iter().enumerate() {
        let mut ws = Ws::open(&mut web, "/ws?open=!large_300000");
        let has_text = !frames.is_empty();
        ws.say(&mut web, frames);
        web.finish(ws.source);
        let got = ws.rest(&mut web);
        assert!(got[0] == Got::Binary(vec![b'l'; 300_000]), "all of it has come");
        assert_eq!(got.len(), 1 + usize::from(has_text));
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let end = &web.server.state().ends[number].1;
        assert_eq!((end.code, end.is_clean, end.cause), (None, false, Cause::Eof));
    }
}

fn a_client_that_goes<T: Harness>() {
    let mut web = web::<T>();
    for (number, order) in
        ["a", "!large 5000000", "!pause", "!ping x", "!close 1000 "].into_iter().enumerate()
    {
        let client = web.connect_deaf();
        let all = [request("/ws?open=!subscribe_a", "").as_bytes(), &text(order)].concat();
        web.say(client, all);
        web.until("it is heard", |web| web.server.state().heard.len() == number + 1);
        assert_eq!(web.server.remote().totals().subscriptions, 1);
        web.close(client);
        if order == "!pause" {
            // Nobody reads it, so only the next read can tell.
            let id = web.server.state().opened[number];
            assert!(web.server.remote().wake(id));
        }
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        assert!(!web.server.state().ends[number].1.is_clean);
        assert_eq!(web.server.remote().totals().subscriptions, 0);
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn a_message_that_stops<T: Harness>() {
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    let mut web = web_with::<T>(WebSocketSettings::new().message_time(5 * SECOND, 0));
    let stops: [Vec<u8>; 5] = [
        text("a")[..1].to_vec(),
        text("a")[..6].to_vec(),
        frame(BINARY, &bytes(100_000))[..70_000].to_vec(),
        frame(TEXT_PART, b"a"),
        [frame(TEXT_PART, b"a"), frame(PART, b"b")].concat(),
    ];
    for (number, stop) in stops.into_iter().enumerate() {
        let mut ws = Ws::open(&mut web, "/ws?open=!subscribe_a");
        let start = web.now();
        ws.say(&mut web, stop);
        // A ping is no part of it.
        web.run_for(2 * SECOND);
        if number >= 3 {
            ws.say(&mut web, frame(PING, b""));
            assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
        }
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let spent = web.now() - start;
        assert!(spent >= 5 * SECOND && spent < 6 * SECOND, "{spent:?}");
        let end = &web.server.state().ends[number].1;
        assert_eq!((end.code, end.is_clean, end.cause), (None, false, Cause::TooSlow));
        assert_eq!(web.server.remote().totals().subscriptions, 0);
        assert!(web.server.budget().used() < 10_000, "{:?}", web.server.budget());
    }
    // One whose messages never end where its writes do has the time for each of them.
    let mut ws = Ws::open(&mut web, "/ws");
    let message = text("message");
    ws.say(&mut web, message[..4].to_vec());
    for _ in 0..20 {
        web.run_for(3 * SECOND);
        ws.say(&mut web, [&message[4..], &message[..4]].concat());
        assert_eq!(ws.next(&mut web), said("message"));
    }
    ws.say(&mut web, message[4..].to_vec());
    assert_eq!(ws.next(&mut web), said("message"));
    web.run_for(30 * SECOND);
    assert_eq!(web.server.state().ends.len(), 5, "it has time between messages");
    // A least rate.
    let mut web = web_with::<T>(WebSocketSettings::new().message_time(5 * SECOND, 100));
    for (rate, lives) in [(200, true), (20, false)] {
        let ends = web.server.state().ends.len();
        let mut ws = Ws::open(&mut web, "/ws");
        let all = frame(BINARY, &bytes(rate * 60));
        for part in all.chunks(rate) {
            ws.say(&mut web, part.to_vec());
            web.run_for(SECOND);
        }
        assert_eq!(web.server.state().ends.len() == ends, lives);
        if lives {
            assert!(ws.next(&mut web) == Got::Binary(bytes(rate * 60)));
        }
    }
}

fn a_close_that_stops<T: Harness>() {
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    let settings = WebSocketSettings::new().close_time(3 * SECOND).message_time(5 * SECOND, 0);
    let mut web = web_with::<T>(settings);
    // The client's close frame.
    let ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, close(1000, "why")[..8].to_vec());
    let start = web.now();
    web.until("its end", |web| web.server.state().ends.len() == 1);
    assert!((5 * SECOND..6 * SECOND).contains(&(web.now() - start)));
    assert_eq!(web.server.state().ends[0].1.cause, Cause::TooSlow);
    // The client's answer to ours: it does not come, or only other frames do.
    for (number, more) in
        [Vec::new(), text("a"), frame(TEXT_PART, b"a"), close(1000, "")[..3].to_vec()]
            .into_iter()
            .enumerate()
    {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, text("!close 1000 x"));
        assert_eq!(ws.next(&mut web), Got::Close(Some(1000), "x".to_owned()));
        let start = web.now();
        while web.server.state().ends.len() == number + 1 {
            assert!(web.now() - start < 4 * SECOND);
            ws.say(&mut web, more.clone());
            web.run_for(SECOND / 4);
            if number == 3 {
                web.until("its end", |web| web.server.state().ends.len() == number + 2);
            }
        }
        let spent = web.now() - start;
        assert!(spent >= 2 * SECOND, "{spent:?}");
        let end = &web.server.state().ends[number + 1].1;
        // Two beginnings of messages break a rule, which ends it, too.
        assert_eq!((end.code, end.is_clean), (Some(CloseCode::NORMAL), false));
    }
}

pub(crate) fn a_silent_client_gets_a_ping<T: Harness>() {
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    let mut web = web_with::<T>(WebSocketSettings::new().ping_every(60 * SECOND));
    let mut ws = Ws::open(&mut web, "/ws");
    let start = web.now();
    for count in 1..=4 {
        assert_eq!(ws.next(&mut web), Got::Ping(Vec::new()));
        let spent = web.now() - start;
        assert!(spent >= 60 * SECOND * count && spent < 66 * SECOND * count, "{spent:?}");
        // Any sign of life will do.
        ws.say(&mut web, if count % 2 == 0 { frame(PONG, b"") } else { frame(PING, b"") });
        if count % 2 == 1 {
            assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
        }
    }
    assert_eq!(ws.next(&mut web), Got::Ping(Vec::new()));
    let start = web.now();
    web.until("its end", |web| !web.server.state().ends.is_empty());
    let spent = web.now() - start;
    assert!((60 * SECOND..66 * SECOND).contains(&spent), "{spent:?}");
    assert_eq!(web.server.state().end().cause, Cause::Idle);
    // A paused one is not asked, because its answer would not be read.
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, text("!pause"));
    web.run_for(1000 * SECOND);
    assert_eq!(web.server.state().ends.len(), 1);
    assert_eq!(ws.look(&web).got, []);
}

/// Stays when the server shuts down, or panics.
struct Stays {
    panics: bool,
}

impl Peer<Log> for Stays {
    fn message(&mut self, _: &mut Log, c: &mut Socket<'_>, message: Message) {
        c.send(message);
    }

    fn stopping(&mut self, _: &mut Log, c: &mut Socket<'_>) {
        assert!(!self.panics, "as it was told to");
        c.send("the server shuts down");
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ends.push((usize::MAX, end.clone()));
    }
}

fn with_stays(settings: WebSocketSettings) -> App<Log> {
    app(settings)
        .websocket("/stays", |_, _| Ok::<_, Status>(Stays { panics: false }))
        .websocket("/panics", |_, _| Ok::<_, Status>(Stays { panics: true }))
}

pub(crate) fn a_shutdown_closes_with_1001<T: Harness>() {
    let settings = WebSocketSettings::new().close_time(3 * SECOND);
    let mut web = serve::<T, _>(with_stays(settings).grace(T::span(50.0)));
    let mut answers = Ws::open(&mut web, "/ws?open=!subscribe_a;!large_300000");
    let mut paused = Ws::open(&mut web, "/ws?open=!pause");
    let mut stays = Ws::open(&mut web, "/stays");
    // One does not answer.
    let mute = Ws::open(&mut web, "/ws");
    web.server.remote().shutdown();
    assert_eq!(stays.next(&mut web), said("the server shuts down"));
    stays.say(&mut web, text("still here"));
    assert_eq!(stays.next(&mut web), said("still here"));
    assert!(answers.next(&mut web) == Got::Binary(vec![b'l'; 300_000]));
    for ws in [&mut answers, &mut paused] {
        assert_eq!(ws.next(&mut web), closed(1001));
        ws.say(&mut web, close(1001, ""));
        assert_eq!(ws.rest(&mut web), []);
    }
    let start = web.now();
    web.until("it is over", |web| {
        for ws in [&stays, &mute] {
            if web.client(ws.source).is_over() {
                web.close(ws.source);
            }
        }
        web.server.is_over()
    });
    let spent = web.now() - start;
    assert!(spent < Duration::from_secs(60), "{spent:?}");
    let ends = &web.server.state().ends;
    assert_eq!(ends.len(), 4);
    let clean =
        |(_, end): &&(usize, SocketEnd)| end.is_clean && end.code == Some(CloseCode::GOING_AWAY);
    assert_eq!(ends.iter().filter(clean).count(), 2, "{ends:?}");
    assert_eq!(web.server.remote().totals().subscriptions, 0);
}

fn a_panic_at_the_shutdown_holds_up_nobody<T: Harness>() {
    let mut web = serve::<T, _>(with_stays(WebSocketSettings::new()));
    let panics = [Ws::open(&mut web, "/panics"), Ws::open(&mut web, "/panics")];
    let mut others: Vec<Ws> = (0..3).map(|_| Ws::open(&mut web, "/ws")).collect();
    web.server.remote().shutdown();
    for ws in &mut others {
        assert_eq!(ws.next(&mut web), closed(1001));
        ws.say(&mut web, close(1001, ""));
        assert_eq!(ws.rest(&mut web), []);
    }
    for ws in panics {
        web.until("its end", |web| web.client(ws.source).is_over());
        web.close(ws.source);
    }
    web.until("it is over", |web| web.server.is_over());
    let ends = &web.server.state().ends;
    let panicked = ends.iter().filter(|(_, end)| end.cause == Cause::Panicked);
    assert_eq!((ends.len(), panicked.count()), (5, 2), "{ends:?}");
}

fn a_drain_lets_websockets_go_on<T: Harness>() {
    let app = app(WebSocketSettings::new()).health("/health").drain_delay(T::span(20.0));
    let mut web = serve::<T, _>(app);
    let mut ws = Ws::open(&mut web, "/ws");
    web.server.remote().drain();
    let health = web.ask("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(health, "HTTP/1.1 503 ");
    web.close(health);
    let mut late = Ws::ask(&mut web, "/ws", text("late"));
    assert_eq!(late.next(&mut web), said("late"));
    ws.say(&mut web, text("still here"));
    assert_eq!(ws.next(&mut web), said("still here"));
    for mut ws in [ws, late] {
        assert_eq!(ws.next(&mut web), closed(1001));
        ws.say(&mut web, close(1001, ""));
        assert_eq!(ws.rest(&mut web), []);
    }
    web.until("it is over", |web| web.server.is_over());
}
