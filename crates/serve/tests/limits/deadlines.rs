//! Deadlines of connections, on every driver.
//!
//! Of the promises on the page of the crate: P4.

use std::time::{Duration, Instant};

use crate::common::engine::{Loop, no_times, run_for, until};
use crate::common::refusing::{Orders, Refusing};
use crate::common::turns::Turns;
use crate::common::{Harness, PATIENCE, bench};
use windlass::driver::Deadline;
use windlass::driver::OpCode;
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::{Address, Buf, Op, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Origin, Phase, Server,
};

crate::every_driver! {
    a_connection_ends_at_its_read_deadline
    a_read_deadline_moves_and_goes
    data_that_comes_with_the_deadline_can_move_it
    the_last_deadline_counts
    a_past_deadline_ends_the_connection_in_the_same_turn
    output_that_is_not_sent_ends_at_the_write_deadline
    a_write_deadline_goes_when_the_output_is_sent
    a_write_deadline_goes_when_the_output_drains
    a_write_deadline_without_output_is_for_the_next_output
    both_deadlines_at_once_end_a_read
    a_closing_connection_has_only_a_write_deadline
    a_deadline_ends_a_connect
    a_detached_connection_has_no_deadline
    many_deadlines_end_each_connection_once
    a_refused_timer_is_tried_again
    the_callbacks_of_a_server_set_deadlines
    a_session_has_a_read_deadline
}

fn config() -> Config {
    Config::new().limits(no_times())
}

fn new<T: Harness>() -> Loop<T::Driver> {
    Loop::new::<T>(config())
}

fn timeout<T: Harness>() -> Duration {
    T::span(5.0)
}

/// Not before its time. In virtual time at its time, else before twice the time.
fn at_its_time<T: Harness>(start: Instant, end: Instant, span: Duration) {
    let took = end - start;
    assert!(took >= span, "{took:?} is before {span:?}");
    // A turn of the simulation takes a microsecond, and another one delivers the end. Elsewhere
    // another process may have the processor for a while.
    let slack =
        if T::VIRTUAL { Duration::from_micros(5) } else { span.max(Duration::from_secs(1)) };
    assert!(took <= span + slack, "{took:?} is long after {span:?}");
}

/// nbio's TestTimeout.
fn a_connection_ends_at_its_read_deadline<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let start = l.now();
    assert!(l.engine.set_read_deadline(id, Deadline::After(timeout::<T>())));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), timeout::<T>());
    assert_eq!(l.ends, [(Cause::ReadTimeout, 0, Phase::Open)]);
    assert_eq!(l.engine.counters().ends.read_timeout, 1);
    assert!(!l.engine.set_read_deadline(id, Deadline::After(timeout::<T>())), "the id is stale");
    assert!(!l.engine.set_deadline(id, None) && !l.engine.set_write_deadline(id, None));
}

fn a_read_deadline_moves_and_goes<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let start = l.now();
    let span = timeout::<T>();
    for step in 0..8 {
        // Back, and forth to an earlier time.
        l.engine.set_read_deadline(
            id,
            Deadline::After(if step % 2 == 0 { 4 * span } else { 2 * span }),
        );
        run_for(&mut l, span / 4);
    }
    assert!(l.ends.is_empty() && l.now() - start >= 2 * span);
    l.engine.set_read_deadline(id, None);
    run_for(&mut l, 5 * span);
    assert!(l.ends.is_empty(), "the deadline is gone");
    let at = l.now() + span;
    l.engine.set_read_deadline(id, Deadline::At(at));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(at - span, l.now(), span);
}

fn data_that_comes_with_the_deadline_can_move_it<T: Harness>() {
    /// Each message is a second for the next one.
    struct Moving;
    impl Handler for Moving {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.set_read_deadline(Deadline::After(Duration::from_millis(200)));
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
            c.set_read_deadline(Deadline::After(Duration::from_secs(3600)));
            c.write(data);
            Action::None
        }
    }
    let server = Server::new(|_| Moving).config(config()).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.engine().len() == 1);
    bench.say(client, "x");
    let mut was_there = false;
    if !T::VIRTUAL {
        // The loop sleeps over the deadline: the timer and the data are in one batch.
        std::thread::sleep(Duration::from_millis(250));
        was_there = true;
    }
    bench.until("it has the answer", |bench| bench.client(client).heard == b"x");
    bench.run_for(Duration::from_millis(300));
    assert_eq!(bench.running.engine().len(), 1, "{was_there}");
}

fn the_last_deadline_counts<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let (_other, none) = l.pair();
    let start = l.now();
    l.engine.set_read_deadline(id, Deadline::After(Duration::ZERO));
    l.engine.set_read_deadline(id, Deadline::After(10 * timeout::<T>()));
    l.engine.set_read_deadline(id, Deadline::After(timeout::<T>()));
    l.engine.set_read_deadline(none, Deadline::After(Duration::ZERO));
    l.engine.set_deadline(none, None);
    // Further than any clock.
    l.engine.set_deadline(none, Deadline::After(Duration::MAX));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), timeout::<T>());
    run_for(&mut l, timeout::<T>());
    assert_eq!(l.ends.len(), 1);
}

fn a_past_deadline_ends_the_connection_in_the_same_turn<T: Harness>() {
    let mut l = new::<T>();
    for past in 0..3 {
        let (_client, id) = l.pair();
        let now = l.now();
        match past {
            0 => l.engine.set_read_deadline(id, Deadline::After(Duration::ZERO)),
            1 => l.engine.set_read_deadline(id, Deadline::At(now)),
            _ => l.engine.set_write_deadline(
                id,
                Deadline::At(now.checked_sub(timeout::<T>()).unwrap_or(now)),
            ),
        };
        l.engine.flush(&mut l.watcher);
        assert!(l.engine.state(id).is_none(), "it has ended in the flush");
        until(&mut l, "it is closed", |l| l.ends.len() > past);
    }
    let ends = &l.engine.counters().ends;
    assert_eq!((ends.read_timeout, ends.write_timeout), (2, 1));
}

fn output_that_is_not_sent_ends_at_the_write_deadline<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    let start = l.now();
    l.engine.write(id, vec![0; 32 << 20]).unwrap();
    l.engine.set_write_deadline(id, Deadline::After(timeout::<T>()));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), timeout::<T>());
    let (cause, unsent, _) = l.ends[0];
    assert_eq!(cause, Cause::WriteTimeout);
    assert!(unsent > 1 << 20, "{unsent} bytes");
    assert_eq!(l.engine.counters().ends.write_timeout, 1);
    assert_eq!(l.engine.budget().used(), 0);
}

fn a_write_deadline_goes_when_the_output_is_sent<T: Harness>() {
    let mut l = new::<T>();
    let (_client, first) = l.pair();
    let (_client, then) = l.pair();
    // In either order, and with copied bytes.
    l.engine.write(first, "x").unwrap();
    l.engine.set_write_deadline(first, Deadline::After(timeout::<T>()));
    l.engine.set_write_deadline(then, Deadline::After(timeout::<T>()));
    l.engine.write_slice(then, b"x").unwrap();
    run_for(&mut l, 3 * timeout::<T>());
    assert!(l.ends.is_empty(), "{:?}", l.ends);
}

fn a_write_deadline_goes_when_the_output_drains<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.engine.write(id, vec![0; 8 << 20]).unwrap();
    l.engine.flush(&mut l.watcher);
    assert!(l.engine.waiting(id) > 0);
    // A deadline that no machine is too slow for.
    let span = if T::VIRTUAL { 4 * timeout::<T>() } else { PATIENCE };
    l.engine.set_write_deadline(id, Deadline::After(span));
    l.watcher.submit(Op::read(client).multishot().token(1)).unwrap();
    until(&mut l, "all is out", |l| {
        l.foreign.clear();
        l.engine.waiting(id) == 0
    });
    l.watcher.cancel_all(client);
    assert!(l.ends.is_empty());
    // The next output has no deadline any more.
    l.engine.write(id, vec![0; 32 << 20]).unwrap();
    if T::VIRTUAL {
        run_for(&mut l, 2 * span);
        assert!(l.ends.is_empty() && l.engine.waiting(id) > 0);
    }
    // And gets a new one.
    l.engine.set_write_deadline(id, Deadline::After(timeout::<T>()));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    assert_eq!(l.ends[0].0, Cause::WriteTimeout);
}

fn a_write_deadline_without_output_is_for_the_next_output<T: Harness>() {
    let mut l = new::<T>();
    let (client, silent) = l.pair();
    let (_other, id) = l.pair();
    let start = l.now();
    l.engine.set_write_deadline(silent, Deadline::After(timeout::<T>()));
    l.engine.set_write_deadline(id, Deadline::After(timeout::<T>()));
    run_for(&mut l, timeout::<T>() / 4);
    // Input, and turns without output, do not count as sent.
    l.watcher.submit(Op::write(client, "x").token(1)).unwrap();
    l.engine.write(id, "x").unwrap();
    until(&mut l, "one is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), timeout::<T>());
    run_for(&mut l, 2 * timeout::<T>());
    assert_eq!(l.ends, [(Cause::WriteTimeout, 0, Phase::Open)]);
    assert!(l.engine.state(id).is_some());
}

fn both_deadlines_at_once_end_a_read<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    l.engine.set_deadline(id, Deadline::After(timeout::<T>()));
    l.engine.write(id, vec![0; 32 << 20]).unwrap();
    let (_other, next) = l.pair();
    l.engine.set_deadline(next, Deadline::After(timeout::<T>()));
    l.engine.set_read_deadline(next, None);
    until(&mut l, "both are closed", |l| l.ends.len() == 2);
    let mut causes: Vec<_> = l.ends.iter().map(|(cause, ..)| format!("{cause:?}")).collect();
    causes.sort();
    assert_eq!(causes, ["ReadTimeout", "WriteTimeout"]);
}

fn a_closing_connection_has_only_a_write_deadline<T: Harness>() {
    let mut l = Loop::new::<T>(config().limits(Limits::new().close(50 * timeout::<T>())));
    let (_client, read) = l.pair();
    let (_other, written) = l.pair();
    for id in [read, written] {
        l.engine.write(id, vec![0; 32 << 20]).unwrap();
        l.engine.close(id);
    }
    let start = l.now();
    l.engine.set_read_deadline(read, Deadline::After(timeout::<T>()));
    l.engine.set_write_deadline(written, Deadline::After(2 * timeout::<T>()));
    until(&mut l, "one is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), 2 * timeout::<T>());
    let (cause, unsent, phase) = l.ends[0];
    assert_eq!((cause, phase), (Cause::Closed, Phase::Closing), "the first cause");
    assert!(unsent > 1 << 20 && l.engine.state(read).is_some());
}

fn a_deadline_ends_a_connect<T: Harness>() {
    let mut l = new::<T>();
    // The same flush begins the connect, and ends it.
    let address: Address = l.address.clone();
    let id = l.engine.connect([address], ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, "lost").unwrap();
    l.engine.set_write_deadline(id, Deadline::After(Duration::ZERO));
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    assert_eq!(l.ends, [(Cause::WriteTimeout, 4, Phase::Connecting)]);
    assert_eq!(l.engine.budget().used(), 0);
}

fn a_detached_connection_has_no_deadline<T: Harness>() {
    let mut l = new::<T>();
    let (_client, id) = l.pair();
    l.engine.set_deadline(id, Deadline::After(timeout::<T>()));
    l.engine.detach(id).expect("it may leave");
    run_for(&mut l, 3 * timeout::<T>());
    assert!(l.ends.is_empty() && l.engine.is_empty());
    assert_eq!(l.engine.counters().detached, 1);
    // The next connection has its place.
    l.pair();
    run_for(&mut l, timeout::<T>());
    assert!(l.ends.is_empty());
}

/// gaio's TestDeadline8k, with the deadlines in a mixed order.
fn many_deadlines_end_each_connection_once<T: Harness>() {
    let mut l = new::<T>();
    let count = if T::VIRTUAL { 1500 } else { 100 };
    let mut clients = Vec::new();
    while l.opened.len() < count {
        for _ in 0..50 {
            clients.push(l.client());
        }
        until(&mut l, "they are open", |l| l.opened.len() == clients.len());
    }
    let start = l.now();
    let step = timeout::<T>() / 10;
    for (at, id) in l.opened.clone().into_iter().enumerate() {
        l.engine.set_read_deadline(id, Deadline::After(20 * timeout::<T>()));
        l.engine
            .set_read_deadline(id, Deadline::After(timeout::<T>() + step * (at as u32 * 7 % 3)));
    }
    until(&mut l, "they are closed", |l| l.ends.len() == count);
    at_its_time::<T>(start, l.now(), timeout::<T>() + 2 * step);
    run_for(&mut l, timeout::<T>());
    assert_eq!(l.ends.len(), count);
    assert_eq!(l.engine.counters().ends.read_timeout, count as u64);
}

fn a_refused_timer_is_tried_again<T: Harness>() {
    let orders = Orders::default();
    let driver = Refusing::new(T::watcher(Watcher::builder()).into_driver(), orders.clone());
    let mut l = Loop::on(Watcher::with_driver(driver), config());
    let (_client, id) = l.pair();
    let start = l.now();
    orders.refuse(OpCode::Timer, 1);
    l.engine.set_read_deadline(id, Deadline::After(timeout::<T>()));
    l.engine.flush(&mut l.watcher);
    assert_eq!(orders.refused(), 1, "the timer was refused");
    l.engine.flush(&mut l.watcher);
    until(&mut l, "it is closed", |l| !l.ends.is_empty());
    at_its_time::<T>(start, l.now(), timeout::<T>());
}

fn the_callbacks_of_a_server_set_deadlines<T: Harness>() {
    #[derive(Default)]
    struct Timed(Vec<Cause>);
    impl Handler for Timed {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            c.set_deadline(Deadline::After(Duration::from_millis(50)));
            c.set_write_deadline(None);
            Action::None
        }
        fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
            c.set_read_deadline(None);
            c.write(vec![0; 32 << 20]);
            c.set_write_deadline(Deadline::After(Duration::from_millis(50)));
            Action::None
        }
        fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
            self.0.push(closed.cause);
            Action::None
        }
    }
    let server = Server::new(|_| Timed::default()).config(config());
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    bench.connect();
    bench.until("it is closed", |bench| bench.running.handler().0.len() == 1);
    let client = bench.connect_deaf();
    bench.say(client, "x");
    bench.until("it is closed", |bench| bench.running.handler().0.len() == 2);
    let first = bench.running.handler().0[0];
    assert_eq!(first, Cause::ReadTimeout);
    let ends = bench.running.report().counters.ends;
    // A slow machine can read the message too late.
    assert!(ends.write_timeout == 1 || ends.read_timeout == 2 && !T::VIRTUAL, "{ends:?}");
}

fn a_session_has_a_read_deadline<T: Harness>() {
    #[derive(Default)]
    struct Timed(Vec<Cause>);
    impl Handler for Timed {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            let id = c.id();
            assert!(c.engine().set_deadline(id, Deadline::After(Duration::from_millis(50))));
            assert!(!c.engine().set_write_deadline(id, Deadline::After(Duration::from_millis(50))));
            Action::None
        }
        fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
            self.0.push(closed.cause);
            Action::None
        }
    }
    let server = Server::new(|_| Timed::default()).config(config());
    let mut bench = bench::<T, _, _>(server.listen("udp://127.0.0.1:0?sessions=true").unwrap());
    let options = DatagramOptions::default();
    let local = ([127, 0, 0, 1], 0);
    let socket = bench.watcher.bind_datagram(local, options).unwrap();
    let to = bench.addresses[0].clone();
    bench.watcher.submit(Op::send_to(socket, "x", to).token(1)).unwrap();
    bench.until("it is closed", |bench| bench.running.handler().0.len() == 1);
    assert_eq!(bench.running.handler().0, [Cause::ReadTimeout]);
    assert_eq!(bench.running.report().counters.ends.read_timeout, 1);
}
