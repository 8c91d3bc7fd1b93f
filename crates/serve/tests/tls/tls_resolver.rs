//! Programs that choose the settings of a connection with TLS when its hello has come.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Bench, Harness, bench};
use crate::peer::Peer;
use crate::tls;
use windlass::Buf;
use windlass_serve::report::TlsHandshakes;
use windlass_serve::tls::{Error, Handshakes, Hello, Provider, Tls, TlsBuilder, TlsClient};
use windlass_serve::{Action, Config, Conn, Handler, Limits, Server};

crate::every_kernel! {
    the_protocols_of_the_client_choose_the_settings
    the_loop_goes_on_until_the_answer
    a_hello_that_is_dropped_is_refused
    a_hello_without_an_answer_has_an_end
    few_hellos_wait_for_answers
    a_panic_of_a_resolver_ends_its_connection_only
}

/// An echo.
struct Echo;

impl Handler for Echo {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

type Served<T> = Bench<<T as Harness>::Driver, Echo>;

fn serve<T: Harness>(tls: TlsBuilder, limits: Limits) -> Served<T> {
    let server = Server::new(|_| Echo).config(Config::new().limits(limits.idle(None)));
    let server = server.listen("tcp://127.0.0.1:0").unwrap().tls(tls.build().unwrap());
    bench::<T, _, _>(server)
}

fn handshakes<T: Harness>(b: &mut Served<T>) -> TlsHandshakes {
    b.running.report().counters.handshakes
}

/// Settings that ask, settings to answer with, and a client.
fn settings() -> (TlsBuilder, Tls, TlsClient) {
    let (_, server, client) = tls::settings(Provider::Ring);
    let asks = Tls::builder().provider(Provider::Ring).clock(tls::noon);
    (asks, server.build().unwrap(), client.build().unwrap())
}

type Asked = Arc<Mutex<Vec<Hello>>>;

/// Keeps the hellos.
fn keep(asked: &Asked) -> impl Fn(Hello) + Send + Sync + 'static {
    let asked = Arc::clone(asked);
    move |hello| asked.lock().unwrap().push(hello)
}

fn the_protocols_of_the_client_choose_the_settings<T: Harness>() {
    let (_, server, client) = tls::settings(Provider::Ring);
    let challenge = server.clone().alpn(["acme-tls/1"]).build().unwrap();
    let asks = server.alpn(["h2"]).resolver(move |hello: Hello| {
        assert_eq!(hello.server_name(), Some("localhost"));
        match hello.offers("acme-tls/1") {
            true => hello.answer(&challenge),
            false => hello.go_on(),
        }
    });
    let mut b = serve::<T>(asks, Limits::new());
    for protocol in ["acme-tls/1", "h2"] {
        let client = client.clone().alpn([protocol]).build().unwrap();
        let mut peer = Peer::open(&mut b, &client);
        assert_eq!(peer.session.alpn(), Some(protocol.as_bytes()));
        peer.say(&mut b, b"hello");
        peer.until(&mut b, "it is echoed", |peer, _| peer.plain == b"hello");
    }
}

fn the_loop_goes_on_until_the_answer<T: Harness>() {
    for on in [Handshakes::Loop, Handshakes::Workers] {
        let (asks, tls, client) = settings();
        let asked = Asked::default();
        let mut b = serve::<T>(asks.handshakes(on).resolver(keep(&asked)), Limits::new());
        let mut first = Peer::new(&mut b, &client);
        first.piece = 50; // the hello comes in pieces
        first.pump(&mut b);
        first.piece = usize::MAX;
        let all = Arc::clone(&asked);
        b.until("it is asked", |_| all.lock().unwrap().len() == 1);
        let hello = asked.lock().unwrap().pop().unwrap();
        assert_eq!((hello.server_name(), hello.alpn().len()), (Some("localhost"), 0));
        hello.answer(&tls);
        first.until(&mut b, "it is open", |peer, _| peer.session.is_open());
        let mut second = Peer::new(&mut b, &client);
        second.pump(&mut b);
        b.until("it is asked", |_| all.lock().unwrap().len() == 1);
        for round in 1..=5 {
            first.say(&mut b, b"hello");
            first.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == round * 5);
        }
        assert!(b.client(second.client).heard.is_empty());
        let hello = asked.lock().unwrap().pop().unwrap();
        // The answer may come from any thread.
        if T::VIRTUAL {
            hello.answer(&tls);
        } else {
            std::thread::spawn(move || hello.answer(&tls));
        }
        second.until(&mut b, "it is open", |peer, _| peer.session.is_open());
        b.until("both are counted", |b| handshakes::<T>(b).completed == 2);
        // A torn flight counts for each of its records.
        let flights = handshakes::<T>(&mut b).flights;
        assert!((4..=6).contains(&flights), "{flights}");
        b.until("nothing is charged", |b| b.running.engine().budget().used() == 0);
    }
}

fn a_hello_that_is_dropped_is_refused<T: Harness>() {
    let (asks, _, client) = settings();
    let mut b = serve::<T>(asks.resolver(drop), Limits::new());
    let mut peer = Peer::new(&mut b, &client);
    peer.until(&mut b, "it is refused", |peer, b| b.client(peer.client).is_over());
    let failure = peer.session.failure();
    let is_named = matches!(failure, Some(Error::Alert(alert)) if alert.0 == 112);
    assert!(is_named, "unrecognized_name: {failure:?}");
    b.until("it is counted", |b| handshakes::<T>(b).failed == 1);
    // Nor are there certificates to go on with.
    let (asks, _, client) = settings();
    let mut b = serve::<T>(asks.resolver(Hello::go_on), Limits::new());
    let mut peer = Peer::new(&mut b, &client);
    peer.until(&mut b, "it is refused", |peer, b| b.client(peer.client).is_over());
    assert!(matches!(peer.session.failure(), Some(Error::Alert(_))));
}

fn a_hello_without_an_answer_has_an_end<T: Harness>() {
    let (asks, tls, client) = settings();
    let asked = Asked::default();
    let limits = Limits::new().handshake(T::span(30.0));
    let mut b = serve::<T>(asks.resolver(keep(&asked)), limits);
    let mut peer = Peer::new(&mut b, &client);
    peer.pump(&mut b);
    b.until("it is refused", |b| handshakes::<T>(b).failed == 1);
    assert!(b.running.engine().is_empty());
    assert_eq!(b.running.engine().budget().used(), 0);
    // An answer that comes now finds nobody, also if another connection has the place.
    let mut other = Peer::new(&mut b, &client);
    other.pump(&mut b);
    let hellos = || asked.lock().unwrap().len();
    b.until("the other one is asked, too", |_| hellos() == 2);
    let late = asked.lock().unwrap().remove(0);
    late.answer(&tls);
    b.run_for(T::span(1.0));
    assert!(b.client(other.client).heard.is_empty());
    let hello = asked.lock().unwrap().pop().unwrap();
    hello.answer(&tls);
    b.until("it is answered", |b| {
        !b.client(other.client).heard.is_empty() || handshakes::<T>(b).failed == 2
    });
}

fn few_hellos_wait_for_answers<T: Harness>() {
    let (asks, tls, client) = settings();
    let asked = Asked::default();
    let limits = Limits::new().handshakes_waiting(3);
    let mut b = serve::<T>(asks.resolver(keep(&asked)), limits);
    let mut peers: Vec<Peer> = (0..10).map(|_| Peer::new(&mut b, &client)).collect();
    peers.iter_mut().for_each(|peer| peer.pump(&mut b));
    b.until("the others are shed", |b| handshakes::<T>(b).shed == 7);
    assert_eq!(asked.lock().unwrap().len(), 3);
    // What has an answer makes room.
    asked.lock().unwrap().drain(..).for_each(|hello| hello.answer(&tls));
    b.until("they are open", |b| {
        peers.iter_mut().for_each(|peer| peer.pump(b));
        handshakes::<T>(b).completed == 3
    });
    let mut last = Peer::new(&mut b, &client);
    last.pump(&mut b);
    b.until("it is asked", |_| asked.lock().unwrap().len() == 1);
    b.running.remote().shutdown();
    b.until("it is over", |b| b.running.is_over());
    b.run_for(Duration::from_millis(1));
    asked.lock().unwrap().clear();
}

/// It ended the connection whose callback had run before.
fn a_panic_of_a_resolver_ends_its_connection_only<T: Harness>() {
    let (asks, tls, client) = settings();
    let resolver = move |hello: Hello| match hello.offers("panic") {
        true => std::panic::resume_unwind(Box::new("as the test wants")),
        false => hello.answer(&tls),
    };
    let mut b = serve::<T>(asks.alpn(["panic", "echo"]).resolver(resolver), Limits::new());
    let mut good = Peer::open(&mut b, &client);
    let (_, _, other) = tls::settings(Provider::Ring);
    let other = other.alpn(["panic"]).build().unwrap();
    for round in 1..=5 {
        let mut bad = Peer::new(&mut b, &other);
        b.until("it is accepted", |b| b.running.engine().len() == 2);
        // Its callback is the last one before the hello is there.
        good.say(&mut b, b"hello");
        bad.pump(&mut b);
        b.until("it has an end", |b| b.client(bad.client).is_over());
        let report = b.running.report();
        assert_eq!((report.panics, report.counters.refused), (round as u64, round as u64));
        assert_eq!(b.running.engine().len(), 1, "the other one lives");
        good.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == round * 5);
    }
    good.say(&mut b, b"hello");
    good.until(&mut b, "it is echoed", |peer, _| peer.plain.len() == 30);
    let other = handshakes::<T>(&mut b);
    assert_eq!((other.begun, other.completed, other.failed), (6, 1, 5), "{other:?}");
    good.end(&mut b);
    b.until("nothing is left", |b| b.running.engine().is_empty());
    assert_eq!(b.running.engine().budget().used(), 0);
}
