//! Servers on threads of their own, and what a failed start leaves behind.
#![cfg(unix)]
#![allow(missing_docs)] // a test binary has no users

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::sim::Sim;
use windlass::{Buf, Watcher};
use windlass_serve::{Action, Conn, Handler, IoMode, Running, Server};

/// The longest that a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

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

const MODES: [(usize, IoMode); 4] = [
    (1, IoMode::NonBlocking),
    (3, IoMode::NonBlocking),
    (1, IoMode::Blocking { threads: 4 }),
    (2, IoMode::Mixed { threads: 1 }),
];

fn address(server: &Running) -> SocketAddr {
    server.addresses()[0].ip().expect("an internet address")
}

fn client(server: &Running) -> TcpStream {
    let client = TcpStream::connect(address(server)).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    client
}

#[track_caller]
fn echoes(client: &mut TcpStream, what: &[u8]) {
    client.write_all(what).expect("it is open");
    let mut heard = vec![0; what.len()];
    client.read_exact(&mut heard).expect("an answer");
    assert_eq!(heard, what);
}

#[track_caller]
fn has_ended(client: &mut TcpStream) {
    assert_eq!(client.read(&mut [0]).expect("a clean end"), 0);
}

#[test]
fn a_server_serves_beside_its_program_in_every_mode() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut clients: Vec<TcpStream> = (0..3).map(|_| client(&server)).collect();
        clients.iter_mut().for_each(|client| echoes(client, b"hello"));
        assert_eq!(server.remote().loops(), loops);
        server.shutdown();
        clients.iter_mut().for_each(has_ended);
        drop(clients);
        let report = server.wait().unwrap();
        assert_eq!((report.counts.accepted, report.counts.ends.shutdown), (3, 3), "{mode:?}");
        assert!(report.unfinished.is_empty());
    }
}

#[test]
fn a_wait_waits_for_a_shutdown_of_the_handler() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut client = client(&server);
        let waits = std::thread::spawn(move || server.wait());
        echoes(&mut client, b"hello");
        echoes(&mut client, b"!");
        has_ended(&mut client);
        drop(client);
        assert_eq!(waits.join().unwrap().unwrap().counts.accepted, 1, "{mode:?}");
    }
}

#[test]
fn a_drop_shuts_the_server_down_and_frees_its_port() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let (at, mut client) = (address(&server), client(&server));
        echoes(&mut client, b"hello");
        // The peer closes when it has heard the end, and the drop waits for that.
        let hears = std::thread::spawn(move || has_ended(&mut client));
        drop(server);
        hears.join().unwrap();
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_server_that_cannot_start_says_so() {
    for (loops, mode) in MODES {
        let new = || Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("tcp://{}", taken.local_addr().unwrap());
        let error = new().listen(&at).unwrap().start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{mode:?}");
        assert_eq!(new().start().unwrap_err().kind(), ErrorKind::InvalidInput, "{mode:?}");
        let panics = new().listeners(|_| -> std::io::Result<TcpListener> { panic!("on purpose") });
        let started = catch_unwind(AssertUnwindSafe(|| panics.start().map(drop)));
        assert!(started.is_err() || started.is_ok_and(|started| started.is_err()), "{mode:?}");
    }
}

#[test]
fn a_panic_of_the_maker_comes_out_of_wait() {
    // The connection has a thread, whose handler cannot be made.
    let make = |index: usize| if index == 0 { Echo } else { panic!("on purpose") };
    let server = Server::new(make).io_mode(IoMode::Blocking { threads: 1 });
    let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
    let client = client(&server);
    let waited = catch_unwind(AssertUnwindSafe(|| server.wait().map(drop)));
    assert!(waited.is_err());
    drop(client);
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
