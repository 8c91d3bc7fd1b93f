//! Servers on threads of their own, what a failed start leaves behind, and the grace of a shutdown.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::sim::Sim;
use windlass::{Buf, Completions, Done, Op, Source, Watcher};
use windlass_serve::{
    Action, Closed, Conn, Context, Handler, Limits, Running, Server, ServerLoop, modes::IoMode,
};

/// The longest that a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends back what comes. `!` shuts the server down.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let is_last = *data == *b"!";
        c.write(data);
        if is_last { Action::Shutdown } else { Action::None }
    }
}

const MODES: [(usize, IoMode); 4] = [
    (1, IoMode::NonBlocking),
    (3, IoMode::NonBlocking),
    (1, IoMode::Blocking { threads: 4 }),
    (2, IoMode::Mixed { threads: 1 }),
];

fn address(server: &Running) -> SocketAddr {
    server.addresses()[0].ip().expect("an internet address")
}

fn client(server: &Running) -> TcpStream {
    let client = TcpStream::connect(address(server)).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    client
}

#[track_caller]
fn echoes(client: &mut TcpStream, what: &[u8]) {
    client.write_all(what).expect("it is open");
    let mut heard = vec![0; what.len()];
    client.read_exact(&mut heard).expect("an answer");
    assert_eq!(heard, what);
}

#[track_caller]
fn has_ended(client: &mut TcpStream) {
    assert_eq!(client.read(&mut [0]).expect("a clean end"), 0);
}

#[test]
fn a_server_serves_beside_its_program_in_every_mode() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut clients: Vec<TcpStream> = (0..3).map(|_| client(&server)).collect();
        clients.iter_mut().for_each(|client| echoes(client, b"hello"));
        assert_eq!(server.remote().loops(), loops);
        server.shutdown();
        clients.iter_mut().for_each(has_ended);
        drop(clients);
        let report = server.wait().unwrap();
        assert_eq!((report.counters.accepted, report.counters.ends.shutdown), (3, 3), "{mode:?}");
        assert!(report.unfinished.is_empty());
    }
}

/// A connection that has nothing to send yet is served in the grace, on its loop or its thread.
#[test]
fn the_grace_holds_in_every_mode() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode).grace(PATIENCE);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut clients: Vec<TcpStream> = (0..3).map(|_| client(&server)).collect();
        clients.iter_mut().for_each(|client| echoes(client, b"hello"));
        server.shutdown();
        // The listener closes, and the connections stay.
        while TcpStream::connect(address(&server)).is_ok() {
            std::thread::yield_now();
        }
        clients.iter_mut().for_each(|client| echoes(client, b"hello again"));
        drop(clients);
        let report = server.wait().unwrap();
        assert_eq!(report.counters.ends.eof, report.counters.accepted, "{mode:?}");
    }
}

/// What a handler writes when the grace is over comes before the end of the connection.
#[test]
fn the_end_of_a_grace_is_told_before_connections_close() {
    struct Farewell;
    impl Handler for Farewell {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
            c.write(data);
            Action::None
        }
        fn grace_over(&mut self, server: &mut Context<'_, ()>) -> Action {
            let ids: Vec<_> = server.engine().ids().collect();
            for id in ids {
                server.conn(id).expect("it is open").write("bye");
            }
            Action::None
        }
    }
    for ((loops, mode), grace) in MODES.into_iter().zip([0, 50, 0, 50].into_iter().cycle()) {
        let grace = std::time::Duration::from_millis(grace);
        let server = Server::new(|_loop| Farewell).loops(loops).io_mode(mode).grace(grace);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut client = client(&server);
        echoes(&mut client, b"hello");
        server.shutdown();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"bye", "{mode:?}");
        drop(client);
        server.wait().unwrap();
    }
}

#[test]
fn a_wait_waits_for_a_shutdown_of_the_handler() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let mut client = client(&server);
        let waits = std::thread::spawn(move || server.wait());
        echoes(&mut client, b"hello");
        echoes(&mut client, b"!");
        has_ended(&mut client);
        drop(client);
        assert_eq!(waits.join().unwrap().unwrap().counters.accepted, 1, "{mode:?}");
    }
}

#[test]
fn a_drop_shuts_the_server_down_and_frees_its_port() {
    for (loops, mode) in MODES {
        let server = Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
        let (at, mut client) = (address(&server), client(&server));
        echoes(&mut client, b"hello");
        // The peer closes when it has heard the end, and the drop waits for that.
        let hears = std::thread::spawn(move || has_ended(&mut client));
        drop(server);
        hears.join().unwrap();
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_server_that_cannot_start_says_so() {
    for (loops, mode) in MODES {
        let new = || Server::new(|_loop| Echo).loops(loops).io_mode(mode);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("tcp://{}", taken.local_addr().unwrap());
        let error = new().listen(&at).unwrap().start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{mode:?}");
        assert_eq!(new().start().unwrap_err().kind(), ErrorKind::InvalidInput, "{mode:?}");
        let panics = new().listeners(|_| -> std::io::Result<TcpListener> { panic!("on purpose") });
        let started = catch_unwind(AssertUnwindSafe(|| panics.start().map(drop)));
        assert!(started.is_err() || started.is_ok_and(|started| started.is_err()), "{mode:?}");
    }
}

#[test]
fn a_panic_of_the_maker_comes_out_of_wait() {
    // The connection has a thread, whose handler cannot be made.
    let make = |index: usize| if index == 0 { Echo } else { panic!("on purpose") };
    let server = Server::new(make).io_mode(IoMode::Blocking { threads: 1 });
    let server = server.listen("tcp://127.0.0.1:0").unwrap().start().unwrap();
    let client = client(&server);
    let waited = catch_unwind(AssertUnwindSafe(|| server.wait().map(drop)));
    assert!(waited.is_err());
    drop(client);
}

/// Each watcher of the program is as it was.
#[test]
fn a_failed_start_listens_nowhere() {
    let path = std::env::temp_dir().join(format!("windlass-start-{}", std::process::id()));
    let at = Arc::new(Mutex::new(None));
    let listener_at = Arc::clone(&at);
    let mut watchers: Vec<Watcher> = (0..3).map(|_| Watcher::new().unwrap()).collect();
    let server = Server::new(|_loop| Echo)
        .listen(&format!("unix://{}", path.display()))
        .unwrap()
        .listeners(move |index| {
            if index == 2 {
                return Err(std::io::Error::other("on purpose"));
            }
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener_at.lock().unwrap().get_or_insert(listener.local_addr()?);
            Ok(listener)
        });
    let error = server.start_on_each(&mut watchers).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "on purpose");
    let first = at.lock().unwrap().expect("the first loop has listened");
    assert_eq!(TcpStream::connect(first).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(!path.exists(), "the path of the socket is left");
    drop(watchers);
}

/// A panic of the maker leaves nothing behind, either.
#[test]
fn a_maker_that_panics_listens_nowhere() {
    let sim = Sim::new(1);
    let mut watchers: Vec<Watcher> = (0..2).map(|_| Watcher::simulated(&sim)).collect();
    let new = |make: fn(usize) -> Echo| {
        Server::new(make).listen("tcp://127.0.0.1:7007").expect("an address")
    };
    let panics = new(|index| if index == 0 { Echo } else { panic!("on purpose") });
    let started = catch_unwind(AssertUnwindSafe(|| panics.start_on_each(&mut watchers).map(drop)));
    assert!(started.is_err());
    let mut other = Watcher::simulated(&sim);
    new(|_| Echo).start_on(&mut other).expect("the address is free");
}

/// Answers the first word of a connection, and closes. Tells idle clients that it stops.
#[derive(Default)]
struct Graceful {
    closed: u32,
    stops: u32,
    is_loud: bool,
}

impl Handler for Graceful {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write("answer");
        Action::Close
    }

    fn stopping(&mut self, server: &mut Context<'_, ()>) -> Action {
        self.stops += 1;
        let ids: Vec<_> = server.engine().ids().collect();
        for id in ids.into_iter().filter(|_| self.is_loud) {
            let mut c = server.conn(id).expect("it is open");
            assert!(c.write("bye"));
        }
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, _: Closed<()>) -> Action {
        self.closed += 1;
        Action::None
    }
}

/// A simulated server of several loops, and clients on a watcher of their own.
struct World {
    watchers: Vec<Watcher>,
    loops: Vec<ServerLoop<Graceful>>,
    clients: Watcher,
    address: SocketAddr,
    sim: Sim,
}

/// What a client has heard, and whether its connection has ended.
type Heard = (Vec<u8>, bool);

impl World {
    fn new(loops: usize, grace: Duration, is_loud: bool) -> World {
        let sim = Sim::new(1);
        let mut watchers: Vec<Watcher> = (0..loops).map(|_| Watcher::simulated(&sim)).collect();
        let clients = Watcher::simulated(&sim);
        let server = Server::new(move |_loop| Graceful { is_loud, ..Graceful::default() });
        let server = server.limits(Limits::new().linger(Duration::from_secs(1))).grace(grace);
        let server = server.listen("tcp://127.0.0.1:7007").expect("an address");
        let loops = server.start_on_each(&mut watchers).expect("it starts");
        World { watchers, loops, clients, address: ([127, 0, 0, 1], 7007).into(), sim }
    }

    fn connect(&mut self) -> Source {
        let (client, _) =
            self.clients.connect([self.address], Default::default()).expect("a source");
        client
    }

    fn ask(&mut self, client: Source) {
        self.clients.submit(Op::write(client, "ask")).expect("it is open");
    }

    /// Gives each loop a turn. False if nothing has happened anywhere.
    fn turn(&mut self) -> bool {
        let mut done = Completions::new();
        let mut count = 0;
        for (watcher, one) in self.watchers.iter_mut().zip(&mut self.loops) {
            count += watcher.wait_timeout(&mut done, Duration::ZERO).expect("a wait");
            one.serve(watcher, &mut done);
        }
        count > 0
    }

    fn settle(&mut self) {
        while self.turn() {}
    }

    /// Runs for a time.
    fn run_for(&mut self, span: Duration) {
        let end = self.sim.now() + span;
        while self.sim.now() < end {
            self.settle();
            let step = Duration::from_millis(10);
            self.clients.wait_timeout(&mut Completions::new(), step).expect("a wait");
        }
        self.settle();
    }

    fn shut_down(&mut self) {
        self.loops[0].remote().shutdown();
        self.settle();
    }

    /// What the client hears until the end of the connection, or until nothing comes any more.
    fn hear(&mut self, client: Source) -> Heard {
        self.clients.submit(Op::read(client).multishot().token(1)).expect("it is there");
        let (mut heard, mut done) = (Vec::new(), Completions::new());
        for _ in 0..100 {
            self.settle();
            self.clients.wait_timeout(&mut done, Duration::from_millis(1)).expect("a wait");
            for completion in done.drain(..).filter(|completion| completion.token == 1) {
                match completion.result {
                    Ok(Done::Read(data)) if data.is_eof() => {
                        self.clients.abort(client);
                        self.settle();
                        return (heard, true);
                    }
                    Ok(Done::Read(data)) => heard.extend_from_slice(&data),
                    other => panic!("{other:?}"),
                }
            }
        }
        self.clients.cancel_all(client);
        (heard, false)
    }

    fn are_over(&self) -> bool {
        self.loops.iter().all(ServerLoop::is_over)
    }
}

const GRACE: Duration = Duration::from_secs(5);

#[test]
fn connections_go_on_for_the_grace_and_then_close() {
    for loops in [1, 3] {
        let mut world = World::new(loops, GRACE, false);
        let clients: Vec<Source> = (0..6).map(|_| world.connect()).collect();
        world.settle();
        world.shut_down();
        assert!(!world.are_over());
        world.run_for(GRACE - Duration::from_secs(1));
        for client in &clients[..3] {
            world.ask(*client);
            assert_eq!(world.hear(*client), (b"answer".to_vec(), true));
        }
        assert!(!world.are_over(), "three clients have not asked");
        world.run_for(Duration::from_secs(2));
        for client in &clients[3..] {
            assert_eq!(world.hear(*client), (vec![], true));
        }
        world.settle();
        assert!(world.are_over());
        let ends = world.loops.iter().map(|one| one.report().counters.ends);
        let ends: Vec<_> = ends.map(|ends| (ends.closed, ends.shutdown)).collect();
        let sum = ends.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sum, (3, 3), "{ends:?}");
    }
}

#[test]
fn the_grace_ends_with_the_last_connection() {
    let mut world = World::new(2, GRACE, false);
    let client = world.connect();
    world.settle();
    world.shut_down();
    let start = world.sim.now();
    world.ask(client);
    assert_eq!(world.hear(client), (b"answer".to_vec(), true));
    world.settle();
    assert!(world.are_over());
    assert!(world.sim.now() - start < Duration::from_secs(1));
}

#[test]
fn a_second_stop_ends_the_grace() {
    let mut world = World::new(1, GRACE, false);
    let client = world.connect();
    world.settle();
    world.loops[0].stop(&mut world.watchers[0]);
    world.settle();
    assert!(!world.are_over());
    world.loops[0].stop(&mut world.watchers[0]);
    world.loops[0].turn(&mut world.watchers[0]);
    assert_eq!(world.hear(client), (vec![], true));
    world.settle();
    assert!(world.are_over());
}

/// The shutdown comes between the accept of a connection and its first turn, on each loop.
#[test]
fn connections_that_were_just_accepted_are_served() {
    for (loops, others_end_first) in [(1, false), (3, false), (3, true)] {
        let mut world = World::new(loops, GRACE, false);
        let clients: Vec<Source> = (0..6).map(|_| world.connect()).collect();
        let mut done = Completions::new();
        let count = world.watchers[0].wait_timeout(&mut done, GRACE).expect("a wait");
        assert!(count > 0, "it has accepted");
        // The other loops know first, and have nothing to do.
        world.loops[0].remote().shutdown();
        for (watcher, one) in world.watchers.iter_mut().zip(&mut world.loops).skip(1) {
            one.turn(watcher);
            while others_end_first && !one.is_over() {
                let mut own = Completions::new();
                assert!(watcher.wait_timeout(&mut own, GRACE).expect("a wait") > 0);
                one.serve(watcher, &mut own);
            }
        }
        world.loops[0].stop(&mut world.watchers[0]);
        world.loops[0].serve(&mut world.watchers[0], &mut done);
        world.settle();
        for client in clients {
            world.ask(client);
            assert_eq!(world.hear(client), (b"answer".to_vec(), true), "{loops} loops");
        }
        world.settle();
        assert!(world.are_over());
        let refused: u64 = world.loops.iter().map(|one| one.report().counters.refused).sum();
        assert_eq!(refused, 0);
    }
}

/// The watcher has accepted a connection, and the loop has not heard of it.
#[test]
fn a_connection_that_the_watcher_holds_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"ask").unwrap();
    let mut watcher = Watcher::new().unwrap();
    let server = Server::new(|_loop| Graceful::default()).grace(GRACE).listener(listener);
    let mut server = server.start_on(&mut watcher).unwrap();
    server.stop(&mut watcher);
    server.turn(&mut watcher);
    let hears = std::thread::spawn(move || {
        let mut heard = String::new();
        client.read_to_string(&mut heard).unwrap();
        heard
    });
    let mut done = Completions::new();
    while !server.is_over() {
        watcher.wait(&mut done).unwrap();
        server.serve(&mut watcher, &mut done);
    }
    assert_eq!(server.report().counters.accepted, 1);
    assert_eq!(hears.join().unwrap(), "answer");
}

#[test]
fn each_loop_hears_of_the_shutdown_once_and_may_say_goodbye() {
    for grace in [Duration::ZERO, Duration::from_secs(1)] {
        let mut world = World::new(2, grace, true);
        let clients = [world.connect(), world.connect()];
        world.settle();
        world.shut_down();
        world.shut_down();
        world.run_for(grace);
        for client in clients {
            assert_eq!(world.hear(client), (b"bye".to_vec(), true));
        }
        world.settle();
        assert!(world.are_over());
        for one in &mut world.loops {
            assert_eq!((one.handler().stops, one.handler().closed), (1, 1));
        }
    }
}
