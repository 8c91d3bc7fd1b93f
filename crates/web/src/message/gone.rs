//! Whether anybody still waits for the response to a request.
//!
//! # Why
//! Only a request that asks has a flag. It is shared with the request's exchange, which says when
//! its peer ends, and is dropped with all else of the request, whatever ends it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells any thread whether anybody still waits for the response to a request:
/// [`Request::gone`](crate::Request::gone) makes it. Clones tell of the same request.
#[derive(Clone)]
pub struct GoneFlag(Arc<AtomicBool>);

impl GoneFlag {
    /// Whether nobody waits for the response any more, as far as the server knows: the client has
    /// ended its side, its connection has ended, it has got a 504, or the request is answered. It
    /// stays true then.
    ///
    /// A client that has ended its side may still read. So the server sends it the response, if
    /// there is one.
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for GoneFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoneFlag").field("is_gone", &self.is_gone()).finish()
    }
}

/// The request's end of a [`GoneFlag`]. The request is over when it is dropped.
#[derive(Default)]
pub(crate) struct Presence(Arc<AtomicBool>);

impl Presence {
    pub(crate) fn gone(&self) -> GoneFlag {
        GoneFlag(Arc::clone(&self.0))
    }

    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.end();
    }
}
