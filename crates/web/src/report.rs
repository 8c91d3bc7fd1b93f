//! What a server has counted.

pub use windlass_serve::report::Report;

pub use crate::remote::Counters;
