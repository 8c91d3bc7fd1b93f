//! Jobs against std::fs and models.

mod names;
#[cfg(unix)]
mod paths;
mod position;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::thread_job::{JobEnd, ThreadJob, Value};
use super::*;
use crate::skip::{Needs, skip};
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use crate::{Buf, Source};

/// A number that no descriptor has.
const NOWHERE: RawFd = 1 << 30;

/// A directory beside the test binary, removed with all that is in it.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let binary = std::env::current_exe().expect("this binary has a path");
        let parent = binary.parent().expect("a directory");
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("windlass-files-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Dir(path.canonicalize().expect("it is there")),
                // A process that was killed has left it, and had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a directory at {}: {error}", path.display()),
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with `bytes`.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.at(name), bytes).unwrap();
        self.at(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that differ from their neighbours near and far.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8 | 1).collect()
}

fn run(job: impl Into<ThreadJob>) -> Result<Value, i32> {
    job.into().run().result
}

/// Runs a job that must succeed without a value.
#[track_caller]
fn works(job: impl Into<ThreadJob>) {
    let result = run(job);
    assert!(matches!(result, Ok(Value::Unit)), "{result:?}");
}

/// Runs a job that must fail with `errno`.
#[track_caller]
fn fails(job: impl Into<ThreadJob>, errno: i32) {
    let result = run(job);
    assert!(matches!(result, Err(e) if e == errno), "{result:?} instead of errno {errno}");
}

/// Opens a file that must be there.
#[track_caller]
fn open(path: &Path, options: OpenOptions) -> OwnedFd {
    match run(Job::Open { path: path.to_owned(), options }) {
        Ok(Value::File(file)) => file.into_fd().unwrap(),
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[allow(dead_code, reason = "the tests of paths are Unix only")]
#[track_caller]
fn stat(file: impl Into<FileRef>) -> Metadata {
    known(Job::Metadata(file.into()).into())
}

#[track_caller]
fn stat_open(file: &impl AsRawFd) -> Metadata {
    known(on(file, Job::Metadata(Source::NONE.into())))
}

/// A job on an open file.
fn on(file: &impl AsRawFd, job: Job) -> ThreadJob {
    ThreadJob::Job { fd: file.as_raw_fd(), job }
}

impl From<Job> for ThreadJob {
    fn from(job: Job) -> ThreadJob {
        ThreadJob::Job { fd: NOWHERE, job }
    }
}

#[track_caller]
fn known(work: ThreadJob) -> Metadata {
    match run(work) {
        Ok(Value::Metadata(known)) => *known,
        other => panic!("{other:?}"),
    }
}

fn read(file: &impl AsRawFd, buf: impl Into<Buf>, offset: u64) -> JobEnd {
    ThreadJob::ReadAt { fd: file.as_raw_fd(), buf: buf.into(), offset }.run()
}

fn write(file: &impl AsRawFd, buf: impl Into<Buf>, offset: u64) -> JobEnd {
    ThreadJob::WriteAt { fd: file.as_raw_fd(), buf: buf.into(), offset }.run()
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

/// A new file for reading and writing.
fn scratch(dir: &Dir) -> File {
    let options = both().create_new(true);
    let made = open(&dir.at("scratch"), options);
    #[allow(clippy::unnecessary_fallible_conversions)] // not everywhere is a descriptor a file
    File::try_from(made).expect("it is one")
}
