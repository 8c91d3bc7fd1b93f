//! Connections that go over to another protocol.
//!
//! [`Request::upgrade`](crate::Request::upgrade) and [`Request::tunnel`](crate::Request::tunnel)
//! begin it. A [`Protocol`] takes the connection over.

pub use crate::app::upgrade::{Protocol, RawConn, Released};
