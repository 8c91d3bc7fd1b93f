//! Corner cases: two causes at once, calls in an unusual order, and values at their limits, on
//! every driver.
//!
//! Of the promises on the page of the crate: P4 and P6.

use std::time::Duration;

use crate::common;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::driver::Deadline;
use windlass::driver::{Driver, OpCode};
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions};
use windlass::{Address, Buf, Completions, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Engine, Event, Handler, Id, Limits, Origin,
    Server,
};

crate::every_driver! {
    a_new_tick_replaces_the_old_one_each_time
    an_abort_after_the_detach_changes_nothing
    a_wake_comes_after_opened
    a_shutdown_from_another_thread_closes_an_engine
    bytes_that_go_in_another_loop_let_this_one_read
    each_loop_closes_its_own_connections_above_the_share
    limits_of_a_century_are_limits
    what_a_flush_writes_to_others_leaves_with_it
    a_shutdown_ends_although_the_program_connects_again
    a_start_that_fails_gives_its_ports_back
    held_data_does_not_count_against_the_cap
    output_that_waits_for_its_connect_is_in_the_budget
    a_detach_has_its_whole_time
    output_that_moves_between_writes_does_not_stall
    the_time_of_a_pause_does_not_count
    many_stalled_connections_have_one_sweep
    an_idle_time_that_the_watcher_refuses_ends_the_connection
    the_end_of_an_engine_leaves_nothing
}

/// An engine on a watcher, and its events.
struct Loop<D: Driver> {
    watcher: Watcher<D>,
    engine: Engine<()>,
    address: Address,
    told: Vec<&'static str>,
    closed: Vec<Cause>,
    opened: Vec<Id>,
    turns: usize,
}

impl<D: Driver> Loop<D> {
    fn new<T: Harness<Driver = D>>(config: Config) -> Loop<D> {
        let mut watcher = T::watcher(Watcher::builder());
        let mut engine = Engine::new(config);
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
        let listener = engine.listeners()[0];
        common::bound_buffers(&mut watcher, listener);
        let address = watcher.local_address(listener).expect("its address");
        let (told, closed, opened) = (Vec::new(), Vec::new(), Vec::new());
        Loop { watcher, engine, address, told, closed, opened, turns: 0 }
    }

    /// A socket that connects to the engine.
    fn client(&mut self) -> Source {
        let options = ConnectOptions::default().token(1);
        self.watcher.connect([self.address.clone()], options).expect("a source").0
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.next_event(&mut self.watcher) {
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event<()>) {
        self.told.push(match event {
            Event::Opened { id, .. } => {
                self.opened.push(id);
                "opened"
            }
            Event::Data { .. } => "data",
            Event::Closed { cause, .. } => {
                self.closed.push(cause);
                "closed"
            }
            Event::Detached { .. } => "detached",
            Event::Wake { .. } => "wake",
            Event::Tick => "tick",
            Event::Drained { .. } => "drained",
            Event::Foreign(c) => {
                assert_eq!(c.token, 1, "what a client has done: {c:?}");
                if c.code() == OpCode::Connect {
                    common::bound_buffers(&mut self.watcher, c.source);
                }
                return;
            }
            _ => "other",
        });
    }
}

impl<D: Driver> Turns for Loop<D> {
    type Driver = D;

    fn watcher(&mut self) -> &mut Watcher<D> {
        &mut self.watcher
    }

    fn turn(&mut self, span: Duration) -> usize {
        let mut done = Completions::new();
        let count = self.watcher.wait_timeout(&mut done, span).expect("a wait");
        let mut batch = done.visit();
        while let Some(event) = self.engine.next_event_in(&mut self.watcher, &mut batch) {
            self.tell(event);
        }
        self.engine.flush(&mut self.watcher);
        self.turns += 1;
        count
    }
}

fn a_new_tick_replaces_the_old_one_each_time<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    for _ in 0..4 {
        l.engine.tick_after(T::span(20.0));
        l.engine.flush(&mut l.watcher);
        l.run_for(T::span(1.0));
    }
    let start = l.now();
    l.engine.tick_after(T::span(40.0));
    l.engine.flush(&mut l.watcher);
    l.until("it ticks", |l| !l.told.is_empty());
    let took = l.now() - start;
    assert!(took >= T::span(40.0), "a replaced tick came, after {took:?}");
    l.run_for(T::span(30.0));
    assert_eq!(l.told, ["tick"]);
}

fn an_abort_after_the_detach_changes_nothing<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    l.client();
    l.until("it is open", |l| !l.opened.is_empty());
    let id = l.opened[0];
    assert!(l.engine.detach(id).is_ok());
    // The read is cancelled, and then the descriptor is there, before its event is taken out.
    for _ in 0..100 {
        if l.engine.counters().detached > 0 {
            break;
        }
        let mut done = Completions::new();
        l.engine.flush(&mut l.watcher);
        if l.engine.counters().detached > 0 {
            break;
        }
        l.watcher.wait_timeout(&mut done, T::span(10.0)).expect("a wait");
        for c in done.drain(..) {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        l.events();
    }
    assert_eq!(l.engine.counters().detached, 1);
    assert!(!l.engine.abort(id), "it is the program's already");
    l.engine.flush(&mut l.watcher);
    l.events();
    assert_eq!(l.told, ["opened", "detached"]);
    assert!(l.engine.is_empty());
    // Its place is free once.
    for _ in 0..2 {
        l.client();
    }
    l.until("two are open", |l| l.opened.len() == 3);
    let mut ids: Vec<Id> = l.engine.ids().collect();
    ids.sort_unstable();
    assert_eq!(ids, l.opened[1..]);
}

fn a_wake_comes_after_opened<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let id = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    assert!(l.engine.wake(id));
    l.events();
    l.engine.flush(&mut l.watcher);
    l.until("it is woken", |l| l.told.contains(&"wake"));
    let of_client: Vec<_> = l.told.iter().filter(|told| **told != "data").collect();
    let opened = l.opened.iter().position(|opened| *opened == id).expect("it is open first");
    let wake = of_client.iter().position(|told| **told == "wake").unwrap();
    assert!(opened < wake && of_client[..wake].contains(&&"opened"), "{of_client:?}");
    // The same for a descriptor that the program gives.
    l.engine.detach(id).expect("it may leave");
    let mut handle = None;
    while handle.is_none() {
        l.engine.flush(&mut l.watcher);
        let mut done = Completions::new();
        l.watcher.wait_timeout(&mut done, common::PATIENCE).expect("a wait");
        for c in done.drain(..) {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            if let Event::Detached { handle: own, .. } = event {
                handle = Some(own);
            }
        }
    }
    l.told.clear();
    let id = l.engine.attach(handle.unwrap(), ()).unwrap();
    assert!(l.engine.wake(id));
    l.engine.flush(&mut l.watcher);
    l.until("it is woken", |l| l.told.contains(&"wake"));
    assert_eq!(l.told, ["opened", "wake"]);
}

fn a_shutdown_from_another_thread_closes_an_engine<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let remote = l.engine.remote(&mut l.watcher);
    l.client();
    l.until("it is open", |l| !l.opened.is_empty());
    remote.shutdown();
    l.until("it is closed", |l| !l.closed.is_empty());
    assert_eq!(l.closed, [Cause::Shutdown]);
}

fn limits_of_a_century_are_limits<T: Harness>() {
    let long = Duration::MAX;
    let mut limits = Limits::new().idle(long).write_stall(long).close(long).connect(long);
    (limits.cap, limits.memory, limits.connections) = (usize::MAX, usize::MAX, usize::MAX);
    (limits.low, limits.high) = (usize::MAX, usize::MAX);
    let mut l = Loop::new::<T>(Config::new().limits(limits).farewell(b"full"));
    l.engine.tick_after(long);
    let id = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("both ends are open", |l| l.opened.len() == 2);
    l.engine.write(id, vec![0; 30 << 20]).unwrap();
    l.run_for(T::span(1.0));
    l.engine.close(id);
    l.until("both ends are closed", |l| l.closed.len() == 2);
    assert!(!l.told.contains(&"tick"));
    // And the other end: no room for anything.
    let none = Duration::ZERO;
    let mut limits = Limits::new().idle(none).write_stall(none).close(none).memory(0).cap(0);
    limits = limits.connections(1).marks(0, 0);
    let mut l = Loop::new::<T>(Config::new().limits(limits).farewell(b"full"));
    for _ in 0..2 {
        l.client();
    }
    l.until("one is refused, and the other idle", |l| {
        l.engine.counters().refused == 1 && l.closed.len() == 1
    });
    assert_eq!(l.engine.budget().used(), 0);
}

/// Writes to the other connection in `prewrite`.
#[derive(Default)]
struct Tells {
    all: Vec<Id>,
}

impl Handler for Tells {
    type State = bool;
    fn opened(&mut self, c: &mut Conn<'_, bool>, _: Origin) -> Action {
        self.all.push(c.id());
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, bool>, _: Buf) -> Action {
        *c.state() = true;
        c.write("one ");
        c.write(vec![b'.'; 1000]);
        Action::None
    }
    fn prewrite(&mut self, c: &mut Conn<'_, bool>, _: usize) -> Action {
        if std::mem::take(c.state()) {
            let own = c.id();
            for id in self.all.iter().filter(|id| **id != own) {
                c.engine().write(*id, "the other writes").unwrap();
            }
        }
        Action::None
    }
}

fn what_a_flush_writes_to_others_leaves_with_it<T: Harness>() {
    let server = Server::new(|_| Tells::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let (one, other) = (bench.connect(), bench.connect());
    bench.until("both are open", |bench| bench.running.handler().all.len() == 2);
    bench.say(one, "g");
    bench.until("one writes", |bench| bench.running.report().counters.writes > 0);
    assert_eq!(bench.running.report().counters.writes, 2, "both in one flush");
    bench.until("the other hears it", |bench| bench.client(other).heard == b"the other writes");
}

/// Connects again whenever a connection has ended.
struct Reconnects {
    address: Option<Address>,
}

impl Reconnects {
    fn connect(&self, engine: &mut Engine<()>) {
        if let Some(address) = self.address.clone() {
            let _ = engine.connect([address], ConnectOptions::default(), ());
        }
    }
}

impl Handler for Reconnects {
    type State = ();
    fn closed(&mut self, server: &mut Context<'_, ()>, _: Closed<()>) -> Action {
        self.connect(server.engine());
        Action::None
    }
}

fn a_shutdown_ends_although_the_program_connects_again<T: Harness>() {
    let server = Server::new(|_| Reconnects { address: None });
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let upstream = bench.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let address = bench.watcher.local_address(upstream).unwrap();
    bench.running.handler().address = Some(address);
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    let remote = bench.running.remote();
    remote.shutdown();
    bench.until("it is over for the client", |bench| bench.client(client).is_over());
    for _ in 0..100 {
        if !bench.running.is_over() {
            bench.turn(T::span(1.0));
        }
    }
    assert!(bench.running.is_over(), "{:?}", bench.running.engine());
}

fn a_start_that_fails_gives_its_ports_back<T: Harness>() {
    let mut watcher = T::watcher(Watcher::builder());
    let taken = watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let taken = watcher.local_address(taken).unwrap();
    let free = watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let address = watcher.local_address(free).unwrap();
    watcher.abort(free);
    let mut done = Completions::new();
    watcher.wait_timeout(&mut done, Duration::ZERO).unwrap();
    let server = Server::new(|_| Tells::default());
    let server = server.listen(&format!("tcp://{}", address.ip().unwrap())).unwrap();
    let server = server.listen(&format!("tcp://{}", taken.ip().unwrap())).unwrap();
    server.start_on(&mut watcher).unwrap_err();
    watcher.wait_timeout(&mut done, Duration::ZERO).unwrap();
    watcher.listen(address).expect("the first port is free again");
}

/// Pauses at the first data; answers with what it is told to.
#[derive(Default)]
struct Pauses {
    heard: usize,
    closed: Vec<Cause>,
}

impl Handler for Pauses {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        self.heard += data.len();
        c.pause();
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

fn pauses<T: Harness>(limits: Limits) -> Bench<T::Driver, Pauses> {
    let server = Server::new(|_| Pauses::default()).limits(limits);
    bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap())
}

fn held_data_does_not_count_against_the_cap<T: Harness>() {
    let mut bench = pauses::<T>(Limits::new().cap(1000));
    let client = bench.connect();
    bench.say(client, "p");
    bench.until("it has paused", |bench| bench.running.handler().heard > 0);
    bench.say(client, vec![0; 5000]);
    // The read that was in flight is the last one, and may take less than all: one byte, at least.
    bench.until("data is held", |bench| bench.running.engine().budget().used() > 0);
    let id = bench.running.engine().ids().next().unwrap();
    bench.running.engine().write(id, vec![1; 1000]).unwrap();
    bench.running.turn(&mut bench.watcher);
    bench.until("it is answered", |bench| bench.client(client).heard.len() == 1000);
    bench.watcher.abort(client);
    bench.running.engine().abort(id);
    bench.running.turn(&mut bench.watcher);
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn output_that_waits_for_its_connect_is_in_the_budget<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().close_on_eof(true));
    let id = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, vec![0; 5000]).unwrap();
    l.engine.write(id, vec![0; 5000]).unwrap();
    l.engine.flush(&mut l.watcher);
    if l.opened.is_empty() {
        assert_eq!((l.engine.budget().used(), l.engine.waiting(id)), (10_000, 10_000));
    }
    l.until("both ends are open", |l| l.opened.len() == 2);
    l.until("it was heard", |l| l.told.contains(&"data"));
    l.run_for(T::span(1.0));
    assert_eq!((l.engine.budget().used(), l.engine.waiting(id)), (0, 0));
    // One that is aborted gives its charge back.
    let id = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, vec![0; 5000]).unwrap();
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.budget().used(), 5000);
    l.engine.abort(id);
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.budget().used(), 0);
}

fn a_detach_has_its_whole_time<T: Harness>() {
    let limits = Limits::new().close(T::span(100.0)).write_stall(T::span(400.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    l.client();
    l.until("it is open", |l| !l.opened.is_empty());
    let id = l.opened[0];
    l.engine.write(id, vec![0; 30 << 20]).unwrap();
    l.run_for(T::span(90.0));
    let start = l.now();
    assert!(l.engine.detach(id).is_ok());
    l.engine.flush(&mut l.watcher);
    l.until("it is closed", |l| !l.closed.is_empty());
    let took = l.now() - start;
    assert_eq!(l.closed, [Cause::WriteStall]);
    assert!(took >= T::span(100.0), "too early: {took:?}");
}

fn output_that_moves_between_writes_does_not_stall<T: Harness>() {
    let limits = Limits::new().write_stall(T::span(30.0)).close(T::span(100.0)).idle(None);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let client = l.client();
    l.until("it is open", |l| !l.opened.is_empty());
    let id = l.opened[0];
    let source = l.engine.source(id).unwrap();
    l.engine.write(id, vec![0; 8 << 20]).unwrap();
    l.run_for(T::span(5.0));
    for _ in 0..12 {
        // It has moved, and at once there is as much again.
        let before = l.engine.waiting(id);
        assert!(before > 0 && l.closed.is_empty(), "{:?}", l.closed);
        while l.watcher.queued_bytes(source).unwrap() + (256 << 10) > before {
            let memory = Vec::with_capacity(64 << 10);
            let read = windlass::Op::read_exact(client, memory, 64 << 10).token(1);
            l.watcher.submit(read).unwrap();
            let mut done = Completions::new();
            l.watcher.wait_timeout(&mut done, common::PATIENCE).unwrap();
            for c in done.drain(..) {
                let _ = l.engine.complete(&mut l.watcher, c);
            }
        }
        // Until no more moves.
        for _ in 0..5 {
            let mut done = Completions::new();
            l.watcher.wait_timeout(&mut done, T::span(0.1)).unwrap();
            for c in done.drain(..) {
                let _ = l.engine.complete(&mut l.watcher, c);
            }
        }
        let moved = before - l.watcher.queued_bytes(source).unwrap();
        l.engine.write(id, vec![0; moved]).unwrap();
        l.engine.flush(&mut l.watcher);
        l.run_for(T::span(10.0));
    }
    assert!(l.closed.is_empty(), "{:?}", l.closed);
    l.until("now it stalls", |l| !l.closed.is_empty());
    assert_eq!(l.closed, [Cause::WriteStall]);
}

fn the_time_of_a_pause_does_not_count<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().idle(T::span(100.0))));
    l.client();
    l.until("it is open", |l| !l.opened.is_empty());
    assert!(l.engine.pause(l.opened[0]));
    l.run_for(T::span(80.0));
    let start = l.now();
    assert!(l.engine.resume(l.opened[0]));
    l.engine.flush(&mut l.watcher);
    l.until("it is closed", |l| !l.closed.is_empty());
    let took = l.now() - start;
    assert_eq!(l.closed, [Cause::Idle]);
    assert!(took >= T::span(90.0), "too early: {took:?}");
}

/// Two loops with one budget of 20 MiB, each with a connection. A quarter is the reserve.
fn two_loops<T: Harness>() -> (Loop<T::Driver>, Loop<T::Driver>) {
    let limits = Limits::new().memory(20 << 20).idle(None).close(T::span(10.0));
    let config = Config::new().limits(limits);
    let (one, mut other) = (Loop::new::<T>(config), Loop::new::<T>(config));
    let budget = one.engine.budget().clone();
    other.engine = Engine::of_loop(config, 1, budget);
    let local = ([127, 0, 0, 1], 0);
    other.engine.listen(&mut other.watcher, local, ListenOptions::default()).unwrap();
    other.address = other.watcher.local_address(other.engine.listeners()[0]).unwrap();
    (one, other)
}

fn bytes_that_go_in_another_loop_let_this_one_read<T: Harness>() {
    let (mut one, mut other) = two_loops::<T>();
    let client = one.client();
    one.until("it is open", |one| !one.opened.is_empty());
    other.client();
    other.until("it is open", |other| !other.opened.is_empty());
    // Both hold bytes: the share is 7.5 MiB.
    let (id, far) = (one.opened[0], other.opened[0]);
    assert!(other.engine.charge(far, 1000) && one.engine.charge(id, 8 << 20));
    one.engine.flush(&mut one.watcher);
    assert_eq!(one.engine.counters().throttles, 1);
    let say = |one: &mut Loop<_>| {
        let write = windlass::Op::write(client, "hello").token(1).quiet();
        one.watcher.submit(write).unwrap();
    };
    say(&mut one);
    one.run_for(T::span(2.0));
    // The data that was on its way came, and then no more.
    let before = one.told.len();
    say(&mut one);
    one.run_for(T::span(2.0));
    assert_eq!(one.told.len(), before);
    other.engine.abort(far);
    other.engine.flush(&mut other.watcher);
    // Nothing else wakes this loop.
    while one.told.len() == before {
        assert!(one.turn(T::span(300.0)) > 0, "it waits in vain");
    }
}

fn each_loop_closes_its_own_connections_above_the_share<T: Harness>() {
    let (mut one, mut other) = two_loops::<T>();
    for l in [&mut one, &mut other] {
        l.client();
        l.client();
        l.until("both are open", |l| l.opened.len() == 2);
    }
    // Of 15 MiB without the reserve, each of four has 3.75 MiB.
    assert!(one.engine.charge(one.opened[0], 3 << 20) && one.engine.charge(one.opened[1], 1000));
    assert!(other.engine.charge(other.opened[0], 8 << 20));
    one.engine.flush(&mut one.watcher);
    other.engine.flush(&mut other.watcher);
    assert_eq!(one.engine.counters().ends.shed + other.engine.counters().ends.shed, 0);
    assert!(other.engine.charge(other.opened[1], 5 << 20));
    // The loop without one above the share closes none.
    one.engine.flush(&mut one.watcher);
    assert_eq!(one.engine.counters().ends.shed, 0);
    // The other one ends the larger one, and then the rest fits.
    other.engine.flush(&mut other.watcher);
    other.until("it is closed", |other| !other.closed.is_empty());
    assert_eq!(other.closed, [Cause::Shed]);
    assert_eq!(other.engine.ids().collect::<Vec<_>>(), [other.opened[1]]);
    assert_eq!(one.engine.budget().used(), (3 << 20) + 1000 + (5 << 20));
    // An engine that is dropped gives back what its connections hold.
    drop(other);
    assert_eq!(one.engine.budget().used(), (3 << 20) + 1000);
    assert!(one.engine.charge(one.opened[0], 0) && one.engine.charge(one.opened[1], 0));
    assert_eq!((one.engine.budget().used(), one.engine.budget().share()), (0, 15 << 20));
}

/// A watcher has 255 different idle times. A further one was left out in silence.
fn an_idle_time_that_the_watcher_refuses_ends_the_connection<T: Harness>() {
    if !T::VIRTUAL {
        return; // The tables are the same on every driver, and the descriptors are many.
    }
    let limits = Limits::new().idle(Duration::from_secs(9));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    for at in 0..255 {
        let local = ([127, 0, 0, 1], 0);
        let source = l.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
        let time = Duration::from_secs(1000 + at);
        l.watcher.set_idle_timeout(source, Some(time)).expect("one of 255");
    }
    l.client();
    l.until("it is closed", |l| !l.closed.is_empty());
    assert_eq!(l.closed, [Cause::Rejected]);
}

/// The sources of an engine stayed on the watcher, and its listeners accepted on.
fn the_end_of_an_engine_leaves_nothing<T: Harness>() {
    let config = Config::new().limits(Limits::new().close(T::span(50.0)));
    let mut l = Loop::new::<T>(config);
    let local = ([127, 0, 0, 1], 0);
    l.engine.bind_datagram(&mut l.watcher, local, DatagramOptions::default()).unwrap();
    let remote = l.engine.remote(&mut l.watcher);
    for _ in 0..4 {
        l.client();
    }
    l.until("all are open", |l| l.opened.len() == 4);
    // One has output that waits, one closes, one connects, and there are timers.
    let ids = l.opened.clone();
    l.engine.write(ids[0], vec![0; 30 << 20]).unwrap();
    assert!(l.engine.close(ids[1]) && l.engine.pause(ids[2]));
    l.engine.set_read_deadline(ids[3], Deadline::After(T::span(1000.0)));
    l.engine.tick_after(T::span(1000.0));
    l.engine.flush(&mut l.watcher);
    let address = l.address.clone();
    l.engine.connect([address], Default::default(), ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.engine.end(&mut l.watcher);
    while let Some(event) = l.engine.next_event(&mut l.watcher) {
        l.tell(event);
    }
    assert!(l.engine.is_empty());
    assert_eq!(l.closed.len(), 5);
    assert_eq!(l.closed.iter().filter(|cause| **cause == Cause::Shutdown).count(), 4);
    assert_eq!(l.engine.budget().used(), 0);
    assert!(remote.write(ids[0], "x").is_err() && !remote.wake(ids[0]));
    let mut done = Completions::new();
    while l.watcher.wait_timeout(&mut done, T::span(5.0)).unwrap() > 0 {
        for c in done.drain(..) {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
    }
    let timers = l.watcher.counters().in_flight;
    assert!(timers <= 4, "{timers} operations, and four clients that may read");
    // Only the clients are left, and what was in flight has no effect.
    l.run_for(T::span(5.0));
    assert!(l.engine.is_empty() && l.engine.jobs() == 0);
    let clients = l.watcher.counters().sources;
    assert!(clients <= 4, "{clients} sources");
}

fn many_stalled_connections_have_one_sweep<T: Harness>() {
    if !T::VIRTUAL {
        return; // A few thousand descriptors, and a minute: in virtual time only.
    }
    let limits = Limits::new().idle(None).write_stall(Duration::from_secs(1000)).marks(0, 0);
    let mut l = Loop::new::<T>(Config::new().limits(limits.memory(usize::MAX)));
    for _ in 0..1100 {
        l.client();
    }
    l.until("all are open", |l| l.opened.len() == 1100);
    for at in 0..1100 {
        l.engine.write(l.opened[at], vec![0; 2 << 20]).unwrap();
    }
    l.engine.flush(&mut l.watcher);
    let busy = l.opened[0];
    for _ in 0..60 {
        // A write in each turn, as a busy server has them.
        let end = l.now() + Duration::from_secs(1);
        while l.now() < end {
            let left = end - l.watcher.now();
            l.turn(left);
            l.engine.write(busy, "more").unwrap();
        }
    }
    // Two for each sweep of two parts, one each 625 ms, and those of the seconds.
    let before = l.turns;
    l.run_for(Duration::from_secs(10));
    let turns = l.turns - before;
    assert!(turns < 100, "{turns} turns in ten seconds");
}
