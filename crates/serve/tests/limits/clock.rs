//! The clock of the loop, in callbacks without a watcher, on every driver.

use std::time::{Duration, Instant};

use crate::common::engine::{Loop, no_times, run_for};
use crate::common::{Harness, bench};
use windlass::{Address, Buf};
use windlass_serve::{Action, Closed, Config, Conn, Context, Handler, Origin, Server};

crate::every_driver! {
    callbacks_tell_the_time_of_the_watcher
    an_engine_tells_the_time_of_its_watcher
}

/// Notes when its callbacks run.
#[derive(Default)]
struct Times(Vec<(&'static str, Instant)>);

impl Handler for Times {
    type State = ();

    fn tick(&mut self, server: &mut Context<'_, ()>) -> (Option<Duration>, Action) {
        self.0.push(("tick", server.now()));
        (None, Action::None)
    }
    fn serving(&mut self, server: &mut Context<'_, ()>, _: &[Address]) -> Action {
        self.0.push(("serving", server.now()));
        Action::None
    }
    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        self.0.push(("opened", c.now()));
        Action::None
    }
    fn data(&mut self, c: &mut Conn<'_, ()>, _: Buf) -> Action {
        self.0.push(("data", c.now()));
        Action::Close
    }
    fn closed(&mut self, server: &mut Context<'_, ()>, _: Closed<()>) -> Action {
        self.0.push(("closed", server.now()));
        Action::None
    }
}

fn callbacks_tell_the_time_of_the_watcher<T: Harness>() {
    let server = Server::new(|_| Times::default()).config(Config::new().limits(no_times()));
    let mut bench = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let begun = bench.watcher.update_now();
    for (what, time) in &bench.running.handler().0 {
        assert!(*time <= begun && begun - *time < Duration::from_secs(600), "{what}");
    }
    let client = bench.connect();
    bench.until("it is open", |bench| bench.running.handler().0.len() == 3);
    // An hour, where it costs nothing.
    let idle = T::span(3600.0) / if T::VIRTUAL { 1 } else { 720 };
    bench.run_for(idle);
    let before = bench.watcher.update_now();
    bench.say(client, "hello");
    bench.until("it has ended", |bench| bench.running.handler().0.len() == 5);
    let after = bench.watcher.update_now();
    let times = std::mem::take(&mut bench.running.handler().0);
    let names: Vec<&str> = times.iter().map(|(what, _)| *what).collect();
    assert_eq!(names, ["tick", "serving", "opened", "data", "closed"]);
    assert!(times.windows(2).all(|two| two[0].1 <= two[1].1), "{times:?}");
    assert!(times[2].1 + idle <= times[3].1, "the idle time has passed");
    assert!(before <= times[3].1 && times[4].1 <= after);
}

fn an_engine_tells_the_time_of_its_watcher<T: Harness>() {
    let mut l = Loop::<T::Driver>::new::<T>(Config::new().limits(no_times()));
    for _ in 0..3 {
        let before = l.watcher.update_now();
        let between = l.engine.now();
        let after = l.watcher.update_now();
        assert!(before <= between && between <= after);
        assert!(!T::VIRTUAL || before == between, "virtual time stands still");
        run_for(&mut l, T::span(1.0));
        assert!(l.engine.now() - before >= T::span(1.0));
    }
}
