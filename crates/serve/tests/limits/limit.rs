//! The clocks that a program sets while a connection is open, on every driver.
//!
//! Of the promises on the page of the crate: P4.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::engine::{Loop, no_times, run_for, until};
use crate::common::refusing::{Orders, Refusing};
use crate::common::turns::Turns;
use crate::common::{Harness, bench};
use windlass::driver::{Driver, OpCode};
use windlass::net::DatagramOptions;
use windlass::{Buf, Completions, Op, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Event, Handler, Id, Limits, Origin, Phase, Server,
};

crate::every_driver! {
    a_limit_without_a_rate_ends_whatever_moves
    bytes_give_time_back_at_the_rate
    a_burst_saves_up_no_time
    a_pause_stops_the_time
    a_limit_is_replaced_and_goes
    a_shorter_limit_is_met_beside_a_long_one
    the_end_of_the_peers_output_stops_the_time
    a_closing_connection_has_no_limit
    connections_have_idle_times_of_their_own
    a_resumed_connection_keeps_its_idle_time
    a_half_closed_connection_has_its_own_idle_time
    a_limit_is_told_and_the_connection_goes_on
    the_callback_of_a_limit_answers_or_ends
    many_limits_end_each_connection_once
    ids_that_take_no_limit
    a_refused_timer_is_tried_again
    the_256th_idle_time_is_counted
    a_driver_that_tells_no_idle_time_keeps_it
    short_pauses_stop_the_time
    a_pause_for_each_piece_leaves_no_time_out
    much_output_stops_the_time
    a_limit_that_is_gone_is_not_reached
    the_end_of_an_engine_leaves_no_timer
    a_time_limit_runs_whether_the_connection_is_read
    a_time_limit_is_told_whether_the_connection_is_read
    each_kind_of_limit_replaces_the_other
    no_byte_gives_time_of_a_time_limit_back
}

fn config() -> Config {
    Config::new().limits(no_times())
}

fn new<T: Harness>() -> Loop<T::Driver> {
    Loop::new::<T>(config())
}

fn span<T: Harness>() -> Duration {
    T::span(16.0)
}

/// Never early; in virtual time late by at most a sixteenth, or by 100 ms.
fn at_its_time<T: Harness>(start: Instant, end: Instant, span: Duration) {
    let took = end - start;
    assert!(took >= span, "{took:?} is before {span:?}");
    let late = (span / 16).max(Duration::from_millis(100)) + Duration::from_micros(100);
    assert!(!T::VIRTUAL || took <= span + late, "{took:?} is long after {span:?}");
}

/// Runs until `ready`. The client says `bytes` bytes after each `step` until then.
#[track_caller]
fn drip<D: Driver>(
    l: &mut Loop<D>,
    client: Source,
    (bytes, step): (usize, Duration),
    mut ready: impl FnMut(&mut Loop<D>) -> bool,
) {
    while !ready(l) {
        let _ = l.watcher.submit(Op::write(client, vec![b'x'; bytes]));
        run_for(l, step);
    }
}

fn a_limit_without_a_rate_ends_whatever_moves<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    let start = l.now();
    assert!(!l.engine.is_limited(id) && l.engine.limit(id, span::<T>(), 0));
    assert!(l.engine.is_limited(id));
    drip(&mut l, client, (1, span::<T>() / 100), |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), span::<T>());
    assert_eq!(l.ends, [(Cause::TooSlow, 0, Phase::Open)]);
    assert!(l.told.iter().filter(|told| **told == "data").count() > 10, "{:?}", l.told);
    assert_eq!(l.engine.counters().ends.too_slow, 1);
    assert!(!l.engine.limit(id, span::<T>(), 0) && !l.engine.is_limited(id), "the id is stale");
}

fn bytes_give_time_back_at_the_rate<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    // The peer may fall behind by the whole span, and sends twice the rate.
    let step = span::<T>() / 8;
    let rate = (1000.0 / step.as_secs_f64()) as u32;
    l.engine.limit(id, span::<T>(), rate);
    let end = l.now() + 4 * span::<T>();
    drip(&mut l, client, (2000, step), |l| l.now() >= end);
    // A busy machine can hold up the bytes of a peer, but not in virtual time.
    if !T::VIRTUAL && !l.ends.is_empty() {
        return assert_eq!(l.ends, [(Cause::TooSlow, 0, Phase::Open)]);
    }
    assert!(l.ends.is_empty(), "it keeps the rate");
    // Now half the rate: of the time that passes, half is left out.
    let start = l.now();
    drip(&mut l, client, (500, step), |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::TooSlow, 0, Phase::Open)]);
    if T::VIRTUAL {
        let took = l.now() - start;
        assert!(took >= span::<T>() * 15 / 8 && took < span::<T>() * 19 / 8, "{took:?}");
    }
}

fn a_burst_saves_up_no_time<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.engine.limit(id, span::<T>(), 1);
    l.watcher.submit(Op::write(client, vec![0; 100_000])).unwrap();
    run_for(&mut l, span::<T>() / 2);
    let start = l.now();
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    // It had the whole span again, and no more, when the last look saw its bytes.
    assert_eq!(l.ends, [(Cause::TooSlow, 0, Phase::Open)]);
    assert!(!T::VIRTUAL || l.now() - start <= span::<T>() * 9 / 8);
}

fn a_pause_stops_the_time<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let start = l.now();
    l.engine.limit(id, span::<T>(), 0);
    run_for(&mut l, span::<T>() / 2);
    l.engine.pause(id);
    run_for(&mut l, 3 * span::<T>());
    assert!(l.ends.is_empty());
    l.engine.resume(id);
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    let took = l.now() - start;
    assert!(took >= 4 * span::<T>(), "{took:?}");
    assert!(!T::VIRTUAL || took <= 4 * span::<T>() + span::<T>() / 8, "{took:?}");
}

fn a_limit_is_replaced_and_goes<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    for _ in 0..8 {
        l.engine.limit(id, span::<T>() * 8, 0);
        run_for(&mut l, span::<T>() * 2);
    }
    assert!(l.ends.is_empty() && l.engine.is_limited(id));
    assert!(l.engine.limit(id, None, 0) && !l.engine.is_limited(id));
    run_for(&mut l, span::<T>() * 16);
    assert!(l.ends.is_empty(), "the limit is gone");
}

fn a_shorter_limit_is_met_beside_a_long_one<T: Harness>() {
    let mut l = new::<T>();
    let ((_a, patient), (_b, hasty)) = (l.pair(), l.pair());
    l.engine.limit(patient, 10_000 * span::<T>(), 0);
    run_for(&mut l, span::<T>());
    let start = l.now();
    l.engine.limit(hasty, span::<T>(), 0);
    until(&mut l, "one has ended", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), span::<T>());
    assert_eq!(l.engine.ids().collect::<Vec<_>>(), [patient]);
}

fn the_end_of_the_peers_output_stops_the_time<T: Harness>() {
    let mut l = Loop::new::<T>(config().close_on_eof(false));
    let (client, id) = l.pair();
    l.engine.limit(id, span::<T>(), 0);
    l.watcher.submit(Op::shutdown(client)).unwrap();
    run_for(&mut l, 3 * span::<T>());
    assert!(l.ends.is_empty(), "the answer is the program's concern: {:?}", l.ends);
}

fn a_closing_connection_has_no_limit<T: Harness>() {
    let limits = config().limits.close(100 * span::<T>());
    let mut l = Loop::new::<T>(config().limits(limits));
    let (_deaf, id) = l.pair();
    l.engine.limit(id, span::<T>() / 4, 0);
    l.engine.write(id, vec![0; 32 << 20]).unwrap();
    l.engine.close(id);
    run_for(&mut l, span::<T>());
    assert!(l.ends.is_empty(), "the clock of closing runs: {:?}", l.ends);
    assert!(!l.engine.limit(id, span::<T>(), 0) && !l.engine.set_idle_timeout(id, None));
    l.engine.abort(id);
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::Closed);
}

fn connections_have_idle_times_of_their_own<T: Harness>() {
    let mut l = new::<T>();
    let pairs: Vec<(Source, Id)> = (0..4).map(|_| l.pair()).collect();
    let start = l.now();
    for (at, &(_, id)) in (1..).zip(&pairs) {
        assert!(l.engine.set_idle_timeout(id, at * span::<T>()));
    }
    l.engine.set_idle_timeout(pairs[3].1, None);
    for at in 1..=3 {
        until(&mut l, "the next one ends", |l| l.ends.len() >= at);
        at_its_time::<T>(start, l.now(), at as u32 * span::<T>());
    }
    run_for(&mut l, 4 * span::<T>());
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open); 3]);
    assert_eq!(l.engine.ids().collect::<Vec<_>>(), [pairs[3].1], "it may be idle for ever");
}

fn a_resumed_connection_keeps_its_idle_time<T: Harness>() {
    let limits = config().limits.idle(span::<T>());
    let mut l = Loop::new::<T>(config().limits(limits));
    let (_client, id) = l.pair();
    l.engine.set_idle_timeout(id, 4 * span::<T>());
    l.engine.flush(&mut l.watcher);
    l.engine.pause(id);
    run_for(&mut l, 5 * span::<T>());
    assert!(l.engine.resume(id) && l.ends.is_empty());
    let start = l.now();
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), 4 * span::<T>());
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open)]);
}

fn a_half_closed_connection_has_its_own_idle_time<T: Harness>() {
    let limits = config().limits.idle(100 * span::<T>());
    let mut l = Loop::new::<T>(config().limits(limits).close_on_eof(false));
    let (client, id) = l.pair();
    l.engine.set_idle_timeout(id, 2 * span::<T>());
    l.watcher.submit(Op::shutdown(client)).unwrap();
    until(&mut l, "its peer has ended its side", |l| l.told.contains(&"eof"));
    let start = l.now();
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open)]);
    let took = l.now() - start;
    assert!(!T::VIRTUAL || took <= 3 * span::<T>(), "{took:?}");
}

fn a_limit_is_told_and_the_connection_goes_on<T: Harness>() {
    let mut l = Loop::new::<T>(config().limit_events(true));
    let (client, id) = l.pair();
    let reached = |l: &Loop<T::Driver>| l.told.iter().filter(|t| **t == "limit reached").count();
    l.engine.limit(id, span::<T>(), 0);
    until(&mut l, "it has reached its limit", |l| reached(l) == 1);
    assert!(!l.engine.is_limited(id) && l.ends.is_empty(), "the limit is gone");
    run_for(&mut l, 3 * span::<T>());
    assert_eq!(reached(&l), 1);
    // An idle time begins again.
    l.engine.set_idle_timeout(id, span::<T>());
    until(&mut l, "it was idle for three times", |l| reached(l) == 4);
    l.told.clear();
    l.watcher.submit(Op::write(client, "still there")).unwrap();
    until(&mut l, "its data comes", |l| l.told.contains(&"data"));
    // And when its peer has ended its side, too.
    assert!(l.ends.is_empty());
    l.engine.abort(id);
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::Aborted, 0, Phase::Open)]);
}

fn the_callback_of_a_limit_answers_or_ends<T: Harness>() {
    const SPAN: Duration = Duration::from_secs(2);
    #[derive(Default)]
    struct Heads(Vec<Cause>);
    impl Handler for Heads {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.limit(SPAN, 0);
            assert!(c.is_limited());
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
            // The last piece of "idle".
            if data.ends_with(b"e") {
                c.limit(None, 0);
                c.set_idle_timeout(SPAN);
            } else {
                assert!(c.is_limited());
            }
            Action::None
        }
        fn limit_reached(&mut self, c: &mut Conn<'_, ()>, cause: Cause) -> Action {
            self.0.push(cause);
            c.write("408");
            Action::Close
        }
    }
    #[derive(Default)]
    struct Ends(Vec<(Cause, Duration)>);
    impl Handler for Ends {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.limit(SPAN, 0);
            Action::None
        }
        fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
            self.0.push((closed.cause, closed.age));
            Action::None
        }
    }
    let server = Server::new(|_| Heads::default()).config(config());
    let mut one = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let (slow, idle) = (one.connect(), one.connect());
    one.say(slow, "GET");
    one.say(idle, "idle");
    one.until("both got an answer", |bench| {
        bench.client(slow).is_over() && bench.client(idle).is_over()
    });
    for client in [slow, idle] {
        assert_eq!(one.client(client).heard, b"408");
    }
    let mut causes = one.running.handler().0.clone();
    causes.sort_by_key(|cause| format!("{cause:?}"));
    assert_eq!(causes, [Cause::Idle, Cause::TooSlow]);

    let server = Server::new(|_| Ends::default()).config(config());
    let mut other = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    other.connect();
    other.until("it has ended", |bench| !bench.running.handler().0.is_empty());
    let (cause, age) = other.running.handler().0[0];
    let step = Duration::from_millis(100);
    assert!(cause == Cause::TooSlow && age + step > SPAN, "{cause} after {age:?}");
}

/// More than a turn looks at. Some go before their time.
fn many_limits_end_each_connection_once<T: Harness>() {
    let count: usize = if T::VIRTUAL { 3000 } else { 60 };
    let mut l = new::<T>();
    let pairs: Vec<(Source, Id)> = (0..count).map(|_| l.pair()).collect();
    let start = l.now();
    for (at, &(_, id)) in pairs.iter().enumerate() {
        l.engine.limit(id, span::<T>() + span::<T>() / 64 * (at as u32 * 7 % 64), 0);
    }
    l.engine.flush(&mut l.watcher);
    for &(_, id) in pairs.iter().step_by(3) {
        l.engine.abort(id);
    }
    for &(_, id) in pairs.iter().skip(1).step_by(3) {
        l.engine.limit(id, None, 0);
    }
    l.engine.flush(&mut l.watcher);
    let (aborted, freed) = (count.div_ceil(3), (count - 1).div_ceil(3));
    until(&mut l, "those with a limit have ended", |l| l.ends.len() >= count - freed);
    assert!(l.now() - start >= span::<T>());
    run_for(&mut l, 2 * span::<T>());
    let slow = l.engine.counters().ends.too_slow as usize;
    assert_eq!((slow, l.ends.len()), (count - aborted - freed, count - freed));
    assert!(!T::VIRTUAL || l.now() - start <= span::<T>() * 5, "{:?}", l.now() - start);
}

fn ids_that_take_no_limit<T: Harness>() {
    let mut l = new::<T>();
    let local = ([127, 0, 0, 1], 0);
    let connecting = l.engine.connect([l.address.clone()], Default::default(), ()).unwrap();
    assert!(!l.engine.limit(connecting, span::<T>(), 0), "it has not opened");
    assert!(!l.engine.set_idle_timeout(connecting, span::<T>()));
    let peer = l.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    let at = l.watcher.local_address(peer).unwrap();
    let session = l.engine.connect_datagram(at, ()).unwrap();
    until(&mut l, "both are open", |l| l.opened.len() == 3);
    assert!(!l.engine.limit(session, span::<T>(), 0) && !l.engine.is_limited(session));
    assert!(!l.engine.set_idle_timeout(session, span::<T>()));
    assert!(l.engine.limit(connecting, span::<T>(), 0), "it is open now");
}

fn a_refused_timer_is_tried_again<T: Harness>() {
    let orders = Orders::default();
    let driver = Refusing::new(T::watcher(Watcher::builder()).into_driver(), orders.clone());
    let mut l = Loop::on(Watcher::with_driver(driver), config());
    let (_client, id) = l.pair();
    let start = l.now();
    orders.refuse(OpCode::Timer, 1);
    l.engine.limit(id, span::<T>(), 0);
    l.engine.flush(&mut l.watcher);
    assert_eq!(orders.refused(), 1, "the timer was refused");
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), span::<T>());
}

fn the_256th_idle_time_is_counted<T: Harness>() {
    let mut l = Loop::new::<T>(config().limits(Limits::new().idle(span::<T>())));
    let pairs: Vec<(Source, Id)> = (0..3).map(|_| l.pair()).collect();
    let local = ([127, 0, 0, 1], 0);
    for at in 0..253 {
        let source = l.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
        l.watcher.set_idle_timeout(source, Some(Duration::from_secs(1000 + at))).unwrap();
    }
    l.engine.set_idle_timeout(pairs[0].1, 3 * span::<T>());
    l.engine.set_idle_timeout(pairs[1].1, 5 * span::<T>());
    l.engine.flush(&mut l.watcher);
    assert_eq!(l.engine.counters().option_errors, 1);
    until(&mut l, "two end after their old time, and one later", |l| l.ends.len() == 3);
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open); 3]);
}

/// A pause between two looks of the engine counted as time of the peer.
fn short_pauses_stop_the_time<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let start = l.now();
    l.engine.limit(id, span::<T>(), 0);
    l.engine.flush(&mut l.watcher);
    // A look comes each `step`. The reads are open around it.
    let step = (span::<T>() / 16).max(Duration::from_millis(100)) / 32 * 15;
    let around = step / 47;
    let mut paused = Duration::ZERO;
    let most = span::<T>() * if T::VIRTUAL { 100 } else { 10 };
    while l.ends.is_empty() && l.now() - start < most {
        run_for(&mut l, around);
        l.engine.pause(id);
        l.engine.flush(&mut l.watcher);
        let pause = l.now();
        l.run_for(step - 2 * around);
        paused += l.now() - pause;
        l.engine.resume(id);
        run_for(&mut l, around);
    }
    let open = l.now() - start - paused;
    assert!(l.ends.is_empty() || open >= span::<T>(), "it was read for {open:?}");
}

/// A program pauses for each piece, and a peer sends one piece after the other, slowly.
fn a_pause_for_each_piece_leaves_no_time_out<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    let start = l.now();
    l.engine.limit(id, span::<T>(), 0);
    let piece = span::<T>() / 100;
    let mut paused = Duration::ZERO;
    while l.ends.is_empty() {
        assert!(l.now() - start < 50 * span::<T>() + common::PATIENCE, "it goes on for ever");
        let _ = l.watcher.submit(Op::write(client, "x"));
        run_for(&mut l, piece);
        l.engine.pause(id);
        let pause = l.now();
        run_for(&mut l, piece / 100);
        l.engine.resume(id);
        l.engine.flush(&mut l.watcher);
        paused += l.now() - pause;
    }
    assert_eq!(l.ends[0].0, Cause::TooSlow);
    let took = l.now() - start;
    assert!(took >= span::<T>());
    // In virtual time no wait is longer than it was to be.
    let late = span::<T>() / 16 + paused + piece;
    assert!(!T::VIRTUAL || took <= span::<T>() + late, "{took:?}");
}

/// And so did a stop because of much output.
fn much_output_stops_the_time<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.engine.limit(id, span::<T>(), 0);
    run_for(&mut l, span::<T>() / 2);
    let _ = l.engine.write(id, vec![0; 4 << 20]);
    run_for(&mut l, 3 * span::<T>());
    if !l.engine.is_full(id) {
        // A busy machine was too late with the write.
        return assert!(!T::VIRTUAL && l.ends[0].0 == Cause::TooSlow);
    }
    assert!(l.ends.is_empty(), "{:?}", l.ends);
    l.watcher.submit(Op::read(client).multishot().token(9)).unwrap();
    let start = l.now();
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::TooSlow);
    assert!(!T::VIRTUAL || l.now() - start >= span::<T>() * 3 / 8, "{:?}", l.now() - start);
}

/// A callback of the same turn has set another limit, has taken it away, or has paused.
fn a_limit_that_is_gone_is_not_reached<T: Harness>() {
    type Act<D> = fn(&mut Loop<D>, Id) -> bool;
    let acts: [Act<T::Driver>; 3] = [
        |l, id| l.engine.limit(id, 100 * span::<T>(), 0) && l.engine.is_limited(id),
        |l, id| l.engine.limit(id, None, 0) && !l.engine.is_limited(id),
        |l, id| l.engine.pause(id) && l.engine.is_limited(id),
    ];
    for (at, act) in acts.into_iter().enumerate() {
        let mut l = Loop::new::<T>(config().limit_events(true));
        let ids = [l.pair().1, l.pair().1];
        for id in ids {
            l.engine.limit(id, span::<T>(), 0);
        }
        let mut told: Vec<Id> = Vec::new();
        let end = l.now() + 5 * span::<T>();
        while l.now() < end {
            l.engine.flush(&mut l.watcher);
            let mut done = Completions::new();
            l.watcher.wait_timeout(&mut done, span::<T>() / 100).unwrap();
            for c in done.drain(..) {
                let _ = l.engine.complete(&mut l.watcher, c);
            }
            while let Some(event) = l.engine.next_event(&mut l.watcher) {
                let Event::LimitReached { id, cause } = event else { continue };
                assert_eq!(cause, Cause::TooSlow);
                assert!(!l.engine.is_limited(id), "its limit is gone");
                told.push(id);
                let other = ids.into_iter().find(|other| *other != id).unwrap();
                assert!(told.len() > 1 || act(&mut l, other), "act {at}");
            }
        }
        assert_eq!(told.len(), 1, "act {at}: {told:?}");
        let other = ids.into_iter().find(|other| *other != told[0]).unwrap();
        assert_eq!(l.engine.is_limited(other), at != 1);
        if at == 2 {
            // What it has used up stays used up.
            l.engine.resume(other);
            until(&mut l, "it is told", |l| l.told.contains(&"limit reached"));
            assert!(!l.engine.is_limited(other));
        }
    }
}

fn the_end_of_an_engine_leaves_no_timer<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.engine.limit(id, 100_000 * span::<T>(), 0);
    run_for(&mut l, span::<T>());
    l.engine.end(&mut l.watcher);
    while l.engine.next_event(&mut l.watcher).is_some() {}
    l.watcher.abort(client);
    let start = l.now();
    while l.watcher.counters().in_flight > 0 {
        assert!(l.now() - start < common::PATIENCE, "{:?}", l.watcher.counters().in_flight);
        l.watcher.wait_timeout(&mut Completions::new(), span::<T>()).unwrap();
    }
}

/// The driver around the other one does not say what it was told. A resume took the time away.
fn a_driver_that_tells_no_idle_time_keeps_it<T: Harness>() {
    let driver = T::watcher(Watcher::builder()).into_driver();
    let driver = Refusing::new(driver, Orders::default());
    let limits = config().limits.idle(span::<T>());
    let mut l = Loop::on(Watcher::with_driver(driver), config().limits(limits));
    let (_client, id) = l.pair();
    l.engine.pause(id);
    run_for(&mut l, span::<T>() / 4);
    l.engine.resume(id);
    until(&mut l, "it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::Idle, 0, Phase::Open)]);
}

/// Ways in which a connection is not read, and one in which it is. Each says whether it is so.
type Way<D> = fn(&mut Loop<D>, Source, Id);

fn ways<D: Driver>() -> [(&'static str, Way<D>); 5] {
    [
        ("read", |_, _, _| {}),
        ("paused", |l, _, id| assert!(l.engine.pause(id))),
        ("paused, with data that is held", |l, client, id| {
            l.engine.pause(id);
            l.watcher.submit(Op::write(client, "held").token(3)).unwrap();
            until(l, "it is sent", |l| l.foreign.iter().any(|c| c.token == 3));
        }),
        ("half-closed", |l, client, _| {
            l.watcher.submit(Op::shutdown(client)).unwrap();
            until(l, "its peer has ended", |l| l.told.contains(&"eof"));
        }),
        ("full", |l, _, id| {
            l.engine.write(id, vec![0; 4 << 20]).unwrap();
            until(l, "it is full", |l| l.engine.is_full(id));
        }),
    ]
}

fn a_time_limit_runs_whether_the_connection_is_read<T: Harness>() {
    for (what, way) in ways() {
        let mut l = Loop::new::<T>(config().close_on_eof(false));
        let (client, id) = l.pair();
        way(&mut l, client, id);
        let start = l.now();
        assert!(l.engine.time_limit(id, span::<T>()) && l.engine.is_limited(id), "{what}");
        until(&mut l, what, |l| !l.ends.is_empty());
        at_its_time::<T>(start, l.now(), span::<T>());
        let (cause, unsent, phase) = l.ends[0];
        assert_eq!((cause, phase), (Cause::TooSlow, Phase::Open), "{what}");
        assert_eq!(unsent > 0, what == "full");
        assert!(!l.told.contains(&"data"), "{what}");
        assert!(!l.engine.time_limit(id, span::<T>()) && !l.engine.is_limited(id));
    }
}

fn a_time_limit_is_told_whether_the_connection_is_read<T: Harness>() {
    for (what, way) in ways() {
        let mut l = Loop::new::<T>(config().close_on_eof(false).limit_events(true));
        let (client, id) = l.pair();
        way(&mut l, client, id);
        for times in 1..3 {
            let start = l.now();
            l.engine.time_limit(id, span::<T>());
            let reached = |l: &Loop<_>| l.told.iter().filter(|t| **t == "limit reached").count();
            until(&mut l, what, |l| reached(l) == times);
            at_its_time::<T>(start, l.now(), span::<T>());
            assert!(!l.engine.is_limited(id), "{what}: the limit is gone");
            run_for(&mut l, 2 * span::<T>());
            assert_eq!((reached(&l), l.ends.len()), (times, 0), "{what}");
        }
    }
}

fn each_kind_of_limit_replaces_the_other<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    l.engine.pause(id);
    l.engine.time_limit(id, span::<T>());
    run_for(&mut l, span::<T>() / 2);
    assert!(l.engine.limit(id, span::<T>() / 4, 0));
    run_for(&mut l, 3 * span::<T>());
    assert!(l.ends.is_empty(), "the time of the peer does not count");
    // Either call takes either kind away.
    l.engine.time_limit(id, span::<T>());
    assert!(l.engine.limit(id, None, 0) && !l.engine.is_limited(id));
    l.engine.flush(&mut l.watcher);
    l.engine.time_limit(id, span::<T>());
    assert!(l.engine.time_limit(id, None) && !l.engine.is_limited(id));
    run_for(&mut l, 3 * span::<T>());
    assert!(l.ends.is_empty());
    l.engine.limit(id, 100 * span::<T>(), 0);
    run_for(&mut l, span::<T>());
    let start = l.now();
    l.engine.time_limit(id, span::<T>());
    // It does not begin anew with a stop of the reads.
    while l.ends.is_empty() {
        run_for(&mut l, span::<T>() / 40);
        l.engine.resume(id);
        run_for(&mut l, span::<T>() / 40);
        l.engine.pause(id);
    }
    let took = l.now() - start;
    assert!(took >= span::<T>(), "{took:?}");
    assert!(!T::VIRTUAL || took <= span::<T>() * 9 / 8, "{took:?}");
}

fn no_byte_gives_time_of_a_time_limit_back<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    let start = l.now();
    l.engine.limit(id, span::<T>(), 1);
    l.engine.time_limit(id, span::<T>());
    drip(&mut l, client, (1000, span::<T>() / 100), |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), span::<T>());
    assert!(l.told.contains(&"data"));
}
