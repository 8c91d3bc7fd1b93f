//! Shutdowns in each stage of a connection: what is answered, how it ends, and after which time.
//! The time is that of a simulation.

use std::time::Duration;

use crate::common;
use crate::common::real::Real;
use crate::common::simulated::{Bench, Simulated};
use crate::common::{End, Net, count, statuses, text};
use windlass::DriverKind;
use windlass_web::{App, Flow, Part, Response};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GRACE: Duration = Duration::from_secs(10);
/// What an end may take besides: the clocks are late by a sixteenth, and the end of a connection
/// waits for its peer for 2 s.
const SLACK: Duration = Duration::from_secs(4);

fn app() -> App {
    App::new()
        .get("/", |_, _| "Hello")
        .post("/", |_, q| q.body().map(<[u8]>::to_vec))
        .get("/job", |_, q| q.blocking(|| "done", |_, text| text))
        .get("/stream", |_, _| {
            let mut left = 100;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(&[b'x'; 10_000]);
                left -= 1;
                if left > 0 { Flow::More } else { Flow::End }
            })
        })
        .get("/large", |_, _| Response::bytes(vec![b'x'; 4 << 20]))
        .grace(GRACE)
}

/// A connection that has said this when the shutdown begins.
fn stop_behind(said: &str, hears: bool) -> (Bench, usize) {
    let Simulated(mut bench) = Simulated::start(app());
    let client = bench.connect_with(hears);
    if !said.is_empty() {
        bench.say(client, said.as_bytes());
    }
    bench.run_for(Duration::from_millis(100));
    bench.stop();
    (bench, client)
}

/// Runs until the server is over, and checks how long that takes.
#[track_caller]
fn is_over_within(bench: &mut Bench, most: Duration) {
    let start = bench.now();
    bench.until_over();
    let took = bench.now() - start;
    assert!(took <= most, "{took:?}");
}

#[test]
fn connections_without_a_request_end_at_once() {
    for (said, answers) in [("", 0), (GET, 1), ("\r\n", 0), (&*format!("{GET}\r\n"), 1)] {
        let (mut bench, client) = stop_behind(said, true);
        assert_eq!(bench.end(client), End::Eof, "{said:?}");
        assert_eq!(count(bench.heard(client)), answers, "{said:?}");
        is_over_within(&mut bench, Duration::from_secs(1));
    }
}

/// A request that has begun is answered, with the word that it is the last one.
#[test]
fn a_request_that_has_begun_is_answered() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    for request in [GET, post] {
        for cut in 1..request.len() {
            let (mut bench, client) = stop_behind(&request[..cut], true);
            bench.say(client, format!("{}{GET}", &request[cut..]).as_bytes());
            assert_eq!(bench.end(client), End::Eof);
            let heard = text(bench.heard(client));
            assert_eq!(statuses(&heard), [200], "{cut}: {heard}");
            assert!(heard.contains("\r\nConnection: close\r\n"), "{cut}: {heard}");
            is_over_within(&mut bench, Duration::from_secs(1));
        }
    }
}

/// One that does not come holds the shutdown up for its grace, or for its own limit.
#[test]
fn a_request_that_stops_ends_within_the_grace() {
    for said in [
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\n\
        Content-Length: 5\r\n\r\nhe",
    ] {
        let (mut bench, _) = stop_behind(said, true);
        is_over_within(&mut bench, GRACE + SLACK);
    }
}

#[test]
fn answers_that_are_on_their_way_arrive() {
    for (path, len) in [("/job", 4), ("/stream", 1_000_000), ("/large", 4 << 20)] {
        let Simulated(mut bench) = Simulated::start(app());
        let client = bench.connect_with(true);
        bench.say(client, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        // One turn after the other, until the request is there.
        while bench.heard(client).is_empty() && path != "/job" {
            bench.turn(Duration::from_millis(1));
        }
        bench.turn(Duration::ZERO);
        bench.stop();
        assert_eq!(bench.end(client), End::Eof, "{path}");
        let heard = text(bench.heard(client));
        assert!(path == "/job" && heard.is_empty() || heard.len() > len, "{path}");
        is_over_within(&mut bench, GRACE);
    }
}

/// A client that does not read holds the shutdown up for its grace and a close. It gets no end that
/// looks like that of a whole answer.
#[test]
fn a_slow_reader_is_reset_behind_the_grace() {
    for path in ["/stream", "/large"] {
        let (mut bench, client) =
            stop_behind(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), false);
        // Behind the grace, its output has the time of a close: `Limits::close`.
        is_over_within(&mut bench, GRACE + Duration::from_secs(10) + SLACK);
        bench.listen(client);
        bench.run_for(Duration::from_secs(1));
        assert!(count(bench.heard(client)) <= 1);
        assert!(bench.heard(client).len() < 1_000_000, "{path}: it was whole");
    }
}

/// A pipeline that waits for its client ends behind the answers that have begun.
#[test]
fn a_pipeline_that_waits_ends_with_its_last_answer() {
    let pipeline = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20);
    let (mut bench, client) = stop_behind(&pipeline, false);
    bench.listen(client);
    assert_eq!(bench.end(client), End::Eof);
    let heard = text(bench.heard(client));
    let statuses = statuses(&heard);
    assert!((1..20).contains(&statuses.len()), "{} answers", statuses.len());
    assert!(heard.ends_with("\r\n0\r\n\r\n"), "the last one is whole");
    is_over_within(&mut bench, GRACE);
}

/// A pipeline that nobody reads ends with its time for a write that stalls.
#[test]
fn a_pipeline_that_nobody_reads_stalls() {
    let Simulated(mut bench) = Simulated::start(app());
    let client = bench.connect_with(false);
    bench.say(client, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20).as_bytes());
    bench.run_for(Duration::from_secs(25));
    let other = bench.connect_with(true);
    bench.say(other, GET.as_bytes());
    bench.finish(other);
    assert_eq!(bench.end(other), End::Eof);
    bench.run_for(Duration::from_secs(15));
    bench.listen(client);
    assert_eq!(bench.end(client), End::Reset);
    assert!(bench.heard(client).len() < 1_000_000);
}

/// The report names a connection whose answer was not all sent, on every driver.
#[cfg(target_os = "linux")]
#[test]
fn a_report_names_what_was_not_sent() {
    for kind in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
        let app = App::new()
            .get("/", |_, _| "Hello")
            .get("/large", |_, _| Response::bytes(vec![b'x'; 32 << 20]))
            .grace(Duration::from_millis(200))
            .serve_limits(windlass_serve::Limits::new().close(Duration::from_millis(200)));
        let server = Real::with(kind, app);
        // Idle, silent, half a head, and one that does not read.
        let mut clients: Vec<_> = (0..4).map(|_| common::real::client(server.address())).collect();
        for (client, said) in clients.iter_mut().zip([
            GET,
            "",
            "GET / HT",
            "GET /large HTTP/1.1\r\n\
            Host: a\r\n\r\n",
        ]) {
            std::io::Write::write_all(client, said.as_bytes()).expect("a write");
        }
        for at in [0, 3] {
            let first = common::real::read(&mut clients[at], &mut Vec::new(), 1);
            assert_eq!(first, None, "an answer begins");
        }
        let report = server.stop();
        assert_eq!(report.unfinished.len(), 1, "{kind:?}: {:?}", report.unfinished);
        assert!(report.unfinished[0].unsent > 0, "{kind:?}: {:?}", report.unfinished);
        assert_eq!(report.panics, 0, "{kind:?}");
        drop(clients);
    }
}

/// A client of HTTP/1.0 takes an end of file for the end of the response.
#[test]
fn a_stream_that_is_not_whole_behind_the_grace_is_reset() {
    let endless = || {
        App::new()
            .get("/", |_, _| {
                Response::stream(|part: &mut Part<'_>| {
                    part.write(&[b'x'; 10_000]);
                    Flow::More
                })
            })
            .grace(GRACE)
    };
    for version in ["1.0", "1.1"] {
        let Simulated(mut bench) = Simulated::start(endless());
        let client = bench.connect_with(false);
        bench.say(client, format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n").as_bytes());
        bench.run_for(Duration::from_secs(1));
        bench.stop();
        bench.run_for(GRACE + SLACK);
        bench.listen(client);
        assert_eq!(bench.end(client), End::Reset, "{version}");
        is_over_within(&mut bench, Duration::from_secs(1));
    }
}

/// What waits for another thread is told so, and is no end of file without an answer.
#[test]
fn a_request_that_waits_behind_the_grace_is_a_503() {
    let (send, kept) = std::sync::mpsc::channel();
    let app = App::new().get("/", move |_, _| {
        let (later, response) = Response::later();
        send.send(later).expect("the test keeps it");
        response
    });
    let Simulated(mut bench) = Simulated::start(app.grace(GRACE));
    let client = bench.connect_with(true);
    bench.say(client, GET.as_bytes());
    bench.run_for(Duration::from_secs(1));
    bench.stop();
    assert_eq!(bench.end(client), End::Eof);
    let heard = text(bench.heard(client));
    assert_eq!(statuses(&heard), [503], "{heard}");
    assert!(kept.recv().expect("it was asked").respond("too late").is_err());
    is_over_within(&mut bench, SLACK);
}

/// All that the response has so far is sent: no output waits that would make the end a reset.
#[test]
fn a_stream_that_waits_behind_the_grace_is_reset() {
    let app = App::new().get("/", |_, _| {
        let mut has_begun = false;
        Response::stream(move |part: &mut Part<'_>| {
            if !std::mem::replace(&mut has_begun, true) {
                part.write(b"a part");
            }
            Flow::Wait
        })
    });
    let Simulated(mut bench) = Simulated::start(app.grace(GRACE));
    let client = bench.connect_with(true);
    bench.say(client, b"GET / HTTP/1.0\r\n\r\n");
    bench.run_for(Duration::from_secs(1));
    assert!(bench.heard(client).ends_with(b"a part"));
    bench.stop();
    assert_eq!(bench.end(client), End::Reset);
    is_over_within(&mut bench, GRACE + SLACK);
}
