//! Servers that are silent, or slow: a clock ends each call at its time, in virtual time.

use std::time::Duration;

use windlass_web::client::{Fetch, FetchSettings};

use crate::common::{Faulty, Harness, Simulated};
use crate::hostile::server::{Act, GOOD};
use crate::hostile::{Who, scene};
use crate::table::are_served;

const HEAD: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(3);
const WHOLE: Duration = Duration::from_secs(20);

/// A clock is exact but for the time of a turn, which the faults of a network make longer.
const SLACK: Duration = Duration::from_millis(200);

fn settings() -> FetchSettings {
    FetchSettings::new().head(HEAD).read_timeout(PAUSE).idle(Duration::from_secs(3600))
}

fn say(text: &str) -> Act {
    Act::Say(text.into())
}

fn drip(text: &str) -> Act {
    Act::Drip(text.bytes().collect(), Duration::from_secs(1))
}

fn silence<T: Harness>(who: Who) {
    let mut scene = scene::<T>(who, settings());
    let url = scene.url("/");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let drops = "x".repeat(100);
    let hint = [say("HTTP/1.1 103 Hints\r\n\r\n"), Act::Wait(Duration::from_secs(1))];
    let hints = hint.into_iter().cycle().take(200).collect();
    for (acts, wanted, least) in [
        (vec![], "Timeout Head", HEAD),
        (vec![say("H")], "Timeout Head", HEAD),
        (vec![say("HTTP/1.1 200 OK\r\nContent-Le")], "Timeout Head", HEAD),
        (vec![say("HTTP/1.1 100 Continue\r\n\r\n")], "Timeout Head", HEAD),
        (vec![drip(head)], "Timeout Head", HEAD),
        (hints, "Timeout Head", HEAD),
        (vec![say(head)], "Timeout Body", PAUSE),
        (vec![say(head), say("half")], "Timeout Body", PAUSE),
        (vec![say(chunked)], "Timeout Body", PAUSE),
        (vec![say(chunked), say("2\r\nhi\r\n0\r\n")], "Timeout Body", PAUSE),
        (vec![say("HTTP/1.1 200 OK\r\n\r\nhi")], "Timeout Body", PAUSE),
        (vec![say(head), Act::Wait(2 * PAUSE / 3), say("half")], "Timeout Body", PAUSE * 5 / 3),
        (vec![say(head), drip(&drops)], "Timeout Whole", WHOLE),
        (vec![say(chunked), drip(&"1\r\nx\r\n".repeat(100))], "Timeout Whole", WHOLE),
        (vec![say("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n")], "Timeout Body", PAUSE),
        // Each of them is a phase of its own, and all have one end.
        (
            vec![
                Act::Wait(Duration::from_secs(4)),
                say("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
            ],
            "Timeout Whole",
            WHOLE,
        ),
        // In time.
        (vec![Act::Wait(HEAD - SLACK), say(GOOD)], "200 good", HEAD - SLACK),
        (vec![drip("HTTP")], "Timeout Head", HEAD),
    ] {
        scene.script("/", acts.clone());
        let start = scene.watcher.update_now();
        let outcome = scene.call(Fetch::get(&url).timeout(WHOLE));
        let span = outcome.at - start;
        assert_eq!(outcome.text, wanted, "{acts:?}");
        assert!(span >= least && span < least + SLACK, "{span:?}: {acts:?}");
        are_served(&mut scene, wanted);
    }
}

/// A call without a time for all of it has the clocks of its phases.
fn without_a_time<T: Harness>() {
    let mut scene = scene::<T>(Who::App, settings());
    let url = scene.url("/");
    let drops = "x".repeat(200);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n";
    scene.script("/", vec![say(head), drip(&drops)]);
    assert_eq!(scene.text(Fetch::get(&url).timeout(None)), format!("200 {drops}"));
    scene.script("/", vec![say(head), say("half")]);
    assert_eq!(scene.text(Fetch::get(&url).timeout(None)), "Timeout Body");
    scene.script("/", vec![]);
    assert_eq!(scene.text(Fetch::get(&url).timeout(None)), "Timeout Head");
    // A time shorter than that of any phase.
    let short = Duration::from_millis(100);
    assert_eq!(scene.text(Fetch::get(&url).timeout(short)), "Timeout Whole");
    are_served(&mut scene, "clocks");
}

/// A server that never says `100 Continue` gets the body after a while; one that has refused by
/// then does not.
fn expectations<T: Harness>() {
    let second = Duration::from_secs(1);
    let mut scene = scene::<T>(Who::App, settings().expect(2 * second));
    let url = scene.url("/");
    let post = || Fetch::post(&url).body("hello").expect_continue();
    let start = scene.watcher.update_now();
    let outcome = scene.call(post());
    let span = outcome.at - start;
    assert_eq!(outcome.text, "200 good");
    assert!(span >= 2 * second && span < 2 * second + SLACK, "{span:?}");
    // Without a word the clock of the head runs behind that of the expectation.
    scene.script("/", vec![]);
    let start = scene.watcher.update_now();
    let outcome = scene.call(post());
    let span = outcome.at - start;
    assert_eq!(outcome.text, "Timeout Head");
    assert!(span >= HEAD && span < HEAD + 2 * second + SLACK, "{span:?}");
    are_served(&mut scene, "expectations");
}

/// The connections that no call has end at their time.
fn idle<T: Harness>() {
    let span = Duration::from_secs(7);
    let mut scene = scene::<T>(Who::App, settings().idle(span));
    are_served(&mut scene, "nothing");
    scene.run_for(span - SLACK);
    assert_eq!(scene.hostile.open(), 2);
    scene.run_for(2 * SLACK);
    assert_eq!(scene.hostile.open(), 0);
    are_served(&mut scene, "idle connections");
    assert_eq!(scene.hostile.conns.len(), 4);
}

macro_rules! simulated {
    ($($name:ident $body:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn in_a_calm() {
                let body: fn() = { type T = Simulated; $body };
                body();
            }

            #[test]
            fn with_faults() {
                let body: fn() = { type T = Faulty; $body };
                body();
            }
        }
    )*};
}

simulated! {
    a_silent_server_is_left_in_time || silence::<T>(Who::App);
    a_silent_server_is_left_in_time_by_a_client || silence::<T>(Who::Own);
    a_silent_server_is_left_in_time_by_a_stream || silence::<T>(Who::Streams);
    phases_have_clocks_without_a_time || without_a_time::<T>();
    an_expectation_has_a_clock || expectations::<T>();
    idle_connections_end || idle::<T>();
}
