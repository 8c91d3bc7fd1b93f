//! What a response that tells events hears.

use std::sync::Arc;
use std::time::Duration;

/// What a connection hears.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) topics: Vec<Arc<str>>,
    pub(crate) keep_alive: Duration,
    /// Whether it loses events for which it has no room.
    pub(crate) is_lossy: bool,
}
