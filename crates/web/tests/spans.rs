//! Spans of requests: each has exactly one, however it ends, and what is called for it is in it.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "tracing")]

mod bench;
#[path = "../../serve/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::{Web, serve};
use common::Harness;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, info};
use windlass::driver::Driver;
use windlass::net::SocketOption;
use windlass::{Buf, Source};
use windlass_serve::jobs::Job;
use windlass_web::answers::Later;
use windlass_web::body::{Demand, Receive, Resume};
use windlass_web::upgrade::{Protocol, RawConn};
use windlass_web::{App, Error, Flow, Limits, Part, Request, Response, Status};

every_driver! {
    requests_of_a_pipeline_have_a_span_each
    a_request_that_comes_in_pieces_has_one_span
    what_follows_a_job_is_in_the_span
    a_late_answer_is_in_the_span
    a_receiver_is_in_the_span
    a_stream_is_in_the_span_until_its_end
    a_client_that_goes_closes_the_span
    what_the_server_answers_itself_closes_the_span
    a_failure_closes_the_span
    an_upgrade_closes_the_span
    a_well_formed_traceparent_is_recorded
    what_is_no_request_has_no_span
    spans_that_nobody_wants_are_not_made
    spans_close_without_a_hook_that_hears_of_ends
}

/// A span, its fields, and the events in it.
#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<&'static str, String>,
    events: Vec<String>,
    /// How many handles there are besides the first one.
    clones: usize,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        assert!(self.fields.insert(field.name(), format!("{value:?}")).is_none(), "{field} twice");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Seen {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// What makes out a span that is closed: its route, its status and its events.
    #[track_caller]
    fn closed(&self) -> (&str, Option<&str>, String) {
        assert!(self.is_closed, "{self:?}");
        (self.field("route").unwrap_or("?"), self.field("status"), self.events.join(", "))
    }
}

#[derive(Default)]
struct All {
    spans: Vec<Seen>,
    entered: Vec<u64>,
    /// Events outside of spans.
    outside: Vec<String>,
}

/// Keeps every span of a request. (All of them are entered on the thread of the test.)
#[derive(Clone)]
struct Spans {
    all: Arc<Mutex<All>>,
    most: tracing::Level,
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_known = metadata.target() == "windlass_web" || metadata.target() == "spans";
        is_known && *metadata.level() <= self.most
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        assert!(attributes.is_root() && attributes.metadata().name() == "request");
        let mut span = Seen::default();
        attributes.record(&mut span);
        let spans = &mut self.all.lock().unwrap().spans;
        spans.push(span);
        Id::from_u64(spans.len() as u64)
    }
    fn record(&self, id: &Id, values: &Record<'_>) {
        let span = &mut self.all.lock().unwrap().spans[id.into_u64() as usize - 1];
        assert!(!span.is_closed);
        values.record(span);
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.all.lock().unwrap().spans[id.into_u64() as usize - 1].clones += 1;
        id.clone()
    }
    fn try_close(&self, id: Id) -> bool {
        let span = &mut self.all.lock().unwrap().spans[id.into_u64() as usize - 1];
        if span.clones > 0 {
            span.clones -= 1;
            return false;
        }
        assert!(!std::mem::replace(&mut span.is_closed, true), "closed twice: {span:?}");
        true
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let (mut seen, mut all) = (Seen::default(), self.all.lock().unwrap());
        event.record(&mut seen);
        let text = seen.field("message").expect("a message").to_owned();
        match all.entered.last().copied() {
            Some(id) => all.spans[id as usize - 1].events.push(text),
            None => all.outside.push(text),
        }
    }
    fn enter(&self, id: &Id) {
        let mut all = self.all.lock().unwrap();
        assert!(!all.spans[id.into_u64() as usize - 1].is_closed);
        all.entered.push(id.into_u64());
    }
    fn exit(&self, id: &Id) {
        let left = self.all.lock().unwrap().entered.pop();
        assert_eq!(left, Some(id.into_u64()));
    }
}

impl Spans {
    /// All spans so far. Between the turns of the loop none of them is entered.
    fn all(&self) -> Vec<Seen> {
        let all = self.all.lock().unwrap();
        assert!(all.entered.is_empty());
        all.spans.clone()
    }

    /// The only span.
    #[track_caller]
    fn only(&self) -> Seen {
        let [span] = &self.all()[..] else { panic!("not one span: {:?}", self.all()) };
        span.clone()
    }

    fn open(&self) -> usize {
        self.all().iter().filter(|span| !span.is_closed).count()
    }

    fn outside(&self) -> Vec<String> {
        self.all.lock().unwrap().outside.clone()
    }
}

/// Collects the spans of this thread as long as the guard lives.
fn subscribe(most: tracing::Level) -> (Spans, tracing::subscriber::DefaultGuard) {
    let spans = Spans { all: Arc::default(), most };
    (spans.clone(), tracing::subscriber::set_default(spans))
}

/// What the test has of an application.
struct Told {
    laters: Receiver<Later>,
    /// Jobs wait until the test runs them.
    jobs: Receiver<Job>,
}

/// Tells how its parts come.
struct Parts;

impl Receive<()> for Parts {
    fn begin(&mut self, (): &mut (), _: Resume) {
        info!("begin");
    }
    fn data(&mut self, (): &mut (), part: Buf) -> Result<Demand, Error> {
        if part.contains(&b'!') {
            info!("stop");
            return Ok(Demand::Stop("stopped".into()));
        }
        Ok(Demand::More)
    }
    fn end(self: Box<Self>, (): &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
        info!("end");
        Ok("received".into())
    }
    fn aborted(self: Box<Self>, (): &mut ()) {
        info!("aborted");
    }
}

struct Raw;

impl Protocol<()> for Raw {
    fn data(&mut self, (): &mut (), c: &mut RawConn<'_, ()>, data: Buf) {
        info!("raw");
        let _ = c.write(data);
    }
}

/// An application whose hooks and handlers tell events.
fn app() -> (App, Told) {
    let (app, told) = without_hooks();
    let app = app
        .before(|_, q| {
            info!("before");
            (q.path() == "/before").then(|| Status::FORBIDDEN.into())
        })
        .after(|_, _, head| info!("after {}", head.status().code()))
        .finished(|_, f| {
            info!("finished {:?}", f.status().map(|status| status.code()));
        });
    (app, told)
}

fn without_hooks() -> (App, Told) {
    let (tell, laters) = channel();
    let (queue, jobs) = channel();
    let queue = Mutex::new(queue);
    let app = App::new()
        .executor(move |job| queue.lock().unwrap().send(job).expect("the test listens"))
        .get("/notes/{id}", |_, q| {
            info!("{}", q.param("id"));
            "a note"
        })
        .get("/client", |_, q| q.client().map(|ip| ip.to_string()).unwrap_or_default())
        .get("/trace", |_, q| q.header("traceparent").unwrap_or("none").to_owned())
        .post("/whole", |_, q| {
            info!("{} bytes", q.body().map_or(0, <[u8]>::len));
            "whole"
        })
        .post("/collect", |_, q| {
            q.collect(100, |_, q| {
                info!("{} bytes", q.body().map_or(0, <[u8]>::len));
                "collected"
            })
        })
        .at_head()
        .post("/parts", |_, q| q.receive(Parts))
        .at_head()
        .get("/job", |_, q| {
            q.blocking(
                || 7,
                |_, n| {
                    info!("then {n}");
                    "done"
                },
            )
        })
        .get("/later", move |_, _| {
            let (later, response) = Response::later();
            tell.send(later).expect("the test listens");
            response
        })
        .get("/stream", |_, _| {
            Response::stream(|part: &mut Part<'_>| {
                info!("part");
                part.write(b".");
                if part.has_peer_ended() { Flow::End } else { Flow::Wait }
            })
        })
        .get("/parts/{count}", |_, q| {
            let mut left: u32 = q.parse("count")?;
            Ok::<_, Error>(Response::stream(move |part: &mut Part<'_>| {
                part.write(b".");
                left -= 1;
                if left == 0 { Flow::End } else { Flow::More }
            }))
        })
        .get("/panic", |_, _| -> Response { panic!("as the test wants") })
        .get("/fails", |_, _| Response::stream(|_: &mut Part<'_>| Flow::Fail))
        .get("/raw", |_, q| q.upgrade("raw", Raw));
    (app, Told { laters, jobs })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

const END: &str = "GET /notes/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn post(path: &str, rest: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}")
}

/// Waits for the next value that a handler tells.
fn next<D: Driver, V>(web: &mut Web<D>, told: &Receiver<V>) -> V {
    let mut found = None;
    web.until("a request waits", |_| {
        found = found.take().or_else(|| told.try_recv().ok());
        found.is_some()
    });
    found.expect("right from above")
}

/// A client goes, by a reset.
fn reset<D: Driver>(web: &mut Web<D>, client: Source) {
    let at_once = SocketOption::Linger(Some(Duration::ZERO));
    web.watcher.set_option(client, at_once).expect("an open socket");
    web.close(client);
}

fn requests_of_a_pipeline_have_a_span_each<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let all = ["/notes/7?a=b", "/none", "/before", "/client"].map(get).concat();
    let client = web.ask(all + END);
    let heard = web.until_over(client);
    let [note, none, before, client, last] = &spans.all()[..] else { panic!("{:?}", spans.all()) };
    let of = |id| format!("before, {id}, after 200, finished Some(200)");
    assert_eq!(note.closed(), ("/notes/{id}", Some("200"), of(7.to_string())));
    assert_eq!(last.closed(), ("/notes/{id}", Some("200"), of("last".to_owned())));
    let without = "before, after 404, finished Some(404)".to_owned();
    assert_eq!(none.closed(), ("", Some("404"), without));
    let forbidden = "before, after 403, finished Some(403)".to_owned();
    assert_eq!(before.closed(), ("", Some("403"), forbidden));
    let told = client.field("client").unwrap_or_default();
    assert_eq!((told.is_empty(), heard.contains(&format!("\r\n\r\n{told}HTTP"))), (false, true));
    assert_eq!((note.field("method"), note.field("path")), (Some("GET"), Some("/notes/7?a=b")));
    assert_eq!((note.field("traceparent"), note.field("cause")), (None, None));
    assert!(spans.outside().is_empty());
}

fn a_request_that_comes_in_pieces_has_one_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    for (path, body) in [("/whole", "whole"), ("/collect", "collected")] {
        let before = spans.all().len();
        let client = web.connect();
        for part in [&post(path, "Content-Len"), "gth: 4\r\n\r\nab", "cd"] {
            web.say(client, part.to_owned());
            web.run_for(T::span(1.0));
        }
        web.until_heard(client, body);
        let all = spans.all();
        let [span] = &all[before..] else { panic!("{all:?}") };
        let events = "before, 4 bytes, after 200, finished Some(200)".to_owned();
        assert_eq!(span.closed(), (path, Some("200"), events));
    }
}

fn what_follows_a_job_is_in_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/job") + &get("/notes/7"));
    let job = next(&mut web, &told.jobs);
    assert_eq!(spans.open(), 1);
    // Another connection has its own.
    let other = web.ask(get("/notes/8"));
    web.until_heard(other, "a note");
    assert_eq!((spans.all().len(), spans.open()), (2, 1));
    job.run();
    web.until_heard(client, "a note");
    let [first, _, second] = &spans.all()[..] else { panic!("{:?}", spans.all()) };
    let events = "before, then 7, after 200, finished Some(200)".to_owned();
    assert_eq!(first.closed(), ("/job", Some("200"), events));
    assert_eq!(second.closed().0, "/notes/{id}");
}

fn a_late_answer_is_in_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/later") + END);
    let later = next(&mut web, &told.laters);
    assert_eq!((spans.all().len(), spans.open()), (1, 1));
    let answers = std::thread::spawn(move || later.respond("from there").is_ok());
    assert!(answers.join().expect("no panic"), "its request waits");
    assert!(web.until_over(client).contains("from there"));
    let [late, last] = &spans.all()[..] else { panic!("{:?}", spans.all()) };
    let events = "before, after 200, finished Some(200)".to_owned();
    assert_eq!(late.closed(), ("/later", Some("200"), events));
    assert!(last.is_closed && spans.outside().is_empty());
}

fn a_receiver_is_in_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let head = post("/parts", "Content-Length: 4\r\n\r\n");
    let client = web.ask(head.clone());
    web.until("its head has come", |_| spans.open() == 1);
    web.say(client, "ab");
    web.run_for(T::span(1.0));
    web.say(client, format!("cd{head}!bcd"));
    web.until_heard(client, "stopped");
    let gone = web.ask(head);
    web.until("its head has come", |_| spans.open() == 1);
    web.close(gone);
    web.until("it is closed", |_| spans.open() == 0);
    let [whole, stopped, gone] = &spans.all()[..] else { panic!("{:?}", spans.all()) };
    let events = "before, begin, end, after 200, finished Some(200)".to_owned();
    assert_eq!(whole.closed(), ("/parts", Some("200"), events));
    let events = "before, begin, stop, after 200, finished Some(200)".to_owned();
    assert_eq!(stopped.closed(), ("/parts", Some("200"), events));
    // Where the end of the client comes as an end of file, there is a response to it.
    let (_, status, events) = gone.closed();
    assert!(events.starts_with("before, begin, ") && events.contains("aborted"), "{events}");
    assert_eq!(gone.field("cause").is_some(), status.is_none());
    assert!(spans.outside().is_empty());
}

fn a_stream_is_in_the_span_until_its_end<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let client = web.ask(get("/parts/3") + &get("/stream"));
    web.until("the second stream", |_| spans.all().len() == 2);
    web.until_heard(client, "1\r\n.\r\n0\r\n\r\n");
    assert_eq!(spans.open(), 1);
    web.finish(client);
    web.until_over(client);
    let [first, second] = &spans.all()[..] else { panic!("{:?}", spans.all()) };
    let events = "before, after 200, finished Some(200)".to_owned();
    assert_eq!(first.closed(), ("/parts/{count}", Some("200"), events));
    let (_, status, events) = second.closed();
    assert!(events.starts_with("before, after 200, part, part"), "{events}");
    assert!(events.ends_with("part, finished Some(200)") && status == Some("200"), "{events}");
}

fn a_client_that_goes_closes_the_span<T: Harness>() {
    for path in ["/job", "/later"] {
        let (spans, _guard) = subscribe(tracing::Level::INFO);
        let (app, told) = app();
        // No 504 closes it.
        let mut web = serve::<T, _>(app.limits(Limits::new().answer(Duration::from_secs(1 << 20))));
        let client = web.ask(get(path));
        web.until("it waits", |_| spans.open() == 1);
        reset(&mut web, client);
        web.until("it is closed", |_| spans.open() == 0);
        let span = spans.only();
        assert_eq!(span.closed(), (path, None, "before, finished None".to_owned()));
        assert!(span.field("cause").is_some());
        drop(told);
    }
}

fn what_the_server_answers_itself_closes_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let (app, told) = app();
    let limits = Limits::new().answer(T::span(20.0)).body(10).running(1);
    let mut web = serve::<T, _>(app.limits(limits));
    let late = web.ask(get("/later"));
    let _later = next(&mut web, &told.laters);
    let busy = web.ask(get("/later"));
    let long = web.ask(post("/whole", "Content-Length: 11\r\n\r\n"));
    let cut = web.ask(post("/whole", "Content-Length: 9\r\n\r\n"));
    web.until("all have begun", |_| spans.all().len() == 4);
    web.finish(cut);
    web.until("they are closed", |_| spans.open() == 0);
    assert!(web.until_over(late).starts_with("HTTP/1.1 504 "));
    let mut ends: Vec<_> = spans.all().iter().map(|span| span.closed().2).collect();
    ends.sort();
    let of = |status| format!("before, after {status}, finished Some({status})");
    assert_eq!(ends, [400, 413, 503, 504].map(of));
    let is_its =
        |span: &Seen| span.events.iter().any(|event| event.contains(span.closed().1.unwrap()));
    assert!(spans.all().iter().all(is_its) && spans.outside().is_empty());
    let _ = (busy, long);
}

fn a_failure_closes_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let panics = web.ask(get("/panic"));
    web.until_over(panics);
    let events = "before, after 500, finished Some(500)".to_owned();
    assert_eq!(spans.only().closed(), ("/panic", Some("500"), events));
    let fails = web.ask(get("/fails"));
    web.until_over(fails);
    let fails = spans.all().pop().expect("a span");
    assert_eq!((fails.closed().1, fails.field("cause")), (Some("200"), Some("Aborted")));
}

fn an_upgrade_closes_the_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let offer = "GET /raw HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nabc";
    let client = web.ask(offer);
    web.until_heard(client, "abc");
    let events = "before, after 101, finished Some(101)".to_owned();
    assert_eq!(spans.only().closed(), ("/raw", Some("101"), events));
    assert!(spans.outside().iter().all(|event| event == "raw"));
    assert!(!spans.outside().is_empty());
}

fn a_well_formed_traceparent_is_recorded<T: Harness>() {
    const WELL: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let client = web.connect();
    let field = |value: &str| format!("TraceParent: {value}\r\n");
    let malformed = WELL.to_uppercase();
    let cases = [
        (field(WELL), Some(WELL)),
        (String::new(), None),
        (field(&malformed), None),
        (field(&format!("{WELL}-more")), None),
        (field(WELL) + &field(WELL), None), // whose child would it be?
    ];
    for (fields, recorded) in &cases {
        web.say(client, format!("GET /trace HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let before = spans.all().len();
        web.until("its end", |_| spans.all().len() > before && spans.open() == 0);
        assert_eq!(spans.all()[before].field("traceparent"), *recorded, "{fields}");
    }
    web.say(client, END);
    // Handlers see it as it came.
    let heard = web.until_over(client);
    assert_eq!(heard.matches(WELL).count(), 3);
    assert!(heard.contains(&malformed) && heard.contains("none"));
}

fn what_is_no_request_has_no_span<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let mut web = serve::<T, _>(app().0);
    let client = web.ask(get("/notes/7") + "GET / HTTP/1.1\r\n\r\n");
    assert!(web.until_over(client).contains("HTTP/1.1 400 "));
    assert_eq!(spans.only().closed().1, Some("200"));
    assert_eq!(spans.outside(), ["after 400", "finished Some(400)"]);
}

fn spans_that_nobody_wants_are_not_made<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::WARN);
    let (app, told) = app();
    let mut web = serve::<T, _>(app);
    let client = web.ask(get("/job") + END);
    next(&mut web, &told.jobs).run();
    assert!(web.until_over(client).contains("done"));
    assert!(spans.all().is_empty() && spans.outside().is_empty());
}

fn spans_close_without_a_hook_that_hears_of_ends<T: Harness>() {
    let (spans, _guard) = subscribe(tracing::Level::INFO);
    let (app, told) = without_hooks();
    let mut web = serve::<T, _>(app);
    let paths = ["/notes/7", "/none", "/job", "/later", "/parts/3", "/panic"];
    let client = web.ask(paths.map(get).concat());
    next(&mut web, &told.jobs).run();
    next(&mut web, &told.laters).respond("at last").expect("it waits");
    web.until_over(client);
    let body = web.ask(post("/whole", "Content-Length: 4\r\n\r\n"));
    web.until("its head has come", |_| spans.open() == 1);
    web.say(body, "abcd");
    web.until_heard(body, "whole");
    let gone = [get("/stream"), get("/later"), post("/parts", "Content-Length: 4\r\n\r\n")];
    let gone = gone.map(|request| web.ask(request));
    web.until("they wait", |_| spans.open() == 3);
    for client in gone {
        reset(&mut web, client);
    }
    web.until("they are closed", |_| spans.open() == 0);
    let mut ends: Vec<_> =
        spans.all().iter().map(|span| span.closed().1.map(str::to_owned)).collect();
    ends[7..].sort();
    let ends: Vec<_> = ends.iter().map(|status| status.as_deref().unwrap_or("none")).collect();
    let answered = ["200", "404", "200", "200", "200", "500", "200"];
    assert_eq!(ends, [&answered[..], &["none", "none", "200"]].concat());
    assert!(spans.all()[7..].iter().all(|span| span.field("cause").is_some()));
}
