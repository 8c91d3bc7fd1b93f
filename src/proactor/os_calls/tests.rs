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
