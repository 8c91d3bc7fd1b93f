//! What a server has counted.

pub use crate::words::report::{Report, Requests, Totals};
