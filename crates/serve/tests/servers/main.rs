//! Listeners, loops, settings, starts and logs of servers.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[cfg(unix)]
#[path = "../../../../tests/common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;
mod distribution;
mod listeners;
mod log;
#[cfg(unix)]
mod loops;
#[cfg(unix)]
mod modes;
#[cfg(unix)]
mod options;
mod proxy_header;
#[cfg(unix)]
mod settings;
#[cfg(unix)]
mod start;
