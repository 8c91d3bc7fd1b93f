//! C2: descriptors are owned from the moment the kernel hands them over; whatever is dropped unread
//! leaks nothing. Counted in /proc/self/fd, so these tests run one at a time, in a binary of their
//! own.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // raw descriptors need libc

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::*;
use windlass::driver::Driver;
use windlass::{Completions, Op, Watcher};

/// Runs `body` alone; it must give back every descriptor that it took.
#[track_caller]
fn balanced(body: impl FnOnce()) {
    let _alone = hungry();
    // What the process opens once and keeps.
    drop(Epoll::bench());
    let before = system::descriptors();
    body();
    expect_descriptors(before, 0);
}

/// As many as the watcher and `more` need: what is not counted below leaks.
#[track_caller]
fn expect_descriptors(base: usize, more: usize) {
    // A thread closes files, a moment after the program has dropped them.
    let end = std::time::Instant::now() + BOUND;
    while system::descriptors() != base + more {
        let now = system::descriptors();
        assert!(std::time::Instant::now() < end, "{now} descriptors, not {base} and {more}");
        std::thread::yield_now();
    }
}

#[test]
fn a_watcher_gives_everything_back() {
    balanced(|| {
        for _ in 0..50 {
            let mut b = Epoll::bench();
            let pairs = b.pairs(10);
            b.listen();
            b.submit(Op::read(pairs[0].0));
            b.submit(Op::write(pairs[1].0, vec![1; 1 << 20]));
        }
    });
}

#[test]
fn abort_close_and_detach_give_back() {
    balanced(|| {
        let mut b = Epoll::bench();
        let base = system::descriptors();
        let pairs = b.pairs(10);
        expect_descriptors(base, 20);
        for &(here, _) in &pairs[..5] {
            assert!(b.watcher.abort(here));
        }
        expect_descriptors(base, 15);
        let close = b.submit(Op::close(pairs[5].0));
        expect_closed(b.end(close));
        expect_descriptors(base, 14);
        drop(b.watcher.detach(pairs[6].0).unwrap());
        expect_descriptors(base, 13);
        let handle = b.watcher.detach(pairs[7].0).unwrap();
        expect_descriptors(base, 13);
        b.watcher.close();
        expect_descriptors(base, 1);
        drop(handle);
        expect_descriptors(base, 0);
    });
}

#[test]
fn accepted_connections_that_the_program_drops() {
    balanced(|| {
        let mut b = Epoll::bench();
        let (listener, at) = b.listen();
        let at = at.ip().unwrap();
        let base = system::descriptors();
        // In a batch that is dropped.
        b.watcher.submit(Op::accept(listener).multishot()).unwrap();
        let clients: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut done = Completions::new();
        while done.len() < 10 {
            b.watcher.wait_timeout(&mut done, BOUND).unwrap();
        }
        expect_descriptors(base, 20);
        done.clear();
        expect_descriptors(base, 10);
        drop(clients);
        // In the driver, never fetched.
        let clients: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(at).unwrap()).collect();
        b.watcher.submit(Op::accept(listener)).unwrap();
        b.watcher.submit(Op::accept(listener)).unwrap();
        drop(b);
        drop(clients);
    });
}

#[test]
fn connected_sockets_that_the_program_drops() {
    balanced(|| {
        let mut b = Epoll::bench();
        let (listener, at) = b.listen();
        let base = system::descriptors();
        for _ in 0..10 {
            let connect = b.submit(Op::connect(at.clone()));
            let c = b.end(connect);
            expect_descriptors(base, 1);
            drop(c);
            expect_descriptors(base, 0);
        }
        // Ended before they were delivered, one way or another.
        for _ in 0..10 {
            let connect = b.submit(Op::connect(at.clone()));
            b.watcher.cancel(connect);
            drop(b.end(connect));
            let connect = b.submit(Op::connect(at.clone()).timeout(Duration::from_nanos(1)));
            drop(b.end(connect));
            let refused = b.submit(Op::connect(Epoll::nowhere()));
            drop(b.end(refused));
            expect_descriptors(base, 0);
        }
        // A socket of one's own goes with the refusal, and with the failure.
        let (socket, _other) = UnixStream::pair().unwrap();
        let connect = b.submit(Op::connect_with(OwnedFd::from(socket), at.clone()));
        drop(b.end(connect));
        b.watcher.abort(listener);
        for _ in 0..5 {
            b.watcher.submit(Op::connect(at.clone())).unwrap();
        }
        b.watcher.close();
        let (socket, _other) = UnixStream::pair().unwrap();
        let refused = b.watcher.submit(Op::connect_with(OwnedFd::from(socket), at)).unwrap_err();
        drop(refused);
    });
}

#[test]
fn passed_descriptors_that_the_program_drops() {
    balanced(|| {
        let mut b = Epoll::bench();
        let (here, there) = UnixStream::pair().unwrap();
        let here = b.watcher.attach(here).unwrap();
        let there = b.watcher.attach(there).unwrap();
        let base = system::descriptors();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        for plain in [false, true] {
            let send = Op::send_descriptors(here, "x", (0..5).map(|_| null()).collect());
            let send = b.submit(send);
            expect_written(b.end(send));
            expect_descriptors(base, 0);
            // A plain read drops them in the kernel.
            let receive = if plain { Op::read(there) } else { Op::recv_descriptors(there) };
            let receive = b.submit(receive);
            let c = b.end(receive);
            expect_descriptors(base, if plain { 0 } else { 5 });
            drop(c);
            expect_descriptors(base, 0);
        }
        // In flight when the watcher goes.
        for _ in 0..3 {
            b.submit(Op::send_descriptors(here, "x", vec![null(), null()]));
            b.submit(Op::recv_descriptors(there));
        }
        // Behind a write that is stuck.
        b.submit(Op::write(here, vec![1; 4 << 20]));
        b.submit(Op::send_descriptors(here, "x", vec![null()]));
        // Refused.
        let (tcp, _) = b.pair();
        drop(b.refuse(Op::send_descriptors(tcp, "x", vec![null()])));
    });
}

#[test]
fn what_other_threads_have_queued() {
    balanced(|| {
        let mut b = Epoll::bench_with(Watcher::builder().remote_queue(4).id_reserve(4));
        let submitter = b.submitter();
        let base = system::descriptors();
        for _ in 0..3 {
            // Refused ones come back and are dropped here.
            let attached: Vec<_> = (0..10)
                .filter_map(|_| {
                    let (here, _there) = UnixStream::pair().unwrap();
                    submitter.attach(here).ok()
                })
                .collect();
            assert!(!attached.is_empty() && attached.len() <= 4);
            expect_descriptors(base, attached.len());
            b.look();
            for source in attached {
                submitter.abort(source);
            }
            b.look();
            expect_descriptors(base, 0);
        }
        let (here, _) = UnixStream::pair().unwrap();
        submitter.attach(here).unwrap();
        let (here, _) = UnixStream::pair().unwrap();
        let guard = b.watcher.attach(here).unwrap();
        let guard = b.watcher.guard(guard);
        drop(b);
        // The submitter and the guard live on; what was queued does not.
        assert!(system::descriptors() < base);
        let (here, _) = UnixStream::pair().unwrap();
        drop(submitter.attach(here).unwrap_err());
        assert!(system::descriptors() < base);
        drop(guard);
    });
}

#[test]
fn what_was_queued_when_the_watcher_closed() {
    balanced(|| {
        let mut b = Epoll::bench();
        let submitter = b.submitter();
        let base = system::descriptors();
        for _ in 0..5 {
            let (here, _there) = UnixStream::pair().unwrap();
            let source = submitter.attach(here).unwrap();
            submitter.submit(Op::read(source)).unwrap();
        }
        b.watcher.close();
        expect_descriptors(base, 0);
        assert_eq!(b.take(5).len(), 5);
    });
}

#[test]
fn refused_handles_are_the_callers() {
    balanced(|| {
        let mut b = Epoll::bench_with(Watcher::builder().max_sources(1));
        b.pairs_refused();
    });
}

trait Refused {
    fn pairs_refused(&mut self);
}

impl<D: Driver> Refused for Bench<D> {
    fn pairs_refused(&mut self) {
        let (here, there) = UnixStream::pair().unwrap();
        let source = self.watcher.attach(here).unwrap();
        let base = system::descriptors();
        let refused = self.watcher.attach(there).unwrap_err();
        expect_descriptors(base, 0);
        let there = refused.into_inner().into_fd().unwrap();
        UnixStream::from(there).write_all(b"alive").unwrap();
        assert_eq!(self.read_exact(source, 5), b"alive");
    }
}

/// Short connections by the thousands: nothing adds up.
#[test]
fn thousands_of_short_connections() {
    balanced(|| {
        let mut b = Epoll::bench();
        let (listener, at) = b.listen();
        let base = system::descriptors();
        for i in 0..3000u64 {
            let (here, there) = b.connect(listener, &at);
            if i % 3 == 0 {
                b.cross(here, there, b"ping");
            }
            b.submit(Op::read(here));
            match i % 2 {
                0 => assert!(b.watcher.abort(here)),
                _ => drop(b.submit(Op::close(here))),
            }
            assert!(b.watcher.abort(there));
            b.now();
        }
        expect_descriptors(base, 0);
    });
}

/// Nothing that a watcher makes survives an exec.
#[test]
fn everything_is_closed_on_exec() {
    balanced(|| {
        let mut b = Epoll::bench();
        let (here, _) = b.pair();
        let (listener, at) = b.listen();
        let connected = b.connect(listener, &at);
        let (unix, _other) = UnixStream::pair().unwrap();
        let duplicate = b.watcher.attach_dup(&unix).unwrap();
        for source in [here, listener, connected.0, connected.1, duplicate] {
            let fd = system::number(&mut b, source);
            assert!(system::closes_on_exec(fd), "{fd}");
        }
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        for entry in all {
            let name = entry.unwrap().file_name();
            let fd: i32 = name.to_str().unwrap().parse().unwrap();
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
            let Ok(link) = link else { continue };
            let text = link.to_string_lossy().into_owned();
            if text.contains("eventpoll") || text.contains("eventfd") {
                assert!(system::closes_on_exec(fd), "{text}");
            }
        }
    });
}
