//! The examples `hello`, `hooks` and `https`, as processes and in this one.
#![allow(missing_docs)] // a test binary has no users
#![allow(clippy::duplicate_mod)] // the examples share a module

#[path = "../../../tests/common/child.rs"]
#[allow(dead_code, unreachable_pub)] // this test uses a part
mod child;
#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/hooks.rs"]
mod hooks;
#[cfg(feature = "ring")]
#[path = "../examples/https.rs"]
mod https;
#[cfg(feature = "ring")]
#[path = "common/secure.rs"]
mod secure;
#[path = "common/wire.rs"]
mod wire;

use wire::Client;

/// An example in a process of its own.
#[cfg(unix)]
struct Process {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

#[cfg(unix)]
impl Process {
    /// Runs this test again, in the role of the server.
    fn start(test: &str) -> Process {
        use std::io::BufRead;
        let mut child = child::spawn(test, test);
        let lines = std::io::BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Process { child, lines }
    }

    /// Waits for a line with this text, and returns what follows. The harness of tests may have
    /// begun the line.
    fn line(&mut self, text: &str) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("a line"));
        let found = lines.find_map(|line| Some(line.split_once(text)?.1.to_owned()));
        found.unwrap_or_else(|| panic!("{text}: the process has ended"))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let kill = std::process::Command::new("kill").args([name, &id]).status();
        assert!(kill.expect("it runs").success());
    }
}

#[cfg(unix)]
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `hello` answers as all layers' examples do, and ends with 0 on SIGTERM.
#[cfg(unix)]
#[test]
fn hello_is_a_process() {
    const NAME: &str = "hello_is_a_process";
    if child::is_child(NAME) {
        common::Setup::default().run(hello::app()).expect("it serves");
        return;
    }
    let mut process = Process::start(NAME);
    let address = process.line("listening on ").parse().expect("an address");
    let mut client = Client::new(address);
    assert_eq!(client.get("/").text(), "Hello, World!");
    let plain = client.get("/plaintext");
    assert_eq!(plain.get("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(plain.get("Content-Length"), Some("13"));
    assert_eq!(client.send("POST", "/echo", "", "some text").body, b"some text");
    assert_eq!(client.send("HEAD", "/", "", "").get("Content-Length"), Some("13"));
    assert_eq!(client.get("/echo").status, 405);
    process.signal("-TERM");
    assert_eq!(client.rest().as_deref(), Some(&b""[..]), "an idle connection is closed");
    assert_eq!(process.line("1 conn"), "ections");
    assert!(process.child.wait().expect("it ends").success());
}

#[test]
fn hello_has_several_loops() {
    let running = hello::app().listen("127.0.0.1:0").unwrap().loops(2).start().unwrap();
    for _ in 0..4 {
        assert_eq!(Client::new(running.address()).get("/").text(), "Hello, World!");
    }
    assert_eq!(running.shutdown().unwrap().counters.accepted, 4);
}

mod around {
    use std::sync::{Arc, Mutex};

    use windlass_web::test::{Caller, get, request};

    use super::*;

    fn caller(is_combined: bool) -> (Caller, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        let app = hooks::app(is_combined, move |line| printed.lock().unwrap().push(line));
        (Caller::of(app), lines)
    }

    /// So that a reader takes one along.
    #[test]
    fn each_part_is_short() {
        let parts: Vec<&str> = include_str!("../examples/hooks.rs").split("\n}\n").collect();
        let length = |part: &str| Some(part[part.find("fn ")?..].lines().count() + 1);
        let lengths: Vec<usize> = parts.iter().filter_map(|part| length(part)).collect();
        assert!(lengths.len() > 6 && lengths.iter().all(|len| *len <= 25), "{lengths:?}");
    }

    #[test]
    fn an_access_log() {
        const AT: &str = "10.0.0.1 - - [01/Jan/2026:00:00:00 +0000]";
        let (mut common, lines) = caller(false);
        common.call(get("/notes/7?a"));
        common.call(get("/none"));
        let expected = ["\"GET /notes/7?a HTTP/1.1\" 200 6", "\"GET /none HTTP/1.1\" 404 9"];
        assert_eq!(*lines.lock().unwrap(), expected.map(|line| format!("{AT} {line}")));
        let (mut combined, lines) = caller(true);
        combined.call(get("/").header("User-Agent", "a \"b\""));
        let expected = format!("{AT} \"GET / HTTP/1.1\" 200 13 \"-\" \"a \\\"b\\\"\"");
        assert_eq!(*lines.lock().unwrap(), [expected]);
    }

    #[test]
    fn metrics() {
        let (mut caller, _) = caller(false);
        for path in ["/notes/1", "/notes/2", "/none"] {
            caller.call(get(path));
        }
        let reply = caller.call(get("/metrics"));
        let text = reply.text();
        assert!(text.starts_with("connections_total{loop=\"0\"} 1\n"), "{text}");
        let notes = "requests_total{route=\"/notes/{id}\",status=\"200\"} 2\n";
        let none = "requests_total{route=\"\",status=\"404\"} 1\n";
        assert!(text.contains(notes) && text.contains(none), "{text}");
        assert_eq!(reply.header("Content-Type"), Some("text/plain; version=0.0.4"));
    }

    #[test]
    fn other_origins() {
        let (mut caller, _) = caller(false);
        let mut ask = |origin: &str| {
            let asks = request("OPTIONS", "/notes/7").header("Origin", origin);
            let reply = caller.call(asks.header("Access-Control-Request-Method", "PUT"));
            assert_eq!(reply.status().code(), 204);
            assert!(
                reply.header("Access-Control-Allow-Methods").is_some_and(|m| m.contains("PUT"))
            );
            assert_eq!(reply.header("Vary"), Some("Origin"));
            reply.header("Access-Control-Allow-Origin").map(str::to_owned)
        };
        assert_eq!(ask("https://app.example").as_deref(), Some("https://app.example"));
        assert_eq!(ask("https://other.example"), None);
        let missing = caller.call(get("/none").header("Origin", "https://app.example"));
        let allowed = missing.header("Access-Control-Allow-Origin");
        assert_eq!((missing.status().code(), allowed), (404, Some("https://app.example")));
        let plain = caller.call(request("OPTIONS", "/notes/7"));
        assert_eq!(plain.header("Allow"), Some("GET, HEAD, OPTIONS"));
    }

    #[test]
    fn request_ids() {
        let (mut caller, _) = caller(false);
        let mut id = |given: &str| {
            let reply = caller.call(get("/none").header("X-Request-Id", given));
            reply.header("X-Request-Id").expect("an id").to_owned()
        };
        assert_eq!(id("abc-7"), "abc-7");
        let (one, other) = (id("no id"), id(""));
        assert!(one.ends_with("-0") && other.ends_with("-1"), "{one}, {other}");
    }

    #[test]
    fn basic_authentication() {
        let (mut caller, _) = caller(false);
        let mut ask = |path: &str, value: &str| {
            caller.call(get(path).header("Authorization", value)).status().code()
        };
        for path in ["/admin", "/admin/none"] {
            for wrong in ["", "Basic", "Basic YWRtaW46c2VjcmVl", "Bearer YWRtaW46c2VjcmV0"] {
                assert_eq!(ask(path, wrong), 401, "{path} {wrong:?}");
            }
        }
        assert_eq!(ask("/admin", "basic YWRtaW46c2VjcmV0"), 200);
        assert_eq!(ask("/admin/none", "Basic YWRtaW46c2VjcmV0"), 404);
        let asked = caller.call(get("/admin"));
        assert_eq!(asked.header("WWW-Authenticate"), Some("Basic"));
    }

    #[test]
    fn redirects() {
        let (mut caller, _) = caller(false);
        for (path, status, to) in [
            ("/home?a=b", 301, "/?a=b"),
            ("/notes/7/", 308, "/notes/7"),
            ("//other.example/", 308, "/other.example"),
        ] {
            let reply = caller.call(get(path));
            let found = (reply.status().code(), reply.header("Location"));
            assert_eq!(found, (status, Some(to)), "{path}");
        }
    }
}

#[cfg(feature = "ring")]
mod tls {
    use std::net::TcpListener;

    use secure::{Authority, Secure};
    use windlass_web::tls::{Tls, TlsClient};

    use super::*;

    fn listeners() -> [TcpListener; 2] {
        [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    #[test]
    fn hello_speaks_tls() {
        let tls = common::tls(None).unwrap();
        let running = hello::app().listen(("127.0.0.1:0", tls)).unwrap().start().unwrap();
        let trust = TlsClient::builder().roots(Authority::new().root()).build().unwrap();
        assert!(Secure::open(running.address(), &trust).is_err(), "it has signed itself");
        running.shutdown().unwrap();
    }

    #[test]
    fn plain_requests_go_to_tls() {
        let [secure, plain] = listeners();
        let port = secure.local_addr().unwrap().port();
        let authority = Authority::new();
        let tls = authority.server("localhost").build().unwrap();
        let running = https::app(tls, secure, plain).unwrap().start().unwrap();
        let plain = running.addresses()[1].ip().unwrap();
        for (host, name) in [("h", "h"), ("h:80", "h"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")] {
            let mut client = Client::new(plain);
            client.say(format!("GET /a%20b?c=d HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let reply = client.reply();
            assert_eq!(reply.status, 308);
            let to = format!("https://{name}:{port}/a%20b?c=d");
            assert_eq!(reply.get("Location"), Some(&*to));
        }
        let trust = TlsClient::builder().roots(authority.root()).build().unwrap();
        let mut client = Secure::open(running.address(), &trust).unwrap();
        assert_eq!(client.get("/").text(), "Hello, World!");
        drop(client);
        running.shutdown().unwrap();
    }

    /// The files change, and SIGHUP takes them. Files that are wrong change nothing.
    #[cfg(unix)]
    #[test]
    fn sighup_reads_the_certificate_again() {
        const NAME: &str = "tls::sighup_reads_the_certificate_again";
        let directory = std::env::temp_dir().join("windlass-web-https");
        if child::is_child(NAME) {
            let parent = std::os::unix::process::parent_id().to_string();
            let file = |name: &str| directory.join(&parent).join(name);
            let tls = Tls::pem(file("cert.pem"), file("key.pem")).expect("files");
            let [secure, plain] = listeners();
            common::serve(https::app(tls, secure, plain).unwrap()).expect("it serves");
            return;
        }
        let directory = directory.join(std::process::id().to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let write = |(certificate, key): (String, String)| {
            std::fs::write(directory.join("cert.pem"), certificate).unwrap();
            std::fs::write(directory.join("key.pem"), key).unwrap();
        };
        let (first, second) = (Authority::new(), Authority::new());
        write(first.issue("localhost"));
        let mut process = Process::start(NAME);
        let address = process.line("listening on ").parse().expect("an address");
        let trusts = |authority: &Authority| {
            let trust = TlsClient::builder().roots(authority.root()).build().unwrap();
            Secure::open(address, &trust).is_ok()
        };
        let mut told = std::io::BufReader::new(process.child.stderr.take().unwrap());
        let mut hears = |process: &Process, what: &str| {
            process.signal("-HUP");
            let mut line = String::new();
            std::io::BufRead::read_line(&mut told, &mut line).unwrap();
            assert!(line.contains(what), "{line}");
        };
        assert!(trusts(&first) && !trusts(&second));
        write((String::from("no certificate"), String::new()));
        hears(&process, "the old certificate stays");
        assert!(trusts(&first));
        write(second.issue("localhost"));
        hears(&process, "new connections get the new certificate");
        assert!(trusts(&second) && !trusts(&first));
        process.signal("-TERM");
        assert!(process.child.wait().unwrap().success());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
