//! Which listeners have connections of an unknown kind.
#![cfg(unix)]

use std::net::{TcpListener, TcpStream};

use super::*;

/// Listeners of SCTP or vsock are rarely there, so listeners of TCP take their place.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn only_the_listener_that_goes_is_no_longer_odd() {
    let mut calls = OsCalls::new();
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let kept = listeners[2].local_addr().unwrap();
    let [closed, released, kept_fd] = listeners.map(IntoRawFd::into_raw_fd);
    calls.odd_listeners.extend([closed, released, kept_fd]);
    calls.close(closed);
    assert_eq!(calls.odd_listeners, [released, kept_fd]);
    let given_away = calls.release(released, SourceKind::Listener);
    assert_eq!(calls.odd_listeners, [kept_fd]);
    let _client = TcpStream::connect(kept).unwrap();
    let accepted = calls.accept(kept_fd, SourceKind::Listener).unwrap();
    assert_eq!(accepted.kind(), SourceKind::Unknown, "its kind is queried later");
    calls.close(kept_fd);
    drop(given_away);
}

/// A full backlog drops the packets of further connects, which go on. Other listeners refuse.
#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_connect_that_goes_on_has_no_result() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let at = Address::from(listener.local_addr().unwrap().as_socket().unwrap());
    let mut calls = OsCalls::new();
    let mut connects = Vec::new();
    let goes_on = loop {
        assert!(connects.len() < 100, "the backlog is never full");
        let client = TcpStream::from(
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap(),
        );
        client.set_nonblocking(true).unwrap();
        let begun = calls.connect_again(client.as_raw_fd(), &at).unwrap();
        let fd = client.as_raw_fd();
        connects.push(client);
        // On loopback a connect that the backlog has room for is done at once.
        if matches!(begun, Connecting::GoesOn)
            && calls.poll(fd, Ready::WRITABLE).unwrap().is_empty()
        {
            break fd;
        }
        assert_eq!(calls.connect_result(fd), 0);
    };
    assert_eq!(calls.connect_result(goes_on), libc::EINPROGRESS);
    drop(connects);
}
