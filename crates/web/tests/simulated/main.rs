//! Random clients of simulated servers: each response is compared with a model. Seeds draw the
//! requests, their cuts, the pace of the clients and the faults of the network.
//!
//! `WINDLASS_SEED=5 WINDLASS_PROGRAMS=1` repeats a program.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
// Two examples share code, and a binary of tests has both.
#![allow(clippy::duplicate_mod)]

mod fetches;
mod files;
mod logged;
mod model;
#[cfg(feature = "json")]
mod notes;
mod programs;
mod slow;
