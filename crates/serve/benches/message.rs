//! What a message costs in user space: an echo over a bare watcher, an engine, and a server.
//!
//! ```text
//! cargo bench -p windlass-serve --bench message -- bare|corked|engine|queued|server [MESSAGES]
//! perf stat -e instructions:u …
//! ```
//!
//! 64 connections echo 64 bytes each, in turns: all clients speak, then the loop serves all. The
//! clients are plain sockets of the same thread, at the same cost in each case. So the difference
//! of two cases is the difference of their servers.
#![allow(missing_docs)] // a bench has no users

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use windlass::net::ListenOptions;
use windlass::{Buf, Completions, Done, Op, Watcher};
use windlass_serve::{Action, Config, Conn, Engine, Event, Handler, Server};

const CONNECTIONS: usize = 64;
const BYTES: usize = 64;

/// All clients speak; `serve` runs the loop until `count` messages are out; all clients hear.
fn rounds(clients: &mut [TcpStream], messages: usize, mut serve: impl FnMut(usize)) {
    let mut bytes = [7; BYTES];
    for _ in 0..messages / CONNECTIONS {
        for client in clients.iter_mut() {
            client.write_all(&bytes).unwrap();
        }
        serve(CONNECTIONS);
        for client in clients.iter_mut() {
            client.read_exact(&mut bytes).unwrap();
        }
    }
}

/// A watcher without an engine, which writes at once, or all at the end of the turn.
fn bare(messages: usize, corked: bool) {
    let mut watcher = Watcher::new().unwrap();
    let listener = watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    watcher.submit(Op::accept(listener).multishot()).unwrap();
    let address = watcher.local_address(listener).unwrap().ip().unwrap();
    let mut clients: Vec<_> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (mut done, mut cork) = (Completions::new(), Vec::new());
    let mut turn = move || {
        let mut served = 0;
        watcher.wait(&mut done).unwrap();
        let mut visit = done.visit();
        while let Some(c) = visit.next() {
            if let Some(data) = c.take_read() {
                if corked {
                    cork.push((c.source, data));
                } else {
                    watcher.submit(Op::write(c.source, data).quiet()).unwrap();
                }
                served += 1;
            } else if let Ok(Done::Accepted(_)) = &c.result {
                let source = watcher.attach(c.take_handle().unwrap()).unwrap();
                watcher.set_idle_timeout(source, Some(Duration::from_secs(120))).unwrap();
                watcher.submit(Op::read(source).multishot()).unwrap();
            }
        }
        for (source, data) in cork.drain(..) {
            watcher.submit(Op::write(source, data).quiet()).unwrap();
        }
        served
    };
    rounds(&mut clients, messages, |count| {
        let mut served = 0;
        while served < count {
            served += turn();
        }
    });
}

/// An engine that serves each turn with `turn`, which returns the number of messages.
fn engine(messages: usize, turn: fn(&mut Engine<()>, &mut Watcher, &mut Completions) -> usize) {
    let mut watcher = Watcher::new().unwrap();
    let mut engine = Engine::<()>::new(Config::default());
    engine.listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default()).unwrap();
    let address = watcher.local_address(engine.listeners()[0]).unwrap().ip().unwrap();
    let mut clients: Vec<_> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut done = Completions::new();
    rounds(&mut clients, messages, |count| {
        let mut served = 0;
        while served < count {
            watcher.wait(&mut done).unwrap();
            served += turn(&mut engine, &mut watcher, &mut done);
        }
    });
}

/// Takes the events out of the batch.
fn direct(engine: &mut Engine<()>, watcher: &mut Watcher, done: &mut Completions) -> usize {
    let (mut served, mut batch) = (0, done.visit());
    loop {
        // The match takes the event directly: a variable would cost a copy of it.
        match engine.next_event_in(watcher, &mut batch) {
            Some(Event::Data { id, data }) => {
                engine.write(id, data).unwrap();
                served += 1;
            }
            Some(_) => {}
            None => break,
        }
    }
    engine.flush(watcher);
    served
}

/// Passes the completions one by one, and then takes the events out.
fn queued(engine: &mut Engine<()>, watcher: &mut Watcher, done: &mut Completions) -> usize {
    let mut served = 0;
    for c in done.drain(..) {
        assert!(engine.complete(watcher, c).is_none());
    }
    while let Some(event) = engine.next_event(watcher) {
        if let Event::Data { id, data } = event {
            engine.write(id, data).unwrap();
            served += 1;
        }
    }
    engine.flush(watcher);
    served
}

struct Echo {
    left: usize,
}

impl Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        self.left -= 1;
        Action::None
    }
}

fn server(messages: usize) {
    let mut watcher = Watcher::new().unwrap();
    let make = |_| Echo { left: 0 };
    let server = Server::new(make).listen("tcp://127.0.0.1:0").unwrap();
    let mut running = server.start_on(&mut watcher).unwrap();
    let listener = running.engine().listeners()[0];
    let address = watcher.local_address(listener).unwrap().ip().unwrap();
    let mut clients: Vec<_> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut done = Completions::new();
    rounds(&mut clients, messages, |count| {
        running.handler().left = count;
        while running.handler().left > 0 {
            watcher.wait(&mut done).unwrap();
            running.serve(&mut watcher, &mut done);
        }
    });
}

/// A case: its name, and the function that serves so many messages.
type Case = (&'static str, fn(usize));

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let case = arguments.next().unwrap_or_else(|| "all".into());
    let messages = arguments.next().map_or(640_000, |count| count.parse().unwrap());
    let cases: [Case; 5] = [
        ("bare", |messages| bare(messages, false)),
        ("corked", |messages| bare(messages, true)),
        ("engine", |messages| engine(messages, direct)),
        ("queued", |messages| engine(messages, queued)),
        ("server", server),
    ];
    for (name, run) in cases {
        if case == name || case == "all" {
            let start = Instant::now();
            run(messages);
            let ns = start.elapsed().as_nanos() / messages as u128;
            println!("{name}: {ns} ns for a message, clients included");
        }
    }
}
