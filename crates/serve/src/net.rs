//! Networks of peers.

pub use crate::words::networks::Networks;
