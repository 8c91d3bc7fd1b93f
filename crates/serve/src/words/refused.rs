//! What was refused, and why.

use std::fmt;
use std::fs::File;

use windlass::Buf;

/// Why a write, a job or a file was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The connection takes no more output: it has ended, closes, detaches, or has shut down its
    /// output. Of a job: it has ended, closes or detaches, or has not opened yet.
    Stale,
    /// The bytes that wait for this connection would exceed its [cap](crate::Limits::cap).
    Cap,
    /// The bytes that wait in the whole server would exceed its
    /// [memory](crate::Limits::memory).
    Memory,
    /// Too many jobs wait: [`Limits::jobs`](crate::Limits::jobs) of the connection, or
    /// [`Limits::loop_jobs`](crate::Limits::loop_jobs) of the loop.
    Jobs,
    /// Too many [files](crate::Engine::send_file) wait for this connection:
    /// [`Limits::files`](crate::Limits::files).
    Files,
    /// The file is no regular file, or the range is not within it.
    File,
    /// A session sends no file, and a simulation has none.
    Unsupported,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Stale => "the connection has ended, or takes no more output",
            Refusal::Cap => "too many bytes wait for this connection (Limits::cap)",
            Refusal::Memory => "too many bytes wait in the whole server (Limits::memory)",
            Refusal::Jobs => "too many jobs wait (Limits::jobs, Limits::loop_jobs)",
            Refusal::Files => "too many files wait for this connection (Limits::files)",
            Refusal::File => "it is no regular file, or the range is not within it",
            Refusal::Unsupported => "a session sends no file, and a simulation has none",
        })
    }
}

/// A write that was refused, with its bytes.
pub struct Refused {
    /// The buffer of the write, unchanged.
    pub data: Buf,
    /// Why the write was refused.
    pub reason: Refusal,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({:?}, {} bytes)", self.reason, self.data.len())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// A job that was refused, with the job.
pub struct RefusedJob<J> {
    /// The job, which has not run.
    pub job: J,
    /// Why the job was refused.
    pub reason: Refusal,
}

impl<J> fmt::Debug for RefusedJob<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusedJob({:?})", self.reason)
    }
}

impl<J> fmt::Display for RefusedJob<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<J> std::error::Error for RefusedJob<J> {}

/// A file that was refused.
pub struct RefusedFile {
    /// The file, unchanged.
    pub file: File,
    /// Why it was refused.
    pub reason: Refusal,
}

impl fmt::Debug for RefusedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusedFile({:?}, {:?})", self.reason, self.file)
    }
}

impl fmt::Display for RefusedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for RefusedFile {}
