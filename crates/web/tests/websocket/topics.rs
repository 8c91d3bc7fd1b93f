//! What is published on topics: who hears it, in which order, and what becomes of slow subscribers.

use std::thread;
use std::time::Duration;

use windlass_web::events::ServerEvent;
use windlass_web::websocket::WebSocketSettings;
use windlass_web::{Response, serve as below};

use crate::bench::{Web, body, serve};
use crate::client::{
    Got, LAST, PART, PING, TEXT_PART, Ws, close, closed, frame, request, said, text,
};
use crate::common::Harness;
use crate::program::{Log, app, web, web_with};

crate::every_kernel! {
    a_callback_publishes
    the_order_does_not_depend_on_the_cut
    threads_publish_text_and_bytes
    the_application_publishes_at_times
    one_topic_has_subscribers_of_both_protocols
    a_burst_ends_nobody_that_reads
    a_stalled_subscriber_is_ended_alone
    a_stalled_subscriber_can_lose_messages
    publications_come_between_whole_frames
    a_publisher_that_is_faster_than_all_is_bounded
}

pub(crate) fn a_callback_publishes<T: Harness>() {
    let mut web = web::<T>();
    let mut one = Ws::open(&mut web, "/ws");
    let mut other = Ws::open(&mut web, "/ws?open=!subscribe_a;!subscribe_a");
    let mut third = Ws::open(&mut web, "/ws?open=!subscribe_b");
    one.say(&mut web, text("!publish a 0;!subscribe a;!publish a 1;!say 2;!publish a 3"));
    // A callback is done before what it has published is told.
    let got: Vec<Got> = (0..3).map(|_| one.next(&mut web)).collect();
    assert_eq!(got, [said("2"), said("1"), said("3")]);
    let got: Vec<Got> = (0..3).map(|_| other.next(&mut web)).collect();
    assert_eq!(got, [said("0"), said("1"), said("3")]);
    assert_eq!(web.server.remote().totals().subscriptions, 3);
    one.say(&mut web, text("!publish a 4;!unsubscribe a;!publish a 5;!unsubscribe a;!say 6"));
    assert_eq!([one.next(&mut web), one.next(&mut web)], [said("6"), said("4")]);
    assert_eq!([other.next(&mut web), other.next(&mut web)], [said("4"), said("5")]);
    one.say(&mut web, text("!publish nobody 7;!publish b 8"));
    assert_eq!(third.next(&mut web), said("8"));
    for (left, ws) in [(1, &mut other), (0, &mut third)] {
        ws.say(&mut web, close(1000, ""));
        assert_eq!(ws.rest(&mut web), [closed(1000)]);
        web.until("it is forgotten", |web| web.server.remote().totals().subscriptions == left);
    }
    one.say(&mut web, text("!publish a 9;!say end"));
    assert_eq!(one.next(&mut web), said("end"));
}

fn the_order_does_not_depend_on_the_cut<T: Harness>() {
    let mut web = web::<T>();
    let frames = [
        text("!publish a 1"),
        text("x"),
        frame(PING, b"p"),
        frame(TEXT_PART, b"!publish "),
        frame(0x8a, b"!publish a 2;!say y"),
        frame(LAST, b"a 3"),
        text("!subscribe b;!publish b 4"),
        text("!unsubscribe a"),
        text("!publish a 5"),
        text("z"),
    ];
    let all = frames.concat();
    let told = [
        said("1"),
        said("x"),
        Got::Pong(b"p".to_vec()),
        said("y"),
        said("2"),
        said("3"),
        said("4"),
        said("z"),
    ];
    for at in (0..all.len()).step_by(if T::VIRTUAL { 1 } else { 7 }) {
        let mut ws = Ws::open(&mut web, "/ws?open=!subscribe_a");
        ws.say(&mut web, all[..at].to_vec());
        (0..3).for_each(|_| _ = web.turn(Duration::ZERO));
        ws.say(&mut web, [&all[at..], &close(1000, "")].concat());
        let mut got = ws.rest(&mut web);
        assert_eq!(got.pop(), Some(closed(1000)), "cut at {at}");
        assert_eq!(got, told, "cut at {at}");
    }
}

pub(crate) fn threads_publish_text_and_bytes<T: Harness>() {
    let mut web = web::<T>();
    let mut clients = [(); 3].map(|()| Ws::open(&mut web, "/ws?open=!subscribe_a"));
    let remote = web.server.remote();
    // All of it is less than what may wait for a client: none is a slow one, however threads run.
    let publishes = thread::spawn(move || {
        for at in 0..100 {
            assert!(remote.publish("a", at.to_string()));
            assert!(remote.publish("nobody", "nothing"));
            assert!(remote.publish("a", vec![at as u8; at * 20]));
        }
        assert!(remote.publish("a", ServerEvent::data("two\nlines").id("7").name("x")));
        assert!(remote.publish("a", ""));
    });
    while T::VIRTUAL && !publishes.is_finished() {
        thread::yield_now(); // virtual time does not wait for threads
    }
    for ws in &mut clients {
        for at in 0..100 {
            assert_eq!(ws.next(&mut web), said(&at.to_string()));
            assert!(ws.next(&mut web) == Got::Binary(vec![at as u8; at * 20]));
        }
        assert_eq!(ws.next(&mut web), said("two\nlines"));
        assert_eq!(ws.next(&mut web), said(""));
    }
    publishes.join().expect("no panic");
}

fn the_application_publishes_at_times<T: Harness>() {
    let span = T::span(5.0);
    let app = app(WebSocketSettings::new()).every(span, |log: &mut Log, remote| {
        log.woken += 1;
        remote.publish("time", log.woken.to_string());
    });
    let mut web = serve::<T, _>(app);
    let mut ws = Ws::open(&mut web, "/ws?open=!subscribe_time");
    let Got::Text(first) = ws.next(&mut web) else { panic!("no text") };
    let first: u32 = first.parse().expect("a number");
    for at in first + 1..first + 5 {
        assert_eq!(ws.next(&mut web), said(&at.to_string()));
    }
}

fn one_topic_has_subscribers_of_both_protocols<T: Harness>() {
    let app =
        app(WebSocketSettings::new()).get("/events", |_, _| Response::events().subscribe("a"));
    let mut web = serve::<T, _>(app);
    let mut ws = Ws::open(&mut web, "/ws?open=!subscribe_a");
    let events = web.ask("GET /events HTTP/1.0\r\n\r\n");
    web.until("both hear", |web| web.server.remote().totals().subscriptions == 2);
    let remote = web.server.remote();
    assert!(remote.publish("a", ServerEvent::data("1").id("7")));
    assert!(remote.publish("a", vec![2]));
    ws.say(&mut web, text("!publish a 3"));
    let got: Vec<Got> = (0..3).map(|_| ws.next(&mut web)).collect();
    assert_eq!(got, [said("1"), Got::Binary(vec![2]), said("3")]);
    web.until_heard(events, "data: 3\n\n");
    assert_eq!(body(&web.heard(events)), "id: 7\ndata: 1\n\ndata: 3\n\n");
}

fn a_burst_ends_nobody_that_reads<T: Harness>() {
    let app =
        app(WebSocketSettings::new()).get("/events", |_, _| Response::events().subscribe("a"));
    let mut web = serve::<T, _>(app);
    let mut ws = Ws::open(&mut web, "/ws?open=!subscribe_a");
    let events = web.ask("GET /events HTTP/1.0\r\n\r\n");
    web.until("both hear", |web| web.server.remote().totals().subscriptions == 2);
    // All of it at once: more than may wait for a connection when a turn begins.
    let (remote, long) = (web.server.remote(), "x".repeat(2000));
    for at in 0..300 {
        assert!(remote.publish("a", format!("{at} {long}")));
    }
    for at in 0..300 {
        assert!(ws.next(&mut web) == said(&format!("{at} {long}")), "{at}");
    }
    web.until_heard(events, "data: 299 ");
    let totals = web.server.remote().totals();
    assert_eq!((totals.slow_subscribers, totals.lost_events, totals.subscriptions), (0, 0, 2));
}

/// A client that hears, and does not read.
fn stalled<D: windlass::driver::Driver>(web: &mut Web<D, Log>) -> windlass::Source {
    let before = web.server.remote().totals().subscriptions;
    let client = web.connect_deaf();
    web.say(client, request("/ws?open=!subscribe_a", ""));
    web.until("it hears", |web| web.server.remote().totals().subscriptions == before + 1);
    client
}

/// Publishes until `over`, each time when `quick` has heard the one before; how many there were.
fn flood<D: windlass::driver::Driver>(
    web: &mut Web<D, Log>,
    quick: &mut Ws,
    over: impl Fn(&mut Web<D, Log>) -> bool,
) -> usize {
    let (long, mut count) = ("x".repeat(10_000), 0);
    while !over(web) {
        assert!(count < 5000, "what waits has a bound");
        let text = format!("{count} {long}");
        assert!(web.server.remote().publish("a", text.clone()));
        assert!(quick.next(web) == Got::Text(text), "{count}");
        count += 1;
    }
    count
}

pub(crate) fn a_stalled_subscriber_is_ended_alone<T: Harness>() {
    let mut web = web::<T>();
    let client = stalled(&mut web);
    let mut quick = Ws::open(&mut web, "/ws?open=!subscribe_a");
    flood(&mut web, &mut quick, |web| web.server.remote().totals().slow_subscribers > 0);
    web.until("it hears no more", |web| web.server.remote().totals().subscriptions == 1);
    let totals = web.server.remote().totals();
    assert_eq!((totals.slow_subscribers, totals.lost_events), (1, 0));
    assert!(!web.server.state().end().is_clean);
    assert!(web.server.budget().used() < 1 << 20);
    web.close(client);
}

pub(crate) fn a_stalled_subscriber_can_lose_messages<T: Harness>() {
    let mut web = web_with::<T>(WebSocketSettings::new().lossy());
    let client = stalled(&mut web);
    let mut quick = Ws::open(&mut web, "/ws?open=!subscribe_a");
    let all = flood(&mut web, &mut quick, |web| web.server.remote().totals().lost_events > 2);
    let totals = web.server.remote().totals();
    assert_eq!((totals.subscriptions, totals.slow_subscribers), (2, 0));
    web.hear(client);
    let mut slow = Ws::of(client);
    web.until("it has caught up", |web| {
        web.server.remote().publish("a", "the last one");
        web.run_for(T::span(1.0));
        slow.look(web).got.contains(&said("the last one"))
    });
    let numbers = slow.inbox.got.iter().filter_map(|got| match got {
        Got::Text(text) => text.split_once(' ')?.0.parse::<usize>().ok(),
        _ => None,
    });
    let numbers: Vec<usize> = numbers.collect();
    let is_ascending = numbers.windows(2).all(|two| two[0] < two[1]);
    assert!(
        is_ascending && numbers.len() < all && numbers.len() + 10 > all,
        "{numbers:?} of {all}"
    );
    // What it sends and gets otherwise is not lost.
    slow.say(&mut web, text("echo"));
    web.until("an echo", |web| slow.look(web).got.contains(&said("echo")));
}

fn publications_come_between_whole_frames<T: Harness>() {
    let mut web = web::<T>();
    let client = web.connect_deaf();
    let request = request("/ws?open=!subscribe_a;!large_3000000", "");
    web.say(client, [request.as_bytes(), &frame(PING, b"1")].concat());
    web.until("it is open", |web| web.server.state().opened.len() == 1);
    let mut other = Ws::open(&mut web, "/ws");
    web.hear(client);
    let mut ws = Ws::of(client);
    ws.say(&mut web, [frame(TEXT_PART, b"a"), frame(PART, b"b")].concat());
    assert!(ws.next(&mut web) == Got::Binary(vec![b'l'; 3_000_000]));
    assert_eq!(ws.next(&mut web), Got::Pong(b"1".to_vec()));
    for at in 0..20 {
        other.say(&mut web, text(&format!("!publish a {at};!say ok")));
        assert_eq!(other.next(&mut web), said("ok"));
        assert_eq!(ws.next(&mut web), said(&at.to_string()));
    }
    ws.say(&mut web, frame(LAST, b"c"));
    assert_eq!(ws.next(&mut web), said("abc"));
    // Behind a close frame nothing is told.
    ws.say(&mut web, text("!close 1000 "));
    assert_eq!(ws.next(&mut web), closed(1000));
    other.say(&mut web, text("!publish a late;!say ok"));
    assert_eq!(other.next(&mut web), said("ok"));
    ws.say(&mut web, close(1000, ""));
    assert_eq!(ws.rest(&mut web), []);
}

fn a_publisher_that_is_faster_than_all_is_bounded<T: Harness>() {
    let limits = below::Limits::new().memory(8 << 20).marks(16 << 10, 64 << 10);
    let mut web = serve::<T, _>(app(WebSocketSettings::new()).serve_limits(limits));
    let clients: Vec<_> = (0..20).map(|_| stalled(&mut web)).collect();
    let mut own = Ws::open(&mut web, "/ws");
    let (long, mut count) = ("x".repeat(10_000), 0);
    while web.server.remote().totals().subscriptions > 0 {
        count += 1;
        assert!(count < 1000, "they are ended");
        own.say(&mut web, text(&format!("!publish a {long};!say ok")));
        assert_eq!(own.next(&mut web), said("ok"));
        assert!(web.server.budget().used() <= 8 << 20);
    }
    assert_eq!(web.server.remote().totals().slow_subscribers, 20);
    for client in clients {
        web.close(client);
    }
}
