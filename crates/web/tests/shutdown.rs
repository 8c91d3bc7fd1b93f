//! Shutdowns: with a delay in which the server says that it wants no clients, and the report.
#![allow(missing_docs)] // a test binary has no users

#[path = "../../../tests/common/child.rs"]
#[allow(dead_code, unreachable_pub)] // this test uses a part
mod child;
#[path = "common/wire.rs"]
mod wire;

use std::io::BufRead;
use std::time::Duration;

use windlass_web::test::get;
use windlass_web::windlass::net::ConnectOptions;
use windlass_web::windlass::sim::Sim;
use windlass_web::windlass::{Completions, Done, Op, Source, Watcher};
use windlass_web::{App, Flow, Part, Response, ServerLoop, Status};
use wire::Client;

const SECOND: Duration = Duration::from_secs(1);

/// One more than a delay that a test must not wait for.
const LONG: Duration = Duration::from_secs(100_000);

fn app() -> App {
    App::new().get("/", |_, q| format!("{}", q.is_draining())).health("/healthz")
}

#[test]
fn a_healthy_server_is_ready() {
    let reply = app().call(get("/healthz"));
    assert_eq!((reply.status(), reply.text()), (Status::OK, "ready"));
}

/// A server and clients in a simulation, where a delay costs nothing.
struct Bench {
    watcher: Watcher,
    server: ServerLoop<()>,
    heard: Vec<Vec<u8>>,
    ended: Vec<bool>,
    sources: Vec<Source>,
}

impl Bench {
    fn new(app: App) -> Bench {
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let app = app.listen("127.0.0.1:80").expect("an address");
        let server = app.start_on(&mut watcher).expect("it starts");
        Bench { watcher, server, heard: Vec::new(), ended: Vec::new(), sources: Vec::new() }
    }

    fn connect(&mut self) -> usize {
        let at = self.sources.len();
        let options = ConnectOptions::default().token(at as u64);
        let source = self.watcher.connect([([127, 0, 0, 1], 80)], options).expect("a source").0;
        self.sources.push(source);
        self.heard.push(Vec::new());
        self.ended.push(false);
        at
    }

    fn ask(&mut self, at: usize, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        let write = Op::write(self.sources[at], request).token(at as u64);
        self.watcher.submit(write).expect("room");
        let mut reply = String::new();
        self.run_until("a reply", |bench| {
            let Some(end) = bench.heard[at].windows(4).position(|four| four == b"\r\n\r\n") else {
                return false;
            };
            let head = String::from_utf8(bench.heard[at][..end].to_vec()).unwrap();
            let len = head.split("Content-Length: ").nth(1).expect("a length");
            let len: usize = len.lines().next().unwrap().parse().unwrap();
            if bench.heard[at].len() < end + 4 + len {
                return false;
            }
            let all: Vec<u8> = bench.heard[at].drain(..end + 4 + len).collect();
            reply = String::from_utf8(all).unwrap();
            true
        });
        reply
    }

    fn run_until(&mut self, what: &str, mut done: impl FnMut(&mut Bench) -> bool) {
        for _ in 0..10_000 {
            if done(self) {
                return;
            }
            let mut batch = Completions::new();
            self.watcher.wait_timeout(&mut batch, 10 * SECOND).expect("a wait");
            for completion in batch.drain(..) {
                let Some(own) = self.server.complete(&mut self.watcher, completion) else {
                    continue;
                };
                let at = own.token as usize;
                match own.result {
                    Ok(Done::Read(data)) if data.is_eof() => self.ended[at] = true,
                    Ok(Done::Read(data)) => self.heard[at].extend_from_slice(&data),
                    Ok(Done::Connected(_)) => {
                        let read = Op::read(self.sources[at]).multishot().token(own.token);
                        self.watcher.submit(read).expect("room");
                    }
                    Ok(_) => {}
                    Err(_) => self.ended[at] = true,
                }
            }
            self.server.turn(&mut self.watcher);
        }
        panic!("{what} does not come");
    }
}

/// The server accepts and keeps connections during the delay, and its health is 503.
#[test]
fn a_delay_comes_before_the_shutdown() {
    let mut bench = Bench::new(app().drain_delay(30 * SECOND).grace(10 * SECOND));
    let old = bench.connect();
    assert!(bench.ask(old, "/healthz").starts_with("HTTP/1.1 200 "));
    let start = bench.watcher.now();
    bench.server.remote().drain();
    bench.run_until("the delay", |bench| bench.ask(old, "/").ends_with("true"));
    let new = bench.connect();
    for client in [old, new, old] {
        let unwell = bench.ask(client, "/healthz");
        assert!(unwell.starts_with("HTTP/1.1 503 "), "{unwell}");
        assert!(!unwell.contains("Connection: close"), "{unwell}");
    }
    bench.run_until("the ends", |bench| bench.ended == [true, true]);
    let took = bench.watcher.now() - start;
    assert!(took >= 30 * SECOND && took < 32 * SECOND, "{took:?}");
    for source in bench.sources.clone() {
        bench.watcher.abort(source);
    }
    bench.run_until("the shutdown", |bench| bench.server.is_over());
    let report = bench.server.report();
    assert_eq!(report.requests.classes[1], report.requests.all() - 3);
    assert_eq!(report.requests.classes[4], 3);
    assert!(report.unfinished.is_empty());
}

#[test]
fn a_second_call_ends_the_delay() {
    let mut bench = Bench::new(app().drain_delay(LONG));
    let client = bench.connect();
    bench.ask(client, "/");
    let start = bench.watcher.now();
    bench.server.remote().drain();
    bench.run_until("the delay", |bench| bench.ask(client, "/").ends_with("true"));
    bench.server.remote().drain();
    bench.run_until("the end", |bench| bench.ended == [true]);
    assert!(bench.watcher.now() - start < SECOND);
}

/// Without a delay it is a shutdown.
#[test]
fn no_delay_is_a_shutdown() {
    let running = app().listen("127.0.0.1:0").unwrap().loops(2).start().unwrap();
    let mut client = Client::new(running.address());
    client.get("/"); // it is accepted: what is not gets a reset of the system
    running.remote().drain();
    assert_eq!(client.rest().as_deref(), Some(&b""[..]), "an idle connection is closed");
    running.wait().unwrap();
}

/// All loops hear of a signal, and the second one ends the delay.
#[cfg(unix)]
#[test]
fn sigterm_begins_the_delay() {
    const NAME: &str = "sigterm_begins_the_delay";
    if child::is_child(NAME) {
        let app = app().drain_delay(LONG).loops(2).listen("127.0.0.1:0").unwrap();
        let running = app.start().unwrap();
        println!("at {}", running.address());
        running.wait().unwrap();
        return;
    }
    let mut process = child::spawn(NAME, NAME);
    let mut lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.unwrap().split_once("at ")?.1.parse().unwrap()));
    let address = address.expect("it serves");
    let kill = || {
        let id = process.id().to_string();
        let kill = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(kill.unwrap().success());
    };
    let health = || Client::new(address).get("/healthz").status;
    assert_eq!(health(), 200);
    kill();
    // Each loop hears of it in its next turn. Connections go to each loop in turn.
    while (health(), health()) != (503, 503) {}
    kill();
    assert!(process.wait().unwrap().success());
}

/// A running request is answered, with `Connection: close`.
#[test]
fn a_request_that_runs_is_answered() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (told, begins) = (std::sync::Mutex::new(Some(told)), std::sync::Mutex::new(None));
    let (began, has_begun) = std::sync::mpsc::channel::<()>();
    *begins.lock().unwrap() = Some(began);
    let app = App::new().get("/", move |_, q| {
        let told = told.lock().unwrap().take().expect("one request");
        let began = begins.lock().unwrap().take().expect("one request");
        let wait = move || {
            began.send(()).unwrap();
            told.recv().unwrap();
        };
        q.blocking(wait, |_, ()| "answered")
    });
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    let silent = Client::new(running.address());
    let mut client = Client::new(running.address());
    client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    has_begun.recv().unwrap();
    running.remote().shutdown();
    assert_eq!(silent.rest().as_deref(), Some(&b""[..]));
    tell.send(()).unwrap();
    let reply = client.reply();
    assert_eq!((reply.text(), reply.get("Connection")), ("answered", Some("close")));
    assert_eq!(client.rest().as_deref(), Some(&b""[..]));
    let report = running.wait().unwrap();
    assert_eq!(report.requests.classes, [0, 1, 0, 0, 0]);
    assert!(report.unfinished.is_empty());
}

#[test]
fn the_report_counts_requests_and_panics() {
    let app = App::new()
        .get("/", |_, _| "whole")
        .get("/moved", |_, _| Response::redirect("/"))
        .get("/panic", |_, _| -> &'static str { panic!("a handler") })
        .get("/source", |_, _| Response::stream(|_: &mut Part<'_>| -> Flow { panic!("a source") }))
        .finished(|_, f| assert_ne!(f.route(), "/moved", "a hook"))
        .loops(2);
    let running = app.listen("127.0.0.1:0").unwrap().start().unwrap();
    for (path, status) in [("/", 200), ("/moved", 307), ("/none", 404), ("/panic", 500)] {
        assert_eq!(Client::new(running.address()).get(path).status, status);
    }
    let mut client = Client::new(running.address());
    client.say("GET /source HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n");
    assert!(client.rest().is_none(), "a reset");
    let report = running.shutdown().unwrap();
    assert_eq!(report.requests.classes, [0, 2, 1, 1, 1]);
    assert_eq!((report.requests.all(), report.requests.without_response), (5, 0));
    assert_eq!(report.panics, 3);
    assert_eq!(report.counters.accepted, 5);
}
