//! Clients of others: curl, Python, Node.js, Go, load generators, and slowhttptest while another
//! client is served. What is not installed is skipped.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

mod common;
#[path = "../../serve/tests/common/programs.rs"]
mod programs;

use std::io::Write;
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::real::{Real, client, read};
use common::{PATIENCE, count};
use programs::skip::{Needs, skip};
use programs::{Files, has};
use windlass::DriverKind;
use windlass_web::{App, Flow, Limits, Part, Response};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn app() -> App {
    App::new()
        .get("/", |_, _| "Hello")
        .post("/echo", |_, q| q.body().map(<[u8]>::to_vec))
        .put("/echo", |_, q| q.body().map(<[u8]>::to_vec))
        .body_limit(4 << 20)
        .get("/job", |_, q| q.blocking(|| "done", |_, text| text))
        .get("/large", |_, _| Response::bytes(vec![b'z'; 2 << 20]))
        .get("/stream", |_, _| {
            let mut left = 100;
            Response::stream(move |part: &mut Part<'_>| {
                part.write(&[b'y'; 10_000]);
                left -= 1;
                if left > 0 { Flow::More } else { Flow::End }
            })
        })
}

fn start(app: App) -> (Real, String) {
    let server = Real::with(DriverKind::Auto, app);
    let port = server.address().port().to_string();
    (server, port)
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}: {out}{err}");
    out.into_owned()
}

fn peer(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn curl_is_served() {
    if !has("curl", &["--version"], "curl ") {
        return;
    }
    let (server, port) = start(app());
    let files = Files::new("curl");
    let upload = files.write("upload", &"u".repeat(3 << 20));
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let curl = |arguments: &[&str]| {
        output(Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments))
    };
    assert_eq!(curl(&[&url("/"), &url("/"), &url("/job")]), "HelloHellodone");
    assert_eq!(curl(&["--http1.0", &url("/")]), "Hello");
    assert!(curl(&["-I", &url("/stream")]).contains("Transfer-Encoding: chunked\r\n"));
    for version in ["--http1.0", "--http1.1"] {
        assert_eq!(curl(&[version, &url("/stream")]), "y".repeat(1_000_000));
    }
    assert_eq!(curl(&["-d", "a=b", &url("/echo")]), "a=b");
    let chunked = ["-H", "Transfer-Encoding: chunked", "-d", "a=b"];
    assert_eq!(curl(&[&chunked[..], &[&url("/echo")]].concat()), "a=b");
    // A body of this size waits for a 100.
    assert_eq!(curl(&["-T", &upload, &url("/echo")]), "u".repeat(3 << 20));
    let status = ["-o", "/dev/null", "-w", "%{http_code} %{num_connects}"];
    assert_eq!(curl(&[&status[..], &["-T", &upload, &url("/job")]].concat()), "405 1");
    assert_eq!(curl(&[&status[..], &["--path-as-is", &url("/../..")]].concat()), "404 1");
    server.stop();
}

#[test]
fn python_node_and_go_are_served() {
    let (server, port) = start(app());
    if has("python3", &["--version"], "Python 3") {
        assert_eq!(output(Command::new("python3").args([&peer("peer.py"), &port])), "ok\n");
    }
    if has("node", &["--version"], "v") {
        assert_eq!(output(Command::new("node").args([&peer("peer.mjs"), &port])), "ok\n");
    }
    if has("go", &["version"], "go version") {
        assert_eq!(output(Command::new("go").args(["run", &peer("peer.go"), &port])), "ok\n");
    }
    server.stop();
}

#[test]
fn load_generators_are_served() {
    let (server, port) = start(app().limits(Limits::new().requests(16_000)));
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    if has("h2load", &["--version"], "h2load") {
        for (path, bytes) in [("/", 5), ("/job", 4)] {
            let said = output(Command::new("h2load").args([
                "--h1",
                "-n",
                "4000",
                "-c",
                "16",
                "-m",
                "4",
                &url(path),
            ]));
            assert!(said.contains("4000 succeeded, 0 failed, 0 errored"), "{said}");
            assert!(said.contains("status codes: 4000 2xx"), "{said}");
            assert!(said.contains(&format!("({}) data", 4000 * bytes)), "{said}");
        }
    }
    if has("wrk", &["-v"], "wrk") {
        let said = output(Command::new("wrk").args(["-d", "2", "-c", "32", "-t", "1", &url("/")]));
        assert!(said.contains("requests in"), "{said}");
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    }
    server.stop();
}

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// While the slow clients of each mode are connected, another one is served.
#[test]
fn slow_clients_leave_others_served() {
    if !has("slowhttptest", &["-h"], "\nslowhttptest") {
        return;
    }
    let files = Files::new("slow");
    for mode in ["-H", "-B", "-R", "-X"] {
        let (server, port) = start(app());
        let out = std::fs::File::create(files.path("out")).expect("a file");
        let slow = Command::new("slowhttptest")
            .args([mode, "-c", "300", "-r", "300", "-i", "1", "-l", "4", "-p", "10", "-u"])
            .arg(format!("http://127.0.0.1:{port}{}", if mode == "-X" { "/large" } else { "/" }))
            .stdout(out)
            .stderr(Stdio::null())
            .spawn();
        let mut slow = Running(slow.expect("it starts"));
        let start = Instant::now();
        let mut served = 0_u64;
        while slow.0.try_wait().expect("its status").is_none() {
            assert!(start.elapsed() < 3 * PATIENCE, "{mode} does not end");
            let mut other = client(server.address());
            ask(&mut other, 10);
            served += 10;
        }
        assert!(served > 0, "{mode}");
        let said = std::fs::read_to_string(files.path("out")).expect("its output");
        let (_, last) = said.rsplit_once("service available").expect("a status");
        assert!(last.lines().next().is_some_and(|line| line.contains("YES")), "{mode}: {said}");
        let report = server.stop();
        let accepted = report.counters.accepted;
        assert!(accepted >= served / 10 + 300, "{mode}: {accepted} connections");
        assert_eq!(report.panics, 0, "{mode}");
    }
}

/// A client gets so many answers, one after the other.
fn ask(stream: &mut TcpStream, times: usize) {
    for _ in 0..times {
        stream.write_all(GET).expect("a write");
        let mut heard = Vec::new();
        while !heard.ends_with(b"Hello") {
            assert_eq!(read(stream, &mut heard, 1024), None, "an end");
        }
        assert_eq!(count(&heard), 1);
    }
}

/// Beside ten thousand connections without a request, or as many as there are descriptors for,
/// others are served, and then these.
#[test]
fn idle_connections_leave_others_served() {
    let count = (descriptors().saturating_sub(500) / 2).min(10_000);
    if count < 1000 {
        skip(Needs::Descriptors, format!("there are descriptors for {count} connections only"));
        return;
    }
    let (server, _) = start(app().limits(Limits::new().keep_alive(Duration::from_secs(600))));
    let mut idle: Vec<TcpStream> = (0..count).map(|_| client(server.address())).collect();
    idle.iter_mut().step_by(2).for_each(|stream| ask(stream, 1));
    let address = server.address();
    let load: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || ask(&mut client(address), 2000))).collect();
    load.into_iter().for_each(|thread| thread.join().expect("all answers"));
    idle.iter_mut().step_by(7).for_each(|stream| ask(stream, 1));
    server.stop();
}

/// How many descriptors this process may have, once it has asked for all.
fn descriptors() -> usize {
    let own = std::process::id().to_string();
    let limits = || {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let numbers = line.map(|line| {
            let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
        });
        numbers.unwrap_or((0, 0))
    };
    let (_, hard) = limits();
    let all = format!("--nofile={hard}:{hard}");
    let _ = Command::new("prlimit").args(["--pid", &own, &all]).status();
    limits().0
}
