//! Reports of ends: of one direction, of both, of the other end of a pipe.

use std::net::{Shutdown, TcpListener, TcpStream};

use socket2::Socket;

use super::*;

/// Waits until `wanted` is reported; returns all reported conditions.
fn told_until<S: Select>(reactor: &mut Reactor<S>, ticket: Ticket, wanted: Ready) -> Ready {
    let until = Instant::now() + BOUND;
    let (mut told, mut items) = (Ready::NONE, Completions::new());
    while !told.contains(wanted) {
        assert!(Instant::now() < until, "{told:?} without {wanted:?} in {BOUND:?}");
        // This changes only a oneshot, and an edge, which then reports conditions that hold.
        reactor.rearm(ticket, Ready::READABLE | Ready::WRITABLE).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        reactor.complete(Wait::Until(soon), &mut items).unwrap();
        told = items.drain(..).fold(told, |told, item| told | item.ready);
    }
    told
}

fn tcp() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a.into(), listener.accept().unwrap().0.into())
}

/// The answer is still to come: a program that drops the connection at a hang-up would lose it.
pub(super) fn own_shutdown_is_no_hang_up<S: Select + Fresh>() {
    let (a, b) = streams();
    for (mut ours, mut theirs) in [(a.into(), b.into()), tcp()] {
        for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
            let mut reactor = S::fresh();
            let both = Ready::READABLE | Ready::WRITABLE;
            let watch = Watch::dup(&ours, both).unwrap().mode(mode);
            let ticket = reactor.submit(watch).unwrap();
            assert_eq!(only(now(&mut reactor)).ready, Ready::WRITABLE, "{mode:?}");
            // Repeated for each mode, which does no harm.
            let _ = ours.shutdown(Shutdown::Write);
            if mode == Mode::Oneshot {
                reactor.rearm(ticket, both).unwrap();
            }
            for item in now(&mut reactor) {
                assert_eq!(item.ready, Ready::WRITABLE, "{mode:?}: a write fails at once");
            }
            theirs.write_all(b"answer").unwrap();
            let told = told_until(&mut reactor, ticket, Ready::READABLE);
            assert_eq!(told, both, "{mode:?}: the answer, and no more");
            ours.read_exact(&mut [0; 6]).unwrap();
        }
        // Both directions are shut now, in either order: each mode reports once more.
        theirs.shutdown(Shutdown::Write).unwrap();
        for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
            let mut reactor = S::fresh();
            let both = Ready::READABLE | Ready::WRITABLE;
            let ticket = reactor.submit(Watch::dup(&ours, both).unwrap().mode(mode)).unwrap();
            let told = told_until(&mut reactor, ticket, Ready::HANGUP);
            assert!(told.contains(Ready::READABLE | Ready::READ_CLOSED), "{mode:?}: {told:?}");
        }
    }
    // The peer's end comes after our own while both are watched.
    let (a, b) = streams();
    for (ours, theirs) in [(a.into(), b.into()), tcp()] {
        let mut reactor = S::fresh();
        let both = Ready::READABLE | Ready::WRITABLE;
        let watch = Watch::dup(&ours, both).unwrap().mode(Mode::Edge);
        reactor.submit(watch).unwrap();
        let mut told = Ready::NONE;
        for end in [&ours, &theirs] {
            assert!(!told.contains(Ready::HANGUP), "before both are shut");
            end.shutdown(Shutdown::Write).unwrap();
            told = now(&mut reactor).iter().fold(told, |told, item| told | item.ready);
        }
        assert!(told.contains(Ready::HANGUP | Ready::READ_CLOSED), "{told:?}");
    }
}

/// A pipe has one direction: the remaining side sees the end.
pub(super) fn a_pipe_without_its_other_end_is_hung_up<S: Select + Fresh>() {
    let gone = Ready::HANGUP | Ready::ERROR;
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        for before in [false, true] {
            let (reads, writes) = std::io::pipe().unwrap();
            let mut reactor = S::fresh();
            let watch = Watch::new(writes, Ready::WRITABLE).mode(mode);
            let reads = (!before).then_some(reads);
            let ticket = reactor.submit(watch).unwrap();
            if let Some(reads) = reads {
                assert_eq!(only(now(&mut reactor)).ready, Ready::WRITABLE, "{mode:?}");
                reactor.rearm(ticket, Ready::WRITABLE).unwrap();
                drop(reads);
            }
            let told = only(now(&mut reactor)).ready;
            assert!(told.contains(Ready::WRITABLE) && told.intersects(gone), "{mode:?}: {told:?}");

            let (reads, writes) = std::io::pipe().unwrap();
            let mut reactor = S::fresh();
            reactor.submit(Watch::new(reads, Ready::READABLE).mode(mode)).unwrap();
            assert!(now(&mut reactor).is_empty());
            drop(writes);
            let told = only(now(&mut reactor)).ready;
            assert!(told.contains(Ready::HANGUP), "{mode:?}: {told:?}");
        }
    }
}
