//! The module `test`: that its clients see what happened, and that a seed is one run.
#![allow(missing_docs)] // a test binary has no users

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use windlass_web::test::{self, ClientError, Simulation, TestClient};
use windlass_web::{App, Response, Status};

/// Counts the requests of a process.
fn counter() -> App<u32> {
    App::with(|_loop| 0)
        .post("/add", |count, _| {
            *count += 1;
            format!("{count}")
        })
        .get("/count", |count, _| format!("{count}"))
        .get("/wait", |_, q| q.blocking(|| "done", |_, text| text))
}

fn count(client: &mut TestClient) -> Result<String, ClientError> {
    Ok(client.get("http://a.test/count").retry()?.text().to_owned())
}

/// A run with everything in it.
fn run(seed: u64) -> (u64, String) {
    let sim = Simulation::new(seed);
    sim.faults(0.2);
    let host = sim.serve("a.test:80", counter);
    let mut client = sim.client();
    for _ in 0..30 {
        let is_crash = sim.random_below(10) == 0;
        if is_crash {
            sim.crash(&host);
        }
        let _ = client.post("http://a.test/add").body("x").send();
        let _ = client.get("http://a.test/wait").retry();
    }
    (sim.network().trace_hash(), sim.log())
}

#[test]
fn a_seed_is_one_run() {
    let (hash, log) = run(1);
    assert_eq!((hash, &log), (run(1).0, &run(1).1));
    assert_ne!(hash, run(2).0);
    for word in ["a.test starts", "a.test crashes", "-> POST /add", "<- 200 OK"] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

#[test]
fn a_server_that_crashes_begins_anew() -> Result<(), ClientError> {
    let sim = Simulation::new(3);
    let host = sim.serve("a.test:80", counter);
    let mut client = sim.client();
    assert_eq!(client.post("http://a.test/add").send()?.text(), "1");
    assert_eq!(count(&mut client)?, "1");
    sim.crash(&host);
    assert!(!sim.is_running(&host));
    // Its kept connection is broken, and the machine is away.
    assert!(client.post("http://a.test/add").send().is_err());
    assert_eq!(count(&mut client)?, "0");
    assert!(sim.is_running(&host));
    Ok(())
}

#[test]
fn a_server_that_stops_is_refused() -> Result<(), ClientError> {
    let sim = Simulation::new(4);
    let host = sim.serve("a.test:80", counter);
    let mut client = sim.client();
    client.post("http://a.test/add").send()?;
    sim.stop(&host);
    sim.sleep(Duration::from_secs(20));
    assert!(!sim.is_running(&host));
    let refused = client.post("http://a.test/add").send();
    assert!(matches!(refused, Err(ClientError::Connect(_))), "{refused:?}");
    sim.start(&host);
    assert_eq!(client.post("http://a.test/add").send()?.text(), "1");
    Ok(())
}

#[test]
fn only_what_is_safe_is_repeated() {
    let sim = Simulation::new(5);
    // It counts, and ends each connection instead of an answer.
    sim.serve("a.test:80", || {
        App::new()
            .post("/broken", |(), _| {
                Response::stream(|_: &mut windlass_web::Part<'_>| windlass_web::Flow::Fail)
            })
            .get("/broken", |(), _| {
                Response::stream(|_: &mut windlass_web::Part<'_>| windlass_web::Flow::Fail)
            })
    });
    let mut client = sim.client();
    for (method, most) in [("POST", 1), ("GET", 50)] {
        let before = sim.log().matches(&format!("-> {method}")).count();
        let result = client.request(method, "http://a.test/broken").retry();
        assert!(matches!(result, Err(ClientError::Ended { .. })), "{result:?}");
        let after = sim.log().matches(&format!("-> {method}")).count();
        assert_eq!(after - before, most);
    }
}

#[test]
fn a_failure_names_its_seed() {
    let failed = Cell::new(0);
    let fails = |sim: &Simulation| {
        sim.serve("a.test:80", counter);
        failed.set(sim.seed());
        sim.client().get("http://a.test/count").send()?.text().parse::<bool>()?;
        Ok(())
    };
    let caught = catch_unwind(AssertUnwindSafe(|| test::seeds(2..4, fails)));
    let text = caught.expect_err("it fails").downcast::<String>().expect("a text");
    let says = format!("the seed {}: provided string was not", failed.get());
    assert!(text.contains(&says), "{text}");
}

#[test]
fn a_connection_that_is_not_read_holds_its_server_back() -> Result<(), ClientError> {
    let sim = Simulation::new(6);
    sim.network().set_buffer(4096);
    sim.serve("a.test:80", || App::new().get("/large", |_, _| vec![7_u8; 1 << 20]));
    let mut slow = sim.connect("a.test:80");
    slow.write(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
    sim.sleep(Duration::from_secs(1));
    assert_eq!(slow.take(), b"", "it reads nothing unless it is told to");
    let response = slow.response("GET")?;
    assert_eq!((response.status(), response.body().len()), (Status::OK, 1 << 20));
    slow.shutdown();
    assert_eq!(slow.read()?, b"", "the server ends its side, too");
    Ok(())
}

#[test]
fn hosts_of_one_name_are_one_machine() -> Result<(), ClientError> {
    let sim = Simulation::new(8);
    let first = sim.serve("a.test:80", counter);
    let second = sim.serve("a.test:81", counter);
    sim.serve("b.test:80", counter);
    let mut client = sim.client();
    client.post("http://a.test:81/add").send()?;
    client.post("http://b.test/add").send()?;
    sim.crash(&first);
    assert!(!sim.is_running(&second));
    assert_eq!(client.get("http://a.test:81/count").retry()?.text(), "0");
    assert_eq!(client.get("http://b.test/count").send()?.text(), "1");
    Ok(())
}
