//! Pipes and other descriptors that are not sockets: read until EAGAIN, flags given back.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use windlass::{ErrorKind, Op, Refusal};

use crate::common::*;

pub fn a_megabyte_through_a_pipe<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let writer = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    let bytes = pattern(1 << 20, 1);
    let write = b.submit(Op::write(writer, bytes.clone()));
    let parts = vec!["and ".into(), "a ".into(), "list".into()];
    let list = b.submit(Op::write_vectored(writer, parts));
    let close = b.submit(Op::close(writer));
    let got = b.read_to_end(reader);
    expect_same(&got[..1 << 20], &bytes);
    assert_eq!(&got[1 << 20..], b"and a list");
    expect_written(b.end(write));
    expect_written(b.end(list));
    expect_closed(b.end(close));
    b.expect_all_ended();
}

/// A blocking pipe is made non-blocking for its operations, and blocks again when it is given back.
pub fn flags_come_back_with_detach<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    assert!(system::is_blocking(&reader));
    let source = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let read = b.submit(Op::read(source));
    b.look();
    assert!(b.is_open(read));
    (&writer).write_all(b"x").unwrap();
    assert_eq!(&*expect_read(b.end(read)), b"x");
    let handle = b.watcher.detach(source).unwrap();
    let fd: OwnedFd = handle.into_fd().unwrap();
    assert!(system::is_blocking(&fd));
    // Sockets are never touched.
    let (here, _there) = system::tcp_pair();
    let source = b.watcher.attach(here).unwrap();
    let read = b.submit(Op::read(source).timeout(Duration::from_millis(1)));
    expect_unmoved(b.end(read), ErrorKind::Deadline);
    let fd = b.watcher.detach(source).unwrap().into_fd().unwrap();
    assert!(system::is_blocking(&fd));
}

/// An open file description that other code shares is never changed; reads and writes still do not
/// block.
pub fn a_shared_pipe_is_not_changed<H: Harness>() {
    let mut b = H::bench();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let read_end = b.watcher.attach_dup(&reader).unwrap();
    let write_end = b.watcher.attach_dup(&writer).unwrap();
    let read = b.submit(Op::read(read_end));
    b.look();
    assert!(b.is_open(read), "an empty pipe does not block the loop");
    assert!(system::is_blocking(&reader) && system::is_blocking(&writer));
    writer.write_all(b"x").unwrap();
    assert_eq!(&*expect_read(b.end(read)), b"x");
    // More than a pipe holds.
    let bytes = pattern(300_000, 2);
    let write = b.submit(Op::write(write_end, bytes.clone()));
    b.look();
    assert!(b.is_open(write), "a full pipe does not block the loop");
    assert!(system::is_blocking(&reader) && system::is_blocking(&writer));
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let read = b.submit(Op::read_vectored(read_end, vec![room(10_000), room(10_000)]));
        got.extend(expect_read(b.end(read)).into_vec());
    }
    expect_same(&got, &bytes);
    expect_written(b.end(write));
    b.watcher.abort(write_end);
    drop(writer);
    assert!(b.read(read_end).is_empty());
    b.watcher.abort(read_end);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the caller's end still works");
}

pub fn a_pipe_without_reader_fails<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let source = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    let write = b.submit(Op::write(source, pattern(300_000, 1)));
    let behind = b.submit(Op::write(source, "x"));
    b.look();
    drop(reader);
    let c = b.end(write);
    assert!(c.bytes() > 0);
    expect_errno(c, &[libc::EPIPE]);
    expect_unmoved(b.end(behind), ErrorKind::Torn);
    let write = b.submit(Op::write(source, "x"));
    expect_errno(b.end(write), &[libc::EPIPE]);
    b.expect_all_ended();
}

/// TigerBeetle's "pipe data over socket": what comes out of the pipe goes over the socket, as the
/// same leases.
pub fn pipe_data_over_a_socket<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let writer = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    let (here, there) = b.pair();
    let bytes = pattern(500_000, 3);
    let write = b.submit(Op::write(writer, bytes.clone()));
    let close = b.submit(Op::close(writer));
    let receive = b.submit(Op::read_exact(there, room(bytes.len()), bytes.len()));
    loop {
        let read = b.submit(Op::read(reader));
        let data = expect_read(b.end(read));
        if data.is_eof() {
            break;
        }
        let forward = b.submit(Op::write(here, data));
        expect_written(b.end(forward));
    }
    expect_same(&expect_read(b.end(receive)), &bytes);
    expect_written(b.end(write));
    expect_closed(b.end(close));
    b.expect_all_ended();
}

pub fn what_a_pipe_cannot_do_is_refused<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let writer = b.watcher.attach(OwnedFd::from(writer)).unwrap();
    assert_eq!(b.refuse(Op::shutdown(writer)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::accept(reader)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::recv_from(reader)).0, Refusal::Unsupported);
    assert_eq!(b.refuse(Op::recv_descriptors(reader)).0, Refusal::Unsupported);
    // The wrong end is the system's to say.
    let write = b.submit(Op::write(reader, "x"));
    expect_errno(b.end(write), &[libc::EBADF]);
    let read = b.submit(Op::read(writer));
    expect_errno(b.end(read), &[libc::EBADF]);
    b.expect_all_ended();
}

/// Many small writes of another process's kind: bytes that come in while the loop looks away are
/// not lost to the edge.
pub fn short_reads_of_a_pipe_lose_nothing<H: Harness>() {
    let mut b = H::bench();
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = b.watcher.attach(OwnedFd::from(reader)).unwrap();
    let bytes = pattern(200_000, 4);
    let thread = {
        let bytes = bytes.clone();
        std::thread::spawn(move || {
            for chunk in bytes.chunks(97) {
                (&writer).write_all(chunk).unwrap();
            }
        })
    };
    let got = b.read_to_end(reader);
    join(thread, "the thread that writes");
    expect_same(&got, &bytes);
}
