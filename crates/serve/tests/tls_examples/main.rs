//! The examples with TLS.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(clippy::duplicate_mod)] // the examples share a module
#![cfg(feature = "ring")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/programs.rs"]
mod programs;
mod starttls;
#[path = "../common/tls.rs"]
mod tls;
mod tls_echo;
mod tls_reload;
