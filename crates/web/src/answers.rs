//! Answers that come later, from other threads.

pub use crate::message::later::Later;
