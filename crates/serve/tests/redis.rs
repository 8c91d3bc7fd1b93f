//! The example `serve_redis` in the simulation, with seeded faults: a model of the store checks
//! every reply. The server is killed and its machine crashes at any step. Afterwards every
//! acknowledged write is there, and nothing that nobody has written. A log that lacks one of its
//! precautions is found out.
#![allow(missing_docs)] // a test binary has no users

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use windlass::net::ConnectOptions;
use windlass::sim::{Crash, Faults, Sim};
use windlass::{Address, Completion, Completions, DriverKind, Op, Watcher};
use windlass_serve::{Cause, Config, Engine, Event, Id, Remote, Server, ServerLoop};

use client::Client;
use journal::{Care, Journal};
use log::{Log, Shared};
use redis::Redis;
use store::Store;

#[allow(dead_code)] // the server's loop is another one
#[path = "../examples/serve_redis/client.rs"]
mod client;
#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/serve_redis/journal.rs"]
mod journal;
#[allow(dead_code)]
#[path = "../examples/serve_redis/lock.rs"]
mod lock;
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

/// The token of the first client's timer behind which it reads again.
const RESUME: u64 = journal::TOKEN + 1;

/// How often the server is started in a run with a log. The last start only reads the log.
const LIVES: usize = 5;

/// The value of a key of a client.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// A client, with a model of its keys: no other client uses them.
#[derive(Debug, Default)]
struct Fake {
    name: usize,
    rng: Rng,
    values: Values,
    /// What its keys had when its server was started again after its end.
    base: Values,
    /// All later writes in their order: a key and its new value.
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
            base: Values::new(),
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
        let mut values = self.base.clone();
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

/// The counts of events in all runs. Each must be above 0.
#[derive(Debug, Default)]
struct Met {
    /// How often each fault has happened, by name.
    faults: BTreeMap<&'static str, u64>,
    replies: u64,
    broken: u64,
    groups: u64,
    /// Starts that have cut off a torn group.
    torn: u64,
    /// Clients whose server has ended before it could acknowledge all their writes.
    ahead: u64,
    pauses: u64,
    /// Turns in which a client had to read before its next command.
    stalls: u64,
    /// How lives have ended besides: by a crash, by a kill, in the recovery, by a fault in it, and
    /// by a failed write or sync.
    crashes: u64,
    kills: u64,
    in_recovery: u64,
    errors: u64,
    failures: u64,
    crash: Crash,
}

/// A log, and what must be in it and may be in it.
struct Past {
    /// None for a server without a log.
    path: Option<PathBuf>,
    care: Care,
    /// All clients whose connections have ended.
    gone: Vec<Fake>,
}

impl Past {
    /// Compares what a start has read. It is on the disk now, so a later crash must not lose it.
    fn check(&mut self, store: &Store) -> Result<(), String> {
        let mut count = 0;
        for fake in &mut self.gone {
            let stored = values_of(store, fake.name);
            if !fake.may_have(&stored) {
                let name = fake.name;
                return Err(format!("client {name}: a write is lost, or a value is another one"));
            }
            count += stored.len();
            fake.base = stored;
            fake.writes.clear();
            fake.acknowledged = 0;
        }
        match store.iter().count() {
            all if all == count => Ok(()),
            all => Err(format!("{all} keys, and the clients have {count}")),
        }
    }
}

/// A life: the server and its clients on one watcher.
struct World<'w> {
    rng: Rng,
    seed: u64,
    watcher: &'w mut Watcher,
    shared: Arc<Shared>,
    log: Option<Log>,
    server: ServerLoop<Redis>,
    /// Wakes its connections.
    remote: Remote,
    /// Where it listens.
    at: Address,
    clients: Engine<Fake>,
    /// Clients while they are connected; the first has the name `first`, and so on.
    ids: Vec<Option<Id>>,
    first: usize,
    /// Clients that have ended.
    gone: Vec<Fake>,
    /// The log has failed, and the server ends.
    has_failed: bool,
}

/// Why a life has no server.
enum NoLife {
    /// It was stopped in its recovery.
    Stopped,
    Failed(io::Error),
}

/// The faults that may end a life, and nothing else.
fn is_fault(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    matches!(error.raw_os_error(), Some(EIO | ENOSPC))
}

/// Reads the log as a server that starts, and stops after so many operations of its recovery.
fn open(
    watcher: &mut Watcher,
    (path, care): (&Path, Care),
    mut steps: u32,
    salt: u32,
    met: &mut Met,
) -> Result<(Store, Journal), NoLife> {
    let mut is_stopped = false;
    let mut run = |watcher: &mut Watcher, op: Op| {
        let ticket = watcher.submit(op)?;
        if steps == 0 {
            is_stopped = true;
            return Err(io::ErrorKind::Interrupted.into());
        }
        steps -= 1;
        Ok(watcher.wait_for(ticket)?.result?)
    };
    let mut store = Store::logged();
    match Journal::open(watcher, &mut run, path, salt, care, &mut store) {
        Ok((journal, cut)) => {
            met.torn += u64::from(cut.is_some());
            Ok((store, journal))
        }
        Err(_) if is_stopped => Err(NoLife::Stopped),
        Err(error) => Err(NoLife::Failed(error)),
    }
}

impl<'w> World<'w> {
    fn new(
        seed: u64,
        watcher: &'w mut Watcher,
        log: Option<(Store, Journal)>,
        rng: Rng,
        first: usize,
    ) -> io::Result<World<'w>> {
        let (store, journal) = match log {
            Some((store, journal)) => (store, Some(journal)),
            None => (Store::default(), None),
        };
        let shared = Arc::new(Shared::new(store));
        let log = journal.map(|journal| Log::new(Arc::clone(&shared), journal));
        let new = |_| Redis::new(Arc::clone(&shared), resp::USUAL_BULK);
        let mut server = Server::new(new)
            .config(redis::config(resp::USUAL_BULK))
            .listen("tcp://127.0.0.1:0")?
            .start_on(watcher)?;
        let listener = server.engine().listeners()[0];
        let at = watcher.local_address(listener)?;
        let remote = server.remote();
        Ok(World {
            rng,
            seed,
            watcher,
            shared,
            log,
            server,
            remote,
            at,
            clients: Engine::new(Config::new()),
            ids: Vec::new(),
            first,
            gone: Vec::new(),
            has_failed: false,
        })
    }

    fn connect(&mut self) {
        let fake = Fake::new(self.first + self.ids.len(), self.seed);
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
                journal::TOKEN => self.take(c, met)?,
                token if (RESUME..1 << 63).contains(&token) => {
                    if let Some(id) = self.ids[(token - RESUME) as usize] {
                        self.clients.resume(id);
                    }
                }
                _ => {
                    let rest = self.server.complete(self.watcher, c);
                    let rest = rest.and_then(|c| self.clients.complete(self.watcher, c));
                    assert!(rest.is_none(), "a completion of no client: {rest:?}");
                }
            }
        }
        self.server.turn(self.watcher);
        let served: Vec<Id> = self.server.engine().ids().collect();
        let mut has_more = |id: &Id| self.server.engine().state(*id).is_some_and(Client::has_more);
        met.stalls += served.iter().filter(|id| has_more(id)).count() as u64;
        while let Some(event) = self.clients.next_event(self.watcher) {
            self.hear(event, met);
        }
        self.clients.flush(self.watcher);
        if let Some(log) = &mut self.log {
            let remote = &self.remote;
            let wake = |id| {
                remote.wake(id);
            };
            log.begin(self.watcher, &wake)?;
        }
        Ok(())
    }

    /// The end of an operation of the log.
    fn take(&mut self, c: Completion, met: &mut Met) -> io::Result<()> {
        let log = self.log.as_mut().expect("only a log has operations");
        let remote = &self.remote;
        let wake = |id| {
            remote.wake(id);
        };
        let Err(error) = log.handle(self.watcher, c, &wake) else { return Ok(()) };
        if !is_fault(&error) {
            return Err(error);
        }
        // As the loop of the log: nothing is acknowledged any more, and the server ends.
        met.failures += 1;
        self.log = None;
        self.has_failed = true;
        self.server.stop(self.watcher);
        Ok(())
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
                let index = (fake.name - self.first) as u64;
                if self.rng.u8(..8) == 0 {
                    // A client that does not read for a while.
                    met.pauses += 1;
                    self.clients.pause(id);
                    let span = Duration::from_micros(self.rng.u64(1..20_000));
                    self.watcher.submit(Op::timer(span).token(RESUME + index)).expect("room");
                }
                self.go_on(id);
            }
            Event::Wake { id } => self.send(id),
            // What a client has said waited, because the server has stopped reading.
            Event::Drained { .. } => {}
            Event::Closed { cause, state, .. } => {
                self.ids[state.name - self.first] = None;
                let is_complete = state.batches == 0 && state.expected.is_empty();
                if self.has_failed {
                    // Its server is about to end.
                } else if !is_complete {
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

    /// Serves until all clients have what they want, or for so many turns. If the log fails, until
    /// the server has ended.
    fn serve(&mut self, turns: u32, met: &mut Met) -> io::Result<()> {
        let mut count = 0;
        while count < turns && self.ids.iter().any(Option::is_some) && !self.has_failed {
            self.turn(met)?;
            count += 1;
        }
        if self.has_failed || count < turns {
            self.server.stop(self.watcher);
            while !self.server.is_over() {
                self.turn(met)?;
            }
            assert_eq!(self.server.report().panics, 0);
        }
        Ok(())
    }

    /// The clients, at the end of the server.
    fn end(mut self, met: &mut Met) -> Vec<Fake> {
        // The last flush may have ended some.
        while let Some(event) = self.clients.next_event(self.watcher) {
            if let Event::Closed { state, .. } = event {
                self.gone.push(state);
            }
        }
        let live: Vec<Id> = self.clients.ids().collect();
        for id in live {
            self.gone.push(std::mem::take(self.clients.state_mut(id).expect("it lives")));
        }
        assert_eq!(self.gone.len(), self.ids.len(), "a client is missing");
        let store = self.shared.lock();
        for fake in &self.gone {
            let stored = values_of(&store, fake.name);
            assert!(fake.may_have(&stored), "client {}: the store has other values", fake.name);
            met.ahead += u64::from(fake.acknowledged < fake.writes.len());
        }
        if self.log.is_some() {
            met.groups += store.durable();
        }
        drop(store);
        self.gone
    }
}

/// The keys of a client in a store.
fn values_of(store: &Store, name: usize) -> Values {
    let prefix = format!("{name}:");
    let own = store.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
    own.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// A life of a server: reads its log, and serves some clients for so many turns.
fn live(
    seed: u64,
    watcher: &mut Watcher,
    rng: &mut Rng,
    past: &mut Past,
    (steps, turns): (u32, u32),
    met: &mut Met,
) -> Result<(), String> {
    let mut opened = None;
    if let Some(path) = &past.path {
        match open(watcher, (path, past.care), steps, rng.u32(..), met) {
            Ok(log) => opened = Some(log),
            Err(NoLife::Stopped) => {
                met.in_recovery += 1;
                return Ok(());
            }
            Err(NoLife::Failed(error)) if is_fault(&error) => {
                met.errors += 1;
                return Ok(());
            }
            Err(NoLife::Failed(error)) => return Err(format!("the log is refused: {error}")),
        }
    }
    if let Some((store, _)) = &opened {
        past.check(store)?;
    }
    if turns == 0 {
        return Ok(());
    }
    let mut serve = || {
        let own = Rng::with_seed(rng.u64(..));
        let mut world = World::new(seed, watcher, opened.take(), own, past.gone.len())?;
        for _ in 0..world.rng.u8(1..6) {
            world.connect();
        }
        world.clients.flush(world.watcher);
        world.serve(turns, met)?;
        Ok(world.end(met))
    };
    past.gone.extend(serve().map_err(|error: io::Error| error.to_string())?);
    Ok(())
}

/// A run in the simulation. Returns what is wrong with the log.
fn simulate(seed: u64, care: Care, met: &mut Met) -> Result<(), String> {
    let mut rng = Rng::with_seed(!seed);
    let transient = Faults::transient(rng.f64() * 0.2);
    let reset = if rng.bool() { 0.001 } else { 0.0 };
    let fails = if rng.bool() { 0.01 } else { 0.0 };
    let faults = Faults { reset, file_error: fails, sync_error: fails, ..transient };
    let sim = Sim::with_faults(seed, Faults { disk_full: fails, ..faults });
    sim.set_buffer(*rng.choice(&[200, 5000, 64 << 10]).expect("some"));
    sim.set_completing(rng.bool());
    sim.set_patience(Duration::ZERO);
    let path = if rng.bool() { "redis.aof" } else { "data/redis.aof" };
    let path = (rng.u8(..4) > 0).then(|| PathBuf::from(path));
    let lives = if path.is_some() { LIVES } else { 1 };
    let mut past = Past { path, care, gone: Vec::new() };
    for number in 1..=lives {
        // A recovery has about ten steps.
        let rarely = if number == 1 { 2 } else { 4 }; // the first one makes the file
        let steps = if rng.u8(..rarely) == 0 { rng.u32(..12) } else { u32::MAX };
        let turns = match lives {
            1 => u32::MAX,
            _ if number == lives => 0,
            _ if rng.bool() => rng.u32(1..100),
            _ => rng.u32(1..1000),
        };
        let mut watcher = Watcher::simulated(&sim);
        live(seed, &mut watcher, &mut rng, &mut past, (steps, turns), met)?;
        if rng.u8(..4) > 0 {
            met.crashes += 1;
            met.crash.add(&sim.crash());
        } else {
            met.kills += 1;
        }
        drop(watcher);
    }
    for (name, count) in sim.injected().named() {
        *met.faults.entry(name).or_default() += count;
    }
    Ok(())
}

/// Every reply is the one of the model, for every client, under faults. After the end of a server
/// with a log, at any step, the next one has every acknowledged write.
#[test]
fn every_reply_is_the_models() {
    let mut met = Met::default();
    let ran = seeds::each("redis", 50, 200, |seed| {
        if let Err(wrong) = simulate(seed, Care::default(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    });
    println!("{ran} seeds: {met:?}");
    if ran < 50 {
        return; // a failure is repeated
    }
    let Crash { kept_names, lost_names, kept_sectors, lost_sectors, .. } = met.crash;
    let Crash { kept_lengths, lost_lengths, .. } = met.crash;
    for (what, count) in [
        ("replies", met.replies),
        ("broken connections", met.broken),
        ("groups", met.groups),
        ("torn groups", met.torn),
        ("writes that were not acknowledged", met.ahead),
        ("pauses", met.pauses),
        ("stalls", met.stalls),
        ("crashes", met.crashes),
        ("kills", met.kills),
        ("ends in a recovery", met.in_recovery),
        ("recoveries that failed", met.errors),
        ("writes of the log that failed", met.failures),
        ("kept names", kept_names),
        ("lost names", lost_names),
        ("kept sectors", kept_sectors),
        ("lost sectors", lost_sectors),
        ("kept lengths", kept_lengths),
        ("lost lengths", lost_lengths),
    ] {
        assert!(count > 0, "no {what} in {met:?}");
    }
    for name in [
        "partial_read",
        "partial_write",
        "eagain",
        "eintr",
        "delayed_readiness",
        "reset",
        "short_file_read",
        "short_file_write",
        "file_error",
        "sync_error",
        "disk_full",
    ] {
        assert!(met.faults[name] > 0, "never happened: {name}");
    }
}

/// The same on real sockets and files. The log of a server that has ended has all writes.
#[test]
fn every_reply_is_the_models_on_the_systems_drivers() {
    let mut met = Met::default();
    for driver in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
        for round in 0..10 {
            let seed = seeds::draw();
            let file = std::env::temp_dir().join(format!("windlass-redis-{seed}"));
            let path = (round % 2 > 0).then(|| file.clone());
            let mut past = Past { path, care: Care::default(), gone: Vec::new() };
            for turns in [u32::MAX, 0] {
                let Ok(mut watcher) = Watcher::builder().driver(driver).build() else {
                    eprintln!("SKIP: {driver:?} is not here");
                    break;
                };
                let mut rng = Rng::with_seed(!seed);
                live(seed, &mut watcher, &mut rng, &mut past, (u32::MAX, turns), &mut met)
                    .unwrap_or_else(|wrong| panic!("{driver:?}, seed {seed}: {wrong}"));
            }
            if past.path.is_some_and(|path| path.exists()) {
                std::fs::remove_file(file).expect("it is there");
            }
        }
    }
    assert_eq!((met.broken, met.torn), (0, 0), "nothing breaks here");
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
    let mut server = Server::new(|_| Redis::new(Arc::clone(&shared), MOST))
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

/// Asserts that a log without one of its precautions is found out within 1,000 seeds: a server
/// starts without what was acknowledged, or does not start.
fn expect_found(what: &str, care: Care) {
    let mut met = Met::default();
    let told = (0..1000).find_map(|seed| Some((seed, simulate(seed, care, &mut met).err()?)));
    let Some((seed, text)) = told else { panic!("{what}: not found in 1,000 seeds: {met:?}") };
    println!("{what}: seed {seed}: {text}");
    let is_of_log = ["a write is lost", "the log is refused"].iter().any(|how| text.contains(how));
    assert!(is_of_log, "{what}: seed {seed}: {text}");
}

#[test]
fn a_log_without_a_sync_of_its_directory_is_found_out() {
    expect_found("no directory sync", Care { syncs_directory: false, ..Care::default() });
}

#[test]
fn a_reply_before_the_sync_is_found_out() {
    let care = Care { acknowledges_after_sync: false, ..Care::default() };
    expect_found("a reply before the sync", care);
}

#[test]
fn a_torn_group_taken_for_whole_is_found_out() {
    expect_found("a torn group taken for whole", Care { compares_sums: false, ..Care::default() });
}

/// A sync that fails leaves clean pages behind that the disk does not have. The next server reads
/// them, and its sync says nothing.
#[test]
fn a_log_that_trusts_the_page_cache_is_found_out() {
    expect_found("no second write", Care { writes_again: false, ..Care::default() });
}
