//! WebSockets that a program opens to other servers: on every driver and in the simulation.
#![allow(missing_docs)] // a test binary has no users
#![cfg(feature = "websocket")]

#[path = "../bench/mod.rs"]
mod bench;
#[path = "../../../serve/tests/common/mod.rs"]
mod common;
mod engine;
mod example;
mod handshakes;
mod messages;
mod own;
mod scene;
