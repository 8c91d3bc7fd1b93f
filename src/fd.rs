//! Descriptors on Windows, under the names that std has on Unix: what `impl Into<OwnedFd>` takes
//! here are std's sockets and files, `OwnedSocket` and `OwnedHandle`.

pub use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
