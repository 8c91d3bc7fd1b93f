//! Files: the words for them, and the blocking execution of what is asked for.
//!
//! No kernel but io_uring waits for a disk without a thread of ours. So the work on files is a
//! [`Task`](task::Task): a value that says what to do, is sent to a thread, and is run there to its
//! end. What it needs it owns; what it was given it gives back. Tasks know nothing of tickets, queues
//! or watchers.
//!
//! ```text
//! task.rs       what can be asked for, and what comes back
//! position.rs   reads and writes at an offset, to their end; a file's bytes to a socket
//! copy.rs       a file into another
//! options.rs stat.rs    the public words
//! ```

mod copy;
mod options;
mod position;
pub(crate) mod stat;
#[allow(dead_code)] // the thread pool runs them; no operation makes one yet
pub(crate) mod task;
#[cfg(all(test, not(miri)))] // Miri has few of these calls
mod tests;

pub use options::{Access, CopyOptions, OpenOptions};
pub use stat::{DirEntry, DirectAlignment, FileKind, HostName, Stat, StatFs};
