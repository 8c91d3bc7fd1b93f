//! The example `serve_redis` in the simulation, with seeded faults: a model of the store checks
//! every reply, and every acknowledged write survives a crash at any time.
#![allow(missing_docs)] // a test binary has no users

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use windlass::net::ConnectOptions;
use windlass::sim::{Faults, Sim};
use windlass::{Address, Completions, DriverKind, Op, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Running, Server};

use client::Client;
use common::Started;
use log::Shared;
use redis::Redis;
use store::{Store, Taken};

#[allow(dead_code)] // the server's loop is another one
#[path = "../examples/serve_redis/client.rs"]
mod client;
#[path = "../examples/common/mod.rs"]
mod common;
#[allow(dead_code)]
#[path = "../examples/serve_redis/log.rs"]
mod log;
#[allow(dead_code)]
#[path = "../examples/serve_redis/redis.rs"]
mod redis;
#[allow(dead_code)]
#[path = "../examples/serve_redis/resp.rs"]
mod resp;
#[path = "../../../tests/common/seeds.rs"]
mod seeds;
#[allow(dead_code)]
#[path = "../examples/serve_redis/store.rs"]
mod store;

/// The longest that a run may wait for anything; in the simulation every wait has an end.
const PATIENCE: Duration = Duration::from_secs(300);

/// The token of the timer that ends a sync of the simulated disk, and of the first client's timer
/// behind which it reads again.
const SYNC: u64 = 1;
const RESUME: u64 = 2;

/// The value of a key of a client.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// A client, with a model of its keys: no other client uses them.
#[derive(Debug, Default)]
struct Fake {
    name: usize,
    rng: Rng,
    values: Values,
    /// All writes in their order: a key and its new value.
    writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// How many of them were acknowledged.
    acknowledged: usize,
    /// Bytes of commands that are not sent.
    unsent: Vec<u8>,
    /// The replies that must come, and how many writes each of them acknowledges.
    expected: VecDeque<(Vec<u8>, usize)>,
    received: Vec<u8>,
    batches: u32,
    /// Whether it shuts down its side instead of saying QUIT.
    half_closes: bool,
}

impl Fake {
    fn new(name: usize, seed: u64) -> Fake {
        let mut rng = Rng::with_seed(seed ^ (name as u64) << 32);
        let batches = rng.u32(1..6);
        let half_closes = rng.bool();
        Fake {
            name,
            rng,
            values: Values::new(),
            writes: Vec::new(),
            acknowledged: 0,
            unsent: Vec::new(),
            expected: VecDeque::new(),
            received: Vec::new(),
            batches,
            half_closes,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{}:{}", self.name, self.rng.u8(..6)).into_bytes()
    }

    /// Says a command, as an array or inline.
    fn say(&mut self, words: &[&[u8]]) {
        let plain = |word: &&[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_alphanumeric);
        if words.iter().all(plain) && self.rng.u8(..4) == 0 {
            self.unsent.extend(words.join(&b' '));
            self.unsent.extend(if self.rng.bool() { &b"\r\n"[..] } else { b"\n" });
            return;
        }
        resp::array(&mut self.unsent, words.len());
        words.iter().for_each(|word| resp::bulk(&mut self.unsent, word));
    }

    /// Draws the next batch of commands, and what must be replied to them.
    fn next_batch(&mut self) {
        let count = self.rng.u32(1..40);
        for _ in 0..count {
            let mut reply = Vec::new();
            let before = self.writes.len();
            let key = self.key();
            match self.rng.u8(..10) {
                0 => {
                    self.say(&[b"PING"]);
                    resp::simple(&mut reply, "PONG");
                }
                1 => {
                    let text = self.value();
                    self.say(&[b"echo", &text]);
                    resp::bulk(&mut reply, &text);
                }
                2..5 => {
                    let value = self.value();
                    self.say(&[b"SET", &key, &value]);
                    resp::simple(&mut reply, "OK");
                    self.values.insert(key.clone(), value.clone());
                    self.writes.push((key, Some(value)));
                }
                5..8 => {
                    self.say(&[b"GET", &key]);
                    match self.values.get(&key) {
                        Some(value) => resp::bulk(&mut reply, value),
                        None => resp::null(&mut reply),
                    }
                }
                8 => {
                    let other = self.key();
                    self.say(&[b"DEL", &key, &other]);
                    let removed: Vec<_> = [key, other]
                        .into_iter()
                        .filter(|key| self.values.remove(key).is_some())
                        .collect();
                    resp::integer(&mut reply, removed.len());
                    // In one command, so that they are on the disk together.
                    self.writes.extend(removed.into_iter().map(|key| (key, None)));
                }
                _ => {
                    self.say(&[b"SET", &key]);
                    resp::error(&mut reply, "wrong number of arguments for 'SET' command");
                }
            }
            self.expected.push_back((reply, self.writes.len() - before));
        }
    }

    /// Up to some kilobytes.
    fn value(&mut self) -> Vec<u8> {
        let often = *self.rng.choice(&[1, 30, 300, 3000]).expect("some");
        let len = self.rng.usize(..often);
        let byte = self.rng.u8(..);
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }

    /// Checks the bytes that the server has sent.
    fn hear(&mut self, data: &[u8]) {
        self.received.extend_from_slice(data);
        let mut at = 0;
        while let Some((reply, writes)) = self.expected.front() {
            let there = &self.received[at..];
            let len = there.len().min(reply.len());
            assert!(there[..len] == reply[..len], "client {}: another reply", self.name);
            if there.len() < reply.len() {
                break;
            }
            at += reply.len();
            self.acknowledged += writes;
            self.expected.pop_front();
        }
        self.received.drain(..at);
        assert!(self.received.is_empty() || !self.expected.is_empty(), "more than was asked");
    }

    /// Whether `stored` is what the keys had after some write, the last acknowledged one or a later
    /// one.
    fn may_have(&self, stored: &Values) -> bool {
        let mut values = Values::new();
        let mut agrees = self.acknowledged == 0 && *stored == values;
        for (index, (key, value)) in self.writes.iter().enumerate() {
            match value {
                Some(value) => _ = values.insert(key.clone(), value.clone()),
                None => _ = values.remove(key),
            }
            agrees |= index + 1 >= self.acknowledged && *stored == values;
        }
        agrees
    }
}

/// The simulated disk: its durable bytes, and the group whose sync is in progress.
#[derive(Default)]
struct Disk {
    durable: Vec<u8>,
    syncing: Option<Taken>,
}

/// The counts of events in all runs. Each must be above 0.
#[derive(Debug, Default)]
struct Met {
    /// How often each fault has happened, by name.
    faults: BTreeMap<&'static str, u64>,
    replies: u64,
    broken: u64,
    groups: u64,
    torn: u64,
    /// Crashes whose log has more than what was acknowledged, so that the order is tested.
    ahead: u64,
    pauses: u64,
    /// Turns in which a client had to read before its next command.
    stalls: u64,
}

/// A run: the server and its clients on one simulated watcher.
struct World {
    rng: Rng,
    seed: u64,
    watcher: Watcher,
    shared: Arc<Shared>,
    server: Running<Redis>,
    /// Where it listens.
    at: Address,
    clients: Engine<Fake>,
    /// Clients by their names, while they are connected, and those that have ended.
    ids: Vec<Option<Id>>,
    gone: Vec<Fake>,
    disk: Disk,
}

impl World {
    fn new(seed: u64, mut watcher: Watcher) -> io::Result<World> {
        let mut rng = Rng::with_seed(seed);
        let store = Store::default();
        let is_logged = rng.u8(..3) > 0;
        let shared = Arc::new(Shared::new(if is_logged { store.logged() } else { store }));
        let new = |_| Redis::new(Arc::clone(&shared), Started::default(), resp::USUAL_BULK);
        let mut server = Server::new(new)
            .config(redis::config(resp::USUAL_BULK))
            .listen("tcp://127.0.0.1:0")?
            .start_on(&mut watcher)?;
        let listener = server.engine().listeners()[0];
        let at = watcher.local_address(listener)?;
        let clients = Engine::new(Config::new());
        let (ids, gone, disk) = (Vec::new(), Vec::new(), Disk::default());
        Ok(World { rng, seed, watcher, shared, server, at, clients, ids, gone, disk })
    }

    fn connect(&mut self) {
        let fake = Fake::new(self.ids.len(), self.seed);
        let options = ConnectOptions::default();
        let id = self.clients.connect([self.at.clone()], options, fake).expect("few connections");
        self.ids.push(Some(id));
    }

    /// One wait, and the work for its completions.
    fn turn(&mut self, met: &mut Met) -> io::Result<()> {
        let mut done = Completions::new();
        if self.watcher.wait_timeout(&mut done, PATIENCE)? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing happens"));
        }
        for c in done.drain(..) {
            match c.token {
                SYNC => self.finish_sync(met),
                token if (RESUME..1 << 63).contains(&token) => {
                    if let Some(id) = self.ids[(token - RESUME) as usize] {
                        self.clients.resume(id);
                    }
                }
                _ => {
                    let rest = self.server.complete(&mut self.watcher, c);
                    let rest = rest.and_then(|c| self.clients.complete(&mut self.watcher, c));
                    assert!(rest.is_none(), "a completion of no client: {rest:?}");
                }
            }
        }
        self.server.turn(&mut self.watcher);
        let served: Vec<Id> = self.server.engine().ids().collect();
        let mut has_more = |id: &Id| self.server.engine().state(*id).is_some_and(Client::has_more);
        met.stalls += served.iter().filter(|id| has_more(id)).count() as u64;
        while let Some(event) = self.clients.next_event(&mut self.watcher) {
            self.hear(event, met);
        }
        self.clients.flush(&mut self.watcher);
        self.begin_sync()
    }

    fn hear(&mut self, event: Event<Fake>, met: &mut Met) {
        match event {
            Event::Opened { id, .. } => {
                let fake = self.clients.state_mut(id).expect("it lives");
                fake.next_batch();
                self.send(id);
            }
            Event::Data { id, data } => {
                let fake = self.clients.state_mut(id).expect("it lives");
                let before = fake.expected.len();
                fake.hear(&data);
                met.replies += (before - fake.expected.len()) as u64;
                let name = fake.name as u64;
                if self.rng.u8(..8) == 0 {
                    // A client that does not read for a while.
                    met.pauses += 1;
                    self.clients.pause(id);
                    let span = Duration::from_micros(self.rng.u64(1..20_000));
                    self.watcher.submit(Op::timer(span).token(RESUME + name)).expect("room");
                }
                self.go_on(id);
            }
            Event::Wake { id } => self.send(id),
            // What a client has said waited, because the server has stopped reading.
            Event::Drained { .. } => {}
            Event::Closed { cause, state, .. } => {
                self.ids[state.name] = None;
                let is_complete = state.batches == 0 && state.expected.is_empty();
                if !is_complete {
                    let broken = matches!(cause, Cause::Os(_) | Cause::Rejected | Cause::Eof);
                    assert!(broken, "client {} ends: {cause:?}", state.name);
                    met.broken += 1;
                    self.connect();
                }
                self.gone.push(state);
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next batch, when all replies of the last one have come.
    fn go_on(&mut self, id: Id) {
        let fake = self.clients.state_mut(id).expect("it lives");
        if !fake.expected.is_empty() || !fake.unsent.is_empty() || fake.batches == 0 {
            return;
        }
        fake.batches -= 1;
        if fake.batches > 0 {
            fake.next_batch();
        } else if fake.half_closes {
            // The replies to the last batch come behind the end of the commands.
            fake.next_batch();
            let rest = std::mem::take(&mut fake.unsent);
            assert!(self.clients.write(id, rest).is_ok());
            self.clients.shutdown(id);
        } else {
            fake.say(&[b"QUIT"]);
            fake.expected.push_back((b"+OK\r\n".to_vec(), 0));
        }
        self.send(id);
    }

    /// Sends a part of a client's commands, and the rest later.
    fn send(&mut self, id: Id) {
        let fake = self.clients.state_mut(id).expect("it lives");
        if fake.unsent.is_empty() {
            return;
        }
        let all = fake.unsent.len();
        let count = if self.rng.bool() { all } else { self.rng.usize(1..=all) };
        let part: Vec<u8> = fake.unsent.drain(..count).collect();
        assert!(self.clients.write(id, part).is_ok());
        if count < all {
            self.clients.wake(id);
        }
    }

    /// The thread of the log: takes a group, and writes it for a while.
    fn begin_sync(&mut self) -> io::Result<()> {
        if self.disk.syncing.is_none() {
            self.disk.syncing = self.shared.lock().take();
            if self.disk.syncing.is_some() {
                let span = Duration::from_micros(self.rng.u64(1..3000));
                self.watcher.submit(Op::timer(span).token(SYNC))?;
            }
        }
        Ok(())
    }

    fn finish_sync(&mut self, met: &mut Met) {
        if self.rng.u8(..4) == 0 {
            self.crash(met);
        }
        let taken = self.disk.syncing.take().expect("a sync was begun");
        met.groups += 1;
        self.disk.durable.extend(&taken.commands);
        self.shared.lock().commit(taken.number);
        for id in taken.waiting {
            self.server.engine().wake(id);
        }
    }

    /// What a server that starts after a crash would read: all that is durable, and some bytes of
    /// what is not.
    fn crash(&mut self, met: &mut Met) {
        let mut log = self.disk.durable.clone();
        if let Some(taken) = &self.disk.syncing {
            log.extend(&taken.commands[..self.rng.usize(..=taken.commands.len())]);
        }
        let mut store = Store::default();
        let end = log::replay(&mut Cursor::new(&log), &mut store).expect("a torn tail is no error");
        met.torn += u64::from(end < log.len() as u64);
        let live: Vec<Id> = self.clients.ids().collect();
        let live = live.iter().filter_map(|id| self.clients.state(*id));
        for fake in self.gone.iter().chain(live) {
            let stored = values_of(&store, fake.name);
            assert!(fake.may_have(&stored), "client {}: a write is lost", fake.name);
            met.ahead += u64::from(fake.acknowledged < fake.writes.len());
        }
    }
}

/// The keys of a client in a store.
fn values_of(store: &Store, name: usize) -> Values {
    let prefix = format!("{name}:");
    let own = store.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
    own.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// A run in the simulation.
fn simulate(seed: u64, met: &mut Met) -> io::Result<()> {
    let mut rng = Rng::with_seed(!seed);
    let transient = Faults::transient(rng.f64() * 0.2);
    let reset = if rng.bool() { 0.001 } else { 0.0 };
    let sim = Sim::with_faults(seed, Faults { reset, ..transient });
    sim.set_buffer(*rng.choice(&[200, 5000, 64 << 10]).expect("some"));
    sim.set_patience(Duration::ZERO);
    run(seed, Watcher::simulated(&sim), met)?;
    for (name, count) in sim.injected().named() {
        *met.faults.entry(name).or_default() += count;
    }
    Ok(())
}

/// Serves some clients until all have what they want.
fn run(seed: u64, watcher: Watcher, met: &mut Met) -> io::Result<()> {
    let mut world = World::new(seed, watcher)?;
    for _ in 0..world.rng.u8(1..6) {
        world.connect();
    }
    world.clients.flush(&mut world.watcher);
    while world.ids.iter().any(Option::is_some) {
        world.turn(met)?;
    }
    let store = world.shared.lock();
    for fake in &world.gone {
        let stored = values_of(&store, fake.name);
        assert!(fake.may_have(&stored), "client {}: the store has other values", fake.name);
    }
    drop(store);
    world.server.stop(&mut world.watcher);
    while !world.server.is_over() {
        world.turn(met)?;
    }
    assert_eq!(world.server.report().panics, 0);
    Ok(())
}

/// Every reply is the one of the model, for every client, under faults. With a log, a write that
/// was acknowledged is in the log at every crash, behind all earlier ones of its client.
#[test]
fn every_reply_is_the_models() {
    let mut met = Met::default();
    seeds::each("redis", 50, 200, |seed| {
        simulate(seed, &mut met).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    });
    println!("{met:?}");
    let Met { faults, replies, broken, groups, torn, ahead, pauses, stalls } = met;
    // A single seed meets less.
    if seeds::setting::<u32>("WINDLASS_PROGRAMS").is_none_or(|programs| programs >= 50) {
        for count in [replies, broken, groups, torn, ahead, pauses, stalls] {
            assert!(count > 0, "something was never met");
        }
        for name in
            ["partial_read", "partial_write", "eagain", "eintr", "delayed_readiness", "reset"]
        {
            assert!(faults[name] > 0, "never happened: {name}");
        }
    }
}

/// The same on real sockets.
#[test]
fn every_reply_is_the_models_on_the_systems_drivers() {
    let mut met = Met::default();
    for driver in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
        for _ in 0..10 {
            let Ok(watcher) = Watcher::builder().driver(driver).build() else {
                eprintln!("SKIP: {driver:?} is not here");
                break;
            };
            let seed = seeds::draw();
            run(seed, watcher, &mut met)
                .unwrap_or_else(|error| panic!("{driver:?}, seed {seed}: {error}"));
        }
    }
    assert_eq!(met.broken, 0, "no connection breaks on the loopback interface");
    assert!(met.replies > 1000 && met.groups > 10 && met.stalls > 10, "{met:?}");
}

/// A value that is longer than 16 MiB comes back, and a string beyond the setting is refused by its
/// announced length.
#[test]
fn a_long_value_comes_back_and_a_longer_one_is_refused() {
    const MOST: usize = 20 << 20;
    let sim = Sim::new(seeds::draw());
    sim.set_buffer(1 << 20);
    sim.set_patience(Duration::ZERO);
    let mut watcher = Watcher::simulated(&sim);
    let shared = Arc::new(Shared::new(Store::default()));
    let mut server = Server::new(|_| Redis::new(Arc::clone(&shared), Started::default(), MOST))
        .config(redis::config(MOST))
        .listen("tcp://127.0.0.1:0")
        .and_then(|server| server.start_on(&mut watcher))
        .expect("the server starts");
    let at = watcher.local_address(server.engine().listeners()[0]).expect("it listens");
    let value = b"0123456789".repeat((17 << 20) / 10);
    let (mut asked, mut expected) = (Vec::new(), b"+OK\r\n".to_vec());
    resp::array(&mut asked, 3);
    [&b"SET"[..], b"k", &value].iter().for_each(|word| resp::bulk(&mut asked, word));
    asked.extend_from_slice(b"GET k\r\n");
    resp::bulk(&mut expected, &value);
    asked.extend_from_slice(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", MOST + 1).as_bytes());
    resp::error(&mut expected, "Protocol error: a string is longer than --max-bulk allows");
    let mut clients = Engine::<Vec<u8>>::new(Config::new());
    let options = ConnectOptions::default();
    let id = clients.connect([at], options, Vec::new()).expect("one connection");
    assert!(clients.write(id, asked).is_ok());
    let (mut done, mut heard) = (Completions::new(), None);
    while heard.is_none() {
        clients.flush(&mut watcher);
        watcher.wait(&mut done).expect("something happens");
        for c in done.drain(..) {
            let rest = server.complete(&mut watcher, c);
            let rest = rest.and_then(|c| clients.complete(&mut watcher, c));
            assert!(rest.is_none(), "a completion of nobody: {rest:?}");
        }
        server.turn(&mut watcher);
        while let Some(event) = clients.next_event(&mut watcher) {
            match event {
                Event::Data { id, data } => {
                    clients.state_mut(id).expect("it lives").extend_from_slice(&data);
                }
                Event::Closed { cause, state, .. } => heard = Some((cause, state)),
                _ => {}
            }
        }
    }
    let (cause, heard) = heard.expect("it has ended");
    assert_eq!((cause, heard.len()), (Cause::Eof, expected.len()));
    assert!(heard == expected, "other replies");
}

/// The log of a temporary directory.
fn with_log(content: &[u8], check: impl FnOnce(&Path)) {
    let path = std::env::temp_dir().join(format!("windlass-redis-{}", seeds::draw()));
    std::fs::write(&path, content).expect("a file");
    check(&path);
    std::fs::remove_file(&path).expect("it is there");
}

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n";
const DEL: &[u8] = b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n";

/// A log that is cut anywhere is read up to its last whole command, and goes on behind it.
#[test]
fn a_torn_log_is_cut_at_every_byte() {
    let whole = [SET, DEL, SET].concat();
    for cut in 0..=whole.len() {
        let ends = [0, SET.len(), SET.len() + DEL.len(), whole.len()];
        let end = *ends.iter().rfind(|end| **end <= cut).expect("0 is one");
        with_log(&whole[..cut], |path| {
            let (_, store, lost) = log::open(path).expect("a torn log is no error");
            assert_eq!(lost, (cut - end) as u64);
            assert_eq!(store.iter().count(), usize::from(end == ends[1] || end == ends[3]));
            assert_eq!(std::fs::read(path).expect("it is there"), &whole[..end]);
            assert_eq!(log::open(path).expect("it is whole").2, 0);
        });
    }
}

/// A file that is no log stays unchanged, and the error names the place of the fault.
#[test]
fn what_is_no_log_is_refused_and_stays() {
    for (bytes, why) in [
        (&b"*1\r\n$4\r\nPING\r\n"[..], "not a write"),
        (b"*1\r\n+\r\n", "expected '$', got '+'"),
        (b"*x\r\n", "invalid multibulk length"),
    ] {
        let content = [SET, bytes].concat();
        with_log(&content, |path| {
            let error = log::open(path).err().expect("it is refused").to_string();
            let expected = format!("byte {} of the log: {why}", SET.len());
            assert_eq!(error, expected);
            assert_eq!(std::fs::read(path).expect("it is there"), content);
        });
    }
}
