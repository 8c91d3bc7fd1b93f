//! Bytes and allocations, counted for each thread.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../../../../tests/common/alloc.rs"]
mod alloc;
mod allocations;
#[cfg(all(feature = "websocket", feature = "deflate"))]
mod deflate_memory;
mod upgrade_memory;
#[cfg(feature = "websocket")]
mod websocket_client_memory;
