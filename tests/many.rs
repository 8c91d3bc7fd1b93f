//! 8192 connections, client and server in processes of their own, each a single thread.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // the helpers look at raw descriptors

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;

use common::*;
use windlass::{Completions, Done, DriverKind, Op, Watcher};

const CONNECTIONS: usize = 8192;
const MESSAGE: usize = 1024;
const SERVER: &str = "many-server";

#[test]
fn eight_thousand_connections_between_two_processes() {
    if child::is_child(SERVER) {
        return serve();
    }
    let mut server = child::spawn("eight_thousand_connections_between_two_processes", SERVER);
    let mut control = server.stdin.take().expect("piped");
    let mut out = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    let at: SocketAddr = loop {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the server is gone");
        if let Some((_, rest)) = line.split_once("LISTENING") {
            break rest.trim().parse().expect("an address");
        }
    };
    let drain = std::thread::spawn(move || {
        let mut text = String::new();
        for line in out.lines() {
            text.push_str(&line.unwrap());
        }
        text
    });
    let mut b = Epoll::bench();
    for i in 0..CONNECTIONS {
        b.submit(Op::connect(at).token(i as u64));
    }
    let mut echoed = 0;
    let mut sources = Vec::new();
    while echoed < CONNECTIONS {
        let c = b.next();
        let message = || pattern(MESSAGE, c.token);
        match c.result {
            Ok(Done::Socket(socket)) => {
                let source = b.watcher.attach(socket).unwrap();
                sources.push(source);
                b.submit(Op::write(source, message()).token(c.token));
                let read = Op::read_exact(source, room(MESSAGE), MESSAGE);
                b.submit(read.token(c.token));
            }
            Ok(Done::Written { .. }) => {}
            Ok(Done::Read(data)) => {
                expect_same(&data, &message());
                echoed += 1;
            }
            other => panic!("connection {}: {other:?}", c.token),
        }
    }
    // All of them are open at once.
    assert_eq!(b.watcher.counters().sources, CONNECTIONS as u64);
    for source in sources {
        b.watcher.abort(source);
    }
    b.now();
    b.expect_all_ended();
    control.write_all(b"q").unwrap();
    let (ended, text) = child::finish(server);
    let out = join(drain, "the last words of the server");
    assert!(ended, "{text}");
    assert!(out.contains(&format!("SERVED {CONNECTIONS}")), "{out}");
}

fn serve() {
    let mut watcher = Watcher::builder().driver(DriverKind::Epoll).build().unwrap();
    let listener = watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let control = watcher.attach_dup(std::io::stdin()).unwrap();
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    watcher.submit(Op::read(control)).unwrap();
    println!("LISTENING {}", watcher.local_address(listener).unwrap());
    let mut done = Completions::new();
    let (mut served, mut ended, mut quit) = (0, 0, false);
    while !quit || ended < served {
        let count = watcher.wait_timeout(&mut done, BOUND).unwrap();
        assert!(count > 0, "{served} served, {ended} ended, and nothing more comes");
        for c in done.drain(..) {
            match c.result {
                Ok(Done::Accepted(socket)) => {
                    let source = watcher.attach(socket).unwrap();
                    served += 1;
                    watcher.submit(Op::read(source)).unwrap();
                }
                Ok(Done::Read(_)) if c.source == control => quit = true,
                Ok(Done::Read(data)) if data.is_eof() => {
                    ended += 1;
                    watcher.abort(c.source);
                }
                Ok(Done::Read(data)) => drop(watcher.submit(Op::write(c.source, data)).unwrap()),
                Ok(Done::Written { .. }) => drop(watcher.submit(Op::read(c.source)).unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }
    println!("SERVED {served}");
}
