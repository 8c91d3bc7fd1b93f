//! Sessions of TLS against OpenSSL, in both roles.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::programs::{Files, has_openssl, now};
use crate::tls::{Authority, settings};
use windlass_serve::tls::{Provider, Session, SessionState, Tls, TlsClient, Version};

/// A session on a socket.
struct Stream {
    session: Session,
    tcp: TcpStream,
    plain: Vec<u8>,
}

impl Stream {
    fn new(session: Session, tcp: TcpStream) -> Stream {
        tcp.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        Stream { session, tcp, plain: Vec::new() }
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        self.tcp.write_all(&out).expect("the peer reads");
    }

    /// Reads once.
    fn turn(&mut self) {
        self.flush();
        let mut input = [0; 20_000];
        match self.tcp.read(&mut input).expect("the peer writes") {
            0 => self.session.end_of_input().expect("close_notify"),
            count => {
                let fed = self.session.feed_into(&input[..count], &mut self.plain);
                self.flush();
                fed.expect("TLS");
            }
        }
    }

    fn write(&mut self, plain: &[u8]) {
        let mut out = Vec::new();
        self.session.write_all(plain, &mut out).expect("an open session");
        self.tcp.write_all(&out).expect("the peer reads");
    }
}

/// What a server knows of a client.
#[derive(Debug, Default)]
struct Seen {
    version: Option<Version>,
    alpn: Option<Vec<u8>>,
    name: Option<String>,
    client: Option<String>,
    is_resumed: bool,
    bytes: usize,
}

/// Serves so many connections: echoes what comes, until a line says `end`.
fn serve(tls: &Tls, connections: usize) -> (u16, JoinHandle<Vec<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let tls = tls.clone();
    let server = std::thread::spawn(move || {
        let serve_one = |_| {
            let (tcp, _) = listener.accept().expect("a client");
            let mut stream = Stream::new(Session::server(&tls).expect("a session"), tcp);
            let mut seen = Seen::default();
            while !stream.plain.ends_with(b"end\n") {
                stream.turn();
                assert_ne!(stream.session.state(), SessionState::PeerClosed);
                let fresh = stream.plain[seen.bytes..].to_vec();
                seen.bytes += fresh.len();
                if !fresh.is_empty() {
                    stream.write(&fresh);
                }
            }
            let session = &mut stream.session;
            seen.version = session.version();
            seen.alpn = session.alpn().map(<[u8]>::to_vec);
            seen.name = session.server_name().map(str::to_owned);
            seen.client = session.peer_certificate_info().and_then(|info| info.common_name);
            seen.is_resumed = session.is_resumed();
            session.close();
            stream.flush();
            // Until the other side has closed, too.
            while stream.session.state() != SessionState::PeerClosed {
                stream.turn();
            }
            seen
        };
        (0..connections).map(serve_one).collect()
    });
    (port, server)
}

/// Runs a client of OpenSSL, and returns what it printed.
fn s_client(port: u16, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-quiet"])
        .args(["-verify_return_error", "-verify_hostname", "localhost"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl");
    let mut stdin = child.stdin.take().expect("its input");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        stdin.write_all(&input).expect("openssl reads");
        stdin // it stays open: at its end the client would end
    });
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(writer.join());
    output.stdout
}

fn flag(version: Version) -> &'static str {
    if version == Version::Tls12 { "-tls1_2" } else { "-tls1_3" }
}

#[test]
fn a_client_of_openssl_is_served() {
    if !has_openssl() {
        return;
    }
    let files = Files::new("served");
    for provider in Provider::ALL {
        for version in Version::ALL {
            let clients = Authority::new("the root of clients");
            let (authority, server, _) = settings(*provider);
            let server = server.clock(now).alpn(["h2", "http/1.1"]);
            let server = server.request_client_certificates(clients.root()).build().unwrap();
            let made = clients.client("somebody", 5);
            let root = files.write("root.pem", &authority.pem);
            let (certificate, key) = (
                files.write("client.pem", &made.certificate),
                files.write("client.key", &made.key),
            );
            let session = files.path("session");
            let common = ["-CAfile", &root, "-servername", "localhost", flag(*version)];
            let with = |more: &[&'static str]| [&common[..], more].concat();
            let (port, thread) = serve(&server, 4);
            let echo = s_client(port, &with(&["-alpn", "http/1.1"]), b"hello\nend\n");
            assert_eq!(echo, b"hello\nend\n");
            let big: Vec<u8> = (0..1 << 20).map(|i| b'a' + (i % 26) as u8).collect();
            let big = [&big[..], b"\nend\n"].concat();
            assert!(s_client(port, &common, &big) == big);
            let identity = ["-cert", &certificate, "-key", &key];
            let first = [&common[..], &identity, &["-sess_out", &session]].concat();
            s_client(port, &first, b"end\n");
            let second = [&common[..], &identity, &["-sess_in", &session]].concat();
            s_client(port, &second, b"end\n");
            let seen = thread.join().unwrap();
            assert_eq!(seen[0].alpn.as_deref(), Some(&b"http/1.1"[..]));
            assert_eq!(seen[0].client, None);
            assert_eq!(seen[1].bytes, big.len());
            for seen in &seen {
                assert_eq!(seen.version, Some(*version));
                assert_eq!(seen.name.as_deref(), Some("localhost"));
            }
            for (i, is_resumed) in [(2, false), (3, true)] {
                assert_eq!(seen[i].client.as_deref(), Some("somebody"));
                assert_eq!(seen[i].is_resumed, is_resumed, "{provider} {version}");
            }
        }
    }
}

#[test]
fn a_hello_retry_for_a_client_of_openssl() {
    if !has_openssl() {
        return;
    }
    let files = Files::new("retry");
    let (authority, server, _) = settings(Provider::default());
    let server = server.clock(now).key_exchanges(["secp384r1"]).build().unwrap();
    let root = files.write("root.pem", &authority.pem);
    let (port, thread) = serve(&server, 1);
    let arguments = ["-CAfile", &root, "-groups", "X25519:P-384", "-servername", "localhost"];
    assert_eq!(s_client(port, &arguments, b"end\n"), b"end\n");
    assert_eq!(thread.join().unwrap()[0].version, Some(Version::Tls13));
}

/// Commands of a client of OpenSSL: it changes keys, or asks for a renegotiation.
#[test]
fn keys_change_at_the_wish_of_a_client_of_openssl() {
    if !has_openssl() {
        return;
    }
    let files = Files::new("keys");
    let (authority, server, _) = settings(Provider::default());
    let server = server.clock(now).build().unwrap();
    let root = files.write("root.pem", &authority.pem);
    let (port, thread) = serve(&server, 1);
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-CAfile", &root, "-tls1_3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl");
    let mut stdin = child.stdin.take().expect("its input");
    let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
    let mut stderr = BufReader::new(child.stderr.take().expect("its words"));
    for round in 0..3 {
        stdin.write_all(format!("round {round}\n").as_bytes()).unwrap();
        await_line(&mut stdout, &format!("round {round}"));
        // K asks for an answer, k does not.
        stdin.write_all(if round == 1 { b"k\n" } else { b"K\n" }).unwrap();
        await_line(&mut stderr, "KEYUPDATE");
    }
    stdin.write_all(b"end\n").unwrap();
    await_line(&mut stdout, "end");
    assert!(child.wait().unwrap().success());
    assert_eq!(thread.join().unwrap()[0].bytes, 3 * 8 + 4);
}

fn await_line(lines: &mut impl BufRead, expected: &str) {
    let mut line = String::new();
    while line.trim_end() != expected {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("a line"), 0, "no {expected}");
    }
}

/// A server of OpenSSL, which sends each line back, reversed.
struct Reversing {
    child: Child,
    port: u16,
    /// What else it prints.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Reversing {
    fn new(arguments: &[&str]) -> Reversing {
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-rev"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        while !line.starts_with("ACCEPT ") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).expect("a line"), 0, "no port");
        }
        let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
        Reversing { child, port: port.expect("a port"), _stdout: stdout }
    }
}

impl Drop for Reversing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line there and back; then both sides close.
fn talk(port: u16, tls: &TlsClient, version: Version) -> bool {
    let tcp = TcpStream::connect(("127.0.0.1", port)).expect("the server");
    let mut stream = Stream::new(Session::client(tls, "localhost").expect("a session"), tcp);
    while !stream.session.is_open() {
        stream.turn();
    }
    assert_eq!(stream.session.version(), Some(version));
    assert_eq!(stream.session.alpn(), Some(&b"h2"[..]));
    for round in 0..3 {
        stream.write(b"hello\n");
        while stream.plain.len() < (round + 1) * 6 {
            stream.turn();
        }
        stream.session.update_keys();
    }
    assert_eq!(stream.plain, b"olleh\n".repeat(3));
    // This line makes the server close.
    stream.write(b"CLOSE\n");
    while stream.session.state() != SessionState::PeerClosed {
        stream.turn();
    }
    stream.session.close();
    let mut out = Vec::new();
    stream.session.take_output(&mut out);
    // It may have closed its socket.
    let _ = stream.tcp.write_all(&out);
    stream.session.is_resumed()
}

#[test]
fn a_server_of_openssl_is_used() {
    if !has_openssl() {
        return;
    }
    let files = Files::new("used");
    for provider in Provider::ALL {
        for version in Version::ALL {
            let clients = Authority::new("the root of clients");
            let (authority, _, client) = settings(*provider);
            let made = authority.server(&["localhost"]);
            let (certificate, key) = (
                files.write("server.pem", &made.certificate),
                files.write("server.key", &made.key),
            );
            let root = files.write("clients.pem", &clients.pem);
            let server = Reversing::new(&[
                "-cert",
                &certificate,
                "-key",
                &key,
                "-CAfile",
                &root,
                "-Verify",
                "3",
                "-verify_return_error",
                "-alpn",
                "h2",
                flag(*version),
            ]);
            let (certificate, key) = clients.client("somebody", 5).pems();
            let client = client.clock(now).alpn(["h2"]).certificate(certificate, key);
            let client = client.build().unwrap();
            assert!(!talk(server.port, &client, *version));
            assert!(talk(server.port, &client, *version), "{provider} {version}");
        }
    }
}
