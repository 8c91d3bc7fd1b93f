//! Connections that the program begins, takes along, and sends messages and operations to.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod dial;
mod messages;
#[cfg(unix)]
mod moves;
mod operations;
mod read_when_full;
mod stream;
