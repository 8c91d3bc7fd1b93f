//! Options of sockets, as the system has them, on every driver.

use std::time::Duration;

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, Keepalive, SocketOption};
use windlass::{Op, Source, Watcher};
use windlass_serve::{Action, Config, Conn, Handler, Id, Origin, Server};

crate::every_driver! {
    connections_have_the_options_of_the_configuration
    connects_and_attached_sockets_have_them_too
    one_connection_gets_an_option
    an_option_goes_along_with_a_descriptor_that_leaves_in_the_same_turn
    an_abort_resets_with_a_linger_of_zero
    options_out_of_range_are_errors
    a_unix_listener_needs_no_options_of_tcp
    the_memory_of_reads_is_used_again
}

/// The idle time, the interval and the count of probes.
type Times = (Duration, Duration, u32);

/// What the system says of a socket: the keep-alive probes, and the buffers.
fn options<D: Driver>(
    watcher: &mut Watcher<D>,
    source: Source,
) -> Option<(Option<Times>, usize, usize)> {
    let fd = watcher.fd(source).ok()?; // A simulated socket has no descriptor.
    let socket = socket2::SockRef::from(&fd);
    let times = || {
        let count = socket.tcp_keepalive_retries().unwrap();
        let idle = socket.tcp_keepalive_time().unwrap();
        (idle, socket.tcp_keepalive_interval().unwrap(), count)
    };
    let probes = socket.keepalive().unwrap().then(times);
    Some((probes, socket.recv_buffer_size().unwrap(), socket.send_buffer_size().unwrap()))
}

const PROBES: Keepalive =
    Keepalive::new(Duration::from_secs(77)).interval(Duration::from_secs(11)).count(4);
const TOLD: Times = (Duration::from_secs(77), Duration::from_secs(11), 4);

fn config() -> Config {
    Config::new().keepalive(PROBES).recv_buffer(90_000).send_buffer(80_000)
}

#[derive(Default)]
struct Quiet {
    opened: Vec<Id>,
    option: Option<SocketOption>,
}

impl Handler for Quiet {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened.push(c.id());
        if let Some(option) = self.option {
            c.set_option(option);
        }
        Action::None
    }
}

fn opened<T: Harness>(config: Config, option: Option<SocketOption>) -> Bench<T::Driver, Quiet> {
    let server = Server::new(|_| Quiet { opened: Vec::new(), option });
    let server = server.config(config).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for count in 1..3 {
        bench.connect();
        bench.until("it is open", |bench| bench.running.handler().opened.len() == count);
    }
    bench.run_for(T::span(0.1));
    bench
}

fn connections_have_the_options_of_the_configuration<T: Harness>() {
    let mut bench = opened::<T>(config(), None);
    for id in bench.running.handler().opened.clone() {
        let source = bench.running.engine().source(id).unwrap();
        if let Some((probes, recv, send)) = options(&mut bench.watcher, source) {
            assert_eq!(probes, Some(TOLD));
            assert!(recv >= 90_000 && send >= 80_000, "{recv} {send}");
        }
    }
    assert_eq!(bench.running.report().counters.option_errors, 0);
    // By default nothing is set.
    let mut bench = opened::<T>(Config::new(), None);
    let id = bench.running.handler().opened[0];
    let source = bench.running.engine().source(id).unwrap();
    assert!(options(&mut bench.watcher, source).is_none_or(|(probes, ..)| probes.is_none()));
}

fn connects_and_attached_sockets_have_them_too<T: Harness>() {
    let mut l = Loop::new::<T>(config());
    let id = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("both ends are open", |l| l.opened.len() == 2);
    let source = l.engine.source(id).unwrap();
    let told = options(&mut l.watcher, source);
    assert!(told.is_none_or(|(probes, ..)| probes == Some(TOLD)), "{told:?}");
    if T::VIRTUAL {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let given = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let id = l.engine.attach(given, ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it is open", |l| l.opened.contains(&id));
    let source = l.engine.source(id).unwrap();
    assert_eq!(options(&mut l.watcher, source).unwrap().0, Some(TOLD));
    // A Unix socket has no probes, and needs none.
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let id = l.engine.attach(near, ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it is open", |l| l.opened.contains(&id));
    assert_eq!(l.engine.counters().option_errors, 0);
}

/// It was set after the descriptor had left: not at all.
fn an_option_goes_along_with_a_descriptor_that_leaves_in_the_same_turn<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().close_on_eof(false));
    let (client, id) = l.pair();
    l.watcher.submit(Op::shutdown(client).token(1)).unwrap();
    l.until("no read is in flight", |l| l.told.contains(&"eof"));
    assert!(l.engine.set_option(id, SocketOption::Keepalive(Some(PROBES))));
    assert!(l.engine.detach(id).is_ok());
    // Another connection's, behind it.
    let (_, other) = l.pair();
    l.until("it leaves", |l| !l.handles.is_empty());
    let handle = l.handles.pop().expect("the descriptor");
    let source = l.watcher.attach(handle).expect("room");
    let told = options(&mut l.watcher, source);
    assert!(told.is_none_or(|(probes, ..)| probes == Some(TOLD)), "{told:?}");
    assert!(l.engine.set_option(other, SocketOption::Nodelay(true)));
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().option_errors, 0);
}

fn one_connection_gets_an_option<T: Harness>() {
    let mut bench = opened::<T>(Config::new(), Some(SocketOption::Keepalive(Some(PROBES))));
    let id = bench.running.handler().opened[0];
    let source = bench.running.engine().source(id).unwrap();
    let told = options(&mut bench.watcher, source);
    assert!(told.is_none_or(|(probes, ..)| probes == Some(TOLD)), "{told:?}");
    let engine = bench.running.engine();
    assert!(engine.set_option(id, SocketOption::Keepalive(None)));
    assert!(engine.set_option(id, SocketOption::Nodelay(false)));
    bench.running.turn(&mut bench.watcher);
    let told = options(&mut bench.watcher, source);
    assert!(told.is_none_or(|(probes, ..)| probes.is_none()), "{told:?}");
    assert_eq!(bench.running.report().counters.option_errors, 0);
    // One that the system refuses is counted, and the connection goes on.
    let wrong = SocketOption::Keepalive(Some(PROBES.count(100_000)));
    bench.running.engine().set_option(id, wrong);
    bench.running.turn(&mut bench.watcher);
    let errors = u64::from(!T::VIRTUAL && cfg!(target_os = "linux"));
    assert_eq!(bench.running.report().counters.option_errors, errors);
    assert_eq!(bench.running.engine().len(), 2);
    bench.running.engine().abort(id);
    bench.running.turn(&mut bench.watcher);
    assert!(!bench.running.engine().set_option(id, SocketOption::Nodelay(true)));
}

fn options_out_of_range_are_errors<T: Harness>() {
    if T::VIRTUAL || !cfg!(target_os = "linux") {
        return; // The ranges are Linux's.
    }
    for wrong in [
        PROBES.count(128),
        PROBES.interval(Duration::from_secs(32_768)),
        Keepalive::new(Duration::MAX),
    ] {
        let server = Server::new(|_| Quiet::default()).config(Config::new().keepalive(wrong));
        let server = server.listen("tcp://127.0.0.1:0").unwrap();
        let mut watcher = T::watcher(Watcher::builder());
        let error = server.start_on(&mut watcher).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22), "{wrong:?}: {error}");
        assert_eq!(watcher.counters().sources, 0, "the listener is closed");
    }
}

fn a_unix_listener_needs_no_options_of_tcp<T: Harness>() {
    if T::VIRTUAL {
        return; // The path is of the system.
    }
    let name = format!("windlass-options-{}-{}", std::process::id(), std::any::type_name::<T>());
    let path = std::env::temp_dir().join(name.replace(':', "-"));
    let server = Server::new(|_| Quiet::default()).config(config());
    let mut bench = bench::<T, _, _>(server.listen(&format!("unix://{}", path.display())).unwrap());
    bench.connect();
    bench.until("it is open", |bench| bench.running.handler().opened.len() == 1);
    assert_eq!(bench.running.report().counters.option_errors, 0);
}

/// evio's ReuseInputBuffer, without an option: data that the handler drops leaves its memory to the
/// next read.
fn the_memory_of_reads_is_used_again<T: Harness>() {
    #[derive(Default)]
    struct Notes {
        places: std::collections::HashSet<usize>,
        reads: usize,
        heard: usize,
    }
    impl Handler for Notes {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, data: windlass::Buf) -> Action {
            self.places.insert(data.as_ptr() as usize);
            self.reads += 1;
            self.heard += data.len();
            c.write_slice(b"k");
            Action::None
        }
    }
    let server = Server::new(|_| Notes::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    for round in 1..=2000 {
        bench.say(client, vec![b'x'; 4000]);
        bench.until("it is heard", |bench| bench.running.handler().heard == round * 4000);
    }
    // A network with faults cuts some messages, and each part has a place.
    let Notes { places, reads, .. } = bench.running.handler();
    assert!(places.len() < *reads / 2, "{} places for {reads} reads", places.len());
}

/// The abort was carried out before the option, and was an end like others.
fn an_abort_resets_with_a_linger_of_zero<T: Harness>() {
    let mut bench = opened::<T>(Config::new(), None);
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().opened.len() == 3);
    let id = bench.running.handler().opened[2];
    let engine = bench.running.engine();
    assert!(engine.set_option(id, SocketOption::Linger(Some(Duration::ZERO))));
    assert!(engine.abort(id));
    bench.running.turn(&mut bench.watcher);
    bench.until("its end", |bench| bench.client(client).is_over());
    assert!(bench.client(client).error.is_some(), "a reset");
}
