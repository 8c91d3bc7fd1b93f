//! Counters: exact at every moment, without a scan of a table.

use super::*;
use crate::driver::config::Config;
use crate::memory::buf::Buf;
use crate::proactor::Proactor;
use crate::words::source::Ticket;
use crate::words::table::LOOKED_THROUGH;

/// A watcher whose driver can be asked for more than a `Driver` tells.
type Simulated = Watcher<Proactor<Sim>>;

fn watcher(sim: &Sim) -> Simulated {
    sim.set_patience(Duration::ZERO);
    Watcher::with_driver(Proactor::simulated(sim, Config::default()))
}

/// Compares the counters with a count one by one, and checks that reading them scans no table.
#[track_caller]
fn check(watcher: &Simulated, context: &str) -> (u64, u64) {
    let before = LOOKED_THROUGH.get();
    let counters = watcher.counters();
    assert_eq!(LOOKED_THROUGH.get(), before, "the counters scanned a table");
    let counted = (counters.in_flight, counters.sources);
    assert_eq!(counted, watcher.driver().count_one_by_one(), "{context}: in flight, sources");
    counted
}

/// Random operations, from here and from another thread's handle, that end in every way.
fn program(seed: u64) {
    let sim = Sim::new(seed);
    let mut watcher = watcher(&sim);
    let submitter = watcher.submitter();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut done = Completions::new();
    let mut tickets: Vec<Ticket> = Vec::new();
    let (mut open, mut begun, mut ended) = (Vec::new(), 0u64, 0u64);
    for step in 0..600 {
        if open.is_empty() || random.u8(..) < 20 {
            let (a, b) = sim.pair();
            open.push(watcher.attach(a).unwrap());
            open.push(match random.bool() {
                true => watcher.attach(b).unwrap(),
                false => match submitter.attach(b) {
                    Ok(source) => source,
                    Err(refused) => watcher.attach(refused.into_inner()).unwrap(),
                },
            });
        }
        let source = open[random.usize(..open.len())];
        let op = match random.u8(0..9) {
            0 => Op::read(source),
            1 => Op::read(source).multishot(),
            2 => Op::read(source).timeout(Duration::from_micros(random.u64(0..50))),
            3 => Op::read_exact(source, vec![0; 9], 9),
            4 => Op::write(source, vec![7; random.usize(1..100_000)]),
            5 => Op::timer(Duration::from_micros(random.u64(0..50))),
            6 => Op::nop(),
            7 => Op::wait_drained(source, 0),
            _ => Op::poll(source, Ready::READABLE),
        };
        let accepted = match random.bool() {
            true => watcher.submit(op).ok(),
            false => submitter.submit(op).ok(),
        };
        begun += u64::from(accepted.is_some());
        tickets.extend(accepted);
        match random.u8(0..12) {
            0 => {
                watcher.cancel(tickets[random.usize(..tickets.len())]);
            }
            1 => {
                let _ = submitter.cancel(tickets[random.usize(..tickets.len())]);
            }
            2 => {
                let gone = open.swap_remove(random.usize(..open.len()));
                watcher.abort(gone);
            }
            3 => {
                let gone = open.swap_remove(random.usize(..open.len()));
                begun += u64::from(watcher.submit(Op::close(gone)).is_ok());
            }
            4..8 => {
                watcher.try_wait(&mut done).unwrap();
                ended += done.drain(..).filter(|c| !c.has_more()).count() as u64;
                sim.advance(Duration::from_micros(random.u64(0..30)));
            }
            _ => {}
        }
        check(&watcher, &format!("seed {seed}, step {step}"));
    }
    watcher.close();
    check(&watcher, "closed");
    while watcher.try_wait(&mut done).is_ok() {
        ended += done.drain(..).filter(|c| !c.has_more()).count() as u64;
    }
    assert_eq!(check(&watcher, "at the end"), (0, 0));
    assert_eq!(ended, begun, "exactly once");
    let counters = watcher.counters();
    assert_eq!(counters.submitted, begun);
    assert!(counters.completed > ended, "no multishot read has continued");
}

#[test]
#[cfg_attr(miri, ignore = "it scans all tables at every step")]
fn counters_equal_a_count_one_by_one() {
    crate::seeds::each("counters", 4, 2, program);
}

/// With 200,000 operations in flight, reading the counters scans no table and costs as much as with
/// none.
#[test]
fn counters_scan_no_table() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (pairs, timers) = if cfg!(miri) { (20, 200) } else { (2_000, 200_000) };
    for _ in 0..pairs {
        let (a, b) = sim.pair();
        for handle in [a, b] {
            let source = watcher.attach(handle).unwrap();
            watcher.submit(Op::read(source)).unwrap();
        }
    }
    for _ in 0..timers {
        watcher.submit(Op::timer(HOUR)).unwrap();
    }
    assert_eq!(check(&watcher, "many"), (timers + 2 * pairs, 2 * pairs));
    let free = watcher.counters().free_operations;
    watcher.submit(Op::timer(HOUR)).unwrap();
    assert_eq!(watcher.counters().free_operations, free - 1);
}

/// Compares copied bytes, batches and queue depths with the operations done.
#[test]
#[cfg_attr(miri, ignore = "large datagrams take minutes")]
fn depths_batches_and_copies_are_counted() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let submitter = watcher.submitter();
    let mut done = Completions::new();
    let start = watcher.counters();
    for _ in 0..7 {
        watcher.submit(Op::nop()).unwrap();
    }
    submitter.wake(1).unwrap();
    let counters = watcher.counters();
    assert_eq!((counters.undelivered, counters.remote_queue), (7, 1));
    while done.len() < 8 {
        watcher.wait(&mut done).unwrap();
    }
    let counters = watcher.counters();
    assert_eq!((counters.undelivered, counters.remote_queue), (0, 0));
    assert_eq!(counters.completed - start.completed, 8);
    assert!((7..=8).contains(&counters.largest_delivery), "{counters:?}");
    assert!((1..=2).contains(&(counters.deliveries - start.deliveries)));
    done.clear();

    // A lease holds its swap buffer as long as it lives.
    let (a, b) = sim.pair();
    let (a, b) = (watcher.attach(a).unwrap(), watcher.attach(b).unwrap());
    watcher.submit(Op::write(a, "x")).unwrap();
    watcher.submit(Op::read(b)).unwrap();
    while done.len() < 2 {
        watcher.wait(&mut done).unwrap();
    }
    let counters = watcher.counters();
    assert_eq!(counters.free_swap_bytes + counters.leased_bytes, start.free_swap_bytes);
    assert_eq!(counters.copied_bytes, 0, "a stream's bytes are copied by the kernel alone");

    // A datagram larger than the rest of the current buffer is joined by a copy.
    let (one, two) = (([10, 0, 0, 1], 53), ([10, 0, 0, 2], 53));
    let from = watcher.attach(sim.datagram(one).unwrap()).unwrap();
    let to = watcher.attach(sim.datagram(two).unwrap()).unwrap();
    let mut copied = 0;
    let mut held: Vec<Buf> = Vec::new();
    for len in [20_000, 50_000].repeat(4) {
        let before = watcher.counters().copied_bytes;
        watcher.submit(Op::send_to(from, vec![7; len], two)).unwrap();
        watcher.submit(Op::recv_from(to)).unwrap();
        let mut received = false;
        while !received {
            watcher.wait(&mut done).unwrap();
            for c in done.drain(..) {
                if let Ok(Done::Received { data, .. }) = c.result {
                    assert_eq!(data.len(), len);
                    held.push(data);
                    received = true;
                }
            }
        }
        let more = watcher.counters().copied_bytes - before;
        assert!(more == 0 || more == 2 * len as u64, "{more} bytes");
        copied += more;
    }
    assert!(copied > 0, "every datagram fitted into the rest of a swap buffer");
    let counters = watcher.counters();
    assert!(counters.leased_bytes >= 4 * (64 << 10), "{counters:?}");
}
