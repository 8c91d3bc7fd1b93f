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
use crate::op::{Op, OpCode};
use crate::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Reason, Watcher};

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
    Symlink(PathBuf),
    /// An attached file.
    Source(Source),
}

impl FileRef {
    /// The symbolic link at `path` itself, not what it leads to: what [`std::fs::symlink_metadata`]
    /// looks at.
    pub fn symlink(path: impl Into<PathBuf>) -> FileRef {
        FileRef::Symlink(path.into())
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

/// Work on files, names, look-ups and jobs.
impl Op {
    fn task(source: Source, task: Task) -> Op {
        let mut op = Op::plain(OpCode::Task, source);
        op.extra = Extra::from(Box::new(Arguments::Task(task)));
        op
    }

    /// Reads at `offset` until the room of `buf` is full or the file ends.
    ///
    /// Completes with [`Done::Read`]: fewer bytes than there was room for are the end of the file,
    /// none is at or beyond it. `offset` is in bytes, below 2^61 - 1. `buf` is a `Vec<u8>` or an
    /// [`AlignedBuf`](crate::AlignedBuf), whose whole capacity is offered from its start, or a list
    /// of such, with room for 1 to 2^31 - 1 bytes. A file that is open for direct I/O wants memory,
    /// length and offset aligned, see [`Metadata::direct`](crate::fs::Metadata).
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
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
    ///
    /// # Errors
    ///
    /// Refused, besides as all [file work](Op#file-work), with:
    ///
    /// - [`Reason::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Reason::EmptyBuffer`], [`Reason::TooLong`]: `buf` has no room, or room for more than
    ///   2^31 - 1 bytes.
    ///
    /// Ends, with the bytes that were read before, in:
    ///
    /// - `EBADF`: the file is not open for reading.
    /// - `EISDIR`: it is a directory.
    /// - `EINVAL`: direct I/O of memory, length or offset that is not aligned.
    /// - `EIO`: the device failed.
    ///
    /// # Platforms
    ///
    /// On Linux what the page cache has is read within `submit`. The rest is read by io_uring (the
    /// driver's ring, or one beside epoll), by Linux AIO if the file is open for direct I/O, or by
    /// a thread; elsewhere by a thread. On Windows it moves the file position.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). The buffer comes back with the bytes that were read.
    #[inline]
    pub fn read_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(OpCode::ReadAt, file, buf.into());
        op.extra = Extra::offset(offset);
        op
    }

    /// Writes all bytes of `buf` at `offset`.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has all bytes:
    /// [`Op::sync_all`] brings them to the disk. `offset` is in bytes, below 2^61 - 1; beyond the
    /// end of the file a hole is left before the bytes. `buf` has 1 to 2^31 - 1 bytes. A file that
    /// is open for direct I/O wants memory, length and offset aligned, see
    /// [`Metadata::direct`](crate::fs::Metadata).
    ///
    /// An example is at [`Op::sync_all`].
    ///
    /// # Errors
    ///
    /// Refused, besides as all [file work](Op#file-work), with:
    ///
    /// - [`Reason::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Reason::EmptyBuffer`], [`Reason::TooLong`]: `buf` has no bytes, or more than 2^31 - 1.
    ///
    /// Ends, with the number of bytes that are written nevertheless, in:
    ///
    /// - `ENOSPC`, `EDQUOT`: the file system is full, or the user's quota is.
    /// - `EFBIG`: the file would be longer than the file system allows.
    /// - `EBADF`: the file is not open for writing.
    /// - `EINVAL`: direct I/O of memory, length or offset that is not aligned.
    /// - `EIO`: the device failed.
    ///
    /// # Platforms
    ///
    /// A file that was opened to append takes the bytes at its end on Linux, whatever `offset` is,
    /// and at `offset` elsewhere. Direct writes are done by io_uring; all others by a thread, one
    /// after the other for each file. On Windows it moves the file position.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). [`Error::bytes`] counts the bytes that are written.
    #[inline]
    pub fn write_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(OpCode::WriteAt, file, buf.into());
        op.extra = Extra::offset(offset);
        op
    }

    /// Brings everything that was written before to the disk: fsync(2).
    ///
    /// Completes with [`Done::Finished`]. Writes that are in flight are not waited for: submit it
    /// when they have completed.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let path = std::env::temp_dir().join(format!("windlass-sync-{}", std::process::id()));
    /// let mut watcher = Watcher::new()?;
    /// let file = std::fs::File::create(&path)?;
    /// let file = watcher.attach(file)?;
    /// let mut done = Completions::new();
    /// watcher.submit(Op::write_at(file, "kept", 0))?;
    /// watcher.wait(&mut done)?;
    /// done.drain(..).next().unwrap().result?;
    /// watcher.submit(Op::sync_all(file))?;
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Finished)));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with:
    ///
    /// - `EIO`, `ENOSPC`, `EDQUOT`: some of the writes may be lost. Another sync does not bring
    ///   them back: write again.
    /// - `EINVAL`: the file cannot be synced, as those of /proc.
    ///
    /// # Platforms
    ///
    /// On Linux by io_uring or Linux AIO where there is one, else by a thread. On macOS it is
    /// `F_FULLFSYNC`, which empties the disk's cache, too. Windows wants a file that is open for
    /// writing.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). After an end without a result, what is on the disk is
    /// unknown.
    pub const fn sync_all(file: Source) -> Op {
        Op::plain(OpCode::SyncAll, file)
    }

    /// As [`Op::sync_all`], without the metadata that reading does not need: fdatasync(2).
    ///
    /// Completes with [`Done::Finished`]. The length of the file is on the disk, the time of the
    /// last write may not be. An example is at [`Op::sync_all`].
    ///
    /// # Errors
    ///
    /// As for [`Op::sync_all`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::sync_all`]; on macOS and Windows it does the same as that.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::sync_all`].
    pub const fn sync_data(file: Source) -> Op {
        Op::plain(OpCode::SyncData, file)
    }

    /// Brings the written bytes of a range to the disk, which may hold them in its own cache.
    ///
    /// Completes with [`Done::Finished`]. `offset` and `len` are in bytes; a `len` of 0 is up to
    /// the end. It is for spreading the work of a later [`Op::sync_all`], not in place of that.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let path = std::env::temp_dir().join(format!("windlass-range-{}", std::process::id()));
    /// # let run = |watcher: &mut Watcher, op| -> std::io::Result<Done> {
    /// #     watcher.submit(op)?;
    /// #     let mut done = Completions::new();
    /// #     watcher.wait(&mut done)?;
    /// #     Ok(done.drain(..).next().unwrap().result?)
    /// # };
    /// let mut watcher = Watcher::new()?;
    /// let file = watcher.attach(std::fs::File::create(&path)?)?;
    /// run(&mut watcher, Op::write_at(file, vec![7; 8192], 0))?; // submits and waits
    /// run(&mut watcher, Op::sync_range(file, 0, 4096))?;
    /// run(&mut watcher, Op::set_len(file, 4096))?;
    /// assert_eq!(std::fs::metadata(&path)?.len(), 4096);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with:
    ///
    /// - `EIO`, `ENOSPC`: some of the writes may be lost.
    /// - `EINVAL`: the range ends beyond 2^63 - 1.
    ///
    /// # Platforms
    ///
    /// sync_file_range(2) on Linux; [`Op::sync_data`] elsewhere. A thread does it.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn sync_range(file: Source, offset: u64, len: u64) -> Op {
        Op::task(file, Task::SyncRange { offset, len })
    }

    /// Gives a range of a file its place on the disk: fallocate(2).
    ///
    /// Completes with [`Done::Finished`]: later writes to the range do not fail for want of space.
    /// A file that ends before the end of the range becomes that long. `offset` and `len` are in
    /// bytes, `len` is at least 1. An example is at [`Op::set_len`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with:
    ///
    /// - `EOPNOTSUPP`: the file system cannot, or the system has no such call.
    /// - `ENOSPC`, `EDQUOT`: there is not so much space.
    /// - `EFBIG`: the range ends beyond what the file system allows.
    /// - `EINVAL`: `len` is 0, or a number is beyond 2^63 - 1.
    /// - `EBADF`: the file is not open for writing.
    ///
    /// # Platforms
    ///
    /// fallocate(2) on Linux, posix_fallocate(2) on FreeBSD. `EOPNOTSUPP` on macOS and Windows. A
    /// thread does it.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn allocate(file: Source, offset: u64, len: u64) -> Op {
        Op::task(file, Task::Allocate { offset, len })
    }

    /// Makes the file `len` bytes long: cuts it, or lets it end with a hole.
    ///
    /// Completes with [`Done::Finished`]. The bytes of a hole read as zeroes.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let path = std::env::temp_dir().join(format!("windlass-truncate-{}", std::process::id()));
    /// let mut watcher = Watcher::new()?;
    /// let file = watcher.attach(std::fs::File::create(&path)?)?;
    /// let mut done = Completions::new();
    /// watcher.submit(Op::set_len(file, 4096))?;
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Finished)));
    /// watcher.submit(Op::allocate(file, 0, 65_536))?; // not every file system can
    /// watcher.wait(&mut done)?;
    /// let longer = done.drain(..).next().unwrap().result.is_ok();
    /// assert_eq!(std::fs::metadata(&path)?.len(), if longer { 65_536 } else { 4096 });
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with:
    ///
    /// - `EINVAL`, `EBADF`: the file is not open for writing.
    /// - `EINVAL`: `len` is beyond 2^63 - 1.
    /// - `EFBIG`: `len` is more than the file system allows.
    /// - `EPERM`: the file is sealed, or may only be appended to.
    ///
    /// # Platforms
    ///
    /// ftruncate(2), by a thread, on every driver. Windows lets the file end with zeroes that may
    /// take space.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn set_len(file: Source, len: u64) -> Op {
        Op::task(file, Task::SetLen { len })
    }

    /// Sends `len` bytes at `offset` of the attached `file` over the stream socket `socket`:
    /// sendfile(2).
    ///
    /// Completes with [`Done::Sent`]; fewer bytes are the end of the file. The range has its place
    /// among the socket's writes, and is not copied through the program. `len` is 1 to 2^31 - 1
    /// bytes. With [`multishot`](Op::multishot) each part that is out is told, with
    /// [`has_more`](Completion::has_more), before the last. A blocking socket is made non-blocking
    /// until it is detached.
    ///
    /// What is not in the page cache a thread reads first, a piece after the other. The loop waits
    /// for the disk where the system does not say what is there (all but Linux, and file systems
    /// that do not know `RWF_NOWAIT`), for files open with `O_DIRECT`, and while there is no room
    /// for another job ([`Builder::max_jobs`]).
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let socket = watcher.attach(ours)?;
    /// let file = watcher.attach(std::fs::File::open("Cargo.toml")?)?;
    /// watcher.submit(Op::send_file(socket, file, 0, 9))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Sent(9))));
    /// let mut head = [0; 9];
    /// theirs.read_exact(&mut head)?;
    /// assert_eq!(&head, b"[package]");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: `socket` is no TCP or Unix stream socket, or `file` no file; or
    ///   `socket` is a duplicate of a blocking socket ([`Watcher::attach_dup`]).
    /// - [`Reason::BadCount`]: `len` is 0, or more than 2^31 - 1.
    /// - [`Reason::Full`] with [`Limit::Writes`]: the socket has too many bytes queued
    ///   ([`Builder::write_limit`]).
    /// - [`Reason::NoFiles`]: the watcher runs on a simulation.
    ///
    /// Ends with the errors of [`Op::write`], and with:
    ///
    /// - `EBADF`: the file was aborted before its bytes were out, or is not open for reading.
    /// - `EISDIR`, `EINVAL`: it is a directory.
    /// - `EIO`: the device failed.
    ///
    /// # Platforms
    ///
    /// sendfile(2) on Linux, macOS and FreeBSD, on every driver; io_uring's ring says when there is
    /// room. On Windows, and for files that sendfile(2) does not know, the bytes are copied through
    /// memory.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]: [`Error::bytes`] counts the bytes that are out, and the writes queued
    /// behind a range that ends partly sent end as [`ErrorKind::Torn`]. A thread that reads ahead
    /// ends its piece for nothing.
    pub fn send_file(socket: Source, file: Source, offset: u64, len: usize) -> Op {
        let mut op = Op::plain(OpCode::SendFile, socket);
        op.count = u32::try_from(len).unwrap_or(u32::MAX);
        op.extra = Extra::from(Box::new(Arguments::Range { file, offset }));
        op
    }

    /// Opens a file.
    ///
    /// Completes with [`Done::Opened`], to be [attached](Watcher::attach). The descriptor is closed
    /// on exec.
    ///
    /// Opening a FIFO blocks a thread of the pool ([`Builder::threads`]) until the other end is
    /// open; no deadline or cancel ends it. With
    /// [`custom_flags(O_NONBLOCK)`](OpenOptions::custom_flags) it does not wait: an open for
    /// reading succeeds at once, an open for writing fails with `ENXIO` while no reader has the
    /// FIFO open. Use this flag for paths from untrusted input. Opening a device may block, too.
    ///
    /// ```no_run
    /// use windlass::fs::OpenOptions;
    /// use windlass::Op;
    /// let nonblock = 0o4000; // libc::O_NONBLOCK, on Linux
    /// let options = OpenOptions::new().read(true).custom_flags(nonblock);
    /// let events = Op::open("/run/events.fifo", options);
    /// ```
    ///
    /// An example that runs is at [`Op::read_at`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EINVAL`: the options contradict each other, or the file system knows no direct I/O.
    /// - `EEXIST`: the file is there, and [`create_new`](OpenOptions::create_new) is set.
    /// - `EISDIR`: it is a directory, which opens for reading only.
    /// - `ENXIO`: a FIFO without a reader, a socket, or a device that does not exist.
    /// - `ETXTBSY`: the program in it is running, and the open is for writing.
    /// - `ELOOP`: it is a symbolic link, and the flags have `O_NOFOLLOW`.
    ///
    /// # Platforms
    ///
    /// open(2), by a thread, on every driver. Windows opens with all sharing allowed, has its own
    /// permissions, and answers `EINVAL` to [`direct`](OpenOptions::direct).
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): a file whose open had begun is opened, created or
    /// truncated nevertheless. Its completion is late and has the open file; dropped unread, that
    /// is closed.
    pub fn open(path: impl Into<PathBuf>, options: OpenOptions) -> Op {
        Op::task(Source::NONE, Task::Open { path: path.into(), options })
    }

    /// Asks what the system knows of a file.
    ///
    /// Completes with [`Done::Metadata`]. `file` is a path, whose symbolic links are followed, an
    /// attached source, or [`FileRef::symlink`] for a link itself.
    ///
    /// ```
    /// use windlass::fs::FileKind;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::metadata("Cargo.toml"))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Metadata(known)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(known.kind(), FileKind::File);
    /// assert_eq!(known.size, std::fs::metadata("Cargo.toml")?.len());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work).
    ///
    /// # Platforms
    ///
    /// statx(2), stat(2) or fstat(2), by a thread, on every driver. What a system does not know is
    /// 0 or absent, see [`Metadata`](crate::fs::Metadata).
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn metadata(file: impl Into<FileRef>) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::Metadata(file))
    }

    /// Gives a file another name, and replaces what has it: rename(2).
    ///
    /// Completes with [`Done::Finished`]. Others see the old file under the name, or the new one,
    /// never none. An example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EXDEV`: the names are on different file systems, or mounts.
    /// - `EISDIR`, `ENOTDIR`: one of the two is a directory and the other is not.
    /// - `ENOTEMPTY`, `EEXIST`: the new name is that of a directory that is not empty.
    /// - `EINVAL`: a directory cannot move into itself.
    /// - `EBUSY`: the system uses one of the directories.
    /// - `EPERM`, `EACCES`: a sticky directory, and another user's file.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): one that had begun is done, or not, as its late result
    /// says.
    pub fn rename(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Rename { from: from.into(), to: to.into() })
    }

    /// Removes a name that is no directory's: unlink(2).
    ///
    /// Completes with [`Done::Finished`]. The file goes when no name and no descriptor is left. An
    /// example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EISDIR` (Linux), `EPERM` (elsewhere): it is a directory's name: [`Op::remove_dir`]
    ///   removes it.
    /// - `EPERM`, `EACCES`: a sticky directory, and another user's file.
    /// - `EBUSY`: the system uses it.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. On Windows `EBUSY`, where another program has the file open
    /// and does not share its removal.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn remove_file(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::RemoveFile { path: path.into() })
    }

    /// Gives a file another name beside its own: link(2).
    ///
    /// Completes with [`Done::Finished`]. Both names are the same file. An example is at
    /// [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EEXIST`: the new name is taken.
    /// - `EXDEV`: the names are on different file systems.
    /// - `EPERM`: it is a directory, or the file system has no such links.
    /// - `EMLINK`: the file has as many names as it may.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. A symbolic link at `from` is linked itself, where the system
    /// can.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn hard_link(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::HardLink { from: from.into(), to: to.into() })
    }

    /// Makes a symbolic link at `path` that says `target`: symlink(2).
    ///
    /// Completes with [`Done::Finished`]. Nothing has to be at `target`.
    ///
    /// ```
    /// use std::path::Path;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let name = format!("windlass-symlink-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// # std::fs::create_dir_all(&directory)?;
    /// # let run = |watcher: &mut Watcher, op| -> std::io::Result<Done> {
    /// #     watcher.submit(op)?;
    /// #     let mut done = Completions::new();
    /// #     watcher.wait(&mut done)?;
    /// #     Ok(done.drain(..).next().unwrap().result?)
    /// # };
    /// let mut watcher = Watcher::new()?;
    /// let link = directory.join("link");
    /// std::fs::write(directory.join("file"), "text")?;
    /// run(&mut watcher, Op::symlink("file", &link))?; // submits and waits
    /// let Done::Path(says) = run(&mut watcher, Op::read_link(&link))? else { panic!() };
    /// assert_eq!(says, Path::new("file"));
    /// let Done::Path(real) = run(&mut watcher, Op::canonicalize(&link))? else { panic!() };
    /// assert!(real.is_absolute() && real.ends_with("file"));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EEXIST`: the name `path` is taken.
    /// - `EPERM`: the file system has no such links, or on Windows the process no privilege to make
    ///   them.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows tells links to directories from links to files: it is
    /// one to a directory if `target` is one now.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn symlink(target: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Symlink { target: target.into(), path: path.into() })
    }

    /// Reads what a symbolic link says: readlink(2).
    ///
    /// Completes with [`Done::Path`], as it stands in the link. An example is at [`Op::symlink`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EINVAL`: it is no symbolic link.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn read_link(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::ReadLink { path: path.into() })
    }

    /// Resolves a path to the one without links, from the root: realpath(3).
    ///
    /// Completes with [`Done::Path`]. Everything on the way, and its end, has to exist. An example
    /// is at [`Op::symlink`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work).
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows answers a path with the prefix `\\?\`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn canonicalize(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::Canonicalize { path: path.into() })
    }

    /// Makes a directory, with the permissions `mode` less the umask: mkdir(2).
    ///
    /// Completes with [`Done::Finished`]. The directory above it has to exist.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let name = format!("windlass-names-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// # let run = |watcher: &mut Watcher, op| -> std::io::Result<Done> {
    /// #     watcher.submit(op)?;
    /// #     let mut done = Completions::new();
    /// #     watcher.wait(&mut done)?;
    /// #     Ok(done.drain(..).next().unwrap().result?)
    /// # };
    /// let mut watcher = Watcher::new()?;
    /// let (draft, text) = (directory.join("draft"), directory.join("text"));
    /// run(&mut watcher, Op::create_dir(&directory, 0o700))?; // submits and waits
    /// std::fs::write(&draft, "words")?;
    /// run(&mut watcher, Op::rename(&draft, &text))?;
    /// run(&mut watcher, Op::hard_link(&text, &draft))?; // two names of one file
    /// run(&mut watcher, Op::remove_file(&draft))?;
    /// assert_eq!(std::fs::read(&text)?, b"words");
    /// run(&mut watcher, Op::remove_file(&text))?;
    /// run(&mut watcher, Op::remove_dir(&directory))?;
    /// assert!(!directory.exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EEXIST`: the name is taken.
    /// - `EMLINK`: the directory above it has as many directories as it may.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows ignores `mode`: the directory has the permissions of
    /// the one above it.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn create_dir(path: impl Into<PathBuf>, mode: u32) -> Op {
        Op::task(Source::NONE, Task::CreateDir { path: path.into(), mode })
    }

    /// Removes an empty directory: rmdir(2).
    ///
    /// Completes with [`Done::Finished`]. An example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `ENOTEMPTY`: something is in it. (Some systems say `EEXIST`.)
    /// - `ENOTDIR`: it is no directory: [`Op::remove_file`] removes it.
    /// - `EBUSY`: the system uses it, for example as a mount point.
    /// - `EINVAL`: the path ends in `.`.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn remove_dir(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::RemoveDir { path: path.into() })
    }

    /// Makes a directory with a new name, from a template that ends in `XXXXXX`: mkdtemp(3).
    ///
    /// Completes with [`Done::Path`], the template with its last six characters replaced. Only the
    /// user may enter it (permissions 0700). Nothing removes it by itself. An example is at
    /// [`Op::create_temp_file`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EINVAL`: the template does not end in `XXXXXX`.
    /// - `EEXIST`: no new name was found.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. On Windows the directory has the permissions of the one above
    /// it, and the template is Unicode.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): a directory whose making had begun is made, and the
    /// late completion names it.
    pub fn create_temp_dir(template: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::CreateTempDir { template: template.into() })
    }

    /// Makes a file with a new name, from a template that ends in `XXXXXX`: mkostemp(3).
    ///
    /// Completes with [`Done::Temporary`]: its path, and the file, open for reading and writing and
    /// closed on exec. Only the user may open it (permissions 0600). Nothing removes it by itself.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::create_temp_file(std::env::temp_dir().join("windlass-XXXXXX")))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Temporary(made)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let (path, file) = *made;
    /// let file = watcher.attach(file)?;
    /// watcher.submit(Op::write_at(file, "scratch", 0))?;
    /// watcher.wait(&mut done)?;
    /// assert_eq!(std::fs::read(&path)?, b"scratch");
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::create_temp_dir`].
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. macOS sets `CLOEXEC` after the call, so that a fork between
    /// the two passes the descriptor on. On Windows the permissions are its own, and the template
    /// is Unicode.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): a file whose making had begun is made. Its late
    /// completion has the path and the open file.
    pub fn create_temp_file(template: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::CreateTempFile { template: template.into() })
    }

    /// Reads the names in a directory, without `.` and `..`, in no order.
    ///
    /// Completes with [`Done::Entries`]: names, and kinds as far as they are known. It reads at
    /// most 65,536 names; [`Op::read_dir_part`] reads directories of any size.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::read_dir("src"))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Entries(entries)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(entries.iter().any(|entry| entry.name == "lib.rs"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work),
    /// which include `ENOTDIR` for what is no directory, and with:
    ///
    /// - [`ErrorKind::TooManyEntries`]: the directory has more than 65,536 names.
    ///
    /// # Platforms
    ///
    /// readdir(3), by a thread, on every driver. Linux, macOS and FreeBSD tell the kind with the
    /// name; where the file system does not, each name costs another call.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn read_dir(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::ReadDir { path: path.into() })
    }

    /// Reads the next `most` names of a directory of any size.
    ///
    /// Completes with [`Done::Part`], with the reader for the next part unless this was the end.
    /// The last part may be empty. `most` is 1 to 65,536; what is outside becomes the nearest of
    /// these.
    ///
    /// ```
    /// use windlass::fs::DirReader;
    /// use windlass::{Completions, Done, Op, Watcher};
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
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work),
    /// which include `ENOTDIR` for what is no directory. An error closes the directory.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read_dir`].
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). One that had not begun closes the directory: start
    /// again with a new reader. One that had begun completes late, with its part and the reader.
    pub fn read_dir_part(reader: DirReader, most: usize) -> Op {
        let most = most.clamp(1, MOST_ENTRIES);
        Op::task(Source::NONE, Task::ReadDirPart { reader, most })
    }

    /// Copies a regular file with its permissions.
    ///
    /// Completes with [`Done::Copied`], the number of bytes. It shares blocks where the file system
    /// can, else it copies inside the kernel where that can, else through memory. A copy of a file
    /// onto itself leaves it as it is, and copies 0 bytes.
    ///
    /// ```
    /// use windlass::fs::CopyOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let to = std::env::temp_dir().join(format!("windlass-copy-{}", std::process::id()));
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::copy("Cargo.toml", &to, CopyOptions::new().exclusive(true)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Copied(bytes)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(std::fs::read(&to)?.len() as u64, bytes);
    /// # std::fs::remove_file(&to)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), for
    /// both of them, and with:
    ///
    /// - `EISDIR`: one of the two is a directory.
    /// - `EINVAL`: one of the two is a FIFO, a socket or a device. It does not wait for a FIFO's
    ///   other end.
    /// - `EEXIST`: the target is there, and [`exclusive`](CopyOptions::exclusive) is set.
    /// - `EOPNOTSUPP`: blocks cannot be shared, and
    ///   [`reflink_required`](CopyOptions::reflink_required) is set.
    /// - `EIO`, `ENOSPC`, `EDQUOT`: the target was not written, or its close(2) reported that it
    ///   was not.
    ///
    /// A failed copy removes the target if it has created it; a target that was there before is
    /// left cut.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver: `FICLONE` and copy_file_range(2) on Linux, copy_file_range(2)
    /// on FreeBSD, memory elsewhere. [`reflink_required`](CopyOptions::reflink_required) is for
    /// Linux only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): a copy that had begun goes on to its end.
    pub fn copy(from: impl Into<PathBuf>, to: impl Into<PathBuf>, options: CopyOptions) -> Op {
        Op::task(Source::NONE, Task::Copy { from: from.into(), to: to.into(), options })
    }

    /// Asks whether the process may do this with a file: access(2).
    ///
    /// Completes with [`Done::Finished`] if it may. The question is for the *real* user and group
    /// of the process. The answer may be out of date when it comes: better open the file and look
    /// at the error.
    ///
    /// ```
    /// use windlass::fs::Access;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::access("Cargo.toml", Access::EXISTS | Access::READ))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Finished)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EACCES`: it may not.
    /// - `EROFS`: it asks for writing, on a read-only file system.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows looks at the read-only mark only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn access(path: impl Into<PathBuf>, access: Access) -> Op {
        Op::task(Source::NONE, Task::Access { path: path.into(), access })
    }

    /// Sets permissions: chmod(2), fchmod(2).
    ///
    /// Completes with [`Done::Finished`]. `mode` are the twelve lowest bits of `st_mode`; the umask
    /// does not count.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let path = std::env::temp_dir().join(format!("windlass-mode-{}", std::process::id()));
    /// # let run = |watcher: &mut Watcher, op| -> std::io::Result<Done> {
    /// #     watcher.submit(op)?;
    /// #     let mut done = Completions::new();
    /// #     watcher.wait(&mut done)?;
    /// #     Ok(done.drain(..).next().unwrap().result?)
    /// # };
    /// let mut watcher = Watcher::new()?;
    /// std::fs::write(&path, "secret")?;
    /// run(&mut watcher, Op::set_permissions(&path, 0o600))?; // submits and waits
    /// let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    /// run(&mut watcher, Op::set_times(&path, None, Some(then)))?;
    /// run(&mut watcher, Op::set_owner(&path, None, None))?; // changes nothing
    /// let Done::Metadata(known) = run(&mut watcher, Op::metadata(&path))? else { panic!() };
    /// assert_eq!((known.permissions(), known.modified), (0o600, then));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EPERM`: the file is another user's.
    /// - `EOPNOTSUPP`: `file` is [`FileRef::symlink`]: links have no permissions to set.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Of `mode`, Windows honours the write bits only: a file that
    /// nobody may write is read-only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn set_permissions(file: impl Into<FileRef>, mode: u32) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetPermissions { file, mode })
    }

    /// Sets owner and group, by their numbers: chown(2), lchown(2), fchown(2).
    ///
    /// Completes with [`Done::Finished`]. `None` leaves what is there. An example is at
    /// [`Op::set_permissions`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EPERM`: the process may not give the file to this user or group.
    /// - `EOPNOTSUPP`: the system has no such owners.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. `EOPNOTSUPP` on Windows.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn set_owner(file: impl Into<FileRef>, user: Option<u32>, group: Option<u32>) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetOwner { file, user, group })
    }

    /// Sets the times of access and modification: utimensat(2), futimens(2).
    ///
    /// Completes with [`Done::Finished`]. `None` leaves what is there. File systems round times,
    /// the usual ones to a nanosecond. An example is at [`Op::set_permissions`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EPERM`, `EACCES`: the file is another user's.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows rounds to 100 nanoseconds.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work).
    pub fn set_times(
        file: impl Into<FileRef>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Op {
        let file = file.into();
        Op::task(file.source(), Task::SetTimes { file, accessed, modified })
    }

    /// Asks for the size and the free space of the file system that `path` is on: statfs(2).
    ///
    /// Completes with [`Done::StatFs`].
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::statfs("."))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::StatFs(known)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(known.block_size > 0 && known.blocks_available <= known.blocks);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with the errors of [paths](Op#file-work), and
    /// with:
    ///
    /// - `EOPNOTSUPP`: the system has no such call.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. `EOPNOTSUPP` on Windows.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work). It changes nothing.
    pub fn statfs(path: impl Into<PathBuf>) -> Op {
        Op::task(Source::NONE, Task::StatFs { path: path.into() })
    }

    /// Looks the addresses of a host up, by name or number: getaddrinfo(3).
    ///
    /// Completes with [`Done::Addresses`]: at least one, each with `port`, in the order in which
    /// the system would try them. It runs on a thread for as long as the name servers take. Give it
    /// a [`timeout`](Op::timeout).
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::lookup_host("192.0.2.7", 443))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Addresses(found)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(found, ["192.0.2.7:443".parse().unwrap()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work). Ends with:
    ///
    /// - `ENOENT`: the name is not known, or has no address.
    /// - `EAGAIN`: no name server answers now; try again later.
    /// - `EIO`: a name server has failed for good.
    /// - `EINVAL`: the name contains a NUL.
    /// - `ENAMETOOLONG`, `ENOMEM`, `EAFNOSUPPORT`, and the errnos of the files and sockets that a
    ///   look-up uses (`EMFILE` …).
    ///
    /// # Platforms
    ///
    /// getaddrinfo(3) on every system, with its configuration (`/etc/hosts`, `/etc/resolv.conf`).
    /// Look-ups and jobs run on half of the threads at most.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#file-work): no system can end a look-up that has begun. A deadline
    /// or cancel leaves it its thread, and marks its completion late.
    pub fn lookup_host(host: impl Into<String>, port: u16) -> Op {
        Op::task(Source::NONE, Task::LookupHost { host: host.into(), port })
    }

    /// Looks the names of a host and a port up: getnameinfo(3).
    ///
    /// Completes with [`Done::HostName`]; numbers stand where there are no names. It runs on a
    /// thread for as long as the name servers take.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::lookup_addr(([127, 0, 0, 1], 80).into()))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::HostName(name)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(!name.host.is_empty() && !name.service.is_empty()); // "localhost", "http"
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::lookup_host`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::lookup_host`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::lookup_host`].
    pub fn lookup_addr(address: SocketAddr) -> Op {
        Op::task(Source::NONE, Task::LookupAddr { address })
    }

    /// Runs `job` on a thread of the pool.
    ///
    /// Completes with [`Done::Returned`], which has its value. Jobs and name look-ups run on half
    /// of the threads at most ([`Builder::threads`]), so that they do not keep file work waiting.
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
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#file-work); the closure stays in the operation. Ends with:
    ///
    /// - [`ErrorKind::Panicked`]: the job panicked; what it said is in the error's buffer.
    ///
    /// # Platforms
    ///
    /// The same everywhere, but the simulation has no threads ([`Reason::NoFiles`]).
    ///
    /// # Cancellation
    ///
    /// A job that has not begun is dropped, on the loop's thread. One that has begun runs to its
    /// end, and its completion, late, has its value: let the closure look at a flag of yours if it
    /// should end earlier.
    pub fn run<T: Any + Send>(job: impl FnOnce() -> T + Send + 'static) -> Op {
        Op::task(Source::NONE, Task::Run(Job::new(job)))
    }

    /// Says how urgent the operation is, where threads do it.
    ///
    /// Of the jobs that wait for a thread those of a higher [`Priority`] are done first. It has no
    /// effect on what no thread does.
    ///
    /// ```
    /// use windlass::{Completions, Op, Priority, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::metadata("Cargo.toml").priority(Priority::Low))?;
    /// watcher.wait(&mut Completions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Platforms
    ///
    /// The same everywhere. The order in which the system's disk queue works is not changed.
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
