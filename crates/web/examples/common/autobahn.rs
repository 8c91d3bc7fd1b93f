//! The client side of Autobahn's test suite: <https://github.com/crossbario/autobahn-testsuite>.

use std::io;

use windlass_web::Client;
use windlass_web::client::FetchEvent;
use windlass_web::serve::Id;
use windlass_web::websocket::{CloseCode, Message, WebSocketSettings};
use windlass_web::windlass::Watcher;

/// Runs all cases of Autobahn's test suite.
pub(crate) fn autobahn(
    watcher: &mut Watcher,
    client: &mut Client,
    settings: &WebSocketSettings,
    url: &str,
) -> io::Result<()> {
    let url = url.trim_end_matches('/');
    let mut count = None;
    run(watcher, client, settings, &format!("{url}/getCaseCount"), |client, socket, message| {
        count = message.as_text().and_then(|text| text.parse::<u32>().ok());
        client.socket(socket)?.close(CloseCode::NORMAL, "");
        Some(())
    })?;
    let count = count.ok_or_else(|| io::Error::other("the server does not tell how many cases"))?;
    println!("{count} cases");
    for case in 1..=count {
        let case = format!("{url}/runCase?case={case}&agent=windlass");
        run(watcher, client, settings, &case, |client, socket, message| {
            client.socket(socket)?.send(message).then_some(())
        })?;
    }
    let report = format!("{url}/updateReports?agent=windlass");
    run(watcher, client, settings, &report, |_, _, _| None)
}

/// Opens a connection, and calls `hear` with each message until the connection ends.
fn run(
    watcher: &mut Watcher,
    client: &mut Client,
    settings: &WebSocketSettings,
    url: &str,
    mut hear: impl FnMut(&mut Client, Id, Message) -> Option<()>,
) -> io::Result<()> {
    client.open_websocket(url, settings);
    loop {
        match client.wait_event(watcher)? {
            FetchEvent::Message { socket, message } => _ = hear(client, socket, message),
            FetchEvent::Failed { error, .. } => return Err(io::Error::other(error)),
            FetchEvent::Closed { .. } => return Ok(()),
            _ => {}
        }
    }
}
