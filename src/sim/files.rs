//! Files: a flat space of names, the bytes of each file, and the part of them that a crash keeps.
//!
//! ```text
//!   write ──▶ the page cache ──sync──▶ the disk
//!                  ▲                     │
//!                  └───── crash ─────────┘
//! ```
//!
//! A page is *dirty* from a write to the next sync, and *cached* from a read or a write until the
//! cache is dropped. A name is on the disk as soon as it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::file::OpenOptions;
use crate::memory::buf::Target;
use crate::sim::Sim;
use crate::sim::names::Name;
use crate::sim::world::{Role, World};
use crate::sys::OpenMode;
use crate::sys::fd::RawFd;
use crate::sys::fs::ACCESS_MODE;
use crate::sys::types::{DirectAlignment, Metadata};

/// The bytes of a page.
const PAGE: usize = 4096;
/// Memory addresses, offsets and lengths of direct reads and writes must be multiples of this.
pub(super) const BLOCK: u32 = 512;
/// The largest size of a file, as on Linux.
const MOST_BYTES: u64 = i64::MAX as u64;
/// The mode of a regular file (inode(7)).
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// The pages in which these bytes lie.
fn pages(offset: u64, len: usize) -> std::ops::Range<u64> {
    let end = offset.saturating_add(len as u64);
    offset / PAGE as u64..end.div_ceil(PAGE as u64).max(offset / PAGE as u64)
}

/// Bytes, with holes.
#[derive(Clone, Default)]
struct Content {
    len: u64,
    pages: BTreeMap<u64, Rc<[u8; PAGE]>>,
}

impl Content {
    /// Copies `count` bytes from `offset` on, all of which exist.
    fn read(&self, mut offset: u64, to: &mut Target<'_>, count: usize) {
        let mut moved = 0;
        while moved < count {
            let (page, from) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
            let part = (PAGE - from).min(count - moved);
            let bytes = self.pages.get(&page).map_or(&[0; PAGE], |page| &**page);
            to.skip(moved).write(&bytes[from..from + part]);
            moved += part;
            offset += part as u64;
        }
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len() as u64);
        while !bytes.is_empty() {
            let (page, from) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
            let (part, rest) = bytes.split_at((PAGE - from).min(bytes.len()));
            let page = self.pages.entry(page).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(page)[from..from + part.len()].copy_from_slice(part);
            offset += part.len() as u64;
            bytes = rest;
        }
    }
}

/// A file, with or without a name.
struct File {
    now: Content,
    disk: Content,
    dirty: BTreeSet<u64>,
    cached: BTreeSet<u64>,
    names: u64,
    opens: u64,
    mode: u32,
    made_ns: u64,
    modified_ns: u64,
}

impl File {
    fn write(&mut self, offset: u64, bytes: &[u8], now_ns: u64) {
        self.now.write(offset, bytes);
        self.dirty.extend(pages(offset, bytes.len()));
        self.cached.extend(pages(offset, bytes.len()));
        self.modified_ns = now_ns;
    }

    fn set_len(&mut self, len: u64, now_ns: u64) {
        let gone = self.now.pages.split_off(&len.div_ceil(PAGE as u64));
        self.dirty.extend(gone.into_keys());
        let last = len / PAGE as u64;
        if len < self.now.len
            && let Some(page) = self.now.pages.get_mut(&last)
        {
            Rc::make_mut(page)[(len % PAGE as u64) as usize..].fill(0);
            self.dirty.insert(last);
        }
        self.now.len = len;
        self.modified_ns = now_ns;
    }

    /// Puts these pages and the length on the disk.
    fn sync(&mut self, range: std::ops::Range<u64>) {
        let mut rest = self.dirty.split_off(&range.start);
        let mut behind = rest.split_off(&range.end);
        for page in rest {
            match self.now.pages.get(&page) {
                Some(bytes) => drop(self.disk.pages.insert(page, Rc::clone(bytes))),
                None => drop(self.disk.pages.remove(&page)),
            }
        }
        self.dirty.append(&mut behind);
        self.disk.len = self.now.len;
    }
}

/// An open file.
#[derive(Clone, Copy)]
pub(super) struct OpenFile {
    number: u64,
    reads: bool,
    writes: bool,
    pub(super) how: OpenMode,
}

/// All files.
#[derive(Default)]
pub(super) struct SimFiles {
    names: BTreeMap<PathBuf, u64>,
    files: BTreeMap<u64, File>,
    last: u64,
}

impl SimFiles {
    fn find(&self, path: &Path) -> Result<u64, i32> {
        self.names.get(path).copied().ok_or(libc::ENOENT)
    }

    fn get(&mut self, number: u64) -> &mut File {
        self.files.get_mut(&number).expect("what is named or open is there")
    }

    fn make(&mut self, path: &Path, mode: u32, now_ns: u64) -> u64 {
        let number = self.make_nameless(REGULAR | mode & 0o7777, now_ns);
        self.get(number).names = 1;
        self.names.insert(path.to_owned(), number);
        number
    }

    /// Whether there are names below this one.
    fn is_directory(&self, path: &Path) -> bool {
        let path = path.strip_prefix(".").unwrap_or(path);
        self.names.keys().any(|name| name.parent() == Some(path))
    }

    fn make_nameless(&mut self, mode: u32, now_ns: u64) -> u64 {
        self.last += 1;
        let file = File {
            now: Content::default(),
            disk: Content::default(),
            dirty: BTreeSet::new(),
            cached: BTreeSet::new(),
            names: 0,
            opens: 0,
            mode,
            made_ns: now_ns,
            modified_ns: now_ns,
        };
        self.files.insert(self.last, file);
        self.last
    }

    /// Drops a file that has neither a name nor a descriptor.
    fn drop_unused(&mut self, number: u64) {
        let file = self.get(number);
        if file.names == 0 && file.opens == 0 {
            self.files.remove(&number);
        }
    }

    /// A descriptor is closed.
    pub(super) fn close(&mut self, open: OpenFile) {
        self.get(open.number).opens -= 1;
        self.drop_unused(open.number);
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<(), i32> {
        let number = self.names.remove(path).ok_or(libc::ENOENT)?;
        self.get(number).names -= 1;
        self.drop_unused(number);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<(), i32> {
        let number = self.find(from)?;
        if self.names.contains_key(to) {
            return Err(libc::EEXIST);
        }
        self.get(number).names += 1;
        self.names.insert(to.to_owned(), number);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), i32> {
        let number = self.find(from)?;
        if self.names.get(to) == Some(&number) {
            // Two names of one file: nothing is done (rename(2)).
            return Ok(());
        }
        if self.names.contains_key(to) {
            self.remove(to)?;
        }
        self.names.remove(from);
        self.names.insert(to.to_owned(), number);
        Ok(())
    }
}

impl World {
    /// The file behind a descriptor, if it is one.
    pub(super) fn open_file(&self, fd: RawFd) -> Result<OpenFile, i32> {
        match self.sockets.get(fd as usize).map(|socket| &socket.role) {
            Some(Role::File(open)) => Ok(*open),
            _ => Err(libc::EBADF),
        }
    }

    pub(super) fn open_path(&mut self, path: &Path, options: OpenOptions) -> Result<RawFd, i32> {
        let flags = options.flags()?;
        let now_ns = self.schedule.now_ns;
        let number = match self.files.find(path) {
            Ok(_) if flags & libc::O_EXCL != 0 => return Err(libc::EEXIST),
            Err(libc::ENOENT) if flags & libc::O_CREAT != 0 && path != Path::new("") => {
                self.files.make(path, options.permissions() & !0o022, now_ns)
            }
            // A directory exists only by the names below it.
            Err(libc::ENOENT) if self.files.is_directory(path) => {
                if flags & ACCESS_MODE != libc::O_RDONLY {
                    return Err(libc::EISDIR);
                }
                self.files.make_nameless(DIRECTORY | 0o755, now_ns)
            }
            found => found?,
        };
        let file = self.files.get(number);
        if flags & libc::O_TRUNC != 0 {
            file.set_len(0, now_ns);
        }
        file.opens += 1;
        let access = flags & ACCESS_MODE;
        let how = OpenMode {
            direct: options.is_direct(),
            appends: flags & libc::O_APPEND != 0,
            synchronous: options.is_synchronous(),
        };
        let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
        let role = Role::File(OpenFile { number, reads, writes, how });
        Ok(self.open(role, Name::None, Name::None) as RawFd)
    }

    /// Reads bytes, and puts them into the cache. Without `waits`, reads only what the cache has.
    pub(super) fn read_file(
        &mut self,
        fd: RawFd,
        to: &mut [Target<'_>],
        offset: u64,
        waits: bool,
    ) -> Result<usize, i32> {
        let open = self.open_file(fd)?;
        if !open.reads {
            return Err(libc::EBADF);
        }
        let file = self.files.get(open.number);
        let room: usize = to.iter().map(Target::len).sum();
        let mut most = file.now.len.saturating_sub(offset).min(room as u64) as usize;
        if waits {
            file.cached.extend(pages(offset, most));
        } else if let Some(uncached) = pages(offset, most).find(|page| !file.cached.contains(page))
        {
            most = (uncached * PAGE as u64).saturating_sub(offset) as usize;
            if most == 0 {
                return Err(libc::EAGAIN);
            }
        }
        let mut moved = 0;
        for target in to {
            let part = target.len().min(most - moved);
            file.now.read(offset + moved as u64, target, part);
            moved += part;
        }
        Ok(moved)
    }

    /// Writes all of `parts`: at `offset`, or at the end of a file that was opened for appending.
    pub(super) fn write_file(
        &mut self,
        fd: RawFd,
        parts: &[&[u8]],
        offset: u64,
    ) -> Result<usize, i32> {
        let open = self.open_file(fd)?;
        if !open.writes {
            return Err(libc::EBADF);
        }
        let now_ns = self.schedule.now_ns;
        let file = self.files.get(open.number);
        let mut at = if open.how.appends { file.now.len } else { offset };
        let count: usize = parts.iter().map(|part| part.len()).sum();
        if at.checked_add(count as u64).is_none_or(|end| end > MOST_BYTES) {
            return Err(libc::EFBIG);
        }
        let touched = pages(at, count);
        for part in parts {
            file.write(at, part, now_ns);
            at += part.len() as u64;
        }
        if open.how.synchronous {
            file.sync(touched);
        }
        Ok(count)
    }

    /// Puts a range on the disk.
    pub(super) fn sync_file(&mut self, fd: RawFd, offset: u64, len: u64) -> Result<(), i32> {
        let open = self.open_file(fd)?;
        let end = if len == 0 { u64::MAX } else { offset.saturating_add(len) };
        let range = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        self.files.get(open.number).sync(range);
        Ok(())
    }

    /// A sync has failed: dirty pages count as written, although they are not.
    pub(super) fn lose_dirty_pages(&mut self, fd: RawFd) {
        if let Ok(open) = self.open_file(fd) {
            self.files.get(open.number).dirty.clear();
        }
    }

    pub(super) fn set_file_len(&mut self, fd: RawFd, len: u64, only_up: bool) -> Result<(), i32> {
        let open = self.open_file(fd)?;
        if !open.writes {
            return Err(if only_up { libc::EBADF } else { libc::EINVAL });
        }
        if len > MOST_BYTES {
            return Err(libc::EFBIG);
        }
        let now_ns = self.schedule.now_ns;
        let file = self.files.get(open.number);
        if !only_up || len > file.now.len {
            file.set_len(len, now_ns);
        }
        Ok(())
    }

    /// The attributes of a file, by its name or its descriptor.
    pub(super) fn file_metadata(&mut self, of: Result<&Path, RawFd>) -> Result<Metadata, i32> {
        let number = match of {
            Ok(path) => self.files.find(path)?,
            Err(fd) => self.open_file(fd)?.number,
        };
        let file = self.files.get(number);
        let time = |ns: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        Ok(Metadata {
            device: 1,
            inode: number,
            mode: file.mode,
            links: file.names,
            user: 0,
            group: 0,
            device_of_node: 0,
            size: file.now.len,
            block_size: PAGE as u64,
            blocks: file.now.pages.len() as u64 * (PAGE as u64 / 512),
            accessed: time(file.modified_ns),
            modified: time(file.modified_ns),
            changed: time(file.modified_ns),
            created: Some(time(file.made_ns)),
            direct: Some(DirectAlignment { memory: BLOCK, offset: BLOCK }),
        })
    }
}

/// Files. The space of names is flat: a name is a path as the program says it, and needs no
/// directory.
impl Sim {
    /// Makes a file with these bytes, or replaces the bytes of an existing file. The bytes are on
    /// the disk, and not in the page cache.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// sim.write_file("greeting", "hello");
    /// let mut watcher = Watcher::simulated(&sim);
    /// watcher.submit(Op::open("greeting", OpenOptions::new().read(true)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Opened(file)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let file = watcher.attach(file)?;
    /// watcher.submit(Op::read_at(file, vec![0; 100], 0))?;
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(&*data, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let world = &mut *self.enter();
        let (path, now_ns) = (path.as_ref(), world.schedule.now_ns);
        let number = match world.files.find(path) {
            Ok(number) => number,
            Err(_) => world.files.make(path, 0o644, now_ns),
        };
        let file = world.files.get(number);
        file.set_len(0, now_ns);
        file.write(0, bytes.as_ref(), now_ns);
        file.sync(0..u64::MAX);
        file.cached.clear();
    }

    /// The bytes of a file, as a program would read them; `None` if there is no file of this name.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let world = &mut *self.enter();
        let number = world.files.find(path.as_ref()).ok()?;
        let content = &world.files.get(number).now;
        let mut bytes = vec![0; content.len as usize];
        let count = bytes.len();
        content.read(0, &mut Target::from_slice(&mut bytes), count);
        Some(bytes)
    }

    /// Takes all files out of the page cache, so that the next reads wait for the disk. Nothing is
    /// lost.
    pub fn drop_caches(&self) {
        let files = &mut self.enter().files.files;
        files.values_mut().for_each(|file| file.cached.clear());
    }

    /// The machine loses its power: every file has the bytes of its last sync. Names stay as they
    /// are. Drop the watchers first, and make new ones for the restart.
    ///
    /// ```
    /// use windlass::fs::OpenOptions;
    /// use windlass::sim::Sim;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let sim = Sim::new(1);
    /// let mut watcher = Watcher::simulated(&sim);
    /// watcher.submit(Op::open("log", OpenOptions::new().write(true).create(true)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Opened(file)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let file = watcher.attach(file)?;
    /// for op in [Op::write_at(file, "kept", 0), Op::sync_data(file), Op::write_at(file, "l", 4)] {
    ///     watcher.submit(op)?;
    ///     watcher.wait(&mut done)?;
    /// }
    /// assert_eq!(sim.read_file("log").unwrap(), b"keptl");
    /// drop(watcher);
    /// sim.crash();
    /// assert_eq!(sim.read_file("log").unwrap(), b"kept");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn crash(&self) {
        for file in self.enter().files.files.values_mut() {
            file.now = file.disk.clone();
            file.dirty.clear();
            file.cached.clear();
        }
    }
}
