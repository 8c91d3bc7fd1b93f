//! Jobs: what an operation asks of a thread. Most of them are blocking calls on paths.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use super::directory::{self, DirReader};
use super::thread_job::{JobEnd, Value, done, end_of, handle, of, plain, uninterrupted};
use super::{Access, CopyOptions, FileRef, HostName, OpenOptions, copy};
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use crate::sys::fs::file;
use crate::sys::{self, descriptor, path, resolve, stat};
use crate::words::message::Message;
use crate::words::source::SourceKind;

/// What an operation with [`OpCode::Job`](crate::driver::OpCode::Job) asks for (for authors of
/// drivers).
///
/// [`OpParts::job`](crate::driver::OpParts::job) holds it. A driver matches the jobs that it
/// serves in a way of its own, and lets a thread [`run`](Job::run) all others. If a job is for an
/// attached file, [`OpParts::source`](crate::driver::OpParts::source) names the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Job {
    /// Writes a range of the source to the disk. A `len` of 0 means up to the end.
    SyncRange {
        /// Where the range starts, in bytes.
        offset: u64,
        /// How many bytes it has.
        len: u64,
    },
    /// Allocates space on the disk for a range of the source.
    Allocate {
        /// Where the range starts, in bytes.
        offset: u64,
        /// How many bytes it has.
        len: u64,
    },
    /// Sets the length of the source to `len` bytes.
    SetLen {
        /// The new length in bytes.
        len: u64,
    },
    /// Opens a file: [`Done::Opened`](crate::Done::Opened).
    Open {
        /// The file.
        path: PathBuf,
        /// How it is opened.
        options: OpenOptions,
    },
    /// Opens a file below a directory, which its path does not leave:
    /// [`Done::Opened`](crate::Done::Opened).
    OpenBeneath {
        /// The directory.
        root: PathBuf,
        /// The path from there.
        path: PathBuf,
        /// How the file is opened.
        options: OpenOptions,
    },
    /// Reads the attributes of a file: [`Done::Metadata`](crate::Done::Metadata).
    Metadata(FileRef),
    /// Gives a file another name. A file that had this name is replaced.
    Rename {
        /// The name before.
        from: PathBuf,
        /// The name after.
        to: PathBuf,
    },
    /// Removes a name, unless it is a directory's.
    RemoveFile {
        /// The name.
        path: PathBuf,
    },
    /// Gives a file a second name.
    HardLink {
        /// The file.
        from: PathBuf,
        /// Its second name.
        to: PathBuf,
    },
    /// Makes a symbolic link.
    Symlink {
        /// The target of the link.
        target: PathBuf,
        /// Where the link is made.
        path: PathBuf,
    },
    /// Reads the target of a symbolic link: [`Done::Path`](crate::Done::Path).
    ReadLink {
        /// The link.
        path: PathBuf,
    },
    /// The path without links, from the root: [`Done::Path`](crate::Done::Path).
    Canonicalize {
        /// A path to the same file.
        path: PathBuf,
    },
    /// Makes a directory.
    CreateDir {
        /// Its path.
        path: PathBuf,
        /// Its permissions, less the umask.
        mode: u32,
    },
    /// Removes an empty directory.
    RemoveDir {
        /// Its path.
        path: PathBuf,
    },
    /// Makes a directory with a fresh name: [`Done::Path`](crate::Done::Path).
    CreateTempDir {
        /// Its path; the last six characters are `XXXXXX`.
        template: PathBuf,
    },
    /// Makes a file with a fresh name: [`Done::Temporary`](crate::Done::Temporary).
    CreateTempFile {
        /// Its path; the last six characters are `XXXXXX`.
        template: PathBuf,
    },
    /// The names in a directory: [`Done::Entries`](crate::Done::Entries), or
    /// [`ErrorKind::TooManyEntries`](crate::ErrorKind::TooManyEntries).
    ReadDir {
        /// The directory.
        path: PathBuf,
    },
    /// The next names in a directory: [`Done::Part`](crate::Done::Part).
    ReadDirPart {
        /// The directory, at the next name.
        reader: DirReader,
        /// The most names that are read.
        most: usize,
    },
    /// Copies a file: [`Done::Copied`](crate::Done::Copied).
    Copy {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// How it is copied.
        options: CopyOptions,
    },
    /// Checks whether the process has this access to a file; `EACCES` if not.
    Access {
        /// The file.
        path: PathBuf,
        /// The access to test.
        access: Access,
    },
    /// Sets permissions. Fails with `EOPNOTSUPP` for a symbolic link.
    SetPermissions {
        /// The file.
        file: FileRef,
        /// The permissions.
        mode: u32,
    },
    /// Sets owner and group; `None` leaves the present one.
    SetOwner {
        /// The file.
        file: FileRef,
        /// The owner's number.
        user: Option<u32>,
        /// The group's number.
        group: Option<u32>,
    },
    /// Sets the times of access and modification; `None` leaves the present one.
    SetTimes {
        /// The file.
        file: FileRef,
        /// When it was read last.
        accessed: Option<SystemTime>,
        /// When its bytes were changed last.
        modified: Option<SystemTime>,
    },
    /// Reads the attributes of a file system: [`Done::StatFs`](crate::Done::StatFs).
    StatFs {
        /// A file on it.
        path: PathBuf,
    },
    /// The addresses of a host: [`Done::Addresses`](crate::Done::Addresses), at least one.
    LookupHost {
        /// A name, or an address as text.
        host: String,
        /// The port of the addresses.
        port: u16,
    },
    /// The names of a host and a port: [`Done::HostName`](crate::Done::HostName).
    LookupAddr {
        /// The address.
        address: SocketAddr,
    },
    /// Runs a job of the program: [`Done::Returned`](crate::Done::Returned).
    Run(Closure),
}

/// A job of the program, from [`Op::run`](crate::Op::run).
pub struct Closure(Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>);

impl Closure {
    pub(crate) fn new<T: Any + Send>(job: impl FnOnce() -> T + Send + 'static) -> Closure {
        Closure(Box::new(move || Box::new(job())))
    }

    /// Runs the job on the calling thread. A panic of the job reaches the caller; [`Job::run`]
    /// catches it.
    pub fn run(self) -> Message {
        Message::new(Some((self.0)()))
    }
}

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure")
    }
}

impl Job {
    /// Whether the job may take any length of time. The pool keeps some of its threads free of
    /// such jobs.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Job::Run(_) | Job::LookupHost { .. } | Job::LookupAddr { .. })
    }

    /// Whether the job works on the attached file of its operation.
    pub(crate) fn needs_file(&self) -> bool {
        match self {
            Job::SyncRange { .. } | Job::Allocate { .. } | Job::SetLen { .. } => true,
            Job::Metadata(file)
            | Job::SetPermissions { file, .. }
            | Job::SetOwner { file, .. }
            | Job::SetTimes { file, .. } => matches!(file, FileRef::Source(_)),
            _ => false,
        }
    }

    /// Does the work; blocks for as long as it takes. `fd` is the descriptor of the operation's
    /// source, where the job [needs](Job::needs_file) one, and stays open meanwhile.
    pub(crate) fn perform(self, fd: RawFd) -> JobEnd {
        match self {
            Job::SyncRange { offset, len } => match sys::fs::sync_range(fd, offset, len) {
                Err(libc::EOPNOTSUPP | libc::ENOSYS) => done(file(fd).sync_data()),
                result => plain(result),
            },
            Job::Allocate { offset, len } => {
                plain(uninterrupted(|| sys::fs::allocate(fd, offset, len)))
            }
            Job::SetLen { len } => done(file(fd).set_len(len)),
            Job::Open { path, options } => match options.flags() {
                Ok(flags) => {
                    let (mode, direct) = (options.permissions(), options.is_direct());
                    opened(sys::fs::open(path.as_os_str(), flags, mode, direct))
                }
                Err(errno) => plain(Err(errno)),
            },
            Job::OpenBeneath { root, path, options } => match options.flags() {
                Ok(flags) => {
                    let (mode, direct) = (options.permissions(), options.is_direct());
                    opened(sys::beneath::open(&root, &path, flags, mode, direct))
                }
                Err(errno) => plain(Err(errno)),
            },

            Job::Metadata(file) => {
                let known = match file {
                    FileRef::Path(path) => stat::of_path(path.as_os_str(), true),
                    FileRef::Symlink(path) => stat::of_path(path.as_os_str(), false),
                    FileRef::Source(_) => stat::of_descriptor(fd),
                };
                of(known, |known| Value::Metadata(Box::new(known)))
            }
            Job::SetPermissions { file: at, mode } => match at {
                FileRef::Path(path) => done(path::set_mode(&path, mode)),
                FileRef::Source(_) => done(path::set_mode_of(&file(fd), mode)),
                FileRef::Symlink(_) => plain(Err(libc::EOPNOTSUPP)),
            },
            Job::SetOwner { file, user, group } => done(match file {
                FileRef::Path(path) => path::set_owner(&path, true, user, group),
                FileRef::Symlink(path) => path::set_owner(&path, false, user, group),
                FileRef::Source(_) => path::set_owner_of(fd, user, group),
            }),
            Job::SetTimes { file, accessed, modified } => done(match file {
                FileRef::Path(path) => path::set_times(path.as_os_str(), true, accessed, modified),
                FileRef::Symlink(path) => {
                    path::set_times(path.as_os_str(), false, accessed, modified)
                }
                FileRef::Source(_) => path::set_times_of(fd, accessed, modified),
            }),
            Job::StatFs { path } => {
                of(path::stat_fs(path.as_os_str()), |known| Value::StatFs(Box::new(known)))
            }
            Job::Access { path, access } => done(path::access(path.as_os_str(), access.bits())),

            Job::Rename { from, to } => done(fs::rename(from, to)),
            Job::RemoveFile { path } => done(fs::remove_file(path)),
            Job::HardLink { from, to } => done(fs::hard_link(from, to)),
            Job::Symlink { target, path } => done(path::symlink(&target, &path)),
            Job::ReadLink { path } => of(fs::read_link(path), Value::Path),
            Job::Canonicalize { path } => of(fs::canonicalize(path), Value::Path),
            Job::CreateDir { path, mode } => done(path::make_dir(&path, mode)),
            Job::RemoveDir { path } => done(fs::remove_dir(path)),
            Job::CreateTempDir { template } => {
                of(path::make_temp_dir(template.as_os_str()), |name| Value::Path(name.into()))
            }
            Job::CreateTempFile { template } => {
                let made = path::make_temp(template.as_os_str());
                of(made, |(name, fd)| Value::Temp(name.into(), handle(fd, SourceKind::File)))
            }
            Job::ReadDir { path } => {
                of(directory::whole(path), |all| all.map_or(Value::TooMany, Value::Entries))
            }
            Job::ReadDirPart { reader, most } => {
                of(reader.read(most), |part| Value::Part(Box::new(part)))
            }
            Job::Copy { from, to, options } => {
                let (bytes, ended) = copy::copy(&from, &to, options);
                JobEnd { bytes, ..end_of(ended.map(|()| Value::Copied)) }
            }

            Job::LookupHost { host, port } => {
                end_of(resolve::addresses(&host, port).map(Value::Addresses))
            }
            Job::LookupAddr { address } => end_of(
                resolve::names(address)
                    .map(|(host, service)| Value::HostName(HostName { host, service })),
            ),
            Job::Run(job) => end_of(Ok(Value::Job(job.run()))),
        }
    }
}

/// The end of a job that opens a file.
fn opened(opened: io::Result<fs::File>) -> JobEnd {
    of(opened, |file| {
        // The loop then need not ask, which could take as long as this call.
        let fd = OwnedFd::from(file);
        let kind = descriptor::kind_of(fd.as_raw_fd());
        Value::File(handle(fd, kind.unwrap_or(SourceKind::Unknown)))
    })
}
