//! Random programs in the simulation.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
mod random;
mod simulated;
