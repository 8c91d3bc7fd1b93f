//! Operations on the bytes of files.

use crate::file::{Arguments, Job};
use crate::memory::buf::Buf;
use crate::op::payload::Payload;
use crate::op::{Op, OpCode};
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Refusal, Watcher};

/// Operations on the bytes of files.
impl Op {
    /// Fills `buf` with the bytes at `offset`, up to the end of the file.
    ///
    /// Completes with [`Done::Read`]: fewer bytes than `buf` has room for mean the end of the file;
    /// no bytes mean that `offset` is at or beyond it. `offset` is in bytes, below 2^61 - 1. `buf`
    /// is a `Vec<u8>` or an [`AlignedBuf`](crate::AlignedBuf), whose whole capacity is offered from
    /// its start, or a list of these, with room for 1 to 2^31 - 1 bytes. A file that is open for
    /// direct I/O needs aligned memory, length and offset: see
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
    /// The refusals are those of all [file work](Op#errors-of-file-work), and:
    ///
    /// - [`Refusal::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Refusal::EmptyBuffer`], [`Refusal::TooLong`]: `buf` has no room, or room for more than
    ///   2^31 - 1 bytes.
    ///
    /// The operation can end with these errors, and returns the bytes that were read before:
    ///
    /// - `EBADF`: the file is not open for reading.
    /// - `EISDIR`: it is a directory.
    /// - `EINVAL`: direct I/O whose memory, length or offset is not aligned.
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
        op.payload = Payload::offset(offset);
        op
    }

    /// Writes all bytes of `buf` at `offset`.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has all bytes:
    /// [`Op::sync_all`] brings them to the disk. `offset` is in bytes, below 2^61 - 1; an offset
    /// beyond the end of the file leaves a hole before the bytes. `buf` has 1 to 2^31 - 1 bytes. A
    /// file that is open for direct I/O needs aligned memory, length and offset: see
    /// [`Metadata::direct`](crate::fs::Metadata).
    ///
    /// An example is at [`Op::sync_all`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work), and:
    ///
    /// - [`Refusal::Os`] with `EINVAL`: `offset` is 2^61 - 1 or more.
    /// - [`Refusal::EmptyBuffer`], [`Refusal::TooLong`]: `buf` has no bytes, or more than 2^31 - 1.
    ///
    /// The operation can end with these errors, and says how many bytes were written before:
    ///
    /// - `ENOSPC`, `EDQUOT`: the file system is full, or the user's quota is used up.
    /// - `EFBIG`: the file would be longer than the file system allows.
    /// - `EBADF`: the file is not open for writing.
    /// - `EINVAL`: direct I/O whose memory, length or offset is not aligned.
    /// - `EIO`: the device failed.
    ///
    /// # Platforms
    ///
    /// To a file that was opened to append, Linux writes at its end and ignores `offset`; other
    /// systems write at `offset`. io_uring does direct writes where it is available. Threads do all
    /// other writes. Into the page cache they write one at a time per file, because they would
    /// contend for its lock. On Windows a write moves the file position.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). [`Error::bytes`] counts the bytes that
    /// are written.
    #[inline]
    pub fn write_at(file: Source, buf: impl Into<Buf>, offset: u64) -> Op {
        let mut op = Op::with_buf(OpCode::WriteAt, file, buf.into());
        op.payload = Payload::offset(offset);
        op
    }

    /// Brings all completed writes of the file to the disk: fsync(2).
    ///
    /// Completes with [`Done::Finished`]. It does not wait for writes in flight: submit it when
    /// they have completed.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with:
    ///
    /// - `EIO`, `ENOSPC`, `EDQUOT`: some of the writes may be lost. Another sync does not bring
    ///   them back: write again.
    /// - `EINVAL`: the file cannot be synced, for example one of /proc.
    ///
    /// # Platforms
    ///
    /// On Linux io_uring does it where it is available, else Linux AIO, else a worker thread. On
    /// all other systems a worker thread does it. macOS uses `F_FULLFSYNC`, which empties the
    /// disk's cache, too. On Windows the file has to be open for writing.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). After a sync that was cancelled before
    /// it began, the writes may or may not be on the disk.
    pub const fn sync_all(file: Source) -> Op {
        Op::plain(OpCode::SyncAll, file)
    }

    /// As [`Op::sync_all`], without the metadata that reading does not need: fdatasync(2).
    ///
    /// Completes with [`Done::Finished`]. Then the length of the file is on the disk. The time of
    /// the last write may not be. An example is at [`Op::sync_all`].
    ///
    /// # Errors
    ///
    /// As for [`Op::sync_all`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::sync_all`]; on macOS and Windows the two are the same.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::sync_all`].
    pub const fn sync_data(file: Source) -> Op {
        Op::plain(OpCode::SyncData, file)
    }

    /// Writes the changed bytes of a range to the disk. The disk may still hold them in its own
    /// cache.
    ///
    /// Completes with [`Done::Finished`]. `offset` and `len` are in bytes; a `len` of 0 stands for
    /// all bytes up to the end. A later [`Op::sync_all`] then has less to write, but is still
    /// needed.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with:
    ///
    /// - `EIO`, `ENOSPC`: some of the writes may be lost.
    /// - `EINVAL`: the range ends beyond 2^63 - 1.
    ///
    /// # Platforms
    ///
    /// A worker thread calls sync_file_range(2) on Linux. Elsewhere the operation does the same as
    /// [`Op::sync_data`].
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn sync_range(file: Source, offset: u64, len: u64) -> Op {
        Op::job(file, Job::SyncRange { offset, len })
    }

    /// Reserves disk space for a range of a file: fallocate(2).
    ///
    /// Completes with [`Done::Finished`]: later writes to the range do not fail for want of space.
    /// A shorter file grows to the end of the range. `offset` and `len` are in bytes, `len` is at
    /// least 1. An example is at [`Op::set_len`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with:
    ///
    /// - `EOPNOTSUPP`: the file system cannot reserve space, or the system has no such call.
    /// - `ENOSPC`, `EDQUOT`: there is not enough space.
    /// - `EFBIG`: the range ends beyond what the file system allows.
    /// - `EINVAL`: `len` is 0, or `offset` or `len` is beyond 2^63 - 1.
    /// - `EBADF`: the file is not open for writing.
    ///
    /// # Platforms
    ///
    /// A worker thread calls fallocate(2) on Linux, and posix_fallocate(2) on FreeBSD. On macOS and
    /// Windows the operation ends with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn allocate(file: Source, offset: u64, len: u64) -> Op {
        Op::job(file, Job::Allocate { offset, len })
    }

    /// Makes the file `len` bytes long: cuts its end off, or adds a hole.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with:
    ///
    /// - `EINVAL`, `EBADF`: the file is not open for writing.
    /// - `EINVAL`: `len` is beyond 2^63 - 1.
    /// - `EFBIG`: `len` is more than the file system allows.
    /// - `EPERM`: the file is sealed, or may only be appended to.
    ///
    /// # Platforms
    ///
    /// A worker thread calls ftruncate(2), on every driver. Windows makes no hole: it writes
    /// zeroes, which may take space on the disk.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn set_len(file: Source, len: u64) -> Op {
        Op::job(file, Job::SetLen { len })
    }

    /// Sends `len` bytes at `offset` of the attached `file` over the stream socket `socket`:
    /// sendfile(2).
    ///
    /// Completes with [`Done::Sent`]. Fewer bytes than `len` mean that the file has ended. The
    /// socket's writes and this range go out in the order of their submission. `len` is 1 to 2^31 -
    /// 1 bytes. With [`multishot`](Op::multishot) each part that was sent has a completion, and
    /// [`Completion::has_more`] is false for the last one. A blocking socket is made non-blocking
    /// until it is detached.
    ///
    /// The parts that the page cache has are sent by sendfile(2), or through memory if they have at
    /// most 16 KiB, which costs less. A worker thread reads the others into memory, one after the
    /// other, and the loop sends them from there: where the page cache lacks them, where the system
    /// does not say what it has (all systems but Linux, and file systems without `RWF_NOWAIT`), and
    /// for files open with `O_DIRECT`. While there is no room for another job
    /// ([`Builder::max_jobs`]), the range waits.
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: `socket` is no TCP or Unix stream socket, or is a duplicate of a
    ///   blocking one ([`Watcher::attach_dup`]); or `file` is no file.
    /// - [`Refusal::BadCount`]: `len` is 0, or more than 2^31 - 1.
    /// - [`Refusal::Full`] with [`Limit::Writes`]: the socket has too many bytes queued
    ///   ([`Builder::write_limit`]).
    /// - [`Refusal::NoFiles`]: the driver's kernel has no files.
    ///
    /// The operation can end with the errors of [`Op::write`], and with:
    ///
    /// - `EBADF`: the file's source was closed or aborted before the bytes were sent, or the file
    ///   is not open for reading.
    /// - `EISDIR`, `EINVAL`: it is a directory.
    /// - `EIO`: the device failed.
    /// - `EAGAIN`, `ENOMEM`: bytes have to be read by a thread, and none could be made.
    ///
    /// # Platforms
    ///
    /// sendfile(2) and threads on Linux, on every driver; on io_uring the ring reports when the
    /// socket has room. Elsewhere, and for files that sendfile(2) does not support, the bytes are
    /// copied through memory.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]: [`Error::bytes`] counts the bytes that were sent. If a part of the
    /// range was sent, the writes queued behind it end as [`ErrorKind::Torn`]. A thread that reads
    /// ahead still finishes its part.
    pub fn send_file(socket: Source, file: Source, offset: u64, len: usize) -> Op {
        let mut op = Op::plain(OpCode::SendFile, socket);
        op.count = u32::try_from(len).unwrap_or(u32::MAX);
        op.payload = Payload::from(Box::new(Arguments::Range { file, offset }));
        op
    }
}
