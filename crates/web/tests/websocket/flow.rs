//! Connections that are paused, blocked, or flooded, and callbacks that panic.

use std::time::Duration;

use windlass_serve::Cause;
use windlass_web::websocket::WebSocketSettings;
use windlass_web::{App, Limits, serve};

use crate::client::{
    Got, LAST, PART, PING, TEXT_PART, Ws, close, closed, frame, request, said, text,
};
use crate::common::Harness;
use crate::program::{Obeys, app, web};

crate::every_kernel! {
    a_pause_holds_back_all_that_follows
    a_pause_at_the_beginning_holds_back_early_frames
    a_pause_and_its_end_in_one_callback
    a_pause_within_a_message
    what_came_before_the_end_of_the_client_is_not_lost
    a_paused_connection_closes
    an_unfinished_message_is_no_part_of_the_next_connection
    a_ping_is_answered_behind_a_large_message
    a_panic_ends_its_connection_alone
    an_abort_in_a_callback_is_the_last_one
    a_flood_holds_up_nobody
}

/// Runs some turns, in which nothing may happen that a test waits for.
macro_rules! settle {
    ($web:ident) => {
        (0..10).for_each(|_| _ = $web.turn(Duration::from_millis(1)))
    };
}

/// Wakes the connection with this number: it resumes.
macro_rules! wake {
    ($web:ident, $number:expr) => {{
        let id = $web.server.state().opened[$number];
        assert!($web.server.remote().wake(id));
    }};
}

pub(crate) fn a_pause_holds_back_all_that_follows<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    let more = [text("b"), frame(PING, b"p"), frame(TEXT_PART, b"c"), frame(LAST, b"d")].concat();
    ws.say(&mut web, [text("a;"), text("!pause"), more].concat());
    assert_eq!(ws.next(&mut web), said("a;"));
    settle!(web);
    ws.say(&mut web, text("e"));
    settle!(web);
    assert_eq!(web.server.state().heard.len(), 2, "{:?}", web.server.state().heard);
    assert_eq!(ws.look(&web).got.len(), 1);
    wake!(web, 0);
    let got: Vec<Got> = (0..4).map(|_| ws.next(&mut web)).collect();
    assert_eq!(got, [said("b"), Got::Pong(b"p".to_vec()), said("cd"), said("e")]);
    // Again and again, in one read.
    let all: Vec<u8> =
        (0..50).flat_map(|at| [text("!pause"), text(&at.to_string())].concat()).collect();
    ws.say(&mut web, all);
    for at in 0..50 {
        web.until("it is paused", |web| web.server.state().heard.len() == 5 + 2 * at + 1);
        wake!(web, 0);
        assert_eq!(ws.next(&mut web), said(&at.to_string()));
    }
}

pub(crate) fn a_pause_at_the_beginning_holds_back_early_frames<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::ask(&mut web, "/ws?open=!pause;!say_hello", [text("a"), text("b")].concat());
    assert_eq!(ws.next(&mut web), said("hello"));
    settle!(web);
    assert!(web.server.state().heard.is_empty());
    wake!(web, 0);
    assert_eq!(ws.next(&mut web), said("a"));
    assert_eq!(ws.next(&mut web), said("b"));
}

fn a_pause_and_its_end_in_one_callback<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("!pause;!resume"), text("a"), text("!resume"), text("b")].concat());
    assert_eq!(ws.next(&mut web), said("a"));
    assert_eq!(ws.next(&mut web), said("b"));
    ws.say(&mut web, [text("!pause;!resume;!pause"), text("c")].concat());
    settle!(web);
    assert_eq!(ws.look(&web).got.len(), 2);
    wake!(web, 0);
    assert_eq!(ws.next(&mut web), said("c"));
}

pub(crate) fn a_pause_within_a_message<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    let pong = |orders: &str| frame(0x8a, orders.as_bytes());
    let parts = [frame(TEXT_PART, b"a"), pong("!pause"), frame(PART, b"b"), frame(LAST, b"c")];
    ws.say(&mut web, parts.concat());
    web.until("it is paused", |web| !web.server.state().heard.is_empty());
    settle!(web);
    ws.say(&mut web, text("d"));
    settle!(web);
    assert_eq!(web.server.state().heard.len(), 1);
    wake!(web, 0);
    assert_eq!(ws.next(&mut web), said("abc"));
    assert_eq!(ws.next(&mut web), said("d"));
}

/// A first request takes long. Behind it come a WebSocket, its frames, and the client's end.
fn what_came_before_the_end_of_the_client_is_not_lost<T: Harness>() {
    for open in ["", "!pause"] {
        let slow =
            app(WebSocketSettings::new()).get("/slow", |_, q| q.blocking(|| (), |_, ()| "slow"));
        let mut web = crate::bench::serve::<T, _>(slow);
        let all = [
            b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            request(&format!("/ws?open={open}"), "").into_bytes(),
            text("!pause"),
            text("a"),
            frame(TEXT_PART, b"b"),
            text("")[..1].to_vec(),
        ];
        // Its frames may be whole or not.
        for last in [close(1000, ""), frame(LAST, b"c")] {
            let before = web.server.state().heard.len();
            let number = web.server.state().opened.len();
            let client =
                web.ask([all[..4].concat(), frame(TEXT_PART, b"b"), last.clone()].concat());
            web.finish(client);
            web.until("it is open", |web| web.server.state().opened.len() == number + 1);
            settle!(web);
            if !open.is_empty() {
                assert_eq!(web.server.state().heard.len(), before);
                wake!(web, number);
            }
            web.until("it is paused", |web| web.server.state().heard.len() == before + 1);
            settle!(web);
            assert_eq!(web.server.state().heard.len(), before + 1);
            assert_eq!(web.server.state().ends.len(), number, "it ends behind what is held back");
            wake!(web, number);
            web.until("the end", |web| web.server.state().ends.len() == number + 1);
            let is_clean = last == close(1000, "");
            let mut heard = vec![said("!pause"), said("a")];
            heard.extend((!is_clean).then(|| said("bc")));
            assert_eq!(web.server.state().of(number), heard);
            let end = &web.server.state().ends[number].1;
            assert_eq!(end.is_clean, is_clean);
            assert_eq!(end.cause, if is_clean { Cause::Closed } else { Cause::Eof });
            web.until("the client's end", |web| web.client(client).is_over());
            web.close(client);
        }
    }
}

fn a_paused_connection_closes<T: Harness>() {
    let mut web = web::<T>();
    // By the program, while it is paused and after it.
    for orders in ["!pause;!close 1000 x", "!close 1000 x;!pause"] {
        let number = web.server.state().ends.len();
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, [text(orders), text("late")].concat());
        assert_eq!(ws.next(&mut web), Got::Close(Some(1000), "x".to_owned()));
        ws.say(&mut web, close(1000, "x"));
        assert_eq!(ws.rest(&mut web), []);
        web.until("the end", |web| web.server.state().ends.len() == number + 1);
        assert!(web.server.state().ends[number].1.is_clean);
    }
    // By the client, behind the pause.
    let number = web.server.state().ends.len();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("!pause"), close(1000, "")].concat());
    web.finish(ws.source);
    settle!(web);
    assert_eq!(web.server.state().ends.len(), number);
    wake!(web, number);
    assert_eq!(ws.rest(&mut web), [closed(1000)]);
}

fn an_unfinished_message_is_no_part_of_the_next_connection<T: Harness>() {
    let mut web = web::<T>();
    for last in [close(1000, ""), frame(0x83, b""), frame(PART, b"")[..1].to_vec()] {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, [frame(TEXT_PART, b"secret"), last].concat());
        web.finish(ws.source);
        ws.rest(&mut web);
        let mut other = Ws::open(&mut web, "/ws");
        other.say(&mut web, [frame(TEXT_PART, b"a"), frame(LAST, b"b")].concat());
        assert_eq!(other.next(&mut web), said("ab"));
        // Byte by byte.
        for byte in text("cd") {
            other.say(&mut web, vec![byte]);
            web.turn(Duration::ZERO);
        }
        assert_eq!(other.next(&mut web), said("cd"));
    }
}

pub(crate) fn a_ping_is_answered_behind_a_large_message<T: Harness>() {
    let mut web = web::<T>();
    let client = web.connect_deaf();
    web.say(
        client,
        [request("/ws?open=!large_20000000", "").as_bytes(), &frame(PING, b"1")].concat(),
    );
    web.until("it is open", |web| !web.server.state().opened.is_empty());
    settle!(web);
    web.say(client, [frame(PING, b"2"), text("a"), frame(PING, b"3")].concat());
    settle!(web);
    web.hear(client);
    let mut ws = Ws::of(client);
    assert!(ws.next(&mut web) == Got::Binary(vec![b'l'; 20_000_000]));
    let got: Vec<Got> = (0..4).map(|_| ws.next(&mut web)).collect();
    let pong = |data: &[u8]| Got::Pong(data.to_vec());
    assert_eq!(got, [pong(b"1"), pong(b"2"), said("a"), pong(b"3")]);
    web.until("it has room again", |web| web.server.state().drained > 0);
}

fn a_panic_ends_its_connection_alone<T: Harness>() {
    let app = app(WebSocketSettings::new()).websocket("/drained", |_, _| {
        Ok::<_, windlass_web::Status>(Obeys::new("!large 5000000", "!panic"))
    });
    let mut web = crate::bench::serve::<T, _>(app);
    let mut other = Ws::open(&mut web, "/ws?open=!subscribe_a");
    let cases = [
        ("/ws?open=!subscribe_a;!panic", text("a")),
        ("/ws?open=!subscribe_a", [text("a"), text("!panic"), text("b")].concat()),
        ("/ws?open=!subscribe_a", [frame(TEXT_PART, b"a"), frame(0x8a, b"!panic")].concat()),
        ("/drained", Vec::new()),
    ];
    for (number, (path, frames)) in cases.into_iter().enumerate() {
        let ws = Ws::ask(&mut web, path, frames);
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        assert_eq!(web.server.state().ends[number].1.cause, Cause::Panicked, "{path}");
        web.until("the client's end", |web| web.client(ws.source).is_over());
        web.close(ws.source);
        other.say(&mut web, [text("!publish a told"), text("echo")].concat());
        assert_eq!(other.next(&mut web), said("told"));
        assert_eq!(other.next(&mut web), said("echo"));
        assert_eq!(web.server.remote().totals().subscriptions, 1);
    }
}

fn an_abort_in_a_callback_is_the_last_one<T: Harness>() {
    let mut web = web::<T>();
    for (number, (open, frames)) in [
        ("!abort;!say_a;!close_1000;!resume;!pause", text("a")),
        ("", [text("!abort;!say b;!ping c;!publish a d;!subscribe a"), text("e")].concat()),
        ("", frame(0x8a, b"!abort;!resume")),
    ]
    .into_iter()
    .enumerate()
    {
        let ws = Ws::ask(&mut web, &format!("/ws?open={open}"), frames);
        web.until("its end", |web| web.server.state().ends.len() == number + 1);
        let state = web.server.state();
        assert_eq!(state.ends[number].1.cause, Cause::Aborted);
        assert!(state.of(number).len() <= 1, "{:?}", state.heard);
        web.until("the client's end", |web| web.client(ws.source).is_over());
        assert!(web.client(ws.source).error.is_some(), "a reset");
        assert_eq!(web.server.remote().totals().subscriptions, 0);
    }
}

fn a_flood_holds_up_nobody<T: Harness>() {
    let limits = serve::Limits::new().memory(4 << 20).marks(8 << 10, 32 << 10);
    let app: App<_> = app(WebSocketSettings::new()).serve_limits(limits).limits(Limits::new());
    let mut web = crate::bench::serve::<T, _>(app);
    let mut other = Ws::open(&mut web, "/ws");
    let floods = [
        frame(PING, b"").repeat(50_000),
        frame(0x8a, b"").repeat(50_000),
        text("").repeat(50_000),
        [frame(TEXT_PART, b""), frame(PART, b"x").repeat(50_000)].concat(),
        [frame(TEXT_PART, b""), frame(PART, b"").repeat(50_000)].concat(),
    ];
    for flood in floods {
        // It does not read what it gets.
        let client = web.connect_deaf();
        web.say(client, [request("/ws", "").as_bytes(), &flood].concat());
        let mut most = 0;
        for at in 0..20 {
            other.say(&mut web, text(&at.to_string()));
            assert_eq!(other.next(&mut web), said(&at.to_string()));
            most = most.max(web.server.budget().used());
            web.turn(Duration::ZERO);
        }
        assert!(most < 1 << 20, "{most} bytes are held");
        web.close(client);
    }
    // One that goes on with an unfinished message beyond its number of fragments gets a 1009.
    let mut ws = Ws::open(&mut web, "/ws");
    let all = [frame(TEXT_PART, b""), frame(PART, b"").repeat(131_100)].concat();
    ws.say(&mut web, all);
    let why = "a message has too many parts".to_owned();
    assert_eq!(ws.rest(&mut web), [Got::Close(Some(1009), why)]);
}
