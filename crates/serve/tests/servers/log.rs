//! What a log is told, on every driver.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::Duration;

use crate::common::engine::Loop;
use crate::common::refusing::{Orders, Refusing};
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::net::{ConnectOptions, SocketOption};
use windlass::{Buf, Watcher};
use windlass_serve::log::{Level, Log, LogEvent, Record};
use windlass_serve::{Action, Config, Conn, Context, Detached, Handler, Limits, Server};

crate::every_driver! {
    each_event_is_told_once
    connects_and_attached_sockets_are_told
    udp_sessions_are_told
    a_failed_accept_and_a_refused_option_are_told
    a_state_that_cannot_be_made_is_told
    a_full_memory_is_told_when_it_begins_and_ends
    a_shed_and_an_overflow_are_warnings
    what_a_shutdown_could_not_send_is_told
    a_log_is_told_only_what_it_wants
    a_log_that_panics_ends_no_connection
}

/// Keeps the records of some levels as text, without addresses and ages.
struct Kept {
    most: Level,
    lines: Mutex<Vec<String>>,
}

impl Kept {
    fn new(most: Level) -> &'static Kept {
        Box::leak(Box::new(Kept { most, lines: Mutex::default() }))
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// How many lines have these words.
    fn count(&self, words: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(words)).count()
    }
}

impl Log for Kept {
    fn enabled(&self, level: Level) -> bool {
        level <= self.most
    }

    fn log(&self, record: &Record<'_>) {
        assert!(record.level() <= self.most, "{record:?}");
        assert_eq!(record.loop_index, 0);
        let text = record.to_string();
        let parts = text.split(' ').filter(|part| {
            let varies = ["peer=", "address=", "age_ms="];
            !varies.iter().any(|name| part.starts_with(name))
        });
        let line = parts.collect::<Vec<_>>().join(" ");
        self.lines.lock().unwrap().push(format!("{:?}: {line}", record.level()));
    }
}

/// Does what its peers ask for, by single bytes: they come whole.
#[derive(Default)]
struct Obeys;

impl Handler for Obeys {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        match &*data {
            b"p" => panic!("a callback of {} fails, as it is to", c.id()),
            b"c" => return Action::Close,
            b"d" => return Action::Detach,
            b"2" => _ = c.write(vec![1; 20 << 20]),
            _ => _ = c.write(data),
        }
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, ()>, _: Detached<()>) -> Action {
        Action::None
    }
}

fn served<T: Harness>(log: &'static dyn Log, limits: Limits) -> Bench<T::Driver, Obeys> {
    let config = Config::new().limits(limits.idle(None)).log(log);
    bench::<T, _, _>(Server::new(|_| Obeys).config(config).listen("tcp://127.0.0.1:0").unwrap())
}

/// A client whose connection is open.
fn opened<D: windlass::driver::Driver>(bench: &mut Bench<D, Obeys>) -> windlass::Source {
    let before = bench.running.report().counters.accepted;
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.report().counters.accepted > before);
    client
}

fn each_event_is_told_once<T: Harness>() {
    let kept = Kept::new(Level::Debug);
    let mut bench = served::<T>(kept, Limits::new().connections(2));
    let (first, second) = (opened(&mut bench), opened(&mut bench));
    bench.connect();
    bench.until("it is refused", |bench| bench.running.report().counters.refused == 1);
    bench.say(first, "p");
    bench.until("it is over", |bench| bench.running.engine().len() == 1);
    bench.say(second, "d");
    bench.until("it is detached", |bench| bench.running.engine().is_empty());
    let third = opened(&mut bench);
    bench.say(third, "c");
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    let fourth = opened(&mut bench);
    bench.say(fourth, "hello");
    bench.until("it is answered", |bench| !bench.client(fourth).heard.is_empty());
    bench.finish(fourth);
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    opened(&mut bench);
    bench.running.remote().shutdown();
    bench.until("the server is over", |bench| bench.running.is_over());
    bench.running.turn(&mut bench.watcher);
    bench.running.stop(&mut bench.watcher);
    assert_eq!(
        kept.lines(),
        [
            "Info: listening listener=0",
            "Debug: connection opened id=65536 listener=0",
            "Debug: connection opened id=131072 listener=0",
            "Warn: connection refused listener=0 cause=Connections",
            "Error: callback panicked id=65536 \
             message=\"a callback of 65536 fails, as it is to\"",
            "Debug: connection closed id=65536 cause=Panicked unsent=0 phase=Open",
            "Debug: connection detached id=131072",
            "Debug: connection opened id=196608 listener=0",
            "Debug: connection closed id=196608 cause=Closed unsent=0 phase=Closing",
            "Debug: connection opened id=262144 listener=0",
            "Debug: connection closed id=262144 cause=Eof unsent=0 phase=Closing",
            "Debug: connection opened id=327680 listener=0",
            "Info: shutdown begun connections=1 descriptor_shortages=0",
            "Debug: connection closed id=327680 cause=Shutdown unsent=0 phase=Open",
            "Info: shutdown ended unfinished=0",
        ]
    );
}

fn connects_and_attached_sockets_are_told<T: Harness>() {
    let kept = Kept::new(Level::Debug);
    let mut bench = served::<T>(kept, Limits::new());
    let here = bench.addresses[0].clone();
    // No program listens at the port of a listener that is gone.
    let gone = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let nowhere = bench.watcher.local_address(gone).unwrap();
    bench.watcher.abort(gone);
    let engine = bench.running.engine();
    let good = engine.connect([here], ConnectOptions::default(), ()).unwrap();
    let bad = engine.connect([nowhere], ConnectOptions::default(), ()).unwrap();
    bench.running.turn(&mut bench.watcher);
    bench.until("both have ended", |bench| {
        let counters = bench.running.report().counters;
        counters.connected == 1 && counters.accepted == 1 && counters.ends.failed == 1
    });
    let handle = {
        let source = bench.connect();
        bench.until("it is open", |bench| {
            bench.running.report().counters.accepted == 2 && bench.client(source).is_open
        });
        bench.watcher.cancel_all(source);
        bench.run_for(T::span(1.0));
        bench.watcher.detach(source).expect("no operation is on it")
    };
    let attached = bench.running.engine().attach(handle, ()).unwrap();
    bench.running.turn(&mut bench.watcher);
    bench.until("it is open", |bench| bench.running.report().counters.attached == 1);
    bench.run_for(T::span(1.0));
    for id in [good, attached] {
        assert_eq!(kept.count(&format!("connection opened id={id}")), 1, "{:?}", kept.lines());
        assert_eq!(kept.count(&format!("connection opened id={id} listener")), 0);
    }
    assert_eq!(kept.count(&format!("opened id={bad}")), 0);
    let closed = format!("Debug: connection closed id={bad} cause=Os(");
    assert_eq!(kept.count(&closed), 1, "{:?}", kept.lines());
    assert_eq!(kept.count("connection opened"), 4);
}

fn udp_sessions_are_told<T: Harness>() {
    let kept = Kept::new(Level::Debug);
    let server = Server::new(|_| Obeys).config(Config::new().log(kept));
    let mut bench = bench::<T, _, _>(server.listen("udp://127.0.0.1:0?sessions=true").unwrap());
    let local = windlass::Address::from(([127, 0, 0, 1], 0));
    let peer = bench.watcher.bind_datagram(local, Default::default()).unwrap();
    for _ in 0..2 {
        let send = windlass::Op::send_to(peer, "hello", bench.addresses[0].clone());
        // The token of clients, whose results the bench ignores.
        bench.watcher.submit(send.token(1)).unwrap();
    }
    bench.until("it is open", |bench| bench.running.report().counters.sessions == 1);
    bench.running.remote().shutdown();
    bench.until("the server is over", |bench| bench.running.is_over());
    let lines = kept.lines();
    assert_eq!(lines[..2], ["Info: listening listener=0", &session("opened", " listener=0")]);
    let closed = session("closed", " cause=Shutdown unsent=0 phase=");
    assert_eq!(lines.iter().filter(|line| line.starts_with(&closed)).count(), 1, "{lines:?}");
    assert_eq!(kept.count(": connection "), 2, "{lines:?}");
}

fn session(what: &str, rest: &str) -> String {
    format!("Debug: connection {what} id=65536{rest}")
}

fn a_failed_accept_and_a_refused_option_are_told<T: Harness>() {
    let (orders, kept) = (Orders::default(), Kept::new(Level::Warn));
    let driver = T::watcher(Watcher::builder()).into_driver();
    let watcher = Watcher::with_driver(Refusing::new(driver, orders.clone()));
    let mut l = Loop::on(watcher, Config::new().log(kept));
    orders.end_accept(100); // ENETDOWN
    // This connection is lost with its accept.
    l.client();
    l.until("the accept has failed", |l| l.told.contains(&"accept failed"));
    assert_eq!(kept.lines(), ["Warn: accept failed listener=0 error=Os(100)"]);
    let (_client, id) = l.pair();
    orders.refuse_options();
    assert!(l.engine.set_option(id, SocketOption::SendBuffer(9000)));
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().option_errors, 1);
    let refused =
        format!("Warn: socket option refused id={id} option=SendBuffer(9000) reason=Unsupported");
    assert_eq!(kept.lines()[1..], [refused]);
}

thread_local! {
    static MADE: Cell<u32> = const { Cell::new(0) };
}

/// The second one cannot be made.
struct Rare;

impl Default for Rare {
    fn default() -> Rare {
        MADE.set(MADE.get() + 1);
        assert!(MADE.get() != 2, "the second state cannot be made, as it is to");
        Rare
    }
}

fn a_state_that_cannot_be_made_is_told<T: Harness>() {
    struct Silent;
    impl Handler for Silent {
        type State = Rare;
    }
    MADE.set(0);
    let kept = Kept::new(Level::Warn);
    let server = Server::new(|_| Silent).config(Config::new().log(kept));
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    for number in 1..=3 {
        bench.connect();
        bench.until("it is known", |bench| {
            let counters = bench.running.report().counters;
            counters.accepted + counters.refused == number
        });
    }
    let lines = [
        "Error: callback panicked message=\"the second state cannot be made, as it is to\"",
        "Warn: connection refused listener=0 cause=Panicked",
    ];
    assert_eq!(kept.lines(), lines);
}

fn a_full_memory_is_told_when_it_begins_and_ends<T: Harness>() {
    let kept = Kept::new(Level::Info);
    // 20 MiB are less than three quarters of it, and more than the half of that.
    let mut bench = served::<T>(kept, Limits::new().memory(30 << 20).write_stall(None));
    let deaf = bench.connect_deaf();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 1);
    let other = opened(&mut bench);
    let id = bench.running.engine().ids().find(|id| id.number() == 131_072).expect("the other");
    assert!(bench.running.engine().charge(id, 1000));
    bench.say(deaf, "2");
    bench.until("it stops", |bench| bench.running.report().counters.throttles == 1);
    let begun = kept.lines();
    assert!(begun[1].starts_with("Warn: connections stop reading id=65536 used="), "{begun:?}");
    assert!(begun[1].ends_with(" limit=31457280") && begun.len() == 2, "{begun:?}");
    bench.say(other, "hello");
    bench.hear(deaf);
    bench.until("it goes on", |_| kept.lines().len() > 2);
    bench.run_for(T::span(1.0));
    assert!(kept.lines()[2].starts_with("Info: connections read again used="));
    assert_eq!(kept.lines().len(), 3);
}

fn a_shed_and_an_overflow_are_warnings<T: Harness>() {
    let kept = Kept::new(Level::Warn);
    let limits = Limits::new().memory(10 << 20).cap(25 << 20).write_stall(None);
    let mut bench = served::<T>(kept, limits);
    let deaf = bench.connect_deaf();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 1);
    bench.say(deaf, "2");
    bench.until("it is shed", |bench| bench.running.report().counters.ends.shed == 1);
    assert_eq!(kept.count("Warn: connection closed id=65536 cause=Shed unsent="), 1);
    let mut bench = served::<T>(kept, Limits::new().cap(1 << 20));
    let client = opened(&mut bench);
    bench.say(client, "2");
    bench.until("it is over", |bench| bench.running.report().counters.ends.overflow == 1);
    assert_eq!(kept.count("Warn: connection closed id=65536 cause=Overflow"), 1);
    assert_eq!(kept.count("connection closed"), 2);
}

fn what_a_shutdown_could_not_send_is_told<T: Harness>() {
    let kept = Kept::new(Level::Warn);
    let mut bench = served::<T>(kept, Limits::new().close(T::span(10.0)));
    let deaf = bench.connect_deaf();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 1);
    bench.say(deaf, "2");
    bench.until("it is written", |bench| bench.running.report().counters.writes == 1);
    bench.running.remote().shutdown();
    bench.until("the server is over", |bench| bench.running.is_over());
    let unsent = bench.running.report().unfinished[0].unsent;
    let lines = [
        format!("Warn: connection closed id=65536 cause=Shutdown unsent={unsent} phase=Open"),
        "Warn: shutdown ended unfinished=1".to_owned(),
    ];
    assert_eq!(kept.lines(), lines);
}

fn a_log_is_told_only_what_it_wants<T: Harness>() {
    let kept = Kept::new(Level::Error);
    let mut bench = served::<T>(kept, Limits::new().connections(1));
    let client = opened(&mut bench);
    bench.connect();
    bench.until("it is refused", |bench| bench.running.report().counters.refused == 1);
    assert!(kept.lines().is_empty());
    bench.say(client, "p");
    bench.until("it is over", |bench| bench.running.engine().is_empty());
    assert_eq!(kept.lines().len(), 1);
}

fn a_log_that_panics_ends_no_connection<T: Harness>() {
    /// Panics with every record, or before it.
    struct Brittle(bool);
    impl Log for Brittle {
        fn enabled(&self, _: Level) -> bool {
            assert!(self.0, "the log fails, as it is to");
            true
        }
        fn log(&self, record: &Record<'_>) {
            panic!("the log fails at {record}, as it is to");
        }
    }
    for log in [&Brittle(false), &Brittle(true)] {
        let mut bench = served::<T>(log, Limits::new());
        let client = opened(&mut bench);
        bench.say(client, "hello");
        bench.until("it is answered", |bench| bench.client(client).heard == b"hello");
        bench.running.remote().shutdown();
        bench.until("the server is over", |bench| bench.running.is_over());
        assert_eq!(bench.running.report().panics, 0);
        assert_eq!(bench.running.report().counters.ends.shutdown, 1);
    }
}

/// Each loop tells of its own connections.
#[test]
fn records_name_their_loop() {
    struct PerLoop(Mutex<Vec<(usize, &'static str)>>);
    impl Log for PerLoop {
        fn log(&self, record: &Record<'_>) {
            assert!(record.id().is_none_or(|id| id.loop_index() == record.loop_index));
            let what = match record.event {
                LogEvent::Listening { address: Some(_), .. } => "listening",
                LogEvent::Opened { peer: Some(_), listener: Some(0), .. } => "opened",
                LogEvent::Closed { age: Duration::ZERO, .. } => "closed",
                LogEvent::ShutdownBegun { .. } => "begun",
                LogEvent::ShutdownEnded { .. } => "ended",
                ref other => panic!("{other:?}"),
            };
            self.0.lock().unwrap().push((record.loop_index, what));
        }
    }
    let log: &PerLoop = Box::leak(Box::new(PerLoop(Mutex::default())));
    let sim = windlass::sim::Sim::new(1);
    let mut watchers = [Watcher::simulated(&sim), Watcher::simulated(&sim)];
    let mut clients = Watcher::simulated(&sim);
    let server = Server::new(|_| Obeys).config(Config::new().log(log));
    let server = server.listen("tcp://127.0.0.1:0").unwrap();
    let mut loops = server.start_on_each(&mut watchers).unwrap();
    let address = watchers[0].local_address(loops[0].engine().listeners()[0]).unwrap();
    let mut done = windlass::Completions::new();
    let mut turns = |loops: &mut Vec<windlass_serve::ServerLoop<Obeys>>| {
        for _ in 0..50 {
            for (one, watcher) in loops.iter_mut().zip(&mut watchers) {
                watcher.try_wait(&mut done).unwrap();
                one.serve(watcher, &mut done);
            }
        }
    };
    for _ in 0..4 {
        clients.connect([address.clone()], ConnectOptions::default()).unwrap();
        clients.try_wait(&mut windlass::Completions::new()).unwrap();
        turns(&mut loops);
    }
    loops[0].remote().shutdown();
    drop(clients); // its sockets close
    turns(&mut loops);
    assert!(loops.iter().all(|one| one.is_over()));
    let told = log.0.lock().unwrap();
    for index in 0..2 {
        let of = told.iter().filter(|(at, _)| *at == index).map(|(_, what)| *what);
        let mut of: Vec<_> = of.collect();
        if index == 0 {
            assert_eq!(of.remove(0), "listening");
        }
        let all = ["opened", "opened", "begun", "closed", "closed", "ended"];
        assert_eq!(of, all, "of loop {index}");
    }
}
