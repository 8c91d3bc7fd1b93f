//! Jobs of worker threads: blocking work on files, as values, and how each ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::job::Job;
use super::position::{self, Progress};
use super::{DirEntry, DirPart, HostName, Metadata, StatFs};
use crate::memory::buf::Buf;
use crate::memory::discard::discard;
use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::fs::file;
use crate::sys::step::errno_of;
use crate::words::message::Message;
use crate::words::source::{Handle, SourceKind};
use crate::workers::Run;

/// Blocking work. A descriptor that the work does not own is open (never -1, for which std panics),
/// and stays open until the work is done: the caller ensures this. No work moves a file position.
/// `EINTR` is not an answer: an interrupted call is repeated.
#[derive(Debug)]
#[non_exhaustive]
pub enum ThreadJob {
    /// Fills the whole room of `buf` from `offset` on. Fewer bytes mean the end of the file.
    ReadAt {
        /// The file.
        fd: RawFd,
        /// Where the bytes go.
        buf: Buf,
        /// Where in the file they start.
        offset: u64,
    },
    /// Writes all bytes of `buf` from `offset` on; with `O_APPEND` on Linux at the end instead.
    WriteAt {
        /// The file.
        fd: RawFd,
        /// The bytes.
        buf: Buf,
        /// Where in the file they go.
        offset: u64,
    },
    /// Puts bytes and metadata on the disk: fsync(2), `F_FULLFSYNC` on macOS.
    Sync {
        /// The file.
        fd: RawFd,
    },
    /// Puts bytes, and the metadata that reading them needs, on the disk: fdatasync(2).
    DataSync {
        /// The file.
        fd: RawFd,
    },
    /// Closes a descriptor. After an error of close(2) it is closed, too. Closing the last
    /// descriptor of a removed file frees its disk space, which takes time.
    Close(Handle),
    /// What an operation asks for.
    Job {
        /// The descriptor of the operation's source; -1 if the job needs none.
        fd: RawFd,
        /// What it asks for.
        job: Job,
    },
}

/// How a job of a thread has ended.
pub(crate) struct JobEnd {
    /// The value of the work, or an errno.
    pub(crate) result: Result<Value, i32>,
    /// The buffer that the work was given, also after an error. After a read it holds what was
    /// read.
    pub(crate) buf: Buf,
    /// How many bytes were read, written, sent or copied, also after an error.
    pub(crate) bytes: u64,
}

/// The value of work that has succeeded.
#[derive(Debug)]
pub(crate) enum Value {
    /// The work is done.
    Unit,
    /// The descriptor is closed.
    Closed,
    /// The file is copied.
    Copied,
    File(Handle),
    Temp(PathBuf, Handle),
    Metadata(Box<Metadata>),
    StatFs(Box<StatFs>),
    Path(PathBuf),
    Entries(Vec<DirEntry>),
    Part(Box<DirPart>),
    /// The directory has more names than one operation reads.
    TooMany,
    Addresses(Vec<SocketAddr>),
    HostName(HostName),
    /// The result of a job.
    Job(Message),
}

// A job and its end go to a thread and come back.
const _: () = {
    const fn send<T: Send>() {}
    send::<ThreadJob>();
    send::<JobEnd>();
};

impl ThreadJob {
    /// Does the work; blocks for as long as it takes.
    pub(crate) fn run(self) -> JobEnd {
        match self {
            ThreadJob::ReadAt { fd, mut buf, offset } => {
                let progress = position::read(fd, &mut buf, offset);
                JobEnd { buf, ..moved(progress) }
            }
            ThreadJob::WriteAt { fd, buf, offset } => {
                let progress = position::write(fd, &buf, offset);
                JobEnd { buf, ..moved(progress) }
            }
            ThreadJob::Sync { fd } => done(file(fd).sync_all()),
            ThreadJob::DataSync { fd } => done(file(fd).sync_data()),
            ThreadJob::Close(handle) => end_of(handle.close().map(|()| Value::Closed)),
            ThreadJob::Job { fd, job } => job.perform(fd),
        }
    }

    /// The buffer of work that was not done.
    pub(crate) fn into_buf(self) -> Buf {
        match self {
            ThreadJob::ReadAt { buf, .. } | ThreadJob::WriteAt { buf, .. } => buf,
            work => {
                // The closure of a job belongs to the program, and its `Drop` may panic.
                discard(work);
                Buf::NONE
            }
        }
    }
}

impl Run for ThreadJob {
    type Output = JobEnd;
    fn run(self) -> JobEnd {
        ThreadJob::run(self)
    }
}

/// Repeats a call while signals interrupt it.
pub(super) fn uninterrupted(mut call: impl FnMut() -> Result<(), i32>) -> Result<(), i32> {
    loop {
        match call() {
            Err(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// A file that was opened. What is no file is prepared for the loop when it is attached.
pub(super) fn handle(fd: OwnedFd, kind: SourceKind) -> Handle {
    match kind {
        SourceKind::File => Handle::with_kind(fd, kind, None).worn(),
        _ => Handle::from(fd),
    }
}

pub(crate) fn end_of(result: Result<Value, i32>) -> JobEnd {
    JobEnd { result, buf: Buf::NONE, bytes: 0 }
}

fn moved((bytes, ended): Progress) -> JobEnd {
    JobEnd { bytes, ..plain(ended) }
}

pub(super) fn plain(result: Result<(), i32>) -> JobEnd {
    end_of(result.map(|()| Value::Unit))
}

pub(super) fn done(result: io::Result<()>) -> JobEnd {
    of(result, |()| Value::Unit)
}

pub(super) fn of<T>(result: io::Result<T>, value: impl FnOnce(T) -> Value) -> JobEnd {
    end_of(result.map(value).map_err(|error| errno_of(&error)))
}
