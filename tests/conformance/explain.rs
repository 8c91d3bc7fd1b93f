//! C10 and the counters: the explanations and counts of the watcher are right.

use std::time::Duration;

use windlass::Op;

use crate::common::*;

pub fn the_driver_names_itself<H: Harness>() {
    let b = H::bench();
    let explain = b.watcher.explain();
    assert_eq!(explain.driver, H::NAME);
    assert!(!explain.reason.is_empty());
    assert!(!explain.rows.is_empty());
    for row in &explain.rows {
        let text = format!("{row:?}");
        assert!(!row.operation.is_empty() && !row.mechanism.is_empty(), "{text}");
        assert!(!row.reason.is_empty(), "{text}");
    }
    let text = explain.to_string();
    assert!(text.contains(H::NAME) && text.contains(&explain.reason));
    // A row about what is without effect is there only if the program has asked for it.
    let without_effect = |row: &windlass::driver::ExplainRow| row.reason.contains("without effect");
    assert!(!explain.rows.iter().any(without_effect), "{text}");
}

/// Rows say how often their path ran: one operation more, one more in all rows of its name.
pub fn rows_count_what_ran<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let count = |b: &Bench<H::Driver>, name: &str| -> u64 {
        let rows = b.watcher.explain().rows;
        let of_name = |operation: &str| operation.split(", ").any(|word| word == name);
        rows.iter().filter(|row| of_name(row.operation)).map(|row| row.count).sum()
    };
    let before: Vec<u64> = ["read", "write", "read_into", "timer", "shutdown", "close"]
        .map(|name| count(&b, name))
        .into();
    b.write(there, "x");
    b.read(here);
    b.write(there, "yy");
    b.read_exact(here, 2);
    b.pass(Duration::from_micros(1));
    let shutdown = b.submit(Op::shutdown(here));
    expect_shutdown(b.end(shutdown));
    let close = b.submit(Op::close(here));
    expect_closed(b.end(close));
    let after: Vec<u64> = ["read", "write", "read_into", "timer", "shutdown", "close"]
        .map(|name| count(&b, name))
        .into();
    let more: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(more, [1, 2, 1, 1, 1, 1]);
}

pub fn counters_add_up<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let start = b.watcher.counters();
    assert_eq!((start.in_flight, start.sources), (0, 2));
    assert_eq!(start.submitted, start.completed);
    let reads = [b.submit(Op::read(here)), b.submit(Op::read_into(here, vec![0; 4]))];
    let counters = b.watcher.counters();
    assert_eq!(counters.in_flight, 2);
    assert_eq!(counters.submitted, start.submitted + 2);
    assert_eq!(counters.completed, start.completed);
    drop(b.refuse(Op::read_into(here, room(0))));
    assert_eq!(b.watcher.counters().submitted, start.submitted + 2, "a refusal does not count");
    b.write(there, "x");
    b.end(reads[0]);
    b.watcher.cancel(reads[1]);
    b.end(reads[1]);
    let counters = b.watcher.counters();
    assert_eq!(counters.in_flight, 0);
    assert_eq!(counters.submitted, start.submitted + 3);
    assert_eq!(counters.completed, counters.submitted);
    assert!(counters.turns > start.turns);
    // The read had to wait for its bytes.
    assert!(counters.events > start.events);
    assert!(counters.waiting_events <= counters.events);
}

/// Attach, timers and nops make no system call.
pub fn what_needs_no_system_call_makes_none<H: Harness>() {
    let mut b = H::bench();
    let (here, _there) = b.pair();
    let calls = |b: &Bench<H::Driver>| -> u64 {
        let calls = b.watcher.counters().system_calls;
        calls.iter().filter(|(name, _)| *name != "wait").map(|(_, count)| count).sum()
    };
    let handle = b.watcher.detach(here).unwrap();
    let before = calls(&b);
    let again = b.watcher.attach(handle).unwrap();
    let timer = b.submit(Op::timer(Duration::from_micros(10)));
    b.submit(Op::nop());
    expect_timer(b.end(timer));
    assert_eq!(calls(&b), before);
    b.watcher.abort(again);
}
