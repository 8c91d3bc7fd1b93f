//! How many requests may wait for their response, and that each end gives its place back.

use std::time::Duration;

use windlass_web::answers::Later;
use windlass_web::windlass::{Source, Watcher, sim::Sim};
use windlass_web::{App, Limits, Response};

use crate::bench::{Bench, seed};

const SECOND: Duration = Duration::from_secs(1);

fn bench(limits: Limits, sim: &Sim) -> Bench<Vec<Later>> {
    sim.set_job_time(20 * SECOND);
    let app = App::with(|_| Vec::<Later>::new())
        .limits(limits)
        .get("/job", |_, q| q.blocking(|| (), |_, ()| "done"))
        .get("/limited", |_, q| q.blocking(|| (), |_, ()| "done"))
        .running(2)
        .get("/panics", |_, q| q.blocking(|| panic!("a test panics"), |_, ()| "done"))
        .get("/later", |waiting, _| {
            let (later, response) = Response::later();
            waiting.push(later);
            response
        })
        .post("/head", |_, q| q.blocking(|| (), |_, ()| "done"))
        .at_head();
    Bench::on(Watcher::simulated(sim), None, app)
}

fn ask(b: &mut Bench<Vec<Later>>, path: &str) -> Source {
    let client = b.connect();
    b.say(client, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

#[test]
fn beyond_the_limit_a_request_is_a_503() {
    let mut b = bench(Limits::new().running(5), &Sim::new(1));
    let clients: Vec<_> = (0..4).map(|_| ask(&mut b, "/limited")).collect();
    b.until("two are refused", |b| {
        let heard = clients.iter().map(|client| b.heard(*client));
        heard.filter(|heard| heard.contains("Retry-After: 1")).count() == 2
    });
    assert_eq!(b.server.requests(), 2);
    let others: Vec<_> = (0..4).map(|_| ask(&mut b, "/later")).collect();
    b.until("one is refused", |b| {
        others.iter().any(|client| b.heard(*client).starts_with("HTTP/1.1 503 "))
    });
    b.until("all are answered", |b| b.server.requests() == 0);
    let answers: Vec<_> = clients.iter().map(|client| b.heard(*client)).collect();
    assert_eq!(answers.iter().filter(|one| one.ends_with("done")).count(), 2, "{answers:?}");
    let client = b.connect();
    b.ask(client, "GET /limited HTTP/1.1\r\nHost: a\r\n\r\n", "done");
}

/// Requests that end in every way: answered, dropped, late, panicked, and with their client.
#[test]
fn each_end_gives_its_place_back() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let limits = Limits::new().running(6).answer(15 * SECOND).head(5 * SECOND);
    let sim = Sim::new(seed);
    let mut b = bench(limits, &sim);
    let (mut clients, mut statuses) = (Vec::new(), std::collections::BTreeMap::new());
    for _ in 0..600 {
        let path = *random.choice(&["/job", "/limited", "/panics", "/later", "/head"]).unwrap();
        let client = match path {
            "/head" => {
                let client = b.connect();
                b.say(client, "POST /head HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1");
                client
            }
            path => ask(&mut b, path),
        };
        if random.u8(..3) == 0 {
            b.say(client, "GET /job HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        clients.push(client);
        let one = *random.choice(&clients).unwrap();
        match random.u8(..12) {
            0 => b.reset(one),
            1 => b.finish(one),
            2 => drop(b.server.state().pop()),
            3..6 => {
                if let Some(later) = b.server.state().pop() {
                    let _ = later.respond("later");
                }
            }
            _ => {}
        }
        b.run_for(Duration::from_millis(random.u64(..3000)));
        assert!(b.server.requests() <= 6);
    }
    b.run_for(60 * SECOND);
    for client in &clients {
        for part in b.heard(*client).split("HTTP/1.1 ").skip(1) {
            *statuses.entry(part[..3].to_owned()).or_insert(0) += 1;
        }
    }
    for status in ["200", "500", "503", "504"] {
        assert!(statuses.contains_key(status), "{statuses:?}");
    }
    assert_eq!(b.server.requests(), 0, "{statuses:?}");
    // And those of the route.
    sim.set_job_time(SECOND);
    let clients = [ask(&mut b, "/limited"), ask(&mut b, "/limited")];
    b.until("both wait", |b| b.server.requests() == 2);
    b.until("both are answered", |b| clients.iter().all(|one| b.heard(*one).ends_with("done")));
}
