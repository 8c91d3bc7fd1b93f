//! A client in a loop of the program: on every driver and in the simulation.

use std::time::Duration;

use crate::bench::{Web, serve};
use crate::common::{Harness, PATIENCE};
use windlass::Completions;
use windlass::driver::Driver;
use windlass_web::client::{
    Fetch, FetchError, FetchEvent, FetchId, FetchPhase, FetchSettings, Fetched,
};
use windlass_web::engine::Event;
use windlass_web::serve::Config;
use windlass_web::{App, Client, Engine, Error, Flow, Limits, Part, Response, Status};

crate::every_driver! {
    a_response_comes_whole
    connections_are_used_again
    calls_beyond_the_limit_wait_in_order
    calls_that_find_no_room_to_wait_are_refused
    all_servers_share_a_limit
    an_idle_connection_ends
    redirects_are_followed
    secrets_stay_with_their_origin
    redirects_in_a_circle_end
    a_response_comes_in_parts
    a_response_that_is_not_read_waits
    a_cancelled_call_has_no_events
    a_part_that_a_flush_has_found_is_not_told_of_a_cancelled_call
    a_body_is_made_while_it_is_sent
    a_source_that_fails_ends_its_call
    a_body_waits_for_the_server
    a_refused_head_saves_the_body
    a_client_that_stops_ends_its_calls_first
    bad_input_has_an_error
    urls_are_checked_each_time
    a_body_beyond_the_cap_is_refused
    a_host_without_a_server_is_refused
    a_name_is_looked_up
    an_engine_asks_too
}

/// A client beside a server, on one watcher.
struct Both<D: Driver> {
    web: Web<D>,
    client: Client,
    events: Vec<FetchEvent>,
    /// Whether a response is paused behind its head.
    pauses: bool,
}

fn both<T: Harness>(settings: FetchSettings) -> Both<T::Driver> {
    let web = serve::<T, _>(app());
    Both { web, client: Client::new(settings), events: Vec::new(), pauses: false }
}

impl<D: Driver> Both<D> {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.web.address.ip().expect("an address"))
    }

    /// Runs one turn, and waits for it for at most `span`.
    fn turn(&mut self, span: Duration) -> usize {
        let Both { web, client, events, pauses } = self;
        client.flush(&mut web.watcher);
        let mut done = Completions::new();
        let count = web.watcher.wait_timeout(&mut done, span).expect("a wait");
        for completion in done.drain(..) {
            if let Some(other) = client.complete(&mut web.watcher, completion) {
                let other = web.server.complete(&mut web.watcher, other);
                assert!(other.is_none(), "{other:?}");
            }
        }
        web.server.turn(&mut web.watcher);
        while let Some(event) = client.next_event(&mut web.watcher) {
            if let (FetchEvent::Head { id, .. }, true) = (&event, *pauses) {
                client.pause(*id);
            }
            events.push(event);
        }
        count
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.web.watcher.update_now();
        while !ready(self) {
            let now = self.web.watcher.update_now();
            assert!(now - start < 50 * PATIENCE, "still waits for {what}");
            self.turn(PATIENCE);
        }
    }

    #[track_caller]
    fn result(&mut self, id: FetchId) -> Result<Fetched, FetchError> {
        let is_it = move |event: &FetchEvent| match event {
            FetchEvent::Fetched { id: of, .. } => *of == id,
            _ => false,
        };
        self.until("a response", |both| both.events.iter().any(is_it));
        let at = self.events.iter().position(is_it).expect("right from above");
        match self.events.remove(at) {
            FetchEvent::Fetched { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn call(&mut self, fetch: Fetch) -> Result<Fetched, FetchError> {
        let id = self.client.fetch(fetch);
        self.result(id)
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Fetched {
        let url = self.url(path);
        self.call(Fetch::get(url)).expect("a response")
    }
}

fn app() -> App {
    App::new()
        .get("/hello/{name}", |_, q| {
            Response::text(format!("hello {}", q.param("name"))).header("X-Own", "1")
        })
        .any("/echo", |_, q| {
            let text = q.text().map(str::to_owned).unwrap_or_default();
            let (kind, cookie) = (q.header("content-type"), q.header("cookie"));
            format!("{} {text} {kind:?} {cookie:?}", q.method())
        })
        .any("/to", |_, q| {
            let status = q.query("status").and_then(|code| code.parse().ok()).and_then(Status::new);
            let to = q.query("to").unwrap_or("").to_owned();
            Response::text("elsewhere")
                .status(status.unwrap_or(Status::FOUND))
                .header("Location", to)
        })
        .get("/circle", |_, _| Response::empty(Status::FOUND).header("Location", "/circle"))
        .get("/long", |_, _| {
            let mut left = 64;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(&[b'x'; 8192]);
                left -= 1;
                if left == 0 { Flow::End } else { Flow::More }
            })
        })
        .get("/slow", |_, q| q.blocking(|| "slow", |_, text| text))
        .get("/coded", |_, q| {
            let accepts = q.header("accept-encoding").map(str::to_owned);
            #[cfg(feature = "deflate")]
            if accepts.as_deref().is_none_or(|names| names == "gzip, deflate") {
                let body = Response::bytes(GZIP).header("X-Own", "1");
                return body.header("Content-Encoding", "gzip");
            }
            Response::text(format!("{accepts:?}"))
        })
        .post("/picky", |_, _| Error::from(Status::FORBIDDEN))
        .at_head()
}

fn a_response_comes_whole<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let fetched = both.get("/hello/you");
    assert_eq!((fetched.status(), fetched.text().unwrap()), (Status::OK, "hello you"));
    assert_eq!((fetched.header("x-own"), fetched.url()), (Some("1"), None));
    assert_eq!(fetched.headers().filter(|field| field.0 == "X-Own").count(), 1);
    assert_eq!(both.client.requests(), 0);
    let missing = both.get("/none");
    assert_eq!(missing.status(), Status::NOT_FOUND);
    let url = both.url("/hello/you");
    let head = both.call(Fetch::head(url)).expect("a head");
    assert_eq!((head.body(), head.header("content-length")), (&b""[..], Some("9")));
}

fn connections_are_used_again<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    for n in 0..5 {
        both.get(&format!("/hello/{n}"));
    }
    assert_eq!(both.client.counters().connected, 1);
}

fn calls_beyond_the_limit_wait_in_order<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new().connections(2, 64));
    let ids: Vec<FetchId> = (0..10)
        .map(|n| {
            let url = both.url(&format!("/hello/{n}"));
            both.client.fetch(Fetch::get(url))
        })
        .collect();
    assert_eq!(both.client.requests(), 10);
    for (n, id) in ids.into_iter().enumerate() {
        let fetched = both.result(id).expect("a response");
        assert_eq!(fetched.text().unwrap(), format!("hello {n}"));
    }
    assert_eq!(both.client.counters().connected, 2);
}

fn calls_that_find_no_room_to_wait_are_refused<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new().connections(1, 64).waiting(1));
    let url = both.url("/slow");
    let ids: Vec<FetchId> = (0..3).map(|_| both.client.fetch(Fetch::get(url.clone()))).collect();
    assert!(matches!(both.result(ids[2]), Err(FetchError::Full)));
    assert_eq!(Error::from(FetchError::Full).status(), Status::SERVICE_UNAVAILABLE);
    for id in &ids[..2] {
        assert_eq!(both.result(*id).expect("a response").text().unwrap(), "slow");
    }
}

fn all_servers_share_a_limit<T: Harness>() {
    let settings = FetchSettings::new().connections(1, 1).host("other.test", [[127, 0, 0, 1]]);
    let mut both = both::<T>(settings);
    let port = both.web.address.ip().expect("an address").port();
    let (one, other) = (both.url("/slow"), format!("http://other.test:{port}/hello/b"));
    let ids = [&one, &other, &one].map(|url| both.client.fetch(Fetch::get(url.clone())));
    for id in ids {
        both.result(id).expect("a response");
    }
    both.until("the ends of the others", |both| both.client.connections() == 1);
    assert!(both.client.counters().connected >= 2);
}

fn an_idle_connection_ends<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new().idle(T::span(20.0)));
    both.get("/hello/you");
    assert_eq!(both.client.connections(), 1);
    both.until("its end", |both| both.client.is_empty());
    both.get("/hello/you");
    assert_eq!(both.client.counters().connected, 2);
}

fn redirects_are_followed<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let fetched = both.get("/to?to=/hello/there%23part");
    assert_eq!(fetched.text().unwrap(), "hello there");
    assert_eq!(fetched.url(), Some(&*both.url("/hello/there")));
    for (status, wanted) in [
        (301, "GET  None None"),
        (303, "GET  None None"),
        (307, "POST text Some(\"text/x\") None"),
        (308, "POST text Some(\"text/x\") None"),
    ] {
        let url = both.url(&format!("/to?to=/echo&status={status}"));
        let post = Fetch::post(url).header("Content-Type", "text/x").body("text");
        assert_eq!(both.call(post).expect("a response").text().unwrap(), wanted);
    }
    assert_eq!(both.client.counters().connected, 1, "the bodies of redirects are read");
    let url = both.url("/to?to=/hello/there");
    let fetched = both.call(Fetch::get(url).redirects(0)).expect("a response");
    assert_eq!((fetched.status(), fetched.text().unwrap()), (Status::FOUND, "elsewhere"));
}

fn secrets_stay_with_their_origin<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new().host("other.test", [[127, 0, 0, 1]]));
    let port = both.web.address.ip().expect("an address").port();
    for (to, wanted) in [
        ("/echo".to_owned(), "GET  None Some(\"a=b\")"),
        (format!("http://other.test:{port}/echo"), "GET  None None"),
    ] {
        let url = both.url(&format!("/to?to={to}"));
        let fetched = both.call(Fetch::get(url).header("Cookie", "a=b")).expect("a response");
        assert_eq!(fetched.text().unwrap(), wanted);
    }
    let url = both.url("/to?to=file:///etc/passwd");
    match both.call(Fetch::get(url)) {
        Err(FetchError::Redirect { to, .. }) => assert_eq!(to, "file:///etc/passwd"),
        other => panic!("{other:?}"),
    }
}

fn redirects_in_a_circle_end<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/circle");
    match both.call(Fetch::get(url)) {
        Err(FetchError::Redirect { why, .. }) => assert_eq!(why, "there were too many redirects"),
        other => panic!("{other:?}"),
    }
}

fn a_response_comes_in_parts<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/long");
    let id = both.client.fetch_stream(Fetch::get(url));
    let is_end = move |event: &FetchEvent| matches!(event, FetchEvent::End { id: of } if *of == id);
    both.until("the end", |both| both.events.iter().any(is_end));
    let mut events = both.events.drain(..);
    match events.next() {
        Some(FetchEvent::Head { id: of, head }) => {
            assert_eq!((of, head.status(), head.body()), (id, Status::OK, &b""[..]));
        }
        other => panic!("{other:?}"),
    }
    let sizes = events.filter_map(|event| match event {
        FetchEvent::Body { data, .. } => Some(data.len()),
        _ => None,
    });
    assert_eq!(sizes.sum::<usize>(), 64 * 8192);
}

fn a_response_that_is_not_read_waits<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/long");
    let id = both.client.fetch_stream(Fetch::get(url));
    both.until("the head", |both| !both.events.is_empty());
    assert!(both.client.pause(id));
    both.turn(Duration::ZERO);
    both.events.clear();
    for _ in 0..20 {
        both.turn(Duration::from_millis(1));
    }
    assert!(both.events.is_empty(), "{:?}", both.events);
    assert!(both.client.resume(id));
    both.until("the end", |both| matches!(both.events.last(), Some(FetchEvent::End { .. })));
}

fn a_cancelled_call_has_no_events<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/long");
    let id = both.client.fetch_stream(Fetch::get(url.clone()));
    both.until("the head", |both| !both.events.is_empty());
    assert!(both.client.cancel(id) && !both.client.cancel(id));
    let waits = both.client.fetch(Fetch::get(url));
    assert!(both.client.cancel(waits));
    both.events.clear();
    both.until("the end", |both| both.client.is_empty());
    assert!(both.events.is_empty(), "{:?}", both.events);
    both.get("/hello/you");
}

fn a_part_that_a_flush_has_found_is_not_told_of_a_cancelled_call<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/long");
    both.pauses = true;
    let id = both.client.fetch_stream(Fetch::get(url));
    both.until("the head", |both| !both.events.is_empty());
    for _ in 0..20 {
        both.turn(Duration::from_millis(1)); // a part that has come waits
    }
    assert_eq!(both.events.len(), 1);
    assert!(both.client.resume(id));
    both.client.flush(&mut both.web.watcher);
    assert!(both.client.cancel(id));
    both.events.clear();
    both.until("the end", |both| both.client.is_empty());
    assert!(both.events.is_empty(), "{:?}", both.events);
}

/// What is no URL is refused whether its server is known or not.
fn urls_are_checked_each_time<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    for _ in 0..2 {
        for path in ["/a|b", "/a b", "/%zz", "/%4", "/?{", "/#a#"] {
            let url = both.url(path);
            let failed = both.call(Fetch::get(url));
            assert!(matches!(failed, Err(FetchError::Url { .. })), "{path}: {failed:?}");
        }
        both.get("/hello/%61?a=b&c#d");
    }
}

fn a_body_beyond_the_cap_is_refused<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    for _ in 0..2 {
        let url = both.url("/echo");
        let refused = both.call(Fetch::put(url).body(vec![b'x'; (64 << 20) + 1]));
        assert!(matches!(refused, Err(FetchError::Refused)), "{refused:?}");
        both.get("/hello/you"); // the next one finds a connection that is kept
    }
}

fn a_body_is_made_while_it_is_sent<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    for len in [None, Some(30)] {
        let url = both.url("/echo");
        let mut left = 3;
        let source = move |part: &mut Part<'_>| {
            part.write(b"ten bytes ");
            left -= 1;
            if left == 0 { Flow::End } else { Flow::More }
        };
        let fetched = both.call(Fetch::post(url).stream(len, source)).expect("a response");
        let wanted = format!("POST {} None None", "ten bytes ".repeat(3));
        assert_eq!(fetched.text().unwrap(), wanted);
    }
}

fn a_source_that_fails_ends_its_call<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/echo");
    let fails = |_: &mut Part<'_>| Flow::Fail;
    let failed = both.call(Fetch::post(url.clone()).stream(None, fails));
    assert!(matches!(failed, Err(FetchError::Source)), "{failed:?}");
    let panics = |_: &mut Part<'_>| -> Flow { panic!("on purpose") };
    let failed = both.call(Fetch::post(url.clone()).stream(None, panics));
    assert!(matches!(failed, Err(FetchError::Source)), "{failed:?}");
    let short = |_: &mut Part<'_>| Flow::End;
    let failed = both.call(Fetch::post(url).stream(5, short));
    assert!(matches!(failed, Err(FetchError::Source)), "{failed:?}");
    both.get("/hello/you");
}

fn a_body_waits_for_the_server<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/echo");
    let fetched = both.call(Fetch::post(url).body("text").expect_continue()).expect("a response");
    assert_eq!(fetched.text().unwrap(), "POST text None None");
}

fn a_refused_head_saves_the_body<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let url = both.url("/picky");
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = asked.clone();
    let source = move |_: &mut Part<'_>| {
        seen.store(true, std::sync::atomic::Ordering::Relaxed);
        Flow::Wait
    };
    let fetch = Fetch::post(url).stream(1 << 20, source).expect_continue();
    assert_eq!(both.call(fetch).expect("a response").status(), Status::FORBIDDEN);
    assert!(!asked.load(std::sync::atomic::Ordering::Relaxed));
    both.get("/hello/you");
    assert_eq!(both.client.counters().connected, 2, "its connection is not used again");
}

fn a_client_that_stops_ends_its_calls_first<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    both.get("/hello/you");
    let url = both.url("/slow");
    let id = both.client.fetch(Fetch::get(url.clone()));
    both.client.stop();
    assert_eq!(both.result(id).expect("a response").text().unwrap(), "slow");
    both.until("the end", |both| both.client.is_empty());
    assert!(matches!(both.call(Fetch::get(url)), Err(FetchError::Refused)));
}

fn bad_input_has_an_error<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    for url in ["", "hello", "ftp://a/", "http:///", "http://u:p@a/", "http://a:99999/"] {
        let failed = both.call(Fetch::get(url));
        assert!(matches!(failed, Err(FetchError::Url { .. })), "{url}: {failed:?}");
    }
    let url = both.url("/hello/a");
    for fetch in [
        Fetch::get(url.clone()).header("Host", "b"),
        Fetch::get(url.clone()).header("A", "b\r\nC: d"),
        Fetch::get(url.clone()).header("A b", "c"),
        Fetch::new("GET /", url.clone()),
        Fetch::get(format!("{url} b")),
        Fetch::new("CONNECT", url.clone()),
    ] {
        let failed = both.call(fetch);
        let is_told = matches!(failed, Err(FetchError::Request(_) | FetchError::Url { .. }));
        assert!(is_told, "{failed:?}");
    }
    let too_long = both.call(Fetch::get(url).body_limit(3));
    assert!(matches!(too_long, Err(FetchError::TooLong { limit: 3 })), "{too_long:?}");
    let url = both.url("/long");
    let too_long = both.call(Fetch::get(url).body_limit(100_000));
    assert!(matches!(too_long, Err(FetchError::TooLong { limit: 100_000 })), "{too_long:?}");
    #[cfg(not(feature = "webpki-roots"))]
    assert!(matches!(both.call(Fetch::get("https://a.test/")), Err(FetchError::NoTrust)));
}

/// Says what it is to be decoded to, in gzip.
#[cfg(feature = "deflate")]
const GZIP: &[u8] = b"\x1f\x8b\x08\x08\x07\x00\x00\x00\x02\xff\x6e\x61\x6d\x65\x2e\x74\x78\
    \x74\x00\xcb\x48\xcd\xc9\xc9\x57\xc8\x00\x91\x00\x40\xa6\x2d\x01\x0b\x00\x00\x00";

#[cfg(feature = "deflate")]
mod coded {
    use super::*;

    crate::every_driver! {
        a_body_comes_decoded
    }

    fn a_body_comes_decoded<T: Harness>() {
        let mut both = both::<T>(FetchSettings::new());
        let fetched = both.get("/coded");
        assert_eq!(fetched.text().unwrap(), "hello hello");
        assert_eq!(
            (fetched.header("content-encoding"), fetched.header("X-Own")),
            (None, Some("1"))
        );
        let url = both.url("/coded");
        let id = both.client.fetch_stream(Fetch::get(url.clone()));
        both.until("the end", |both| matches!(both.events.last(), Some(FetchEvent::End { .. })));
        let mut heard = Vec::new();
        for event in both.events.drain(..) {
            match event {
                FetchEvent::Body { id: of, data } if of == id => heard.extend_from_slice(&data),
                FetchEvent::Head { head, .. } => assert_eq!(head.header("content-encoding"), None),
                _ => {}
            }
        }
        assert_eq!(heard, b"hello hello");
        let raw = both.call(Fetch::get(url.clone()).decode(false)).expect("a response");
        assert_eq!((raw.body(), raw.header("content-encoding")), (GZIP, Some("gzip")));
        let failed = both.call(Fetch::get(url).body_limit(10));
        assert!(matches!(failed, Err(FetchError::TooLong { limit: 10 })), "{failed:?}");
        assert_eq!(both.client.requests(), 0);
    }
}

fn a_host_without_a_server_is_refused<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    // Of a listener that is closed: nobody is there.
    let port = match T::VIRTUAL {
        true => 9,
        false => {
            let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            closed.local_addr().expect("its address").port()
        }
    };
    let refused = both.call(Fetch::get(format!("http://127.0.0.1:{port}/")));
    match &refused {
        Err(error @ FetchError::Connection(_)) => assert!(!error.is_timeout()),
        other => panic!("{other:?}"),
    }
}

fn a_name_is_looked_up<T: Harness>() {
    let mut both = both::<T>(FetchSettings::new());
    let port = both.web.address.ip().expect("an address").port();
    let fetch = || Fetch::get(format!("http://localhost:{port}/hello/name"));
    let ids = [both.client.fetch(fetch()), both.client.fetch(fetch())];
    for id in ids {
        // The first address of the host may be of IPv6, where nobody listens.
        assert_eq!(both.result(id).expect("a response").text().unwrap(), "hello name");
    }
    assert_eq!(both.client.counters().operations.done, 1, "one look-up for both");
    if T::VIRTUAL {
        let unknown = both.call(Fetch::get("http://unknown.test/"));
        match &unknown {
            Err(FetchError::LookUp { host, .. }) => assert_eq!(host, "unknown.test"),
            other => panic!("{other:?}"),
        }
        assert!(!matches!(unknown, Err(FetchError::Timeout { phase: FetchPhase::LookUp, .. })));
    }
}

fn an_engine_asks_too<T: Harness>() {
    let mut web = serve::<T, _>(app());
    let mut engine = Engine::<()>::new(Config::new(), Limits::new());
    let url = format!("http://{}/hello/engine", web.address.ip().expect("an address"));
    let wanted = [
        engine.fetch(Fetch::get(url.clone())),
        engine.fetch(Fetch::get("no url")),
        engine.fetch(Fetch::get(url.clone())),
    ];
    let (mut done, mut events) = (Completions::new(), Vec::new());
    let cancelled = engine.fetch(Fetch::get(url));
    assert!(engine.cancel_fetch(cancelled) && !engine.cancel_fetch(cancelled));
    while events.len() < 3 {
        engine.flush(&mut web.watcher);
        web.watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
        for completion in done.drain(..) {
            if let Some(other) = engine.complete(&mut web.watcher, completion) {
                assert!(web.server.complete(&mut web.watcher, other).is_none());
            }
        }
        web.server.turn(&mut web.watcher);
        while let Some(event) = engine.next_event(&mut web.watcher) {
            match event {
                Event::Fetched { id, result } => events.push((id, result)),
                other => panic!("{other:?}"),
            }
        }
    }
    for id in wanted {
        let (_, result) = events.iter().find(|event| event.0 == id).expect("one for each");
        match result {
            Ok(fetched) => assert_eq!(fetched.text().unwrap(), "hello engine"),
            Err(error) => assert!(matches!(error, FetchError::Url { .. }), "{error}"),
        }
    }
    engine.stop(&mut web.watcher);
    while !engine.is_empty() {
        engine.flush(&mut web.watcher);
        web.watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
        for completion in done.drain(..) {
            if let Some(other) = engine.complete(&mut web.watcher, completion) {
                web.server.complete(&mut web.watcher, other);
            }
        }
        web.server.turn(&mut web.watcher);
        assert!(engine.next_event(&mut web.watcher).is_none());
    }
}
