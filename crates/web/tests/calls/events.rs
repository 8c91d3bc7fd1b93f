//! Server-Sent Events: who hears them, in which form, and what becomes of slow subscribers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::bench::{Web, body, serve};
use crate::common::Harness;
use windlass::Source;
use windlass::driver::Driver;
use windlass_web::events::{Events, ServerEvent};
use windlass_web::{App, Response};

crate::every_driver! {
    all_that_hear_a_topic_get_its_events
    a_client_of_http_1_0_gets_events_without_chunks
    a_request_with_head_hears_nothing
    the_first_events_come_before_those_that_are_published
    a_comment_goes_out_where_nothing_else_does
    a_slow_client_is_ended_and_holds_up_no_other
    a_slow_client_can_lose_events
    a_client_that_goes_hears_no_more
    a_client_that_ends_its_side_gets_the_end
    a_shutdown_ends_events
    a_handler_publishes
}

const EVENTS: &str = "GET /prices HTTP/1.1\r\nHost: a\r\n\r\n";

fn app(events: impl Fn(Events) -> Events + Send + Sync + 'static) -> App {
    App::new().get("/prices", move |_, _| events(Response::events().subscribe("prices")))
}

/// Clients that hear.
fn hear<D: Driver, const N: usize>(web: &mut Web<D>, request: &str) -> [Source; N] {
    let before = web.server.remote().totals().subscriptions;
    let clients = std::array::from_fn(|_| web.ask(request.to_owned()));
    let all = before + N as u64;
    web.until("all hear", |web| web.server.remote().totals().subscriptions == all);
    clients
}

/// An event as a chunk.
fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn all_that_hear_a_topic_get_its_events<T: Harness>() {
    let app = app(|events| events).get("/news", |_, _| Response::events().subscribe("news"));
    let mut web = serve::<T, _>(app);
    let clients: [_; 3] = hear(&mut web, EVENTS);
    let [other] = hear(&mut web, "GET /news HTTP/1.1\r\nHost: a\r\n\r\n");
    let remote = web.server.remote();
    let publishes = thread::spawn(move || {
        assert!(remote.publish("prices", ServerEvent::data("17\n18").id("4").name("price")));
        assert!(remote.publish("prices", "19"));
        assert!(remote.publish("nothing", "20"));
    });
    publishes.join().expect("no panic");
    for client in clients {
        web.until_heard(client, "data: 19\n\n\r\n");
        let heard = web.heard(client);
        let event = "id: 4\nevent: price\ndata: 17\ndata: 18\n\n";
        assert_eq!(body(&heard), chunk(event) + &chunk("data: 19\n\n"));
        assert!(heard.contains("Content-Type: text/event-stream\r\n"), "{heard}");
        assert!(heard.contains("Cache-Control: no-cache\r\n"), "{heard}");
    }
    assert_eq!(body(&web.heard(other)), "");
}

fn a_client_of_http_1_0_gets_events_without_chunks<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events));
    let [client] = hear(&mut web, "GET /prices HTTP/1.0\r\n\r\n");
    web.server.remote().publish("prices", "17");
    web.until_heard(client, "data: 17\n\n");
    assert_eq!(body(&web.heard(client)), "data: 17\n\n");
}

fn a_request_with_head_hears_nothing<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events.first("now")).get("/", |_, _| "end"));
    let client =
        web.ask("HEAD /prices HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(client, "end");
    assert!(!web.has_heard(client, "now"));
    assert_eq!(web.server.remote().totals().subscriptions, 0);
}

fn the_first_events_come_before_those_that_are_published<T: Harness>() {
    let app = App::new().get("/prices", |_, q| {
        let events = Response::events().subscribe("prices").retry(Duration::from_millis(2500));
        match q.header("Last-Event-ID") {
            Some(id) => events.first(ServerEvent::data(format!("behind {id}"))),
            None => events,
        }
    });
    let mut web = serve::<T, _>(app);
    let request = "GET /prices HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 41\r\n\r\n";
    let [client] = hear(&mut web, request);
    web.server.remote().publish("prices", "42");
    web.until_heard(client, "data: 42\n\n\r\n");
    let first = "retry: 2500\n\ndata: behind 41\n\n";
    assert_eq!(body(&web.heard(client)), chunk(first) + &chunk("data: 42\n\n"));
}

fn a_comment_goes_out_where_nothing_else_does<T: Harness>() {
    let span = T::span(60.0);
    let mut web = serve::<T, _>(app(move |events| events.keep_alive(span)));
    let [client] = hear(&mut web, EVENTS);
    let start = web.now();
    for count in 1..4 {
        let comments = chunk(":\n\n").repeat(count);
        web.until("a comment", |web| body(&web.heard(client)) == comments);
        assert!(web.now() - start >= span * count as u32);
    }
    web.server.remote().publish("prices", "17");
    web.until_heard(client, "data: 17");
}

/// Publishes until the deaf client holds up what is for it. Returns how many events there were.
fn flood<D: Driver>(web: &mut Web<D>, quick: Source, over: impl Fn(&mut Web<D>) -> bool) -> usize {
    let (text, mut count) = ("x".repeat(10_000), 0);
    while !over(web) {
        count += 1;
        assert!(count < 5000, "what waits has a bound");
        assert!(
            web.server.remote().publish("prices", ServerEvent::data(&text).id(&count.to_string()))
        );
        let id = format!("id: {count}\n");
        web.until("it is not held up", |web| {
            let heard = &web.client(quick).heard;
            let from = heard.len().saturating_sub(11_000);
            heard[from..].windows(id.len()).any(|window| window == id.as_bytes())
        });
    }
    count
}

fn a_slow_client_is_ended_and_holds_up_no_other<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events));
    let slow = web.connect_deaf();
    web.say(slow, EVENTS);
    web.until("it hears", |web| web.server.remote().totals().subscriptions == 1);
    let [quick] = hear(&mut web, EVENTS);
    flood(&mut web, quick, |web| web.server.remote().totals().slow_subscribers > 0);
    web.until("it hears no more", |web| web.server.remote().totals().subscriptions == 1);
    assert_eq!(web.server.remote().totals().lost_events, 0);
}

fn a_slow_client_can_lose_events<T: Harness>() {
    let mut web = serve::<T, _>(app(Events::lossy));
    let slow = web.connect_deaf();
    web.say(slow, EVENTS);
    web.until("it hears", |web| web.server.remote().totals().subscriptions == 1);
    let [quick] = hear(&mut web, EVENTS);
    let all = flood(&mut web, quick, |web| web.server.remote().totals().lost_events > 2);
    let totals = web.server.remote().totals();
    assert_eq!((totals.subscriptions, totals.slow_subscribers), (2, 0));
    web.hear(slow);
    // What was not lost is whole, and it hears again when it has caught up.
    web.until("it has caught up", |web| {
        web.server.remote().publish("prices", "the last one");
        web.run_for(T::span(1.0));
        web.has_heard(slow, "the last one")
    });
    let heard = web.heard(slow);
    let ids = heard.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<usize>().ok());
    let ids: Vec<usize> = ids.collect();
    assert!(ids.is_sorted() && ids.len() < all && ids.len() + 10 > all, "{} of {all}", ids.len());
}

fn a_client_that_goes_hears_no_more<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events.subscribe("news")));
    let client = web.ask(EVENTS);
    web.until("it hears two topics", |web| web.server.remote().totals().subscriptions == 2);
    web.close(client);
    web.until("it is forgotten", |web| web.server.remote().totals().subscriptions == 0);
    assert!(web.server.remote().publish("prices", "nobody"));
}

fn a_client_that_ends_its_side_gets_the_end<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events.first("first")));
    let [client] = hear(&mut web, EVENTS);
    web.finish(client);
    assert_eq!(body(&web.until_over(client)), chunk("data: first\n\n") + "0\r\n\r\n");
    assert_eq!(web.server.remote().totals().subscriptions, 0);
}

fn a_shutdown_ends_events<T: Harness>() {
    let mut web = serve::<T, _>(app(|events| events).grace(Duration::from_secs(3600)));
    let clients: [_; 2] = hear(&mut web, EVENTS);
    web.server.remote().shutdown();
    for client in clients {
        assert_eq!(body(&web.until_over(client)), "0\r\n\r\n");
        web.close(client);
    }
    web.until("it is over", |web| web.server.is_over());
}

fn a_handler_publishes<T: Harness>() {
    let app = app(|events| events).post("/prices", |_, q| {
        assert!(q.remote().publish("prices", q.text()?));
        Ok::<_, windlass_web::Error>(())
    });
    let mut web = serve::<T, _>(app);
    let [client] = hear(&mut web, EVENTS);
    let other = web.ask("POST /prices HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n17");
    web.until_heard(client, "data: 17\n\n");
    web.until_heard(other, "HTTP/1.1 204 ");
}

/// Each loop has its subscribers.
#[test]
fn an_event_reaches_all_loops() {
    let app = app(|events| events).loops(2).listen("127.0.0.1:0").expect("an address");
    let running = app.start().expect("it starts");
    let remote = running.remote();
    let mut clients: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut client = TcpStream::connect(running.address()).expect("a connection");
            client.write_all(EVENTS.as_bytes()).expect("a request");
            // Its head has come, so it hears.
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a head");
                head.extend(byte);
            }
            client
        })
        .collect();
    assert_eq!(remote.totals().subscriptions, 8);
    assert!(remote.publish("prices", "for all"));
    for client in &mut clients {
        let mut heard = vec![0; chunk("data: for all\n\n").len()];
        client.read_exact(&mut heard).expect("an event");
        assert_eq!(String::from_utf8_lossy(&heard), chunk("data: for all\n\n"));
    }
    drop(clients);
    running.shutdown().expect("a report");
}

#[test]
fn no_text_makes_other_fields() {
    let event = ServerEvent::data("a\r\nb\rid: 1\n").name("x\ny: z").id("1\r\n\0data: 2");
    assert_eq!(
        event.to_string(),
        "event: xy: z\nid: 1data: 2\ndata: a\ndata: b\ndata: id: 1\ndata: \n\n"
    );
}
