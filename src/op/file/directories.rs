//! Operations on directories.

use std::path::PathBuf;

use crate::file::{DirReader, Job, MOST_ENTRIES};
use crate::op::Op;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Done, ErrorKind};

/// Operations on directories.
impl Op {
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EEXIST`: the name is taken.
    /// - `EMLINK`: the directory above it cannot hold more directories.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. Windows ignores `mode`: the directory has
    /// the permissions of the one above it.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn create_dir(path: impl Into<PathBuf>, mode: u32) -> Op {
        Op::job(Source::NONE, Job::CreateDir { path: path.into(), mode })
    }

    /// Removes an empty directory: rmdir(2).
    ///
    /// Completes with [`Done::Finished`]. An example is at [`Op::create_dir`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `ENOTEMPTY`: the directory is not empty. (Some systems say `EEXIST`.)
    /// - `ENOTDIR`: it is no directory: [`Op::remove_file`] removes it.
    /// - `EBUSY`: the system uses it, for example as a mount point.
    /// - `EINVAL`: the path ends in `.`.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work).
    pub fn remove_dir(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::RemoveDir { path: path.into() })
    }

    /// Makes a directory with a new name, from a template that ends in `XXXXXX`: mkdtemp(3).
    ///
    /// Completes with [`Done::Path`], the template with its last six characters replaced. Only the
    /// user may enter it (permissions 0700). It stays until the program removes it. An example is
    /// at [`Op::create_temp_file`].
    ///
    /// # Errors
    ///
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), and with:
    ///
    /// - `EINVAL`: the template does not end in `XXXXXX`.
    /// - `EEXIST`: no new name was found.
    ///
    /// # Platforms
    ///
    /// A worker thread makes the call, on every driver. On Windows the directory has the
    /// permissions of the one above it, and the template has to be Unicode.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work): a call that had begun still makes the
    /// directory, and its late completion has the path.
    pub fn create_temp_dir(template: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::CreateTempDir { template: template.into() })
    }

    /// Reads the names in a directory, without `.` and `..`, in no particular order.
    ///
    /// Completes with [`Done::Entries`]: the names, and the kinds that the system knows. It reads
    /// at most 65,536 names; [`Op::read_dir_part`] reads directories of any size.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), which include `ENOTDIR` if the path names no
    /// directory, and with:
    ///
    /// - [`ErrorKind::TooManyEntries`]: the directory has more than 65,536 names.
    ///
    /// # Platforms
    ///
    /// A worker thread calls readdir(3), on every driver. Most file systems report the kind with
    /// the name; on others each name costs another system call.
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). The operation changes nothing on the
    /// disk.
    pub fn read_dir(path: impl Into<PathBuf>) -> Op {
        Op::job(Source::NONE, Job::ReadDir { path: path.into() })
    }

    /// Reads the next `most` names of a directory of any size.
    ///
    /// Completes with [`Done::Part`], which holds the reader for the next part, or `None` at the
    /// end. The last part may be empty. `most` is 1 to 65,536; a number outside becomes the nearest
    /// one inside.
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
    /// The refusals are those of all [file work](Op#errors-of-file-work). The operation can end
    /// with the errors of [paths](Op#errors-of-paths), which include `ENOTDIR` if the path names no
    /// directory. An error closes the directory.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read_dir`].
    ///
    /// # Cancellation
    ///
    /// As for all [file work](Op#cancellation-of-file-work). A read that had not begun closes the
    /// directory: start again with a new reader. A read that had begun completes late, with its
    /// part and the reader.
    pub fn read_dir_part(reader: DirReader, most: usize) -> Op {
        let most = most.clamp(1, MOST_ENTRIES);
        Op::job(Source::NONE, Job::ReadDirPart { reader, most })
    }
}
