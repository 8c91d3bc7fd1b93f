//! The clocks of connections after a callback that runs for long: they begin when something begins,
//! and not with the turn.
//!
//! Of the promises on the page of the crate: P4.

use std::time::{Duration, Instant};

use crate::common::engine::{Loop, no_times, run_for, simulated};
use crate::common::turns::Turns;
use windlass::driver::OpCode;
use windlass::sim::Sim;
use windlass::{Completions, Watcher};
use windlass_serve::net::{Networks, Proxy};
use windlass_serve::{Action, Cause, Closed, Config, Conn, Context, Handler, Origin, Server};

const SECOND: Duration = Duration::from_secs(1);

/// The clock of a close begins with the time of the last wait, and not with the close.
#[test]
fn a_close_after_a_slow_callback_has_its_time() {
    let (sim, mut l) = simulated(no_times().close(4 * SECOND));
    let (_deaf, id) = l.pair();
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    run_for(&mut l, 20 * SECOND);
    // A callback that takes three seconds, and then closes.
    sim.advance(3 * SECOND);
    l.engine.close(id);
    let start = sim.now();
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| !l.ends.is_empty());
    let took = l.now() - start;
    assert!(took >= 4 * SECOND, "{took:?}: {:?}", l.ends);
}

#[test]
fn output_after_a_slow_callback_has_its_time() {
    let (sim, mut l) = simulated(no_times().write_stall(4 * SECOND));
    let (_deaf, id) = l.pair();
    run_for(&mut l, 20 * SECOND);
    sim.advance(3 * SECOND);
    l.engine.write(id, vec![0; 4 << 20]).unwrap();
    let start = sim.now();
    l.engine.flush(&mut l.watcher);
    l.until("it has ended", |l| !l.ends.is_empty());
    let took = l.now() - start;
    assert!(took >= 4 * SECOND, "{took:?}: {:?}", l.ends);
}

/// The time of a handshake begins with the last wait, and not with the accept.
#[test]
fn a_handshake_after_a_slow_callback_has_its_time() {
    let sim = Sim::new(1);
    let proxy = Proxy::v1().timeout(4 * SECOND).from("127.0.0.0/8".parse::<Networks>().unwrap());
    let proxy: &'static Proxy = Box::leak(Box::new(proxy));
    let mut l = Loop::on(Watcher::simulated(&sim), Config::new().limits(no_times()).proxy(proxy));
    l.client();
    let mut start = None;
    while start.is_none() {
        let mut done = Completions::new();
        l.watcher.wait(&mut done).unwrap();
        let all: Vec<_> = done.drain(..).collect();
        if all.iter().any(|c| c.code() == OpCode::Accept) {
            // A connection that opens before in this batch, and whose callback takes its time.
            l.watcher.now();
            sim.advance(3 * SECOND);
            start = Some(sim.now());
        }
        for c in all {
            let _ = l.engine.complete(&mut l.watcher, c);
        }
        while l.engine.next_event(&mut l.watcher).is_some() {}
        l.engine.flush(&mut l.watcher);
    }
    assert_eq!(l.engine.len(), 1);
    l.until("it is refused", |l| l.engine.is_empty());
    let took = l.now() - start.unwrap();
    assert!(took >= 4 * SECOND, "{took:?}");
}

/// The same in a server: the callback `opened` takes three seconds, and then writes.
#[test]
fn output_of_a_slow_callback_of_a_server_has_its_time() {
    struct Slow(Sim, Option<Instant>, Option<(Cause, Instant)>);
    impl Handler for Slow {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            self.0.advance(3 * SECOND);
            c.write(vec![0; 4 << 20]);
            self.1 = Some(self.0.now());
            Action::None
        }
        fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
            self.2 = Some((closed.cause, self.0.now()));
            Action::None
        }
    }
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let config = Config::new().limits(no_times().write_stall(4 * SECOND));
    let server = Server::new(|_| Slow(sim.clone(), None, None)).config(config);
    let server = server.listen("tcp://127.0.0.1:0").unwrap();
    let mut server = server.start_on(&mut watcher).unwrap();
    let address = watcher.local_address(server.engine().listeners()[0]).unwrap();
    watcher.connect([address], Default::default()).unwrap();
    let mut done = Completions::new();
    while server.handler().2.is_none() {
        watcher.wait(&mut done).unwrap();
        server.serve(&mut watcher, &mut done);
    }
    let (cause, end) = server.handler().2.unwrap();
    assert_eq!(cause, Cause::WriteStall);
    let took = end - server.handler().1.unwrap();
    assert!(took >= 4 * SECOND, "{took:?}");
}
