//! The end of a connection of records (seqpacket), and records that are empty.

use std::os::fd::OwnedFd;

use socket2::{Domain, Socket, Type};
use windlass::{Completion, Done, ErrorKind, Op, Source};

use crate::common::*;

/// A source, and its peer; nothing where there are no such sockets.
fn records<D: windlass::driver::Driver>(b: &mut Bench<D>) -> Option<(Source, Socket)> {
    let (here, there) = pair()?;
    Some((b.watcher.attach(OwnedFd::from(here)).unwrap(), there))
}

fn pair() -> Option<(Socket, Socket)> {
    match Socket::pair(Domain::UNIX, Type::SEQPACKET, None) {
        Err(error) if cfg!(target_vendor = "apple") => {
            skip(Needs::Seqpacket, format_args!("Unix sockets that keep boundaries: {error}"));
            None
        }
        pair => Some(pair.unwrap()),
    }
}

/// The bytes of a record, or `None` for the end.
#[track_caller]
fn record(c: Completion) -> Option<Vec<u8>> {
    match c.result {
        Ok(Done::Read(data) | Done::Received { data, .. } | Done::Descriptors { data, .. }) => {
            Some(data.into_vec())
        }
        Err(error) if error.kind() == ErrorKind::Eof => None,
        other => panic!("wanted a record or the end: {other:?}"),
    }
}

const READS: [fn(Source) -> Op; 5] = [
    Op::recv_from,
    |source| Op::recv_from_into(source, room(10)),
    Op::read,
    |source| Op::read_into(source, room(10)),
    Op::recv_descriptors,
];

/// The end looked like an empty record, so a receive could not tell them apart.
pub fn a_record_that_is_empty_is_no_end<H: Harness>() {
    let mut b = H::bench();
    for read in READS {
        let Some((here, there)) = records(&mut b) else { return };
        for text in ["a", "", "b", ""] {
            there.send(text.as_bytes()).unwrap();
        }
        drop(there);
        for text in ["a", "", "b", ""] {
            let c = b.run(read(here));
            assert_eq!(record(c).as_deref(), Some(text.as_bytes()));
        }
        for _ in 0..2 {
            let c = b.run(read(here));
            assert!(!c.has_more());
            assert_eq!(record(c), None);
        }
        b.watcher.abort(here);
    }
    b.expect_all_ended();
}

/// Whether records come with times (`SO_TIMESTAMP`), by which the driver knows them from the end.
fn has_times(socket: &Socket) -> bool {
    let (mut on, mut len) = (0i32, 4);
    let (fd, into) = (std::os::fd::AsRawFd::as_raw_fd(socket), (&raw mut on).cast());
    // SAFETY: four bytes of a local, as `len` says.
    let answer =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMP, into, &mut len) };
    assert_eq!(answer, 0);
    on != 0
}

/// The driver does not change a socket that other code shares for good, and took an empty record
/// for the end once the peer had shut its side.
pub fn an_empty_record_of_a_shared_socket_is_no_end<H: Harness>() {
    let mut b = H::bench();
    for read in READS {
        let Some((shared, there)) = pair() else { return };
        // Where a call cannot say that it must not wait.
        shared.set_nonblocking(true).unwrap();
        let here = b.watcher.attach_dup(&shared).unwrap();
        for text in ["", "a", "", ""] {
            there.send(text.as_bytes()).unwrap();
        }
        drop(there);
        for text in ["", "a", "", ""] {
            let c = b.run(read(here));
            assert_eq!(record(c).as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(record(b.run(read(here))), None);
        assert!(!has_times(&shared), "another descriptor's option changed");
        b.watcher.abort(here);
    }
    b.expect_all_ended();
}

/// A receive that waits learns of the end, also when only one direction ends.
pub fn an_end_of_records_ends_what_waits<H: Harness>() {
    let mut b = H::bench();
    for closes in [true, false] {
        for read in READS {
            let Some((here, there)) = records(&mut b) else { return };
            let waiting = b.submit(read(here));
            let next = b.submit(read(here));
            b.look();
            assert!(b.is_open(waiting));
            there.send(b"").unwrap();
            assert_eq!(record(b.end(waiting)), Some(vec![]));
            b.look();
            assert!(b.is_open(next), "an empty record ends nothing");
            if closes {
                drop(there);
            } else {
                there.shutdown(std::net::Shutdown::Write).unwrap();
            }
            assert_eq!(record(b.end(next)), None);
            b.watcher.abort(here);
        }
    }
    b.expect_all_ended();
}

/// A multishot receive delivered the end as millions of empty records.
pub fn records_of_a_multishot_end_once<H: Harness>() {
    let mut b = H::bench();
    for read in [Op::recv_from as fn(Source) -> Op, Op::read] {
        for waits in [true, false] {
            let Some((here, there)) = records(&mut b) else { return };
            let mut ticket = waits.then(|| b.submit(read(here).multishot()));
            b.look();
            for i in 0..100u8 {
                there.send(&vec![i; usize::from(i % 3)]).unwrap();
            }
            drop(there);
            let ticket = *ticket.get_or_insert_with(|| b.submit(read(here).multishot()));
            for i in 0..100u8 {
                let c = b.next();
                assert!(c.has_more() && c.ticket() == ticket, "record {i}: {c:?}");
                assert_eq!(record(c), Some(vec![i; usize::from(i % 3)]));
            }
            let c = b.next();
            assert!(!c.has_more(), "{c:?}");
            assert_eq!(record(c), None);
            b.expect_quiet();
            b.watcher.abort(here);
        }
    }
    b.expect_all_ended();
}

/// A `read_exact` gathers records; empty ones add nothing, and the end leaves what there is.
pub fn a_read_exact_of_records_ends_with_what_it_has<H: Harness>() {
    let mut b = H::bench();
    let Some((here, there)) = records(&mut b) else { return };
    for text in ["ab", "", "c", "d"] {
        there.send(text.as_bytes()).unwrap();
    }
    drop(there);
    assert_eq!(b.read_exact(here, 3), b"abc");
    let (bytes, buf) = expect_error(b.run(Op::read_exact(here, room(9), 9)), ErrorKind::Eof);
    assert_eq!((bytes, &*buf), (1, &b"d"[..]));
    b.expect_all_ended();
}

/// The sockets of an accepted connection tell as those of a pair; so does one that was detached.
pub fn accepted_connections_of_records_end_alike<H: Harness>() {
    let d = system::Directory::new();
    let mut b = H::bench();
    if records(&mut b).is_none() {
        return;
    }
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let at = socket2::SockAddr::unix(d.path().join("records")).unwrap();
    listener.bind(&at).unwrap();
    listener.listen(4).unwrap();
    let listener = b.watcher.attach(OwnedFd::from(listener)).unwrap();
    for again in [false, true] {
        let there = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        there.connect(&at).unwrap();
        let handle = expect_accepted(b.run(Op::accept(listener)));
        let mut here = b.watcher.attach(handle).unwrap();
        there.send(b"first").unwrap();
        assert_eq!(record(b.run(Op::recv_from(here))), Some(b"first".to_vec()));
        if again {
            let handle = b.watcher.detach(here).unwrap();
            here = b.watcher.attach(handle).unwrap();
        }
        there.send(b"").unwrap();
        drop(there);
        assert_eq!(record(b.run(Op::recv_from(here))), Some(vec![]));
        assert_eq!(record(b.run(Op::recv_from(here))), None);
        b.watcher.abort(here);
    }
    b.expect_all_ended();
}
