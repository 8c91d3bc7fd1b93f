//! Messages that are sent in parts: what the peer gets, what waits behind them, and what their
//! connection and its loop hold for them.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use windlass_serve::{Limits, Refusal};
use windlass_web::App;
use windlass_web::Status;
use windlass_web::events::Published;
use windlass_web::websocket::{
    CloseCode, Kind, Message, Peer, Socket, SocketEnd, SocketSender, WebSocketSettings,
};

use crate::bench::{Web, serve};
use crate::client::{Got, PING, Ws, close, closed, frame, request, said, text};
use crate::common::Harness;
use crate::messages::bytes;

crate::every_kernel! {
    parts_become_one_message
    a_part_may_be_of_any_size
    whole_messages_wait_for_the_last_part
    what_other_threads_send_waits
    a_thread_is_refused_before_its_connection_ends
    what_waits_holds_up_no_part
    what_was_taken_is_not_lost_when_the_peer_falls_behind
    a_text_may_be_cut_anywhere
    a_text_that_is_none_closes
    a_refused_part_comes_back_and_can_be_sent_again
    what_waits_has_a_cap
    a_subscriber_within_a_message_has_a_bound
    each_end_drops_the_rest
    a_close_is_answered_within_a_message
}

/// What the application knows.
#[derive(Default)]
struct Log {
    senders: Vec<SocketSender>,
    prepared: Option<Arc<Published>>,
    /// Parts, and messages, that came back.
    refused: usize,
    told: usize,
    ends: Vec<SocketEnd>,
}

/// Does what texts say.
#[derive(Default)]
struct Sends {
    /// What is left of a long message, and the size of its parts.
    left: Vec<u8>,
    part: usize,
}

impl Sends {
    /// Sends parts until there is no room.
    fn go_on(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        while !self.left.is_empty() {
            let rest = self.left.split_off(self.part.min(self.left.len()));
            let part = std::mem::replace(&mut self.left, rest);
            let is_last = self.left.is_empty();
            match c.try_send_part(Kind::Binary, part.clone(), is_last) {
                Ok(()) => {}
                Err(back) => {
                    assert_eq!(back.reason, Refusal::Cap);
                    assert!(*back.value == *part, "it comes back as it was");
                    self.left.splice(..0, part);
                    log.refused += 1;
                    return;
                }
            }
        }
    }
}

fn order(c: &mut Socket<'_>, log: &mut Log, word: &str, rest: &str) {
    match word {
        "part" => assert!(c.send_part(Kind::Text, rest.to_owned(), false)),
        "last" => assert!(c.send_part(Kind::Text, rest.to_owned(), true)),
        "say" => {
            let waited = c.waiting();
            assert!(c.send(rest.to_owned()));
            assert!(c.waiting() > waited + rest.len(), "the message waits with its frame");
        }
        "publish" => c.publish("all", rest),
        "prepared" => {
            let prepared =
                log.prepared.get_or_insert_with(|| Arc::new(Published::from("prepared")));
            assert!(c.send_prepared(prepared));
        }
        "half" => assert!(c.send_part(Kind::Text, b"\xc3".to_vec(), false)),
        "other" => assert!(c.send_part(Kind::Text, b"\xbc".to_vec(), rest == "last")),
        "ends" => {
            let back = c.try_send_part(Kind::Text, b"ok\xc3".to_vec(), true).expect_err("none");
            assert_eq!((back.reason, &*back.value), (Refusal::Stale, &b"ok\xc3"[..]));
        }
        "wrong" => assert!(!c.send_part(Kind::Text, b"\xff".to_vec(), false)),
        "many" => {
            // As many as there is room for, and one more.
            let mut count = 0;
            while c.try_send(format!("{count} {}", "m".repeat(1000))).is_ok() {
                count += 1;
            }
            let back = c.try_send("there is no room".repeat(70)).expect_err("none");
            assert_eq!(back.reason, Refusal::Cap);
            assert_eq!(back.value.as_text(), Some(&*"there is no room".repeat(70)));
            log.refused = count;
        }
        "close" => c.close(CloseCode::NORMAL, ""),
        "abort" => c.abort(),
        "panic" => panic!("as it was told to"),
        _ => panic!("{word}?"),
    }
}

impl Peer<Log> for Sends {
    fn open(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        log.senders.push(c.sender());
        c.subscribe("all");
    }

    fn message(&mut self, log: &mut Log, c: &mut Socket<'_>, message: Message) {
        let orders = message.as_text().expect("an order").to_owned();
        for one in orders.split(';') {
            let (word, rest) = one.split_once(' ').unwrap_or((one, ""));
            if word == "long" {
                let (len, part) = rest.split_once(' ').expect("two numbers");
                self.left = bytes(len.parse().expect("a number"));
                self.part = part.parse().expect("a number");
                self.go_on(log, c);
            } else {
                order(c, log, word, rest);
            }
        }
    }

    fn told(&mut self, log: &mut Log, c: &mut Socket<'_>, value: Box<dyn Any + Send>) {
        self.left.clear();
        let orders = value.downcast::<&str>().expect("orders");
        for one in orders.split(';') {
            let (word, rest) = one.split_once(' ').unwrap_or((one, ""));
            order(c, log, word, rest);
        }
        log.told += 1;
    }

    fn drained(&mut self, log: &mut Log, c: &mut Socket<'_>) {
        self.go_on(log, c);
    }

    fn closed(&mut self, log: &mut Log, end: &SocketEnd) {
        log.ends.push(end.clone());
    }
}

fn app(settings: WebSocketSettings) -> App<Log> {
    App::with(|_| Log::default())
        .websocket_with(settings, "/ws", |_, _| Ok::<_, Status>(Sends::default()))
}

fn web<T: Harness>() -> Web<T::Driver, Log> {
    serve::<T, _>(app(WebSocketSettings::new()))
}

fn small_cap() -> Limits {
    Limits::new().marks(8 << 10, 16 << 10).cap(64 << 10)
}

pub(crate) fn parts_become_one_message<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, text("part one, ;part ;part two;last "));
    assert_eq!(ws.next(&mut web), said("one, two"));
    ws.say(&mut web, text("last whole;say next"));
    assert_eq!([ws.next(&mut web), ws.next(&mut web)], [said("whole"), said("next")]);
    // Over several callbacks, with control frames between the parts.
    for at in 0..3 {
        ws.say(&mut web, [text(&format!("part {at} ")), frame(PING, b"between")].concat());
        assert_eq!(ws.next(&mut web), Got::Pong(b"between".to_vec()));
    }
    ws.say(&mut web, text("last end"));
    assert_eq!(ws.next(&mut web), said("0 1 2 end"));
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

pub(crate) fn a_part_may_be_of_any_size<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    for (len, part) in [(1, 1), (300, 1), (300, 125), (10_000, 126), (500_000, 70_000)] {
        ws.say(&mut web, text(&format!("long {len} {part}")));
        assert!(ws.next(&mut web) == Got::Binary(bytes(len)), "{len} by {part}");
    }
}

pub(crate) fn whole_messages_wait_for_the_last_part<T: Harness>() {
    let mut web = web::<T>();
    let (mut ws, mut other) = (Ws::open(&mut web, "/ws"), Ws::open(&mut web, "/ws"));
    ws.say(&mut web, text("part a;say 1;publish 2;prepared;say 3"));
    // The others hear at once what is published.
    assert_eq!(other.next(&mut web), said("2"));
    other.say(&mut web, text("publish 4"));
    assert_eq!(other.next(&mut web), said("4"));
    assert!(web.server.remote().publish("all", vec![5]));
    assert_eq!(other.next(&mut web), Got::Binary(vec![5]));
    assert!(web.server.budget().used() > 0, "what waits is counted");
    ws.say(&mut web, [frame(PING, b""), text("last b;part c;say 6")].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
    assert_eq!(ws.next(&mut web), said("ab"));
    // What a callback publishes is told behind it.
    let behind = [said("1"), said("prepared"), said("3"), said("2"), said("4")];
    for one in behind {
        assert_eq!(ws.next(&mut web), one);
    }
    assert_eq!(ws.next(&mut web), Got::Binary(vec![5]));
    ws.say(&mut web, text("last d"));
    assert_eq!([ws.next(&mut web), ws.next(&mut web)], [said("cd"), said("6")]);
    let totals = web.server.remote().totals();
    assert_eq!((totals.slow_subscribers, totals.lost_events), (0, 0));
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

pub(crate) fn what_other_threads_send_waits<T: Harness>() {
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(small_cap()));
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("part a"), frame(PING, b"1")].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(b"1".to_vec()));
    let sender = web.server.state().senders[0].clone();
    let thread = thread::spawn(move || {
        let mut sent = 0;
        while sender.send(format!("{sent} {}", "t".repeat(5000))).is_ok() {
            sent += 1;
        }
        (sent, sender)
    });
    // The loop takes some of it meanwhile, or nothing: it counts all the same.
    let (sent, sender) = thread.join().expect("no panic");
    assert!((8..13).contains(&sent), "{sent}");
    ws.say(&mut web, [frame(PING, b"2"), frame(PING, b"3")].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(b"2".to_vec()));
    assert_eq!(ws.next(&mut web), Got::Pong(b"3".to_vec()));
    // It is in the queue behind the message now, and counts there.
    let memory = web.server.budget().used();
    assert!(memory >= sent * 5000, "{memory}");
    ws.say(&mut web, text("last b"));
    assert_eq!(ws.next(&mut web), said("ab"));
    for at in 0..sent {
        assert!(ws.next(&mut web) == said(&format!("{at} {}", "t".repeat(5000))), "{at}");
    }
    sender.send("again").expect("there is room");
    assert_eq!(ws.next(&mut web), said("again"));
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

/// A thread was told that there is room, and the loop ended the connection because there was none.
fn a_thread_is_refused_before_its_connection_ends<T: Harness>() {
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(small_cap()));
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("part a"), frame(PING, b"")].concat());
    assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
    let sender = web.server.state().senders[0].clone();
    let mut sent = 0;
    for _ in 0..5 {
        while sender.send(format!("{sent} {}", "t".repeat(3000))).is_ok() {
            sent += 1;
        }
        ws.say(&mut web, [frame(PING, b"1"), frame(PING, b"2")].concat());
        assert_eq!(ws.next(&mut web), Got::Pong(b"1".to_vec()));
        assert_eq!(ws.next(&mut web), Got::Pong(b"2".to_vec()));
    }
    assert!((18..22).contains(&sent), "{sent}");
    ws.say(&mut web, text("last b"));
    assert_eq!(ws.next(&mut web), said("ab"));
    for at in 0..sent {
        assert!(ws.next(&mut web) == said(&format!("{at} {}", "t".repeat(3000))), "{at}");
    }
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

/// It waits for the parts. So a program whose parts were refused for it waited without end.
fn what_waits_holds_up_no_part<T: Harness>() {
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(small_cap()));
    let mut ws = Ws::open(&mut web, "/ws");
    let (more, last) = ("p".repeat(20_000), "q".repeat(20_000));
    ws.say(&mut web, text("part a;many"));
    ws.say(&mut web, text(&format!("part {more};last {last}")));
    assert!(ws.next(&mut web) == said(&format!("a{more}{last}")));
    for at in 0..web.server.state().refused {
        assert!(ws.next(&mut web) == said(&format!("{at} {}", "m".repeat(1000))), "{at}");
    }
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

/// A prepared message that has waited was dropped like a publication that comes too late.
fn what_was_taken_is_not_lost_when_the_peer_falls_behind<T: Harness>() {
    let settings = WebSocketSettings::new().lossy();
    let mut web = serve::<T, _>(app(settings).serve_limits(small_cap()));
    let client = web.connect_deaf();
    web.say(client, [request("/ws", "").into_bytes(), text("long 30000000 15000")].concat());
    web.until("it is refused", |web| web.server.state().refused > 0);
    web.server.state().refused = 0;
    let id = web.server.state().senders[0].id();
    let told = web.server.remote().tell(id, "prepared;last end;say next");
    assert!(told);
    web.until("it is done", |web| web.server.state().told > 0);
    web.hear(client);
    let mut ws = Ws::of(client);
    assert!(matches!(ws.next(&mut web), Got::Binary(data) if data.ends_with(b"end")));
    assert_eq!([ws.next(&mut web), ws.next(&mut web)], [said("prepared"), said("next")]);
    assert_eq!(web.server.remote().totals().lost_events, 0);
}

fn a_text_may_be_cut_anywhere<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, text("half;other last;part a;half;other;last b"));
    assert_eq!([ws.next(&mut web), ws.next(&mut web)], [said("ü"), said("aüb")]);
}

fn a_text_that_is_none_closes<T: Harness>() {
    let mut web = web::<T>();
    let why = "the text is not UTF-8";
    for (at, orders) in
        ["wrong", "part a;wrong", "half;wrong", "ends", "half;ends"].into_iter().enumerate()
    {
        let mut ws = Ws::open(&mut web, "/ws");
        ws.say(&mut web, text(&format!("say before;{orders}")));
        assert_eq!(ws.next(&mut web), said("before"));
        assert_eq!(ws.next(&mut web), Got::Close(Some(1007), why.to_owned()), "{orders}");
        ws.say(&mut web, close(1007, ""));
        web.until_over(ws.source);
        assert!(web.client(ws.source).eof);
        web.close(ws.source);
        web.until("its end", |web| web.server.state().ends.len() == at + 1);
        let end = &web.server.state().ends[at];
        assert!(end.is_clean && end.code == Some(CloseCode::INVALID) && end.reason == why);
    }
    web.until("nothing is held", |web| web.server.budget().used() == 0);
}

pub(crate) fn a_refused_part_comes_back_and_can_be_sent_again<T: Harness>() {
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(small_cap()));
    for len in [200_000, 3_000_000] {
        let client = web.connect_deaf();
        web.say(
            client,
            [request("/ws", "").into_bytes(), text(&format!("long {len} 30000"))].concat(),
        );
        web.until("it is refused", |web| web.server.state().refused > 0);
        web.server.state().refused = 0;
        web.hear(client);
        let mut ws = Ws::of(client);
        assert!(ws.next(&mut web) == Got::Binary(bytes(len)));
        ws.say(&mut web, text("say next"));
        assert_eq!(ws.next(&mut web), said("next"));
    }
}

fn what_waits_has_a_cap<T: Harness>() {
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(small_cap()));
    let mut ws = Ws::open(&mut web, "/ws");
    // What waits leaves no room for parts, and the last part, which is empty, has room.
    ws.say(&mut web, text("part a;many;last "));
    assert_eq!(ws.next(&mut web), said("a"));
    let count = web.server.state().refused;
    assert!((50..64).contains(&count), "{count}");
    for at in 0..count {
        assert!(ws.next(&mut web) == said(&format!("{at} {}", "m".repeat(1000))), "{at}");
    }
    // A message that does not ask for more loses its connection.
    let long = "x".repeat(70_000);
    ws.say(&mut web, text(&format!("part a;say {}", "x".repeat(40_000))));
    web.run_for(T::span(0.1));
    assert!(web.server.state().ends.is_empty());
    let sender = web.server.state().senders[0].clone();
    let refused = sender.send(long).expect_err("there is no room");
    assert_eq!(refused.reason, Refusal::Cap);
}

fn a_subscriber_within_a_message_has_a_bound<T: Harness>() {
    for is_lossy in [false, true] {
        let settings = WebSocketSettings::new();
        let settings = if is_lossy { settings.lossy() } else { settings };
        let mut web = serve::<T, _>(app(settings).serve_limits(small_cap()));
        let (mut ws, mut other) = (Ws::open(&mut web, "/ws"), Ws::open(&mut web, "/ws"));
        ws.say(&mut web, [text("part a"), frame(PING, b"")].concat());
        assert_eq!(ws.next(&mut web), Got::Pong(Vec::new()));
        let long = "p".repeat(10_000);
        for at in 0..8 {
            assert!(web.server.remote().publish("all", format!("{at} {long}")));
            assert!(other.next(&mut web) == said(&format!("{at} {long}")));
        }
        let totals = web.server.remote().totals();
        if is_lossy {
            assert_eq!(
                (totals.slow_subscribers, totals.lost_events, totals.subscriptions),
                (0, 2, 2)
            );
            ws.say(&mut web, text("last b"));
            assert_eq!(ws.next(&mut web), said("ab"));
            for at in 0..6 {
                assert!(ws.next(&mut web) == said(&format!("{at} {long}")), "{at}");
            }
        } else {
            assert_eq!((totals.slow_subscribers, totals.lost_events), (1, 0));
            web.until("its end", |web| web.server.state().ends.len() == 1);
            assert_eq!(web.server.remote().totals().subscriptions, 1);
        }
        web.until("nothing is held", |web| web.server.budget().used() == 0);
    }
}

fn each_end_drops_the_rest<T: Harness>() {
    let mut web = web::<T>();
    for (at, end) in ["close", "abort", "panic", "wrong", "reset", "eof", "peer"].iter().enumerate()
    {
        let client = web.connect();
        let begin = text("part a;say waits;publish waits, too");
        web.say(client, [request("/ws", "").into_bytes(), begin].concat());
        web.until("it is held", |web| web.server.budget().used() > 100);
        match *end {
            "reset" => web.close(client),
            "eof" => web.finish(client),
            "peer" => web.say(client, close(1000, "")),
            order => web.say(client, text(order)),
        }
        web.until("it is dropped", |web| web.server.budget().used() == 0);
        if *end != "reset" {
            web.finish(client);
        }
        web.until("its end", |web| web.server.state().ends.len() == at + 1);
        if *end != "reset" {
            let heard = web.until_over(client);
            assert!(!heard.contains("waits"), "{end}");
            web.close(client);
        }
    }
}

fn a_close_is_answered_within_a_message<T: Harness>() {
    let mut web = web::<T>();
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, text("part a;say late;close"));
    assert_eq!(ws.next(&mut web), closed(1000));
    ws.say(&mut web, close(1000, ""));
    web.until("its end", |web| web.server.state().ends.len() == 1);
    assert!(web.server.state().ends[0].is_clean);
    // And that of the peer.
    let mut ws = Ws::open(&mut web, "/ws");
    ws.say(&mut web, [text("part a;say late"), close(1001, "")].concat());
    assert_eq!(ws.next(&mut web), closed(1001));
    web.until("its end", |web| web.server.state().ends.len() == 2);
    assert!(web.server.state().ends[1].is_clean);
}
