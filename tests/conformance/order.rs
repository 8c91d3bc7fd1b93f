//! C3: operations take bytes in the order of submission and complete in it; a hole in a stream
//! ends what is queued behind it.

use std::time::Duration;

use windlass::{ErrorKind, Op};

use crate::common::*;

pub fn a_hundred_reads_take_bytes_in_order<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let reads: Vec<_> = (0..100)
        .map(|i| match i % 3 {
            0 => b.submit(Op::read_exact(here, vec![0; 7], 7).token(i)),
            1 => b.submit(Op::read_into(here, vec![0; 3]).token(i)),
            _ => b.submit(Op::read_exact(here, room(1000), 1000).token(i)),
        })
        .collect();
    let bytes = pattern(34 * 7 + 33 * 3 + 33 * 1000, 1);
    let write = b.submit(Op::write(there, bytes.clone()));
    let mut got = Vec::new();
    let mut tokens = Vec::new();
    while tokens.len() < 100 {
        let c = b.next();
        if c.ticket() == write {
            expect_written(c);
            continue;
        }
        assert_eq!(c.ticket(), reads[tokens.len()]);
        tokens.push(c.token);
        let data = expect_read(c);
        got.extend_from_slice(&data);
        // A short `read_into` leaves bytes over: the last reads must not starve.
        assert!(!data.is_empty());
    }
    assert!(tokens.is_sorted());
    expect_same(&got, &bytes[..got.len()]);
    let rest = bytes.len() - got.len();
    if rest > 0 {
        expect_same(&b.read_exact(here, rest), &bytes[got.len()..]);
    }
    b.expect_all_ended();
}

pub fn a_hundred_writes_go_out_in_order<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let mut wanted = stuck.bytes.clone();
    let mut random = Random::new(3);
    let mut tickets = vec![stuck.ticket];
    for i in 0..100 {
        let bytes = pattern(1 + random.below(5000), i);
        wanted.extend_from_slice(&bytes);
        tickets.push(b.submit(Op::write(stuck.writer, bytes)));
    }
    let len = wanted.len();
    let read = b.submit(Op::read_exact(stuck.peer, room(len), len));
    for &ticket in &tickets {
        let c = b.next();
        assert_ne!(c.ticket(), read, "everything was read before a write completed");
        assert_eq!(c.ticket(), ticket, "writes complete in the order of submission");
        expect_written(c);
        if ticket == tickets[tickets.len() - 2] {
            break;
        }
    }
    expect_written(b.end(tickets[100]));
    expect_same(&expect_read(b.end(read)), &wanted);
    b.expect_all_ended();
}

pub fn reads_and_writes_do_not_wait_for_each_other<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    for _ in 0..20 {
        b.cross(stuck.peer, stuck.writer, b"past the stuck write");
    }
    let read = b.submit(Op::read(stuck.writer));
    assert!(b.is_open(stuck.ticket) && b.is_open(read));
    // A pending read does not hold a write up.
    let (quiet, other) = b.pair();
    let pending = b.submit(Op::read(quiet));
    b.cross(quiet, other, b"past the pending read");
    assert!(b.is_open(pending));
    b.watcher.abort(quiet);
    b.watcher.abort(stuck.writer);
    b.look();
    assert_eq!(b.open(), 0);
}

/// What a torn stream looks like: W1 partly out, ended; what was queued behind is torn, the
/// shutdown too; what is submitted later follows directly.
fn torn<H: Harness>(end: impl FnOnce(&mut Bench<H::Driver>, &Stuck), kind: ErrorKind) {
    let mut b = H::bench();
    let stuck = b.stuck();
    let behind = [
        b.submit(Op::write(stuck.writer, "never").token(1)),
        b.submit(Op::write_vectored(stuck.writer, vec!["ne".into(), "ver".into()]).token(2)),
        b.submit(Op::shutdown(stuck.writer).token(3)),
    ];
    end(&mut b, &stuck);
    let (sent, buf) = expect_error(b.end(stuck.ticket), kind);
    assert!(sent > 0 && sent < stuck.bytes.len(), "{sent} bytes");
    assert_eq!(buf.len(), stuck.bytes.len(), "the whole buffer comes back");
    for (i, ticket) in behind.into_iter().enumerate() {
        let c = b.end(ticket);
        assert_eq!(c.token, i as u64 + 1);
        expect_unmoved(c, ErrorKind::Torn);
    }
    let later = b.submit(Op::write(stuck.writer, "later"));
    let close = b.submit(Op::close(stuck.writer));
    let got = b.read_to_end(stuck.peer);
    expect_written(b.end(later));
    expect_closed(b.end(close));
    let mut wanted = stuck.bytes[..sent].to_vec();
    wanted.extend_from_slice(b"later");
    expect_same(&got, &wanted);
    b.expect_all_ended();
}

pub fn a_write_cancelled_in_the_middle_tears_those_behind<H: Harness>() {
    torn::<H>(|b, stuck| assert!(b.watcher.cancel(stuck.ticket)), ErrorKind::Cancelled);
}

pub fn a_write_expired_in_the_middle_tears_those_behind<H: Harness>() {
    let mut b = H::bench();
    let (writer, peer) = b.pair();
    b.narrow(writer);
    let bytes = pattern(4 << 20, 1);
    let op = Op::write(writer, bytes.clone()).timeout(Duration::from_millis(20));
    let write = b.submit(op);
    let behind = b.submit(Op::write(writer, "never"));
    let shutdown = b.submit(Op::shutdown(writer));
    let (sent, _) = expect_error(b.end(write), ErrorKind::Deadline);
    assert!(sent > 0 && sent < bytes.len());
    expect_unmoved(b.end(behind), ErrorKind::Torn);
    expect_unmoved(b.end(shutdown), ErrorKind::Torn);
    let later = b.submit(Op::write(writer, "later"));
    let close = b.submit(Op::close(writer));
    let got = b.read_to_end(peer);
    expect_same(&got[..sent], &bytes[..sent]);
    assert_eq!(&got[sent..], b"later");
    expect_written(b.end(later));
    expect_closed(b.end(close));
    b.expect_all_ended();
}

/// A close behind a torn write does not happen: the source stays.
pub fn a_close_behind_a_torn_write_is_torn<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let close = b.submit(Op::close(stuck.writer));
    assert!(b.watcher.cancel(stuck.ticket));
    let (sent, _) = expect_error(b.end(stuck.ticket), ErrorKind::Cancelled);
    expect_unmoved(b.end(close), ErrorKind::Torn);
    let later = b.submit(Op::write(stuck.writer, "alive"));
    let got = b.read_exact(stuck.peer, sent + 5);
    assert_eq!(&got[sent..], b"alive");
    expect_written(b.end(later));
    b.expect_all_ended();
}

/// One that had not moved a byte leaves no hole.
pub fn a_write_cancelled_before_its_first_byte_tears_nothing<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let dropped = b.submit(Op::write(stuck.writer, "dropped"));
    let expired = b.submit(Op::write(stuck.writer, "expired").timeout(Duration::from_millis(1)));
    let kept = b.submit(Op::write(stuck.writer, "kept"));
    assert!(b.watcher.cancel(dropped));
    expect_unmoved(b.end(dropped), ErrorKind::Cancelled);
    expect_unmoved(b.end(expired), ErrorKind::Deadline);
    assert!(b.is_open(stuck.ticket) && b.is_open(kept));
    let got = b.read_exact(stuck.peer, stuck.bytes.len() + 4);
    assert_eq!(&got[stuck.bytes.len()..], b"kept");
    expect_written(b.end(stuck.ticket));
    expect_written(b.end(kept));
    b.expect_all_ended();
}

/// A read that ends in the middle of a queue leaves the others their turn.
pub fn a_read_that_ends_early_leaves_the_others_in_order<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = b.pair();
    let reads: Vec<_> = (0..9)
        .map(|i| {
            let op = Op::read_exact(here, vec![0; 2], 2).token(i);
            let op = if i % 3 == 2 { op.timeout(Duration::from_millis(1)) } else { op };
            b.submit(op)
        })
        .collect();
    for &read in reads.iter().skip(1).step_by(3) {
        assert!(b.watcher.cancel(read));
    }
    b.pass(Duration::from_millis(5));
    b.write(there, "000333666");
    let mut got = Vec::new();
    for (i, read) in reads.into_iter().enumerate() {
        let c = b.end(read);
        match i % 3 {
            0 => got.extend_from_slice(&expect_read(c)),
            1 => assert!(expect_unmoved(c, ErrorKind::Cancelled).is_empty()),
            _ => assert!(expect_unmoved(c, ErrorKind::Deadline).is_empty()),
        }
    }
    assert_eq!(got, b"000333");
    assert_eq!(b.read_exact(here, 3), b"666");
    b.expect_all_ended();
}

/// libuv's tcp_write_queue_order: a connection goes away under a queue of writes; every one ends
/// exactly once, in order.
pub fn a_queue_of_writes_fails_in_order<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let mut tickets = vec![stuck.ticket];
    for i in 0..200 {
        tickets.push(b.submit(Op::write(stuck.writer, pattern(1000, i))));
    }
    // Closing with unread data resets the connection.
    assert!(b.watcher.abort(stuck.peer));
    for (i, &ticket) in tickets.iter().enumerate() {
        let c = b.next();
        assert_eq!(c.ticket(), ticket, "write {i}");
        match c.error_kind() {
            Some(ErrorKind::Os(errno)) => assert!(RESET.contains(&errno), "write {i}: {errno}"),
            Some(ErrorKind::Torn) => assert!(i > 0),
            other => panic!("write {i}: {other:?}"),
        }
        assert_eq!(i > 0, c.bytes() == 0, "write {i}: {} bytes", c.bytes());
    }
    b.expect_all_ended();
}
