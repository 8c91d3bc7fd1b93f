//! What evio, shiny and nbio do, and what they do wrong.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[cfg(unix)]
#[path = "../../../../tests/common/child.rs"]
mod child;
mod coming_from_nbio;
#[path = "../common/mod.rs"]
mod common;
mod evio;
mod mux;
#[cfg(unix)]
mod nbio;
#[cfg(unix)]
mod nbio_bugs;
#[cfg(unix)]
mod nbio_jobs;
#[cfg(unix)]
mod shiny;
mod table;
