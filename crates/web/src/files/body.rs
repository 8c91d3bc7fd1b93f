//! A file as the body of a response.

use std::path::PathBuf;
use std::sync::Arc;

use super::dir::ServedDir;
use super::found::FoundFile;

/// A file as the body of a response.
pub(crate) enum FileBody {
    /// The file at a path of the program.
    At(PathBuf),
    /// The one below a directory that the path of the request names, from this byte on.
    Below(Arc<ServedDir>, u32),
    /// It is open.
    Found(Arc<FoundFile>),
}
