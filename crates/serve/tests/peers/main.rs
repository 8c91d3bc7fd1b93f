//! TLS with programs of others.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(all(unix, any(feature = "ring", feature = "aws-lc-rs")))]

#[path = "../common/programs.rs"]
mod programs;
#[path = "../common/tls.rs"]
mod tls;
mod tls_interop;
#[cfg(feature = "ring")]
mod tls_peers;
