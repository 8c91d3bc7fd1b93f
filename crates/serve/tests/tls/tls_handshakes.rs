//! The turns of handshakes with TLS: how long established connections wait for them, and what
//! becomes of a flood. All of it is counted in turns and answers, and nothing in time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Bench, Harness, PATIENCE, bench};
use crate::peer::Peer;
use crate::tls;
use windlass::sim::{Faults, Sim};
use windlass::{Buf, Builder, Source, Watcher};
use windlass_serve::report::TlsHandshakes;
use windlass_serve::tls::{Handshakes, Provider, Session, Tls, TlsClient};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Origin, Server,
};

crate::every_kernel! {
    a_flood_holds_up_no_established_connection
    every_handshake_has_an_end
    workers_answer_off_the_loop
    workers_answer_a_flood
}

/// A simulated network that behaves, and is no slower than a turn of the loop.
struct Busy<const COMPLETES: bool>;

impl<const COMPLETES: bool> Harness for Busy<COMPLETES> {
    type Driver = windlass::driver::Auto;
    const NAME: &'static str = "busy";
    const VIRTUAL: bool = true;
    fn watcher(builder: Builder) -> Watcher<Self::Driver> {
        let sim = Sim::new(1);
        sim.set_completing(COMPLETES);
        sim.set_turn(Duration::from_millis(1));
        // Some jobs take longer than the handshakes may that have a limit.
        sim.set_job_time(Duration::from_secs(20));
        sim.set_faults(Faults { latency: Duration::ZERO, ..Faults::none() });
        Watcher::simulated_with(&sim, builder.config())
    }
}

/// What counts turns has all of a turn in the simulation only.
macro_rules! simulated {
    ($($body:ident)*) => {
        mod turns {
            $(#[test]
            fn $body() {
                super::$body::<super::Busy<false>>();
                super::$body::<super::Busy<true>>();
            })*
        }
    };
}

simulated! {
    a_flood_holds_up_no_established_connection
    a_turn_answers_as_many_flights_as_its_limit
    flights_have_their_turn_in_their_order
    a_flood_sheds_hellos_and_no_connection
    a_handshake_that_has_begun_is_not_shed
    a_flight_that_has_waited_too_long_is_refused
    a_peer_that_has_gone_costs_one_answer
    a_shutdown_ends_handshakes_that_wait
    a_flight_that_a_worker_answers_too_late_is_refused
    a_connection_that_ends_drops_its_flight
}

/// An echo.
#[derive(Default)]
struct Echo {
    opened: Vec<Option<SocketAddr>>,
    heard: usize,
    closed: Vec<Cause>,
}

impl Handler for Echo {
    type State = ();
    fn opened(&mut self, _: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.opened.push(origin.peer);
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard += data.len();
        c.write(data);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

type Served<T> = Bench<<T as Harness>::Driver, Echo>;

/// A server whose first address has TLS, and whose second one has none.
fn serve<T: Harness>(limits: Limits) -> (Served<T>, TlsClient) {
    serve_on::<T>(Handshakes::Loop, limits, || {})
}

/// The same. `looks` is called in each handshake, on its thread.
fn serve_on<T: Harness>(
    on: Handshakes,
    limits: Limits,
    looks: impl Fn() + Send + Sync + 'static,
) -> (Served<T>, TlsClient) {
    let (_, server, client) = tls::settings(Provider::Ring);
    let clock = move || {
        looks();
        tls::noon()
    };
    let tls: Tls = server.handshakes(on).clock(clock).build().unwrap();
    let client: TlsClient = client.handshakes(on).build().unwrap();
    let server = Server::new(|_| Echo::default()).config(Config::new().limits(limits.idle(None)));
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls);
    (bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap()), client)
}

fn handshakes<T: Harness>(b: &mut Served<T>) -> TlsHandshakes {
    b.running.report().counters.handshakes
}

/// Clients that are connected, and what they will say first.
fn flood<T: Harness>(b: &mut Served<T>, tls: &TlsClient, count: usize) -> Vec<(Source, Vec<u8>)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut hello = Vec::new();
        Session::client(tls, "localhost").unwrap().take_output(&mut hello);
        all.push((b.connect(), hello));
    }
    let begun = handshakes::<T>(b).begun + count as u64;
    b.until("all have connected", |b| handshakes::<T>(b).begun == begun);
    all
}

/// Says something, and returns after how many turns the echo has come.
fn echo<T: Harness>(b: &mut Served<T>, client: Source) -> usize {
    let expected = b.client(client).heard.len() + 5;
    b.say(client, "hello");
    let mut turns = 0;
    b.until("it is echoed", |b| {
        turns += 1;
        b.client(client).heard.len() == expected
    });
    turns
}

fn a_flood_holds_up_no_established_connection<T: Harness>() {
    for per_turn in [1, 3] {
        let limits = Limits::new().handshakes_per_turn(per_turn);
        let (mut b, tls) = serve::<T>(limits);
        let mut open = Peer::open(&mut b, &tls);
        let address = b.addresses[1].clone();
        let plain = b.connect_to(address);
        echo::<T>(&mut b, plain); // once it has connected
        let quiet = echo::<T>(&mut b, plain);
        let clients = flood::<T>(&mut b, &tls, 300);
        for (client, hello) in clients {
            b.say(client, hello);
        }
        // A turn takes some of the events of the system, so the flood comes in several turns.
        b.until("the flood has come", |b| handshakes::<T>(b).flights > 20 * per_turn as u64);
        let mut most = 0;
        for round in 1..=5 {
            let before = handshakes::<T>(&mut b);
            let turns = echo::<T>(&mut b, plain);
            let now = handshakes::<T>(&mut b);
            let answers = (now.flights - before.flights) as usize;
            assert!(answers <= turns * per_turn, "{answers} answers in {turns} turns");
            most = most.max(turns);
            open.say(&mut b, b"hello");
            open.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == round * 5);
        }
        if T::NAME == Busy::<false>::NAME {
            // So nothing waits for more than the answers of the turn in which it comes.
            assert!(most <= quiet, "{most} turns, and {quiet} without a flood");
            let left = 300 + 2 - handshakes::<T>(&mut b).flights;
            assert!(left > 0, "the flood was over before the end of the test");
        }
        assert_eq!(handshakes::<T>(&mut b).shed, 0);
    }
}

fn a_turn_answers_as_many_flights_as_its_limit<T: Harness>() {
    for per_turn in [1, 2, 7] {
        let (mut b, tls) = serve::<T>(Limits::new().handshakes_per_turn(per_turn));
        for (client, hello) in flood::<T>(&mut b, &tls, 50) {
            b.say(client, hello);
        }
        let mut answers = Vec::new();
        while handshakes::<T>(&mut b).flights < 50 {
            let before = handshakes::<T>(&mut b).flights;
            b.turn(PATIENCE);
            answers.push((handshakes::<T>(&mut b).flights - before) as usize);
        }
        assert!(answers.iter().all(|answers| *answers <= per_turn), "{answers:?}");
        // Once they are there, no turn goes by without its answers.
        let first = answers.iter().position(|answers| *answers == per_turn).unwrap();
        let full = &answers[first..answers.len() - 1];
        assert!(full.iter().all(|answers| *answers == per_turn), "{answers:?}");
    }
}

fn flights_have_their_turn_in_their_order<T: Harness>() {
    let (mut b, tls) = serve::<T>(Limits::new());
    let clients = flood::<T>(&mut b, &tls, 20);
    for (client, hello) in &clients {
        b.say(*client, hello.clone());
        // It comes before the next one is sent. The server does not look at it yet.
        while b.look(Duration::from_millis(10)) > 0 {}
    }
    let mut answered = 0;
    b.until("all are answered", |b| {
        let heard = |(client, _): &(Source, _)| !b.client(*client).heard.is_empty();
        answered = clients.iter().take_while(|client| heard(client)).count();
        assert!(!clients[answered..].iter().any(heard), "one behind {answered} is answered");
        answered == 20
    });
}

fn a_flood_sheds_hellos_and_no_connection<T: Harness>() {
    let (mut b, tls) = serve::<T>(Limits::new().handshakes_waiting(10));
    let mut open: Vec<Peer> = (0..5).map(|_| Peer::open(&mut b, &tls)).collect();
    let clients = flood::<T>(&mut b, &tls, 100);
    for (client, hello) in &clients {
        b.say(*client, hello.clone());
    }
    b.until("the flood is over", |b| {
        let now = handshakes::<T>(b);
        now.shed + now.flights == 100 + 2 * 5
    });
    let now = handshakes::<T>(&mut b);
    assert!(now.shed >= 100 - 10 - now.flights && now.shed > 50, "{now:?}");
    for peer in &mut open {
        peer.say(&mut b, b"hello");
        peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    }
    assert!(b.running.handler().closed.is_empty());
    assert_eq!(b.running.report().counters.refused, now.shed);
    // Those that were shed hear nothing, and know it at once.
    let over = |b: &Served<T>| {
        clients.iter().filter(|(client, _)| b.client(*client).is_over()).count() as u64
    };
    b.until("they know it", |b| over(b) == now.shed);
    assert!(clients.iter().all(|(c, _)| !b.client(*c).is_over() || b.client(*c).heard.is_empty()));
}

fn a_handshake_that_has_begun_is_not_shed<T: Harness>() {
    let (mut b, tls) = serve::<T>(Limits::new().handshakes_waiting(1));
    let mut first = Peer::new(&mut b, &tls);
    first.pump(&mut b);
    b.until("it has connected", |b| handshakes::<T>(b).begun == 1);
    let clients = flood::<T>(&mut b, &tls, 30);
    b.until("it is answered", |b| !b.client(first.client).heard.is_empty());
    for (client, hello) in clients {
        b.say(client, hello);
    }
    // Its second flight comes behind the flood.
    first.until(&mut b, "it is open", |peer, _| peer.session.is_open());
    b.until("the server knows it", |b| handshakes::<T>(b).completed == 1);
    assert!(handshakes::<T>(&mut b).shed > 20);
}

fn a_flight_that_has_waited_too_long_is_refused<T: Harness>() {
    let limits = Limits::new().handshake(Duration::from_secs(5));
    let (mut b, tls) = serve::<T>(limits);
    let clients = flood::<T>(&mut b, &tls, 1);
    b.say(clients[0].0, clients[0].1.clone());
    // The loop is busy with something else meanwhile.
    while b.look(Duration::from_secs(6)) > 0 {}
    b.turn(Duration::ZERO);
    b.until("it is refused", |b| b.client(clients[0].0).is_over());
    let now = handshakes::<T>(&mut b);
    assert_eq!((now.begun, now.failed, now.flights), (1, 1, 0));
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn a_peer_that_has_gone_costs_one_answer<T: Harness>() {
    let (mut b, tls) = serve::<T>(Limits::new());
    let clients = flood::<T>(&mut b, &tls, 20);
    for (client, hello) in &clients {
        b.say(*client, hello.clone());
        b.finish(*client);
    }
    b.until("all have ended", |b| handshakes::<T>(b).failed == 20);
    assert_eq!(handshakes::<T>(&mut b).flights, 20);
    b.until("nothing is charged", |b| b.running.engine().budget().used() == 0);
    assert!(b.running.engine().is_empty());
}

fn a_shutdown_ends_handshakes_that_wait<T: Harness>() {
    let (mut b, tls) = serve::<T>(Limits::new());
    for (client, hello) in flood::<T>(&mut b, &tls, 50) {
        b.say(client, hello);
    }
    b.until("some are answered", |b| handshakes::<T>(b).flights == 3);
    b.running.remote().shutdown();
    b.until("it is over", |b| b.running.is_over());
    let now = handshakes::<T>(&mut b);
    assert_eq!((now.begun, now.failed, now.completed), (50, 50, 0));
    assert!(now.flights < 10, "{now:?}");
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn every_handshake_has_an_end<T: Harness>() {
    ends::<T>(Handshakes::Loop);
}

fn workers_answer_a_flood<T: Harness>() {
    ends::<T>(Handshakes::Workers);
}

fn ends<T: Harness>(on: Handshakes) {
    let (mut b, tls) = serve_on::<T>(on, Limits::new().handshakes_waiting(8), || {});
    let mut peers: Vec<Peer> = (0..60).map(|_| Peer::new(&mut b, &tls)).collect();
    let silent: Vec<Source> = (0..5).map(|_| b.connect()).collect();
    let wild: Vec<Source> = (0..5).map(|_| b.connect()).collect();
    for client in wild {
        b.say(client, "GET / HTTP/1.1\r\n\r\n");
    }
    b.until("all have an end, or are silent", |b| {
        peers.iter_mut().for_each(|peer| peer.pump(b));
        let now = handshakes::<T>(b);
        now.begun == 70 && now.completed + now.failed + now.shed == 65
    });
    silent.into_iter().for_each(|client| b.finish(client));
    b.until("all have an end", |b| {
        let now = handshakes::<T>(b);
        now.completed + now.failed + now.shed == 70
    });
    let now = handshakes::<T>(&mut b);
    assert_eq!((now.failed, now.resumed), (10, 0), "{now:?}");
    assert_eq!(b.running.report().counters.accepted, now.completed);
    // The tickets of one connection are for the next one.
    let open = peers.iter().position(|peer| peer.session.is_open()).unwrap();
    peers[open].say(&mut b, b"hello");
    let until = |peer: &mut Peer, _: &mut Served<T>| peer.plain == b"hello";
    peers[open].until(&mut b, "it is echoed", until);
    Peer::open(&mut b, &tls);
    b.until("it is counted", |b| handshakes::<T>(b).resumed == 1);
}

fn workers_answer_off_the_loop<T: Harness>() {
    let here = std::thread::current().id();
    let looks = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counts = Arc::clone(&looks);
    let look = move || {
        let is_here = std::thread::current().id() == here;
        let count = if is_here { &counts.0 } else { &counts.1 };
        count.fetch_add(1, Ordering::Relaxed);
    };
    let (mut b, tls) = serve_on::<T>(Handshakes::Workers, Limits::new(), look);
    let before = looks.0.load(Ordering::Relaxed);
    for _ in 0..3 {
        let mut peer = Peer::open(&mut b, &tls);
        peer.say(&mut b, b"hello");
        peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    }
    let now = handshakes::<T>(&mut b);
    assert_eq!((now.begun, now.completed), (3, 3));
    // One that comes in parts counts for each.
    assert!(now.flights == 6 || T::NAME == "faults" && now.flights > 6, "{now:?}");
    assert_eq!(b.running.report().counters.jobs.done, 0, "they are no jobs of the program");
    let [at_loop, at_workers] = [&looks.0, &looks.1].map(|count| count.load(Ordering::Relaxed));
    if T::VIRTUAL {
        assert!(at_loop > before, "a simulation has no other threads");
    } else {
        assert!(at_loop == before && at_workers > 0, "{at_loop}, {at_workers}");
    }
}

fn a_flight_that_a_worker_answers_too_late_is_refused<T: Harness>() {
    let limits = Limits::new().handshake(Duration::from_secs(1));
    let (mut b, tls) = serve_on::<T>(Handshakes::Workers, limits, || {});
    for (client, hello) in flood::<T>(&mut b, &tls, 20) {
        b.say(client, hello);
    }
    let start = b.watcher.update_now();
    b.until("all have failed", |b| handshakes::<T>(b).failed == 20);
    assert!(b.watcher.update_now() - start < Duration::from_secs(60));
    assert_eq!(b.running.engine().budget().used(), 0);
}

fn a_connection_that_ends_drops_its_flight<T: Harness>() {
    let (mut b, tls) = serve_on::<T>(Handshakes::Workers, Limits::new(), || {});
    let clients = flood::<T>(&mut b, &tls, 20);
    for (client, hello) in clients {
        b.say(client, hello);
    }
    b.run_for(Duration::from_millis(100));
    b.running.remote().shutdown();
    b.until("it is over", |b| b.running.is_over());
    let now = handshakes::<T>(&mut b);
    assert_eq!((now.begun, now.failed, now.completed), (20, 20, 0));
    assert!(now.flights <= 4, "{now:?}");
    assert_eq!(b.running.engine().budget().used(), 0);
    // Answers that come now find nobody.
    b.run_for(Duration::from_secs(60));
    assert_eq!(handshakes::<T>(&mut b), now);
}
