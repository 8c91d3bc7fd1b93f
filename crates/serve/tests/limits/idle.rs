//! The idle time of connections, above all of those that are not read, on every driver.
//!
//! Of the promises on the page of the crate: P4.

use std::time::{Duration, Instant};

use crate::common::Harness;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::driver::{Driver, OpCode};
use windlass::net::DatagramOptions;
use windlass::{Completion, Completions, Op, Source};
use windlass_serve::{Cause, Config, Event, Id, Limits};

crate::every_kernel! {
    the_idle_time_of_a_half_closed_connection_begins_anew
    a_shorter_idle_time_of_a_half_closed_connection_is_met
    output_of_a_throttled_connection_is_no_idleness
    the_idle_time_of_a_throttled_connection_begins_with_its_resume
    a_silent_throttled_connection_is_idle_in_time
    a_connection_with_much_output_becomes_idle
    output_that_does_not_move_is_no_progress
    a_closing_connection_is_never_idle
    what_the_program_does_in_the_turn_of_the_idle_time_begins_it_anew
    a_session_that_is_resumed_in_the_turn_of_its_expiry_is_not_idle
    an_idle_time_that_begins_anew_is_not_told
}

fn limits() -> Limits {
    Limits::new().idle(None).write_stall(None).connect(None)
}

fn new<T: Harness>(limits: Limits) -> Loop<T::Driver> {
    Loop::new::<T>(Config::new().limits(limits).close_on_eof(false))
}

fn idle<T: Harness>() -> Duration {
    T::span(10.0)
}

/// Carries out what the test has asked for, and runs for a time.
fn run<D: Driver>(l: &mut Loop<D>, span: Duration) {
    l.engine.flush(&mut l.watcher);
    l.run_for(span);
}

/// Never early; in virtual time late by at most a sixteenth, or by 100 ms.
#[track_caller]
fn ends_at_its_time<T: Harness>(l: &mut Loop<T::Driver>, start: Instant, span: Duration) {
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| !l.ends.is_empty());
    let took = l.now() - start;
    assert_eq!(l.ends.iter().map(|end| end.0).collect::<Vec<_>>(), [Cause::Idle]);
    assert!(took >= span, "{took:?} is before {span:?}");
    let late = (span / 16).max(Duration::from_millis(100)) + T::span(0.1);
    assert!(!T::VIRTUAL || took <= span + late, "{took:?} is long after {span:?}");
}

/// The client says something, a few times. A read that has to stop does so at the first piece.
fn say<T: Harness>(l: &mut Loop<T::Driver>, client: Source) {
    for _ in 0..3 {
        l.watcher.submit(Op::write(client, "piece")).unwrap();
        run(l, T::span(0.1));
    }
}

/// The peer of a connection ends its side.
fn finish<D: Driver>(l: &mut Loop<D>, client: Source) {
    l.watcher.submit(Op::shutdown(client)).unwrap();
    l.until("its side has ended", |l| l.told.contains(&"eof"));
}

/// A connection above its share; its peer reads.
fn throttled<T: Harness>() -> (Loop<T::Driver>, Id, Source) {
    let mut l = new::<T>(limits().idle(idle::<T>()).memory(1 << 20));
    let (client, id) = l.pair();
    let (_other, other) = l.pair();
    l.engine.set_idle_timeout(other, None);
    assert!(l.engine.charge(other, 1) && l.engine.charge(id, 500 << 10));
    l.watcher.submit(Op::read(client).multishot().token(9)).unwrap();
    assert_eq!(l.engine.counters().throttles, 1);
    (l, id, client)
}

fn the_idle_time_of_a_half_closed_connection_begins_anew<T: Harness>() {
    let mut l = new::<T>(limits().idle(idle::<T>()));
    let (client, id) = l.pair();
    finish(&mut l, client);
    run(&mut l, idle::<T>() / 2);
    let start = l.now();
    // A busy machine can be too late, but not in virtual time.
    let lives = l.engine.set_idle_timeout(id, idle::<T>() * 3 / 5);
    assert!(lives || !T::VIRTUAL);
    if lives {
        ends_at_its_time::<T>(&mut l, start, idle::<T>() * 3 / 5);
    }
}

/// The timer of the sweep was for the longer times.
fn a_shorter_idle_time_of_a_half_closed_connection_is_met<T: Harness>() {
    let mut l = new::<T>(limits().close(160 * idle::<T>()));
    let (client, id) = l.pair();
    finish(&mut l, client);
    run(&mut l, T::span(0.1));
    let start = l.now();
    assert!(l.engine.set_idle_timeout(id, idle::<T>()));
    ends_at_its_time::<T>(&mut l, start, idle::<T>());
}

fn output_of_a_throttled_connection_is_no_idleness<T: Harness>() {
    let (mut l, id, client) = throttled::<T>();
    say::<T>(&mut l, client);
    let (mut last, mut longest) = (l.now(), Duration::ZERO);
    for _ in 0..30 {
        let _ = l.engine.write(id, "x");
        run(&mut l, idle::<T>() / 10);
        longest = longest.max(l.now() - last);
        last = l.now();
    }
    // A busy machine can hold up the writes, but not in virtual time.
    let is_held_up = !T::VIRTUAL && longest > idle::<T>() / 2;
    assert!(is_held_up || l.ends.is_empty(), "{:?}", l.ends);
    // From now on no byte moves.
    if l.ends.is_empty() {
        l.until("it is idle", |l| !l.ends.is_empty());
        assert!(l.now() - last >= idle::<T>() * 4 / 5);
    }
}

fn the_idle_time_of_a_throttled_connection_begins_with_its_resume<T: Harness>() {
    let (mut l, id, client) = throttled::<T>();
    say::<T>(&mut l, client);
    l.engine.pause(id);
    run(&mut l, 3 * idle::<T>());
    assert!(l.ends.is_empty(), "a pause stops the time: {:?}", l.ends);
    let start = l.now();
    l.engine.resume(id);
    ends_at_its_time::<T>(&mut l, start, idle::<T>());
}

/// The idle time of the read passed, and then the sweep began another one.
fn a_silent_throttled_connection_is_idle_in_time<T: Harness>() {
    let (mut l, _, _) = throttled::<T>();
    let start = l.now();
    l.engine.flush(&mut l.watcher);
    l.until("it is idle", |l| !l.ends.is_empty());
    // The read has begun before.
    let took = l.now() - start;
    assert!(!T::VIRTUAL || took <= idle::<T>() * 11 / 10, "{took:?}");
}

/// No byte moves, and it lived for ever: nothing but the read had the idle time.
fn a_connection_with_much_output_becomes_idle<T: Harness>() {
    let mut l = new::<T>(limits().idle(idle::<T>()));
    let (deaf, id) = l.pair();
    let _ = l.engine.write(id, vec![0; 4 << 20]);
    say::<T>(&mut l, deaf);
    l.until("it is idle", |l| !l.ends.is_empty());
    assert_eq!(l.ends.iter().map(|end| end.0).collect::<Vec<_>>(), [Cause::Idle]);
}

/// Each write to a half-closed connection began the time of its output anew.
fn output_that_does_not_move_is_no_progress<T: Harness>() {
    let mut l = new::<T>(limits().write_stall(idle::<T>()));
    let (deaf, id) = l.pair();
    finish(&mut l, deaf);
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    let start = l.now();
    while l.ends.is_empty() {
        assert!(l.now() - start < Duration::from_secs(60), "it lives on");
        let _ = l.engine.write(id, "x");
        run(&mut l, idle::<T>() / 10);
    }
    assert_eq!(l.ends[0].0, Cause::WriteStall);
}

/// `Limits::close` is the clock of a close. The idle time of its read ended it before that.
fn a_closing_connection_is_never_idle<T: Harness>() {
    let mut l = new::<T>(limits().idle(idle::<T>() / 4).close(idle::<T>()));
    let (_deaf, id) = l.pair();
    let mut written = 0;
    while l.engine.waiting(id) == 0 {
        l.engine.write(id, vec![0; 40 << 10]).unwrap();
        written += 40 << 10;
        l.engine.flush(&mut l.watcher);
        l.run_for(T::span(0.01));
        assert!(written < 64 << 20);
    }
    assert!(!l.engine.is_full(id), "the read goes on");
    l.engine.close(id);
    let start = l.now();
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::Closed);
    assert!(l.now() - start >= idle::<T>(), "{:?}", l.now() - start);
}

/// Turns until the engine gets such a completion, and acts before the engine looks at it.
fn act_at<D: Driver>(
    l: &mut Loop<D>,
    is_it: impl Fn(&Completion) -> bool,
    mut act: impl FnMut(&mut Loop<D>) -> bool,
) {
    let mut is_done = false;
    while !is_done {
        let mut done = Completions::new();
        l.watcher.wait(&mut done).unwrap();
        let all: Vec<_> = done.drain(..).collect();
        if all.iter().any(&is_it) {
            is_done = act(l);
        }
        for c in all {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            assert!(!matches!(event, Event::Closed { .. }), "{event:?}");
        }
        l.engine.flush(&mut l.watcher);
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            assert!(!matches!(event, Event::Closed { .. }), "{event:?}");
        }
    }
}

/// The read has ended, and the engine does not know that yet.
fn what_the_program_does_in_the_turn_of_the_idle_time_begins_it_anew<T: Harness>() {
    type Act<D> = fn(&mut Loop<D>, Id) -> bool;
    let acts: [(bool, Act<T::Driver>); 3] = [
        (true, |l, id| l.engine.resume(id)),
        (false, |l, id| l.engine.set_idle_timeout(id, idle::<T>())),
        (false, |l, id| l.engine.write(id, "ping").is_ok()),
    ];
    for (pauses, act) in acts {
        let mut l = new::<T>(limits().idle(idle::<T>()));
        let (client, id) = l.pair();
        l.watcher.submit(Op::read(client).multishot().token(9)).unwrap();
        if pauses {
            l.engine.pause(id);
        }
        l.engine.flush(&mut l.watcher);
        let source = l.engine.source(id).unwrap();
        let is_idle = |c: &Completion| c.source == source && c.result.is_err();
        act_at(&mut l, is_idle, |l| act(l, id));
        let start = l.now();
        l.until("it is idle", |l| !l.ends.is_empty());
        assert_eq!(l.ends[0].0, Cause::Idle);
        assert!(l.now() - start >= idle::<T>() * 4 / 5, "{:?}", l.now() - start);
    }
}

fn a_session_that_is_resumed_in_the_turn_of_its_expiry_is_not_idle<T: Harness>() {
    let mut l = new::<T>(limits().session_idle(idle::<T>()));
    let peer = l.watcher.bind_datagram(([127, 0, 0, 1], 0), DatagramOptions::default()).unwrap();
    let at = l.watcher.local_address(peer).unwrap();
    let id = l.engine.connect_datagram(at, ()).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it is open", |l| l.opened.contains(&id));
    l.engine.pause(id);
    l.engine.flush(&mut l.watcher);
    act_at(&mut l, |c| c.code() == OpCode::Timer, |l| l.engine.resume(id));
    let start = l.now();
    l.until("it is idle", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::Idle);
    assert!(l.now() - start >= idle::<T>() * 4 / 5, "{:?}", l.now() - start);
}

/// The callback of one connection begins the time of another one anew, or pauses it. The event of
/// that one is on its way then.
fn an_idle_time_that_begins_anew_is_not_told<T: Harness>() {
    for (pauses, is_half_closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let limits = limits().idle(idle::<T>());
        let config = Config::new().limits(limits).close_on_eof(false).limit_events(true);
        let mut l = Loop::new::<T>(config);
        let pairs = [l.pair(), l.pair()];
        if is_half_closed {
            for (client, _) in pairs {
                l.watcher.submit(Op::shutdown(client)).unwrap();
            }
        }
        let first = next_told(&mut l);
        let id = pairs.map(|(_, id)| id).into_iter().find(|id| *id != first).unwrap();
        l.engine.set_idle_timeout(first, None);
        let start = l.now();
        assert!(if pauses {
            l.engine.pause(id)
        } else {
            l.engine.set_idle_timeout(id, idle::<T>())
        });
        run(&mut l, T::span(0.1));
        if pauses {
            run(&mut l, 2 * idle::<T>());
            assert!(!l.told.contains(&"limit reached"), "it waits for the program");
            l.engine.resume(id);
        }
        l.engine.flush(&mut l.watcher);
        l.until("its time has passed again", |l| l.told.contains(&"limit reached"));
        assert!(l.now() - start >= idle::<T>() * if pauses { 3 } else { 1 });
        assert!(l.ends.is_empty());
    }
}

/// Turns until one connection has reached a limit. Further events of the turn are left.
fn next_told<D: Driver>(l: &mut Loop<D>) -> Id {
    loop {
        while let Some(event) = l.engine.next_event(&mut l.watcher) {
            if let Event::LimitReached { id, .. } = event {
                return id;
            }
        }
        l.engine.flush(&mut l.watcher);
        let mut done = Completions::new();
        l.watcher.wait(&mut done).unwrap();
        for c in done.drain(..) {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
    }
}
