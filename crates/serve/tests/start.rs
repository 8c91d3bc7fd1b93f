//! What a failed start leaves behind.
#![cfg(unix)]
#![allow(missing_docs)] // a test binary has no users

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use windlass::sim::Sim;
use windlass::{Buf, Watcher};
use windlass_serve::{Action, Conn, Handler, Server};

/// Sends back what comes. `!` shuts the server down.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let is_last = *data == *b"!";
        c.write(data);
        if is_last { Action::Shutdown } else { Action::None }
    }
}

/// Each watcher of the program is as it was.
#[test]
fn a_failed_start_listens_nowhere() {
    let path = std::env::temp_dir().join(format!("windlass-start-{}", std::process::id()));
    let at = Arc::new(Mutex::new(None));
    let listener_at = Arc::clone(&at);
    let mut watchers: Vec<Watcher> = (0..3).map(|_| Watcher::new().unwrap()).collect();
    let server = Server::new(|_loop| Echo)
        .listen(&format!("unix://{}", path.display()))
        .unwrap()
        .listeners(move |index| {
            if index == 2 {
                return Err(std::io::Error::other("on purpose"));
            }
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener_at.lock().unwrap().get_or_insert(listener.local_addr()?);
            Ok(listener)
        });
    let error = server.start_on_each(&mut watchers).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "on purpose");
    let first = at.lock().unwrap().expect("the first loop has listened");
    assert_eq!(TcpStream::connect(first).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!path.exists(), "the path of the socket is left");
    drop(watchers);
}

/// A panic of the maker leaves nothing behind, either.
#[test]
fn a_maker_that_panics_listens_nowhere() {
    let sim = Sim::new(1);
    let mut watchers: Vec<Watcher> = (0..2).map(|_| Watcher::simulated(&sim)).collect();
    let new = |make: fn(usize) -> Echo| {
        Server::new(make).listen("tcp://127.0.0.1:7007").expect("an address")
    };
    let panics = new(|index| if index == 0 { Echo } else { panic!("on purpose") });
    let started = catch_unwind(AssertUnwindSafe(|| panics.start_on_each(&mut watchers).map(drop)));
    assert!(started.is_err());
    let mut other = Watcher::simulated(&sim);
    new(|_| Echo).start_on(&mut other).expect("the address is free");
}
