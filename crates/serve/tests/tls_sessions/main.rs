//! Sessions of TLS in memory, without I/O.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(any(feature = "ring", feature = "aws-lc-rs"))]

#[path = "../common/crafted.rs"]
mod crafted;
#[path = "../../../../tests/common/seeds.rs"]
mod seeds;
#[path = "../common/tls.rs"]
mod tls;
mod tls_hostile;
mod tls_session;
