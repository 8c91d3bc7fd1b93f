//! Sources that connect leave no descriptor behind, however their connects end. The process has one
//! test, so that it can count its descriptors.
#![allow(missing_docs)] // a test binary has no users
#![cfg(target_os = "linux")]

use std::net::SocketAddr;
use std::time::Duration;

use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Completions, Done, DriverKind, ErrorKind, Op, Source, Ticket, Watcher};

#[path = "common/bound.rs"]
mod bound;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors of this process").count()
}

/// Addresses that never answer, as long as the connections that fill the backlog live.
fn silent(watcher: &mut Watcher) -> (SocketAddr, Vec<windlass::Handle>) {
    let backlog = ListenOptions::default().backlog(0);
    let listener = watcher.listen_with(([127, 0, 0, 1], 0), backlog).expect("a listener");
    let at = watcher.local_address(listener).expect("an address").ip().expect("of TCP");
    let (mut clients, mut done) = (Vec::new(), Completions::new());
    loop {
        watcher.submit(Op::connect(at).timeout(Duration::from_millis(100))).expect("room");
        watcher.wait(&mut done).expect("a wait");
        match done.drain(..).next().expect("a completion").result {
            Ok(Done::Socket(client)) => clients.push(client),
            Err(error) if error.kind() == ErrorKind::Deadline => return (at, clients),
            other => panic!("wanted a connection, or silence: {other:?}"),
        }
    }
}

/// Waits for so many completions.
fn wait_for(watcher: &mut Watcher, done: &mut Completions, count: usize) {
    while done.len() < count {
        let came = watcher.wait_timeout(done, bound::BOUND).expect("a wait");
        assert!(came > 0, "nothing completes: {done:?}");
    }
}

/// A connect with `attempts` attempts in flight, each of which has a descriptor.
fn begin(
    watcher: &mut Watcher,
    at: SocketAddr,
    attempts: usize,
    limit: Duration,
) -> (Source, Ticket) {
    let before = descriptors();
    let options = ConnectOptions::default().attempt_delay(Duration::from_millis(10));
    let made = watcher.connect(vec![at; attempts], options.timeout(limit)).expect("room");
    bound::until("one descriptor for each attempt", || {
        let mut done = Completions::new();
        watcher.wait_timeout(&mut done, Duration::from_millis(5)).expect("a wait");
        assert!(done.is_empty(), "it ended: {done:?}");
        descriptors() == before + attempts
    });
    made
}

#[test]
fn every_attempt_closes_its_descriptor() {
    let _watch = bound::Watch::begin();
    let long = Duration::from_secs(3600);
    for kind in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
        let before = descriptors();
        let mut watcher = Watcher::builder().driver(kind).build().expect("a driver of Linux");
        let (at, clients) = silent(&mut watcher);
        let mut done = Completions::new();
        let idle = descriptors();
        // Abort.
        let (source, _) = begin(&mut watcher, at, 3, long);
        assert!(watcher.abort(source));
        wait_for(&mut watcher, &mut done, 1);
        assert_eq!(descriptors(), idle, "{kind:?}: after an abort");
        // Cancel.
        let (source, ticket) = begin(&mut watcher, at, 3, long);
        assert!(watcher.cancel(ticket));
        wait_for(&mut watcher, &mut done, 2);
        assert_eq!(descriptors(), idle, "{kind:?}: after a cancel");
        watcher.abort(source);
        // Deadline.
        let (source, ticket) = begin(&mut watcher, at, 3, long);
        watcher.reschedule(ticket, Duration::ZERO).expect("it goes on");
        wait_for(&mut watcher, &mut done, 3);
        assert_eq!(descriptors(), idle, "{kind:?}: after a deadline");
        watcher.abort(source);
        // A win beside silent attempts.
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let list = vec![at, at, server.local_addr().expect("its address")];
        let options = ConnectOptions::default().attempt_delay(Duration::from_millis(10));
        let (source, _) = watcher.connect(list, options).expect("room");
        wait_for(&mut watcher, &mut done, 4);
        let won = done.drain(..).next_back().expect("the last");
        assert!(matches!(won.result, Ok(Done::Connected(_))), "{won:?}");
        assert_eq!(descriptors(), idle + 2, "{kind:?}: the server and the connection");
        watcher.abort(source);
        drop(server);
        assert_eq!(descriptors(), idle);
        // Close, and a drop without it.
        begin(&mut watcher, at, 2, long);
        watcher.close();
        wait_for(&mut watcher, &mut done, 1);
        drop((watcher, clients));
        assert_eq!(descriptors(), before, "{kind:?}: after a close");
        let mut watcher = Watcher::builder().driver(kind).build().expect("a driver of Linux");
        let (at, clients) = silent(&mut watcher);
        begin(&mut watcher, at, 2, long);
        drop((watcher, clients));
        assert_eq!(descriptors(), before, "{kind:?}: after a drop");
    }
}
