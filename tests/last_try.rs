//! C4 in the simulation: an operation whose deadline has passed gets one last try, even if the
//! kernel has more events than one wait takes. (For the system's selectors:
//! `conformance/sockets.rs`.)
#![allow(missing_docs)] // a test binary has no users

use std::time::Duration;

use windlass::fs::OpenOptions;
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::sim::{Faults, Sim};
use windlass::{Address, Completion, Completions, Done, ErrorKind, Op, Source, Watcher};

/// The number of sources with events: more than one wait of any selector takes. Here it takes one.
const SOURCES: usize = 100;

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
        let op = Op::write(scene.pairs[i].0, vec![0; 1 << 20]).timeout(Duration::from_millis(1));
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

/// A write has a deadline in the middle of a pause: the system has had no memory for it, and has
/// memory before the deadline. The write expired without another try.
#[test]
fn a_write_that_expires_in_a_pause_has_its_try() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        let mut watcher = Watcher::simulated(&sim);
        let (here, _there) = sim.pair();
        let here = watcher.attach(here).expect("room for a source");
        sim.set_faults(Faults { enobufs: 1.0, ..Faults::none() });
        let op = Op::write(here, "out").timeout(Duration::from_millis(20));
        watcher.submit(op).expect("accepted");
        let mut done = Completions::new();
        // The pauses double: the tries are at 0, 1, 3, 7, 15 and 31 ms.
        let come = watcher.wait_timeout(&mut done, Duration::from_millis(17));
        assert_eq!(come.expect("a wait"), 0);
        sim.set_faults(Faults::none());
        watcher.wait(&mut done).expect("a wait");
        let c = done.drain(..).next().expect("one");
        assert!(matches!(c.result, Ok(Done::Written { bytes: 3, .. })), "no try: {c:?}");
    }
}

/// A range and a write behind it expire while a thread reads for the range. Their last tries find
/// that it still reads. (Without a word of that to the loop they would be tried for ever.)
#[test]
fn what_waits_for_a_fetch_expires() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.write_file("file", [7; 9000]);
        sim.drop_caches();
        let mut watcher = Watcher::simulated(&sim);
        let mut done = Completions::new();
        watcher.submit(Op::open("file", OpenOptions::new().read(true))).expect("accepted");
        watcher.wait(&mut done).expect("a wait");
        let Ok(Done::Opened(file)) = done.drain(..).next().expect("one").result else { panic!() };
        let file = watcher.attach(file).expect("room for a source");
        let (here, there) = sim.pair();
        let [here, there] = [here, there].map(|end| watcher.attach(end).expect("room"));
        sim.drop_caches();
        sim.set_job_time(Duration::from_secs(60));
        let range = Op::send_file(here, file, 0, 9000);
        watcher.submit(range.timeout(Duration::from_millis(3)).token(3)).expect("accepted");
        let write = Op::write(here, "behind").timeout(Duration::from_millis(1)).token(1);
        watcher.submit(write).expect("accepted");
        watcher.submit(Op::writable(here).timeout(Duration::from_millis(2)).token(2)).unwrap();
        watcher.submit(Op::write(here, "last").token(4)).expect("accepted");
        let mut ends = Vec::new();
        while ends.len() < 4 {
            watcher.wait(&mut done).expect("a wait");
            ends.extend(done.drain(..).map(|c| (c.token, c.error_kind())));
        }
        let late = Some(ErrorKind::Deadline);
        assert_eq!(ends, [(1, late), (2, late), (3, late), (4, None)]);
        watcher.submit(Op::read(there)).expect("accepted");
        watcher.wait(&mut done).expect("a wait");
        let Ok(Done::Read(data)) = done.drain(..).next().expect("one").result else { panic!() };
        assert_eq!(&*data, b"last", "nothing of what has expired is out");
    }
}

/// Two connects, one of a source and one of a socket, find no room at a Unix listener, and expire
/// in a pause. There is room before that. Both expired without another try.
#[test]
fn a_connect_that_expires_in_a_pause_has_its_try() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let mut done = Completions::new();
    let address = Address::unix("listener").expect("a name");
    let options = ListenOptions::default().backlog(1);
    let listener = watcher.listen_with(address.clone(), options).expect("a listener");
    for _ in 0..2 {
        watcher.submit(Op::connect(address.clone())).expect("accepted");
    }
    while done.len() < 2 {
        watcher.wait(&mut done).expect("a wait");
    }
    let filled: Vec<_> = done.drain(..).map(|c| c.result.expect("connected")).collect();
    let timeout = Duration::from_millis(20);
    watcher.submit(Op::connect(address.clone()).timeout(timeout).token(1)).expect("accepted");
    let options = ConnectOptions::default().timeout(timeout).token(2);
    watcher.connect([address], options).expect("accepted");
    // As above: the next tries are at 31 ms.
    let come = watcher.wait_timeout(&mut done, Duration::from_millis(17));
    assert_eq!(come.expect("a wait"), 0);
    watcher.submit(Op::accept(listener).multishot().token(3)).expect("accepted");
    let mut ends = Vec::new();
    while ends.len() < 2 {
        watcher.wait(&mut done).expect("a wait");
        ends.extend(done.drain(..).filter(|c| c.token < 3).map(|c| (c.token, c.error_kind())));
    }
    assert_eq!(ends, [(1, None), (2, None)], "no try");
    drop(filled);
}

/// Operations of every other kind wait, and what they wait for comes. Their times are over when the
/// loop looks, and it takes one event a wait: the last tries take the rest. There are more sources
/// than one wait of any selector takes.
#[test]
fn what_has_come_wins_for_every_kind() {
    const SIGNAL: i32 = 10;
    const EACH: usize = 70;
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.write_file("file", [7; 9000]);
        sim.set_file_time(Duration::from_millis(1));
        let config = Watcher::builder().events_per_wait(1).config();
        let mut watcher = Watcher::simulated_with(&sim, config);
        let mut peers = Watcher::simulated(&sim);
        let mut done = Completions::new();
        watcher.submit(Op::open("file", OpenOptions::new().read(true))).expect("accepted");
        watcher.wait(&mut done).expect("a wait");
        let Ok(Done::Opened(file)) = done.drain(..).next().expect("one").result else { panic!() };
        let file = watcher.attach(file).expect("room for a source");
        sim.drop_caches();
        let at = ([127, 0, 0, 1], 7007);
        let listener = peers.listen(at).expect("a listener");
        let (mut waiting, mut pids) = (Vec::new(), Vec::new());
        for i in 0..EACH {
            let signals = watcher.signals(&[SIGNAL]).expect("room for a source");
            let pid = sim.spawn();
            let child = watcher.child(pid).expect("room for a source");
            pids.push(pid);
            let mut submit = |op: Op| waiting.push(watcher.submit(op).expect("accepted"));
            submit(Op::signal(signals));
            submit(Op::child_exit(child));
            submit(Op::read_at(file, vec![0; 100], 100 * i as u64));
            submit(Op::connect(at));
            waiting.push(watcher.connect([at], ConnectOptions::default()).expect("accepted").1);
        }
        // The loop begins to wait for them. Hardly any has come.
        watcher.try_wait(&mut done).expect("a wait");
        waiting.retain(|&ticket| watcher.is_in_flight(ticket).expect("it can tell"));
        assert!(waiting.len() > 4 * EACH, "{} wait", waiting.len());
        done.clear();
        assert_eq!(sim.raise(SIGNAL), EACH);
        pids.into_iter().for_each(|pid| assert!(sim.exit(pid, 0)));
        // The network and the disk do their part.
        sim.advance(Duration::from_secs(1));
        peers.submit(Op::accept(listener).multishot()).expect("accepted");
        peers.wait(&mut Completions::new()).expect("a wait");
        for &ticket in &waiting {
            watcher.reschedule(ticket, Duration::ZERO).expect("it is in flight");
        }
        let mut ended = 0;
        while ended < waiting.len() {
            watcher.wait(&mut done).expect("a wait");
            for c in done.drain(..) {
                assert!(c.result.is_ok() && !c.is_late(), "no try: {c:?}");
                ended += 1;
            }
        }
    }
}
