//! Bodies of requests, what is not read of them, limits and clocks, on every driver.
#![allow(missing_docs)] // a test binary has no users
#![allow(dead_code, unreachable_pub)]

mod bench;
mod clocks;
mod memory;
#[cfg(feature = "multipart")]
mod multipart;
mod pipelines;
mod receive;
mod running;
mod save;
#[cfg(feature = "multipart")]
mod saved_parts;
mod skip;
mod statuses;
mod trust;
mod uploads;
