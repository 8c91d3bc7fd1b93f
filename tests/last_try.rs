//! C4 in the simulation: an operation whose deadline has passed gets one last try, even if the
//! kernel has more events than one wait takes. (For the system's selectors:
//! `conformance/sockets.rs`.)
#![allow(missing_docs)] // a test binary has no users

use std::time::Duration;

use windlass::sim::Sim;
use windlass::{Completion, Completions, Done, ErrorKind, Op, Source, Watcher};

/// The number of sources with events; a wait takes one event.
const SOURCES: usize = 8;

/// A watcher that takes one event per wait, a second watcher for the peers, and connections between
/// them.
struct Scene {
    sim: Sim,
    watcher: Watcher,
    peers: Watcher,
    pairs: Vec<(Source, Source)>,
}

impl Scene {
    fn new() -> Scene {
        let sim = Sim::new(1);
        let mut watcher =
            Watcher::simulated_with(&sim, Watcher::builder().events_per_wait(1).config());
        let mut peers = Watcher::simulated(&sim);
        let pairs = (0..SOURCES).map(|_| {
            let (here, there) = sim.pair();
            let here = watcher.attach(here).expect("room for a source");
            (here, peers.attach(there).expect("room for a source"))
        });
        let pairs = pairs.collect();
        Scene { sim, watcher, peers, pairs }
    }

    /// The next `count` completions of the watcher.
    fn take(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Completions::new();
        let mut all = Vec::new();
        while all.len() < count {
            let come = self.watcher.wait_timeout(&mut done, Duration::from_secs(60));
            assert!(come.expect("a wait") > 0, "{} of {count} ended", all.len());
            all.extend(done.drain(..));
        }
        all
    }

    /// Runs the peers, and not the watcher, until they are idle; returns the bytes they have read.
    fn run_peers(&mut self) -> usize {
        let mut done = Completions::new();
        let (mut read, mut idle) = (0, 0);
        // The network still has events for the watcher, which must not run.
        while idle < 1000 {
            idle += 1;
            if self.peers.try_wait(&mut done).expect("a wait") > 0 {
                read += done.drain(..).map(|c| c.bytes()).sum::<usize>();
                idle = 0;
            } else {
                self.sim.advance(Duration::from_micros(10));
            }
        }
        read
    }
}

#[test]
fn a_read_with_a_passed_deadline_has_its_try() {
    let mut scene = Scene::new();
    for i in 0..SOURCES {
        // Find every one empty, so that the driver waits for events.
        let op = Op::read(scene.pairs[i].0).timeout(Duration::from_millis(1));
        scene.watcher.submit(op).expect("accepted");
    }
    for c in scene.take(SOURCES) {
        assert_eq!(c.error_kind(), Some(ErrorKind::Deadline));
    }
    for &(_, there) in &scene.pairs {
        scene.peers.submit(Op::write(there, "there")).expect("accepted");
    }
    scene.run_peers();
    let past = scene.watcher.now() - Duration::from_nanos(1);
    for i in 0..SOURCES {
        scene.watcher.submit(Op::read(scene.pairs[i].0).deadline(past)).expect("accepted");
    }
    for c in scene.take(SOURCES) {
        let Ok(Done::Read(data)) = c.result else { panic!("no try: {c:?}") };
        assert_eq!(&*data, b"there");
    }
}

#[test]
fn a_write_with_a_passed_deadline_has_its_try() {
    let mut scene = Scene::new();
    for i in 0..SOURCES {
        let op = Op::write(scene.pairs[i].0, vec![0; 8 << 20]).timeout(Duration::from_millis(1));
        scene.watcher.submit(op).expect("accepted");
    }
    let mut sent = 0;
    for c in scene.take(SOURCES) {
        assert_eq!(c.error_kind(), Some(ErrorKind::Deadline), "the peer is silent");
        sent += c.bytes();
    }
    for &(_, there) in &scene.pairs {
        scene.peers.submit(Op::read(there).multishot()).expect("accepted");
    }
    assert_eq!(scene.run_peers(), sent, "the peers have read everything");
    let past = scene.watcher.now() - Duration::from_nanos(1);
    for i in 0..SOURCES {
        scene.watcher.submit(Op::write(scene.pairs[i].0, "x").deadline(past)).expect("accepted");
    }
    for c in scene.take(SOURCES) {
        assert!(matches!(c.result, Ok(Done::Written { bytes: 1, .. })), "no try: {c:?}");
    }
    assert_eq!(scene.run_peers(), SOURCES);
}
