//! Long pipelines, and the end of a server while requests run.

use std::time::Duration;

use crate::bench::{Bench, Harness, Simulated};
use windlass_web::{App, Flow, Limits, Part, Response};

crate::every_driver! {
    a_pipeline_of_chunked_requests_is_answered
    a_stream_that_outlives_the_stop_ends_its_connection
    the_limit_of_a_body_is_the_same_at_every_cut
}

fn a_pipeline_of_chunked_requests_is_answered<T: Harness>() {
    const MANY: usize = 2000;
    let mut b = Bench::new::<T>(App::new().post("/", |_, _| ""));
    let client = b.connect();
    const ONE: &str = "POST / HTTP/1.1\r\nHost:a\r\nTransfer-Encoding:chunked\r\n\r\n0\r\n\r\n";
    b.say(client, ONE.repeat(MANY) + "POST / HTTP/1.1\r\nHost:a\r\nConnection:close\r\n\r\n");
    let answers = b.end(client);
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), MANY + 1);
}

fn a_stream_that_outlives_the_stop_ends_its_connection<T: Harness>() {
    let (tell, told) = std::sync::mpsc::channel();
    let app = App::new().get("/", move |_, _| {
        let (mut writer, response) = Response::writer();
        writer.try_write(b"first ").expect("there is room");
        tell.send(writer).expect("the test listens");
        response
    });
    const LONG: Duration = Duration::from_secs(3600);
    let limits = Limits::new().keep_alive(LONG);
    let mut b = Bench::new::<T>(app.grace(LONG).limits(limits));
    let client = b.connect();
    b.ask(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "first \r\n");
    b.server.stop(&mut b.watcher);
    b.run_for(Duration::from_millis(20));
    told.recv().expect("it was sent").end();
    assert_eq!(b.end(client), "0\r\n\r\n");
    b.until("it is over", |b| b.server.is_over());
}

fn the_limit_of_a_body_is_the_same_at_every_cut<T: Harness>() {
    let app = App::new().post("/", |_, _| "early").at_head().limits(Limits::new().body(2));
    let mut b = Bench::new::<T>(app);
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    for at in [request.len(), request.len() - 3, request.len() - 1] {
        let client = b.connect();
        b.say(client, &request.as_bytes()[..at]);
        b.run_for(Duration::from_millis(5));
        let answer = b.ask(client, &request.as_bytes()[at..], "early");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

#[test]
fn streams_that_wait_end_one_after_the_other() {
    // So many are kept behind a stream while the connection is read.
    const KEPT: usize = 600;
    let test = || {
        let events = |part: &mut Part<'_>| match part.has_peer_ended() {
            true => Flow::End,
            false => Flow::Wait,
        };
        let app = App::new().get("/", move |_, _| Response::stream(events));
        let mut b = Bench::new::<Simulated>(app);
        let client = b.connect();
        b.say(client, "GET / HTTP/1.1\r\nHost:a\r\n\r\n".repeat(KEPT));
        b.run_for(Duration::from_millis(10));
        b.finish(client);
        let answers = b.end(client);
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), KEPT);
    };
    // A loop of a program may have no more.
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(test);
    thread.expect("a thread").join().expect("no panic");
}
