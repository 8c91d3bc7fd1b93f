//! The rule of the budget: a peer that holds much stops itself, and no other; on every driver.
//!
//! Of the promises on the page of the crate: P4, P5, P7 and P9.

use std::time::Duration;

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench, bench_with, seed};
use windlass::{Buf, Op, Source, Watcher};
use windlass_serve::framing::{Input, Lines};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Origin, Phase, Refusal, Server,
};

crate::every_driver! {
    hostile_peers_keep_nobody_from_an_answer
    peers_that_never_read_leave_the_others_alone
    paused_peers_take_no_buffers_from_others
    a_program_that_keeps_all_input_stops_only_its_sender
    two_buffers_are_enough_for_a_program_that_keeps_them
    what_a_program_charges_counts
    the_output_of_one_turn_counts
    a_peer_that_has_ended_its_side_has_a_limit_of_time
    a_half_closed_connection_that_sends_is_not_idle
    connections_are_refused_when_shares_are_least
    what_many_programs_keep_is_shed
    unread_streams_are_shed
    a_connection_that_is_stopped_has_a_limit_of_time
    a_half_close_begins_its_time_anew
    a_charge_behind_the_end_counts_for_nothing
    the_reserve_is_there_for_writes_of_other_threads
    a_write_beyond_the_whole_budget_is_refused
    output_is_counted_once_while_it_is_sent
    a_dropped_engine_gives_its_turn_back
    a_connection_that_was_stopped_reads_when_all_is_dropped
    a_full_queue_of_requests_loses_no_wake
}

/// Does what the first byte of a read says, and keeps what it is to keep. Each "hello" is answered
/// once, however it is cut, and whatever is in front of it in the same read.
#[derive(Default)]
struct Orders {
    kept: Vec<Buf>,
    /// All bytes.
    heard: usize,
    answers: usize,
    closed: Vec<(Cause, Phase)>,
}

const MUCH: usize = 256 << 10;

impl Handler for Orders {
    type State = Input;
    fn opened(&mut self, c: &mut Conn<'_, Input>, _: Origin) -> Action {
        let charge = c.hold(0);
        c.state().charge_to(charge);
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, Input>, data: Buf) -> Action {
        self.heard += data.len();
        for _ in data.iter().filter(|byte| **byte == b'o') {
            self.answers += 1;
            c.write("ok");
        }
        match data[0] {
            b'i' => {
                c.state().push(data);
                assert!(c.state().next(&mut Lines::new(1 << 20)).is_ok_and(|line| line.is_none()));
            }
            b'w' => _ = c.write(vec![0; MUCH]),
            b'k' => self.kept.push(data),
            b'p' => c.pause(),
            b'c' => c.charge(1 << 20),
            b'0' => c.charge(0),
            _ => {}
        }
        Action::None
    }
    fn closed(&mut self, _: &mut Context<'_, Input>, closed: Closed<Input>) -> Action {
        self.closed.push((closed.cause, closed.phase));
        Action::None
    }
}

fn orders(limits: Limits) -> Server<impl Fn(usize) -> Orders> {
    let limits = limits.idle(None).write_stall(None);
    Server::new(|_| Orders::default()).limits(limits).listen("tcp://127.0.0.1:0").unwrap()
}

/// Numbers of a seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % count as u64) as usize
    }
}

/// Turns until the client has heard so many bytes; how many turns that took.
fn turns_until<T: Harness, H: Handler>(
    bench: &mut Bench<T::Driver, H>,
    client: Source,
    heard: usize,
) -> usize {
    let mut turns = 0;
    while bench.client(client).heard.len() < heard {
        assert!(turns < 10_000, "no answer");
        bench.turn(Duration::from_secs(100));
        turns += 1;
    }
    turns
}

/// In every order that the seed draws: hostile peers never read, pause, send without end, send no
/// end of a line, or have the program keep what they send. Each honest request is answered within a
/// number of turns.
fn hostile_peers_keep_nobody_from_an_answer<T: Harness>() {
    let (hostile, honest) = if T::VIRTUAL { (1000, 100) } else { (150, 15) };
    let mut dice = Dice(seed());
    println!("seed {}", seed());
    let mut bench = bench::<T, _, _>(orders(Limits::new().memory(8 << 20)));
    let bad: Vec<_> = (0..hostile).map(|_| bench.connect_deaf()).collect();
    let good: Vec<_> = (0..honest).map(|_| bench.connect()).collect();
    let all = (hostile + honest) as u64;
    bench.until("all are open", |bench| bench.running.report().counters.accepted == all);
    // What the kernel and the simulated network need for a request and its answer.
    let mut quiet = 0;
    for &client in &good {
        bench.say(client, "hello");
        quiet = quiet.max(turns_until::<T, _>(&mut bench, client, 2));
    }
    let mut most = hostile / 64 + 4 + 4 * quiet;
    if T::NAME == "faults" {
        // A faulty kernel tells of its events one by one: turns say nothing about time.
        most = usize::MAX;
    }
    let mut heard = vec![2; honest];
    for _ in 0..60 {
        for _ in 0..hostile / 8 {
            let peer = bad[dice.below(hostile)];
            match dice.below(5) {
                0 | 1 => bench.say(peer, "w"),
                2 => bench.say(peer, vec![b'i'; 1000]),
                3 => bench.say(peer, vec![b'k'; 1000]),
                _ => bench.say(peer, "p"),
            }
        }
        let at = dice.below(honest);
        bench.say(good[at], "hello");
        heard[at] += 2;
        let turns = turns_until::<T, _>(&mut bench, good[at], heard[at]);
        assert!(turns <= most, "{turns} turns, and {quiet} without the hostile peers");
    }
    let shed = bench.running.report().counters.ends.shed;
    let throttles = bench.running.report().counters.throttles;
    println!("{shed} were shed, and {throttles} times a connection stopped reading");
    assert!(shed > 0 && throttles > 0);
    let closed = &bench.running.handler().closed;
    assert!(closed.iter().all(|(cause, _)| matches!(cause, Cause::Shed | Cause::Os(_))));
    assert!(bench.running.engine().budget().used() <= 8 << 20);
}

/// Between three quarters of the memory and all of it, the server read from no peer, and shed none.
fn peers_that_never_read_leave_the_others_alone<T: Harness>() {
    let mut bench = bench::<T, _, _>(orders(Limits::new().memory(8 << 20)));
    let deaf: Vec<_> = (0..40).map(|_| bench.connect_deaf()).collect();
    let honest = bench.connect();
    bench.until("all are open", |bench| bench.running.report().counters.accepted == 41);
    for round in 0..12 {
        for &client in &deaf {
            bench.say(client, "w");
        }
        bench.say(honest, "hello");
        turns_until::<T, _>(&mut bench, honest, 2 * (round + 1));
    }
    let used = bench.running.engine().budget().used();
    assert!(used <= 8 << 20, "{used}");
}

/// A piece of a paused peer's data held a buffer until the peer was resumed.
fn paused_peers_take_no_buffers_from_others<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4 << 10).swap_limit(32 << 10);
    let mut bench = bench_with::<T, _, _>(builder, orders(Limits::new()));
    let paused: Vec<_> = (0..40).map(|_| bench.connect()).collect();
    let honest = bench.connect();
    bench.until("all are open", |bench| bench.running.report().counters.accepted == 41);
    for &client in &paused {
        bench.say(client, "p");
    }
    bench.run_for(T::span(5.0));
    for &client in &paused {
        bench.say(client, vec![b'x'; 4000]);
    }
    bench.run_for(T::span(5.0));
    bench.say(honest, "hello");
    bench.until("it is answered", |bench| bench.client(honest).heard == b"ok");
    // What was held back is counted, and comes with the resume.
    assert!(bench.running.engine().budget().used() >= 40 * 100);
    let ids: Vec<_> = bench.running.engine().ids().collect();
    for id in ids {
        bench.running.engine().resume(id);
    }
    bench.running.turn(&mut bench.watcher);
    let all = 40 * (1 + 4000) + "hello".len();
    bench.until("all is heard", |bench| bench.running.handler().heard == all);
    bench.run_for(T::span(5.0));
    assert_eq!(bench.running.engine().budget().used(), 0);
}

/// A program that kept every buffer stopped the reads of all connections.
fn a_program_that_keeps_all_input_stops_only_its_sender<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4 << 10).swap_limit(32 << 10);
    let mut bench = bench_with::<T, _, _>(builder, orders(Limits::new().memory(1 << 20)));
    let (greedy, honest) = (bench.connect(), bench.connect());
    bench.until("both are open", |bench| bench.running.report().counters.accepted == 2);
    // Another holder, so that the share is not all that there is without the reserve.
    let ids: Vec<_> = bench.running.engine().ids().collect();
    for &id in &ids {
        assert!(bench.running.engine().charge(id, 1));
    }
    for round in 0..1500 {
        bench.say(greedy, vec![b'k'; 1000]);
        if round % 100 == 0 {
            bench.say(honest, "hello");
            turns_until::<T, _>(&mut bench, honest, 2 * (round / 100 + 1));
        }
    }
    bench.until("its reads stop", |bench| bench.running.report().counters.throttles > 0);
    assert!(bench.running.engine().budget().used() <= 1 << 20);
    bench.say(honest, "hello");
    turns_until::<T, _>(&mut bench, honest, 32);
    // The program drops what it has kept: that alone lets the connection read again.
    let mut heard = 0;
    while heard < 1_500_000 {
        let kept = std::mem::take(&mut bench.running.handler().kept);
        heard += kept.iter().map(|data| data.len()).sum::<usize>();
        drop(kept);
        if heard < 1_500_000 {
            assert!(bench.turn(Duration::from_secs(100)) > 0, "it waits in vain at {heard}");
        }
    }
    for &id in &ids {
        assert!(bench.running.engine().charge(id, 0));
    }
    bench.running.turn(&mut bench.watcher);
    bench.until("all is free", |bench| {
        bench.running.handler().kept.clear();
        bench.running.engine().budget().used() == 0
    });
}

/// The program kept a part of each buffer. The one at hand counted as free, and was the last one.
fn two_buffers_are_enough_for_a_program_that_keeps_them<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4 << 10).swap_limit(8 << 10);
    let mut bench = bench_with::<T, _, _>(builder, orders(Limits::new()));
    let (greedy, honest) = (bench.connect(), bench.connect());
    for round in 1..20 {
        bench.say(greedy, vec![b'k'; 1000]);
        bench.until("the program keeps it", |bench| {
            let kept = &bench.running.handler().kept;
            kept.iter().map(|data| data.len()).sum::<usize>() == 1000 * round
        });
    }
    bench.say(honest, "hello");
    turns_until::<T, _>(&mut bench, honest, 2);
}

fn what_a_program_charges_counts<T: Harness>() {
    let mut bench = bench::<T, _, _>(orders(Limits::new().memory(1 << 20)));
    let (greedy, honest) = (bench.connect(), bench.connect());
    bench.until("both are open", |bench| bench.running.report().counters.accepted == 2);
    // A fourth of it is the reserve: the connection is above its share, and above all of it.
    bench.say(greedy, "c");
    bench.until("it is shed", |bench| bench.running.report().counters.ends.shed == 1);
    assert_eq!(bench.running.engine().budget().used(), 0);
    let id = bench.running.engine().ids().next().expect("the honest one");
    let engine = bench.running.engine();
    assert!(engine.charge(id, 700 << 10) && engine.charge(id, 600 << 10));
    assert_eq!(engine.budget().used(), 600 << 10);
    // Another holder halves the share.
    let other = bench.connect();
    bench.until("it is open", |bench| bench.running.report().counters.accepted == 3);
    let second = bench.running.engine().ids().find(|one| *one != id).expect("the other one");
    let throttles = bench.running.report().counters.throttles;
    let engine = bench.running.engine();
    assert!(engine.charge(second, 1000) && engine.charge(id, 600 << 10));
    bench.running.turn(&mut bench.watcher);
    assert_eq!(bench.running.report().counters.throttles, throttles + 1);
    // What was on its way comes, and stops the read.
    bench.say(honest, "hello");
    bench.run_for(T::span(5.0));
    let answers = bench.client(honest).heard.len();
    bench.say(honest, "hello");
    bench.run_for(T::span(5.0));
    assert_eq!(bench.client(honest).heard.len(), answers, "it is above its share");
    assert!(bench.running.engine().charge(id, 0) && bench.running.engine().charge(second, 0));
    bench.running.turn(&mut bench.watcher);
    bench.until("both are read", |bench| bench.client(honest).heard.len() == 4);
    assert_eq!(bench.running.engine().budget().used(), 0);
    let _ = other;
}

/// All that was written in one turn was charged only at its end.
fn the_output_of_one_turn_counts<T: Harness>() {
    let limits = Limits::new().memory(16 << 20).idle(None);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let ids: Vec<_> = (0..8).map(|_| l.pair().1).collect();
    let mut refused = 0;
    for &id in &ids {
        for _ in 0..8 {
            match l.engine.write(id, vec![0; 1 << 20]) {
                Ok(()) => {}
                Err(why) => {
                    assert_eq!((why.reason, why.value.len()), (Refusal::Memory, 1 << 20));
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 40, "{refused} of 64 MiB were refused");
    assert!(l.engine.budget().used() <= 16 << 20, "{}", l.engine.budget().used());
    l.engine.flush(&mut l.watcher);
    assert!(l.engine.budget().used() <= 16 << 20, "{}", l.engine.budget().used());
}

fn a_peer_that_has_ended_its_side_has_a_limit_of_time<T: Harness>() {
    let limits = Limits::new().idle(T::span(40.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits).close_on_eof(false));
    let (client, _) = l.pair();
    l.watcher.submit(Op::shutdown(client).token(1)).unwrap();
    l.until("it hears that", |l| l.told.contains(&"eof"));
    let start = l.now();
    l.until("it ends", |l| !l.ends.is_empty());
    assert!(l.now() - start >= T::span(40.0) - T::span(1.0), "too early");
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open)]);
}

fn a_half_closed_connection_that_sends_is_not_idle<T: Harness>() {
    let limits = Limits::new().idle(T::span(400.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits).close_on_eof(false));
    let (client, id) = l.pair();
    l.watcher.submit(Op::shutdown(client).token(1)).unwrap();
    l.watcher.submit(Op::read(client).multishot().token(1)).unwrap();
    l.until("it hears that", |l| l.told.contains(&"eof"));
    for _ in 0..10 {
        l.run_for(T::span(100.0));
        assert!(l.ends.is_empty(), "it sends");
        l.engine.write(id, "more").unwrap();
        l.engine.flush(&mut l.watcher);
    }
    // A paused connection waits for the program.
    assert!(l.engine.pause(id));
    l.run_for(T::span(1000.0));
    assert!(l.ends.is_empty(), "it is paused");
    assert!(l.engine.resume(id));
    l.engine.flush(&mut l.watcher);
    l.until("it ends", |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open)]);
}

fn connections_are_refused_when_shares_are_least<T: Harness>() {
    // Shares are at least a sixteenth of so little memory: twelve connections may hold bytes.
    let limits = Limits::new().memory(1600).idle(None);
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let mut ids = Vec::new();
    for _ in 0..12 {
        let id = l.pair().1;
        assert!(l.engine.charge(id, 50));
        ids.push(id);
    }
    let _refused = l.client();
    l.until("it is refused", |l| l.engine.counters().refused == 1);
    assert!(l.engine.charge(ids[0], 0));
    l.pair();
    assert_eq!((l.engine.counters().accepted, l.engine.counters().refused), (13, 1));
}

/// What the program kept was in no share: nobody was shed for it, and it had no bound.
fn what_many_programs_keep_is_shed<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4 << 10).swap_limit(32 << 10);
    let mut bench = bench_with::<T, _, _>(builder, orders(Limits::new().memory(1 << 20)));
    let clients: Vec<_> = (0..20).map(|_| bench.connect()).collect();
    bench.until("all are open", |bench| bench.running.report().counters.accepted == 20);
    for _ in 0..300 {
        for &client in &clients {
            bench.say(client, vec![b'k'; 1000]);
        }
        bench.turn(Duration::from_millis(1));
    }
    bench.run_for(T::span(20.0));
    let counters = &bench.running.report().counters;
    assert!(counters.ends.shed > 0 || counters.throttles > 0, "{counters:?}");
    // What the program still has of closed connections is its own, but nobody adds to it.
    let used = bench.running.engine().budget().used();
    assert!(used <= 3 << 20, "{used}");
    bench.until("it is free", |bench| {
        bench.running.handler().kept.clear();
        bench.running.engine().budget().used() == 0
    });
}

/// Unread input of streams was in no share.
fn unread_streams_are_shed<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(2 << 20).idle(None)));
    let mut streams = Vec::new();
    for _ in 0..40 {
        let (client, id) = l.pair();
        let waker = std::task::Waker::noop().clone();
        streams.push((client, l.engine.stream(&mut l.watcher, id, waker).expect("a stream")));
    }
    for (client, _) in &streams {
        let write = Op::write(*client, vec![7; 200 << 10]).token(1);
        l.watcher.submit(write).unwrap();
    }
    l.until("some are stopped", |l| l.engine.counters().throttles > 0);
    l.run_for(T::span(50.0));
    assert!(l.engine.budget().used() <= 2 << 20, "{}", l.engine.budget().used());
    // A stream without unread input still writes.
    let (client, id) = l.pair();
    let waker = std::task::Waker::noop().clone();
    let stream = l.engine.stream(&mut l.watcher, id, waker).expect("a stream");
    let mut out = &stream;
    std::io::Write::write_all(&mut out, b"hello").unwrap();
    l.watcher.submit(Op::read_exact(client, Vec::with_capacity(5), 5).token(1)).unwrap();
    l.until("it has arrived", |l| {
        l.foreign.iter().any(|c| c.code() == windlass::driver::OpCode::ReadExact)
    });
    drop((streams, stream));
    l.until("all is free", |l| l.engine.budget().used() == 0);
}

/// No read was in flight that could have had the idle time, and no output waited.
fn a_connection_that_is_stopped_has_a_limit_of_time<T: Harness>() {
    let limits = Limits::new().memory(1 << 20).idle(T::span(40.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits));
    let (client, id) = l.pair();
    let other = l.pair().1;
    assert!(l.engine.charge(other, 10) && l.engine.charge(id, 500 << 10));
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().throttles, 1);
    l.watcher.submit(Op::write(client, "more").token(1)).unwrap();
    let start = l.now();
    l.until("both have ended", |l| l.ends.len() == 2);
    assert!(l.ends.iter().all(|(cause, ..)| *cause == Cause::Idle), "{:?}", l.ends);
    assert!(l.now() - start >= T::span(39.0));
}

/// An earlier wait for output had left its time behind.
fn a_half_close_begins_its_time_anew<T: Harness>() {
    let limits = Limits::new().idle(T::span(400.0));
    let mut l = Loop::new::<T>(Config::new().limits(limits).close_on_eof(false));
    let (client, id) = l.pair();
    // The active part stays, because of the charge.
    assert!(l.engine.charge(id, 100));
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    l.watcher.submit(Op::read(client).multishot().token(1)).unwrap();
    l.until("it is sent", |l| l.engine.waiting(id) == 0);
    for _ in 0..8 {
        l.run_for(T::span(100.0));
        l.watcher.submit(Op::write(client, "x").token(1)).unwrap();
    }
    let start = l.now();
    l.watcher.submit(Op::shutdown(client).token(1)).unwrap();
    l.until("it ends", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::Idle);
    assert!(l.now() - start >= T::span(390.0), "{:?}", l.now() - start);
}

/// A charge made an active part for a connection whose descriptor is the program's already.
fn a_charge_behind_the_end_counts_for_nothing<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new());
    let (_, id) = l.pair();
    assert!(l.engine.charge(id, 1000) && l.engine.detach(id).is_ok());
    while l.engine.source(id).is_some() {
        let mut done = windlass::Completions::new();
        l.watcher.wait_timeout(&mut done, T::span(1.0)).unwrap();
        for c in done.drain(..) {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        // The last event waits to be taken out.
        if l.engine.source(id).is_some() {
            while l.engine.next_event(&mut l.watcher).is_some() {}
        }
        l.engine.flush(&mut l.watcher);
    }
    assert!(!l.engine.charge(id, 1000));
    assert_eq!(l.engine.budget().used(), 0);
    while l.engine.next_event(&mut l.watcher).is_some() {}
    assert!(l.engine.is_empty());
}

/// The bytes of a write counted twice for its connection.
fn the_reserve_is_there_for_writes_of_other_threads<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(64 << 10).idle(None)));
    let remote = l.engine.remote(&mut l.watcher);
    let ids: Vec<_> = (0..13).map(|_| l.pair().1).collect();
    for &id in &ids[..12] {
        assert!(l.engine.charge(id, 4090));
    }
    assert!(l.engine.charge(ids[0], 4096));
    // The share is 4096 bytes, and the rest without the reserve is used up.
    remote.write(ids[12], vec![0; 3000]).expect("the reserve is for it");
    l.engine.flush(&mut l.watcher);
}

fn a_write_beyond_the_whole_budget_is_refused<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(1 << 20).idle(None)));
    let id = l.pair().1;
    let refused = l.engine.write(id, vec![0; 60 << 20]).unwrap_err();
    assert_eq!((refused.reason, refused.value.len()), (Refusal::Memory, 60 << 20));
    assert_eq!(l.engine.write_slice(id, &vec![0; 2 << 20]), Err(Refusal::Memory));
    l.engine.write(id, "small").unwrap();
    l.engine.flush(&mut l.watcher);
    assert!(l.ends.is_empty());
}

/// While a flush sent the output of a turn, it counted as output of the turn and as what waits.
fn output_is_counted_once_while_it_is_sent<T: Harness>() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static MOST: AtomicUsize = AtomicUsize::new(0);
    struct Looks;
    impl Handler for Looks {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.write(vec![0; 1 << 20]);
            Action::None
        }
        fn postwrite(&mut self, c: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
            let used = c.engine().budget().used();
            MOST.fetch_max(used, Ordering::Relaxed);
            Action::None
        }
    }
    let limits = Limits::new().memory(32 << 20).idle(None);
    let server = Server::new(|_| Looks).limits(limits).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for _ in 0..10 {
        bench.connect_deaf();
    }
    bench.until("all are open", |bench| bench.running.report().counters.writes == 10);
    let most = MOST.load(Ordering::Relaxed);
    assert!(most <= 11 << 20, "{most}");
}

fn a_dropped_engine_gives_its_turn_back<T: Harness>() {
    let mut l = Loop::new::<T>(Config::new().limits(Limits::new().memory(64 << 20).idle(None)));
    let id = l.pair().1;
    let budget = l.engine.budget().clone();
    for _ in 0..8 {
        l.engine.write(id, vec![0; 1 << 20]).unwrap();
    }
    assert!(budget.used() > 0);
    drop(l);
    assert_eq!((budget.used(), budget.share()), (0, 48 << 20));
}

/// The active part of a connection went while the connection was stopped, and with it the look at
/// what it holds: it was stopped for ever.
fn a_connection_that_was_stopped_reads_when_all_is_dropped<T: Harness>() {
    let builder = Watcher::builder().buffer_size(4 << 10).swap_limit(32 << 10);
    let mut bench = bench_with::<T, _, _>(builder, orders(Limits::new().memory(64 << 10)));
    let (client, _other) = (bench.connect(), bench.connect());
    bench.until("both are open", |bench| bench.running.report().counters.accepted == 2);
    let ids: Vec<_> = bench.running.engine().ids().collect();
    for round in 1..=5 {
        let mut said = 0;
        while bench.running.report().counters.throttles < round {
            // Another holder, so that the share is not all that there is.
            for &id in &ids {
                bench.running.engine().charge(id, 1);
            }
            bench.say(client, vec![b'k'; 500]);
            bench.run_for(T::span(0.1));
            said += 1;
            assert!(said < 10_000, "it does not stop");
        }
        bench.running.handler().kept.clear();
        for &id in &ids {
            bench.running.engine().charge(id, 0);
            bench.running.engine().write(id, "ok").expect("it lives");
        }
        bench.running.turn(&mut bench.watcher);
        let before = bench.running.handler().answers;
        bench.say(client, "hello");
        bench.until("it reads again", |bench| {
            bench.running.handler().kept.clear();
            bench.running.handler().answers > before
        });
    }
}

/// A wake that found the queue full was lost, and all wakes after it.
fn a_full_queue_of_requests_loses_no_wake<T: Harness>() {
    let mut l = Loop::on(T::watcher(Watcher::builder().remote_queue(1)), Config::new());
    let (client, id) = l.pair();
    let remote = l.engine.remote(&mut l.watcher);
    let submitter = l.watcher.submitter();
    l.run_for(T::span(1.0));
    // The request fills the queue, and does not complete.
    let read = Op::read(client).token(1);
    submitter.submit(read).map_err(|refused| refused.reason).unwrap();
    assert!(submitter.wake(9).is_err(), "the queue is full");
    for _ in 0..2 {
        let before = l.told.iter().filter(|told| **told == "other").count();
        assert!(remote.wake(id));
        l.until("it is woken", |l| l.told.iter().filter(|told| **told == "other").count() > before);
    }
}
