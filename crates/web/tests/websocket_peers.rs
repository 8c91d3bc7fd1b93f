//! WebSocket clients of others: the npm package ws, the Python package websockets, two packages of
//! Go, bun, deno and Node.js itself. `.ci/websocket_peers.sh` installs them; what is not there is
//! skipped.
#![allow(missing_docs)] // a test binary has no users
#![cfg(unix)]

mod common;
#[path = "../../serve/tests/common/programs.rs"]
mod programs;
#[cfg(feature = "ring")]
#[path = "common/secure.rs"]
mod secure;
#[cfg(feature = "ring")]
#[path = "common/wire.rs"]
mod wire;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::real::Real;
use programs::has;
use programs::skip::{Needs, skip};
use windlass::DriverKind;
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, SocketEnd, WebSocketSettings};
use windlass_web::{App, Status};

/// Says again what it hears. Its clients close with this code and this reason.
struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        assert!(c.send(message), "the client reads");
    }

    fn closed(&mut self, _: &mut (), end: &SocketEnd) {
        let said = (end.code.map(CloseCode::number), &*end.reason, end.is_clean);
        assert_eq!(said, (Some(4000), "good bye", true), "{end:?}");
    }
}

/// Closes for the reason that it hears.
struct Closes;

impl Peer<()> for Closes {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        let code = CloseCode::new(4001).expect("a code");
        c.close(code, message.as_text().expect("text"));
    }
}

/// What a server does with permessage-deflate, as the clients are told.
const POLICIES: &[&str] =
    if cfg!(feature = "deflate") { &["off", "fresh", "takeover"] } else { &["off"] };

fn app(policy: &str) -> App {
    let settings = WebSocketSettings::new();
    let settings = match policy {
        "off" => settings,
        #[cfg(feature = "deflate")]
        "fresh" => settings.deflate(windlass_web::websocket::Deflate::NO_TAKEOVER),
        #[cfg(feature = "deflate")]
        "takeover" => settings.deflate(windlass_web::websocket::Deflate::TAKEOVER),
        _ => unreachable!("{policy}"),
    };
    App::new()
        .websocket_with(settings.clone(), "/echo", |_, _| Ok::<_, Status>(Echo))
        .websocket_with(settings, "/close", |_, _| Ok::<_, Status>(Closes))
}

/// Where `.ci/websocket_peers.sh` has installed a peer.
fn installed(name: &'static str, path: &str) -> Option<PathBuf> {
    let found = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../peers").join(path);
    if !found.exists() {
        skip(Needs::Program(name), format!("{name}: .ci/websocket_peers.sh has not installed it"));
        return None;
    }
    Some(found)
}

fn source(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a client with the URL of a server and its policy, for each policy. It says `ok`.
#[track_caller]
fn serve(command: impl Fn(&str, &str) -> Command) {
    for policy in POLICIES {
        let server = Real::with(DriverKind::Auto, app(policy));
        ask(command(&format!("ws://{}", server.address()), policy));
        let report = server.stop();
        assert_eq!(report.panics, 0);
    }
}

#[track_caller]
fn ask(mut command: Command) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && out.starts_with("ok"), "{command:?}: {status}: {out}{err}");
}

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[test]
fn npm_ws_is_served() {
    if !has("node", &["--version"], "v") {
        return;
    }
    let Some(ws) = installed("ws", "ws/node_modules/ws/wrapper.mjs") else { return };
    let ws = ws.to_str().expect("a name");
    serve(|url, policy| run("node", &[&source("websocket.mjs"), url, policy, ws]));
}

#[test]
fn python_websockets_is_served() {
    let Some(_) = installed("websockets", "python-websockets-17.4") else { return };
    let Some(python) = installed("websockets", "python/bin/python") else { return };
    serve(|url, policy| run(&python, &[&source("websocket.py"), url, policy]));
}

#[test]
fn go_is_served() {
    let Some(program) = installed("go-websocket", "go-websocket") else { return };
    serve(|url, policy| run(&program, &[url, policy]));
}

#[test]
fn bun_is_served() {
    let Some(bun) = installed("bun", "bun/bun") else { return };
    serve(|url, policy| run(&bun, &[&source("websocket_web.mjs"), url, policy]));
}

#[test]
fn deno_is_served() {
    let Some(deno) = installed("deno", "deno/deno") else { return };
    const ALONE: [&str; 5] = ["run", "--allow-net", "--no-config", "--no-remote", "--no-lock"];
    serve(|url, policy| {
        run(&deno, &[&ALONE[..], &[&source("websocket_web.mjs"), url, policy]].concat())
    });
}

/// Node.js has a client of its own, from version 20 behind an option.
#[test]
fn node_is_served() {
    const OPTIONS: [&str; 2] = ["--no-warnings", "--experimental-websocket"];
    if !has("node", &["--version"], "v") {
        return;
    }
    let node = |arguments: &[&str]| run("node", &[&OPTIONS, arguments].concat());
    let answer = node(&["-p", "typeof WebSocket"]).output().expect("it starts");
    if answer.stdout != b"function\n" {
        skip(Needs::Luck, "node: this version has no WebSocket");
        return;
    }
    serve(|url, policy| node(&[&source("websocket_web.mjs"), url, policy]));
}

/// The same clients over TLS.
#[cfg(feature = "ring")]
#[test]
fn clients_are_served_over_tls() {
    let files = programs::Files::new("websocket-peers");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
    let trust = files.write("cert.pem", &made.cert.pem());
    let key = files.write("key.pem", &made.signing_key.serialize_pem());
    for policy in POLICIES {
        let tls = windlass_web::tls::Tls::pem(trust.as_str(), key.as_str()).expect("files");
        let app = app(policy).listen(("127.0.0.1:0", tls)).expect("a port");
        let server = app.start().expect("a server");
        let url = format!("wss://localhost:{}", server.address().port());
        if let Some(ws) = installed("ws", "ws/node_modules/ws/wrapper.mjs") {
            let ws = ws.to_str().expect("a name");
            ask(run("node", &[&source("websocket.mjs"), &url, policy, ws, &trust]));
        }
        if let Some(python) = installed("websockets", "python/bin/python") {
            ask(run(python, &[&source("websocket.py"), &url, policy, &trust]));
        }
        if let Some(program) = installed("go-websocket", "go-websocket") {
            ask(run(program, &[&url, policy, &trust]));
        }
        let report = common::real::shutdown(server);
        assert_eq!(report.panics, 0);
    }
}
