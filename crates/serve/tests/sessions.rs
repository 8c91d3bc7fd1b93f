//! UDP sessions: each peer of a datagram socket is a connection; on every driver.
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use common::{Harness, PATIENCE};
use windlass::driver::{Driver, OpCode};
use windlass::net::DatagramOptions;
use windlass::{Address, Buf, Completion, Completions, Done, Op, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Datagram, Handler, Id, Limits, Origin, Phase, Refusal,
    Running, Server,
};

every_driver! {
    each_peer_is_a_session
    sessions_expire_not_before_their_limit
    datagrams_of_every_size_are_whole
}

/// What a session has done so far.
#[derive(Default)]
struct Talk {
    heard: usize,
}

/// Echoes each datagram, with the number of the datagram in its session in front.
#[derive(Default)]
struct Book {
    opened: Vec<(Id, Origin)>,
    /// How sessions have ended, and how many datagrams each has heard.
    closed: Vec<(Id, Cause, usize, Phase, usize)>,
    ended_at: HashMap<Id, Instant>,
    datagrams: usize,
    calls: Vec<&'static str>,
}

impl Book {
    fn causes(&self) -> Vec<Cause> {
        self.closed.iter().map(|end| end.1).collect()
    }
}

impl Handler for Book {
    type State = Talk;

    fn opened(&mut self, c: &mut Conn<'_, Talk>, origin: Origin) -> Action {
        self.opened.push((c.id(), origin));
        self.calls.push("opened");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Talk>, data: Buf) -> Action {
        self.calls.push("data");
        c.state().heard += 1;
        match &*data {
            b"close" => {
                c.write("bye");
                return Action::Close;
            }
            b"detach" => return Action::Detach,
            b"panic" => panic!("the datagram cannot be served, as it is to"),
            b"abort" => {
                c.write("never sent");
                c.abort();
            }
            b"half" => {
                c.write("the last");
                c.shutdown();
            }
            b"pause" => c.pause(),
            b"end" => {
                c.write("bye");
                return Action::Shutdown;
            }
            b"quiet" => {}
            _ => {
                c.write(data);
            }
        }
        Action::None
    }

    fn closed(&mut self, server: &mut Context<'_, Talk>, closed: Closed<Talk>) -> Action {
        assert!(server.engine().state(closed.id).is_none(), "its id is stale");
        self.calls.push("closed");
        let heard = closed.state.heard;
        self.closed.push((closed.id, closed.cause, closed.unsent, closed.phase, heard));
        Action::None
    }

    fn wake(&mut self, c: &mut Conn<'_, Talk>) -> Action {
        self.calls.push("wake");
        c.write("woken");
        Action::None
    }

    fn datagram(&mut self, _: &mut Datagram<'_, Talk>, _: Buf) -> Action {
        self.datagrams += 1;
        Action::None
    }
}

/// A server, and datagram sockets on the same watcher.
struct Post<D: Driver> {
    watcher: Watcher<D>,
    running: Running<Book>,
    to: Address,
    got: Vec<Completion>,
}

impl<D: Driver> Post<D> {
    fn new<T: Harness<Driver = D>>(limits: Limits) -> Post<D> {
        Post::on(T::watcher(Watcher::builder()), server().limits(limits))
    }

    fn on<F: Fn(usize) -> Book>(mut watcher: Watcher<D>, server: Server<F>) -> Post<D> {
        let mut running = server.start_on(&mut watcher).expect("the server starts");
        let to = watcher.local_address(running.engine().listeners()[0]).expect("its address");
        Post { watcher, running, to, got: Vec::new() }
    }

    fn socket(&mut self) -> Source {
        let options = DatagramOptions::default();
        self.watcher.bind_datagram(([127, 0, 0, 1], 0), options).expect("a socket")
    }

    fn send(&mut self, from: Source, data: impl Into<Buf>) {
        let send = Op::send_to(from, data, self.to.clone()).token(1);
        self.watcher.submit(send).expect("a send");
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            self.got.extend(self.running.complete(&mut self.watcher, c));
        }
        self.running.turn(&mut self.watcher);
        let now = self.watcher.update_now();
        let book = self.running.handler();
        for end in &book.closed {
            book.ended_at.entry(end.0).or_insert(now);
        }
        count
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.watcher.update_now();
        while !ready(self) {
            assert!(self.watcher.now() - start < 50 * PATIENCE, "still waits until {what}");
            self.turn(50 * PATIENCE);
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.watcher.update_now() + span;
        while let Some(left) = end.checked_duration_since(self.watcher.update_now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }

    /// The next datagram that arrives at a socket.
    #[track_caller]
    fn hear(&mut self, at: Source) -> Buf {
        self.watcher.submit(Op::recv_from(at).token(2)).expect("a receive");
        let is_it = |c: &Completion| c.code() == OpCode::RecvFrom && c.source == at;
        self.until("a datagram arrives", |post| post.got.iter().any(is_it));
        let which = self.got.iter().position(is_it).expect("from above");
        match self.got.remove(which).result {
            Ok(Done::Received { data, from, truncated: false }) => {
                assert_eq!(from, self.to);
                data
            }
            other => panic!("no datagram: {other:?}"),
        }
    }

    /// Sends, and hears the answer.
    #[track_caller]
    fn ask(&mut self, from: Source, data: impl Into<Buf>) -> Buf {
        self.send(from, data);
        self.hear(from)
    }

    /// A socket whose session is open, and the session.
    #[allow(dead_code)]
    fn open(&mut self) -> (Source, Id) {
        let (socket, before) = (self.socket(), self.running.handler().opened.len());
        assert_eq!(&*self.ask(socket, "hello"), b"hello");
        let opened = &self.running.handler().opened;
        assert_eq!(opened.len(), before + 1);
        (socket, opened[before].0)
    }

    fn book(&mut self) -> &mut Book {
        self.running.handler()
    }

    fn used(&mut self) -> usize {
        self.running.engine().budget().used()
    }
}

fn server() -> Server<impl Fn(usize) -> Book> {
    let server = Server::new(|_| Book::default());
    server.listen("udp://127.0.0.1:0?sessions=true").expect("an address")
}

/// nbio's TestUDP: a child connection for each peer of one socket, and an echo to each of them.
fn each_peer_is_a_session<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let sockets: Vec<_> = (0..10).map(|_| post.socket()).collect();
    for round in 0..5 {
        for (at, socket) in sockets.iter().enumerate() {
            let said = format!("{at} in round {round}");
            assert_eq!(&*post.ask(*socket, said.clone()), said.as_bytes());
        }
    }
    let peers: Vec<_> =
        sockets.iter().map(|socket| post.watcher.local_address(*socket).unwrap().ip()).collect();
    let book = post.book();
    let origins: Vec<_> = book.opened.iter().map(|(_, origin)| origin.peer).collect();
    assert_eq!(origins, peers);
    assert!(book.opened.iter().all(|(_, origin)| origin.listener == Some(0)));
    let ids: Vec<Id> = book.opened.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted() && ids[0] < ids[9]);
    let engine = post.running.engine();
    assert_eq!(engine.len(), 10);
    assert!(ids.iter().all(|id| engine.state(*id).unwrap().heard == 5));
    let counts = post.running.report().counts;
    assert_eq!((counts.sessions, counts.datagrams, counts.accepted), (10, 50, 0));
    assert_eq!((counts.datagram_errors, counts.refused_datagrams), (0, 0));
    assert_eq!(post.used(), 0);
}

/// nbio's TestUDP: each child times out, and not before its limit.
fn sessions_expire_not_before_their_limit<T: Harness>() {
    let idle = T::span(100.0);
    let mut post = Post::new::<T>(Limits::new().session_idle(idle));
    let mut said = Vec::new();
    for _ in 0..10 {
        let socket = post.socket();
        let begin = post.watcher.update_now();
        post.ask(socket, "hello");
        said.push((socket, begin));
        post.run_for(idle / 40);
    }
    // Two of them go on, and live longer.
    for (socket, begin) in &mut said[..2] {
        *begin = post.watcher.update_now();
        post.ask(*socket, "again");
    }
    assert_eq!(post.book().opened.len(), 10, "none has ended before the others began");
    post.until("all have ended", |post| post.book().closed.len() >= 10);
    let slack = if T::VIRTUAL { Duration::from_millis(1) } else { Duration::from_millis(100) };
    let book = post.running.handler();
    assert!(book.causes().iter().all(|cause| *cause == Cause::Idle));
    for ((id, _), (_, begin)) in book.opened.iter().zip(&said) {
        let lived = book.ended_at[id] - *begin;
        assert!(lived >= idle, "ended after {lived:?}");
        assert!(lived <= idle + idle / 16 + slack, "ended after {lived:?}");
    }
    let report = post.running.report();
    assert_eq!((report.counts.ends.idle, post.running.engine().len()), (10, 0));
    // A peer that has been forgotten begins again.
    let stale = post.book().opened[0].0;
    post.ask(said[0].0, "once more");
    assert_eq!(post.book().opened.len(), 11, "the peer is another session");
    let refused = post.running.engine().write(stale, "too late").unwrap_err();
    assert_eq!((refused.reason, &*refused.data), (Refusal::Stale, &b"too late"[..]));
}

fn datagrams_of_every_size_are_whole<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let socket = post.socket();
    for size in [0, 1, 65_507, 0, 1472, 65_507] {
        let said: Vec<u8> = (0..size).map(|at| (at ^ at >> 8) as u8).collect();
        assert!(*post.ask(socket, said.clone()) == said, "{size} bytes");
    }
    assert_eq!(post.book().opened.len(), 1);
    // What is too long for UDP is counted, and the session goes on.
    let id = post.book().opened[0].0;
    post.running.engine().write(id, vec![0; 64 << 10]).unwrap();
    post.running.turn(&mut post.watcher);
    post.until("the failure is counted", |post| post.running.report().counts.datagram_errors == 1);
    assert_eq!(&*post.ask(socket, "after it"), b"after it");
    // Several writes of a turn are several datagrams, and a list of buffers is one.
    let engine = post.running.engine();
    engine.write(id, "one").unwrap();
    engine.write_slice(id, b"").unwrap();
    engine.write(id, Buf::list([Buf::from("of "), Buf::from("parts")])).unwrap();
    engine.write_slice(id, b"three").unwrap();
    assert_eq!(engine.waiting(id), 16);
    post.running.turn(&mut post.watcher);
    for said in ["one", "", "of parts", "three"] {
        assert_eq!(&*post.hear(socket), said.as_bytes());
    }
    assert_eq!((post.used(), post.running.engine().waiting(id)), (0, 0));
}
