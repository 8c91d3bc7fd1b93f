//! What compressed messages of WebSockets take: per connection, per message, and at most.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::alloc;
use windlass::{Completions, Watcher};
use windlass_web::websocket::{Deflate, Message, Peer, Socket, WebSocketSettings};
use windlass_web::{App, ServerLoop, Status};
use windlass_websocket::deflate::{Context, DeflaterSettings, Deflaters, Window};
use windlass_websocket::{FrameHead, Opcode};

const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        assert!(c.send(message), "the client reads");
    }
}

/// A server on a watcher of this thread.
struct Served {
    watcher: Watcher,
    done: Completions,
    server: ServerLoop<()>,
    address: SocketAddr,
}

impl Served {
    fn new(settings: WebSocketSettings) -> Served {
        Served::of(App::new().websocket_with(settings, "/", |_, _| Ok::<_, Status>(Echo)))
    }

    fn of(app: App) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let app = app.listen(listener).expect("an address");
        let mut watcher = Watcher::new().expect("a watcher");
        let server = app.start_on(&mut watcher).expect("a server");
        Served { watcher, done: Completions::new(), server, address }
    }

    /// Says bytes, and runs until the client has heard so many, or what ends so.
    fn ask(&mut self, client: &mut TcpStream, say: &[u8], heard: &mut [u8], ends: Ends<'_>) {
        let (mut left, mut count, begin) = (say, 0, Instant::now());
        loop {
            assert!(begin.elapsed() < PATIENCE, "{count} bytes have come");
            if !left.is_empty() {
                match client.write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            self.watcher.wait_timeout(&mut self.done, Duration::from_millis(1)).expect("a wait");
            self.server.serve(&mut self.watcher, &mut self.done);
            match client.read(&mut heard[count..]) {
                Ok(more) => count += more,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            match ends {
                Ends::With(end) if heard[..count].ends_with(end) => return,
                Ends::Behind(len) if count >= len => return,
                _ => {}
            }
        }
    }

    fn open(&mut self) -> TcpStream {
        self.open_with("client_max_window_bits")
    }

    /// A client whose offer has this parameter.
    fn open_with(&mut self, parameter: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).expect("it listens");
        client.set_nonblocking(true).expect("a mode");
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Extensions: permessage-deflate; {parameter}\r\n\r\n"
        );
        self.ask(&mut client, request.as_bytes(), &mut [0; 1024], Ends::With(b"\r\n\r\n"));
        client
    }
}

#[derive(Clone, Copy)]
enum Ends<'a> {
    With(&'a [u8]),
    Behind(usize),
}

/// A compressed message of a client, whose mask changes nothing.
fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut deflaters =
        Deflaters::new(DeflaterSettings { level: 6, ..DeflaterSettings::default() });
    deflaters.compress(Context::Fresh(Window::MIN), plain, &mut payload);
    let head = FrameHead::new(Opcode::Text, payload.len() as u64).compressed().masked([0; 4]);
    let mut frame = Vec::new();
    head.put(&mut frame);
    [frame, payload].concat()
}

fn text(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(len as u64);
    (0..len).map(|_| b"abcdefghijklmno "[random.usize(..16) & random.usize(..16)]).collect()
}

/// Bytes of each connection that has had messages and is idle.
fn idle(deflate: Option<Deflate>) -> f64 {
    const COUNT: usize = 64;
    let settings = WebSocketSettings::new();
    let mut served = Served::new(match deflate {
        Some(want) => settings.deflate(want).compress(6, 64),
        None => settings,
    });
    let says: Vec<u8> = match deflate {
        Some(_) => (0..10).flat_map(|at| compressed(&text(1000 + at))).collect(),
        None => [&[0x81, 0x80 | 100, 0, 0, 0, 0][..], &text(100)].concat(),
    };
    // An empty message that is not compressed is the last one.
    let says = [&says[..], &[0x81, 0x80, 0, 0, 0, 0]].concat();
    let mut clients = Vec::with_capacity(2 * COUNT);
    let mut heard = vec![0; 64 << 10];
    let mut more = |served: &mut Served| {
        for _ in 0..COUNT {
            let mut client = served.open();
            served.ask(&mut client, &says, &mut heard, Ends::With(&[0x81, 0]));
            clients.push(client);
        }
    };
    more(&mut served); // what the loop has
    let before = alloc::live_bytes();
    more(&mut served);
    (alloc::live_bytes() - before) as f64 / COUNT as f64
}

#[test]
fn an_idle_connection_has_its_histories_and_no_more() {
    let none = idle(None);
    let without = idle(Some(Deflate::default()));
    println!("{none:.1} bytes without compression, {without:.1} without takeover");
    assert!(without <= none + 16.0, "{without:.1} bytes, and {none:.1} without compression");
    let takeover = Deflate::TAKEOVER;
    let both = |server_window, client_window| Deflate { server_window, client_window, ..takeover };
    for want in [
        takeover,
        both(9, 9),
        both(9, 12),
        Deflate { client_takeover: false, ..takeover },
        Deflate { server_takeover: false, ..takeover },
    ] {
        let bytes = idle(Some(want));
        let server = if want.server_takeover { 1 << want.server_window } else { 0 };
        let client = if want.client_takeover { 1 << want.client_window } else { 0 };
        let most = f64::from(server + client + 256);
        println!("{bytes:.1} bytes of at most {most}: {want:?}");
        assert!(bytes - none <= f64::from(server + client) + 96.0 && bytes <= most + none);
        assert!(bytes >= f64::from(server + client), "it has no history");
    }
}

#[test]
fn a_compressed_message_allocates_once() {
    const ROUNDS: u64 = 100;
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let mut served = Served::new(WebSocketSettings::new().deflate(want).compress(1, 64));
        let mut client = served.open();
        for (len, most) in [(100, 1), (1000, 1), (16_000, 3)] {
            let say = compressed(&text(len));
            let mark = [&say[..], &[0x81, 0x81, 0, 0, 0, 0, b'!']].concat();
            let mut heard = vec![0; 64 << 10];
            let mut round = |served: &mut Served| {
                served.ask(&mut client, &mark, &mut heard, Ends::With(&[0x81, 1, b'!']));
            };
            (0..20).for_each(|_| round(&mut served));
            let before = alloc::allocations();
            (0..ROUNDS).for_each(|_| round(&mut served));
            let count = alloc::allocations() - before;
            println!("{want:?}: {count} allocations for {ROUNDS} messages of {len} bytes");
            // The text, which the program gets; what is large also has buffers of its own.
            assert!(count <= most * ROUNDS + 10, "{count} for {ROUNDS} messages of {len} bytes");
        }
    }
}

#[test]
fn a_bomb_takes_no_more_than_the_limit_and_64_kib() {
    const LIMIT: usize = 1 << 20;
    let bomb = compressed(&vec![b'a'; 32 << 20]);
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let settings = WebSocketSettings::new().deflate(want).message_limit(LIMIT as u64);
        let mut served = Served::new(settings);
        let mut client = served.open();
        let mut heard = vec![0; 4096];
        let warm = [&compressed(&text(1000))[..], &[0x81, 0x80, 0, 0, 0, 0]].concat();
        served.ask(&mut client, &warm, &mut heard, Ends::With(&[0x81, 0]));
        alloc::begin_peak();
        let before = alloc::live_bytes();
        served.ask(&mut client, &bomb, &mut heard, Ends::Behind(4));
        assert_eq!((heard[0], &heard[2..4]), (0x88, &1009_u16.to_be_bytes()[..]));
        let (peak, left) = (alloc::peak_bytes(), alloc::live_bytes() - before);
        println!("{} bytes of a bomb: {peak} at most, {left} are left", bomb.len());
        // While a vector grows, its memory counts twice; the payload counts, too.
        assert!(left < 64 << 10, "{left} bytes are left");
        assert!(peak <= (LIMIT + (64 << 10) + 2 * bomb.len()) as isize, "{peak} bytes");
    }
}

struct Hears;

impl Peer<()> for Hears {
    fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
        c.subscribe("all");
    }

    fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
}

/// Compressed for each subscriber, it would be there as often before the flush.
#[test]
fn a_publication_is_compressed_once_for_each_window() {
    const SUBSCRIBERS: usize = 60;
    const LEN: usize = 100_000;
    for want in [Deflate::default(), Deflate::TAKEOVER] {
        let settings = WebSocketSettings::new().deflate(want).compress(6, 64);
        let app = App::new();
        let mut served =
            Served::of(app.websocket_with(settings, "/", |_, _| Ok::<_, Status>(Hears)));
        let windows = ["server_max_window_bits=9", "server_max_window_bits=12"];
        let mut clients: Vec<TcpStream> =
            (0..SUBSCRIBERS).map(|at| served.open_with(windows[at % 2])).collect();
        let mut heard = vec![0; 2 * LEN];
        let published = String::from_utf8(text(LEN)).expect("a text");
        let mut publish = |served: &mut Served| {
            let remote = served.server.remote();
            assert!(remote.publish("all", published.clone()));
            alloc::begin_peak();
            // All get it in the turn that the first one waits for.
            served.ask(&mut clients[0], &[], &mut heard, Ends::Behind(4));
            let peak = alloc::peak_bytes();
            assert_eq!(heard[0], 0xc1, "a compressed text");
            // What is short is not compressed, and marks the end.
            assert!(remote.publish("all", "!"));
            for client in &mut clients {
                served.ask(client, &[], &mut heard, Ends::With(&[0x81, 1, b'!']));
            }
            peak
        };
        publish(&mut served); // the loop has its deflaters
        let peak = publish(&mut served);
        println!("{want:?}: {peak} bytes for {SUBSCRIBERS} subscribers of {LEN} bytes");
        assert!(
            peak < 6 * LEN as isize,
            "{peak} bytes for {SUBSCRIBERS} subscribers of {LEN} bytes"
        );
    }
}
