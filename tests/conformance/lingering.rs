//! C7: no close waits on the loop's thread, neither for a peer that does not read (SO_LINGER) …

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use windlass::driver::Driver;
use windlass::{Op, Source};

use crate::common::*;

/// Longer than any test: a close that waits for it looks like a hang.
const LONG: Duration = Duration::from_secs(3600);

/// A source that lingers, with more bytes in the kernel than its peer's buffer takes. So its
/// close(2) waits until the peer reads.
fn lingering<D: Driver>(b: &mut Bench<D>) -> (Source, TcpStream) {
    let (here, peer) = system::tcp_pair();
    socket2::SockRef::from(&here).set_linger(Some(LONG)).unwrap();
    // A system that is short of memory for sockets resets those that linger.
    socket2::SockRef::from(&here).set_send_buffer_size(32 << 10).unwrap();
    socket2::SockRef::from(&peer).set_recv_buffer_size(32 << 10).unwrap();
    let source = b.watcher.attach(here).unwrap();
    fill(b, source);
    (source, peer)
}

/// Fills the kernel's buffers for what `source` sends, until a write finds no room at all: what the
/// first one has moved may fit into the buffers of the peer.
fn fill<D: Driver>(b: &mut Bench<D>, source: Source) {
    loop {
        let write = b.submit(Op::write(source, vec![7; 8 << 20]));
        b.look();
        assert!(b.is_open(write), "a silent peer took it all");
        assert!(b.watcher.cancel(write));
        if b.end(write).bytes() == 0 {
            return;
        }
    }
}

/// How many bytes come until the end, which is clean.
fn read_all(mut peer: TcpStream) -> u64 {
    peer.set_read_timeout(Some(BOUND)).unwrap();
    std::io::copy(&mut peer, &mut std::io::sink()).expect("a clean end")
}

/// An abort of a lingering socket waited for the peer, and with it all other sources. The bytes
/// that the kernel has still arrive.
pub fn an_abort_does_not_linger<H: Harness + 'static>() {
    aside("an abort that lingers", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        for registered in [false, true] {
            let (source, peer) = lingering(&mut b);
            if registered {
                // Where a ring polls or receives, it has a reference of its own to the socket.
                b.submit(Op::read(source));
                b.look();
            }
            assert!(b.watcher.abort(source));
            b.now();
            b.expect_alive(a, z);
            assert!(read_all(peer) > 0);
        }
        b.expect_all_ended();
    });
}

/// The socket of an accepted connection inherits its listener's linger time.
pub fn an_abort_does_not_linger_as_the_listener_does<H: Harness + 'static>() {
    aside("an abort that lingers", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        let (listener, at) = b.listen();
        let option = windlass::net::SocketOption::Linger(Some(LONG));
        b.watcher.set_option(listener, option).unwrap();
        let (_here, there) = b.connect(listener, &at);
        fill(&mut b, there);
        assert!(b.watcher.abort(there));
        b.expect_alive(a, z);
    });
}

/// The close of a watcher, and its drop, waited for each peer, one after the other.
pub fn a_watcher_that_goes_does_not_linger<H: Harness + 'static>() {
    for closes in [true, false] {
        aside("a watcher that lingers", move || {
            let mut b = H::bench();
            let peers: Vec<_> = (0..3).map(|_| lingering(&mut b).1).collect();
            if closes {
                b.watcher.close();
            }
            drop(b);
            for peer in peers {
                assert!(read_all(peer) > 0);
            }
        });
    }
}

/// A linger time of zero stays: the peer of an aborted source gets a reset.
pub fn an_abort_keeps_a_linger_time_of_zero<H: Harness + 'static>() {
    aside("an abort that resets", || {
        let mut b = H::bench();
        let (here, peer) = system::tcp_pair();
        let source = b.watcher.attach(here).unwrap();
        b.write(source, "unread");
        system::reset_on_close(&mut b, source);
        assert!(b.watcher.abort(source));
        peer.set_read_timeout(Some(BOUND)).unwrap();
        let mut bytes = Vec::new();
        let error = std::io::Read::read_to_end(&mut &peer, &mut bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    });
}

/// `Op::close` keeps the linger time: its completion comes when close(2) has ended. The loop goes
/// on meanwhile.
pub fn a_close_operation_lingers_beside_the_loop<H: Harness + 'static>() {
    for registered in [false, true] {
        aside("a close that lingers", move || {
            let mut b = H::bench();
            let (a, z) = b.pair();
            let (source, peer) = lingering(&mut b);
            let read = registered.then(|| b.submit(Op::read(source)));
            b.look();
            let close = b.submit(Op::close(source));
            b.look();
            b.expect_alive(a, z);
            assert!(b.is_open(close), "it has not waited for the peer");
            assert!(!b.watcher.abort(source), "it is stale");
            let reader = std::thread::spawn(move || read_all(peer));
            expect_closed(b.end(close));
            assert!(join(reader, "the peer reads") > 0);
            if let Some(read) = read {
                expect_unmoved(b.end(read), windlass::ErrorKind::Aborted);
            }
            b.expect_all_ended();
        });
    }
}

/// Nothing takes back a close that has begun: its completion is late.
pub fn a_close_that_lingers_ends_late<H: Harness + 'static>() {
    for cancels in [true, false] {
        aside("a close that lingers", move || {
            let mut b = H::bench();
            let (source, peer) = lingering(&mut b);
            let close = b.submit(Op::close(source));
            b.look();
            if cancels {
                assert!(b.watcher.cancel(close));
            } else {
                b.watcher.reschedule(close, Duration::ZERO).unwrap();
            }
            b.look();
            assert!(b.is_open(close));
            let reader = std::thread::spawn(move || read_all(peer));
            let c = b.end(close);
            assert!(c.is_late());
            expect_closed(c);
            join(reader, "the peer reads");
            b.expect_all_ended();
        });
    }
}

/// Closes that linger took the threads of look-ups, and places among the jobs. They hold up neither
/// these nor the close of a file, however many peers do not read.
pub fn closes_that_linger_hold_up_no_other_work<H: Harness + 'static>() {
    // In a process of its own: a program that another test starts has the sockets, too, for a
    // moment, and a close that is not the last one does not linger.
    let name = "lingering::closes_that_linger_hold_up_no_other_work";
    child::in_child(&format!("{}::{name}", H::STAMP), || {
        let mut b = H::bench();
        let lingering: Vec<_> = (0..40)
            .map(|_| {
                let (source, peer) = lingering(&mut b);
                (b.submit(Op::close(source)), peer)
            })
            .collect();
        b.look();
        assert!(b.run(Op::lookup_host("127.0.0.1", 80)).result.is_ok());
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let file = b.watcher.attach(file).unwrap();
        expect_closed(b.run(Op::close(file)));
        for (close, peer) in lingering {
            assert!(b.is_open(close));
            socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
            // The reset ends the wait for the peer.
            drop(peer);
            expect_closed(b.end(close));
        }
        b.expect_all_ended();
    });
}

/// What other code shares keeps its linger time, and still does not hold up the loop.
pub fn a_shared_socket_keeps_its_linger_time<H: Harness + 'static>() {
    aside("an abort of what is shared", || {
        let mut b = H::bench();
        let (a, z) = b.pair();
        let (here, peer) = system::tcp_pair();
        let socket = socket2::Socket::from(OwnedFd::from(here));
        socket.set_linger(Some(LONG)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let source = b.watcher.attach_dup(&socket).unwrap();
        fill(&mut b, source);
        let other = b.watcher.attach_dup(&socket).unwrap();
        b.write(a, "looked at");
        assert!(b.watcher.abort(source));
        assert_eq!(socket.linger().unwrap(), Some(LONG), "another descriptor's option changed");
        // Now this is the last one.
        drop(socket);
        assert!(b.watcher.abort(other));
        assert_eq!(b.read_exact(z, 9), b"looked at");
        b.expect_alive(a, z);
        assert!(read_all(peer) > 0);
    });
}
