//! Each status that the server answers with itself: shaped by `on_error`, and seen by `after`.

use std::time::Duration;

use windlass_web::windlass::{Watcher, sim::Sim};
use windlass_web::{App, Limits, Response};

use crate::bench::Bench;

const SECOND: Duration = Duration::from_secs(1);

fn bench() -> Bench {
    let limits = Limits::new().head_size(1000, 10).body(100).running(0).answer(5 * SECOND);
    let app = App::new()
        .limits(limits.line(200))
        .get("/", |_, _| "root")
        .post("/body", |_, q| q.body().map(<[u8]>::len).map(|len| len.to_string()))
        .post("/form", |_, q| q.form().map(|form| form.iter().count().to_string()))
        .get("/job", |_, q| q.blocking(|| (), |_, ()| "done"))
        .on_error(|_, _, error| Response::text(format!("<{}>", error.status().code())))
        .after(|_, _, head| head.set("X-After", "seen"));
    Bench::on(Watcher::simulated(&Sim::new(1)), None, app)
}

#[test]
fn each_status_is_shaped_and_seen() {
    let mut b = bench();
    let many = "A: b\r\n".repeat(20);
    let (long, large) = ("a".repeat(300), format!("A: {}\r\n", "b".repeat(1000)));
    for (status, request) in [
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET /\r\n\r\n".to_owned()),
        (400, "\u{16}\u{3}\u{1}".to_owned()),
        (404, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (405, "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (408, "GET / HT".to_owned()),
        (408, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1".to_owned()),
        (413, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n".to_owned()),
        (
            413,
            "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n".to_owned(),
        ),
        (414, format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        (415, "POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na".to_owned()),
        (417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n".to_owned()),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{large}\r\n")),
        (501, "BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (501, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned()),
        (503, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned()),
    ] {
        for pieces in [request.len(), 1] {
            let client = b.connect();
            for piece in request.as_bytes().chunks(pieces) {
                b.say(client, piece.to_vec());
                b.run_for(Duration::from_micros(10));
            }
            let answer = b.ask(client, "", &format!("<{status}>"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
            assert!(answer.contains("X-After: seen"), "{request}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request}: {answer}");
            b.reset(client);
        }
    }
}

#[test]
fn a_late_answer_is_shaped_and_seen() {
    let sim = Sim::new(1);
    sim.set_job_time(1000 * SECOND);
    let app = App::new()
        .limits(Limits::new().answer(5 * SECOND))
        .get("/job", |_, q| q.blocking(|| (), |_, ()| "done"))
        .on_error(|_, request, error| {
            let path = request.map_or("none", |request| request.path());
            Response::text(format!("<{} {path}>", error.status().code()))
        })
        .after(|_, _, head| head.set("X-After", "seen"));
    let mut b = Bench::on(Watcher::simulated(&sim), None, app);
    let client = b.connect();
    let answer = b.ask(client, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n", "<504 /job>");
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("X-After: seen"), "{answer}");
}
