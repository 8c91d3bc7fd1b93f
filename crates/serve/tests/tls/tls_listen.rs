//! Listeners with TLS: those of an engine, those that other threads add, and `tls://` addresses.

use std::io;

use crate::common::{Bench, Harness, bench};
use crate::tls::{Authority, noon};
use crate::two::{Two, quiet};
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions};
use windlass::{Address, Buf, Completions, Done, Op, Source};
use windlass_serve::modes::IoMode;
use windlass_serve::net::Proxy;
use windlass_serve::tls::{Error, Provider, Session, Tls, TlsClient};
use windlass_serve::{Action, Cause, Config, Conn, Context, Engine, Handler, Server};

crate::every_driver! {
    a_listener_of_an_engine_encrypts_what_it_accepts_from_now_on
    what_is_no_listener_does_not_encrypt
    a_header_of_a_proxy_still_comes_first
    a_listener_of_another_thread_encrypts_from_its_first_connection_on
    a_tls_address_needs_a_certificate
    a_datagram_socket_that_is_to_encrypt_is_refused
    a_farewell_of_the_next_server_is_no_plain_text
}

/// A server's settings for `localhost` by this authority, and the number of its certificate.
fn of(authority: &Authority) -> Tls {
    let (certificate, key) = authority.server(&["localhost"]).pems();
    let tls = Tls::builder().provider(Provider::Ring).clock(noon);
    tls.certificate(certificate, key).build().unwrap()
}

fn trust(authority: &Authority) -> TlsClient {
    let client = TlsClient::builder().provider(Provider::Ring).clock(noon);
    client.roots(authority.root()).build().unwrap()
}

fn a_listener_of_an_engine_encrypts_what_it_accepts_from_now_on<T: Harness>() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let mut two = Two::with::<T>(quiet(), of(&first), &trust(&first));
    let before = two.open();
    assert!(two.server.encrypt_listener(0, of(&second)));
    two.to = trust(&second).to("localhost").unwrap();
    let after = two.open();
    for (id, issuer) in [(before, "first"), (after, "second")] {
        two.client.write(id, issuer).unwrap();
        two.go("it is echoed", |two| two.heard(id) == issuer.as_bytes());
        let info = two.client.tls(id).unwrap().peer_certificate_info().unwrap();
        assert_eq!(info.issuer.as_deref(), Some(issuer));
    }
    // The plain one, too, from now on.
    assert!(two.server.encrypt_listener(1, of(&second)));
    let id = two.connect_to([two.plain.clone()]);
    two.go("it is open", |two| two.opened.contains(&id));
}

fn what_is_no_listener_does_not_encrypt<T: Harness>() {
    let authority = Authority::new("the root of a test");
    let mut two = Two::with::<T>(quiet(), of(&authority), &trust(&authority));
    let local = ([127, 0, 0, 1], 0);
    let options = DatagramOptions::default();
    let socket = two.server.bind_datagram(&mut two.watcher, local, options).unwrap();
    assert!(!two.server.encrypt_listener(socket, of(&authority)), "a datagram socket");
    assert!(!two.server.encrypt_listener(socket + 1, of(&authority)), "there is none");
    let gone = two.server.listen(&mut two.watcher, local, ListenOptions::default()).unwrap();
    assert!(two.server.close_listener(gone));
    two.flush();
    assert!(!two.server.encrypt_listener(gone, of(&authority)), "it is closed");
}

fn a_header_of_a_proxy_still_comes_first<T: Harness>() {
    let proxy: &'static Proxy =
        Box::leak(Box::new(Proxy::v1().from("127.0.0.0/8".parse().unwrap())));
    let authority = Authority::new("the root of a test");
    let mut two = Two::with::<T>(quiet().proxy(proxy), of(&authority), &trust(&authority));
    let id = two.connect();
    // The hello of the client is no header.
    let end = two.end(id);
    assert!(matches!(end.cause, Cause::Tls | Cause::Os(_)), "{end:?}");
    assert!(two.log.all().iter().any(|line| line.contains("cause=Header")), "{:?}", two.log.all());
}

/// Echoes, and encrypts the listener that another thread has added.
struct Encrypts(Option<Tls>);

impl Handler for Encrypts {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        assert!(c.tls().is_some());
        c.write(data);
        Action::None
    }
    fn listener_added(&mut self, server: &mut Context<'_, ()>, added: io::Result<usize>) -> Action {
        let tls = self.0.take().unwrap();
        assert!(server.engine().encrypt_listener(added.unwrap(), tls));
        Action::None
    }
}

/// Passes what has come through the session, and says what it says.
fn pump<T: Harness>(
    bench: &mut Bench<T::Driver, Encrypts>,
    client: Source,
    (session, fed): (&mut Session, &mut usize),
    plain: &mut Vec<u8>,
) {
    let heard = &bench.client(client).heard[*fed..];
    *fed += heard.len();
    let _ = session.feed_into(heard, plain);
    let mut out = Vec::new();
    session.take_output(&mut out);
    if !out.is_empty() {
        bench.say(client, out);
    }
}

fn a_listener_of_another_thread_encrypts_from_its_first_connection_on<T: Harness>() {
    let authority = Authority::new("the root of a test");
    let tls = std::cell::RefCell::new(Some(of(&authority)));
    let server = Server::new(move |_| Encrypts(tls.borrow_mut().take())).config(quiet());
    let mut b = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let listener = b.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let address = b.watcher.local_address(listener).unwrap();
    // It waits in the backlog when the listener comes.
    let client = b.connect_to(address);
    b.run_for(T::span(1.0));
    let handle = b.watcher.detach(listener).unwrap();
    b.running.remote().add_listener(handle).unwrap();
    let mut session = Session::client(&trust(&authority), "localhost").unwrap();
    let (mut fed, mut plain) = (0, Vec::new());
    b.until("it is open", |b| {
        pump::<T>(b, client, (&mut session, &mut fed), &mut plain);
        session.is_open()
    });
    let mut out = Vec::new();
    session.write_all(b"hello", &mut out).unwrap();
    b.say(client, out);
    b.until("it is echoed", |b| {
        pump::<T>(b, client, (&mut session, &mut fed), &mut plain);
        plain == b"hello"
    });
}

/// Shuts down when it serves.
struct Ends;

impl Handler for Ends {
    type State = ();
    fn serving(&mut self, _: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        assert_eq!(addresses.len(), 2);
        Action::Shutdown
    }
}

fn a_tls_address_needs_a_certificate<T: Harness>() {
    let tls = of(&Authority::new("the root of a test"));
    let server = || Server::new(|_| Ends).listen("tls://127.0.0.1:0").unwrap();
    let plain = server().listen("tcp://127.0.0.1:0").unwrap().tls(tls.clone());
    let mut watcher = T::watcher(windlass::Watcher::builder());
    let error = plain.start_on(&mut watcher).expect_err("it does not start");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("tls://127.0.0.1:0: Server::tls"), "{error}");
    assert_eq!(watcher.counters().sources, 0);
    let good = server().tls(tls).listen("tcp://127.0.0.1:0").unwrap();
    good.start_on(&mut watcher).unwrap();
}

fn a_datagram_socket_that_is_to_encrypt_is_refused<T: Harness>() {
    let tls = of(&Authority::new("the root of a test"));
    let mut watcher = T::watcher(windlass::Watcher::builder());
    let local = ([127, 0, 0, 1], 0);
    let socket = watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    let socket = watcher.detach(socket).unwrap();
    let new = || Server::new(|_| Ends);
    let servers = [new().listen("udp://127.0.0.1:0").unwrap(), new().listener(socket)];
    for server in servers {
        let error = server.tls(tls.clone()).start_on(&mut watcher).expect_err("it does not start");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.to_string(), "a datagram socket has no TLS");
        assert_eq!(watcher.counters().sources, 0);
    }
}

/// The door of a listener travels with a connection for which there is no room.
fn a_farewell_of_the_next_server_is_no_plain_text<T: Harness>() {
    let config = quiet().limits(quiet().limits.connections(1)).farewell(b"full");
    let mut watcher = T::watcher(windlass::Watcher::builder());
    let (mut first, mut other) = (Engine::<()>::new(config), Engine::<()>::new(config));
    let local = ([127, 0, 0, 1], 0);
    first.listen(&mut watcher, local, ListenOptions::default()).unwrap();
    assert!(first.encrypt_listener(0, of(&Authority::new("the root of a test"))));
    first.overflow_to(other.remote(&mut watcher));
    let address = watcher.local_address(first.listeners()[0]).unwrap();
    let options = ConnectOptions::default().token(1);
    for _ in 0..4 {
        watcher.connect([address.clone()], options).unwrap();
    }
    let (mut done, mut over) = (Completions::new(), 0);
    while over < 2 {
        watcher.wait(&mut done).unwrap();
        for completion in done.drain(..) {
            let rest = first.complete(&mut watcher, completion);
            let rest = rest.and_then(|rest| other.complete(&mut watcher, rest));
            let Some(rest) = rest else { continue };
            match rest.result {
                Ok(Done::Connected(_)) => {
                    watcher.submit(Op::read(rest.source).token(1)).unwrap();
                }
                Ok(Done::Read(data)) => {
                    assert!(data.is_empty(), "{data:?}");
                    over += 1;
                }
                Ok(_) => {}
                Err(_) => over += 1,
            }
        }
        while first.next_event(&mut watcher).is_some() {}
        while other.next_event(&mut watcher).is_some() {}
        first.flush(&mut watcher);
        other.flush(&mut watcher);
    }
    assert_eq!((first.counters().passed_on, other.counters().refused), (3, 2));
}

#[test]
fn a_thread_too_many_says_no_plain_text() {
    let tls = of(&Authority::new("the root of a test"));
    let server = Server::new(|_| Encrypts(None)).io_mode(IoMode::Blocking { threads: 1 });
    let server = server.config(Config::new().farewell(b"full"));
    let running = server.listen("tls://127.0.0.1:0").unwrap().tls(tls).start().unwrap();
    let at = running.addresses()[0].ip().unwrap();
    // Its handshake waits on the only thread.
    let _first = std::net::TcpStream::connect(at).unwrap();
    let mut second = std::net::TcpStream::connect(at).unwrap();
    let mut heard = Vec::new();
    let _ = io::Read::read_to_end(&mut second, &mut heard); // an end, or a reset
    assert!(heard.is_empty(), "{heard:?}");
    drop(running);
}

#[test]
fn a_client_needs_the_name_of_a_server() {
    let trust = trust(&Authority::new("the root of a test"));
    for name in ["", "a b", "-", "x..y", "https://localhost"] {
        let error = trust.to(name).unwrap_err();
        assert!(matches!(&error, Error::BadName(bad) if bad == name), "{error:?}");
    }
    for name in ["localhost", "LOCALHOST", "a.b.example", "192.0.2.1", "2001:db8::1"] {
        trust.to(name).unwrap();
    }
}
