//! Tasks: blocking work on files, as values that are run on a thread.

use std::any::Any;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use super::directory::{self, DirPart, DirReader};
use super::position::{self, Progress};
use super::{Access, CopyOptions, DirEntry, HostName, OpenOptions, Stat, StatFs, copy};
use crate::buf::Buf;
use crate::discard::discard;
use crate::source::Handle;
use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::fs::{errno_of, file};
use crate::sys::{self, path, resolve, stat};
use crate::workers::Work;

/// A job of the program's.
pub(crate) type Job = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// Which file is meant.
pub(crate) enum At {
    /// The one that a path leads to, through links.
    Path(PathBuf),
    /// As `Path`, but a link at its end is meant itself.
    Link(PathBuf),
    /// An open one.
    Descriptor(RawFd),
}

/// Blocking work. Descriptors that are not owned are open (never -1, which std refuses by a panic)
/// and stay so until the task has run: the caller sees to that. No task moves a file position.
/// `EINTR` is not an answer: what was interrupted is done again.
pub(crate) enum Task {
    /// Fills the whole room of `buf` from `offset` on: fewer bytes are the end of the file.
    ReadAt { fd: RawFd, buf: Buf, offset: u64 },
    /// Writes all bytes of `buf` from `offset` on; with `O_APPEND` on Linux at the end instead.
    WriteAt { fd: RawFd, buf: Buf, offset: u64 },
    /// Bytes and metadata are on the disk: fsync(2), `F_FULLFSYNC` on macOS.
    Sync { fd: RawFd },
    /// Bytes, and the metadata that reading them needs, are on the disk: fdatasync(2).
    DataSync { fd: RawFd },
    /// The bytes of a range are written: sync_file_range(2), else as `DataSync`.
    SyncRange { fd: RawFd, offset: u64, len: u64 },
    /// A range has its place on the disk, and the file is at least as long: fallocate(2).
    Allocate { fd: RawFd, offset: u64, len: u64 },
    /// The file is `len` bytes long: cut, or filled with a hole.
    Truncate { fd: RawFd, len: u64 },
    /// → `Value::File`.
    Open { path: PathBuf, options: OpenOptions },
    /// → `Value::Stat`.
    Stat(At),
    /// Replaces what is at `to`.
    Rename { from: PathBuf, to: PathBuf },
    /// Removes a name that is no directory.
    Unlink { path: PathBuf },
    /// Another name of the same file.
    Link { from: PathBuf, to: PathBuf },
    /// A symbolic link at `path`.
    Symlink { target: PathBuf, path: PathBuf },
    /// → `Value::Path`: the target of a symbolic link.
    ReadLink { path: PathBuf },
    /// → `Value::Path`: absolute, without links.
    RealPath { path: PathBuf },
    /// One directory, with `mode` less the umask.
    MakeDir { path: PathBuf, mode: u32 },
    /// One empty directory.
    RemoveDir { path: PathBuf },
    /// → `Value::Path`: a new directory; the template ends in `XXXXXX`.
    MakeTempDir { template: PathBuf },
    /// → `Value::Temp`: a new file; the template ends in `XXXXXX`.
    MakeTemp { template: PathBuf },
    /// → `Value::Entries`, without `.` and `..`, in the file system's order; or `Value::TooMany`.
    ReadDir { path: PathBuf },
    /// → `Value::Part`, with at most this number of names.
    ReadDirPart { reader: DirReader, most: usize },
    /// Bytes and permissions; the bytes of the outcome are those copied.
    CopyFile { from: PathBuf, to: PathBuf, options: CopyOptions },
    /// `EACCES` where it may not.
    Access { path: PathBuf, access: Access },
    /// Permissions. Those of a link are `EOPNOTSUPP`.
    SetMode { at: At, mode: u32 },
    /// Owner and group; `None` leaves what is there.
    SetOwner { at: At, user: Option<u32>, group: Option<u32> },
    /// Times of access and modification; `None` leaves what is there.
    SetTimes { at: At, accessed: Option<SystemTime>, modified: Option<SystemTime> },
    /// → `Value::StatFs`.
    StatFs { path: PathBuf },
    /// → `Value::Addresses`; errors as in `sys/resolve.rs`.
    Resolve { host: String, port: u16 },
    /// → `Value::HostName`; errors as for `Resolve`.
    NameOf { address: SocketAddr },
    /// A range is in the page cache, as far as it can be read.
    Fetch { fd: RawFd, offset: u64, len: usize },
    /// → `Value::Closed`. Closing the last descriptor of a removed file frees its disk space, which
    /// takes time. An error closes the descriptor as well.
    Close(Handle),
    /// → `Value::Job`.
    Run(Job),
}

/// What a task has come to.
pub(crate) struct Outcome {
    /// Its value, or an errno.
    pub(crate) result: Result<Value, i32>,
    /// The buffer that it was given, in any case; for a read it holds what was read.
    pub(crate) buf: Buf,
    /// How many bytes were read, written, sent or copied, in any case.
    pub(crate) bytes: u64,
}

/// What a task answers.
#[derive(Debug)]
pub(crate) enum Value {
    /// That it is done.
    Unit,
    /// That the descriptor is closed.
    Closed,
    /// That a file is copied.
    Copied,
    File(OwnedFd),
    Temp(PathBuf, OwnedFd),
    Stat(Box<Stat>),
    StatFs(Box<StatFs>),
    Path(PathBuf),
    Entries(Vec<DirEntry>),
    Part(Box<DirPart>),
    /// The directory has more names than one operation reads.
    TooMany,
    Addresses(Vec<SocketAddr>),
    HostName(HostName),
    /// What a job returned.
    Job(Box<dyn Any + Send>),
}

// They go to a thread and come back.
const _: () = {
    const fn send<T: Send>() {}
    send::<Task>();
    send::<Outcome>();
};

impl Task {
    /// Does the work; blocks for as long as it takes.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Task::ReadAt { fd, mut buf, offset } => {
                let progress = position::read(fd, &mut buf, offset);
                Outcome { buf, ..moved(progress) }
            }
            Task::WriteAt { fd, buf, offset } => {
                let progress = position::write(fd, &buf, offset);
                Outcome { buf, ..moved(progress) }
            }
            Task::CopyFile { from, to, options } => {
                let (bytes, ended) = copy::copy(&from, &to, options);
                Outcome { bytes, ..outcome(ended.map(|()| Value::Copied)) }
            }

            Task::Sync { fd } => done(file(fd).sync_all()),
            Task::DataSync { fd } => done(file(fd).sync_data()),
            Task::SyncRange { fd, offset, len } => match sys::fs::sync_range(fd, offset, len) {
                Err(libc::EOPNOTSUPP | libc::ENOSYS) => done(file(fd).sync_data()),
                result => plain(result),
            },
            Task::Allocate { fd, offset, len } => {
                plain(uninterrupted(|| sys::fs::allocate(fd, offset, len)))
            }
            Task::Truncate { fd, len } => done(file(fd).set_len(len)),
            Task::Open { path, options } => match options.flags() {
                Ok(flags) => {
                    let (mode, direct) = (options.permissions(), options.is_direct());
                    let opened = sys::fs::open(path.as_os_str(), flags, mode, direct);
                    of(opened, |file| Value::File(file.into()))
                }
                Err(errno) => plain(Err(errno)),
            },

            Task::Stat(at) => {
                let known = match at {
                    At::Path(path) => stat::of_path(path.as_os_str(), true),
                    At::Link(path) => stat::of_path(path.as_os_str(), false),
                    At::Descriptor(fd) => stat::of_descriptor(fd),
                };
                of(known, |known| Value::Stat(Box::new(known)))
            }
            Task::SetMode { at, mode } => match at {
                At::Path(path) => done(path::set_mode(&path, mode)),
                At::Descriptor(fd) => done(path::set_mode_of(&file(fd), mode)),
                At::Link(_) => plain(Err(libc::EOPNOTSUPP)),
            },
            Task::SetOwner { at, user, group } => done(match at {
                At::Path(path) => path::set_owner(&path, true, user, group),
                At::Link(path) => path::set_owner(&path, false, user, group),
                At::Descriptor(fd) => path::set_owner_of(fd, user, group),
            }),
            Task::SetTimes { at, accessed, modified } => done(match at {
                At::Path(path) => path::set_times(path.as_os_str(), true, accessed, modified),
                At::Link(path) => path::set_times(path.as_os_str(), false, accessed, modified),
                At::Descriptor(fd) => path::set_times_of(fd, accessed, modified),
            }),
            Task::StatFs { path } => {
                of(path::stat_fs(path.as_os_str()), |known| Value::StatFs(Box::new(known)))
            }
            Task::Access { path, access } => done(path::access(path.as_os_str(), access.bits())),

            Task::Rename { from, to } => done(fs::rename(from, to)),
            Task::Unlink { path } => done(fs::remove_file(path)),
            Task::Link { from, to } => done(fs::hard_link(from, to)),
            Task::Symlink { target, path } => done(path::symlink(&target, &path)),
            Task::ReadLink { path } => of(fs::read_link(path), Value::Path),
            Task::RealPath { path } => of(fs::canonicalize(path), Value::Path),
            Task::MakeDir { path, mode } => done(path::make_dir(&path, mode)),
            Task::RemoveDir { path } => done(fs::remove_dir(path)),
            Task::MakeTempDir { template } => {
                of(path::make_temp_dir(template.as_os_str()), |name| Value::Path(name.into()))
            }
            Task::MakeTemp { template } => {
                let made = path::make_temp(template.as_os_str());
                of(made, |(name, fd)| Value::Temp(name.into(), fd))
            }
            Task::ReadDir { path } => {
                of(directory::whole(path), |all| all.map_or(Value::TooMany, Value::Entries))
            }
            Task::ReadDirPart { reader, most } => {
                of(reader.read(most), |part| Value::Part(Box::new(part)))
            }

            Task::Resolve { host, port } => {
                outcome(resolve::addresses(&host, port).map(Value::Addresses))
            }
            Task::NameOf { address } => outcome(
                resolve::names(address)
                    .map(|(host, service)| Value::HostName(HostName { host, service })),
            ),
            Task::Fetch { fd, offset, len } => {
                fetch(fd, offset, len);
                outcome(Ok(Value::Unit))
            }
            Task::Close(handle) => outcome(handle.close().map(|()| Value::Closed)),
            Task::Run(job) => outcome(Ok(Value::Job(job()))),
        }
    }

    /// The buffer of a task that was not run.
    pub(crate) fn into_buf(self) -> Buf {
        match self {
            Task::ReadAt { buf, .. } | Task::WriteAt { buf, .. } => buf,
            task => {
                // The closure of a job belongs to the program, and its `Drop` may panic.
                discard(task);
                Buf::NONE
            }
        }
    }

    /// Says which open file is meant, where a task is for such.
    pub(crate) fn set_descriptor(&mut self, descriptor: RawFd) {
        match self {
            Task::ReadAt { fd, .. }
            | Task::WriteAt { fd, .. }
            | Task::Sync { fd }
            | Task::DataSync { fd }
            | Task::SyncRange { fd, .. }
            | Task::Allocate { fd, .. }
            | Task::Truncate { fd, .. }
            | Task::Stat(At::Descriptor(fd))
            | Task::SetMode { at: At::Descriptor(fd), .. }
            | Task::SetOwner { at: At::Descriptor(fd), .. }
            | Task::SetTimes { at: At::Descriptor(fd), .. } => *fd = descriptor,
            _ => {}
        }
    }
}

impl Work for Task {
    type Output = Outcome;
    fn run(self) -> Outcome {
        Task::run(self)
    }
    fn bytes(&self) -> usize {
        match self {
            Task::WriteAt { buf, .. } => buf.len(),
            _ => 0,
        }
    }
}

/// Reads a range, for what it leaves in the page cache.
fn fetch(fd: RawFd, offset: u64, len: usize) {
    const PIECE: usize = 64 << 10;
    let mut buf = Vec::with_capacity(len.min(PIECE));
    for at in (0..len).step_by(PIECE) {
        buf.clear();
        let task = Task::ReadAt { fd, buf: Buf::from(buf), offset: offset + at as u64 };
        let Outcome { result, buf: read, bytes } = task.run();
        if result.is_err() || bytes == 0 {
            return;
        }
        buf = read.into_vec();
    }
}

/// Once more where a signal came between.
fn uninterrupted(mut call: impl FnMut() -> Result<(), i32>) -> Result<(), i32> {
    loop {
        match call() {
            Err(libc::EINTR) => {}
            result => return result,
        }
    }
}

fn outcome(result: Result<Value, i32>) -> Outcome {
    Outcome { result, buf: Buf::NONE, bytes: 0 }
}

fn moved((bytes, ended): Progress) -> Outcome {
    Outcome { bytes, ..plain(ended) }
}

fn plain(result: Result<(), i32>) -> Outcome {
    outcome(result.map(|()| Value::Unit))
}

fn done(result: io::Result<()>) -> Outcome {
    of(result, |()| Value::Unit)
}

fn of<T>(result: io::Result<T>, value: impl FnOnce(T) -> Value) -> Outcome {
    outcome(result.map(value).map_err(|error| errno_of(&error)))
}
