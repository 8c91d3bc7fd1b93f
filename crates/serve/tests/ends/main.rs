//! The ends of connections, from both sides, and what they leave unsent.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
mod drained;
mod held_end;
mod kept;
mod peer_end;
mod second_requests;
mod unsent;
