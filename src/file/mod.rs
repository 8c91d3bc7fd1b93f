//! Files: their vocabulary, and the blocking execution of operations on them.
//!
//! No kernel but io_uring waits for a disk without a thread of ours. So the work on files is a
//! [`ThreadJob`](thread_job::ThreadJob): a value that says what to do. A thread gets it, and
//! runs it to its end. A job owns what it needs, and gives back the buffer that it was given. It
//! knows nothing of tickets, queues or watchers.
//!
//! ```text
//! job.rs        what an operation can ask of a thread
//! thread_job.rs what a thread runs: jobs, reads, writes, syncs; and how they end
//! position.rs   reads and writes at an offset, to their end; a file's bytes to a socket
//! list.rs       lists of buffers, in the form that a kernel takes
//! copy.rs       copies of files
//! directory.rs  the names in a directory: all, or part by part
//! options.rs stat.rs file_ref.rs    the public words
//! ```

mod backend;
mod copy;
mod directory;
mod facts;
mod file_ref;
mod job;
mod list;
mod options;
mod position;
mod request;
pub(crate) mod stat;
#[cfg(all(test, not(miri)))] // Miri has few of these calls
mod tests;
pub(crate) mod thread_job;

pub(crate) use backend::VARIABLE;
pub use backend::{FileBackend, UnknownBackend};
pub(crate) use directory::MOST_ENTRIES;
pub use directory::{DirPart, DirReader};
pub use facts::Facts as FileFacts;
pub use file_ref::FileRef;
pub use job::{Closure, Job};
pub use list::FileList;
pub(crate) use list::ListVectors;
pub use options::{Access, CopyOptions, OpenOptions};
pub(crate) use position::send;
pub use request::{FileAnswer, FileRequest, FileWork};
pub use stat::{DirEntry, DirectAlignment, FileKind, HostName, Metadata, StatFs};

/// The arguments of an operation that do not fit into the operation itself.
pub(crate) enum Arguments {
    /// The job for a thread.
    Job(Job),
    /// The file that is sent, and the offset at which the range starts.
    Range { file: crate::words::source::Source, offset: u64 },
}
