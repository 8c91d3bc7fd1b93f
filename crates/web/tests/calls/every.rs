//! What an application does again and again.

#[path = "../../examples/events.rs"]
mod example;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bench::serve;
use crate::common;
use crate::common::Harness;
use windlass_web::{App, Response};

crate::every_driver! {
    calls_follow_after_their_periods
    a_call_publishes_to_all_that_hear
    a_panic_is_counted_and_the_calls_go_on
    calls_end_with_the_shutdown
}

/// In virtual time: the prices change once a second.
#[test]
fn the_example_tells_prices() {
    let mut web = serve::<common::Simulated, _>(example::app());
    let page = web.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(web.until_over(page).contains("at most six connections to a host"));
    let client = web.ask("GET /prices HTTP/1.1\r\nHost: a\r\n\r\n");
    web.until_heard(client, "retry: 2000\n\n");
    let start = web.now();
    web.until_heard(client, "event: price\nid: 5\ndata: 18.35\n\n");
    let took = web.now() - start;
    assert!(Duration::from_secs(4) < took && took < Duration::from_secs(6), "{took:?}");
}

fn calls_follow_after_their_periods<T: Harness>() {
    let calls: [Arc<AtomicU64>; 2] = Default::default();
    let [often, seldom] = calls.clone();
    let app = App::with(|_loop| 0_u64)
        .every(T::span(10.0), move |count, _| {
            *count += 1;
            often.store(*count, Ordering::Relaxed);
        })
        .every(T::span(35.0), move |_, _| _ = seldom.fetch_add(1, Ordering::Relaxed));
    let mut web = serve::<T, _>(app);
    let start = web.now();
    let count = |at: usize| calls[at].load(Ordering::Relaxed);
    web.until("ten calls", |_| count(0) == 10);
    let took = web.now() - start;
    // Some nanoseconds pass between the start of the loop and that of the test.
    assert!(took + T::span(0.1) >= T::span(100.0), "{took:?}");
    assert!((1..=3).contains(&count(1)), "{}", count(1));
    if T::VIRTUAL {
        assert!(took < T::span(101.0), "{took:?}");
        assert_eq!(count(1), 2);
    }
}

fn a_call_publishes_to_all_that_hear<T: Harness>() {
    let app = App::with(|_loop| 0).get("/", |_, _| Response::events().subscribe("numbers")).every(
        T::span(10.0),
        |number, remote| {
            *number += 1;
            assert!(remote.publish("numbers", format!("number {number}")));
        },
    );
    let mut web = serve::<T, _>(app);
    let clients = [(); 2].map(|()| web.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    for number in 3..6 {
        for client in clients {
            web.until_heard(client, &format!("data: number {number}\n\n"));
        }
    }
}

fn a_panic_is_counted_and_the_calls_go_on<T: Harness>() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let app = App::new().get("/", |_, _| "still there").every(T::span(10.0), move |_, _| {
        assert_eq!(counted.fetch_add(1, Ordering::Relaxed), 1, "a panic");
    });
    let mut web = serve::<T, _>(app);
    web.until("three calls", |_| calls.load(Ordering::Relaxed) == 3);
    let client = web.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(web.until_over(client).ends_with("still there"));
    web.close(client);
    web.server.remote().shutdown();
    web.until("it is over", |web| web.server.is_over());
    assert!(web.server.report().panics >= 2);
}

fn calls_end_with_the_shutdown<T: Harness>() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let app = App::new().get("/", |_, _| Response::later().1).grace(Duration::from_secs(3600));
    let app = app.every(T::span(10.0), move |_, _| _ = counted.fetch_add(1, Ordering::Relaxed));
    let mut web = serve::<T, _>(app);
    web.until("a call", |_| calls.load(Ordering::Relaxed) == 1);
    web.server.stop(&mut web.watcher);
    let before = calls.load(Ordering::Relaxed);
    web.run_for(T::span(50.0));
    // One delay may have begun.
    assert!(calls.load(Ordering::Relaxed) <= before + 1);
}
