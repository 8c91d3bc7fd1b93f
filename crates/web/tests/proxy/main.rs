//! The reverse proxy, on every driver and in the simulation: what goes on, and how it ends.
#![allow(missing_docs)] // a test binary has no users

mod ends;
mod fields;
#[path = "../upgrades/net.rs"]
mod net;
mod same;
mod scene;
mod seeds;
mod smuggling;
mod streams;
mod tunnels;
