//! Operations on what the system knows of files.

use std::path::PathBuf;
use std::time::SystemTime;

#[cfg(doc)]
use crate::Done;
use crate::file::{Access, FileRef, Job};
use crate::op::Op;
use crate::words::source::Source;

/// Operations on what the system knows of files.
impl Op {
    /// Asks for a file's kind, size, times and permissions.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths).
    ///
    /// # Platforms
    ///
    /// A worker thread calls statx(2), stat(2) or fstat(2), on every driver. A field that the
    /// system does not know is 0 or `None`: see [`Metadata`](crate::fs::Metadata).
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn metadata(file: impl Into<FileRef>) -> Op {
        let file = file.into();
        Op::job(file.source(), Job::Metadata(file))
    }

    /// Asks whether the process may read, write or execute a file: access(2).
    ///
    /// Completes with [`Done::Finished`] if it may. The system checks the *real* user and group of
    /// the process. The answer may be out of date when it arrives, so it is better to open the file
    /// and look at the error.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EACCES`: the process may not.
    /// - `EROFS`: the question is for writing, and the file system is read-only.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows looks at the read-only attribute
    /// only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn access(path: impl Into<PathBuf>, access: Access) -> Op {
        Op::job(Source::NONE, Job::Access { path: path.into(), access })
    }

    /// Sets permissions: chmod(2), fchmod(2).
    ///
    /// Completes with [`Done::Finished`]. `mode` has the twelve lowest bits of `st_mode`; the umask
    /// has no effect.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EPERM`: the file is another user's.
    /// - `EOPNOTSUPP`: `file` is a [`FileRef::symlink`]: a link has no permissions to set.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Of `mode`, Windows honours only the write
    /// bits: a file without any of them becomes read-only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn set_permissions(file: impl Into<FileRef>, mode: u32) -> Op {
        let file = file.into();
        Op::job(file.source(), Job::SetPermissions { file, mode })
    }

    /// Sets owner and group, by their numbers: chown(2), lchown(2), fchown(2).
    ///
    /// Completes with [`Done::Finished`]. `None` leaves a value as it is. An example is at
    /// [`Op::set_permissions`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EPERM`: the process may not give the file to this user or group.
    /// - `EOPNOTSUPP`: the system does not number owners (Windows).
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows answers `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn set_owner(file: impl Into<FileRef>, user: Option<u32>, group: Option<u32>) -> Op {
        let file = file.into();
        Op::job(file.source(), Job::SetOwner { file, user, group })
    }

    /// Sets the times of access and modification: utimensat(2), futimens(2).
    ///
    /// Completes with [`Done::Finished`]. `None` leaves a value as it is. A file system may round
    /// the times. An example is at [`Op::set_permissions`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EPERM`, `EACCES`: the file is another user's.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows rounds to 100 nanoseconds.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn set_times(
        file: impl Into<FileRef>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Op {
        let file = file.into();
        Op::job(file.source(), Job::SetTimes { file, accessed, modified })
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EOPNOTSUPP`: the system has no such call.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows answers `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn statfs(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::StatFs { path: path.into() })
    }
}
