//! Operations on the bytes of files.

use crate::buf::Buf;
use crate::extra::Extra;
use crate::file::Arguments;
use crate::file::task::Task;
use crate::op::{Op, OpCode};
use crate::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Reason, Watcher};

/// Operations on the bytes of files.
impl Op {
    /// Fills `buf` with the bytes at `offset`, up to the end of the file.
    ///
    /// Completes with [`Done::Read`]: fewer bytes than `buf` has room for mean the end of the file;
    /// no bytes mean that `offset` is at or beyond it. `offset` is in bytes, below 2^61 - 1. `buf`
    /// is a `Vec<u8>` or an [`AlignedBuf`](crate::AlignedBuf), whose whole capacity is offered from
    /// its start, or a list of these, with room for 1 to 2^31 - 1 bytes. A file that is open for
    /// direct I/O wants memory, length and offset aligned, see
    /// [`Metadata::direct`](crate::fs::Metadata).
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
    /// Refused as all [file work](Op#errors-of-file-work), and with:
    ///
    /// - [`Reason::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Reason::EmptyBuffer`], [`Reason::TooLong`]: `buf` has no room, or room for more than
    ///   2^31 - 1 bytes.
    ///
    /// Ends with these errors, and the bytes that were read before:
    ///
    /// - `EBADF`: the file is not open for reading.
    /// - `EISDIR`: it is a directory.
    /// - `EINVAL`: direct I/O of memory, length or offset that is not aligned.
    /// - `EIO`: the device failed.
    ///
    /// # Platforms
    ///
    /// On Linux `submit` itself reads data in the page cache. Other data is read by io_uring (the
    /// driver's ring, or one beside epoll), by Linux AIO if the file is open for direct I/O, or by
    /// a thread; elsewhere by a thread. On Windows it moves the file position.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The buffer comes back with the bytes
    /// that were read.
    #[inline]
    pub fn read_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(OpCode::ReadAt, file, buf.into());
        op.extra = Extra::offset(offset);
        op
    }

    /// Writes all bytes of `buf` at `offset`.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has all bytes:
    /// [`Op::sync_all`] brings them to the disk. `offset` is in bytes, below 2^61 - 1; an offset
    /// beyond the end of the file leaves a hole before the bytes. `buf` has 1 to 2^31 - 1 bytes. A
    /// file that is open for direct I/O wants memory, length and offset aligned, see
    /// [`Metadata::direct`](crate::fs::Metadata).
    ///
    /// An example is at [`Op::sync_all`].
    ///
    /// # Errors
    ///
    /// Refused as all [file work](Op#errors-of-file-work), and with:
    ///
    /// - [`Reason::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Reason::EmptyBuffer`], [`Reason::TooLong`]: `buf` has no bytes, or more than 2^31 - 1.
    ///
    /// Ends with these errors, and the number of bytes that are written nevertheless:
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
    /// and at `offset` elsewhere. io_uring does direct writes, where there is one. Threads do all
    /// others: those into the page cache one after the other for each file, because they would
    /// contend for its lock. On Windows it moves the file position.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). [`Error::bytes`] counts the bytes that
    /// are written.
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
    /// Refused like all [file work](Op#errors-of-file-work). Ends with:
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
    /// As for all [file work](Op#cancellation-of-file-work). If it was taken back, nothing is known
    /// of what is on the disk.
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

    /// Writes the changed bytes of a range to the disk, which may still hold them in its own cache.
    ///
    /// Completes with [`Done::Finished`]. `offset` and `len` are in bytes; a `len` of 0 is up to
    /// the end. It spreads the work of a later [`Op::sync_all`], and does not replace it.
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
    /// Refused like all [file work](Op#errors-of-file-work). Ends with:
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
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn sync_range(file: Source, offset: u64, len: u64) -> Op {
        Op::task(file, Task::SyncRange { offset, len })
    }

    /// Reserves disk space for a range of a file: fallocate(2).
    ///
    /// Completes with [`Done::Finished`]: later writes to the range do not fail for want of space.
    /// A file that ends before the end of the range becomes that long. `offset` and `len` are in
    /// bytes, `len` is at least 1. An example is at [`Op::set_len`].
    ///
    /// # Errors
    ///
    /// Refused like all [file work](Op#errors-of-file-work). Ends with:
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
    /// As for all [file work](Op#cancellation-of-file-work).
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
    /// Refused like all [file work](Op#errors-of-file-work). Ends with:
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
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn set_len(file: Source, len: u64) -> Op {
        Op::task(file, Task::SetLen { len })
    }

    /// Sends `len` bytes at `offset` of the attached `file` over the stream socket `socket`:
    /// sendfile(2).
    ///
    /// Completes with [`Done::Sent`]; fewer bytes are the end of the file. The range has its place
    /// among the socket's writes, and is not copied through the program. `len` is 1 to 2^31 - 1
    /// bytes. With [`multishot`](Op::multishot) each part that is out has a completion, and
    /// [`Completion::has_more`] tells them from the last. A blocking socket is made non-blocking
    /// until it is detached.
    ///
    /// A thread first reads what the page cache does not have, a piece after the other. The loop
    /// waits for the disk where the system does not say what is there (all but Linux, and file
    /// systems that do not know `RWF_NOWAIT`), for files open with `O_DIRECT`, and while there is
    /// no room for another job ([`Builder::max_jobs`]).
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
    /// Refused as [every operation](Op#errors-of-every-operation), and with:
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
    /// - `EBADF`: the file's source was closed or aborted before the bytes were out, or the file is
    ///   not open for reading.
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
    /// still finishes its part.
    pub fn send_file(socket: Source, file: Source, offset: u64, len: usize) -> Op {
        let mut op = Op::plain(OpCode::SendFile, socket);
        op.count = u32::try_from(len).unwrap_or(u32::MAX);
        op.extra = Extra::from(Box::new(Arguments::Range { file, offset }));
        op
    }
}
