//! Sessions of TLS against each other, in memory.
#![allow(missing_docs)] // a test binary has no users
#![cfg(any(feature = "ring", feature = "aws-lc-rs"))]

use tls::{Pair, settings};
use windlass_serve::tls::{Provider, SessionState, Version};

#[path = "common/tls.rs"]
mod tls;

#[test]
fn an_echo_passes_with_each_provider_and_version() {
    for provider in Provider::ALL {
        for version in Version::ALL {
            let (_, server, client) = settings(*provider);
            let server = server.versions([*version]).build().unwrap();
            let client = client.versions([*version]).build().unwrap();
            let mut pair = Pair::open(&server, &client);
            assert_eq!(pair.client.version(), Some(*version));
            assert_eq!(pair.server.version(), Some(*version));
            pair.client.write_all(b"hello", &mut pair.to_server).unwrap();
            pair.run().unwrap();
            assert_eq!(pair.server_plain, b"hello");
            let heard = std::mem::take(&mut pair.server_plain);
            pair.server.write_all(&heard, &mut pair.to_client).unwrap();
            pair.run().unwrap();
            assert_eq!(pair.client_plain, b"hello");
            pair.client.close();
            pair.run().unwrap();
            assert_eq!(pair.server.state(), SessionState::PeerClosed);
        }
    }
}
