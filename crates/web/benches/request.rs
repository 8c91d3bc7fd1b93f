//! What a request costs in user space: with a parse and a fixed answer only, with the codec in
//! callbacks of windlass-serve, and with an application.
//!
//! ```text
//! cargo bench -p windlass-web --bench request -- clients|floor|codec|app [DEPTH] [REQUESTS]
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null …
//! ```
//!
//! 64 connections send DEPTH requests each, in turns: all clients speak, then the loop serves all.
//! The clients are plain sockets of the same thread, at the same cost in each case. The difference
//! of two runs, with two numbers of requests, is what the requests between them cost; without those
//! of `clients`, it is the cost of the server.
#![allow(missing_docs)] // a bench has no users

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use windlass::{Buf, Completions, Watcher};
use windlass_http1::{Event, Limits, RequestDecoder, RequestHead, ResponseEncoder};
use windlass_serve::{Action, Conn, Handler, Server};
use windlass_web::App;

const CONNECTIONS: usize = 64;

/// A request of 419 bytes, as load generators send it.
const REQUEST: &str = "GET /plaintext HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20130501 Firefox/30.0 AppleWebKit/600.00 \
    Chrome/30.0.0000.0 Trident/10.0 Safari/600.00\r\n\
    Cookie: uid=12345678901234567890; __utma=1.1234567890.1234567890.1234567890.1234567890.12\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8,text/plain\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Connection: keep-alive\r\n\r\n";

/// What the floor answers. The applications answer with as many bytes.
const ANSWER: &str = "HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

/// Connected clients, and how many requests each sends at once.
struct Clients {
    sockets: Vec<TcpStream>,
    batch: String,
    answers: Vec<u8>,
}

impl Clients {
    fn connect(address: std::net::SocketAddr, depth: usize) -> Clients {
        let connect = |_| TcpStream::connect(address).unwrap();
        let sockets = (0..CONNECTIONS).map(connect).collect();
        let answers = vec![0; depth * ANSWER.len()];
        Clients { sockets, batch: REQUEST.repeat(depth), answers }
    }

    /// All clients speak; `serve` runs the loop until it has served each; all clients hear.
    fn rounds(&mut self, count: usize, mut serve: impl FnMut()) {
        for _ in 0..count {
            for socket in &mut self.sockets {
                socket.write_all(self.batch.as_bytes()).unwrap();
            }
            serve();
            for socket in &mut self.sockets {
                socket.read_exact(&mut self.answers).unwrap();
            }
        }
        assert!(self.answers.ends_with(b"\r\n\r\nHello, World!"));
    }
}

/// A server without a loop: it knows which sockets have something to read.
fn plain(depth: usize, rounds: usize, mut answer: impl FnMut(&[u8], &mut Vec<u8>)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut clients = Clients::connect(listener.local_addr().unwrap(), depth);
    let mut servers: Vec<_> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
    let (mut input, mut out) = (vec![0; 64 << 10], Vec::new());
    let batch = clients.batch.len();
    clients.rounds(rounds, || {
        for server in &mut servers {
            let mut filled = 0;
            while filled < batch {
                filled += server.read(&mut input[filled..]).unwrap();
            }
            out.clear();
            answer(&input[..filled], &mut out);
            server.write_all(&out).unwrap();
        }
    });
}

/// Answers without a look at the requests.
fn clients(depth: usize, rounds: usize) {
    let answers = ANSWER.repeat(depth);
    plain(depth, rounds, |_, out| out.extend_from_slice(answers.as_bytes()));
}

/// Parses each request with all its fields, and appends a fixed answer.
fn floor(depth: usize, rounds: usize) {
    plain(depth, rounds, |mut input, out| {
        while !input.is_empty() {
            let mut fields = [const { MaybeUninit::uninit() }; 64];
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(input, &mut fields).unwrap();
            let httparse::Status::Complete(len) = parsed else { panic!("a part of a request") };
            input = &input[len..];
            out.extend_from_slice(ANSWER.as_bytes());
        }
    });
}

/// The codec in a callback of windlass-serve.
struct Codec {
    head: RequestHead,
    out: Vec<u8>,
}

impl Handler for Codec {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        let (mut at, mut decoder) = (0, RequestDecoder::new());
        loop {
            let step = decoder.decode(&mut self.head, &data[at..]).unwrap();
            match step.event {
                Event::Head => {
                    count_one();
                    self.answer();
                }
                Event::NeedMore => break,
                _ => {}
            }
            at += step.consumed;
        }
        let id = c.id();
        c.engine().write_slice(id, &self.out).unwrap();
        self.out.clear();
        Action::None
    }
}

impl Codec {
    fn answer(&mut self) {
        let mut head = ResponseEncoder::new(&mut self.out, self.head.asked(), 200).unwrap();
        head.field("Date", "Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        head.field("Content-Type", "text/plain; charset=utf-8").unwrap();
        head.length(13).unwrap().data(&mut self.out, b"Hello, World!").unwrap();
    }
}

/// Requests that were answered.
static SERVED: AtomicUsize = AtomicUsize::new(0);

fn count_one() {
    // One thread counts, so this needs no atomic addition.
    SERVED.store(SERVED.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Lets `turn` run until the requests of all clients are answered, so many times.
fn run(mut clients: Clients, rounds: usize, mut turn: impl FnMut()) {
    let each = CONNECTIONS * clients.batch.len() / REQUEST.len();
    clients.rounds(rounds, || {
        SERVED.store(0, Ordering::Relaxed);
        while SERVED.load(Ordering::Relaxed) < each {
            turn();
        }
    });
}

fn codec(depth: usize, rounds: usize) {
    let mut watcher = Watcher::new().unwrap();
    let make = |_| Codec { head: RequestHead::new(Limits::default()), out: Vec::new() };
    let server = Server::new(make).listen("tcp://127.0.0.1:0").unwrap();
    let mut running = server.start_on(&mut watcher).unwrap();
    let listener = running.engine().listeners()[0];
    let address = watcher.local_address(listener).unwrap().ip().unwrap();
    let mut done = Completions::new();
    run(Clients::connect(address, depth), rounds, || {
        watcher.wait(&mut done).unwrap();
        running.serve(&mut watcher, &mut done);
    });
}

fn app(depth: usize, rounds: usize) {
    let mut watcher = Watcher::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let limits = windlass_web::Limits::new().requests(16_383);
    let app = App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/plaintext", |_, _| {
            count_one();
            "Hello, World!"
        })
        .limits(limits)
        .listen(listener)
        .unwrap();
    let mut running = app.start_on(&mut watcher).unwrap();
    let mut done = Completions::new();
    run(Clients::connect(address, depth), rounds, || {
        watcher.wait(&mut done).unwrap();
        running.serve(&mut watcher, &mut done);
    });
}

/// A case: its name, and the function that serves so many requests at once, so many times.
type Case = (&'static str, fn(usize, usize));

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let case = arguments.next().unwrap_or_else(|| "all".into());
    let mut number = |default| arguments.next().map_or(default, |count| count.parse().unwrap());
    let (depth, requests): (usize, usize) = (number(16), number(320_000));
    let cases: [Case; 4] = [("clients", clients), ("floor", floor), ("codec", codec), ("app", app)];
    for (name, run) in cases {
        if case == name || case == "all" {
            let start = Instant::now();
            run(depth, requests / depth / CONNECTIONS);
            let ns = start.elapsed().as_nanos() / requests as u128;
            println!("{name}: {ns} ns for a request, clients included");
        }
    }
}
