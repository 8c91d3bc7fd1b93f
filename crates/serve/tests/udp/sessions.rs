//! UDP sessions: each peer of a datagram socket is a connection; on every driver.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::turns::Turns;
use crate::common::{Harness, PATIENCE, System};
use windlass::driver::{Driver, OpCode};
use windlass::net::DatagramOptions;
use windlass::{Address, Buf, Completion, Completions, Done, Op, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Datagram, Engine, Event, Handler, Id, Limits,
    Origin, Phase, Refusal, Remote, Server, ServerLoop,
};

crate::every_driver! {
    each_peer_is_a_session
    sessions_expire_not_before_their_limit
    an_idle_limit_beyond_the_clock_is_none
    datagrams_of_every_size_are_whole
    sessions_end_once_and_last
    a_closed_session_sends_what_waits_first
    a_panic_ends_its_session_only
    a_shutdown_ends_every_session
    beyond_the_limit_datagrams_are_dropped_and_counted
    other_threads_write_by_id
    what_waits_is_bounded_for_each_session
    a_paused_session_holds_its_datagrams
    a_thousand_peers_at_once
    a_socket_without_sessions_beside_one_with
    sessions_of_an_engine_are_events
    no_session_opens_behind_the_end_of_its_socket
}

/// Without the simulation: servers of several loops make their own watchers.
mod several {
    use super::loops_share_a_port;
    crate::systems_drivers! { loops_share_a_port }
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
    running: ServerLoop<Book>,
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

impl<D: Driver> Turns for Post<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
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
}

fn server() -> Server<impl Fn(usize) -> Book> {
    let server = Server::new(|_| Book::default());
    server.listen("udp://127.0.0.1:0?sessions=true").expect("an address")
}

/// A limit that the clock does not reach ends no session, and no server.
fn an_idle_limit_beyond_the_clock_is_none<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new().session_idle(Duration::MAX));
    let socket = post.socket();
    for _ in 0..2 {
        post.send(socket, "x");
        assert_eq!(&*post.hear(socket), b"x");
    }
    let report = post.running.report();
    assert_eq!((report.panics, report.counters.sessions), (0, 1));
    assert!(post.running.handler().closed.is_empty());
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
    let counters = post.running.report().counters;
    assert_eq!((counters.sessions, counters.datagrams, counters.accepted), (10, 50, 0));
    assert_eq!((counters.datagram_errors, counters.refused_datagrams), (0, 0));
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
    assert_eq!((report.counters.ends.idle, post.running.engine().len()), (10, 0));
    // A peer that has been forgotten begins again.
    let stale = post.book().opened[0].0;
    post.ask(said[0].0, "once more");
    assert_eq!(post.book().opened.len(), 11, "the peer is another session");
    let refused = post.running.engine().write(stale, "too late").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"too late"[..]));
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
    post.until("the failure is counted", |post| {
        post.running.report().counters.datagram_errors == 1
    });
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

fn sessions_end_once_and_last<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let (socket, first) = post.open();
    post.send(socket, "abort");
    post.until("it is aborted", |post| post.book().closed.len() == 1);
    // The same peer begins again, with another id.
    assert_eq!(&*post.ask(socket, "hello"), b"hello", "what an abort drops is not sent");
    let second = post.book().opened[1].0;
    assert!(second > first);
    assert_eq!(&*post.ask(socket, "half"), b"the last");
    post.until("UDP has no half", |post| post.book().closed.len() == 2);
    assert_eq!(&*post.ask(socket, "hello"), b"hello");
    let third = post.book().opened[2].0;
    let engine = post.running.engine();
    for stale in [first, second] {
        assert!(!engine.wake(stale) && !engine.close(stale) && !engine.abort(stale));
        assert!(!engine.pause(stale) && !engine.resume(stale) && engine.detach(stale).is_err());
        assert!(engine.state(stale).is_none() && engine.source(stale).is_none());
        assert_eq!(engine.write(stale, "x").unwrap_err().reason, Refusal::Stale);
        assert_eq!(engine.write_slice(stale, b"x").unwrap_err(), Refusal::Stale);
    }
    // It has no descriptor of its own.
    assert!(engine.source(third).is_none() && engine.detach(third).is_err());
    post.send(socket, "detach");
    assert_eq!(&*post.ask(socket, "still here"), b"still here");
    let book = post.book();
    let ends: Vec<_> = book.closed.iter().map(|end| (end.0, end.1, end.2, end.4)).collect();
    assert_eq!(ends, [(first, Cause::Aborted, 10, 2), (second, Cause::Closed, 0, 2)]);
    let calls = ["opened", "data", "data", "closed", "opened", "data", "data", "closed", "opened"];
    assert_eq!(book.calls[..9], calls);
    assert_eq!(post.used(), 0);
}

fn a_closed_session_sends_what_waits_first<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    for _ in 0..10 {
        let socket = post.socket();
        assert_eq!(&*post.ask(socket, "close"), b"bye");
    }
    post.until("all have ended", |post| post.book().closed.len() == 10);
    let book = post.book();
    for (_, cause, unsent, phase, heard) in &book.closed {
        assert_eq!((*cause, *unsent, *phase, *heard), (Cause::Closed, 0, Phase::Closing, 1));
    }
    assert_eq!((post.used(), post.running.engine().len()), (0, 0));
}

fn a_panic_ends_its_session_only<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let (other, _) = post.open();
    let socket = post.socket();
    for round in 1..=40 {
        // More often than the socket has receives in flight.
        post.send(socket, "panic");
        post.until("it has ended", |post| post.book().closed.len() == round);
        assert_eq!(post.book().closed[round - 1].1, Cause::Panicked);
        assert_eq!(&*post.ask(other, "hello"), b"hello");
    }
    assert_eq!(post.running.report().panics, 40);
    assert_eq!(post.running.engine().len(), 1);
}

fn a_shutdown_ends_every_session<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let sockets: Vec<_> = (0..5).map(|_| post.open().0).collect();
    assert_eq!(&*post.ask(sockets[3], "end"), b"bye");
    post.until("it is over", |post| post.running.is_over());
    let book = post.book();
    assert_eq!(book.causes(), [Cause::Shutdown; 5]);
    assert!(book.closed.iter().all(|end| (end.2, end.3) == (0, Phase::Open)));
    let report = post.running.report();
    assert_eq!((report.counters.ends.shutdown, report.unfinished.len()), (5, 0));
    assert_eq!(post.used(), 0);
}

fn beyond_the_limit_datagrams_are_dropped_and_counted<T: Harness>() {
    let idle = T::span(100.0);
    let mut post = Post::new::<T>(Limits::new().sessions(3).session_idle(idle));
    let inside: Vec<_> = (0..3).map(|_| post.open().0).collect();
    let outside = post.socket();
    for _ in 0..10 {
        post.send(outside, "let me in");
    }
    post.until("all are counted", |post| post.running.report().counters.refused_datagrams == 10);
    // Those inside have noticed nothing.
    for socket in &inside {
        assert_eq!(&*post.ask(*socket, "hello"), b"hello");
    }
    assert_eq!(post.book().opened.len(), 3);
    post.until("they have ended", |post| post.book().closed.len() == 3);
    assert_eq!(&*post.ask(outside, "let me in"), b"let me in");
    // None at all.
    let mut post = Post::new::<T>(Limits::new().sessions(0));
    let socket = post.socket();
    post.send(socket, "hello");
    post.until("it is counted", |post| post.running.report().counters.refused_datagrams == 1);
    assert!(post.running.engine().is_empty());
}

fn other_threads_write_by_id<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new());
    let (socket, id) = post.open();
    let remote = post.running.remote();
    let thread = std::thread::spawn(move || {
        for said in ["one", "", "three"] {
            remote.write(id, said).expect("the session lives");
        }
        assert!(remote.wake(id));
        remote
    });
    let remote = thread.join().expect("no panic");
    assert!(post.used() >= 8, "they are charged before they are sent");
    for said in ["one", "", "three", "woken"] {
        assert_eq!(&*post.hear(socket), said.as_bytes());
    }
    assert_eq!(post.used(), 0);
    assert!(remote.close(id));
    post.until("it has ended", |post| post.book().closed.len() == 1);
    let refused = remote.write(id, "too late").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"too late"[..]));
    assert!(!remote.wake(id) && !remote.close(id));
}

fn what_waits_is_bounded_for_each_session<T: Harness>() {
    let mut post = Post::new::<T>(Limits::new().cap(10_000));
    let (socket, id) = post.open();
    let (other, other_id) = post.open();
    let engine = post.running.engine();
    let refused = engine.write(id, vec![1; 10_000]).unwrap_err();
    assert_eq!((refused.reason, refused.value.len()), (Refusal::Cap, 10_000));
    let fits = (0..).find(|_| engine.write(id, "").is_err()).unwrap();
    assert_eq!(fits, 10_000 / 128);
    engine.write(other_id, "the other has a cap of its own").unwrap();
    let remote = post.running.remote();
    assert_eq!(remote.write(id, vec![1; 100]).unwrap_err().reason, Refusal::Cap);
    post.running.turn(&mut post.watcher);
    for _ in 0..fits {
        assert_eq!(post.hear(socket).len(), 0);
    }
    assert_eq!(post.hear(other).len(), 30);
    post.until("nothing is charged", |post| post.used() == 0);
    let mut post = Post::new::<T>(Limits::new().memory(1000));
    let (_, id) = post.open();
    let refused = post.running.engine().write(id, vec![1; 1000]).unwrap_err();
    assert_eq!((refused.reason, refused.value.len()), (Refusal::Memory, 1000));
    assert_eq!(post.running.engine().len(), 1);
}

fn a_paused_session_holds_its_datagrams<T: Harness>() {
    let idle = T::span(50.0);
    // The idle limit of other connections has nothing to do with it.
    let limits = Limits::new().marks(100, 10 * 130).session_idle(idle).idle(None);
    let mut post = Post::new::<T>(limits);
    let (socket, id) = post.open();
    post.send(socket, "pause");
    for at in 0..20_u8 {
        post.send(socket, vec![at; 2]);
    }
    post.until("the rest is dropped", |post| {
        post.running.report().counters.dropped_datagrams == 10
    });
    assert_eq!(post.used(), 10 * 130);
    // It does not expire meanwhile.
    post.run_for(2 * idle);
    assert_eq!(post.book().closed.len(), 0);
    assert!(post.running.engine().resume(id));
    let resumed = post.watcher.update_now();
    post.running.turn(&mut post.watcher);
    for at in 0..10_u8 {
        assert_eq!(*post.hear(socket), [at; 2]);
    }
    assert_eq!(post.used(), 0);
    post.until("it expires", |post| post.book().closed.len() == 1);
    assert!(post.book().ended_at[&id] - resumed >= idle, "its idle time begins again");
}

/// A thousand peers, each with several datagrams on the way: none is lost but those that the
/// kernel says it has dropped.
fn a_thousand_peers_at_once<T: Harness>() {
    const PEERS: usize = 1000;
    let mut post = Post::on(T::watcher(Watcher::builder()), server());
    let sockets: Vec<_> = (0..PEERS).map(|_| post.socket()).collect();
    for socket in &sockets {
        post.watcher.submit(Op::recv_from(*socket).token(2)).unwrap();
    }
    let (mut sent, mut dropped) = (0, 0);
    // In groups that fit into the buffer of the socket, and then all at once.
    for group in [50, 50, PEERS] {
        for sockets in sockets.chunks(group) {
            for socket in sockets {
                post.send(*socket, vec![7; 100]);
            }
            sent += sockets.len() as u64;
            post.until("each datagram has arrived, or the kernel counts it", |post| {
                dropped = kernel_drops::<T>(&post.to);
                post.running.report().counters.datagrams + dropped == sent
            });
        }
        assert!(group == PEERS || dropped == 0, "{dropped} of a group");
    }
    let arrived = post.running.report().counters.datagrams;
    println!("{sent} datagrams of {PEERS} peers: {arrived} arrived, the kernel dropped {dropped}");
    let counters = post.running.report().counters;
    assert_eq!((counters.refused_datagrams, counters.dropped_datagrams), (0, 0));
    assert_eq!((counters.sessions, post.book().opened.len()), (PEERS as u64, PEERS));
    let heard: usize = {
        let engine = post.running.engine();
        let ids: Vec<Id> = engine.ids().collect();
        ids.iter().map(|id| engine.state(*id).unwrap().heard).sum()
    };
    assert_eq!(heard as u64, counters.datagrams);
    // Each peer has an answer, too.
    let answers = |post: &Post<T::Driver>| {
        post.got.iter().filter(|c| matches!(c.result, Ok(Done::Received { .. }))).count()
    };
    post.until("they are answered", |post| answers(post) == PEERS);
    assert_eq!(post.running.report().counters.datagram_errors, 0);
    post.until("nothing waits", |post| post.used() == 0);
}

/// How many datagrams the kernel has dropped at a socket, because its buffer was full.
fn kernel_drops<T: Harness>(at: &Address) -> u64 {
    if T::VIRTUAL || !cfg!(target_os = "linux") {
        return 0; // The simulation lets a sender wait.
    }
    let local = format!("0100007F:{:04X}", at.ip().expect("an internet address").port());
    // While other sockets come and go, a look at the table can miss a row.
    for _ in 0..1000 {
        let table = std::fs::read_to_string("/proc/net/udp").expect("Linux has it");
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        if let Some(row) = rows.find(|row| row.get(1) == Some(&&*local)) {
            return row.last().expect("a column").parse().expect("a number");
        }
    }
    panic!("no socket at {local}");
}

fn a_socket_without_sessions_beside_one_with<T: Harness>() {
    let server = Server::new(|_| Book::default()).listen("udp://127.0.0.1:0?sessions=false");
    let server = server.unwrap().listen("udp4://127.0.0.1:0").unwrap();
    let server = server.config(Config::new().udp_sessions(true));
    let mut post = Post::on(T::watcher(Watcher::builder()), server);
    let socket = post.socket();
    post.send(socket, "hello");
    post.until("it has arrived", |post| post.book().datagrams == 1);
    assert!(post.running.engine().is_empty());
    let second = post.running.engine().listeners()[1];
    post.to = post.watcher.local_address(second).unwrap();
    assert_eq!(&*post.ask(socket, "hello"), b"hello");
    assert_eq!(post.book().opened[0].1.listener, Some(1));
    assert_eq!(post.book().datagrams, 1);
}

/// A datagram that was on its way when its socket closed opened a session, which then had no
/// socket.
fn no_session_opens_behind_the_end_of_its_socket<T: Harness>() {
    let mut watcher = T::watcher(Watcher::builder());
    let mut engine = Engine::<u32>::new(Config::new().udp_sessions(true));
    let (local, options) = (([127, 0, 0, 1], 0), DatagramOptions::default());
    let number = engine.bind_datagram(&mut watcher, local, options).unwrap();
    let to = watcher.local_address(engine.listeners()[number]).unwrap();
    let client = watcher.bind_datagram(local, options).unwrap();
    watcher.submit(Op::send_to(client, "hello", to).token(1)).unwrap();
    let (mut batch, mut done) = (Vec::new(), Completions::new());
    while !batch.iter().any(|c: &windlass::Completion| c.code() == OpCode::RecvFrom) {
        watcher.wait_timeout(&mut done, PATIENCE).unwrap();
        batch.extend(done.drain(..));
    }
    assert!(engine.close_listener(number));
    engine.flush(&mut watcher);
    assert!(!engine.close_listener(number), "it is closed");
    for c in batch {
        let _ = engine.complete(&mut watcher, c);
    }
    assert!(engine.next_event(&mut watcher).is_none() && engine.is_empty());
    assert_eq!(engine.counters().refused_datagrams, 1);
}

fn sessions_of_an_engine_are_events<T: Harness>() {
    let mut watcher = T::watcher(Watcher::builder());
    let mut engine = Engine::<u32>::new(Config::new().udp_sessions(true));
    let local = ([127, 0, 0, 1], 0);
    let options = DatagramOptions::default();
    let number = engine.bind_datagram(&mut watcher, local, options).unwrap();
    let to = watcher.local_address(engine.listeners()[number]).unwrap();
    let client = watcher.bind_datagram(local, options).unwrap();
    for said in ["one", "two", "three"] {
        watcher.submit(Op::send_to(client, said, to.clone())).unwrap();
    }
    let (mut told, mut done) = (Vec::new(), Completions::new());
    let start = watcher.update_now();
    while told.len() < 5 {
        assert!(watcher.update_now() - start < PATIENCE, "only {told:?}");
        watcher.wait_timeout(&mut done, PATIENCE).unwrap();
        let mut batch = done.visit();
        while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
            match event {
                Event::Opened { id, origin } => {
                    assert_eq!(origin.listener, Some(number));
                    *engine.state_mut(id).unwrap() = 7;
                    told.push("opened".to_owned());
                }
                Event::Data { id, data } => {
                    told.push(String::from_utf8(data.to_vec()).unwrap());
                    if &*data == b"three" {
                        // The end of the socket is that of its sessions.
                        engine.stop_listening(&mut watcher);
                        assert_eq!(engine.write(id, "x").unwrap_err().reason, Refusal::Stale);
                    }
                }
                Event::Closed { cause, state, .. } => {
                    assert_eq!((cause, state), (Cause::Shutdown, 7));
                    told.push("closed".to_owned());
                }
                Event::Foreign(_) => {}
                other => panic!("{other:?}"),
            }
        }
        drop(batch);
        engine.flush(&mut watcher);
    }
    assert_eq!(told, ["opened", "one", "two", "three", "closed"]);
    assert!(engine.is_empty());
}

/// Each loop has a socket at the port, and a peer stays with one of them.
fn loops_share_a_port<T: System>() {
    struct Name(usize, mpsc::Sender<(Remote, Address)>);
    impl Handler for Name {
        type State = usize;
        fn serving(&mut self, s: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
            self.1.send((s.remote().clone(), addresses[0].clone())).expect("the test listens");
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, usize>, _: Buf) -> Action {
            *c.state() += 1;
            let answer = format!("loop {} datagram {}", self.0, c.state());
            assert!(c.write(answer));
            Action::None
        }
    }
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let new = move |index| Name(index, tell.lock().expect("no panic").clone());
    let server = Server::new(new).watcher(T::builder()).loops(3);
    let server = server.listen("udp://127.0.0.1:0?reuseport=true&sessions=true").unwrap();
    let thread = std::thread::spawn(move || server.run());
    let (remote, address) = told.recv_timeout(PATIENCE).expect("it serves");
    let address = address.ip().expect("an internet address");
    for _ in 0..20 {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut served_by = None;
        for round in 1..=5 {
            socket.send_to(b"hello", address).unwrap();
            let mut heard = [0; 32];
            let len = socket.recv(&mut heard).expect("an answer");
            let heard = std::str::from_utf8(&heard[..len]).unwrap().to_owned();
            let (by, count) = heard.split_once(" datagram ").expect("from above");
            assert_eq!(count, round.to_string());
            assert_eq!(served_by.get_or_insert(by.to_owned()), by);
        }
    }
    remote.shutdown();
    let report = thread.join().expect("no panic").expect("it ends well");
    assert_eq!((report.counters.sessions, report.counters.ends.shutdown), (20, 20));
}
