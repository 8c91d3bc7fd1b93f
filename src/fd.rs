//! Descriptors: their types, and how many a process may have open.
//!
//! The types are those of `std::os::fd`. On Windows, which has no such module, they have the same
//! names: what `impl Into<OwnedFd>` takes there are std's sockets and files, `OwnedSocket` and
//! `OwnedHandle`. A program that names them through this module compiles on both.

pub use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
pub use crate::sys::open_files::{max_open_files, raise_max_open_files};
