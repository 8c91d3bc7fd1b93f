//! The clocks of each phase, in virtual time: none comes early, none much late, and none ends the
//! next phase.

use std::time::{Duration, Instant};

use windlass_web::body::{Demand, Receive, Resume};
use windlass_web::windlass::{Buf, Source, Watcher, sim::Sim};
use windlass_web::{App, Error, Limits, Request, Response};

use crate::bench::Bench;

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn limits() -> Limits {
    let limits = Limits::new().head(10 * SECOND).body_rate(500, 20 * SECOND);
    limits.answer(30 * SECOND).keep_alive(60 * SECOND)
}

fn app(limits: Limits) -> App {
    App::new()
        .limits(limits)
        .get("/", |_, _| "root")
        .post("/body", |_, q| q.body().map(<[u8]>::len).map(|len| format!("{len} bytes")))
        .post("/early", |_, _| "early")
        .at_head()
        .get("/job", |_, q| q.blocking(|| (), |_, ()| "done"))
}

/// Jobs take up to this time in each of two steps.
fn bench(limits: Limits, jobs: Duration) -> Bench {
    let sim = Sim::new(1);
    sim.set_job_time(jobs);
    Bench::on(Watcher::simulated(&sim), None, app(limits))
}

/// A bench, a client of it, and the time.
fn start(limits: Limits) -> (Bench, Source, Instant) {
    let mut b = bench(limits, SECOND / 1000);
    let client = b.connect();
    b.run_for(SECOND / 1000);
    let now = b.now();
    (b, client, now)
}

/// Never early, and late by at most a sixteenth.
#[track_caller]
fn at_its_time(b: &mut Bench, start: Instant, span: Duration) {
    let took = b.now() - start;
    assert!(took >= span, "{took:?} is before {span:?}");
    let late = (span / 16).max(Duration::from_millis(100)) + Duration::from_millis(1);
    assert!(took <= span + late, "{took:?} is long after {span:?}");
}

/// Says a piece after each step of time until the connection has ended, or `most` times.
fn drip(b: &mut Bench, client: Source, piece: &str, step: Duration, most: usize) {
    for _ in 0..most {
        if b.is_over(client) {
            return;
        }
        b.say(client, piece.as_bytes().to_vec());
        b.run_for(step);
    }
}

#[test]
fn a_head_has_its_time_from_its_first_byte_on() {
    let (mut b, client, _) = start(limits());
    b.run_for(50 * SECOND); // less than the idle time
    let start = b.now();
    b.say(client, "GET / HTTP/1.1\r\n");
    let end = start + 30 * SECOND;
    while !b.is_over(client) && b.now() < end {
        drip(&mut b, client, "X: y\r\n", SECOND / 10, 1);
    }
    at_its_time(&mut b, start, 10 * SECOND);
    let answer = b.take(client);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("Connection: close"));
}

#[test]
fn a_head_behind_another_request_has_its_time() {
    for first in [GET, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let (mut b, client, start) = start(limits());
        b.say(client, format!("{first}GET / HT"));
        let answer = b.end(client);
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 408 ").count(), 1, "{answer}");
        at_its_time(&mut b, start, 10 * SECOND);
    }
}

#[test]
fn the_time_of_a_head_is_not_that_of_the_next_one() {
    let (mut b, client, _) = start(limits());
    for _ in 0..5 {
        b.say(client, "GET / HT");
        b.run_for(9 * SECOND);
        b.ask(client, "TP/1.1\r\nHost: a\r\n\r\n", "root");
    }
    let start = b.now();
    assert_eq!(b.end(client), "", "it was idle");
    at_its_time(&mut b, start, 60 * SECOND);
}

/// Old clients send one behind a body.
#[test]
fn an_empty_line_is_no_request_that_is_late() {
    let (mut b, client, _) = start(limits());
    b.ask(client, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb\r\n", "1 bytes");
    b.run_for(30 * SECOND);
    b.say(client, "GET");
    let start = b.now();
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    at_its_time(&mut b, start, 10 * SECOND);
    let client = b.connect();
    b.ask(client, GET.to_owned() + "\r\n", "root");
    let start = b.now();
    assert_eq!(b.end(client), "", "it was idle");
    at_its_time(&mut b, start, 60 * SECOND);
}

#[test]
fn a_body_keeps_its_rate_or_is_late() {
    let head = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    // 510 bytes a second for five minutes.
    let (mut b, client, _) = start(limits());
    b.say(client, head);
    drip(&mut b, client, &"b".repeat(51), SECOND / 10, 3000);
    assert!(!b.is_over(client) && b.heard(client).is_empty());
    // 400 bytes a second: of each second, a fifth is lost.
    let (mut b, client, start) = start(limits());
    b.say(client, head);
    drip(&mut b, client, &"b".repeat(40), SECOND / 10, 3000);
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let took = b.now() - start;
    assert!(took >= 100 * SECOND && took <= 113 * SECOND, "{took:?}");
}

#[test]
fn a_body_that_stops_is_late() {
    let (mut b, client, start) = start(limits());
    b.say(client, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1234");
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    at_its_time(&mut b, start, 20 * SECOND);
}

#[test]
fn a_rest_that_is_skipped_has_the_time_of_a_body() {
    let (mut b, client, start) = start(limits());
    let answer =
        b.ask(client, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1", "early");
    assert!(!answer.contains("Connection: close"));
    assert_eq!(b.end(client), "", "its answer has been given");
    at_its_time(&mut b, start, 20 * SECOND);
    // In time, the next request has times of its own.
    let client = b.connect();
    b.ask(client, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1", "early");
    b.run_for(15 * SECOND);
    b.say(client, "23456789");
    b.run_for(30 * SECOND);
    b.ask(client, GET, "root");
}

#[test]
fn the_time_of_a_body_is_not_that_of_the_answer() {
    // The head takes 9 of 10 seconds, the body 19 of 20.
    let (mut b, client, _) = start(limits().answer(1000 * SECOND));
    b.say(client, "POST /body HT");
    b.run_for(9 * SECOND);
    b.say(client, "TP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    b.run_for(19 * SECOND);
    b.ask(client, "2", "2 bytes");
    b.run_for(50 * SECOND);
    b.ask(client, GET, "root");
}

#[test]
fn an_answer_has_its_time_and_a_late_value_is_dropped() {
    let mut b = bench(limits(), 10_000 * SECOND);
    for ends in [false, true] {
        let client = b.connect();
        let start = b.now();
        b.say(client, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n");
        // More than it reads ahead: its reads are stopped.
        b.say(client, vec![b'G'; 100_000]);
        if ends {
            b.finish(client);
        }
        b.until("an answer has come", |b| b.heard(client).ends_with("Gateway Timeout"));
        at_its_time(&mut b, start, 30 * SECOND);
        let answer = b.end(client);
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    // A job that is in time, and a request after it.
    let mut b = bench(limits(), 14 * SECOND);
    let client = b.connect();
    for _ in 0..10 {
        b.ask(client, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n", "done");
        b.run_for(20 * SECOND);
        b.ask(client, GET, "root");
    }
}

#[test]
fn an_answer_may_take_longer_than_a_connection_is_kept() {
    let mut b = bench(limits().keep_alive(2 * SECOND).answer(1000 * SECOND), 400 * SECOND);
    let client = b.connect();
    let start = b.now();
    b.ask(client, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n", "done");
    assert!(b.now() - start > 10 * SECOND, "the job took long");
    let start = b.now();
    assert_eq!(b.end(client), "");
    at_its_time(&mut b, start, 2 * SECOND);
}

/// The idle time of a connection ends no head and no body.
#[test]
fn a_request_may_take_longer_than_a_connection_is_kept() {
    let (mut b, client, start) = start(limits().keep_alive(SECOND));
    b.say(client, "GET / HT");
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    at_its_time(&mut b, start, 10 * SECOND);
    let client = b.connect();
    let start = b.now();
    b.say(client, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1");
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    at_its_time(&mut b, start, 20 * SECOND);
}

#[test]
fn a_connection_is_kept_for_its_time_and_its_number_of_requests() {
    let (mut b, client, start) = start(limits().requests(3));
    assert_eq!(b.end(client), "", "no request has come");
    at_its_time(&mut b, start, 60 * SECOND);
    let client = b.connect();
    for last in [false, false, true] {
        let answer = b.ask(client, GET, "root");
        assert_eq!(answer.contains("Connection: close"), last, "{answer}");
        b.run_for(SECOND);
    }
    assert_eq!(b.end(client), "");
    // Those behind the last one are not answered.
    let client = b.connect();
    let answer = b.ask_last(client, GET.repeat(5));
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 3, "{answer}");
    assert_eq!(answer.matches("Connection: close").count(), 1, "{answer}");
}

/// Its peer does not read: the stall of the output ends it, and no clock of a request.
#[test]
fn an_answer_that_is_not_read_stalls() {
    let stall = windlass_web::serve::Limits::new().write_stall(40 * SECOND);
    let app = app(limits()).serve_limits(stall).get("/much", |_, _| "x".repeat(10 << 20));
    let sim = Sim::new(1);
    let mut b = Bench::on(Watcher::simulated(&sim), None, app);
    let client = b.connect_deaf();
    b.say(client, "GET /much HTTP/1.1\r\nHost: a\r\n\r\n");
    b.run_for(39 * SECOND);
    assert_eq!(b.server.connections(), 1);
    b.run_for(6 * SECOND);
    assert_eq!(b.server.connections(), 0);
}

/// Pauses at its first part.
struct Pauses(bool);

impl Receive<Vec<Resume>> for Pauses {
    fn begin(&mut self, state: &mut Vec<Resume>, resume: Resume) {
        state.push(resume);
    }
    fn data(&mut self, _: &mut Vec<Resume>, _: Buf) -> Result<Demand, Error> {
        let pauses = std::mem::replace(&mut self.0, false);
        Ok(if pauses { Demand::Pause } else { Demand::More })
    }
    fn end(
        self: Box<Self>,
        _: &mut Vec<Resume>,
        _: &mut Request<'_, Vec<Resume>>,
    ) -> Result<Response, Error> {
        Ok("received".into())
    }
}

#[test]
fn a_pause_does_not_count_for_the_time_of_a_body() {
    let app = App::with(|_| Vec::new())
        .limits(limits())
        .post("/", |_, q| q.receive(Pauses(true)))
        .at_head();
    let mut b = Bench::on(Watcher::simulated(&Sim::new(1)), None, app);
    let client = b.connect();
    b.say(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    b.run_for(12 * SECOND);
    b.say(client, "1");
    b.run_for(300 * SECOND);
    assert_eq!(b.heard(client), "", "it is paused");
    b.server.state()[0].resume();
    // Of 20 seconds, 12 are gone.
    let start = b.now();
    let answer = b.end(client);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let took = b.now() - start;
    assert!(took >= 7 * SECOND && took <= 10 * SECOND, "{took:?}");
}
