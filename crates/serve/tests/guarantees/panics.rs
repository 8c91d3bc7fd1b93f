//! Callbacks that panic, ticks, and the order of callbacks, on every driver.
//!
//! Of the promises on the page of the crate: P1 and P8.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::common;
use crate::common::{Harness, bench};
use windlass::net::ConnectOptions;
use windlass::{Address, Buf};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Detached, Handler, Id, Limits, Origin, Server,
};

crate::every_driver! {
    a_panic_in_any_callback_ends_its_connection_only
    ticks_come_first_and_then_after_their_delay
    a_tick_can_end_the_server_before_it_serves
    connects_open_or_close_once
    wakes_of_a_turn_are_one
    a_connection_that_wakes_itself_leaves_the_turn
    ticks_go_on_after_a_panic
    both_directions_close_when_both_are_shut_down
}

/// Panics in the callback of this name, on the second connection only. Every callback is noted.
#[derive(Default)]
struct Brittle {
    fails_in: &'static str,
    notes: HashMap<u64, Vec<&'static str>>,
    causes: HashMap<u64, Cause>,
}

impl Brittle {
    fn note(&mut self, id: Id, name: &'static str) {
        let number = id.number() / 65_536;
        let notes = self.notes.entry(number).or_default();
        assert!(!notes.contains(&"closed") && !notes.contains(&"detached"), "{name} after the end");
        assert_eq!(name == "opened", notes.is_empty(), "{name} comes in the wrong place");
        notes.push(name);
        if number == 2 && name == self.fails_in {
            panic!("the callback {name} fails, as it is to");
        }
    }
}

impl Handler for Brittle {
    type State = u32;
    fn serving(&mut self, _: &mut Context<'_, u32>, _: &[Address]) -> Action {
        if self.fails_in == "serving" {
            panic!("serving fails, as it is to");
        }
        Action::None
    }
    fn tick(&mut self, _: &mut Context<'_, u32>) -> (Option<Duration>, Action) {
        if self.fails_in == "tick" && self.notes.is_empty() {
            panic!("tick fails, as it is to");
        }
        (None, Action::None)
    }
    fn opened(&mut self, c: &mut Conn<'_, u32>, _: Origin) -> Action {
        self.note(c.id(), "opened");
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, u32>, data: Buf) -> Action {
        let is_second = c.id().number() / 65_536 == 2;
        let detaches = self.fails_in == "detached" && is_second;
        if self.fails_in == "drained" && is_second {
            c.write(vec![0; 4 << 20]); // above the high mark
        } else {
            c.write(data);
        }
        let id = c.id();
        c.engine().wake(id);
        self.note(id, "data");
        if detaches { Action::Detach } else { Action::None }
    }
    fn eof(&mut self, c: &mut Conn<'_, u32>) -> Action {
        self.note(c.id(), "ended");
        Action::Close
    }
    fn wake(&mut self, c: &mut Conn<'_, u32>) -> Action {
        self.note(c.id(), "wake");
        Action::None
    }
    fn drained(&mut self, c: &mut Conn<'_, u32>) -> Action {
        self.note(c.id(), "drained");
        Action::None
    }
    fn prewrite(&mut self, c: &mut Conn<'_, u32>, amount: usize) -> Action {
        assert!(amount > 0);
        self.note(c.id(), "prewrite");
        Action::None
    }
    fn postwrite(&mut self, c: &mut Conn<'_, u32>, amount: usize, _: usize) -> Action {
        assert!(amount > 0);
        self.note(c.id(), "postwrite");
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, u32>, closed: Closed<u32>) -> Action {
        self.causes.insert(closed.id.number() / 65_536, closed.cause);
        self.note(closed.id, "closed");
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, u32>, detached: Detached<u32>) -> Action {
        self.note(detached.id, "detached");
        Action::None
    }
}

fn a_panic_in_any_callback_ends_its_connection_only<T: Harness>() {
    let callbacks = [
        "serving",
        "tick",
        "opened",
        "data",
        "ended",
        "wake",
        "drained",
        "prewrite",
        "postwrite",
        "closed",
        "detached",
    ];
    for fails_in in callbacks {
        let config = Config::new().close_on_eof(false);
        let server = Server::new(|_| Brittle { fails_in, ..Brittle::default() });
        let server = server.config(config).listen("tcp://127.0.0.1:0").unwrap();
        let mut bench = bench::<T, _, _>(server);
        for number in 1..=3 {
            let client = bench.connect();
            bench.until("it is open", |bench| bench.running.report().counters.accepted == number);
            bench.say(client, "x");
            bench.until("it is answered or over", |bench| {
                let has_heard = !bench.client(client).heard.is_empty();
                // `drained` comes before the end.
                let is_answered = has_heard && (fails_in, number) != ("drained", 2);
                bench.client(client).is_over() || is_answered
            });
            bench.finish(client);
            bench.until("it is over", |bench| bench.running.engine().is_empty());
        }
        bench.run_for(T::span(1.0));
        assert_eq!(bench.running.report().panics, 1, "{fails_in}");
        let brittle = bench.running.handler();
        for number in [1, 3] {
            let all = ["opened", "data", "prewrite", "postwrite", "wake", "ended", "closed"];
            assert_eq!(brittle.notes[&number], all, "{fails_in}: the others go on");
            assert_eq!(brittle.causes[&number], Cause::Closed);
        }
        let cause = brittle.causes.get(&2).copied();
        let expected = match fails_in {
            "serving" | "tick" | "closed" => Some(Cause::Closed),
            "detached" => None,
            _ => Some(Cause::Panicked),
        };
        assert_eq!(cause, expected, "{fails_in}: {:?}", brittle.notes[&2]);
        assert_eq!(bench.running.engine().budget().used(), 0);
    }
}

/// Ticks so many times, and serves only after the first.
struct Ticking {
    left: u32,
    delay: Duration,
    serves: bool,
}

impl Handler for Ticking {
    type State = ();
    fn serving(&mut self, _: &mut Context<'_, ()>, _: &[Address]) -> Action {
        self.serves = true;
        Action::None
    }
    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        let is_first = self.left == 25;
        assert_eq!(self.serves, !is_first, "the first tick is before the first connection");
        self.left -= 1;
        if self.left == 0 { (None, Action::Shutdown) } else { (Some(self.delay), Action::None) }
    }
}

/// evio's TestTick: 25 ticks.
fn ticks_come_first_and_then_after_their_delay<T: Harness>() {
    let delay = Duration::from_millis(10);
    let server = Server::new(|_| Ticking { left: 25, delay, serves: false });
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let start = bench.watcher.update_now();
    bench.until("it is over", |bench| bench.running.is_over());
    let took = bench.watcher.update_now() - start;
    assert!(took >= delay * 23, "{took:?}");
    assert!(!T::VIRTUAL || took <= delay * 25, "{took:?}");
}

fn a_tick_can_end_the_server_before_it_serves<T: Harness>() {
    struct Never;
    impl Handler for Never {
        type State = ();
        fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
            (None, Action::Shutdown)
        }
    }
    let server = Server::new(|_| Never).listen("tcp://127.0.0.1:0").unwrap();
    let mut watcher = T::watcher(windlass::Watcher::builder());
    let running = server.start_on(&mut watcher).unwrap();
    assert!(running.is_over());
}

/// Notes in what order its connections open and close.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<(Id, String)>>>);

impl Handler for Notes {
    type State = String;
    fn opened(&mut self, c: &mut Conn<'_, String>, origin: Origin) -> Action {
        let kind = if origin.listener.is_some() { "accepted" } else { "connected" };
        let text = format!("{kind} {}", c.state());
        self.0.borrow_mut().push((c.id(), text));
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, String>, data: Buf) -> Action {
        let text = String::from_utf8_lossy(&data).into_owned();
        self.0.borrow_mut().push((c.id(), text));
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, String>) -> Action {
        self.0.borrow_mut().push((c.id(), "woken".into()));
        Action::None
    }
    fn eof(&mut self, c: &mut Conn<'_, String>) -> Action {
        self.0.borrow_mut().push((c.id(), "ended".into()));
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, String>, closed: Closed<String>) -> Action {
        let text = format!("closed {:?} {}", closed.cause, closed.state);
        self.0.borrow_mut().push((closed.id, text));
        Action::None
    }
}

impl Notes {
    fn of(&self, id: Id) -> Vec<String> {
        let notes = self.0.borrow();
        notes.iter().filter(|(of, _)| *of == id).map(|(_, text)| text.clone()).collect()
    }
}

fn noted<T: Harness>(config: Config) -> (Notes, common::Bench<T::Driver, Notes>) {
    let notes = Notes::default();
    let server = Server::new(|_| notes.clone()).config(config);
    let bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    (notes, bench)
}

fn connects_open_or_close_once<T: Harness>() {
    let (notes, mut bench) = noted::<T>(Config::new());
    let here = bench.addresses[0].clone();
    // No program listens at the port of a listener that is gone.
    let gone = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let nowhere = bench.watcher.local_address(gone).unwrap();
    bench.watcher.abort(gone);
    let engine = bench.running.engine();
    let options = ConnectOptions::default();
    let good = engine.connect([here.clone()], options, "good".into()).unwrap();
    engine.write(good, "written before it is connected").unwrap();
    let bad = engine.connect([nowhere], options, "bad".into()).unwrap();
    let none = engine.connect(Vec::<Address>::new(), options, "none".into()).unwrap();
    let gone = engine.connect([here], options, "gone".into()).unwrap();
    engine.abort(gone);
    bench.running.turn(&mut bench.watcher);
    bench.until("all is known", |bench| {
        let ids: Vec<Id> = notes.0.borrow().iter().map(|(id, _)| *id).collect();
        // However it is cut, and whatever others are told in between.
        let has = |what: &str| ids.iter().any(|id| notes.of(*id).concat().contains(what));
        has("connected good")
            && has("written before it is connected")
            && !notes.of(bad).is_empty()
            && bench.running.engine().len() >= 2
    });
    assert_eq!(notes.of(good), ["connected good"]);
    assert_eq!(notes.of(none), ["closed Rejected none"]);
    assert_eq!(notes.of(gone), ["closed Aborted gone"]);
    let ends = notes.of(bad);
    assert!(ends.len() == 1 && ends[0].starts_with("closed Os(") && ends[0].ends_with("bad"));
    // A client's end closes both.
    assert!(bench.running.engine().close(good));
    bench.running.turn(&mut bench.watcher);
    bench.until("all are closed", |bench| bench.running.engine().is_empty());
    assert_eq!(notes.of(good)[1..], ["closed Closed good"]);
}

fn wakes_of_a_turn_are_one<T: Harness>() {
    let (notes, mut bench) = noted::<T>(Config::new());
    bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    let id = bench.running.engine().ids().next().unwrap();
    let remote = bench.running.remote();
    for _ in 0..100 {
        assert!(remote.wake(id));
    }
    bench.until("it is woken", |_| notes.of(id).len() == 2);
    bench.run_for(T::span(1.0));
    assert_eq!(notes.of(id), ["accepted ", "woken"]);
    assert!(remote.wake(id));
    bench.until("it is woken again", |_| notes.of(id).len() == 3);
    // A connection that was woken and then closes gets no `wake` any more.
    bench.running.engine().wake(id);
    bench.running.engine().close(id);
    bench.running.turn(&mut bench.watcher);
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(notes.of(id)[3..], ["closed Closed "]);
    assert!(!remote.wake(id) && !bench.running.engine().wake(id));
}

/// Answers, and wakes itself in each wake.
#[derive(Default)]
struct Restless {
    wakes: usize,
    /// Those of this turn.
    in_turn: usize,
}

impl Handler for Restless {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        let id = c.id();
        c.engine().wake(id);
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        self.wakes += 1;
        self.in_turn += 1;
        assert!(self.in_turn < 1_000_000, "the turn does not end");
        let id = c.id();
        c.engine().wake(id);
        Action::None
    }
}

/// The turn went on for ever: no other connection was served, and no shutdown was heard.
fn a_connection_that_wakes_itself_leaves_the_turn<T: Harness>() {
    let server = Server::new(|_| Restless::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let clients = [bench.connect(), bench.connect()];
    for client in clients {
        bench.say(client, "x");
        bench.until("it is answered", |bench| {
            bench.running.handler().in_turn = 0;
            bench.client(client).heard == b"x"
        });
    }
    assert!(bench.running.handler().wakes > 0);
    let remote = bench.running.remote();
    remote.shutdown();
    bench.until("it is over", |bench| {
        bench.running.handler().in_turn = 0;
        bench.running.is_over()
    });
}

/// Panics in one of its ticks.
struct Stumbling {
    ticks: usize,
    fails_in: usize,
}

impl Handler for Stumbling {
    type State = ();
    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        self.ticks += 1;
        assert!(self.ticks != self.fails_in, "the tick fails, as it is to");
        let ends = if self.ticks == 9 { Action::Shutdown } else { Action::None };
        (Some(Duration::from_millis(1)), ends)
    }
}

/// One panic ended all ticks.
fn ticks_go_on_after_a_panic<T: Harness>() {
    // After the first one there was no other.
    for fails_in in [3, 1] {
        let server = Server::new(move |_| Stumbling { ticks: 0, fails_in });
        let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
        bench.until("it is over", |bench| bench.running.is_over());
        assert_eq!(bench.running.report().panics, 1);
    }
}

fn both_directions_close_when_both_are_shut_down<T: Harness>() {
    let config = Config::new().close_on_eof(false).limits(Limits::new().idle(None));
    let (notes, mut bench) = noted::<T>(config);
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    let id = bench.running.engine().ids().next().unwrap();
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    bench.running.engine().write(id, "bye").unwrap();
    assert!(bench.running.engine().shutdown(id));
    assert!(bench.running.engine().write(id, "too late").is_err());
    bench.running.turn(&mut bench.watcher);
    bench.until("the client has heard it", |bench| bench.client(client).eof);
    assert_eq!(bench.client(client).heard, b"bye");
    // It can still speak.
    bench.say(client, "!");
    bench.until("it is heard", |_| notes.of(id).len() == 2);
    bench.finish(client);
    bench.until("both are shut down", |bench| bench.running.engine().is_empty());
    assert_eq!(notes.of(id), ["accepted ", "!", "closed Eof "]);
}
