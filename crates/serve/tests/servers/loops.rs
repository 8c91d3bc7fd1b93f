//! Servers with several loops, other threads, and the system's sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use windlass::{Address, Buf};
use windlass_serve::{
    Action, Cause, Closed, Conn, Context, Datagram, Handler, Id, Origin, Refusal, Remote, Server,
    modes::{Balance, Loops},
    report::Report,
};

/// What all loops of a test share.
struct Shared {
    serving: Mutex<Sender<(Remote, Vec<Address>)>>,
    opened: AtomicUsize,
    closed: AtomicUsize,
    per_loop: [AtomicUsize; 8],
    until: usize,
}

/// Echoes behind a banner. It ends when so many connections have closed.
struct Echo {
    shared: Arc<Shared>,
    number: usize,
    last: u64,
}

impl Handler for Echo {
    type State = String;

    fn serving(&mut self, server: &mut Context<'_, String>, addresses: &[Address]) -> Action {
        if self.number == 0 {
            let told = (server.remote().clone(), addresses.to_vec());
            self.shared.serving.lock().unwrap().send(told).unwrap();
        }
        Action::None
    }

    fn opened(&mut self, c: &mut Conn<'_, String>, origin: Origin) -> Action {
        assert!(origin.listener.is_some());
        let id = c.id();
        assert!(id.number() > self.last, "ids increase");
        assert_eq!(id.loop_index(), self.number);
        self.last = id.number();
        *c.state() = format!("context of {id}");
        self.shared.opened.fetch_add(1, Ordering::SeqCst);
        self.shared.per_loop[self.number].fetch_add(1, Ordering::SeqCst);
        c.write("sweetness\r\n");
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, String>, data: Buf) -> Action {
        let id = c.id();
        assert_eq!(*c.state(), format!("context of {id}"));
        c.write(data);
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, String>, closed: Closed<String>) -> Action {
        assert_eq!(closed.state, format!("context of {}", closed.id));
        let closed = self.shared.closed.fetch_add(1, Ordering::SeqCst) + 1;
        if closed == self.shared.until { Action::Shutdown } else { Action::None }
    }
}

/// Both kinds of clients.
trait Stream: Read + Write {
    fn finish(&self);
}
impl Stream for TcpStream {
    fn finish(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}
impl Stream for UnixStream {
    fn finish(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

fn connect(address: &Address) -> Box<dyn Stream> {
    match (address.ip(), address.path()) {
        (Some(ip), _) => {
            let ip = if ip.ip().is_unspecified() {
                SocketAddr::from(([127, 0, 0, 1], ip.port()))
            } else {
                ip
            };
            let stream = TcpStream::connect(ip).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Box::new(stream)
        }
        (_, path) => {
            let stream = UnixStream::connect(path.unwrap()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Box::new(stream)
        }
    }
}

/// A path of its own for each test.
fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("windlass-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// One client: the banner, then as many bytes as it says, in pieces.
fn client(address: &Address, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stream = connect(address);
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"sweetness\r\n");
    let said: Vec<u8> = (0..random.usize(0..300_000)).map(|_| random.u8(..)).collect();
    for piece in said.chunks(40_000) {
        stream.write_all(piece).unwrap();
        let mut heard = vec![0; piece.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == piece, "another echo");
    }
    stream.finish();
    assert_eq!(stream.read(&mut banner).unwrap(), 0);
}

/// evio's TestServe: ten clients of each kind on one server.
fn serve_both(name: &str, loops: Loops, balance: Balance) -> (Arc<Shared>, Report) {
    let (serving, served) = channel();
    let shared = Arc::new(Shared {
        serving: Mutex::new(serving),
        opened: AtomicUsize::new(0),
        closed: AtomicUsize::new(0),
        per_loop: Default::default(),
        until: 20,
    });
    let path = path(name);
    let all = Arc::clone(&shared);
    let unix = format!("unix://{}", path.display());
    let server = thread::spawn(move || {
        let make = |number| Echo { shared: Arc::clone(&all), number, last: 0 };
        let server = Server::new(make).loops(loops).balance(balance);
        server.listen("tcp4://127.0.0.1:0").unwrap().listen(&unix).unwrap().run().unwrap()
    });
    let (_, addresses) = served.recv_timeout(Duration::from_secs(20)).expect("it serves");
    assert_eq!(addresses.len(), 2);
    assert!(path.exists());
    let clients: Vec<_> = (0..20)
        .map(|i| {
            let address = addresses[i % 2].clone();
            thread::spawn(move || client(&address, i as u64))
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let report = server.join().unwrap();
    assert!(!path.exists(), "the path is removed");
    assert_eq!(shared.opened.load(Ordering::SeqCst), 20);
    assert_eq!((report.counters.accepted, report.counters.ends.eof), (20, 20));
    (shared, report)
}

fn per_loop(shared: &Shared) -> Vec<usize> {
    shared.per_loop.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

#[test]
fn one_loop_serves_both_kinds() {
    serve_both("one", Loops::One, Balance::Random);
    serve_both("count-one", Loops::Count(1), Balance::RoundRobin);
}

#[test]
fn round_robin_gives_every_loop_as_many() {
    let (shared, _) = serve_both("round", Loops::Count(5), Balance::RoundRobin);
    assert_eq!(per_loop(&shared), [4, 4, 4, 4, 4, 0, 0, 0]);
}

#[test]
fn a_random_loop_gets_a_connection() {
    let (shared, _) = serve_both("random", Loops::Count(5), Balance::Random);
    assert!(per_loop(&shared).iter().filter(|count| **count > 0).count() > 1);
}

#[test]
fn the_loop_with_the_fewest_connections_gets_the_next() {
    serve_both("least", Loops::Count(5), Balance::LeastConnections);
}

#[test]
fn every_processor_has_a_loop() {
    serve_both("cpu", Loops::PerCpu, Balance::LeastConnections);
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_distributes() {
    let (shared, _) = serve_both("kernel", Loops::Count(3), Balance::ReusePort);
    let counts = per_loop(&shared);
    assert_eq!(counts.iter().sum::<usize>(), 20);
}

/// evio's TestReuseport: five servers share one port.
#[cfg(target_os = "linux")]
#[test]
fn servers_share_a_port() {
    struct Quiet(Sender<Remote>);
    impl Handler for Quiet {
        type State = ();
        fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
            self.0.send(server.remote().clone()).unwrap();
            Action::None
        }
    }
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    drop(holder);
    let (serving, served) = channel();
    let servers: Vec<_> = (0..5)
        .map(|_| {
            let serving = Mutex::new(serving.clone());
            thread::spawn(move || {
                let make = |_| Quiet(serving.lock().unwrap().clone());
                let address = format!("tcp://127.0.0.1:{port}?reuseport=true");
                Server::new(make).listen(&address).unwrap().run().unwrap()
            })
        })
        .collect();
    for _ in 0..5 {
        served.recv_timeout(Duration::from_secs(20)).expect("it serves").shutdown();
    }
    for server in servers {
        server.join().unwrap();
    }
}

/// Answers datagrams with the number of its loop.
struct Number {
    number: usize,
    serving: Sender<(Remote, Vec<Address>)>,
}

impl Handler for Number {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        if self.number == 0 {
            self.serving.send((server.remote().clone(), addresses.to_vec())).unwrap();
        }
        Action::None
    }
    fn datagram(&mut self, d: &mut Datagram<'_, ()>, _: Buf) -> Action {
        let text = self.number.to_string();
        assert!(d.reply(text));
        Action::None
    }
}

/// Which loops answer so many senders.
fn loops_that_answer(address: &'static str, balance: Balance) -> Vec<usize> {
    let (serving, served) = channel();
    let server = thread::spawn(move || {
        let serving = Mutex::new(serving);
        let make = |number| Number { number, serving: serving.lock().unwrap().clone() };
        let server = Server::new(make).loops(4).balance(balance).listen(address).unwrap();
        server.listen("tcp://127.0.0.1:0").unwrap().run().unwrap()
    });
    let (remote, addresses) = served.recv_timeout(Duration::from_secs(20)).expect("it serves");
    let mut answers = vec![0; 4];
    for _ in 0..64 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send_to(b"which?", addresses[0].ip().unwrap()).unwrap();
        let mut heard = [0; 8];
        let (len, from) = socket.recv_from(&mut heard).unwrap();
        assert_eq!((len, Some(from)), (1, addresses[0].ip()));
        answers[usize::from(heard[0] - b'0')] += 1;
    }
    remote.shutdown();
    assert_eq!(server.join().unwrap().counters.datagrams, 64);
    answers
}

#[test]
fn one_loop_takes_the_datagrams_of_an_address_that_is_not_shared() {
    let answers = loops_that_answer("udp://127.0.0.1:0", Balance::RoundRobin);
    assert_eq!(answers, [64, 0, 0, 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_distributes_datagrams() {
    for (address, balance) in [
        ("udp://127.0.0.1:0?reuseport=true", Balance::RoundRobin),
        ("udp4://127.0.0.1:0", Balance::ReusePort),
    ] {
        let answers = loops_that_answer(address, balance);
        assert!(answers.iter().filter(|count| **count > 0).count() > 1, "{answers:?}");
    }
}

/// Counters its wakes and messages; a message contains its number.
struct Told {
    serving: Sender<(Remote, Vec<Address>)>,
    events: Sender<(Id, String)>,
    /// Whether a callback is slow, so that the other threads are ahead of the loop.
    slow: bool,
}

impl Handler for Told {
    type State = ();
    fn serving(&mut self, server: &mut Context<'_, ()>, addresses: &[Address]) -> Action {
        self.serving.send((server.remote().clone(), addresses.to_vec())).unwrap();
        Action::None
    }
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.events.send((c.id(), "opened".into())).unwrap();
        let (remote, id) = (c.remote().clone(), c.id());
        if self.slow {
            // A callback runs: what the other thread asks for waits, and the wakes become one.
            let other = thread::spawn(move || {
                assert!((0..1000).all(|_| remote.wake(id)));
                for text in ["one,", "two,", "three"] {
                    remote.write(id, text).unwrap();
                }
                let refused = remote.write(id, vec![0; 2000]).unwrap_err();
                assert_eq!((refused.reason, refused.value.len()), (Refusal::Cap, 2000));
                assert!(remote.close(id));
                // Behind the close of the same thread: it is dropped, and counted.
                remote.write(id, "too late").unwrap();
            });
            other.join().unwrap();
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.events.send((c.id(), format!("{} bytes", data.len()))).unwrap();
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.events.send((closed.id, format!("closed {:?}", closed.cause))).unwrap();
        Action::None
    }
}

type Running = thread::JoinHandle<Report>;

fn told(slow: bool) -> (Running, Remote, Address, Receiver<(Id, String)>) {
    let (serving, served) = channel();
    let (events, heard) = channel();
    let server = thread::spawn(move || {
        let senders = Mutex::new((serving, events));
        let make = |_| {
            let (serving, events) = senders.lock().unwrap().clone();
            Told { serving, events, slow }
        };
        let limits = windlass_serve::Limits::new().cap(1000);
        Server::new(make).limits(limits).listen("tcp://127.0.0.1:0").unwrap().run().unwrap()
    });
    let (remote, addresses) = served.recv_timeout(Duration::from_secs(20)).expect("it serves");
    (server, remote, addresses[0].clone(), heard)
}

#[test]
fn one_threads_requests_keep_their_order_and_wakes_are_one() {
    let (server, remote, address, heard) = told(true);
    let mut client = connect(&address);
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one,two,three");
    let next = || heard.recv_timeout(Duration::from_secs(20)).unwrap().1;
    assert_eq!(next(), "opened");
    // The close came before the wake was told, so it is not told any more.
    assert_eq!(next(), "closed Closed");
    remote.shutdown();
    let report = server.join().unwrap();
    assert_eq!(report.counters.stale_writes, 1);
    assert!(heard.try_recv().is_err());
}

#[test]
fn a_woken_connection_is_called_and_a_stale_one_is_not() {
    let (server, remote, address, heard) = told(false);
    let client = connect(&address);
    let next = || heard.recv_timeout(Duration::from_secs(20)).unwrap();
    let (id, opened) = next();
    assert_eq!((id.number(), opened.as_str()), (65_536, "opened"));
    assert!(remote.wake(id));
    // The default of `wake` calls `data` without bytes.
    assert_eq!(next(), (id, "0 bytes".into()));
    drop(client);
    assert_eq!(next(), (id, "closed Eof".into()));
    assert!(!remote.wake(id) && !remote.close(id));
    let refused = remote.write(id, "too late").unwrap_err();
    assert_eq!((refused.reason, &*refused.value), (Refusal::Stale, &b"too late"[..]));
    remote.shutdown();
    let report = server.join().unwrap();
    assert_eq!(report.counters.stale_writes, 0);
    // The server is gone.
    assert!(!remote.wake(id));
    assert!(heard.try_recv().is_err());
}

#[test]
fn unix_paths_that_are_stale_are_replaced_and_live_ones_are_not() {
    struct Once;
    impl Handler for Once {
        type State = ();
        fn serving(&mut self, _: &mut Context<'_, ()>, _: &[Address]) -> Action {
            Action::Shutdown
        }
    }
    let path = path("stale");
    let address = format!("unix://{}", path.display());
    // No process listens there any more.
    drop(UnixListener::bind(&path).unwrap());
    Server::new(|_| Once).listen(&address).unwrap().run().unwrap();
    assert!(!path.exists());
    // One listens.
    let live = UnixListener::bind(&path).unwrap();
    let error = Server::new(|_| Once).listen(&address).unwrap().run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(UnixStream::connect(&path).is_ok());
    drop(live);
    // It is a file.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "text").unwrap();
    let error = Server::new(|_| Once).listen(&address).unwrap().run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_cannot_be_served_is_an_error() {
    struct Nothing;
    impl Handler for Nothing {
        type State = ();
    }
    let error = Server::new(|_| Nothing).run().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::InvalidInput, "nothing to serve")
    );
    let error = Server::new(|_| Nothing).loops(4).run().unwrap_err();
    assert_eq!(error.to_string(), "nothing to serve");
    let server = Server::new(|_| Nothing).listen("tcp://127.0.0.1:0").unwrap();
    assert_eq!(server.loops(1025).run().unwrap_err().kind(), ErrorKind::InvalidInput);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", taken.local_addr().unwrap());
    for loops in [1, 3] {
        let server = Server::new(|_| Nothing).listen(&address).unwrap().loops(loops);
        assert_eq!(server.run().unwrap_err().kind(), ErrorKind::AddrInUse, "{loops} loops");
    }
}

#[test]
fn shiny_serves_with_four_closures() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    drop(holder);
    let client = thread::spawn(move || {
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) => thread::yield_now(),
            }
        };
        let mut heard = [0; 8];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"welcome ");
        // It was woken, and says so.
        stream.read_exact(&mut heard[..5]).unwrap();
        assert_eq!(&heard[..5], b"woken");
        stream.write_all(b"quit").unwrap();
        assert_eq!(stream.read(&mut heard).unwrap(), 0);
    });
    #[derive(Default)]
    struct Seen {
        ticks: usize,
        closed: Vec<Cause>,
    }
    let mut seen = Seen::default();
    let report = windlass_serve::serve(
        &format!("tcp://{address}"),
        |_, data, seen: &mut Seen| {
            assert!(seen.ticks > 0, "the first tick is before the first connection");
            match &*data {
                b"" => ("woken".into(), true),
                b"quit" => (Buf::default(), false),
                other => panic!("{other:?}"),
            }
        },
        |id, peer, remote, _| {
            assert!(peer.is_some());
            let remote = remote.clone();
            thread::spawn(move || remote.wake(id));
            ("welcome ".into(), true)
        },
        |_, cause, seen| seen.closed.push(cause),
        |seen| {
            seen.ticks += 1;
            seen.closed.is_empty()
        },
        &mut seen,
    );
    client.join().unwrap();
    assert_eq!(report.unwrap().counters.accepted, 1);
    assert_eq!(seen.closed, [Cause::Closed]);
}
