//! Bytes and allocations, counted for each thread.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../../../../tests/common/alloc.rs"]
mod alloc;
mod allocations;
mod bursts;
#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod memory;
#[cfg(feature = "ring")]
#[path = "../common/tls_peer.rs"]
mod peer;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
#[path = "../common/tls.rs"]
mod tls;
#[cfg(feature = "ring")]
mod tls_bounds;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
mod tls_memory;
