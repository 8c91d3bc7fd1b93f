//! The memory that a burst of calls leaves behind.

use std::time::Duration;

use crate::alloc;
use crate::common::engine::Loop;
use crate::common::turns::Turns;
use windlass::driver::{Auto, Deadline};
use windlass::sim::Sim;
use windlass::{Op, Watcher};
use windlass_serve::{Config, Id, Limits};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than a test runs.
const LONG: Duration = Duration::from_secs(100_000);

fn run(l: &mut Loop<Auto>, span: Duration) {
    l.engine.flush(&mut l.watcher);
    l.run_for(span);
}

/// How many bytes are left when 5000 connections have called `begin`, and later `end`.
fn left(begin: impl Fn(&mut Loop<Auto>, Id), end: impl Fn(&mut Loop<Auto>, Id)) -> isize {
    let sim = Sim::new(1);
    let limits = Limits::new().idle(None).write_stall(None).connect(None);
    let mut l = Loop::on(Watcher::simulated(&sim), Config::new().limits(limits));
    let pairs: Vec<_> = (0..5000).map(|_| l.pair()).collect();
    // The tables of the watcher stay as long as they ever were.
    for _ in 0..5000 {
        l.watcher.submit(Op::timer(SECOND).token(9)).unwrap();
    }
    run(&mut l, 600 * SECOND);
    l.told = Vec::new();
    let before = alloc::live_bytes();
    for &(_, id) in &pairs {
        begin(&mut l, id);
    }
    run(&mut l, 10 * SECOND);
    for &(_, id) in &pairs {
        end(&mut l, id);
    }
    run(&mut l, 600 * SECOND);
    // The sweep looks while a connection holds bytes.
    assert!(l.engine.charge(pairs[0].1, 1));
    run(&mut l, 600 * SECOND);
    l.told = Vec::new();
    alloc::live_bytes() - before
}

/// The engine keeps nothing. The watcher, the test and the threads of jobs have tables, too.
fn is_little(left: isize) {
    assert!(left < 5000 * 80, "{left} bytes");
}

#[test]
fn limits_leave_no_memory() {
    let begin = |l: &mut Loop<Auto>, id| assert!(l.engine.limit(id, LONG, 0));
    is_little(left(begin, |l, id| assert!(l.engine.limit(id, None, 0))));
}

#[test]
fn deadlines_leave_no_memory() {
    let begin = |l: &mut Loop<Auto>, id| {
        assert!(l.engine.set_read_deadline(id, Deadline::After(LONG)));
    };
    is_little(left(begin, |l, id| assert!(l.engine.set_read_deadline(id, None))));
}

#[test]
fn idle_times_leave_no_memory() {
    let begin = |l: &mut Loop<Auto>, id| assert!(l.engine.set_idle_timeout(id, LONG));
    is_little(left(begin, |l, id| assert!(l.engine.set_idle_timeout(id, None))));
}

#[test]
fn charges_leave_no_memory() {
    let begin = |l: &mut Loop<Auto>, id| assert!(l.engine.charge(id, 1));
    is_little(left(begin, |l, id| assert!(l.engine.charge(id, 0))));
}

/// Each holds bytes for a while, and an empty charge all the time.
#[test]
fn charges_that_are_held_leave_no_memory() {
    let held = std::cell::RefCell::new(std::collections::HashMap::new());
    let begin = |l: &mut Loop<Auto>, id| {
        held.borrow_mut().insert(id, l.engine.hold(id, 1));
    };
    let end = |_: &mut Loop<Auto>, id: Id| held.borrow_mut().get_mut(&id).unwrap().set(0);
    let of_test = 100 * 5000; // the map
    let left = left(begin, end);
    assert!(left - of_test < 5000 * 80, "{left} bytes");
}

#[test]
fn jobs_leave_no_memory() {
    is_little(left(|l, id| l.engine.must_execute(id, || ()), |_, _| {}));
}

#[test]
fn requests_of_other_threads_leave_no_memory() {
    let begin = |l: &mut Loop<Auto>, id| {
        let remote = l.engine.remote(&mut l.watcher);
        assert!(remote.wake(id));
    };
    is_little(left(begin, |_, _| {}));
}
