//! A forked child that makes its parent's watcher its own: each test in a process of its own.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // fork needs libc

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::files::*;
use common::*;
use windlass::driver::Auto;
use windlass::fs::{FileBackend, OpenOptions};
use windlass::net::{ConnectOptions, ListenOptions};
use windlass::{
    Address, AlignedBuf, Buf, Completions, Done, DriverKind, ErrorKind, Op, Refusal, Source,
    Ticket, Watcher,
};

#[test]
fn a_child_of_epoll_begins_anew() {
    begins_anew("a_child_of_epoll_begins_anew", DriverKind::Epoll, FileBackend::Pool);
}

#[test]
fn a_child_of_epoll_with_aio_begins_anew() {
    begins_anew("a_child_of_epoll_with_aio_begins_anew", DriverKind::Epoll, FileBackend::Aio);
}

#[test]
fn a_child_of_epoll_with_a_ring_begins_anew() {
    begins_anew("a_child_of_epoll_with_a_ring_begins_anew", DriverKind::Epoll, FileBackend::Uring);
}

#[test]
fn a_child_of_a_ring_begins_anew() {
    begins_anew("a_child_of_a_ring_begins_anew", DriverKind::Uring, FileBackend::Uring);
}

#[test]
fn a_child_of_poll_begins_anew() {
    begins_anew("a_child_of_poll_begins_anew", DriverKind::Poll, FileBackend::Pool);
}

/// A forked child that runs `body`.
struct Forked(libc::pid_t);

fn fork(body: impl FnOnce()) -> Forked {
    // SAFETY: no other thread of this process holds a lock of what the child uses: those of the
    // workers wait for a job, or in one.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the child if it hangs; no memory is passed.
            unsafe { libc::alarm(60) };
            let said = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(said.is_err())) }
        }
        pid => {
            assert!(pid > 0);
            Forked(pid)
        }
    }
}

impl Forked {
    /// Waits until it has ended well.
    fn end(self) {
        let mut status = -1;
        // SAFETY: room for one status.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        assert!(!hangs(status), "the child hangs: no end within a minute");
        assert_eq!(status, 0, "the child has failed");
    }
}

/// Whether the child's alarm has ended it.
fn hangs(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM
}

fn bench(driver: DriverKind) -> Bench<Auto> {
    Bench::new(Watcher::builder().driver(driver).build().expect("a watcher"), Epoll::address())
}

/// On every driver, in a process that nothing else runs in.
fn on_each(test: &str, body: fn(DriverKind)) {
    child::in_child(test, || {
        for driver in [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll] {
            body(driver);
        }
    });
}

/// Neither process makes a description block again that the other may use: its loop would hang in a
/// call.
#[test]
fn neither_process_restores_flags() {
    on_each("neither_process_restores_flags", |driver| {
        let attach = |b: &mut Bench<Auto>| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let kept = listener.try_clone().unwrap();
            (b.watcher.attach(listener).unwrap(), kept)
        };
        let mut b = bench(driver);
        let (used, unused) = (attach(&mut b), attach(&mut b));
        let accept = b.submit(Op::accept(used.0));
        assert!(!system::is_blocking(&used.1) && system::is_blocking(&unused.1));
        let mut both = Some(b);
        fork(|| {
            let mut b = both.take().expect("it is there");
            b.watcher.reinit_after_fork().unwrap();
            assert_eq!(b.next().ticket(), accept);
            b.submit(Op::accept(used.0));
            b.submit(Op::accept(unused.0));
            b.look();
            assert!(b.watcher.abort(used.0));
            b.watcher.close();
        })
        .end();
        let mut b = both.take().expect("it is the child's that is gone");
        assert!(!system::is_blocking(&used.1), "the child has restored it");
        assert!(!system::is_blocking(&unused.1), "the child has restored it");
        assert!(b.watcher.abort(used.0));
        expect_unmoved(b.end(accept), ErrorKind::Aborted);
        assert!(!system::is_blocking(&used.1), "the parent has restored it");
        assert!(b.watcher.detach(unused.0).is_ok());
        // What no other process can have is restored.
        b.expect_all_ended();
    });
}

/// Names that other threads of the parent have given back unused are vacated once, in both
/// processes.
#[test]
fn unused_names_are_given_up() {
    on_each("unused_names_are_given_up", |driver| {
        let builder = Watcher::builder().driver(driver).remote_queue(1).id_reserve(4);
        let mut b = Bench::new(builder.build().expect("a watcher"), Epoll::address());
        let submitter = b.submitter();
        let queued = submitter.submit(Op::timer(Duration::from_secs(60))).unwrap();
        submitter.submit(Op::nop()).unwrap_err();
        submitter.attach(UnixStream::pair().unwrap().0).unwrap_err();
        let expect_works = |b: &mut Bench<Auto>| {
            let counters = b.watcher.counters();
            assert_eq!((counters.in_flight, counters.sources), (0, 0));
            let (here, there) = b.pair();
            b.expect_alive(here, there);
        };
        let mut both = Some(b);
        fork(|| {
            let mut b = both.take().expect("it is there");
            b.watcher.reinit_after_fork().unwrap();
            expect_unmoved(b.end(queued), ErrorKind::Forked);
            expect_works(&mut b);
        })
        .end();
        let mut b = both.take().expect("it is the child's that is gone");
        assert!(b.watcher.cancel(queued));
        expect_unmoved(b.end(queued), ErrorKind::Cancelled);
        expect_works(&mut b);
    });
}

/// A source that connects goes on in the parent; in the child its connect has failed.
#[test]
fn a_connect_goes_on_in_the_parent() {
    on_each("a_connect_goes_on_in_the_parent", |driver| {
        let mut b = bench(driver);
        let backlog = ListenOptions::default().backlog(0);
        let silent = b.watcher.listen_with(([127, 0, 0, 1], 0), backlog).unwrap();
        let at = b.watcher.local_address(silent).unwrap();
        let mut clients = Vec::new();
        loop {
            let connect = Op::connect(at.clone()).timeout(Duration::from_millis(100));
            match b.run(connect).result {
                Ok(Done::Socket(client)) => clients.push(client),
                _ => break,
            }
        }
        let slow = ConnectOptions::default().attempt_delay(Duration::from_millis(10));
        let (here, connect) = b.connect_source([at.clone(), at.clone()], slow);
        let read = b.submit(Op::read(here));
        b.pass(Duration::from_millis(30));
        let mut both = Some(b);
        fork(|| {
            let mut b = both.take().expect("it is there");
            b.watcher.reinit_after_fork().unwrap();
            let c = b.end(connect);
            assert_eq!(c.source, here);
            expect_unmoved(c, ErrorKind::Forked);
            expect_unmoved(b.end(read), ErrorKind::Forked);
            assert_eq!(b.refuse(Op::read(here)).0, Refusal::Os(libc::ECANCELED));
            assert!(b.watcher.abort(here));
            assert_eq!(b.watcher.counters().sources, 1);
        })
        .end();
        let mut b = both.take().expect("it is the child's that is gone");
        assert!(b.is_open(connect) && b.watcher.cancel(connect));
        expect_unmoved(b.end(connect), ErrorKind::Cancelled);
        expect_errno(b.end(read), &[libc::ECANCELED]);
        b.watcher.close();
    });
}

/// A parent hears nothing of what it has aborted, although the child has it open.
#[test]
fn what_the_parent_has_aborted_is_the_childs() {
    on_each("what_the_parent_has_aborted_is_the_childs", |driver| {
        let mut b = bench(driver);
        let listener = b.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
        let port = b.watcher.local_address(listener).unwrap().ip().expect("an address").port();
        let mut there = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // One that cannot have a duplicate in this process.
        let here = expect_accepted(b.run(Op::accept(listener)));
        let here = b.watcher.attach(here).unwrap();
        let read = b.submit(Op::read(here));
        b.look();
        let (mut until, ends) = std::io::pipe().unwrap();
        let mut both = Some((b, ends));
        let child = fork(|| {
            // Until the parent has seen what it wants to see.
            let (b, ends) = both.take().expect("they are there");
            drop(ends);
            assert_eq!(until.read(&mut [0]).unwrap(), 0);
            drop(b);
        });
        let (mut b, ends) = both.take().expect("the child's copy is its own");
        assert!(b.watcher.abort(here));
        expect_unmoved(b.end(read), ErrorKind::Aborted);
        let before = b.watcher.counters().stale_events;
        for _ in 0..10 {
            there.write_all(b"not for the parent").unwrap();
            b.look();
        }
        assert_eq!(b.watcher.counters().stale_events, before);
        drop(ends);
        child.end();
        b.watcher.close();
    });
}

/// What other threads have queued and the loop has not taken ends in the child, too; what they
/// attach is there.
#[test]
fn what_was_queued_is_inherited() {
    on_each("what_was_queued_is_inherited", |driver| {
        let mut b = bench(driver);
        let submitter = b.submitter();
        let (here, _there) = b.pair();
        let aborted = b.submit(Op::read_into(here, room(64)));
        b.look();
        let (socket, peer) = system::tcp_pair();
        let source = submitter.attach(socket).unwrap();
        let read = submitter.submit(Op::read_into(source, room(64))).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let kept = listener.try_clone().unwrap();
        let listener = submitter.attach(listener).unwrap();
        submitter.post(5, 55u8).unwrap();
        submitter.abort(here);
        let mut both = Some(b);
        fork(|| {
            let mut b = both.take().expect("it is there");
            b.watcher.reinit_after_fork().unwrap();
            let buf = expect_unmoved(b.end(read), ErrorKind::Forked).into_vec();
            assert!(buf.capacity() >= 64);
            expect_unmoved(b.end(aborted), ErrorKind::Forked);
            assert!(!b.watcher.abort(here), "it is aborted");
            while b.next().token != 5 {}
            b.submit(Op::accept(listener));
            b.look();
            assert!(b.watcher.abort(listener));
            let read = b.submit(Op::read(source));
            assert!(b.watcher.cancel(read));
            expect_unmoved(b.end(read), ErrorKind::Cancelled);
            assert_eq!(b.watcher.counters().in_flight, 0);
        })
        .end();
        assert!(!system::is_blocking(&kept), "the child has restored what the parent has queued");
        let mut b = both.take().expect("it is the child's that is gone");
        (&peer).write_all(b"the parent's").unwrap();
        assert_eq!(&*expect_read(b.end(read)), b"the parent's");
        expect_unmoved(b.end(aborted), ErrorKind::Aborted);
        b.watcher.close();
        drop(b);
        // No process has it open any more.
        assert_eq!((&peer).read(&mut [0]).unwrap(), 0);
    });
}

/// Operations in flight at the fork, on sources of every kind.
struct Before {
    listener: Source,
    port: u16,
    pair: (Source, Source),
    idle: (Source, Source),
    stuck: Stuck,
    file: Source,
    direct: Source,
    read: Ticket,
    behind: Ticket,
    own: Ticket,
    timer: Ticket,
    poll: Ticket,
    accept: Ticket,
    closing: Ticket,
    held: Ticket,
    told: Ticket,
    reading: Ticket,
}

fn begins_anew(test: &str, driver: DriverKind, files: FileBackend) {
    child::in_child(test, || {
        let directory = Directory::new();
        let builder = Watcher::builder().driver(driver).file_backend(files).threads(1);
        let mut b = Bench::new(builder.build().expect("a watcher"), Epoll::address());
        let (before, gate) = before(&mut b, &directory);
        let submitter = b.submitter();
        let guard = b.watcher.guard(before.pair.0);
        let mut both = Some((b, before, guard));
        fork(|| {
            let (b, before, guard) = both.take().expect("they are there");
            assert_eq!(submitter.wake(1), Err(Refusal::Forked));
            in_child(b, before, files, &directory);
            drop(guard);
        })
        .end();
        let (mut b, before, guard) = both.take().expect("the child's copy is gone");
        // The parent's go on.
        b.write(before.pair.1, "one");
        assert_eq!(&*expect_read(b.end(before.read)), b"one");
        b.write(before.pair.1, "two");
        assert_eq!(&*expect_read(b.end(before.behind)), b"two");
        b.write(before.pair.0, "three");
        assert_eq!(&*expect_read(b.end(before.own)), b"three");
        assert_eq!(b.read_exact(before.stuck.peer, before.stuck.bytes.len()), before.stuck.bytes);
        expect_written(b.end(before.stuck.ticket));
        expect_closed(b.end(before.closing));
        drop(gate);
        expect_held(b.end(before.held));
        assert_eq!(expect_read(b.end(before.reading)).len(), 4096);
        assert_eq!(b.read_at(before.file, 9, 0), b"of both");
        let socket = TcpStream::connect(("127.0.0.1", before.port)).expect("the listener is there");
        expect_accepted(b.end(before.accept));
        drop(socket);
        submitter.wake(7).unwrap();
        while b.next().token != 7 {}
        assert!(b.watcher.abort(guard.release()), "no child has aborted it");
        b.watcher.close();
        b.keep(Vec::new());
    });
}

fn before(b: &mut Bench<Auto>, directory: &Directory) -> (Before, Gate) {
    let listener = b.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let port = b.watcher.local_address(listener).unwrap().ip().expect("an internet address").port();
    let (pair, idle, stuck) = (b.pair(), b.pair(), b.stuck());
    b.expect_alive(pair.0, pair.1);
    b.expect_alive(idle.0, idle.1);
    let file = b.make_file(directory.at("a"));
    b.write_at(file, "of both", 0);
    let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
    let direct = b.open_file(directory.at("b"), options);
    let page = || AlignedBuf::from_slice(&[7; 4096], 4096);
    expect_written(b.run(Op::write_at(direct, page(), 0)));
    let (held, gate) = hold(b);
    let mut before = Before {
        listener,
        port,
        pair,
        idle,
        file,
        direct,
        read: b.submit(Op::read(pair.0)),
        behind: b.submit(Op::read(pair.0)),
        own: b.submit(Op::read_into(pair.1, room(64)).timeout(Duration::from_secs(3600))),
        timer: b.submit(Op::timer(Duration::from_secs(3600))),
        poll: b.submit(Op::poll(idle.0, windlass::Ready::PRIORITY)),
        accept: b.submit(Op::accept(listener).multishot()),
        closing: b.submit(Op::close(stuck.writer)),
        stuck,
        held,
        told: b.submit(Op::run(|| ())),
        reading: Ticket::NONE,
    };
    b.look();
    before.reading = b.submit(Op::read_at(direct, AlignedBuf::with_capacity(4096, 4096), 0));
    (before, gate)
}

/// Every call says that the watcher is the parent's, and does nothing.
fn expect_forked(b: &mut Bench<Auto>, directory: &Directory) {
    let (watcher, any) = (&mut b.watcher, Source::NONE);
    let forked = std::io::Error::from(Refusal::Forked).to_string();
    let is_forked = |error: std::io::Error| assert_eq!(error.to_string(), forked);
    assert_eq!(watcher.submit(Op::nop()).unwrap_err().reason, Refusal::Forked);
    assert_eq!(watcher.attach(UnixStream::pair().unwrap().0).unwrap_err().reason, Refusal::Forked);
    assert_eq!(watcher.detach(any).unwrap_err(), Refusal::Forked);
    assert_eq!(watcher.fd(any).unwrap_err(), Refusal::Forked);
    assert_eq!(watcher.queued_bytes(any), Err(Refusal::Forked));
    assert_eq!(watcher.pollable().unwrap_err(), Refusal::Forked);
    assert_eq!(watcher.set_token(any, 1), Err(Refusal::Forked));
    assert_eq!(watcher.local_address(any).unwrap_err(), Refusal::Forked);
    assert_eq!(watcher.peer_address(any).unwrap_err(), Refusal::Forked);
    assert_eq!(watcher.set_nodelay(any, true), Err(Refusal::Forked));
    is_forked(watcher.recv(any, &mut [0; 9]).unwrap_err());
    is_forked(watcher.send(any, b"x").unwrap_err());
    is_forked(watcher.set_affinity(0).unwrap_err());
    is_forked(watcher.try_wait(&mut Completions::new()).unwrap_err());
    let path = directory.path().join("refused");
    is_forked(watcher.listen(Address::unix(&path).unwrap()).unwrap_err());
    assert!(!path.exists(), "it was bound");
    assert!(!watcher.abort(any) && !watcher.cancel(Ticket::NONE) && watcher.cancel_all(any) == 0);
}

fn in_child(mut b: Bench<Auto>, before: Before, files: FileBackend, directory: &Directory) {
    expect_forked(&mut b, directory);
    b.watcher.reinit_after_fork().unwrap();
    b.watcher.reinit_after_fork().expect("it is its own: nothing to be done");
    // Each operation ends once, in the order of its queue, and its buffer comes back where it is.
    let ends =
        [before.read, before.behind, before.timer, before.poll, before.accept, before.closing];
    for ticket in ends.into_iter().chain([before.held, before.told]) {
        assert!(expect_unmoved(b.end(ticket), ErrorKind::Forked).is_empty());
    }
    let own = expect_unmoved(b.end(before.own), ErrorKind::Forked).into_vec();
    assert!(own.is_empty() && own.capacity() >= 64);
    let (_moved, buf) = expect_error(b.end(before.stuck.ticket), ErrorKind::Forked);
    expect_same(&buf, &before.stuck.bytes);
    let page = expect_unmoved(b.end(before.reading), ErrorKind::Forked).into_aligned();
    let by_threads = files == FileBackend::Pool;
    assert!(by_threads || page.is_ok_and(|page| page.capacity() >= 4096));
    b.expect_all_ended();
    assert_eq!(b.watcher.counters().in_flight, 0);
    // The names are as they were, and what they name works.
    b.expect_alive(before.idle.0, before.idle.1);
    let accept = b.submit(Op::accept(before.listener));
    let _socket = TcpStream::connect(("127.0.0.1", before.port)).expect("the listener is there");
    expect_accepted(b.end(accept));
    expect_timer(b.run(Op::timer(Duration::from_millis(1))));
    b.look();
    // Threads, contexts and rings are there again.
    assert_eq!(b.read_at(before.file, 9, 0), b"of both");
    let page = AlignedBuf::from_slice(&[8; 4096], 4096);
    expect_written(b.run(Op::write_at(before.direct, page, 4096)));
    let page =
        expect_read(b.run(Op::read_at(before.direct, AlignedBuf::with_capacity(4096, 4096), 4096)));
    assert!(page.iter().all(|&byte| byte == 8) && page.len() == 4096);
    let new = b.make_file(directory.at("the child's"));
    b.write_at(new, Buf::from(vec![1; 3 << 20]), 0);
    expect_finished(b.run(Op::sync_all(new)));
    assert_eq!(expect_returned::<u8>(b.run(Op::run(|| 5u8))), 5);
    let read = b.submit(Op::read(before.stuck.writer)); // its close was the parent's
    assert!(b.watcher.cancel(read));
    assert!(expect_unmoved(b.end(read), ErrorKind::Cancelled).is_empty());
    assert!(b.watcher.detach(before.stuck.writer).is_ok());
}

/// Idle timeouts hold in both processes: the child's sources keep theirs.
#[test]
fn idle_timeouts_hold_in_both() {
    on_each("idle_timeouts_hold_in_both", |driver| {
        let mut b = bench(driver);
        let (here, there) = b.pair();
        let (other, _far) = b.pair();
        let timeout = Duration::from_millis(150);
        b.watcher.set_idle_timeout(here, Some(timeout)).unwrap();
        b.watcher.set_idle_timeout(other, Some(Duration::from_secs(3600))).unwrap();
        let read = b.submit(Op::read(here).multishot());
        let second = b.submit(Op::read(other));
        b.look();
        let mut both = Some(b);
        let child = fork(|| {
            let mut b = both.take().expect("it is there");
            b.watcher.reinit_after_fork().unwrap();
            expect_unmoved(b.end(read), ErrorKind::Forked);
            expect_unmoved(b.end(second), ErrorKind::Forked);
            for _ in 0..2 {
                let start = b.watcher.update_now();
                let reads = [b.submit(Op::read(here)), b.submit(Op::read(other))];
                expect_unmoved(b.end(reads[0]), ErrorKind::Deadline);
                // The idle time before the fork counts the first time.
                assert!(b.watcher.now() >= start, "time goes on");
                assert!(b.is_open(reads[1]), "an hour has not passed");
                assert!(b.watcher.cancel(reads[1]));
                expect_unmoved(b.end(reads[1]), ErrorKind::Cancelled);
            }
            assert_eq!(b.watcher.counters().idle_timeouts, 2);
            b.watcher.set_idle_timeout(here, None).unwrap();
            let read = b.submit(Op::read(here));
            b.pass(2 * timeout);
            assert!(b.is_open(read), "it has no timeout any more");
        });
        let mut b = both.take().expect("the child's copy is its own");
        expect_unmoved(b.end(read), ErrorKind::Deadline);
        assert_eq!(b.watcher.counters().idle_timeouts, 1);
        assert!(b.is_open(second), "an hour has not passed");
        child.end();
        b.expect_alive(here, there);
    });
}

/// The child's copy of a simulation is its own: what its parent has begun there ends, and its
/// watcher works with the sockets and files of the copy.
#[test]
fn a_child_of_a_simulation_begins_anew() {
    child::in_child("a_child_of_a_simulation_begins_anew", || {
        for completing in [false, true] {
            let sim = windlass::sim::Sim::new(1);
            sim.set_completing(completing);
            sim.write_file("a", "bytes");
            let mut b = Bench::new(Watcher::simulated(&sim), Epoll::address());
            let (here, there) = b.pair();
            let file = b.open_file("a", OpenOptions::new().read(true));
            let other = b.open_file("a", OpenOptions::new().read(true));
            let closing = b.submit(Op::close(other));
            let read = b.submit(Op::read(here));
            let begun = b.submit(Op::read_at(file, room(5), 0));
            let mut both = Some(b);
            fork(|| {
                let mut b = both.take().expect("it is there");
                b.watcher.reinit_after_fork().unwrap();
                expect_unmoved(b.end(read), ErrorKind::Forked);
                expect_unmoved(b.end(begun), ErrorKind::Forked);
                // Its completion is a close's, although the parent was closing the file by a job.
                expect_unmoved(b.end(closing), ErrorKind::Forked);
                assert_eq!(b.read_at(file, 5, 0), b"bytes");
                b.expect_alive(here, there);
                b.expect_all_ended();
            })
            .end();
            let mut b = both.take().expect("it is the child's that is gone");
            assert_eq!(&*expect_read(b.end(begun)), b"bytes");
            expect_closed(b.end(closing));
            b.write(there, "x");
            assert_eq!(&*expect_read(b.end(read)), b"x");
            b.expect_all_ended();
        }
    });
}
