//! Operations on the names of files: open, rename, remove, link, copy.

use std::path::PathBuf;

use crate::file::{CopyOptions, Job, OpenOptions};
use crate::op::Op;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, ErrorKind, Watcher};

/// Operations on the names of files.
impl Op {
    /// Opens a file.
    ///
    /// Completes with [`Done::Opened`], to be [attached](Watcher::attach). The descriptor is closed
    /// on exec.
    ///
    /// Opening a FIFO blocks a worker thread ([`Builder::threads`]) until the other end is open; no
    /// deadline or cancel ends it. With [`nonblocking(true)`](OpenOptions::nonblocking) it
    /// does not wait: an open for reading succeeds at once, and an open for writing fails with
    /// `ENXIO` while no process has the FIFO open for reading. Use it for paths from untrusted
    /// input, for which there is [`Op::open_beneath`]. Opening a device may block, too.
    ///
    /// ```no_run
    /// use windlass::fs::OpenOptions;
    /// use windlass::Op;
    /// let options = OpenOptions::new().read(true).nonblocking(true);
    /// let events = Op::open("/run/events.fifo", options);
    /// ```
    ///
    /// An example that runs is at [`Op::read_at`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EINVAL`: the options contradict each other, or the file system has no direct I/O.
    /// - `EEXIST`: the file exists, and [`create_new`](OpenOptions::create_new) is set.
    /// - `EISDIR`: it is a directory, which can be opened for reading only.
    /// - `ENXIO`: the path names a socket, a device that does not exist, or a FIFO that no process
    ///   reads.
    /// - `ETXTBSY`: the file is to be opened for writing, and is a program that runs.
    /// - `ELOOP`: it is a symbolic link, and the flags have `O_NOFOLLOW`.
    ///
    /// # Platforms
    ///
    /// A worker thread calls open(2), on every driver. On Windows other programs may read, write
    /// and remove the open file, the permissions are the system's own, and
    /// [`direct`](OpenOptions::direct) fails with `EINVAL`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): an open that had begun still opens,
    /// creates or truncates the file. Its completion is late, and has the open file. Dropping the
    /// completion unread closes the file.
    pub fn open(path: impl Into<PathBuf>, options: OpenOptions) -> Op {
        Op::job(Source::NONE, Job::Open { path: path.into(), options })
    }

    /// Opens a file below a directory: no part of its path leads out of it. This is for paths that
    /// come from others, as those of HTTP requests.
    ///
    /// Completes with [`Done::Opened`], as [`Op::open`] does. `path` is relative to `root`, and `.`
    /// is the directory itself. Symbolic links below `root` are followed, as far as they stay
    /// there.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let mut open = |path: &str| -> std::io::Result<Done> {
    ///     let options = OpenOptions::new().read(true).nonblocking(true);
    ///     watcher.submit(Op::open_beneath("src", path, options))?;
    ///     let mut done = Completions::new();
    ///     watcher.wait(&mut done)?;
    ///     Ok(done.drain(..).next().unwrap().result?)
    /// };
    /// assert!(matches!(open("lib.rs")?, Done::Opened(_)));
    /// assert!(open("../Cargo.toml").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Op::open`], and:
    ///
    /// - `EXDEV`: the path leads out of the directory, or is absolute.
    /// - `EAGAIN`: other programs have renamed directories of the path again and again.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call. On Linux it is openat2(2) with `RESOLVE_BENEATH`, which
    /// refuses all links with an absolute target, and what /proc calls magic links. Elsewhere, and
    /// before Linux 5.6, the path is resolved first and opened then: who can write below `root` can
    /// turn a directory into a link in between, and lead the path out of it. There, a link with an
    /// absolute target is followed if that is below `root`.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::open`].
    pub fn open_beneath(
        root: impl Into<PathBuf>,
        path: impl Into<PathBuf>,
        options: OpenOptions,
    ) -> Op {
        let (root, path) = (root.into(), path.into());
        Op::job(Source::NONE, Job::OpenBeneath { root, path, options })
    }

    /// Gives a file another name, and replaces the file that has this name: rename(2).
    ///
    /// Completes with [`Done::Finished`]. The replacement is atomic: at every moment `to` names one
    /// of the two files. An example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EXDEV`: the names are on different file systems, or mounts.
    /// - `EISDIR`, `ENOTDIR`: one of the two is a directory and the other is not.
    /// - `ENOTEMPTY`, `EEXIST`: the new name is that of a directory that is not empty.
    /// - `EINVAL`: a directory cannot move into itself.
    /// - `EBUSY`: the system uses one of the directories.
    /// - `EPERM`, `EACCES`: the file is another user's, and its directory is sticky.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): the late result of a rename that had
    /// begun says whether it was done.
    pub fn rename(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::Rename { from: from.into(), to: to.into() })
    }

    /// Removes a file's name: unlink(2).
    ///
    /// Completes with [`Done::Finished`]. The system frees the file when its last name and its last
    /// descriptor are gone. An example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EISDIR` (Linux), `EPERM` (elsewhere): it is a directory's name: [`Op::remove_dir`]
    ///   removes it.
    /// - `EPERM`, `EACCES`: the file is another user's, and its directory is sticky.
    /// - `EBUSY`: the system uses it.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. On Windows the removal fails with `EBUSY`
    /// while another program has the file open without sharing its removal.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn remove_file(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::RemoveFile { path: path.into() })
    }

    /// Gives a file another name beside its own: link(2).
    ///
    /// Completes with [`Done::Finished`]. Both names are the same file. An example is at
    /// [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EEXIST`: the new name is taken.
    /// - `EXDEV`: the names are on different file systems.
    /// - `EPERM`: it is a directory, or the file system has no hard links.
    /// - `EMLINK`: the file cannot have more names.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. If `from` is a symbolic link, the new name
    /// is one of the link itself, where the system allows that.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn hard_link(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::HardLink { from: from.into(), to: to.into() })
    }

    /// Makes a symbolic link at `path` to `target`: symlink(2).
    ///
    /// Completes with [`Done::Finished`]. `target` need not exist.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EEXIST`: the name `path` is taken.
    /// - `EPERM`: the file system has no symbolic links, or (Windows) the process may not make
    ///   them.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows has separate links to directories
    /// and to files: the kind of `target` at the time of the call decides.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn symlink(target: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::Symlink { target: target.into(), path: path.into() })
    }

    /// Reads the target of a symbolic link: readlink(2).
    ///
    /// Completes with [`Done::Path`], the target as it stands in the link. An example is at
    /// [`Op::symlink`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EINVAL`: it is no symbolic link.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn read_link(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::ReadLink { path: path.into() })
    }

    /// Resolves a path to the absolute path without symbolic links: realpath(3).
    ///
    /// Completes with [`Done::Path`]. Every part of the path has to exist. An example is at
    /// [`Op::symlink`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths).
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. On Windows the result begins with `\\?\`.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn canonicalize(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::Canonicalize { path: path.into() })
    }

    /// Copies a regular file with its permissions.
    ///
    /// Completes with [`Done::Copied`], the number of bytes. The copy shares blocks with the
    /// original where the file system can do that. Else the kernel copies, and where it cannot, the
    /// bytes go through memory. On Linux and FreeBSD the copy has the holes of the original, whose
    /// bytes count as copied; [`std::fs::copy`] fills them with zeros. Copying a file onto itself
    /// copies 0 bytes and leaves the file as it is.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), for either path, and with:
    ///
    /// - `EISDIR`: one of the two is a directory.
    /// - `EINVAL`: one of the two is a FIFO, a socket or a device. The copy never waits for the
    ///   other end of a FIFO.
    /// - `EEXIST`: the target exists, and [`exclusive`](CopyOptions::exclusive) is set.
    /// - `EOPNOTSUPP`: blocks cannot be shared, and
    ///   [`reflink_required`](CopyOptions::reflink_required) is set.
    /// - `EIO`, `ENOSPC`, `EDQUOT`: the target could not be written. The error may come from
    ///   close(2).
    ///
    /// A failed copy removes a target that it has created. A target that existed before stays, with
    /// only a part of the bytes.
    ///
    /// # Platforms
    ///
    /// A worker thread copies, on every driver: with `FICLONE` and copy_file_range(2) on Linux,
    /// copy_file_range(2) on FreeBSD, and through memory elsewhere.
    /// [`reflink_required`](CopyOptions::reflink_required) works on Linux only.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): a copy that had begun runs to its end.
    pub fn copy(from: impl Into<PathBuf>, to: impl Into<PathBuf>, options: CopyOptions) -> Op {
        Op::job(Source::NONE, Job::Copy { from: from.into(), to: to.into(), options })
    }

    /// Makes a file with a new name, from a template that ends in `XXXXXX`: mkostemp(3).
    ///
    /// Completes with [`Done::Temporary`]: the path, and the file, which is open for reading and
    /// writing and closed on exec. Only the user may open it (permissions 0600). It stays until the
    /// program removes it.
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
    /// A worker thread makes the call, on every driver. macOS sets `CLOEXEC` after the call, so
    /// that a fork between the two passes the descriptor on. On Windows the permissions are the
    /// system's own, and the template has to be Unicode.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): a call that had begun still makes the
    /// file. Its late completion has the path and the open file.
    pub fn create_temp_file(template: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::CreateTempFile { template: template.into() })
    }
}
