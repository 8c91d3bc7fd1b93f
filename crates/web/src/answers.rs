//! Answers that come later, from other threads: whole, or in parts.

pub use crate::message::later::Later;
pub use crate::message::source::Waker;
pub use crate::message::writer::Writer;
