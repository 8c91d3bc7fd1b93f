//! Addresses of both ends, as a system says them.

use super::*;
use crate::words::address::Address;
use crate::words::error::Refusal;

const NOT_CONNECTED: Result<Address, Refusal> = Err(Refusal::Os(libc::ENOTCONN));

/// A listener at `at` and a connection to `to`: the listener, the client's end, the server's end,
/// and the peer that the accepted handle named.
fn connected(
    watcher: &mut Watcher,
    at: Address,
    to: impl Fn(&Address) -> Address,
) -> (Source, Source, Source, Option<std::net::SocketAddr>) {
    let listener = watcher.listen(at.clone()).unwrap();
    watcher.submit(Op::accept(listener)).unwrap();
    let to = to(&watcher.local_address(listener).unwrap());
    let (client, _) = watcher.connect([to], ConnectOptions::default()).unwrap();
    if at.ip().is_some() {
        assert_eq!(watcher.peer_address(client), NOT_CONNECTED, "it connects");
    }
    let mut accepted = None;
    let mut left = 2;
    while left > 0 {
        for c in wait(watcher) {
            left -= 1;
            if let Done::Accepted(socket) = c.result.unwrap() {
                let peer = socket.peer();
                accepted = Some((watcher.attach(socket).unwrap(), peer));
            }
        }
    }
    let (server, peer) = accepted.unwrap();
    (listener, client, server, peer)
}

#[test]
fn both_ends_have_addresses() {
    let sim = Sim::with_faults(1, Faults::transient(0.2));
    let mut watcher = watcher(&sim);
    let any = Address::from(([10, 0, 0, 1], 0));
    let (listener, client, server, peer) = connected(&mut watcher, any, Address::clone);
    let at = watcher.local_address(listener).unwrap();
    assert!(at.ip().is_some_and(|ip| ip.ip().to_string() == "10.0.0.1" && ip.port() != 0));
    assert_eq!(watcher.peer_address(listener), NOT_CONNECTED);
    assert_eq!(watcher.local_address(server).unwrap(), at);
    assert_eq!(watcher.peer_address(client).unwrap(), at);
    let from = watcher.local_address(client).unwrap();
    assert_eq!(watcher.peer_address(server).unwrap(), from);
    assert_eq!(peer, from.ip());
    assert_ne!(from, at);
    // The other end closes. An end that has only learned of this keeps its addresses; an end that
    // was reset has none.
    watcher.submit(Op::write(server, "unread")).unwrap();
    wait(&mut watcher);
    watcher.abort(client);
    let c = loop {
        watcher.submit(Op::read(server)).unwrap();
        let c = wait_one(&mut watcher);
        if c.error_kind().is_some() {
            break c;
        }
    };
    assert_eq!(c.error_kind(), Some(ErrorKind::Os(libc::ECONNRESET)));
    assert_eq!(watcher.peer_address(server), NOT_CONNECTED);
    assert_eq!(watcher.local_address(server).unwrap(), at);
    assert_eq!(watcher.local_address(client), Err(Refusal::Stale));
}

/// A listener at every address; a connect to no address goes to this machine, and says so.
#[test]
fn unspecified_addresses_are_this_machine() {
    for (any, loopback) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1")] {
        let sim = Sim::new(1);
        let mut watcher = watcher(&sim);
        let any: std::net::SocketAddr = any.parse().unwrap();
        let (listener, client, server, _) = connected(&mut watcher, any.into(), Address::clone);
        let at = watcher.local_address(listener).unwrap().ip().unwrap();
        assert!(at.ip().is_unspecified());
        let to = watcher.peer_address(client).unwrap().ip().unwrap();
        assert_eq!((to.ip().to_string().as_str(), to.port()), (loopback, at.port()));
        assert_eq!(watcher.local_address(server).unwrap().ip(), Some(to));
        let from = watcher.local_address(client).unwrap().ip().unwrap();
        assert_eq!(from.ip(), to.ip());
    }
}

#[test]
fn unix_sockets_have_paths() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let path = Address::unix("/run/server").unwrap();
    let (listener, client, server, peer) = connected(&mut watcher, path.clone(), Address::clone);
    assert_eq!(peer, None);
    for source in [listener, server] {
        assert_eq!(watcher.local_address(source).unwrap(), path);
    }
    assert_eq!(watcher.peer_address(client).unwrap(), path);
    for unnamed in [watcher.local_address(client), watcher.peer_address(server)] {
        assert_eq!(unnamed.unwrap().path(), None);
    }
}

/// When all ports of an address are taken, a socket is refused, as on a system.
#[test]
#[cfg_attr(miri, ignore = "32,768 sockets: too slow")]
fn ports_run_out() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let any = ([10, 0, 0, 1], 0);
    let all: Vec<Handle> = (0..1 << 15).map(|_| sim.datagram(any).unwrap()).collect();
    let in_use = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    in_use(sim.datagram(any).unwrap_err());
    in_use(watcher.listen(any).unwrap_err());
    // One of them would be the client's.
    watcher.submit(Op::connect(([10, 0, 0, 1], 80))).unwrap();
    let none_left = Some(ErrorKind::Os(libc::EADDRNOTAVAIL));
    assert_eq!(wait_one(&mut watcher).error_kind(), none_left);
    // Another address has ports of its own. A socket that closes gives its port back.
    assert!(sim.datagram(([10, 0, 0, 2], 0)).is_ok());
    drop(all);
    assert!(sim.datagram(any).is_ok());
}
