//! Responses that other threads give, in parts or whole, and events that they publish.
#![allow(unreachable_pub)] // it is a module of a test binary

use std::io::Write;
use std::thread;
use std::time::Duration;

use windlass_web::events::ServerEvent;
use windlass_web::{Limits, Response, Status};

use super::bench::Bench;
use super::net::Harness;
use super::{GET, get};

pub fn an_answer_comes_from_another_thread<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let (one, two) = (b.connect(), b.connect());
    b.say(one, get("/1") + &get("/2"));
    let id = b.request();
    let (later, response) = Response::later();
    b.engine.respond(id, response).expect("it waits");
    let answers = thread::spawn(move || later.respond("from there").is_ok());
    assert!(answers.join().expect("no panic"));
    b.until_heard(one, "from there");
    b.until("it is over", |b| b.ended == [(id, Some(Status::OK))]);
    // One that nobody gives.
    let id = b.request();
    let (later, response) = Response::later();
    b.engine.respond(id, response).expect("it waits");
    b.turn(Duration::ZERO);
    thread::spawn(move || drop(later)).join().expect("no panic");
    let failed = (id, Some(Status::INTERNAL_SERVER_ERROR));
    b.until("it is over", |b| b.ended.contains(&failed));
    // One that nobody waits for.
    b.say(two, GET);
    let id = b.request();
    let (later, response) = Response::later();
    b.engine.respond(id, response).expect("it waits");
    assert!(!later.is_gone());
    b.reset(two);
    b.until("its end is known", |b| b.ended.contains(&(id, None)));
    assert!(later.is_gone() && later.respond("too late").is_err());
    let totals = b.engine.publisher(&mut b.watcher).totals();
    assert_eq!((totals.unanswered, totals.late), (1, 1));
}

/// So many requests came behind the one that waits that the engine reads no more.
pub fn the_end_of_a_client_is_noticed_where_its_connection_is_not_read<T: Harness>() {
    let behind = GET.repeat(1000);
    assert!(behind.len() > 16 << 10);
    let mut b = Bench::new::<T>(Limits::new());
    let (one, two) = (b.connect(), b.connect());
    b.say(one, GET.to_owned() + &behind);
    let id = b.request();
    let (later, response) = Response::later();
    b.engine.respond(id, response).expect("it waits");
    b.finish(one);
    b.until("its end is known", |_| later.is_gone());
    later.respond("all the same").expect("it may still read");
    b.until_heard(one, "all the same");
    let id = b.request();
    b.engine.respond(id, "the next").expect("it waits");
    b.until_heard(one, "the next");
    b.request();
    // The same for one that writes.
    b.say(two, GET.to_owned() + &behind);
    let id = b.request();
    let (writer, response) = Response::writer();
    b.engine.respond(id, response).expect("it waits");
    b.finish(two);
    b.until("its end is known", |_| writer.is_gone());
}

/// The body of a response that came in chunks.
fn unchunked(response: &str) -> String {
    let (_, mut rest) = response.split_once("\r\n\r\n").expect("a whole head");
    let mut body = String::new();
    loop {
        let (size, chunk) = rest.split_once("\r\n").expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return body;
        }
        body.push_str(&chunk[..size]);
        rest = chunk[size..].strip_prefix("\r\n").expect("the end of a chunk");
    }
}

pub fn a_thread_writes_a_body<T: Harness>() {
    const LINES: usize = 50_000;
    let mut b = Bench::new::<T>(Limits::new());
    let (one, two) = (b.connect(), b.connect());
    b.say(one, GET);
    let id = b.request();
    let (mut writer, response) = Response::writer();
    b.engine.respond(id, response.content_type("text/plain")).expect("it waits");
    b.turn(Duration::ZERO);
    let writes = thread::spawn(move || {
        for number in 0..LINES {
            writeln!(writer, "{number}").expect("it is read");
        }
        writer.end();
    });
    while !b.ends_with(one, b"\r\n0\r\n\r\n") {
        // The thread may just compute: so a turn may have nothing.
        b.turn(Duration::from_millis(if T::VIRTUAL { 0 } else { 100 }));
    }
    writes.join().expect("no panic");
    b.until("it is over", |b| b.ended == [(id, Some(Status::OK))]);
    let lines: String = (0..LINES).map(|number| format!("{number}\n")).collect();
    assert!(unchunked(&b.heard(one)) == lines, "all that was written, once and in its order");
    // A client that leaves in the middle.
    b.say(two, GET);
    let id = b.request();
    let (mut writer, response) = Response::writer();
    b.engine.respond(id, response).expect("it waits");
    writer.try_write(b"the begin").expect("there is room");
    b.until("it has come", |b| b.heard(two).contains("the begin"));
    b.reset(two);
    b.until("it is gone", |_| writer.is_gone());
    b.until("it is over", |b| b.ended.contains(&(id, Some(Status::OK))));
    assert!(writer.write(b"more").is_err());
}

pub fn what_is_published_is_heard<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let clients = [b.connect(), b.connect(), b.connect()];
    let mut ids = Vec::new();
    for client in clients {
        b.say(client, GET);
        let id = b.request();
        // No comment wakes a test that waits in vain.
        let events = Response::events().keep_alive(Duration::from_secs(3600));
        b.engine.respond(id, events.subscribe("prices")).expect("it waits");
        ids.push(id);
    }
    let publisher = b.engine.publisher(&mut b.watcher);
    assert_eq!(publisher.totals().subscriptions, 3);
    let (there, below) = (publisher.clone(), b.engine.remote(&mut b.watcher));
    let publishes = thread::spawn(move || {
        there.drain();
        assert!(there.publish("prices", ServerEvent::data("17").id("1")));
        assert!(below.post(0, "the program's").is_ok());
        there.publish("prices", "18")
    });
    assert!(publishes.join().expect("no panic"));
    for client in clients {
        b.until("it has heard", |b| b.heard(client).contains("data: 18\n\n"));
        assert!(b.heard(client).contains("id: 1\ndata: 17\n\n"));
    }
    // Other messages are the program's, and these are not.
    assert_eq!(b.messages.len(), 1);
    let message = b.messages.remove(0).downcast::<&str>().expect("it has this type");
    assert_eq!(message, "the program's");
    let [one, two, three] = clients;
    b.reset(one);
    b.finish(two);
    b.until("two are over", |b| b.ended.len() == 2);
    assert_eq!(publisher.totals().subscriptions, 1);
    assert!(b.until_end(two).ends_with("\r\n0\r\n\r\n"));
    // A stop ends them.
    b.engine.stop(&mut b.watcher);
    assert!(b.until_end(three).ends_with("\r\n0\r\n\r\n"));
    b.until("all are over", |b| ids.iter().all(|id| b.ended.contains(&(*id, Some(Status::OK)))));
    assert!(publisher.publish("prices", "nobody hears"));
}
