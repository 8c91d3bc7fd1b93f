//! Servers that answer what they should not: each call of the client has one outcome, which is the
//! documented one, and the calls behind it find an unharmed pool. On every driver and in the
//! simulation, by a handler and by a client in a loop of the program.
#![allow(missing_docs)] // a test binary has no users

#[path = "../../../../tests/common/alloc.rs"]
mod alloc;
#[path = "../../../serve/tests/common/mod.rs"]
mod common;
#[path = "../hostile/mod.rs"]
mod hostile;

mod clocks;
#[cfg(feature = "deflate")]
mod coded;
mod endless;
mod redirects;
mod table;
