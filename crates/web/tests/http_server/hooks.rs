//! Hooks: who is called for what, in which order, and that the end of each request is told once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{End, Net, statuses};
use windlass_web::{App, Error, Flow, Limits, Part, Response, Status, test};

/// What hooks have noted, by all loops.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// An application that notes the end of each request.
    fn of<S: 'static>(&self, app: App<S>) -> App<S> {
        let notes = self.clone();
        app.finished(move |_, f| {
            let status = f.status().map_or(0, Status::code);
            let method = f.method().unwrap_or("-");
            let target = f.target().unwrap_or("-");
            let cause = f.cause().map_or(String::new(), |cause| format!(" {cause:?}"));
            assert_eq!(f.to_head().is_some(), f.status().is_some());
            assert!(f.to_head().is_none_or(|span| span <= f.took()));
            assert_eq!(f.peer().is_some(), f.method().is_some());
            notes.add(format!("{method} {target} {:?} {status} {}{cause}", f.route(), f.sent()));
        })
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn hooked(notes: &Notes, name: &'static str) -> App<()> {
    let (first, second, third) = (notes.clone(), notes.clone(), notes.clone());
    App::new()
        .before(move |_, _| {
            first.add(format!("before {name}"));
            None
        })
        .after(move |_, _, head| {
            second.add(format!("after {name}"));
            head.add("X-After", name);
        })
        .finished(move |_, f| third.add(format!("finished {name} {:?}", f.route())))
}

/// The hooks of all applications around a request, the inner ones in the middle.
fn the_order<N: Net>() {
    let notes = Notes::default();
    let inner = hooked(&notes, "inner")
        .get("/in", |_, _| "in")
        .nest("/deep", hooked(&notes, "deep").get("/x", |_, _| "deep").fallback(|_, _| "deepest"));
    let app = hooked(&notes, "outer").get("/", |_, _| "out").nest("/a", inner);
    let mut net = N::start(app);
    let around = |names: &[&str], route: &str| {
        let mut all: Vec<String> = names.iter().map(|name| format!("before {name}")).collect();
        all.extend(names.iter().rev().map(|name| format!("after {name}")));
        all.extend(names.iter().rev().map(|name| format!("finished {name} {route:?}")));
        all
    };
    let (outer, inner, deep) = (&["outer"][..], &["outer", "inner"], &["outer", "inner", "deep"]);
    for (path, names, route, status) in [
        ("/", outer, "/", 200),
        ("/none", outer, "", 404),
        ("/ab", outer, "", 404),
        ("/a/in", inner, "/a/in", 200),
        // What is below a nested application is its own, also if there is no route.
        ("/a", inner, "", 404),
        ("/a/", inner, "", 404),
        ("/a/none/more", inner, "", 404),
        ("/a/deep/x", deep, "/a/deep/x", 200),
        ("/a/deep/none", deep, "", 200),
    ] {
        let (heard, end) = net.ask(get(path).as_bytes());
        assert_eq!((statuses(&heard), end), (vec![status], End::Eof), "{path}");
        assert_eq!(notes.take(), around(names, route), "{path}");
        assert_eq!(heard.matches("X-After: ").count(), names.len(), "{path}: {heard}");
    }
}

/// `before` answers: nothing further inside is called, and the head is changed as any other.
fn before_answers<N: Net>() {
    let notes = Notes::default();
    let inner =
        hooked(&notes, "inner").get("/x", |_, _| -> &'static str { panic!("it is called") });
    let refused = || Error::new(Status::UNAUTHORIZED).header("WWW-Authenticate", "Basic");
    let app = hooked(&notes, "outer").before(move |_, _| Some(refused().into())).nest("/a", inner);
    let mut net = N::start(app);
    let (heard, _) = net.ask((get("/a/x") + &get("/a/none")).as_bytes());
    assert_eq!(statuses(&heard), [401, 401]);
    assert_eq!(heard.matches("WWW-Authenticate: Basic\r\n").count(), 2);
    assert_eq!(heard.matches("X-After: inner\r\nX-After: outer\r\n").count(), 2, "{heard}");
    let each = |route: &str| {
        let finished = ["inner", "outer"].map(|name| format!("finished {name} {route:?}"));
        let mut all = ["before outer", "after inner", "after outer"].map(String::from).to_vec();
        all.extend(finished);
        all
    };
    assert_eq!(notes.take(), [each("/a/x"), each("")].concat());
}

fn all_kinds(notes: &Notes) -> App<()> {
    let app = App::new()
        .get("/", |_, _| "whole")
        .get("/error", |_, _| Err::<(), _>(Error::new(Status::CONFLICT)))
        .get("/job", |_, q| q.blocking(|| "late", |_, text| text))
        .get("/panic", |_, _| -> &'static str { panic!("a handler") })
        .get("/late-panic", |_, q| q.blocking(|| (), |_, ()| -> &'static str { panic!("late") }))
        .get("/job-panic", |_, q| q.blocking(|| panic!("a job"), |_, ()| ()))
        .get("/bad-field", |_, _| Response::text("x").header("A\nB", "c"))
        .get("/stream", |_, _| {
            let mut left = 3;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(b"part");
                left -= 1;
                if left > 0 { Flow::More } else { Flow::End }
            })
        })
        .post("/small", |_, q| q.body().map(<[u8]>::to_vec))
        .body_limit(4)
        .after(|_, _, head| head.set("X-After", "1"));
    notes.of(app)
}

/// Every response has what `after` adds, and its end is told once.
fn every_response_has_hooks<N: Net>() {
    let notes = Notes::default();
    let mut net = N::start(all_kinds(&notes));
    let post =
        |len: usize| format!("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
    for (asked, line, status) in [
        (get("/"), "GET / \"/\" 200 5", 200),
        (get("/").replace("GET", "HEAD"), "HEAD / \"/\" 200 0", 200),
        (get("/").replace("GET", "OPTIONS"), "OPTIONS / \"/\" 204 0", 204),
        (get("/error"), "GET /error \"/error\" 409 8", 409),
        (get("/job"), "GET /job \"/job\" 200 4", 200),
        (get("/panic"), "GET /panic \"/panic\" 500 21", 500),
        (get("/late-panic"), "GET /late-panic \"/late-panic\" 500 21", 500),
        (get("/job-panic"), "GET /job-panic \"/job-panic\" 500 21", 500),
        (get("/stream"), "GET /stream \"/stream\" 200 12", 200),
        (get("/none?a"), "GET /none?a \"\" 404 9", 404),
        (get("/small"), "GET /small \"/small\" 405 18", 405),
        (get("/").replace("GET", "BREW"), "BREW / \"\" 501 15", 501),
        (post(4) + "four", "POST /small \"/small\" 200 4", 200),
        (post(5) + "fives", "POST /small \"/small\" 413 33", 413),
        (post(4) + "cut", "POST /small \"/small\" 400 24", 400),
    ] {
        let (heard, end) = net.ask(asked.as_bytes());
        assert_eq!((statuses(&heard), end), (vec![status], End::Eof), "{asked}");
        assert!(heard.contains("\r\nX-After: 1\r\n"), "{asked}: {heard}");
        let told = notes.take();
        // The resource of an unknown method may have hooks, but no route has the method.
        let is_told = told.len() == 1 && (told[0] == line || status == 501);
        assert!(is_told, "{asked}: {told:?}, not {line:?}");
    }
    for asked in
        ["no request\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\nHost: a\r\n\r\n"]
    {
        let (heard, _) = net.ask(asked.as_bytes());
        assert!(heard.contains("\r\nX-After: 1\r\n"), "{asked}: {heard}");
        let [told] = &notes.take()[..] else { panic!("{asked} is told not once") };
        assert!(told.starts_with("- - \"\" "), "{told}");
    }
    // The head cannot be written, so that no field of the program is.
    let (heard, _) = net.ask(get("/bad-field").as_bytes());
    assert_eq!(statuses(&heard), [500]);
    assert_eq!(notes.take(), ["GET /bad-field \"/bad-field\" 500 0"]);
}

/// Pipelined requests are told each, in their order.
fn a_pipeline_is_told_in_order<N: Net>() {
    let notes = Notes::default();
    let mut net = N::start(all_kinds(&notes));
    let paths = ["/", "/job", "/stream", "/none", "/"];
    let all: String = paths.iter().map(|path| get(path)).collect();
    let (heard, _) = net.ask(all.as_bytes());
    assert_eq!(statuses(&heard), [200, 200, 200, 404, 200]);
    let told: Vec<_> = notes.take();
    let targets: Vec<_> = told.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(targets, paths);
}

/// Requests whose client goes, or whose response breaks, are told with a cause.
fn what_is_not_whole_has_a_cause<N: Net>() {
    let notes = Notes::default();
    let app = App::new()
        .get("/", |_, _| "whole")
        .get("/fails", |_, _| {
            Response::stream(|part: &mut Part<'_>| {
                part.write(b"a part");
                Flow::Fail
            })
        })
        .get("/panics", |_, _| Response::stream(|_: &mut Part<'_>| -> Flow { panic!("source") }))
        .get("/endless", |_, _| {
            Response::stream(|part: &mut Part<'_>| {
                part.write(&[b'x'; 4096]);
                Flow::More
            })
        })
        .post("/body", |_, _| "never");
    let mut net = N::start(notes.of(app));
    for (path, cause) in [("/fails", "Aborted"), ("/panics", "Panicked")] {
        let (heard, end) = net.provoke(get(path).as_bytes());
        assert!(!heard.ends_with("0\r\n\r\n"), "{heard}");
        assert_eq!(end, End::Reset, "{path}");
        let [told] = &notes.take()[..] else { panic!("{path} is told not once") };
        assert!(told.starts_with(&format!("GET {path} {path:?} 200 ")), "{told}");
        assert!(told.ends_with(cause), "{told}");
    }
    let client = net.connect();
    net.say(client, get("/endless").as_bytes());
    net.hear(client, "some of it", |heard| heard.len() > 10_000);
    net.reset(client);
    until(&mut net, &notes, |told| {
        told.starts_with("GET /endless \"/endless\" 200 ") && told.matches(' ').count() == 5
    });
    let client = net.connect();
    net.say(client, b"POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n");
    net.say(client, b"Content-Length: 10\r\n\r\n");
    net.hear(client, "the wish", |heard| heard.ends_with(b"100 Continue\r\n\r\n"));
    net.reset(client);
    until(&mut net, &notes, |told| told.starts_with("POST /body \"/body\" 0 0 "));
}

/// Serves other requests until a line is there.
fn until<N: Net>(net: &mut N, notes: &Notes, is: impl Fn(&str) -> bool) {
    for _ in 0..10_000 {
        let told: Vec<_> =
            notes.take().into_iter().filter(|line| line != "GET / \"/\" 200 5").collect();
        match &told[..] {
            [] => {}
            [one] if is(one) => return,
            other => panic!("{other:?}"),
        }
        net.ask(get("/").as_bytes());
    }
    panic!("it is not told");
}

/// A hook that panics spoils its own request only.
fn panics_of_hooks<N: Net>() {
    let notes = Notes::default();
    let app = App::new()
        .get("/{which}", |_, _| "whole")
        .before(|_, q| {
            assert_ne!(q.path(), "/before", "a hook panics");
            None
        })
        .after(|_, q, head| {
            head.set("X-After", "1");
            assert!(q.is_none_or(|q| q.param("which") != "after"), "a hook panics");
        })
        .finished(|_, f| assert_ne!(f.target(), Some("/finished"), "a hook panics"))
        .on_error(|_, q, _| {
            assert!(q.is_none_or(|q| q.path() != "/on/error"), "a hook panics");
            Response::text("shaped")
        });
    let mut net = N::start(notes.of(app));
    for (path, status, body, has_after) in [
        ("/before", 500, "shaped", true),
        ("/after", 500, "", false),
        ("/finished", 200, "whole", true),
        ("/on/error", 404, "Not Found", true),
        ("/x", 200, "whole", true),
    ] {
        let (heard, _) = net.ask(get(path).as_bytes());
        assert_eq!(statuses(&heard), [status], "{path}");
        assert!(heard.ends_with(&format!("\r\n\r\n{body}")), "{path}: {heard}");
        assert_eq!(heard.contains("X-After: 1"), has_after, "{path}: {heard}");
        assert_eq!(notes.take().len(), 1, "{path}");
    }
}

crate::every_driver! {
    the_order
    before_answers
    every_response_has_hooks
    a_pipeline_is_told_in_order
    what_is_not_whole_has_a_cause
    panics_of_hooks
}

/// The page "Why did my connection end?" of the guide says which of them close.
#[test]
fn a_status_of_the_server_closes_or_goes_on() {
    let app = || {
        let app = App::new().limits(Limits::new().body(10).answer(Duration::from_secs(5)).line(99));
        app.get("/fails", |_, _| Status::INTERNAL_SERVER_ERROR)
            .get("/panics", |_, _| -> &'static str { panic!("as it is meant to") })
            .get("/splits", |_, _| Response::text("a").header("a", "b\r\nc: d"))
            .get("/drops", |_, _| Response::later().1)
            .get("/waits", |_, _| {
                let (later, response) = Response::later();
                std::mem::forget(later);
                response
            })
            .get("/busy", |_, q| q.blocking(|| (), |_, ()| ()))
            .running(0)
            .get("/echo", |_, q| q.upgrade("echo", NoProtocol))
            .post("/body", |_, _| "it fits")
    };
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(200));
    let with = |fields: &str| format!("POST /body HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let large = "Content-Length: 100000\r\n";
    for (request, status, goes_on) in [
        (get("/none"), 404, true),
        (with("").replace("/body", "/fails"), 405, true),
        (get("/fails").replace("GET", "BREW"), 501, true),
        (get("/fails"), 500, true),
        (get("/drops"), 500, true),
        (get("/busy"), 503, true),
        (get("/echo"), 426, true),
        (with("Content-Length: 11\r\n") + "12345678901", 413, true),
        (get("/panics"), 500, false),
        (get("/splits"), 500, false),
        (get("/waits"), 504, false),
        (with(large), 413, false),
        (with("Expect: 99\r\n"), 417, false),
        (with("Transfer-Encoding: gzip, chunked\r\n"), 501, false),
        (get("/").replace("1.1", "1.2"), 505, false),
        (get("/").replace("Host", "Host "), 400, false),
        (long, 414, false),
    ] {
        let sim = test::Simulation::new(1);
        sim.serve("a:80", app);
        let mut client = sim.connect("a:80");
        assert!(client.write(request.as_bytes()), "{request}");
        let response = client.response("GET").expect("a response");
        let got = (response.status().code(), response.keeps_alive());
        assert_eq!(got, (status, goes_on), "{request}");
    }
}

/// No client offers it.
struct NoProtocol;
impl windlass_web::upgrade::Protocol<()> for NoProtocol {
    fn data(
        &mut self,
        _: &mut (),
        _: &mut windlass_web::upgrade::RawConn<'_, ()>,
        _: windlass_web::windlass::Buf,
    ) {
    }
}

/// Inner errors have the inner shape, if there is one; fields of errors stay.
#[test]
fn errors_are_shaped() {
    let shape = |name: &'static str| {
        move |_: &mut (), q: Option<&windlass_web::Request<'_>>, error: &Error| {
            let cause = error.cause().map(ToString::to_string).unwrap_or_default();
            let path = q.map_or("-", |q| q.path());
            Response::text(format!("{name} {} {path} {cause}", error.status().code()))
        }
    };
    let failing = || App::new().get("/io", |_, _| Err::<(), _>(std::io::Error::other("disk")));
    let app = failing()
        .nest("/plain", failing())
        .nest("/own", failing().on_error(shape("inner")))
        .on_error(shape("outer"));
    let mut caller = test::Caller::of(app);
    for (path, status, text) in [
        ("/io", 500, "outer 500 /io disk"),
        ("/plain/io", 500, "outer 500 /plain/io disk"),
        ("/own/io", 500, "inner 500 /own/io disk"),
        ("/own/none", 404, "inner 404 /own/none "),
        ("/none", 404, "outer 404 /none "),
    ] {
        let reply = caller.call(test::get(path));
        assert_eq!((reply.status().code(), reply.text()), (status, text));
    }
    let reply = caller.call(test::post("/own/io"));
    assert_eq!((reply.status().code(), reply.text()), (405, "inner 405 /own/io "));
    assert_eq!(reply.header("Allow"), Some("GET, HEAD, OPTIONS"));
}

/// Late errors have hooks, too, and all times are those of the simulation.
#[test]
fn times_are_virtual() {
    const SECOND: Duration = Duration::from_secs(1);
    let notes = Notes::default();
    let times = Arc::new(Mutex::new(Vec::new()));
    let (noted, shared) = (notes.clone(), Arc::clone(&times));
    test::seeds(0..10, move |sim| {
        let (notes, times) = (noted.clone(), Arc::clone(&shared));
        sim.serve("a.test:80", move || {
            let times = Arc::clone(&times);
            let keep = Mutex::new(Vec::new());
            let app = App::new()
                .post("/", |_, q| q.body().map(<[u8]>::to_vec))
                .get("/never", move |_, _| {
                    let (later, response) = Response::later();
                    keep.lock().unwrap().push(later);
                    response
                })
                .after(|_, _, head| head.set("X-After", "1"))
                .limits(Limits::new().answer(5 * SECOND).head(4 * SECOND))
                .finished(move |_, f| times.lock().unwrap().push((f.to_head(), f.took())));
            notes.of(app)
        });
        let mut slow = sim.connect("a.test:80");
        slow.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfo");
        sim.sleep(3 * SECOND);
        slow.write(b"ur");
        assert_eq!(slow.response("POST")?.text(), "four");
        slow.write(get("/never").as_bytes());
        let late = slow.response("GET")?;
        assert_eq!((late.status().code(), late.header("X-After")), (504, Some("1")));
        let mut half = sim.connect("a.test:80");
        half.write(b"GET / HT");
        let late = half.response("GET")?;
        assert_eq!((late.status().code(), late.header("X-After")), (408, Some("1")));
        let told = ["POST / \"/\" 200 4", "GET /never \"/never\" 504 15", "- - \"\" 408 27"];
        assert_eq!(noted.take(), told);
        let times = std::mem::take(&mut *shared.lock().unwrap());
        for ((to_head, took), seconds) in times.into_iter().zip([3, 5, 4]) {
            assert_eq!(to_head, Some(took));
            // The network takes some time, and a limit may be late by a sixteenth.
            let least = seconds * SECOND - SECOND / 100;
            let most = SECOND.mul_f64(f64::from(seconds) * 1.1 + 0.5);
            assert!(took > least && took < most, "{took:?} for {seconds} s");
        }
        Ok(())
    });
}
