//! Servers and clients with TLS against those of others: OpenSSL, GnuTLS, curl, Python, Go and
//! Node.js.
//! `peers/README.md` says what the programs in Python, Go and Node.js do.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::programs::{Files, Program, Started, has, has_openssl, now};
use crate::tls::{Authority, settings};
use windlass::net::ConnectOptions;
use windlass::{Buf, Completions, Watcher};
use windlass_serve::report::Report;
use windlass_serve::tls::{
    Alert, CertificateProblem, Destination, Error, Provider, TlsBuilder, Version,
};
use windlass_serve::{Action, Cause, Config, Conn, Engine, Event, Handler, Id, Running, Server};

/// Many records, each way.
const MUCH: usize = 16 << 20;

/// Sends everything back. A request of HTTP gets its body as an answer.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        if !data.starts_with(b"GET ") && !data.starts_with(b"PUT ") {
            c.write(data);
            return Action::None;
        }
        let text = String::from_utf8_lossy(&data).into_owned();
        let end = text.find("\r\n\r\n").expect("a head in one record") + 4;
        let length = text[..end].lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.unwrap_or("0");
        c.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
        c.write(data.slice(end..));
        Action::None
    }
}

/// A server of this crate, and files for its clients.
struct Fixture {
    files: Files,
    running: Running,
    port: String,
}

impl Fixture {
    fn new(name: &str, change: impl FnOnce(TlsBuilder) -> TlsBuilder) -> Fixture {
        let files = Files::new(name);
        let (authority, tls, _) = settings(Provider::Ring);
        files.write("root.pem", &authority.pem);
        let tls = change(tls.clock(now).alpn(["http/1.1"])).build().expect("settings");
        let server = Server::new(|_| Echo).listen("tcp://127.0.0.1:0").expect("an address");
        let running = server.tls(tls).start().expect("it serves");
        let port = running.addresses()[0].ip().expect("an address").port().to_string();
        Fixture { files, running, port }
    }

    /// One that requires certificates of clients.
    fn strict(name: &str) -> (Fixture, Authority) {
        let clients = Authority::new("the root of clients");
        let root = clients.root();
        (Fixture::new(name, |tls| tls.require_client_certificates(root)), clients)
    }

    /// Gives the clients a certificate.
    fn identify(&self, clients: &Authority) {
        let made = clients.client("somebody", 5);
        self.files.write("client.pem", &made.certificate);
        self.files.write("client.key", &made.key);
    }

    fn root(&self) -> String {
        self.files.path("root.pem")
    }

    /// Ends the server, which has had so many connections and refused so many.
    fn end(self, accepted: u64, refused: u64) -> Report {
        self.running.shutdown();
        let report = self.running.wait().expect("no error");
        let counters = &report.counters;
        assert_eq!((counters.accepted, counters.refused), (accepted, refused), "{counters:?}");
        assert_eq!(counters.ends.failed, 0, "{:?}", counters.ends);
        report
    }

    /// The same, and each client has said its end.
    fn end_cleanly(self, accepted: u64) {
        let report = self.end(accepted, 0);
        assert_eq!(report.counters.ends.eof, accepted, "{:?}", report.counters.ends);
    }
}

fn name_of(version: Version) -> &'static str {
    if version == Version::Tls12 { "TLSv1.2" } else { "TLSv1.3" }
}

/// Whether a program has ended well; what it has printed.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

/// Connections of a program with these settings, one alone and then the others, which resume its
/// session.
fn served(fixture: &Fixture, program: &Program, version: Version, bytes: [usize; 2], count: usize) {
    let version = name_of(version);
    let numbers = [bytes[0], bytes[1], count].map(|number| number.to_string());
    let directory = fixture.files.directory();
    let arguments = ["client", &fixture.port, directory, version];
    let output = program.command().args(arguments).args(numbers).output().expect("a program");
    let resumed = format!("{version} http/1.1 resumed");
    let mut expected = vec![resumed; count];
    expected[0] = format!("{version} http/1.1 new");
    assert_eq!(lines(&output), expected);
}

/// A program is a client in each way that it knows.
fn is_served(program: &Program) {
    let name = program.name;
    for version in Version::ALL {
        let fixture = Fixture::new(&format!("{name}-client"), |tls| tls);
        served(&fixture, program, *version, [MUCH, 100_000], 2);
        served(&fixture, program, *version, [30_000, 997], 64);
        // Each byte is a record.
        served(&fixture, program, *version, [3000, 1], 2);
        fixture.end_cleanly(2 + 64 + 2);

        // No client begins with a share of this group.
        let fixture =
            Fixture::new(&format!("{name}-retry"), |tls| tls.key_exchanges(["secp384r1"]));
        served(&fixture, program, *version, [30_000, 997], 2);
        fixture.end_cleanly(2);

        let (fixture, clients) = Fixture::strict(&format!("{name}-strict"));
        let arguments = ["client", &fixture.port, fixture.files.directory(), name_of(*version)];
        let output = program.command().args(arguments).args(["9", "9", "1"]).output().unwrap();
        assert!(!output.status.success(), "{name} is served without a certificate");
        fixture.identify(&clients);
        served(&fixture, program, *version, [30_000, 997], 3);
        fixture.end(3, 1);
    }
}

#[test]
fn clients_in_python_are_served() {
    if let Some(python) = Program::python() {
        is_served(&python);
    }
}

#[test]
fn clients_in_go_are_served() {
    if let Some(go) = Program::go("go-clients") {
        is_served(&go);
    }
}

#[test]
fn clients_in_node_are_served() {
    if let Some(node) = Program::node() {
        is_served(&node);
    }
}

/// Starts a program whose input and output are the test's.
fn start(name: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Bytes without a letter that a client takes as a command.
fn digits(count: usize) -> Vec<u8> {
    (0..count).map(|i| if i % 61 == 60 { b'\n' } else { b'0' + (i % 7) as u8 }).collect()
}

/// A client that echoes its input through the server, until it has heard as much; what it heard.
fn through(mut child: Child, input: Vec<u8>) -> Vec<u8> {
    let mut stdin = child.stdin.take().expect("its input");
    let mut stdout = child.stdout.take().expect("its output");
    let mut heard = vec![0; input.len()];
    let writer = std::thread::spawn(move || {
        stdin.write_all(&input).expect("it reads");
        stdin // at the end of its input it would close
    });
    stdout.read_exact(&mut heard).expect("as much as it has sent");
    drop(writer.join());
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    heard
}

#[test]
fn clients_of_openssl_are_served() {
    if !has_openssl() {
        return;
    }
    for version in Version::ALL {
        let fixture = Fixture::new("openssl-client", |tls| tls);
        let (connect, root) = (format!("127.0.0.1:{}", fixture.port), fixture.root());
        let flag = format!("-{}", name_of(*version).to_lowercase().replace(['v', '.'], "_"));
        let flag = flag.replace("tls_", "tls");
        let common = ["s_client", "-connect", &connect, "-CAfile", &root, &flag];
        let common = [&common[..], &["-verify_return_error", "-servername", "localhost"]].concat();
        let quiet = [&common[..], &["-quiet", "-no_ign_eof"]].concat();
        let input = digits(MUCH);
        assert!(through(start("openssl", &quiet), input.clone()) == input);
        let clients: Vec<_> = (0..64).map(|_| start("openssl", &quiet)).collect();
        let input = digits(20_000);
        let threads = clients.into_iter().map(|child| {
            let input = input.clone();
            std::thread::spawn(move || assert!(through(child, input.clone()) == input))
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        fixture.end(65, 0);
    }
}

/// A hello that is asked to retry, changes of keys with and without an answer, and a resumption.
#[test]
fn a_client_of_openssl_retries_changes_keys_and_resumes() {
    if !has_openssl() {
        return;
    }
    let fixture = Fixture::new("openssl-keys", |tls| tls.key_exchanges(["secp384r1"]));
    let (connect, root) = (format!("127.0.0.1:{}", fixture.port), fixture.root());
    let session = fixture.files.path("session");
    let common = ["s_client", "-connect", &connect, "-CAfile", &root, "-verify_return_error"];
    let common = [&common[..], &["-groups", "X25519:P-384", "-msg"]].concat();
    for (option, expected) in [("-sess_out", "New, TLSv1.3"), ("-sess_in", "Reused, TLSv1.3")] {
        let mut child = start("openssl", &[&common[..], &[option, &*session]].concat());
        let mut stdin = child.stdin.take().expect("its input");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let begun = await_line(&mut stdout, expected);
        assert_eq!(begun.matches(", ClientHello").count(), 2, "{begun}");
        // Behind it the client reads the session, which it writes to its file.
        let mut say = |what: &str, expected: &str| {
            stdin.write_all(what.as_bytes()).expect("it reads");
            await_line(&mut stdout, expected)
        };
        say("first\n", "first");
        // The client looks only at the first letter of what it reads at once.
        say("K\n", ">>> TLS 1.3, Handshake [length 0005], KeyUpdate");
        let answer = "<<< TLS 1.3, Handshake [length 0005], KeyUpdate";
        assert!(say("second\n", "second").contains(answer));
        say("k\n", ">>> TLS 1.3, Handshake [length 0005], KeyUpdate");
        assert!(!say("third\n", "third").contains(answer), "nobody has asked for it");
        stdin.write_all(b"Q\n").expect("it reads");
        assert!(child.wait().unwrap().success());
    }
    fixture.end_cleanly(2);
}

#[test]
fn clients_of_gnutls_are_served() {
    if !has("gnutls-cli", &["--version"], "gnutls-cli 3") {
        return;
    }
    for version in Version::ALL {
        let (fixture, clients) = Fixture::strict("gnutls-client");
        fixture.identify(&clients);
        let priority = format!("--priority=NORMAL:-VERS-ALL:+VERS-TLS{}", &name_of(*version)[4..]);
        let file = |option: &str, name: &str| format!("--{option}={}", fixture.files.path(name));
        let (root, certificate, key) = (
            file("x509cafile", "root.pem"),
            file("x509certfile", "client.pem"),
            file("x509keyfile", "client.key"),
        );
        let common = [
            "127.0.0.1",
            &format!("--port={}", fixture.port),
            "--sni-hostname=localhost",
            "--verify-hostname=localhost",
            "--alpn=http/1.1",
            "--resume",
            "--waitresumption",
            "--inline-commands",
            &priority,
            &root,
        ];
        let identity = [&common[..], &[&*certificate, &key]].concat();
        let mut child = start("gnutls-cli", &identity);
        let mut stdin = child.stdin.take().expect("its input");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        for (said, expected) in [
            ("", "- Handshake was completed"),
            ("", "This is a resumed session"),
            ("hello\n", "hello"),
            ("^rekey^\n", "Rekey was completed"),
            ("behind it\n", "behind it"),
        ] {
            if said.starts_with('^') && *version == Version::Tls12 {
                continue; // there the same command is a renegotiation, which is refused
            }
            stdin.write_all(said.as_bytes()).expect("it reads");
            println!("{version} {}", await_line(&mut stdout, expected));
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
        fixture.end(2, 0);
    }
}

#[track_caller]
fn await_line(lines: &mut impl BufRead, expected: &str) -> String {
    let mut all = String::new();
    loop {
        let begin = all.len();
        assert_ne!(lines.read_line(&mut all).expect("a line"), 0, "no {expected:?}: {all}");
        if all[begin..].contains(expected) {
            return all;
        }
    }
}

#[test]
fn curl_is_served() {
    if !has("curl", &["--version"], "curl ") {
        return;
    }
    for version in Version::ALL {
        let (fixture, clients) = Fixture::strict("curl");
        fixture.identify(&clients);
        let body = fixture.files.path("body");
        std::fs::write(&body, digits(MUCH)).unwrap();
        let url = format!("https://localhost:{}/", fixture.port);
        let number = &name_of(*version)[4..];
        let curl = |more: &[&str]| {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-v", "--http1.1", "--max-time", "60"]);
            curl.args(["--cacert", &fixture.root(), "--resolve"]);
            curl.arg(format!("localhost:{}:127.0.0.1", fixture.port));
            curl.args([&format!("--tlsv{number}"), "--tls-max", number]).args(more);
            curl.output().expect("curl")
        };
        assert!(!curl(&[&url]).status.success(), "curl is served without a certificate");
        let (certificate, key) =
            (fixture.files.path("client.pem"), fixture.files.path("client.key"));
        let identity = ["--cert", &certificate, "--key", &key];
        let output = curl(&[&identity[..], &["-H", "Expect:", "-T", &body, &url]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(output.stdout == digits(MUCH));
        assert!(said.contains(&format!("SSL connection using {}", name_of(*version))), "{said}");
        assert!(said.contains("ALPN: server accepted http/1.1"), "{said}");
        fixture.end(1, 1);
    }
}

/// What clients send, and expect to hear.
struct Talk {
    bytes: Vec<u8>,
    /// How much of it a connection has sent and heard: its state.
    window: usize,
}

/// A connection of the engine.
#[derive(Debug, Default)]
struct Told {
    sent: usize,
    heard: usize,
    is_resumed: bool,
    end: Option<Cause>,
}

/// Connects so many times at once, and talks; whether each connection was resumed.
fn talk(port: u16, to: &Destination, version: Version, talk: &Talk, count: usize) -> Vec<bool> {
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine: Engine<usize> = Engine::new(Config::new());
    let mut all: Vec<Told> = Vec::new();
    for at in 0..count {
        let options = ConnectOptions::default();
        engine.connect_tls([([127, 0, 0, 1], port)], options, to, at).expect("few connections");
        all.push(Told::default());
    }
    let mut done = Completions::new();
    while all.iter().any(|told| told.end.is_none()) {
        engine.flush(&mut watcher);
        watcher.wait(&mut done).expect("a wait");
        for c in done.drain(..) {
            let rest = engine.complete(&mut watcher, c);
            assert!(rest.is_none(), "{rest:?}");
        }
        while let Some(event) = engine.next_event(&mut watcher) {
            match event {
                Event::Opened { id, .. } => {
                    let at = *engine.state(id).expect("it is open");
                    let session = engine.tls(id).expect("its session");
                    assert_eq!(session.version(), Some(version));
                    all[at].is_resumed = session.is_resumed();
                    say(&mut engine, id, &mut all[at], talk);
                }
                Event::Data { id, data } => {
                    let at = *engine.state(id).expect("it is open");
                    let told = &mut all[at];
                    assert!(*data == talk.bytes[told.heard..told.heard + data.len()]);
                    told.heard += data.len();
                    say(&mut engine, id, told, talk);
                }
                Event::Closed { cause, state, tls_error, .. } => {
                    assert!(tls_error.is_none(), "{tls_error:?}");
                    all[state].end = Some(cause);
                }
                Event::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    for told in &all {
        assert_eq!((told.heard, told.end), (talk.bytes.len(), Some(Cause::Closed)), "{told:?}");
    }
    all.iter().map(|told| told.is_resumed).collect()
}

/// Says what the window has room for, and the end behind it.
fn say(engine: &mut Engine<usize>, id: Id, told: &mut Told, talk: &Talk) {
    let end = talk.bytes.len().min(told.heard + talk.window);
    if end > told.sent {
        engine.write(id, talk.bytes[told.sent..end].to_vec()).expect("an open connection");
        told.sent = end;
    }
    if told.heard == talk.bytes.len() {
        engine.close(id);
    }
}

/// A program is the server of clients of this crate.
fn is_used(program: &Program) {
    for version in Version::ALL {
        for asks in [false, true] {
            let files = Files::new(&format!("{}-server-{version}-{asks}", program.name));
            let (authority, _, trust) = settings(Provider::Ring);
            files.write("root.pem", &authority.pem);
            let made = authority.server(&["localhost"]);
            files.write("server.pem", &made.certificate);
            files.write("server.key", &made.key);
            let mut trust = trust.clock(now).alpn(["http/1.1"]);
            if asks {
                let made = authority.client("somebody", 5);
                files.write("client.pem", &made.certificate);
                files.write("client.key", &made.key);
                let (certificate, key) = made.pems();
                trust = trust.certificate(certificate, key);
            }
            let to = trust.build().expect("settings").to("localhost").expect("a name");
            let name = name_of(*version);
            let mut command = program.command();
            command.args(["server", files.directory(), name]);
            let mut server = Started::new(command);
            let port = server.await_line("port ").trim()[5..].parse().expect("a port");
            let much = Talk { bytes: digits(MUCH), window: 1 << 20 };
            let little = Talk { bytes: digits(20_000), window: 700 };
            assert_eq!(talk(port, &to, *version, &much, 1), [false]);
            // Tickets are there for some of these.
            let resumed = talk(port, &to, *version, &little, 64);
            let resumed = resumed.iter().filter(|is_resumed| **is_resumed).count();
            assert!(resumed > 0, "{name}: no session was resumed");
            let client = if asks { "somebody" } else { "-" };
            let (mut new, mut again) = (0, 0);
            for _ in 0..65 {
                let line = server.await_line("");
                let expected = format!("{name} http/1.1 new localhost {client}");
                match line.trim_end() {
                    line if line == expected => new += 1,
                    // Node.js has no names of a session of TLS 1.2 that is resumed.
                    line if line.starts_with(&format!("{name} http/1.1 resumed ")) => again += 1,
                    line => panic!("{line:?} is not {expected:?}"),
                }
            }
            assert_eq!((new, again), (65 - resumed, resumed));
        }
    }
}

#[test]
fn servers_in_python_are_used() {
    if let Some(python) = Program::python() {
        is_used(&python);
    }
}

#[test]
fn servers_in_go_are_used() {
    if let Some(go) = Program::go("go-servers") {
        is_used(&go);
    }
}

#[test]
fn servers_in_node_are_used() {
    if let Some(node) = Program::node() {
        is_used(&node);
    }
}

#[test]
fn a_server_of_gnutls_is_used() {
    if !has("gnutls-serv", &["--version"], "gnutls-serv 3") {
        return;
    }
    for version in Version::ALL {
        let files = Files::new(&format!("gnutls-server-{version}"));
        let (authority, _, trust) = settings(Provider::Ring);
        let made = authority.server(&["localhost"]);
        let file = |option: &str, path: String| format!("--{option}={path}");
        // It has no way to tell a port that the system chooses.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        // It says on its standard error that it listens.
        let mut command = Command::new("sh");
        command.args(["-c", "exec gnutls-serv \"$@\" 2>&1", "sh"]);
        command.args(["--echo", "--crlf", "--disable-client-cert", "--alpn=http/1.1"]);
        command.arg(file("port", port.to_string()));
        command.arg(file("x509certfile", files.write("server.pem", &made.certificate)));
        command.arg(file("x509keyfile", files.write("server.key", &made.key)));
        command.arg(format!("--priority=NORMAL:-VERS-ALL:+VERS-TLS{}", &name_of(*version)[4..]));
        let mut server = Started::new(command);
        server.await_line("Echo Server listening on IPv4 0.0.0.0");
        let trust = trust.clock(now).alpn(["http/1.1"]).build().expect("settings");
        let to = trust.to("localhost").expect("a name");
        let line = Talk { bytes: b"hello\n".to_vec(), window: 6 };
        assert_eq!(talk(port, &to, *version, &line, 1), [false]);
        assert_eq!(talk(port, &to, *version, &line, 1), [true], "{version}");
    }
}

/// Connects to a server that refuses, or that this client refuses: the reason.
fn refused(port: u16, to: &Destination) -> Error {
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine: Engine<()> = Engine::new(Config::new());
    let options = ConnectOptions::default();
    engine.connect_tls([([127, 0, 0, 1], port)], options, to, ()).expect("one connection");
    let mut done = Completions::new();
    loop {
        engine.flush(&mut watcher);
        watcher.wait(&mut done).expect("a wait");
        for c in done.drain(..) {
            let rest = engine.complete(&mut watcher, c);
            assert!(rest.is_none(), "{rest:?}");
        }
        while let Some(event) = engine.next_event(&mut watcher) {
            match event {
                // With TLS 1.3 a server checks the client when the client's handshake is done.
                Event::Opened { .. } => {}
                Event::Closed { cause, tls_error, .. } => {
                    assert_eq!(cause, Cause::Tls);
                    return *tls_error.expect("a reason");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Starts `openssl s_server`, which reverses each line; and its port.
fn reversing(files: &Files, more: &[&str], version: Version) -> (Started, u16) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-accept", "127.0.0.1:0", "-rev", "-alpn", "http/1.1"]);
    command.args(["-cert", &files.path("server.pem"), "-key", &files.path("server.key")]);
    command.arg(format!("-{}", name_of(version).to_lowercase().replace("v1.", "1_")));
    command.args(more).stderr(Stdio::null());
    let mut server = Started::new(command);
    let line = server.await_line("ACCEPT ");
    let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
    (server, port.expect("a port"))
}

#[test]
fn a_server_of_openssl_is_used() {
    if !has_openssl() {
        return;
    }
    for version in Version::ALL {
        let files = Files::new(&format!("openssl-server-{version}"));
        let (authority, _, trust) = settings(Provider::Ring);
        let made = authority.server(&["localhost"]);
        files.write("server.pem", &made.certificate);
        files.write("server.key", &made.key);
        let root = files.write("root.pem", &authority.pem);
        let trust = trust.clock(now).alpn(["http/1.1"]);
        let nobody = trust.clone().build().expect("settings");
        let (certificate, key) = authority.client("somebody", 5).pems();
        let somebody = trust.certificate(certificate, key).build().expect("settings");
        // Each line is the same from both of its ends.
        let line = b"windlass.ssaldniw\n";
        let much = Talk { bytes: line.repeat(60_000), window: 1 << 16 };
        let little = Talk { bytes: line.to_vec(), window: line.len() };
        let strict = ["-Verify", "1", "-verify_return_error", "-CAfile", &*root];
        for more in [&[][..], &strict[..]] {
            let (_server, port) = reversing(&files, more, *version);
            let trust = if more.is_empty() { &nobody } else { &somebody };
            let to = trust.to("localhost").expect("a name");
            assert_eq!(talk(port, &to, *version, &much, 1), [false]);
            assert_eq!(talk(port, &to, *version, &little, 1), [true], "{version}");
            let error = refused(port, &trust.to("other.example").expect("a name"));
            let Error::Certificate { problem: CertificateProblem::WrongName { names, .. }, .. } =
                &error
            else {
                panic!("{version}: {error:?}")
            };
            assert_eq!(names, &["localhost"]);
            if !more.is_empty() {
                // "certificate_required" in TLS 1.3, "handshake_failure" before.
                let number = if *version == Version::Tls13 { 116 } else { 40 };
                let error = refused(port, &nobody.to("localhost").expect("a name"));
                assert!(matches!(error, Error::Alert(Alert(n)) if n == number), "{error:?}");
            }
            assert_eq!(talk(port, &to, *version, &little, 1), [true], "{version}");
        }
    }
}
