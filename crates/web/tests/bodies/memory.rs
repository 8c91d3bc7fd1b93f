//! What requests may hold of the memory, and that those that stop in the middle hold up nobody.

use std::time::Duration;

use windlass_web::windlass::{Watcher, sim::Sim};
use windlass_web::{App, serve};

use crate::bench::Bench;

fn bench(memory: usize) -> Bench {
    let app = App::new()
        .serve_limits(serve::Limits::new().memory(memory))
        .get("/", |_, _| "root")
        .post("/", |_, q| q.body().map(|body| format!("{} bytes", body.len())))
        .body_limit(10 << 20);
    Bench::on(Watcher::simulated(&Sim::new(1)), None, app)
}

fn head(len: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")
}

#[test]
fn a_body_beyond_the_memory_is_refused() {
    let mut b = bench(1 << 20);
    let client = b.connect();
    let answer = b.ask_last(client, head(800 << 10));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("no memory"), "{answer}");
    let client = b.connect();
    b.ask(client, head(500 << 10) + &"b".repeat(500 << 10), "512000 bytes");
    // Its share is smaller while others hold something.
    let others: Vec<_> = (0..9).map(|_| b.connect()).collect();
    for other in &others {
        b.say(*other, head(60_000) + &"b".repeat(30_000));
    }
    b.run_for(Duration::from_millis(10));
    let answer = b.ask_last(client, head(200 << 10));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    // One without a length.
    let client = b.connect();
    b.say(client, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n");
    let answer = b.ask_last(client, "b".repeat(200_000));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    for other in others {
        b.ask(other, "b".repeat(30_000), "60000 bytes");
    }
}

#[test]
fn clients_that_stop_in_a_body_hold_up_nobody() {
    let mut b = bench(16 << 20);
    let start = b.now();
    let stopped: Vec<_> = (0..1000).map(|_| b.connect()).collect();
    for client in &stopped {
        b.say(*client, head(11_000) + &"b".repeat(10_000));
    }
    b.run_for(Duration::from_millis(100));
    let client = b.connect();
    for _ in 0..20 {
        b.ask(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "root");
        b.ask(client, head(9000) + &"b".repeat(9000), "9000 bytes");
    }
    assert!(b.now() - start < Duration::from_secs(5), "virtual time");
    for client in stopped {
        let answer = b.end(client);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    b.ask(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "root");
}
