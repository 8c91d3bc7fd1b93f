//! Signals and children come when the test says, the same way each time.

use super::*;
use crate::sys::signals::{SIGTERM, SIGUSR1, SIGUSR2};
use crate::words::error::Refusal;

/// Signals, children and timers in one run: the completions in order, and the hash of the trace.
fn run(seed: u64, faults: Faults, last: i32) -> (Vec<String>, u64) {
    let sim = Sim::with_faults(seed, faults);
    let mut watcher = Watcher::simulated(&sim);
    let mut other = Watcher::simulated(&sim);
    let signals = watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
    let others = other.signals(&[SIGUSR1]).unwrap();
    watcher.submit(Op::signal(signals).multishot()).unwrap();
    other.submit(Op::signal(others).multishot()).unwrap();
    let pids: Vec<u32> = (0..4).map(|_| sim.spawn()).collect();
    for &pid in &pids {
        let child = watcher.child(pid).unwrap();
        watcher.submit(Op::child_exit(child)).unwrap();
    }
    for at in 1..=8 {
        watcher.submit(Op::timer(Duration::from_millis(at)).token(at)).unwrap();
    }
    let (mut done, mut told) = (Completions::new(), Vec::new());
    while told.len() < 8 + 4 + 4 {
        watcher.wait(&mut done).unwrap();
        for c in done.drain(..) {
            match c.token {
                at @ 1..=4 => assert!(sim.exit(pids[at as usize - 1], at as u8)),
                5 => assert_eq!(sim.raise(SIGUSR2), 1),
                6 => assert_eq!(sim.raise(SIGUSR1), 2),
                7 => assert_eq!(sim.raise(SIGUSR2), 1),
                8 => assert!(sim.raise(last) > 0),
                _ => {}
            }
            told.push(format!("{:?} {:?}", c.token, c.result));
        }
    }
    while other.try_wait(&mut done).unwrap() > 0 {}
    let times = if last == SIGUSR1 { 1..=2 } else { 1..=1 };
    assert!(times.contains(&done.len()), "{done:?}");
    (told, sim.trace_hash())
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn a_run_with_signals_and_children_is_repeatable() {
    for faults in [Faults::none as fn() -> Faults, || Faults::transient(0.3)] {
        for seed in 1..8 {
            let first = run(seed, faults(), SIGUSR2);
            assert_eq!(first, run(seed, faults(), SIGUSR2));
            assert_ne!(first.1, run(seed, faults(), SIGUSR1).1, "another signal, the same hash");
        }
    }
}

#[test]
fn what_is_injected_is_in_the_hash() {
    let hash = |inject: fn(&Sim)| {
        let sim = Sim::new(1);
        let mut watcher = Watcher::simulated(&sim);
        watcher.signals(&[SIGUSR1, SIGUSR2]).unwrap();
        inject(&sim);
        sim.trace_hash()
    };
    let hashes = [
        hash(|_| {}),
        hash(|sim| assert_eq!(sim.raise(SIGUSR1), 1)),
        hash(|sim| assert_eq!(sim.raise(SIGUSR2), 1)),
        // A process of the system would have ended.
        hash(|sim| assert_eq!(sim.raise(SIGTERM), 0)),
        hash(|sim| assert!(sim.spawn() > 0)),
        hash(|sim| assert!(sim.exit(sim.spawn(), 0))),
        hash(|sim| assert!(sim.exit(sim.spawn(), 1))),
        hash(|sim| assert!(sim.kill(sim.spawn(), SIGTERM))),
        hash(|sim| assert!(!sim.exit(1, 0))),
    ];
    let different: std::collections::BTreeSet<u64> = hashes.into_iter().collect();
    assert_eq!(different.len(), hashes.len());
}

#[test]
fn the_history_and_the_report_tell_of_them() {
    let sim = Sim::new(1);
    sim.set_history(100);
    let mut watcher = Watcher::simulated(&sim);
    let signals = watcher.signals(&[SIGUSR1]).unwrap();
    let pid = sim.spawn();
    let child = watcher.child(pid).unwrap();
    assert!(!sim.report().contains("not taken") && !sim.report().contains("not reaped"));
    sim.raise(SIGUSR1);
    sim.exit(pid, 3);
    let report = sim.report();
    assert!(report.contains("signals: not taken"), "{report}");
    assert!(report.contains(&format!("child {pid}: has ended, not reaped")), "{report}");
    watcher.submit(Op::signal(signals)).unwrap();
    watcher.submit(Op::child_exit(child)).unwrap();
    let report = sim.report();
    assert!(!report.contains("not taken") && !report.contains("not reaped"), "{report}");
    let history = sim.history();
    let told = [
        "sigaction the process".to_owned(),
        format!("signal {SIGUSR1} comes to 1 sources"),
        format!("child {pid} is started"),
        format!("child {pid}: exit "),
        format!("waitid child {pid}"),
    ];
    for text in told {
        assert!(history.contains(&text), "{text:?} is not in\n{history}");
    }
}

#[test]
fn a_child_ends_once() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let pid = sim.spawn();
    assert_ne!(pid, sim.spawn());
    assert!(sim.exit(pid, 0));
    assert!(!sim.exit(pid, 1) && !sim.kill(pid, SIGTERM));
    let child = watcher.child(pid).unwrap();
    watcher.submit(Op::child_exit(child)).unwrap();
    let mut done = Completions::new();
    watcher.wait(&mut done).unwrap();
    let Some(Ok(Done::Exited(status))) = done.drain(..).next().map(|c| c.result) else {
        panic!("it has ended");
    };
    assert!(status.success());
    assert_eq!(watcher.child(pid), Err(Refusal::Os(libc::ECHILD)));
    assert!(!sim.exit(pid, 0), "it was reaped");
}

#[test]
#[should_panic(expected = "a signal that a program can handle")]
fn what_cannot_be_handled_cannot_be_raised() {
    Sim::new(1).raise(libc::SIGSEGV);
}

/// A status made of a number that is no signal would say that the child has ended well, or is
/// stopped.
#[test]
fn only_a_signal_kills() {
    let sim = Sim::new(1);
    let pid = sim.spawn();
    for signal in [0, -1, 65, 127, 128, i32::MIN, i32::MAX] {
        let killed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.kill(pid, signal)));
        assert!(killed.is_err(), "{signal} is no signal: {killed:?}");
    }
    // No handler can take signal 9, but the signal ends a process.
    assert!(sim.kill(pid, 9), "it runs still");
}
