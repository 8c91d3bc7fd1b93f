//! shiny's own entry point, by its own rules: one function and four closures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use windlass::Buf;
use windlass_serve::{Cause, Id, Remote, serve};

/// The longest that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port that is free, as far as a test can know.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Connects once the server listens.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => thread::yield_now(),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the closures of a test share.
#[derive(Default)]
struct Seen {
    opened: Vec<Id>,
    closed: Vec<(Id, Cause)>,
    woken: Vec<Id>,
    ticks: usize,
}

/// shiny's TestShiny: ten clients, up to 100 KB at a time.
#[test]
fn ten_clients_echo_and_leave() {
    const CLIENTS: usize = 10;
    let address = free();
    let clients: Vec<_> = (0..CLIENTS as u64)
        .map(|seed| {
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut stream = connect(address);
                let mut banner = [0; 10];
                stream.read_exact(&mut banner).unwrap();
                assert_eq!(&banner, b"sweetness\n");
                for _ in 0..20 {
                    let said: Vec<u8> =
                        (0..random.usize(0..100 << 10)).map(|_| random.u8(..)).collect();
                    stream.write_all(&said).unwrap();
                    let mut heard = vec![0; said.len()];
                    stream.read_exact(&mut heard).unwrap();
                    assert!(heard == said, "another echo");
                }
            })
        })
        .collect();
    let mut seen = Seen::default();
    let report = serve(
        &format!("tcp://{address}"),
        |_, data, _: &mut Seen| (data, true),
        |id, peer, _, seen| {
            assert!(peer.is_some() && seen.ticks > 0);
            seen.opened.push(id);
            ("sweetness\n".into(), true)
        },
        |id, cause, seen| seen.closed.push((id, cause)),
        |seen| {
            seen.ticks += 1;
            seen.closed.len() < CLIENTS
        },
        &mut seen,
    );
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(report.unwrap().counters.ends.eof, CLIENTS as u64);
    assert!(seen.opened.is_sorted_by(|a, b| a < b), "ids increase: {:?}", seen.opened);
    seen.closed.sort_unstable_by_key(|(id, _)| *id);
    let expected: Vec<(Id, Cause)> = seen.opened.iter().map(|id| (*id, Cause::Eof)).collect();
    assert_eq!(seen.closed, expected);
}

/// shiny drops the answer of an `accept` that refuses, and never calls `closed` for it.
#[test]
fn accept_refuses_behind_its_answer() {
    let address = free();
    let client = thread::spawn(move || {
        let mut heard = String::new();
        connect(address).read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "we are full");
    });
    let mut seen = Seen::default();
    let report = serve(
        &format!("tcp://{address}"),
        |_, _, _: &mut Seen| panic!("it was refused"),
        |id, _, _, seen| {
            seen.opened.push(id);
            ("we are full".into(), false)
        },
        |id, cause, seen| seen.closed.push((id, cause)),
        |seen| seen.closed.is_empty(),
        &mut seen,
    );
    client.join().unwrap();
    assert_eq!(report.unwrap().panics, 0);
    assert_eq!(seen.closed, [(seen.opened[0], Cause::Closed)]);
}

/// A wake calls `handle` without bytes, several wakes call it once, and a wake of a connection that
/// has ended calls nothing: not even when the next one has its descriptor.
#[test]
fn a_wake_finds_its_connection_or_none() {
    let address = free();
    let wake = |(remote, id): &(Remote, Id)| remote.wake(*id);
    let (tell, told) = channel::<(Remote, Id)>();
    let client = thread::spawn(move || {
        let mut byte = [0];
        let mut first = connect(address);
        first.read_exact(&mut byte).unwrap();
        let stale = told.recv_timeout(PATIENCE).unwrap();
        assert!(wake(&stale));
        first.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"w");
        first.write_all(b"q").unwrap();
        assert_eq!(first.read(&mut byte).unwrap(), 0);
        drop(first);
        let mut second = connect(address);
        second.read_exact(&mut byte).unwrap();
        let (remote, id) = told.recv_timeout(PATIENCE).unwrap();
        // The server may not have seen yet that the first client has closed.
        let end = Instant::now() + PATIENCE;
        while wake(&stale) {
            assert!(Instant::now() < end, "its connection never ends");
            thread::yield_now();
        }
        assert!((0..100).all(|_| !wake(&stale)), "its connection has ended");
        assert!(remote.wake(id));
        second.read_exact(&mut byte).unwrap();
        second.write_all(b"q").unwrap();
        assert_eq!(second.read(&mut byte).unwrap(), 0, "one answer to one wake");
        (remote, id)
    });
    let mut seen = Seen::default();
    serve(
        &format!("tcp://{address}"),
        |id, data: Buf, seen: &mut Seen| {
            if data.is_empty() {
                seen.woken.push(id);
                return ("w".into(), true);
            }
            (Buf::default(), false)
        },
        |id, _, remote, seen| {
            seen.opened.push(id);
            tell.send((remote.clone(), id)).unwrap();
            ("!".into(), true)
        },
        |id, cause, seen| seen.closed.push((id, cause)),
        |seen| seen.closed.len() < 2,
        &mut seen,
    )
    .unwrap();
    let (remote, id) = client.join().unwrap();
    assert_eq!(seen.woken, seen.opened);
    assert!(!remote.wake(id), "the server has ended");
}

/// The first tick comes before the first connection, and false ends the server there.
#[test]
fn a_first_tick_of_false_serves_nothing() {
    let address = free();
    let (tell, told) = channel();
    let server = thread::spawn(move || {
        let report = serve(
            &format!("tcp://{address}"),
            |_, _, _: &mut ()| panic!("nothing was said"),
            |_, _, _, _| panic!("nothing has connected"),
            |_, _, _| panic!("nothing was open"),
            |_| false,
            &mut (),
        );
        tell.send(report.unwrap().counters.accepted).unwrap();
    });
    match told.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("it serves all the same"),
        accepted => assert_eq!(accepted, Ok(0)),
    }
    server.join().unwrap();
    // The port is free again.
    TcpListener::bind(address).unwrap();
}

/// The end of the ticks sends what waits, closes every connection, and calls `closed` for each.
#[test]
fn the_ticker_ends_every_connection() {
    const LONG: usize = 16 << 20;
    let address = free();
    let clients: Vec<_> = (0..10)
        .map(|_| {
            thread::spawn(move || {
                let mut heard = Vec::new();
                connect(address).read_to_end(&mut heard).unwrap();
                assert_eq!(heard.len(), LONG, "output is lost");
            })
        })
        .collect();
    let mut seen = Seen::default();
    serve(
        &format!("tcp://{address}"),
        |_, _, _: &mut Seen| panic!("nothing was said"),
        |id, _, _, seen| {
            seen.opened.push(id);
            (vec![7; LONG].into(), true)
        },
        |id, cause, seen| seen.closed.push((id, cause)),
        |seen| seen.opened.len() < 10,
        &mut seen,
    )
    .unwrap();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(seen.closed.len(), 10);
    assert!(seen.closed.iter().all(|(_, cause)| *cause == Cause::Shutdown));
}
