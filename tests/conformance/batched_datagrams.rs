//! Several datagrams at once: receives that wait together, multishot receives, deferred sends.
//! Every completion is that of its own datagram, however many a system call takes.

use std::net::Ipv4Addr;
use std::time::Duration;

use windlass::net::DatagramOptions;
use windlass::{Address, Buf, Completion, Done, ErrorKind, Op, Source, Watcher};

use crate::common::*;

pub fn bind<D: windlass::driver::Driver>(b: &mut Bench<D>) -> (Source, Address) {
    let options = DatagramOptions::default();
    let source = b.watcher.bind_datagram((Ipv4Addr::LOCALHOST, 0), options).unwrap();
    (source, b.watcher.local_address(source).unwrap())
}

#[track_caller]
pub fn received(c: Completion) -> (Buf, Address, bool) {
    match c.result {
        Ok(Done::Received { data, from, truncated }) => (data, from, truncated),
        other => panic!("wanted a datagram: {other:?}"),
    }
}

/// The sizes of the datagrams of a test: empty ones, small ones, large ones.
fn size(i: usize) -> usize {
    [64, 0, 1400, 1, 3000][i % 5]
}

fn send<D: windlass::driver::Driver>(b: &mut Bench<D>, from: Source, to: &Address, i: usize) {
    let send = b.submit(Op::send_to(from, pattern(size(i), i as u64), to.clone()));
    assert_eq!(expect_written(b.end(send)).len(), size(i));
}

/// Receives in flight together get the datagrams in the order of their submission, whether each
/// brings a buffer or not.
pub fn receives_in_flight_together_keep_their_order<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let (there, from_at) = bind(&mut b);
    for round in 0..5 {
        let receives: Vec<_> = (0..50)
            .map(|i| match (i + round) % 3 {
                0 => b.submit(Op::recv_from_into(here, room(9000)).token(i)),
                _ => b.submit(Op::recv_from(here).token(i)),
            })
            .collect();
        for i in 0..50 {
            send(&mut b, there, &at, i);
        }
        for (i, receive) in receives.into_iter().enumerate() {
            let c = b.end(receive);
            assert_eq!((c.token, c.source, c.has_more()), (i as u64, here, false));
            let (data, from, truncated) = received(c);
            assert_eq!((&*data, truncated), (&*pattern(size(i), i as u64), false), "{i}");
            assert_eq!(from, from_at);
        }
    }
    b.expect_all_ended();
}

/// A multishot receive completes once for each datagram, in order, until it is cancelled.
pub fn a_multishot_receive_gets_every_datagram<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let senders = [bind(&mut b), bind(&mut b)];
    let receive = b.submit(Op::recv_from(here).multishot().token(9));
    for _ in 0..3 {
        for i in 0..70 {
            send(&mut b, senders[i % 2].0, &at, i);
        }
        for i in 0..70 {
            let c = b.next();
            assert!(c.has_more() && c.ticket() == receive && c.token == 9, "{c:?}");
            let (data, from, truncated) = received(c);
            assert_eq!((&*data, truncated), (&*pattern(size(i), i as u64), false), "{i}");
            assert_eq!(from, senders[i % 2].1);
        }
    }
    assert!(b.watcher.cancel(receive));
    expect_unmoved(b.end(receive), ErrorKind::Cancelled);
    // One with a deadline ends at it, and with a buffer there is one completion.
    let receive = b.submit(Op::recv_from(here).multishot().timeout(Duration::from_millis(20)));
    expect_unmoved(b.end(receive), ErrorKind::Deadline);
    send(&mut b, senders[0].0, &at, 0);
    let receive = b.submit(Op::recv_from_into(here, room(99)).multishot());
    let c = b.end(receive);
    assert!(!c.has_more());
    received(c);
    b.expect_all_ended();
}

/// A datagram that is longer than its memory is cut, and those around it are not.
pub fn each_datagram_of_a_batch_says_whether_it_was_cut<H: Harness>() {
    let mut b = H::bench_with(Watcher::builder().buffer_size(4096));
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let receives = [3, 8000, 9000, 4096].map(|room_for| match room_for {
        8000 => b.submit(Op::recv_from(here)),
        room_for => b.submit(Op::recv_from_into(here, room(room_for))),
    });
    for i in [5, 5000, 5000, 4096] {
        let send = b.submit(Op::send_to(there, pattern(i, 1), at.clone()));
        expect_written(b.end(send));
    }
    let ends = [(3, true), (4096, true), (5000, false), (4096, false)];
    for (receive, (len, cut)) in receives.into_iter().zip(ends) {
        let (data, _, truncated) = received(b.end(receive));
        assert_eq!((data.len(), truncated), (len, cut));
        assert_eq!(*data, pattern(5000, 1)[..len]);
    }
    b.expect_all_ended();
}

/// Cancelled and expired receives take no datagram from those around them.
pub fn a_receive_that_ends_takes_no_datagram<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let receives: Vec<_> = (0..12)
        .map(|i| match i {
            7 => b.submit(Op::recv_from(here).timeout(Duration::from_millis(5))),
            _ => b.submit(Op::recv_from(here)),
        })
        .collect();
    expect_unmoved(b.end(receives[7]), ErrorKind::Deadline);
    for cancelled in [0, 4, 11] {
        assert!(b.watcher.cancel(receives[cancelled]));
        expect_unmoved(b.end(receives[cancelled]), ErrorKind::Cancelled);
    }
    (0..8).for_each(|i| send(&mut b, there, &at, i));
    for (i, left) in [1, 2, 3, 5, 6, 8, 9, 10].into_iter().enumerate() {
        assert_eq!(*received(b.end(receives[left])).0, *pattern(size(i), i as u64));
    }
    b.expect_all_ended();
}

/// Deferred sends go out at a wait, in order, and a send that is not deferred goes behind them.
pub fn deferred_sends_go_out_at_the_wait_in_order<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let receive = b.submit(Op::recv_from(here).multishot());
    b.look();
    for round in 0..3 {
        let sends: Vec<_> = (0..70)
            .map(|i| {
                let send = Op::send_to(there, pattern(size(i), i as u64), at.clone());
                b.submit(if i < 69 { send.deferred() } else { send })
            })
            .collect();
        let queued: usize = (0..70).map(size).sum();
        assert_eq!(b.watcher.queued_bytes(there), Ok(queued), "{round}: none is out");
        for (i, send) in sends.into_iter().enumerate() {
            assert_eq!(expect_written(b.end(send)).len(), size(i));
        }
        assert_eq!(b.watcher.queued_bytes(there), Ok(0));
        for i in 0..70 {
            let c = b.next();
            assert_eq!(c.ticket(), receive);
            assert_eq!(*received(c).0, *pattern(size(i), i as u64), "{i}");
        }
    }
    assert!(b.watcher.cancel(receive));
    expect_unmoved(b.end(receive), ErrorKind::Cancelled);
    b.expect_all_ended();
}

/// A datagram that cannot be sent fails alone: those before and behind it go out.
pub fn a_deferred_send_that_fails_fails_alone<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let large = pattern(70_000, 0);
    for bad in [0, 1, 5, 39] {
        let sends: Vec<_> = (0..40)
            .map(|i| {
                let bytes = if i == bad { large.clone() } else { pattern(9, i as u64) };
                b.submit(Op::send_to(there, bytes, at.clone()).deferred())
            })
            .collect();
        for (i, send) in sends.into_iter().enumerate() {
            let c = b.end(send);
            match i == bad {
                true => expect_errno(c, &[libc::EMSGSIZE]),
                false => expect_written(c),
            };
        }
        for i in (0..40).filter(|&i| i != bad) {
            let receive = b.submit(Op::recv_from(here));
            assert_eq!(*received(b.end(receive)).0, *pattern(9, i as u64));
        }
    }
    b.expect_all_ended();
}

/// Until the wait, a deferred send can be cancelled, and an abort ends it: it has not gone out.
pub fn a_deferred_send_that_ends_is_not_sent<H: Harness>() {
    let mut b = H::bench();
    let (here, at) = bind(&mut b);
    let (there, _) = bind(&mut b);
    let deferred = |i: u64| Op::send_to(there, pattern(9, i), at.clone()).deferred();
    let sends: Vec<_> = (0..4).map(|i| b.submit(deferred(i))).collect();
    assert!(b.watcher.cancel(sends[1]));
    for (i, send) in sends.into_iter().enumerate() {
        let c = b.end(send);
        match i {
            1 => expect_unmoved(c, ErrorKind::Cancelled),
            _ => expect_written(c),
        };
    }
    for i in [0, 2, 3] {
        let receive = b.submit(Op::recv_from(here));
        assert_eq!(*received(b.end(receive)).0, *pattern(9, i));
    }
    // The close goes behind them, an abort before them.
    let (last, close) = (b.submit(deferred(7)), b.submit(Op::close(there)));
    expect_written(b.end(last));
    expect_closed(b.end(close));
    let receive = b.submit(Op::recv_from(here));
    assert_eq!(*received(b.end(receive)).0, *pattern(9, 7));
    let (there, _) = bind(&mut b);
    let send = b.submit(Op::send_to(there, "late", at.clone()).deferred());
    assert!(b.watcher.abort(there));
    expect_unmoved(b.end(send), ErrorKind::Aborted);
    b.expect_all_ended();
}
