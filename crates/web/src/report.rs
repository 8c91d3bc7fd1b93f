//! What a server has counted.

pub use crate::words::report::{Counters, Report, Requests};
