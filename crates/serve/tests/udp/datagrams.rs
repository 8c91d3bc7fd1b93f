//! Datagrams: each is a call of the handler, and the answer goes to its sender; on every driver.

use std::time::Duration;

use crate::common::turns::Turns;
use crate::common::{Harness, PATIENCE};
use windlass::driver::{Driver, OpCode};
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::{Address, Buf, Completion, Completions, Done, Op, Source, Watcher};
use windlass_serve::{Action, Conn, Datagram, Handler, Limits, Refusal, Server, ServerLoop};

crate::every_driver! {
    an_answer_goes_to_the_sender
    empty_and_largest_datagrams_are_whole
    a_datagram_that_is_longer_than_a_buffer_says_so
    several_listeners_of_mixed_kind
    an_answer_to_a_peer_that_is_gone_ends_nothing
    an_answer_in_the_last_turn_is_sent
    a_panic_ends_no_socket
    a_socket_of_ones_own
    what_waits_is_bounded
    many_senders_at_once
    answers_go_out_together
}

/// Echoes datagrams and connections, each with the number of its listener in front.
#[derive(Default)]
struct Echo {
    peers: Vec<Address>,
    truncated: usize,
}

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write_slice(b"tcp ");
        c.write(data);
        Action::None
    }

    fn datagram(&mut self, d: &mut Datagram<'_, ()>, data: Buf) -> Action {
        self.peers.push(d.peer().clone());
        self.truncated += usize::from(d.is_truncated());
        match &*data {
            b"panic" => panic!("the datagram cannot be served, as it is to"),
            b"end" => {
                assert!(d.reply("bye"));
                return Action::Shutdown;
            }
            b"many" => {
                for _ in 0..100 {
                    d.reply("one of many");
                }
            }
            b"number" => {
                let number = d.listener().to_string();
                assert!(d.reply(number));
            }
            _ => assert!(d.reply(data)),
        }
        // They have no connection to act on.
        Action::Close
    }
}

/// A server, and datagram sockets on the same watcher.
struct Post<D: Driver> {
    watcher: Watcher<D>,
    running: ServerLoop<Echo>,
    addresses: Vec<Address>,
    got: Vec<Completion>,
}

impl<D: Driver> Post<D> {
    fn new<T: Harness<Driver = D>, F: Fn(usize) -> Echo>(server: Server<F>) -> Post<D> {
        let mut watcher = T::watcher(Watcher::builder());
        let mut running = server.start_on(&mut watcher).expect("the server starts");
        let listeners = running.engine().listeners().to_vec();
        let address = |source| watcher.local_address(source).expect("its address");
        let addresses = listeners.into_iter().map(address).collect();
        Post { watcher, running, addresses, got: Vec::new() }
    }

    fn socket(&mut self) -> Source {
        let options = DatagramOptions::default();
        self.watcher.bind_datagram(([127, 0, 0, 1], 0), options).expect("a socket")
    }

    /// Sends to an address of the server.
    fn send(&mut self, from: Source, to: usize, data: impl Into<Buf>) {
        let send = Op::send_to(from, data, self.addresses[to].clone()).token(1);
        self.watcher.submit(send).expect("a send");
    }

    /// The next datagram that arrives at a socket, and the address of its sender.
    #[track_caller]
    fn hear(&mut self, at: Source) -> (Buf, Address) {
        self.watcher.submit(Op::recv_from(at).token(2)).expect("a receive");
        let is_it = |c: &Completion| c.code() == OpCode::RecvFrom && c.source == at;
        self.until("a datagram arrives", |post| post.got.iter().any(is_it));
        let which = self.got.iter().position(is_it).expect("from above");
        match self.got.remove(which).result {
            Ok(Done::Received { data, from, truncated: false }) => (data, from),
            other => panic!("no datagram: {other:?}"),
        }
    }

    /// Sends, and hears the answer.
    #[track_caller]
    fn ask(&mut self, from: Source, to: usize, data: impl Into<Buf>) -> Buf {
        self.send(from, to, data);
        let (data, sender) = self.hear(from);
        assert_eq!(sender, self.addresses[to]);
        data
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
        count
    }
}

fn server() -> Server<impl Fn(usize) -> Echo> {
    Server::new(|_| Echo::default()).listen("udp://127.0.0.1:0").expect("an address")
}

fn an_answer_goes_to_the_sender<T: Harness>() {
    let mut post = Post::new::<T, _>(server());
    let (one, other) = (post.socket(), post.socket());
    for round in 0..100 {
        for (at, socket) in [one, other].into_iter().enumerate() {
            let said = format!("{at} in round {round}");
            assert_eq!(&*post.ask(socket, 0, said.clone()), said.as_bytes());
        }
    }
    let peers = [one, other].map(|socket| post.watcher.local_address(socket).unwrap());
    assert_eq!(post.running.handler().peers[..2], peers);
    let report = post.running.report();
    assert_eq!((report.counters.datagrams, report.counters.datagram_errors), (200, 0));
    assert_eq!((report.counters.accepted, post.running.engine().len()), (0, 0));
    assert_eq!(post.running.engine().budget().used(), 0);
}

fn empty_and_largest_datagrams_are_whole<T: Harness>() {
    let mut post = Post::new::<T, _>(server());
    let socket = post.socket();
    for size in [0, 1, 65_507, 0, 1472, 65_507] {
        let said: Vec<u8> = (0..size).map(|at| (at ^ at >> 8) as u8).collect();
        assert!(*post.ask(socket, 0, said.clone()) == said, "{size} bytes");
    }
    // 64 KiB are more than UDP has; the sender is told.
    post.got.clear();
    post.send(socket, 0, vec![0; 64 << 10]);
    post.until("the send has ended", |post| post.got.iter().any(|c| c.code() == OpCode::SendTo));
    assert!(post.got[0].result.is_err(), "{:?}", post.got);
    assert_eq!(&*post.ask(socket, 0, "after it"), b"after it");
    // The server also learns of its own answer that is too long.
    let (number, peer) = (0, post.watcher.local_address(socket).unwrap());
    post.running.engine().send_to(number, peer, vec![0; 64 << 10]).unwrap();
    post.running.turn(&mut post.watcher);
    post.until("the failure is counted", |post| {
        post.running.report().counters.datagram_errors == 1
    });
    assert_eq!(&*post.ask(socket, 0, "after that"), b"after that");
    assert_eq!(post.running.engine().budget().used(), 0);
}

fn a_datagram_that_is_longer_than_a_buffer_says_so<T: Harness>() {
    let mut watcher = T::watcher(Watcher::builder().buffer_size(1024));
    let mut running = server().start_on(&mut watcher).unwrap();
    let address = watcher.local_address(running.engine().listeners()[0]).unwrap();
    let mut post = Post { watcher, running, addresses: vec![address], got: Vec::new() };
    let socket = post.socket();
    assert_eq!(post.ask(socket, 0, vec![7; 1024]).len(), 1024);
    assert_eq!(post.running.handler().truncated, 0);
    assert_eq!(post.ask(socket, 0, vec![7; 1025]).len(), 1024);
    assert_eq!(post.running.handler().truncated, 1);
}

fn several_listeners_of_mixed_kind<T: Harness>() {
    let server = server().listen("tcp://127.0.0.1:0").unwrap();
    let server = server.listen("udp4://127.0.0.1:0?reuseport=false").unwrap();
    let mut post = Post::new::<T, _>(server);
    let socket = post.socket();
    assert_eq!(&*post.ask(socket, 0, "number"), b"0");
    assert_eq!(&*post.ask(socket, 2, "number"), b"2");
    let options = ConnectOptions::default().token(1);
    let (client, _) = post.watcher.connect([post.addresses[1].clone()], options).unwrap();
    post.watcher.submit(Op::write(client, "!").token(1)).unwrap();
    let read = Op::read_exact(client, Vec::with_capacity(5), 5).token(3);
    post.watcher.submit(read).unwrap();
    post.until("it is answered", |post| post.got.iter().any(|c| c.token == 3));
    let which = post.got.iter().position(|c| c.token == 3).unwrap();
    assert_eq!(&*post.got[which].take_buf(), b"tcp !");
    assert_eq!(&*post.ask(socket, 0, "number"), b"0");
}

/// The system reports an unreachable port to the socket that has sent there: that is no end.
fn an_answer_to_a_peer_that_is_gone_ends_nothing<T: Harness>() {
    let mut post = Post::new::<T, _>(server());
    for _ in 0..100 {
        // It has gone before its answers come.
        let gone = post.socket();
        let address = post.watcher.local_address(gone).unwrap();
        post.send(gone, 0, "one");
        post.run_for(T::span(0.1));
        post.watcher.abort(gone);
        let engine = post.running.engine();
        for _ in 0..3 {
            engine.send_to(0, address.clone(), "is there no one?").unwrap();
        }
        post.run_for(T::span(0.1));
    }
    let socket = post.socket();
    assert_eq!(&*post.ask(socket, 0, "hello"), b"hello");
    assert_eq!(post.running.engine().budget().used(), 0);
}

fn an_answer_in_the_last_turn_is_sent<T: Harness>() {
    let mut post = Post::new::<T, _>(server().listen("udp://127.0.0.1:0").unwrap());
    let socket = post.socket();
    assert_eq!(&*post.ask(socket, 1, "end"), b"bye");
    post.until("it is over", |post| post.running.is_over());
    // The address is free again.
    let at = post.addresses[1].clone();
    post.until("the address is free", |post| {
        post.watcher.bind_datagram(at.clone(), DatagramOptions::default()).is_ok()
    });
    let refused = post.running.engine().send_to(1, at, "too late").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"too late"[..]));
    assert_eq!(post.running.engine().budget().used(), 0);
}

fn a_panic_ends_no_socket<T: Harness>() {
    let mut post = Post::new::<T, _>(server().listen("tcp://127.0.0.1:0").unwrap());
    let options = ConnectOptions::default().token(1);
    let (client, _) = post.watcher.connect([post.addresses[1].clone()], options).unwrap();
    post.watcher.submit(Op::write(client, "hello").token(1)).unwrap();
    post.until("the connection is served", |post| post.running.report().counters.writes == 1);
    let socket = post.socket();
    post.send(socket, 0, "panic");
    assert_eq!(&*post.ask(socket, 0, "hello"), b"hello");
    assert_eq!(post.running.report().panics, 1);
    assert_eq!(post.running.engine().len(), 1, "the connection has nothing to do with it");
}

/// A socket that the program has made; on a kernel of the system it is connected, and hears of a
/// peer that is gone.
fn a_socket_of_ones_own<T: Harness>() {
    if T::VIRTUAL {
        return; // Its sockets are no descriptors of the system.
    }
    let near = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (here, there) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    near.connect(there).unwrap();
    let mut post = Post::new::<T, _>(Server::new(|_| Echo::default()).listener(near));
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 16];
    far.send_to(b"hello", here).unwrap();
    post.until("it is answered", |post| post.running.report().counters.datagrams == 1);
    post.run_for(Duration::from_millis(1));
    assert_eq!(far.recv(&mut heard).unwrap(), 5);
    // The peer goes, and datagrams to it come back as errors.
    far.send_to(b"many", here).unwrap();
    drop(far);
    post.until("errors are counted", |post| post.running.report().counters.datagram_errors > 0);
    let far = std::net::UdpSocket::bind(there).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let start = std::time::Instant::now();
    loop {
        // An error that is on its way may take the place of one.
        far.send_to(b"number", here).unwrap();
        post.run_for(Duration::from_millis(20));
        match far.recv(&mut heard) {
            Ok(1) if heard[0] == b'0' => break,
            _ => assert!(start.elapsed() < PATIENCE, "it answers no more"),
        }
    }
}

fn what_waits_is_bounded<T: Harness>() {
    let limits = Limits::new().cap(10_000);
    let mut post = Post::new::<T, _>(server().limits(limits));
    let socket = post.socket();
    let peer = post.watcher.local_address(socket).unwrap();
    let engine = post.running.engine();
    let refused = engine.send_to(0, peer.clone(), vec![1; 10_000]).unwrap_err();
    assert_eq!((refused.reason, refused.value.len()), (Refusal::Cap, 10_000));
    let fits = (0..).find(|_| engine.send_to(0, peer.clone(), "").is_err()).unwrap();
    assert!((10..=10_000 / 64).contains(&fits), "{fits} empty datagrams");
    assert!(engine.budget().used() > 0);
    assert_eq!(engine.send_to(1, peer.clone(), "").unwrap_err().reason, Refusal::Stale);
    post.running.turn(&mut post.watcher);
    for _ in 0..fits {
        assert_eq!(post.hear(socket).0.len(), 0);
    }
    post.until("nothing is charged", |post| post.running.engine().budget().used() == 0);
    let mut post = Post::new::<T, _>(server().limits(Limits::new().memory(1000)));
    let refused = post.running.engine().send_to(0, peer, vec![1; 1000]).unwrap_err();
    assert_eq!(refused.reason, Refusal::Memory);
}

fn many_senders_at_once<T: Harness>() {
    let mut post = Post::new::<T, _>(server());
    let sockets: Vec<_> = (0..100).map(|_| post.socket()).collect();
    for round in 0..5_u8 {
        for socket in &sockets {
            post.send(*socket, 0, vec![round; 100]);
        }
        for socket in &sockets {
            // Datagrams of another test can come to a port that one of its sockets had.
            let heard = loop {
                let (heard, from) = post.hear(*socket);
                if from == post.addresses[0] {
                    break heard;
                }
            };
            assert_eq!(*heard, [round; 100]);
        }
    }
    assert_eq!(post.running.report().counters.datagrams, 500);
}

/// The answers of a turn take one system call for many, where the system has such a call.
fn answers_go_out_together<T: Harness>() {
    let mut post = Post::new::<T, _>(server());
    let far = post.socket();
    let before = post.watcher.counters();
    post.send(far, 0, "many");
    let hear = Op::recv_from(far).multishot().token(2);
    post.watcher.submit(hear).expect("a receive");
    let is_one = |c: &&Completion| c.source == far && c.code() == OpCode::RecvFrom;
    post.until("a hundred answers arrive", |post| post.got.iter().filter(is_one).count() == 100);
    let after = post.watcher.counters();
    let calls = |name| after.calls(name) - before.calls(name);
    let (single, together) = (calls("sendmsg"), calls("sendmmsg"));
    if T::NAME == "faults" {
        assert!(together > 0, "{single} {together}");
    } else if T::VIRTUAL || cfg!(target_os = "linux") {
        assert!(single <= 10 && (4..=20).contains(&together), "{single} {together}");
    }
}
