//! The example `starttls`: its server, and its client, on every driver and in the simulation, and
//! with OpenSSL.

#[path = "../../examples/starttls.rs"]
mod example;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::common::{Harness, PATIENCE, bench};
use crate::programs;
use crate::tls;
use example::{Mail, Talk};
use windlass::Completions;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass_serve::framing::{Input, Lines};
use windlass_serve::modes::IoMode;
use windlass_serve::tls::{Destination, Provider, Session, SessionState, Tls, TlsClient};
use windlass_serve::{Config, Engine, Event, Server};

crate::every_kernel! {
    a_mail_goes_from_the_client_to_the_server
    a_client_that_trusts_another_name_sends_no_mail
    a_client_sends_no_mail_where_the_offer_is_taken_away
    a_plain_client_is_told_to_go_over
}

const ANY: &str = "tcp://127.0.0.1:0";

fn mail(name: &str) -> (Tls, Destination) {
    let (_, server, client) = tls::settings(Provider::Ring);
    (server.build().unwrap(), client.build().unwrap().to(name).unwrap())
}

fn a_mail_goes_from_the_client_to_the_server<T: Harness>() {
    let (tls, to) = mail("localhost");
    let server = Server::new(|_| Mail::new(tls.clone(), Some(to.clone())));
    let mut b = bench::<T, _, _>(server.listen(ANY).unwrap());
    b.until("it is over", |b| b.running.is_over());
    let told = b.running.handler().told.join("\n");
    let expected = "S: 220 localhost ESMTP
C: EHLO client
S: 250-localhost
S: 250 STARTTLS
C: STARTTLS
S: 220 go ahead
C: EHLO client
S: 250 localhost
C: MAIL FROM:<a@localhost>
S: 250 ok
C: RCPT TO:<b@localhost>
S: 250 ok
C: DATA
S: 354 a dot ends it
C: Subject: hello
C: 
C: It came encrypted.
C: .
S: 250 taken
C: QUIT
S: 221 bye
the mail is sent";
    assert_eq!(told, expected);
    let counted = b.running.report().counters.handshakes;
    assert_eq!((counted.begun, counted.completed), (2, 2));
}

fn a_client_that_trusts_another_name_sends_no_mail<T: Harness>() {
    let (tls, to) = mail("mail.example");
    let server = Server::new(|_| Mail::new(tls.clone(), Some(to.clone())));
    let mut b = bench::<T, _, _>(server.listen(ANY).unwrap());
    b.until("it is over", |b| b.running.is_over());
    let told = &b.running.handler().told;
    let last = told.last().unwrap();
    assert!(last.starts_with("no mail: ") && last.contains("mail.example"), "{last}");
    assert_eq!(told[told.len() - 2], "S: 220 go ahead");
}

/// An attacker between both ends takes it out of the reply.
fn a_client_sends_no_mail_where_the_offer_is_taken_away<T: Harness>() {
    let (tls, to) = mail("localhost");
    let mut b =
        bench::<T, _, _>(Server::new(|_| Mail::new(tls.clone(), None)).listen(ANY).unwrap());
    b.running.handler().to = Some(to);
    let mut old = Engine::<()>::new(Config::new());
    let options = ListenOptions::default();
    let listener = old.listen(&mut b.watcher, ([127, 0, 0, 1], 0), options).unwrap();
    let address = b.watcher.local_address(old.listeners()[listener]).unwrap();
    let options = ConnectOptions::default();
    b.running.engine().connect([address], options, Talk::client()).unwrap();
    let (mut input, mut lines) = (Input::new(), Lines::new(100));
    let (mut heard, mut done) = (Vec::new(), Completions::new());
    while !b.running.is_over() {
        b.running.turn(&mut b.watcher);
        old.flush(&mut b.watcher);
        b.watcher.wait_timeout(&mut done, PATIENCE).unwrap();
        for completion in done.drain(..) {
            if let Some(foreign) = b.running.complete(&mut b.watcher, completion) {
                assert!(old.complete(&mut b.watcher, foreign).is_none());
            }
        }
        b.running.turn(&mut b.watcher);
        while let Some(event) = old.next_event(&mut b.watcher) {
            match event {
                Event::Opened { id, .. } => old.write(id, "220 old\r\n").unwrap(),
                Event::Data { id, data } => {
                    input.push(data);
                    while let Some(line) = input.next(&mut lines).unwrap() {
                        heard.push(String::from_utf8_lossy(&line).into_owned());
                        old.write(id, "250-old\r\n250 8BITMIME\r\n").unwrap();
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(heard, ["EHLO client"]);
    let told = b.running.handler().told.join("\n");
    let end = "the server does not offer TLS\nno mail: the connection was closed";
    assert!(told.ends_with(end), "{told}");
}

fn a_plain_client_is_told_to_go_over<T: Harness>() {
    let (tls, _) = mail("localhost");
    let mut b =
        bench::<T, _, _>(Server::new(|_| Mail::new(tls.clone(), None)).listen(ANY).unwrap());
    let client = b.connect();
    b.say(client, "NOOP\r\nEHLO x\r\nMAIL FROM:<a>\r\nDATA\r\nVRFY a\r\nQUIT\r\n");
    b.until("it is over", |b| b.client(client).eof);
    let heard = String::from_utf8_lossy(&b.client(client).heard).into_owned();
    let codes: Vec<_> = heard.lines().map(|line| &line[..4]).collect();
    assert_eq!(codes, ["220 ", "250 ", "250-", "250 ", "530 ", "530 ", "500 ", "221 "]);
    // A command behind the last plain one is not taken for an encrypted one.
    let client = b.connect();
    b.say(client, "EHLO x\r\nSTARTTLS\r\nNOOP\r\n");
    b.until("it is refused", |b| b.client(client).eof);
    let heard = &b.client(client).heard;
    let heard = String::from_utf8_lossy(heard);
    assert!(heard.contains("220 go ahead\r\n\u{15}"), "an alert: {heard:?}");
    assert_eq!(heard.matches("250 ").count(), 1, "{heard:?}");
}

/// A client with blocking calls: it goes over and sends a mail. Returns what it has heard behind
/// the upgrade.
#[cfg(unix)]
fn send_mail(address: std::net::SocketAddr, to: &TlsClient) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    socket.write_all(b"EHLO x\r\nSTARTTLS\r\n").expect("it reads");
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while !heard.ends_with(b"220 go ahead\r\n") {
        socket.read_exact(&mut byte).expect("more comes");
        heard.extend_from_slice(&byte);
    }
    let mut session = Session::client(to, "localhost").expect("a session");
    let (mut plain, mut out, mut has_said) = (Vec::new(), Vec::new(), false);
    let mut piece = [0; 4096];
    while session.state() != SessionState::PeerClosed {
        session.take_output(&mut out);
        if session.is_open() && !std::mem::replace(&mut has_said, true) {
            let mail = b"EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\nhello\r\n.\r\nQUIT\r\n";
            session.write_all(mail, &mut out).expect("it is open");
        }
        socket.write_all(&out).expect("it reads");
        out.clear();
        if session.state() != SessionState::PeerClosed {
            let count = socket.read(&mut piece).expect("more comes");
            assert_ne!(count, 0, "it says its end first");
            session.feed_into(&piece[..count], &mut plain).expect("TLS");
        }
    }
    String::from_utf8(plain).expect("text")
}

/// On loops, on threads with blocking reads, and on both.
#[cfg(unix)]
#[test]
fn each_mode_goes_over() {
    for mode in [IoMode::NonBlocking, IoMode::Blocking { threads: 8 }, IoMode::Mixed { threads: 2 }]
    {
        let (_, server, client) = tls::settings(Provider::Ring);
        let (tls, to) = (server.build().unwrap(), client.build().unwrap());
        let server = Server::new(move |_| Mail::new(tls.clone(), None)).io_mode(mode);
        let server = server.listen(ANY).unwrap();
        let running = server.start().unwrap();
        let address = running.addresses()[0].ip().unwrap();
        // More than the threads of the mixed mode.
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let to = to.clone();
                std::thread::spawn(move || send_mail(address, &to))
            })
            .collect();
        for client in clients {
            let heard = client.join().expect("it has ended");
            let codes: Vec<_> = heard.lines().map(|line| &line[..3]).collect();
            assert_eq!(codes, ["250", "250", "250", "354", "250", "221"], "{mode:?}");
        }
        running.shutdown();
        let counted = running.wait().unwrap().counters.handshakes;
        assert_eq!((counted.begun, counted.completed), (5, 5), "{mode:?}");
    }
}

/// The program of the example, and the client of OpenSSL.
#[cfg(unix)]
#[test]
fn openssl_goes_over_and_sends_a_mail() {
    if !programs::has_openssl() {
        return;
    }
    let (authority, server, _) = tls::settings(Provider::Ring);
    drop(server);
    let files = programs::Files::new("starttls");
    let made = authority.issue(&tls::parameters(&["localhost"]));
    let root = files.write("root.pem", &authority.pem);
    let tls = Tls::builder().provider(Provider::Ring).certificate(made.pems().0, made.pems().1);
    let tls = tls.build().unwrap();
    let running = Server::new(move |_| Mail::new(tls.clone(), None)).listen(ANY).unwrap();
    let running = running.start().unwrap();
    let address = running.addresses()[0].ip().unwrap().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-starttls", "smtp", "-connect", &address, "-CAfile", &root])
        .args(["-verify_return_error", "-servername", "localhost", "-quiet", "-crlf"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(b"EHLO x\nMAIL FROM:<a>\nRCPT TO:<b>\nDATA\nhello\n.\nQUIT\n").unwrap();
    // The server ends the connection.
    let output = client.wait_with_output().unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{all}");
    let codes: Vec<_> = said.lines().filter_map(|line| line.get(..3)).collect();
    assert!(codes.ends_with(&["250", "250", "250", "354", "250", "221"]), "{all}");
    running.shutdown();
    let report = running.wait().unwrap();
    let counted = report.counters.handshakes;
    assert_eq!((counted.begun, counted.completed), (1, 1));
}
