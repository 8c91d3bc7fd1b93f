//! The latent bugs of nbio's engine, as tests of what is right, in every mode on every driver and
//! in the simulation.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::child;
use crate::common::Harness;
use crate::common::scene::{News, Scene, Setting, pattern};
use windlass::net::ConnectOptions;
use windlass::{Address, Buf, Source};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Origin};

crate::every_mode! {
    a_short_write_on_a_unix_stream_loses_nothing
    a_list_that_is_written_in_part_loses_nothing
    a_connect_that_is_refused_is_no_success
    all_bytes_before_a_half_close_are_delivered
    a_long_echo_is_whole_when_the_client_ends_first
}

mod system {
    use super::without_descriptors_an_accept_does_not_spin;

    crate::systems_modes! {
        without_descriptors_an_accept_does_not_spin
    }
}

/// More than the buffers of two sockets hold.
const LENGTH: usize = 4 << 20;

/// Writes the first half of its bytes, and then the second one.
struct Pours {
    /// How many bytes waited after each write.
    news: News<usize>,
    bytes: Arc<Vec<u8>>,
    in_pieces: bool,
}

impl Handler for Pours {
    /// How many bytes are written.
    type State = usize;

    fn serving(&mut self, server: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, _: Buf) -> Action {
        let begin = *c.state();
        let half = &self.bytes[begin..begin + LENGTH / 2];
        *c.state() += half.len();
        if !self.in_pieces {
            assert!(c.write(half.to_vec()));
            return Action::None;
        }
        // Lists with more pieces than the system takes at once, and single bytes between them.
        let (mut rest, mut size) = (half, 1);
        while !rest.is_empty() {
            let mut pieces = Vec::new();
            while pieces.len() < 2000 && !rest.is_empty() {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                pieces.push(Buf::from(piece.to_vec()));
                (rest, size) = (after, size % 1500 + 1);
            }
            assert!(c.write(Buf::list(pieces)));
            if let Some((byte, after)) = rest.split_first() {
                assert!(c.write_slice(&[*byte]));
                rest = after;
            }
        }
        Action::None
    }

    fn postwrite(&mut self, _: &mut Conn<'_, usize>, _: usize, remaining: usize) -> Action {
        self.news.tell(remaining);
        Action::None
    }
}

fn pours<T: Setting>(address: &str, in_pieces: bool) {
    let bytes = Arc::new(pattern(LENGTH, 1));
    let expected = Arc::clone(&bytes);
    let make = move |news| Pours { news, bytes: Arc::clone(&bytes), in_pieces };
    let mut scene = Scene::start::<T>(make, |server| {
        server.config(Config::new().send_buffer(4096)).listen(address).unwrap()
    });
    let client = scene.connect_deaf();
    scene.say(client, "1");
    scene.until("the first half waits", |s| s.news.notes().len() == 1);
    // The second half is written while the system takes nothing.
    scene.say(client, "2");
    scene.until("the second half waits", |s| s.news.notes().len() == 2);
    assert!(scene.news.notes().iter().all(|waiting| *waiting > 0), "the sockets hold it all");
    scene.hear(client);
    scene.until("all is heard", |s| s.client(client).heard.len() >= LENGTH);
    assert!(scene.client(client).heard == *expected, "other bytes");
    scene.finish(client);
    scene.until("the server ends, too", |s| s.client(client).eof);
    assert_eq!(scene.client(client).heard.len(), LENGTH);
    assert_eq!(scene.end().panics, 0);
}

fn path<T: Setting>(what: &str) -> std::path::PathBuf {
    let module = T::module().replace(':', "-");
    std::env::temp_dir().join(format!("windlass-{what}-{module}-{}", std::process::id()))
}

/// (a): the rest of a short write is dropped, unless the connection is of TCP.
fn a_short_write_on_a_unix_stream_loses_nothing<T: Setting>() {
    pours::<T>(&format!("unix://{}", path::<T>("short").display()), false);
}

/// (b): of a list that is written in part, the buffers behind the torn one are lost; with EAGAIN,
/// all are.
fn a_list_that_is_written_in_part_loses_nothing<T: Setting>() {
    pours::<T>("tcp://127.0.0.1:0", true);
    pours::<T>(&format!("unix://{}", path::<T>("list").display()), true);
}

/// Connects to several addresses, and tells how that ends.
struct Dials {
    news: News<(usize, Option<Cause>)>,
    to: Arc<Vec<Address>>,
    connects: Arc<AtomicBool>,
}

impl Handler for Dials {
    /// The number of the address, from 1 on; 0 for the server's own end.
    type State = usize;

    fn serving(&mut self, server: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
        if self.connects.swap(false, Ordering::SeqCst) {
            for (number, to) in self.to.iter().chain(addresses).enumerate() {
                let to = [to.clone()];
                let options = ConnectOptions::default();
                server.engine().connect(to, options, number + 1).expect("there is room");
            }
        }
        self.news.serving(server, addresses)
    }

    fn opened(&mut self, c: &mut Conn<'_, usize>, _: Origin) -> Action {
        self.news.tell((*c.state(), None));
        Action::None
    }

    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        self.news.tell((closed.state, Some(closed.cause)));
        Action::None
    }
}

/// (c): a connect that is refused reports success first.
fn a_connect_that_is_refused_is_no_success<T: Setting>() {
    // A port that no socket has any more, and a path that is not there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let missing = Address::unix(path::<T>("missing")).unwrap();
    let to = Arc::new(vec![Address::from(free), missing]);
    let connects = Arc::new(AtomicBool::new(true));
    let make = move |news| Dials { news, to: Arc::clone(&to), connects: Arc::clone(&connects) };
    let mut scene = Scene::start::<T>(make, |server| server.listen("tcp://127.0.0.1:0").unwrap());
    let count = |s: &Scene<_, _, _>, number| s.news.count(|note: &(usize, _)| note.0 == number);
    scene.until("each connect has an end", |s| (0..=3).all(|number| count(s, number) == 1));
    let notes = scene.news.notes().clone();
    for (number, cause) in notes {
        let kind = match cause {
            Some(Cause::Os(errno)) => Some(io::Error::from_raw_os_error(errno).kind()),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        let expected = match number {
            1 => Some(io::ErrorKind::ConnectionRefused),
            2 if !T::VIRTUAL => Some(io::ErrorKind::NotFound),
            2 => Some(io::ErrorKind::ConnectionRefused),
            _ => None,
        };
        assert_eq!(kind, expected, "address {number}");
    }
    let report = scene.end();
    let counters = &report.counters;
    assert_eq!((counters.connected, counters.accepted, counters.ends.failed), (1, 1, 2));
    assert_eq!(count(&scene, 1) + count(&scene, 2), 2, "nothing more was heard of them");
}

/// Compares what comes with what is expected, and answers after the end.
struct Listens {
    news: News<(Cause, usize)>,
    expected: Arc<Vec<u8>>,
    echoes: bool,
}

impl Handler for Listens {
    /// How many bytes have come.
    type State = usize;

    fn serving(&mut self, server: &mut Context<'_, usize>, addresses: &[Address]) -> Action {
        self.news.serving(server, addresses)
    }

    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        for part in data.parts() {
            let at = *c.state();
            assert!(self.expected.get(at..at + part.len()) == Some(part), "other bytes at {at}");
            *c.state() += part.len();
        }
        if self.echoes {
            c.write(data);
        }
        Action::None
    }

    fn eof(&mut self, c: &mut Conn<'_, usize>) -> Action {
        assert_eq!(*c.state(), self.expected.len(), "the end comes behind all bytes");
        // The output is still open.
        assert!(c.write(pattern(1 << 20, 9)));
        Action::Close
    }

    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        assert_eq!(closed.unsent, 0);
        self.news.tell((closed.cause, closed.state));
        Action::None
    }
}

type Heard<T> = Scene<<T as Harness>::Driver, Listens, (Cause, usize)>;

fn listens<T: Setting>(length: usize, echoes: bool) -> (Heard<T>, Source, Arc<Vec<u8>>) {
    let expected = Arc::new(pattern(length, 3));
    let bytes = Arc::clone(&expected);
    let make = move |news| Listens { news, expected: Arc::clone(&bytes), echoes };
    let mut scene = Scene::start::<T>(make, |server| {
        server.config(Config::new().close_on_eof(echoes)).listen("tcp://127.0.0.1:0").unwrap()
    });
    let client = scene.connect();
    scene.say(client, expected.to_vec());
    scene.finish(client);
    (scene, client, expected)
}

/// (d): what was sent before a half-close is lost beyond 192 KiB, and the connection ends.
fn all_bytes_before_a_half_close_are_delivered<T: Setting>() {
    const LONG: usize = 10 << 20;
    let (mut scene, client, _) = listens::<T>(LONG, false);
    scene.until("the answer has come, and its end", |s| s.client(client).eof);
    assert!(scene.client(client).heard == pattern(1 << 20, 9), "another answer");
    scene.until("it has closed", |s| !s.news.notes().is_empty());
    assert_eq!(*scene.news.notes(), [(Cause::Closed, LONG)]);
    assert_eq!(scene.end().panics, 0);
}

/// (d), with a server that closes at the end of the input.
fn a_long_echo_is_whole_when_the_client_ends_first<T: Setting>() {
    const LONG: usize = 10 << 20;
    let (mut scene, client, expected) = listens::<T>(LONG, true);
    scene.until("the echo has come, and its end", |s| s.client(client).eof);
    assert!(scene.client(client).heard == *expected, "another echo");
    scene.until("it has closed", |s| !s.news.notes().is_empty());
    assert_eq!(*scene.news.notes(), [(Cause::Eof, LONG)]);
    assert_eq!(scene.end().panics, 0);
}

/// (e): an accept that finds no descriptor is tried again without an end.
fn without_descriptors_an_accept_does_not_spin<T: Setting>() {
    const CLIENTS: usize = 20;
    let name = "without_descriptors_an_accept_does_not_spin";
    let name = format!("nbio_bugs::system::{}::{name}", T::module());
    child::in_child(&name, || {
        let expected = Arc::new(b"first still there ".to_vec());
        let make = move |news| Listens { news, expected: Arc::clone(&expected), echoes: true };
        let mut scene =
            Scene::start::<T>(make, |server| server.listen("tcp://127.0.0.1:0").unwrap());
        let first = scene.connect();
        scene.say(first, "first ");
        scene.until("it is served", |s| s.client(first).heard.len() == 6);
        let late = scene.connect();
        scene.until("it has connected", |s| s.watcher.local_address(late).is_ok());
        // Sockets that can connect when there is no descriptor left.
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let sockets: Vec<_> = (0..CLIENTS).map(|_| socket().unwrap()).collect();
        let mut held = Vec::new();
        let began = Instant::now();
        while let Ok(file) = File::open("/dev/null") {
            held.push(file);
        }
        let to = scene.addresses[0].ip().unwrap();
        for socket in &sockets {
            socket.connect(&to.into()).unwrap();
        }
        scene.run_for(Duration::from_millis(700));
        scene.say(first, "still there ");
        scene.until("it is served", |s| s.client(first).heard.len() == 18);
        drop(held);
        let client = scene.connect();
        scene.say(client, "first ");
        scene.until("there is room again", |s| s.client(client).heard.len() == 6);
        let report = scene.end();
        let attempts = report.descriptor_shortages + report.counters.accept_errors;
        // One for each client that is ended. The pauses behind the others double, and begin again
        // with a millisecond if the loop gets no processor for long.
        let most = 2 * CLIENTS as u128 + began.elapsed().as_millis();
        assert!((1..=most).contains(&u128::from(attempts)), "{attempts} vain accepts, not {most}");
        assert_eq!(report.panics, 0);
    });
}
