//! C9: every queue has a bound that its refusal names, and no source starves.

use std::time::Duration;

use windlass::{Done, ErrorKind, Limit, Op, Refusal, Watcher};

use crate::common::*;

/// One source floods, fifty ping: every ping is answered.
pub fn a_flood_does_not_starve_pings<H: Harness>() {
    let mut b = H::bench();
    let (flooder, flooded) = b.pair();
    let pairs = b.pairs(50);
    b.submit(Op::read(flooded).multishot().token(1));
    b.submit(Op::write(flooder, vec![1; 1 << 18]).token(2));
    for &(client, server) in &pairs {
        b.submit(Op::read(server).token(3));
        b.submit(Op::write(client, "ping").token(4));
        b.submit(Op::read_exact(client, vec![0; 4], 4).token(5));
    }
    let mut answered = 0;
    let mut flood = 0u64;
    while answered < 50 * 20 {
        let c = b.next();
        match (c.token, c.result) {
            (1, Ok(Done::Read(data))) => {
                flood += data.len() as u64;
                assert!(flood < 64 << 30, "{answered} pings answered meanwhile");
            }
            (2, Ok(Done::Written { buf, .. })) => drop(b.submit(Op::write(flooder, buf).token(2))),
            (3, Ok(Done::Read(data))) => {
                b.submit(Op::write(c.source, data).token(4));
                b.submit(Op::read(c.source).token(3));
            }
            (4, Ok(Done::Written { .. })) => {}
            (5, Ok(Done::Read(data))) => {
                answered += 1;
                b.submit(Op::write(c.source, "ping").token(4));
                b.submit(Op::read_exact(c.source, data, 4).token(5));
            }
            (token, other) => panic!("{token}: {other:?}"),
        }
    }
    assert!(flood > 0, "the flood goes on, too");
}

/// A source that writes much leaves the others their turn.
pub fn a_writer_does_not_starve_pings<H: Harness>() {
    let mut b = H::bench();
    let (writer, reader) = b.pair();
    let (client, server) = b.pair();
    for _ in 0..4 {
        b.submit(Op::write(writer, vec![1; 1 << 20]).token(1));
    }
    b.submit(Op::read(reader).multishot().token(2));
    let mut written = 0;
    for i in 0..200 {
        let ping = pattern(100, i);
        b.submit(Op::write(client, ping.clone()).token(3));
        let read = b.submit(Op::read_exact(server, room(100), 100).token(4));
        while b.is_open(read) {
            let c = b.next();
            match (c.token, c.result) {
                (1, Ok(Done::Written { buf, .. })) => {
                    written += 1;
                    b.submit(Op::write(writer, buf).token(1));
                }
                (2, Ok(Done::Read(_))) | (3, Ok(Done::Written { .. })) => {}
                (4, Ok(Done::Read(data))) => expect_same(&data, &ping),
                (token, other) => panic!("{token}: {other:?}"),
            }
            assert!(written < 100_000, "ping {i} starves");
        }
        b.now();
    }
}

/// The table of operations: the refusal names limit and count, and there is room after a
/// completion.
pub fn a_full_table_of_operations_refuses<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_operations(10));
    let (here, there) = b.pair();
    let (idle, gone) = b.pair();
    let reads: Vec<_> = (0..10).map(|_| b.submit(Op::read_exact(here, vec![0; 4], 4))).collect();
    let full = Refusal::Full { limit: Limit::Operations, count: 10 };
    assert_eq!(b.refuse(Op::read(here)).0, full);
    assert_eq!(b.refuse(Op::timer(Duration::ZERO)).0, full);
    assert_eq!(b.refuse(Op::shutdown(here)).0, full);
    let (reason, op) = b.refuse(Op::read_into(here, vec![7; 5]));
    assert_eq!((reason, op.buf().len()), (full, 5));
    let sources = b.watcher.counters().sources;
    let (_, at) = b.listen();
    assert_eq!(b.refuse(Op::connect(at)).0, full);
    assert_eq!(b.watcher.counters().sources, sources + 1, "a refused connect leaves nothing");
    // A refused close does not close.
    assert_eq!(b.refuse(Op::close(here)).0, full);
    // A source with nothing to be waited for needs no place to close.
    let close = b.submit(Op::close(idle));
    expect_closed(b.end(close));
    assert_eq!(b.refuse(Op::shutdown(gone)).0, full);
    assert!(b.watcher.abort(gone));
    assert!(b.watcher.cancel(reads[9]));
    expect_unmoved(b.end(reads[9]), ErrorKind::Cancelled);
    let read = b.submit(Op::read_exact(here, vec![0; 4], 4));
    assert_eq!(b.refuse(Op::read(here)).0, full);
    b.watcher.cancel_all(here);
    for ticket in reads.into_iter().take(9).chain([read]) {
        expect_unmoved(b.end(ticket), ErrorKind::Cancelled);
    }
    b.expect_alive(here, there);
    b.expect_all_ended();
}

/// A write that finds the table full is refused whole, or, once part of it is out, accepted: it
/// ends once and says how much that was. The limit holds for the next one.
pub fn a_write_that_finds_no_place_is_refused_whole_or_sent<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_operations(2));
    let (here, there) = b.pair();
    b.narrow(here);
    let read = b.submit(Op::read_exact(here, vec![0; 4], 4));
    let timer = b.submit(Op::timer(Duration::from_secs(9999)));
    let bytes = pattern(4 << 20, 1);
    let accepted = match b.try_submit(Op::write(here, bytes.clone())) {
        Ok(ticket) => Some(ticket),
        Err((reason, op)) => {
            assert!(matches!(reason, Refusal::Full { .. }));
            assert_eq!(op.buf().len(), bytes.len());
            None
        }
    };
    let (reason, _) = b.refuse(Op::read_exact(here, vec![0; 4], 4));
    assert!(matches!(reason, Refusal::Full { limit: Limit::Operations, count: 2 }));
    let mut out = 0;
    if let Some(write) = accepted {
        assert!(b.watcher.cancel(write));
        out = expect_error(b.end(write), ErrorKind::Cancelled).0;
        assert!(out > 0, "a write of which nothing is out is refused");
    }
    assert!(b.watcher.cancel(timer));
    b.end(timer);
    assert!(b.watcher.cancel(read));
    b.end(read);
    // The peer gets what is out, and then the next bytes.
    let marker = b.submit(Op::write(here, "marker"));
    let got = b.read_exact(there, out + 6);
    assert_eq!(got[..out], bytes[..out]);
    assert_eq!(&got[out..], b"marker", "bytes of a refused operation were sent");
    expect_written(b.end(marker));
    b.expect_all_ended();
}

/// The table of sources: an attach is refused with the handle in it.
pub fn a_full_table_of_sources_refuses<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().max_sources(3));
    let (listener, at) = b.listen();
    let (here, there) = b.connect(listener, &at);
    let full = Refusal::Full { limit: Limit::Sources, count: 3 };
    let error = b.watcher.listen(H::address()).unwrap_err();
    assert_eq!(Refusal::of(&error), Some(full));
    assert!(error.to_string().contains('3'), "{error}");
    assert_eq!(b.refuse(Op::connect(at)).0, full);
    let handle = b.watcher.detach(listener).expect("idle");
    let again = b.watcher.attach(handle).expect("its place is free");
    let handle = b.watcher.detach(here).expect("idle");
    let (here, _) = (b.watcher.attach(handle).expect("free"), again);
    b.expect_alive(here, there);
}

/// An operation that ends at submission takes no place, so the waiting completions have a bound of
/// their own.
pub fn completions_that_wait_are_bounded<H: Harness>() {
    const MANY: usize = 2_000_000;
    let mut b = H::bench_with(Watcher::builder().max_operations(8));
    let (here, there) = b.pair();
    let nops = (0..MANY).take_while(|_| b.watcher.submit(Op::nop()).is_ok()).count();
    assert!((1024..=8192).contains(&nops), "{nops} of {MANY} were accepted");
    let (reason, op) = b.refuse(Op::read_into(here, b"back".to_vec()));
    let Refusal::Full { limit: Limit::Completions, count } = reason else { panic!("{reason}") };
    assert!(count <= nops && reason.to_string().contains("Builder::max_operations"));
    assert_eq!(&**op.buf(), b"back");
    for op in [Op::nop(), Op::read(there), Op::close(there), Op::timer(Duration::ZERO)] {
        assert_eq!(b.refuse(op).0, reason);
    }
    // A write may find spare capacity, but no room within the bound.
    let write = |_: &usize| b.watcher.submit(Op::write(here, "w")).is_ok();
    let written = (0..MANY).take_while(write).count();
    assert!(written <= nops, "{written} of {MANY} were accepted");
    let (mut done, mut ended) = (windlass::Completions::new(), 0);
    while ended < nops + written {
        ended += b.watcher.wait(&mut done).unwrap();
    }
    assert_eq!(ended, nops + written, "none is lost, none is there twice");
    if written > 0 {
        assert_eq!(b.read_exact(there, written), vec![b'w'; written]);
    }
    b.expect_alive(here, there);

    // Cancelled operations and resting reads do not evade the bound.
    for rests in [false, true] {
        let mut accepted = 0;
        while accepted <= MANY {
            let op = if rests { Op::read(there) } else { Op::read_exact(there, room(1), 1) };
            let Ok(ticket) = b.watcher.submit(op) else { break };
            accepted += 1;
            assert!(b.watcher.cancel(ticket));
        }
        assert!((1024..=32 << 10).contains(&accepted), "{accepted} of {MANY}");
        let mut ended = 0;
        done.clear();
        while ended < accepted {
            ended += b.watcher.wait(&mut done).unwrap();
        }
        assert_eq!(ended, accepted);
        b.expect_alive(here, there);
    }
    b.expect_all_ended();
}

/// Completions of other threads' operations always have room. At the bound, the loop takes no more
/// requests.
pub fn completions_of_other_threads_are_bounded<H: Harness>() {
    const MANY: usize = 200_000;
    let mut b = H::bench_with(Watcher::builder().max_operations(8));
    let submitter = b.submitter();
    while b.watcher.submit(Op::nop().token(1)).is_ok() {}
    let mut accepted = 0;
    let mut refused = 0;
    let mut last = None;
    for _ in 0..MANY {
        match submitter.submit(Op::nop().token(2)) {
            Ok(ticket) => {
                accepted += 1;
                last = Some(ticket);
            }
            Err(rejected) => {
                assert!(matches!(rejected.reason, Refusal::Full { limit: Limit::IdReserve, .. }));
                refused += 1;
                // This makes the loop look at the queue, which it does not take now.
                b.watcher.cancel(last.expect("one was accepted"));
            }
        }
    }
    assert!(accepted <= 8 && refused > 0, "{accepted} accepted, {refused} refused");
    let mut done = windlass::Completions::new();
    let mut ended = 0;
    while ended < accepted {
        b.watcher.wait(&mut done).unwrap();
        for c in done.drain(..).filter(|c| c.token == 2) {
            assert!(c.result.is_ok(), "{c:?}");
            ended += 1;
        }
    }
    assert_eq!(b.watcher.counters().in_flight, 0);
}
