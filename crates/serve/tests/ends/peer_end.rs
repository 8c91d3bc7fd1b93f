//! The end of a peer while its connection is not read, on every driver.
//!
//! Of the promises on the page of the crate: P1, P2 and P3.

use std::time::Duration;

use crate::common::engine::{Loop, no_times, run_for, until};
use crate::common::refusing::{Orders, Refusing};
use crate::common::seeds;
use crate::common::{Harness, bench};
use fastrand::Rng;
use windlass::driver::{Auto, Driver, OpCode};
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass::sim::{Faults, Sim};
use windlass::{Buf, Completions, Op, Ready, Source, Watcher};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Event, Handler, Id, Phase, Server,
};

crate::every_kernel! {
    an_end_in_a_pause_is_told
    an_end_behind_held_data_is_told
    an_end_behind_unread_data_is_told
    an_end_before_the_call_is_told
    an_end_is_told_while_much_output_waits
    an_end_that_a_read_meets_while_much_output_waits_is_read
    a_reset_while_much_output_waits_ends_the_connection
    a_reset_in_a_pause_ends_the_connection
    a_resume_takes_the_poll_back
    a_connection_that_does_not_ask_is_not_told
    another_call_tells_it_again
    the_next_pause_tells_what_a_resume_has_held_up
    an_end_that_is_read_is_not_told
    an_end_behind_our_own_is_told
    a_close_takes_the_poll_back
    a_detach_takes_the_poll_back
    an_abort_and_the_end_of_the_engine_leave_no_poll
    a_refused_poll_is_tried_again
    ids_that_are_not_watched
    the_callback_is_called_in_a_pause
}

fn new<T: Harness>() -> Loop<T::Driver> {
    Loop::new::<T>(Config::new().limits(no_times()).close_on_eof(false))
}

/// The errnos of a connection that is broken.
fn is_reset(cause: Cause) -> bool {
    matches!(cause, Cause::Os(libc::ECONNRESET | libc::EPIPE))
}

/// A client says bytes, which the system takes.
fn say<D: Driver>(l: &mut Loop<D>, client: Source, what: &'static str) {
    let write = l.watcher.submit(Op::write(client, what).token(5)).unwrap();
    until(l, "it is said", |l| l.foreign.iter().any(|c| c.ticket() == write));
}

/// A paused connection that holds "a" and is not read any more, and its client.
fn paused<D: Driver>(l: &mut Loop<D>) -> (Source, Id) {
    let (client, id) = l.pair();
    assert!(l.engine.pause(id));
    say(l, client, "a");
    until(l, "it is held", |l| l.engine.budget().used() > 0);
    l.told.clear();
    (client, id)
}

fn finish<D: Driver>(l: &mut Loop<D>, client: Source) {
    l.watcher.submit(Op::shutdown(client)).unwrap();
}

fn count<D: Driver>(l: &Loop<D>, what: &str) -> usize {
    l.told.iter().filter(|told| **told == what).count()
}

#[track_caller]
fn until_told<D: Driver>(l: &mut Loop<D>, what: &'static str) {
    until(l, what, |l| l.told.contains(&what));
}

/// Nothing is left to come.
fn rest<T: Harness>(l: &mut Loop<T::Driver>) {
    run_for(l, T::span(2.0));
}

fn an_end_in_a_pause_is_told<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.told.clear();
    assert!(l.engine.pause(id) && l.engine.watch_peer(id, true));
    rest::<T>(&mut l);
    assert!(l.told.is_empty(), "{:?}", l.told);
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"]);
    // It takes output all the same.
    l.engine.write(id, "answer").unwrap();
    let read = l.watcher.submit(Op::read(client)).unwrap();
    until(&mut l, "the answer comes", |l| l.foreign.iter().any(|c| c.ticket() == read));
    l.engine.resume(id);
    until_told(&mut l, "eof");
    assert_eq!(l.told, ["peer ended", "eof"]);
}

fn an_end_behind_held_data_is_told<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = paused(&mut l);
    l.engine.watch_peer(id, true);
    rest::<T>(&mut l);
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"]);
    l.engine.resume(id);
    until_told(&mut l, "eof");
    assert_eq!(l.told, ["peer ended", "data", "eof"]);
    assert_eq!(l.heard, b"a");
}

fn an_end_behind_unread_data_is_told<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = paused(&mut l);
    l.engine.watch_peer(id, true);
    say(&mut l, client, "bc");
    rest::<T>(&mut l);
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    assert_eq!(l.told, ["peer ended"]);
    // The next pause begins in front of the end.
    l.engine.resume(id);
    until(&mut l, "its data comes", |l| l.told.contains(&"data"));
    until_told(&mut l, "eof");
    assert_eq!((&l.heard[..], l.told.last()), (&b"abc"[..], Some(&"eof")));
    assert_eq!(count(&l, "peer ended"), 1);
}

fn an_end_before_the_call_is_told<T: Harness>() {
    let mut l = new::<T>();
    // One that the read in front of the pause has met, and one behind that.
    let (met, behind) = (l.pair(), paused(&mut l));
    l.engine.pause(met.1);
    finish(&mut l, met.0);
    finish(&mut l, behind.0);
    rest::<T>(&mut l);
    assert!(l.told.is_empty(), "{:?}", l.told);
    for (at, id) in [(1, met.1), (2, behind.1)] {
        l.engine.watch_peer(id, true);
        until(&mut l, "it is told", |l| count(l, "peer ended") == at);
    }
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"; 2]);
}

fn an_end_is_told_while_much_output_waits<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.engine.watch_peer(id, true);
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    until(&mut l, "it is full", |l| l.engine.is_full(id));
    // The reads stop with the next piece.
    say(&mut l, client, "a");
    until_told(&mut l, "data");
    rest::<T>(&mut l);
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    assert!(l.engine.is_full(id) && !l.told.contains(&"eof"));
    l.watcher.submit(Op::read(client).multishot()).unwrap();
    until_told(&mut l, "eof");
    assert!(l.told.contains(&"drained") && l.ends.is_empty());
    assert_eq!(count(&l, "peer ended"), 1);
}

/// The read that was in flight before the output has met it.
fn an_end_that_a_read_meets_while_much_output_waits_is_read<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.told.clear();
    l.engine.watch_peer(id, true);
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    until(&mut l, "it is full", |l| l.engine.is_full(id));
    rest::<T>(&mut l);
    finish(&mut l, client);
    until_told(&mut l, "eof");
    rest::<T>(&mut l);
    assert!(l.engine.is_full(id));
    assert_eq!(l.told, ["eof"]);
}

fn a_reset_while_much_output_waits_ends_the_connection<T: Harness>() {
    for behind in ["", "a"] {
        let mut l = new::<T>();
        let (client, id) = l.pair();
        l.told.clear();
        l.engine.watch_peer(id, true);
        l.engine.write(id, vec![0; 4 << 20]).unwrap();
        until(&mut l, "it is full", |l| l.engine.is_full(id));
        if !behind.is_empty() {
            say(&mut l, client, behind);
            until_told(&mut l, "data");
        }
        rest::<T>(&mut l);
        // With bytes that it has not read, the close resets the connection.
        l.watcher.abort(client);
        until_told(&mut l, "closed");
        assert!(is_reset(l.ends[0].0) && l.ends.len() == 1, "{:?}", l.ends);
        // If the write has met the reset before, the poll finds an end without an error.
        assert!(!l.told.contains(&"eof") && count(&l, "peer ended") <= 1, "{:?}", l.told);
    }
}

fn a_reset_in_a_pause_ends_the_connection<T: Harness>() {
    for unread in ["", "b"] {
        let mut l = new::<T>();
        let (client, id) = paused(&mut l);
        l.engine.watch_peer(id, true);
        if !unread.is_empty() {
            say(&mut l, client, unread);
        }
        l.engine.write(id, "never read").unwrap();
        let poll = l.watcher.submit(Op::poll(client, Ready::READABLE)).unwrap();
        until(&mut l, "it has come", |l| {
            l.queued(id) == 0 && l.foreign.iter().any(|c| c.ticket() == poll)
        });
        // With bytes unread, the close resets the connection.
        l.watcher.abort(client);
        until_told(&mut l, "closed");
        let (cause, unsent, phase) = l.ends[0];
        assert!(is_reset(cause) && (unsent, phase) == (0, Phase::Open), "{:?}", l.ends);
        assert_eq!(l.told, ["closed"], "what it held is dropped");
    }
}

fn a_resume_takes_the_poll_back<T: Harness>() {
    let mut l = new::<T>();
    l.pair();
    let (client, id) = l.pair();
    rest::<T>(&mut l);
    let in_flight = l.watcher.counters().in_flight;
    l.engine.pause(id);
    say(&mut l, client, "a");
    until(&mut l, "it is held", |l| l.engine.budget().used() > 0);
    l.engine.watch_peer(id, true);
    for round in 1..20 {
        if round % 3 > 0 {
            l.engine.flush(&mut l.watcher); // the poll begins, or did not
        }
        l.engine.resume(id);
        let before = l.heard.len();
        say(&mut l, client, "next");
        until(&mut l, "its data comes", |l| l.heard.len() >= before + 4);
        if round % 4 == 0 {
            // The read is there, and no poll. (The sweep has a timer for a time.)
            until(&mut l, "no poll is left", |l| l.watcher.counters().in_flight == in_flight);
        }
        l.engine.pause(id);
        say(&mut l, client, "a");
        until(&mut l, "it is held", |l| l.engine.budget().used() > 0);
        if round % 2 > 0 {
            rest::<T>(&mut l);
        }
    }
    assert!(!l.told.contains(&"peer ended") && l.ends.is_empty());
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    l.engine.resume(id);
    until_told(&mut l, "eof");
    assert_eq!(l.told.iter().rev().find(|told| **told != "data"), Some(&"eof"));
    assert_eq!(l.heard, format!("a{}", "nexta".repeat(19)).as_bytes());
}

fn a_connection_that_does_not_ask_is_not_told<T: Harness>() {
    let mut l = new::<T>();
    let (asks, does_not) = (paused(&mut l), paused(&mut l));
    for (client, id) in [asks, does_not] {
        l.engine.watch_peer(id, true);
        l.engine.flush(&mut l.watcher);
        assert!(l.engine.watch_peer(id, id == asks.1));
        rest::<T>(&mut l);
        finish(&mut l, client);
    }
    until_told(&mut l, "peer ended");
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"]);
    l.engine.resume(does_not.1);
    until_told(&mut l, "eof");
    assert_eq!(l.told, ["peer ended", "data", "eof"]);
}

fn another_call_tells_it_again<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = paused(&mut l);
    finish(&mut l, client);
    for times in 1..4 {
        for _ in 0..3 {
            assert!(l.engine.watch_peer(id, true));
            until(&mut l, "it is told", |l| count(l, "peer ended") == times);
            rest::<T>(&mut l);
        }
        assert!(l.engine.watch_peer(id, false));
    }
    assert_eq!(l.told, ["peer ended"; 3]);
}

/// Its event was on its way when the program resumed, and then the data in front of the end comes.
fn the_next_pause_tells_what_a_resume_has_held_up<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.told.clear();
    l.engine.pause(id);
    finish(&mut l, client);
    rest::<T>(&mut l);
    for piece in ["c", "b", "a"] {
        l.engine.unread(id, piece).unwrap();
    }
    l.engine.watch_peer(id, true);
    l.engine.flush(&mut l.watcher);
    l.engine.resume(id);
    l.engine.flush(&mut l.watcher);
    let event = l.engine.next_event(&mut l.watcher);
    assert!(matches!(event, Some(Event::Data { .. })), "{event:?}");
    l.engine.pause(id);
    until_told(&mut l, "peer ended");
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"]);
    l.engine.resume(id);
    until_told(&mut l, "eof");
    assert_eq!(l.heard, b"bc");
}

fn an_end_that_is_read_is_not_told<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = l.pair();
    l.told.clear();
    l.engine.watch_peer(id, true);
    finish(&mut l, client);
    until_told(&mut l, "eof");
    l.engine.pause(id);
    l.engine.watch_peer(id, true);
    rest::<T>(&mut l);
    assert_eq!(l.told, ["eof"]);
}

/// Both sides are shut: the system reports a hang-up. The connection closes with the resume.
fn an_end_behind_our_own_is_told<T: Harness>() {
    let mut l = new::<T>();
    let (client, id) = paused(&mut l);
    l.engine.watch_peer(id, true);
    assert!(l.engine.shutdown(id));
    let read = l.watcher.submit(Op::read(client)).unwrap();
    until(&mut l, "the client hears it", |l| l.foreign.iter().any(|c| c.ticket() == read));
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    rest::<T>(&mut l);
    assert_eq!(l.told, ["peer ended"]);
    l.engine.resume(id);
    until_told(&mut l, "closed");
    assert_eq!(l.told, ["peer ended", "data", "closed"]);
    assert_eq!(l.ends, [(Cause::Eof, 0, Phase::Closing)]);
}

fn a_close_takes_the_poll_back<T: Harness>() {
    for told in [false, true] {
        let mut l = new::<T>();
        let (client, id) = paused(&mut l);
        l.engine.watch_peer(id, true);
        l.engine.flush(&mut l.watcher);
        if told {
            finish(&mut l, client);
            until_told(&mut l, "peer ended");
        }
        l.engine.write(id, "answer").unwrap();
        l.engine.close(id);
        l.watcher.submit(Op::read(client).multishot()).unwrap();
        until(&mut l, "the client hears the end", |l| l.foreign.iter().any(|c| !c.has_more()));
        if !told {
            finish(&mut l, client);
        }
        until_told(&mut l, "closed");
        assert_eq!(count(&l, "peer ended"), usize::from(told), "{:?}", l.told);
        assert_eq!(l.ends.len(), 1);
        assert_eq!(l.ends[0].0, Cause::Closed);
        assert!(!l.engine.watch_peer(id, true) && !l.engine.watch_peer(id, false));
    }
}

fn a_detach_takes_the_poll_back<T: Harness>() {
    for told in [false, true] {
        let mut l = new::<T>();
        let (client, id) = paused(&mut l);
        l.engine.watch_peer(id, true);
        l.engine.flush(&mut l.watcher);
        if told {
            finish(&mut l, client);
            until_told(&mut l, "peer ended");
        }
        l.engine.detach(id).unwrap();
        until_told(&mut l, "detached");
        rest::<T>(&mut l);
        let events: &[&str] = if told { &["peer ended", "detached"] } else { &["detached"] };
        assert_eq!(l.told, events);
        // The new owner reads what is left.
        let handle = l.handles.pop().unwrap();
        let source = l.watcher.attach(handle).unwrap();
        if !told {
            finish(&mut l, client);
        }
        let read = l.watcher.submit(Op::read(source)).unwrap();
        until(&mut l, "it reads the end", |l| l.foreign.iter().any(|c| c.ticket() == read));
    }
}

fn an_abort_and_the_end_of_the_engine_leave_no_poll<T: Harness>() {
    let mut l = new::<T>();
    let pairs = [paused(&mut l), paused(&mut l)];
    for (_, id) in pairs {
        l.engine.watch_peer(id, true);
    }
    l.engine.flush(&mut l.watcher);
    l.engine.abort(pairs[0].1);
    until_told(&mut l, "closed");
    assert_eq!(l.ends, [(Cause::Aborted, 0, Phase::Open)]);
    l.engine.end(&mut l.watcher);
    while l.engine.next_event(&mut l.watcher).is_some() {}
    for (client, _) in pairs {
        l.watcher.abort(client);
    }
    until(&mut l, "no operation is left", |l| l.watcher.counters().in_flight == 0);
    assert!(l.engine.is_empty() && !l.told.contains(&"peer ended"));
}

fn a_refused_poll_is_tried_again<T: Harness>() {
    let orders = Orders::default();
    let driver = Refusing::new(T::watcher(Watcher::builder()).into_driver(), orders.clone());
    let config = Config::new().limits(no_times()).close_on_eof(false);
    let mut l = Loop::on(Watcher::with_driver(driver), config);
    let (client, id) = paused(&mut l);
    orders.refuse(OpCode::Poll, 2);
    l.engine.watch_peer(id, true);
    until(&mut l, "the poll is refused", |_| orders.refused() > 0);
    finish(&mut l, client);
    until_told(&mut l, "peer ended");
    assert_eq!(orders.refused(), 2);
}

fn ids_that_are_not_watched<T: Harness>() {
    let mut l = new::<T>();
    let connecting = l.engine.connect([l.address.clone()], ConnectOptions::default(), ()).unwrap();
    assert!(!l.engine.watch_peer(connecting, true), "it has not opened");
    let peer = l.watcher.bind_datagram(([127, 0, 0, 1], 0), DatagramOptions::default()).unwrap();
    let at = l.watcher.local_address(peer).unwrap();
    let session = l.engine.connect_datagram(at, ()).unwrap();
    until(&mut l, "both are open", |l| l.opened.len() == 3);
    assert!(!l.engine.watch_peer(session, true) && !l.engine.watch_peer(session, false));
    assert!(l.engine.watch_peer(connecting, true), "it is open now");
    l.engine.abort(connecting);
    until_told(&mut l, "closed");
    assert!(!l.engine.watch_peer(connecting, true) && !l.engine.watch_peer(connecting, false));
}

fn the_callback_is_called_in_a_pause<T: Harness>() {
    #[derive(Default)]
    struct Pauses(Vec<&'static str>);
    impl Handler for Pauses {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
            if self.0.is_empty() {
                c.pause();
                c.watch_peer(true);
                self.0.push("data");
            }
            Action::None
        }
        fn peer_ended(&mut self, c: &mut Conn<'_, ()>) -> Action {
            self.0.push("peer ended");
            c.write("it may still read");
            c.resume();
            Action::None
        }
        fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
            self.0.push("eof");
            Action::Close
        }
        fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
            assert_eq!((closed.cause, closed.unsent), (Cause::Closed, 0));
            self.0.push("closed");
            Action::None
        }
    }
    let config = Config::new().limits(no_times()).close_on_eof(false);
    let server = Server::new(|_| Pauses::default()).config(config);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = bench.connect();
    bench.say(client, "request");
    bench.until("it pauses", |bench| !bench.running.handler().0.is_empty());
    bench.finish(client);
    bench.until("it has ended", |bench| bench.running.handler().0.contains(&"closed"));
    bench.until("the client hears the end", |bench| bench.client(client).is_over());
    assert_eq!(bench.running.handler().0, ["data", "peer ended", "eof", "closed"]);
    assert_eq!(bench.client(client).heard, b"it may still read");
}

/// A random program: a connection that pauses, resumes, watches, writes, closes and detaches, and a
/// client that says bytes, ends its output and breaks off.
struct Program {
    l: Loop<Auto>,
    random: Rng,
    client: Source,
    id: Id,
    /// What the client has said, and how much of it has come.
    said: Vec<u8>,
    heard: Vec<u8>,
    /// The client has ended its output.
    finished: bool,
    paused: bool,
    /// More output than the high mark was written.
    filled: bool,
    watched: bool,
    told: bool,
    eof: bool,
    /// Either end has asked for the end.
    ends: bool,
    over: bool,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut random = Rng::with_seed(seed);
        let faults = if random.bool() { Faults::transient(0.1) } else { Faults::transient(0.0) };
        let sim = Sim::with_faults(random.u64(..), faults);
        sim.set_completing(random.bool());
        let config = Config::new().limits(no_times()).close_on_eof(false);
        let mut l = Loop::on(Watcher::simulated(&sim), config);
        let (client, id) = l.pair();
        let (said, heard) = (Vec::new(), Vec::new());
        let [finished, paused, filled, watched, told, eof, ends, over] = [false; 8];
        #[rustfmt::skip]
        let program = Program {
            l, random, client, id, said, heard,
            finished, paused, filled, watched, told, eof, ends, over,
        };
        program
    }

    /// One turn. Each event is one that may come now.
    fn turn(&mut self) {
        self.l.engine.flush(&mut self.l.watcher);
        let mut done = Completions::new();
        let span = Duration::from_millis(self.random.u64(0..3));
        self.l.watcher.wait_timeout(&mut done, span).unwrap();
        let mut batch = done.visit();
        while let Some(event) = self.l.engine.next_event_in(&mut self.l.watcher, &mut batch) {
            if matches!(event, Event::Foreign(_)) {
                continue;
            }
            assert!(!self.over, "{event:?} comes behind the last event");
            match event {
                Event::Data { data, .. } => {
                    assert!(!self.paused && !self.eof);
                    self.heard.extend_from_slice(&data);
                    assert!(self.said.starts_with(&self.heard));
                    if self.random.u32(..4) == 0 {
                        self.paused |= self.l.engine.pause(self.id);
                    }
                }
                Event::PeerEnded { .. } => {
                    let knows = [self.finished, self.watched, self.told, self.eof];
                    assert_eq!(knows, [true, true, false, false]);
                    assert!(self.paused || self.filled, "it is read");
                    self.told = true;
                }
                Event::Eof { .. } => {
                    assert!(!self.paused && !self.eof && self.finished);
                    assert!(self.ends || self.heard == self.said, "the data comes before");
                    self.eof = true;
                }
                Event::Closed { .. } | Event::Detached { .. } => {
                    assert!(self.ends);
                    self.over = true;
                }
                Event::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        drop(batch);
        self.l.engine.flush(&mut self.l.watcher);
    }

    /// One step of either end.
    fn step(&mut self) {
        let id = self.id;
        match self.random.u32(0..100) {
            0..20 if !self.finished => {
                let more: Vec<u8> = (0..self.random.usize(1..300)).map(|at| at as u8).collect();
                self.said.extend_from_slice(&more);
                let write = self.l.watcher.submit(Op::write(self.client, more));
                assert!(write.is_ok() || self.ends);
            }
            20..26 if !self.finished => {
                let shutdown = self.l.watcher.submit(Op::shutdown(self.client));
                assert!(shutdown.is_ok() || self.ends);
                self.finished = true;
            }
            26..28 => {
                self.l.watcher.abort(self.client);
                (self.finished, self.ends) = (true, true);
            }
            28..32 => _ = self.l.watcher.submit(Op::read(self.client).multishot()),
            32..46 => self.paused |= self.l.engine.pause(id),
            46..58 => {
                self.l.engine.resume(id);
                self.paused = false;
            }
            58..74 => self.watched |= self.l.engine.watch_peer(id, true),
            74..78 => {
                self.l.engine.watch_peer(id, false);
                (self.watched, self.told) = (false, false);
            }
            78..84 => _ = self.l.engine.write(id, "a few bytes"),
            84..86 => self.filled |= self.l.engine.write(id, vec![7; 1 << 20]).is_ok(),
            86..88 => self.ends |= self.l.engine.close(id),
            88 => self.ends |= self.l.engine.detach(id).is_ok(),
            89 => self.ends |= self.l.engine.abort(id),
            _ => self.turn(),
        }
    }

    fn run(&mut self) {
        for _ in 0..self.random.u32(5..80) {
            self.step();
        }
        for _ in 0..100 {
            self.turn();
        }
        let stays = self.finished && !self.ends;
        assert!(!(stays && self.paused && self.watched && !self.eof) || self.told, "told it is");
        if stays {
            // The output that waits leaves, too, and the connection reads again.
            let _ = self.l.watcher.submit(Op::read(self.client).multishot());
            self.l.engine.resume(self.id);
            self.paused = false;
            for _ in 0..1000 {
                self.turn();
                if self.paused {
                    self.l.engine.resume(self.id);
                    self.paused = false;
                }
            }
            assert!(self.eof && self.heard == self.said && !self.over);
        }
        if !self.over {
            self.ends |= self.l.engine.abort(self.id);
            for _ in 0..100 {
                self.turn();
            }
        }
        self.l.watcher.abort(self.client);
        for _ in 0..100 {
            self.turn();
        }
        assert!(self.over && self.l.engine.is_empty());
    }
}

#[test]
fn random_programs_that_pause_and_watch() {
    let (mut told, mut read) = (0, 0);
    let ran = seeds::each("peer_end", 700, 300, |seed| {
        let mut program = Program::new(seed);
        program.run();
        told += u32::from(program.told);
        read += u32::from(program.eof);
    });
    assert!(ran < 1000 || told > 50 && read > 50, "{told} were told, {read} have read the end");
}
