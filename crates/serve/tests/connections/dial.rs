//! Connections that the program begins: TCP, Unix and UDP, and sockets of std. However a dial ends,
//! its last event comes exactly once. nbio's TestDialAsync, and its latent bug (c).

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::Harness;
use crate::common::turns::Turns;
use windlass::driver::Deadline;
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions};
use windlass::{Address, Completions, Source, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits, Origin, Phase};

crate::every_driver! {
    each_kind_of_dial_opens_once_and_is_answered
    a_refused_dial_never_opens
    a_dial_ends_at_its_timeout
    a_udp_client_has_a_time_for_the_first_answer
    a_deadline_in_the_past_gives_one_try
    a_dial_that_is_cancelled_ends_once
    an_engine_takes_dials_again_after_its_shutdown
    a_simulated_or_bound_socket_becomes_a_client
}

mod system {
    use super::{sockets_of_std_become_connections, sockets_without_a_connection_never_open};

    crate::systems_drivers! {
        sockets_of_std_become_connections
        sockets_without_a_connection_never_open
    }
}

const ECONNREFUSED: i32 = if cfg!(target_os = "linux") { 111 } else { 61 };
const ENOENT: i32 = 2;

/// A path of a Unix socket, which is removed at the end.
struct UnixPath(PathBuf);

impl UnixPath {
    fn new() -> UnixPath {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-dial-{}-{number}", std::process::id());
        UnixPath(std::env::temp_dir().join(name))
    }

    fn address(&self) -> Address {
        Address::unix(&self.0).expect("a short path")
    }
}

impl Drop for UnixPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// How a connection has ended.
#[derive(Clone, Debug, PartialEq)]
struct End {
    cause: Cause,
    phase: Phase,
    unsent: usize,
    state: u32,
}

/// An engine that dials, and one that echoes, on one watcher.
struct Dialer<D: Driver> {
    watcher: Watcher<D>,
    engine: Engine<u32>,
    far: Engine<()>,
    tcp: Address,
    unix: Address,
    udp: Address,
    opened: HashMap<Id, Origin>,
    heard: HashMap<Id, Vec<u8>>,
    ends: HashMap<Id, End>,
    _path: UnixPath,
}

impl<D: Driver> Dialer<D> {
    fn new<T: Harness<Driver = D>>(limits: Limits) -> Dialer<D> {
        let mut watcher = T::watcher(Watcher::builder());
        let mut far = Engine::new(Config::new().udp_sessions(true));
        let (path, local) = (UnixPath::new(), ([127, 0, 0, 1], 0));
        let options = ListenOptions::default();
        far.listen(&mut watcher, local, options).expect("a listener");
        far.listen(&mut watcher, path.address(), options).expect("a listener");
        far.bind_datagram(&mut watcher, local, DatagramOptions::default()).expect("a socket");
        let at = |source: &Source| watcher.local_address(*source).expect("its address");
        let addresses: Vec<Address> = far.listeners().iter().map(at).collect();
        let [tcp, unix, udp] = addresses.try_into().expect("three");
        let (opened, heard, ends) = <(_, _, _)>::default();
        let engine = Engine::new(Config::new().limits(limits));
        Dialer { watcher, engine, far, tcp, unix, udp, opened, heard, ends, _path: path }
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            match event {
                Event::Opened { id, origin } => {
                    assert!(!self.ends.contains_key(&id), "it opens after its end");
                    assert_eq!(self.opened.insert(id, origin), None, "it opens again");
                }
                Event::Data { id, data } => {
                    assert!(self.opened.contains_key(&id) && !self.ends.contains_key(&id));
                    self.heard.entry(id).or_default().extend_from_slice(&data);
                }
                Event::Closed { id, cause, phase, unsent, state, .. } => {
                    let end = End { cause, phase, unsent, state };
                    assert_eq!(self.ends.insert(id, end), None, "it ends again");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn connect(&mut self, to: &Address, options: ConnectOptions, state: u32) -> Id {
        self.engine.connect([to.clone()], options, state).expect("few connections")
    }

    /// An address at which the next connect hangs: its listener accepts nothing.
    fn silent<T: Harness>(&mut self, at: Address) -> Address {
        let options = ListenOptions::default().backlog(0);
        let listener = self.watcher.listen_with(at, options).expect("a listener");
        let at = self.watcher.local_address(listener).expect("its address");
        for _ in 0..4 {
            let options = ConnectOptions::default().token(1);
            self.watcher.connect([at.clone()], options).expect("a source");
        }
        self.run_for(T::span(5.0));
        at
    }

    /// The address of a TCP port at which nothing listens.
    fn nowhere(&mut self) -> Address {
        let gone = self.watcher.listen(([127, 0, 0, 1], 0)).expect("a listener");
        let at = self.watcher.local_address(gone).expect("its address");
        self.watcher.abort(gone);
        at
    }
}

impl<D: Driver> Turns for Dialer<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            let rest = self.far.complete(&mut self.watcher, c);
            let rest = rest.and_then(|c| self.engine.complete(&mut self.watcher, c));
            assert!(rest.is_none_or(|c| c.token == 1), "it belongs to none");
        }
        while let Some(event) = self.far.next_event(&mut self.watcher) {
            if let Event::Data { id, data } = event {
                self.far.write(id, data).expect("it takes output");
            }
        }
        self.events();
        self.far.flush(&mut self.watcher);
        self.engine.flush(&mut self.watcher);
        count
    }
}

fn options() -> ConnectOptions {
    ConnectOptions::default()
}

fn each_kind_of_dial_opens_once_and_is_answered<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let (tcp, unix, udp) = (d.tcp.clone(), d.unix.clone(), d.udp.clone());
    let timeout = options().timeout(Duration::from_secs(100));
    let ids = [
        d.connect(&tcp, timeout, 1),
        d.connect(&unix, timeout, 2),
        d.engine.connect_datagram(udp.clone(), 3).unwrap(),
    ];
    for id in ids {
        d.engine.write(id, "written before it is open").unwrap();
    }
    d.engine.flush(&mut d.watcher);
    let said = b"written before it is open";
    let is_answered =
        |d: &Dialer<_>, id| d.heard.get(id).is_some_and(|all| all.len() >= said.len());
    d.until("all are answered", |d| ids.iter().all(|id| is_answered(d, id)));
    for (id, at) in ids.into_iter().zip([tcp.ip(), None, udp.ip()]) {
        assert_eq!(d.heard[&id], said);
        assert_eq!((d.opened[&id].listener, d.opened[&id].peer), (None, at));
        assert!(d.engine.close(id));
    }
    d.engine.flush(&mut d.watcher);
    d.until("all have ended", |d| d.ends.len() == 3);
    for (id, state) in ids.into_iter().zip(1..) {
        assert_eq!((d.ends[&id].cause, d.ends[&id].state), (Cause::Closed, state));
    }
    d.run_for(T::span(1.0));
    assert_eq!((d.engine.counters().connected, d.engine.len()), (3, 0));
}

/// nbio tells of a success as soon as the socket is writable, and looks at no error.
fn a_refused_dial_never_opens<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let (nowhere, missing) = (d.nowhere(), UnixPath::new());
    let mut dials = HashMap::new();
    for state in 0..20 {
        let (to, errno) = match state % 2 {
            0 => (nowhere.clone(), ECONNREFUSED),
            _ => (missing.address(), ENOENT),
        };
        let id = d.connect(&to, options(), state);
        d.engine.write(id, "hello").unwrap();
        dials.insert(id, (errno, state));
    }
    d.engine.flush(&mut d.watcher);
    d.until("all have ended", |d| d.ends.len() == 20);
    d.run_for(T::span(1.0));
    assert!(d.opened.is_empty(), "{:?}", d.opened);
    for (id, (errno, state)) in dials {
        let (ended, phase) = (&d.ends[&id], Phase::Connecting);
        // The simulation does not know directories.
        let causes = [Cause::Os(errno), Cause::Os(ECONNREFUSED)];
        assert!(causes.contains(&ended.cause), "{ended:?}");
        assert_eq!((ended.phase, ended.unsent, ended.state), (phase, 5, state));
    }
    assert_eq!(d.engine.counters().connected, 0);
    assert_eq!(d.engine.budget().used(), 0);
}

fn a_dial_ends_at_its_timeout<T: Harness>() {
    // Its own time counts, not that of the limits.
    for limit in [Some(T::span(1000.0)), None] {
        let mut d = Dialer::new::<T>(Limits::new().connect(limit));
        let path = UnixPath::new();
        let silent = d.silent::<T>(([127, 0, 0, 1], 0).into());
        let silent_unix = d.silent::<T>(path.address());
        let (start, span) = (d.watcher.update_now(), T::span(20.0));
        let ids = [silent, silent_unix].map(|to| d.connect(&to, options().timeout(span), 7));
        d.engine.flush(&mut d.watcher);
        d.run_for(span / 2);
        assert!(d.ends.is_empty() && d.opened.is_empty(), "{:?}", d.ends);
        d.until("both have ended", |d| d.ends.len() == 2);
        assert!(d.watcher.update_now() - start >= span);
        for id in ids {
            let (cause, phase) = (Cause::ConnectTimeout, Phase::Connecting);
            assert_eq!(d.ends[&id], End { cause, phase, unsent: 0, state: 7 });
        }
        assert_eq!(d.engine.counters().ends.failed, 2);
    }
}

/// A UDP connect waits for nothing: what takes time is the answer.
fn a_udp_client_has_a_time_for_the_first_answer<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let local = ([127, 0, 0, 1], 0);
    let silent = d.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    let silent = d.watcher.local_address(silent).unwrap();
    let (start, span) = (d.watcher.update_now(), T::span(20.0));
    let waits = d.engine.connect_datagram(silent, 1).unwrap();
    let answered = d.engine.connect_datagram(d.udp.clone(), 2).unwrap();
    for id in [waits, answered] {
        d.engine.write(id, "hello").unwrap();
        assert!(d.engine.set_read_deadline(id, Deadline::After(span)));
    }
    d.engine.flush(&mut d.watcher);
    d.until("one is answered", |d| !d.heard.is_empty());
    assert!(d.engine.set_read_deadline(answered, None));
    d.until("the other one has ended", |d| !d.ends.is_empty());
    assert!(d.watcher.update_now() - start >= span);
    d.run_for(span);
    assert_eq!((d.ends.len(), d.ends[&waits].cause), (1, Cause::ReadTimeout));
    assert_eq!(d.heard[&answered], b"hello");
}

fn a_deadline_in_the_past_gives_one_try<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let silent = d.silent::<T>(([127, 0, 0, 1], 0).into());
    let (tcp, unix, nowhere) = (d.tcp.clone(), d.unix.clone(), d.nowhere());
    let past = d.watcher.update_now() - Duration::from_millis(1);
    let past = [options().deadline(past), options().timeout(Duration::ZERO)];
    let mut ids = Vec::new();
    for options in past {
        for to in [&silent, &tcp, &unix, &nowhere] {
            ids.push(d.connect(to, options, ids.len() as u32));
        }
    }
    d.engine.flush(&mut d.watcher);
    let known = |d: &Dialer<_>, id| d.opened.contains_key(id) || d.ends.contains_key(id);
    d.until("all is known", |d| ids.iter().all(|id| known(d, id)));
    for (at, id) in ids.iter().enumerate() {
        let timeout = Some(Cause::ConnectTimeout);
        let cause = d.ends.get(id).map(|end| end.cause);
        match at % 4 {
            0 => assert_eq!(cause, timeout),
            1 => assert!(cause.is_none() || cause == timeout, "{cause:?}"),
            // A Unix socket is connected at once.
            2 => assert!(cause.is_none() || T::VIRTUAL && cause == timeout, "{cause:?}"),
            _ => assert!(cause == timeout || cause == Some(Cause::Os(ECONNREFUSED)), "{cause:?}"),
        }
        d.engine.abort(*id);
    }
    d.engine.flush(&mut d.watcher);
    d.until("all have ended", |d| d.ends.len() == ids.len());
    d.run_for(T::span(1.0));
    assert!(d.engine.is_empty());
}

/// At every moment between the call and the opening.
fn a_dial_that_is_cancelled_ends_once<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let silent = d.silent::<T>(([127, 0, 0, 1], 0).into());
    let nowhere = d.nowhere();
    let targets = [d.tcp.clone(), d.unix.clone(), silent, nowhere, d.udp.clone()];
    let mut count = 0;
    for steps in 0..5 {
        for (at, to) in targets.iter().enumerate() {
            for aborts in [false, true] {
                let id = match at {
                    4 => d.engine.connect_datagram(to.clone(), count).unwrap(),
                    _ => d.connect(to, options(), count),
                };
                count += 1;
                // Each step is a part of a turn.
                if steps > 0 {
                    d.engine.flush(&mut d.watcher);
                }
                for _ in 1..steps {
                    d.turn(Duration::ZERO);
                }
                let lives = !d.ends.contains_key(&id);
                assert_eq!(if aborts { d.engine.abort(id) } else { d.engine.close(id) }, lives);
                assert_eq!(d.engine.close(id), lives, "once more");
                d.engine.flush(&mut d.watcher);
                d.until("it has ended", |d| d.ends.contains_key(&id));
                let end = &d.ends[&id];
                let asked = if aborts { Cause::Aborted } else { Cause::Closed };
                let is_as_asked = end.cause == asked;
                let is_refused = at == 3 && end.cause == Cause::Os(ECONNREFUSED);
                assert!(is_as_asked || is_refused, "{end:?} of {at} after {steps} steps");
                assert_eq!(end.state, count - 1);
                assert!(!d.engine.close(id) && !d.engine.abort(id), "it is stale");
            }
        }
    }
    d.run_for(T::span(3.0));
    assert_eq!((d.ends.len(), d.engine.len()), (count as usize, 0));
    assert_eq!(d.engine.budget().used(), 0);
}

/// The shutdown of an engine without a server closes its connections. It is no end: the program
/// goes on with its listeners, and so do the requests of other threads.
fn an_engine_takes_dials_again_after_its_shutdown<T: Harness>() {
    let mut dialer = Dialer::new::<T>(Limits::new());
    let (remote, tcp) = (dialer.engine.remote(&mut dialer.watcher), dialer.tcp.clone());
    for round in 0..3_u32 {
        let options = ConnectOptions::default();
        remote.connect([tcp.clone()], options, round).expect("it takes connects");
        dialer.until("it is open", |d| d.opened.len() == round as usize + 1);
        remote.shutdown();
        let refused = remote.connect([tcp.clone()], options, 100_u32);
        assert_eq!(refused.map(drop), Err(100), "the shutdown comes first");
        dialer.until("it has ended", |d| d.ends.len() == round as usize + 1);
    }
    assert!(dialer.ends.values().all(|end| end.cause == Cause::Shutdown && end.state < 100));
}

/// A datagram socket with a peer, which the program has from the watcher.
fn a_simulated_or_bound_socket_becomes_a_client<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let (local, udp) = (([127, 0, 0, 1], 0), d.udp.clone());
    let socket = d.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    d.watcher.connect_datagram(socket, udp.clone()).unwrap();
    let handle = d.watcher.detach(socket).unwrap();
    let id = d.engine.attach_datagram(handle, 7).unwrap();
    d.engine.write(id, "one").unwrap();
    d.engine.write(id, "two").unwrap();
    d.engine.flush(&mut d.watcher);
    d.until("it is answered", |d| d.heard.get(&id).is_some_and(|heard| heard.len() == 6));
    assert_eq!((&*d.heard[&id], d.opened[&id].peer), (&b"onetwo"[..], udp.ip()));
    assert_eq!(d.far.counters().datagrams, 2, "each write is a datagram");
    // One that is aborted before it begins closes its descriptor, and ends once.
    let socket = d.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    let bare = d.watcher.detach(socket).unwrap();
    let gone = d.engine.attach_datagram(bare, 8).unwrap();
    d.engine.abort(gone);
    d.engine.close(id);
    d.engine.flush(&mut d.watcher);
    d.until("both have ended", |d| d.ends.len() == 2);
    assert_eq!((d.ends[&id].cause, d.ends[&gone].cause), (Cause::Closed, Cause::Aborted));
    let counters = d.engine.counters();
    assert_eq!((counters.attached, counters.connected), (1, 0));
}

fn sockets_of_std_become_connections<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let (tcp, udp) = (d.tcp.ip().unwrap(), d.udp.ip().unwrap());
    let stream = TcpStream::connect(tcp).unwrap();
    let path = d.unix.to_string();
    let unix = UnixStream::connect(path.trim_start_matches("unix:")).unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.connect(udp).unwrap();
    let ids = [
        d.engine.attach(stream, 1).unwrap(),
        d.engine.attach(unix, 2).unwrap(),
        d.engine.attach_datagram(datagrams, 3).unwrap(),
    ];
    for id in ids {
        d.engine.write(id, "hello").unwrap();
    }
    d.engine.flush(&mut d.watcher);
    d.until("all are answered", |d| d.heard.len() == 3);
    for (id, peer) in ids.into_iter().zip([Some(tcp), None, Some(udp)]) {
        assert_eq!((&*d.heard[&id], d.opened[&id].peer), (&b"hello"[..], peer));
        d.engine.close(id);
    }
    d.engine.flush(&mut d.watcher);
    d.until("all have ended", |d| d.ends.len() == 3);
    assert!(d.ends.values().all(|end| end.cause == Cause::Closed), "{:?}", d.ends);
    assert_eq!(d.engine.counters().attached, 3);
}

fn sockets_without_a_connection_never_open<T: Harness>() {
    let mut d = Dialer::new::<T>(Limits::new());
    let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = tcp.local_addr().unwrap();
    let stream = TcpStream::connect(d.tcp.ip().unwrap()).unwrap();
    // It connects, and that will fail.
    let connects = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let connects = connects.unwrap();
    let not_connected = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let ids = [
        d.engine.attach(tcp, 0).unwrap(),
        d.engine.attach(udp(), 1).unwrap(),
        d.engine.attach_datagram(stream, 2).unwrap(),
        d.engine.attach_datagram(udp(), 3).unwrap(),
        d.engine.attach(not_connected.unwrap(), 4).unwrap(),
    ];
    d.engine.flush(&mut d.watcher);
    d.until("all have ended", |d| d.ends.len() == 5);
    connects.set_nonblocking(true).unwrap();
    let _ = connects.connect(&nowhere.into());
    let refused = d.engine.attach(connects, 5).unwrap();
    d.engine.flush(&mut d.watcher);
    d.until("it has ended", |d| d.ends.len() == 6);
    assert!(d.opened.is_empty(), "{:?}", d.opened);
    for (at, id) in ids.into_iter().enumerate() {
        let cause = d.ends[&id].cause;
        let is_rejected = cause == Cause::Rejected;
        let is_unconnected = matches!(cause, Cause::Os(_));
        assert!(if at < 3 { is_rejected } else { is_unconnected }, "{at}: {cause:?}");
    }
    assert!(matches!(d.ends[&refused].cause, Cause::Os(_)), "{:?}", d.ends[&refused]);
    assert_eq!(d.engine.counters().attached, 0);
}
