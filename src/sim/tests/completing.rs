//! A kernel that completes: its answers, and its faults.

use super::*;
use crate::memory::buf::Buf;
use crate::words::error::Refusal;
use crate::words::source::Ticket;
use crate::words::table::LOOKED_THROUGH;

/// The faults that only such a kernel has.
pub(super) const FAULTS: [&str; 4] = ["no_buffer", "multishot_end", "lost_cancel", "late_cancel"];

fn completing(seed: u64, faults: Faults) -> Sim {
    let sim = Sim::with_faults(seed, faults);
    sim.set_completing(true);
    sim.set_patience(Duration::ZERO);
    sim
}

/// Reads that nothing comes for, single and multishot, are cancelled and end; then one reads bytes.
fn cancel_reads(sim: &Sim) {
    let mut watcher = watcher(sim);
    let (here, there) = attach_pair(&mut watcher, sim);
    let mut done = Completions::new();
    for round in 0..20 {
        let op = Op::read(here);
        let op = if round % 2 == 0 { op.multishot() } else { op };
        let ticket = watcher.submit(op).unwrap();
        watcher.wait_timeout(&mut done, Duration::from_micros(50)).unwrap();
        if !watcher.cancel(ticket) {
            continue;
        }
        while watcher.is_in_flight(ticket).unwrap() {
            watcher.wait(&mut done).unwrap();
        }
    }
    watcher.submit(Op::read(here).multishot().token(1)).unwrap();
    let mut bytes = 0;
    for _ in 0..20 {
        watcher.submit(Op::write(there, "ping")).unwrap();
        watcher.wait_timeout(&mut done, Duration::from_millis(20)).unwrap();
        for c in done.drain(..).filter(|c| c.token == 1) {
            let Ok(Done::Read(data)) = c.result else { panic!("{c:?}") };
            bytes += data.len();
        }
    }
    let wait = Duration::from_millis(50);
    while bytes < 80 && watcher.wait_timeout(&mut done, wait).unwrap() > 0 {
        let reads = done.drain(..).filter(|c| c.token == 1);
        bytes += reads.map(|c| c.bytes()).sum::<usize>();
    }
    assert_eq!(bytes, 80);
}

#[test]
#[cfg_attr(miri, ignore = "a mebibyte in small pieces: too slow")]
fn a_mebibyte_survives_a_kernel_that_completes() {
    let bytes = pattern(1 << 20);
    let mut injected = BTreeMap::new();
    for seed in 0..4 {
        let sim = completing(seed, Faults::transient(0.2));
        sim.set_buffer(4096 << seed);
        assert!(echo(&sim, &bytes, 1 << 20) == bytes, "seed {seed}");
        let faults = Faults { reset: 0.01, ..Faults::all(0.1) };
        let sim = completing(seed, faults.clone());
        sim.set_buffer(5000);
        assert!(echo(&sim, &bytes, 16 << 10) == bytes, "seed {seed}");
        // What is read at the end must not be lost.
        sim.set_faults(Faults { reset: 0.0, ..faults });
        cancel_reads(&sim);
        for (name, count) in sim.injected().named() {
            *injected.entry(name).or_insert(0) += count;
        }
    }
    injected.retain(|fault, _| !OF_BATCHES.contains(fault) && !files::FAULTS.contains(fault));
    assert!(injected.values().all(|count| *count > 0), "{injected:?}");
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn every_fault_of_a_kernel_that_completes_happens() {
    for name in FAULTS {
        let mut faults = Faults::none();
        let field = match name {
            "no_buffer" => &mut faults.no_buffer,
            "multishot_end" => &mut faults.multishot_end,
            "lost_cancel" => &mut faults.lost_cancel,
            "late_cancel" => &mut faults.late_cancel,
            other => panic!("{other}"),
        };
        *field = 0.3;
        let mut total = 0;
        for seed in 0..10 {
            let sim = completing(seed, faults.clone());
            assert!(echo(&sim, &pattern(5000), 500) == pattern(5000), "{name}");
            cancel_reads(&sim);
            total += sim.injected().total();
            for (other, count) in sim.injected().named() {
                assert!(count == 0 || other == name, "{other} with {name}");
            }
        }
        assert!(total > 0, "{name}");
    }
    let sim = completing(1, Faults::none());
    echo(&sim, &pattern(5000), 500);
    cancel_reads(&sim);
    assert_eq!(sim.injected().total(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn the_same_seed_is_the_same_run_of_a_kernel_that_completes() {
    let run = |seed| {
        let sim = completing(seed, Faults::all(0.05));
        assert_eq!(echo(&sim, &pattern(50_000), 5000), pattern(50_000));
        (sim.trace_hash(), sim.now(), sim.injected())
    };
    assert_eq!(run(1), run(1));
    let hashes: BTreeSet<u64> = (0..20).map(|seed| run(seed).0).collect();
    assert_eq!(hashes.len(), 20);
}

/// The seed draws the order of answers, also without faults.
#[test]
fn answers_come_in_an_order_that_the_seed_draws() {
    let order = |seed| {
        let sim = completing(seed, Faults::none());
        let mut watcher = watcher(&sim);
        let pairs: Vec<_> = (0..6).map(|_| attach_pair(&mut watcher, &sim)).collect();
        for &(here, _) in &pairs {
            watcher.submit(Op::read(here).token(READ)).unwrap();
        }
        watcher.wait_timeout(&mut Completions::new(), Duration::from_micros(50)).unwrap();
        for &(_, there) in &pairs {
            watcher.submit(Op::write(there, "x")).unwrap();
        }
        let mut order = Vec::new();
        while order.len() < pairs.len() {
            let done = wait(&mut watcher).into_iter();
            order.extend(done.filter(|c| c.token == READ).map(|c| c.source));
        }
        order
    };
    const READ: u64 = 7;
    assert_eq!(order(1), order(1));
    let orders: BTreeSet<Vec<Source>> = (0..10).map(order).collect();
    assert!(orders.len() > 5, "{orders:?}");
}

/// A read in the kernel for which no bytes can come is no event: the wait fails with a deadlock.
#[test]
fn a_started_read_does_not_keep_a_wait_from_standing_still() {
    let sim = completing(1, Faults::none());
    let mut watcher = watcher(&sim);
    let (here, _there) = attach_pair(&mut watcher, &sim);
    watcher.submit(Op::read(here)).unwrap();
    let error = watcher.wait(&mut Completions::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Deadlock);
}

/// An aborted source takes no operations while the kernel still has its read, even after a close
/// has failed with the abort. Such a source took writes again.
#[test]
fn an_aborted_source_takes_no_writes_while_the_kernel_has_its_read() {
    let mut refused = 0;
    for seed in 0..20 {
        let sim = completing(seed, Faults::none());
        let mut watcher = watcher(&sim);
        let (here, _) = attach_pair(&mut watcher, &sim);
        sim.set_faults(Faults { late_cancel: 1.0, latency: HOUR, ..Faults::none() });
        watcher.submit(Op::read(here).token(1)).unwrap();
        let list = Buf::list(vec![Buf::from(vec![7; 1 << 20]), Buf::from(vec![7; 10])]);
        watcher.submit(Op::write(here, list).token(2)).unwrap();
        watcher.submit(Op::close(here).token(3)).unwrap();
        assert!(watcher.abort(here));
        let mut ended = Vec::new();
        while ended.len() < 3 {
            ended.extend(wait(&mut watcher).iter().map(|c| (c.token, c.error_kind())));
            if !ended.iter().any(|&(token, _)| token == 1) {
                let rejected = watcher.submit(Op::write(here, "late")).unwrap_err();
                assert_eq!(rejected.reason, Refusal::Stale);
                refused += 1;
            }
        }
        ended.sort_unstable_by_key(|&(token, _)| token);
        let aborted = Some(ErrorKind::Aborted);
        assert_eq!(ended, [(1, aborted), (2, aborted), (3, aborted)]);
    }
    assert!(refused > 0);
}

/// A close completes behind the read that it ends, even if the kernel ends that read later. The
/// completion of the close came first, while the descriptor was still open.
#[test]
fn a_close_waits_for_the_read_that_it_ends() {
    let sim = completing(1, Faults::none());
    let mut watcher = watcher(&sim);
    let (here, there) = attach_pair(&mut watcher, &sim);
    watcher.submit(Op::read(here).multishot().token(1)).unwrap();
    watcher.submit(Op::read(there).token(2)).unwrap();
    sim.set_faults(Faults { late_cancel: 1.0, latency: HOUR, ..Faults::none() });
    watcher.submit(Op::close(here).token(3)).unwrap();
    let mut ended = Vec::new();
    while ended.len() < 3 {
        ended.extend(wait(&mut watcher).iter().map(|c| (c.token, c.error_kind())));
    }
    assert_eq!(ended, [(1, Some(ErrorKind::Aborted)), (3, None), (2, None)]);
    // While it waits it can be cancelled, and the source stays open.
    let (here, there) = attach_pair(&mut watcher, &sim);
    watcher.submit(Op::read(here).token(1)).unwrap();
    let close = watcher.submit(Op::close(here).token(3)).unwrap();
    assert!(watcher.cancel(close));
    let mut ended: Vec<_> = (0..2).map(|_| wait_one(&mut watcher)).collect();
    ended.sort_unstable_by_key(|c| c.token);
    let kinds: Vec<_> = ended.iter().map(|c| c.error_kind()).collect();
    assert_eq!(kinds, [Some(ErrorKind::Aborted), Some(ErrorKind::Cancelled)]);
    assert_eq!(write(&mut watcher, there, "still open"), None);
    assert_eq!(read(&mut watcher, here).unwrap(), b"still open");
    assert_eq!(sim.injected().late_cancel, 2);
}

/// A close that was cancelled while it waited for the end of a read leaves the source as it was:
/// writes go out. They waited for ever.
#[test]
fn a_source_sends_after_a_cancelled_close() {
    let ends: [fn(&mut Simulated, Ticket); 2] = [
        |watcher, close| assert!(watcher.cancel(close)),
        |watcher, close| watcher.reschedule(close, Duration::ZERO).unwrap(),
    ];
    for end in ends {
        let sim = completing(1, Faults::none());
        let mut watcher = watcher(&sim);
        let (here, there) = attach_pair(&mut watcher, &sim);
        sim.set_faults(Faults { late_cancel: 1.0, latency: HOUR, ..Faults::none() });
        watcher.submit(Op::read(here)).unwrap();
        let close = watcher.submit(Op::close(here)).unwrap();
        end(&mut watcher, close);
        for _ in 0..2 {
            assert!(wait_one(&mut watcher).error_kind().is_some());
        }
        assert_eq!(write(&mut watcher, here, "still open"), None);
        assert_eq!(read(&mut watcher, there).unwrap(), b"still open");
        assert_eq!(sim.injected().late_cancel, 1);
    }
}

/// The loop reads bulk data itself. If leases have all of its swap buffers, the kernel reads into
/// the one that it holds. The read waited for a lease.
#[test]
fn bulk_data_goes_into_the_buffer_of_the_kernel() {
    const CHUNK: usize = 32 << 10;
    for completing in [false, true] {
        let sim = Sim::new(1);
        sim.set_completing(completing);
        sim.set_patience(Duration::ZERO);
        sim.set_buffer(4 * CHUNK);
        let builder = Watcher::builder().buffer_size(CHUNK as u32).swap_limit(2 * CHUNK);
        let mut watcher = Watcher::simulated_with(&sim, builder.config());
        let (here, there) = attach_pair(&mut watcher, &sim);
        let (idle, _other) = attach_pair(&mut watcher, &sim);
        let next = |watcher: &mut Simulated| {
            watcher.submit(Op::write(there, vec![7; CHUNK])).unwrap();
            watcher.submit(Op::read(here).token(1)).unwrap();
            loop {
                let mut done = wait(watcher);
                done.retain(|c| c.token == 1);
                if let Some(c) = done.pop() {
                    return c;
                }
            }
        };
        assert_eq!(next(&mut watcher).bytes(), CHUNK);
        // The kernel keeps a swap buffer for this one.
        watcher.submit(Op::read(idle)).unwrap();
        let held = next(&mut watcher);
        assert_eq!((held.bytes(), next(&mut watcher).bytes()), (CHUNK, CHUNK));
    }
}

/// While the loop waits for an operation that a thread of the kernel has, it looks through the
/// table of operations once. It did before each of up to 20 waits.
#[test]
fn a_wait_for_threads_of_the_kernel_scans_a_table_once() {
    let faults = Faults { late_cancel: 1.0, ..Faults::none() };
    for seed in 0..20 {
        let sim = Sim::with_faults(seed, faults.clone());
        sim.set_completing(true);
        let mut watcher = watcher(&sim);
        let (here, _there) = sim.pair();
        let here = watcher.attach(here).unwrap();
        let read = watcher.submit(Op::read(here)).unwrap();
        assert_eq!(watcher.try_wait(&mut Completions::new()).unwrap(), 0);
        let before = LOOKED_THROUGH.get();
        assert!(watcher.cancel(read));
        let scans = LOOKED_THROUGH.get() - before;
        assert!(scans <= 1, "{scans} scans for one cancel, seed {seed}");
        assert_eq!(wait_one(&mut watcher).error_kind(), Some(ErrorKind::Cancelled));
    }
}
