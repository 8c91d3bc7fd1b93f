//! What an engine and a server allocate: nothing for a message, and few bytes for a connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::alloc::{allocations, live_bytes};
use windlass::net::ListenOptions;
use windlass::{Buf, Completions, Op, Watcher};
use windlass_serve::net::Proxy;
use windlass_serve::{
    Action, Config, Conn, Engine, Event, Handler, Id, Limits, Server, ServerLoop,
};

/// Answers in each of the ways that are to be cheap, by the first byte of a message.
struct Answers;

impl Handler for Answers {
    type State = u64;
    fn data(&mut self, c: &mut Conn<'_, u64>, data: Buf) -> Action {
        *c.state() += 1;
        match data[0] {
            // The same bytes, without a copy.
            b'e' => _ = c.write(data),
            // Many short answers, made in place.
            b's' => (0..100).for_each(|_| assert!(c.write_slice(b"+OK\r\n"))),
            // A part of the lease, a static piece, a short one.
            _ => {
                c.write(data.slice(..1));
                c.write(", and ");
                c.write_slice(b"more");
            }
        }
        Action::None
    }
}

#[test]
fn a_message_allocates_nothing() {
    let mut watcher = Watcher::new().expect("a watcher");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(|_| Answers).listener(listener);
    let mut running = server.start_on(&mut watcher).unwrap();
    let mut clients: Vec<_> =
        (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let mut done = Completions::new();
    let mut round = || {
        for (message, expected) in [(&b"echo"[..], 4), (b"slices", 500), (b"parts", 11)] {
            for client in &mut clients {
                client.write_all(message).unwrap();
            }
            let mut answer = [0; 500];
            for client in &mut clients {
                client.set_nonblocking(true).unwrap();
                let mut heard = 0;
                while heard < expected {
                    match client.read(&mut answer[heard..expected]) {
                        Ok(count) => heard += count,
                        Err(_) => {
                            watcher.wait_timeout(&mut done, Duration::from_secs(20)).unwrap();
                            running.serve(&mut watcher, &mut done);
                        }
                    }
                }
                client.set_nonblocking(false).unwrap();
            }
        }
    };
    (0..20).for_each(|_| round()); // the tables and the swap buffers grow
    let before = allocations();
    (0..50).for_each(|_| round());
    assert_eq!(allocations() - before, 0, "for 1200 messages");
}

/// Connections come in batches, so that the engine's lists of connections with work stay short. The
/// measurement then shows the idle connections alone.
const STEPS: usize = 64;
const STEP: usize = 32;

fn pairs() -> (Vec<UnixStream>, Vec<UnixStream>) {
    windlass::fd::raise_max_open_files().expect("a limit");
    (0..STEPS * STEP).map(|_| UnixStream::pair().expect("two sockets")).unzip()
}

#[test]
fn an_idle_connection_takes_32_bytes_more_than_a_source() {
    let (ours, _theirs) = pairs();
    let mut watcher = Watcher::new().expect("a watcher");
    let before = live_bytes();
    let (mut ours, mut done) = (ours.into_iter(), Completions::new());
    for _ in 0..STEPS {
        for socket in ours.by_ref().take(STEP) {
            let source = watcher.attach(socket).unwrap();
            watcher.set_idle_timeout(source, Some(Duration::from_secs(120))).unwrap();
            watcher.submit(Op::read(source).multishot()).unwrap();
        }
        watcher.submit(Op::nop()).unwrap();
        watcher.try_wait(&mut done).unwrap();
        done.clear();
    }
    let bare = live_bytes() - before;
    drop(watcher);

    let (ours, _theirs) = pairs();
    let mut watcher = Watcher::new().expect("a watcher");
    let before = live_bytes();
    let mut engine = Engine::<()>::new(Config::default());
    let (mut ours, mut done) = (ours.into_iter(), Completions::new());
    for _ in 0..STEPS {
        for socket in ours.by_ref().take(STEP) {
            engine.attach(socket, ()).expect("room");
        }
        engine.flush(&mut watcher);
        while let Some(event) = engine.next_event(&mut watcher) {
            assert!(matches!(event, Event::Opened { .. }));
        }
        watcher.try_wait(&mut done).unwrap();
        for completion in done.drain(..) {
            assert!(engine.complete(&mut watcher, completion).is_none());
        }
        assert!(engine.next_event(&mut watcher).is_none());
    }
    let engine_bytes = live_bytes() - before;
    let count = (STEPS * STEP) as isize;
    let more = (engine_bytes - bare) as f64 / count as f64;
    println!("{} bytes for a source, {more:.1} more for a connection", bare / count);
    // The engine itself, its lists, and the ends of its chunks: some kilobytes in all.
    assert!(more <= 32.0 + 8192.0 / count as f64, "{more:.1} bytes more");
    assert_eq!(engine.len(), count as usize);
}

/// What idle connections of a listener take, with the sources, by a setting for proxies.
fn accepted_bytes(proxy: Option<&'static Proxy>, header: &[u8]) -> isize {
    let mut config = Config::new();
    config.proxy = proxy;
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine = Engine::<()>::new(config);
    let local = ([127, 0, 0, 1], 0);
    let listener = engine.listen(&mut watcher, local, ListenOptions::default()).unwrap();
    let address = watcher.local_address(engine.listeners()[listener]).unwrap().ip().unwrap();
    let (mut done, mut opened) = (Completions::new(), 0);
    let mut clients = Vec::with_capacity(STEPS * STEP);
    let mut turn = |watcher: &mut Watcher, engine: &mut Engine<()>| {
        watcher.wait_timeout(&mut done, Duration::from_secs(20)).unwrap();
        for completion in done.drain(..) {
            let _ = engine.complete(watcher, completion); // or it is a nop of the test
        }
        while let Some(event) = engine.next_event(watcher) {
            opened += usize::from(matches!(event, Event::Opened { .. }));
        }
        engine.flush(watcher);
        opened
    };
    let before = live_bytes();
    let half = header.len() / 2;
    for _ in 0..STEPS {
        let first = clients.len();
        for _ in 0..STEP {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(&header[..half]).unwrap();
            clients.push(client);
        }
        while engine.len() < clients.len() || engine.budget().used() < STEP * half {
            turn(&mut watcher, &mut engine);
        }
        for client in &mut clients[first..] {
            client.write_all(&header[half..]).unwrap();
        }
        loop {
            watcher.submit(Op::nop()).unwrap(); // all may be open already
            if turn(&mut watcher, &mut engine) == clients.len() {
                break;
            }
        }
    }
    assert_eq!((engine.len(), engine.budget().used()), (STEPS * STEP, 0));
    live_bytes() - before
}

/// A connection that a proxy has passed on costs what any other costs, once its header is read.
#[test]
fn an_idle_connection_behind_a_proxy_takes_no_more() {
    windlass::fd::raise_max_open_files().expect("a limit");
    let proxy: &Proxy = Box::leak(Box::new(Proxy::v1().from("0.0.0.0/0".parse().unwrap())));
    let plain = accepted_bytes(None, b"");
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 80\r\n";
    let proxied = accepted_bytes(Some(proxy), header);
    let count = (STEPS * STEP) as isize;
    println!("{} bytes a connection, {} behind a proxy", plain / count, proxied / count);
    // The spare active parts of one batch, and the table of its handshakes.
    assert!(proxied - plain < 16 * count, "{} bytes more", proxied - plain);
}

/// Writes one message to all connections when one of them is woken.
struct Broadcast {
    size: usize,
    ids: Vec<Id>,
}

impl Handler for Broadcast {
    type State = ();
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        let message: Arc<[u8]> = vec![7; self.size].into();
        let engine = c.engine();
        self.ids.clear();
        self.ids.extend(engine.ids());
        for id in &self.ids {
            engine.write(*id, Arc::clone(&message)).expect("it is open");
        }
        Action::None
    }
}

/// A server with so many connections, and their other ends.
fn broadcast(size: usize, count: usize) -> (Watcher, ServerLoop<Broadcast>, Vec<UnixStream>) {
    let mut watcher = Watcher::new().expect("a watcher");
    let limits = Limits::new().memory(usize::MAX).idle(None);
    let server = Server::new(|_| Broadcast { size, ids: Vec::new() }).limits(limits);
    let mut running = server.listen("tcp://127.0.0.1:0").unwrap().start_on(&mut watcher).unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        (0..count).map(|_| UnixStream::pair().expect("two sockets")).unzip();
    for socket in ours {
        running.engine().attach(socket, ()).expect("room");
    }
    running.turn(&mut watcher);
    (watcher, running, theirs)
}

/// One turn in which the message goes to all.
fn tell_all(watcher: &mut Watcher, running: &mut ServerLoop<Broadcast>) {
    let first = running.engine().ids().next().expect("a connection");
    assert!(running.engine().wake(first));
    running.turn(watcher);
}

#[test]
fn a_broadcast_prepares_its_message_once() {
    for count in [8, 64] {
        let (mut watcher, mut running, mut theirs) = broadcast(1000, count);
        let mut done = Completions::new();
        let mut round = || {
            tell_all(&mut watcher, &mut running);
            for socket in &mut theirs {
                let mut heard = [0; 1000];
                socket.read_exact(&mut heard).unwrap();
                assert_eq!(heard, [7; 1000]);
            }
            watcher.try_wait(&mut done).unwrap();
            running.serve(&mut watcher, &mut done);
        };
        (0..20).for_each(|_| round()); // the tables grow
        let before = allocations();
        (0..10).for_each(|_| round());
        // The vector, and the shared memory that it becomes.
        assert_eq!(allocations() - before, 10 * 2, "ten messages to {count} connections");
    }
}

#[test]
fn a_broadcast_that_waits_is_in_memory_once() {
    const COUNT: usize = 64;
    const MESSAGES: usize = 4;
    let (mut watcher, mut running, theirs) = broadcast(1 << 20, COUNT);
    let before = live_bytes();
    (0..MESSAGES).for_each(|_| tell_all(&mut watcher, &mut running));
    let grown = live_bytes() - before;
    let waiting = running.engine().budget().used();
    assert!(waiting > (COUNT * (MESSAGES - 1)) << 20, "{waiting} bytes wait");
    assert!(grown < (MESSAGES as isize + 1) << 20, "{grown} bytes more in memory");
    drop(theirs);
}

/// Connections that were busy at once kept the memory of that time for ever.
#[test]
fn connections_that_were_busy_cost_what_idle_ones_cost() {
    let (ours, mut theirs) = pairs();
    let mut watcher = Watcher::new().expect("a watcher");
    let mut engine = Engine::<()>::new(Config::default());
    let mut done = Completions::new();
    for socket in ours {
        engine.attach(socket, ()).expect("room");
    }
    engine.flush(&mut watcher);
    while engine.next_event(&mut watcher).is_some() {}
    watcher.try_wait(&mut done).unwrap();
    done.clear();
    let before = live_bytes();
    let ids: Vec<Id> = engine.ids().collect();
    for &id in &ids {
        // Copied bytes, a piece that is not copied, and data that is held back.
        engine.write_slice(id, &[7; 9000]).unwrap();
        engine.write(id, vec![7; 3000]).unwrap();
        assert!(engine.pause(id) && engine.charge(id, 100));
    }
    for socket in &mut theirs {
        socket.write_all(b"hello").unwrap();
    }
    engine.flush(&mut watcher);
    let mut heard = 0;
    let mut turn = |watcher: &mut Watcher, engine: &mut Engine<()>| {
        watcher.wait_timeout(&mut done, Duration::from_secs(2)).unwrap();
        for completion in done.drain(..) {
            assert!(engine.complete(watcher, completion).is_none());
        }
        while let Some(event) = engine.next_event(watcher) {
            if let Event::Data { id, .. } = event {
                heard += 1;
                assert!(engine.charge(id, 0));
            }
        }
        engine.flush(watcher);
        heard
    };
    while engine.budget().used() < ids.len() * 105 {
        turn(&mut watcher, &mut engine);
    }
    for &id in &ids {
        assert!(engine.resume(id));
    }
    for socket in &mut theirs {
        let mut all = [0; 12_000];
        socket.read_exact(&mut all).unwrap();
    }
    engine.flush(&mut watcher);
    while turn(&mut watcher, &mut engine) < ids.len() {}
    let count = ids.len() as isize;
    drop(ids);
    // The next sweeps give the memory back: each has a timer.
    let held = live_bytes() - before;
    for _ in 0..4 {
        turn(&mut watcher, &mut engine);
    }
    let more = live_bytes() - before;
    println!("{held} bytes more, and then {more}, for {count} connections");
    assert_eq!(engine.budget().used(), 0);
    assert!(more < 24 * count, "{more} bytes more");
}
