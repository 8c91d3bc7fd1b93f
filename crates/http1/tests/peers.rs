//! Servers that exist, over the same bytes: what we accept, each of them refuses or reads alike.
//!
//! Each says method, target and body of the requests that it has read, nginx method and target. A
//! last request behind each input shows where the others have ended. A server that is not installed
//! is skipped.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::random::Requests;
use common::{Requests as Server, Seen, drive};
use skip::{Needs, skip};
use windlass_http1::Limits;

#[path = "../../../tests/common/skip.rs"]
mod skip;

/// Behind each input.
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Inputs of one to four requests, if `WINDLASS_PROGRAMS` does not say how many.
const INPUTS: usize = 400;

/// A server that runs until it is dropped.
struct Peer {
    child: Child,
    port: u16,
    /// Kept, so that the server can go on writing to it.
    _output: Box<dyn Read>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// Files of one test, in the folder of the build.
fn scratch(name: &str) -> PathBuf {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&at).expect("a folder");
    at
}

/// Whether the program ends well with these arguments.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Starts a server whose first line is its port.
fn start(command: &mut Command) -> Peer {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("a server");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let port = line.trim().parse().expect("a port");
    Peer { child, port, _output: Box::new(output) }
}

/// The requests that we have read: method, target as this peer shows it, and body.
fn ours(input: &[u8], is_path: bool, has_body: bool) -> Vec<String> {
    let seen = drive(&mut Server::new(Limits::default()), &[input], false);
    let (mut all, mut line, mut body) = (Vec::new(), String::new(), String::new());
    for event in seen {
        match event {
            Seen::Request(request) => {
                let query = request.query.map_or(String::new(), |query| format!("?{query}"));
                let target = if is_path { request.path + &query } else { request.target };
                line = format!("{} {target}", request.method);
            }
            Seen::Body(data) => body = data.iter().map(|byte| format!("{byte:02x}")).collect(),
            Seen::End if has_body => all.push(format!("{line} {}", std::mem::take(&mut body))),
            Seen::End => all.push(line.clone()),
            _ => {}
        }
    }
    all
}

/// The requests that the peer says it has read.
fn theirs(peer: &Peer, input: &[u8]) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", peer.port)).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let mut answers = Vec::new();
    // A server that refuses closes before it has read all, and that may reset the connection.
    let sent = stream.write_all(input).and_then(|()| stream.shutdown(Shutdown::Write));
    let read = stream.read_to_end(&mut answers);
    let is_time = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!read.as_ref().is_err_and(is_time), "no answer to {:?}", common::latin(input));
    drop((sent, read));
    let lines = common::latin(&answers);
    let seen = lines.split("\r\n").filter_map(|line| line.split_once(": "));
    let seen = seen.filter(|(name, _)| name.eq_ignore_ascii_case("X-Seen"));
    seen.map(|(_, line)| line.trim_end().to_owned()).collect()
}

/// The normal form of a line: a scheme's own port may be left out, as haproxy does (RFC 9110,
/// 4.2.3).
fn normal(line: &str) -> String {
    line.trim_end().replacen(" http://a:80", " http://a", 1)
}

/// Fails if the peer has read a request otherwise that we accept.
fn compare(peer: &Peer, is_path: bool, has_body: bool) {
    let seed = std::env::var("WINDLASS_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("WINDLASS_SEED={seed}");
    let inputs = std::env::var("WINDLASS_PROGRAMS");
    let inputs = inputs.map_or(INPUTS, |count| count.parse().expect("a count"));
    let mut random = Requests::new(seed);
    let (mut accepted, mut agreed) = (0, 0);
    for _ in 0..inputs {
        let (mut input, _) = random.input();
        input.extend_from_slice(LAST.as_bytes());
        let ours = ours(&input, is_path, has_body);
        let theirs = theirs(peer, &input);
        accepted += ours.len();
        for (own, other) in ours.iter().zip(&theirs) {
            assert_eq!(normal(own), normal(other), "{:?}", common::latin(&input));
            agreed += 1;
        }
    }
    println!("{agreed} of {accepted} requests are read alike, they refuse the others");
    assert!(agreed * 2 > accepted, "{agreed} of {accepted}");
}

#[test]
fn go_refuses_or_agrees() {
    if !runs("go", &["version"]) {
        return skip(Needs::Program("go"), "Go is not installed");
    }
    let server = scratch("peers-go").join("server");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&server).arg(folder().join("server.go"));
    assert!(build.status().expect("go").success());
    compare(&start(&mut Command::new(server)), false, true);
}

#[test]
fn node_refuses_or_agrees() {
    if !runs("node", &["--version"]) {
        return skip(Needs::Program("node"), "Node.js is not installed");
    }
    compare(&start(Command::new("node").arg(folder().join("server.js"))), false, true);
}

#[test]
fn h11_refuses_or_agrees() {
    // A distribution's package is for its own Python, which may not be the first one.
    let pythons = ["python3", "/usr/bin/python3"];
    let Some(python) = pythons.iter().find(|name| runs(name, &["-c", "import h11"])) else {
        return skip(Needs::Program("python3-h11"), "python3-h11 is not installed");
    };
    compare(&start(Command::new(python).arg(folder().join("server.py"))), false, true);
}

#[test]
fn nginx_refuses_or_agrees() {
    if !runs("nginx", &["-v"]) {
        return skip(Needs::Program("nginx"), "nginx is not installed");
    }
    let home = scratch("peers-nginx");
    // A port that was free: nginx opens its sockets itself.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let settings = format!(
        "daemon off; master_process off; pid {0}/pid; error_log stderr notice;
        events {{ worker_connections 100; }}
        http {{
            access_log off; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;
            fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
            server {{
                listen {address};
                location / {{
                    add_header X-Seen \"$request_method $request_uri\" always;
                    return 200;
                }}
            }}
        }}",
        home.display()
    );
    let file = home.join("nginx.conf");
    std::fs::write(&file, settings).expect("a file");
    let mut command = Command::new("nginx");
    let mut child = command.arg("-c").arg(file).stderr(Stdio::piped()).spawn().expect("a server");
    let mut output = BufReader::new(child.stderr.take().expect("its messages"));
    let mut line = String::new();
    // It listens before it says this.
    while !line.contains("event method") {
        line.clear();
        assert!(output.read_line(&mut line).expect("a line") > 0, "nginx has not begun");
    }
    let peer = Peer { child, port: address.port(), _output: Box::new(output) };
    compare(&peer, true, false);
}

#[test]
fn haproxy_refuses_or_agrees() {
    if !runs("haproxy", &["-v"]) {
        return skip(Needs::Program("haproxy"), "haproxy is not installed");
    }
    let home = scratch("peers-haproxy");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let settings = "defaults\n mode http\n timeout client 30s\n timeout http-request 30s\n \
                    option http-buffer-request\nfrontend all\n bind fd@0\n \
                    http-request return status 200 hdr X-Seen \"%[method] %[url]\"\n";
    let file = home.join("haproxy.cfg");
    std::fs::write(&file, settings).expect("a file");
    let mut command = Command::new("haproxy");
    // It gets the socket as its standard input, with a queue: there is nothing to wait for.
    let port = listener.local_addr().expect("an address").port();
    let socket = Stdio::from(OwnedFd::from(listener));
    command.arg("-db").arg("-f").arg(file).stdin(socket).stdout(Stdio::null());
    let child = command.spawn().expect("a server");
    let peer = Peer { child, port, _output: Box::new(std::io::empty()) };
    compare(&peer, false, false);
}
