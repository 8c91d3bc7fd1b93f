//! Servers of others, asked by the client: nginx, Go, Node.js and Python. What is not installed is
//! skipped.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

#[path = "../../serve/tests/common/mod.rs"]
mod common;
mod hostile;
#[path = "../../serve/tests/common/programs.rs"]
mod programs;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Harness;
use hostile::{Scene, Who, scene};
use programs::{Files, Started, has};
use windlass::driver::Auto;
use windlass::{Builder, Watcher};
use windlass_web::Status;
use windlass_web::client::{Fetch, FetchSettings};

/// The driver that the crate chooses.
struct Chosen;

impl Harness for Chosen {
    type Driver = Auto;
    const NAME: &'static str = "auto";
    const VIRTUAL: bool = false;
    fn watcher(builder: Builder) -> Watcher<Auto> {
        builder.build().expect("a driver")
    }
}

/// A client of one server.
struct Asker {
    scene: Scene<Auto>,
    base: String,
}

impl Asker {
    fn of(authority: &str) -> Asker {
        Asker {
            scene: scene::<Chosen>(Who::App, FetchSettings::new()),
            base: format!("http://{authority}"),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The status and the body of a `GET`, or the error.
    fn get(&mut self, path: &str) -> String {
        let url = self.url(path);
        self.scene.text(Fetch::get(url))
    }

    fn post(&mut self, path: &str, body: Vec<u8>) -> String {
        let url = self.url(path);
        self.scene.text(Fetch::post(url).body(body).body_limit(8 << 20))
    }

    /// Requests at the moment when the server closes the connections that it has kept for a
    /// millisecond: each has its response.
    fn race(&mut self, authority: &str) {
        let url = format!("http://{authority}/connections");
        for round in 0..300 {
            self.scene.run_for(Duration::from_micros(700 + 2 * round));
            let text = self.scene.text(Fetch::get(&url));
            assert!(text.starts_with("200 "), "{text}");
        }
    }
}

/// Starts a program whose first line is its port.
fn start(command: Command) -> (Started, String) {
    let mut started = Started::new(command);
    let port = started.await_line("");
    (started, format!("127.0.0.1:{}", port.trim()))
}

fn source(name: &str) -> String {
    format!("{}/tests/servers/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn parts(count: usize) -> String {
    (0..count).map(|part| format!("part {part}\n")).collect()
}

#[test]
fn go_is_asked() {
    if !has("go", &["version"], "go version") {
        return;
    }
    let files = Files::new("web-asks-go");
    let program = files.path("server");
    let mut build = Command::new("go");
    build.args(["build", "-o", &program, &source("server.go")]).env("GO111MODULE", "off");
    let output = build.output().expect("go");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_server, authority) = start(Command::new(program));
    let mut go = Asker::of(&authority);
    for _ in 0..3 {
        assert_eq!(go.get("/chunked"), format!("200 {}", parts(100)));
        assert_eq!(go.get("/trailers"), "200 with trailers");
        assert_eq!(go.get("/hints"), "200 behind hints");
        assert_eq!(go.get("/empty"), "204 ");
        assert_eq!(go.get("/nothing"), "404 404 page not found\n");
        assert_eq!(go.post("/echo", b"a body".to_vec()), "200 a body");
        assert_eq!(go.post("/echo", vec![b'x'; 3 << 20]), format!("200 {}", "x".repeat(3 << 20)));
    }
    assert_eq!(go.get("/connections"), "200 1");
    // A server that breaks off.
    assert_eq!(go.get("/panic"), "Ended");
    assert_eq!(go.get("/hijack"), "Ended");
    assert_eq!(go.get("/connections"), "200 3");
    // A body that is not read.
    assert_eq!(go.post("/refuse", vec![b'x'; 64 << 10]), "413 ");
    let other = go.get("/impatient");
    go.race(&other["200 ".len()..]);
}

#[test]
fn node_is_asked() {
    if !has("node", &["--version"], "v") {
        return;
    }
    let mut command = Command::new("node");
    command.arg(source("server.mjs"));
    let (_server, authority) = start(command);
    let mut node = Asker::of(&authority);
    let countdown: String = (1..100).rev().map(|part| format!("part {part}\n")).collect();
    for _ in 0..3 {
        assert_eq!(node.get("/parts"), format!("200 {countdown}last\n"));
        assert_eq!(node.get("/trailers"), "200 with trailers");
        assert_eq!(node.get("/hints"), "200 behind hints");
        assert_eq!(node.get("/nothing"), "404 nothing here");
        assert_eq!(node.post("/echo", b"a body".to_vec()), "200 a body");
        assert_eq!(node.post("/echo", vec![b'x'; 3 << 20]), format!("200 {}", "x".repeat(3 << 20)));
    }
    assert_eq!(node.get("/connections"), "200 1");
    assert_eq!(node.get("/half"), "Ended");
    assert_eq!(node.get("/reset"), "Connection");
    assert_eq!(node.get("/last"), "200 the last one");
    assert_eq!(node.get("/until-close"), "200 all that follows");
    let other = node.get("/impatient");
    node.race(&other["200 ".len()..]);
}

#[test]
fn python_is_asked() {
    if !has("python3", &["--version"], "Python 3") {
        return;
    }
    let mut command = Command::new("python3");
    command.arg(source("server.py"));
    let (_server, authority) = start(command);
    let mut python = Asker::of(&authority);
    for _ in 0..3 {
        assert_eq!(python.get("/until-close"), format!("200 {}", parts(100)));
        assert_eq!(python.get("/length"), "200 hello");
        assert_eq!(python.get("/short"), "Ended");
        assert_eq!(python.get("/0.9"), "StatusLine");
        assert!(python.get("/nothing").starts_with("404 <!DOCTYPE HTML>"));
        assert_eq!(python.post("/", b"a body".to_vec()), "200 a body");
    }
}

/// A server that ends with the test.
struct Nginx {
    child: Child,
    /// Kept, so that it can go on writing.
    _output: Box<dyn Read>,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free: nginx opens its sockets itself.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

fn nginx(files: &Files, servers: &str) -> Nginx {
    let home = files.directory();
    let settings = format!(
        "daemon off; master_process off; pid {home}/pid; error_log stderr notice;
        events {{ worker_connections 100; }}
        http {{
            access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
            fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi;
            scgi_temp_path {home}/scgi; default_type text/plain; root {home}/root;
            add_header X-Connection $connection always; keepalive_requests 40;
            {servers}
        }}"
    );
    let file = files.write("nginx.conf", &settings);
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-c", &file]).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a server");
    let mut output = BufReader::new(child.stderr.take().expect("its messages"));
    let mut line = String::new();
    // It listens before it says this.
    while !line.contains("event method") {
        line.clear();
        assert!(output.read_line(&mut line).expect("a line") > 0, "nginx has not begun");
    }
    Nginx { child, _output: Box::new(output) }
}

fn has_nginx() -> bool {
    let answer = Command::new("nginx").arg("-v").output();
    let is_there = answer.is_ok_and(|output| output.status.success());
    if !is_there {
        programs::skip::skip(programs::skip::Needs::Program("nginx"), "nginx is not installed");
    }
    is_there
}

#[test]
fn nginx_is_asked() {
    if !has_nginx() {
        return;
    }
    let files = Files::new("web-asks-nginx");
    let large = "0123456789abcdef".repeat(64 << 10);
    std::fs::create_dir_all(files.path("root/parts")).expect("a folder");
    files.write("root/small.txt", "small");
    files.write("root/large.txt", &large);
    files.write("root/parts/large.txt", &large);
    let address = free();
    let servers = format!(
        "server {{
            listen {address};
            location /parts/ {{ ssi on; ssi_types *; }}
            location = /moved {{ return 301 /small.txt; }}
            location = /empty {{ return 204; }}
            location = /closed {{ return 444; }}
            location = /limited {{ client_max_body_size 10; return 200 x; }}
        }}"
    );
    let _server = nginx(&files, &servers);
    let mut nginx = Asker::of(&address);
    let mut connections = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let url = nginx.url("/small.txt");
        let fetched = nginx.scene.call(Fetch::get(url)).fetched.expect("a response");
        assert_eq!((fetched.status(), fetched.body()), (Status::OK, &b"small"[..]));
        connections.insert(fetched.header("x-connection").expect("its number").to_owned());
    }
    // It closes each connection behind its fortieth request.
    assert_eq!(connections.len(), 3, "{connections:?}");
    assert_eq!(nginx.get("/large.txt"), format!("200 {large}"));
    assert_eq!(nginx.get("/parts/large.txt"), format!("200 {large}"));
    assert_eq!(nginx.get("/empty"), "204 ");
    assert!(nginx.get("/nothing").starts_with("404 <html>"));
    assert_eq!(nginx.get("/closed"), "Ended");
    let url = nginx.url("/small.txt");
    let head = nginx.scene.call(Fetch::head(url)).fetched.expect("a response");
    assert_eq!((head.header("content-length"), head.body()), (Some("5"), &b""[..]));
    let tag = head.header("etag").expect("a tag").to_owned();
    let mut with = |name: &'static str, value: String| {
        let url = nginx.url("/small.txt");
        nginx.scene.text(Fetch::get(url).header(name, value))
    };
    assert_eq!(with("If-None-Match", tag), "304 ");
    assert_eq!(with("Range", "bytes=1-3".into()), "206 mal");
    assert!(with("Range", "bytes=9-".into()).starts_with("416 <html>"));
}

#[cfg(feature = "ring")]
mod secure {
    use windlass_web::client::{Fetch, FetchSettings};
    use windlass_web::tls::{Pem, TlsClient};

    use super::hostile::{Who, scene};
    use super::programs::Files;
    use super::{Chosen, free, has_nginx, nginx};

    #[test]
    fn nginx_is_asked() {
        if !has_nginx() {
            return;
        }
        let files = Files::new("web-asks-nginx-tls");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
        let certificate = files.write("cert.pem", &made.cert.pem());
        let key = files.write("key.pem", &made.signing_key.serialize_pem());
        let large = "0123456789abcdef".repeat(64 << 10);
        std::fs::create_dir_all(files.path("root")).expect("a folder");
        files.write("root/small.txt", "small");
        files.write("root/large.txt", &large);
        let (secure, plain) = (free(), free());
        let servers = format!(
            "ssl_certificate {certificate}; ssl_certificate_key {key};
            server {{
                listen {secure} ssl;
                location = /moved {{ return 301 https://$http_host/small.txt; }}
                location = /plain {{ return 301 http://{plain}/small.txt; }}
            }}
            server {{ listen {plain}; location = /moved {{ return 301 https://{secure}/; }} }}"
        );
        let _server = nginx(&files, &servers);
        let port = |address: &str| address.rsplit_once(':').expect("a port").1.to_owned();
        let url = |path: &str| format!("https://localhost:{}{path}", port(&secure));
        let trust = TlsClient::builder().roots(Pem::bytes(made.cert.pem())).alpn(["http/1.1"]);
        let trust = trust.build().expect("whom to trust");
        for who in [Who::App, Who::Own, Who::Streams] {
            let local = [std::net::Ipv4Addr::LOCALHOST];
            let settings = FetchSettings::new().trust(trust.clone()).host("localhost", local);
            let mut scene = scene::<Chosen>(who, settings);
            for _ in 0..3 {
                assert_eq!(scene.text(Fetch::get(url("/small.txt"))), "200 small");
                assert_eq!(scene.text(Fetch::get(url("/large.txt"))), format!("200 {large}"));
                assert_eq!(scene.text(Fetch::get(url("/moved"))), "200 small");
                let text = scene.text(Fetch::get(url("/plain")));
                assert_eq!(text, "Redirect: it leads from https to http");
                let allowed = Fetch::get(url("/plain")).redirect_to_plain(true);
                assert_eq!(scene.text(allowed), "200 small");
            }
            // The certificate is for another name.
            assert_eq!(scene.text(Fetch::get(format!("https://{secure}/"))), "Tls");
            assert_eq!(scene.text(Fetch::get(format!("http://{plain}/moved"))), "Tls");
            // One side speaks TLS, and the other one does not.
            assert_eq!(
                scene.text(Fetch::get(format!("https://localhost:{}/", port(&plain)))),
                "Tls"
            );
            let text = scene.text(Fetch::get(format!("http://{secure}/small.txt")));
            assert!(text.starts_with("400 <html>"), "{text}");
        }
        // Whom nobody trusts.
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
        let other = TlsClient::builder().roots(Pem::bytes(other.cert.pem()));
        let settings = FetchSettings::new().trust(other.build().expect("whom to trust"));
        let text = scene::<Chosen>(Who::App, settings).text(Fetch::get(url("/small.txt")));
        assert_eq!(text, "Tls");
        let text = scene::<Chosen>(Who::App, FetchSettings::new()).text(Fetch::get(url("/")));
        assert_eq!(text, if cfg!(feature = "webpki-roots") { "Tls" } else { "NoTrust" });
    }
}
