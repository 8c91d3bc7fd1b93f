//! Loops and threads: a topic has subscribers on all of them.

#![cfg(unix)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use windlass::{DriverKind, Watcher};
use windlass_serve::modes::{Balance, IoMode};
use windlass_web::websocket::WebSocketSettings;
use windlass_web::{App, Running};

use crate::client::{Got, Inbox, close, closed, request, said, text};
use crate::program::{Log, app};

/// A client with a socket of std.
struct Caller {
    stream: TcpStream,
    inbox: Inbox,
    taken: usize,
}

impl Caller {
    fn new(address: SocketAddr, path: &str) -> Caller {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        stream.set_nodelay(true).expect("an option");
        let mut caller = Caller { stream, inbox: Inbox::default(), taken: 0 };
        caller.say(request(path, "").as_bytes());
        caller
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("a write");
    }

    /// The next thing that it gets.
    #[track_caller]
    fn next(&mut self) -> Got {
        let mut buffer = vec![0; 1 << 16];
        while self.inbox.got.len() == self.taken {
            let count = self.stream.read(&mut buffer).expect("a read");
            assert!(count > 0, "an end behind {:?}", self.inbox.got);
            self.inbox.take(&buffer[..count]);
        }
        self.taken += 1;
        self.inbox.got[self.taken - 1].clone()
    }
}

/// Callers on all loops publish and hear; then the server shuts down.
fn converse(running: Running, count: usize) {
    let open = "/ws?open=!subscribe_a;!say_open";
    let mut callers: Vec<Caller> =
        (0..count).map(|_| Caller::new(running.address(), open)).collect();
    for caller in &mut callers {
        assert_eq!(caller.next(), said("open"));
        // An answer says that the subscription, which is behind the callback, is done.
        caller.say(&text("ready"));
        assert_eq!(caller.next(), said("ready"));
    }
    let remote = running.remote();
    assert_eq!(remote.totals().subscriptions, count as u64);
    for at in 0..20 {
        let by = &mut callers[at % count];
        by.say(&[text(&format!("!publish a {at}")), text("!say done")].concat());
        assert_eq!(by.next(), said(&at.to_string()), "before what follows");
        assert_eq!(by.next(), said("done"));
        for (other, caller) in callers.iter_mut().enumerate() {
            if other != at % count {
                assert_eq!(caller.next(), said(&at.to_string()));
            }
        }
    }
    // The order of a publisher is the same for all, on its loop and on others.
    let many: Vec<u8> = (0..100).flat_map(|at| text(&format!("!publish a {at}"))).collect();
    callers[0].say(&many);
    for caller in &mut callers {
        for at in 0..100 {
            assert_eq!(caller.next(), said(&at.to_string()));
        }
    }
    // And that of a thread.
    for at in 0..100 {
        assert!(remote.publish("a", format!("thread {at}")));
    }
    for caller in &mut callers {
        for at in 0..100 {
            assert_eq!(caller.next(), said(&format!("thread {at}")));
        }
    }
    // One closes, one goes, and a shutdown ends the others.
    let mut first = callers.pop().expect("one");
    first.say(&close(1000, ""));
    assert_eq!(first.next(), closed(1000));
    drop((first, callers.pop()));
    let ends = std::thread::spawn(move || running.shutdown().expect("a report"));
    for caller in &mut callers {
        assert_eq!(caller.next(), closed(1001));
        caller.say(&close(1001, ""));
        let mut rest = Vec::new();
        caller.stream.read_to_end(&mut rest).expect("an end of file");
        assert!(rest.is_empty(), "{rest:x?}");
    }
    drop(callers);
    let report = ends.join().expect("it ends");
    assert_eq!((report.totals.subscriptions, report.totals.slow_subscribers), (0, 0));
    assert_eq!(report.requests.classes[0], count as u64);
}

fn start(app: App<Log>) -> Running {
    let app = app.signals(false).listen("127.0.0.1:0").expect("an address");
    app.start().expect("it starts")
}

#[test]
fn loops_tell_each_other() {
    let app = app(WebSocketSettings::new()).loops(3).balance(Balance::RoundRobin);
    converse(start(app), 7);
}

#[test]
fn threads_serve_websockets() {
    let poll = || Watcher::builder().driver(DriverKind::Poll);
    let blocking = app(WebSocketSettings::new()).io_mode(IoMode::Blocking { threads: 20 });
    converse(start(blocking.watcher(poll())), 5);
    let mixed = app(WebSocketSettings::new()).io_mode(IoMode::Mixed { threads: 2 });
    converse(start(mixed.watcher(poll())), 5);
}
