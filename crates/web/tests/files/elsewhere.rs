//! Files over TLS, and in a loop of the program.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::wire::Client;
use super::{Tree, pattern};
use windlass::net::ListenOptions;
use windlass::{Completions, Watcher};
use windlass_web::engine::Event;
use windlass_web::serve::Config;
use windlass_web::{Engine, Limits, Response, Status};

#[test]
fn an_engine_sends_files() {
    let tree = Tree::new();
    let (small, large) = (pattern(1000), pattern(1 << 20));
    tree.write("www/small", &small);
    tree.write("www/large", &large);
    let (root, (tell, told)) = (tree.www(), channel());
    let server = std::thread::spawn(move || {
        let mut watcher = Watcher::new().expect("a watcher");
        let mut engine = Engine::<()>::new(Config::new(), Limits::new());
        engine.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default()).expect("a port");
        let address = watcher.local_address(engine.listeners()[0]).expect("one").ip().expect("IP");
        tell.send(address).expect("the test listens");
        let (mut done, mut ends) = (Completions::new(), Vec::new());
        while ends.len() < 5 {
            watcher.wait_timeout(&mut done, Duration::from_secs(60)).expect("a wait");
            let mut batch = done.visit();
            while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
                match event {
                    Event::Request { id, request } => {
                        let name = request.path().trim_start_matches('/').to_owned();
                        let response = match &*name {
                            "made" => Response::file(root.join("small")).status(Status::CREATED),
                            name => Response::file(root.join(name)),
                        };
                        engine.respond(id, response).expect("it waits");
                    }
                    Event::Ended { status, .. } => ends.push(status.map(Status::code)),
                    _ => {}
                }
            }
            engine.flush(&mut watcher);
        }
        ends
    });
    let mut client = Client::new(told.recv().expect("an address"));
    assert!(client.get("/small").body == small);
    assert!(client.get("/large").body == large);
    let part = client.send("GET", "/large", "Range: bytes=1000-1999\r\n", "");
    assert!(part.status == 206 && part.body == large[1000..2000]);
    // What has a status of its own is sent whole.
    let made = client.send("GET", "/made", "Range: bytes=0-1\r\n", "");
    assert!(made.status == 201 && made.body == small);
    assert_eq!(client.get("/none").status, 404);
    let ends = server.join().expect("no panic");
    assert_eq!(ends, [200, 200, 206, 201, 404].map(Some));
}

#[cfg(feature = "ring")]
mod tls {
    use std::net::SocketAddr;

    use super::*;
    use crate::secure::{Authority, Secure};
    use windlass_web::App;
    use windlass_web::files::FilesOptions;
    use windlass_web::tls::TlsClient;

    /// The bytes are encrypted: from the page cache, past it, and from memory.
    #[test]
    fn files_are_encrypted() {
        let tree = Tree::new();
        let (small, large) = (pattern(1000), pattern(1 << 20));
        tree.write("www/small", &small);
        tree.write("www/large", &large);
        let authority = Authority::new();
        let app = App::new()
            .files("/a", tree.www(), FilesOptions::new())
            .files("/b", tree.www(), FilesOptions::new().direct(true))
            .files("/c", tree.www(), FilesOptions::new().cache(0, Duration::ZERO));
        let tls = authority.server("localhost").build().expect("a server");
        let server =
            app.listen(("127.0.0.1:0", tls)).expect("an address").start().expect("it starts");
        let address: SocketAddr = server.address();
        let trust = TlsClient::builder().roots(authority.root()).build().expect("a client");
        let mut client = Secure::open(address, &trust).expect("a handshake");
        for _ in 0..2 {
            for route in ["a", "b", "c"] {
                assert!(client.get(&format!("/{route}/small")).body == small, "{route}");
                assert!(client.get(&format!("/{route}/large")).body == large, "{route}");
                let fields = "Range: bytes=70000-300000\r\n";
                let part = client.send("GET", &format!("/{route}/large"), fields, "");
                assert!(part.status == 206 && part.body == large[70_000..300_001], "{route}");
            }
        }
        server.shutdown().expect("a report");
    }
}
