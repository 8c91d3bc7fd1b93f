//! Server-Sent Events: see [`Response::events`](crate::Response::events).

pub use crate::message::event::{Events, ServerEvent};
pub use crate::message::publication::Published;
