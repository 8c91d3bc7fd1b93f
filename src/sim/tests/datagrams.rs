//! Batches of datagrams that are cut short, denied, interrupted, and that have a bad datagram.

use super::*;
use crate::driver::endpoint::DatagramOptions;
use crate::sim::Injected;
use crate::words::address::Address;
use crate::words::error::ErrorKind;

const RECEIVE: u64 = 1 << 32;
const COUNT: usize = 300;

/// What happened besides the faults.
#[derive(Debug, Default)]
struct Met {
    batches: u64,
    too_long: usize,
    cut: usize,
}

/// Each datagram says its number, in so many bytes. Some are too long to be sent.
fn datagram(i: usize) -> Vec<u8> {
    let len = match i % 23 {
        7 => 70_000,
        11 => 3000,
        len => 4 + len * 3,
    };
    let mut bytes = vec![i as u8; len];
    bytes[..4].copy_from_slice(&(i as u32).to_le_bytes());
    bytes
}

/// One source sends to another, in batches, under faults. Every datagram arrives once, in order,
/// with its own length; one that is too long fails alone.
fn exchange(seed: u64, faults: Faults, met: &mut Met) -> Injected {
    let sim = Sim::with_faults(seed, faults);
    sim.set_buffer(2000 << (seed % 5));
    let mut watcher = watcher(&sim);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bind = || {
        let options = DatagramOptions::default();
        let source = watcher.bind_datagram(([127, 0, 0, 1], 0), options).unwrap();
        (source, watcher.local_address(source).unwrap())
    };
    let ((here, at), (there, from_at)): ((Source, Address), (Source, Address)) = (bind(), bind());
    let room = 1024;
    let multishot = seed.is_multiple_of(2);
    let receive = |i: u64| match (multishot, i % 3) {
        (true, _) => Op::recv_from(here).multishot().token(RECEIVE),
        (_, 0) => Op::recv_from_into(here, Vec::with_capacity(room)).token(RECEIVE | i),
        _ => Op::recv_from(here).token(RECEIVE | i),
    };
    let mut asked = if multishot { 1 } else { 40 };
    for i in 0..asked {
        watcher.submit(receive(i)).unwrap();
    }
    let wanted: Vec<usize> = (0..COUNT).filter(|&i| datagram(i).len() <= 65_507).collect();
    let (mut sent, mut ended, mut heard) = (0, 0, 0);
    let mut done = Completions::new();
    while ended < COUNT || heard < wanted.len() {
        for _ in 0..random.usize(0..50) {
            if sent < COUNT {
                let send = Op::send_to(there, datagram(sent), at.clone()).token(sent as u64);
                watcher.submit(if random.u8(..) < 240 { send.deferred() } else { send }).unwrap();
                sent += 1;
            }
        }
        watcher.wait_timeout(&mut done, Duration::from_millis(1)).unwrap();
        for c in done.drain(..) {
            if c.token < RECEIVE {
                assert_eq!(c.token, ended as u64, "sends end in order");
                let len = datagram(ended).len();
                match c.result {
                    Ok(Done::Written { bytes, .. }) => assert_eq!(bytes as usize, len),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Os(libc::EMSGSIZE));
                        assert!(len == 70_000 && error.into_buf().len() == len);
                        met.too_long += 1;
                    }
                    other => panic!("{other:?}"),
                }
                ended += 1;
                continue;
            }
            let more = c.has_more();
            assert!(multishot || c.token == RECEIVE | heard as u64, "receives end in order");
            match c.result {
                Ok(Done::Received { data, from, truncated }) => {
                    let whole = datagram(wanted[heard]);
                    assert_eq!(truncated, data.len() < whole.len());
                    assert!(!truncated || data.len() == room);
                    assert_eq!((&*data, from), (&whole[..data.len()], from_at.clone()));
                    met.cut += usize::from(truncated);
                    heard += 1;
                }
                other => panic!("{other:?}"),
            }
            if !multishot {
                watcher.submit(receive(asked)).unwrap();
                asked += 1;
            } else {
                assert!(more);
            }
        }
    }
    let counters = watcher.counters();
    met.batches += counters.calls("recvmmsg") + counters.calls("sendmmsg");
    sim.injected()
}

#[test]
#[cfg_attr(miri, ignore = "many runs: too slow")]
fn batches_survive_every_fault() {
    let (mut met, mut injected) = (Met::default(), BTreeMap::new());
    for seed in 0..30 {
        let often = [0.0, 0.05, 0.3][(seed % 3) as usize];
        for (fault, count) in exchange(seed, Faults::transient(often), &mut met).named() {
            *injected.entry(fault).or_insert(0) += count;
        }
    }
    println!("{met:?} {injected:?}");
    assert!(met.batches > 100 && met.too_long == 30 * 13 && met.cut > 0, "{met:?}");
    for fault in ["partial_batch", "batch_denied", "eintr", "eagain", "enobufs"] {
        assert!(injected[fault] > 0, "{fault}: {injected:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "many datagrams: too slow")]
fn each_fault_of_batches_happens() {
    let mut met = Met::default();
    let faults = Faults { partial_batch: 0.5, ..Faults::none() };
    let injected = exchange(1, faults, &mut met);
    assert!(injected.partial_batch > 0 && injected.total() == injected.partial_batch);
    let denied = Faults { batch_denied: 1.0, ..Faults::none() };
    let injected = exchange(1, denied, &mut met);
    assert!(injected.batch_denied > 0 && injected.total() == injected.batch_denied);
    assert_eq!(exchange(1, Faults::none(), &mut met), Injected::default());
}

/// Deferred sends with a deadline go out together, or end at it if the receiver has no room.
#[test]
fn a_deferred_send_has_a_deadline() {
    let sim = Sim::new(1);
    sim.set_buffer(1000);
    let mut watcher = watcher(&sim);
    let mut bind = || {
        let options = DatagramOptions::default();
        let source = watcher.bind_datagram(([127, 0, 0, 1], 0), options).unwrap();
        (source, watcher.local_address(source).unwrap())
    };
    let ((here, at), (there, _)) = (bind(), bind());
    let start = watcher.update_now();
    let late = Duration::from_millis(5);
    let send = |len: usize| Op::send_to(there, vec![7; len], at.clone()).deferred();
    for (i, op) in
        [send(300).timeout(late), send(300).deadline(start + late)].into_iter().enumerate()
    {
        watcher.submit(op).unwrap();
        assert_eq!(watcher.queued_bytes(there), Ok((i + 1) * 300), "it is deferred");
    }
    let done = wait(&mut watcher);
    assert!(done.iter().all(|c| c.error_kind().is_none()) && done.len() == 2);
    assert_eq!(watcher.counters().calls("sendmmsg"), 1);
    // The receiver has no room for more.
    let stuck = [watcher.submit(send(600).timeout(late)), watcher.submit(send(601).timeout(late))];
    let mut ended = Vec::new();
    while ended.len() < 2 {
        ended.extend(wait(&mut watcher));
    }
    let took = watcher.update_now() - start;
    assert!(took >= late && took < 2 * late, "{took:?}");
    for ((c, ticket), len) in ended.into_iter().zip(stuck).zip([600, 601]) {
        assert_eq!((c.ticket(), c.error_kind()), (ticket.unwrap(), Some(ErrorKind::Deadline)));
        assert_eq!(c.result.unwrap_err().into_buf().len(), len);
    }
    assert_eq!(watcher.queued_bytes(there), Ok(0));
    // A send whose deadline has passed gets one try.
    watcher.submit(Op::recv_from(here).multishot()).unwrap();
    assert_eq!(wait(&mut watcher).len(), 2);
    watcher.submit(send(9).timeout(Duration::ZERO)).unwrap();
    assert!(wait(&mut watcher).iter().all(|c| c.error_kind().is_none()));
}
