//! What an application allocates: nothing for a request, and few bytes for a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::alloc::{allocations, live_bytes};
use windlass::{Buf, Completions, Watcher};
use windlass_serve::{Action, Conn, Handler, Server};
use windlass_web::client::{Fetch, FetchEvent, FetchSettings};
use windlass_web::proxy::Upstream;
use windlass_web::{App, Client, Limits, Response, ServerLoop};

#[path = "../../../../tests/common/skip.rs"]
mod skip;

const PATIENCE: Duration = Duration::from_secs(20);

fn listener(address: &str) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves what a wait has returned.
type Serve<'a> = dyn FnMut(&mut Watcher, &mut Completions) + 'a;

/// A server on a watcher of this thread, and a function that runs one turn of it.
struct Served<'a> {
    watcher: Watcher,
    done: Completions,
    serve: Box<Serve<'a>>,
}

impl<'a> Served<'a> {
    fn new(watcher: Watcher, serve: impl FnMut(&mut Watcher, &mut Completions) + 'a) -> Served<'a> {
        Served { watcher, done: Completions::new(), serve: Box::new(serve) }
    }

    fn app<S: 'static>(app: App<S>, listener: TcpListener) -> Served<'a> {
        let mut watcher = Watcher::new().expect("a watcher");
        let app = app.listen(listener).expect("an address");
        let mut running: ServerLoop<S> = app.start_on(&mut watcher).expect("a server");
        Served::new(watcher, move |watcher, done| running.serve(watcher, done))
    }

    fn turn(&mut self) {
        self.watcher.wait_timeout(&mut self.done, PATIENCE).expect("a wait");
        (self.serve)(&mut self.watcher, &mut self.done);
    }

    /// Runs turns until a client has heard so many bytes.
    fn hear(&mut self, client: &mut TcpStream, bytes: &mut [u8]) {
        client.set_nonblocking(true).expect("a socket");
        let (mut heard, begin) = (0, Instant::now());
        while heard < bytes.len() {
            assert!(begin.elapsed() < PATIENCE, "{heard} bytes have come");
            match client.read(&mut bytes[heard..]) {
                Ok(0) => panic!("the connection has ended behind {heard} bytes"),
                Ok(count) => heard += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(),
                Err(error) => panic!("{error}"),
            }
        }
        client.set_nonblocking(false).expect("a socket");
    }

    /// Sends pieces, each one behind a turn that has read the one before, and hears the end.
    fn ask(&mut self, client: &mut TcpStream, pieces: &[&[u8]], answers: &mut [u8]) {
        for (number, piece) in pieces.iter().enumerate() {
            client.write_all(piece).expect("room");
            if number + 1 < pieces.len() {
                self.turn();
            }
        }
        self.hear(client, answers);
    }
}

/// What a response has, in bytes, whose body has so many.
fn len(kind: &str, body: usize) -> usize {
    let date = "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    let head = format!("HTTP/1.1 200 OK\r\n{date}Content-Type: {kind}\r\nContent-Length: {body}");
    head.len() + 4 + body
}

/// More than the counter of the limit can count.
#[test]
fn without_a_limit_a_connection_has_any_number_of_requests() {
    let (listener, address) = listener("127.0.0.1:0").expect("a listener");
    let app = App::new().get("/", |_, _| "ok").limits(Limits::new().requests(u16::MAX));
    let mut served = Served::app(app, listener);
    let mut client = TcpStream::connect(address).expect("a connection");
    let pipeline = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(128);
    let mut answers = vec![0; 128 * len("text/plain; charset=utf-8", 2)];
    for _ in 0..=(1 << 14) / 128 {
        served.ask(&mut client, &[&pipeline], &mut answers);
    }
}

#[test]
fn a_request_allocates_nothing() {
    const ROUNDS: usize = 100;
    const TEXT: &str = "text/plain; charset=utf-8";
    let (listener, address) = listener("127.0.0.1:0").expect("a listener");
    let app = App::new()
        .get("/static", |_, _| "Hello, World!")
        .get("/hello/{name}", |_, _| "Hello!")
        .post("/echo", |_, q| q.body().map(<[u8]>::to_vec));
    let mut served = Served::app(app, listener);
    let mut client = TcpStream::connect(address).expect("a connection");
    let get = b"GET /static HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n";
    let named = b"GET /hello/a%20b HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let chunked = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\nbody\r\n0\r\n\r\n";
    let pipeline = get.repeat(16);
    // What is sent, how many bytes of answers come, and how often the handlers allocate.
    let cases: [(&str, &[&[u8]], usize, u64); 7] = [
        ("static", &[get], len(TEXT, 13), 0),
        ("with a part of the path", &[named], len(TEXT, 6), 0),
        ("echo", &[post], len("application/octet-stream", 4), 1),
        ("pipelined", &[&pipeline], 16 * len(TEXT, 13), 0),
        ("a head in pieces", &[&get[..5], &get[5..30], &get[30..]], len(TEXT, 13), 0),
        ("a body in pieces", &[&post[..53], &post[53..]], len("application/octet-stream", 4), 1),
        ("chunks", &[&chunked[..65], &chunked[65..]], len("application/octet-stream", 4), 1),
    ];
    for (name, pieces, len, by_handlers) in cases {
        let mut answers = vec![0; len];
        let mut round = || served.ask(&mut client, pieces, &mut answers);
        (0..20).for_each(|_| round()); // tables and buffers grow
        let before = allocations();
        (0..ROUNDS).for_each(|_| round());
        let count = allocations() - before - by_handlers * ROUNDS as u64;
        // What comes in pieces is bounded in time. A limit that begins allocates now and then, but
        // no buffer of a request does.
        let most = if pieces.len() > 1 { ROUNDS as u64 / 4 } else { 0 };
        assert!(count <= most, "{name}: {count} for {ROUNDS} rounds");
        assert!(answers.starts_with(b"HTTP/1.1 200 OK\r\n"), "{name}");
        assert!(answers.ends_with(b"Hello, World!") || name != "pipelined", "{name}");
    }
}

/// A server in a thread of its own, which answers each read that ends a request with the same
/// bytes.
fn answers_with(answer: Vec<u8>) -> SocketAddr {
    let (listener, address) = listener("127.0.0.1:0").expect("a listener");
    std::thread::spawn(move || {
        let (mut server, _) = listener.accept().expect("the proxy");
        let (mut bytes, mut len) = ([0; 4096], 0);
        while let Ok(count @ 1..) = server.read(&mut bytes[len..]) {
            len += count;
            if bytes[..len].ends_with(b"\r\n\r\n") || bytes[..len].ends_with(b"body") {
                server.write_all(&answer).expect("it reads");
                len = 0;
            }
        }
    });
    address
}

#[test]
fn a_request_that_is_passed_on_allocates_nothing() {
    const ROUNDS: usize = 100;
    let get = b"GET /x HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n";
    let post = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let small = "Content-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!".to_owned();
    let large = format!("Content-Length: 50000\r\n\r\n{}", "b".repeat(50_000));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned();
    // What is sent, what comes back, and the most allocations of a hundred rounds. A clock that
    // begins allocates now and then, and so does what waits for a client.
    let cases: [(&str, &[u8], String, u64); 4] = [
        ("get", get, small.clone(), 5),
        ("post", post, small, 5),
        ("chunked", get, chunked, 5),
        ("large", get, large, 300),
    ];
    for (name, request, response, most) in cases {
        const HEAD: &str = "HTTP/1.1 200 OK\r\nDate: now\r\n";
        const VIA: &str = "Via: 1.1 windlass\r\n";
        let inner = answers_with(format!("{HEAD}{response}").into_bytes());
        let up = move |_| Upstream::new(&format!("http://{inner}")).expect("a URL");
        let app = App::with(up).fallback(|up, q| q.forward(up)).at_head();
        let (listener, address) = listener("127.0.0.1:0").expect("a listener");
        let mut served = Served::app(app, listener);
        let mut client = TcpStream::connect(address).expect("a connection");
        let mut answer = vec![0; HEAD.len() + VIA.len() + response.len()];
        let mut round = || served.ask(&mut client, &[request], &mut answer);
        (0..20).for_each(|_| round()); // tables and buffers grow
        let before = allocations();
        (0..ROUNDS).for_each(|_| round());
        let count = allocations() - before;
        println!("{name}: {count} allocations for {ROUNDS} rounds");
        assert!(count <= most, "{name}: {count} for {ROUNDS} rounds");
        assert!(answer.starts_with(HEAD.as_bytes()), "{name}");
    }
}

/// Its handler has seen the body: nobody needs it while the answer is still to come.
#[test]
fn a_request_of_a_client_has_three_allocations() {
    const ROUNDS: u64 = 100;
    let server = App::new().get("/", |_, _| "Hello, World!").listen("127.0.0.1:0").unwrap();
    let server = server.start().expect("a server");
    let url = format!("http://{}/", server.address());
    let (mut watcher, mut done) = (Watcher::new().expect("a watcher"), Completions::new());
    let mut client = Client::new(FetchSettings::new());
    let mut call = || {
        client.fetch(Fetch::get(url.clone()));
        loop {
            client.flush(&mut watcher);
            watcher.wait_timeout(&mut done, PATIENCE).expect("a wait");
            let mut batch = done.visit();
            if let Some(event) = client.next_event_in(&mut watcher, &mut batch) {
                let FetchEvent::Fetched { result, .. } = event else { panic!("{event:?}") };
                assert_eq!(result.expect("a response").body(), b"Hello, World!");
                return;
            }
        }
    };
    (0..ROUNDS).for_each(|_| call());
    let before = allocations();
    (0..ROUNDS).for_each(|_| call());
    // The URL, the request, and the response.
    assert!(allocations() - before <= 3 * ROUNDS + 5, "{}", allocations() - before);
    server.shutdown().expect("it ends");
}

#[test]
fn a_request_that_waits_for_its_answer_keeps_no_body() {
    const LEN: usize = 1 << 20;
    let (tell, told) = channel();
    let (listener, address) = listener("127.0.0.1:0").expect("a listener");
    let app = App::new().post("/", move |_, q| {
        assert_eq!(q.body().map(<[u8]>::len).ok(), Some(LEN));
        let (later, response) = Response::later();
        tell.send(later).expect("the test listens");
        response
    });
    let mut served = Served::app(app, listener);
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_nonblocking(true).expect("a socket");
    let mut request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n");
    request.push_str(&"b".repeat(LEN));
    let (before, begin) = (live_bytes(), Instant::now());
    let mut left = request.as_bytes();
    let later = loop {
        assert!(begin.elapsed() < PATIENCE, "{} bytes are left", left.len());
        match client.write(left) {
            Ok(count) => left = &left[count..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        served.turn();
        if let Ok(later) = told.try_recv() {
            break later;
        }
    };
    let held = live_bytes() - before;
    assert!(held < LEN as isize / 2, "{held} bytes");
    later.respond("done").expect("it waits");
    served.hear(&mut client, &mut vec![0; len("text/plain; charset=utf-8", 4)]);
}

/// Bytes of the answers to connections that are idle then.
const ANSWER: usize = 130;

/// Answers what it gets with so many bytes as an application does.
struct Answers;

impl Handler for Answers {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write_slice(&[b'a'; ANSWER]);
        Action::None
    }
}

const STEPS: usize = 64;
const STEP: usize = 32;

/// Bytes for each of many connections that have been answered once. They come in batches, so that
/// the lists of connections with work stay short.
fn idle_bytes(served: Served<'_>, address: SocketAddr) -> f64 {
    idle_bytes_behind(served, address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ANSWER)
}

/// The same, with a request and the length of its answer.
fn idle_bytes_behind(
    mut served: Served<'_>,
    address: SocketAddr,
    request: &[u8],
    answer: usize,
) -> f64 {
    windlass::fd::raise_max_open_files().expect("a limit");
    let mut clients = Vec::with_capacity(STEPS * STEP);
    let mut batch = |served: &mut Served<'_>| {
        let start = clients.len();
        for _ in 0..STEP {
            let mut client = TcpStream::connect(address).expect("a connection");
            client.write_all(request).expect("room");
            clients.push(client);
        }
        for client in &mut clients[start..] {
            served.hear(client, &mut vec![0; answer]);
        }
    };
    let before = live_bytes();
    (0..STEPS).for_each(|_| batch(&mut served));
    (live_bytes() - before) as f64 / (STEPS * STEP) as f64
}

fn bytes_of_serve(address: &str) -> std::io::Result<f64> {
    let (listener, address) = listener(address)?;
    let mut watcher = Watcher::new().expect("a watcher");
    let server = Server::new(|_| Answers).listener(listener);
    let mut running = server.start_on(&mut watcher).expect("a server");
    let served = Served::new(watcher, move |watcher, done| running.serve(watcher, done));
    Ok(idle_bytes(served, address))
}

fn bytes_of_app(address: &str) -> std::io::Result<f64> {
    let (listener, address) = listener(address)?;
    let app = App::new().get("/", |_, _| "Hello, World!");
    Ok(idle_bytes(Served::app(app, listener), address))
}

#[test]
fn an_idle_connection_takes_16_bytes_more_than_one_of_serve() {
    let (serve, app) =
        (bytes_of_serve("127.0.0.1:0").unwrap(), bytes_of_app("127.0.0.1:0").unwrap());
    println!("{serve:.1} bytes for a connection of serve, {app:.1} with requests");
    // The one buffer for output, the table of fields, the table of routes: some kilobytes in all.
    let slack = 16384.0 / (STEPS * STEP) as f64;
    assert!(app - serve <= 16.0 + slack, "{:.1} bytes more", app - serve);
}

/// The address of a peer of IPv6 stands in a table, 32 bytes each.
#[test]
fn an_idle_connection_of_ipv6_takes_32_bytes_more() {
    let serve = match bytes_of_serve("[::1]:0") {
        Ok(bytes) => bytes,
        Err(error) => return skip::skip(skip::Needs::Luck, format!("no IPv6: {error}")),
    };
    let app = bytes_of_app("[::1]:0").expect("a listener");
    println!("{serve:.1} bytes for a connection of serve, {app:.1} with requests");
    let slack = 16384.0 / (STEPS * STEP) as f64;
    assert!(app - serve <= 48.0 + slack, "{:.1} bytes more", app - serve);
}

#[cfg(feature = "websocket")]
mod websocket {
    use windlass_web::Status;
    use windlass_web::websocket::{Message, Peer, Socket};
    use windlass_websocket::{FrameHead, Kind, mask};

    use super::*;

    /// Echoes, and counts.
    struct Counts(u64);

    impl Peer<()> for Counts {
        fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
            self.0 += 1;
            assert!(c.send(message));
        }
    }

    fn app() -> App<()> {
        App::new().websocket("/", |_, _| Ok::<_, Status>(Counts(0)))
    }

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    const HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\n\
        Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
        Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

    /// A message of a client, and the length of its echo.
    fn message(kind: Kind, len: usize) -> (Vec<u8>, usize) {
        let (head, key) = (FrameHead::new(kind.into(), len as u64), [1, 2, 3, 4]);
        let (mut frame, mut payload) = (Vec::new(), vec![b'm'; len]);
        head.masked(key).put(&mut frame);
        mask(key, &mut payload);
        frame.extend(payload);
        (frame, head.size() + len)
    }

    #[test]
    fn a_message_allocates_nothing() {
        const ROUNDS: u64 = 100;
        let (listener, address) = listener("127.0.0.1:0").expect("a listener");
        let mut served = Served::app(app(), listener);
        let mut client = TcpStream::connect(address).expect("a connection");
        served.ask(&mut client, &[REQUEST.as_bytes()], &mut [0; HEAD.len()]);
        let ping = {
            let (mut frame, _) = message(Kind::Text, 5);
            frame[0] = 0x89;
            frame
        };
        let small = message(Kind::Text, 5);
        let many: Vec<u8> = small.0.repeat(16);
        let cases = [
            ("empty", message(Kind::Text, 0)),
            ("small", small.clone()),
            ("medium", message(Kind::Binary, 1000)),
            ("large", message(Kind::Text, 10_000)),
            ("pipelined", (many, 16 * small.1)),
            ("ping", (ping, 7)),
        ];
        for (name, (frame, len)) in cases {
            let mut echo = vec![0; len];
            let mut round = || served.ask(&mut client, &[&frame], &mut echo);
            (0..20).for_each(|_| round()); // tables and buffers grow
            let before = allocations();
            (0..ROUNDS).for_each(|_| round());
            let count = allocations() - before;
            assert_eq!(count, 0, "{name}: {count} for {ROUNDS} rounds");
        }
        // One in pieces has a buffer, and a limit of its time, which allocates now and then.
        let (frame, len) = message(Kind::Text, 1000);
        let mut echo = vec![0; len];
        let mut round = || served.ask(&mut client, &[&frame[..500], &frame[500..]], &mut echo);
        (0..20).for_each(|_| round());
        let before = allocations();
        (0..ROUNDS).for_each(|_| round());
        let count = allocations() - before;
        println!("{count} allocations for {ROUNDS} messages in pieces");
        assert!(count <= 4 * ROUNDS, "{count} for {ROUNDS} rounds");
    }

    #[test]
    fn an_idle_websocket_takes_64_bytes_more_than_an_idle_connection() {
        let http = bytes_of_app("127.0.0.1:0").unwrap();
        let (listener, address) = listener("127.0.0.1:0").unwrap();
        let (frame, len) = message(Kind::Text, 5);
        let all = [REQUEST.as_bytes(), &frame].concat();
        let served = Served::app(app(), listener);
        let websocket = idle_bytes_behind(served, address, &all, HEAD.len() + len);
        println!("{http:.1} bytes for a connection with requests, {websocket:.1} for a WebSocket");
        let slack = 16384.0 / (STEPS * STEP) as f64;
        assert!(websocket - http <= 64.0 + slack, "{:.1} bytes more", websocket - http);
    }
}
