//! Jobs and look-ups: when they run, how they end, and what names stand for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;
use crate::words::error::{Limit, Refusal};

/// The order in which twenty jobs end, when the last one does, and the hash of the run.
fn order(seed: u64) -> (Vec<u64>, Duration, u64) {
    let sim = Sim::new(seed);
    let mut watcher = watcher(&sim);
    let start = sim.now();
    for i in 0..20u64 {
        let op = if i % 5 == 0 { Op::lookup_host("localhost", 80) } else { Op::run(move || i * i) };
        watcher.submit(op.token(i)).unwrap();
    }
    assert_eq!(watcher.counters().queued_jobs, 20);
    let mut ends = Vec::new();
    while ends.len() < 20 {
        for c in wait(&mut watcher) {
            assert!(!c.is_late());
            match c.result.unwrap() {
                Done::Returned(value) => {
                    assert_eq!(value.downcast::<u64>().unwrap(), c.token * c.token);
                }
                Done::Addresses(found) => assert_eq!(found, [([127, 0, 0, 1], 80).into()]),
                other => panic!("{other:?}"),
            }
            ends.push(c.token);
        }
    }
    let counters = watcher.counters();
    assert_eq!((counters.queued_jobs, counters.running_jobs, counters.in_flight), (0, 0, 0));
    assert_eq!((counters.calls("job"), counters.calls("lookup")), (32, 8));
    (ends, sim.now() - start, sim.trace_hash())
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn jobs_run_in_virtual_time_as_the_seed_says() {
    let mut orders = BTreeSet::new();
    for seed in 0..10 {
        let (ends, spent, hash) = order(seed);
        assert_eq!(order(seed), (ends.clone(), spent, hash));
        assert!(spent > Duration::from_micros(200) && spent < Duration::from_millis(3));
        assert!(orders.insert(ends), "seed {seed} has the order of another one");
    }
}

#[test]
fn a_job_that_was_not_begun_ends_at_once() {
    let sim = Sim::new(1);
    sim.set_job_time(HOUR * 100);
    let mut watcher = watcher(&sim);
    let start = sim.now();
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let job = Op::run(move || count.fetch_add(1, Relaxed));
    let ticket = watcher.submit(job).unwrap();
    assert!(watcher.cancel(ticket));
    assert!(!watcher.cancel(ticket));
    assert_eq!(Arc::strong_count(&ran), 1, "its closure is dropped");
    let c = wait_one(&mut watcher);
    assert_eq!((c.error_kind(), c.is_late()), (Some(ErrorKind::Cancelled), false));
    for op in [Op::run(|| 1), Op::lookup_host("localhost", 1)] {
        watcher.submit(op.timeout(Duration::from_millis(1))).unwrap();
        let c = wait_one(&mut watcher);
        assert_eq!((c.error_kind(), c.is_late()), (Some(ErrorKind::Deadline), false));
    }
    assert!(sim.now() - start < Duration::from_millis(3));
    assert_eq!(ran.load(Relaxed), 0);
    assert_eq!(watcher.counters().in_flight, 0);
}

/// C4: a job that has begun ends with its result, and its completion is marked as late.
#[test]
fn a_job_that_has_begun_ends_late() {
    for seed in 0..5 {
        let sim = Sim::new(seed);
        sim.set_job_time(Duration::from_millis(100));
        let mut watcher = watcher(&sim);
        let ran = Arc::new(AtomicU32::new(0));
        for closes in [false, true] {
            let count = Arc::clone(&ran);
            let before = ran.load(Relaxed);
            let ticket = watcher.submit(Op::run(move || count.fetch_add(1, Relaxed))).unwrap();
            let mut done = Completions::new();
            while ran.load(Relaxed) == before {
                watcher.wait_timeout(&mut done, Duration::from_millis(1)).unwrap();
            }
            if done.is_empty() {
                assert_eq!(watcher.counters().running_jobs, 1);
                if closes {
                    watcher.close();
                } else {
                    assert!(watcher.cancel(ticket));
                }
                watcher.wait(&mut done).unwrap();
                assert!(done.drain(..).all(|c| c.is_late() && c.result.is_ok()));
            }
        }
        let closed = watcher.wait(&mut Completions::new()).unwrap_err();
        assert_eq!(Refusal::of(&closed), Some(Refusal::Closed));
        assert_eq!(ran.load(Relaxed), 2);
    }
}

#[test]
fn jobs_are_bounded_and_dropped_with_their_watcher() {
    let sim = Sim::new(1);
    sim.set_patience(Duration::ZERO);
    let mut watcher = Watcher::simulated_with(&sim, Watcher::builder().max_jobs(2).config());
    let alive = Arc::new(());
    let job = || {
        let alive = Arc::clone(&alive);
        Op::run(move || drop(alive))
    };
    watcher.submit(job()).unwrap();
    watcher.submit(job()).unwrap();
    let refused = watcher.submit(job().token(9)).unwrap_err();
    assert_eq!(refused.reason, Refusal::Full { limit: Limit::Jobs, count: 2 });
    assert_eq!(Arc::strong_count(&alive), 4, "it comes back whole");
    while watcher.counters().in_flight > 0 {
        wait(&mut watcher);
    }
    watcher.submit(refused.into_inner()).unwrap();
    assert_eq!(wait_one(&mut watcher).token, 9);
    assert_eq!(Arc::strong_count(&alive), 1);
    watcher.submit(job()).unwrap();
    watcher.submit(job()).unwrap();
    drop(watcher);
    assert_eq!(Arc::strong_count(&alive), 1);
    // A watcher that is closed ends each job.
    let mut watcher = Watcher::simulated(&sim);
    watcher.submit(job()).unwrap();
    watcher.close();
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Closed));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_panic_of_a_job_is_its_error() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    watcher.submit(Op::run(|| -> u64 { panic!("plain words") })).unwrap();
    let error = wait_one(&mut watcher).result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(&*error.into_buf(), b"plain words");
}

#[test]
fn other_threads_submit_jobs() {
    let sim = Sim::new(1);
    let mut watcher = Watcher::simulated(&sim);
    let submitter = watcher.submitter();
    let thread = std::thread::spawn(move || submitter.submit(Op::run(|| 7u8)).unwrap());
    let c = wait_one(&mut watcher);
    assert_eq!(c.ticket(), thread.join().unwrap());
    let Ok(Done::Returned(value)) = c.result else { panic!("{:?}", c.result) };
    assert_eq!(value.downcast::<u8>().unwrap(), 7);
}

#[test]
fn look_ups_answer_from_the_table() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let six: IpAddr = "2001:db8::7".parse().unwrap();
    sim.host("Server.Example.", [six, [10, 0, 0, 7].into()]);
    let mut look_up = |host: &str| {
        watcher.submit(Op::lookup_host(host, 80)).unwrap();
        match wait_one(&mut watcher).result {
            Ok(Done::Addresses(found)) => Ok(found),
            Err(error) => Err(error.kind()),
            other => panic!("{other:?}"),
        }
    };
    let found: [SocketAddr; 2] = [(six, 80).into(), ([10, 0, 0, 7], 80).into()];
    for name in ["server.example", "SERVER.EXAMPLE", "server.example."] {
        assert_eq!(look_up(name).unwrap(), found);
    }
    assert_eq!(look_up("192.0.2.7").unwrap(), [([192, 0, 2, 7], 80).into()]);
    assert_eq!(look_up("localhost").unwrap(), [([127, 0, 0, 1], 80).into()]);
    for (name, errno) in [
        ("", libc::ENOENT),
        ("other.example", libc::ENOENT),
        ("server.example.example", libc::ENOENT),
        ("server.example\0", libc::EINVAL),
    ] {
        assert_eq!(look_up(name), Err(ErrorKind::Os(errno)), "{name:?}");
    }
    sim.set_faults(Faults { lookup_failed: 1.0, ..Faults::none() });
    assert_eq!(look_up("server.example"), Err(ErrorKind::Os(libc::EAGAIN)));
    assert_eq!(sim.injected().lookup_failed, 1);
    sim.set_faults(Faults::none());
    sim.host("server.example", [0u32; 0].map(std::net::Ipv4Addr::from));
    assert_eq!(look_up("server.example"), Err(ErrorKind::Os(libc::ENOENT)));

    sim.host("back.example", [[10, 0, 0, 8]]);
    for (ip, name) in [([10, 0, 0, 8], "back.example"), ([10, 0, 0, 9], "10.0.0.9")] {
        watcher.submit(Op::lookup_addr((ip, 443).into())).unwrap();
        let Ok(Done::HostName(found)) = wait_one(&mut watcher).result else { panic!() };
        assert_eq!((found.host.as_str(), found.service.as_str()), (name, "443"));
    }
}
