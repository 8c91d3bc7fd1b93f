//! Addresses that a server takes over from one that has ended: paths of Unix sockets of which only
//! the name is left, and what a process had that was killed.
#![cfg(unix)]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // a signal needs libc
#![allow(clippy::zombie_processes)] // each child is waited for

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use common::*;
use windlass::driver::Auto;
use windlass::net::{DatagramOptions, ListenOptions};
use windlass::{Address, DriverKind, Op, Source, Watcher};

fn drivers() -> Vec<DriverKind> {
    let all = [DriverKind::Epoll, DriverKind::Uring, DriverKind::Kqueue, DriverKind::Poll];
    let works = |kind: &DriverKind| Watcher::builder().driver(*kind).build().is_ok();
    all.into_iter().filter(works).collect()
}

fn bench(driver: DriverKind) -> Bench<Auto> {
    Bench::new(Watcher::builder().driver(driver).build().expect("a watcher"), Poll::address())
}

fn unix(path: &Path) -> Address {
    Address::unix(path).expect("a short path")
}

/// A path that a listener has left.
fn leave_listener(path: &Path) {
    let _ = std::fs::remove_file(path);
    drop(UnixListener::bind(path).expect("a free path"));
}

/// A path that a datagram socket has left.
fn leave_datagram(path: &Path) {
    let _ = std::fs::remove_file(path);
    drop(UnixDatagram::bind(path).expect("a free path"));
}

/// What a directory has.
fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("its entry").path()).collect()
}

/// A child that is just being made has copies of all sockets: one that was dropped meanwhile is
/// still open, and its path in use.
static CHILDREN: Mutex<()> = Mutex::new(());

/// Several servers find the same path without a listener. Exactly one of them has it in the end,
/// and clients reach that one. A server removed the path that another one had just bound: then both
/// listened, and one of them could not be reached.
fn race(leave: fn(&Path), bind: impl Fn(&mut Watcher, &Address) -> bool + Sync, reach: fn(&Path)) {
    const SERVERS: usize = 4;
    const ROUNDS: usize = 2_000;
    let directory = system::Directory::new();
    let path = directory.at("path");
    let (barrier, listening) = (Barrier::new(SERVERS + 1), AtomicUsize::new(0));
    let (bind, barrier, listening, path) = (&bind, &barrier, &listening, &path);
    let mut shared = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(move || {
                let mut watcher = Watcher::builder().build().expect("a watcher");
                for _ in 0..ROUNDS {
                    barrier.wait();
                    if bind(&mut watcher, &unix(path)) {
                        listening.fetch_add(1, Ordering::SeqCst);
                    }
                    barrier.wait();
                    barrier.wait();
                    watcher = match watcher.counters().sources {
                        0 => watcher,
                        _ => Watcher::builder().build().expect("a watcher"),
                    };
                }
            });
        }
        for _ in 0..ROUNDS {
            leave(path);
            barrier.wait();
            barrier.wait();
            // A failure is told when the threads have ended.
            shared.push(listening.swap(0, Ordering::SeqCst));
            if shared.last() == Some(&1) {
                reach(path);
            }
            barrier.wait();
        }
    });
    let wrong: Vec<_> = shared.iter().filter(|&&count| count != 1).collect();
    assert!(wrong.is_empty(), "in {} of {ROUNDS} rounds: {wrong:?} listen", wrong.len());
    assert_eq!(names(directory.path()), [path.as_path()], "nothing else is left behind");
}

#[test]
fn one_of_several_listeners_takes_a_left_path() {
    let _alone = CHILDREN.lock();
    let listen = |watcher: &mut Watcher, at: &Address| watcher.listen(at.clone()).is_ok();
    race(leave_listener, listen, |path| drop(UnixStream::connect(path).expect("it listens")));
}

#[test]
fn one_of_several_datagram_sockets_takes_a_left_path() {
    let _alone = CHILDREN.lock();
    let bind = |watcher: &mut Watcher, at: &Address| {
        watcher.bind_datagram(at.clone(), DatagramOptions::default()).is_ok()
    };
    let reach = |path: &Path| {
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(b"x", path).expect("it is bound");
    };
    race(leave_datagram, bind, reach);
}

/// Only a socket that nobody has open makes room: everything else stays as it is.
#[test]
fn what_is_in_use_or_no_socket_stays() {
    let _alone = CHILDREN.lock();
    for driver in drivers() {
        let mut b = bench(driver);
        let directory = system::Directory::new();
        let listener = directory.at("listener");
        let _listener = UnixListener::bind(&listener).expect("a listener");
        let datagrams = directory.at("datagrams");
        let _datagrams = UnixDatagram::bind(&datagrams).expect("a socket");
        let file = directory.at("file");
        std::fs::write(&file, "content").expect("a file");
        let inner = directory.at("directory");
        std::fs::create_dir(&inner).expect("a directory");
        let left = directory.at("left");
        leave_listener(&left);
        let link = directory.at("link");
        std::os::unix::fs::symlink(&left, &link).expect("a link");
        let mut before = names(directory.path());
        before.sort();
        let options = DatagramOptions::default();
        for path in [&listener, &datagrams, &file, &inner, &link] {
            let error = b.watcher.listen(unix(path)).expect_err("it is taken");
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE), "{path:?}: {error}");
            let error = b.watcher.bind_datagram(unix(path), options).expect_err("it is taken");
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE), "{path:?}: {error}");
        }
        let nowhere = directory.at("missing").join("path");
        let error = b.watcher.listen(unix(&nowhere)).expect_err("there is no such directory");
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
        let mut after = names(directory.path());
        after.sort();
        assert_eq!(before, after);
        assert_eq!(std::fs::read(&file).expect("it is there"), b"content");
        UnixStream::connect(&listener).expect("it listens");
        // A path of either kind of socket makes room for either kind.
        let taken = b.watcher.listen(unix(&left)).expect("nobody has it");
        drop(UnixStream::connect(&left).expect("it listens"));
        b.watcher.abort(taken);
        leave_datagram(&left);
        b.watcher.listen(unix(&left)).expect("nobody has it");
    }
}

/// The end of a listener leaves the path alone, which may be its successor's by then.
#[test]
fn the_end_of_a_listener_leaves_the_path_of_its_successor() {
    let _alone = CHILDREN.lock();
    for driver in drivers() {
        let directory = system::Directory::new();
        let path = directory.at("path");
        let (mut old, mut new) = (bench(driver), bench(driver));
        let first = old.watcher.listen(unix(&path)).expect("a free path");
        std::fs::remove_file(&path).expect("it is there");
        new.watcher.listen(unix(&path)).expect("a free path");
        assert!(old.watcher.abort(first));
        drop(old);
        UnixStream::connect(&path).expect("its successor listens");
    }
}

/// A name of the abstract name space goes with its socket, and has nothing to be removed.
#[test]
#[cfg(target_os = "linux")]
fn an_abstract_name_is_free_when_its_socket_is_closed() {
    let _alone = CHILDREN.lock();
    for driver in drivers() {
        let mut b = bench(driver);
        let name = format!("windlass-{}-{driver:?}", std::process::id());
        let at = Address::unix_abstract(name).expect("a short name");
        for _ in 0..3 {
            let listener = b.watcher.listen(at.clone()).expect("a free name");
            let error = b.watcher.listen(at.clone()).expect_err("it is taken");
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE), "{error}");
            assert!(b.watcher.abort(listener));
        }
    }
}

/// The addresses of a server, of each kind.
struct Server {
    listeners: Vec<Source>,
    sockets: Vec<Source>,
}

fn serve(b: &mut Bench<Auto>, directory: &Path, ports: [u16; 2]) -> Result<Server, String> {
    let [tcp, udp] = ports.map(|port| Address::from(([127, 0, 0, 1], port)));
    let (stream, datagram) = (directory.join("stream"), directory.join("datagram"));
    let mut server = Server { listeners: Vec::new(), sockets: Vec::new() };
    for at in [tcp, unix(&stream)] {
        let made = b.watcher.listen_with(at.clone(), ListenOptions::default());
        server.listeners.push(made.map_err(|error| format!("{at}: {error}"))?);
    }
    for at in [udp, unix(&datagram)] {
        let made = b.watcher.bind_datagram(at.clone(), DatagramOptions::default());
        server.sockets.push(made.map_err(|error| format!("{at}: {error}"))?);
    }
    Ok(server)
}

/// What a killed process had is free when it has ended: its ports and its paths. On io_uring they
/// stayed taken for some milliseconds, because requests of the ring outlived the process.
#[test]
fn the_addresses_of_a_killed_process_are_free() {
    let _alone = CHILDREN.lock();
    const NAME: &str = "the_addresses_of_a_killed_process_are_free";
    const ROUNDS: usize = 8;
    for driver in drivers() {
        let role = format!("{NAME} {driver:?}");
        if child::is_child(&role) {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("the addresses");
            let mut words = line.split_whitespace();
            let directory = PathBuf::from(words.next().expect("a directory"));
            let ports = [(); 2].map(|()| words.next().expect("a port").parse().expect("a port"));
            let mut b = bench(driver);
            let server = serve(&mut b, &directory, ports).expect("free addresses");
            for &listener in &server.listeners {
                b.submit(Op::accept(listener).multishot());
            }
            for &socket in &server.sockets {
                b.submit(Op::recv_from(socket).multishot());
            }
            b.expect_quiet();
            println!("\nserves");
            b.wait_once(BOUND);
            return;
        }
    }
    if std::env::var_os("WINDLASS_TEST_CHILD").is_some() {
        return;
    }
    for driver in drivers() {
        let directory = system::Directory::new();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let ports = [tcp.local_addr(), udp.local_addr()].map(|at| at.expect("its port").port());
        drop((tcp, udp));
        let mut taken = Vec::new();
        for _ in 0..ROUNDS {
            let mut child = child::spawn(NAME, &format!("{NAME} {driver:?}"));
            let [tcp, udp] = ports;
            let mut input = child.stdin.take().expect("its input");
            writeln!(input, "{} {tcp} {udp}", directory.path().display()).expect("it reads");
            let output = BufReader::new(child.stdout.take().expect("its output"));
            let serves = |line: &String| line == "serves";
            if !output.lines().map_while(Result::ok).any(|line| serves(&line)) {
                panic!("{driver:?}: it does not serve: {}", child::finish(child).1);
            }
            child.kill().expect("it runs");
            child.wait().expect("it has ended");
            let mut b = bench(driver);
            taken.extend(serve(&mut b, directory.path(), ports).err());
        }
        assert!(taken.is_empty(), "{driver:?}: {} of {ROUNDS}: {taken:?}", taken.len());
    }
}
