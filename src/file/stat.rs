//! Entries of directories, and names of hosts.

use std::ffi::OsString;

pub use crate::sys::types::{DirectAlignment, FileKind, Metadata, StatFs};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirEntry {
    /// The name, without its directory.
    pub name: OsString,
    /// The kind of the file; [`FileKind::Unknown`] if the file was removed meanwhile.
    pub kind: FileKind,
}

/// The name of an internet address: getnameinfo(3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostName {
    /// The name of the address, or the address as text.
    pub host: String,
    /// The name of the port's service, or the port as text.
    pub service: String,
}
