//! The open files of a loop.
//!
//! # Why
//! A file that many ask for costs no system call but its sends. It is kept until it is no longer
//! fresh, and its name is looked at again then. A file that nobody asks for is closed, so that one
//! which was removed gives its space on the disk back.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::found::{Content, FoundFile};
use super::options::FilesOptions;

/// A name in a directory. One with a slash behind it means the index file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) dir: u32,
    pub(crate) is_directory: bool,
    pub(crate) path: Box<OsStr>,
}

struct CachedFile {
    file: Arc<FoundFile>,
    until: Instant,
}

/// Those of one directory.
#[derive(Default)]
struct OfDir {
    files: HashMap<Box<OsStr>, CachedFile>,
    directories: HashMap<Box<OsStr>, CachedFile>,
    bytes: usize,
}

impl OfDir {
    fn of(&mut self, is_directory: bool) -> &mut HashMap<Box<OsStr>, CachedFile> {
        if is_directory { &mut self.directories } else { &mut self.files }
    }

    fn len(&self) -> usize {
        self.files.len() + self.directories.len()
    }

    /// Closes files: those that this is true of.
    fn close(&mut self, mut closes: impl FnMut(&CachedFile) -> bool) {
        let bytes = &mut self.bytes;
        let mut keep = |kept: &CachedFile| {
            let closes = closes(kept);
            if closes {
                *bytes -= held(&kept.file);
            }
            !closes
        };
        self.files.retain(|_, kept| keep(kept));
        self.directories.retain(|_, kept| keep(kept));
    }

    /// Closes one, to make room. Which one does not matter much: there are more hot files than may
    /// be kept.
    fn close_any(&mut self) {
        let is_directory = self.files.is_empty();
        let all = self.of(is_directory);
        let Some(path) = all.keys().next().cloned() else { return };
        if let Some(kept) = all.remove(&path) {
            self.bytes -= held(&kept.file);
        }
    }
}

/// How many bytes a file has in memory.
fn held(file: &FoundFile) -> usize {
    let own = match &file.content {
        Content::Open(_) => 0,
        Content::Kept(bytes) => bytes.len(),
    };
    own + file.gzip.as_ref().map_or(0, |gzip| held(gzip))
}

/// The open files of a loop.
#[derive(Default)]
pub(crate) struct FileCache {
    dirs: HashMap<u32, OfDir>,
}

impl FileCache {
    /// The file with a name, and whether it is fresh.
    #[inline]
    pub(crate) fn get(
        &mut self,
        dir: u32,
        is_directory: bool,
        path: &OsStr,
        now: Instant,
    ) -> Option<(&Arc<FoundFile>, bool)> {
        let kept = self.dirs.get_mut(&dir)?.of(is_directory).get(path)?;
        Some((&kept.file, now < kept.until))
    }

    /// Keeps a file.
    pub(crate) fn keep(
        &mut self,
        key: FileKey,
        file: Arc<FoundFile>,
        now: Instant,
        options: &FilesOptions,
    ) {
        if !options.keeps() {
            return;
        }
        self.forget(&key);
        let dir = self.dirs.entry(key.dir).or_default();
        while dir.len() >= options.count {
            dir.close_any();
        }
        dir.bytes += held(&file);
        dir.of(key.is_directory).insert(key.path, CachedFile { file, until: now + options.fresh });
    }

    /// How many bytes more may be kept of the files of a directory.
    pub(crate) fn room(&self, dir: u32, options: &FilesOptions) -> usize {
        let held = self.dirs.get(&dir).map_or(0, |dir| dir.bytes);
        if options.keeps() { options.memory.saturating_sub(held) } else { 0 }
    }

    /// Closes a file.
    pub(crate) fn forget(&mut self, key: &FileKey) {
        let Some(dir) = self.dirs.get_mut(&key.dir) else { return };
        if let Some(kept) = dir.of(key.is_directory).remove(&key.path) {
            dir.bytes -= held(&kept.file);
        }
    }

    /// Closes a file under all of its names, because it is not as it was.
    pub(crate) fn forget_file(&mut self, file: &Arc<FoundFile>) {
        for dir in self.dirs.values_mut() {
            dir.close(|kept| {
                let gzip = kept.file.gzip.as_ref();
                Arc::ptr_eq(&kept.file, file) || gzip.is_some_and(|gzip| Arc::ptr_eq(gzip, file))
            });
        }
    }

    /// Closes all: something else needs their descriptors or their memory.
    pub(crate) fn close_all(&mut self) {
        self.dirs.clear();
    }

    /// Closes what is no longer fresh. Returns how long until there is something to close again.
    pub(crate) fn sweep(&mut self, now: Instant) -> Option<Duration> {
        self.dirs.values_mut().for_each(|dir| dir.close(|kept| kept.until <= now));
        self.dirs.retain(|_, dir| dir.len() > 0);
        let all = self.dirs.values();
        let all = all.flat_map(|dir| dir.files.values().chain(dir.directories.values()));
        all.map(|kept| kept.until.saturating_duration_since(now)).max()
    }
}
