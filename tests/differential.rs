//! One random program on every kernel: its sources must see the same results on each.
//!
//! The programs are deterministic by construction (exchanges in lock-step, half-closes, cancels of
//! idle reads, deadlines against silent peers, work on files that does not touch the same bytes,
//! jobs, threads with sources of their own …). So every kernel gives the same trace as a simulation
//! without faults: the selectors, io_uring, and simulations whose faults tear, delay and interrupt.
//! Results that are left to chance are not in the trace. The step checks them itself.
//!
//! A failure prints the values of `WINDLASS_SEED` and `WINDLASS_PROGRAMS` that repeat it.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

use std::cell::RefCell;

use proptest::prelude::*;
use windlass::sim::Faults;

#[path = "common/counts.rs"]
mod counts;
#[path = "common/programs.rs"]
mod programs;
#[path = "common/random_jobs.rs"]
mod random_jobs;
#[path = "common/seeds.rs"]
mod seeds;
mod differential {
    pub mod elsewhere;
    pub mod files;
    pub mod rig;
    pub mod steps;
    pub mod streams;
}
mod worlds;

use counts::Counts;
use differential::rig::Rig;
use differential::steps::{Trace, Turn, turn};
use programs::random;
use worlds::{Completed, Network, Poll, Real, Virtual, World};

/// The random programs test enough only if each of these cases happens in them.
const HAPPENS: [&str; 35] = [
    "Read",
    "ReadInto",
    "ReadExact",
    "Write",
    "Shutdown",
    "Close",
    "Accept",
    "Connect",
    "Poll",
    "Readable",
    "Timer",
    "SendFile",
    "send_file in parts",
    "open",
    "close",
    "read_at",
    "write_at",
    "sync_all",
    "sync_data",
    "sync_range",
    "set_len",
    "metadata of a file",
    "metadata of a name",
    "access",
    "rename",
    "remove_file",
    "hard_link",
    "disturbed",
    "aborted",
    "run, returned",
    "run, panicked",
    "run, cancelled",
    "message",
    "Write, by a submitter",
    "Write, of another thread",
];

/// These cases, too, with threads that submit while the loop waits.
const HAPPENS_ELSEWHERE: [&str; 9] = [
    "write_at, by a submitter",
    "write_at, of another thread",
    "run, of another thread",
    "SendFile, of another thread",
    "Write, while the loop waits",
    "Timer, while the loop waits",
    "Job, while the loop waits",
    "WriteAt, while the loop waits",
    "Read, while the loop waits",
];

fn run<W: World>(network: &Network, turns: &[Turn]) -> (Trace, Counts) {
    let mut rig = Rig::<W>::new(network);
    assert_eq!(rig.watcher.explain().driver, W::NAME);
    for turn in turns {
        rig.turn(turn);
    }
    rig.finish()
}

/// Runs programs on a kernel with each of these faults, and on a simulation without faults.
fn compare<W: World>(name: &str, faults: &[Faults]) {
    let program = (any::<u64>(), prop::collection::vec(turn(), 1..20));
    let all = RefCell::new(Counts::default());
    random(&format!("differential, {name}"), 150, 50, &program, |(seed, turns)| {
        let network = |faults| Network { seed, faults, buffer: 8 << 10 };
        let (plain, _) = run::<Virtual>(&network(Faults::none()), &turns);
        for faults in faults {
            let (seen, counts) = run::<W>(&network(faults.clone()), &turns);
            prop_assert_eq!(&seen, &plain, "{} and a simulation that behaves", name);
            all.borrow_mut().join(counts);
        }
        Ok(())
    });
    all.borrow().expect(150, HAPPENS.into_iter().chain(HAPPENS_ELSEWHERE));
}

/// The system's kernel has no faults.
fn compare_real<W: World>(name: &str) {
    compare::<W>(name, &[Faults::none()]);
}

#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
mod linux {
    use super::*;
    use crate::worlds::{Ring, Threads};

    #[test]
    fn epoll_shows_the_same() {
        compare_real::<Real>("epoll");
    }

    #[test]
    fn epoll_with_threads_shows_the_same() {
        compare_real::<Threads>("epoll with threads");
    }

    #[test]
    fn uring_shows_the_same() {
        compare_real::<Ring>("io_uring");
    }
}

#[cfg(any(windlass_kqueue, not(target_os = "linux")))]
#[test]
fn kqueue_shows_the_same() {
    compare_real::<Real>("kqueue");
}

#[test]
fn poll_shows_the_same() {
    compare_real::<Poll>("poll");
}

#[test]
fn a_simulation_with_faults_shows_the_same() {
    compare::<Virtual>("faults", &[0.1, 0.4].map(Faults::transient));
}

#[test]
fn a_simulation_that_completes_shows_the_same() {
    let faults = [Faults::none(), Faults::transient(0.1), Faults::transient(0.4)];
    compare::<Completed>("completions", &faults);
}
