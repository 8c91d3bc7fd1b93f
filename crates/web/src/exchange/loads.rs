//! Files that are being opened, and those that are open.
//!
//! ```text
//!   request ─▶ fresh in the cache? ─yes─▶ send
//!                   │ no
//!                   ▼
//!            open ─▶ look at the open file ─▶ read it, if it is small ─▶ the cache, all who wait
//! ```
//!
//! # Why
//! The kind of a file is asked of the open descriptor, not of the name: a name can mean something
//! else a moment later. The open does not wait for the other end of a FIFO. A load belongs to no
//! connection: all that ask for a file meanwhile wait for the same one, and if they all go away,
//! the file is in the cache for the next one. That is why there is a bound of its own.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use windlass::fs::{FileKind, Metadata, OpenOptions};
use windlass::{Done, ErrorKind, Op, SourceGuard};
use windlass_serve::Id;
use windlass_serve::ops::Completed;

use crate::files::cache::{FileCache, FileKey};
use crate::files::dir::ServedDir;
use crate::files::found::{Content, FoundFile};
use crate::words::error::Error;
use crate::words::status::Status;

/// How many files a loop opens at a time.
const MOST_LOADS: usize = 1024;

/// A file that is being opened.
struct Load {
    key: FileKey,
    dir: Arc<ServedDir>,
    stage: LoadStage,
    waiters: Vec<Id>,
    /// The place of the name of the index file that is tried, if it is one.
    index: usize,
    /// Whether it is opened for direct reads.
    is_direct: bool,
    /// The version that was open before.
    before: Option<Arc<FoundFile>>,
    /// The file itself, while its neighbour in gzip is looked for.
    plain: Option<Arc<FoundFile>>,
}

enum LoadStage {
    Opening,
    Looking(SourceGuard),
    Reading(FoundFile),
}

/// How a load has ended.
#[derive(Clone)]
pub(super) enum Loaded {
    File(Arc<FoundFile>),
    /// It is a directory, and its name has no slash behind it.
    Directory,
    Failed(Trouble),
}

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Missing,
    Forbidden,
    Busy,
    /// It has become shorter before anything of it was sent.
    Changing,
    Broken(Option<i32>),
}

impl Trouble {
    fn of(errno: i32) -> Trouble {
        match errno {
            // No file has such a name, or it leads out of the directory, or it is a socket.
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ENAMETOOLONG
            | libc::ELOOP
            | libc::EXDEV
            | libc::ENXIO
            | libc::EINVAL
            | libc::EISDIR => Trouble::Missing,
            libc::EACCES | libc::EPERM => Trouble::Forbidden,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN => Trouble::Busy,
            errno => Trouble::Broken(Some(errno)),
        }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Error {
        match trouble {
            Trouble::Missing => Error::new(Status::NOT_FOUND),
            Trouble::Forbidden => Error::new(Status::FORBIDDEN),
            Trouble::Busy => busy().because("the server has no descriptor or no memory for a file"),
            Trouble::Changing => busy().because("the file has become shorter"),
            Trouble::Broken(errno) => {
                let error = Error::new(Status::INTERNAL_SERVER_ERROR);
                match errno {
                    Some(errno) => error.because(std::io::Error::from_raw_os_error(errno)),
                    None => error.because("the operation on a file was refused"),
                }
            }
        }
    }
}

fn busy() -> Error {
    Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1")
}

/// What follows a step of a load.
pub(super) enum LoadStep {
    /// Another operation.
    Submit(Op),
    /// Nothing: all who wait get the file, or the reason why there is none.
    Over(Loaded, Vec<Id>),
}

/// Files that are being opened, and those that are open.
#[derive(Default)]
pub(super) struct Loads {
    cache: FileCache,
    all: Vec<Option<Load>>,
    vacant: Vec<u32>,
    by_key: HashMap<FileKey, u32>,
    /// Whether a timer will close what is no longer fresh.
    pub(super) is_swept: bool,
}

impl Loads {
    /// The open file with a name, if it is fresh.
    #[inline]
    pub(super) fn fresh(
        &mut self,
        dir: &ServedDir,
        (path, is_directory): (&OsStr, bool),
        now: Instant,
    ) -> Option<Arc<FoundFile>> {
        let (file, is_fresh) = self.cache.get(dir.number, is_directory, path, now)?;
        is_fresh.then(|| Arc::clone(file))
    }

    /// Begins to open a file, or joins those that wait for it. Returns the number of the load, and
    /// the first operation if it is a new one; `None` if there are too many.
    pub(super) fn begin(
        &mut self,
        dir: &Arc<ServedDir>,
        (path, is_directory): (&OsStr, bool),
        waiter: Id,
        now: Instant,
    ) -> Option<(u32, Option<Op>)> {
        let key = FileKey { dir: dir.number, is_directory, path: path.into() };
        if let Some(number) = self.by_key.get(&key).copied()
            && let Some(load) = self.all.get_mut(number as usize).and_then(Option::as_mut)
        {
            load.waiters.push(waiter);
            return Some((number, None));
        }
        if self.all.len() - self.vacant.len() >= MOST_LOADS {
            return None;
        }
        let before = self.cache.get(dir.number, is_directory, path, now);
        let before = before.map(|(file, _)| Arc::clone(file));
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        if dir.options.keeps() {
            self.by_key.insert(key.clone(), number);
        }
        let load = Load {
            key,
            dir: Arc::clone(dir),
            stage: LoadStage::Opening,
            waiters: vec![waiter],
            index: 0,
            is_direct: dir.options.direct,
            before,
            plain: None,
        };
        let op = load.open();
        self.all[number as usize] = Some(load);
        match op {
            Some(op) => Some((number, Some(op))),
            // A directory without the name of an index file.
            None => Some((number, Some(Op::nop()))),
        }
    }

    /// The operation of a load has ended.
    pub(super) fn step(
        &mut self,
        number: u32,
        ended: Completed,
        (now, time): (Instant, SystemTime),
    ) -> Option<LoadStep> {
        let load = self.all.get_mut(number as usize)?.as_mut()?;
        let room = self.cache.room(load.key.dir, &load.dir.options);
        match load.advance(ended, time, room) {
            Ok(op) => Some(LoadStep::Submit(op)),
            Err(loaded) => {
                let load = self.all[number as usize].take()?;
                self.vacant.push(number);
                self.by_key.remove(&load.key);
                match &loaded {
                    Loaded::File(file) => {
                        let options = &load.dir.options;
                        self.cache.keep(load.key, Arc::clone(file), now, options);
                    }
                    Loaded::Failed(Trouble::Busy) => self.cache.close_all(),
                    _ => self.cache.forget(&load.key),
                }
                Some(LoadStep::Over(loaded, load.waiters))
            }
        }
    }

    /// Closes what is no longer fresh. Returns how long until there is something to close again.
    pub(super) fn sweep(&mut self, now: Instant) -> Option<std::time::Duration> {
        self.cache.sweep(now)
    }

    /// Closes all files that are open: something else needs their descriptors.
    pub(super) fn close_all(&mut self) {
        self.cache.close_all();
    }

    /// A file is not as it was when it was opened.
    pub(super) fn forget(&mut self, file: &Arc<FoundFile>) {
        self.cache.forget_file(file);
    }
}

impl Load {
    /// Opens the file, or the next index file; `None` if there is none.
    fn open(&self) -> Option<Op> {
        let path = Path::new(&*self.key.path);
        let path = match self.key.is_directory {
            true => path.join(&**self.dir.options.index.get(self.index)?),
            false => path.to_owned(),
        };
        let path = match self.plain {
            Some(_) => {
                let mut name = path.into_os_string();
                name.push(".gz");
                PathBuf::from(name)
            }
            None => path,
        };
        let read = OpenOptions::new().read(true).nonblocking(true).direct(self.is_direct);
        Some(match &self.dir.root {
            None => Op::open(path, read),
            Some(root) if self.dir.options.follows_out => Op::open(root.join(path), read),
            Some(root) => Op::open_beneath(root, path, read),
        })
    }

    /// The path by whose end the type is known.
    fn name(&self) -> PathBuf {
        match (self.key.is_directory, self.dir.options.index.get(self.index)) {
            (true, Some(index)) => PathBuf::from(&**index),
            _ => PathBuf::from(&*self.key.path),
        }
    }

    /// What follows an operation: another one, or the end. Behind a file comes its neighbour.
    fn advance(&mut self, ended: Completed, time: SystemTime, room: usize) -> Result<Op, Loaded> {
        let loaded = match self.step(ended, time, room) {
            Ok(op) => return Ok(op),
            Err(loaded) => loaded,
        };
        match (self.plain.take(), loaded) {
            (None, Loaded::File(found)) if self.dir.options.gzip => {
                self.before.clone_from(&found.gzip);
                self.plain = Some(Arc::clone(&found));
                self.stage = LoadStage::Opening;
                self.open().ok_or(Loaded::File(found))
            }
            (Some(plain), Loaded::File(gzip)) if gzip.is_as_new_as(&plain) => {
                Err(Loaded::File(plain.with_gzip(Some(gzip))))
            }
            (Some(plain), _) => Err(Loaded::File(plain.with_gzip(None))),
            (None, loaded) => Err(loaded),
        }
    }

    /// What follows an operation on the file or on its neighbour.
    fn step(&mut self, ended: Completed, time: SystemTime, room: usize) -> Result<Op, Loaded> {
        let Completed { result, file, .. } = ended;
        let result = match result {
            Ok(completion) => completion.result,
            // What is open is no file, but a FIFO or a device.
            Err(_) if matches!(self.stage, LoadStage::Looking(_)) => {
                return Err(Loaded::Failed(Trouble::Missing));
            }
            Err(_) => return Err(Loaded::Failed(Trouble::Broken(None))),
        };
        match std::mem::replace(&mut self.stage, LoadStage::Opening) {
            LoadStage::Opening => self.opened(result, file.map_err(|_| Trouble::Busy)),
            LoadStage::Looking(guard) => match result {
                Ok(Done::Metadata(known)) => self.looked(guard, &known, time, room),
                other => Err(Loaded::Failed(trouble_of(&other))),
            },
            LoadStage::Reading(mut found) => {
                if let Ok(Done::Read(bytes)) = result
                    && bytes.len() as u64 == found.len
                {
                    found.content = Content::Kept(Arc::from(&bytes[..]));
                }
                // One that is shorter or longer by now is sent as far as it was.
                Err(Loaded::File(Arc::new(found)))
            }
        }
    }

    fn opened(
        &mut self,
        result: Result<Done, windlass::Error>,
        file: Result<Option<SourceGuard>, Trouble>,
    ) -> Result<Op, Loaded> {
        match file.map_err(Loaded::Failed)? {
            Some(guard) => {
                let look = Op::metadata(guard.source());
                self.stage = LoadStage::Looking(guard);
                Ok(look)
            }
            None => {
                let trouble = trouble_of(&result);
                let is_refused = result.as_ref().is_err_and(|error| is_invalid(error.kind()));
                if self.is_direct && is_refused {
                    self.is_direct = false; // the file system has no direct reads
                    return self.open().ok_or(Loaded::Failed(Trouble::Missing));
                }
                let is_index = self.key.is_directory && self.plain.is_none();
                if is_index && trouble == Trouble::Missing {
                    self.index += 1;
                    return self.open().ok_or(Loaded::Failed(trouble));
                }
                Err(Loaded::Failed(trouble))
            }
        }
    }

    fn looked(
        &mut self,
        guard: SourceGuard,
        known: &Metadata,
        time: SystemTime,
        room: usize,
    ) -> Result<Op, Loaded> {
        match known.kind() {
            FileKind::File => {}
            FileKind::Directory if !self.key.is_directory && !self.dir.options.index.is_empty() => {
                return Err(Loaded::Directory);
            }
            _ => return Err(Loaded::Failed(Trouble::Missing)),
        }
        if let Some(before) = self.before.take().filter(|before| before.is_still(known)) {
            return Err(Loaded::File(before)); // this one is closed again
        }
        let source = guard.source();
        let (name, is_gzip) = (self.name(), self.plain.is_some());
        let of = (&*name, is_gzip);
        let mut found = FoundFile::new(guard, of, (known, time), &self.dir.options);
        if self.is_direct {
            let align = known.direct.map_or(4096, |direct| direct.offset.max(direct.memory));
            found.direct = Some(align.max(512));
            return Err(Loaded::File(Arc::new(found)));
        }
        if found.len == 0 || found.len > self.dir.options.small.min(room) as u64 {
            return Err(Loaded::File(Arc::new(found)));
        }
        // One byte more, to see whether it has grown.
        let read = Op::read_at(source, vec![0; found.len as usize + 1], 0);
        self.stage = LoadStage::Reading(found);
        Ok(read)
    }
}

fn is_invalid(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Os(libc::EINVAL | libc::EOPNOTSUPP))
}

fn trouble_of(result: &Result<Done, windlass::Error>) -> Trouble {
    match result {
        Err(error) => match error.kind() {
            ErrorKind::Os(errno) => Trouble::of(errno),
            _ => Trouble::Busy,
        },
        Ok(_) => Trouble::Missing,
    }
}
