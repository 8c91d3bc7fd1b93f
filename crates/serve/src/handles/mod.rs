//! What other threads hold.

pub(crate) mod dial;
pub(crate) mod job;
pub(crate) mod remote;
pub(crate) mod stream;
pub(crate) mod threads;
