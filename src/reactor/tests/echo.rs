//! A server on the reactor, in every mode on every selector: one body, as nbio's TestEcho.

use std::collections::HashMap;
use std::io::{ErrorKind::WouldBlock, IoSlice};
use std::net::{TcpListener, TcpStream};

use super::*;

const MESSAGE: usize = 1024;
const CLIENTS: u64 = 8;
const ROUNDS: u64 = 3;

/// What a server has in its table for one watch.
enum Watched {
    Listener(TcpListener),
    /// A connection and its number, which is the token of its watch.
    Connection(TcpStream, u64),
}

/// How a mode wants to be used.
struct Use {
    mode: Mode,
    /// Attempts for one item: an edge is followed until nothing is left.
    attempts: usize,
}

/// Even clients write once, odd ones write a list of parts. Each of them reads what it has written.
fn client(address: std::net::SocketAddr, number: u64) {
    let mut stream = TcpStream::connect(address).expect("a connect");
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let message = [number as u8; MESSAGE];
    for _ in 0..ROUNDS {
        if number.is_multiple_of(2) {
            stream.write_all(&message).unwrap();
        } else {
            let (head, tail) = message.split_at(100);
            let count = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
            stream.write_all(&message[count..]).unwrap();
        }
        let mut heard = [0; MESSAGE];
        stream.read_exact(&mut heard).expect("the echo within its limit");
        assert!(heard == message, "not what was sent");
    }
}

/// A server of one listener echoes clients, and a second time on the places of those that ended.
fn a_server_echoes<S: Select>(mode: Mode) {
    let how = Use { mode, attempts: if mode == Mode::Edge { usize::MAX } else { 1 } };
    // With the usual patience: an imitated edge may be late.
    let mut reactor: Reactor<S> = Reactor::on_selector(&Config::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let watch = Watch::dup(&listener, Ready::READABLE).unwrap().mode(mode).token(u64::MAX);
    let mut table = HashMap::from([(reactor.submit(watch).unwrap(), Watched::Listener(listener))]);
    let mut ended = Vec::new();
    for pass in 0..2 {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| thread::spawn(move || client(address, number))).collect();
        let bytes = serve(&mut reactor, &mut table, &how, &mut ended);
        assert_eq!(bytes, CLIENTS * ROUNDS * MESSAGE as u64, "{mode:?}: pass {pass}");
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
    // The places were used again, and no ticket of the first pass names a watch of the second.
    let first = ended.len() / 2;
    assert_eq!(ended.len() as u64, 2 * CLIENTS, "{mode:?}");
    let is_again = |ticket: &Ticket| ended[..first].iter().any(|old| old.index() == ticket.index());
    assert!(ended[first..].iter().any(is_again), "{mode:?}: no place was used again");
    for ticket in ended {
        assert_eq!(reactor.rearm(ticket, Ready::READABLE), Err(Refusal::Stale), "{mode:?}");
        assert_eq!(reactor.fd(ticket).unwrap_err(), Refusal::Stale, "{mode:?}");
    }
    assert_eq!((reactor.len(), reactor.stale_events()), (1, 0), "{mode:?}");
}

/// Serves until as many clients as there are have ended; returns how many bytes were echoed.
fn serve<S: Select>(
    reactor: &mut Reactor<S>,
    table: &mut HashMap<Ticket, Watched>,
    how: &Use,
    ended: &mut Vec<Ticket>,
) -> u64 {
    let (mut bytes, mut accepted, goal) = (0, 0, ended.len() + CLIENTS as usize);
    let mut items = Completions::new();
    while ended.len() < goal {
        let what = format!("{:?}: the end of {goal} clients", how.mode);
        assert!(wait_for(reactor, &mut items, &what) > 0);
        for item in items.drain(..) {
            if !item.more {
                assert!(item.ready.is_empty() && item.fd.is_some(), "{item:?}");
                ended.push(item.ticket);
                continue;
            }
            let mut is_over = false;
            for _ in 0..how.attempts {
                match table.get_mut(&item.ticket).expect("its watch has not ended") {
                    Watched::Listener(listener) => match listener.accept() {
                        Ok((socket, _)) => {
                            assert_eq!(item.token, u64::MAX);
                            socket.set_nonblocking(true).unwrap();
                            socket.set_nodelay(true).unwrap();
                            accepted += 1;
                            let watch = Watch::dup(&socket, Ready::READABLE).unwrap();
                            let watch = watch.mode(how.mode).token(accepted);
                            let ticket = reactor.submit(watch).unwrap();
                            table.insert(ticket, Watched::Connection(socket, accepted));
                        }
                        Err(error) if error.kind() == WouldBlock => break,
                        Err(error) => panic!("{:?}: {error}", how.mode),
                    },
                    Watched::Connection(socket, number) => {
                        assert_eq!(item.token, *number);
                        let mut part = [0; 300];
                        match socket.read(&mut part) {
                            Ok(0) => {
                                is_over = true;
                                break;
                            }
                            Ok(count) => {
                                // A message waits for its echo, so that there is always room.
                                socket.write_all(&part[..count]).unwrap();
                                bytes += count as u64;
                            }
                            Err(error) if error.kind() == WouldBlock => break,
                            Err(error) => panic!("{:?}: {error}", how.mode),
                        }
                    }
                }
            }
            if is_over {
                table.remove(&item.ticket);
                assert!(reactor.cancel(item.ticket));
            } else if how.mode == Mode::Oneshot {
                reactor.rearm(item.ticket, Ready::READABLE).unwrap();
            }
        }
    }
    bytes
}

/// The first of two items of a wait ends the watch of the second: the program sees that it is
/// stale, also when another watch has its place.
fn an_item_of_an_ended_watch_is_stale<S: Select + Fresh>(mode: Mode) {
    let mut reactor = S::fresh();
    let mut ends: Vec<_> = (0..2).map(|_| pair()).collect();
    let submit = |reactor: &mut Reactor<S>, end: &End| {
        reactor.submit(Watch::dup(end, Ready::READABLE).unwrap().mode(mode)).unwrap()
    };
    let tickets = [0, 1].map(|i| submit(&mut reactor, &ends[i].0));
    ends.iter_mut().for_each(|(_, peer)| peer.write_all(b"x").unwrap());
    let items = now(&mut reactor);
    assert_eq!(items.len(), 2, "{mode:?}");
    let other = tickets.into_iter().find(|ticket| *ticket != items[0].ticket).unwrap();
    assert!(reactor.cancel(other));
    let (socket, _peer) = pair();
    let third = submit(&mut reactor, &socket);
    assert_eq!(third.index(), other.index(), "{mode:?}: the same place");
    // The program goes on with the second item.
    assert_eq!(items[1].ticket, other);
    assert_eq!(reactor.fd(other).unwrap_err(), Refusal::Stale, "{mode:?}");
    assert_eq!(reactor.rearm(other, Ready::READABLE), Err(Refusal::Stale), "{mode:?}");
    assert_eq!(reactor.modify(other, Ready::WRITABLE, mode), Err(Refusal::Stale), "{mode:?}");
    assert!(!reactor.cancel(other), "{mode:?}");
    // And the third watch is as it was.
    let news: Vec<_> = now(&mut reactor).into_iter().filter(|item| item.more).collect();
    assert!(news.iter().all(|item| item.ticket == items[0].ticket), "{mode:?}: {news:?}");
    assert!(reactor.fd(third).is_ok(), "{mode:?}");
}

/// As above, but the selector has the event before the watch ends.
fn an_event_of_an_ended_watch_reports_nothing<S: Select + Fresh>(mode: Mode) {
    let mut reactor = S::fresh();
    let (socket, mut peer) = pair();
    let submit = |reactor: &mut Reactor<S>, end: End| {
        reactor.submit(Watch::new(end, Ready::READABLE).mode(mode)).unwrap()
    };
    let ticket = submit(&mut reactor, socket);
    peer.write_all(b"x").unwrap();
    assert_eq!(reactor.selector.select(Some(0)).unwrap(), 1);
    reactor.cancel(ticket);
    let (socket, _peer) = pair();
    let other = submit(&mut reactor, socket);
    assert_eq!(other.index(), ticket.index(), "{mode:?}: the same place");
    reactor.apply(1);
    assert_eq!(reactor.stale_events(), 1, "{mode:?}");
    let last = only(now(&mut reactor));
    assert_eq!((last.ticket, last.more), (ticket, false), "{mode:?}");
}

/// Stamps each body for each mode, on the system's selector and on poll(2).
macro_rules! in_every_mode {
    ($($body:ident)*) => {
        $(
            mod $body {
                use crate::sys::interest::Mode;
                use crate::sys::Selector;
                #[cfg(unix)] // elsewhere it is the system's
                use crate::sys::Poll;
                in_every_mode! { $body Selector: level Level, edge Edge, oneshot Oneshot }
                #[cfg(unix)]
                in_every_mode! {
                    $body Poll: level_on_poll Level, edge_on_poll Edge, oneshot_on_poll Oneshot
                }
            }
        )*
    };
    ($body:ident $selector:ident: $($name:ident $mode:ident),*) => {
        $(
            #[test]
            #[cfg_attr(miri, ignore = "Miri's epoll knows edges only, and it has no ppoll(2)")]
            fn $name() {
                super::$body::<$selector>(Mode::$mode);
            }
        )*
    };
}

in_every_mode! {
    a_server_echoes
    an_item_of_an_ended_watch_is_stale
    an_event_of_an_ended_watch_reports_nothing
}
