//! What a program holds for a connection counts for it, and stops doing so by itself: input between
//! two reads, memory of jobs, charges on other threads. On every driver.
//!
//! Of the promises on the page of the crate: P5.

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::Buf;
use windlass::driver::Driver;
use windlass_serve::framing::{Input, Lines};
use windlass_serve::memory::{Budget, Charge};
use windlass_serve::{
    Action, Closed, Config, Conn, Context, Detached, Engine, Handler, Limits, Origin, Refusal,
    Server,
};

crate::every_driver! {
    half_a_line_counts_until_it_is_whole
    half_a_line_counts_until_its_connection_has_gone
    lines_that_wait_count_until_another_callback_takes_them
    input_counts_in_a_job_until_the_job_drops_it
    what_a_job_and_its_result_hold_counts
    a_peer_above_its_share_is_not_read_until_its_input_is_taken
    peers_with_half_a_line_hold_up_no_other
    a_detached_connections_input_counts_until_it_is_dropped
    charges_of_one_connection_add_up
    a_charge_of_a_connection_that_has_gone_counts_for_the_budget_alone
    a_dropped_engine_gives_the_input_of_its_connections_back
    room_is_kept_until_it_is_dropped
    room_that_is_used_is_nobody_elses
}

/// The longest line.
const MOST: usize = 4 << 20;

/// Takes lines out of its input, and answers each with its length. The first byte of a line says
/// what else to do.
#[derive(Default)]
struct Counts {
    /// Whether lines stay in the input until the connection is woken.
    lets_wait: bool,
    /// What jobs have seen.
    seen: Vec<usize>,
    /// States of connections that have ended.
    states: Vec<Input>,
}

fn charge(c: &mut Conn<'_, Input>) {
    let charge = c.hold(0);
    c.state().charge_to(charge);
}

fn take_lines(c: &mut Conn<'_, Input>) {
    while let Ok(Some(line)) = c.state().next(&mut Lines::new(MOST)) {
        let len = line.len();
        c.write(format!("{len};"));
    }
}

impl Handler for Counts {
    type State = Input;
    fn opened(&mut self, c: &mut Conn<'_, Input>, _: Origin) -> Action {
        charge(c);
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, Input>, data: Buf) -> Action {
        match data[0] {
            b'd' => return Action::Detach,
            b'j' => return self.input_to_job(c),
            b'r' => return self.result_of_job(c),
            _ => c.state().push(data),
        }
        if !self.lets_wait {
            take_lines(c);
        }
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, Input>) -> Action {
        take_lines(c);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, Input>, closed: Closed<Input>) -> Action {
        self.states.push(closed.state);
        Action::None
    }
    fn detached(&mut self, _: &mut Context<'_, Input>, detached: Detached<Input>) -> Action {
        self.states.push(detached.state);
        Action::None
    }
    fn executed(&mut self, c: &mut Conn<'_, Input>, output: windlass::Message) -> Action {
        let budget = c.engine().budget().clone();
        self.seen.push(budget.used());
        if let Ok(seen) = output.downcast::<Vec<usize>>() {
            self.seen.extend(seen);
        }
        // What it was holding is dropped now.
        self.seen.push(budget.used());
        c.write("done;");
        Action::None
    }
}

impl Counts {
    /// The input goes into a job, which drops it.
    fn input_to_job(&mut self, c: &mut Conn<'_, Input>) -> Action {
        let (id, budget) = (c.id(), c.engine().budget().clone());
        let input = std::mem::take(c.state());
        let job = move || {
            let before = budget.used();
            drop(input);
            vec![before, budget.used()]
        };
        assert!(c.engine().execute(id, job).is_ok());
        charge(c);
        Action::None
    }

    /// A job has memory of its own, and so has its result.
    fn result_of_job(&mut self, c: &mut Conn<'_, Input>) -> Action {
        let (id, mut held) = (c.id(), c.hold(5000));
        let job = move || {
            held.set(3000);
            held
        };
        assert!(c.engine().execute(id, job).is_ok());
        Action::None
    }
}

fn start<T: Harness>(limits: Limits) -> Bench<T::Driver, Counts> {
    let config = Config::new().limits(limits.idle(None).write_stall(None));
    let server = Server::new(|_| Counts::default()).config(config);
    bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").expect("an address"))
}

fn used<D: Driver>(b: &mut Bench<D, Counts>) -> usize {
    b.running.engine().budget().used()
}

/// Until so many bytes count, or more.
fn until_used<D: Driver>(b: &mut Bench<D, Counts>, bytes: usize) {
    b.until("they count", |b| used(b) >= bytes);
}

/// Until the input of the only connection has all of these bytes: what the peer says then begins a
/// read of its own. (Memory grows ahead of the bytes, and so it counts before they are there.)
fn until_held<D: Driver>(b: &mut Bench<D, Counts>, bytes: usize) {
    b.until("they are there", |b| {
        let engine = b.running.engine();
        let id = engine.ids().next();
        id.and_then(|id| engine.state(id)).is_some_and(|input| input.len() == bytes)
    });
    assert!(used(b) >= bytes, "{}", used(b));
}

fn half_a_line_counts_until_it_is_whole<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let (one, other) = (b.connect(), b.connect());
    b.say(other, "hello\n");
    b.until("it is answered", |b| b.client(other).heard == b"5;");
    assert_eq!(used(&mut b), 0, "whole lines count for nothing");
    for round in 1..4 {
        b.say(one, vec![b'x'; 100_000]);
        until_used(&mut b, 100_000);
        assert!(used(&mut b) <= 8 * 100_000, "{}", used(&mut b));
        // It holds bytes, so it takes a share.
        let all = b.running.engine().budget().share();
        b.say(other, "half");
        b.until("there are two", |b| b.running.engine().budget().share() == all / 2);
        b.say(one, "\n");
        b.say(other, "\n");
        let answers = ("100000;".repeat(round), 2 + 2 * round);
        b.until("both are answered", |b| {
            let (one, other) = (&b.client(one).heard, &b.client(other).heard);
            (one, other.len()) == (&answers.0.clone().into_bytes(), answers.1)
        });
        assert_eq!(used(&mut b), 0);
    }
}

fn half_a_line_counts_until_its_connection_has_gone<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let one = b.connect();
    b.say(one, vec![b'x'; 10_000]);
    until_used(&mut b, 10_000);
    b.finish(one);
    b.until("it has gone", |b| !b.running.handler().states.is_empty());
    assert!(used(&mut b) >= 10_000, "the program has its input");
    b.running.handler().states.clear();
    assert_eq!(used(&mut b), 0);
}

fn lines_that_wait_count_until_another_callback_takes_them<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    b.running.handler().lets_wait = true;
    let one = b.connect();
    for count in 1..4 {
        b.say(one, "a line of text\n".repeat(1000));
        let len = 15_000 * count;
        b.until("it waits", |b| {
            let engine = b.running.engine();
            let id = engine.ids().next();
            id.and_then(|id| engine.state(id)).is_some_and(|input| input.len() == len)
        });
    }
    assert!(used(&mut b) >= 45_000, "{}", used(&mut b));
    let id = b.running.engine().ids().next().expect("it is open");
    assert!(b.running.engine().wake(id));
    b.running.turn(&mut b.watcher);
    b.until("all are answered", |b| b.client(one).heard == b"14;".repeat(3000));
    assert_eq!(used(&mut b), 0);
}

fn input_counts_in_a_job_until_the_job_drops_it<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let one = b.connect();
    b.say(one, vec![b'x'; 10_000]);
    until_held(&mut b, 10_000);
    b.say(one, "j");
    b.until("it is done", |b| b.client(one).heard == b"done;");
    let seen = &b.running.handler().seen;
    assert!(seen.len() == 4 && seen[1] >= 10_000, "{seen:?}");
    assert_eq!((seen[0], seen[2], seen[3]), (0, 0, 0));
    assert_eq!(used(&mut b), 0);
}

fn what_a_job_and_its_result_hold_counts<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let one = b.connect();
    b.say(one, "r");
    b.until("it is done", |b| b.client(one).heard == b"done;");
    assert_eq!(b.running.handler().seen, [3000, 0]);
}

/// The peer sends a line that is longer than its share.
fn a_peer_above_its_share_is_not_read_until_its_input_is_taken<T: Harness>() {
    let mut b = start::<T>(Limits::new().memory(4 << 20));
    let (greedy, honest) = (b.connect(), b.connect());
    b.say(honest, "half");
    until_used(&mut b, 4);
    for _ in 0..20 {
        b.say(greedy, vec![b'x'; 100_000]);
    }
    b.until("its reads stop", |b| b.running.report().counters.throttles > 0);
    b.run_for(T::span(5.0));
    let held = used(&mut b);
    assert!((1 << 20..3 << 20).contains(&held), "{held}");
    b.say(honest, "\n");
    b.until("the other one is answered", |b| b.client(honest).heard == b"4;");
    // Dropped on another thread: that alone lets the connection read again.
    let engine = b.running.engine();
    let holds = |id: &_| engine.state(*id).is_some_and(|input| !input.is_empty());
    let id = engine.ids().find(holds).expect("the greedy one");
    let input = std::mem::take(engine.state_mut(id).expect("it lives"));
    let rest = 2_000_000 - input.len();
    std::thread::spawn(move || drop(input)).join().expect("no panic");
    b.until("the rest is there", |b| {
        b.running.engine().state(id).is_some_and(|input| input.len() == rest)
    });
}

/// Half a line of each of many, none of which is large.
fn peers_with_half_a_line_hold_up_no_other<T: Harness>() {
    let mut b = start::<T>(Limits::new().memory(1 << 20));
    let honest = b.connect();
    let slow: Vec<_> = (0..30).map(|_| b.connect()).collect();
    b.until("all are open", |b| b.running.report().counters.accepted == 31);
    for round in 1..30 {
        for &client in &slow {
            b.say(client, vec![b'x'; 4000]);
        }
        b.say(honest, "hello\n");
        b.until("it is answered", |b| b.client(honest).heard.len() == 2 * round);
    }
    b.run_for(T::span(5.0));
    let counters = b.running.report().counters;
    assert!(counters.throttles > 0, "{counters:?}");
    b.running.handler().states.clear();
    let held = used(&mut b);
    // A read that was on its way comes on top of each share.
    assert!(held <= (1 << 20) + 30 * (64 << 10), "{held}");
    for &client in &slow {
        b.finish(client);
    }
    b.until("they have gone", |b| b.running.engine().len() == 1);
    b.running.handler().states.clear();
    assert_eq!(used(&mut b), 0);
}

fn a_detached_connections_input_counts_until_it_is_dropped<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let one = b.connect();
    b.say(one, vec![b'x'; 10_000]);
    until_held(&mut b, 10_000);
    b.say(one, "d");
    b.until("it is detached", |b| !b.running.handler().states.is_empty());
    assert!(used(&mut b) >= 10_000);
    let free = b.running.engine().budget().share();
    assert_eq!(free, b.running.engine().budget().limit() / 4 * 3, "no connection holds it");
    let mut input = b.running.handler().states.pop().expect("its input");
    drop(input.take_rest());
    assert_eq!(used(&mut b), 0);
}

fn charges_of_one_connection_add_up<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(1 << 20)));
    let ((_, id), (_, other)) = (l.pair(), l.pair());
    assert!(l.engine.charge(other, 1));
    let free = l.engine.budget().share();
    let mut charges: Vec<Charge> = (1..4).map(|at| l.engine.hold(id, at * 1000)).collect();
    assert!(l.engine.charge(id, 500));
    assert_eq!(l.engine.budget().used(), 6501, "the budget knows at once");
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.budget().share(), free / 2, "and its loop in the flush");
    charges[2].set(600 << 10);
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().throttles, 1, "it is above its share");
    charges.swap_remove(2);
    l.engine.flush(&mut l.watcher);
    let last = charges.pop().expect("two are left");
    std::thread::spawn(move || drop(last)).join().expect("no panic");
    assert_eq!((l.engine.budget().used(), charges[0].bytes()), (1501, 1000));
    charges.clear();
    assert!(l.engine.charge(id, 0));
    l.engine.flush(&mut l.watcher);
    assert_eq!((l.engine.budget().used(), l.engine.budget().share()), (1, free));
    // Nothing is left of it: it reads and writes as before.
    l.engine.write(id, "x").expect("it takes output");
    l.engine.flush(&mut l.watcher);
    l.until("it is sent", |l| l.engine.budget().used() == 1);
}

fn a_charge_of_a_connection_that_has_gone_counts_for_the_budget_alone<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (_, id) = l.pair();
    let free = l.engine.budget().share();
    let held = l.engine.hold(id, 1000);
    l.engine.flush(&mut l.watcher);
    assert!(l.engine.abort(id));
    l.engine.flush(&mut l.watcher);
    l.until("it has gone", |l| !l.ends.is_empty());
    let late = l.engine.hold(id, 500);
    let (_, next) = l.pair();
    l.engine.flush(&mut l.watcher);
    assert_eq!((l.engine.budget().used(), l.engine.budget().share()), (1500, free));
    drop((held, late));
    l.engine.flush(&mut l.watcher);
    assert_eq!((l.engine.budget().used(), l.engine.budget().share()), (0, free));
    l.engine.write(next, "the next one in its place").expect("it is open");
}

fn a_dropped_engine_gives_the_input_of_its_connections_back<T: Harness>() {
    let mut b = start::<T>(Limits::new());
    let one = b.connect();
    b.say(one, vec![b'x'; 10_000]);
    until_used(&mut b, 10_000);
    let budget = b.running.engine().budget().clone();
    drop(b.running);
    assert_eq!((budget.used(), budget.share()), (0, budget.limit() / 4 * 3));
}

/// The loops and threads of a server share a budget. What is held goes along with a connection.
#[test]
fn charges_of_two_loops_meet_in_the_budget() {
    let budget = Budget::new(1 << 20);
    let mut loops = [0, 1].map(|at| Engine::<()>::of_loop(Config::new(), at, budget.clone()));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
    let ids = loops
        .each_mut()
        .map(|engine| engine.connect([address], Default::default(), ()).expect("few connections"));
    let mut input = Input::new();
    input.push(vec![7; 1000]);
    input.charge_to(loops[0].hold(ids[0], 0));
    assert_eq!(budget.used(), 1000);
    // The connection has moved.
    input.charge_to(loops[1].hold(ids[1], 0));
    assert_eq!(budget.used(), 1000);
    drop(loops);
    assert_eq!(budget.used(), 1000);
    drop(input);
    assert_eq!(budget.used(), 0);
}

fn room_is_kept_until_it_is_dropped<T: Harness>() {
    let limits = Limits::new().marks(1000, 2000).cap(10_000).memory(1 << 20);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (_, id) = l.pair();
    let (watcher, engine) = (&mut l.watcher, &mut l.engine);
    let remote = engine.remote(watcher);
    let room = remote.reserve(id, 6000).expect("there is room");
    // It counts for all that write.
    assert_eq!(remote.reserve(id, 4001).expect_err("none"), Refusal::Cap);
    assert_eq!(remote.write(id, vec![0; 4001]).expect_err("none").reason, Refusal::Cap);
    assert_eq!(engine.would_take(id, 4001), Err(Refusal::Cap));
    assert_eq!(engine.write_slice(id, &[0; 4001]), Err(Refusal::Cap));
    assert_eq!((engine.would_take(id, 4000), engine.budget().used()), (Ok(()), 6000));
    let other = std::thread::spawn(move || remote.reserve(id, 4000).map(|more| (more, remote)));
    let (more, remote) = other.join().expect("no panic").expect("there is room");
    assert_eq!((engine.would_take(id, 1), engine.would_take(id, 0)), (Err(Refusal::Cap), Ok(())));
    drop(room);
    // Who has asked can write; asking takes nothing.
    for _ in 0..10 {
        assert_eq!(engine.would_take(id, 6000), Ok(()));
    }
    engine.write_slice(id, &[0; 6000]).expect("there is room");
    assert_eq!(engine.would_take(id, 1), Err(Refusal::Cap));
    drop(more);
    assert_eq!(engine.would_take(id, 4000), Ok(()));
    engine.abort(id);
    engine.flush(watcher);
    l.until("its end", |l| !l.ends.is_empty());
    assert_eq!(l.engine.would_take(id, 0), Err(Refusal::Stale));
    assert_eq!(remote.reserve(id, 1).expect_err("none"), Refusal::Stale);
    assert_eq!(l.engine.budget().used(), 0);
}

/// A thread that asked between the drop of the room and the write had it, and the write none.
fn room_that_is_used_is_nobody_elses<T: Harness>() {
    let limits = Limits::new().marks(1000, 2000).cap(10_000).memory(1 << 20);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (_, id) = l.pair();
    let (_, other) = l.pair();
    let (watcher, engine) = (&mut l.watcher, &mut l.engine);
    let remote = engine.remote(watcher);
    let mut room = remote.reserve(id, 9000).expect("there is room");
    assert_eq!((room.bytes(), engine.budget().used()), (9000, 9000));
    room.release_memory();
    assert_eq!((engine.budget().used(), remote.waiting(id)), (0, Some(9000)));
    // The loop has its own, whatever threads have.
    let own = engine.reserve(id, 9000).expect("there is room");
    assert_eq!((engine.budget().used(), remote.waiting(id)), (9000, Some(18_000)));
    assert_eq!(engine.reserve(id, 10_001).expect_err("none"), Refusal::Cap);
    assert_eq!(engine.write_slice(id, b"more"), Err(Refusal::Cap));
    engine.use_room(Some(own));
    assert_eq!(engine.write_slice(other, &[0; 10_001]), Err(Refusal::Cap));
    engine.write_slice(id, &[1; 5000]).expect("it has room");
    engine.write(id, vec![2; 4000]).expect("it has room");
    assert_eq!(engine.write_slice(id, &[3; 1]), Err(Refusal::Cap));
    assert_eq!(engine.reserve(id, 1001).expect_err("its output"), Refusal::Cap);
    engine.use_room(Some(room));
    engine.write(id, vec![4; 9000]).expect("it has room");
    engine.use_room(None);
    assert_eq!(engine.write_slice(id, b"more"), Err(Refusal::Cap));
    assert_eq!(remote.waiting(id), Some(0), "the output of the turn counts with the flush");
    engine.abort(id);
    engine.flush(watcher);
    l.until("its end", |l| !l.ends.is_empty());
    assert_eq!(l.engine.reserve(id, 1).expect_err("none"), Refusal::Stale);
    assert_eq!(l.engine.budget().used(), 0);
}
