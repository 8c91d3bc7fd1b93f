//! Files: refused and failed operations.

use std::fs;
use std::sync::Arc;

use windlass::fs::OpenOptions;
use windlass::{Buf, Op, Ready, Refusal};

use crate::common::files::*;
use crate::common::*;

pub fn what_moves_no_bytes_is_refused<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let file = b.make_file(directory.at("a"));
    for op in [
        Op::read_at(file, room(0), 0),
        Op::read_at(file, Buf::list::<Buf>([]), 0),
        Op::write_at(file, "", 0),
        Op::write_at(file, room(100), 0),
        Op::write_at(file, Buf::list([Buf::from(""), Buf::from(room(0))]), 0),
    ] {
        assert_eq!(b.refuse(op).0, Refusal::EmptyBuffer);
    }
    let part: Arc<[u8]> = vec![1; 1 << 20].into();
    let long = Buf::list((0..2049).map(|_| part.clone()));
    let (reason, op) = b.refuse(Op::write_at(file, long, 0));
    assert_eq!((reason, op.buf().parts().len()), (Refusal::TooLong, 2049));
    // Memory that is never touched.
    let (reason, op) = b.refuse(Op::read_at(file, room((1 << 31) + 1), 0));
    assert_eq!(reason, Refusal::TooLong);
    assert!(op.into_buf().capacity() > 1 << 31);
    b.expect_all_ended();
}

pub fn a_file_is_used_as_it_was_opened<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    fs::write(directory.at("a"), "there").unwrap();
    let reads = b.open_file(directory.at("a"), OpenOptions::new().read(true));
    let writes = b.open_file(directory.at("a"), OpenOptions::new().write(true));
    for _ in 0..2 {
        let c = b.run(Op::write_at(reads, "lost", 0));
        assert_eq!(&*expect_errno(c, &[libc::EBADF]), b"lost");
        let c = b.run(Op::read_at(writes, room(77), 0));
        let buf = expect_errno(c, &[libc::EBADF]);
        assert_eq!((buf.len(), buf.into_vec().capacity()), (0, 77));
        let list = Buf::list([room(7), room(8)]);
        let buf = expect_errno(b.run(Op::read_at(writes, list, 0)), &[libc::EBADF]);
        assert_eq!((buf.parts().len(), buf.len()), (2, 0));
    }
    let c = b.run(Op::set_len(reads, 0));
    expect_errno(c, &[libc::EINVAL, libc::EBADF]);
    let above = b.open_file(directory.path(), OpenOptions::new().read(true));
    expect_errno(b.run(Op::read_at(above, room(10), 0)), &[libc::EISDIR]);
    assert_eq!(fs::read(directory.at("a")).unwrap(), b"there");
    b.expect_all_ended();
}

/// Operations on sockets are refused on files, and the other way round.
pub fn a_file_is_no_socket<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let file = b.make_file(directory.at("a"));
    let (socket, other) = b.pair();
    for op in [
        Op::read(file),
        Op::read_into(file, room(9)),
        Op::read_exact(file, room(9), 9),
        Op::write(file, "x"),
        Op::poll(file, Ready::READABLE),
        Op::accept(file),
        Op::shutdown(file),
        Op::recv_from(file),
        Op::send_file(file, file, 0, 10),
        Op::read_at(socket, room(9), 0),
        Op::write_at(socket, "kept", 0),
        Op::sync_all(socket),
        Op::sync_data(socket),
        Op::sync_range(socket, 0, 0),
        Op::allocate(socket, 0, 9),
        Op::set_len(socket, 0),
        Op::metadata(socket),
        Op::set_permissions(socket, 0o600),
        Op::send_file(socket, other, 0, 10),
    ] {
        let (code, had) = (op.code(), op.buf().capacity().max(op.buf().len()));
        let (reason, op) = b.refuse(op);
        assert_eq!(reason, Refusal::Unsupported, "{code:?}");
        assert_eq!(op.buf().capacity().max(op.buf().len()), had);
    }
    b.expect_alive(socket, other);
    b.write_at(file, "fine", 0);
    assert!(b.watcher.abort(file));
    for op in [
        Op::read_at(file, room(9), 0),
        Op::write_at(file, "x", 0),
        Op::sync_all(file),
        Op::set_len(file, 0),
        Op::metadata(file),
        Op::send_file(socket, file, 0, 10),
    ] {
        assert_eq!(b.refuse(op).0, Refusal::Stale);
    }
    b.expect_all_ended();
}

/// The name of no source is no file's: what works on a file is refused, before a thread hears of
/// it.
pub fn work_on_a_file_needs_one<H: Harness>() {
    let mut b = H::bench();
    let none = windlass::Source::NONE;
    for op in [
        Op::set_len(none, 0),
        Op::allocate(none, 0, 1),
        Op::sync_range(none, 0, 1),
        Op::metadata(none),
        Op::set_permissions(none, 0o600),
        Op::set_owner(none, None, None),
        Op::set_times(none, None, None),
        Op::read_at(none, vec![0; 1], 0),
        Op::write_at(none, "x", 0),
        Op::sync_all(none),
        Op::sync_data(none),
    ] {
        let text = format!("{op:?}");
        assert_eq!(b.refuse(op).0, windlass::Refusal::Stale, "{text}");
    }
    b.expect_all_ended();
}
