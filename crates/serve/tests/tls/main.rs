//! Connections with TLS.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(any(feature = "ring", feature = "aws-lc-rs"))]

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "ring")]
#[path = "../common/crafted.rs"]
mod crafted;
#[cfg(feature = "ring")]
#[path = "../common/tls_peer.rs"]
mod peer;
#[path = "../common/tls.rs"]
mod tls;
#[cfg(feature = "ring")]
mod tls_attached;
#[cfg(feature = "ring")]
mod tls_bad_peers;
#[cfg(feature = "ring")]
mod tls_client;
#[cfg(feature = "ring")]
mod tls_closing;
#[cfg(feature = "ring")]
mod tls_ends;
#[cfg(feature = "ring")]
mod tls_handshakes;
#[cfg(feature = "ring")]
mod tls_listen;
#[cfg(all(feature = "ring", unix))]
mod tls_modes;
#[cfg(feature = "ring")]
mod tls_output;
#[cfg(feature = "ring")]
mod tls_peer_end;
#[cfg(feature = "ring")]
mod tls_resolver;
#[cfg(feature = "ring")]
mod tls_server;
mod tls_settings;
#[cfg(feature = "ring")]
#[path = "../common/tls_two.rs"]
mod two;
