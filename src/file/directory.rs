//! The entries of a directory, up to a bound or part by part.

use std::fmt;
use std::fs::{self, ReadDir};
use std::io;
use std::path::PathBuf;

use super::{DirEntry, FileKind};
use crate::sys::stat;

/// The most entries that one operation reads of a directory.
pub(crate) const MOST_ENTRIES: usize = 65_536;

/// A directory that is read part by part: [`Op::read_dir_part`](crate::Op::read_dir_part).
///
/// From the first part on it holds the directory open, at the next name. Dropping it closes the
/// directory. Each name that exists all the time comes once. A name that is created or removed
/// meanwhile may come or not.
pub struct DirReader(DirPosition);

enum DirPosition {
    Start(PathBuf),
    Open(Box<ReadDir>),
}

/// A part of a directory, from [`Op::read_dir_part`](crate::Op::read_dir_part).
#[derive(Debug)]
#[non_exhaustive]
pub struct DirPart {
    /// The next names, without `.` and `..`, in the file system's order.
    pub entries: Vec<DirEntry>,
    /// The reader for the next part; `None` at the end.
    pub rest: Option<DirReader>,
}

impl DirReader {
    /// A reader at the start of a directory. Reading the first part opens the directory.
    pub fn new(path: impl Into<PathBuf>) -> DirReader {
        DirReader(DirPosition::Start(path.into()))
    }

    /// Reads at most `most` names, and fewer only at the end.
    pub(crate) fn read(self, most: usize) -> io::Result<DirPart> {
        let mut names = match self.0 {
            DirPosition::Start(path) => Box::new(fs::read_dir(path)?),
            DirPosition::Open(names) => names,
        };
        let entries: Vec<_> = names.by_ref().take(most).map(entry).collect::<io::Result<_>>()?;
        let rest = (entries.len() == most).then_some(DirReader(DirPosition::Open(names)));
        Ok(DirPart { entries, rest })
    }
}

impl fmt::Debug for DirReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DirPosition::Start(path) => write!(f, "DirReader(before {path:?})"),
            DirPosition::Open(names) => write!(f, "DirReader(inside {names:?})"),
        }
    }
}

/// All entries of a directory; `None` if it has more than [`MOST_ENTRIES`] names.
pub(crate) fn whole(path: PathBuf) -> io::Result<Option<Vec<DirEntry>>> {
    let DirPart { entries, rest } = DirReader::new(path).read(MOST_ENTRIES)?;
    let more = match rest {
        Some(rest) => !rest.read(1)?.entries.is_empty(),
        None => false,
    };
    Ok((!more).then_some(entries))
}

fn entry(found: io::Result<fs::DirEntry>) -> io::Result<DirEntry> {
    let found = found?;
    // Most file systems return the kind with the name; on others this calls lstat(2).
    let kind = found.file_type().map_or(FileKind::Unknown, stat::kind_of);
    Ok(DirEntry { name: found.file_name(), kind })
}
