//! What evio and shiny do for a program, and what was reported against them, on every driver: the
//! rows of `README.md` that no other file tests.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::{Bench, Harness, bench};
use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{Address, Buf, Source};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Engine, Handler, Id, Limits, Origin,
    Server,
};

crate::every_driver! {
    a_wake_while_output_waits_loses_nothing
    what_a_callback_ends_hears_nothing_more
    ticks_and_wakes_end_and_then_nothing_runs
    a_shutdown_sends_what_waits_first
    opened_can_close_behind_its_output
    every_connection_names_its_listener_and_its_peer
    a_tick_can_close_connections
    input_that_is_kept_stays_as_it_was
    postwrite_says_how_much_remains
    an_action_ends_a_connection_from_every_callback
    prewrite_comes_once_for_each_write
    what_prewrite_aborts_is_not_sent
}

/// Bytes that differ from place to place, and from seed to seed.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    // A prime, so that a lost buffer shows.
    let part: Vec<u8> = (0..65_537).map(|i: usize| (i ^ i >> 8 ^ seed) as u8).collect();
    let mut bytes = part.repeat(len.div_ceil(part.len()));
    bytes.truncate(len);
    bytes
}

/// The id of the only connection.
fn the_only<D: Driver, H: Handler>(bench: &mut Bench<D, H>) -> Id {
    let ids: Vec<Id> = bench.running.engine().ids().collect();
    assert_eq!(ids.len(), 1);
    ids[0]
}

/// More than the buffers of two sockets hold.
const LONG: usize = 16 << 20;

/// Writes much at once, and a line for each wake.
#[derive(Default)]
struct Answers {
    wakes: usize,
    /// The bytes that were submitted, and those that then waited.
    writes: Vec<(usize, usize)>,
}

impl Handler for Answers {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        c.write(pattern(LONG, 1));
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        self.wakes += 1;
        c.write(format!("wake {}\n", self.wakes));
        Action::None
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, amount: usize, remaining: usize) -> Action {
        self.writes.push((amount, remaining));
        Action::None
    }
}

/// evio's issue 74: what a wake writes replaces the output that waits.
fn a_wake_while_output_waits_loses_nothing<T: Harness>() {
    let server = Server::new(|_| Answers::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect_deaf();
    bench.until("output waits", |bench| !bench.running.handler().writes.is_empty());
    let id = the_only(&mut bench);
    let remote = bench.running.remote();
    let mut expected = pattern(LONG, 1);
    for wake in 1..=5 {
        assert!(remote.wake(id));
        bench.until("it is woken", |bench| bench.running.handler().wakes == wake);
        expected.extend(format!("wake {wake}\n").bytes());
    }
    assert!(bench.running.engine().waiting(id) > 5 * 7, "the first output still waits");
    bench.hear(client);
    bench.until("all is heard", |bench| bench.client(client).heard.len() >= expected.len());
    assert!(bench.client(client).heard == expected, "other bytes");
}

/// doppio's Postwrite has what was sent, and what remains.
fn postwrite_says_how_much_remains<T: Harness>() {
    let server = Server::new(|_| Answers::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect_deaf();
    bench.until("output waits", |bench| !bench.running.handler().writes.is_empty());
    let id = the_only(&mut bench);
    bench.running.engine().wake(id);
    bench.running.turn(&mut bench.watcher);
    let writes = bench.running.handler().writes.clone();
    let [(LONG, first), (7, second)] = writes[..] else { panic!("{writes:?}") };
    assert!(first > 0 && first <= LONG && second > 7 && second <= first + 7, "{writes:?}");
    bench.hear(client);
    bench.until("all is heard", |bench| bench.client(client).heard.len() == LONG + 7);
    bench.running.engine().wake(id);
    bench.until("the last wake is heard", |bench| {
        bench.running.turn(&mut bench.watcher);
        bench.client(client).heard.len() == LONG + 14
    });
    let (amount, remaining) = bench.running.handler().writes[2];
    assert!(amount == 7 && remaining <= 7, "{remaining} bytes wait");
}

/// Ends all other connections on the first data, and echoes.
struct Ends {
    how: fn(&mut Engine<()>, Id) -> bool,
    open: HashSet<Id>,
    ended: HashSet<Id>,
    closed: Vec<Id>,
}

impl Handler for Ends {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        assert!(self.open.insert(c.id()));
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        assert!(!self.ended.contains(&c.id()), "data of a connection that was ended");
        let own = c.id();
        if &*data == b"!" {
            for &other in self.open.iter().filter(|other| **other != own) {
                assert!((self.how)(c.engine(), other));
                self.ended.insert(other);
            }
        } else {
            c.write(data);
        }
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        assert!(!self.ended.contains(&c.id()), "a wake of a connection that was ended");
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        assert!(self.open.remove(&closed.id));
        self.closed.push(closed.id);
        Action::None
    }
}

/// evio's issue 51, and shiny's way with several events of one wait: an event of a connection that
/// an earlier one has ended stops the process.
fn what_a_callback_ends_hears_nothing_more<T: Harness>() {
    let ways: [fn(&mut Engine<()>, Id) -> bool; 2] = [Engine::abort, Engine::close];
    for how in ways {
        let new = |_| Ends { how, open: HashSet::new(), ended: HashSet::new(), closed: Vec::new() };
        let server = Server::new(new).listen("tcp://127.0.0.1:0").unwrap();
        let mut bench = bench::<T, _, _>(server);
        for round in 1..=10 {
            let clients: Vec<Source> = (0..3).map(|_| bench.connect()).collect();
            bench.until("all are open", |bench| bench.running.handler().open.len() == 3);
            let ids: Vec<Id> = bench.running.engine().ids().collect();
            for client in &clients {
                bench.say(*client, "!");
            }
            for id in ids {
                bench.running.engine().wake(id);
            }
            bench.until("one is left", |bench| bench.running.engine().len() == 1);
            bench.until("its end is told", |bench| bench.running.handler().open.len() == 1);
            assert_eq!(bench.running.handler().closed.len(), 3 * round - 1);
            // The next one has the place and the descriptor of one that has ended.
            let next = bench.connect();
            bench.say(next, "new");
            bench.until("the next one is served", |bench| bench.client(next).heard == b"new");
            let ids: Vec<Id> = bench.running.engine().ids().collect();
            for id in ids {
                bench.running.engine().abort(id);
            }
            bench.running.turn(&mut bench.watcher);
            bench.until("all are closed", |bench| bench.running.handler().open.is_empty());
            bench.running.handler().closed.truncate(3 * round);
        }
        assert_eq!(bench.running.report().panics, 0);
    }
}

/// Ticks so many times, and counts wakes.
struct Ticks {
    left: usize,
    delay: Duration,
    wakes: usize,
}

impl Handler for Ticks {
    type State = ();
    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        self.left -= 1;
        ((self.left > 0).then_some(self.delay), Action::None)
    }
    fn wake(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.wakes += 1;
        Action::None
    }
}

/// evio's issue 61: after a tick or a wake its loop takes a whole processor. And it wakes up ten
/// times a second when there is nothing to do.
fn ticks_and_wakes_end_and_then_nothing_runs<T: Harness>() {
    let new = |_| Ticks { left: 11, delay: T::span(5.0), wakes: 0 };
    let server =
        Server::new(new).limits(Limits::new().idle(None)).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    let id = the_only(&mut bench);
    let remote = bench.running.remote();
    assert!((0..1000).all(|_| remote.wake(id)));
    bench.until("it is woken", |bench| bench.running.handler().wakes > 0);
    let mut turns = 0;
    bench.until("the ticks are over", |bench| {
        turns += 1;
        bench.running.handler().left == 0
    });
    assert!(turns < 50, "{turns} turns for ten ticks");
    // Nothing moves from here on, and no limit is near.
    let end = bench.watcher.update_now() + T::span(60.0);
    let (mut waits, mut completions) = (0, 0);
    while let Some(left) = end.checked_duration_since(bench.watcher.update_now())
        && !left.is_zero()
    {
        completions += bench.turn(left);
        waits += 1;
    }
    assert_eq!((completions, bench.running.handler().wakes), (0, 1));
    assert!(waits < 20, "{waits} waits");
}

/// Answers much to `m`, and ends the server behind an answer to anything else.
#[derive(Default)]
struct Stops {
    closed: Vec<(Cause, usize)>,
}

impl Handler for Stops {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        if data[0] == b'm' {
            c.write(pattern(LONG, 2));
            return Action::None;
        }
        c.write("bye");
        Action::Shutdown
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

/// evio drops the output that waits when a callback answers Shutdown.
fn a_shutdown_sends_what_waits_first<T: Harness>() {
    let server = Server::new(|_| Stops::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let (one, two, last) = (bench.connect_deaf(), bench.connect_deaf(), bench.connect());
    bench.say(one, "m");
    bench.say(two, "m");
    bench.until("output waits", |bench| bench.running.report().counters.writes == 2);
    bench.say(last, "s");
    bench.until("it shuts down", |bench| bench.client(last).eof);
    assert!(!bench.running.is_over());
    bench.hear(one);
    bench.hear(two);
    bench.until("it is over", |bench| bench.running.is_over());
    bench.until("all have heard", |bench| bench.clients.all.values().all(|c| c.eof));
    assert_eq!(bench.client(last).heard, b"bye");
    for client in [one, two] {
        assert!(bench.client(client).heard == pattern(LONG, 2), "output is lost");
    }
    assert_eq!(bench.running.handler().closed, [(Cause::Shutdown, 0); 3]);
    assert!(bench.running.report().unfinished.is_empty());
}

/// Writes, and closes at once.
#[derive(Default)]
struct Refuses {
    closed: Vec<(Cause, usize)>,
}

impl Handler for Refuses {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        c.write(pattern(1 << 20, 3));
        Action::Close
    }
    fn data(&mut self, _: &mut Conn<'_, ()>, _: Buf) -> Action {
        panic!("data behind the close");
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

/// shiny's `accept` drops its answer when it refuses, and never calls `closed`.
fn opened_can_close_behind_its_output<T: Harness>() {
    let server = Server::new(|_| Refuses::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.until("it is closed", |bench| bench.client(client).is_over());
    assert!(bench.client(client).heard == pattern(1 << 20, 3), "output is lost");
    bench.until("its end is told", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0)]);
    assert_eq!((bench.running.report().panics, bench.client(client).error), (0, None));
}

/// Keeps where its connections come from.
#[derive(Default)]
struct Origins {
    all: Vec<(Id, Origin)>,
}

impl Handler for Origins {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, origin: Origin) -> Action {
        self.all.push((c.id(), origin));
        Action::None
    }
}

/// evio's AddrIndex, LocalAddr and RemoteAddr, with listeners of both kinds.
fn every_connection_names_its_listener_and_its_peer<T: Harness>() {
    let name = format!("windlass-origins-{}-{}", T::NAME, std::process::id());
    let path = std::env::temp_dir().join(name);
    let server = Server::new(|_| Origins::default());
    let server = server.listen("tcp://127.0.0.1:0").unwrap().listen("tcp4://127.0.0.1:0").unwrap();
    let server = server.listen(&format!("unix://{}", path.display())).unwrap();
    let mut bench = bench::<T, _, _>(server);
    let addresses = bench.addresses.clone();
    for (number, address) in [2, 0, 1].into_iter().map(|at| (at, addresses[at].clone())) {
        let before = bench.running.handler().all.len();
        let client = bench.connect_to(address.clone());
        bench.until("both ends are open", |bench| {
            let is_connected = bench.watcher.local_address(client).is_ok();
            is_connected && bench.running.handler().all.len() > before
        });
        let (id, origin) = bench.running.handler().all[before];
        assert_eq!(origin.listener, Some(number));
        assert_eq!(origin.peer, bench.watcher.local_address(client).unwrap().ip());
        assert_eq!(origin.peer.is_none(), number == 2);
        let source = bench.running.engine().source(id).unwrap();
        assert_eq!(bench.watcher.local_address(source).unwrap(), address);
    }
}

/// Closes all connections in a tick.
#[derive(Default)]
struct Sweeps {
    closed: Vec<Cause>,
}

impl Handler for Sweeps {
    type State = ();
    fn tick(&mut self, server: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        let ids: Vec<Id> = server.engine().ids().collect();
        for id in ids {
            server.conn(id).expect("it lives").write("too long");
            assert!(server.engine().close(id));
        }
        (Some(Duration::from_millis(50)), Action::None)
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

/// evio's issue 21: only its own callback can end a connection.
fn a_tick_can_close_connections<T: Harness>() {
    let server = Server::new(|_| Sweeps::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for _ in 0..3 {
        bench.connect();
    }
    bench.until("all have ended", |bench| bench.clients.all.values().all(|c| c.eof));
    assert!(bench.clients.all.values().all(|client| client.heard == b"too long"));
    bench.until("all ends are told", |bench| bench.running.handler().closed.len() == 3);
    assert_eq!(bench.running.handler().closed, [Cause::Closed; 3]);
}

/// Keeps all its input, as it came.
#[derive(Default)]
struct Keeps {
    all: Vec<Buf>,
    len: usize,
}

impl Handler for Keeps {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.len += data.len();
        c.write_slice(&data);
        self.all.push(data);
        Action::None
    }
}

/// evio's ReuseInputBuffer saves a copy, and takes the bytes away when the callback returns. A
/// lease saves the copy, too, and stays as it was.
fn input_that_is_kept_stays_as_it_was<T: Harness>() {
    let server = Server::new(|_| Keeps::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    let mut said = Vec::new();
    for round in 0..200 {
        let part = pattern(1000, round);
        said.extend_from_slice(&part);
        bench.say(client, part);
        bench.until("it is answered", |bench| bench.client(client).heard.len() == said.len());
    }
    let keeps = bench.running.handler();
    let kept: Vec<u8> = keeps.all.iter().flat_map(|data| data.to_vec()).collect();
    assert!(keeps.len == said.len() && kept == said, "what was kept has changed");
    assert!(bench.client(client).heard == said);
}

/// Enough to reach the high mark.
const MUCH: usize = 4 << 20;

/// Answers with an action in the callback of this name.
#[derive(Default)]
struct Acts {
    callback: &'static str,
    action: Action,
    closed: Vec<Cause>,
    detached: usize,
}

impl Acts {
    fn act(&self, callback: &str) -> Action {
        if callback == self.callback { self.action } else { Action::None }
    }
}

impl Handler for Acts {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        c.write(pattern(MUCH, 4));
        self.act("opened")
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        let id = c.id();
        c.engine().wake(id);
        self.act("data")
    }
    fn wake(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.act("wake")
    }
    fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.act("eof")
    }
    fn drained(&mut self, _: &mut Conn<'_, ()>) -> Action {
        self.act("drained")
    }
    fn prewrite(&mut self, _: &mut Conn<'_, ()>, _: usize) -> Action {
        self.act("prewrite")
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
        self.act("postwrite")
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        assert_eq!(closed.unsent, 0);
        self.closed.push(closed.cause);
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, ()>, detached: Detached<()>) -> Action {
        assert!(detached.undelivered.is_empty());
        self.detached += 1;
        Action::None
    }
}

/// Each action from each callback, behind the output that waits.
fn an_action_ends_a_connection_from_every_callback<T: Harness>() {
    let callbacks = ["opened", "data", "wake", "eof", "drained", "prewrite", "postwrite"];
    for (callback, action) in callbacks
        .into_iter()
        .flat_map(|name| [Action::Close, Action::Detach, Action::Shutdown].map(|a| (name, a)))
    {
        let server = Server::new(|_| Acts { callback, action, ..Acts::default() });
        let config = Config::new().close_on_eof(false);
        let server = server.config(config).listen("tcp://127.0.0.1:0").unwrap();
        let mut bench = bench::<T, _, _>(server);
        let client = bench.connect();
        if matches!(callback, "data" | "wake") {
            // Reads stop while much output waits.
            bench.until("all is heard", |bench| bench.client(client).heard.len() == MUCH);
            bench.say(client, "g");
        }
        if callback == "eof" {
            bench.until("all is heard", |bench| bench.client(client).heard.len() == MUCH);
            bench.finish(client);
        }
        bench.until("it has ended", |bench| {
            let acts = bench.running.handler();
            acts.closed.len() + acts.detached == 1
        });
        bench.until("all is heard", |bench| bench.client(client).heard.len() == MUCH);
        assert!(bench.client(client).heard == pattern(MUCH, 4), "{callback}, {action:?}");
        let is_over = bench.running.is_over();
        let acts = bench.running.handler();
        let expected: (&[Cause], usize, bool) = match action {
            Action::Close => (&[Cause::Closed], 0, false),
            Action::Detach => (&[], 1, false),
            _ => (&[Cause::Shutdown], 0, true),
        };
        let found = (&acts.closed[..], acts.detached, is_over);
        assert_eq!(found, expected, "{callback}, {action:?}");
    }
}

/// Puts a bracket behind each write, in `prewrite`.
#[derive(Default)]
struct Brackets {
    upstream: Option<Address>,
    opened: HashSet<Id>,
    messages: usize,
    /// What its clients must hear.
    said: String,
    before: usize,
    after: usize,
    submitted: usize,
}

impl Handler for Brackets {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.opened.insert(c.id());
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        self.messages += 1;
        // One buffer, or two of them, which go another way.
        for part in ["[one", " two"].iter().take(1 + self.messages % 2) {
            c.write(*part);
            self.said.push_str(part);
        }
        self.said.push(']');
        if let Some(upstream) = self.upstream.take() {
            let engine = c.engine();
            let id = engine.connect([upstream], ConnectOptions::default(), ()).unwrap();
            engine.write(id, "[early").unwrap();
        }
        Action::None
    }
    fn prewrite(&mut self, c: &mut Conn<'_, ()>, amount: usize) -> Action {
        assert!(self.opened.contains(&c.id()), "the first callback is `opened`");
        assert!(amount > 0);
        self.before += 1;
        c.write("]");
        Action::None
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, amount: usize, _: usize) -> Action {
        self.after += 1;
        self.submitted += amount;
        Action::None
    }
}

/// evio's PreWrite fires just before data is written, and a write in ours leaves with it.
fn prewrite_comes_once_for_each_write<T: Harness>() {
    let server = Server::new(|_| Brackets::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let upstream = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let client = bench.connect();
    for message in 1..=6 {
        if message == 6 {
            let address = bench.watcher.local_address(upstream).unwrap();
            bench.running.handler().upstream = Some(address);
        }
        bench.say(client, "x");
        bench.until("it is answered", |bench| {
            let brackets = bench.running.handler();
            let (messages, said) = (brackets.messages, brackets.said.len());
            messages == message && bench.client(client).heard.len() >= said
        });
        let said = bench.running.handler().said.clone();
        assert_eq!(String::from_utf8_lossy(&bench.client(client).heard), said);
    }
    bench.until("it writes upstream", |bench| bench.running.handler().after >= 7);
    bench.run_for(T::span(1.0));
    let writes = bench.running.report().counters.writes as usize;
    let brackets = bench.running.handler();
    assert_eq!((brackets.before, brackets.after, writes), (7, 7, 7));
    assert_eq!(brackets.submitted, brackets.said.len() + "[early]".len());
}

/// Aborts its connection when it is about to write.
#[derive(Default)]
struct Regrets {
    sent: usize,
    closed: Vec<(Cause, usize)>,
}

impl Handler for Regrets {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        // One buffer, or two of them, which go another way.
        c.write("1234");
        if &*data == b"2" {
            c.write("5678");
        }
        Action::None
    }
    fn prewrite(&mut self, c: &mut Conn<'_, ()>, _: usize) -> Action {
        c.abort();
        Action::None
    }
    fn postwrite(&mut self, _: &mut Conn<'_, ()>, amount: usize, _: usize) -> Action {
        self.sent += amount;
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent));
        Action::None
    }
}

fn what_prewrite_aborts_is_not_sent<T: Harness>() {
    let server = Server::new(|_| Regrets::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for message in ["1", "2"] {
        let client = bench.connect();
        bench.say(client, message);
        bench.until("it has ended", |bench| bench.client(client).is_over());
        assert!(bench.client(client).heard.is_empty());
    }
    bench.until("the ends are told", |bench| bench.running.handler().closed.len() == 2);
    let regrets = bench.running.handler();
    assert_eq!(regrets.closed, [(Cause::Aborted, 4), (Cause::Aborted, 8)]);
    assert_eq!(regrets.sent, 0, "nothing was submitted");
    assert_eq!(bench.running.report().counters.writes, 0);
}
