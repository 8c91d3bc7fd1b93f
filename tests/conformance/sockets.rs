//! Sockets of the system: resets, urgent data, Unix addresses, connects that hang, options.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::fd::{AsRawFd, OwnedFd};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use windlass::net::{ConnectOptions, Keepalive, ListenOptions, SocketOption};
use windlass::{
    Address, Builder, Done, ErrorKind, Op, Ready, Refusal, Source, SourceKind, Watcher,
};

use crate::common::*;

/// RST by SO_LINGER 0: reads say so once, then the stream is at its end. Winsock goes on saying so.
pub fn a_reset_is_reported_to_a_pending_read<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    system::reset_on_close(&mut b, there);
    let read = b.submit(Op::read(here));
    let next = b.submit(Op::read(here));
    b.look();
    assert!(b.watcher.abort(there));
    expect_errno(b.end(read), &[libc::ECONNRESET]);
    let next = b.end(next);
    let write = b.submit(Op::write(here, "x"));
    let write = b.end(write);
    if cfg!(windows) {
        expect_errno(next, RESET);
        expect_errno(write, RESET);
    } else {
        expect_eof(next);
        expect_errno(write, &[libc::EPIPE]);
    }
    b.expect_all_ended();
}

/// libuv's tcp_close_reset_*: a reset with writes queued ends every one of them.
pub fn a_reset_ends_queued_writes<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let behind: Vec<_> = (0..20).map(|_| b.submit(Op::write(stuck.writer, "x"))).collect();
    let shutdown = b.submit(Op::shutdown(stuck.writer));
    system::reset_on_close(&mut b, stuck.peer);
    assert!(b.watcher.abort(stuck.peer));
    let c = b.end(stuck.ticket);
    assert!(c.bytes() > 0);
    expect_errno(c, RESET);
    for ticket in behind.into_iter().chain([shutdown]) {
        let c = b.end(ticket);
        assert!(c.result.is_err() && c.bytes() == 0, "{c:?}");
    }
    b.expect_all_ended();
}

/// libuv's tcp_oob: urgent data is skipped, everything else arrives, in order, without a stall.
pub fn urgent_data_loses_and_reorders_nothing<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = system::tcp_pair();
    there.set_nodelay(true).unwrap();
    let source = b.watcher.attach(here).unwrap();
    for i in 0..100u8 {
        let read = b.submit(Op::read(source));
        b.look();
        (&there).write_all(&[i; 10]).unwrap();
        socket2::SockRef::from(&there).send_out_of_band(b"!").unwrap();
        (&there).write_all(&[i; 20]).unwrap();
        let mut got = expect_read(b.end(read)).to_vec();
        while got.len() < 30 {
            got.extend(b.read(source));
        }
        assert_eq!(got, [i; 30]);
    }
    b.expect_all_ended();
}

/// Unix stream sockets: listen, connect, echo; a path without a listener is replaced.
#[cfg(unix)]
pub fn unix_streams<H: Harness>() {
    let mut b = H::bench();
    let dir = system::Directory::new();
    let path = dir.path().join("socket");
    let at = Address::unix(&path).unwrap();
    let missing = b.submit(Op::connect(at.clone()));
    expect_errno(b.end(missing), &[libc::ENOENT]);
    // The path of a listener that is closed.
    drop(UnixListener::bind(&path).unwrap());
    let refused = b.submit(Op::connect(at.clone()));
    expect_errno(b.end(refused), &[libc::ECONNREFUSED]);
    let listener = b.watcher.listen(at.clone()).expect("a stale path is replaced");
    let error = b.watcher.listen(at.clone()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(b.watcher.local_address(listener).unwrap().path().unwrap(), path);
    for i in 0..20 {
        let (here, there) = b.connect(listener, &at);
        b.expect_alive(here, there);
        b.cross(here, there, &pattern(300_000, i));
        assert!(b.watcher.peer_address(there).unwrap().is_unspecified());
        assert_eq!(b.watcher.peer_address(here).unwrap().path().unwrap(), path);
        let close = b.submit(Op::close(here));
        expect_closed(b.end(close));
        assert!(b.read(there).is_empty());
        b.watcher.abort(there);
    }
    b.expect_all_ended();
}

/// Unix sockets with abstract names, which are no files.
pub fn abstract_unix_streams<H: Harness>() {
    let mut b = H::bench();
    let name = format!("windlass\0{}-{:?}", std::process::id(), std::thread::current().id());
    let at = match Address::unix_abstract(&name) {
        Ok(at) => at,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
            return;
        }
    };
    let refused = b.submit(Op::connect(at.clone()));
    expect_errno(b.end(refused), &[libc::ECONNREFUSED, libc::ENOENT]);
    let listener = b.watcher.listen(at.clone()).expect("a free name");
    let error = b.watcher.listen(at.clone()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let (here, there) = b.connect(listener, &at);
    assert_eq!(b.watcher.local_address(listener), Ok(at.clone()));
    let peer = b.watcher.peer_address(here).unwrap();
    assert_eq!((peer.abstract_name(), peer.path()), (Some(name.as_bytes()), None));
    b.cross(here, there, &pattern(30_000, 1));
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A listener whose backlog is full lets connects hang: (listener, its address, the connections
/// that fill it).
#[cfg(unix)] // Windows refuses where there is no room
fn full_listener() -> (TcpListener, SocketAddr, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let at = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(200)) {
        filling.push(stream);
        assert!(filling.len() < 100, "the backlog is not full");
    }
    (listener, at, filling)
}

/// libuv's tcp_connect_timeout and tcp_close_while_connecting.
#[cfg(unix)] // Windows refuses where there is no room
pub fn a_connect_that_hangs_expires_and_is_cancelled<H: Harness>() {
    let mut b = H::bench();
    let (_listener, at, _filling) = full_listener();
    let start = b.watcher.now();
    let span = Duration::from_millis(20);
    let expiring = b.submit(Op::connect(at).timeout(span).token(1));
    let hanging = b.submit(Op::connect(at).token(2));
    let closed = b.submit(Op::connect(at).token(3));
    let c = b.end(expiring);
    assert!(b.watcher.now() >= start + span);
    assert!(c.source.is_none());
    expect_unmoved(c, ErrorKind::Deadline);
    assert!(b.watcher.cancel(hanging));
    expect_unmoved(b.end(hanging), ErrorKind::Cancelled);
    assert_eq!(b.watcher.counters().sources, 1, "one connect is left");
    b.watcher.close();
    expect_unmoved(b.end(closed), ErrorKind::Closed);
    assert_eq!(b.watcher.counters().sources, 0);
}

/// Its deadline is in the past: one try, which a refusal or a local success may end.
#[cfg(unix)] // Windows refuses where there is no room
pub fn a_connect_with_a_passed_deadline_ends<H: Harness>() {
    let mut b = H::bench();
    let (_listener, at, _filling) = full_listener();
    let past = b.watcher.now() - Duration::from_nanos(1);
    let hanging = b.submit(Op::connect(at).deadline(past));
    expect_unmoved(b.end(hanging), ErrorKind::Deadline);
    b.expect_all_ended();
}

/// A connecting source cannot be used, even by a program that guesses its name.
#[cfg(unix)] // Windows refuses where there is no room
pub fn a_connect_in_flight_has_no_name<H: Harness>() {
    let mut b = H::bench();
    let (_listener, at, _filling) = full_listener();
    let (used, _) = UnixStream::pair().unwrap();
    let used = b.watcher.attach(used).unwrap();
    let connect = b.submit(Op::connect(at));
    assert_eq!(b.watcher.counters().sources, 2);
    for index in (0..64).filter(|&index| index != used.index()) {
        // The names of all places in their first reuse.
        let name = Source::from_parts(index, used.generation());
        assert_eq!(b.refuse(Op::read(name)).0, Refusal::Stale);
        assert_eq!(b.refuse(Op::read(name).multishot()).0, Refusal::Stale);
        assert_eq!(b.refuse(Op::write(name, "x")).0, Refusal::Stale);
        assert_eq!(b.refuse(Op::close(name)).0, Refusal::Stale);
        assert_eq!(b.watcher.fd(name).unwrap_err(), Refusal::Stale);
        assert!(b.watcher.local_address(name).is_err());
        assert!(!b.watcher.abort(name));
    }
    assert!(b.watcher.cancel(connect));
    expect_unmoved(b.end(connect), ErrorKind::Cancelled);
    b.expect_all_ended();
}

/// A Unix listener without room: connect(2) says `EAGAIN`, and nothing tells when there is room
/// again.
#[cfg(unix)]
pub fn a_unix_connect_waits_for_room<H: Harness>() {
    let mut b = H::bench();
    let dir = system::Directory::new();
    let path = dir.path().join("full");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let listener = UnixListener::from(OwnedFd::from(socket));
    let to = || Address::unix(&path).unwrap();
    let fills = b.submit(Op::connect(to()));
    let Ok(Done::Socket(filling)) = b.end(fills).result else { panic!("there is room for one") };
    let waits = b.submit(Op::connect(to()));
    let expires = b.submit(Op::connect(to()).timeout(Duration::from_millis(20)));
    expect_unmoved(b.end(expires), ErrorKind::Deadline);
    drop(listener.accept().unwrap());
    assert!(matches!(b.end(waits).result, Ok(Done::Socket(_))));
    drop(filling);
    b.expect_all_ended();
}

/// A socket of the program's, bound before.
pub fn connect_with_a_socket_of_ones_own<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let bound = socket.local_addr().unwrap().as_socket().unwrap();
    let accept = b.submit(Op::accept(listener));
    let connect = b.submit(Op::connect_with(TcpStream::from(socket), at));
    let accepted = expect_accepted(b.end(accept));
    assert_eq!(accepted.peer(), Some(bound));
    let there = b.watcher.attach(accepted).unwrap();
    let connected = expect_connected(b.end(connect));
    let here = b.watcher.attach(connected).unwrap();
    assert_eq!(b.watcher.local_address(here).unwrap().ip(), Some(bound));
    b.expect_alive(here, there);
}

/// libuv's tcp_reuseport: two watchers share a port, every connection is accepted once.
#[cfg(unix)]
pub fn listeners_share_a_port<H: Harness>() {
    let (mut a, mut b) = (H::bench(), H::bench());
    let options = ListenOptions::default().reuse_port(true);
    let first = a.watcher.listen_with(H::address(), options).unwrap();
    let at = a.watcher.local_address(first).unwrap();
    let second = b.watcher.listen_with(at.clone(), options).unwrap();
    a.submit(Op::accept(first).multishot());
    b.submit(Op::accept(second).multishot());
    let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(at.ip().unwrap()).unwrap()).collect();
    let (mut left, mut right) = (0, 0);
    let start = std::time::Instant::now();
    while left + right < clients.len() {
        left += a.now().into_iter().map(expect_accepted).count();
        right += b.now().into_iter().map(expect_accepted).count();
        assert!(start.elapsed() < BOUND);
    }
    assert!(left > 0 && right > 0, "{left} and {right}");
    assert!(a.watcher.listen(at).is_err(), "without the option the port is taken");
}

/// Options that were set before stay; those of a listener reach what it accepts.
pub fn options_survive_and_are_inherited<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let (here, there) = b.connect(listener, &at);
    let nodelay = |b: &mut Bench<H::Driver>, source| {
        let fd = b.watcher.fd(source).unwrap();
        socket2::SockRef::from(&fd).tcp_nodelay().unwrap()
    };
    assert!(nodelay(&mut b, there), "accepted sockets have TCP_NODELAY");
    assert!(!nodelay(&mut b, here));
    b.watcher.set_nodelay(here, true).unwrap();
    assert!(nodelay(&mut b, here));
    let (std_here, _std_there) = system::tcp_pair();
    std_here.set_ttl(33).unwrap();
    let source = b.watcher.attach(std_here).unwrap();
    let fd = b.watcher.detach(source).unwrap().into_fd().unwrap();
    #[allow(clippy::unnecessary_fallible_conversions)] // not everywhere is a descriptor a socket
    let detached = TcpStream::try_from(fd).unwrap();
    assert_eq!(detached.ttl().unwrap(), 33);
    let off = ListenOptions::default().nodelay(false);
    let listener = b.watcher.listen_with(H::address(), off).unwrap();
    let at = b.watcher.local_address(listener).unwrap();
    let (_, there) = b.connect(listener, &at);
    assert!(!nodelay(&mut b, there));
}

pub fn options_are_set_and_inherited<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let probes = Keepalive::new(Duration::from_millis(40_500));
    let probes = probes.interval(Duration::from_secs(7)).count(3);
    for option in [
        SocketOption::Keepalive(Some(probes)),
        SocketOption::Linger(Some(Duration::ZERO)),
        SocketOption::RecvBuffer(100_000),
        SocketOption::SendBuffer(120_000),
    ] {
        b.watcher.set_option(listener, option).unwrap();
    }
    let (here, there) = b.connect(listener, &at);
    let fd = b.watcher.fd(there).unwrap();
    let socket = socket2::SockRef::from(&fd);
    assert!(socket.keepalive().unwrap());
    #[cfg(not(any(windows, target_vendor = "apple")))] // they do not tell
    {
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(41));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(7));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    }
    assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
    assert!(socket.recv_buffer_size().unwrap() >= 100_000);
    assert!(socket.send_buffer_size().unwrap() >= 120_000);
    // A connection without probes gets them, and loses them again.
    let keepalive = |b: &mut Bench<H::Driver>| {
        let fd = b.watcher.fd(here).unwrap();
        let socket = socket2::SockRef::from(&fd);
        (socket.keepalive().unwrap(), socket.linger().unwrap())
    };
    assert_eq!(keepalive(&mut b), (false, None));
    b.watcher.set_option(here, SocketOption::Keepalive(Some(probes))).unwrap();
    b.watcher.set_option(here, SocketOption::Linger(Some(Duration::from_millis(1)))).unwrap();
    assert_eq!(keepalive(&mut b), (true, Some(Duration::from_secs(1))));
    b.watcher.set_option(here, SocketOption::Keepalive(None)).unwrap();
    b.watcher.set_option(here, SocketOption::Linger(None)).unwrap();
    assert_eq!(keepalive(&mut b), (false, None));
    // A value out of range is an error, and turns no probes on.
    let never = SocketOption::Keepalive(Some(probes.count(u32::MAX)));
    let refused = b.watcher.set_option(here, never);
    if cfg!(any(target_os = "linux", target_os = "android")) {
        assert_eq!(refused, Err(Refusal::Os(libc::EINVAL)));
        assert_eq!(keepalive(&mut b), (false, None));
    }
    #[cfg(unix)]
    {
        let (unix, _other) = UnixStream::pair().unwrap();
        let unix = b.watcher.attach(unix).unwrap();
        let refused = b.watcher.set_option(unix, SocketOption::Keepalive(Some(probes)));
        assert!(matches!(refused, Err(Refusal::Os(_))), "{refused:?}");
    }
}

/// libuv's tcp_open, multiple_listen: std's sockets in every state.
pub fn stds_sockets_can_be_attached<H: Harness>() {
    let mut b = H::bench();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let listener = b.watcher.attach(listener).unwrap();
    let mut client = TcpStream::connect(at).unwrap();
    let accept = b.submit(Op::accept(listener));
    let accepted = expect_accepted(b.end(accept));
    assert_eq!(accepted.peer(), Some(client.local_addr().unwrap()));
    let source = b.watcher.attach(accepted).unwrap();
    client.write_all(b"blocking client").unwrap();
    assert_eq!(b.read_exact(source, 15), b"blocking client");
    b.write(source, "non-blocking server");
    let mut text = [0; 19];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"non-blocking server");
    // A duplicate: the caller's socket lives on after the abort, and its flags were not changed.
    #[cfg(unix)]
    {
        let shared = b.watcher.attach_dup(&client).unwrap();
        b.write(source, "for the duplicate");
        assert_eq!(b.read_exact(shared, 17), b"for the duplicate");
        assert!(b.watcher.abort(shared));
    }
    b.write(source, "for the original");
    let mut text = [0; 16];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"for the original");
    // Not connected.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let lonely = b.watcher.attach(TcpStream::from(socket)).unwrap();
    let read = b.submit(Op::read(lonely));
    expect_errno(b.end(read), &[libc::ENOTCONN]);
    let write = b.submit(Op::write(lonely, "x"));
    // The first is what wine says on Windows' behalf.
    let broken = if cfg!(windows) { libc::ECONNRESET } else { libc::EPIPE };
    expect_errno(b.end(write), &[broken, libc::ENOTCONN]);
    let shutdown = b.submit(Op::shutdown(lonely));
    expect_errno(b.end(shutdown), &[libc::ENOTCONN]);
}

/// The ids of another watcher are stale here: a write to its peer reaches no other peer.
pub fn the_names_of_another_watcher_are_stale<H: Harness>() {
    let (mut b, mut other) = (H::bench(), H::bench());
    let (mine, _mine_there) = b.pair();
    let (theirs, _theirs_there) = other.pair();
    let read = b.submit(Op::read(mine));
    let resting = other.submit(Op::read(theirs));
    let timers = [(); 4].map(|()| b.submit(Op::timer(Duration::from_secs(60))));
    let placed = other.submit(Op::timer(Duration::from_secs(60)));
    assert_eq!(b.refuse(Op::write(theirs, "to another peer")).0, Refusal::Stale);
    assert_eq!(b.watcher.fd(theirs).unwrap_err(), Refusal::Stale);
    assert_eq!(b.watcher.detach(theirs).unwrap_err(), Refusal::Stale);
    assert!(!b.watcher.abort(theirs) && b.watcher.cancel_all(theirs) == 0);
    assert!(!b.watcher.cancel(resting) && !b.watcher.cancel(placed));
    let submitter = b.submitter();
    submitter.cancel(resting).unwrap();
    submitter.cancel(placed).unwrap();
    submitter.abort(theirs);
    b.expect_quiet();
    assert!(b.is_open(read) && timers.iter().all(|&timer| b.is_open(timer)));
}

/// A refused listen has bound nothing.
#[cfg(unix)]
pub fn a_refused_listen_leaves_no_path<H: Harness>() {
    let directory = system::Directory::new();
    let mut b = H::bench_with(Watcher::builder().max_sources(1));
    let listen = |b: &mut Bench<H::Driver>, name: &str| {
        let path = directory.at(name);
        let refused = b.watcher.listen(Address::unix(&path).unwrap()).unwrap_err();
        assert!(!path.exists(), "{name} was bound");
        refused.to_string()
    };
    let listener = b.watcher.listen(Address::unix(directory.at("first")).unwrap()).unwrap();
    let full = listen(&mut b, "second");
    assert!(full.contains("limit of 1 sources"), "{full}");
    b.watcher.abort(listener);
    b.watcher.close();
    let closed = listen(&mut b, "third");
    assert_eq!(closed, std::io::Error::from(Refusal::Closed).to_string());
}

/// A blocking listener that other code shares cannot be accepted from without blocking.
#[cfg(unix)]
pub fn a_shared_blocking_listener_is_refused<H: Harness>() {
    let mut b = H::bench();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = b.watcher.attach_dup(&listener).unwrap();
    let (reason, _) = b.refuse(Op::accept(source));
    assert_eq!(reason, Refusal::Unsupported);
    assert!(system::is_blocking(&listener));
    // It can be waited for, and closed.
    let poll = b.submit(Op::poll(source, Ready::READABLE));
    let _first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(
        matches!(b.end(poll).result, Ok(Done::Ready(ready)) if ready.contains(Ready::READABLE))
    );
    expect_closed(b.run(Op::close(source)));
    listener.set_nonblocking(true).unwrap();
    let source = b.watcher.attach_dup(&listener).unwrap();
    let accept = b.submit(Op::accept(source));
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    expect_accepted(b.end(accept));
}

/// The number of a closed descriptor is used again at once: events of the old are not the new's,
/// also when a duplicate keeps the old registration alive.
#[cfg(unix)]
pub fn stale_events_of_a_reused_number_are_harmless<H: Harness>() {
    let mut b = H::bench();
    let mut reused = 0;
    for round in 0..200 {
        let (here, there) = system::tcp_pair();
        let number = here.as_raw_fd();
        // Every other time a duplicate survives, so that the kernel keeps the old registration.
        let duplicate = (round % 2 == 0).then(|| here.try_clone().unwrap());
        let old = b.watcher.attach(here).unwrap();
        let read = b.submit(Op::read(old));
        b.look();
        let (spare, mine) = system::tcp_pair();
        // An event is under way when the source goes.
        (&there).write_all(b"for the old one").unwrap();
        assert!(b.watcher.abort(old));
        expect_unmoved(b.end(read), ErrorKind::Aborted);
        // A duplicate takes the lowest number that is free.
        let here = spare.try_clone().unwrap();
        drop(spare);
        reused += usize::from(here.as_raw_fd() == number);
        let new = b.watcher.attach(here).unwrap();
        let read = b.submit(Op::read(new));
        let _ = (&there).write_all(b"more for the old one");
        b.look();
        assert!(b.is_open(read), "round {round}: nothing was sent to the new one");
        (&mine).write_all(b"mine").unwrap();
        assert_eq!(&*expect_read(b.end(read)), b"mine");
        b.watcher.abort(new);
        drop(duplicate);
    }
    // The loop does not even hear of them.
    assert_eq!(b.watcher.counters().stale_events, 0);
    // Other tests run beside this one and take numbers, too, but not every time.
    assert!(reused > 0, "no number was used again: nothing was tested");
    b.expect_all_ended();
}

/// Deadlines in a turn that has no bytes left: the others' data must not cost a source the one try
/// that its passed deadline leaves it.
pub fn a_passed_deadline_has_its_try_in_a_busy_turn<H: Harness>() {
    overdue_reads::<H>(|here| Op::read_into(here, vec![0; 5]));
}

/// As above, for reads into swap buffers, of which the turn has one.
pub fn a_passed_deadline_has_its_try_when_the_buffers_of_the_turn_are_used<H: Harness>() {
    overdue_reads::<H>(Op::read);
}

fn overdue_reads<H: Harness>(op: impl Fn(Source) -> Op) {
    let builder = Watcher::builder().turn_budget(1).source_budget(1);
    for builder in [builder.clone(), builder.events_per_wait(1)] {
        overdue_reads_with::<H>(builder, &op);
    }
}

fn overdue_reads_with<H: Harness>(builder: Builder, op: &impl Fn(Source) -> Op) {
    let mut b = H::bench_with(builder);
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let (here, there) = system::tcp_pair();
            (b.watcher.attach(here).unwrap(), there)
        })
        .collect();
    for round in 0..10 {
        // Find every one empty, so that the driver waits for events.
        for &(here, _) in &pairs {
            let ticket = b.submit(Op::read(here).timeout(Duration::from_nanos(1)));
            expect_unmoved(b.end(ticket), ErrorKind::Deadline);
        }
        let past = b.watcher.now() - Duration::from_nanos(1);
        for (_, there) in &pairs {
            (&*there).write_all(b"there").unwrap();
        }
        for (here, _) in &pairs {
            // The bytes are there, but no wait has reported them.
            let fd = b.watcher.fd(*here).unwrap();
            assert!(system::wait_readable(fd, Some(BOUND)));
        }
        let tickets: Vec<_> =
            pairs.iter().map(|&(here, _)| b.submit(op(here).deadline(past))).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            let c = b.end(ticket);
            assert_eq!(c.error_kind(), None, "round {round}, source {i}: {c:?}");
        }
    }
}

/// More sockets have room again than one wait tells of: each write has its try all the same.
#[cfg(unix)]
pub fn a_passed_deadline_of_a_write_has_its_try<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().events_per_wait(1));
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            let (here, there) = system::tcp_pair();
            (b.watcher.attach(here).unwrap(), there)
        })
        .collect();
    for &(here, _) in &pairs {
        b.narrow(here);
        let op = Op::write(here, pattern(8 << 20, 1)).timeout(Duration::from_millis(1));
        let ticket = b.submit(op);
        expect_error(b.end(ticket), ErrorKind::Deadline);
    }
    for (here, there) in &pairs {
        there.set_nonblocking(true).unwrap();
        let mut memory = vec![0; 1 << 20];
        let end = std::time::Instant::now() + BOUND;
        while !b.watcher.fd(*here).is_ok_and(system::is_writable) {
            assert!(std::time::Instant::now() < end);
            while (&*there).read(&mut memory).is_ok() {}
        }
    }
    let past = b.watcher.now() - Duration::from_nanos(1);
    let write = |here| Op::write(here, "x").deadline(past);
    let tickets: Vec<_> = pairs.iter().map(|&(here, _)| b.submit(write(here))).collect();
    for ticket in tickets {
        expect_written(b.end(ticket));
    }
    b.expect_all_ended();
}

/// Connections come all the time, and every reader has its share of the turns.
pub fn a_storm_of_connections_starves_no_reader<H: Harness>() {
    for (count, every) in [2, 3, 9, 10, 11].into_iter().flat_map(|n| [(n, 1), (n, 9), (n, 10)]) {
        let builder = Watcher::builder().buffer_size(64).turn_budget(1);
        // A reader takes 17 buffers in its turn, the listener finds no further connection.
        let mut b = H::bench_with(builder.source_budget(1025));
        let (listener, at) = b.listen();
        b.submit(Op::accept(listener).multishot());
        let peers: Vec<_> = (0..count)
            .map(|i| {
                let (here, there) = system::tcp_pair();
                (&there).write_all(&pattern(60 << 10, 1)).unwrap();
                let here = b.watcher.attach(here).unwrap();
                b.submit(Op::read(here).multishot().token(i));
                there
            })
            .collect();
        let mut shares = vec![0; count as usize];
        let reads = 17 * 30 * count as usize;
        for i in 0..reads {
            if i % (17 * every) == 0 {
                drop(TcpStream::connect(at.ip().unwrap()).unwrap());
            }
            let c = b.next();
            if c.source != listener {
                shares[c.token as usize] += 1;
                expect_read(c);
            }
        }
        assert!(
            shares.iter().all(|&share| share >= 17 * 15),
            "{count} readers, a connection every {every} turns: {shares:?}"
        );
        drop(peers);
    }
}

/// Timers that are always due and plain reads that use a turn's buffers leave the others theirs.
pub fn timers_and_plain_reads_starve_no_other_read<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(64).turn_budget(1));
    let mut flooded: Vec<_> = (0..4)
        .map(|_| {
            let (here, there) = system::tcp_pair();
            (b.watcher.attach(here).unwrap(), there, None)
        })
        .collect();
    let (here, there) = system::tcp_pair();
    let source = b.watcher.attach(here).unwrap();
    let victim = b.submit(Op::read_into(source, vec![0; 9]));
    b.look();
    (&there).write_all(b"in a turn").unwrap();
    for turn in 0.. {
        assert!(turn < 100, "it starves");
        let timer = b.submit(Op::timer(Duration::ZERO));
        for (source, peer, read) in &mut flooded {
            if !read.is_some_and(|ticket| b.is_open(ticket)) {
                *read = Some(b.submit(Op::read(*source)));
            }
            (&*peer).write_all(b"x").unwrap();
        }
        expect_timer(b.end(timer));
        if !b.is_open(victim) {
            break;
        }
    }
    assert_eq!(&*expect_read(b.end(victim)), b"in a turn");
}

/// A socket of the program's may be of another kind: two datagrams that come at once are two reads.
pub fn a_datagram_socket_of_ones_own_can_be_connected<H: Harness>() {
    let mut b = H::bench();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let connect = b.submit(Op::connect_with(socket, peer.local_addr().unwrap()));
    let connected = expect_connected(b.end(connect));
    let here = b.watcher.attach(connected).unwrap();
    let read = b.submit(Op::read(here));
    b.look();
    for text in ["one", "two", "three"] {
        peer.send_to(text.as_bytes(), at).unwrap();
    }
    assert_eq!(&*expect_read(b.end(read)), b"one");
    for text in ["two", "three"] {
        let read = b.submit(Op::read(here).timeout(Duration::from_secs(5)));
        assert_eq!(&*expect_read(b.end(read)), text.as_bytes());
    }
    b.expect_all_ended();
}

/// A duplicate keeps the socket open whose connect was cancelled: the loop hears no more of it.
#[cfg(unix)]
pub fn a_cancelled_connect_leaves_no_registration<H: Harness>() {
    let mut b = H::bench();
    let (_listener, at, _filling) = full_listener();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let duplicate = socket.try_clone().unwrap();
    let connect = b.submit(Op::connect_with(TcpStream::from(socket), at));
    b.look();
    assert!(b.is_open(connect));
    assert!(b.watcher.cancel(connect));
    expect_unmoved(b.end(connect), ErrorKind::Cancelled);
    let _ = duplicate.shutdown(std::net::Shutdown::Both);
    b.look();
    assert_eq!(b.watcher.counters().stale_events, 0);
    b.expect_all_ended();
}

/// A Unix listener without room refuses at once: a source that connects tries until there is room.
pub fn a_unix_source_connects_when_the_backlog_has_room<H: Harness>() {
    let d = system::Directory::new();
    let at = Address::unix(d.path().join("listener")).unwrap();
    let mut b = H::bench();
    let backlog = ListenOptions::default().backlog(0);
    let listener = b.watcher.listen_with(at.clone(), backlog).unwrap();
    let mut clients = Vec::new();
    loop {
        let connect = b.submit(Op::connect(at.clone()));
        b.look_for(Duration::from_millis(5));
        if b.is_open(connect) {
            assert!(b.watcher.cancel(connect));
            expect_unmoved(b.end(connect), ErrorKind::Cancelled);
            break;
        }
        clients.push(expect_connected(b.end(connect)));
    }
    let (here, connect) = b.connect_source([at.clone()], ConnectOptions::default());
    let write = b.submit(Op::write(here, "hello"));
    b.look_for(Duration::from_millis(5));
    assert!(b.is_open(connect) && b.is_open(write));
    let mut there = None;
    for _ in 0..=clients.len() {
        there = Some(expect_accepted(b.run(Op::accept(listener))));
    }
    let c = b.end(connect);
    assert_eq!(c.source, here);
    assert!(matches!(c.result, Ok(Done::Connected(ref to)) if *to == at), "{c:?}");
    expect_written(b.end(write));
    let there = b.watcher.attach(there.expect("the last one")).unwrap();
    assert_eq!(b.read_exact(there, 5), b"hello");
    b.expect_alive(here, there);
    // A path at which nothing is.
    let none = Address::unix(d.path().join("none")).unwrap();
    let (here, connect) = b.connect_source([none, at], ConnectOptions::default());
    let c = b.end(connect);
    assert!(c.result.is_ok() && c.source == here, "the second address: {c:?}");
    b.expect_all_ended();
}

pub fn a_datagram_socket_of_std_can_have_a_peer<H: Harness>() {
    let mut b = H::bench();
    let here = b.watcher.attach(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let there = b.watcher.attach(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let there_at = b.watcher.local_address(there).unwrap();
    // No operation has asked for its kind before.
    b.watcher.connect_datagram(here, there_at).unwrap();
    let hear = b.submit(Op::recv_from(there));
    let send = b.submit(Op::write(here, "hello"));
    expect_written(b.end(send));
    let Ok(Done::Received { data, .. }) = b.end(hear).result else { panic!() };
    assert_eq!(&*data, b"hello");
    assert_eq!(b.watcher.kind(here), Ok(SourceKind::Datagram));
    b.expect_all_ended();
}
