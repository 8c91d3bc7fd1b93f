//! WebSockets of an application: every message comes once, whole and in order, whatever clients do.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "websocket")]

#[path = "../bench/mod.rs"]
mod bench;
mod client;
#[path = "../../../serve/tests/common/mod.rs"]
mod common;
#[cfg(feature = "deflate")]
mod compressed;
mod ends;
mod flow;
mod handshakes;
mod memory;
mod messages;
mod modes;
mod opens;
#[cfg(feature = "ring")]
mod over_tls;
mod parts;
mod program;
mod seeds;
mod sent_parts;
mod threads;
mod topics;
