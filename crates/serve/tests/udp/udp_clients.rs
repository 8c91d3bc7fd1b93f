//! UDP clients: connected sockets as sessions of an engine, on every driver.

use std::net::{SocketAddr, UdpSocket};
use std::task::Waker;
use std::time::Duration;

use crate::common::Harness;
use crate::common::turns::Turns;
use windlass::driver::Driver;
use windlass::net::DatagramOptions;
use windlass::{Address, Completions, Op, Source, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Limits, Refusal};

crate::every_driver! {
    a_client_is_answered_and_ends
    a_closed_port_ends_a_client_with_its_cause
    a_silent_peer_is_given_up
    what_cannot_be_connected_ends_without_an_opening
    many_clients_of_one_peer
    a_full_watcher_changes_no_order
}

/// A simulated network lets every socket connect.
mod refusals {
    use super::a_refused_connect_ends_a_client_with_its_errno;
    crate::systems_drivers! { a_refused_connect_ends_a_client_with_its_errno }
}

/// The token of the test's own operations.
const OWN: u64 = 9;

/// A server of sessions and clients, on one watcher.
struct Pair<D: Driver> {
    watcher: Watcher<D>,
    server: Engine<()>,
    clients: Engine<u32>,
    to: Address,
    /// What the clients have been told.
    told: Vec<(Id, String)>,
    ends: Vec<(Id, Cause, usize, u32)>,
}

impl<D: Driver> Pair<D> {
    fn new<T: Harness<Driver = D>>(limits: Limits) -> Pair<D> {
        Pair::on(T::watcher(Watcher::builder()), limits)
    }

    fn on(mut watcher: Watcher<D>, limits: Limits) -> Pair<D> {
        let mut server = Engine::new(Config::new().udp_sessions(true));
        let local = ([127, 0, 0, 1], 0);
        server.bind_datagram(&mut watcher, local, DatagramOptions::default()).expect("a socket");
        let to = watcher.local_address(server.listeners()[0]).expect("its address");
        let clients = Engine::new(Config::new().limits(limits));
        Pair { watcher, server, clients, to, told: Vec::new(), ends: Vec::new() }
    }

    fn connect(&mut self, state: u32) -> Id {
        let id = self.clients.connect_datagram(self.to.clone(), state).expect("few clients");
        self.clients.flush(&mut self.watcher);
        id
    }

    /// The socket of the server closes, and its port with it.
    fn close_the_port(&mut self) {
        self.server.stop_listening(&mut self.watcher);
        let to = self.to.clone();
        self.until("the port is closed", |pair| {
            let options = DatagramOptions::default();
            let bound: Result<Source, _> = pair.watcher.bind_datagram(to.clone(), options);
            bound.map(|source| pair.watcher.abort(source)).is_ok()
        });
    }
}

impl<D: Driver> Turns for Pair<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
    }

    /// The server echoes each datagram.
    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        for c in done.drain(..) {
            let rest = self.server.complete(&mut self.watcher, c);
            let rest = rest.and_then(|c| self.clients.complete(&mut self.watcher, c));
            assert!(rest.as_ref().is_none_or(|c| c.token == OWN), "{rest:?} belongs to none");
        }
        while let Some(event) = self.server.next_event(&mut self.watcher) {
            if let Event::Data { id, data } = event {
                self.server.write(id, data).expect("it takes output");
            }
        }
        while let Some(event) = self.clients.next_event(&mut self.watcher) {
            match event {
                Event::Opened { id, origin } => {
                    assert!(origin.listener.is_none() && origin.peer == self.to.ip());
                    self.told.push((id, "opened".to_owned()));
                }
                Event::Data { id, data } => {
                    let said = String::from_utf8(data.to_vec()).expect("text");
                    self.told.push((id, said));
                }
                Event::Closed { id, cause, unsent, state, .. } => {
                    self.ends.push((id, cause, unsent, state));
                }
                other => panic!("{other:?}"),
            }
        }
        self.server.flush(&mut self.watcher);
        self.clients.flush(&mut self.watcher);
        count
    }
}

/// nbio's TestUDP: the client's data, and its OnClose.
fn a_client_is_answered_and_ends<T: Harness>() {
    let mut pair = Pair::new::<T>(Limits::new());
    let id = pair.clients.connect_datagram(pair.to.clone(), 7).unwrap();
    // It takes output at once, also an empty datagram.
    for said in ["one", "", "three"] {
        pair.clients.write(id, said).unwrap();
    }
    assert_eq!(pair.clients.waiting(id), 8);
    // It is no stream.
    assert!(pair.clients.detach(id).is_err() && !pair.clients.charge(id, 1));
    assert!(pair.clients.stream(&mut pair.watcher, id, Waker::noop().clone()).is_none());
    assert!(!pair.clients.set_write_deadline(id, None) && pair.clients.set_deadline(id, None));
    pair.clients.flush(&mut pair.watcher);
    pair.until("it is answered", |pair| pair.told.len() == 4);
    let told: Vec<&str> = pair.told.iter().map(|(_, said)| &**said).collect();
    assert_eq!(told, ["opened", "one", "", "three"]);
    let large = "x".repeat(65_507);
    pair.clients.write(id, large.clone()).unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it is answered", |pair| pair.told.len() == 5);
    assert!(pair.told[4].1 == large);
    // One that is too long is counted, and ends nothing.
    pair.clients.write(id, vec![0; 65_508]).unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it is counted", |pair| pair.clients.counters().datagram_errors == 1);
    // What is written before a close is sent.
    pair.clients.write(id, "the last").unwrap();
    assert!(pair.clients.close(id));
    assert_eq!(pair.clients.write(id, "x").unwrap_err().reason, Refusal::Stale);
    pair.clients.flush(&mut pair.watcher);
    pair.until("it has ended", |pair| pair.ends.len() == 1);
    assert_eq!((pair.ends[0].0, pair.ends[0].1, pair.ends[0].3), (id, Cause::Closed, 7));
    pair.until("the last has arrived", |pair| pair.server.counters().datagrams == 5);
    assert_eq!((pair.clients.counters().connected, pair.clients.len()), (1, 0));
    pair.until("nothing is charged", |pair| pair.clients.budget().used() == 0);
}

fn a_closed_port_ends_a_client_with_its_cause<T: Harness>() {
    let mut pair = Pair::new::<T>(Limits::new());
    let id = pair.connect(3);
    pair.clients.write(id, "hello").unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it is answered", |pair| pair.told.len() == 2);
    pair.close_the_port();
    assert_eq!(pair.ends.len(), 0, "nothing shows it yet");
    pair.clients.write(id, "is there no one?").unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it has ended", |pair| pair.ends.len() == 1);
    assert_eq!(pair.ends[0], (id, Cause::Os(refused()), 0, 3));
    assert_eq!(pair.clients.counters().ends.failed, 1);
    // From the beginning.
    let id = pair.connect(4);
    pair.clients.write(id, "hello").unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it has ended", |pair| pair.ends.len() == 2);
    assert_eq!((pair.ends[1].0, pair.ends[1].1), (id, Cause::Os(refused())));
    pair.until("nothing is charged", |pair| pair.clients.budget().used() == 0);
}

/// The errno of a closed port.
fn refused() -> i32 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = std::net::TcpStream::connect(address).unwrap_err();
    error.raw_os_error().expect("an error of the system")
}

fn a_silent_peer_is_given_up<T: Harness>() {
    let idle = T::span(20.0);
    let mut pair = Pair::new::<T>(Limits::new().session_idle(idle));
    let begin = pair.watcher.update_now();
    let id = pair.connect(0);
    pair.until("it has ended", |pair| pair.ends.len() == 1);
    assert!(pair.watcher.update_now() - begin >= idle);
    assert_eq!((pair.ends[0].0, pair.ends[0].1), (id, Cause::Idle));
}

fn what_cannot_be_connected_ends_without_an_opening<T: Harness>() {
    let mut pair = Pair::new::<T>(Limits::new());
    // It has no internet address.
    let nowhere = pair.clients.connect_datagram(Address::unspecified(), 1).unwrap();
    pair.clients.write(nowhere, "hello").unwrap();
    // This one is aborted, and that one closed, before anything has happened.
    let aborted = pair.clients.connect_datagram(pair.to.clone(), 2).unwrap();
    assert!(pair.clients.abort(aborted));
    let closed = pair.clients.connect_datagram(pair.to.clone(), 3).unwrap();
    assert!(pair.clients.close(closed));
    pair.clients.flush(&mut pair.watcher);
    pair.until("they have ended", |pair| pair.ends.len() == 3);
    pair.ends.sort_by_key(|end| end.0);
    assert_eq!(pair.ends[0], (nowhere, Cause::Rejected, 5, 1));
    assert_eq!(pair.ends[1], (aborted, Cause::Aborted, 0, 2));
    assert_eq!(pair.ends[2], (closed, Cause::Closed, 0, 3));
    assert!(pair.told.is_empty() && pair.clients.is_empty());
    pair.until("nothing is charged", |pair| pair.clients.budget().used() == 0);
}

fn a_refused_connect_ends_a_client_with_its_errno<T: Harness>() {
    // It needs an option of the socket.
    let everyone = "255.255.255.255:9";
    let refused = UdpSocket::bind("0.0.0.0:0").unwrap().connect(everyone).unwrap_err();
    let errno = refused.raw_os_error().expect("an error of the system");
    let mut pair = Pair::new::<T>(Limits::new());
    let sources = pair.watcher.counters().sources;
    let everyone: SocketAddr = everyone.parse().unwrap();
    let id = pair.clients.connect_datagram(everyone, 4).unwrap();
    pair.clients.write(id, "hello").unwrap();
    pair.clients.flush(&mut pair.watcher);
    pair.until("it has ended", |pair| pair.ends.len() == 1);
    assert_eq!(pair.ends[0], (id, Cause::Os(errno), 5, 4));
    assert!(pair.told.is_empty() && pair.clients.is_empty());
    assert_eq!((pair.clients.counters().connected, pair.clients.counters().ends.failed), (0, 1));
    assert_eq!(pair.watcher.counters().sources, sources, "its socket is closed");
    pair.until("nothing is charged", |pair| pair.clients.budget().used() == 0);
}

fn many_clients_of_one_peer<T: Harness>() {
    let mut pair = Pair::new::<T>(Limits::new().sessions(0));
    let ids: Vec<Id> = (0..50).map(|at| pair.connect(at)).collect();
    for round in 1..=3 {
        for id in &ids {
            pair.clients.write(*id, id.to_string()).unwrap();
        }
        pair.clients.flush(&mut pair.watcher);
        pair.until("all are answered", |pair| pair.told.len() == 50 + round * 50);
    }
    for (id, said) in &pair.told {
        assert!(said == "opened" || *said == id.to_string());
    }
    assert_eq!(pair.server.counters().sessions, 50);
}

/// The watcher takes no further operation while a client connects: its datagrams leave in the order
/// of their writes all the same.
fn a_full_watcher_changes_no_order<T: Harness>() {
    let watcher = T::watcher(Watcher::builder().max_operations(100));
    let mut pair = Pair::on(watcher, Limits::new());
    let open = pair.connect(1);
    pair.until("it is open", |pair| !pair.told.is_empty());
    let long = || Op::timer(Duration::from_secs(3600)).token(OWN);
    let mut timers = Vec::new();
    while let Ok(timer) = pair.watcher.submit(long()) {
        timers.push(timer);
    }
    let connects = pair.clients.connect_datagram(pair.to.clone(), 2).expect("few clients");
    for (id, text) in [(connects, "first"), (open, "other"), (connects, "second")] {
        pair.clients.write(id, text).expect("it takes output");
    }
    pair.clients.flush(&mut pair.watcher);
    for timer in timers {
        assert!(pair.watcher.cancel(timer));
    }
    let of = |pair: &Pair<_>, which| -> Vec<String> {
        let told = pair.told.iter().filter(|(id, _)| *id == which);
        told.map(|(_, text)| text.clone()).collect()
    };
    pair.until("all are answered", |pair| pair.told.len() == 5);
    assert_eq!(of(&pair, connects), ["opened", "first", "second"]);
    assert_eq!(of(&pair, open), ["opened", "other"]);
}
