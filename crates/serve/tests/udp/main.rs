//! Datagrams and UDP sessions.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod sessions;
mod udp_clients;
