//! The end of the input that is held back comes once.
//!
//! Of the promises on the page of the crate: P1.

use std::time::Duration;

use crate::common::engine::Loop;
use crate::common::turns::Turns;
use crate::common::{Harness, bench};
use windlass::Op;
use windlass::driver::Driver;
use windlass_serve::{Action, Config, Conn, Handler, Id, Limits, Origin, Server};

crate::every_driver! {
    an_end_of_the_input_that_was_held_comes_once
    a_held_end_has_one_callback
}

fn config() -> Config {
    let limits = Limits::new().idle(None).write_stall(None).connect(None);
    Config::new().limits(limits).close_on_eof(false)
}

fn run<D: Driver>(l: &mut Loop<D>, span: Duration) {
    l.engine.flush(&mut l.watcher);
    l.run_for(span);
}

/// An end that is held back is not noted, so that a flush between the resume and the event reads
/// once more. The stream ends once more.
fn an_end_of_the_input_that_was_held_comes_once<T: Harness>() {
    let mut l = Loop::new::<T>(config());
    let (client, id) = l.pair();
    l.engine.pause(id);
    l.watcher.submit(Op::shutdown(client)).unwrap();
    run(&mut l, T::span(1.0));
    l.engine.resume(id); // in a completion of the program, for example
    run(&mut l, T::span(1.0));
    let ends = l.told.iter().filter(|told| **told == "eof").count();
    assert_eq!(ends, 1, "{:?}", l.told);
}

/// The same in a server: `postwrite` resumes.
fn a_held_end_has_one_callback<T: Harness>() {
    #[derive(Default)]
    struct Ends(Option<Id>, usize);
    impl Handler for Ends {
        type State = ();
        fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
            self.0 = Some(c.id());
            c.pause();
            Action::None
        }
        fn wake(&mut self, c: &mut Conn<'_, ()>) -> Action {
            c.write("answer");
            Action::None
        }
        fn postwrite(&mut self, c: &mut Conn<'_, ()>, _: usize, _: usize) -> Action {
            c.resume(); // the answer is out: the next request
            Action::None
        }
        fn eof(&mut self, _: &mut Conn<'_, ()>) -> Action {
            self.1 += 1;
            Action::None
        }
    }
    let server = Server::new(|_| Ends::default()).config(config());
    let mut b = bench::<T, _, _>(server.listen("tcp://127.0.0.1:0").unwrap());
    let client = b.connect();
    b.until("it is open", |b| b.running.handler().0.is_some());
    b.finish(client);
    b.run_for(T::span(1.0));
    let id = b.running.handler().0.unwrap();
    b.running.remote().wake(id);
    b.run_for(T::span(1.0));
    assert_eq!(b.running.handler().1, 1);
}
