//! A WebSocket client: each line of the standard input is a message, and messages that come are
//! printed.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring,webpki-roots --example websocket_client -- \
//!     [--trust FILE] [--protocol NAME] [--autobahn] URL
//! ```
//!
//! `--trust FILE` has the certificate authorities that are trusted for `wss`, instead of those of
//! the feature `webpki-roots`. With the feature `deflate`, messages are compressed if the server
//! agrees. The connection closes at the end of the input: what comes later is not printed.
//! With `--autobahn` the server is Autobahn's test suite: the client runs all of its cases, and
//! lets it write its report.

use std::io::{self, BufRead, Write};
use std::thread;

use windlass_web::Client;
use windlass_web::client::{FetchEvent, FetchSettings};
use windlass_web::serve::Id;
#[cfg(feature = "deflate")]
use windlass_web::websocket::Deflate;
use windlass_web::websocket::{CloseCode, Message, WebSocketSettings};
use windlass_web::windlass::{Completions, Done, Watcher};

#[path = "common/autobahn.rs"]
mod autobahn;
#[path = "../../../examples/common/options.rs"]
mod options;

pub(crate) use autobahn::autobahn;
use options::Options;

const USAGE: &str = "websocket_client [--trust FILE] [--protocol NAME] [--autobahn] URL";

fn main() -> io::Result<()> {
    let mut options = Options::new(USAGE);
    let trust: Option<String> = options.take("--trust");
    let protocol: Option<String> = options.take("--protocol");
    let is_test = options.flag("--autobahn");
    let url: String = options.word();
    options.end();

    let mut watcher = Watcher::new()?;
    let mut client = Client::new(settings(trust)?);
    let settings = WebSocketSettings::new().protocols(protocol).message_limit(64 << 20);
    #[cfg(feature = "deflate")]
    let settings =
        settings.deflate(Deflate { server_window: 15, client_window: 15, ..Deflate::TAKEOVER });
    let result = if is_test {
        autobahn(&mut watcher, &mut client, &settings, &url)
    } else {
        let input = io::BufReader::new(io::stdin());
        talk(&mut watcher, &mut client, &settings, &url, input, &mut io::stdout())
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
    Ok(())
}

#[cfg(feature = "ring")]
fn settings(trust: Option<String>) -> io::Result<FetchSettings> {
    use windlass_web::tls::TlsClient;
    let settings = FetchSettings::new();
    let Some(file) = trust else { return Ok(settings) };
    let tls = TlsClient::builder().roots(file.as_str()).alpn(["http/1.1"]).build()?;
    Ok(settings.trust(tls))
}

#[cfg(not(feature = "ring"))]
fn settings(trust: Option<String>) -> io::Result<FetchSettings> {
    match trust {
        Some(_) => Err(io::Error::other("--trust needs the feature `ring`")),
        None => Ok(FetchSettings::new()),
    }
}

/// Sends lines, and prints messages, until the connection or the input ends.
pub(crate) fn talk(
    watcher: &mut Watcher,
    client: &mut Client,
    settings: &WebSocketSettings,
    url: &str,
    input: impl BufRead + Send + 'static,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut input = Some(input);
    client.open_websocket(url, settings);
    let (mut done, mut open): (_, Option<Id>) = (Completions::new(), None);
    loop {
        client.flush(watcher);
        watcher.wait(&mut done)?;
        let mut batch = done.visit();
        while let Some(event) = client.next_event_in(watcher, &mut batch) {
            match event {
                FetchEvent::Opened { socket, .. } => {
                    open = Some(socket);
                    let (submitter, Some(input)) = (watcher.submitter(), input.take()) else {
                        continue;
                    };
                    thread::spawn(move || {
                        let mut lines = input.lines().map_while(Result::ok).map(Some);
                        let _ = lines.all(|line| submitter.post(0, line).is_ok());
                        let _ = submitter.post(0, None::<String>);
                    });
                }
                // The reader of the input has a line, or its end.
                FetchEvent::Foreign(completion) => {
                    let Ok(Done::Message(message)) = completion.result else { continue };
                    let line: Option<String> = message.downcast().expect("nothing else is posted");
                    let Some(mut socket) = open.and_then(|id| client.socket(id)) else { continue };
                    match line {
                        Some(line) => _ = socket.send(line),
                        None => socket.close(CloseCode::NORMAL, ""),
                    }
                }
                FetchEvent::Message { message, .. } => print(&message, out)?,
                FetchEvent::Closed { end, .. } => {
                    match end.code {
                        Some(code) => eprintln!("closed: {code} {}", end.reason),
                        None => eprintln!("closed: {}", end.cause),
                    }
                    return Ok(());
                }
                FetchEvent::Failed { error, .. } => return Err(io::Error::other(error)),
                _ => {}
            }
        }
    }
}

fn print(message: &Message, out: &mut impl Write) -> io::Result<()> {
    match message {
        Message::Text(text) => writeln!(out, "{text}"),
        Message::Binary(bytes) => writeln!(out, "{} bytes", bytes.len()),
    }
}
