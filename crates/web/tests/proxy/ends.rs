//! How requests end that cannot be passed on, or whose response does not come.

use std::time::Duration;

use windlass_web::client::FetchSettings;
use windlass_web::proxy::Upstream;
use windlass_web::{App, Limits};

use crate::every_driver;
use crate::net::Harness;
use crate::scene::Scene;

every_driver! {
    a_server_that_is_not_there_is_a_bad_gateway
    a_wrong_response_is_a_bad_gateway
    a_response_that_breaks_off_is_a_reset
    a_server_that_says_nothing_is_a_timeout
    a_response_that_stalls_is_a_reset
    a_client_that_goes_ends_the_call
    an_early_response_goes_on
    an_early_response_comes_past_a_request_that_is_stuck
    more_than_one_response_is_one
    a_server_with_all_its_connections_in_use_is_unavailable
    a_request_goes_to_another_server_if_the_first_is_not_there
    a_kept_connection_that_has_closed_is_no_error
    a_body_that_is_too_long_is_refused
    a_request_that_is_not_whole_is_never_passed_on_as_whole
    a_shutdown_waits_for_responses
    what_has_begun_before_a_shutdown_is_still_passed_on
    a_body_that_waits_for_a_connection_ends_in_time
}

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const LONG: &str = "Content-Length: 1073741824";
const OK: &str = "HTTP/1.1 200 OK\r\nDate: now\r\n";

fn status(text: &str) -> &str {
    text.strip_prefix("HTTP/1.1 ").and_then(|text| text.get(..3)).unwrap_or(text)
}

/// An address that nobody listens at.
const NOBODY: &str = "http://127.0.0.1:1";

fn a_server_that_is_not_there_is_a_bad_gateway<T: Harness>() {
    let mut scene = Scene::of::<T>(|_| {
        App::with(|_| Upstream::new(NOBODY).expect("a URL"))
            .fallback(|up, q| q.forward(up))
            .at_head()
    });
    let client = scene.ask(GET);
    assert_eq!(status(&scene.answer(client)), "502");
    // The connection goes on, also behind a body.
    scene.say(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(status(&scene.answer(client)), "502");
    scene.say(client, GET);
    assert_eq!(status(&scene.answer(client)), "502");
    let counted = scene.proxy.state().counters();
    assert_eq!((counted[0].active, counted[0].failures, counted[0].is_out), (0, 3, true));
}

fn a_wrong_response_is_a_bad_gateway<T: Harness>() {
    for wrong in [
        "garbage\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 700 What\r\nContent-Length: 0\r\n\r\n",
    ] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.say(inner, wrong);
        scene.hears(client, "\r\n\r\n");
        assert_eq!(status(&scene.text(client)), "502", "{wrong}");
        scene.until("its connection ends", |scene| {
            scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
        });
    }
    // Too many interim responses, and a head without end.
    for endless in ["HTTP/1.1 103 Early\r\nA: b\r\n\r\n".repeat(2000), {
        format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(200_000))
    }] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.say(inner, endless);
        scene.hears(client, "HTTP/1.1 502 ");
    }
    // An end in place of a response.
    for ends_by_reset in [true, false] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.say(inner, "HTTP/1.1 20");
        scene.settle();
        match ends_by_reset {
            true => scene.reset(inner),
            false => scene.finish(inner),
        }
        scene.hears(client, "HTTP/1.1 502 ");
    }
}

fn a_response_that_breaks_off_is_a_reset<T: Harness>() {
    for (head, body) in [
        ("Content-Length: 10\r\n", "!"),
        ("Transfer-Encoding: chunked\r\n", "1\r\n!\r\n"),
        ("Transfer-Encoding: chunked\r\n", "1\r\n!\r\n0\r\nA: b\r\n"),
        ("Transfer-Encoding: chunked\r\n", "1\r\n!\r\nx\r\n"),
    ] {
        for ends_by_reset in [true, false] {
            let mut scene = Scene::new::<T>();
            let client = scene.ask(GET);
            let inner = scene.inner_hears(0, "\r\n\r\n");
            scene.say(inner, format!("{OK}{head}\r\n{body}"));
            if !body.ends_with("x\r\n") {
                scene.hears(client, "!");
                match ends_by_reset {
                    true => scene.reset(inner),
                    false => scene.finish(inner),
                }
            }
            assert!(!scene.ends_whole(client), "{head} {body} {:?}", scene.text(client));
        }
    }
}

fn a_server_that_says_nothing_is_a_timeout<T: Harness>() {
    let span = if T::VIRTUAL { Duration::from_secs(7) } else { Duration::from_millis(150) };
    for head in
        [GET, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"]
    {
        let mut scene = Scene::with::<T>(move |up| up.head_timeout(span), |app| app);
        let client = scene.ask(head);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        let start = scene.watcher.update_now();
        scene.hears(client, "HTTP/1.1 504 ");
        let took = scene.watcher.update_now() - start;
        assert!(!T::VIRTUAL || took > span - span / 10 && took < span + span / 8, "{took:?}");
        scene.until("its server hears of it", |scene| {
            scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
        });
        assert_eq!(scene.proxy.state().counters()[0].failures, 1);
    }
}

fn a_response_that_stalls_is_a_reset<T: Harness>() {
    let span = if T::VIRTUAL { Duration::from_secs(7) } else { Duration::from_millis(150) };
    let mut scene = Scene::with::<T>(move |up| up.idle_timeout(span), |app| app);
    let client = scene.ask(GET);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("{OK}Content-Length: 10\r\n\r\nhello"));
    scene.hears(client, "hello");
    assert!(!scene.ends_whole(client));
}

fn a_client_that_goes_ends_the_call<T: Harness>() {
    for responds in [true, false] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        if responds {
            scene.say(inner, format!("{OK}Content-Length: 10\r\n\r\nhello"));
            scene.hears(client, "hello");
        }
        scene.reset(client);
        scene.until("its server hears of it", |scene| {
            scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
        });
        let counted = scene.proxy.state().counters();
        assert_eq!((counted[0].active, counted[0].failures), (0, 0));
    }
    // One that ends its side may still read.
    let mut scene = Scene::new::<T>();
    let client = scene.ask(GET);
    scene.finish(client);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("{OK}Content-Length: 1\r\n\r\nx"));
    assert!(scene.ends_whole(client));
    assert!(scene.text(client).ends_with("\r\n\r\nx"), "{}", scene.text(client));
}

fn an_early_response_goes_on<T: Harness>() {
    for (len, goes_on) in [(1000, true), (1 << 30, false)] {
        let mut scene = Scene::new::<T>();
        let client =
            scene.ask(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\nab"));
        let inner = scene.inner_hears(0, "\r\n\r\nab");
        scene.say(inner, "HTTP/1.1 413 Too Much\r\nContent-Length: 1\r\n\r\nx");
        scene.hears(client, "\r\n\r\nx");
        let heard = scene.take(client);
        assert_eq!(heard.contains("Connection: close\r\n"), !goes_on, "{heard}");
        scene.until("the server is left", |scene| {
            scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
        });
        if goes_on {
            scene.say(client, vec![b'c'; len - 2]);
            scene.say(client, GET);
            scene.inner_hears(1, "GET / HTTP/1.1\r\n");
        } else {
            assert!(scene.ends_whole(client));
        }
    }
}

/// The server reads nothing of a long request, responds, and then resets the connection, ends its
/// side, or is silent. The client has the response, and an end if its request has not come whole.
fn an_early_response_comes_past_a_request_that_is_stuck<T: Harness>() {
    for (target, framing) in [
        ("/", LONG),
        ("/", "Transfer-Encoding: chunked"),
        ("/whole", "Content-Length: 16777216"), // collected first
    ] {
        for end in ["a reset", "an end of file", "silence"] {
            let limits = Limits::new().body(16 << 20);
            let mut scene = Scene::with::<T>(|up| up, |app| app.limits(limits));
            let head = format!("POST {target} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
            let client = scene.ask(head);
            let is_whole = target == "/whole";
            if is_whole {
                scene.say(client, vec![b'x'; 16 << 20]);
            }
            let inner = scene.inner_hears(0, "\r\n\r\n");
            scene.engine.pause(inner);
            // The client looks out for a response while it sends.
            scene.engine.read_when_full(client, true);
            if !is_whole {
                scene.say(client, if framing == LONG { "" } else { "40000000\r\n" });
                scene.say_without_end(client);
            }
            scene.settle();
            assert_eq!(scene.engine.waiting(client) > 0, !is_whole, "{target}, {end}");
            // A part comes alone: the read in flight takes it, and it would be the last one.
            scene.say(inner, "HTTP/1.1 413 ");
            scene.settle();
            scene.say(inner, "Too Much\r\nContent-Length: 8\r\n\r\ntoo much");
            scene.settle();
            match end {
                "a reset" => scene.reset(inner),
                "an end of file" => scene.finish(inner),
                _ => {}
            }
            scene.hears(client, "\r\n\r\ntoo much");
            scene.say_to_the_end(client);
            let heard = scene.take(client);
            assert_eq!(heard.contains("Connection: close\r\n"), !is_whole, "{end}: {heard}");
            assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{end}: {heard}");
            if end != "a reset" {
                scene.engine.resume(inner);
            }
            scene.until("the server is left", |scene| {
                scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
            });
            let counted = scene.proxy.state().counters();
            assert_eq!((counted[0].active, counted[0].failures), (0, 0), "{end}");
            if is_whole {
                scene.say(client, GET);
                scene.inner_hears(1, "GET / HTTP/1.1\r\n");
            } else {
                assert!(scene.ends_whole(client), "{end}");
            }
        }
    }
}

fn more_than_one_response_is_one<T: Harness>() {
    let one = format!("{OK}Content-Length: 1\r\n\r\na");
    for second in ["HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb", "b", "\r\n"] {
        for comes_late in [false, true] {
            let mut scene = Scene::new::<T>();
            let client = scene.ask(GET);
            let inner = scene.inner_hears(0, "\r\n\r\n");
            match comes_late {
                false => scene.say(inner, format!("{one}{second}")),
                true => scene.say(inner, one.clone()),
            }
            scene.hears(client, "\r\n\r\na");
            if comes_late {
                scene.say(inner, second);
            }
            scene.until("that connection ends", |scene| {
                scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
            });
            assert!(scene.take(client).ends_with("\r\n\r\na"));
            scene.say(client, GET);
            let inner = scene.inner_hears(1, "\r\n\r\n");
            scene.say(inner, format!("{OK}Content-Length: 1\r\n\r\nc"));
            scene.hears(client, "\r\n\r\nc");
            assert_eq!(scene.text(client).matches("HTTP/1.1 ").count(), 1);
        }
    }
}

fn a_server_with_all_its_connections_in_use_is_unavailable<T: Harness>() {
    let mut scene = Scene::with::<T>(|up| up.connections(2), |app| app);
    let held = [scene.ask(GET), scene.ask(GET)];
    scene.inner_hears(0, "\r\n\r\n");
    let second = scene.inner_hears(1, "\r\n\r\n");
    let client = scene.ask(GET);
    scene.hears(client, "\r\n\r\n");
    let heard = scene.take(client);
    assert!(status(&heard) == "503" && heard.contains("Retry-After: 1\r\n"), "{heard}");
    scene.say(second, format!("{OK}Content-Length: 0\r\n\r\n"));
    scene
        .until("one is free", |scene| held.iter().any(|one| scene.text(*one).contains("\r\n\r\n")));
    scene.take(second);
    scene.say(client, GET);
    scene.inner_hears(1, "GET / ");
    assert_eq!(scene.inner.len(), 2);
}

fn a_request_goes_to_another_server_if_the_first_is_not_there<T: Harness>() {
    let mut scene = Scene::of::<T>(|url| {
        let up = move |_| {
            Upstream::of([NOBODY, &url]).expect("URLs").failures(2, Duration::from_secs(3600))
        };
        App::with(up).fallback(|up, q| q.forward(up)).at_head()
    });
    let client = scene.client();
    for round in 0..6 {
        let body = "abc".repeat(round);
        let len = body.len();
        scene.say(
            client,
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{body}"),
        );
        let inner = scene.inner_hears(0, &format!("\r\n\r\n{body}"));
        scene.until("all of the body", |scene| scene.text(inner).ends_with(&body));
        scene.take(inner);
        scene.say(inner, format!("{OK}Content-Length: 0\r\n\r\n"));
        scene.hears(client, "\r\n\r\n");
        assert_eq!(status(&scene.take(client)), "200");
    }
    let counted = scene.proxy.state().counters();
    assert_eq!((counted[0].failures, counted[0].is_out), (2, true), "it was left out: {counted:?}");
    assert_eq!((counted[1].requests, counted[1].failures), (6, 0));
}

fn a_kept_connection_that_has_closed_is_no_error<T: Harness>() {
    for resets in [true, false] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.say(inner, format!("{OK}Content-Length: 0\r\n\r\n"));
        scene.hears(client, "\r\n\r\n");
        scene.take(client);
        // Both are under way at the same time.
        match resets {
            true => scene.reset(inner),
            false => scene.finish(inner),
        }
        scene.say(client, GET);
        let second = scene.inner_hears(1, "\r\n\r\n");
        scene.say(second, format!("{OK}Content-Length: 0\r\n\r\n"));
        scene.hears(client, "\r\n\r\n");
        assert_eq!(status(&scene.text(client)), "200");
        assert_eq!(scene.proxy.state().counters()[0].failures, 0);
    }
}

fn a_body_that_is_too_long_is_refused<T: Harness>() {
    let limits = |app: App<Upstream>| app.body_limit(10);
    for body in ["Content-Length: 11\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nb\r\nhello"] {
        let mut scene = Scene::with::<T>(|up| up, limits);
        let client = scene.ask(format!("POST / HTTP/1.1\r\nHost: h\r\n{body}"));
        scene.hears(client, "\r\n\r\n");
        assert_eq!(status(&scene.text(client)), "413");
    }
    let mut scene = Scene::with::<T>(|up| up, |app| app.limits(Limits::new().body(10)));
    scene.ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world");
    scene.inner_hears(0, "\r\n\r\nhello world");
    let client =
        scene.ask("POST /whole HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world");
    scene.hears(client, "HTTP/1.1 413 ");
}

fn a_request_that_is_not_whole_is_never_passed_on_as_whole<T: Harness>() {
    for (body, end) in [
        ("Content-Length: 10\r\n\r\n!", "eof"),
        ("Content-Length: 10\r\n\r\n!", "reset"),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n", "eof"),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n", "reset"),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n", "zz\r\n"),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n", "1\n!\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n", "0\r\nContent-Length: 1\r\n\r\n"),
    ] {
        let mut scene = Scene::new::<T>();
        let client = scene.ask(format!("POST / HTTP/1.1\r\nHost: h\r\n{body}"));
        let inner = scene.inner_hears(0, "!");
        match end {
            "eof" => scene.finish(client),
            "reset" => scene.reset(client),
            other => scene.say(client, other),
        }
        scene.until("its server hears of it", |scene| {
            scene.ends[&inner].eof || scene.ends[&inner].closed.is_some()
        });
        let heard = scene.text(inner);
        assert!(heard.trim_end().ends_with('!'), "{heard}");
        if end != "reset" {
            scene.hears(client, "HTTP/1.1 400 ");
        }
    }
}

fn a_shutdown_waits_for_responses<T: Harness>() {
    let mut scene = Scene::new::<T>();
    let client = scene.ask(GET);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("{OK}Content-Length: 10\r\n\r\nhello"));
    scene.hears(client, "hello");
    scene.proxy.stop(&mut scene.watcher);
    scene.settle();
    scene.say(inner, "world");
    assert!(scene.ends_whole(client));
    assert!(scene.text(client).ends_with("helloworld"));
    scene.engine.close(client);
    scene.until("it is over", |scene| scene.proxy.is_over());
}

/// Its server is asked when the shutdown has begun, on a kept connection or on a new one.
fn what_has_begun_before_a_shutdown_is_still_passed_on<T: Harness>() {
    for path in ["/whole", "/"] {
        let mut scene = Scene::new::<T>();
        let client = scene.client();
        scene.say(client, GET);
        let inner = scene.inner_hears(0, "\r\n\r\n");
        scene.say(inner, format!("{OK}Content-Length: 0\r\n\r\n"));
        scene.hears(client, "\r\n\r\n");
        scene.take(client);
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n");
        scene.say(client, head);
        scene.settle();
        scene.proxy.stop(&mut scene.watcher);
        scene.settle();
        scene.say(client, "\r\nhello");
        let second = scene.inner_hears(1, "\r\n\r\nhello");
        scene.say(second, format!("{OK}Content-Length: 0\r\n\r\n"));
        assert!(scene.ends_whole(client));
        assert_eq!(status(&scene.text(client)), "200");
        scene.engine.close(client);
        scene.until("it is over", |scene| scene.proxy.is_over());
    }
}

/// Its client is not read meanwhile, so it is not the client that is slow.
fn a_body_that_waits_for_a_connection_ends_in_time<T: Harness>() {
    let span = if T::VIRTUAL { Duration::from_secs(7) } else { Duration::from_millis(150) };
    let mut scene = Scene::with::<T>(
        |up| up,
        move |app| {
            let settings = FetchSettings::new().connections(1, 100);
            app.client(settings).limits(Limits::new().answer(span))
        },
    );
    let first = scene.ask(GET);
    let inner = scene.inner_hears(0, "\r\n\r\n");
    scene.say(inner, format!("{OK}Content-Length: 10\r\n\r\nhello"));
    scene.hears(first, "hello");
    let start = scene.watcher.update_now();
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789";
    let waits = [scene.ask(post), scene.ask(GET)];
    for client in waits {
        scene.hears(client, "HTTP/1.1 504 ");
    }
    let took = scene.watcher.update_now() - start;
    assert!(!T::VIRTUAL || took > span - span / 10 && took < span + span / 8, "{took:?}");
    scene.say(inner, "world");
    scene.hears(first, "helloworld");
    let counted = scene.proxy.state().counters();
    assert_eq!((counted[0].active, counted[0].failures), (0, 0), "nobody has asked it");
}
