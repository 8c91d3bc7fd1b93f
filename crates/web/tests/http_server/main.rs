//! Requests and their responses on connections of every driver.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod drains;
mod handlers;
mod hooks;
mod nbio;
mod requests;
mod strict;
mod websocket_frames;
