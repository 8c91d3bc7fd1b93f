//! Operations on files: their constructors, by family.

mod attributes;
mod data;
mod directories;
mod jobs;
mod names;

use std::path::PathBuf;

use super::Arguments;
use super::task::Task;
use crate::extra::Extra;
use crate::op::{Op, OpCode};
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
    Symlink(PathBuf),
    /// An attached file.
    Source(Source),
}

impl FileRef {
    /// Makes a symbolic link at `path` that says `target`: symlink(2).
    ///
    /// Completes with [`Done::Finished`](crate::Done::Finished). Nothing has to be at `target`.
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
    /// As for all [file work](Op#cancellation-of-file-work).
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

impl Op {
    pub(super) fn task(source: Source, task: Task) -> Op {
        let mut op = Op::plain(OpCode::Task, source);
        op.extra = Extra::from(Box::new(Arguments::Task(task)));
        op
    }

    /// Says how urgent the operation is, where threads do it.
    ///
    /// Threads take the waiting jobs of a higher [`Priority`] first. It has no effect on operations
    /// that need no thread.
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
    /// The same everywhere. It does not change the order of the system's disk queue.
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
