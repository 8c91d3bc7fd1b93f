//! Handlers, hooks and jobs that do what they should not, on every driver: each answer is one that
//! no client reads otherwise.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{End, Net, halves, statuses};
use windlass_web::{App, Error, Flow, Part, Response, Status};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// The answer in the place of one that cannot be written, and nothing behind it.
#[track_caller]
fn is_500_and_closes((heard, end): (String, End), what: &str) {
    assert_eq!((statuses(&heard), end), (vec![500], End::Eof), "{what}: {heard:?}");
    assert!(heard.contains("\r\nConnection: close\r\n"), "{what}: {heard:?}");
    assert!(!heard.contains("Injected"), "{what}: {heard:?}");
}

/// A line end in a field would be a field or a response of an attacker.
fn no_field_splits_a_response<N: Net>() {
    const NAMES: [&str; 6] = ["A\r\nInjected", "A Injected", "Injected:", "", "A\n", "\u{e9}"];
    const VALUES: [&str; 5] =
        ["b\r\nInjected: c", "b\nInjected: c", "b\rInjected", "\0Injected", "b\r\n\r\nInjected"];
    // The server writes these itself: two of them could disagree.
    const OWN: [&str; 4] = ["Content-Length", "transfer-encoding", "Connection", "content-length"];
    let with =
        |name: &'static str, value: &'static str| Response::text("Injected").header(name, value);
    let mut all: Vec<(&'static str, &'static str)> = Vec::new();
    all.extend(NAMES.map(|name| (name, "Injected")));
    all.extend(VALUES.map(|value| ("A", value)));
    all.extend(OWN.map(|name| (name, "3")));
    all.extend([("Content-Type", "a/b\r\nInjected: c"), ("Location", "/\r\nInjected: c")]);
    let count = all.len();
    let fields = Arc::new(all);
    let (first, second, third) = (Arc::clone(&fields), Arc::clone(&fields), Arc::clone(&fields));
    let app = App::new()
        .get("/handler/{n}", move |_, q| {
            let (name, value) = first[q.parse::<usize>("n")?];
            Ok::<_, Error>(with(name, value))
        })
        .get("/error/{n}", move |_, q| {
            let (name, value) = second[q.parse::<usize>("n")?];
            Err::<Response, _>(Error::new(Status::FORBIDDEN).header(name, value))
        })
        .get("/hook/{n}", |_, _| "Injected")
        .get("/stream/{n}", |_, _| Response::stream(|_: &mut Part<'_>| Flow::End))
        .after(move |_, q, head| {
            let Some(path) = q.map(|q| q.path()) else { return };
            let n = path.strip_prefix("/hook/").or(path.strip_prefix("/stream/"));
            if let Some(n) = n.and_then(|n| n.parse::<usize>().ok()) {
                head.add(third[n].0, third[n].1);
            }
        });
    let mut net = N::start(app);
    for place in ["handler", "error", "hook", "stream"] {
        for n in 0..count {
            let request = get(&format!("/{place}/{n}"));
            is_500_and_closes(net.provoke(request.as_bytes()), &format!("{place} {:?}", fields[n]));
        }
    }
}

/// The date is the server's: a client could not choose between two.
fn a_response_has_one_date<N: Net>() {
    let app = App::new()
        .get("/", |_, _| Response::text("a").header("date", "yesterday").header("Dates", "b"));
    let mut net = N::start(app);
    let client = net.connect();
    net.say(client, get("/").as_bytes());
    net.finish(client);
    net.end(client);
    let heard = String::from_utf8_lossy(net.heard(client)).to_lowercase();
    assert_eq!(heard.matches("\r\ndate: ").count(), 1, "{heard}");
    assert!(heard.contains("\r\ndates: b\r\n"), "{heard}");
}

/// A body where no body may be would be the next response to some clients.
fn a_status_without_a_body_has_none<N: Net>() {
    let app = App::new()
        .get("/body/{code}", |_, q| {
            let status = Status::new(q.parse("code")?).ok_or(Status::NOT_FOUND)?;
            Ok::<_, Error>(Response::text("Injected").status(status))
        })
        .get("/stream/{code}", |_, q| {
            let status = Status::new(q.parse("code")?).ok_or(Status::NOT_FOUND)?;
            let stream = Response::stream(|part: &mut Part<'_>| {
                part.write(b"Injected");
                Flow::End
            });
            Ok::<_, Error>(stream.status(status))
        })
        .get("/empty/{code}", |_, q| {
            Ok::<_, Error>(Status::new(q.parse("code")?).ok_or(Status::NOT_FOUND)?)
        });
    let mut net = N::start(app);
    for code in [100, 101, 102, 103, 199, 204, 205] {
        for place in ["body", "stream"] {
            let request = get(&format!("/{place}/{code}"));
            is_500_and_closes(net.provoke(request.as_bytes()), &format!("{place} {code}"));
        }
    }
    // A 1xx is no answer, and a 101 answers what was not asked.
    for code in [100, 101, 103] {
        is_500_and_closes(net.provoke(get(&format!("/empty/{code}")).as_bytes()), "a 1xx");
    }
    for code in [204, 205, 304] {
        let (heard, _) = net.ask(get(&format!("/empty/{code}")).repeat(2).as_bytes());
        assert_eq!(statuses(&heard), [code, code], "{heard:?}");
        // Without a length, a 205 would last until the connection ends.
        assert_eq!(heard.contains("Content-Length: 0\r\n"), code == 205, "{heard:?}");
    }
    for place in ["body", "stream"] {
        let (heard, _) = net.ask(get(&format!("/{place}/304")).repeat(2).as_bytes());
        assert_eq!(statuses(&heard), [304, 304], "{heard:?}");
        assert!(!heard.contains("Injected"), "{heard:?}");
    }
}

/// A client that got a part of a stream does not take it for all.
fn a_stream_that_fails_is_reset<N: Net>() {
    let app = App::new().get("/{how}", |_, q| {
        let (how, mut parts) = (q.param("how").to_owned(), 0);
        Response::stream(move |part: &mut Part<'_>| {
            parts += 1;
            match parts {
                1..100 => part.write(&[b'x'; 1000]),
                _ if how == "panic" => panic!("a source"),
                _ => return Flow::Fail,
            }
            Flow::More
        })
    });
    let mut net = N::start(app);
    for how in ["/panic", "/fail"] {
        for version in ["1.1", "1.0"] {
            let request = format!("GET {how} HTTP/{version}\r\nHost: a\r\n\r\n");
            let (heard, end) = net.provoke(request.as_bytes());
            assert_eq!(end, End::Reset, "{how} {version}");
            assert!(!heard.contains("0\r\n\r\n"), "{how} {version}");
        }
    }
}

/// A source without an end that makes no bytes has failed, and does not hold the loop.
fn a_stream_of_empty_parts_is_reset<N: Net>() {
    let app = App::new()
        .get("/", |_, _| "Hello")
        .get("/empty", |_, _| Response::stream(|_: &mut Part<'_>| Flow::More));
    let mut net = N::start(app);
    let (heard, end) = net.provoke(get("/empty").as_bytes());
    assert_eq!(end, End::Reset, "{heard:?}");
    let (heard, _) = net.ask(get("/").as_bytes());
    assert_eq!(statuses(&heard), [200]);
}

/// A handler that asks for two answers, and jobs and hooks that panic, are errors of the server.
fn panics_and_second_answers_are_500<N: Net>() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_hook = Arc::clone(&seen);
    let app = App::new()
        .get("/", |_, _| "Hello")
        .get("/twice", |_, q| {
            let first = q.blocking(|| "first", |_, text| text);
            q.blocking(|| "second", |_, text| text);
            first
        })
        .get("/twice/second", |_, q| {
            q.blocking(|| "first", |_, text| text);
            q.blocking(|| "second", |_, text| text)
        })
        .get("/panic", |_, _| -> Response { panic!("a handler") })
        .get("/job", |_, q| q.blocking(|| panic!("a job"), |_, ()| "never"))
        .get("/then", |_, q| q.blocking(|| (), |_, ()| -> Response { panic!("behind a job") }))
        .get("/before", |_, _| "never")
        .before(|_, q| {
            assert!(q.path() != "/before", "a hook");
            None
        })
        .get("/waits", |_, _| "never")
        .before(|_, q| (q.path() == "/waits").then(|| q.blocking(|| "of the hook", |_, text| text)))
        .finished(move |_, done| {
            seen_by_hook.lock().expect("no panic").push(done.status().map(Status::code));
        });
    let mut net = N::start(app);
    for path in ["/twice", "/panic", "/job", "/then", "/before"] {
        let (heard, end) = net.ask(get(path).as_bytes());
        assert_eq!((statuses(&heard), end), (vec![500], End::Eof), "{path}");
        assert_eq!(halves(&heard).1, "Internal Server Error", "{path}");
    }
    assert_eq!(*seen.lock().expect("no panic"), [Some(500); 5]);
    for (path, body) in [("/twice/second", "second"), ("/waits", "of the hook")] {
        let (heard, _) = net.ask(get(path).as_bytes());
        assert_eq!((statuses(&heard), halves(&heard).1), (vec![200], body), "{path}");
    }
}

/// What makes error bodies may fail itself, or make long ones.
fn any_on_error_answers<N: Net>() {
    let app = App::new()
        .get("/", |_, _| "Hello")
        .get("/panic", |_, _| Error::new(Status::CONFLICT))
        .get("/split", |_, _| Error::new(Status::CONFLICT))
        .on_error(|_, _, error| {
            match error.status() {
                Status::CONFLICT => panic!("a shape"),
                Status::NOT_FOUND => Response::text("x").header("A", "b\r\nInjected: c"),
                // Longer than what may wait, and in parts.
                _ => {
                    let mut left = 100;
                    Response::stream(move |part: &mut Part<'_>| {
                        part.write(&[b'x'; 10_000]);
                        left -= 1;
                        if left > 0 { Flow::More } else { Flow::End }
                    })
                }
            }
        });
    let mut net = N::start(app);
    let (heard, _) = net.ask(get("/panic").as_bytes());
    assert_eq!((statuses(&heard), halves(&heard).1), (vec![409], "Conflict"));
    is_500_and_closes(net.provoke(get("/missing").as_bytes()), "a shape that splits");
    // Of a request without a head, and of one with.
    for request in ["bad\r\n\r\n".to_owned(), get("/").replace("GET", "PUT")] {
        let (heard, end) = net.ask(request.as_bytes());
        assert_eq!(end, End::Eof, "{request:?}");
        assert!(matches!(statuses(&heard)[..], [400 | 405]), "{request:?}");
        assert!(heard.ends_with("\r\n0\r\n\r\n"), "{request:?}: {} bytes", heard.len());
        assert!(heard.len() > 1_000_000, "{request:?}");
    }
}

/// A job whose client has gone ends without an answer, and frees its place.
fn a_job_whose_client_has_gone_frees_its_place<N: Net>() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_hook = Arc::clone(&seen);
    let app = App::new()
        .get("/", |_, q| q.blocking(|| "done", |_, text| text))
        .limits(windlass_web::Limits::new().running(1).answer(Duration::from_secs(600)))
        .finished(move |_, done| {
            seen_by_hook.lock().expect("no panic").push(done.status().map(Status::code));
        });
    let mut net = N::start(app);
    for _ in 0..20 {
        let client = net.connect();
        net.say(client, get("/").as_bytes());
        net.reset(client);
        // Once the place is free again, which the end of the other one decides.
        loop {
            let (heard, _) = net.ask(get("/").as_bytes());
            match statuses(&heard)[..] {
                [200] => break,
                [503] => assert!(heard.contains("Retry-After: 1\r\n")),
                _ => panic!("{heard:?}"),
            }
        }
    }
    assert!(seen.lock().expect("no panic").len() >= 20);
}

/// What a request asks for is its own handler's to return.
fn a_response_in_another_place_is_500<N: Net>() {
    let app = App::new().get("/", |_, q| {
        let (later, response) = Response::later();
        let own = q.blocking(|| "done", |_, text| text);
        assert!(later.respond(own).is_ok());
        response
    });
    let mut net = N::start(app);
    let (heard, _) = net.ask(get("/").as_bytes());
    assert_eq!(statuses(&heard), [500], "{heard}");
}

/// A response that is too long for its connection breaks it off, and nobody works for the requests
/// behind it.
fn requests_behind_a_response_that_is_too_long_are_not_served<N: Net>() {
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let app = App::new()
        .get("/", move |_, _| {
            *counted.lock().expect("no panic") += 1;
            Response::bytes(vec![b'x'; 2 << 20])
        })
        .serve_limits(windlass_web::serve::Limits::new().cap(1 << 20));
    let mut net = N::start(app);
    let (heard, end) = net.provoke(get("/").repeat(3).as_bytes());
    assert!(heard.len() < 1 << 20);
    assert_eq!((end, *calls.lock().expect("no panic")), (End::Reset, 1));
}

crate::every_driver! {
    a_response_in_another_place_is_500
    requests_behind_a_response_that_is_too_long_are_not_served
    no_field_splits_a_response
    a_response_has_one_date
    a_status_without_a_body_has_none
    a_stream_that_fails_is_reset
    a_stream_of_empty_parts_is_reset
    panics_and_second_answers_are_500
    any_on_error_answers
    a_job_whose_client_has_gone_frees_its_place
}
