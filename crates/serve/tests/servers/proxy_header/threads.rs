//! Servers with loops and threads of their own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use windlass::{Address, Buf};
use windlass_serve::net::Proxy;
use windlass_serve::{
    Action, Config, Conn, Context, Handler, Limits, Origin, Remote, Running, Server, modes::IoMode,
};

use super::{EVERYWHERE, LINE, binary_v4, client, leaked};
use crate::common::System;
use crate::systems_drivers;

systems_drivers! {
    every_mode_reads_headers
    another_server_reads_the_headers_of_what_it_is_given
    a_unix_socket_brings_a_header
    a_listener_that_is_added_has_the_setting
}

/// The longest that a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends back what comes, and tells whose connections it has, with the loop.
struct Echo {
    told: Sender<(Option<SocketAddr>, usize)>,
    /// Gets what it has no room for.
    other: Option<Remote>,
}

impl Handler for Echo {
    type State = ();

    fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
        if let Some(other) = &self.other {
            server.engine().overflow_to(other.clone());
        }
        Action::None
    }

    fn opened(&mut self, c: &mut Conn<'_, ()>, origin: Origin) -> Action {
        let _ = self.told.send((origin.peer, c.id().loop_index()));
        Action::None
    }

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

/// A server, and what it tells.
struct Run {
    server: Running,
    told: Receiver<(Option<SocketAddr>, usize)>,
}

type Make = Box<dyn Fn(usize) -> Echo + Send + Sync>;

fn start<T: System>(
    config: Config,
    other: Option<Remote>,
    set: impl FnOnce(Server<Make>) -> Server<Make>,
) -> Run {
    let (tell, told) = channel();
    let make: Make = Box::new(move |_| Echo { told: tell.clone(), other: other.clone() });
    let server = set(Server::new(make).watcher(T::builder()).config(config).signals(false));
    Run { server: server.start().expect("it starts"), told }
}

impl Run {
    fn connect(&self) -> TcpStream {
        let address = self.server.addresses()[0].ip().expect("an address");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    fn end(self) -> windlass_serve::report::Counters {
        self.server.shutdown();
        self.server.wait().expect("it ends").counters
    }
}

/// Whether a connection is served that begins with this header.
fn is_served(stream: &mut (impl Read + Write), header: &[u8]) -> bool {
    let mut heard = [0; 5];
    stream.write_all(&[header, b"hello"].concat()).is_ok()
        && stream.read_exact(&mut heard).is_ok()
        && heard == *b"hello"
}

#[track_caller]
fn echoes(stream: &mut (impl Read + Write), header: &[u8]) {
    assert!(is_served(stream, header));
}

fn every_mode_reads_headers<T: System>() {
    for (loops, mode) in [
        (1, IoMode::NonBlocking),
        (3, IoMode::NonBlocking),
        (1, IoMode::Blocking { threads: 3 }),
        (2, IoMode::Mixed { threads: 1 }),
    ] {
        let config = Config::new().proxy(leaked(Proxy::any(), EVERYWHERE));
        let run = start::<T>(config, None, |server| {
            server.loops(loops).io_mode(mode).listen("tcp://127.0.0.1:0").unwrap()
        });
        // Each is in its handshake when the next one comes.
        let mut streams: Vec<TcpStream> = (0..3).map(|_| run.connect()).collect();
        streams.iter_mut().for_each(|stream| stream.write_all(&LINE[..9]).unwrap());
        for stream in streams.iter_mut().rev() {
            echoes(stream, &LINE[9..]);
            assert_eq!(run.told.recv_timeout(PATIENCE).unwrap().0, Some(client()), "{mode:?}");
        }
        drop(streams);
        // A thread whose handshake ends without a connection gets the next one, soon. Until then
        // there may be too few threads.
        for _ in 0..4 {
            let mut silent = run.connect();
            silent.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(silent.read(&mut [0]).expect("a clean end"), 0);
        }
        let begin = Instant::now();
        while !is_served(&mut run.connect(), &binary_v4()) {
            assert!(begin.elapsed() < PATIENCE, "{mode:?}");
        }
        let counters = run.end();
        assert_eq!(counters.accepted, 4, "{mode:?}");
        assert!(counters.refused >= 4, "{mode:?}");
    }
}

/// It has no setting of its own, and does not know the listener.
fn another_server_reads_the_headers_of_what_it_is_given<T: System>() {
    let other = start::<T>(Config::new(), None, |server| server.without_listener());
    let limits = Limits::new().connections(1);
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE)).limits(limits);
    let first = start::<T>(config, Some(other.server.remote()), |server| {
        server.listen("tcp://127.0.0.1:0?proxy=v2").unwrap()
    });
    let mut one = first.connect();
    echoes(&mut one, &binary_v4());
    assert_eq!(first.told.recv_timeout(PATIENCE).unwrap().0, Some(client()));
    let mut two = first.connect();
    echoes(&mut two, &binary_v4());
    assert_eq!(other.told.recv_timeout(PATIENCE).unwrap().0, Some(client()));
    drop((one, two));
    assert_eq!(first.end().passed_on, 1);
    assert_eq!(other.end().accepted, 1);
}

fn a_unix_socket_brings_a_header<T: System>() {
    let name = format!("windlass-proxy-{}-{}", std::process::id(), T::NAME);
    let path = std::env::temp_dir().join(name);
    for (networks, is_in) in [("unix", true), (EVERYWHERE, false)] {
        let config = Config::new().proxy(leaked(Proxy::v1(), networks));
        let run = start::<T>(config, None, |server| {
            server.listen(&format!("unix://{}", path.display())).unwrap()
        });
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if is_in {
            echoes(&mut stream, LINE);
            assert_eq!(run.told.recv_timeout(PATIENCE).unwrap().0, Some(client()));
        } else {
            // The write may be too late, and then the end is a reset.
            let _ = stream.write_all(LINE);
            assert!(!stream.read(&mut [0]).is_ok_and(|count| count > 0));
        }
        assert_eq!(run.end().refused, u64::from(!is_in));
    }
}

fn a_listener_that_is_added_has_the_setting<T: System>() {
    let config = Config::new().proxy(leaked(Proxy::v1(), EVERYWHERE));
    let run = start::<T>(config, None, |server| server.without_listener());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(run.server.remote().add_listener(listener).is_ok());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    echoes(&mut stream, LINE);
    assert_eq!(run.told.recv_timeout(PATIENCE).unwrap().0, Some(client()));
    run.end();
}
