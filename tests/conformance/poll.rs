//! Raw readiness on descriptors of any kind, beside reads and writes (libuv's poll tests).

#[cfg(unix)]
use std::io::Read;
use std::io::Write;
#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::time::Duration;

use windlass::{Completion, Done, ErrorKind, Op, Ready, Refusal};

use crate::common::*;

#[track_caller]
fn ready(c: Completion) -> Ready {
    match c.result {
        Ok(Done::Ready(ready)) => ready,
        other => panic!("wanted readiness: {other:?}"),
    }
}

/// libuv's poll_duplex: both directions of one socket, several polls at once.
pub fn several_polls_on_one_source<H: Harness>() {
    let mut b = H::bench();
    let stuck = b.stuck();
    let w = stuck.writer;
    let readable = b.submit(Op::poll(w, Ready::READABLE));
    let readable_too = b.submit(Op::poll(w, Ready::READABLE));
    let writable = b.submit(Op::poll(w, Ready::WRITABLE));
    let closed = b.submit(Op::poll(w, Ready::READ_CLOSED));
    b.look();
    for ticket in [readable, readable_too, closed] {
        assert!(b.is_open(ticket));
    }
    b.write(stuck.peer, "x");
    assert_eq!(ready(b.end(readable)), Ready::READABLE);
    assert_eq!(ready(b.end(readable_too)), Ready::READABLE);
    assert!(b.is_open(closed));
    // Polls take no bytes, and have no place in the order of the writes.
    assert_eq!(b.read(w), b"x");
    let got = b.read_exact(stuck.peer, stuck.bytes.len());
    expect_same(&got, &stuck.bytes);
    assert_eq!(ready(b.end(writable)), Ready::WRITABLE);
    expect_written(b.end(stuck.ticket));
    let shutdown = b.submit(Op::shutdown(stuck.peer));
    expect_shutdown(b.end(shutdown));
    assert!(ready(b.end(closed)).contains(Ready::READ_CLOSED));
    b.expect_all_ended();
}

#[cfg(unix)]
pub fn hang_up_and_error_are_always_reported<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let source = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let poll = b.submit(Op::poll(source, Ready::NONE));
    b.look();
    assert!(b.is_open(poll));
    drop(writer);
    assert!(ready(b.end(poll)).contains(Ready::HANGUP));
    let (reader, writer) = std::io::pipe().unwrap();
    let source = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    let poll = b.submit(Op::poll(source, Ready::NONE));
    b.look();
    drop(reader);
    assert!(ready(b.end(poll)).contains(Ready::ERROR));
    b.expect_all_ended();
}

/// Urgent data is a condition of its own.
pub fn urgent_data_is_a_priority_condition<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = system::tcp_pair();
    let source = b.watcher.attach(here).unwrap();
    let poll = b.submit(Op::poll(source, Ready::PRIORITY));
    b.look();
    assert!(b.is_open(poll));
    (&there).write_all(b"plain").unwrap();
    b.look();
    assert!(b.is_open(poll), "plain data is not urgent");
    socket2::SockRef::from(&there).send_out_of_band(b"!").unwrap();
    assert!(ready(b.end(poll)).contains(Ready::PRIORITY));
    assert_eq!(b.read_exact(source, 5), b"plain");
}

#[cfg(unix)]
pub fn polls_end_like_other_operations<H: Harness>() {
    let mut b = H::bench();
    let (silent, _writer) = std::io::pipe().unwrap();
    let source = b.watcher.attach(silent).unwrap();
    let expiring = b.submit(Op::poll(source, Ready::READABLE).timeout(Duration::from_millis(5)));
    expect_unmoved(b.end(expiring), ErrorKind::Deadline);
    let cancelled = b.submit(Op::poll(source, Ready::READABLE));
    assert!(b.watcher.cancel(cancelled));
    assert!(!b.watcher.cancel(cancelled));
    expect_unmoved(b.end(cancelled), ErrorKind::Cancelled);
    let all = b.submit(Op::poll(source, Ready::READABLE));
    assert_eq!(b.watcher.cancel_all(source), 1);
    expect_unmoved(b.end(all), ErrorKind::Cancelled);
    let aborted = b.submit(Op::poll(source, Ready::READABLE));
    assert!(b.watcher.abort(source));
    expect_unmoved(b.end(aborted), ErrorKind::Aborted);
    let (silent, _other_writer) = std::io::pipe().unwrap();
    let source = b.watcher.attach(silent).unwrap();
    let closed = b.submit(Op::poll(source, Ready::READABLE));
    b.watcher.close();
    expect_unmoved(b.end(closed), ErrorKind::Closed);
    assert_eq!(b.refuse(Op::poll(source, Ready::READABLE)).0, Refusal::Closed);
}

/// libuv's poll_bad_fdtype.
pub fn regular_files_cannot_be_polled<H: Harness>() {
    let mut b = H::bench();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let source = b.watcher.attach(file).unwrap();
    assert_eq!(b.refuse(Op::poll(source, Ready::READABLE)).0, Refusal::Unsupported);
}

/// libuv's poll_nested_epoll: a watcher in a watcher.
#[cfg(unix)]
pub fn another_watcher_can_be_polled<H: Harness>() {
    let mut outer = H::bench();
    let mut inner = H::bench();
    let fd = inner.watcher.pollable().unwrap().try_clone_to_owned().unwrap();
    let source = outer.watcher.attach(fd).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let here = inner.watcher.attach(here).unwrap();
    let read = inner.submit(Op::read(here));
    inner.look();
    let poll = outer.submit(Op::poll(source, Ready::READABLE));
    outer.look();
    assert!(outer.is_open(poll));
    (&there).write_all(b"x").unwrap();
    assert!(ready(outer.end(poll)).contains(Ready::READABLE));
    inner.look();
    assert!(!inner.is_open(read));
}

/// libuv's poll_multiple_handles: two sources of one socket.
#[cfg(unix)]
pub fn two_sources_of_one_socket<H: Harness>() {
    let mut b = H::bench();
    let (here, there) = UnixStream::pair().unwrap();
    let first = b.watcher.attach_dup(&here).unwrap();
    let second = b.watcher.attach_dup(&here).unwrap();
    let polls = [first, second].map(|source| b.submit(Op::poll(source, Ready::READABLE)));
    b.look();
    (&there).write_all(b"x").unwrap();
    for poll in polls {
        assert_eq!(ready(b.end(poll)), Ready::READABLE);
    }
    // Aborting one does not end the other, nor the original.
    let poll = b.submit(Op::poll(second, Ready::READ_CLOSED));
    b.look();
    assert!(b.watcher.abort(first));
    drop(there);
    assert!(ready(b.end(poll)).contains(Ready::READ_CLOSED));
    let mut text = Vec::new();
    (&here).read_to_end(&mut text).unwrap();
    assert_eq!(text, b"x");
}

pub fn a_listener_becomes_readable<H: Harness>() {
    let mut b = H::bench();
    let (listener, at) = b.listen();
    let poll = b.submit(Op::poll(listener, Ready::READABLE));
    b.look();
    assert!(b.is_open(poll));
    let connect = b.submit(Op::connect(at));
    expect_connected(b.end(connect));
    assert_eq!(ready(b.end(poll)), Ready::READABLE);
    let accept = b.submit(Op::accept(listener));
    expect_accepted(b.end(accept));
}
