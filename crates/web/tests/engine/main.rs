//! HTTP in a loop of the program: requests are events, ids name one request, and all else in the
//! loop is left alone.
#![allow(missing_docs)] // a test binary has no users

mod bench;
#[path = "../upgrades/net.rs"]
mod net;
#[path = "../../../../tests/common/seeds.rs"]
mod seeds;
mod threads;
mod walks;

use std::time::Duration;

use bench::Bench;
use net::Harness;
use threads::{
    a_thread_writes_a_body, an_answer_comes_from_another_thread,
    the_end_of_a_client_is_noticed_where_its_connection_is_not_read, what_is_published_is_heard,
};
use windlass::{Buf, Completions, Op};
use windlass_serve::Cause;
use windlass_web::engine::{Event, Refusal, Switching};
use windlass_web::{Flow, Limits, Part, Response, Status};

every_driver! {
    requests_are_answered_in_order_at_any_time
    a_request_is_answered_once
    nothing_is_delivered_from_inside_a_call
    bodies_are_whole_however_they_come
    what_is_no_request_has_no_event_but_one
    limits_are_those_of_an_application
    what_is_not_the_engines_comes_back
    an_upgrade_makes_a_raw_connection
    the_head_of_an_upgrade_has_one_date
    a_refused_upgrade_leaves_the_request
    verbs_of_raw_connections_leave_http_alone
    a_client_that_ends_before_the_upgrade
    http_behind_the_end_of_a_client_ends_with_its_answers
    a_client_that_goes_ends_its_request
    http_begins_on_a_socket_of_the_program
    a_shutdown_answers_what_waits
    random_walks_keep_every_byte
    an_answer_comes_from_another_thread
    the_end_of_a_client_is_noticed_where_its_connection_is_not_read
    a_thread_writes_a_body
    a_body_that_ends_with_the_connection_is_whole_or_reset
    what_is_published_is_heard
}

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn upgrade(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
}

fn requests_are_answered_in_order_at_any_time<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let (one, two) = (b.connect(), b.connect());
    b.say(one, get("/1") + &get("/2") + &get("/3"));
    b.until("the first is there", |b| b.requests.len() == 1);
    b.say(two, get("/other"));
    b.until("that of the other, too", |b| b.requests.len() == 2);
    // The connection that waits holds up no other one.
    let (id, request) = b.requests.remove(1);
    assert_eq!((request.path(), request.method(), request.body()), ("/other", "GET", &b""[..]));
    assert_eq!(request.peer().is_some(), request.view().client().is_some());
    b.engine.respond(id, "other").expect("it waits");
    b.until_heard(two, "other");
    for path in ["/1", "/2", "/3"] {
        b.until("the next is there", |b| b.requests.len() == 1);
        let (id, request) = b.requests.remove(0);
        assert_eq!((request.path(), request.header("host")), (path, Some("h")));
        b.engine.respond(id, Response::text(path).header("X-A", "b")).expect("it waits");
    }
    b.until_heard(one, "/3");
    let bodies: Vec<_> =
        b.heard(one).split("\r\n\r\n").skip(1).map(|s| s[..2].to_owned()).collect();
    assert_eq!(bodies, ["/1", "/2", "/3"]);
    b.until("all are over", |b| b.ended.len() == 4);
    assert!(b.ended.iter().all(|(_, status)| *status == Some(Status::OK)));
}

fn a_request_is_answered_once<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, get("/1") + &get("/2"));
    b.until("it is there", |b| b.requests.len() == 1);
    let first = b.requests.remove(0).0;
    assert_eq!(b.engine.respond(first, "one"), Ok(()));
    assert_eq!(b.engine.respond(first, "again"), Err(Refusal::Stale));
    b.until("the next is there", |b| b.requests.len() == 1);
    // The id names the request, and not the connection that has another one now.
    assert_eq!(b.engine.respond(first, "again"), Err(Refusal::Stale));
    assert_eq!(b.engine.upgrade(first, "raw", ()).unwrap_err().reason, Refusal::Stale);
    let second = b.requests.remove(0).0;
    assert!(second > first && second.number() > first.number());
    b.engine.respond(second, "two").expect("it waits");
    b.until_heard(client, "two");
    assert_eq!(b.heard(client).matches("HTTP/1.1 200").count(), 2);
    // A response that is still made is one, too.
    b.say(client, GET);
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let stream = Response::stream(move |part: &mut windlass_web::Part<'_>| {
        part.write(&[b'x'; 100_000]);
        windlass_web::Flow::More
    });
    b.engine.respond(id, stream).expect("it waits");
    assert_eq!(b.engine.respond(id, "again"), Err(Refusal::Stale));
    b.engine.abort(b.connections()[0]);
    b.until("it is over", |b| b.ended.iter().any(|(over, _)| *over == id));
    assert_eq!(b.engine.respond(id, "again"), Err(Refusal::Stale));
}

fn nothing_is_delivered_from_inside_a_call<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, get("/1") + &get("/2"));
    b.until("it is there", |b| b.requests.len() == 1);
    for _ in 0..20 {
        b.turn(Duration::from_millis(1)); // the second has arrived as well
    }
    let first = b.requests.remove(0).0;
    b.engine.respond(first, "one").expect("it waits");
    b.engine.flush(&mut b.watcher);
    assert!(b.requests.is_empty() && b.ended.is_empty());
    // Its events wait: so the next wait returns, and does not wait for a completion.
    let begin = b.watcher.update_now();
    b.watcher.wait_timeout(&mut b.done, Duration::from_secs(1000)).expect("a wait");
    assert!(b.watcher.update_now() - begin < Duration::from_secs(500));
    b.events();
    assert_eq!((b.requests.len(), b.ended.len()), (1, 1));
    assert!(b.foreign.is_empty(), "{:?}", b.foreign);
}

fn bodies_are_whole_however_they_come<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    let length = "POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789";
    let chunked = "POST /a?b=c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                   4\r\n0123\r\n6\r\n456789\r\n0\r\nX: y\r\n\r\n";
    for whole in [length, chunked] {
        for at in (1..=whole.len()).step_by(7) {
            let (one, two) = whole.split_at(at);
            b.say(client, one.to_owned());
            b.turn(Duration::ZERO);
            b.say(client, two.to_owned());
            b.until("it is there", |b| b.requests.len() == 1);
            let (id, request) = b.requests.remove(0);
            assert_eq!(request.body(), b"0123456789");
            assert_eq!((request.path(), request.target()), ("/a", "/a?b=c"));
            let view = request.view();
            assert_eq!((view.query("b"), view.text().expect("text")), (Some("c"), "0123456789"));
            b.engine.respond(id, ()).expect("it waits");
        }
    }
    b.until("all are over", |b| !b.ended.is_empty() && b.requests.is_empty());
}

fn what_is_no_request_has_no_event_but_one<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new().body(10));
    let big = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n";
    for (bytes, status) in [("GET / HTTP/1.1\r\n\r\n", 400), (big, 413)] {
        let client = b.connect();
        b.say(client, bytes);
        b.until("it is refused", |b| !b.refused.is_empty());
        assert_eq!(b.refused.pop().map(Status::code), Some(status));
        let line = format!("HTTP/1.1 {status} ");
        b.until("it has come", |b| b.heard(client).starts_with(&line));
    }
    assert!(b.requests.is_empty() && b.ended.is_empty());
}

fn limits_are_those_of_an_application<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new().running(1));
    let (one, two) = (b.connect(), b.connect());
    b.say(one, GET);
    b.until("it is there", |b| b.requests.len() == 1);
    b.say(two, GET);
    b.until("it is refused", |b| b.ended.len() == 1);
    assert_eq!(b.ended.pop().map(|(_, status)| status), Some(Some(Status::SERVICE_UNAVAILABLE)));
    let (late, _) = b.requests.pop().expect("that of the other");
    assert_eq!(b.engine.respond(late, "late"), Err(Refusal::Stale));
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    // No answer, though the client has ended its side. A head that does not end, and no request.
    let (begin, slow, idle) = (b.watcher.update_now(), b.connect(), b.connect());
    b.say(slow, "GET / HT");
    b.finish(one);
    assert!(b.until_end(slow).starts_with("HTTP/1.1 408 "));
    assert!(b.until_end(one).starts_with("HTTP/1.1 504 "));
    assert_eq!(b.ended.pop().map(|(_, status)| status), Some(Some(Status::GATEWAY_TIMEOUT)));
    assert_eq!(b.until_end(idle), "");
    assert!(b.watcher.now() - begin >= Duration::from_secs(60));
}

fn what_is_not_the_engines_comes_back<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, GET);
    let timer = Op::timer(Duration::from_millis(1)).token(7);
    b.watcher.submit(timer).expect("a timer");
    b.until("it has come back", |b| !b.foreign.is_empty() && !b.requests.is_empty());
    assert_eq!(b.foreign.pop().map(|completion| completion.token), Some(7));
    // The other way to take events out gives it back as an event.
    b.watcher.submit(Op::nop().token(8)).expect("a nop");
    let id = b.requests.remove(0).0;
    b.engine.respond(id, "page").expect("it waits");
    b.engine.flush(&mut b.watcher);
    let (mut done, mut tokens, mut ended) = (Completions::new(), Vec::new(), 0);
    while tokens.is_empty() || ended == 0 {
        b.watcher.wait(&mut done).expect("a wait");
        let mut batch = done.visit();
        while let Some(event) = b.engine.next_event_in(&mut b.watcher, &mut batch) {
            match event {
                Event::Foreign(completion) => {
                    let rest = b.clients.engine.complete(&mut b.watcher, completion);
                    tokens.extend(rest.map(|completion| completion.token));
                }
                Event::Ended { .. } => ended += 1,
                event => panic!("{event:?}"),
            }
        }
        b.engine.flush(&mut b.watcher);
    }
    assert_eq!(tokens, [8]);
    b.until_heard(client, "page");
}

fn an_upgrade_makes_a_raw_connection<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, get("/1") + &upgrade("/raw") + "early");
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    b.engine.respond(id, "one").expect("it waits");
    b.until("the next is there", |b| b.requests.len() == 1);
    let (id, request) = b.requests.remove(0);
    assert!(request.offers("RAW") && !request.offers("ra"));
    let to = Switching::to("raw").header("X-A", "b");
    let connection = b.engine.upgrade(id, to, ()).expect("it is offered");
    assert_eq!(connection, request.connection());
    assert_eq!(b.engine.peer(connection), request.peer());
    assert_eq!(b.engine.state(connection), Some(&mut ()));
    b.engine.write(connection, " hello").expect("it is raw");
    b.until("it has come", |b| b.raw(connection).data == b"early");
    b.say(client, " late");
    b.until("it has come", |b| b.raw(connection).data == b"early late");
    b.until_heard(client, " hello");
    let heard = b.heard(client);
    let (_, behind) = heard.split_once("one").expect("the first");
    assert!(behind.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{heard:?}");
    assert!(behind.contains("\r\nX-A: b\r\n") && behind.ends_with("\r\n\r\n hello"), "{heard:?}");
    // And out of the engine, with what was read ahead.
    b.engine.unread(connection, "again").expect("it is raw");
    b.engine.detach(connection).expect("it may leave");
    b.until("it has left", |b| b.raw(connection).detached.is_some());
    let (handle, undelivered) = b.raw(connection).detached.take().expect("right from above");
    assert_eq!(undelivered, b"again");
    let owner = b.attach(handle);
    b.say(owner, "!");
    b.until_heard(client, "hello!");
    assert_eq!(b.engine.len(), 0);
}

fn the_head_of_an_upgrade_has_one_date<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, upgrade("/raw"));
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let dated = Switching::to("raw").header("date", "today").header("X-A", "b");
    b.engine.upgrade(id, dated, ()).expect("it is offered");
    b.until_heard(client, "\r\n\r\n");
    let heard = b.heard(client).to_lowercase();
    assert!(heard.contains("\r\nx-a: b\r\n"), "{heard:?}");
    assert_eq!(heard.matches("\r\ndate: ").count(), 1, "{heard:?}");
}

fn a_refused_upgrade_leaves_the_request<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, upgrade("/raw"));
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let refused = b.engine.upgrade(id, "other", ()).unwrap_err();
    assert_eq!(refused.reason, Refusal::NotOffered);
    let refused = b.engine.upgrade(id, Switching::tunnel(), ()).unwrap_err();
    assert_eq!(refused.reason, Refusal::NotOffered);
    let offer = Response::from(Status::UPGRADE_REQUIRED).header("Upgrade", "other");
    b.engine.respond(id, offer).expect("it still waits");
    b.until("it has come", |b| b.heard(client).contains("Upgrade: other\r\n"));
    b.say(client, upgrade("/raw"));
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let broken = Switching::to("raw").header("X-A", "b\r\nc: d");
    assert_eq!(b.engine.upgrade(id, broken, ()).unwrap_err().reason, Refusal::Invalid);
    b.until("it has come", |b| b.heard(client).contains("HTTP/1.1 500 "));
    let heard = b.heard(client);
    assert!(!heard.contains("c: d") && !heard.contains("HTTP/1.1 101"), "{heard:?}");
    // A CONNECT has its tunnel.
    let client = b.connect();
    b.say(client, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nearly");
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let raw = b.engine.upgrade(id, Switching::tunnel(), ()).expect("it is asked for");
    b.until("it has come", |b| b.raw(raw).data == b"early");
}

fn verbs_of_raw_connections_leave_http_alone<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, GET);
    b.until("it is there", |b| b.requests.len() == 1);
    let (id, connection) = (b.requests[0].0, b.requests[0].1.connection());
    let unsupported = windlass_serve::Refusal::Unsupported;
    assert_eq!(b.engine.write(connection, "x").unwrap_err().reason, unsupported);
    assert_eq!(b.engine.unread(connection, "x").unwrap_err().reason, unsupported);
    assert_eq!(b.engine.detach(connection), Err(unsupported));
    assert_eq!(b.engine.begin_http(connection, "x").unwrap_err().reason, Refusal::Kind);
    assert!(!b.engine.pause(connection) && !b.engine.shutdown(connection));
    assert!(b.engine.state(connection).is_none() && b.engine.peer(connection).is_none());
    b.engine.respond(id, "page").expect("it waits");
    b.until_heard(client, "page");
}

fn a_client_that_ends_before_the_upgrade<T: Harness>() {
    for detaches in [false, true] {
        let mut b = Bench::new::<T>(Limits::new());
        let client = b.connect();
        b.say(client, upgrade("/raw") + "early");
        b.finish(client);
        b.until("it is there", |b| b.requests.len() == 1);
        for _ in 0..50 {
            b.turn(Duration::ZERO); // the end has arrived, too
        }
        let id = b.requests.remove(0).0;
        let raw = b.engine.upgrade(id, "raw", ()).expect("it is offered");
        if detaches {
            b.engine.detach(raw).expect("it may leave");
            b.until("it has left", |b| b.raw(raw).detached.is_some());
            let mut all = std::mem::take(&mut b.raw(raw).data);
            all.extend(b.raw(raw).detached.take().expect("right from above").1);
            assert_eq!(all, b"early");
        } else {
            b.until("all has come", |b| b.raw(raw).eof == 1);
            assert_eq!(b.raw(raw).data, b"early");
            b.engine.write(raw, "bye").expect("it may hear");
            b.engine.close(raw);
            assert!(b.until_end(client).ends_with("\r\n\r\nbye"));
            b.until("it is over", |b| b.raw(raw).closed.is_some());
            assert_eq!(b.raw(raw).closed, Some(Cause::Closed));
        }
    }
}

fn http_behind_the_end_of_a_client_ends_with_its_answers<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new().keep_alive(Duration::from_secs(3600)));
    let client = b.connect();
    b.say(client, upgrade("/raw"));
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let raw = b.engine.upgrade(id, "raw", ()).expect("it is offered");
    b.say(client, get("/1") + &get("/2"));
    b.finish(client);
    b.until("all has come", |b| b.raw(raw).eof == 1);
    let requests = std::mem::take(&mut b.raw(raw).data);
    b.engine.begin_http(raw, requests).expect("it is raw");
    for page in ["one", "two"] {
        b.until("a request is there", |b| b.requests.len() == 1);
        let id = b.requests.remove(0).0;
        b.engine.respond(id, page).expect("it waits");
    }
    let heard = b.until_end(client);
    assert!(heard.contains("\r\n\r\noneHTTP/1.1 200 ") && heard.ends_with("two"), "{heard:?}");
}

fn a_client_that_goes_ends_its_request<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let client = b.connect();
    b.say(client, get("/1") + &get("/2"));
    b.until("it is there", |b| b.requests.len() == 1);
    b.reset(client);
    let first = b.requests.remove(0).0;
    b.until("it is over", |b| b.ended.len() == 1);
    assert_eq!(b.ended, [(first, None)]);
    assert_eq!(b.engine.respond(first, "late"), Err(Refusal::Stale));
    assert!(b.requests.is_empty());
}

fn http_begins_on_a_socket_of_the_program<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    // A connection that another engine had, with what that one has read.
    let client = b.connect();
    b.say(client, upgrade("/raw") + &get("/1") + "GET /2");
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let raw = b.engine.upgrade(id, "raw", ()).expect("it is offered");
    b.engine.detach(raw).expect("it may leave");
    b.until("it has left", |b| b.raw(raw).detached.is_some());
    let (handle, mut rest) = b.raw(raw).detached.take().expect("right from above");
    let mut all = std::mem::take(&mut b.raw(raw).data);
    all.append(&mut rest);
    b.engine.attach(handle, all).expect("few connections");
    b.until("the first is there", |b| b.requests.len() == 1);
    let (id, request) = b.requests.remove(0);
    assert_eq!(request.path(), "/1");
    b.engine.respond(id, "one").expect("it waits");
    b.until_heard(client, "one");
    b.say(client, " HTTP/1.1\r\nHost: h\r\n\r\n");
    b.until("the next is there", |b| b.requests.len() == 1);
    let (id, request) = b.requests.remove(0);
    assert_eq!(request.path(), "/2");
    b.engine.respond(id, "two").expect("it waits");
    b.until_heard(client, "two");
}

/// A client of HTTP/1.0 takes an end of file for the end of a body that is made while it is sent.
fn a_body_that_ends_with_the_connection_is_whole_or_reset<T: Harness>() {
    let old = "GET / HTTP/1.0\r\n\r\n";
    let mut b = Bench::new::<T>(Limits::new());
    // All of it is sent that there is so far, when the program ends the connection.
    let client = b.connect();
    b.say(client, old);
    let id = b.request();
    let mut has_begun = false;
    let stream = Response::stream(move |part: &mut Part<'_>| {
        if !std::mem::replace(&mut has_begun, true) {
            part.write(b"a part");
        }
        Flow::Wait
    });
    b.engine.respond(id, stream).expect("it waits");
    b.until("the part has come", |b| b.heard(client).ends_with("a part"));
    let connection = b.connections()[0];
    assert!(b.engine.abort(connection));
    b.until_end(client);
    assert!(!b.has_eof(client), "it was not whole");
    // The client has ended its side, so that the server closes at once.
    let client = b.connect();
    b.say(client, old);
    b.finish(client);
    let id = b.request();
    let (mut writer, response) = Response::writer();
    b.engine.respond(id, response).expect("it waits");
    writer.try_write(b"a part").expect("there is room");
    b.until("the part has come", |b| b.heard(client).ends_with("a part"));
    writer.try_write(b", and the end").expect("there is room");
    writer.end();
    let heard = b.until_end(client);
    assert!(b.has_eof(client), "it is whole");
    assert!(heard.ends_with("a part, and the end"), "{heard}");
}

fn a_shutdown_answers_what_waits<T: Harness>() {
    let mut b = Bench::new::<T>(Limits::new());
    let (waits, idle, raw) = (b.connect(), b.connect(), b.connect());
    b.say(raw, upgrade("/raw"));
    b.until("it is there", |b| b.requests.len() == 1);
    let id = b.requests.remove(0).0;
    let connection = b.engine.upgrade(id, "raw", ()).expect("it is offered");
    b.say(waits, GET);
    b.until("it is there", |b| b.requests.len() == 1);
    b.engine.stop(&mut b.watcher);
    b.until_end(idle);
    b.finish(idle);
    let id = b.requests.remove(0).0;
    b.engine.respond(id, "last").expect("it waits");
    let heard = b.until_end(waits);
    assert!(heard.contains("Connection: close\r\n") && heard.ends_with("last"), "{heard:?}");
    b.finish(waits);
    // The raw one is the program's.
    b.until("the others are over", |b| b.engine.len() == 1);
    b.engine.write(connection, "bye").expect("it is raw");
    b.engine.close(connection);
    assert!(b.until_end(raw).ends_with("\r\n\r\nbye"));
    b.finish(raw);
    b.until("all are over", |b| b.engine.is_empty());
}

fn random_walks_keep_every_byte<T: Harness>() {
    walks::run::<T>(if T::VIRTUAL { 60 } else { 15 });
}

/// What `Data` events have.
fn bytes(data: &Buf) -> Vec<u8> {
    data.to_vec()
}
