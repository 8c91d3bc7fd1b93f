//! Which responses are compressed, and what becomes of their heads.

use std::sync::{Arc, Mutex};

use windlass_web::events::ServerEvent;
use windlass_web::test::{self, Caller, TestResponse};
use windlass_web::{App, Compress, Error, Flow, Part, Response, Status};

use super::page;

/// A response to `GET /` of a client that takes gzip.
fn get(response: impl Fn() -> Response + Send + Sync + 'static) -> TestResponse {
    ask(Compress::new(), response, test::get("/").header("Accept-Encoding", "gzip"))
}

fn ask(
    rules: Compress,
    response: impl Fn() -> Response + Send + Sync + 'static,
    request: test::TestRequest,
) -> TestResponse {
    App::new().get("/", move |_, _| response()).compress(rules).call(request)
}

fn coding(response: &TestResponse) -> Option<&str> {
    response.header("Content-Encoding")
}

fn vary(response: &TestResponse) -> Vec<String> {
    let fields = response.headers().filter(|field| field.0.eq_ignore_ascii_case("vary"));
    fields.map(|field| String::from_utf8(field.1.to_vec()).expect("a text")).collect()
}

/// As `src/coding/accept.rs` tests in more cases.
#[test]
fn the_client_decides_about_the_coding() {
    let mut caller = Caller::of(
        App::new().get("/", |_, _| Response::html(page(5000))).compress(Compress::new()),
    );
    for (accepted, expected) in [
        (None, None),
        (Some(""), None),
        (Some("gzip"), Some("gzip")),
        (Some("deflate, gzip;q=0.9"), Some("deflate")),
        (Some("gzip, deflate, br, zstd"), Some("gzip")),
        (Some("*"), Some("gzip")),
        (Some("gzip;q=0, *"), Some("deflate")),
        (Some("identity;q=0, gzip"), Some("gzip")),
        (Some("identity;q=0"), None),
        (Some("*;q=0"), None),
        (Some("gzip;q=7"), None),
        (Some("br"), None),
    ] {
        let mut request = test::get("/");
        if let Some(accepted) = accepted {
            request = request.header("Accept-Encoding", accepted);
        }
        let response = caller.call(request);
        assert_eq!(coding(&response), expected, "{accepted:?}");
        assert_eq!(vary(&response), ["Accept-Encoding"], "{accepted:?}");
        assert_eq!(response.decoded(), page(5000).as_bytes(), "{accepted:?}");
        assert_eq!(response.body().len() < 3000, expected.is_some(), "{accepted:?}");
    }
    let two = test::get("/").header("Accept-Encoding", "br").header("Accept-Encoding", "deflate");
    assert_eq!(coding(&caller.call(two)), Some("deflate"));
}

#[test]
fn the_type_decides() {
    for (kind, expected) in [
        ("text/html; charset=utf-8", true),
        ("TEXT/plain", true),
        ("text/event-stream", false),
        ("text/", false),
        ("application/json", true),
        ("application/json;q=1", true),
        ("application/problem+json", true),
        ("application/ld+JSON ; a=b", true),
        ("+json", false),
        ("application/jsonx", false),
        ("image/svg+xml", true),
        ("application/wasm", true),
        ("application/octet-stream", false),
        ("image/png", false),
        ("font/woff2", false),
        ("font/ttf", true),
        ("", false),
    ] {
        let response = get(move || Response::text(page(2000)).content_type(kind));
        assert_eq!(coding(&response).is_some(), expected, "{kind:?}");
        assert_eq!(vary(&response).len(), usize::from(expected), "{kind:?}");
    }
    // Without a type.
    let response = get(|| {
        let mut response = Response::text(page(2000));
        response.head_mut().remove("Content-Type");
        response
    });
    assert_eq!(coding(&response), None);
    let rules = || Compress::new().types(["image/png", "a/*", "+x"]);
    for (kind, expected) in
        [("image/png", true), ("a/b", true), ("b/a+x", true), ("text/html", false), ("ab/c", false)]
    {
        let request = test::get("/").header("Accept-Encoding", "gzip");
        let response = ask(rules(), move || Response::text(page(2000)).content_type(kind), request);
        assert_eq!(coding(&response).is_some(), expected, "{kind:?}");
    }
}

#[test]
fn the_size_decides() {
    for (least, len, expected) in [
        (1024, 1023, false),
        (1024, 1024, true),
        (0, 0, false),
        (0, 100, true),
        (0, 1, false), // it would not get smaller
        (5000, 4999, false),
    ] {
        let request = test::get("/").header("Accept-Encoding", "gzip");
        let rules = Compress::new().least(least);
        let response = ask(rules, move || Response::text("a".repeat(len)), request);
        assert_eq!(coding(&response).is_some(), expected, "{least} {len}");
        assert_eq!(response.decoded().len(), len, "{least} {len}");
    }
}

#[test]
fn noise_goes_out_plain_unless_the_client_refuses_that() {
    let noise = || {
        let mut random = fastrand::Rng::with_seed(1);
        let noise = std::iter::repeat_with(move || random.u8(..)).take(5000);
        Response::bytes(noise.collect::<Vec<u8>>()).content_type("text/plain")
    };
    let response = get(noise);
    assert_eq!((coding(&response), response.body().len()), (None, 5000));
    assert_eq!(vary(&response), ["Accept-Encoding"]);
    let request = test::get("/").header("Accept-Encoding", "gzip, identity;q=0");
    let response = ask(Compress::new(), noise, request);
    assert_eq!((coding(&response), response.decoded().len()), (Some("gzip"), 5000));
}

#[test]
fn the_head_can_forbid_it() {
    let plain = || Response::text(page(2000));
    for (name, value, varies) in [
        ("Content-Encoding", "br", false),
        ("Content-Encoding", "identity", false),
        ("Cache-Control", "no-transform", false),
        ("Cache-Control", "max-age=3, No-Transform", false),
        ("Content-Range", "bytes 0-1999/5000", true),
        ("Repr-Digest", "sha-256=:AAAA:", false),
        ("Content-MD5", "AAAA", false),
    ] {
        let response = get(move || plain().header(name, value));
        assert_eq!(response.body(), page(2000).as_bytes(), "{name}: {value}");
        assert_eq!(vary(&response).len(), usize::from(varies), "{name}: {value}");
        let expected = (value != "identity").then_some(value);
        assert_eq!(response.header(name), expected, "{name}: {value}");
    }
    for (cache, name, value) in [("max-age=3, private", "X", "y"), ("no-store", "Vary", "Cookie")] {
        let response = get(move || plain().header("Cache-Control", cache).header(name, value));
        assert_eq!(coding(&response), Some("gzip"));
    }
}

#[test]
fn statuses_without_a_whole_body_stay() {
    for code in [206, 304] {
        let status = Status::new(code).expect("a status");
        let response = get(move || {
            let body = if code == 206 { page(2000) } else { String::new() };
            Response::text(body).status(status).header("ETag", "\"one\"")
        });
        assert_eq!((coding(&response), response.header("ETag")), (None, Some("\"one\"")));
        // As the whole response would have it.
        assert_eq!(vary(&response), ["Accept-Encoding"], "{code}");
    }
    for code in [204, 205] {
        let status = Status::new(code).expect("a status");
        let response = get(move || Response::empty(status).content_type("text/plain"));
        assert_eq!((coding(&response), vary(&response).len()), (None, 0), "{code}");
    }
    for code in [200, 201, 301, 404, 410, 500, 503] {
        let status = Status::new(code).expect("a status");
        let response = get(move || Response::text(page(2000)).status(status));
        assert_eq!(coding(&response), Some("gzip"), "{code}");
    }
}

#[test]
fn a_strong_tag_becomes_weak_with_the_body() {
    let app = || {
        let app = App::new().get("/", |_, q| {
            const TAG: &str = "\"v1\"";
            let has = q.header("If-None-Match").is_some_and(|tags| tags.contains(TAG));
            let response = Response::text(if has { String::new() } else { page(2000) });
            let status = if has { Status::NOT_MODIFIED } else { Status::OK };
            response.status(status).header("ETag", TAG).header("Accept-Ranges", "bytes")
        });
        Caller::of(app.compress(Compress::new()))
    };
    let mut caller = app();
    let plain = caller.call(test::get("/"));
    assert_eq!(plain.header("ETag"), Some("\"v1\""));
    assert_eq!(plain.header("Accept-Ranges"), Some("bytes"));
    let packed = caller.call(test::get("/").header("Accept-Encoding", "gzip"));
    assert_eq!((coding(&packed), packed.header("ETag")), (Some("gzip"), Some("W/\"v1\"")));
    assert_eq!(packed.header("Accept-Ranges"), None);
    // A client hears of the tag that it has.
    for (has, expected) in
        [("\"v1\"", "\"v1\""), ("W/\"v1\"", "W/\"v1\""), ("\"v0\", W/\"v1\"", "W/\"v1\"")]
    {
        let request = test::get("/").header("If-None-Match", has);
        let response = caller.call(request.header("Accept-Encoding", "gzip"));
        assert_eq!(response.status(), Status::NOT_MODIFIED);
        assert_eq!((coding(&response), response.header("ETag")), (None, Some(expected)), "{has}");
        assert_eq!(vary(&response), ["Accept-Encoding"]);
    }
    let weak = get(|| Response::text(page(2000)).header("ETag", "W/\"a\""));
    assert_eq!((coding(&weak), weak.header("ETag")), (Some("gzip"), Some("W/\"a\"")));
}

#[test]
fn vary_is_said_once() {
    for (given, expected) in [
        (&["accept-encoding"][..], &["accept-encoding"][..]),
        (&["Cookie, Accept-Encoding"], &["Cookie, Accept-Encoding"]),
        (&["*"], &["*"]),
        (&["Cookie"], &["Cookie", "Accept-Encoding"]),
        (&["Cookie", "Accept-encoding"], &["Cookie", "Accept-encoding"]),
    ] {
        let response = get(move || {
            given
                .iter()
                .fold(Response::text(page(2000)), |response, value| response.header("Vary", *value))
        });
        assert_eq!(vary(&response), expected);
        assert_eq!(coding(&response), Some("gzip"));
    }
}

/// RFC 9110, section 9.3.2.
#[test]
fn a_head_is_that_of_a_get() {
    let app = || {
        App::new()
            .get("/short", |_, _| "short")
            .get("/page", |_, _| Response::html(page(20_000)).header("ETag", "\"a\""))
            .get("/long", |_, _| Response::html(page(200_000)))
            .get("/stream", |_, _| {
                Response::stream(|_: &mut Part<'_>| Flow::End).content_type("text/plain")
            })
            .compress(Compress::new())
    };
    let mut caller = Caller::of(app());
    for path in ["/short", "/page", "/long", "/stream"] {
        for accepted in ["gzip", "deflate", "br"] {
            let all = [test::get(path), test::head(path)].map(|request| {
                let response = caller.call(request.header("Accept-Encoding", accepted));
                let fields = response.headers().filter(|field| field.0 != "Date");
                let fields: Vec<_> =
                    fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
                (response.status(), fields)
            });
            assert_eq!(all[0], all[1], "{path} {accepted}");
        }
    }
}

/// Hooks see heads without the coding, and prevent it; the count of bytes is that of the wire.
#[test]
fn hooks_come_first_and_the_end_tells_what_was_sent() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let (seen, ended) = (Arc::clone(&notes), Arc::clone(&notes));
    let app = App::new()
        .get("/", |_, _| Response::html(page(9000)))
        .get("/token", |_, _| Response::html(page(9000)))
        .get("/error", |_, _| Err::<(), _>(Error::new(Status::CONFLICT)))
        .get("/long", |_, _| Response::html(page(300_000)))
        .after(move |_, q, head| {
            let note = format!("{:?}", head.get("Content-Encoding"));
            seen.lock().expect("no panic").push(note);
            if q.is_some_and(|q| q.path() == "/token") {
                head.set("Content-Encoding", "identity");
            }
        })
        .on_error(|_, _, _| Response::html(page(9000)))
        .finished(move |_, f| {
            let error = f.error().map(|error| error.status());
            ended.lock().expect("no panic").push(format!("{} {:?} {error:?}", f.sent(), f.cause()));
        })
        .compress(Compress::new());
    let mut caller = Caller::of(app);
    for (path, expected, error) in [
        ("/", Some("gzip"), None),
        ("/token", None, None),
        ("/error", Some("gzip"), Some(Status::CONFLICT)),
        ("/none", Some("gzip"), Some(Status::NOT_FOUND)),
        ("/long", Some("gzip"), None),
    ] {
        let response = caller.call(test::get(path).header("Accept-Encoding", "gzip"));
        assert_eq!(coding(&response), expected, "{path}");
        let len = if path == "/long" { 300_000 } else { 9000 };
        assert_eq!(response.decoded(), page(len).as_bytes(), "{path}");
        let told = std::mem::take(&mut *notes.lock().expect("no panic"));
        let sent = response.body().len();
        assert_eq!(told, ["None".to_owned(), format!("{sent} None {error:?}")], "{path}");
    }
}

/// A nested application has the rules of the outer one.
#[test]
fn rules_are_those_of_the_server() {
    let request = || test::get("/in/page").header("Accept-Encoding", "gzip");
    let inner = || App::new().get("/page", |_, _| Response::html(page(9000)));
    let outer = App::new().nest("/in", inner()).compress(Compress::new());
    assert_eq!(coding(&outer.call(request())), Some("gzip"));
    let outer = App::new().nest("/in", inner().compress(Compress::new()));
    assert_eq!(coding(&outer.call(request())), None);
}

/// All other ways to a response.
#[test]
fn late_responses_are_compressed() {
    let app = App::new()
        .get("/job", |_, q| q.blocking(|| page(9000), |_, page| Response::html(page)))
        .post("/behind", |_, q| q.collect(1 << 20, |_, q| q.text().map(|text| text.to_owned())))
        .at_head()
        .post("/whole", |_, q| q.text().map(|text| text.to_owned()))
        .get("/later", |_, _| {
            let (later, response) = Response::later();
            later
                .respond(Response::shared(page(9000).into_bytes()).content_type("text/html"))
                .expect("it waits");
            response
        })
        .get("/events", |_, _| Response::events().first(ServerEvent::data(page(9000))))
        .compress(Compress::new());
    let mut caller = Caller::of(app);
    let post = |path: &str| test::post(path).body(page(9000));
    for request in [test::get("/job"), post("/behind"), post("/whole"), test::get("/later")] {
        let response = caller.call(request.header("Accept-Encoding", "deflate"));
        assert_eq!(coding(&response), Some("deflate"));
        assert_eq!(response.decoded(), page(9000).as_bytes());
    }
}

#[test]
fn bad_settings_are_refused() {
    let panics = |set: fn() -> Compress| std::panic::catch_unwind(set).is_err();
    assert!(panics(|| Compress::new().level(0)));
    assert!(panics(|| Compress::new().level(10)));
    for level in 1..=9 {
        let _ = Compress::new().level(level);
    }
    for kind in ["text", "", "*", "/", "text/", "/html", "a/b;c=d", "a/b, c/d", "+", "a b/c", "*/*"]
    {
        let set = || Compress::new().types([kind]);
        assert!(std::panic::catch_unwind(set).is_err(), "{kind:?}");
    }
}
