//! Connections that go over to another protocol: what takes them over gets every byte, once and in
//! order, and nothing else does.
#![allow(missing_docs)] // a test binary has no users

mod net;

use std::time::Duration;

use net::{Harness, Net};
use windlass::Buf;
use windlass_serve::{Cause, Id, Refusal};
use windlass_web::upgrade::{Protocol, RawConn, Released};
use windlass_web::{App, Response, Status};

every_driver! {
    every_cut_of_an_upgrade_gives_the_same_bytes
    what_was_read_ahead_comes_first
    a_body_comes_before_the_other_protocol
    a_connect_makes_a_tunnel
    a_request_without_an_offer_is_refused_and_the_next_one_answered
    an_old_client_cannot_upgrade
    a_hook_may_upgrade
    a_body_that_is_not_read_refuses_the_upgrade
    an_upgrade_to_nothing_is_an_error
    no_protocol_is_offered_by_itself
    a_client_that_closes_right_behind_the_upgrade
    the_owner_of_the_descriptor_gets_what_was_read_ahead
    output_waits_until_there_is_room
    a_panic_ends_its_connection_alone
    a_shutdown_tells_the_other_protocol
    an_idle_connection_hears_of_its_limit
    another_thread_wakes_a_connection
}

/// What has happened to connections with another protocol.
#[derive(Default)]
struct Log {
    opened: usize,
    ids: Vec<Id>,
    bytes: Vec<u8>,
    eof: usize,
    drained: usize,
    limits: Vec<Cause>,
    closed: Vec<Cause>,
    released: Vec<Released>,
    refused: Vec<Refusal>,
}

/// Echoes what comes, and does what its first bytes say.
struct Echo;

impl Protocol<Log> for Echo {
    fn opened(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>) {
        log.opened += 1;
        log.ids.push(c.id());
        c.write("hello ").expect("there is room");
    }

    fn data(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>, data: Buf) {
        log.bytes.extend_from_slice(&data);
        assert!(!data.starts_with(b"!"), "as it was told to");
        c.write(data).expect("there is room");
    }

    fn eof(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>) {
        log.eof += 1;
        c.write_slice(b" bye").expect("there is room");
        c.close();
    }

    fn limit_reached(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>, cause: Cause) {
        log.limits.push(cause);
        c.close();
    }

    fn wake(&mut self, _: &mut Log, c: &mut RawConn<'_, Log>) {
        c.write(" woken").expect("there is room");
    }

    fn stopping(&mut self, _: &mut Log, c: &mut RawConn<'_, Log>) {
        c.write(" stop").expect("there is room");
        c.close();
    }

    fn closed(self: Box<Self>, log: &mut Log, cause: Cause) {
        log.closed.push(cause);
    }
}

/// Leaves at once, or behind its first bytes.
struct Leave {
    at_once: bool,
}

impl Protocol<Log> for Leave {
    fn opened(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>) {
        log.opened += 1;
        if self.at_once {
            c.detach().expect("it may leave");
        }
    }

    fn data(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>, data: Buf) {
        let (first, rest) = data.split_at(1);
        log.bytes.extend_from_slice(first);
        if c.unread(rest.to_vec()).is_ok() {
            log.refused.extend(c.detach().err());
        }
    }

    fn detached(self: Box<Self>, log: &mut Log, released: Released) {
        log.released.push(released);
    }
}

/// Writes until it is full, and again when there is room.
struct Fill(usize);

impl Fill {
    fn write(&mut self, c: &mut RawConn<'_, Log>) {
        while self.0 > 0 && !c.is_full() {
            self.0 -= 1;
            c.write(vec![b'x'; 10_000]).expect("there is room");
        }
        if self.0 == 0 {
            c.close();
        }
    }
}

impl Protocol<Log> for Fill {
    fn data(&mut self, _: &mut Log, c: &mut RawConn<'_, Log>, _: Buf) {
        self.write(c);
    }

    fn drained(&mut self, log: &mut Log, c: &mut RawConn<'_, Log>) {
        log.drained += 1;
        self.write(c);
    }
}

/// The application, with a place to look at what has happened.
fn app() -> App<Log> {
    App::with(|_| Log::default())
        .get("/", |_, _| "page")
        .get("/echo", |_, q| q.upgrade("echo", Echo).header("X-Made", "yes"))
        .post("/echo", |_, q| {
            let body = q.text().unwrap_or("").to_owned();
            q.upgrade("echo", Echo).header("X-Body", body)
        })
        .post("/early", |_, q| q.upgrade("echo", Echo))
        .at_head()
        .get("/leave", |_, q| q.upgrade("leave", Leave { at_once: true }))
        .get("/leave-later", |_, q| q.upgrade("leave", Leave { at_once: false }))
        .get("/fill", |_, q| q.upgrade("fill", Fill(500)))
        .get("/nothing", |_, q| q.upgrade("", Echo))
        .get("/status", |_, _| Status::SWITCHING_PROTOCOLS)
        .get("/dropped", |_, q| {
            drop(q.upgrade("echo", Echo));
            "no"
        })
        .get("/twice", |_, q| {
            let first = q.upgrade("echo", Echo);
            drop(q.upgrade("echo", Echo));
            first
        })
        .nest("/hooked", hooked())
        .connect(|_, q| {
            let target = q.target().to_owned();
            if target.starts_with("deny") {
                return Response::from(Status::FORBIDDEN);
            }
            q.tunnel(Echo).header("X-To", target)
        })
}

/// Its hook answers all requests.
fn hooked() -> App<Log> {
    App::with(|_| Log::default())
        .before(|_, q| Some(q.upgrade("echo", Echo)))
        .get("/{name}", |_, _| "the hook has answered")
}

fn net<T: Harness>() -> Net<Log> {
    Net::new::<T>(app())
}

fn log(net: &mut Net<Log>) -> &mut Log {
    net.server.state()
}

/// A request that offers protocols.
fn upgrade(path: &str, offers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: {offers}\r\n\r\n")
}

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\n";

/// What a client hears behind the head, which has to begin with this line.
#[track_caller]
fn behind<'a>(heard: &'a str, line: &str) -> (&'a str, &'a str) {
    assert!(heard.starts_with(line), "{heard:?}");
    heard.split_once("\r\n\r\n").expect("a whole head")
}

fn every_cut_of_an_upgrade_gives_the_same_bytes<T: Harness>() {
    let mut net = net::<T>();
    let whole = format!("GET / HTTP/1.1\r\nHost: h\r\n\r\n{}early", upgrade("/echo", "x/1, Echo"));
    let step = if T::VIRTUAL { 1 } else { 3 };
    let mut cuts = 0;
    for at in (1..whole.len()).step_by(step) {
        let client = net.connect();
        let (one, two) = whole.split_at(at);
        net.say(client, one.to_owned());
        for _ in 0..3 {
            net.turn(Duration::ZERO);
        }
        net.say(client, two.to_owned());
        net.until_heard(client, "early");
        net.say(client, " late");
        net.until_heard(client, " late");
        let heard = net.heard(client);
        let (_, rest) = behind(&heard, "HTTP/1.1 200 OK\r\n");
        let (head, rest) = behind(rest.strip_prefix("page").expect("its body"), SWITCHED);
        assert!(head.contains("\r\nUpgrade: echo\r\nConnection: Upgrade"), "{head:?}");
        assert!(head.contains("\r\nX-Made: yes\r\n") && !head.contains("Content"), "{head:?}");
        assert_eq!(rest, "hello early late", "cut at {at}");
        net.finish(client);
        assert!(net.until_end(client).ends_with(" bye"));
        cuts += 1;
    }
    net.until("all have ended", |net| log(net).closed.len() == cuts);
    let log = log(&mut net);
    assert_eq!((log.opened, log.eof), (cuts, cuts));
    assert_eq!(log.bytes, b"early late".repeat(cuts));
}

fn what_was_read_ahead_comes_first<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    // A request of the other protocol that looks like one of HTTP is none.
    let http = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let long = "0123456789".repeat(5000);
    net.say(client, format!("{}{http}{long}", upgrade("/echo", "echo")));
    net.until_heard(client, &long);
    let heard = net.heard(client);
    assert_eq!(behind(&heard, SWITCHED).1, format!("hello {http}{long}"));
}

fn a_body_comes_before_the_other_protocol<T: Harness>() {
    let mut net = net::<T>();
    let fields = "Host: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n";
    for body in [
        "Content-Length: 4\r\n\r\nbody",
        "Transfer-Encoding: chunked\r\n\r\n\
         2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
    ] {
        let client = net.connect();
        net.say(client, format!("POST /echo HTTP/1.1\r\n{fields}{body}raw"));
        net.until_heard(client, "hello raw");
        let heard = net.heard(client);
        assert!(behind(&heard, SWITCHED).0.contains("X-Body: body\r\n"), "{heard:?}");
    }
    assert_eq!(log(&mut net).bytes, b"rawraw");
}

fn a_connect_makes_a_tunnel<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, "CONNECT there:443 HTTP/1.1\r\nHost: there:443\r\n\r\nearly");
    net.until_heard(client, "hello early");
    let heard = net.heard(client);
    let (head, _) = behind(&heard, "HTTP/1.1 200 OK\r\n");
    assert!(head.contains("X-To: there:443"), "{head:?}");
    assert!(!head.contains("Content-Length") && !head.contains("Transfer"), "{head:?}");
    // A tunnel that is refused closes: what follows may be of the other protocol.
    let client = net.connect();
    net.say(client, "CONNECT deny:1 HTTP/1.1\r\nHost: deny:1\r\n\r\nGET / HTTP/1.1\r\n");
    let heard = net.until_end(client);
    assert!(heard.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{heard:?}");
    assert_eq!(heard.matches("HTTP/1.1").count(), 1, "{heard:?}");
    assert_eq!(log(&mut net).opened, 1);
}

fn a_request_without_an_offer_is_refused_and_the_next_one_answered<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    let plain = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
    let unnamed = "GET /echo HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\n\r\n";
    let other = upgrade("/echo", "h2c, echoes");
    net.say(client, format!("{plain}{unnamed}{other}GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    net.until_heard(client, "page");
    let heard = net.heard(client);
    let refused = "HTTP/1.1 426 Upgrade Required\r\n";
    assert_eq!(heard.matches(refused).count(), 3, "{heard:?}");
    assert_eq!(heard.matches("Upgrade: echo\r\n").count(), 3, "{heard:?}");
    assert_eq!(heard.matches("Connection: Upgrade\r\n").count(), 3, "{heard:?}");
    assert_eq!(log(&mut net).opened, 0);
}

fn an_old_client_cannot_upgrade<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, upgrade("/echo", "echo").replace("HTTP/1.1", "HTTP/1.0"));
    let heard = net.until_end(client);
    assert!(heard.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{heard:?}");
    assert_eq!(log(&mut net).opened, 0);
}

fn a_hook_may_upgrade<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, upgrade("/hooked/a", "echo") + "raw");
    net.until_heard(client, "hello raw");
    let client = net.connect();
    net.say(client, "GET /hooked/a HTTP/1.1\r\nHost: h\r\n\r\n");
    net.until_heard(client, "needs the protocol echo");
}

fn a_body_that_is_not_read_refuses_the_upgrade<T: Harness>() {
    let mut net = net::<T>();
    let head = upgrade("/early", "echo").replace("GET", "POST");
    for rest in ["", "body", "bo"] {
        let client = net.connect();
        let head = head.replace("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\n");
        net.say(client, head + rest);
        net.finish(client);
        let heard = net.until_end(client);
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{heard:?}");
    }
    assert_eq!(log(&mut net).opened, 0);
    // Without a body it goes over, however the head is cut.
    for at in [1, head.len() - 1, head.len()] {
        let client = net.connect();
        let (one, two) = head.split_at(at);
        net.say(client, one.to_owned());
        net.turn(Duration::ZERO);
        net.say(client, format!("{two}raw"));
        net.until_heard(client, "hello raw");
    }
}

fn an_upgrade_to_nothing_is_an_error<T: Harness>() {
    let mut net = net::<T>();
    for path in ["/nothing", "/status", "/twice"] {
        let client = net.connect();
        net.say(client, upgrade(path, ", echo"));
        net.finish(client);
        let heard = net.until_end(client);
        assert!(heard.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{path}: {heard:?}");
    }
    let client = net.connect();
    net.say(client, upgrade("/dropped", "echo"));
    net.until_heard(client, "\r\n\r\nno");
    let log = log(&mut net);
    assert_eq!((log.opened, log.closed.len()), (0, 0));
}

fn no_protocol_is_offered_by_itself<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    let settings = "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA";
    let offer = format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{settings}");
    net.say(client, format!("GET / HTTP/1.1\r\nHost: h\r\n{offer}\r\n\r\n"));
    net.until_heard(client, "page");
    let heard = net.heard(client);
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && !heard.contains("Upgrade"), "{heard:?}");
    // The preface of HTTP/2 is no request of HTTP/1.
    let client = net.connect();
    net.say(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let heard = net.until_end(client);
    assert!(heard.starts_with("HTTP/1.1 5") || heard.starts_with("HTTP/1.1 4"), "{heard:?}");
}

fn a_client_that_closes_right_behind_the_upgrade<T: Harness>() {
    let mut net = net::<T>();
    for early in ["", "early"] {
        let client = net.connect();
        net.say(client, upgrade("/echo", "echo") + early);
        net.finish(client);
        let heard = net.until_end(client);
        assert_eq!(behind(&heard, SWITCHED).1, format!("hello {early} bye"));
    }
    net.until("both are over", |net| log(net).closed.len() == 2);
    assert_eq!((log(&mut net).eof, log(&mut net).opened), (2, 2));
}

fn the_owner_of_the_descriptor_gets_what_was_read_ahead<T: Harness>() {
    let mut net = net::<T>();
    for (path, first) in [("/leave", ""), ("/leave-later", "e")] {
        let client = net.connect();
        net.say(client, upgrade(path, "leave") + "early");
        net.until("it has left", |net| !log(net).released.is_empty());
        let released = log(&mut net).released.pop().expect("one");
        let taken = std::mem::take(&mut log(&mut net).bytes);
        assert_eq!(taken, first.as_bytes());
        let mut all: Vec<u8> = released.undelivered.iter().flat_map(|data| data.to_vec()).collect();
        assert!(!released.eof);
        // Whoever has the descriptor goes on.
        let owner = net.attach(released.handle);
        net.say(client, " late");
        let rest = format!("{} late", &"early"[first.len()..]);
        net.until("all has come", |net| all.len() + net.heard(owner).len() == rest.len());
        all.extend_from_slice(net.heard(owner).as_bytes());
        assert_eq!(String::from_utf8_lossy(&all), rest);
        net.say(owner, "answer");
        net.until_heard(client, "\r\n\r\nanswer");
    }
}

fn output_waits_until_there_is_room<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, upgrade("/fill", "fill") + "go");
    let heard = net.until_end(client);
    assert_eq!(behind(&heard, SWITCHED).1.len(), 5_000_000);
    assert!(log(&mut net).drained > 0);
}

fn a_panic_ends_its_connection_alone<T: Harness>() {
    let mut net = net::<T>();
    let (other, client) = (net.connect(), net.connect());
    net.say(other, upgrade("/echo", "echo"));
    net.until_heard(other, "hello ");
    net.say(client, upgrade("/echo", "echo"));
    net.until_heard(client, "hello ");
    net.say(client, "!");
    net.until("it is closed", |net| !log(net).closed.is_empty());
    assert_eq!(log(&mut net).closed, [Cause::Panicked]);
    net.say(other, "goes on");
    net.until_heard(other, "goes on");
}

fn a_shutdown_tells_the_other_protocol<T: Harness>() {
    let mut net = net::<T>();
    let (client, idle) = (net.connect(), net.connect());
    net.say(client, upgrade("/echo", "echo"));
    net.say(idle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    net.until_heard(client, "hello ");
    net.until_heard(idle, "page");
    let Net { server, watcher, .. } = &mut net;
    server.stop(watcher);
    assert!(net.until_end(client).ends_with("hello  stop"));
    net.until_end(idle);
    net.finish(client);
    net.finish(idle);
    net.until("it is over", |net| net.server.is_over());
    assert_eq!(log(&mut net).closed.len(), 1);
}

fn an_idle_connection_hears_of_its_limit<T: Harness>() {
    if !T::VIRTUAL {
        return; // what is about time is shown where it is virtual
    }
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, upgrade("/echo", "echo"));
    net.until_heard(client, "hello ");
    let begin = net.watcher.update_now();
    net.until("it has heard", |net| !log(net).limits.is_empty());
    assert_eq!(log(&mut net).limits, [Cause::Idle]);
    assert!(net.watcher.now() - begin >= Duration::from_secs(50));
    net.until_end(client);
}

fn another_thread_wakes_a_connection<T: Harness>() {
    let mut net = net::<T>();
    let client = net.connect();
    net.say(client, upgrade("/echo", "echo"));
    net.until_heard(client, "hello ");
    let (remote, id) = (net.server.remote(), log(&mut net).ids[0]);
    assert!(std::thread::spawn(move || remote.wake(id)).join().expect("a thread"));
    net.until_heard(client, "hello  woken");
    net.finish(client);
    net.until("it is over", |net| !log(net).closed.is_empty());
    assert!(!net.server.remote().wake(id), "it has ended");
}

#[cfg(feature = "ring")]
mod tls {
    use windlass_web::tls::{Pem, Tls, TlsClient};

    use super::{Harness, Net, Refusal, app, log, upgrade};
    use crate::every_driver;

    every_driver! {
        a_descriptor_with_tls_does_not_leave
    }

    /// All is as without TLS, but a session does not leave its connection.
    fn a_descriptor_with_tls_does_not_leave<T: Harness>() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
        let certificate = Pem::bytes(made.cert.pem());
        let key = Pem::bytes(made.signing_key.serialize_pem());
        let server = Tls::builder().certificate(certificate.clone(), key).build().expect("one");
        let client = TlsClient::builder().roots(certificate).build().expect("a client");
        let to = client.to("localhost").expect("a name");
        let mut net = Net::with_tls::<T>(app(), server, to);
        let client = net.connect();
        net.say(client, upgrade("/leave-later", "leave") + "early");
        net.until("it has tried", |net| !log(net).refused.is_empty());
        // What it has given back comes again, and is refused again.
        net.until("all has come", |net| log(net).bytes == b"early");
        assert!(log(&mut net).refused.iter().all(|reason| *reason == Refusal::Tls));
        assert!(log(&mut net).released.is_empty());
        let client = net.connect();
        net.say(client, upgrade("/echo", "echo") + "early");
        net.until_heard(client, "hello early");
        net.finish(client);
        assert!(net.until_end(client).ends_with("hello early bye"));
    }
}
