//! Descriptors, owned, borrowed and as numbers. Here they are std's; Windows' are in
//! `windows/fd.rs`.

pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
