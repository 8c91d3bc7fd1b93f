//! Connections that begin with a header of the PROXY protocol, on every driver.

#[cfg(unix)]
mod threads;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::net::SocketOption;
use windlass::{Address, Buf, Op, Source, Watcher};
use windlass_serve::log::{Level, Log, LogEvent, Record, RefusedBecause};
use windlass_serve::net::{Networks, Proxy};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Handler, Limits, Origin, Server,
};

crate::every_driver! {
    a_header_sets_the_peer
    a_header_of_the_proxy_itself_leaves_the_peer
    a_header_comes_in_any_two_pieces
    a_header_comes_byte_by_byte
    a_dribbling_peer_is_ended_at_the_limit
    a_byte_that_is_there_at_the_limit_moves_nothing
    what_is_no_header_is_refused
    an_end_in_the_header_is_quiet
    a_reset_in_the_header_is_quiet
    peers_from_elsewhere_are_refused
    a_thousand_silent_peers_hold_up_nobody
    handshakes_count_for_the_limit_of_connections
    a_shutdown_ends_handshakes
    the_grace_of_a_shutdown_is_for_handshakes_too
    the_end_of_an_engine_ends_handshakes
    the_program_may_do_anything_when_it_opens
    a_state_that_cannot_be_made_is_counted_once
    an_address_has_its_own_setting
    a_setting_that_takes_nobody_is_refused
    a_refused_read_ends_the_handshake
}

/// Keeps why connections were refused.
#[derive(Default)]
struct Refusals(Mutex<Vec<(Level, RefusedBecause)>>);

impl Log for Refusals {
    fn log(&self, record: &Record<'_>) {
        if let LogEvent::Refused { listener, cause, .. } = record.event {
            assert!(listener.is_some());
            self.0.lock().unwrap().push((record.level(), cause));
        }
    }
}

impl Refusals {
    fn new() -> &'static Refusals {
        Box::leak(Box::default())
    }

    fn all(&self) -> Vec<(Level, RefusedBecause)> {
        self.0.lock().unwrap().clone()
    }
}

/// Sends back what comes, and keeps whose connections it has.
#[derive(Default)]
struct Notes {
    origins: Vec<Origin>,
    heard: Vec<u8>,
    ended: Vec<Cause>,
    detached: Option<Vec<u8>>,
    /// What it does with a new connection.
    first: Option<fn(&mut Conn<'_, ()>) -> Action>,
}

impl Handler for Notes {
    type State = ();

    fn opened(&mut self, c: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.origins.push(origin);
        self.first.map_or(Action::None, |first| first(c))
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard.extend_from_slice(&data);
        c.write(data);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.ended.push(closed.cause);
        Action::None
    }

    fn detached(&mut self, _: &mut Context<'_, ()>, detached: Detached<()>) -> Action {
        let undelivered = detached.undelivered.iter().flat_map(|data| data.to_vec());
        self.detached = Some(undelivered.collect());
        Action::None
    }
}

/// A setting for proxies of these networks.
fn leaked(proxy: Proxy, networks: &str) -> &'static Proxy {
    Box::leak(Box::new(proxy.from(networks.parse().expect("networks"))))
}

const EVERYWHERE: &str = "0.0.0.0/0, ::/0";

/// A server behind proxies, with a log.
fn served<T: Harness>(
    proxy: Proxy,
    limits: Limits,
) -> (Bench<T::Driver, Notes>, &'static Refusals) {
    let log = Refusals::new();
    let config = Config::new().proxy(leaked(proxy, EVERYWHERE)).limits(limits).log(log);
    let server = Server::new(|_| Notes::default()).config(config);
    (bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap()), log)
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4567 80\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn client() -> SocketAddr {
    ([192, 0, 2, 1], 4567).into()
}

/// A header of version 2: the command, the family with the protocol, and the rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[0x20 | command, family], &len, rest].concat()
}

/// The header of version 2 of a client with IPv4, and a vector behind its addresses.
fn binary_v4() -> Vec<u8> {
    let rest = [&[192, 0, 2, 1, 192, 0, 2, 2][..], &4567u16.to_be_bytes(), &80u16.to_be_bytes()];
    binary(1, 0x11, &[&rest.concat()[..], &[4, 0, 2, 0, 0]].concat())
}

fn address<D: Driver>(watcher: &Watcher<D>, client: Source) -> Option<SocketAddr> {
    watcher.local_address(client).expect("an address").ip()
}

impl<D: Driver> Bench<D, Notes> {
    /// Runs until there are so many connections.
    #[track_caller]
    fn opened(&mut self, count: usize) {
        self.until("it is open", |b| b.running.handler().origins.len() == count);
    }

    /// A client whose pieces leave at once, and do not wait for the server's acknowledgements.
    fn connect_eager(&mut self) -> Source {
        let before = self.running.engine().len();
        let one = self.connect();
        self.until("it has come", |b| b.running.engine().len() > before);
        // A client of the simulation waits for none.
        let _ = self.watcher.set_option(one, SocketOption::Nodelay(true));
        one
    }

    /// How many bytes of headers wait.
    fn begun(&mut self) -> usize {
        self.running.engine().budget().used()
    }

    fn refused(&mut self) -> u64 {
        self.running.report().counters.refused
    }

    /// Nothing is left of any connection.
    #[track_caller]
    fn is_as_new(&mut self) {
        assert!(self.running.engine().is_empty());
        assert_eq!(self.running.engine().budget().used(), 0);
    }
}

fn a_header_sets_the_peer<T: Harness>() {
    let v6: SocketAddr = "[2001:db8::1]:4567".parse().unwrap();
    let both = [[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]; 2].concat();
    let ports = [4567u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
    let line6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 4567 80\r\n";
    for (proxy, header, peer) in [
        (Proxy::v1(), LINE.to_vec(), Some(client())),
        (Proxy::any(), LINE.to_vec(), Some(client())),
        (Proxy::v1(), line6.to_vec(), Some(v6)),
        (Proxy::v2(), binary_v4(), Some(client())),
        (Proxy::any(), binary_v4(), Some(client())),
        (Proxy::v2(), binary(1, 0x21, &[both, ports].concat()), Some(v6)),
        // The client of a Unix socket.
        (Proxy::v2(), binary(1, 0x31, &[b'/'; 216]), None),
    ] {
        let (mut bench, log) = served::<T>(proxy, Limits::new());
        let one = bench.connect();
        bench.say(one, [&header[..], b"hello"].concat());
        bench.until("it is answered", |b| b.client(one).heard == b"hello");
        let origin = bench.running.handler().origins[0];
        assert_eq!((origin.listener, origin.peer), (Some(0), peer));
        let counters = bench.running.report().counters;
        assert_eq!((counters.accepted, counters.refused), (1, 0));
        // From here on it is as any other.
        bench.say(one, "more");
        bench.until("it is answered", |b| b.client(one).heard == b"hellomore");
        bench.finish(one);
        bench.until("it is closed", |b| !b.running.handler().ended.is_empty());
        assert_eq!(bench.running.handler().ended, [Cause::Eof]);
        bench.is_as_new();
        assert!(log.all().is_empty());
    }
}

fn a_header_of_the_proxy_itself_leaves_the_peer<T: Harness>() {
    for header in [
        binary(0, 0, &[]),
        // The block of LOCAL is no matter.
        binary(0, 0x11, &[7; 12]),
        binary(1, 0, &[7; 40]),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
    ] {
        let (mut bench, _) = served::<T>(Proxy::any(), Limits::new());
        let one = bench.connect();
        bench.say(one, header);
        bench.opened(1);
        let expected = address(&bench.watcher, one);
        assert!(expected.is_some());
        assert_eq!(bench.running.handler().origins[0].peer, expected);
    }
}

fn a_header_comes_in_any_two_pieces<T: Harness>() {
    for header in [LINE.to_vec(), binary_v4()] {
        let (mut bench, log) = served::<T>(Proxy::any(), Limits::new());
        let whole = [&header[..], b"hello"].concat();
        for cut in 1..whole.len() {
            let one = bench.connect_eager();
            bench.say(one, whole[..cut].to_vec());
            if cut < header.len() {
                bench.until("the first piece has come", |b| b.begun() == cut);
                assert_eq!(bench.running.handler().origins.len(), cut - 1, "not before its end");
            } else {
                bench.opened(cut);
            }
            bench.say(one, whole[cut..].to_vec());
            bench.until("it is answered", |b| b.client(one).heard == b"hello");
            assert_eq!(bench.running.handler().origins[cut - 1].peer, Some(client()));
            assert_eq!(bench.begun(), 0, "{cut}");
        }
        assert!(log.all().is_empty());
    }
}

fn a_header_comes_byte_by_byte<T: Harness>() {
    let (mut bench, _) = served::<T>(Proxy::any(), Limits::new());
    let one = bench.connect_eager();
    for (at, byte) in LINE.iter().enumerate() {
        bench.until("the last byte has come", |b| b.begun() == at);
        bench.say(one, vec![*byte]);
    }
    bench.opened(1);
    assert_eq!(bench.running.handler().origins[0].peer, Some(client()));
    bench.say(one, "hello");
    bench.until("it is answered", |b| b.client(one).heard == b"hello");
}

fn a_dribbling_peer_is_ended_at_the_limit<T: Harness>() {
    let limit = T::span(2.0);
    let (mut bench, log) = served::<T>(Proxy::v1().timeout(limit), Limits::new());
    let begin = bench.watcher.update_now();
    let (slow, silent) = (bench.connect(), bench.connect());
    // The time of a real system may be over before it comes to read.
    let honest = T::VIRTUAL.then(|| bench.connect());
    if let Some(honest) = honest {
        bench.say(honest, LINE);
    }
    for byte in LINE {
        bench.say(slow, vec![*byte]);
        bench.run_for(limit / 16);
        if bench.client(slow).is_over() && bench.client(silent).is_over() {
            break;
        }
    }
    let took = bench.watcher.update_now() - begin;
    assert!(bench.client(slow).is_over() && bench.client(silent).is_over());
    assert!(took >= limit, "{took:?}");
    // It has got a reset: nobody has served it.
    assert!(bench.client(silent).error.is_some() && !bench.client(silent).eof);
    // Every byte would begin a clock of the read again. (A turn of the loop above is a 16th.)
    assert!(!T::VIRTUAL || took <= limit + limit / 8, "{took:?}");
    let late = (Level::Info, RefusedBecause::Handshake(Cause::ReadTimeout));
    assert_eq!(log.all(), [late, late]);
    assert_eq!(bench.refused(), 2);
    if let Some(honest) = honest {
        bench.say(honest, "hello");
        bench.until("it is answered", |b| b.client(honest).heard == b"hello");
    }
    assert_eq!(bench.begun(), 0);
    assert!(bench.running.handler().ended.is_empty());
}

/// A busy loop, and a peer that always has one more byte on its way: a read takes what is there
/// even if its deadline has passed.
fn a_byte_that_is_there_at_the_limit_moves_nothing<T: Harness>() {
    let limit = T::span(2.0);
    let (mut bench, log) = served::<T>(Proxy::v1().timeout(limit), Limits::new());
    let one = bench.connect();
    bench.until("it has come", |b| b.running.engine().len() == 1);
    let begin = bench.watcher.update_now();
    for byte in &LINE[..2] {
        bench.say(one, vec![*byte]);
        while bench.client(one).said < 1 {
            bench.look(limit);
        }
    }
    while bench.watcher.update_now() - begin <= limit {
        bench.look(limit / 4);
    }
    bench.turn(Duration::ZERO);
    assert_eq!(log.all().len(), 1);
    bench.until("it knows", |b| b.client(one).is_over());
    assert!(bench.running.handler().origins.is_empty());
}

fn what_is_no_header_is_refused<T: Harness>() {
    let long = [b"PROXY UNKNOWN ", &[b'x'; 107][..], b"\r\n"].concat();
    let mut third = binary_v4();
    third[12] = 0x31;
    for (proxy, bytes, why) in [
        (Proxy::any(), b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no PROXY header"),
        (Proxy::v1(), binary_v4(), "a version that is not accepted"),
        (Proxy::v2(), LINE.to_vec(), "a version that is not accepted"),
        (Proxy::v2(), third, "a version that is not accepted"),
        (Proxy::v1(), long, "too long"),
        (Proxy::v2().max_header(232), binary(0, 0, &[0; 217]), "too long"),
        (Proxy::v2(), binary(1, 0x11, &[0; 11]), "too short for its addresses"),
        (Proxy::v1(), b"PROXY TCP4 1.2.3.4\r\n".to_vec(), "a wrong number of fields"),
    ] {
        let (mut bench, log) = served::<T>(proxy, Limits::new());
        let one = bench.connect();
        bench.say(one, bytes);
        bench.until("it is refused", |b| b.client(one).is_over());
        let all = log.all();
        let [(Level::Warn, RefusedBecause::Header(text))] = all[..] else { panic!("{all:?}") };
        assert!(text.contains(why), "{text}");
        assert!(bench.running.handler().origins.is_empty());
        assert_eq!(bench.refused(), 1);
        bench.is_as_new();
    }
}

/// As a health check does that only connects.
fn an_end_in_the_header_is_quiet<T: Harness>() {
    for begin in [&b""[..], b"PROXY TCP4 192."] {
        let (mut bench, log) = served::<T>(Proxy::v1(), Limits::new());
        let one = bench.connect();
        if !begin.is_empty() {
            bench.say(one, begin);
        }
        bench.finish(one);
        bench.until("it has ended", |b| b.client(one).is_over());
        assert_eq!(log.all(), [(Level::Debug, RefusedBecause::Handshake(Cause::Eof))]);
        // The check sees an answer to its end, and no failure.
        assert!(bench.client(one).eof);
        assert!(bench.running.handler().origins.is_empty());
        bench.is_as_new();
    }
}

fn a_reset_in_the_header_is_quiet<T: Harness>() {
    let (mut bench, log) = served::<T>(Proxy::v1(), Limits::new());
    let one = bench.connect();
    bench.say(one, "PROXY");
    bench.until("a piece has come", |b| b.begun() == 5);
    bench.watcher.set_option(one, SocketOption::Linger(Some(Duration::ZERO))).expect("a reset");
    bench.watcher.abort(one);
    bench.until("it has ended", |b| b.refused() == 1);
    let all = log.all();
    let [(Level::Debug, RefusedBecause::Handshake(Cause::Os(_)))] = all[..] else {
        panic!("{all:?}")
    };
    bench.is_as_new();
}

fn peers_from_elsewhere_are_refused<T: Harness>() {
    // The last one lists Unix sockets, which is not what a peer of TCP without an address is.
    for networks in ["192.0.2.0/24", "192.0.2.1, 2001:db8::/32", "unix"] {
        let log = Refusals::new();
        let config = Config::new().proxy(leaked(Proxy::any(), networks)).log(log);
        let config = config.farewell(b"full");
        let server = Server::new(|_| Notes::default()).config(config);
        let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
        let one = bench.connect();
        bench.say(one, [LINE, b"hello"].concat());
        bench.until("it is refused", |b| b.client(one).is_over());
        assert_eq!(log.all(), [(Level::Warn, RefusedBecause::Network)]);
        assert_eq!((bench.refused(), bench.client(one).heard.len()), (1, 0));
        assert!(bench.running.handler().origins.is_empty());
        bench.is_as_new();
    }
}

fn a_thousand_silent_peers_hold_up_nobody<T: Harness>() {
    let count = if T::VIRTUAL { 1000 } else { 100 };
    let proxy = Proxy::any().timeout(Duration::from_secs(200));
    let (mut bench, log) = served::<T>(proxy, Limits::new());
    let silent: Vec<Source> = (0..count).map(|_| bench.connect()).collect();
    bench.until("all have come", |b| b.running.engine().len() == count);
    // Every second one has begun.
    silent.iter().step_by(2).for_each(|one| bench.say(*one, "PROXY TCP"));
    bench.until("they have begun", |b| b.begun() == count / 2 * 9);
    for round in 1..=10 {
        let honest = bench.connect();
        bench.say(honest, [LINE, b"hello"].concat());
        bench.until("it is answered", |b| b.client(honest).heard == b"hello");
        assert_eq!(bench.running.handler().origins.len(), round);
        bench.finish(honest);
    }
    assert_eq!(bench.refused(), 0);
    assert_eq!(bench.running.engine().ids().count(), 10 - bench.running.handler().ended.len());
    if !T::VIRTUAL {
        bench.running.stop(&mut bench.watcher); // nobody waits for 200 s
    }
    bench.until("the limit ends them", |b| b.refused() == count as u64);
    assert_eq!(log.all().len(), count);
    bench.until("all are closed", |b| b.running.engine().is_empty());
    bench.is_as_new();
}

fn handshakes_count_for_the_limit_of_connections<T: Harness>() {
    let (mut bench, log) = served::<T>(Proxy::v1(), Limits::new().connections(2));
    let first = [bench.connect(), bench.connect()];
    bench.until("they have come", |b| b.running.engine().len() == 2);
    let third = bench.connect();
    bench.until("it is refused", |b| b.client(third).is_over());
    assert_eq!(log.all(), [(Level::Warn, RefusedBecause::Connections)]);
    for one in first {
        bench.say(one, [LINE, b"hello"].concat());
        bench.until("it is answered", |b| b.client(one).heard == b"hello");
    }
}

fn a_shutdown_ends_handshakes<T: Harness>() {
    let (mut bench, log) = served::<T>(Proxy::v1(), Limits::new());
    let (silent, begun, open) = (bench.connect(), bench.connect(), bench.connect());
    bench.say(begun, "PROXY");
    bench.say(open, LINE);
    bench.opened(1);
    bench.until("a piece has come", |b| b.begun() == 5 && b.running.engine().len() == 3);
    bench.running.stop(&mut bench.watcher);
    bench.until("it is over", |b| b.running.is_over());
    assert_eq!(log.all(), [(Level::Debug, RefusedBecause::Shutdown); 2]);
    assert_eq!(bench.running.handler().ended, [Cause::Shutdown]);
    bench.until("all know", |b| [silent, begun, open].iter().all(|one| b.client(*one).is_over()));
    bench.is_as_new();
}

fn the_grace_of_a_shutdown_is_for_handshakes_too<T: Harness>() {
    let log = Refusals::new();
    let proxy = Proxy::v1().timeout(Duration::MAX);
    let config = Config::new().proxy(leaked(proxy, EVERYWHERE)).log(log);
    let server = Server::new(|_| Notes::default()).config(config).grace(Duration::from_secs(100));
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let (one, silent) = (bench.connect(), bench.connect());
    bench.say(one, "PROXY ");
    bench.until("a piece has come", |b| b.begun() == 6 && b.running.engine().len() == 2);
    bench.running.stop(&mut bench.watcher);
    bench.say(one, [&LINE[6..], b"hello"].concat());
    bench.until("it is answered", |b| b.client(one).heard == b"hello");
    if !T::VIRTUAL {
        bench.running.stop(&mut bench.watcher); // the second call ends the grace
    }
    bench.until("it is over", |b| b.running.is_over());
    assert_eq!(bench.running.handler().ended, [Cause::Shutdown]);
    bench.until("both know", |b| b.client(one).is_over() && b.client(silent).is_over());
    assert_eq!(log.all(), [(Level::Debug, RefusedBecause::Shutdown)]);
}

fn the_end_of_an_engine_ends_handshakes<T: Harness>() {
    let log = Refusals::new();
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE)).log(log);
    let mut l = Loop::new::<T>(config);
    let _clients = [l.client(), l.client()];
    l.until("they have come", |l| l.engine.len() == 2);
    assert_eq!(l.engine.ids().count(), 0, "the program does not know them");
    l.engine.end(&mut l.watcher);
    assert!(l.engine.next_event(&mut l.watcher).is_none() && l.engine.is_empty());
    assert_eq!(log.all(), [(Level::Debug, RefusedBecause::Shutdown); 2]);
    // The clients' own sources are left.
    assert_eq!(l.watcher.counters().sources, 2);
}

fn the_program_may_do_anything_when_it_opens<T: Harness>() {
    type First = fn(&mut Conn<'_, ()>) -> Action;
    let start = |first: First| {
        let (mut bench, _) = served::<T>(Proxy::v1(), Limits::new());
        bench.running.handler().first = Some(first);
        let one = bench.connect();
        bench.say(one, [LINE, b"hello"].concat());
        bench.opened(1);
        (bench, one)
    };
    let (mut bench, _) = start(|_| Action::Detach);
    bench.until("it is detached", |b| b.running.handler().detached.is_some());
    // A simulated network with faults tears it, and leaves the rest in the socket.
    let detached = bench.running.handler().detached.take().expect("right from above");
    assert!(b"hello".starts_with(&detached) && (T::NAME == "faults" || detached.len() == 5));
    bench.is_as_new();

    let (mut bench, one) = start(|_| Action::Close);
    bench.until("it is closed", |b| b.client(one).is_over());
    bench.until("the server knows", |b| b.running.handler().ended.len() == 1);
    assert!(bench.running.handler().heard.is_empty());
    bench.is_as_new();

    let (mut bench, one) = start(|c| {
        c.pause();
        Action::None
    });
    bench.say(one, " and more");
    bench.run_for(T::span(1.0));
    assert!(bench.running.handler().heard.is_empty());
    let id = bench.running.engine().ids().next().expect("it is open");
    bench.running.engine().resume(id);
    bench.running.turn(&mut bench.watcher);
    bench.until("it is answered", |b| b.client(one).heard == b"hello and more");

    let (mut bench, one) = start(|c| {
        c.write("first ");
        let id = c.id();
        c.engine().wake(id);
        Action::None
    });
    bench.until("it is answered", |b| b.client(one).heard == b"first hello");

    let (mut bench, _) = start(|c| {
        let id = c.id();
        c.engine().abort(id);
        Action::None
    });
    bench.until("it is aborted", |b| b.running.handler().ended == [Cause::Aborted]);
    bench.is_as_new();
}

fn a_state_that_cannot_be_made_is_counted_once<T: Harness>() {
    struct Refuses;
    impl Default for Refuses {
        fn default() -> Refuses {
            panic!("no state, as it is to be")
        }
    }
    struct Nothing;
    impl Handler for Nothing {
        type State = Refuses;
    }
    let log = Refusals::new();
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE)).log(log);
    let server = Server::new(|_| Nothing).config(config).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for count in 1..=2 {
        let one = bench.connect();
        bench.say(one, [LINE, b"hello"].concat());
        bench.until("it is refused", |b| b.client(one).is_over());
        let counters = bench.running.report().counters;
        assert_eq!((counters.accepted, counters.refused), (0, count));
        assert!(bench.running.engine().is_empty());
    }
    assert_eq!(log.all(), [(Level::Warn, RefusedBecause::Panicked); 2]);
    assert_eq!(bench.running.report().panics, 2);
}

fn an_address_has_its_own_setting<T: Harness>() {
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE));
    let mut server = Server::new(|_| Notes::default()).config(config);
    for setting in ["", "?proxy=v2", "?proxy=any", "?proxy=false"] {
        server = server.listen(&format!("tcp://127.0.0.1:0{setting}")).unwrap();
    }
    let mut bench = bench::<T, _, _>(server);
    let addresses: Vec<Address> = bench.addresses.clone();
    let plain = b"plain ".to_vec();
    for (listener, header) in
        [(0, LINE.to_vec()), (1, binary_v4()), (2, LINE.to_vec()), (2, binary_v4()), (3, plain)]
    {
        let before = bench.running.handler().origins.len();
        let one = bench.connect_to(addresses[listener].clone());
        let peer = if listener < 3 { Some(client()) } else { None };
        bench.say(one, [&header[..], b"hello"].concat());
        bench.until("it is answered", |b| b.client(one).heard.ends_with(b"hello"));
        let origin = bench.running.handler().origins[before];
        assert_eq!(origin.listener, Some(listener));
        assert_eq!(origin.peer, peer.or(address(&bench.watcher, one)));
    }
    for listener in [0, 1] {
        let one = bench.connect_to(addresses[listener].clone());
        let other = if listener == 0 { binary_v4() } else { LINE.to_vec() };
        bench.say(one, other);
        bench.until("it is refused", |b| b.client(one).is_over());
    }
}

fn a_setting_that_takes_nobody_is_refused<T: Harness>() {
    let start = |config: Config, address: &str| {
        let mut watcher = T::watcher(Watcher::builder());
        let server = Server::new(|_| Notes::default()).config(config).listen(address).unwrap();
        let started = server.start_on(&mut watcher).map(drop);
        assert!(started.is_ok() || watcher.counters().sources == 0, "the listener is closed");
        started.map_err(|error| {
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
            error.to_string()
        })
    };
    let nobody: &'static Proxy = Box::leak(Box::new(Proxy::any().from(Networks::default())));
    for address in ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0?proxy=v1"] {
        let error = start(Config::new().proxy(nobody), address).unwrap_err();
        assert!(error.contains("lists no networks"), "{error}");
    }
    for version in ["v1", "v2", "any"] {
        let error = start(Config::new(), &format!("tcp://127.0.0.1:0?proxy={version}"));
        let error = error.unwrap_err();
        assert!(error.contains("needs Config::proxy"), "{error}");
    }
    start(Config::new().proxy(nobody), "tcp://127.0.0.1:0?proxy=false").unwrap();
    start(Config::new(), "tcp://127.0.0.1:0?proxy=false").unwrap();
    // The setting is of streams.
    start(Config::new().proxy(nobody), "udp://127.0.0.1:0").unwrap();
}

/// As by a watcher whose tables are full.
fn a_refused_read_ends_the_handshake<T: Harness>() {
    use crate::common::refusing::{Orders, Refusing};
    use windlass::driver::OpCode;

    let orders = Orders::default();
    let watcher = T::watcher(Watcher::builder());
    let watcher = Watcher::with_driver(Refusing::new(watcher.into_driver(), orders.clone()));
    let log = Refusals::new();
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE)).log(log);
    let mut l = Loop::on(watcher, config);
    let one = l.client();
    l.until("it has connected", |l| !l.foreign.is_empty());
    orders.refuse(OpCode::Read, 1);
    l.watcher.submit(Op::write(one, "PROXY").token(1)).unwrap();
    l.until("it is refused", |l| l.engine.counters().refused == 1);
    assert_eq!(log.all(), [(Level::Warn, RefusedBecause::Handshake(Cause::Rejected))]);
    assert!(l.engine.is_empty() && l.told.is_empty());
}
