//! Responses that come later, from other threads: whole ([`Later`]), or in parts ([`Writer`]).
//! A [`Waker`] wakes a body that waits.
//!
//! [`Response::later`](crate::Response::later), [`Response::writer`](crate::Response::writer) and
//! [`Part::waker`](crate::Part::waker) make them, and have examples.

pub use crate::message::gone::GoneFlag;
pub use crate::message::later::Later;
pub use crate::message::source::Waker;
pub use crate::message::writer::Writer;
