//! What nbio's engine does for a program, and its latent bugs, in every mode on every driver, and
//! in the simulation: the rows of `README.md` that no other file tests.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::scene::{News, Scene, Setting, pattern};
use crate::common::{Harness, PATIENCE};
use windlass::driver::Deadline;
use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, DatagramOptions, Keepalive, SocketOption};
use windlass::{Address, Buf, Completions, Done, ErrorKind, Op, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Handler, Id, Limits, Origin, Refusal, Server,
};

crate::every_mode! {
    an_echo_with_every_option_counts_each_byte
    a_connection_ends_at_its_deadline_in_every_mode
    a_hundred_clients_at_once_are_whole
    a_write_after_the_close_is_refused
    the_same_address_twice_is_an_error
    peers_of_a_datagram_socket_have_their_own_time
    both_ends_of_a_unix_connection_close
    a_stop_closes_every_connection
    a_tick_that_panics_stops_no_other_timer
    a_file_is_whole_three_times
}

/// How a connection has ended.
#[derive(Debug)]
struct End {
    id: Id,
    cause: Cause,
    unsent: usize,
    received: usize,
    sent: usize,
}

/// What a connection has received and sent.
#[derive(Default)]
struct Tally {
    received: usize,
    sent: usize,
}

/// Echoes, and counts.
struct Echo(News<End>);

impl Handler for Echo {
    type State = Tally;

    fn serving(&mut self, server: &mut Context<'_, Tally>, addresses: &[Address]) -> Action {
        self.0.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, Tally>, origin: Origin) -> Action {
        assert!(origin.peer.is_some() && c.state().received == 0);
        c.set_option(SocketOption::Linger(Some(Duration::from_secs(1))));
        c.set_option(SocketOption::Linger(None));
        c.set_option(SocketOption::Nodelay(true));
        c.set_option(SocketOption::Keepalive(Some(Keepalive::new(Duration::from_secs(60)))));
        c.set_option(SocketOption::RecvBuffer(4096));
        c.set_option(SocketOption::SendBuffer(4096));
        c.set_deadline(Deadline::After(Duration::from_secs(3600)));
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Tally>, data: Buf) -> Action {
        c.state().received += data.len();
        c.write(data);
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, Tally>, amount: usize, _: usize) -> Action {
        c.state().sent += amount;
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Tally>, closed: Closed<Tally>) -> Action {
        let Closed { id, cause, unsent, state, .. } = closed;
        self.0.tell(End { id, cause, unsent, received: state.received, sent: state.sent });
        Action::None
    }
}

/// nbio's TestEcho: two clients, one of which writes several buffers at once.
fn an_echo_with_every_option_counts_each_byte<T: Setting>() {
    const LENGTH: usize = 30_000;
    let mut scene = Scene::start::<T>(Echo, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let clients = [scene.connect(), scene.connect()];
    for (seed, client) in clients.into_iter().enumerate() {
        let bytes = pattern(LENGTH, seed);
        match seed {
            0 => scene.say(client, bytes),
            _ => {
                scene.say(client, Buf::list(bytes.chunks(999).map(|part| Buf::from(part.to_vec()))))
            }
        }
    }
    for (seed, client) in clients.into_iter().enumerate() {
        scene.until("all is echoed", |s| s.client(client).heard.len() == LENGTH);
        assert!(scene.client(client).heard == pattern(LENGTH, seed), "other bytes");
        scene.finish(client);
    }
    scene.until("both have ended", |s| s.news.notes().len() == 2);
    for end in &*scene.news.notes() {
        assert_eq!((end.cause, end.unsent), (Cause::Eof, 0), "{:?}", end.id);
        assert_eq!((end.received, end.sent), (LENGTH, LENGTH));
    }
    let report = scene.end();
    assert_eq!((report.counters.accepted, report.counters.option_errors), (2, 0));
}

/// Echoes. `close` closes behind a last word.
struct Plain {
    news: News<End>,
    /// The read deadline of each connection.
    deadline: Option<Duration>,
}

impl Handler for Plain {
    type State = Tally;

    fn serving(&mut self, server: &mut Context<'_, Tally>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, Tally>, _: Origin) -> Action {
        if let Some(deadline) = self.deadline {
            c.set_read_deadline(Deadline::After(deadline));
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, Tally>, data: Buf) -> Action {
        c.state().received += data.len();
        if &*data == b"close" {
            assert!(c.write("bye"));
            let id = c.id();
            assert!(c.engine().close(id));
            assert!(!c.write("late") && !c.write_slice(b"late"), "it takes no more output");
            assert!(c.into_std().is_none() && !c.move_to_loop());
            c.shutdown();
            c.set_deadline(Deadline::After(Duration::from_secs(1000)));
            return Action::None;
        }
        c.write(data);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Tally>, closed: Closed<Tally>) -> Action {
        let Closed { id, cause, unsent, state, .. } = closed;
        self.news.tell(End { id, cause, unsent, received: state.received, sent: state.sent });
        Action::None
    }
}

fn plain(news: News<End>) -> Plain {
    Plain { news, deadline: None }
}

/// nbio's TestTimeout: not before the deadline, and before twice its time.
fn a_connection_ends_at_its_deadline_in_every_mode<T: Setting>() {
    let span = T::span(20.0);
    let make = move |news| Plain { news, deadline: Some(span) };
    let mut scene = Scene::start::<T>(make, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let begin = scene.watcher.update_now();
    let clients: Vec<_> = (0..4).map(|_| scene.connect()).collect();
    scene.until("all have ended", |s| s.news.notes().len() == 4);
    let took = scene.watcher.update_now() - begin;
    // On a machine with other work a deadline can be late.
    let most = if T::VIRTUAL { 2 * span } else { span + PATIENCE };
    assert!(took >= span && took < most, "{took:?} for {span:?}");
    assert!(scene.news.notes().iter().all(|end| end.cause == Cause::ReadTimeout));
    scene.until("the clients know", |s| clients.iter().all(|c| s.client(*c).is_over()));
    assert_eq!(scene.end().counters.ends.read_timeout, 4);
}

/// nbio's TestFuzz: a hundred connects, a write, and one of three parts.
fn a_hundred_clients_at_once_are_whole<T: Setting>() {
    let mut scene = Scene::start::<T>(plain, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let clients: Vec<_> = (0..100).map(|_| scene.connect()).collect();
    for client in &clients {
        scene.say(*client, &[1][..]);
        scene.say(*client, Buf::list([[2], [3], [4]].map(|part| Buf::from(part.to_vec()))));
    }
    for client in &clients {
        scene.until("it is echoed", |s| s.client(*client).heard.len() == 4);
        assert_eq!(scene.client(*client).heard, [1, 2, 3, 4]);
        scene.finish(*client);
    }
    scene.until("all have ended", |s| s.news.notes().len() == 100);
    assert!(scene.news.notes().iter().all(|end| (end.cause, end.received) == (Cause::Eof, 4)));
    let report = scene.end();
    assert_eq!((report.counters.accepted, report.thread_errors), (100, 0));
}

/// nbio's TestFuzz: a write to a connection that closes, or has ended.
fn a_write_after_the_close_is_refused<T: Setting>() {
    let mut scene = Scene::start::<T>(plain, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let client = scene.connect();
    scene.say(client, "close");
    scene.until("it has ended", |s| !s.news.notes().is_empty());
    scene.until("the client knows", |s| s.client(client).eof);
    assert_eq!(scene.client(client).heard, b"bye");
    let id = scene.news.notes()[0].id;
    let refused = scene.remote.write(id, "late").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"late"[..]));
    assert!(!scene.remote.wake(id) && !scene.remote.close(id));
    let report = scene.end();
    assert_eq!((report.panics, report.counters.ends.closed), (0, 1));
}

/// nbio's TestFuzz: a start with one address twice.
fn the_same_address_twice_is_an_error<T: Setting>() {
    struct Nothing;
    impl Handler for Nothing {
        type State = ();
    }
    // A port that no socket has. Another process may take it: then this is an error all the same.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("tcp4://127.0.0.1:{port}");
    let server = Server::new(|_| Nothing).listen(&address).unwrap().listen(&address).unwrap();
    assert_eq!(T::fails(server).kind(), std::io::ErrorKind::AddrInUse);
}

/// nbio's TestUDP: a silent peer ends at its deadline, and others have their echoes.
fn peers_of_a_datagram_socket_have_their_own_time<T: Setting>() {
    const SEND: u64 = 3;
    const RECV: u64 = 4;
    let span = T::span(30.0);
    let make = move |news| Plain { news, deadline: Some(span) };
    let address = "udp://127.0.0.1:0?sessions=true";
    let mut scene = Scene::start::<T>(make, |server| server.listen(address).unwrap());
    let to = scene.addresses[0].clone();
    let local = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let socket = |scene: &mut Scene<_, _, _>| {
        scene.watcher.bind_datagram(local.clone(), DatagramOptions::default()).unwrap()
    };
    let silent = socket(&mut scene);
    let begin = scene.watcher.update_now();
    scene.watcher.submit(Op::send_to(silent, "test timeout", to.clone()).token(SEND)).unwrap();
    scene.until("it has ended", |s| !s.news.notes().is_empty());
    let took = scene.watcher.update_now() - begin;
    assert!(took >= span, "{took:?} is before {span:?}");
    assert_eq!(scene.news.notes()[0].cause, Cause::ReadTimeout);
    for client in 0..2 {
        let socket = socket(&mut scene);
        for number in 0..2 {
            let message = format!("message-{client}-{number}");
            scene.others.clear();
            let send = Op::send_to(socket, message.clone(), to.clone()).token(SEND);
            scene.watcher.submit(send).unwrap();
            scene.watcher.submit(Op::recv_from(socket).token(RECV)).unwrap();
            let arrived = |s: &mut Scene<_, _, _>| s.others.iter().any(|c| c.token == RECV);
            scene.until("the echo arrives", arrived);
            let at = scene.others.iter().position(|c| c.token == RECV).unwrap();
            let Ok(Done::Received { data, .. }) = &scene.others[at].result else { panic!() };
            assert_eq!(&**data, message.as_bytes());
        }
    }
    scene.until("all have ended", |s| s.news.notes().len() == 3);
    let report = scene.end();
    assert_eq!((report.counters.sessions, report.counters.ends.read_timeout), (3, 3));
}

/// Connects to its own server: one end says hello, and the other one answers.
struct Ends {
    news: News<(bool, Cause)>,
    connects: Arc<AtomicBool>,
}

impl Handler for Ends {
    /// Whether it is the client's end.
    type State = bool;

    fn serving(&mut self, server: &mut Context<'_, bool>, addresses: &[Address]) -> Action {
        if self.connects.swap(false, Ordering::SeqCst) {
            let to = [addresses[0].clone()];
            server.engine().connect(to, ConnectOptions::default(), true).unwrap();
        }
        self.news.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, bool>, origin: Origin) -> Action {
        assert_eq!(*c.state(), origin.listener.is_none());
        if *c.state() {
            c.write("hello");
        }
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, bool>, data: Buf) -> Action {
        if *c.state() {
            assert_eq!(&*data, b"world");
            return Action::Close;
        }
        assert_eq!(&*data, b"hello");
        c.write("world");
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, bool>, closed: Closed<bool>) -> Action {
        self.news.tell((closed.state, closed.cause));
        Action::None
    }
}

/// nbio's TestUnix.
fn both_ends_of_a_unix_connection_close<T: Setting>() {
    let name = format!("windlass-nbio-{}-{}", T::module().replace(':', "-"), std::process::id());
    let path = std::env::temp_dir().join(name);
    let connects = Arc::new(AtomicBool::new(true));
    let make = move |news| Ends { news, connects: Arc::clone(&connects) };
    let address = format!("unix://{}", path.display());
    let mut scene = Scene::start::<T>(make, |server| server.listen(&address).unwrap());
    scene.until("both ends have closed", |s| s.news.notes().len() == 2);
    let mut ends = scene.news.notes().clone();
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(ends, [(false, Cause::Eof), (true, Cause::Closed)]);
    let report = scene.end();
    assert_eq!((report.counters.accepted, report.counters.connected, report.panics), (1, 1, 0));
    assert!(T::VIRTUAL || !path.exists());
}

/// nbio's TestStop.
fn a_stop_closes_every_connection<T: Setting>() {
    let mut scene = Scene::start::<T>(plain, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let clients: Vec<_> = (0..20).map(|_| scene.connect()).collect();
    for client in &clients {
        scene.say(*client, "hi");
        scene.until("it is served", |s| s.client(*client).heard == b"hi");
    }
    let report = scene.end();
    assert_eq!((report.counters.accepted, report.counters.ends.shutdown), (20, 20));
    assert!(report.unfinished.is_empty());
    let mut ids: Vec<Id> = scene.news.notes().iter().map(|end| end.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), scene.news.notes().len()), (20, 20), "each has closed once");
    assert!(scene.news.notes().iter().all(|end| end.cause == Cause::Shutdown));
    scene.until("the clients know", |s| clients.iter().all(|c| s.client(*c).is_over()));
    assert!(ids.into_iter().all(|id| !scene.remote.wake(id)));
    let late = scene.connect();
    scene.until("the port is free", |s| s.client(late).error.is_some());
}

/// Sends its file for each byte that comes: the next piece when the last ones are almost out.
struct Files {
    news: News<(usize, usize)>,
    file: Arc<File>,
}

/// How much of the file is still to be sent, where it begins, and how much was sent.
#[derive(Default)]
struct Sending {
    left: usize,
    at: usize,
    sent: usize,
}

impl Files {
    fn pump(&self, c: &mut Conn<'_, Sending>) {
        const HIGH: usize = 1 << 20;
        while c.state().left > 0 && c.waiting() <= HIGH {
            let mut piece = vec![0; c.state().left.min(200_000)];
            self.file.read_exact_at(&mut piece, c.state().at as u64).expect("the file is long");
            c.state().left -= piece.len();
            c.state().at += piece.len();
            assert!(c.write(piece));
        }
    }
}

impl Handler for Files {
    type State = Sending;

    fn serving(&mut self, server: &mut Context<'_, Sending>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn data(&mut self, c: &mut Conn<'_, Sending>, _: Buf) -> Action {
        assert_eq!(c.state().left, 0, "the client waits for the last file");
        (c.state().left, c.state().at) = (self.file.metadata().unwrap().len() as usize, 0);
        self.pump(c);
        Action::None
    }

    fn postwrite(&mut self, c: &mut Conn<'_, Sending>, amount: usize, _: usize) -> Action {
        c.state().sent += amount;
        self.pump(c);
        Action::None
    }

    fn drained(&mut self, c: &mut Conn<'_, Sending>) -> Action {
        self.pump(c);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, Sending>, closed: Closed<Sending>) -> Action {
        self.news.tell((closed.state.sent, closed.unsent));
        Action::None
    }
}

/// nbio's TestSendfile: a file of 32 MiB three times, and the sum of written sizes.
fn a_file_is_whole_three_times<T: Setting>() {
    let length = if T::VIRTUAL { 3 << 20 } else { 32 << 20 };
    let name = format!("windlass-file-{}-{}", T::module().replace(':', "-"), std::process::id());
    let path = std::env::temp_dir().join(name);
    let bytes = pattern(length, 4);
    std::fs::write(&path, &bytes).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let make = move |news| Files { news, file: Arc::clone(&file) };
    let limits = Limits::new().marks(256 << 10, 1 << 20);
    let mut scene = Scene::start::<T>(make, |server| {
        server.limits(limits).listen("tcp://127.0.0.1:0").unwrap()
    });
    let client = scene.connect();
    for _ in 0..3 {
        scene.say(client, "f");
        scene.until("the file has come", |s| s.client(client).heard.len() >= length);
        assert!(scene.client(client).heard == bytes, "another file");
        scene.clients.all.get_mut(&client).unwrap().heard.clear();
    }
    scene.finish(client);
    scene.until("it has closed", |s| !s.news.notes().is_empty());
    assert_eq!(*scene.news.notes(), [(3 * length, 0)]);
    assert_eq!(scene.end().panics, 0);
}

/// Its third tick panics.
struct Ticks {
    plain: Plain,
    ticks: Arc<AtomicUsize>,
}

impl Handler for Ticks {
    type State = Tally;

    fn serving(&mut self, server: &mut Context<'_, Tally>, addresses: &[Address]) -> Action {
        self.plain.serving(server, addresses)
    }

    fn tick(&mut self, _: &mut Context<'_, Tally>) -> (Option<Duration>, Action) {
        assert!(self.ticks.fetch_add(1, Ordering::SeqCst) != 2, "the third tick, as it is to");
        (Some(Duration::from_millis(5)), Action::None)
    }

    fn opened(&mut self, c: &mut Conn<'_, Tally>, origin: Origin) -> Action {
        self.plain.opened(c, origin)
    }

    fn data(&mut self, c: &mut Conn<'_, Tally>, data: Buf) -> Action {
        self.plain.data(c, data)
    }

    fn closed(&mut self, context: &mut Context<'_, Tally>, closed: Closed<Tally>) -> Action {
        self.plain.closed(context, closed)
    }
}

/// nbio's timer test: a callback that panics.
fn a_tick_that_panics_stops_no_other_timer<T: Setting>() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ticks);
    let limits = Limits::new().idle(T::span(20.0));
    let make = move |news| Ticks { plain: plain(news), ticks: Arc::clone(&ticks) };
    let mut scene = Scene::start::<T>(make, |server| {
        server.limits(limits).listen("tcp://127.0.0.1:0").unwrap()
    });
    let client = scene.connect();
    scene.say(client, "before");
    scene.until("it is served", |s| s.client(client).heard == b"before");
    // The client's end wakes the test.
    scene.until("it is idle for too long", |s| s.news.count(|end| end.cause == Cause::Idle) == 1);
    let client = scene.connect();
    scene.say(client, "after");
    scene.until("it is served", |s| s.client(client).heard == b"after");
    let report = scene.end();
    assert!(counted.load(Ordering::SeqCst) >= 3);
    assert_eq!((report.panics, report.counters.accepted), (1, 2));
}

/// nbio's timer tests, on a watcher.
mod timers {
    use super::*;

    crate::every_driver! {
        timers_fire_in_their_order
        a_timer_moves_and_goes
        of_a_hundred_timers_half_are_cancelled
    }

    /// The tokens of timers that have fired, until `count` timers have ended.
    fn fired<D: windlass::driver::Driver>(watcher: &mut Watcher<D>, count: usize) -> Vec<u64> {
        let (mut done, mut fired, mut ended) = (Completions::new(), Vec::new(), 0);
        while ended < count {
            assert!(watcher.wait_timeout(&mut done, 50 * PATIENCE).unwrap() > 0, "a timer ends");
            for c in done.drain(..) {
                assert_eq!(c.code(), OpCode::Timer);
                match &c.result {
                    Ok(_) => fired.push(c.token),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled),
                }
                ended += 1;
            }
        }
        fired
    }

    fn timers_fire_in_their_order<T: Harness>() {
        let mut watcher = T::watcher(Watcher::builder());
        let unit = T::span(2.0);
        for number in [1, 2, 5, 4, 3] {
            watcher.submit(Op::timer(unit * number).token(u64::from(number))).unwrap();
        }
        assert_eq!(fired(&mut watcher, 5), [1, 2, 3, 4, 5]);
    }

    fn a_timer_moves_and_goes<T: Harness>() {
        let mut watcher = T::watcher(Watcher::builder());
        let unit = T::span(2.0);
        let begin = watcher.update_now();
        let moved = watcher.submit(Op::timer(unit).token(1)).unwrap();
        watcher.reschedule(moved, unit * 5).unwrap();
        let gone = watcher.submit(Op::timer(unit).token(2)).unwrap();
        watcher.submit(Op::timer(unit * 2).token(3)).unwrap();
        assert!(watcher.cancel(gone));
        assert_eq!(fired(&mut watcher, 3), [3, 1]);
        assert!(watcher.update_now() - begin >= unit * 5);
    }

    fn of_a_hundred_timers_half_are_cancelled<T: Harness>() {
        let mut watcher = T::watcher(Watcher::builder());
        let mut random = fastrand::Rng::with_seed(7);
        let span = |random: &mut fastrand::Rng| T::span(50.0 + random.f64() * 20.0);
        let timers: Vec<_> = (0..100)
            .map(|n| watcher.submit(Op::timer(span(&mut random)).token(n)).unwrap())
            .collect();
        assert!(timers[..50].iter().all(|timer| watcher.cancel(*timer)));
        let mut fired = fired(&mut watcher, 100);
        fired.sort_unstable();
        assert!(fired.into_iter().eq(50..100), "those that were not cancelled");
    }
}
