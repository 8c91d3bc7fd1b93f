//! Plain connections that go over to TLS.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(feature = "ring")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/tls.rs"]
mod tls;
mod upgrades;
mod upgrades_client;
mod upgrades_requests;
