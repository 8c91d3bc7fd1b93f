//! Connections that end while they are used, and limits of the pool: which requests are sent again,
//! how often, and on which connection. On every driver and in the simulation.
#![allow(missing_docs)] // a test binary has no users

#[path = "../../serve/tests/common/mod.rs"]
mod common;
mod hostile;

use std::time::Duration;

use common::{Faulty, Harness, Simulated};
use hostile::server::{Act, GOOD};
use hostile::{Scene, Who, scene};
use windlass::driver::Driver;
use windlass_web::client::{Fetch, FetchSettings};
use windlass_web::{Flow, Part};

every_driver! {
    an_end_that_was_seen_costs_nothing
    an_end_that_nobody_has_seen_is_met_by_a_new_connection
    a_request_that_was_read_is_sent_again_if_that_does_no_harm
    a_request_is_sent_again_once
    a_response_that_has_begun_is_not_asked_for_again
    a_request_on_a_new_connection_is_not_sent_again
    all_connections_end_at_once
    bytes_that_nobody_has_asked_for_end_a_connection
    connections_are_limited
    connections_to_all_servers_are_limited
    servers_have_connections_in_their_turn
    those_that_wait_are_limited
    a_call_that_is_cancelled_leaves_no_trace
    a_call_whose_request_is_gone_ends
    a_client_that_stops_ends_its_connections
}

/// How the server ends a connection.
const ENDS: [Act; 2] = [Act::Close, Act::Reset];

fn say(text: &str) -> Act {
    Act::Say(text.into())
}

/// The requests that can be sent again without harm, and those that cannot.
fn methods(url: &str) -> Vec<(Fetch, bool)> {
    let part = |part: &mut Part<'_>| {
        part.write(b"a part");
        Flow::End
    };
    vec![
        (Fetch::get(url), true),
        (Fetch::head(url), true),
        (Fetch::put(url).body("body"), true),
        (Fetch::put(url).body(vec![b'x'; 50_000]), true),
        (Fetch::delete(url), true),
        (Fetch::new("OPTIONS", url), true),
        (Fetch::post(url).body("body"), false),
        (Fetch::post(url).body(vec![b'x'; 50_000]), false),
        (Fetch::new("PATCH", url).body("body"), false),
        (Fetch::put(url).stream(6, part), false),
    ]
}

/// A connection that is kept, and the place of it.
#[track_caller]
fn keep<D: Driver>(scene: &mut Scene<D>) -> usize {
    let url = scene.url("/good");
    assert_eq!(scene.text(Fetch::get(url)), "200 good");
    // A call that was cancelled may be read behind it, from another connection.
    let requests = scene.hostile.requests.iter();
    let (kept, _) = *requests.rev().find(|(_, text)| text == "GET /good").expect("a request");
    assert!(!scene.hostile.conns[kept].is_over);
    kept
}

/// How many requests the server has read for a target.
fn read<D: Driver>(scene: &Scene<D>, target: &str) -> usize {
    let is_it = |request: &str| request.split(' ').nth(1) == Some(target);
    scene.hostile.requests.iter().filter(|(_, request)| is_it(request)).count()
}

fn good(fetch: &Fetch) -> &'static str {
    if format!("{fetch:?}").contains("HEAD") { "200 " } else { "200 good" }
}

fn an_end_that_was_seen_costs_nothing<T: Harness>() {
    for who in [Who::App, Who::Own] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        for end in ENDS {
            for (fetch, _) in methods(&url) {
                let wanted = good(&fetch);
                scene.script("/last", vec![say(GOOD), end.clone()]);
                let last = scene.url("/last");
                assert_eq!(scene.text(Fetch::get(last)), "200 good");
                let connections = scene.hostile.conns.len();
                scene.until("the end", |scene| scene.hostile.open() == 0);
                scene.settle();
                let before = read(&scene, "/");
                assert_eq!(scene.text(fetch), wanted);
                assert_eq!(read(&scene, "/") - before, 1);
                assert_eq!(scene.hostile.conns.len() - connections, 1);
            }
        }
    }
}

/// The server closes in the turn in which the request is sent.
fn an_end_that_nobody_has_seen_is_met_by_a_new_connection<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new());
    let url = scene.url("/");
    for end in ENDS {
        for (fetch, is_safe) in methods(&url) {
            let (wanted, what) = (good(&fetch), format!("{end:?}: {fetch:?}"));
            let kept = keep(&mut scene);
            let (connections, before) = (scene.hostile.conns.len(), read(&scene, "/"));
            scene.hostile.act(&mut scene.watcher, kept, vec![end.clone()]);
            let text = scene.text(fetch);
            let (read, made) =
                (read(&scene, "/") - before, scene.hostile.conns.len() - connections);
            match is_safe {
                true => assert_eq!((&*text, read, made), (wanted, 1, 1), "{what}"),
                false => {
                    assert!(text == "Ended" || text == "Connection", "{what}: {text}");
                    assert_eq!((read, made), (0, 0), "{what}");
                }
            }
        }
    }
}

fn a_request_that_was_read_is_sent_again_if_that_does_no_harm<T: Harness>() {
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        for end in ENDS {
            for (fetch, is_safe) in methods(&url) {
                let (wanted, what) = (good(&fetch), format!("{end:?}: {fetch:?}"));
                keep(&mut scene);
                let (connections, before) = (scene.hostile.conns.len(), read(&scene, "/"));
                scene.scripts("/", vec![vec![end.clone()], vec![say(GOOD)]]);
                let text = scene.text(fetch);
                let made = scene.hostile.conns.len() - connections;
                let read = read(&scene, "/") - before;
                match is_safe {
                    true => assert_eq!((&*text, read, made), (wanted, 2, 1), "{what}"),
                    false => {
                        assert!(text == "Ended" || text == "Connection", "{what}: {text}");
                        assert_eq!((read, made), (1, 0), "{what}");
                    }
                }
            }
        }
    }
}

fn a_request_is_sent_again_once<T: Harness>() {
    for (end, wanted) in ENDS.into_iter().zip(["Ended", "Connection"]) {
        let mut scene = scene::<T>(Who::App, FetchSettings::new());
        let url = scene.url("/");
        keep(&mut scene);
        scene.script("/", vec![end]);
        assert_eq!(scene.text(Fetch::get(url)), wanted);
        assert_eq!((read(&scene, "/"), scene.hostile.conns.len()), (2, 2));
        keep(&mut scene);
    }
}

fn a_response_that_has_begun_is_not_asked_for_again<T: Harness>() {
    for (end, wanted) in ENDS.into_iter().zip(["Ended", "Connection"]) {
        let mut scene = scene::<T>(Who::App, FetchSettings::new());
        let url = scene.url("/");
        for len in [1, 8, GOOD.len() - 1] {
            keep(&mut scene);
            let before = read(&scene, "/");
            scene.script("/", vec![say(&GOOD[..len]), end.clone()]);
            assert_eq!(scene.text(Fetch::get(&url)), wanted, "{len} bytes, {end:?}");
            assert_eq!(read(&scene, "/") - before, 1);
        }
        // An interim response is a byte, too.
        keep(&mut scene);
        let before = read(&scene, "/");
        scene.script("/", vec![say("HTTP/1.1 103 Hints\r\n\r\n"), end]);
        assert_eq!(scene.text(Fetch::get(&url)), wanted);
        assert_eq!(read(&scene, "/") - before, 1);
    }
}

fn a_request_on_a_new_connection_is_not_sent_again<T: Harness>() {
    for (end, wanted) in ENDS.into_iter().zip(["Ended", "Connection"]) {
        let mut scene = scene::<T>(Who::App, FetchSettings::new());
        let url = scene.url("/");
        scene.script("/", vec![end.clone()]);
        assert_eq!(scene.text(Fetch::get(&url)), wanted);
        assert_eq!((read(&scene, "/"), scene.hostile.conns.len()), (1, 1));
        // It ends before it has read anything.
        scene.greet(vec![end]);
        let text = scene.text(Fetch::get(&url));
        assert!(text == "Ended" || text == "Connection", "{text}");
        assert_eq!((read(&scene, "/"), scene.hostile.conns.len()), (1, 2));
        keep(&mut scene);
    }
}

/// A request that is sent again takes none of the other connections, which are as old.
fn all_connections_end_at_once<T: Harness>() {
    const COUNT: usize = 5;
    for end in ENDS {
        let mut scene = scene::<T>(Who::Own, FetchSettings::new());
        let (slow, url) = (scene.url("/slow"), scene.url("/"));
        scene.script("/slow", vec![Act::Wait(Duration::from_millis(10)), say(GOOD)]);
        let all: Vec<usize> = (0..COUNT).map(|_| scene.begin(Fetch::get(&slow))).collect();
        for call in all {
            assert_eq!(scene.outcome(call).text, "200 good");
        }
        assert_eq!((scene.hostile.conns.len(), scene.hostile.open()), (COUNT, COUNT));
        for at in 0..COUNT {
            scene.hostile.act(&mut scene.watcher, at, vec![end.clone()]);
        }
        let all: Vec<usize> = (0..3 * COUNT).map(|_| scene.begin(Fetch::get(&url))).collect();
        for call in all {
            assert_eq!(scene.outcome(call).text, "200 good", "{end:?}");
        }
        assert_eq!(read(&scene, "/"), 3 * COUNT);
        assert!(scene.hostile.conns.len() <= 4 * COUNT);
    }
}

/// What comes on a connection without a call is no response to the next one.
fn bytes_that_nobody_has_asked_for_end_a_connection<T: Harness>() {
    let bad = GOOD.replace("good", "evil");
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let (url, next) = (scene.url("/"), scene.url("/next"));
        for pause in [0, 1, 30] {
            let wait = Act::Wait(Duration::from_millis(pause));
            scene.script("/", vec![say(GOOD), wait, say(&bad)]);
            assert_eq!(scene.text(Fetch::get(&url)), "200 good");
            let (kept, _) = *scene.hostile.requests.last().expect("a request");
            scene.until("its end", |scene| scene.hostile.conns[kept].is_over);
            assert_eq!(scene.text(Fetch::get(&next)), "200 good");
        }
        // Before any request was sent.
        scene.greet(vec![say(&bad)]);
        scene.script("/", vec![say(GOOD), Act::Close]);
        assert_eq!(scene.text(Fetch::get(&url)), "200 good");
    }
}

fn connections_are_limited<T: Harness>() {
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new().connections(3, 100));
        let mut all = Vec::new();
        for number in 0..20 {
            let target = format!("/{number}");
            let text = GOOD.replace("good", &format!("{number:4}"));
            let last = if number % 4 == 0 { vec![Act::Close] } else { vec![] };
            let acts = [Act::Wait(Duration::from_millis(5)), say(&text)];
            scene.script(&target, [&acts[..], &last].concat());
            let url = scene.url(&target);
            all.push((scene.begin(Fetch::get(url)), format!("200 {number:4}")));
        }
        let mut most = 0;
        while all.iter().any(|(call, _)| !scene.is_over(*call)) {
            assert!(scene.turn(Duration::from_secs(10)) > 0, "waited in vain");
            most = most.max(scene.hostile.open());
        }
        assert_eq!(most, 3);
        for (call, wanted) in all {
            assert_eq!(scene.outcome(call).text, wanted);
        }
        if who == Who::Own {
            // They are served in their order.
            let order = scene.hostile.requests.iter().map(|(_, request)| request.clone());
            let mut numbers: Vec<usize> = order.map(|text| text[5..].parse().unwrap()).collect();
            // As far as the network keeps it.
            let is_near = |(at, number): (usize, &usize)| number.abs_diff(at) < 3;
            let is_kept = numbers.iter().enumerate().all(is_near);
            assert!(is_kept || T::NAME == Faulty::NAME, "{numbers:?}");
            numbers.sort_unstable();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>());
        }
    }
}

/// An idle connection to one server makes room for another one's, and calls that find no room get
/// it as soon as there is some.
fn connections_to_all_servers_are_limited<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new().connections(10, 2));
    let origins = scene.origins.clone();
    let url = |at: usize, target: &str| format!("{}{target}", origins[at]);
    for round in 0..6 {
        assert_eq!(scene.text(Fetch::get(url(round % 2, "/"))), "200 good");
    }
    assert_eq!(scene.hostile.conns.len(), 2);
    scene.script("/slow", vec![Act::Wait(Duration::from_millis(20)), say(GOOD)]);
    let all: Vec<usize> =
        (0..6).map(|round| scene.begin(Fetch::get(url(round / 3, "/slow")))).collect();
    let mut most = 0;
    while all.iter().any(|call| !scene.is_over(*call)) {
        assert!(scene.turn(Duration::from_secs(10)) > 0, "waited in vain");
        // One that leaves counts no more, and the server may not know yet.
        most = most.max(scene.hostile.open());
    }
    assert!((2..=3).contains(&most), "{most} connections");
    for call in all {
        assert_eq!(scene.outcome(call).text, "200 good");
    }
    scene.settle();
    assert_eq!(scene.hostile.open(), 2);
}

/// One connection to all servers, which ends behind each response.
fn servers_have_connections_in_their_turn<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new().connections(10, 1));
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood";
    for target in ["/many", "/one"] {
        scene.script(target, vec![say(last), Act::Close]);
    }
    let many: Vec<usize> = (0..20).map(|_| scene.begin(Fetch::get(scene.url("/many")))).collect();
    let one = scene.begin(Fetch::get(format!("{}/one", scene.origins[1])));
    assert_eq!(scene.outcome(one).text, "200 good");
    let before = many.iter().filter(|call| scene.is_over(**call)).count();
    assert!(before <= 2, "{before} calls of another server came first");
    for call in many {
        assert_eq!(scene.outcome(call).text, "200 good");
    }
}

fn those_that_wait_are_limited<T: Harness>() {
    let settings = || FetchSettings::new().connections(1, 100).waiting(2);
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, settings());
        let (held, url) = (scene.url("/held"), scene.url("/"));
        scene.script("/held", vec![]);
        let first = scene.begin(Fetch::get(&held));
        scene.until("the request", |scene| read(scene, "/held") == 1);
        let waits = [scene.begin(Fetch::get(&url)), scene.begin(Fetch::post(&url))];
        let full = scene.begin(Fetch::get(&url));
        assert_eq!(scene.outcome(full).text, "Full");
        scene.act(vec![say(GOOD)]);
        for call in [first, waits[0], waits[1]] {
            assert_eq!(scene.outcome(call).text, "200 good");
        }
        assert_eq!(scene.hostile.conns.len(), 1);
        // Those whose time has passed wait no more, and leave room for others.
        let first = scene.begin(Fetch::get(&held));
        scene.until("the request", |scene| read(scene, "/held") == 2);
        for _ in 0..5 {
            let short = T::span(1.0);
            let waits = [0, 1].map(|_| scene.begin(Fetch::get(&url).timeout(short)));
            for call in waits {
                assert_eq!(scene.outcome(call).text, "Timeout Whole");
            }
        }
        let last = scene.begin(Fetch::get(&url));
        scene.act(vec![say(GOOD)]);
        assert_eq!(scene.outcome(first).text, "200 good");
        assert_eq!(scene.outcome(last).text, "200 good");
    }
}

fn a_call_that_is_cancelled_leaves_no_trace<T: Harness>() {
    for who in [Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new().connections(1, 100).waiting(1));
        let (slow, url) = (scene.url("/slow"), scene.url("/"));
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        for acts in [vec![], vec![say("HTTP/1.1 200")], vec![say(head)], vec![say(head), say("x")]]
        {
            scene.script("/slow", acts.clone());
            let first = scene.begin(Fetch::get(&slow));
            let before = read(&scene, "/slow");
            scene.until("the request", |scene| read(scene, "/slow") > before);
            scene.settle();
            for _ in 0..3 {
                let waits = scene.begin(Fetch::get(&url));
                scene.cancel(waits);
            }
            let next = scene.begin(Fetch::get(&url));
            scene.cancel(first);
            assert_eq!(scene.outcome(next).text, "200 good", "{acts:?}");
            assert!(!scene.is_over(first));
            // One that has not begun to connect.
            let early = scene.begin(Fetch::get(&url));
            scene.cancel(early);
            keep(&mut scene);
        }
        let (client, _) = scene.own();
        assert_eq!(client.requests(), 0);
    }
}

/// Nobody waits for the response of a handler any more.
fn a_call_whose_request_is_gone_ends<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new().connections(1, 100).waiting(1));
    let (slow, url) = (scene.url("/slow"), scene.url("/"));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    for acts in [vec![], vec![say("HTTP/1.1 200")], vec![say(head)], vec![say(head), say("x")]] {
        scene.script("/slow", acts.clone());
        let first = scene.begin(Fetch::get(&slow));
        let before = read(&scene, "/slow");
        scene.until("the request", |scene| read(scene, "/slow") > before);
        let (at, _) = *scene.hostile.requests.last().expect("a request");
        // One that waits for the connection, and leaves its place to another one.
        let waits = scene.begin(Fetch::get(&url));
        scene.until("its request", |scene| scene.asked().is_some());
        let connections = scene.asked();
        scene.leave(waits);
        scene.until("it has left", |scene| scene.asked() < connections);
        let next = scene.begin(Fetch::get(&url));
        scene.until("its request", |scene| scene.asked().is_some());
        scene.settle();
        assert!(!scene.is_over(next), "{acts:?}");
        scene.leave(first);
        scene.until("its end", |scene| scene.hostile.conns[at].is_over);
        assert_eq!(scene.outcome(next).text, "200 good", "{acts:?}");
        assert!(!scene.is_over(first) && !scene.is_over(waits));
        keep(&mut scene);
    }
}

fn a_client_that_stops_ends_its_connections<T: Harness>() {
    let mut scene = scene::<T>(Who::Own, FetchSettings::new());
    let (slow, url) = (scene.url("/slow"), scene.url("/"));
    keep(&mut scene);
    scene.script("/slow", vec![]);
    let running = scene.begin(Fetch::get(&slow));
    scene.until("the request", |scene| read(scene, "/slow") == 1);
    let other = format!("{}/good", scene.origins[1]);
    assert_eq!(scene.text(Fetch::get(other)), "200 good");
    scene.own().0.stop();
    let refused = scene.begin(Fetch::get(&url));
    assert_eq!(scene.outcome(refused).text, "Refused");
    let running_at = scene.hostile.requests.iter().find(|(_, request)| request == "GET /slow");
    let at = running_at.expect("a request").0;
    scene.hostile.act(&mut scene.watcher, at, vec![say(GOOD)]);
    assert_eq!(scene.outcome(running).text, "200 good");
    scene.until("the ends", |scene| scene.own().0.is_empty() && scene.hostile.open() == 0);
    assert_eq!(scene.own().0.requests(), 0);
}

/// A server that closes its connections at about the time when the next request comes, in virtual
/// time: each request is answered, and each is read once, or twice if its connection has ended.
fn closes_race<T: Harness>() {
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        let idle = Duration::from_micros(1000);
        scene.script("/", vec![say(GOOD), Act::Wait(idle), Act::Close]);
        for round in 0..400_u64 {
            scene.run_for(idle - Duration::from_micros(200) + Duration::from_micros(round));
            assert_eq!(scene.text(Fetch::get(&url)), "200 good", "round {round}");
        }
        let (read, made) = (read(&scene, "/"), scene.hostile.conns.len());
        println!("{who:?}: {read} requests were read on {made} connections");
        assert!((400..=800).contains(&read), "{read}");
    }
}

#[test]
fn closes_race_with_requests() {
    closes_race::<Simulated>();
}

#[test]
fn closes_race_with_requests_on_a_network_with_faults() {
    closes_race::<Faulty>();
}
