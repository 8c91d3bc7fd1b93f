//! Servers that run on threads of their own, on every driver of the system.
//!
//! Of the promises on the page of the crate: P9.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{PATIENCE, System};
use windlass::{Address, Buf, SourceKind};
use windlass_serve::{
    Action, Conn, Context, Detached, Handler, Id, Origin, Remote, Server, modes::Loops,
    report::Report,
};

crate::systems_drivers! {
    a_detached_descriptor_serves_on_another_thread
    a_loop_can_end_the_server_before_it_serves
    loops_that_wake_each_other_do_not_block
    panics_of_all_loops_are_in_the_report
    a_loop_that_blocks_collects_few_connections
}

/// A result within a bound.
fn soon<T>(from: &Receiver<T>, what: &str) -> T {
    from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The end of a server within a bound.
fn report(server: JoinHandle<()>, reports: &Receiver<Report>) -> Report {
    let report = soon(reports, "the server ends");
    server.join().unwrap();
    report
}

/// Starts a server on a thread; its report, and what `serving` tells.
fn start<F, H>(server: Server<F>) -> (JoinHandle<()>, Receiver<Report>)
where
    F: Fn(usize) -> H + Send + Sync + 'static,
    H: Handler,
{
    let (tell, reports) = channel();
    let thread = thread::spawn(move || tell.send(server.run().unwrap()).unwrap());
    (thread, reports)
}

fn tcp(address: &Address) -> TcpStream {
    let address: SocketAddr = address.ip().expect("of TCP");
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What a test is told by its handlers.
type Told = Sender<(Remote, Vec<Address>)>;

/// Answers a message with itself, and gives the descriptor away.
struct GivesAway {
    serving: Told,
    /// Tells of each thread that has done its part.
    done: Sender<()>,
    heard: Vec<u8>,
}

/// Twice this, and a word between, is a message.
const HALF: usize = 10 << 10;
const WORD: &[u8] = b"--detached--";
const WHOLE: usize = 2 * HALF + WORD.len();

fn message() -> Vec<u8> {
    let half: Vec<u8> = (0..HALF).map(|i| (i ^ i >> 8) as u8).collect();
    [&half, WORD, &half].concat()
}

impl Handler for GivesAway {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.serving.send((server.remote().clone(), addresses.to_vec())).unwrap();
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard.extend_from_slice(&data);
        if self.heard.len() < WHOLE {
            return Action::None;
        }
        c.write(self.heard.drain(..WHOLE).collect::<Vec<u8>>());
        Action::Detach
    }
    fn detached(&mut self, _: &mut Context<'_, ()>, detached: Detached<()>) -> Action {
        let mut rest = std::mem::take(&mut self.heard);
        rest.extend(detached.undelivered.iter().flat_map(|data| data.to_vec()));
        let kind = detached.handle.kind();
        let fd = detached.handle.into_fd().expect("a descriptor of the system");
        let done = self.done.clone();
        thread::spawn(move || {
            match kind {
                SourceKind::UnixStream => {
                    let stream = UnixStream::from(fd);
                    stream.set_nonblocking(false).unwrap();
                    go_on(stream, rest);
                }
                _ => {
                    let stream = TcpStream::from(fd);
                    stream.set_nonblocking(false).unwrap();
                    go_on(stream, rest);
                }
            }
            done.send(()).unwrap();
        });
        Action::None
    }
}

/// Answers one more message, and reads the end.
fn go_on(mut stream: impl Read + Write, mut heard: Vec<u8>) {
    let begun = heard.len();
    heard.resize(WHOLE, 0);
    stream.read_exact(&mut heard[begun..]).unwrap();
    stream.write_all(&heard).unwrap();
    // evio once took the end for a read without bytes, and read again for ever.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// evio's TestDetach: what was sent before and after the detach arrives, at TCP and at Unix
/// addresses. Some of it is sent before the answer.
fn a_detached_descriptor_serves_on_another_thread<T: System>() {
    let ((serving, served), (done, is_done)) = (channel(), channel());
    let senders = Mutex::new((serving, done));
    let name = format!("windlass-detach-{}-{}", T::NAME, std::process::id());
    let path = std::env::temp_dir().join(name);
    let new = move |_| {
        let (serving, done) = senders.lock().unwrap().clone();
        GivesAway { serving, done, heard: Vec::new() }
    };
    let server = Server::new(new).watcher(T::builder()).listen("tcp://127.0.0.1:0").unwrap();
    let server = server.listen(&format!("unix://{}", path.display())).unwrap();
    let (server, reports) = start(server);
    let (remote, addresses) = soon(&served, "it serves");
    for ahead in [0, 1, 5000, WHOLE] {
        let talk = |stream: &mut dyn Stream| {
            let mut heard = vec![0; WHOLE];
            stream.write_all(&message()).unwrap();
            stream.write_all(&message()[..ahead]).unwrap();
            stream.read_exact(&mut heard).unwrap();
            assert!(heard == message());
            stream.write_all(&message()[ahead..]).unwrap();
            stream.read_exact(&mut heard).unwrap();
            assert!(heard == message(), "another answer of the other thread");
        };
        talk(&mut tcp(&addresses[0]));
        soon(&is_done, "the other thread has read the end");
        let mut unix = UnixStream::connect(&path).unwrap();
        unix.set_read_timeout(Some(PATIENCE)).unwrap();
        talk(&mut unix);
        drop(unix);
        soon(&is_done, "the other thread has read the end");
    }
    remote.shutdown();
    let report = report(server, &reports);
    assert_eq!((report.counters.accepted, report.counters.detached, report.panics), (8, 8, 0));
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Ends the server at once, in the loop and the callback of this name.
struct EndsAtOnce {
    number: usize,
    place: (usize, &'static str),
}

impl EndsAtOnce {
    fn act(&self, callback: &'static str) -> Action {
        if (self.number, callback) == self.place { Action::Shutdown } else { Action::None }
    }
}

impl Handler for EndsAtOnce {
    type State = ();
    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        (None, self.act("tick"))
    }
    fn serving(&mut self, _: &mut Context<'_, ()>, _: &[Address]) -> Action {
        self.act("serving")
    }
}

/// evio loses the signal of a loop that ends before the others are waited for, and never returns.
fn a_loop_can_end_the_server_before_it_serves<T: System>() {
    for place in (0..4).flat_map(|number| ["tick", "serving"].map(|name| (number, name))) {
        for loops in [Loops::Count(4), Loops::One] {
            if loops == Loops::One && place.0 > 0 {
                continue;
            }
            let server = Server::new(move |number| EndsAtOnce { number, place });
            let server = server.watcher(T::builder()).loops(loops);
            let (server, reports) = start(server.listen("tcp://127.0.0.1:0").unwrap());
            assert_eq!(report(server, &reports).counters.accepted, 0, "{place:?}");
        }
    }
}

/// Passes its data on to the other connection, on the other loop.
struct PassesOn {
    serving: Told,
    opened: Sender<Id>,
    pairs: Arc<Mutex<Vec<Id>>>,
    number: usize,
}

impl Handler for PassesOn {
    type State = Option<Id>;
    fn serving(&mut self, server: &mut Context<'_, Option<Id>>, addresses: &[Address]) -> Action {
        if self.number == 0 {
            self.serving.send((server.remote().clone(), addresses.to_vec())).unwrap();
        }
        Action::None
    }
    fn opened(&mut self, c: &mut Conn<'_, Option<Id>>, _: Origin) -> Action {
        self.pairs.lock().unwrap().push(c.id());
        self.opened.send(c.id()).unwrap();
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, Option<Id>>, data: Buf) -> Action {
        let own = c.id();
        let other = match *c.state() {
            Some(other) => other,
            None => {
                let pair = self.pairs.lock().unwrap();
                let other = *pair.iter().find(|id| **id != own).expect("both are open");
                *c.state() = Some(other);
                other
            }
        };
        let remote = c.remote().clone();
        for _ in 0..20 {
            assert!(remote.wake(other) && remote.wake(own));
        }
        remote.write(other, data).unwrap();
        Action::None
    }
    fn wake(&mut self, _: &mut Conn<'_, Option<Id>>) -> Action {
        Action::None
    }
}

/// evio's issue 46: wakes from callbacks block when two loops wake each other.
fn loops_that_wake_each_other_do_not_block<T: System>() {
    const BYTES: usize = 2 << 20;
    let ((serving, served), (opened, opens)) = (channel(), channel());
    let (senders, pairs) = (Mutex::new((serving, opened)), Arc::default());
    let new = move |number| {
        let (serving, opened) = senders.lock().unwrap().clone();
        PassesOn { serving, opened, pairs: Arc::clone(&pairs), number }
    };
    let server = Server::new(new).watcher(T::builder()).loops(2);
    let (server, reports) = start(server.listen("tcp://127.0.0.1:0").unwrap());
    let (remote, addresses) = soon(&served, "it serves");
    let clients: Vec<TcpStream> = (0..2).map(|_| tcp(&addresses[0])).collect();
    let ids: Vec<Id> = (0..2).map(|_| soon(&opens, "it is open")).collect();
    assert_ne!(ids[0].loop_index(), ids[1].loop_index());
    let said: Vec<u8> = (0..BYTES).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
    // Both speak at once, in small pieces.
    thread::scope(|scope| {
        for mut client in &clients {
            let said = &said;
            scope.spawn(move || said.chunks(500).for_each(|part| client.write_all(part).unwrap()));
            scope.spawn(move || {
                let mut heard = vec![0; BYTES];
                client.read_exact(&mut heard).unwrap();
                assert!(heard == *said, "other bytes than the other client has said");
            });
        }
    });
    remote.shutdown();
    let report = report(server, &reports);
    assert_eq!((report.counters.accepted, report.counters.stale_writes, report.panics), (2, 0, 0));
}

/// Panics on data.
struct Panics(Told, usize);

impl Handler for Panics {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        if self.1 == 0 {
            self.0.send((server.remote().clone(), addresses.to_vec())).unwrap();
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        assert_ne!(&*data, b"panic", "the client wants it so");
        c.write(data);
        Action::None
    }
}

/// evio ends with its process. Here the other connections, the other loops and the report go on.
fn panics_of_all_loops_are_in_the_report<T: System>() {
    let (serving, served) = channel();
    let serving = Mutex::new(serving);
    let new = move |number| Panics(serving.lock().unwrap().clone(), number);
    let server = Server::new(new).watcher(T::builder()).loops(3);
    let (server, reports) = start(server.listen("tcp://127.0.0.1:0").unwrap());
    let (remote, addresses) = soon(&served, "it serves");
    let mut good: Vec<TcpStream> = (0..3).map(|_| tcp(&addresses[0])).collect();
    for _ in 0..3 {
        let mut bad = tcp(&addresses[0]);
        bad.write_all(b"panic").unwrap();
        // An end or a reset.
        assert!(!matches!(bad.read(&mut [0]), Ok(1..)));
    }
    for client in &mut good {
        let mut heard = [0; 4];
        client.write_all(b"good").unwrap();
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"good");
    }
    remote.shutdown();
    let report = report(server, &reports);
    assert_eq!((report.panics, report.counters.ends.panicked), (3, 3));
    assert_eq!(report.counters.ends.shutdown, 3);
}

/// Loop 1 blocks in its first connection, until the test lets go.
struct Blocks {
    index: usize,
    gate: Arc<Mutex<Receiver<()>>>,
}

impl Handler for Blocks {
    type State = ();
    fn opened(&mut self, _: &mut Conn<'_, ()>, _: Origin) -> Action {
        if self.index == 1 {
            // It fails once the test has let go.
            let _ = self.gate.lock().unwrap().recv();
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

/// Every second connection waited in the inbox of the loop that blocked, without a bound.
fn a_loop_that_blocks_collects_few_connections<T: System>() {
    const COUNT: usize = 300;
    let (lets_go, gate) = channel();
    let gate = Arc::new(Mutex::new(gate));
    let new = move |index| Blocks { index, gate: Arc::clone(&gate) };
    let server = Server::new(new).loops(2).watcher(T::builder()).signals(false);
    let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<_> = (0..COUNT).map(|_| tcp(&server.addresses()[0])).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        client.set_nonblocking(true).unwrap();
    }
    // Dropped before the server, which waits for its loops.
    let lets_go = lets_go;
    // The one that blocks, 64 that its loop has taken out of its inbox, and 64 that are in it.
    let (mut answered, start) = (0, std::time::Instant::now());
    while answered < COUNT - 129 {
        assert!(start.elapsed() < PATIENCE, "{answered} answers");
        let before = clients.len();
        clients.retain(|mut client| client.read(&mut [0; 1]).is_err());
        answered += before - clients.len();
        thread::yield_now();
    }
    drop(lets_go);
    for client in &mut clients {
        client.set_nonblocking(false).unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    server.shutdown();
    assert_eq!(server.wait().unwrap().counters.accepted as usize, COUNT);
}
