//! Clients, handlers that ask others, and answers that come later, on one watcher of every driver.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../bench/mod.rs"]
mod bench;
mod client;
#[path = "../../../serve/tests/common/mod.rs"]
mod common;
mod events;
mod every;
mod fetch;
mod gone;
mod later;
mod writer;
