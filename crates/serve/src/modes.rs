//! Loops and threads: how many a server has, and which of them serves a connection.

pub use crate::server::{IoMode, Loops};
pub use crate::words::balance::Balance;
