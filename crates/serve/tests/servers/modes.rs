//! The three modes: loops, a thread for each connection, and both.
//!
//! Of the promises on the page of the crate: P3 and P10.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;

use crate::child;
use crate::common::System;
use windlass::sim::Sim;
use windlass::{Address, Buf, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Origin, Remote, Server,
    modes::IoMode, report::Report,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the handlers of a server tell the test.
#[derive(Debug)]
enum Told {
    Serving(Remote, SocketAddr),
    Opened(Id, ThreadId),
    Moved(Id, Id),
    Closed(Id, Cause),
}

/// The callbacks that wait, and whether they may go on.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Blocks the callback.
    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        let wait = self.changed.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open);
        assert!(!wait.unwrap().1.timed_out(), "the gate opens");
    }
}

/// Echoes. `block` blocks the callback until the gate opens, `panic` panics, `move` moves the
/// connection to a loop, `may` lets it move, `dial ADDRESS` connects to this address.
struct Echo {
    tell: Sender<Told>,
    gate: Arc<Gate>,
    open: HashSet<Id>,
}

impl Handler for Echo {
    type State = Vec<u8>;

    fn serving(&mut self, server: &mut Context<'_, Vec<u8>>, addresses: &[Address]) -> Action {
        let told = Told::Serving(server.remote().clone(), addresses[0].ip().unwrap());
        let _ = self.tell.send(told);
        Action::None
    }

    fn opened(&mut self, c: &mut Conn<'_, Vec<u8>>, origin: Origin) -> Action {
        assert!(origin.peer.is_some());
        assert!(self.open.insert(c.id()));
        let _ = self.tell.send(Told::Opened(c.id(), thread::current().id()));
        c.write("hello\n");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Vec<u8>>, data: Buf) -> Action {
        c.state().extend_from_slice(&data);
        let has_thread = c.id().loop_index() > 0;
        if data.starts_with(b"move") {
            c.write(data);
            assert_eq!(c.move_to_loop(), has_thread);
            assert_eq!(c.move_to_loop(), has_thread, "once more");
            return Action::None;
        }
        if let Some(address) = data.strip_prefix(b"dial ") {
            let address: SocketAddr = std::str::from_utf8(address).unwrap().parse().unwrap();
            c.engine().connect([address], Default::default(), Vec::new()).unwrap();
        }
        match &*data {
            b"block" => self.gate.pass(),
            b"panic" => panic!("as the client asks for"),
            b"may" => assert_eq!(c.let_move(), has_thread),
            _ => {}
        }
        c.write(data);
        Action::None
    }

    fn moved(&mut self, c: &mut Conn<'_, Vec<u8>>, from: Id) -> Action {
        assert!(self.open.insert(c.id()));
        assert_eq!((c.id().loop_index(), from.loop_index() > 0), (0, true));
        let _ = self.tell.send(Told::Moved(from, c.id()));
        c.write("moved\n");
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, Vec<u8>>) -> Action {
        c.write("woken\n");
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Vec<u8>>, closed: Closed<Vec<u8>>) -> Action {
        assert!(self.open.remove(&closed.id), "it closes once");
        let _ = self.tell.send(Told::Closed(closed.id, closed.cause));
        Action::None
    }
}

/// A close waits only briefly for its peer.
fn config() -> Config {
    let limits = Limits::new().linger(Duration::from_millis(10));
    Config::new().farewell(b"full\n").limits(limits)
}

/// A server that runs.
struct Run {
    remote: Remote,
    address: SocketAddr,
    told: Receiver<Told>,
    gate: Arc<Gate>,
    server: thread::JoinHandle<std::io::Result<Report>>,
}

fn start<T: System>(mode: IoMode, config: Config) -> Run {
    let (tell, told) = channel();
    let gate = Arc::new(Gate::default());
    let for_handlers = Arc::clone(&gate);
    let server = thread::spawn(move || {
        let make =
            |_| Echo { tell: tell.clone(), gate: Arc::clone(&for_handlers), open: HashSet::new() };
        let server = Server::new(make).watcher(T::builder()).io_mode(mode).config(config);
        server.listen("tcp://127.0.0.1:0")?.run()
    });
    let Ok(Told::Serving(remote, address)) = told.recv_timeout(PATIENCE) else {
        panic!("the loop serves")
    };
    Run { remote, address, told, gate, server }
}

impl Run {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A connection that has got its banner, its id and its thread.
    fn open(&self) -> (TcpStream, Id, ThreadId) {
        let mut stream = self.connect();
        expect(&mut stream, b"hello\n");
        let (id, thread) = self.opened();
        (stream, id, thread)
    }

    fn next(&self) -> Told {
        loop {
            match self.told.recv_timeout(PATIENCE).expect("a callback") {
                Told::Serving(..) => {}
                told => return told,
            }
        }
    }

    fn opened(&self) -> (Id, ThreadId) {
        match self.next() {
            Told::Opened(id, thread) => (id, thread),
            other => panic!("{other:?}"),
        }
    }

    fn closed(&self) -> (Id, Cause) {
        match self.next() {
            Told::Closed(id, cause) => (id, cause),
            other => panic!("{other:?}"),
        }
    }

    fn moved(&self) -> (Id, Id) {
        match self.next() {
            Told::Moved(from, to) => (from, to),
            other => panic!("{other:?}"),
        }
    }

    fn end(self) -> Report {
        self.remote.shutdown();
        self.server.join().unwrap().unwrap()
    }
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut heard = vec![0; bytes.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, bytes);
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    expect(stream, bytes);
}

/// The same handler in each mode: an echo of every size, a half-close, a wake, a write and a close
/// of another thread, a panic.
fn one_handler_in_every_mode<T: System>() {
    for mode in [
        IoMode::NonBlocking,
        IoMode::Blocking { threads: 9 },
        IoMode::Mixed { threads: 2 },
        IoMode::Mixed { threads: 9 },
    ] {
        let run = start::<T>(mode, config());
        let mut ids = HashSet::new();
        let mut streams = Vec::new();
        for _ in 0..4 {
            let (stream, id, _) = run.open();
            assert!(ids.insert(id), "ids are unique");
            streams.push((stream, id));
        }
        for (stream, _) in &mut streams {
            for size in [1, 1000, 300_000] {
                let bytes = vec![size as u8; size];
                let mut writer = stream.try_clone().unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| writer.write_all(&bytes).unwrap());
                    expect(stream, &bytes);
                });
            }
        }
        let [(a, a_id), (b, b_id), (c, c_id), (d, d_id)] = &mut streams[..] else { panic!() };
        assert!(run.remote.wake(*a_id));
        expect(a, b"woken\n");
        run.remote.write(*b_id, "from afar\n").unwrap();
        assert!(run.remote.close(*b_id));
        expect(b, b"from afar\n");
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
        assert_eq!(run.closed(), (*b_id, Cause::Closed));
        assert!(!run.remote.wake(*b_id) && run.remote.write(*b_id, "late").is_err());
        c.write_all(b"panic").unwrap();
        assert_eq!(run.closed(), (*c_id, Cause::Panicked));
        d.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(run.closed(), (*d_id, Cause::Eof));
        echo(a, b"still there");
        let (told, report) = {
            run.remote.shutdown();
            let told = run.closed();
            (told, run.server.join().unwrap().unwrap())
        };
        assert_eq!(told, (*a_id, Cause::Shutdown));
        let ends = &report.counters.ends;
        assert_eq!((report.counters.accepted, report.counters.refused), (4, 0), "{mode:?}");
        assert_eq!((ends.closed, ends.panicked, ends.eof, ends.shutdown), (1, 1, 1, 1));
        assert_eq!((report.panics, report.thread_errors), (1, 0));
    }
}

/// A connection that a callback makes stays on the thread of the callback.
fn a_connect_of_a_callback_stays_on_its_thread<T: System>() {
    let run = start::<T>(IoMode::Blocking { threads: 1 }, config());
    let (mut client, _, thread) = run.open();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    echo(&mut client, format!("dial {}", other.local_addr().unwrap()).as_bytes());
    let mut dialed = other.accept().unwrap().0;
    expect(&mut dialed, b"hello\n");
    let (id, its_thread) = run.opened();
    assert_eq!((id.loop_index() > 0, its_thread), (true, thread));
    drop(client);
    assert_eq!(run.closed().1, Cause::Eof);
    echo(&mut dialed, b"still there");
    assert_eq!(run.end().counters.connected, 1);
}

/// A callback that blocks keeps no other connection from its echo.
fn a_callback_may_block<T: System>() {
    let run = start::<T>(IoMode::Blocking { threads: 3 }, config());
    let (mut blocked, _, first) = run.open();
    blocked.write_all(b"block").unwrap();
    let (mut other, _, second) = run.open();
    assert_ne!(first, second, "each has a thread of its own");
    echo(&mut other, b"in the meantime");
    run.gate.open();
    expect(&mut blocked, b"block");
    run.end();
}

/// A thread serves the next connection when its last one has ended, and the ids go on.
fn a_thread_serves_one_connection_after_the_other<T: System>() {
    let run = start::<T>(IoMode::Blocking { threads: 1 }, config());
    let mut last = None;
    let mut threads = HashSet::new();
    for _ in 0..20 {
        // The server may not know yet that the last connection has ended: then it says farewell.
        let (mut stream, id, thread) = loop {
            let mut stream = run.connect();
            let mut word = [0; 5];
            stream.read_exact(&mut word).unwrap();
            if &word == b"hello" {
                expect(&mut stream, b"\n");
                let (id, thread) = run.opened();
                break (stream, id, thread);
            }
            assert_eq!(&word, b"full\n");
        };
        assert!(last < Some(id), "ids increase");
        last = Some(id);
        threads.insert(thread);
        echo(&mut stream, b"hi");
        drop(stream);
        assert_eq!(run.closed().0, id);
    }
    assert_eq!(threads.len(), 1);
    let report = run.end();
    assert_eq!(report.counters.accepted, 20);
}

/// Beyond the cap the blocking mode refuses, and the mixed mode serves on the loop.
fn the_cap_is_kept<T: System>() {
    let run = start::<T>(IoMode::Blocking { threads: 2 }, config());
    let mut kept = [run.open(), run.open()];
    for _ in 0..3 {
        let mut refused = run.connect();
        expect(&mut refused, b"full\n");
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    }
    kept.iter_mut().for_each(|(stream, ..)| echo(stream, b"served"));
    let report = run.end();
    assert_eq!((report.counters.accepted, report.counters.refused), (2, 3));

    let run = start::<T>(IoMode::Mixed { threads: 2 }, config());
    let mut all: Vec<_> = (0..5).map(|_| run.open()).collect();
    all.iter_mut().for_each(|(stream, ..)| echo(stream, b"served"));
    let threads: HashSet<_> = all.iter().map(|(.., thread)| *thread).collect();
    assert_eq!(threads.len(), 3, "two threads, and the loop");
    let on_the_loop = all.iter().filter(|(_, id, _)| id.loop_index() == 0).count();
    assert_eq!(on_the_loop, 3);
    let report = run.end();
    assert_eq!((report.counters.accepted, report.counters.refused), (5, 0));
    assert_eq!(report.counters.ends.shutdown, 5);
}

/// A connection whose thread cannot begin is served by the loop, or refused.
fn a_thread_that_cannot_begin_is_counted<T: System>() {
    let name = format!("modes::{}::a_thread_that_cannot_begin_is_counted", T::NAME);
    child::in_child(&name, || {
        for (mode, word) in
            [(IoMode::Mixed { threads: 5 }, "hello\n"), (IoMode::Blocking { threads: 5 }, "full\n")]
        {
            let run = start::<T>(mode, config());
            // Descriptors for the client and for the server's side of it, but not for a watcher.
            let mut held = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                held.push(file);
            }
            held.truncate(held.len() - 2);
            let mut stream = run.connect();
            expect(&mut stream, word.as_bytes());
            drop(held);
            let report = run.end();
            assert_eq!(report.thread_errors, 1);
            let served = u64::from(word == "hello\n");
            assert_eq!((report.counters.accepted, report.counters.refused), (served, 1 - served));
        }
    });
}

/// More threads than the system gives: the loop serves the connections beyond, or refuses them.
fn threads_beyond_those_that_the_system_gives_are_counted<T: System>() {
    const CLIENTS: u64 = 20;
    const ROLE: &str = "few threads";
    if child::is_child(ROLE) {
        for mode in [IoMode::Mixed { threads: 1000 }, IoMode::Blocking { threads: 1000 }] {
            let run = start::<T>(mode, config());
            let (mut served, mut refused) = (Vec::new(), 0);
            for _ in 0..CLIENTS {
                let mut stream = run.connect();
                let mut word = [0; 5];
                stream.read_exact(&mut word).unwrap();
                if &word == b"hello" {
                    expect(&mut stream, b"\n");
                    echo(&mut stream, b"served");
                    served.push(stream);
                } else {
                    assert_eq!(&word, b"full\n");
                    refused += 1;
                }
            }
            served.iter_mut().for_each(|stream| echo(stream, b"still"));
            let count = served.len() as u64;
            let report = run.end();
            assert_eq!((report.counters.accepted, report.counters.refused), (count, refused));
            assert!(count > 0 && report.thread_errors > 0, "{report:?}");
            assert_eq!(refused > 0, matches!(mode, IoMode::Blocking { .. }), "{report:?}");
        }
        return;
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        eprintln!(
            "SKIP: a limit of threads for one test needs a user of its own, so it needs root"
        );
        return;
    }
    let name = "threads_beyond_those_that_the_system_gives_are_counted";
    let name = format!("modes::{}::{name}", T::NAME);
    let itself = child::command(&name, ROLE);
    // The limit counts all threads of a user.
    let user = 1000 + (std::process::id() * 4 + T::NAME.len() as u32 % 4) % 60_000;
    let mut limited = Command::new("sh");
    // bash and dash have different names for it.
    let limit = "if (ulimit -u 8) 2>/dev/null; then ulimit -u 8; else ulimit -p 8; fi";
    limited.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]).arg(itself.get_program());
    limited.args(itself.get_args()).uid(user).stdin(Stdio::null());
    for (variable, value) in itself.get_envs() {
        limited.env(variable, value.expect("a value"));
    }
    let child = limited.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let (succeeded, out) = child::finish(child);
    if out.contains("Permission denied") || out.contains("not found") {
        eprintln!("SKIP: another user may not run this test binary");
        return;
    }
    assert!(succeeded && out.contains("1 passed"), "{out}");
}

/// A connection whose thread begins after the shutdown is refused, and counted.
fn a_thread_that_begins_too_late_refuses<T: System>() {
    let (tell, told) = channel();
    let gate = Arc::new(Gate::default());
    let for_handlers = Arc::clone(&gate);
    let server = thread::spawn(move || {
        let make = |index| {
            if index > 0 {
                for_handlers.pass();
            }
            Echo { tell: tell.clone(), gate: Arc::clone(&for_handlers), open: HashSet::new() }
        };
        let server = Server::new(make).watcher(T::builder()).config(config());
        let server = server.io_mode(IoMode::Blocking { threads: 1 });
        server.listen("tcp://127.0.0.1:0")?.run()
    });
    let Ok(Told::Serving(remote, address)) = told.recv_timeout(PATIENCE) else {
        panic!("the loop serves")
    };
    let mut first = TcpStream::connect(address).unwrap();
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    // The second one finds that the first one has the thread.
    let mut second = TcpStream::connect(address).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    expect(&mut second, b"full\n");
    remote.shutdown();
    gate.open();
    let report = server.join().unwrap().unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
    assert_eq!((report.counters.accepted, report.counters.refused), (0, 2));
}

/// A connection moves to a loop with its state, its output, and what was not delivered.
fn a_connection_moves_to_a_loop<T: System>() {
    for mode in [IoMode::Mixed { threads: 2 }, IoMode::Blocking { threads: 2 }] {
        let run = start::<T>(mode, config());
        let (mut stream, id, thread) = run.open();
        echo(&mut stream, b"first");
        stream.write_all(b"move").unwrap();
        let (from, to) = run.moved();
        assert_eq!(from, id);
        expect(&mut stream, b"movemoved\n");
        assert!(!run.remote.wake(from) && run.remote.write(from, "late").is_err());
        assert!(run.remote.wake(to));
        expect(&mut stream, b"woken\n");
        // A loop serves it already.
        echo(&mut stream, b"move");
        let bytes = vec![7; 500_000];
        let mut writer = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&bytes).unwrap());
            expect(&mut stream, &bytes);
        });
        // The thread is free again.
        let (_kept, other, second) = run.open();
        assert_eq!(second, thread);
        assert!(other > id);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(run.closed(), (to, Cause::Eof));
        let report = run.end();
        let counters = &report.counters;
        assert_eq!((counters.accepted, counters.moved, counters.detached), (2, 1, 0), "{mode:?}");
        assert_eq!((counters.ends.eof, counters.ends.shutdown), (1, 1));
    }
}

/// Bytes and the end of the input that arrive during a move are delivered behind it.
fn a_move_loses_nothing<T: System>() {
    const CLIENTS: u64 = 40;
    let run = start::<T>(IoMode::Mixed { threads: 8 }, config());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let mut stream = run.connect();
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                expect(&mut stream, b"hello\n");
                let mut sent = b"move".to_vec();
                let length = random.usize(..200_000);
                sent.extend((0..length).map(|i| b'0' + (i % 7) as u8));
                let mut writer = stream.try_clone().unwrap();
                let mut heard = Vec::new();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for piece in sent.chunks(random.usize(1..50_000)) {
                            writer.write_all(piece).unwrap();
                        }
                        writer.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    stream.read_to_end(&mut heard).unwrap();
                });
                let at = heard.windows(6).position(|word| word == b"moved\n");
                if let Some(at) = at {
                    heard.drain(at..at + 6);
                }
                assert!(heard == sent, "another echo, client {seed}");
                at.is_some()
            })
        })
        .collect();
    let moved = clients.into_iter().map(|client| client.join().unwrap()).filter(|moved| *moved);
    let moved = moved.count() as u64;
    let report = run.end();
    assert!(moved > 0, "some have begun on a thread");
    assert_eq!((report.counters.accepted, report.counters.moved), (CLIENTS, moved));
    assert_eq!(report.counters.ends.eof, CLIENTS);
}

/// A lower cap moves the connections that may move, and the next ones go to the loop.
fn a_lower_cap_moves_connections<T: System>() {
    let run = start::<T>(IoMode::Mixed { threads: 4 }, config());
    let mut all: Vec<_> = (0..4).map(|_| run.open()).collect();
    // All but the second.
    for at in [0, 2, 3] {
        echo(&mut all[at].0, b"may");
    }
    assert!(run.remote.set_threads(1));
    let mut moved: Vec<Id> = (0..3).map(|_| run.moved().0).collect();
    moved.sort_unstable();
    let mut expected = [all[0].1, all[2].1, all[3].1];
    expected.sort_unstable();
    assert_eq!(moved, expected, "those that may");
    for (stream, id, _) in &mut all {
        if moved.contains(id) {
            expect(stream, b"moved\n");
        }
        echo(stream, b"after");
    }
    let (_stream, id, _) = run.open();
    assert_eq!(id.loop_index(), 0);
    assert!(run.remote.set_threads(100), "4 at most");
    let (mut last, id, _) = run.open();
    assert!(id.loop_index() > 0);
    // Of those that may move later on, the first one moves at once.
    assert!(run.remote.set_threads(1));
    last.write_all(b"may").unwrap();
    assert_eq!(run.moved().0, id);
    expect(&mut last, b"maymoved\n");
    echo(&mut all[1].0, b"may");
    echo(&mut all[1].0, b"after");
    let report = run.end();
    assert_eq!((report.counters.accepted, report.counters.moved), (6, 4));
    assert_eq!(report.counters.ends.shutdown, 6);
    let run = start::<T>(IoMode::NonBlocking, config());
    assert!(!run.remote.set_threads(4));
    run.end();
}

/// Opens a connection whose callback connects to the test. Returns the client with its id, and the
/// other end of what it has connected, with the id of that.
fn open_with_another(run: &Run) -> ((TcpStream, Id), (TcpStream, Id)) {
    let (mut client, id, thread) = run.open();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    echo(&mut client, format!("dial {}", other.local_addr().unwrap()).as_bytes());
    let mut dialed = other.accept().unwrap().0;
    dialed.set_read_timeout(Some(PATIENCE)).unwrap();
    expect(&mut dialed, b"hello\n");
    let (its_id, its_thread) = run.opened();
    assert_eq!(its_thread, thread);
    ((client, id), (dialed, its_id))
}

/// A thread has another connection besides the one that moves: it gets no further one, because its
/// callbacks may block.
fn a_move_beside_another_connection_frees_no_thread<T: System>() {
    for moves_first in [true, false] {
        let run = start::<T>(IoMode::Blocking { threads: 1 }, config());
        let (first, second) = open_with_another(&run);
        let (mut moves, mut stays) = if moves_first { (first, second) } else { (second, first) };
        moves.0.write_all(b"move").unwrap();
        assert_eq!(run.moved().0, moves.1);
        expect(&mut moves.0, b"movemoved\n");
        expect(&mut run.connect(), b"full\n");
        echo(&mut stays.0, b"still on the thread");
        // The thread is free when both have gone.
        stays.0.write_all(b"move").unwrap();
        assert_eq!(run.moved().0, stays.1);
        let (mut next, id, _) = run.open();
        assert!(id.loop_index() > 0);
        echo(&mut next, b"next");
        let report = run.end();
        assert_eq!((report.counters.accepted, report.counters.refused), (2, 1));
    }
}

/// A thread keeps a connection that may not move: it is none of those that leave, and a lower cap
/// moves the connection of another thread.
fn a_thread_that_keeps_a_connection_does_not_leave<T: System>() {
    for may_move in [true, false] {
        let run = start::<T>(IoMode::Mixed { threads: 2 }, config());
        let (mut single, id, _) = run.open();
        echo(&mut single, b"may");
        // The last thread is told first.
        let (mut both, mut stays) = open_with_another(&run);
        if may_move {
            echo(&mut both.0, b"may");
        } else {
            // It moves before the cap is lower.
            both.0.write_all(b"move").unwrap();
            assert_eq!(run.moved().0, both.1);
            expect(&mut both.0, b"movemoved\n");
        }
        assert!(run.remote.set_threads(1));
        let mut expected = vec![id];
        expected.extend(may_move.then_some(both.1));
        let mut moved: Vec<Id> = expected.iter().map(|_| run.moved().0).collect();
        moved.sort_unstable();
        expected.sort_unstable();
        assert_eq!(moved, expected);
        echo(&mut stays.0, b"still on the thread");
        assert_eq!(run.end().counters.moved, 2);
    }
}

/// Moves in the middle of a shutdown: each connection closes once.
fn moves_and_a_shutdown<T: System>() {
    for round in 0..20 {
        let run = start::<T>(IoMode::Mixed { threads: 6 }, config());
        let mut streams: Vec<_> = (0..6).map(|_| run.connect()).collect();
        for stream in &mut streams {
            expect(stream, b"hello\n");
            stream.write_all(b"move").unwrap();
        }
        if round % 2 == 0 {
            expect(&mut streams[0], b"move");
        }
        run.remote.shutdown();
        let report = run.server.join().unwrap().unwrap();
        let ends = &report.counters.ends;
        assert_eq!(report.counters.accepted, 6);
        assert_eq!(ends.shutdown + ends.eof + ends.failed, 6, "{report:?}");
        let (mut open, mut closed) = (HashSet::new(), 0);
        while let Ok(told) = run.told.try_recv() {
            match told {
                Told::Opened(id, _) => assert!(open.insert(id)),
                Told::Moved(from, to) => assert!(open.remove(&from) && open.insert(to)),
                Told::Closed(id, _) => {
                    assert!(open.remove(&id), "it was open");
                    closed += 1;
                }
                Told::Serving(..) => {}
            }
        }
        assert_eq!((closed, open.len()), (6, 0));
    }
}

crate::systems_drivers! {
    a_connect_of_a_callback_stays_on_its_thread
    a_connection_moves_to_a_loop
    a_move_loses_nothing
    a_lower_cap_moves_connections
    a_move_beside_another_connection_frees_no_thread
    a_thread_that_keeps_a_connection_does_not_leave
    moves_and_a_shutdown
    a_thread_that_cannot_begin_is_counted
    threads_beyond_those_that_the_system_gives_are_counted
    a_thread_that_begins_too_late_refuses
    one_handler_in_every_mode
    a_callback_may_block
    a_thread_serves_one_connection_after_the_other
    the_cap_is_kept
}

/// A thread that has ticks ends all the same when no connection comes.
#[test]
fn a_thread_with_ticks_ends_without_a_connection() {
    struct Ticks(usize, Sender<Option<(Remote, SocketAddr)>>);
    impl Handler for Ticks {
        type State = ();
        fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
            if self.0 == 0 {
                let told = (server.remote().clone(), addresses[0].ip().unwrap());
                self.1.send(Some(told)).unwrap();
            }
            Action::None
        }
        fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
            ((self.0 > 0).then_some(Duration::from_secs(1)), Action::None)
        }
    }
    impl Drop for Ticks {
        fn drop(&mut self) {
            if self.0 > 0 {
                let _ = self.1.send(None);
            }
        }
    }
    let (tell, told) = channel();
    let server = thread::spawn(move || {
        let server = Server::new(|index| Ticks(index, tell.clone()));
        let server = server.io_mode(IoMode::Blocking { threads: 1 }).config(config());
        server.listen("tcp://127.0.0.1:0")?.run()
    });
    let (remote, address) = told.recv_timeout(PATIENCE).expect("the loop serves").unwrap();
    drop(TcpStream::connect(address).unwrap());
    assert!(told.recv_timeout(PATIENCE).expect("the thread ends").is_none());
    remote.shutdown();
    assert_eq!(server.join().unwrap().unwrap().counters.accepted, 1);
}

#[test]
fn a_mode_that_cannot_be_is_an_error() {
    struct Nothing;
    impl Handler for Nothing {
        type State = ();
    }
    let server = || Server::new(|_| Nothing).listen("tcp://127.0.0.1:0").unwrap();
    for threads in [0, 64_513, usize::MAX] {
        for mode in [IoMode::Blocking { threads }, IoMode::Mixed { threads }] {
            let error = server().io_mode(mode).run().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("64512"), "{error}");
        }
    }
    let mode = IoMode::Blocking { threads: 1 };
    let mut watcher = Watcher::simulated(&Sim::new(1));
    let error = server().io_mode(mode).start_on(&mut watcher).unwrap_err();
    assert!(error.to_string().contains("Server::run"), "{error}");
    assert!("threads".parse::<IoMode>().unwrap_err().to_string().contains("nonblocking"));
}
