//! Which file an operation is on.

use std::path::PathBuf;

#[cfg(doc)]
use crate::Op;
use crate::words::source::Source;

/// A file by its path, or an open one that is attached to the watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// By its path; symbolic links are followed.
    Path(PathBuf),
    /// By its path. If the path ends at a symbolic link, the operation is on the link itself.
    Symlink(PathBuf),
    /// An attached file.
    Source(Source),
}

impl FileRef {
    /// Makes a symbolic link at `path` that points to `target`: symlink(2).
    ///
    /// Completes with [`Done::Finished`](crate::Done::Finished). `target` need not exist.
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
    /// Refused as all [file work](Op#errors-of-file-work). Ends with the errors of
    /// [paths](Op#errors-of-paths), and with:
    ///
    /// - `EEXIST`: the name `path` is taken.
    /// - `EPERM`: the file system has no symbolic links, or on Windows the process may not make
    ///   them.
    ///
    /// # Platforms
    ///
    /// By a thread, on every driver. Windows distinguishes links to directories from links to
    /// files: this is a link to a directory if `target` is a directory now.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn symlink(path: impl Into<PathBuf>) -> FileRef {
        FileRef::Symlink(path.into())
    }

    /// The source of an operation on this file.
    pub(crate) fn source(&self) -> Source {
        match self {
            FileRef::Source(source) => *source,
            _ => Source::NONE,
        }
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
