//! Memory that operations use: buffers, leases of swap buffers, registered regions, and what must
//! not be freed.

pub(crate) mod aligned;
pub(crate) mod buf;
pub mod buf_pool;
pub(crate) mod discard;
pub(crate) mod leaked;
pub(crate) mod region;
#[cfg(feature = "trace-buffers")]
pub mod trace;
#[cfg(not(feature = "trace-buffers"))]
#[path = "no_trace.rs"]
pub(crate) mod trace;
