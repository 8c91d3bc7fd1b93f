//! Servers and connections that several threads use.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod dial_threads;
#[cfg(unix)]
mod order;
#[cfg(unix)]
mod stream_threads;
#[cfg(unix)]
mod threads;
#[cfg(unix)]
mod wild;
