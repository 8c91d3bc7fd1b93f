//! What a server guarantees to its program, and what it makes of bad input.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

mod bad_input;
#[path = "../../../../tests/common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;
mod corners;
mod echo;
mod edges;
mod full_queue;
mod guarantees;
mod lingering;
mod panics;
mod stale;
mod successors;
mod transitions;
mod writer;
