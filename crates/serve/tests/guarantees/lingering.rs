//! The last answer arrives, whatever the peer still says; on every driver.
//!
//! Of the promises on the page of the crate: P2, P3 and P4.

use std::time::Duration;

use crate::common;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Bench, Harness, bench};
use windlass::{Buf, Op, Source};
use windlass_serve::{
    Action, Cause, Closed, Config, Conn, Context, Handler, Limits, Phase, Server,
};

crate::every_driver! {
    an_answer_outlives_input_that_nobody_reads
    input_after_the_close_does_not_destroy_the_answer
    a_paused_connection_reads_on_when_it_closes
    a_peer_that_stays_is_closed_in_time
    a_peer_that_has_ended_does_not_wait
    without_lingering_the_close_is_at_once
    a_farewell_outlives_what_the_peer_has_said
    a_shutdown_reports_phases
    output_that_is_given_up_ends_with_a_reset
    a_farewell_reaches_a_peer_that_has_ended_its_side
    a_farewell_that_is_given_up_ends_with_a_reset
    a_slow_reader_gets_all_of_the_last_answer
}

/// Answers the first data, and closes.
#[derive(Default)]
struct Once {
    closed: Vec<(Cause, usize, Phase)>,
}

const ANSWER: usize = 1 << 20;

impl Handler for Once {
    type State = ();
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        c.write(vec![b'a'; ANSWER]);
        Action::Close
    }
    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        self.closed.push((closed.cause, closed.unsent, closed.phase));
        Action::None
    }
}

fn once(limits: Limits) -> Server<impl Fn(usize) -> Once> {
    Server::new(|_| Once::default()).limits(limits).listen("tcp://127.0.0.1:0").unwrap()
}

fn patient<T: Harness>() -> Limits {
    Limits::new().linger(T::span(2000.0)).close(T::span(2000.0))
}

/// The client goes on sending while the server answers and closes, and reads only afterwards.
fn an_answer_outlives_input_that_nobody_reads<T: Harness>() {
    let mut bench = bench::<T, _, _>(once(patient::<T>()));
    let client = bench.connect_deaf();
    for _ in 0..20 {
        bench.say(client, vec![b'?'; 1 << 20]);
    }
    bench.run_for(T::span(20.0));
    bench.hear(client);
    bench.until("the client hears the end", |bench| bench.client(client).is_over());
    let client = bench.client(client);
    assert_eq!((client.error, client.heard.len(), client.eof), (None, ANSWER, true));
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let closed = &bench.running.handler().closed;
    assert!(matches!(closed[..], [(Cause::Closed, 0, _)]), "{closed:?}");
}

/// The client says more when the server has sent everything, and has heard nothing yet.
fn input_after_the_close_does_not_destroy_the_answer<T: Harness>() {
    let mut bench = bench::<T, _, _>(once(patient::<T>()));
    let client = bench.connect_deaf();
    bench.say(client, "g");
    bench.run_for(T::span(5.0));
    for _ in 0..10 {
        bench.say(client, "more");
        bench.run_for(T::span(1.0));
    }
    bench.hear(client);
    bench.until("the client hears the end", |bench| bench.client(client).is_over());
    let client = bench.client(client);
    assert_eq!((client.error, client.heard.len(), client.eof), (None, ANSWER, true));
}

/// Its input is held back, and nothing reads the rest: until it closes.
fn a_paused_connection_reads_on_when_it_closes<T: Harness>() {
    struct Pauses;
    impl Handler for Pauses {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
            c.pause();
            Action::None
        }
    }
    let server = Server::new(|_| Pauses).limits(patient::<T>());
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = bench.connect_deaf();
    for _ in 0..20 {
        bench.say(client, vec![b'?'; 1 << 20]);
    }
    bench.until("data is held", |bench| bench.running.engine().budget().used() > 0);
    bench.run_for(T::span(5.0));
    let id = bench.running.engine().ids().next().expect("it is open");
    bench.running.engine().write(id, vec![b'a'; ANSWER]).unwrap();
    assert!(bench.running.engine().close(id));
    bench.running.turn(&mut bench.watcher);
    bench.run_for(T::span(5.0));
    bench.hear(client);
    bench.until("the client hears the end", |bench| bench.client(client).is_over());
    let client = bench.client(client);
    assert_eq!((client.error, client.heard.len(), client.eof), (None, ANSWER, true));
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.engine().budget().used(), 0);
}

fn a_peer_that_stays_is_closed_in_time<T: Harness>() {
    let limits = Limits::new().linger(T::span(50.0)).close(T::span(500.0));
    let mut bench = bench::<T, _, _>(once(limits));
    let client = bench.connect();
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    bench.say(client, "g");
    bench.until("the client hears the end", |bench| bench.client(client).eof);
    let start = bench.watcher.update_now();
    assert!(bench.running.handler().closed.is_empty(), "it waits for its peer");
    bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
    let took = bench.watcher.update_now() - start;
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0, Phase::Lingering)]);
    // The time runs from the shutdown on, which the client has heard of a little later.
    assert!(took > T::span(30.0) && took < T::span(400.0), "{took:?}");
}

fn a_peer_that_has_ended_does_not_wait<T: Harness>() {
    let limits = Limits::new().linger(Duration::from_secs(3600));
    let mut bench = bench::<T, _, _>(once(limits));
    for _ in 0..3 {
        let client = bench.connect();
        bench.say(client, "g");
        bench.finish(client);
        bench.clients.all.get_mut(&client).unwrap().stays = true;
        bench.until("the client hears the end", |bench| bench.client(client).eof);
        bench.until("it is closed", |bench| bench.running.engine().is_empty());
    }
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0, Phase::Closing); 3]);
}

fn without_lingering_the_close_is_at_once<T: Harness>() {
    let mut bench = bench::<T, _, _>(once(Limits::new().linger(Duration::ZERO)));
    let client = bench.connect();
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    bench.say(client, "g");
    bench.until("the client hears the end", |bench| bench.client(client).eof);
    bench.until("it is closed", |bench| bench.running.engine().is_empty());
    assert_eq!(bench.running.handler().closed, [(Cause::Closed, 0, Phase::Closing)]);
}

fn a_farewell_outlives_what_the_peer_has_said<T: Harness>() {
    let limits = Limits::new().connections(0).linger(T::span(100.0));
    let config = Config::new().limits(limits).farewell(b"the server is full\n");
    let server = Server::new(|_| Once::default()).config(config);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let mut clients = Vec::new();
    for _ in 0..20 {
        let client = bench.connect_deaf();
        for _ in 0..10 {
            bench.say(client, vec![b'?'; 100_000]);
        }
        clients.push(client);
    }
    bench.until("all are refused", |bench| bench.running.report().counters.refused == 20);
    bench.run_for(T::span(5.0));
    for client in &clients {
        bench.hear(*client);
        bench.until("the client hears the end", |bench| bench.client(*client).is_over());
        let client = bench.client(*client);
        assert_eq!((client.error, client.eof), (None, true));
        assert_eq!(client.heard, b"the server is full\n");
    }
    // One that stays is closed all the same.
    let client = bench.connect();
    bench.clients.all.get_mut(&client).unwrap().stays = true;
    bench.until("it hears the end", |bench| bench.client(client).eof);
    bench.run_for(T::span(250.0));
    assert_eq!(bench.watcher.counters().in_flight, 1, "the accept, and nothing of the refused");
}

/// What a shutdown gives up is listed with what it was doing.
fn a_shutdown_reports_phases<T: Harness>() {
    #[derive(Default)]
    struct Loud;
    impl Handler for Loud {
        type State = ();
        fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
            c.write(vec![0; 30 << 20]); // once: what is said is one byte, which comes whole
            match data[0] {
                b'c' => Action::Close,
                b'd' => Action::Detach,
                _ => Action::None,
            }
        }
    }
    let limits = Limits::new().close(T::span(100.0));
    let server = Server::new(|_| Loud).limits(limits).listen("tcp://127.0.0.1:0").unwrap();
    let mut bench = bench::<T, _, _>(server);
    for said in ["o", "c", "d"] {
        let client = bench.connect_deaf();
        bench.say(client, said);
        bench.run_for(T::span(5.0));
    }
    let ids: Vec<_> = {
        let mut ids: Vec<_> = bench.running.engine().ids().collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids.len(), 3);
    bench.running.remote().shutdown();
    bench.until("it is over", |bench| bench.running.is_over());
    let mut left = bench.running.report().unfinished;
    left.sort_by_key(|left| left.id);
    let phases: Vec<_> = left.iter().map(|left| (left.id, left.phase)).collect();
    let expected = [Phase::Open, Phase::Closing, Phase::Detaching];
    assert_eq!(phases, ids.into_iter().zip(expected).collect::<Vec<_>>());
    assert!(left.iter().all(|left| left.unsent > 0));
}

/// The same of an engine: a connect that was never made.
#[test]
fn a_connect_that_fails_has_its_phase() {
    let mut l = Loop::new::<common::Simulated>(Config::new());
    let nowhere = ([127, 0, 0, 1], 9);
    let id = l.engine.connect([nowhere], windlass::net::ConnectOptions::default(), ()).unwrap();
    l.engine.write(id, "hello").unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it has failed", |l| !l.ends.is_empty());
    assert!(matches!(l.ends[..], [(Cause::Os(_), 5, Phase::Connecting)]), "{:?}", l.ends);
    let (client, id) = l.pair();
    l.engine.close(id);
    l.watcher.submit(Op::write(client, "unheard").token(1)).unwrap();
    l.engine.flush(&mut l.watcher);
    l.until("it is closed", |l| l.ends.len() == 2);
    assert_eq!(l.ends[1], (Cause::Closed, 0, Phase::Lingering));
}

/// The peer got a part of the output, and behind it a clean end: it could not tell the part from
/// all of it.
fn output_that_is_given_up_ends_with_a_reset<T: Harness>() {
    let causes = [Cause::Aborted, Cause::WriteStall, Cause::Closed, Cause::Shutdown];
    for cause in causes {
        let limits = Limits::new().linger(T::span(50.0)).close(T::span(50.0));
        let limits = limits.write_stall((cause == Cause::WriteStall).then(|| T::span(50.0)));
        let mut bench = bench::<T, _, _>(once(limits));
        let client = bench.connect_deaf();
        bench.until("it is open", |bench| bench.running.engine().len() == 1);
        let id = bench.running.engine().ids().next().unwrap();
        bench.running.engine().write(id, vec![b'a'; 20 * ANSWER]).unwrap();
        bench.running.turn(&mut bench.watcher);
        match cause {
            Cause::Aborted => assert!(bench.running.engine().abort(id)),
            Cause::Closed => assert!(bench.running.engine().close(id)),
            Cause::Shutdown => bench.running.remote().shutdown(),
            _ => {}
        }
        bench.running.turn(&mut bench.watcher);
        bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
        let (told, unsent, _) = bench.running.handler().closed[0];
        assert!(told == cause && unsent > 0, "{cause:?}: {told:?} with {unsent} bytes");
        bench.hear(client);
        bench.until("the client hears the end", |bench| bench.client(client).is_over());
        let client = bench.client(client);
        assert!(!client.eof && client.heard.len() < 20 * ANSWER, "{cause:?}: a clean end");
    }
}

/// Refuses a client that does not read so far, with a farewell that the kernel does not take.
fn refuse<T: Harness>(limits: Limits, ends: bool) -> (Bench<T::Driver, Once>, Source) {
    static LONG: [u8; FAREWELL] = [b'f'; FAREWELL];
    let config = Config::new().limits(limits.connections(0)).farewell(&LONG);
    let server = Server::new(|_| Once::default()).config(config);
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = bench.connect_deaf();
    if ends {
        bench.finish(client);
    }
    bench.until("it is refused", |bench| bench.running.report().counters.refused == 1);
    (bench, client)
}

const FAREWELL: usize = 20 * ANSWER;

/// A peer that has ended its side may still read. Before, it got a reset.
fn a_farewell_reaches_a_peer_that_has_ended_its_side<T: Harness>() {
    let (mut bench, client) = refuse::<T>(Limits::new().linger(Duration::from_secs(60)), true);
    bench.run_for(T::span(1.0));
    bench.hear(client);
    bench.until("the client hears the end", |bench| bench.client(client).is_over());
    let client = bench.client(client);
    assert_eq!((client.error, client.eof, client.heard.len()), (None, true, FAREWELL));
}

/// The same for a connection without a place: its peer does not take the farewell.
fn a_farewell_that_is_given_up_ends_with_a_reset<T: Harness>() {
    for (linger, close) in [(50.0, 50.0), (50.0, 90.0), (90.0, 50.0), (0.0, 50.0)] {
        for ends in [false, true] {
            let limits = Limits::new().linger(T::span(linger)).close(T::span(close));
            let (mut bench, client) = refuse::<T>(limits, ends);
            bench.until("it is given up", |bench| bench.watcher.counters().in_flight == 1);
            bench.hear(client);
            bench.until("the client hears the end", |bench| bench.client(client).is_over());
            let client = bench.client(client);
            assert!(!client.eof && client.heard.len() < FAREWELL, "a clean end");
        }
    }
}

/// The client takes far longer than the limit of a close, but never stops reading. After the limit
/// the rest of the answer was lost. (Only virtual time is sure to pass as the test says.)
fn a_slow_reader_gets_all_of_the_last_answer<T: Harness>() {
    let (limit, pause) = match T::VIRTUAL {
        true => (T::span(100.0), T::span(10.0)),
        false => (Duration::from_secs(60), Duration::from_millis(1)),
    };
    for ends in [false, true] {
        let limits = Limits::new().linger(T::span(50.0)).close(limit);
        let mut bench = bench::<T, _, _>(once(limits));
        let client = bench.connect_deaf();
        bench.say(client, "g");
        if ends {
            bench.finish(client);
        }
        bench.until("it closes", |bench| bench.running.engine().budget().used() > 0);
        let start = bench.watcher.update_now();
        let mut heard = 0;
        while heard < ANSWER {
            let read = Op::read_into(client, Vec::with_capacity(ANSWER / 40)).token(3);
            let read = bench.watcher.submit(read).unwrap();
            let c = loop {
                let mut done = windlass::Completions::new();
                bench.watcher.wait_timeout(&mut done, common::PATIENCE).unwrap();
                let mut found = None;
                for c in done.drain(..) {
                    if c.ticket() == read {
                        found = Some(c);
                    } else if let Some(c) = bench.running.complete(&mut bench.watcher, c) {
                        bench.clients.take(&mut bench.watcher, c);
                    }
                }
                bench.running.turn(&mut bench.watcher);
                if let Some(c) = found {
                    break c;
                }
            };
            assert!(c.result.is_ok() && c.bytes() > 0, "{heard} of {ANSWER}: {c:?}");
            heard += c.bytes();
            bench.run_for(pause);
        }
        let took = bench.watcher.update_now() - start;
        assert!(!T::VIRTUAL || took > 2 * limit, "{took:?}");
        bench.hear(client);
        bench.until("it is closed", |bench| !bench.running.handler().closed.is_empty());
        let (cause, unsent, _) = bench.running.handler().closed[0];
        assert_eq!((cause, unsent), (Cause::Closed, 0));
        assert_eq!(bench.client(client).error, None);
    }
}
