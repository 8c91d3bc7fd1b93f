//! Operations on files: their constructors.

use std::any::Any;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use super::directory::{DirReader, MOST_ENTRIES};
use super::task::{Job, Task};
use super::{Access, Arguments, CopyOptions, OpenOptions};
use crate::buf::Buf;
use crate::extra::Extra;
use crate::op::{Code, Op};
use crate::source::Source;

/// How urgent work for the threads is.
///
/// When several jobs wait, those of a higher priority are done first; one of a lower is done at the
/// latest after sixteen of higher ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// The usual.
    #[default]
    Normal,
    /// When nothing else is to do.
    Low,
}

/// A file by its path, or an open one that is attached to the watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// By its path; symbolic links are followed.
    Path(PathBuf),
    /// By its path; a symbolic link at its end is meant itself.
    Link(PathBuf),
    /// An attached file.
    Source(Source),
}

impl FileRef {
    /// The link at `path` itself.
    pub fn link(path: impl Into<PathBuf>) -> FileRef {
        FileRef::Link(path.into())
    }
}

impl From<Source> for FileRef {
    fn from(source: Source) -> FileRef {
        FileRef::Source(source)
    }
}

impl<T: AsRef<std::path::Path> + ?Sized> From<&T> for FileRef {
    fn from(path: &T) -> FileRef {
        FileRef::Path(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for FileRef {
    fn from(path: PathBuf) -> FileRef {
        FileRef::Path(path)
    }
}

/// # Files
///
/// A regular file, directory or block device is attached like any descriptor. Its operations say
/// where they start, keep no order among each other, and leave the file's position alone. What is
/// in the page cache is read at once; else io_uring, Linux AIO (for `O_DIRECT`) or threads do the
/// work, see [`Watcher::explain`](crate::Watcher::explain). Work that kernel or thread has begun
/// cannot be abandoned: a deadline or cancel that comes then lets it end, with its real result and
/// the mark [`late`](crate::Completion::late).
///
/// What takes a path needs no source; its completion's is [`Source::NONE`].
impl Op {
    fn task(source: Source, task: Task) -> Op {
        let mut op = Op::plain(Code::Task, source);
        op.extra = Extra::from(Box::new(Arguments::Task(task)));
        op
    }

    /// Reads at `offset` (in bytes, below 2^61 - 1, or the submission is refused with `EINVAL`)
    /// until the room of `buf` is full or the file ends.
    ///
    /// `buf` is a `Vec<u8>` or an [`AlignedBuf`](crate::AlignedBuf), whose whole capacity is
    /// offered from its start, or a list of such. Completes with [`Done::Read`](crate::Done::Read):
    /// fewer bytes than there was room for are the end of the file, none is at or beyond it. A file
    /// that is open for direct I/O wants memory, length and offset aligned (`EINVAL`), see
    /// [`Stat::direct`](crate::Stat).
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, OpenOptions, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::open("Cargo.toml", OpenOptions::new().read(true)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Opened(file)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let file = watcher.attach(file)?;
    /// watcher.submit(Op::read_at(file, vec![0; 9], 0))?;
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(head)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(&*head, b"[package]");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn read_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(Code::ReadAt, file, buf.into());
        op.extra = Extra::offset(offset);
        op
    }

    /// Writes all bytes of `buf` at `offset` (in bytes, below 2^61 - 1, or the submission is
    /// refused with `EINVAL`); beyond the end of the file a hole is left before them.
    ///
    /// Completes with [`Done::Written`](crate::Done::Written). `ENOSPC`, `EDQUOT`, `EFBIG` and
    /// `EIO` come with the number of bytes that are written nevertheless. A file that was opened to
    /// append takes them at its end, whatever `offset` is (on Linux).
    #[inline]
    pub fn write_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(Code::WriteAt, file, buf.into());
        op.extra = Extra::offset(offset);
        op
    }

    /// Everything that was written before is on the disk when this completes
    /// ([`Done::Finished`](crate::Done::Finished)): fsync(2), on macOS `F_FULLFSYNC`. Writes that
    /// are in flight are not waited for: submit it when they have completed. An error means that
    /// some of them may be lost, and another sync does not bring them back.
    pub const fn sync(file: Source) -> Op {
        Op::plain(Code::Sync, file)
    }

    /// As [`sync`](Op::sync) without the metadata that reading does not need: fdatasync(2).
    pub const fn datasync(file: Source) -> Op {
        Op::plain(Code::DataSync, file)
    }

    /// The bytes of a range are with the disk, which may hold them in its own cache:
    /// sync_file_range(2) on Linux, [`datasync`](Op::datasync) elsewhere. A `len` of 0 is up to the
    /// end.
    pub fn sync_range(file: Source, offset: u64, len: u64) -> Op {
        Op::task(file, Task::SyncRange { offset, len })
    }

    /// Gives a range its place on the disk; a file that ends before its end becomes longer:
    /// fallocate(2). `EOPNOTSUPP` where the file system cannot.
    pub fn allocate(file: Source, offset: u64, len: u64) -> Op {
        Op::task(file, Task::Allocate { offset, len })
    }

    /// Makes the file `len` bytes long: cuts it, or lets it end with a hole.
    pub fn truncate(file: Source, len: u64) -> Op {
        Op::task(file, Task::SetLen { len })
    }

    /// Sends `len` bytes (1 to 2^31 - 1) at `offset` of the attached `file` over the stream socket
    /// `socket`, in their place among its writes: sendfile(2), without a copy through the program.
    ///
    /// Completes with [`Done::Sent`](crate::Done::Sent); fewer bytes are the end of the file. With
    /// [`multishot`](Op::multishot) each part that is out is told, with `more`, before that. What
    /// is not in the page cache a thread reads first, a piece after the other; where the system
    /// does not say what is there (all but Linux, and file systems that do not know `RWF_NOWAIT`),
    /// for files open with `O_DIRECT`, and while there is no room for another job
    /// ([`Builder::jobs`](crate::Builder::jobs)), the loop waits for the disk.
    pub fn send_file(socket: Source, file: Source, offset: u64, len: usize) -> Op {
        let mut op = Op::plain(Code::SendFile, socket);
        op.count = u32::try_from(len).unwrap_or(u32::MAX);
        op.extra = Extra::from(Box::new(Arguments::Range { file, offset }));
        op
    }

    /// Opens a file: [`Done::Opened`](crate::Done::Opened). It is closed on exec.
    ///
    /// Opening a FIFO blocks a thread of the pool ([`Builder::threads`](crate::Builder::threads))
    /// until the other end is open; no deadline or cancel ends it. With
    /// [`custom_flags(O_NONBLOCK)`](OpenOptions::custom_flags) it does not wait: an open for
    /// reading succeeds at once, an open for writing fails with `ENXIO` while no reader has the
    /// FIFO open. Use this flag for paths from untrusted input. Opening a device may block, too. A
    /// directory opens for reading only (`EISDIR`).
    ///
    /// ```no_run
    /// use windlass::{Op, OpenOptions};
    /// let nonblock = 0o4000; // libc::O_NONBLOCK, on Linux
    /// let options = OpenOptions::new().read(true).custom_flags(nonblock);
    /// let events = Op::open("/run/events.fifo", options);
    /// ```
    pub fn open(path: impl Into<PathBuf>, options: OpenOptions) -> Op {
        Op::task(Source::NONE, Task::Open { path: path.into(), options })
    }

    /// What the system knows of a file: [`Done::Stat`](crate::Done::Stat).
    pub fn stat(file: impl Into<FileRef>) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::Metadata(file))
    }

    /// Gives a file another name, and replaces what has it: rename(2).
    pub fn rename(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Rename { from: from.into(), to: to.into() })
    }

    /// Removes a name that is no directory's.
    pub fn unlink(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::RemoveFile { path: path.into() })
    }

    /// Gives a file another name beside its own.
    pub fn link(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::HardLink { from: from.into(), to: to.into() })
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(target: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Symlink { target: target.into(), path: path.into() })
    }

    /// What a symbolic link says: [`Done::Path`](crate::Done::Path).
    pub fn read_link(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::ReadLink { path: path.into() })
    }

    /// The path without links, from the root: [`Done::Path`](crate::Done::Path).
    pub fn real_path(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Canonicalize { path: path.into() })
    }

    /// Makes a directory, with the permissions `mode` less the umask.
    pub fn make_dir(path: impl Into<PathBuf>, mode: u32) -> Op {
        Op::task(Source::NONE, Task::CreateDir { path: path.into(), mode })
    }

    /// Removes an empty directory.
    pub fn remove_dir(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::RemoveDir { path: path.into() })
    }

    /// Makes a directory with a name that nobody has, from a template that ends in `XXXXXX`:
    /// [`Done::Path`](crate::Done::Path).
    pub fn make_temp_dir(template: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::CreateTempDir { template: template.into() })
    }

    /// Makes a file with a name that nobody has, from a template that ends in `XXXXXX`:
    /// [`Done::Temporary`](crate::Done::Temporary).
    pub fn make_temp(template: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::CreateTempFile { template: template.into() })
    }

    /// What is in a directory, without `.` and `..`, in no order:
    /// [`Done::Entries`](crate::Done::Entries). A directory of more than 65,536 names ends with
    /// [`ErrorKind::TooManyEntries`](crate::ErrorKind::TooManyEntries);
    /// [`read_dir_part`](Op::read_dir_part) reads it.
    pub fn read_dir(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::ReadDir { path: path.into() })
    }

    /// Reads the next `most` names (1 to 65,536, clamped) of a directory of any size:
    /// [`Done::Part`](crate::Done::Part), with the reader for the next part unless this was the
    /// end. The last part may be empty. After an error or a cancel, start again with a new reader.
    ///
    /// ```
    /// use windlass::{Completions, DirReader, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let mut done = Completions::new();
    /// let mut next = Some(DirReader::new("src"));
    /// let mut count = 0;
    /// while let Some(reader) = next {
    ///     watcher.submit(Op::read_dir_part(reader, 10))?;
    ///     watcher.wait(&mut done)?;
    ///     let Ok(Done::Part(part)) = done.drain(..).next().unwrap().result else { panic!() };
    ///     count += part.entries.len();
    ///     next = part.rest;
    /// }
    /// assert!(count > 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_dir_part(reader: DirReader, most: usize) -> Op {
        let most = most.clamp(1, MOST_ENTRIES);
        Op::task(Source::NONE, Task::ReadDirPart { reader, most })
    }

    /// Copies a file with its permissions: by shared blocks where the file system can, else inside
    /// the kernel where it can, else through memory. [`Done::Copied`](crate::Done::Copied).
    ///
    /// Both must be regular files: a directory is `EISDIR`; a FIFO, socket or device is `EINVAL`,
    /// without waiting. An error of the target's close(2) (`EIO`, `ENOSPC` or `EDQUOT` from network
    /// file systems and FUSE) fails the copy. A failed copy removes the target if it has created
    /// it.
    pub fn copy_file(from: impl Into<PathBuf>, to: impl Into<PathBuf>, options: CopyOptions) -> Op {
        Op::task(Source::NONE, Task::Copy { from: from.into(), to: to.into(), options })
    }

    /// Whether the process may do this with a file; `EACCES` if not.
    pub fn access(path: impl Into<PathBuf>, access: Access) -> Op {
        Op::task(Source::NONE, Task::Access { path: path.into(), access })
    }

    /// Sets permissions. Those of a link are `EOPNOTSUPP`.
    pub fn set_mode(file: impl Into<FileRef>, mode: u32) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetPermissions { file, mode })
    }

    /// Sets owner and group; `None` leaves what is there.
    pub fn set_owner(file: impl Into<FileRef>, user: Option<u32>, group: Option<u32>) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetOwner { file, user, group })
    }

    /// Sets the times of access and modification; `None` leaves what is there.
    pub fn set_times(
        file: impl Into<FileRef>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetTimes { file, accessed, modified })
    }

    /// The size and the free space of the file system that `path` is on:
    /// [`Done::StatFs`](crate::Done::StatFs).
    pub fn stat_fs(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::StatFs { path: path.into() })
    }

    /// Looks the addresses of a host up, by name or number, with `port` in them: getaddrinfo(3).
    /// [`Done::Addresses`](crate::Done::Addresses), at least one; `ENOENT` for a name that is not
    /// known, `EAGAIN` for a server that could not be asked.
    pub fn resolve(host: impl Into<String>, port: u16) -> Op {
        Op::task(Source::NONE, Task::LookupHost { host: host.into(), port })
    }

    /// The names of a host and a port: getnameinfo(3). [`Done::HostName`](crate::Done::HostName);
    /// numbers where there are no names.
    pub fn name_of(address: SocketAddr) -> Op {
        Op::task(Source::NONE, Task::LookupAddr { address })
    }

    /// Runs `job` on a thread of the pool; its value comes with
    /// [`Done::Returned`](crate::Done::Returned).
    ///
    /// Jobs and name look-ups run on half of the threads at most, so that they do not keep file
    /// work waiting. A panic becomes [`ErrorKind::Panicked`](crate::ErrorKind::Panicked), what it
    /// said is in the error's buffer. What has not begun can be cancelled.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::run(|| (1..=20u64).product::<u64>()))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Returned(value)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(value.downcast::<u64>().unwrap(), 2_432_902_008_176_640_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run<T: Any + Send>(job: impl FnOnce() -> T + Send + 'static) -> Op {
        Op::task(Source::NONE, Task::Run(Job::new(job)))
    }

    /// How urgent it is, where threads do it.
    pub const fn priority(mut self, priority: Priority) -> Op {
        self.flags &= !(HIGH | LOW);
        self.flags |= match priority {
            Priority::High => HIGH,
            Priority::Normal => 0,
            Priority::Low => LOW,
        };
        self
    }
}

/// Bits of an operation's flags.
pub(crate) const HIGH: u8 = 1 << 1;
pub(crate) const LOW: u8 = 1 << 2;
