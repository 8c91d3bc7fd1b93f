//! Connections that go over to another protocol.

use std::time::Duration;

use windlass_serve::Id;
use windlass_web::proxy::Upstream;

use crate::every_driver;
use crate::net::Harness;
use crate::scene::Scene;

every_driver! {
    bytes_go_both_ways
    what_was_sent_ahead_goes_through
    each_side_ends_alone
    the_last_bytes_come_before_the_end
    a_reset_goes_through
    an_offer_may_be_declined
    a_tunnel_that_is_idle_is_reset
    a_side_that_stalls_holds_the_other
    a_side_that_is_not_read_still_speaks
    a_shutdown_resets_tunnels
    no_tunnel_opens_in_a_shutdown
}

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: k\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n";

/// A tunnel, its client and its server.
fn tunnel<T: Harness>(set: fn(Upstream) -> Upstream) -> (Scene, Id, Id) {
    let mut scene = Scene::with::<T>(set, |app| app);
    let client = scene.ask(ASK);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    let heard = scene.take(inner);
    let asks =
        heard.contains("Upgrade: websocket\r\n") && heard.contains("Connection: Upgrade\r\n");
    assert!(asks && heard.contains("Sec-WebSocket-Key: k\r\n"), "{heard}");
    scene.say(inner, SWITCH);
    scene.hears(client, "\r\n\r\n");
    let heard = scene.take(client);
    assert_eq!(
        heard,
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: a\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\n\r\n"
    );
    (scene, client, inner)
}

fn bytes_go_both_ways<T: Harness>() {
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    assert_eq!(scene.proxy.state().counters()[0].active, 1);
    for round in 0..3 {
        scene.say(client, format!("ping {round}"));
        scene.hears(inner, &format!("ping {round}"));
        scene.say(inner, format!("HTTP/1.1 pong {round}\r\n\r\n"));
        scene.hears(client, &format!("pong {round}\r\n\r\n"));
    }
    let big: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    scene.take(inner);
    scene.say(client, big.clone());
    scene.until("all of it", |scene| scene.ends[&inner].heard == big);
    scene.take(client);
    scene.say(inner, big.clone());
    scene.until("all of it", |scene| scene.ends[&client].heard == big);
}

fn what_was_sent_ahead_goes_through<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(format!("{ASK}early"));
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.settle();
    assert!(scene.text(inner).ends_with("\r\n\r\n"), "it goes on behind the 101");
    scene.say(inner, format!("{SWITCH}first"));
    scene.hears(client, "\r\n\r\nfirst");
    scene.hears(inner, "\r\n\r\nearly");
}

fn each_side_ends_alone<T: Harness>() {
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    scene.say(client, "last");
    scene.finish(client);
    scene.until("the end", |scene| scene.ends[&inner].eof);
    assert_eq!(scene.text(inner), "last");
    scene.say(inner, "more");
    scene.hears(client, "more");
    scene.finish(inner);
    assert!(scene.ends_whole(client));
    scene.until("it is over", |scene| scene.proxy.connections() == 0);
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    scene.finish(inner);
    assert!(scene.ends_whole(client));
    scene.say(client, "more");
    scene.hears(inner, "more");
    scene.finish(client);
    assert!(scene.ends_whole(inner));
    scene.until("it is over", |scene| scene.proxy.connections() == 0);
    assert_eq!(scene.proxy.state().counters()[0].active, 0);
}

fn the_last_bytes_come_before_the_end<T: Harness>() {
    let big: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    for is_client in [true, false] {
        let (mut scene, client, inner) = tunnel::<T>(|up| up);
        let (first, last) = if is_client { (client, inner) } else { (inner, client) };
        scene.finish(first);
        assert!(scene.ends_whole(last));
        scene.engine.pause(first);
        scene.say(last, big.clone());
        scene.finish(last);
        scene.settle();
        assert!(!scene.ends[&first].eof);
        scene.engine.resume(first);
        assert!(scene.ends_whole(first));
        assert!(scene.ends[&first].heard == big);
    }
}

fn a_reset_goes_through<T: Harness>() {
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    scene.reset(inner);
    assert!(!scene.ends_whole(client));
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    scene.reset(client);
    assert!(!scene.ends_whole(inner));
    scene.until("it is over", |scene| scene.proxy.connections() == 0);
}

fn an_offer_may_be_declined<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(format!("{ASK}GET /next HTTP/1.1\r\nHost: h\r\n\r\n"));
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.take(inner);
    scene.say(inner, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    scene.hears(client, "\r\n\r\nx");
    scene.inner_hears(0, "GET /next HTTP/1.1\r\n");
    scene.take(client);
    scene.say(
        inner,
        "HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Content-Length: 0\r\n\r\n",
    );
    scene.hears(client, "Upgrade: websocket\r\n");
}

fn a_tunnel_that_is_idle_is_reset<T: Harness>() {
    let set: fn(Upstream) -> Upstream = match T::VIRTUAL {
        true => |up| up.idle_timeout(Duration::from_secs(20)),
        false => |up| up.idle_timeout(Duration::from_millis(300)),
    };
    let (mut scene, client, inner) = tunnel::<T>(set);
    assert!(!scene.ends_whole(client), "the server has not ended its side");
    assert!(!scene.ends_whole(inner), "the client has not ended its side");
    // One that has ended its side has said all.
    let (mut scene, client, inner) = tunnel::<T>(set);
    scene.say(client, "all");
    scene.finish(client);
    assert!(!scene.ends_whole(client));
    assert!(scene.ends_whole(inner));
    assert_eq!(scene.text(inner), "all");
}

fn a_side_that_stalls_holds_the_other<T: Harness>() {
    let most = if T::VIRTUAL { 2 << 20 } else { 24 << 20 };
    for is_client in [true, false] {
        let (mut scene, client, inner) = tunnel::<T>(|up| up);
        let (slow, quick) = if is_client { (client, inner) } else { (inner, client) };
        scene.engine.pause(slow);
        scene.say_without_end(quick);
        scene.settle();
        let taken = scene.taken(quick);
        assert!(scene.engine.waiting(quick) > 0 && taken < most, "{taken} bytes are held");
        scene.engine.resume(slow);
        scene.until("much of it", |scene| scene.ends[&slow].heard.len() > 8 << 20);
    }
}

/// One side says more than goes through, and the other one does not read it, but speaks: as a peer
/// that reads only what it has room to answer.
fn a_side_that_is_not_read_still_speaks<T: Harness>() {
    for is_client in [true, false] {
        let (mut scene, client, inner) = tunnel::<T>(|up| up);
        let (deaf, other) = if is_client { (client, inner) } else { (inner, client) };
        scene.engine.pause(deaf);
        scene.engine.read_when_full(other, true);
        scene.say_without_end(other);
        scene.settle();
        assert!(scene.engine.waiting(other) > 0, "it is stuck");
        for round in 0..3 {
            let what = format!("round {round}");
            scene.say(deaf, what.clone());
            scene.hears(other, &what);
        }
        assert!(scene.engine.waiting(other) > 0, "it is stuck");
        let big: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
        scene.take(other);
        scene.say(deaf, big.clone());
        scene.until("all of it", |scene| scene.ends[&other].heard.len() >= big.len());
        assert!(scene.ends[&other].heard == big && scene.ends[&deaf].heard.is_empty());
        scene.say_to_the_end(other);
        scene.engine.resume(deaf);
        scene.until("all is there", |scene| {
            scene.ends[&deaf].heard.len() == scene.taken(other) && scene.engine.waiting(other) == 0
        });
    }
}

fn a_shutdown_resets_tunnels<T: Harness>() {
    let (mut scene, client, inner) = tunnel::<T>(|up| up);
    scene.say(inner, "last");
    scene.hears(client, "last");
    scene.proxy.stop(&mut scene.watcher);
    assert!(!scene.ends_whole(client), "the server has not ended its side");
    assert!(!scene.ends_whole(inner), "the client has not ended its side");
    scene.until("it is over", |scene| scene.proxy.is_over());
}

fn no_tunnel_opens_in_a_shutdown<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(ASK);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.proxy.stop(&mut scene.watcher);
    scene.settle();
    scene.say(inner, SWITCH);
    assert!(scene.ends_whole(client));
    assert!(scene.text(client).starts_with("HTTP/1.1 503 "), "{}", scene.text(client));
    assert!(!scene.ends_whole(inner));
    scene.engine.close(client);
    scene.until("it is over", |scene| scene.proxy.is_over());
}
