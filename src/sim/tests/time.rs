//! Virtual time in the simulation.

use super::*;
use crate::driver::config::Config;
use crate::driver::endpoint::DatagramOptions;
use crate::{Address, Buf};

/// The timer of a program that always has work still fires, whether the program resubmits nops for
/// ever or posts messages for ever. The same seed still gives the same run.
#[test]
#[cfg_attr(miri, ignore = "300,000 turns: too slow")]
fn a_busy_program_still_sees_its_timer() {
    const SPAN: Duration = Duration::from_millis(50);
    let run = |posts: bool, turn: Option<Duration>| {
        let sim = Sim::with_faults(3, Faults::none());
        let mut watcher = watcher(&sim);
        if let Some(turn) = turn {
            sim.set_turn(turn);
        }
        let (submitter, start) = (watcher.submitter(), sim.now());
        watcher.submit(Op::timer(SPAN)).unwrap();
        let busy = |watcher: &mut Simulated| {
            if posts {
                submitter.post(1, ()).unwrap();
            } else {
                watcher.submit(Op::nop()).unwrap();
            }
        };
        busy(&mut watcher);
        for turns in 1..=100_000_u32 {
            for c in wait(&mut watcher) {
                match c.result.unwrap() {
                    Done::Timer => {
                        assert!(sim.now() >= start + SPAN);
                        return (turns, sim.now() - start, sim.trace_hash());
                    }
                    _ => busy(&mut watcher),
                }
            }
        }
        panic!("no timer in 100,000 turns; {:?} have passed", sim.now() - start);
    };
    for posts in [false, true] {
        let (turns, passed, _) = run(posts, None);
        assert!(turns > 1000 && passed < 2 * SPAN, "{turns} turns took {passed:?}");
        let slow = run(posts, Some(Duration::from_millis(1)));
        assert!((50..60).contains(&slow.0), "{} turns of a millisecond", slow.0);
        assert_eq!(run(posts, Some(Duration::from_millis(1))), slow);
    }
    assert_eq!(run(false, None), run(false, None));
}

/// Every turn takes time; a wait for a distant time ends exactly then.
#[test]
fn a_turn_takes_its_time() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let mut done = Completions::new();
    for (span, takes) in [(0, 1), (7, 7), (5000, 5000)].map(|(a, b)| (a, Duration::from_nanos(b))) {
        sim.set_turn(Duration::from_nanos(span));
        let start = sim.now();
        assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
        assert_eq!(sim.now(), start + takes, "a turn of {span} ns");
        assert_eq!(watcher.wait_timeout(&mut done, HOUR).unwrap(), 0);
        assert_eq!(sim.now(), start + takes + HOUR);
    }
}

/// The clock counts nanoseconds for 584 years. A timeout that passes shortly before its last one
/// is met.
#[test]
fn an_idle_timeout_is_met_at_the_end_of_time() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (a, _b) = sim.pair();
    let a = watcher.attach(a).unwrap();
    // The simulation has begun at one second.
    sim.advance(Duration::from_nanos(u64::MAX) - Duration::from_millis(1200));
    watcher.submit(Op::read(a)).unwrap();
    watcher.set_idle_timeout(a, Some(Duration::from_millis(1))).unwrap();
    sim.advance(Duration::from_millis(190));
    assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Deadline));
}

/// The delay between two attempts to connect is virtual, and the same in each run.
#[test]
fn attempts_to_connect_are_a_delay_apart() {
    let run = || {
        let sim = Sim::new(5);
        let mut watcher = watcher(&sim);
        let backlog = ListenOptions::default().backlog(0);
        let silent = ([10, 0, 0, 1], 80);
        watcher.listen_with(silent, backlog).unwrap();
        // This connect takes the only slot in the backlog.
        watcher.submit(Op::connect(silent)).unwrap();
        let [c] = wait(&mut watcher).try_into().expect("one completion");
        let _client = c.result.unwrap();
        watcher.listen(([10, 0, 0, 2], 80)).unwrap();
        let start = sim.now();
        let list = [([10, 0, 0, 1], 80), ([10, 0, 0, 1], 80), ([10, 0, 0, 2], 80)];
        let (source, _) = watcher.connect(list, ConnectOptions::default()).unwrap();
        let [c] = wait(&mut watcher).try_into().expect("one completion");
        assert_eq!(c.source, source);
        assert!(matches!(c.result, Ok(Done::Connected(_))), "{c:?}");
        (sim.now() - start, sim.trace_hash())
    };
    let (took, hash) = run();
    let two = Duration::from_millis(500);
    assert!(took >= two && took < two + Duration::from_millis(5), "{took:?}");
    assert_eq!(run(), (took, hash), "the same seed, another run");
}

/// The last source with an idle timeout closes as soon as its time is up, because its last bytes go
/// out then, and the sweep has more slots than one turn looks at. The sweep went on without a
/// source, and the loop slept beyond the timeout of the next one.
#[test]
#[cfg_attr(miri, ignore = "33,000 sources are slow")]
fn the_sweep_may_close_the_last_source_with_a_timeout() {
    let sim = Sim::new(1);
    sim.set_buffer(10);
    let config = Config { events_per_wait: 1, ..Config::default() };
    let mut watcher = Watcher::simulated_with(&sim, config);
    sim.set_patience(Duration::ZERO);
    let pair = |watcher: &mut Simulated| {
        let (here, there) = sim.pair();
        [here, there].map(|end| watcher.attach(end).unwrap())
    };
    let ([closes, peer], [other, to_other]) = (pair(&mut watcher), pair(&mut watcher));
    let mut last = other;
    while last.index() < 33_000 {
        [last, _] = pair(&mut watcher);
    }
    // From now on the sweep looks at all these slots.
    watcher.set_idle_timeout(last, Some(HOUR)).unwrap();
    watcher.set_idle_timeout(closes, Some(Duration::from_millis(10))).unwrap();
    watcher.set_idle_timeout(last, None).unwrap();
    for op in [Op::read(closes), Op::read(other), Op::write(closes, vec![7; 20]), Op::close(closes)]
    {
        watcher.submit(op).unwrap();
    }
    let mut done = Completions::new();
    // One sweep, in two turns, finds that no byte has moved since. The next one is due.
    for span in [90, 0, 90].map(Duration::from_millis) {
        assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
        sim.advance(span);
    }
    // Two events, of which a wait takes one.
    watcher.submit(Op::write(to_other, "x")).unwrap();
    watcher.submit(Op::read(peer)).unwrap();
    let mut codes = BTreeSet::new();
    while !codes.contains("Close") {
        codes.extend(wait(&mut watcher).into_iter().map(|c| format!("{:?}", c.code())));
    }
    assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
    let [next, _peer] = pair(&mut watcher);
    watcher.set_idle_timeout(next, Some(Duration::from_millis(10))).unwrap();
    watcher.submit(Op::read(next)).unwrap();
    let start = sim.now();
    loop {
        let left = wait(&mut watcher);
        if left.iter().any(|c| c.source == next && c.error_kind() == Some(ErrorKind::Deadline)) {
            break;
        }
    }
    assert!(sim.now() - start < Duration::from_millis(120), "{:?}", sim.now() - start);
}

/// A wait that takes one event leaves another one with the kernel. The idle timeout of that one's
/// source has passed, but its bytes are there: the read gets them, whatever the order.
#[test]
fn bytes_whose_event_waits_win_over_an_idle_timeout() {
    for bytes_first in [false, true] {
        let sim = Sim::new(1);
        let config = Config { events_per_wait: 1, ..Config::default() };
        let mut watcher = Watcher::simulated_with(&sim, config);
        let ends = [sim.pair(), sim.pair()]
            .map(|(here, there)| (watcher.attach(here).unwrap(), watcher.attach(there).unwrap()));
        let [(idle, to_idle), (other, to_other)] = ends;
        watcher.set_idle_timeout(idle, Some(Duration::from_millis(10))).unwrap();
        for (source, token) in [(idle, 1), (other, 2)] {
            watcher.submit(Op::read(source).token(token)).unwrap();
        }
        let mut done = Completions::new();
        assert_eq!(watcher.try_wait(&mut done).unwrap(), 0);
        sim.advance(Duration::from_secs(1));
        let peers = if bytes_first { [to_idle, to_other] } else { [to_other, to_idle] };
        for peer in peers {
            watcher.submit(Op::write(peer, "x").token(3)).unwrap();
        }
        let mut left = 4;
        while left > 0 {
            for c in wait(&mut watcher) {
                assert!(c.result.is_ok(), "{c:?}");
                left -= 1;
            }
        }
        assert_eq!(watcher.counters().idle_timeouts, 0);
    }
}

/// The pauses of a write grow while the system has no memory for it. A part of it goes out, so the
/// next pause is short. It was as long as the longest one.
#[test]
fn a_pause_after_progress_is_short() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.set_buffer(1000);
        let mut watcher = watcher(&sim);
        let (here, there) = attach_pair(&mut watcher, &sim);
        let mut done = Completions::new();
        let mut pass = |watcher: &mut Simulated, ms| {
            let count = watcher.wait_timeout(&mut done, Duration::from_millis(ms)).unwrap();
            assert_eq!(count, 0, "{done:?}");
        };
        let no_memory = || Faults { enobufs: 1.0, ..Faults::none() };
        sim.set_faults(no_memory());
        watcher.submit(Op::write(here, vec![7; 5000])).unwrap();
        // The tries are at 0, 1, 3, 7, 15, 31 and 63 ms.
        pass(&mut watcher, 40);
        assert_eq!(sim.injected().enobufs, 6);
        sim.set_faults(Faults::none());
        pass(&mut watcher, 25);
        let mut bytes = [0; 1000];
        assert_eq!(watcher.recv(there, &mut bytes).unwrap(), 1000);
        sim.set_faults(no_memory());
        pass(&mut watcher, 1);
        assert!(sim.injected().enobufs > 6);
        sim.set_faults(Faults::none());
        // The longest pause would last for 32 ms.
        pass(&mut watcher, 5);
        assert_eq!(watcher.recv(there, &mut bytes).unwrap(), 1000);
    }
}

/// Signals interrupt every call, without end. A call of the program was made again for ever, and a
/// write 262,144 times a turn.
#[test]
fn calls_that_are_always_interrupted_end() {
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        let mut watcher = watcher(&sim);
        let (here, there) = attach_pair(&mut watcher, &sim);
        assert_eq!(watcher.send(there, b"there").unwrap(), 5);
        sim.set_faults(Faults { eintr: 1.0, ..Faults::none() });
        let mut bytes = [0; 9];
        for round in 1..9 {
            let error = watcher.recv(here, &mut bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(watcher.send(here, b"!").is_err());
            // `readable` completes, because bytes are there, but only after a pause.
            let start = sim.now();
            watcher.submit(Op::readable(here)).unwrap();
            wait_one(&mut watcher);
            assert!(sim.now() - start >= Duration::from_micros(900), "round {round}");
        }
        assert!(sim.injected().eintr < 2000, "{:?}", sim.injected());
        let before = sim.injected().eintr;
        watcher.submit(Op::write(there, "!")).unwrap();
        watcher.try_wait(&mut Completions::new()).unwrap();
        let tries = sim.injected().eintr - before;
        assert!(tries < 1000, "{tries} tries of a write");
        sim.set_faults(Faults::none());
        wait_one(&mut watcher);
        assert_eq!(watcher.recv(here, &mut bytes).unwrap(), 6);
    }
}

/// Signals interrupt every call of an operation. The operation is tried again, and the loop rests
/// meanwhile. A datagram was received again for ever in one turn, and streams let no loop sleep.
#[test]
fn operations_that_are_always_interrupted_let_the_loop_rest() {
    type Make = fn(Source, &Address) -> Op;
    let streams: [Make; 7] = [
        |source, _| Op::read(source),
        |source, _| Op::read(source).multishot(),
        |source, _| Op::read_into(source, Vec::with_capacity(9)),
        |source, _| Op::read_exact(source, vec![0; 2], 2),
        |source, _| Op::read_append(source, Vec::with_capacity(9)),
        |source, _| Op::write(source, "ab"),
        |source, _| Op::write(source, Buf::list(["a", "b"])),
    ];
    let datagrams: [Make; 5] = [
        |source, _| Op::recv_from(source),
        |source, _| Op::recv_from(source).multishot(),
        |source, _| Op::recv_from_into(source, Vec::with_capacity(9)),
        |source, at| Op::send_to(source, "ab", at.clone()),
        |source, at| Op::send_to(source, "ab", at.clone()).deferred(),
    ];
    let all = streams.into_iter().map(|op| (op, true));
    let all = all.chain(datagrams.into_iter().map(|op| (op, false)));
    for (completing, (op, stream)) in
        [false, true].into_iter().flat_map(|c| all.clone().map(move |op| (c, op)))
    {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        let mut watcher = watcher(&sim);
        let (here, there, at) = if stream {
            let (here, there) = attach_pair(&mut watcher, &sim);
            (here, there, Address::from(ADDRESS))
        } else {
            let any = ([127, 0, 0, 1], 0);
            let here = watcher.bind_datagram(any, DatagramOptions::default()).unwrap();
            let there = watcher.bind_datagram(any, DatagramOptions::default()).unwrap();
            let at = watcher.local_address(here).unwrap();
            (here, there, at)
        };
        let other =
            if stream { Op::write(there, "ab") } else { Op::send_to(there, "ab", at.clone()) };
        watcher.submit(other).unwrap();
        wait_one(&mut watcher);
        sim.set_faults(Faults { eintr: 1.0, ..Faults::none() });
        let op = watcher.submit(op(here, &at)).unwrap();
        let mut done = Completions::new();
        assert_eq!(watcher.wait_timeout(&mut done, Duration::from_secs(1)).unwrap(), 0);
        let tries = sim.injected().eintr;
        assert!((100..1500).contains(&tries), "{tries} tries");
        sim.set_faults(Faults::none());
        let done = wait_one(&mut watcher);
        assert!(done.ticket() == op && done.result.is_ok(), "{done:?}");
        // One that goes on while signals come ends when it is told to.
        sim.set_faults(Faults { eintr: 1.0, ..Faults::none() });
        if done.has_more() {
            assert!(watcher.cancel(op));
            assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Cancelled));
        }
    }
}
