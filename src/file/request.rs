//! Requests on files that a kernel serves by itself, and its answers.

use super::{FileFacts, FileList};
use crate::memory::buf::Target;
use crate::sys::fd::RawFd;

/// Work on a file.
#[derive(Debug)]
pub enum FileWork<'a> {
    /// Read into this memory.
    Read(Target<'a>),
    /// Write these bytes.
    Write(&'a [u8]),
    /// Read into these parts, one after the other.
    ReadList(FileList<'a>),
    /// Write these parts, one after the other.
    WriteList(FileList<'a>),
    /// fsync(2).
    SyncAll,
    /// fdatasync(2).
    SyncData,
}

/// Work on a file that a kernel is to begin.
#[derive(Debug)]
pub struct FileRequest<'a> {
    /// Identifies the answer.
    pub key: u64,
    /// The file.
    pub fd: RawFd,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The work.
    pub work: FileWork<'a>,
}

impl FileRequest<'_> {
    /// Whether direct I/O on a file with these facts takes the request's memory, length and offset.
    pub(crate) fn is_aligned(&mut self, facts: FileFacts) -> bool {
        let offset = self.offset;
        let fits = |start: *mut u8, len| facts.fits(start, len, offset);
        match &mut self.work {
            FileWork::Read(to) => fits(to.as_mut_ptr(), to.len()),
            FileWork::Write(bytes) => fits(bytes.as_ptr().cast_mut(), bytes.len()),
            FileWork::ReadList(list) | FileWork::WriteList(list) => {
                list.parts().all(|(start, len)| fits(start, len))
            }
            FileWork::SyncAll | FileWork::SyncData => true,
        }
    }
}

/// The result of work on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAnswer {
    /// The key that it was started with.
    pub key: u64,
    /// The number of bytes, or `-errno`. `-EAGAIN` means that the kernel would have had to wait,
    /// `-EOPNOTSUPP` that it cannot do the work. In both cases the kernel has done nothing.
    pub moved: isize,
}
