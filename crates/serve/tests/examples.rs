//! The examples `serve_proxy`, `serve_broadcast`, `serve_chat` and `udp_sessions`, in the
//! simulation with seeded faults, and on the system's drivers.
#![allow(missing_docs)] // a test binary has no users
#![allow(clippy::duplicate_mod)] // the examples share a module

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions};
use windlass::sim::{Faults, Sim};
use windlass::{Completions, Done, DriverKind, Op, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Handler, Id, Server, ServerLoop};

#[path = "../../../tests/common/seeds.rs"]
mod seeds;
#[path = "../examples/serve_broadcast.rs"]
mod serve_broadcast;
#[path = "../examples/serve_chat.rs"]
mod serve_chat;
#[path = "../examples/serve_proxy.rs"]
mod serve_proxy;
#[path = "../examples/udp_sessions.rs"]
mod udp_sessions;

/// Any free port.
const ANY: &str = "tcp://127.0.0.1:0";

/// The longest real time that a run on a driver of the system may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token of the first timer of a test.
const TIMERS: u64 = 1;

fn simulated(seed: u64) -> (Sim, Watcher) {
    let mut rng = Rng::with_seed(!seed);
    let sim = Sim::with_faults(seed, Faults::transient(rng.f64() * 0.2));
    sim.set_buffer(*rng.choice(&[500, 5000, 64 << 10]).expect("some"));
    sim.set_patience(Duration::ZERO);
    let watcher = Watcher::simulated(&sim);
    (sim, watcher)
}

/// Where the first listener of a server listens.
fn address<H: Handler>(watcher: &Watcher, server: &mut ServerLoop<H>) -> SocketAddr {
    let listener = server.engine().listeners()[0];
    watcher.local_address(listener).expect("it listens").ip().expect("at an internet address")
}

/// An end of a connection through the proxy.
#[derive(Debug, Default)]
struct Peer {
    /// The number of the connection: the first byte that the client sends.
    name: Option<u8>,
    unsent: Vec<u8>,
    heard: Vec<u8>,
    ended: bool,
}

/// The bytes that the client with this number sends, or those that it must receive.
fn payload(name: u8, from_client: bool) -> Vec<u8> {
    let mut rng = Rng::with_seed(u64::from(name) << 1 | u64::from(from_client));
    let mut bytes = vec![name];
    let len = if rng.bool() { rng.usize(..200_000) } else { rng.usize(..2000) };
    bytes.extend((0..len).map(|_| rng.u8(..)));
    bytes
}

/// The proxy, with clients on one side and a server on the other, all on one watcher.
struct Proxied {
    rng: Rng,
    watcher: Watcher,
    proxy: ServerLoop<serve_proxy::Proxy>,
    /// Clients, and the server behind the proxy.
    sides: [Engine<Peer>; 2],
    /// Connections whose timer lets them read again.
    resting: Vec<(usize, Id)>,
    /// Ends that have heard all and closed, of both sides.
    done: BTreeMap<u8, usize>,
    /// How often more than the high mark waited for a connection.
    full: u64,
}

impl Proxied {
    fn new(mut watcher: Watcher, seed: u64, clients: u8) -> io::Result<Proxied> {
        let config = Config::new().close_on_eof(false);
        let mut sides = [Engine::new(config), Engine::new(config)];
        sides[1].listen(&mut watcher, ([127, 0, 0, 1], 0), ListenOptions::default())?;
        let to = watcher.local_address(sides[1].listeners()[0])?.ip().expect("an address");
        let new = |_| serve_proxy::Proxy { to: vec![to] };
        let mut proxy =
            Server::new(new).config(serve_proxy::config()).listen(ANY)?.start_on(&mut watcher)?;
        let at = address(&watcher, &mut proxy);
        for name in 0..clients {
            let unsent = payload(name, true);
            let peer = Peer { name: Some(name), unsent, ..Peer::default() };
            sides[0].connect([at], ConnectOptions::default(), peer).expect("few connections");
        }
        sides[0].flush(&mut watcher);
        let rng = Rng::with_seed(seed);
        let (resting, done) = (Vec::new(), BTreeMap::new());
        Ok(Proxied { rng, watcher, proxy, sides, resting, done, full: 0 })
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut done = Completions::new();
        if self.watcher.wait_timeout(&mut done, PATIENCE)? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing happens"));
        }
        for c in done.drain(..) {
            if (TIMERS..1 << 32).contains(&c.token) {
                let (side, id) = self.resting[(c.token - TIMERS) as usize];
                self.sides[side].resume(id);
                continue;
            }
            let mut rest = self.proxy.complete(&mut self.watcher, c);
            for side in &mut self.sides {
                rest = rest.and_then(|c| side.complete(&mut self.watcher, c));
            }
            assert!(rest.is_none(), "{rest:?} belongs to none");
        }
        self.proxy.turn(&mut self.watcher);
        let ids: Vec<Id> = self.proxy.engine().ids().collect();
        for id in ids {
            let waiting = self.proxy.engine().waiting(id);
            // The mark, and the read that went beyond it.
            assert!(waiting <= serve_proxy::HIGH + (64 << 10), "{waiting} bytes wait");
            self.full += u64::from(waiting > serve_proxy::HIGH);
        }
        for side in 0..2 {
            while let Some(event) = self.sides[side].next_event(&mut self.watcher) {
                self.hear(side, event);
            }
            self.sides[side].flush(&mut self.watcher);
        }
        Ok(())
    }

    fn hear(&mut self, side: usize, event: Event<Peer>) {
        let engine = &mut self.sides[side];
        match event {
            Event::Opened { id, .. } => self.send(side, id),
            Event::Wake { id } => self.send(side, id),
            Event::Data { id, data } => {
                let peer = engine.state_mut(id).expect("it lives");
                peer.heard.extend_from_slice(&data);
                let is_new = peer.name.is_none();
                if is_new {
                    peer.name = Some(data[0]);
                    peer.unsent = payload(data[0], false);
                }
                if self.rng.u8(..8) == 0 {
                    // It does not read for a while.
                    engine.pause(id);
                    let span = Duration::from_micros(self.rng.u64(1..20_000));
                    let token = TIMERS + self.resting.len() as u64;
                    self.resting.push((side, id));
                    self.watcher.submit(Op::timer(span).token(token)).expect("room");
                }
                if is_new {
                    self.send(side, id);
                }
            }
            Event::Eof { id } => engine.state_mut(id).expect("it lives").ended = true,
            Event::Drained { .. } => {}
            Event::Closed { cause, unsent, state, .. } => {
                assert!(matches!(cause, Cause::Eof | Cause::Closed), "{cause:?}");
                assert_eq!((unsent, state.unsent.len()), (0, 0));
                let name = state.name.expect("it has heard or said its number");
                assert!(state.heard == payload(name, side == 1), "connection {name}: other bytes");
                *self.done.entry(name).or_default() += 1;
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a part of the bytes, and the rest later; then ends this side.
    fn send(&mut self, side: usize, id: Id) {
        let engine = &mut self.sides[side];
        let peer = engine.state_mut(id).expect("it lives");
        if peer.unsent.is_empty() {
            return; // the number is not known yet
        }
        let count = self.rng.usize(1..=peer.unsent.len());
        let part: Vec<u8> = peer.unsent.drain(..count).collect();
        let is_all = peer.unsent.is_empty();
        engine.write(id, part).expect("it takes output");
        if is_all {
            engine.shutdown(id);
        } else {
            engine.wake(id);
        }
    }
}

fn proxied(watcher: Watcher, seed: u64) -> io::Result<u64> {
    const CLIENTS: u8 = 6;
    let mut proxied = Proxied::new(watcher, seed, CLIENTS)?;
    while proxied.done.values().sum::<usize>() < 2 * usize::from(CLIENTS) {
        proxied.turn()?;
    }
    assert!(proxied.done.values().all(|ends| *ends == 2));
    while !proxied.proxy.engine().is_empty() {
        proxied.turn()?;
    }
    assert_eq!(proxied.proxy.report().panics, 0);
    Ok(proxied.full)
}

/// All bytes arrive, in both directions, beyond a half-close; and at most the high mark waits, and
/// what a turn reads.
#[test]
fn the_proxy_passes_everything_on_and_holds_little() {
    let (mut faults, mut full) = (0, 0);
    seeds::each("proxy", 30, 30, |seed| {
        let (sim, watcher) = simulated(seed);
        full += proxied(watcher, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        faults += sim.injected().total();
    });
    assert!(full > 0, "no receiver was slow");
    assert!(faults > 0 || seeds::setting::<u64>("WINDLASS_SEED").is_some());
}

#[test]
fn the_proxy_on_the_systems_drivers() {
    for driver in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
        let Ok(watcher) = Watcher::builder().driver(driver).build() else {
            eprintln!("SKIP: {driver:?} is not here");
            continue;
        };
        proxied(watcher, seeds::draw()).unwrap_or_else(|error| panic!("{driver:?}: {error}"));
    }
}

/// A client of the broadcast.
#[derive(Debug, Default)]
struct Listener {
    text: String,
    /// The last message that it has heard, and how many it was told to have missed.
    last: u64,
    missed: u64,
    is_late: bool,
}

impl Listener {
    /// Takes in whole lines: each message is the one behind the last.
    fn hear(&mut self, data: &[u8], size: usize) {
        self.text.push_str(std::str::from_utf8(data).expect("text"));
        while let Some(end) = self.text.find('\n') {
            let line: String = self.text.drain(..=end).collect();
            let mut words = line.split_whitespace();
            let (what, number) = (words.next().expect("a word"), words.next().expect("a number"));
            let number: u64 = number.parse().expect("digits");
            if what == "missed" {
                self.missed += number;
                self.last += number;
                self.is_late = true;
            } else {
                assert_eq!(line.len(), size);
                assert!(self.last == 0 || number == self.last + 1, "{number} behind {}", self.last);
                self.last = number;
            }
        }
    }
}

/// One client that does not read hurts no other one: each gets every message within a few turns.
#[test]
fn a_stalled_listener_delays_no_other_one() {
    const CLIENTS: usize = 40;
    const SIZE: usize = 1000;
    const MESSAGES: u64 = 300;
    const TURNS: u64 = 3;
    let sim = Sim::new(seeds::draw());
    sim.set_patience(Duration::ZERO);
    let mut watcher = Watcher::simulated(&sim);
    let new = |_| serve_broadcast::Broadcast {
        interval: Duration::from_millis(10),
        size: SIZE,
        number: 0,
        ids: Vec::new(),
    };
    let mut server = Server::new(new)
        .config(serve_broadcast::config())
        .listen(ANY)
        .and_then(|server| server.start_on(&mut watcher))
        .expect("the server starts");
    let at = address(&watcher, &mut server);
    let mut clients = Engine::<Listener>::new(Config::new());
    let ids: Vec<Id> = (0..CLIENTS)
        .map(|_| {
            clients.connect([at], ConnectOptions::default(), Listener::default()).expect("few")
        })
        .collect();
    clients.flush(&mut watcher);
    let stalled = ids[0];
    let mut done = Completions::new();
    // The turn in which each message was made.
    let mut made = vec![0];
    let (mut most_waiting, mut delay, mut reads_again) = (0, 0, false);
    for turn in 1.. {
        watcher.wait(&mut done).expect("something happens");
        for c in done.drain(..) {
            let rest = server.complete(&mut watcher, c);
            let rest = rest.and_then(|c| clients.complete(&mut watcher, c));
            assert!(rest.is_none(), "{rest:?} belongs to none");
        }
        server.turn(&mut watcher);
        while let Some(event) = clients.next_event(&mut watcher) {
            match event {
                Event::Opened { id, .. } if id == stalled => _ = clients.pause(id),
                Event::Data { id, data } => {
                    let client = clients.state_mut(id).expect("it lives");
                    client.hear(&data, SIZE);
                    if id != stalled && client.last > 0 {
                        delay = delay.max(turn - made[client.last as usize]);
                    }
                }
                Event::Opened { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        clients.flush(&mut watcher);
        let served: Vec<Id> = server.engine().ids().collect();
        let waiting = served.iter().map(|id| server.engine().waiting(*id)).max().unwrap_or(0);
        most_waiting = most_waiting.max(waiting);
        assert!(waiting <= serve_broadcast::MOST + SIZE, "{waiting} bytes wait");
        let number = server.handler().number;
        made.resize(number as usize + 1, turn);
        if number == MESSAGES && !reads_again {
            assert_eq!(clients.state(stalled).expect("it lives").missed, 0);
            clients.resume(stalled);
            clients.flush(&mut watcher);
            reads_again = true;
        }
        assert!(number < 2 * MESSAGES, "the stalled client hears nothing any more");
        let late = clients.state(stalled).expect("it lives");
        if late.is_late && late.last + 1 >= number && number > MESSAGES + 10 {
            break;
        }
    }
    assert!((1..=TURNS).contains(&delay), "a message takes {delay} turns");
    let last = made.len() as u64 - 1;
    for &id in &ids {
        assert!(clients.state(id).expect("it lives").last + 1 >= last, "{id} lacks messages");
    }
    assert!(most_waiting >= serve_broadcast::MOST, "no client was stalled");
    assert!(clients.state(stalled).expect("it lives").missed > 0);
}

/// A client of the chat.
#[derive(Debug, Default)]
struct Talker {
    number: Option<u64>,
    text: String,
    /// How many lines it has said.
    said: u64,
    /// The last line of each other client.
    heard: BTreeMap<u64, u64>,
}

impl Talker {
    /// Takes in whole lines: those of each client come in their order.
    fn hear(&mut self, data: &[u8]) {
        self.text.push_str(std::str::from_utf8(data).expect("text"));
        while let Some(end) = self.text.find('\n') {
            let line: String = self.text.drain(..=end).collect();
            if let Some(number) = line.strip_prefix("you are ") {
                self.number = Some(number.trim_end().parse().expect("digits"));
            } else if let Some((who, said)) = line.trim_end().split_once(": ") {
                let (who, said): (u64, u64) =
                    (who.parse().expect("digits"), said.parse().expect("digits"));
                let last = self.heard.insert(who, said);
                assert!(last.is_none_or(|last| said == last + 1), "{line:?} behind {last:?}");
            } else {
                assert!(line.ends_with(" is here\n"), "{line:?}");
            }
        }
    }
}

fn chat(seed: u64) -> io::Result<u64> {
    const CLIENTS: usize = 5;
    const LINES: u64 = 20;
    let mut rng = Rng::with_seed(seed);
    let (sim, first) = simulated(seed);
    let loops = rng.usize(1..4);
    let mut watchers = vec![first];
    watchers.extend((1..loops).map(|_| Watcher::simulated(&sim)));
    let room = Arc::new(serve_chat::Room::default());
    let new = |_| serve_chat::Chat { room: Arc::clone(&room) };
    let mut servers =
        Server::new(new).config(serve_chat::config()).listen(ANY)?.start_on_each(&mut watchers)?;
    let at = address(&watchers[0], &mut servers[0]);
    // The clients have a watcher of their own.
    let mut watcher = Watcher::simulated(&sim);
    let mut clients = Engine::<Talker>::new(Config::new());
    for _ in 0..CLIENTS {
        clients.connect([at], ConnectOptions::default(), Talker::default()).expect("few");
    }
    clients.flush(&mut watcher);
    let mut done = Completions::new();
    loop {
        let mut count = 0;
        for (server, watcher) in servers.iter_mut().zip(&mut watchers) {
            count += watcher.try_wait(&mut done)?;
            for c in done.drain(..) {
                let rest = server.complete(watcher, c);
                assert!(rest.is_none(), "{rest:?} belongs to none");
            }
            server.turn(watcher);
        }
        count += watcher.try_wait(&mut done)?;
        for c in done.drain(..) {
            let rest = clients.complete(&mut watcher, c);
            assert!(rest.is_none(), "{rest:?} belongs to none");
        }
        while let Some(event) = clients.next_event(&mut watcher) {
            match event {
                Event::Opened { .. } => {}
                Event::Data { id, data } => clients.state_mut(id).expect("it lives").hear(&data),
                other => panic!("{other:?}"),
            }
        }
        // All talk once all are there.
        let ids: Vec<Id> = clients.ids().collect();
        if clients.ids().all(|id| clients.state(id).is_some_and(|talker| talker.number.is_some())) {
            for id in ids {
                let talker = clients.state_mut(id).expect("it lives");
                if talker.said < LINES && rng.bool() {
                    talker.said += 1;
                    let line = format!("{}\n", talker.said);
                    let (start, end) = line.split_at(rng.usize(..=line.len()));
                    clients.write_slice(id, start.as_bytes()).expect("it takes output");
                    clients.flush(&mut watcher);
                    clients.write_slice(id, end.as_bytes()).expect("it takes output");
                }
            }
        }
        clients.flush(&mut watcher);
        let is_over = clients.ids().all(|id| {
            let talker = clients.state(id).expect("it lives");
            talker.heard.len() == CLIENTS - 1 && talker.heard.values().all(|last| *last == LINES)
        });
        if is_over {
            break;
        }
        if count == 0 {
            let mut timeouts: Vec<_> = watchers.iter_mut().map(Watcher::next_timeout).collect();
            timeouts.push(watcher.next_timeout());
            assert!(sim.advance_to_next(timeouts), "nothing will happen any more");
        }
    }
    for (index, server) in servers.iter_mut().enumerate() {
        assert_eq!(server.report().panics, 0);
        let served = server.engine().len();
        assert!(served >= CLIENTS / loops, "loop {index} of {loops} serves {served}");
    }
    Ok(sim.injected().total())
}

/// Every client hears all lines of every other one, in the order of each, over several loops.
#[test]
fn every_client_of_the_chat_hears_all_others() {
    let mut faults = 0;
    seeds::each("chat", 40, 40, |seed| {
        faults += chat(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    });
    assert!(faults > 0 || seeds::setting::<u64>("WINDLASS_SEED").is_some());
}

/// Peers that ask one after the other, and answers that name the number of each datagram.
fn sessions(mut watcher: Watcher, seed: u64) -> io::Result<()> {
    const PEERS: usize = 5;
    const IDLE: Duration = Duration::from_millis(500);
    let mut rng = Rng::with_seed(seed);
    let new = |_| udp_sessions::Sessions { is_loud: false };
    let server = Server::new(new).config(udp_sessions::config(IDLE, PEERS));
    let mut server = server.listen("udp://127.0.0.1:0")?.start_on(&mut watcher)?;
    let to = address(&watcher, &mut server);
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let options = DatagramOptions::default();
        peers.push((watcher.bind_datagram(([127, 0, 0, 1], 0), options)?, 0));
    }
    let mut done = Completions::new();
    for _ in 0..50 {
        let (socket, count) = &mut peers[rng.usize(..PEERS)];
        let ends = rng.u8(..5) == 0;
        *count += 1;
        let said = if ends { "bye".to_owned() } else { "x".repeat(rng.usize(..3000)) };
        let answer = if ends { said.clone() } else { format!("{count}: {said}") };
        watcher.submit(Op::recv_from(*socket).token(1))?;
        watcher.submit(Op::send_to(*socket, said, to).token(2))?;
        let mut heard = None;
        while heard.is_none() {
            if watcher.wait_timeout(&mut done, PATIENCE)? == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "there is no answer"));
            }
            for c in done.drain(..) {
                if let Some(c) = server.complete(&mut watcher, c)
                    && let Done::Received { data, .. } = c.result?
                {
                    heard = Some(data);
                }
            }
            server.turn(&mut watcher);
        }
        assert_eq!(heard.as_deref(), Some(answer.as_bytes()));
        if ends {
            *count = 0;
        }
    }
    // They are forgotten.
    while !server.engine().is_empty() {
        if watcher.wait_timeout(&mut done, PATIENCE)? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a session does not end"));
        }
        for c in done.drain(..) {
            server.complete(&mut watcher, c);
        }
        server.turn(&mut watcher);
    }
    let report = server.report();
    let counters = report.counters;
    assert_eq!((counters.datagrams, report.panics, counters.refused_datagrams), (50, 0, 0));
    assert_eq!(counters.sessions, counters.ends.closed + counters.ends.idle);
    Ok(())
}

/// Each peer has a session with a count of its own, until it says goodbye or is silent.
#[test]
fn each_peer_of_udp_sessions_has_a_count_of_its_own() {
    let mut faults = 0;
    seeds::each("udp", 40, 40, |seed| {
        let (sim, watcher) = simulated(seed);
        sessions(watcher, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        faults += sim.injected().total();
    });
    assert!(faults > 0 || seeds::setting::<u64>("WINDLASS_SEED").is_some());
}
