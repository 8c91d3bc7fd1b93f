//! The example of this name, with a server of ours.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use windlass::Watcher;
use windlass_web::client::FetchSettings;
use windlass_web::websocket::{CloseCode, Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, Client, Request, Status};

#[allow(dead_code)] // its options are not needed
#[path = "../../examples/websocket_client.rs"]
mod websocket_client;

/// Answers as Autobahn's test suite does.
struct Suite {
    path: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Peer<()> for Suite {
    fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
        self.log.lock().expect("no panic").push(self.path.clone());
        match &*self.path {
            "/getCaseCount" => _ = c.send("2"),
            "/runCase" => _ = c.send("case"),
            "/echo" => {}
            _ => c.close(CloseCode::NORMAL, ""),
        }
    }

    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        let text = message.as_text().expect("a text").to_owned();
        self.log.lock().expect("no panic").push(text.clone());
        match &*self.path {
            "/echo" => _ = c.send(message),
            _ => c.close(CloseCode::NORMAL, ""),
        }
    }
}

fn run(test: impl FnOnce(&mut Watcher, &mut Client, String)) -> Vec<String> {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&log);
    let app = App::new().websocket("/{*path}", move |_, q: &mut Request<'_>| {
        Ok::<_, Status>(Suite { path: q.path().to_owned(), log: Arc::clone(&seen) })
    });
    let running = app.listen("127.0.0.1:0").expect("an address").start().expect("it starts");
    let mut watcher = Watcher::new().expect("a watcher");
    let mut client = Client::new(FetchSettings::new());
    test(&mut watcher, &mut client, format!("ws://{}", running.address()));
    running.shutdown().expect("it ends");
    let log = log.lock().expect("no panic");
    log.clone()
}

#[test]
fn it_sends_lines_and_prints_messages() {
    let mut out = Vec::new();
    let log = run(|watcher, client, url| {
        let (settings, input) = (WebSocketSettings::new(), Cursor::new("one\ntwo\n"));
        let url = url + "/echo";
        websocket_client::talk(watcher, client, &settings, &url, input, &mut out)
            .expect("a connection");
    });
    assert_eq!(log, ["/echo", "one", "two"]);
    // The echo of the last line may come behind the close.
    assert!("one\ntwo\n".starts_with(std::str::from_utf8(&out).expect("a text")));
}

#[test]
fn it_runs_all_cases_of_autobahn() {
    let log = run(|watcher, client, url| {
        websocket_client::autobahn(watcher, client, &WebSocketSettings::new(), &url)
            .expect("all cases");
    });
    let case = ["/runCase", "case"];
    assert_eq!(log, [&["/getCaseCount"][..], &case, &case, &["/updateReports"]].concat());
}

#[test]
fn it_says_why_there_is_no_connection() {
    run(|watcher, client, url| {
        let settings = WebSocketSettings::new();
        let url = url.replace("ws:", "ftp:");
        let error = websocket_client::autobahn(watcher, client, &settings, &url).unwrap_err();
        assert!(error.to_string().ends_with("its scheme is neither http nor https"), "{error}");
    });
}
