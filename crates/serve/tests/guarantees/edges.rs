//! Where two things meet that each work by themselves: failures in a row, marks in flight, the last
//! turn, refused submissions, foreign tokens; on every driver.
//!
//! Of the promises on the page of the crate: P6.

use std::cell::Cell;
use std::time::Duration;

use crate::common;
use crate::common::engine::Loop;
use crate::common::refusing::{Orders, Refusing};
use crate::common::turns::Turns;
use crate::common::{Harness, PATIENCE, bench};
use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{Address, Buf, Completions, Op, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Id, Limits, Phase, Refusal, Server,
};

crate::every_driver! {
    a_reset_counts_every_byte_that_was_not_sent
    a_close_ends_a_connect_that_hangs
    a_close_ends_a_connect_that_is_to_be_detached
    the_time_of_a_close_begins_once
    drained_comes_at_the_low_mark_whatever_waits_already
    drained_comes_though_all_is_sent_before_the_engine_looks
    drained_comes_though_the_engine_looks_in_between
    small_writes_of_other_threads_are_bounded
    a_refused_accept_is_tried_again
    a_refused_pause_of_a_listener_is_tried_again
    a_refused_sweep_is_tried_again
    a_refused_tick_is_tried_again
    a_tick_that_has_stopped_begins_again
    a_refused_wait_for_the_end_of_output_is_tried_again
    a_connection_reads_on_after_a_refused_wait
    a_sweep_in_place_of_a_refused_wait_lets_reads_go_on
    a_sweep_in_place_of_a_refused_wait_lets_a_detach_go_on
    a_connection_that_cannot_be_read_opens_and_closes
    what_postwrite_writes_is_sent_before_the_close
    a_connection_reads_on_after_postwrite_has_written
    a_shutdown_waits_for_farewells
    a_farewell_without_a_close_ends_with_a_reset
    writes_of_the_last_turn_are_in_the_report
    a_state_that_cannot_be_made_ends_no_other_connection
    tokens_of_the_program_come_back
    limits_hold_whatever_is_set_first
}

fn no_limits() -> Limits {
    Limits::new().idle(None).write_stall(None).connect(None)
}

fn a_reset_counts_every_byte_that_was_not_sent<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(no_limits()));
    let (client, id) = l.pair();
    // Several writes, of which only the first is begun.
    for bytes in [16 << 20, 1 << 20, 1000] {
        l.engine.write(id, vec![0; bytes]).unwrap();
        l.engine.flush(&mut l.watcher);
    }
    l.run_for(T::span(5.0));
    let queued = l.queued(id);
    assert!(queued > (1 << 20) + 1000, "{queued} bytes wait");
    // It has read nothing: that is a reset.
    l.watcher.abort(client);
    l.until("it is closed", |l| !l.ends.is_empty());
    let (cause, unsent, phase) = l.ends[0];
    assert!(matches!(cause, Cause::Os(_)), "{cause:?}");
    assert_eq!((unsent, phase), (queued, Phase::Open));
    assert_eq!(l.engine.budget().used(), 0);
}

/// A listener on which the next connect hangs: no accept is there, and its backlog is full.
fn full_listener<T: Harness>(l: &mut Loop<T::Driver>) -> (Source, Address) {
    let options = ListenOptions::default().backlog(0);
    let listener = l.watcher.listen_with(([127, 0, 0, 1], 0), options).unwrap();
    let address = l.watcher.local_address(listener).unwrap();
    for _ in 0..4 {
        let options = ConnectOptions::default().token(1);
        l.watcher.connect([address.clone()], options).unwrap();
    }
    l.run_for(T::span(5.0));
    (listener, address)
}

fn a_close_ends_a_connect_that_hangs<T: Harness>() {
    let limits = no_limits().close(T::span(30.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (_, address) = full_listener::<T>(&mut l);
    let id = l.engine.connect([address], ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, vec![0; 5000]).unwrap();
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(5.0));
    assert!(l.ends.is_empty());
    let start = l.now();
    assert!(l.engine.close(id));
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(20.0));
    // A loaded machine may have taken longer.
    assert!(l.ends.is_empty() || l.now() - start >= T::span(30.0), "too early: {:?}", l.ends);
    while l.ends.is_empty() && l.now() - start < T::span(500.0) {
        l.turn(T::span(10.0));
    }
    assert_eq!(l.ends, [(Cause::Closed, 5000, Phase::Connecting)]);
    assert!(l.now() - start >= T::span(30.0));
    assert_eq!(l.engine.budget().used(), 0);
}

/// The close takes the place of a detach that waits for the connect.
fn a_close_ends_a_connect_that_is_to_be_detached<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(no_limits().close(T::span(30.0))));
    let (_, address) = full_listener::<T>(&mut l);
    let id = l.engine.connect([address], ConnectOptions::default(), ()).unwrap();
    assert!(l.engine.detach(id).is_ok());
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(5.0));
    assert!(l.ends.is_empty() && l.engine.close(id));
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(1.0));
    assert_eq!(l.ends, [(Cause::Closed, 0, Phase::Connecting)]);
}

/// The time that the connect takes is part of the close's. It begins again when output moves.
fn the_time_of_a_close_begins_once<T: Harness>() {
    if !T::VIRTUAL {
        return; // The network decides when a connect that has hung goes on.
    }
    let limits = no_limits().close(Duration::from_secs(100));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (listener, address) = full_listener::<T>(&mut l);
    let id = l.engine.connect([address], ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, vec![0; 5 << 20]).unwrap();
    l.engine.close(id);
    let start = l.now();
    l.engine.flush(&mut l.watcher);
    l.run_for(Duration::from_secs(60));
    assert!(l.ends.is_empty());
    // Now there is room for it, but its peer does not read.
    l.watcher.submit(Op::accept(listener).multishot().token(1)).unwrap();
    // A kernel tells of no room that is small. A write that has another reason may find it, also
    // long afterwards: with faults it is a false event.
    let (mut queued, mut moved) = (0, start);
    while l.ends.is_empty() {
        l.turn(PATIENCE);
        // None is left when its write is cancelled: that is the end, and no move.
        let now = l.queued(id);
        if now > 0 && std::mem::replace(&mut queued, now) != now {
            moved = l.now();
        }
    }
    assert!(matches!(l.ends[0], (Cause::Closed, 1.., Phase::Closing)), "{:?}", l.ends);
    let (before, behind) = (moved - start, l.now() - moved);
    assert!(T::NAME == "faults" || before.as_secs() == 60, "{before:?}");
    // A sixteenth later at most, and as much later if the sweep is the first to see the move.
    assert!((100..=113).contains(&behind.as_secs()), "{behind:?}");
}

fn drained_comes_at_the_low_mark_whatever_waits_already<T: Harness>() {
    let limits = no_limits().marks(3 << 20, 4 << 20);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (client, id) = l.pair();
    // A little waits first: less than the marks.
    while l.queued(id) == 0 {
        l.engine.write(id, vec![0; 64 << 10]).unwrap();
        l.engine.flush(&mut l.watcher);
        // The system may take some more of it.
        l.run_for(T::span(1.0));
    }
    assert!((1..3 << 20).contains(&l.queued(id)), "{} bytes wait", l.queued(id));
    l.engine.write(id, vec![0; 16 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(1.0));
    assert!(!l.told.contains(&"drained"));
    while !l.told.contains(&"drained") {
        let queued = l.queued(id);
        assert!(queued > 0, "all is out, and it was not told");
        let read = Op::read_exact(client, Vec::with_capacity(64 << 10), 64 << 10).token(1);
        l.watcher.submit(read).unwrap();
        l.until("the client has read", |l| l.foreign.iter().any(|c| c.code() == OpCode::ReadExact));
        l.foreign.clear();
        if queued <= 3 << 20 {
            // The word of it may be on its way.
            l.run_for(T::span(1.0));
        }
    }
    assert!(l.queued(id) > 0, "drained came at the end only");
    assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
}

/// All output is sent before the engine sees that its wait for the end was cancelled.
fn drained_comes_though_all_is_sent_before_the_engine_looks<T: Harness>() {
    let limits = no_limits().marks(64 << 10, 256 << 10);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (client, id) = l.pair();
    let mut total = 0;
    // A wait for the end is in flight.
    while l.queued(id) == 0 {
        l.engine.write(id, vec![0; 64 << 10]).unwrap();
        l.engine.flush(&mut l.watcher);
        total += 64 << 10;
        l.run_for(T::span(0.2));
    }
    assert!(!l.told.contains(&"drained"));
    // The connection becomes full: the wait is cancelled.
    l.engine.write(id, vec![0; 1 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    total += 1 << 20;
    let read = Op::read_exact(client, Vec::with_capacity(total), total).token(1);
    l.watcher.submit(read).unwrap();
    let (mut done, start) = (Completions::new(), l.watcher.update_now());
    while l.queued(id) > 0 {
        assert!(l.watcher.now() - start < 50 * PATIENCE, "the client does not read");
        l.watcher.wait_timeout(&mut done, 50 * PATIENCE).unwrap();
        l.watcher.update_now();
    }
    for c in done.drain(..) {
        l.foreign.extend(l.engine.complete(&mut l.watcher, c));
    }
    l.run_for(T::span(1.0));
    assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
}

/// What the queue keeps for a write counts, too: a thread cannot fill the memory by single bytes.
/// The engine noted that all was sent, between the program's look and its flush. So the program
/// waited for an event that never came.
fn drained_comes_though_the_engine_looks_in_between<T: Harness>() {
    let high = 3 << 20;
    let limits = Limits::new().marks(1000, high);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (client, id) = l.pair();
    l.engine.write(id, vec![7; high]).unwrap();
    l.engine.flush(&mut l.watcher);
    l.run_for(T::span(1.0));
    let seen = l.engine.waiting(id);
    assert!(seen > 1000 && !l.engine.is_full(id), "{seen} bytes wait");
    l.watcher.submit(Op::read(client).multishot().token(1)).unwrap();
    // The kernel takes all, and the engine has not looked yet.
    let mut done = Completions::new();
    while l.queued(id) > 0 {
        assert!(l.watcher.wait_timeout(&mut done, PATIENCE).unwrap() > 0, "it waits in vain");
        for c in done.drain(..) {
            l.engine.complete(&mut l.watcher, c);
        }
    }
    assert_eq!(l.engine.waiting(id), seen);
    l.engine.write(id, vec![7; high - seen + 1]).unwrap();
    assert!(l.engine.is_full(id), "the program waits for less");
    l.until("it hears of less", |l| l.told.contains(&"drained"));
    l.run_for(T::span(1.0));
    assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
    assert!(!l.engine.is_full(id));
}

fn small_writes_of_other_threads_are_bounded<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(no_limits().memory(1 << 20)));
    let remote = l.engine.remote(&mut l.watcher);
    let (client, id) = l.pair();
    let mut count = 0;
    let refused = loop {
        match remote.write(id, "x") {
            Ok(()) => count += 1,
            Err(refused) => break refused,
        }
        assert!(count <= 1 << 20, "a megabyte of single bytes");
    };
    assert_eq!((refused.reason, &*refused.value), (Refusal::Memory, &b"x"[..]));
    assert!((1000..(1 << 20) / 32).contains(&count), "{count} writes");
    let read = Op::read_exact(client, Vec::with_capacity(count), count).token(1);
    l.watcher.submit(read).unwrap();
    l.until("all has arrived", |l| l.foreign.iter().any(|c| c.code() == OpCode::ReadExact));
    l.run_for(T::span(1.0));
    assert_eq!((l.engine.budget().used(), l.engine.waiting(id)), (0, 0));
    remote.write(id, "once more").unwrap();
}

/// An engine on a driver that refuses.
fn refusing<T: Harness>(limits: Limits) -> (Loop<Refusing<T::Driver>>, Orders) {
    refusing_with::<T>(Config::new().limits(limits))
}

fn refusing_with<T: Harness>(config: Config) -> (Loop<Refusing<T::Driver>>, Orders) {
    let orders = Orders::default();
    let driver = T::watcher(Watcher::builder()).into_driver();
    let watcher = Watcher::with_driver(Refusing::new(driver, orders.clone()));
    (Loop::on(watcher, config), orders)
}

fn a_refused_accept_is_tried_again<T: Harness>() {
    let (mut l, orders) = refusing::<T>(no_limits());
    orders.end_accept(libc_enetdown());
    orders.refuse(OpCode::Accept, 1);
    // This connection is lost with its accept.
    l.client();
    l.until("the accept has failed", |l| l.told.contains(&"accept failed"));
    // It is accepted again after a pause, refused, and tried once more.
    let start = l.now();
    l.client();
    while !l.told.contains(&"opened") && l.now() - start < Duration::from_secs(5) {
        l.turn(Duration::from_millis(50));
    }
    assert_eq!(orders.refused(), 1);
    assert!(l.told.contains(&"opened"), "the listener accepts no more: {:?}", l.told);
}

fn a_refused_pause_of_a_listener_is_tried_again<T: Harness>() {
    let (mut l, orders) = refusing::<T>(no_limits());
    orders.end_accept(libc_enetdown());
    orders.refuse(OpCode::Timer, 1);
    l.client();
    l.until("the accept has failed", |l| l.told.contains(&"accept failed"));
    let start = l.now();
    l.client();
    while !l.told.contains(&"opened") && l.now() - start < Duration::from_secs(5) {
        l.turn(Duration::from_millis(50));
    }
    assert_eq!(orders.refused(), 1);
    assert!(l.told.contains(&"opened"), "the listener accepts no more: {:?}", l.told);
}

/// `ENETDOWN`, which an accept can end with.
const fn libc_enetdown() -> i32 {
    100
}

fn a_refused_sweep_is_tried_again<T: Harness>() {
    let limits = no_limits().write_stall(T::span(30.0));
    let (mut l, orders) = refusing::<T>(limits);
    let (_deaf, id) = l.pair();
    orders.refuse(OpCode::Timer, 1);
    let start = l.now();
    l.engine.write(id, vec![0; 30 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    // Turns without anything to do for this connection.
    while l.ends.is_empty() && l.now() - start < T::span(500.0) {
        l.watcher.submit(Op::timer(T::span(5.0)).token(1)).unwrap();
        l.turn(T::span(10.0));
    }
    assert_eq!(orders.refused(), 1);
    assert!(matches!(l.ends[..], [(Cause::WriteStall, 1.., Phase::Open)]), "{:?}", l.ends);
}

fn a_refused_tick_is_tried_again<T: Harness>() {
    let (mut l, orders) = refusing::<T>(no_limits());
    orders.refuse(OpCode::Timer, 1);
    l.engine.tick_after(T::span(10.0));
    l.engine.flush(&mut l.watcher);
    let start = l.now();
    while !l.told.contains(&"tick") && l.now() - start < T::span(500.0) {
        l.watcher.submit(Op::timer(T::span(5.0)).token(1)).unwrap();
        l.turn(T::span(10.0));
    }
    assert_eq!(orders.refused(), 1);
    assert!(l.told.contains(&"tick"));
}

/// Ticks once, and again when it is asked for.
#[derive(Default)]
struct Ticks(u32);

impl Handler for Ticks {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.engine().tick_after(Duration::from_millis(10));
        Action::None
    }
    fn tick(&mut self, _: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        self.0 += 1;
        (None, Action::None)
    }
}

fn a_tick_that_has_stopped_begins_again<T: Harness>() {
    let server = Server::new(|_| Ticks::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    for ticks in 1..4 {
        bench.run_for(T::span(5.0));
        assert_eq!(bench.running.handler().0, ticks, "none follows by itself");
        bench.say(client, "!"); // one byte: a network with faults tears longer messages
        bench.until("it ticks again", |bench| bench.running.handler().0 > ticks);
    }
}

fn a_refused_wait_for_the_end_of_output_is_tried_again<T: Harness>() {
    let limits = no_limits().marks(1 << 20, 2 << 20).write_stall(T::span(2000.0));
    let (mut l, orders) = refusing::<T>(limits);
    let (client, id) = l.pair();
    orders.refuse(OpCode::WaitDrained, 1);
    l.engine.write(id, vec![0; 16 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    let read = Op::read_exact(client, Vec::with_capacity(16 << 20), 16 << 20).token(1);
    l.watcher.submit(read).unwrap();
    l.until("the client has read", |l| l.foreign.iter().any(|c| c.code() == OpCode::ReadExact));
    let start = l.now();
    // At the latest the sweep finds that it has to ask again.
    while !l.told.contains(&"drained") && l.now() - start < T::span(500.0) + Duration::from_secs(9)
    {
        l.turn(T::span(10.0));
    }
    assert_eq!(orders.refused(), 1);
    assert!(l.told.contains(&"drained"));
    assert_eq!(l.engine.budget().used(), 0);
}

/// A connection with much output, whose wait for less was refused.
fn waits_in_vain<T: Harness>() -> (Loop<Refusing<T::Driver>>, Source, Id) {
    let limits = no_limits().marks(1 << 20, 2 << 20).write_stall(T::span(2000.0));
    let (mut l, orders) = refusing::<T>(limits);
    let (client, id) = l.pair();
    orders.refuse(OpCode::WaitDrained, 1);
    l.engine.write(id, vec![0; 16 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    assert_eq!(orders.refused(), 1);
    (l, client, id)
}

/// The client reads all output.
fn read_all<D: windlass::driver::Driver>(l: &mut Loop<D>, client: Source) {
    let read = Op::read_exact(client, Vec::with_capacity(16 << 20), 16 << 20).token(1);
    l.watcher.submit(read).unwrap();
    l.until("the client has read", |l| l.foreign.iter().any(|c| c.code() == OpCode::ReadExact));
}

/// The client sends one byte, which the engine delivers.
fn expect_data<D: windlass::driver::Driver>(l: &mut Loop<D>, client: Source) {
    let count = |l: &Loop<D>| l.told.iter().filter(|told| **told == "data").count();
    let before = count(l);
    l.watcher.submit(Op::write(client, "x").token(1)).unwrap();
    l.until("its byte is delivered", |l| count(l) > before);
}

/// All output is sent, and data arrives, before the sweep looks.
fn a_connection_reads_on_after_a_refused_wait<T: Harness>() {
    let (mut l, client, _) = waits_in_vain::<T>();
    read_all(&mut l, client);
    let start = l.now();
    for _ in 0..3 {
        expect_data(&mut l, client);
    }
    assert!(l.now() - start < T::span(2000.0), "it was the sweep");
    assert_eq!(l.told.iter().filter(|told| **told == "drained").count(), 1);
}

/// Data arrives while the output waits, and nothing happens after it is sent.
fn a_sweep_in_place_of_a_refused_wait_lets_reads_go_on<T: Harness>() {
    let (mut l, client, _) = waits_in_vain::<T>();
    expect_data(&mut l, client);
    read_all(&mut l, client);
    l.until("the sweep has looked", |l| l.told.contains(&"drained"));
    for _ in 0..3 {
        expect_data(&mut l, client);
    }
}

fn a_sweep_in_place_of_a_refused_wait_lets_a_detach_go_on<T: Harness>() {
    let (mut l, client, id) = waits_in_vain::<T>();
    assert!(l.engine.detach(id).is_ok());
    l.engine.flush(&mut l.watcher);
    read_all(&mut l, client);
    l.until("it is detached", |l| l.told.contains(&"detached"));
    assert!(l.ends.is_empty());
}

/// Greets each client, and hands over a socket that cannot be read.
#[derive(Default)]
struct Greets {
    opened: usize,
    closed: Vec<Cause>,
}

impl Handler for Greets {
    type State = usize;
    fn opened(&mut self, c: &mut Conn<'_, usize>, _: windlass_serve::Origin) -> Action {
        self.opened += 1;
        *c.state() += 1;
        c.write("hello");
        if self.opened == 1 {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            // The simulation has no sockets of the system.
            c.engine().attach(socket, 0).unwrap();
        }
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, usize>, data: Buf) -> Action {
        *c.state() += 1;
        c.write(data);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, usize>, closed: Closed<usize>) -> Action {
        self.closed.push(closed.cause);
        Action::None
    }
}

fn a_connection_that_cannot_be_read_opens_and_closes<T: Harness>() {
    let server = Server::new(|_| Greets::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    assert_eq!(bench.running.handler().closed, [Cause::Rejected]);
    let late = bench.connect();
    for client in [client, late] {
        bench.say(client, "!");
        bench.until("it is answered", |bench| bench.client(client).heard == b"hello!");
    }
    let report = bench.running.report();
    assert_eq!((report.panics, bench.running.engine().len()), (0, 2));
}

/// Says goodbye when all else is sent.
struct Leaves(bool);

impl Handler for Leaves {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write(vec![1; 10]);
        c.write(vec![2; 10]);
        Action::None
    }
    fn postwrite(&mut self, c: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
        if std::mem::replace(&mut self.0, true) {
            return Action::None;
        }
        c.write("bye");
        Action::Close
    }
}

fn what_postwrite_writes_is_sent_before_the_close<T: Harness>() {
    let server = Server::new(|_| Leaves(false)).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.say(client, "!");
    bench.until("it has heard the end", |bench| bench.client(client).is_over());
    let heard = &bench.client(client).heard;
    assert!(heard.len() == 23 && heard.ends_with(b"bye"), "{heard:?}");
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.report().counters.ends.closed, 1);
}

/// Pauses at the first data, goes on when it is woken, and answers in two parts.
#[derive(Default)]
struct Halves {
    id: Option<Id>,
    /// Whether the second part is due.
    is_half: bool,
}

impl Handler for Halves {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        if self.id.replace(c.id()).is_none() {
            c.pause();
        } else {
            c.write(data);
            self.is_half = true;
        }
        Action::None
    }
    fn postwrite(&mut self, c: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
        if std::mem::take(&mut self.is_half) {
            c.write("+");
        }
        Action::None
    }
    fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
        c.resume();
        Action::None
    }
}

fn a_connection_reads_on_after_postwrite_has_written<T: Harness>() {
    let server = Server::new(|_| Halves::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.say(client, "1");
    bench.until("it pauses", |bench| bench.running.handler().id.is_some());
    bench.say(client, "2");
    // This data is held back, and the read stops.
    let end = bench.watcher.update_now() + T::span(5.0);
    while bench.watcher.update_now() < end {
        bench.turn(T::span(1.0));
    }
    let id = bench.running.handler().id.expect("it has paused");
    assert!(bench.running.remote().wake(id));
    bench.until("it is answered", |bench| bench.client(client).heard == b"2+");
    bench.say(client, "3");
    bench.until("it reads on", |bench| bench.client(client).heard == b"2+3+");
}

/// A refused client that stays takes no longer than a close that lingers, and leaves nothing.
fn a_shutdown_waits_for_farewells<T: Harness>() {
    let config = Config::new().limits(no_limits().connections(0)).farewell(b"full\n");
    let server = Server::new(|_| Leaves(false)).config(config);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = bench.connect();
    bench.until("it is refused", |bench| bench.client(client).heard == b"full\n");
    bench.running.remote().shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    bench.until("its source is gone", |bench| bench.watcher.counters().sources <= 1);
}

/// The close behind a farewell is refused: a part of the farewell is sent, and no more.
fn a_farewell_without_a_close_ends_with_a_reset<T: Harness>() {
    let farewell: &'static [u8] = vec![b'f'; 20 << 20].leak();
    let limits = no_limits().connections(0).linger(Duration::ZERO);
    let (mut l, orders) = refusing_with::<T>(Config::new().limits(limits).farewell(farewell));
    orders.refuse(OpCode::Close, 1);
    let client = l.client();
    l.until("it is refused", |l| l.engine.counters().refused == 1);
    assert_eq!(orders.refused(), 1);
    l.watcher.submit(Op::read(client).multishot().token(1)).expect("a read");
    l.until("the client hears the end", |l| {
        l.foreign.iter().any(|c| c.code() == OpCode::Read && !c.has_more())
    });
    let end = l.foreign.iter().find(|c| c.code() == OpCode::Read && !c.has_more());
    assert!(matches!(end, Some(c) if c.result.is_err()), "a clean end: {end:?}");
}

/// Tells the others when a connection has ended.
#[derive(Default)]
struct Tells {
    open: Vec<Id>,
    accepted: u64,
}

impl Handler for Tells {
    type State = ();
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: windlass_serve::Origin) -> Action {
        self.open.push(c.id());
        Action::None
    }
    fn closed(&mut self, server: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.open.retain(|id| *id != closed.id);
        for id in &self.open {
            self.accepted += u64::from(server.remote().write(*id, "one has left").is_ok());
        }
        Action::None
    }
}

fn writes_of_the_last_turn_are_in_the_report<T: Harness>() {
    let server = Server::new(|_| Tells::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for _ in 0..5 {
        bench.connect();
    }
    bench.until("all are open", |bench| bench.running.handler().open.len() == 5);
    let remote = bench.running.remote();
    let last = bench.running.handler().open[4];
    remote.shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    let accepted = bench.running.handler().accepted;
    assert!(accepted > 0, "no two connections have ended in one turn");
    assert_eq!(bench.running.report().counters.stale_writes, accepted);
    assert!(remote.write(last, "too late").is_err());
    assert_eq!(bench.running.engine().budget().used(), 0);
}

thread_local! {
    static MADE: Cell<u32> = const { Cell::new(0) };
}

/// The second one cannot be made.
struct Rare(u32);

impl Default for Rare {
    fn default() -> Rare {
        let number = MADE.get() + 1;
        MADE.set(number);
        assert!(number != 2, "the second state cannot be made, as it is to");
        Rare(number)
    }
}

#[derive(Default)]
struct Echo {
    ends: Vec<(u32, Cause)>,
}

impl Handler for Echo {
    type State = Rare;
    fn data(&mut self, c: &mut Conn<'_, Rare>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, Rare>, closed: Closed<Rare>) -> Action {
        self.ends.push((closed.state.0, closed.cause));
        Action::None
    }
}

fn a_state_that_cannot_be_made_ends_no_other_connection<T: Harness>() {
    MADE.set(0);
    let server = Server::new(|_| Echo::default()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let first = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    // In one turn the first one says something, and the second one comes.
    bench.say(first, "hello");
    for _ in 0..5 {
        bench.look(T::span(0.5));
    }
    let second = bench.connect();
    for _ in 0..5 {
        bench.look(T::span(0.5));
    }
    bench.running.turn(&mut bench.watcher);
    bench.until("the second has ended", |bench| bench.client(second).is_over());
    let third = bench.connect();
    bench.say(third, "hello");
    bench.until("the others are served", |bench| {
        bench.client(first).heard == b"hello" && bench.client(third).heard == b"hello"
    });
    assert_eq!(bench.running.handler().ends, []);
    let report = bench.running.report();
    assert_eq!((report.panics, report.counters.accepted, report.counters.refused), (1, 2, 1));
    assert_eq!(
        bench.watcher.counters().sources,
        5,
        "a listener, and two connections with both ends"
    );
}

fn tokens_of_the_program_come_back<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(no_limits()));
    let (_client, _id) = l.pair();
    l.foreign.clear();
    let mut tokens = Vec::new();
    for high in 0..500 {
        for low in [0, 1, u64::from(u32::MAX), 0xfff0_0000] {
            tokens.push(1 << 63 | high << 32 | low);
            tokens.push(u64::MAX - (high << 32) - low);
        }
    }
    for token in &tokens {
        l.watcher.submit(Op::nop().token(*token)).unwrap();
    }
    l.run_for(T::span(1.0));
    let mut found: Vec<u64> = l.foreign.iter().map(|c| c.token).collect();
    found.sort_unstable();
    tokens.sort_unstable();
    assert_eq!(found.len(), tokens.len());
    assert_eq!(found, tokens);
}

fn limits_hold_whatever_is_set_first<T: Harness>() {
    let (limits, config) = (Limits::new().cap(77), Config::new().farewell(b"full\n"));
    let server = || Server::new(|_| Tells::default()).listen("tcp://127.0.0.1:0").unwrap();
    for server in [server().limits(limits).config(config), server().config(config).limits(limits)] {
        let mut bench = bench::<T, _, _>(server);
        let client = bench.connect();
        bench.until("it is open", |bench| bench.running.handler().open.len() == 1);
        let id = bench.running.handler().open[0];
        assert!(bench.running.engine().write(id, vec![0; 77]).is_ok());
        assert!(bench.running.engine().write(id, vec![0; 1]).is_err());
        bench.watcher.abort(client);
    }
}

/// A write that ended with `Overflow` was taken for one behind a close: a limit has the bit of a
/// close that is sent.
#[test]
fn an_overflow_of_a_limited_connection_is_one() {
    let cause = |is_limited| {
        let builder =
            Watcher::builder().write_limit(100 << 10).write_overflow(windlass::Overflow::Close);
        let watcher = common::Simulated::watcher(builder);
        let mut l = Loop::on(watcher, Config::new().limits(no_limits()));
        let (_deaf, id) = l.pair();
        if is_limited {
            l.engine.limit(id, Duration::from_secs(1000), 0);
        }
        for _ in 0..100 {
            let _ = l.engine.write(id, vec![0; 40 << 10]);
            l.engine.flush(&mut l.watcher);
            l.run_for(Duration::from_millis(100));
        }
        l.ends.clone()
    };
    let free = cause(false);
    assert_eq!(free[0].0, Cause::Overflow);
    assert_eq!(cause(true), free);
}
