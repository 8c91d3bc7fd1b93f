//! Random programs with TLS in the simulation.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg(feature = "ring")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/tls.rs"]
mod tls;
mod tls_pairs;
mod tls_random;
#[path = "../common/tls_two.rs"]
mod two;
