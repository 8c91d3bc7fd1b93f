//! Several watchers that take turns; notes and random numbers; the error when no event is left.

use super::*;
use crate::words::error::Refusal;

/// Three clients and a server, each in a watcher of its own: what the server has heard, in order,
/// and the hash of the run.
fn heard(seed: u64, faults: &Faults) -> (Vec<u8>, u64) {
    let sim = Sim::with_faults(seed, faults.clone());
    let mut watchers: Vec<Watcher> = (0..4).map(|_| watcher(&sim)).collect();
    let listener = watchers[0].listen(ADDRESS).unwrap();
    watchers[0].submit(Op::accept(listener).multishot()).unwrap();
    for client in &mut watchers[1..] {
        client.connect([ADDRESS], ConnectOptions::default()).unwrap();
    }
    let mut all: Vec<&mut Watcher> = watchers.iter_mut().collect();
    let mut bytes = Vec::new();
    let heard = sim.run(&mut all, |who, watcher, c| {
        match c.result? {
            Done::Accepted(socket) => {
                assert_eq!(who, 0);
                let source = watcher.attach(socket)?;
                watcher.submit(Op::read(source).multishot())?;
            }
            Done::Connected(_) => drop(watcher.submit(Op::write(c.source, vec![who as u8; 2]))?),
            Done::Read(data) => bytes.extend_from_slice(&data),
            Done::Written { .. } => {}
            other => panic!("{other:?}"),
        }
        Ok((bytes.len() == 6).then(|| std::mem::take(&mut bytes)))
    });
    (heard.unwrap(), sim.trace_hash())
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn watchers_take_turns_in_an_order_of_the_seed() {
    let mut orders = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    for seed in 0..30 {
        for faults in [Faults::none(), Faults::transient(0.2)] {
            let (bytes, hash) = heard(seed, &faults);
            assert_eq!(heard(seed, &faults), (bytes.clone(), hash));
            let mut sorted = bytes.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [1, 1, 2, 2, 3, 3]);
            orders.insert(bytes);
            hashes.insert(hash);
        }
    }
    assert!(orders.len() > 3, "{orders:?}");
    assert!(hashes.len() > 40, "{}", hashes.len());
}

#[test]
fn a_deadlock_says_what_waits() {
    let sim = Sim::new(1);
    let (mut a, mut b) = (watcher(&sim), watcher(&sim));
    let listener = a.listen(ADDRESS).unwrap();
    a.submit(Op::accept(listener).token(77)).unwrap();
    let (ours, theirs) = sim.pair();
    let theirs = b.attach(theirs).unwrap();
    let ours = a.attach(ours).unwrap();
    b.submit(Op::write(theirs, "unread")).unwrap();
    b.submit(Op::read(theirs).timeout(HOUR)).unwrap();
    for _ in 0..30 {
        a.submit(Op::poll(ours, Ready::PRIORITY)).unwrap();
    }
    let start = sim.now();
    let mut ends = 0;
    let error = sim.run::<()>(&mut [&mut a, &mut b], |_, _, _| {
        ends += 1;
        Ok(None)
    });
    let error = error.unwrap_err();
    // The write, and the deadline of the read: time has passed until then.
    assert_eq!((error.kind(), ends), (io::ErrorKind::Deadlock, 2));
    assert!(sim.now() >= start + HOUR);
    let text = error.to_string();
    for part in
        ["watcher 0: ", "watcher 1: 0 operations", "Accept on ", "127.0.0.1:7007", "token 77"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("6 bytes unread"), "{text}");
    assert!(text.lines().count() < 60 && text.contains("more\n"), "{text}");
    assert!(sim.report().contains("6 bytes unread"));
}

#[test]
fn a_run_ends_at_its_time_limit() {
    let sim = Sim::new(1);
    sim.set_time_limit(HOUR);
    let mut watcher = watcher(&sim);
    watcher.submit(Op::timer(Duration::from_secs(10))).unwrap();
    let mut beats = 0;
    let error = sim.run::<()>(&mut [&mut watcher], |_, watcher, _| {
        beats += 1;
        watcher.submit(Op::timer(Duration::from_secs(10)))?;
        Ok(None)
    });
    let error = error.unwrap_err();
    assert_eq!((error.kind(), beats), (io::ErrorKind::TimedOut, 360));
    assert!(error.to_string().contains("Timer, token 0"), "{error}");
}

#[test]
fn a_run_ends_with_an_error_a_stranger_or_when_all_are_closed() {
    let sim = Sim::new(1);
    let (mut a, mut b) = (watcher(&sim), watcher(&sim));
    a.submit(Op::nop()).unwrap();
    let error = sim.run::<()>(&mut [&mut a], |_, _, _| Err(io::Error::other("mine")));
    assert_eq!(error.unwrap_err().to_string(), "mine");
    let mut stranger = watcher(&Sim::new(1));
    let error = sim.run::<()>(&mut [&mut a, &mut stranger], |_, _, _| Ok(None)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("watcher 1"), "{error}");
    // A closed watcher delivers its completions, and does not keep others from running.
    a.submit(Op::timer(HOUR)).unwrap();
    b.submit(Op::timer(Duration::from_secs(1))).unwrap();
    a.close();
    let mut ends = Vec::new();
    let error = sim.run::<()>(&mut [&mut a, &mut b], |who, watcher, c| {
        ends.push((who, c.error_kind()));
        watcher.close();
        Ok(None)
    });
    assert_eq!(Refusal::of(&error.unwrap_err()), Some(Refusal::Closed));
    assert_eq!(ends, [(0, Some(ErrorKind::Closed)), (1, None)]);
    // There is no watcher to wait for.
    let error = sim.run::<()>(&mut [], |_, _, _| Ok(None)).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
}

/// C1: what a run has not handed out stays for the next run, or the next wait, in its order.
#[test]
fn a_run_that_ends_loses_no_completion() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let listener = watcher.listen(ADDRESS).unwrap();
    watcher.submit(Op::accept(listener).token(9)).unwrap();
    for token in 1..=4 {
        watcher.submit(Op::nop().token(token)).unwrap();
    }
    let first = sim.run(&mut [&mut watcher], |_, _, c| Ok(Some(c.token)));
    assert_eq!(first.unwrap(), 1);
    let counters = watcher.counters();
    assert_eq!((counters.completed, counters.undelivered, counters.in_flight), (1, 3, 1));
    // What the program submits now ends behind them.
    watcher.submit(Op::nop().token(5)).unwrap();
    let failed = sim.run::<()>(&mut [&mut watcher], |_, _, c| {
        assert_eq!(c.token, 2);
        Err(io::Error::other("mine"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "mine");
    let rest: Vec<u64> = wait(&mut watcher).iter().map(|c| c.token).collect();
    assert_eq!(rest, [3, 4, 5]);
    assert_eq!(watcher.counters().completed, 5);
    // A connection that was taken back needs its place, as others in the driver do.
    watcher.submit(Op::nop().token(6)).unwrap();
    watcher.connect([ADDRESS], ConnectOptions::default()).unwrap();
    let mut ends = Vec::new();
    while ends.len() < 3 {
        let token = sim.run(&mut [&mut watcher], |_, _, c| Ok(Some(c.token))).unwrap();
        ends.push(token);
    }
    ends.sort_unstable();
    assert_eq!(ends, [0, 6, 9]);
}

/// A watcher that is not in the list has events, but does not run.
#[test]
fn a_watcher_outside_the_run_is_no_reason_to_go_on() {
    let sim = Sim::new(1);
    let (mut inside, mut outside) = (watcher(&sim), watcher(&sim));
    let (a, b) = sim.pair();
    let (a, b) = (inside.attach(a).unwrap(), outside.attach(b).unwrap());
    outside.submit(Op::read(b)).unwrap();
    outside.try_wait(&mut Completions::new()).unwrap();
    inside.submit(Op::write(a, "to nobody")).unwrap();
    inside.submit(Op::read(a)).unwrap();
    let error = sim.run::<()>(&mut [&mut inside], |_, _, _| Ok(None)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
}

#[test]
fn other_threads_keep_a_run_going() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let submitter = watcher.submitter();
    let thread = std::thread::spawn(move || {
        let_the_loop_sleep();
        submitter.post(9, "from outside").unwrap();
    });
    let token = sim.run(&mut [&mut watcher], |_, _, c| Ok(Some(c.token))).unwrap();
    assert_eq!(token, 9);
    thread.join().unwrap();
}

#[test]
fn numbers_are_apart_from_faults() {
    let run = |draws: u32| {
        let sim = Sim::with_faults(5, Faults::transient(0.3));
        let numbers: Vec<u64> = (0..draws).map(|_| sim.random()).collect();
        assert_eq!(echo(&sim, &pattern(5000), 500), pattern(5000));
        (numbers, sim.trace_hash(), sim.injected())
    };
    let (few, many) = (run(1), run(100));
    assert_eq!(few.0[..], many.0[..1]);
    assert_eq!((few.1, few.2), (many.1, many.2));
    assert_ne!(Sim::new(1).random(), Sim::new(2).random());
    let sim = Sim::new(1);
    let drawn: BTreeSet<u64> = (0..100).map(|_| sim.random_below(6)).collect();
    assert_eq!(drawn, (0..6).collect());
    assert!(std::panic::catch_unwind(|| Sim::new(1).random_below(0)).is_err());
}

#[test]
fn notes_are_in_the_hash() {
    let hash = |notes: &[&str]| {
        let sim = Sim::new(1);
        for note in notes {
            sim.note(note);
        }
        sim.trace_hash()
    };
    let all = [&[][..], &["a"], &["b"], &["a", "b"], &["b", "a"], &["ab"], &["a\0"], &["", "a"]];
    let hashes: BTreeSet<u64> = all.iter().map(|notes| hash(notes)).collect();
    assert_eq!(hashes.len(), all.len());
    assert_eq!(hash(&["elected", "3"]), hash(&["elected", "3"]));
}

/// A read that waits for memory is cancelled and submitted again, as often as the program likes:
/// the queue of the sources that wait stays short. It had a name for each of these reads.
#[test]
fn reads_that_are_cancelled_leave_no_names_behind() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.set_patience(Duration::ZERO);
        let config = Watcher::builder().buffer_size(4096).swap_limit(8192).config();
        let mut watcher = Watcher::simulated_with(&sim, config);
        let (here, there) = attach_pair(&mut watcher, &sim);
        let mut held = Vec::new();
        for i in 1..=2 {
            watcher.submit(Op::write(there, vec![7; 4096])).unwrap();
            watcher.submit(Op::read(here)).unwrap();
            while held.len() < 2 * i {
                held.extend(wait(&mut watcher));
            }
        }
        let mut most = 0;
        for _ in 0..1000 {
            let read = watcher.submit(Op::read(here)).unwrap();
            watcher.try_wait(&mut Completions::new()).unwrap();
            most = most.max(watcher.counters().waiting_sources);
            assert!(watcher.cancel(read));
            wait_one(&mut watcher);
        }
        assert!(most < 100, "{most} names of one source wait");
    }
}

/// A read that waited for memory is cancelled: nothing holds up a wait for two completions. The
/// wait returned with the first.
#[test]
fn a_read_that_was_cancelled_holds_no_wait_up() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.set_patience(Duration::ZERO);
        let config = Watcher::builder().buffer_size(4096).swap_limit(4096).config();
        let mut watcher = Watcher::simulated_with(&sim, config);
        let (here, there) = attach_pair(&mut watcher, &sim);
        watcher.submit(Op::write(there, vec![7; 4096])).unwrap();
        watcher.submit(Op::read(here)).unwrap();
        let mut held = Vec::new();
        while held.len() < 2 {
            held.extend(wait(&mut watcher));
        }
        let read = watcher.submit(Op::read(here)).unwrap();
        watcher.try_wait(&mut Completions::new()).unwrap();
        assert_eq!(watcher.counters().waiting_sources, 1);
        assert!(watcher.cancel(read));
        watcher.submit(Op::timer(Duration::from_secs(1))).unwrap();
        let mut done = Completions::new();
        assert_eq!(watcher.wait_at_least(&mut done, 2, HOUR).unwrap(), 2);
        assert_eq!(watcher.counters().waiting_sources, 0);
    }
}
